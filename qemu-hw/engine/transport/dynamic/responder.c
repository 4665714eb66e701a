/*
 * qrnic engine, transport: a responder of a dynamic target
 *
 * target.c starts a responder for an accepted CONNECT, and passes the requests
 * of the connection to it. A DISCONNECT or a newer CONNECT stops the responder.
 * The timer stops a responder that was idle for DYNAMIC_RESPONDER_IDLE. The
 * responder is a queue pair without a number that software knows; completions
 * name the target. Manual, chapter Dynamic connections.
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
    int64_t now = qrnic_now(e);

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
    qrnic_responder_init(e, qp);
    *qrnic_responder_times(qp) = (QrnicConnectionTimes) { now, now };
    qrnic_path_set(e, qp, av, connect->src_qpn);
    qrnic_rc_start_receive(e, qp);
    qp->state = QRNIC_QPS_RTS;
    qrnic_level_set(e, qp);
    qrnic_timer_set(e, &qp->timer, now + IDLE_NS);
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
    qrnic_responder_times(qp)->used = qrnic_now(e);
    qrnic_responder_receive(e, qp, p);
}

static void responder_timer(QrnicEngine *e, QrnicQp *qp)
{
    int64_t until;

    if (!qp->responder) {
        return;
    }
    until = qrnic_responder_times(qp)->used + IDLE_NS;
    if (qrnic_now(e) < until || qrnic_responder_is_busy(qp)) {
        qrnic_timer_set(e, &qp->timer, MAX(until, qrnic_now(e) + IDLE_NS / 4));
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_DYNAMIC_EXPIRED, 1);
    qrnic_dynamic_responder_stop(e, qp, "idle");
}

static QrnicReadyList responder_transmit(QrnicEngine *e, QrnicQp *qp,
                                    unsigned budget)
{
    return qp->responder ? qrnic_reliable_transmit(e, qp, budget,
                                                   qrnic_responder_step,
                                                   NULL) : QRNIC_LIST_NONE;
}

static void responder_resume(QrnicEngine *e, QrnicQp *qp, QrnicSide side)
{
    qrnic_responder_resume(e, qp);
}

static void responder_recv_cqe(const QrnicQp *qp, QrnicCqe *cqe)
{
    cqe->qpn = qp->target->number;
    cqe->src_qpn = qp->attr.dest_qpn;
    memcpy(cqe->smac, qp->path.spec.dmac, sizeof(cqe->smac));
}

const QrnicQpOps qrnic_dynamic_responder_ops = {
    .service = QRNIC_SERVICE_DC,
    .no_responses = true,
    .init = qrnic_reliable_cleanup,
    .cleanup = qrnic_reliable_cleanup,
    .transmit = responder_transmit,
    .timer = responder_timer,
    .resume = responder_resume,
    .recv_cqe = responder_recv_cqe,
    .failed = qrnic_responder_fail,
};
