/*
 * qrnic engine, layer qp: states and attributes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Executes MODIFY_QP and QUERY_QP. modify_check() finds the transition in the
 * table of the type, checks that its required attributes are present, and
 * validates each value. Then the attributes are copied, and entered() starts
 * the new state. A rejected command changes nothing. qp->attr holds the
 * attributes between commands.
 *
 * InfiniBand specification, 10.3.1 (states) and 11.2.5.2 (attributes that a
 * transition requires and allows).
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

#define REMOTE_RIGHTS (QRNIC_ACCESS_REMOTE_WRITE | QRNIC_ACCESS_REMOTE_READ | \
                       QRNIC_ACCESS_REMOTE_ATOMIC | QRNIC_ACCESS_FLUSH_GLOBAL)

#define PKEY            QRNIC_QP_PKEY_INDEX
#define PORT            QRNIC_QP_PORT
#define ACCESS          QRNIC_QP_ACCESS_FLAGS
#define RNR_TIMER       QRNIC_QP_MIN_RNR_TIMER
#define NOTIFY          QRNIC_QP_EN_SQD_ASYNC_NOTIFY

/* Transitions that each state allows (10.3.1.2 and 10.3.1.7) */
static const QrnicTransition to_reset = { 0, QRNIC_QPS_RESET, 0, 0 };
static const QrnicTransition to_error = { 0, QRNIC_QPS_ERR, 0, 0 };

static const QrnicTransition *transition_find(const QrnicQp *qp, uint8_t to)
{
    const QrnicStates *states = qp->ops->states;

    if (to == QRNIC_QPS_RESET) {
        return &to_reset;
    }
    if (to == QRNIC_QPS_ERR) {
        return &to_error;
    }
    for (; states; states = states->others) {
        for (size_t i = 0; i < states->count; i++) {
            const QrnicTransition *t = &states->transition[i];

            if (t->from == qp->state && t->to == to) {
                return t;
            }
        }
    }
    return NULL;
}

static bool av_is_zero(const QrnicAddressVector *av)
{
    static const QrnicAddressVector zero;

    return !memcmp(av->dgid, zero.dgid, sizeof(av->dgid)) &&
           !memcmp(av->dmac, zero.dmac, sizeof(av->dmac)) &&
           !av->sgid_index && !av->udp_sport && !av->traffic_class &&
           !av->hop_limit && !av->flow_label && !av->sl;
}

static QrnicResult bad_av(uint32_t offset)
{
    return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_AV_OFFSET + offset);
}

QrnicResult qrnic_av_check(QrnicEngine *e, const QrnicAddressVector *av)
{
    static const uint8_t zero[16];
    const QrnicGidEntry *g = qrnic_gid_get(e, av->sgid_index);

    /*
     * A multicast address is invalid, because a connection has exactly one
     * peer.
     */
    if (!memcmp(av->dgid, zero, 16) || qrnic_gid_is_multicast(av->dgid)) {
        return bad_av(QRNIC_ADDRESS_VECTOR_DGID_OFFSET);
    }
    if (!g || !qrnic_gid_reaches(g, av->dgid)) {
        return bad_av(QRNIC_ADDRESS_VECTOR_SGID_INDEX_OFFSET);
    }
    if (!qrnic_udp_sport_is_valid(g, av)) {
        return bad_av(QRNIC_ADDRESS_VECTOR_UDP_SPORT_OFFSET);
    }
    if (!memcmp(av->dmac, zero, 6) || av->dmac[0] & 1) {
        return bad_av(QRNIC_ADDRESS_VECTOR_DMAC_OFFSET);
    }
    return qrnic_ok(0);
}

/* Value of an attribute, with its range */
typedef struct Value {
    /* 0: no attribute; only QUERY_QP returns the member */
    uint32_t attribute;
    uint32_t offset;
    uint32_t value, min, max;
} Value;

/* Returns the options of the type that the device supports. */
static uint8_t options_known(const QrnicEngine *e, const QrnicQp *qp)
{
    uint64_t has = e->config.capabilities;

    return qp->ops->options &
           ~((has & QRNIC_CAP_SELECTIVE_REPEAT ? 0 :
              QRNIC_QPO_SELECTIVE_REPEAT) |
             (has & QRNIC_CAP_ADAPTIVE_ROUTING ? 0 :
              QRNIC_QPO_ADAPTIVE_ROUTING));
}

static QrnicResult values_check(QrnicEngine *e, const QrnicQp *qp,
                                const QrnicQpAttr *in)
{
    const uint32_t rd = e->config.max_rd_atomic;
    const Value values[] = {
#define V(attribute, name, member, min, max) \
        { attribute, QRNIC_QP_ATTR_##name##_OFFSET, in->member, min, max }
        V(QRNIC_QP_STATE, STATE, state, 0, QRNIC_QPS_ERR),
        V(QRNIC_QP_CUR_STATE, CUR_STATE, cur_state, 0, QRNIC_QPS_ERR),
        /*
         * An MTU above that of the port is rejected, because the port would
         * drop such packets.
         */
        V(QRNIC_QP_PATH_MTU, PATH_MTU, path_mtu, QRNIC_MTU_256,
          qrnic_port_path_mtu(e)),
        /*
         * Only remote rights are valid here, because local access is granted by
         * keys and not by the queue pair.
         */
        V(ACCESS, ACCESS, access & REMOTE_RIGHTS, in->access, in->access),
        V(QRNIC_QP_TIMEOUT, TIMEOUT, timeout, 0, 31),
        V(QRNIC_QP_RETRY_CNT, RETRY_CNT, retry_cnt, 0, 7),
        V(QRNIC_QP_RNR_RETRY, RNR_RETRY, rnr_retry, 0, 7),
        V(RNR_TIMER, MIN_RNR_TIMER, min_rnr_timer, 0, 31),
        V(QRNIC_QP_MAX_RD_ATOMIC, MAX_RD_ATOMIC, max_rd_atomic, 0, rd),
        V(QRNIC_QP_MAX_DEST_RD_ATOMIC, MAX_DEST_RD_ATOMIC, max_dest_rd_atomic,
          0, rd),
        V(PORT, PORT, port, 1, 1),
        V(NOTIFY, SQ_DRAINED_NOTIFY, sq_drained_notify, 0, 1),
        V(QRNIC_QP_DEST_QPN, DEST_QPN, dest_qpn, 0, 0xffffff),
        V(QRNIC_QP_SQ_PSN, SQ_PSN, sq_psn, 0, QRNIC_PSN_MASK),
        V(QRNIC_QP_RQ_PSN, RQ_PSN, rq_psn, 0, QRNIC_PSN_MASK),
        V(QRNIC_QP_QKEY, QKEY, qkey, 0, UINT32_MAX),
        V(PKEY, PKEY_INDEX, pkey_index, 0, 0),
        V(0, QUERY, sq_draining, 0, 0),
        V(0, SQ_PRODUCER, sq_producer, 0, 0),
        V(0, SQ_CONSUMER, sq_consumer, 0, 0),
        V(0, RQ_PRODUCER, rq_producer, 0, 0),
        V(0, RQ_CONSUMER, rq_consumer, 0, 0),
        V(0, QP_TYPE, qp_type, 0, 0),
        V(QRNIC_QP_PRIORITY, PRIORITY, priority, 0, QRNIC_PRIORITY_LEVELS),
        V(QRNIC_QP_OPTIONS, OPTIONS, options, 0,
          in->options & options_known(e, qp)),
        V(0, OPTIONS_IN_FORCE, options_in_force, 0, 0),
        V(QRNIC_QP_CARRIER, CARRIER, carrier, 1, 0xffffff),
        V(QRNIC_QP_RATE_LIMIT, TYPICAL_PKT_SZ, typical_pkt_sz, 0, UINT16_MAX),
        V(QRNIC_QP_RATE_LIMIT, RATE_LIMIT, rate_limit, 0,
          QRNIC_MAX_RATE_LIMIT),
        V(QRNIC_QP_RATE_LIMIT, MAX_BURST_SZ, max_burst_sz, 0, UINT32_MAX),
#undef V
    };

    for (unsigned i = 0; i < ARRAY_SIZE(values); i++) {
        const Value *v = &values[i];
        bool given = in->mask & v->attribute;

        /* A member without its attribute must be zero. */
        if (given ? v->value < v->min || v->value > v->max : v->value != 0) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM, v->offset);
        }
    }
    if (in->mask & QRNIC_QP_AV) {
        return qrnic_av_check(e, &in->av);
    }
    return av_is_zero(&in->av) ? qrnic_ok(0) : bad_av(0);
}

/* Checks the transition first, then its attributes, then their values. */
static QrnicResult modify_check(QrnicEngine *e, QrnicQp *qp,
                                const QrnicQpAttr *in, uint8_t to)
{
    const QrnicTransition *t = transition_find(qp, to);
    uint32_t given = in->mask & ~(QRNIC_QP_STATE | QRNIC_QP_CUR_STATE);
    QrnicResult result;
    uint32_t wrong;

    if (!t || (in->mask & QRNIC_QP_CUR_STATE && in->cur_state != qp->state)) {
        return qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
    }
    /*
     * The SQ still uses its attributes while it drains, so they cannot change.
     */
    if (qp->state == QRNIC_QPS_SQD && qp->sq_draining &&
        to != QRNIC_QPS_RESET && to != QRNIC_QPS_ERR &&
        (to == QRNIC_QPS_RTS || given & ~(ACCESS | RNR_TIMER))) {
        return qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
    }
    if (given & QRNIC_QP_RATE_LIMIT) {
        if (!(e->config.capabilities & QRNIC_CAP_RATE_LIMIT)) {
            return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                                QRNIC_QP_ATTR_RATE_LIMIT_OFFSET);
        }
        /*
         * Each SQ can get a rate limit in this transition, independent of its
         * type.
         */
        if (to == QRNIC_QPS_RTS && qrnic_qp_has_sq(qp)) {
            given &= ~QRNIC_QP_RATE_LIMIT;
        }
    }
    if (given & QRNIC_QP_PRIORITY) {
        if (!(e->config.capabilities & QRNIC_CAP_PRIORITY)) {
            return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                                QRNIC_QP_ATTR_PRIORITY_OFFSET);
        }
        if (to == QRNIC_QPS_RTS && qrnic_qp_has_sq(qp)) {
            given &= ~QRNIC_QP_PRIORITY;
        }
    }
    if (given & QRNIC_QP_CARRIER &&
        !(e->config.capabilities & QRNIC_CAP_SHARED_CONNECTION)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_QP_ATTR_CARRIER_OFFSET);
    }
    wrong = t->required & ~given;
    if (!wrong) {
        wrong = given & ~(t->required | t->optional);
    }
    if (wrong) {
        return qrnic_refuse(QRNIC_ST_BAD_ATTR, wrong);
    }
    result = values_check(e, qp, in);
    if (result.status == QRNIC_ST_OK && qp->ops->modify_check) {
        result = qp->ops->modify_check(e, qp, in, to);
    }
    if (result.status == QRNIC_ST_OK && qp->state == QRNIC_QPS_SQD &&
        given & QRNIC_QP_MAX_DEST_RD_ATOMIC &&
        !qp->ops->can_keep(qp, in->max_dest_rd_atomic)) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    return result;
}

static void attr_copy(QrnicQpAttr *a, const QrnicQpAttr *in)
{
#define COPY(attribute, member) \
    do { \
        if (in->mask & (attribute)) { \
            a->member = in->member; \
        } \
    } while (0)
    COPY(ACCESS, access);
    COPY(QRNIC_QP_PATH_MTU, path_mtu);
    COPY(QRNIC_QP_TIMEOUT, timeout);
    COPY(QRNIC_QP_RETRY_CNT, retry_cnt);
    COPY(QRNIC_QP_RNR_RETRY, rnr_retry);
    COPY(RNR_TIMER, min_rnr_timer);
    COPY(QRNIC_QP_MAX_RD_ATOMIC, max_rd_atomic);
    COPY(QRNIC_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    COPY(PORT, port);
    COPY(NOTIFY, sq_drained_notify);
    COPY(QRNIC_QP_DEST_QPN, dest_qpn);
    COPY(QRNIC_QP_SQ_PSN, sq_psn);
    COPY(QRNIC_QP_RQ_PSN, rq_psn);
    COPY(QRNIC_QP_QKEY, qkey);
    COPY(PKEY, pkey_index);
    COPY(QRNIC_QP_AV, av);
    COPY(QRNIC_QP_PRIORITY, priority);
    COPY(QRNIC_QP_OPTIONS, options);
    COPY(QRNIC_QP_CARRIER, carrier);
    COPY(QRNIC_QP_RATE_LIMIT, rate_limit);
    COPY(QRNIC_QP_RATE_LIMIT, max_burst_sz);
    COPY(QRNIC_QP_RATE_LIMIT, typical_pkt_sz);
#undef COPY
}

static void work_queue_reset(QrnicEngine *e, QrnicWorkQueue *wq)
{
    wq->producer = wq->consumer = wq->completed = 0;
    qrnic_fetch_put(e, wq);
    qrnic_stream_clear(wq->stream);
    wq->bad_record = QRNIC_SYN_NONE;
}

void qrnic_qp_reset(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_unschedule(e, qp);
    qrnic_timer_cancel(e, &qp->timer);
    qrnic_sq_hold_reset(e, qp);
    work_queue_reset(e, &qp->sq);
    work_queue_reset(e, &qp->rq);
    qrnic_pace_restart(e, qp);
    qrnic_congestion_drop(e, qp);
    qrnic_notification_drop(e, qp);
    qrnic_page_faults_drop(e, qp);
    qrnic_transmit_drop(e, qp);
    memset(&qp->attr, 0, sizeof(qp->attr));
    memset(&qp->path, 0, sizeof(qp->path));
    qp->cnp_next = 0;
    qp->sq_draining = false;
    qp->sq_rung = false;
    qp->sq_asleep = true;
    qp->sq_flush_owed = false;
    qp->comm_established = false;
    qp->peer_options = 0;
    qp->last_wqe_reported = false;
    qp->owed_event = 0;
    if (qp->ops->init) {
        qp->ops->init(e, qp);
    }
}

static void entered(QrnicEngine *e, QrnicQp *qp, uint8_t from,
                    const QrnicQpAttr *in)
{
    if (in->mask & QRNIC_QP_AV) {
        qrnic_path_set(e, qp, &qp->attr.av, qp->attr.dest_qpn);
    }
    if (from == QRNIC_QPS_SQE && qp->state == QRNIC_QPS_RTS) {
        qrnic_sq_flush_rest(e, qp);
    } else if (from == QRNIC_QPS_RTS && qp->state == QRNIC_QPS_SQD) {
        qp->attr.sq_drained_notify = in->sq_drained_notify;
        qp->sq_draining = true;
    }
    if (qp->ops->entered) {
        qp->ops->entered(e, qp, from, in);
    }
}

/*
 * Returns true if WQEs may have been posted before the state allows to send. A
 * queue pair that enters RTS from RTR is checked, because most have no WQE yet.
 * A useless run would cost one iteration of the main loop.
 */
static bool state_gives_work(const QrnicQp *qp, uint8_t from)
{
    if (from == QRNIC_QPS_RTR && qp->state == QRNIC_QPS_RTS) {
        return qp->sq_rung || qp->sq.bad_record ||
               qp->sq.producer != qp->sq.consumer;
    }
    return qp->state == QRNIC_QPS_RTS || qp->state == QRNIC_QPS_SQD;
}

QrnicResult qrnic_qp_modify(QrnicEngine *e, uint32_t qpn, const QrnicQpAttr *in)
{
    QrnicQp *qp = qrnic_qp_find(e, qpn);
    QrnicResult result;
    uint8_t from, to;

    if (!qp) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    qrnic_context_now(e, qp);
    from = qp->state;
    to = in->mask & QRNIC_QP_STATE ? in->state : from;
    result = modify_check(e, qp, in, to);
    trace_qrnic_qp_modify(e->config.name, qpn, qrnic_qp_state_name(from),
                          qrnic_qp_state_name(to), in->mask, result.status,
                          result.syndrome);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (to == QRNIC_QPS_RESET) {
        qrnic_qp_reset(e, qp);
        qp->state = to;
        qrnic_level_set(e, qp);
        qrnic_context_unpin(e, qp);
    } else if (to == QRNIC_QPS_ERR) {
        qrnic_qp_error(e, qp, 0, 0);
    } else {
        attr_copy(&qp->attr, in);
        if (in->mask & QRNIC_QP_RATE_LIMIT) {
            qrnic_pace_restart(e, qp);
        }
        qp->state = to;
        if (in->mask & (QRNIC_QP_PRIORITY | QRNIC_QP_AV)) {
            qrnic_level_set(e, qp);
        }
        entered(e, qp, from, in);
        if (state_gives_work(qp, from)) {
            qrnic_schedule(e, qp);
        }
    }
    return qrnic_ok(0);
}

QrnicResult qrnic_qp_query(QrnicEngine *e, uint32_t qpn, QrnicQpAttr *out)
{
    QrnicQp *qp = qrnic_qp_find(e, qpn);

    if (!qp) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    qrnic_context_now(e, qp);
    *out = qp->attr;
    out->mask = 0;
    out->state = out->cur_state = qp->state;
    out->sq_draining = qp->sq_draining;
    out->sq_producer = qp->sq.producer;
    out->sq_consumer = qp->sq.completed;
    out->rq_producer = qp->rq.producer;
    out->rq_consumer = qp->rq.consumer;
    out->qp_type = qp->type;
    out->options_in_force = qp->attr.options & qp->peer_options;
    if (qp->ops->query && qp->state != QRNIC_QPS_RESET) {
        qp->ops->query(qp, out);
    }
    return qrnic_ok(0);
}

bool qrnic_qp_report(QrnicEngine *e, uint32_t from, QrnicQpReport *out)
{
    for (uint32_t n = from; n < e->qps->table.limit; n++) {
        const QrnicQp *qp = qrnic_qp_find(e, n);

        if (qp) {
            *out = (QrnicQpReport) {
                .number = n,
                .type = qp->type,
                .state = qp->state,
                .level = qp->level,
                .dest_qpn = qp->attr.dest_qpn,
                .sq_producer = qp->sq.producer,
                .sq_fetched = qp->sq.consumer,
                .sq_completed = qp->sq.completed,
                .rq_producer = qp->rq.producer,
                .rq_consumer = qp->rq.consumer,
                .retransmissions = qp->retransmissions,
            };
            return true;
        }
    }
    return false;
}

bool qrnic_qp_receives(const QrnicQp *qp, bool response)
{
    switch (qp->state) {
    case QRNIC_QPS_RTR:
        return !response;
    case QRNIC_QPS_RTS:
    case QRNIC_QPS_SQD:
    case QRNIC_QPS_SQE:
        return true;
    default:
        return false;
    }
}
