// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * receive.c: the NAPI poll of the receive CQ. For each frame the poll runs the
 * XDP program (xdp.c), joins TCP segments (coalesce.c), or builds an skb for
 * the stack.
 *
 * NAPI calls qrnic_rx_poll() after a completion event. At its end the poll
 * fills the receive ring (buffers.c) and arms the CQ (cq.c). Only the poll uses
 * the receive ring while the queues are open. The device is not trusted, so
 * index and length of each CQE are checked.
 */
#include "ethernet/ethernet.h"

/*
 * Builds the skb of a frame of one page that an XDP program has passed. Returns
 * NULL if there is no memory.
 */
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

/*
 * Runs the XDP program on the frame. Returns NULL if the program has consumed
 * the frame, or if there is no memory.
 */
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

/*
 * Builds the skb of a frame around its first page, with the other pages as
 * fragments.
 */
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

/* Sets the hash that the device has computed for RSS. */
static void qrnic_rx_hash(struct sk_buff *skb, const struct qrnic_cqe *cqe)
{
	skb_set_hash(skb, le32_to_cpu(cqe->hash),
		     cqe->hashed & (QRNIC_RSS_TCP | QRNIC_RSS_UDP) ?
		     PKT_HASH_TYPE_L4 : PKT_HASH_TYPE_L3);
}

/*
 * Sets the members of the skb that the CQE provides: checksum, VLAN tag, hash.
 */
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

/*
 * Handles the frame of a CQE. Returns its length, 0 if the frame was dropped,
 * or -EIO if the CQE is invalid.
 */
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
	/*
	 * The train is passed to the stack first, so that frames stay in order.
	 */
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

/* NAPI poll of the receive CQ */
int qrnic_rx_poll(struct napi_struct *napi, int budget)
{
	struct qrnic_eth_cq *cq = container_of(napi, struct qrnic_eth_cq, napi);
	unsigned int packets = 0, bytes = 0, dropped = 0, errors = 0;
	unsigned int multicast = 0;
	u32 actions = 0;	/* bits of enum xdp_action */
	struct qrnic_channel *channel = cq->channel;
	struct qrnic_rx *rx = &channel->rx;
	struct qrnic_cqe cqe;
	int done = 0, length, err;

	/*
	 * A call without budget requests only the cleaning of a transmit queue.
	 */
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
		/*
		 * An invalid CQE does not advance the index, because the index
		 * must not pass the posted WQEs.
		 */
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

	/*
	 * After an error the QP receives no frames any more, so the queues are
	 * replaced.
	 */
	if (unlikely(errors)) {
		qrnic_eth_fail(channel->eth);
		napi_complete_done(napi, done);
		return min(done, budget - 1);
	}

	err = qrnic_rx_fill(channel, GFP_ATOMIC | __GFP_NOWARN);
	/*
	 * Without posted buffers the device receives no frame, and so no event
	 * would schedule NAPI. Therefore NAPI polls again until there is
	 * memory.
	 */
	if (unlikely(err && rx->producer == rx->consumer))
		return budget;

	if (done < budget) {
		qrnic_eth_moderation_sample(cq, &rx->stats);
		qrnic_eth_cq_complete(cq, done);
	}
	return done;
}
