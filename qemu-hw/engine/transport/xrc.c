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

QrnicResult qrnic_xrc_target_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    QrnicResult result = qrnic_qp_no_queues_check(e, in);

    if (result.status != QRNIC_ST_OK) {
        return result;
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
