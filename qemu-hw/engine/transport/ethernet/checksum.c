/*
 * qrnic engine, layer transport: checksums of Ethernet frames
 *
 * Pure functions, called by raw_packet.c and segment.c for each frame that is
 * received or sent. RFC 791, 768, 8200, 9293.
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
 * Returns the ones' complement sum of big-endian 16-bit words. The sum is
 * computed over little-endian 32-bit words and swapped at the end, which is
 * faster (RFC 1071).
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

/* Returns true if an IPv4 header with valid lengths is present. */
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
 * Returns the sum over pseudo header and segment. If a packet has IPv6
 * extension headers, the parser does not find its ports, and software checks
 * its checksum.
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

/* Returns true for UDP over IPv4 without a checksum, which is allowed. */
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
    /*
     * A sum of 0 is stored as 0xffff, its other representation, because 0 means
     * "no checksum" in UDP.
     */
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
