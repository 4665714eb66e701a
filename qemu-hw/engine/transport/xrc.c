/*
 * qrnic engine: extended reliable connections: their SRQs
 *
 * An initiator is a requester, a target a responder that finds the SRQ in each
 * packet. InfiniBand specification, annex A14.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/rc.h"

static bool is_zero(const QrnicTranslation *t)
{
    return !t->root && !t->levels && !t->page_shift && !t->offset;
}

QrnicResult qrnic_xrc_target_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    /* It has no queue, and so nothing that belongs to one. */
    const struct { bool zero; uint32_t offset; } rules[] = {
        { !in->sq_log_size, QRNIC_QP_CTX_SQ_LOG_SIZE_OFFSET },
        { !in->rq_log_size, QRNIC_QP_CTX_RQ_LOG_SIZE_OFFSET },
        { !in->rq_log_stride, QRNIC_QP_CTX_RQ_LOG_STRIDE_OFFSET },
        { !in->pd, QRNIC_QP_CTX_PD_OFFSET },
        { !in->send_cq, QRNIC_QP_CTX_SEND_CQ_OFFSET },
        { !in->recv_cq, QRNIC_QP_CTX_RECV_CQ_OFFSET },
        { !in->db_page, QRNIC_QP_CTX_DB_PAGE_OFFSET },
        { !in->srq, QRNIC_QP_CTX_SRQ_OFFSET },
        { !in->sq_record, QRNIC_QP_CTX_SQ_RECORD_OFFSET },
        { !in->rq_record, QRNIC_QP_CTX_RQ_RECORD_OFFSET },
        { is_zero(&in->sq), QRNIC_QP_CTX_SQ_OFFSET },
        { is_zero(&in->rq), QRNIC_QP_CTX_RQ_OFFSET },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(rules); i++) {
        if (!rules[i].zero) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM, rules[i].offset);
        }
    }
    if (!qrnic_xrcd_get(e, in->xrcd)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_XRCD_OFFSET);
    }
    return qrnic_ok(0);
}

QrnicSrq *qrnic_xrc_srq(QrnicEngine *e, const QrnicQp *qp, uint32_t srqn)
{
    QrnicSrq *srq = qrnic_srq_get(e, srqn);

    return srq && qp->xrcd && srq->ctx.xrcd == qp->xrcd->number ? srq : NULL;
}

QrnicSrq *qrnic_xrc_target_srq(QrnicEngine *e, const QrnicQp *qp)
{
    return qrnic_xrc_srq(e, qp, qp->responder->srqn);
}

/*
 * A target does not hold the SRQs that it receives into: it may outlive the
 * process that they are of. Its next packet is refused, as no SRQ has that
 * number any more.
 */
void qrnic_xrc_srq_destroyed(QrnicEngine *e, const QrnicSrq *srq)
{
    for (uint32_t n = e->pairs->qps.first; n < e->pairs->qps.limit; n++) {
        QrnicQp *qp = e->pairs->qps.slot[n];
        QrnicInbound *in;

        if (!qp || !qp->ops->of_domain) {
            continue;
        }
        in = &qp->responder->in;
        if (in->recv && in->recv->srqn == srq->number) {
            trace_qrnic_xrc_cut_short(e->config.name, qp->number, srq->number,
                                      in->recv->index);
            qrnic_recv_wqe_drop(e, &in->recv);
        }
        if (qp->responder->srqn == srq->number) {
            qp->responder->srqn = 0;
        }
    }
}
