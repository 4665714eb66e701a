// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * post.c: work requests of kernel consumers become WQEs (manual, WQE formats).
 * A list of requests costs one update of the record and one doorbell.
 */
#include "qrnic_ib.h"

#define SEGMENTS_PER_BLOCK (QRNIC_WQEBB_SIZE / QRNIC_SEGMENT_SIZE)

/* Where the next segment goes. Send WQEs may continue at the ring's start. */
struct wqe_cursor {
	const struct qrnic_ring *ring;
	u32 segment;		/* counter of segments */
	u32 mask;		/* segments of the ring - 1 */
};

static void cursor_init(struct wqe_cursor *cursor, struct qrnic_ib_queue *queue,
			u32 log_size, u32 log_stride)
{
	u32 log_segments = log_stride + ilog2(SEGMENTS_PER_BLOCK);

	cursor->ring = &queue->ring;
	cursor->segment = queue->producer << log_segments;
	cursor->mask = BIT(log_size + log_segments) - 1;
}

static void *cursor_next(struct wqe_cursor *cursor)
{
	size_t at = (size_t)(cursor->segment++ & cursor->mask) * QRNIC_SEGMENT_SIZE;

	return qrnic_ring_at(cursor->ring, at);
}

static void put_remote(struct wqe_cursor *cursor, u64 address, u32 rkey)
{
	struct qrnic_remote_seg *segment = cursor_next(cursor);

	segment->address = cpu_to_le64(address);
	segment->rkey = cpu_to_le32(rkey);
	segment->rsvd0 = 0;
}

static void put_data(struct wqe_cursor *cursor, const struct ib_sge *sge, int num)
{
	struct qrnic_data_seg *segment;

	for (; num; num--, sge++) {
		segment = cursor_next(cursor);
		segment->address = cpu_to_le64(sge->addr);
		segment->length = cpu_to_le32(sge->length);
		segment->lkey = cpu_to_le32(sge->lkey);
	}
}

/* Inline data is packed, whatever the lengths of its pieces. */
static void put_inline(struct wqe_cursor *cursor, const struct ib_sge *sge, int num)
{
	size_t size = ((size_t)cursor->mask + 1) * QRNIC_SEGMENT_SIZE;
	size_t at = (size_t)(cursor->segment & cursor->mask) * QRNIC_SEGMENT_SIZE;
	size_t total = 0, part, left;

	for (; num; num--, sge++) {
		const u8 *data = (const u8 *)(uintptr_t)sge->addr;

		/* In pieces that end where the ring or a chunk of it does */
		for (left = sge->length; left; left -= part) {
			part = min3(left, size - at, QRNIC_RING_CHUNK -
				    (at & (QRNIC_RING_CHUNK - 1)));
			memcpy(qrnic_ring_at(cursor->ring, at), data, part);
			data += part;
			at = (at + part) & (size - 1);
		}
		total += sge->length;
	}

	/* No old bytes behind the data; a segment does not cross the end. */
	if (total % QRNIC_SEGMENT_SIZE)
		memset(qrnic_ring_at(cursor->ring, at), 0,
		       QRNIC_SEGMENT_SIZE - total % QRNIC_SEGMENT_SIZE);
	cursor->segment += DIV_ROUND_UP(total, QRNIC_SEGMENT_SIZE);
}

struct send_operation {
	u8 opcode;
	u8 fixed;		/* segments before data and inline data */
	bool immediate;
	bool atomic;
	bool valid;
};

static const struct send_operation send_operations[] = {
	[IB_WR_SEND] = {
		.valid = true, .opcode = QRNIC_WQE_SEND, .fixed = 1,
	},
	[IB_WR_SEND_WITH_IMM] = {
		.valid = true, .opcode = QRNIC_WQE_SEND_IMM, .fixed = 1,
		.immediate = true,
	},
	[IB_WR_RDMA_WRITE] = {
		.valid = true, .opcode = QRNIC_WQE_RDMA_WRITE, .fixed = 2,
	},
	[IB_WR_RDMA_WRITE_WITH_IMM] = {
		.valid = true, .opcode = QRNIC_WQE_RDMA_WRITE_IMM, .fixed = 2,
		.immediate = true,
	},
	[IB_WR_RDMA_READ] = {
		.valid = true, .opcode = QRNIC_WQE_RDMA_READ, .fixed = 2,
	},
	[IB_WR_ATOMIC_CMP_AND_SWP] = {
		.valid = true, .opcode = QRNIC_WQE_ATOMIC_CMP_SWAP, .fixed = 3,
		.atomic = true,
	},
	[IB_WR_ATOMIC_FETCH_AND_ADD] = {
		.valid = true, .opcode = QRNIC_WQE_ATOMIC_FETCH_ADD, .fixed = 3,
		.atomic = true,
	},
};

static const struct send_operation *send_operation(const struct ib_send_wr *wr)
{
	if ((unsigned int)wr->opcode >= ARRAY_SIZE(send_operations) ||
	    !send_operations[wr->opcode].valid)
		return NULL;
	return &send_operations[wr->opcode];
}

/* Number of bytes, or an error */
static int inline_length(struct qrnic_ib_qp *qp, const struct ib_send_wr *wr,
			 const struct send_operation *operation)
{
	u64 total = 0;
	int i;

	/* What comes back cannot be put into the WQE. */
	if (operation->atomic || wr->opcode == IB_WR_RDMA_READ)
		return -EINVAL;

	for (i = 0; i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	return total > qp->cap.max_inline_data ? -EINVAL : (int)total;
}

static u32 wqe_flags(struct qrnic_ib_qp *qp, const struct ib_send_wr *wr)
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

static void put_atomic(struct wqe_cursor *cursor, const struct ib_send_wr *wr)
{
	const struct ib_atomic_wr *atomic = atomic_wr(wr);
	struct qrnic_atomic_seg *segment;

	put_remote(cursor, atomic->remote_addr, atomic->rkey);
	segment = cursor_next(cursor);
	if (wr->opcode == IB_WR_ATOMIC_CMP_AND_SWP) {
		segment->swap_add = cpu_to_le64(atomic->swap);
		segment->compare = cpu_to_le64(atomic->compare_add);
	} else {
		segment->swap_add = cpu_to_le64(atomic->compare_add);
		segment->compare = 0;
	}
}

static void send_wqe_write(struct qrnic_ib_qp *qp, const struct ib_send_wr *wr,
			   const struct send_operation *operation, u32 segments,
			   u32 bytes)
{
	struct qrnic_sq_ctrl *control;
	struct wqe_cursor cursor;

	cursor_init(&cursor, &qp->sq, qp->sq_log_size, 0);
	control = cursor_next(&cursor);
	control->operation =
		cpu_to_le32(FIELD_PREP(QRNIC_SQ_CTRL_OPCODE_MASK,
				       operation->opcode) |
			    FIELD_PREP(QRNIC_SQ_CTRL_FLAGS_MASK,
				       wqe_flags(qp, wr)) |
			    FIELD_PREP(QRNIC_SQ_CTRL_SEGMENTS_MASK, segments));
	control->index = cpu_to_le32(qp->sq.producer);
	control->imm = operation->immediate ? wr->ex.imm_data : 0;
	control->inline_length = cpu_to_le32(bytes);

	if (operation->atomic)
		put_atomic(&cursor, wr);
	else if (operation->fixed > 1)
		put_remote(&cursor, rdma_wr(wr)->remote_addr, rdma_wr(wr)->rkey);

	if (wr->send_flags & IB_SEND_INLINE)
		put_inline(&cursor, wr->sg_list, wr->num_sge);
	else
		put_data(&cursor, wr->sg_list, wr->num_sge);
}

/* Remembers the request and moves producer over its WQE. */
static void queue_advance(struct qrnic_ib_queue *queue, u64 wr_id, u32 entries)
{
	struct qrnic_ib_request *request =
		&queue->requests[queue->producer & queue->mask];

	request->wr_id = wr_id;
	request->next = queue->producer + entries;
	queue->producer = request->next;
}

static bool queue_has_room(struct qrnic_ib_queue *queue, u32 entries)
{
	/* Slots are written after the poller, in queue_complete(), read them. */
	u32 consumer = smp_load_acquire(&queue->consumer);

	return queue->producer + entries - consumer <= queue->mask + 1;
}

static int send_post_one(struct qrnic_ib_qp *qp, const struct ib_send_wr *wr)
{
	const struct send_operation *operation = send_operation(wr);
	u32 segments, blocks;
	int bytes = 0;

	if (!operation)
		return -EOPNOTSUPP;
	if (wr->num_sge < 0 || wr->num_sge > qp->sq.max_sge ||
	    (operation->atomic && wr->num_sge != 1))
		return -EINVAL;

	segments = operation->fixed;
	if (wr->send_flags & IB_SEND_INLINE) {
		bytes = inline_length(qp, wr, operation);
		if (bytes < 0)
			return bytes;
		segments += DIV_ROUND_UP(bytes, QRNIC_SEGMENT_SIZE);
	} else {
		segments += wr->num_sge;
	}

	blocks = DIV_ROUND_UP(segments, SEGMENTS_PER_BLOCK);
	if (!queue_has_room(&qp->sq, blocks))
		return -ENOMEM;

	send_wqe_write(qp, wr, operation, segments, bytes);
	queue_advance(&qp->sq, wr->wr_id, blocks);
	return 0;
}

int qrnic_ib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		       const struct ib_send_wr **bad_wr)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	unsigned long flags;
	u32 first;
	int err = 0;

	spin_lock_irqsave(&qp->sq.lock, flags);
	first = qp->sq.producer;
	if (qp->state < IB_QPS_RTS) {
		*bad_wr = wr;
		err = -EINVAL;
		goto out;
	}

	for (; wr; wr = wr->next) {
		err = send_post_one(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}

	if (qp->sq.producer != first) {
		qrnic_record_publish(&qp->sq.record->producer, qp->sq.producer);
		qrnic_ring_doorbell(dev->qdev, QRNIC_DB_SQ, ibqp->qp_num,
				    qp->sq.producer);
	}
out:
	spin_unlock_irqrestore(&qp->sq.lock, flags);
	return err;
}

static int recv_post_one(struct qrnic_ib_qp *qp, const struct ib_recv_wr *wr)
{
	struct qrnic_recv_ctrl *control;
	struct wqe_cursor cursor;

	if (wr->num_sge < 0 || wr->num_sge > qp->rq.max_sge)
		return -EINVAL;
	if (!queue_has_room(&qp->rq, 1))
		return -ENOMEM;

	cursor_init(&cursor, &qp->rq, qp->rq_log_size, qp->rq_log_stride);
	control = cursor_next(&cursor);
	control->segments = cpu_to_le32(wr->num_sge);
	control->index = cpu_to_le32(qp->rq.producer);
	control->rsvd0 = 0;
	put_data(&cursor, wr->sg_list, wr->num_sge);

	queue_advance(&qp->rq, wr->wr_id, 1);
	return 0;
}

int qrnic_ib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	unsigned long flags;
	u32 first;
	int err = 0;

	spin_lock_irqsave(&qp->rq.lock, flags);
	first = qp->rq.producer;
	if (qp->state == IB_QPS_RESET) {
		*bad_wr = wr;
		err = -EINVAL;
		goto out;
	}

	for (; wr; wr = wr->next) {
		err = recv_post_one(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}

	if (qp->rq.producer != first) {
		qrnic_record_publish(&qp->rq.record->producer, qp->rq.producer);
		qrnic_ring_doorbell(dev->qdev, QRNIC_DB_RQ, ibqp->qp_num,
				    qp->rq.producer);
	}
out:
	spin_unlock_irqrestore(&qp->rq.lock, flags);
	return err;
}
