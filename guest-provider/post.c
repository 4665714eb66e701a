// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * post.c: the verbs ibv_post_send(), ibv_bind_mw() and ibv_post_recv(), which
 * build WQEs from work requests. libibverbs calls them through the operations
 * of qrnic.c. The lock of the queue is held for a whole list of work requests.
 */
#include <errno.h>
#include <string.h>

#include <ccan/array_size.h>
#include <util/mmio.h>

#include "qp.h"

/* Segments between control segment and payload */
enum send_kind {
	SEND_PLAIN,
	SEND_REMOTE,
	SEND_ATOMIC,
	SEND_BIND,
	SEND_INVALIDATE,
};

/* Masks of the queue pair types that support an operation */
#define QPT_RC (BIT(IBV_QPT_RC) | BIT(IBV_QPT_XRC_SEND))
#define QPT_UC BIT(IBV_QPT_UC)
#define QPT_UD BIT(IBV_QPT_UD)
#define QPT_RAW BIT(IBV_QPT_RAW_PACKET)

struct send_op {
	uint8_t opcode;
	enum send_kind kind;
	/* Bits BIT(enum ibv_qp_type); 0 if the operation does not exist */
	uint32_t types;
	/* Required capabilities, of which one is enough; 0: none is required */
	uint64_t capabilities;
	bool imm;
	bool may_inline;
	/* True if imm_or_key contains the key to invalidate */
	bool key;
};

static const struct send_op *send_op(enum ibv_wr_opcode opcode)
{
	static const struct send_op ops[] = {
		[IBV_WR_SEND] = { QRNIC_WQE_SEND, .types = QPT_RC | QPT_UC |
				  QPT_UD | QPT_RAW, .may_inline = true },
		[IBV_WR_SEND_WITH_IMM] = { QRNIC_WQE_SEND_IMM,
					   .types = QPT_RC | QPT_UC | QPT_UD,
					   .imm = true, .may_inline = true },
		[IBV_WR_SEND_WITH_INV] = { QRNIC_WQE_SEND_INV, .types = QPT_RC,
					   .capabilities = QRNIC_CAP_INVALIDATE,
					   .key = true, .may_inline = true },
		[IBV_WR_RDMA_WRITE] = { QRNIC_WQE_RDMA_WRITE, SEND_REMOTE,
					.types = QPT_RC | QPT_UC,
					.may_inline = true },
		[IBV_WR_RDMA_WRITE_WITH_IMM] = { QRNIC_WQE_RDMA_WRITE_IMM,
						 SEND_REMOTE,
						 .types = QPT_RC | QPT_UC,
						 .imm = true,
						 .may_inline = true },
		[IBV_WR_RDMA_READ] = { QRNIC_WQE_RDMA_READ, SEND_REMOTE,
				       .types = QPT_RC },
		[IBV_WR_ATOMIC_CMP_AND_SWP] = { QRNIC_WQE_ATOMIC_CMP_SWAP,
						SEND_ATOMIC, .types = QPT_RC,
						.capabilities =
							QRNIC_CAP_ATOMIC },
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = { QRNIC_WQE_ATOMIC_FETCH_ADD,
						  SEND_ATOMIC, .types = QPT_RC,
						  .capabilities =
							  QRNIC_CAP_ATOMIC },
		[IBV_WR_BIND_MW] = { QRNIC_WQE_BIND_MW, SEND_BIND,
				     .types = QPT_RC | QPT_UC,
				     .capabilities = QRNIC_CAP_MW },
		[IBV_WR_LOCAL_INV] = { QRNIC_WQE_LOCAL_INV, SEND_INVALIDATE,
				       .types = QPT_RC | QPT_UC,
				       .capabilities = QRNIC_CAP_INVALIDATE,
				       .key = true },
	};

	if (opcode >= ARRAY_SIZE(ops) || !ops[opcode].types)
		return NULL;
	return &ops[opcode];
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
	/*
	 * WQEs of an operation that send_ops_flags did not name at creation may
	 * be too long, so the number of segments is also checked.
	 */
	if (unlikely(wr->num_sge < 0 ||
		     (uint32_t)wr->num_sge > qp->sq.max_sge ||
		     wqe->segments + wr->num_sge > QRNIC_WQE_MAX_SEGMENTS))
		return EINVAL;
	for (i = 0; i < wr->num_sge; i++, sge++)
		qrnic_wqe_add_data(wqe, sge->addr, sge->length, sge->lkey);
	return 0;
}

static int build_atomic(const struct send_op *op, const struct ibv_send_wr *wr,
			struct qrnic_wqe *wqe)
{
	if (wr->num_sge != 1)
		return EINVAL;
	qrnic_wqe_add_remote(wqe, wr->wr.atomic.remote_addr,
			     wr->wr.atomic.rkey);
	if (op->opcode == QRNIC_WQE_ATOMIC_CMP_SWAP)
		qrnic_wqe_add_atomic(wqe, wr->wr.atomic.swap,
				     wr->wr.atomic.compare_add);
	else
		qrnic_wqe_add_atomic(wqe, wr->wr.atomic.compare_add, 0);
	return 0;
}

static int build_datagram(const struct ibv_send_wr *wr, struct qrnic_wqe *wqe)
{
	if (unlikely(!wr->wr.ud.ah))
		return EINVAL;
	qrnic_wqe_add_datagram(wqe, to_qrnic_ah(wr->wr.ud.ah),
			       wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	return 0;
}

/*
 * Builds the bind segment. Only ibv_bind_mw() may bind windows of type 1,
 * because it chooses their key.
 */
static int build_bind(const struct ibv_send_wr *wr, struct qrnic_wqe *wqe,
		      bool post)
{
	const struct ibv_mw *mw = wr->bind_mw.mw;

	if (post && (!mw || mw->type != IBV_MW_TYPE_2))
		return EINVAL;
	return qrnic_wqe_add_bind(wqe, mw, wr->bind_mw.rkey,
				  &wr->bind_mw.bind_info);
}

static int check_send(const struct qrnic_qp *qp, const struct send_op *op,
		      const struct ibv_send_wr *wr)
{
	/*
	 * Initiators of dynamic connections need the extended interface,
	 * because a work request has no member for their address.
	 */
	if (unlikely(!op || qp->vqp.qp.qp_type == IBV_QPT_DRIVER))
		return EOPNOTSUPP;
	if (unlikely(!(op->types & BIT(qp->vqp.qp.qp_type))))
		return EINVAL;
	if (unlikely(op->capabilities &&
		     !(op->capabilities & qp->ctx->capabilities)))
		return EOPNOTSUPP;
	if (unlikely((wr->send_flags & IBV_SEND_INLINE) && !op->may_inline))
		return EINVAL;
	return 0;
}

static int build_send(struct qrnic_qp *qp, const struct ibv_send_wr *wr,
		      struct qrnic_wqe *wqe, bool post)
{
	const struct send_op *op = send_op(wr->opcode);
	uint8_t flags = qp->sq_sig_flag;
	__be32 imm = 0;
	int err;

	err = check_send(qp, op, wr);
	if (unlikely(err))
		return err;

	if (wr->send_flags & IBV_SEND_SIGNALED)
		flags |= QRNIC_WQEF_SIGNALED;
	if (wr->send_flags & IBV_SEND_FENCE)
		flags |= QRNIC_WQEF_FENCE;
	if (wr->send_flags & IBV_SEND_SOLICITED)
		flags |= QRNIC_WQEF_SOLICITED;
	if (op->imm)
		imm = wr->imm_data;
	else if (op->key)
		imm = htobe32(wr->invalidate_rkey);
	qrnic_wqe_begin(wqe, op->opcode, flags, imm);
	if (qp->vqp.qp.qp_type == IBV_QPT_XRC_SEND && op->kind != SEND_BIND &&
	    op->kind != SEND_INVALIDATE)
		qrnic_wqe_add_xrc(wqe, wr->qp_type.xrc.remote_srqn);

	switch (op->kind) {
	case SEND_PLAIN:
		if (qp->vqp.qp.qp_type == IBV_QPT_UD)
			err = build_datagram(wr, wqe);
		else if (qp->vqp.qp.qp_type == IBV_QPT_RAW_PACKET)
			err = qrnic_wqe_add_frame(qp, wqe, wr->send_flags);
		break;
	case SEND_REMOTE:
		qrnic_wqe_add_remote(wqe, wr->wr.rdma.remote_addr,
				     wr->wr.rdma.rkey);
		break;
	case SEND_ATOMIC:
		err = build_atomic(op, wr, wqe);
		break;
	case SEND_BIND:
		return build_bind(wr, wqe, post);
	case SEND_INVALIDATE:
		return 0;
	}
	return err ? err : add_payload(qp, wr, wqe);
}

static int post_list(struct qrnic_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad_wr, bool post)
{
	struct qrnic_wqe wqe;
	uint32_t posted = 0;
	bool was_idle;
	uint32_t old;
	int err = 0;

	qrnic_lock(&qp->sq.lock);
	old = qp->sq.producer;
	was_idle = qrnic_sq_is_idle(&qp->sq);
	for (; wr; wr = wr->next) {
		err = qrnic_send_allowed(qp) ? build_send(qp, wr, &wqe, post) :
					       EINVAL;
		if (!err)
			err = qrnic_sq_push(qp, &wqe, wr->wr_id);
		if (unlikely(err)) {
			*bad_wr = wr;
			break;
		}
		posted++;
	}
	/*
	 * One doorbell is enough for the list. WQEs before a bad work request
	 * are posted.
	 */
	if (posted)
		qrnic_sq_ring(qp, old,
			      posted == 1 && !err && was_idle ? &wqe : NULL);
	qrnic_unlock(&qp->sq.lock);
	return err;
}

int qrnic_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad_wr)
{
	return post_list(to_qrnic_qp(ibqp), wr, bad_wr, true);
}

/* Binds a window of type 1, which libibverbs has checked. */
int qrnic_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw,
		  struct ibv_mw_bind *bind)
{
	struct ibv_send_wr *bad_wr;
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = {
			.mw = mw,
			.rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = bind->bind_info,
		},
	};
	int err;

	err = post_list(to_qrnic_qp(ibqp), &wr, &bad_wr, false);
	if (!err)
		mw->rkey = wr.bind_mw.rkey;
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
	/*
	 * Acquire pairs with the release in cqe_retire(), so that the slot is
	 * written after the poller has read it.
	 */
	used = rq->producer -
	       atomic_load_explicit(&rq->consumer, memory_order_acquire);
	if (unlikely(used >= rq->size))
		return ENOMEM;

	/*
	 * A slot is contiguous, so the WQE is written in place. The device does
	 * not read it before it reads the doorbell record.
	 */
	segment = rq->ring + ((size_t)slot << qp->rq_stride_shift);
	segment->recv.data_segments = htole32(wr->num_sge);
	segment->recv.index = htole32(rq->producer);
	segment->recv.next = 0;
	segment->recv.rsvd0 = 0;
	for (i = 0; i < wr->num_sge; i++)
		qrnic_set_data(&segment[1 + i].data, wr->sg_list[i].addr,
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

	/*
	 * The queue pair has an SRQ or no receive queue, so WQEs cannot be
	 * posted to it.
	 */
	if (unlikely(!qp->has_rq)) {
		*bad_wr = wr;
		return EINVAL;
	}
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
		/*
		 * The order is that of qrnic_sq_ring(), for the same reasons:
		 * WQEs, doorbell record, doorbell.
		 */
		udma_to_device_barrier();
		qrnic_tsan_post(rq->record);
		qrnic_store_record(&rq->record->producer, rq->producer);
		mmio_wc_start();
		qrnic_ring_doorbell(qp->db, QRNIC_DB_RQ, ibqp->qp_num,
				    rq->producer);
		mmio_flush_writes();
	}
	qrnic_unlock(&rq->lock);
	return err;
}
