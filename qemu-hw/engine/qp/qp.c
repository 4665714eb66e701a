/*
 * qrnic engine: queue pairs: create, destroy, completions, flush
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "trace.h"
#include "engine/qp/qp.h"
#include "engine/transport/transport.h"

#define SQ_MIN_LOG_SIZE 3

const QrnicQpOps *qrnic_qp_ops(const QrnicQp *qp)
{
    switch (qp->type) {
    case QRNIC_QPT_RC:
    case QRNIC_QPT_XRC_INI:
    case QRNIC_QPT_XRC_TGT:
        return &qrnic_rc_ops;
    case QRNIC_QPT_UC:
        return &qrnic_unreliable_ops;
    case QRNIC_QPT_UD:
    case QRNIC_QPT_GSI:
        return &qrnic_datagram_ops;
    default:
        return &qrnic_raw_packet_ops;
    }
}

/* Without an RQ of its own, nothing may be said of one. */
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
    if (in->type == QRNIC_QPT_RAW_PACKET) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SRQ_OFFSET);
    }
    if (!srq) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_SRQ_OFFSET);
    }
    /* Its completions go elsewhere. */
    if (srq->ctx.xrcd) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SRQ_OFFSET);
    }
    return no_rq_check(in);
}

static QrnicResult check_type(QrnicEngine *e, const QrnicQpCtx *in)
{
    uint64_t capability;

    switch (in->type) {
    case QRNIC_QPT_RC:
        capability = QRNIC_CAP_RC;
        break;
    case QRNIC_QPT_UC:
        capability = QRNIC_CAP_UC;
        break;
    case QRNIC_QPT_UD:
    case QRNIC_QPT_GSI:
        capability = QRNIC_CAP_UD;
        break;
    case QRNIC_QPT_XRC_INI:
    case QRNIC_QPT_XRC_TGT:
        capability = QRNIC_CAP_XRC;
        break;
    case QRNIC_QPT_RAW_PACKET:
        return qrnic_ok(0);
    default:
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_TYPE_OFFSET);
    }
    if (!(e->config.capabilities & capability)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, QRNIC_QP_CTX_TYPE_OFFSET);
    }
    if (in->type == QRNIC_QPT_GSI) {
        if (in->db_page) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                QRNIC_QP_CTX_DB_PAGE_OFFSET);
        }
        if (qrnic_qp_get(e, QRNIC_GSI_QPN)) {
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
        (in->max_recv_inline && in->type != QRNIC_QPT_RC &&
         in->type != QRNIC_QPT_UC)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    }
    if (!in->max_recv_inline != !in->address_space) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_QP_CTX_ADDRESS_SPACE_OFFSET);
    }
    return qrnic_ok(0);
}

/* Each flag is for one type, and may need a capability. */
static QrnicResult flags_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    static const struct {
        uint8_t flag, type;
        uint64_t capability;
    } rule[] = {
        { QRNIC_QPF_NO_MULTICAST_LOOPBACK, QRNIC_QPT_UD, QRNIC_CAP_UD },
        { QRNIC_QPF_SOURCE_QPN, QRNIC_QPT_UD, QRNIC_CAP_SOURCE_QPN },
        { QRNIC_QPF_VLAN_STRIP, QRNIC_QPT_RAW_PACKET, QRNIC_CAP_ETH_VLAN },
        { QRNIC_QPF_SCATTER_FCS, QRNIC_QPT_RAW_PACKET, QRNIC_CAP_SCATTER_FCS },
        { QRNIC_QPF_RECEIVE_ONLY, QRNIC_QPT_RAW_PACKET, QRNIC_CAP_RSS },
    };
    bool sources = in->flags & QRNIC_QPF_SOURCE_QPN;

    for (unsigned i = 0; i < ARRAY_SIZE(rule); i++) {
        if (!(in->flags & rule[i].flag)) {
            continue;
        }
        if (in->type != rule[i].type) {
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

static bool speaks_of_ring(const QrnicTranslation *t)
{
    return t->root || t->levels || t->page_shift || t->offset;
}

/* Sizes and places of the rings; objects that must exist. */
static QrnicResult create_check(QrnicEngine *e, const QrnicQpCtx *in)
{
    bool no_sq = in->flags & QRNIC_QPF_RECEIVE_ONLY;
    QrnicResult result = check_type(e, in);

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    result = flags_check(e, in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (in->xrcd && in->type != QRNIC_QPT_XRC_TGT) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_XRCD_OFFSET);
    }
    result = inline_check(e, in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (in->type == QRNIC_QPT_XRC_TGT) {
        return qrnic_xrc_target_check(e, in);
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
    if (in->type != QRNIC_QPT_XRC_INI &&
        !qrnic_cq_get(e, in->recv_cq)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_RECV_CQ_OFFSET);
    }
    if (!qrnic_db_page_get(e, in->db_page)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_DB_PAGE_OFFSET);
    }
    if (in->type == QRNIC_QPT_XRC_INI) {
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
    QrnicDbPage *page = qrnic_db_page_get(e, qp->db_page);

    page->users += n;
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
}

static void qp_timer(QrnicEngine *e, QrnicTimer *t)
{
    QrnicQp *qp = container_of(t, QrnicQp, timer);

    qrnic_qp_ops(qp)->timer(e, qp);
}

QrnicResult qrnic_qp_create(QrnicEngine *e, const QrnicQpCtx *in)
{
    QrnicResult result = create_check(e, in);
    QrnicQp *qp;

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    qp = g_new0(QrnicQp, 1);
    qp->type = in->type;
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
    qp->rq.record = in->rq_record;
    qp->rq.log_size = in->rq_log_size;
    qp->rq.log_stride = in->rq_log_stride;
    qrnic_timer_init(&qp->timer, qp_timer);
    qrnic_pace_init(qp);
    if (qrnic_qp_is_reliable(qp)) {
        qrnic_rc_init(e, qp);
    } else if (qp->type == QRNIC_QPT_UC) {
        qrnic_unreliable_init(e, qp);
    }
    /* Findable from here on. */
    if (qp->type == QRNIC_QPT_GSI) {
        qp->number = QRNIC_GSI_QPN;
        qrnic_table_insert_at(&e->pairs->qps, qp, qp->number);
    } else if (!qrnic_table_insert(&e->pairs->qps, qp, &qp->number)) {
        qrnic_qp_free(e, qp);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    qp->keys.number = qp->number;
    qp->keys.pd = in->pd;
    users_add(e, qp, 1);
    trace_qrnic_qp_create(e->config.name, qp->number, in->type, in->pd,
                          in->send_cq, in->recv_cq, in->sq_log_size,
                          in->rq_log_size);
    return qrnic_ok(qp->number);
}

void qrnic_qp_free(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_unschedule(e, qp);
    qrnic_timer_cancel(e, &qp->timer);
    qrnic_pace_restart(e, qp);
    qrnic_rc_cleanup(e, qp);
    qrnic_unreliable_cleanup(e, qp);
    g_free(qp);
}

QrnicResult qrnic_qp_destroy(QrnicEngine *e, uint32_t qpn)
{
    QrnicQp *qp = qrnic_qp_get(e, qpn);

    if (!qp) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (qp->rss_entries) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_qp_destroy(e->config.name, qpn);
    if (qp->type == QRNIC_QPT_RAW_PACKET) {
        qrnic_ethernet_qp_destroyed(e, qp);
        qrnic_flow_qp_destroyed(e, qp);
    }
    qrnic_group_leave(e, NULL, qp->number);
    qrnic_key_user_gone(e, &qp->keys);
    qrnic_table_remove(&e->pairs->qps, qpn);
    users_add(e, qp, -1);
    qrnic_qp_free(e, qp);
    return qrnic_ok(0);
}

/*
 * Completions
 */

static void complete(QrnicEngine *e, QrnicQp *qp, QrnicCq *cq, QrnicCqe *cqe,
                     const uint8_t *data)
{
    trace_qrnic_complete(e->config.name, qp->number, cq->number, cqe->index,
                         qrnic_wc_status_name(cqe->status), cqe->opcode,
                         cqe->byte_len);
    if (!qrnic_cq_push(e, cq, cqe, data)) {
        qrnic_qp_error(e, qp, QRNIC_EVENT_QP_FATAL, QRNIC_WC_GENERAL_ERR);
    }
}

static uint8_t cqe_opcode(uint8_t wqe_opcode)
{
    switch (wqe_opcode) {
    case QRNIC_WQE_SEND_IMM:
    case QRNIC_WQE_SEND_INV:
        return QRNIC_CQE_SEND;
    case QRNIC_WQE_RDMA_WRITE_IMM:
        return QRNIC_CQE_RDMA_WRITE;
    default:
        return wqe_opcode;      /* the others have the same numbers */
    }
}

void qrnic_complete_sq(QrnicEngine *e, QrnicQp *qp, uint32_t index,
                       uint32_t wqebbs, uint8_t opcode, uint8_t flags,
                       uint8_t status, uint8_t syndrome, uint32_t byte_len)
{
    QrnicCqe cqe = {
        .index = index,
        .qpn = qp->number,
        .byte_len = byte_len,
        .status = status,
        .syndrome = syndrome,
        .opcode = cqe_opcode(opcode),
    };

    qp->sq.completed = index + wqebbs;
    if (flags & QRNIC_WQEF_SIGNALED || status != QRNIC_WC_SUCCESS) {
        complete(e, qp, qp->send_cq, &cqe, NULL);
    }
}

void qrnic_complete_send(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                         uint8_t status, uint8_t syndrome, uint32_t byte_len)
{
    qrnic_complete_sq(e, qp, wqe->index, wqe->wqebbs, wqe->opcode, wqe->flags,
                      status, syndrome, byte_len);
}

void qrnic_complete_recv(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe)
{
    /* What an XRC target receives belongs to its SRQ, and so to that CQ. */
    complete(e, qp, qp->recv_cq ? qp->recv_cq :
             qrnic_xrc_recv_cq(e, cqe->srqn), cqe, NULL);
}

void qrnic_complete_recv_inline(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe,
                                const uint8_t *data)
{
    trace_qrnic_recv_inline(e->config.name, qp->number, cqe->index,
                            cqe->byte_len);
    cqe->flags |= QRNIC_CQEF_INLINE;
    complete(e, qp, qp->recv_cq, cqe, data);
}

/*
 * State ERR
 */

void qrnic_qp_error(QrnicEngine *e, QrnicQp *qp, uint8_t event,
                    uint8_t subtype)
{
    if (qp->state == QRNIC_QPS_ERR) {
        return;
    }
    trace_qrnic_qp_error(e->config.name, qp->number,
                         qrnic_qp_state_name(qp->state), event, subtype);
    qp->state = QRNIC_QPS_ERR;
    qp->sq_draining = false;
    qrnic_timer_cancel(e, &qp->timer);
    qrnic_pace_restart(e, qp);
    if (event) {
        qrnic_event_async(e, event, subtype, qp->number, 0);
    }
    qrnic_schedule(e, qp);
}

void qrnic_qp_send_error(QrnicEngine *e, QrnicQp *qp)
{
    trace_qrnic_qp_error(e->config.name, qp->number,
                         qrnic_qp_state_name(qp->state), 0, 0);
    qp->state = QRNIC_QPS_SQE;
    qp->sq_draining = false;
    qrnic_schedule(e, qp);
}

bool qrnic_sq_flush_one(QrnicEngine *e, QrnicQp *qp)
{
    uint8_t status, syndrome;
    QrnicSendWqe wqe;

    /* What the WQE says does not matter any more. */
    if (!qrnic_qp_has_sq(qp)) {
        return false;
    }
    if (qrnic_sq_take(e, qp, &wqe, &status, &syndrome) == QRNIC_TAKE_EMPTY) {
        return false;
    }
    qrnic_complete_send(e, qp, &wqe, QRNIC_WC_WR_FLUSH_ERR, QRNIC_SYN_NONE, 0);
    return true;
}

bool qrnic_sq_flush_due(QrnicQp *qp)
{
    qp->sq_flush_owed = qrnic_sq_flush_is_owed(qp);
    return qp->state == QRNIC_QPS_SQE || qp->sq_flush_owed;
}

void qrnic_sq_flush_rest(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_sq_pending(e, qp, true);
    qp->sq_rung = false;
    qp->sq_flush_end = qp->sq.producer;
    qp->sq_flush_owed = true;
}

static bool flush_rq_one(QrnicEngine *e, QrnicQp *qp)
{
    uint8_t status, syndrome;
    QrnicRecvWqe wqe;
    QrnicCqe cqe;

    if (qp->type == QRNIC_QPT_XRC_INI) {
        return false;
    }
    if (!qrnic_qp_has_rq(qp)) {
        /* The others stay for the other queue pairs (10.2.9.3). */
        if (!qp->last_wqe_reported) {
            qp->last_wqe_reported = true;
            qrnic_event_async(e, QRNIC_EVENT_LAST_WQE_REACHED, 0, qp->number,
                              0);
        }
        return false;
    }
    if (qrnic_rq_take(e, qp, &wqe, &status, &syndrome) == QRNIC_TAKE_EMPTY) {
        return false;
    }
    cqe = (QrnicCqe) {
        .index = wqe.index,
        .qpn = qp->number,
        .status = QRNIC_WC_WR_FLUSH_ERR,
        .opcode = QRNIC_CQE_RECV,
    };
    qrnic_complete_recv(e, qp, &cqe);
    return true;
}

bool qrnic_qp_flush(QrnicEngine *e, QrnicQp *qp, unsigned budget)
{
    bool rc = qrnic_qp_is_reliable(qp), uc = qp->type == QRNIC_QPT_UC;

    /* First what was under way, then what was only posted. */
    while (budget--) {
        if (!(rc && qrnic_requester_flush_one(e, qp)) &&
            !(uc && qrnic_unreliable_flush_one(e, qp)) &&
            !qrnic_sq_flush_one(e, qp) &&
            !(rc && qrnic_responder_flush_one(e, qp)) &&
            !flush_rq_one(e, qp)) {
            return false;
        }
    }
    return true;
}

/*
 * A CQ in error takes no completion of any queue pair, so all that report to
 * it go to ERR. Once for each CQ at most.
 */
void qrnic_cq_errors_process(QrnicEngine *e)
{
    if (!e->queue->cq_failed) {
        return;
    }
    e->queue->cq_failed = false;
    /* From QP 1 on, which is not among those that are given out. */
    for (uint32_t n = 0; n < e->pairs->qps.limit; n++) {
        QrnicQp *qp = e->pairs->qps.slot[n];

        if (qp && ((qp->send_cq && qp->send_cq->error) ||
                   (qp->recv_cq && qp->recv_cq->error)) &&
            qp->state != QRNIC_QPS_RESET && qp->state != QRNIC_QPS_ERR) {
            qrnic_qp_error(e, qp, QRNIC_EVENT_QP_FATAL, QRNIC_WC_GENERAL_ERR);
        }
    }
}
