// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * xrc.c: XRC domains and XRC targets. A target has no queues, so the library
 * only keeps the object. Initiators are in create.c, and XRC SRQs in srq.c.
 * libibverbs calls this file through the operations of qrnic.c, and create.c
 * calls qrnic_create_target(). No lock is held.
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

/*
 * Opens a target of another process, or opens a target of this process again.
 */
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
