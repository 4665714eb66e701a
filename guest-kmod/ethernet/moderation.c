// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * moderation.c: how long a completion may wait for its event: fixed values, or
 * those of the kernel's library DIM, which follows the traffic.
 */
#include "ethernet/ethernet.h"

bool qrnic_eth_can_moderate(const struct qrnic_eth *eth)
{
	return eth->core->dev.caps.capabilities & QRNIC_CAP_CQ_MODERATION;
}

/*
 * Without a limit of time a few last frames would wait for ever, so there is no
 * moderation then; without one of frames half a ring is enough for an event.
 */
static int qrnic_eth_cq_moderate(struct qrnic_eth_cq *cq, u16 usecs, u32 frames)
{
	struct qrnic_dev *dev = &cq->channel->eth->core->dev;
	const struct qrnic_caps *caps = &dev->caps;
	u32 half = 1u << cq->log_size >> 1;
	struct qrnic_cq_moderation moderation = { };

	/* One CQE stands for so many blocks of the transmit ring, at the most. */
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

/* What DIM has chosen */
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

	/* What fails in the fatal state is done anew after it. */
	qrnic_eth_dim_apply(container_of(dim, struct qrnic_eth_cq, dim));
	dim->state = DIM_START_MEASURE;
}

/*
 * The CQ exists, and nobody polls it yet. A device that is a lesser one since its
 * reset does without.
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

/* NAPI has stopped and its last poll returned: nobody schedules the work again. */
void qrnic_eth_moderation_close(struct qrnic_eth_cq *cq)
{
	cancel_work_sync(&cq->dim.work);
}

/* Under RTNL, while frames come and go */
int qrnic_eth_moderation_set(struct qrnic_eth_cq *cq,
			     const struct qrnic_eth_moderation *moderation)
{
	int err;

	WRITE_ONCE(cq->adaptive, false);
	/* A poll that still takes it for adaptive may schedule the work. */
	synchronize_net();
	cancel_work_sync(&cq->dim.work);
	/* Whichever state it was in, it begins from here. */
	cq->dim.state = DIM_START_MEASURE;
	if (!moderation->adaptive)
		return qrnic_eth_cq_moderate(cq, moderation->usecs,
					     moderation->frames);
	/* DIM asks for what it believes in only when that changes. */
	err = qrnic_eth_dim_apply(cq);
	WRITE_ONCE(cq->adaptive, !err);
	return err;
}

/* The end of a poll, before the CQ is armed */
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
