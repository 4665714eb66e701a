/*
 * qrnic engine, transport: tables of operations of reliable connections
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Connects requester and responder to the queue pair, for RC, carrier and XRC
 * types. The scheduler, the demultiplexer, timers and MODIFY_QP call the
 * functions of these tables. Function rc_receive() gives responses to the
 * requester and requests to the responder. Function rc_transmit() lets both
 * send in turns. An XRC initiator uses only the requester, an XRC target only
 * the responder. InfiniBand specification, 9.7 and A14.
 */

#include "qemu/osdep.h"
#include "engine/transport/rc/requester/requester.h"
#include "engine/transport/rc/responder/responder.h"
#include "engine/transport/shared/shared.h"

void qrnic_reliable_cleanup(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->requester) {
        qrnic_requester_cleanup(e, qp);
    }
    if (qp->responder) {
        qrnic_responder_cleanup(e, qp);
    }
}

/*
 * Returns unfinished matches of its messages to the tag list, which completes
 * them.
 */
static void rc_tags_abandon(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->requester) {
        qrnic_tagged_abandon(e, &qp->responder->in);
        qrnic_rendezvous_abandon(e, qp);
    }
}

static void connection_init(QrnicEngine *e, QrnicQp *qp)
{
    rc_tags_abandon(e, qp);
    qrnic_reliable_cleanup(e, qp);
    qrnic_requester_init(e, qp);
    qrnic_responder_init(e, qp);
}

static void rc_init(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_member_reset(e, qp);
    connection_init(e, qp);
}

static void rc_cleanup(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_reliable_cleanup(e, qp);
    qrnic_member_leave(qp);
}

QrnicReadyList qrnic_reliable_transmit(QrnicEngine *e, QrnicQp *qp,
                                       unsigned budget, QrnicStep *respond,
                                       QrnicStep *request)
{
    /* Responses and requests alternate, so that neither starves the other. */
    while (budget && qp->state != QRNIC_QPS_ERR && !qrnic_budget_spent(e)) {
        unsigned before = budget;
        QrnicReadyList wait = qrnic_path_wait(e, qp);

        if (wait != QRNIC_LIST_READY) {
            qrnic_qp_check_drained(e, qp);
            return wait;
        }
        budget -= respond && respond(e, qp);
        if (request && budget && qp->state != QRNIC_QPS_ERR &&
            qrnic_path_wait(e, qp) == QRNIC_LIST_READY) {
            budget -= request(e, qp);
        }
        if (budget == before && qp->state != QRNIC_QPS_ERR) {
            qrnic_qp_check_drained(e, qp);
            return QRNIC_LIST_NONE;
        }
    }
    /* A queue pair in ERR stays scheduled, so that its queues are flushed. */
    return QRNIC_LIST_READY;
}

static bool rc_respond(QrnicEngine *e, QrnicQp *qp)
{
    return (qp->responder->reorder && qrnic_responder_go_on(e, qp)) ||
           qrnic_responder_step(e, qp);
}

static QrnicReadyList rc_transmit(QrnicEngine *e, QrnicQp *qp, unsigned budget)
{
    return qrnic_reliable_transmit(e, qp, budget, rc_respond,
                                   qrnic_requester_step);
}

static void rc_timer(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_responder_gap_timer(e, qp);
    qrnic_responder_timer(e, qp);
    qrnic_requester_timer(e, qp);
}

static void rc_resume(QrnicEngine *e, QrnicQp *qp, QrnicSide side)
{
    if (side == QRNIC_SIDE_SEND) {
        qrnic_requester_resume(e, qp);
    } else {
        qrnic_responder_resume(e, qp);
    }
}

static void rc_entered(QrnicEngine *e, QrnicQp *qp, uint8_t from,
                       const QrnicQpAttr *in)
{
    if (from == QRNIC_QPS_INIT && qp->state == QRNIC_QPS_RTR) {
        qrnic_rc_start_receive(e, qp);
        qrnic_member_entered(e, qp);
    } else if (from == QRNIC_QPS_RTR && qp->state == QRNIC_QPS_RTS) {
        qrnic_rc_start_send(e, qp);
        if (qrnic_rendezvous_waits(qp->requester)) {
            qrnic_schedule(e, qp);
        }
    } else if (from == QRNIC_QPS_SQD && qp->state == QRNIC_QPS_SQD &&
               !qp->sq_draining) {
        qrnic_requester_attr_changed(e, qp);
        qrnic_responder_attr_changed(e, qp);
    }
}

static void rc_query(const QrnicQp *qp, QrnicQpAttr *out)
{
    if (qp->state != QRNIC_QPS_INIT) {
        out->rq_psn = qrnic_responder_expected_psn(qp);
    }
    if (qp->state == QRNIC_QPS_RTS || qp->state == QRNIC_QPS_SQD ||
        qp->state == QRNIC_QPS_ERR) {
        out->sq_psn = qrnic_requester_next_psn(qp);
    }
}

static void rc_context(const QrnicQp *qp, uint32_t *word)
{
    const QrnicRequester *r = qp->requester;

    word[0] = r->una;
    word[1] = r->next_psn;
    word[2] = r->sent_psn;
    word[3] = r->cursor_psn;
    word[4] = r->ssn;
    word[5] = r->ssn_done;
    word[6] = qp->responder->epsn;
    word[7] = qp->responder->msn;
}

static void rc_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    if (p->t.mark & QRNIC_MARK_SELECTIVE) {
        qp->peer_options |= QRNIC_QPO_SELECTIVE_REPEAT;
    }
    if (p->t.mark & QRNIC_MARK_PLACES) {
        qp->peer_options |= QRNIC_QPO_ADAPTIVE_ROUTING;
    }
    if (p->info->flags & QRNIC_OPF_RESPONSE) {
        qrnic_requester_receive(e, qp, p);
    } else {
        qrnic_responder_receive(e, qp, p);
    }
}

static void carrier_init(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_carrier_init(e, qp);
    connection_init(e, qp);
}

static void carrier_cleanup(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_reliable_cleanup(e, qp);
    qrnic_carrier_free(e, qp);
}

static void carrier_entered(QrnicEngine *e, QrnicQp *qp, uint8_t from,
                            const QrnicQpAttr *in)
{
    rc_entered(e, qp, from, in);
    if (from == QRNIC_QPS_RTR && qp->state == QRNIC_QPS_RTS) {
        qrnic_carrier_start_send(e, qp);
    }
}

static void carrier_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    if (p->info->flags & QRNIC_OPF_RESPONSE ||
        qrnic_carrier_accepts(e, qp, p)) {
        rc_receive(e, qp, p);
    }
}

static const QrnicTransition rc_transitions[] = {
    { QRNIC_QPS_RESET, QRNIC_QPS_INIT,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_ACCESS_FLAGS, 0 },
    { QRNIC_QPS_INIT, QRNIC_QPS_INIT,
      0, QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_INIT, QRNIC_QPS_RTR,
      QRNIC_QP_AV | QRNIC_QP_PATH_MTU | QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN |
      QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_ACCESS_FLAGS | QRNIC_QP_OPTIONS |
      QRNIC_QP_CARRIER },
    { QRNIC_QPS_RTR, QRNIC_QPS_RTS,
      QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT | QRNIC_QP_RNR_RETRY |
      QRNIC_QP_SQ_PSN | QRNIC_QP_MAX_RD_ATOMIC,
      QRNIC_QP_ACCESS_FLAGS | QRNIC_QP_MIN_RNR_TIMER },
    { QRNIC_QPS_RTS, QRNIC_QPS_RTS,
      0, QRNIC_QP_ACCESS_FLAGS | QRNIC_QP_MIN_RNR_TIMER },
    { QRNIC_QPS_RTS, QRNIC_QPS_SQD, 0, QRNIC_QP_EN_SQD_ASYNC_NOTIFY },
    { QRNIC_QPS_SQD, QRNIC_QPS_RTS,
      0, QRNIC_QP_ACCESS_FLAGS | QRNIC_QP_MIN_RNR_TIMER },
    { QRNIC_QPS_SQD, QRNIC_QPS_SQD, 0,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_AV | QRNIC_QP_TIMEOUT |
      QRNIC_QP_RETRY_CNT | QRNIC_QP_RNR_RETRY | QRNIC_QP_MAX_RD_ATOMIC |
      QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_ACCESS_FLAGS |
      QRNIC_QP_MIN_RNR_TIMER },
};

static const QrnicStates rc_states = {
    rc_transitions, ARRAY_SIZE(rc_transitions),
};

/* Transitions of XRC types (A14). Each end has the attributes of its half. */
static const QrnicTransition xrc_initiator_transitions[] = {
    { QRNIC_QPS_RESET, QRNIC_QPS_INIT,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_ACCESS_FLAGS, 0 },
    { QRNIC_QPS_INIT, QRNIC_QPS_INIT,
      0, QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_INIT, QRNIC_QPS_RTR,
      QRNIC_QP_AV | QRNIC_QP_PATH_MTU | QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_RTR, QRNIC_QPS_RTS,
      QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT | QRNIC_QP_RNR_RETRY |
      QRNIC_QP_SQ_PSN | QRNIC_QP_MAX_RD_ATOMIC, QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_RTS, QRNIC_QPS_RTS, 0, QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_RTS, QRNIC_QPS_SQD, 0, QRNIC_QP_EN_SQD_ASYNC_NOTIFY },
    { QRNIC_QPS_SQD, QRNIC_QPS_RTS, 0, QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_SQD, QRNIC_QPS_SQD, 0,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_AV | QRNIC_QP_TIMEOUT |
      QRNIC_QP_RETRY_CNT | QRNIC_QP_RNR_RETRY | QRNIC_QP_MAX_RD_ATOMIC |
      QRNIC_QP_ACCESS_FLAGS },
};

static const QrnicStates xrc_initiator_states = {
    xrc_initiator_transitions, ARRAY_SIZE(xrc_initiator_transitions),
};

static const QrnicTransition xrc_target_transitions[] = {
    { QRNIC_QPS_RESET, QRNIC_QPS_INIT,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_ACCESS_FLAGS, 0 },
    { QRNIC_QPS_INIT, QRNIC_QPS_INIT,
      0, QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_INIT, QRNIC_QPS_RTR,
      QRNIC_QP_AV | QRNIC_QP_PATH_MTU | QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN |
      QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_ACCESS_FLAGS },
    { QRNIC_QPS_RTR, QRNIC_QPS_RTS,
      QRNIC_QP_TIMEOUT | QRNIC_QP_SQ_PSN,
      QRNIC_QP_ACCESS_FLAGS | QRNIC_QP_MIN_RNR_TIMER },
    { QRNIC_QPS_RTS, QRNIC_QPS_RTS,
      0, QRNIC_QP_ACCESS_FLAGS | QRNIC_QP_MIN_RNR_TIMER },
    { QRNIC_QPS_RTS, QRNIC_QPS_SQD, 0, QRNIC_QP_EN_SQD_ASYNC_NOTIFY },
    { QRNIC_QPS_SQD, QRNIC_QPS_RTS,
      0, QRNIC_QP_ACCESS_FLAGS | QRNIC_QP_MIN_RNR_TIMER },
    { QRNIC_QPS_SQD, QRNIC_QPS_SQD, 0,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_AV | QRNIC_QP_TIMEOUT |
      QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_ACCESS_FLAGS |
      QRNIC_QP_MIN_RNR_TIMER },
};

static const QrnicStates xrc_target_states = {
    xrc_target_transitions, ARRAY_SIZE(xrc_target_transitions),
};

/* Operations that all types of this file share */
#define CONNECTION \
    .query = rc_query, \
    .context = rc_context, \
    .transmit = rc_transmit, \
    .is_idle = qrnic_requester_idle, \
    .timer = rc_timer

#define RELIABLE \
    CONNECTION, \
    .can_keep = qrnic_responder_can_keep, \
    .entered = rc_entered, \
    .resume = rc_resume, \
    .receive_doorbell = qrnic_responder_doorbell, \
    .receive = rc_receive, \
    .flush_send = qrnic_requester_flush_one, \
    .flush_receive = qrnic_responder_flush_one

const QrnicQpOps qrnic_rc_ops = {
    RELIABLE,
    .capability = QRNIC_CAP_RC,
    .options = QRNIC_QPO_SELECTIVE_REPEAT | QRNIC_QPO_ADAPTIVE_ROUTING,
    .init = rc_init,
    .cleanup = rc_cleanup,
    .destroyed = rc_tags_abandon,
    .may_match_tags = true,
    .service = QRNIC_SERVICE_RC,
    .has_sq = true,
    .has_rq = true,
    .may_share = true,
    .may_inline = true,
    .may_stream = true,
    .states = &rc_states,
    .shape = qrnic_rc_shape,
    .modify_check = qrnic_member_modify_check,
};

const QrnicQpOps qrnic_carrier_ops = {
    CONNECTION,
    .capability = QRNIC_CAP_SHARED_CONNECTION,
    .service = QRNIC_SERVICE_CARRIER,
    .no_recv_wqes = true,
    .states = &qrnic_carrier_states,
    .options = QRNIC_QPO_SELECTIVE_REPEAT | QRNIC_QPO_ADAPTIVE_ROUTING |
               QRNIC_QPO_INTRODUCE,
    .create_check = qrnic_qp_no_queues_check,
    .modify_check = qrnic_carrier_modify_check,
    .init = carrier_init,
    .cleanup = carrier_cleanup,
    .in_use = qrnic_carrier_in_use,
    .error_entered = qrnic_carrier_error_entered,
    .message_take = qrnic_carrier_message_take,
    .messages_done = qrnic_carrier_wake,
    .entered = carrier_entered,
    .receive = carrier_receive,
    .flush_send = qrnic_carrier_flush_one,
    .flush_receive = qrnic_responder_flush_one,
};

const QrnicQpOps qrnic_xrc_initiator_ops = {
    RELIABLE,
    .capability = QRNIC_CAP_XRC,
    .service = QRNIC_SERVICE_XRC,
    .has_sq = true,
    .init = connection_init,
    .cleanup = qrnic_reliable_cleanup,
    .no_requests = true,
    .no_recv_wqes = true,
    .states = &xrc_initiator_states,
    .shape = qrnic_xrc_shape,
};

const QrnicQpOps qrnic_xrc_target_ops = {
    RELIABLE,
    .capability = QRNIC_CAP_XRC,
    .service = QRNIC_SERVICE_XRC,
    .of_domain = true,
    .init = connection_init,
    .cleanup = qrnic_reliable_cleanup,
    .no_responses = true,
    .states = &xrc_target_states,
    .create_check = qrnic_xrc_target_check,
    .srq = qrnic_xrc_target_srq,
};
