/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qrnic_ib.h: the RDMA device, and the objects and functions that most files of
 * qrnic_ib.ko use. memory.h, queues.h, qp.h and odp.h have those of one part, verbs.h the
 * operations that only the RDMA core calls. The interface of the core is qrnic_core.h; no
 * file here touches a register.
 */
#ifndef QRNIC_IB_H
#define QRNIC_IB_H

#include <linux/bitfield.h>
#include <linux/completion.h>
#include <linux/hashtable.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/qrnic-abi.h>
#include <rdma/rdma_counter.h>
#include <rdma/uverbs_ioctl.h>

#include "compat.h"
#include "qrnic_core.h"

#define QRNIC_IB_PORT 1
#define QRNIC_24_BITS 0xffffff

/* Counters that performance management knows (mad.c) */
#define QRNIC_PMA_COUNTERS 11

/*
 * The number of work requests that either queue holds also if all are of the largest
 * size: programs use all limits together.
 */
static inline u32 qrnic_ib_max_qp_wr(const struct qrnic_caps *caps)
{
	return min(caps->max_qp_wqebb / QRNIC_WQE_MAX_WQEBB, caps->max_qp_recv);
}

/* log2 of the smallest SQ: it holds one WQE of the largest size. */
#define QRNIC_SQ_LOG_SIZE_MIN ilog2(QRNIC_WQE_MAX_WQEBB)

struct qrnic_ib_dev {
	struct ib_device ibdev;
	struct qrnic_dev *qdev;

	bool dma_copied;	/* bounce buffers: no memory of processes (user_memory.c) */

	/* Number to the qrnic_ib_object in a QP, an SRQ or a WQ, whose numbers are a QP's */
	struct xarray qps;
	struct xarray srqs;
	struct xarray wqs;
	/*
	 * Numbers of QPs and SRQs that the device may give out again already, while
	 * completions and events of their last owners remain (object.c)
	 */
	spinlock_t numbers_lock;	/* protects the list */
	struct list_head retired_numbers;
	wait_queue_head_t number_released;

	/* Made by the driver (sharing.c): shares, and by number the links of their carriers */
	struct mutex sharing_mutex;	/* before that of a QP */
	struct list_head shares;
	struct list_head dead_links;	/* until sharing_mutex is released */
	struct xarray share_links;

	/* Numbers of address spaces (user_memory.c) */
	struct mutex address_space_mutex;	/* protects these three */
	DECLARE_HASHTABLE(address_space_mms, 6);
	struct xarray address_spaces;
	u32 next_address_space;

	/* Serialises qrnic_port_report(); protects port_active and stopping */
	struct mutex port_mutex;
	bool port_active;	/* as last told to the RDMA core */
	bool stopping;		/* no more events of port and device */
	struct notifier_block netdev_nb;
	struct work_struct flush_work;	/* in the fatal state */

	/* The device's counters when PortCounters, PortCountersExtended were 0 */
	struct mutex pma_mutex;	/* protects it */
	u64 pma_base[2][QRNIC_PMA_COUNTERS];

	/* Regions on demand by the index of their key; who brings pages, and ahead */
	struct xarray odps;
	struct mutex odp_mutex;		/* held until the device and odps agree on a key */
	struct workqueue_struct *odp_wq;
	struct workqueue_struct *prefetch_wq;
	struct qrnic_sparse_budget odp_budget;	/* of those without a context (RDS) */
	struct mutex odp_budget_mutex;	/* protects odp_budgets */
	struct list_head odp_budgets;	/* one for each user that has a context */
	struct workqueue_struct *shrink_wq;	/* frees page lists without entries */
	atomic_t prefetches;		/* that wait */
	struct xarray responder_faults;	/* of dynamic targets, that nobody took yet */
	atomic_t num_responder_faults;
	atomic_t responder_workers;
	struct work_struct responder_work;

	/* Doorbell pages of the device in a page of the CPU (ucontext.c) */
	u32 db_group;
	struct mutex db_mutex;		/* protects db_spare */
	struct xarray db_spare;		/* by number; allocated, and in no complete group */

	atomic_t next_variant;	/* low byte of the next memory key */
};

/* What a process may map of the device */
enum qrnic_ib_map_kind {
	QRNIC_MAP_DB_PAGE,
	QRNIC_MAP_DEVICE_MEMORY,
};

struct qrnic_ib_map {
	struct rdma_user_mmap_entry entry;
	enum qrnic_ib_map_kind kind;
};

struct qrnic_ib_db_page {
	struct qrnic_ib_map map;
	struct qrnic_ib_ucontext *ucontext;
	u32 number;			/* the first one of the CPU's page */
	u32 count;			/* doorbell pages in it */
	struct kref users;		/* the object, and QPs */
};

static inline u32 qrnic_db_page_bytes(const struct qrnic_ib_db_page *page)
{
	return page->count * QRNIC_DB_PAGE_SIZE;
}

/* The processes that may choose the path of each other's shared connections */
struct qrnic_ib_owner {
	kuid_t user;
	u64 net_cookie;			/* of the network namespace */
};

struct qrnic_ib_ucontext {
	struct ib_ucontext ibucontext;
	struct qrnic_ib_owner owner;	/* of the process that opened the context */
	struct qrnic_ib_db_page *db_page;
	struct xarray db_pages;		/* by number; that one too */
	struct qrnic_ib_odp_budget *odp_budget;	/* of the user's regions on demand */
};

struct qrnic_ib_pd {
	struct ib_pd ibpd;
	u32 pdn;

	struct mutex null_mutex;	/* protects has_null */
	bool has_null;
	u32 null_key;
};

struct qrnic_ib_xrcd {
	struct ib_xrcd ibxrcd;
	u32 xrcdn;
};

struct qrnic_ib_counter {
	struct rdma_counter counter;
};

struct qrnic_ib_ah {
	struct ib_ah ibah;
	struct qrnic_address_vector av;
	u8 sl;				/* the caller's */
};

/* The number of a QP or an SRQ that is being destroyed; table is that of its kind. */
struct qrnic_ib_number {
	struct list_head entry;
	const struct xarray *table;
	u32 number;
};

/* What can be found by number: completions and events name it so. */
struct qrnic_ib_object {
	refcount_t refs;
	struct completion unused;	/* refs fell to 0 */
};

struct qrnic_ib_rwq_ind_table {
	struct ib_rwq_ind_table ib_table;
};

/* What flow rules count */
struct qrnic_ib_counters {
	struct ib_counters ibcounters;
	u32 set;			/* counter set of the device */
};

static inline struct qrnic_ib_dev *to_qrnic_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct qrnic_ib_dev, ibdev);
}

static inline struct qrnic_ib_ucontext *
to_qrnic_ucontext(struct ib_ucontext *ibucontext)
{
	return container_of(ibucontext, struct qrnic_ib_ucontext, ibucontext);
}

static inline struct qrnic_ib_xrcd *to_qrnic_xrcd(struct ib_xrcd *ibxrcd)
{
	return container_of(ibxrcd, struct qrnic_ib_xrcd, ibxrcd);
}

static inline struct qrnic_ib_pd *to_qrnic_pd(struct ib_pd *ibpd)
{
	return container_of(ibpd, struct qrnic_ib_pd, ibpd);
}

static inline struct qrnic_ib_ah *to_qrnic_ah(struct ib_ah *ibah)
{
	return container_of(ibah, struct qrnic_ib_ah, ibah);
}

static inline struct qrnic_ib_counters *
to_qrnic_counters(struct ib_counters *ibcounters)
{
	return container_of(ibcounters, struct qrnic_ib_counters, ibcounters);
}

/* The device's rights of keys and queue pairs have the bits of verbs, but for these. */
static inline u8 qrnic_rights_of_access(int access)
{
	u8 rights = access & (QRNIC_ACCESS_ALL & ~QRNIC_ACCESS_FLUSH_GLOBAL);

	if (access & IB_ACCESS_FLUSH_GLOBAL)
		rights |= QRNIC_ACCESS_FLUSH_GLOBAL;
	return rights;
}

static inline int qrnic_access_of_rights(u8 rights)
{
	int access = rights & ~QRNIC_ACCESS_FLUSH_GLOBAL;

	if (rights & QRNIC_ACCESS_FLUSH_GLOBAL)
		access |= IB_ACCESS_FLUSH_GLOBAL;
	return access;
}

static inline bool qrnic_ib_cap(struct qrnic_ib_dev *dev, u64 capability)
{
	return dev->qdev->caps.capabilities & capability;
}

/* Regions on demand; the RDMA core's part of them is optional. */
static inline bool qrnic_on_demand(struct qrnic_ib_dev *dev)
{
	return IS_ENABLED(CONFIG_INFINIBAND_ON_DEMAND_PAGING) &&
	       qrnic_ib_cap(dev, QRNIC_CAP_ON_DEMAND) && !dev->dma_copied;
}

/* object.c */
void qrnic_object_init(struct qrnic_ib_object *object);
int qrnic_object_insert(struct xarray *table, struct qrnic_ib_object *object,
			u32 number);
struct qrnic_ib_object *qrnic_object_get(struct xarray *table, u32 number);
struct qrnic_ib_object *qrnic_object_get_from(struct xarray *table,
					      unsigned long *number);
void qrnic_object_put(struct qrnic_ib_object *object);
void qrnic_object_hide(struct xarray *table, u32 number);
void qrnic_object_wait(struct qrnic_ib_object *object);
void qrnic_object_remove(struct xarray *table, struct qrnic_ib_object *object,
			 u32 number);
void qrnic_number_retire(struct qrnic_ib_dev *dev, struct qrnic_ib_number *retired,
			 const struct xarray *table, u32 number);
void qrnic_number_release(struct qrnic_ib_dev *dev, struct qrnic_ib_number *retired);
void qrnic_number_await(struct qrnic_ib_dev *dev, const struct xarray *table,
			u32 number);
int qrnic_create_24_bits(struct qrnic_ib_dev *dev, enum qrnic_cmd_opcode create,
			 enum qrnic_cmd_opcode destroy, const void *context,
			 size_t size, u32 *number);
/* Has the device destroy or free it; if that fails, resets the device. */
void qrnic_destroy(struct qrnic_ib_dev *dev, enum qrnic_cmd_opcode opcode,
		   u32 number);
void qrnic_destroy_failed(struct qrnic_ib_dev *dev, enum qrnic_cmd_opcode opcode,
			  u32 number, int err);

/* event.c */
int qrnic_ib_events_start(struct qrnic_ib_dev *dev);
void qrnic_ib_events_stop(struct qrnic_ib_dev *dev);
int qrnic_ib_port_events_start(struct qrnic_ib_dev *dev);
void qrnic_ib_port_events_stop(struct qrnic_ib_dev *dev);

/* uapi.c */
extern const struct uapi_definition qrnic_uapi_definitions[];

/* ucontext.c */
void qrnic_db_pages_init(struct qrnic_ib_dev *dev);
void qrnic_db_pages_cleanup(struct qrnic_ib_dev *dev);
struct qrnic_ib_db_page *qrnic_db_page_create(struct qrnic_ib_ucontext *ucontext);
void qrnic_db_page_destroy(struct qrnic_ib_db_page *page);
struct qrnic_ib_db_page *qrnic_db_page_get(struct qrnic_ib_ucontext *ucontext,
					   u32 number);
void qrnic_db_page_put(struct qrnic_ib_db_page *page);
void qrnic_ucontext_response(struct qrnic_ib_ucontext *ucontext,
			     struct qrnic_alloc_ucontext_resp *response);

/* pd_ah.c */
int qrnic_av_fill(struct qrnic_ib_dev *dev, struct qrnic_address_vector *av,
		  const struct rdma_ah_attr *attr);
void qrnic_av_read(struct ib_device *ibdev, const struct qrnic_address_vector *av,
		   u8 sl, struct rdma_ah_attr *attr);

#endif /* QRNIC_IB_H */
