// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * wqe.c: send WQEs: their segments, the copy to the ring, and the doorbell.
 *
 * Functions of post.c, post_ex.c and mkey.c call this file while they hold the
 * lock of the send queue. Address handles are also here, because datagram
 * segments contain the address that the kernel driver has resolved and checked.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <util/mmio.h>

#include "commands.h"
#include "qp.h"

/*
 * Returns true in RTS and later states. In error states the device flushes new
 * WQEs.
 */
bool qrnic_send_allowed(const struct qrnic_qp *qp)
{
	return qp->vqp.qp.state >= IBV_QPS_RTS;
}

/*
 * Returns true if all posted WQEs are known to be complete. If the program has
 * not polled the last completions, the result is false although the WQEs may be
 * complete.
 */
bool qrnic_sq_is_idle(struct qrnic_wq *sq)
{
	return sq->producer == atomic_load_explicit(&sq->consumer,
						    memory_order_relaxed);
}

/*
 * Begins a WQE. The control segment is filled in by qrnic_sq_push(), because
 * only then the number of segments is known.
 */
void qrnic_wqe_begin(struct qrnic_wqe *wqe, uint8_t opcode, uint8_t flags,
		     __be32 imm)
{
	wqe->opcode = opcode;
	wqe->flags = flags;
	wqe->sges = 0;
	wqe->inline_length = 0;
	wqe->has_inline = false;
	wqe->segment[0].ctrl.imm = imm;
	wqe->segments = 1;
}

void qrnic_wqe_add_xrc(struct qrnic_wqe *wqe, uint32_t srqn)
{
	struct qrnic_xrc_seg *xrc = &wqe->segment[wqe->segments++].xrc;

	memset(xrc, 0, sizeof(*xrc));
	xrc->srqn = htole32(srqn & QRNIC_QPN_MASK);
}

void qrnic_wqe_add_remote(struct qrnic_wqe *wqe, uint64_t address,
			  uint32_t rkey)
{
	struct qrnic_remote_seg *remote = &wqe->segment[wqe->segments++].remote;

	remote->address = htole64(address);
	remote->rkey = htole32(rkey);
	remote->rsvd0 = 0;
}

void qrnic_wqe_add_atomic(struct qrnic_wqe *wqe, uint64_t swap_add,
			  uint64_t compare)
{
	struct qrnic_atomic_seg *atomic = &wqe->segment[wqe->segments++].atomic;

	atomic->swap_add = htole64(swap_add);
	atomic->compare = htole64(compare);
}

void qrnic_wqe_add_flush(struct qrnic_wqe *wqe, uint32_t length, uint8_t type,
			 uint8_t level)
{
	wqe->segment[wqe->segments++].flush = (struct qrnic_flush_seg) {
		.length = htole32(length),
		.type = type,
		.level = level,
	};
}

/*
 * Appends a datagram segment. If bit 31 of qkey is set, the device uses the
 * Q_Key of the QP instead.
 */
void qrnic_wqe_add_datagram(struct qrnic_wqe *wqe, const struct qrnic_ah *ah,
			    uint32_t qpn, uint32_t qkey)
{
	const struct qrnic_datagram_seg segment = {
		.av = ah->av,
		.dest_qpn = htole32(qpn & QRNIC_QPN_MASK),
		.qkey = htole32(qkey),
	};

	memcpy(&wqe->segment[wqe->segments], &segment, sizeof(segment));
	wqe->segments += sizeof(segment) / QRNIC_SEGMENT_SIZE;
}

/* Appends the Ethernet segment; the payload is a whole frame. */
int qrnic_wqe_add_frame(const struct qrnic_qp *qp, struct qrnic_wqe *wqe,
			unsigned int send_flags)
{
	bool csum = send_flags & IBV_SEND_IP_CSUM;
	const struct qrnic_eth_seg segment = {
		.flags = htole16(csum ? QRNIC_ETHF_IP_CSUM : 0),
	};

	if (csum && !(qp->ctx->capabilities & QRNIC_CAP_ETH_CSUM))
		return EINVAL;
	memcpy(&wqe->segment[wqe->segments++], &segment, sizeof(segment));
	return 0;
}

/*
 * Appends the bind segment. Errors that the library can detect are returned at
 * once, as other providers do. The device detects the others, because it knows
 * the region.
 */
int qrnic_wqe_add_bind(struct qrnic_wqe *wqe, const struct ibv_mw *mw,
		       uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	const unsigned int rights = IBV_ACCESS_REMOTE_WRITE |
				    IBV_ACCESS_REMOTE_READ |
				    IBV_ACCESS_REMOTE_ATOMIC;
	struct qrnic_bind_seg segment = {};

	/*
	 * LOCAL_WRITE has no effect on a window, but is accepted, because some
	 * programs set it
	 */
	if (info->mw_access_flags & ~(rights | IBV_ACCESS_LOCAL_WRITE |
				      IBV_ACCESS_ZERO_BASED))
		return EINVAL;
	if (info->mr) {
		/* Only regions with a translation table can have windows */
		if (verbs_get_mr(info->mr)->mr_type != IBV_MR_TYPE_MR &&
		    verbs_get_mr(info->mr)->mr_type != IBV_MR_TYPE_DMABUF_MR &&
		    verbs_get_mr(info->mr)->mr_type != IBV_MR_TYPE_IMPORTED_MR)
			return EINVAL;
		segment.lkey = htole32(info->mr->lkey);
	} else if (info->length) {
		return EINVAL;
	}
	/*
	 * The program chooses only the variant, because the index of the key
	 * belongs to the window.
	 */
	segment.key = htole32((mw->rkey & ~QRNIC_KEY_VARIANT_MASK) |
			      (rkey & QRNIC_KEY_VARIANT_MASK));
	segment.address = htole64(info->addr);
	segment.length = htole64(info->length);
	segment.access = info->mw_access_flags & rights;
	if (info->mw_access_flags & IBV_ACCESS_ZERO_BASED)
		segment.flags = QRNIC_MWF_ZERO_BASED;

	memcpy(&wqe->segment[wqe->segments], &segment, sizeof(segment));
	wqe->segments += sizeof(segment) / QRNIC_SEGMENT_SIZE;
	return 0;
}

void qrnic_set_data(struct qrnic_data_seg *data, uint64_t address,
		    uint32_t length, uint32_t lkey)
{
	data->address = htole64(address);
	data->length = htole32(length);
	data->lkey = htole32(lkey);
}

void qrnic_wqe_add_data(struct qrnic_wqe *wqe, uint64_t address,
			uint32_t length, uint32_t lkey)
{
	wqe->sges++;
	qrnic_set_data(&wqe->segment[wqe->segments++].data, address, length,
		       lkey);
}

/* Appends inline data behind the segments, which must be complete. */
int qrnic_wqe_add_inline(struct qrnic_wqe *wqe, uint32_t max_inline,
			 const void *data, size_t length)
{
	size_t end = wqe->segments * QRNIC_SEGMENT_SIZE + wqe->inline_length;

	/*
	 * A WQE has either SGEs or inline data. The program may have called
	 * setters of both.
	 */
	if (wqe->sges || length > max_inline - wqe->inline_length ||
	    length > sizeof(wqe->segment) - end)
		return EINVAL;
	wqe->has_inline = true;
	if (!length)
		return 0;
	memcpy(wqe->segment[wqe->segments].bytes + wqe->inline_length, data,
	       length);
	wqe->inline_length += length;
	return 0;
}

/* Completes control segment and padding. Returns the number of basic blocks. */
static uint32_t wqe_finish(struct qrnic_wqe *wqe, uint32_t index)
{
	struct qrnic_sq_ctrl *ctrl = &wqe->segment[0].ctrl;
	uint32_t blocks, tail;

	if (wqe->inline_length) {
		wqe->flags |= QRNIC_WQEF_INLINE;
		tail = -wqe->inline_length % QRNIC_SEGMENT_SIZE;
		memset(wqe->segment[wqe->segments].bytes + wqe->inline_length, 0,
		       tail);
		wqe->segments += (wqe->inline_length + tail) /
				 QRNIC_SEGMENT_SIZE;
	}
	blocks = qrnic_wqebbs(wqe->segments);
	/*
	 * The rest of the last block is cleared, so that the device gets no
	 * data of the stack or of earlier WQEs.
	 */
	tail = blocks * QRNIC_SEGMENTS_PER_WQEBB - wqe->segments;
	memset(&wqe->segment[wqe->segments], 0, tail * QRNIC_SEGMENT_SIZE);
	ctrl->operation = htole32(
		FIELD_PREP(QRNIC_SQ_CTRL_OPCODE_MASK, wqe->opcode) |
		FIELD_PREP(QRNIC_SQ_CTRL_FLAGS_MASK, wqe->flags) |
		FIELD_PREP(QRNIC_SQ_CTRL_SEGMENTS_MASK, wqe->segments));
	ctrl->index = htole32(index);
	ctrl->inline_length = htole32(wqe->inline_length);
	return blocks;
}

/*
 * Copies a WQE to the ring. The device does not read it before qrnic_sq_ring()
 * writes the doorbell record.
 */
int qrnic_sq_push(struct qrnic_qp *qp, struct qrnic_wqe *wqe, uint64_t wr_id)
{
	struct qrnic_wq *sq = &qp->sq;
	uint32_t mask = sq->size - 1;
	uint32_t blocks, used, i;

	blocks = wqe_finish(wqe, sq->producer);
	/*
	 * Acquire pairs with the release in cqe_retire(), so that the slot is
	 * written after the poller has read it.
	 */
	used = sq->producer -
	       atomic_load_explicit(&sq->consumer, memory_order_acquire);
	/*
	 * Both limits are checked, because the ring may have space for more
	 * than max_send_wr small WQEs.
	 */
	if (blocks > sq->size - used ||
	    qp->sq_posted - atomic_load_explicit(&qp->sq_retired,
						 memory_order_relaxed) >=
		    qp->max_send_wr)
		return ENOMEM;

	sq->wr_id[sq->producer & mask] = wr_id;
	qp->sq_blocks[sq->producer & mask] = blocks;
	qp->sq_number[sq->producer & mask] = ++qp->sq_posted;
	for (i = 0; i < blocks; i++)
		memcpy(sq->ring + (((sq->producer + i) & mask)
				   << QRNIC_WQEBB_SHIFT),
		       &wqe->segment[i * QRNIC_SEGMENTS_PER_WQEBB],
		       QRNIC_WQEBB_SIZE);
	sq->producer += blocks;
	return 0;
}

/* Writes a WQE and its doorbell to the direct-WQE window. */
static void ring_direct(struct qrnic_qp *qp, const struct qrnic_wqe *wqe)
{
	uint32_t blocks = qrnic_wqebbs(wqe->segments);
	struct qrnic_db *db = qp->db;
	uint32_t number, i, word;

	number = qp->vqp.qp.qp_num |
		 FIELD_PREP(QRNIC_DOORBELL_WQEBBS_MASK, blocks);

	qrnic_lock(&db->window_lock);
	/*
	 * The barrier keeps the window behind the doorbell record. On a
	 * write-combining page it also prevents merging with earlier writes.
	 */
	mmio_wc_start();
	for (i = 0; i < blocks * QRNIC_SEGMENTS_PER_WQEBB; i++) {
		for (word = 0; word < QRNIC_SEGMENT_SIZE; word += 8) {
			__le64 value;

			memcpy(&value, &wqe->segment[i].bytes[word], 8);
			mmio_write64_le(db->page + QRNIC_DB_WINDOW +
					i * QRNIC_SEGMENT_SIZE + word, value);
		}
	}
	/* The barrier keeps the doorbell behind the window. */
	mmio_flush_writes();
	mmio_write64(db->page + QRNIC_DB_DIRECT,
		     number | (uint64_t)qp->sq.producer << 32);
	/*
	 * The barrier keeps writes of the next user of the window behind this
	 * doorbell.
	 */
	mmio_flush_writes();
	qrnic_unlock(&db->window_lock);
}

/*
 * Returns true if a direct WQE is faster than a doorbell. A direct WQE saves
 * the device a read, and costs the CPU eight more writes for each block. If
 * earlier WQEs are still in the ring, the device reads all WQEs together or
 * drops the copy, so the writes would be wasted.
 */
static bool direct_worthwhile(struct qrnic_qp *qp, uint32_t blocks)
{
	struct qrnic_wq *sq = &qp->sq;

	return qp->db->direct_wqe && blocks <= QRNIC_DB_WINDOW_WQEBB &&
	       sq->producer - blocks ==
	       atomic_load_explicit(&sq->consumer, memory_order_relaxed);
}

/*
 * Writes the producer index into the doorbell record; old is the producer index
 * before the new WQEs. Returns true if the device needs a doorbell. Otherwise
 * the device reads the record again by itself.
 */
static bool publish(struct qrnic_qp *qp, uint32_t old)
{
	struct qrnic_queue_record *record = qp->sq.record;
	uint32_t event;

	/*
	 * The barrier makes the WQEs visible before the record. The device may
	 * read the record at any time, because an earlier doorbell may still be
	 * pending.
	 */
	udma_to_device_barrier();
	qrnic_tsan_post(record);
	qrnic_store_record(&record->producer, qp->sq.producer);
	if (!qp->event_index)
		return true;
	/*
	 * The barrier keeps the load behind the store. Otherwise the device
	 * could write the event index after the load, and read the record
	 * before the store. The WQEs would then wait for a doorbell forever.
	 */
	qrnic_full_barrier();
	event = le32toh(__atomic_load_n(&record->event, __ATOMIC_RELAXED));
	return qrnic_doorbell_needed(event, old, qp->sq.producer);
}

/*
 * Writes the doorbell record, and the doorbell if the device needs it. direct
 * is NULL or the only new WQE.
 */
void qrnic_sq_ring(struct qrnic_qp *qp, uint32_t old,
		   const struct qrnic_wqe *direct)
{
	if (!publish(qp, old))
		return;
	if (direct && direct_worthwhile(qp, qrnic_wqebbs(direct->segments))) {
		ring_direct(qp, direct);
		return;
	}
	/*
	 * The barrier keeps the doorbell behind the record, because the device
	 * reads the producer index from the record.
	 */
	mmio_wc_start();
	qrnic_ring_doorbell(qp->db, QRNIC_DB_SQ, qp->vqp.qp.qp_num,
			    qp->sq.producer);
	/*
	 * On a write-combining page the doorbell would otherwise wait in the
	 * CPU.
	 */
	mmio_flush_writes();
}

struct ibv_ah *qrnic_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct qrnic_create_ah_cmd_resp resp = {};
	struct qrnic_ah *ah;
	int err;

	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;

	err = ibv_cmd_create_ah(pd, &ah->ah, attr, &resp.ibv_resp,
				sizeof(resp));
	if (err) {
		free(ah);
		errno = err;
		return NULL;
	}
	static_assert(sizeof(ah->av) == sizeof(resp.av), "address vector");
	memcpy(&ah->av, resp.av, sizeof(ah->av));
	return &ah->ah;
}

int qrnic_destroy_ah(struct ibv_ah *ibah)
{
	int err = ibv_cmd_destroy_ah(ibah);

	if (err)
		return err;
	free(to_qrnic_ah(ibah));
	return 0;
}
