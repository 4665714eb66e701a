// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * vf.c: configures virtual functions for "ip link set DEV vf N". The network
 * stack calls the functions below for the netdev of the physical function,
 * under RTNL. Each function reads the configuration of the virtual function,
 * changes some members and writes it back. RTNL serialises these steps.
 */
#include <linux/if_link.h>
#include <linux/if_vlan.h>

#include "ethernet/ethernet.h"

static struct qrnic_dev *qrnic_vf_dev(struct net_device *netdev)
{
	struct qrnic_eth *eth = netdev_priv(netdev);

	return &eth->core->dev;
}

/*
 * Queries a virtual function. Returns -EOPNOTSUPP if the adapter has none, or
 * -EINVAL if it has fewer.
 */
static int qrnic_vf_query(struct net_device *netdev, int vf,
			  struct qrnic_vf_attr *attr)
{
	struct qrnic_dev *dev = qrnic_vf_dev(netdev);

	if (!(dev->caps.capabilities & QRNIC_CAP_SRIOV))
		return -EOPNOTSUPP;
	if (vf < 0 || vf >= pci_sriov_get_totalvfs(dev->pdev))
		return -EINVAL;
	return qrnic_cmd_query(qrnic_vf_dev(netdev), QRNIC_CMD_QUERY_VF, vf, attr,
			       sizeof(*attr));
}

/* Reads the configuration, in the form in which qrnic_vf_write() writes it. */
static int qrnic_vf_read(struct net_device *netdev, int vf,
			 struct qrnic_vf_ctx *ctx)
{
	struct qrnic_vf_attr attr;
	int err = qrnic_vf_query(netdev, vf, &attr);

	if (err)
		return err;
	*ctx = (struct qrnic_vf_ctx) {
		.vlan = attr.vlan,
		.priority = attr.priority,
		.flags = attr.flags,
		.link = attr.link,
		.max_rate = attr.max_rate,
	};
	memcpy(ctx->mac, attr.mac, sizeof(ctx->mac));
	return 0;
}

static int qrnic_vf_write(struct net_device *netdev, int vf,
			  const struct qrnic_vf_ctx *ctx)
{
	return qrnic_cmd_set(qrnic_vf_dev(netdev), QRNIC_CMD_SET_VF, vf, ctx,
			     sizeof(*ctx));
}

/* Sets or clears a flag. */
static int qrnic_vf_set_flag(struct net_device *netdev, int vf, u8 flag, bool on)
{
	struct qrnic_vf_ctx ctx;
	int err = qrnic_vf_read(netdev, vf, &ctx);

	if (err)
		return err;
	if (on)
		ctx.flags |= flag;
	else
		ctx.flags &= ~flag;
	return qrnic_vf_write(netdev, vf, &ctx);
}

/* Sets the address; the zero address selects the default of the device. */
int qrnic_vf_set_mac(struct net_device *netdev, int vf, u8 *mac)
{
	struct qrnic_vf_ctx ctx;
	int err = qrnic_vf_read(netdev, vf, &ctx);

	if (err)
		return err;
	memcpy(ctx.mac, mac, sizeof(ctx.mac));
	err = qrnic_vf_write(netdev, vf, &ctx);
	if (!err)
		netdev_info(netdev, "vf %d: its driver uses the new address after its next reset\n",
			    vf);
	return err;
}

int qrnic_vf_set_vlan(struct net_device *netdev, int vf, u16 vlan, u8 qos,
		      __be16 protocol)
{
	struct qrnic_vf_ctx ctx;
	int err;

	if (protocol != htons(ETH_P_8021Q))
		return -EPROTONOSUPPORT;
	if (vlan >= VLAN_N_VID - 1 || qos > 7 || (qos && !vlan))
		return -EINVAL;
	err = qrnic_vf_read(netdev, vf, &ctx);
	if (err)
		return err;
	ctx.vlan = cpu_to_le16(vlan);
	ctx.priority = qos;
	return qrnic_vf_write(netdev, vf, &ctx);
}

int qrnic_vf_set_rate(struct net_device *netdev, int vf, int min, int max)
{
	struct qrnic_vf_ctx ctx;
	int err;

	/* The device guarantees no rate. */
	if (min)
		return -EOPNOTSUPP;
	err = qrnic_vf_read(netdev, vf, &ctx);
	if (err)
		return err;
	ctx.max_rate = cpu_to_le32(max);
	return qrnic_vf_write(netdev, vf, &ctx);
}

int qrnic_vf_set_spoofchk(struct net_device *netdev, int vf, bool on)
{
	return qrnic_vf_set_flag(netdev, vf, QRNIC_VFF_SPOOF_CHECK, on);
}

int qrnic_vf_set_trust(struct net_device *netdev, int vf, bool on)
{
	return qrnic_vf_set_flag(netdev, vf, QRNIC_VFF_TRUST, on);
}

int qrnic_vf_set_link_state(struct net_device *netdev, int vf, int state)
{
	struct qrnic_vf_ctx ctx;
	int err = qrnic_vf_read(netdev, vf, &ctx);

	if (err)
		return err;
	switch (state) {
	case IFLA_VF_LINK_STATE_AUTO:
		ctx.link = QRNIC_VF_LINK_AUTO;
		break;
	case IFLA_VF_LINK_STATE_ENABLE:
		ctx.link = QRNIC_VF_LINK_ENABLE;
		break;
	case IFLA_VF_LINK_STATE_DISABLE:
		ctx.link = QRNIC_VF_LINK_DISABLE;
		break;
	default:
		return -EINVAL;
	}
	return qrnic_vf_write(netdev, vf, &ctx);
}

static u32 qrnic_vf_link_state(u8 link)
{
	return link == QRNIC_VF_LINK_ENABLE ? IFLA_VF_LINK_STATE_ENABLE :
	       link == QRNIC_VF_LINK_DISABLE ? IFLA_VF_LINK_STATE_DISABLE :
					       IFLA_VF_LINK_STATE_AUTO;
}

int qrnic_vf_get_config(struct net_device *netdev, int vf,
			struct ifla_vf_info *info)
{
	struct qrnic_vf_attr attr;
	int err = qrnic_vf_query(netdev, vf, &attr);

	if (err)
		return err;
	info->vf = vf;
	memcpy(info->mac, attr.mac, sizeof(attr.mac));
	info->vlan = le16_to_cpu(attr.vlan);
	info->qos = attr.priority;
	info->vlan_proto = htons(ETH_P_8021Q);
	info->spoofchk = !!(attr.flags & QRNIC_VFF_SPOOF_CHECK);
	info->trusted = !!(attr.flags & QRNIC_VFF_TRUST);
	info->linkstate = qrnic_vf_link_state(attr.link);
	info->min_tx_rate = 0;
	info->max_tx_rate = le32_to_cpu(attr.max_rate);
	return 0;
}

int qrnic_vf_get_stats(struct net_device *netdev, int vf,
		       struct ifla_vf_stats *stats)
{
	struct qrnic_vf_attr attr;
	int err = qrnic_vf_query(netdev, vf, &attr);

	if (err)
		return err;
	stats->rx_packets = le64_to_cpu(attr.rx_frames);
	stats->rx_bytes = le64_to_cpu(attr.rx_bytes);
	stats->rx_dropped = le64_to_cpu(attr.rx_dropped);
	stats->multicast = le64_to_cpu(attr.rx_multicast);
	stats->broadcast = le64_to_cpu(attr.rx_broadcast);
	stats->tx_packets = le64_to_cpu(attr.tx_frames);
	stats->tx_bytes = le64_to_cpu(attr.tx_bytes);
	stats->tx_dropped = le64_to_cpu(attr.tx_dropped);
	return 0;
}
