// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * srq_ring.c: the ring of a shared receive queue. Slots become free in any
 * order, so a list links the free slots by their numbers. Each WQE contains the
 * slot of the next WQE (manual, "Shared receive queues").
 *
 * Programs post here, and poll.c releases slots here. Both hold the lock of the
 * SRQ. srq_resize.c replaces the ring.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/minmax.h>

#include "qp.h"
#include "srq.h"

int qrnic_srq_ring_alloc(struct qrnic_srq *srq, uint32_t log_size,
			 uint32_t log_stride, bool streaming)
{
	struct qrnic_context *ctx = srq->ctx;
	uint32_t slot, room;
	size_t length;
	int err;

	srq->slots = 1u << log_size;
	srq->stride_shift = QRNIC_WQEBB_SHIFT + log_stride;
	room = (QRNIC_SEGMENTS_PER_WQEBB << log_stride) - 1;
	srq->max_sge = min_t(uint32_t, room, ctx->max_recv_sge);

	length = (size_t)srq->slots << srq->stride_shift;
	err = qrnic_buffer_alloc(ctx, &srq->buf, length + QRNIC_RECORD_SIZE,
				 srq->pd, QRNICDV_RES_TYPE_SRQ);
	if (err)
		return err;
	srq->ring = srq->buf.addr;
	srq->record = srq->buf.addr + length;

	srq->next = calloc(srq->slots, sizeof(*srq->next));
	srq->wr_id = calloc(srq->slots, sizeof(*srq->wr_id));
	if (!srq->next || !srq->wr_id)
		return ENOMEM;
	if (streaming) {
		srq->seen = calloc(srq->slots, sizeof(*srq->seen));
		if (!srq->seen)
			return ENOMEM;
	}
	/*
	 * The device begins at slot 0, so the list does, too (manual, "Shared
	 * receive queues")
	 */
	for (slot = 0; slot < srq->slots; slot++)
		srq->next[slot] = slot + 1;
	srq->head = 0;
	srq->tail = srq->slots - 1;
	return 0;
}

/*
 * Appends a completed slot to the list of free slots and returns its wr_id. The
 * caller holds the lock, because a poll takes it once for a batch.
 */
uint64_t qrnic_srq_take_back(struct qrnic_srq *srq, uint32_t slot)
{
	slot &= srq->slots - 1;
	srq->next[srq->tail] = slot;
	srq->tail = slot;
	return srq->wr_id[slot];
}

/*
 * Returns the WQE in a slot that was not released. The caller holds the lock,
 * because a resize replaces the ring.
 */
const union qrnic_segment *qrnic_srq_wqe(const struct qrnic_srq *srq,
					 uint32_t slot)
{
	slot &= srq->slots - 1;
	return srq->ring + ((size_t)slot << srq->stride_shift);
}

static int build_recv(struct qrnic_srq *srq, const struct ibv_recv_wr *wr)
{
	uint32_t slot = srq->head;
	size_t at = (size_t)slot << srq->stride_shift;
	union qrnic_segment *segment;
	int i;

	if (unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > srq->max_sge))
		return EINVAL;
	/*
	 * The last free slot is not used, because the number of the next slot
	 * is not known yet
	 */
	if (unlikely(slot == srq->tail))
		return ENOMEM;

	/*
	 * A slot is contiguous, so the WQE is written in place. The device
	 * reads no WQE beyond the record.
	 */
	segment = srq->ring + at;
	segment->recv.data_segments = htole32(wr->num_sge);
	segment->recv.index = htole32(slot);
	segment->recv.next = htole32(srq->next[slot]);
	segment->recv.rsvd0 = 0;
	for (i = 0; i < wr->num_sge; i++)
		qrnic_set_data(&segment[1 + i].data, wr->sg_list[i].addr,
			       wr->sg_list[i].length, wr->sg_list[i].lkey);
	if (unlikely(srq->ring_to_be))
		memcpy(srq->ring_to_be + at, segment,
		       (1 + wr->num_sge) * sizeof(*segment));
	srq->wr_id[slot] = wr->wr_id;
	srq->head = srq->next[slot];
	srq->producer++;
	return 0;
}

int qrnic_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr)
{
	struct qrnic_srq *srq = to_qrnic_srq(ibsrq);
	uint32_t before;
	int err = 0;

	qrnic_lock(&srq->lock);
	before = srq->producer;
	for (; wr; wr = wr->next) {
		err = build_recv(srq, wr);
		if (unlikely(err)) {
			*bad_wr = wr;
			break;
		}
	}
	if (srq->producer != before) {
		/*
		 * The WQEs must be visible before the record. No doorbell is
		 * needed, because the device reads the record when it fetches a
		 * WQE (manual, "Shared receive queues").
		 */
		udma_to_device_barrier();
		qrnic_tsan_post(srq->record);
		qrnic_store_record(&srq->record->producer, srq->producer);
	}
	qrnic_unlock(&srq->lock);
	return err;
}
