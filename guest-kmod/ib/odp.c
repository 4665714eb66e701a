// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * odp.c: memory regions whose pages are brought when the device wants them, and
 * given up when the kernel does (manual, Paging on demand).
 */
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <rdma/uverbs_std_types.h>

#include "qrnic_ib.h"

/*
 * Bytes that are mapped at once: as much as one page list describes. A region of the
 * whole address space has a part for each of them in which a page is mapped.
 */
#define PART_SHIFT (PAGE_SHIFT + 9)
#define PART_SIZE BIT(PART_SHIFT)
/*
 * Weight, in page lists, of the RDMA core's arrays for a part: a page frame number and
 * a DMA address for each page. No memory cgroup is charged for these arrays.
 */
#define PART_WEIGHT DIV_ROUND_UP(512 * (sizeof(unsigned long) + sizeof(dma_addr_t)), \
				 BIT(QRNIC_PAGE_LIST_SHIFT))
/* Prefetches that wait at a time; the next ones are done by who asks for them. */
#define MAX_PREFETCHES 64

#define ODP_ENTRY_FLAGS ((u64)(QRNIC_PAGE_PRESENT | QRNIC_PAGE_WRITABLE))

struct qrnic_ib_odp {
	struct qrnic_ib_object object;	/* in dev->odps, by the index of the key */
	struct qrnic_ib_dev *dev;
	struct qrnic_ib_mr *mr;
	struct ib_umem_odp *umem;
	struct qrnic_sparse_table table;
	struct qrnic_sparse_budget *budget;	/* of the user */
	u64 length;
	bool implicit;
	int weight;			/* of an explicit region's arrays, in lists */
	struct xarray parts;		/* of an implicit region, by address; under
					 * table.mutex, as the lists are
					 */
	struct work_struct shrink_work;

	struct mutex key_mutex;		/* dead, and the key while it is not */
	bool dead;			/* and nobody begins to bring pages */

	atomic64_t faults;
	atomic64_t invalidations;
	atomic64_t prefetches;
};

/*
 * The limit of all contexts of a user. A limit of each context would not limit a process,
 * which may open as many contexts as it may open files.
 */
struct qrnic_ib_odp_budget {
	struct list_head entry;		/* in dev->odp_budgets */
	struct qrnic_sparse_budget lists;
	kuid_t user;
	u32 contexts;
};

struct odp_range {
	struct qrnic_ib_odp *odp;
	u64 address;			/* as the user of the key says it */
	u64 length;
};

struct odp_prefetch {
	struct work_struct work;
	struct qrnic_ib_dev *dev;
	bool write;
	bool fault;			/* else only what is in memory */
	u32 count;
	struct odp_range ranges[] __counted_by(count);
};

static struct qrnic_ib_odp *qrnic_odp_get(struct qrnic_ib_dev *dev, u32 index)
{
	struct qrnic_ib_object *object = qrnic_object_get(&dev->odps, index);

	return object ? container_of(object, struct qrnic_ib_odp, object) : NULL;
}

static void qrnic_odp_put(struct qrnic_ib_odp *odp)
{
	qrnic_object_put(&odp->object);
}

/* The number that the first page of the memory has in the table */
static u64 qrnic_odp_first_page(const struct qrnic_ib_odp *odp,
				struct ib_umem_odp *umem)
{
	return odp->implicit ? ib_umem_start(umem) >> umem->page_shift : 0;
}

/* The address of the process for one of the users of the key, and back */
static u64 qrnic_odp_user_address(const struct qrnic_ib_odp *odp, u64 address)
{
	return odp->implicit ? address :
			       address - odp->mr->start + odp->umem->umem.address;
}

static u64 qrnic_odp_key_address(const struct qrnic_ib_odp *odp, u64 address)
{
	return odp->implicit ? address :
			       address - odp->umem->umem.address + odp->mr->start;
}

/* Makes the device read the entries and the lists of these pages anew. */
static void qrnic_odp_device_forget(struct qrnic_ib_odp *odp, u64 from, u64 to)
{
	struct qrnic_page_range range = {
		.start = cpu_to_le64(qrnic_odp_key_address(odp, from)),
		.length = cpu_to_le64(to - from),
	};
	int err = 0;

	/* A key that is destroyed leads nowhere, and its index may be another's. */
	mutex_lock(&odp->key_mutex);
	if (!odp->dead)
		err = qrnic_cmd_set(odp->dev->qdev, QRNIC_CMD_INVALIDATE_PAGES,
				    odp->mr->index, &range, sizeof(range));
	mutex_unlock(&odp->key_mutex);
	/* In the fatal state the reset has done it. */
	if (err && qrnic_healthy(odp->dev->qdev))
		qrnic_report_fatal(odp->dev->qdev, "pages cannot be taken away");
}

/*
 * Removes the entries of pages before their mapping ends. On return the device has no
 * copy of the entries, and does not access the pages.
 */
static void qrnic_odp_take_away(struct qrnic_ib_odp *odp, struct ib_umem_odp *umem,
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
		qrnic_odp_device_forget(odp, max_t(u64, start, umem->umem.address),
					min_t(u64, end, umem->umem.address +
						  umem->umem.length));
	ib_umem_odp_unmap_dma_pages(umem, start, end);
	/*
	 * Done by a work item, because a notifier that frees pages must not wait for an
	 * allocation.
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
	/* Nothing was ever mapped, or the region is not complete yet. */
	if (umem->npages) {
		start = max_t(u64, range->start, ib_umem_start(umem));
		end = min_t(u64, range->end, ib_umem_end(umem));
		start = round_down(start, BIT(umem->page_shift));
		end = round_up(end, BIT(umem->page_shift));
		qrnic_odp_take_away(odp, umem, start, end);
		atomic64_inc(&odp->invalidations);
	}
	mutex_unlock(&umem->umem_mutex);
	return true;
}

static const struct mmu_interval_notifier_ops qrnic_odp_notifier_ops = {
	.invalidate = qrnic_odp_invalidate,
};

/*
 * Frees the lists without entries, and the parts of an implicit region that they are
 * of. A part that is unlinked has no page, so its notifier does nothing any more.
 */
static void qrnic_odp_shrink_work(struct work_struct *work)
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
				list->owner = xa_erase(&odp->parts, list->first >> 9);
	mutex_unlock(&odp->table.mutex);
	if (list_empty(&unlinked))
		return;

	/*
	 * The whole region: the device may hold the address of an upper list for any page
	 * below that list, also for pages whose own lists went earlier or never existed.
	 */
	qrnic_odp_device_forget(odp, start, start + odp->length);
	list_for_each_entry(list, &unlinked, link) {
		if (!list->owner)
			continue;
		ib_umem_odp_release(list->owner);
		qrnic_sparse_uncharge(odp->budget, PART_WEIGHT);
	}
	qrnic_sparse_lists_free(odp->dev->qdev, &odp->table, &unlinked);
}

/* Returns the part of an implicit region at this address. The caller keeps its list. */
static struct ib_umem_odp *qrnic_odp_part(struct qrnic_ib_odp *odp, u64 address)
{
	unsigned long index = address >> PART_SHIFT;
	struct ib_umem_odp *part;
	int err;

	lockdep_assert_held(&odp->table.mutex);
	part = xa_load(&odp->parts, index);
	if (part)
		return part;
	if (!qrnic_sparse_charge(odp->budget, PART_WEIGHT))
		return ERR_PTR(-ENOMEM);
	part = ib_umem_odp_alloc_child(odp->umem, index << PART_SHIFT, PART_SIZE,
				       &qrnic_odp_notifier_ops);
	if (IS_ERR(part))
		goto err_charge;
	/* Before a page is mapped, so before a notifier looks at it */
	part->private = odp;
	err = xa_err(xa_store(&odp->parts, index, part, GFP_KERNEL_ACCOUNT));
	if (!err)
		return part;
	ib_umem_odp_release(part);
	part = ERR_PTR(err);
err_charge:
	qrnic_sparse_uncharge(odp->budget, PART_WEIGHT);
	return part;
}

/* Lists that qrnic_odp_map() keeps: it maps at most as much as one list describes. */
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
 * Makes and keeps the lists for pages from first to last, and the part of an implicit
 * region. The memory is charged to the cgroup of the process, also in a worker.
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
	for (page = round_down(first, 512); page <= last; page += 512) {
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

/* Writes the entries of pages that are mapped now. Returns how many there are. */
static int qrnic_odp_enter(struct qrnic_ib_odp *odp, struct ib_umem_odp *umem,
			   u64 index, int pages)
{
	u64 first = qrnic_odp_first_page(odp, umem), i, entry;
	bool copied = false, emptied = false;
	int present = 0;

	lockdep_assert_held(&umem->umem_mutex);
	for (i = index; i < index + pages; i++) {
		entry = qrnic_odp_entry(qrnic_dma_device(odp->dev->qdev), umem, i);
		if (entry && qrnic_dma_is_copied(odp->dev, entry & ~ODP_ENTRY_FLAGS)) {
			copied = true;
			entry = 0;
		}
		qrnic_sparse_set(&odp->table, first + i, entry, &emptied);
		present += !!entry;
	}
	return copied ? qrnic_copied_error(odp->dev) : present;
}

/*
 * Pages in a range of one part, at an address of the process. Returns the number of
 * pages that are present now, or an error.
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
	/* Lists without pages count until they are freed. */
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
		present = qrnic_odp_enter(odp, umem,
					  index - qrnic_odp_first_page(odp, umem),
					  pages);
		mutex_unlock(&umem->umem_mutex);
	}
	qrnic_odp_lists_put(odp, &lists);
	return fault && present >= 0 && present < pages ? -EFAULT : present;
}

/*
 * Brings the pages of a range, or of what the region has of it. How many, or an error;
 * then some of them may be there.
 */
static int qrnic_odp_bring(struct qrnic_ib_odp *odp, u64 address, u64 length,
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
		/* A prefetch can be as long as the address space. */
		if (fatal_signal_pending(current))
			return -EINTR;
		next = min(end, round_down(start, PART_SIZE) + PART_SIZE);
		err = qrnic_odp_map(odp, start, next - start, write, fault);
		if (err < 0)
			return err;
		pages += err;
		cond_resched();
	}
	return pages;
}

/*
 * Page faults
 */

static bool qrnic_odp_in_region(const struct qrnic_ib_odp *odp, u64 address)
{
	return address >= odp->mr->start &&
	       address - odp->mr->start < odp->length;
}

/* Whether the queue pair may go on. A key that is gone is refused for that. */
static bool qrnic_odp_resolve(struct qrnic_ib_dev *dev,
			      const struct qrnic_page_fault *fault)
{
	bool write = le32_to_cpu(fault->flags) & QRNIC_PAGE_FAULT_WRITE;
	u64 address = le64_to_cpu(fault->address);
	u64 length = le64_to_cpu(fault->length);
	struct qrnic_ib_odp *odp = qrnic_odp_get(dev, le32_to_cpu(fault->key));
	int pages = -EFAULT;

	if (!odp)
		return false;
	/* The device need not be trusted. */
	if (length && qrnic_odp_in_region(odp, address))
		pages = qrnic_odp_bring(odp, address, length, write, true);
	if (pages > 0)
		atomic64_inc(&odp->faults);
	qrnic_odp_put(odp);
	/* Memory that changes all the time: the device asks again. */
	return pages > 0 || pages == -EBUSY;
}

static void qrnic_odp_fault_answer(struct qrnic_ib_dev *dev, u32 number)
{
	struct qrnic_fault_answer answer = {};
	struct qrnic_page_fault fault;
	enum qrnic_cmd_opcode opcode;

	/* It does not wait any more: it is in ERR, or gone. */
	if (qrnic_cmd_query(dev->qdev, QRNIC_CMD_QUERY_PAGE_FAULT, number, &fault,
			    sizeof(fault)))
		return;
	opcode = qrnic_odp_resolve(dev, &fault) ? QRNIC_CMD_RESUME_PAGE_FAULT :
					    QRNIC_CMD_REFUSE_PAGE_FAULT;
	answer.sequence = fault.sequence;
	/* The same may have happened meanwhile, or it waits for something later. */
	qrnic_cmd_set(dev->qdev, opcode, number, &answer, sizeof(answer));
}

static void qrnic_odp_fault_work(struct work_struct *work)
{
	struct qrnic_ib_fault *fault = container_of(work, struct qrnic_ib_fault, work);
	struct qrnic_ib_qp *qp = fault->qp;

	qrnic_odp_fault_answer(to_qrnic_dev(qp->ibqp.device),
			       qp->ibqp.qp_num << 1 | fault->side);
	qrnic_qp_put(qp);
}

void qrnic_odp_qp_init(struct qrnic_ib_qp *qp)
{
	u32 side;

	for (side = 0; side < ARRAY_SIZE(qp->faults); side++) {
		INIT_WORK(&qp->faults[side].work, qrnic_odp_fault_work);
		qp->faults[side].qp = qp;
		qp->faults[side].side = side;
	}
}

/*
 * A responder of a dynamic target is no QP here, so it has no work item of its own.
 * Its page fault is owed until somebody takes it to answer it; workers take what is
 * owed, and there is a limit to how many of them there are. One more is part of the
 * device, so that nothing waits for memory or for a worker that is never made.
 */
#define MAX_RESPONDER_WORKERS 4096

struct odp_responder_worker {
	struct work_struct work;
	struct qrnic_ib_dev *dev;
};

static void qrnic_odp_responders_answer(struct qrnic_ib_dev *dev)
{
	unsigned long number;
	void *owed;

	while (!xa_empty(&dev->responder_faults))
		xa_for_each(&dev->responder_faults, number, owed) {
			/* Else another worker has taken it. */
			if (!xa_erase(&dev->responder_faults, number))
				continue;
			atomic_dec(&dev->num_responder_faults);
			qrnic_odp_fault_answer(dev, number);
		}
}

static void qrnic_odp_responder_work(struct work_struct *work)
{
	struct odp_responder_worker *worker =
		container_of(work, struct odp_responder_worker, work);

	qrnic_odp_responders_answer(worker->dev);
	atomic_dec(&worker->dev->responder_workers);
	kfree(worker);
}

static void qrnic_odp_last_responder_work(struct work_struct *work)
{
	qrnic_odp_responders_answer(container_of(work, struct qrnic_ib_dev,
						 responder_work));
}

static struct odp_responder_worker *
qrnic_odp_responder_worker_new(struct qrnic_ib_dev *dev)
{
	struct odp_responder_worker *worker = NULL;

	if (atomic_add_unless(&dev->responder_workers, 1, MAX_RESPONDER_WORKERS)) {
		worker = kzalloc(sizeof(*worker), GFP_NOIO | __GFP_NOWARN);
		if (!worker)
			atomic_dec(&dev->responder_workers);
	}
	return worker;
}

/*
 * Makes the device report a page fault again, because no memory is left to record it.
 * The event handler must not wait for memory, because a process may free some when it
 * gets a later event. The device checks a page before it uses the page, so the handler
 * may report that the page is present.
 */
static void qrnic_odp_fault_repeat(struct qrnic_ib_dev *dev, u32 number)
{
	struct qrnic_fault_answer answer = {};
	struct qrnic_page_fault fault;

	if (qrnic_cmd_query(dev->qdev, QRNIC_CMD_QUERY_PAGE_FAULT, number, &fault,
			    sizeof(fault)))
		return;
	answer.sequence = fault.sequence;
	qrnic_cmd_set(dev->qdev, QRNIC_CMD_RESUME_PAGE_FAULT, number, &answer,
		      sizeof(answer));
}

static void qrnic_odp_responder_event(struct qrnic_ib_dev *dev, u32 number)
{
	/* A device that can be trusted has no more; workers may be about to count. */
	u64 limit = 2 * (u64)dev->qdev->caps.max_qp + MAX_RESPONDER_WORKERS + 1;
	struct odp_responder_worker *worker;
	int err;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_DYNAMIC))
		return;
	if (atomic_inc_return(&dev->num_responder_faults) > limit) {
		atomic_dec(&dev->num_responder_faults);
		return;
	}
	err = xa_insert(&dev->responder_faults, number, xa_mk_value(0),
			GFP_NOIO | __GFP_NOWARN);
	if (err) {
		atomic_dec(&dev->num_responder_faults);
		/* -EBUSY: the worker that handles it will query the latest address. */
		if (err == -ENOMEM)
			qrnic_odp_fault_repeat(dev, number);
		return;
	}

	worker = qrnic_odp_responder_worker_new(dev);
	if (!worker) {
		queue_work(dev->odp_wq, &dev->responder_work);
		return;
	}
	worker->dev = dev;
	INIT_WORK(&worker->work, qrnic_odp_responder_work);
	queue_work(dev->odp_wq, &worker->work);
}

/*
 * Each side of a QP has a work item: a page can be long in coming, and a device that
 * tells the same again and again makes no more of them.
 */
void qrnic_odp_event(struct qrnic_ib_dev *dev, u32 number)
{
	struct qrnic_ib_qp *qp = qrnic_qp_get(dev, number >> 1);

	/* One that is being destroyed waits for nothing. */
	if (!qp) {
		qrnic_odp_responder_event(dev, number);
		return;
	}
	if (!queue_work(dev->odp_wq, &qp->faults[number & 1].work))
		qrnic_qp_put(qp);
}

/*
 * Prefetch
 */

static void qrnic_odp_prefetch_free(struct odp_prefetch *prefetch)
{
	u32 i;

	for (i = 0; i < prefetch->count; i++)
		qrnic_odp_put(prefetch->ranges[i].odp);
	kvfree(prefetch);
}

static int qrnic_odp_prefetch_run(struct odp_prefetch *prefetch)
{
	struct odp_range *range;
	int pages;
	u32 i;

	for (i = 0; i < prefetch->count; i++) {
		range = &prefetch->ranges[i];
		if (!range->length)
			continue;
		pages = qrnic_odp_bring(range->odp, range->address, range->length,
					prefetch->write, prefetch->fault);
		if (pages < 0)
			return pages;
		atomic64_add(pages, &range->odp->prefetches);
	}
	return 0;
}

static void qrnic_odp_prefetch_work(struct work_struct *work)
{
	struct odp_prefetch *prefetch = container_of(work, struct odp_prefetch, work);

	qrnic_odp_prefetch_run(prefetch);
	atomic_dec(&prefetch->dev->prefetches);
	qrnic_odp_prefetch_free(prefetch);
}

static int qrnic_odp_prefetch_add(struct qrnic_ib_dev *dev, struct ib_pd *ibpd,
				  struct odp_prefetch *prefetch,
				  const struct ib_sge *sge)
{
	struct odp_range *range = &prefetch->ranges[prefetch->count];
	struct qrnic_ib_odp *odp = qrnic_odp_get(dev, sge->lkey >> 8);
	int err = 0;

	if (!odp)
		return -ENOENT;
	if (odp->mr->ibmr.lkey != sge->lkey)
		err = -ENOENT;
	else if (odp->mr->ibmr.pd != ibpd ||
		 (prefetch->write && !odp->umem->umem.writable))
		err = -EPERM;
	else if (sge->length &&
		 (!qrnic_odp_in_region(odp, sge->addr) ||
		  sge->length > odp->length - (sge->addr - odp->mr->start)))
		err = -EFAULT;
	if (err) {
		qrnic_odp_put(odp);
		return err;
	}
	prefetch->count++;
	*range = (struct odp_range) {
		.odp = odp,
		.address = sge->addr,
		.length = sge->length,
	};
	return 0;
}

int qrnic_ib_advise_mr(struct ib_pd *ibpd, enum ib_uverbs_advise_mr_advice advice,
		       u32 flags, struct ib_sge *sges, u32 count,
		       struct uverbs_attr_bundle *attrs)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct odp_prefetch *prefetch;
	int err = 0;
	u32 i;

	if (advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH &&
	    advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
	    advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return -EOPNOTSUPP;
	if (!qrnic_on_demand(dev))
		return -EOPNOTSUPP;

	prefetch = kvzalloc(struct_size(prefetch, ranges, count), GFP_KERNEL);
	if (!prefetch)
		return -ENOMEM;
	prefetch->dev = dev;
	prefetch->write = advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	prefetch->fault = advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
	for (i = 0; !err && i < count; i++)
		err = qrnic_odp_prefetch_add(dev, ibpd, prefetch, &sges[i]);

	if (!err && !(flags & IB_UVERBS_ADVISE_MR_FLAG_FLUSH) &&
	    atomic_add_unless(&dev->prefetches, 1, MAX_PREFETCHES)) {
		INIT_WORK(&prefetch->work, qrnic_odp_prefetch_work);
		queue_work(dev->prefetch_wq, &prefetch->work);
		return 0;
	}
	if (!err)
		err = qrnic_odp_prefetch_run(prefetch);
	qrnic_odp_prefetch_free(prefetch);
	return err;
}

/*
 * Regions
 */

static struct ib_umem_odp *qrnic_odp_umem_get(struct qrnic_ib_odp *odp, u64 start,
					      u64 length, int access)
{
	struct ib_device *ibdev = &odp->dev->ibdev;
	struct ib_umem_odp *umem;

	if (odp->implicit)
		umem = ib_umem_odp_alloc_implicit(ibdev, access);
	else
		umem = ib_umem_odp_get(ibdev, start, length,
				       access & ~QRNIC_ODP_IGNORED,
				       &qrnic_odp_notifier_ops);
	if (IS_ERR(umem))
		return umem;
	umem->private = odp;
	/* An implicit umem has no notifier, which would hold the mm for its parts. */
	mmgrab(umem->umem.owning_mm);
	return umem;
}

static void qrnic_odp_umem_put(struct ib_umem_odp *umem)
{
	struct mm_struct *mm = umem->umem.owning_mm;

	ib_umem_odp_release(umem);
	mmdrop(mm);
}

static int qrnic_odp_table_alloc(struct qrnic_ib_odp *odp)
{
	struct ib_umem_odp *umem = odp->umem;
	u64 offset;

	if (odp->implicit)
		return qrnic_sparse_alloc(odp->dev->qdev, &odp->table, odp->budget,
					  odp->length >> PAGE_SHIFT, PAGE_SHIFT, 0);
	offset = umem->umem.address - ib_umem_start(umem);
	return qrnic_sparse_alloc(odp->dev->qdev, &odp->table, odp->budget,
				  ib_umem_odp_num_pages(umem), umem->page_shift,
				  offset);
}

/* Nobody knows the key any more. */
static void qrnic_odp_free(struct qrnic_ib_odp *odp)
{
	struct ib_umem_odp *part;
	unsigned long index;

	/* Notifiers may queue it until the last umem is released. */
	disable_work_sync(&odp->shrink_work);
	xa_for_each(&odp->parts, index, part) {
		ib_umem_odp_release(part);
		qrnic_sparse_uncharge(odp->budget, PART_WEIGHT);
	}
	xa_destroy(&odp->parts);
	qrnic_odp_umem_put(odp->umem);
	qrnic_sparse_free(odp->dev->qdev, &odp->table);
	qrnic_sparse_uncharge(odp->budget, odp->weight);
	kfree(odp);
}

/*
 * Charges the arrays that the RDMA core allocates at once for all pages of an explicit
 * region, as for a child of an implicit one (PART_WEIGHT).
 */
static int qrnic_odp_weigh(struct qrnic_ib_odp *odp, u64 length)
{
	u64 weight = (length >> PAGE_SHIFT) * PART_WEIGHT >> 9;

	if (odp->implicit)
		return 0;
	if (weight > odp->budget->limit || !qrnic_sparse_charge(odp->budget, weight))
		return -ENOMEM;
	odp->weight = weight;
	return 0;
}

static struct qrnic_ib_odp *qrnic_odp_new(struct qrnic_ib_dev *dev,
					  struct qrnic_ib_mr *mr, u64 start, u64 length,
					  int access)
{
	struct ib_uobject *uobject = mr->ibmr.pd->uobject;
	struct qrnic_ib_odp *odp;
	int err;

	odp = kzalloc(sizeof(*odp), GFP_KERNEL_ACCOUNT);
	if (!odp)
		return ERR_PTR(-ENOMEM);

	odp->dev = dev;
	odp->mr = mr;
	odp->implicit = !start && length == U64_MAX;
	odp->length = odp->implicit ? QRNIC_MAX_ON_DEMAND_SIZE : length;
	odp->dead = true;
	qrnic_object_init(&odp->object);
	mutex_init(&odp->key_mutex);
	xa_init(&odp->parts);
	INIT_WORK(&odp->shrink_work, qrnic_odp_shrink_work);
	odp->budget = uobject ? &to_qrnic_ucontext(uobject->context)->odp_budget->lists :
				&dev->odp_budget;
	err = qrnic_odp_weigh(odp, length);
	if (err)
		goto err_free;
	odp->umem = qrnic_odp_umem_get(odp, start, length, access);
	if (IS_ERR(odp->umem)) {
		err = PTR_ERR(odp->umem);
		goto err_weight;
	}
	err = qrnic_odp_table_alloc(odp);
	if (err)
		goto err_umem;
	return odp;

err_umem:
	qrnic_odp_umem_put(odp->umem);
err_weight:
	qrnic_sparse_uncharge(odp->budget, odp->weight);
err_free:
	kfree(odp);
	return ERR_PTR(err);
}

struct ib_mr *qrnic_odp_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 virt,
				    int access)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct qrnic_mkey_ctx context = {
		.type = QRNIC_MKEY_MR,
		.flags = QRNIC_MKEYF_ON_DEMAND,
	};
	struct qrnic_ib_odp *odp;
	struct qrnic_ib_mr *mr;
	int err;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_ON_DEMAND))
		return ERR_PTR(-EOPNOTSUPP);
	err = qrnic_user_memory_check(dev);
	if (err)
		return ERR_PTR(err);
	err = qrnic_access_rights(dev, access & ~IB_ACCESS_ON_DEMAND);
	if (err < 0)
		return ERR_PTR(err);
	if (!length || (length > QRNIC_MAX_ON_DEMAND_SIZE &&
			(start || virt || length != U64_MAX)))
		return ERR_PTR(-EINVAL);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->ibmr.pd = ibpd;
	mr->access = err;
	mr->zero_based = access & IB_ZERO_BASED;
	mr->start = mr->zero_based ? 0 : virt;
	odp = qrnic_odp_new(dev, mr, start, length, access);
	if (IS_ERR(odp)) {
		err = PTR_ERR(odp);
		goto err_free;
	}

	mr->odp = odp;
	mr->page_shift = odp->umem->page_shift;
	context.start = cpu_to_le64(mr->start);
	context.length = cpu_to_le64(odp->length);
	context.table = odp->table.hw;
	mutex_lock(&dev->odp_mutex);
	err = qrnic_mr_key_create(mr, &context);
	if (err)
		goto err_unlock;
	odp->dead = false;
	err = qrnic_object_insert(&dev->odps, &odp->object, mr->index);
	if (err)
		goto err_key;
	mutex_unlock(&dev->odp_mutex);

	mr->ibmr.iova = mr->start;
	mr->ibmr.length = odp->length;
	mr->ibmr.page_size = BIT(mr->page_shift);
	return &mr->ibmr;

err_key:
	qrnic_destroy(dev, QRNIC_CMD_DESTROY_MKEY, mr->index);
err_unlock:
	mutex_unlock(&dev->odp_mutex);
	qrnic_odp_free(odp);
err_free:
	kfree(mr);
	return ERR_PTR(err);
}

/* Destroys the key, and then all else of the region; -EBUSY: windows are bound to it. */
int qrnic_odp_dereg(struct qrnic_ib_dev *dev, struct qrnic_ib_mr *mr)
{
	struct qrnic_ib_odp *odp = mr->odp;
	int err;

	mutex_lock(&dev->odp_mutex);
	mutex_lock(&odp->key_mutex);
	err = qrnic_cmd_destroy(dev->qdev, QRNIC_CMD_DESTROY_MKEY, mr->index);
	if (err != -EBUSY)
		WRITE_ONCE(odp->dead, true);
	mutex_unlock(&odp->key_mutex);
	if (err != -EBUSY)
		qrnic_object_hide(&dev->odps, mr->index);
	mutex_unlock(&dev->odp_mutex);
	if (err == -EBUSY)
		return err;
	if (err)
		qrnic_destroy_failed(dev, QRNIC_CMD_DESTROY_MKEY, mr->index, err);

	qrnic_object_wait(&odp->object);
	qrnic_odp_free(odp);
	return 0;
}

u32 qrnic_odp_lists(const struct qrnic_ib_odp *odp)
{
	return READ_ONCE(odp->table.num_lists);
}

int qrnic_ib_fill_stat_mr(struct sk_buff *msg, struct ib_mr *ibmr)
{
	struct qrnic_ib_odp *odp = to_qrnic_mr(ibmr)->odp;
	struct nlattr *table;

	if (!odp)
		return 0;
	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
	if (!table)
		return -EMSGSIZE;
	if (rdma_nl_stat_hwcounter_entry(msg, "page_faults",
					 atomic64_read(&odp->faults)) ||
	    rdma_nl_stat_hwcounter_entry(msg, "page_invalidations",
					 atomic64_read(&odp->invalidations)) ||
	    rdma_nl_stat_hwcounter_entry(msg, "page_prefetch",
					 atomic64_read(&odp->prefetches))) {
		nla_nest_cancel(msg, table);
		return -EMSGSIZE;
	}
	nla_nest_end(msg, table);
	return 0;
}

/*
 * Limits page lists and the RDMA core's arrays to the need of all memory, with a
 * reserve for programs that use little of many parts.
 */
static void qrnic_odp_budget_init(struct qrnic_sparse_budget *budget)
{
	atomic_set(&budget->used, 0);
	budget->limit = min_t(u64, INT_MAX / 2, (1 + PART_WEIGHT) *
			      (SZ_4K + ((u64)totalram_pages() >> 9)));
}

/* Finds or makes the budget of the context's user. The context puts it at its end. */
int qrnic_odp_budget_get(struct qrnic_ib_ucontext *ucontext)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ucontext->ibucontext.device);
	struct qrnic_ib_odp_budget *budget, *found;

	/* Before the mutex, because memory must not be reclaimed under it. */
	budget = kzalloc(sizeof(*budget), GFP_KERNEL_ACCOUNT);
	if (!budget)
		return -ENOMEM;
	qrnic_odp_budget_init(&budget->lists);
	budget->user = ucontext->owner.user;

	mutex_lock(&dev->odp_budget_mutex);
	list_for_each_entry(found, &dev->odp_budgets, entry)
		if (uid_eq(found->user, budget->user))
			break;
	if (list_entry_is_head(found, &dev->odp_budgets, entry)) {
		list_add(&budget->entry, &dev->odp_budgets);
		found = budget;
		budget = NULL;
	}
	found->contexts++;
	ucontext->odp_budget = found;
	mutex_unlock(&dev->odp_budget_mutex);
	kfree(budget);
	return 0;
}

void qrnic_odp_budget_put(struct qrnic_ib_ucontext *ucontext)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ucontext->ibucontext.device);
	struct qrnic_ib_odp_budget *budget = ucontext->odp_budget;

	mutex_lock(&dev->odp_budget_mutex);
	if (--budget->contexts) {
		budget = NULL;
	} else {
		list_del(&budget->entry);
		WARN_ON(atomic_read(&budget->lists.used));
	}
	mutex_unlock(&dev->odp_budget_mutex);
	kfree(budget);
}

int qrnic_odp_init(struct qrnic_ib_dev *dev)
{
	xa_init_flags(&dev->odps, XA_FLAGS_LOCK_IRQ);
	mutex_init(&dev->odp_mutex);
	qrnic_odp_budget_init(&dev->odp_budget);
	INIT_LIST_HEAD(&dev->odp_budgets);
	mutex_init(&dev->odp_budget_mutex);
	xa_init(&dev->responder_faults);
	INIT_WORK(&dev->responder_work, qrnic_odp_last_responder_work);
	/* Many may wait for a disk. */
	dev->odp_wq = alloc_workqueue("qrnic_page_faults", WQ_UNBOUND, WQ_MAX_ACTIVE);
	if (!dev->odp_wq)
		return -ENOMEM;
	/* None waits behind another's, which may be long in coming. */
	dev->prefetch_wq = alloc_workqueue("qrnic_prefetch", WQ_UNBOUND,
					   MAX_PREFETCHES);
	if (!dev->prefetch_wq)
		goto err_odp;
	/*
	 * Both other workers wait for this one when a user has reached its limit of
	 * lists.
	 */
	dev->shrink_wq = alloc_workqueue("qrnic_page_lists", WQ_UNBOUND, 0);
	if (!dev->shrink_wq)
		goto err_prefetch;
	return 0;

err_prefetch:
	destroy_workqueue(dev->prefetch_wq);
err_odp:
	destroy_workqueue(dev->odp_wq);
	return -ENOMEM;
}

/* When the device is no longer registered, and no event comes any more */
void qrnic_odp_cleanup(struct qrnic_ib_dev *dev)
{
	destroy_workqueue(dev->odp_wq);
	destroy_workqueue(dev->prefetch_wq);
	destroy_workqueue(dev->shrink_wq);
	WARN_ON(!xa_empty(&dev->odps) || !xa_empty(&dev->responder_faults));
}

void qrnic_odp_caps(struct qrnic_ib_dev *dev, struct ib_odp_caps *caps)
{
	const u32 datagram = IB_ODP_SUPPORT_SEND | IB_ODP_SUPPORT_RECV;
	u32 connected = datagram | IB_ODP_SUPPORT_WRITE | IB_ODP_SUPPORT_READ;
	u32 shared = 0;

	if (!qrnic_on_demand(dev))
		return;
	if (qrnic_ib_cap(dev, QRNIC_CAP_ATOMIC))
		connected |= IB_ODP_SUPPORT_ATOMIC;
	if (qrnic_ib_cap(dev, QRNIC_CAP_SRQ))
		shared = IB_ODP_SUPPORT_SRQ_RECV;
	caps->general_caps = IB_ODP_SUPPORT | IB_ODP_SUPPORT_IMPLICIT;
	caps->per_transport_caps.rc_odp_caps = connected | shared;
	if (qrnic_ib_cap(dev, QRNIC_CAP_UC))
		caps->per_transport_caps.uc_odp_caps =
			datagram | IB_ODP_SUPPORT_WRITE | shared;
	if (qrnic_ib_cap(dev, QRNIC_CAP_UD))
		caps->per_transport_caps.ud_odp_caps = datagram | shared;
	if (qrnic_ib_cap(dev, QRNIC_CAP_XRC))
		caps->per_transport_caps.xrc_odp_caps = connected | shared;
}
