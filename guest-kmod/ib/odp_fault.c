// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * odp_fault.c: page faults of the device in regions on demand, and prefetches
 * that a program requests (manual, Paging on demand).
 *
 * The event of a page fault queues a work item. The work item queries the
 * fault, pages in, and resumes the access or makes it fail. Each side of a
 * queue pair has its own work item, so repeated events create no further ones.
 * A responder of a dynamic target has no queue pair in the driver. Page faults
 * of a responder are pending in an xarray, from which workers dequeue them.
 */
#include <linux/sched/mm.h>

#include "odp_private.h"
#include "qp.h"
#include "qrnic_ib.h"

/*
 * Maximum number of prefetches that wait for a worker; further ones run in the
 * calling process
 */
#define MAX_PREFETCHES 64

/*
 * Pages in the memory of a page fault. Returns true if the access may resume.
 * Returns false if it must fail, for example because its key is gone.
 */
static bool qrnic_odp_resolve(struct qrnic_ib_dev *dev,
			      const struct qrnic_page_fault *fault)
{
	bool write = le32_to_cpu(fault->flags) & QRNIC_PAGE_FAULT_WRITE;
	u64 address = le64_to_cpu(fault->address);
	u64 length = le64_to_cpu(fault->length);
	struct qrnic_ib_odp *odp;
	int pages = -EFAULT;

	/* The key does not matter then, because a PASID names the memory. */
	if (le32_to_cpu(fault->flags) & QRNIC_PAGE_FAULT_PASID)
		return qrnic_process_page_in(dev, fault);
	odp = qrnic_odp_get(dev, le32_to_cpu(fault->key));
	if (!odp)
		return false;
	/* The range is checked, because the device is not trusted. */
	if (length && qrnic_odp_in_region(odp, address))
		pages = qrnic_odp_page_in(odp, address, length, write, true);
	if (pages > 0)
		atomic64_inc(&odp->faults);
	qrnic_odp_put(odp);
	/*
	 * With -EBUSY the access resumes, because the kernel is changing the
	 * memory, and the device then reports the fault again.
	 */
	return pages > 0 || pages == -EBUSY;
}

/*
 * Handles a page fault: queries it, pages in, and resumes or rejects the
 * access.
 */
static void qrnic_odp_fault_answer(struct qrnic_ib_dev *dev, u32 number)
{
	struct qrnic_fault_answer answer = {};
	struct qrnic_page_fault fault;
	enum qrnic_cmd_opcode opcode;

	/*
	 * An error means that the access does not wait any more, because the QP
	 * is in ERR or destroyed.
	 */
	if (qrnic_cmd_query(dev->qdev, QRNIC_CMD_QUERY_PAGE_FAULT, number, &fault,
			    sizeof(fault)))
		return;
	opcode = qrnic_odp_resolve(dev, &fault) ? QRNIC_CMD_RESUME_PAGE_FAULT :
						  QRNIC_CMD_REFUSE_PAGE_FAULT;
	answer.sequence = fault.sequence;
	/*
	 * The result is ignored, because the command only fails if the access
	 * does not wait any more. The sequence identifies the fault.
	 */
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

/* Initialises the work items of a QP. */
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
 * Maximum number of workers for responders of dynamic targets. The page fault
 * of a responder is pending until a worker dequeues it. One additional worker
 * is part of the device. So no page fault waits for memory, or for a worker
 * that cannot be allocated.
 */
#define MAX_RESPONDER_WORKERS 4096

struct odp_responder_worker {
	struct work_struct work;
	struct qrnic_ib_dev *dev;
};

/* Handles pending page faults until there are none. */
static void qrnic_odp_responders_answer(struct qrnic_ib_dev *dev)
{
	unsigned long number;
	void *pending;

	while (!xa_empty(&dev->responder_faults))
		xa_for_each(&dev->responder_faults, number, pending) {
			/*
			 * If there is no entry, another worker has dequeued it.
			 */
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
 * Makes the device report a page fault again, because there is no memory to
 * record it. The event handler must not wait for memory, because a process may
 * free memory only after a later event. The handler may resume the access,
 * because the device checks each page before it uses the page.
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

/* Records a page fault of a responder, and queues a worker for it. */
static void qrnic_odp_responder_event(struct qrnic_ib_dev *dev, u32 number)
{
	/*
	 * A valid device has fewer page faults. The limit includes the workers,
	 * because they may not have decremented the count yet.
	 */
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
		/*
		 * With -EBUSY the page fault is pending already. The worker
		 * that handles it queries the device, so it will see the latest
		 * address.
		 */
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
 * Handles the event of a page fault. Each side of a QP has its own work item,
 * so that a page that comes late delays no other QP. Called from fault_work of
 * the core.
 */
void qrnic_odp_event(struct qrnic_ib_dev *dev, u32 number)
{
	struct qrnic_ib_qp *qp = qrnic_qp_get(dev, number >> 1);

	/*
	 * The number belongs to a responder of a dynamic target, or to a QP
	 * that is being destroyed, whose accesses do not wait.
	 */
	if (!qp) {
		qrnic_odp_responder_event(dev, number);
		return;
	}
	if (!queue_work(dev->odp_wq, &qp->faults[number & 1].work))
		qrnic_qp_put(qp);
}

struct odp_range {
	struct qrnic_ib_odp *odp;
	/* Address as users of the key name it */
	u64 address;
	u64 length;
};

struct odp_prefetch {
	struct work_struct work;
	struct qrnic_ib_dev *dev;
	bool write;
	/*
	 * True if absent pages are faulted in; otherwise only pages in memory
	 * are mapped
	 */
	bool fault;
	u32 count;
	struct odp_range ranges[] __counted_by(count);
};

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
		pages = qrnic_odp_page_in(range->odp, range->address, range->length,
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

int qrnic_odp_workers_init(struct qrnic_ib_dev *dev)
{
	xa_init(&dev->responder_faults);
	INIT_WORK(&dev->responder_work, qrnic_odp_last_responder_work);
	/*
	 * As many workers as possible, because many page faults may wait for a
	 * disk at the same time.
	 */
	dev->odp_wq = alloc_workqueue("qrnic_page_faults", WQ_UNBOUND, WQ_MAX_ACTIVE);
	if (!dev->odp_wq)
		return -ENOMEM;
	/*
	 * As many workers as prefetches, so that none waits for another one,
	 * which may take long.
	 */
	dev->prefetch_wq = alloc_workqueue("qrnic_prefetch", WQ_UNBOUND,
					   MAX_PREFETCHES);
	if (!dev->prefetch_wq) {
		destroy_workqueue(dev->odp_wq);
		return -ENOMEM;
	}
	return 0;
}

/*
 * Frees the workers. Called after the device is unregistered, when no event
 * comes any more.
 */
void qrnic_odp_workers_cleanup(struct qrnic_ib_dev *dev)
{
	destroy_workqueue(dev->odp_wq);
	destroy_workqueue(dev->prefetch_wq);
	WARN_ON(!xa_empty(&dev->responder_faults));
}
