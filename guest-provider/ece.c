/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ece.c: enhanced connection establishment (ECE; IB, 12.6), by which both ends
 * of a connection agree on options.
 *
 * The end that begins offers its options with qrnic_query_ece(). The accepting
 * end passes the offer to qrnic_set_ece(), which keeps the accepted options,
 * and returns them with qrnic_query_ece(). The first end passes this answer to
 * qrnic_set_ece(). qp.c gives the options to the device at the transition to
 * RTR. For shared connections, the driver chooses the numbers of carriers in
 * offer and answer (manual, "Shared connections"). No lock is held, because the
 * program modifies a queue pair in one thread.
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

/*
 * Returns the options that a queue pair may have. A member has none, because
 * its packets travel inside packets of its carrier.
 */
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
 * Asks the driver for an offer, or for the answer to an offer, of a connection
 * with these options. Returns 0 if the driver cannot share the connection or
 * the state is too late. The connection is then not shared.
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

/*
 * Makes an offer, unless options were already set, because then this end is not
 * the first.
 */
static void share_offer(struct qrnic_qp *qp)
{
	if (may_share(qp) && !qp->share && !qp->agreed)
		qp->share = share_agree(qp, qp->options & QRNIC_QPO_SELECTIVE_REPEAT);
}

/*
 * Sets the offer or answer of the peer. An answer is accepted only if this end
 * has made an offer and is not in RESET. The state matters because librdmacm
 * also queries an offer at the accepting end. The queue pair there is still in
 * RESET when the offer of the peer arrives.
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
 * Returns the options that this end accepts. Selective repeat has no effect on
 * a program, so it is always accepted. Adaptive routing must be requested at
 * this end, because the peer cannot know if this program accepts writes in any
 * order.
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
	 * The options are fixed from RTR on, because the device has them, and
	 * RESET restores those of the creation. A dynamic target may be in RTR,
	 * because its options are only reported to initiators.
	 */
	if (ece->comp_mask ||
	    (ibqp->state != IBV_QPS_RESET && ibqp->state != IBV_QPS_INIT &&
	     !(qp->is_dynamic && !qp->has_sq)))
		return EINVAL;
	/*
	 * Options of another vendor are ignored, because their meaning is
	 * unknown
	 */
	options = ece->vendor_id == QRNIC_ECE_VENDOR_ID ? ece->options : 0;
	qp->options = options & options_accepted(qp);
	qp->half_handshake = qp->wants_half && options & QRNIC_ECE_HALF_HANDSHAKE;
	qp->agreed = true;
	share_set(qp, options);
	return 0;
}
