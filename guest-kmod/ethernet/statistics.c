// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * statistics.c: the statistics of the netdev for ip -s link, of its queues for
 * netlink (qstats), and of netdev, queues and device for ethtool -S.
 *
 * ethtool -S shows the counters of the driver, then those of each possible
 * channel, then every counter of the device. The device counts frames that only
 * it sees and drops. A work item reads these counters once a second, because a
 * command sleeps, and the callers of ip -s link may not sleep. Each NAPI poll
 * writes the statistics of its direction; readers use the sequence counter.
 */
#include <net/netdev_queues.h>

/*
 * Interval of the work item, which is deferrable so that it does not wake an
 * idle processor
 */
#define QRNIC_DROPS_INTERVAL HZ

#include "ethernet/ethernet.h"

static const char qrnic_own_names[][ETH_GSTRING_LEN] = {
	"late_command_events",
	"queue_resets",
	"tx_blocks_in_use",
	"rx_buffers_posted",
	"rx_xdp_drop",
	"rx_xdp_tx",
	"rx_xdp_redirect",
	"rx_gro_hw_packets",
	"rx_gro_hw_frames",
};

static const char * const qrnic_channel_names[] = {
	"rx%u_packets",
	"rx%u_bytes",
	"rx%u_dropped",
	"tx%u_packets",
	"tx%u_bytes",
};

static const char qrnic_counter_names[][ETH_GSTRING_LEN] = {
#define QRNIC_COUNTER_STRING(name, ...) { #name },
	QRNIC_COUNTER_LIST(QRNIC_COUNTER_STRING)
#undef QRNIC_COUNTER_STRING
};

/* Copies the statistics of one direction consistently. */
struct qrnic_eth_totals qrnic_eth_stats_read(const struct qrnic_eth_stats *stats)
{
	struct qrnic_eth_totals totals;
	unsigned int start;

	do {
		start = u64_stats_fetch_begin(&stats->sync);
		totals = (struct qrnic_eth_totals) {
			.packets = u64_stats_read(&stats->packets),
			.bytes = u64_stats_read(&stats->bytes),
			.dropped = u64_stats_read(&stats->dropped),
			.errors = u64_stats_read(&stats->errors),
			.multicast = u64_stats_read(&stats->multicast),
		};
	} while (u64_stats_fetch_retry(&stats->sync, start));
	return totals;
}

/*
 * Adds the counters of the device since the last run to the drops of the
 * netdev.
 */
static void qrnic_eth_drops_work(struct work_struct *work)
{
	struct qrnic_eth *eth = container_of(to_delayed_work(work),
					     struct qrnic_eth, drops.work);
	struct qrnic_eth_drops *drops = &eth->drops;
	u64 no_queue, too_long;
	u64 *values;

	values = kcalloc(QRNIC_NUM_COUNTERS, sizeof(*values), GFP_KERNEL);
	if (values &&
	    !qrnic_cmd_query_counters(&eth->core->dev, QRNIC_CMD_QUERY_COUNTERS,
				      0, values)) {
		no_queue = values[QRNIC_COUNTER_ETH_RX_NO_QUEUE];
		too_long = values[QRNIC_COUNTER_ETH_RX_TOO_LONG];
		u64_stats_update_begin(&drops->sync);
		u64_stats_add(&drops->no_queue, no_queue - drops->seen_no_queue);
		u64_stats_add(&drops->too_long, too_long - drops->seen_too_long);
		u64_stats_update_end(&drops->sync);
		drops->seen_no_queue = no_queue;
		drops->seen_too_long = too_long;
	}
	kfree(values);
	queue_delayed_work(eth->core->dev.wq, &drops->work,
			   QRNIC_DROPS_INTERVAL);
}

void qrnic_eth_drops_init(struct qrnic_eth *eth)
{
	u64_stats_init(&eth->drops.sync);
	INIT_DEFERRABLE_WORK(&eth->drops.work, qrnic_eth_drops_work);
}

/* Starts to read the counters of the device, which a reset has cleared. */
void qrnic_eth_drops_start(struct qrnic_eth *eth)
{
	eth->drops.seen_no_queue = 0;
	eth->drops.seen_too_long = 0;
	queue_delayed_work(eth->core->dev.wq, &eth->drops.work,
			   QRNIC_DROPS_INTERVAL);
}

/* Stops the work item, and waits until it has ended. */
void qrnic_eth_drops_stop(struct qrnic_eth *eth)
{
	cancel_delayed_work_sync(&eth->drops.work);
}

static void qrnic_eth_drops_read(struct qrnic_eth *eth, struct rtnl_link_stats64 *stats)
{
	const struct qrnic_eth_drops *drops = &eth->drops;
	unsigned int start;
	u64 too_long;

	do {
		start = u64_stats_fetch_begin(&drops->sync);
		stats->rx_missed_errors = u64_stats_read(&drops->no_queue);
		too_long = u64_stats_read(&drops->too_long);
	} while (u64_stats_fetch_retry(&drops->sync, start));
	stats->rx_length_errors = too_long;
	stats->rx_errors += too_long;
}

/* Returns the statistics of the netdev. Called in any context. */
void qrnic_eth_get_stats64(struct net_device *netdev,
			   struct rtnl_link_stats64 *stats)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	struct qrnic_eth_totals totals;
	unsigned int i;

	for (i = 0; i < eth->max_channels; i++) {
		totals = qrnic_eth_stats_read(&eth->channels[i].rx.stats);
		stats->rx_packets += totals.packets;
		stats->rx_bytes += totals.bytes;
		stats->rx_dropped += totals.dropped;
		stats->rx_errors += totals.errors;
		stats->multicast += totals.multicast;
		totals = qrnic_eth_stats_read(&eth->channels[i].tx.stats);
		stats->tx_packets += totals.packets;
		stats->tx_bytes += totals.bytes;
		stats->tx_errors += totals.errors;
	}
	qrnic_eth_drops_read(eth, stats);
}

int qrnic_get_sset_count(struct net_device *netdev, int set)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	if (set != ETH_SS_STATS)
		return -EOPNOTSUPP;
	return ARRAY_SIZE(qrnic_own_names) + QRNIC_NUM_COUNTERS +
	       eth->max_channels * ARRAY_SIZE(qrnic_channel_names);
}

void qrnic_get_strings(struct net_device *netdev, u32 set, u8 *data)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	unsigned int i, n;

	if (set != ETH_SS_STATS)
		return;
	for (n = 0; n < ARRAY_SIZE(qrnic_own_names); n++)
		ethtool_puts(&data, qrnic_own_names[n]);
	for (i = 0; i < eth->max_channels; i++)
		for (n = 0; n < ARRAY_SIZE(qrnic_channel_names); n++)
			ethtool_sprintf(&data, qrnic_channel_names[n], i);
	for (n = 0; n < QRNIC_NUM_COUNTERS; n++)
		ethtool_puts(&data, qrnic_counter_names[n]);
}

/*
 * Writes the sums over all channels to data, and the counters of each channel
 * after the sums. Returns the end.
 */
static u64 *qrnic_channel_stats(const struct qrnic_eth *eth, u64 *data)
{
	u64 *next = data + ARRAY_SIZE(qrnic_own_names);
	const struct qrnic_channel *channel;
	struct qrnic_eth_totals totals;
	unsigned int i;
	u32 first;

	for (i = 0; i < eth->max_channels; i++) {
		channel = &eth->channels[i];
		/*
		 * The index of the consumer side is read first, because both
		 * indices may advance meanwhile. In the other order the
		 * difference could be negative.
		 */
		first = READ_ONCE(channel->tx.clean);
		data[2] += READ_ONCE(channel->tx.producer) - first;
		first = READ_ONCE(channel->rx.consumer);
		data[3] += READ_ONCE(channel->rx.producer) - first;
		data[4] += READ_ONCE(channel->rx.xdp_drop);
		data[5] += READ_ONCE(channel->rx.xdp_tx);
		data[6] += READ_ONCE(channel->rx.xdp_redirect);
		data[7] += READ_ONCE(channel->rx.gro_hw_packets);
		data[8] += READ_ONCE(channel->rx.gro_hw_frames);
		totals = qrnic_eth_stats_read(&channel->rx.stats);
		*next++ = totals.packets;
		*next++ = totals.bytes;
		*next++ = totals.dropped;
		totals = qrnic_eth_stats_read(&channel->tx.stats);
		*next++ = totals.packets;
		*next++ = totals.bytes;
	}
	return next;
}

void qrnic_get_ethtool_stats(struct net_device *netdev,
			     struct ethtool_stats *stats, u64 *data)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	memset(data, 0, ARRAY_SIZE(qrnic_own_names) * sizeof(*data));
	data[0] = atomic_read(&eth->core->late_command_events);
	data[1] = eth->resets;
	data = qrnic_channel_stats(eth, data);
	if (qrnic_cmd_query_counters(&eth->core->dev, QRNIC_CMD_QUERY_COUNTERS,
				     0, data))
		memset(data, 0, QRNIC_NUM_COUNTERS * sizeof(*data));
}

/*
 * Returns the counters of a channel, which survive a change of the number of
 * channels.
 */
static void qrnic_queue_stats_rx(struct net_device *netdev, int index,
				 struct netdev_queue_stats_rx *stats)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	const struct qrnic_rx *rx = &eth->channels[index].rx;
	struct qrnic_eth_totals totals = qrnic_eth_stats_read(&rx->stats);

	stats->packets = totals.packets;
	stats->bytes = totals.bytes;
	stats->alloc_fail = totals.dropped;
}

static void qrnic_queue_stats_tx(struct net_device *netdev, int index,
				 struct netdev_queue_stats_tx *stats)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	const struct qrnic_tx *tx = &eth->channels[index].tx;
	struct qrnic_eth_totals totals = qrnic_eth_stats_read(&tx->stats);

	stats->packets = totals.packets;
	stats->bytes = totals.bytes;
}

/* Returns the sums over the channels that are not in use now. */
static void qrnic_base_stats(struct net_device *netdev,
			     struct netdev_queue_stats_rx *rx,
			     struct netdev_queue_stats_tx *tx)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	struct qrnic_eth_totals totals;
	unsigned int i;

	rx->packets = 0;
	rx->bytes = 0;
	rx->alloc_fail = 0;
	tx->packets = 0;
	tx->bytes = 0;
	for (i = netdev->real_num_rx_queues; i < eth->max_channels; i++) {
		totals = qrnic_eth_stats_read(&eth->channels[i].rx.stats);
		rx->packets += totals.packets;
		rx->bytes += totals.bytes;
		rx->alloc_fail += totals.dropped;
	}
	for (i = netdev->real_num_tx_queues; i < eth->max_channels; i++) {
		totals = qrnic_eth_stats_read(&eth->channels[i].tx.stats);
		tx->packets += totals.packets;
		tx->bytes += totals.bytes;
	}
}

const struct netdev_stat_ops qrnic_stat_ops = {
	.get_queue_stats_rx = qrnic_queue_stats_rx,
	.get_queue_stats_tx = qrnic_queue_stats_tx,
	.get_base_stats = qrnic_base_stats,
};
