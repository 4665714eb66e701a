/*
 * qrnic: the work of the device (work.c)
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_WORK_H
#define QRNIC_DEVICE_WORK_H

#include "device/device.h"

/*
 * Enters the device; every call that may change the engine is between this and
 * qrnic_leave(). False: the device is entered already, and the caller notes
 * its request. qrnic_leave() may free the device.
 */
bool qrnic_enter(QrnicDevice *d);
void qrnic_leave(QrnicDevice *d);

/* Does all pending work now; may free the device. */
void qrnic_work(QrnicDevice *d);

/* Handles a write to a doorbell page. The device is entered. */
void qrnic_doorbell(QrnicDevice *d, uint32_t page, unsigned offset,
                    unsigned size, uint64_t value);

/* Executes a short command at once if it can, others in a bottom half. */
void qrnic_command_rung(QrnicDevice *d);

/* Returns true if frames that arrive are lost, because nothing takes them. */
bool qrnic_takes_no_frame(QrnicDevice *d);

/* Resets the device, at once or when it is left. */
void qrnic_device_reset(QrnicDevice *d);

/* Ends the use of the bus, and releases the wire when nothing uses it. */
void qrnic_unplug(QrnicDevice *d);

#endif
