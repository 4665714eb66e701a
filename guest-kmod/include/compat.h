/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * compat.h: hides differences between kernel versions, from the baseline 6.12
 * to the newest. Every file includes it through qrnic_core.h. Two kinds of
 * differences are elsewhere. First, ib/compat.h has those of paging on demand.
 * Second, ethernet/ethtool.c and ethernet/rss.c test macros of Kbuild for
 * changes that stable kernels received later.
 */
#ifndef QRNIC_COMPAT_H
#define QRNIC_COMPAT_H

#include <linux/export.h>
#include <linux/module.h>
#include <linux/version.h>

/* Since 6.13 a symbol namespace is a string; before, it was a bare token. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define EXPORT_SYMBOL_QRNIC(symbol) EXPORT_SYMBOL_NS_GPL(symbol, "QRNIC")
#define QRNIC_IMPORT_NS() MODULE_IMPORT_NS("QRNIC")
#else
#define EXPORT_SYMBOL_QRNIC(symbol) EXPORT_SYMBOL_NS_GPL(symbol, QRNIC)
#define QRNIC_IMPORT_NS() MODULE_IMPORT_NS(QRNIC)
#endif

/*
 * Operations of an ib_device that are newer than 6.12, as lines of its table.
 *
 * Since 7.1 create_cq creates only CQs of the kernel, create_user_cq those of
 * user space, and only the latter are resized. Since 6.14 the RDMA core reports
 * the state of the port, unless the driver has the operation report_port_event.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
#define QRNIC_OP_CREATE_USER_CQ(function) .create_user_cq = (function),
#define QRNIC_OP_RESIZE_CQ(function) .resize_user_cq = (function),
#define QRNIC_RESIZE_TYPE unsigned int
#else
#define QRNIC_OP_CREATE_USER_CQ(...)
#define QRNIC_OP_RESIZE_CQ(function) .resize_cq = (function),
#define QRNIC_RESIZE_TYPE int
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
#define QRNIC_OP_REPORT_PORT_EVENT(function) .report_port_event = (function),
#else
#define QRNIC_OP_REPORT_PORT_EVENT(...)
#endif

/*
 * Since 6.17 a memory region may name a DMA handle, which this device does not
 * support.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define QRNIC_DMAH_PARAMETER struct ib_dmah *dmah,
#define QRNIC_DMAH dmah
#else
#define QRNIC_DMAH_PARAMETER
#define QRNIC_DMAH NULL
#endif

/*
 * Since 6.15 a counter is bound to a port. The RDMA core allocates the counter
 * with the size that the driver requests, and calls counter_init without
 * checking that it exists.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
#define QRNIC_COUNTER_PORT(qp) qp, u32 port
#define QRNIC_OP_COUNTER_INIT(function) .counter_init = (function),
#define QRNIC_COUNTER_OBJ_SIZE(type, member) \
	INIT_RDMA_OBJ_SIZE(rdma_counter, type, member),
#else
#define QRNIC_COUNTER_PORT(qp) qp
#define QRNIC_OP_COUNTER_INIT(...)
#define QRNIC_COUNTER_OBJ_SIZE(...)
#endif

/*
 * Since 6.18 the operations of a reporter contain the interval between
 * recoveries.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
#define QRNIC_HEALTH_REPORTER_CREATE(devlink, ops, priv) \
	devlink_health_reporter_create(devlink, ops, priv)
#else
#define QRNIC_HEALTH_REPORTER_CREATE(devlink, ops, priv) \
	devlink_health_reporter_create(devlink, ops, 0, priv)
#endif

/*
 * Since 7.2 ib_umem_get() has the name ib_umem_get_va(), because it pins memory
 * by its virtual address.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
#define ib_umem_get ib_umem_get_va
#endif

/* Since 6.13 DIM receives a pointer to the sample. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define QRNIC_NET_DIM(dim, sample) net_dim(dim, &(sample))
#else
#define QRNIC_NET_DIM(dim, sample) net_dim(dim, sample)
#endif

/* Since 6.13 the settings of a NAPI instance outlive the instance. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#define netif_napi_add_config(netdev, napi, poll, ...) \
	netif_napi_add(netdev, napi, poll)
#endif

#endif /* QRNIC_COMPAT_H */
