// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * flush.c: completions for the work requests of kernel consumers when the device
 * has fallen into the fatal state, found when a CQ is polled. Who tells the
 * consumers to poll is fatal.c.
 */
#include "qrnic_ib.h"

/* Kernel QPs: their CQs have to find them. */
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

/* The lock of the queue keeps out posting and a reset of the queue. */
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
 * For the holder of the CQ's lock who has seen the fatal state and then that the
 * ring is empty. What the device has executed without telling is flushed, too.
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

/* Whether qrnic_flush_poll() would find something; for the holder of the CQ's lock */
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
