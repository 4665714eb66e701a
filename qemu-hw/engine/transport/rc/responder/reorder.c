/*
 * qrnic engine, transport: reorder buffer of the responder
 *
 * sequence.c calls qrnic_reorder_put() for a packet out of order, and
 * qrnic_reorder_take() after the packets before it have been executed. Each
 * connection with buffered packets has a QrnicReorder, which is in one of the
 * lists of QrnicQps.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * A buffered packet is validated when it is executed, as if it arrived then.
 * All connections together buffer QRNIC_MAX_REORDER bytes at most. Three limits
 * prevent a peer from occupying them for ever, with one connection or many.
 *
 * - A carrier keeps the headers of member packets that it has executed out of
 *   order, because a retransmission must not be executed again. Neither another
 *   connection nor time drops them, so all of them together occupy half of
 *   QRNIC_MAX_REORDER at most. When they do, no carrier executes another packet
 *   out of order.
 * - The share of a connection is half of the rest of QRNIC_MAX_REORDER, divided
 *   by the number of connections that buffer something. A connection that
 *   buffers less than its share always finds room, because the connection with
 *   the most bytes loses its packets. (This connection buffers more than a
 *   share, because lists are by powers of two and a share is half an average.)
 * - A connection that makes no progress for QRNIC_REORDER_TIME loses its
 *   packets. An honest requester retransmits them, because the responder
 *   reports them missing again.
 *
 * "Selective repeat" in the manual.
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/transport/rc/responder/responder.h"

QEMU_BUILD_BUG_ON(QRNIC_SELECTIVE_WINDOW != QRNIC_WINDOW);
QEMU_BUILD_BUG_ON(QRNIC_SACK_BYTES * 8 != QRNIC_WINDOW);
/* PSNs modulo the window are indices, so the window must divide their range. */
QEMU_BUILD_BUG_ON((QRNIC_PSN_MASK + 1) % QRNIC_WINDOW);
/* One list for each power of two of buffered bytes, and one for none */
QEMU_BUILD_BUG_ON(QRNIC_MAX_REORDER >= 1ull << (QRNIC_REORDER_LISTS - 1));

static size_t buffered_size(uint32_t payload_len)
{
    return sizeof(QrnicBuffered) + payload_len;
}

static bool is_executed(const QrnicBuffered *p)
{
    return p->placed && p->info->flags & QRNIC_OPF_ENCAPSULATED;
}

static unsigned list_of(const QrnicReorder *h)
{
    return 64 - clz64(h->bytes);
}

/*
 * Adds the difference to the number of bytes that an eviction would free. Moves
 * the reorder buffer to another list if the power of two has changed.
 */
static void count_bytes(QrnicEngine *e, QrnicReorder *h, int64_t difference)
{
    unsigned before = list_of(h), after;

    h->bytes += difference;
    after = list_of(h);
    if (before != after) {
        QTAILQ_REMOVE(&e->qps->reorders[before], h, next);
        QTAILQ_INSERT_TAIL(&e->qps->reorders[after], h, next);
    }
}

static void reorder_new(QrnicEngine *e, QrnicQp *qp)
{
    QrnicReorder *h = qrnic_buffer_get(e, sizeof(*h));

    memset(h, 0, sizeof(*h));
    h->qp = qp;
    h->progress_at = qrnic_now(e);
    QTAILQ_INSERT_TAIL(&e->qps->reorders[list_of(h)], h, next);
    e->qps->num_reorders++;
    qp->responder->reorder = h;
    qrnic_timer_advance(e, &qp->timer,
                        h->progress_at + QRNIC_REORDER_TIME * SCALE_MS);
}

static void reorder_free(QrnicEngine *e, QrnicReorder *h)
{
    QTAILQ_REMOVE(&e->qps->reorders[list_of(h)], h, next);
    e->qps->num_reorders--;
    h->qp->responder->reorder = NULL;
    qrnic_buffer_put(e, h, sizeof(*h));
}

/* Drops all packets of a connection that have not been executed. */
static void evict(QrnicEngine *e, QrnicQp *qp, const char *why)
{
    QrnicReorder *h = qp->responder->reorder;
    uint32_t before = h->count, left;

    for (uint32_t i = 0; qp->responder->reorder && i < QRNIC_WINDOW; i++) {
        if (h->at[i] && !is_executed(h->at[i])) {
            qrnic_buffered_free(e, qrnic_reorder_take(e, qp, i));
        }
    }
    left = qp->responder->reorder ? h->count : 0;
    qrnic_add(e, QRNIC_COUNTER_RX_DROP_REORDER, before - left);
    trace_qrnic_reorder_evict(e->config.name, qp->number, before - left, why);
}

/*
 * Makes room for a packet of a connection that buffers less than its share.
 * Returns false if this is impossible.
 */
static bool make_room(QrnicEngine *e, const QrnicReorder *own, size_t size)
{
    uint32_t holds = e->qps->num_reorders + !own;
    size_t wanted = (own ? own->bytes : 0) + size;

    if (wanted > (QRNIC_MAX_REORDER - e->qps->executed_bytes) / 2 / holds) {
        return false;
    }
    for (int i = QRNIC_REORDER_LISTS - 1; i >= 0; i--) {
        QrnicReorder *most = QTAILQ_FIRST(&e->qps->reorders[i]);

        if (most && (most == own || most->bytes <= wanted)) {
            return false;
        }
        if (most) {
            evict(e, most->qp, "most bytes of all connections");
            return e->qps->buffered_bytes + size <= QRNIC_MAX_REORDER;
        }
    }
    return false;
}

/*
 * Counts a packet that differs from the buffered packet with its PSN. Either
 * one of them is forged, or the peer is faulty. The device cannot distinguish
 * these cases.
 */
void qrnic_reorder_compare(QrnicEngine *e, const QrnicQp *qp,
                           const QrnicPacket *pkt)
{
    const QrnicReorder *h = qp->responder->reorder;
    const QrnicBuffered *p = h->at[pkt->t.psn % QRNIC_WINDOW];
    const QrnicTransport *a = &p->t, *b = &pkt->t;

    if (a->opcode == b->opcode && a->va == b->va && a->rkey == b->rkey &&
        a->dma_len == b->dma_len && a->imm == b->imm &&
        a->inv_key == b->inv_key && a->swap_add == b->swap_add &&
        a->compare == b->compare && a->srqn == b->srqn &&
        a->src_qpn == b->src_qpn &&
        (p->placed || (p->payload_len == pkt->payload_len &&
                       !memcmp(p->payload, pkt->payload, p->payload_len)))) {
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_RX_BUFFERED_CONFLICTS, 1);
    trace_qrnic_reorder_conflict(e->config.name, qp->number, b->psn, a->opcode,
                                 b->opcode);
}

bool qrnic_reorder_may_execute(const QrnicEngine *e)
{
    return e->qps->executed_bytes + buffered_size(0) <= QRNIC_MAX_REORDER / 2;
}

bool qrnic_reorder_put(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                       bool placed)
{
    QrnicReorder **h = &qp->responder->reorder;
    uint32_t psn = pkt->t.psn, place = psn % QRNIC_WINDOW;
    uint32_t len = placed ? 0 : pkt->payload_len;
    size_t size = buffered_size(len);
    QrnicBuffered *p;

    if (qrnic_reorder_has(*h, psn)) {
        qrnic_reorder_compare(e, qp, pkt);
        return true;
    }
    /*
     * A packet that exceeds the largest path MTU is dropped, because no honest
     * peer sends it.
     */
    if (size > QRNIC_BUFFER_MAX) {
        return false;
    }
    if (e->qps->buffered_bytes + size > QRNIC_MAX_REORDER &&
        !make_room(e, *h, size)) {
        qrnic_add(e, QRNIC_COUNTER_RX_DROP_REORDER, 1);
        return false;
    }
    if (!*h) {
        reorder_new(e, qp);
    }
    p = qrnic_buffer_get(e, size);
    p->t = pkt->t;
    p->info = pkt->info;
    p->placed = placed;
    p->payload_len = len;
    memcpy(p->payload, pkt->payload, len);
    e->qps->buffered_bytes += size;
    (*h)->at[place] = p;
    (*h)->count++;
    if (is_executed(p)) {
        e->qps->executed_bytes += size;
    } else {
        count_bytes(e, *h, size);
    }
    qrnic_add(e, placed && pkt->info->flags & QRNIC_OPF_WRITE ?
                 QRNIC_COUNTER_PLACED_PACKETS :
                 QRNIC_COUNTER_BUFFERED_PACKETS, 1);
    return true;
}

QrnicBuffered *qrnic_reorder_take(QrnicEngine *e, QrnicQp *qp, uint32_t psn)
{
    QrnicReorder *h = qp->responder->reorder;
    QrnicBuffered *p;

    if (!qrnic_reorder_has(h, psn)) {
        return NULL;
    }
    p = h->at[psn % QRNIC_WINDOW];
    h->at[psn % QRNIC_WINDOW] = NULL;
    if (is_executed(p)) {
        e->qps->executed_bytes -= buffered_size(p->payload_len);
    } else {
        count_bytes(e, h, -(int64_t)buffered_size(p->payload_len));
    }
    if (!--h->count) {
        reorder_free(e, h);
    }
    return p;
}

void qrnic_buffered_free(QrnicEngine *e, QrnicBuffered *p)
{
    size_t size = buffered_size(p->payload_len);

    e->qps->buffered_bytes -= size;
    qrnic_buffer_put(e, p, size);
}

void qrnic_reorder_drop(QrnicEngine *e, QrnicQp *qp, uint32_t psn,
                        uint32_t count)
{
    for (uint32_t i = 0; qp->responder->reorder && i < MIN(count, QRNIC_WINDOW);
         i++) {
        QrnicBuffered *p = qrnic_reorder_take(e, qp, qrnic_psn_add(psn, i));

        if (p) {
            qrnic_buffered_free(e, p);
        }
    }
}

void qrnic_reorder_cleanup(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_reorder_drop(e, qp, 0, QRNIC_WINDOW);
}

void qrnic_reorder_timer(QrnicEngine *e, QrnicQp *qp)
{
    QrnicReorder *h = qp->responder->reorder;
    int64_t until;

    if (!h) {
        return;
    }
    until = h->progress_at + QRNIC_REORDER_TIME * SCALE_MS;
    if (qrnic_now(e) >= until) {
        evict(e, qp, "no progress");
        h = qp->responder->reorder;
        if (!h) {
            return;
        }
        h->progress_at = qrnic_now(e);
        until = h->progress_at + QRNIC_REORDER_TIME * SCALE_MS;
    }
    qrnic_timer_advance(e, &qp->timer, until);
}

void qrnic_reorder_tell(const QrnicReorder *h, uint32_t expected,
                        uint8_t arrived[QRNIC_SACK_BYTES])
{
    memset(arrived, 0, QRNIC_SACK_BYTES);
    for (uint32_t i = 0; h && i < QRNIC_WINDOW; i++) {
        if (qrnic_reorder_has(h, qrnic_psn_add(expected, i))) {
            arrived[i / 8] |= 0x80 >> i % 8;
        }
    }
}
