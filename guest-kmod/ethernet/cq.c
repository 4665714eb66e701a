// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * cq.c: the completion queue of one direction of a channel, and its NAPI
 * instance.
 *
 * queues.c opens and closes the CQ. A completion event schedules NAPI, whose
 * poll function is in receive.c or transmit.c. At its end the poll function
 * calls qrnic_eth_cq_complete(), which arms the CQ. An error of the CQ or of a
 * completion requests new queues.
 */
#include "ethernet/ethernet.h"

/*
 * Requests new queues after an error, in any context. Only the first request
 * for the present queues is effective, because many completions may have
 * errors. reset_work (reopen.c) handles it.
 */
void qrnic_eth_fail(struct qrnic_eth *eth)
{
	if (!test_and_set_bit(0, &eth->failed))
		mod_delayed_work(eth->core->dev.wq, &eth->reset_work, 0);
}

static void qrnic_eth_cq_comp(struct qrnic_cq *cq)
{
	struct qrnic_eth_cq *eth_cq = container_of(cq, struct qrnic_eth_cq, cq);

	napi_schedule_irqoff(&eth_cq->napi);
}

static void qrnic_eth_cq_error(struct qrnic_cq *cq, u8 subtype)
{
	struct qrnic_eth_cq *eth_cq = container_of(cq, struct qrnic_eth_cq, cq);
	struct qrnic_eth *eth = eth_cq->channel->eth;

	netdev_err(eth->netdev, "CQ error %u\n", subtype);
	qrnic_eth_fail(eth);
}

/*
 * Creates the CQ of one direction of a channel. The caller has added the NAPI
 * instance, because an event of a former CQ with this number may schedule it at
 * once.
 */
int qrnic_eth_cq_open(struct qrnic_channel *channel, struct qrnic_eth_cq *cq,
		      u32 entries, const struct qrnic_eth_moderation *moderation)
{
	struct qrnic_dev *dev = &channel->eth->core->dev;
	struct qrnic_cq_ctx ctx = { };
	int err;

	cq->channel = channel;
	cq->transmit = cq == &channel->tx.cq;
	cq->consumer = 0;
	cq->sequence = 0;
	cq->log_size = ilog2(entries);
	err = qrnic_queue_ring_alloc(dev, &cq->ring, (size_t)QRNIC_CQE_SIZE * entries);
	if (err)
		return err;

	ctx.log_size = cq->log_size;
	ctx.record = cpu_to_le64(cq->ring.record_dma);
	ctx.ring = cq->ring.hw;
	cq->cq.vector = channel->index % qrnic_num_vectors(dev);
	cq->cq.comp = qrnic_eth_cq_comp;
	cq->cq.event = qrnic_eth_cq_error;
	err = qrnic_cq_create(dev, &cq->cq, &ctx);
	if (err) {
		qrnic_ring_free(dev, &cq->ring);
		return err;
	}
	qrnic_eth_moderation_open(cq, moderation);
	return 0;
}

/* Destroys the CQ. Called after its NAPI instance is disabled. */
void qrnic_eth_cq_close(struct qrnic_eth_cq *cq)
{
	struct qrnic_dev *dev = &cq->channel->eth->core->dev;

	/*
	 * The device has no reason to reject the command. If it does, a reset
	 * destroys the CQ, because its memory must be freed.
	 */
	if (qrnic_cq_destroy(dev, &cq->cq)) {
		qrnic_report_fatal(dev, "CQ not destroyed");
		qrnic_cq_destroy(dev, &cq->cq);
	}
	qrnic_ring_free(dev, &cq->ring);
}

/*
 * Ends a poll and requests an event at the next CQE. A CQE beyond the published
 * consumer index causes the event at once, so no CQE after the last poll is
 * missed.
 *
 * Sequence number and consumer index are read while this processor still owns
 * the NAPI instance. After napi_complete_done() a busy poll on another
 * processor may advance both. If two requests had the same number, the device
 * would ignore the second one.
 */
void qrnic_eth_cq_complete(struct qrnic_eth_cq *cq, int done)
{
	u32 sequence = (cq->sequence + 1) & QRNIC_CQ_RECORD_SEQUENCE_MASK;
	u32 consumer = cq->consumer;

	cq->sequence = sequence;
	if (!napi_complete_done(&cq->napi, done))
		return;
	WRITE_ONCE(cq->ring.cq_record->arm, cpu_to_le32(sequence));
	/* The writeq() in this call orders the record before the doorbell. */
	qrnic_ring_doorbell(&cq->channel->eth->core->dev, QRNIC_DB_CQ_ARM,
			    cq->cq.cqn, consumer);
}
