// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * ethtool.c: ethtool operations: identity, link, rings, channels, moderation.
 * The operations for RSS are in rss.c, and those for statistics in
 * statistics.c. The stack calls all of them under RTNL.
 */
#include "ethernet/ethernet.h"

/*
 * Since 6.17, and 6.12.117, separate operations set the fields of the RSS hash;
 * before, get_rxnfc and set_rxnfc did. Kbuild searches the kernel headers for
 * the operations, because stable kernels receive them later.
 */
#ifdef QRNIC_HAS_RXFH_FIELDS
#define QRNIC_OP_GET_RXFH_FIELDS(function) .get_rxfh_fields = (function),
#define QRNIC_OP_SET_RXFH_FIELDS(function) .set_rxfh_fields = (function),
#else
#define QRNIC_OP_GET_RXFH_FIELDS(...)
#define QRNIC_OP_SET_RXFH_FIELDS(...)
#endif

/*
 * Since 7.0 a separate operation returns the number of rings; before, get_rxnfc
 * did.
 */
#ifdef QRNIC_HAS_RX_RING_COUNT
#define QRNIC_OP_GET_RX_RING_COUNT(function) .get_rx_ring_count = (function),
#else
#define QRNIC_OP_GET_RX_RING_COUNT(...)
#endif

static void qrnic_get_drvinfo(struct net_device *netdev,
			      struct ethtool_drvinfo *info)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	strscpy(info->driver, KBUILD_MODNAME, sizeof(info->driver));
	strscpy(info->bus_info, pci_name(eth->core->dev.pdev),
		sizeof(info->bus_info));
}

static int qrnic_get_link_ksettings(struct net_device *netdev,
				    struct ethtool_link_ksettings *settings)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	struct qrnic_port port;

	qrnic_port_cached(&eth->core->dev, &port);
	ethtool_link_ksettings_zero_link_mode(settings, supported);
	ethtool_link_ksettings_zero_link_mode(settings, advertising);
	settings->base.autoneg = AUTONEG_DISABLE;
	settings->base.port = PORT_OTHER;
	if (netif_carrier_ok(netdev)) {
		settings->base.speed = port.speed_mbps;
		settings->base.duplex = DUPLEX_FULL;
	} else {
		settings->base.speed = SPEED_UNKNOWN;
		settings->base.duplex = DUPLEX_UNKNOWN;
	}
	return 0;
}

/*
 * Returns the maximum size of a ring: a power of two within the limits of the
 * device.
 */
static u32 qrnic_ring_max(struct qrnic_eth *eth, u32 limit)
{
	limit = min3(limit, eth->core->dev.caps.max_cqe, QRNIC_QUEUE_MAX);
	return rounddown_pow_of_two(limit);
}

/*
 * Returns the sizes of the rings. The transmit ring is counted in basic blocks;
 * a frame of up to 2 buffers uses one.
 */
static void qrnic_get_ringparam(struct net_device *netdev,
				struct ethtool_ringparam *ring,
				struct kernel_ethtool_ringparam *kernel_ring,
				struct netlink_ext_ack *extack)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	ring->rx_max_pending = qrnic_ring_max(eth, eth->core->dev.caps.max_qp_recv);
	ring->tx_max_pending = qrnic_ring_max(eth, eth->core->dev.caps.max_qp_wqebb);
	ring->rx_pending = eth->shape.rx_wqes;
	ring->tx_pending = eth->shape.tx_blocks;
}

static int qrnic_set_ringparam(struct net_device *netdev,
			       struct ethtool_ringparam *ring,
			       struct kernel_ethtool_ringparam *kernel_ring,
			       struct netlink_ext_ack *extack)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	struct qrnic_eth_shape shape = eth->shape;

	if (ring->rx_mini_pending || ring->rx_jumbo_pending)
		return -EINVAL;
	if (ring->rx_pending < QRNIC_QUEUE_MIN ||
	    ring->tx_pending < QRNIC_QUEUE_MIN) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "rings have at least %u entries",
				       QRNIC_QUEUE_MIN);
		return -EINVAL;
	}

	shape.rx_wqes = rounddown_pow_of_two(ring->rx_pending);
	shape.tx_blocks = rounddown_pow_of_two(ring->tx_pending);
	return qrnic_eth_reshape(eth, &shape);
}

static void qrnic_get_channels(struct net_device *netdev,
			       struct ethtool_channels *channels)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	channels->max_combined = eth->max_channels;
	channels->combined_count = eth->shape.channels;
}

/*
 * Sets the number of channels. The ethtool core has checked the number, and
 * that the table of ethtool -X uses only remaining channels.
 */
static int qrnic_set_channels(struct net_device *netdev,
			      struct ethtool_channels *channels)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	struct qrnic_eth_shape shape = eth->shape;

	shape.channels = channels->combined_count;
	return qrnic_eth_reshape(eth, &shape);
}

static int qrnic_get_coalesce(struct net_device *netdev,
			      struct ethtool_coalesce *coalesce,
			      struct kernel_ethtool_coalesce *kernel_coalesce,
			      struct netlink_ext_ack *extack)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	if (!qrnic_eth_can_moderate(eth))
		return -EOPNOTSUPP;
	coalesce->use_adaptive_rx_coalesce = eth->rx_moderation.adaptive;
	coalesce->rx_coalesce_usecs = eth->rx_moderation.usecs;
	coalesce->rx_max_coalesced_frames = eth->rx_moderation.frames;
	coalesce->use_adaptive_tx_coalesce = eth->tx_moderation.adaptive;
	coalesce->tx_coalesce_usecs = eth->tx_moderation.usecs;
	coalesce->tx_max_coalesced_frames = eth->tx_moderation.frames;
	return 0;
}

/* Returns an error for moderation that the device does not support. */
static int qrnic_moderation_check(const struct qrnic_caps *caps,
				  u32 usecs, u32 frames,
				  struct netlink_ext_ack *extack)
{
	if (usecs > caps->max_cq_period || frames > caps->max_cq_count) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "at most %u usecs and %u frames",
				       caps->max_cq_period, caps->max_cq_count);
		return -EINVAL;
	}
	if (!usecs && frames > 1) {
		NL_SET_ERR_MSG_MOD(extack, "a limit of more than 1 frame requires usecs");
		return -EINVAL;
	}
	return 0;
}

/* Applies the moderation to all open channels. */
static int qrnic_moderate_channels(struct qrnic_eth *eth)
{
	struct qrnic_channel *channel = eth->channels;
	unsigned int i;
	int err = 0;

	for (i = 0; i < eth->shape.channels && !err; i++, channel++) {
		err = qrnic_eth_moderation_set(&channel->rx.cq,
					       &eth->rx_moderation);
		if (!err)
			err = qrnic_eth_moderation_set(&channel->tx.cq,
						       &eth->tx_moderation);
	}
	return err;
}

static int qrnic_set_coalesce(struct net_device *netdev,
			      struct ethtool_coalesce *coalesce,
			      struct kernel_ethtool_coalesce *kernel_coalesce,
			      struct netlink_ext_ack *extack)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	const struct qrnic_eth_moderation rx = eth->rx_moderation;
	const struct qrnic_eth_moderation tx = eth->tx_moderation;
	const struct qrnic_caps *caps = &eth->core->dev.caps;
	int err;

	if (!qrnic_eth_can_moderate(eth))
		return -EOPNOTSUPP;
	err = qrnic_moderation_check(caps, coalesce->rx_coalesce_usecs,
				     coalesce->rx_max_coalesced_frames, extack);
	if (!err)
		err = qrnic_moderation_check(caps, coalesce->tx_coalesce_usecs,
					     coalesce->tx_max_coalesced_frames,
					     extack);
	if (err)
		return err;
	eth->rx_moderation = (struct qrnic_eth_moderation) {
		.adaptive = coalesce->use_adaptive_rx_coalesce,
		.usecs = coalesce->rx_coalesce_usecs,
		.frames = coalesce->rx_max_coalesced_frames,
	};
	eth->tx_moderation = (struct qrnic_eth_moderation) {
		.adaptive = coalesce->use_adaptive_tx_coalesce,
		.usecs = coalesce->tx_coalesce_usecs,
		.frames = coalesce->tx_max_coalesced_frames,
	};
	if (!eth->open)
		return 0;
	err = qrnic_moderate_channels(eth);
	if (err) {
		/*
		 * Some CQs may have the new values already, so the old ones are
		 * set again.
		 */
		eth->rx_moderation = rx;
		eth->tx_moderation = tx;
		qrnic_moderate_channels(eth);
	}
	return err;
}

const struct ethtool_ops qrnic_ethtool_ops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_USECS |
				     ETHTOOL_COALESCE_MAX_FRAMES |
				     ETHTOOL_COALESCE_USE_ADAPTIVE,
	.get_drvinfo = qrnic_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = qrnic_get_link_ksettings,
	.get_ringparam = qrnic_get_ringparam,
	.set_ringparam = qrnic_set_ringparam,
	.get_coalesce = qrnic_get_coalesce,
	.set_coalesce = qrnic_set_coalesce,
	.get_sset_count = qrnic_get_sset_count,
	.get_strings = qrnic_get_strings,
	.get_ethtool_stats = qrnic_get_ethtool_stats,
	.get_ts_info = ethtool_op_get_ts_info,
	.get_channels = qrnic_get_channels,
	.set_channels = qrnic_set_channels,
	.get_rxfh_indir_size = qrnic_get_rxfh_indir_size,
	.get_rxfh_key_size = qrnic_get_rxfh_key_size,
	.get_rxfh = qrnic_get_rxfh,
	.set_rxfh = qrnic_set_rxfh,
	.get_rxnfc = qrnic_get_rxnfc,
	.set_rxnfc = qrnic_set_rxnfc,
	QRNIC_OP_GET_RXFH_FIELDS(qrnic_get_rxfh_fields)
	QRNIC_OP_SET_RXFH_FIELDS(qrnic_set_rxfh_fields)
	QRNIC_OP_GET_RX_RING_COUNT(qrnic_get_rx_ring_count)
};
