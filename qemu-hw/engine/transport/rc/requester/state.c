/*
 * qrnic engine: the requester of a reliable connection: its states
 *
 * Three members of QrnicRequester limit the requester: blocked, recovery and
 * connect. Only the functions of this file change these members, so that each
 * change is traced and checked. The files send.c, responses.c and recovery.c
 * call them when a cause begins or ends. Each caller then calls
 * qrnic_schedule() if a packet may be sent.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * Member blocked: each bit is a cause, and several causes may hold at a time.
 * The requester sends a packet only if no bit forbids it. Only the event of its
 * own cause removes a bit.
 *
 * Member una is the lowest PSN that is not acknowledged.
 * Member sent_psn is one above the highest PSN ever sent.
 * The cursor is the next message and PSN to send; go-back-N moves it to una.
 * A step is a call of qrnic_requester_step(): at most one packet or one local
 * operation.
 *
 *                   +--------------------- ready ---------------------+
 *     RNR NAK, CNAK |   absent page |   WQE to another | window full, | probe
 *                   v               v   target         v fence, ...   v sent
 *                  RNR             PAGE  CONNECTION  WINDOW         PROBE
 *             timer |      software |   ACCEPT |      answer |       | answer
 *                   +---------------+----------+-------------+-------+
 *
 *     The drawing shows each cause alone. Causes combine, and "ready" means
 *     that no bit is set.
 *     No event clears ERROR: the queue pair goes to ERR.
 *
 * QRNIC_BLOCKED_RNR: the peer is not ready.
 *   - qrnic_requester_rnr_wait() enters it: an RNR NAK, or a CNAK of a dynamic
 *     target without a free responder, has arrived.
 *   - deadline is the end of the wait, and no transport timer runs. The cursor
 *     has been at una since then.
 *   - qrnic_requester_timer() leaves it.
 *
 * QRNIC_BLOCKED_PAGE: an access to the memory of this host met an absent page.
 *   - qrnic_requester_page_fault() enters it when a packet is gathered or a
 *     response is scattered (then recovery is RESPONSE_DROPPED). A step enters
 *     it when a local operation waits.
 *   - qp->wait[QRNIC_SIDE_SEND] is the page fault. An expired transport timer
 *     does nothing, because the payload to retransmit cannot be read.
 *   - qrnic_requester_resume() leaves it: software has answered.
 *
 * QRNIC_BLOCKED_CONNECTION: the queue pair is not connected.
 *   - qrnic_requester_connect() enters it when the next WQE leads to another
 *     target, and qrnic_requester_connect_again() when the target is busy.
 *   - qrnic_requester_suspend() enters it for a carrier whose peer is unknown.
 *   - connect is not NONE, or attr.dest_qpn of the carrier is 0.
 *   - qrnic_requester_connected() leaves it: ACCEPT, or any other packet of the
 *     target, has arrived. Without a full handshake
 *     qrnic_requester_connect_sent() does. qrnic_requester_continue() does for
 *     a carrier.
 *
 * QRNIC_BLOCKED_WINDOW: the packet at the cursor needs an answer first.
 *   - A step enters it if the window, the ring of messages, max_rd_atomic or
 *     the credits are exhausted, or if a fence holds. A step also enters it if
 *     the WQE leads to another target while messages are in flight.
 *   - The ring is not empty, so an answer or the transport timer follows.
 *   - Any answer that changes una, credits or the cursor leaves it, and so does
 *     a retransmission. Each step checks it again, because the cursor may have
 *     skipped a packet that has arrived.
 *
 * QRNIC_BLOCKED_PROBE: a packet was sent without credit (9.7.7.2.5).
 *   - A step enters it.
 *   - una is before sent_psn. Packets wait, but a local operation is executed.
 *   - Progress of una leaves it, and so does a retransmission.
 *
 * QRNIC_BLOCKED_ERROR: a message has failed here.
 *   - A step enters it: the WQE is bad, or its memory is.
 *   - One message of the ring has a status. No further WQE is consumed.
 *     Packets of messages before it are still retransmitted, because their
 *     completions come first.
 *   - The queue pair goes to ERR when the message is the oldest one
 *     (qrnic_requester_retire()).
 *
 * Member recovery: the reaction to a lost response.
 *
 * QRNIC_RECOVERY_NONE: no response is known to be lost.
 * QRNIC_RECOVERY_BEGUN: go-back-N has begun because of an implied NAK.
 *   - qrnic_requester_implied_nak() and qrnic_requester_resume() enter it.
 *   - Other implied NAKs are ignored, because they are of the same burst.
 *   - Progress of una, an expired transport timer or a new connection leaves
 *     it.
 * QRNIC_RECOVERY_RESPONSE_DROPPED: a response met an absent page.
 *   - receive_response() enters it. una is the PSN of the response.
 *   - BLOCKED_PAGE is set. All responses are dropped.
 *   - qrnic_requester_resume() leaves it to BEGUN and retransmits.
 *
 * Member connect: the connection of a dynamic initiator.
 *
 * QRNIC_CONNECT_NONE: the connection is accepted, or the queue pair has another
 *   type.
 * QRNIC_CONNECT_DUE: CONNECT is the next packet, unless BLOCKED_RNR is set.
 *   - qrnic_requester_connect() and each retransmission enter it.
 *   - qrnic_requester_connect_sent() leaves it to SENT.
 * QRNIC_CONNECT_SENT: CONNECT has been sent, and no answer has arrived.
 *   - The transport timer runs.
 *   - qrnic_requester_connected() leaves it to NONE, a retransmission to DUE.
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "trace.h"
#include "engine/transport/rc/requester/requester.h"

static const char *const cause_names[] = {
    "RNR", "page", "connection", "window", "probe", "error",
};

/* Asserts the conditions that hold when a cause begins. */
static void check_entered(const QrnicQp *qp, uint8_t cause)
{
    const QrnicRequester *r = qp->requester;

    switch (cause) {
    case QRNIC_BLOCKED_RNR:
        g_assert(r->una != r->sent_psn || r->connect);
        break;
    case QRNIC_BLOCKED_PAGE:
        g_assert(qrnic_page_fault_waits(qp, QRNIC_SIDE_SEND));
        break;
    case QRNIC_BLOCKED_CONNECTION:
        g_assert(r->connect || !qp->attr.dest_qpn);
        break;
    case QRNIC_BLOCKED_WINDOW:
    case QRNIC_BLOCKED_ERROR:
        g_assert(r->tail != r->head);
        break;
    case QRNIC_BLOCKED_PROBE:
        g_assert(r->una != r->sent_psn);
        break;
    default:
        g_assert_not_reached();
    }
}

void qrnic_requester_block(QrnicEngine *e, QrnicQp *qp, uint8_t cause)
{
    QrnicRequester *r = qp->requester;

    check_entered(qp, cause);
    if (!(r->blocked & cause)) {
        r->blocked |= cause;
        trace_qrnic_requester_block(e->config.name, qp->number,
                                    cause_names[ctz32(cause)], r->blocked);
    }
}

void qrnic_requester_unblocked(QrnicEngine *e, QrnicQp *qp, uint8_t causes)
{
    QrnicRequester *r = qp->requester;
    uint8_t removed = r->blocked & causes;

    g_assert(!(removed & QRNIC_BLOCKED_ERROR));
    g_assert(!(removed & QRNIC_BLOCKED_PAGE) ||
             !qrnic_page_fault_waits(qp, QRNIC_SIDE_SEND));
    g_assert(!(removed & QRNIC_BLOCKED_CONNECTION) ||
             r->connect != QRNIC_CONNECT_DUE);
    for (; removed; removed &= removed - 1) {
        r->blocked &= ~(removed & -removed);
        trace_qrnic_requester_unblock(e->config.name, qp->number,
                                      cause_names[ctz32(removed)], r->blocked);
    }
}

void qrnic_requester_recovery_changed(QrnicEngine *e, QrnicQp *qp,
                                      QrnicRecovery to)
{
    static const char *const names[] = { "none", "begun", "response dropped" };
    QrnicRequester *r = qp->requester;

    if (to == QRNIC_RECOVERY_RESPONSE_DROPPED) {
        g_assert(r->blocked & QRNIC_BLOCKED_PAGE);
    } else if (r->recovery == QRNIC_RECOVERY_RESPONSE_DROPPED) {
        g_assert(to == QRNIC_RECOVERY_BEGUN);
    }
    trace_qrnic_requester_recovery(e->config.name, qp->number,
                                   names[r->recovery], names[to]);
    r->recovery = to;
}

void qrnic_requester_connect_set(QrnicEngine *e, QrnicQp *qp, QrnicConnect to)
{
    static const char *const names[] = { "none", "due", "sent" };
    QrnicRequester *r = qp->requester;

    g_assert(to != QRNIC_CONNECT_SENT || r->connect == QRNIC_CONNECT_DUE);
    trace_qrnic_requester_connect(e->config.name, qp->number,
                                  names[r->connect], names[to]);
    r->connect = to;
}
