/*
 * qrnic engine: timers
 *
 * The timers of all objects are in a binary heap, earliest deadline first. All
 * of them share one timer of the environment (env.timer_arm), which is armed
 * for the earliest deadline. The device calls qrnic_engine_timer() when that
 * timer expires; it calls fire of each timer that is due. A timer is in the
 * heap exactly while its deadline is not QRNIC_DEADLINE_NEVER, and heap_index
 * is its position.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/core/core.h"

/*
 * Timers fired in one call, because thousands of queue pairs may have the same
 * deadline. The remaining timers are already due, so the environment calls
 * again at once.
 */
#define TIMER_BUDGET 64

static void heap_place(QrnicEngine *e, uint32_t at, QrnicTimer *t)
{
    e->heap[at] = t;
    t->heap_index = at;
}

static void heap_up(QrnicEngine *e, uint32_t at, QrnicTimer *t)
{
    while (at > 0) {
        uint32_t parent = (at - 1) / 2;

        if (e->heap[parent]->deadline <= t->deadline) {
            break;
        }
        heap_place(e, at, e->heap[parent]);
        at = parent;
    }
    heap_place(e, at, t);
}

static void heap_down(QrnicEngine *e, uint32_t at, QrnicTimer *t)
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
        if (e->heap[child]->deadline >= t->deadline) {
            break;
        }
        heap_place(e, at, e->heap[child]);
        at = child;
    }
    heap_place(e, at, t);
}

static void heap_remove(QrnicEngine *e, QrnicTimer *t)
{
    uint32_t at = t->heap_index;
    QrnicTimer *last = e->heap[--e->heap_count];

    if (last != t) {
        heap_up(e, at, last);
        heap_down(e, last->heap_index, last);
    }
    t->deadline = QRNIC_DEADLINE_NEVER;
}

static void timer_arm(QrnicEngine *e)
{
    int64_t first = e->heap_count ? e->heap[0]->deadline : QRNIC_DEADLINE_NEVER;

    if (first != e->armed_deadline) {
        e->armed_deadline = first;
        e->env.timer_arm(e->env.opaque, first);
    }
}

void qrnic_timer_init(QrnicTimer *t,
                      void (*fire)(QrnicEngine *e, QrnicTimer *t))
{
    t->deadline = QRNIC_DEADLINE_NEVER;
    t->fire = fire;
}

void qrnic_timer_set(QrnicEngine *e, QrnicTimer *t, int64_t deadline)
{
    if (deadline == QRNIC_DEADLINE_NEVER) {
        qrnic_timer_cancel(e, t);
        return;
    }
    if (t->deadline != QRNIC_DEADLINE_NEVER) {
        t->deadline = deadline;
        heap_up(e, t->heap_index, t);
        heap_down(e, t->heap_index, t);
    } else {
        if (e->heap_count == e->heap_room) {
            e->heap_room = MAX(16, e->heap_room * 2);
            e->heap = g_renew(QrnicTimer *, e->heap, e->heap_room);
        }
        t->deadline = deadline;
        heap_up(e, e->heap_count++, t);
    }
    timer_arm(e);
}

void qrnic_timer_advance(QrnicEngine *e, QrnicTimer *t, int64_t deadline)
{
    if (deadline < t->deadline) {
        qrnic_timer_set(e, t, deadline);
    }
}

void qrnic_timer_cancel(QrnicEngine *e, QrnicTimer *t)
{
    if (t->deadline != QRNIC_DEADLINE_NEVER) {
        heap_remove(e, t);
        timer_arm(e);
    }
}

void qrnic_engine_timer(QrnicEngine *e)
{
    int64_t now = qrnic_now(e);
    unsigned budget = TIMER_BUDGET;

    /*
     * The timer of the environment has expired, so it must be armed again for
     * the remaining deadlines.
     */
    e->armed_deadline = QRNIC_DEADLINE_NEVER;
    while (!e->fatal && e->heap_count && e->heap[0]->deadline <= now &&
           budget--) {
        QrnicTimer *t = e->heap[0];

        heap_remove(e, t);
        t->fire(e, t);
    }
    if (!e->fatal) {
        timer_arm(e);
    }
}

/*
 * Empties the heap at once, because the cancellation of each timer would
 * reorder the heap and arm the environment's timer.
 */
void qrnic_timers_reset(QrnicEngine *e)
{
    for (uint32_t i = 0; i < e->heap_count; i++) {
        e->heap[i]->deadline = QRNIC_DEADLINE_NEVER;
    }
    e->heap_count = 0;
    e->armed_deadline = QRNIC_DEADLINE_NEVER;
    e->env.timer_arm(e->env.opaque, QRNIC_DEADLINE_NEVER);
}
