/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * compat.h: the one place for differences between kernel versions, from the
 * baseline 6.12 to the newest.
 */
#ifndef QRNIC_COMPAT_H
#define QRNIC_COMPAT_H

#include <linux/export.h>
#include <linux/module.h>
#include <linux/version.h>

/* Since 6.13 a symbol namespace is a string, before it was a bare token. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define EXPORT_SYMBOL_QRNIC(symbol) EXPORT_SYMBOL_NS_GPL(symbol, "QRNIC")
#define QRNIC_IMPORT_NS() MODULE_IMPORT_NS("QRNIC")
#else
#define EXPORT_SYMBOL_QRNIC(symbol) EXPORT_SYMBOL_NS_GPL(symbol, QRNIC)
#define QRNIC_IMPORT_NS() MODULE_IMPORT_NS(QRNIC)
#endif

#endif /* QRNIC_COMPAT_H */
