// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * wq.c: receive work queues, and the queue pairs that distribute frames over
 * them (RSS). In the device a receive work queue is a raw packet queue pair
 * without a send queue. Only processes create them. The mutex of a work queue
 * serialises changes of its state; events find it by its number in dev->wqs.
 */
#include <rdma/ib_umem.h>

#include "memory.h"
#include "qp.h"
#include "qrnic_ib.h"
#include "queues.h"
#include "verbs.h"

static_assert(sizeof(struct qrnic_create_wq_req) % 8 == 0);
static_assert(sizeof(struct qrnic_create_rss_req) % 8 == 0);

/* Receive work queue of a process */
struct qrnic_ib_wq {
	struct ib_wq ibwq;
	struct qrnic_ib_object object;
	struct mutex mutex;		/* serialises changes of the state */
	struct ib_umem *umem;
	struct qrnic_table table;
};

static struct qrnic_ib_wq *to_qrnic_wq(struct ib_wq *ibwq)
{
	return container_of(ibwq, struct qrnic_ib_wq, ibwq);
}

static int qrnic_wq_check(struct qrnic_ib_dev *dev, const struct ib_wq_init_attr *init)
{
	const struct qrnic_caps *caps = &dev->qdev->caps;
	u32 flags = 0;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_RSS) || init->wq_type != IB_WQT_RQ)
		return -EOPNOTSUPP;
	if (qrnic_ib_cap(dev, QRNIC_CAP_ETH_VLAN))
		flags |= IB_WQ_FLAGS_CVLAN_STRIPPING;
	if (qrnic_ib_cap(dev, QRNIC_CAP_SCATTER_FCS))
		flags |= IB_WQ_FLAGS_SCATTER_FCS;
	if (init->create_flags & ~flags)
		return -EOPNOTSUPP;
	if (!init->max_wr || init->max_wr > caps->max_qp_recv ||
	    init->max_sge > caps->max_sge)
		return -EINVAL;
	return 0;
}

/* Reads the request of the process, and prepares the memory of the queue. */
static int qrnic_wq_prepare(struct qrnic_ib_dev *dev, struct qrnic_ib_wq *wq,
			    const struct ib_wq_init_attr *init, struct ib_udata *udata,
			    struct qrnic_qp_ctx *context)
{
	struct qrnic_ib_ucontext *ucontext = rdma_udata_to_drv_context(udata,
			struct qrnic_ib_ucontext, ibucontext);
	struct qrnic_create_wq_req request;
	dma_addr_t record;
	int err;

	err = ib_copy_validate_udata_in_cm(udata, request, reserved, 0);
	if (!err)
		err = qrnic_udata_no_response(udata);
	if (err)
		return err;
	if (request.reserved)
		return -EOPNOTSUPP;
	if (request.log_size > ilog2(dev->qdev->caps.max_qp_recv) ||
	    request.log_stride > QRNIC_RECEIVE_WQE_MAX_LOG_STRIDE ||
	    init->max_wr > BIT(request.log_size))
		return -EINVAL;

	wq->umem = qrnic_queue_get(dev, request.buf_addr, request.buf_length,
				   (u64)QRNIC_WQEBB_SIZE
				   << (request.log_size + request.log_stride),
				   request.record_offset, &wq->table, &record);
	if (IS_ERR(wq->umem))
		return PTR_ERR(wq->umem);

	context->db_page = cpu_to_le32(ucontext->db_page->number);
	context->rq_log_size = request.log_size;
	context->rq_log_stride = request.log_stride;
	context->rq_record = cpu_to_le64(record);
	context->rq = wq->table.hw;
	return 0;
}

static void qrnic_wq_memory_free(struct qrnic_ib_dev *dev, struct qrnic_ib_wq *wq)
{
	qrnic_table_free(dev->qdev, &wq->table);
	ib_umem_release(wq->umem);
}

struct ib_wq *qrnic_ib_create_wq(struct ib_pd *ibpd, struct ib_wq_init_attr *init,
				 struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct qrnic_qp_ctx context = {
		.type = QRNIC_QPT_RAW_PACKET,
		.flags = QRNIC_QPF_RECEIVE_ONLY,
	};
	struct qrnic_ib_wq *wq;
	int err;

	/* Rejected, because no user in the kernel needs receive work queues. */
	if (!udata)
		return ERR_PTR(-EOPNOTSUPP);
	err = qrnic_wq_check(dev, init);
	if (err)
		return ERR_PTR(err);

	wq = kzalloc(sizeof(*wq), GFP_KERNEL);
	if (!wq)
		return ERR_PTR(-ENOMEM);
	qrnic_object_init(&wq->object);
	mutex_init(&wq->mutex);
	wq->ibwq.event_handler = init->event_handler;
	wq->ibwq.wq_context = init->wq_context;
	err = qrnic_wq_prepare(dev, wq, init, udata, &context);
	if (err)
		goto err_free;

	context.pd = cpu_to_le32(to_qrnic_pd(ibpd)->pdn);
	context.recv_cq = cpu_to_le32(to_qrnic_cq(init->cq)->core.cqn);
	if (init->create_flags & IB_WQ_FLAGS_CVLAN_STRIPPING)
		context.flags |= QRNIC_QPF_VLAN_STRIP;
	if (init->create_flags & IB_WQ_FLAGS_SCATTER_FCS)
		context.flags |= QRNIC_QPF_SCATTER_FCS;

	err = qrnic_create_24_bits(dev, QRNIC_CMD_CREATE_QP,
				   QRNIC_CMD_DESTROY_QP, &context,
				   sizeof(context), &wq->ibwq.wq_num);
	if (err)
		goto err_memory;
	/*
	 * The numbers of WQs and QPs are from one range, so the last owner may
	 * have been a QP.
	 */
	qrnic_number_await(dev, &dev->qps, wq->ibwq.wq_num);
	err = qrnic_object_insert(&dev->wqs, &wq->object, wq->ibwq.wq_num);
	if (err) {
		qrnic_destroy(dev, QRNIC_CMD_DESTROY_QP, wq->ibwq.wq_num);
		goto err_memory;
	}
	return &wq->ibwq;

err_memory:
	qrnic_wq_memory_free(dev, wq);
err_free:
	kfree(wq);
	return ERR_PTR(err);
}

int qrnic_ib_destroy_wq(struct ib_wq *ibwq, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibwq->device);
	struct qrnic_ib_wq *wq = to_qrnic_wq(ibwq);
	struct qrnic_ib_number retired;

	qrnic_object_remove(&dev->wqs, &wq->object, ibwq->wq_num);
	qrnic_number_retire(dev, &retired, &dev->qps, ibwq->wq_num);
	qrnic_destroy(dev, QRNIC_CMD_DESTROY_QP, ibwq->wq_num);
	qrnic_flush_events(dev->qdev);
	qrnic_number_release(dev, &retired);
	qrnic_wq_memory_free(dev, wq);
	kfree(wq);
	return 0;
}

/*
 * Delivers an event to the receive work queue of this number. Verbs have only
 * one event for work queues. Returns false if no receive work queue has the
 * number.
 */
bool qrnic_wq_event(struct qrnic_ib_dev *dev, u32 number, enum ib_event_type type)
{
	struct qrnic_ib_object *object = qrnic_object_get(&dev->wqs, number);
	struct ib_event event = {
		.device = &dev->ibdev,
		.event = IB_EVENT_WQ_FATAL,
	};
	struct qrnic_ib_wq *wq;

	if (!object)
		return false;
	wq = container_of(object, struct qrnic_ib_wq, object);
	event.element.wq = &wq->ibwq;
	/*
	 * uverbs sets uobject only after create_wq(), and its event handler
	 * dereferences uobject. So an event before that is dropped. Until then
	 * the work queue is in RESET, where only a device that is not trusted
	 * sends events.
	 */
	if (type == IB_EVENT_QP_FATAL && wq->ibwq.event_handler &&
	    READ_ONCE(wq->ibwq.uobject))
		wq->ibwq.event_handler(&event, wq->ibwq.wq_context);
	qrnic_object_put(object);
	return true;
}

static int qrnic_wq_step(struct qrnic_ib_dev *dev, u32 number, u8 state)
{
	struct qrnic_qp_attr hw = {
		.mask = cpu_to_le32(QRNIC_QP_STATE),
		.state = state,
	};

	if (state == QRNIC_QPS_INIT) {
		hw.mask |= cpu_to_le32(QRNIC_QP_PORT);
		hw.port = QRNIC_IB_PORT;
	}
	return qrnic_cmd_set(dev->qdev, QRNIC_CMD_MODIFY_QP, number, &hw,
			     sizeof(hw));
}

static int qrnic_wq_to(struct qrnic_ib_dev *dev, u32 number, enum ib_wq_state from,
		       enum ib_wq_state to)
{
	int err = 0;

	switch (to) {
	case IB_WQS_RESET:
		err = qrnic_wq_step(dev, number, QRNIC_QPS_RESET);
		break;
	case IB_WQS_ERR:
		err = qrnic_wq_step(dev, number, QRNIC_QPS_ERR);
		break;
	case IB_WQS_RDY:
		if (from == IB_WQS_RDY)
			return 0;
		if (from != IB_WQS_RESET)
			return -EINVAL;
		err = qrnic_wq_step(dev, number, QRNIC_QPS_INIT);
		if (!err)
			err = qrnic_wq_step(dev, number, QRNIC_QPS_RTR);
		return err;
	default:
		return -EINVAL;
	}
	/*
	 * In the fatal state the change succeeds, because the work queue
	 * receives nothing then, as in RESET and ERR.
	 */
	return err && !qrnic_healthy(dev->qdev) ? 0 : err;
}

int qrnic_ib_modify_wq(struct ib_wq *ibwq, struct ib_wq_attr *attr, u32 mask,
		       struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibwq->device);
	struct qrnic_ib_wq *wq = to_qrnic_wq(ibwq);
	int err;

	err = qrnic_udata_none(udata);
	if (err)
		return err;
	if (mask & ~(IB_WQ_STATE | IB_WQ_CUR_STATE))
		return -EOPNOTSUPP;

	mutex_lock(&wq->mutex);
	if (mask & IB_WQ_CUR_STATE && attr->curr_wq_state != ibwq->state)
		err = -EINVAL;
	else if (mask & IB_WQ_STATE)
		err = qrnic_wq_to(dev, ibwq->wq_num, ibwq->state, attr->wq_state);
	if (!err && mask & IB_WQ_STATE)
		ibwq->state = attr->wq_state;
	mutex_unlock(&wq->mutex);
	return err;
}

/*
 * Checks the table. qrnic_rss_create() creates it in the device, together with
 * the QP that uses it.
 */
int qrnic_ib_create_rwq_ind_table(struct ib_rwq_ind_table *table,
				  struct ib_rwq_ind_table_init_attr *init,
				  struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(table->device);
	int err;

	err = qrnic_udata_none(udata);
	if (err)
		return err;
	if (!qrnic_ib_cap(dev, QRNIC_CAP_RSS))
		return -EOPNOTSUPP;
	return init->log_ind_tbl_size <= QRNIC_RSS_MAX_LOG_SIZE ? 0 : -EINVAL;
}

int qrnic_ib_destroy_rwq_ind_table(struct ib_rwq_ind_table *table)
{
	return 0;
}

static int qrnic_rss_fill(const struct qrnic_create_rss_req *request,
			  const struct ib_rwq_ind_table *table,
			  struct qrnic_rss_ctx *context)
{
	__le32 *entry = (__le32 *)context->entries;
	u32 i;

	if (memchr_inv(request->reserved, 0, sizeof(request->reserved)) ||
	    request->function != QRNIC_RSS_TOEPLITZ ||
	    request->key_length != sizeof(request->key) ||
	    request->fields & ~(u64)QRNIC_RSS_ALL)
		return -EOPNOTSUPP;

	context->log_size = table->log_ind_tbl_size;
	context->hash = cpu_to_le32(request->fields);
	memcpy(context->key, request->key, sizeof(context->key));
	for (i = 0; i < BIT(table->log_ind_tbl_size); i++)
		entry[i] = cpu_to_le32(table->ind_tbl[i]->wq_num);
	return 0;
}

/*
 * Creates a QP that distributes frames. The QP has neither queues nor states
 * nor a number. In the device it is an RSS table, and flow rules have its
 * number. Returns 0 or a negative errno.
 */
int qrnic_rss_create(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
		     const struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	struct qrnic_create_rss_req request;
	struct qrnic_rss_ctx *context;
	int err;

	/*
	 * The QP is excluded, because the RDMA core tracks objects by number
	 * and this QP has none.
	 */
	rdma_restrack_no_track(&qp->ibqp.res);
	if (!qrnic_ib_cap(dev, QRNIC_CAP_RSS) || !udata ||
	    init->qp_type != IB_QPT_RAW_PACKET || init->create_flags)
		return -EOPNOTSUPP;
	err = ib_copy_validate_udata_in_cm(udata, request, reserved, 0);
	if (!err)
		err = qrnic_udata_no_response(udata);
	if (err)
		return err;

	context = kzalloc(sizeof(*context), GFP_KERNEL);
	if (!context)
		return -ENOMEM;
	err = qrnic_rss_fill(&request, init->rwq_ind_tbl, context);
	if (!err)
		err = qrnic_cmd_create(dev->qdev, QRNIC_CMD_CREATE_RSS, context,
				       sizeof(*context), &qp->rss);
	/*
	 * Rejected, because 0 means that there is no table, and the contract
	 * has no table 0.
	 */
	if (!err && !qp->rss)
		err = -EIO;
	kfree(context);
	return err;
}

void qrnic_rss_destroy(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp)
{
	qrnic_destroy(dev, QRNIC_CMD_DESTROY_RSS, qp->rss);
}
