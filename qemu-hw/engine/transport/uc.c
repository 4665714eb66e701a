/*
 * qrnic engine: unreliable connections
 *
 * InfiniBand specification, 9.8.2: messages of any length, of which nothing is
 * acknowledged; one that lost a packet is dropped as a whole.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/transport.h"
#include "engine/transport/rc/reliability.h"

struct QrnicUnreliable {
    /* send */
    uint32_t next_psn;
    uint64_t sent;              /* bytes of the WQE that is under way */
    /* receive */
    uint32_t epsn;
    enum { QRNIC_UC_IDLE, QRNIC_UC_SEND, QRNIC_UC_WRITE } message;
    QrnicRecvWqe *recv;         /* taken and not completed; else NULL */
    uint64_t va, received;
    uint32_t rkey, dma_len;
};

static void uc_init(QrnicEngine *e, QrnicQp *qp)
{
    QrnicUnreliable *u = qp->unreliable;

    if (!u) {
        u = qp->unreliable = g_new0(QrnicUnreliable, 1);
    }
    if (u->recv && qp->srq) {
        qrnic_rq_give_back(e, qp, u->recv);
    }
    qrnic_recv_wqe_drop(e, &u->recv);
    memset(u, 0, sizeof(*u));
}

static void uc_cleanup(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->unreliable) {
        uc_init(e, qp);
        g_free(qp->unreliable);
        qp->unreliable = NULL;
    }
}

static void uc_entered(QrnicEngine *e, QrnicQp *qp, uint8_t from,
                       const QrnicQpAttr *in)
{
    if (from == QRNIC_QPS_INIT && qp->state == QRNIC_QPS_RTR) {
        qp->unreliable->epsn = qp->attr.rq_psn;
    } else if (from == QRNIC_QPS_RTR && qp->state == QRNIC_QPS_RTS) {
        qp->unreliable->next_psn = qp->attr.sq_psn;
    }
}

static void uc_query(const QrnicQp *qp, QrnicQpAttr *out)
{
    out->sq_psn = qp->unreliable->next_psn;
    out->rq_psn = qp->unreliable->epsn;
}

/*
 * Send
 */

/* One packet of the message under way. False: it failed. */
static bool send_packet(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *w,
                        uint8_t *syndrome)
{
    QrnicUnreliable *u = qp->unreliable;
    uint32_t len = MIN(qrnic_qp_mtu(qp), w->length - u->sent);
    bool first = u->sent == 0, last = u->sent + len == w->length;
    bool write = w->opcode == QRNIC_WQE_RDMA_WRITE ||
                 w->opcode == QRNIC_WQE_RDMA_WRITE_IMM;
    bool imm = w->opcode == QRNIC_WQE_SEND_IMM ||
               w->opcode == QRNIC_WQE_RDMA_WRITE_IMM;
    QrnicTransport t = {
        .opcode = write ? QRNIC_OP_UC_WRITE_FIRST : QRNIC_OP_UC_SEND_FIRST,
        .solicited = last && w->flags & QRNIC_WQEF_SOLICITED && (imm || !write),
        .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = qp->attr.dest_qpn,
        .psn = u->next_psn,
        .va = w->remote_addr,
        .rkey = w->rkey,
        .dma_len = w->length,
        .imm = w->imm,
    };
    uint8_t *payload;

    /* SEND_x and WRITE_x follow each other in the same order. */
    if (first && last) {
        t.opcode += QRNIC_OP_UC_SEND_ONLY - QRNIC_OP_UC_SEND_FIRST + imm;
    } else if (last) {
        t.opcode += QRNIC_OP_UC_SEND_LAST - QRNIC_OP_UC_SEND_FIRST + imm;
    } else if (!first) {
        t.opcode += QRNIC_OP_UC_SEND_MIDDLE - QRNIC_OP_UC_SEND_FIRST;
    }
    payload = qrnic_packet_begin(&qp->path, e->fabric->frame, &t, len);
    *syndrome = qrnic_gather_part(e, qp, w, u->sent, payload, len);
    if (*syndrome) {
        return false;
    }
    if (first) {
        qrnic_add(e, write ? QRNIC_COUNTER_TX_WRITE : QRNIC_COUNTER_TX_SEND,
                  1);
    }
    u->next_psn = qrnic_psn_add(u->next_psn, 1);
    u->sent += len;
    qrnic_packet_send(e, qp, &t, payload, len);
    return true;
}

static bool uc_send(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *w,
                    uint8_t *status, uint8_t *syndrome)
{
    QrnicUnreliable *u = qp->unreliable;

    if (!qp->under_way) {
        u->sent = 0;
        if (qrnic_is_local_operation(w->opcode)) {
            *syndrome = qrnic_local_operation(e, qp, w);
            *status = *syndrome ? QRNIC_WC_MW_BIND_ERR : QRNIC_WC_SUCCESS;
            return true;
        }
    }
    if (!send_packet(e, qp, w, syndrome)) {
        *status = QRNIC_WC_LOC_PROT_ERR;
        return true;
    }
    return u->sent == w->length;
}

static bool uc_flush(QrnicEngine *e, QrnicQp *qp)
{
    QrnicUnreliable *u = qp->unreliable;

    if (u->recv) {
        QrnicCqe cqe = {
            .index = u->recv->index, .srqn = u->recv->srqn, .qpn = qp->number,
            .opcode = QRNIC_CQE_RECV, .status = QRNIC_WC_WR_FLUSH_ERR,
        };

        qrnic_recv_wqe_drop(e, &u->recv);
        qrnic_complete_recv(e, qp, &cqe);
        return true;
    }
    return false;
}

/*
 * Receive. What is wrong with a packet costs its message, and only what is
 * wrong with the receiver's own WQE costs the queue pair.
 */

static void drop_message(QrnicEngine *e, QrnicQp *qp, uint32_t psn,
                         enum qrnic_counter why)
{
    /* A receive WQE that it had serves the next message (9.8.2.2.1). */
    qp->unreliable->message = QRNIC_UC_IDLE;
    qrnic_add(e, why, 1);
    trace_qrnic_roce_drop(e->config.name, qp->number, psn,
                          qrnic_counter_name(why));
}

static void drop(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p,
                 enum qrnic_counter why)
{
    drop_message(e, qp, p->t.psn, why);
}

/* inlined: the data of p goes into the CQE. */
static void recv_done(QrnicEngine *e, QrnicQp *qp, uint8_t opcode,
                      uint8_t status, uint8_t syndrome, uint32_t byte_len,
                      const QrnicPacket *p, bool inlined)
{
    QrnicUnreliable *u = qp->unreliable;
    QrnicCqe cqe = {
        .index = u->recv->index,
        .srqn = u->recv->srqn,
        .qpn = qp->number,
        .opcode = opcode,
        .status = status,
        .syndrome = syndrome,
        .byte_len = byte_len,
    };

    if (p && p->info->flags & QRNIC_HDR_IMM) {
        cqe.flags |= QRNIC_CQEF_IMM;
        cqe.imm = p->t.imm;
    }
    if (p && p->t.solicited) {
        cqe.flags |= QRNIC_CQEF_SOLICITED;
    }
    qrnic_recv_wqe_drop(e, &u->recv);
    u->message = QRNIC_UC_IDLE;
    if (inlined) {
        qrnic_complete_recv_inline(e, qp, &cqe, p->payload);
    } else {
        qrnic_complete_recv(e, qp, &cqe);
    }
    if (status != QRNIC_WC_SUCCESS) {
        qrnic_qp_error(e, qp, 0, 0);
    }
}

static void recv_complete(QrnicEngine *e, QrnicQp *qp, uint8_t opcode,
                          uint8_t status, uint8_t syndrome, uint32_t byte_len,
                          const QrnicPacket *p)
{
    recv_done(e, qp, opcode, status, syndrome, byte_len, p, false);
}

/* False: there is none, or it is bad; the message is dropped. */
static bool recv_take(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    QrnicUnreliable *u = qp->unreliable;
    uint8_t status, syndrome;

    if (u->recv) {
        return true;
    }
    switch (qrnic_rq_take_kept(e, qp, &u->recv, &status, &syndrome)) {
    case QRNIC_TAKE_EMPTY:
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_NO_WQE);
        return false;
    case QRNIC_TAKE_ERROR:
        recv_complete(e, qp, QRNIC_CQE_RECV, status, syndrome, 0, NULL);
        return false;
    case QRNIC_TAKE_BROKEN:
        qrnic_qp_error(e, qp, QRNIC_EVENT_QP_FATAL, QRNIC_WC_LOC_QP_OP_ERR);
        return false;
    case QRNIC_TAKE_OK:
        break;
    }
    qrnic_rq_taken(e, qp);
    return true;
}

static void receive_send(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    QrnicUnreliable *u = qp->unreliable;
    uint8_t syndrome;
    bool inlined;

    if (p->info->flags & QRNIC_OPF_START) {
        if (!recv_take(e, qp, p)) {
            return;
        }
        u->received = 0;
        u->message = QRNIC_UC_SEND;
    }
    if (u->received + p->payload_len > u->recv->length) {
        /* Anybody can send such a packet: it must not cost the WQE. */
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_LENGTH);
        return;
    }
    syndrome = qrnic_scatter_packet(e, qp, u->recv, u->received, p, &inlined);
    if (syndrome) {
        recv_complete(e, qp, QRNIC_CQE_RECV, QRNIC_WC_LOC_PROT_ERR, syndrome,
                      0, NULL);
        return;
    }
    u->received += p->payload_len;
    if (p->info->flags & QRNIC_OPF_END) {
        qrnic_add(e, QRNIC_COUNTER_RX_SEND, 1);
        recv_done(e, qp, QRNIC_CQE_RECV, QRNIC_WC_SUCCESS, QRNIC_SYN_NONE,
                  u->received, p, inlined);
    }
}

/* RETH. A write of nothing needs no key. False: the message is dropped. */
static bool write_begin(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    QrnicUnreliable *u = qp->unreliable;
    const QrnicTransport *t = &p->t;
    QrnicMkey *k;

    if (t->dma_len > QRNIC_MAX_MSG_SIZE) {
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_MALFORMED);
        return false;
    }
    if (!(qp->attr.access & QRNIC_ACCESS_REMOTE_WRITE) ||
        (t->dma_len &&
         qrnic_memory_check_qp(e, t->rkey, qp->pd->number, qp->number, t->va,
                               t->dma_len, QRNIC_ACCESS_REMOTE_WRITE,
                               &k) != QRNIC_SYN_NONE)) {
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_ACCESS);
        return false;
    }
    u->va = t->va;
    u->rkey = t->rkey;
    u->dma_len = t->dma_len;
    u->received = 0;
    u->message = QRNIC_UC_WRITE;
    return true;
}

/* The rights are looked at for each packet: a key may go at any time. */
static bool write_payload(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    QrnicUnreliable *u = qp->unreliable;
    uint64_t at = u->va + u->received;
    QrnicMkey *k;

    if (!(qp->attr.access & QRNIC_ACCESS_REMOTE_WRITE)) {
        return false;
    }
    if (!p->payload_len) {
        return true;
    }
    return qrnic_memory_check_qp(e, u->rkey, qp->pd->number, qp->number, at,
                                 p->payload_len, QRNIC_ACCESS_REMOTE_WRITE,
                                 &k) == QRNIC_SYN_NONE &&
           qrnic_memory_write(e, k, at, p->payload, p->payload_len);
}

static void receive_write(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    QrnicUnreliable *u = qp->unreliable;
    uint32_t flags = p->info->flags;

    if (flags & QRNIC_OPF_START && !write_begin(e, qp, p)) {
        return;
    }
    if (flags & QRNIC_OPF_END ?
        u->received + p->payload_len != u->dma_len :
        u->received + p->payload_len >= u->dma_len) {
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_MALFORMED);
        return;
    }
    if (flags & QRNIC_HDR_IMM && !recv_take(e, qp, p)) {
        return;
    }
    if (!write_payload(e, qp, p)) {
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_ACCESS);
        return;
    }
    u->received += p->payload_len;
    if (flags & QRNIC_OPF_END) {
        u->message = QRNIC_UC_IDLE;
        qrnic_add(e, QRNIC_COUNTER_RX_WRITE, 1);
        if (flags & QRNIC_HDR_IMM) {
            recv_complete(e, qp, QRNIC_CQE_RECV_RDMA_WITH_IMM, QRNIC_WC_SUCCESS,
                          QRNIC_SYN_NONE, u->dma_len, p);
        }
    }
}

static void uc_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    QrnicUnreliable *u = qp->unreliable;
    uint32_t flags = p->info->flags, mtu = qrnic_qp_mtu(qp);
    bool write = flags & QRNIC_OPF_WRITE;

    if (qp->state == QRNIC_QPS_RTR && !qp->comm_established) {
        qp->comm_established = true;
        qrnic_event_async(e, QRNIC_EVENT_COMM_EST, 0, qp->number, 0);
    }
    /* A new message may begin with any PSN: what is missing was lost. */
    if (flags & QRNIC_OPF_START) {
        qrnic_add(e, QRNIC_COUNTER_OUT_OF_SEQUENCE, p->t.psn != u->epsn);
        if (u->message != QRNIC_UC_IDLE) {
            drop_message(e, qp, u->epsn, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE);
        }
    } else if (p->t.psn != u->epsn ||
               u->message != (write ? QRNIC_UC_WRITE : QRNIC_UC_SEND)) {
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE);
        return;
    }
    u->epsn = qrnic_psn_add(p->t.psn, 1);
    if (flags & QRNIC_OPF_END ?
        p->payload_len > mtu ||
        (!p->payload_len && !(flags & QRNIC_OPF_START)) :
        p->payload_len != mtu) {
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_MALFORMED);
        return;
    }
    if (write) {
        receive_write(e, qp, p);
    } else {
        receive_send(e, qp, p);
    }
}

const QrnicQpOps qrnic_uc_ops = {
    .capability = QRNIC_CAP_UC,
    .service = QRNIC_SERVICE_UC,
    .has_sq = true,
    .has_rq = true,
    .may_share = true,
    .may_inline = true,
    .has_sqe = true,
    .states = &qrnic_uc_states,
    .shape = qrnic_uc_shape,
    .init = uc_init,
    .cleanup = uc_cleanup,
    .entered = uc_entered,
    .query = uc_query,
    .transmit = qrnic_transmit,
    .send = uc_send,
    .receive = uc_receive,
    .flush_receive = uc_flush,
};
