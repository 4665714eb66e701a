// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * post.c: send and receive WQEs: building, the rings, doorbells, and the verbs
 * ibv_post_send() and ibv_post_recv().
 */
#include <errno.h>
#include <string.h>

#include <ccan/array_size.h>
#include <util/mmio.h>

#include "qrnic.h"

struct send_op {
	uint8_t opcode;
	bool valid;
	bool remote;
	bool atomic;
	bool imm;
	bool may_inline;
};

static const struct send_op *send_op(enum ibv_wr_opcode opcode)
{
	static const struct send_op ops[] = {
		[IBV_WR_SEND] = { QRNIC_WQE_SEND, .valid = true,
				  .may_inline = true },
		[IBV_WR_SEND_WITH_IMM] = { QRNIC_WQE_SEND_IMM, .valid = true,
					   .imm = true, .may_inline = true },
		[IBV_WR_RDMA_WRITE] = { QRNIC_WQE_RDMA_WRITE, .valid = true,
					.remote = true, .may_inline = true },
		[IBV_WR_RDMA_WRITE_WITH_IMM] = { QRNIC_WQE_RDMA_WRITE_IMM,
						 .valid = true, .remote = true,
						 .imm = true,
						 .may_inline = true },
		[IBV_WR_RDMA_READ] = { QRNIC_WQE_RDMA_READ, .valid = true,
				       .remote = true },
		[IBV_WR_ATOMIC_CMP_AND_SWP] = { QRNIC_WQE_ATOMIC_CMP_SWAP,
						.valid = true, .atomic = true },
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = { QRNIC_WQE_ATOMIC_FETCH_ADD,
						  .valid = true,
						  .atomic = true },
	};

	if (opcode >= ARRAY_SIZE(ops) || !ops[opcode].valid)
		return NULL;
	return &ops[opcode];
}

/* The SQ takes WQEs from RTS on; in the error states it flushes them */
bool qrnic_send_allowed(const struct qrnic_qp *qp)
{
	return qp->vqp.qp.state >= IBV_QPS_RTS;
}

/* Whether all that was posted is completed, as far as is known here */
bool qrnic_sq_is_idle(struct qrnic_wq *sq)
{
	return sq->producer == atomic_load_explicit(&sq->consumer,
						    memory_order_relaxed);
}

/* Starts a WQE with its control segment, which qrnic_sq_push() fills in */
void qrnic_wqe_begin(struct qrnic_wqe *wqe, uint8_t opcode, uint8_t flags,
		     __be32 imm)
{
	wqe->opcode = opcode;
	wqe->flags = flags;
	wqe->inline_length = 0;
	wqe->segment[0].ctrl.imm = imm;
	wqe->segments = 1;
}

void qrnic_wqe_add_remote(struct qrnic_wqe *wqe, uint64_t address,
			  uint32_t rkey)
{
	struct qrnic_remote_seg *remote = &wqe->segment[wqe->segments++].remote;

	remote->address = htole64(address);
	remote->rkey = htole32(rkey);
	remote->rsvd0 = 0;
}

void qrnic_wqe_add_atomic(struct qrnic_wqe *wqe, uint64_t swap_add,
			  uint64_t compare)
{
	struct qrnic_atomic_seg *atomic = &wqe->segment[wqe->segments++].atomic;

	atomic->swap_add = htole64(swap_add);
	atomic->compare = htole64(compare);
}

static void set_data(struct qrnic_data_seg *data, uint64_t address,
		     uint32_t length, uint32_t lkey)
{
	data->address = htole64(address);
	data->length = htole32(length);
	data->lkey = htole32(lkey);
}

void qrnic_wqe_add_data(struct qrnic_wqe *wqe, uint64_t address,
			uint32_t length, uint32_t lkey)
{
	set_data(&wqe->segment[wqe->segments++].data, address, length, lkey);
}

/* Appends to the inline data, which begins behind the segments so far */
int qrnic_wqe_add_inline(struct qrnic_wqe *wqe, uint32_t max_inline,
			 const void *data, size_t length)
{
	size_t end = wqe->segments * QRNIC_SEGMENT_SIZE + wqe->inline_length;

	/* The second test is for a program that also called another setter */
	if (length > max_inline - wqe->inline_length ||
	    length > sizeof(wqe->segment) - end)
		return EINVAL;
	if (!length)
		return 0;
	memcpy(wqe->segment[wqe->segments].bytes + wqe->inline_length, data,
	       length);
	wqe->inline_length += length;
	return 0;
}

/* Completes the control segment for the place in the ring; returns the blocks */
static uint32_t wqe_finish(struct qrnic_wqe *wqe, uint32_t index)
{
	struct qrnic_sq_ctrl *ctrl = &wqe->segment[0].ctrl;
	uint32_t blocks, tail;

	if (wqe->inline_length) {
		wqe->flags |= QRNIC_WQEF_INLINE;
		tail = -wqe->inline_length % QRNIC_SEGMENT_SIZE;
		memset(wqe->segment[wqe->segments].bytes + wqe->inline_length, 0,
		       tail);
		wqe->segments += (wqe->inline_length + tail) /
				 QRNIC_SEGMENT_SIZE;
	}
	blocks = qrnic_wqebbs(wqe->segments);
	/* Nothing of the stack, nor of earlier WQEs, goes to the device */
	tail = blocks * QRNIC_SEGMENTS_PER_WQEBB - wqe->segments;
	memset(&wqe->segment[wqe->segments], 0, tail * QRNIC_SEGMENT_SIZE);
	ctrl->operation = htole32(
		FIELD_PREP(QRNIC_SQ_CTRL_OPCODE_MASK, wqe->opcode) |
		FIELD_PREP(QRNIC_SQ_CTRL_FLAGS_MASK, wqe->flags) |
		FIELD_PREP(QRNIC_SQ_CTRL_SEGMENTS_MASK, wqe->segments));
	ctrl->index = htole32(index);
	ctrl->inline_length = htole32(wqe->inline_length);
	return blocks;
}

/* Puts a WQE into the ring, where the device does not look before the record */
int qrnic_sq_push(struct qrnic_qp *qp, struct qrnic_wqe *wqe, uint64_t wr_id)
{
	struct qrnic_wq *sq = &qp->sq;
	uint32_t mask = sq->size - 1;
	uint32_t blocks, used, i;

	blocks = wqe_finish(wqe, sq->producer);
	/* Acquire: pairs with the release in cqe_retire(), see there */
	used = sq->producer -
	       atomic_load_explicit(&sq->consumer, memory_order_acquire);
	if (blocks > sq->size - used)
		return ENOMEM;

	sq->wr_id[sq->producer & mask] = wr_id;
	qp->sq_blocks[sq->producer & mask] = blocks;
	for (i = 0; i < blocks; i++)
		memcpy(sq->ring + (((sq->producer + i) & mask)
				   << QRNIC_WQEBB_SHIFT),
		       &wqe->segment[i * QRNIC_SEGMENTS_PER_WQEBB],
		       QRNIC_WQEBB_SIZE);
	sq->producer += blocks;
	return 0;
}

/* Rings with the WQE itself, in the window of the doorbell page */
static void ring_direct(struct qrnic_qp *qp, const struct qrnic_wqe *wqe)
{
	uint32_t blocks = qrnic_wqebbs(wqe->segments);
	struct qrnic_context *ctx = qp->ctx;
	uint32_t number, i, word;

	number = qp->vqp.qp.qp_num |
		 FIELD_PREP(QRNIC_DOORBELL_WQEBBS_MASK, blocks);

	qrnic_lock(&ctx->window_lock);
	/*
	 * Stops the window from being written before the record, and, where the
	 * page is write-combining, from merging with what came before.
	 */
	mmio_wc_start();
	for (i = 0; i < blocks * QRNIC_SEGMENTS_PER_WQEBB; i++) {
		for (word = 0; word < QRNIC_SEGMENT_SIZE; word += 8) {
			__le64 value;

			memcpy(&value, &wqe->segment[i].bytes[word], 8);
			mmio_write64_le(ctx->db_page + QRNIC_DB_WINDOW +
					i * QRNIC_SEGMENT_SIZE + word, value);
		}
	}
	/* Stops the doorbell from overtaking the window */
	mmio_flush_writes();
	mmio_write64(ctx->db_page + QRNIC_DB_DIRECT,
		     number | (uint64_t)qp->sq.producer << 32);
	/* Stops the next user of the window from overtaking this doorbell */
	mmio_flush_writes();
	qrnic_unlock(&ctx->window_lock);
}

/* Hands all that is in the ring to the device; one WQE may go along directly */
void qrnic_sq_ring(struct qrnic_qp *qp, const struct qrnic_wqe *direct)
{
	/*
	 * Stops the record from becoming visible before the WQEs: the device may
	 * read it at any time, for an earlier doorbell.
	 */
	udma_to_device_barrier();
	*(volatile __le32 *)&qp->sq.record->producer = htole32(qp->sq.producer);

	if (direct && qp->ctx->direct_wqe &&
	    qrnic_wqebbs(direct->segments) <= QRNIC_DB_WINDOW_WQEBB) {
		ring_direct(qp, direct);
		return;
	}
	/* Stops the doorbell from passing the record, which says up to where */
	mmio_wc_start();
	qrnic_ring_doorbell(qp->ctx, QRNIC_DB_SQ, qp->vqp.qp.qp_num,
			    qp->sq.producer);
	/* Sends the doorbell now, should the page be mapped write-combining */
	mmio_flush_writes();
}

static int add_payload(struct qrnic_qp *qp, const struct ibv_send_wr *wr,
		       struct qrnic_wqe *wqe)
{
	const struct ibv_sge *sge = wr->sg_list;
	int i, err;

	if (wr->send_flags & IBV_SEND_INLINE) {
		for (i = 0; i < wr->num_sge; i++, sge++) {
			err = qrnic_wqe_add_inline(wqe, qp->max_inline,
						   (void *)(uintptr_t)sge->addr,
						   sge->length);
			if (err)
				return err;
		}
		return 0;
	}
	if (unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq.max_sge))
		return EINVAL;
	for (i = 0; i < wr->num_sge; i++, sge++)
		qrnic_wqe_add_data(wqe, sge->addr, sge->length, sge->lkey);
	return 0;
}

static int build_send(struct qrnic_qp *qp, const struct ibv_send_wr *wr,
		      struct qrnic_wqe *wqe)
{
	const struct send_op *op = send_op(wr->opcode);
	uint8_t flags = qp->sq_sig_flag;

	if (unlikely(!op))
		return EOPNOTSUPP;
	if (unlikely((wr->send_flags & IBV_SEND_INLINE) && !op->may_inline))
		return EINVAL;

	if (wr->send_flags & IBV_SEND_SIGNALED)
		flags |= QRNIC_WQEF_SIGNALED;
	if (wr->send_flags & IBV_SEND_FENCE)
		flags |= QRNIC_WQEF_FENCE;
	if (wr->send_flags & IBV_SEND_SOLICITED)
		flags |= QRNIC_WQEF_SOLICITED;
	qrnic_wqe_begin(wqe, op->opcode, flags, op->imm ? wr->imm_data : 0);

	if (op->remote) {
		qrnic_wqe_add_remote(wqe, wr->wr.rdma.remote_addr,
				     wr->wr.rdma.rkey);
	} else if (op->atomic) {
		if (!(qp->ctx->capabilities & QRNIC_CAP_ATOMIC))
			return EOPNOTSUPP;
		if (wr->num_sge != 1)
			return EINVAL;
		qrnic_wqe_add_remote(wqe, wr->wr.atomic.remote_addr,
				     wr->wr.atomic.rkey);
		if (op->opcode == QRNIC_WQE_ATOMIC_CMP_SWAP)
			qrnic_wqe_add_atomic(wqe, wr->wr.atomic.swap,
					     wr->wr.atomic.compare_add);
		else
			qrnic_wqe_add_atomic(wqe, wr->wr.atomic.compare_add, 0);
	}
	return add_payload(qp, wr, wqe);
}

int qrnic_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad_wr)
{
	struct qrnic_qp *qp = to_qrnic_qp(ibqp);
	struct qrnic_wqe wqe;
	uint32_t posted = 0;
	bool was_idle;
	int err = 0;

	qrnic_lock(&qp->sq.lock);
	was_idle = qrnic_sq_is_idle(&qp->sq);
	for (; wr; wr = wr->next) {
		err = qrnic_send_allowed(qp) ? build_send(qp, wr, &wqe) : EINVAL;
		if (!err)
			err = qrnic_sq_push(qp, &wqe, wr->wr_id);
		if (unlikely(err)) {
			*bad_wr = wr;
			break;
		}
		posted++;
	}
	/* One doorbell for the list; what came before a bad one is posted */
	if (posted)
		qrnic_sq_ring(qp, posted == 1 && !err && was_idle ? &wqe : NULL);
	qrnic_unlock(&qp->sq.lock);
	return err;
}

static int build_recv(struct qrnic_qp *qp, const struct ibv_recv_wr *wr)
{
	struct qrnic_wq *rq = &qp->rq;
	uint32_t slot = rq->producer & (rq->size - 1);
	union qrnic_segment *segment;
	uint32_t used;
	int i;

	if (unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge))
		return EINVAL;
	/* Acquire: pairs with the release in cqe_retire(), see there */
	used = rq->producer -
	       atomic_load_explicit(&rq->consumer, memory_order_acquire);
	if (unlikely(used >= rq->size))
		return ENOMEM;

	/* A slot is contiguous, and the device does not look before the record */
	segment = rq->ring + ((size_t)slot << qp->rq_stride_shift);
	segment->recv.segments = htole32(wr->num_sge);
	segment->recv.index = htole32(rq->producer);
	segment->recv.rsvd0 = 0;
	for (i = 0; i < wr->num_sge; i++)
		set_data(&segment[1 + i].data, wr->sg_list[i].addr,
			 wr->sg_list[i].length, wr->sg_list[i].lkey);
	rq->wr_id[slot] = wr->wr_id;
	rq->producer++;
	return 0;
}

int qrnic_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		    struct ibv_recv_wr **bad_wr)
{
	struct qrnic_qp *qp = to_qrnic_qp(ibqp);
	struct qrnic_wq *rq = &qp->rq;
	uint32_t before;
	int err = 0;

	qrnic_lock(&rq->lock);
	before = rq->producer;
	for (; wr; wr = wr->next) {
		err = ibqp->state == IBV_QPS_RESET ? EINVAL : build_recv(qp, wr);
		if (unlikely(err)) {
			*bad_wr = wr;
			break;
		}
	}
	if (rq->producer != before) {
		/* As in qrnic_sq_ring(): WQEs, then record, then doorbell */
		udma_to_device_barrier();
		*(volatile __le32 *)&rq->record->producer =
			htole32(rq->producer);
		mmio_wc_start();
		qrnic_ring_doorbell(qp->ctx, QRNIC_DB_RQ, ibqp->qp_num,
				    rq->producer);
		mmio_flush_writes();
	}
	qrnic_unlock(&rq->lock);
	return err;
}
