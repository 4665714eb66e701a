/*
 * qrnic: the port, between the engine and the wire
 *
 * With link-retransmission=on all frames pass the state machine of
 * qemu-hw/link/, both for a backend of QEMU and for a cable. Otherwise frames
 * pass directly. wire_net.c and wire_cable.c call qrnic_port_receive() for a
 * received frame. The environment of the engine calls qrnic_port_send(), and
 * work.c calls qrnic_port_deliver() and qrnic_port_work() in each run.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/guest-random.h"
#include "qemu/timer.h"
#include "trace.h"
#include "device/parts.h"
#include "link/frame.h"
#include "link/link.h"

/* A payload frame has room for any frame, and fits into a frame of a cable. */
QEMU_BUILD_BUG_ON(QRNIC_LINK_PAYLOAD_MAX < QRNIC_MAX_MTU + 18);
QEMU_BUILD_BUG_ON(QRNIC_LINK_FRAME_MAX > QRNIC_FRAME_MAX);

/*
 * The counters of the device have the same order as the counters of the link.
 */
QEMU_BUILD_BUG_ON(QRNIC_COUNTER_LINK_ESTABLISHED -
                  QRNIC_COUNTER_LINK_TX_FRAMES != QRNIC_LINK_ESTABLISHED);
QEMU_BUILD_BUG_ON(QRNIC_COUNTER_LINK_RX_GAPS -
                  QRNIC_COUNTER_LINK_TX_FRAMES != QRNIC_LINK_RX_GAPS);

/*
 * Time for which the device waits for a wire that accepts no frame, 4 seconds.
 * The transmit watchdog of a kernel expires after 5 seconds. The time is
 * counted in steps. Otherwise a host that stops all processes for a moment
 * would leave the peer no time to accept frames before the timer expires.
 */
#define BUSY_STEP_NS (250 * SCALE_MS)
#define BUSY_STEPS 16

/*
 * Sends a frame to the wire. Returns false if the wire is busy. The frame is
 * dropped if the wire is blocked, because a real link does not wait for its
 * receiver.
 */
static bool wire_send(QrnicDevice *d, const uint8_t *frame, size_t len)
{
    bool ready;

    if (d->wire_blocked) {
        qrnic_count(d->engine, QRNIC_COUNTER_TX_DROP_LINK, 1);
        return true;
    }
    if (d->capture) {
        qrnic_capture_wire(d, frame, len, true);
    }
    ready = d->wire->send(d, frame, len);
    if (!ready && !timer_pending(d->wire_timer)) {
        d->wire_steps = 0;
        qrnic_timer_arm(d, d->wire_timer, qrnic_clock_ns(d) + BUSY_STEP_NS);
    }
    if (d->stop_at) {
        qrnic_stop_frame(d, frame, len, true);
    }
    return ready;
}

static void wire_notify(QrnicDevice *d)
{
    if (d->link) {
        qrnic_link_wire_ready(d->link);
    } else {
        qrnic_engine_wire_ready(d->engine);
    }
}

/* Handles a step of the time for which the wire has been busy. */
static void wire_step(QrnicDevice *d)
{
    if (++d->wire_steps < BUSY_STEPS) {
        qrnic_timer_arm(d, d->wire_timer, qrnic_clock_ns(d) + BUSY_STEP_NS);
        return;
    }
    trace_qrnic_wire_blocked(d->name);
    d->wire_blocked = true;
    wire_notify(d);
}

static void wire_timer_fired(void *opaque)
{
    QrnicDevice *d = opaque;

    qrnic_pending_add(d, QRNIC_PENDING_WIRE_TIMER);
    qrnic_kick(d);
}

/* Operations of the link */

static bool env_send(void *opaque, const uint8_t *frame, size_t len)
{
    QrnicDevice *d = opaque;

    return !qrnic_on_bus(d) || wire_send(d, frame, len);
}

static void env_deliver(void *opaque, const uint8_t *frame, size_t len)
{
    qrnic_engine_receive(((QrnicDevice *)opaque)->engine, frame, len);
}

/*
 * Returns true if the engine accepts a frame: no reset is pending, and DMA is
 * enabled.
 */
static bool may_deliver(QrnicDevice *d)
{
    return qrnic_on_bus(d) && qrnic_bus_master(d) &&
           qrnic_engine_can_receive(d->engine);
}

/*
 * Returns true if the link may deliver a frame. The work budget is checked,
 * because a missing frame that arrives releases many buffered frames at once.
 */
static bool env_takes(void *opaque)
{
    QrnicDevice *d = opaque;

    return may_deliver(d) && !qrnic_engine_frames_taken(d->engine);
}

static void env_ready(void *opaque)
{
    qrnic_engine_wire_ready(((QrnicDevice *)opaque)->engine);
}

static void env_changed(void *opaque, bool agreed)
{
    qrnic_engine_set_link_agreed(((QrnicDevice *)opaque)->engine, agreed);
}

static void env_kick(void *opaque)
{
    QrnicDevice *d = opaque;

    qrnic_pending_add(d, QRNIC_PENDING_LINK_RUN);
    qrnic_kick(d);
}

static int64_t env_clock_ns(void *opaque)
{
    return qrnic_clock_ns(opaque);
}

static void env_timer_arm(void *opaque, int64_t deadline_ns)
{
    QrnicDevice *d = opaque;

    if (deadline_ns == QRNIC_LINK_NEVER) {
        timer_del(d->link_timer);
    } else {
        qrnic_timer_arm(d, d->link_timer, deadline_ns);
    }
}

static uint32_t env_random(void *opaque)
{
    uint32_t number;

    qemu_guest_getrandom_nofail(&number, sizeof(number));
    return number;
}

static void env_count(void *opaque, enum qrnic_link_count which, uint64_t n)
{
    qrnic_count(((QrnicDevice *)opaque)->engine,
                QRNIC_COUNTER_LINK_TX_FRAMES + which, n);
}

static void timer_fired(void *opaque)
{
    QrnicDevice *d = opaque;

    qrnic_pending_add(d, QRNIC_PENDING_LINK_TIMER);
    qrnic_kick(d);
}

/* Functions for the device */

void qrnic_port_init(QrnicDevice *d)
{
    QrnicLinkConfig config = qrnic_link_config_default();
    const QrnicLinkEnv env = {
        .opaque = d, .send = env_send, .deliver = env_deliver,
        .takes = env_takes, .ready = env_ready, .changed = env_changed,
        .kick = env_kick, .clock_ns = env_clock_ns,
        .timer_arm = env_timer_arm, .random = env_random, .count = env_count,
    };

    d->wire_timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, wire_timer_fired, d);
    if (d->config.capabilities & QRNIC_CAP_LINK_RETRANSMISSION) {
        config.name = d->name;
        memcpy(config.mac, d->config.mac, sizeof(config.mac));
        d->link_timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, timer_fired, d);
        d->link = qrnic_link_new(&config, &env);
    }
}

void qrnic_port_stop(QrnicDevice *d)
{
    timer_del(d->wire_timer);
    if (d->link) {
        timer_del(d->link_timer);
    }
}

void qrnic_port_cleanup(QrnicDevice *d)
{
    qrnic_link_free(d->link);
    timer_free(d->link_timer);
    timer_free(d->wire_timer);
}

void qrnic_port_set_link(QrnicDevice *d, bool up)
{
    qrnic_engine_set_link(d->engine, up);
    if (d->link) {
        qrnic_link_set_up(d->link, up);
    }
}

void qrnic_port_link_reset(QrnicDevice *d)
{
    if (d->link) {
        qrnic_link_reset(d->link);
    }
}

bool qrnic_port_send(QrnicDevice *d, const uint8_t *frame, size_t len)
{
    return d->link ? qrnic_link_send(d->link, frame, len) :
                     wire_send(d, frame, len);
}

void qrnic_port_wire_ready(QrnicDevice *d)
{
    timer_del(d->wire_timer);
    qrnic_pending_take(d, QRNIC_PENDING_WIRE_TIMER);
    d->wire_blocked = false;
    wire_notify(d);
}

bool qrnic_port_can_receive(const QrnicDevice *d)
{
    return qrnic_engine_can_receive(d->engine) &&
           (!d->link || !qrnic_link_holds(d->link));
}

void qrnic_port_receive(QrnicDevice *d, const uint8_t *frame, size_t len)
{
    if (d->capture) {
        qrnic_capture_wire(d, frame, len, false);
    }
    if (d->stop_at) {
        qrnic_stop_frame(d, frame, len, false);
    }
    if (d->link) {
        qrnic_link_receive(d->link, frame, len);
        if (qrnic_port_has_frames(d)) {
            qrnic_kick(d);
        }
    } else {
        qrnic_engine_receive(d->engine, frame, len);
    }
}

void qrnic_port_deliver(QrnicDevice *d)
{
    if (d->link) {
        qrnic_engine_take_frames(d->engine);
        qrnic_link_takes(d->link);
    }
}

bool qrnic_port_has_frames(QrnicDevice *d)
{
    return d->link && qrnic_link_holds(d->link) && may_deliver(d);
}

bool qrnic_port_idle(const QrnicDevice *d)
{
    return !(d->pending & (QRNIC_PENDING_LINK_TIMER | QRNIC_PENDING_LINK_RUN |
                           QRNIC_PENDING_WIRE_TIMER));
}

void qrnic_port_work(QrnicDevice *d)
{
    if (qrnic_pending_take(d, QRNIC_PENDING_WIRE_TIMER) &&
        qrnic_is_plugged(d)) {
        wire_step(d);
    }
    if (qrnic_pending_take(d, QRNIC_PENDING_LINK_TIMER)) {
        qrnic_link_timer(d->link);
    }
    if (qrnic_pending_take(d, QRNIC_PENDING_LINK_RUN)) {
        qrnic_link_run(d->link);
    }
}
