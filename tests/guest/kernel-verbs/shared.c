// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * shared.c: a shared receive queue of two RC connections: order, a full queue,
 * limit, and resizing. Also the slots of a QP that is destroyed with
 * completions that were not polled.
 */
#include "kernel_verbs.h"

#include <linux/delay.h>

#define MESSAGE 256
#define SLOTS_WANTED 16
#define SENT 1000	/* wr_id of sends */
#define IDS (BUFFER_SIZE / MESSAGE)	/* more than are posted at a time */

struct shared {
	struct test *test;
	struct ib_srq *srq;
	struct end from[2];
	struct end to[2];
	u32 size;		/* max_wr that the SRQ reports */
	/* Number of posted requests; the wr_id is this number modulo IDS */
	u32 posted;
	u32 taken;
	struct completion limit;
	atomic_t events;
};

static void srq_event(struct ib_event *event, void *context)
{
	struct shared *shared = context;

	if (event->event != IB_EVENT_SRQ_LIMIT_REACHED)
		return;
	atomic_inc(&shared->events);
	complete(&shared->limit);
}

/*
 * Returns the receive buffer of the work request with this wr_id. The buffer of
 * to[0] contains the receive buffers of the SRQ.
 */
static u8 *slot_buffer(struct shared *shared, u32 id)
{
	return shared->to[0].buffer + id * MESSAGE;
}

static int srq_post(struct shared *shared)
{
	u32 id = shared->posted % IDS;
	struct ib_sge sge = sge_of(shared->test, &shared->to[0], id * MESSAGE,
				   MESSAGE);
	struct ib_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	int err = ib_post_srq_recv(shared->srq, &wr, NULL);

	if (!err)
		shared->posted++;
	return err;
}

static int send(struct shared *shared, int pair, u32 length)
{
	struct ib_sge sge = sge_of(shared->test, &shared->from[pair], 0, length);
	struct ib_send_wr wr = {
		.wr_id = SENT + pair, .sg_list = &sge, .num_sge = 1,
		.opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED,
	};

	return ib_post_send(shared->from[pair].qp, &wr, NULL);
}

/*
 * Sends a message through one of the pairs; it must arrive in the oldest slot.
 */
static bool message(struct shared *shared, int pair, u8 seed)
{
	u32 id = shared->taken % IDS, length = 1 + seed % MESSAGE;
	bool sent = false, received = false;
	struct test *test = shared->test;
	struct ib_wc wc;
	int i;

	fill(shared->from[pair].buffer, length, seed);
	memset(slot_buffer(shared, id), 0, MESSAGE);
	if (!EXPECT(test, !send(shared, pair, length)))
		return false;
	for (i = 0; i < 2; i++) {
		if (!EXPECT(test, poll_one(test, &wc)) ||
		    !EXPECT(test, wc.status == IB_WC_SUCCESS))
			return false;
		if (wc.wr_id == SENT + pair)
			sent = true;
		else
			received = wc.wr_id == id && wc.byte_len == length &&
				   wc.qp == shared->to[pair].qp;
	}
	shared->taken++;
	return EXPECT(test, sent) && EXPECT(test, received) &&
	       EXPECT(test, filled(slot_buffer(shared, id), length, seed));
}

static bool fill_up(struct shared *shared)
{
	int err;

	do {
		err = srq_post(shared);
	} while (!err && shared->posted - shared->taken <= shared->size);
	return EXPECT(shared->test, err == -ENOMEM) &&
	       EXPECT(shared->test,
		      shared->posted - shared->taken == shared->size);
}

static void limit(struct shared *shared)
{
	struct ib_srq_attr attr = { .srq_limit = 4 };
	struct test *test = shared->test;
	u32 left;

	EXPECT(test, !ib_modify_srq(shared->srq, &attr, IB_SRQ_LIMIT));
	memset(&attr, 0, sizeof(attr));
	EXPECT(test, !ib_query_srq(shared->srq, &attr));
	EXPECT(test, attr.srq_limit == 4 && attr.max_wr == shared->size);

	for (left = shared->size; left > 4; left--)
		if (!message(shared, left & 1, left))
			return;
	EXPECT(test, !atomic_read(&shared->events));
	for (; left > 1; left--)
		if (!message(shared, left & 1, left))
			return;
	EXPECT(test, wait_for_completion_timeout(&shared->limit, HZ));
	msleep(20);
	EXPECT(test, atomic_read(&shared->events) == 1);
	EXPECT(test, !ib_query_srq(shared->srq, &attr) && !attr.srq_limit);

	attr.srq_limit = shared->size + 1;
	EXPECT(test, ib_modify_srq(shared->srq, &attr, IB_SRQ_LIMIT) == -EINVAL);
}

/*
 * Resizes a full queue. The queue is filled in the middle of the ring, so that
 * the order crosses the end.
 */
static bool resize_to(struct shared *shared, u32 max_wr)
{
	struct ib_srq_attr attr = { .max_wr = max_wr };
	struct test *test = shared->test;
	u32 i, before = shared->size;

	if (!EXPECT(test, !ib_modify_srq(shared->srq, &attr, IB_SRQ_MAX_WR)) ||
	    !EXPECT(test, !ib_query_srq(shared->srq, &attr)) ||
	    !EXPECT(test, attr.max_wr >= max_wr))
		return false;
	shared->size = attr.max_wr;
	for (i = shared->taken; i != shared->posted; i++)
		if (!message(shared, i & 1, i))
			return false;
	if (!fill_up(shared))
		return false;
	for (i = 0; i < before + shared->size; i++)
		if (!message(shared, i & 1, i) ||
		    !EXPECT(test, !srq_post(shared)))
			return false;
	return true;
}

/*
 * Shrinks an empty queue. The smallest possible size depends on the slot of the
 * next request.
 */
static bool shrink(struct shared *shared)
{
	struct ib_srq_attr attr = { .max_wr = SLOTS_WANTED };
	struct test *test = shared->test;
	u32 tries = shared->size + 1;

	while (shared->size >= 2 * SLOTS_WANTED) {
		if (!EXPECT(test, tries--) || !EXPECT(test, !srq_post(shared)) ||
		    !message(shared, 0, tries) ||
		    !EXPECT(test, !ib_modify_srq(shared->srq, &attr,
						 IB_SRQ_MAX_WR)) ||
		    !EXPECT(test, !ib_query_srq(shared->srq, &attr)))
			return false;
		shared->size = attr.max_wr;
		attr.max_wr = SLOTS_WANTED;
	}
	return fill_up(shared);
}

static void resize(struct shared *shared)
{
	struct ib_srq_attr attr = { .max_wr = SLOTS_WANTED };
	struct test *test = shared->test;

	if (!(test->dev->attrs.device_cap_flags & IB_DEVICE_SRQ_RESIZE)) {
		EXPECT(test, ib_modify_srq(shared->srq, &attr, IB_SRQ_MAX_WR) ==
			     -EOPNOTSUPP);
		return;
	}
	attr.max_wr = test->dev->attrs.max_srq_wr + 1;
	EXPECT(test, ib_modify_srq(shared->srq, &attr, IB_SRQ_MAX_WR) == -EINVAL);
	if (!resize_to(shared, 4 * SLOTS_WANTED) ||
	    !resize_to(shared, shared->size + 1))
		return;
	/* The new size must have room for all posted requests. */
	attr.max_wr = shared->size - 1;
	EXPECT(test, ib_modify_srq(shared->srq, &attr, IB_SRQ_MAX_WR) == -EINVAL);
	while (shared->posted != shared->taken)
		if (!message(shared, 0, shared->taken))
			return;
	if (shrink(shared))
		resize_to(shared, 2 * SLOTS_WANTED);
}

static void last_wqe(struct shared *shared)
{
	struct test *test = shared->test;

	reinit_completion(&shared->to[1].event);
	EXPECT(test, !end_to(&shared->to[1], IB_QPS_ERR));
	EXPECT(test, wait_for_completion_timeout(&shared->to[1].event, HZ) &&
	       shared->to[1].event_type == IB_EVENT_QP_LAST_WQE_REACHED);
}

/*
 * Completions of a destroyed QP that were not polled are dropped, but their
 * slots must be free again.
 */
static void unpolled(struct shared *shared)
{
	struct test *test = shared->test;
	struct ib_wc wc;
	int i;

	for (i = 0; i < 5; i++)
		EXPECT(test, !send(shared, 0, 8));
	msleep(100);
	ib_destroy_qp(shared->to[0].qp);
	shared->to[0].qp = NULL;
	shared->taken += 5;
	for (i = 0; i < 5; i++)
		EXPECT(test, poll_of(test, SENT, &wc));
	EXPECT(test, quiet(test));
	fill_up(shared);
}

static int pair_create(struct shared *shared, int i)
{
	struct test *test = shared->test;
	int err;

	shared->to[i].srq = shared->srq;
	err = end_create(test, &shared->from[i]);
	if (!err)
		err = end_create(test, &shared->to[i]);
	if (!err)
		err = end_to_init(&shared->from[i]);
	if (!err)
		err = end_to_init(&shared->to[i]);
	if (!err)
		err = end_connect(test, &shared->from[i], &shared->to[i]);
	if (!err)
		err = end_connect(test, &shared->to[i], &shared->from[i]);
	return err;
}

static void use(struct shared *shared)
{
	struct test *test = shared->test;
	struct ib_recv_wr wr = {};
	u32 i;

	EXPECT(test, ib_post_recv(shared->to[0].qp, &wr, NULL) == -EINVAL);
	if (!fill_up(shared))
		return;
	for (i = 0; i < 5 * shared->size; i++)
		if (!message(shared, i % 3 == 0, i) ||
		    !EXPECT(test, !srq_post(shared)))
			return;
	resize(shared);
	limit(shared);
	if (!fill_up(shared))
		return;
	last_wqe(shared);
	unpolled(shared);
}

void test_srq(struct test *test)
{
	struct ib_srq_init_attr init = {
		.event_handler = srq_event,
		.attr = { .max_wr = SLOTS_WANTED, .max_sge = 2 },
	};
	struct shared *shared;
	int i;

	if (!test->dev->attrs.max_srq) {
		pr_info("no shared receive queues\n");
		return;
	}
	shared = kzalloc(sizeof(*shared), GFP_KERNEL);
	if (!EXPECT(test, shared))
		return;
	shared->test = test;
	init_completion(&shared->limit);
	init.srq_context = shared;
	shared->srq = ib_create_srq(test->pd, &init);
	if (!EXPECT(test, !IS_ERR(shared->srq)))
		goto out;

	shared->size = init.attr.max_wr;
	EXPECT(test, shared->size >= SLOTS_WANTED);
	if (EXPECT(test, !pair_create(shared, 0)) &&
	    EXPECT(test, !pair_create(shared, 1)))
		use(shared);
	for (i = 0; i < 2; i++) {
		end_destroy(test, &shared->from[i]);
		end_destroy(test, &shared->to[i]);
	}
	ib_destroy_srq(shared->srq);
out:
	kfree(shared);
}
