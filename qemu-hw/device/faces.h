/*
 * qrnic: the outer layer of the device: registers, wires, the environment of
 * the engine, and properties
 *
 * QEMU or the engine calls these files. At realize, pci.c calls the functions
 * below.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_FACES_H
#define QRNIC_DEVICE_FACES_H

#include "device/work.h"

/**
 * qrnic_mmio_init:
 * @d: the device
 * @errp: receives the error
 *
 * Creates the BARs of registers, doorbells and device memory.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_mmio_init(QrnicDevice *d, Error **errp);

/**
 * qrnic_engine_plug:
 * @d: the device
 *
 * Creates the engine and its timer. d->config is complete.
 */
void qrnic_engine_plug(QrnicDevice *d);

/**
 * qrnic_net_init:
 * @d: the device
 *
 * Creates the net client and sets d->wire.
 */
void qrnic_net_init(QrnicDevice *d);

/**
 * qrnic_cable_plug:
 * @d: the device
 * @errp: receives the error
 *
 * Attaches the device to d->cable and sets d->wire.
 *
 * Returns: true, or false with *@errp set if the cable is in use
 */
bool qrnic_cable_plug(QrnicDevice *d, Error **errp);

/**
 * qrnic_properties_add:
 * @klass: class of the device
 *
 * Adds the properties to the class.
 */
void qrnic_properties_add(ObjectClass *klass);
/**
 * qrnic_properties_check:
 * @d: the device
 * @errp: receives the error
 *
 * Completes and checks the properties, before any part of the device exists.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_properties_check(QrnicDevice *d, Error **errp);
/**
 * qrnic_config_fill:
 * @d: the device
 *
 * Fills in d->config from the properties. d->name and the MAC address are
 * already set.
 */
void qrnic_config_fill(QrnicDevice *d);

#endif
