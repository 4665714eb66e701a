/*
 * qrnic engine, layer qp: waits for the scheduler, for a context, or for a page
 *
 * The scheduler (sched/scheduler.c) takes the first queue pair of a list, calls
 * qrnic_context_pin(), QrnicQpOps.transmit and qrnic_schedule_again().
 * Receivers, doorbells, timers and commands call qrnic_schedule(). A queue pair
 * is in at most one list. A queue pair waits for at most one page in each
 * direction.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QP_WAIT_H
#define QRNIC_ENGINE_QP_WAIT_H

#include "engine/qp/qp.h"

/* ready.c: the lists of the scheduler */

/**
 * qrnic_schedule:
 * @e: engine
 * @qp: queue pair that may have work
 *
 * Appends the queue pair to the list of ready queue pairs and requests a run of
 * the engine. A queue pair that waits for the blocked wire keeps its place,
 * because an earlier run could send nothing.
 */
void qrnic_schedule(QrnicEngine *e, QrnicQp *qp);
/**
 * qrnic_schedule_again:
 * @e: engine
 * @qp: queue pair whose transmit operation has returned
 * @list: result of the transmit operation
 *
 * Appends the queue pair to this list, unless it is in a list already.
 */
void qrnic_schedule_again(QrnicEngine *e, QrnicQp *qp, QrnicReadyList list);
void qrnic_unschedule(QrnicEngine *e, QrnicQp *qp);
/**
 * qrnic_ready_levels:
 * @e: engine
 * @list: list of the scheduler
 *
 * Returns: one bit for each level with a queue pair that can be scheduled now;
 * 0 while the output of the list is blocked
 */
uint32_t qrnic_ready_levels(QrnicEngine *e, QrnicReadyList list);
/*
 * Returns the first queue pair of the list at this level, which is not empty.
 */
QrnicQp *qrnic_first_ready(QrnicEngine *e, QrnicReadyList list, unsigned level);
/*
 * Sets the priority level from the attribute priority, or else from the service
 * level.
 */
void qrnic_level_set(QrnicEngine *e, QrnicQp *qp);

/**
 * qrnic_context_pin:
 * @e: engine
 * @qp: queue pair at the begin of its quantum
 *
 * Requests the cached context for a quantum of the scheduler (context.c).
 *
 * Returns: true if the context is cached. Returns false if it is being fetched:
 * the caller returns at once, and the queue pair is scheduled after the fetch.
 */
bool qrnic_context_pin(QrnicEngine *e, QrnicQp *qp);
/**
 * qrnic_context_doorbell:
 * @e: engine
 * @qp: queue pair whose receive doorbell was rung
 *
 * Requests the context for a doorbell of the receive queue.
 *
 * Returns: true if the context is cached; false if the doorbell is handled
 * after the fetch
 */
bool qrnic_context_doorbell(QrnicEngine *e, QrnicQp *qp);
/**
 * qrnic_context_receive:
 * @e: engine
 * @qp: queue pair that a frame addresses
 * @h: headers of the frame
 * @loopback: true if this device has sent the frame
 *
 * Requests the context for a received frame. If the context is missing, the
 * frame is buffered until the end of the fetch, or dropped if the buffer is
 * full.
 *
 * Returns: true if the caller must receive the frame now
 */
bool qrnic_context_receive(QrnicEngine *e, QrnicQp *qp, const QrnicHeaders *h,
                           bool loopback);
/* Returns true if the context is cached, or if the queue pair has none. */
bool qrnic_context_is_in(const QrnicQp *qp);
/* Unpins the context, because the quantum of the queue pair has ended. */
void qrnic_context_unpin(QrnicEngine *e, QrnicQp *qp);
/*
 * Returns true if a fetch delays all queue pairs, which happens if the device
 * fetches contexts in order.
 */
bool qrnic_contexts_stand_still(const QrnicEngine *e);
/**
 * qrnic_context_away:
 * @e: engine
 * @qp: member of a shared connection
 *
 * Frees the cached context, because members have none. The room stays reserved
 * for qrnic_context_again().
 */
void qrnic_context_away(QrnicEngine *e, QrnicQp *qp);
/*
 * Undoes qrnic_context_away(), because the member has left the shared
 * connection.
 */
void qrnic_context_again(QrnicEngine *e, QrnicQp *qp);
/* Starts waiting fetches, because a context was freed or evicted. */
void qrnic_context_gone(QrnicEngine *e);

/* page_fault.c: queue pairs that wait for pages */

bool qrnic_page_fault_wait(QrnicEngine *e, QrnicQp *qp, QrnicSide side,
                           const QrnicFault *fault);
/**
 * qrnic_page_fault:
 * @e: engine
 * @qp: queue pair whose access has failed
 * @side: direction of the access
 * @syndrome: result of the access
 * @fault: key, address and length, if the page is absent
 *
 * Begins to wait for an absent page. The queue pair is resumed and scheduled
 * when software answers.
 *
 * Returns: true if the queue pair waits. Returns false if the syndrome is
 * another one, if software has rejected the same access, or if no EQ for page
 * faults exists.
 */
static inline bool qrnic_page_fault(QrnicEngine *e, QrnicQp *qp, QrnicSide side,
                                    enum qrnic_syndrome syndrome,
                                    const QrnicFault *fault)
{
    return syndrome == QRNIC_SYN_PAGE_FAULT &&
           qrnic_page_fault_wait(e, qp, side, fault);
}
/* Returns true if this direction waits for a page. */
bool qrnic_page_fault_waits(const QrnicQp *qp, QrnicSide side);

#endif
