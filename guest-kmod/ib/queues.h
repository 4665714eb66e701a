/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * queues.h: completion queues, shared receive queues, and the rings of kernel QPs.
 */
#ifndef QRNIC_IB_QUEUES_H
#define QRNIC_IB_QUEUES_H

#include "qrnic_ib.h"

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
	bool requested;			/* an event was requested, and not sent */
	bool any_requested;		/* for any completion, not only solicited */
	struct list_head senders;	/* kernel QPs that complete here */
	struct list_head receivers;
};

/* Posted work request, in the slot of its ring */
struct qrnic_ib_request {
	u64 wr_id;
	u32 next;			/* producer index after the WQE */
	u32 number;			/* of all that were ever posted */
	u32 bytes;			/* of receive buffers */
	enum ib_wc_opcode opcode;	/* of its completion */
};

/* Posted receive work request of an SRQ, in its slot */
#define QRNIC_SLOT_POSTED U32_MAX
struct qrnic_ib_slot {
	u64 wr_id;
	u32 link;			/* to the next free one; or POSTED */
	u32 bytes;
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
 * A ring of slots that are freed in any order. The free slots are a list: the next request
 * uses the head, and the slot that was freed last is the tail. The tail is never posted,
 * because a WQE names the slot of the next WQE, which must be free.
 */
struct qrnic_ib_srq {
	struct ib_srq ibsrq;
	struct qrnic_ib_object object;
	u32 srqn;
	u8 log_size;			/* slots */
	u8 log_stride;			/* basic blocks of a slot */
	u32 max_sge;
	struct mutex resize_mutex;	/* serialises resizing */

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
	struct qrnic_ring *ring_to_be;	/* during a resize: gets each WQE, too */
	struct qrnic_ib_slot *slots;	/* as many as it ever had */
	u32 head;
	u32 tail;
	u32 producer;			/* counter of WQEs */
};

static inline struct qrnic_ib_cq *to_qrnic_cq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct qrnic_ib_cq, ibcq);
}

static inline struct qrnic_ib_srq *to_qrnic_srq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct qrnic_ib_srq, ibsrq);
}

/* Returns true if the ring has a CQE. Called under the lock. */
static inline bool qrnic_cq_written(struct qrnic_ib_cq *cq)
{
	return qrnic_cqe_written(&cq->ring, cq->consumer, cq->log_size);
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

/*
 * Returns true if a ring of a process has one slot more than WQEs, and is not larger than
 * any SRQ needs.
 */
static inline bool qrnic_srq_size_ok(const struct qrnic_ib_dev *dev, u32 log_size,
				     u32 max_wr)
{
	return log_size && log_size <= ilog2(2 * dev->qdev->caps.max_srq_wr) &&
	       max_wr < BIT(log_size);
}

/* cq.c */
void qrnic_cq_clean(struct qrnic_ib_cq *cq, u32 qpn);

/* srq.c */
int qrnic_stream_get(struct qrnic_ib_dev *dev, const struct qrnic_stream *stream,
		     bool wanted, struct qrnic_stream_attr *hw);
bool qrnic_srq_complete(struct qrnic_ib_dev *dev, u32 srqn, u32 slot,
			struct qrnic_ib_request *request);

/* srq_resize.c */
int qrnic_srq_resize(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
		     const struct ib_srq_attr *attr, bool with_limit,
		     struct ib_udata *udata);

#endif /* QRNIC_IB_QUEUES_H */
