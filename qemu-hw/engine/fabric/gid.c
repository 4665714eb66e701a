/*
 * qrnic engine: the GID table
 *
 * Commands write entries (SET_GID, CLEAR_GID). Queue pairs read the entry of
 * their source GID. The receive path compares the destination of each frame
 * with the table. After each change, summarise() updates gids_end and the list
 * of MAC addresses, which make this comparison fast. The counter gids_epoch is
 * incremented, so that queue pairs notice the change.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/fabric/fabric.h"

#define MAX_VLAN_ID 4094

const QrnicGidEntry *qrnic_gid_get(QrnicEngine *e, uint32_t index)
{
    const QrnicGidEntry *g = &e->fabric->gids[index];

    return index < e->fabric->gids_end && (g->flags & QRNIC_GID_VALID) ? g :
                                                                        NULL;
}

bool qrnic_gid_reaches(const QrnicGidEntry *from, const uint8_t *dgid)
{
    return from->flags & QRNIC_GID_ROCE_V1 ||
           qrnic_gid_is_ipv4(from->gid) == qrnic_gid_is_ipv4(dgid);
}

static bool entry_is_of(const QrnicGidEntry *g, int vlan, bool v1)
{
    int its_vlan = g->flags & QRNIC_GID_VLAN ? g->vlan_id : -1;

    return (g->flags & QRNIC_GID_VALID) && its_vlan == vlan &&
           !(g->flags & QRNIC_GID_ROCE_V1) == !v1;
}

bool qrnic_gid_is_ours(QrnicEngine *e, const uint8_t *dgid, int vlan, bool v1)
{
    for (uint32_t i = 0; i < e->fabric->gids_end; i++) {
        const QrnicGidEntry *g = &e->fabric->gids[i];

        if (entry_is_of(g, vlan, v1) &&
            !memcmp(g->gid, dgid, sizeof(g->gid))) {
            return true;
        }
    }
    return false;
}

bool qrnic_vlan_is_ours(QrnicEngine *e, int vlan, bool v1)
{
    for (uint32_t i = 0; i < e->fabric->gids_end; i++) {
        if (entry_is_of(&e->fabric->gids[i], vlan, v1)) {
            return true;
        }
    }
    return false;
}

/*
 * Updates the summary of the table that each received frame is compared with.
 */
static void summarise(QrnicEngine *e)
{
    QrnicFabric *f = e->fabric;

    f->gids_epoch++;
    f->gids_end = 0;
    f->num_macs = 0;
    for (uint32_t i = 0; i < e->config.max_gid; i++) {
        const QrnicGidEntry *g = &f->gids[i];
        uint32_t k = 0;

        if (!(g->flags & QRNIC_GID_VALID)) {
            continue;
        }
        f->gids_end = i + 1;
        while (k < f->num_macs && memcmp(f->macs[k], g->mac, 6)) {
            k++;
        }
        if (k == f->num_macs) {
            memcpy(f->macs[f->num_macs++], g->mac, 6);
        }
    }
}

void qrnic_gids_reset(QrnicEngine *e)
{
    memset(e->fabric->gids, 0, e->config.max_gid * sizeof(*e->fabric->gids));
    summarise(e);
}

bool qrnic_gid_is_multicast(const uint8_t *gid)
{
    return gid[0] == 0xff ||
           (qrnic_gid_is_ipv4(gid) && (gid[12] & 0xf0) == 0xe0);
}

/*
 * Wakes the engine, because a queue pair that waits for the wire may use
 * loopback after the change.
 */
static void changed(QrnicEngine *e)
{
    summarise(e);
    qrnic_wake(e);
}

QrnicResult qrnic_gid_set(QrnicEngine *e, uint32_t index,
                          const QrnicGidEntry *in)
{
    static const uint8_t zero[16];
    bool vlan = in->flags & QRNIC_GID_VLAN;

    if (index >= e->config.max_gid) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (!memcmp(in->gid, zero, 16) || qrnic_gid_is_multicast(in->gid)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_GID_ENTRY_GID_OFFSET);
    }
    if (!memcmp(in->mac, zero, 6) || (in->mac[0] & 1)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_GID_ENTRY_MAC_OFFSET);
    }
    if (vlan ? in->vlan_id > MAX_VLAN_ID : in->vlan_id) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_GID_ENTRY_VLAN_ID_OFFSET);
    }
    if (!(in->flags & QRNIC_GID_VALID)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_GID_ENTRY_FLAGS_OFFSET);
    }
    if ((in->flags & QRNIC_GID_ROCE_V1) &&
        !(e->config.capabilities & QRNIC_CAP_ROCE_V1)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_GID_ENTRY_FLAGS_OFFSET);
    }
    e->fabric->gids[index] = *in;
    changed(e);
    trace_qrnic_gid_set(e->config.name, index, qrnic_ld_be64(in->gid),
                        qrnic_ld_be64(in->gid + 8),
                        vlan ? in->vlan_id : -1,
                        in->flags & QRNIC_GID_ROCE_V1 ? 1 : 2);
    return qrnic_ok(0);
}

QrnicResult qrnic_gid_clear(QrnicEngine *e, uint32_t index)
{
    if (index >= e->config.max_gid) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    memset(&e->fabric->gids[index], 0, sizeof(e->fabric->gids[index]));
    changed(e);
    trace_qrnic_gid_clear(e->config.name, index);
    return qrnic_ok(0);
}

QrnicResult qrnic_gid_query(QrnicEngine *e, uint32_t index, QrnicGidEntry *out)
{
    if (index >= e->config.max_gid) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    *out = e->fabric->gids[index];
    return qrnic_ok(0);
}

static bool mac_is_ours(QrnicEngine *e, const uint8_t *mac)
{
    for (uint32_t i = 0; i < e->fabric->num_macs; i++) {
        if (!memcmp(e->fabric->macs[i], mac, 6)) {
            return true;
        }
    }
    return false;
}

static bool mac_may_be_ours(QrnicEngine *e, const uint8_t *dmac)
{
    return dmac[0] & 1 ? e->fabric->attachment_count : mac_is_ours(e, dmac);
}

static bool gid_is_for_us(QrnicEngine *e, const uint8_t *dmac,
                          const uint8_t *dgid, int vlan, bool v1)
{
    return dmac[0] & 1 ? qrnic_group_is_ours(e, dgid) &&
                         qrnic_vlan_is_ours(e, vlan, v1) :
                         qrnic_gid_is_ours(e, dgid, vlan, v1);
}

static bool is_v2(const QrnicHeaders *h)
{
    return h->l4 && h->protocol == QRNIC_IP_PROTOCOL_UDP &&
           h->len - h->l4 >= QRNIC_UDP_LEN && h->dport == QRNIC_ROCE_UDP_PORT;
}

bool qrnic_frame_is_roce(QrnicEngine *e, const QrnicHeaders *h)
{
    bool v1 = h->network == QRNIC_NET_GRH;

    /*
     * The MAC address is compared first, because it excludes most frames at
     * little cost.
     */
    return h->ethernet && mac_may_be_ours(e, h->frame) && (v1 || is_v2(h)) &&
           gid_is_for_us(e, h->frame, h->dgid, h->vlan, v1);
}

bool qrnic_destination_is_ours(QrnicEngine *e, const uint8_t *dmac,
                               const uint8_t *dgid, int vlan, bool v1)
{
    return mac_may_be_ours(e, dmac) &&
           gid_is_for_us(e, dmac, dgid, vlan > 0 ? vlan : -1, v1);
}
