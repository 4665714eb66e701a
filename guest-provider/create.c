// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * create.c: creates queue pairs.
 *
 * Creation checks the attributes, plans the rings in one buffer, sends the
 * command to the kernel, and adds the queue pair to the table. Polling uses
 * this table to find the queue pair of a CQE. The callers are libibverbs,
 * through the operations of qrnic.c, and direct.c. Only the change of the table
 * takes a lock, qp_mutex.
 *
 * Carriers of shared connections, which have no queues, are here, too. So are
 * targets of dynamic connections, whose receive WQEs are in an SRQ. Targets of
 * XRC are in xrc.c, and queue pairs for RSS are in wq.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/ilog.h>
#include <ccan/minmax.h>

#include "commands.h"
#include "qp.h"
#include "srq.h"

/* Smallest log2 of the basic blocks of an SQ (manual, qp_ctx) */
#define QRNIC_SQ_MIN_LOG_SIZE 3

/*
 * Header segments: control and remote address. Segments of an atomic WQE: also
 * the atomic segment and one SGE.
 */
#define QRNIC_HEADER_SEGMENTS 2
#define QRNIC_ATOMIC_SEGMENTS 4

/* Address segments of every WQE of an XRC initiator */
#define QRNIC_XRC_SEGMENTS 1

/* Address segments of every WQE of an initiator of dynamic connections */
#define QRNIC_DYNAMIC_SEGMENTS QRNIC_DYNAMIC_LENGTH

/* Control and datagram segments */
#define QRNIC_DATAGRAM_SEGMENTS (1 + QRNIC_DATAGRAM_LENGTH)

/* Control and Ethernet segment; raw packet queue pairs have no atomics */
#define QRNIC_RAW_SEGMENTS 2

struct qp_layout {
	uint32_t sq_log_size;
	uint32_t sq_wqe_blocks;
	uint32_t sq_header;
	uint32_t sq_least_segments;
	uint32_t rq_log_size;
	uint32_t rq_log_stride;
	size_t rq_offset;
	size_t record_offset;
	size_t rq_record_offset;
	size_t length;
};

/*
 * Returns true if the QP has its own receive queue. An initiator has none,
 * although the program may set a receive CQ or, for XRC, an SRQ.
 */
static bool has_rq(const struct ibv_qp_init_attr_ex *attr)
{
	return attr->qp_type != IBV_QPT_XRC_SEND &&
	       attr->qp_type != IBV_QPT_DRIVER && !attr->srq;
}

/*
 * Returns the number of address segments of a WQE. UD is different; see
 * plan_header().
 */
static uint32_t address_segments(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_XRC_SEND:
		return QRNIC_XRC_SEGMENTS;
	case IBV_QPT_DRIVER:
		return QRNIC_DYNAMIC_SEGMENTS;
	default:
		return 0;
	}
}

/*
 * Sets the segments of the longest header, and the segments that each WQE must
 * have space for. Without atomics and remote addresses, WQEs can be shorter.
 */
static void plan_header(const struct ibv_qp_init_attr_ex *attr,
			struct qp_layout *layout)
{
	const uint64_t plain = IBV_QP_EX_WITH_SEND |
			       IBV_QP_EX_WITH_SEND_WITH_IMM |
			       IBV_QP_EX_WITH_SEND_WITH_INV;

	uint32_t address = address_segments(attr->qp_type);

	if (attr->qp_type == IBV_QPT_UD) {
		layout->sq_header = QRNIC_DATAGRAM_SEGMENTS;
	} else if (attr->qp_type == IBV_QPT_RAW_PACKET) {
		layout->sq_header = QRNIC_RAW_SEGMENTS;
	} else if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
		   !(attr->send_ops_flags & ~plain)) {
		layout->sq_header = 1 + address;
	} else {
		layout->sq_header = QRNIC_HEADER_SEGMENTS + address;
		layout->sq_least_segments = QRNIC_ATOMIC_SEGMENTS + address;
	}
}

/*
 * Returns the limit of WQEs in an SQ. The kernel reports and checks the same
 * limit (max_qp_wr).
 */
static uint32_t max_send_wr(const struct qrnic_context *ctx)
{
	return min_t(uint32_t, ctx->max_recv,
		     ctx->max_wqebb / QRNIC_WQE_MAX_WQEBB);
}

static int check_cap(const struct qrnic_context *ctx,
		     const struct ibv_qp_init_attr_ex *attr,
		     const struct qp_layout *layout)
{
	const struct ibv_qp_cap *cap = &attr->cap;

	if (cap->max_send_sge > ctx->max_send_sge ||
	    cap->max_send_sge > QRNIC_WQE_MAX_SEGMENTS - layout->sq_header ||
	    cap->max_inline_data > ctx->max_inline ||
	    cap->max_send_wr > max_send_wr(ctx))
		return EINVAL;
	/*
	 * The receive sizes are ignored if there is no receive queue, as verbs
	 * requires
	 */
	if (has_rq(attr) && (cap->max_recv_sge > ctx->max_recv_sge ||
			     cap->max_recv_wr > ctx->max_recv))
		return EINVAL;
	return 0;
}

/* Sets the offsets of rings and records in the buffer. */
static void place_queues(const struct qrnic_context *ctx,
			 const struct ibv_qp_init_attr_ex *attr,
			 struct qp_layout *layout)
{
	const struct ibv_qp_cap *cap = &attr->cap;
	size_t end = (size_t)QRNIC_WQEBB_SIZE << layout->sq_log_size;
	size_t rq_bytes;

	if (!has_rq(attr)) {
		layout->record_offset = end;
		layout->length = end + QRNIC_RECORD_ALIGN;
		return;
	}
	layout->rq_log_stride = ilog32(qrnic_wqebbs(1 + cap->max_recv_sge) - 1);
	layout->rq_log_size = cap->max_recv_wr ? ilog32(cap->max_recv_wr - 1)
					       : 0;
	rq_bytes = (size_t)QRNIC_WQEBB_SIZE
		   << (layout->rq_log_size + layout->rq_log_stride);
	/*
	 * A receive ring in the middle of a page must not cross a page
	 * boundary. So if the rings do not fit into one page, the receive ring
	 * begins with a page of its own.
	 */
	layout->rq_offset = end;
	if (!ctx->small_queues ||
	    end + rq_bytes + 2 * QRNIC_RECORD_ALIGN > ctx->page_size)
		layout->rq_offset = align(end, ctx->page_size);
	layout->record_offset = layout->rq_offset + rq_bytes;
	layout->rq_record_offset = layout->record_offset + QRNIC_RECORD_ALIGN;
	layout->length = layout->record_offset + 2 * QRNIC_RECORD_ALIGN;
}

/*
 * Sets the sizes of rings that have space for all requested WQEs, each of the
 * largest requested size.
 */
static int plan_layout(const struct qrnic_context *ctx,
		       const struct ibv_qp_init_attr_ex *attr,
		       struct qp_layout *layout)
{
	const struct ibv_qp_cap *cap = &attr->cap;
	uint32_t inline_segments, segments;
	uint64_t blocks;
	int err;

	memset(layout, 0, sizeof(*layout));
	plan_header(attr, layout);
	err = check_cap(ctx, attr, layout);
	if (err)
		return err;

	inline_segments = DIV_ROUND_UP(cap->max_inline_data,
				       QRNIC_SEGMENT_SIZE);
	segments = layout->sq_header +
		   max_t(uint32_t, cap->max_send_sge, inline_segments);
	segments = max_t(uint32_t, segments, layout->sq_least_segments);
	layout->sq_wqe_blocks = qrnic_wqebbs(segments);

	blocks = (uint64_t)cap->max_send_wr * layout->sq_wqe_blocks;
	if (blocks > ctx->max_wqebb)
		return EINVAL;
	layout->sq_log_size = max_t(uint32_t, QRNIC_SQ_MIN_LOG_SIZE,
				    blocks ? ilog32(blocks - 1) : 0);

	place_queues(ctx, attr, layout);
	return 0;
}

/* Reports the capacity of the rings, which may exceed the request. */
static void honest_cap(const struct qrnic_qp *qp,
		       const struct qp_layout *layout, struct ibv_qp_cap *cap)
{
	cap->max_send_wr = qp->max_send_wr;
	cap->max_recv_wr = qp->rq.size;
	cap->max_send_sge = qp->sq.max_sge;
	cap->max_recv_sge = qp->rq.max_sge;
	cap->max_inline_data = qp->max_inline;
}

static int alloc_queues(struct qrnic_qp *qp, const struct qp_layout *layout)
{
	struct qrnic_context *ctx = qp->ctx;
	uint32_t room;
	int err;

	err = qrnic_buffer_alloc(ctx, &qp->buf, layout->length, qp->pd,
				 QRNICDV_RES_TYPE_QP);
	if (err)
		return err;

	qp->sq.ring = qp->buf.addr;
	qp->sq.record = qp->buf.addr + layout->record_offset;
	qp->sq.size = 1u << layout->sq_log_size;
	room = layout->sq_wqe_blocks * QRNIC_SEGMENTS_PER_WQEBB -
	       layout->sq_header;
	qp->sq.max_sge = min_t(uint32_t, room, ctx->max_send_sge);
	qp->max_inline = min_t(uint32_t, room * QRNIC_SEGMENT_SIZE,
			       ctx->max_inline);

	qp->sq.wr_id = calloc(qp->sq.size, sizeof(*qp->sq.wr_id));
	qp->sq_blocks = calloc(qp->sq.size, sizeof(*qp->sq_blocks));
	qp->sq_number = calloc(qp->sq.size, sizeof(*qp->sq_number));
	if (!qp->sq.wr_id || !qp->sq_blocks || !qp->sq_number)
		return ENOMEM;
	/*
	 * The size of the ring is rounded up, so it may have space for more
	 * WQEs than the limit.
	 */
	qp->max_send_wr = min_t(uint32_t, qp->sq.size / layout->sq_wqe_blocks,
				max_send_wr(ctx));
	if (!qp->has_rq)
		return 0;

	return qrnic_rq_init(qp, layout->rq_offset, layout->rq_record_offset,
			     layout->rq_log_size, layout->rq_log_stride);
}

static bool type_supported(const struct qrnic_context *ctx,
			   enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return true;
	case IBV_QPT_UC:
		return ctx->capabilities & QRNIC_CAP_UC;
	case IBV_QPT_UD:
		return ctx->capabilities & QRNIC_CAP_UD;
	case IBV_QPT_RAW_PACKET:
		return ctx->capabilities & QRNIC_CAP_FLOW;
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return ctx->capabilities & QRNIC_CAP_XRC;
	case IBV_QPT_DRIVER:
		return ctx->capabilities & QRNIC_CAP_DYNAMIC;
	default:
		return false;
	}
}

/*
 * Checks the attributes of an XRC target, which has only a domain, because its
 * receive queues are SRQs.
 */
static int check_xrc_target(const struct ibv_qp_init_attr_ex *attr)
{
	if (!check_comp_mask(attr->comp_mask, IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_XRCD))
		return EOPNOTSUPP;
	return (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) && attr->xrcd ? 0 :
									 EINVAL;
}

/* Returns the flags IBV_QP_CREATE_* that the type supports. */
static uint32_t create_flags(const struct qrnic_context *ctx,
			     enum ibv_qp_type type)
{
	uint32_t flags = 0;

	if (type == IBV_QPT_UD) {
		flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
		if (ctx->capabilities & QRNIC_CAP_SOURCE_QPN)
			flags |= IBV_QP_CREATE_SOURCE_QPN;
	} else if (type == IBV_QPT_RAW_PACKET) {
		if (ctx->capabilities & QRNIC_CAP_ETH_VLAN)
			flags |= IBV_QP_CREATE_CVLAN_STRIPPING;
		if (ctx->capabilities & QRNIC_CAP_SCATTER_FCS)
			flags |= IBV_QP_CREATE_SCATTER_FCS;
	}
	return flags;
}

static int check_qp_attr(const struct qrnic_context *ctx,
			 const struct ibv_qp_init_attr_ex *attr)
{
	uint32_t flags = 0;

	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS)
		flags = attr->create_flags;
	if (!type_supported(ctx, attr->qp_type))
		return EOPNOTSUPP;
	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return check_xrc_target(attr);
	if (!check_comp_mask(attr->comp_mask,
			     IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_CREATE_FLAGS |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return EOPNOTSUPP;
	if (!check_comp_mask(flags, create_flags(ctx, attr->qp_type)))
		return EOPNOTSUPP;
	/* The device cannot receive frames into an SRQ */
	if (attr->qp_type == IBV_QPT_RAW_PACKET && attr->srq)
		return EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->send_cq ||
	    (attr->qp_type != IBV_QPT_XRC_SEND &&
	     attr->qp_type != IBV_QPT_DRIVER && !attr->recv_cq))
		return EINVAL;
	/*
	 * send_ops_flags is required, because only the extended interface can
	 * set the address of a WQE.
	 */
	if (attr->qp_type == IBV_QPT_DRIVER &&
	    (!(attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) || attr->srq))
		return EINVAL;
	return 0;
}

/* Creates the QP in the kernel, and then adds it to the table of QPs. */
static int register_qp(struct qrnic_qp *qp,
		       const struct ibv_qp_init_attr_ex *attr,
		       const struct qp_layout *layout,
		       const struct qrnic_qp_options *options)
{
	bool dynamic = options->driver_type;
	struct ibv_qp_init_attr_ex kernel_attr = *attr;
	struct qrnic_create_qp_cmd_resp resp = {};
	struct qrnic_create_qp_cmd cmd = {};
	struct qrnic_context *ctx = qp->ctx;
	int err;

	cmd.buf_addr = (uintptr_t)qp->buf.addr;
	cmd.buf_length = qp->buf.length;
	cmd.rq_offset = layout->rq_offset;
	cmd.sq_record_offset = layout->record_offset;
	cmd.rq_record_offset = layout->rq_record_offset;
	cmd.sq_log_size = layout->sq_log_size;
	cmd.rq_log_size = layout->rq_log_size;
	cmd.rq_log_stride = layout->rq_log_stride;
	cmd.max_recv_inline = qp->max_recv_inline;

	if (qp->stream.max_message) {
		cmd.drv_payload.comp_mask = QRNIC_CREATE_QP_STREAM;
		cmd.stream = qp->stream;
	}
	if (qp->event_index)
		cmd.drv_payload.comp_mask |= QRNIC_CREATE_QP_EVENT_INDEX;
	cmd.driver_type = options->driver_type;
	cmd.dynamic = options->dynamic;
	if (qp->db != &ctx->db) {
		cmd.drv_payload.comp_mask |= QRNIC_CREATE_QP_DB_PAGE;
		cmd.db_page = qp->db->number;
	}

	/*
	 * Flags of the extended interface are removed, because the kernel
	 * rejects them.
	 */
	kernel_attr.comp_mask &= IBV_QP_INIT_ATTR_PD |
				 IBV_QP_INIT_ATTR_CREATE_FLAGS;
	if (!(kernel_attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) ||
	    !kernel_attr.create_flags)
		kernel_attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	honest_cap(qp, layout, &kernel_attr.cap);
	if (kernel_attr.qp_type == IBV_QPT_XRC_SEND) {
		kernel_attr.recv_cq = NULL;
		kernel_attr.srq = NULL;
	} else if (dynamic) {
		/* The kernel requires a receive CQ, but does not use it */
		kernel_attr.recv_cq = kernel_attr.send_cq;
	}

	/*
	 * ibv_cmd_create_qp_ex() is not used, because it does not pass flags to
	 * the kernel.
	 */
	err = qrnic_cmd_create_qp_ex2(&ctx->vctx.context, &qp->vqp, &kernel_attr,
				    &cmd.ibv_cmd, sizeof(cmd), &resp.ibv_resp,
				    sizeof(resp));
	if (err)
		return err;
	err = qrnic_qp_table_add(ctx, qp);
	if (err)
		ibv_cmd_destroy_qp(&qp->vqp.qp);
	return err;
}

/*
 * Returns true if CQEs of the QP may contain received data. The CQE of a
 * streaming or tag-matching SRQ has no space for data. XRC messages are
 * received into an SRQ. For datagrams and frames it would save nothing.
 */
static bool can_recv_inline(const struct ibv_qp_init_attr_ex *attr)
{
	return (attr->qp_type == IBV_QPT_RC || attr->qp_type == IBV_QPT_UC) &&
	       !(attr->srq && (to_qrnic_srq(attr->srq)->seen ||
			       to_qrnic_srq(attr->srq)->tags));
}

static int check_recv_inline(const struct qrnic_context *ctx,
			     const struct ibv_qp_init_attr_ex *attr,
			     uint32_t bytes)
{
	if (!bytes)
		return 0;
	if (!(ctx->capabilities & QRNIC_CAP_INLINE_RECV) ||
	    !can_recv_inline(attr))
		return EOPNOTSUPP;
	return bytes <= QRNIC_MAX_RECV_INLINE ? 0 : EINVAL;
}

static int check_stream(const struct qrnic_context *ctx,
			const struct ibv_qp_init_attr_ex *attr,
			uint32_t max_recv_inline)
{
	if (!(ctx->capabilities & QRNIC_CAP_STREAMING_RECV) ||
	    (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC &&
	     attr->qp_type != IBV_QPT_UD))
		return EOPNOTSUPP;
	return attr->srq || max_recv_inline ? EINVAL : 0;
}

struct ibv_qp *qrnic_create_qp_inline(struct ibv_context *context,
				      struct ibv_qp_init_attr_ex *attr,
				      uint32_t *max_recv_inline,
				      const struct qrnic_qp_options *options)
{
	struct qrnic_context *ctx = to_qrnic_context(context);
	struct qp_layout layout;
	struct qrnic_qp *qp;
	int err;

	err = check_qp_attr(ctx, attr);
	if (!options->driver_type != (attr->qp_type != IBV_QPT_DRIVER))
		err = EOPNOTSUPP;
	if (!err)
		err = check_recv_inline(ctx, attr, *max_recv_inline);
	if (!err && options->stream.max_message)
		err = check_stream(ctx, attr, *max_recv_inline);
	/* An XRC target has no priority because it has no send queue */
	if (!err && options->has_priority &&
	    (!(ctx->capabilities & QRNIC_CAP_PRIORITY) ||
	     attr->qp_type == IBV_QPT_XRC_RECV))
		err = EOPNOTSUPP;
	if (!err && options->carrier &&
	    !(ctx->capabilities & QRNIC_CAP_SHARED_CONNECTION))
		err = EOPNOTSUPP;
	if (!err && attr->qp_type == IBV_QPT_XRC_RECV)
		return qrnic_create_target(context, attr);
	if (!err)
		err = plan_layout(ctx, attr, &layout);
	if (err)
		goto err_out;

	qp = calloc(1, sizeof(*qp));
	if (!qp) {
		err = ENOMEM;
		goto err_out;
	}
	qp->ctx = ctx;
	qp->pd = qrnic_pd_use(attr->pd);
	qp->db = qp->pd && qp->pd->td && qp->pd->td->own_db ?
		 &qp->pd->td->db : &ctx->db;
	qp->has_sq = true;
	qp->sq_life = qrnic_next_sq_life();
	pthread_mutex_init(&qp->priority_mutex, NULL);
	qp->has_rq = has_rq(attr);
	qp->event_index = ctx->capabilities & QRNIC_CAP_EVENT_INDEX;
	qp->stream = options->stream;
	qp->has_priority = options->has_priority;
	qp->priority = options->priority;
	qp->carrier = options->carrier;
	qp->carrier_key = options->carrier_key;
	/*
	 * A member has no options because its packets travel inside those of
	 * its carrier.
	 */
	if (attr->qp_type == IBV_QPT_RC && !qp->carrier)
		qp->wanted = options->connection | ctx->qp_options;
	qp->options = qp->wanted;
	qp->is_dynamic = options->driver_type;
	qp->wants_half = options->wants_half;
	qp->half_handshake = qp->wants_half;
	qp->srq = attr->srq && attr->qp_type != IBV_QPT_XRC_SEND ?
		  to_qrnic_srq(attr->srq) : NULL;
	qp->sq_sig_flag = attr->sq_sig_all ? QRNIC_WQEF_SIGNALED : 0;
	/*
	 * The device has one fixed limit, so a smaller request would have no
	 * effect on the device.
	 */
	if (*max_recv_inline)
		qp->max_recv_inline = QRNIC_MAX_RECV_INLINE;
	qrnic_lock_init(&qp->sq.lock, !qrnic_one_thread(ctx, qp->pd));
	qrnic_lock_init(&qp->rq.lock, !qrnic_one_thread(ctx, qp->pd));
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		err = qrnic_qp_set_wr_ops(qp, attr->qp_type,
					  attr->send_ops_flags);
		if (err)
			goto err_free;
	}
	err = alloc_queues(qp, &layout);
	if (err)
		goto err_free;
	err = register_qp(qp, attr, &layout, options);
	if (err)
		goto err_free;

	/*
	 * libibverbs clears comp_mask at creation, so the flag is set after it.
	 */
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		qp->vqp.comp_mask |= VERBS_QP_EX;
	honest_cap(qp, &layout, &attr->cap);
	*max_recv_inline = qp->max_recv_inline;
	return &qp->vqp.qp;

err_free:
	qrnic_qp_free(qp);
err_out:
	errno = err;
	return NULL;
}

struct ibv_qp *qrnic_create_qp_ex(struct ibv_context *context,
				  struct ibv_qp_init_attr_ex *attr)
{
	uint32_t max_recv_inline = to_qrnic_context(context)->recv_inline;
	const struct qrnic_qp_options none = {};
	struct ibv_qp *qp;

	if (attr->comp_mask & (IBV_QP_INIT_ATTR_IND_TABLE |
			       IBV_QP_INIT_ATTR_RX_HASH))
		return qrnic_create_rss(context, attr);
	if (!can_recv_inline(attr))
		max_recv_inline = 0;
	qp = qrnic_create_qp_inline(context, attr, &max_recv_inline, &none);
	if (qp || !max_recv_inline || errno != EOPNOTSUPP)
		return qp;

	/*
	 * Receiving into the CQE is only a request of the environment, so
	 * creation is retried without it if driver or device do not support it.
	 */
	max_recv_inline = 0;
	return qrnic_create_qp_inline(context, attr, &max_recv_inline, &none);
}

struct ibv_qp *qrnic_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex attr_ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp;

	qp = qrnic_create_qp_ex(pd->context, &attr_ex);
	if (qp)
		attr->cap = attr_ex.cap;
	return qp;
}

static int check_dynamic_target(const struct qrnic_context *ctx,
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

	err = check_dynamic_target(ctx, attr);
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
	/* The kernel requires a send CQ, but does not use it */
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
	/* The kernel requires a receive CQ, but does not use it */
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
