/*
 * qrnic engine: the requester of a reliable connection
 *
 * Takes send WQEs, sends their packets inside a window, and completes them in
 * order as responses come. InfiniBand specification, 9.7.2 to 9.7.8.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "trace.h"
#include "engine/transport/transport.h"

static inline QrnicPending *pending_at(QrnicRequester *r, uint32_t n)
{
    return &r->ring[n % QRNIC_PENDING];
}

static inline uint32_t pending_end(const QrnicPending *p)
{
    return qrnic_psn_add(p->first_psn, p->packets);
}

static bool is_atomic(uint8_t opcode)
{
    return opcode == QRNIC_WQE_ATOMIC_CMP_SWAP ||
           opcode == QRNIC_WQE_ATOMIC_FETCH_ADD;
}

/* Answered by a read response of no bytes (A19) */
static bool is_write_or_flush(uint8_t opcode)
{
    return opcode == QRNIC_WQE_ATOMIC_WRITE || opcode == QRNIC_WQE_FLUSH;
}

/* Reads, atomics and the like: answered by more than an ACK. */
static bool is_rd(uint8_t opcode)
{
    return opcode == QRNIC_WQE_RDMA_READ || is_atomic(opcode) ||
           is_write_or_flush(opcode);
}

static bool is_send(uint8_t opcode)
{
    return opcode == QRNIC_WQE_SEND || opcode == QRNIC_WQE_SEND_IMM ||
           opcode == QRNIC_WQE_SEND_INV;
}

static bool takes_receive(uint8_t opcode)
{
    return is_send(opcode) || opcode == QRNIC_WQE_RDMA_WRITE_IMM;
}

static QrnicInitiated *initiated_of(QrnicRequester *r, const QrnicPending *p)
{
    return &r->initiated[p->rd_number % r->initiated_count];
}

static bool may_run(const QrnicQp *qp)
{
    return qp->state == QRNIC_QPS_RTS || qp->state == QRNIC_QPS_SQD;
}

/*
 * The heap is touched only for an earlier deadline: a later one is found when
 * the earlier one fires, and most never come to that.
 */
static void deadline_set(QrnicEngine *e, QrnicQp *qp, int64_t deadline)
{
    qp->requester->deadline = deadline;
    qrnic_timer_advance(e, &qp->timer, deadline);
}

/*
 * Restarts the transport timer if packets wait for an answer (9.7.6.1.3), or
 * to be sent again by a wire that may stand still.
 */
static void deadline_restart(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    int64_t timeout = qrnic_ack_timeout_ns(qp->attr.timeout);
    bool waits = r->una != r->cursor_psn ||
                 (r->una != r->sent_psn && qrnic_wire_busy(e));

    if (r->rnr_wait) {
        return;
    }
    deadline_set(e, qp, timeout && waits ? qrnic_now(e) + timeout :
                                           QRNIC_DEADLINE_NEVER);
}

/* The message at the tail failed: an error completion, and ERR (9.9.2.1). */
static void requester_fail(QrnicEngine *e, QrnicQp *qp, uint8_t status,
                           uint8_t syndrome)
{
    QrnicRequester *r = qp->requester;
    QrnicPending *p = pending_at(r, r->tail++);

    trace_qrnic_requester_error(e->config.name, qp->number, p->index, r->una,
                                qrnic_wc_status_name(status), syndrome);
    qrnic_complete_sq(e, qp, p->index, p->wqebbs, p->opcode, p->flags, status,
                      syndrome, 0);
    qrnic_qp_error(e, qp, 0, 0);
}

/* Completes what is acknowledged, in order. */
static void requester_retire(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    while (r->tail != r->head && may_run(qp)) {
        QrnicPending *p = pending_at(r, r->tail);
        bool rd = is_rd(p->opcode);

        if (p->status) {
            requester_fail(e, qp, p->status, p->syndrome);
            return;
        }
        if (p->packets ?
            qrnic_psn_distance(p->first_psn, r->una) < p->packets :
            !p->executed) {
            break;
        }
        /* An answer to what was sent before the cursor went back. */
        if (r->cursor == r->tail) {
            r->cursor++;
            r->cursor_psn = pending_end(p);
        }
        r->tail++;
        r->ssn_done = p->ssn;
        r->receives_done = p->receives;
        r->rd_done += rd;
        qrnic_complete_sq(e, qp, p->index, p->wqebbs, p->opcode, p->flags,
                          QRNIC_WC_SUCCESS, QRNIC_SYN_NONE,
                          rd ? p->length : 0);
    }
    if (qrnic_psn_diff(r->una, r->cursor_psn) > 0) {
        r->cursor_psn = r->una;
    }
}

static void requester_wake(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    if (r->stalled || qp->sq_draining) {
        r->stalled = false;
        qrnic_schedule(e, qp);
    }
}

/* una has moved. */
static void requester_progress(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    r->retries = qp->attr.retry_cnt;
    r->rnr_retries = qp->attr.rnr_retry;
    r->recovering = false;
    r->probing = false;
    requester_retire(e, qp);
    if (may_run(qp)) {
        deadline_restart(e, qp);
        requester_wake(e, qp);
    }
}

/* Seen from the old una both are ahead, by no more than half of all PSNs. */
static void una_set(QrnicRequester *r, uint32_t psn)
{
    if (qrnic_psn_distance(r->una, r->asked_psn) <
        qrnic_psn_distance(r->una, psn)) {
        r->asked_psn = psn;
    }
    r->una = psn;
}

/*
 * Moves una towards target, over what needs no more than an ACK. False: a read
 * or atomic without its response is in the way.
 */
static bool requester_acknowledge(QrnicRequester *r, uint32_t target)
{
    for (uint32_t n = r->tail; r->una != target; n++) {
        QrnicPending *p = pending_at(r, n);
        uint32_t end = pending_end(p);

        if (p->packets && is_rd(p->opcode)) {
            return false;
        }
        if (qrnic_psn_distance(r->una, target) <
            qrnic_psn_distance(r->una, end)) {
            una_set(r, target);
        } else {
            una_set(r, end);
        }
    }
    return true;
}

/* Go-back-N: sending goes on at the oldest packet without an answer. */
static void requester_rewind(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    r->cursor = r->tail;
    r->cursor_psn = r->asked_psn = r->una;
    r->probing = false;
    r->stalled = false;
    if (!r->rnr_wait) {
        deadline_restart(e, qp);
        qrnic_schedule(e, qp);
    }
}

static void requester_retry(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome)
{
    QrnicRequester *r = qp->requester;

    trace_qrnic_requester_retry(e->config.name, qp->number, r->una, r->retries,
                                qrnic_syndrome_name(syndrome));
    if (r->retries == 0) {
        qrnic_add(e, QRNIC_COUNTER_RETRY_EXCEEDED, 1);
        requester_fail(e, qp, QRNIC_WC_RETRY_EXC_ERR, syndrome);
        return;
    }
    r->retries--;
    requester_rewind(e, qp);
}

/* A response shows that those of an earlier read were lost (9.7.5.1.3). */
static void requester_implied_nak(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    /* The rest of the same burst tells nothing new. */
    if (r->recovering || r->cursor_psn == r->una) {
        return;
    }
    r->recovering = true;
    qrnic_add(e, QRNIC_COUNTER_IMPLIED_NAK, 1);
    requester_retry(e, qp, QRNIC_SYN_SEQUENCE);
}

/*
 * Credits (9.7.7.2): after msn messages the responder had so many receive
 * WQEs. Only messages that take one count here, so that the limit need not be
 * corrected for those that take none.
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

            while (n != r->head && (pending_at(r, n)->ssn & 0xffffff) != msn) {
                n++;
            }
            if (n == r->head) {
                return;         /* of long ago */
            }
            base = pending_at(r, n)->receives;
        }
        r->credit_limited = true;
        r->receives_limit = base + qrnic_credits_decode(code);
    }
    requester_wake(e, qp);
}

/*
 * Sending
 */

static bool sges_check(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *w,
                       QrnicPending *p)
{
    uint8_t access = is_rd(w->opcode) ? QRNIC_ACCESS_LOCAL_WRITE : 0;

    for (uint32_t i = 0; i < w->num_sge; i++) {
        const QrnicSge *s = &w->sge[i];
        enum qrnic_syndrome syndrome;
        QrnicMkey *k;

        if (!s->length) {
            continue;
        }
        syndrome = qrnic_memory_check(e, s->lkey, qp->pd->number, s->addr,
                                      s->length, access, &k);
        if (syndrome) {
            qrnic_guest_error(e, QRNIC_GE_KEY_REFUSED, "SQ", qp->number,
                              "index %" PRIu32 ": lkey 0x%" PRIx32 " %s",
                              w->index, s->lkey, qrnic_syndrome_name(syndrome));
            p->status = QRNIC_WC_LOC_PROT_ERR;
            p->syndrome = syndrome;
            return false;
        }
    }
    return true;
}

static void initiated_fill(QrnicInitiated *i, const QrnicSendWqe *w)
{
    i->va = w->remote_addr;
    i->rkey = w->rkey;
    i->srqn = w->srqn;
    i->swap_add = w->swap_add;
    i->compare = w->compare;
    i->flush = w->flush;
    i->num_sge = w->num_sge;
    memcpy(i->sge, w->sge, w->num_sge * sizeof(w->sge[0]));
}

/* The next WQE of the queue becomes the message at the cursor. */
static bool requester_take(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    QrnicSendWqe *w = &r->wqe;
    uint8_t status, syndrome;
    QrnicPending *p;

    if (r->stopped || qp->state != QRNIC_QPS_RTS) {
        return false;
    }
    if (r->head - r->tail == QRNIC_PENDING) {
        r->stalled = true;
        return false;
    }
    p = pending_at(r, r->head);
    memset(p, 0, sizeof(*p));
    r->wqe_loaded = false;
    switch (qrnic_sq_take(e, qp, w, &status, &syndrome)) {
    case QRNIC_TAKE_EMPTY:
    case QRNIC_TAKE_BROKEN:     /* only an SRQ ever is */
        return false;
    case QRNIC_TAKE_ERROR:
        p->index = w->index;
        p->wqebbs = w->wqebbs;
        p->status = status;
        p->syndrome = syndrome;
        break;
    case QRNIC_TAKE_OK:
        p->index = w->index;
        p->wqebbs = w->wqebbs;
        p->opcode = w->opcode;
        p->flags = w->flags;
        p->length = w->length;
        if (is_rd(w->opcode) && !qp->attr.max_rd_atomic) {
            qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, "SQ", qp->number,
                              "WQE at index %" PRIu32 ": a read or atomic, "
                              "and max_rd_atomic is 0", w->index);
            p->status = QRNIC_WC_LOC_QP_OP_ERR;
            p->syndrome = QRNIC_SYN_RD_ATOMIC;
        } else if (w->opcode != QRNIC_WQE_NOP &&
                   !qrnic_is_local_operation(w->opcode) &&
                   sges_check(e, qp, w, p)) {
            p->packets = qrnic_psn_count(w->length, qrnic_qp_mtu(qp));
            r->ssn++;
            r->receives_taken += takes_receive(w->opcode);
            r->rd_taken += is_rd(w->opcode);
        }
        break;
    }
    p->first_psn = r->next_psn;
    p->ssn = r->ssn;
    p->receives = r->receives_taken;
    p->rd_number = r->rd_taken;
    if (p->packets && is_rd(p->opcode)) {
        initiated_fill(initiated_of(r, p), w);
    }
    r->stopped = p->status != 0;
    r->next_psn = pending_end(p);
    r->wqe_loaded = true;
    r->wqe_message = r->head++;
    trace_qrnic_requester_take(e->config.name, qp->number, p->index,
                               qrnic_wqe_opcode_name(p->opcode), p->length,
                               p->first_psn, p->packets, p->status);
    return true;
}

/* The WQE of the message at the cursor, again from memory if need be. */
static bool requester_load(QrnicEngine *e, QrnicQp *qp, QrnicPending *p)
{
    QrnicRequester *r = qp->requester;
    QrnicSendWqe *w = &r->wqe;

    if (r->wqe_loaded && r->wqe_message == r->cursor) {
        return true;
    }
    r->wqe_loaded = false;
    if (qrnic_sq_refetch(e, qp, p->index, w, &p->status, &p->syndrome) !=
        QRNIC_TAKE_OK) {
        return false;
    }
    /* Decisions stand on what was read first. */
    if (w->opcode != p->opcode || w->length != p->length) {
        p->status = QRNIC_WC_LOC_QP_OP_ERR;
        p->syndrome = QRNIC_SYN_WQE_SIZE;
        return false;
    }
    p->status = QRNIC_WC_SUCCESS;
    p->syndrome = QRNIC_SYN_NONE;
    r->wqe_loaded = true;
    r->wqe_message = r->cursor;
    return true;
}

/* Gathers len bytes of the message from offset into the packet. */
static bool requester_gather(QrnicEngine *e, QrnicQp *qp, QrnicPending *p,
                             uint64_t offset, uint8_t *to, uint32_t len)
{
    p->syndrome = qrnic_gather_part(e, qp, &qp->requester->wqe, offset, to,
                                    len);
    if (p->syndrome) {
        p->status = QRNIC_WC_LOC_PROT_ERR;
    }
    return !p->syndrome;
}

static void count_request(QrnicEngine *e, const QrnicPending *p)
{
    switch (p->opcode) {
    case QRNIC_WQE_SEND:
    case QRNIC_WQE_SEND_IMM:
    case QRNIC_WQE_SEND_INV:
        qrnic_add(e, QRNIC_COUNTER_TX_SEND, 1);
        break;
    case QRNIC_WQE_RDMA_WRITE:
    case QRNIC_WQE_RDMA_WRITE_IMM:
        qrnic_add(e, QRNIC_COUNTER_TX_WRITE, 1);
        break;
    case QRNIC_WQE_RDMA_READ:
        qrnic_add(e, QRNIC_COUNTER_TX_READ, 1);
        break;
    case QRNIC_WQE_ATOMIC_WRITE:
        qrnic_add(e, QRNIC_COUNTER_TX_ATOMIC_WRITE, 1);
        break;
    case QRNIC_WQE_FLUSH:
        qrnic_add(e, QRNIC_COUNTER_TX_FLUSH, 1);
        break;
    default:
        qrnic_add(e, QRNIC_COUNTER_TX_ATOMIC, 1);
        break;
    }
}

/* Counts, and moves the cursor over the PSNs that the packet took. */
static void requester_sent(QrnicEngine *e, QrnicQp *qp, const QrnicPending *p,
                           uint32_t psns, bool asks)
{
    QrnicRequester *r = qp->requester;
    bool first_asks = asks && r->asked_psn == r->una;
    uint32_t next = qrnic_psn_add(r->cursor_psn, psns);
    bool oldest = r->cursor_psn == r->una;

    if (r->cursor_psn == r->sent_psn) {
        if (r->cursor_psn == p->first_psn) {
            count_request(e, p);
        }
    } else {
        qrnic_add(e, QRNIC_COUNTER_RETRANSMISSIONS, 1);
    }
    if (qrnic_psn_distance(r->una, next) >
        qrnic_psn_distance(r->una, r->sent_psn)) {
        r->sent_psn = next;
    }
    r->cursor_psn = next;
    if (next == pending_end(p)) {
        r->cursor++;
    }
    if (asks) {
        r->asked_psn = next;
    }
    /* With a rate limit, who asks may go long after the oldest. */
    if (oldest || first_asks || r->deadline == QRNIC_DEADLINE_NEVER) {
        deadline_restart(e, qp);
    }
}

static uint8_t rd_opcode(uint8_t opcode)
{
    switch (opcode) {
    case QRNIC_WQE_RDMA_READ:
        return QRNIC_OP_RC_READ_REQUEST;
    case QRNIC_WQE_ATOMIC_CMP_SWAP:
        return QRNIC_OP_RC_COMPARE_SWAP;
    case QRNIC_WQE_ATOMIC_WRITE:
        return QRNIC_OP_RC_ATOMIC_WRITE;
    case QRNIC_WQE_FLUSH:
        return QRNIC_OP_RC_FLUSH;
    default:
        return QRNIC_OP_RC_FETCH_ADD;
    }
}

static void send_rd(QrnicEngine *e, QrnicQp *qp, QrnicPending *p)
{
    QrnicRequester *r = qp->requester;
    const QrnicInitiated *i = initiated_of(r, p);
    /* A repeated read asks only for what has not come (9.7.5.1.6). */
    uint32_t done = qrnic_psn_distance(p->first_psn, r->cursor_psn);
    uint64_t offset = (uint64_t)done * qrnic_qp_mtu(qp);
    QrnicTransport t = {
        .opcode = rd_opcode(p->opcode) | qrnic_qp_service(qp),
        .srqn = i->srqn,
        .ack_req = true,
        .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = qp->attr.dest_qpn,
        .psn = r->cursor_psn,
        .va = i->va + offset,
        .rkey = i->rkey,
        .dma_len = p->opcode == QRNIC_WQE_FLUSH ? i->flush.length :
                                                  p->length - offset,
        .swap_add = i->swap_add,
        .compare = i->compare,
        .flush_type = i->flush.type,
        .flush_level = i->flush.level,
    };
    uint32_t len = p->opcode == QRNIC_WQE_ATOMIC_WRITE ? 8 : 0;
    uint8_t *payload = qrnic_packet_begin(&qp->path, e->fabric->frame, &t, len);

    /* Bytes as they are to be in memory, unlike the operands of atomics. */
    if (len) {
        stq_le_p(payload, i->swap_add);
    }
    qrnic_packet_send(e, qp, &t, payload, len);
    requester_sent(e, qp, p, p->packets - done, true);
}

static bool send_data(QrnicEngine *e, QrnicQp *qp, QrnicPending *p, bool probe)
{
    QrnicRequester *r = qp->requester;
    uint32_t mtu = qrnic_qp_mtu(qp);
    uint32_t n = qrnic_psn_distance(p->first_psn, r->cursor_psn);
    uint64_t offset = (uint64_t)n * mtu;
    uint32_t len = MIN(mtu, p->length - offset);
    bool first = n == 0, last = n == p->packets - 1;
    bool send = is_send(p->opcode), inv = p->opcode == QRNIC_WQE_SEND_INV;
    bool imm = p->opcode == QRNIC_WQE_SEND_IMM ||
               p->opcode == QRNIC_WQE_RDMA_WRITE_IMM;
    QrnicTransport t;
    uint8_t *payload;

    if (!requester_load(e, qp, p)) {
        return false;
    }
    t = (QrnicTransport) {
        .opcode = send ? QRNIC_OP_RC_SEND_FIRST : QRNIC_OP_RC_WRITE_FIRST,
        .solicited = last && p->flags & QRNIC_WQEF_SOLICITED &&
                     takes_receive(p->opcode),
        .ack_req = last || probe ||
                   r->cursor_psn % QRNIC_ACK_INTERVAL == 0,
        .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = qp->attr.dest_qpn,
        .psn = r->cursor_psn,
        .srqn = r->wqe.srqn,
        .va = r->wqe.remote_addr,
        .rkey = r->wqe.rkey,
        .dma_len = p->length,
        .imm = r->wqe.imm,
        .inv_key = r->wqe.imm,
    };
    /* SEND_x and WRITE_x follow each other in the same order. */
    if (last && inv) {
        t.opcode = first ? QRNIC_OP_RC_SEND_ONLY_INV :
                           QRNIC_OP_RC_SEND_LAST_INV;
    } else if (first && last) {
        t.opcode += QRNIC_OP_RC_SEND_ONLY + imm;
    } else if (last) {
        t.opcode += QRNIC_OP_RC_SEND_LAST + imm;
    } else if (!first) {
        t.opcode += QRNIC_OP_RC_SEND_MIDDLE;
    }
    t.opcode |= qrnic_qp_service(qp);
    payload = qrnic_packet_begin(&qp->path, e->fabric->frame, &t, len);
    if (!requester_gather(e, qp, p, offset, payload, len)) {
        return false;
    }
    qrnic_packet_send(e, qp, &t, payload, len);
    requester_sent(e, qp, p, 1, t.ack_req);
    return true;
}

/* Without credit one packet may go, alone, to learn of new ones. */
static bool credit_check(QrnicRequester *r, const QrnicPending *p, bool *probe)
{
    if (r->probing) {
        return false;
    }
    if (r->cursor_psn != p->first_psn || !takes_receive(p->opcode) ||
        !r->credit_limited || (int32_t)(p->receives - r->receives_limit) <= 0) {
        return true;
    }
    *probe = true;
    return r->una == r->cursor_psn;
}

static bool fence_holds(const QrnicRequester *r, const QrnicPending *p)
{
    return p->flags & QRNIC_WQEF_FENCE &&
           p->rd_number - is_rd(p->opcode) != r->rd_done;
}

/* May the packet at the cursor go now, or must an answer come before? */
static bool send_allowed(QrnicQp *qp, const QrnicPending *p, bool *probe)
{
    QrnicRequester *r = qp->requester;
    uint32_t flying = qrnic_psn_distance(r->una, r->cursor_psn);
    bool rd = is_rd(p->opcode);

    if (r->cursor_psn == p->first_psn && fence_holds(r, p)) {
        return false;
    }
    if (rd) {
        return p->rd_number - 1 - r->rd_done < qp->attr.max_rd_atomic &&
               flying + p->packets <= QRNIC_PSN_HALF && !r->probing;
    }
    return flying < QRNIC_WINDOW && credit_check(r, p, probe);
}

/*
 * A message without PSNs at the cursor: all before it is sent. What it does,
 * it does once, although the cursor may come back to it. False: it waits.
 */
static bool local_step(QrnicEngine *e, QrnicQp *qp, QrnicPending *p)
{
    QrnicRequester *r = qp->requester;

    if (!p->executed && fence_holds(r, p)) {
        r->stalled = true;
        return false;
    }
    if (!p->executed && qrnic_is_local_operation(p->opcode)) {
        if (!requester_load(e, qp, p)) {
            r->stopped = true;
        } else {
            p->syndrome = qrnic_local_operation(e, qp, &r->wqe);
            p->status = p->syndrome ? QRNIC_WC_MW_BIND_ERR : QRNIC_WC_SUCCESS;
            r->stopped = p->status != QRNIC_WC_SUCCESS;
        }
    }
    p->executed = true;
    if (!p->status) {
        r->cursor++;
    }
    requester_retire(e, qp);
    return !p->status;
}

bool qrnic_requester_step(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    bool probe = false;
    QrnicPending *p;

    if (!may_run(qp) || r->rnr_wait) {
        return false;
    }
    if (r->cursor == r->head && !requester_take(e, qp)) {
        return false;
    }
    p = pending_at(r, r->cursor);
    if (p->status) {
        /* Failed here: it waits at the cursor until all before it is done. */
        requester_retire(e, qp);
        return false;
    }
    if (!p->packets) {
        return local_step(e, qp, p);
    }
    if (!send_allowed(qp, p, &probe)) {
        r->stalled = true;
        return false;
    }
    if (qrnic_pace_wait(e, qp)) {
        return false;
    }
    if (is_rd(p->opcode)) {
        send_rd(e, qp, p);
        return true;
    }
    if (probe) {
        r->probing = true;
    }
    if (!send_data(e, qp, p, probe)) {
        r->stopped = true;
        requester_retire(e, qp);
        return false;
    }
    return true;
}

/*
 * Receiving
 */

static void drop_psn(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    qrnic_add(e, QRNIC_COUNTER_RX_DROP_PSN, 1);
    trace_qrnic_roce_drop(e->config.name, qp->number, pkt->t.psn, "PSN");
}

/* A response that fits no request: 9.9.2.4.2, class B. */
static void bad_response(QrnicEngine *e, QrnicQp *qp)
{
    requester_fail(e, qp, QRNIC_WC_BAD_RESP_ERR, QRNIC_SYN_NONE);
}

static bool psn_outstanding(const QrnicRequester *r, uint32_t psn)
{
    return qrnic_psn_distance(r->una, psn) <
           qrnic_psn_distance(r->una, r->sent_psn);
}

/*
 * All before psn is acknowledged by the response. True: psn is now the oldest
 * one that is not.
 */
static bool acknowledge_before(QrnicEngine *e, QrnicQp *qp, uint32_t psn)
{
    QrnicRequester *r = qp->requester;
    uint32_t una = r->una;
    bool all = requester_acknowledge(r, psn);

    if (r->una != una) {
        requester_progress(e, qp);
        if (!may_run(qp)) {
            return false;
        }
    }
    if (!all) {
        requester_implied_nak(e, qp);
    }
    return all;
}

static void receive_positive_ack(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicPacket *pkt)
{
    QrnicRequester *r = qp->requester;

    /* A repeated ACK of the last PSN brings new credits. */
    if (qrnic_psn_add(pkt->t.psn, 1) == r->una) {
        requester_credits(e, qp, pkt->t.syndrome, pkt->t.msn);
        return;
    }
    if (!psn_outstanding(r, pkt->t.psn)) {
        drop_psn(e, qp, pkt);
        return;
    }
    if (acknowledge_before(e, qp, qrnic_psn_add(pkt->t.psn, 1)) &&
        may_run(qp)) {
        requester_credits(e, qp, pkt->t.syndrome, pkt->t.msn);
    }
}

static void receive_rnr(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicRequester *r = qp->requester;

    if (!acknowledge_before(e, qp, pkt->t.psn) || r->rnr_wait) {
        return;
    }
    if (qp->attr.rnr_retry != 7) {
        if (r->rnr_retries == 0) {
            requester_fail(e, qp, QRNIC_WC_RNR_RETRY_EXC_ERR, QRNIC_SYN_NONE);
            return;
        }
        r->rnr_retries--;
    }
    r->rnr_wait = true;
    requester_rewind(e, qp);
    deadline_set(e, qp, qrnic_now(e) + qrnic_rnr_time_ns(pkt->t.syndrome &
                                                    QRNIC_AETH_VALUE_MASK));
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
        /* No news if all is already to be sent again from there. */
        if (acknowledge_before(e, qp, pkt->t.psn) && r->cursor_psn != r->una) {
            requester_retry(e, qp, QRNIC_SYN_SEQUENCE);
        }
        return;
    }
    if (code >= ARRAY_SIZE(status)) {
        drop_psn(e, qp, pkt);   /* reserved codes, 9.3.4 */
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_RX_NAK_ERROR, 1);
    if (acknowledge_before(e, qp, pkt->t.psn)) {
        requester_fail(e, qp, status[code], QRNIC_SYN_NONE);
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
        drop_psn(e, qp, pkt);   /* reserved, 9.3.4 */
    }
}

/* Scatters len bytes of a response to the place of offset in the message. */
static uint8_t requester_scatter(QrnicEngine *e, QrnicQp *qp, QrnicPending *p,
                                 uint64_t offset, const uint8_t *from,
                                 uint32_t len)
{
    const QrnicInitiated *i = initiated_of(qp->requester, p);

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
        syndrome = qrnic_memory_check(e, s->lkey, qp->pd->number,
                                      s->addr + offset, part,
                                      QRNIC_ACCESS_LOCAL_WRITE, &k);
        if (syndrome) {
            return syndrome;
        }
        if (!qrnic_memory_write(e, k, s->addr + offset, from, part)) {
            return QRNIC_SYN_DMA;
        }
        from += part;
        len -= part;
        offset = 0;
    }
    return QRNIC_SYN_NONE;
}

/* Does the packet carry what belongs at this place of the read? */
static bool read_response_fits(const QrnicQp *qp, const QrnicPending *p,
                               const QrnicPacket *pkt, uint64_t offset)
{
    uint32_t mtu = qrnic_qp_mtu(qp);

    if (is_write_or_flush(p->opcode)) {
        return pkt->t.opcode == QRNIC_OP_RC_READ_RESPONSE_ONLY &&
               !pkt->payload_len;
    }
    if (p->opcode != QRNIC_WQE_RDMA_READ) {
        return false;
    }
    /*
     * Where a response starts depends on which request it answers, the first
     * or a repeated one; so only its end is told by the opcode.
     */
    if (qrnic_psn_add(pkt->t.psn, 1) == pending_end(p)) {
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
    QrnicPending *p;
    uint64_t offset;

    if (!psn_outstanding(r, pkt->t.psn)) {
        drop_psn(e, qp, pkt);
        return;
    }
    if (!acknowledge_before(e, qp, pkt->t.psn)) {
        return;
    }
    p = pending_at(r, r->tail);
    offset = (uint64_t)qrnic_psn_distance(p->first_psn, pkt->t.psn) *
             qrnic_qp_mtu(qp);
    if (pkt->info->flags & QRNIC_OPF_ATOMIC) {
        if (!is_atomic(p->opcode)) {
            bad_response(e, qp);
            return;
        }
        /* In the order of this host's memory, as if it had been read. */
        stq_le_p(original, pkt->t.original);
        syndrome = requester_scatter(e, qp, p, 0, original, sizeof(original));
    } else {
        if (!read_response_fits(qp, p, pkt, offset)) {
            bad_response(e, qp);
            return;
        }
        syndrome = requester_scatter(e, qp, p, offset, pkt->payload,
                                     pkt->payload_len);
    }
    if (syndrome) {
        requester_fail(e, qp, QRNIC_WC_LOC_PROT_ERR, syndrome);
        return;
    }
    una_set(r, qrnic_psn_add(pkt->t.psn, 1));
    requester_progress(e, qp);
    if (pkt->info->flags & QRNIC_HDR_AETH && may_run(qp)) {
        requester_credits(e, qp, pkt->t.syndrome, pkt->t.msn);
    }
}

void qrnic_requester_receive(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt)
{
    if ((pkt->t.opcode & QRNIC_OPERATION_MASK) == QRNIC_OP_RC_ACK) {
        receive_ack(e, qp, pkt);
    } else {
        receive_response(e, qp, pkt);
    }
}

/*
 * Life
 */

bool qrnic_requester_flush_one(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    QrnicPending *p;

    if (r->tail == r->head) {
        return false;
    }
    p = pending_at(r, r->tail++);
    qrnic_complete_sq(e, qp, p->index, p->wqebbs, p->opcode, p->flags,
                      QRNIC_WC_WR_FLUSH_ERR, QRNIC_SYN_NONE, 0);
    return true;
}

bool qrnic_requester_idle(const QrnicQp *qp)
{
    return qp->requester->tail == qp->requester->head;
}

uint32_t qrnic_requester_next_psn(const QrnicQp *qp)
{
    return qp->requester->next_psn;
}

/* Only while nothing is under way. */
void qrnic_requester_attr_changed(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    r->initiated_count = qp->attr.max_rd_atomic + 1;
    r->initiated = g_renew(QrnicInitiated, r->initiated, r->initiated_count);
    r->retries = qp->attr.retry_cnt;
    r->rnr_retries = qp->attr.rnr_retry;
}

void qrnic_rc_start_send(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    r->cursor_psn = r->next_psn = r->sent_psn = r->una = qp->attr.sq_psn;
    r->asked_psn = r->una;
    r->deadline = QRNIC_DEADLINE_NEVER;
    qrnic_requester_attr_changed(e, qp);
}

void qrnic_requester_timer(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    if (r->deadline == QRNIC_DEADLINE_NEVER || !may_run(qp)) {
        return;
    }
    if (qrnic_now(e) < r->deadline) {
        deadline_set(e, qp, r->deadline);
        return;
    }
    r->deadline = QRNIC_DEADLINE_NEVER;
    if (r->rnr_wait) {
        r->rnr_wait = false;
        deadline_restart(e, qp);
        qrnic_schedule(e, qp);
        return;
    }
    /*
     * What a slow wire has not taken yet, nobody can have answered; sending it
     * again would only make the queue before the wire longer.
     */
    if (qrnic_wire_busy(e) && !qrnic_wire_stands_still(e, &r->wire_epoch)) {
        deadline_restart(e, qp);
        return;
    }
    /* Nor what its rate limit lets nobody ask for yet; sending restarts it. */
    if (qp->attr.rate_limit && r->asked_psn == r->una && !qrnic_wire_busy(e)) {
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_TIMEOUTS, 1);
    r->recovering = false;
    requester_retry(e, qp, QRNIC_SYN_TIMEOUT);
}
