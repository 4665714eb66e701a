// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * rss.c: receive side scaling: the table by which the device distributes
 * received frames over the channels, and its hash.
 *
 * eth->rss has the table as ethtool sets it. queues.c calls
 * qrnic_eth_rss_open() when it opens several channels, which creates the table
 * in the device. A change creates a new table, sets it in the filter, and
 * destroys the old one. All functions are called under RTNL.
 */
#include "ethernet/ethernet.h"

/*
 * Older kernels have no structure for the fields of the hash (ethtool.c), so it
 * is declared here.
 */
#ifndef QRNIC_HAS_RXFH_FIELDS
struct ethtool_rxfh_fields {
	u32 data;
	u32 flow_type;
};
#endif

#define QRNIC_RSS_IPV4 (QRNIC_RSS_SRC_IPV4 | QRNIC_RSS_DST_IPV4)
#define QRNIC_RSS_IPV6 (QRNIC_RSS_SRC_IPV6 | QRNIC_RSS_DST_IPV6)

static_assert(QRNIC_RSS_ENTRIES * sizeof(__le32) ==
	      sizeof_field(struct qrnic_rss_ctx, entries));

/* Returns true if the device supports RSS. */
bool qrnic_eth_can_spread(const struct qrnic_core *core)
{
	return core->dev.caps.capabilities & QRNIC_CAP_ETH_RSS;
}

void qrnic_eth_rss_spread(struct qrnic_eth *eth)
{
	unsigned int i;

	/*
	 * A table of the user stays, because the ethtool core has checked that
	 * all its channels remain.
	 */
	if (netif_is_rxfh_configured(eth->netdev))
		return;
	for (i = 0; i < QRNIC_RSS_ENTRIES; i++)
		eth->rss.channel[i] =
			ethtool_rxfh_indir_default(i, eth->shape.channels);
}

void qrnic_eth_rss_init(struct qrnic_eth *eth)
{
	/*
	 * The ports of UDP are not hashed, because the later fragments of a
	 * datagram do not contain them.
	 */
	eth->rss.hash = QRNIC_RSS_IPV4 | QRNIC_RSS_IPV6 | QRNIC_RSS_TCP;
	netdev_rss_key_fill(eth->rss.key, sizeof(eth->rss.key));
}

/* Creates a table in the device. Returns 0 or an error as qrnic_cmd_exec(). */
static int qrnic_rss_create(struct qrnic_eth *eth, const struct qrnic_eth_rss *rss,
			    u32 *table)
{
	struct qrnic_rss_ctx *ctx;
	unsigned int i;
	__le32 *entry;
	int err;

	ctx = kzalloc(sizeof(*ctx), GFP_KERNEL);
	if (!ctx)
		return -ENOMEM;
	ctx->log_size = QRNIC_RSS_MAX_LOG_SIZE;
	ctx->hash = cpu_to_le32(rss->hash);
	memcpy(ctx->key, rss->key, sizeof(ctx->key));
	entry = (__le32 *)ctx->entries;
	for (i = 0; i < QRNIC_RSS_ENTRIES; i++)
		entry[i] = cpu_to_le32(eth->channels[rss->channel[i]].qpn);
	err = qrnic_cmd_create(&eth->core->dev, QRNIC_CMD_CREATE_RSS, ctx,
			       sizeof(*ctx), table);
	kfree(ctx);
	return err;
}

static void qrnic_rss_destroy(struct qrnic_eth *eth, u32 table)
{
	struct qrnic_dev *dev = &eth->core->dev;

	/*
	 * If the command fails, the table still uses its queue pairs, so they
	 * could not be destroyed either. Therefore the device is reset, which
	 * destroys all of them.
	 */
	if (qrnic_cmd_destroy(dev, QRNIC_CMD_DESTROY_RSS, table))
		qrnic_report_fatal(dev, "RSS table not destroyed");
}

/*
 * Creates the table of open channels. If there is no free table, because
 * programs use all of them, or no RSS after a reset, all frames go to one
 * channel.
 */
int qrnic_eth_rss_open(struct qrnic_eth *eth)
{
	int err;

	if (eth->shape.channels == 1)
		return 0;
	err = qrnic_rss_create(eth, &eth->rss, &eth->rss_table);
	if (err != -ENOMEM && err != -EOPNOTSUPP)
		return err;
	netdev_warn(eth->netdev, "no RSS table (error %d): one channel receives all frames\n",
		    err);
	return 0;
}

void qrnic_eth_rss_close(struct qrnic_eth *eth)
{
	if (eth->rss_table)
		qrnic_rss_destroy(eth, eth->rss_table);
	eth->rss_table = 0;
}

/* Replaces the table without loss: each frame uses the old or the new table. */
static int qrnic_rss_replace(struct qrnic_eth *eth, const struct qrnic_eth_rss *rss)
{
	struct qrnic_eth_filter filter = eth->filter;
	u32 old = eth->rss_table;
	int err;

	err = qrnic_rss_create(eth, rss, &filter.object);
	if (err)
		return err;
	err = qrnic_eth_filter_set(eth, &filter);
	if (err) {
		qrnic_rss_destroy(eth, filter.object);
		return err;
	}
	eth->rss_table = filter.object;
	qrnic_rss_destroy(eth, old);
	return 0;
}

/* Changes the distribution, and the table in the device if there is one. */
static int qrnic_rss_change(struct qrnic_eth *eth, const struct qrnic_eth_rss *rss)
{
	int err = 0;

	if (eth->rss_table)
		err = qrnic_rss_replace(eth, rss);
	if (!err)
		eth->rss = *rss;
	return err;
}

u32 qrnic_get_rxfh_indir_size(struct net_device *netdev)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	return qrnic_eth_can_spread(eth->core) ? QRNIC_RSS_ENTRIES : 0;
}

u32 qrnic_get_rxfh_key_size(struct net_device *netdev)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	return qrnic_eth_can_spread(eth->core) ? QRNIC_RSS_KEY_SIZE : 0;
}

int qrnic_get_rxfh(struct net_device *netdev, struct ethtool_rxfh_param *rxfh)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	unsigned int i;

	rxfh->hfunc = ETH_RSS_HASH_TOP;
	if (rxfh->indir)
		for (i = 0; i < QRNIC_RSS_ENTRIES; i++)
			rxfh->indir[i] = eth->rss.channel[i];
	if (rxfh->key)
		memcpy(rxfh->key, eth->rss.key, sizeof(eth->rss.key));
	return 0;
}

/*
 * Sets the table and the key. The ethtool core has checked that the channels of
 * the table exist.
 */
int qrnic_set_rxfh(struct net_device *netdev, struct ethtool_rxfh_param *rxfh,
		   struct netlink_ext_ack *extack)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	struct qrnic_eth_rss rss = eth->rss;
	unsigned int i;

	if (!qrnic_eth_can_spread(eth->core))
		return -EOPNOTSUPP;
	if (rxfh->hfunc != ETH_RSS_HASH_NO_CHANGE &&
	    rxfh->hfunc != ETH_RSS_HASH_TOP) {
		NL_SET_ERR_MSG_MOD(extack, "the hash function is Toeplitz");
		return -EOPNOTSUPP;
	}
	if (rxfh->indir)
		for (i = 0; i < QRNIC_RSS_ENTRIES; i++)
			rss.channel[i] = rxfh->indir[i];
	if (rxfh->key)
		memcpy(rss.key, rxfh->key, sizeof(rss.key));
	return qrnic_rss_change(eth, &rss);
}

/*
 * Returns the ports that are hashed for a type of flow. The device has one
 * setting for IPv4 and IPv6.
 */
static int qrnic_rss_ports(const struct qrnic_eth *eth, u32 flow_type, u32 *ports)
{
	if (!qrnic_eth_can_spread(eth->core))
		return -EOPNOTSUPP;
	switch (flow_type) {
	case TCP_V4_FLOW:
	case TCP_V6_FLOW:
		*ports = QRNIC_RSS_TCP;
		return 0;
	case UDP_V4_FLOW:
	case UDP_V6_FLOW:
		*ports = QRNIC_RSS_UDP;
		return 0;
	case IPV4_FLOW:
	case IPV6_FLOW:
	case SCTP_V4_FLOW:
	case SCTP_V6_FLOW:
	case AH_ESP_V4_FLOW:
	case AH_ESP_V6_FLOW:
		*ports = 0;
		return 0;
	default:
		return -EINVAL;
	}
}

int qrnic_get_rxfh_fields(struct net_device *netdev,
			  struct ethtool_rxfh_fields *fields)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	u32 ports;
	int err;

	err = qrnic_rss_ports(eth, fields->flow_type, &ports);
	if (err)
		return err;
	fields->data = RXH_IP_SRC | RXH_IP_DST;
	if (eth->rss.hash & ports)
		fields->data |= RXH_L4_B_0_1 | RXH_L4_B_2_3;
	return 0;
}

int qrnic_set_rxfh_fields(struct net_device *netdev,
			  const struct ethtool_rxfh_fields *fields,
			  struct netlink_ext_ack *extack)
{
	struct qrnic_eth *eth = netdev_priv(netdev);
	struct qrnic_eth_rss rss = eth->rss;
	u32 ports;
	int err;

	err = qrnic_rss_ports(eth, fields->flow_type, &ports);
	if (err)
		return err;
	switch (fields->data) {
	case RXH_IP_SRC | RXH_IP_DST:
		rss.hash &= ~ports;
		break;
	case RXH_IP_SRC | RXH_IP_DST | RXH_L4_B_0_1 | RXH_L4_B_2_3:
		if (!ports)
			return -EINVAL;
		rss.hash |= ports;
		break;
	default:
		return -EINVAL;
	}
	return qrnic_rss_change(eth, &rss);
}

u32 qrnic_get_rx_ring_count(struct net_device *netdev)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	return eth->shape.channels;
}

int qrnic_get_rxnfc(struct net_device *netdev, struct ethtool_rxnfc *info,
		    u32 *rules)
{
	struct ethtool_rxfh_fields fields = { .flow_type = info->flow_type };
	int err;

	switch (info->cmd) {
	case ETHTOOL_GRXRINGS:
		info->data = qrnic_get_rx_ring_count(netdev);
		return 0;
	case ETHTOOL_GRXFH:
		err = qrnic_get_rxfh_fields(netdev, &fields);
		info->data = fields.data;
		return err;
	default:
		return -EOPNOTSUPP;
	}
}

int qrnic_set_rxnfc(struct net_device *netdev, struct ethtool_rxnfc *info)
{
	const struct ethtool_rxfh_fields fields = {
		.data = info->data,
		.flow_type = info->flow_type,
	};

	if (info->cmd != ETHTOOL_SRXFH)
		return -EOPNOTSUPP;
	return qrnic_set_rxfh_fields(netdev, &fields, NULL);
}
