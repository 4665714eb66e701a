// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * cq.c: completion queues: creation, polling by ibv_poll_cq() and by the extended
 * interface, requests for events.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/array_size.h>
#include <ccan/ilog.h>
#include <ccan/minmax.h>

#include "qrnic.h"
#include "abi.h"
#include "compat.h"

/*
 * As many CQEs as share a page with the record. Programs exist that ask for one
 * CQE and have two completions, since other adapters round up as well.
 */
#define QRNIC_CQ_MIN_SIZE 32u

/* What the extended interface can read; the rest is of no meaning for RC */
#define QRNIC_WC_FLAGS                                                         \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)

/* The one place where statuses of the device become those of the verbs */
static enum ibv_wc_status cqe_status(const struct qrnic_cqe *cqe)
{
	static const uint8_t status[] = {
		[QRNIC_WC_SUCCESS] = IBV_WC_SUCCESS,
		[QRNIC_WC_LOC_LEN_ERR] = IBV_WC_LOC_LEN_ERR,
		[QRNIC_WC_LOC_QP_OP_ERR] = IBV_WC_LOC_QP_OP_ERR,
		[3] = IBV_WC_GENERAL_ERR,
		[QRNIC_WC_LOC_PROT_ERR] = IBV_WC_LOC_PROT_ERR,
		[QRNIC_WC_WR_FLUSH_ERR] = IBV_WC_WR_FLUSH_ERR,
		[6] = IBV_WC_GENERAL_ERR,
		[QRNIC_WC_BAD_RESP_ERR] = IBV_WC_BAD_RESP_ERR,
		[QRNIC_WC_LOC_ACCESS_ERR] = IBV_WC_LOC_ACCESS_ERR,
		[QRNIC_WC_REM_INV_REQ_ERR] = IBV_WC_REM_INV_REQ_ERR,
		[QRNIC_WC_REM_ACCESS_ERR] = IBV_WC_REM_ACCESS_ERR,
		[QRNIC_WC_REM_OP_ERR] = IBV_WC_REM_OP_ERR,
		[QRNIC_WC_RETRY_EXC_ERR] = IBV_WC_RETRY_EXC_ERR,
		[QRNIC_WC_RNR_RETRY_EXC_ERR] = IBV_WC_RNR_RETRY_EXC_ERR,
	};
	uint32_t value = FIELD_GET(QRNIC_CQE_STATUS_MASK, le32toh(cqe->control));

	return value < ARRAY_SIZE(status) ? status[value] : IBV_WC_GENERAL_ERR;
}

static bool cqe_is_receive(const struct qrnic_cqe *cqe)
{
	return le32toh(cqe->control) &
	       FIELD_PREP(QRNIC_CQE_OPCODE_MASK, QRNIC_CQE_RECV);
}

static enum ibv_wc_opcode cqe_opcode(const struct qrnic_cqe *cqe)
{
	/* Only bit 7 is defined in a CQE with an error; the rest gives a send */
	switch (FIELD_GET(QRNIC_CQE_OPCODE_MASK, le32toh(cqe->control))) {
	case QRNIC_CQE_RDMA_WRITE:
		return IBV_WC_RDMA_WRITE;
	case QRNIC_CQE_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case QRNIC_CQE_ATOMIC_CMP_SWAP:
		return IBV_WC_COMP_SWAP;
	case QRNIC_CQE_ATOMIC_FETCH_ADD:
		return IBV_WC_FETCH_ADD;
	case QRNIC_CQE_RECV_RDMA_WITH_IMM:
		return IBV_WC_RECV_RDMA_WITH_IMM;
	default:
		return cqe_is_receive(cqe) ? IBV_WC_RECV : IBV_WC_SEND;
	}
}

static unsigned int cqe_wc_flags(const struct qrnic_cqe *cqe)
{
	uint32_t flags = FIELD_GET(QRNIC_CQE_FLAGS_MASK, le32toh(cqe->control));

	return flags & QRNIC_CQEF_IMM ? IBV_WC_WITH_IMM : 0;
}

static struct qrnic_cqe *cq_entry(struct qrnic_cq *cq, uint32_t index)
{
	return &cq->ring[index & ((1u << cq->log_size) - 1)];
}

/*
 * Whether the CQE at an index is written. The phase is 1 in the first pass
 * through the ring and changes with each pass (manual, "Completion queues").
 */
static bool cq_has(struct qrnic_cq *cq, uint32_t index)
{
	const struct qrnic_cqe *cqe = cq_entry(cq, index);
	uint32_t control = le32toh(*(const volatile __le32 *)&cqe->control);

	bool odd_pass = index >> cq->log_size & 1;

	return FIELD_GET(QRNIC_CQE_PHASE_MASK, control) == !odd_pass;
}

/* Lets the device have the slots of the CQEs consumed */
static void cq_release(struct qrnic_cq *cq)
{
	/*
	 * Stops the reads of those CQEs from moving behind the store: the device
	 * may write the slots again as soon as it sees the new index.
	 */
	udma_from_device_barrier();
	*(volatile __le32 *)&cq->record->consumer = htole32(cq->consumer);
}

/* Moves the queue's consumer and finds the wr_id; the CQE is the oldest one */
static uint64_t cqe_retire(struct qrnic_qp *qp, const struct qrnic_cqe *cqe)
{
	uint32_t index = le32toh(cqe->index);
	struct qrnic_wq *wq;
	uint32_t slot, end;
	uint64_t wr_id;

	if (cqe_is_receive(cqe)) {
		wq = &qp->rq;
		slot = index & (wq->size - 1);
		end = index + 1;
	} else {
		/* Unsignaled WQEs before it are done too, and retire with it */
		wq = &qp->sq;
		slot = index & (wq->size - 1);
		end = index + qp->sq_blocks[slot];
	}
	wr_id = wq->wr_id[slot];
	/*
	 * Release: the reads of wr_id and sq_blocks stay before the store, after
	 * which a thread that posts may reuse the slots.
	 */
	atomic_store_explicit(&wq->consumer, end, memory_order_release);
	return wr_id;
}

/* Takes the next CQE; NULL if there is none */
static const struct qrnic_cqe *cq_next(struct qrnic_cq *cq, uint64_t *wr_id)
{
	struct qrnic_context *ctx = to_qrnic_context(cq->vcq.cq.context);
	const struct qrnic_cqe *cqe;
	struct qrnic_qp *qp;

	while (cq_has(cq, cq->consumer)) {
		/*
		 * Stops the reads of the CQE from moving before the read of its
		 * phase: the device writes control last.
		 */
		udma_from_device_barrier();
		cqe = cq_entry(cq, cq->consumer++);
		qp = qrnic_qp_find(ctx, le32toh(cqe->qpn));
		if (likely(qp)) {
			*wr_id = cqe_retire(qp, cqe);
			return cqe;
		}
		/* qrnic_cq_clean() leaves none of a QP that is gone */
		verbs_err(&ctx->vctx, "CQ %u: completion of unknown QP %u\n",
			  cq->cqn, le32toh(cqe->qpn));
	}
	return NULL;
}

static void cqe_to_wc(const struct qrnic_cqe *cqe, struct ibv_wc *wc)
{
	wc->status = cqe_status(cqe);
	wc->opcode = cqe_opcode(cqe);
	wc->vendor_err = le32toh(cqe->syndrome);
	wc->byte_len = le32toh(cqe->byte_len);
	wc->imm_data = cqe->imm;
	wc->qp_num = le32toh(cqe->qpn);
	wc->src_qp = 0;
	wc->wc_flags = cqe_wc_flags(cqe);
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = 0;
	wc->dlid_path_bits = 0;
}

int qrnic_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct qrnic_cq *cq = to_qrnic_cq(ibcq);
	const struct qrnic_cqe *cqe;
	uint32_t before;
	int done = 0;

	qrnic_lock(&cq->lock);
	before = cq->consumer;
	while (done < num_entries) {
		cqe = cq_next(cq, &wc[done].wr_id);
		if (!cqe)
			break;
		cqe_to_wc(cqe, &wc[done++]);
	}
	if (cq->consumer != before)
		cq_release(cq);
	qrnic_unlock(&cq->lock);
	return done;
}

static int qrnic_next_poll(struct ibv_cq_ex *ibcq)
{
	struct qrnic_cq *cq = to_qrnic_cq_ex(ibcq);

	cq->current = cq_next(cq, &ibcq->wr_id);
	if (!cq->current)
		return ENOENT;
	ibcq->status = cqe_status(cq->current);
	return 0;
}

static int qrnic_start_poll(struct ibv_cq_ex *ibcq,
			    struct ibv_poll_cq_attr *attr)
{
	struct qrnic_cq *cq = to_qrnic_cq_ex(ibcq);
	uint32_t before;
	int err;

	if (attr->comp_mask)
		return EINVAL;

	qrnic_lock(&cq->lock);
	before = cq->consumer;
	err = qrnic_next_poll(ibcq);
	if (err) {
		/* No end_poll() follows */
		if (cq->consumer != before)
			cq_release(cq);
		qrnic_unlock(&cq->lock);
	}
	return err;
}

static void qrnic_end_poll(struct ibv_cq_ex *ibcq)
{
	struct qrnic_cq *cq = to_qrnic_cq_ex(ibcq);

	cq->current = NULL;
	cq_release(cq);
	qrnic_unlock(&cq->lock);
}

static enum ibv_wc_opcode qrnic_read_opcode(struct ibv_cq_ex *ibcq)
{
	return cqe_opcode(to_qrnic_cq_ex(ibcq)->current);
}

static uint32_t qrnic_read_vendor_err(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_qrnic_cq_ex(ibcq)->current->syndrome);
}

static uint32_t qrnic_read_byte_len(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_qrnic_cq_ex(ibcq)->current->byte_len);
}

static __be32 qrnic_read_imm_data(struct ibv_cq_ex *ibcq)
{
	return to_qrnic_cq_ex(ibcq)->current->imm;
}

static uint32_t qrnic_read_qp_num(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_qrnic_cq_ex(ibcq)->current->qpn);
}

static unsigned int qrnic_read_wc_flags(struct ibv_cq_ex *ibcq)
{
	return cqe_wc_flags(to_qrnic_cq_ex(ibcq)->current);
}

static uint64_t qrnic_read_completion_ts(struct ibv_cq_ex *ibcq)
{
	return le64toh(to_qrnic_cq_ex(ibcq)->current->timestamp);
}

/* Datagrams and InfiniBand addressing have these; a connection over Ethernet not */
static uint32_t qrnic_read_zero(struct ibv_cq_ex *ibcq)
{
	return 0;
}

static uint8_t qrnic_read_zero_byte(struct ibv_cq_ex *ibcq)
{
	return 0;
}

static void set_poll_ops(struct ibv_cq_ex *cq, uint64_t wc_flags)
{
	cq->start_poll = qrnic_start_poll;
	cq->next_poll = qrnic_next_poll;
	cq->end_poll = qrnic_end_poll;
	cq->read_opcode = qrnic_read_opcode;
	cq->read_vendor_err = qrnic_read_vendor_err;
	cq->read_wc_flags = qrnic_read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		cq->read_byte_len = qrnic_read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		cq->read_imm_data = qrnic_read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		cq->read_qp_num = qrnic_read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		cq->read_src_qp = qrnic_read_zero;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		cq->read_slid = qrnic_read_zero;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		cq->read_sl = qrnic_read_zero_byte;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		cq->read_dlid_path_bits = qrnic_read_zero_byte;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		cq->read_completion_ts = qrnic_read_completion_ts;
}

static int check_cq_attr(const struct qrnic_context *ctx,
			 const struct ibv_cq_init_attr_ex *attr)
{
	if (!check_comp_mask(attr->comp_mask, IBV_CQ_INIT_ATTR_MASK_FLAGS))
		return EOPNOTSUPP;
	/* The device reports an overrun always, so it cannot be told to ignore it */
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
	    !check_comp_mask(attr->flags, IBV_CREATE_CQ_ATTR_SINGLE_THREADED))
		return EOPNOTSUPP;
	if (!check_comp_mask(attr->wc_flags, QRNIC_WC_FLAGS))
		return EOPNOTSUPP;
	if ((attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) &&
	    !(ctx->capabilities & QRNIC_CAP_TIMESTAMP))
		return EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > ctx->max_cqe)
		return EINVAL;
	return 0;
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
	uint32_t cqe;
	int err;

	err = check_cq_attr(ctx, attr);
	if (err)
		goto err_out;

	cq = calloc(1, sizeof(*cq));
	if (!cq) {
		err = ENOMEM;
		goto err_out;
	}
	cqe = min_t(uint32_t, QRNIC_CQ_MIN_SIZE, ctx->max_cqe);
	cqe = max_t(uint32_t, attr->cqe, cqe);
	cq->log_size = ilog32(cqe - 1);
	record_offset = align((size_t)QRNIC_CQE_SIZE << cq->log_size,
			      QRNIC_RECORD_ALIGN);
	err = qrnic_buffer_alloc(ctx, &cq->buf,
				 record_offset + QRNIC_RECORD_SIZE);
	if (err)
		goto err_free;
	cq->ring = cq->buf.addr;
	cq->record = cq->buf.addr + record_offset;

	cmd.buf_addr = (uintptr_t)cq->buf.addr;
	cmd.buf_length = cq->buf.length;
	cmd.record_offset = record_offset;
	cmd.log_size = cq->log_size;

	/* The kernel need not know what is read out of CQEs, nor by whom */
	kernel_attr.cqe = 1u << cq->log_size;
	kernel_attr.wc_flags = 0;
	kernel_attr.comp_mask = 0;
	kernel_attr.flags = 0;
	err = qrnic_cmd_create_cq_ex(context, &kernel_attr, &cq->vcq,
				     &cmd.ibv_cmd, sizeof(cmd), &resp.ibv_resp,
				     sizeof(resp));
	if (err)
		goto err_buffer;

	cq->cqn = resp.cqn;
	cq->vcq.cq.cqe = 1u << cq->log_size;
	qrnic_lock_init(&cq->lock, !ctx->single_threaded &&
			!((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
			  (attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED)));
	return cq;

err_buffer:
	qrnic_buffer_free(&cq->buf);
err_free:
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
	struct qrnic_cq *cq = create_cq(context, attr);

	if (!cq)
		return NULL;
	set_poll_ops(&cq->vcq.cq_ex, attr->wc_flags);
	return &cq->vcq.cq_ex;
}

int qrnic_destroy_cq(struct ibv_cq *ibcq)
{
	struct qrnic_cq *cq = to_qrnic_cq(ibcq);
	int err;

	err = ibv_cmd_destroy_cq(ibcq);
	if (err)
		return err;
	qrnic_lock_destroy(&cq->lock);
	qrnic_buffer_free(&cq->buf);
	free(cq);
	return 0;
}

/* No lock: a thread may hold it, from start_poll() to end_poll() */
void qrnic_cq_event(struct ibv_cq *ibcq)
{
	atomic_fetch_add_explicit(&to_qrnic_cq(ibcq)->events, 1,
				  memory_order_relaxed);
}

/*
 * Whether the device may not have seen the last request for any CQE: its record
 * holds the newest request only. There is one event at most for each request, so
 * as many events as requests up to that one say that it was seen.
 */
static bool any_requested(struct qrnic_cq *cq)
{
	uint32_t events = atomic_load_explicit(&cq->events,
					       memory_order_relaxed);

	return (int32_t)(cq->any_request - events) > 0;
}

int qrnic_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct qrnic_context *ctx = to_qrnic_context(ibcq->context);
	struct qrnic_cq *cq = to_qrnic_cq(ibcq);
	uint32_t arm;

	qrnic_lock(&cq->lock);
	/* A sequence number that the device has not seen is what arms */
	cq->arm_sequence++;
	arm = FIELD_PREP(QRNIC_CQ_RECORD_SEQUENCE_MASK, cq->arm_sequence);
	if (!solicited_only)
		cq->any_request = cq->arm_sequence;
	else if (!any_requested(cq))
		arm |= QRNIC_CQ_RECORD_SOLICITED_MASK;
	*(volatile __le32 *)&cq->record->arm = htole32(arm);
	/*
	 * Stops the doorbell from passing the store to the record: the device
	 * takes the request from there.
	 */
	mmio_wc_start();
	qrnic_ring_doorbell(ctx, QRNIC_DB_CQ_ARM, cq->cqn, cq->consumer);
	/* Sends the doorbell now, should the page be mapped write-combining */
	mmio_flush_writes();
	qrnic_unlock(&cq->lock);
	return 0;
}

/*
 * Takes the completions of a QP that is destroyed or reset out of the CQ, and
 * moves the younger ones of other QPs down. The device may append meanwhile, so
 * slots keep the phase of their pass. Neither queue of the QP completes any more.
 */
void qrnic_cq_clean(struct qrnic_cq *cq, uint32_t qpn)
{
	uint32_t size = 1u << cq->log_size;
	uint32_t end, from, to;
	struct qrnic_cqe *cqe;

	qrnic_lock(&cq->lock);
	end = cq->consumer;
	while (end - cq->consumer < size && cq_has(cq, end))
		end++;
	/* As in cq_next(): phases before contents */
	udma_from_device_barrier();

	to = end;
	for (from = end; from != cq->consumer;) {
		cqe = cq_entry(cq, --from);
		if (le32toh(cqe->qpn) == qpn)
			continue;
		if (--to == from)
			continue;
		struct qrnic_cqe moved = *cqe;

		moved.control &= ~htole32(QRNIC_CQE_PHASE_MASK);
		cqe = cq_entry(cq, to);
		moved.control |= cqe->control & htole32(QRNIC_CQE_PHASE_MASK);
		*cqe = moved;
	}
	if (to != cq->consumer) {
		cq->consumer = to;
		cq_release(cq);
	}
	qrnic_unlock(&cq->lock);
}
