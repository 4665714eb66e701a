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

/* Takes a queue pair up. Returns true if it could go on at once. */
static bool take_up(QrnicEngine *e, QrnicQp *qp)
{
    QrnicCounterSet *before = qrnic_account(e, qp->counters);
    bool more;

    qrnic_unschedule(e, qp);
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
        more = qrnic_qp_flush(e, qp, QP_QUANTUM);
    } else {
        more = qp->ops->transmit(e, qp, QP_QUANTUM);
    }
    qrnic_account(e, before);
    return more;
}

/*
 * What sends nothing must not wait for a wire that may never be free again:
 * software waits for it when it takes a connection down, or changes it.
 */
static void work_while_busy(QrnicEngine *e, unsigned budget)
{
    QrnicQp *qp, *next;

    QTAILQ_FOREACH_SAFE(qp, &e->pairs->active, next, next) {
        if (!qrnic_needs_no_wire(qp)) {
            continue;
        }
        if (take_up(e, qp)) {
            qrnic_schedule(e, qp);
        }
        if (!--budget || e->fatal) {
            e->env.kick(e->env.opaque);
            return;
        }
    }
}

void qrnic_scheduler_run(QrnicEngine *e, unsigned budget)
{
    while (budget && !e->fatal && !QTAILQ_EMPTY(&e->pairs->active) &&
           !qrnic_wire_busy(e)) {
        QrnicQp *qp = QTAILQ_FIRST(&e->pairs->active);

        if (take_up(e, qp)) {
            qrnic_schedule(e, qp);
        }
        budget--;
    }
    if (budget && !e->fatal && e->fabric->wire_busy) {
        work_while_busy(e, budget);
    }
}
