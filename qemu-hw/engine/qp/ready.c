/*
 * qrnic engine, layer qp: the lists of the scheduler
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Keeps queue pairs with work in one list for each reason to wait and each
 * priority level. Receivers, doorbells, timers and commands call
 * qrnic_schedule(). The scheduler removes the first entry of a list and puts it
 * back with qrnic_schedule_again(). Queue pairs that need the blocked wire are
 * in a separate list, so that the scheduler skips them until the wire accepts
 * frames.
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

/*
 * Returns true if the next step of the queue pair sends nothing: a flush, or
 * the event SQ_DRAINED. The step must not wait for the wire, because the wire
 * may be blocked for ever. Software waits for the step before it changes or
 * destroys the queue pair.
 */
static bool needs_no_wire(const QrnicQp *qp)
{
    return qp->state == QRNIC_QPS_ERR ||
           qp->state == QRNIC_QPS_SQE || qrnic_sq_flush_is_owed(qp) ||
           (qp->state == QRNIC_QPS_SQD && qp->sq_draining &&
            qrnic_send_idle(qp));
}

void qrnic_schedule_first(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_unschedule(e, qp);
    qp->ready_list = QRNIC_LIST_READY;
    QTAILQ_INSERT_HEAD(&e->qps->list[QRNIC_LIST_READY][qp->level], qp, next);
    e->qps->ready[QRNIC_LIST_READY] |= 1u << qp->level;
    trace_qrnic_schedule(e->config.name, qp->number, QRNIC_LIST_READY);
    qrnic_wake(e);
}

static void list_insert(QrnicEngine *e, QrnicQp *qp, QrnicReadyList list)
{
    qp->ready_list = list;
    QTAILQ_INSERT_TAIL(&e->qps->list[list][qp->level], qp, next);
    e->qps->ready[list] |= 1u << qp->level;
    trace_qrnic_schedule(e->config.name, qp->number, list);
}

void qrnic_unschedule(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->ready_list != QRNIC_LIST_NONE) {
        QTAILQ_REMOVE(&e->qps->list[qp->ready_list][qp->level], qp, next);
        if (QTAILQ_EMPTY(&e->qps->list[qp->ready_list][qp->level])) {
            e->qps->ready[qp->ready_list] &= ~(1u << qp->level);
        }
        qp->ready_list = QRNIC_LIST_NONE;
    }
}

void qrnic_schedule(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->ready_list == QRNIC_LIST_READY || qrnic_context_waits(qp)) {
        return;
    }
    /*
     * Otherwise the queue pair keeps its place, so that repeated calls cannot
     * delay it.
     */
    if (qp->ready_list == QRNIC_LIST_NONE || needs_no_wire(qp) ||
        (!qp->ops->is_datagram && qrnic_path_wait(e, qp) != qp->ready_list)) {
        qrnic_unschedule(e, qp);
        list_insert(e, qp, QRNIC_LIST_READY);
        qrnic_wake(e);
    }
}

void qrnic_schedule_again(QrnicEngine *e, QrnicQp *qp, QrnicReadyList list)
{
    /* The transmit operation may have scheduled the queue pair already. */
    if (list != QRNIC_LIST_NONE && qp->ready_list == QRNIC_LIST_NONE) {
        list_insert(e, qp, list);
    }
}

/*
 * Checks again all queue pairs that wait for the wire. A change of the GID
 * table can turn a path into loopback, which needs no wire.
 */
static void look_again(QrnicEngine *e)
{
    QrnicQp *qp;

    e->qps->gids_epoch = e->fabric->gids_epoch;
    while (e->qps->ready[QRNIC_LIST_WIRE]) {
        qp = qrnic_first_ready(e, QRNIC_LIST_WIRE,
                               ctz32(e->qps->ready[QRNIC_LIST_WIRE]));
        qrnic_unschedule(e, qp);
        list_insert(e, qp, QRNIC_LIST_READY);
    }
}

QrnicQp *qrnic_first_ready(QrnicEngine *e, QrnicReadyList list, unsigned level)
{
    return QTAILQ_FIRST(&e->qps->list[list][level]);
}

void qrnic_level_set(QrnicEngine *e, QrnicQp *qp)
{
    uint8_t list = qp->ready_list;

    qrnic_unschedule(e, qp);
    if (!(e->config.capabilities & QRNIC_CAP_PRIORITY)) {
        qp->level = 0;
    } else if (qp->attr.priority) {
        qp->level = qp->attr.priority - 1;
    } else {
        qp->level = qp->attr.av.sl;
    }
    if (list != QRNIC_LIST_NONE) {
        list_insert(e, qp, list);
    }
}

uint32_t qrnic_ready_levels(QrnicEngine *e, QrnicReadyList list)
{
    if (e->qps->gids_epoch != e->fabric->gids_epoch) {
        look_again(e);
    }

    if ((list == QRNIC_LIST_WIRE && qrnic_wire_busy(e)) ||
        (list == QRNIC_LIST_LOOPBACK && qrnic_loopback_full(e))) {
        return 0;
    }
    return e->qps->ready[list];
}

/* Schedules the queue pair, because the rate limit allows the next frame. */
static void pace_timer(QrnicEngine *e, QrnicTimer *t)
{
    qrnic_schedule(e, container_of(t, QrnicQp, pace_timer));
}

/*
 * Increases the rate after congestion, and schedules the queue pair if it waits
 * for its rate.
 */
static void congestion_timer(QrnicEngine *e, QrnicTimer *t)
{
    QrnicQp *qp = container_of(t, QrnicQp, congestion_timer);

    qrnic_congestion_expired(e, qp);
    if (qp->pace_timer.deadline != QRNIC_DEADLINE_NEVER) {
        qrnic_schedule(e, qp);
    }
}

void qrnic_ready_init(QrnicQp *qp)
{
    qrnic_timer_init(&qp->pace_timer, pace_timer);
    qrnic_timer_init(&qp->congestion_timer, congestion_timer);
}
