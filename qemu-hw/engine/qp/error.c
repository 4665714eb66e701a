/*
 * qrnic engine, layer qp: states that the device enters on its own
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Takes queue pairs to ERR and SQE after errors, and reports SQD drained.
 * Transports and complete.c call qrnic_qp_error() and qrnic_qp_send_error(). If
 * the asynchronous EQ is full, qp->owed_event keeps the event. The phase
 * REPORTS calls qrnic_qp_errors_process(), which sends pending events and takes
 * the queue pairs of a failed CQ to ERR. The members errors_at and errors_left
 * are the progress of this scan.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

/*
 * Largest number of table entries that one round scans after an error of a CQ
 */
#define ERROR_ENTRIES 4096

void qrnic_qp_error(QrnicEngine *e, QrnicQp *qp, uint8_t event,
                    uint8_t subtype)
{
    qrnic_context_now(e, qp);
    if (qp->state == QRNIC_QPS_ERR) {
        return;
    }
    if (qp->ops->failed) {
        qp->ops->failed(e, qp);
        return;
    }
    trace_qrnic_qp_error(e->config.name, qp->number,
                         qrnic_qp_state_name(qp->state), event, subtype);
    qp->state = QRNIC_QPS_ERR;
    qp->sq_draining = false;
    qrnic_timer_cancel(e, &qp->timer);
    qrnic_pace_restart(e, qp);
    qrnic_congestion_drop(e, qp);
    qrnic_notification_drop(e, qp);
    qrnic_page_faults_drop(e, qp);
    qrnic_piece_list_drop(qp);
    if (qp->ops->error_entered) {
        qp->ops->error_entered(e, qp);
    }
    if (event && qrnic_async_has_room(e)) {
        qrnic_event_async(e, event, subtype, qp->number, 0);
    } else if (event) {
        qp->owed_event = event;
        qp->owed_subtype = subtype;
        e->qps->errors_left = e->qps->table.limit;
    }
    qrnic_schedule(e, qp);
}

void qrnic_qp_send_error(QrnicEngine *e, QrnicQp *qp)
{
    trace_qrnic_qp_error(e->config.name, qp->number,
                         qrnic_qp_state_name(qp->state), 0, 0);
    qp->state = QRNIC_QPS_SQE;
    qp->sq_draining = false;
    qrnic_schedule(e, qp);
}

void qrnic_qp_check_drained(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->state != QRNIC_QPS_SQD || !qp->sq_draining ||
        !qrnic_send_idle(qp)) {
        return;
    }
    trace_qrnic_qp_drained(e->config.name, qp->number,
                           qp->attr.sq_drained_notify);
    qp->sq_draining = false;
    if (qp->attr.sq_drained_notify) {
        qrnic_event_async(e, QRNIC_EVENT_SQ_DRAINED, 0, qp->number, 0);
    }
}

bool qrnic_qp_errors_pending(const QrnicEngine *e)
{
    return (e->queue->cq_failed || e->qps->errors_left) &&
           qrnic_async_has_room(e);
}

static void errors_of(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->owed_event) {
        qrnic_event_async(e, qp->owed_event, qp->owed_subtype, qp->number, 0);
        qp->owed_event = 0;
    }
    if (((qp->send_cq && qp->send_cq->error) ||
         (qp->recv_cq && qp->recv_cq->error) ||
         (qp->srq && qp->srq->tags &&
          qrnic_tag_list_cq(e, qp->srq->tags)->error)) &&
        qp->state != QRNIC_QPS_RESET && qp->state != QRNIC_QPS_ERR) {
        qrnic_qp_error(e, qp, QRNIC_EVENT_QP_FATAL, QRNIC_WC_GENERAL_ERR);
    }
    /*
     * The event LAST_WQE_REACHED is still pending, because the EQ was full
     * during the flush.
     */
    if (qp->state == QRNIC_QPS_ERR && !qp->last_wqe_reported &&
        qrnic_qp_takes_wqes(qp) && !qrnic_qp_has_rq(qp)) {
        qrnic_schedule(e, qp);
    }
}

/*
 * Scans the queue pairs. A CQ in error accepts no completion, so all queue
 * pairs that report to the CQ go to ERR. If the asynchronous EQ is full, the
 * scan continues after software has consumed events.
 */
void qrnic_qp_errors_process(QrnicEngine *e)
{
    QrnicQps *p = e->qps;
    unsigned budget = ERROR_ENTRIES;

    if (e->queue->cq_failed) {
        e->queue->cq_failed = false;
        p->errors_left = p->table.limit;
    }
    for (; p->errors_left && budget && qrnic_async_has_room(e); budget--) {
        QrnicQp *qp = p->table.slot[p->errors_at];

        p->errors_at = (p->errors_at + 1) % p->table.limit;
        p->errors_left--;
        if (qp) {
            errors_of(e, qp);
        }
    }
}
