/*
 * qrnic: the work of the device (work.c)
 *
 * The outer layer (registers, wires, engine_env.c, pci.c) calls these
 * functions.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_WORK_H
#define QRNIC_DEVICE_WORK_H

#include "device/device.h"
#include "device/stop.h"

/**
 * qrnic_enter:
 * @d: the device
 *
 * Enters the device. Each call that may change the engine or the command queue
 * is between qrnic_enter() and qrnic_leave().
 *
 * Returns: true, or false if the device is already entered or not plugged; the
 * caller then records its request with qrnic_pending_add()
 */
bool qrnic_enter(QrnicDevice *d);
/**
 * qrnic_leave:
 * @d: the device; may be freed by this call
 *
 * Leaves the device, and handles a reset or an unplug that was requested
 * meanwhile.
 */
void qrnic_leave(QrnicDevice *d);

/**
 * qrnic_run:
 * @d: the device; entered
 * @run: the work, which leaves the device at its end
 * @data: argument of @run
 * @len: number of bytes of @data
 *
 * Runs work of an entered device. If stop-at is set, the device may be stopped
 * when the function returns.
 */
void qrnic_run(QrnicDevice *d, QrnicRun *run, const void *data, size_t len);

/**
 * qrnic_work:
 * @d: the device; may be freed by this call
 *
 * Does the pending work; the body of the bottom half.
 */
void qrnic_work(QrnicDevice *d);

/**
 * qrnic_doorbell:
 * @d: the device; not entered
 * @page: number of the doorbell page
 * @offset: offset in the page
 * @size: size of the access in bytes
 * @value: written value
 *
 * Handles a write to a doorbell page. A busy device ignores the write, because
 * QEMU also rejects each access to a device that is busy. A stopped device
 * accepts the doorbell.
 */
void qrnic_doorbell(QrnicDevice *d, uint32_t page, unsigned offset,
                    unsigned size, uint64_t value);

/**
 * qrnic_command_rung:
 * @d: the device; not entered
 *
 * Executes a short command at once if possible, and any other command in the
 * bottom half.
 */
void qrnic_command_rung(QrnicDevice *d);
/**
 * qrnic_command_event_late:
 * @d: the device; not entered
 * @value: value written to CMD_EVENT
 *
 * Writes the event of a command that has already ended.
 */
void qrnic_command_event_late(QrnicDevice *d, uint32_t value);

/**
 * qrnic_takes_no_frame:
 * @d: the device
 *
 * Returns: true if received frames are dropped, because the device is unplugged
 * or asleep, or cannot store them without bus mastering. A frame that waited
 * would block the transmit queue of its sender for as long as this guest has no
 * driver.
 */
bool qrnic_takes_no_frame(QrnicDevice *d);

/**
 * qrnic_device_reset:
 * @d: the device
 *
 * Resets the device now, or when it is left.
 */
void qrnic_device_reset(QrnicDevice *d);

/**
 * qrnic_unplug:
 * @d: the device
 *
 * Ends the use of the bus. Releases the wire when no caller uses it.
 */
void qrnic_unplug(QrnicDevice *d);

#endif
