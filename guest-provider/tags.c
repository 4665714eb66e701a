// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * tags.c: tag lists of SRQs of type IBV_SRQT_TM (manual, "Tag matching").
 * Programs post operations with ibv_post_srq_ops(), and poll.c calls
 * qrnic_tags_retire() for their completions and for those of entries. srq.c
 * allocates and frees the list. The lock of the SRQ is held in both cases.
 */
#include <errno.h>
#include <stdlib.h>

#include <ccan/ilog.h>
#include <ccan/minmax.h>
#include <util/mmio.h>

#include "qp.h"
#include "srq.h"

/*
 * A handle is the number of an entry. The upper bits count the uses of the
 * entry, so that an old handle is recognised.
 */
#define HANDLE_BITS 14u
#define HANDLE_MASK ((1u << HANDLE_BITS) - 1)

struct tag_entry {
	uint64_t wr_id;
	/* Next free entry, if this entry is free */
	uint32_t next;
	uint32_t uses;
	bool posted;
};

struct tag_op {
	uint64_t wr_id;
	uint32_t entry;
	bool add;
	/*
	 * True if the program did not request the completion, and so must not
	 * see it
	 */
	bool hidden;
};

/*
 * A tag list and its ring of operations. The lock of the SRQ protects all
 * members but buf.
 */
struct qrnic_tags {
	struct qrnic_buffer buf;
	struct qrnic_queue_record *record;
	uint32_t slots;
	uint32_t log_stride;
	uint32_t max_sge;
	uint32_t producer;
	uint32_t consumer;
	/* Producer index of the last operation with a completion */
	uint32_t signaled;
	uint32_t max_tags;
	uint32_t free;
	struct tag_entry *entry;
	struct tag_op *op;
};

void qrnic_tags_free(struct qrnic_tags *tags)
{
	if (!tags)
		return;
	qrnic_buffer_free(&tags->buf);
	free(tags->entry);
	free(tags->op);
	free(tags);
}

int qrnic_tags_alloc(struct qrnic_srq *srq,
		     const struct ibv_srq_init_attr_ex *attr)
{
	const struct ibv_tm_cap *cap = &attr->tm_cap;
	struct qrnic_context *ctx = srq->ctx;
	struct qrnic_tags *tags;
	uint32_t i, room;
	size_t length;
	int err;

	if (!cap->max_num_tags || cap->max_num_tags >= QRNIC_MAX_TAGS ||
	    !cap->max_ops || cap->max_ops > QRNIC_MAX_TAG_OPS)
		return EINVAL;
	tags = calloc(1, sizeof(*tags));
	if (!tags)
		return ENOMEM;
	srq->tags = tags;
	tags->max_tags = cap->max_num_tags;
	tags->slots = 1u << ilog32(cap->max_ops - 1);
	/* An entry may have as many data segments as a receive WQE */
	tags->log_stride =
		ilog32(qrnic_wqebbs(QRNIC_TAG_OP_SEGMENTS + ctx->max_recv_sge) -
		       1);
	room = (QRNIC_SEGMENTS_PER_WQEBB << tags->log_stride) -
	       QRNIC_TAG_OP_SEGMENTS;
	tags->max_sge = min_t(uint32_t, room, ctx->max_recv_sge);
	tags->op = calloc(tags->slots, sizeof(*tags->op));
	tags->entry = calloc(tags->max_tags, sizeof(*tags->entry));
	if (!tags->op || !tags->entry)
		return ENOMEM;
	for (i = 0; i < tags->max_tags; i++)
		tags->entry[i].next = i + 1;

	length = (size_t)tags->slots << (QRNIC_WQEBB_SHIFT + tags->log_stride);
	err = qrnic_buffer_alloc(ctx, &tags->buf, length + QRNIC_RECORD_SIZE,
				 srq->pd, QRNICDV_RES_TYPE_SRQ);
	if (err)
		return err;
	tags->record = tags->buf.addr + length;
	return 0;
}

struct qrnic_tag_ring qrnic_tags_request(const struct qrnic_tags *tags)
{
	return (struct qrnic_tag_ring){
		.buf_addr = (uintptr_t)tags->buf.addr,
		.buf_length = tags->buf.length,
		.record_offset = (void *)tags->record - tags->buf.addr,
		.log_size = ilog32(tags->slots) - 1,
		.log_stride = tags->log_stride,
	};
}

/*
 * Finds the entry that ADD allocates or DEL removes. Returns an errno value or
 * 0.
 */
static int find_entry(struct qrnic_tags *tags, struct ibv_ops_wr *wr,
		      uint32_t *number)
{
	struct tag_entry *entry;

	*number = 0;
	switch (wr->opcode) {
	case IBV_WR_TAG_ADD:
		if (wr->tm.add.num_sge < 0 ||
		    (uint32_t)wr->tm.add.num_sge > tags->max_sge)
			return EINVAL;
		if (tags->free == tags->max_tags)
			return ENOMEM;
		*number = tags->free;
		return 0;
	case IBV_WR_TAG_DEL:
		*number = wr->tm.handle & HANDLE_MASK;
		if (*number >= tags->max_tags)
			return EINVAL;
		entry = &tags->entry[*number];
		/*
		 * A message has already matched the entry. The operation is
		 * posted with an invalid number, so that the device completes
		 * it with an error.
		 */
		if (!entry->posted || entry->uses != wr->tm.handle >> HANDLE_BITS)
			*number = tags->max_tags;
		return 0;
	case IBV_WR_TAG_SYNC:
		return 0;
	default:
		return EINVAL;
	}
}

static void take_entry(struct qrnic_tags *tags, struct ibv_ops_wr *wr,
		       uint32_t number)
{
	struct tag_entry *entry = &tags->entry[number];

	tags->free = entry->next;
	entry->uses = (entry->uses + 1) & (UINT32_MAX >> HANDLE_BITS);
	entry->wr_id = wr->tm.add.recv_wr_id;
	entry->posted = true;
	wr->tm.handle = entry->uses << HANDLE_BITS | number;
}

static void give_entry(struct qrnic_tags *tags, uint32_t number)
{
	struct tag_entry *entry = &tags->entry[number];

	entry->posted = false;
	entry->next = tags->free;
	tags->free = number;
}

static int build_op(struct qrnic_tags *tags, struct ibv_ops_wr *wr)
{
	static const uint8_t opcode[] = {
		[IBV_WR_TAG_ADD] = QRNIC_WQE_TAG_ADD,
		[IBV_WR_TAG_DEL] = QRNIC_WQE_TAG_DEL,
		[IBV_WR_TAG_SYNC] = QRNIC_WQE_TAG_SYNC,
	};
	bool add = wr->opcode == IBV_WR_TAG_ADD;
	uint32_t slot = tags->producer & (tags->slots - 1);
	union qrnic_segment *segment =
		tags->buf.addr + ((size_t)slot << (QRNIC_WQEBB_SHIFT +
						   tags->log_stride));
	struct qrnic_tag_op *op = (void *)segment;
	uint32_t number;
	bool signal;
	int err, i;

	if (wr->flags & ~(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC))
		return EINVAL;
	if (tags->producer - tags->consumer == tags->slots)
		return ENOMEM;
	err = find_entry(tags, wr, &number);
	if (err)
		return err;
	if (add)
		take_entry(tags, wr, number);

	/*
	 * At least every half ring one operation completes, because only
	 * completions free slots of the ring.
	 */
	signal = wr->flags & IBV_OPS_SIGNALED ||
		 wr->opcode == IBV_WR_TAG_DEL ||
		 tags->producer - tags->signaled >= tags->slots / 2;
	tags->op[slot] = (struct tag_op){
		.wr_id = wr->wr_id,
		.entry = wr->opcode == IBV_WR_TAG_SYNC ? tags->max_tags :
							 number,
		.add = add,
		.hidden = !(wr->flags & IBV_OPS_SIGNALED),
	};
	if (signal)
		tags->signaled = tags->producer;
	*op = (struct qrnic_tag_op){
		.opcode = opcode[wr->opcode],
		.flags = (signal ? QRNIC_TAGF_SIGNALED : 0) |
			 (wr->flags & IBV_OPS_TM_SYNC ? QRNIC_TAGF_SYNC : 0),
		.data_segments = htole16(add ? wr->tm.add.num_sge : 0),
		.index = htole32(tags->producer),
		.handle = htole32(number),
		.unexpected = htole32(wr->flags & IBV_OPS_TM_SYNC ?
				      wr->tm.unexpected_cnt : 0),
		.tag = htole64(add ? wr->tm.add.tag : 0),
		.mask = htole64(add ? wr->tm.add.mask : 0),
	};
	for (i = 0; add && i < wr->tm.add.num_sge; i++)
		qrnic_set_data(&segment[QRNIC_TAG_OP_SEGMENTS + i].data,
			       wr->tm.add.sg_list[i].addr,
			       wr->tm.add.sg_list[i].length,
			       wr->tm.add.sg_list[i].lkey);
	tags->producer++;
	return 0;
}

int qrnic_post_srq_ops(struct ibv_srq *ibsrq, struct ibv_ops_wr *wr,
		       struct ibv_ops_wr **bad_wr)
{
	struct qrnic_srq *srq = to_qrnic_srq(ibsrq);
	struct qrnic_tags *tags = srq->tags;
	uint32_t before;
	int err = 0;

	if (!tags) {
		*bad_wr = wr;
		return EOPNOTSUPP;
	}
	qrnic_lock(&srq->lock);
	before = tags->producer;
	for (; wr; wr = wr->next) {
		err = build_op(tags, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	if (tags->producer != before) {
		/*
		 * The order is operations, record, doorbell, because the device
		 * reads the operations after the record (manual, "Doorbells")
		 */
		udma_to_device_barrier();
		qrnic_store_record(&tags->record->producer, tags->producer);
		mmio_wc_start();
		qrnic_ring_doorbell(&srq->ctx->db, QRNIC_DB_SRQ, srq->srqn,
				    tags->producer);
		mmio_flush_writes();
	}
	qrnic_unlock(&srq->lock);
	return err;
}

/*
 * Releases an entry or operation for a CQE with CQET_ENTRY or CQET_OPERATION.
 * Returns false if the program does not see the CQE. Numbers are checked,
 * because the device is not trusted. The caller holds the lock of the SRQ.
 */
bool qrnic_tags_retire(struct qrnic_tags *tags, const struct qrnic_cqe *cqe,
		       uint64_t *wr_id)
{
	bool ok = !FIELD_GET(QRNIC_CQE_STATUS_MASK, le32toh(cqe->control));
	uint32_t index = le32toh(cqe->index);
	struct tag_op *op;

	if (cqe->tagged & QRNIC_CQET_ENTRY) {
		if (index >= tags->max_tags || !tags->entry[index].posted)
			return false;
		*wr_id = tags->entry[index].wr_id;
		/*
		 * A match whose data is not complete keeps its handle, because
		 * a second CQE reports the end of the data
		 */
		if (!ok || cqe->tagged & QRNIC_CQET_DATA_VALID)
			give_entry(tags, index);
		return true;
	}
	if (index - tags->consumer >= tags->producer - tags->consumer)
		return false;
	op = &tags->op[index & (tags->slots - 1)];
	tags->consumer = index + 1;
	*wr_id = op->wr_id;
	/* The entry is released if ADD has failed or DEL has succeeded */
	if (op->add != ok && op->entry < tags->max_tags &&
	    tags->entry[op->entry].posted)
		give_entry(tags, op->entry);
	return !op->hidden || !ok;
}
