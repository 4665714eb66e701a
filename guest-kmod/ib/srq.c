// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * srq.c: shared receive queues: create, modify, query and destroy; their slots,
 * which completions free; and the tag lists of processes. Posting is in post.c,
 * resizing in srq_resize.c.
 *
 * The lock of an SRQ protects the slots of a kernel SRQ. Completions take this
 * lock inside the lock of their CQ. The mutex resize_mutex serialises changes
 * of the ring.
 */
#include <rdma/ib_umem.h>

#include "memory.h"
#include "qrnic_ib.h"
#include "queues.h"
#include "verbs.h"

#define SEGMENTS_PER_BLOCK (QRNIC_WQEBB_SIZE / QRNIC_SEGMENT_SIZE)

/*
 * Frees a slot and returns its request. The slot number is checked, because the
 * device is not trusted. Returns false if the slot was not posted. Completions
 * of a QP that is being destroyed free slots, too. Called under the lock of the
 * CQ.
 */
bool qrnic_srq_complete(struct qrnic_ib_dev *dev, u32 srqn, u32 slot,
			struct qrnic_ib_request *request)
{
	struct qrnic_ib_srq *srq = qrnic_srq_get(dev, srqn);
	bool posted = false;

	if (!srq)
		return false;
	spin_lock(&srq->lock);
	if (!srq->umem && !(slot >> srq->log_size) &&
	    srq->slots[slot].link == QRNIC_SLOT_POSTED) {
		posted = true;
		request->wr_id = srq->slots[slot].wr_id;
		request->bytes = srq->slots[slot].bytes;
		request->opcode = IB_WC_RECV;
		srq->slots[srq->tail].link = slot;
		srq->slots[slot].link = 0;
		srq->tail = slot;
	}
	spin_unlock(&srq->lock);
	qrnic_srq_put(srq);
	return posted;
}

static int qrnic_tag_list_check(struct qrnic_ib_dev *dev,
				const struct ib_srq_init_attr *init)
{
	u32 tags = init->ext.tag_matching.max_num_tags;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_TAG_MATCHING))
		return -EOPNOTSUPP;
	return tags && tags < QRNIC_MAX_TAGS ? 0 : -EINVAL;
}

/*
 * Prepares the tag list of a process (IB_SRQT_TM): pins and maps the ring of
 * operations, which the device reads. The flag is true if the process has sent
 * a ring in its request. Returns 0 or a negative errno.
 */
static int qrnic_tag_list_prepare(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
				  const struct ib_srq_init_attr *init,
				  const struct qrnic_tag_ring *request, bool wanted,
				  struct qrnic_tag_list_ctx *context)
{
	bool tags = init->srq_type == IB_SRQT_TM;
	struct ib_umem *umem;
	dma_addr_t record;

	if (wanted != tags)
		return -EINVAL;
	if (!wanted)
		return memchr_inv(request, 0, sizeof(*request)) ? -EOPNOTSUPP : 0;
	if (request->reserved)
		return -EOPNOTSUPP;
	if (request->log_size > ilog2(QRNIC_MAX_TAG_OPS) ||
	    request->log_stride > QRNIC_RECEIVE_WQE_MAX_LOG_STRIDE)
		return -EINVAL;

	umem = qrnic_queue_get(dev, request->buf_addr, request->buf_length,
			       (u64)QRNIC_WQEBB_SIZE
			       << (request->log_size + request->log_stride),
			       request->record_offset, &srq->tags_table,
			       &record);
	if (IS_ERR(umem))
		return PTR_ERR(umem);

	srq->tags_umem = umem;
	/*
	 * One entry more than requested, because no entry uses the last handle,
	 * which marks a removed entry.
	 */
	context->max_tags =
		cpu_to_le32(init->ext.tag_matching.max_num_tags + 1);
	context->cq = cpu_to_le32(to_qrnic_cq(init->ext.cq)->core.cqn);
	context->log_size = request->log_size;
	context->log_stride = request->log_stride;
	context->record = cpu_to_le64(record);
	context->ring = srq->tags_table.hw;
	return 0;
}

/* Creates the tag list in the device, which destroys it with the SRQ. */
static int qrnic_tag_list_create(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
				 const struct qrnic_tag_list_ctx *context)
{
	if (!srq->tags_umem)
		return 0;
	return qrnic_cmd_set(dev->qdev, QRNIC_CMD_CREATE_TAG_LIST, srq->srqn,
			     context, sizeof(*context));
}

static void qrnic_tag_list_free(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq)
{
	if (!srq->tags_umem)
		return;
	qrnic_table_free(dev->qdev, &srq->tags_table);
	ib_umem_release(srq->tags_umem);
}

static int qrnic_srq_check(struct qrnic_ib_dev *dev,
			   const struct ib_srq_init_attr *init, bool user)
{
	const struct qrnic_caps *caps = &dev->qdev->caps;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_SRQ))
		return -EOPNOTSUPP;
	/*
	 * XRC and tag matching are supported for processes only, as in
	 * qrnic_qp_hw_type().
	 */
	if (init->srq_type == IB_SRQT_TM && user) {
		int err = qrnic_tag_list_check(dev, init);

		if (err)
			return err;
	} else if (init->srq_type != IB_SRQT_BASIC &&
	    !(init->srq_type == IB_SRQT_XRC && user &&
	      qrnic_ib_cap(dev, QRNIC_CAP_XRC)))
		return -EOPNOTSUPP;
	if (!init->attr.max_wr || init->attr.max_wr > caps->max_srq_wr ||
	    init->attr.max_sge > caps->max_sge)
		return -EINVAL;
	return 0;
}

/*
 * Reads the attributes of a streaming receive queue. The flag is true if
 * comp_mask of the request has the bit of these attributes. Without this bit
 * the attributes must be 0. Returns 0 or a negative errno.
 */
int qrnic_stream_get(struct qrnic_ib_dev *dev, const struct qrnic_stream *stream,
		     bool wanted, struct qrnic_stream_attr *hw)
{
	if (!wanted)
		return stream->max_message || stream->max_messages ||
		       stream->log_align || stream->reserved ? -EOPNOTSUPP : 0;
	if (!qrnic_ib_cap(dev, QRNIC_CAP_STREAMING_RECV) || stream->reserved)
		return -EOPNOTSUPP;
	if (!stream->max_message || stream->max_message > QRNIC_MAX_MSG_SIZE ||
	    !stream->max_messages ||
	    stream->log_align > QRNIC_STREAM_MAX_LOG_ALIGN)
		return -EINVAL;

	hw->max_message = cpu_to_le32(stream->max_message);
	hw->max_messages = cpu_to_le16(stream->max_messages);
	hw->log_align = stream->log_align;
	return 0;
}

/* Reads the request for an SRQ of user space, and prepares its memory. */
static int qrnic_srq_user_prepare(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
				  const struct ib_srq_init_attr *init,
				  struct ib_udata *udata,
				  struct qrnic_srq_ctx *context,
				  struct qrnic_tag_list_ctx *tags)
{
	struct qrnic_ib_ucontext *ucontext = rdma_udata_to_drv_context(udata,
			struct qrnic_ib_ucontext, ibucontext);
	struct qrnic_create_srq_req request;
	dma_addr_t record;
	int err;

	err = ib_copy_validate_udata_in_cm(udata, request, reserved,
					   QRNIC_CREATE_SRQ_STREAM |
					   QRNIC_CREATE_SRQ_TAGS);
	if (err)
		return err;
	if (request.reserved)
		return -EOPNOTSUPP;
	err = qrnic_stream_get(dev, &request.stream,
			       request.comp_mask & QRNIC_CREATE_SRQ_STREAM,
			       &context->stream);
	if (err)
		return err;
	if (!qrnic_srq_size_ok(dev, request.log_size, init->attr.max_wr) ||
	    request.log_stride > QRNIC_RECEIVE_WQE_MAX_LOG_STRIDE)
		return -EINVAL;

	srq->log_size = request.log_size;
	srq->log_stride = request.log_stride;
	context->db_page = cpu_to_le32(ucontext->db_page->number);

	srq->umem = qrnic_queue_get(dev, request.buf_addr, request.buf_length,
				    (u64)QRNIC_WQEBB_SIZE
				    << (srq->log_size + srq->log_stride),
				    request.record_offset, &srq->table, &record);
	if (IS_ERR(srq->umem))
		return PTR_ERR(srq->umem);

	context->record = cpu_to_le64(record);
	context->ring = srq->table.hw;
	err = qrnic_tag_list_prepare(dev, srq, init, &request.tags,
				     request.comp_mask & QRNIC_CREATE_SRQ_TAGS,
				     tags);
	if (err) {
		qrnic_table_free(dev->qdev, &srq->table);
		ib_umem_release(srq->umem);
	}
	return err;
}

static int qrnic_srq_slots_alloc(struct qrnic_ib_srq *srq)
{
	u32 slot, slots = BIT(srq->log_size);

	srq->slots = kvcalloc(slots, sizeof(*srq->slots), GFP_KERNEL);
	if (!srq->slots)
		return -ENOMEM;

	/*
	 * The list of free slots begins with slot 0, because the device begins
	 * there.
	 */
	for (slot = 0; slot < slots - 1; slot++)
		srq->slots[slot].link = slot + 1;
	srq->tail = slots - 1;
	return 0;
}

static int qrnic_srq_kernel_prepare(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
				    const struct ib_srq_attr *attr,
				    struct qrnic_srq_ctx *context)
{
	u32 stride = DIV_ROUND_UP(1 + attr->max_sge, SEGMENTS_PER_BLOCK);
	int err;

	srq->log_stride = order_base_2(stride);
	srq->log_size = order_base_2(attr->max_wr + 1);

	err = qrnic_srq_slots_alloc(srq);
	if (err)
		return err;
	err = qrnic_queue_ring_alloc(dev->qdev, &srq->ring,
				     (size_t)QRNIC_WQEBB_SIZE << (srq->log_size +
							    srq->log_stride));
	if (err) {
		kvfree(srq->slots);
		return err;
	}

	context->record = cpu_to_le64(srq->ring.record_dma);
	context->ring = srq->ring.hw;
	return 0;
}

static void qrnic_srq_memory_free(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq)
{
	if (srq->umem) {
		qrnic_tag_list_free(dev, srq);
		qrnic_table_free(dev->qdev, &srq->table);
		ib_umem_release(srq->ring_umem);
		ib_umem_release(srq->umem);
	} else {
		qrnic_ring_free(dev->qdev, &srq->ring);
		kvfree(srq->slots);
	}
}

/*
 * Creates the SRQ in the device, and then inserts it into the table. Returns 0
 * or a negative errno.
 */
static int qrnic_srq_insert(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
			    const struct qrnic_srq_ctx *context)
{
	int err;

	err = qrnic_cmd_create(dev->qdev, QRNIC_CMD_CREATE_SRQ, context,
			       sizeof(*context), &srq->srqn);
	if (err)
		return err;

	qrnic_number_await(dev, &dev->srqs, srq->srqn);
	err = qrnic_object_insert(&dev->srqs, &srq->object, srq->srqn);
	if (err)
		qrnic_destroy(dev, QRNIC_CMD_DESTROY_SRQ, srq->srqn);
	return err;
}

static void qrnic_srq_remove(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq)
{
	struct qrnic_ib_number retired;

	qrnic_object_remove(&dev->srqs, &srq->object, srq->srqn);

	qrnic_number_retire(dev, &retired, &dev->srqs, srq->srqn);
	qrnic_destroy(dev, QRNIC_CMD_DESTROY_SRQ, srq->srqn);
	qrnic_flush_events(dev->qdev);
	qrnic_number_release(dev, &retired);
}

int qrnic_ib_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
			struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibsrq->device);
	struct qrnic_ib_srq *srq = to_qrnic_srq(ibsrq);
	struct qrnic_create_srq_resp response = {};
	struct qrnic_tag_list_ctx tags = {};
	struct qrnic_srq_ctx context = {};
	int err;

	err = qrnic_srq_check(dev, init, udata);
	if (err)
		return err;

	qrnic_object_init(&srq->object);
	spin_lock_init(&srq->lock);
	mutex_init(&srq->resize_mutex);
	srq->max_sge = init->attr.max_sge;
	if (udata)
		err = qrnic_srq_user_prepare(dev, srq, init, udata, &context, &tags);
	else
		err = qrnic_srq_kernel_prepare(dev, srq, &init->attr, &context);
	if (err)
		return err;

	context.pd = cpu_to_le32(to_qrnic_pd(ibsrq->pd)->pdn);
	context.log_size = srq->log_size;
	context.log_stride = srq->log_stride;
	if (init->srq_type == IB_SRQT_XRC) {
		context.xrcd =
			cpu_to_le32(to_qrnic_xrcd(init->ext.xrc.xrcd)->xrcdn);
		context.cq = cpu_to_le32(to_qrnic_cq(init->ext.cq)->core.cqn);
	}
	err = qrnic_srq_insert(dev, srq, &context);
	if (err)
		goto err_memory;
	err = qrnic_tag_list_create(dev, srq, &tags);
	if (err)
		goto err_remove;

	init->attr.max_wr = BIT(srq->log_size) - 1;
	if (init->srq_type == IB_SRQT_XRC)
		ibsrq->ext.xrc.srq_num = srq->srqn;
	if (udata) {
		response.srqn = srq->srqn;
		err = ib_respond_udata(udata, response);
		if (err)
			goto err_remove;
	}
	return 0;

err_remove:
	qrnic_srq_remove(dev, srq);
err_memory:
	qrnic_srq_memory_free(dev, srq);
	return err;
}

static int qrnic_srq_set_limit(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
			       u32 value, struct ib_udata *udata)
{
	struct qrnic_srq_limit limit = {};
	int err;

	err = qrnic_udata_none(udata);
	if (err)
		return err;
	if (value >= BIT(srq->log_size))
		return -EINVAL;

	limit.limit = cpu_to_le16(value);
	return qrnic_cmd_set(dev->qdev, QRNIC_CMD_MODIFY_SRQ, srq->srqn, &limit,
			     sizeof(limit));
}

int qrnic_ib_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
			enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibsrq->device);
	struct qrnic_ib_srq *srq = to_qrnic_srq(ibsrq);
	int err = 0;

	if (mask & ~(IB_SRQ_MAX_WR | IB_SRQ_LIMIT))
		return -EOPNOTSUPP;

	mutex_lock(&srq->resize_mutex);
	if (mask & IB_SRQ_MAX_WR)
		err = qrnic_srq_resize(dev, srq, attr, mask & IB_SRQ_LIMIT,
				       udata);
	else if (mask & IB_SRQ_LIMIT)
		err = qrnic_srq_set_limit(dev, srq, attr->srq_limit, udata);
	mutex_unlock(&srq->resize_mutex);
	return err;
}

int qrnic_ib_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibsrq->device);
	struct qrnic_ib_srq *srq = to_qrnic_srq(ibsrq);
	struct qrnic_srq_ctx context;
	int err;

	err = qrnic_cmd_query(dev->qdev, QRNIC_CMD_QUERY_SRQ, srq->srqn,
			      &context, sizeof(context));
	if (err)
		return err;

	attr->max_wr = BIT(srq->log_size) - 1;
	attr->max_sge = srq->max_sge;
	attr->srq_limit = le16_to_cpu(context.limit);
	return 0;
}

int qrnic_ib_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibsrq->device);
	struct qrnic_ib_srq *srq = to_qrnic_srq(ibsrq);

	qrnic_srq_remove(dev, srq);
	qrnic_srq_memory_free(dev, srq);
	return 0;
}
