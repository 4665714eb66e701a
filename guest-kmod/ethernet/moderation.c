// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * moderation.c: interrupt moderation: the time that a completion may wait for
 * its event. The values are fixed, or DIM, a library of the kernel, adapts them
 * to the traffic.
 *
 * cq.c calls qrnic_eth_moderation_open() with each new CQ; ethtool.c changes
 * the values under RTNL. Each NAPI poll passes its statistics to DIM, which may
 * queue a work item that changes the values in the device.
 */
#include "ethernet/ethernet.h"

bool qrnic_eth_can_moderate(const struct qrnic_eth *eth)
{
	return eth->core->dev.caps.capabilities & QRNIC_CAP_CQ_MODERATION;
}

/*
 * Sets the moderation of a CQ. If usecs is 0, moderation is disabled, because
 * CQEs without a time limit might wait for their event for ever. If frames is
 * 0, the CQEs for half the ring cause an event.
 */
static int qrnic_eth_cq_moderate(struct qrnic_eth_cq *cq, u16 usecs, u32 frames)
{
	struct qrnic_dev *dev = &cq->channel->eth->core->dev;
	const struct qrnic_caps *caps = &dev->caps;
	u32 half = 1u << cq->log_size >> 1;
	struct qrnic_cq_moderation moderation = { };

	/*
	 * A CQE of a transmit CQ may complete up to QRNIC_TX_SIGNAL_INTERVAL
	 * WQEs of several blocks each. So its limit is smaller than half the
	 * number of blocks.
	 */
	if (cq->transmit)
		half /= QRNIC_TX_SIGNAL_INTERVAL * QRNIC_WQE_MAX_WQEBB;
	half = max(half, 1u);

	if (usecs) {
		frames = min3(frames ?: half, half, caps->max_cq_count);
		moderation.count = cpu_to_le16(frames);
		moderation.period = cpu_to_le16(min(usecs, caps->max_cq_period));
	}
	return qrnic_cmd_set(dev, QRNIC_CMD_MODIFY_CQ, cq->cq.cqn, &moderation,
			     sizeof(moderation));
}

/* Applies the values that DIM has chosen. */
static int qrnic_eth_dim_apply(struct qrnic_eth_cq *cq)
{
	const struct dim *dim = &cq->dim;
	struct dim_cq_moder moder;

	if (cq->transmit)
		moder = net_dim_get_tx_moderation(dim->mode, dim->profile_ix);
	else
		moder = net_dim_get_rx_moderation(dim->mode, dim->profile_ix);
	return qrnic_eth_cq_moderate(cq, moder.usec, moder.pkts);
}

static void qrnic_eth_dim_work(struct work_struct *work)
{
	struct dim *dim = container_of(work, struct dim, work);

	/*
	 * The result is ignored, because a failure means the fatal state, and
	 * all CQs are new after the recovery.
	 */
	qrnic_eth_dim_apply(container_of(dim, struct qrnic_eth_cq, dim));
	dim->state = DIM_START_MEASURE;
}

/*
 * Initialises the moderation of a new CQ, before its first poll. After a reset
 * the device may not support moderation any more; a warning is logged then.
 */
void qrnic_eth_moderation_open(struct qrnic_eth_cq *cq,
			       const struct qrnic_eth_moderation *moderation)
{
	const struct qrnic_eth *eth = cq->channel->eth;

	memset(&cq->dim, 0, sizeof(cq->dim));
	INIT_WORK(&cq->dim.work, qrnic_eth_dim_work);
	cq->dim.mode = DIM_CQ_PERIOD_MODE_START_FROM_EQE;
	cq->adaptive = moderation->adaptive;
	if (moderation->adaptive || !moderation->usecs)
		return;
	if (!qrnic_eth_can_moderate(eth) ||
	    qrnic_eth_cq_moderate(cq, moderation->usecs, moderation->frames))
		netdev_warn(eth->netdev, "interrupts are not moderated\n");
}

/*
 * Waits for the work item. Called after NAPI has stopped, so that no poll
 * queues it again.
 */
void qrnic_eth_moderation_close(struct qrnic_eth_cq *cq)
{
	cancel_work_sync(&cq->dim.work);
}

/* Changes the moderation of a CQ in use. Called under RTNL. */
int qrnic_eth_moderation_set(struct qrnic_eth_cq *cq,
			     const struct qrnic_eth_moderation *moderation)
{
	int err;

	WRITE_ONCE(cq->adaptive, false);
	/*
	 * A running poll may still see the old value of adaptive and queue the
	 * work item. So the function waits for the poll, and then for the work
	 * item.
	 */
	synchronize_net();
	cancel_work_sync(&cq->dim.work);
	/*
	 * DIM starts again, because the canceled work item did not set this
	 * state.
	 */
	cq->dim.state = DIM_START_MEASURE;
	if (!moderation->adaptive)
		return qrnic_eth_cq_moderate(cq, moderation->usecs,
					     moderation->frames);
	/*
	 * The values are applied here, because DIM queues the work item only
	 * for a change.
	 */
	err = qrnic_eth_dim_apply(cq);
	WRITE_ONCE(cq->adaptive, !err);
	return err;
}

/*
 * Passes the statistics of a poll to DIM. Called at the end of a poll, before
 * the CQ is armed.
 */
void qrnic_eth_moderation_sample(struct qrnic_eth_cq *cq,
				 const struct qrnic_eth_stats *stats)
{
	struct dim_sample sample = { };

	if (!READ_ONCE(cq->adaptive))
		return;
	dim_update_sample(++cq->events, u64_stats_read(&stats->packets),
			  u64_stats_read(&stats->bytes), &sample);
	QRNIC_NET_DIM(&cq->dim, sample);
}
