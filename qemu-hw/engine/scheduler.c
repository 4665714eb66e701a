/*
 * qrnic engine: round robin over queue pairs with work, and the way out for
 * frames: to the wire, or back in
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport.h"

/* Packets that a queue pair may send before the next one has its turn */
#define QP_QUANTUM 16
/* Frames on the way to ourselves before senders have to wait */
#define LOOPBACK_ROOM 256

/* A flush; or nothing but to tell that a send queue is drained. */
static bool needs_no_wire(const QrnicQp *qp)
{
    return qp->state == QRNIC_QPS_ERR ||
           qp->state == QRNIC_QPS_SQE || qrnic_sq_flush_is_owed(qp) ||
           (qp->state == QRNIC_QPS_SQD && qp->sq_draining &&
            qrnic_send_idle(qp));
}

void qrnic_schedule(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->scheduled) {
        /* It may have waited for the wire until now. */
        if (needs_no_wire(qp)) {
            e->env.kick(e->env.opaque);
        }
        return;
    }
    qp->scheduled = true;
    QTAILQ_INSERT_TAIL(&e->active, qp, next);
    trace_qrnic_schedule(e->config.name, qp->number);
    e->env.kick(e->env.opaque);
}

void qrnic_unschedule(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->scheduled) {
        qp->scheduled = false;
        QTAILQ_REMOVE(&e->active, qp, next);
    }
}

bool qrnic_wire_stands_still(const QrnicEngine *e, uint32_t *epoch)
{
    bool still = e->wire_busy && *epoch == e->wire_epoch;

    *epoch = e->wire_epoch;
    return still;
}

/* A port that is down drops frames, so nobody has to wait for its wire. */
bool qrnic_wire_busy(QrnicEngine *e)
{
    return (e->wire_busy && qrnic_engine_port_active(e)) ||
           g_queue_get_length(&e->loopback) >= LOOPBACK_ROOM;
}

bool qrnic_wireless_work(QrnicEngine *e)
{
    QrnicQp *qp;

    QTAILQ_FOREACH(qp, &e->active, next) {
        if (needs_no_wire(qp)) {
            return true;
        }
    }
    return false;
}

/* Takes a queue pair up. Returns true if it could go on at once. */
static bool take_up(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_unschedule(e, qp);
    if (qp->sq_rung) {
        qp->sq_rung = false;
        if (qp->state != QRNIC_QPS_RESET) {
            qrnic_sq_pending(e, qp, true);
        }
    }
    trace_qrnic_take_up(e->config.name, qp->number,
                        qrnic_qp_state_name(qp->state), qp->sq.producer,
                        qp->sq.consumer);
    if (qp->state == QRNIC_QPS_ERR) {
        return qrnic_qp_flush(e, qp, QP_QUANTUM);
    }
    return qrnic_qp_ops(qp)->transmit(e, qp, QP_QUANTUM);
}

/*
 * What sends nothing must not wait for a wire that may never be free again:
 * software waits for it when it takes a connection down, or changes it.
 */
static void work_while_busy(QrnicEngine *e, unsigned budget)
{
    QrnicQp *qp, *next;

    QTAILQ_FOREACH_SAFE(qp, &e->active, next, next) {
        if (!needs_no_wire(qp)) {
            continue;
        }
        if (take_up(e, qp)) {
            qrnic_schedule(e, qp);
        }
        if (!--budget || e->fatal) {
            e->env.kick(e->env.opaque);
            return;
        }
    }
}

void qrnic_scheduler_run(QrnicEngine *e, unsigned budget)
{
    while (budget && !e->fatal && !QTAILQ_EMPTY(&e->active) &&
           !qrnic_wire_busy(e)) {
        QrnicQp *qp = QTAILQ_FIRST(&e->active);

        if (take_up(e, qp)) {
            qrnic_schedule(e, qp);
        }
        budget--;
    }
    if (budget && !e->fatal && e->wire_busy) {
        work_while_busy(e, budget);
    }
}

void qrnic_frame_send(QrnicEngine *e, const uint8_t *frame, size_t len,
                      bool roce)
{
    if (!qrnic_engine_port_active(e)) {
        qrnic_add(e, QRNIC_COUNTER_TX_DROP_LINK, 1);
        trace_qrnic_frame_drop_link(e->config.name, len);
        return;
    }
    qrnic_flow_sniff(e, frame, len);
    if (roce) {
        qrnic_add(e, QRNIC_COUNTER_ROCE_TX_PACKETS, 1);
        qrnic_add(e, QRNIC_COUNTER_ROCE_TX_BYTES, len);
        if (qrnic_frame_is_roce(e, frame, len)) {
            QrnicLoopbackFrame *f = g_malloc(sizeof(*f) + len);

            f->len = len;
            memcpy(f->data, frame, len);
            g_queue_push_tail(&e->loopback, f);
            qrnic_add(e, QRNIC_COUNTER_ROCE_LOOPBACK_PACKETS, 1);
            trace_qrnic_frame_loopback(e->config.name, len);
            e->env.kick(e->env.opaque);
            /* A multicast packet goes to others, too. */
            if (!(frame[0] & 1)) {
                return;
            }
        }
    } else {
        qrnic_add(e, QRNIC_COUNTER_ETH_TX_PACKETS, 1);
        qrnic_add(e, QRNIC_COUNTER_ETH_TX_BYTES, len);
    }
    trace_qrnic_frame_send(e->config.name, len, roce);
    if (!e->env.send(e->env.opaque, frame, len)) {
        trace_qrnic_wire_busy(e->config.name);
        e->wire_busy = true;
    }
}

void qrnic_loopback_deliver(QrnicEngine *e, unsigned budget)
{
    while (budget) {
        g_autofree QrnicLoopbackFrame *f = g_queue_pop_head(&e->loopback);
        unsigned deliveries = 1;

        if (!f) {
            break;
        }
        /* A frame to a group is as much work as it has receivers. */
        qrnic_roce_receive(e, f->data, f->len, true, &deliveries);
        budget -= MIN(budget, MAX(deliveries, 1));
    }
}

void qrnic_loopback_drop(QrnicEngine *e)
{
    QrnicLoopbackFrame *f;

    while ((f = g_queue_pop_head(&e->loopback))) {
        g_free(f);
    }
}
