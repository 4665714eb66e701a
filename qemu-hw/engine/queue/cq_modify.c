/*
 * qrnic engine: completion queues that change: size, moderation
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/queue/queue.h"

#define CQES_AT_ONCE 64

/*
 * Resizing
 */

static bool phase_of(uint32_t index, unsigned log_size)
{
    return !(index >> log_size & 1);
}

static void phase_set(uint8_t *raw, bool phase)
{
    uint8_t *top = raw + QRNIC_CQE_CONTROL_OFFSET + 3;

    *top = (*top & 0x7f) | (phase ? 0x80 : 0);
}

/* CQEs from index on, in two pieces where the ring ends */
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
 * Every slot of the new ring is written: those that are not used yet must have
 * the phase of the pass before, which zeros have in every other pass only.
 */
static bool cqes_move(QrnicEngine *e, QrnicCq *cq, QrnicPages *ring,
                      unsigned log_size)
{
    uint8_t raw[CQES_AT_ONCE * QRNIC_CQE_SIZE];
    uint32_t size = 1u << log_size, index = cq->consumer;
    uint32_t end = index + size;

    while (index != end) {
        uint32_t slot = index & (size - 1);
        uint32_t n = MIN(MIN(end - index, size - slot), CQES_AT_ONCE);
        uint32_t old = MIN(n, cq->producer - cq->consumer >
                              index - cq->consumer ? cq->producer - index : 0);

        memset(raw, 0, sizeof(raw));
        if (!cqes_read(e, cq, index, old, raw)) {
            return false;
        }
        for (uint32_t i = 0; i < n; i++) {
            phase_set(raw + i * QRNIC_CQE_SIZE,
                      phase_of(index + i, log_size) == (i < old));
        }
        if (qrnic_pages_write(e, ring, (uint64_t)slot * QRNIC_CQE_SIZE, raw,
                               n * QRNIC_CQE_SIZE)) {
            return false;
        }
        index += n;
    }
    return true;
}

QrnicResult qrnic_cq_resize(QrnicEngine *e, uint32_t cqn,
                            const QrnicCqResize *in)
{
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
    if (!cqes_move(e, cq, &ring, in->log_size)) {
        return qrnic_refuse(QRNIC_ST_DMA, 0);
    }
    trace_qrnic_cq_resize(e->config.name, cqn, cq->ctx.log_size, in->log_size,
                          cq->consumer, cq->producer);
    cq->ring = ring;
    cq->ctx.ring = in->ring;
    cq->ctx.log_size = in->log_size;
    return qrnic_ok(0);
}

/*
 * Moderation
 */

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
    /* An event that waits follows the new moderation from now on. */
    qrnic_timer_cancel(e, &cq->timer);
    qrnic_cq_report(e, cq, 0);
    return qrnic_ok(0);
}
