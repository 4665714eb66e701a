/*
 * qrnic engine, layer qp: completions
 *
 * Builds CQEs and appends them to CQs. Requesters, qrnic_transmit() and the
 * flush complete send WQEs; the files of transport/ and the flush complete
 * receive WQEs. Nothing is kept between calls, except sq.completed: software
 * may reuse the slots before it. If the CQ is in error, the queue pair goes to
 * ERR.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

static void complete(QrnicEngine *e, QrnicQp *qp, QrnicCq *cq, QrnicCqe *cqe,
                     const uint8_t *data)
{
    trace_qrnic_complete(e->config.name, qp->number, cq->number, cqe->index,
                         qrnic_wc_status_name(cqe->status), cqe->opcode,
                         cqe->byte_len);
    if (!qrnic_cq_push(e, cq, cqe, data)) {
        qrnic_qp_error(e, qp, QRNIC_EVENT_QP_FATAL, QRNIC_WC_GENERAL_ERR);
    }
}

static uint8_t cqe_opcode(uint8_t wqe_opcode)
{
    switch (wqe_opcode) {
    case QRNIC_WQE_SEND_IMM:
    case QRNIC_WQE_SEND_INV:
        return QRNIC_CQE_SEND;
    case QRNIC_WQE_RDMA_WRITE_IMM:
        return QRNIC_CQE_RDMA_WRITE;
    default:
        return wqe_opcode;      /* the other opcodes have equal numbers */
    }
}

void qrnic_complete_sq(QrnicEngine *e, QrnicQp *qp, uint32_t index,
                       uint32_t wqebbs, uint8_t opcode, uint8_t flags,
                       uint8_t status, uint8_t syndrome, uint32_t byte_len)
{
    QrnicCqe cqe = {
        .index = index,
        .qpn = qp->number,
        .byte_len = byte_len,
        .status = status,
        .syndrome = syndrome,
        .opcode = cqe_opcode(opcode),
    };

    qp->sq.completed = index + wqebbs;
    if (flags & QRNIC_WQEF_SIGNALED || status != QRNIC_WC_SUCCESS) {
        complete(e, qp, qp->send_cq, &cqe, NULL);
    }
}

void qrnic_complete_send(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                         uint8_t status, uint8_t syndrome, uint32_t byte_len)
{
    qrnic_complete_sq(e, qp, wqe->index, wqe->wqebbs, wqe->opcode, wqe->flags,
                      status, syndrome, byte_len);
}

/*
 * Returns the CQ of a receive completion. An SRQ can have a CQ of its own (XRC,
 * tag matching).
 */
static QrnicCq *recv_cq(QrnicEngine *e, QrnicQp *qp, const QrnicCqe *cqe)
{
    QrnicCq *cq = qrnic_srq_cq(e, cqe->srqn);

    return cq ? cq : qp->recv_cq;
}

void qrnic_complete_recv(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe)
{
    complete(e, qp, recv_cq(e, qp, cqe), cqe, NULL);
}

void qrnic_complete_tagged(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe,
                           const uint8_t *header)
{
    complete(e, qp, recv_cq(e, qp, cqe), cqe, header);
}

void qrnic_complete_recv_inline(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe,
                                const uint8_t *data)
{
    trace_qrnic_recv_inline(e->config.name, qp->number, cqe->index,
                            cqe->byte_len);
    cqe->flags |= QRNIC_CQEF_INLINE;
    complete(e, qp, qp->recv_cq, cqe, data);
}
