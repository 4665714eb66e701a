/*
 * qrnic engine, layer qp: the notification point of congestion control
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Sends CNPs to peers whose packets arrive with CE marks. The demultiplexer or
 * a dynamic target calls qrnic_notification_owe() for a marked packet, which
 * makes a CNP pending. The phase REPORTS of a later round sends pending CNPs,
 * because no packet is sent from a reception. Pending CNPs are in one list;
 * they wait while the wire or the loopback queue is blocked.
 *
 * InfiniBand specification, A17.9.
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

/* Largest number of CNPs in one round */
#define NOTIFICATIONS 64

bool qrnic_mark_counts(const QrnicEngine *e, const QrnicPacket *p)
{
    return qrnic_congestion_has(e, QRNIC_CONGESTION_NP) &&
           p->h->network != QRNIC_NET_GRH;
}

void qrnic_notification_owe(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->cnp_owed || qrnic_now(e) < qp->cnp_next) {
        return;
    }
    qp->cnp_owed = true;
    QTAILQ_INSERT_TAIL(&e->qps->cnps_owed, qp, next_cnp);
    qrnic_wake(e);
}

void qrnic_notification_drop(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->cnp_owed) {
        qp->cnp_owed = false;
        QTAILQ_REMOVE(&e->qps->cnps_owed, qp, next_cnp);
    }
}

void qrnic_notifications_forget(QrnicEngine *e)
{
    QrnicQp *qp;

    while ((qp = QTAILQ_FIRST(&e->qps->cnps_owed))) {
        qrnic_notification_drop(e, qp);
    }
}

/*
 * Returns true if a CNP can be sent now. A blocked wire makes this false, so
 * that the engine does not run in vain.
 */
bool qrnic_notifications_pending(const QrnicEngine *e)
{
    const QrnicQp *qp = QTAILQ_FIRST(&e->qps->cnps_owed);

    return qp && !qrnic_wire_busy(e) && !qrnic_loopback_full(e);
}

void qrnic_notifications_process(QrnicEngine *e)
{
    for (unsigned i = 0; i < NOTIFICATIONS && qrnic_notifications_pending(e);
         i++) {
        QrnicQp *qp = QTAILQ_FIRST(&e->qps->cnps_owed);
        QrnicCounterSet *before;

        before = qrnic_charge_to(e, qrnic_qp_known(qp)->counters);
        qrnic_notification_drop(e, qp);
        qp->cnp_next = qrnic_now(e) + e->qps->congestion.
                       np_min_time_between_cnps * (int64_t)SCALE_US;
        qrnic_add(e, QRNIC_COUNTER_NP_CNP_SENT, qrnic_engine_port_active(e));
        trace_qrnic_cnp_tx(e->config.name, qp->number, qp->attr.dest_qpn);
        qrnic_notification_send(e, qp);
        qrnic_charge_to(e, before);
    }
}
