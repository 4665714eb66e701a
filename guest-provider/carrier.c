// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * carrier.c: carriers of shared connections, which have no queue and complete nothing.
 * Their members are in qp.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "qrnic.h"
#include "abi.h"
#include "compat.h"

static int check_carrier(const struct qrnic_context *ctx,
			 const struct ibv_qp_init_attr_ex *attr)
{
	if (!(ctx->capabilities & QRNIC_CAP_SHARED_CONNECTION) ||
	    !check_comp_mask(attr->comp_mask, IBV_QP_INIT_ATTR_PD))
		return EOPNOTSUPP;
	return attr->comp_mask && attr->pd && attr->send_cq && !attr->srq ?
		       0 : EINVAL;
}

struct ibv_qp *qrnic_create_carrier(struct ibv_context *context,
				    struct ibv_qp_init_attr_ex *attr,
				    const struct qrnic_qp_options *options)
{
	struct qrnic_context *ctx = to_qrnic_context(context);
	struct ibv_qp_init_attr_ex kernel_attr = *attr;
	struct qrnic_create_qp_cmd cmd = {};
	struct qrnic_qp *qp;
	int err;

	err = check_carrier(ctx, attr);
	if (err)
		goto err_out;
	qp = qrnic_qp_new_bare(context, attr->pd);
	if (!qp) {
		err = ENOMEM;
		goto err_out;
	}
	qp->is_carrier = true;
	qp->wanted = options->connection |
		     (ctx->qp_options & QRNIC_QPO_SELECTIVE_REPEAT);
	qp->options = qp->wanted;

	cmd.driver_type = QRNIC_DRIVER_TYPE_CARRIER;
	/* The kernel wants one, and does not use it */
	kernel_attr.recv_cq = attr->send_cq;
	err = qrnic_qp_create_bare(qp, context, &kernel_attr, &cmd);
	if (err)
		goto err_free;
	attr->cap = kernel_attr.cap;
	return &qp->vqp.qp;

err_free:
	qrnic_qp_free(qp);
err_out:
	errno = err;
	return NULL;
}
