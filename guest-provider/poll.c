// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * poll.c: consumes completions for ibv_poll_cq() and the extended interface.
 *
 * Polling has three steps. A poll finds the CQEs that the device has written.
 * Then it releases the WQEs that these CQEs complete, and returns the slots of
 * the CQEs to the device. The fields of a completion are read by cqe.h and
 * completion.c. This file also removes the completions of queue pairs and SRQs
 * that are destroyed or reset, for qp.c and srq.c.
 *
 * The lock of the CQ is held in all steps. The lock of an SRQ is taken under
 * it, and released after each batch. From start_poll() to end_poll() the lock
 * of the CQ stays held.
 */
#include <errno.h>
#include <string.h>

#include <ccan/minmax.h>

#include "cq.h"
#include "cqe.h"
#include "qp.h"
#include "srq.h"

/*
 * Locks the CQ for polling. A thread sleeps while another thread resizes the
 * CQ, because the resize waits for a command to the device. This cannot happen
 * if only one thread uses the CQ.
 */
void qrnic_cq_lock(struct qrnic_cq *cq)
{
	qrnic_lock(&cq->lock);
	while (unlikely(cq->resizing)) {
		qrnic_unlock(&cq->lock);
		pthread_mutex_lock(&cq->resize_mutex);
		pthread_mutex_unlock(&cq->resize_mutex);
		qrnic_lock(&cq->lock);
	}
}

/*
 * Unlocks the CQ, and then reports dropped CQEs, because writing a log under a
 * spinlock takes too long.
 */
void qrnic_cq_unlock(struct qrnic_cq *cq)
{
	uint32_t strays = cq->strays, qpn = cq->stray_qpn;

	cq->strays = 0;
	qrnic_unlock(&cq->lock);
	if (unlikely(strays))
		verbs_err(verbs_get_ctx(cq->vcq.cq.context),
			  "CQ %u: dropped %u completions of QPs without such a queue in this CQ; the last QP was %u\n",
			  cq->cqn, strays, qpn);
}

static struct qrnic_cqe *cq_entry(struct qrnic_cq *cq, uint32_t index)
{
	return &cq->ring[index & ((1u << cq->log_size) - 1)];
}

/*
 * Returns true if the CQE at an index is written. The phase bit is 1 in the
 * first pass through the ring and changes with each pass (manual, "Completion
 * and events").
 */
static bool cq_has(struct qrnic_cq *cq, uint32_t index)
{
	const struct qrnic_cqe *cqe = cq_entry(cq, index);
	uint32_t control = le32toh(__atomic_load_n(&cqe->control,
						   __ATOMIC_RELAXED));
	bool odd_pass = index >> cq->log_size & 1;

	return FIELD_GET(QRNIC_CQE_PHASE_MASK, control) == !odd_pass;
}

/*
 * Counts the written CQEs, up to most and one batch. Returns false if there are
 * none. The caller holds the lock.
 */
static bool cq_look_ahead(struct qrnic_cq *cq, uint32_t most)
{
	uint32_t ahead = 0;

	most = min(most, cq->batch);
	while (ahead < most && cq_has(cq, cq->consumer + ahead))
		ahead++;
	if (!ahead)
		return false;
	/*
	 * The barrier keeps the reads of these CQEs behind the reads of their
	 * phases, because the device writes control last.
	 */
	udma_from_device_barrier();
	cq->ahead = ahead;
	return true;
}

/* Returns the slots of consumed CQEs to the device. */
static void cq_release(struct qrnic_cq *cq)
{
	/*
	 * The barrier keeps the reads of these CQEs before the store, because
	 * the device may overwrite the slots after it. On x86 no read passes a
	 * later store, and the barrier below stops the compiler.
	 */
#if !defined(__x86_64__) && !defined(__i386__)
	udma_from_device_barrier();
	/*
	 * The first barrier may order only reads with reads, so reads are also
	 * ordered with the store
	 */
	atomic_thread_fence(memory_order_release);
#endif
	/*
	 * The barrier keeps stores of cqe_scatter() and cq_clean() before the
	 * store to the record. Otherwise they would overwrite new CQEs of the
	 * device.
	 */
	udma_ordering_write_barrier();
	qrnic_store_record(&cq->record->consumer, cq->consumer);
}

/*
 * Copies the data in the CQE to the buffers of the WQE, as the device would
 * have done. Members of the CQE that share their place with the data become 0.
 */
static void cqe_scatter(struct qrnic_cqe *cqe, const union qrnic_segment *wqe)
{
	struct qrnic_cqe_inline *in = (void *)cqe;
	uint8_t data[sizeof(in->data) + sizeof(in->more_data)];
	size_t left = min_t(size_t, le32toh(in->byte_len), sizeof(data));
	uint32_t segments = le32toh(wqe->recv.data_segments), i;
	const uint8_t *from = data;

	memcpy(data, in->data, sizeof(in->data));
	memcpy(data + sizeof(in->data), in->more_data, sizeof(in->more_data));
	for (i = 0; left && i < segments; i++) {
		const struct qrnic_data_seg *seg = &wqe[1 + i].data;
		size_t length = min_t(size_t, left, le32toh(seg->length));

		memcpy((void *)(uintptr_t)le64toh(seg->address), from, length);
		from += length;
		left -= length;
	}
	memset(in->data, 0, sizeof(in->data));
	memset(in->more_data, 0, sizeof(in->more_data));
}

/*
 * Returns true if the CQE contains data. With an error, the flags are
 * undefined.
 */
static bool cqe_has_data(const struct qrnic_cqe *cqe)
{
	uint32_t control = le32toh(cqe->control);

	return (control &
		FIELD_PREP(QRNIC_CQE_FLAGS_MASK, QRNIC_CQEF_INLINE)) &&
	       FIELD_GET(QRNIC_CQE_STATUS_MASK, control) == QRNIC_WC_SUCCESS;
}

/*
 * Replaces the locked SRQ by another SRQ or NULL. The lock is kept over several
 * CQEs, because completions of the same SRQ often follow one another. A thread
 * with the lock of a CQ may wait for the lock of an SRQ, but not the other way
 * round.
 */
static void srq_switch_lock(struct qrnic_srq **locked, struct qrnic_srq *srq)
{
	if (*locked == srq)
		return;
	if (*locked)
		qrnic_unlock(&(*locked)->lock);
	if (srq)
		qrnic_lock(&srq->lock);
	*locked = srq;
}

/*
 * Releases the slot of a CQE and returns its wr_id. The slot of a streaming SRQ
 * is released only when all of its completions were polled, because they may be
 * in several CQs. The caller holds the lock of the SRQ.
 */
static uint64_t srq_retire(struct qrnic_srq *srq, const struct qrnic_cqe *cqe,
			   bool *used_up)
{
	uint32_t slot = le32toh(cqe->index) & (srq->slots - 1);

	if (unlikely(srq->seen)) {
		srq->seen[slot]++;
		if (cqe->stream & QRNIC_CQES_USED)
			srq->seen[slot] -= le16toh(cqe->messages);
		if (srq->seen[slot]) {
			*used_up = false;
			return srq->wr_id[slot];
		}
	}
	return qrnic_srq_take_back(srq, slot);
}

/*
 * Copies the data of a CQE to its buffers. The caller holds the lock of the
 * SRQ, if any, because a resize may replace the ring.
 */
static void recv_scatter(const struct qrnic_qp *qp, struct qrnic_cqe *cqe)
{
	uint32_t index = le32toh(cqe->index);

	if (!qp->srq) {
		index &= qp->rq.size - 1;
		cqe_scatter(cqe, qp->rq.ring +
				 ((size_t)index << qp->rq_stride_shift));
		return;
	}
	cqe_scatter(cqe, qrnic_srq_wqe(qp->srq, index));
}

/*
 * Returns true if the QP has this queue and completes it in this CQ. A wrong
 * CQE must not be followed, because the lock of another CQ protects that queue.
 */
static bool cqe_has_queue(struct qrnic_cq *cq, const struct qrnic_qp *qp,
			  const struct qrnic_cqe *cqe)
{
	return (cqe_is_receive(cqe) ? qrnic_qp_recv_cq(qp) :
				      qrnic_qp_send_cq(qp)) == &cq->vcq.cq;
}

/*
 * Retires the WQE of a CQE and returns its wr_id. The WQE stays if its buffer
 * receives more messages. The caller passes the oldest CQE of the CQ. The
 * argument locked is the same as in srq_switch_lock().
 */
static uint64_t cqe_retire(struct qrnic_qp *qp, struct qrnic_cqe *cqe,
			   struct qrnic_srq **locked, bool *used_up)
{
	uint32_t index = le32toh(cqe->index);
	struct qrnic_wq *wq;
	uint32_t slot, end;
	uint64_t wr_id;

	if (cqe_is_receive(cqe)) {
		qrnic_tsan_complete(qp->srq ? qp->srq->record : qp->rq.record);
		if (qp->srq)
			srq_switch_lock(locked, qp->srq);
		/*
		 * The copy comes before the release, because another WQE may
		 * then use the slot
		 */
		if (unlikely(cqe_has_data(cqe)))
			recv_scatter(qp, cqe);
		if (qp->srq)
			return srq_retire(qp->srq, cqe, used_up);
		wq = &qp->rq;
		slot = index & (wq->size - 1);
		end = index + 1;
		if (unlikely(qp->stream.max_message &&
			     !(cqe->stream & QRNIC_CQES_USED))) {
			*used_up = false;
			return wq->wr_id[slot];
		}
	} else {
		/*
		 * Earlier unsignaled WQEs are also complete, so they retire
		 * together
		 */
		wq = &qp->sq;
		qrnic_tsan_complete(wq->record);
		slot = index & (wq->size - 1);
		end = index + qp->sq_blocks[slot];
		atomic_store_explicit(&qp->sq_retired, qp->sq_number[slot],
				      memory_order_relaxed);
	}
	wr_id = wq->wr_id[slot];
	/*
	 * Release keeps the reads of wr_id and sq_blocks before the store,
	 * because a posting thread may reuse the slots after it.
	 */
	atomic_store_explicit(&wq->consumer, end, memory_order_release);
	return wr_id;
}

/*
 * Finds an SRQ of the CQ. A list is enough, because few CQs have more than one.
 * The caller holds the lock.
 */
static struct qrnic_srq *cq_find_srq(struct qrnic_cq *cq, uint32_t srqn)
{
	struct qrnic_srq *srq;

	list_for_each(&cq->srqs, srq, in_cq) {
		if (srq->srqn == srqn)
			return srq;
	}
	return NULL;
}

/*
 * Returns the SRQ of a CQE if the SRQ has its own CQ, otherwise NULL. The QP of
 * such a CQE cannot be used. With XRC, the QP is a target that may belong to
 * another process. With tag matching, operations and flushed buffers have no
 * QP.
 */
static struct qrnic_srq *cqe_srq(struct qrnic_cq *cq, const struct qrnic_cqe *cqe)
{
	uint32_t srqn = le32toh(cqe->srqn);

	if (!srqn || !(cqe_is_receive(cqe) ||
		       cqe->tagged & QRNIC_CQET_OPERATION))
		return NULL;
	return cq_find_srq(cq, srqn);
}

/*
 * Returns the QP of a CQE. The last QP is remembered, because completions of
 * the same QP often follow one another. Only a QP that uses this CQ is
 * remembered, because its destruction then makes this CQ forget it. The caller
 * holds the lock.
 */
static struct qrnic_qp *cq_find_qp(struct qrnic_cq *cq, uint32_t qpn)
{
	struct ibv_cq *ibcq = &cq->vcq.cq;
	struct qrnic_qp *qp;

	if (likely(cq->last_qp && cq->last_qpn == qpn))
		return cq->last_qp;
	qp = qrnic_qp_find(to_qrnic_context(ibcq->context), qpn);
	if (qp && (qrnic_qp_send_cq(qp) == ibcq || qrnic_qp_recv_cq(qp) == ibcq)) {
		cq->last_qp = qp;
		cq->last_qpn = qpn;
	}
	return qp;
}

/*
 * Consumes the next CQE, or returns NULL. The argument most is the number of
 * CQEs that the caller still needs. The caller unlocks locked before it returns
 * to the program, because the program may post at once.
 */
static const struct qrnic_cqe *cq_next(struct qrnic_cq *cq, uint32_t most,
				       struct qrnic_srq **locked, uint64_t *wr_id,
				       bool *used_up)
{
	const uint8_t of_tags = QRNIC_CQET_ENTRY | QRNIC_CQET_OPERATION;
	struct qrnic_cqe *cqe;
	struct qrnic_srq *srq;
	struct qrnic_qp *qp;

	for (;;) {
		if (!cq->ahead) {
			/*
			 * The lock of the SRQ is released after each batch, so
			 * that posting threads do not wait for a long poll
			 */
			srq_switch_lock(locked, NULL);
			if (!cq_look_ahead(cq, most))
				return NULL;
		}
		cq->ahead--;
		cqe = cq_entry(cq, cq->consumer++);
		*used_up = true;
		srq = cqe_srq(cq, cqe);
		if (unlikely(srq)) {
			srq_switch_lock(locked, srq);
			if (srq->tags && cqe->tagged & of_tags) {
				if (!qrnic_tags_retire(srq->tags, cqe, wr_id))
					continue;
				return cqe;
			}
			*wr_id = srq_retire(srq, cqe, used_up);
			return cqe;
		}
		qp = cq_find_qp(cq, le32toh(cqe->qpn));
		if (likely(qp && cqe_has_queue(cq, qp, cqe))) {
			*wr_id = cqe_retire(qp, cqe, locked, used_up);
			return cqe;
		}
		/*
		 * qrnic_cq_clean() leaves no CQE of a destroyed QP, so the CQE
		 * is invalid
		 */
		cq->strays++;
		cq->stray_qpn = le32toh(cqe->qpn);
	}
}

static void cqe_to_wc(const struct qrnic_cqe *cqe, struct ibv_wc *wc)
{
	wc->status = cqe_status(cqe);
	wc->opcode = cqe_opcode(cqe);
	wc->vendor_err = le32toh(cqe->syndrome);
	wc->byte_len = le32toh(cqe->byte_len);
	wc->imm_data = cqe_imm_or_key(cqe);
	wc->qp_num = le32toh(cqe->qpn);
	wc->src_qp = cqe_src_qp(cqe);
	wc->wc_flags = cqe_wc_flags(cqe);
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = cqe_sl(cqe);
	wc->dlid_path_bits = 0;
}

int qrnic_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct qrnic_cq *cq = to_qrnic_cq(ibcq);
	const struct qrnic_cqe *cqe;
	struct qrnic_srq *locked = NULL;
	uint32_t before;
	bool used_up;
	int done = 0;

	qrnic_cq_lock(cq);
	before = cq->consumer;
	cq->ahead = 0;
	while (done < num_entries) {
		cqe = cq_next(cq, num_entries - done, &locked, &wc[done].wr_id,
			      &used_up);
		if (!cqe)
			break;
		cqe_to_wc(cqe, &wc[done++]);
	}
	srq_switch_lock(&locked, NULL);
	if (cq->consumer != before)
		cq_release(cq);
	qrnic_cq_unlock(cq);
	return done;
}

static int poll_next(struct qrnic_cq *cq, uint32_t most)
{
	struct ibv_cq_ex *ibcq = &cq->vcq.cq_ex;
	struct qrnic_srq *locked = NULL;

	cq->current = cq_next(cq, most, &locked, &ibcq->wr_id, &cq->used_up);
	srq_switch_lock(&locked, NULL);
	if (!cq->current)
		return ENOENT;
	ibcq->status = cqe_status(cq->current);
	return 0;
}

static int qrnic_next_poll(struct ibv_cq_ex *ibcq)
{
	return poll_next(to_qrnic_cq_ex(ibcq), UINT32_MAX);
}

static int qrnic_start_poll(struct ibv_cq_ex *ibcq,
			    struct ibv_poll_cq_attr *attr)
{
	struct qrnic_cq *cq = to_qrnic_cq_ex(ibcq);
	struct qrnic_clocks clocks;
	bool fresh = false;
	uint32_t before;
	int err;

	if (attr->comp_mask)
		return EINVAL;

	if (cq->wallclock)
		fresh = qrnic_clocks_read(cq, &clocks);
	qrnic_cq_lock(cq);
	if (fresh) {
		cq->clocks = clocks;
		/*
		 * The times are stored after the pair, because a thread that
		 * sees the new time uses the pair.
		 */
		atomic_store_explicit(&cq->keep_ns, clocks.keep_ns,
				      memory_order_relaxed);
		atomic_store_explicit(&cq->read_ns, clocks.read_ns,
				      memory_order_relaxed);
	}
	before = cq->consumer;
	cq->ahead = 0;
	/*
	 * Only one CQE is checked, because many programs take one and call
	 * end_poll()
	 */
	err = poll_next(cq, 1);
	if (err) {
		/*
		 * The lock is released here, because the program does not call
		 * end_poll() after an error
		 */
		if (cq->consumer != before)
			cq_release(cq);
		qrnic_cq_unlock(cq);
	}
	return err;
}

static void qrnic_end_poll(struct ibv_cq_ex *ibcq)
{
	struct qrnic_cq *cq = to_qrnic_cq_ex(ibcq);

	cq->current = NULL;
	cq_release(cq);
	qrnic_cq_unlock(cq);
}

void qrnic_cq_set_poll_ops(struct qrnic_cq *cq, uint64_t wc_flags)
{
	cq->vcq.cq_ex.start_poll = qrnic_start_poll;
	cq->vcq.cq_ex.next_poll = qrnic_next_poll;
	cq->vcq.cq_ex.end_poll = qrnic_end_poll;
	qrnic_cq_set_read_ops(cq, wc_flags);
}

/*
 * Returns true if the CQE is removed with a QP that is destroyed or reset, or
 * with an SRQ that is destroyed. CQEs of an SRQ with its own CQ stay when a QP
 * is destroyed, because the program must learn that their buffers are free.
 */
static bool cqe_is_of(struct qrnic_cq *cq, const struct qrnic_cqe *cqe,
		      const struct qrnic_qp *qp, const struct qrnic_srq *srq)
{
	struct qrnic_srq *of = cqe_srq(cq, cqe);

	return of ? of == srq : qp && le32toh(cqe->qpn) == qp->vqp.qp.qp_num;
}

/*
 * Removes the completions of a QP, or of an SRQ with this CQ. Newer completions
 * of other queues are moved towards the consumer end to fill the space. The
 * slots keep the phase of their pass, because the device may append CQEs
 * meanwhile. The caller holds the lock, and neither the QP nor the SRQ
 * completes any more.
 */
static void cq_clean(struct qrnic_cq *cq, struct qrnic_qp *qp,
		     struct qrnic_srq *srq)
{
	uint32_t size = 1u << cq->log_size;
	uint32_t end, from, to;
	struct qrnic_srq *locked = NULL;
	struct qrnic_cqe *cqe;
	bool used_up;

	end = cq->consumer;
	cq->ahead = 0;
	while (end - cq->consumer < size && cq_has(cq, end))
		end++;
	/*
	 * Phases are read before contents, for the reason given in
	 * cq_look_ahead()
	 */
	udma_from_device_barrier();

	to = end;
	for (from = end; from != cq->consumer;) {
		/*
		 * The lock of the SRQ is released from time to time, so that
		 * posting threads do not wait for a long ring
		 */
		if (!(from % QRNIC_POLL_BATCH))
			srq_switch_lock(&locked, NULL);
		cqe = cq_entry(cq, --from);
		if (cqe_is_of(cq, cqe, qp, srq)) {
			/*
			 * The slot is released although the completion is lost,
			 * because it belongs to the SRQ
			 */
			if (qp && qp->srq && cqe_is_receive(cqe)) {
				srq_switch_lock(&locked, qp->srq);
				srq_retire(qp->srq, cqe, &used_up);
			}
			continue;
		}
		if (--to == from)
			continue;
		struct qrnic_cqe moved = *cqe;

		moved.control &= ~htole32(QRNIC_CQE_PHASE_MASK);
		cqe = cq_entry(cq, to);
		moved.control |= cqe->control & htole32(QRNIC_CQE_PHASE_MASK);
		*cqe = moved;
	}
	srq_switch_lock(&locked, NULL);
	if (to != cq->consumer) {
		cq->consumer = to;
		cq_release(cq);
	}
}

void qrnic_cq_clean(struct qrnic_cq *cq, struct qrnic_qp *qp)
{
	qrnic_cq_lock(cq);
	cq_clean(cq, qp, NULL);
	qrnic_cq_unlock(cq);
}

/*
 * Clears the pointer to a QP that lookups no longer find, because its memory
 * will be freed.
 */
void qrnic_cq_forget(struct qrnic_cq *cq, struct qrnic_qp *qp)
{
	qrnic_cq_lock(cq);
	if (cq->last_qp == qp)
		cq->last_qp = NULL;
	qrnic_cq_unlock(cq);
}

/* Removes an SRQ that the kernel has destroyed. The caller holds the lock. */
static void cq_drop_srq(struct qrnic_cq *cq, struct qrnic_srq *srq)
{
	cq_clean(cq, NULL, srq);
	list_del(&srq->in_cq);
	srq->listed = false;
}

/*
 * Adds an SRQ. The destroy command of a former SRQ with the same number may
 * still wait for the program, so the former SRQ is removed.
 */
void qrnic_cq_add_srq(struct qrnic_cq *cq, struct qrnic_srq *srq)
{
	struct qrnic_srq *former;

	qrnic_cq_lock(cq);
	former = cq_find_srq(cq, srq->srqn);
	if (former)
		cq_drop_srq(cq, former);
	list_add(&cq->srqs, &srq->in_cq);
	srq->listed = true;
	qrnic_cq_unlock(cq);
}

void qrnic_cq_remove_srq(struct qrnic_cq *cq, struct qrnic_srq *srq)
{
	qrnic_cq_lock(cq);
	if (srq->listed)
		cq_drop_srq(cq, srq);
	qrnic_cq_unlock(cq);
}
