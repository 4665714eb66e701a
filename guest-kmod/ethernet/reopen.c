// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * reopen.c: opens and closes the netdev, and replaces its queues for another
 * MTU, for another shape, or after an error.
 *
 * A change that fails is rolled back. If the former queues cannot be opened
 * either, reset_work retries until there is memory. The carrier follows the
 * port while the netdev is up. So RDMA, which uses the same carrier, is not
 * disturbed if only queues are replaced. All functions but
 * qrnic_eth_link_update() are called under RTNL, or before the netdev is
 * registered; reset_work takes RTNL itself.
 */
#include "ethernet/ethernet.h"

/* Interval between two attempts to open queues, in jiffies */
#define QRNIC_REOPEN_INTERVAL HZ

/* Sets the carrier of the netdev. Called under the port_mutex of the core. */
void qrnic_eth_link_update(struct qrnic_eth *eth)
{
	if (eth->up && eth->core->port.state == QRNIC_PORT_ACTIVE)
		netif_carrier_on(eth->netdev);
	else
		netif_carrier_off(eth->netdev);
}

/*
 * Sets if the carrier follows the port. The carrier follows while the netdev is
 * up, also while queues are replaced, so that no event of the port is lost.
 */
void qrnic_eth_set_up(struct qrnic_eth *eth, bool up)
{
	mutex_lock(&eth->core->port_mutex);
	eth->up = up;
	qrnic_eth_link_update(eth);
	mutex_unlock(&eth->core->port_mutex);
}

/*
 * Sets the MTU and the administrative state of the port, because a reset of the
 * device clears both. Returns 0 or an error as qrnic_cmd_exec().
 */
int qrnic_eth_port(struct qrnic_eth *eth, u32 mtu, bool up)
{
	int err;

	err = qrnic_cmd_modify_port(&eth->core->dev, mtu, up);
	if (err)
		return err;
	return qrnic_port_update(eth->core);
}

/*
 * Opens the netdev: its queues, its port, and then its carrier. Returns 0 or a
 * negative errno.
 */
int qrnic_eth_open(struct net_device *netdev)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	int err;

	err = qrnic_eth_queues_open(eth);
	if (err)
		return err;
	err = qrnic_eth_port(eth, netdev->mtu, true);
	if (err) {
		qrnic_eth_queues_close(eth);
		return err;
	}
	qrnic_eth_set_up(eth, true);
	return 0;
}

/* Closes the netdev. Always returns 0. */
int qrnic_eth_stop(struct net_device *netdev)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	qrnic_eth_set_up(eth, false);
	qrnic_eth_queues_close(eth);
	/*
	 * The result is ignored, because in the fatal state the command fails,
	 * and qrnic_eth_resume() sets the port again.
	 */
	qrnic_eth_port(eth, netdev->mtu, false);
	return 0;
}

/*
 * Schedules reset_work to open the queues. Called if the netdev is up, but its
 * queues could not be opened.
 */
static void qrnic_eth_reopen_later(struct qrnic_eth *eth)
{
	qrnic_eth_set_up(eth, false);
	queue_delayed_work(eth->core->dev.wq, &eth->reset_work,
			   QRNIC_REOPEN_INTERVAL);
}

/* Replaces the queues by new ones with the present parameters. */
static void qrnic_eth_reopen(struct qrnic_eth *eth)
{
	int err;

	qrnic_eth_queues_close(eth);
	err = qrnic_eth_queues_open(eth);
	if (err) {
		netdev_err(eth->netdev, "queues cannot be opened: error %d\n", err);
		qrnic_eth_reopen_later(eth);
	}
}

/*
 * Replaces the queues after an error of a queue pair or a transmit timeout, and
 * opens queues that could not be opened before. If the device is down,
 * qrnic_eth_resume() opens the queues later.
 *
 * In the fatal state the device sends no frames, and users of RDMA may delay
 * the recovery. So the netdev is detached, because otherwise the stack reports
 * a timeout.
 */
static void qrnic_eth_reset_work(struct work_struct *work)
{
	struct qrnic_eth *eth = container_of(to_delayed_work(work),
					     struct qrnic_eth, reset_work);
	struct net_device *netdev = eth->netdev;

	rtnl_lock();
	if (!qrnic_healthy(&eth->core->dev))
		netif_device_detach(netdev);
	if (!netif_running(netdev) || !netif_device_present(netdev))
		goto unlock;
	if (!eth->open) {
		if (qrnic_eth_open(netdev))
			qrnic_eth_reopen_later(eth);
		else
			netdev_info(netdev, "queues opened again\n");
	} else if (test_bit(0, &eth->failed)) {
		netdev_warn(netdev, "replacing the queues\n");
		eth->resets++;
		qrnic_eth_reopen(eth);
	}
unlock:
	rtnl_unlock();
}

/*
 * Changes the MTU. The queues are replaced if the new MTU needs another number
 * of receive buffers. A smaller MTU also requires new queues, because frames in
 * the transmit ring may be too long for it. Returns 0 or a negative errno.
 */
int qrnic_eth_change_mtu(struct net_device *netdev, int mtu)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	bool running = eth->open;
	bool anew = running && (mtu < netdev->mtu ||
				qrnic_rx_pages(mtu) != eth->channels[0].rx.pages);
	int old = netdev->mtu, err, undo;

	if (eth->prog && qrnic_rx_pages(mtu) > 1)
		return -EINVAL;
	if (anew)
		qrnic_eth_queues_close(eth);
	/*
	 * The device is changed first, so that the stack sends no frame that is
	 * longer than the device allows.
	 */
	err = qrnic_eth_port(eth, mtu, running);
	if (!err)
		WRITE_ONCE(netdev->mtu, mtu);
	if (!err && anew)
		err = qrnic_eth_queues_open(eth);
	if (err) {
		WRITE_ONCE(netdev->mtu, old);
		undo = qrnic_eth_port(eth, old, running);
		if (!undo && anew)
			undo = qrnic_eth_queues_open(eth);
		if (undo) {
			if (running && !eth->open)
				qrnic_eth_reopen_later(eth);
			return err;
		}
	}
	return err;
}

/*
 * Opens queues of another shape. On failure the former shape is restored.
 * The caller holds RTNL. Returns 0 or a negative errno.
 */
int qrnic_eth_reshape(struct qrnic_eth *eth, const struct qrnic_eth_shape *shape)
{
	struct qrnic_eth_shape old = eth->shape;
	bool open = eth->open;
	int err;

	if (shape->channels == old.channels && shape->tx_blocks == old.tx_blocks &&
	    shape->rx_wqes == old.rx_wqes)
		return 0;
	if (open)
		qrnic_eth_queues_close(eth);
	err = qrnic_eth_shape_set(eth, shape);
	if (!err && open)
		err = qrnic_eth_queues_open(eth);
	if (!err)
		return 0;
	/*
	 * If the former shape fails, too, the new one stays, because the netdev
	 * works with any shape.
	 */
	if (qrnic_eth_shape_set(eth, &old))
		netdev_err(eth->netdev, "the number of channels is %u now\n",
			   eth->shape.channels);
	if (open && qrnic_eth_queues_open(eth))
		qrnic_eth_reopen_later(eth);
	return err;
}

void qrnic_eth_reopen_init(struct qrnic_eth *eth)
{
	INIT_DELAYED_WORK(&eth->reset_work, qrnic_eth_reset_work);
}
