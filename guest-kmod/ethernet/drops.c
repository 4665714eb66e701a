// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * drops.c: frames that the device has dropped, for the statistics of the netdev.
 *
 * Those are read where nobody may sleep, and the device's counters by a command;
 * so they are fetched from time to time.
 */
#include "ethernet/ethernet.h"

/* Does not wake an idle processor. */
#define QRNIC_DROPS_INTERVAL HZ

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

/* After a reset of the device, which has cleared its counters */
void qrnic_eth_drops_start(struct qrnic_eth *eth)
{
	eth->drops.seen_no_queue = 0;
	eth->drops.seen_too_long = 0;
	queue_delayed_work(eth->core->dev.wq, &eth->drops.work,
			   QRNIC_DROPS_INTERVAL);
}

void qrnic_eth_drops_stop(struct qrnic_eth *eth)
{
	cancel_delayed_work_sync(&eth->drops.work);
}

void qrnic_eth_drops_read(struct qrnic_eth *eth, struct rtnl_link_stats64 *stats)
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
