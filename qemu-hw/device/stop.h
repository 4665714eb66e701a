/*
 * qrnic: stops the device at the next event, for a step-by-step view
 *
 * The property stop-at selects kinds of events. With the property, each call of
 * the engine runs in a coroutine (qrnic_stop_run()). At an event of such a kind
 * the functions "Events" below leave the coroutine. The device stays entered
 * meanwhile, so that every other call only records a request. Callers of the
 * functions "Events" test d->stop_at first, because it is 0 without the
 * property. All other functions accept a device without d->stop.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_STOP_H
#define QRNIC_DEVICE_STOP_H

#include "device/device.h"

/* Work for an entered device. The function leaves the device at its end. */
typedef void QrnicRun(QrnicDevice *d, const void *data, size_t len);

/**
 * qrnic_stop_run:
 * @d: the device; entered
 * @run: the work
 * @data: argument of @run; copied
 * @len: number of bytes of @data
 *
 * Runs the work in a coroutine. Returns when the work is complete or the device
 * is stopped.
 */
void qrnic_stop_run(QrnicDevice *d, QrnicRun *run, const void *data,
                    size_t len);
/**
 * qrnic_is_stopped:
 * @d: the device
 *
 * Returns: true if the device is stopped at an event
 */
bool qrnic_is_stopped(const QrnicDevice *d);
/**
 * qrnic_stop_resume:
 * @d: the device; may be freed by this call
 *
 * Continues the work of a stopped device, if that was requested.
 */
void qrnic_stop_resume(QrnicDevice *d);
/**
 * qrnic_stop_end:
 * @d: the device
 *
 * Completes the work of a stopped device without a further stop.
 */
void qrnic_stop_end(QrnicDevice *d);
/**
 * qrnic_stop_leave:
 * @d: the device; the caller leaves it
 *
 * Forgets the work that ended. qrnic_leave() calls this function, after it has
 * executed the deferred requests.
 */
void qrnic_stop_leave(QrnicDevice *d);
/**
 * qrnic_stop_hold:
 * @d: the device
 * @hold: true to postpone stops, false to stop at a postponed event
 *
 * Postpones a stop over a change of memory that software sees before the device
 * has updated its own state.
 */
void qrnic_stop_hold(QrnicDevice *d, bool hold);

/* Requests of a guest that must wait until the device is left */

/**
 * qrnic_stop_defer_eq:
 * @d: the device; stopped
 * @value: doorbell of an EQ
 *
 * Records a doorbell of an EQ. A later doorbell of the same EQ replaces it.
 */
void qrnic_stop_defer_eq(QrnicDevice *d, uint64_t value);
/**
 * qrnic_stop_take_eq:
 * @d: the device
 * @value: receives the doorbell
 *
 * Returns: true if there was a recorded doorbell of an EQ
 */
bool qrnic_stop_take_eq(QrnicDevice *d, uint64_t *value);
/**
 * qrnic_stop_defer_event:
 * @d: the device; stopped
 * @value: value written to CMD_EVENT
 *
 * Records the request of an event for a completed command.
 */
void qrnic_stop_defer_event(QrnicDevice *d, uint32_t value);
/**
 * qrnic_stop_take_event:
 * @d: the device
 * @value: receives the value written to CMD_EVENT
 *
 * Returns: true if there was a recorded request
 */
bool qrnic_stop_take_event(QrnicDevice *d, uint32_t *value);
/**
 * qrnic_stop_forget:
 * @d: the device
 *
 * Discards all recorded requests and doorbells in a reset.
 */
void qrnic_stop_forget(QrnicDevice *d);

/* Events */

/**
 * qrnic_stop_doorbell:
 * @d: the device
 * @offset: offset in BAR 2
 * @value: written value
 *
 * Stops at a doorbell. If the device is already stopped, the doorbell is the
 * next event.
 */
void qrnic_stop_doorbell(QrnicDevice *d, uint64_t offset, uint64_t value);
/**
 * qrnic_stop_dma:
 * @d: the device
 * @addr: bus address
 * @buf: data that were read or written
 * @len: number of bytes
 * @write: true for a write
 * @ok: false if the access failed
 *
 * Stops after a DMA access. The two writes of a CQE or an EQE are one event.
 */
void qrnic_stop_dma(QrnicDevice *d, uint64_t addr, const void *buf, size_t len,
                    bool write, bool ok);
/**
 * qrnic_stop_frame:
 * @d: the device
 * @frame: the frame, which is not used after the stop
 * @len: number of bytes
 * @sent: true after a frame was sent, false before a received one is processed
 *
 * Stops at a frame of the wire.
 */
void qrnic_stop_frame(QrnicDevice *d, const uint8_t *frame, size_t len,
                      bool sent);
/**
 * qrnic_stop_interrupt:
 * @d: the device
 * @vector: number of the vector
 *
 * Stops after an MSI-X message.
 */
void qrnic_stop_interrupt(QrnicDevice *d, unsigned vector);

/* Properties */

/**
 * qrnic_stop_set:
 * @d: the device
 * @kinds: names of kinds with spaces between them, "any" or "none"
 * @errp: receives the error
 *
 * Selects the kinds of the property stop-at. "none" also continues a stopped
 * device; the caller then schedules a run.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_stop_set(QrnicDevice *d, const char *kinds, Error **errp);
/**
 * qrnic_stop_get:
 * @d: the device
 *
 * Returns: the value of the property stop-at; the caller frees it
 */
char *qrnic_stop_get(const QrnicDevice *d);
/**
 * qrnic_stop_visit:
 * @d: the device
 * @v: the visitor
 * @name: name of the property
 * @errp: receives the error
 *
 * Reports the event at which the device is stopped. The structure is empty if
 * the device is not stopped.
 */
void qrnic_stop_visit(const QrnicDevice *d, Visitor *v, const char *name,
                      Error **errp);
/**
 * qrnic_stop_continue:
 * @d: the device
 * @errp: receives the error
 *
 * Requests that the device continues up to the next event. The caller schedules
 * a run.
 *
 * Returns: true, or false with *@errp set if the device is not stopped
 */
bool qrnic_stop_continue(QrnicDevice *d, Error **errp);
/**
 * qrnic_stop_cleanup:
 * @d: the device; not stopped
 *
 * Frees the state of stops.
 */
void qrnic_stop_cleanup(QrnicDevice *d);

#endif
