/*
 * qrnic engine: checksums of Ethernet frames (RFC 791, 768, 8200, 9293)
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/transport/transport.h"

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

/* The IPv4 header is there, and what it says of lengths is true. */
static bool has_ipv4(const QrnicHeaders *h)
{
    return h->network == QRNIC_NET_IPV4 && h->ip_total;
}

static size_t l4_checksum_at(const QrnicHeaders *h)
{
    return h->l4 + (h->protocol == QRNIC_IP_PROTOCOL_TCP ? QRNIC_TCP_CHECKSUM :
                                                           QRNIC_UDP_CHECKSUM);
}

/*
 * Over pseudo header and segment. Behind the extension headers of IPv6 the
 * walk finds no ports: such packets are left to software.
 */
static uint16_t l4_sum(const QrnicHeaders *h)
{
    const uint8_t *ip = h->frame + h->ip;
    uint64_t sum = h->network == QRNIC_NET_IPV4 ?
                   qrnic_checksum_add(ip + 12, 8) :
                   qrnic_checksum_add(ip + 8, 32);

    return sum_fold(sum + h->protocol + h->l4_len +
                    qrnic_checksum_add(h->frame + h->l4, h->l4_len));
}

/* UDP over IPv4 may go without checksum. */
static bool l4_unchecked(const QrnicHeaders *h)
{
    return h->network == QRNIC_NET_IPV4 &&
           h->protocol == QRNIC_IP_PROTOCOL_UDP &&
           !qrnic_ld_be16(h->frame + l4_checksum_at(h));
}

bool qrnic_checksums_bad(const QrnicHeaders *h, uint8_t *flags)
{
    if (has_ipv4(h)) {
        if (qrnic_checksum_add(h->frame + h->ip, h->ip_len) != 0xffff) {
            return true;
        }
        *flags |= QRNIC_CQEF_L3_CSUM_OK;
    }
    if (!h->l4_len || l4_unchecked(h)) {
        return false;
    }
    if (l4_sum(h) != 0xffff) {
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

void qrnic_checksums_fill(const QrnicHeaders *h, uint8_t *frame)
{
    if (has_ipv4(h)) {
        uint8_t *field = frame + h->ip + QRNIC_IPV4_CHECKSUM;

        qrnic_st_be16(field, 0);
        qrnic_checksum_store(field,
                             qrnic_checksum_add(frame + h->ip, h->ip_len));
    }
    if (h->l4_len) {
        uint8_t *field = frame + l4_checksum_at(h);

        qrnic_st_be16(field, 0);
        qrnic_checksum_store(field, l4_sum(h));
    }
}
