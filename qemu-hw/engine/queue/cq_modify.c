/*
 * qrnic engine: commands RESIZE_CQ and MODIFY_CQ (moderation)
 *
 * A resize may need more than one run. qrnic_cq_resize() begins it, and
 * qrnic_cq_move_process() continues it in each round. The device fetches the
 * result when qrnic_command_unfinished() returns false. The CQ uses its old
 * ring until move_commit(). At most one resize is in progress (queue->move),
 * because the command queue waits for it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/queue/queue.h"

#define CQES_AT_ONCE 64

/*
 * Slots of the new ring written within the command itself, and in each round of
 * the run loop (16 KiB)
 */
#define MOVE_AT_ONCE 256
#define MOVE_BUDGET 256

/* Resize */

static bool phase_of(uint32_t index, unsigned log_size)
{
    return !(index >> log_size & 1);
}

static void phase_set(uint8_t *raw, bool phase)
{
    uint8_t *top = raw + QRNIC_CQE_CONTROL_OFFSET + 3;

    *top = (*top & 0x7f) | (phase ? 0x80 : 0);
}

/* Reads CQEs from index on, in two parts if the old ring wraps around. */
static bool cqes_read(QrnicEngine *e, QrnicCq *cq, uint32_t index,
                      uint32_t count, uint8_t *raw)
{
    uint32_t size = 1u << cq->ctx.log_size;

    while (count) {
        uint32_t slot = index & (size - 1);
        uint32_t n = MIN(count, size - slot);

        if (qrnic_pages_read(e, &cq->ring, (uint64_t)slot * QRNIC_CQE_SIZE,
                              raw, n * QRNIC_CQE_SIZE)) {
            return false;
        }
        raw += n * QRNIC_CQE_SIZE;
        index += n;
        count -= n;
    }
    return true;
}

/*
 * Writes up to "limit" slots of the new ring and returns their number, or 0 if
 * DMA failed. A live slot receives its CQE. If the old ring has already
 * overwritten a CQE, software has consumed it, so only its phase matters. Any
 * other slot receives the phase of the previous pass, because zeros have that
 * phase only in every second pass.
 */
static uint32_t slots_write(QrnicEngine *e, QrnicCqMove *m, uint32_t limit,
                            bool live)
{
    uint8_t raw[CQES_AT_ONCE * QRNIC_CQE_SIZE];
    QrnicCq *cq = m->cq;
    uint32_t size = 1u << m->log_size, slot = m->index & (size - 1);
    uint32_t n = MIN(MIN(limit, size - slot), CQES_AT_ONCE), gone = 0;

    memset(raw, 0, sizeof(raw));
    if (live && cq->producer - m->index > 1u << cq->ctx.log_size) {
        gone = MIN(n, cq->producer - m->index - (1u << cq->ctx.log_size));
    }
    if (live && !cqes_read(e, cq, m->index + gone, n - gone,
                           raw + gone * QRNIC_CQE_SIZE)) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        phase_set(raw + i * QRNIC_CQE_SIZE,
                  phase_of(m->index + i, m->log_size) == live);
    }
    if (qrnic_pages_write(e, &m->ring, (uint64_t)slot * QRNIC_CQE_SIZE, raw,
                          n * QRNIC_CQE_SIZE)) {
        return 0;
    }
    m->index += n;
    return n;
}

static QrnicResult move_commit(QrnicEngine *e, QrnicCqMove *m)
{
    QrnicCq *cq = m->cq;

    if (cq->producer - cq->consumer > 1u << m->log_size) {
        qrnic_cq_read_consumer(e, cq);
    }
    if (cq->error) {
        return qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
    }
    if (cq->producer - cq->consumer > 1u << m->log_size) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_CQ_RESIZE_LOG_SIZE_OFFSET);
    }
    trace_qrnic_cq_resize(e->config.name, cq->number, cq->ctx.log_size,
                          m->log_size, cq->consumer, cq->producer);
    cq->ring = m->ring;
    cq->ctx.ring = m->table;
    cq->ctx.log_size = m->log_size;
    return qrnic_ok(0);
}

static void move_end(QrnicCqMove *m, QrnicResult result)
{
    m->cq = NULL;
    m->result = result;
}

/*
 * Continues a resize by up to "budget" slots. The CQ still writes into the old
 * ring meanwhile, so the CQEs are copied last.
 */
static void move_some(QrnicEngine *e, uint32_t budget)
{
    QrnicCqMove *m = &e->queue->move;
    QrnicCq *cq = m->cq;
    uint32_t n;

    for (;;) {
        if (!m->live && m->index == m->end) {
            m->live = true;
            m->index = m->start;
        }
        if (m->live) {
            m->end = cq->producer;
        }
        if (cq->error || (m->live && m->index == m->end)) {
            break;
        }
        if (!budget) {
            trace_qrnic_cq_move(e->config.name, cq->number, m->live, m->index,
                                m->end);
            qrnic_wake(e);
            return;
        }
        n = slots_write(e, m, MIN(budget, m->end - m->index), m->live);
        /*
         * The DMA may have reached a register of this device and cancelled the
         * resize.
         */
        if (!m->cq) {
            return;
        }
        if (!n) {
            move_end(m, qrnic_refuse(QRNIC_ST_DMA, 0));
            return;
        }
        budget -= n;
    }
    move_end(m, move_commit(e, m));
}

void qrnic_cq_move_process(QrnicEngine *e)
{
    if (e->queue->move.cq) {
        move_some(e, MOVE_BUDGET);
    }
}

bool qrnic_command_unfinished(const QrnicEngine *e)
{
    return qrnic_dm_clearing(e) || e->queue->move.cq;
}

void qrnic_cq_resize_cancel(QrnicEngine *e)
{
    QrnicCqMove *m = &e->queue->move;

    if (m->cq) {
        trace_qrnic_cq_resize_cancel(e->config.name, m->cq->number, m->index,
                                     m->end);
        move_end(m, qrnic_refuse(QRNIC_ST_BAD_STATE, 0));
    }
}

QrnicResult qrnic_cq_resize_result(const QrnicEngine *e)
{
    return e->queue->move.result;
}

QrnicResult qrnic_cq_resize(QrnicEngine *e, uint32_t cqn,
                            const QrnicCqResize *in)
{
    QrnicCqMove *m = &e->queue->move;
    QrnicCq *cq = qrnic_cq_get(e, cqn);
    QrnicResult result;
    QrnicPages ring;

    if (!(e->config.capabilities & QRNIC_CAP_CQ_RESIZE)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (!cq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (in->log_size >= 32 || 1u << in->log_size > QRNIC_MAX_CQE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_CQ_RESIZE_LOG_SIZE_OFFSET);
    }
    if (!qrnic_ring_init(e, &ring, &in->ring,
                         (uint64_t)QRNIC_CQE_SIZE << in->log_size,
                         QRNIC_CQ_RESIZE_RING_OFFSET, &result)) {
        return result;
    }
    if (!cq->error) {
        qrnic_cq_read_consumer(e, cq);
    }
    if (cq->error) {
        return qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
    }
    if (cq->producer - cq->consumer > 1u << in->log_size) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_CQ_RESIZE_LOG_SIZE_OFFSET);
    }
    *m = (QrnicCqMove) {
        .cq = cq, .ring = ring, .table = in->ring, .log_size = in->log_size,
        .start = cq->consumer, .index = cq->producer,
        .end = cq->consumer + (1u << in->log_size),
    };
    move_some(e, MOVE_AT_ONCE);
    return m->cq ? qrnic_ok(0) : m->result;
}

/* Moderation */

QrnicResult qrnic_cq_modify(QrnicEngine *e, uint32_t cqn,
                            const QrnicCqModeration *in)
{
    QrnicCq *cq = qrnic_cq_get(e, cqn);

    if (!(e->config.capabilities & QRNIC_CAP_CQ_MODERATION)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (!cq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    trace_qrnic_cq_modify(e->config.name, cqn, in->count, in->period);
    cq->moderation = *in;
    /* A delayed event follows the new moderation, so its timer starts again. */
    qrnic_timer_cancel(e, &cq->timer);
    qrnic_cq_report(e, cq, 0);
    return qrnic_ok(0);
}
