// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * cq.c: creates, resizes, arms and destroys completion queues. libibverbs calls
 * this file through the operations of qrnic.c; poll.c polls. A resize holds
 * resize_mutex and sets resizing under lock. A request for an event holds
 * arm_lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/ilog.h>
#include <ccan/minmax.h>

#include "commands.h"
#include "cq.h"

/*
 * The smallest CQ has as many CQEs as fit into a page together with the
 * doorbell record; the number is a power of two. Some programs request one CQE
 * and have two completions, which works with other adapters because they also
 * round up.
 */
#define QRNIC_CQ_MIN_SIZE 32u

/* Fields of a completion that need the clock of the device */
#define QRNIC_WC_TIME_FLAGS                                                    \
	(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |                                 \
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

/* Fields of a completion that the extended interface can read */
#define QRNIC_WC_FLAGS                                                         \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN | QRNIC_WC_TIME_FLAGS |  \
	 IBV_WC_EX_WITH_TM_INFO)

static uint32_t cq_flags(const struct ibv_cq_init_attr_ex *attr)
{
	return attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
}

static int check_cq_attr(const struct qrnic_context *ctx,
			 const struct ibv_cq_init_attr_ex *attr)
{
	if (!check_comp_mask(attr->comp_mask, IBV_CQ_INIT_ATTR_MASK_FLAGS |
			     IBV_CQ_INIT_ATTR_MASK_PD))
		return EOPNOTSUPP;
	if (!check_comp_mask(cq_flags(attr), IBV_CREATE_CQ_ATTR_SINGLE_THREADED |
			     (ctx->capabilities & QRNIC_CAP_CQ_IGNORE_OVERRUN ?
			      IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN : 0)))
		return EOPNOTSUPP;
	if (!check_comp_mask(attr->wc_flags, QRNIC_WC_FLAGS))
		return EOPNOTSUPP;
	if ((attr->wc_flags & QRNIC_WC_TIME_FLAGS) &&
	    !(ctx->capabilities & QRNIC_CAP_TIMESTAMP))
		return EOPNOTSUPP;
	if ((attr->wc_flags & IBV_WC_EX_WITH_TM_INFO) &&
	    !(ctx->capabilities & QRNIC_CAP_TAG_MATCHING))
		return EOPNOTSUPP;
	/*
	 * Only a parent domain is valid here, because a plain PD has neither
	 * allocators nor a thread domain.
	 */
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) &&
	    (!attr->parent_domain || !to_qrnic_pd(attr->parent_domain)->base))
		return EINVAL;
	if (!attr->cqe || attr->cqe > ctx->max_cqe)
		return EINVAL;
	return 0;
}

static uint32_t cq_log_size(const struct qrnic_context *ctx, uint32_t cqe)
{
	uint32_t least = min_t(uint32_t, QRNIC_CQ_MIN_SIZE, ctx->max_cqe);

	return ilog32(max_t(uint32_t, cqe, least) - 1);
}

static struct qrnic_cq *create_cq(struct ibv_context *context,
				  const struct ibv_cq_init_attr_ex *attr)
{
	struct qrnic_context *ctx = to_qrnic_context(context);
	struct ibv_cq_init_attr_ex kernel_attr = *attr;
	struct qrnic_create_cq_cmd_resp resp = {};
	struct qrnic_create_cq_cmd cmd = {};
	size_t record_offset;
	struct qrnic_cq *cq;
	bool locks;
	int err;

	err = check_cq_attr(ctx, attr);
	if (err)
		goto err_out;

	cq = calloc(1, sizeof(*cq));
	if (!cq) {
		err = ENOMEM;
		goto err_out;
	}
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
		cq->pd = qrnic_pd_use(attr->parent_domain);
	cq->log_size = cq_log_size(ctx, attr->cqe);
	record_offset = align((size_t)QRNIC_CQE_SIZE << cq->log_size,
			      QRNIC_RECORD_ALIGN);
	err = qrnic_buffer_alloc(ctx, &cq->buf,
				 record_offset + QRNIC_RECORD_SIZE, cq->pd,
				 QRNICDV_RES_TYPE_CQ);
	if (err)
		goto err_free;
	cq->ring = cq->buf.addr;
	cq->record = cq->buf.addr + record_offset;
	list_head_init(&cq->srqs);

	cmd.buf_addr = (uintptr_t)cq->buf.addr;
	cmd.buf_length = cq->buf.length;
	cmd.record_offset = record_offset;
	cmd.log_size = cq->log_size;

	/*
	 * Flags for reading CQEs and for a single thread are removed, because
	 * the kernel does not know them.
	 */
	kernel_attr.cqe = 1u << cq->log_size;
	kernel_attr.wc_flags = 0;
	kernel_attr.flags = cq_flags(attr) & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	kernel_attr.comp_mask = kernel_attr.flags ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0;
	err = qrnic_cmd_create_cq_ex(context, &kernel_attr, &cq->vcq,
				     &cmd.ibv_cmd, sizeof(cmd), &resp.ibv_resp,
				     sizeof(resp));
	if (err)
		goto err_buffer;

	cq->cqn = resp.cqn;
	cq->vcq.cq.cqe = 1u << cq->log_size;
	/*
	 * If the program permits overruns, the device may overwrite a CQE soon
	 * after the CQE was checked. So each check covers only one CQE.
	 */
	cq->batch = kernel_attr.flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN ?
		    1 : QRNIC_POLL_BATCH;
	locks = !qrnic_one_thread(ctx, cq->pd) &&
		!(cq_flags(attr) & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	qrnic_lock_init(&cq->lock, locks);
	qrnic_lock_init(&cq->arm_lock, locks);
	pthread_mutex_init(&cq->resize_mutex, NULL);
	return cq;

err_buffer:
	qrnic_buffer_free(&cq->buf);
err_free:
	qrnic_pd_unuse(cq->pd);
	free(cq);
err_out:
	errno = err;
	return NULL;
}

struct ibv_cq *qrnic_create_cq(struct ibv_context *context, int cqe,
			       struct ibv_comp_channel *channel,
			       int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.channel = channel,
		.comp_vector = comp_vector,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct qrnic_cq *cq;

	if (cqe <= 0) {
		errno = EINVAL;
		return NULL;
	}
	cq = create_cq(context, &attr);
	return cq ? &cq->vcq.cq : NULL;
}

struct ibv_cq_ex *qrnic_create_cq_ex(struct ibv_context *context,
				     struct ibv_cq_init_attr_ex *attr)
{
	struct qrnic_cq *cq;
	uint64_t clock;
	int err;

	/*
	 * Wall-clock timestamps need the clock of the device, so creation fails
	 * if the clock cannot be read.
	 */
	if (attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) {
		err = qrnic_read_clock(context, &clock);
		if (err) {
			errno = err;
			return NULL;
		}
	}
	cq = create_cq(context, attr);
	if (!cq)
		return NULL;
	qrnic_cq_set_poll_ops(cq, attr->wc_flags);
	return &cq->vcq.cq_ex;
}

/*
 * Resizes a CQ. The device moves the unconsumed CQEs to the new ring, and
 * writes the next CQEs there. So no thread may poll meanwhile or see an empty
 * CQ. Polling threads sleep instead of spinning, because the command takes
 * long; see qrnic_cq_lock().
 */
int qrnic_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct qrnic_context *ctx = to_qrnic_context(ibcq->context);
	struct qrnic_cq *cq = to_qrnic_cq(ibcq);
	struct ib_uverbs_resize_cq_resp resp = {};
	struct qrnic_resize_cq_cmd cmd = {};
	struct qrnic_buffer ring;
	uint32_t log_size;
	int err;

	if (!(ctx->capabilities & QRNIC_CAP_CQ_RESIZE))
		return EOPNOTSUPP;
	if (cqe <= 0 || (uint32_t)cqe > ctx->max_cqe)
		return EINVAL;

	log_size = cq_log_size(ctx, cqe);
	err = qrnic_buffer_alloc(ctx, &ring, (size_t)QRNIC_CQE_SIZE << log_size,
				 cq->pd, QRNICDV_RES_TYPE_CQ);
	if (err)
		return err;
	cmd.buf_addr = (uintptr_t)ring.addr;
	cmd.buf_length = ring.length;
	cmd.log_size = log_size;

	pthread_mutex_lock(&cq->resize_mutex);
	qrnic_lock(&cq->lock);
	cq->resizing = true;
	qrnic_unlock(&cq->lock);
	err = ibv_cmd_resize_cq(ibcq, 1 << log_size, &cmd.ibv_cmd, sizeof(cmd),
				&resp, sizeof(resp));
	qrnic_lock(&cq->lock);
	cq->resizing = false;
	if (!err) {
		struct qrnic_buffer old = cq->resized;

		cq->resized = ring;
		ring = old;
		cq->ring = cq->resized.addr;
		cq->log_size = log_size;
		cq->ahead = 0;
		ibcq->cqe = 1 << log_size;
	}
	qrnic_unlock(&cq->lock);
	pthread_mutex_unlock(&cq->resize_mutex);
	/*
	 * Frees the former ring, or the new ring after an error. The first ring
	 * is never freed here, because its buffer also contains the doorbell
	 * record.
	 */
	qrnic_buffer_free(&ring);
	return err;
}

int qrnic_modify_cq(struct ibv_cq *ibcq, struct ibv_modify_cq_attr *attr)
{
	struct ibv_modify_cq cmd = {};

	return ibv_cmd_modify_cq(ibcq, attr, &cmd, sizeof(cmd));
}

int qrnic_destroy_cq(struct ibv_cq *ibcq)
{
	struct qrnic_cq *cq = to_qrnic_cq(ibcq);
	int err;

	err = ibv_cmd_destroy_cq(ibcq);
	if (err)
		return err;
	pthread_mutex_destroy(&cq->resize_mutex);
	qrnic_lock_destroy(&cq->arm_lock);
	qrnic_lock_destroy(&cq->lock);
	qrnic_buffer_free(&cq->resized);
	qrnic_buffer_free(&cq->buf);
	qrnic_pd_unuse(cq->pd);
	free(cq);
	return 0;
}

/*
 * Counts an event that the program has received. The lock is not taken, because
 * the calling thread may hold it between start_poll() and end_poll().
 */
void qrnic_cq_event(struct ibv_cq *ibcq)
{
	atomic_fetch_add_explicit(&to_qrnic_cq(ibcq)->events, 1,
				  memory_order_relaxed);
}

/* Returns the number of events that the program has received. */
static uint32_t events_taken(struct qrnic_cq *cq)
{
	return atomic_load_explicit(&cq->events, memory_order_relaxed);
}

/*
 * Returns true if the device may not have seen a pending request for any CQE.
 * The doorbell record contains only the newest request. An event answers all
 * requests before it, so only requests since the last event count.
 */
static bool any_requested(struct qrnic_cq *cq)
{
	return cq->any_pending && cq->any_events == events_taken(cq);
}

/*
 * Requests an event. The lock is arm_lock, because the calling thread may hold
 * the lock of the CQ between start_poll() and end_poll(). CQEs that this thread
 * has not yet released count as new, and cause an event at once.
 */
int qrnic_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct qrnic_context *ctx = to_qrnic_context(ibcq->context);
	struct qrnic_cq *cq = to_qrnic_cq(ibcq);
	uint32_t arm, consumer;

	qrnic_lock(&cq->arm_lock);
	/*
	 * A new sequence number arms the device, so that each request is
	 * recognised
	 */
	cq->arm_sequence++;
	arm = FIELD_PREP(QRNIC_CQ_RECORD_SEQUENCE_MASK, cq->arm_sequence);
	if (!solicited_only) {
		cq->any_pending = true;
		cq->any_events = events_taken(cq);
	} else if (!any_requested(cq)) {
		arm |= QRNIC_CQ_RECORD_SOLICITED_MASK;
	}
	qrnic_store_record(&cq->record->arm, arm);
	/*
	 * The barrier keeps the doorbell behind the store to the record,
	 * because the device reads the request from the record.
	 */
	mmio_wc_start();
	consumer = le32toh(__atomic_load_n(&cq->record->consumer,
					   __ATOMIC_RELAXED));
	qrnic_ring_doorbell(&ctx->db, QRNIC_DB_CQ_ARM, cq->cqn, consumer);
	/*
	 * On a write-combining page the doorbell would otherwise wait in the
	 * CPU.
	 */
	mmio_flush_writes();
	qrnic_unlock(&cq->arm_lock);
	return 0;
}
