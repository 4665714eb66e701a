// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * odp.c: regions on demand, from registration to deregistration, and the budget
 * of their memory (manual, Paging on demand). The file odp_map.c maps pages;
 * odp_fault.c handles page faults and prefetches.
 *
 * mr.c registers and deregisters a region. In between, page faults and
 * prefetches find the region by its key in dev->odps. The mutex odp_mutex is
 * held while a key and its entry there change together. The flag dead, under
 * key_mutex, is true while the key does not exist.
 */
#include <linux/sched/mm.h>
#include <rdma/uverbs_std_types.h>

#include "memory.h"
#include "odp_private.h"
#include "qrnic_ib.h"

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
	/*
	 * A reference to the mm is taken for the parts. Only an explicit umem
	 * has a notifier that holds such a reference; an implicit one has none.
	 */
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

/* Frees a region whose key has been destroyed. */
static void qrnic_odp_free(struct qrnic_ib_odp *odp)
{
	struct ib_umem_odp *part;
	unsigned long index;

	/*
	 * Disabled first, because notifiers may queue the work item until the
	 * last umem is released.
	 */
	disable_work_sync(&odp->shrink_work);
	xa_for_each(&odp->parts, index, part) {
		ib_umem_odp_release(part);
		qrnic_sparse_uncharge(odp->budget, QRNIC_ODP_PART_WEIGHT);
	}
	xa_destroy(&odp->parts);
	qrnic_odp_umem_put(odp->umem);
	qrnic_sparse_free(odp->dev->qdev, &odp->table);
	qrnic_sparse_uncharge(odp->budget, odp->weight);
	kfree(odp);
}

/*
 * Charges the arrays that the RDMA core allocates for all pages of an explicit
 * region. Each page has the same weight as in a part of an implicit region
 * (QRNIC_ODP_PART_WEIGHT).
 */
static int qrnic_odp_weigh(struct qrnic_ib_odp *odp, u64 length)
{
	u64 weight = (length >> PAGE_SHIFT) * QRNIC_ODP_PART_WEIGHT /
		     QRNIC_PAGE_LIST_ENTRIES;

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

/*
 * Destroys the key, and then frees the region. Returns -EBUSY, and changes
 * nothing, if windows are bound to the region.
 */
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
 * Sets the limit of a budget: page lists and arrays for all memory, with a
 * reserve for programs that use little of many parts.
 */
static void qrnic_odp_budget_init(struct qrnic_sparse_budget *budget)
{
	atomic_set(&budget->used, 0);
	budget->limit = min_t(u64, INT_MAX / 2, (1 + QRNIC_ODP_PART_WEIGHT) *
			      (SZ_4K + (u64)totalram_pages() /
				       QRNIC_PAGE_LIST_ENTRIES));
}

/*
 * Finds or creates the budget of the user of a context. Returns 0 or -ENOMEM;
 * qrnic_odp_budget_put() releases the budget.
 */
int qrnic_odp_budget_get(struct qrnic_ib_ucontext *ucontext)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ucontext->ibucontext.device);
	struct qrnic_ib_odp_budget *budget, *found;

	/*
	 * Allocated before the mutex is taken, because memory must not be
	 * reclaimed under it.
	 */
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
	int err;

	xa_init_flags(&dev->odps, XA_FLAGS_LOCK_IRQ);
	mutex_init(&dev->odp_mutex);
	qrnic_odp_budget_init(&dev->odp_budget);
	INIT_LIST_HEAD(&dev->odp_budgets);
	mutex_init(&dev->odp_budget_mutex);
	err = qrnic_odp_workers_init(dev);
	if (err)
		return err;
	/*
	 * This workqueue is separate, because workers of odp_fault.c wait for
	 * it when a user has used up its budget.
	 */
	dev->shrink_wq = alloc_workqueue("qrnic_page_lists", WQ_UNBOUND, 0);
	if (dev->shrink_wq)
		return 0;
	qrnic_odp_workers_cleanup(dev);
	return -ENOMEM;
}

/*
 * Frees the members of this file. Called after the device is unregistered, when
 * no event comes any more.
 */
void qrnic_odp_cleanup(struct qrnic_ib_dev *dev)
{
	qrnic_odp_workers_cleanup(dev);
	destroy_workqueue(dev->shrink_wq);
	WARN_ON(!xa_empty(&dev->odps));
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
