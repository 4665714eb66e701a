// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * statistics.c: the device's counters where Linux looks for them. Those of the
 * transport and its queues belong to the port; those of the bus, of memory
 * translation and of guest errors to the device. ethtool has the Ethernet ones.
 */
#include "qrnic_ib.h"

/* Index of each counter in the output of QUERY_COUNTERS */
#define COUNTER_INDEX(name, group) INDEX_##group##_##name,
enum {
	QRNIC_COUNTER_LIST(COUNTER_INDEX)
	NUM_INDICES
};

static_assert((int)NUM_INDICES == QRNIC_NUM_COUNTERS);

/* priv holds the index */
#define STATISTIC(counter, group) \
	{ \
		.name = #counter, \
		.priv = (const void *)(uintptr_t)INDEX_##group##_##counter, \
	},
#define NONE(...)

#define PORT_pcie NONE
#define PORT_queue STATISTIC
#define PORT_memory NONE
#define PORT_roce STATISTIC
#define PORT_drop STATISTIC
#define PORT_ethernet NONE
#define PORT_guest NONE
#define PORT_STATISTIC(name, group) PORT_##group(name, group)

#define DEVICE_pcie STATISTIC
#define DEVICE_queue NONE
#define DEVICE_memory STATISTIC
#define DEVICE_roce NONE
#define DEVICE_drop NONE
#define DEVICE_ethernet NONE
#define DEVICE_guest STATISTIC
#define DEVICE_STATISTIC(name, group) DEVICE_##group(name, group)

static const struct rdma_stat_desc port_statistics[] = {
	QRNIC_COUNTER_LIST(PORT_STATISTIC)
};

static const struct rdma_stat_desc device_statistics[] = {
	QRNIC_COUNTER_LIST(DEVICE_STATISTIC)
};

struct rdma_hw_stats *qrnic_ib_alloc_device_stats(struct ib_device *ibdev)
{
	return rdma_alloc_hw_stats_struct(device_statistics,
					  ARRAY_SIZE(device_statistics),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

struct rdma_hw_stats *qrnic_ib_alloc_port_stats(struct ib_device *ibdev, u32 port)
{
	return rdma_alloc_hw_stats_struct(port_statistics,
					  ARRAY_SIZE(port_statistics),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

/* One command reads them all, so all are updated, whichever is asked for. */
int qrnic_ib_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
			  u32 port, int index)
{
	u64 *values;
	int i, err;

	values = kcalloc(QRNIC_NUM_COUNTERS, sizeof(*values), GFP_KERNEL);
	if (!values)
		return -ENOMEM;

	err = qrnic_cmd_query_counters(to_qrnic_dev(ibdev)->qdev, values);
	if (!err)
		for (i = 0; i < stats->num_counters; i++)
			stats->value[i] =
				values[(uintptr_t)stats->descs[i].priv];

	kfree(values);
	return err ? err : stats->num_counters;
}
