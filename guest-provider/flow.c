// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * flow.c: flow rules, by which raw packet queue pairs receive. The kernel makes
 * them; here is only what they are to the program.
 */
#include <errno.h>
#include <stdlib.h>

#include "qrnic.h"

struct qrnic_flow {
	struct ibv_flow flow;
	/* NULL, or what it counts in */
	struct ibv_counters *counters;
};

/* What the rule counts in, which is named among its layers */
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
