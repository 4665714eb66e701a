/*
 * qrnic engine, layer transport: received TCP frames that software may join
 *
 * raw_packet.c calls qrnic_coalesce() for each frame that a queue receives. If
 * the frame continues the previous one, the CQE reports this. Software can then
 * join both, and cut them into the same frames again. No frame is delayed, and
 * each stays in its own buffer. qp->continuation holds the expected headers of
 * the next frame.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/transport.h"

/*
 * Largest length of the headers: Ethernet with a VLAN tag, IPv6 (longer than
 * IPv4), and TCP with all options
 */
#define HEADER_MAX (QRNIC_ETH_LEN + QRNIC_VLAN_LEN + QRNIC_IPV6_LEN + 60)

QEMU_BUILD_BUG_ON(HEADER_MAX > UINT8_MAX);

struct QrnicContinuation {
    uint32_t sequence;          /* sequence number of the next frame */
    uint16_t identification;    /* IPv4 identification of the next frame */
    /* data bytes of the first frame, which no later one may exceed */
    uint16_t segment;
    /* length of the headers, as comparable() writes them */
    uint8_t length;
    uint8_t header[HEADER_MAX];
};

void qrnic_coalesce_drop(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_buffer_put(e, qp->continuation, sizeof(*qp->continuation));
    qp->continuation = NULL;
}

/*
 * Returns true if the frame can be joined: TCP with data and correct checksums.
 * IPv4 options, fragments, trailing bytes, and TCP flags other than ACK and PSH
 * prevent this.
 */
static bool can_be_joined(const QrnicHeaders *h, uint8_t flags)
{
    const uint8_t *tcp = h->frame + h->l4;

    return (flags & QRNIC_CQEF_L4_CSUM_OK) &&
           h->protocol == QRNIC_IP_PROTOCOL_TCP &&
           h->len == h->ip + h->ip_total &&
           h->l4 == h->ip + (h->network == QRNIC_NET_IPV4 ? QRNIC_IPV4_LEN :
                                                            QRNIC_IPV6_LEN) &&
           qrnic_headers_tcp_end(h) >= h->l4 + QRNIC_TCP_LEN &&
           qrnic_headers_tcp_end(h) < h->len &&
           !(tcp[QRNIC_TCP_DATA_OFFSET] & 0x0f) &&
           (tcp[QRNIC_TCP_FLAGS] & ~QRNIC_TCP_PSH) == QRNIC_TCP_ACK;
}

/*
 * Copies the headers without the fields that differ between frames that can be
 * joined.
 */
static void comparable(const QrnicHeaders *h, uint8_t *header)
{
    uint8_t *ip = header + h->ip, *tcp = header + h->l4;

    memcpy(header, h->frame, qrnic_headers_tcp_end(h));
    if (h->network == QRNIC_NET_IPV4) {
        qrnic_st_be16(ip + QRNIC_IPV4_TOTAL_LENGTH, 0);
        qrnic_st_be16(ip + QRNIC_IPV4_IDENTIFICATION, 0);
        qrnic_st_be16(ip + QRNIC_IPV4_CHECKSUM, 0);
    } else {
        qrnic_st_be16(ip + QRNIC_IPV6_PAYLOAD_LENGTH, 0);
    }
    qrnic_st_be32(tcp + QRNIC_TCP_SEQUENCE, 0);
    qrnic_st_be16(tcp + QRNIC_TCP_CHECKSUM, 0);
    tcp[QRNIC_TCP_FLAGS] &= ~QRNIC_TCP_PSH;
}

/*
 * Returns the identification of an IPv4 packet; 0 for IPv6, which has no such
 * field.
 */
static uint16_t identification(const QrnicHeaders *h)
{
    return h->network == QRNIC_NET_IPV4 ?
           qrnic_ld_be16(h->frame + h->ip + QRNIC_IPV4_IDENTIFICATION) : 0;
}

static bool is_next(const QrnicContinuation *c, const QrnicHeaders *h,
                    const uint8_t *header, uint32_t sequence, uint32_t data)
{
    return c && c->length == qrnic_headers_tcp_end(h) &&
           c->sequence == sequence &&
           (h->network != QRNIC_NET_IPV4 ||
            c->identification == identification(h)) &&
           data <= c->segment && !memcmp(c->header, header, c->length);
}

unsigned qrnic_coalesce(QrnicEngine *e, QrnicQp *qp, const QrnicHeaders *h,
                        uint8_t flags)
{
    QrnicContinuation *c = qp->continuation;
    uint8_t header[HEADER_MAX];
    uint32_t sequence, data;
    bool next;

    if (!can_be_joined(h, flags)) {
        qrnic_coalesce_drop(e, qp);
        return 0;
    }
    comparable(h, header);
    sequence = qrnic_ld_be32(h->frame + h->l4 + QRNIC_TCP_SEQUENCE);
    data = h->len - qrnic_headers_tcp_end(h);
    next = is_next(c, h, header, sequence, data);
    if (h->frame[h->l4 + QRNIC_TCP_FLAGS] & QRNIC_TCP_PSH ||
        (next && data < c->segment)) {
        /* A shorter frame, or one with PSH, is the last one of a sequence. */
        qrnic_coalesce_drop(e, qp);
    } else {
        if (!c) {
            c = qp->continuation = qrnic_buffer_get(e, sizeof(*c));
        }
        if (!next) {
            c->segment = data;
            c->length = qrnic_headers_tcp_end(h);
            memcpy(c->header, header, c->length);
        }
        c->sequence = sequence + data;
        c->identification = identification(h) + 1;
    }
    trace_qrnic_ethernet_coalesce(e->config.name, qp->number, sequence, data,
                                  next ? "continues" : "begins");
    return next ? qrnic_headers_tcp_end(h) : 0;
}
