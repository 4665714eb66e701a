// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * event-test.c: tests send queues with an event index (manual, "Event index").
 * The device finds WQEs without a doorbell, in each state of a queue pair and
 * from two threads. The test compares all data, and the number of doorbells
 * with the number of WQEs. An adapter without event index needs a doorbell for
 * each WQE. The test needs one adapter and prints TAP.
 */
#include <pthread.h>
#include <unistd.h>

#include "test.h"

/* The writes of a round: each has its own bytes and its own destination */
#define SLOT	64
#define SLOTS	1024
#define DEPTH	128

static const char *adapter;

/*
 * Returns the number of doorbells of the adapter, of all its users. The RDMA
 * core keeps the values of counters for the time in "lifespan". So the function
 * waits for twice this time, and for two ticks of a kernel with 100 Hz.
 */
static uint64_t count_doorbells(void)
{
	uint64_t end = now_ms() + 20 +
		       2 * read_counter(adapter, "hw_counters/lifespan");

	while (now_ms() < end)
		usleep(1000);
	return read_counter(adapter, "hw_counters/doorbells") +
	       read_counter(adapter, "hw_counters/doorbells_dropped");
}

static int post_slot(struct ibv_qp *qp, unsigned int slot, unsigned int flags)
{
	struct ibv_sge sge = sge_of(slot * SLOT, SLOT);
	struct ibv_send_wr wr = {
		.wr_id = slot, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = flags,
		.wr.rdma = { (uintptr_t)buffer + HALF + slot * SLOT, mr->rkey },
	}, *bad;

	return ibv_post_send(qp, &wr, &bad);
}

static void new_round(uint32_t seed)
{
	fill(0, SLOTS * SLOT, seed);
	memset(buffer + HALF, 0, SLOTS * SLOT);
}

static bool has_arrived(unsigned int first, unsigned int number)
{
	return !memcmp(buffer + first * SLOT, buffer + HALF + first * SLOT,
		       number * SLOT);
}

static void make(struct pair *p, enum ibv_qp_type type)
{
	struct ibv_qp_cap cap = { DEPTH, 1, 1, 1, 0 };

	*p = (struct pair){ .type = type };
	CHECK(!pair_make_as(p, &cap, 0));
	CHECK(!pair_connect(p));
}

/* Posts each write alone, as many as the queue has space for. */
static void write_round(struct pair *p)
{
	unsigned int posted = 0, done = 0;
	struct ibv_wc wc;

	while (done < SLOTS) {
		while (posted < SLOTS && posted - done < DEPTH)
			CHECK(!post_slot(p->qp[0], posted++, IBV_SEND_SIGNALED));
		CHECK(poll_one(p->send_cq, &wc) == 1 && !wc.status);
		CHECK(wc.wr_id == done++);
	}
	CHECK(has_arrived(0, SLOTS));
}

/*
 * The device of an SQ with an event index may find WQEs by itself, but need
 * not: it may be faster than the program.
 */
static void test_writes(enum ibv_qp_type type)
{
	uint64_t rung = count_doorbells();
	uint32_t round;
	struct pair p;

	make(&p, type);
	for (round = 0; round < 8; round++) {
		new_round(round);
		write_round(&p);
	}
	rung = count_doorbells() - rung;
	printf("# %d WQEs, %" PRIu64 " doorbells\n", 8 * SLOTS, rung);
	CHECK(capabilities & QRNIC_CAP_EVENT_INDEX || rung >= 8 * SLOTS);
	CHECK(!pair_free(&p));
}

static void test_rc(void)
{
	test_writes(IBV_QPT_RC);
}

static void test_uc(void)
{
	NEED(capabilities & QRNIC_CAP_UC);
	test_writes(IBV_QPT_UC);
}

/*
 * A rate limit keeps the queue awake, because each message takes 16 ms. WQEs
 * that are posted meanwhile need no doorbell. If the program is stopped after
 * each post, the device falls asleep, and the test is repeated.
 */
static void test_paced(void)
{
	struct ibv_qp_rate_limit_attr limit = {
		.rate_limit = 2000, .max_burst_sz = 4096,
	};
	uint64_t rung, end = now_ms() + patience_ms();
	struct ibv_sge sge = sge_of(0, 4096);
	struct ibv_wc wc;
	struct pair p;
	int i;

	NEED(capabilities & QRNIC_CAP_EVENT_INDEX);
	NEED(capabilities & QRNIC_CAP_RATE_LIMIT);
	make(&p, IBV_QPT_RC);
	CHECK(!ibv_modify_qp_rate_limit(p.qp[0], &limit));
	do {
		fill(0, 4096, now_ms());
		rung = count_doorbells();
		for (i = 0; i < 16; i++)
			CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
		for (i = 0; i < 16; i++)
			CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		rung = count_doorbells() - rung;
		printf("# 16 WQEs with a rate limit, %" PRIu64 " doorbells\n", rung);
		CHECK(!memcmp(buffer, buffer + HALF, 4096));
	} while (rung >= 16 && now_ms() < end);
	CHECK(rung < 16);
	CHECK(!pair_free(&p));
}

/*
 * Posts one write at a time to an idle queue, so that the device has just gone
 * to sleep or is about to. A lost doorbell would stop the test.
 */
static void test_single(void)
{
	struct ibv_wc wc;
	struct pair p;
	unsigned int i;

	make(&p, IBV_QPT_RC);
	new_round(77);
	for (i = 0; i < SLOTS; i++) {
		CHECK(!post_slot(p.qp[0], i, IBV_SEND_SIGNALED));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(wc.wr_id == i && has_arrived(i, 1));
	}
	CHECK(!pair_free(&p));
}

/* The pair whose send queue two threads share; thread n posts all slots n + 2i */
static struct pair shared;

static void *post_half(void *arg)
{
	unsigned int slot = *(int *)arg;
	uint64_t end = now_ms() + patience_ms();
	int err;

	while (slot < SLOTS && now_ms() < end) {
		err = post_slot(shared.qp[0], slot, IBV_SEND_SIGNALED);
		if (!err)
			slot += 2;
		else if (err != ENOMEM)
			break;
	}
	return (void *)(uintptr_t)(slot < SLOTS);
}

static void test_threads(void)
{
	static int numbers[2] = { 0, 1 };
	pthread_t threads[2];
	struct ibv_wc wc;
	void *failed[2];
	uint32_t round;
	int i;

	make(&shared, IBV_QPT_RC);
	for (round = 0; round < 8; round++) {
		new_round(500 + round);
		for (i = 0; i < 2; i++)
			CHECK(!pthread_create(&threads[i], NULL, post_half,
					      &numbers[i]));
		for (i = 0; i < SLOTS; i++)
			if (poll_one(shared.send_cq, &wc) != 1 || wc.status)
				break;
		pthread_join(threads[0], &failed[0]);
		pthread_join(threads[1], &failed[1]);
		CHECK(!failed[0] && !failed[1] && i == SLOTS);
		CHECK(has_arrived(0, SLOTS));
	}
	CHECK(!pair_free(&shared));
}

/* Batches of the extended interface, of 1 to 5 WQEs */
static void test_batches(void)
{
	struct ibv_qp_cap cap = { DEPTH, 1, 1, 1, 0 };
	unsigned int slot = 0, done = 0, i, n;
	struct ibv_qp_ex *ex;
	struct pair p = {};
	struct ibv_wc wc;

	CHECK(!pair_make_as(&p, &cap, IBV_QP_EX_WITH_RDMA_WRITE));
	CHECK(!pair_connect(&p));
	ex = ibv_qp_to_qp_ex(p.qp[0]);
	ex->wr_flags = IBV_SEND_SIGNALED;
	new_round(900);
	for (n = 0; slot < SLOTS; n = (n + 1) % 6) {
		ibv_wr_start(ex);
		for (i = 0; i < n && slot < SLOTS; i++, slot++) {
			ex->wr_id = slot;
			ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)buffer +
					  HALF + slot * SLOT);
			ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)buffer +
				       slot * SLOT, SLOT);
		}
		/* An aborted batch must not change the indices */
		if (n == 3) {
			slot -= i;
			ibv_wr_abort(ex);
			continue;
		}
		CHECK(!ibv_wr_complete(ex));
		while (slot - done > DEPTH - 5) {
			CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
			CHECK(wc.wr_id == done++);
		}
	}
	for (; done < SLOTS; done++)
		CHECK(poll_one(p.send_cq, &wc) == 1 && wc.wr_id == done);
	CHECK(has_arrived(0, SLOTS));
	CHECK(!pair_free(&p));
}

/* WQEs that are posted in SQD are sent after the return to RTS. */
static void test_drained(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	unsigned int i, round;
	struct ibv_wc wc;
	struct pair p;

	make(&p, IBV_QPT_RC);
	new_round(1000);
	for (round = 0; round < 16; round++) {
		CHECK(!post_slot(p.qp[0], 3 * round, IBV_SEND_SIGNALED));
		CHECK(!to_state(p.qp[0], IBV_QPS_SQD));
		CHECK(!post_slot(p.qp[0], 3 * round + 1, IBV_SEND_SIGNALED));
		CHECK(!post_slot(p.qp[0], 3 * round + 2, IBV_SEND_SIGNALED));
		/* A queue pair that still drains cannot return to RTS. */
		do
			CHECK(!ibv_query_qp(p.qp[0], &attr, IBV_QP_STATE, &init));
		while (attr.sq_draining);
		CHECK(!to_state(p.qp[0], IBV_QPS_RTS));
		for (i = 0; i < 3; i++) {
			CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
			CHECK(wc.wr_id == 3 * round + i);
		}
	}
	CHECK(has_arrived(0, 48));
	CHECK(!pair_free(&p));
}

/*
 * WQEs in ERR are flushed, with and without WQEs before them. A queue that has
 * been in RESET starts with index 0 again.
 */
static void test_states(void)
{
	unsigned int i, round;
	struct ibv_wc wc;
	struct pair p;

	make(&p, IBV_QPT_RC);
	for (round = 0; round < 8; round++) {
		new_round(1100 + round);
		for (i = 0; i < 5 + round; i++) {
			CHECK(!post_slot(p.qp[0], i, IBV_SEND_SIGNALED));
			CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		}
		CHECK(has_arrived(0, 5 + round));
		CHECK(!to_state(p.qp[0], IBV_QPS_ERR));
		for (i = 0; i < 40; i++) {
			CHECK(!post_slot(p.qp[0], i, IBV_SEND_SIGNALED));
			/* Every second flush meets a queue that is idle */
			if (i % 2)
				continue;
			CHECK(poll_one(p.send_cq, &wc) == 1);
			if (i)
				CHECK(poll_one(p.send_cq, &wc) == 1);
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == i);
		}
		CHECK(poll_one(p.send_cq, &wc) == 1 && wc.wr_id == 39);
		CHECK(!to_state(p.qp[0], IBV_QPS_RESET));
		CHECK(!to_state(p.qp[1], IBV_QPS_RESET));
		CHECK(!pair_connect(&p));
	}
	CHECK(!pair_free(&p));
}

/*
 * Tests the record as a program finds it that writes the rings itself. This
 * program passes WQEs to the device by a doorbell.
 */
static void test_record(void)
{
	struct qrnicdv_qp dv = {};
	struct ibv_wc wc;
	struct pair p;
	uint64_t end;

	make(&p, IBV_QPT_RC);
	CHECK(!qrnicdv_query_qp(p.qp[0], &dv, sizeof(dv)));
	CHECK(!dv.sq.record->producer && !dv.sq.record->event);
	CHECK(!post_slot(p.qp[0], 0, IBV_SEND_SIGNALED));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(le32toh(dv.sq.record->producer) == 1);
	/* The device falls asleep behind the only WQE, sooner or later */
	end = now_ms() + patience_ms();
	while (capabilities & QRNIC_CAP_EVENT_INDEX &&
	       le32toh(*(volatile __le32 *)&dv.sq.record->event) != 1)
		CHECK(now_ms() < end);
	if (!(capabilities & QRNIC_CAP_EVENT_INDEX))
		CHECK(!dv.sq.record->event);
	CHECK(!to_state(p.qp[0], IBV_QPS_RESET));
	CHECK(!dv.sq.record->producer && !dv.sq.record->event);
	CHECK(!pair_free(&p));
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no qrnic adapter\n");
		return 1;
	}
	adapter = ibv_get_device_name(context->device);
	run("event index: writes of RC", test_rc);
	run("event index: writes of UC", test_uc);
	run("event index: WQEs that wait for a rate limit", test_paced);
	run("event index: one write at a time", test_single);
	run("event index: two threads post to one queue", test_threads);
	run("event index: batches of the extended interface", test_batches);
	run("event index: posts in SQD", test_drained);
	run("event index: posts in ERR and after RESET", test_states);
	run("event index: the doorbell record", test_record);
	return tear_down();
}
