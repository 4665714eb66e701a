/*
 * qrnic engine, transport: the initiator of dynamic connections
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * An initiator has one connection at a time, to the target of the WQE that its
 * requester has consumed last. The requester calls initiator_reach() for each
 * WQE. A WQE with another target waits until the ring is empty. Then
 * initiator_step() sends DISCONNECT to the old target and CONNECT to the new
 * one. The first answer of the target calls accepted(). If idle, the timer
 * disconnects. The state between calls is Initiator, in qp->type_state. Manual,
 * chapter Dynamic connections.
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/transport/dynamic/dynamic.h"

/* Largest number of doublings of the wait after a CNAK */
#define MAX_BACK_OFF 10

typedef struct Initiator {
    /* target of the connection; valid if there is one */
    QrnicDynamicSeg to;
    bool wanted;                /* Connection exists or must be made */
    /*
     * Path and number are set for the connection. Otherwise they are those of
     * the previous one.
     */
    bool begun;
    /* DISCONNECT is pending along the current path */
    bool disconnect_due;
    bool followed;              /* requests followed the first CONNECT */
    int64_t followed_at;
    uint32_t psn;               /* PSN of CONNECT */
    unsigned refusals;          /* CNAKs because no responder was free */
    int64_t idle_at;            /* time to disconnect, because idle */
} Initiator;

static Initiator *state_of(const QrnicQp *qp)
{
    return qp->type_state;
}

static void initiator_init(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_reliable_cleanup(e, qp);
    qrnic_requester_init(e, qp);
    g_free(qp->type_state);
    qp->type_state = g_new0(Initiator, 1);
    state_of(qp)->idle_at = QRNIC_DEADLINE_NEVER;
}

static void initiator_cleanup(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_reliable_cleanup(e, qp);
    g_free(qp->type_state);
    qp->type_state = NULL;
}

static bool same_address(const QrnicDynamicSeg *a, const QrnicDynamicSeg *b)
{
    return a->target == b->target && a->access_key == b->access_key &&
           !memcmp(a->av.dgid, b->av.dgid, sizeof(a->av.dgid)) &&
           !memcmp(a->av.dmac, b->av.dmac, sizeof(a->av.dmac)) &&
           a->av.sgid_index == b->av.sgid_index &&
           a->av.udp_sport == b->av.udp_sport &&
           a->av.traffic_class == b->av.traffic_class &&
           a->av.hop_limit == b->av.hop_limit &&
           a->av.flow_label == b->av.flow_label && a->av.sl == b->av.sl;
}

static bool initiator_reach(QrnicEngine *e, QrnicQp *qp,
                            const QrnicSendWqe *wqe)
{
    Initiator *d = qp->type_state;

    if (d->wanted && same_address(&d->to, &wqe->dynamic)) {
        return true;
    }
    if (!qrnic_requester_idle(qp)) {
        return false;
    }
    d->disconnect_due |= d->wanted;
    d->to = wqe->dynamic;
    d->wanted = true;
    d->begun = d->followed = false;
    d->refusals = 0;
    d->psn = qrnic_requester_next_psn(qp);
    d->idle_at = QRNIC_DEADLINE_NEVER;
    qrnic_requester_connect(e, qp);
    return true;
}

static void send_control(QrnicEngine *e, QrnicQp *qp, uint8_t opcode,
                         uint32_t psn)
{
    Initiator *d = qp->type_state;
    QrnicTransport t = qrnic_connection_transport(qp, 0, psn);

    t.opcode = opcode;
    t.access_key = d->to.access_key;
    t.path_mtu = qp->attr.path_mtu;
    t.rd_atomic = qp->attr.max_rd_atomic;
    qrnic_packet_send(e, qp, &t, qrnic_packet_open(e, qp, &t, 0), 0);
}

static void send_disconnect(QrnicEngine *e, QrnicQp *qp)
{
    state_of(qp)->disconnect_due = false;
    trace_qrnic_dynamic_disconnect(e->config.name, qp->number,
                                   qp->attr.dest_qpn, qp->connection);
    qrnic_add(e, QRNIC_COUNTER_DYNAMIC_DISCONNECTS, 1);
    send_control(e, qp, QRNIC_OP_DC_DISCONNECT, qrnic_requester_next_psn(qp));
}

/*
 * Returns the number of a new connection: real time in units of 1,024 ns, but
 * more than the last number. So the number is newer for a peer that remembers a
 * connection before a reset or of an earlier process.
 */
static uint32_t connection_number(QrnicEngine *e)
{
    QrnicTransports *t = e->transport;
    uint64_t now = e->env.real_time_ns ?
                   e->env.real_time_ns(e->env.opaque) : qrnic_now(e);

    t->connection = MAX(t->connection + 1, now >> 10);
    return t->connection & 0xffffff;
}

/* Sets path and number of the new connection. */
static void connection_begin(QrnicEngine *e, QrnicQp *qp)
{
    Initiator *d = qp->type_state;

    if (qrnic_av_check(e, &d->to.av).status != QRNIC_ST_OK) {
        qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, "SQ", qp->number,
                          "the address vector of target %" PRIu32
                          " is invalid", d->to.target);
        qrnic_requester_fail(e, qp, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_ADDRESS);
        return;
    }
    qp->connection = connection_number(e);
    qp->attr.dest_qpn = d->to.target;
    qrnic_path_set(e, qp, &d->to.av, d->to.target);
    d->begun = true;
    qrnic_add(e, QRNIC_COUNTER_DYNAMIC_CONNECTS, 1);
    trace_qrnic_dynamic_connect(e->config.name, qp->number, d->to.target,
                                qp->connection, d->psn);
}

static void send_connect(QrnicEngine *e, QrnicQp *qp)
{
    Initiator *d = qp->type_state;
    bool full = qp->ctx.dynamic.flags & QRNIC_DYNAMICF_FULL ||
                qp->attr.options & QRNIC_QPO_FULL_HANDSHAKE || d->refusals;

    /*
     * The target may have executed the requests behind the first CONNECT, and
     * may have forgotten their connection since. A late CONNECT could execute
     * them twice, so the queue pair fails.
     */
    if (d->followed && qrnic_now(e) - d->followed_at >
                       QRNIC_DYNAMIC_CONNECT_TIME * SCALE_MS) {
        qrnic_requester_fail(e, qp, QRNIC_WC_RETRY_EXC_ERR,
                             QRNIC_SYN_DYNAMIC_LATE);
        return;
    }
    send_control(e, qp, QRNIC_OP_DC_CONNECT, d->psn);
    if (!full && !d->followed) {
        d->followed = true;
        d->followed_at = qrnic_now(e);
    }
    qrnic_requester_connect_sent(e, qp, full);
}

/* Sends one packet: DISCONNECT and CONNECT before requests. */
static bool initiator_step(QrnicEngine *e, QrnicQp *qp)
{
    Initiator *d = qp->type_state;

    if (!qrnic_requester_may_run(qp)) {
        return false;
    }
    if (d->disconnect_due) {
        send_disconnect(e, qp);
        return true;
    }
    if (!qrnic_requester_connect_is_due(qp)) {
        /* The WQE that the step consumes may need another connection. */
        return qrnic_requester_step(e, qp) ||
               (qrnic_requester_may_run(qp) &&
                qrnic_requester_connect_is_due(qp));
    }
    if (d->begun) {
        send_connect(e, qp);
    } else {
        connection_begin(e, qp);
    }
    return true;
}

static QrnicReadyList initiator_transmit(QrnicEngine *e, QrnicQp *qp,
                                    unsigned budget)
{
    return qrnic_reliable_transmit(e, qp, budget, NULL, initiator_step);
}

static void accepted(QrnicEngine *e, QrnicQp *qp)
{
    if (!qrnic_requester_is_connecting(qp)) {
        return;
    }
    trace_qrnic_dynamic_connected(e->config.name, qp->number,
                                  qp->attr.dest_qpn, qp->connection);
    qrnic_requester_connected(e, qp);
}

static void busy(QrnicEngine *e, QrnicQp *qp)
{
    Initiator *d = qp->type_state;
    unsigned doublings = MIN(d->refusals, MAX_BACK_OFF);
    int64_t ns = QRNIC_DYNAMIC_BACK_OFF * SCALE_US << doublings;

    if (qrnic_requester_connect_again(e, qp, ns, QRNIC_SYN_DYNAMIC_BUSY)) {
        d->refusals++;
        d->followed = false;    /* No responder has executed the requests. */
    }
}

static void drop(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    qrnic_add(e, QRNIC_COUNTER_RX_DROP_CONNECTION, 1);
    trace_qrnic_roce_drop(e->config.name, qp->number, p->t.psn, "connection");
}

static void refused(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    Initiator *d = qp->type_state;

    /* A CNAK after another answer is old, so it is dropped. */
    if (!qrnic_requester_is_connecting(qp) || p->t.psn != d->psn) {
        drop(e, qp, p);
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_RX_CNAK, 1);
    trace_qrnic_dynamic_refused(e->config.name, qp->number, qp->attr.dest_qpn,
                                qp->connection, p->t.reason, d->refusals);
    switch (p->t.reason) {
    case QRNIC_CNAK_BUSY:
        busy(e, qp);
        break;
    case QRNIC_CNAK_KEY:
        qrnic_requester_fail(e, qp, QRNIC_WC_REM_ACCESS_ERR,
                             QRNIC_SYN_DYNAMIC_KEY);
        break;
    case QRNIC_CNAK_PARAMETERS:
        qrnic_requester_fail(e, qp, QRNIC_WC_REM_INV_REQ_ERR,
                             QRNIC_SYN_DYNAMIC_PARAMETERS);
        break;
    }
}

static bool is_connected(const QrnicQp *qp)
{
    return state_of(qp)->wanted && !qrnic_requester_is_connecting(qp);
}

static void idle_from_now(QrnicEngine *e, QrnicQp *qp)
{
    Initiator *d = qp->type_state;

    if (is_connected(qp) && qrnic_requester_may_run(qp) &&
        qrnic_requester_idle(qp)) {
        d->idle_at = qrnic_now(e) + qrnic_ack_timeout_ns(qp->ctx.dynamic.idle);
        qrnic_timer_advance(e, &qp->timer, d->idle_at);
    }
}

static void initiator_receive(QrnicEngine *e, QrnicQp *qp,
                              const QrnicPacket *p)
{
    if (!state_of(qp)->begun || p->t.connection != qp->connection ||
        p->t.src_qpn != qp->attr.dest_qpn) {
        drop(e, qp, p);
        return;
    }
    if (p->t.opcode == QRNIC_OP_DC_CNAK) {
        refused(e, qp, p);
        return;
    }
    accepted(e, qp);
    if (!(p->info->flags & QRNIC_OPF_CONTROL)) {
        qrnic_requester_receive(e, qp, p);
        idle_from_now(e, qp);
    }
}

static void initiator_timer(QrnicEngine *e, QrnicQp *qp)
{
    Initiator *d = qp->type_state;

    qrnic_requester_timer(e, qp);
    if (d->idle_at == QRNIC_DEADLINE_NEVER || !qrnic_requester_may_run(qp)) {
        return;
    }
    if (!is_connected(qp) || !qrnic_requester_idle(qp)) {
        d->idle_at = QRNIC_DEADLINE_NEVER;
    } else if (qrnic_now(e) < d->idle_at) {
        qrnic_timer_advance(e, &qp->timer, d->idle_at);
    } else {
        d->idle_at = QRNIC_DEADLINE_NEVER;
        d->wanted = d->begun = false;
        d->disconnect_due = true;
        qrnic_schedule(e, qp);
    }
}

static void initiator_resume(QrnicEngine *e, QrnicQp *qp, QrnicSide side)
{
    qrnic_requester_resume(e, qp);
}

static void initiator_entered(QrnicEngine *e, QrnicQp *qp, uint8_t from,
                              const QrnicQpAttr *in)
{
    if (from == QRNIC_QPS_RTR && qp->state == QRNIC_QPS_RTS) {
        qrnic_rc_start_send(e, qp);
    } else if (from == QRNIC_QPS_SQD && qp->state == QRNIC_QPS_SQD &&
               !qp->sq_draining) {
        qrnic_requester_attr_changed(e, qp);
    }
}

static void initiator_query(const QrnicQp *qp, QrnicQpAttr *out)
{
    if (qp->state == QRNIC_QPS_RTS || qp->state == QRNIC_QPS_SQD ||
        qp->state == QRNIC_QPS_ERR) {
        out->sq_psn = qrnic_requester_next_psn(qp);
    }
}

static bool initiator_check(const QrnicDynamicAttr *in)
{
    return !in->access_key && !in->responders && in->idle &&
           in->idle <= QRNIC_DYNAMIC_MAX_IDLE;
}

/*
 * Transitions without an address, because each WQE has the address of its
 * target
 */
static const QrnicTransition initiator_transitions[] = {
    { QRNIC_QPS_RESET, QRNIC_QPS_INIT, QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT, 0 },
    { QRNIC_QPS_INIT, QRNIC_QPS_RTR, QRNIC_QP_PATH_MTU, QRNIC_QP_OPTIONS },
    { QRNIC_QPS_RTR, QRNIC_QPS_RTS,
      QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT | QRNIC_QP_RNR_RETRY |
      QRNIC_QP_SQ_PSN | QRNIC_QP_MAX_RD_ATOMIC, 0 },
    { QRNIC_QPS_RTS, QRNIC_QPS_RTS, 0, 0 },
    { QRNIC_QPS_RTS, QRNIC_QPS_SQD, 0, QRNIC_QP_EN_SQD_ASYNC_NOTIFY },
    { QRNIC_QPS_SQD, QRNIC_QPS_RTS, 0, 0 },
    { QRNIC_QPS_SQD, QRNIC_QPS_SQD, 0,
      QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT | QRNIC_QP_RNR_RETRY |
      QRNIC_QP_MAX_RD_ATOMIC },
};

static const QrnicStates initiator_states = {
    initiator_transitions, ARRAY_SIZE(initiator_transitions),
};

const QrnicQpOps qrnic_dynamic_initiator_ops = {
    .capability = QRNIC_CAP_DYNAMIC,
    .service = QRNIC_SERVICE_DC,
    .has_sq = true,
    .no_requests = true,
    .no_recv_wqes = true,
    .options = QRNIC_QPO_FULL_HANDSHAKE,
    /* A CNP could not name one of the connections of the target. */
    .sends_no_cnp = true,
    .states = &initiator_states,
    .shape = qrnic_dynamic_shape,
    .dynamic_check = initiator_check,
    .init = initiator_init,
    .cleanup = initiator_cleanup,
    .entered = initiator_entered,
    .query = initiator_query,
    .transmit = initiator_transmit,
    .reach = initiator_reach,
    .is_idle = qrnic_requester_idle,
    .timer = initiator_timer,
    .resume = initiator_resume,
    .receive = initiator_receive,
    .flush_send = qrnic_requester_flush_one,
};
