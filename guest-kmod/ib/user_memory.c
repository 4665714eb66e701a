// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * user_memory.c: pins memory of processes, rejects it if the kernel copies DMA,
 * and numbers the address spaces of processes.
 *
 * A process and the device use the same pages at the same time, without
 * dma_sync_*(). The kernel may use a bounce buffer between memory and device:
 * swiotlb=force, encrypted guests, or a DMA mask that does not cover all
 * memory. Then the device would read a copy that is as old as the registration,
 * and the process would wait for ever. So registrations and queues of processes
 * fail there. Users in the kernel map memory for each request, and rings of the
 * driver are coherent memory, which is never copied. Both work.
 *
 * The driver calls qrnic_user_memory_init() once, before the device is
 * registered. Every verb that pins memory calls the checks, and odp_map.c calls
 * qrnic_dma_*() for each page.
 *
 * The device compares numbers of address spaces. So it knows if the process
 * that polls a queue pair has a region at its addresses (manual, Completion).
 */
#include <linux/iommu.h>
#include <linux/sched/mm.h>
#include <rdma/ib_umem.h>

#include "memory.h"
#include "qrnic_ib.h"

/*
 * Returns true if the kernel may copy DMA, so that the caller must check each
 * address. An IOMMU maps whole pages in place, so the result is false then.
 * This check comes before that of an address. Otherwise, behind an IOMMU, one
 * copy of a part of a page (an Ethernet frame) would make dma_need_sync()
 * return true for all addresses.
 */
bool qrnic_dma_may_be_copied(struct qrnic_ib_dev *dev)
{
	struct iommu_domain *domain =
		iommu_get_domain_for_dev(qrnic_dma_device(dev->qdev));

	return !domain || !(domain->type & __IOMMU_DOMAIN_PAGING) ||
	       __ffs(domain->pgsize_bitmap) > PAGE_SHIFT;
}

/*
 * Returns true if the device accesses a copy of the page that is mapped at this
 * address. The caller has called qrnic_dma_may_be_copied() once for all pages.
 */
bool qrnic_dma_address_is_copied(struct qrnic_ib_dev *dev, dma_addr_t address)
{
	return dma_need_sync(qrnic_dma_device(dev->qdev), address);
}

int qrnic_copied_error(struct qrnic_ib_dev *dev)
{
	ibdev_err_ratelimited(&dev->ibdev,
			      "%s[%d]: memory of a process cannot be used, because the kernel copies all DMA to bounce buffers (swiotlb)\n",
			      current->comm, task_pid_nr(current));
	return -EOPNOTSUPP;
}

int qrnic_user_memory_check(struct qrnic_ib_dev *dev)
{
	return dev->dma_copied ? qrnic_copied_error(dev) : 0;
}

/*
 * Checks each mapping, because an address mask may cover only a part of memory.
 */
int qrnic_umem_check(struct qrnic_ib_dev *dev, const struct ib_umem *umem)
{
	const struct sg_table *table = &umem->sgt_append.sgt;
	struct scatterlist *sg;
	int i;

	if (!qrnic_dma_may_be_copied(dev))
		return 0;
	for_each_sg(table->sgl, sg, table->nents, i)
		if (qrnic_dma_address_is_copied(dev, sg_dma_address(sg)))
			return qrnic_copied_error(dev);
	return 0;
}

struct ib_umem *qrnic_umem_get(struct qrnic_ib_dev *dev, u64 address, u64 length,
			       int access)
{
	struct ib_umem *umem;
	int err;

	/*
	 * Checked before the memory is pinned, because much memory would
	 * exhaust the bounce buffers.
	 */
	err = qrnic_user_memory_check(dev);
	if (err)
		return ERR_PTR(err);
	umem = ib_umem_get(&dev->ibdev, address, length, access);
	if (IS_ERR(umem))
		return umem;
	err = qrnic_umem_check(dev, umem);
	if (err) {
		ib_umem_release(umem);
		return ERR_PTR(err);
	}
	return umem;
}

/*
 * Maps a page as a test. If the kernel copies this page, it copies every page.
 */
void qrnic_user_memory_init(struct qrnic_ib_dev *dev)
{
	struct device *device = qrnic_dma_device(dev->qdev);
	struct page *page = alloc_page(GFP_KERNEL);
	dma_addr_t address;

	if (!page)
		return;
	address = dma_map_page(device, page, 0, PAGE_SIZE, DMA_BIDIRECTIONAL);
	if (!dma_mapping_error(device, address)) {
		dev->dma_copied = qrnic_dma_may_be_copied(dev) &&
				  qrnic_dma_address_is_copied(dev, address);
		dma_unmap_page(device, address, PAGE_SIZE, DMA_BIDIRECTIONAL);
	}
	__free_page(page);
	if (dev->dma_copied)
		dev_warn(device,
			 "the kernel copies all DMA to bounce buffers: RDMA from user space is not possible\n");
}

/* Address space of one mm, while a region or a queue pair uses its number */
struct address_space_entry {
	struct hlist_node node;		/* entry of the hash table by mm */
	struct mm_struct *mm;
	u32 number;
	unsigned long users;
};

/*
 * Returns the number of the address space of the calling process;
 * qrnic_address_space_put() releases it. A process has a new address space
 * after exec, but objects that it created before keep the old number. Returns 0
 * or a negative errno.
 */
int qrnic_address_space_get(struct qrnic_ib_dev *dev, u32 *number)
{
	struct address_space_entry *entry;
	int err = 0;

	mutex_lock(&dev->address_space_mutex);
	hash_for_each_possible(dev->address_space_mms, entry, node,
			       (unsigned long)current->mm) {
		if (entry->mm == current->mm) {
			entry->users++;
			*number = entry->number;
			goto out;
		}
	}

	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry) {
		err = -ENOMEM;
		goto out;
	}
	entry->mm = current->mm;
	entry->users = 1;
	err = xa_alloc_cyclic(&dev->address_spaces, number, entry,
			      XA_LIMIT(1, U32_MAX), &dev->next_address_space,
			      GFP_KERNEL);
	if (err < 0) {
		kfree(entry);
		goto out;
	}
	/*
	 * A positive result is not an error; it means that the numbers have
	 * wrapped around.
	 */
	err = 0;
	entry->number = *number;
	hash_add(dev->address_space_mms, &entry->node, (unsigned long)entry->mm);
	/*
	 * The reference prevents that another mm_struct gets the same address.
	 */
	mmgrab(entry->mm);
out:
	mutex_unlock(&dev->address_space_mutex);
	return err;
}

/*
 * Releases the number of an address space. Number 0 is ignored, because it
 * means none.
 */
void qrnic_address_space_put(struct qrnic_ib_dev *dev, u32 number)
{
	struct address_space_entry *entry;

	if (!number)
		return;

	mutex_lock(&dev->address_space_mutex);
	entry = xa_load(&dev->address_spaces, number);
	if (!--entry->users) {
		xa_erase(&dev->address_spaces, number);
		hash_del(&entry->node);
		mmdrop(entry->mm);
		kfree(entry);
	}
	mutex_unlock(&dev->address_space_mutex);
}
