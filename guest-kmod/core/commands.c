// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * commands.c: the commands, one function each, from typed arguments to the
 * transport in command.c.
 */
#include "core/core.h"

static_assert(QRNIC_NUM_COUNTERS * sizeof(__le64) <= QRNIC_CMD_MAILBOX);
static_assert(QRNIC_RX_FILTER_BYTES <= QRNIC_CMD_MAILBOX);

static int qrnic_cmd_create(struct qrnic_dev *dev, enum qrnic_cmd_opcode opcode,
			    const void *in, u32 in_len, u32 *number)
{
	struct qrnic_cmd cmd = {
		.opcode = opcode,
		.in = in,
		.in_len = in_len,
	};
	int err = qrnic_cmd_exec(to_qrnic_core(dev), &cmd);

	if (!err)
		*number = cmd.result;
	return err;
}

static int qrnic_cmd_set(struct qrnic_dev *dev, enum qrnic_cmd_opcode opcode,
			 u32 object, const void *in, u32 in_len)
{
	struct qrnic_cmd cmd = {
		.opcode = opcode,
		.object = object,
		.in = in,
		.in_len = in_len,
	};

	return qrnic_cmd_exec(to_qrnic_core(dev), &cmd);
}

static int qrnic_cmd_query(struct qrnic_dev *dev, enum qrnic_cmd_opcode opcode,
			   u32 object, void *out, u32 out_len)
{
	struct qrnic_cmd cmd = {
		.opcode = opcode,
		.object = object,
		.out = out,
		.out_len = out_len,
	};

	return qrnic_cmd_exec(to_qrnic_core(dev), &cmd);
}

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
EXPORT_SYMBOL_QRNIC(qrnic_cmd_query_device);

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
EXPORT_SYMBOL_QRNIC(qrnic_cmd_query_port);

int qrnic_cmd_modify_port(struct qrnic_dev *dev, u32 mtu, bool admin_up)
{
	struct qrnic_port_ctx ctx = {
		.mtu = cpu_to_le32(mtu),
		.flags = admin_up ? QRNIC_PORTF_ADMIN_UP : 0,
	};

	return qrnic_cmd_set(dev, QRNIC_CMD_MODIFY_PORT, 0, &ctx, sizeof(ctx));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_modify_port);

static int qrnic_cmd_counters(struct qrnic_dev *dev, enum qrnic_cmd_opcode opcode,
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

int qrnic_cmd_query_counters(struct qrnic_dev *dev, u64 *values)
{
	return qrnic_cmd_counters(dev, QRNIC_CMD_QUERY_COUNTERS, 0, values);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_query_counters);

int qrnic_cmd_query_counter_set(struct qrnic_dev *dev, u32 number, u64 *values)
{
	return qrnic_cmd_counters(dev, QRNIC_CMD_QUERY_COUNTER_SET, number,
				  values);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_query_counter_set);

int qrnic_cmd_alloc_counter_set(struct qrnic_dev *dev, u32 *number)
{
	return qrnic_cmd_create(dev, QRNIC_CMD_ALLOC_COUNTER_SET, NULL, 0, number);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_alloc_counter_set);

int qrnic_cmd_free_counter_set(struct qrnic_dev *dev, u32 number)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev),
				      QRNIC_CMD_FREE_COUNTER_SET, number);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_free_counter_set);

int qrnic_cmd_bind_counter_set(struct qrnic_dev *dev, u32 qpn, u32 number)
{
	struct qrnic_counter_bind bind = {
		.counter_set = cpu_to_le32(number),
	};

	return qrnic_cmd_set(dev, QRNIC_CMD_BIND_COUNTER_SET, qpn, &bind,
			     sizeof(bind));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_bind_counter_set);

int qrnic_cmd_alloc_db_page(struct qrnic_dev *dev, u32 *page)
{
	return qrnic_cmd_create(dev, QRNIC_CMD_ALLOC_DB_PAGE, NULL, 0, page);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_alloc_db_page);

int qrnic_cmd_free_db_page(struct qrnic_dev *dev, u32 page)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_FREE_DB_PAGE,
				      page);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_free_db_page);

int qrnic_cmd_alloc_pd(struct qrnic_dev *dev, u32 *pdn)
{
	return qrnic_cmd_create(dev, QRNIC_CMD_ALLOC_PD, NULL, 0, pdn);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_alloc_pd);

int qrnic_cmd_free_pd(struct qrnic_dev *dev, u32 pdn)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_FREE_PD, pdn);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_free_pd);

int qrnic_cmd_create_eq(struct qrnic_dev *dev, const struct qrnic_eq_ctx *ctx,
			u32 *eqn)
{
	return qrnic_cmd_create(dev, QRNIC_CMD_CREATE_EQ, ctx, sizeof(*ctx), eqn);
}

int qrnic_cmd_destroy_eq(struct qrnic_dev *dev, u32 eqn)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_DESTROY_EQ,
				      eqn);
}

int qrnic_cmd_create_cq(struct qrnic_dev *dev, const struct qrnic_cq_ctx *ctx,
			u32 *cqn)
{
	return qrnic_cmd_create(dev, QRNIC_CMD_CREATE_CQ, ctx, sizeof(*ctx), cqn);
}

int qrnic_cmd_destroy_cq(struct qrnic_dev *dev, u32 cqn)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_DESTROY_CQ,
				      cqn);
}

int qrnic_cmd_query_cq(struct qrnic_dev *dev, u32 cqn, struct qrnic_cq_ctx *ctx)
{
	return qrnic_cmd_query(dev, QRNIC_CMD_QUERY_CQ, cqn, ctx, sizeof(*ctx));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_query_cq);

int qrnic_cmd_resize_cq(struct qrnic_dev *dev, u32 cqn,
			const struct qrnic_cq_resize *resize)
{
	return qrnic_cmd_set(dev, QRNIC_CMD_RESIZE_CQ, cqn, resize,
			     sizeof(*resize));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_resize_cq);

int qrnic_cmd_modify_cq(struct qrnic_dev *dev, u32 cqn,
			const struct qrnic_cq_moderation *moderation)
{
	return qrnic_cmd_set(dev, QRNIC_CMD_MODIFY_CQ, cqn, moderation,
			     sizeof(*moderation));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_modify_cq);

int qrnic_cmd_create_mkey(struct qrnic_dev *dev, const struct qrnic_mkey_ctx *ctx,
			  u32 *index)
{
	return qrnic_cmd_create(dev, QRNIC_CMD_CREATE_MKEY, ctx, sizeof(*ctx),
				index);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_create_mkey);

int qrnic_cmd_destroy_mkey(struct qrnic_dev *dev, u32 index)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_DESTROY_MKEY,
				      index);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_destroy_mkey);

int qrnic_cmd_query_mkey(struct qrnic_dev *dev, u32 index,
			 struct qrnic_mkey_ctx *ctx)
{
	return qrnic_cmd_query(dev, QRNIC_CMD_QUERY_MKEY, index, ctx, sizeof(*ctx));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_query_mkey);

int qrnic_cmd_modify_mkey(struct qrnic_dev *dev, u32 index,
			  const struct qrnic_mkey_ctx *ctx)
{
	return qrnic_cmd_set(dev, QRNIC_CMD_MODIFY_MKEY, index, ctx, sizeof(*ctx));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_modify_mkey);

int qrnic_cmd_create_qp(struct qrnic_dev *dev, const struct qrnic_qp_ctx *ctx,
			u32 *qpn)
{
	return qrnic_cmd_create(dev, QRNIC_CMD_CREATE_QP, ctx, sizeof(*ctx), qpn);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_create_qp);

int qrnic_cmd_modify_qp(struct qrnic_dev *dev, u32 qpn,
			const struct qrnic_qp_attr *attr)
{
	return qrnic_cmd_set(dev, QRNIC_CMD_MODIFY_QP, qpn, attr, sizeof(*attr));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_modify_qp);

int qrnic_cmd_query_qp(struct qrnic_dev *dev, u32 qpn, struct qrnic_qp_attr *attr)
{
	return qrnic_cmd_query(dev, QRNIC_CMD_QUERY_QP, qpn, attr, sizeof(*attr));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_query_qp);

int qrnic_cmd_destroy_qp(struct qrnic_dev *dev, u32 qpn)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_DESTROY_QP,
				      qpn);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_destroy_qp);

int qrnic_cmd_attach_multicast(struct qrnic_dev *dev, u32 qpn,
			       const struct qrnic_multicast *multicast)
{
	return qrnic_cmd_set(dev, QRNIC_CMD_ATTACH_MULTICAST, qpn, multicast,
			     sizeof(*multicast));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_attach_multicast);

int qrnic_cmd_detach_multicast(struct qrnic_dev *dev, u32 qpn,
			       const struct qrnic_multicast *multicast)
{
	int err = qrnic_cmd_set(dev, QRNIC_CMD_DETACH_MULTICAST, qpn, multicast,
				sizeof(*multicast));

	/* A QP that is still attached for the RDMA core is never destroyed. */
	return err && !qrnic_healthy(dev) ? 0 : err;
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_detach_multicast);

int qrnic_cmd_create_flow(struct qrnic_dev *dev, u32 qpn,
			  const struct qrnic_flow_ctx *ctx, u32 *number)
{
	struct qrnic_cmd cmd = {
		.opcode = QRNIC_CMD_CREATE_FLOW,
		.object = qpn,
		.in = ctx,
		.in_len = sizeof(*ctx),
	};
	int err = qrnic_cmd_exec(to_qrnic_core(dev), &cmd);

	if (!err)
		*number = cmd.result;
	return err;
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_create_flow);

int qrnic_cmd_destroy_flow(struct qrnic_dev *dev, u32 number)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_DESTROY_FLOW,
				      number);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_destroy_flow);

int qrnic_cmd_create_rss(struct qrnic_dev *dev, const struct qrnic_rss_ctx *ctx,
			 u32 *number)
{
	return qrnic_cmd_create(dev, QRNIC_CMD_CREATE_RSS, ctx, sizeof(*ctx),
				number);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_create_rss);

int qrnic_cmd_destroy_rss(struct qrnic_dev *dev, u32 number)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_DESTROY_RSS,
				      number);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_destroy_rss);

int qrnic_cmd_create_srq(struct qrnic_dev *dev, const struct qrnic_srq_ctx *ctx,
			 u32 *srqn)
{
	return qrnic_cmd_create(dev, QRNIC_CMD_CREATE_SRQ, ctx, sizeof(*ctx), srqn);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_create_srq);

int qrnic_cmd_modify_srq(struct qrnic_dev *dev, u32 srqn,
			 const struct qrnic_srq_limit *limit)
{
	return qrnic_cmd_set(dev, QRNIC_CMD_MODIFY_SRQ, srqn, limit,
			     sizeof(*limit));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_modify_srq);

int qrnic_cmd_query_srq(struct qrnic_dev *dev, u32 srqn, struct qrnic_srq_ctx *ctx)
{
	return qrnic_cmd_query(dev, QRNIC_CMD_QUERY_SRQ, srqn, ctx, sizeof(*ctx));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_query_srq);

int qrnic_cmd_destroy_srq(struct qrnic_dev *dev, u32 srqn)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_DESTROY_SRQ,
				      srqn);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_destroy_srq);

int qrnic_cmd_alloc_dm(struct qrnic_dev *dev, const struct qrnic_dm_ctx *ctx,
		       u32 *number)
{
	return qrnic_cmd_create(dev, QRNIC_CMD_ALLOC_DM, ctx, sizeof(*ctx), number);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_alloc_dm);

int qrnic_cmd_free_dm(struct qrnic_dev *dev, u32 number)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_FREE_DM, number);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_free_dm);

int qrnic_cmd_query_dm(struct qrnic_dev *dev, u32 number, struct qrnic_dm_ctx *ctx)
{
	return qrnic_cmd_query(dev, QRNIC_CMD_QUERY_DM, number, ctx, sizeof(*ctx));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_query_dm);

int qrnic_cmd_alloc_xrcd(struct qrnic_dev *dev, u32 *xrcdn)
{
	return qrnic_cmd_create(dev, QRNIC_CMD_ALLOC_XRCD, NULL, 0, xrcdn);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_alloc_xrcd);

int qrnic_cmd_free_xrcd(struct qrnic_dev *dev, u32 xrcdn)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_FREE_XRCD,
				      xrcdn);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_free_xrcd);

int qrnic_cmd_set_gid(struct qrnic_dev *dev, u32 index,
		      const struct qrnic_gid_entry *entry)
{
	return qrnic_cmd_set(dev, QRNIC_CMD_SET_GID, index, entry, sizeof(*entry));
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_set_gid);

int qrnic_cmd_clear_gid(struct qrnic_dev *dev, u32 index)
{
	return qrnic_cmd_exec_destroy(to_qrnic_core(dev), QRNIC_CMD_CLEAR_GID,
				      index);
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_clear_gid);

int qrnic_cmd_set_rx_filter(struct qrnic_dev *dev,
			    const struct qrnic_rx_filter *filter)
{
	return qrnic_cmd_set(dev, QRNIC_CMD_SET_RX_FILTER, 0, filter,
			     sizeof(*filter));
}
