/*
 * qrnic: differences between QEMU 10.0 and later versions
 *
 * device/ and cable/ use the names of this file, so that the same sources
 * compile with all supported versions.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_COMPAT_H
#define QRNIC_COMPAT_H

/* QEMU 11 moved these headers to hw/core. */
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

/* QEMU 10.1 added a second handler, which may report a failure. */
#if QEMU_VERSION_MAJOR > 10 || \
    (QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR >= 1)
#define qrnic_add_vm_change_state_handler(dev, handler, opaque) \
    qdev_add_vm_change_state_handler(dev, handler, NULL, opaque)
#else
#define qrnic_add_vm_change_state_handler(dev, handler, opaque) \
    qdev_add_vm_change_state_handler(dev, handler, opaque)
#endif

#endif
