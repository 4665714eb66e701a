/*
 * qrnic engine, layer transport: SRQs of extended reliable connections
 *
 * An XRC initiator is a requester, and a target is a responder that finds the
 * SRQ in each packet; both are in rc/. The responder calls qrnic_xrc_srq(), and
 * DESTROY_SRQ calls qrnic_xrc_srq_destroyed(). No state is kept here.
 * InfiniBand specification, annex A14.
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
 * Ends the use of an SRQ by all targets. A target does not count as a user of
 * an SRQ, because the target may outlive the process that owns the SRQ. The
 * next packet of the target for this SRQ is rejected.
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
