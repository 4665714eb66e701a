// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * odp_map.c: the pages of a region on demand (manual, Paging on demand): their
 * lists, their mapping, and its end when the kernel reclaims a page.
 *
 * The caller is odp_fault.c: qrnic_odp_page_in() pins the page lists, maps the
 * pages through the RDMA core, and writes their entries. An MMU notifier
 * removes entries, and waits until the device has no copy of them. A work item
 * frees page lists without entries. Order of locks: table.mutex, umem_mutex of
 * the part, key_mutex.
 */
#include <linux/memcontrol.h>
#include <linux/sched/signal.h>

#include "memory.h"
#include "odp_private.h"
#include "qrnic_ib.h"

#define ODP_ENTRY_FLAGS ((u64)(QRNIC_PAGE_PRESENT | QRNIC_PAGE_WRITABLE))

/* Returns the number in the table of the first page of the memory. */
static u64 qrnic_odp_first_page(const struct qrnic_ib_odp *odp,
				struct ib_umem_odp *umem)
{
	return odp->implicit ? ib_umem_start(umem) >> umem->page_shift : 0;
}

static u64 qrnic_odp_key_address(const struct qrnic_ib_odp *odp, u64 address)
{
	return odp->implicit ? address :
			       address - odp->umem->umem.address + odp->mr->start;
}

/*
 * Makes the device discard its copies of the entries and lists of these pages.
 */
static void qrnic_odp_device_invalidate(struct qrnic_ib_odp *odp, u64 from, u64 to)
{
	struct qrnic_page_range range = {
		.start = cpu_to_le64(qrnic_odp_key_address(odp, from)),
		.length = cpu_to_le64(to - from),
	};
	int err = 0;

	/*
	 * The lock is needed, because a destroyed key maps nothing, and its
	 * index may belong to another key.
	 */
	mutex_lock(&odp->key_mutex);
	if (!odp->dead)
		err = qrnic_cmd_set(odp->dev->qdev, QRNIC_CMD_INVALIDATE_PAGES,
				    odp->mr->index, &range, sizeof(range));
	mutex_unlock(&odp->key_mutex);
	/*
	 * In the fatal state the error is ignored, because the reset has
	 * discarded the copies.
	 */
	if (err && qrnic_healthy(odp->dev->qdev))
		qrnic_report_fatal(odp->dev->qdev, "pages cannot be invalidated");
}

/*
 * Removes the entries of pages, and then unmaps the pages. On return the device
 * has no copy of the entries, and does not access the pages. Called under
 * umem_mutex.
 */
static void qrnic_odp_remove_pages(struct qrnic_ib_odp *odp, struct ib_umem_odp *umem,
				   u64 start, u64 end)
{
	u64 first = qrnic_odp_first_page(odp, umem), page = start;
	bool any = false, emptied = false;

	lockdep_assert_held(&umem->umem_mutex);
	for (; page < end; page += BIT(umem->page_shift))
		any |= qrnic_sparse_set(&odp->table,
					first + ((page - ib_umem_start(umem)) >>
						 umem->page_shift), 0, &emptied);
	if (any)
		qrnic_odp_device_invalidate(odp, max_t(u64, start, umem->umem.address),
					    min_t(u64, end, umem->umem.address +
						  umem->umem.length));
	ib_umem_odp_unmap_dma_pages(umem, start, end);
	/*
	 * A work item frees the lists, because a notifier that frees pages must
	 * not wait for an allocation.
	 */
	if (emptied)
		queue_work(odp->dev->shrink_wq, &odp->shrink_work);
}

static bool qrnic_odp_invalidate(struct mmu_interval_notifier *notifier,
				 const struct mmu_notifier_range *range,
				 unsigned long sequence)
{
	struct ib_umem_odp *umem = container_of(notifier, struct ib_umem_odp,
						notifier);
	struct qrnic_ib_odp *odp = umem->private;
	u64 start, end;

	if (!mmu_notifier_range_blockable(range))
		return false;

	mutex_lock(&umem->umem_mutex);
	mmu_interval_set_seq(notifier, sequence);
	/*
	 * If npages is 0, no page has been mapped yet, or the region is not
	 * complete.
	 */
	if (umem->npages) {
		start = max_t(u64, range->start, ib_umem_start(umem));
		end = min_t(u64, range->end, ib_umem_end(umem));
		start = round_down(start, BIT(umem->page_shift));
		end = round_up(end, BIT(umem->page_shift));
		qrnic_odp_remove_pages(odp, umem, start, end);
		atomic64_inc(&odp->invalidations);
	}
	mutex_unlock(&umem->umem_mutex);
	return true;
}

const struct mmu_interval_notifier_ops qrnic_odp_notifier_ops = {
	.invalidate = qrnic_odp_invalidate,
};

/*
 * Frees the lists without entries, and their parts of an implicit region. A
 * part whose list is unlinked has no page, so its notifier does nothing any
 * more.
 */
void qrnic_odp_shrink_work(struct work_struct *work)
{
	struct qrnic_ib_odp *odp = container_of(work, struct qrnic_ib_odp, shrink_work);
	u64 start = qrnic_odp_user_address(odp, odp->mr->start);
	struct qrnic_sparse_list *list;
	LIST_HEAD(unlinked);

	mutex_lock(&odp->table.mutex);
	qrnic_sparse_unlink(&odp->table, &unlinked);
	if (odp->implicit)
		list_for_each_entry(list, &unlinked, link)
			if (!list->lower)
				list->owner = xa_erase(&odp->parts, list->first /
						       QRNIC_PAGE_LIST_ENTRIES);
	mutex_unlock(&odp->table.mutex);
	if (list_empty(&unlinked))
		return;

	/*
	 * The whole region is invalidated, because the device may have a copy
	 * of an upper list's address for any page below that list. This
	 * includes pages whose own lists were freed earlier or never existed.
	 */
	qrnic_odp_device_invalidate(odp, start, start + odp->length);
	list_for_each_entry(list, &unlinked, link) {
		if (!list->owner)
			continue;
		ib_umem_odp_release(list->owner);
		qrnic_sparse_uncharge(odp->budget, QRNIC_ODP_PART_WEIGHT);
	}
	qrnic_sparse_lists_free(odp->dev->qdev, &odp->table, &unlinked);
}

/*
 * Returns the part of an implicit region at this address, or an ERR_PTR(). The
 * caller has pinned its list. Called under table.mutex.
 */
static struct ib_umem_odp *qrnic_odp_part(struct qrnic_ib_odp *odp, u64 address)
{
	unsigned long index = address >> QRNIC_ODP_PART_SHIFT;
	struct ib_umem_odp *part;
	int err;

	lockdep_assert_held(&odp->table.mutex);
	part = xa_load(&odp->parts, index);
	if (part)
		return part;
	if (!qrnic_sparse_charge(odp->budget, QRNIC_ODP_PART_WEIGHT))
		return ERR_PTR(-ENOMEM);
	part = ib_umem_odp_alloc_child(odp->umem, index << QRNIC_ODP_PART_SHIFT,
				       QRNIC_ODP_PART_SIZE,
				       &qrnic_odp_notifier_ops);
	if (IS_ERR(part))
		goto err_charge;
	/* Set before a page is mapped, because a notifier reads it */
	part->private = odp;
	err = xa_err(xa_store(&odp->parts, index, part, GFP_KERNEL_ACCOUNT));
	if (!err)
		return part;
	ib_umem_odp_release(part);
	part = ERR_PTR(err);
err_charge:
	qrnic_sparse_uncharge(odp->budget, QRNIC_ODP_PART_WEIGHT);
	return part;
}

/*
 * Lists that qrnic_odp_map() pins. Two lists suffice, because a range of
 * qrnic_odp_map() is at most as long as the range of one list.
 */
struct odp_lists {
	struct qrnic_sparse_list *list[2];
	u32 count;
};

static void qrnic_odp_lists_put(struct qrnic_ib_odp *odp, struct odp_lists *lists)
{
	bool empty = false;

	mutex_lock(&odp->table.mutex);
	while (lists->count)
		empty |= qrnic_sparse_put(&odp->table, lists->list[--lists->count]);
	mutex_unlock(&odp->table.mutex);
	if (empty)
		queue_work(odp->dev->shrink_wq, &odp->shrink_work);
}

/*
 * Pins the lists of the pages from first to last, and finds the part of an
 * implicit region. The memory is charged to the cgroup of the region's mm,
 * because worker threads do not run in that cgroup. Returns the memory or an
 * ERR_PTR().
 */
static struct ib_umem_odp *qrnic_odp_lists_get(struct qrnic_ib_odp *odp, u64 address,
					       u64 first, u64 last,
					       struct odp_lists *lists)
{
	struct mem_cgroup *cgroup = get_mem_cgroup_from_mm(odp->umem->umem.owning_mm);
	struct mem_cgroup *former = set_active_memcg(cgroup);
	struct ib_umem_odp *umem = odp->umem;
	u64 page;

	lists->count = 0;
	mutex_lock(&odp->table.mutex);
	for (page = round_down(first, QRNIC_PAGE_LIST_ENTRIES); page <= last;
	     page += QRNIC_PAGE_LIST_ENTRIES) {
		lists->list[lists->count] = qrnic_sparse_get(odp->dev->qdev,
							     &odp->table, page);
		if (!lists->list[lists->count]) {
			umem = ERR_PTR(-ENOMEM);
			break;
		}
		lists->count++;
	}
	if (odp->implicit && !IS_ERR(umem))
		umem = qrnic_odp_part(odp, address);
	mutex_unlock(&odp->table.mutex);
	set_active_memcg(former);
	mem_cgroup_put(cgroup);
	if (IS_ERR(umem)) {
		qrnic_odp_lists_put(odp, lists);
		queue_work(odp->dev->shrink_wq, &odp->shrink_work);
	}
	return umem;
}

/*
 * Writes the entries of pages that are mapped now. Returns their number, or
 * -EOPNOTSUPP if the device would access copies. Called under umem_mutex.
 */
static int qrnic_odp_set_entries(struct qrnic_ib_odp *odp, struct ib_umem_odp *umem,
				 u64 index, int pages)
{
	u64 first = qrnic_odp_first_page(odp, umem), i, entry;
	bool check = qrnic_dma_may_be_copied(odp->dev);
	bool copied = false, emptied = false;
	int present = 0;

	lockdep_assert_held(&umem->umem_mutex);
	for (i = index; i < index + pages; i++) {
		entry = qrnic_odp_entry(qrnic_dma_device(odp->dev->qdev), umem, i);
		if (entry && check &&
		    qrnic_dma_address_is_copied(odp->dev, entry & ~ODP_ENTRY_FLAGS)) {
			copied = true;
			entry = 0;
		}
		qrnic_sparse_set(&odp->table, first + i, entry, &emptied);
		present += !!entry;
	}
	return copied ? qrnic_copied_error(odp->dev) : present;
}

/*
 * Pages in a range of one part, at an address of the process. Returns the
 * number of pages that are present now, or a negative errno.
 */
static int qrnic_odp_map(struct qrnic_ib_odp *odp, u64 address, u64 length, bool write,
			 bool fault)
{
	u64 start = odp->implicit ? 0 : ib_umem_start(odp->umem);
	unsigned int shift = odp->umem->page_shift;
	u64 index = (address - start) >> shift;
	u64 last = (address + length - 1 - start) >> shift;
	struct ib_umem_odp *umem;
	struct odp_lists lists;
	int pages, present;

	umem = qrnic_odp_lists_get(odp, address, index, last, &lists);
	/*
	 * Retries once, because lists without entries count in the budget until
	 * the work item has freed them.
	 */
	if (umem == ERR_PTR(-ENOMEM)) {
		flush_workqueue(odp->dev->shrink_wq);
		umem = qrnic_odp_lists_get(odp, address, index, last, &lists);
	}
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	pages = ib_umem_odp_map_dma_and_lock(umem, address, length,
					     write ? QRNIC_ODP_WRITE :
						     QRNIC_ODP_READ, fault);
	present = pages;
	if (pages >= 0) {
		present = qrnic_odp_set_entries(odp, umem,
						index - qrnic_odp_first_page(odp, umem),
						pages);
		mutex_unlock(&umem->umem_mutex);
	}
	qrnic_odp_lists_put(odp, &lists);
	return fault && present >= 0 && present < pages ? -EFAULT : present;
}

/*
 * Pages in a range, or the part of the range that is in the region. With fault,
 * absent pages are faulted in; otherwise only pages in memory are mapped.
 * Returns the number of pages that are present, or a negative errno. After an
 * error a part of the pages may be present.
 */
int qrnic_odp_page_in(struct qrnic_ib_odp *odp, u64 address, u64 length,
		      bool write, bool fault)
{
	u64 start = qrnic_odp_user_address(odp, address), end, next;
	int err, pages = 0;

	if (write && !odp->umem->umem.writable)
		return -EPERM;
	end = start + min(length, odp->mr->start + odp->length - address);
	for (; start < end; start = next) {
		if (READ_ONCE(odp->dead))
			return -ENOENT;
		/*
		 * A signal ends the loop, because a prefetch may be as long as
		 * the address space.
		 */
		if (fatal_signal_pending(current))
			return -EINTR;
		next = min(end, round_down(start, QRNIC_ODP_PART_SIZE) +
				QRNIC_ODP_PART_SIZE);
		err = qrnic_odp_map(odp, start, next - start, write, fault);
		if (err < 0)
			return err;
		pages += err;
		cond_resched();
	}
	return pages;
}
