// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * commands.c: the commands that are about the adapter as a whole: what it is, its
 * port, its counters. Those of other objects are where these objects are.
 */
#include "core/core.h"

static_assert(QRNIC_NUM_COUNTERS * sizeof(__le64) <= QRNIC_CMD_MAILBOX);
static_assert(QRNIC_RX_FILTER_BYTES <= QRNIC_CMD_MAILBOX);

int qrnic_cmd_query_device(struct qrnic_dev *dev, struct qrnic_caps *caps)
{
	struct qrnic_device_attr attr;
	int err;

	err = qrnic_cmd_query(dev, QRNIC_CMD_QUERY_DEVICE, 0, &attr, sizeof(attr));
	if (err)
		return err;

	*caps = (struct qrnic_caps) {
		.capabilities = le64_to_cpu(attr.capabilities),
		.max_mr_size = le64_to_cpu(attr.max_mr_size),
		.max_dm_size = le64_to_cpu(attr.max_dm_size),
		.max_qp = le32_to_cpu(attr.max_qp),
		.max_cq = le32_to_cpu(attr.max_cq),
		.max_mkey = le32_to_cpu(attr.max_mkey),
		.max_pd = le32_to_cpu(attr.max_pd),
		.max_eq = le32_to_cpu(attr.max_eq),
		.max_gid = le32_to_cpu(attr.max_gid),
		.max_qp_wqebb = le32_to_cpu(attr.max_qp_wqebb),
		.max_qp_recv = le32_to_cpu(attr.max_qp_recv),
		.max_cqe = le32_to_cpu(attr.max_cqe),
		.max_eqe = le32_to_cpu(attr.max_eqe),
		.max_msg_size = le32_to_cpu(attr.max_msg_size),
		.clock_khz = le32_to_cpu(attr.clock_khz),
		.counters = le32_to_cpu(attr.counters),
		.ack_delay = le32_to_cpu(attr.ack_delay),
		.max_srq = le32_to_cpu(attr.max_srq),
		.max_srq_wr = le32_to_cpu(attr.max_srq_wr),
		.max_xrcd = le32_to_cpu(attr.max_xrcd),
		.max_multicast = le32_to_cpu(attr.max_multicast),
		.max_flow = le32_to_cpu(attr.max_flow),
		.max_rss = le32_to_cpu(attr.max_rss),
		.max_cq_count = le16_to_cpu(attr.max_cq_count),
		.max_cq_period = le16_to_cpu(attr.max_cq_period),
		.max_sge = le16_to_cpu(attr.max_sge),
		.max_inline = le16_to_cpu(attr.max_inline),
		.max_rd_atomic = le16_to_cpu(attr.max_rd_atomic),
		.doorbell_fifo = le16_to_cpu(attr.doorbell_fifo),
		.node_guid = attr.node_guid,
		.hw_version = qrnic_read(to_qrnic_core(dev), QRNIC_REG_VERSION),
	};
	return 0;
}

int qrnic_cmd_query_port(struct qrnic_dev *dev, struct qrnic_port *port)
{
	struct qrnic_port_attr attr;
	int err;

	err = qrnic_cmd_query(dev, QRNIC_CMD_QUERY_PORT, 0, &attr, sizeof(attr));
	if (err)
		return err;

	*port = (struct qrnic_port) {
		.state = attr.state,
		.active_path_mtu = attr.active_path_mtu,
		.max_path_mtu = attr.max_path_mtu,
		.mtu = le32_to_cpu(attr.mtu),
		.max_mtu = le32_to_cpu(attr.max_mtu),
		.speed_mbps = le32_to_cpu(attr.speed_mbps),
		.gid_entries = le32_to_cpu(attr.gid_entries),
		.pkey_entries = le32_to_cpu(attr.pkey_entries),
	};
	memcpy(port->mac, attr.mac, ETH_ALEN);
	return 0;
}

int qrnic_cmd_modify_port(struct qrnic_dev *dev, u32 mtu, bool admin_up)
{
	struct qrnic_port_ctx ctx = {
		.mtu = cpu_to_le32(mtu),
		.flags = admin_up ? QRNIC_PORTF_ADMIN_UP : 0,
	};

	return qrnic_cmd_set(dev, QRNIC_CMD_MODIFY_PORT, 0, &ctx, sizeof(ctx));
}

int qrnic_cmd_query_counters(struct qrnic_dev *dev, enum qrnic_cmd_opcode opcode,
			     u32 object, u64 *values)
{
	__le64 raw[QRNIC_NUM_COUNTERS];
	unsigned int i;
	int err;

	err = qrnic_cmd_query(dev, opcode, object, raw, sizeof(raw));
	if (err)
		return err;
	for (i = 0; i < QRNIC_NUM_COUNTERS; i++)
		values[i] = le64_to_cpu(raw[i]);
	return 0;
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_query_counters);
