// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * poll.c: consumes completions, by ibv_poll_cq() and by the extended interface: finds out
 * which CQEs are written, releases the WQEs that they complete, and removes the completions
 * of queue pairs and SRQs that are destroyed or reset. cqe.h and completion.c
 * read the fields of a completion.
 */
#include <errno.h>
#include <string.h>

#include <ccan/minmax.h>

#include "cq.h"
#include "cqe.h"
#include "qp.h"
#include "srq.h"

/*
 * A thread that finds the CQ being resized sleeps until that is done, because it
 * takes a command to the device. This does not happen if one thread alone uses the
 * CQ.
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
 * Reports what the holder of the lock has found. Called without the lock,
 * because writing a log takes long
 */
void qrnic_cq_unlock(struct qrnic_cq *cq)
{
	uint32_t strays = cq->strays, qpn = cq->stray_qpn;

	cq->strays = 0;
	qrnic_unlock(&cq->lock);
	if (unlikely(strays))
		verbs_err(verbs_get_ctx(cq->vcq.cq.context),
			  "CQ %u: %u completions of QPs that have no such queue here, the last one of QP %u\n",
			  cq->cqn, strays, qpn);
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
	uint32_t control = le32toh(__atomic_load_n(&cqe->control,
						   __ATOMIC_RELAXED));
	bool odd_pass = index >> cq->log_size & 1;

	return FIELD_GET(QRNIC_CQE_PHASE_MASK, control) == !odd_pass;
}

/*
 * Looks how many CQEs are written, up to most and a batch; false if none is. The
 * caller holds the lock.
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
	 * Stops the reads of these CQEs from moving before the reads of their phases:
	 * the device writes control last.
	 */
	udma_from_device_barrier();
	cq->ahead = ahead;
	return true;
}

/* Lets the device have the slots of the CQEs consumed */
static void cq_release(struct qrnic_cq *cq)
{
	/*
	 * Stops the reads of those CQEs from moving behind the store: the device
	 * may write the slots again as soon as it sees the new index. On x86 no read
	 * passes a later store, and the barrier below holds the compiler.
	 */
#if !defined(__x86_64__) && !defined(__i386__)
	udma_from_device_barrier();
	/* Where that barrier orders reads with reads only */
	atomic_thread_fence(memory_order_release);
#endif
	/*
	 * Stops the stores to those CQEs, by cqe_scatter() and cq_clean(), from
	 * moving behind it: they would overwrite what the device writes.
	 */
	udma_ordering_write_barrier();
	qrnic_store_record(&cq->record->consumer, cq->consumer);
}

/*
 * Copies the data in the CQE to the buffers of the WQE, as the device would have
 * written it. Then the members that share their place with the data are set to 0.
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

/* In a CQE with an error the flags mean nothing */
static bool cqe_has_data(const struct qrnic_cqe *cqe)
{
	uint32_t control = le32toh(cqe->control);

	return (control &
		FIELD_PREP(QRNIC_CQE_FLAGS_MASK, QRNIC_CQEF_INLINE)) &&
	       FIELD_GET(QRNIC_CQE_STATUS_MASK, control) == QRNIC_WC_SUCCESS;
}

/*
 * Takes the lock of an SRQ in place of the one that is locked, if any: completions of the
 * same one often follow each other. NULL: of none. Who holds the lock of a CQ may
 * wait for that of an SRQ, but not the other way round.
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
 * Takes back the slot of a CQE, unless it is that of a streaming SRQ: this is the
 * device's until all completions that name it have been seen, which may be in several
 * CQs. Returns its wr_id. The lock of the SRQ is held.
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

/* If the QP has an SRQ, its lock is held: the ring may be changed for another. */
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
 * The device need not be trusted: not every QP has both queues, and a queue that
 * completes in another CQ belongs to who holds the lock of that one.
 */
static bool cqe_has_queue(struct qrnic_cq *cq, const struct qrnic_qp *qp,
			  const struct qrnic_cqe *cqe)
{
	return (cqe_is_receive(cqe) ? qrnic_qp_recv_cq(qp) :
				      qrnic_qp_send_cq(qp)) == &cq->vcq.cq;
}

/*
 * Moves the consumer of the queue over the WQE of the CQE, unless its buffer takes
 * more messages, and returns its wr_id. The CQE is the oldest one of the CQ. locked: see
 * srq_switch_lock().
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
		/* Before the slot may be posted again */
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
		/* Unsignaled WQEs before it are done too, and retire with it */
		wq = &qp->sq;
		qrnic_tsan_complete(wq->record);
		slot = index & (wq->size - 1);
		end = index + qp->sq_blocks[slot];
		atomic_store_explicit(&qp->sq_retired, qp->sq_number[slot],
				      memory_order_relaxed);
	}
	wr_id = wq->wr_id[slot];
	/*
	 * Release: the reads of wr_id and sq_blocks stay before the store, after
	 * which a thread that posts may reuse the slots.
	 */
	atomic_store_explicit(&wq->consumer, end, memory_order_release);
	return wr_id;
}

/* Few CQs have more than one. The caller holds the lock. */
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
 * The SRQ that a CQE is of, if it has a CQ of its own. If it is one of XRC, the CQE
 * names a target, which may be another process's; if it has tags, an operation and
 * what the list flushes have no QP.
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
 * The QP that a CQE names. Completions often come from the same one, so it is
 * remembered, if it is one that will make this CQ forget it: the device need not be
 * trusted to name no other. The caller holds the lock.
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
 * Takes the next CQE; NULL if there is none. Most: how many the caller wants, at
 * least 1. locked: see srq_switch_lock(); the caller unlocks it before it returns to the
 * program, which may want to post at once what it has got back.
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
			/* Those who post are not kept waiting by a long poll */
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
		/* qrnic_cq_clean() leaves none of a QP that is gone */
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
		/* Only now: a thread that sees the new time uses the pair */
		atomic_store_explicit(&cq->keep_ns, clocks.keep_ns,
				      memory_order_relaxed);
		atomic_store_explicit(&cq->read_ns, clocks.read_ns,
				      memory_order_relaxed);
	}
	before = cq->consumer;
	cq->ahead = 0;
	/* Many programs take one and end */
	err = poll_next(cq, 1);
	if (err) {
		/* No end_poll() follows */
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
 * Whether a CQE is to be removed, because its QP is destroyed or reset, or its SRQ is
 * destroyed. The CQEs of an SRQ with a CQ of its own stay when a QP goes: they have
 * entries and slots of the SRQ, which the program has to hear of.
 */
static bool cqe_is_of(struct qrnic_cq *cq, const struct qrnic_cqe *cqe,
		      const struct qrnic_qp *qp, const struct qrnic_srq *srq)
{
	struct qrnic_srq *of = cqe_srq(cq, cqe);

	return of ? of == srq : qp && le32toh(cqe->qpn) == qp->vqp.qp.qp_num;
}

/*
 * Takes the completions of a QP, or of an SRQ with this CQ, out of the CQ, and moves the
 * younger ones of others down. The device may append meanwhile, so slots keep the phase
 * of their pass. Neither completes any more. Called with the lock.
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
	/* As in cq_look_ahead(): phases before contents */
	udma_from_device_barrier();

	to = end;
	for (from = end; from != cq->consumer;) {
		/* Those who post are not kept waiting by a long ring */
		if (!(from % QRNIC_POLL_BATCH))
			srq_switch_lock(&locked, NULL);
		cqe = cq_entry(cq, --from);
		if (cqe_is_of(cq, cqe, qp, srq)) {
			/* The slots are the SRQ's, and are free now */
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

/* Of a QP that cannot be found any more: its memory will be freed */
void qrnic_cq_forget(struct qrnic_cq *cq, struct qrnic_qp *qp)
{
	qrnic_cq_lock(cq);
	if (cq->last_qp == qp)
		cq->last_qp = NULL;
	qrnic_cq_unlock(cq);
}

/* The kernel has destroyed it; the caller holds the lock */
static void cq_drop_srq(struct qrnic_cq *cq, struct qrnic_srq *srq)
{
	cq_clean(cq, NULL, srq);
	list_del(&srq->in_cq);
	srq->listed = false;
}

/*
 * As with QPs (see qp.c), the number may be that of an SRQ whose destruction still waits
 * for the program.
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
