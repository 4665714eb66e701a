// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * qp.c: the life of queue pairs: create, modify, query, destroy, and finding
 * them by number for completions and events.
 */
#include <rdma/ib_umem.h>

#include "qrnic_ib.h"

static_assert((int)IB_QPS_RESET == QRNIC_QPS_RESET);
static_assert((int)IB_QPS_RTS == QRNIC_QPS_RTS);
static_assert((int)IB_QPS_SQE == QRNIC_QPS_SQE);
static_assert((int)IB_QPS_ERR == QRNIC_QPS_ERR);
static_assert(IB_QP_STATE == QRNIC_QP_STATE);
static_assert(IB_QP_CUR_STATE == QRNIC_QP_CUR_STATE);
static_assert(IB_QP_EN_SQD_ASYNC_NOTIFY == QRNIC_QP_EN_SQD_ASYNC_NOTIFY);
static_assert(IB_QP_ACCESS_FLAGS == QRNIC_QP_ACCESS_FLAGS);
static_assert(IB_QP_PKEY_INDEX == QRNIC_QP_PKEY_INDEX);
static_assert(IB_QP_PORT == QRNIC_QP_PORT);
static_assert(IB_QP_QKEY == QRNIC_QP_QKEY);
static_assert(IB_QP_AV == QRNIC_QP_AV);
static_assert(IB_QP_PATH_MTU == QRNIC_QP_PATH_MTU);
static_assert(IB_QP_TIMEOUT == QRNIC_QP_TIMEOUT);
static_assert(IB_QP_RETRY_CNT == QRNIC_QP_RETRY_CNT);
static_assert(IB_QP_RNR_RETRY == QRNIC_QP_RNR_RETRY);
static_assert(IB_QP_RQ_PSN == QRNIC_QP_RQ_PSN);
static_assert(IB_QP_MAX_QP_RD_ATOMIC == QRNIC_QP_MAX_RD_ATOMIC);
static_assert(IB_QP_MIN_RNR_TIMER == QRNIC_QP_MIN_RNR_TIMER);
static_assert(IB_QP_SQ_PSN == QRNIC_QP_SQ_PSN);
static_assert(IB_QP_MAX_DEST_RD_ATOMIC == QRNIC_QP_MAX_DEST_RD_ATOMIC);
static_assert(IB_QP_DEST_QPN == QRNIC_QP_DEST_QPN);
static_assert(IB_QP_RATE_LIMIT == QRNIC_QP_RATE_LIMIT);

/* Of the device's attributes those that verbs know, and by the same bits */
#define QRNIC_IB_QP_ATTRIBUTES \
	(QRNIC_QP_ALL & ~(QRNIC_QP_PRIORITY | QRNIC_QP_OPTIONS | QRNIC_QP_CARRIER))

#define QRNIC_QP_ACCESS \
	(IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | \
	 IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_FLUSH_GLOBAL)

/* The device's word for the type, or an error */
static int qrnic_qp_hw_type(struct qrnic_ib_dev *dev,
			    const struct ib_qp_init_attr *init, bool user,
			    const struct qrnic_create_qp_req *request)
{
	u64 capability;
	int type;

	switch (init->qp_type) {
	case IB_QPT_RC:
		type = QRNIC_QPT_RC;
		capability = QRNIC_CAP_RC;
		break;
	case IB_QPT_UC:
		type = QRNIC_QPT_UC;
		capability = QRNIC_CAP_UC;
		break;
	case IB_QPT_UD:
		type = QRNIC_QPT_UD;
		capability = QRNIC_CAP_UD;
		break;
	case IB_QPT_GSI:
		/* Only the kernel has a GSI QP; processes use it through ib_umad. */
		if (user)
			return -EOPNOTSUPP;
		type = QRNIC_QPT_GSI;
		capability = QRNIC_CAP_UD;
		break;
	case IB_QPT_RAW_PACKET:
		/*
		 * Only processes make raw packet QPs here: the netdev has its own,
		 * and other users in the kernel cannot make the flow rules by which
		 * such a QP receives.
		 */
		if (!user)
			return -EOPNOTSUPP;
		type = QRNIC_QPT_RAW_PACKET;
		capability = QRNIC_CAP_FLOW;
		break;
	case IB_QPT_XRC_INI:
		/* Nothing in the kernel uses XRC. */
		if (!user)
			return -EOPNOTSUPP;
		type = QRNIC_QPT_XRC_INI;
		capability = QRNIC_CAP_XRC;
		break;
	case IB_QPT_XRC_TGT:
		/* The RDMA core makes XRC targets, for the processes that open them. */
		type = QRNIC_QPT_XRC_TGT;
		capability = QRNIC_CAP_XRC;
		break;
	case IB_QPT_DRIVER:
		capability = QRNIC_CAP_DYNAMIC;
		if (request->driver_type == QRNIC_DRIVER_TYPE_DC_INITIATOR) {
			type = QRNIC_QPT_DC_INI;
		} else if (request->driver_type == QRNIC_DRIVER_TYPE_DC_TARGET) {
			type = QRNIC_QPT_DC_TGT;
		} else if (request->driver_type == QRNIC_DRIVER_TYPE_CARRIER) {
			type = QRNIC_QPT_CARRIER;
			capability = QRNIC_CAP_SHARED_CONNECTION;
		} else {
			return -EOPNOTSUPP;
		}
		break;
	default:
		return -EOPNOTSUPP;
	}
	return qrnic_ib_cap(dev, capability) ? type : -EOPNOTSUPP;
}

/* IB_QP_CREATE_* that queue pairs of the type may have */
static u32 qrnic_qp_create_flags(struct qrnic_ib_dev *dev, enum ib_qp_type type)
{
	u32 flags = 0;

	if (type == IB_QPT_UD) {
		flags = IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK;
		if (qrnic_ib_cap(dev, QRNIC_CAP_SOURCE_QPN))
			flags |= IB_QP_CREATE_SOURCE_QPN;
	} else if (type == IB_QPT_RAW_PACKET) {
		if (qrnic_ib_cap(dev, QRNIC_CAP_ETH_VLAN))
			flags |= IB_QP_CREATE_CVLAN_STRIPPING;
		if (qrnic_ib_cap(dev, QRNIC_CAP_SCATTER_FCS))
			flags |= IB_QP_CREATE_SCATTER_FCS;
	}
	return flags;
}

static void qrnic_qp_flags_fill(const struct ib_qp_init_attr *init,
				struct qrnic_qp_ctx *context)
{
	if (init->create_flags & IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK)
		context->flags |= QRNIC_QPF_NO_MULTICAST_LOOPBACK;
	if (init->create_flags & IB_QP_CREATE_CVLAN_STRIPPING)
		context->flags |= QRNIC_QPF_VLAN_STRIP;
	if (init->create_flags & IB_QP_CREATE_SCATTER_FCS)
		context->flags |= QRNIC_QPF_SCATTER_FCS;
	if (init->create_flags & IB_QP_CREATE_SOURCE_QPN) {
		context->flags |= QRNIC_QPF_SOURCE_QPN;
		context->source_qpn = cpu_to_le32(init->source_qpn);
	}
}

static int qrnic_qp_check(struct qrnic_ib_dev *dev, const struct ib_qp_init_attr *init)
{
	const struct qrnic_caps *caps = &dev->qdev->caps;
	const struct ib_qp_cap *cap = &init->cap;
	bool receives = init->recv_cq && init->qp_type != IB_QPT_DRIVER;
	u32 max_inline = 0;

	if (init->create_flags & ~qrnic_qp_create_flags(dev, init->qp_type))
		return -EOPNOTSUPP;
	if (init->create_flags & IB_QP_CREATE_SOURCE_QPN &&
	    (!init->source_qpn || init->source_qpn >= QRNIC_MULTICAST_QPN))
		return -EINVAL;

	if (qrnic_ib_cap(dev, QRNIC_CAP_INLINE_SEND))
		max_inline = caps->max_inline;
	if (cap->max_send_wr > qrnic_ib_max_qp_wr(caps) ||
	    cap->max_send_sge > caps->max_sge ||
	    cap->max_inline_data > max_inline)
		return -EINVAL;
	if (init->srq && init->qp_type == IB_QPT_RAW_PACKET)
		return -EOPNOTSUPP;
	if (receives && !init->srq &&
	    (cap->max_recv_wr > caps->max_qp_recv ||
	     cap->max_recv_sge > caps->max_sge))
		return -EINVAL;
	return 0;
}

static int qrnic_qp_user_rq(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
			    const struct qrnic_create_qp_req *request,
			    struct qrnic_qp_ctx *context)
{
	dma_addr_t record;
	int err;

	err = qrnic_queue_record(qp->umem, request->rq_record_offset, &record);
	if (err)
		return err;
	err = qrnic_queue_table(dev, &qp->rq_table, qp->umem, request->rq_offset,
				(u64)QRNIC_WQEBB_SIZE << (qp->rq_log_size +
							  qp->rq_log_stride));
	if (err)
		return err;

	context->rq_record = cpu_to_le64(record);
	context->rq = qp->rq_table.hw;
	return 0;
}

static int qrnic_qp_user_tables(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
				const struct qrnic_create_qp_req *request,
				struct qrnic_qp_ctx *context)
{
	dma_addr_t record;
	int err;

	err = qrnic_queue_record(qp->umem, request->sq_record_offset, &record);
	if (err)
		return err;
	err = qrnic_queue_table(dev, &qp->sq_table, qp->umem, 0,
				(u64)QRNIC_WQEBB_SIZE << qp->sq_log_size);
	if (err)
		return err;
	context->sq_record = cpu_to_le64(record);
	context->sq = qp->sq_table.hw;

	if (qp->has_rq) {
		err = qrnic_qp_user_rq(dev, qp, request, context);
		if (err)
			qrnic_table_free(dev->qdev, &qp->sq_table);
	}
	return err;
}

/* Bytes of the rings */
static u64 qrnic_qp_user_rings(const struct qrnic_ib_qp *qp)
{
	u64 bytes = (u64)QRNIC_WQEBB_SIZE << qp->sq_log_size;

	if (qp->has_rq)
		bytes += (u64)QRNIC_WQEBB_SIZE << (qp->rq_log_size +
						   qp->rq_log_stride);
	return bytes;
}

/*
 * Sets how many bytes are received into the CQE. The process that polls copies them
 * to its buffers, so the device must know the address space of that process.
 */
static int qrnic_qp_recv_inline(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
				u8 max_recv_inline, struct qrnic_qp_ctx *context)
{
	enum ib_qp_type type = qp->ibqp.qp_type;
	int err;

	if (!max_recv_inline)
		return 0;
	if (!qrnic_ib_cap(dev, QRNIC_CAP_INLINE_RECV) ||
	    (type != IB_QPT_RC && type != IB_QPT_UC))
		return -EOPNOTSUPP;
	if (max_recv_inline > QRNIC_MAX_RECV_INLINE)
		return -EINVAL;

	err = qrnic_address_space_get(dev, &qp->address_space);
	if (err)
		return err;
	context->max_recv_inline = max_recv_inline;
	context->address_space = cpu_to_le32(qp->address_space);
	return 0;
}

/* An RQ whose buffers take many messages, if the request asks for one */
static int qrnic_qp_stream(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
			   const struct qrnic_create_qp_req *request,
			   struct qrnic_qp_ctx *context)
{
	bool wanted = request->comp_mask & QRNIC_CREATE_QP_STREAM;
	enum ib_qp_type type = qp->ibqp.qp_type;

	if (wanted && type != IB_QPT_RC && type != IB_QPT_UC && type != IB_QPT_UD)
		return -EOPNOTSUPP;
	if (wanted && (!qp->has_rq || request->max_recv_inline))
		return -EINVAL;
	return qrnic_stream_get(dev, &request->stream, wanted, &context->stream);
}

/* An end of dynamic connections; the device checks the values. */
static int qrnic_qp_dynamic(const struct ib_qp_init_attr *init,
			    const struct qrnic_create_qp_req *request,
			    struct qrnic_qp_ctx *context)
{
	const struct qrnic_dynamic *dynamic = &request->dynamic;

	if (request->driver_type == QRNIC_DRIVER_TYPE_DC_TARGET &&
	    (!init->srq || request->comp_mask ||
	     memchr_inv(&request->buf_addr, 0,
			offsetof(struct qrnic_create_qp_req, dynamic) -
			offsetof(struct qrnic_create_qp_req, buf_addr))))
		return -EINVAL;
	if (request->driver_type == QRNIC_DRIVER_TYPE_DC_INITIATOR && init->srq)
		return -EINVAL;

	context->dynamic.access_key = cpu_to_le64(dynamic->access_key);
	context->dynamic.responders = cpu_to_le16(dynamic->responders);
	context->dynamic.idle = dynamic->idle;
	context->dynamic.flags = dynamic->flags;
	return 0;
}

/* Read once, as the process can change it at any time */
static int qrnic_qp_request_get(const struct ib_qp_init_attr *init,
				struct ib_udata *udata,
				struct qrnic_create_qp_req *request)
{
	bool ours = init->qp_type == IB_QPT_DRIVER;
	bool dynamic;
	int err;

	memset(request, 0, sizeof(*request));
	if (!udata || init->qp_type == IB_QPT_XRC_TGT)
		return ib_is_udata_in_empty(udata);
	err = ib_copy_validate_udata_in_cm(udata, *request, max_recv_inline,
					   QRNIC_CREATE_QP_DB_PAGE |
					   QRNIC_CREATE_QP_STREAM);
	if (err)
		return err;
	if (request->reserved || request->reserved2 ||
	    (request->db_page &&
	     !(request->comp_mask & QRNIC_CREATE_QP_DB_PAGE)))
		return -EOPNOTSUPP;
	if (ours == !request->driver_type)
		return -EOPNOTSUPP;
	dynamic = request->driver_type == QRNIC_DRIVER_TYPE_DC_INITIATOR ||
		  request->driver_type == QRNIC_DRIVER_TYPE_DC_TARGET;
	if (request->dynamic.reserved ||
	    (!dynamic && memchr_inv(&request->dynamic, 0,
				    sizeof(request->dynamic))))
		return -EOPNOTSUPP;
	return 0;
}

/* The memory of a user QP */
static int qrnic_qp_user_prepare(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
				 struct ib_udata *udata,
				 const struct qrnic_create_qp_req *request,
				 struct qrnic_qp_ctx *context)
{
	struct qrnic_ib_ucontext *ucontext = rdma_udata_to_drv_context(udata,
			struct qrnic_ib_ucontext, ibucontext);
	const struct qrnic_caps *caps = &dev->qdev->caps;
	int err;

	if (request->sq_log_size < QRNIC_SQ_LOG_SIZE_MIN ||
	    request->sq_log_size > ilog2(caps->max_qp_wqebb) ||
	    request->rq_log_size > ilog2(caps->max_qp_recv) ||
	    request->rq_log_stride > QRNIC_RECEIVE_WQE_MAX_LOG_STRIDE)
		return -EINVAL;
	if (!qp->has_rq && (request->rq_log_size || request->rq_log_stride ||
			    request->rq_offset || request->rq_record_offset))
		return -EINVAL;
	err = qrnic_qp_stream(dev, qp, request, context);
	if (err)
		return err;
	err = qrnic_qp_recv_inline(dev, qp, request->max_recv_inline, context);
	if (err)
		return err;

	qp->sq_log_size = request->sq_log_size;
	qp->rq_log_size = request->rq_log_size;
	qp->rq_log_stride = request->rq_log_stride;
	context->db_page = cpu_to_le32(ucontext->db_page->number);
	if (request->comp_mask & QRNIC_CREATE_QP_DB_PAGE) {
		qp->db_page = qrnic_db_page_get(ucontext, request->db_page);
		if (!qp->db_page) {
			err = -EINVAL;
			goto err_address_space;
		}
		context->db_page = cpu_to_le32(request->db_page);
	}

	qp->umem = qrnic_queue_umem_get(dev, request->buf_addr, request->buf_length,
					qrnic_qp_user_rings(qp));
	if (IS_ERR(qp->umem)) {
		err = PTR_ERR(qp->umem);
		goto err_page;
	}

	err = qrnic_qp_user_tables(dev, qp, request, context);
	if (err)
		goto err_umem;
	return 0;

err_umem:
	ib_umem_release(qp->umem);
err_page:
	if (qp->db_page)
		qrnic_db_page_put(qp->db_page);
err_address_space:
	qrnic_address_space_put(dev, qp->address_space);
	return err;
}

static int qrnic_qp_kernel_prepare(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
				   struct ib_qp_init_attr *init,
				   struct qrnic_qp_ctx *context)
{
	int err;

	err = qrnic_kernel_queues_create(dev, qp, init);
	if (err)
		return err;

	context->sq_record = cpu_to_le64(qp->sq.ring.record_dma);
	context->sq = qp->sq.ring.hw;
	if (qp->has_rq) {
		context->rq_record = cpu_to_le64(qp->rq.ring.record_dma);
		context->rq = qp->rq.ring.hw;
	}
	return 0;
}

static void qrnic_qp_memory_free(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp)
{
	if (!qp->has_sq)
		return;
	if (qp->umem) {
		if (qp->has_rq)
			qrnic_table_free(dev->qdev, &qp->rq_table);
		qrnic_table_free(dev->qdev, &qp->sq_table);
		ib_umem_release(qp->umem);
		if (qp->db_page)
			qrnic_db_page_put(qp->db_page);
		qrnic_address_space_put(dev, qp->address_space);
	} else {
		qrnic_kernel_queues_destroy(dev, qp);
	}
}

/* Takes what the device has completed of this QP out of kernel CQs. */
static void qrnic_qp_clean(struct qrnic_ib_qp *qp)
{
	struct ib_qp *ibqp = &qp->ibqp;

	/*
	 * An XRC initiator has only a send CQ, and a target has none: the completions
	 * of a target are its SRQ's.
	 */
	if (ibqp->send_cq)
		qrnic_cq_clean(to_qrnic_cq(ibqp->send_cq), ibqp->qp_num);
	if (ibqp->recv_cq && ibqp->recv_cq != ibqp->send_cq)
		qrnic_cq_clean(to_qrnic_cq(ibqp->recv_cq), ibqp->qp_num);
}

static void qrnic_qp_remove(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp)
{
	struct qrnic_ib_number retired;
	u32 qpn = qp->ibqp.qp_num;

	if (qrnic_qp_is_kernel(qp))
		qrnic_flush_detach(qp);
	qrnic_object_remove(&dev->qps, &qp->object, qpn);
	if (qp->is_carrier) {
		qrnic_carrier_drop(qp);
		return;
	}

	qrnic_number_retire(dev, &retired, &dev->qps, qpn);
	qrnic_destroy(dev, QRNIC_CMD_DESTROY_QP, qpn);
	qrnic_qp_clean(qp);
	qrnic_flush_events(dev->qdev);
	qrnic_number_release(dev, &retired);
	qrnic_carrier_drop(qp);
	qrnic_share_leave(qp);
}

/* Makes the QP in the device and then findable. */
static int qrnic_qp_insert(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
			   const struct qrnic_qp_ctx *context)
{
	u32 qpn;
	int err;

	err = qrnic_create_24_bits(dev, QRNIC_CMD_CREATE_QP,
				   QRNIC_CMD_DESTROY_QP, context,
				   sizeof(*context), &qpn);
	if (err)
		return err;

	qrnic_number_await(dev, &dev->qps, qpn);
	qp->ibqp.qp_num = qpn;
	if (qp->is_carrier)
		rcu_dereference_protected(qp->carrier, true)->number = qpn;
	err = qrnic_object_insert(&dev->qps, &qp->object, qpn);
	if (err)
		qrnic_destroy(dev, QRNIC_CMD_DESTROY_QP, qpn);
	else if (qrnic_qp_is_kernel(qp))
		qrnic_flush_attach(qp);
	return err;
}

/* The objects that a QP of the type speaks of; a carrier is nobody's. */
static void qrnic_qp_objects_fill(const struct qrnic_ib_qp *qp, int type,
				  const struct ib_qp_init_attr *init,
				  struct qrnic_qp_ctx *context)
{
	if (type == QRNIC_QPT_CARRIER)
		return;
	if (init->srq)
		context->srq = cpu_to_le32(to_qrnic_srq(init->srq)->srqn);
	if (qp->has_sq) {
		context->pd = cpu_to_le32(to_qrnic_pd(qp->ibqp.pd)->pdn);
		context->send_cq =
			cpu_to_le32(to_qrnic_cq(init->send_cq)->core.cqn);
	} else if (type == QRNIC_QPT_DC_TGT) {
		context->pd = cpu_to_le32(to_qrnic_pd(qp->ibqp.pd)->pdn);
	} else {
		context->xrcd = cpu_to_le32(to_qrnic_xrcd(init->xrcd)->xrcdn);
	}
	/* uverbs gives an initiator one, too. */
	if (init->recv_cq && type != QRNIC_QPT_DC_INI)
		context->recv_cq =
			cpu_to_le32(to_qrnic_cq(init->recv_cq)->core.cqn);
}

int qrnic_ib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		       struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	struct qrnic_create_qp_resp response = {};
	struct qrnic_create_qp_req request;
	struct qrnic_qp_ctx context = {};
	int err = 0, type;

	if (init->rwq_ind_tbl)
		return qrnic_rss_create(dev, qp, init, udata);
	err = qrnic_qp_request_get(init, udata, &request);
	if (err)
		return err;
	type = qrnic_qp_hw_type(dev, init, udata, &request);
	if (type < 0)
		return type;
	err = qrnic_qp_check(dev, init);
	if (err)
		return err;
	err = qrnic_qp_dynamic(init, &request, &context);
	if (err)
		return err;

	qrnic_object_init(&qp->object);
	qrnic_odp_qp_init(qp);
	mutex_init(&qp->mutex);
	spin_lock_init(&qp->sq.lock);
	spin_lock_init(&qp->rq.lock);
	qp->state = IB_QPS_RESET;
	qp->driver_type = request.driver_type;
	qp->signal_all = init->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->has_sq = type != QRNIC_QPT_XRC_TGT && type != QRNIC_QPT_DC_TGT &&
		     type != QRNIC_QPT_CARRIER;
	qp->has_rq = init->recv_cq && !init->srq && type != QRNIC_QPT_DC_INI &&
		     type != QRNIC_QPT_CARRIER;

	if (type == QRNIC_QPT_CARRIER)
		err = qrnic_carrier_prepare(qp, init, &request);
	else if (udata && qp->has_sq)
		err = qrnic_qp_user_prepare(dev, qp, udata, &request, &context);
	else if (qp->has_sq)
		err = qrnic_qp_kernel_prepare(dev, qp, init, &context);
	if (err)
		return err;

	qp->cap = init->cap;
	context.type = type;
	context.sq_log_size = qp->sq_log_size;
	context.rq_log_size = qp->rq_log_size;
	context.rq_log_stride = qp->rq_log_stride;
	qrnic_qp_objects_fill(qp, type, init, &context);
	qrnic_qp_flags_fill(init, &context);

	err = qrnic_qp_insert(dev, qp, &context);
	if (err)
		goto err_carrier;

	if (udata) {
		response.qpn = ibqp->qp_num;
		if (qp->is_carrier)
			response.carrier_key =
				rcu_dereference_protected(qp->carrier, true)->key;
		err = ib_respond_udata(udata, response);
		if (err)
			goto err_remove;
	}
	return 0;

err_remove:
	qrnic_qp_remove(dev, qp);
	qrnic_qp_memory_free(dev, qp);
	return err;
err_carrier:
	/* The device has not got it, and nobody else has found it. */
	qrnic_carrier_unprepare(qp);
	qrnic_qp_memory_free(dev, qp);
	return err;
}

int qrnic_ib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);

	if (qp->rss) {
		qrnic_rss_destroy(dev, qp);
		return 0;
	}
	qrnic_qp_remove(dev, qp);
	qrnic_qp_memory_free(dev, qp);
	return 0;
}

/*
 * Checks what would not fit the narrower members of the context. The device checks
 * the rest.
 */
static int qrnic_qp_attr_check(struct qrnic_ib_dev *dev, const struct ib_qp_attr *attr,
			       int mask)
{
	const struct qrnic_caps *caps = &dev->qdev->caps;

	if (mask & IB_QP_PORT && attr->port_num != QRNIC_IB_PORT)
		return -EINVAL;
	if (mask & IB_QP_PKEY_INDEX && attr->pkey_index)
		return -EINVAL;
	if (mask & IB_QP_DEST_QPN && attr->dest_qp_num > QRNIC_24_BITS)
		return -EINVAL;
	if (mask & IB_QP_PATH_MTU &&
	    (attr->path_mtu < IB_MTU_256 || attr->path_mtu > IB_MTU_4096))
		return -EINVAL;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC &&
	    attr->max_rd_atomic > caps->max_rd_atomic)
		return -EINVAL;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC &&
	    attr->max_dest_rd_atomic > caps->max_rd_atomic)
		return -EINVAL;
	return 0;
}

/* Fills what mask names; the device refuses other members that are not 0. */
static int qrnic_qp_attr_fill(struct qrnic_ib_dev *dev, struct qrnic_qp_attr *hw,
			      const struct ib_qp_attr *attr, int mask)
{
	if (mask & IB_QP_STATE)
		hw->state = attr->qp_state;
	if (mask & IB_QP_CUR_STATE)
		hw->cur_state = attr->cur_qp_state;
	if (mask & IB_QP_EN_SQD_ASYNC_NOTIFY)
		hw->sq_drained_notify = !!attr->en_sqd_async_notify;
	if (mask & IB_QP_ACCESS_FLAGS)
		hw->access = qrnic_rights_of_access(attr->qp_access_flags &
						    QRNIC_QP_ACCESS);
	if (mask & IB_QP_PORT)
		hw->port = attr->port_num;
	if (mask & IB_QP_QKEY)
		hw->qkey = cpu_to_le32(attr->qkey);
	if (mask & IB_QP_PATH_MTU)
		hw->path_mtu = attr->path_mtu;
	if (mask & IB_QP_TIMEOUT)
		hw->timeout = attr->timeout;
	if (mask & IB_QP_RETRY_CNT)
		hw->retry_cnt = attr->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		hw->rnr_retry = attr->rnr_retry;
	if (mask & IB_QP_RQ_PSN)
		hw->rq_psn = cpu_to_le32(attr->rq_psn & QRNIC_24_BITS);
	if (mask & IB_QP_SQ_PSN)
		hw->sq_psn = cpu_to_le32(attr->sq_psn & QRNIC_24_BITS);
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		hw->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		hw->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IB_QP_MIN_RNR_TIMER)
		hw->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IB_QP_DEST_QPN)
		hw->dest_qpn = cpu_to_le32(attr->dest_qp_num);
	if (mask & IB_QP_AV)
		return qrnic_av_fill(dev, &hw->av, &attr->ah_attr);
	return 0;
}

/*
 * What verbs have no attributes for: libqrnic sends it in udata, other callers send
 * nothing.
 */
static int qrnic_modify_request_get(struct qrnic_ib_dev *dev, int mask,
				    struct ib_udata *udata,
				    struct qrnic_modify_qp_req *request)
{
	const u32 shared = QRNIC_MODIFY_QP_CARRIER | QRNIC_MODIFY_QP_SHARE;
	/* Only an initiator has it, which the device checks. */
	const u8 handshake = qrnic_ib_cap(dev, QRNIC_CAP_DYNAMIC) ?
			     QRNIC_QPO_FULL_HANDSHAKE : 0;
	bool limit = mask & IB_QP_RATE_LIMIT;
	int err;

	err = qrnic_udata_no_response(udata);
	if (err)
		return err;
	if (!udata || !udata->inlen || (!limit && !ib_is_udata_in_empty(udata)))
		return 0;
	err = ib_copy_validate_udata_in_cm(udata, *request, reserved,
					   QRNIC_MODIFY_QP_PRIORITY |
					   QRNIC_MODIFY_QP_OPTIONS |
					   QRNIC_MODIFY_QP_CARRIER |
					   QRNIC_MODIFY_QP_SHARE);
	if (err)
		return err;
	if (request->reserved || request->reserved3 ||
	    memchr_inv(request->reserved2, 0, sizeof(request->reserved2)))
		return -EOPNOTSUPP;
	if (!limit && (request->max_burst_sz || request->typical_pkt_sz))
		return -EOPNOTSUPP;
	if (request->options &&
	    (!(request->comp_mask & QRNIC_MODIFY_QP_OPTIONS) ||
	     request->options & ~(qrnic_qp_options(&dev->qdev->caps) | handshake)))
		return -EOPNOTSUPP;
	if (hweight32(request->comp_mask & shared) > 1 ||
	    (request->carrier && !(request->comp_mask & shared)) ||
	    (request->carrier_key &&
	     !(request->comp_mask & QRNIC_MODIFY_QP_CARRIER)) ||
	    (request->comp_mask & shared &&
	     !qrnic_ib_cap(dev, QRNIC_CAP_SHARED_CONNECTION)))
		return -EOPNOTSUPP;
	if (!(request->comp_mask & QRNIC_MODIFY_QP_PRIORITY))
		return request->priority ? -EOPNOTSUPP : 0;
	if (!qrnic_ib_cap(dev, QRNIC_CAP_PRIORITY))
		return -EOPNOTSUPP;
	return request->priority <= QRNIC_PRIORITY_LEVELS ? 0 : -EINVAL;
}

/*
 * Kernel users cannot request options. Selective repeat changes nothing for a
 * user, and is in force only if the peer has it, too. So each RC QP of the
 * kernel has it. Adaptive routing is for users that have agreed to writes in
 * any order.
 */
static u8 qrnic_qp_kernel_options(struct qrnic_ib_dev *dev,
				  const struct qrnic_ib_qp *qp,
				  const struct ib_qp_attr *attr, int mask)
{
	if (!qrnic_qp_is_kernel(qp) || qp->ibqp.qp_type != IB_QPT_RC ||
	    !(mask & IB_QP_STATE) || attr->qp_state != IB_QPS_RTR)
		return 0;
	return qrnic_qp_options(&dev->qdev->caps) & QRNIC_QPO_SELECTIVE_REPEAT;
}

static int qrnic_qp_rate_limit(struct qrnic_ib_dev *dev, const struct ib_qp_attr *attr,
			       const struct qrnic_modify_qp_req *request,
			       struct qrnic_qp_attr *hw)
{
	if (!qrnic_ib_cap(dev, QRNIC_CAP_RATE_LIMIT))
		return -EOPNOTSUPP;
	if (attr->rate_limit > QRNIC_MAX_RATE_LIMIT)
		return -EINVAL;

	hw->rate_limit = cpu_to_le32(attr->rate_limit);
	hw->max_burst_sz = cpu_to_le32(request->max_burst_sz);
	hw->typical_pkt_sz = cpu_to_le16(request->typical_pkt_sz);
	return 0;
}

/*
 * Posting looks at the state under the lock of its queue, so that nothing is
 * posted to the old rings while a kernel QP goes to RESET.
 */
static void qrnic_qp_state_set(struct qrnic_ib_qp *qp, enum ib_qp_state state)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->sq.lock, flags);
	spin_lock(&qp->rq.lock);
	qp->state = state;
	if (state == IB_QPS_RESET && qrnic_qp_is_kernel(qp))
		qrnic_kernel_queues_reset(qp);
	spin_unlock(&qp->rq.lock);
	spin_unlock_irqrestore(&qp->sq.lock, flags);
}

static void qrnic_qp_state_changed(struct qrnic_ib_qp *qp, enum ib_qp_state state)
{
	/*
	 * The CQs are cleaned first: their CQEs name slots that the reset of the
	 * queues frees.
	 */
	if (state == IB_QPS_RESET && qp->state != IB_QPS_RESET)
		qrnic_qp_clean(qp);
	qrnic_qp_state_set(qp, state);
}

static u8 qrnic_av_sl(const struct qrnic_address_vector *av)
{
	return FIELD_GET(QRNIC_ADDRESS_VECTOR_SL_MASK, le32_to_cpu(av->flow));
}

/*
 * What the device now has the level by. The caller may have given another service
 * level than the address vector has: it is asked for with the others of the caller.
 */
static void qrnic_qp_level_changed(struct qrnic_ib_qp *qp,
				   const struct ib_qp_attr *attr,
				   const struct qrnic_qp_attr *hw, u32 attributes,
				   enum ib_qp_state state)
{
	if (state == IB_QPS_RESET) {
		qp->sl = 0;
		WRITE_ONCE(qp->av_level, 0);
		WRITE_ONCE(qp->priority, 0);
	}
	if (attributes & QRNIC_QP_AV) {
		qp->sl = rdma_ah_get_sl(&attr->ah_attr) & 0xf;
		WRITE_ONCE(qp->av_level, qrnic_av_sl(&hw->av));
	}
	if (attributes & QRNIC_QP_PRIORITY)
		WRITE_ONCE(qp->priority, hw->priority);
}

/*
 * In the fatal state the device has no QPs any more, so a change to ERR or RESET
 * succeeds. A QP with an SRQ that goes to ERR owes its consumer the event that the
 * last WQE is reached.
 */
static void qrnic_qp_state_lost(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
				enum ib_qp_state state)
{
	qrnic_qp_state_changed(qp, state);
	if (state == IB_QPS_RESET || !qrnic_qp_is_kernel(qp))
		return;
	spin_lock_irq(&qp->sq.lock);
	qp->last_wqe_due = qp->ibqp.srq;
	spin_unlock_irq(&qp->sq.lock);
	qrnic_flush_schedule(dev);
}

/* The core knows no attributes of types that are ours; the device checks them. */
static bool qrnic_qp_modify_is_ok(enum ib_qp_type type, enum ib_qp_state from,
				  enum ib_qp_state to, int mask)
{
	return type == IB_QPT_DRIVER || ib_modify_qp_is_ok(from, to, type, mask);
}

/*
 * ib_modify_qp_is_ok() knows IB_QP_RATE_LIMIT of raw packet QPs only, and nothing of
 * what verbs have no attributes for.
 */
static bool qrnic_qp_transition_is_ok(enum ib_qp_type type, enum ib_qp_state from,
				      enum ib_qp_state to, u32 attributes)
{
	const u32 ours = QRNIC_QP_RATE_LIMIT | QRNIC_QP_PRIORITY |
			 QRNIC_QP_OPTIONS | QRNIC_QP_CARRIER;

	if (attributes & (QRNIC_QP_RATE_LIMIT | QRNIC_QP_PRIORITY) &&
	    to != IB_QPS_RTS)
		return false;
	if (attributes & (QRNIC_QP_OPTIONS | QRNIC_QP_CARRIER) &&
	    (from != IB_QPS_INIT || to != IB_QPS_RTR))
		return false;
	if (attributes & QRNIC_QP_CARRIER && type != IB_QPT_RC)
		return false;
	return qrnic_qp_modify_is_ok(type, from, to, attributes & ~ours);
}

/* One call of modify_qp: attributes of the caller, and those of the device */
struct qp_change {
	struct ib_qp_attr *attr;
	int mask;			/* IB_QP_* */
	u32 attributes;			/* QRNIC_QP_* */
	enum ib_qp_state next;
	struct qrnic_modify_qp_req request;
	struct qrnic_qp_attr hw;
};

/* Checks and translates everything that does not depend on the state. */
static int qrnic_qp_change_prepare(struct qrnic_ib_qp *qp, struct qp_change *change,
				   struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(qp->ibqp.device);
	struct qrnic_modify_qp_req *request = &change->request;
	struct qrnic_qp_attr *hw = &change->hw;
	struct ib_qp_attr *attr = change->attr;
	int mask = change->mask, err;

	err = qrnic_modify_request_get(dev, mask, udata, request);
	if (!err && mask & IB_QP_RATE_LIMIT)
		err = qrnic_qp_rate_limit(dev, attr, request, hw);
	if (err)
		return err;
	change->attributes = mask;
	if (request->comp_mask & QRNIC_MODIFY_QP_PRIORITY) {
		change->attributes |= QRNIC_QP_PRIORITY;
		hw->priority = request->priority;
	}
	request->options |= qrnic_qp_kernel_options(dev, qp, attr, mask);
	/* None is what a QP has anyway, whatever its type */
	if (request->options & QRNIC_QPO_ADAPTIVE_ROUTING && qp->is_carrier)
		return -EOPNOTSUPP;
	if (request->options) {
		change->attributes |= QRNIC_QP_OPTIONS;
		hw->options = request->options;
	}
	if (request->comp_mask & (QRNIC_MODIFY_QP_CARRIER | QRNIC_MODIFY_QP_SHARE))
		change->attributes |= QRNIC_QP_CARRIER;
	err = qrnic_qp_attr_check(dev, attr, mask);
	if (!err && mask & IB_QP_AV && qp->is_carrier)
		err = qrnic_carrier_resolve(qp, &attr->ah_attr);
	if (err)
		return err;
	return qrnic_qp_attr_fill(dev, hw, attr, mask);
}

/* Checks the transition. The caller holds the mutex of the QP. */
static int qrnic_qp_change_check(struct qrnic_ib_qp *qp, struct qp_change *change)
{
	enum ib_qp_state current_state = change->mask & IB_QP_CUR_STATE ?
					 change->attr->cur_qp_state : qp->state;

	change->next = change->mask & IB_QP_STATE ? change->attr->qp_state :
						    current_state;
	if (qrnic_qp_transition_is_ok(qp->ibqp.qp_type, current_state, change->next,
				      change->attributes))
		return 0;
	ibdev_dbg(qp->ibqp.device,
		  "QP %u: no transition %u to %u with attributes 0x%x\n",
		  qp->ibqp.qp_num, current_state, change->next, change->mask);
	return -EINVAL;
}

/*
 * Makes the device execute the change, after qrnic_qp_change_check(). The caller
 * holds the mutex of the QP. *carrier is the carrier that the QP joins, or
 * NULL. The call sets it to the carrier that the caller must leave after it
 * has released the mutex. On an error that is the same carrier, because the
 * device has not admitted the QP.
 */
static int qrnic_qp_change_make(struct qrnic_ib_qp *qp, struct qp_change *change,
				struct qrnic_ib_carrier **carrier)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(qp->ibqp.device);
	enum ib_qp_state next = change->next;
	struct qrnic_qp_attr *hw = &change->hw;
	int err;

	if (*carrier)
		hw->carrier = cpu_to_le32((*carrier)->number);
	hw->mask = cpu_to_le32(change->attributes);
	err = qrnic_cmd_set(dev->qdev, QRNIC_CMD_MODIFY_QP, qp->ibqp.qp_num, hw,
			    sizeof(*hw));
	if (!err) {
		qrnic_qp_state_changed(qp, next);
		qrnic_qp_level_changed(qp, change->attr, hw, change->attributes, next);
		if (next == IB_QPS_RTR || next == IB_QPS_RESET)
			WRITE_ONCE(qp->options, change->request.options);
	} else if (!qrnic_healthy(dev->qdev) && change->mask & IB_QP_STATE &&
		   (next == IB_QPS_ERR || next == IB_QPS_RESET)) {
		qrnic_qp_state_lost(dev, qp, next);
		err = 0;
	}
	if (!err)
		*carrier = qrnic_carrier_changed(qp, *carrier, change->attr,
						 change->mask, next);
	return err;
}

/*
 * Makes the QP a member of a carrier of the driver. The carrier is connected
 * after all checks of the driver, because its path then holds for other
 * processes, too. If the device rejects the member, the carrier returns to its
 * former state.
 */
static int qrnic_qp_modify_shared(struct qrnic_ib_qp *qp, struct qp_change *change)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(qp->ibqp.device);
	struct qrnic_ib_carrier *carrier, *left = NULL;
	int err;

	if (change->request.options)
		return -EINVAL;
	mutex_lock(&dev->sharing_mutex);
	mutex_lock(&qp->mutex);
	err = qp->state == IB_QPS_INIT ? qrnic_qp_change_check(qp, change) : -EINVAL;
	if (err)
		goto out;
	carrier = qrnic_share_join(qp, change->request.carrier, change->attr,
				   &change->hw);
	if (IS_ERR(carrier)) {
		err = PTR_ERR(carrier);
	} else {
		left = carrier;
		err = qrnic_qp_change_make(qp, change, &left);
		if (err) {
			qrnic_share_abandon(qp, carrier);
			left = NULL;
		}
	}
	if (err)
		qrnic_share_refused(qp);
out:
	mutex_unlock(&qp->mutex);
	qrnic_sharing_unlock(dev);
	if (left)
		qrnic_carrier_leave(left);
	return err;
}

int qrnic_ib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		       struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qp_change change = { .attr = attr, .mask = mask };
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	struct qrnic_ib_carrier *carrier = NULL;
	bool refused;
	int err;

	if (mask & ~QRNIC_IB_QP_ATTRIBUTES || qp->rss)
		return -EOPNOTSUPP;
	err = qrnic_qp_change_prepare(qp, &change, udata);
	if (err)
		return err;
	if (change.request.comp_mask & QRNIC_MODIFY_QP_SHARE)
		return qrnic_qp_modify_shared(qp, &change);

	mutex_lock(&qp->mutex);
	/* The connection manager takes one whose connection was refused to ERR. */
	refused = qp->state <= IB_QPS_INIT;
	err = qrnic_qp_change_check(qp, &change);
	if (!err && change.request.comp_mask & QRNIC_MODIFY_QP_CARRIER) {
		carrier = qrnic_carrier_join(dev, change.request.carrier,
					     change.request.carrier_key);
		if (IS_ERR(carrier)) {
			err = PTR_ERR(carrier);
			carrier = NULL;
		}
	}
	if (!err)
		err = qrnic_qp_change_make(qp, &change, &carrier);
	mutex_unlock(&qp->mutex);

	if (!err && refused && change.next == IB_QPS_ERR) {
		mutex_lock(&dev->sharing_mutex);
		qrnic_share_refused(qp);
		qrnic_sharing_unlock(dev);
	}
	if (carrier)
		qrnic_carrier_leave(carrier);
	return err;
}

static void qrnic_qp_attr_read(struct qrnic_ib_qp *qp, const struct qrnic_qp_attr *hw,
			       struct ib_qp_attr *attr)
{
	attr->qp_state = hw->state;
	attr->cur_qp_state = hw->state;
	attr->path_mtu = hw->path_mtu;
	attr->path_mig_state = IB_MIG_MIGRATED;
	attr->qkey = le32_to_cpu(hw->qkey);
	attr->rq_psn = le32_to_cpu(hw->rq_psn);
	attr->sq_psn = le32_to_cpu(hw->sq_psn);
	attr->dest_qp_num = le32_to_cpu(hw->dest_qpn);
	attr->qp_access_flags = qrnic_access_of_rights(hw->access);
	attr->cap = qp->cap;
	attr->en_sqd_async_notify = hw->sq_drained_notify;
	attr->sq_draining = le16_get_bits(hw->query,
					  QRNIC_QP_ATTR_SQ_DRAINING_MASK);
	attr->max_rd_atomic = hw->max_rd_atomic;
	attr->max_dest_rd_atomic = hw->max_dest_rd_atomic;
	attr->min_rnr_timer = hw->min_rnr_timer;
	attr->port_num = hw->port;
	attr->timeout = hw->timeout;
	attr->retry_cnt = hw->retry_cnt;
	attr->rnr_retry = hw->rnr_retry;
	attr->rate_limit = le32_to_cpu(hw->rate_limit);
	qrnic_av_read(qp->ibqp.device, &hw->av, qp->sl, &attr->ah_attr);
}

int qrnic_ib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		      struct ib_qp_init_attr *init)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	struct qrnic_qp_attr hw;
	int err;

	if (qp->rss)
		return -EOPNOTSUPP;
	memset(attr, 0, sizeof(*attr));
	memset(init, 0, sizeof(*init));

	mutex_lock(&qp->mutex);
	err = qrnic_cmd_query(dev->qdev, QRNIC_CMD_QUERY_QP, ibqp->qp_num, &hw,
			      sizeof(hw));
	if (!err && (hw.state > QRNIC_QPS_ERR || hw.path_mtu > QRNIC_MTU_4096))
		err = -EIO;
	if (err)
		goto out;

	/*
	 * An error may have moved the QP to ERR or SQE; other states it enters by
	 * command only.
	 */
	if (hw.state == QRNIC_QPS_ERR || hw.state == QRNIC_QPS_SQE)
		qrnic_qp_state_set(qp, hw.state);
	qrnic_qp_attr_read(qp, &hw, attr);
	WRITE_ONCE(qp->options_in_force, hw.options_in_force);
	init->qp_context = ibqp->qp_context;
	init->event_handler = ibqp->event_handler;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = qp->cap;
	init->sq_sig_type = qp->signal_all ? IB_SIGNAL_ALL_WR :
					     IB_SIGNAL_REQ_WR;
	init->qp_type = ibqp->qp_type;
	init->port_num = QRNIC_IB_PORT;
out:
	mutex_unlock(&qp->mutex);
	return err;
}

int qrnic_ib_query_priority(struct ib_qp *ibqp, u32 *priority, u32 *level)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_ib_qp *qp = to_qrnic_qp(ibqp);
	struct qrnic_qp_attr hw;
	int err;

	if (qp->rss || !qp->has_sq || !qrnic_ib_cap(dev, QRNIC_CAP_PRIORITY))
		return -EOPNOTSUPP;
	err = qrnic_cmd_query(dev->qdev, QRNIC_CMD_QUERY_QP, ibqp->qp_num, &hw,
			      sizeof(hw));
	if (err)
		return err;
	if (hw.priority > QRNIC_PRIORITY_LEVELS)
		return -EIO;
	*priority = hw.priority;
	*level = hw.priority ? hw.priority - 1 : qrnic_av_sl(&hw.av);
	return 0;
}

/* The core has checked type and GID; RoCE has no LIDs. */
int qrnic_ib_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_multicast multicast;

	memcpy(multicast.gid, gid->raw, sizeof(multicast.gid));
	return qrnic_cmd_set(dev->qdev, QRNIC_CMD_ATTACH_MULTICAST,
			     ibqp->qp_num, &multicast, sizeof(multicast));
}

int qrnic_ib_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibqp->device);
	struct qrnic_multicast multicast;
	int err;

	memcpy(multicast.gid, gid->raw, sizeof(multicast.gid));
	err = qrnic_cmd_set(dev->qdev, QRNIC_CMD_DETACH_MULTICAST,
			    ibqp->qp_num, &multicast, sizeof(multicast));
	/*
	 * After a reset no QP is attached. The RDMA core never destroys one that
	 * it takes for attached.
	 */
	return err && !qrnic_healthy(dev->qdev) ? 0 : err;
}
