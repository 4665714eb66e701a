/*
 * qrnic engine, transport: the responder decides on each request by its PSN
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * rc_receive() calls qrnic_responder_receive(). The expected request is
 * executed, a request below the expected PSN is a duplicate, and one above it
 * is buffered or dropped. Replies become pending in reply.c. The scheduler
 * calls qrnic_responder_go_on() to execute buffered packets, one in each call.
 * The expected PSN and the state of the message are in qp->responder between
 * calls.
 *
 * InfiniBand specification, 9.7.3 and 9.7.5.2.
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/transport/rc/responder/responder.h"
#include "engine/transport/shared/shared.h"

/* Returns true if the opcode may follow the previous one (9.7.4.1.2). */
static bool sequence_ok(const QrnicQp *qp, const QrnicPacket *pkt)
{
    const QrnicResponder *r = qp->responder;
    uint32_t flags = pkt->info->flags;

    if (r->more && !qrnic_is_adaptive(qp, pkt)) {
        return false;
    }
    if (flags & QRNIC_OPF_START) {
        return r->in.message == QRNIC_IDLE;
    }
    return r->in.message == (flags & QRNIC_OPF_SEND ? QRNIC_IN_SEND :
                             QRNIC_IN_WRITE);
}

/*
 * Returns true if the XRCETH names an SRQ of the domain, the same one in all
 * packets of a message.
 */
static bool xrceth_ok(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;

    if (!qp->ops->of_domain) {
        return true;
    }
    /* After an RNR NAK only the same request is valid. */
    if (r->in.recv && r->in.recv->srqn != pkt->t.srqn) {
        return false;
    }
    if (!qrnic_xrc_srq(e, qp, pkt->t.srqn) ||
        (!(pkt->info->flags & QRNIC_OPF_START) && pkt->t.srqn != r->srqn)) {
        trace_qrnic_responder_xrceth(e->config.name, qp->number, pkt->t.psn,
                                     qp->xrcd->number, pkt->t.srqn);
        return false;
    }
    r->srqn = pkt->t.srqn;
    return true;
}

static void receive_expected(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt, bool placed)
{
    QrnicResponder *r = qp->responder;
    uint32_t flags = pkt->info->flags, psns = 1;
    bool nak = r->replies & QRNIC_REPLY_NAK, done;

    /*
     * A pending RNR NAK is canceled, because the request has been
     * retransmitted. A pending NAK of a sequence gap stays, because packets
     * were dropped and only the NAK makes the peer retransmit them (9.7.5.2.2).
     */
    qrnic_responder_state_set(e, qp, QRNIC_IN_SEQUENCE);
    if (r->nak != QRNIC_NAK_SEQUENCE) {
        qrnic_replies_cancel(e, qp, QRNIC_REPLY_NAK);
    }
    if (!sequence_ok(qp, pkt) || !xrceth_ok(e, qp, pkt)) {
        qrnic_refuse_invalid(e, qp);
        return;
    }
    done = qrnic_responder_execute(e, qp, pkt, placed, &psns);
    /* The completion may have failed the queue pair. */
    if (!done || qrnic_responder_has_failed(r)) {
        return;
    }
    r->epsn = qrnic_psn_add(r->epsn, psns);
    if (qrnic_psn_diff(r->dropped_psn, r->epsn) < 0) {
        /*
         * The NAK is canceled, because the dropped packets have been
         * retransmitted.
         */
        qrnic_replies_cancel(e, qp, QRNIC_REPLY_NAK);
    } else if (r->replies & QRNIC_REPLY_NAK) {
        qrnic_responder_state_set(e, qp, QRNIC_RETRY_REQUESTED);
    }
    if (flags & QRNIC_OPF_END && !r->more) {
        r->msn = (r->msn + 1) & 0xffffff;
    }
    if (flags & QRNIC_OPF_KEPT) {
        return;
    }
    /* A canceled NAK has replaced an ACK, so the ACK is sent here. */
    if (pkt->t.ack_req || (nak && !(r->replies & QRNIC_REPLY_NAK))) {
        qrnic_reply_ack(e, qp, pkt->t.psn);
    } else if (r->replies & QRNIC_REPLY_ACK) {
        r->ack_psn = pkt->t.psn;
    }
}

/*
 * Reports the sequence gap before a packet. With adaptive routing the missing
 * packet may only be late, so the report waits for some time.
 */
static void gap_tell(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;

    if (!(qp->attr.options & QRNIC_QPO_ADAPTIVE_ROUTING)) {
        qrnic_reply_sack(e, qp);
    } else if (!r->gap_deadline) {
        r->gap_deadline = qrnic_now(e) + QRNIC_ADAPTIVE_GAP_TIME * SCALE_US;
        qrnic_timer_advance(e, &qp->timer, r->gap_deadline);
    }
}

void qrnic_responder_gap_timer(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;

    qrnic_reorder_timer(e, qp);
    if (!r->gap_deadline) {
        return;
    }
    if (qrnic_now(e) < r->gap_deadline) {
        qrnic_timer_advance(e, &qp->timer, r->gap_deadline);
        return;
    }
    r->gap_deadline = 0;
    if (qp->attr.options & qp->peer_options & QRNIC_QPO_SELECTIVE_REPEAT) {
        qrnic_reply_sack(e, qp);
    } else if (r->state == QRNIC_IN_SEQUENCE) {
        /* Only one NAK is sent for each sequence gap (9.7.5.2.2). */
        qrnic_reply_nak(e, qp, QRNIC_NAK_SEQUENCE);
    }
}

/*
 * Executes the expected request. Buffered packets whose PSN lies inside a read
 * response are dropped. If a sequence gap remains, the requester is sent a
 * SACK.
 */
static void receive_in_order(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt, bool placed)
{
    QrnicResponder *r = qp->responder;
    uint32_t psn = r->epsn;

    receive_expected(e, qp, pkt, placed);
    if (r->reorder) {
        qrnic_reorder_drop(e, qp, psn, qrnic_psn_distance(psn, r->epsn));
    }
    if (r->epsn != psn) {
        r->gap_deadline = 0;
    }
    if (r->reorder) {
        if (r->epsn != psn) {
            r->reorder->progress_at = qrnic_now(e);
        }
        if (!qrnic_reorder_has(r->reorder, r->epsn)) {
            gap_tell(e, qp);
        }
        qrnic_schedule(e, qp);
    }
}

bool qrnic_responder_go_on(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;
    QrnicBuffered *buffered;
    QrnicPacket pkt;

    buffered = qrnic_responder_has_failed(r) ? NULL :
           qrnic_reorder_take(e, qp, r->epsn);
    if (!buffered) {
        return false;
    }
    pkt = (QrnicPacket) {
        .t = buffered->t, .info = buffered->info, .payload = buffered->payload,
        .payload_len = buffered->payload_len,
    };
    receive_in_order(e, qp, &pkt, buffered->placed);
    qrnic_buffered_free(e, buffered);
    return true;
}

/*
 * Returns true if packets out of order are buffered: both ends have selective
 * repeat, or both have adaptive routing.
 */
static bool keeps(const QrnicQp *qp, const QrnicPacket *pkt)
{
    return (qp->attr.options & QRNIC_QPO_SELECTIVE_REPEAT &&
            pkt->t.mark & QRNIC_MARK_SELECTIVE) ||
           (qp->attr.options & QRNIC_QPO_ADAPTIVE_ROUTING &&
            pkt->t.mark & QRNIC_MARK_PLACES);
}

static bool keep_ahead(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                       uint32_t ahead)
{
    QrnicResponder *r = qp->responder;
    bool there = qrnic_reorder_has(r->reorder, pkt->t.psn), placed, early;

    if (!keeps(qp, pkt) || ahead >= QRNIC_WINDOW) {
        return false;
    }
    placed = !there && qrnic_is_adaptive(qp, pkt) &&
             qrnic_responder_place(e, qp, pkt);
    early = !there && pkt->info->flags & QRNIC_OPF_ENCAPSULATED &&
            qrnic_reorder_may_execute(e) &&
            qrnic_encapsulated_is_next(e, qp, pkt);
    if (!qrnic_reorder_put(e, qp, pkt, placed || early)) {
        return false;
    }
    /*
     * The packet is delivered only after it is recorded as arrived, because it
     * must not be delivered twice.
     */
    if (early) {
        qrnic_add(e, QRNIC_COUNTER_RX_INNER_EARLY, 1);
        qrnic_encapsulated_receive(e, qp, pkt);
    }
    gap_tell(e, qp);
    return true;
}

static void receive_duplicate(QrnicEngine *e, QrnicQp *qp,
                              const QrnicPacket *pkt)
{
    qrnic_add(e, QRNIC_COUNTER_DUPLICATE_REQUESTS, 1);
    if (pkt->info->flags & QRNIC_OPF_KEPT) {
        if (qrnic_resource_repeat(e, qp, pkt)) {
            qrnic_reply_rnr(e, qp);
        }
    } else if (pkt->t.ack_req) {
        /*
         * The ACK has the PSN of the duplicate. The newest PSN would
         * acknowledge reads between them, too, whose response may be lost.
         */
        qrnic_reply_ack(e, qp, pkt->t.psn);
    }
}

void qrnic_responder_receive(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;
    int32_t ahead = qrnic_psn_diff(pkt->t.psn, r->epsn);
    bool tell;

    if (r->state == QRNIC_FATAL_NAK_SENT) {
        qrnic_reply_fatal_again(e, qp);
        return;
    }
    if (r->state == QRNIC_FATAL_NAK_PENDING) {
        qrnic_add(e, QRNIC_COUNTER_RX_DROP_QP_STATE, 1);
        return;
    }
    qrnic_inbound_arrived(e, qp);
    r->latest_psn = pkt->t.psn;
    r->latest_transmission = QRNIC_MARKED_TRANSMISSION(pkt->t.mark);
    if (ahead == 0 && !qrnic_reorder_has(r->reorder, r->epsn)) {
        receive_in_order(e, qp, pkt, false);
    } else if (ahead < 0) {
        receive_duplicate(e, qp, pkt);
    } else if (ahead == 0) {
        qrnic_add(e, QRNIC_COUNTER_DUPLICATE_REQUESTS, 1);
        qrnic_reorder_compare(e, qp, pkt);
    } else {
        qrnic_add(e, QRNIC_COUNTER_OUT_OF_SEQUENCE, 1);
        if (keep_ahead(e, qp, pkt, ahead)) {
            return;
        }
        /* Only one NAK is sent for each sequence gap (9.7.5.2.2). */
        tell = r->state == QRNIC_IN_SEQUENCE ||
               qrnic_rnr_is_over(e, r, pkt->t.psn);
        if (r->state == QRNIC_IN_SEQUENCE ||
            qrnic_psn_diff(pkt->t.psn, r->dropped_psn) > 0) {
            r->dropped_psn = pkt->t.psn;
        }
        if (tell) {
            trace_qrnic_responder_gap(e->config.name, qp->number, r->epsn,
                                      pkt->t.psn);
            qrnic_reply_nak(e, qp, QRNIC_NAK_SEQUENCE);
        }
    }
}

void qrnic_responder_doorbell(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;

    if (qp->state == QRNIC_QPS_ERR) {
        qrnic_schedule(e, qp);
    } else if (r->replies & QRNIC_REPLY_CREDITS &&
               !qrnic_responder_has_failed(r) && qrnic_rq_posted(e, qp, true)) {
        /* A separate ACK reports the credits to the requester (9.7.7.2.5). */
        qrnic_replies_cancel(e, qp, QRNIC_REPLY_CREDITS);
        qrnic_reply_ack(e, qp, qrnic_psn_add(r->epsn, -1));
    }
}

bool qrnic_responder_flush_one(QrnicEngine *e, QrnicQp *qp)
{
    /*
     * Buffered packets are dropped, because the queue pair executes no more
     * requests.
     */
    qrnic_reorder_cleanup(e, qp);
    return qrnic_inbound_flush(e, qp, &qp->responder->in);
}
