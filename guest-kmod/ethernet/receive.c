// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * receive.c: buffers for received frames, and frames to the network stack.
 *
 * A frame begins in a page that leaves room in front and for skb_shared_info
 * behind, so that an skb is built around it in place; what is longer goes on in
 * whole pages. Pages that a short frame leaves unused stay where they are.
 */
#include "ethernet/ethernet.h"

/* Receive WQEs are posted in batches, a doorbell each. */
#define QRNIC_RX_BATCH 16

static_assert(QRNIC_RX_FIRST + (QRNIC_RX_PAGES - 1) * PAGE_SIZE >=
	      QRNIC_MAX_MTU + ETH_HLEN + 2 * VLAN_HLEN);

unsigned int qrnic_rx_pages(unsigned int mtu)
{
	return qrnic_rx_pages_of(mtu + ETH_HLEN + 2 * VLAN_HLEN);
}

/* The largest MTU that pages buffers of a receive WQE have room for */
unsigned int qrnic_rx_max_mtu(unsigned int pages)
{
	pages = min_t(unsigned int, pages, QRNIC_RX_PAGES);
	return QRNIC_RX_FIRST + (pages - 1) * PAGE_SIZE - ETH_HLEN -
	       2 * VLAN_HLEN;
}

static struct qrnic_rx_slot *qrnic_rx_slot(const struct qrnic_rx *rx, u32 index)
{
	return &rx->slots[index & ((1u << rx->log_size) - 1)];
}

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

/* Posts what there is room for; -ENOMEM if there was not memory for all. */
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

/* What a program has left of a frame of one page */
static struct sk_buff *qrnic_rx_build_xdp(struct qrnic_rx *rx,
					  const struct xdp_buff *xdp,
					  struct page *page)
{
	unsigned int meta = xdp->data - xdp->data_meta;
	struct sk_buff *skb = napi_build_skb(xdp->data_hard_start, PAGE_SIZE);

	if (!skb) {
		page_pool_recycle_direct(rx->pool, page);
		return NULL;
	}
	skb_mark_for_recycle(skb);
	skb_reserve(skb, xdp->data - xdp->data_hard_start);
	skb_put(skb, xdp->data_end - xdp->data);
	if (meta)
		skb_metadata_set(skb, meta);
	return skb;
}

/* NULL if the program has taken it, or without memory */
static struct sk_buff *qrnic_rx_xdp(struct qrnic_channel *channel,
				    struct bpf_prog *prog,
				    struct qrnic_rx_slot *slot, u32 length,
				    u32 *actions)
{
	struct page *page = slot->page[0];
	struct qrnic_rx *rx = &channel->rx;
	struct xdp_buff xdp;
	u32 action;

	page_pool_dma_sync_for_cpu(rx->pool, page, QRNIC_RX_HEADROOM, length);
	slot->page[0] = NULL;
	xdp_init_buff(&xdp, PAGE_SIZE, &rx->xdp_rxq);
	xdp_prepare_buff(&xdp, page_address(page), QRNIC_RX_HEADROOM, length, true);
	action = qrnic_xdp_run(channel, prog, &xdp, page);
	*actions |= BIT(action);
	return action == XDP_PASS ? qrnic_rx_build_xdp(rx, &xdp, page) : NULL;
}

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

static struct sk_buff *qrnic_rx_build(struct qrnic_rx *rx,
				      struct qrnic_rx_slot *slot, u32 length)
{
	u32 part = min_t(u32, length, QRNIC_RX_FIRST);
	struct page *page = slot->page[0];
	struct sk_buff *skb;

	page_pool_dma_sync_for_cpu(rx->pool, page, QRNIC_RX_HEADROOM, part);
	slot->page[0] = NULL;
	skb = napi_build_skb(page_address(page), PAGE_SIZE);
	if (!skb) {
		page_pool_recycle_direct(rx->pool, page);
		return NULL;
	}
	skb_mark_for_recycle(skb);
	skb_reserve(skb, QRNIC_RX_HEADROOM);
	skb_put(skb, part);
	qrnic_rx_add_rest(rx, slot, skb, length - part);
	return skb;
}

static void qrnic_rx_hash(struct sk_buff *skb, const struct qrnic_cqe *cqe)
{
	skb_set_hash(skb, le32_to_cpu(cqe->hash),
		     cqe->hashed & (QRNIC_RSS_TCP | QRNIC_RSS_UDP) ?
		     PKT_HASH_TYPE_L4 : PKT_HASH_TYPE_L3);
}

static void qrnic_rx_offloads(struct qrnic_channel *channel, struct sk_buff *skb,
			      const struct qrnic_cqe *cqe)
{
	u32 flags = FIELD_GET(QRNIC_CQE_FLAGS_MASK, le32_to_cpu(cqe->control));
	struct net_device *netdev = channel->eth->netdev;

	if ((flags & QRNIC_CQEF_L4_CSUM_OK) &&
	    (netdev->features & NETIF_F_RXCSUM))
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	if (flags & QRNIC_CQEF_VLAN)
		__vlan_hwaccel_put_tag(skb, htons(ETH_P_8021Q),
				       le16_to_cpu(cqe->vlan_tci));
	if (cqe->hashed && (netdev->features & NETIF_F_RXHASH))
		qrnic_rx_hash(skb, cqe);
	skb_record_rx_queue(skb, channel->index);
	skb->protocol = eth_type_trans(skb, netdev);
}

/* Gives back the length of the frame, 0 if it was dropped, or -EIO. */
static int qrnic_rx_frame(struct qrnic_channel *channel,
			  const struct qrnic_cqe *cqe, unsigned int *multicast,
			  u32 *actions)
{
	struct bpf_prog *prog = READ_ONCE(channel->eth->prog);
	struct qrnic_rx *rx = &channel->rx;
	struct qrnic_rx_slot *slot = qrnic_rx_slot(rx, rx->consumer);
	u32 taken = *actions;
	u32 length = le32_to_cpu(cqe->byte_len);
	u32 room = QRNIC_RX_FIRST + (rx->pages - 1) * PAGE_SIZE;
	struct sk_buff *skb;

	if (FIELD_GET(QRNIC_CQE_STATUS_MASK, le32_to_cpu(cqe->control)) ||
	    le32_to_cpu(cqe->index) != rx->consumer ||
	    rx->producer == rx->consumer || length < ETH_HLEN || length > room)
		return -EIO;

	if (!prog && qrnic_train_join(channel, slot, cqe, length))
		return length;
	/* It goes up before what came after it. */
	qrnic_train_end(rx);
	if (prog && rx->pages == 1) {
		*actions = 0;
		skb = qrnic_rx_xdp(channel, prog, slot, length, actions);
		if (!skb && !(*actions & BIT(XDP_PASS))) {
			*actions |= taken;
			return length;
		}
		*actions |= taken;
	} else {
		skb = qrnic_rx_build(rx, slot, length);
	}
	if (!skb)
		return 0;
	qrnic_rx_offloads(channel, skb, cqe);
	*multicast += skb->pkt_type == PACKET_MULTICAST;
	qrnic_train_begin(channel, skb, prog);
	return length;
}

int qrnic_rx_poll(struct napi_struct *napi, int budget)
{
	struct qrnic_eth_cq *cq = container_of(napi, struct qrnic_eth_cq, napi);
	unsigned int packets = 0, bytes = 0, dropped = 0, errors = 0;
	unsigned int multicast = 0;
	u32 actions = 0;	/* of programs: bits of enum xdp_action */
	struct qrnic_channel *channel = cq->channel;
	struct qrnic_rx *rx = &channel->rx;
	struct qrnic_cqe cqe;
	int done = 0, length, err;

	/* A call without budget is to clean a transmit queue only. */
	if (!budget)
		return 0;

	while (done < budget && qrnic_eth_cq_next(cq, &cqe)) {
		length = qrnic_rx_frame(channel, &cqe, &multicast, &actions);
		if (length > 0) {
			packets++;
			bytes += length;
		} else if (length == 0) {
			dropped++;
		} else {
			errors++;
		}
		/* Not for one that is wrong: it must not pass what was posted. */
		if (length >= 0)
			rx->consumer++;
		cq->consumer++;
		done++;
	}
	qrnic_train_end(rx);
	if (done)
		qrnic_cq_consume(&cq->ring, cq->consumer);
	if (actions & (BIT(XDP_TX) | BIT(XDP_REDIRECT)))
		qrnic_xdp_flush(channel, actions & BIT(XDP_TX),
				actions & BIT(XDP_REDIRECT));

	u64_stats_update_begin(&rx->stats.sync);
	u64_stats_add(&rx->stats.packets, packets);
	u64_stats_add(&rx->stats.bytes, bytes);
	u64_stats_add(&rx->stats.dropped, dropped);
	u64_stats_add(&rx->stats.errors, errors);
	u64_stats_add(&rx->stats.multicast, multicast);
	u64_stats_update_end(&rx->stats.sync);

	/* After an error the QP takes no more; everything begins anew. */
	if (unlikely(errors)) {
		qrnic_eth_fail(channel->eth);
		napi_complete_done(napi, done);
		return min(done, budget - 1);
	}

	err = qrnic_rx_fill(channel, GFP_ATOMIC | __GFP_NOWARN);
	/*
	 * Without a posted buffer no frame and so no event would come: poll again
	 * until there is memory.
	 */
	if (unlikely(err && rx->producer == rx->consumer))
		return budget;

	if (done < budget) {
		qrnic_eth_moderation_sample(cq, &rx->stats);
		qrnic_eth_cq_complete(cq, done);
	}
	return done;
}

void qrnic_rx_drain(struct qrnic_channel *channel)
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
