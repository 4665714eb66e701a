/*
 * qrnic engine: dynamic connections: a responder of a target
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/transport/dynamic/dynamic.h"

#define IDLE_NS (QRNIC_DYNAMIC_RESPONDER_IDLE * SCALE_MS)

void qrnic_dynamic_responder_start(QrnicEngine *e, QrnicQp *qp,
                                   const QrnicAddressVector *av,
                                   const QrnicTransport *connect)
{
    const QrnicQp *target = qp->target;

    qp->attr = (QrnicQpAttr) {
        .access = target->attr.access,
        .path_mtu = connect->path_mtu,
        .max_dest_rd_atomic = target->attr.max_dest_rd_atomic,
        .min_rnr_timer = target->attr.min_rnr_timer,
        .dest_qpn = connect->src_qpn,
        .rq_psn = connect->psn,
        .av = *av,
    };
    qp->connection = connect->connection;
    qp->responder = g_new0(QrnicResponder, 1);
    qp->responder->made_at = qp->responder->used = qrnic_now(e);
    qrnic_path_set(e, qp, av, connect->src_qpn);
    qrnic_rc_start_receive(e, qp);
    qp->state = QRNIC_QPS_RTS;
    qrnic_level_set(e, qp);
    qrnic_timer_set(e, &qp->timer, qp->responder->used + IDLE_NS);
    qrnic_add(e, QRNIC_COUNTER_DYNAMIC_ACCEPTS, 1);
    trace_qrnic_dynamic_accept(e->config.name, target->number,
                               connect->src_qpn, qp->connection, qp->number);
}

void qrnic_dynamic_responder_stop(QrnicEngine *e, QrnicQp *qp, const char *why)
{
    trace_qrnic_dynamic_release(e->config.name, qp->target->number,
                                qp->attr.dest_qpn, qp->connection, why);
    QLIST_REMOVE(qp, next_peer);
    qrnic_qp_reset(e, qp);
    qp->state = QRNIC_QPS_RESET;
}

void qrnic_dynamic_responder_receive(QrnicEngine *e, QrnicQp *qp,
                                     const QrnicPacket *p)
{
    QrnicResponder *r = qp->responder;

    r->used = qrnic_now(e);
    if (!r->nak_gone) {
        qrnic_responder_receive(e, qp, p);
    } else if (!r->nak_owed) {
        /* The NAK may be lost; nothing else is to be said any more. */
        r->nak_owed = true;
        qrnic_schedule(e, qp);
    }
}

/* It goes on to answer, with the same NAK. */
static void responder_failed(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;

    if (!r || r->nak_gone) {
        return;
    }
    r->dead = true;
    r->nak = QRNIC_NAK_OPERATION;
    r->nak_owed = true;
    r->ack_owed = false;
    qrnic_schedule(e, qp);
}

static bool owes(const QrnicResponder *r)
{
    return r->ack_owed || r->nak_owed || r->replay_pending ||
           r->response_waits;
}

static void responder_timer(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;
    int64_t until;

    if (!r) {
        return;
    }
    until = r->used + IDLE_NS;
    if (qrnic_now(e) < until || (owes(r) && !r->dead)) {
        qrnic_timer_set(e, &qp->timer, MAX(until, qrnic_now(e) + IDLE_NS / 4));
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_DYNAMIC_EXPIRED, 1);
    qrnic_dynamic_responder_stop(e, qp, "idle");
}

static QrnicTurn responder_transmit(QrnicEngine *e, QrnicQp *qp,
                                    unsigned budget)
{
    return qp->responder ? qrnic_reliable_transmit(e, qp, budget,
                                                   qrnic_responder_step,
                                                   NULL) : QRNIC_TURN_DONE;
}

static void responder_resume(QrnicEngine *e, QrnicQp *qp, QrnicSide side)
{
    qrnic_responder_resume(qp->responder);
}

const QrnicQpOps qrnic_dynamic_responder_ops = {
    .service = QRNIC_SERVICE_DC,
    .no_responses = true,
    .init = qrnic_reliable_cleanup,
    .cleanup = qrnic_reliable_cleanup,
    .transmit = responder_transmit,
    .timer = responder_timer,
    .resume = responder_resume,
    .failed = responder_failed,
};
