// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * flow.c: flow rules, by which raw packet queue pairs receive. The kernel makes
 * them; here is only what they are to the program.
 */
#include <errno.h>
#include <stdlib.h>

#include "qrnic.h"

struct ibv_flow *qrnic_create_flow(struct ibv_qp *ibqp,
				   struct ibv_flow_attr *attr)
{
	struct ibv_flow *flow;
	int err;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return NULL;

	err = ibv_cmd_create_flow(ibqp, flow, attr, NULL, 0);
	if (err) {
		free(flow);
		errno = err;
		return NULL;
	}
	return flow;
}

int qrnic_destroy_flow(struct ibv_flow *flow)
{
	int err;

	err = ibv_cmd_destroy_flow(flow);
	if (!err)
		free(flow);
	return err;
}
