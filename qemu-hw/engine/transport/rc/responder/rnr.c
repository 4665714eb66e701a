/*
 * qrnic engine, transport: the responder decides on RNR NAKs
 *
 * An RNR NAK makes the requester retransmit later. For each request that needs
 * a receive WQE, or has met an absent page, execute.c calls these functions.
 * Then reply.c sends the RNR NAK, and the request stays expected. For later
 * packets sequence.c calls qrnic_rnr_is_over(). InfiniBand specification,
 * 9.7.5.2.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/responder/responder.h"

/* Makes an RNR NAK pending. Always returns false. */
static bool retry_later(QrnicEngine *e, QrnicQp *qp, uint8_t timer)
{
    trace_qrnic_responder_rnr(e->config.name, qp->number, qp->responder->epsn,
                              timer);
    qp->responder->dropped_psn = qp->responder->epsn;
    qrnic_reply_nak(e, qp, QRNIC_AETH_RNR | timer);
    return false;
}

bool qrnic_rnr_take_wqe(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;
    bool tagged = qp->srq && qp->srq->tags &&
                  pkt->info->flags & QRNIC_OPF_SEND;

    /*
     * The first transmission of this request has consumed the WQE and then met
     * an absent page. The retransmission uses the same WQE.
     */
    if (r->in.recv) {
        return true;
    }
    switch (tagged ? qrnic_tagged_take(e, qp, &r->in, pkt) :
                     qrnic_inbound_take(e, qp, &r->in)) {
    case QRNIC_TAKE_EMPTY:
        /*
         * The RNR NAK reports to the requester that no receive WQE is posted.
         * An ACK must follow when software posts a WQE.
         */
        if (qrnic_qp_has_credits(qp)) {
            qrnic_reply_credits(e, qp);
        } else {
            qrnic_replies_cancel(e, qp, QRNIC_REPLY_CREDITS);
        }
        return retry_later(e, qp, qp->attr.min_rnr_timer);
    case QRNIC_TAKE_ERROR:
        return qrnic_refuse_request(e, qp, QRNIC_NAK_OPERATION, 0, 0);
    case QRNIC_TAKE_BROKEN:
        return qrnic_refuse_operation(e, qp);
    case QRNIC_TAKE_OK:
        break;
    }
    return true;
}

bool qrnic_rnr_page_fault(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                          enum qrnic_syndrome syndrome,
                          const QrnicFault *fault)
{
    if (!qrnic_page_fault(e, qp, QRNIC_SIDE_RECV, syndrome, fault)) {
        return false;
    }
    /*
     * The retransmitted packet begins the message again, so no message is in
     * progress.
     */
    if (pkt->info->flags & QRNIC_OPF_START) {
        qp->responder->in.message = QRNIC_IDLE;
    }
    retry_later(e, qp, qrnic_rnr_page_timer(qp));
    return true;
}

/*
 * Returns true if the requester must get another NAK. Packets behind an RNR NAK
 * were in flight before the NAK arrived. If such a packet arrives again after
 * the time of the NAK, the requester has retransmitted, so the expected packet
 * is lost.
 */
bool qrnic_rnr_is_over(QrnicEngine *e, const QrnicResponder *r, uint32_t psn)
{
    return (r->nak & QRNIC_AETH_TYPE_MASK) == QRNIC_AETH_RNR &&
           !(r->replies & QRNIC_REPLY_NAK) &&
           qrnic_now(e) >= r->rnr_until &&
           qrnic_psn_diff(psn, r->dropped_psn) <= 0;
}
