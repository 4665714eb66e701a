/*
 * qrnic engine: event queues
 *
 * CQs, the core layer (asynchronous events) and page faults write events.
 * Software consumes them and writes the consumer index with a doorbell, which
 * may also arm the EQ. An armed EQ sends one interrupt. An EQ that is full or
 * cannot be written is a fatal error, because a lost event cannot be reported.
 * The EQ remembers the CQ of each EQE (eq->cqn). So a CQ can write its next
 * event when software has consumed its previous event. EQEs between "taken" and
 * "consumer" are consumed but not yet processed in this way.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/queue/queue.h"

#define EQ_MIN_LOG_SIZE 4
#define EQ_MAX_LOG_SIZE 16

/*
 * Consumed EQEs that are processed within the doorbell itself, and in each
 * round of the run loop
 */
#define TAKE_AT_ONCE 64
#define TAKE_BUDGET 256

static uint32_t eq_size(const QrnicEq *eq)
{
    return 1u << eq->ctx.log_size;
}

static void eq_notify(QrnicEngine *e, QrnicEq *eq)
{
    eq->armed = false;
    trace_qrnic_eq_notify(e->config.name, eq->number, eq->ctx.vector,
                          eq->producer, eq->consumer);
    e->env.notify(e->env.opaque, eq->ctx.vector);
}

/*
 * Moves the device to the fatal state, because this EQ can report no further
 * event.
 */
static void eq_fail(QrnicEngine *e, QrnicEq *eq, enum qrnic_health cause)
{
    eq->failed = true;
    qrnic_fatal(e, cause, eq->number);
}

/* Processes the next consumed EQE: its CQ may write its next event. */
static void take_one(QrnicEngine *e, QrnicEq *eq, bool late)
{
    uint32_t cqn = eq->cqn[eq->taken++ & (eq_size(eq) - 1)];

    if (cqn) {
        e->queue->event_taken(e, cqn, late);
    }
}

static void untaken_update(QrnicEngine *e, QrnicEq *eq)
{
    bool untaken = eq->taken != eq->consumer;

    if (untaken && !eq->untaken) {
        QTAILQ_INSERT_TAIL(&e->queue->untaken, eq, next);
        qrnic_wake(e);
    } else if (!untaken && eq->untaken) {
        QTAILQ_REMOVE(&e->queue->untaken, eq, next);
    }
    eq->untaken = untaken;
}

void qrnic_eq_push(QrnicEngine *e, QrnicEq *eq, QrnicEqe *eqe)
{
    uint8_t raw[QRNIC_EQE_BYTES];
    uint32_t slot = eq->producer & (eq_size(eq) - 1);

    if (e->fatal && eqe->type != QRNIC_EVENT_DEVICE_FATAL) {
        return;
    }
    if (eq->producer - eq->consumer == eq_size(eq)) {
        qrnic_guest_error(e, QRNIC_GE_EQ_OVERRUN, "EQ", eq->number,
                          "full at producer index %" PRIu32 " with event %s",
                          eq->producer, qrnic_event_name(eqe->type));
        eq_fail(e, eq, QRNIC_HEALTH_EQ_OVERRUN);
        return;
    }
    eqe->phase = !((eq->producer >> eq->ctx.log_size) & 1);
    qrnic_eqe_pack(raw, eqe);
    if (!qrnic_entry_write(e, &eq->ring, slot, raw, QRNIC_EQE_SIZE,
                           QRNIC_USE_EQE, eq->number, eq->producer)) {
        eq_fail(e, eq, QRNIC_HEALTH_EQ_DMA);
        return;
    }
    if (eq->producer - eq->taken == eq_size(eq)) {
        /*
         * The CQ of the old EQE must be notified before the slot gets another
         * CQ.
         */
        take_one(e, eq, true);
        untaken_update(e, eq);
    }
    eq->cqn[slot] = eqe->type == QRNIC_EVENT_COMPLETION ? eqe->object : 0;
    eq->producer++;
    qrnic_add(e, QRNIC_COUNTER_EQES, 1);
    trace_qrnic_eq_push(e->config.name, eq->number, eq->producer - 1,
                        qrnic_event_name(eqe->type), eqe->subtype,
                        eqe->object, eqe->data);
    if (eq->armed) {
        eq_notify(e, eq);
    }
}

/* Receives asynchronous events from the core layer. */
static void async_push(QrnicEngine *e, QrnicEqe *eqe)
{
    QrnicEq *eq = e->queue->async_eq;

    if (eq && !eq->failed) {
        qrnic_eq_push(e, eq, eqe);
    }
}

bool qrnic_async_has_room(const QrnicEngine *e)
{
    const QrnicEq *eq = e->queue->async_eq;

    return !eq || eq->producer - eq->consumer < eq_size(eq) / 2;
}

bool qrnic_fault_eq_exists(const QrnicEngine *e)
{
    return e->queue->fault_eq && !e->queue->fault_eq->failed;
}

bool qrnic_fault_eq_has_room(const QrnicEngine *e)
{
    const QrnicEq *eq = e->queue->fault_eq;

    return eq && !eq->failed && eq->producer - eq->consumer < eq_size(eq);
}

void qrnic_fault_eq_push(QrnicEngine *e, uint32_t number, uint32_t sequence)
{
    QrnicEqe eqe = {
        .type = QRNIC_EVENT_PAGE_FAULT, .object = number, .data = sequence,
    };

    qrnic_eq_push(e, e->queue->fault_eq, &eqe);
}

void qrnic_eq_init(QrnicEngine *e)
{
    e->event = async_push;
}

void qrnic_eq_doorbell(QrnicEngine *e, const QrnicEqDoorbell *in)
{
    QrnicEq *eq = qrnic_eq_get(e, in->number);

    trace_qrnic_eq_doorbell(e->config.name, in->number, in->index, in->arm);
    if (!eq) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_QUEUE, "EQ", in->number,
                          "no such event queue");
        return;
    }
    /*
     * The index is later than the producer index, or earlier than the previous
     * index.
     */
    if (in->index - eq->consumer > eq->producer - eq->consumer) {
        qrnic_guest_error(e, QRNIC_GE_EQ_CONSUMER, "EQ", eq->number,
                          "consumer index %" PRIu32 " is not in %" PRIu32
                          " to %" PRIu32, in->index, eq->consumer,
                          eq->producer);
        return;
    }
    eq->consumer = in->index;
    if (eq == e->queue->async_eq || eq == e->queue->fault_eq) {
        /*
         * Only completion EQs have events of CQs. Wakes the engine, because
         * events that wait for room may now be written.
         */
        eq->taken = eq->consumer;
        qrnic_wake(e);
    }
    for (unsigned i = 0; i < TAKE_AT_ONCE && eq->taken != eq->consumer; i++) {
        take_one(e, eq, false);
    }
    untaken_update(e, eq);
    if (in->arm) {
        eq->armed = true;
        if (eq->producer != eq->consumer) {
            eq_notify(e, eq);
        }
    }
}

bool qrnic_eqs_pending(const QrnicEngine *e)
{
    return !QTAILQ_EMPTY(&e->queue->late) || !QTAILQ_EMPTY(&e->queue->untaken);
}

/*
 * Writes late events first, so that the events of an EQ keep the order in which
 * their predecessors were consumed.
 */
void qrnic_eqs_process(QrnicEngine *e)
{
    for (unsigned budget = TAKE_BUDGET; budget && !e->fatal; budget--) {
        QrnicEq *eq = QTAILQ_FIRST(&e->queue->untaken);

        if (!QTAILQ_EMPTY(&e->queue->late)) {
            e->queue->late_event(e);
        } else if (eq) {
            take_one(e, eq, false);
            untaken_update(e, eq);
        } else {
            return;
        }
    }
}

/*
 * Returns the pointer to the only EQ of this type, or NULL if there may be
 * several.
 */
static QrnicEq **only_one(QrnicEngine *e, uint8_t type)
{
    return type == QRNIC_EQ_ASYNC ? &e->queue->async_eq :
           type == QRNIC_EQ_PAGE_FAULT ? &e->queue->fault_eq : NULL;
}

QrnicResult qrnic_eq_create(QrnicEngine *e, const QrnicEqCtx *in)
{
    QrnicResult error;
    QrnicPages ring;
    QrnicEq *eq;

    if (in->type != QRNIC_EQ_ASYNC && in->type != QRNIC_EQ_COMPLETION &&
        in->type != QRNIC_EQ_PAGE_FAULT) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_EQ_CTX_TYPE_OFFSET);
    }
    if (in->type == QRNIC_EQ_PAGE_FAULT &&
        !(e->config.capabilities & QRNIC_CAP_ON_DEMAND)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, QRNIC_EQ_CTX_TYPE_OFFSET);
    }
    if (in->log_size < EQ_MIN_LOG_SIZE || in->log_size > EQ_MAX_LOG_SIZE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_EQ_CTX_LOG_SIZE_OFFSET);
    }
    if (in->vector >= e->config.vectors) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_EQ_CTX_VECTOR_OFFSET);
    }
    if (in->producer) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_EQ_CTX_PRODUCER_OFFSET);
    }
    if (in->consumer) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_EQ_CTX_CONSUMER_OFFSET);
    }
    if (!qrnic_ring_init(e, &ring, &in->ring,
                         (uint64_t)QRNIC_EQE_SIZE << in->log_size,
                         QRNIC_EQ_CTX_RING_OFFSET, &error)) {
        return error;
    }
    if (only_one(e, in->type) && *only_one(e, in->type)) {
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    eq = g_malloc0(sizeof(*eq) + (sizeof(eq->cqn[0]) << in->log_size));
    eq->ctx = *in;
    eq->ring = ring;
    if (!qrnic_table_insert(&e->queue->eqs, eq, &eq->number)) {
        g_free(eq);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    if (only_one(e, in->type)) {
        *only_one(e, in->type) = eq;
    }
    trace_qrnic_eq_create(e->config.name, eq->number,
                          qrnic_eq_type_name(in->type), in->log_size,
                          in->vector);
    return qrnic_ok(eq->number);
}

QrnicResult qrnic_eq_destroy(QrnicEngine *e, uint32_t eqn)
{
    QrnicEq *eq = qrnic_eq_get(e, eqn);

    if (!eq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (eq->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_eq_destroy(e->config.name, eqn);
    /*
     * All CQs of this EQ are already destroyed, so its consumed EQEs need no
     * processing.
     */
    eq->taken = eq->consumer;
    untaken_update(e, eq);
    qrnic_table_remove(&e->queue->eqs, eqn);
    if (only_one(e, eq->ctx.type)) {
        *only_one(e, eq->ctx.type) = NULL;
        /* Events that waited for room in this EQ need not wait any more. */
        qrnic_wake(e);
    }
    if (eq->ctx.type == QRNIC_EQ_PAGE_FAULT) {
        e->queue->fault_eq_gone(e);
    }
    g_free(eq);
    return qrnic_ok(0);
}

QrnicResult qrnic_eq_query(QrnicEngine *e, uint32_t eqn, QrnicEqCtx *out)
{
    QrnicEq *eq = qrnic_eq_get(e, eqn);

    if (!eq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    *out = eq->ctx;
    out->producer = eq->producer;
    out->consumer = eq->consumer;
    return qrnic_ok(0);
}
