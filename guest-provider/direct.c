// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * direct.c: the direct verbs of qrnicdv.h, except those of mkey.c and
 * post_ex.c. Programs call these functions. Each function checks that its
 * object belongs to this provider, translates and checks the attributes, and
 * calls the file that implements the feature. Queries copy the state of a queue
 * under its lock.
 */
#include <errno.h>
#include <string.h>

#include <ccan/ilog.h>

#include "cq.h"
#include "qp.h"
#include "srq.h"

/*
 * Copies a structure to the program, up to the size that the program knows.
 * Returns EINVAL if the size is too small.
 */
static int give(void *to, size_t to_size, const void *from, size_t from_size)
{
	/*
	 * Every version of a structure has comp_mask, so a smaller size is
	 * invalid
	 */
	if (to_size < sizeof(uint64_t))
		return EINVAL;
	if (to_size > from_size) {
		memset(to + from_size, 0, to_size - from_size);
		to_size = from_size;
	}
	memcpy(to, from, to_size);
	return 0;
}

bool qrnicdv_is_supported(struct ibv_device *device)
{
	return qrnic_is_device(device);
}

struct ibv_context *qrnicdv_open_device(struct ibv_device *device,
					struct qrnicdv_context_attr *attr,
					size_t attr_size)
{
	struct qrnicdv_context_attr full = {};
	int err;

	err = qrnic_is_device(device) ?
	      qrnic_read_attr(&full, sizeof(full), attr, attr_size) :
	      EOPNOTSUPP;
	if (!err && (full.comp_mask || full.reserved ||
		     full.flags & ~(uint32_t)QRNICDV_CONTEXT_SHARED_VIRTUAL))
		err = EOPNOTSUPP;
	if (err) {
		errno = err;
		return NULL;
	}
	return verbs_open_device(device, &full);
}

int qrnicdv_query_device(struct ibv_context *context,
			 struct qrnicdv_device_attr *attr, size_t attr_size)
{
	struct qrnic_context *ctx = to_qrnic_context(context);
	struct qrnicdv_device_attr full = {};

	if (!qrnic_is_device(context->device))
		return EOPNOTSUPP;

	full.capabilities = ctx->capabilities;
	full.max_wqebb = ctx->max_wqebb;
	full.max_recv = ctx->max_recv;
	full.max_cqe = ctx->max_cqe;
	full.max_send_sge = ctx->max_send_sge;
	full.max_recv_sge = ctx->max_recv_sge;
	full.max_inline = ctx->max_inline;
	full.clock_khz = ctx->clock_khz;
	full.db_number = ctx->db.number;
	full.db_page = ctx->db.page;
	return give(attr, attr_size, &full, sizeof(full));
}

/*
 * True if a structure of a given size contains the whole member, so that its
 * bit in comp_mask is allowed
 */
#define COVERS(size, type, member) ((size) >= offsetofend(type, member))

/* True if a member is not 0; used for members without their bit in comp_mask */
#define IS_SET(full, member)                                                   \
	qrnic_has_more(&(full)->member, sizeof((full)->member), 0)

static int stream_of(const struct qrnicdv_stream_attr *attr,
		     struct qrnic_stream *stream)
{
	if (attr->reserved)
		return EOPNOTSUPP;
	if (!attr->max_message || !attr->max_messages ||
	    attr->max_messages > UINT16_MAX ||
	    attr->align & (attr->align - 1) ||
	    attr->align > 1u << QRNIC_STREAM_MAX_LOG_ALIGN)
		return EINVAL;
	*stream = (struct qrnic_stream){
		.max_message = attr->max_message,
		.max_messages = attr->max_messages,
		.log_align = attr->align ? ilog32(attr->align) - 1 : 0,
	};
	return 0;
}

/* Defaults: 16.8 ms idle time, and enough connections for a small node */
#define DEFAULT_IDLE		12u
#define DEFAULT_RESPONDERS	16u

static int dynamic_of(const struct qrnicdv_dc_attr *attr,
		      struct qrnic_qp_options *options)
{
	bool target = attr->dc_type == QRNICDV_DCTYPE_DCT;

	if (attr->flags & ~(uint32_t)QRNICDV_DC_FULL_HANDSHAKE)
		return EOPNOTSUPP;
	if (target ? attr->idle ||
		     attr->responders > QRNIC_MAX_DYNAMIC_RESPONDERS :
		     attr->dc_type != QRNICDV_DCTYPE_DCI ||
		     attr->dct_access_key || attr->responders ||
		     attr->idle > QRNIC_DYNAMIC_MAX_IDLE)
		return EINVAL;
	options->driver_type = target ? QRNIC_DRIVER_TYPE_DC_TARGET :
					QRNIC_DRIVER_TYPE_DC_INITIATOR;
	options->dynamic = (struct qrnic_dynamic){
		.access_key = attr->dct_access_key,
		.responders = !target || attr->responders ?
			      attr->responders : DEFAULT_RESPONDERS,
		.idle = target || attr->idle ? attr->idle : DEFAULT_IDLE,
		/*
		 * The flag of a target is not passed to the device, because
		 * initiators receive the flag by ECE.
		 */
		.flags = attr->flags && !target ? QRNIC_DYNAMICF_FULL : 0,
	};
	return 0;
}

/*
 * Returns true if a program sets other attributes than those in bits for a
 * target or a carrier. Targets and carriers have no queues, so other attributes
 * would have no effect.
 */
static bool is_more_than(const struct qrnicdv_qp_init_attr *attr, uint64_t bits)
{
	return attr->max_inl_recv || attr->comp_mask & ~bits;
}

static int dc_options(const struct qrnicdv_qp_init_attr *full, size_t size,
		      struct qrnic_qp_options *options)
{
	int err;

	if (!(full->comp_mask & QRNICDV_QP_INIT_ATTR_DC))
		return IS_SET(full, dc) ? EOPNOTSUPP : 0;
	if (!COVERS(size, struct qrnicdv_qp_init_attr, dc))
		return EINVAL;
	err = dynamic_of(&full->dc, options);
	options->wants_half = !full->dc.flags;
	if (!err && options->driver_type == QRNIC_DRIVER_TYPE_DC_TARGET &&
	    is_more_than(full, QRNICDV_QP_INIT_ATTR_DC))
		err = EOPNOTSUPP;
	return err;
}

static int carrier_options(const struct qrnicdv_qp_init_attr *full, size_t size,
			   enum ibv_qp_type type, struct qrnic_qp_options *options)
{
	const struct qrnicdv_carrier_attr *attr = &full->carrier;
	bool carrier = type == IBV_QPT_DRIVER;

	if (!(full->comp_mask & QRNICDV_QP_INIT_ATTR_CARRIER))
		return IS_SET(full, carrier) ? EOPNOTSUPP : 0;
	if (!COVERS(size, struct qrnicdv_qp_init_attr, carrier))
		return EINVAL;
	if (attr->reserved || (!carrier && type != IBV_QPT_RC) ||
	    (carrier && is_more_than(full, QRNICDV_QP_INIT_ATTR_CARRIER |
					   QRNICDV_QP_INIT_ATTR_OPTIONS)))
		return EOPNOTSUPP;
	/*
	 * A member needs key and number. A carrier must have neither, because
	 * the kernel chooses the key.
	 */
	if (!attr->key != carrier || !attr->number != carrier ||
	    attr->number & ~QRNIC_QPN_MASK)
		return EINVAL;
	options->is_carrier = carrier;
	options->carrier_key = attr->key;
	options->carrier = attr->number;
	return 0;
}

/*
 * Sets the options of a connection. A member has none, because its carrier has
 * the connection.
 */
static int connection_options(const struct qrnicdv_qp_init_attr *full, size_t size,
			      enum ibv_qp_type type, uint8_t known,
			      struct qrnic_qp_options *options)
{
	bool carrier = options->is_carrier;

	if (!(full->comp_mask & QRNICDV_QP_INIT_ATTR_OPTIONS))
		return IS_SET(full, options) ? EOPNOTSUPP : 0;
	if (!COVERS(size, struct qrnicdv_qp_init_attr, options))
		return EINVAL;
	if (carrier)
		known &= QRNIC_QPO_SELECTIVE_REPEAT;
	if ((!carrier && type != IBV_QPT_RC) || options->carrier ||
	    full->options & ~(uint32_t)known)
		return EOPNOTSUPP;
	options->connection = full->options;
	return 0;
}

static int create_options(struct ibv_context *context,
			  const struct qrnicdv_qp_init_attr *dv_attr, size_t size,
			  enum ibv_qp_type type, struct qrnic_qp_options *options,
			  uint32_t *max_recv_inline)
{
	const uint64_t known = QRNICDV_QP_INIT_ATTR_STREAM |
			       QRNICDV_QP_INIT_ATTR_PRIORITY |
			       QRNICDV_QP_INIT_ATTR_DC |
			       QRNICDV_QP_INIT_ATTR_CARRIER |
			       QRNICDV_QP_INIT_ATTR_OPTIONS;
	struct qrnicdv_qp_init_attr full = {};
	int err;

	err = qrnic_read_attr(&full, sizeof(full), dv_attr, size);
	if (err)
		return err;
	if (full.comp_mask & ~known || full.reserved || full.reserved2 ||
	    full.reserved3)
		return EOPNOTSUPP;
	*max_recv_inline = full.max_inl_recv;

	if (full.comp_mask & QRNICDV_QP_INIT_ATTR_STREAM) {
		if (!COVERS(size, struct qrnicdv_qp_init_attr, stream))
			return EINVAL;
		err = stream_of(&full.stream, &options->stream);
		if (err)
			return err;
	} else if (IS_SET(&full, stream)) {
		return EOPNOTSUPP;
	}

	if (full.comp_mask & QRNICDV_QP_INIT_ATTR_PRIORITY) {
		if (!COVERS(size, struct qrnicdv_qp_init_attr, priority) ||
		    full.priority > QRNIC_PRIORITY_LEVELS)
			return EINVAL;
		options->has_priority = true;
		options->priority = full.priority;
	} else if (IS_SET(&full, priority)) {
		return EOPNOTSUPP;
	}

	err = dc_options(&full, size, options);
	if (!err)
		err = carrier_options(&full, size, type, options);
	if (!err)
		err = connection_options(&full, size, type,
					 qrnic_options_known(to_qrnic_context(context)),
					 options);
	return err;
}

struct ibv_qp *qrnicdv_create_qp(struct ibv_context *context,
				 struct ibv_qp_init_attr_ex *attr,
				 struct qrnicdv_qp_init_attr *dv_attr,
				 size_t dv_attr_size)
{
	struct qrnic_qp_options options = {};
	uint32_t max_recv_inline = 0;
	struct ibv_qp *qp;
	int err;

	err = qrnic_is_device(context->device) ?
	      create_options(context, dv_attr, dv_attr_size, attr->qp_type,
			     &options, &max_recv_inline) :
	      EOPNOTSUPP;
	if (err) {
		errno = err;
		return NULL;
	}
	if (options.driver_type == QRNIC_DRIVER_TYPE_DC_TARGET)
		return qrnic_create_dynamic_target(context, attr, &options);
	if (options.is_carrier) {
		qp = qrnic_create_carrier(context, attr, &options);
		if (qp)
			dv_attr->carrier.key = to_qrnic_qp(qp)->carrier_key;
		return qp;
	}
	qp = qrnic_create_qp_inline(context, attr, &max_recv_inline, &options);
	if (qp && COVERS(dv_attr_size, struct qrnicdv_qp_init_attr, max_inl_recv))
		dv_attr->max_inl_recv = max_recv_inline;
	return qp;
}

int qrnicdv_modify_priority(struct ibv_qp *ibqp, uint32_t priority)
{
	if (!qrnic_is_device(ibqp->context->device))
		return EOPNOTSUPP;
	return qrnic_modify_priority(ibqp, priority);
}

int qrnicdv_query_priority(struct ibv_qp *ibqp, struct qrnicdv_priority *attr,
			   size_t attr_size)
{
	struct qrnicdv_priority full = {};
	int err;

	if (!qrnic_is_device(ibqp->context->device))
		return EOPNOTSUPP;
	err = qrnic_query_priority(ibqp, &full.priority, &full.level);
	return err ? err : give(attr, attr_size, &full, sizeof(full));
}

struct ibv_srq *qrnicdv_create_srq(struct ibv_context *context,
				   struct ibv_srq_init_attr_ex *attr,
				   struct qrnicdv_srq_init_attr *dv_attr,
				   size_t dv_attr_size)
{
	struct qrnicdv_srq_init_attr full = {};
	struct qrnic_stream stream = {};
	int err;

	err = qrnic_is_device(context->device) ?
	      qrnic_read_attr(&full, sizeof(full), dv_attr, dv_attr_size) :
	      EOPNOTSUPP;
	if (!err && full.comp_mask & ~(uint64_t)QRNICDV_SRQ_INIT_ATTR_STREAM)
		err = EOPNOTSUPP;
	if (!err && !full.comp_mask) {
		if (!IS_SET(&full, stream))
			return ibv_create_srq_ex(context, attr);
		err = EOPNOTSUPP;
	}
	if (!err && !COVERS(dv_attr_size, struct qrnicdv_srq_init_attr, stream))
		err = EINVAL;
	if (!err)
		err = stream_of(&full.stream, &stream);
	if (err) {
		errno = err;
		return NULL;
	}
	return qrnic_create_srq_stream(context, attr, &stream);
}

uint32_t qrnicdv_wc_read_stream(struct ibv_cq_ex *ibcq, uint32_t *offset)
{
	const struct qrnic_cq *cq = to_qrnic_cq_ex(ibcq);

	*offset = 0;
	if (!qrnic_is_device(ibcq->context->device))
		return 0;
	*offset = le32toh(cq->current->offset);
	return cq->used_up ? QRNICDV_WC_STREAM_USED : 0;
}

static void show_wq(struct qrnic_wq *wq, uint32_t stride,
		    struct qrnicdv_wq *shown)
{
	qrnic_lock(&wq->lock);
	shown->ring = wq->ring;
	shown->record = wq->record;
	shown->size = wq->size;
	shown->stride = stride;
	shown->producer = wq->producer;
	shown->consumer = atomic_load_explicit(&wq->consumer,
					       memory_order_relaxed);
	qrnic_unlock(&wq->lock);
}

int qrnicdv_query_qp(struct ibv_qp *ibqp, struct qrnicdv_qp *attr,
		     size_t attr_size)
{
	struct qrnic_qp *qp = to_qrnic_qp(ibqp);
	struct qrnicdv_qp full = {};

	if (!qrnic_is_device(ibqp->context->device))
		return EOPNOTSUPP;

	full.qpn = ibqp->qp_num;
	if (attr_size >= offsetof(struct qrnicdv_qp, db_page))
		full.comp_mask |= QRNICDV_QP_MAX_INL_RECV;
	full.max_inl_recv = qp->max_recv_inline;
	full.db_page = qp->db->page;
	if (qp->has_sq)
		show_wq(&qp->sq, QRNIC_WQEBB_SIZE, &full.sq);
	if (qp->has_rq)
		show_wq(&qp->rq, 1u << qp->rq_stride_shift, &full.rq);
	return give(attr, attr_size, &full, sizeof(full));
}

int qrnicdv_query_cq(struct ibv_cq *ibcq, struct qrnicdv_cq *attr,
		     size_t attr_size)
{
	struct qrnic_cq *cq = to_qrnic_cq(ibcq);
	struct qrnicdv_cq full = {};

	if (!qrnic_is_device(ibcq->context->device))
		return EOPNOTSUPP;

	qrnic_cq_lock(cq);
	full.cqn = cq->cqn;
	full.size = 1u << cq->log_size;
	full.consumer = cq->consumer;
	qrnic_lock(&cq->arm_lock);
	full.arm_sequence = cq->arm_sequence;
	qrnic_unlock(&cq->arm_lock);
	full.ring = cq->ring;
	full.record = cq->record;
	full.db_page = to_qrnic_context(ibcq->context)->db.page;
	qrnic_cq_unlock(cq);
	return give(attr, attr_size, &full, sizeof(full));
}
