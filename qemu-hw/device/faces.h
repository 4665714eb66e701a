/*
 * qrnic: the faces of the device: registers, wires, the engine's environment,
 * properties
 *
 * Each face receives calls of QEMU or of the engine. pci.c makes all of them
 * when the device is realized.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_FACES_H
#define QRNIC_DEVICE_FACES_H

#include "device/work.h"

/* registers.c: makes the BARs of registers, doorbells and device memory */
bool qrnic_mmio_init(QrnicDevice *d, Error **errp);

/* engine_env.c: makes the engine and its timer */
void qrnic_engine_plug(QrnicDevice *d);

/* wire_net.c: sets d->wire */
void qrnic_net_init(QrnicDevice *d);

/* wire_cable.c: sets d->wire */
bool qrnic_cable_plug(QrnicDevice *d, Error **errp);

/* properties.c */
void qrnic_properties_add(ObjectClass *klass);
/* Completes and checks the properties, before anything is made. */
bool qrnic_properties_check(QrnicDevice *d, Error **errp);
/* Fills d->config in; d->name and the MAC address are set. */
void qrnic_config_fill(QrnicDevice *d);

#endif
