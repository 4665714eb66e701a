// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * channels.c: how many channels there are, with which rings, and which processors
 * send through which of them.
 */
#include "ethernet/ethernet.h"

/* One vector each; RDMA needs most of the queue pairs and CQs. */
unsigned int qrnic_eth_max_channels(struct qrnic_core *core)
{
	const struct qrnic_caps *caps = &core->dev.caps;
	unsigned int n = min(qrnic_num_vectors(&core->dev), QRNIC_MAX_CHANNELS);

	/* A table is replaced while the filter leads to it, so there are two. */
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

void qrnic_eth_channels_set_xps(struct qrnic_eth *eth)
{
	unsigned int i;

	for (i = 0; i < eth->shape.channels; i++)
		if (qrnic_channel_set_xps(eth, i))
			netdev_warn(eth->netdev, "queue %u has no processors\n", i);
}

/* There are no queues now. */
static int qrnic_shape_set(struct qrnic_eth *eth, const struct qrnic_eth_shape *shape)
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
	err = qrnic_shape_set(eth, shape);
	if (!err && open)
		err = qrnic_eth_queues_open(eth);
	if (!err)
		return 0;
	/* If not even the former number can be had, the new one will do. */
	if (qrnic_shape_set(eth, &old))
		netdev_err(eth->netdev, "there are %u channels now\n",
			   eth->shape.channels);
	if (open && qrnic_eth_queues_open(eth))
		qrnic_eth_reopen_later(eth);
	return err;
}

/* Before the netdev is registered */
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
	return qrnic_shape_set(eth, &shape);
}

void qrnic_get_channels(struct net_device *netdev,
			struct ethtool_channels *channels)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	channels->max_combined = eth->max_channels;
	channels->combined_count = eth->shape.channels;
}

/* The core has checked the number, and that the table of ethtool -X can stay. */
int qrnic_set_channels(struct net_device *netdev,
		       struct ethtool_channels *channels)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	struct qrnic_eth_shape shape = eth->shape;

	shape.channels = channels->combined_count;
	return qrnic_eth_reshape(eth, &shape);
}
