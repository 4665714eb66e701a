/*
 * qrnic engine: sending by queue pairs that wait for no answer: a message is
 * complete when its last frame has gone
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/qp/qp_private.h"

/* Sends of a WQE what may go now. True: it is complete, with *status. */
static bool send_wqe(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                     uint8_t *status, uint8_t *syndrome)
{
    *status = QRNIC_WC_SUCCESS;
    *syndrome = QRNIC_SYN_NONE;
    return wqe->opcode == QRNIC_WQE_NOP ||
           qp->ops->send(e, qp, wqe, status, syndrome);
}

/*
 * Where a send that failed takes the SQ to SQE, what is behind it is flushed,
 * and receiving goes on (10.3.1.6); else the queue pair goes to ERR.
 */
static void complete(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                     uint8_t status, uint8_t syndrome)
{
    bool failed = status != QRNIC_WC_SUCCESS;

    if (failed && qp->ops->has_sqe) {
        qrnic_qp_send_error(e, qp);
    }
    qrnic_complete_send(e, qp, wqe, status, syndrome, 0);
    if (failed && !qp->ops->has_sqe) {
        qrnic_qp_error(e, qp, 0, 0);
    }
}

/* What it sends leads where its path does, or the address in it. */
static QrnicReadyList wqe_wait(QrnicEngine *e, QrnicQp *qp,
                               const QrnicSendWqe *wqe)
{
    if (wqe->opcode == QRNIC_WQE_NOP ||
        qrnic_is_local_operation(wqe->opcode)) {
        return QRNIC_LIST_READY;
    }
    return qp->ops->is_datagram ? qrnic_address_wait(e, &wqe->datagram.av) :
                                  qrnic_path_wait(e, qp);
}

/* The WQE on the stack is one to go on with. */
static void keep(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe)
{
    qp->under_way = qrnic_buffer_get(e, sizeof(*wqe));
    *qp->under_way = *wqe;
}

QrnicReadyList qrnic_transmit(QrnicEngine *e, QrnicQp *qp, unsigned budget)
{
    while (budget-- && !qrnic_budget_spent(e)) {
        uint8_t status, syndrome;
        const QrnicSendWqe *wqe;
        QrnicSendWqe taken;
        QrnicReadyList wait;

        if (qrnic_sq_flush_due(qp)) {
            if (!qrnic_sq_flush_one(e, qp)) {
                return QRNIC_LIST_NONE;
            }
            continue;
        }
        if (qrnic_page_fault_waits(qp, QRNIC_SIDE_SEND)) {
            return QRNIC_LIST_NONE;
        }
        wqe = qp->under_way;
        if (qp->state != QRNIC_QPS_RTS &&
            !(qp->state == QRNIC_QPS_SQD && wqe)) {
            qrnic_qp_check_drained(e, qp);
            return QRNIC_LIST_NONE;
        }
        if ((wqe || qrnic_sq_pending(e, qp, false)) &&
            qrnic_pace_wait(e, qp)) {
            return QRNIC_LIST_NONE;
        }
        if (!wqe) {
            wqe = &taken;
            switch (qrnic_sq_take(e, qp, &taken, &status, &syndrome)) {
            case QRNIC_TAKE_EMPTY:
            case QRNIC_TAKE_BROKEN:
                return QRNIC_LIST_NONE;
            case QRNIC_TAKE_ERROR:
                complete(e, qp, wqe, status, syndrome);
                continue;
            case QRNIC_TAKE_OK:
                break;
            }
        }
        wait = wqe_wait(e, qp, wqe);
        if (wait != QRNIC_LIST_READY) {
            if (wqe == &taken) {
                qrnic_sq_give_back(e, qp, wqe);
            }
            return wait;
        }
        if (send_wqe(e, qp, wqe, &status, &syndrome)) {
            complete(e, qp, wqe, status, syndrome);
            qrnic_transmit_drop(e, qp);
        } else if (!qp->under_way) {
            keep(e, qp, wqe);
        }
    }
    return QRNIC_LIST_READY;
}
