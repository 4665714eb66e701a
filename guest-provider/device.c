// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * device.c: the adapter: how it is recognised, attributes of adapter and port,
 * its clock, and doorbells. libibverbs calls the queries through the operations
 * of qrnic.c. Files that post WQEs or request events call
 * qrnic_ring_doorbell(). No function takes a lock.
 */
#include <errno.h>
#include <stdio.h>
#include <strings.h>

#include <ccan/array_size.h>
#include <infiniband/cmd_ioctl.h>
#include <util/mmio.h>

#include "commands.h"
#include "qrnic.h"

void qrnic_ring_doorbell(const struct qrnic_db *db, uint32_t offset,
			 uint32_t number, uint32_t index)
{
	uint64_t queue = FIELD_PREP(QRNIC_DOORBELL_NUMBER_MASK, number);

	/*
	 * A single 64-bit write is necessary, because the device must receive
	 * number and index together. The number is in the low half, as in
	 * memory.
	 */
	mmio_write64(db->page + offset, queue | (uint64_t)index << 32);
}

/* Returns the types of the adapter that have a send queue, as a mask. */
static uint32_t paced_types(const struct qrnic_context *ctx)
{
	uint32_t types = 1u << IBV_QPT_RC;

	if (ctx->capabilities & QRNIC_CAP_UC)
		types |= 1u << IBV_QPT_UC;
	if (ctx->capabilities & QRNIC_CAP_UD)
		types |= 1u << IBV_QPT_UD;
	if (ctx->capabilities & QRNIC_CAP_FLOW)
		types |= 1u << IBV_QPT_RAW_PACKET;
	if (ctx->capabilities & QRNIC_CAP_XRC)
		types |= 1u << IBV_QPT_XRC_SEND;
	return types;
}

int qrnic_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr,
			  size_t attr_size)
{
	struct qrnic_context *ctx = to_qrnic_context(context);
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	uint64_t fw;
	int err;

	err = ibv_cmd_query_device_any(context, input, attr, attr_size, &resp,
				       &resp_size);
	if (err)
		return err;

	fw = resp.base.fw_ver;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver),
		 "%u.%u", (unsigned int)(fw >> 32 & 0xffff),
		 (unsigned int)(fw & 0xffff));

	/*
	 * These members come from the context, because a kernel may leave them
	 * 0
	 */
	if (ctx->capabilities & QRNIC_CAP_TIMESTAMP) {
		if (attr_size >= offsetofend(struct ibv_device_attr_ex,
					     completion_timestamp_mask))
			attr->completion_timestamp_mask = UINT64_MAX;
		if (attr_size >= offsetofend(struct ibv_device_attr_ex,
					     hca_core_clock))
			attr->hca_core_clock = ctx->clock_khz;
	}
	if ((ctx->capabilities & QRNIC_CAP_RATE_LIMIT) &&
	    attr_size >= offsetofend(struct ibv_device_attr_ex,
				     packet_pacing_caps)) {
		attr->packet_pacing_caps.qp_rate_limit_min =
			QRNIC_MIN_RATE_LIMIT;
		attr->packet_pacing_caps.qp_rate_limit_max =
			QRNIC_MAX_RATE_LIMIT;
		attr->packet_pacing_caps.supported_qpts = paced_types(ctx);
	}
	/* The kernel reports the other members of rss_caps */
	if ((ctx->capabilities & QRNIC_CAP_RSS) &&
	    attr_size >= offsetofend(struct ibv_device_attr_ex, rss_caps)) {
		attr->rss_caps.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
		attr->rss_caps.rx_hash_fields_mask = QRNIC_RSS_ALL;
	}
	return 0;
}

int qrnic_query_port(struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd;

	return ibv_cmd_query_port(context, port, attr, &cmd, sizeof(cmd));
}

#ifdef QRNIC_HAVE_PORT_SPEED
/*
 * Returns the speed in units of 100 Mb/s, computed from the attributes of the
 * port. Linux 6.12 has no method for it, and the driver does not implement the
 * method of newer kernels.
 */
int qrnic_query_port_speed(struct ibv_context *context,
			   uint32_t port_num, uint64_t *port_speed)
{
	/* Lanes by bit of active_width: 1X, 4X, 8X, 12X, 2X */
	static const uint8_t lanes[] = { 1, 4, 8, 12, 2 };
	/* Speed of a lane by bit of active_speed, from SDR to XDR */
	static const uint16_t speeds[] = {
		25, 50, 100, 100, 140, 250, 500, 1000, 2000,
	};
	struct ibv_port_attr attr = {};
	unsigned int lane, speed;
	int err;

	if (port_num != 1)
		return EINVAL;
	err = qrnic_query_port(context, port_num, &attr);
	if (err)
		return err;
	/*
	 * active_speed_ex is preferred, because some speeds do not fit into the
	 * eight bits of active_speed
	 */
	lane = ffs(attr.active_width);
	speed = ffs(attr.active_speed_ex ? attr.active_speed_ex :
					   attr.active_speed);
	if (!lane || lane > ARRAY_SIZE(lanes) || !speed ||
	    speed > ARRAY_SIZE(speeds))
		return EOPNOTSUPP;
	*port_speed = lanes[lane - 1] * speeds[speed - 1];
	return 0;
}
#endif

int qrnic_read_clock(struct ibv_context *context, uint64_t *clock)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_DEVICE,
			       QRNIC_METHOD_QUERY_CLOCK, 1);
	int err;

	fill_attr_out_ptr(cmd, QRNIC_ATTR_QUERY_CLOCK_VALUE, clock);
	err = execute_ioctl(context, cmd);
	/*
	 * An older driver does not know the method, so the error is translated
	 */
	return err == EPROTONOSUPPORT ? EOPNOTSUPP : err;
}

/* Returns the clock in its own unit, because other adapters also do. */
int qrnic_query_rt_values(struct ibv_context *context,
			  struct ibv_values_ex *values)
{
	uint32_t wanted = values->comp_mask;
	uint64_t clock;
	int err;

	values->comp_mask = 0;
	if (!check_comp_mask(wanted, IBV_VALUES_MASK_RAW_CLOCK))
		return EINVAL;
	if (!(wanted & IBV_VALUES_MASK_RAW_CLOCK))
		return 0;

	err = qrnic_read_clock(context, &clock);
	if (err)
		return err;
	values->raw_clock.tv_sec = 0;
	values->raw_clock.tv_nsec = clock;
	values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	return 0;
}

const struct verbs_match_ent qrnic_match_table[] = {
	VERBS_DRIVER_ID(QRNIC_DRIVER_ID),
	VERBS_PCI_MATCH(QRNIC_PCI_VENDOR_ID, QRNIC_PCI_DEVICE_ID, NULL),
	VERBS_PCI_MATCH(QRNIC_PCI_VENDOR_ID, QRNIC_PCI_VF_DEVICE_ID, NULL),
	{},
};

/*
 * Returns true if this library drives the device. The address of the match
 * table identifies the library, because no other provider has this table.
 */
bool qrnic_is_device(struct ibv_device *device)
{
	const struct verbs_device_ops *ops = verbs_get_device(device)->ops;

	return ops && ops->match_table == qrnic_match_table;
}
