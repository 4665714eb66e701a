/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * odp_private.h: regions on demand as odp.c (their life), odp_map.c (their pages) and
 * odp_fault.c (page faults and prefetches) see them. The others include odp.h.
 */
#ifndef QRNIC_ODP_PRIVATE_H
#define QRNIC_ODP_PRIVATE_H

#include "memory.h"
#include "odp.h"

/*
 * A part is as much memory as one page list describes, and the most that is mapped at
 * once. A region of the whole address space has the parts in which a page is mapped.
 */
#define QRNIC_ODP_PART_SHIFT (PAGE_SHIFT + ilog2(QRNIC_PAGE_LIST_ENTRIES))
#define QRNIC_ODP_PART_SIZE BIT(QRNIC_ODP_PART_SHIFT)
/*
 * Weight, in page lists, of the RDMA core's arrays for a part: a page frame number and
 * a DMA address for each page. No memory cgroup is charged for these arrays.
 */
#define QRNIC_ODP_PART_WEIGHT \
	DIV_ROUND_UP(QRNIC_PAGE_LIST_ENTRIES * \
		     (sizeof(unsigned long) + sizeof(dma_addr_t)), \
		     BIT(QRNIC_PAGE_LIST_SHIFT))

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
	bool dead;			/* no page is paged in any more */

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

static inline struct qrnic_ib_odp *qrnic_odp_get(struct qrnic_ib_dev *dev, u32 index)
{
	struct qrnic_ib_object *object = qrnic_object_get(&dev->odps, index);

	return object ? container_of(object, struct qrnic_ib_odp, object) : NULL;
}

static inline void qrnic_odp_put(struct qrnic_ib_odp *odp)
{
	qrnic_object_put(&odp->object);
}

/* Translates an address of the users of the key to one of the process. */
static inline u64 qrnic_odp_user_address(const struct qrnic_ib_odp *odp, u64 address)
{
	return odp->implicit ? address :
			       address - odp->mr->start + odp->umem->umem.address;
}

/* Returns true if the key has this address. */
static inline bool qrnic_odp_in_region(const struct qrnic_ib_odp *odp, u64 address)
{
	return address >= odp->mr->start &&
	       address - odp->mr->start < odp->length;
}

/* odp_map.c */
extern const struct mmu_interval_notifier_ops qrnic_odp_notifier_ops;
void qrnic_odp_shrink_work(struct work_struct *work);
int qrnic_odp_page_in(struct qrnic_ib_odp *odp, u64 address, u64 length, bool write,
		      bool fault);

/* odp_fault.c: its workers */
int qrnic_odp_workers_init(struct qrnic_ib_dev *dev);
void qrnic_odp_workers_cleanup(struct qrnic_ib_dev *dev);

#endif /* QRNIC_ODP_PRIVATE_H */
