// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * srq.c: creates, modifies and destroys shared receive queues, including XRC,
 * tag-matching and streaming SRQs. The callers are libibverbs, through the
 * operations of qrnic.c, and direct.c for streaming SRQs. Posting is in
 * srq_ring.c, and slots are released by poll.c. This file takes no lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/ilog.h>

#include "commands.h"
#include "cq.h"
#include "srq.h"

/*
 * Computes the sizes. The ring has one slot more than can be posted; see struct
 * qrnic_srq.
 */
static int plan(const struct qrnic_context *ctx,
		const struct ibv_srq_attr *attr, uint32_t *log_size,
		uint32_t *log_stride)
{
	if (!attr->max_wr || attr->max_wr > ctx->max_srq_wr ||
	    attr->max_sge > ctx->max_recv_sge)
		return EINVAL;
	*log_size = ilog32(attr->max_wr);
	*log_stride = ilog32(qrnic_wqebbs(1 + attr->max_sge) - 1);
	return 0;
}

static void srq_free(struct qrnic_srq *srq)
{
	pthread_mutex_destroy(&srq->resize_mutex);
	qrnic_lock_destroy(&srq->lock);
	qrnic_tags_free(srq->tags);
	free(srq->seen);
	free(srq->wr_id);
	free(srq->next);
	qrnic_buffer_free(&srq->resized);
	qrnic_buffer_free(&srq->buf);
	qrnic_pd_unuse(srq->pd);
	free(srq);
}

static struct qrnic_create_srq_req request(const struct qrnic_srq *srq,
					   uint32_t log_size,
					   uint32_t log_stride,
					   const struct qrnic_stream *stream)
{
	return (struct qrnic_create_srq_req){
		.comp_mask = (stream ? QRNIC_CREATE_SRQ_STREAM : 0) |
			     (srq->tags ? QRNIC_CREATE_SRQ_TAGS : 0),
		.tags = srq->tags ? qrnic_tags_request(srq->tags) :
				    (struct qrnic_tag_ring){},
		.stream = stream ? *stream : (struct qrnic_stream){},
		.buf_addr = (uintptr_t)srq->buf.addr,
		.buf_length = srq->buf.length,
		.record_offset = (void *)srq->record - srq->buf.addr,
		.log_size = log_size,
		.log_stride = log_stride,
	};
}

static void kernel_sizes(const struct qrnic_srq *srq, struct ibv_srq_attr *attr)
{
	attr->max_wr = srq->slots - 1;
	attr->max_sge = srq->max_sge;
	/* The limit is ignored at creation, as ibv_create_srq(3) requires */
	attr->srq_limit = 0;
}

static int register_srq(struct qrnic_srq *srq, struct ibv_pd *pd,
			const struct ibv_srq_init_attr *attr, uint32_t log_size,
			uint32_t log_stride, const struct qrnic_stream *stream)
{
	struct ibv_srq_init_attr kernel_attr = *attr;
	struct qrnic_create_srq_cmd_resp resp = {};
	struct qrnic_create_srq_cmd cmd = {
		.drv_payload = request(srq, log_size, log_stride, stream),
	};
	int err;

	kernel_sizes(srq, &kernel_attr.attr);
	err = ibv_cmd_create_srq(pd, &srq->vsrq.srq, &kernel_attr, &cmd.ibv_cmd,
				 sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	srq->srqn = resp.srqn;
	return err;
}

/*
 * Creates an SRQ with its own CQ, and then adds it to that CQ, so that polling
 * finds it.
 */
static int register_xrc_srq(struct qrnic_srq *srq,
			    const struct ibv_srq_init_attr_ex *attr,
			    uint32_t log_size, uint32_t log_stride,
			    const struct qrnic_stream *stream)
{
	struct ibv_srq_init_attr_ex kernel_attr = *attr;
	struct qrnic_create_xsrq_cmd_resp resp = {};
	struct qrnic_create_xsrq_cmd cmd = {
		.drv_payload = request(srq, log_size, log_stride, stream),
	};
	struct qrnic_context *ctx = srq->ctx;
	int err;

	kernel_sizes(srq, &kernel_attr.attr);
	err = ibv_cmd_create_srq_ex(&ctx->vctx.context, &srq->vsrq,
				    &kernel_attr, &cmd.ibv_cmd, sizeof(cmd),
				    &resp.ibv_resp, sizeof(resp));
	if (err)
		return err;
	srq->srqn = resp.drv_payload.srqn;
	srq->cq = to_qrnic_cq(attr->cq);
	qrnic_cq_add_srq(srq->cq, srq);
	return 0;
}

static int check_xrc(const struct qrnic_context *ctx,
		     const struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t needed = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
				IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;

	if (!check_comp_mask(attr->comp_mask, needed) ||
	    attr->srq_type != IBV_SRQT_XRC ||
	    !(ctx->capabilities & QRNIC_CAP_XRC))
		return EOPNOTSUPP;
	return (attr->comp_mask & needed) == needed && attr->pd && attr->xrcd &&
	       attr->cq ? 0 : EINVAL;
}

static int check_tags(const struct qrnic_context *ctx,
		      const struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t needed = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
				IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;

	if (!check_comp_mask(attr->comp_mask, needed) ||
	    !(ctx->capabilities & QRNIC_CAP_TAG_MATCHING))
		return EOPNOTSUPP;
	return (attr->comp_mask & needed) == needed && attr->pd && attr->cq ?
		       0 : EINVAL;
}

/*
 * Creates an SRQ: with ex an XRC or tag-matching SRQ, otherwise a basic SRQ.
 * The argument stream has the attributes of a streaming SRQ, or is NULL. The
 * argument err is the result of earlier checks, so that all errors have one
 * path.
 */
static struct ibv_srq *create(struct ibv_pd *pd, struct ibv_srq_init_attr *basic,
			      struct ibv_srq_init_attr_ex *ex,
			      const struct qrnic_stream *stream, int err)
{
	struct ibv_srq_attr *attr = ex ? &ex->attr : &basic->attr;
	uint32_t log_size, log_stride;
	struct qrnic_context *ctx;
	struct qrnic_srq *srq;

	if (err)
		goto err_out;
	ctx = to_qrnic_context(pd->context);
	err = plan(ctx, attr, &log_size, &log_stride);
	if (err)
		goto err_out;

	srq = calloc(1, sizeof(*srq));
	if (!srq) {
		err = ENOMEM;
		goto err_out;
	}
	srq->ctx = ctx;
	srq->pd = qrnic_pd_use(pd);
	qrnic_lock_init(&srq->lock, !qrnic_one_thread(ctx, srq->pd));
	pthread_mutex_init(&srq->resize_mutex, NULL);
	err = qrnic_srq_ring_alloc(srq, log_size, log_stride, stream);
	if (!err && ex && ex->srq_type == IBV_SRQT_TM)
		err = qrnic_tags_alloc(srq, ex);
	if (!err)
		err = ex ? register_xrc_srq(srq, ex, log_size, log_stride,
					    stream) :
			   register_srq(srq, pd, basic, log_size, log_stride,
					stream);
	if (err) {
		srq_free(srq);
		goto err_out;
	}
	attr->max_wr = srq->slots - 1;
	attr->max_sge = srq->max_sge;
	return &srq->vsrq.srq;

err_out:
	errno = err;
	return NULL;
}

/*
 * Creates an XRC or tag-matching SRQ. libibverbs calls qrnic_create_srq() for
 * the basic type.
 */
struct ibv_srq *qrnic_create_srq_ex(struct ibv_context *context,
				    struct ibv_srq_init_attr_ex *attr)
{
	struct qrnic_context *ctx = to_qrnic_context(context);
	bool tags = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE &&
		    attr->srq_type == IBV_SRQT_TM;

	return create(attr->pd, NULL, attr, NULL, tags ? check_tags(ctx, attr) :
							 check_xrc(ctx, attr));
}

struct ibv_srq *qrnic_create_srq(struct ibv_pd *pd,
				 struct ibv_srq_init_attr *attr)
{
	struct qrnic_context *ctx = to_qrnic_context(pd->context);

	return create(pd, attr, NULL, NULL,
		      ctx->capabilities & QRNIC_CAP_SRQ ? 0 : EOPNOTSUPP);
}

/* Creates a streaming SRQ of basic or XRC type. */
struct ibv_srq *qrnic_create_srq_stream(struct ibv_context *context,
					struct ibv_srq_init_attr_ex *attr,
					const struct qrnic_stream *stream)
{
	struct qrnic_context *ctx = to_qrnic_context(context);
	struct ibv_srq_init_attr basic = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
	};
	bool xrc = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE &&
		   attr->srq_type != IBV_SRQT_BASIC;
	struct ibv_srq *srq;
	int err = 0;

	if (!(ctx->capabilities & QRNIC_CAP_STREAMING_RECV))
		err = EOPNOTSUPP;
	else if (xrc)
		err = check_xrc(ctx, attr);
	else if (!check_comp_mask(attr->comp_mask, IBV_SRQ_INIT_ATTR_TYPE |
				  IBV_SRQ_INIT_ATTR_PD))
		err = EOPNOTSUPP;
	else if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd)
		err = EINVAL;
	srq = create(attr->pd, &basic, xrc ? attr : NULL, stream, err);
	if (!srq || xrc)
		return srq;
	/*
	 * libibverbs sets these members after its call of create_srq. A
	 * streaming SRQ is created without this call, so its members are set
	 * here
	 */
	srq->context = context;
	srq->srq_context = attr->srq_context;
	srq->pd = attr->pd;
	srq->events_completed = 0;
	pthread_mutex_init(&srq->mutex, NULL);
	pthread_cond_init(&srq->cond, NULL);
	attr->attr = basic.attr;
	return srq;
}

int qrnic_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct ibv_modify_srq cmd = {};

	if (mask & IBV_SRQ_MAX_WR)
		return qrnic_srq_resize(to_qrnic_srq(ibsrq), attr, mask);
	return ibv_cmd_modify_srq(ibsrq, attr, mask, &cmd, sizeof(cmd));
}

int qrnic_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd = {};

	return ibv_cmd_query_srq(ibsrq, attr, &cmd, sizeof(cmd));
}

int qrnic_destroy_srq(struct ibv_srq *ibsrq)
{
	struct qrnic_srq *srq = to_qrnic_srq(ibsrq);
	int err;

	err = ibv_cmd_destroy_srq(ibsrq);
	if (err)
		return err;
	/*
	 * Only an SRQ with its own CQ is in the list of a CQ. Completions of
	 * other SRQs are removed with their queue pairs.
	 */
	if (srq->cq)
		qrnic_cq_remove_srq(srq->cq, srq);
	srq_free(srq);
	return 0;
}

int qrnic_get_srq_num(struct ibv_srq *ibsrq, uint32_t *srq_num)
{
	*srq_num = to_qrnic_srq(ibsrq)->srqn;
	return 0;
}
