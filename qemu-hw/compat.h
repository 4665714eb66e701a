/*
 * qrnic: what differs between QEMU 10.0 and later versions
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_COMPAT_H
#define QRNIC_COMPAT_H

/* Headers that later versions keep in hw/core */
#if __has_include("hw/core/qdev-properties.h")
#include "hw/core/qdev-properties.h"
#else
#include "hw/qdev-properties.h"
#endif
#if __has_include("hw/core/resettable.h")
#include "hw/core/resettable.h"
#else
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

#endif
