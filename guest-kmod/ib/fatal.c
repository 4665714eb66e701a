// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fatal.c: the events that kernel consumers are owed when the device has fallen
 * into the fatal state: it completes nothing any more, so software does.
 *
 * Nobody unregisters the RDMA device before those that wait for completions have
 * got them: a MAD on its way holds the connection it speaks of, and ib_drain_qp()
 * sleeps until its own request comes back.
 */
#include "qrnic_ib.h"

/* The event that the device owes a CQ for which one has been requested */
static void qrnic_flush_notify(struct qrnic_ib_cq *cq)
{
	unsigned long flags;
	bool due;

	spin_lock_irqsave(&cq->lock, flags);
	due = cq->requested && (qrnic_flush_pending(cq) || qrnic_cq_written(cq));
	spin_unlock_irqrestore(&cq->lock, flags);
	if (!due)
		return;

	/* Handlers expect to run in an interrupt. */
	local_irq_save(flags);
	qrnic_ib_cq_comp(&cq->core);
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

	/* Taking the lock waits for posters that have not seen the fatal state. */
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

/* Schedules the work that completes requests in the fatal state. Any context */
void qrnic_flush_schedule(struct qrnic_ib_dev *dev)
{
	queue_work(dev->qdev->event_wq, &dev->flush_work);
}
