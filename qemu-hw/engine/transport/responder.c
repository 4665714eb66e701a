/*
 * qrnic engine: the responder of a reliable connection
 *
 * Executes requests as they arrive and answers from the scheduler, in the
 * order of the PSNs. InfiniBand specification, 9.7.3 to 9.7.5 and 9.9.3.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/transport/rc/rc.h"

/*
 * How long a fatal NAK waits for a wire that takes nothing. The other end has
 * timeouts of its own; this one's software waits for the state ERR.
 */
#define FATAL_NAK_WAIT (100 * SCALE_MS)

/* Receive WQEs known of, below which a requester might have to wait */
#define FEW_RECEIVES 32

/*
 * What is owed
 */

static void owe_ack(QrnicEngine *e, QrnicQp *qp, uint32_t psn)
{
    QrnicResponder *r = qp->responder;

    if (!r->ack_owed || qrnic_psn_diff(psn, r->ack_psn) > 0) {
        r->ack_psn = psn;
    }
    r->ack_owed = true;
    qrnic_schedule(e, qp);
}

/* A NAK of the expected PSN; it acknowledges all before (9.7.5.1.2). */
static void owe_nak(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome)
{
    QrnicResponder *r = qp->responder;

    r->gap = true;
    r->nak_owed = true;
    r->nak = syndrome;
    r->ack_owed = false;
    qrnic_schedule(e, qp);
}

static void fatal_nak_wait(QrnicEngine *e, QrnicQp *qp)
{
    qp->responder->nak_deadline = qrnic_now(e) + FATAL_NAK_WAIT;
    qrnic_timer_advance(e, &qp->timer, qp->responder->nak_deadline);
}

/*
 * The request is refused for good: when the NAK has gone, the queue pair goes
 * to ERR. event: 0 if a receive completion tells (9.9.3, table 59).
 */
static bool refuse(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome, uint8_t event,
                   uint8_t event_subtype)
{
    QrnicResponder *r = qp->responder;

    trace_qrnic_responder_refuse(e->config.name, qp->number, r->epsn, syndrome,
                                 event);
    r->dead = true;
    r->event = event;
    r->event_subtype = event_subtype;
    r->wire_epoch = e->fabric->wire_epoch;
    fatal_nak_wait(e, qp);
    owe_nak(e, qp, syndrome);
    return false;
}

static bool refuse_invalid(QrnicEngine *e, QrnicQp *qp)
{
    return refuse(e, qp, QRNIC_NAK_INVALID, QRNIC_EVENT_QP_REQUEST_ERROR,
                  QRNIC_WC_REM_INV_REQ_ERR);
}

static bool refuse_access(QrnicEngine *e, QrnicQp *qp)
{
    return refuse(e, qp, QRNIC_NAK_ACCESS, QRNIC_EVENT_QP_ACCESS_ERROR,
                  QRNIC_WC_REM_ACCESS_ERR);
}

static bool refuse_operation(QrnicEngine *e, QrnicQp *qp)
{
    return refuse(e, qp, QRNIC_NAK_OPERATION, QRNIC_EVENT_QP_FATAL,
                  QRNIC_WC_REM_OP_ERR);
}

/* The PD that keys must be of; an XRC target uses that of the SRQ (A14). */
static uint32_t pd_of(QrnicEngine *e, const QrnicQp *qp, uint32_t srqn)
{
    const QrnicSrq *srq;

    if (qp->pd) {
        return qp->pd->number;
    }
    srq = qrnic_xrc_srq(e, qp, srqn);
    return srq ? srq->ctx.pd : 0;       /* no key is of PD 0 */
}

/*
 * Receive WQEs
 */

/* False: RNR, or the WQE is bad; the answer is owed. */
static bool recv_take(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;

    switch (qrnic_inbound_take(e, qp, &r->in)) {
    case QRNIC_TAKE_EMPTY:
        trace_qrnic_responder_rnr(e->config.name, qp->number, r->epsn,
                                  qp->attr.min_rnr_timer);
        /* That there are none is what the NAK says. */
        r->low_credit = qrnic_qp_has_rq(qp);
        owe_nak(e, qp, QRNIC_AETH_RNR | qp->attr.min_rnr_timer);
        return false;
    case QRNIC_TAKE_ERROR:
        return refuse(e, qp, QRNIC_NAK_OPERATION, 0, 0);
    case QRNIC_TAKE_BROKEN:
        return refuse_operation(e, qp);
    case QRNIC_TAKE_OK:
        break;
    }
    return true;
}

/*
 * Requests. Each returns true if the request was executed; else an answer is
 * owed and the PSN stays expected.
 */

/* The key goes when all the data is there, and before it is told. */
static bool invalidate(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;
    uint8_t syndrome = qrnic_remote_invalidate(e, &qp->keys,
                                               pd_of(e, qp, r->srqn),
                                               pkt->t.inv_key);

    if (syndrome) {
        /* Class J (9.9.6.3): the completion tells, and no NAK is sent. */
        qrnic_inbound_fail(e, qp, &r->in, QRNIC_CQE_RECV, QRNIC_WC_MW_BIND_ERR,
                           syndrome);
        qrnic_qp_error(e, qp, 0, 0);
    }
    return !syndrome;
}

static bool receive_send(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicInbound *in = &qp->responder->in;
    uint32_t flags = pkt->info->flags;

    if (!qrnic_inbound_length_ok(qp, pkt)) {    /* 9.7.4.1.6 */
        return refuse_invalid(e, qp);
    }
    if (flags & QRNIC_OPF_START) {
        if (!recv_take(e, qp)) {
            return false;
        }
        qrnic_inbound_send_begin(in);
    }
    switch (qrnic_inbound_send(e, qp, in, pkt)) {
    case QRNIC_PLACED_TOO_LONG:
        qrnic_inbound_fail(e, qp, in, QRNIC_CQE_RECV, QRNIC_WC_LOC_LEN_ERR,
                           QRNIC_SYN_NONE);
        return refuse(e, qp, QRNIC_NAK_INVALID, 0, 0);
    case QRNIC_PLACED_FAILED:
        return refuse(e, qp, QRNIC_NAK_OPERATION, 0, 0);
    case QRNIC_PLACED_OK:
        break;
    }
    if (flags & QRNIC_HDR_IETH && !invalidate(e, qp, pkt)) {
        return false;
    }
    if (flags & QRNIC_OPF_END) {
        qrnic_inbound_send_end(e, qp, in, pkt);
    }
    return true;
}

static void trace_key(QrnicEngine *e, const QrnicQp *qp, uint32_t rkey,
                      uint64_t va, uint64_t len, enum qrnic_syndrome syndrome)
{
    if (syndrome) {
        trace_qrnic_responder_key(e->config.name, qp->number, rkey, va, len,
                                  qrnic_syndrome_name(syndrome));
    }
}

static enum qrnic_syndrome remote_check(QrnicEngine *e, QrnicQp *qp,
                                        uint32_t srqn, uint32_t rkey,
                                        uint64_t va, uint64_t len,
                                        uint8_t access, QrnicMkey **k)
{
    enum qrnic_syndrome syndrome =
        qrnic_inbound_check(e, qp, pd_of(e, qp, srqn), rkey, va, len, access,
                            k);

    trace_key(e, qp, rkey, va, len, syndrome);
    return syndrome;
}

/*
 * A write that the memory refuses. One with immediate data has taken its
 * receive WQE by now, and completes it so (11.6.2); else an event tells.
 */
static bool refuse_write(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome)
{
    QrnicInbound *in = &qp->responder->in;
    bool memory = syndrome == QRNIC_SYN_DMA;

    if (in->recv) {
        qrnic_inbound_fail(e, qp, in, QRNIC_CQE_RECV_RDMA_WITH_IMM,
                           QRNIC_WC_LOC_ACCESS_ERR, syndrome);
        return refuse(e, qp, memory ? QRNIC_NAK_OPERATION : QRNIC_NAK_ACCESS,
                      0, 0);
    }
    return memory ? refuse_operation(e, qp) : refuse_access(e, qp);
}

static bool receive_write(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicInbound *in = &qp->responder->in;
    uint32_t flags = pkt->info->flags, pd = pd_of(e, qp, qp->responder->srqn);
    enum qrnic_syndrome syndrome = QRNIC_SYN_NONE;

    /* Resources come before the key (9.7.4.1.4, 9.7.4.1.5). */
    if (flags & QRNIC_HDR_IMM && !recv_take(e, qp)) {
        return false;
    }
    if (flags & QRNIC_OPF_START) {
        if (pkt->t.dma_len > QRNIC_MAX_MSG_SIZE) {
            return refuse_invalid(e, qp);
        }
        syndrome = qrnic_inbound_write_begin(e, qp, in, pkt, pd);
        trace_key(e, qp, pkt->t.rkey, pkt->t.va, pkt->t.dma_len, syndrome);
    }
    if (!syndrome && (!qrnic_inbound_length_ok(qp, pkt) ||
                      !qrnic_inbound_write_fits(in, pkt))) {
        return refuse_invalid(e, qp);
    }
    if (!syndrome) {
        syndrome = qrnic_inbound_write(e, qp, in, pkt, pd);
        trace_key(e, qp, in->rkey, in->va + in->received, pkt->payload_len,
                  syndrome);
    }
    if (syndrome) {
        return refuse_write(e, qp, syndrome);
    }
    if (flags & QRNIC_OPF_END) {
        qrnic_inbound_write_end(e, qp, in, pkt);
    }
    return true;
}

static uint8_t credits_now(QrnicEngine *e, QrnicQp *qp)
{
    uint32_t posted;

    /* What is left of an SRQ, another queue pair may take (9.7.7.2). */
    if (!qrnic_qp_has_rq(qp)) {
        return QRNIC_AETH_ACK | QRNIC_CREDITS_INVALID;
    }
    posted = qrnic_rq_posted(e, qp, false);
    /* The record is read when WQEs run out; there may be many more by now. */
    if (posted < FEW_RECEIVES) {
        posted = qrnic_rq_posted(e, qp, true);
    }
    qp->responder->low_credit = posted == 0;
    return QRNIC_AETH_ACK | qrnic_credits_encode(posted);
}

/* An entry for a new read or atomic; NULL: the requester has too many. */
static QrnicReplay *replay_new(QrnicEngine *e, QrnicQp *qp,
                               const QrnicPacket *pkt, uint32_t psns)
{
    QrnicResponder *r = qp->responder;
    QrnicReplay *x;

    if (!r->replay_count) {
        r->replay_count = qp->attr.max_dest_rd_atomic;
        r->replay = g_new0(QrnicReplay, r->replay_count);
    }
    x = &r->replay[r->replay_next];
    if (x->pending) {
        /* One that is only being repeated has been answered: it is free. */
        if (!x->repeated) {
            return NULL;
        }
        r->replay_pending--;
    }
    *x = (QrnicReplay) {
        .valid = true,
        .opcode = pkt->t.opcode,
        .pending = true,
        .first_psn = pkt->t.psn,
        .next_psn = pkt->t.psn,
        .start_psn = pkt->t.psn,
        .last_psn = qrnic_psn_add(pkt->t.psn, psns - 1),
        .va = pkt->t.va,
        .rkey = pkt->t.rkey,
        .srqn = r->srqn,
        .syndrome = credits_now(e, qp),
        .msn = (r->msn + 1) & 0xffffff,
    };
    r->replay_next = (r->replay_next + 1) % r->replay_count;
    r->replay_pending++;
    /* The response acknowledges all before. */
    r->ack_owed = false;
    qrnic_schedule(e, qp);
    return x;
}

static bool receive_read(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                         uint32_t *psns)
{
    QrnicResponder *r = qp->responder;
    QrnicReplay *x;
    QrnicMkey *k;

    if (pkt->t.dma_len > QRNIC_MAX_MSG_SIZE ||
        !qp->attr.max_dest_rd_atomic) {
        return refuse_invalid(e, qp);
    }
    if (!(qp->attr.access & QRNIC_ACCESS_REMOTE_READ) ||
        (pkt->t.dma_len &&
         remote_check(e, qp, r->srqn, pkt->t.rkey, pkt->t.va, pkt->t.dma_len,
                      QRNIC_ACCESS_REMOTE_READ, &k))) {
        return refuse_access(e, qp);
    }
    *psns = qrnic_psn_count(pkt->t.dma_len, qrnic_qp_mtu(qp));
    x = replay_new(e, qp, pkt, *psns);
    if (!x) {
        return refuse_invalid(e, qp);
    }
    x->length = pkt->t.dma_len;
    qrnic_add(e, QRNIC_COUNTER_RX_READ, 1);
    return true;
}

static bool receive_atomic(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;
    const QrnicTransport *t = &pkt->t;
    QrnicAtomic op = {
        .compare_swap = (t->opcode & QRNIC_OPERATION_MASK) ==
                        QRNIC_OP_RC_COMPARE_SWAP,
        .swap_add = t->swap_add,
        .compare = t->compare,
    };
    QrnicReplay *x;
    QrnicMkey *k;

    if (!(e->config.capabilities & QRNIC_CAP_ATOMIC) || t->va % 8 ||
        !qp->attr.max_dest_rd_atomic) {
        return refuse_invalid(e, qp);
    }
    if (remote_check(e, qp, r->srqn, t->rkey, t->va, 8,
                     QRNIC_ACCESS_REMOTE_ATOMIC, &k)) {
        return refuse_access(e, qp);
    }
    x = replay_new(e, qp, pkt, 1);
    if (!x) {
        return refuse_invalid(e, qp);
    }
    if (!qrnic_memory_atomic(e, k, t->va, &op)) {
        x->valid = x->pending = false;
        r->replay_pending--;
        return refuse_operation(e, qp);
    }
    x->atomic = true;
    x->original = op.original;
    qrnic_add(e, QRNIC_COUNTER_RX_ATOMIC, 1);
    return true;
}

/* Annex A19: 8 bytes, which all see as a whole, behind all that came before */
static bool receive_atomic_write(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;
    const QrnicTransport *t = &pkt->t;
    QrnicReplay *x;
    QrnicMkey *k;

    if (!(e->config.capabilities & QRNIC_CAP_ATOMIC_WRITE) || t->va % 8 ||
        t->dma_len != 8 || pkt->payload_len != 8 ||
        !qp->attr.max_dest_rd_atomic) {
        return refuse_invalid(e, qp);
    }
    if (remote_check(e, qp, r->srqn, t->rkey, t->va, 8,
                     QRNIC_ACCESS_REMOTE_WRITE, &k)) {
        return refuse_access(e, qp);
    }
    x = replay_new(e, qp, pkt, 1);
    if (!x) {
        return refuse_invalid(e, qp);
    }
    if (!qrnic_memory_write(e, k, t->va, pkt->payload, 8)) {
        x->valid = x->pending = false;
        r->replay_pending--;
        return refuse_operation(e, qp);
    }
    qrnic_add(e, QRNIC_COUNTER_RX_ATOMIC_WRITE, 1);
    return true;
}

/*
 * Annex A19. What came before is in memory already, where all can see it, for
 * every request is executed before the next one is looked at; so there is
 * nothing to do but to check. No region grants more than global visibility.
 */
static bool receive_flush(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    const QrnicTransport *t = &pkt->t;
    QrnicMkey *k = qrnic_mkey_get(e, t->rkey >> 8);
    uint64_t va = t->va, len = t->dma_len;

    if (!(e->config.capabilities & QRNIC_CAP_FLUSH) || !t->flush_type ||
        t->flush_level > QRNIC_FLUSH_MR || !qp->attr.max_dest_rd_atomic) {
        return refuse_invalid(e, qp);
    }
    if (t->flush_level == QRNIC_FLUSH_MR) {
        va = k ? k->ctx.start : 0;
        len = 0;
    }
    if (t->flush_type != QRNIC_FLUSH_GLOBAL ||
        remote_check(e, qp, qp->responder->srqn, t->rkey, va, len,
                     QRNIC_ACCESS_FLUSH_GLOBAL, &k)) {
        return refuse_access(e, qp);
    }
    if (!replay_new(e, qp, pkt, 1)) {
        return refuse_invalid(e, qp);
    }
    qrnic_add(e, QRNIC_COUNTER_RX_FLUSH, 1);
    return true;
}

/* Is the opcode one that may follow (9.7.4.1.2)? */
static bool sequence_ok(const QrnicResponder *r, uint32_t flags)
{
    if (flags & QRNIC_OPF_START) {
        return r->in.message == QRNIC_IDLE;
    }
    return r->in.message == (flags & QRNIC_OPF_SEND ? QRNIC_IN_SEND :
                             QRNIC_IN_WRITE);
}

/* The XRCETH names an SRQ of the domain, the same one in all of a message. */
static bool xrceth_ok(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;

    if (!qp->ops->of_domain) {
        return true;
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
                             const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;
    uint32_t flags = pkt->info->flags, psns = 1;
    bool nak = r->nak_owed, done;

    /*
     * Of the NAKs that have not gone yet, that of a receiver not ready is
     * moot. That of a gap is not: what came ahead of the packet was dropped,
     * and only the NAK has it sent again (9.7.5.2.2).
     */
    r->gap = false;
    if (r->nak != QRNIC_NAK_SEQUENCE) {
        r->nak_owed = false;
    }
    if (!sequence_ok(r, flags) || !xrceth_ok(e, qp, pkt)) {
        refuse_invalid(e, qp);
        return;
    }
    if (flags & QRNIC_OPF_SEND) {
        done = receive_send(e, qp, pkt);
    } else if (flags & QRNIC_OPF_WRITE) {
        done = receive_write(e, qp, pkt);
    } else if (flags & QRNIC_OPF_READ) {
        done = receive_read(e, qp, pkt, &psns);
    } else if (flags & QRNIC_OPF_ATOMIC_WRITE) {
        done = receive_atomic_write(e, qp, pkt);
    } else if (flags & QRNIC_OPF_FLUSH) {
        done = receive_flush(e, qp, pkt);
    } else {
        done = receive_atomic(e, qp, pkt);
    }
    if (!done) {
        return;
    }
    r->epsn = qrnic_psn_add(r->epsn, psns);
    if (qrnic_psn_diff(r->dropped_psn, r->epsn) < 0) {
        r->nak_owed = false;    /* it was sent again before */
    }
    r->gap = r->nak_owed;
    if (flags & QRNIC_OPF_END) {
        r->msn = (r->msn + 1) & 0xffffff;
    }
    if (flags & QRNIC_OPF_KEPT) {
        return;
    }
    /* A NAK not sent may have stood for an ACK, too. */
    if (pkt->t.ack_req || (nak && !r->nak_owed)) {
        owe_ack(e, qp, pkt->t.psn);
    } else if (r->ack_owed) {
        r->ack_psn = pkt->t.psn;
    }
}

/* 9.7.5.1.2: the stored result again, or the read executed again. */
static void repeat(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;
    bool read = pkt->info->flags & QRNIC_OPF_READ;

    for (uint32_t i = 0; i < r->replay_count; i++) {
        QrnicReplay *x = &r->replay[i];
        uint32_t skipped = qrnic_psn_distance(x->first_psn, pkt->t.psn);
        uint64_t offset = (uint64_t)skipped * qrnic_qp_mtu(qp);

        if (!x->valid || x->opcode != pkt->t.opcode ||
            skipped > qrnic_psn_distance(x->first_psn, x->last_psn)) {
            continue;
        }
        /* It must be what it was, or a rest of it. */
        if (pkt->t.rkey != x->rkey || pkt->t.va != x->va + offset ||
            pkt->t.srqn != x->srqn ||
            (read && pkt->t.dma_len != x->length - offset)) {
            return;
        }
        if (!x->atomic) {
            x->next_psn = x->start_psn = pkt->t.psn;
        }
        if (!x->pending) {
            x->pending = true;
            x->repeated = true;
            r->replay_pending++;
        }
        qrnic_schedule(e, qp);
        return;
    }
    /* Not kept any more: dropped, as the specification wants it. */
}

static void receive_duplicate(QrnicEngine *e, QrnicQp *qp,
                              const QrnicPacket *pkt)
{
    qrnic_add(e, QRNIC_COUNTER_DUPLICATE_REQUESTS, 1);
    if (pkt->info->flags & QRNIC_OPF_KEPT) {
        repeat(e, qp, pkt);
    } else if (pkt->t.ack_req) {
        /*
         * Not the newest PSN: a read between them may have lost its response,
         * and must not seem acknowledged.
         */
        owe_ack(e, qp, pkt->t.psn);
    }
}

/*
 * What comes out of sequence behind an RNR NAK was on its way before that had
 * arrived. It is not once the time that the NAK told has passed: then the
 * requester has begun again, and the packet it began with is lost.
 */
static bool rnr_is_over(QrnicEngine *e, const QrnicResponder *r)
{
    return (r->nak & QRNIC_AETH_TYPE_MASK) == QRNIC_AETH_RNR && !r->nak_owed &&
           qrnic_now(e) >= r->rnr_until;
}

void qrnic_responder_receive(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;
    int32_t ahead = qrnic_psn_diff(pkt->t.psn, r->epsn);

    if (r->dead) {
        qrnic_add(e, QRNIC_COUNTER_RX_DROP_QP_STATE, 1);
        return;
    }
    qrnic_inbound_arrived(e, qp);
    if (ahead == 0) {
        receive_expected(e, qp, pkt);
    } else if (ahead < 0) {
        receive_duplicate(e, qp, pkt);
    } else {
        qrnic_add(e, QRNIC_COUNTER_OUT_OF_SEQUENCE, 1);
        if (!r->gap || qrnic_psn_diff(pkt->t.psn, r->dropped_psn) > 0) {
            r->dropped_psn = pkt->t.psn;
        }
        /* One NAK for each gap (9.7.5.2.2). */
        if (!r->gap || rnr_is_over(e, r)) {
            trace_qrnic_responder_gap(e->config.name, qp->number, r->epsn,
                                      pkt->t.psn);
            owe_nak(e, qp, QRNIC_NAK_SEQUENCE);
        }
    }
}

/*
 * Answers
 */

static QrnicTransport answer(QrnicQp *qp, uint8_t opcode, uint32_t psn,
                             uint8_t syndrome, uint32_t msn)
{
    return (QrnicTransport) {
        .opcode = opcode | qrnic_qp_service(qp),
        .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = qp->attr.dest_qpn,
        .psn = psn,
        .syndrome = syndrome,
        .msn = msn,
    };
}

static void send_ack(QrnicEngine *e, QrnicQp *qp, uint32_t psn)
{
    QrnicTransport t = answer(qp, QRNIC_OP_RC_ACK, psn, credits_now(e, qp),
                              qp->responder->msn);

    qrnic_add(e, QRNIC_COUNTER_TX_ACK, 1);
    qrnic_packet_send(e, qp, &t,
                      qrnic_packet_begin(&qp->path, e->fabric->frame, &t, 0),
                      0);
}

static void send_nak(QrnicEngine *e, QrnicQp *qp, uint32_t psn)
{
    QrnicResponder *r = qp->responder;
    QrnicTransport t = answer(qp, QRNIC_OP_RC_ACK, psn, r->nak, r->msn);

    r->nak_owed = false;
    r->ack_owed = false;
    if (r->dead) {
        qrnic_add(e, QRNIC_COUNTER_TX_NAK_ERROR, 1);
    } else if (r->nak == QRNIC_NAK_SEQUENCE) {
        qrnic_add(e, QRNIC_COUNTER_TX_NAK_SEQUENCE, 1);
    } else {
        qrnic_add(e, QRNIC_COUNTER_TX_RNR_NAK, 1);
        r->rnr_until = qrnic_now(e) + qrnic_rnr_time_ns(r->nak &
                                                    QRNIC_AETH_VALUE_MASK);
    }
    qrnic_packet_send(e, qp, &t,
                      qrnic_packet_begin(&qp->path, e->fabric->frame, &t, 0),
                      0);
    if (r->dead) {
        qrnic_qp_error(e, qp, r->event, r->event_subtype);
    }
}

static void replay_finish(QrnicResponder *r, QrnicReplay *x)
{
    x->pending = false;
    x->repeated = false;
    r->replay_pending--;
}

static void send_atomic_response(QrnicEngine *e, QrnicQp *qp, QrnicReplay *x)
{
    QrnicTransport t = answer(qp, QRNIC_OP_RC_ATOMIC_ACK, x->first_psn,
                              x->syndrome, x->msn);

    t.original = x->original;
    replay_finish(qp->responder, x);
    qrnic_packet_send(e, qp, &t,
                      qrnic_packet_begin(&qp->path, e->fabric->frame, &t, 0),
                      0);
}

static void send_read_response(QrnicEngine *e, QrnicQp *qp, QrnicReplay *x)
{
    QrnicResponder *r = qp->responder;
    uint32_t mtu = qrnic_qp_mtu(qp);
    uint64_t offset = (uint64_t)qrnic_psn_distance(x->first_psn, x->next_psn) *
                      mtu;
    uint32_t len = MIN(mtu, x->length - offset);
    bool first = x->next_psn == x->start_psn;
    bool last = x->next_psn == x->last_psn;
    uint8_t opcode = first && last ? QRNIC_OP_RC_READ_RESPONSE_ONLY :
                     first ? QRNIC_OP_RC_READ_RESPONSE_FIRST :
                     last ? QRNIC_OP_RC_READ_RESPONSE_LAST :
                     QRNIC_OP_RC_READ_RESPONSE_MIDDLE;
    QrnicTransport t = answer(qp, opcode, x->next_psn, x->syndrome, x->msn);
    uint8_t *payload = qrnic_packet_begin(&qp->path, e->fabric->frame, &t, len);
    QrnicMkey *k;

    /* The key may have gone since the request came. */
    if (len && (remote_check(e, qp, x->srqn, x->rkey, x->va + offset, len,
                             QRNIC_ACCESS_REMOTE_READ, &k) ||
                !qrnic_memory_read(e, k, x->va + offset, payload, len))) {
        /* It was answered once: a repetition that fails is dropped. */
        if (x->repeated) {
            replay_finish(r, x);
            return;
        }
        /* What comes after this response will not be answered. */
        r->replay_pending = 0;
        r->dead = true;
        r->event = QRNIC_EVENT_QP_ACCESS_ERROR;
        r->event_subtype = QRNIC_WC_REM_ACCESS_ERR;
        r->nak = QRNIC_NAK_ACCESS;
        send_nak(e, qp, x->next_psn);
        return;
    }
    x->next_psn = qrnic_psn_add(x->next_psn, 1);
    if (last) {
        replay_finish(r, x);
    }
    qrnic_packet_send(e, qp, &t, payload, len);
}

/* The oldest of those that are to be answered. */
static QrnicReplay *replay_first(QrnicResponder *r)
{
    for (uint32_t i = 0; i < r->replay_count; i++) {
        QrnicReplay *x = &r->replay[(r->replay_next + i) % r->replay_count];

        if (x->pending) {
            return x;
        }
    }
    g_assert_not_reached();
}

bool qrnic_responder_step(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;

    /* Reads and atomics first: what is owed else has a higher PSN. */
    if (r->replay_pending) {
        QrnicReplay *x = replay_first(r);

        if (x->atomic) {
            send_atomic_response(e, qp, x);
        } else {
            send_read_response(e, qp, x);
        }
        return true;
    }
    if (r->nak_owed) {
        send_nak(e, qp, r->epsn);
        return true;
    }
    if (r->ack_owed) {
        r->ack_owed = false;
        send_ack(e, qp, r->ack_psn);
        return true;
    }
    return false;
}

/*
 * Life
 */

void qrnic_responder_doorbell(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;

    if (qp->state == QRNIC_QPS_ERR) {
        qrnic_schedule(e, qp);
    } else if (r->low_credit && !r->dead && qrnic_rq_posted(e, qp, true)) {
        /* An ACK of its own brings the requester the credits (9.7.7.2.5). */
        r->low_credit = false;
        owe_ack(e, qp, qrnic_psn_add(r->epsn, -1));
    }
}

bool qrnic_responder_flush_one(QrnicEngine *e, QrnicQp *qp)
{
    return qrnic_inbound_flush(e, qp, &qp->responder->in);
}

uint32_t qrnic_responder_expected_psn(const QrnicQp *qp)
{
    return qp->responder->epsn;
}

/* The entry that is n older than the newest one */
static QrnicReplay *replay_back(const QrnicResponder *r, uint32_t n)
{
    return &r->replay[(r->replay_next + r->replay_count - 1 - n) %
                      r->replay_count];
}

bool qrnic_responder_can_keep(const QrnicQp *qp, uint32_t count)
{
    const QrnicResponder *r = qp->responder;

    for (uint32_t n = count; n < r->replay_count; n++) {
        const QrnicReplay *x = replay_back(r, n);

        /* One that is only being repeated has been answered. */
        if (x->pending && !x->repeated) {
            return false;
        }
    }
    return true;
}

/* max_dest_rd_atomic may have changed: the newest are kept. */
void qrnic_responder_attr_changed(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;
    uint32_t count = qp->attr.max_dest_rd_atomic;
    uint32_t keep = MIN(count, r->replay_count);
    QrnicReplay *replay;

    /* Before the first read or atomic none are there to keep. */
    if (!r->replay_count || r->replay_count == count) {
        return;
    }
    replay = g_new0(QrnicReplay, count);
    r->replay_pending = 0;
    for (uint32_t n = 0; n < keep; n++) {
        replay[keep - 1 - n] = *replay_back(r, n);
        r->replay_pending += replay[keep - 1 - n].pending;
    }
    g_free(r->replay);
    r->replay = replay;
    r->replay_count = count;
    r->replay_next = count ? keep % count : 0;
}

/* Nothing comes after a fatal NAK, so nothing is lost if it never goes. */
void qrnic_responder_timer(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;

    if (!r->dead || qp->state == QRNIC_QPS_ERR) {
        return;
    }
    if (qrnic_now(e) < r->nak_deadline) {
        qrnic_timer_set(e, &qp->timer, r->nak_deadline);
    } else if (qrnic_path_stands_still(e, qp, &r->wire_epoch)) {
        r->nak_owed = false;
        qrnic_qp_error(e, qp, r->event, r->event_subtype);
    } else {
        fatal_nak_wait(e, qp);
    }
}

void qrnic_rc_start_receive(QrnicEngine *e, QrnicQp *qp)
{
    qp->responder->epsn = qp->attr.rq_psn;
    qrnic_responder_attr_changed(e, qp);
}
