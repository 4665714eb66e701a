// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * queues.c: the channels of the netdev, and their queue pairs from open to
 * close.
 *
 * reopen.c opens and closes all channels together. Each channel is opened in
 * this order: NAPI instances, transmit ring, receive ring, CQs, QP, buffers.
 * Then each channel is started, and at last the receive filter directs frames
 * to the channels. Closing first destroys the QPs, CQs and transmit rings of
 * all channels. Then it releases all receive rings, because a frame of one
 * channel's receive ring may be in the transmit ring of any channel (XDP). All
 * functions are called under RTNL, or before the netdev is registered.
 */
#include "ethernet/ethernet.h"

/*
 * Returns the maximum number of channels. Each channel has its own vector, and
 * most queue pairs and CQs are reserved for RDMA.
 */
unsigned int qrnic_eth_max_channels(struct qrnic_core *core)
{
	const struct qrnic_caps *caps = &core->dev.caps;
	unsigned int n = min(qrnic_num_vectors(&core->dev), QRNIC_MAX_CHANNELS);

	/*
	 * Two RSS tables are needed, because a new table is created while the
	 * filter still uses the old one.
	 */
	if (!qrnic_eth_can_spread(core) || caps->max_rss < 2)
		return 1;
	return clamp(n, 1, max(min(caps->max_qp / 8, caps->max_cq / 16), 1));
}

static int qrnic_channel_set_xps(struct qrnic_eth *eth, unsigned int index)
{
	cpumask_var_t mask;
	int cpu, err;

	if (!zalloc_cpumask_var(&mask, GFP_KERNEL))
		return -ENOMEM;
	for_each_possible_cpu(cpu)
		if (qrnic_channel_of_cpu(eth, cpu) == index)
			cpumask_set_cpu(cpu, mask);
	err = netif_set_xps_queue(eth->netdev, mask, index);
	free_cpumask_var(mask);
	return err;
}

/*
 * Assigns each processor to a channel for its transmissions (XPS). Called under
 * RTNL after the netdev is registered.
 */
void qrnic_eth_channels_set_xps(struct qrnic_eth *eth)
{
	unsigned int i;

	for (i = 0; i < eth->shape.channels; i++)
		if (qrnic_channel_set_xps(eth, i))
			netdev_warn(eth->netdev, "queue %u: processors (XPS) not set\n", i);
}

/*
 * Sets the shape of the queues that are opened next. Called while there are no
 * queues. Returns 0 or a negative errno; on failure the old shape stays.
 */
int qrnic_eth_shape_set(struct qrnic_eth *eth, const struct qrnic_eth_shape *shape)
{
	unsigned int old = eth->shape.channels;
	int err;

	err = netif_set_real_num_queues(eth->netdev, shape->channels,
					shape->channels);
	if (err)
		return err;
	eth->shape = *shape;
	if (shape->channels != old) {
		qrnic_eth_rss_spread(eth);
		if (eth->netdev->reg_state == NETREG_REGISTERED)
			qrnic_eth_channels_set_xps(eth);
	}
	return 0;
}

/* Initialises the channels. Called before the netdev is registered. */
int qrnic_eth_channels_init(struct qrnic_eth *eth)
{
	struct qrnic_eth_shape shape = eth->shape;
	unsigned int i;

	for (i = 0; i < eth->max_channels; i++) {
		struct qrnic_channel *channel = &eth->channels[i];

		channel->eth = eth;
		channel->index = i;
		u64_stats_init(&channel->tx.stats.sync);
		u64_stats_init(&channel->rx.stats.sync);
	}
	qrnic_eth_rss_init(eth);
	shape.channels = min(eth->max_channels, num_online_cpus());
	return qrnic_eth_shape_set(eth, &shape);
}

static int qrnic_qp_state(struct qrnic_channel *channel, enum qrnic_qp_state state)
{
	struct qrnic_qp_attr attr = {
		.mask = cpu_to_le32(QRNIC_QP_STATE),
		.state = state,
	};

	if (state == QRNIC_QPS_INIT) {
		attr.mask |= cpu_to_le32(QRNIC_QP_PORT);
		attr.port = 1;
	}
	return qrnic_cmd_set(&channel->eth->core->dev, QRNIC_CMD_MODIFY_QP,
			     channel->qpn, &attr, sizeof(attr));
}

/*
 * Destroys the queue pair. The events of the queue pair are flushed first,
 * because RDMA may get the number next. A QP in RESET sends no events, so none
 * can follow the flush. A failed command means the fatal state, so no result is
 * returned.
 */
static void qrnic_qp_close(struct qrnic_channel *channel)
{
	struct qrnic_dev *dev = &channel->eth->core->dev;
	u32 qpn = channel->qpn;

	qrnic_qp_state(channel, QRNIC_QPS_RESET);
	qrnic_flush_events(dev);
	WRITE_ONCE(channel->qpn, 0);
	if (qrnic_cmd_destroy(dev, QRNIC_CMD_DESTROY_QP, qpn))
		qrnic_report_fatal(dev, "QP not destroyed");
}

/* Creates the queue pair and moves it to RTS. */
static int qrnic_qp_open(struct qrnic_channel *channel)
{
	struct qrnic_tx *tx = &channel->tx;
	struct qrnic_rx *rx = &channel->rx;
	struct qrnic_qp_ctx ctx = {
		.type = QRNIC_QPT_RAW_PACKET,
		.sq_log_size = tx->log_size,
		.rq_log_size = rx->log_size,
		.pd = cpu_to_le32(channel->eth->pdn),
		.send_cq = cpu_to_le32(tx->cq.cq.cqn),
		.recv_cq = cpu_to_le32(rx->cq.cq.cqn),
		.sq_record = cpu_to_le64(tx->ring.record_dma),
		.rq_record = cpu_to_le64(rx->ring.record_dma),
		.sq = tx->ring.hw,
		.rq = rx->ring.hw,
	};
	u32 qpn;
	int err;

	if (channel->eth->core->dev.caps.capabilities & QRNIC_CAP_EVENT_INDEX)
		ctx.flags |= QRNIC_QPF_EVENT_INDEX;
	err = qrnic_cmd_create(&channel->eth->core->dev, QRNIC_CMD_CREATE_QP,
			       &ctx, sizeof(ctx), &qpn);
	if (err)
		return err;
	/*
	 * RDMA may have had the number, and events of its QP may still be
	 * pending. These events must not be mistaken for events of this QP,
	 * which sends none in RESET.
	 */
	qrnic_flush_events(&channel->eth->core->dev);
	WRITE_ONCE(channel->qpn, qpn);
	err = qrnic_qp_state(channel, QRNIC_QPS_INIT);
	if (!err)
		err = qrnic_qp_state(channel, QRNIC_QPS_RTR);
	if (!err)
		err = qrnic_qp_state(channel, QRNIC_QPS_RTS);
	if (err)
		qrnic_qp_close(channel);
	return err;
}

/*
 * Creates the objects of the channel in the device. No frame comes before the
 * channel is started.
 */
static int qrnic_channel_create(struct qrnic_channel *channel)
{
	const struct qrnic_eth *eth = channel->eth;
	int err;

	/*
	 * The sizes are chosen so that the CQs cannot overrun. There is at most
	 * one CQE for each block of the SQ and for each WQE of the RQ.
	 */
	err = qrnic_eth_cq_open(channel, &channel->tx.cq, eth->shape.tx_blocks,
				&eth->tx_moderation);
	if (err)
		return err;
	err = qrnic_eth_cq_open(channel, &channel->rx.cq, eth->shape.rx_wqes,
				&eth->rx_moderation);
	if (err)
		goto err_tx_cq;
	err = qrnic_qp_open(channel);
	if (err)
		goto err_rx_cq;
	err = qrnic_rx_fill(channel, GFP_KERNEL);
	if (err)
		goto err_qp;
	return 0;

err_qp:
	qrnic_qp_close(channel);
err_rx_cq:
	qrnic_eth_cq_close(&channel->rx.cq);
err_tx_cq:
	qrnic_eth_cq_close(&channel->tx.cq);
	return err;
}

/* Opens a channel: NAPI instances, rings and objects. */
static int qrnic_channel_open(struct qrnic_channel *channel)
{
	struct net_device *netdev = channel->eth->netdev;
	struct qrnic_core *core = channel->eth->core;
	int irq, err;

	irq = core->eqs[1 + channel->index % qrnic_num_vectors(&core->dev)].irq;

	netif_napi_add_tx(netdev, &channel->tx.cq.napi, qrnic_tx_poll);
	netif_napi_add_config(netdev, &channel->rx.cq.napi, qrnic_rx_poll,
			      channel->index);
	netif_napi_set_irq(&channel->tx.cq.napi, irq);
	netif_napi_set_irq(&channel->rx.cq.napi, irq);
	err = qrnic_tx_alloc(channel);
	if (err)
		goto err_napi;
	/*
	 * The page pool refers to the NAPI instance, so the pool must be
	 * destroyed before the instance.
	 */
	err = qrnic_rx_alloc(channel);
	if (err)
		goto err_tx;
	err = qrnic_channel_create(channel);
	if (err)
		goto err_rx;
	return 0;

err_rx:
	qrnic_rx_release(channel);
err_tx:
	qrnic_tx_release(channel);
err_napi:
	netif_napi_del(&channel->rx.cq.napi);
	netif_napi_del(&channel->tx.cq.napi);
	return err;
}

/*
 * Destroys the objects of a stopped channel. Afterwards the device uses no
 * buffer of the channel.
 */
static void qrnic_channel_destroy(struct qrnic_channel *channel)
{
	qrnic_eth_moderation_close(&channel->rx.cq);
	qrnic_eth_moderation_close(&channel->tx.cq);
	qrnic_qp_close(channel);
	qrnic_eth_cq_close(&channel->rx.cq);
	qrnic_eth_cq_close(&channel->tx.cq);
	qrnic_tx_release(channel);
}

static void qrnic_channel_release(struct qrnic_channel *channel)
{
	qrnic_rx_release(channel);
	netif_napi_del(&channel->rx.cq.napi);
	netif_napi_del(&channel->tx.cq.napi);
}

/*
 * Closes the first n channels. All transmit rings are released before any
 * receive ring, because they may contain pages of the receive rings (XDP).
 */
static void qrnic_channels_close(struct qrnic_eth *eth, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		qrnic_channel_destroy(&eth->channels[i]);
	for (i = 0; i < n; i++)
		qrnic_channel_release(&eth->channels[i]);
}

static int qrnic_rxq_register(struct qrnic_channel *channel)
{
	struct qrnic_rx *rx = &channel->rx;
	int err;

	/*
	 * Since 6.13 the NAPI instance gets its number later, so it is 0 here;
	 * newer kernels do not need the number.
	 */
	err = xdp_rxq_info_reg(&rx->xdp_rxq, channel->eth->netdev,
			       channel->index, rx->cq.napi.napi_id);
	if (err)
		return err;
	err = xdp_rxq_info_reg_mem_model(&rx->xdp_rxq, MEM_TYPE_PAGE_POOL,
					 rx->pool);
	if (err)
		xdp_rxq_info_unreg(&rx->xdp_rxq);
	return err;
}

static void qrnic_channel_set_napi(struct qrnic_channel *channel, bool started)
{
	struct net_device *netdev = channel->eth->netdev;

	netif_queue_set_napi(netdev, channel->index, NETDEV_QUEUE_TYPE_TX,
			     started ? &channel->tx.cq.napi : NULL);
	netif_queue_set_napi(netdev, channel->index, NETDEV_QUEUE_TYPE_RX,
			     started ? &channel->rx.cq.napi : NULL);
}

/*
 * Starts the NAPI instances of a channel. The first poll arms the CQs. No frame
 * comes yet, because no filter directs frames to the channel.
 */
static int qrnic_channel_start(struct qrnic_channel *channel)
{
	struct napi_struct *tx = &channel->tx.cq.napi;
	struct napi_struct *rx = &channel->rx.cq.napi;
	int err;

	/*
	 * Registered before NAPI is enabled, because a device that is not
	 * trusted can cause a poll at once.
	 */
	err = qrnic_rxq_register(channel);
	if (err)
		return err;
	napi_enable(rx);
	napi_enable(tx);
	qrnic_channel_set_napi(channel, true);
	local_bh_disable();
	napi_schedule(rx);
	napi_schedule(tx);
	local_bh_enable();
	return 0;
}

static void qrnic_channel_stop(struct qrnic_channel *channel)
{
	qrnic_channel_set_napi(channel, false);
	napi_disable(&channel->tx.cq.napi);
	napi_disable(&channel->rx.cq.napi);
	xdp_rxq_info_unreg(&channel->rx.xdp_rxq);
}

static int qrnic_channels_open(struct qrnic_eth *eth)
{
	unsigned int i;
	int err;

	for (i = 0; i < eth->shape.channels; i++) {
		err = qrnic_channel_open(&eth->channels[i]);
		if (err) {
			qrnic_channels_close(eth, i);
			return err;
		}
	}
	return 0;
}

/*
 * Stops the first n channels. The transmit queues are stopped after NAPI,
 * because a poll may wake them.
 */
static void qrnic_channels_stop(struct qrnic_eth *eth, unsigned int n)
{
	while (n--)
		qrnic_channel_stop(&eth->channels[n]);
	netif_tx_disable(eth->netdev);
	/*
	 * napi_disable() does not wait for the code of a poll after
	 * napi_complete_done(), but this call does.
	 */
	synchronize_net();
}

static int qrnic_channels_start(struct qrnic_eth *eth)
{
	struct qrnic_eth_filter filter = eth->filter;
	unsigned int i;
	int err = 0;

	for (i = 0; i < eth->shape.channels; i++) {
		err = qrnic_channel_start(&eth->channels[i]);
		if (err)
			break;
	}
	if (!err) {
		filter.rss = eth->rss_table;
		filter.object = eth->rss_table ?: eth->channels[0].qpn;
		err = qrnic_eth_filter_set(eth, &filter);
	}
	if (err)
		qrnic_channels_stop(eth, i);
	return err;
}

/*
 * Opens all queues. The carrier and the port stay unchanged, so that RDMA
 * continues while queues are replaced. Returns 0 or a negative errno.
 */
int qrnic_eth_queues_open(struct qrnic_eth *eth)
{
	int err;

	clear_bit(0, &eth->failed);
	err = qrnic_channels_open(eth);
	if (err)
		return err;
	err = qrnic_eth_rss_open(eth);
	if (err)
		goto err_channels;
	err = qrnic_channels_start(eth);
	if (err)
		goto err_rss;
	eth->open = true;
	netif_tx_wake_all_queues(eth->netdev);
	return 0;

err_rss:
	qrnic_eth_rss_close(eth);
err_channels:
	qrnic_channels_close(eth, eth->shape.channels);
	return err;
}

/* Closes all queues, if they are open. */
void qrnic_eth_queues_close(struct qrnic_eth *eth)
{
	struct qrnic_eth_filter nothing = {
		.vlan_strip = eth->filter.vlan_strip,
		.coalesce = eth->filter.coalesce,
	};

	if (!eth->open)
		return;
	eth->open = false;
	/*
	 * The result is ignored, because in the fatal state the command fails,
	 * but the device has no filter then either.
	 */
	qrnic_eth_filter_set(eth, &nothing);
	qrnic_channels_stop(eth, eth->shape.channels);
	qrnic_eth_rss_close(eth);
	qrnic_channels_close(eth, eth->shape.channels);
}
