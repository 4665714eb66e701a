// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * dynamic.c: targets of dynamic connections, which have no queue: what they receive is in
 * their SRQ. Initiators are in qp.c, their addresses in post_ex.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "qrnic.h"
#include "abi.h"
#include "compat.h"

static int check_target(const struct qrnic_context *ctx,
			const struct ibv_qp_init_attr_ex *attr)
{
	if (!(ctx->capabilities & QRNIC_CAP_DYNAMIC) ||
	    attr->qp_type != IBV_QPT_DRIVER ||
	    !check_comp_mask(attr->comp_mask, IBV_QP_INIT_ATTR_PD))
		return EOPNOTSUPP;
	return attr->comp_mask && attr->pd && attr->recv_cq && attr->srq ?
		       0 : EINVAL;
}

struct ibv_qp *qrnic_create_dynamic_target(struct ibv_context *context,
					   struct ibv_qp_init_attr_ex *attr,
					   const struct qrnic_qp_options *options)
{
	struct qrnic_context *ctx = to_qrnic_context(context);
	struct ibv_qp_init_attr_ex kernel_attr = *attr;
	struct qrnic_create_qp_cmd cmd = {};
	struct qrnic_qp *qp;
	int err;

	err = check_target(ctx, attr);
	if (err)
		goto err_out;
	qp = qrnic_qp_new_bare(context, attr->pd);
	if (!qp) {
		err = ENOMEM;
		goto err_out;
	}
	qp->srq = to_qrnic_srq(attr->srq);
	qp->is_dynamic = true;
	qp->wants_half = options->wants_half;
	qp->half_handshake = qp->wants_half;

	cmd.driver_type = QRNIC_DRIVER_TYPE_DC_TARGET;
	cmd.dynamic = options->dynamic;
	/* The kernel wants one, and does not use it */
	kernel_attr.send_cq = attr->recv_cq;
	err = qrnic_qp_create_bare(qp, context, &kernel_attr, &cmd);
	if (err)
		goto err_free;
	err = qrnic_qp_table_add(ctx, qp);
	if (err) {
		ibv_cmd_destroy_qp(&qp->vqp.qp);
		goto err_free;
	}
	attr->cap = kernel_attr.cap;
	return &qp->vqp.qp;

err_free:
	qrnic_qp_free(qp);
err_out:
	errno = err;
	return NULL;
}
