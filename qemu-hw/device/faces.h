/*
 * qrnic: the outer layer of the device: the PCI Express function, registers,
 * wires, the environment of the engine, and properties
 *
 * QEMU or the engine calls these files. At realize, the types (pf.c, sriov/)
 * and pci.c call the functions below.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_FACES_H
#define QRNIC_DEVICE_FACES_H

#include "device/work.h"

/* Function of PCI Express (pci.c); called in this order at realize */

/**
 * qrnic_function_capabilities:
 * @d: the device; d->config.vectors is set
 * @errp: receives the error
 *
 * Creates the capabilities that each function has.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_function_capabilities(QrnicDevice *d, Error **errp);
/**
 * qrnic_function_bars:
 * @d: the device; d->config and d->name are complete
 * @errp: receives the error
 *
 * Creates the BARs and the events of doorbells.
 *
 * Returns: true, or false with *@errp set; the caller calls
 * qrnic_function_undo()
 */
bool qrnic_function_bars(QrnicDevice *d, Error **errp);
/**
 * qrnic_function_undo:
 * @d: the device, not plugged
 *
 * Destroys capabilities, BARs, capture and name of a device whose realize
 * fails.
 */
void qrnic_function_undo(QrnicDevice *d);
/**
 * qrnic_function_plug:
 * @d: the device
 *
 * Creates bottom half, engine and port, and begins the life of the device.
 */
void qrnic_function_plug(QrnicDevice *d);
/**
 * qrnic_function_start:
 * @d: the device; d->wire is set
 *
 * Connects the device to its wire and to the state of the VM.
 */
void qrnic_function_start(QrnicDevice *d);
/**
 * qrnic_function_exit:
 * @d: the device
 *
 * Unplugs the device, and destroys all parts except the engine and the port.
 */
void qrnic_function_exit(QrnicDevice *d);

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
 * @pf: the physical function
 *
 * Creates the net client and sets the wire of the device.
 */
void qrnic_net_init(QrnicPf *pf);

/**
 * qrnic_cable_plug:
 * @pf: the physical function
 * @errp: receives the error
 *
 * Attaches the device to pf->cable and sets its wire.
 *
 * Returns: true, or false with *@errp set if the cable is in use
 */
bool qrnic_cable_plug(QrnicPf *pf, Error **errp);

/**
 * qrnic_reports_add:
 * @klass: class of any function
 *
 * Adds the properties that report counters and queue pairs.
 */
void qrnic_reports_add(ObjectClass *klass);
/**
 * qrnic_properties_add:
 * @klass: class of the physical function
 *
 * Adds the properties that configure the device.
 */
void qrnic_properties_add(ObjectClass *klass);
/**
 * qrnic_properties_check:
 * @pf: the physical function
 * @errp: receives the error
 *
 * Completes and checks the properties, before any part of the device exists.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_properties_check(QrnicPf *pf, Error **errp);
/**
 * qrnic_config_fill:
 * @pf: the physical function
 *
 * Fills in the configuration of the device from the properties. Name and MAC
 * address are already set.
 */
void qrnic_config_fill(QrnicPf *pf);

#endif
