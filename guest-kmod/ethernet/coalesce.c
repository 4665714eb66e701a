// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * coalesce.c: joins TCP segments to one skb, if the device reports that each
 * continues the one before (NETIF_F_GRO_HW; manual, Ethernet function).
 *
 * The NAPI poll calls qrnic_train_join() for each frame, and
 * qrnic_train_begin() for a frame that was not joined. The train ends at such a
 * frame or at the end of the poll; qrnic_train_end() then passes it to the
 * stack. The device has compared the headers and verified the checksums. This
 * file checks again each property without which the result would be unsafe. If
 * a frame is not joined, for example for lack of room, it begins a train of its
 * own.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <net/ip6_checksum.h>
#include <net/tcp.h>

#include "ethernet/ethernet.h"

/*
 * Parses the headers of the first frame before a second one is joined to it.
 * Returns true for IP without options or extensions, then TCP and data, if the
 * headers have the length that the device reports.
 */
static bool qrnic_train_parse(struct qrnic_train *train, unsigned int header)
{
	const struct sk_buff *skb = train->skb;
	const struct tcphdr *tcp;
	unsigned int end;

	if (skb->ip_summed != CHECKSUM_UNNECESSARY)
		return false;
	if (skb->protocol == htons(ETH_P_IP)) {
		const struct iphdr *ip = (const struct iphdr *)skb->data;

		train->network = sizeof(*ip);
		if (skb_headlen(skb) < sizeof(*ip) + sizeof(*tcp) ||
		    ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_TCP)
			return false;
	} else if (skb->protocol == htons(ETH_P_IPV6)) {
		const struct ipv6hdr *ip = (const struct ipv6hdr *)skb->data;

		train->network = sizeof(*ip);
		if (skb_headlen(skb) < sizeof(*ip) + sizeof(*tcp) ||
		    ip->version != 6 || ip->nexthdr != IPPROTO_TCP)
			return false;
	} else {
		return false;
	}
	tcp = (const struct tcphdr *)(skb->data + train->network);
	end = train->network + tcp->doff * 4;
	if (end < train->network + sizeof(*tcp) || header != ETH_HLEN + end ||
	    skb_headlen(skb) < end || skb->len <= end ||
	    skb->len - end > U16_MAX)
		return false;
	train->header = header;
	train->segment = skb->len - end;
	return true;
}

/* Returns true if the skb has room for the frame. */
static bool qrnic_train_has_room(const struct qrnic_channel *channel, u32 length,
				 u32 data)
{
	const struct net_device *netdev = channel->eth->netdev;
	const struct sk_buff *skb = channel->rx.train.skb;
	/*
	 * The length members of IPv4 and IPv6 have 16 bits, so an skb must not
	 * be longer.
	 */
	unsigned int most = min_t(unsigned int, netif_get_gro_max_size(netdev, skb),
				  U16_MAX);

	return skb->len + data <= most &&
	       skb_shinfo(skb)->nr_frags + qrnic_rx_pages_of(length) <=
	       MAX_SKB_FRAGS;
}

/* Adds the data of a frame to the skb of the train, as fragments in place. */
static void qrnic_train_add(struct qrnic_rx *rx, struct qrnic_rx_slot *slot,
			    u32 length)
{
	struct qrnic_train *train = &rx->train;
	u32 part = min_t(u32, length, QRNIC_RX_FIRST);
	struct page *page = slot->page[0];
	const struct tcphdr *tcp;

	slot->page[0] = NULL;
	page_pool_dma_sync_for_cpu(rx->pool, page, QRNIC_RX_HEADROOM, part);
	tcp = page_address(page) + QRNIC_RX_HEADROOM + ETH_HLEN + train->network;
	train->push = tcp->psh;
	skb_add_rx_frag(train->skb, skb_shinfo(train->skb)->nr_frags, page,
			QRNIC_RX_HEADROOM + train->header, part - train->header,
			PAGE_SIZE);
	qrnic_rx_add_rest(rx, slot, train->skb, length - part);
}

bool qrnic_train_join(struct qrnic_channel *channel, struct qrnic_rx_slot *slot,
		      const struct qrnic_cqe *cqe, u32 length)
{
	u32 flags = FIELD_GET(QRNIC_CQE_FLAGS_MASK, le32_to_cpu(cqe->control));
	struct qrnic_train *train = &channel->rx.train;
	u32 data = length - cqe->continues;

	if (!cqe->continues || !train->skb || train->last ||
	    length <= cqe->continues || !(flags & QRNIC_CQEF_L4_CSUM_OK))
		return false;
	if (train->frames == 1 && !qrnic_train_parse(train, cqe->continues))
		return false;
	if (cqe->continues != train->header || data > train->segment ||
	    !qrnic_train_has_room(channel, length, data))
		return false;
	qrnic_train_add(&channel->rx, slot, length);
	train->frames++;
	train->last = train->push || data < train->segment;
	return true;
}

/*
 * Sets the headers of a train as GRO of the stack does, so that the stack can
 * segment the skb again.
 */
static void qrnic_train_headers(const struct qrnic_train *train)
{
	struct sk_buff *skb = train->skb;
	struct skb_shared_info *info = skb_shinfo(skb);
	unsigned int length = skb->len - train->network;
	struct tcphdr *tcp;

	skb_reset_network_header(skb);
	skb_set_transport_header(skb, train->network);
	tcp = tcp_hdr(skb);
	if (skb->protocol == htons(ETH_P_IP)) {
		struct iphdr *ip = ip_hdr(skb);

		ip->tot_len = htons(skb->len);
		ip->check = 0;
		ip->check = ip_fast_csum(ip, sizeof(*ip) / 4);
		tcp->check = ~tcp_v4_check(length, ip->saddr, ip->daddr, 0);
		info->gso_type = SKB_GSO_TCPV4;
	} else {
		struct ipv6hdr *ip = ipv6_hdr(skb);

		ip->payload_len = htons(length);
		tcp->check = ~tcp_v6_check(length, &ip->saddr, &ip->daddr, 0);
		info->gso_type = SKB_GSO_TCPV6;
	}
	if (train->push)
		tcp->psh = 1;
	info->gso_size = train->segment;
	info->gso_segs = train->frames;
	skb->ip_summed = CHECKSUM_PARTIAL;
	skb->csum_start = skb_transport_header(skb) - skb->head;
	skb->csum_offset = offsetof(struct tcphdr, check);
}

void qrnic_train_begin(struct qrnic_channel *channel, struct sk_buff *skb,
		       const struct bpf_prog *prog)
{
	struct qrnic_rx *rx = &channel->rx;

	/*
	 * No train is started, because a program may have changed the frame
	 * that the device compared.
	 */
	if (prog || !(channel->eth->netdev->features & NETIF_F_GRO_HW)) {
		napi_gro_receive(&rx->cq.napi, skb);
		return;
	}
	rx->train = (struct qrnic_train) { .skb = skb, .frames = 1 };
}

void qrnic_train_end(struct qrnic_rx *rx)
{
	struct qrnic_train *train = &rx->train;

	if (!train->skb)
		return;
	if (train->frames > 1) {
		qrnic_train_headers(train);
		rx->gro_hw_packets++;
		rx->gro_hw_frames += train->frames;
	}
	napi_gro_receive(&rx->cq.napi, train->skb);
	train->skb = NULL;
}
