/*
 * qrnic engine: queue pairs that have something to do
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp.h"

bool qrnic_needs_no_wire(const QrnicQp *qp)
{
    return qp->state == QRNIC_QPS_ERR ||
           qp->state == QRNIC_QPS_SQE || qrnic_sq_flush_is_owed(qp) ||
           (qp->state == QRNIC_QPS_SQD && qp->sq_draining &&
            qrnic_send_idle(qp));
}

void qrnic_schedule(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->scheduled) {
        /* It may have waited for the wire until now. */
        if (qrnic_needs_no_wire(qp)) {
            e->env.kick(e->env.opaque);
        }
        return;
    }
    qp->scheduled = true;
    QTAILQ_INSERT_TAIL(&e->pairs->active, qp, next);
    trace_qrnic_schedule(e->config.name, qp->number);
    e->env.kick(e->env.opaque);
}

void qrnic_unschedule(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->scheduled) {
        qp->scheduled = false;
        QTAILQ_REMOVE(&e->pairs->active, qp, next);
    }
}

bool qrnic_wireless_work(QrnicEngine *e)
{
    QrnicQp *qp;

    QTAILQ_FOREACH(qp, &e->pairs->active, next) {
        if (qrnic_needs_no_wire(qp)) {
            return true;
        }
    }
    return false;
}
