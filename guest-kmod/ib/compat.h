/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * compat.h: differences between kernel versions that only ib/ meets: paging on
 * demand, requests and responses of drivers, and shared virtual addressing.
 * Other differences are in include/compat.h.
 */
#ifndef QRNIC_IB_COMPAT_H
#define QRNIC_IB_COMPAT_H

#include <linux/dma-mapping.h>
#include <linux/hmm.h>
#include <linux/iommu.h>
#include <linux/pci-p2pdma.h>
#include <linux/version.h>
#include <rdma/ib_umem_odp.h>
#include <rdma/ib_verbs.h>

#include "qrnic_hw.h"

/*
 * Since 7.1 the RDMA core has helpers for the requests and responses of
 * drivers, and reports to libraries that a driver always uses them. These
 * functions do the same in older kernels.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
#define QRNIC_ROBUST_UDATA .uverbs_robust_udata = 1,
#else
#define QRNIC_ROBUST_UDATA

/*
 * Copies a request from user space. An older library sends less than size, but
 * at least the bytes of the first version. A newer library sends additional
 * bytes, which must be zero, because this kernel does not know their meaning.
 */
static inline int qrnic_udata_copy_in(struct ib_udata *udata, void *request,
				      size_t size, size_t least)
{
	size_t known = min(size, udata->inlen);

	if (udata->inlen < least)
		return -EINVAL;
	if (udata->inlen > known &&
	    !ib_is_udata_cleared(udata, known, udata->inlen - known))
		return -EOPNOTSUPP;
	if (!size)
		return 0;
	memset(request, 0, size);
	return ib_copy_from_udata(request, udata, known);
}

/*
 * Copies a response to user space. An older library receives the beginning. A
 * newer library receives zeros after the end.
 */
static inline int qrnic_udata_copy_out(struct ib_udata *udata, void *response,
				       size_t size)
{
	size_t known = min(size, udata->outlen);

	if (udata->outlen > known &&
	    clear_user(udata->outbuf + known, udata->outlen - known))
		return -EFAULT;
	return ib_copy_to_udata(udata, response, known);
}

#define ib_copy_validate_udata_in(udata, request, least) \
	({ \
		__auto_type _request = &(request); \
		\
		qrnic_udata_copy_in(udata, _request, sizeof(*_request), \
				    offsetofend(typeof(*_request), least)); \
	})
#define ib_copy_validate_udata_in_cm(udata, request, least, known) \
	({ \
		__auto_type __request = &(request); \
		int __err = ib_copy_validate_udata_in(udata, *__request, least); \
		\
		if (!__err && __request->comp_mask & ~(u64)(known)) \
			__err = -EOPNOTSUPP; \
		__err; \
	})
#define ib_respond_udata(udata, response) \
	({ \
		__auto_type _response = &(response); \
		\
		qrnic_udata_copy_out(udata, _response, sizeof(*_response)); \
	})

static inline int ib_is_udata_in_empty(struct ib_udata *udata)
{
	return udata ? qrnic_udata_copy_in(udata, NULL, 0, 0) : 0;
}
#endif

/* Sends a response of zeros. The RDMA core of 7.1 has no helper for this. */
static inline int qrnic_udata_no_response(struct ib_udata *udata)
{
	if (udata && udata->outlen && clear_user(udata->outbuf, udata->outlen))
		return -EFAULT;
	return 0;
}

/*
 * Since 6.16 the RDMA core keeps flags of its own with the pages of a region on
 * demand, and the driver maps each page. Before, the RDMA core mapped them.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
#define QRNIC_ODP_READ 0
/*
 * Ignored, because with this flag the RDMA core counts huge pages
 * inconsistently.
 */
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
	/*
	 * The driver counts mapped pages here, because the RDMA core decrements
	 * the count when it unmaps a page.
	 */
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

	/*
	 * The right is restored, because the RDMA core clears it when a page is
	 * mapped for reading only.
	 */
	if (*entry && umem->umem.writable && umem->pfn_list[pfn] & HMM_PFN_WRITE)
		*entry |= ODP_WRITE_ALLOWED_BIT;
	return *entry;
}
#endif

/*
 * Since 6.16 iommu_sva_bind_device() enables shared virtual addressing. Before,
 * the driver enables it. The newer function fails with ENOSPC if the IOMMU has
 * no PASIDs, so that the driver checks this itself.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
static inline int qrnic_sva_enable(struct device *device)
{
#ifdef CONFIG_IOMMU_SVA
	if (device->iommu && device->iommu->max_pasids)
		return 0;
#endif
	return -ENODEV;
}

static inline void qrnic_sva_disable(struct device *device)
{
}
#else
static inline int qrnic_sva_enable(struct device *device)
{
	return iommu_dev_enable_feature(device, IOMMU_DEV_FEAT_SVA);
}

static inline void qrnic_sva_disable(struct device *device)
{
	iommu_dev_disable_feature(device, IOMMU_DEV_FEAT_SVA);
}
#endif

#endif /* QRNIC_IB_COMPAT_H */
