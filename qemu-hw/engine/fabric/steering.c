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
                          const uint8_t *dgid, int vlan)
{
    return dmac[0] & 1 ? qrnic_group_is_ours(e, dgid) &&
                         qrnic_vlan_is_ours(e, vlan) :
                         qrnic_gid_is_ours(e, dgid, vlan);
}

bool qrnic_frame_is_roce(QrnicEngine *e, const uint8_t *frame, size_t len)
{
    uint8_t dgid[16] = { [10] = 0xff, [11] = 0xff };
    const uint8_t *ip = frame + 14;
    const uint8_t *end = frame + len;
    unsigned ethertype, header;
    int vlan = -1;

    /* Few frames get beyond this. */
    if (len < 14 || !mac_may_be_ours(e, frame)) {
        return false;
    }
    ethertype = qrnic_ld_be16(frame + 12);
    if (ethertype == QRNIC_ETHERTYPE_VLAN && len >= 18) {
        vlan = qrnic_ld_be16(frame + 14) & 0xfff;
        ethertype = qrnic_ld_be16(frame + 16);
        ip += 4;
        /* A tag of VLAN 0 carries a priority only. */
        vlan = vlan ? vlan : -1;
    }
    if (ethertype == QRNIC_ETHERTYPE_IPV4) {
        header = 20;
        if (end - ip < header + 8 || ip[0] >> 4 != 4 ||
            ip[9] != QRNIC_IP_PROTOCOL_UDP ||
            (qrnic_ld_be16(ip + 6) & QRNIC_IPV4_FRAGMENT)) {
            return false;
        }
        header = (ip[0] & 0xf) * 4;
        memcpy(dgid + 12, ip + 16, 4);
    } else if (ethertype == QRNIC_ETHERTYPE_IPV6) {
        header = 40;
        if (end - ip < header + 8 || ip[0] >> 4 != 6 ||
            ip[6] != QRNIC_IP_PROTOCOL_UDP) {
            return false;
        }
        memcpy(dgid, ip + 24, 16);
    } else {
        return false;
    }
    return header >= 20 && end - ip >= header + 8 &&
           qrnic_ld_be16(ip + header + 2) == QRNIC_ROCE_UDP_PORT &&
           gid_is_for_us(e, frame, dgid, vlan);
}

bool qrnic_destination_is_ours(QrnicEngine *e, const uint8_t *dmac,
                               const uint8_t *dgid, int vlan)
{
    return mac_may_be_ours(e, dmac) &&
           gid_is_for_us(e, dmac, dgid, vlan > 0 ? vlan : -1);
}
