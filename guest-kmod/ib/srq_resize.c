// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * srq_resize.c: replaces the ring of a shared receive queue under traffic
 * (manual, Resizing an SRQ).
 *
 * srq.c calls qrnic_srq_resize() under resize_mutex. For a kernel SRQ the
 * driver copies the posted WQEs, while posters write to both rings and
 * completions free slots, both under srq->lock. A process copies its posted
 * WQEs to the new ring itself.
 */
#include <rdma/ib_umem.h>

#include "memory.h"
#include "qrnic_ib.h"
#include "queues.h"

/*
 * Number of slots to copy before the lock is released for posters and pollers
 */
#define SLOTS_AT_ONCE 64

static int qrnic_resize_command(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
				const struct qrnic_srq_resize *resize)
{
	return qrnic_cmd_set(dev->qdev, QRNIC_CMD_RESIZE_SRQ, srq->srqn, resize,
			     sizeof(*resize));
}

static size_t qrnic_ring_bytes(const struct qrnic_ib_srq *srq, u32 log_size)
{
	return (size_t)QRNIC_WQEBB_SIZE << (log_size + srq->log_stride);
}

/*
 * All loops over slots but qrnic_slots_copy() run with interrupts disabled,
 * because otherwise each post would restart them. QRNIC_MAX_SRQ_WR limits them
 * to 32768 slots of 16 bytes. Only users in the kernel call them, and rarely.
 */

/*
 * Returns the size of the smallest ring that contains all posted slots and the
 * next one. Sets *posted to the number of posted slots. Called under the lock.
 */
static u32 qrnic_slots_needed(const struct qrnic_ib_srq *srq, u32 *posted)
{
	u32 slot, needed = srq->head + 1;

	*posted = 0;
	for (slot = 0; slot < BIT(srq->log_size); slot++) {
		if (srq->slots[slot].link != QRNIC_SLOT_POSTED)
			continue;
		needed = max(needed, slot + 1);
		(*posted)++;
	}
	return needed;
}

/*
 * Removes the free slots that the new ring does not have from the list. Called
 * under the lock.
 */
static void qrnic_slots_put_aside(struct qrnic_ib_srq *srq, u32 slots)
{
	u32 slot = srq->head, last = slot;

	while (slot != srq->tail) {
		slot = srq->slots[slot].link;
		if (slot >= slots)
			continue;
		srq->slots[last].link = slot;
		last = slot;
	}
	srq->slots[last].link = 0;
	srq->tail = last;
}

/* Adds the slots first to end - 1 to the free ones. Called under the lock. */
static void qrnic_slots_append(struct qrnic_ib_srq *srq, u32 first, u32 end)
{
	u32 slot;

	for (slot = first; slot < end; slot++) {
		srq->slots[srq->tail].link = slot;
		srq->slots[slot].link = 0;
		srq->tail = slot;
	}
}

/* Copies the WQEs to the new ring. Posters write to both rings meanwhile. */
static void qrnic_slots_copy(struct qrnic_ib_srq *srq, struct qrnic_ring *to, u32 slots)
{
	size_t bytes = qrnic_ring_bytes(srq, 0), at;
	u32 slot, end;

	for (slot = 0; slot < slots; slot = end) {
		end = min(slot + SLOTS_AT_ONCE, slots);
		spin_lock_irq(&srq->lock);
		for (at = slot * bytes; at < end * bytes; at += bytes)
			memcpy(qrnic_ring_at(to, at),
			       qrnic_ring_at(&srq->ring, at), bytes);
		spin_unlock_irq(&srq->lock);
	}
}

/*
 * Limits the slots to those that both rings have, until the resize ends. Sets
 * *log_size to the size of the new ring. Returns 0 or -EINVAL.
 */
static int qrnic_kernel_resize_begin(struct qrnic_ib_srq *srq, u32 max_wr,
				     u32 *log_size)
{
	u32 needed, posted;
	int err = 0;

	spin_lock_irq(&srq->lock);
	needed = qrnic_slots_needed(srq, &posted);
	if (posted > max_wr)
		err = -EINVAL;
	else
		*log_size = order_base_2(max(max_wr + 1, needed));
	if (!err)
		qrnic_slots_put_aside(srq, BIT(*log_size));
	spin_unlock_irq(&srq->lock);
	return err;
}

/*
 * Ends a resize: uses the new ring, or after an error the old one. The argument
 * slots is a larger array, or NULL if the old one suffices. Returns the array
 * that the caller must free.
 */
static struct qrnic_ib_slot *qrnic_kernel_resize_end(struct qrnic_ib_srq *srq,
						     struct qrnic_ring *ring,
						     struct qrnic_ib_slot *slots,
						     u32 log_size, int err)
{
	u32 old = BIT(srq->log_size), new = BIT(log_size);

	spin_lock_irq(&srq->lock);
	srq->ring_to_be = NULL;
	if (err) {
		qrnic_slots_append(srq, new, old);
	} else {
		ring->queue_record = srq->ring.queue_record;
		ring->record_dma = srq->ring.record_dma;
		srq->ring.queue_record = NULL;
		swap(srq->ring, *ring);
		srq->log_size = log_size;
		if (slots) {
			memcpy(slots, srq->slots, old * sizeof(*slots));
			swap(srq->slots, slots);
		}
		qrnic_slots_append(srq, old, new);
	}
	spin_unlock_irq(&srq->lock);
	return slots;
}

static int qrnic_kernel_resize(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
			       u32 max_wr, struct qrnic_srq_resize *resize)
{
	struct qrnic_ib_slot *slots = NULL;
	struct qrnic_ring ring = {};
	u32 log_size;
	int err;

	err = qrnic_kernel_resize_begin(srq, max_wr, &log_size);
	if (err)
		return err;
	if (log_size > srq->log_size) {
		slots = kvcalloc(BIT(log_size), sizeof(*slots), GFP_KERNEL);
		if (!slots)
			err = -ENOMEM;
	}
	if (!err)
		err = qrnic_ring_alloc(dev->qdev, &ring,
				       qrnic_ring_bytes(srq, log_size));
	if (!err) {
		spin_lock_irq(&srq->lock);
		srq->ring_to_be = &ring;
		spin_unlock_irq(&srq->lock);
		qrnic_slots_copy(srq, &ring, BIT(min_t(u32, log_size, srq->log_size)));
		resize->log_size = log_size;
		resize->ring = ring.hw;
		err = qrnic_resize_command(dev, srq, resize);
	}

	/* Frees the old ring and array, or after an error the new ones. */
	slots = qrnic_kernel_resize_end(srq, &ring, slots, log_size, err);
	qrnic_ring_free(dev->qdev, &ring);
	kvfree(slots);
	return err;
}

/*
 * Replaces the ring of a process. The process has copied its posted WQEs to the
 * new ring. The record stays in the buffer of create_srq. Called under
 * resize_mutex.
 */
static int qrnic_user_resize(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
			     u32 max_wr, struct ib_udata *udata,
			     struct qrnic_srq_resize *resize)
{
	struct qrnic_resize_srq_req request;
	struct qrnic_table table;
	struct ib_umem *umem;
	u64 bytes;
	int err;

	/* A library that cannot resize sends no request. */
	if (!udata->inlen)
		return -EOPNOTSUPP;
	err = ib_copy_validate_udata_in_cm(udata, request, reserved, 0);
	if (!err)
		err = qrnic_udata_no_response(udata);
	if (err)
		return err;
	if (request.reserved)
		return -EOPNOTSUPP;
	if (!qrnic_srq_size_ok(dev, request.log_size, max_wr))
		return -EINVAL;

	bytes = qrnic_ring_bytes(srq, request.log_size);
	umem = qrnic_queue_umem_get(dev, request.buf_addr, request.buf_length,
				    bytes);
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	err = qrnic_queue_table(dev, &table, umem, 0, bytes);
	if (err)
		goto err_umem;

	resize->log_size = request.log_size;
	resize->ring = table.hw;
	err = qrnic_resize_command(dev, srq, resize);
	if (!err) {
		swap(srq->table, table);
		swap(srq->ring_umem, umem);
		srq->log_size = request.log_size;
	}

	/* Frees the old memory, or after an error the new one. */
	qrnic_table_free(dev->qdev, &table);
err_umem:
	ib_umem_release(umem);
	return err;
}

/* Resizes an SRQ. Called under resize_mutex. Returns 0 or a negative errno. */
int qrnic_srq_resize(struct qrnic_ib_dev *dev, struct qrnic_ib_srq *srq,
		     const struct ib_srq_attr *attr, bool with_limit,
		     struct ib_udata *udata)
{
	struct qrnic_srq_resize resize = {};

	if (!qrnic_ib_cap(dev, QRNIC_CAP_SRQ_RESIZE))
		return -EOPNOTSUPP;
	if (!attr->max_wr || attr->max_wr > dev->qdev->caps.max_srq_wr)
		return -EINVAL;
	if (with_limit) {
		if (attr->srq_limit > attr->max_wr)
			return -EINVAL;
		resize.flags = QRNIC_SRQRF_LIMIT;
		resize.limit = cpu_to_le16(attr->srq_limit);
	}
	if (udata)
		return qrnic_user_resize(dev, srq, attr->max_wr, udata, &resize);
	return qrnic_kernel_resize(dev, srq, attr->max_wr, &resize);
}
