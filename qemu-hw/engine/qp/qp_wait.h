/*
 * qrnic engine, floor qp: what a queue pair can wait for: the scheduler, its
 * context, a page
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QP_WAIT_H
#define QRNIC_ENGINE_QP_WAIT_H

#include "engine/qp/qp.h"

/*
 * ready.c: the lists of the scheduler
 */

/* Schedules the queue pair; it keeps its place if it is in a list already. */
void qrnic_schedule(QrnicEngine *e, QrnicQp *qp);
/* Puts it into the list that its transmit operation has returned. */
void qrnic_schedule_again(QrnicEngine *e, QrnicQp *qp, QrnicReadyList list);
void qrnic_unschedule(QrnicEngine *e, QrnicQp *qp);
/* Returns the levels of the list that may be scheduled now, one bit each. */
uint32_t qrnic_ready_levels(QrnicEngine *e, QrnicReadyList list);
/* Returns the first queue pair of such a level. */
QrnicQp *qrnic_first_ready(QrnicEngine *e, QrnicReadyList list, unsigned level);
/* Sets the level by the priority, or else the service level. */
void qrnic_level_set(QrnicEngine *e, QrnicQp *qp);

/*
 * context.c: the cache of contexts. Before work on a queue pair, one of these
 * is called. Returns false if the work is done when the context is there.
 */
bool qrnic_context_pin(QrnicEngine *e, QrnicQp *qp);
bool qrnic_context_doorbell(QrnicEngine *e, QrnicQp *qp);
/* For a frame, which is received later or dropped if the context is missing */
bool qrnic_context_receive(QrnicEngine *e, QrnicQp *qp, const QrnicHeaders *h,
                           bool loopback);
bool qrnic_context_is_in(const QrnicQp *qp);
/* Unpins the context at the end of its quantum. */
void qrnic_context_unpin(QrnicEngine *e, QrnicQp *qp);
/* Returns true if a fetch holds up all others, as contexts are in order. */
bool qrnic_contexts_stand_still(const QrnicEngine *e);
/* Evicts the context of a member for good, and keeps room for it. */
void qrnic_context_away(QrnicEngine *e, QrnicQp *qp);
/* Undoes qrnic_context_away(). */
void qrnic_context_again(QrnicEngine *e, QrnicQp *qp);
/* Fetches others after one was freed or evicted. */
void qrnic_context_gone(QrnicEngine *e);

/*
 * page_fault.c: queue pairs that wait for pages
 */

bool qrnic_page_fault_wait(QrnicEngine *e, QrnicQp *qp, QrnicSide side,
                           const QrnicFault *fault);
/*
 * Returns true if the access of this side has met an absent page: the side
 * waits for it, and is scheduled when software has answered. Returns false if
 * the syndrome is another one, or software has rejected the page, or no EQ
 * takes page faults.
 */
static inline bool qrnic_page_fault(QrnicEngine *e, QrnicQp *qp, QrnicSide side,
                                    enum qrnic_syndrome syndrome,
                                    const QrnicFault *fault)
{
    return syndrome == QRNIC_SYN_PAGE_FAULT &&
           qrnic_page_fault_wait(e, qp, side, fault);
}
bool qrnic_page_fault_waits(const QrnicQp *qp, QrnicSide side);

#endif
