// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * xdp.c: XDP: programs that process received frames before the network stack,
 * and frames that programs of any netdev send.
 *
 * receive.c calls qrnic_xdp_run() for each frame, and qrnic_xdp_flush() at the
 * end of a poll in which programs sent or redirected frames. The network stack
 * calls qrnic_xdp_xmit() in softirq context, and qrnic_xdp_bpf() under RTNL. A
 * program needs frames of one page, which limits the MTU.
 */
#include <linux/bpf_trace.h>

#include "ethernet/ethernet.h"

/*
 * Sends a received frame of one page through the port that received it. Returns
 * false if there is no room.
 */
static bool qrnic_xdp_tx(struct qrnic_channel *channel, struct xdp_buff *xdp)
{
	struct netdev_queue *txq = qrnic_channel_txq(channel);
	struct xdp_frame *frame = xdp_convert_buff_to_frame(xdp);
	bool sent = false;

	if (unlikely(!frame))
		return false;
	__netif_tx_lock(txq, smp_processor_id());
	if (!netif_tx_queue_stopped(txq))
		sent = qrnic_tx_post_frame(channel, frame);
	__netif_tx_unlock(txq);
	return sent;
}

/*
 * Runs the program. If it returns XDP_PASS, the caller still owns the page, and
 * the stack receives the frame as it is in xdp. Otherwise the page has another
 * owner or was recycled.
 */
u32 qrnic_xdp_run(struct qrnic_channel *channel, struct bpf_prog *prog,
		  struct xdp_buff *xdp, struct page *page)
{
	struct net_device *netdev = channel->eth->netdev;
	struct qrnic_rx *rx = &channel->rx;
	u32 action = bpf_prog_run_xdp(prog, xdp);

	switch (action) {
	case XDP_PASS:
		return XDP_PASS;
	case XDP_TX:
		if (qrnic_xdp_tx(channel, xdp)) {
			rx->xdp_tx++;
			return XDP_TX;
		}
		break;
	case XDP_REDIRECT:
		if (!xdp_do_redirect(netdev, xdp, prog)) {
			rx->xdp_redirect++;
			return XDP_REDIRECT;
		}
		break;
	case XDP_DROP:
		goto drop;
	case XDP_ABORTED:
		break;
	default:
		bpf_warn_invalid_xdp_action(netdev, prog, action);
	}
	trace_xdp_exception(netdev, prog, action);
drop:
	rx->xdp_drop++;
	page_pool_recycle_direct(rx->pool, page);
	return XDP_DROP;
}

/*
 * Completes the actions of a poll: rings the doorbell, and flushes redirected
 * frames.
 */
void qrnic_xdp_flush(struct qrnic_channel *channel, bool tx, bool redirect)
{
	struct netdev_queue *txq = qrnic_channel_txq(channel);

	if (redirect)
		xdp_do_flush();
	if (!tx)
		return;
	__netif_tx_lock(txq, smp_processor_id());
	qrnic_tx_ring(channel);
	__netif_tx_unlock(txq);
}

/*
 * Sends frames of programs of other netdevs. Returns the number of frames that
 * were posted; the caller still owns the others. Several processors and the
 * stack may share a ring. If the queue is stopped, no frame is posted, because
 * the ring is full or is being replaced. The channel is checked, because the
 * number of channels may have changed since its selection.
 */
int qrnic_xdp_xmit(struct net_device *netdev, int n, struct xdp_frame **frames,
		   u32 flags)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	unsigned int index = qrnic_channel_of_cpu(eth, smp_processor_id());
	struct qrnic_channel *channel = &eth->channels[index];
	struct netdev_queue *txq = qrnic_channel_txq(channel);
	int sent = 0;

	if (unlikely(flags & ~XDP_XMIT_FLAGS_MASK))
		return -EINVAL;
	if (unlikely(!netif_carrier_ok(netdev)))
		return -ENETDOWN;
	__netif_tx_lock(txq, smp_processor_id());
	if (!netif_tx_queue_stopped(txq) && channel->qpn) {
		while (sent < n && qrnic_tx_post_frame(channel, frames[sent]))
			sent++;
		qrnic_tx_ring(channel);
	}
	__netif_tx_unlock(txq);
	return sent;
}

/* Sets the XDP program of the netdev. Called under RTNL. */
int qrnic_xdp_bpf(struct net_device *netdev, struct netdev_bpf *bpf)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	struct qrnic_eth_filter filter = eth->filter;
	struct bpf_prog *old;
	int err;

	if (bpf->command != XDP_SETUP_PROG)
		return -EINVAL;
	if (bpf->prog && qrnic_rx_pages(netdev->mtu) > 1) {
		NL_SET_ERR_MSG_FMT_MOD(bpf->extack, "XDP needs an MTU of %u or less",
				       qrnic_rx_max_mtu(1));
		return -EOPNOTSUPP;
	}
	/*
	 * The program is exchanged without stopping NAPI, because receive
	 * buffers have the headroom anyway. Each frame sees the old or the new
	 * program.
	 */
	old = xchg(&eth->prog, bpf->prog);
	/*
	 * The filter is set again, because VLAN tags are stripped only without
	 * a program.
	 */
	if (eth->open && filter.vlan_strip && !old != !bpf->prog) {
		err = qrnic_eth_filter_set(eth, &filter);
		if (err) {
			xchg(&eth->prog, old);
			return err;
		}
	}
	if (old)
		bpf_prog_put(old);
	/*
	 * Updates NETIF_F_GRO_HW, because segments are joined only without a
	 * program.
	 */
	netdev_update_features(netdev);
	return 0;
}
