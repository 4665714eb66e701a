// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * flush.c: completes the work requests of users in the kernel in the fatal
 * state, because the device completes none any more.
 *
 * A user that polls a CQ receives the completions from qrnic_flush_poll(). The
 * work item sends the events that users wait for, so that they poll. Both are
 * needed before the RDMA device is unregistered. Otherwise a MAD in flight
 * would prevent the release of its connection, and ib_drain_qp() would sleep
 * for ever. The lists of QPs are protected by the locks of their CQs.
 */
#include "qp.h"
#include "qrnic_ib.h"
#include "queues.h"

/* Adds a kernel QP to the lists of its CQs. */
void qrnic_flush_attach(struct qrnic_ib_qp *qp)
{
	struct qrnic_ib_cq *send_cq = to_qrnic_cq(qp->ibqp.send_cq);
	struct qrnic_ib_cq *recv_cq = to_qrnic_cq(qp->ibqp.recv_cq);

	spin_lock_irq(&send_cq->lock);
	list_add_tail(&qp->send_entry, &send_cq->senders);
	spin_unlock_irq(&send_cq->lock);
	if (!qp->has_rq)
		return;
	spin_lock_irq(&recv_cq->lock);
	list_add_tail(&qp->recv_entry, &recv_cq->receivers);
	spin_unlock_irq(&recv_cq->lock);
}

/* Removes a kernel QP from the lists of its CQs. */
void qrnic_flush_detach(struct qrnic_ib_qp *qp)
{
	struct qrnic_ib_cq *send_cq = to_qrnic_cq(qp->ibqp.send_cq);
	struct qrnic_ib_cq *recv_cq = to_qrnic_cq(qp->ibqp.recv_cq);

	spin_lock_irq(&send_cq->lock);
	list_del(&qp->send_entry);
	spin_unlock_irq(&send_cq->lock);
	if (!qp->has_rq)
		return;
	spin_lock_irq(&recv_cq->lock);
	list_del(&qp->recv_entry);
	spin_unlock_irq(&recv_cq->lock);
}

/*
 * Completes requests of a queue with IB_WC_WR_FLUSH_ERR. The lock of the queue
 * is taken, so that no request is posted and the queue is not reset meanwhile.
 */
static int qrnic_flush_queue(struct qrnic_ib_qp *qp, struct qrnic_ib_queue *queue,
			     int num, struct ib_wc *wc)
{
	struct qrnic_ib_request request;
	int flushed = 0;

	spin_lock(&queue->lock);
	while (flushed < num &&
	       qrnic_queue_complete(queue, queue->consumer, &request)) {
		memset(wc, 0, sizeof(*wc));
		wc->wr_id = request.wr_id;
		wc->qp = &qp->ibqp;
		wc->status = IB_WC_WR_FLUSH_ERR;
		wc->opcode = request.opcode;
		wc++;
		flushed++;
	}
	spin_unlock(&queue->lock);
	return flushed;
}

/*
 * Completes up to num requests. Called under the lock of the CQ, after the
 * caller has read the fatal state and then found the ring empty. Requests that
 * the device has executed without a CQE are flushed, too.
 */
int qrnic_flush_poll(struct qrnic_ib_cq *cq, int num, struct ib_wc *wc)
{
	struct qrnic_ib_qp *qp;
	int flushed = 0;

	list_for_each_entry(qp, &cq->senders, send_entry)
		flushed += qrnic_flush_queue(qp, &qp->sq, num - flushed, wc + flushed);
	list_for_each_entry(qp, &cq->receivers, recv_entry)
		flushed += qrnic_flush_queue(qp, &qp->rq, num - flushed, wc + flushed);
	return flushed;
}

static bool qrnic_queue_pending(struct qrnic_ib_queue *queue)
{
	bool pending;

	spin_lock(&queue->lock);
	pending = queue->consumer != queue->producer;
	spin_unlock(&queue->lock);
	return pending;
}

/*
 * Returns true if qrnic_flush_poll() would complete a request. Called under the
 * lock of the CQ.
 */
bool qrnic_flush_pending(struct qrnic_ib_cq *cq)
{
	struct qrnic_ib_qp *qp;

	list_for_each_entry(qp, &cq->senders, send_entry)
		if (qrnic_queue_pending(&qp->sq))
			return true;
	list_for_each_entry(qp, &cq->receivers, recv_entry)
		if (qrnic_queue_pending(&qp->rq))
			return true;
	return false;
}

/*
 * Sends the event that was requested for a CQ, because the device sends none
 * any more.
 */
static void qrnic_flush_notify(struct qrnic_ib_cq *cq)
{
	unsigned long flags;
	bool due;

	spin_lock_irqsave(&cq->lock, flags);
	due = cq->requested && (qrnic_flush_pending(cq) || qrnic_cq_written(cq));
	spin_unlock_irqrestore(&cq->lock, flags);
	if (!due)
		return;

	/*
	 * Interrupts are disabled, because handlers expect interrupt context.
	 */
	local_irq_save(flags);
	cq->core.comp(&cq->core);
	local_irq_restore(flags);
}

static void qrnic_flush_qp(struct qrnic_ib_qp *qp)
{
	struct ib_event event = {
		.device = qp->ibqp.device,
		.element.qp = &qp->ibqp,
		.event = IB_EVENT_QP_LAST_WQE_REACHED,
	};
	bool last_wqe;

	/*
	 * The lock is taken and released to wait for posters that have not seen
	 * the fatal state.
	 */
	spin_lock_irq(&qp->sq.lock);
	spin_lock(&qp->rq.lock);
	spin_unlock(&qp->rq.lock);
	last_wqe = qp->last_wqe_due;
	qp->last_wqe_due = false;
	spin_unlock_irq(&qp->sq.lock);

	qrnic_flush_notify(to_qrnic_cq(qp->ibqp.send_cq));
	qrnic_flush_notify(to_qrnic_cq(qp->ibqp.recv_cq));
	if (last_wqe && qp->ibqp.event_handler)
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
}

void qrnic_flush_work(struct work_struct *work)
{
	struct qrnic_ib_dev *dev = container_of(work, struct qrnic_ib_dev,
						flush_work);
	struct qrnic_ib_object *object;
	struct qrnic_ib_qp *qp;
	unsigned long qpn;

	for (qpn = 0; (object = qrnic_object_get_from(&dev->qps, &qpn)); qpn++) {
		qp = container_of(object, struct qrnic_ib_qp, object);
		if (qrnic_qp_is_kernel(qp))
			qrnic_flush_qp(qp);
		qrnic_qp_put(qp);
	}
}

/*
 * Schedules the work item that completes requests in the fatal state. Any
 * context.
 */
void qrnic_flush_schedule(struct qrnic_ib_dev *dev)
{
	queue_work(dev->qdev->event_wq, &dev->flush_work);
}
