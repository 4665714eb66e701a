/*
 * qrnic engine, transport: the target of dynamic connections
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The demultiplexer calls target_receive(). A CONNECT gets a free responder and
 * an ACCEPT, or a CNAK with the reason. Answers wait in a ring until the
 * scheduler calls target_transmit(). Requests go to the responder of their
 * initiator, found by GID and number. Connections that have ended are
 * remembered for DYNAMIC_RESPONDER_IDLE, so that late duplicates of their
 * packets are dropped. The state between calls is Target, in qp->type_state.
 * Manual, chapter Dynamic connections.
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/host-utils.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/qp/qp_rate.h"
#include "engine/transport/dynamic/dynamic.h"

/* Largest number of pending answers; a power of two */
#define ANSWERS 64

/* Pending answer; reason 0 is an ACCEPT */
typedef struct Answer {
    QrnicAddressVector av;
    uint32_t initiator, connection, psn;
    uint8_t reason;
} Answer;

/* Connection that has ended. Later duplicates of its packets are dropped. */
typedef struct Ended {
    uint8_t gid[16];
    uint32_t initiator, connection;
    int64_t made_at;
    int64_t until;              /* end of the memory; 0: no entry */
} Ended;

typedef QLIST_HEAD(, QrnicQp) PeerList;

typedef struct Target {
    uint32_t *responder;        /* numbers of the responders */
    uint32_t count;
    /* Responders with a connection, by GID and number of the initiator */
    PeerList *bucket;
    uint32_t buckets;           /* a power of two */
    Answer answer[ANSWERS];
    uint32_t head, tail;
    bool path_set;              /* qp->path is that of the answer at the tail */
    Ended ended[QRNIC_DYNAMIC_ENDED];
    uint32_t ended_next;
} Target;

static uint32_t bucket_of(const Target *t, const uint8_t *gid,
                          uint32_t qpn)
{
    uint32_t hash = (qpn + ldl_be_p(gid + 12)) * 0x9e3779b1u;

    return hash >> 16 & (t->buckets - 1);
}

static QrnicQp *responder_of(const QrnicQp *qp, const QrnicPacket *p)
{
    const Target *t = qp->type_state;
    const uint8_t *gid = p->h->sgid;
    QrnicQp *r;

    QLIST_FOREACH(r, &t->bucket[bucket_of(t, gid, p->t.src_qpn)], next_peer) {
        if (r->attr.dest_qpn == p->t.src_qpn &&
            !memcmp(r->attr.av.dgid, gid, sizeof(r->attr.av.dgid))) {
            return r;
        }
    }
    return NULL;
}

static QrnicQp *responder_free(QrnicEngine *e, const QrnicQp *qp)
{
    const Target *t = qp->type_state;

    for (uint32_t i = 0; i < t->count; i++) {
        QrnicQp *r = qrnic_qp_get(e, t->responder[i]);

        if (r->state == QRNIC_QPS_RESET) {
            return r;
        }
    }
    return NULL;
}

static void drop(QrnicEngine *e, const QrnicQp *qp, const QrnicPacket *p)
{
    qrnic_add(e, QRNIC_COUNTER_RX_DROP_CONNECTION, 1);
    trace_qrnic_roce_drop(e->config.name, qp->number, p->t.psn, "connection");
}

/*
 * Finds the address of the sender of a packet. Returns false if the destination
 * GID has been removed.
 */
static bool address_of(QrnicEngine *e, const QrnicPacket *p,
                       QrnicAddressVector *av)
{
    const QrnicHeaders *h = p->h;
    bool v1 = h->network == QRNIC_NET_GRH;

    *av = (QrnicAddressVector) {
        .traffic_class = h->traffic_class,
        .flow_label = h->flow_label,
        .sl = h->tagged ? h->tci >> 13 : 0,
    };
    memcpy(av->dgid, h->sgid, sizeof(av->dgid));
    memcpy(av->dmac, h->frame + 6, sizeof(av->dmac));
    for (uint32_t i = 0; i < e->fabric->gids_end; i++) {
        const QrnicGidEntry *g = qrnic_gid_get(e, i);

        if (g && !memcmp(g->gid, h->dgid, sizeof(g->gid)) &&
            !(g->flags & QRNIC_GID_ROCE_V1) == !v1 &&
            !memcmp(g->mac, h->frame, sizeof(g->mac)) &&
            (g->flags & QRNIC_GID_VLAN ? g->vlan_id : -1) == h->vlan) {
            av->sgid_index = i;
            return qrnic_av_check(e, av).status == QRNIC_ST_OK;
        }
    }
    return false;
}

static void owe(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p,
                const QrnicAddressVector *av, uint8_t reason)
{
    Target *t = qp->type_state;

    if (t->head - t->tail == ANSWERS) {
        trace_qrnic_dynamic_answer_lost(e->config.name, qp->number,
                                        p->t.src_qpn, p->t.connection);
        return;
    }
    t->answer[t->head++ % ANSWERS] = (Answer) {
        .av = *av,
        .initiator = p->t.src_qpn,
        .connection = p->t.connection,
        .psn = p->t.psn,
        .reason = reason,
    };
    qrnic_schedule(e, qp);
}

static void remember(QrnicEngine *e, QrnicQp *qp, const QrnicQp *r)
{
    Target *t = qp->type_state;
    Ended *x = &t->ended[t->ended_next++ % QRNIC_DYNAMIC_ENDED];

    memcpy(x->gid, r->attr.av.dgid, sizeof(x->gid));
    x->initiator = r->attr.dest_qpn;
    x->connection = r->connection;
    x->made_at = qrnic_responder_times(r)->accepted;
    x->until = qrnic_now(e) + QRNIC_DYNAMIC_RESPONDER_IDLE * SCALE_MS;
}

/*
 * Returns true if a CONNECT with the number may have been sent before the
 * connection.
 *
 * Packets are in the network for at most QRNIC_DYNAMIC_RESPONDER_IDLE.
 * Afterwards any other number is that of a new connection, because the numbers
 * of an idle or restarted initiator may have wrapped around.
 *
 * The clock stops with the VM, because packets that arrive meanwhile wait in
 * the input. By real time an old duplicate among them would be accepted as a
 * new CONNECT.
 */
static bool is_older(QrnicEngine *e, uint32_t number, uint32_t connection,
                     int64_t made_at)
{
    return qrnic_connection_newer(connection, number) &&
           qrnic_now(e) < made_at + QRNIC_DYNAMIC_RESPONDER_IDLE * SCALE_MS;
}

static bool has_ended(QrnicEngine *e, const QrnicQp *qp, const QrnicPacket *p)
{
    const Target *t = qp->type_state;

    for (unsigned i = 0; i < QRNIC_DYNAMIC_ENDED; i++) {
        const Ended *x = &t->ended[i];

        if (x->initiator == p->t.src_qpn && x->until > qrnic_now(e) &&
            !memcmp(x->gid, p->h->sgid, sizeof(x->gid)) &&
            (x->connection == p->t.connection ||
             is_older(e, p->t.connection, x->connection, x->made_at))) {
            return true;
        }
    }
    return false;
}

/* Returns the reason to reject a CONNECT, or 0. */
static uint8_t refusal(const QrnicQp *qp, const QrnicTransport *t)
{
    if (t->access_key != qp->ctx.dynamic.access_key) {
        return QRNIC_CNAK_KEY;
    }
    if (t->path_mtu < QRNIC_MTU_256 || t->path_mtu > qp->attr.path_mtu ||
        t->rd_atomic > qp->attr.max_dest_rd_atomic) {
        return QRNIC_CNAK_PARAMETERS;
    }
    return 0;
}

static void receive_connect(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    QrnicQp *r = responder_of(qp, p);
    uint8_t reason = refusal(qp, &p->t);
    QrnicAddressVector av;

    if (!address_of(e, p, &av) ||
        (r ? is_older(e, p->t.connection, r->connection,
                      qrnic_responder_times(r)->accepted) :
             has_ended(e, qp, p))) {
        drop(e, qp, p);
        return;
    }
    if (!reason && (!r || r->connection != p->t.connection)) {
        if (r) {
            qrnic_dynamic_responder_stop(e, r, "newer connection");
        } else {
            r = responder_free(e, qp);
        }
        if (r) {
            Target *t = qp->type_state;

            qrnic_dynamic_responder_start(e, r, &av, &p->t);
            QLIST_INSERT_HEAD(&t->bucket[bucket_of(t, av.dgid, p->t.src_qpn)],
                              r, next_peer);
        } else {
            reason = QRNIC_CNAK_BUSY;
        }
    }
    owe(e, qp, p, &av, reason);
}

static void target_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    QrnicQp *r;

    if (p->t.opcode == QRNIC_OP_DC_CONNECT) {
        receive_connect(e, qp, p);
        return;
    }
    r = responder_of(qp, p);
    if (!r || r->connection != p->t.connection ||
        !qrnic_path_matches(&r->path, p)) {
        drop(e, qp, p);
    } else if (p->t.opcode == QRNIC_OP_DC_DISCONNECT) {
        remember(e, qp, r);
        qrnic_dynamic_responder_stop(e, r, "disconnected");
    } else {
        if (qrnic_packet_is_marked(e, p)) {
            qrnic_notification_owe(e, r);
        }
        qrnic_dynamic_responder_receive(e, r, p);
    }
}

/*
 * Sends the oldest answer, in two steps: the first one sets the path, because
 * the scheduler must check that path before a packet is sent.
 */
static bool answer_step(QrnicEngine *e, QrnicQp *qp)
{
    Target *d = qp->type_state;
    const Answer *a = &d->answer[d->tail % ANSWERS];
    QrnicTransport t = {
        .opcode = a->reason ? QRNIC_OP_DC_CNAK : QRNIC_OP_DC_ACCEPT,
        .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = a->initiator,
        .psn = a->psn,
        .src_qpn = qp->number,
        .connection = a->connection,
        .reason = a->reason,
    };

    if (d->head == d->tail) {
        return false;
    }
    if (!d->path_set) {
        d->path_set = qrnic_av_check(e, &a->av).status == QRNIC_ST_OK;
        if (d->path_set) {
            qrnic_path_set(e, qp, &a->av, a->initiator);
        } else {
            d->tail++;
        }
        return true;
    }
    d->path_set = false;
    d->tail++;
    trace_qrnic_dynamic_answer(e->config.name, qp->number, a->initiator,
                               a->connection, a->reason);
    qrnic_add(e, QRNIC_COUNTER_TX_CNAK, a->reason != 0);
    qrnic_packet_send(e, qp, &t, qrnic_packet_open(e, qp, &t, 0), 0);
    return true;
}

static QrnicReadyList target_transmit(QrnicEngine *e, QrnicQp *qp,
                                      unsigned budget)
{
    return qrnic_reliable_transmit(e, qp, budget, NULL, answer_step);
}

/* Ends all connections and drops all pending answers. */
static void target_init(QrnicEngine *e, QrnicQp *qp)
{
    Target *t = qp->type_state;

    for (uint32_t i = 0; t && i < t->count; i++) {
        QrnicQp *r = qrnic_qp_get(e, t->responder[i]);

        if (r->state != QRNIC_QPS_RESET) {
            qrnic_dynamic_responder_stop(e, r, "target stopped");
        }
    }
    if (t) {
        memset(t->ended, 0, sizeof(t->ended));
        t->head = t->tail = 0;
        t->path_set = false;
    }
}

static bool target_flush(QrnicEngine *e, QrnicQp *qp)
{
    target_init(e, qp);
    return false;
}

static bool target_created(QrnicEngine *e, QrnicQp *qp)
{
    Target *t = g_new0(Target, 1);
    uint32_t count = qp->ctx.dynamic.responders;

    qp->type_state = t;
    t->responder = g_new(uint32_t, count);
    t->buckets = pow2ceil(count);
    t->bucket = g_malloc0_n(t->buckets, sizeof(*t->bucket));
    while (t->count < count) {
        QrnicQp *r = qrnic_responder_qp_new(e, qp,
                                            &qrnic_dynamic_responder_ops);

        if (!r) {
            return false;
        }
        t->responder[t->count++] = r->number;
    }
    return true;
}

/*
 * Frees the responders. If all queue pairs are freed, some responders are gone
 * already.
 */
static void target_cleanup(QrnicEngine *e, QrnicQp *qp)
{
    Target *t = qp->type_state;

    if (!t) {
        return;
    }
    for (uint32_t i = 0; i < t->count; i++) {
        QrnicQp *r = qrnic_qp_get(e, t->responder[i]);

        if (r && r->target == qp) {
            qrnic_responder_qp_free(e, r);
        }
    }
    g_free(t->responder);
    g_free(t->bucket);
    g_free(t);
    qp->type_state = NULL;
}

static QrnicResult target_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    const QrnicSrq *srq = qrnic_srq_get(e, in->srq);
    QrnicQpCtx queues = *in;
    QrnicResult result;

    /* A target has no queue and no doorbell, but it has these three objects. */
    queues.pd = queues.recv_cq = queues.srq = 0;
    result = qrnic_qp_no_queues_check(e, &queues);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (!qrnic_pd_get(e, in->pd)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_PD_OFFSET);
    }
    if (!qrnic_cq_get(e, in->recv_cq)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_RECV_CQ_OFFSET);
    }
    if (!srq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_SRQ_OFFSET);
    }
    /*
     * The SRQ of an XRC domain completes to its own CQ; and a responder of a
     * target has no rendezvous.
     */
    if (srq->ctx.xrcd || srq->tags) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SRQ_OFFSET);
    }
    return qrnic_ok(0);
}

static bool attr_check(const QrnicDynamicAttr *in)
{
    return in->responders &&
           in->responders <= QRNIC_MAX_DYNAMIC_RESPONDERS && !in->idle &&
           !in->flags;
}

static const QrnicTransition target_transitions[] = {
    { QRNIC_QPS_RESET, QRNIC_QPS_INIT,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_ACCESS_FLAGS, 0 },
    { QRNIC_QPS_INIT, QRNIC_QPS_RTR,
      QRNIC_QP_PATH_MTU | QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER,
      QRNIC_QP_ACCESS_FLAGS },
};

static const QrnicStates target_states = {
    target_transitions, ARRAY_SIZE(target_transitions),
};

const QrnicQpOps qrnic_dynamic_target_ops = {
    .capability = QRNIC_CAP_DYNAMIC,
    .service = QRNIC_SERVICE_DC,
    .no_responses = true,
    .answers_any = true,
    .states = &target_states,
    .create_check = target_check,
    .dynamic_check = attr_check,
    .created = target_created,
    .init = target_init,
    .cleanup = target_cleanup,
    .transmit = target_transmit,
    .receive = target_receive,
    .flush_receive = target_flush,
};
