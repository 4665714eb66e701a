/*
 * qrnic engine, transport: the requester receives responses
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * rc_receive() calls qrnic_requester_receive() for each ACK, NAK, SACK and
 * response of a read or atomic. A response first acknowledges all earlier PSNs,
 * and then is processed itself. r->una is the lowest unacknowledged PSN between
 * calls. Nothing is sent from here: if the response allows to send, the queue
 * pair is scheduled.
 *
 * InfiniBand specification, 9.7.5 and 9.7.7.2.
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "trace.h"
#include "engine/transport/rc/requester/requester.h"

static void requester_wake(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    if (r->blocked & QRNIC_BLOCKED_WINDOW || qp->sq_draining) {
        qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_WINDOW);
        qrnic_schedule(e, qp);
    }
}

/*
 * Resets the retries, completes messages and restarts the timer, because una
 * has moved.
 */
static void requester_progress(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    r->retries = qp->attr.retry_cnt;
    r->rnr_retries = qp->attr.rnr_retry;
    qrnic_requester_recovery_set(e, qp, QRNIC_RECOVERY_NONE);
    qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_PROBE);
    qrnic_requester_retire(e, qp);
    if (qrnic_requester_may_run(qp)) {
        qrnic_requester_deadline(e, qp);
        requester_wake(e, qp);
    }
}

static void una_set(QrnicEngine *e, QrnicRequester *r, uint32_t psn)
{
    if (r->selective) {
        qrnic_selective_acknowledged(e, r, psn);
    }
    qrnic_cursor_acknowledged(r, psn);
}

/*
 * Moves una towards target, over messages that need only an ACK. Returns false
 * if a read or atomic without its response comes first.
 */
static bool requester_acknowledge(QrnicEngine *e, QrnicRequester *r,
                                  uint32_t target)
{
    for (uint32_t n = r->tail; r->una != target; n++) {
        QrnicMessage *p = qrnic_message_at(r, n);
        uint32_t end = qrnic_message_end(p);

        if (p->packets && qrnic_wqe_is_rd(p->opcode)) {
            return false;
        }
        if (qrnic_psn_distance(r->una, target) <
            qrnic_psn_distance(r->una, end)) {
            una_set(e, r, target);
        } else {
            una_set(e, r, end);
        }
    }
    return true;
}

/*
 * Processes the credits of an ACK (9.7.7.2): the number of receive WQEs that
 * the responder had after msn messages. The limit counts only messages that
 * consume a receive WQE, so that other messages need no correction.
 */
static void requester_credits(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome,
                              uint32_t msn)
{
    QrnicRequester *r = qp->requester;
    uint8_t code = syndrome & QRNIC_AETH_VALUE_MASK;
    uint32_t base = r->receives_done;

    if (code == QRNIC_CREDITS_INVALID) {
        r->credit_limited = false;
    } else {
        if ((r->ssn_done & 0xffffff) != msn) {
            uint32_t n = r->tail;

            while (n != r->head &&
                   (qrnic_message_at(r, n)->ssn & 0xffffff) != msn) {
                n++;
            }
            if (n == r->head) {
                return;         /* an old ACK */
            }
            base = qrnic_message_at(r, n)->receives;
        }
        r->credit_limited = true;
        r->receives_limit = base + qrnic_credits_decode(code);
    }
    requester_wake(e, qp);
}

static void drop_psn(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    qrnic_add(e, QRNIC_COUNTER_RX_DROP_PSN, 1);
    trace_qrnic_roce_drop(e->config.name, qp->number, pkt->t.psn, "PSN");
}

/*
 * Fails the queue pair because the response fits no request (9.9.2.4.2, class
 * B).
 */
static void bad_response(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_requester_fail(e, qp, QRNIC_WC_BAD_RESP_ERR, QRNIC_SYN_NONE);
}

static bool psn_outstanding(const QrnicRequester *r, uint32_t psn)
{
    return qrnic_psn_distance(r->una, psn) <
           qrnic_psn_distance(r->una, r->sent_psn);
}

/*
 * Acknowledges all PSNs before psn. Returns true if psn is now the lowest
 * unacknowledged PSN.
 */
static bool acknowledge_before(QrnicEngine *e, QrnicQp *qp,
                               const QrnicPacket *pkt, uint32_t psn)
{
    QrnicRequester *r = qp->requester;
    uint32_t una = r->una;
    bool all = requester_acknowledge(e, r, psn);

    if (r->una != una) {
        requester_progress(e, qp);
        if (!qrnic_requester_may_run(qp)) {
            return false;
        }
    }
    if (!all) {
        qrnic_requester_implied_nak(e, qp, pkt);
    }
    return all;
}

static void receive_positive_ack(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicPacket *pkt)
{
    QrnicRequester *r = qp->requester;

    /* A repeated ACK of the last PSN reports new credits. */
    if (qrnic_psn_add(pkt->t.psn, 1) == r->una) {
        requester_credits(e, qp, pkt->t.syndrome, pkt->t.msn);
        return;
    }
    if (!psn_outstanding(r, pkt->t.psn)) {
        drop_psn(e, qp, pkt);
        return;
    }
    if (acknowledge_before(e, qp, pkt, qrnic_psn_add(pkt->t.psn, 1)) &&
        qrnic_requester_may_run(qp)) {
        requester_credits(e, qp, pkt->t.syndrome, pkt->t.msn);
    }
}

static void receive_rnr(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicRequester *r = qp->requester;

    if (!acknowledge_before(e, qp, pkt, pkt->t.psn) ||
        r->blocked & QRNIC_BLOCKED_RNR) {
        return;
    }
    /*
     * The retransmitted packet has arrived, although the responder cannot
     * execute it yet. So its loss counts no longer.
     */
    r->retries = qp->attr.retry_cnt;
    qrnic_requester_rnr_wait(e, qp, qrnic_rnr_time_ns(pkt->t.syndrome &
                                                      QRNIC_AETH_VALUE_MASK),
                             QRNIC_SYN_NONE);
}

static void receive_nak(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    static const uint8_t status[] = {
        [QRNIC_NAK_INVALID - QRNIC_AETH_NAK] = QRNIC_WC_REM_INV_REQ_ERR,
        [QRNIC_NAK_ACCESS - QRNIC_AETH_NAK] = QRNIC_WC_REM_ACCESS_ERR,
        [QRNIC_NAK_OPERATION - QRNIC_AETH_NAK] = QRNIC_WC_REM_OP_ERR,
    };
    uint8_t code = pkt->t.syndrome & QRNIC_AETH_VALUE_MASK;
    QrnicRequester *r = qp->requester;

    if (code == 0) {
        qrnic_add(e, QRNIC_COUNTER_RX_NAK_SEQUENCE, 1);
        /* A NAK is ignored if the cursor is already at this PSN. */
        if (acknowledge_before(e, qp, pkt, pkt->t.psn) &&
            r->cursor_psn != r->una) {
            qrnic_requester_retry(e, qp, QRNIC_SYN_SEQUENCE);
        }
        return;
    }
    if (code >= ARRAY_SIZE(status)) {
        drop_psn(e, qp, pkt);   /* Reserved codes (9.3.4) */
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_RX_NAK_ERROR, 1);
    if (acknowledge_before(e, qp, pkt, pkt->t.psn)) {
        qrnic_requester_fail(e, qp, status[code], QRNIC_SYN_NONE);
    }
}

static void receive_ack(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicRequester *r = qp->requester;
    uint8_t type = pkt->t.syndrome & QRNIC_AETH_TYPE_MASK;

    trace_qrnic_requester_ack(e->config.name, qp->number, pkt->t.psn,
                              pkt->t.syndrome, pkt->t.msn, r->una);
    if (type == QRNIC_AETH_ACK) {
        qrnic_add(e, QRNIC_COUNTER_RX_ACK, 1);
        receive_positive_ack(e, qp, pkt);
        return;
    }
    if (!psn_outstanding(r, pkt->t.psn)) {
        drop_psn(e, qp, pkt);
    } else if (type == QRNIC_AETH_RNR) {
        qrnic_add(e, QRNIC_COUNTER_RX_RNR_NAK, 1);
        receive_rnr(e, qp, pkt);
    } else if (type == QRNIC_AETH_NAK) {
        receive_nak(e, qp, pkt);
    } else {
        drop_psn(e, qp, pkt);   /* Reserved type (9.3.4) */
    }
}

/*
 * Processes a SACK, which acknowledges all PSNs before a sequence gap and
 * reports PSNs that have arrived out of order. The responder sends it in place
 * of a NAK if selective repeat is in force.
 */
static void receive_sack(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicRequester *r = qp->requester;
    uint32_t missing = pkt->t.missing_psn;
    bool was_lost;

    trace_qrnic_requester_sack(e->config.name, qp->number, pkt->t.psn, missing,
                               r->una);
    if (!r->selective ||
        (pkt->t.syndrome & QRNIC_AETH_TYPE_MASK) != QRNIC_AETH_ACK ||
        (qrnic_psn_add(pkt->t.psn, 1) != r->una &&
         !psn_outstanding(r, pkt->t.psn)) ||
        /* A SACK must not acknowledge the PSN that it reports missing. */
        qrnic_psn_diff(pkt->t.psn, missing) >= 0) {
        drop_psn(e, qp, pkt);
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_RX_SACK, 1);
    qrnic_selective_named(r, &pkt->t);
    receive_positive_ack(e, qp, pkt);
    if (!qrnic_requester_may_run(qp)) {
        return;
    }
    /* A late SACK contains no news about packets sent after it. */
    if (!psn_outstanding(r, missing)) {
        drop_psn(e, qp, pkt);
        return;
    }
    was_lost = r->selective->state[r->una % QRNIC_WINDOW] == QRNIC_PSN_LOST;
    if (qrnic_selective_arrived(r, &pkt->t)) {
        if (!was_lost && r->selective->state[r->una % QRNIC_WINDOW] ==
            QRNIC_PSN_LOST &&
            !qrnic_requester_retry_count(e, qp, QRNIC_SYN_SEQUENCE)) {
            return;
        }
        qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_WINDOW);
        qrnic_schedule(e, qp);
    }
}

/* Writes len bytes of a response to the segments, from offset on. */
static uint8_t requester_scatter(QrnicEngine *e, QrnicQp *qp, QrnicMessage *p,
                                 uint64_t offset, const uint8_t *from,
                                 uint32_t len, QrnicFault *fault)
{
    const QrnicInitiated *i = p->initiated;

    for (uint32_t n = 0; len && n < i->num_sge; n++) {
        const QrnicSge *s = &i->sge[n];
        enum qrnic_syndrome syndrome;
        uint32_t part;
        QrnicMkey *k;

        if (offset >= s->length) {
            offset -= s->length;
            continue;
        }
        part = MIN(len, s->length - offset);
        syndrome = qrnic_memory_check(e, s->lkey, i->pd,
                                      s->addr + offset, part,
                                      QRNIC_ACCESS_LOCAL_WRITE, &k);
        if (syndrome) {
            qrnic_guest_error(e, QRNIC_GE_KEY_REFUSED, "SQ", qp->number,
                              "WQE at index %" PRIu32 ": lkey 0x%" PRIx32
                              ": %s", p->index, s->lkey,
                              qrnic_syndrome_name(syndrome));
            return syndrome;
        }
        syndrome = qrnic_memory_write(e, k, s->addr + offset, from, part,
                                      fault);
        if (syndrome) {
            return qrnic_fault_extend(fault, syndrome, s->length - offset);
        }
        from += part;
        len -= part;
        offset = 0;
    }
    return QRNIC_SYN_NONE;
}

/*
 * Returns true if the packet has the expected payload length and opcode for
 * this offset of the read.
 */
static bool read_response_fits(const QrnicQp *qp, const QrnicMessage *p,
                               const QrnicPacket *pkt, uint64_t offset)
{
    uint32_t mtu = qrnic_qp_mtu(qp);

    if (qrnic_wqe_is_write_or_flush(p->opcode)) {
        return (pkt->t.opcode & QRNIC_OPERATION_MASK) ==
               QRNIC_OP_RC_READ_RESPONSE_ONLY && !pkt->payload_len;
    }
    if (p->opcode != QRNIC_WQE_RDMA_READ) {
        return false;
    }
    /*
     * Only the end of a response is checked by the opcode, because the response
     * to a retransmitted read may begin at any packet.
     */
    if (qrnic_psn_add(pkt->t.psn, 1) == qrnic_message_end(p)) {
        return pkt->info->flags & QRNIC_OPF_END &&
               pkt->payload_len == p->length - offset;
    }
    return !(pkt->info->flags & QRNIC_OPF_END) && pkt->payload_len == mtu;
}

static void receive_response(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt)
{
    QrnicRequester *r = qp->requester;
    uint8_t syndrome, original[8];
    QrnicFault fault;
    QrnicMessage *p;
    uint64_t offset;

    /*
     * After a response has met an absent page, later ones are dropped, because
     * all arrive again after the retransmission.
     */
    if (r->recovery == QRNIC_RECOVERY_RESPONSE_DROPPED ||
        !psn_outstanding(r, pkt->t.psn)) {
        drop_psn(e, qp, pkt);
        return;
    }
    if (!acknowledge_before(e, qp, pkt, pkt->t.psn)) {
        return;
    }
    p = qrnic_message_at(r, r->tail);
    offset = (uint64_t)qrnic_psn_distance(p->first_psn, pkt->t.psn) *
             qrnic_qp_mtu(qp);
    if (pkt->info->flags & QRNIC_OPF_ATOMIC) {
        if (!qrnic_wqe_is_atomic(p->opcode)) {
            bad_response(e, qp);
            return;
        }
        /*
         * The original value is written in little endian, as a read would
         * return it.
         */
        stq_le_p(original, pkt->t.original);
        syndrome = requester_scatter(e, qp, p, 0, original, sizeof(original),
                                     &fault);
    } else {
        if (!read_response_fits(qp, p, pkt, offset)) {
            bad_response(e, qp);
            return;
        }
        syndrome = requester_scatter(e, qp, p, offset, pkt->payload,
                                     pkt->payload_len, &fault);
    }
    if (qrnic_requester_page_fault(e, qp, syndrome, &fault)) {
        qrnic_requester_recovery_set(e, qp, QRNIC_RECOVERY_RESPONSE_DROPPED);
        return;
    }
    if (syndrome) {
        qrnic_requester_fail(e, qp, QRNIC_WC_LOC_PROT_ERR, syndrome);
        return;
    }
    una_set(e, r, qrnic_psn_add(pkt->t.psn, 1));
    requester_progress(e, qp);
    if (pkt->info->flags & QRNIC_HDR_AETH && qrnic_requester_may_run(qp)) {
        requester_credits(e, qp, pkt->t.syndrome, pkt->t.msn);
    }
}

void qrnic_requester_receive(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt)
{
    switch (pkt->t.opcode & QRNIC_OPERATION_MASK) {
    case QRNIC_OP_RC_ACK:
        receive_ack(e, qp, pkt);
        break;
    case QRNIC_OP_RC_SACK:
        receive_sack(e, qp, pkt);
        break;
    default:
        receive_response(e, qp, pkt);
        break;
    }
}
