// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * dcb.c: data centre bridging for dcb(8): the priorities of the device, and the
 * map from DSCP to priority, which connections and address handles use.
 *
 * netdev.c calls qrnic_dcb_init() before it registers the netdev. The stack
 * calls the operations under RTNL, which protects the map; readers use
 * READ_ONCE().
 */
#include <net/dcbnl.h>

#include "ethernet/ethernet.h"

/* Priority n is level n of the device, and all of these levels are weighted. */
static_assert(IEEE_8021QAZ_MAX_TCS <= QRNIC_PRIORITY_STRICT);

static_assert(sizeof_field(struct dcb_ieee_app_dscp_map, map) ==
	      sizeof_field(struct qrnic_dev, priority_of_dscp));

/*
 * Share of each level in percent. Level n has the weight 2^n; the sum of all
 * weights is 255.
 */
static const u8 qrnic_dcb_share[IEEE_8021QAZ_MAX_TCS] = {
	1, 1, 2, 3, 6, 12, 25, 50,
};

static int qrnic_dcb_getets(struct net_device *netdev, struct ieee_ets *ets)
{
	unsigned int i;

	ets->ets_cap = IEEE_8021QAZ_MAX_TCS;
	for (i = 0; i < IEEE_8021QAZ_MAX_TCS; i++) {
		ets->prio_tc[i] = i;
		ets->tc_tsa[i] = IEEE_8021QAZ_TSA_ETS;
		ets->tc_tx_bw[i] = qrnic_dcb_share[i];
	}
	return 0;
}

/*
 * Sets the map. If a DSCP has entries for several priorities, the highest one
 * is used.
 */
static void qrnic_dcb_map_set(struct qrnic_eth *eth,
			      const struct dcb_ieee_app_dscp_map *entries)
{
	u8 *priority = eth->core->dev.priority_of_dscp;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(entries->map); i++)
		WRITE_ONCE(priority[i],
			   entries->map[i] ? fls(entries->map[i]) - 1 : 0);
}

/* Sets the map from the entries that the kernel has for the netdev. */
static void qrnic_dcb_map_update(struct qrnic_eth *eth)
{
	struct dcb_ieee_app_dscp_map entries;

	dcb_ieee_getapp_dscp_prio_mask_map(eth->netdev, &entries);
	qrnic_dcb_map_set(eth, &entries);
}

static int qrnic_dcb_setapp(struct net_device *netdev, struct dcb_app *app)
{
	int err;

	if (app->selector != IEEE_8021QAZ_APP_SEL_DSCP)
		return -EOPNOTSUPP;
	if (app->protocol >= QRNIC_DSCPS || app->priority >= IEEE_8021QAZ_MAX_TCS)
		return -EINVAL;
	err = dcb_ieee_setapp(netdev, app);
	if (!err)
		qrnic_dcb_map_update(netdev_priv(netdev));
	return err;
}

static int qrnic_dcb_delapp(struct net_device *netdev, struct dcb_app *app)
{
	int err = dcb_ieee_delapp(netdev, app);

	if (!err)
		qrnic_dcb_map_update(netdev_priv(netdev));
	return err;
}

/*
 * DCBX may run in a program of the host only, because the device has no
 * firmware that does.
 */
static u8 qrnic_dcb_getdcbx(struct net_device *netdev)
{
	return DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE;
}

static int qrnic_dcb_getapptrust(struct net_device *netdev, u8 *selectors, int *count)
{
	selectors[0] = IEEE_8021QAZ_APP_SEL_DSCP;
	*count = 1;
	return 0;
}

/*
 * This operation is needed because the DCB core reports success if the
 * operation is missing.
 */
static int qrnic_dcb_setets(struct net_device *netdev, struct ieee_ets *ets)
{
	return -EOPNOTSUPP;
}

static const struct dcbnl_rtnl_ops qrnic_dcb_ops = {
	.ieee_getets = qrnic_dcb_getets,
	.ieee_setets = qrnic_dcb_setets,
	.ieee_setapp = qrnic_dcb_setapp,
	.ieee_delapp = qrnic_dcb_delapp,
	.getdcbx = qrnic_dcb_getdcbx,
	.dcbnl_getapptrust = qrnic_dcb_getapptrust,
};

/*
 * Clears the map when the netdev moves to another namespace, because the kernel
 * deletes its entries then.
 */
static int qrnic_dcb_netdev_event(struct notifier_block *notifier,
				  unsigned long event, void *info)
{
	static const struct dcb_ieee_app_dscp_map none;
	struct qrnic_eth *eth = container_of(notifier, struct qrnic_eth,
					     dcb_notifier);

	if (event == NETDEV_UNREGISTER &&
	    netdev_notifier_info_to_dev(info) == eth->netdev)
		qrnic_dcb_map_set(eth, &none);
	return NOTIFY_DONE;
}

int qrnic_dcb_init(struct qrnic_eth *eth)
{
	if (!(eth->core->dev.caps.capabilities & QRNIC_CAP_PRIORITY))
		return 0;
	eth->netdev->dcbnl_ops = &qrnic_dcb_ops;
	eth->dcb_notifier.notifier_call = qrnic_dcb_netdev_event;
	return register_netdevice_notifier(&eth->dcb_notifier);
}

void qrnic_dcb_exit(struct qrnic_eth *eth)
{
	if (eth->netdev->dcbnl_ops)
		unregister_netdevice_notifier(&eth->dcb_notifier);
}
