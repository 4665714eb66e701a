/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ece.c: enhanced connection establishment (IB, 12.6): the end that begins offers its
 * options, the other one answers with those of them that it takes, and both have these.
 */
#include <errno.h>

#include "qrnic.h"

uint8_t qrnic_options_known(const struct qrnic_context *ctx)
{
	return (ctx->capabilities & QRNIC_CAP_SELECTIVE_REPEAT ?
			QRNIC_QPO_SELECTIVE_REPEAT : 0) |
	       (ctx->capabilities & QRNIC_CAP_ADAPTIVE_ROUTING ?
			QRNIC_QPO_ADAPTIVE_ROUTING : 0);
}

/* Of a member none: its packets are in its carrier's, which are no writes */
static uint8_t options_of(const struct qrnic_qp *qp)
{
	uint8_t known = qrnic_options_known(qp->ctx);

	if (qp->is_carrier)
		return known & QRNIC_QPO_SELECTIVE_REPEAT;
	return qp->vqp.qp.qp_type == IBV_QPT_RC && !qp->carrier ? known : 0;
}

int qrnic_query_ece(struct ibv_qp *ibqp, struct ibv_ece *ece)
{
	const struct qrnic_qp *qp = to_qrnic_qp(ibqp);

	if (!options_of(qp))
		return EOPNOTSUPP;
	*ece = (struct ibv_ece){
		.vendor_id = QRNIC_ECE_VENDOR_ID,
		.options = qp->options,
	};
	return 0;
}

int qrnic_set_ece(struct ibv_qp *ibqp, struct ibv_ece *ece)
{
	struct qrnic_qp *qp = to_qrnic_qp(ibqp);

	if (!options_of(qp))
		return EOPNOTSUPP;
	if (ece->comp_mask)
		return EINVAL;
	/* What another vendor's options mean, nobody here knows */
	qp->options = ece->vendor_id == QRNIC_ECE_VENDOR_ID ?
		      ece->options & options_of(qp) : 0;
	return 0;
}
