/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * odp_private.h: regions on demand, shared by odp.c (registration), odp_map.c
 * (pages) and odp_fault.c (page faults and prefetches). Other files include
 * odp.h.
 *
 * Order of locks: table.mutex, umem_mutex of a part, key_mutex. The mutex
 * dev->odp_mutex is taken before key_mutex.
 */
#ifndef QRNIC_ODP_PRIVATE_H
#define QRNIC_ODP_PRIVATE_H

#include "memory.h"
#include "odp.h"

/*
 * Part of a region: the memory that one page list describes, and the most that
 * is mapped at once. A region of the whole address space has only the parts in
 * which a page is mapped.
 */
#define QRNIC_ODP_PART_SHIFT (PAGE_SHIFT + ilog2(QRNIC_PAGE_LIST_ENTRIES))
#define QRNIC_ODP_PART_SIZE BIT(QRNIC_ODP_PART_SHIFT)
/*
 * Weight of a part in page lists. The RDMA core allocates arrays for it: a page
 * frame number and a DMA address for each page. The budget must count the
 * arrays, because no memory cgroup is charged for them.
 */
#define QRNIC_ODP_PART_WEIGHT \
	DIV_ROUND_UP(QRNIC_PAGE_LIST_ENTRIES * \
		     (sizeof(unsigned long) + sizeof(dma_addr_t)), \
		     BIT(QRNIC_PAGE_LIST_SHIFT))

/* Region on demand */
struct qrnic_ib_odp {
	/* Entry of dev->odps, by the index of the key */
	struct qrnic_ib_object object;
	struct qrnic_ib_dev *dev;
	struct qrnic_ib_mr *mr;
	struct ib_umem_odp *umem;
	struct qrnic_sparse_table table;
	struct qrnic_sparse_budget *budget;	/* budget of the user */
	u64 length;
	/* True for a region of the whole address space (implicit) */
	bool implicit;
	/* Weight of the arrays of an explicit region, in page lists */
	int weight;
	/* Parts of an implicit region, by address; under table.mutex */
	struct xarray parts;
	struct work_struct shrink_work;

	/* Protects dead, and the key while dead is false */
	struct mutex key_mutex;
	/* True if no page is paged in any more */
	bool dead;

	/* Statistics for "rdma statistic mr" */
	atomic64_t faults;
	atomic64_t invalidations;
	atomic64_t prefetches;
};

/*
 * Budget of all contexts of a user. A budget of each context would not limit a
 * process, because it may open as many contexts as files.
 */
struct qrnic_ib_odp_budget {
	struct list_head entry;		/* entry of dev->odp_budgets */
	struct qrnic_sparse_budget lists;
	kuid_t user;
	/* Number of contexts; under odp_budget_mutex */
	u32 contexts;
};

/* Returns the region with this index of its key, with a reference, or NULL. */
static inline struct qrnic_ib_odp *qrnic_odp_get(struct qrnic_ib_dev *dev, u32 index)
{
	struct qrnic_ib_object *object = qrnic_object_get(&dev->odps, index);

	return object ? container_of(object, struct qrnic_ib_odp, object) : NULL;
}

/* Releases a reference from qrnic_odp_get(). */
static inline void qrnic_odp_put(struct qrnic_ib_odp *odp)
{
	qrnic_object_put(&odp->object);
}

/*
 * Translates an address that users of the key name to an address of the
 * process.
 */
static inline u64 qrnic_odp_user_address(const struct qrnic_ib_odp *odp, u64 address)
{
	return odp->implicit ? address :
			       address - odp->mr->start + odp->umem->umem.address;
}

/* Returns true if the key covers the address. */
static inline bool qrnic_odp_in_region(const struct qrnic_ib_odp *odp, u64 address)
{
	return address >= odp->mr->start &&
	       address - odp->mr->start < odp->length;
}

/* odp_map.c: pages and their lists */
extern const struct mmu_interval_notifier_ops qrnic_odp_notifier_ops;
void qrnic_odp_shrink_work(struct work_struct *work);
int qrnic_odp_page_in(struct qrnic_ib_odp *odp, u64 address, u64 length, bool write,
		      bool fault);

/* odp_fault.c: workers for page faults and prefetches */
int qrnic_odp_workers_init(struct qrnic_ib_dev *dev);
void qrnic_odp_workers_cleanup(struct qrnic_ib_dev *dev);

#endif /* QRNIC_ODP_PRIVATE_H */
