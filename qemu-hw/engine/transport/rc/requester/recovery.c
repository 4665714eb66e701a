/*
 * qrnic engine, transport: timeouts and retransmission of the requester
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Decides when packets are retransmitted, and counts retries. The timer of the
 * queue pair calls qrnic_requester_timer(). responses.c calls
 * qrnic_requester_retry() for a NAK, qrnic_requester_rnr_wait() for an RNR NAK,
 * and qrnic_requester_implied_nak() for a lost response. Dynamic initiators and
 * carriers suspend and continue the requester here. r->deadline is the end of
 * the transport timer or of the RNR wait.
 *
 * InfiniBand specification, 9.7.5.2, 9.7.6 and 9.9.2.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_rate.h"
#include "engine/transport/rc/requester/requester.h"

/*
 * Sets the deadline. Only an earlier deadline changes the timer, because most
 * deadlines move on before they expire. An expired timer checks r->deadline.
 */
static void deadline_set(QrnicEngine *e, QrnicQp *qp, int64_t deadline)
{
    qp->requester->deadline = deadline;
    qrnic_timer_advance(e, &qp->timer, deadline);
}

/*
 * Returns the time of the transport timer, or 0 without a timer. The timer of a
 * member of a carrier is longer if the member would otherwise fail while the
 * peer's carrier still retransmits the response.
 */
static int64_t transport_timeout(const QrnicQp *qp)
{
    int64_t timeout = qrnic_ack_timeout_ns(qp->attr.timeout);

    if (!timeout || !qp->out->patience) {
        return timeout;
    }
    return MAX(timeout, qp->out->patience(qp) / (qp->attr.retry_cnt + 1));
}

void qrnic_requester_deadline(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    int64_t timeout = transport_timeout(qp);
    bool waits = r->connect || r->una != r->cursor_psn ||
                 (r->una != r->sent_psn &&
                  qrnic_path_wait(e, qp) != QRNIC_LIST_READY);

    if (r->blocked & QRNIC_BLOCKED_RNR) {
        return;
    }
    deadline_set(e, qp, timeout && waits ?
                        qrnic_selective_wait(e, r, qrnic_now(e) + timeout) :
                        QRNIC_DEADLINE_NEVER);
}

void qrnic_requester_delivered(QrnicEngine *e, QrnicQp *qp)
{
    if (qrnic_requester_may_run(qp)) {
        qrnic_requester_deadline(e, qp);
    }
}

/*
 * Handles an expired timer of selective repeat, which may send a probe. Returns
 * false without selective repeat, or if the transport timer has expired, too.
 */
static bool looked(QrnicEngine *e, QrnicQp *qp, bool waits)
{
    QrnicRequester *r = qp->requester;

    if (!r->selective || qrnic_now(e) >= r->selective->expires) {
        return false;
    }
    if (!waits && r->una != r->sent_psn && !r->connect) {
        qrnic_selective_probe(e, qp);
    }
    deadline_set(e, qp, qrnic_selective_wait(e, r, r->selective->expires));
    return true;
}

/*
 * Moves the cursor back to the oldest unacknowledged packet (go-back-N).
 * Selective repeat then skips packets that are known to have arrived.
 */
static void requester_rewind(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    qrnic_cursor_rewind(r);
    qrnic_selective_lose_all(r);
    qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_WINDOW | QRNIC_BLOCKED_PROBE);
    if (r->connect) {
        qrnic_requester_connect_set(e, qp, QRNIC_CONNECT_DUE);
    }
    if (!(r->blocked & QRNIC_BLOCKED_RNR)) {
        qrnic_requester_deadline(e, qp);
        qrnic_schedule(e, qp);
    }
}

void qrnic_requester_resume(QrnicEngine *e, QrnicQp *qp)
{
    if (!qrnic_requester_may_run(qp)) {
        return;
    }
    qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_PAGE);
    if (qp->requester->recovery == QRNIC_RECOVERY_RESPONSE_DROPPED) {
        /* Responses that are still in flight report no new loss. */
        qrnic_requester_recovery_set(e, qp, QRNIC_RECOVERY_BEGUN);
        requester_rewind(e, qp);
    } else {
        qrnic_requester_deadline(e, qp);
    }
}

bool qrnic_requester_rnr_wait(QrnicEngine *e, QrnicQp *qp, int64_t ns,
                              uint8_t syndrome)
{
    QrnicRequester *r = qp->requester;

    if (qp->attr.rnr_retry != 7 && !r->rnr_retries--) {
        qrnic_requester_fail(e, qp, QRNIC_WC_RNR_RETRY_EXC_ERR, syndrome);
        return false;
    }
    qrnic_requester_block(e, qp, QRNIC_BLOCKED_RNR);
    requester_rewind(e, qp);
    deadline_set(e, qp, qrnic_now(e) + ns);
    return true;
}

void qrnic_requester_suspend(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_requester_block(e, qp, QRNIC_BLOCKED_CONNECTION);
}

void qrnic_requester_continue(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_CONNECTION);
    qrnic_schedule(e, qp);
}

void qrnic_requester_connect(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_requester_connect_set(e, qp, QRNIC_CONNECT_DUE);
    qrnic_requester_block(e, qp, QRNIC_BLOCKED_CONNECTION);
    qrnic_requester_recovery_set(e, qp, QRNIC_RECOVERY_NONE);
    qp->requester->credit_limited = false;
    qrnic_requester_attr_changed(e, qp);
}

bool qrnic_requester_connect_is_due(const QrnicQp *qp)
{
    const QrnicRequester *r = qp->requester;

    return r->connect == QRNIC_CONNECT_DUE && !(r->blocked & QRNIC_BLOCKED_RNR);
}

bool qrnic_requester_is_connecting(const QrnicQp *qp)
{
    return qp->requester->connect != QRNIC_CONNECT_NONE;
}

void qrnic_requester_connect_sent(QrnicEngine *e, QrnicQp *qp, bool wait)
{
    qrnic_requester_connect_set(e, qp, QRNIC_CONNECT_SENT);
    if (wait) {
        qrnic_requester_block(e, qp, QRNIC_BLOCKED_CONNECTION);
    } else {
        qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_CONNECTION);
    }
    qrnic_requester_deadline(e, qp);
}

bool qrnic_requester_connect_again(QrnicEngine *e, QrnicQp *qp, int64_t ns,
                                   uint8_t syndrome)
{
    /* During the wait another CNAK is a duplicate, so it is ignored. */
    if (qp->requester->blocked & QRNIC_BLOCKED_RNR ||
        !qrnic_requester_rnr_wait(e, qp, ns, syndrome)) {
        return false;
    }
    qrnic_requester_block(e, qp, QRNIC_BLOCKED_CONNECTION);
    return true;
}

void qrnic_requester_connected(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_requester_connect_set(e, qp, QRNIC_CONNECT_NONE);
    qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_CONNECTION);
    qrnic_requester_attr_changed(e, qp);
    qrnic_requester_deadline(e, qp);
    qrnic_schedule(e, qp);
}

/*
 * Returns true if the loss consumes a retry. With go-back-N each sequence gap
 * causes one retransmission, so each one counts. Selective repeat may
 * retransmit often before a slow responder makes progress. So its losses count
 * once per timeout, because answers prove that the responder is alive. An
 * expired timer always counts.
 */
static bool counts(QrnicEngine *e, const QrnicQp *qp, uint8_t syndrome)
{
    const QrnicSelective *s = qp->requester->selective;

    return !s || syndrome == QRNIC_SYN_TIMEOUT || !s->counted ||
           qrnic_now(e) - s->counted_at >=
           MAX(qrnic_ack_timeout_ns(qp->attr.timeout),
               qrnic_selective_patience(s));
}

bool qrnic_requester_retry_count(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome)
{
    QrnicRequester *r = qp->requester;

    trace_qrnic_requester_retry(e->config.name, qp->number, r->una, r->retries,
                                qrnic_syndrome_name(syndrome));
    if (!counts(e, qp, syndrome)) {
        return true;
    }
    if (r->retries == 0) {
        qrnic_add(e, QRNIC_COUNTER_RETRY_EXCEEDED, 1);
        qrnic_requester_fail(e, qp, QRNIC_WC_RETRY_EXC_ERR, syndrome);
        return false;
    }
    r->retries--;
    if (r->selective) {
        r->selective->counted = true;
        r->selective->counted_at = qrnic_now(e);
    }
    return true;
}

void qrnic_requester_retry(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome)
{
    if (qrnic_requester_retry_count(e, qp, syndrome)) {
        requester_rewind(e, qp);
    }
}

void qrnic_requester_implied_nak(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicPacket *pkt)
{
    QrnicRequester *r = qp->requester;

    if (r->cursor_psn == r->una ||
        r->recovery == QRNIC_RECOVERY_RESPONSE_DROPPED) {
        return;
    }
    if (r->selective) {
        if (qrnic_selective_is_passed(r, pkt)) {
            qrnic_add(e, QRNIC_COUNTER_IMPLIED_NAK, 1);
            if (qrnic_requester_retry_count(e, qp, QRNIC_SYN_SEQUENCE)) {
                qrnic_selective_ask(e, qp);
            }
        }
        return;
    }
    /* The other responses of the same burst report no new loss. */
    if (r->recovery == QRNIC_RECOVERY_BEGUN) {
        return;
    }
    qrnic_requester_recovery_set(e, qp, QRNIC_RECOVERY_BEGUN);
    qrnic_add(e, QRNIC_COUNTER_IMPLIED_NAK, 1);
    qrnic_requester_retry(e, qp, QRNIC_SYN_SEQUENCE);
}

void qrnic_requester_timer(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    bool waits;

    if (r->deadline == QRNIC_DEADLINE_NEVER || !qrnic_requester_may_run(qp)) {
        return;
    }
    if (qrnic_now(e) < r->deadline) {
        deadline_set(e, qp, r->deadline);
        return;
    }
    r->deadline = QRNIC_DEADLINE_NEVER;
    if (r->blocked & QRNIC_BLOCKED_RNR) {
        qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_RNR);
        qrnic_requester_deadline(e, qp);
        qrnic_schedule(e, qp);
        return;
    }
    /*
     * The requester is blocked until software answers the page fault, so it
     * cannot retransmit now.
     */
    if (r->blocked & QRNIC_BLOCKED_PAGE) {
        return;
    }
    /*
     * While a slow wire has not accepted the packets, no peer can have answered
     * them. A retransmission would only make the queue before the wire longer.
     */
    waits = qp->out->has_unsent && r->cursor_psn != r->una ?
            qp->out->has_unsent(e, qp) :
            qrnic_path_wait(e, qp) != QRNIC_LIST_READY;
    if (looked(e, qp, waits)) {
        return;
    }
    if (waits && !qrnic_path_stands_still(e, qp, &r->wire_epoch)) {
        qrnic_requester_deadline(e, qp);
        return;
    }
    /*
     * The rate limit may still delay the packet that requests an answer. The
     * timer restarts when that packet is sent.
     */
    if (qrnic_pace_is_limited(qp) && r->asked_psn == r->una && !waits &&
        !r->connect) {
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_TIMEOUTS, 1);
    qrnic_requester_recovery_set(e, qp, QRNIC_RECOVERY_NONE);
    qrnic_requester_retry(e, qp, QRNIC_SYN_TIMEOUT);
}
