/*
 * qrnic embedded switch: the receivers of a frame
 *
 * schedule.c calls qrnic_eswitch_route() for the first frame of a sender, each
 * time that it may be forwarded. The rules use the addresses and the VLAN of
 * the frame only, and the configuration and filters of the ports. The switch
 * learns no addresses, because it knows those of its functions. So no sender
 * can redirect frames. Manual, chapter "Virtual functions", section "Forwarding
 * between functions".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "eswitch/eswitch_private.h"

static QrnicEswitchRoute dropped(QrnicEswitchCount reason)
{
    return (QrnicEswitchRoute) { .drop = reason };
}

/* Returns true if the filter of the function has the address. */
static bool filter_has(const QrnicEswitchPort *p, uint64_t key)
{
    unsigned low = 0, high = p->addresses;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;

        if (p->address[middle] == key) {
            return true;
        }
        if (p->address[middle] < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}

/*
 * Returns true if the address belongs to the function. The PF assigns an
 * address, and a trusted function may request more.
 */
static bool owns(const QrnicEswitchPort *p, uint64_t key)
{
    return key && (key == p->mac || (p->config.trust && filter_has(p, key)));
}

static bool is_tagged(const uint8_t *frame)
{
    uint16_t type = lduw_be_p(frame + QRNIC_ESWITCH_TYPE);

    return type == QRNIC_ESWITCH_TYPE_VLAN ||
           type == QRNIC_ESWITCH_TYPE_SERVICE;
}

/*
 * Checks the frame of a sender. Returns false, and the reason, if it must be
 * dropped.
 */
static bool check(const QrnicEswitch *sw, const QrnicEswitchPort *from,
                  const QrnicEswitchFrame *f, QrnicEswitchCount *reason)
{
    const uint8_t *source = f->data + QRNIC_ESWITCH_SOURCE;
    const QrnicEswitchConfig *c = &from->config;

    if (!qrnic_eswitch_is_up(sw, from)) {
        *reason = QRNIC_ESWITCH_TX_DROP_LINK;
    } else if (source[0] & 1) {
        *reason = QRNIC_ESWITCH_TX_DROP_SOURCE;
    } else if (c->spoof_check && !owns(from, qrnic_eswitch_key(source))) {
        *reason = QRNIC_ESWITCH_TX_DROP_SPOOF;
    } else if (c->vlan && is_tagged(f->data)) {
        *reason = QRNIC_ESWITCH_TX_DROP_TAGGED;
    } else if (c->vlan &&
               f->len + QRNIC_ESWITCH_TAG > QRNIC_ESWITCH_FRAME_MAX) {
        *reason = QRNIC_ESWITCH_TX_DROP_GIANT;
    } else {
        return true;
    }
    return false;
}

static bool in_vlan(const QrnicEswitchPort *p, uint16_t vlan)
{
    return !p->config.vlan || p->config.vlan == vlan;
}

/* Returns the functions that receive frames to a group address. */
static uint64_t group_functions(const QrnicEswitch *sw, uint64_t key)
{
    uint64_t found = 0;

    for (unsigned i = QRNIC_ESWITCH_PF; i < sw->count; i++) {
        const QrnicEswitchPort *p = &sw->port[i];

        if (p->plugged && (key == QRNIC_ESWITCH_BROADCAST ||
                           p->all_multicast || filter_has(p, key))) {
            found |= qrnic_eswitch_bit(p);
        }
    }
    return found;
}

/*
 * Returns the functions that own a unicast address. The address that the PF
 * assigned has precedence, so that no other function can request it.
 */
static uint64_t unicast_functions(const QrnicEswitch *sw, uint64_t key)
{
    uint64_t found = 0;

    for (unsigned i = QRNIC_ESWITCH_PF; i < sw->count; i++) {
        const QrnicEswitchPort *p = &sw->port[i];

        if (p->plugged && key && key == p->mac) {
            return qrnic_eswitch_bit(p);
        }
        if (p->plugged && owns(p, key)) {
            found |= qrnic_eswitch_bit(p);
        }
    }
    return found;
}

static uint64_t promiscuous_functions(const QrnicEswitch *sw)
{
    uint64_t found = 0;

    for (unsigned i = QRNIC_ESWITCH_PF; i < sw->count; i++) {
        const QrnicEswitchPort *p = &sw->port[i];

        if (p->plugged && p->promiscuous && p->config.trust) {
            found |= qrnic_eswitch_bit(p);
        }
    }
    return found;
}

/* Removes the functions that are not in the VLAN. */
static uint64_t vlan_functions(QrnicEswitch *sw, uint64_t functions,
                               uint16_t vlan)
{
    for (uint64_t left = functions; left; left &= left - 1) {
        const QrnicEswitchPort *p = qrnic_eswitch_first(sw, left);

        if (!in_vlan(p, vlan)) {
            functions &= ~qrnic_eswitch_bit(p);
        }
    }
    return functions;
}

/*
 * Routes a frame that bridges must not forward, for example LLDP or a pause
 * frame: between the uplink and the PF only.
 */
static QrnicEswitchRoute route_one_hop(QrnicEswitch *sw,
                                       const QrnicEswitchPort *from,
                                       uint16_t vlan)
{
    const QrnicEswitchPort *pf = &sw->port[QRNIC_ESWITCH_PF];

    if (from == pf) {
        return (QrnicEswitchRoute) { .uplink = true };
    }
    if (qrnic_eswitch_is_uplink(from) && pf->plugged && in_vlan(pf, vlan)) {
        return (QrnicEswitchRoute) { .functions = qrnic_eswitch_bit(pf) };
    }
    return dropped(QRNIC_ESWITCH_TX_DROP_RESERVED);
}

/* Routes a frame to a unicast address. */
static QrnicEswitchRoute route_unicast(QrnicEswitch *sw,
                                       const QrnicEswitchPort *from,
                                       uint64_t key, uint16_t vlan)
{
    bool uplink = qrnic_eswitch_is_uplink(from);
    uint64_t self = uplink ? 0 : qrnic_eswitch_bit(from);
    uint64_t owners = unicast_functions(sw, key);
    QrnicEswitchRoute r = {
        .functions = vlan_functions(sw, owners, vlan) & ~self,
        .drop = QRNIC_ESWITCH_TX_DROP_NOBODY,
    };

    if (r.functions) {
        return r;
    }
    if (owners & self) {
        return dropped(QRNIC_ESWITCH_TX_DROP_OWN);
    }
    if (!uplink) {
        r.uplink = true;
        return r;
    }
    r.functions = vlan_functions(sw, promiscuous_functions(sw), vlan);
    if (!r.functions && owners) {
        r.owner = qrnic_eswitch_first(sw, owners);
    }
    return r;
}

QrnicEswitchRoute qrnic_eswitch_route(QrnicEswitch *sw, QrnicEswitchPort *from,
                                      const QrnicEswitchFrame *f)
{
    bool uplink = qrnic_eswitch_is_uplink(from);
    uint64_t key = qrnic_eswitch_key(f->data);
    uint16_t vlan = from->config.vlan ? from->config.vlan :
                    qrnic_eswitch_vlan(f->data, f->len);
    QrnicEswitchCount reason;
    QrnicEswitchRoute r;

    if (!check(sw, from, f, &reason)) {
        return dropped(reason);
    }
    if (qrnic_address_is_one_hop(f->data)) {
        return route_one_hop(sw, from, vlan);
    }
    if (!(f->data[0] & 1)) {
        return route_unicast(sw, from, key, vlan);
    }
    r = (QrnicEswitchRoute) {
        .functions = vlan_functions(sw, group_functions(sw, key), vlan),
        .uplink = !uplink,
        .drop = QRNIC_ESWITCH_TX_DROP_NOBODY,
    };
    if (!uplink) {
        r.functions &= ~qrnic_eswitch_bit(from);
    }
    return r;
}
