// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * post.c: posts work requests of users in the kernel as WQEs (manual, WQE
 * formats). A list of requests needs one update of the record and one doorbell.
 *
 * Users call these functions in any context. The lock of the queue serialises
 * posters and protects the state that they check. For each request the slot is
 * written before the producer index, and the poller (cq.c) frees it.
 */
#include "memory.h"
#include "qp.h"
#include "qrnic_ib.h"
#include "queues.h"
#include "verbs.h"

#define SEGMENTS_PER_BLOCK (QRNIC_WQEBB_SIZE / QRNIC_SEGMENT_SIZE)

/*
 * Position of the next segment in a ring. A send WQE may continue at the start
 * of the ring.
 */
struct wqe_cursor {
	const struct qrnic_ring *ring;
	/* Number of the segment, counting without end */
	u32 segment;
	u32 mask;		/* number of segments in the ring - 1 */
};

/*
 * Sets the position. index, log_size and log_stride have the same unit: blocks,
 * WQEs or slots.
 */
static void qrnic_cursor_init(struct wqe_cursor *cursor, const struct qrnic_ring *ring,
			      u32 index, u32 log_size, u32 log_stride)
{
	u32 log_segments = log_stride + ilog2(SEGMENTS_PER_BLOCK);

	cursor->ring = ring;
	cursor->segment = index << log_segments;
	cursor->mask = BIT(log_size + log_segments) - 1;
}

static void *qrnic_cursor_next(struct wqe_cursor *cursor)
{
	size_t at = (size_t)(cursor->segment++ & cursor->mask) * QRNIC_SEGMENT_SIZE;

	return qrnic_ring_at(cursor->ring, at);
}

static void qrnic_put_remote(struct wqe_cursor *cursor, u64 address, u32 rkey)
{
	struct qrnic_remote_seg *segment = qrnic_cursor_next(cursor);

	segment->address = cpu_to_le64(address);
	segment->rkey = cpu_to_le32(rkey);
	segment->rsvd0 = 0;
}

static void qrnic_put_data(struct wqe_cursor *cursor, const struct ib_sge *sge, int num)
{
	struct qrnic_data_seg *segment;

	for (; num; num--, sge++) {
		segment = qrnic_cursor_next(cursor);
		segment->address = cpu_to_le64(sge->addr);
		segment->length = cpu_to_le32(sge->length);
		segment->lkey = cpu_to_le32(sge->lkey);
	}
}

/* Writes inline data, the bytes of all SGEs contiguously. */
static void qrnic_put_inline(struct wqe_cursor *cursor, const struct ib_sge *sge,
			     int num)
{
	size_t size = ((size_t)cursor->mask + 1) * QRNIC_SEGMENT_SIZE;
	size_t at = (size_t)(cursor->segment & cursor->mask) * QRNIC_SEGMENT_SIZE;
	size_t total = 0, part, left;

	for (; num; num--, sge++) {
		const u8 *data = (const u8 *)(uintptr_t)sge->addr;

		/*
		 * Each copy ends at the end of the ring or of a chunk, because
		 * chunks are not contiguous.
		 */
		for (left = sge->length; left; left -= part) {
			part = min3(left, size - at, QRNIC_RING_CHUNK -
				    (at & (QRNIC_RING_CHUNK - 1)));
			memcpy(qrnic_ring_at(cursor->ring, at), data, part);
			data += part;
			at = (at + part) & (size - 1);
		}
		total += sge->length;
	}

	/*
	 * The rest of the segment is cleared, so that the WQE does not contain
	 * old bytes. A segment does not cross the end of a chunk.
	 */
	if (total % QRNIC_SEGMENT_SIZE)
		memset(qrnic_ring_at(cursor->ring, at), 0,
		       QRNIC_SEGMENT_SIZE - total % QRNIC_SEGMENT_SIZE);
	cursor->segment += DIV_ROUND_UP(total, QRNIC_SEGMENT_SIZE);
}

/* Segments between the control segment and the data */
enum send_form {
	FORM_SEND,		/* nothing, or the datagram segment */
	FORM_RDMA,
	FORM_ATOMIC,
	FORM_LOCAL,		/* nothing; the request has no data */
	/* Registration segment; the request has no data */
	FORM_REG,
};

/* Properties of an opcode of verbs */
struct send_operation {
	u8 opcode;
	u8 form;		/* segments (enum send_form) */
	enum ib_wc_opcode completion;
	bool immediate;
	bool invalidate;
	/* True if the WQE may contain the data (inline) */
	bool in_place;
	/* Bit mask of the types of QP that support it */
	u32 types;
};

#define RELIABLE BIT(IB_QPT_RC)
#define CONNECTED (RELIABLE | BIT(IB_QPT_UC))
#define ANY (CONNECTED | BIT(IB_QPT_UD) | BIT(IB_QPT_GSI))

static const struct send_operation qrnic_send_operations[] = {
	[IB_WR_SEND] = {
		.types = ANY, .opcode = QRNIC_WQE_SEND, .form = FORM_SEND,
		.in_place = true,
		.completion = IB_WC_SEND,
	},
	[IB_WR_SEND_WITH_IMM] = {
		.types = ANY, .opcode = QRNIC_WQE_SEND_IMM, .form = FORM_SEND,
		.in_place = true, .immediate = true,
		.completion = IB_WC_SEND,
	},
	[IB_WR_SEND_WITH_INV] = {
		.types = RELIABLE, .opcode = QRNIC_WQE_SEND_INV,
		.form = FORM_SEND, .in_place = true, .invalidate = true,
		.completion = IB_WC_SEND,
	},
	[IB_WR_RDMA_WRITE] = {
		.types = CONNECTED, .opcode = QRNIC_WQE_RDMA_WRITE,
		.form = FORM_RDMA, .in_place = true,
		.completion = IB_WC_RDMA_WRITE,
	},
	[IB_WR_RDMA_WRITE_WITH_IMM] = {
		.types = CONNECTED, .opcode = QRNIC_WQE_RDMA_WRITE_IMM,
		.form = FORM_RDMA, .in_place = true, .immediate = true,
		.completion = IB_WC_RDMA_WRITE,
	},
	[IB_WR_RDMA_READ] = {
		.types = RELIABLE, .opcode = QRNIC_WQE_RDMA_READ,
		.form = FORM_RDMA,
		.completion = IB_WC_RDMA_READ,
	},
	[IB_WR_ATOMIC_CMP_AND_SWP] = {
		.types = RELIABLE, .opcode = QRNIC_WQE_ATOMIC_CMP_SWAP,
		.form = FORM_ATOMIC,
		.completion = IB_WC_COMP_SWAP,
	},
	[IB_WR_ATOMIC_FETCH_AND_ADD] = {
		.types = RELIABLE, .opcode = QRNIC_WQE_ATOMIC_FETCH_ADD,
		.form = FORM_ATOMIC,
		.completion = IB_WC_FETCH_ADD,
	},
	[IB_WR_LOCAL_INV] = {
		.types = CONNECTED, .opcode = QRNIC_WQE_LOCAL_INV,
		.form = FORM_LOCAL, .invalidate = true,
		.completion = IB_WC_LOCAL_INV,
	},
	[IB_WR_REG_MR] = {
		.types = CONNECTED, .opcode = QRNIC_WQE_REG_MR,
		.form = FORM_REG,
		.completion = IB_WC_REG_MR,
	},
};

static const struct send_operation *qrnic_send_operation(enum ib_qp_type type,
							 enum ib_wr_opcode opcode)
{
	if ((unsigned int)opcode >= ARRAY_SIZE(qrnic_send_operations) ||
	    !(qrnic_send_operations[opcode].types & BIT(type)))
		return NULL;
	return &qrnic_send_operations[opcode];
}

/* Returns the number of segments before the data. */
static u32 qrnic_fixed_segments(enum ib_qp_type type,
				const struct send_operation *operation)
{
	switch (operation->form) {
	case FORM_RDMA:
		return 2;
	case FORM_ATOMIC:
		return 3;
	case FORM_REG:
		return 4;
	default:
		return qrnic_qp_is_datagram(type) ? 4 : 1;
	}
}

/* Returns the number of bytes of the inline data, or -EINVAL. */
static int qrnic_inline_length(struct qrnic_ib_qp *qp, const struct ib_send_wr *wr,
			       const struct send_operation *operation)
{
	u64 total = 0;
	int i;

	/*
	 * Rejected, because the response of a read or an atomic cannot be
	 * written to the WQE.
	 */
	if (!operation->in_place)
		return -EINVAL;

	for (i = 0; i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	return total > qp->cap.max_inline_data ? -EINVAL : (int)total;
}

static u32 qrnic_wqe_flags(struct qrnic_ib_qp *qp, const struct ib_send_wr *wr)
{
	u32 flags = 0;

	if (qp->signal_all || wr->send_flags & IB_SEND_SIGNALED)
		flags |= QRNIC_WQEF_SIGNALED;
	if (wr->send_flags & IB_SEND_FENCE)
		flags |= QRNIC_WQEF_FENCE;
	if (wr->send_flags & IB_SEND_SOLICITED)
		flags |= QRNIC_WQEF_SOLICITED;
	if (wr->send_flags & IB_SEND_INLINE)
		flags |= QRNIC_WQEF_INLINE;
	return flags;
}

static void qrnic_put_atomic(struct wqe_cursor *cursor, const struct ib_send_wr *wr)
{
	const struct ib_atomic_wr *atomic = atomic_wr(wr);
	struct qrnic_atomic_seg *segment;

	qrnic_put_remote(cursor, atomic->remote_addr, atomic->rkey);
	segment = qrnic_cursor_next(cursor);
	if (wr->opcode == IB_WR_ATOMIC_CMP_AND_SWP) {
		segment->swap_add = cpu_to_le64(atomic->swap);
		segment->compare = cpu_to_le64(atomic->compare_add);
	} else {
		segment->swap_add = cpu_to_le64(atomic->compare_add);
		segment->compare = 0;
	}
}

/*
 * Writes the datagram segment. The segment fills the rest of the first basic
 * block, so it is contiguous.
 */
static void qrnic_put_datagram(struct wqe_cursor *cursor, const struct ib_send_wr *wr)
{
	const struct ib_ud_wr *ud = ud_wr(wr);
	struct qrnic_datagram_seg *segment = qrnic_cursor_next(cursor);

	segment->av = to_qrnic_ah(ud->ah)->av;
	segment->dest_qpn = cpu_to_le32(ud->remote_qpn);
	segment->qkey = cpu_to_le32(ud->remote_qkey);
	segment->rsvd0 = 0;
	cursor->segment += sizeof(*segment) / QRNIC_SEGMENT_SIZE - 1;
}

static void qrnic_put_registration(struct wqe_cursor *cursor,
				   const struct ib_send_wr *wr)
{
	const struct ib_reg_wr *reg = reg_wr(wr);
	struct qrnic_reg_seg *segment = qrnic_cursor_next(cursor);

	memset(segment, 0, sizeof(*segment));
	segment->key = cpu_to_le32(reg->key);
	segment->access = qrnic_rights_of_access(reg->access);
	segment->start = cpu_to_le64(reg->mr->iova);
	segment->length = cpu_to_le64(reg->mr->length);
	segment->table = qrnic_mr_pages(to_qrnic_mr(reg->mr));
}

static void qrnic_send_wqe_write(struct qrnic_ib_qp *qp, const struct ib_send_wr *wr,
				 const struct send_operation *operation, u32 segments,
				 u32 bytes)
{
	struct qrnic_sq_ctrl *control;
	struct wqe_cursor cursor;

	qrnic_cursor_init(&cursor, &qp->sq.ring, qp->sq.producer, qp->sq_log_size, 0);
	control = qrnic_cursor_next(&cursor);
	control->operation =
		cpu_to_le32(FIELD_PREP(QRNIC_SQ_CTRL_OPCODE_MASK,
				       operation->opcode) |
			    FIELD_PREP(QRNIC_SQ_CTRL_FLAGS_MASK,
				       qrnic_wqe_flags(qp, wr)) |
			    FIELD_PREP(QRNIC_SQ_CTRL_SEGMENTS_MASK, segments));
	control->index = cpu_to_le32(qp->sq.producer);
	control->imm = operation->immediate ? wr->ex.imm_data : 0;
	if (operation->invalidate)
		control->imm = cpu_to_be32(wr->ex.invalidate_rkey);
	control->inline_length = cpu_to_le32(bytes);

	switch (operation->form) {
	case FORM_SEND:
		if (qrnic_qp_is_datagram(qp->ibqp.qp_type))
			qrnic_put_datagram(&cursor, wr);
		break;
	case FORM_RDMA:
		qrnic_put_remote(&cursor, rdma_wr(wr)->remote_addr, rdma_wr(wr)->rkey);
		break;
	case FORM_ATOMIC:
		qrnic_put_atomic(&cursor, wr);
		break;
	case FORM_LOCAL:
		return;
	case FORM_REG:
		qrnic_put_registration(&cursor, wr);
		return;
	}

	if (wr->send_flags & IB_SEND_INLINE)
		qrnic_put_inline(&cursor, wr->sg_list, wr->num_sge);
	else
		qrnic_put_data(&cursor, wr->sg_list, wr->num_sge);
}

/* Records the request, and advances the producer index beyond its WQE. */
static void qrnic_queue_advance(struct qrnic_ib_queue *queue, u64 wr_id, u32 entries,
				enum ib_wc_opcode opcode, u32 bytes)
{
	struct qrnic_ib_request *request =
		&queue->requests[queue->producer & queue->mask];

	request->wr_id = wr_id;
	request->next = queue->producer + entries;
	request->bytes = bytes;
	request->opcode = opcode;
	request->number = ++queue->posted;
	/*
	 * Pairs with qrnic_queue_complete(), which rejects CQEs of requests
	 * beyond the producer index.
	 */
	smp_store_release(&queue->producer, request->next);
}

static bool qrnic_queue_has_room(struct qrnic_ib_queue *queue, u32 entries)
{
	/*
	 * Pairs with the release in qrnic_queue_complete(), so the slots have
	 * been read.
	 */
	u32 consumer = smp_load_acquire(&queue->consumer);

	/*
	 * The number of requests is limited, too, because small WQEs may leave
	 * room for more than max_wr.
	 */
	return queue->producer + entries - consumer <= queue->mask + 1 &&
	       queue->posted - READ_ONCE(queue->retired) < queue->max_wr;
}

static int qrnic_send_post_one(struct qrnic_ib_qp *qp, const struct ib_send_wr *wr)
{
	enum ib_qp_type type = qp->ibqp.qp_type;
	const struct send_operation *operation = qrnic_send_operation(type, wr->opcode);
	u32 segments, blocks;
	int bytes = 0;

	if (!operation)
		return -EOPNOTSUPP;
	if (wr->num_sge < 0 || wr->num_sge > qp->sq.max_sge ||
	    (operation->form == FORM_ATOMIC && wr->num_sge != 1))
		return -EINVAL;

	segments = qrnic_fixed_segments(type, operation);
	if (wr->send_flags & IB_SEND_INLINE) {
		bytes = qrnic_inline_length(qp, wr, operation);
		if (bytes < 0)
			return bytes;
		segments += DIV_ROUND_UP(bytes, QRNIC_SEGMENT_SIZE);
	} else if (operation->form < FORM_LOCAL) {
		segments += wr->num_sge;
	}

	blocks = DIV_ROUND_UP(segments, SEGMENTS_PER_BLOCK);
	if (!qrnic_queue_has_room(&qp->sq, blocks))
		return -ENOMEM;

	qrnic_send_wqe_write(qp, wr, operation, segments, bytes);
	qrnic_queue_advance(&qp->sq, wr->wr_id, blocks, operation->completion, 0);
	return 0;
}

/*
 * Publishes the producer index and rings the doorbell, unless the device reads
 * the record by itself; old is the producer index before the new requests. In
 * the fatal state the device reads neither, but a QP in ERR must flush its
 * requests, so the work item of flush.c is scheduled.
 */
static void qrnic_sq_ring(struct qrnic_ib_dev *dev, struct qrnic_ib_queue *sq, u32 qpn,
			  u32 old, bool healthy)
{
	if (!healthy)
		qrnic_flush_schedule(dev);
	else if (qrnic_sq_record_publish(dev->qdev, sq->ring.queue_record, old,
					 sq->producer))
		qrnic_ring_doorbell(dev->qdev, QRNIC_DB_SQ, qpn, sq->producer);
}

/* Does the same for a receive queue, which always needs the doorbell. */
static void qrnic_rq_ring(struct qrnic_ib_dev *dev, struct qrnic_ib_queue *rq, u32 qpn,
			  bool healthy)
{
	if (!healthy) {
		qrnic_flush_schedule(dev);
		return;
	}
	qrnic_record_publish(&rq->ring.queue_record->producer, rq->producer);
	qrnic_ring_doorbell(dev->qdev, QRNIC_DB_RQ, qpn, rq->producer);
}

int qrnic_ib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		       const struct ib_send_wr **bad_wr)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	unsigned long flags;
	bool healthy;
	int err = 0;
	u32 first;

	spin_lock_irqsave(&qp->sq.lock, flags);
	first = qp->sq.producer;
	healthy = qrnic_healthy(dev->qdev);
	if (qp->state < IB_QPS_RTS)
		err = -EINVAL;
	else if (!healthy && qp->state != IB_QPS_ERR)
		err = -EIO;
	if (err) {
		*bad_wr = wr;
		goto out;
	}

	for (; wr; wr = wr->next) {
		err = qrnic_send_post_one(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}

	if (qp->sq.producer != first)
		qrnic_sq_ring(dev, &qp->sq, ibqp->qp_num, first, healthy);
out:
	spin_unlock_irqrestore(&qp->sq.lock, flags);
	return err;
}

static void qrnic_put_recv(struct wqe_cursor *cursor, const struct ib_recv_wr *wr,
			   u32 index, u32 next)
{
	struct qrnic_recv_ctrl *control = qrnic_cursor_next(cursor);

	control->data_segments = cpu_to_le32(wr->num_sge);
	control->index = cpu_to_le32(index);
	control->next = cpu_to_le32(next);
	control->rsvd0 = 0;
	qrnic_put_data(cursor, wr->sg_list, wr->num_sge);
}

/*
 * Returns the bytes of the receive buffers, at most 32 bits, because no message
 * is longer.
 */
static u32 qrnic_recv_bytes(const struct ib_recv_wr *wr)
{
	u64 total = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	return min_t(u64, total, U32_MAX);
}

static int qrnic_recv_post_one(struct qrnic_ib_qp *qp, const struct ib_recv_wr *wr)
{
	struct wqe_cursor cursor;

	if (wr->num_sge < 0 || wr->num_sge > qp->rq.max_sge)
		return -EINVAL;
	if (!qrnic_queue_has_room(&qp->rq, 1))
		return -ENOMEM;

	qrnic_cursor_init(&cursor, &qp->rq.ring, qp->rq.producer, qp->rq_log_size,
			  qp->rq_log_stride);
	qrnic_put_recv(&cursor, wr, qp->rq.producer, 0);
	qrnic_queue_advance(&qp->rq, wr->wr_id, 1, IB_WC_RECV, qrnic_recv_bytes(wr));
	return 0;
}

int qrnic_ib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	unsigned long flags;
	bool healthy;
	int err = 0;
	u32 first;

	spin_lock_irqsave(&qp->rq.lock, flags);
	first = qp->rq.producer;
	healthy = qrnic_healthy(dev->qdev);
	if (qp->state == IB_QPS_RESET || !qp->has_rq)
		err = -EINVAL;
	else if (!healthy && qp->state != IB_QPS_ERR)
		err = -EIO;
	if (err) {
		*bad_wr = wr;
		goto out;
	}

	for (; wr; wr = wr->next) {
		err = qrnic_recv_post_one(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}

	if (qp->rq.producer != first)
		qrnic_rq_ring(dev, &qp->rq, ibqp->qp_num, healthy);
out:
	spin_unlock_irqrestore(&qp->rq.lock, flags);
	return err;
}

static void qrnic_srq_wqe_write(const struct qrnic_ib_srq *srq,
				const struct qrnic_ring *ring,
				const struct ib_recv_wr *wr, u32 slot, u32 next)
{
	struct wqe_cursor cursor;

	qrnic_cursor_init(&cursor, ring, slot, srq->log_size, srq->log_stride);
	qrnic_put_recv(&cursor, wr, slot, next);
}

static int qrnic_srq_post_one(struct qrnic_ib_srq *srq, const struct ib_recv_wr *wr)
{
	u32 next, slot = srq->head;

	if (wr->num_sge < 0 || wr->num_sge > srq->max_sge)
		return -EINVAL;
	if (slot == srq->tail)
		return -ENOMEM;

	next = srq->slots[slot].link;
	qrnic_srq_wqe_write(srq, &srq->ring, wr, slot, next);
	if (unlikely(srq->ring_to_be))
		qrnic_srq_wqe_write(srq, srq->ring_to_be, wr, slot, next);
	srq->slots[slot] = (struct qrnic_ib_slot) {
		.wr_id = wr->wr_id,
		.link = QRNIC_SLOT_POSTED,
		.bytes = qrnic_recv_bytes(wr),
	};
	srq->head = next;
	srq->producer++;
	return 0;
}

int qrnic_ib_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
			   const struct ib_recv_wr **bad_wr)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibsrq->device);
	struct qrnic_ib_srq *srq = to_qrnic_srq(ibsrq);
	unsigned long flags;
	u32 first;
	int err = 0;

	spin_lock_irqsave(&srq->lock, flags);
	first = srq->producer;
	if (!qrnic_healthy(dev->qdev)) {
		*bad_wr = wr;
		err = -EIO;
		goto out;
	}

	for (; wr; wr = wr->next) {
		err = qrnic_srq_post_one(srq, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}

	/*
	 * A doorbell is not needed, because the device reads the record when it
	 * consumes a WQE.
	 */
	if (srq->producer != first)
		qrnic_record_publish(&srq->ring.queue_record->producer, srq->producer);
out:
	spin_unlock_irqrestore(&srq->lock, flags);
	return err;
}
