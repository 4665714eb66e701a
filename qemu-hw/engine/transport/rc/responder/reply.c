/*
 * qrnic engine, transport: states of the responder, and its pending replies
 *
 * sequence.c and execute.c call the functions qrnic_reply_*() and
 * qrnic_refuse_*() for a request. The replies are pending until the scheduler
 * calls qrnic_responder_step(), because nothing is sent from a reception. Only
 * functions of this file change the members state and replies of
 * QrnicResponder. InfiniBand specification, 9.7.5 and 9.9.3.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * Member state: the treatment of the next request.
 *
 *       IN_SEQUENCE <------------------------+
 *        |   |                               | the expected request arrives
 *        |   +-- lost, no WQE, page -> RETRY_REQUESTED
 *        |                                   |
 *        +---------- request rejected -------+
 *                            v
 *                    FATAL_NAK_PENDING
 *                            | the NAK is sent
 *                            v
 *                     FATAL_NAK_SENT
 *
 * QRNIC_IN_SEQUENCE: no NAK has been sent or is pending for the expected PSN.
 *   - receive_expected() enters it.
 *   - No NAK is pending.
 *
 * QRNIC_RETRY_REQUESTED: the peer must retransmit from the expected PSN on.
 *   - qrnic_reply_nak() enters it if a PSN is missing, no receive WQE is
 *     posted, or a page is absent.
 *   - receive_expected() enters it again if the packets behind the expected
 *     one were dropped, and no NAK has reported that.
 *   - Member nak is the syndrome. Member dropped_psn is the last packet that
 *     was dropped out of order. The NAK is pending, or it has been sent. No
 *     other NAK follows for the same sequence gap (9.7.5.2.2).
 *   - receive_expected() leaves it.
 *
 * QRNIC_FATAL_NAK_PENDING: a request was rejected.
 *   - qrnic_refuse_request() enters it. For a responder of a dynamic target
 *     qrnic_responder_fail() does.
 *   - send_read_response() enters it if the key of a pending response is not
 *     valid any more, and sends the NAK at once.
 *   - All requests are dropped. A NAK is pending; nak, event and event_subtype
 *     are valid, and nak_deadline limits the wait for the wire.
 *   - send_nak() leaves it. qrnic_responder_timer() ends it without a NAK.
 *
 * QRNIC_FATAL_NAK_SENT: the queue pair is in ERR, or it is a responder of a
 *   dynamic target.
 *   - nak_psn is the PSN of the NAK. Each later request makes the NAK pending
 *     again.
 *   - Only a reset leaves it.
 *
 * Member replies: the pending replies, in the order in which they are sent.
 * Each call of qrnic_responder_step() sends one.
 *
 * QRNIC_REPLY_SACK: a PSN is missing, and packets behind it are buffered.
 *   - The SACK acknowledges only PSNs before the first pending response, so it
 *     may overtake other replies. The SACK waits for a pending NAK, because the
 *     NAK restarts the peer.
 * QRNIC_REPLY_RNR: the peer has repeated the request whose response waits.
 *   - Only while QRNIC_REPLY_PAGE is set.
 * Responses to RDMA READs and atomics, in the order of their PSNs.
 *   - Not while QRNIC_REPLY_PAGE is set. The replies below wait for all
 *     responses, because their PSNs are higher.
 * QRNIC_REPLY_NAK: see the states above.
 *   - The NAK acknowledges all PSNs before its own, so it replaces an ACK.
 * QRNIC_REPLY_ACK: an ACK with the PSN ack_psn.
 *   - A NAK, a response of a later request or a SACK replaces it.
 *
 * Two bits are conditions and not replies.
 *
 * QRNIC_REPLY_PAGE: the memory of the oldest pending response is absent.
 *   - send_read_response() sets it. qrnic_responder_resume() removes it.
 *   - All replies but SACK and RNR wait.
 * QRNIC_REPLY_CREDITS: the last ACK or RNR NAK reported that no receive WQE is
 *   posted.
 *   - An ACK becomes pending when software posts a receive WQE.
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/qp/qp_rate.h"
#include "engine/transport/rc/responder/responder.h"

/*
 * Time that a fatal NAK waits for a blocked wire. The peer has its own
 * timeouts, but software at this end waits for the state ERR.
 */
#define FATAL_NAK_WAIT (100 * SCALE_MS)

/* Least RNR timer for an absent page: 0.96 ms (table 45) */
#define PAGE_RNR_TIMER 13

/*
 * Number of posted receive WQEs below which the doorbell record is read again,
 * because a requester might wait for credits
 */
#define FEW_RECEIVES 32

/* Not inlined, because each ACK would save the registers of the trace event. */
static G_NO_INLINE void trace_pend(QrnicEngine *e, QrnicQp *qp, uint8_t reply)
{
    trace_qrnic_responder_pend(e->config.name, qp->number, reply,
                               qp->responder->replies);
}

/*
 * Makes a reply pending without scheduling the queue pair, because a later
 * event does that.
 */
static inline void pend_later(QrnicEngine *e, QrnicQp *qp, uint8_t reply)
{
    qp->responder->replies |= reply;
    if (trace_event_get_state_backends(TRACE_QRNIC_RESPONDER_PEND)) {
        trace_pend(e, qp, reply);
    }
}

static inline void pend(QrnicEngine *e, QrnicQp *qp, uint8_t reply)
{
    pend_later(e, qp, reply);
    qrnic_schedule(e, qp);
}

void qrnic_replies_cancelled(QrnicEngine *e, QrnicQp *qp, uint8_t replies)
{
    QrnicResponder *r = qp->responder;

    r->replies &= ~replies;
    trace_qrnic_responder_cancel(e->config.name, qp->number, replies,
                                 r->replies);
}

void qrnic_responder_state_changed(QrnicEngine *e, QrnicQp *qp,
                                   QrnicResponderState to)
{
    static const char *const names[] = {
        "in sequence", "retry requested", "fatal NAK pending", "fatal NAK sent",
    };
    QrnicResponder *r = qp->responder;

    /* A responder that has failed executes nothing until it is reset. */
    g_assert(!qrnic_responder_has_failed(r) || to > r->state);
    trace_qrnic_responder_state(e->config.name, qp->number, names[r->state],
                                names[to]);
    r->state = to;
}

void qrnic_reply_ack(QrnicEngine *e, QrnicQp *qp, uint32_t psn)
{
    QrnicResponder *r = qp->responder;

    g_assert(!qrnic_responder_has_failed(r));
    if (!(r->replies & QRNIC_REPLY_ACK) ||
        qrnic_psn_diff(psn, r->ack_psn) > 0) {
        r->ack_psn = psn;
    }
    pend(e, qp, QRNIC_REPLY_ACK);
}

static void pend_nak(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome)
{
    qp->responder->nak = syndrome;
    qrnic_replies_cancel(e, qp, QRNIC_REPLY_ACK);
    pend(e, qp, QRNIC_REPLY_NAK);
}

void qrnic_reply_nak(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome)
{
    qrnic_responder_state_set(e, qp, QRNIC_RETRY_REQUESTED);
    pend_nak(e, qp, syndrome);
}

void qrnic_reply_sack(QrnicEngine *e, QrnicQp *qp)
{
    pend(e, qp, QRNIC_REPLY_SACK);
}

void qrnic_reply_rnr(QrnicEngine *e, QrnicQp *qp)
{
    g_assert(qp->responder->replies & QRNIC_REPLY_PAGE);
    pend(e, qp, QRNIC_REPLY_RNR);
}

void qrnic_reply_credits(QrnicEngine *e, QrnicQp *qp)
{
    pend_later(e, qp, QRNIC_REPLY_CREDITS);
}

void qrnic_reply_fatal_again(QrnicEngine *e, QrnicQp *qp)
{
    g_assert(qp->responder->state == QRNIC_FATAL_NAK_SENT);
    if (!(qp->responder->replies & QRNIC_REPLY_NAK)) {
        pend(e, qp, QRNIC_REPLY_NAK);
    }
}

static void fatal_nak_wait(QrnicEngine *e, QrnicQp *qp)
{
    qp->responder->nak_deadline = qrnic_now(e) + FATAL_NAK_WAIT;
    qrnic_timer_advance(e, &qp->timer, qp->responder->nak_deadline);
}

/*
 * Rejects the request: after the NAK is sent, the queue pair goes to ERR. The
 * event is 0 if a receive completion reports the error (9.9.3, table 59).
 */
bool qrnic_refuse_request(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome,
                          uint8_t event, uint8_t event_subtype)
{
    QrnicResponder *r = qp->responder;

    trace_qrnic_responder_refuse(e->config.name, qp->number, r->epsn, syndrome,
                                 event);
    qrnic_responder_state_set(e, qp, QRNIC_FATAL_NAK_PENDING);
    r->event = event;
    r->event_subtype = event_subtype;
    r->wire_epoch = e->fabric->wire_epoch;
    fatal_nak_wait(e, qp);
    pend_nak(e, qp, syndrome);
    return false;
}

bool qrnic_refuse_invalid(QrnicEngine *e, QrnicQp *qp)
{
    return qrnic_refuse_request(e, qp, QRNIC_NAK_INVALID,
                                QRNIC_EVENT_QP_REQUEST_ERROR,
                                QRNIC_WC_REM_INV_REQ_ERR);
}

bool qrnic_refuse_access(QrnicEngine *e, QrnicQp *qp)
{
    return qrnic_refuse_request(e, qp, QRNIC_NAK_ACCESS,
                                QRNIC_EVENT_QP_ACCESS_ERROR,
                                QRNIC_WC_REM_ACCESS_ERR);
}

bool qrnic_refuse_operation(QrnicEngine *e, QrnicQp *qp)
{
    return qrnic_refuse_request(e, qp, QRNIC_NAK_OPERATION,
                                QRNIC_EVENT_QP_FATAL, QRNIC_WC_REM_OP_ERR);
}

uint8_t qrnic_rnr_page_timer(const QrnicQp *qp)
{
    uint8_t timer = qp->attr.min_rnr_timer;

    return qrnic_rnr_time_ns(timer) > qrnic_rnr_time_ns(PAGE_RNR_TIMER) ?
           timer : PAGE_RNR_TIMER;
}

uint8_t qrnic_credits_now(QrnicEngine *e, QrnicQp *qp)
{
    uint32_t posted;

    /*
     * WQEs of an SRQ are no credits, because other queue pairs may consume them
     * (9.7.7.2).
     */
    if (!qrnic_qp_has_credits(qp)) {
        return QRNIC_AETH_ACK | QRNIC_CREDITS_INVALID;
    }
    posted = qrnic_rq_posted(e, qp, false);
    /*
     * The record is read again, because more WQEs may have been posted since.
     */
    if (posted < FEW_RECEIVES) {
        posted = qrnic_rq_posted(e, qp, true);
    }
    if (posted) {
        qrnic_replies_cancel(e, qp, QRNIC_REPLY_CREDITS);
    } else {
        qrnic_reply_credits(e, qp);
    }
    return QRNIC_AETH_ACK | qrnic_credits_encode(posted);
}

static QrnicTransport answer(QrnicQp *qp, uint8_t opcode, uint32_t psn,
                             uint8_t syndrome, uint32_t msn)
{
    QrnicTransport t = qrnic_connection_transport(qp, opcode, psn);

    t.syndrome = syndrome;
    t.msn = msn;
    return t;
}

/*
 * Returns the headers of a response. With selective repeat they include the
 * transmission number of the request.
 */
static QrnicTransport response(QrnicQp *qp, const QrnicResource *x,
                               uint8_t opcode, uint32_t psn)
{
    QrnicTransport t = answer(qp, opcode, psn, x->syndrome, x->msn);

    if (t.mark & QRNIC_MARK_SELECTIVE) {
        t.mark |= QRNIC_MARK_TRANSMISSION(x->transmission);
    }
    return t;
}

static void send_ack(QrnicEngine *e, QrnicQp *qp, uint32_t psn)
{
    QrnicTransport t = answer(qp, QRNIC_OP_RC_ACK, psn, qrnic_credits_now(e,
                                                                          qp),
                              qp->responder->msn);

    qrnic_add(e, QRNIC_COUNTER_TX_ACK, 1);
    qrnic_packet_send(e, qp, &t, qrnic_packet_open(e, qp, &t, 0), 0);
}

/*
 * Sends a SACK. The SACK acknowledges all PSNs before the oldest pending
 * response, or else before the expected PSN. From the expected PSN on the SACK
 * reports missing and arrived PSNs. While a response is pending the SACK has no
 * credits, because only ACKs and responses in order report credits.
 */
static void send_sack(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;
    const QrnicResource *x = r->responses_pending ? qrnic_resource_first(r) :
                                                    NULL;
    uint32_t next = x ? x->next_psn : r->epsn;
    QrnicTransport t = answer(qp, QRNIC_OP_RC_SACK, qrnic_psn_add(next, -1),
                              QRNIC_AETH_ACK | QRNIC_CREDITS_INVALID, r->msn);
    uint8_t arrived[QRNIC_SACK_BYTES];

    qrnic_replies_cancel(e, qp, QRNIC_REPLY_SACK);
    qrnic_reorder_tell(r->reorder, r->epsn, arrived);
    t.missing_psn = r->epsn;
    t.latest_psn = r->latest_psn;
    t.latest_transmission = r->latest_transmission;
    t.arrived = arrived;
    if (!x) {
        t.syndrome = qrnic_credits_now(e, qp);
        qrnic_replies_cancel(e, qp, QRNIC_REPLY_ACK);
    }
    trace_qrnic_responder_sack(e->config.name, qp->number, t.psn, r->epsn,
                               r->reorder ? r->reorder->count : 0);
    qrnic_add(e, QRNIC_COUNTER_TX_SACK, 1);
    qrnic_packet_send(e, qp, &t, qrnic_packet_open(e, qp, &t, 0), 0);
}

static void send_nak(QrnicEngine *e, QrnicQp *qp, uint32_t psn)
{
    QrnicResponder *r = qp->responder;
    QrnicTransport t = answer(qp, QRNIC_OP_RC_ACK, psn, r->nak, r->msn);

    qrnic_replies_cancel(e, qp, QRNIC_REPLY_NAK | QRNIC_REPLY_ACK);
    if (qrnic_responder_has_failed(r)) {
        qrnic_responder_state_set(e, qp, QRNIC_FATAL_NAK_SENT);
        r->nak_psn = psn;
        qrnic_add(e, QRNIC_COUNTER_TX_NAK_ERROR, 1);
    } else if (r->nak == QRNIC_NAK_SEQUENCE) {
        qrnic_add(e, QRNIC_COUNTER_TX_NAK_SEQUENCE, 1);
    } else {
        qrnic_add(e, QRNIC_COUNTER_TX_RNR_NAK, 1);
        r->rnr_until = qrnic_now(e) + qrnic_rnr_time_ns(r->nak &
                                                    QRNIC_AETH_VALUE_MASK);
    }
    qrnic_packet_send(e, qp, &t, qrnic_packet_open(e, qp, &t, 0), 0);
    if (qrnic_responder_has_failed(r)) {
        qrnic_qp_error(e, qp, r->event, r->event_subtype);
    }
}

/*
 * Sends an RNR NAK because a page is absent and the requester has repeated its
 * request. Without the RNR NAK the requester would exhaust its retries.
 */
static void send_rnr(QrnicEngine *e, QrnicQp *qp, const QrnicResource *x)
{
    QrnicTransport t = answer(qp, QRNIC_OP_RC_ACK, x->next_psn,
                              QRNIC_AETH_RNR | qrnic_rnr_page_timer(qp),
                              (x->msn - 1) & 0xffffff);

    qrnic_replies_cancel(e, qp, QRNIC_REPLY_RNR);
    trace_qrnic_responder_rnr(e->config.name, qp->number, x->next_psn,
                              qrnic_rnr_page_timer(qp));
    qrnic_add(e, QRNIC_COUNTER_TX_RNR_NAK, 1);
    qrnic_packet_send(e, qp, &t, qrnic_packet_open(e, qp, &t, 0), 0);
}

static void send_atomic_response(QrnicEngine *e, QrnicQp *qp, QrnicResource *x)
{
    QrnicTransport t = response(qp, x, QRNIC_OP_RC_ATOMIC_ACK, x->first_psn);

    t.original = x->original;
    qrnic_resource_finish(qp->responder, x);
    qrnic_packet_send(e, qp, &t, qrnic_packet_open(e, qp, &t, 0), 0);
}

/* Sends one packet of a read response. Returns false if it waits for a page. */
static bool send_read_response(QrnicEngine *e, QrnicQp *qp, QrnicResource *x)
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
    QrnicTransport t = response(qp, x, opcode, x->next_psn);
    uint8_t *payload = qrnic_packet_open(e, qp, &t, len);
    enum qrnic_syndrome syndrome = QRNIC_SYN_NONE;
    QrnicFault fault;
    QrnicMkey *k;

    /*
     * The key is checked again, because it may have been invalidated since the
     * request.
     */
    if (len) {
        syndrome = qrnic_remote_check(e, qp, x->srqn, x->rkey, x->va + offset,
                                      len, QRNIC_ACCESS_REMOTE_READ, &k);
    }
    if (len && !syndrome) {
        syndrome = qrnic_memory_read(e, k, x->va + offset, payload, len,
                                     &fault);
        qrnic_fault_extend(&fault, syndrome, x->length - offset);
    }
    if (qrnic_page_fault(e, qp, QRNIC_SIDE_RECV, syndrome, &fault)) {
        g_assert(qrnic_page_fault_waits(qp, QRNIC_SIDE_RECV));
        pend_later(e, qp, QRNIC_REPLY_PAGE);
        return false;
    }
    if (syndrome) {
        /*
         * A failed repetition is dropped, because the request was answered
         * before.
         */
        if (x->repeated) {
            qrnic_resource_finish(r, x);
            return true;
        }
        /* Later responses are dropped, because the queue pair goes to ERR. */
        r->responses_pending = 0;
        qrnic_responder_state_set(e, qp, QRNIC_FATAL_NAK_PENDING);
        r->event = QRNIC_EVENT_QP_ACCESS_ERROR;
        r->event_subtype = QRNIC_WC_REM_ACCESS_ERR;
        r->nak = QRNIC_NAK_ACCESS;
        send_nak(e, qp, x->next_psn);
        return true;
    }
    x->next_psn = qrnic_psn_add(x->next_psn, 1);
    if (last) {
        qrnic_resource_finish(r, x);
    }
    qrnic_packet_send(e, qp, &t, payload, len);
    return true;
}

void qrnic_responder_resume(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_replies_cancel(e, qp, QRNIC_REPLY_PAGE | QRNIC_REPLY_RNR);
}

void qrnic_responder_fail(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;

    if (r && r->state != QRNIC_FATAL_NAK_SENT) {
        qrnic_responder_state_set(e, qp, QRNIC_FATAL_NAK_PENDING);
        pend_nak(e, qp, QRNIC_NAK_OPERATION);
    }
}

bool qrnic_responder_is_busy(const QrnicQp *qp)
{
    const QrnicResponder *r = qp->responder;

    return (r->responses_pending ||
            r->replies & (QRNIC_REPLY_ACK | QRNIC_REPLY_NAK |
                          QRNIC_REPLY_PAGE)) && !qrnic_responder_has_failed(r);
}

bool qrnic_responder_step(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;

    if ((r->replies & (QRNIC_REPLY_SACK | QRNIC_REPLY_NAK)) ==
        QRNIC_REPLY_SACK) {
        send_sack(e, qp);
        return true;
    }
    if (r->replies & QRNIC_REPLY_PAGE) {
        if (!(r->replies & QRNIC_REPLY_RNR) || !r->responses_pending) {
            return false;
        }
        send_rnr(e, qp, qrnic_resource_first(r));
        return true;
    }
    if (r->responses_pending) {
        QrnicResource *x = qrnic_resource_first(r);

        if (!x->atomic) {
            return !qrnic_pace_response_wait(e, qp) &&
                   send_read_response(e, qp, x);
        }
        send_atomic_response(e, qp, x);
        return true;
    }
    if (r->replies & QRNIC_REPLY_NAK) {
        send_nak(e, qp, r->state == QRNIC_FATAL_NAK_SENT ? r->nak_psn :
                                                          r->epsn);
        return true;
    }
    if (r->replies & QRNIC_REPLY_ACK) {
        qrnic_replies_cancel(e, qp, QRNIC_REPLY_ACK);
        send_ack(e, qp, r->ack_psn);
        return true;
    }
    return false;
}

/*
 * Ends the wait of a fatal NAK for a blocked wire. The peer loses nothing but
 * the reason, because no reply follows a fatal NAK.
 */
void qrnic_responder_timer(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;

    if (r->state != QRNIC_FATAL_NAK_PENDING || qp->state == QRNIC_QPS_ERR) {
        return;
    }
    if (qrnic_now(e) < r->nak_deadline) {
        /* The timer may have expired for a deadline of buffered packets. */
        qrnic_timer_advance(e, &qp->timer, r->nak_deadline);
    } else if (qrnic_path_stands_still(e, qp, &r->wire_epoch)) {
        qrnic_replies_cancel(e, qp, QRNIC_REPLY_NAK);
        qrnic_qp_error(e, qp, r->event, r->event_subtype);
    } else {
        fatal_nak_wait(e, qp);
    }
}
