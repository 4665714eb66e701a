/*
 * qrnic engine, layer transport: TCP segmentation, many frames from one send
 * WQE
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * raw_packet.c calls qrnic_segmentation_next() for each frame. The first call
 * reads the headers, which are kept in qp->segmentation until the last frame is
 * sent. Each frame has a copy with its own lengths, sequence number, flags (RFC
 * 9293, 3168) and checksums. Rate limit, blocked wire and other queue pairs may
 * delay any frame.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/transport.h"

struct QrnicSegmentation {
    uint32_t length, sent;      /* bytes behind the headers */
    uint16_t frames;
    QrnicHeaders headers;       /* headers of all frames, in header[] */
    uint8_t header[QRNIC_TSO_MAX_HEADER];
};

void qrnic_segmentation_drop(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_buffer_put(e, qp->segmentation, sizeof(*qp->segmentation));
    qp->segmentation = NULL;
}

static bool refuse(QrnicEngine *e, const QrnicQp *qp, const QrnicSendWqe *wqe,
                   const char *rule)
{
    qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, "SQ", qp->number,
                      "WQE at index %" PRIu32 ": segmentation of %" PRIu64
                      " bytes: %s", wqe->index, wqe->length, rule);
    return false;
}

/*
 * Returns true if the headers are complete TCP over IP, and end at the length
 * in the WQE.
 */
static bool headers_fit(const QrnicHeaders *h)
{
    return qrnic_headers_have_ip(h) && h->l4 &&
           h->protocol == QRNIC_IP_PROTOCOL_TCP &&
           h->len >= h->l4 + QRNIC_TCP_LEN &&
           h->len == qrnic_headers_tcp_end(h);
}

static bool begin(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                  uint8_t *status, uint8_t *syndrome)
{
    uint32_t header_length = wqe->eth.header_length;
    QrnicSegmentation *s;

    if (!wqe->eth.mss || header_length > QRNIC_TSO_MAX_HEADER ||
        wqe->length <= header_length ||
        wqe->length - header_length > QRNIC_TSO_MAX_LENGTH) {
        return refuse(e, qp, wqe, "invalid MSS or length");
    }
    s = qp->segmentation = qrnic_buffer_get(e, sizeof(*s));
    *syndrome = qrnic_gather_part(e, qp, wqe, 0, s->header, header_length,
                                  NULL);
    if (*syndrome) {
        *status = QRNIC_WC_LOC_PROT_ERR;
        return false;
    }
    *syndrome = QRNIC_SYN_WQE_LENGTH;
    s->headers = qrnic_headers_walk(s->header, header_length);
    if (!headers_fit(&s->headers)) {
        return refuse(e, qp, wqe, "invalid TCP or IP header");
    }
    s->length = wqe->length - header_length;
    s->sent = 0;
    s->frames = 0;
    return true;
}

/* Writes the headers of the next frame, which has n bytes of data. */
static void put_headers(const QrnicSegmentation *s, uint32_t n,
                        uint8_t *frame)
{
    const QrnicHeaders *h = &s->headers;
    uint8_t *ip = frame + h->ip, *tcp = frame + h->l4;

    memcpy(frame, h->frame, h->len);
    if (h->network == QRNIC_NET_IPV4) {
        qrnic_st_be16(ip + QRNIC_IPV4_TOTAL_LENGTH, h->len - h->ip + n);
        ip += QRNIC_IPV4_IDENTIFICATION;
        qrnic_st_be16(ip, qrnic_ld_be16(ip) + s->frames);
    } else {
        qrnic_st_be16(ip + QRNIC_IPV6_PAYLOAD_LENGTH,
                      h->len - h->ip - QRNIC_IPV6_LEN + n);
    }
    qrnic_st_be32(tcp + QRNIC_TCP_SEQUENCE,
                  qrnic_ld_be32(tcp + QRNIC_TCP_SEQUENCE) + s->sent);
    if (s->sent) {
        tcp[QRNIC_TCP_FLAGS] &= ~QRNIC_TCP_CWR;
    }
    if (s->sent + n < s->length) {
        tcp[QRNIC_TCP_FLAGS] &= ~(QRNIC_TCP_FIN | QRNIC_TCP_PSH);
    }
}

static bool make_next(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                      uint8_t *frame, QrnicHeaders *h, uint8_t *status,
                      uint8_t *syndrome)
{
    uint32_t header_length = wqe->eth.header_length;
    QrnicSegmentation *s = qp->segmentation;
    uint32_t n = MIN(wqe->eth.mss, s->length - s->sent);

    if (header_length + n > qrnic_ethernet_longest(e, &s->headers)) {
        return refuse(e, qp, wqe, "a frame exceeds the MTU");
    }
    put_headers(s, n, frame);
    *syndrome = qrnic_gather_part(e, qp, wqe, header_length + s->sent,
                                  frame + header_length, n, NULL);
    if (*syndrome) {
        *status = QRNIC_WC_LOC_PROT_ERR;
        return false;
    }
    *h = qrnic_headers_walk(frame, header_length + n);
    qrnic_checksums_fill(h, frame);
    s->sent += n;
    s->frames++;
    trace_qrnic_ethernet_segment(e->config.name, qp->number, wqe->index,
                                 s->sent, s->length, h->len,
                                 s->sent == s->length);
    return true;
}

QrnicSegment qrnic_segmentation_next(QrnicEngine *e, QrnicQp *qp,
                                     const QrnicSendWqe *wqe, uint8_t *frame,
                                     QrnicHeaders *h, uint8_t *status,
                                     uint8_t *syndrome)
{
    *status = QRNIC_WC_LOC_LEN_ERR;
    *syndrome = QRNIC_SYN_WQE_LENGTH;
    if ((!qp->segmentation && !begin(e, qp, wqe, status, syndrome)) ||
        !make_next(e, qp, wqe, frame, h, status, syndrome)) {
        qrnic_segmentation_drop(e, qp);
        return QRNIC_SEGMENT_FAILED;
    }
    if (qp->segmentation->sent < qp->segmentation->length) {
        return QRNIC_SEGMENT_MORE;
    }
    qrnic_segmentation_drop(e, qp);
    qrnic_add(e, QRNIC_COUNTER_ETH_TX_SEGMENTED, 1);
    *status = QRNIC_WC_SUCCESS;
    *syndrome = QRNIC_SYN_NONE;
    return QRNIC_SEGMENT_LAST;
}
