// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * xrc.c: XRC domains, and targets, which have no queue and so nothing here but
 * what the core keeps. Initiators are in create.c, XRC SRQs in srq.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "commands.h"
#include "qp.h"

struct ibv_xrcd *qrnic_open_xrcd(struct ibv_context *context,
				 struct ibv_xrcd_init_attr *attr)
{
	struct ib_uverbs_open_xrcd_resp resp = {};
	struct ibv_open_xrcd cmd = {};
	struct verbs_xrcd *xrcd;
	int err;

	if (!(to_qrnic_context(context)->capabilities & QRNIC_CAP_XRC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	xrcd = calloc(1, sizeof(*xrcd));
	if (!xrcd)
		return NULL;
	err = ibv_cmd_open_xrcd(context, xrcd, sizeof(*xrcd), attr, &cmd,
				sizeof(cmd), &resp, sizeof(resp));
	if (err) {
		free(xrcd);
		errno = err;
		return NULL;
	}
	return &xrcd->xrcd;
}

int qrnic_close_xrcd(struct ibv_xrcd *ibxrcd)
{
	struct verbs_xrcd *xrcd = container_of(ibxrcd, struct verbs_xrcd, xrcd);
	int err = ibv_cmd_close_xrcd(xrcd);

	if (!err)
		free(xrcd);
	return err;
}

struct ibv_qp *qrnic_create_target(struct ibv_context *context,
				   struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_init_attr_ex kernel_attr = *attr;
	struct qrnic_create_qp_cmd cmd = {};
	struct qrnic_qp *qp;
	int err;

	qp = qrnic_qp_new_bare(context, NULL);
	if (!qp)
		return NULL;
	kernel_attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	err = qrnic_qp_create_bare(qp, context, &kernel_attr, &cmd);
	if (err) {
		qrnic_qp_free(qp);
		errno = err;
		return NULL;
	}
	attr->cap = kernel_attr.cap;
	return &qp->vqp.qp;
}

/* The target of another process, or another handle of this one's */
struct ibv_qp *qrnic_open_qp(struct ibv_context *context,
			     struct ibv_qp_open_attr *attr)
{
	struct ib_uverbs_create_qp_resp resp = {};
	struct ibv_open_qp cmd = {};
	struct qrnic_qp *qp;
	int err;

	qp = qrnic_qp_new_bare(context, NULL);
	if (!qp)
		return NULL;
	err = ibv_cmd_open_qp(context, &qp->vqp, sizeof(qp->vqp), attr, &cmd,
			      sizeof(cmd), &resp, sizeof(resp));
	if (err) {
		qrnic_qp_free(qp);
		errno = err;
		return NULL;
	}
	return &qp->vqp.qp;
}
