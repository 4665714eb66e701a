// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * statistics.c: the counters of the device in the statistics of the RDMA core,
 * and counter sets of queue pairs ("rdma statistic qp").
 *
 * Counters of the transport and of queues belong to the port. Counters of the
 * bus, memory translation, shared structures and guest errors belong to the
 * device. The counters of Ethernet are in ethtool. The RDMA core serialises the
 * calls for each set of statistics.
 */
#include <linux/stringify.h>
#include "qrnic_ib.h"
#include "verbs.h"

/* Index of each counter in the output of QUERY_COUNTERS */
#define COUNTER_INDEX(name, group) INDEX_##group##_##name,
enum {
	QRNIC_COUNTER_LIST(COUNTER_INDEX)
	NUM_INDICES
};

static_assert((int)NUM_INDICES == QRNIC_NUM_COUNTERS);

/* Entry of a statistic; its member priv contains the index */
#define STATISTIC(counter, group) \
	{ \
		.name = #counter, \
		.priv = (const void *)(uintptr_t)INDEX_##group##_##counter, \
	},
#define TAKE(X, ...) X(__VA_ARGS__)
#define LEAVE(...)

#define PORT_pcie LEAVE
#define PORT_queue TAKE
#define PORT_shared LEAVE
#define PORT_memory LEAVE
#define PORT_roce TAKE
#define PORT_drop TAKE
#define PORT_ethernet LEAVE
#define PORT_guest LEAVE
#define PORT_STATISTIC(name, group) PORT_##group(STATISTIC, name, group)

#define DEVICE_pcie TAKE
#define DEVICE_queue LEAVE
#define DEVICE_shared TAKE
#define DEVICE_memory TAKE
#define DEVICE_roce LEAVE
#define DEVICE_drop LEAVE
#define DEVICE_ethernet LEAVE
#define DEVICE_guest TAKE
#define DEVICE_STATISTIC(name, group) DEVICE_##group(STATISTIC, name, group)

static const struct rdma_stat_desc qrnic_port_statistics[] = {
	QRNIC_COUNTER_LIST(PORT_STATISTIC)
};

static const struct rdma_stat_desc qrnic_device_statistics[] = {
	QRNIC_COUNTER_LIST(DEVICE_STATISTIC)
};

/*
 * Limits the number of counters, because "rdma statistic show link" is answered
 * with one netlink message that must contain all counters of the port.
 *
 * Each counter needs its name with padding, the headers of three attributes,
 * and the value with padding. The string of one entry has at least this length.
 * Attributes of the port come first. With the default of CONFIG_MAX_SKB_FRAGS a
 * message has ANSWER_ROOM bytes on pages of 4 KiB.
 */
#define ANSWER_ENTRY(name) "0123456789012345678901234567" __stringify(name)
#define ANSWER(name, group) PORT_##group(ANSWER_ENTRY, name)
#define ANSWER_PORT_BYTES 128
#define ANSWER_ROOM 3760

static_assert(ANSWER_PORT_BYTES + sizeof(QRNIC_COUNTER_LIST(ANSWER)) <= ANSWER_ROOM);

struct rdma_hw_stats *qrnic_ib_alloc_device_stats(struct ib_device *ibdev)
{
	return rdma_alloc_hw_stats_struct(qrnic_device_statistics,
					  ARRAY_SIZE(qrnic_device_statistics),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

struct rdma_hw_stats *qrnic_ib_alloc_port_stats(struct ib_device *ibdev, u32 port)
{
	return rdma_alloc_hw_stats_struct(qrnic_port_statistics,
					  ARRAY_SIZE(qrnic_port_statistics),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

/*
 * Updates all counters, because one command reads all of them. Returns their
 * number or a negative errno.
 */
static int qrnic_statistics_read(struct qrnic_dev *qdev, struct rdma_hw_stats *stats,
				 bool of_set, u32 set)
{
	u64 *values;
	int i, err;

	values = kcalloc(QRNIC_NUM_COUNTERS, sizeof(*values), GFP_KERNEL);
	if (!values)
		return -ENOMEM;

	err = of_set ? qrnic_cmd_query_counters(qdev, QRNIC_CMD_QUERY_COUNTER_SET,
						set, values) :
		       qrnic_cmd_query_counters(qdev, QRNIC_CMD_QUERY_COUNTERS,
						0, values);
	if (!err)
		for (i = 0; i < stats->num_counters; i++)
			stats->value[i] =
				values[(uintptr_t)stats->descs[i].priv];

	kfree(values);
	return err ? err : stats->num_counters;
}

/*
 * Reads the counters of the port or the device. For the port, the function
 * reads only traffic that belongs to no counter set. The RDMA core adds the
 * values of all present and past rdma_counters itself.
 */
int qrnic_ib_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
			  u32 port, int index)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibdev);

	return qrnic_statistics_read(dev->qdev, stats,
				     port && qrnic_ib_cap(dev, QRNIC_CAP_COUNTER_SETS),
				     0);
}

/* Binds a queue pair to a counter set, or to none if number is 0. */
static int qrnic_counter_set_bind(struct qrnic_ib_dev *dev, u32 qpn, u32 number)
{
	struct qrnic_counter_bind bind = {
		.counter_set = cpu_to_le32(number),
	};

	return qrnic_cmd_set(dev->qdev, QRNIC_CMD_BIND_COUNTER_SET, qpn, &bind,
			     sizeof(bind));
}

/*
 * Binds a queue pair to an rdma_counter, which is a counter set in the device.
 * The id of the rdma_counter is the number of the set, and 0 before the first
 * queue pair is bound.
 */
static int qrnic_ib_counter_bind(struct rdma_counter *counter, struct ib_qp *qp)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(qp->device);
	u32 number = counter->id;
	int err;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_COUNTER_SETS))
		return -EOPNOTSUPP;
	if (!number) {
		err = qrnic_cmd_create(dev->qdev, QRNIC_CMD_ALLOC_COUNTER_SET,
				       NULL, 0, &number);
		if (err)
			return err;
		/*
		 * Rejected, because 0 means that there is no set, and the
		 * contract has no set 0.
		 */
		if (!number)
			return -EIO;
	}
	err = qrnic_counter_set_bind(dev, qp->qp_num, number);
	if (err) {
		if (!counter->id)
			qrnic_cmd_destroy(dev->qdev, QRNIC_CMD_FREE_COUNTER_SET,
					  number);
		return err;
	}
	counter->id = number;
	qp->counter = counter;
	return 0;
}

static int qrnic_ib_counter_unbind(struct ib_qp *qp)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(qp->device);
	int err = qrnic_counter_set_bind(dev, qp->qp_num, 0);

	/*
	 * In the fatal state the error is ignored, because no QP is bound to a
	 * set any more.
	 */
	if (err && qrnic_healthy(dev->qdev))
		return err;
	qp->counter = NULL;
	return 0;
}

/*
 * Does nothing, because qrnic_ib_counter_bind() allocates the counter set with
 * the first queue pair.
 */
void qrnic_ib_counter_init(struct rdma_counter *counter)
{
}

int qrnic_ib_counter_bind_qp(struct rdma_counter *counter,
			     struct ib_qp *QRNIC_COUNTER_PORT(qp))
{
	return qrnic_ib_counter_bind(counter, qp);
}

int qrnic_ib_counter_unbind_qp(struct ib_qp *QRNIC_COUNTER_PORT(qp))
{
	return qrnic_ib_counter_unbind(qp);
}

int qrnic_ib_counter_dealloc(struct rdma_counter *counter)
{
	return qrnic_cmd_destroy(to_qrnic_dev(counter->device)->qdev,
				 QRNIC_CMD_FREE_COUNTER_SET, counter->id);
}

/*
 * Returns statistics in the order of those of the port, because the RDMA core
 * adds both.
 */
struct rdma_hw_stats *qrnic_ib_counter_alloc_stats(struct rdma_counter *counter)
{
	return qrnic_ib_alloc_port_stats(counter->device, counter->port);
}

int qrnic_ib_counter_update_stats(struct rdma_counter *counter)
{
	int err = qrnic_statistics_read(to_qrnic_dev(counter->device)->qdev,
					counter->stats, true, counter->id);

	return err < 0 ? err : 0;
}
