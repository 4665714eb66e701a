/*
 * qrnic wire: the headers of a frame, from Ethernet to the ports of UDP and TCP
 *
 * The fabric layer calls qrnic_headers_walk() for each frame that is received
 * or looped back. The walk never reads behind the end of the frame, and accepts
 * any content.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "wire/headers.h"

#define IPV4_FRAGMENT   0x3fff  /* "more fragments" and offset */
#define PORTS_LEN       4

/*
 * Returns the bytes of the tags by which a frame may exceed the MTU, for at
 * most two tags.
 */
static unsigned tags_length(const uint8_t *frame, size_t len)
{
    unsigned tags = 0;

    while (tags < 2 * QRNIC_VLAN_LEN &&
           len >= QRNIC_ETH_LEN + tags + QRNIC_VLAN_LEN) {
        uint16_t type = lduw_be_p(frame + 12 + tags);

        if (type != QRNIC_ETHERTYPE_VLAN && type != QRNIC_ETHERTYPE_SERVICE) {
            break;
        }
        tags += QRNIC_VLAN_LEN;
    }
    return tags;
}

/* Returns the offset of the header that the EtherType names. */
static size_t walk_ethernet(QrnicHeaders *h)
{
    size_t at = QRNIC_ETH_LEN;

    h->ethernet = true;
    h->tags_len = tags_length(h->frame, h->len);
    h->ethertype = lduw_be_p(h->frame + 12);
    if (h->ethertype == QRNIC_ETHERTYPE_VLAN && h->tags_len) {
        h->tagged = true;
        h->tci = lduw_be_p(h->frame + 14);
        /* Identifier 0 is a priority tag, so the frame belongs to no VLAN. */
        if (h->tci & 0xfff) {
            h->vlan = h->tci & 0xfff;
        }
        h->ethertype = lduw_be_p(h->frame + 16);
        at += QRNIC_VLAN_LEN;
    }
    return at;
}

static void gid_of_ipv4(uint8_t gid[16], const uint8_t *address)
{
    static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

    memcpy(gid, prefix, 12);
    memcpy(gid + 12, address, 4);
}

static void walk_ipv4(QrnicHeaders *h, size_t at)
{
    const uint8_t *ip = h->frame + at;
    size_t room = h->len - at, header, total;

    if (room < QRNIC_IPV4_LEN || ip[0] >> 4 != 4) {
        return;
    }
    header = (ip[0] & 0xf) * 4;
    if (header < QRNIC_IPV4_LEN || header > room) {
        return;
    }
    h->network = QRNIC_NET_IPV4;
    h->ip = at;
    h->ip_len = header;
    total = lduw_be_p(ip + 2);
    h->ip_total = total >= header && total <= room ? total : 0;
    h->traffic_class = ip[1];
    h->fragment = lduw_be_p(ip + 6) & IPV4_FRAGMENT;
    h->hop_limit = ip[8];
    h->protocol = ip[9];
    gid_of_ipv4(h->sgid, ip + 12);
    gid_of_ipv4(h->dgid, ip + 16);
}

/*
 * Parses IPv6, or a GRH, because a GRH has the same fields (InfiniBand
 * specification, 8.3).
 */
static void walk_ipv6(QrnicHeaders *h, size_t at, QrnicNetwork network)
{
    const uint8_t *ip = h->frame + at;
    size_t room = h->len - at, total;
    uint32_t first;

    if (room < QRNIC_IPV6_LEN || ip[0] >> 4 != 6) {
        return;
    }
    h->network = network;
    h->ip = at;
    h->ip_len = QRNIC_IPV6_LEN;
    total = QRNIC_IPV6_LEN + lduw_be_p(ip + 4);
    h->ip_total = total <= room ? total : 0;
    first = ldl_be_p(ip);
    h->traffic_class = first >> 20;
    h->flow_label = first & 0xfffff;
    h->protocol = ip[6];
    h->hop_limit = ip[7];
    memcpy(h->sgid, ip + 8, 16);
    memcpy(h->dgid, ip + 24, 16);
}

static void walk_ports(QrnicHeaders *h)
{
    size_t at = h->ip + h->ip_len;
    const uint8_t *l4 = h->frame + at;
    size_t in_packet = h->ip_total ? h->ip_total - h->ip_len : 0;
    size_t len;

    if (h->fragment || h->len - at < PORTS_LEN ||
        (h->protocol != QRNIC_IP_PROTOCOL_UDP &&
         h->protocol != QRNIC_IP_PROTOCOL_TCP)) {
        return;
    }
    h->l4 = at;
    h->sport = lduw_be_p(l4);
    h->dport = lduw_be_p(l4 + 2);
    if (h->protocol == QRNIC_IP_PROTOCOL_TCP) {
        h->l4_len = in_packet >= QRNIC_TCP_LEN ? in_packet : 0;
    } else if (in_packet >= QRNIC_UDP_LEN) {
        len = lduw_be_p(l4 + 4);
        h->l4_len = len >= QRNIC_UDP_LEN && len <= in_packet ? len : 0;
    }
}

QrnicHeaders qrnic_headers_walk(const uint8_t *frame, size_t len)
{
    QrnicHeaders h = { .frame = frame, .len = len, .vlan = -1 };
    size_t at;

    if (len < QRNIC_ETH_LEN) {
        return h;
    }
    at = walk_ethernet(&h);
    if (h.ethertype == QRNIC_ETHERTYPE_IPV4) {
        walk_ipv4(&h, at);
    } else if (h.ethertype == QRNIC_ETHERTYPE_IPV6) {
        walk_ipv6(&h, at, QRNIC_NET_IPV6);
    } else if (h.ethertype == QRNIC_ETHERTYPE_ROCE_V1) {
        walk_ipv6(&h, at, QRNIC_NET_GRH);
    }
    if (qrnic_headers_have_ip(&h)) {
        walk_ports(&h);
    }
    return h;
}
