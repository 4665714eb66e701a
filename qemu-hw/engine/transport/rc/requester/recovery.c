/*
 * qrnic engine: the requester of a reliable connection: timeouts, repetition
 *
 * InfiniBand specification, 9.7.5.2, 9.7.6 and 9.9.2.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_rate.h"
#include "engine/transport/rc/requester/requester.h"

/*
 * The heap is touched only for an earlier deadline: a later one is found when
 * the earlier one fires, and most never come to that.
 */
static void deadline_set(QrnicEngine *e, QrnicQp *qp, int64_t deadline)
{
    qp->requester->deadline = deadline;
    qrnic_timer_advance(e, &qp->timer, deadline);
}

void qrnic_requester_deadline(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    int64_t timeout = qrnic_ack_timeout_ns(qp->attr.timeout);
    bool waits = r->connecting || r->una != r->cursor_psn ||
                 (r->una != r->sent_psn &&
                  qrnic_path_wait(e, qp) != QRNIC_TURN_MORE);

    if (r->rnr_wait) {
        return;
    }
    deadline_set(e, qp, timeout && waits ?
                        qrnic_selective_wait(e, r, qrnic_now(e) + timeout) :
                        QRNIC_DEADLINE_NEVER);
}

/* The timer is not that of the transport yet. True: that was for it. */
static bool looked(QrnicEngine *e, QrnicQp *qp, bool waits)
{
    QrnicRequester *r = qp->requester;

    if (!r->selective || qrnic_now(e) >= r->selective->expires) {
        return false;
    }
    if (!waits && r->una != r->sent_psn && !r->connecting) {
        qrnic_selective_probe(e, qp);
    }
    deadline_set(e, qp, qrnic_selective_wait(e, r, r->selective->expires));
    return true;
}

/*
 * Go-back-N: sending goes on at the oldest packet without an answer, and leaves
 * out what is known to have arrived.
 */
static void requester_rewind(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    r->cursor = r->tail;
    r->cursor_psn = r->asked_psn = r->una;
    qrnic_selective_lose_all(r);
    r->probing = false;
    r->stalled = false;
    r->connect_due = r->connecting;
    if (!r->rnr_wait) {
        qrnic_requester_deadline(e, qp);
        qrnic_schedule(e, qp);
    }
}

void qrnic_requester_resume(QrnicEngine *e, QrnicQp *qp)
{
    if (!qrnic_requester_may_run(qp)) {
        return;
    }
    if (qp->requester->response_dropped) {
        qp->requester->response_dropped = false;
        /* What is still on its way from before tells nothing new. */
        qp->requester->recovering = true;
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
    r->rnr_wait = true;
    requester_rewind(e, qp);
    deadline_set(e, qp, qrnic_now(e) + ns);
    return true;
}

void qrnic_requester_suspend(QrnicEngine *e, QrnicQp *qp)
{
    qp->requester->held = true;
}

void qrnic_requester_continue(QrnicEngine *e, QrnicQp *qp)
{
    qp->requester->held = false;
    qrnic_schedule(e, qp);
}

void qrnic_requester_connect(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    r->held = r->connecting = r->connect_due = true;
    r->recovering = r->credit_limited = false;
    qrnic_requester_attr_changed(e, qp);
}

bool qrnic_requester_connect_is_due(const QrnicQp *qp)
{
    return qp->requester->connect_due && !qp->requester->rnr_wait;
}

bool qrnic_requester_is_connecting(const QrnicQp *qp)
{
    return qp->requester->connecting;
}

void qrnic_requester_connect_sent(QrnicEngine *e, QrnicQp *qp, bool wait)
{
    qp->requester->connect_due = false;
    qp->requester->held = wait;
    qrnic_requester_deadline(e, qp);
}

bool qrnic_requester_connect_again(QrnicEngine *e, QrnicQp *qp, int64_t ns,
                                   uint8_t syndrome)
{
    /* While it waits, another CNAK is a duplicate. */
    if (qp->requester->rnr_wait ||
        !qrnic_requester_rnr_wait(e, qp, ns, syndrome)) {
        return false;
    }
    qp->requester->held = true;
    return true;
}

void qrnic_requester_connected(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    r->connecting = r->connect_due = r->held = false;
    qrnic_requester_attr_changed(e, qp);
    qrnic_requester_deadline(e, qp);
    qrnic_schedule(e, qp);
}

/*
 * Go-back-N asks once for a gap, and that counts. Selective repeat may send
 * again many times before the other end, which answers, has come to that: it
 * counts once in the time in which the timer would expire.
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

    if (r->cursor_psn == r->una || r->response_dropped) {
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
    /* The rest of the same burst tells nothing new. */
    if (r->recovering) {
        return;
    }
    r->recovering = true;
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
    if (r->rnr_wait) {
        r->rnr_wait = false;
        qrnic_requester_deadline(e, qp);
        qrnic_schedule(e, qp);
        return;
    }
    /* Nothing could be sent again before the page is there. */
    if (qrnic_page_fault_waits(qp, QRNIC_SIDE_SEND)) {
        return;
    }
    /*
     * What a slow wire has not taken yet, nobody can have answered; sending it
     * again would only make the queue before the wire longer.
     */
    waits = qrnic_path_wait(e, qp) != QRNIC_TURN_MORE ||
            (qp->out->has_unsent && qp->out->has_unsent(qp));
    if (looked(e, qp, waits)) {
        return;
    }
    if (waits && !qrnic_path_stands_still(e, qp, &r->wire_epoch)) {
        qrnic_requester_deadline(e, qp);
        return;
    }
    /* Nor what its rate limit lets nobody ask for yet; sending restarts it. */
    if (qrnic_pace_is_limited(qp) && r->asked_psn == r->una && !waits &&
        !r->connecting) {
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_TIMEOUTS, 1);
    r->recovering = false;
    qrnic_requester_retry(e, qp, QRNIC_SYN_TIMEOUT);
}
