// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * tags.c: tag lists of shared receive queues of processes (IB_SRQT_TM). The device
 * reads the operations on them, which the process posts.
 */
#include <rdma/ib_umem.h>

#include "qrnic_ib.h"

int qrnic_tag_list_check(struct qrnic_ib_dev *dev,
			 const struct ib_srq_init_attr *init)
{
	u32 tags = init->ext.tag_matching.max_num_tags;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_TAG_MATCHING))
		return -EOPNOTSUPP;
	return tags && tags < QRNIC_MAX_TAGS ? 0 : -EINVAL;
}

/* The memory of the operations; wanted: the request says where it is */
int qrnic_tag_list_prepare(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
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
	/* Of the last handle there is never an entry: what is gone is said to be it. */
	context->max_tags =
		cpu_to_le32(init->ext.tag_matching.max_num_tags + 1);
	context->cq = cpu_to_le32(to_qrnic_cq(init->ext.cq)->core.cqn);
	context->log_size = request->log_size;
	context->log_stride = request->log_stride;
	context->record = cpu_to_le64(record);
	context->ring = srq->tags_table.hw;
	return 0;
}

/* It goes with the SRQ. */
int qrnic_tag_list_create(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
			  const struct qrnic_tag_list_ctx *context)
{
	if (!srq->tags_umem)
		return 0;
	return qrnic_cmd_set(dev->qdev, QRNIC_CMD_CREATE_TAG_LIST, srq->srqn,
			     context, sizeof(*context));
}

void qrnic_tag_list_free(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq)
{
	if (!srq->tags_umem)
		return;
	qrnic_table_free(dev->qdev, &srq->tags_table);
	ib_umem_release(srq->tags_umem);
}
