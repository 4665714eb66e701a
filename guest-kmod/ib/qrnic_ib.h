/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qrnic_ib.h: the RDMA device, and the objects and functions that most files of
 * qrnic_ib.ko use.
 *
 * The headers memory.h, queues.h, qp.h and odp.h have those of one part. The
 * header verbs.h has the operations that only the RDMA core calls. The
 * interface of the core module is qrnic_core.h; no file of this folder accesses
 * a register.
 *
 * The RDMA core serialises the creation and the destruction of each object.
 * Other calls for an object come at any time in between, so each structure
 * names the lock of each member. Order of locks: sharing_mutex, the mutex of a
 * QP, the locks of its queues. The lock of a CQ is taken before the lock of an
 * SRQ.
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

/* Number of counters of performance management (mad.c) */
#define QRNIC_PMA_COUNTERS 11

/*
 * Returns the number of work requests that a queue has room for if all are of
 * the largest size. Programs use all limits together, so a larger number would
 * fail for them.
 */
static inline u32 qrnic_ib_max_qp_wr(const struct qrnic_caps *caps)
{
	return min(caps->max_qp_wqebb / QRNIC_WQE_MAX_WQEBB, caps->max_qp_recv);
}

/*
 * log2 of the smallest SQ in basic blocks: room for one WQE of the largest size
 */
#define QRNIC_SQ_LOG_SIZE_MIN ilog2(QRNIC_WQE_MAX_WQEBB)

/* RDMA device of an adapter */
struct qrnic_ib_dev {
	struct ib_device ibdev;
	struct qrnic_dev *qdev;

	/*
	 * True if the kernel copies DMA to bounce buffers, so that the device
	 * cannot use memory of processes (user_memory.c)
	 */
	bool dma_copied;

	/*
	 * Maps numbers to the qrnic_ib_object of a QP, an SRQ or a receive work
	 * queue. The numbers of QPs and work queues are from one range.
	 */
	struct xarray qps;
	struct xarray srqs;
	struct xarray wqs;
	/*
	 * Numbers of QPs and SRQs that the device may assign again already,
	 * while completions and events of their last owners remain (object.c)
	 */
	spinlock_t numbers_lock;	/* protects retired_numbers */
	struct list_head retired_numbers;
	wait_queue_head_t number_released;

	/*
	 * Protects the shared connections that the driver creates (sharing.c):
	 * their shares, their links by the numbers of their carrier QPs, and
	 * dead_links. Taken before the mutex of a QP.
	 */
	struct mutex sharing_mutex;
	struct list_head shares;
	/* Links to be freed when sharing_mutex is released */
	struct list_head dead_links;
	struct xarray share_links;

	/*
	 * True if contexts can have shared virtual addressing (process.c)
	 */
	bool shared_virtual;
	/* Serialises changes of processes, whose index is the PASID */
	struct mutex process_mutex;
	struct xarray processes;

	/* Protects the numbers of address spaces (user_memory.c) */
	struct mutex address_space_mutex;
	DECLARE_HASHTABLE(address_space_mms, 6);
	struct xarray address_spaces;
	u32 next_address_space;

	/* Serialises qrnic_port_report(); protects port_active and stopping */
	struct mutex port_mutex;
	/* State of the port that the RDMA core was last notified of */
	bool port_active;
	/*
	 * True if events of the port and the device are not reported any more
	 */
	bool stopping;
	struct notifier_block netdev_nb;
	/* Flushes kernel QPs in the fatal state */
	struct work_struct flush_work;

	/*
	 * Counters of the device at the last reset of PortCounters and
	 * PortCountersExtended
	 */
	struct mutex pma_mutex;	/* protects pma_base */
	u64 pma_base[2][QRNIC_PMA_COUNTERS];

	/*
	 * Regions on demand by the index of their key, and the workqueues that
	 * page in
	 */
	struct xarray odps;
	/* Taken while a key and its entry in odps change */
	struct mutex odp_mutex;
	struct workqueue_struct *odp_wq;
	struct workqueue_struct *prefetch_wq;
	/* Budget of regions without a context (RDS) */
	struct qrnic_sparse_budget odp_budget;
	struct mutex odp_budget_mutex;	/* protects odp_budgets */
	/* Budgets, one for each user with a context */
	struct list_head odp_budgets;
	/* Frees page lists without entries */
	struct workqueue_struct *shrink_wq;
	/* Number of prefetches in prefetch_wq */
	atomic_t prefetches;
	/* Numbers of pending page faults of dynamic targets */
	struct xarray responder_faults;
	/* Number of these page faults */
	atomic_t num_responder_faults;
	/* Number of workers for these page faults, besides responder_work */
	atomic_t responder_workers;
	struct work_struct responder_work;

	/*
	 * Number of doorbell pages of the device in a page of the CPU
	 * (ucontext.c)
	 */
	u32 db_group;
	/* Protects db_spare, and spare_pages of all contexts */
	struct mutex db_mutex;
	/* Allocated doorbell pages, by number, whose group is incomplete */
	struct xarray db_spare;

	atomic_t next_variant;	/* low byte of the next memory key */
};

/* Kinds of pages of the device that a process can map */
enum qrnic_ib_map_kind {
	QRNIC_MAP_DB_PAGE,
	QRNIC_MAP_DEVICE_MEMORY,
};

/* Mapping that the RDMA core offers to a process */
struct qrnic_ib_map {
	struct rdma_user_mmap_entry entry;
	enum qrnic_ib_map_kind kind;
};

/* Doorbell pages of a context that one page of the CPU contains */
struct qrnic_ib_db_page {
	struct qrnic_ib_map map;
	struct qrnic_ib_ucontext *ucontext;
	u32 number;			/* number of the first doorbell page */
	u32 count;			/* number of doorbell pages */
	/* Entry of ucontext->spare_pages */
	struct list_head spare;
	struct kref users;		/* users: the uverbs object, and QPs */
};

/* Returns the size of the mapping in bytes. */
static inline u32 qrnic_db_page_bytes(const struct qrnic_ib_db_page *page)
{
	return page->count * QRNIC_DB_PAGE_SIZE;
}

/*
 * Owner of shared connections: only processes with the same owner may share a
 * connection
 */
struct qrnic_ib_owner {
	kuid_t user;
	u64 net_cookie;			/* cookie of the network namespace */
};

/* Context of a process */
struct qrnic_ib_ucontext {
	struct ib_ucontext ibucontext;
	/* owner: the process that opened the context */
	struct qrnic_ib_owner owner;
	/* Doorbell page that each context has */
	struct qrnic_ib_db_page *db_page;
	/* All doorbell pages by number, including db_page */
	struct xarray db_pages;
	/* Process, if the context has shared virtual addressing */
	struct qrnic_ib_process *process;
	/*
	 * Unused doorbell pages with the PASID of the process; under db_mutex
	 */
	struct list_head spare_pages;
	/* Budget of the user's regions on demand */
	struct qrnic_ib_odp_budget *odp_budget;
};

/* Protection domain */
struct qrnic_ib_pd {
	struct ib_pd ibpd;
	u32 pdn;

	struct mutex null_mutex;	/* protects has_null and null_key */
	/* True if null_key exists */
	bool has_null;
	u32 null_key;
};

/* XRC domain */
struct qrnic_ib_xrcd {
	struct ib_xrcd ibxrcd;
	u32 xrcdn;
};

/* Counter set of QPs */
struct qrnic_ib_counter {
	struct rdma_counter counter;
};

/* Address handle */
struct qrnic_ib_ah {
	struct ib_ah ibah;
	struct qrnic_address_vector av;
	/* Service level that the caller requested */
	u8 sl;
};

/*
 * Number of a QP or an SRQ that is being destroyed; table is dev->qps or
 * dev->srqs
 */
struct qrnic_ib_number {
	struct list_head entry;
	const struct xarray *table;
	u32 number;
};

/* Object that completions and events identify by its number */
struct qrnic_ib_object {
	/* References; the table of the object has one */
	refcount_t refs;
	struct completion unused;	/* completed when refs becomes 0 */
};

/* Table of receive work queues for RSS */
struct qrnic_ib_rwq_ind_table {
	struct ib_rwq_ind_table ib_table;
};

/* Counters of flow rules */
struct qrnic_ib_counters {
	struct ib_counters ibcounters;
	/* Number of the counter set in the device */
	u32 set;
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

/*
 * Returns the rights of the device for access flags of verbs. Both have the
 * same bits, except for IB_ACCESS_FLUSH_GLOBAL.
 */
static inline u8 qrnic_rights_of_access(int access)
{
	u8 rights = access & (QRNIC_ACCESS_ALL & ~QRNIC_ACCESS_FLUSH_GLOBAL);

	if (access & IB_ACCESS_FLUSH_GLOBAL)
		rights |= QRNIC_ACCESS_FLUSH_GLOBAL;
	return rights;
}

/* Returns the access flags of verbs for rights of the device. */
static inline int qrnic_access_of_rights(u8 rights)
{
	int access = rights & ~QRNIC_ACCESS_FLUSH_GLOBAL;

	if (rights & QRNIC_ACCESS_FLUSH_GLOBAL)
		access |= IB_ACCESS_FLUSH_GLOBAL;
	return access;
}

/* Returns true if the device has the capability. */
static inline bool qrnic_ib_cap(struct qrnic_ib_dev *dev, u64 capability)
{
	return dev->qdev->caps.capabilities & capability;
}

/*
 * Returns true if the device and the RDMA core support regions on demand. The
 * part of the RDMA core is optional.
 */
static inline bool qrnic_on_demand(struct qrnic_ib_dev *dev)
{
	return IS_ENABLED(CONFIG_INFINIBAND_ON_DEMAND_PAGING) &&
	       qrnic_ib_cap(dev, QRNIC_CAP_ON_DEMAND) && !dev->dma_copied;
}

/* object.c: objects by number */
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
/* Makes the device destroy the object. If that fails, the device is reset. */
void qrnic_destroy(struct qrnic_ib_dev *dev, enum qrnic_cmd_opcode opcode,
		   u32 number);
void qrnic_destroy_failed(struct qrnic_ib_dev *dev, enum qrnic_cmd_opcode opcode,
			  u32 number, int err);

/* event.c: asynchronous events */
int qrnic_ib_events_start(struct qrnic_ib_dev *dev);
void qrnic_ib_events_stop(struct qrnic_ib_dev *dev);
int qrnic_ib_port_events_start(struct qrnic_ib_dev *dev);
void qrnic_ib_port_events_stop(struct qrnic_ib_dev *dev);

/* uapi.c: methods that the driver adds to uverbs */
extern const struct uapi_definition qrnic_uapi_definitions[];

/* ucontext.c: contexts and doorbell pages */
void qrnic_db_pages_init(struct qrnic_ib_dev *dev);
void qrnic_db_pages_cleanup(struct qrnic_ib_dev *dev);
struct qrnic_ib_db_page *qrnic_db_page_create(struct qrnic_ib_ucontext *ucontext);
void qrnic_db_page_destroy(struct qrnic_ib_db_page *page);
struct qrnic_ib_db_page *qrnic_db_page_get(struct qrnic_ib_ucontext *ucontext,
					   u32 number);
void qrnic_db_page_put(struct qrnic_ib_db_page *page);
void qrnic_ucontext_response(struct qrnic_ib_ucontext *ucontext,
			     struct qrnic_alloc_ucontext_resp *response);

/* process.c: shared virtual addressing */
void qrnic_process_init(struct qrnic_ib_dev *dev);
void qrnic_process_cleanup(struct qrnic_ib_dev *dev);
struct qrnic_ib_process *qrnic_process_get(struct qrnic_ib_dev *dev);
void qrnic_process_put(struct qrnic_ib_dev *dev, struct qrnic_ib_process *process);
int qrnic_process_db_page(struct qrnic_ib_dev *dev,
			  const struct qrnic_ib_process *process, u32 number);
bool qrnic_process_may_post(const struct qrnic_ib_process *process);
bool qrnic_process_page_in(struct qrnic_ib_dev *dev,
			   const struct qrnic_page_fault *fault);

/* pd_ah.c: address vectors */
int qrnic_av_fill(struct qrnic_ib_dev *dev, struct qrnic_address_vector *av,
		  const struct rdma_ah_attr *attr);
void qrnic_av_read(struct ib_device *ibdev, const struct qrnic_address_vector *av,
		   u8 sl, struct rdma_ah_attr *attr);

#endif /* QRNIC_IB_H */
