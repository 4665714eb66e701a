/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * compat.h: the one place for differences between kernel versions, from the
 * baseline 6.12 to the newest.
 */
#ifndef QRNIC_COMPAT_H
#define QRNIC_COMPAT_H

#include <linux/dma-mapping.h>
#include <linux/export.h>
#include <linux/hmm.h>
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/version.h>
#include <rdma/ib_umem_odp.h>

#include "qrnic_hw.h"

/* Since 6.13 a symbol namespace is a string, before it was a bare token. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define EXPORT_SYMBOL_QRNIC(symbol) EXPORT_SYMBOL_NS_GPL(symbol, "QRNIC")
#define QRNIC_IMPORT_NS() MODULE_IMPORT_NS("QRNIC")
#else
#define EXPORT_SYMBOL_QRNIC(symbol) EXPORT_SYMBOL_NS_GPL(symbol, QRNIC)
#define QRNIC_IMPORT_NS() MODULE_IMPORT_NS(QRNIC)
#endif

/*
 * Operations of an ib_device that came after 6.12, as lines of its table.
 * create_user_cq: since 7.1 create_cq makes kernel CQs only, and only those of
 * user space are resized. report_port_event:
 * since 6.14 the RDMA core tells of the port's state, unless the driver does.
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

/* Since 6.17 an MR may name a DMA handle, a thing that this device lacks. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define QRNIC_DMAH_PARAMETER struct ib_dmah *dmah,
#define QRNIC_DMAH dmah
#else
#define QRNIC_DMAH_PARAMETER
#define QRNIC_DMAH NULL
#endif

/*
 * Since 6.15 a counter is bound on a port, and the RDMA core makes it as the driver
 * wants it, as it does other objects; it calls counter_init without asking for it.
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

/* Since 6.18 the operations of a reporter say how long it waits between recoveries. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
#define QRNIC_HEALTH_REPORTER_CREATE(devlink, ops, priv) \
	devlink_health_reporter_create(devlink, ops, priv)
#else
#define QRNIC_HEALTH_REPORTER_CREATE(devlink, ops, priv) \
	devlink_health_reporter_create(devlink, ops, 0, priv)
#endif

/*
 * Since 6.16 the RDMA core keeps flags of its own with the pages of memory on demand,
 * and the driver maps each of them.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
#define QRNIC_ODP_READ 0
/* The RDMA core counts huge pages in two ways. */
#define QRNIC_ODP_IGNORED IB_ACCESS_HUGETLB
#define QRNIC_ODP_WRITE HMM_PFN_WRITE

static inline u64 qrnic_odp_entry(struct device *device, struct ib_umem_odp *umem,
				  u64 index)
{
	unsigned long pfn = umem->map.pfn_list[index];
	struct pci_p2pdma_map_state p2pdma = {};
	dma_addr_t address;

	if (!(pfn & HMM_PFN_VALID))
		return 0;
	address = hmm_dma_map_pfn(device, &umem->map, index, &p2pdma);
	if (dma_mapping_error(device, address))
		return 0;
	/* The RDMA core counts down when a page is unmapped, the driver counts up. */
	if (!(pfn & HMM_PFN_DMA_MAPPED))
		umem->npages++;
	return address | QRNIC_PAGE_PRESENT |
	       (pfn & HMM_PFN_WRITE ? QRNIC_PAGE_WRITABLE : 0);
}
#else
#define QRNIC_ODP_READ ODP_READ_ALLOWED_BIT
#define QRNIC_ODP_IGNORED 0
#define QRNIC_ODP_WRITE (ODP_READ_ALLOWED_BIT | ODP_WRITE_ALLOWED_BIT)

static_assert(ODP_READ_ALLOWED_BIT == QRNIC_PAGE_PRESENT &&
	      ODP_WRITE_ALLOWED_BIT == QRNIC_PAGE_WRITABLE);

static inline u64 qrnic_odp_entry(struct device *device, struct ib_umem_odp *umem,
				  u64 index)
{
	u64 pfn = index << (umem->page_shift - PAGE_SHIFT);
	dma_addr_t *entry = &umem->dma_list[index];

	/* The RDMA core forgets the right to write when a page is only read. */
	if (*entry && umem->umem.writable && umem->pfn_list[pfn] & HMM_PFN_WRITE)
		*entry |= ODP_WRITE_ALLOWED_BIT;
	return *entry;
}
#endif

/* Since 7.2 the name says that the memory is given by its address. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
#define ib_umem_get ib_umem_get_va
#endif

/* Since 6.13 DIM takes the address of a sample. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define QRNIC_NET_DIM(dim, sample) net_dim(dim, &(sample))
#else
#define QRNIC_NET_DIM(dim, sample) net_dim(dim, sample)
#endif

/* Since 6.13 what was set for a NAPI instance outlives it. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#define netif_napi_add_config(netdev, napi, poll, ...) \
	netif_napi_add(netdev, napi, poll)
#endif

/*
 * Since 6.17 there are operations for what goes into the hash of RSS, before it was
 * get_rxnfc and set_rxnfc.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define QRNIC_OP_GET_RXFH_FIELDS(function) .get_rxfh_fields = (function),
#define QRNIC_OP_SET_RXFH_FIELDS(function) .set_rxfh_fields = (function),
#else
struct ethtool_rxfh_fields {
	u32 data;
	u32 flow_type;
};

#define QRNIC_OP_GET_RXFH_FIELDS(...)
#define QRNIC_OP_SET_RXFH_FIELDS(...)
#endif

/* Since 7.0 there is one for the number of rings, which get_rxnfc told before. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define QRNIC_OP_GET_RX_RING_COUNT(function) .get_rx_ring_count = (function),
#else
#define QRNIC_OP_GET_RX_RING_COUNT(...)
#endif

#endif /* QRNIC_COMPAT_H */
