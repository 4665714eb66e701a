/*
 * qrnic engine: the scheduler: selects the priority level and the queue pair
 * that sends next
 *
 * The run loop calls qrnic_scheduler_run() in each round. A slot lets one queue
 * pair send up to QP_QUANTUM packets, or flush that many WQEs in state ERR. In
 * a slot the context of the queue pair is pinned. After the slot
 * qrnic_schedule_again() appends the queue pair to a ready list if it has more
 * to send. Manual, chapter "Priorities".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "trace.h"
#include "engine/sched/sched.h"

static unsigned highest_of(uint32_t levels)
{
    return 31 - clz32(levels);
}

/*
 * Selects the level if a strict level is ready. Every STARVATION_SLOTS-th slot
 * is given to a waiting lower level, so that no level starves. These levels are
 * served from the highest to the lowest.
 */
static unsigned strict(QrnicSched *s, uint32_t levels, bool *relief)
{
    unsigned highest = highest_of(levels);
    uint32_t others = levels & ~(1u << highest), below;

    if (++s->passed < QRNIC_STARVATION_SLOTS) {
        return highest;
    }
    s->passed = 0;
    below = others & ((1u << s->relieved) - 1);
    s->relieved = highest_of(below ? below : others);
    *relief = true;
    return s->relieved;
}

/*
 * Returns the highest level with slots left. If no level has any, each level
 * first receives 2^level new slots.
 */
static unsigned weighted(QrnicSched *s, uint32_t levels)
{
    for (;;) {
        for (int level = QRNIC_PRIORITY_STRICT - 1; level >= 0; level--) {
            if (levels >> level & 1 && s->slots[level]) {
                s->slots[level]--;
                return level;
            }
        }
        for (unsigned level = 0; level < QRNIC_PRIORITY_STRICT; level++) {
            s->slots[level] = 1u << level;
        }
    }
}

/* Returns the level that sends next. levels has a bit for each ready level. */
static unsigned priority_next(QrnicEngine *e, uint32_t levels)
{
    QrnicSched *s = e->sched;
    bool relief = false;
    unsigned level;

    /*
     * A single ready level is charged no slot, because other levels may only be
     * waiting for the wire.
     */
    if (!(levels & (levels - 1))) {
        return ctz32(levels);
    }
    level = levels >> QRNIC_PRIORITY_STRICT ? strict(s, levels, &relief) :
                                              weighted(s, levels);
    trace_qrnic_priority(e->config.name, levels, level, relief);
    qrnic_add(e, QRNIC_COUNTER_PRIORITY_SLOTS, 1);
    qrnic_add(e, QRNIC_COUNTER_PRIORITY_RELIEFS, relief);
    return level;
}

/* Packets that a queue pair may send in a slot */
#define QP_QUANTUM 16

static void take_up(QrnicEngine *e, QrnicQp *qp)
{
    QrnicCounterSet *before = qrnic_charge_to(e, qrnic_qp_known(qp)->counters);
    QrnicReadyList list;

    qrnic_unschedule(e, qp);
    qrnic_work_for(e, qp->number, qp->type);
    if (!qrnic_context_pin(e, qp)) {
        qrnic_work_for(e, 0, 0);
        qrnic_charge_to(e, before);
        return;
    }
    if (qp->sq_rung) {
        qp->sq_rung = false;
        if (qp->state != QRNIC_QPS_RESET) {
            qrnic_sq_pending(e, qp, true);
        }
    }
    trace_qrnic_take_up(e->config.name, qp->number,
                        qrnic_qp_state_name(qp->state), qp->sq.producer,
                        qp->sq.consumer);
    if (qp->state == QRNIC_QPS_ERR) {
        list = qrnic_qp_flush(e, qp, QP_QUANTUM) ? QRNIC_LIST_READY :
                                                   QRNIC_LIST_NONE;
    } else {
        list = qp->ops->transmit(e, qp, QP_QUANTUM);
    }
    if (list == QRNIC_LIST_NONE && qrnic_sq_sleep(e, qp)) {
        list = QRNIC_LIST_READY;
    }
    qrnic_schedule_again(e, qp, list);
    qrnic_context_unpin(e, qp);
    qrnic_work_for(e, 0, 0);
    qrnic_charge_to(e, before);
}

bool qrnic_scheduler_pending(QrnicEngine *e)
{
    return !qrnic_contexts_stand_still(e) &&
           (qrnic_ready_levels(e, QRNIC_LIST_READY) ||
            qrnic_ready_levels(e, QRNIC_LIST_WIRE) ||
            qrnic_ready_levels(e, QRNIC_LIST_LOOPBACK));
}

/*
 * Returns the next queue pair. Within a level the ready lists alternate, so
 * that queue pairs that waited for the wire have no disadvantage.
 */
static QrnicQp *next_ready(QrnicEngine *e)
{
    QrnicSched *s = e->sched;
    uint32_t levels[QRNIC_LISTS], all = 0;
    unsigned level;

    for (unsigned i = 1; i < QRNIC_LISTS; i++) {
        levels[i] = qrnic_ready_levels(e, i);
        all |= levels[i];
    }
    if (!all) {
        return NULL;
    }
    level = priority_next(e, all);
    do {
        s->list = s->list % (QRNIC_LISTS - 1) + 1;
    } while (!(levels[s->list] >> level & 1));
    return qrnic_first_ready(e, s->list, level);
}

void qrnic_scheduler_run(QrnicEngine *e, unsigned budget)
{
    QrnicQp *qp;

    while (budget-- && !e->fatal && !qrnic_contexts_stand_still(e) &&
           !qrnic_budget_spent(e) &&
           (qp = next_ready(e))) {
        take_up(e, qp);
    }
}
