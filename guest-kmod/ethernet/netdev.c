// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * netdev.c: the netdev of the Ethernet function: its creation, its features,
 * and its operations for the network stack and the core.
 *
 * The core calls the operations of qrnic_eth_function: create once in probe,
 * suspend and resume around each reset, destroy in remove. The others come at
 * any time. The network stack calls qrnic_netdev_ops, most of them under RTNL.
 * While the adapter is suspended the netdev is detached, so the stack calls no
 * operation that uses the device.
 */
#include "ethernet/ethernet.h"

/*
 * Requests new queues after a transmit timeout. Called by the watchdog of the
 * stack.
 */
static void qrnic_eth_tx_timeout(struct net_device *netdev, unsigned int queue)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	const struct qrnic_tx *tx = &eth->channels[queue].tx;

	netdev_err(netdev, "transmit timeout of queue %u: producer %u, completed %u\n",
		   queue, READ_ONCE(tx->producer), READ_ONCE(tx->clean));
	qrnic_eth_fail(eth);
}

static void qrnic_eth_set_rx_mode(struct net_device *netdev)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	/*
	 * A work item sets the filter, because commands sleep and the caller
	 * holds a spinlock.
	 */
	queue_work(eth->core->dev.wq, &eth->filter_work);
}

static int qrnic_eth_set_mac_address(struct net_device *netdev, void *address)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	int err;

	err = eth_prepare_mac_addr_change(netdev, address);
	if (err)
		return err;
	eth_commit_mac_addr_change(netdev, address);
	queue_work(eth->core->dev.wq, &eth->filter_work);
	return 0;
}

/*
 * Removes features that do not work now. XDP programs must see each frame, and
 * the device must not join frames if the user has disabled joining in software
 * (GRO).
 */
static netdev_features_t qrnic_eth_fix_features(struct net_device *netdev,
						netdev_features_t features)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	if (eth->prog || !(features & NETIF_F_GRO))
		features &= ~NETIF_F_GRO_HW;
	return features;
}

static int qrnic_eth_set_features(struct net_device *netdev,
				  netdev_features_t features)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	bool strip = features & NETIF_F_HW_VLAN_CTAG_RX;
	bool coalesce = features & NETIF_F_GRO_HW;
	struct qrnic_eth_filter filter = eth->filter;

	if (strip == filter.vlan_strip && coalesce == filter.coalesce)
		return 0;
	filter.vlan_strip = strip;
	filter.coalesce = coalesce;
	if (eth->open)
		return qrnic_eth_filter_set(eth, &filter);
	eth->filter = filter;
	return 0;
}

static const struct net_device_ops qrnic_netdev_ops = {
	.ndo_open = qrnic_eth_open,
	.ndo_stop = qrnic_eth_stop,
	.ndo_start_xmit = qrnic_eth_transmit,
	.ndo_features_check = qrnic_eth_features_check,
	.ndo_bpf = qrnic_xdp_bpf,
	.ndo_xdp_xmit = qrnic_xdp_xmit,
	.ndo_tx_timeout = qrnic_eth_tx_timeout,
	.ndo_set_rx_mode = qrnic_eth_set_rx_mode,
	.ndo_set_mac_address = qrnic_eth_set_mac_address,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_change_mtu = qrnic_eth_change_mtu,
	.ndo_fix_features = qrnic_eth_fix_features,
	.ndo_set_features = qrnic_eth_set_features,
	.ndo_get_stats64 = qrnic_eth_get_stats64,
	.ndo_set_vf_mac = qrnic_vf_set_mac,
	.ndo_set_vf_vlan = qrnic_vf_set_vlan,
	.ndo_set_vf_rate = qrnic_vf_set_rate,
	.ndo_set_vf_spoofchk = qrnic_vf_set_spoofchk,
	.ndo_set_vf_trust = qrnic_vf_set_trust,
	.ndo_set_vf_link_state = qrnic_vf_set_link_state,
	.ndo_get_vf_config = qrnic_vf_get_config,
	.ndo_get_vf_stats = qrnic_vf_get_stats,
};

/*
 * Updates the carrier. The function must not take RTNL, because
 * qrnic_eth_stop() holds it while it waits for events.
 */
static void qrnic_eth_port_update(struct qrnic_core *core)
{
	struct net_device *netdev = READ_ONCE(core->dev.netdev);

	if (netdev)
		qrnic_eth_link_update(netdev_priv(netdev));
}

/* Returns true if the queue pair belongs to a channel. */
static bool qrnic_eth_has_qp(const struct qrnic_eth *eth, u32 qpn)
{
	unsigned int i;

	for (i = 0; i < eth->max_channels; i++)
		if (READ_ONCE(eth->channels[i].qpn) == qpn)
			return true;
	return false;
}

/*
 * Handles an event of a queue pair. Errors request new queues. Returns false if
 * the queue pair belongs to RDMA.
 */
static bool qrnic_eth_qp_event(struct qrnic_core *core, u32 qpn,
			       enum qrnic_event type)
{
	struct net_device *netdev = READ_ONCE(core->dev.netdev);
	struct qrnic_eth *eth;

	if (!netdev)
		return false;
	eth = netdev_priv(netdev);
	if (!qpn || !qrnic_eth_has_qp(eth, qpn))
		return false;
	netdev_err(netdev, "QP %u: event 0x%x\n", qpn, type);
	if (type != QRNIC_EVENT_SQ_DRAINED && type != QRNIC_EVENT_COMM_EST)
		qrnic_eth_fail(eth);
	return true;
}

/*
 * Creates the PD and the memory key of all queues. A reset of the device
 * destroys both.
 */
static int qrnic_eth_memory_open(struct qrnic_eth *eth)
{
	struct qrnic_dev *dev = &eth->core->dev;
	struct qrnic_mkey_ctx ctx = {
		.type = QRNIC_MKEY_DMA,
		.access = QRNIC_ACCESS_LOCAL_WRITE,
		.variant = get_random_u8(),
		.length = cpu_to_le64(U64_MAX),
	};
	int err;

	err = qrnic_cmd_create(dev, QRNIC_CMD_ALLOC_PD, NULL, 0, &eth->pdn);
	if (err)
		return err;
	ctx.pd = cpu_to_le32(eth->pdn);
	err = qrnic_cmd_create(dev, QRNIC_CMD_CREATE_MKEY, &ctx, sizeof(ctx),
			       &eth->mkey_index);
	if (err) {
		qrnic_cmd_destroy(dev, QRNIC_CMD_FREE_PD, eth->pdn);
		return err;
	}
	eth->lkey = cpu_to_le32(eth->mkey_index << 8 | ctx.variant);
	return 0;
}

static void qrnic_eth_memory_close(struct qrnic_eth *eth)
{
	qrnic_cmd_destroy(&eth->core->dev, QRNIC_CMD_DESTROY_MKEY,
			  eth->mkey_index);
	qrnic_cmd_destroy(&eth->core->dev, QRNIC_CMD_FREE_PD, eth->pdn);
}

/* Closes the queues before the device goes down. Takes RTNL. */
static void qrnic_eth_suspend(struct qrnic_core *core)
{
	struct net_device *netdev = core->dev.netdev;
	struct qrnic_eth *eth = netdev_priv(netdev);

	qrnic_eth_drops_stop(eth);
	rtnl_lock();
	netif_device_detach(netdev);
	qrnic_eth_set_up(eth, false);
	qrnic_eth_queues_close(eth);
	qrnic_eth_memory_close(eth);
	rtnl_unlock();
}

/*
 * Schedules reset_work, which detaches the netdev. This function must not take
 * RTNL, because its holder may wait for event_work.
 */
static void qrnic_eth_fatal(struct qrnic_core *core)
{
	struct net_device *netdev = READ_ONCE(core->dev.netdev);
	struct qrnic_eth *eth;

	if (!netdev)
		return;
	eth = netdev_priv(netdev);
	mod_delayed_work(core->dev.wq, &eth->reset_work, 0);
}

/*
 * Sets the address of the netdev to the permanent address of the port, if the
 * latter has changed. The physical function assigns addresses to virtual
 * functions, which have them after their next reset. Otherwise an address that
 * a user has set stays. Called under RTNL, before the queues and the RDMA
 * device use the address.
 */
static void qrnic_eth_address_update(struct qrnic_eth *eth)
{
	struct net_device *netdev = eth->netdev;
	struct qrnic_port port;

	qrnic_port_cached(&eth->core->dev, &port);
	if (!is_valid_ether_addr(port.mac) ||
	    ether_addr_equal(port.mac, netdev->perm_addr))
		return;
	netdev_info(netdev, "new permanent address %pM\n", port.mac);
	memcpy(netdev->perm_addr, port.mac, ETH_ALEN);
	netdev->addr_assign_type = NET_ADDR_PERM;
	eth_hw_addr_set(netdev, port.mac);
	call_netdevice_notifiers(NETDEV_CHANGEADDR, netdev);
}

/*
 * Opens the queues after a start of the device, if the netdev is up. Takes
 * RTNL.
 */
static int qrnic_eth_resume(struct qrnic_core *core)
{
	struct net_device *netdev = core->dev.netdev;
	struct qrnic_eth *eth = netdev_priv(netdev);
	int err;

	rtnl_lock();
	qrnic_eth_address_update(eth);
	err = qrnic_eth_memory_open(eth);
	if (err)
		goto unlock;
	if (netif_running(netdev))
		err = qrnic_eth_open(netdev);
	else
		err = qrnic_eth_port(eth, netdev->mtu, false);
	if (err) {
		qrnic_eth_memory_close(eth);
		goto unlock;
	}
	netif_device_attach(netdev);
	qrnic_eth_drops_start(eth);
unlock:
	rtnl_unlock();
	return err;
}

/* Sets the features of the netdev from the capabilities of the device. */
static void qrnic_eth_features(struct qrnic_eth *eth)
{
	u64 capabilities = eth->core->dev.caps.capabilities;
	struct net_device *netdev = eth->netdev;

	netdev->hw_features = NETIF_F_SG;
	if (capabilities & QRNIC_CAP_ETH_CSUM)
		netdev->hw_features |= NETIF_F_HW_CSUM | NETIF_F_RXCSUM;
	if (capabilities & QRNIC_CAP_ETH_TSO)
		netdev->hw_features |= NETIF_F_TSO | NETIF_F_TSO6 |
				       NETIF_F_TSO_ECN;
	netdev->vlan_features = netdev->hw_features;
	if (capabilities & QRNIC_CAP_ETH_VLAN)
		netdev->hw_features |= NETIF_F_HW_VLAN_CTAG_TX |
				       NETIF_F_HW_VLAN_CTAG_RX;
	if (qrnic_eth_can_spread(eth->core))
		netdev->hw_features |= NETIF_F_RXHASH;
	if (capabilities & QRNIC_CAP_ETH_RX_COALESCE)
		netdev->hw_features |= NETIF_F_GRO_HW;
	netdev->features = netdev->hw_features | NETIF_F_HIGHDMA;
	netdev->priv_flags |= IFF_UNICAST_FLT | IFF_LIVE_ADDR_CHANGE;
	netdev->xdp_features = NETDEV_XDP_ACT_BASIC | NETDEV_XDP_ACT_REDIRECT |
			       NETDEV_XDP_ACT_NDO_XMIT;
	eth->filter.vlan_strip = netdev->features & NETIF_F_HW_VLAN_CTAG_RX;
	eth->filter.coalesce = netdev->features & NETIF_F_GRO_HW;
}

/* Sets the addresses, operations and limits of the netdev. */
static void qrnic_eth_setup(struct qrnic_eth *eth)
{
	const struct qrnic_caps *caps = &eth->core->dev.caps;
	struct net_device *netdev = eth->netdev;
	struct qrnic_port port;

	qrnic_port_cached(&eth->core->dev, &port);
	SET_NETDEV_DEV(netdev, &eth->core->dev.pdev->dev);
	if (is_valid_ether_addr(port.mac))
		eth_hw_addr_set(netdev, port.mac);
	else
		eth_hw_addr_random(netdev);
	netdev->netdev_ops = &qrnic_netdev_ops;
	netdev->ethtool_ops = &qrnic_ethtool_ops;
	netdev->stat_ops = &qrnic_stat_ops;
	/*
	 * A peer that accepts no frame blocks the device for 4 seconds, and for
	 * longer if the host stops the device meanwhile.
	 */
	netdev->watchdog_timeo = 15 * HZ;
	netdev->min_mtu = QRNIC_MIN_MTU;
	netdev->max_mtu = min3(port.max_mtu, QRNIC_MAX_MTU,
			       qrnic_rx_max_mtu(caps->max_sge));
	netdev->mtu = min(ETH_DATA_LEN, netdev->max_mtu);
	qrnic_eth_features(eth);

	eth->shape.tx_blocks = min3(rounddown_pow_of_two(caps->max_qp_wqebb),
				    rounddown_pow_of_two(caps->max_cqe),
				    QRNIC_TX_DEFAULT);
	eth->shape.rx_wqes = min3(rounddown_pow_of_two(caps->max_qp_recv),
				  rounddown_pow_of_two(caps->max_cqe),
				  QRNIC_RX_DEFAULT);
	qrnic_eth_reopen_init(eth);
	qrnic_eth_filter_init(eth);
	qrnic_eth_drops_init(eth);
}

/* Creates and registers the netdev. */
static int qrnic_eth_create(struct qrnic_core *core)
{
	unsigned int max_channels = qrnic_eth_max_channels(core);
	struct net_device *netdev;
	struct qrnic_eth *eth;
	int err;

	netdev = alloc_etherdev_mq(struct_size(eth, channels, max_channels),
				   max_channels);
	if (!netdev)
		return -ENOMEM;
	eth = netdev_priv(netdev);
	eth->core = core;
	eth->netdev = netdev;
	eth->max_channels = max_channels;
	qrnic_eth_setup(eth);

	err = qrnic_eth_channels_init(eth);
	if (err)
		goto err_netdev;
	err = qrnic_eth_memory_open(eth);
	if (err)
		goto err_netdev;
	err = qrnic_eth_port(eth, netdev->mtu, false);
	if (err)
		goto err_memory;
	err = qrnic_dcb_init(eth);
	if (err)
		goto err_memory;
	netif_carrier_off(netdev);
	/*
	 * dev.netdev is set first, because the netdev can be opened as soon as
	 * it is registered, and events come then.
	 */
	WRITE_ONCE(core->dev.netdev, netdev);
	err = register_netdev(netdev);
	if (err)
		goto err_published;
	rtnl_lock();
	qrnic_eth_channels_set_xps(eth);
	rtnl_unlock();
	qrnic_eth_drops_start(eth);
	return 0;

err_published:
	WRITE_ONCE(core->dev.netdev, NULL);
	flush_work(&core->event_work);
	cancel_delayed_work_sync(&eth->reset_work);
	qrnic_dcb_exit(eth);
err_memory:
	qrnic_eth_memory_close(eth);
err_netdev:
	free_netdev(netdev);
	return err;
}

/* Unregisters and frees the netdev. The device may be down. */
static void qrnic_eth_destroy(struct qrnic_core *core)
{
	struct net_device *netdev = core->dev.netdev;
	struct qrnic_eth *eth = netdev_priv(netdev);

	unregister_netdev(netdev);
	qrnic_dcb_exit(eth);
	WRITE_ONCE(core->dev.netdev, NULL);
	/*
	 * The call waits for events and work items, because they may still use
	 * the netdev.
	 */
	flush_work(&core->event_work);
	cancel_delayed_work_sync(&eth->reset_work);
	cancel_work_sync(&eth->filter_work);
	qrnic_eth_drops_stop(eth);
	if (core->level != QRNIC_DOWN)
		qrnic_eth_memory_close(eth);
	free_netdev(netdev);
}

const struct qrnic_function_ops qrnic_eth_function = {
	.create = qrnic_eth_create,
	.destroy = qrnic_eth_destroy,
	.suspend = qrnic_eth_suspend,
	.resume = qrnic_eth_resume,
	.fatal = qrnic_eth_fatal,
	.port_update = qrnic_eth_port_update,
	.qp_event = qrnic_eth_qp_event,
};
