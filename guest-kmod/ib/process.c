// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * process.c: shared virtual addressing (manual, Shared virtual addressing):
 * processes whose page tables the device uses through the IOMMU.
 *
 * A context requests it when it is allocated (ucontext.c). The contexts of one
 * process share an entry of dev->processes, which keeps the binding of the
 * IOMMU and so the PASID. A context releases its entry after its keys and
 * doorbell pages, so that no key names the PASID any more. The process may end
 * earlier; from then on the IOMMU rejects all accesses.
 *
 * odp_fault.c calls qrnic_process_page_in() for page faults with a PASID. The
 * workers find the entry under the lock of the xarray, and take a reference to
 * the memory there. The entry is erased before it is freed.
 */
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>

#include "qrnic_ib.h"

/* Maximum number of pages that one page fault pages in */
#define MAX_FAULT_PAGES 64

/* Process whose virtual addresses the device can use */
struct qrnic_ib_process {
	struct mm_struct *mm;
	struct iommu_sva *sva;
	u32 pasid;
	/* Number of contexts; under dev->process_mutex */
	u32 contexts;
};

/* Enables shared virtual addressing if device, kernel and IOMMU support it. */
void qrnic_process_init(struct qrnic_ib_dev *dev)
{
	mutex_init(&dev->process_mutex);
	xa_init(&dev->processes);
	dev->shared_virtual = qrnic_on_demand(dev) &&
			      qrnic_ib_cap(dev, QRNIC_CAP_SHARED_VIRTUAL) &&
			      qrnic_ib_cap(dev, QRNIC_CAP_FAST_REG) &&
			      !qrnic_sva_enable(qrnic_dma_device(dev->qdev));
}

/* Disables shared virtual addressing. The caller has freed all contexts. */
void qrnic_process_cleanup(struct qrnic_ib_dev *dev)
{
	if (dev->shared_virtual)
		qrnic_sva_disable(qrnic_dma_device(dev->qdev));
	WARN_ON(!xa_empty(&dev->processes));
}

/* Creates the entry of the current process for a binding of the IOMMU. */
static struct qrnic_ib_process *qrnic_process_new(struct qrnic_ib_dev *dev,
						  struct iommu_sva *sva, u32 pasid)
{
	struct qrnic_ib_process *process;
	int err;

	if (!pasid || pasid > QRNIC_MAX_PASID)
		return ERR_PTR(-EOPNOTSUPP);
	process = kzalloc(sizeof(*process), GFP_KERNEL_ACCOUNT);
	if (!process)
		return ERR_PTR(-ENOMEM);
	process->sva = sva;
	process->pasid = pasid;
	process->mm = current->mm;
	mmgrab(process->mm);
	err = xa_insert(&dev->processes, pasid, process, GFP_KERNEL);
	if (err) {
		mmdrop(process->mm);
		kfree(process);
		return ERR_PTR(err);
	}
	return process;
}

/*
 * Returns the entry of the current process with a reference of a context, NULL
 * if shared virtual addressing is not available, or an ERR_PTR().
 */
struct qrnic_ib_process *qrnic_process_get(struct qrnic_ib_dev *dev)
{
	struct qrnic_ib_process *process;
	struct iommu_sva *sva;
	u32 pasid;

	if (!dev->shared_virtual)
		return NULL;
	mutex_lock(&dev->process_mutex);
	sva = iommu_sva_bind_device(qrnic_dma_device(dev->qdev), current->mm);
	if (IS_ERR(sva)) {
		mutex_unlock(&dev->process_mutex);
		/* With other errors the IOMMU does not support the device. */
		if (PTR_ERR(sva) == -ENOMEM || PTR_ERR(sva) == -ENOSPC)
			return ERR_CAST(sva);
		return NULL;
	}
	pasid = iommu_sva_get_pasid(sva);
	process = xa_load(&dev->processes, pasid);
	if (!process)
		process = qrnic_process_new(dev, sva, pasid);
	else
		/* The entry has a binding already, which counts its users. */
		iommu_sva_unbind_device(sva);
	if (IS_ERR(process))
		iommu_sva_unbind_device(sva);
	else
		process->contexts++;
	mutex_unlock(&dev->process_mutex);
	return process;
}

/*
 * Releases the reference of a context. Called after its keys and doorbell pages
 * are destroyed.
 */
void qrnic_process_put(struct qrnic_ib_dev *dev, struct qrnic_ib_process *process)
{
	if (!process)
		return;
	mutex_lock(&dev->process_mutex);
	if (!--process->contexts) {
		xa_erase(&dev->processes, process->pasid);
		iommu_sva_unbind_device(process->sva);
		mmdrop(process->mm);
		kfree(process);
	}
	mutex_unlock(&dev->process_mutex);
}

/*
 * Sets the PASID of a new doorbell page, so that its queue pairs can register
 * memory of the process. Returns 0 or a negative errno.
 */
int qrnic_process_db_page(struct qrnic_ib_dev *dev,
			  const struct qrnic_ib_process *process, u32 number)
{
	struct qrnic_pasid_ctx context = { .pasid = cpu_to_le32(process->pasid) };

	return qrnic_cmd_set(dev->qdev, QRNIC_CMD_SET_PASID, number, &context,
			     sizeof(context));
}

/*
 * Returns true if the current process may post to the queue pairs of a context.
 * With shared virtual addressing only the process that created the context may,
 * because a work request can name all of its memory. A child after fork() and a
 * process that imports the context have other memory.
 */
bool qrnic_process_may_post(const struct qrnic_ib_process *process)
{
	return !process || process->mm == current->mm;
}

/* Returns the memory of the process with a reference, or NULL. */
static struct mm_struct *qrnic_process_mm_get(struct qrnic_ib_dev *dev, u32 pasid)
{
	struct qrnic_ib_process *process;
	struct mm_struct *mm = NULL;

	xa_lock(&dev->processes);
	process = xa_load(&dev->processes, pasid);
	/* The memory of a process that has ended cannot be paged in. */
	if (process && mmget_not_zero(process->mm))
		mm = process->mm;
	xa_unlock(&dev->processes);
	return mm;
}

/*
 * Pages in the memory of a page fault with a PASID. Returns true if the access
 * may resume. Returns false if the process has no such memory or right. One
 * present page is sufficient, because the device reports the page fault of a
 * later page separately. A page that waits for user space, for example for
 * userfaultfd, delays the answer, as with memory regions on demand.
 */
bool qrnic_process_page_in(struct qrnic_ib_dev *dev,
			   const struct qrnic_page_fault *fault)
{
	bool write = le32_to_cpu(fault->flags) & QRNIC_PAGE_FAULT_WRITE;
	unsigned int flags = FAULT_FLAG_REMOTE | (write ? FAULT_FLAG_WRITE : 0);
	u64 address = le64_to_cpu(fault->address);
	u64 length = le64_to_cpu(fault->length);
	u32 pages = 0, count;
	struct mm_struct *mm;
	bool unlocked;

	/* The range is checked, because the device is not trusted. */
	if (!length || address + (length - 1) < address ||
	    address + (length - 1) > ULONG_MAX)
		return false;
	count = min_t(u64, ((address + length - 1) >> PAGE_SHIFT) -
			   (address >> PAGE_SHIFT) + 1, MAX_FAULT_PAGES);
	mm = qrnic_process_mm_get(dev, le32_to_cpu(fault->pasid));
	if (!mm)
		return false;

	address &= PAGE_MASK;
	mmap_read_lock(mm);
	for (; pages < count; pages++) {
		unlocked = false;
		if (fixup_user_fault(mm, address, flags, &unlocked))
			break;
		address += PAGE_SIZE;
		cond_resched();
	}
	mmap_read_unlock(mm);
	mmput(mm);
	return pages;
}
