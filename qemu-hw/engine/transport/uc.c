/*
 * qrnic engine, layer transport: unreliable connections
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Sends and receives messages of any length without acknowledgements.
 * qrnic_transmit() calls uc_send() for each packet of a WQE; the demultiplexer
 * calls uc_receive(). A message that has lost a packet is dropped as a whole,
 * and its receive WQE serves the next message. Unreliable, in qp->type_state,
 * holds both PSNs and the messages in progress.
 *
 * InfiniBand specification, 9.8.2.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/transport.h"
#include "engine/transport/rc/reliability.h"

typedef struct Unreliable {
    /* Sender */
    uint32_t next_psn;
    uint64_t sent;              /* bytes of the current WQE */
    /* Receiver */
    uint32_t epsn;
    QrnicInbound in;
} Unreliable;

static Unreliable *state_of(const QrnicQp *qp)
{
    return qp->type_state;
}

static void uc_init(QrnicEngine *e, QrnicQp *qp)
{
    Unreliable *u = qp->type_state;

    if (!u) {
        u = qp->type_state = g_new0(Unreliable, 1);
    }
    qrnic_inbound_cleanup(e, qp, &u->in);
    memset(u, 0, sizeof(*u));
}

static void uc_cleanup(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->type_state) {
        uc_init(e, qp);
        g_free(qp->type_state);
        qp->type_state = NULL;
    }
}

static void uc_entered(QrnicEngine *e, QrnicQp *qp, uint8_t from,
                       const QrnicQpAttr *in)
{
    if (from == QRNIC_QPS_INIT && qp->state == QRNIC_QPS_RTR) {
        state_of(qp)->epsn = qp->attr.rq_psn;
    } else if (from == QRNIC_QPS_RTR && qp->state == QRNIC_QPS_RTS) {
        state_of(qp)->next_psn = qp->attr.sq_psn;
    }
}

static void uc_query(const QrnicQp *qp, QrnicQpAttr *out)
{
    out->sq_psn = state_of(qp)->next_psn;
    out->rq_psn = state_of(qp)->epsn;
}

/* Sender */

/*
 * Sends one packet of the current message. Returns false if the payload cannot
 * be read.
 */
static bool send_packet(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *w,
                        uint8_t *syndrome, QrnicFault *fault)
{
    Unreliable *u = qp->type_state;
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

    /* The opcodes WRITE_x have the same order as SEND_x. */
    if (first && last) {
        t.opcode += QRNIC_OP_UC_SEND_ONLY - QRNIC_OP_UC_SEND_FIRST + imm;
    } else if (last) {
        t.opcode += QRNIC_OP_UC_SEND_LAST - QRNIC_OP_UC_SEND_FIRST + imm;
    } else if (!first) {
        t.opcode += QRNIC_OP_UC_SEND_MIDDLE - QRNIC_OP_UC_SEND_FIRST;
    }
    payload = qrnic_packet_open(e, qp, &t, len);
    *syndrome = qrnic_gather_part(e, qp, w, u->sent, payload, len, fault);
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
    Unreliable *u = qp->type_state;
    QrnicFault fault;

    if (qrnic_is_local_operation(w->opcode)) {
        bool done = qrnic_local_operation(e, qp, w, syndrome) ==
                    QRNIC_LOCAL_DONE;

        *status = *syndrome ? QRNIC_WC_MW_BIND_ERR : QRNIC_WC_SUCCESS;
        return done;
    }
    if (!qp->under_way) {
        u->sent = 0;
    }
    if (!send_packet(e, qp, w, syndrome, &fault)) {
        *status = QRNIC_WC_LOC_PROT_ERR;
        return !qrnic_page_fault(e, qp, QRNIC_SIDE_SEND, *syndrome, &fault);
    }
    return u->sent == w->length;
}

static bool uc_flush(QrnicEngine *e, QrnicQp *qp)
{
    return qrnic_inbound_flush(e, qp, &state_of(qp)->in);
}

/*
 * Receiver. An invalid packet drops its message. Only an invalid receive WQE
 * fails the queue pair, because any peer can send an invalid packet.
 */

static void drop_message(QrnicEngine *e, QrnicQp *qp, uint32_t psn,
                         enum qrnic_counter why)
{
    QrnicInbound *in = &state_of(qp)->in;

    /*
     * The receive WQE is kept for the next message (9.8.2.2.1). A place in a
     * streaming buffer is returned instead.
     */
    in->message = QRNIC_IDLE;
    if (in->recv && in->recv->stream) {
        qrnic_inbound_give_back(e, qp, in);
    }
    qrnic_add(e, why, 1);
    trace_qrnic_roce_drop(e->config.name, qp->number, psn,
                          qrnic_counter_name(why));
}

static void drop(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p,
                 enum qrnic_counter why)
{
    drop_message(e, qp, p->t.psn, why);
}

/*
 * Drops a message that has met an absent page. The page fault is reported,
 * because later messages need the page, too.
 */
static void drop_absent(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p,
                        const QrnicFault *fault)
{
    qrnic_page_fault(e, qp, QRNIC_SIDE_RECV, QRNIC_SYN_PAGE_FAULT, fault);
    drop(e, qp, p, QRNIC_COUNTER_RX_DROP_PAGE_FAULT);
}

/*
 * Consumes a receive WQE. Returns false if none is posted or it is invalid; the
 * message is dropped.
 */
static bool recv_take(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    QrnicInbound *in = &state_of(qp)->in;

    if (in->recv) {
        return true;
    }
    switch (qrnic_inbound_take(e, qp, in)) {
    case QRNIC_TAKE_EMPTY:
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_NO_WQE);
        return false;
    case QRNIC_TAKE_ERROR:
        qrnic_qp_error(e, qp, 0, 0);
        return false;
    case QRNIC_TAKE_BROKEN:
        qrnic_qp_error(e, qp, QRNIC_EVENT_QP_FATAL, QRNIC_WC_LOC_QP_OP_ERR);
        return false;
    case QRNIC_TAKE_OK:
        break;
    }
    return true;
}

static void receive_send(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    QrnicInbound *in = &state_of(qp)->in;
    QrnicFault fault;

    if (p->info->flags & QRNIC_OPF_START) {
        if (!recv_take(e, qp, p)) {
            return;
        }
        qrnic_inbound_send_begin(in);
    }
    switch (qrnic_inbound_send(e, qp, in, p, &fault)) {
    case QRNIC_PLACED_TOO_LONG:
        /*
         * The WQE is not consumed, because otherwise any peer could use up the
         * WQEs with invalid packets.
         */
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_LENGTH);
        return;
    case QRNIC_PLACED_ABSENT:
        drop_absent(e, qp, p, &fault);
        return;
    case QRNIC_PLACED_FAILED:
        qrnic_qp_error(e, qp, 0, 0);
        return;
    case QRNIC_PLACED_OK:
        break;
    }
    if (p->info->flags & QRNIC_OPF_END) {
        qrnic_inbound_send_end(e, qp, in, p);
    }
}

static void receive_write(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    QrnicInbound *in = &state_of(qp)->in;
    uint32_t flags = p->info->flags, pd = qp->pd->number;
    enum qrnic_syndrome syndrome;
    QrnicFault fault;

    if (flags & QRNIC_OPF_START) {
        if (p->t.dma_len > QRNIC_MAX_MSG_SIZE) {
            drop(e, qp, p, QRNIC_COUNTER_RX_DROP_MALFORMED);
            return;
        }
        if (qrnic_inbound_write_begin(e, qp, in, p, pd)) {
            drop(e, qp, p, QRNIC_COUNTER_RX_DROP_ACCESS);
            return;
        }
    }
    if (!qrnic_inbound_write_fits(in, p)) {
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_MALFORMED);
        return;
    }
    if (flags & QRNIC_HDR_IMM && !recv_take(e, qp, p)) {
        return;
    }
    syndrome = qrnic_inbound_write(e, qp, in, p, pd, &fault);
    if (syndrome == QRNIC_SYN_PAGE_FAULT) {
        drop_absent(e, qp, p, &fault);
        return;
    }
    if (syndrome) {
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_ACCESS);
        return;
    }
    if (flags & QRNIC_OPF_END) {
        qrnic_inbound_write_end(e, qp, in, p);
    }
}

static void uc_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    Unreliable *u = qp->type_state;
    uint32_t flags = p->info->flags;
    bool write = flags & QRNIC_OPF_WRITE;

    qrnic_inbound_arrived(e, qp);
    /*
     * A new message may begin with any PSN, because missing packets are never
     * retransmitted.
     */
    if (flags & QRNIC_OPF_START) {
        qrnic_add(e, QRNIC_COUNTER_OUT_OF_SEQUENCE, p->t.psn != u->epsn);
        if (u->in.message != QRNIC_IDLE) {
            drop_message(e, qp, u->epsn, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE);
        }
    } else if (p->t.psn != u->epsn ||
               u->in.message != (write ? QRNIC_IN_WRITE : QRNIC_IN_SEND)) {
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE);
        return;
    }
    u->epsn = qrnic_psn_add(p->t.psn, 1);
    if (!qrnic_inbound_length_ok(qp, p)) {
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_MALFORMED);
        return;
    }
    if (write) {
        receive_write(e, qp, p);
    } else {
        receive_send(e, qp, p);
    }
}

static void uc_context(const QrnicQp *qp, uint32_t *word)
{
    const Unreliable *u = qp->type_state;

    word[0] = u->next_psn;
    word[1] = u->epsn;
    word[2] = u->sent;
}

static const QrnicTransition uc_transitions[] = {
    { QRNIC_QPS_RESET, QRNIC_QPS_INIT,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_ACCESS_FLAGS, 0 },
    { QRNIC_QPS_INIT, QRNIC_QPS_INIT,
      0, QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_INIT, QRNIC_QPS_RTR,
      QRNIC_QP_AV | QRNIC_QP_PATH_MTU | QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_RTR, QRNIC_QPS_RTS, QRNIC_QP_SQ_PSN, QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_RTS, QRNIC_QPS_RTS, 0, QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_RTS, QRNIC_QPS_SQD, 0, QRNIC_QP_EN_SQD_ASYNC_NOTIFY },
    { QRNIC_QPS_SQD, QRNIC_QPS_RTS, 0, QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_SQD, QRNIC_QPS_SQD,
      0, QRNIC_QP_PKEY_INDEX | QRNIC_QP_AV | QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_SQE, QRNIC_QPS_RTS, 0, QRNIC_QP_ACCESS_FLAGS },
};

static const QrnicStates uc_states = {
    uc_transitions, ARRAY_SIZE(uc_transitions),
};

const QrnicQpOps qrnic_uc_ops = {
    .capability = QRNIC_CAP_UC,
    .service = QRNIC_SERVICE_UC,
    .has_sq = true,
    .has_rq = true,
    .may_share = true,
    .may_inline = true,
    .may_stream = true,
    .has_sqe = true,
    .states = &uc_states,
    .shape = qrnic_uc_shape,
    .init = uc_init,
    .cleanup = uc_cleanup,
    .entered = uc_entered,
    .query = uc_query,
    .context = uc_context,
    .transmit = qrnic_transmit,
    .send = uc_send,
    .receive = uc_receive,
    .flush_receive = uc_flush,
};
