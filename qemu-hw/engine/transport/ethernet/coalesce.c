/*
 * qrnic engine: which received frame continues the one before: segments of TCP
 * that software may join, and cut again into the very same frames
 *
 * No frame is held back for it, and each is in its own buffers as it came. All
 * that is kept is what the next frame of the queue must look like.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/transport.h"

/* With a tag, IPv6, which is longer than IPv4, and all options of TCP */
#define HEADER_MAX (QRNIC_ETH_LEN + QRNIC_VLAN_LEN + QRNIC_IPV6_LEN + 60)

QEMU_BUILD_BUG_ON(HEADER_MAX > UINT8_MAX);

struct QrnicContinuation {
    uint32_t sequence;          /* of the frame that continues it */
    uint16_t identification;    /* of its IPv4 */
    uint16_t segment;           /* bytes of data in the first; none has more */
    uint8_t length;             /* of the headers, as comparable() has them: */
    uint8_t header[HEADER_MAX];
};

void qrnic_coalesce_drop(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_buffer_put(e, qp->continuation, sizeof(*qp->continuation));
    qp->continuation = NULL;
}

/*
 * TCP with data and right checksums; no options of IPv4, no fragment, nothing
 * behind the packet, and no flag but ACK and PSH.
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

/* The headers, without what may differ between frames that are joined */
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

/* What IPv4 identifies the packet by; IPv6 has nothing like it. */
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
        /* The last of those that can be joined */
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
