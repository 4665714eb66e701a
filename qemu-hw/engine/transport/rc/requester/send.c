/*
 * qrnic engine, transport: the requester sends requests
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * qrnic_reliable_transmit() calls qrnic_requester_step() until the quantum
 * ends. A step consumes a WQE if the cursor has reached the head of the ring.
 * Then it checks window, credits, fence and rate, and sends at most one packet.
 * qp->requester holds the ring of messages and the cursor between steps. A step
 * that must wait for an answer, a page or a connection sets a bit of r->blocked
 * (state.c).
 *
 * InfiniBand specification, 9.7.2 to 9.7.7.
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "trace.h"
#include "engine/qp/qp_rate.h"
#include "engine/transport/rc/requester/requester.h"

static bool is_send(uint8_t opcode)
{
    return opcode == QRNIC_WQE_SEND || opcode == QRNIC_WQE_SEND_IMM ||
           opcode == QRNIC_WQE_SEND_INV;
}

static bool takes_receive(uint8_t opcode)
{
    return is_send(opcode) || opcode == QRNIC_WQE_RDMA_WRITE_IMM;
}

static uint32_t pd_of(const QrnicQp *qp, const QrnicMessage *p)
{
    return p->source ? p->source->pd(qp) : qp->pd->number;
}

/*
 * Checks the keys of the segments. The segments of reads and atomics are
 * checked when the response arrives, as other adapters do, because programs may
 * change the key until then.
 */
static bool sges_check(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *w,
                       QrnicMessage *p)
{
    if (qrnic_wqe_is_rd(w->opcode)) {
        return true;
    }
    for (uint32_t i = 0; i < w->num_sge; i++) {
        const QrnicSge *s = &w->sge[i];
        enum qrnic_syndrome syndrome;
        QrnicMkey *k;

        if (!s->length) {
            continue;
        }
        syndrome = qrnic_memory_check(e, s->lkey, pd_of(qp, p), s->addr,
                                      s->length, 0, &k);
        if (syndrome) {
            qrnic_guest_error(e, QRNIC_GE_KEY_REFUSED, "SQ", qp->number,
                              "WQE at index %" PRIu32 ": lkey 0x%" PRIx32
                              ": %s", w->index, s->lkey,
                              qrnic_syndrome_name(syndrome));
            p->status = QRNIC_WC_LOC_PROT_ERR;
            p->syndrome = syndrome;
            return false;
        }
    }
    return true;
}

static QrnicInitiated *initiated_new(QrnicEngine *e, const QrnicSendWqe *w,
                                     uint32_t pd)
{
    QrnicInitiated *i = qrnic_buffer_get(e, sizeof(*i));

    i->pd = pd;
    i->va = w->remote_addr;
    i->rkey = w->rkey;
    i->srqn = w->srqn;
    i->swap_add = w->swap_add;
    i->compare = w->compare;
    i->flush = w->flush;
    i->num_sge = w->num_sge;
    memcpy(i->sge, w->sge, w->num_sge * sizeof(w->sge[0]));
    return i;
}

/*
 * Returns the buffer for a decoded WQE. The previous WQE in the buffer is lost.
 */
static QrnicSendWqe *wqe_buffer(QrnicEngine *e, QrnicRequester *r)
{
    if (!r->wqe) {
        r->wqe = qrnic_buffer_get(e, sizeof(*r->wqe));
    }
    return r->wqe;
}

/*
 * Returns true if the WQE has an address, to which the queue pair must be
 * connected.
 */
static bool has_address(const QrnicQp *qp, const QrnicSendWqe *w)
{
    return qp->ops->reach && w->opcode != QRNIC_WQE_NOP &&
           !qrnic_is_local_operation(w->opcode);
}

/*
 * Appends the next WQE of the SQ, or the next message of a rendezvous, to the
 * ring.
 */
static bool requester_take(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    uint8_t status, syndrome;
    QrnicTake take = QRNIC_TAKE_OK;
    QrnicSendWqe *w;
    QrnicMessage *p;
    QrnicTag *t;

    if (r->blocked & QRNIC_BLOCKED_ERROR || qp->state != QRNIC_QPS_RTS ||
        (!qrnic_rendezvous_waits(r) && !qrnic_sq_pending(e, qp, false))) {
        return false;
    }
    if (!qrnic_requester_has_room(e, qp)) {
        return false;
    }
    w = wqe_buffer(e, r);
    t = qrnic_rendezvous_next(r);
    if (!t) {
        take = qrnic_sq_take(e, qp, w, &status, &syndrome);
    }
    if (take == QRNIC_TAKE_EMPTY || take == QRNIC_TAKE_BROKEN) {
        qrnic_requester_wqe_drop(e, r);
        return false;
    }
    if (take == QRNIC_TAKE_OK && has_address(qp, w) &&
        !qp->ops->reach(e, qp, w)) {
        qrnic_sq_give_back(e, qp, w);
        qrnic_requester_wqe_drop(e, r);
        qrnic_requester_block(e, qp, QRNIC_BLOCKED_WINDOW);
        return false;
    }
    p = qrnic_message_new(e, r);
    if (t) {
        p->source = &qrnic_rendezvous_source;
        p->object = t;
        p->source->wqe(t, w);
    }
    p->index = w->index;
    p->wqebbs = w->wqebbs;
    if (take == QRNIC_TAKE_ERROR) {
        p->status = status;
        p->syndrome = syndrome;
    } else {
        p->opcode = w->opcode;
        p->flags = w->flags;
        p->length = w->length;
        if (qrnic_wqe_is_rd(w->opcode) && !qp->attr.max_rd_atomic) {
            qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, "SQ", qp->number,
                              "WQE at index %" PRIu32 ": reads and atomics are "
                              "invalid while max_rd_atomic is 0", w->index);
            p->status = QRNIC_WC_LOC_QP_OP_ERR;
            p->syndrome = QRNIC_SYN_RD_ATOMIC;
        } else if (w->opcode != QRNIC_WQE_NOP &&
                   !qrnic_is_local_operation(w->opcode) &&
                   sges_check(e, qp, w, p)) {
            p->packets = qrnic_psn_count(w->length, qrnic_qp_mtu(qp));
            /*
             * The mode is chosen once for all packets of a message, because
             * peer_options may change while they are sent.
             */
            p->adaptive = qp->attr.options & qp->peer_options &
                          QRNIC_QPO_ADAPTIVE_ROUTING &&
                          (w->opcode == QRNIC_WQE_RDMA_WRITE ||
                           w->opcode == QRNIC_WQE_RDMA_WRITE_IMM);
            r->ssn++;
            r->receives_taken += takes_receive(w->opcode);
            r->rd_taken += qrnic_wqe_is_rd(w->opcode);
        }
    }
    p->ssn = r->ssn;
    p->receives = r->receives_taken;
    p->rd_number = r->rd_taken;
    if (p->packets && qrnic_wqe_is_rd(p->opcode)) {
        p->initiated = initiated_new(e, w, pd_of(qp, p));
    }
    r->wqe_message = r->head;
    qrnic_cursor_append(r, p);
    if (p->status) {
        qrnic_requester_block(e, qp, QRNIC_BLOCKED_ERROR);
    }
    trace_qrnic_requester_take(e->config.name, qp->number, p->index,
                               qrnic_wqe_opcode_name(p->opcode), p->length,
                               p->first_psn, p->packets, p->status);
    return true;
}

/*
 * Loads the WQE of the message at the cursor, from memory if necessary. Returns
 * false and sets p->status if the WQE cannot be read or has changed.
 */
static bool requester_load(QrnicEngine *e, QrnicQp *qp, QrnicMessage *p)
{
    QrnicRequester *r = qp->requester;
    QrnicSendWqe *w;

    if (r->wqe && r->wqe_message == r->cursor) {
        return true;
    }
    w = wqe_buffer(e, r);
    r->wqe_message = r->cursor;
    if (p->source) {
        p->source->wqe(p->object, w);
        return true;
    }
    if (qrnic_sq_refetch(e, qp, p->index, w, &p->status, &p->syndrome) !=
        QRNIC_TAKE_OK) {
        qrnic_requester_wqe_drop(e, r);
        return false;
    }
    /*
     * Opcode and length must be unchanged, because PSNs were assigned by them.
     */
    if (w->opcode != p->opcode || w->length != p->length) {
        p->status = QRNIC_WC_LOC_QP_OP_ERR;
        p->syndrome = QRNIC_SYN_WQE_SIZE;
        qrnic_requester_wqe_drop(e, r);
        return false;
    }
    p->status = QRNIC_WC_SUCCESS;
    p->syndrome = QRNIC_SYN_NONE;
    return true;
}

/*
 * Copies len bytes of the message from offset on into the packet. Returns false
 * if the access has failed (p->status) or waits for a page.
 */
static bool requester_gather(QrnicEngine *e, QrnicQp *qp, QrnicMessage *p,
                             uint64_t offset, uint8_t *to, uint32_t len)
{
    QrnicFault fault;
    uint8_t syndrome = qrnic_gather_part(e, qp, qp->requester->wqe, offset, to,
                                         len, &fault);

    if (qrnic_requester_page_fault(e, qp, syndrome, &fault)) {
        return false;
    }
    p->syndrome = syndrome;
    if (syndrome) {
        p->status = QRNIC_WC_LOC_PROT_ERR;
    }
    return !syndrome;
}

static void count_request(QrnicEngine *e, const QrnicMessage *p)
{
    if (p->source && p->source->copy) {
        qrnic_add(e, p->source->counter, 1);
        return;
    }
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

/* Returns the headers that all requests of a connection share. */
static inline QrnicTransport request(const QrnicQp *qp, const QrnicMessage *p,
                                     uint8_t opcode)
{
    const QrnicRequester *r = qp->requester;
    QrnicTransport t = qrnic_connection_transport(qp, opcode, r->cursor_psn);

    if (r->selective) {
        t.mark |= QRNIC_MARK_TRANSMISSION(qrnic_selective_transmission(r, p));
    }
    return t;
}

/* Counts a sent packet and moves the cursor over its PSNs. */
static void requester_sent(QrnicEngine *e, QrnicQp *qp, QrnicMessage *p,
                           uint32_t psns, bool asks)
{
    QrnicRequester *r = qp->requester;
    bool first_asks = asks && r->asked_psn == r->una;
    uint32_t next = qrnic_psn_add(r->cursor_psn, psns);
    bool oldest = r->cursor_psn == r->una;
    bool fresh = r->cursor_psn == r->sent_psn;

    if (fresh) {
        if (r->cursor_psn == p->first_psn) {
            count_request(e, p);
        }
    } else {
        qrnic_add(e, QRNIC_COUNTER_RETRANSMISSIONS, 1);
        qp->retransmissions++;
    }
    if (r->selective) {
        qrnic_selective_sent(e, r, p, asks);
    }
    qrnic_cursor_sent(r, p, psns);
    if (asks && (fresh || qrnic_psn_distance(r->una, next) >
                          qrnic_psn_distance(r->una, r->asked_psn))) {
        r->asked_psn = next;
    }
    /*
     * The first packet that requests an answer restarts the timer, too, because
     * a rate limit may send it long after the oldest packet.
     */
    if (r->selective && r->selective->probes) {
        oldest = first_asks = false;    /* a probe must not delay the timer */
    }
    if (oldest || first_asks || r->deadline == QRNIC_DEADLINE_NEVER) {
        qrnic_requester_deadline(e, qp);
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

static void send_rd(QrnicEngine *e, QrnicQp *qp, QrnicMessage *p)
{
    QrnicRequester *r = qp->requester;
    const QrnicInitiated *i = p->initiated;
    /* A retransmitted read requests only the missing part (9.7.5.1.6). */
    uint32_t done = qrnic_psn_distance(p->first_psn, r->cursor_psn);
    uint64_t offset = (uint64_t)done * qrnic_qp_mtu(qp);
    QrnicTransport t = request(qp, p, rd_opcode(p->opcode));
    uint32_t len = p->opcode == QRNIC_WQE_ATOMIC_WRITE ? 8 : 0;
    uint8_t *payload;

    t.srqn = i->srqn;
    t.ack_req = true;
    t.va = i->va + offset;
    t.rkey = i->rkey;
    t.dma_len = p->opcode == QRNIC_WQE_FLUSH ? i->flush.length :
                                               p->length - offset;
    t.swap_add = i->swap_add;
    t.compare = i->compare;
    t.flush_type = i->flush.type;
    t.flush_level = i->flush.level;
    payload = qrnic_packet_open(e, qp, &t, len);
    /* The bytes are in memory order, unlike the operands of atomics. */
    if (len) {
        stq_le_p(payload, i->swap_add);
    }
    qrnic_packet_send(e, qp, &t, payload, len);
    requester_sent(e, qp, p, p->packets - done, true);
}

/*
 * Sends a message of one packet that its source has built. The last one of a
 * burst and a retransmitted one request an ACK.
 */
static void send_built(QrnicEngine *e, QrnicQp *qp, QrnicMessage *p)
{
    QrnicRequester *r = qp->requester;
    QrnicTransport t = request(qp, p, p->source->opcode);
    uint8_t *payload;

    t.ack_req = !p->source->follows(qp) || r->cursor_psn != r->sent_psn ||
                r->cursor_psn % QRNIC_ACK_INTERVAL == 0;
    payload = qrnic_packet_open(e, qp, &t, p->length);
    p->source->copy(p->object, payload);
    qrnic_packet_send(e, qp, &t, payload, p->length);
    requester_sent(e, qp, p, 1, t.ack_req);
}

/*
 * Sends a packet of a send or write. Returns false if its payload is not
 * available. Inlined because it sends most packets, and GCC considers it too
 * long.
 */
static inline bool QEMU_ALWAYS_INLINE
send_data(QrnicEngine *e, QrnicQp *qp, QrnicMessage *p, bool probe)
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
    t = request(qp, p, 0);
    t.solicited = last && p->flags & QRNIC_WQEF_SOLICITED &&
                  takes_receive(p->opcode);
    t.ack_req = last || probe || r->cursor_psn % QRNIC_ACK_INTERVAL == 0 ||
                (r->selective && r->cursor_psn != r->sent_psn);
    t.srqn = r->wqe->srqn;
    t.va = r->wqe->remote_addr;
    t.rkey = r->wqe->rkey;
    t.dma_len = p->length;
    t.imm = t.inv_key = r->wqe->imm;
    t.opcode = send ? QRNIC_OP_RC_SEND_FIRST : QRNIC_OP_RC_WRITE_FIRST;
    /* The opcodes WRITE_x have the same order as SEND_x. */
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
    if (p->adaptive) {
        t.opcode = QRNIC_OP_RC_WRITE_ONLY + (last && imm);
        t.va += offset;
        t.dma_len = len;
        t.mark |= QRNIC_MARK_ADAPTIVE | (last ? 0 : QRNIC_MARK_MORE);
    }
    t.opcode |= qrnic_qp_service(qp);
    payload = qrnic_packet_open(e, qp, &t, len);
    if (!requester_gather(e, qp, p, offset, payload, len)) {
        return false;
    }
    qrnic_packet_send(e, qp, &t, payload, len);
    requester_sent(e, qp, p, 1, t.ack_req);
    return true;
}

/*
 * Returns true if credits allow the packet at the cursor. Without credit one
 * packet may be sent alone (*probe), so that its ACK reports new credits.
 */
static bool credit_check(QrnicRequester *r, const QrnicMessage *p, bool *probe)
{
    if (r->blocked & QRNIC_BLOCKED_PROBE) {
        return false;
    }
    if (r->cursor_psn != p->first_psn || !takes_receive(p->opcode) ||
        !r->credit_limited || (int32_t)(p->receives - r->receives_limit) <= 0) {
        return true;
    }
    *probe = true;
    return r->una == r->cursor_psn;
}

static bool fence_holds(const QrnicRequester *r, const QrnicMessage *p)
{
    return p->flags & QRNIC_WQEF_FENCE &&
           p->rd_number - qrnic_wqe_is_rd(p->opcode) != r->rd_done;
}

/*
 * Returns true if window, credits and fence allow to send the packet at the
 * cursor.
 */
static bool send_allowed(QrnicQp *qp, const QrnicMessage *p, bool *probe)
{
    QrnicRequester *r = qp->requester;
    uint32_t flying = qrnic_psn_distance(r->una, r->cursor_psn);
    bool rd = qrnic_wqe_is_rd(p->opcode);

    if (r->cursor_psn == p->first_psn && fence_holds(r, p)) {
        return false;
    }
    if (rd) {
        return p->rd_number - 1 - r->rd_done < qp->attr.max_rd_atomic &&
               flying + p->packets <= QRNIC_PSN_HALF &&
               !(r->blocked & QRNIC_BLOCKED_PROBE);
    }
    return flying < QRNIC_WINDOW && credit_check(r, p, probe);
}

/*
 * Executes the local operation at the cursor; all earlier messages are sent.
 * The operation is executed once, although the cursor may move back over it.
 * Returns false if it waits, and true if it is done or continues in the next
 * step.
 */
static bool local_step(QrnicEngine *e, QrnicQp *qp, QrnicMessage *p)
{
    QrnicRequester *r = qp->requester;
    bool failed;

    if (!p->executed && fence_holds(r, p)) {
        qrnic_requester_block(e, qp, QRNIC_BLOCKED_WINDOW);
        return false;
    }
    qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_WINDOW);
    if (!p->executed && qrnic_is_local_operation(p->opcode)) {
        if (!requester_load(e, qp, p)) {
            qrnic_requester_block(e, qp, QRNIC_BLOCKED_ERROR);
        } else {
            uint8_t syndrome;
            QrnicLocal local = qrnic_local_operation(e, qp, r->wqe, &syndrome);

            if (local == QRNIC_LOCAL_WAITS) {
                qrnic_requester_block(e, qp, QRNIC_BLOCKED_PAGE);
            }
            if (local != QRNIC_LOCAL_DONE) {
                return local == QRNIC_LOCAL_MORE;
            }
            p->syndrome = syndrome;
            p->status = p->syndrome ? QRNIC_WC_MW_BIND_ERR : QRNIC_WC_SUCCESS;
            if (p->status != QRNIC_WC_SUCCESS) {
                qrnic_requester_block(e, qp, QRNIC_BLOCKED_ERROR);
            }
        }
    }
    p->executed = true;
    failed = p->status != QRNIC_WC_SUCCESS;
    if (!failed) {
        qrnic_cursor_executed(r);
    }
    qrnic_requester_retire(e, qp);
    return !failed;
}

bool qrnic_requester_step(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    bool probe = false;
    QrnicMessage *p;

    if (!qrnic_requester_may_run(qp) || r->blocked & QRNIC_BLOCKED_STEP) {
        return false;
    }
    if (r->selective) {
        qrnic_selective_skip(r);
        /*
         * The timer must run for skipped packets, because they need an answer,
         * too.
         */
        if (r->deadline == QRNIC_DEADLINE_NEVER && r->una != r->cursor_psn) {
            qrnic_requester_deadline(e, qp);
        }
    }
    if (r->cursor == r->head &&
        !(qp->ops->message_take ? qp->ops->message_take(e, qp) :
                                  requester_take(e, qp))) {
        return false;
    }
    if (r->blocked & QRNIC_BLOCKED_CONNECTION) {
        return false;           /* The WQE needs another connection */
    }
    p = qrnic_message_at(r, r->cursor);
    if (p->status) {
        /*
         * The failed message stays at the cursor until all earlier messages are
         * complete.
         */
        qrnic_requester_retire(e, qp);
        return false;
    }
    qrnic_work_wqe(e, p->index);
    if (!p->packets) {
        return local_step(e, qp, p);
    }
    if (!send_allowed(qp, p, &probe)) {
        qrnic_requester_block(e, qp, QRNIC_BLOCKED_WINDOW);
        return false;
    }
    qrnic_requester_unblock(e, qp, QRNIC_BLOCKED_WINDOW);
    if (qrnic_pace_wait(e, qp)) {
        return false;
    }
    if (qrnic_wqe_is_rd(p->opcode)) {
        send_rd(e, qp, p);
        return true;
    }
    if (p->source && p->source->copy) {
        send_built(e, qp, p);
        return true;
    }
    if (!send_data(e, qp, p, probe)) {
        if (p->status) {
            qrnic_requester_block(e, qp, QRNIC_BLOCKED_ERROR);
            qrnic_requester_retire(e, qp);
        }
        return false;
    }
    if (probe) {
        qrnic_requester_block(e, qp, QRNIC_BLOCKED_PROBE);
    }
    return true;
}
