// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * filter.c: the receive filter of the device: which frames the netdev receives,
 * and in which queue pair or RSS table.
 *
 * queues.c, rss.c, xdp.c and netdev.c set the filter under RTNL. A change of
 * the addresses of the netdev queues filter_work, because commands sleep.
 * filter_lock keeps eth->filter and its copy in the device equal.
 */
#include "ethernet/ethernet.h"

/* Maximum number of addresses in the filter */
#define QRNIC_FILTER_ADDRESSES 64
#define QRNIC_FILTER_BYTES sizeof_field(struct qrnic_rx_filter, addresses)

static_assert(QRNIC_FILTER_ADDRESSES * ETH_ALEN <= QRNIC_FILTER_BYTES);

/*
 * Writes the flags and addresses of the netdev. If the addresses do not fit,
 * the filter accepts all addresses (promiscuous) or all multicast addresses.
 */
static void qrnic_filter_fill(struct net_device *netdev,
			      struct qrnic_rx_filter *filter)
{
	struct netdev_hw_addr *address;
	u8 *next = filter->addresses;

	netif_addr_lock_bh(netdev);
	if (netdev->flags & IFF_PROMISC)
		filter->flags |= QRNIC_RXF_PROMISC;
	if (netdev->flags & IFF_ALLMULTI)
		filter->flags |= QRNIC_RXF_ALLMULTI;

	memcpy(next, netdev->dev_addr, ETH_ALEN);
	next += ETH_ALEN;
	filter->unicast_count = 1;
	if (netdev_uc_count(netdev) >= QRNIC_FILTER_ADDRESSES) {
		filter->flags |= QRNIC_RXF_PROMISC;
	} else {
		netdev_for_each_uc_addr(address, netdev) {
			memcpy(next, address->addr, ETH_ALEN);
			next += ETH_ALEN;
			filter->unicast_count++;
		}
	}
	if (netdev_mc_count(netdev) >
	    QRNIC_FILTER_ADDRESSES - filter->unicast_count) {
		filter->flags |= QRNIC_RXF_ALLMULTI;
	} else {
		netdev_for_each_mc_addr(address, netdev) {
			memcpy(next, address->addr, ETH_ALEN);
			next += ETH_ALEN;
			filter->multicast_count++;
		}
	}
	netif_addr_unlock_bh(netdev);
}

/* Sets the filter of the device from eth->filter. Called under filter_lock. */
static int qrnic_filter_apply(struct qrnic_eth *eth)
{
	struct qrnic_rx_filter *filter;
	int err;

	filter = kzalloc(sizeof(*filter), GFP_KERNEL);
	if (!filter)
		return -ENOMEM;
	filter->qpn = cpu_to_le32(eth->filter.object);
	if (eth->filter.object) {
		filter->flags = QRNIC_RXF_BROADCAST;
		if (eth->filter.rss)
			filter->flags |= QRNIC_RXF_RSS;
		/*
		 * Tags are not stripped with an XDP program, because the
		 * program sees and forwards the original frame.
		 */
		if (eth->filter.vlan_strip && !READ_ONCE(eth->prog))
			filter->flags |= QRNIC_RXF_VLAN_STRIP;
		if (eth->filter.coalesce)
			filter->flags |= QRNIC_RXF_COALESCE;
		qrnic_filter_fill(eth->netdev, filter);
	}
	err = qrnic_cmd_set(&eth->core->dev, QRNIC_CMD_SET_RX_FILTER, 0, filter,
			    sizeof(*filter));
	kfree(filter);
	return err;
}

/* Applies a change of the addresses, unless no frames are received. */
static void qrnic_filter_work(struct work_struct *work)
{
	struct qrnic_eth *eth = container_of(work, struct qrnic_eth, filter_work);

	mutex_lock(&eth->filter_lock);
	if (eth->filter.object && qrnic_filter_apply(eth))
		netdev_err(eth->netdev, "receive filter not set\n");
	mutex_unlock(&eth->filter_lock);
}

int qrnic_eth_filter_set(struct qrnic_eth *eth,
			 const struct qrnic_eth_filter *filter)
{
	struct qrnic_eth_filter old;
	int err;

	mutex_lock(&eth->filter_lock);
	old = eth->filter;
	eth->filter = *filter;
	err = qrnic_filter_apply(eth);
	/*
	 * The former filter is restored, because after the error the caller
	 * destroys the object that the new filter names.
	 */
	if (err && filter->object)
		eth->filter = old;
	mutex_unlock(&eth->filter_lock);
	return err;
}

void qrnic_eth_filter_init(struct qrnic_eth *eth)
{
	mutex_init(&eth->filter_lock);
	INIT_WORK(&eth->filter_work, qrnic_filter_work);
}
