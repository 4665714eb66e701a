/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * qp.h: queue pairs and everything that only they have: shared connections and their
 * carrier QPs, work queues with RSS, and the flush of kernel QPs in the fatal state.
 */
#ifndef QRNIC_IB_QP_H
#define QRNIC_IB_QP_H

#include "queues.h"

/* Work item for page faults of one side of a QP; has a reference to the QP while queued */
struct qrnic_ib_fault {
	struct work_struct work;
	struct qrnic_ib_qp *qp;
	u32 side;
};

/*
 * The carrier QP of a shared connection. It stays in the device as long as its queue pair
 * or a member exists; members may belong to other processes.
 */
struct qrnic_ib_carrier {
	struct qrnic_ib_dev *dev;
	struct kref users;		/* the queue pair or share, and members */
	atomic_t members;
	u32 number;
	u64 key;			/* random; a process needs it to join members */
#ifdef CONFIG_CGROUP_RDMA
	struct rdma_cgroup *cgroup;	/* charged for the carrier */
#endif
	/* Source GID of its path; under the mutex of the QP, or sharing_mutex */
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
	bool has_sq;			/* false: XRC or dynamic target, or carrier */
	bool has_rq;			/* it receives, without an SRQ */
	u8 driver_type;			/* QRNIC_DRIVER_TYPE_*, if it is IB_QPT_DRIVER */
	u8 options;			/* QRNIC_QPO_*, which this end agreed to */
	u8 options_in_force;		/* as the device reported last */
	u8 sl;				/* the caller's; under mutex */
	u8 av_level;			/* the level by the address vector */
	u8 priority;			/* one more than another level; or 0 */
	bool is_carrier;
	/* Its own carrier, or the one whose member it is; or NULL. Written under the mutex */
	struct qrnic_ib_carrier __rcu *carrier;
	struct qrnic_ib_share *share;	/* offered or answered; or NULL */
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

/* Returns true for QPs of users in the kernel. An XRC target has neither queues nor CQs. */
static inline bool qrnic_qp_is_kernel(const struct qrnic_ib_qp *qp)
{
	return qp->has_sq && !qp->umem;
}

static inline struct qrnic_ib_qp *to_qrnic_qp(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct qrnic_ib_qp, ibqp);
}

static inline bool qrnic_qp_is_datagram(enum ib_qp_type type)
{
	return type == IB_QPT_UD || type == IB_QPT_GSI;
}

static inline struct qrnic_ib_qp *qrnic_qp_get(struct qrnic_ib_dev *dev, u32 qpn)
{
	struct qrnic_ib_object *object = qrnic_object_get(&dev->qps, qpn);

	return object ? container_of(object, struct qrnic_ib_qp, object) : NULL;
}

static inline void qrnic_qp_put(struct qrnic_ib_qp *qp)
{
	qrnic_object_put(&qp->object);
}

/* qp.c */
void qrnic_qp_clean(struct qrnic_ib_qp *qp);

/* qp_modify.c */
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
bool qrnic_wq_event(struct qrnic_ib_dev *dev, u32 number, enum ib_event_type type);
int qrnic_rss_create(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
		     const struct ib_qp_init_attr *init, struct ib_udata *udata);
void qrnic_rss_destroy(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp);

/* queue.c */
int qrnic_kernel_queues_create(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
			       struct ib_qp_init_attr *init);
void qrnic_kernel_queues_destroy(struct qrnic_ib_dev *dev,
				 struct qrnic_ib_qp *qp);
void qrnic_kernel_queues_reset(struct qrnic_ib_qp *qp);
bool qrnic_queue_complete(struct qrnic_ib_queue *queue, u32 index,
			  struct qrnic_ib_request *request);

/* flush.c */
void qrnic_flush_attach(struct qrnic_ib_qp *qp);
void qrnic_flush_detach(struct qrnic_ib_qp *qp);
int qrnic_flush_poll(struct qrnic_ib_cq *cq, int num, struct ib_wc *wc);
bool qrnic_flush_pending(struct qrnic_ib_cq *cq);
void qrnic_flush_work(struct work_struct *work);
void qrnic_flush_schedule(struct qrnic_ib_dev *dev);

#endif /* QRNIC_IB_QP_H */
