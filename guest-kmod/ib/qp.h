/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qp.h: queue pairs and the features that only queue pairs have. These are
 * shared connections and their carrier QPs, work queues with RSS, and the flush
 * of kernel QPs.
 *
 * A QP is created by qp.c and modified by qp_modify.c. While it exists, events
 * and completions find it by its number (object.c) and hold a reference. The
 * mutex of a QP serialises modify and query. Each queue of a kernel QP has a
 * lock for its posters.
 */
#ifndef QRNIC_IB_QP_H
#define QRNIC_IB_QP_H

#include "queues.h"

/*
 * Work item for page faults of one side of a QP; has a reference to the QP
 * while queued
 */
struct qrnic_ib_fault {
	struct work_struct work;
	struct qrnic_ib_qp *qp;
	/* Side: the last bit of the number of the page fault */
	u32 side;
};

/*
 * Carrier QP of a shared connection. The carrier exists in the device as long
 * as its queue pair, its share or a member exists. Members may belong to other
 * processes.
 */
struct qrnic_ib_carrier {
	struct qrnic_ib_dev *dev;
	/* References of the queue pair or the share, and of each member */
	struct kref users;
	/* Number of members */
	atomic_t members;
	u32 number;
	/* Random key, which a process needs to join members */
	u64 key;
#ifdef CONFIG_CGROUP_RDMA
	/* Cgroup that is charged for the carrier */
	struct rdma_cgroup *cgroup;
#endif
	/*
	 * Source GID of the path; under the mutex of the QP, or sharing_mutex
	 */
	const struct ib_gid_attr *sgid;
	struct rcu_head rcu;
};

/* Queue pair */
struct qrnic_ib_qp {
	struct ib_qp ibqp;
	struct qrnic_ib_object object;
	struct qrnic_ib_fault faults[2];

	/* Serialises modify and query; protects state */
	struct mutex mutex;
	/* State; written under the mutex and both queue locks */
	enum ib_qp_state state;
	struct ib_qp_cap cap;
	bool signal_all;
	/* False for an XRC target, a dynamic target and a carrier */
	bool has_sq;
	bool has_rq;			/* true if it receives without an SRQ */
	/* QRNIC_DRIVER_TYPE_* of a QP of type IB_QPT_DRIVER */
	u8 driver_type;
	/* options (QRNIC_QPO_*) of this end of the connection */
	u8 options;
	/* Options in force, as the device last reported */
	u8 options_in_force;
	/* Service level that the caller requested; under mutex */
	u8 sl;
	/* Level that follows from the address vector */
	u8 av_level;
	/*
	 * Requested priority level plus 1; 0 if the caller requested no level
	 */
	u8 priority;
	bool is_carrier;
	/*
	 * Carrier of this QP itself, or of the connection that it is a member
	 * of; or NULL. Written under the mutex
	 */
	struct qrnic_ib_carrier __rcu *carrier;
	/* Share that this end requested or accepted; or NULL */
	struct qrnic_ib_share *share;
	u32 rss;			/* number of the table for RSS, or 0 */
	/* Doorbell page of its own, or NULL */
	struct qrnic_ib_db_page *db_page;

	u8 sq_log_size;			/* log2 of the SQ in basic blocks */
	u8 rq_log_size;			/* log2 of the RQ in WQEs */
	/* log2 of a receive WQE in basic blocks */
	u8 rq_log_stride;

	/* QP of user space only */
	struct ib_umem *umem;
	/*
	 * Number of the address space of the poller; 0 if there is no inline
	 * data
	 */
	u32 address_space;
	struct qrnic_table sq_table;
	struct qrnic_table rq_table;

	/* QP of the kernel only */
	struct qrnic_ib_queue sq;
	struct qrnic_ib_queue rq;
	/*
	 * True if the event LAST_WQE_REACHED is pending; under the lock of sq
	 */
	bool last_wqe_due;
	/* Entries of the lists in its CQs, under their locks */
	struct list_head send_entry;
	struct list_head recv_entry;
};

/*
 * Returns true if the QP belongs to a user in the kernel. XRC targets have
 * neither queues nor CQs, so they do not count.
 */
static inline bool qrnic_qp_is_kernel(const struct qrnic_ib_qp *qp)
{
	return qp->has_sq && !qp->umem;
}

static inline struct qrnic_ib_qp *to_qrnic_qp(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct qrnic_ib_qp, ibqp);
}

/* Returns true for the types of QP that send datagrams. */
static inline bool qrnic_qp_is_datagram(enum ib_qp_type type)
{
	return type == IB_QPT_UD || type == IB_QPT_GSI;
}

/* Returns the QP of this number with a reference, or NULL. Any context. */
static inline struct qrnic_ib_qp *qrnic_qp_get(struct qrnic_ib_dev *dev, u32 qpn)
{
	struct qrnic_ib_object *object = qrnic_object_get(&dev->qps, qpn);

	return object ? container_of(object, struct qrnic_ib_qp, object) : NULL;
}

/* Releases a reference from qrnic_qp_get(). Any context. */
static inline void qrnic_qp_put(struct qrnic_ib_qp *qp)
{
	qrnic_object_put(&qp->object);
}

/* qp.c: removes the CQEs of a QP from its CQs */
void qrnic_qp_clean(struct qrnic_ib_qp *qp);

/* qp_modify.c: priorities */
/*
 * Returns the priority as in struct qrnic_modify_qp_req, and the level that
 * follows from it.
 */
int qrnic_ib_query_priority(struct ib_qp *ibqp, u32 *priority, u32 *level);

/* carrier.c: carrier QPs of shared connections */
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

/* sharing.c: shared connections that the driver creates */
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

/* wq.c: receive work queues and RSS */
bool qrnic_wq_event(struct qrnic_ib_dev *dev, u32 number, enum ib_event_type type);
int qrnic_rss_create(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
		     const struct ib_qp_init_attr *init, struct ib_udata *udata);
void qrnic_rss_destroy(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp);

/* queue.c: queues of kernel QPs */
int qrnic_kernel_queues_create(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
			       struct ib_qp_init_attr *init);
void qrnic_kernel_queues_destroy(struct qrnic_ib_dev *dev,
				 struct qrnic_ib_qp *qp);
void qrnic_kernel_queues_reset(struct qrnic_ib_qp *qp);
bool qrnic_queue_complete(struct qrnic_ib_queue *queue, u32 index,
			  struct qrnic_ib_request *request);

/* flush.c: completions of kernel QPs in the fatal state */
void qrnic_flush_attach(struct qrnic_ib_qp *qp);
void qrnic_flush_detach(struct qrnic_ib_qp *qp);
int qrnic_flush_poll(struct qrnic_ib_cq *cq, int num, struct ib_wc *wc);
bool qrnic_flush_pending(struct qrnic_ib_cq *cq);
void qrnic_flush_work(struct work_struct *work);
void qrnic_flush_schedule(struct qrnic_ib_dev *dev);

#endif /* QRNIC_IB_QP_H */
