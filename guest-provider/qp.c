// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * qp.c: queue pairs after their creation: the table of queue pairs, state
 * transitions, priorities, and destruction. Functions that allocate a queue
 * pair and its receive queue are here, too, because create.c, wq.c and xrc.c
 * share them.
 *
 * The callers are libibverbs, through the operations of qrnic.c, and the files
 * that create queue pairs. A change of the table takes qp_mutex. A command that
 * sets a priority takes priority_mutex. A destroy command is sent without a
 * mutex, because it waits for the program.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/minmax.h>

#include <infiniband/cmd_ioctl.h>

#include "commands.h"
#include "cq.h"
#include "qp.h"

static int qp_table_set(struct qrnic_context *ctx, uint32_t qpn,
			struct qrnic_qp *qp)
{
	struct qrnic_qp_slot *table;

	qpn &= QRNIC_QPN_MASK;
	table = atomic_load_explicit(&ctx->qp_table[qpn >> QRNIC_QP_TABLE_SHIFT],
				     memory_order_relaxed);
	if (!table) {
		table = calloc(QRNIC_QP_TABLE_SIZE, sizeof(*table));
		if (!table)
			return ENOMEM;
		atomic_store_explicit(
			&ctx->qp_table[qpn >> QRNIC_QP_TABLE_SHIFT], table,
			memory_order_release);
	}
	atomic_store_explicit(&table[qpn & (QRNIC_QP_TABLE_SIZE - 1)].qp, qp,
			      memory_order_release);
	return 0;
}

/* Calls visit() once for each CQ that may have completions of the QP. */
static void for_cqs(struct qrnic_qp *qp,
		    void (*visit)(struct qrnic_cq *cq, struct qrnic_qp *qp))
{
	struct ibv_cq *send_cq = qrnic_qp_send_cq(qp);
	struct ibv_cq *recv_cq = qrnic_qp_recv_cq(qp);

	if (send_cq)
		visit(to_qrnic_cq(send_cq), qp);
	if (recv_cq && recv_cq != send_cq)
		visit(to_qrnic_cq(recv_cq), qp);
}

/*
 * Removes the completions of a QP from its CQs. The device has destroyed or
 * reset the QP, so no more completions will come.
 */
void qrnic_qp_clean_cqs(struct qrnic_qp *qp)
{
	for_cqs(qp, qrnic_cq_clean);
}

/*
 * Adds a QP to the table. The kernel may reuse the number of a former QP before
 * its destroy command returns, because that command waits for the program. The
 * device has no such QP any more. So its completions are removed here, before
 * the new QP can have any.
 */
int qrnic_qp_table_add(struct qrnic_context *ctx, struct qrnic_qp *qp)
{
	struct qrnic_qp *former;
	int err;

	pthread_mutex_lock(&ctx->qp_mutex);
	former = qrnic_qp_find(ctx, qp->vqp.qp.qp_num);
	if (former)
		qrnic_qp_clean_cqs(former);
	err = qp_table_set(ctx, qp->vqp.qp.qp_num, qp);
	/*
	 * The CQs forget the former QP after the table has changed, because a
	 * poller that still finds it would set last_qp again.
	 */
	if (former)
		for_cqs(former, qrnic_cq_forget);
	pthread_mutex_unlock(&ctx->qp_mutex);
	return err;
}

/*
 * Removes a QP that the kernel has destroyed, unless another QP already has its
 * number.
 */
void qrnic_qp_table_remove(struct qrnic_context *ctx, struct qrnic_qp *qp)
{
	pthread_mutex_lock(&ctx->qp_mutex);
	if (qrnic_qp_find(ctx, qp->vqp.qp.qp_num) == qp) {
		qrnic_qp_clean_cqs(qp);
		qp_table_set(ctx, qp->vqp.qp.qp_num, NULL);
		/* Last, for the reason given in qrnic_qp_table_add() */
		for_cqs(qp, qrnic_cq_forget);
	}
	pthread_mutex_unlock(&ctx->qp_mutex);
}

int qrnic_rq_init(struct qrnic_qp *qp, size_t ring, size_t record, uint32_t log_size,
		  uint32_t log_stride)
{
	uint32_t room = (QRNIC_SEGMENTS_PER_WQEBB << log_stride) - 1;

	qp->rq.ring = qp->buf.addr + ring;
	qp->rq.record = qp->buf.addr + record;
	qp->rq.size = 1u << log_size;
	qp->rq_stride_shift = QRNIC_WQEBB_SHIFT + log_stride;
	qp->rq.max_sge = min_t(uint32_t, room, qp->ctx->max_recv_sge);
	qp->rq.wr_id = calloc(qp->rq.size, sizeof(*qp->rq.wr_id));
	return qp->rq.wr_id ? 0 : ENOMEM;
}

uint64_t qrnic_next_sq_life(void)
{
	static atomic_ullong lives;

	return atomic_fetch_add_explicit(&lives, 1, memory_order_relaxed) + 1;
}

struct qrnic_qp *qrnic_qp_new_bare(struct ibv_context *context, struct ibv_pd *pd)
{
	struct qrnic_qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	qp->ctx = to_qrnic_context(context);
	qp->db = &qp->ctx->db;
	if (pd)
		qp->pd = qrnic_pd_use(pd);
	qrnic_lock_init(&qp->sq.lock, true);
	qrnic_lock_init(&qp->rq.lock, true);
	return qp;
}

int qrnic_qp_create_bare(struct qrnic_qp *qp, struct ibv_context *context,
			 struct ibv_qp_init_attr_ex *kernel_attr,
			 struct qrnic_create_qp_cmd *cmd)
{
	struct qrnic_create_qp_cmd_resp resp = {};

	int err;

	kernel_attr->cap = (struct ibv_qp_cap){};
	err = qrnic_cmd_create_qp_ex2(context, &qp->vqp, kernel_attr,
				      &cmd->ibv_cmd, sizeof(*cmd), &resp.ibv_resp,
				      sizeof(resp));
	if (!err)
		qp->carrier_key = resp.carrier_key;
	return err;
}

void qrnic_qp_free(struct qrnic_qp *qp)
{
	if (qp->has_sq)
		pthread_mutex_destroy(&qp->priority_mutex);
	qrnic_lock_destroy(&qp->rq.lock);
	qrnic_lock_destroy(&qp->sq.lock);
	free(qp->rq.wr_id);
	free(qp->sq_number);
	free(qp->sq_blocks);
	free(qp->sq.wr_id);
	qrnic_buffer_free(&qp->buf);
	qrnic_pd_unuse(qp->pd);
	free(qp);
}

void qrnic_wq_reset(struct qrnic_wq *wq)
{
	qrnic_lock(&wq->lock);
	wq->producer = 0;
	atomic_store_explicit(&wq->consumer, 0, memory_order_relaxed);
	/*
	 * Plain stores are enough, because the command that leaves RESET comes
	 * before the device reads or writes the record. The event index of
	 * other queues is reserved, and 0, too.
	 */
	qrnic_store_record(&wq->record->producer, 0);
	qrnic_store_record(&wq->record->event, 0);
	qrnic_unlock(&wq->lock);
}

/*
 * Returns the options for the transition to RTR. ECE may have removed the half
 * handshake from an initiator.
 */
static uint8_t options_given(const struct qrnic_qp *qp)
{
	return qp->has_sq && qp->wants_half && !qp->half_handshake ?
	       QRNIC_QPO_FULL_HANDSHAKE : qp->options;
}

static int modify_command(struct qrnic_qp *qp, struct ibv_qp_attr *attr,
			  int mask)
{
	struct ibv_qp *ibqp = &qp->vqp.qp;
	struct qrnic_modify_qp_cmd cmd_ex = {};
	struct ib_uverbs_ex_modify_qp_resp resp = {};
	struct ibv_modify_qp cmd = {};
	bool priority, to_rtr;

	/*
	 * The priority is set again at each transition to RTS, because the
	 * device loses it in RESET
	 */
	priority = qp->has_priority && mask & IBV_QP_STATE &&
		   attr->qp_state == IBV_QPS_RTS;
	if (priority) {
		cmd_ex.drv_payload.comp_mask = QRNIC_MODIFY_QP_PRIORITY;
		cmd_ex.priority = qp->priority;
	}
	to_rtr = mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RTR;
	if (to_rtr && qp->share & QRNIC_ECE_SHARE_ANSWER) {
		cmd_ex.drv_payload.comp_mask |= QRNIC_MODIFY_QP_SHARE;
		cmd_ex.carrier = qp->share;
	} else if (to_rtr && options_given(qp)) {
		cmd_ex.drv_payload.comp_mask |= QRNIC_MODIFY_QP_OPTIONS;
		cmd_ex.options = options_given(qp);
	}
	if (to_rtr && qp->carrier) {
		cmd_ex.drv_payload.comp_mask |= QRNIC_MODIFY_QP_CARRIER;
		cmd_ex.carrier = qp->carrier;
		cmd_ex.carrier_key = qp->carrier_key;
	}
	/*
	 * Only the extended command has a rate limit and attributes of the
	 * provider. Other modifications use the older command.
	 */
	if (mask & IBV_QP_RATE_LIMIT || cmd_ex.drv_payload.comp_mask)
		return ibv_cmd_modify_qp_ex(ibqp, attr, mask, &cmd_ex.ibv_cmd,
					    sizeof(cmd_ex), &resp,
					    sizeof(resp));
	return ibv_cmd_modify_qp(ibqp, attr, mask, &cmd, sizeof(cmd));
}

/*
 * Accepts the attributes that mlx5 programs use for the transition of dynamic
 * connections to RTR. The address vector is ignored, because each work request
 * of an initiator has its own. A target responds to the address of each
 * initiator. Without MAX_DEST_RD_ATOMIC a target accepts as many reads and
 * atomics as the adapter supports.
 */
static int dynamic_to_rtr(struct qrnic_qp *qp, struct ibv_qp_attr *attr, int *mask)
{
	struct ibv_device_attr device;
	int err;

	*mask &= ~IBV_QP_AV;
	if (qp->has_sq || *mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		return 0;
	err = ibv_query_device(qp->vqp.qp.context, &device);
	if (err)
		return err;
	attr->max_dest_rd_atomic = device.max_qp_rd_atom;
	*mask |= IBV_QP_MAX_DEST_RD_ATOMIC;
	return 0;
}

/*
 * Returns true if the ACK timeout of the program is below the least one of the
 * environment. Value 0 stays, because it means no timeout. The kernel rejects
 * values above 31.
 */
static bool timeout_is_raised(const struct qrnic_qp *qp,
			      const struct ibv_qp_attr *attr, int mask)
{
	return mask & IBV_QP_TIMEOUT && !qp->is_dynamic && attr->timeout &&
	       attr->timeout < qp->ctx->ack_timeout;
}

int qrnic_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct qrnic_qp *qp = to_qrnic_qp(ibqp);
	struct ibv_qp_attr own = {};
	int err;

	if (timeout_is_raised(qp, attr, mask)) {
		memcpy(&own, attr, offsetof(struct ibv_qp_attr, rate_limit));
		if (mask & IBV_QP_RATE_LIMIT)
			own.rate_limit = attr->rate_limit;
		own.timeout = qp->ctx->ack_timeout;
		attr = &own;
	}
	if (qp->is_dynamic && mask & IBV_QP_STATE &&
	    attr->qp_state == IBV_QPS_RTR) {
		/*
		 * The attributes are copied, because the structure of the
		 * program may be const, and may be of a version without
		 * rate_limit.
		 */
		memcpy(&own, attr, offsetof(struct ibv_qp_attr, rate_limit));
		err = dynamic_to_rtr(qp, &own, &mask);
		if (err)
			return err;
		attr = &own;
	}
	/*
	 * The mutex covers the command, so that a transition to RTS does not
	 * restore a priority that another thread is replacing.
	 */
	if (qp->has_sq)
		pthread_mutex_lock(&qp->priority_mutex);
	err = modify_command(qp, attr, mask);
	if (qp->has_sq)
		pthread_mutex_unlock(&qp->priority_mutex);
	if (err)
		return err;

	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET) {
		qrnic_qp_clean_cqs(qp);
		qp->options = qp->wanted;
		qp->half_handshake = qp->wants_half;
		qp->share = 0;
		qp->agreed = false;
		if (qp->has_sq) {
			qrnic_wq_reset(&qp->sq);
			qp->sq_life = qrnic_next_sq_life();
			qp->sq_posted = 0;
			atomic_store_explicit(&qp->sq_retired, 0,
					      memory_order_relaxed);
		}
		if (qp->has_rq)
			qrnic_wq_reset(&qp->rq);
	}
	return 0;
}

int qrnic_modify_qp_rate_limit(struct ibv_qp *ibqp,
			       struct ibv_qp_rate_limit_attr *limit)
{
	struct ibv_qp_attr attr = { .rate_limit = limit->rate_limit };
	struct ib_uverbs_ex_modify_qp_resp resp = {};
	struct qrnic_modify_qp_cmd cmd = {};

	if (limit->comp_mask)
		return EOPNOTSUPP;
	cmd.max_burst_sz = limit->max_burst_sz;
	cmd.typical_pkt_sz = limit->typical_pkt_sz;
	return ibv_cmd_modify_qp_ex(ibqp, &attr, IBV_QP_RATE_LIMIT,
				    &cmd.ibv_cmd, sizeof(cmd), &resp,
				    sizeof(resp));
}

int qrnic_modify_priority(struct ibv_qp *ibqp, uint32_t priority)
{
	struct ib_uverbs_ex_modify_qp_resp resp = {};
	struct qrnic_qp *qp = to_qrnic_qp(ibqp);
	struct qrnic_modify_qp_cmd cmd = {};
	struct ibv_qp_attr attr = {};
	int err;

	if (!(qp->ctx->capabilities & QRNIC_CAP_PRIORITY) || !qp->has_sq)
		return EOPNOTSUPP;
	if (priority > QRNIC_PRIORITY_LEVELS)
		return EINVAL;
	cmd.drv_payload.comp_mask = QRNIC_MODIFY_QP_PRIORITY;
	cmd.priority = priority;
	pthread_mutex_lock(&qp->priority_mutex);
	err = ibv_cmd_modify_qp_ex(ibqp, &attr, 0, &cmd.ibv_cmd, sizeof(cmd),
				   &resp, sizeof(resp));
	if (!err) {
		qp->has_priority = true;
		qp->priority = priority;
	}
	pthread_mutex_unlock(&qp->priority_mutex);
	return err;
}

int qrnic_query_priority(struct ibv_qp *ibqp, uint32_t *priority, uint32_t *level)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_QP,
			       QRNIC_METHOD_QP_QUERY_PRIORITY, 3);
	int err;

	fill_attr_in_obj(cmd, QRNIC_ATTR_QP_QUERY_PRIORITY_HANDLE, ibqp->handle);
	fill_attr_out_ptr(cmd, QRNIC_ATTR_QP_QUERY_PRIORITY_PRIORITY, priority);
	fill_attr_out_ptr(cmd, QRNIC_ATTR_QP_QUERY_PRIORITY_LEVEL, level);
	err = execute_ioctl(ibqp->context, cmd);
	/*
	 * An older driver does not know the method, so the error is translated
	 */
	return err == EPROTONOSUPPORT ? EOPNOTSUPP : err;
}

int qrnic_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		   struct ibv_qp_init_attr *init_attr)
{
	struct ibv_query_qp cmd;

	return ibv_cmd_query_qp(ibqp, attr, mask, init_attr, &cmd, sizeof(cmd));
}

int qrnic_destroy_qp(struct ibv_qp *ibqp)
{
	struct qrnic_qp *qp = to_qrnic_qp(ibqp);
	int err;

	/*
	 * qp_mutex is not held here, because the command waits until the
	 * program has acknowledged the events of the QP. Another thread of the
	 * program may have to create or destroy a QP before it does so.
	 */
	err = ibv_cmd_destroy_qp(ibqp);
	if (err)
		return err;
	if (qp->has_sq || qp->srq)
		qrnic_qp_table_remove(qp->ctx, qp);
	qrnic_qp_free(qp);
	return 0;
}
