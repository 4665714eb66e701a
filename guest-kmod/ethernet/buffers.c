// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * buffers.c: the receive ring and its buffers, which are pages of a page pool.
 *
 * queues.c allocates and releases the ring; receive.c fills it after each poll.
 * A frame begins in a page with headroom before it and room for skb_shared_info
 * behind it, so that an skb can be built in place. A longer frame continues in
 * whole pages. Pages that a short frame leaves unused stay in the ring. Only
 * the NAPI poll uses the ring while it is open.
 */
#include "ethernet/ethernet.h"

/*
 * Minimum number of receive WQEs to post, because each batch costs a doorbell
 */
#define QRNIC_RX_BATCH 16

static_assert(QRNIC_RX_FIRST + (QRNIC_RX_PAGES - 1) * PAGE_SIZE >=
	      QRNIC_MAX_MTU + ETH_HLEN + 2 * VLAN_HLEN);

/*
 * Returns the number of buffers that a receive WQE needs for frames of this
 * MTU.
 */
unsigned int qrnic_rx_pages(unsigned int mtu)
{
	return qrnic_rx_pages_of(mtu + ETH_HLEN + 2 * VLAN_HLEN);
}

/* Returns the largest MTU whose frames fit into this number of buffers. */
unsigned int qrnic_rx_max_mtu(unsigned int pages)
{
	pages = min_t(unsigned int, pages, QRNIC_RX_PAGES);
	return QRNIC_RX_FIRST + (pages - 1) * PAGE_SIZE - ETH_HLEN -
	       2 * VLAN_HLEN;
}

/* Posts a receive WQE. Returns -ENOMEM if there is no page for it. */
static int qrnic_rx_post(struct qrnic_channel *channel, gfp_t gfp)
{
	struct qrnic_rx *rx = &channel->rx;
	struct qrnic_rx_slot *slot = qrnic_rx_slot(rx, rx->producer);
	u32 place = rx->producer & ((1u << rx->log_size) - 1);
	struct qrnic_recv_ctrl *ctrl;
	struct qrnic_data_seg *data;
	unsigned int i;

	ctrl = qrnic_ring_at(&rx->ring, (size_t)place << QRNIC_WQEBB_SHIFT);
	data = (struct qrnic_data_seg *)(ctrl + 1);
	for (i = 0; i < rx->pages; i++) {
		if (!slot->page[i])
			slot->page[i] = page_pool_alloc_pages(rx->pool, gfp);
		if (!slot->page[i])
			return -ENOMEM;
		data[i].address =
			cpu_to_le64(page_pool_get_dma_addr(slot->page[i]) +
				    (i ? 0 : QRNIC_RX_HEADROOM));
		data[i].length = cpu_to_le32(i ? PAGE_SIZE : QRNIC_RX_FIRST);
		data[i].lkey = channel->eth->lkey;
	}
	*ctrl = (struct qrnic_recv_ctrl) {
		.data_segments = cpu_to_le32(rx->pages),
		.index = cpu_to_le32(rx->producer),
	};
	rx->producer++;
	return 0;
}

/*
 * Fills the receive ring and rings the doorbell. Returns -ENOMEM if memory is
 * short; a part of the ring may be filled then.
 */
int qrnic_rx_fill(struct qrnic_channel *channel, gfp_t gfp)
{
	struct qrnic_rx *rx = &channel->rx;
	u32 room = (1u << rx->log_size) - (rx->producer - rx->consumer);
	u32 begin = rx->producer;
	int err = 0;

	if (room < QRNIC_RX_BATCH)
		return 0;
	while (room-- && !err)
		err = qrnic_rx_post(channel, gfp);
	if (rx->producer != begin) {
		qrnic_record_publish(&rx->ring.queue_record->producer, rx->producer);
		qrnic_ring_doorbell(&channel->eth->core->dev, QRNIC_DB_RQ,
				    channel->qpn, rx->producer);
	}
	return err;
}

/*
 * Adds length bytes of the pages after the first one to the skb, as fragments.
 */
void qrnic_rx_add_rest(struct qrnic_rx *rx, struct qrnic_rx_slot *slot,
		       struct sk_buff *skb, u32 length)
{
	struct page *page;
	unsigned int i;
	u32 part;

	for (i = 1; length; i++) {
		part = min_t(u32, length, PAGE_SIZE);
		page = slot->page[i];
		slot->page[i] = NULL;
		page_pool_dma_sync_for_cpu(rx->pool, page, 0, part);
		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, 0, part,
				PAGE_SIZE);
		length -= part;
	}
}

/*
 * Allocates the receive ring and its page pool. Returns 0 or a negative errno.
 */
int qrnic_rx_alloc(struct qrnic_channel *channel)
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

/* Returns all buffers of the ring to the page pool. */
static void qrnic_rx_drain(struct qrnic_channel *channel)
{
	struct qrnic_rx *rx = &channel->rx;
	unsigned int i, j;

	for (i = 0; i < 1u << rx->log_size; i++) {
		for (j = 0; j < QRNIC_RX_PAGES; j++) {
			if (rx->slots[i].page[j])
				page_pool_put_full_page(rx->pool,
							rx->slots[i].page[j],
							false);
			rx->slots[i].page[j] = NULL;
		}
	}
	rx->consumer = rx->producer;
}

/*
 * Frees the receive ring and its page pool. Called when the device does not use
 * the ring any more.
 */
void qrnic_rx_release(struct qrnic_channel *channel)
{
	struct qrnic_dev *dev = &channel->eth->core->dev;
	struct qrnic_rx *rx = &channel->rx;

	qrnic_rx_drain(channel);
	kvfree(rx->slots);
	qrnic_ring_free(dev, &rx->ring);
	page_pool_destroy(rx->pool);
}
