/*
 * qrnic: the commands by which the physical function configures virtual
 * functions: SET_VF and QUERY_VF
 *
 * The configuration and the statistics are those of a port of the embedded
 * switch (qemu-hw/eswitch/). Both stay when a function is reset or disabled.
 * The engine calls the functions below while the physical function is entered.
 * Manual, chapter "Virtual functions".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/pci/pci.h"
#include "device/sriov/sriov.h"

/* Syndrome of an object of the entry that does not exist */
#define ENTRY_OBJECT UINT32_MAX

static QrnicResult refuse(uint8_t status, uint32_t syndrome)
{
    return (QrnicResult) { .status = status, .syndrome = syndrome };
}

void qrnic_sriov_mac_derive(const QrnicSriov *s, unsigned number, uint8_t *mac)
{
    memcpy(mac, s->pf->conf.macaddr.a, 6);
    mac[0] = (mac[0] ^ (number + 1) << 2) | 2;
}

static QrnicResult result_of(QrnicEswitchResult result)
{
    static const uint32_t offsets[] = {
        [QRNIC_ESWITCH_BAD_MAC] = QRNIC_VF_CTX_MAC_OFFSET,
        [QRNIC_ESWITCH_MAC_IN_USE] = QRNIC_VF_CTX_MAC_OFFSET,
        [QRNIC_ESWITCH_BAD_VLAN] = QRNIC_VF_CTX_VLAN_OFFSET,
        [QRNIC_ESWITCH_BAD_PRIORITY] = QRNIC_VF_CTX_PRIORITY_OFFSET,
        [QRNIC_ESWITCH_BAD_LINK] = QRNIC_VF_CTX_LINK_OFFSET,
        [QRNIC_ESWITCH_BAD_RATE] = QRNIC_VF_CTX_MAX_RATE_OFFSET,
    };

    return result == QRNIC_ESWITCH_OK ? (QrnicResult) { QRNIC_ST_OK } :
                     refuse(QRNIC_ST_BAD_PARAM, offsets[result]);
}

QrnicResult qrnic_sriov_vf_set(QrnicDevice *d, uint32_t number,
                               const QrnicVfCtx *in)
{
    static const uint8_t zero[6];
    QrnicSriov *s = d->sriov;
    QrnicEswitchConfig config = {
        .vlan = in->vlan, .priority = in->priority,
        .spoof_check = in->flags & QRNIC_VFF_SPOOF_CHECK,
        .trust = in->flags & QRNIC_VFF_TRUST,
        .max_mbps = in->max_rate,
    };

    if (number >= s->pf->vfs) {
        return refuse(QRNIC_ST_BAD_OBJECT, ENTRY_OBJECT);
    }
    switch (in->link) {
    case QRNIC_VF_LINK_AUTO:
        config.link = QRNIC_ESWITCH_LINK_AUTO;
        break;
    case QRNIC_VF_LINK_ENABLE:
        config.link = QRNIC_ESWITCH_LINK_ENABLE;
        break;
    case QRNIC_VF_LINK_DISABLE:
        config.link = QRNIC_ESWITCH_LINK_DISABLE;
        break;
    default:
        return refuse(QRNIC_ST_BAD_PARAM, QRNIC_VF_CTX_LINK_OFFSET);
    }
    if (memcmp(in->mac, zero, 6)) {
        memcpy(config.mac, in->mac, 6);
    } else {
        qrnic_sriov_mac_derive(s, number, config.mac);
    }
    return result_of(qrnic_eswitch_configure(s->eswitch,
                                             QRNIC_ESWITCH_VF(number),
                                             &config));
}

/* Returns the sum of the counters from first to last. */
static uint64_t count(const QrnicSriov *s, unsigned port,
                      QrnicEswitchCount first, QrnicEswitchCount last)
{
    uint64_t sum = 0;

    for (unsigned which = first; which <= last; which++) {
        sum += qrnic_eswitch_count(s->eswitch, port, which);
    }
    return sum;
}

static uint8_t vf_state(const QrnicSriov *s, unsigned port)
{
    const QrnicDevice *d = s->function[port];

    return (d && d->parent_obj.enabled ? QRNIC_VFS_ENABLED : 0) |
           (qrnic_eswitch_link(s->eswitch, port) ? QRNIC_VFS_LINK_UP : 0);
}

QrnicResult qrnic_sriov_vf_query(QrnicDevice *d, uint32_t number,
                                 QrnicVfAttr *out)
{
    static const uint8_t links[] = {
        [QRNIC_ESWITCH_LINK_AUTO] = QRNIC_VF_LINK_AUTO,
        [QRNIC_ESWITCH_LINK_ENABLE] = QRNIC_VF_LINK_ENABLE,
        [QRNIC_ESWITCH_LINK_DISABLE] = QRNIC_VF_LINK_DISABLE,
    };
    const QrnicSriov *s = d->sriov;
    unsigned port = QRNIC_ESWITCH_VF(number);
    const QrnicEswitchConfig *c;

    if (number >= s->pf->vfs) {
        return refuse(QRNIC_ST_BAD_OBJECT, ENTRY_OBJECT);
    }
    c = qrnic_eswitch_config(s->eswitch, port);
    *out = (QrnicVfAttr) {
        .vlan = c->vlan, .priority = c->priority,
        .flags = (c->spoof_check ? QRNIC_VFF_SPOOF_CHECK : 0) |
                 (c->trust ? QRNIC_VFF_TRUST : 0),
        .link = links[c->link], .state = vf_state(s, port),
        .max_rate = c->max_mbps,
        .tx_frames = qrnic_eswitch_count(s->eswitch, port,
                                         QRNIC_ESWITCH_TX_FRAMES),
        .tx_bytes = qrnic_eswitch_count(s->eswitch, port,
                                        QRNIC_ESWITCH_TX_BYTES),
        .rx_frames = qrnic_eswitch_count(s->eswitch, port,
                                         QRNIC_ESWITCH_RX_FRAMES),
        .rx_bytes = qrnic_eswitch_count(s->eswitch, port,
                                        QRNIC_ESWITCH_RX_BYTES),
        .rx_multicast = qrnic_eswitch_count(s->eswitch, port,
                                            QRNIC_ESWITCH_RX_MULTICAST),
        .rx_broadcast = qrnic_eswitch_count(s->eswitch, port,
                                            QRNIC_ESWITCH_RX_BROADCAST),
        .tx_spoofed = qrnic_eswitch_count(s->eswitch, port,
                                          QRNIC_ESWITCH_TX_DROP_SPOOF),
        .tx_dropped = count(s, port, QRNIC_ESWITCH_TX_DROP_LINK,
                            QRNIC_ESWITCH_TX_DROP_RESET),
        .rx_dropped = count(s, port, QRNIC_ESWITCH_RX_DROP_LINK,
                            QRNIC_ESWITCH_RX_DROP_RESET),
    };
    memcpy(out->mac, c->mac, 6);
    return (QrnicResult) { QRNIC_ST_OK };
}
