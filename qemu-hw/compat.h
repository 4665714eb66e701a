/*
 * qrnic: what differs between QEMU 10.0 and later versions
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_COMPAT_H
#define QRNIC_COMPAT_H

/* QEMU 11 moved these to hw/core. */
#if QEMU_VERSION_MAJOR >= 11
#include "hw/core/qdev-properties.h"
#include "hw/core/resettable.h"
#else
#include "hw/qdev-properties.h"
#include "hw/resettable.h"
#endif

/* Class data and lists of interfaces became const in QEMU 10.1. */
#if QEMU_VERSION_MAJOR > 10 || \
    (QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR >= 1)
typedef const void QrnicClassData;
typedef const InterfaceInfo QrnicInterfaceInfo;
#else
typedef void QrnicClassData;
typedef InterfaceInfo QrnicInterfaceInfo;
#endif

/* Since QEMU 10.1 another handler may say that it failed. */
#if QEMU_VERSION_MAJOR > 10 || \
    (QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR >= 1)
#define qrnic_add_vm_change_state_handler(dev, handler, opaque) \
    qdev_add_vm_change_state_handler(dev, handler, NULL, opaque)
#else
#define qrnic_add_vm_change_state_handler(dev, handler, opaque) \
    qdev_add_vm_change_state_handler(dev, handler, opaque)
#endif

#endif
