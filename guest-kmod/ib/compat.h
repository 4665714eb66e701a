/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * compat.h: differences between kernel versions in the RDMA core's memory on demand,
 * whose headers nobody else wants.
 */
#ifndef QRNIC_IB_COMPAT_H
#define QRNIC_IB_COMPAT_H

#include <linux/dma-mapping.h>
#include <linux/hmm.h>
#include <linux/pci-p2pdma.h>
#include <linux/version.h>
#include <rdma/ib_umem_odp.h>

#include "qrnic_hw.h"

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

#endif /* QRNIC_IB_COMPAT_H */
