// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * transmit.c: the transmit ring: it makes send WQEs of skbs and XDP frames, and
 * frees them after their completions.
 *
 * The stack calls qrnic_eth_transmit(), and XDP calls qrnic_tx_post_frame() and
 * qrnic_tx_ring(), all under the lock of the transmit queue. NAPI calls
 * qrnic_tx_poll(), which runs at the same time. The producer side owns the
 * blocks from tx->producer to tx->clean, and NAPI owns the others. For each WQE
 * the slot of its first block has the frame. The device is not trusted, so no
 * decision depends on the content of the ring.
 */
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <net/gso.h>
#include <net/ip.h>
#include <net/netdev_queues.h>

#include "ethernet/ethernet.h"

/*
 * Number of segments before the data: the control segment and the Ethernet
 * segment
 */
#define QRNIC_TX_HEAD_SEGMENTS 2
/*
 * Free blocks at which a stopped queue is woken: room for two of the largest
 * WQEs
 */
#define QRNIC_TX_WAKE (2 * QRNIC_WQE_MAX_WQEBB)

/*
 * Returns the address of segment n of the WQE at index. A WQE may wrap around
 * the end of the ring between any two blocks.
 */
static void *qrnic_tx_segment(const struct qrnic_tx *tx, u32 index, unsigned int n)
{
	u32 block = index + n / QRNIC_SEGMENTS_PER_WQEBB;

	block &= (1u << tx->log_size) - 1;
	return qrnic_ring_at(&tx->ring, (size_t)block << QRNIC_WQEBB_SHIFT) +
	       n % QRNIC_SEGMENTS_PER_WQEBB * QRNIC_SEGMENT_SIZE;
}

/* Returns the slot of the WQE at index. */
static struct qrnic_tx_slot *qrnic_tx_slot(const struct qrnic_tx *tx, u32 index)
{
	return &tx->slots[index & ((1u << tx->log_size) - 1)];
}

/* Returns buffer n of the WQE at index. */
static struct qrnic_tx_buffer *qrnic_tx_buffer(const struct qrnic_tx *tx, u32 index,
					       unsigned int n)
{
	u32 segment = index * QRNIC_SEGMENTS_PER_WQEBB + n;

	return &tx->buffers[segment &
			    ((QRNIC_SEGMENTS_PER_WQEBB << tx->log_size) - 1)];
}

/* Unmaps the first buffers of the WQE at index. */
static void qrnic_tx_unmap(struct qrnic_channel *channel, u32 index,
			   unsigned int buffers)
{
	struct device *device = qrnic_dma_device(&channel->eth->core->dev);
	const struct qrnic_tx_buffer *buffer;
	unsigned int i;

	for (i = 0; i < buffers; i++) {
		buffer = qrnic_tx_buffer(&channel->tx, index, i);
		if (i == 0)
			dma_unmap_single(device, buffer->address, buffer->length,
					 DMA_TO_DEVICE);
		else
			dma_unmap_page(device, buffer->address, buffer->length,
				       DMA_TO_DEVICE);
	}
}

/*
 * Records the mapping of buffer n of the next WQE, and writes its data segment.
 */
static void qrnic_tx_put_data(struct qrnic_channel *channel, unsigned int n,
			      dma_addr_t address, unsigned int length)
{
	struct qrnic_tx *tx = &channel->tx;
	struct qrnic_data_seg *data;

	*qrnic_tx_buffer(tx, tx->producer, n) = (struct qrnic_tx_buffer) {
		.address = address,
		.length = length,
	};
	data = qrnic_tx_segment(tx, tx->producer, QRNIC_TX_HEAD_SEGMENTS + n);
	*data = (struct qrnic_data_seg) {
		.address = cpu_to_le64(address),
		.length = cpu_to_le32(length),
		.lkey = channel->eth->lkey,
	};
}

/*
 * Maps the data of the skb for the next WQE. Returns the number of mapped
 * buffers, which is smaller than the number of buffers on failure.
 */
static unsigned int qrnic_tx_map(struct qrnic_channel *channel, struct sk_buff *skb)
{
	struct device *device = qrnic_dma_device(&channel->eth->core->dev);
	unsigned int i, length, buffers = 1 + skb_shinfo(skb)->nr_frags;
	dma_addr_t address;
	skb_frag_t *frag;

	for (i = 0; i < buffers; i++) {
		if (i == 0) {
			length = skb_headlen(skb);
			address = dma_map_single(device, skb->data, length,
						 DMA_TO_DEVICE);
		} else {
			frag = &skb_shinfo(skb)->frags[i - 1];
			length = skb_frag_size(frag);
			address = skb_frag_dma_map(device, frag, 0, length,
						   DMA_TO_DEVICE);
		}
		if (dma_mapping_error(device, address))
			break;
		qrnic_tx_put_data(channel, i, address, length);
	}
	return i;
}

/* Writes the Ethernet segment: the offloads that the skb requests. */
static void qrnic_tx_offloads(struct qrnic_eth_seg *eth_seg,
			      const struct sk_buff *skb)
{
	u16 flags = 0;

	*eth_seg = (struct qrnic_eth_seg) { };
	if (skb_is_gso(skb)) {
		flags |= QRNIC_ETHF_TSO;
		eth_seg->mss = cpu_to_le16(skb_shinfo(skb)->gso_size);
		eth_seg->header_length = cpu_to_le16(skb_tcp_all_headers(skb));
	} else if (skb->ip_summed == CHECKSUM_PARTIAL) {
		flags |= QRNIC_ETHF_CSUM;
		eth_seg->csum_start = cpu_to_le16(skb_checksum_start_offset(skb));
		eth_seg->csum_offset = cpu_to_le16(skb->csum_offset);
	}
	if (skb_vlan_tag_present(skb)) {
		flags |= QRNIC_ETHF_VLAN;
		eth_seg->vlan_tci = cpu_to_le16(skb_vlan_tag_get(skb));
	}
	eth_seg->flags = cpu_to_le16(flags);
}

/*
 * Writes the control segment. Each WQE that completes an interval is signaled.
 */
static void qrnic_tx_control(struct qrnic_tx *tx, unsigned int segments)
{
	struct qrnic_sq_ctrl *ctrl = qrnic_tx_segment(tx, tx->producer, 0);
	u32 operation, flags = 0;

	if (++tx->unsignaled >= QRNIC_TX_SIGNAL_INTERVAL) {
		flags = QRNIC_WQEF_SIGNALED;
		tx->unsignaled = 0;
	}
	operation = FIELD_PREP(QRNIC_SQ_CTRL_OPCODE_MASK, QRNIC_WQE_SEND) |
		    FIELD_PREP(QRNIC_SQ_CTRL_FLAGS_MASK, flags) |
		    FIELD_PREP(QRNIC_SQ_CTRL_SEGMENTS_MASK, segments);
	tx->operation = operation;
	*ctrl = (struct qrnic_sq_ctrl) {
		.operation = cpu_to_le32(operation),
		.index = cpu_to_le32(tx->producer),
	};
}

/*
 * Publishes all WQEs that were posted, and rings the doorbell if the device
 * needs it. The last WQE is made a signaled one, so that each batch ends with a
 * CQE. The control segment can still be changed, because the device reads it
 * only after the doorbell record.
 */
void qrnic_tx_ring(struct qrnic_channel *channel)
{
	struct qrnic_dev *dev = &channel->eth->core->dev;
	struct qrnic_tx *tx = &channel->tx;
	struct qrnic_sq_ctrl *ctrl;
	u32 old = tx->rung;

	if (old == tx->producer)
		return;
	ctrl = qrnic_tx_segment(tx, tx->last, 0);
	tx->operation |= FIELD_PREP(QRNIC_SQ_CTRL_FLAGS_MASK, QRNIC_WQEF_SIGNALED);
	ctrl->operation = cpu_to_le32(tx->operation);
	tx->unsignaled = 0;
	/*
	 * Release, so that NAPI finds slots and BQL complete when it accepts a
	 * CQE of these WQEs.
	 */
	smp_store_release(&tx->rung, tx->producer);
	if (qrnic_sq_record_publish(dev, tx->ring.queue_record, old, tx->producer))
		qrnic_ring_doorbell(dev, QRNIC_DB_SQ, channel->qpn, tx->producer);
}

static void qrnic_tx_drop(struct qrnic_channel *channel, struct sk_buff *skb)
{
	dev_core_stats_tx_dropped_inc(channel->eth->netdev);
	dev_kfree_skb_any(skb);
	/*
	 * Earlier packets of the batch may be posted without a doorbell,
	 * because the stack has announced further packets.
	 */
	qrnic_tx_ring(channel);
}

/*
 * Returns the bytes of VLAN tags in the frame. The MTU does not count up to two
 * tags.
 */
static unsigned int qrnic_tx_tags(const void *data, unsigned int length)
{
	const struct vlan_ethhdr *header = data;

	if (!eth_type_vlan(header->h_vlan_proto))
		return 0;
	if (length < VLAN_ETH_HLEN ||
	    !eth_type_vlan(header->h_vlan_encapsulated_proto))
		return VLAN_HLEN;
	return 2 * VLAN_HLEN;
}

/*
 * Returns true if a frame of length bytes fits the MTU. The first bytes of the
 * frame are at data; their number is linear.
 */
static bool qrnic_tx_fits(const struct net_device *netdev, const void *data,
			  unsigned int linear, unsigned int length)
{
	unsigned int limit = READ_ONCE(netdev->mtu) + ETH_HLEN;

	return likely(length <= limit) ||
	       length <= limit + qrnic_tx_tags(data, linear);
}

/*
 * Returns true if the device accepts the length. Other frames would put the
 * queue pair into the error state. These frames are too short, or the stack
 * queued them before the MTU became smaller.
 */
static bool qrnic_tx_length_ok(const struct net_device *netdev, struct sk_buff *skb)
{
	if (unlikely(skb->len < ETH_HLEN || skb_headlen(skb) < ETH_HLEN))
		return false;
	if (skb_is_gso(skb))
		return skb_gso_validate_network_len(skb, READ_ONCE(netdev->mtu));
	return qrnic_tx_fits(netdev, skb->data, skb_headlen(skb), skb->len);
}

/*
 * Returns true if the frame is the TCP segment that the header offsets of the
 * skb describe. The offsets may come from a guest, so they are compared with
 * the frame.
 */
static bool qrnic_tx_is_tcp(const struct sk_buff *skb)
{
	const struct ethhdr *header = (const struct ethhdr *)skb->data;
	unsigned int network = ETH_HLEN;

	if (header->h_proto == htons(ETH_P_8021Q))
		network += VLAN_HLEN;
	if (skb_network_offset(skb) != network ||
	    skb_transport_offset(skb) + sizeof(struct tcphdr) > skb_headlen(skb))
		return false;
	if (skb_shinfo(skb)->gso_type & SKB_GSO_TCPV4)
		return vlan_get_protocol(skb) == htons(ETH_P_IP) &&
		       ip_hdr(skb)->protocol == IPPROTO_TCP &&
		       !ip_is_fragment(ip_hdr(skb)) &&
		       skb_network_header_len(skb) == ip_hdrlen(skb);
	return skb_shinfo(skb)->gso_type & SKB_GSO_TCPV6 &&
	       vlan_get_protocol(skb) == htons(ETH_P_IPV6) &&
	       ipv6_hdr(skb)->nexthdr == IPPROTO_TCP &&
	       skb_network_header_len(skb) == sizeof(struct ipv6hdr);
}

/*
 * Returns true if the device can segment the frame. The device parses TCP after
 * at most one 802.1Q tag, and without IPv6 extension headers.
 */
static bool qrnic_tx_can_segment(const struct qrnic_eth *eth,
				 const struct sk_buff *skb)
{
	const struct ethhdr *header = (const struct ethhdr *)skb->data;
	u16 limit = eth->core->dev.caps.max_sge;

	if (skb_shinfo(skb)->nr_frags >= limit || skb_headlen(skb) < ETH_HLEN)
		return false;
	if (header->h_proto == htons(ETH_P_8021AD) ||
	    (skb_vlan_tag_present(skb) &&
	     skb->vlan_proto == htons(ETH_P_8021AD)))
		return false;
	return qrnic_tx_is_tcp(skb) &&
	       skb_tcp_all_headers(skb) <= QRNIC_TSO_MAX_HEADER;
}

/* Removes features of this frame that the device does not support. */
netdev_features_t qrnic_eth_features_check(struct sk_buff *skb,
					   struct net_device *netdev,
					   netdev_features_t features)
{
	features = vlan_features_check(skb, features);
	if (skb_is_gso(skb) && !qrnic_tx_can_segment(netdev_priv(netdev), skb))
		features &= ~NETIF_F_GSO_MASK;
	return features;
}

/*
 * Sets the bytes and packets on the wire, because each segment has a copy of
 * the headers.
 */
static void qrnic_tx_account(struct qrnic_tx_slot *slot, const struct sk_buff *skb)
{
	unsigned int headers;

	slot->bytes = skb->len;
	slot->packets = 1;
	if (skb_is_gso(skb)) {
		headers = skb_tcp_all_headers(skb);
		slot->packets = DIV_ROUND_UP(skb->len - headers,
					     skb_shinfo(skb)->gso_size);
		slot->bytes += (slot->packets - 1) * headers;
	}
}

/*
 * Posts a send WQE for the skb. Called by the stack under the lock of the
 * transmit queue.
 */
netdev_tx_t qrnic_eth_transmit(struct sk_buff *skb, struct net_device *netdev)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	struct qrnic_channel *channel = &eth->channels[skb_get_queue_mapping(skb)];
	struct netdev_queue *txq = qrnic_channel_txq(channel);
	unsigned int buffers, mapped, segments, wqebbs;
	struct qrnic_tx *tx = &channel->tx;
	struct qrnic_tx_slot *slot;

	/*
	 * Needed because packet sockets and pktgen may select a queue that does
	 * not exist any more.
	 */
	if (unlikely(!channel->qpn)) {
		dev_core_stats_tx_dropped_inc(netdev);
		dev_kfree_skb_any(skb);
		return NETDEV_TX_OK;
	}
	/*
	 * The frame is checked again, because features_check() does not see the
	 * headers of frames from a guest.
	 */
	if (!qrnic_tx_length_ok(netdev, skb) ||
	    (skb_is_gso(skb) && !qrnic_tx_can_segment(eth, skb)) ||
	    (skb_shinfo(skb)->nr_frags >= eth->core->dev.caps.max_sge &&
	     skb_linearize(skb))) {
		qrnic_tx_drop(channel, skb);
		return NETDEV_TX_OK;
	}
	buffers = 1 + skb_shinfo(skb)->nr_frags;
	segments = QRNIC_TX_HEAD_SEGMENTS + buffers;
	wqebbs = DIV_ROUND_UP(segments, QRNIC_SEGMENTS_PER_WQEBB);
	if (unlikely(qrnic_tx_room(tx) < wqebbs)) {
		netif_tx_stop_queue(txq);
		return NETDEV_TX_BUSY;
	}

	mapped = qrnic_tx_map(channel, skb);
	if (unlikely(mapped < buffers)) {
		qrnic_tx_unmap(channel, tx->producer, mapped);
		qrnic_tx_drop(channel, skb);
		return NETDEV_TX_OK;
	}
	qrnic_tx_control(tx, segments);
	qrnic_tx_offloads(qrnic_tx_segment(tx, tx->producer, 1), skb);

	slot = qrnic_tx_slot(tx, tx->producer);
	slot->skb = skb;
	qrnic_tx_account(slot, skb);
	slot->wqebbs = wqebbs;
	slot->buffers = buffers;
	tx->last = tx->producer;
	skb_tx_timestamp(skb);
	/*
	 * NAPI reads the slot only after a CQE, which comes after the doorbell.
	 * So only the producer index, which NAPI reads at any time, needs
	 * WRITE_ONCE().
	 */
	WRITE_ONCE(tx->producer, tx->producer + wqebbs);

	netif_txq_maybe_stop(txq, qrnic_tx_room(tx), QRNIC_WQE_MAX_WQEBB,
			     QRNIC_TX_WAKE);
	if (__netdev_tx_sent_queue(txq, slot->bytes, netdev_xmit_more()))
		qrnic_tx_ring(channel);
	return NETDEV_TX_OK;
}

/*
 * Posts an XDP frame. The function leaves as many blocks free as the stack
 * needs while its queue is not stopped. If the function returns false, the
 * caller still owns the frame.
 */
bool qrnic_tx_post_frame(struct qrnic_channel *channel, struct xdp_frame *frame)
{
	struct qrnic_eth *eth = channel->eth;
	struct device *device = qrnic_dma_device(&eth->core->dev);
	struct qrnic_tx *tx = &channel->tx;
	struct qrnic_tx_slot *slot;
	dma_addr_t address;

	if (unlikely(frame->len < ETH_HLEN ||
		     !qrnic_tx_fits(eth->netdev, frame->data, frame->len,
				    frame->len) ||
		     xdp_frame_has_frags(frame) ||
		     qrnic_tx_room(tx) <= QRNIC_WQE_MAX_WQEBB))
		return false;
	address = dma_map_single(device, frame->data, frame->len, DMA_TO_DEVICE);
	if (unlikely(dma_mapping_error(device, address)))
		return false;
	qrnic_tx_put_data(channel, 0, address, frame->len);
	qrnic_tx_control(tx, QRNIC_TX_HEAD_SEGMENTS + 1);
	memset(qrnic_tx_segment(tx, tx->producer, 1), 0,
	       sizeof(struct qrnic_eth_seg));

	slot = qrnic_tx_slot(tx, tx->producer);
	*slot = (struct qrnic_tx_slot) {
		.frame = frame,
		.bytes = frame->len,
		.packets = 1,
		.wqebbs = 1,
		.buffers = 1,
	};
	tx->last = tx->producer;
	WRITE_ONCE(tx->producer, tx->producer + 1);
	return true;
}

/* Frees the frame of the oldest WQE, and advances the clean index. */
static void qrnic_tx_free(struct qrnic_channel *channel, int budget)
{
	struct qrnic_tx *tx = &channel->tx;
	struct qrnic_tx_slot *slot = qrnic_tx_slot(tx, tx->clean);

	qrnic_tx_unmap(channel, tx->clean, slot->buffers);
	if (slot->frame)
		xdp_return_frame(slot->frame);
	else
		napi_consume_skb(slot->skb, budget);
	slot->frame = NULL;
	slot->skb = NULL;
	WRITE_ONCE(tx->clean, tx->clean + slot->wqebbs);
}

/* Returns true if a WQE that the device knows begins at index. */
static bool qrnic_tx_is_posted(const struct qrnic_tx *tx, u32 index)
{
	/*
	 * Pairs with the release in qrnic_tx_ring(), so the slots of these WQEs
	 * are complete.
	 */
	u32 rung = smp_load_acquire(&tx->rung);
	const struct qrnic_tx_slot *slot = qrnic_tx_slot(tx, index);

	return index - tx->clean < rung - tx->clean && (slot->skb || slot->frame);
}

/* Returns true if the CQE completes a WQE with an XDP frame. */
static bool qrnic_tx_has_frames(const struct qrnic_tx *tx,
				const struct qrnic_cqe *cqe)
{
	u32 index = le32_to_cpu(cqe->index), i;

	if (!qrnic_tx_is_posted(tx, index))
		return false;
	for (i = tx->clean; (s32)(i - index) <= 0; i += qrnic_tx_slot(tx, i)->wqebbs)
		if (qrnic_tx_slot(tx, i)->frame)
			return true;
	return false;
}

/*
 * Frees the WQE of the CQE and all WQEs before it, because the device completes
 * them in order. Returns false if no such WQE was posted.
 */
static bool qrnic_tx_complete(struct qrnic_channel *channel,
			      const struct qrnic_cqe *cqe, int budget,
			      unsigned int *packets, unsigned int *bytes,
			      unsigned int *queued)
{
	struct qrnic_tx *tx = &channel->tx;
	u32 index = le32_to_cpu(cqe->index);
	const struct qrnic_tx_slot *slot;

	if (!qrnic_tx_is_posted(tx, index))
		return false;
	do {
		slot = qrnic_tx_slot(tx, tx->clean);
		*bytes += slot->bytes;
		*packets += slot->packets;
		if (slot->skb)
			*queued += slot->bytes;
		qrnic_tx_free(channel, budget);
	} while ((s32)(tx->clean - index) <= 0);
	return true;
}

/*
 * NAPI poll of the transmit CQ. Frees completed frames, and wakes the transmit
 * queue.
 */
int qrnic_tx_poll(struct napi_struct *napi, int budget)
{
	struct qrnic_eth_cq *cq = container_of(napi, struct qrnic_eth_cq, napi);
	struct qrnic_channel *channel = cq->channel;
	struct netdev_queue *txq = qrnic_channel_txq(channel);
	unsigned int packets = 0, bytes = 0, errors = 0;
	unsigned int queued = 0;	/* bytes that count for BQL */
	/*
	 * The budget counts received frames. So the ring is also cleaned with a
	 * budget of 0, with which netconsole polls; NAPI_POLL_WEIGHT is the
	 * limit then.
	 */
	int done = 0, limit = budget ?: NAPI_POLL_WEIGHT;
	struct qrnic_tx *tx = &channel->tx;
	struct qrnic_cqe cqe;

	while (done < limit && qrnic_eth_cq_next(cq, &cqe)) {
		/*
		 * XDP frames stay in the ring, because netpoll may run in an
		 * interrupt, where their pages cannot be returned to the page
		 * pool.
		 */
		if (!budget && qrnic_tx_has_frames(tx, &cqe))
			break;
		/*
		 * The CQ has an entry for each block of the ring. So the device
		 * must be able to use this entry before another processor can
		 * post in the blocks that the completion frees.
		 */
		cq->consumer++;
		qrnic_cq_consume(&cq->ring, cq->consumer);
		dma_wmb();
		if (FIELD_GET(QRNIC_CQE_STATUS_MASK, le32_to_cpu(cqe.control)))
			errors++;
		if (!qrnic_tx_complete(channel, &cqe, budget, &packets, &bytes,
				       &queued)) {
			net_err_ratelimited("%s: transmit completion of %u, which is not posted\n",
					    channel->eth->netdev->name,
					    le32_to_cpu(cqe.index));
			errors++;
		}
		done++;
	}

	u64_stats_update_begin(&tx->stats.sync);
	u64_stats_add(&tx->stats.packets, packets);
	u64_stats_add(&tx->stats.bytes, bytes);
	u64_stats_add(&tx->stats.errors, errors);
	u64_stats_update_end(&tx->stats.sync);
	netif_txq_completed_wake(txq, packets, queued, qrnic_tx_room(tx),
				 QRNIC_TX_WAKE);
	if (unlikely(errors))
		qrnic_eth_fail(channel->eth);

	if (done < limit && budget) {
		qrnic_eth_moderation_sample(cq, &tx->stats);
		qrnic_eth_cq_complete(cq, done);
	}
	return min(done, budget);
}

/*
 * Frees all frames that are still posted. Called after the QP is destroyed, so
 * the device uses none of them.
 */
static void qrnic_tx_drain(struct qrnic_channel *channel)
{
	struct qrnic_tx *tx = &channel->tx;

	while (tx->clean != tx->producer)
		qrnic_tx_free(channel, 0);
	netdev_tx_reset_queue(qrnic_channel_txq(channel));
}

/* Allocates the transmit ring. Returns 0 or a negative errno. */
int qrnic_tx_alloc(struct qrnic_channel *channel)
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

/*
 * Frees the transmit ring and the frames in it. Called after the QP is
 * destroyed.
 */
void qrnic_tx_release(struct qrnic_channel *channel)
{
	struct qrnic_dev *dev = &channel->eth->core->dev;
	struct qrnic_tx *tx = &channel->tx;

	qrnic_tx_drain(channel);
	kvfree(tx->buffers);
	kvfree(tx->slots);
	qrnic_ring_free(dev, &tx->ring);
}
