/*
 * qrnic engine: checksums of Ethernet frames (RFC 791, 768, 8200, 9293)
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/transport/transport.h"

#define IPV4_CHECKSUM 10
#define TCP_HEADER 20
#define TCP_CHECKSUM 16
#define UDP_LENGTH 4
#define UDP_CHECKSUM 6

static uint16_t sum_fold(uint64_t sum)
{
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

/*
 * Ones-complement sum of big-endian 16-bit words. It may be taken over words
 * of the other byte order, and wider ones, and swapped in the end (RFC 1071).
 */
uint16_t qrnic_checksum_add(const uint8_t *p, size_t len)
{
    uint64_t sum = 0;
    uint16_t folded;

    for (; len >= 4; p += 4, len -= 4) {
        sum += qrnic_ld_le32(p);
    }
    for (unsigned shift = 0; len; p++, len--, shift += 8) {
        sum += (uint32_t)*p << shift;
    }
    folded = sum_fold(sum);
    return folded << 8 | folded >> 8;
}

/* The headers that have checksums, as offsets in the frame; 0: there is none */
typedef struct Headers {
    size_t ipv4, ipv4_len;
    size_t l4, l4_len;          /* not of fragments; its length fits */
    size_t l4_checksum;
    uint64_t pseudo_sum;
    bool udp_optional;          /* UDP over IPv4 may go without checksum */
} Headers;

static void find_l4(Headers *h, const uint8_t *frame, size_t at, size_t len,
                    uint8_t protocol)
{
    const uint8_t *l4 = frame + at;

    if (protocol == QRNIC_IP_PROTOCOL_UDP) {
        size_t udp_len;

        if (len < QRNIC_UDP_LEN) {
            return;
        }
        udp_len = qrnic_ld_be16(l4 + UDP_LENGTH);
        if (udp_len < QRNIC_UDP_LEN || udp_len > len) {
            return;
        }
        len = udp_len;
        h->l4_checksum = at + UDP_CHECKSUM;
        h->udp_optional = h->ipv4;
    } else if (protocol == QRNIC_IP_PROTOCOL_TCP && len >= TCP_HEADER) {
        h->l4_checksum = at + TCP_CHECKSUM;
    } else {
        return;
    }
    h->l4 = at;
    h->l4_len = len;
    h->pseudo_sum += protocol + len;
}

static Headers find_headers(const uint8_t *frame, size_t len)
{
    unsigned ethertype = qrnic_ld_be16(frame + 12);
    size_t at = QRNIC_ETH_LEN, header, total;
    const uint8_t *ip;
    Headers h = { 0 };

    if (ethertype == QRNIC_ETHERTYPE_VLAN &&
        len >= QRNIC_ETH_LEN + QRNIC_VLAN_LEN) {
        ethertype = qrnic_ld_be16(frame + 16);
        at += QRNIC_VLAN_LEN;
    }
    ip = frame + at;
    len -= at;
    if (ethertype == QRNIC_ETHERTYPE_IPV6) {
        if (len < 40 || ip[0] >> 4 != 6) {
            return h;
        }
        total = qrnic_ld_be16(ip + 4);
        if (total > len - 40) {
            return h;
        }
        /* Behind extension headers the packet is left to software. */
        h.pseudo_sum = qrnic_checksum_add(ip + 8, 32);
        find_l4(&h, frame, at + 40, total, ip[6]);
        return h;
    }
    if (ethertype != QRNIC_ETHERTYPE_IPV4 || len < 20 || ip[0] >> 4 != 4) {
        return h;
    }
    header = (ip[0] & 0xf) * 4;
    total = qrnic_ld_be16(ip + 2);
    if (header < 20 || total < header || total > len) {
        return h;
    }
    h.ipv4 = at;
    h.ipv4_len = header;
    if (!(qrnic_ld_be16(ip + 6) & QRNIC_IPV4_FRAGMENT)) {    /* no fragment */
        h.pseudo_sum = qrnic_checksum_add(ip + 12, 8);
        find_l4(&h, frame, at + header, total - header, ip[9]);
    }
    return h;
}

bool qrnic_checksums_bad(const uint8_t *frame, size_t len, uint8_t *flags)
{
    Headers h = find_headers(frame, len);

    if (h.ipv4) {
        if (qrnic_checksum_add(frame + h.ipv4, h.ipv4_len) != 0xffff) {
            return true;
        }
        *flags |= QRNIC_CQEF_L3_CSUM_OK;
    }
    if (!h.l4 || (h.udp_optional && !qrnic_ld_be16(frame + h.l4_checksum))) {
        return false;
    }
    if (sum_fold(h.pseudo_sum + qrnic_checksum_add(frame + h.l4, h.l4_len)) !=
        0xffff) {
        return true;
    }
    *flags |= QRNIC_CQEF_L4_CSUM_OK;
    return false;
}

void qrnic_checksum_store(uint8_t *at, uint16_t sum)
{
    sum = ~sum;
    /* Zero means "no checksum" in UDP; the other zero is as good. */
    qrnic_st_be16(at, sum ? sum : 0xffff);
}

void qrnic_checksums_fill(uint8_t *frame, size_t len)
{
    Headers h = find_headers(frame, len);

    if (h.ipv4) {
        uint8_t *field = frame + h.ipv4 + IPV4_CHECKSUM;

        qrnic_st_be16(field, 0);
        qrnic_checksum_store(field, qrnic_checksum_add(frame + h.ipv4,
                                                       h.ipv4_len));
    }
    if (h.l4) {
        uint8_t *field = frame + h.l4_checksum;

        qrnic_st_be16(field, 0);
        qrnic_checksum_store(field, sum_fold(h.pseudo_sum +
                                             qrnic_checksum_add(frame + h.l4,
                                                                h.l4_len)));
    }
}
