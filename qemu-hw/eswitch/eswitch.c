/*
 * qrnic embedded switch: its life, and the functions for the PF
 *
 * The owner creates the switch at realize. Commands of the PF configure the
 * functions, and commands of a function set its filter. Nothing is forwarded
 * here: changes apply to the next run (schedule.c).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "eswitch/eswitch_private.h"

#define VLAN_MAX 4094
#define PRIORITY_MAX 7

QrnicEswitch *qrnic_eswitch_new(const char *name, unsigned vfs,
                                const QrnicEswitchOps *ops, void *opaque)
{
    QrnicEswitch *sw = g_new0(QrnicEswitch, 1);

    assert(vfs <= QRNIC_ESWITCH_VFS_MAX);
    sw->name = name;
    sw->ops = *ops;
    sw->opaque = opaque;
    sw->count = QRNIC_ESWITCH_VF(vfs);
    sw->armed = QRNIC_ESWITCH_NEVER;
    sw->next = QRNIC_ESWITCH_PF;
    for (unsigned i = 0; i < sw->count; i++) {
        sw->port[i].number = i;
        sw->port[i].wait_until = QRNIC_ESWITCH_NEVER;
        for (unsigned j = 0; j < QRNIC_ESWITCH_NUM_CLASSES; j++) {
            QTAILQ_INIT(&sw->port[i].rx[j].waiting);
        }
    }
    sw->port[QRNIC_ESWITCH_PF].config.trust = true;
    return sw;
}

static void drop_queues(QrnicEswitch *sw, QrnicEswitchPort *p)
{
    qrnic_eswitch_queue_drop(sw, p, &p->tx, QRNIC_ESWITCH_TX_DROP_RESET);
    for (unsigned i = 0; i < QRNIC_ESWITCH_NUM_CLASSES; i++) {
        qrnic_eswitch_queue_drop(sw, p, &p->rx[i].queue,
                                 QRNIC_ESWITCH_RX_DROP_RESET);
    }
}

void qrnic_eswitch_free(QrnicEswitch *sw)
{
    for (unsigned i = 0; i < sw->count; i++) {
        drop_queues(sw, &sw->port[i]);
        g_free(sw->port[i].address);
    }
    g_free(sw);
}

/* Life of a port */

void qrnic_eswitch_plug(QrnicEswitch *sw, unsigned port)
{
    trace_qrnic_eswitch_plug(sw->name, port, true);
    sw->port[port].plugged = true;
    qrnic_eswitch_shares_changed(sw);
}

void qrnic_eswitch_reset_port(QrnicEswitch *sw, unsigned port)
{
    static const QrnicEswitchFilter none;
    QrnicEswitchPort *p = &sw->port[port];

    p->resets++;
    drop_queues(sw, p);
    qrnic_eswitch_sender_reset(p);
    qrnic_eswitch_set_filter(sw, port, &none);
    /* Senders may wait for the room of this port. */
    qrnic_eswitch_ready(sw, port);
}

void qrnic_eswitch_unplug(QrnicEswitch *sw, unsigned port)
{
    trace_qrnic_eswitch_plug(sw->name, port, false);
    sw->port[port].plugged = false;
    qrnic_eswitch_shares_changed(sw);
    qrnic_eswitch_reset_port(sw, port);
}

void qrnic_eswitch_ready(QrnicEswitch *sw, unsigned port)
{
    sw->port[port].busy = false;
    sw->port[port].readies++;
    qrnic_eswitch_kick(sw);
}

/* Links */

bool qrnic_eswitch_link(const QrnicEswitch *sw, unsigned port)
{
    return qrnic_eswitch_is_up(sw, &sw->port[port]);
}

/* Reports a change of a link, and lets the next run drop its frames. */
static void link_changed(QrnicEswitch *sw, QrnicEswitchPort *p, bool was)
{
    bool up = qrnic_eswitch_is_up(sw, p);

    if (was == up) {
        return;
    }
    trace_qrnic_eswitch_link(sw->name, p->number, up);
    qrnic_eswitch_kick(sw);
    if (!qrnic_eswitch_is_uplink(p)) {
        sw->ops.link(sw->opaque, p->number, up);
    }
}

void qrnic_eswitch_set_wire(QrnicEswitch *sw, bool up)
{
    bool was[QRNIC_ESWITCH_PORTS_MAX];

    for (unsigned i = 0; i < sw->count; i++) {
        was[i] = qrnic_eswitch_link(sw, i);
    }
    sw->wire = up;
    for (unsigned i = 0; i < sw->count; i++) {
        link_changed(sw, &sw->port[i], was[i]);
    }
}

/* Configuration */

/* Returns true if the PF has assigned the address to another function. */
static bool mac_in_use(const QrnicEswitch *sw, unsigned port,
                       const uint8_t *mac)
{
    for (unsigned i = QRNIC_ESWITCH_PF; i < sw->count; i++) {
        if (i != port && !memcmp(sw->port[i].config.mac, mac, 6)) {
            return true;
        }
    }
    return false;
}

static QrnicEswitchResult check_config(const QrnicEswitch *sw, unsigned port,
                                       const QrnicEswitchConfig *c)
{
    if (port < QRNIC_ESWITCH_PF || port >= sw->count) {
        return QRNIC_ESWITCH_BAD_PORT;
    }
    if (c->mac[0] & 1) {
        return QRNIC_ESWITCH_BAD_MAC;
    }
    if (qrnic_eswitch_key(c->mac) && mac_in_use(sw, port, c->mac)) {
        return QRNIC_ESWITCH_MAC_IN_USE;
    }
    if (c->vlan > VLAN_MAX) {
        return QRNIC_ESWITCH_BAD_VLAN;
    }
    if (c->priority > PRIORITY_MAX || (c->priority && !c->vlan)) {
        return QRNIC_ESWITCH_BAD_PRIORITY;
    }
    if (c->link > QRNIC_ESWITCH_LINK_DISABLE) {
        return QRNIC_ESWITCH_BAD_LINK;
    }
    if (c->max_mbps && c->min_mbps > c->max_mbps) {
        return QRNIC_ESWITCH_BAD_RATE;
    }
    return QRNIC_ESWITCH_OK;
}

QrnicEswitchResult qrnic_eswitch_configure(QrnicEswitch *sw, unsigned port,
                                           const QrnicEswitchConfig *config)
{
    QrnicEswitchResult result = check_config(sw, port, config);
    const uint8_t *mac = config->mac;
    QrnicEswitchPort *p;
    bool was;

    trace_qrnic_eswitch_configure(sw->name, port, result, mac[0], mac[1],
                                  mac[2], mac[3], mac[4], mac[5],
                                  config->vlan);
    if (result != QRNIC_ESWITCH_OK) {
        return result;
    }
    p = &sw->port[port];
    was = qrnic_eswitch_link(sw, port);
    if (config->max_mbps != p->config.max_mbps) {
        /* The debt of the previous rate would delay frames at a higher rate. */
        p->full_at = sw->run_ns;
    }
    p->config = *config;
    p->mac = qrnic_eswitch_key(mac);
    qrnic_eswitch_shares_changed(sw);
    /* A sender may wait for a rate, a VLAN or a port that has changed. */
    qrnic_eswitch_kick(sw);
    link_changed(sw, p, was);
    return QRNIC_ESWITCH_OK;
}

const QrnicEswitchConfig *qrnic_eswitch_config(const QrnicEswitch *sw,
                                               unsigned port)
{
    return &sw->port[port].config;
}

/* Filters */

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

bool qrnic_eswitch_set_filter(QrnicEswitch *sw, unsigned port,
                              const QrnicEswitchFilter *filter)
{
    QrnicEswitchPort *p = &sw->port[port];

    if (filter->count > QRNIC_ESWITCH_ADDRESSES) {
        return false;
    }
    g_free(p->address);
    p->address = filter->count ? g_new(uint64_t, filter->count) : NULL;
    p->addresses = filter->count;
    for (unsigned i = 0; i < filter->count; i++) {
        p->address[i] = qrnic_eswitch_key(filter->addresses[i]);
    }
    if (filter->count) {
        qsort(p->address, p->addresses, sizeof(p->address[0]), compare_keys);
    }
    p->promiscuous = filter->promiscuous;
    p->all_multicast = filter->all_multicast;
    trace_qrnic_eswitch_filter(sw->name, port, filter->promiscuous,
                               filter->all_multicast, filter->count);
    return true;
}

/* Counters */

uint64_t qrnic_eswitch_count(const QrnicEswitch *sw, unsigned port,
                             QrnicEswitchCount which)
{
    return sw->port[port].count[which];
}
