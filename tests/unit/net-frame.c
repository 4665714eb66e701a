/*
 * Frames as a network sees them: headers up to the BTH; see net.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "net.h"

#define ECN_MASK 3
#define ECN_CE 3

static uint32_t mix(uint32_t hash, uint32_t word)
{
    hash = (hash ^ word) * 0x9e3779b1u;
    return hash ^ hash >> 15;
}

void net_classify(SimFrame *f)
{
    const uint8_t *p = f->data;
    unsigned at = QRNIC_ETH_LEN, l4 = 0;
    uint8_t traffic_class = 0;
    uint16_t type = f->len < at ? 0 : lduw_be_p(p + 12);

    f->ip = f->bth = f->priority = 0;
    f->adaptive = false;
    f->hash = 0;
    f->wire_bytes = MAX(f->len, NET_FRAME_MIN) + NET_OVERHEAD;
    if (type == QRNIC_ETHERTYPE_VLAN && f->len >= at + QRNIC_VLAN_LEN) {
        type = lduw_be_p(p + 16);
        at += QRNIC_VLAN_LEN;
    }
    if (type == QRNIC_ETHERTYPE_IPV4 && f->len >= at + QRNIC_IPV4_LEN) {
        traffic_class = p[at + 1];
        l4 = p[at + 9] == QRNIC_IP_PROTOCOL_UDP ? at + (p[at] & 15) * 4 : 0;
        f->hash = mix(mix(0, ldl_be_p(p + at + 12)), ldl_be_p(p + at + 16));
        f->ip = at;
    } else if (type == QRNIC_ETHERTYPE_IPV6 && f->len >= at + QRNIC_IPV6_LEN) {
        traffic_class = lduw_be_p(p + at) >> 4;
        l4 = p[at + 6] == QRNIC_IP_PROTOCOL_UDP ? at + QRNIC_IPV6_LEN : 0;
        for (unsigned i = 8; i < QRNIC_IPV6_LEN; i += 4) {
            f->hash = mix(f->hash, ldl_be_p(p + at + i));
        }
        f->ip = at;
    }
    f->priority = traffic_class >> 5;
    if (l4 && f->len >= l4 + QRNIC_UDP_LEN) {
        f->hash = mix(f->hash, ldl_be_p(p + l4));
        if (lduw_be_p(p + l4 + 2) == QRNIC_ROCE_UDP_PORT &&
            f->len >= l4 + QRNIC_UDP_LEN + QRNIC_BTH_LEN) {
            f->bth = l4 + QRNIC_UDP_LEN;
            f->adaptive = p[f->bth + 8] & NET_BTH_ADAPTIVE;
        }
    }
}

bool net_mark(SimFrame *f)
{
    uint8_t *ip = f->data + f->ip;

    if (!f->ip) {
        return false;
    }
    if (ip[0] >> 4 == 6) {
        unsigned was = ip[1] >> 4 & ECN_MASK;

        if (!was || was == ECN_CE) {
            return false;
        }
        ip[1] |= ECN_CE << 4;
    } else {
        uint8_t was = ip[1];
        uint32_t sum;

        if (!(was & ECN_MASK) || (was & ECN_MASK) == ECN_CE) {
            return false;
        }
        ip[1] |= ECN_CE;
        /* RFC 1624; the word has version, length and TOS. */
        sum = (uint16_t)~lduw_be_p(ip + QRNIC_IPV4_CHECKSUM) +
              (uint16_t)~(ip[0] << 8 | was) + lduw_be_p(ip);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        stw_be_p(ip + QRNIC_IPV4_CHECKSUM, ~sum);
    }
    return true;
}
