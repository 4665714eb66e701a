// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * port.c: the only port of the device, whose state and MTU are those of the
 * netdev. The RDMA core fills the GID table from the addresses of the netdev,
 * and calls qrnic_ib_add_gid() and qrnic_ib_del_gid() for each entry. Only the
 * default P_Key exists.
 */
#include <linux/if_vlan.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>

#include "qrnic_ib.h"
#include "verbs.h"

static_assert((int)IB_MTU_256 == QRNIC_MTU_256);
static_assert((int)IB_MTU_4096 == QRNIC_MTU_4096);

int qrnic_ib_query_port(struct ib_device *ibdev, u32 port,
			struct ib_port_attr *attr)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibdev);
	struct net_device *netdev = dev->qdev->netdev;
	struct qrnic_port cached;

	qrnic_port_cached(dev->qdev, &cached);

	if (netif_running(netdev) && netif_carrier_ok(netdev)) {
		attr->state = IB_PORT_ACTIVE;
		attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	} else if (netif_running(netdev)) {
		attr->state = IB_PORT_DOWN;
		attr->phys_state = IB_PORT_PHYS_STATE_POLLING;
	} else {
		attr->state = IB_PORT_DOWN;
		attr->phys_state = IB_PORT_PHYS_STATE_DISABLED;
	}

	attr->max_mtu = (enum ib_mtu)cached.max_path_mtu;
	attr->active_mtu = min(iboe_get_mtu(READ_ONCE(netdev->mtu)),
			       attr->max_mtu);
	attr->gid_tbl_len = cached.gid_entries;
	attr->pkey_tbl_len = cached.pkey_entries;
	attr->ip_gids = true;
	attr->max_msg_sz = dev->qdev->caps.max_msg_size;
	attr->max_vl_num = 1;

	return ib_get_eth_speed(ibdev, port, &attr->active_speed,
				&attr->active_width);
}

/*
 * Reports the protocols of the port. A device without datagrams has no QP1, and
 * so neither MADs nor a CM. The RDMA core creates a GID for each address and
 * each version of RoCE that is reported here.
 */
int qrnic_ib_get_port_immutable(struct ib_device *ibdev, u32 port,
				struct ib_port_immutable *immutable)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibdev);
	struct qrnic_port cached;

	qrnic_port_cached(dev->qdev, &cached);
	if (qrnic_ib_cap(dev, QRNIC_CAP_UD)) {
		immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
		immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	} else {
		immutable->core_cap_flags = RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP |
					    RDMA_CORE_CAP_ETH_AH;
	}
	if (qrnic_ib_cap(dev, QRNIC_CAP_ROCE_V1))
		immutable->core_cap_flags |= RDMA_CORE_CAP_PROT_ROCE;
	if (qrnic_ib_cap(dev, QRNIC_CAP_FLOW))
		immutable->core_cap_flags |= RDMA_CORE_PORT_RAW_PACKET;
	immutable->gid_tbl_len = cached.gid_entries;
	immutable->pkey_tbl_len = cached.pkey_entries;
	return 0;
}

enum rdma_link_layer qrnic_ib_get_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

int qrnic_ib_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	if (index)
		return -EINVAL;

	*pkey = QRNIC_PKEY_DEFAULT;
	return 0;
}

int qrnic_ib_add_gid(const struct ib_gid_attr *attr, void **context)
{
	struct qrnic_gid_entry entry = {};
	u16 vlan_id = VLAN_N_VID;
	int err;

	err = rdma_read_gid_l2_fields(attr, &vlan_id, entry.mac);
	if (err)
		return err;

	memcpy(entry.gid, attr->gid.raw, sizeof(entry.gid));
	entry.flags = QRNIC_GID_VALID;
	if (attr->gid_type == IB_GID_TYPE_ROCE)
		entry.flags |= QRNIC_GID_ROCE_V1;
	if (vlan_id < VLAN_N_VID) {
		entry.flags |= QRNIC_GID_VLAN;
		entry.vlan_id = cpu_to_le16(vlan_id);
	}

	return qrnic_cmd_set(to_qrnic_dev(attr->device)->qdev,
			     QRNIC_CMD_SET_GID, attr->index, &entry,
			     sizeof(entry));
}

int qrnic_ib_del_gid(const struct ib_gid_attr *attr, void **context)
{
	return qrnic_cmd_destroy(to_qrnic_dev(attr->device)->qdev,
				 QRNIC_CMD_CLEAR_GID, attr->index);
}
