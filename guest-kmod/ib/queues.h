/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * queues.h: completion queues, shared receive queues, and the rings of kernel
 * QPs.
 *
 * Processes access the rings of their own queues; the driver only keeps their
 * memory pinned. For a queue of the kernel, post.c is the producer and cq.c the
 * consumer. The lock of a CQ is taken before the lock of an SRQ.
 */
#ifndef QRNIC_IB_QUEUES_H
#define QRNIC_IB_QUEUES_H

#include "qrnic_ib.h"

/* Completion queue */
struct qrnic_ib_cq {
	struct ib_cq ibcq;
	struct qrnic_cq core;
	u8 log_size;

	/* CQ of user space only: pinned pages, and their translation */
	struct ib_umem *umem;
	struct qrnic_table table;
	/* Protects umem, table, log_size and ring_umem */
	struct mutex resize_mutex;
	/* Memory of the ring after a resize; umem has only the record then */
	struct ib_umem *ring_umem;

	/* CQ of the kernel only */
	/*
	 * Protects all members below; taken before the locks of queues and
	 * SRQs, and inside no other spinlock of the driver
	 */
	spinlock_t lock;
	struct qrnic_ring ring;
	u32 consumer;			/* number of CQEs that were polled */
	/* Sequence number of the last request for an event */
	u32 arm_sequence;
	/* True if an event was requested and has not come */
	bool requested;
	/*
	 * True if this event was requested for any completion, not only for
	 * solicited ones
	 */
	bool any_requested;
	/* Kernel QPs whose send or receive completions come here */
	struct list_head senders;
	struct list_head receivers;
};

/* Posted work request, in the slot of its ring */
struct qrnic_ib_request {
	u64 wr_id;
	u32 next;			/* producer index after the WQE */
	/* Number of the request, counting all that were ever posted */
	u32 number;
	u32 bytes;			/* bytes of the receive buffers */
	enum ib_wc_opcode opcode;	/* opcode of its completion */
};

/* Posted receive work request of an SRQ, in its slot */
#define QRNIC_SLOT_POSTED U32_MAX
struct qrnic_ib_slot {
	u64 wr_id;
	/* Next free slot, or QRNIC_SLOT_POSTED */
	u32 link;
	u32 bytes;
};

/*
 * Ring of a kernel QP. The poster, which holds the lock, owns producer and
 * writes slots. The poller, which holds the lock of the CQ, owns consumer and
 * reads slots.
 */
struct qrnic_ib_queue {
	/* Serialises posters; protects the state that they check */
	spinlock_t lock;
	struct qrnic_ring ring;
	struct qrnic_ib_request *requests;
	u32 mask;			/* number of entries - 1 */
	u32 producer;
	u32 consumer;
	u32 posted;			/* number of the newest request */
	/* Number of the newest request with a completion */
	u32 retired;
	u32 max_wr;
	u32 max_sge;
};

/*
 * Shared receive queue: a ring of slots that are freed in any order.
 *
 * The free slots form a list. The next request uses the head, and a freed slot
 * becomes the tail. The tail is never posted, because a WQE contains the slot
 * of the next WQE, which must be free.
 */
struct qrnic_ib_srq {
	struct ib_srq ibsrq;
	struct qrnic_ib_object object;
	u32 srqn;
	u8 log_size;			/* log2 of the number of slots */
	u8 log_stride;			/* log2 of a slot in basic blocks */
	u32 max_sge;
	struct mutex resize_mutex;	/* serialises resizing */

	/*
	 * SRQ of user space only. After a resize the ring is in ring_umem, and
	 * only the record is in umem.
	 */
	struct ib_umem *umem;
	struct ib_umem *ring_umem;
	struct qrnic_table table;
	/*
	 * Operations of the tag list, for an SRQ with tag matching in user
	 * space; or NULL
	 */
	struct ib_umem *tags_umem;
	struct qrnic_table tags_table;

	/* SRQ of the kernel only */
	/* Protects all members below; taken inside the lock of a CQ */
	spinlock_t lock;
	struct qrnic_ring ring;
	/* New ring during a resize, which receives each WQE, too */
	struct qrnic_ring *ring_to_be;
	/* Array of the largest size that the SRQ ever had */
	struct qrnic_ib_slot *slots;
	u32 head;
	u32 tail;
	u32 producer;			/* number of WQEs that were posted */
};

static inline struct qrnic_ib_cq *to_qrnic_cq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct qrnic_ib_cq, ibcq);
}

static inline struct qrnic_ib_srq *to_qrnic_srq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct qrnic_ib_srq, ibsrq);
}

/* Returns true if the ring has a CQE to poll. Called under the lock. */
static inline bool qrnic_cq_written(struct qrnic_ib_cq *cq)
{
	return qrnic_cqe_written(&cq->ring, cq->consumer, cq->log_size);
}

/* Returns the SRQ of this number with a reference, or NULL. Any context. */
static inline struct qrnic_ib_srq *qrnic_srq_get(struct qrnic_ib_dev *dev,
						 u32 srqn)
{
	struct qrnic_ib_object *object = qrnic_object_get(&dev->srqs, srqn);

	return object ? container_of(object, struct qrnic_ib_srq, object) : NULL;
}

/* Releases a reference from qrnic_srq_get(). Any context. */
static inline void qrnic_srq_put(struct qrnic_ib_srq *srq)
{
	qrnic_object_put(&srq->object);
}

/*
 * Returns true if the ring of a process has at least one slot more than WQEs,
 * and is not larger than any SRQ needs.
 */
static inline bool qrnic_srq_size_ok(const struct qrnic_ib_dev *dev, u32 log_size,
				     u32 max_wr)
{
	return log_size && log_size <= ilog2(2 * dev->qdev->caps.max_srq_wr) &&
	       max_wr < BIT(log_size);
}

/* cq.c: removes the CQEs of a QP */
void qrnic_cq_clean(struct qrnic_ib_cq *cq, u32 qpn);

/* srq.c: shared receive queues */
int qrnic_stream_get(struct qrnic_ib_dev *dev, const struct qrnic_stream *stream,
		     bool wanted, struct qrnic_stream_attr *hw);
bool qrnic_srq_complete(struct qrnic_ib_dev *dev, u32 srqn, u32 slot,
			struct qrnic_ib_request *request);

/* srq_resize.c: resizing */
int qrnic_srq_resize(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
		     const struct ib_srq_attr *attr, bool with_limit,
		     struct ib_udata *udata);

#endif /* QRNIC_IB_QUEUES_H */
