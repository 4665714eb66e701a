/*
 * qrnic engine: round robin over queue pairs with work
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/sched/sched.h"

/* Packets that a queue pair may send before the next one has its turn */
#define QP_QUANTUM 16

static void take_up(QrnicEngine *e, QrnicQp *qp)
{
    QrnicCounterSet *before = qrnic_account(e, qrnic_qp_known(qp)->counters);
    QrnicTurn turn;

    qrnic_unschedule(e, qp);
    if (!qrnic_context_turn(e, qp)) {
        qrnic_account(e, before);
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
        turn = qrnic_qp_flush(e, qp, QP_QUANTUM) ? QRNIC_TURN_MORE :
                                                   QRNIC_TURN_DONE;
    } else {
        turn = qp->ops->transmit(e, qp, QP_QUANTUM);
    }
    qrnic_schedule_again(e, qp, turn);
    qrnic_context_turn_done(e, qp);
    qrnic_account(e, before);
}

bool qrnic_scheduler_pending(QrnicEngine *e)
{
    return !qrnic_contexts_stand_still(e) &&
           (qrnic_ready_levels(e, QRNIC_TURN_MORE) ||
            qrnic_ready_levels(e, QRNIC_TURN_WIRE) ||
            qrnic_ready_levels(e, QRNIC_TURN_LOOPBACK));
}

/* The lists have turns, too: who waited for the wire, and who did not. */
static QrnicQp *next_ready(QrnicEngine *e)
{
    QrnicSched *s = e->sched;
    uint32_t levels[QRNIC_TURNS], all = 0;
    unsigned level;

    for (unsigned i = 1; i < QRNIC_TURNS; i++) {
        levels[i] = qrnic_ready_levels(e, i);
        all |= levels[i];
    }
    if (!all) {
        return NULL;
    }
    level = qrnic_priority_next(e, all);
    do {
        s->list = s->list % (QRNIC_TURNS - 1) + 1;
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
