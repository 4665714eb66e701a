/*
 * qrnic: the work of the device: entering and leaving it, its bottom half, and
 * its reset
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * Each call that may change the engine or the command queue is between
 * qrnic_enter() and qrnic_leave(). An interrupt or a sent frame may reach
 * another device, whose code may poll for work. The poll may run the bottom
 * half of this device, deliver a frame to it, reset it or unplug it. If the
 * device is already entered, such a call only records a request (QrnicPending,
 * or the state of the device). The request is handled when the device is left,
 * or in the next run.
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "trace.h"
#include "device/parts.h"
#include "device/work.h"

/* Commands in a run of the bottom half */
#define COMMAND_BUDGET 16

bool qrnic_takes_no_frame(QrnicDevice *d)
{
    return !qrnic_is_plugged(d) || qrnic_asleep(d) || !qrnic_bus_master(d);
}

bool qrnic_enter(QrnicDevice *d)
{
    if (!qrnic_state_enter(d)) {
        return false;
    }
    /*
     * The reference keeps the device in memory, because it may be unplugged
     * before it is left.
     */
    object_ref(OBJECT(d));
    return true;
}

void qrnic_run(QrnicDevice *d, QrnicRun *run, const void *data, size_t len)
{
    if (d->stop_at) {
        qrnic_stop_run(d, run, data, len);
    } else {
        run(d, data, len);
    }
}

void qrnic_unplug(QrnicDevice *d)
{
    if (qrnic_state_unplug(d)) {
        d->wire->cleanup(d);
    }
    qrnic_stop_end(d);
}

static bool receive_is_pending(const QrnicDevice *d)
{
    return d->pending & QRNIC_PENDING_RECEIVE;
}

/*
 * Executes requests of the guest that arrived while the device was stopped, and
 * that could not be executed in the middle of the engine.
 */
static void deferred_run(QrnicDevice *d)
{
    uint64_t doorbell;
    uint32_t event;

    while (qrnic_on_bus(d) && qrnic_stop_take_eq(d, &doorbell)) {
        qrnic_doorbell_write(d->engine, 0, QRNIC_DB_EQ, sizeof(doorbell),
                             doorbell);
    }
    while (qrnic_on_bus(d) && qrnic_stop_take_event(d, &event)) {
        qrnic_command_event_send(d, event);
    }
}

void qrnic_leave(QrnicDevice *d)
{
    QrnicDeviceState before;

    if (d->stop) {
        deferred_run(d);
        qrnic_stop_leave(d);
    }
    if (d->wire->settle && qrnic_is_plugged(d)) {
        d->wire->settle(d);
    }
    before = qrnic_state_leave(d);
    if (d->state == QRNIC_DEVICE_ABSENT) {
        d->wire->cleanup(d);
    } else if (before == QRNIC_DEVICE_RESET_PENDING) {
        qrnic_device_reset(d);
    }
    if ((receive_is_pending(d) && !qrnic_engine_suspended(d->engine)) ||
        d->pending & QRNIC_PENDING_WORK) {
        qrnic_pending_take(d, QRNIC_PENDING_WORK);
        qrnic_kick(d);
    }
    object_unref(OBJECT(d));
}

/*
 * Maps device memory into its BAR only when it is clear, because the CPU must
 * not see data of the previous user.
 */
static void device_memory_show(QrnicDevice *d)
{
    if (d->config.capabilities & QRNIC_CAP_DEVICE_MEMORY) {
        memory_region_set_enabled(&d->bar_memory,
                                  qrnic_engine_ready(d->engine));
    }
}

void qrnic_device_reset(QrnicDevice *d)
{
    if (!qrnic_state_reset(d)) {
        trace_qrnic_waits(d->name, "reset");
        qrnic_stop_end(d);
        return;
    }
    trace_qrnic_reset(d->name);
    qrnic_command_reset(d);
    d->regs = (QrnicRegisters) { 0 };
    timer_del(d->timer);
    qrnic_pending_take(d, QRNIC_PENDING_TIMER);
    qrnic_port_link_reset(d);
    if (d->wire->reset) {
        d->wire->reset(d);
    }
    qrnic_engine_reset(d->engine);
    qrnic_doorbell_events_reset(d);
    qrnic_stop_forget(d);
    device_memory_show(d);
    if (receive_is_pending(d)) {
        qrnic_kick(d);
    }
}

/*
 * Runs all parts of the device once. Returns true if frames or commands remain
 * for the next run.
 */
static bool work_once(QrnicDevice *d)
{
    bool more = false, held;

    qrnic_kicks_defer(d);
    if (qrnic_pending_take(d, QRNIC_PENDING_LINK)) {
        qrnic_port_set_link(d, d->wire->link(d));
    }
    qrnic_port_deliver(d);
    if (d->wire->receive) {
        more |= d->wire->receive(d);
    }
    held = qrnic_engine_suspended(d->engine);
    if (qrnic_pending_take(d, QRNIC_PENDING_WIRE)) {
        qrnic_port_wire_ready(d);
    }
    if (qrnic_pending_take(d, QRNIC_PENDING_TIMER)) {
        qrnic_engine_timer(d->engine);
    }
    if (qrnic_command_pending(d)) {
        qrnic_doorbell_events_collect(d);
    }
    qrnic_doorbell_events_process(d);
    /*
     * The engine runs below in any case, so a recorded kick needs no bottom
     * half.
     */
    qrnic_kicks_resume(d);
    /*
     * Doorbells are handled before a command that was rung after them.
     * Otherwise a doorbell for a queue that the command destroys would be
     * reported as a guest error.
     */
    qrnic_engine_run(d->engine, QRNIC_RUN_ROUNDS);
    /*
     * The link runs after the engine, because sent frames also transport its
     * acknowledgements.
     */
    qrnic_port_work(d);
    /*
     * The wire kept its frames while the engine was suspended, so it must be
     * polled again.
     */
    more |= held && !qrnic_engine_suspended(d->engine);
    more |= qrnic_port_has_frames(d);
    device_memory_show(d);
    return qrnic_command_run(d, COMMAND_BUDGET, false) || more;
}

/*
 * Lets the wire deliver buffered frames. A hub delivers frames of other devices
 * first, and this may unplug the device.
 */
static void wire_flush(QrnicDevice *d)
{
    if (!qrnic_is_plugged(d) || !d->wire->flush) {
        return;
    }
    qrnic_state_flush_begin(d);
    qrnic_engine_take_frames(d->engine);
    d->wire->flush(d);
    if (qrnic_state_flush_end(d)) {
        d->wire->cleanup(d);
    }
}

static void work_run(QrnicDevice *d, const void *data, size_t len)
{
    bool more = false, flush;

    object_ref(OBJECT(d));
    flush = qrnic_pending_take(d, QRNIC_PENDING_RECEIVE);
    if (!qrnic_asleep(d)) {
        more = work_once(d);
        if (flush && !qrnic_engine_can_receive(d->engine)) {
            qrnic_pending_add(d, QRNIC_PENDING_RECEIVE);
            flush = false;
        }
    } else if (d->wire->receive) {
        more = d->wire->receive(d);
    }
    qrnic_leave(d);
    if (flush) {
        wire_flush(d);
    }
    if (more) {
        qrnic_kick(d);
    }
    object_unref(OBJECT(d));
}

void qrnic_work(QrnicDevice *d)
{
    if (!d->vm_running) {
        return;
    }
    if (qrnic_enter(d)) {
        qrnic_run(d, work_run, NULL, 0);
        return;
    }
    /*
     * The continuation of a stop requests this run, too. Other work may be the
     * reason of the same run, so it must follow when the device is left.
     */
    trace_qrnic_waits(d->name, "work");
    qrnic_pending_add(d, QRNIC_PENDING_WORK);
    if (!qrnic_asleep(d)) {
        qrnic_stop_resume(d);
    }
}

/* Returns true if no work is pending but the request of the processor. */
static bool nothing_waits(QrnicDevice *d)
{
    return d->vm_running && qrnic_on_bus(d) && !qrnic_asleep(d) &&
           !(d->pending & (QRNIC_PENDING_LINK | QRNIC_PENDING_WIRE |
                           QRNIC_PENDING_TIMER)) && qrnic_port_idle(d);
}

typedef struct DoorbellWrite {
    uint32_t page;
    unsigned offset, size;
    uint64_t value;
} DoorbellWrite;

/* Returns true if the write is a doorbell, and no part of a direct WQE. */
static bool is_doorbell(const DoorbellWrite *w)
{
    return w->size == QRNIC_DOORBELL_BYTES && w->offset < QRNIC_DB_WINDOW;
}

static void doorbell_stop(QrnicDevice *d, const DoorbellWrite *w)
{
    if (d->stop_at && is_doorbell(w)) {
        qrnic_stop_doorbell(d, (uint64_t)w->page * QRNIC_DB_PAGE_SIZE +
                            w->offset, w->value);
    }
}

/*
 * Runs an idle engine at once, because waking the thread of the main loop takes
 * longer than a few packets. Only one round runs, because the processor that
 * rings the doorbell waits for it. The main loop does everything if other work
 * is pending, so that the order is kept.
 *
 * A doorbell enters the FIFO before the stop, because later doorbells of the
 * stop follow it there. The doorbell of an EQ has no FIFO, and may send an
 * interrupt at once.
 */
static void doorbell_run(QrnicDevice *d, const void *data, size_t len)
{
    const DoorbellWrite *w = data;
    bool is_eq = w->offset == QRNIC_DB_EQ;

    qrnic_kicks_defer(d);
    if (is_eq) {
        doorbell_stop(d, w);
    }
    qrnic_doorbell_write(d->engine, w->page, w->offset, w->size, w->value);
    if (!is_eq) {
        doorbell_stop(d, w);
    }
    if (qrnic_kicks_resume(d)) {
        if (nothing_waits(d)) {
            qrnic_engine_run(d->engine, 1);
            device_memory_show(d);
        } else {
            qrnic_kick(d);
        }
    }
    qrnic_leave(d);
}

/* Accepts a write to a doorbell page of a stopped device. */
static void doorbell_while_stopped(QrnicDevice *d, const DoorbellWrite *w)
{
    if (is_doorbell(w) && w->page == 0 && w->offset == QRNIC_DB_EQ) {
        qrnic_stop_defer_eq(d, w->value);
    } else {
        qrnic_doorbell_write_nested(d->engine, w->page, w->offset, w->size,
                                    w->value);
    }
    doorbell_stop(d, w);
}

void qrnic_doorbell(QrnicDevice *d, uint32_t page, unsigned offset,
                    unsigned size, uint64_t value)
{
    const DoorbellWrite w = {
        .page = page, .offset = offset, .size = size, .value = value,
    };

    if (qrnic_enter(d)) {
        qrnic_run(d, doorbell_run, &w, sizeof(w));
    } else if (qrnic_is_stopped(d)) {
        doorbell_while_stopped(d, &w);
    }
}

/*
 * Executes one short command at once, because waking the main loop takes
 * longer. A command waits for the main loop if an earlier doorbell is pending.
 */
void qrnic_command_rung(QrnicDevice *d)
{
    bool more = true;

    object_ref(OBJECT(d));
    if (nothing_waits(d) && !d->stop_at && !qrnic_doorbell_events_collect(d) &&
        !qrnic_doorbells_pending(d->engine) && qrnic_enter(d)) {
        more = qrnic_command_run(d, 1, true);
        device_memory_show(d);
        qrnic_leave(d);
    }
    if (more) {
        trace_qrnic_command_later(d->name, d->cmd.producer, d->cmd.consumer);
        qrnic_kick(d);
    }
    object_unref(OBJECT(d));
}

static void command_event_run(QrnicDevice *d, const void *data, size_t len)
{
    qrnic_command_event_send(d, *(const uint32_t *)data);
    qrnic_leave(d);
}

void qrnic_command_event_late(QrnicDevice *d, uint32_t value)
{
    if (qrnic_enter(d)) {
        qrnic_run(d, command_event_run, &value, sizeof(value));
    } else if (qrnic_is_stopped(d)) {
        qrnic_stop_defer_event(d, value);
    }
}
