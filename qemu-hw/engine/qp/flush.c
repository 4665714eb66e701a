/*
 * qrnic engine, layer qp: flush of work queues
 *
 * Completes WQEs as flushed: both queues in ERR, the SQ in SQE. The scheduler
 * calls qrnic_qp_flush() for a queue pair in ERR, transmit.c flushes the SQ in
 * SQE. Each call completes at most budget WQEs, and the queue pair is scheduled
 * again while WQEs remain. WQEs posted later in ERR are flushed when their
 * doorbell is rung.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/qp/qp_private.h"

void qrnic_transmit_drop(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_buffer_put(e, qp->under_way, sizeof(*qp->under_way));
    qp->under_way = NULL;
    qrnic_piece_list_drop(qp);
}

/*
 * Completes the WQE that is sent in part as flushed. Returns false if there is
 * none.
 */
static bool transmit_flush(QrnicEngine *e, QrnicQp *qp)
{
    if (!qp->under_way) {
        return false;
    }
    qrnic_complete_send(e, qp, qp->under_way, QRNIC_WC_WR_FLUSH_ERR,
                        QRNIC_SYN_NONE, 0);
    qrnic_transmit_drop(e, qp);
    return true;
}

bool qrnic_sq_flush_one(QrnicEngine *e, QrnicQp *qp)
{
    uint8_t status, syndrome;
    QrnicSendWqe wqe;

    if (!qrnic_qp_has_sq(qp)) {
        return false;
    }
    /*
     * The contents of the WQE are ignored, because even an invalid WQE is
     * flushed.
     */
    if (qrnic_sq_take(e, qp, &wqe, &status, &syndrome) == QRNIC_TAKE_EMPTY) {
        return false;
    }
    qrnic_complete_send(e, qp, &wqe, QRNIC_WC_WR_FLUSH_ERR, QRNIC_SYN_NONE, 0);
    return true;
}

bool qrnic_sq_flush_due(QrnicQp *qp)
{
    qp->sq_flush_owed = qrnic_sq_flush_is_owed(qp);
    return qp->state == QRNIC_QPS_SQE || qp->sq_flush_owed;
}

void qrnic_sq_flush_rest(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_sq_pending(e, qp, true);
    qp->sq_rung = false;
    qp->sq_flush_end = qp->sq.producer;
    qp->sq_flush_owed = true;
}

static bool flush_rq_one(QrnicEngine *e, QrnicQp *qp)
{
    uint8_t status, syndrome;
    QrnicRecvWqe wqe;
    QrnicCqe cqe;

    if (!qrnic_qp_takes_wqes(qp)) {
        return false;
    }
    if (!qrnic_qp_has_rq(qp)) {
        /*
         * WQEs of the SRQ are not flushed, because they remain for other queue
         * pairs (10.2.9.3).
         */
        if (!qp->last_wqe_reported && !qrnic_async_has_room(e)) {
            e->qps->errors_left = e->qps->table.limit;
        } else if (!qp->last_wqe_reported) {
            qp->last_wqe_reported = true;
            qrnic_event_async(e, QRNIC_EVENT_LAST_WQE_REACHED, 0, qp->number,
                              0);
        }
        return false;
    }
    if (qrnic_rq_take(e, qp, &wqe, &status, &syndrome) == QRNIC_TAKE_EMPTY) {
        return false;
    }
    cqe = (QrnicCqe) {
        .index = wqe.index,
        .qpn = qp->number,
        .status = QRNIC_WC_WR_FLUSH_ERR,
        .opcode = QRNIC_CQE_RECV,
    };
    qrnic_stream_flush(e, &wqe, &cqe);
    qrnic_complete_recv(e, qp, &cqe);
    return true;
}

bool qrnic_qp_flush(QrnicEngine *e, QrnicQp *qp, unsigned budget)
{
    const QrnicQpOps *ops = qp->ops;

    while (budget--) {
        if (!transmit_flush(e, qp) &&
            !(ops->flush_send && ops->flush_send(e, qp)) &&
            !qrnic_sq_flush_one(e, qp) &&
            !(ops->flush_receive && ops->flush_receive(e, qp)) &&
            !flush_rq_one(e, qp)) {
            return false;
        }
    }
    return true;
}
