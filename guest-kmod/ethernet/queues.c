// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * queues.c: the queue pairs and the CQs of the netdev, from open to close.
 */
#include "ethernet/ethernet.h"

/*
 * Ends a poll and requests an event at the next CQE. CQEs beyond the published
 * consumer index cause one at once, so none that came after the last poll is missed.
 *
 * The sequence number and the consumer index are read while this processor still owns
 * the NAPI instance: behind napi_complete_done() a busy poll on another processor may
 * advance both. A number that two requests share would make the device ignore the
 * second one.
 */
void qrnic_eth_cq_complete(struct qrnic_eth_cq *cq, int done)
{
	u32 sequence = (cq->sequence + 1) & QRNIC_CQ_RECORD_SEQUENCE_MASK;
	u32 consumer = cq->consumer;

	cq->sequence = sequence;
	if (!napi_complete_done(&cq->napi, done))
		return;
	WRITE_ONCE(cq->ring.cq_record->arm, cpu_to_le32(sequence));
	/* writeq() in it orders the record before the doorbell. */
	qrnic_ring_doorbell(&cq->channel->eth->core->dev, QRNIC_DB_CQ_ARM,
			    cq->cq.cqn, consumer);
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

static void qrnic_eth_cq_close(struct qrnic_eth_cq *cq)
{
	struct qrnic_dev *dev = &cq->channel->eth->core->dev;

	/* The device has no reason to refuse. If it does, a reset destroys the CQ. */
	if (qrnic_cq_destroy(dev, &cq->cq)) {
		qrnic_report_fatal(dev, "CQ not destroyed");
		qrnic_cq_destroy(dev, &cq->cq);
	}
	qrnic_ring_free(dev, &cq->ring);
}

/*
 * The caller has added the NAPI instance: an EQE that a former CQ of the same
 * number left behind schedules it as soon as the CQ exists.
 */
static int qrnic_eth_cq_open(struct qrnic_channel *channel,
			     struct qrnic_eth_cq *cq, u32 entries,
			     const struct qrnic_eth_moderation *moderation)
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

static int qrnic_tx_alloc(struct qrnic_channel *channel)
{
	struct qrnic_eth *eth = channel->eth;
	struct qrnic_dev *dev = &eth->core->dev;
	struct qrnic_tx *tx = &channel->tx;
	int err;

	tx->log_size = ilog2(eth->shape.tx_blocks);
	tx->producer = 0;
	tx->clean = 0;
	tx->rung = 0;
	tx->last = 0;
	tx->operation = 0;
	tx->unsignaled = 0;
	err = qrnic_queue_ring_alloc(dev, &tx->ring,
				     (size_t)QRNIC_WQEBB_SIZE << tx->log_size);
	if (err)
		return err;
	tx->slots = kvcalloc(1u << tx->log_size, sizeof(*tx->slots), GFP_KERNEL);
	tx->buffers = kvcalloc(QRNIC_SEGMENTS_PER_WQEBB << tx->log_size,
			       sizeof(*tx->buffers), GFP_KERNEL);
	if (tx->slots && tx->buffers)
		return 0;

	kvfree(tx->buffers);
	kvfree(tx->slots);
	qrnic_ring_free(dev, &tx->ring);
	return -ENOMEM;
}

static void qrnic_tx_release(struct qrnic_channel *channel)
{
	struct qrnic_dev *dev = &channel->eth->core->dev;
	struct qrnic_tx *tx = &channel->tx;

	qrnic_tx_drain(channel);
	kvfree(tx->buffers);
	kvfree(tx->slots);
	qrnic_ring_free(dev, &tx->ring);
}

static int qrnic_rx_alloc(struct qrnic_channel *channel)
{
	struct qrnic_eth *eth = channel->eth;
	struct qrnic_dev *dev = &eth->core->dev;
	struct qrnic_rx *rx = &channel->rx;
	struct page_pool_params params = {
		.flags = PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV,
		.dev = qrnic_dma_device(dev),
		.netdev = eth->netdev,
		.napi = &rx->cq.napi,
		.nid = NUMA_NO_NODE,
		.dma_dir = DMA_FROM_DEVICE,
		.max_len = PAGE_SIZE,
	};
	int err;

	rx->log_size = ilog2(eth->shape.rx_wqes);
	rx->pages = qrnic_rx_pages(eth->netdev->mtu);
	rx->producer = 0;
	rx->consumer = 0;
	params.pool_size = rx->pages << rx->log_size;
	rx->pool = page_pool_create(&params);
	if (IS_ERR(rx->pool))
		return PTR_ERR(rx->pool);
	err = qrnic_queue_ring_alloc(dev, &rx->ring,
				     (size_t)QRNIC_WQEBB_SIZE << rx->log_size);
	if (err)
		goto err_pool;
	rx->slots = kvcalloc(1u << rx->log_size, sizeof(*rx->slots), GFP_KERNEL);
	if (rx->slots)
		return 0;

	err = -ENOMEM;
	qrnic_ring_free(dev, &rx->ring);
err_pool:
	page_pool_destroy(rx->pool);
	return err;
}

static void qrnic_rx_release(struct qrnic_channel *channel)
{
	struct qrnic_dev *dev = &channel->eth->core->dev;
	struct qrnic_rx *rx = &channel->rx;

	qrnic_rx_drain(channel);
	kvfree(rx->slots);
	qrnic_ring_free(dev, &rx->ring);
	page_pool_destroy(rx->pool);
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
 * RDMA may get the number next. A QP in RESET sends no events, so the flush leaves none
 * that a new QP of this number would receive. A failed command means the fatal state.
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

	err = qrnic_cmd_create(&channel->eth->core->dev, QRNIC_CMD_CREATE_QP,
			       &ctx, sizeof(ctx), &qpn);
	if (err)
		return err;
	/*
	 * RDMA may have had the number, so events of the former QP may still be pending.
	 * They must not be taken for events of this one, which has none in RESET.
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

/* What the device knows of the channel; nothing comes before it is started. */
static int qrnic_channel_create(struct qrnic_channel *channel)
{
	const struct qrnic_eth *eth = channel->eth;
	int err;

	/* At most one CQE for each block of the SQ, each WQE of the RQ */
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
	 * The page pool refers to the NAPI instance, so it must be destroyed before
	 * that.
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

/* It is stopped. After this the device touches no buffer of it any more. */
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

/* The first n. Pages of a receive ring may be in any transmit ring (XDP). */
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

	/* Since 6.13 it has its number later, and newer kernels need none. */
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

static void qrnic_channel_tell(struct qrnic_channel *channel, bool started)
{
	struct net_device *netdev = channel->eth->netdev;

	netif_queue_set_napi(netdev, channel->index, NETDEV_QUEUE_TYPE_TX,
			     started ? &channel->tx.cq.napi : NULL);
	netif_queue_set_napi(netdev, channel->index, NETDEV_QUEUE_TYPE_RX,
			     started ? &channel->rx.cq.napi : NULL);
}

/* No frame comes yet, as no filter leads to it; the first poll arms the CQ. */
static int qrnic_channel_start(struct qrnic_channel *channel)
{
	struct napi_struct *tx = &channel->tx.cq.napi;
	struct napi_struct *rx = &channel->rx.cq.napi;
	int err;

	/* The device may lie and let a poll begin as soon as it can. */
	err = qrnic_rxq_register(channel);
	if (err)
		return err;
	napi_enable(rx);
	napi_enable(tx);
	qrnic_channel_tell(channel, true);
	local_bh_disable();
	napi_schedule(rx);
	napi_schedule(tx);
	local_bh_enable();
	return 0;
}

static void qrnic_channel_stop(struct qrnic_channel *channel)
{
	qrnic_channel_tell(channel, false);
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

/* The first n; they wake the queues, so those are stopped after them. */
static void qrnic_channels_stop(struct qrnic_eth *eth, unsigned int n)
{
	while (n--)
		qrnic_channel_stop(&eth->channels[n]);
	netif_tx_disable(eth->netdev);
	/* The end of a poll, behind napi_complete_done(), is not waited for there. */
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

/* Does not change the carrier and the port: RDMA goes on while queues are made anew. */
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
	 * In the fatal state the command fails, but then the device has no filter
	 * either.
	 */
	qrnic_eth_filter_set(eth, &nothing);
	qrnic_channels_stop(eth, eth->shape.channels);
	qrnic_eth_rss_close(eth);
	qrnic_channels_close(eth, eth->shape.channels);
}
