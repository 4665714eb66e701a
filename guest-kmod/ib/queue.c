// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * queue.c: send and receive queues of kernel QPs: their sizes, memory and
 * reset, and the completion of their requests.
 *
 * qp.c creates and destroys the queues, qp_modify.c resets them, and post.c
 * posts requests. cq.c and flush.c complete requests under the lock of the CQ.
 * The producer index of a queue belongs to the poster and the consumer index to
 * the poller; release and acquire order their slots.
 */
#include "qp.h"
#include "qrnic_ib.h"
#include "queues.h"

#define SEGMENTS_PER_BLOCK (QRNIC_WQEBB_SIZE / QRNIC_SEGMENT_SIZE)

/*
 * Returns the basic blocks of the largest send WQE. The WQE begins with the
 * control and remote address segments; a datagram segment has the length of
 * three segments. The operands of an atomic (two segments), the data segments,
 * or the inline data follow. A fast registration needs one block, so it always
 * fits.
 */
static u32 qrnic_sq_request_blocks(enum ib_qp_type type, const struct ib_qp_cap *cap)
{
	u32 inline_segments = DIV_ROUND_UP(cap->max_inline_data,
					   QRNIC_SEGMENT_SIZE);
	u32 fixed = qrnic_qp_is_datagram(type) ? 4 : 2;

	return DIV_ROUND_UP(fixed + max3(2U, cap->max_send_sge, inline_segments),
			    SEGMENTS_PER_BLOCK);
}

static int qrnic_queue_alloc(struct qrnic_ib_dev *dev, struct qrnic_ib_queue *queue,
			     u32 log_size, u32 log_stride)
{
	u32 entries = BIT(log_size);
	int err;

	queue->mask = entries - 1;
	queue->requests = kvcalloc(entries, sizeof(*queue->requests), GFP_KERNEL);
	if (!queue->requests)
		return -ENOMEM;

	err = qrnic_queue_ring_alloc(dev->qdev, &queue->ring,
				     (size_t)QRNIC_WQEBB_SIZE << (log_size + log_stride));
	if (err)
		kvfree(queue->requests);
	return err;
}

static void qrnic_queue_free(struct qrnic_ib_dev *dev, struct qrnic_ib_queue *queue)
{
	qrnic_ring_free(dev->qdev, &queue->ring);
	kvfree(queue->requests);
}

static int qrnic_kernel_rq_create(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
				  struct ib_qp_cap *cap)
{
	u32 stride = DIV_ROUND_UP(1 + cap->max_recv_sge, SEGMENTS_PER_BLOCK);
	int err;

	qp->rq_log_stride = order_base_2(stride);
	qp->rq_log_size = order_base_2(max(cap->max_recv_wr, 1U));
	if (BIT(qp->rq_log_size) > dev->qdev->caps.max_qp_recv)
		return -EINVAL;

	err = qrnic_queue_alloc(dev, &qp->rq, qp->rq_log_size, qp->rq_log_stride);
	if (err)
		return err;
	qp->rq.max_sge = cap->max_recv_sge;
	qp->rq.max_wr = BIT(qp->rq_log_size);
	cap->max_recv_wr = qp->rq.max_wr;
	return 0;
}

/*
 * Allocates the queues, and sets the actual sizes in init->cap. Returns 0 or a
 * negative errno.
 */
int qrnic_kernel_queues_create(struct qrnic_ib_dev *dev, struct qrnic_ib_qp *qp,
			       struct ib_qp_init_attr *init)
{
	const struct qrnic_caps *caps = &dev->qdev->caps;
	struct ib_qp_cap *cap = &init->cap;
	u32 blocks = qrnic_sq_request_blocks(init->qp_type, cap);
	u32 sq_blocks;
	int err;

	sq_blocks = max(blocks * cap->max_send_wr, BIT(QRNIC_SQ_LOG_SIZE_MIN));
	qp->sq_log_size = order_base_2(sq_blocks);
	if (BIT(qp->sq_log_size) > caps->max_qp_wqebb)
		return -EINVAL;

	err = qrnic_queue_alloc(dev, &qp->sq, qp->sq_log_size, 0);
	if (err)
		return err;
	qp->sq.max_sge = cap->max_send_sge;
	qp->sq.max_wr = BIT(qp->sq_log_size) / blocks;
	cap->max_send_wr = qp->sq.max_wr;

	if (!qp->has_rq) {
		cap->max_recv_wr = 0;
		cap->max_recv_sge = 0;
		return 0;
	}
	err = qrnic_kernel_rq_create(dev, qp, cap);
	if (err)
		qrnic_queue_free(dev, &qp->sq);
	return err;
}

void qrnic_kernel_queues_destroy(struct qrnic_ib_dev *dev,
				 struct qrnic_ib_qp *qp)
{
	if (qp->has_rq)
		qrnic_queue_free(dev, &qp->rq);
	qrnic_queue_free(dev, &qp->sq);
}

static void qrnic_queue_reset(struct qrnic_ib_queue *queue)
{
	queue->producer = 0;
	queue->consumer = 0;
	queue->posted = 0;
	queue->retired = 0;
	WRITE_ONCE(queue->ring.queue_record->producer, 0);
	/* In the record of an RQ this member is reserved, and 0, too. */
	WRITE_ONCE(queue->ring.queue_record->event, 0);
}

/*
 * Resets the queues. Called with the locks of both queues while the QP is in
 * RESET, because the device reads the records again only after INIT.
 */
void qrnic_kernel_queues_reset(struct qrnic_ib_qp *qp)
{
	qrnic_queue_reset(&qp->sq);
	if (qp->has_rq)
		qrnic_queue_reset(&qp->rq);
}

/*
 * Removes the completed request, and all requests before it, from its queue.
 * Returns false if no posted WQE begins at index, because the device is not
 * trusted.
 */
bool qrnic_queue_complete(struct qrnic_ib_queue *queue, u32 index,
			  struct qrnic_ib_request *request)
{
	/*
	 * Pairs with qrnic_queue_advance(), so the slots before this index are
	 * written.
	 */
	u32 producer = smp_load_acquire(&queue->producer);

	if (index - queue->consumer >= producer - queue->consumer)
		return false;
	/*
	 * If index lies within a WQE, its slot still has a request of an
	 * earlier pass. So the function also checks that the request ends
	 * within the posted WQEs.
	 */
	*request = queue->requests[index & queue->mask];
	if (request->next - index - 1 >= producer - index)
		return false;

	WRITE_ONCE(queue->retired, request->number);
	/*
	 * Release, so that the slot has been read when qrnic_queue_has_room()
	 * sees it free.
	 */
	smp_store_release(&queue->consumer, request->next);
	return true;
}
