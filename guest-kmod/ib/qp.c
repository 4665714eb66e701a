// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * qp.c: creates and destroys queue pairs, and attaches them to multicast
 * groups. Changes of their attributes are in qp_modify.c.
 *
 * Creation checks the request, prepares the memory of the queues, and creates
 * the QP in the device. Completions and events find the QP by its number from
 * qrnic_qp_insert() to qrnic_qp_remove(). The RDMA core serialises creation and
 * destruction of a QP, so both need no lock.
 */
#include <rdma/ib_umem.h>

#include "memory.h"
#include "odp.h"
#include "qp.h"
#include "qrnic_ib.h"
#include "queues.h"
#include "verbs.h"

/* Returns the type of the QP in the device (QRNIC_QPT_*), or -EOPNOTSUPP. */
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
		/*
		 * Processes cannot create a GSI QP, because they use the one of
		 * the kernel through ib_umad.
		 */
		if (user)
			return -EOPNOTSUPP;
		type = QRNIC_QPT_GSI;
		capability = QRNIC_CAP_UD;
		break;
	case IB_QPT_RAW_PACKET:
		/*
		 * Only processes may create raw packet QPs here. The netdev has
		 * its own, and other users in the kernel cannot create the flow
		 * rules by which such a QP receives.
		 */
		if (!user)
			return -EOPNOTSUPP;
		type = QRNIC_QPT_RAW_PACKET;
		capability = QRNIC_CAP_FLOW;
		break;
	case IB_QPT_XRC_INI:
		/* Rejected, because there is no user of XRC in the kernel. */
		if (!user)
			return -EOPNOTSUPP;
		type = QRNIC_QPT_XRC_INI;
		capability = QRNIC_CAP_XRC;
		break;
	case IB_QPT_XRC_TGT:
		/*
		 * The RDMA core creates XRC targets for the processes that open
		 * them, so user is false.
		 */
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

/* Returns the flags IB_QP_CREATE_* that the type of QP supports. */
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

/* Returns the size of the rings in bytes. */
static u64 qrnic_qp_user_rings(const struct qrnic_ib_qp *qp)
{
	u64 bytes = (u64)QRNIC_WQEBB_SIZE << qp->sq_log_size;

	if (qp->has_rq)
		bytes += (u64)QRNIC_WQEBB_SIZE << (qp->rq_log_size +
						   qp->rq_log_stride);
	return bytes;
}

/*
 * Sets the number of bytes that are received into the CQE. The poller copies
 * them to the buffers of the process, so the device must know the address space
 * of that process. Returns 0 or a negative errno.
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

/*
 * Sets the attributes of a streaming receive queue, if the process requests
 * one: each buffer then receives many messages.
 */
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

/*
 * Sets the attributes of an initiator or target of dynamic connections. The
 * device checks the values.
 */
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

/* Copies the request once, because the process can change it at any time. */
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
					   QRNIC_CREATE_QP_STREAM |
					   QRNIC_CREATE_QP_EVENT_INDEX);
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

/*
 * Lets the device write an event index into the record of the SQ, if the
 * process requests it.
 */
static int qrnic_qp_event_index(struct qrnic_ib_dev *dev,
				const struct qrnic_create_qp_req *request,
				struct qrnic_qp_ctx *context)
{
	if (!(request->comp_mask & QRNIC_CREATE_QP_EVENT_INDEX))
		return 0;
	if (!qrnic_ib_cap(dev, QRNIC_CAP_EVENT_INDEX))
		return -EOPNOTSUPP;
	context->flags |= QRNIC_QPF_EVENT_INDEX;
	return 0;
}

/* Prepares the memory of a user QP. */
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
	err = qrnic_qp_event_index(dev, request, context);
	if (err)
		return err;
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

	if (qrnic_ib_cap(dev, QRNIC_CAP_EVENT_INDEX))
		context->flags |= QRNIC_QPF_EVENT_INDEX;
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

/* Removes the completions of this QP from kernel CQs. */
void qrnic_qp_clean(struct qrnic_ib_qp *qp)
{
	struct ib_qp *ibqp = &qp->ibqp;

	/*
	 * An XRC initiator has only a send CQ. An XRC target has none, because
	 * its completions belong to its SRQ.
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

/*
 * Creates the QP in the device, and then inserts it into the table. Returns 0
 * or a negative errno.
 */
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

/*
 * Sets the numbers of the objects that a QP of this type uses. A carrier uses
 * none, because it only transports packets of its members.
 */
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
	/*
	 * The receive CQ of a dynamic initiator is not passed to the device,
	 * because an initiator does not receive. The CQ exists only because
	 * uverbs requires it.
	 */
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
	struct qrnic_ib_ucontext *ucontext;
	struct qrnic_qp_ctx context = {};
	int err = 0, type;

	ucontext = rdma_udata_to_drv_context(udata, struct qrnic_ib_ucontext,
					     ibucontext);
	if (ucontext && !qrnic_process_may_post(ucontext->process))
		return -EPERM;

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
	/*
	 * The carrier can be freed directly, because the QP does not exist in
	 * the device and no member has found it.
	 */
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
 * Attaches the QP to a multicast group. The RDMA core has checked type and GID.
 * The LID is ignored, because RoCE has none.
 */
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
	 * After a reset no QP is attached, so the error is hidden. Otherwise
	 * the RDMA core would never destroy the QP.
	 */
	return err && !qrnic_healthy(dev->qdev) ? 0 : err;
}
