// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * flow.c: flow rules of raw packet queue pairs, and their counters. libibverbs
 * calls this file through the operations of qrnic.c.
 *
 * The kernel creates the rules, and returns all values that the device counts
 * for the rules of a counters object. The library stores the points, which map
 * a value to the index at which the program reads it. The mutex of a counters
 * object is held during the command that reads or destroys it, so that its
 * points and rules do not change.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/array_size.h>

#include "commands.h"
#include "qrnic.h"

/*
 * A value of the device (enum qrnic_flow_counter) and the index at which the
 * program reads it
 */
struct qrnic_counter_point {
	uint32_t index;
	uint32_t value;
};

struct qrnic_counters {
	struct verbs_counters vcounters;
	/* Protects all members below */
	pthread_mutex_t mutex;
	/* Number of rules that use the counters */
	uint32_t flows;
	uint32_t num_points;
	struct qrnic_counter_point *points;
};

QRNIC_TO(counters, vcounters.counters)

struct ibv_counters *qrnic_create_counters(struct ibv_context *context,
					   struct ibv_counters_init_attr *attr)
{
	struct qrnic_counters *counters;
	int err;

	counters = calloc(1, sizeof(*counters));
	if (!counters)
		return NULL;
	err = ibv_cmd_create_counters(context, attr, &counters->vcounters,
				      NULL);
	if (err) {
		free(counters);
		errno = err;
		return NULL;
	}
	pthread_mutex_init(&counters->mutex, NULL);
	return &counters->vcounters.counters;
}

/*
 * Destroys counters. The kernel also rejects the command while a rule uses
 * them. The count of rules is still necessary, because the kernel forgets the
 * rules when the device is removed. qrnic_destroy_flow() would then use freed
 * counters.
 */
int qrnic_destroy_counters(struct ibv_counters *ibcounters)
{
	struct qrnic_counters *counters = to_qrnic_counters(ibcounters);
	int err;

	pthread_mutex_lock(&counters->mutex);
	err = counters->flows ? EBUSY :
				ibv_cmd_destroy_counters(&counters->vcounters);
	pthread_mutex_unlock(&counters->mutex);
	if (err)
		return err;
	pthread_mutex_destroy(&counters->mutex);
	free(counters->points);
	free(counters);
	return 0;
}

/* Adds a point. The caller holds the mutex. */
static int add_point(struct qrnic_counters *counters,
		     const struct ibv_counter_attach_attr *attr)
{
	struct qrnic_counter_point *points;

	if (counters->flows)
		return EBUSY;
	points = realloc(counters->points,
			 (counters->num_points + 1) * sizeof(*points));
	if (!points)
		return ENOMEM;
	points[counters->num_points].index = attr->index;
	points[counters->num_points].value =
		attr->counter_desc == IBV_COUNTER_BYTES ? QRNIC_FLOW_BYTES :
							  QRNIC_FLOW_PACKETS;
	counters->points = points;
	counters->num_points++;
	return 0;
}

/*
 * Attaches a point, which must happen before the first rule uses the counters.
 * An existing rule cannot be changed, so flow must be NULL.
 */
int qrnic_attach_counters_point_flow(struct ibv_counters *ibcounters,
				     struct ibv_counter_attach_attr *attr,
				     struct ibv_flow *flow)
{
	struct qrnic_counters *counters = to_qrnic_counters(ibcounters);
	int err;

	if (flow || attr->comp_mask)
		return EOPNOTSUPP;
	if (attr->counter_desc != IBV_COUNTER_PACKETS &&
	    attr->counter_desc != IBV_COUNTER_BYTES)
		return EOPNOTSUPP;
	pthread_mutex_lock(&counters->mutex);
	err = add_point(counters, attr);
	pthread_mutex_unlock(&counters->mutex);
	return err;
}

/* Adds to the number of rules that use the counters. */
void qrnic_counters_use(struct ibv_counters *ibcounters, int flows)
{
	struct qrnic_counters *counters;

	if (!ibcounters)
		return;
	counters = to_qrnic_counters(ibcounters);
	pthread_mutex_lock(&counters->mutex);
	counters->flows += flows;
	pthread_mutex_unlock(&counters->mutex);
}

/*
 * Reads the counters. Points with the same index are added, and an index
 * without a point gets 0.
 */
int qrnic_read_counters(struct ibv_counters *ibcounters, uint64_t *values,
			uint32_t ncounters, uint32_t flags)
{
	struct qrnic_counters *counters = to_qrnic_counters(ibcounters);
	uint64_t device[QRNIC_FLOW_BYTES + 1] = {};
	uint32_t i;
	int err;

	pthread_mutex_lock(&counters->mutex);
	err = ibv_cmd_read_counters(&counters->vcounters, device,
				    ARRAY_SIZE(device), flags, NULL);
	for (i = 0; !err && i < counters->num_points; i++)
		if (counters->points[i].index >= ncounters)
			err = EINVAL;
	if (!err) {
		memset(values, 0, ncounters * sizeof(*values));
		for (i = 0; i < counters->num_points; i++)
			values[counters->points[i].index] +=
				device[counters->points[i].value];
	}
	pthread_mutex_unlock(&counters->mutex);
	return err;
}

struct qrnic_flow {
	struct ibv_flow flow;
	/* Counters of the rule, or NULL */
	struct ibv_counters *counters;
};

/* Returns the counters of a rule, which are in one of its layers. */
static struct ibv_counters *counters_of(const struct ibv_flow_attr *attr)
{
	const struct ibv_flow_spec *spec = (const void *)(attr + 1);
	int i;

	for (i = 0; i < attr->num_of_specs; i++) {
		if (spec->hdr.type == IBV_FLOW_SPEC_ACTION_COUNT)
			return spec->flow_count.counters;
		spec = (const void *)spec + spec->hdr.size;
	}
	return NULL;
}

struct ibv_flow *qrnic_create_flow(struct ibv_qp *ibqp,
				   struct ibv_flow_attr *attr)
{
	struct qrnic_flow *flow;
	int err;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return NULL;

	flow->counters = counters_of(attr);
	qrnic_counters_use(flow->counters, 1);
	err = ibv_cmd_create_flow(ibqp, &flow->flow, attr, NULL, 0);
	if (err) {
		qrnic_counters_use(flow->counters, -1);
		free(flow);
		errno = err;
		return NULL;
	}
	return &flow->flow;
}

int qrnic_destroy_flow(struct ibv_flow *ibflow)
{
	struct qrnic_flow *flow = container_of(ibflow, struct qrnic_flow, flow);
	int err;

	err = ibv_cmd_destroy_flow(ibflow);
	if (err)
		return err;
	qrnic_counters_use(flow->counters, -1);
	free(flow);
	return 0;
}
