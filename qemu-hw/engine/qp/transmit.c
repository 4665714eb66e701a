/*
 * qrnic engine, layer qp: transmit loop of types without responses
 *
 * Sends the WQEs of UC, UD, GSI and raw packet queue pairs. The scheduler calls
 * qrnic_transmit() through QrnicQpOps.transmit; QrnicQpOps.send of the type
 * sends the packets. A WQE is complete when its last frame is sent. Until then,
 * or until the queue is flushed, qp->under_way holds a WQE that is sent in
 * part.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/qp/qp_private.h"

/* Sends packets of a WQE. Returns true if the WQE is complete, with *status. */
static bool send_wqe(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                     uint8_t *status, uint8_t *syndrome)
{
    *status = QRNIC_WC_SUCCESS;
    *syndrome = QRNIC_SYN_NONE;
    return wqe->opcode == QRNIC_WQE_NOP ||
           qp->ops->send(e, qp, wqe, status, syndrome);
}

/*
 * Completes a WQE. After an error a type with SQE flushes the rest of the SQ
 * and continues to receive (10.3.1.6). Other types go to ERR.
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

/*
 * Returns the list in which to wait before the WQE is sent. A datagram leads to
 * the address in the WQE, other packets along the path of the queue pair.
 */
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

/* Copies the WQE to a buffer, because its remaining packets are sent later. */
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
