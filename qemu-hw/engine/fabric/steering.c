/*
 * qrnic engine: which frames belong to the transport
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/fabric/fabric.h"

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

    /* Few frames get beyond their MAC address. */
    return h->ethernet && mac_may_be_ours(e, h->frame) && (v1 || is_v2(h)) &&
           gid_is_for_us(e, h->frame, h->dgid, h->vlan, v1);
}

bool qrnic_destination_is_ours(QrnicEngine *e, const uint8_t *dmac,
                               const uint8_t *dgid, int vlan, bool v1)
{
    return mac_may_be_ours(e, dmac) &&
           gid_is_for_us(e, dmac, dgid, vlan > 0 ? vlan : -1, v1);
}
