// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * queues.c: the queue pair and the CQs of the netdev, from open to close.
 */
#include "ethernet/ethernet.h"

/*
 * Asks for an event at the next CQE. CQEs beyond the published consumer index
 * make one at once, so none that came after the last look is missed.
 */
void qrnic_eth_cq_arm(struct qrnic_eth_cq *cq)
{
	cq->sequence = (cq->sequence + 1) & QRNIC_CQ_RECORD_SEQUENCE_MASK;
	WRITE_ONCE(cq->ring.cq_record->arm, cpu_to_le32(cq->sequence));
	/* writeq() in it orders the record before the doorbell. */
	qrnic_ring_doorbell(&cq->eth->core->dev, QRNIC_DB_CQ_ARM, cq->cq.cqn,
			    cq->consumer);
}

static void qrnic_eth_cq_comp(struct qrnic_cq *cq)
{
	struct qrnic_eth_cq *eth_cq = container_of(cq, struct qrnic_eth_cq, cq);

	napi_schedule_irqoff(&eth_cq->napi);
}

static void qrnic_eth_cq_error(struct qrnic_cq *cq, u8 subtype)
{
	struct qrnic_eth_cq *eth_cq = container_of(cq, struct qrnic_eth_cq, cq);

	netdev_err(eth_cq->eth->netdev, "CQ error %u\n", subtype);
	qrnic_eth_fail(eth_cq->eth);
}

static void qrnic_eth_cq_close(struct qrnic_eth *eth, struct qrnic_eth_cq *cq)
{
	struct qrnic_dev *dev = &eth->core->dev;

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
static int qrnic_eth_cq_open(struct qrnic_eth *eth, struct qrnic_eth_cq *cq,
			     u32 entries, unsigned int vector,
			     const struct qrnic_eth_moderation *moderation)
{
	struct qrnic_dev *dev = &eth->core->dev;
	struct qrnic_cq_ctx ctx = { };
	int err;

	cq->eth = eth;
	cq->consumer = 0;
	cq->sequence = 0;
	cq->log_size = ilog2(entries);
	err = qrnic_queue_ring_alloc(dev, &cq->ring, (size_t)QRNIC_CQE_SIZE * entries);
	if (err)
		return err;

	ctx.log_size = cq->log_size;
	ctx.record = cpu_to_le64(cq->ring.record_dma);
	ctx.ring = cq->ring.hw;
	cq->cq.vector = min(vector, qrnic_num_vectors(dev) - 1);
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

static int qrnic_tx_alloc(struct qrnic_eth *eth)
{
	struct qrnic_dev *dev = &eth->core->dev;
	struct qrnic_tx *tx = &eth->tx;
	int err;

	tx->log_size = ilog2(eth->tx_blocks);
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

static void qrnic_tx_release(struct qrnic_eth *eth)
{
	struct qrnic_dev *dev = &eth->core->dev;
	struct qrnic_tx *tx = &eth->tx;

	qrnic_tx_drain(eth);
	kvfree(tx->buffers);
	kvfree(tx->slots);
	qrnic_ring_free(dev, &tx->ring);
}

static int qrnic_rx_alloc(struct qrnic_eth *eth)
{
	struct qrnic_dev *dev = &eth->core->dev;
	struct qrnic_rx *rx = &eth->rx;
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

	rx->log_size = ilog2(eth->rx_wqes);
	rx->pages = qrnic_rx_pages(eth->netdev->mtu);
	rx->producer = 0;
	rx->consumer = 0;
	params.pool_size = rx->pages << rx->log_size;
	rx->pool = page_pool_create(&params);
	if (IS_ERR(rx->pool))
		return PTR_ERR(rx->pool);
	err = xdp_rxq_info_reg(&rx->xdp_rxq, eth->netdev, 0,
			       rx->cq.napi.napi_id);
	if (err)
		goto err_pool;
	err = xdp_rxq_info_reg_mem_model(&rx->xdp_rxq, MEM_TYPE_PAGE_POOL,
					 rx->pool);
	if (err)
		goto err_rxq;
	err = qrnic_queue_ring_alloc(dev, &rx->ring,
				     (size_t)QRNIC_WQEBB_SIZE << rx->log_size);
	if (err)
		goto err_rxq;
	rx->slots = kvcalloc(1u << rx->log_size, sizeof(*rx->slots), GFP_KERNEL);
	if (rx->slots)
		return 0;

	err = -ENOMEM;
	qrnic_ring_free(dev, &rx->ring);
err_rxq:
	xdp_rxq_info_unreg(&rx->xdp_rxq);
err_pool:
	page_pool_destroy(rx->pool);
	return err;
}

static void qrnic_rx_release(struct qrnic_eth *eth)
{
	struct qrnic_dev *dev = &eth->core->dev;
	struct qrnic_rx *rx = &eth->rx;

	qrnic_rx_drain(eth);
	kvfree(rx->slots);
	qrnic_ring_free(dev, &rx->ring);
	xdp_rxq_info_unreg(&rx->xdp_rxq);
	page_pool_destroy(rx->pool);
}

static int qrnic_qp_state(struct qrnic_eth *eth, enum qrnic_qp_state state)
{
	struct qrnic_qp_attr attr = {
		.mask = cpu_to_le32(QRNIC_QP_STATE),
		.state = state,
	};

	if (state == QRNIC_QPS_INIT) {
		attr.mask |= cpu_to_le32(QRNIC_QP_PORT);
		attr.port = 1;
	}
	return qrnic_cmd_set(&eth->core->dev, QRNIC_CMD_MODIFY_QP, eth->qpn,
			     &attr, sizeof(attr));
}

static void qrnic_qp_close(struct qrnic_eth *eth)
{
	struct qrnic_dev *dev = &eth->core->dev;

	if (qrnic_cmd_destroy(dev, QRNIC_CMD_DESTROY_QP, eth->qpn))
		qrnic_report_fatal(dev, "QP not destroyed");
	eth->qpn = 0;
}

static int qrnic_qp_open(struct qrnic_eth *eth)
{
	struct qrnic_qp_ctx ctx = {
		.type = QRNIC_QPT_RAW_PACKET,
		.sq_log_size = eth->tx.log_size,
		.rq_log_size = eth->rx.log_size,
		.pd = cpu_to_le32(eth->pdn),
		.send_cq = cpu_to_le32(eth->tx.cq.cq.cqn),
		.recv_cq = cpu_to_le32(eth->rx.cq.cq.cqn),
		.sq_record = cpu_to_le64(eth->tx.ring.record_dma),
		.rq_record = cpu_to_le64(eth->rx.ring.record_dma),
		.sq = eth->tx.ring.hw,
		.rq = eth->rx.ring.hw,
	};
	int err;

	err = qrnic_cmd_create(&eth->core->dev, QRNIC_CMD_CREATE_QP, &ctx,
			       sizeof(ctx), &eth->qpn);
	if (err)
		return err;
	err = qrnic_qp_state(eth, QRNIC_QPS_INIT);
	if (!err)
		err = qrnic_qp_state(eth, QRNIC_QPS_RTR);
	if (!err)
		err = qrnic_qp_state(eth, QRNIC_QPS_RTS);
	if (err)
		qrnic_qp_close(eth);
	return err;
}

static void qrnic_eth_start(struct qrnic_eth *eth)
{
	napi_enable(&eth->rx.cq.napi);
	napi_enable(&eth->tx.cq.napi);
	/* The first poll arms the CQ. */
	local_bh_disable();
	napi_schedule(&eth->rx.cq.napi);
	napi_schedule(&eth->tx.cq.napi);
	local_bh_enable();
}

/* Does not change the carrier and the port: RDMA goes on while queues are made anew. */
int qrnic_eth_queues_open(struct qrnic_eth *eth)
{
	int err;

	netif_napi_add_tx(eth->netdev, &eth->tx.cq.napi, qrnic_tx_poll);
	netif_napi_add(eth->netdev, &eth->rx.cq.napi, qrnic_rx_poll);
	err = qrnic_tx_alloc(eth);
	if (err)
		goto err_napi;
	/*
	 * The page pool refers to the NAPI instance, so it must be destroyed before
	 * that.
	 */
	err = qrnic_rx_alloc(eth);
	if (err)
		goto err_tx;
	/* At most one CQE for each block of the SQ, each WQE of the RQ */
	err = qrnic_eth_cq_open(eth, &eth->tx.cq, eth->tx_blocks, 1,
				&eth->tx_moderation);
	if (err)
		goto err_rx;
	err = qrnic_eth_cq_open(eth, &eth->rx.cq, eth->rx_wqes, 0,
				&eth->rx_moderation);
	if (err)
		goto err_tx_cq;
	err = qrnic_qp_open(eth);
	if (err)
		goto err_rx_cq;
	err = qrnic_rx_fill(eth);
	if (err)
		goto err_qp;
	err = qrnic_eth_filter_set(eth, eth->qpn, eth->vlan_strip);
	if (err)
		goto err_qp;

	clear_bit(0, &eth->failed);
	eth->open = true;
	qrnic_eth_start(eth);
	return 0;

err_qp:
	qrnic_qp_close(eth);
err_rx_cq:
	qrnic_eth_cq_close(eth, &eth->rx.cq);
err_tx_cq:
	qrnic_eth_cq_close(eth, &eth->tx.cq);
err_rx:
	qrnic_rx_release(eth);
err_tx:
	qrnic_tx_release(eth);
err_napi:
	netif_napi_del(&eth->rx.cq.napi);
	netif_napi_del(&eth->tx.cq.napi);
	return err;
}

void qrnic_eth_queues_close(struct qrnic_eth *eth)
{
	if (!eth->open)
		return;
	eth->open = false;
	/*
	 * In the fatal state the command fails, but then the device has no filter
	 * either.
	 */
	qrnic_eth_filter_set(eth, 0, eth->vlan_strip);

	/* NAPI first, as it wakes the transmit queue. */
	napi_disable(&eth->tx.cq.napi);
	napi_disable(&eth->rx.cq.napi);
	netif_tx_disable(eth->netdev);
	/* The end of a poll, behind napi_complete_done(), is not waited for there. */
	synchronize_net();
	qrnic_eth_moderation_close(&eth->rx.cq);
	qrnic_eth_moderation_close(&eth->tx.cq);
	/* After this the device touches no buffer any more. */
	qrnic_qp_close(eth);
	qrnic_eth_cq_close(eth, &eth->rx.cq);
	qrnic_eth_cq_close(eth, &eth->tx.cq);
	/* Pages of the receive ring may be in the other one (XDP_TX). */
	qrnic_tx_release(eth);
	qrnic_rx_release(eth);
	netif_napi_del(&eth->rx.cq.napi);
	netif_napi_del(&eth->tx.cq.napi);
}
