/*
 * qrnic engine: extended reliable connections: their SRQs
 *
 * An initiator is a requester, a target a responder that finds the SRQ in each
 * packet. InfiniBand specification, annex A14.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
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
    return qrnic_xrc_srq(e, qp, qrnic_responder_srqn(qp));
}

/*
 * A target does not hold the SRQs that it receives into: it may outlive the
 * process that they are of. Its next packet is refused, as no SRQ has that
 * number any more.
 */
void qrnic_xrc_srq_destroyed(QrnicEngine *e, const QrnicSrq *srq)
{
    for (uint32_t n = e->qps->table.first; n < e->qps->table.limit; n++) {
        QrnicQp *qp = e->qps->table.slot[n];

        if (qp && qp->ops->of_domain) {
            qrnic_responder_srq_destroyed(e, qp, srq->number);
        }
    }
}
