/*
 * qrnic engine: deadlines of queue pairs
 *
 * A binary heap, least deadline first, on one timer of the environment, which
 * they share with the few CQs that have moderation and an event due.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/internal.h"

static void heap_place(QrnicEngine *e, uint32_t at, QrnicQp *qp)
{
    e->heap[at] = qp;
    qp->heap_index = at;
}

static void heap_up(QrnicEngine *e, uint32_t at, QrnicQp *qp)
{
    while (at > 0) {
        uint32_t parent = (at - 1) / 2;

        if (e->heap[parent]->deadline <= qp->deadline) {
            break;
        }
        heap_place(e, at, e->heap[parent]);
        at = parent;
    }
    heap_place(e, at, qp);
}

static void heap_down(QrnicEngine *e, uint32_t at, QrnicQp *qp)
{
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= e->heap_count) {
            break;
        }
        if (child + 1 < e->heap_count &&
            e->heap[child + 1]->deadline < e->heap[child]->deadline) {
            child++;
        }
        if (e->heap[child]->deadline >= qp->deadline) {
            break;
        }
        heap_place(e, at, e->heap[child]);
        at = child;
    }
    heap_place(e, at, qp);
}

static void heap_remove(QrnicEngine *e, QrnicQp *qp)
{
    uint32_t at = qp->heap_index;
    QrnicQp *last = e->heap[--e->heap_count];

    if (last != qp) {
        heap_up(e, at, last);
        heap_down(e, last->heap_index, last);
    }
    qp->deadline = QRNIC_DEADLINE_NEVER;
}

void qrnic_timer_arm(QrnicEngine *e)
{
    int64_t first = e->heap_count ? e->heap[0]->deadline : QRNIC_DEADLINE_NEVER;

    first = MIN(first, qrnic_cq_timer_first(e));
    if (first != e->armed_deadline) {
        e->armed_deadline = first;
        e->env.timer_arm(e->env.opaque, first);
    }
}

void qrnic_timer_set(QrnicEngine *e, QrnicQp *qp, int64_t deadline)
{
    if (deadline == QRNIC_DEADLINE_NEVER) {
        qrnic_timer_cancel(e, qp);
        return;
    }
    if (qp->deadline != QRNIC_DEADLINE_NEVER) {
        qp->deadline = deadline;
        heap_up(e, qp->heap_index, qp);
        heap_down(e, qp->heap_index, qp);
    } else {
        if (e->heap_count == e->heap_room) {
            e->heap_room = MAX(16, e->heap_room * 2);
            e->heap = g_renew(QrnicQp *, e->heap, e->heap_room);
        }
        qp->deadline = deadline;
        heap_up(e, e->heap_count++, qp);
    }
    qrnic_timer_arm(e);
}

void qrnic_timer_cancel(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->deadline != QRNIC_DEADLINE_NEVER) {
        heap_remove(e, qp);
        qrnic_timer_arm(e);
    }
}

void qrnic_engine_timer(QrnicEngine *e)
{
    int64_t now = qrnic_now(e);

    /* The environment's timer is spent; what remains must be armed anew. */
    e->armed_deadline = QRNIC_DEADLINE_NEVER;
    while (e->heap_count && e->heap[0]->deadline <= now) {
        QrnicQp *qp = e->heap[0];

        heap_remove(e, qp);
        qrnic_qp_ops(qp)->timer(e, qp);
    }
    qrnic_cq_timer(e, now);
    qrnic_timer_arm(e);
}
