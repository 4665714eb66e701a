/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qrnic_ib.h: the objects of qrnic_ib.ko and what its files offer each other.
 * The core's interface is qrnic_core.h; here nothing touches a register.
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

	/* Numbers of address spaces (address_space.c) */
	struct mutex address_space_mutex;	/* protects these three */
	DECLARE_HASHTABLE(address_space_mms, 6);
	struct xarray address_spaces;
	u32 next_address_space;

	/* Serialises port_report(); protects port_active and stopping */
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

/* An indirect key, which is no ib_mr */
struct qrnic_ib_mkey {
	struct ib_pd *ibpd;
	u32 index;
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

struct qrnic_ib_mr {
	struct ib_mr ibmr;
	u64 start;
	u32 index;
	u32 address_space;		/* 0: at start, the CPU has other memory */
	u8 access;
	u8 page_shift;			/* 0: DMA region */
	bool zero_based;

	/* user */
	struct ib_umem *umem;
	struct qrnic_table table;
	struct qrnic_ib_odp *odp;	/* on demand; then these two are not used */

	/* fast registration; the device reads pages while the key is valid */
	__le64 *pages;
	dma_addr_t pages_dma;
	u32 max_pages;
	u32 num_pages;
};

struct qrnic_ib_dm {
	struct ib_dm ibdm;
	struct qrnic_ib_map map;
	u32 number;
	u64 offset;			/* in the device memory */
};

struct qrnic_ib_mw {
	struct ib_mw ibmw;
	u32 index;
};

struct qrnic_ib_cq {
	struct ib_cq ibcq;
	struct qrnic_cq core;
	u8 log_size;

	/* user: pages of the process, and their translation */
	struct ib_umem *umem;
	struct qrnic_table table;
	struct mutex resize_mutex;	/* protects the two, log_size and this: */
	struct ib_umem *ring_umem;	/* the ring, if umem only has the record */

	/* kernel; lock covers all below, and nests inside no other of ours */
	spinlock_t lock; /* of pollers, arming and cleaning */
	struct qrnic_ring ring;
	u32 consumer;			/* counter of CQEs */
	u32 arm_sequence;
	bool requested;			/* and no event yet, which clears it; */
	bool any_requested;		/* likewise, for any completion */
	struct list_head senders;	/* kernel QPs that complete here */
	struct list_head receivers;
};

/* What the driver remembers of a posted work request, by slot of its ring */
struct qrnic_ib_request {
	u64 wr_id;
	u32 next;			/* producer index after the WQE */
	u32 number;			/* of all that were ever posted */
	u32 bytes;			/* of receive buffers */
	enum ib_wc_opcode opcode;	/* of its completion */
};

/* Likewise of an SRQ */
#define QRNIC_SLOT_POSTED U32_MAX
struct qrnic_ib_slot {
	u64 wr_id;
	u32 link;			/* to the next free one; or POSTED */
	u32 bytes;
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

/*
 * One ring of a kernel QP. The poster owns producer and writes slots; the
 * poller, who holds the lock of the CQ, owns consumer and reads slots.
 */
struct qrnic_ib_queue {
	spinlock_t lock; /* of posters, and of the state they go by */
	struct qrnic_ring ring;
	struct qrnic_ib_request *requests;
	u32 mask;			/* entries - 1 */
	u32 producer;
	u32 consumer;
	u32 posted;			/* number of the newest request */
	u32 retired;			/* of the newest one that is done */
	u32 max_wr;
	u32 max_sge;
};

/*
 * A ring of slots that come back in any order. The free ones are a list: the next
 * request goes into head, and the slot that came back last is tail. The slot at tail
 * is never posted, because a WQE names the slot of the next one, which must be free.
 */
struct qrnic_ib_srq {
	struct ib_srq ibsrq;
	struct qrnic_ib_object object;
	u32 srqn;
	u8 log_size;			/* slots */
	u8 log_stride;			/* basic blocks of a slot */
	u32 max_sge;
	struct mutex resize_mutex;	/* of those who change it */

	/* user; ring_umem: once it was resized, where only the record is in umem */
	struct ib_umem *umem;
	struct ib_umem *ring_umem;
	struct qrnic_table table;
	/* user: operations of the tag list, or NULL */
	struct ib_umem *tags_umem;
	struct qrnic_table tags_table;

	/* kernel; lock covers all below, and nests inside that of a CQ */
	spinlock_t lock; /* of posters and pollers */
	struct qrnic_ring ring;
	struct qrnic_ring *ring_to_be;	/* while it is resized: gets all, too */
	struct qrnic_ib_slot *slots;	/* as many as it ever had */
	u32 head;
	u32 tail;
	u32 producer;			/* counter of WQEs */
};

struct qrnic_ib_rwq_ind_table {
	struct ib_rwq_ind_table ib_table;
};

/* What flow rules count */
struct qrnic_ib_counters {
	struct ib_counters ibcounters;
	u32 set;			/* counter set of the device */
};

/* What answers the page faults of one side of a QP; holds the QP while it is queued */
struct qrnic_ib_fault {
	struct work_struct work;
	struct qrnic_ib_qp *qp;
	u32 side;
};

/*
 * A carrier in the device, where it stays as long as its queue pair is there, or a
 * member, which may be another process's
 */
struct qrnic_ib_carrier {
	struct qrnic_ib_dev *dev;
	struct kref users;		/* the queue pair or share, and members */
	atomic_t members;
	u32 number;
	u64 key;			/* random; a process that knows it may have members */
#ifdef CONFIG_CGROUP_RDMA
	struct rdma_cgroup *cgroup;	/* that is charged for it */
#endif
	/* Of its path; under the mutex of the QP, or sharing_mutex */
	const struct ib_gid_attr *sgid;
	struct rcu_head rcu;
};

struct qrnic_ib_qp {
	struct ib_qp ibqp;
	struct qrnic_ib_object object;
	struct qrnic_ib_fault faults[2];

	struct mutex mutex;		/* modify and query, and state */
	enum ib_qp_state state;		/* written with both queue locks too */
	struct ib_qp_cap cap;
	bool signal_all;
	bool has_sq;			/* it is no XRC target */
	bool has_rq;			/* it receives, and from no SRQ */
	u8 driver_type;			/* QRNIC_DRIVER_TYPE_*, if it is IB_QPT_DRIVER */
	u8 options;			/* QRNIC_QPO_*, which this end agreed to */
	u8 options_in_force;		/* as the device last said */
	u8 sl;				/* the caller's; under mutex */
	u8 av_level;			/* the level by the address vector */
	u8 priority;			/* one more than another level; or 0 */
	bool is_carrier;
	/* It itself, or whose member it is; or NULL. Written under the mutex */
	struct qrnic_ib_carrier __rcu *carrier;
	struct qrnic_ib_share *share;	/* that it has offered, or answered; or NULL */
	u32 rss;			/* table by which it spreads frames; or 0 */
	struct qrnic_ib_db_page *db_page; /* of its own, if any */

	u8 sq_log_size;			/* basic blocks */
	u8 rq_log_size;			/* WQEs */
	u8 rq_log_stride;		/* basic blocks of a receive WQE */

	/* user */
	struct ib_umem *umem;
	u32 address_space;		/* of the poller; 0: no inline data */
	struct qrnic_table sq_table;
	struct qrnic_table rq_table;

	/* kernel */
	struct qrnic_ib_queue sq;
	struct qrnic_ib_queue rq;
	bool last_wqe_due;		/* an event; under the lock of sq */
	struct list_head send_entry;	/* of the CQs, under their locks */
	struct list_head recv_entry;
};

/* An XRC target is nobody's: it has neither queues nor CQs. */
static inline bool qrnic_qp_is_kernel(const struct qrnic_ib_qp *qp)
{
	return qp->has_sq && !qp->umem;
}

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

static inline struct qrnic_ib_mr *to_qrnic_mr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct qrnic_ib_mr, ibmr);
}

static inline struct qrnic_ib_dm *to_qrnic_dm(struct ib_dm *ibdm)
{
	return container_of(ibdm, struct qrnic_ib_dm, ibdm);
}

static inline struct qrnic_ib_mw *to_qrnic_mw(struct ib_mw *ibmw)
{
	return container_of(ibmw, struct qrnic_ib_mw, ibmw);
}

static inline struct qrnic_ib_cq *to_qrnic_cq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct qrnic_ib_cq, ibcq);
}

static inline struct qrnic_ib_qp *to_qrnic_qp(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct qrnic_ib_qp, ibqp);
}

static inline struct qrnic_ib_counters *
to_qrnic_counters(struct ib_counters *ibcounters)
{
	return container_of(ibcounters, struct qrnic_ib_counters, ibcounters);
}

static inline struct qrnic_ib_srq *to_qrnic_srq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct qrnic_ib_srq, ibsrq);
}

/* Returns true if the ring has a CQE. Called under the lock. */
/* There is a CQE to poll; under the lock. */
static inline bool qrnic_cq_written(struct qrnic_ib_cq *cq)
{
	return qrnic_cqe_written(&cq->ring, cq->consumer, cq->log_size);
}

static inline bool qrnic_qp_is_datagram(enum ib_qp_type type)
{
	return type == IB_QPT_UD || type == IB_QPT_GSI;
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

/* mkey.c */
u8 qrnic_mkey_variant(struct qrnic_ib_dev *dev);
int qrnic_access_rights(struct qrnic_ib_dev *dev, int access);
int qrnic_mkey_create(struct qrnic_ib_pd *pd, struct qrnic_mkey_ctx *context,
		      u32 *index, u32 *key);
int qrnic_mr_key_create(struct qrnic_ib_mr *mr, struct qrnic_mkey_ctx *context);
struct qrnic_ib_mkey *qrnic_indirect_create(struct ib_pd *ibpd, u32 max_pieces,
					    u32 *key);
void qrnic_indirect_destroy(struct qrnic_ib_mkey *mkey);

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

static inline struct qrnic_ib_qp *qrnic_qp_get(struct qrnic_ib_dev *dev, u32 qpn)
{
	struct qrnic_ib_object *object = qrnic_object_get(&dev->qps, qpn);

	return object ? container_of(object, struct qrnic_ib_qp, object) : NULL;
}

static inline void qrnic_qp_put(struct qrnic_ib_qp *qp)
{
	qrnic_object_put(&qp->object);
}

static inline struct qrnic_ib_srq *qrnic_srq_get(struct qrnic_ib_dev *dev,
						 u32 srqn)
{
	struct qrnic_ib_object *object = qrnic_object_get(&dev->srqs, srqn);

	return object ? container_of(object, struct qrnic_ib_srq, object) : NULL;
}

static inline void qrnic_srq_put(struct qrnic_ib_srq *srq)
{
	qrnic_object_put(&srq->object);
}

/* udata.c */
int qrnic_udata_none(struct ib_udata *udata);
struct ib_umem *qrnic_queue_umem_get(struct qrnic_ib_dev *dev, u64 address,
				     u64 length, u64 rings);
int qrnic_queue_table(struct qrnic_ib_dev *dev, struct qrnic_table *table,
		      struct ib_umem *umem, u64 offset, u64 length);
int qrnic_queue_record(struct ib_umem *umem, u32 offset, dma_addr_t *address);
struct ib_umem *qrnic_queue_get(struct qrnic_ib_dev *dev, u64 address, u64 length,
				u64 ring, u32 record_offset,
				struct qrnic_table *table, dma_addr_t *record);

/* user_memory.c */
void qrnic_user_memory_init(struct qrnic_ib_dev *dev);
/* Returns -EOPNOTSUPP, with a message, if the kernel copies all DMA. */
int qrnic_user_memory_check(struct qrnic_ib_dev *dev);
/* Pins memory as ib_umem_get() does; -EOPNOTSUPP if the device would access a copy. */
struct ib_umem *qrnic_umem_get(struct qrnic_ib_dev *dev, u64 address, u64 length,
			       int access);
/* Returns -EOPNOTSUPP, with a message, if the device would access a copy. */
int qrnic_umem_check(struct qrnic_ib_dev *dev, const struct ib_umem *umem);
/* Returns true if the device accesses a copy of the page that is mapped here. */
bool qrnic_dma_is_copied(struct qrnic_ib_dev *dev, dma_addr_t address);
/* Logs the reason, at a limited rate. Returns -EOPNOTSUPP. */
int qrnic_copied_error(struct qrnic_ib_dev *dev);
int qrnic_address_space_get(struct qrnic_ib_dev *dev, u32 *number);
void qrnic_address_space_put(struct qrnic_ib_dev *dev, u32 number);

/* port.c */
int qrnic_ib_query_port(struct ib_device *ibdev, u32 port,
			struct ib_port_attr *attr);
int qrnic_ib_get_port_immutable(struct ib_device *ibdev, u32 port,
				struct ib_port_immutable *immutable);
enum rdma_link_layer qrnic_ib_get_link_layer(struct ib_device *ibdev, u32 port);
int qrnic_ib_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey);
int qrnic_ib_add_gid(const struct ib_gid_attr *attr, void **context);
int qrnic_ib_del_gid(const struct ib_gid_attr *attr, void **context);

/* event.c */
int qrnic_ib_events_start(struct qrnic_ib_dev *dev);
void qrnic_ib_events_stop(struct qrnic_ib_dev *dev);
int qrnic_ib_port_events_start(struct qrnic_ib_dev *dev);
void qrnic_ib_port_events_stop(struct qrnic_ib_dev *dev);
void qrnic_ib_report_port_event(struct ib_device *ibdev, struct net_device *netdev,
				unsigned long event);

/* uapi.c */
extern const struct uapi_definition qrnic_uapi_definitions[];
int qrnic_ib_query_ucontext(struct ib_ucontext *ibucontext,
			    struct uverbs_attr_bundle *attrs);

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
int qrnic_ib_alloc_ucontext(struct ib_ucontext *ibucontext,
			    struct ib_udata *udata);
void qrnic_ib_dealloc_ucontext(struct ib_ucontext *ibucontext);
void qrnic_ib_disassociate_ucontext(struct ib_ucontext *ibucontext);
int qrnic_ib_mmap(struct ib_ucontext *ibucontext, struct vm_area_struct *vma);
void qrnic_ib_mmap_free(struct rdma_user_mmap_entry *entry);

/* pd_ah.c */
int qrnic_ib_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int qrnic_ib_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int qrnic_ib_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
int qrnic_ib_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
int qrnic_ib_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		       struct ib_udata *udata);
int qrnic_ib_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr);
int qrnic_ib_destroy_ah(struct ib_ah *ibah, u32 flags);
int qrnic_av_fill(struct qrnic_ib_dev *dev, struct qrnic_address_vector *av,
		  const struct rdma_ah_attr *attr);
void qrnic_av_read(struct ib_device *ibdev, const struct qrnic_address_vector *av,
		   u8 sl, struct rdma_ah_attr *attr);

/* mr.c */
int qrnic_pd_null_key(struct qrnic_ib_pd *pd, u32 *key);
void qrnic_pd_null_key_destroy(struct qrnic_ib_pd *pd);
struct ib_mr *qrnic_ib_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *qrnic_ib_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				   u64 virt, int access, QRNIC_DMAH_PARAMETER
				   struct ib_udata *udata);
struct ib_mr *qrnic_ib_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset,
					  u64 length, u64 virt, int fd,
					  int access, QRNIC_DMAH_PARAMETER
					  struct uverbs_attr_bundle *attrs);
struct ib_mr *qrnic_ib_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
				 struct ib_dm_mr_attr *attr,
				 struct uverbs_attr_bundle *attrs);
struct ib_mr *qrnic_ib_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
				     u64 length, u64 virt, int access,
				     struct ib_pd *ibpd, struct ib_udata *udata);
struct ib_mr *qrnic_ib_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
				u32 max_num_sg);
int qrnic_ib_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int sg_nents,
		       unsigned int *sg_offset);
struct qrnic_translation qrnic_mr_pages(const struct qrnic_ib_mr *mr);
int qrnic_ib_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int qrnic_ib_dealloc_mw(struct ib_mw *ibmw);
int qrnic_ib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);

/* device_memory.c */
struct ib_dm *qrnic_ib_alloc_dm(struct ib_device *ibdev,
				struct ib_ucontext *ibucontext,
				struct ib_dm_alloc_attr *attr,
				struct uverbs_attr_bundle *attrs);
int qrnic_ib_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs);
int qrnic_dm_mmap(struct ib_ucontext *ibucontext, struct vm_area_struct *vma,
		  struct qrnic_ib_map *map);
void qrnic_dm_mmap_free(struct qrnic_ib_map *map);

/* cq.c */
int qrnic_ib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		       struct uverbs_attr_bundle *attrs);
int qrnic_ib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int qrnic_ib_resize_cq(struct ib_cq *ibcq, QRNIC_RESIZE_TYPE cqe,
		       struct ib_udata *udata);
int qrnic_ib_modify_cq(struct ib_cq *ibcq, u16 count, u16 period);
int qrnic_ib_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc);
int qrnic_ib_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
void qrnic_cq_clean(struct qrnic_ib_cq *cq, u32 qpn);

/* qp.c */
int qrnic_ib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		       struct ib_udata *udata);
int qrnic_ib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
int qrnic_ib_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int qrnic_ib_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
void qrnic_qp_clean(struct qrnic_ib_qp *qp);

/* qp_modify.c */
int qrnic_ib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		       struct ib_udata *udata);
int qrnic_ib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		      struct ib_qp_init_attr *init);
/* priority as in struct qrnic_modify_qp_req; the level that follows from it */
int qrnic_ib_query_priority(struct ib_qp *ibqp, u32 *priority, u32 *level);

/* carrier.c */
struct qrnic_ib_carrier *qrnic_carrier_create(struct qrnic_ib_dev *dev);
void qrnic_carrier_put(struct qrnic_ib_carrier *carrier);
void qrnic_carrier_enter(struct qrnic_ib_carrier *carrier);
void qrnic_carrier_path(struct qrnic_ib_carrier *carrier,
			const struct ib_gid_attr *sgid);
int qrnic_carrier_prepare(struct qrnic_ib_qp *qp, const struct ib_qp_init_attr *init,
			  const struct qrnic_create_qp_req *request);
void qrnic_carrier_unprepare(struct qrnic_ib_qp *qp);
struct qrnic_ib_carrier *qrnic_carrier_join(struct qrnic_ib_dev *dev, u32 number,
					    u64 key);
void qrnic_carrier_leave(struct qrnic_ib_carrier *carrier);
int qrnic_carrier_resolve(struct qrnic_ib_qp *qp, struct rdma_ah_attr *attr);
struct qrnic_ib_carrier *qrnic_carrier_changed(struct qrnic_ib_qp *qp,
					       struct qrnic_ib_carrier *joined,
					       const struct ib_qp_attr *attr, int mask,
					       enum ib_qp_state state);
void qrnic_carrier_drop(struct qrnic_ib_qp *qp);

/* sharing.c */
void qrnic_sharing_init(struct qrnic_ib_dev *dev);
void qrnic_sharing_unlock(struct qrnic_ib_dev *dev);
int qrnic_share_agree(struct qrnic_ib_ucontext *ucontext, struct ib_qp *ibqp, u32 *ece);
struct qrnic_ib_carrier *qrnic_share_join(struct qrnic_ib_qp *qp, u32 ece,
					  const struct ib_qp_attr *attr,
					  const struct qrnic_qp_attr *hw);
void qrnic_share_abandon(struct qrnic_ib_qp *qp, struct qrnic_ib_carrier *carrier);
void qrnic_share_refused(struct qrnic_ib_qp *qp);
void qrnic_share_leave(struct qrnic_ib_qp *qp);
void qrnic_share_event(struct qrnic_ib_dev *dev, u32 number);

/* wq.c */
struct ib_wq *qrnic_ib_create_wq(struct ib_pd *ibpd, struct ib_wq_init_attr *init,
				 struct ib_udata *udata);
bool qrnic_wq_event(struct qrnic_ib_dev *dev, u32 number, enum ib_event_type type);
int qrnic_ib_destroy_wq(struct ib_wq *ibwq, struct ib_udata *udata);
int qrnic_ib_modify_wq(struct ib_wq *ibwq, struct ib_wq_attr *attr, u32 mask,
		       struct ib_udata *udata);
int qrnic_ib_create_rwq_ind_table(struct ib_rwq_ind_table *table,
				  struct ib_rwq_ind_table_init_attr *init,
				  struct ib_udata *udata);
int qrnic_ib_destroy_rwq_ind_table(struct ib_rwq_ind_table *table);
int qrnic_rss_create(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
		     const struct ib_qp_init_attr *init, struct ib_udata *udata);
void qrnic_rss_destroy(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp);

/* A ring of a process's: one slot more than WQEs, and no larger than any SRQ needs */
static inline bool qrnic_srq_size_ok(const struct qrnic_ib_dev *dev, u32 log_size,
				     u32 max_wr)
{
	return log_size && log_size <= ilog2(2 * dev->qdev->caps.max_srq_wr) &&
	       max_wr < BIT(log_size);
}

/* srq.c */
int qrnic_ib_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
			struct ib_udata *udata);
int qrnic_ib_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
			enum ib_srq_attr_mask mask, struct ib_udata *udata);
int qrnic_ib_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int qrnic_ib_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
int qrnic_stream_get(struct qrnic_ib_dev *dev, const struct qrnic_stream *stream,
		     bool wanted, struct qrnic_stream_attr *hw);
bool qrnic_srq_complete(struct qrnic_ib_dev *dev, u32 srqn, u32 slot,
			struct qrnic_ib_request *request);

/* srq_resize.c */
int qrnic_srq_resize(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
		     const struct ib_srq_attr *attr, bool with_limit,
		     struct ib_udata *udata);

/* flow.c */
struct ib_flow *qrnic_ib_create_flow(struct ib_qp *ibqp,
				     struct ib_flow_attr *attr,
				     struct ib_udata *udata);
int qrnic_ib_destroy_flow(struct ib_flow *ibflow);
int qrnic_ib_create_counters(struct ib_counters *ibcounters,
			     struct uverbs_attr_bundle *attrs);
int qrnic_ib_destroy_counters(struct ib_counters *ibcounters);
int qrnic_ib_read_counters(struct ib_counters *ibcounters,
			   struct ib_counters_read_attr *attr,
			   struct uverbs_attr_bundle *attrs);

/* queue.c */
int qrnic_kernel_queues_create(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
			       struct ib_qp_init_attr *init);
void qrnic_kernel_queues_destroy(struct qrnic_ib_dev *dev,
				 struct qrnic_ib_qp *qp);
void qrnic_kernel_queues_reset(struct qrnic_ib_qp *qp);
bool qrnic_queue_complete(struct qrnic_ib_queue *queue, u32 index,
			  struct qrnic_ib_request *request);

/* post.c */
int qrnic_ib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		       const struct ib_send_wr **bad_wr);
int qrnic_ib_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
			   const struct ib_recv_wr **bad_wr);
int qrnic_ib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr);

/* flush.c */
void qrnic_flush_attach(struct qrnic_ib_qp *qp);
void qrnic_flush_detach(struct qrnic_ib_qp *qp);
int qrnic_flush_poll(struct qrnic_ib_cq *cq, int num, struct ib_wc *wc);
bool qrnic_flush_pending(struct qrnic_ib_cq *cq);
void qrnic_flush_work(struct work_struct *work);
void qrnic_flush_schedule(struct qrnic_ib_dev *dev);

/* statistics.c */
struct rdma_hw_stats *qrnic_ib_alloc_device_stats(struct ib_device *ibdev);
struct rdma_hw_stats *qrnic_ib_alloc_port_stats(struct ib_device *ibdev, u32 port);
int qrnic_ib_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
			  u32 port, int index);

void qrnic_ib_counter_init(struct rdma_counter *counter);
int qrnic_ib_counter_bind_qp(struct rdma_counter *counter, struct ib_qp *QRNIC_COUNTER_PORT(qp));
int qrnic_ib_counter_unbind_qp(struct ib_qp *QRNIC_COUNTER_PORT(qp));
int qrnic_ib_counter_dealloc(struct rdma_counter *counter);
struct rdma_hw_stats *qrnic_ib_counter_alloc_stats(struct rdma_counter *counter);
int qrnic_ib_counter_update_stats(struct rdma_counter *counter);

/* mad.c */
int qrnic_ib_process_mad(struct ib_device *ibdev, int flags, u32 port,
			 const struct ib_wc *wc, const struct ib_grh *grh,
			 const struct ib_mad *in, struct ib_mad *out,
			 size_t *out_size, u16 *out_pkey_index);

/* restrack.c */
int qrnic_ib_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq);
int qrnic_ib_fill_res_cq_raw(struct sk_buff *msg, struct ib_cq *ibcq);
int qrnic_ib_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp);
int qrnic_ib_fill_res_qp_raw(struct sk_buff *msg, struct ib_qp *ibqp);
int qrnic_ib_fill_res_srq(struct sk_buff *msg, struct ib_srq *ibsrq);
int qrnic_ib_fill_res_srq_raw(struct sk_buff *msg, struct ib_srq *ibsrq);
int qrnic_ib_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr);
int qrnic_ib_fill_res_mr_raw(struct sk_buff *msg, struct ib_mr *ibmr);

#endif /* QRNIC_IB_H */
