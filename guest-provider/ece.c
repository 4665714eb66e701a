/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ece.c: enhanced connection establishment (IB, 12.6): the end that begins offers its
 * options, the other one answers with those of them that it takes, and both have these.
 * The driver makes the numbers by which connections are shared (manual, Shared
 * connections).
 */
#include <errno.h>

#include "qp.h"

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

static bool may_share(const struct qrnic_qp *qp)
{
	return qp->ctx->shares && qp->vqp.qp.qp_type == IBV_QPT_RC && !qp->carrier;
}

static bool has_options(const struct qrnic_qp *qp)
{
	return options_of(qp) || may_share(qp) || qp->is_dynamic;
}

/*
 * What this end offers, or answers to an offer, of a connection that would have these
 * options. Where the driver cannot, or it is too late, the connection is not shared.
 */
static uint32_t share_agree(struct qrnic_qp *qp, uint32_t wanted)
{
	struct ibv_qp *ibqp = &qp->vqp.qp;
	uint32_t agreed;
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_QP, QRNIC_METHOD_QP_SHARE, 3);

	fill_attr_in_obj(cmd, QRNIC_ATTR_QP_SHARE_HANDLE, ibqp->handle);
	fill_attr_in_uint32(cmd, QRNIC_ATTR_QP_SHARE_WANTED, wanted);
	fill_attr_out_ptr(cmd, QRNIC_ATTR_QP_SHARE_AGREED, &agreed);
	return execute_ioctl(ibqp->context, cmd) ? 0 : agreed;
}

/* It has not been agreed on: this is the end that begins. */
static void share_offer(struct qrnic_qp *qp)
{
	if (may_share(qp) && !qp->share && !qp->agreed)
		qp->share = share_agree(qp, qp->options & QRNIC_QPO_SELECTIVE_REPEAT);
}

/*
 * An answer comes when the queue pair of who asked is in INIT. That of who accepts, of which
 * librdmacm asks for an offer, too, is in RESET when it gets what the other end says.
 */
static void share_set(struct qrnic_qp *qp, uint32_t options)
{
	bool offered = qp->share & QRNIC_ECE_SHARE_OFFER;

	qp->share = 0;
	if (!may_share(qp))
		return;
	if (options & QRNIC_ECE_SHARE_OFFER)
		qp->share = share_agree(qp, options & ~(uint32_t)QRNIC_QPO_ADAPTIVE_ROUTING);
	else if (options & QRNIC_ECE_SHARE_ANSWER && offered &&
		 qp->vqp.qp.state != IBV_QPS_RESET)
		qp->share = options;
}

int qrnic_query_ece(struct ibv_qp *ibqp, struct ibv_ece *ece)
{
	struct qrnic_qp *qp = to_qrnic_qp(ibqp);

	if (!has_options(qp))
		return EOPNOTSUPP;
	share_offer(qp);
	*ece = (struct ibv_ece){
		.vendor_id = QRNIC_ECE_VENDOR_ID,
		.options = qp->share & QRNIC_ECE_SHARE_ANSWER ?
			   qp->share : qp->share | qp->options,
	};
	if (qp->half_handshake)
		ece->options |= QRNIC_ECE_HALF_HANDSHAKE;
	return 0;
}

/*
 * Selective repeat changes nothing for a program, and is taken from whoever offers it. To
 * writes in any order this end's program must have agreed: its peer cannot for it.
 */
static uint8_t options_accepted(const struct qrnic_qp *qp)
{
	return options_of(qp) & (QRNIC_QPO_SELECTIVE_REPEAT | qp->wanted);
}

int qrnic_set_ece(struct ibv_qp *ibqp, struct ibv_ece *ece)
{
	struct qrnic_qp *qp = to_qrnic_qp(ibqp);
	uint32_t options;

	if (!has_options(qp))
		return EOPNOTSUPP;
	/*
	 * From RTR on the device has the options, and RESET takes back what is set here. A
	 * dynamic target works in RTR, and only reports its options to initiators.
	 */
	if (ece->comp_mask ||
	    (ibqp->state != IBV_QPS_RESET && ibqp->state != IBV_QPS_INIT &&
	     !(qp->is_dynamic && !qp->has_sq)))
		return EINVAL;
	/* What another vendor's options mean, nobody here knows */
	options = ece->vendor_id == QRNIC_ECE_VENDOR_ID ? ece->options : 0;
	qp->options = options & options_accepted(qp);
	qp->half_handshake = qp->wants_half && options & QRNIC_ECE_HALF_HANDSHAKE;
	qp->agreed = true;
	share_set(qp, options);
	return 0;
}
