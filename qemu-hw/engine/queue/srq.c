/*
 * qrnic engine: shared receive queues, and XRC domains
 *
 * Commands create and modify SRQs. Queue pairs dequeue WQEs with
 * qrnic_srq_take(), and return unused WQEs with qrnic_srq_give_back(). WQEs
 * complete in any order, so the WQEs of the ring form a chain. Each WQE names
 * the slot of the next, and srq->slot is the next slot of the chain. An SRQ
 * that fails gives no further WQE. InfiniBand specification, 10.2.9 and
 * 11.6.3.3.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "trace.h"
#include "engine/queue/queue.h"

/*
 * Returns the number of WQEs that may be posted. One slot always remains free,
 * because software needs to know the next slot when it writes a WQE.
 */
static uint32_t srq_room(const QrnicSrq *srq)
{
    return (1u << srq->rq.log_size) - 1;
}

static uint32_t srq_returned(const QrnicSrq *srq)
{
    return srq->returned ? srq->returned->len : 0;
}

static uint32_t srq_left(const QrnicSrq *srq)
{
    return srq->rq.producer - srq->rq.consumer + srq_returned(srq);
}

/*
 * Sets the SRQ in error, because the device no longer knows which WQEs are
 * posted (catastrophic error, IB 11.6.3.3).
 */
static void srq_fail(QrnicEngine *e, QrnicSrq *srq, uint8_t syndrome)
{
    if (srq->error) {
        return;
    }
    trace_qrnic_srq_error(e->config.name, srq->number, srq->slot,
                          qrnic_syndrome_name(syndrome));
    srq->error = syndrome;
    qrnic_event_async(e, QRNIC_EVENT_SRQ_ERROR, syndrome, srq->number, 0);
}

static void srq_read_record(QrnicEngine *e, QrnicSrq *srq)
{
    QrnicWorkQueue *rq = &srq->rq;

    /*
     * Slots of returned WQEs count as used, because these WQEs are dequeued
     * again.
     */
    qrnic_record_read(e, rq, "SRQ", srq->number,
                      rq->consumer - srq_returned(srq), srq_room(srq));
    if (rq->bad_record) {
        srq_fail(e, srq, rq->bad_record);
    }
}

/*
 * Checks the limit. The record is read first, because software may have posted
 * WQEs since the last read.
 */
void qrnic_srq_check_limit(QrnicEngine *e, QrnicSrq *srq)
{
    if (!srq->ctx.limit || srq->error || srq_left(srq) >= srq->ctx.limit) {
        return;
    }
    srq_read_record(e, srq);
    if (!srq->error && srq_left(srq) < srq->ctx.limit) {
        trace_qrnic_srq_limit(e->config.name, srq->number, srq->ctx.limit,
                              srq_left(srq));
        srq->ctx.limit = 0;
        qrnic_event_async(e, QRNIC_EVENT_SRQ_LIMIT, 0, srq->number, 0);
    }
}

/*
 * Returns the WQE in the next slot, or NULL if the ring is unreadable. The
 * following slots in the buffer are valid as long as the chain leads through
 * them, because they were posted before the fetch.
 */
static const uint8_t *srq_slot(QrnicEngine *e, QrnicSrq *srq)
{
    QrnicWorkQueue *rq = &srq->rq;

    if (!srq->ahead || !rq->fetch) {
        uint32_t count = MIN(rq->producer - rq->consumer,
                             QRNIC_WQE_FETCH_WQEBB >> rq->log_stride);

        count = MIN(count, (1u << rq->log_size) - srq->slot);
        if (!qrnic_slots_read(e, rq, QRNIC_USE_RECEIVE_WQE, "SRQ",
                              srq->number, srq->slot, count,
                              qrnic_fetch_get(e, rq))) {
            return NULL;
        }
        rq->fetched = srq->slot;
        srq->ahead = count;
    }
    return rq->fetch->raw + ((srq->slot - rq->fetched) *
                             (QRNIC_WQEBB_SIZE << rq->log_stride));
}

/*
 * Decodes the WQE of a slot. raw is its content, or NULL if it is unreadable.
 */
static QrnicTake srq_decode(QrnicEngine *e, QrnicSrq *srq, uint32_t slot,
                            const uint8_t *raw, QrnicRecvWqe *out,
                            uint32_t *next, uint8_t *status, uint8_t *syndrome)
{
    QrnicWorkQueue *rq = &srq->rq;
    QrnicTake result;

    if (!raw) {
        srq_fail(e, srq, QRNIC_SYN_WQE_FETCH);
        return QRNIC_TAKE_BROKEN;
    }
    result = qrnic_recv_wqe_decode(e, "SRQ", srq->number, rq->log_stride, slot,
                                   1u << rq->log_size, raw, out, next, status,
                                   syndrome);
    /*
     * An invalid data segment affects only its own WQE, because the chain is
     * intact.
     */
    if (result != QRNIC_TAKE_OK && *syndrome != QRNIC_SYN_WQE_LENGTH) {
        srq_fail(e, srq, *syndrome);
        return QRNIC_TAKE_BROKEN;
    }
    out->pd = srq->ctx.pd;
    out->srqn = srq->number;
    return result;
}

/* Dequeues the next WQE of the ring, which is not empty. */
static QrnicTake srq_take_posted(QrnicEngine *e, QrnicSrq *srq,
                                 QrnicRecvWqe *out, uint8_t *status,
                                 uint8_t *syndrome)
{
    uint32_t next;
    QrnicTake result = srq_decode(e, srq, srq->slot, srq_slot(e, srq), out,
                                  &next, status, syndrome);

    if (result == QRNIC_TAKE_BROKEN) {
        return result;
    }
    srq->ahead = next == srq->slot + 1 ? srq->ahead - 1 : 0;
    if (!srq->ahead) {
        qrnic_fetch_put(e, &srq->rq);
    }
    srq->slot = next;
    srq->rq.consumer++;
    return result;
}

/* Dequeues the WQE that was returned last, and reads it again from its slot. */
static QrnicTake srq_take_returned(QrnicEngine *e, QrnicSrq *srq,
                                   QrnicRecvWqe *out, uint8_t *status,
                                   uint8_t *syndrome)
{
    uint8_t raw[QRNIC_WQEBB_SIZE << QRNIC_RECEIVE_WQE_MAX_LOG_STRIDE];
    uint32_t last = srq->returned->len - 1, next;
    uint32_t slot = g_array_index(srq->returned, uint16_t, last);
    bool there = qrnic_slots_read(e, &srq->rq, QRNIC_USE_RECEIVE_WQE, "SRQ",
                                  srq->number, slot, 1, raw);

    g_array_set_size(srq->returned, last);
    return srq_decode(e, srq, slot, there ? raw : NULL, out, &next, status,
                      syndrome);
}

QrnicTake qrnic_srq_take(QrnicEngine *e, QrnicSrq *srq, QrnicRecvWqe *out,
                         uint8_t *status, uint8_t *syndrome)
{
    QrnicWorkQueue *rq = &srq->rq;
    QrnicTake result;

    if (srq->error) {
        return QRNIC_TAKE_BROKEN;
    }
    if (srq_returned(srq)) {
        result = srq_take_returned(e, srq, out, status, syndrome);
    } else {
        if (rq->producer == rq->consumer) {
            srq_read_record(e, srq);
        }
        if (!srq->error && rq->producer == rq->consumer) {
            return QRNIC_TAKE_EMPTY;
        }
        if (srq->error) {
            return QRNIC_TAKE_BROKEN;
        }
        result = srq_take_posted(e, srq, out, status, syndrome);
    }
    if (result == QRNIC_TAKE_BROKEN) {
        return result;
    }
    trace_qrnic_srq_take(e->config.name, srq->number, out->index,
                         srq_left(srq));
    qrnic_add(e, QRNIC_COUNTER_RECV_WQES, 1);
    qrnic_add(e, QRNIC_COUNTER_SRQ_WQES, 1);
    return result;
}

/*
 * Stores the slot number and not the whole WQE, because a guest can make queue
 * pairs return very many WQEs.
 */
void qrnic_srq_give_back(QrnicEngine *e, uint32_t qpn, const QrnicRecvWqe *wqe)
{
    QrnicSrq *srq = qrnic_srq_get(e, wqe->srqn);
    uint16_t slot = wqe->index;

    QEMU_BUILD_BUG_ON(QRNIC_MAX_SRQ_WR > UINT16_MAX);
    trace_qrnic_srq_give_back(e->config.name, srq->number, qpn, wqe->index);
    if (!srq->returned) {
        srq->returned = g_array_new(false, false, sizeof(slot));
    }
    g_array_append_val(srq->returned, slot);
    if (wqe->tag_opcode == QRNIC_CQE_TAG_UNEXPECTED) {
        qrnic_tag_expected_after_all(e, srq->tags);
    }
    qrnic_add(e, QRNIC_COUNTER_SRQ_WQES, -1);
}

/* Commands */

static QrnicResult xrc_check(QrnicEngine *e, const QrnicSrqCtx *in)
{
    if (!in->xrcd) {
        return in->cq ? qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                     QRNIC_SRQ_CTX_CQ_OFFSET) : qrnic_ok(0);
    }
    if (!(e->config.capabilities & QRNIC_CAP_XRC)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_SRQ_CTX_XRCD_OFFSET);
    }
    if (!qrnic_xrcd_get(e, in->xrcd)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_SRQ_CTX_XRCD_OFFSET);
    }
    if (!qrnic_cq_get(e, in->cq)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_SRQ_CTX_CQ_OFFSET);
    }
    return qrnic_ok(0);
}

static QrnicResult create_check(QrnicEngine *e, const QrnicSrqCtx *in)
{
    QrnicResult result;

    if (!(e->config.capabilities & QRNIC_CAP_SRQ)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (!qrnic_pd_get(e, in->pd)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_SRQ_CTX_PD_OFFSET);
    }
    if (!qrnic_db_page_get(e, in->db_page)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_SRQ_CTX_DB_PAGE_OFFSET);
    }
    if (!in->log_size || in->log_size > ctz32(QRNIC_MAX_SRQ_WR + 1)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_SRQ_CTX_LOG_SIZE_OFFSET);
    }
    if (in->log_stride > QRNIC_RECEIVE_WQE_MAX_LOG_STRIDE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_SRQ_CTX_LOG_STRIDE_OFFSET);
    }
    if (in->limit) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_SRQ_CTX_LIMIT_OFFSET);
    }
    if (in->record % QRNIC_RECORD_SIZE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_SRQ_CTX_RECORD_OFFSET);
    }
    if (in->producer) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_SRQ_CTX_PRODUCER_OFFSET);
    }
    if (in->consumer) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_SRQ_CTX_CONSUMER_OFFSET);
    }
    result = xrc_check(e, in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    return qrnic_stream_check(e, &in->stream, QRNIC_SRQ_CTX_STREAM_OFFSET);
}

static void users_add(QrnicEngine *e, const QrnicSrq *srq, int n)
{
    qrnic_pd_get(e, srq->ctx.pd)->users += n;
    qrnic_db_page_get(e, srq->ctx.db_page)->users += n;
    if (srq->ctx.xrcd) {
        qrnic_xrcd_get(e, srq->ctx.xrcd)->users += n;
        qrnic_cq_get(e, srq->ctx.cq)->users += n;
    }
}

QrnicResult qrnic_srq_create(QrnicEngine *e, const QrnicSrqCtx *in)
{
    QrnicResult result = create_check(e, in);
    QrnicPages ring;
    QrnicSrq *srq;

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (!qrnic_ring_init(e, &ring, &in->ring, (uint64_t)QRNIC_WQEBB_SIZE <<
                         (in->log_size + in->log_stride),
                         QRNIC_SRQ_CTX_RING_OFFSET, &result)) {
        return result;
    }
    srq = g_new0(QrnicSrq, 1);
    srq->ctx = *in;
    srq->rq.ring = ring;
    srq->rq.record = in->record;
    srq->rq.log_size = in->log_size;
    srq->rq.log_stride = in->log_stride;
    if (!qrnic_table_insert(&e->queue->srqs, srq, &srq->number)) {
        g_free(srq);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    srq->rq.stream = qrnic_stream_new(&in->stream, "SRQ", srq->number);
    users_add(e, srq, 1);
    trace_qrnic_srq_create(e->config.name, srq->number, in->pd, in->db_page,
                           in->log_size, in->log_stride, in->record);
    return qrnic_ok(srq->number);
}

QrnicResult qrnic_srq_modify(QrnicEngine *e, uint32_t srqn,
                             const QrnicSrqLimit *in)
{
    QrnicSrq *srq = qrnic_srq_get(e, srqn);

    if (!srq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (in->limit > srq_room(srq)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_SRQ_LIMIT_LIMIT_OFFSET);
    }
    trace_qrnic_srq_modify(e->config.name, srqn, in->limit);
    srq->ctx.limit = in->limit;
    qrnic_srq_check_limit(e, srq);
    return qrnic_ok(0);
}

static QrnicResult resize_check(const QrnicSrqResize *in)
{
    if (!in->log_size || in->log_size > ctz32(QRNIC_MAX_SRQ_WR + 1)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_SRQ_RESIZE_LOG_SIZE_OFFSET);
    }
    if (in->limit >= (in->flags & QRNIC_SRQRF_LIMIT ?
                      1u << in->log_size : 1)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_SRQ_RESIZE_LIMIT_OFFSET);
    }
    return qrnic_ok(0);
}

/*
 * Returns true if the SRQ can continue in a ring of that many slots. Only
 * software knows the slots of incomplete WQEs, so the device does not check
 * them.
 */
static bool resize_fits(const QrnicSrq *srq, uint32_t slots, uint32_t limit)
{
    for (uint32_t i = 0; i < srq_returned(srq); i++) {
        if (g_array_index(srq->returned, uint16_t, i) >= slots) {
            return false;
        }
    }
    return srq->slot < slots && srq_left(srq) < slots && limit < slots;
}

/*
 * Copies nothing, because software has already written the WQEs into the new
 * ring.
 */
QrnicResult qrnic_srq_resize(QrnicEngine *e, uint32_t srqn,
                             const QrnicSrqResize *in)
{
    QrnicSrq *srq = qrnic_srq_get(e, srqn);
    QrnicResult result;
    QrnicPages ring;
    uint32_t limit;

    if (!(e->config.capabilities & QRNIC_CAP_SRQ_RESIZE)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (!srq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    result = resize_check(in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (!qrnic_ring_init(e, &ring, &in->ring, (uint64_t)QRNIC_WQEBB_SIZE <<
                         (in->log_size + srq->rq.log_stride),
                         QRNIC_SRQ_RESIZE_RING_OFFSET, &result)) {
        return result;
    }
    if (!srq->error) {
        srq_read_record(e, srq);
    }
    if (srq->error) {
        return qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
    }
    limit = in->flags & QRNIC_SRQRF_LIMIT ? in->limit : srq->ctx.limit;
    if (!resize_fits(srq, 1u << in->log_size, limit)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_SRQ_RESIZE_LOG_SIZE_OFFSET);
    }
    trace_qrnic_srq_resize(e->config.name, srqn, srq->rq.log_size,
                           in->log_size, srq->slot, srq_left(srq));
    srq->rq.ring = ring;
    srq->rq.log_size = in->log_size;
    /* Prefetched WQEs are from the old ring. */
    srq->ahead = 0;
    qrnic_fetch_put(e, &srq->rq);
    srq->ctx.ring = in->ring;
    srq->ctx.log_size = in->log_size;
    srq->ctx.limit = limit;
    qrnic_srq_check_limit(e, srq);
    return qrnic_ok(0);
}

QrnicResult qrnic_srq_query(QrnicEngine *e, uint32_t srqn, QrnicSrqCtx *out)
{
    QrnicSrq *srq = qrnic_srq_get(e, srqn);

    if (!srq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    *out = srq->ctx;
    out->producer = srq->rq.producer;
    out->consumer = srq->rq.consumer;
    return qrnic_ok(0);
}

void qrnic_srq_free(QrnicEngine *e, QrnicSrq *srq)
{
    qrnic_fetch_put(e, &srq->rq);
    qrnic_stream_free(srq->rq.stream);
    qrnic_tag_list_free(srq->tags);
    g_clear_pointer(&srq->returned, g_array_unref);
    g_free(srq);
}

QrnicResult qrnic_srq_destroy(QrnicEngine *e, uint32_t srqn)
{
    QrnicSrq *srq = qrnic_srq_get(e, srqn);

    if (!srq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (srq->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_srq_destroy(e->config.name, srqn);
    if (srq->ctx.xrcd) {
        e->queue->srq_gone(e, srq);
    }
    qrnic_table_remove(&e->queue->srqs, srqn);
    qrnic_tag_list_gone(e, srq->tags);
    users_add(e, srq, -1);
    qrnic_srq_free(e, srq);
    return qrnic_ok(0);
}

QrnicCq *qrnic_srq_cq(QrnicEngine *e, uint32_t srqn)
{
    const QrnicSrq *srq = srqn ? qrnic_srq_get(e, srqn) : NULL;

    return !srq ? NULL : srq->tags ? qrnic_tag_list_cq(e, srq->tags) :
                                     qrnic_cq_get(e, srq->ctx.cq);
}

QrnicResult qrnic_xrcd_alloc(QrnicEngine *e)
{
    QrnicXrcd *xrcd;

    if (!(e->config.capabilities & QRNIC_CAP_XRC)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    xrcd = g_new0(QrnicXrcd, 1);
    if (!qrnic_table_insert(&e->queue->xrcds, xrcd, &xrcd->number)) {
        g_free(xrcd);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    trace_qrnic_xrcd_alloc(e->config.name, xrcd->number);
    return qrnic_ok(xrcd->number);
}

QrnicResult qrnic_xrcd_free(QrnicEngine *e, uint32_t number)
{
    QrnicXrcd *xrcd = qrnic_xrcd_get(e, number);

    if (!xrcd) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (xrcd->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_xrcd_free(e->config.name, number);
    g_free(qrnic_table_remove(&e->queue->xrcds, number));
    return qrnic_ok(0);
}
