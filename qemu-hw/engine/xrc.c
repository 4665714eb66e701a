/*
 * qrnic engine: extended reliable connections: domains, and their SRQs
 *
 * An initiator is a requester, a target a responder that finds the SRQ in each
 * packet. InfiniBand specification, annex A14.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport.h"

QrnicResult qrnic_xrcd_alloc(QrnicEngine *e)
{
    QrnicXrcd *xrcd;

    if (!(e->config.capabilities & QRNIC_CAP_XRC)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    xrcd = g_new0(QrnicXrcd, 1);
    if (!qrnic_table_insert(&e->xrcds, xrcd, &xrcd->number)) {
        g_free(xrcd);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    trace_qrnic_xrcd_alloc(e->config.name, xrcd->number);
    return qrnic_ok(xrcd->number);
}

QrnicResult qrnic_xrcd_free(QrnicEngine *e, uint32_t number)
{
    QrnicXrcd *xrcd = qrnic_table_get(&e->xrcds, number);

    if (!xrcd) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (xrcd->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_xrcd_free(e->config.name, number);
    g_free(qrnic_table_remove(&e->xrcds, number));
    return qrnic_ok(0);
}

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
    if (!qrnic_table_get(&e->xrcds, in->xrcd)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_XRCD_OFFSET);
    }
    return qrnic_ok(0);
}

QrnicResult qrnic_xrc_srq_check(QrnicEngine *e, const QrnicSrqCtx *in)
{
    if (!in->xrcd) {
        return in->cq ? qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                     QRNIC_SRQ_CTX_CQ_OFFSET) : qrnic_ok(0);
    }
    if (!(e->config.capabilities & QRNIC_CAP_XRC)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_SRQ_CTX_XRCD_OFFSET);
    }
    if (!qrnic_table_get(&e->xrcds, in->xrcd)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_SRQ_CTX_XRCD_OFFSET);
    }
    if (!qrnic_table_get(&e->cqs, in->cq)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_SRQ_CTX_CQ_OFFSET);
    }
    return qrnic_ok(0);
}

QrnicSrq *qrnic_xrc_srq(QrnicEngine *e, const QrnicQp *qp, uint32_t srqn)
{
    QrnicSrq *srq = qrnic_table_get(&e->srqs, srqn);

    return srq && qp->xrcd && srq->ctx.xrcd == qp->xrcd->number ? srq : NULL;
}

QrnicSrq *qrnic_qp_srq(QrnicEngine *e, const QrnicQp *qp)
{
    return qp->type == QRNIC_QPT_XRC_TGT ?
           qrnic_xrc_srq(e, qp, qp->responder->srqn) : qp->srq;
}

QrnicCq *qrnic_xrc_recv_cq(QrnicEngine *e, uint32_t srqn)
{
    const QrnicSrq *srq = qrnic_table_get(&e->srqs, srqn);

    return qrnic_table_get(&e->cqs, srq->ctx.cq);
}

/*
 * A target does not hold the SRQs that it receives into: it may outlive the
 * process that they are of. Its next packet is refused, as no SRQ has that
 * number any more.
 */
void qrnic_xrc_srq_destroyed(QrnicEngine *e, const QrnicSrq *srq)
{
    for (uint32_t n = e->qps.first; n < e->qps.limit; n++) {
        QrnicQp *qp = e->qps.slot[n];

        if (!qp || qp->type != QRNIC_QPT_XRC_TGT ||
            qp->responder->srqn != srq->number) {
            continue;
        }
        if (qp->responder->recv_valid) {
            trace_qrnic_xrc_cut_short(e->config.name, qp->number, srq->number,
                                      qp->responder->recv.index);
        }
        qp->responder->recv_valid = false;
        qp->responder->srqn = 0;
    }
}
