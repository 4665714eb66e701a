/*
 * qrnic engine: sending, looping back and receiving of frames
 *
 * The device calls qrnic_engine_receive() for each received frame and
 * qrnic_engine_wire_ready() when a busy wire accepts frames again. Queue pairs
 * build a packet at qrnic_roce_place() and send it with qrnic_roce_send(). At
 * most one packet is being built at a time (fabric->build). Looped back frames
 * wait in fabric->loopback until the run loop calls qrnic_loopback_deliver().
 * So no queue pair receives while another queue pair sends.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/fabric/fabric.h"

/* Looped back frames in the queue from which on senders must wait */
#define LOOPBACK_ROOM 256

bool qrnic_wire_stands_still(const QrnicEngine *e, uint32_t *epoch)
{
    const QrnicFabric *f = e->fabric;
    bool still = f->wire_busy && *epoch == f->wire_epoch;

    *epoch = f->wire_epoch;
    return still;
}

/* A port that is down drops frames, so senders do not wait for its wire. */
bool qrnic_wire_busy(const QrnicEngine *e)
{
    return e->fabric->wire_busy && qrnic_engine_port_active(e);
}

bool qrnic_loopback_full(const QrnicEngine *e)
{
    return e->fabric->loopback_count >= LOOPBACK_ROOM;
}

void qrnic_engine_wire_ready(QrnicEngine *e)
{
    e->fabric->wire_busy = false;
    e->fabric->wire_epoch++;
    trace_qrnic_wire_ready(e->config.name);
    qrnic_wake(e);
}

bool qrnic_engine_can_receive(const QrnicEngine *e)
{
    return (!e->fabric->delivering && !e->fabric->suspended) || e->fatal;
}

bool qrnic_engine_suspended(const QrnicEngine *e)
{
    return e->fabric->suspended;
}

static void sniff(QrnicEngine *e, const QrnicHeaders *h)
{
    if (e->fabric->sniffers) {
        e->fabric->receivers->sniff(e, h);
    }
}

static void receive(QrnicEngine *e, const QrnicHeaders *h)
{
    sniff(e, h);
    if (e->fatal) {
        return;
    }
    if (qrnic_frame_is_roce(e, h)) {
        trace_qrnic_frame_receive(e->config.name, h->len, true);
        e->fabric->receivers->roce(e, h, false);
        return;
    }
    trace_qrnic_frame_receive(e->config.name, h->len, false);
    e->fabric->receivers->ethernet(e, h);
}

void qrnic_engine_receive(QrnicEngine *e, const uint8_t *frame, size_t len)
{
    if (qrnic_engine_port_active(e)) {
        const QrnicHeaders h = qrnic_headers_walk(frame, len);

        receive(e, &h);
    }
}

static bool port_takes(QrnicEngine *e, size_t len)
{
    bool active = qrnic_engine_port_active(e);

    if (!active) {
        qrnic_add(e, QRNIC_COUNTER_TX_DROP_LINK, 1);
        trace_qrnic_frame_drop_link(e->config.name, len);
    }
    return active;
}

static void wire_send(QrnicEngine *e, const uint8_t *frame, size_t len,
                      bool roce)
{
    trace_qrnic_frame_send(e->config.name, len, roce);
    if (!e->env.send(e->env.opaque, frame, len)) {
        trace_qrnic_wire_busy(e->config.name);
        e->fabric->wire_busy = true;
    }
}

static QrnicLoopbackFrame *loopback_new(QrnicEngine *e, size_t room)
{
    QrnicLoopbackFrame *f = qrnic_buffer_get(e, sizeof(*f) + room);

    f->room = room;
    return f;
}

static void loopback_free(QrnicEngine *e, QrnicLoopbackFrame *f)
{
    qrnic_buffer_put(e, f, sizeof(*f) + f->room);
}

static void loopback_send(QrnicEngine *e, QrnicLoopbackFrame *f, size_t len)
{
    f->headers = qrnic_headers_walk(f->data, len);
    QTAILQ_INSERT_TAIL(&e->fabric->loopback, f, next);
    e->fabric->loopback_count++;
    qrnic_add(e, QRNIC_COUNTER_ROCE_LOOPBACK_PACKETS, 1);
    trace_qrnic_frame_loopback(e->config.name, len);
    qrnic_wake(e);
}

static QrnicLoopbackFrame *loopback_pop(QrnicEngine *e)
{
    QrnicLoopbackFrame *f = QTAILQ_FIRST(&e->fabric->loopback);

    if (f) {
        QTAILQ_REMOVE(&e->fabric->loopback, f, next);
        e->fabric->loopback_count--;
    }
    return f;
}

/* Frees the frame of a packet that was built for loopback and not sent. */
static void build_drop(QrnicEngine *e)
{
    QrnicBuild *b = &e->fabric->build;

    if (b->ours) {
        loopback_free(e, b->ours);
        b->ours = NULL;
    }
}

/*
 * Uses the staging frame if the wire or a sniffer gets the packet, too, because
 * loopback then needs a copy.
 */
uint8_t *qrnic_roce_place(QrnicEngine *e, const QrnicRoceTo *to, size_t room)
{
    QrnicBuild *b = &e->fabric->build;

    build_drop(e);
    b->to = *to;
    b->frame = e->fabric->frame;
    if (to->ours && !to->multicast && !e->fabric->sniffers) {
        b->ours = loopback_new(e, room);
        b->frame = b->ours->data;
    }
    return b->frame;
}

bool qrnic_roce_is_private(const QrnicEngine *e)
{
    return e->fabric->build.ours;
}

/*
 * Sends the packet in the staging frame. The headers are parsed only if a
 * sniffer rule exists, to save time in the usual case.
 */
static void staged_send(QrnicEngine *e, size_t len)
{
    const QrnicBuild *b = &e->fabric->build;

    if (e->fabric->sniffers) {
        const QrnicHeaders h = qrnic_headers_walk(b->frame, len);

        sniff(e, &h);
    }
    if (b->to.ours) {
        QrnicLoopbackFrame *f = loopback_new(e, len);

        memcpy(f->data, b->frame, len);
        loopback_send(e, f, len);
    }
    /* A multicast packet also goes to other devices. */
    if (!b->to.ours || b->to.multicast) {
        wire_send(e, b->frame, len, true);
    }
}

void qrnic_roce_send(QrnicEngine *e, size_t len)
{
    QrnicBuild *b = &e->fabric->build;

    if (!port_takes(e, len)) {
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_ROCE_TX_PACKETS, 1);
    qrnic_add(e, QRNIC_COUNTER_ROCE_TX_BYTES, len);
    qrnic_add(e, QRNIC_COUNTER_ROCE_TX_MULTICAST, b->to.multicast);
    qrnic_add(e, QRNIC_COUNTER_ROCE_V1_TX_PACKETS, b->to.v1);
    if (b->ours) {
        loopback_send(e, b->ours, len);
        b->ours = NULL;
    } else {
        staged_send(e, len);
    }
}

void qrnic_frame_send(QrnicEngine *e, const QrnicHeaders *h)
{
    if (!port_takes(e, h->len)) {
        return;
    }
    sniff(e, h);
    qrnic_add(e, QRNIC_COUNTER_ETH_TX_PACKETS, 1);
    qrnic_add(e, QRNIC_COUNTER_ETH_TX_BYTES, h->len);
    wire_send(e, h->frame, h->len, false);
}

bool qrnic_loopback_moves(const QrnicEngine *e)
{
    const QrnicFabric *f = e->fabric;

    return f->loopback_count && !f->delivering && !f->suspended &&
           !f->wire_first;
}

void qrnic_loopback_deliver(QrnicEngine *e, unsigned budget)
{
    while (budget && qrnic_loopback_moves(e)) {
        QrnicLoopbackFrame *f = loopback_pop(e);
        unsigned deliveries;

        /*
         * A multicast frame counts once per receiver, because each receiver is
         * as much work as a frame of its own.
         */
        deliveries = e->fabric->receivers->roce(e, &f->headers, true);
        loopback_free(e, f);
        budget -= MIN(budget, MAX(deliveries, 1));
    }
}

void qrnic_loopback_drop(QrnicEngine *e)
{
    QrnicLoopbackFrame *f;

    build_drop(e);
    while ((f = loopback_pop(e))) {
        loopback_free(e, f);
    }
}
