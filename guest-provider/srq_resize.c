// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * srq_resize.c: replaces the ring of a shared receive queue while other threads
 * post and poll (manual, "Resizing an SRQ"). qrnic_modify_srq() calls
 * qrnic_srq_resize().
 *
 * A resize has four steps, which hold resize_mutex. The function begin()
 * removes free slots that the new ring does not have, and prepare() allocates
 * the new ring. Then move() copies the WQEs and sends the command to the
 * device, while posting writes to both rings. At last end() replaces the ring,
 * or restores the slots after an error. The lock of the SRQ is held only for
 * short parts.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/ilog.h>
#include <ccan/minmax.h>

#include "commands.h"
#include "srq.h"

/*
 * Slots that are copied at once; the lock is released between, so that other
 * threads can post and poll
 */
#define SLOTS_AT_ONCE 64u

static uint32_t log_of(uint32_t slots)
{
	return ilog32(slots - 1);
}

/*
 * Returns the smallest number of slots that contains all used slots and the
 * next one, and counts the used slots in posted. The array is_free has a zeroed
 * entry for each slot. The caller holds the lock.
 */
static uint32_t slots_needed(const struct qrnic_srq *srq, uint8_t *is_free,
			     uint32_t *posted)
{
	uint32_t slot = srq->head, needed = slot + 1;

	is_free[slot] = true;
	while (slot != srq->tail) {
		slot = srq->next[slot];
		is_free[slot] = true;
	}
	*posted = 0;
	for (slot = 0; slot < srq->slots; slot++) {
		if (is_free[slot])
			continue;
		needed = max(needed, slot + 1);
		(*posted)++;
	}
	return needed;
}

/*
 * Removes free slots that the new ring does not have. The caller holds the
 * lock.
 */
static void slots_put_aside(struct qrnic_srq *srq, uint32_t slots)
{
	uint32_t slot = srq->head, last = slot;

	while (slot != srq->tail) {
		slot = srq->next[slot];
		if (slot >= slots)
			continue;
		srq->next[last] = slot;
		last = slot;
	}
	srq->tail = last;
}

/*
 * Appends slots from first on to the list of free slots. The caller holds the
 * lock.
 */
static void slots_append(struct qrnic_srq *srq, uint32_t first, uint32_t end)
{
	uint32_t slot;

	for (slot = first; slot < end; slot++) {
		srq->next[srq->tail] = slot;
		srq->tail = slot;
	}
}

/*
 * Copies the WQEs to the new ring. WQEs that are posted meanwhile need no copy,
 * because posting writes to both rings.
 */
static void slots_copy(struct qrnic_srq *srq, void *to, uint32_t slots)
{
	uint32_t slot, end;
	size_t at;

	for (slot = 0; slot < slots; slot = end) {
		end = min(slot + SLOTS_AT_ONCE, slots);
		at = (size_t)slot << srq->stride_shift;
		qrnic_lock(&srq->lock);
		memcpy(to + at, srq->ring + at,
		       (size_t)(end - slot) << srq->stride_shift);
		qrnic_unlock(&srq->lock);
	}
}

/* Memory for the new ring, and later the memory of the old ring */
struct plan {
	uint32_t slots;
	struct qrnic_buffer ring;
	/* New tables, or NULL if the existing tables are large enough */
	uint32_t *next;
	uint64_t *wr_id;
	int32_t *seen;
};

/*
 * Chooses the new size and removes free slots beyond it. From now on only slots
 * that both rings have are used.
 */
static int begin(struct qrnic_srq *srq, uint32_t max_wr, struct plan *plan)
{
	uint8_t *is_free = calloc(srq->slots, 1);
	uint32_t needed, posted;
	int err = 0;

	if (!is_free)
		return ENOMEM;
	qrnic_lock(&srq->lock);
	needed = slots_needed(srq, is_free, &posted);
	if (posted > max_wr)
		err = EINVAL;
	else
		plan->slots = 1u << log_of(max(max_wr + 1, needed));
	if (!err)
		slots_put_aside(srq, plan->slots);
	qrnic_unlock(&srq->lock);
	free(is_free);
	return err;
}

static int prepare(struct qrnic_srq *srq, struct plan *plan)
{
	if (plan->slots > srq->slots) {
		plan->next = calloc(plan->slots, sizeof(*plan->next));
		plan->wr_id = calloc(plan->slots, sizeof(*plan->wr_id));
		if (!plan->next || !plan->wr_id)
			return ENOMEM;
		if (srq->seen) {
			plan->seen = calloc(plan->slots, sizeof(*plan->seen));
			if (!plan->seen)
				return ENOMEM;
		}
	}
	return qrnic_buffer_alloc(srq->ctx, &plan->ring,
				  (size_t)plan->slots << srq->stride_shift,
				  srq->pd, QRNICDV_RES_TYPE_SRQ);
}

static int move(struct qrnic_srq *srq, struct ibv_srq_attr *attr, int mask,
		const struct plan *plan)
{
	struct ibv_srq_attr kernel_attr = *attr;
	struct qrnic_resize_srq_cmd cmd = {
		.buf_addr = (uintptr_t)plan->ring.addr,
		.buf_length = plan->ring.length,
		.log_size = log_of(plan->slots),
	};

	qrnic_lock(&srq->lock);
	srq->ring_to_be = plan->ring.addr;
	qrnic_unlock(&srq->lock);
	slots_copy(srq, plan->ring.addr, min(plan->slots, srq->slots));
	kernel_attr.max_wr = plan->slots - 1;
	return ibv_cmd_modify_srq(&srq->vsrq.srq, &kernel_attr, mask,
				  &cmd.ibv_cmd, sizeof(cmd));
}

static void tables_grow(struct qrnic_srq *srq, struct plan *plan)
{
	uint32_t *next = srq->next;
	uint64_t *wr_id = srq->wr_id;
	int32_t *seen = srq->seen;

	if (seen)
		memcpy(plan->seen, seen, srq->slots * sizeof(*seen));
	memcpy(plan->next, next, srq->slots * sizeof(*next));
	memcpy(plan->wr_id, wr_id, srq->slots * sizeof(*wr_id));
	srq->next = plan->next;
	srq->wr_id = plan->wr_id;
	plan->next = next;
	plan->wr_id = wr_id;
	srq->seen = plan->seen;
	plan->seen = seen;
}

/*
 * Replaces the ring, or restores the slots after an error. The caller frees the
 * memory that is then in plan.
 */
static void end(struct qrnic_srq *srq, struct plan *plan, int err)
{
	qrnic_lock(&srq->lock);
	srq->ring_to_be = NULL;
	if (err) {
		slots_append(srq, plan->slots, srq->slots);
	} else {
		struct qrnic_buffer old = srq->resized;

		srq->resized = plan->ring;
		plan->ring = old;
		srq->ring = srq->resized.addr;
		if (plan->slots > srq->slots)
			tables_grow(srq, plan);
		slots_append(srq, srq->slots, plan->slots);
		srq->slots = plan->slots;
	}
	qrnic_unlock(&srq->lock);
}

/*
 * Resizes an SRQ. The new ring is at least as large as requested. The ring is
 * larger than requested if posted WQEs have slots beyond the requested size.
 */
int qrnic_srq_resize(struct qrnic_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct plan plan = {};
	int err;

	if (!(srq->ctx->capabilities & QRNIC_CAP_SRQ_RESIZE))
		return EOPNOTSUPP;
	if (!attr->max_wr || attr->max_wr > srq->ctx->max_srq_wr)
		return EINVAL;

	pthread_mutex_lock(&srq->resize_mutex);
	err = begin(srq, attr->max_wr, &plan);
	if (!err) {
		err = prepare(srq, &plan);
		if (!err)
			err = move(srq, attr, mask, &plan);
		end(srq, &plan, err);
	}
	pthread_mutex_unlock(&srq->resize_mutex);
	qrnic_buffer_free(&plan.ring);
	free(plan.next);
	free(plan.wr_id);
	free(plan.seen);
	return err;
}
