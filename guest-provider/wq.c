// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * wq.c: receive work queues, indirection tables, and queue pairs that
 * distribute frames over a table (RSS). libibverbs calls this file through the
 * operations of qrnic.c. The lock of the receive queue is taken only for
 * posting and reset.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/ilog.h>

#include "commands.h"
#include "qp.h"

/*
 * A receive work queue. The device and the library treat it as a queue pair
 * without a send queue, so that polling finds it by its number.
 */
struct qrnic_recv_wq {
	struct ibv_wq wq;
	struct qrnic_qp *qp;
};

static struct qrnic_recv_wq *to_recv_wq(struct ibv_wq *ibwq)
{
	return container_of(ibwq, struct qrnic_recv_wq, wq);
}

static int post_recv(struct ibv_wq *ibwq, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad_wr)
{
	return qrnic_post_recv(&to_recv_wq(ibwq)->qp->vqp.qp, wr, bad_wr);
}

static int check_wq(const struct qrnic_context *ctx,
		    const struct ibv_wq_init_attr *attr)
{
	uint32_t flags = 0;

	if (ctx->capabilities & QRNIC_CAP_ETH_VLAN)
		flags |= IBV_WQ_FLAGS_CVLAN_STRIPPING;
	if (ctx->capabilities & QRNIC_CAP_SCATTER_FCS)
		flags |= IBV_WQ_FLAGS_SCATTER_FCS;
	if (!(ctx->capabilities & QRNIC_CAP_RSS) ||
	    attr->wq_type != IBV_WQT_RQ ||
	    !check_comp_mask(attr->comp_mask, IBV_WQ_INIT_ATTR_FLAGS) ||
	    ((attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS) &&
	     !check_comp_mask(attr->create_flags, flags)))
		return EOPNOTSUPP;
	if (!attr->pd || !attr->cq || !attr->max_wr ||
	    attr->max_wr > ctx->max_recv || attr->max_sge > ctx->max_recv_sge)
		return EINVAL;
	return 0;
}

/* Allocates the ring and the doorbell record behind it. */
static int alloc_ring(struct qrnic_qp *qp, const struct ibv_wq_init_attr *attr,
		      struct qrnic_create_wq_cmd *cmd)
{
	uint32_t log_stride = ilog32(qrnic_wqebbs(1 + attr->max_sge) - 1);
	uint32_t log_size = ilog32(attr->max_wr - 1);
	size_t length = (size_t)QRNIC_WQEBB_SIZE << (log_size + log_stride);
	int err;

	err = qrnic_buffer_alloc(qp->ctx, &qp->buf, length + QRNIC_RECORD_SIZE,
				 qp->pd, QRNICDV_RES_TYPE_QP);
	if (!err)
		err = qrnic_rq_init(qp, 0, length, log_size, log_stride);
	if (err)
		return err;

	cmd->buf_addr = (uintptr_t)qp->buf.addr;
	cmd->buf_length = qp->buf.length;
	cmd->record_offset = length;
	cmd->log_size = log_size;
	cmd->log_stride = log_stride;
	return 0;
}

static int register_wq(struct qrnic_recv_wq *wq, struct ibv_wq_init_attr *attr,
		       struct qrnic_create_wq_cmd *cmd)
{
	struct ib_uverbs_ex_create_wq_resp resp = {};
	struct ibv_wq_init_attr kernel_attr = *attr;
	struct qrnic_qp *qp = wq->qp;
	int err;

	kernel_attr.max_wr = qp->rq.size;
	kernel_attr.max_sge = qp->rq.max_sge;
	err = ibv_cmd_create_wq(&qp->ctx->vctx.context, &kernel_attr, &wq->wq,
				&cmd->ibv_cmd, sizeof(*cmd), &resp,
				sizeof(resp));
	if (err)
		return err;

	qp->vqp.qp.context = &qp->ctx->vctx.context;
	qp->vqp.qp.qp_num = wq->wq.wq_num;
	qp->vqp.qp.qp_type = IBV_QPT_RAW_PACKET;
	qp->vqp.qp.recv_cq = attr->cq;
	qp->vqp.qp.state = IBV_QPS_RESET;
	err = qrnic_qp_table_add(qp->ctx, qp);
	if (err) {
		/*
		 * libibverbs initialises both after this function, but
		 * ibv_cmd_destroy_wq() uses them, so they are initialised here
		 */
		pthread_mutex_init(&wq->wq.mutex, NULL);
		pthread_cond_init(&wq->wq.cond, NULL);
		ibv_cmd_destroy_wq(&wq->wq);
		return err;
	}
	wq->wq.post_recv = post_recv;
	attr->max_wr = qp->rq.size;
	attr->max_sge = qp->rq.max_sge;
	return 0;
}

struct ibv_wq *qrnic_create_wq(struct ibv_context *context,
			       struct ibv_wq_init_attr *attr)
{
	struct qrnic_context *ctx = to_qrnic_context(context);
	struct qrnic_create_wq_cmd cmd = {};
	struct qrnic_recv_wq *wq;
	struct qrnic_qp *qp;
	int err;

	err = check_wq(ctx, attr);
	if (err)
		goto err_out;
	err = ENOMEM;
	wq = calloc(1, sizeof(*wq));
	qp = calloc(1, sizeof(*qp));
	if (!wq || !qp)
		goto err_free;

	wq->qp = qp;
	qp->ctx = ctx;
	qp->pd = qrnic_pd_use(attr->pd);
	qp->db = &ctx->db;
	qp->has_rq = true;
	qrnic_lock_init(&qp->sq.lock, false);
	qrnic_lock_init(&qp->rq.lock, !qrnic_one_thread(ctx, qp->pd));
	err = alloc_ring(qp, attr, &cmd);
	if (!err)
		err = register_wq(wq, attr, &cmd);
	if (!err)
		return &wq->wq;

	qrnic_qp_free(qp);
	qp = NULL;
err_free:
	free(qp);
	free(wq);
err_out:
	errno = err;
	return NULL;
}

int qrnic_modify_wq(struct ibv_wq *ibwq, struct ibv_wq_attr *attr)
{
	struct qrnic_qp *qp = to_recv_wq(ibwq)->qp;
	struct ibv_modify_wq cmd;
	int err;

	err = ibv_cmd_modify_wq(ibwq, attr, &cmd, sizeof(cmd));
	if (err || !(attr->attr_mask & IBV_WQ_ATTR_STATE))
		return err;

	if (attr->wq_state == IBV_WQS_RESET) {
		qrnic_qp_clean_cqs(qp);
		qrnic_wq_reset(&qp->rq);
	}
	qp->vqp.qp.state = attr->wq_state == IBV_WQS_RESET ? IBV_QPS_RESET :
			   attr->wq_state == IBV_WQS_RDY ? IBV_QPS_RTR :
							   IBV_QPS_ERR;
	return 0;
}

int qrnic_destroy_wq(struct ibv_wq *ibwq)
{
	struct qrnic_recv_wq *wq = to_recv_wq(ibwq);
	int err;

	err = ibv_cmd_destroy_wq(ibwq);
	if (err)
		return err;
	qrnic_qp_table_remove(wq->qp->ctx, wq->qp);
	qrnic_qp_free(wq->qp);
	free(wq);
	return 0;
}

struct ibv_rwq_ind_table *
qrnic_create_rwq_ind_table(struct ibv_context *context,
			   struct ibv_rwq_ind_table_init_attr *attr)
{
	struct ib_uverbs_ex_create_rwq_ind_table_resp resp = {};
	struct qrnic_context *ctx = to_qrnic_context(context);
	struct ibv_rwq_ind_table *table;
	int err;

	if (!(ctx->capabilities & QRNIC_CAP_RSS) || attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->log_ind_tbl_size > QRNIC_RSS_MAX_LOG_SIZE || !attr->ind_tbl) {
		errno = EINVAL;
		return NULL;
	}
	table = calloc(1, sizeof(*table));
	if (!table)
		return NULL;
	err = ibv_cmd_create_rwq_ind_table(context, attr, table, &resp,
					   sizeof(resp));
	if (err) {
		free(table);
		errno = err;
		return NULL;
	}
	return table;
}

int qrnic_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table)
{
	int err;

	err = ibv_cmd_destroy_rwq_ind_table(table);
	if (!err)
		free(table);
	return err;
}

static int check_rss(const struct qrnic_context *ctx,
		     const struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t needed = IBV_QP_INIT_ATTR_PD |
				IBV_QP_INIT_ATTR_IND_TABLE |
				IBV_QP_INIT_ATTR_RX_HASH;
	const struct ibv_rx_hash_conf *hash = &attr->rx_hash_conf;

	if (!(ctx->capabilities & QRNIC_CAP_RSS) ||
	    attr->qp_type != IBV_QPT_RAW_PACKET ||
	    !check_comp_mask(attr->comp_mask,
			     needed | IBV_QP_INIT_ATTR_CREATE_FLAGS) ||
	    ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
	     attr->create_flags))
		return EOPNOTSUPP;
	if ((attr->comp_mask & needed) != needed)
		return EINVAL;
	if (hash->rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ ||
	    (hash->rx_hash_fields_mask & ~(uint64_t)QRNIC_RSS_ALL))
		return EOPNOTSUPP;
	return hash->rx_hash_key &&
	       hash->rx_hash_key_len ==
		       sizeof(((struct qrnic_create_rss_req *)NULL)->key) ?
	       0 : EINVAL;
}

/*
 * Creates a queue pair for RSS, without queues, because flow rules send its
 * frames to the work queues of the table.
 */
struct ibv_qp *qrnic_create_rss(struct ibv_context *context,
				struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_init_attr_ex kernel_attr = *attr;
	struct ib_uverbs_ex_create_qp_resp resp = {};
	struct qrnic_create_rss_cmd cmd = {};
	struct qrnic_qp *qp;
	int err;

	err = check_rss(to_qrnic_context(context), attr);
	if (err)
		goto err_out;
	qp = calloc(1, sizeof(*qp));
	if (!qp) {
		err = ENOMEM;
		goto err_out;
	}
	qp->ctx = to_qrnic_context(context);
	qp->pd = qrnic_pd_use(attr->pd);
	qp->db = &qp->ctx->db;
	qrnic_lock_init(&qp->sq.lock, false);
	qrnic_lock_init(&qp->rq.lock, false);

	cmd.fields = attr->rx_hash_conf.rx_hash_fields_mask;
	cmd.function = QRNIC_RSS_TOEPLITZ;
	cmd.key_length = attr->rx_hash_conf.rx_hash_key_len;
	memcpy(cmd.key, attr->rx_hash_conf.rx_hash_key, sizeof(cmd.key));
	memset(&kernel_attr.cap, 0, sizeof(kernel_attr.cap));
	kernel_attr.send_cq = NULL;
	kernel_attr.recv_cq = NULL;
	kernel_attr.srq = NULL;
	kernel_attr.comp_mask &= ~IBV_QP_INIT_ATTR_CREATE_FLAGS;
	err = qrnic_cmd_create_qp_ex2(context, &qp->vqp, &kernel_attr,
				    &cmd.ibv_cmd, sizeof(cmd), &resp,
				    sizeof(resp));
	if (!err)
		return &qp->vqp.qp;
	qrnic_qp_free(qp);
err_out:
	errno = err;
	return NULL;
}
