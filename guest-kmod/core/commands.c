// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * commands.c: the commands for the adapter as a whole: its limits, its port,
 * its counters, and its context memory. The commands for other objects are in
 * the files of these objects.
 *
 * state.c calls qrnic_cmd_query_device(), qrnic_caps_check() and
 * qrnic_contexts_start() in this order at each start of the device. The device
 * is not trusted: each limit is reduced to a value that the driver can handle.
 */
#include "core/core.h"

static_assert(QRNIC_NUM_COUNTERS * sizeof(__le64) <= QRNIC_CMD_MAILBOX);
static_assert(QRNIC_RX_FILTER_BYTES <= QRNIC_CMD_MAILBOX);

/*
 * Upper bounds of limits that the contract does not bound. A valid device
 * reports smaller values. With values up to these bounds, no index, shift or
 * product in the driver overflows. qrnic_caps_check() checks the needs of the
 * Ethernet function.
 */
#define QRNIC_GIDS_MAX 1024u
#define QRNIC_RD_ATOMIC_MAX 128u
#define QRNIC_ACK_DELAY_MAX 31u		/* log2 of a time, 5 bits */

/*
 * Maximum number of context images that a valid device requests; this number of
 * images needs 64 MiB
 */
#define QRNIC_CONTEXT_IMAGES_MAX (QRNIC_OBJECTS_MAX + 2)

/*
 * Reduces limits, because they become array sizes and loop bounds and the
 * device is not trusted.
 */
static void qrnic_caps_bound(struct qrnic_caps *caps)
{
	u32 *const objects[] = {
		&caps->max_qp, &caps->max_cq, &caps->max_mkey, &caps->max_pd,
		&caps->max_eq, &caps->max_srq, &caps->max_flow, &caps->max_rss,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(objects); i++)
		*objects[i] = min_t(u32, *objects[i], QRNIC_OBJECTS_MAX);
	caps->max_gid = min(caps->max_gid, QRNIC_GIDS_MAX);
	caps->max_qp_wqebb = min(caps->max_qp_wqebb, QRNIC_MAX_QP_WQEBB);
	caps->max_qp_recv = min(caps->max_qp_recv, QRNIC_MAX_QP_RECV);
	caps->max_cqe = min(caps->max_cqe, QRNIC_MAX_CQE);
	caps->max_eqe = min(caps->max_eqe, QRNIC_MAX_EQE);
	caps->max_srq_wr = min(caps->max_srq_wr, QRNIC_MAX_SRQ_WR);
	caps->max_msg_size = min(caps->max_msg_size, QRNIC_MAX_MSG_SIZE);
	caps->max_mr_size = min(caps->max_mr_size, QRNIC_MAX_MR_SIZE);
	caps->max_multicast = min(caps->max_multicast, QRNIC_MAX_MULTICAST);
	caps->max_xrcd = min(caps->max_xrcd, QRNIC_MAX_XRCD);
	caps->max_sge = min_t(u32, caps->max_sge, QRNIC_MAX_SGE);
	caps->max_inline = min_t(u32, caps->max_inline, QRNIC_MAX_INLINE);
	caps->max_rd_atomic = min_t(u32, caps->max_rd_atomic, QRNIC_RD_ATOMIC_MAX);
	caps->ack_delay = min(caps->ack_delay, QRNIC_ACK_DELAY_MAX);
	/*
	 * The clock is disabled if its frequency is 0, because processes divide
	 * by the frequency.
	 */
	if (!caps->clock_khz)
		caps->capabilities &= ~(u64)QRNIC_CAP_TIMESTAMP;
}

/*
 * Queries limits and capabilities. Returns 0 or an error as qrnic_cmd_exec().
 */
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
	qrnic_caps_bound(caps);
	return 0;
}

/*
 * Returns 0 if the limits suffice for the Ethernet function, otherwise
 * -EOPNOTSUPP. Disables capabilities that cannot be used.
 */
int qrnic_caps_check(struct qrnic_core *core)
{
	struct qrnic_caps *caps = &core->dev.caps;
	struct device *device = &core->dev.pdev->dev;

	if (caps->max_cq < 2 || !caps->max_qp || !caps->max_pd ||
	    !caps->max_mkey || !caps->max_sge || caps->max_eqe < 16 ||
	    caps->max_cqe < 16 || caps->max_qp_wqebb < 16 ||
	    caps->max_qp_recv < 16) {
		dev_err(device,
			"limits too low for the Ethernet function (max_cq %u, max_cqe %u, max_qp_wqebb %u, max_qp_recv %u)\n",
			caps->max_cq, caps->max_cqe, caps->max_qp_wqebb,
			caps->max_qp_recv);
		return -EOPNOTSUPP;
	}
	/*
	 * If its BAR has no address space, only the device memory is disabled,
	 * because the other functions of the adapter do not need the BAR.
	 */
	if (caps->capabilities & QRNIC_CAP_DEVICE_MEMORY &&
	    core->dev.dm_bytes < caps->max_dm_size) {
		dev_warn(device, "no device memory, because its BAR has no address space\n");
		caps->capabilities &= ~(u64)QRNIC_CAP_DEVICE_MEMORY;
		caps->max_dm_size = 0;
	}
	/*
	 * If the device has another number of counters than the driver knows,
	 * the order of its counters differs, too. So the driver shows no
	 * counters, because the values would be wrong.
	 */
	if (!qrnic_counters_known(&core->dev)) {
		dev_warn_once(device, "no statistics: %u counters, the driver supports %u\n",
			      caps->counters, QRNIC_NUM_COUNTERS);
		caps->capabilities &= ~(u64)QRNIC_CAP_COUNTER_SETS;
	}
	return 0;
}

/* Queries the port. Returns 0 or an error as qrnic_cmd_exec(). */
int qrnic_cmd_query_port(struct qrnic_dev *dev, struct qrnic_port *port)
{
	struct qrnic_port_attr attr;
	int err;

	err = qrnic_cmd_query(dev, QRNIC_CMD_QUERY_PORT, 0, &attr, sizeof(attr));
	if (err)
		return err;

	*port = (struct qrnic_port) {
		.state = attr.state,
		.max_path_mtu = clamp_t(u8, attr.max_path_mtu, QRNIC_MTU_256,
					QRNIC_MTU_4096),
		.max_mtu = clamp(le32_to_cpu(attr.max_mtu), QRNIC_MIN_MTU,
				 QRNIC_MAX_MTU),
		.speed_mbps = le32_to_cpu(attr.speed_mbps),
		.gid_entries = min(le32_to_cpu(attr.gid_entries), QRNIC_GIDS_MAX),
		/*
		 * Limited to 1, because the driver supports the default P_Key
		 * only.
		 */
		.pkey_entries = min(le32_to_cpu(attr.pkey_entries), 1u),
	};
	memcpy(port->mac, attr.mac, ETH_ALEN);
	return 0;
}

/*
 * Sets the MTU and the administrative state of the port. Returns 0 or an error
 * as qrnic_cmd_exec().
 */
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
	unsigned int i;
	int err;

	if (!qrnic_counters_known(dev))
		return -EOPNOTSUPP;
	err = qrnic_cmd_query(dev, opcode, object, values,
			      QRNIC_NUM_COUNTERS * sizeof(*values));
	if (err)
		return err;
	for (i = 0; i < QRNIC_NUM_COUNTERS; i++)
		values[i] = le64_to_cpu((__force __le64)values[i]);
	return 0;
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_query_counters);

/*
 * Returns the size of the context memory in bytes, or 0. The device is not
 * trusted: it gets no memory if it requests more than the contract allows.
 * Without context memory it supports only as many connections as its cache has
 * entries.
 */
static size_t qrnic_contexts_bytes(struct qrnic_core *core)
{
	struct qrnic_context_attr attr;
	u32 images;

	if (qrnic_cmd_query(&core->dev, QRNIC_CMD_QUERY_CONTEXTS, 0, &attr,
			    sizeof(attr)))
		return 0;
	images = le32_to_cpu(attr.images);
	if (le32_to_cpu(attr.image_size) != QRNIC_CONTEXT_IMAGE_SIZE || !images ||
	    images > QRNIC_CONTEXT_IMAGES_MAX)
		return 0;
	return (size_t)images * QRNIC_CONTEXT_IMAGE_SIZE;
}

/* Allocates the context memory and passes it to the device. */
static int qrnic_contexts_set(struct qrnic_core *core, size_t bytes)
{
	struct qrnic_context_memory memory = { .length = cpu_to_le64(bytes) };
	int err;

	err = qrnic_ring_alloc(&core->dev, &core->contexts, bytes);
	if (err)
		return err;
	memory.memory = core->contexts.hw;
	err = qrnic_cmd_set(&core->dev, QRNIC_CMD_SET_CONTEXTS, 0, &memory,
			    sizeof(memory));
	/*
	 * After a timeout the device may use the memory, so it is freed only
	 * after a reset.
	 */
	if (err && err != -ETIMEDOUT)
		qrnic_contexts_stop(core);
	return err;
}

/*
 * Gives the device memory for the images of contexts, if it has a context cache
 * (manual, Context cache). A failure is only logged, because the device works
 * without the memory.
 */
void qrnic_contexts_start(struct qrnic_core *core)
{
	size_t bytes;
	int err = -EPROTO;

	if (!(core->dev.caps.capabilities & QRNIC_CAP_CONTEXT_CACHE))
		return;
	bytes = qrnic_contexts_bytes(core);
	if (bytes)
		err = qrnic_contexts_set(core, bytes);
	if (err)
		dev_warn(&core->dev.pdev->dev,
			 "no context memory (error %d): fewer connections\n", err);
}

/*
 * Frees the context memory. Called after the reset, because the device uses the
 * memory until then.
 */
void qrnic_contexts_stop(struct qrnic_core *core)
{
	qrnic_ring_free(&core->dev, &core->contexts);
}
