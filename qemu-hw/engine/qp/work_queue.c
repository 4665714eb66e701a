/*
 * qrnic engine, layer qp: work queues
 *
 * Reads doorbell records, fetches WQEs from guest memory in batches, and
 * accepts direct WQEs. Transports call qrnic_sq_take() and qrnic_rq_take(); the
 * doorbell code calls qrnic_sq_direct(). wq->fetch caches the fetched slots
 * between calls, as long as it contains unconsumed ones. An invalid record is
 * kept in wq->bad_record until the next WQE is consumed.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

/* Doorbells that start no hold after a hold that found a single WQE */
#define HOLD_DOUBT 16

/*
 * Returns the size of a slot. A slot is the unit of an index: a basic block in
 * an SQ, a whole WQE in an RQ.
 */
static uint32_t slot_size(const QrnicWorkQueue *wq)
{
    return QRNIC_WQEBB_SIZE << wq->log_stride;
}

static uint32_t slots_cached(const QrnicWorkQueue *wq)
{
    uint32_t offset = wq->consumer - wq->fetched;

    return offset < wq->fetched_count ? wq->fetched_count - offset : 0;
}

static const uint8_t *cached_slot(const QrnicWorkQueue *wq)
{
    return wq->fetch->raw + (wq->consumer - wq->fetched) * slot_size(wq);
}

/* Consumes slots of the cache. */
static void slots_take(QrnicEngine *e, QrnicWorkQueue *wq, uint32_t count)
{
    wq->consumer += count;
    wq->taken++;
    if (!slots_cached(wq)) {
        qrnic_fetch_put(e, wq);
    }
}

static bool slots_read(QrnicEngine *e, QrnicQp *qp, QrnicWorkQueue *wq,
                       uint32_t index, uint32_t count, uint8_t *buf)
{
    bool send = wq == &qp->sq;

    return qrnic_slots_read(e, wq, send ? QRNIC_USE_WQE : QRNIC_USE_RECEIVE_WQE,
                            send ? "SQ" : "RQ", qp->number, index, count, buf);
}

/* Fetches slots from the consumer index on, up to the producer index. */
static bool cache_fill(QrnicEngine *e, QrnicQp *qp, QrnicWorkQueue *wq)
{
    uint32_t count = MIN(wq->producer - wq->consumer,
                         QRNIC_WQE_FETCH_WQEBB >> wq->log_stride);

    wq->fetched_count = 0;
    if (!slots_read(e, qp, wq, wq->consumer, count, qrnic_fetch_get(e, wq))) {
        qrnic_fetch_put(e, wq);
        return false;
    }
    wq->fetched = wq->consumer;
    wq->fetched_count = count;
    return true;
}

/*
 * Notes that the SQ has work. A doorbell soon after the SQ fell asleep shows
 * that a hold would have saved it.
 */
static void sq_awake(QrnicEngine *e, QrnicQp *qp)
{
    QrnicHold *h = &qp->hold;

    if (!qp->sq_asleep) {
        h->found = true;
    } else if (qrnic_now(e) - h->slept < e->config.doorbell_hold) {
        if (h->doubt) {
            h->doubt--;
        } else {
            h->pays = true;
        }
    }
    qp->sq_asleep = false;
    h->over = false;
}

static void record_read(QrnicEngine *e, QrnicQp *qp, QrnicWorkQueue *wq)
{
    bool sq = wq == &qp->sq;

    qrnic_record_read(e, wq, sq ? "SQ" : "RQ", qp->number,
                      sq ? wq->completed : wq->consumer, 1u << wq->log_size);
    if (sq && wq->has_event && wq->producer != wq->consumer) {
        sq_awake(e, qp);
    }
}

/*
 * Reports an invalid doorbell record once, as an error of the next WQE. Returns
 * false in ERR and SQE, because the flush continues with the last valid
 * producer index. After SQE the report waits until the rest is flushed, so that
 * its CQE is in order.
 */
static bool take_bad_record(QrnicQp *qp, QrnicWorkQueue *wq, uint8_t *status,
                            uint8_t *syndrome)
{
    uint8_t bad = wq->bad_record;
    bool sq = wq == &qp->sq;

    if (!bad || (sq && qrnic_sq_flush_is_owed(qp))) {
        return false;
    }
    wq->bad_record = QRNIC_SYN_NONE;
    if (qp->state == QRNIC_QPS_ERR || (sq && qp->state == QRNIC_QPS_SQE)) {
        return false;
    }
    *status = QRNIC_WC_LOC_QP_OP_ERR;
    *syndrome = bad;
    return true;
}

bool qrnic_sq_pending(QrnicEngine *e, QrnicQp *qp, bool reread)
{
    if (reread) {
        record_read(e, qp, &qp->sq);
    }
    return qp->sq.bad_record || qp->sq.producer != qp->sq.consumer;
}

/* Reads the record again at the end of the hold time. */
static void hold_timer(QrnicEngine *e, QrnicTimer *t)
{
    QrnicQp *qp = container_of(t, QrnicQp, hold.timer);

    qp->hold.over = true;
    qp->sq_rung = true;
    qrnic_schedule(e, qp);
}

void qrnic_sq_hold_init(QrnicQp *qp)
{
    qrnic_timer_init(&qp->hold.timer, hold_timer);
    qp->sq_asleep = true;
    /* The first doorbell starts no hold. */
    qp->hold.slept = INT64_MIN / 2;
}

void qrnic_sq_hold_reset(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_timer_cancel(e, &qp->hold.timer);
    qp->hold.pays = qp->hold.found = qp->hold.over = false;
    qp->sq.taken = 0;
}

/*
 * Decides whether an SQ without work stays awake. Only a program that posts
 * several WQEs within the hold time gains. If a hold finds a single WQE, as
 * with a program that waits for each answer, it only delays this WQE. The next
 * HOLD_DOUBT doorbells then start no hold.
 */
static bool hold(QrnicEngine *e, QrnicQp *qp)
{
    QrnicHold *h = &qp->hold;

    if (qp->state != QRNIC_QPS_RTS) {
        return false;
    }
    if (h->over) {
        h->pays = false;
    } else if (h->found && qp->sq.taken == 1) {
        h->pays = false;
        h->doubt = HOLD_DOUBT;
    }
    if (qp->sq.taken) {
        qp->sq.taken = 0;
        h->found = false;
    }
    if (!h->pays) {
        return false;
    }
    qrnic_timer_advance(e, &h->timer, qrnic_now(e) + e->config.doorbell_hold);
    return true;
}

bool qrnic_sq_sleep(QrnicEngine *e, QrnicQp *qp)
{
    QrnicWorkQueue *sq = &qp->sq;

    if (!sq->has_event || qp->sq_asleep || sq->bad_record ||
        sq->producer != sq->consumer) {
        return false;
    }
    if (hold(e, qp)) {
        /* Software may have posted WQEs while the device sent the last ones. */
        record_read(e, qp, sq);
        return sq->producer != sq->consumer || sq->bad_record;
    }
    /*
     * The read comes after the write, because software that has not seen the
     * new event index rings no doorbell. The record then has its new producer
     * index.
     */
    qrnic_event_write(e, sq, qp->number);
    record_read(e, qp, sq);
    /*
     * A flush ignores a bad record. Otherwise each flush would read the record
     * again, without end.
     */
    if (qp->state == QRNIC_QPS_ERR || qp->state == QRNIC_QPS_SQE) {
        sq->bad_record = QRNIC_SYN_NONE;
    }
    qp->sq_asleep = !sq->bad_record && sq->producer == sq->consumer;
    qp->hold.slept = qrnic_now(e);
    return !qp->sq_asleep;
}

/* Returns the blocks of the WQE at p; 0 if its length is invalid. */
static uint32_t wqe_blocks(const uint8_t *p)
{
    QrnicSqCtrl ctrl;
    uint32_t bytes;

    qrnic_sq_ctrl_unpack(&ctrl, p);
    bytes = ctrl.segments * QRNIC_SEGMENT_SIZE;
    if (!bytes || bytes > QRNIC_WQE_MAX_WQEBB * QRNIC_WQEBB_SIZE) {
        return 0;
    }
    return DIV_ROUND_UP(bytes, QRNIC_WQEBB_SIZE);
}

static QrnicTake decode(QrnicEngine *e, QrnicQp *qp, const uint8_t *raw,
                        uint32_t blocks, uint32_t index, QrnicSendWqe *out,
                        uint8_t *status, uint8_t *syndrome)
{
    QrnicWqeShape shape = { .known = true };
    QrnicSqCtrl ctrl;

    qrnic_sq_ctrl_unpack(&ctrl, raw);
    if (ctrl.opcode != QRNIC_WQE_NOP) {
        shape = qp->ops->shape(e, qp, ctrl.opcode);
    }
    return qrnic_send_wqe_decode(e, qp->number, &shape, raw, blocks, index,
                                 out, status, syndrome);
}

/* Fetches the WQE at the consumer index, all its blocks if they are posted. */
static bool sq_fetch(QrnicEngine *e, QrnicQp *qp)
{
    QrnicWorkQueue *sq = &qp->sq;
    uint32_t posted = sq->producer - sq->consumer, have, blocks;

    if ((!slots_cached(sq) ||
         (wqe_blocks(cached_slot(sq)) > slots_cached(sq) &&
          (slots_cached(sq) < MIN(posted, QRNIC_WQE_FETCH_WQEBB) ||
           sq->fetched != sq->consumer))) &&
        !cache_fill(e, qp, sq)) {
        return false;
    }
    have = slots_cached(sq);
    blocks = MIN(wqe_blocks(cached_slot(sq)), posted);
    if (blocks <= have) {
        return true;
    }
    /*
     * A WQE can be longer than one fetch. The remaining blocks are then read
     * into the cache behind the first blocks.
     */
    sq->fetched_count = blocks;
    return slots_read(e, qp, sq, sq->consumer + have, blocks - have,
                      sq->fetch->raw + have * QRNIC_WQEBB_SIZE);
}

QrnicTake qrnic_sq_take(QrnicEngine *e, QrnicQp *qp, QrnicSendWqe *out,
                        uint8_t *status, uint8_t *syndrome)
{
    QrnicWorkQueue *sq = &qp->sq;
    QrnicTake result;

    qrnic_work_wqe(e, sq->consumer);
    out->index = sq->consumer;
    out->wqebbs = 0;
    out->opcode = QRNIC_WQE_NOP;
    out->flags = 0;
    out->length = 0;
    out->num_sge = 0;
    if (take_bad_record(qp, sq, status, syndrome)) {
        return QRNIC_TAKE_ERROR;
    }
    if (sq->producer == sq->consumer) {
        return QRNIC_TAKE_EMPTY;
    }
    out->wqebbs = 1;
    if (!sq_fetch(e, qp)) {
        qrnic_fetch_put(e, sq);
        sq->consumer++;
        *status = QRNIC_WC_LOC_QP_OP_ERR;
        *syndrome = QRNIC_SYN_WQE_FETCH;
        return QRNIC_TAKE_ERROR;
    }
    result = decode(e, qp, cached_slot(sq), slots_cached(sq), sq->consumer,
                    out, status, syndrome);
    slots_take(e, sq, out->wqebbs);
    if (result == QRNIC_TAKE_OK) {
        qrnic_add(e, QRNIC_COUNTER_SEND_WQES, 1);
        if (out->flags & QRNIC_WQEF_INLINE) {
            qrnic_add(e, QRNIC_COUNTER_INLINE_WQES, 1);
        }
    }
    return result;
}

void qrnic_sq_give_back(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe)
{
    qp->sq.consumer -= wqe->wqebbs;
    qp->sq.taken--;
    qrnic_add(e, QRNIC_COUNTER_SEND_WQES, -1);
    if (wqe->flags & QRNIC_WQEF_INLINE) {
        qrnic_add(e, QRNIC_COUNTER_INLINE_WQES, -1);
    }
}

QrnicTake qrnic_sq_refetch(QrnicEngine *e, QrnicQp *qp, uint32_t index,
                           QrnicSendWqe *out, uint8_t *status,
                           uint8_t *syndrome)
{
    uint8_t raw[QRNIC_WQE_MAX_WQEBB * QRNIC_WQEBB_SIZE];
    uint32_t posted = qp->sq.producer - index;
    uint32_t count = MIN(posted, QRNIC_WQE_FETCH_WQEBB);
    uint32_t blocks = 0;

    out->index = index;
    out->wqebbs = 1;
    out->opcode = QRNIC_WQE_NOP;
    out->flags = 0;
    out->length = 0;
    out->num_sge = 0;
    if (count && slots_read(e, qp, &qp->sq, index, count, raw)) {
        blocks = MIN(wqe_blocks(raw), posted);
    } else {
        count = 0;
    }
    if (blocks > count &&
        !slots_read(e, qp, &qp->sq, index + count, blocks - count,
                    raw + count * QRNIC_WQEBB_SIZE)) {
        count = 0;
    }
    if (!count) {
        *status = QRNIC_WC_LOC_QP_OP_ERR;
        *syndrome = QRNIC_SYN_WQE_FETCH;
        return QRNIC_TAKE_ERROR;
    }
    return decode(e, qp, raw, MAX(count, blocks), index, out, status, syndrome);
}

/* Consumes the next WQE of the RQ. */
static QrnicTake rq_take(QrnicEngine *e, QrnicQp *qp, QrnicRecvWqe *out,
                         uint8_t *status, uint8_t *syndrome)
{
    QrnicWorkQueue *rq = &qp->rq;
    QrnicTake result;
    uint32_t next;

    out->index = rq->consumer;
    out->length = 0;
    out->num_sge = 0;
    out->pd = qp->pd->number;
    out->srqn = 0;
    if (rq->producer == rq->consumer) {
        record_read(e, qp, rq);
    }
    if (take_bad_record(qp, rq, status, syndrome)) {
        /*
         * The error occupies no buffer of the stream. The WQE at this index is
         * consumed later.
         */
        out->stream = NULL;
        return QRNIC_TAKE_ERROR;
    }
    if (rq->producer == rq->consumer) {
        return QRNIC_TAKE_EMPTY;
    }
    if (!slots_cached(rq) && !cache_fill(e, qp, rq)) {
        rq->consumer++;
        *status = QRNIC_WC_LOC_QP_OP_ERR;
        *syndrome = QRNIC_SYN_WQE_FETCH;
        return QRNIC_TAKE_ERROR;
    }
    result = qrnic_recv_wqe_decode(e, "RQ", qp->number, rq->log_stride,
                                   rq->consumer, 1, cached_slot(rq), out, &next,
                                   status, syndrome);
    slots_take(e, rq, 1);
    if (result == QRNIC_TAKE_OK) {
        qrnic_add(e, QRNIC_COUNTER_RECV_WQES, 1);
    }
    return result;
}

QrnicTake qrnic_rq_take(QrnicEngine *e, QrnicQp *qp, QrnicRecvWqe *out,
                        uint8_t *status, uint8_t *syndrome)
{
    QrnicSrq *srq = qrnic_qp_srq(e, qp);
    QrnicStream *stream = srq ? srq->rq.stream : qp->rq.stream;
    QrnicTake take;

    out->tag = NULL;
    out->tag_opcode = 0;
    if (stream && !(srq && srq->error) &&
        qrnic_stream_begin(e, stream, out)) {
        return QRNIC_TAKE_OK;
    }
    out->stream = stream;
    out->buffer = NULL;
    out->offset = 0;
    take = srq ? qrnic_srq_take(e, srq, out, status, syndrome) :
                 rq_take(e, qp, out, status, syndrome);
    if (stream && take == QRNIC_TAKE_OK) {
        qrnic_stream_open(e, stream, out);
    }
    return take;
}

QrnicTake qrnic_rq_take_kept(QrnicEngine *e, QrnicQp *qp, QrnicRecvWqe **wqe,
                             uint8_t *status, uint8_t *syndrome)
{
    QrnicTake take;

    *wqe = qrnic_buffer_get(e, sizeof(**wqe));
    take = qrnic_rq_take(e, qp, *wqe, status, syndrome);
    if (take == QRNIC_TAKE_EMPTY || take == QRNIC_TAKE_BROKEN) {
        qrnic_recv_wqe_drop(e, wqe);
    }
    return take;
}

void qrnic_recv_wqe_drop(QrnicEngine *e, QrnicRecvWqe **wqe)
{
    qrnic_buffer_put(e, *wqe, sizeof(**wqe));
    *wqe = NULL;
}

void qrnic_rq_give_back(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe)
{
    QrnicCounterSet *before;

    if (wqe->stream) {
        qrnic_stream_give_back(e, wqe);
        return;
    }
    /*
     * The counter set is selected here, because none may be active when a
     * message is aborted.
     */
    before = qrnic_charge_to(e, qrnic_qp_known(qp)->counters);
    qrnic_add(e, QRNIC_COUNTER_RECV_WQES, -1);
    if (wqe->srqn) {
        qrnic_srq_give_back(e, qp->number, wqe);
    } else {
        qp->rq.consumer--;
    }
    qrnic_charge_to(e, before);
}

void qrnic_rq_taken(QrnicEngine *e, QrnicQp *qp)
{
    QrnicSrq *srq = qrnic_qp_srq(e, qp);

    if (srq) {
        qrnic_srq_check_limit(e, srq);
    }
}

uint32_t qrnic_rq_posted(QrnicEngine *e, QrnicQp *qp, bool reread)
{
    if (!qrnic_qp_has_rq(qp)) {
        return 0;               /* WQEs of an SRQ belong to no queue pair */
    }
    if (reread) {
        record_read(e, qp, &qp->rq);
    }
    return qp->rq.producer - qp->rq.consumer;
}

bool qrnic_sq_direct(QrnicEngine *e, QrnicQp *qp, const uint8_t *wqe,
                     uint32_t wqebbs, uint32_t producer)
{
    QrnicWorkQueue *sq = &qp->sq;
    uint32_t index = producer - wqebbs;

    /*
     * The direct WQE is used only if all earlier WQEs are consumed and no
     * doorbell is pending. A pending doorbell could announce an earlier WQE.
     */
    if (qp->state != QRNIC_QPS_RTS || qp->sq_rung || sq->bad_record ||
        sq->producer != sq->consumer || index != sq->consumer ||
        producer - sq->completed > 1u << sq->log_size ||
        wqe_blocks(wqe) != wqebbs) {
        qrnic_add(e, QRNIC_COUNTER_DIRECT_WQE_DROPPED, 1);
        trace_qrnic_direct_wqe(e->config.name, qp->number, index, wqebbs,
                               "dropped");
        return false;
    }
    qrnic_add(e, QRNIC_COUNTER_DIRECT_WQE_USED, 1);
    trace_qrnic_direct_wqe(e->config.name, qp->number, index, wqebbs,
                           "used");
    memcpy(qrnic_fetch_get(e, sq), wqe, wqebbs * QRNIC_WQEBB_SIZE);
    sq->fetched = index;
    sq->fetched_count = wqebbs;
    sq->producer = producer;
    sq_awake(e, qp);
    return true;
}
