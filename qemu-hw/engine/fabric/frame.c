/*
 * qrnic engine: the way out and back in of frames
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/fabric/fabric.h"

/* Frames on the way to ourselves before senders have to wait */
#define LOOPBACK_ROOM 256

bool qrnic_wire_stands_still(const QrnicEngine *e, uint32_t *epoch)
{
    const QrnicFabric *f = e->fabric;
    bool still = f->wire_busy && *epoch == f->wire_epoch;

    *epoch = f->wire_epoch;
    return still;
}

/* A port that is down drops frames, so nobody has to wait for its wire. */
bool qrnic_wire_busy(QrnicEngine *e)
{
    return e->fabric->wire_busy && qrnic_engine_port_active(e);
}

bool qrnic_loopback_full(const QrnicEngine *e)
{
    return e->fabric->loopback.length >= LOOPBACK_ROOM;
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
    return !e->fabric->delivering || e->fatal;
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

static void loopback_send(QrnicEngine *e, const QrnicHeaders *h)
{
    QrnicLoopbackFrame *f = g_malloc(sizeof(*f) + h->len);

    f->headers = *h;
    f->headers.frame = f->data;
    memcpy(f->data, h->frame, h->len);
    g_queue_push_tail(&e->fabric->loopback, f);
    qrnic_add(e, QRNIC_COUNTER_ROCE_LOOPBACK_PACKETS, 1);
    trace_qrnic_frame_loopback(e->config.name, h->len);
    qrnic_wake(e);
}

void qrnic_roce_send(QrnicEngine *e, const uint8_t *frame, size_t len, bool v1,
                     bool ours)
{
    bool multicast = frame[0] & 1;

    if (!port_takes(e, len)) {
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_ROCE_TX_PACKETS, 1);
    qrnic_add(e, QRNIC_COUNTER_ROCE_TX_BYTES, len);
    qrnic_add(e, QRNIC_COUNTER_ROCE_TX_MULTICAST, multicast);
    qrnic_add(e, QRNIC_COUNTER_ROCE_V1_TX_PACKETS, v1);
    /* Few packets are looked at by anybody in here. */
    if (ours || e->fabric->sniffers) {
        const QrnicHeaders h = qrnic_headers_walk(frame, len);

        sniff(e, &h);
        if (ours) {
            loopback_send(e, &h);
        }
    }
    /* A multicast packet goes to others, too. */
    if (!ours || multicast) {
        wire_send(e, frame, len, true);
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

    return f->loopback.length && !f->delivering && !f->wire_turn;
}

void qrnic_loopback_deliver(QrnicEngine *e, unsigned budget)
{
    while (budget && qrnic_loopback_moves(e)) {
        g_autofree QrnicLoopbackFrame *f =
            g_queue_pop_head(&e->fabric->loopback);
        unsigned deliveries;

        /* A frame to a group is as much work as it has receivers. */
        deliveries = e->fabric->receivers->roce(e, &f->headers, true);
        budget -= MIN(budget, MAX(deliveries, 1));
    }
}

void qrnic_loopback_drop(QrnicEngine *e)
{
    QrnicLoopbackFrame *f;

    while ((f = g_queue_pop_head(&e->fabric->loopback))) {
        g_free(f);
    }
}
