// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * event.c: passes asynchronous events of QPs and SRQs from the core to users of
 * verbs, and reports the state of the port. Events of CQs are in cq.c.
 *
 * The core calls the operations in qrnic_ib_event_ops from a work item
 * (qrnic_core.h). A reference to the object keeps it alive during the call of
 * its event handler. The state of the port is that of the netdev, so changes
 * also come from a netdevice notifier under RTNL. The mutex port_mutex orders
 * all reports.
 */
#include <linux/notifier.h>

#include "odp.h"
#include "qp.h"
#include "qrnic_ib.h"
#include "queues.h"
#include "verbs.h"

static bool qrnic_qp_event_type(enum qrnic_event type, enum ib_event_type *ib_type)
{
	switch (type) {
	case QRNIC_EVENT_QP_FATAL:
	case QRNIC_EVENT_QP_CONTEXT_ERROR:
		*ib_type = IB_EVENT_QP_FATAL;
		return true;
	case QRNIC_EVENT_QP_REQUEST_ERROR:
		*ib_type = IB_EVENT_QP_REQ_ERR;
		return true;
	case QRNIC_EVENT_QP_ACCESS_ERROR:
		*ib_type = IB_EVENT_QP_ACCESS_ERR;
		return true;
	case QRNIC_EVENT_COMM_EST:
		*ib_type = IB_EVENT_COMM_EST;
		return true;
	case QRNIC_EVENT_SQ_DRAINED:
		*ib_type = IB_EVENT_SQ_DRAINED;
		return true;
	case QRNIC_EVENT_LAST_WQE_REACHED:
		*ib_type = IB_EVENT_QP_LAST_WQE_REACHED;
		return true;
	default:
		return false;
	}
}

static void qrnic_ib_qp_event(void *context, u32 qpn, enum qrnic_event type, u8 subtype)
{
	struct qrnic_ib_dev *dev = context;
	struct ib_event event = { .device = &dev->ibdev };
	struct qrnic_ib_qp *qp;

	if (!qrnic_qp_event_type(type, &event.event)) {
		ibdev_warn_ratelimited(&dev->ibdev,
				       "event %u of QP %u is not known\n", type,
				       qpn);
		return;
	}

	/*
	 * The number may belong to a receive work queue, or to a carrier
	 * without a QP, so these are tried. Events of a QP that is being
	 * destroyed are dropped.
	 */
	qp = qrnic_qp_get(dev, qpn);
	if (!qp) {
		if (!qrnic_wq_event(dev, qpn, event.event) &&
		    event.event == IB_EVENT_QP_FATAL)
			qrnic_share_event(dev, qpn);
		return;
	}

	event.element.qp = &qp->ibqp;
	if (qp->ibqp.event_handler)
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
	qrnic_qp_put(qp);
}

static void qrnic_ib_srq_event(void *context, u32 srqn, enum qrnic_event type,
			       u8 subtype)
{
	struct qrnic_ib_dev *dev = context;
	struct ib_event event = {
		.device = &dev->ibdev,
		.event = type == QRNIC_EVENT_SRQ_LIMIT ?
				 IB_EVENT_SRQ_LIMIT_REACHED : IB_EVENT_SRQ_ERR,
	};
	struct qrnic_ib_srq *srq;

	srq = qrnic_srq_get(dev, srqn);
	if (!srq)
		return;

	event.element.srq = &srq->ibsrq;
	if (srq->ibsrq.event_handler)
		srq->ibsrq.event_handler(&event, srq->ibsrq.srq_context);
	qrnic_srq_put(srq);
}

/*
 * Reports the state of the port to the RDMA core if it has changed. The state
 * is that of the netdev.
 */
static void qrnic_port_report(struct qrnic_ib_dev *dev)
{
	struct net_device *netdev = dev->qdev->netdev;
	struct ib_event event = {
		.device = &dev->ibdev,
		.element.port_num = QRNIC_IB_PORT,
	};
	bool active;

	mutex_lock(&dev->port_mutex);
	active = netif_running(netdev) && netif_carrier_ok(netdev);
	if (!dev->stopping && active != dev->port_active) {
		dev->port_active = active;
		event.event = active ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
		ib_dispatch_event(&event);
	}
	mutex_unlock(&dev->port_mutex);
}

static void qrnic_ib_port_event(void *context)
{
	qrnic_port_report(context);
}

/*
 * Reports the state of the port. Called by the notifier of the RDMA core in
 * newer kernels. qrnic_ib_netdev_event() does the same in all kernels.
 */
void qrnic_ib_report_port_event(struct ib_device *ibdev, struct net_device *netdev,
				unsigned long event)
{
	qrnic_port_report(to_qrnic_dev(ibdev));
}

static void qrnic_port_events_end(struct qrnic_ib_dev *dev)
{
	mutex_lock(&dev->port_mutex);
	WRITE_ONCE(dev->stopping, true);
	mutex_unlock(&dev->port_mutex);
}

static int qrnic_ib_netdev_event(struct notifier_block *nb, unsigned long event,
				 void *data)
{
	struct qrnic_ib_dev *dev = container_of(nb, struct qrnic_ib_dev,
						netdev_nb);

	if (netdev_notifier_info_to_dev(data) != dev->qdev->netdev ||
	    READ_ONCE(dev->stopping))
		return NOTIFY_DONE;

	switch (event) {
	case NETDEV_REGISTER:
		/*
		 * The netdev has moved to another network namespace, so the
		 * driver passes the netdev to the RDMA core again.
		 */
		ib_device_set_netdev(&dev->ibdev, dev->qdev->netdev,
				     QRNIC_IB_PORT);
		break;
	case NETDEV_UP:
	case NETDEV_DOWN:
	case NETDEV_CHANGE:
		qrnic_port_report(dev);
		break;
	case NETDEV_UNREGISTER:
		/*
		 * The RDMA core must release its reference before the netdev is
		 * freed.
		 */
		ib_device_set_netdev(&dev->ibdev, NULL, QRNIC_IB_PORT);
		break;
	}
	return NOTIFY_DONE;
}

static void qrnic_ib_page_fault(void *context, u32 number)
{
	qrnic_odp_event(context, number);
}

static void qrnic_ib_fatal(void *context)
{
	qrnic_flush_schedule(context);
}

/*
 * IB_EVENT_DEVICE_FATAL is not reported here, because a fatal error removes the
 * device. Then uverbs reports this event to every process, and a process must
 * not receive it twice.
 */
static const struct qrnic_event_ops qrnic_ib_event_ops = {
	.qp_event = qrnic_ib_qp_event,
	.srq_event = qrnic_ib_srq_event,
	.port_event = qrnic_ib_port_event,
	.fatal = qrnic_ib_fatal,
	.page_fault = qrnic_ib_page_fault,
};

/*
 * Registers the callbacks. Called before the device is registered, because QPs
 * may exist from then on.
 */
int qrnic_ib_events_start(struct qrnic_ib_dev *dev)
{
	return qrnic_register_event_handler(dev->qdev, &qrnic_ib_event_ops, dev);
}

/*
 * Unregisters the callbacks. Called after the device is unregistered, when no
 * QP exists.
 */
void qrnic_ib_events_stop(struct qrnic_ib_dev *dev)
{
	qrnic_unregister_event_handler(dev->qdev);
}

/*
 * Starts the reports of the port. Called after the device is registered,
 * because users can receive them only then.
 */
int qrnic_ib_port_events_start(struct qrnic_ib_dev *dev)
{
	int err;

	mutex_lock(&dev->port_mutex);
	WRITE_ONCE(dev->stopping, false);
	mutex_unlock(&dev->port_mutex);

	dev->netdev_nb.notifier_call = qrnic_ib_netdev_event;
	err = register_netdevice_notifier(&dev->netdev_nb);
	if (err)
		qrnic_port_events_end(dev);
	else
		qrnic_port_report(dev);
	return err;
}

/*
 * Stops the reports of the port. Called before the device is unregistered,
 * because work items of the RDMA core handle these events without a reference
 * to the device.
 */
void qrnic_ib_port_events_stop(struct qrnic_ib_dev *dev)
{
	/*
	 * Reports end first, because the removal of the notifier sends it an
	 * unregistration of every netdev.
	 */
	qrnic_port_events_end(dev);
	unregister_netdevice_notifier(&dev->netdev_nb);
}
