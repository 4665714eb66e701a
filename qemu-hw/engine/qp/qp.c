/*
 * qrnic engine, layer qp: creation and destruction
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Executes CREATE_QP, DESTROY_QP and the command that binds a counter set.
 * First create_check() validates each member of the context in a fixed order,
 * so that the same input gives the same error. Then qrnic_qp_create() allocates
 * the object, and calls QrnicQpOps.init and created. Last it adds use counts to
 * all objects that the queue pair uses. These objects cannot be destroyed
 * before the queue pair. The table of queue pairs owns the object.
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

#define SQ_MIN_LOG_SIZE 3

void qrnic_qp_type_register(QrnicEngine *e, uint8_t type,
                            const QrnicQpOps *ops)
{
    assert(type < QRNIC_QP_TYPES);
    e->qps->ops[type] = ops;
}

static const QrnicQpOps *ops_of(QrnicEngine *e, const QrnicQpCtx *in)
{
    return in->type < QRNIC_QP_TYPES ? e->qps->ops[in->type] : NULL;
}

/* Checks that the members of the RQ are 0, because the queue pair has no RQ. */
static QrnicResult no_rq_check(const QrnicQpCtx *in)
{
    const QrnicTranslation *t = &in->rq;

    if (in->rq_log_size) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_QP_CTX_RQ_LOG_SIZE_OFFSET);
    }
    if (in->rq_log_stride) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_QP_CTX_RQ_LOG_STRIDE_OFFSET);
    }
    if (in->rq_record) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_RQ_RECORD_OFFSET);
    }
    if (t->root || t->levels || t->page_shift || t->offset) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_RQ_OFFSET);
    }
    return qrnic_ok(0);
}

static QrnicResult srq_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    const QrnicSrq *srq = qrnic_srq_get(e, in->srq);

    if (!(e->config.capabilities & QRNIC_CAP_SRQ)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, QRNIC_QP_CTX_SRQ_OFFSET);
    }
    if (!ops_of(e, in)->may_share) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SRQ_OFFSET);
    }
    if (!srq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_SRQ_OFFSET);
    }
    /*
     * An SRQ of an XRC domain has its own CQ and serves only XRC targets. Tag
     * matching is not supported by all types.
     */
    if (srq->ctx.xrcd || (srq->tags && !ops_of(e, in)->may_match_tags)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SRQ_OFFSET);
    }
    return no_rq_check(in);
}

static QrnicResult check_type(QrnicEngine *e, const QrnicQpCtx *in)
{
    const QrnicQpOps *ops = ops_of(e, in);

    if (!ops) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_TYPE_OFFSET);
    }
    if (ops->capability && !(e->config.capabilities & ops->capability)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, QRNIC_QP_CTX_TYPE_OFFSET);
    }
    if (ops->fixed_number) {
        if (in->db_page) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                QRNIC_QP_CTX_DB_PAGE_OFFSET);
        }
        if (qrnic_qp_get(e, ops->fixed_number)) {
            return qrnic_refuse(QRNIC_ST_BUSY, QRNIC_QP_CTX_TYPE_OFFSET);
        }
    }
    return qrnic_ok(0);
}

static QrnicResult inline_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    if (in->max_recv_inline &&
        !(e->config.capabilities & QRNIC_CAP_INLINE_RECV)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    }
    if (in->max_recv_inline > QRNIC_MAX_RECV_INLINE ||
        (in->max_recv_inline && !ops_of(e, in)->may_inline)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    }
    if (!in->max_recv_inline != !in->address_space) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_QP_CTX_ADDRESS_SPACE_OFFSET);
    }
    return qrnic_ok(0);
}

static QrnicResult stream_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    const QrnicSrq *srq = qrnic_srq_get(e, in->srq);
    bool stream = qrnic_is_stream(&in->stream);

    if (stream && (!ops_of(e, in)->may_stream || in->srq)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_STREAM_OFFSET);
    }
    /*
     * Inline data is rejected, because a CQE has no room for the data beside
     * the offset or the tag.
     */
    if (in->max_recv_inline &&
        (stream || (srq && (srq->rq.stream || srq->tags)))) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    }
    return qrnic_stream_check(e, &in->stream, QRNIC_QP_CTX_STREAM_OFFSET);
}

/* Checks flags: each is valid for some types only and may need a capability. */
static QrnicResult flags_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    static const struct {
        uint8_t flag;
        uint64_t capability;
    } rule[] = {
        { QRNIC_QPF_NO_MULTICAST_LOOPBACK, QRNIC_CAP_UD },
        { QRNIC_QPF_SOURCE_QPN, QRNIC_CAP_SOURCE_QPN },
        { QRNIC_QPF_VLAN_STRIP, QRNIC_CAP_ETH_VLAN },
        { QRNIC_QPF_SCATTER_FCS, QRNIC_CAP_SCATTER_FCS },
        { QRNIC_QPF_RECEIVE_ONLY, QRNIC_CAP_RSS },
        { QRNIC_QPF_EVENT_INDEX, QRNIC_CAP_EVENT_INDEX },
    };
    bool sources = in->flags & QRNIC_QPF_SOURCE_QPN;
    uint8_t allowed = ops_of(e, in)->flags;

    if (ops_of(e, in)->has_sq && !(in->flags & QRNIC_QPF_RECEIVE_ONLY)) {
        allowed |= QRNIC_QPF_EVENT_INDEX;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(rule); i++) {
        if (!(in->flags & rule[i].flag)) {
            continue;
        }
        if (!(allowed & rule[i].flag)) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_FLAGS_OFFSET);
        }
        if (!(e->config.capabilities & rule[i].capability)) {
            return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                                QRNIC_QP_CTX_FLAGS_OFFSET);
        }
    }
    if (sources != !!in->source_qpn || in->source_qpn >= QRNIC_MULTICAST_QPN) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_QP_CTX_SOURCE_QPN_OFFSET);
    }
    return qrnic_ok(0);
}

static QrnicResult dynamic_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    const QrnicDynamicAttr *a = &in->dynamic;
    const QrnicQpOps *ops = ops_of(e, in);

    if (ops->dynamic_check ? !ops->dynamic_check(a) :
        a->access_key || a->responders || a->idle || a->flags) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_DYNAMIC_OFFSET);
    }
    return qrnic_ok(0);
}

static bool speaks_of_ring(const QrnicTranslation *t)
{
    return t->root || t->levels || t->page_shift || t->offset;
}

QrnicResult qrnic_qp_no_queues_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    const struct { bool given; uint32_t offset; } members[] = {
        { in->sq_log_size, QRNIC_QP_CTX_SQ_LOG_SIZE_OFFSET },
        { in->rq_log_size, QRNIC_QP_CTX_RQ_LOG_SIZE_OFFSET },
        { in->rq_log_stride, QRNIC_QP_CTX_RQ_LOG_STRIDE_OFFSET },
        { in->pd, QRNIC_QP_CTX_PD_OFFSET },
        { in->send_cq, QRNIC_QP_CTX_SEND_CQ_OFFSET },
        { in->recv_cq, QRNIC_QP_CTX_RECV_CQ_OFFSET },
        { in->db_page, QRNIC_QP_CTX_DB_PAGE_OFFSET },
        { in->srq, QRNIC_QP_CTX_SRQ_OFFSET },
        { in->sq_record, QRNIC_QP_CTX_SQ_RECORD_OFFSET },
        { in->rq_record, QRNIC_QP_CTX_RQ_RECORD_OFFSET },
        { speaks_of_ring(&in->sq), QRNIC_QP_CTX_SQ_OFFSET },
        { speaks_of_ring(&in->rq), QRNIC_QP_CTX_RQ_OFFSET },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(members); i++) {
        if (members[i].given) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM, members[i].offset);
        }
    }
    return qrnic_ok(0);
}

/* Checks the sizes and addresses of the rings, and that named objects exist. */
static QrnicResult create_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    const QrnicQpOps *ops = ops_of(e, in);
    bool no_sq = in->flags & QRNIC_QPF_RECEIVE_ONLY;
    QrnicResult result = check_type(e, in);

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    result = flags_check(e, in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (in->xrcd && !ops->of_domain) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_XRCD_OFFSET);
    }
    result = inline_check(e, in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    result = stream_check(e, in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    result = dynamic_check(e, in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (ops->create_check) {
        return ops->create_check(e, in);
    }
    if (no_sq ? in->sq_log_size : in->sq_log_size < SQ_MIN_LOG_SIZE ||
        in->sq_log_size > ctz32(QRNIC_MAX_QP_WQEBB)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_QP_CTX_SQ_LOG_SIZE_OFFSET);
    }
    if (in->rq_log_size > ctz32(QRNIC_MAX_QP_RECV)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_QP_CTX_RQ_LOG_SIZE_OFFSET);
    }
    if (in->rq_log_stride > QRNIC_RECEIVE_WQE_MAX_LOG_STRIDE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_QP_CTX_RQ_LOG_STRIDE_OFFSET);
    }
    if (no_sq ? in->sq_record : in->sq_record % QRNIC_RECORD_SIZE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SQ_RECORD_OFFSET);
    }
    if (in->rq_record % QRNIC_RECORD_SIZE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_RQ_RECORD_OFFSET);
    }
    if (!qrnic_pd_get(e, in->pd)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_PD_OFFSET);
    }
    if (no_sq && in->send_cq) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SEND_CQ_OFFSET);
    }
    if (!no_sq && !qrnic_cq_get(e, in->send_cq)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_SEND_CQ_OFFSET);
    }
    if (ops->has_rq && !qrnic_cq_get(e, in->recv_cq)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_RECV_CQ_OFFSET);
    }
    if (!qrnic_db_page_get(e, in->db_page)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_DB_PAGE_OFFSET);
    }
    if (!ops->has_rq) {
        if (in->recv_cq) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                QRNIC_QP_CTX_RECV_CQ_OFFSET);
        }
        if (in->srq) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SRQ_OFFSET);
        }
        return no_rq_check(in);
    }
    if (no_sq && speaks_of_ring(&in->sq)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SQ_OFFSET);
    }
    return in->srq ? srq_check(e, in) : qrnic_ok(0);
}

static void users_add(QrnicEngine *e, QrnicQp *qp, int n)
{
    if (n > 0) {
        qrnic_db_page_join(e, qp->db_page, &qp->db_queue);
    } else {
        qrnic_db_page_leave(e, qp->db_page, &qp->db_queue);
    }
    if (qp->pd) {
        qp->pd->users += n;
    }
    if (qp->send_cq) {
        qp->send_cq->users += n;
    }
    if (qp->recv_cq) {
        qp->recv_cq->users += n;
    }
    if (qp->xrcd) {
        qp->xrcd->users += n;
    }
    if (qp->srq) {
        qp->srq->users += n;
    }
    if (qp->counters) {
        qp->counters->users += n;
    }
}

static void qp_timer(QrnicEngine *e, QrnicTimer *t)
{
    QrnicQp *qp = container_of(t, QrnicQp, timer);

    if (qp->ops->timer && qrnic_context_timer(e, qp)) {
        QrnicCounterSet *before =
            qrnic_charge_to(e, qrnic_qp_known(qp)->counters);

        qp->ops->timer(e, qp);
        qrnic_charge_to(e, before);
    }
}

QrnicResult qrnic_qp_create(QrnicEngine *e, const QrnicQpCtx *in)
{
    QrnicResult result = create_check(e, in);
    QrnicQp *qp;

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    result = qrnic_context_room(e, ops_of(e, in));
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    qp = g_new0(QrnicQp, 1);
    qp->type = in->type;
    qp->ops = ops_of(e, in);
    qp->out = &qrnic_wire_output;
    qp->ctx = *in;
    qp->srq = in->srq ? qrnic_srq_get(e, in->srq) : NULL;
    if ((qrnic_qp_has_sq(qp) &&
         !qrnic_ring_init(e, &qp->sq.ring, &in->sq,
                          (uint64_t)QRNIC_WQEBB_SIZE << in->sq_log_size,
                          QRNIC_QP_CTX_SQ_OFFSET, &result)) ||
        (qrnic_qp_has_rq(qp) &&
         !qrnic_ring_init(e, &qp->rq.ring, &in->rq,
                          (uint64_t)QRNIC_WQEBB_SIZE <<
                          (in->rq_log_size + in->rq_log_stride),
                          QRNIC_QP_CTX_RQ_OFFSET, &result))) {
        g_free(qp);
        return result;
    }
    qp->state = QRNIC_QPS_RESET;
    qp->pd = qrnic_pd_get(e, in->pd);
    qp->send_cq = qrnic_cq_get(e, in->send_cq);
    qp->recv_cq = qrnic_cq_get(e, in->recv_cq);
    qp->xrcd = qrnic_xrcd_get(e, in->xrcd);
    qp->db_page = in->db_page;
    qp->sq.record = in->sq_record;
    qp->sq.log_size = in->sq_log_size;
    qp->sq.has_event = in->flags & QRNIC_QPF_EVENT_INDEX;
    qp->rq.record = in->rq_record;
    qp->rq.log_size = in->rq_log_size;
    qp->rq.log_stride = in->rq_log_stride;
    qrnic_timer_init(&qp->timer, qp_timer);
    qrnic_sq_hold_init(qp);
    qrnic_ready_init(qp);
    if (qp->ops->init) {
        qp->ops->init(e, qp);
    }
    /* From here on packets and commands can find the queue pair. */
    if (qp->ops->fixed_number) {
        qp->number = qp->ops->fixed_number;
        qrnic_table_insert_at(&e->qps->table, qp, qp->number);
    } else if (!qrnic_table_insert(&e->qps->table, qp, &qp->number)) {
        qrnic_qp_free(e, qp);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    if (qp->ops->created && !qp->ops->created(e, qp)) {
        qrnic_table_remove(&e->qps->table, qp->number);
        qrnic_qp_free(e, qp);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    qp->rq.stream = qrnic_stream_new(&in->stream, "RQ", qp->number);
    qp->keys.number = qp->number;
    qp->keys.pd = in->pd;
    qp->keys.process = qrnic_db_page_process(e, in->db_page);
    users_add(e, qp, 1);
    qrnic_context_init(e, qp);
    trace_qrnic_qp_create(e->config.name, qp->number, in->type, in->pd,
                          in->send_cq, in->recv_cq, in->sq_log_size,
                          in->rq_log_size);
    return qrnic_ok(qp->number);
}

void qrnic_qp_free(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_unschedule(e, qp);
    qrnic_timer_cancel(e, &qp->timer);
    qrnic_sq_hold_reset(e, qp);
    qrnic_pace_restart(e, qp);
    qrnic_congestion_drop(e, qp);
    qrnic_notification_drop(e, qp);
    qrnic_page_faults_drop(e, qp);
    qrnic_context_free(e, qp);
    if (qp->ops->cleanup) {
        qp->ops->cleanup(e, qp);
    }
    qrnic_transmit_drop(e, qp);
    qrnic_fetch_put(e, &qp->sq);
    qrnic_fetch_put(e, &qp->rq);
    qrnic_stream_free(qp->rq.stream);
    g_free(qp);
}

/*
 * Creates a responder without use counts, because the target uses the same
 * objects and is freed after its responders.
 */
QrnicQp *qrnic_responder_qp_new(QrnicEngine *e, QrnicQp *target,
                                const QrnicQpOps *ops)
{
    QrnicQp *qp = g_new0(QrnicQp, 1);

    if (!qrnic_table_insert(&e->qps->table, qp, &qp->number)) {
        g_free(qp);
        return NULL;
    }
    qp->type = target->type;
    qp->ops = ops;
    qp->out = &qrnic_wire_output;
    qp->target = target;
    qrnic_sq_hold_init(qp);
    qp->state = QRNIC_QPS_RESET;
    qp->pd = target->pd;
    qp->recv_cq = target->recv_cq;
    qp->srq = target->srq;
    qp->keys.number = qp->number;
    qp->keys.pd = target->ctx.pd;
    qrnic_timer_init(&qp->timer, qp_timer);
    qrnic_ready_init(qp);
    return qp;
}

void qrnic_responder_qp_free(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_key_user_gone(e, &qp->keys);
    qrnic_table_remove(&e->qps->table, qp->number);
    qrnic_qp_free(e, qp);
}

bool qrnic_qp_is_entangled(QrnicEngine *e, uint32_t qpn)
{
    const QrnicQp *qp = qrnic_qp_find(e, qpn);

    return qp && (qp->keys.windows || qp->ops->takes_frames);
}

QrnicResult qrnic_qp_destroy(QrnicEngine *e, uint32_t qpn)
{
    QrnicQp *qp = qrnic_qp_find(e, qpn);

    if (!qp) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (qp->rss_entries || (qp->ops->in_use && qp->ops->in_use(qp))) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_qp_destroy(e->config.name, qpn);
    if (qp->ops->destroyed) {
        qp->ops->destroyed(e, qp);
    }
    qrnic_group_leave(e, NULL, qp->number);
    qrnic_key_user_gone(e, &qp->keys);
    qrnic_table_remove(&e->qps->table, qpn);
    users_add(e, qp, -1);
    qrnic_qp_free(e, qp);
    qrnic_context_gone(e);
    return qrnic_ok(0);
}

QrnicResult qrnic_counter_set_bind(QrnicEngine *e, uint32_t qpn,
                                   const QrnicCounterBind *in)
{
    QrnicQp *qp = qrnic_qp_find(e, qpn);
    QrnicCounterSet *set = qrnic_counter_set_get(e, in->counter_set);

    if (!(e->config.capabilities & QRNIC_CAP_COUNTER_SETS)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (!qp) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (in->counter_set && !set) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT,
                            QRNIC_COUNTER_BIND_COUNTER_SET_OFFSET);
    }
    if (set && set->rules) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    if (qp->counters) {
        qp->counters->users--;
    }
    if (set) {
        set->users++;
    }
    qp->counters = set;
    trace_qrnic_counter_set_bind(e->config.name, qpn, in->counter_set);
    return qrnic_ok(0);
}
