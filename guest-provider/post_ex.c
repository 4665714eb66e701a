// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * post_ex.c: work requests and setters of the extended interface (struct
 * ibv_qp_ex). The program calls them between ibv_wr_start() and
 * ibv_wr_complete(), under the lock of the send queue. batch.c has the batch,
 * and wqe.c builds the segments. An error is stored by qrnic_wr_fail(), and the
 * end of the batch returns it.
 */
#include <errno.h>
#include <string.h>

#include "qp.h"

#define QRNIC_DATAGRAM_OPS                                                     \
	(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define QRNIC_ATOMIC_OPS                                                       \
	(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |                                   \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
#define QRNIC_INVALIDATE_OPS                                                   \
	(IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV)
/*
 * Operations of annex A19 of the InfiniBand specification, which are defined
 * for RC only
 */
#define QRNIC_A19_OPS                                                          \
	(IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH)
#define QRNIC_UC_OPS                                                           \
	(QRNIC_DATAGRAM_OPS | IBV_QP_EX_WITH_RDMA_WRITE |                      \
	 IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_BIND_MW |         \
	 IBV_QP_EX_WITH_LOCAL_INV)
#define QRNIC_RC_OPS                                                           \
	(QRNIC_UC_OPS | QRNIC_INVALIDATE_OPS | QRNIC_ATOMIC_OPS |              \
	 IBV_QP_EX_WITH_RDMA_READ | QRNIC_A19_OPS)

/*
 * Begins a send. The datagram segment is reserved, because the setter of the
 * address may come after those of the payload.
 */
static void wr_begin_send(struct ibv_qp_ex *ibqp, uint8_t opcode, __be32 imm)
{
	struct qrnic_qp *qp = qrnic_wr_begin(ibqp, opcode, imm);
	int err;

	if (qp->vqp.qp.qp_type == IBV_QPT_RAW_PACKET) {
		err = qrnic_wqe_add_frame(qp, &qp->wqe, ibqp->wr_flags);
		if (err)
			qrnic_wr_fail(qp, err);
	}
	if (qp->vqp.qp.qp_type != IBV_QPT_UD)
		return;
	qp->wqe.segments += QRNIC_DATAGRAM_LENGTH;
	qp->need_address = true;
}

static void qrnic_wr_send(struct ibv_qp_ex *ibqp)
{
	wr_begin_send(ibqp, QRNIC_WQE_SEND, 0);
}

static void qrnic_wr_send_imm(struct ibv_qp_ex *ibqp, __be32 imm)
{
	wr_begin_send(ibqp, QRNIC_WQE_SEND_IMM, imm);
}

static void qrnic_wr_set_ud_addr(struct ibv_qp_ex *ibqp, struct ibv_ah *ah,
				 uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct qrnic_qp *qp = to_qrnic_qp_ex(ibqp);
	uint32_t segments = qp->wqe.segments;

	if (!qp->building || !ah) {
		qrnic_wr_fail(qp, EINVAL);
		return;
	}
	/*
	 * The address goes to its reserved place behind the control segment,
	 * and the payload stays
	 */
	qp->wqe.segments = 1;
	qrnic_wqe_add_datagram(&qp->wqe, to_qrnic_ah(ah), remote_qpn,
			       remote_qkey);
	qp->wqe.segments = segments;
	qp->need_address = false;
}

static void qrnic_wr_set_xrc_srqn(struct ibv_qp_ex *ibqp, uint32_t remote_srqn)
{
	struct qrnic_qp *qp = to_qrnic_qp_ex(ibqp);

	if (!qp->building || !qrnic_has_payload(qp->wqe.opcode)) {
		qrnic_wr_fail(qp, EINVAL);
		return;
	}
	qp->wqe.segment[1].xrc.srqn = htole32(remote_srqn & QRNIC_QPN_MASK);
	qp->need_address = false;
}

int qrnicdv_wr_set_dc_addr(struct ibv_qp_ex *ibqp, struct ibv_ah *ah,
			   uint32_t target, uint64_t access_key)
{
	struct qrnic_qp *qp = to_qrnic_qp_ex(ibqp);
	struct qrnic_dynamic_seg segment = {};

	if (!qrnic_is_device(ibqp->qp_base.context->device))
		return EOPNOTSUPP;
	if (!qp->building || !ah || ah->context != ibqp->qp_base.context ||
	    qp->vqp.qp.qp_type != IBV_QPT_DRIVER ||
	    !qrnic_is_sent(qp->wqe.opcode) || target & ~QRNIC_QPN_MASK) {
		qrnic_wr_fail(qp, EINVAL);
		return EINVAL;
	}
	segment.av = to_qrnic_ah(ah)->av;
	segment.target = htole32(target);
	segment.access_key = htole64(access_key);
	memcpy(&qp->wqe.segment[1], &segment, sizeof(segment));
	qp->need_address = false;
	return 0;
}

static void qrnic_wr_send_inv(struct ibv_qp_ex *ibqp, uint32_t invalidate_rkey)
{
	qrnic_wr_begin(ibqp, QRNIC_WQE_SEND_INV, htobe32(invalidate_rkey));
}

static void qrnic_wr_local_inv(struct ibv_qp_ex *ibqp, uint32_t invalidate_rkey)
{
	qrnic_wr_begin(ibqp, QRNIC_WQE_LOCAL_INV, htobe32(invalidate_rkey));
}

static void qrnic_wr_bind_mw(struct ibv_qp_ex *ibqp, struct ibv_mw *mw,
			     uint32_t rkey,
			     const struct ibv_mw_bind_info *bind_info)
{
	struct qrnic_qp *qp = qrnic_wr_begin(ibqp, QRNIC_WQE_BIND_MW, 0);
	int err = EINVAL;

	/*
	 * Only ibv_bind_mw() may bind windows of type 1, because it chooses
	 * their key
	 */
	if (mw->type == IBV_MW_TYPE_2)
		err = qrnic_wqe_add_bind(&qp->wqe, mw, rkey, bind_info);
	if (err)
		qrnic_wr_fail(qp, err);
}

static void qrnic_wr_rdma_write(struct ibv_qp_ex *ibqp, uint32_t rkey,
				uint64_t address)
{
	struct qrnic_qp *qp = qrnic_wr_begin(ibqp, QRNIC_WQE_RDMA_WRITE, 0);

	qrnic_wqe_add_remote(&qp->wqe, address, rkey);
}

static void qrnic_wr_rdma_write_imm(struct ibv_qp_ex *ibqp, uint32_t rkey,
				    uint64_t address, __be32 imm)
{
	struct qrnic_qp *qp = qrnic_wr_begin(ibqp, QRNIC_WQE_RDMA_WRITE_IMM, imm);

	qrnic_wqe_add_remote(&qp->wqe, address, rkey);
}

static void qrnic_wr_rdma_read(struct ibv_qp_ex *ibqp, uint32_t rkey,
			       uint64_t address)
{
	struct qrnic_qp *qp = qrnic_wr_begin(ibqp, QRNIC_WQE_RDMA_READ, 0);

	qrnic_wqe_add_remote(&qp->wqe, address, rkey);
}

static void qrnic_wr_atomic_cmp_swp(struct ibv_qp_ex *ibqp, uint32_t rkey,
				    uint64_t address, uint64_t compare,
				    uint64_t swap)
{
	struct qrnic_qp *qp = qrnic_wr_begin(ibqp, QRNIC_WQE_ATOMIC_CMP_SWAP, 0);

	qrnic_wqe_add_remote(&qp->wqe, address, rkey);
	qrnic_wqe_add_atomic(&qp->wqe, swap, compare);
}

static void qrnic_wr_atomic_fetch_add(struct ibv_qp_ex *ibqp, uint32_t rkey,
				      uint64_t address, uint64_t add)
{
	struct qrnic_qp *qp = qrnic_wr_begin(ibqp, QRNIC_WQE_ATOMIC_FETCH_ADD, 0);

	qrnic_wqe_add_remote(&qp->wqe, address, rkey);
	qrnic_wqe_add_atomic(&qp->wqe, add, 0);
}

static void qrnic_wr_atomic_write(struct ibv_qp_ex *ibqp, uint32_t rkey,
				  uint64_t address, const void *data)
{
	struct qrnic_qp *qp = qrnic_wr_begin(ibqp, QRNIC_WQE_ATOMIC_WRITE, 0);
	uint64_t value;

	/*
	 * The 8 bytes are not swapped, because the memory of the peer gets them
	 * in this order
	 */
	memcpy(&value, data, sizeof(value));
	qrnic_wqe_add_remote(&qp->wqe, address, rkey);
	qrnic_wqe_add_atomic(&qp->wqe, le64toh(value), 0);
}

static void qrnic_wr_flush(struct ibv_qp_ex *ibqp, uint32_t rkey,
			   uint64_t address, size_t length, uint8_t type,
			   uint8_t level)
{
	struct qrnic_qp *qp = qrnic_wr_begin(ibqp, QRNIC_WQE_FLUSH, 0);

	if (!type || type & ~QRNIC_FLUSH_ALL || level > QRNIC_FLUSH_MR ||
	    length > UINT32_MAX) {
		qrnic_wr_fail(qp, EINVAL);
		return;
	}
	qrnic_wqe_add_remote(&qp->wqe, address, rkey);
	qrnic_wqe_add_flush(&qp->wqe, length, type, level);
}

static void qrnic_wr_set_sge_list(struct ibv_qp_ex *ibqp, size_t num_sge,
				  const struct ibv_sge *sge)
{
	struct qrnic_qp *qp = to_qrnic_qp_ex(ibqp);
	size_t i;

	/*
	 * The checks of the lengths also find programs that call several
	 * setters
	 */
	if (!qp->building || !qrnic_has_payload(qp->wqe.opcode) ||
	    num_sge > qp->sq.max_sge - qp->wqe.sges ||
	    qp->wqe.segments + num_sge > QRNIC_WQE_MAX_SEGMENTS ||
	    qp->wqe.has_inline) {
		qrnic_wr_fail(qp, EINVAL);
		return;
	}
	for (i = 0; i < num_sge; i++, sge++)
		qrnic_wqe_add_data(&qp->wqe, sge->addr, sge->length, sge->lkey);
}

static void qrnic_wr_set_sge(struct ibv_qp_ex *ibqp, uint32_t lkey,
			     uint64_t address, uint32_t length)
{
	const struct ibv_sge sge = {
		.addr = address,
		.length = length,
		.lkey = lkey,
	};

	qrnic_wr_set_sge_list(ibqp, 1, &sge);
}

static void qrnic_wr_set_inline_data_list(struct ibv_qp_ex *ibqp,
					  size_t num_buf,
					  const struct ibv_data_buf *buf)
{
	struct qrnic_qp *qp = to_qrnic_qp_ex(ibqp);
	uint8_t opcode = qp->wqe.opcode;
	size_t i;
	int err;

	/*
	 * The result of a read or atomic cannot be inline, because it is
	 * written to memory
	 */
	if (!qp->building || !qrnic_has_payload(opcode) ||
	    opcode == QRNIC_WQE_RDMA_READ ||
	    opcode == QRNIC_WQE_ATOMIC_CMP_SWAP ||
	    opcode == QRNIC_WQE_ATOMIC_FETCH_ADD) {
		qrnic_wr_fail(qp, EINVAL);
		return;
	}
	for (i = 0; i < num_buf; i++) {
		err = qrnic_wqe_add_inline(&qp->wqe, qp->max_inline,
					   buf[i].addr, buf[i].length);
		if (err) {
			qrnic_wr_fail(qp, err);
			return;
		}
	}
}

static void qrnic_wr_set_inline_data(struct ibv_qp_ex *ibqp, void *addr,
				     size_t length)
{
	const struct ibv_data_buf buf = { .addr = addr, .length = length };

	qrnic_wr_set_inline_data_list(ibqp, 1, &buf);
}

/* Returns the operations that a QP of this type can have on this adapter. */
static uint64_t possible_ops(const struct qrnic_context *ctx,
			     enum ibv_qp_type type)
{
	uint64_t ops;

	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_DRIVER:
		ops = QRNIC_RC_OPS;
		break;
	case IBV_QPT_XRC_SEND:
		ops = QRNIC_RC_OPS & ~(uint64_t)QRNIC_A19_OPS;
		break;
	case IBV_QPT_UC:
		ops = QRNIC_UC_OPS;
		break;
	case IBV_QPT_RAW_PACKET:
		ops = IBV_QP_EX_WITH_SEND;
		break;
	default:
		ops = QRNIC_DATAGRAM_OPS;
	}
	if (!(ctx->capabilities & QRNIC_CAP_ATOMIC))
		ops &= ~(uint64_t)QRNIC_ATOMIC_OPS;
	if (!(ctx->capabilities & QRNIC_CAP_ATOMIC_WRITE))
		ops &= ~(uint64_t)IBV_QP_EX_WITH_ATOMIC_WRITE;
	if (!(ctx->capabilities & QRNIC_CAP_FLUSH))
		ops &= ~(uint64_t)IBV_QP_EX_WITH_FLUSH;
	if (!(ctx->capabilities & QRNIC_CAP_MW))
		ops &= ~(uint64_t)IBV_QP_EX_WITH_BIND_MW;
	if (!(ctx->capabilities & QRNIC_CAP_INVALIDATE))
		ops &= ~(uint64_t)QRNIC_INVALIDATE_OPS;
	return ops;
}

int qrnic_qp_set_wr_ops(struct qrnic_qp *qp, enum ibv_qp_type type,
			uint64_t ops)
{
	struct ibv_qp_ex *ibqp = &qp->vqp.qp_ex;

	if (ops & ~possible_ops(qp->ctx, type))
		return EOPNOTSUPP;

	if (ops & IBV_QP_EX_WITH_SEND)
		ibqp->wr_send = qrnic_wr_send;
	if (ops & IBV_QP_EX_WITH_SEND_WITH_IMM)
		ibqp->wr_send_imm = qrnic_wr_send_imm;
	if (ops & IBV_QP_EX_WITH_SEND_WITH_INV)
		ibqp->wr_send_inv = qrnic_wr_send_inv;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE)
		ibqp->wr_rdma_write = qrnic_wr_rdma_write;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
		ibqp->wr_rdma_write_imm = qrnic_wr_rdma_write_imm;
	if (ops & IBV_QP_EX_WITH_RDMA_READ)
		ibqp->wr_rdma_read = qrnic_wr_rdma_read;
	if (ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)
		ibqp->wr_atomic_cmp_swp = qrnic_wr_atomic_cmp_swp;
	if (ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
		ibqp->wr_atomic_fetch_add = qrnic_wr_atomic_fetch_add;
	if (ops & IBV_QP_EX_WITH_ATOMIC_WRITE)
		ibqp->wr_atomic_write = qrnic_wr_atomic_write;
	if (ops & IBV_QP_EX_WITH_FLUSH)
		ibqp->wr_flush = qrnic_wr_flush;
	if (ops & IBV_QP_EX_WITH_BIND_MW)
		ibqp->wr_bind_mw = qrnic_wr_bind_mw;
	if (ops & IBV_QP_EX_WITH_LOCAL_INV)
		ibqp->wr_local_inv = qrnic_wr_local_inv;

	if (type == IBV_QPT_UD)
		ibqp->wr_set_ud_addr = qrnic_wr_set_ud_addr;
	if (type == IBV_QPT_XRC_SEND)
		ibqp->wr_set_xrc_srqn = qrnic_wr_set_xrc_srqn;
	ibqp->wr_set_sge = qrnic_wr_set_sge;
	ibqp->wr_set_sge_list = qrnic_wr_set_sge_list;
	ibqp->wr_set_inline_data = qrnic_wr_set_inline_data;
	ibqp->wr_set_inline_data_list = qrnic_wr_set_inline_data_list;
	ibqp->wr_start = qrnic_wr_start;
	ibqp->wr_complete = qrnic_wr_complete;
	ibqp->wr_abort = qrnic_wr_abort;
	return 0;
}
