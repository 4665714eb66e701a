// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * ethtool.c: ethtool operations: identity, link, rings, statistics.
 */
#include <linux/ethtool.h>

#include "ethernet/ethernet.h"

static void qrnic_get_drvinfo(struct net_device *netdev,
			      struct ethtool_drvinfo *info)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	u32 version = eth->core->dev.caps.hw_version;

	strscpy(info->driver, KBUILD_MODNAME, sizeof(info->driver));
	strscpy(info->bus_info, pci_name(eth->core->dev.pdev),
		sizeof(info->bus_info));
	snprintf(info->fw_version, sizeof(info->fw_version), "%u.%u",
		 FIELD_GET(QRNIC_REG_VERSION_MAJOR_MASK, version),
		 FIELD_GET(QRNIC_REG_VERSION_MINOR_MASK, version));
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

static u32 qrnic_ring_max(struct qrnic_eth *eth, u32 limit)
{
	limit = min3(limit, eth->core->dev.caps.max_cqe, QRNIC_QUEUE_MAX);
	return rounddown_pow_of_two(limit);
}

/* The transmit ring is counted in basic blocks: 1 for up to 2 buffers. */
static void qrnic_get_ringparam(struct net_device *netdev,
				struct ethtool_ringparam *ring,
				struct kernel_ethtool_ringparam *kernel_ring,
				struct netlink_ext_ack *extack)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	ring->rx_max_pending = qrnic_ring_max(eth, eth->core->dev.caps.max_qp_recv);
	ring->tx_max_pending = qrnic_ring_max(eth, eth->core->dev.caps.max_qp_wqebb);
	ring->rx_pending = eth->rx_wqes;
	ring->tx_pending = eth->tx_blocks;
}

static int qrnic_set_ringparam(struct net_device *netdev,
			       struct ethtool_ringparam *ring,
			       struct kernel_ethtool_ringparam *kernel_ring,
			       struct netlink_ext_ack *extack)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	u32 old_rx = eth->rx_wqes, old_tx = eth->tx_blocks;
	int err;

	if (ring->rx_mini_pending || ring->rx_jumbo_pending)
		return -EINVAL;
	if (ring->rx_pending < QRNIC_QUEUE_MIN ||
	    ring->tx_pending < QRNIC_QUEUE_MIN) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "rings have at least %u entries",
				       QRNIC_QUEUE_MIN);
		return -EINVAL;
	}

	eth->rx_wqes = rounddown_pow_of_two(ring->rx_pending);
	eth->tx_blocks = rounddown_pow_of_two(ring->tx_pending);
	if (eth->rx_wqes == old_rx && eth->tx_blocks == old_tx)
		return 0;
	err = qrnic_eth_reopen(eth);
	if (err) {
		eth->rx_wqes = old_rx;
		eth->tx_blocks = old_tx;
		if (!qrnic_eth_queues_open(eth)) {
			netif_wake_queue(netdev);
			qrnic_eth_set_up(eth, true);
		}
	}
	return err;
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
		NL_SET_ERR_MSG_MOD(extack, "frames wait for ever without usecs");
		return -EINVAL;
	}
	return 0;
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
	err = qrnic_eth_moderation_set(&eth->rx.cq, &eth->rx_moderation);
	if (!err)
		err = qrnic_eth_moderation_set(&eth->tx.cq, &eth->tx_moderation);
	if (err) {
		eth->rx_moderation = rx;
		eth->tx_moderation = tx;
	}
	return err;
}

/* First the driver's own, then every counter of the device */
static const char qrnic_stat_names[][ETH_GSTRING_LEN] = {
	"late_command_events",
	"queue_resets",
	"tx_blocks_in_use",
	"rx_buffers_posted",
	"rx_xdp_drop",
	"rx_xdp_tx",
	"rx_xdp_redirect",
#define QRNIC_COUNTER_STRING(name, ...) { #name },
	QRNIC_COUNTER_LIST(QRNIC_COUNTER_STRING)
#undef QRNIC_COUNTER_STRING
};

#define QRNIC_OWN_STATS (ARRAY_SIZE(qrnic_stat_names) - QRNIC_NUM_COUNTERS)

static int qrnic_get_sset_count(struct net_device *netdev, int set)
{
	return set == ETH_SS_STATS ? ARRAY_SIZE(qrnic_stat_names) : -EOPNOTSUPP;
}

static void qrnic_get_strings(struct net_device *netdev, u32 set, u8 *data)
{
	if (set == ETH_SS_STATS)
		memcpy(data, qrnic_stat_names, sizeof(qrnic_stat_names));
}

static void qrnic_get_ethtool_stats(struct net_device *netdev,
				    struct ethtool_stats *stats, u64 *data)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	data[0] = atomic_read(&eth->core->late_command_events);
	data[1] = eth->resets;
	data[2] = READ_ONCE(eth->tx.producer) - READ_ONCE(eth->tx.clean);
	data[3] = READ_ONCE(eth->rx.producer) - READ_ONCE(eth->rx.consumer);
	data[4] = READ_ONCE(eth->rx.xdp_drop);
	data[5] = READ_ONCE(eth->rx.xdp_tx);
	data[6] = READ_ONCE(eth->rx.xdp_redirect);
	if (qrnic_cmd_query_counters(&eth->core->dev, QRNIC_CMD_QUERY_COUNTERS,
				     0, data + QRNIC_OWN_STATS))
		memset(data + QRNIC_OWN_STATS, 0,
		       QRNIC_NUM_COUNTERS * sizeof(*data));
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
};
