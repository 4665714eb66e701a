// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * thread-test.c: tests threads of a program that use the same objects. No test
 * depends on the speed of a thread; time limits only end a deadlock. The test
 * needs one adapter and prints TAP.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <unistd.h>

#include "test.h"

/* Number of queue pairs, which is small so that a number is reused soon */
#define FEW_QPS 256

/*
 * A thread in ibv_destroy_qp() or ibv_destroy_srq() that waits for an
 * acknowledgement
 */
struct waiter {
	pthread_t thread;
	struct ibv_async_event event;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	int err;
};

static void next_event(enum ibv_event_type type, struct ibv_async_event *event)
{
	struct pollfd pfd = { .fd = context->async_fd, .events = POLLIN };

	for (;;) {
		CHECK(poll(&pfd, 1, SECONDS * 1000) == 1);
		CHECK(!ibv_get_async_event(context, event));
		if (event->event_type == type)
			return;
		ibv_ack_async_event(event);
	}
}

static void *destroy_it(void *arg)
{
	struct waiter *waiter = arg;

	waiter->err = waiter->qp ? ibv_destroy_qp(waiter->qp) :
				   ibv_destroy_srq(waiter->srq);
	return NULL;
}

/*
 * Starts the destroying thread and returns when the kernel has removed the
 * object, so that the thread waits for the acknowledgement. The list of "rdma
 * resource" is used, because a query by verbs would hold the object and prevent
 * its destruction.
 */
static void destroy_unacknowledged(struct waiter *waiter)
{
	uint64_t end = now_ms() + SECONDS * 1000;
	char command[80];

	if (waiter->qp) {
		snprintf(command, sizeof(command),
			 "rdma resource show qp lqpn %u | grep -q .",
			 waiter->qp->qp_num);
	} else {
		/* No other XRC SRQ exists, so the type is enough */
		snprintf(command, sizeof(command),
			 "rdma resource show srq | grep -q 'type XRC'");
	}
	CHECK(!system(command));
	CHECK(!pthread_create(&waiter->thread, NULL, destroy_it, waiter));
	while (!system(command))
		CHECK(now_ms() < end);
}

static void acknowledge(struct waiter *waiter)
{
	ibv_ack_async_event(&waiter->event);
	CHECK(!pthread_join(waiter->thread, NULL));
	CHECK(!waiter->err);
}

static void *make_and_destroy(void *arg)
{
	struct ibv_qp_cap cap = { 1, 1, 1, 1, 0 };
	struct ibv_qp *qp = make_qp(arg, &cap, 0);

	return qp && !ibv_destroy_qp(qp) ? arg : NULL;
}

/*
 * Runs other threads. The waiter is ended before a failure is reported, because
 * the program would otherwise wait at its end.
 */
static void others_come_and_go(struct pair *p, struct waiter *waiter)
{
	struct timespec end;
	pthread_t thread;
	void *done = NULL;
	int err;

	CHECK(!pthread_create(&thread, NULL, make_and_destroy, p));
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += SECONDS;
	err = pthread_timedjoin_np(thread, &done, &end);
	acknowledge(waiter);
	if (err)
		pthread_join(thread, NULL);
	CHECK(!err && done == p);
}

/* Makes a pair whose second queue pair has an unacknowledged event. */
static void pair_with_event(struct pair *p, struct waiter *waiter)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 8);
	struct ibv_wc wc;

	CHECK(!pair_make(p, &cap, 0));
	CHECK(!to_init(p->qp[0]) && !to_rtr(p->qp[0], p->qp[1]->qp_num));
	CHECK(!to_init(p->qp[1]) && !to_rtr(p->qp[1], p->qp[0]->qp_num));
	CHECK(!to_rts(p->qp[0]));
	/* The first packet causes the event "connection established" */
	CHECK(!write_one(p->qp[0], &sge, 1, IBV_SEND_SIGNALED, 1));
	CHECK(poll_one(p->send_cq, &wc) == 1 && !wc.status);
	memset(waiter, 0, sizeof(*waiter));
	next_event(IBV_EVENT_COMM_EST, &waiter->event);
	waiter->qp = p->qp[1];
	CHECK(waiter->event.element.qp == waiter->qp);
}

static void test_destroy_qp(void)
{
	struct waiter waiter;
	struct pair p;

	pair_with_event(&p, &waiter);
	destroy_unacknowledged(&waiter);
	p.qp[1] = NULL;
	others_come_and_go(&p, &waiter);
	CHECK(!pair_free(&p));
}

/*
 * Creates QPs until one has the number. Each QP is destroyed after the next one
 * exists.
 */
static struct ibv_qp *qp_of_number(struct pair *p, uint32_t number)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_qp *qp, *last = NULL;
	int i;

	for (i = 0; i < 2 * FEW_QPS; i++) {
		qp = make_qp(p, &cap, 0);
		CHECK(qp);
		CHECK(!last || !ibv_destroy_qp(last));
		if (qp->qp_num == number)
			return qp;
		last = qp;
	}
	CHECK(!"the number is used again");
	return NULL;
}

/*
 * Tests that the number of a waiting QP is reused. Completions of the two QPs
 * must not be mixed up.
 */
static void test_same_number(void)
{
	struct ibv_sge sge = sge_of(0, 8);
	struct ibv_device_attr limits;
	struct waiter waiter;
	struct ibv_wc wc;
	struct pair p;
	int i;

	CHECK(!ibv_query_device(context, &limits));
	NEED(limits.max_qp <= FEW_QPS);
	pair_with_event(&p, &waiter);
	/* These completions of the destroyed QP are not polled */
	for (i = 0; i < 3; i++)
		CHECK(!recv_one(p.qp[1], &sge, 1, 100 + i));
	CHECK(!to_state(p.qp[1], IBV_QPS_ERR));
	completions_wait(p.recv_cq, 3);
	destroy_unacknowledged(&waiter);
	p.qp[1] = NULL;
	p.qp[1] = qp_of_number(&p, waiter.event.element.qp->qp_num);
	CHECK(!ibv_poll_cq(p.recv_cq, 1, &wc));
	CHECK(!to_init(p.qp[1]));
	for (i = 0; i < 2; i++)
		CHECK(!recv_one(p.qp[1], &sge, 1, 200 + i));
	CHECK(!to_state(p.qp[1], IBV_QPS_ERR));
	completions_wait(p.recv_cq, 2);
	acknowledge(&waiter);
	for (i = 0; i < 2; i++)
		CHECK(poll_one(p.recv_cq, &wc) == 1 &&
		      wc.wr_id == (uint64_t)200 + i);
	CHECK(!ibv_poll_cq(p.recv_cq, 1, &wc));
	CHECK(!pair_free(&p));
}

static void test_destroy_xrc_srq(void)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 7, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
	};
	struct ibv_srq_attr limit = { .srq_limit = 3 };
	struct ibv_qp_cap cap = { 1, 1, 1, 1, 0 };
	struct waiter waiter = {};
	struct pair p;

	NEED(capabilities & QRNIC_CAP_XRC);
	CHECK(!pair_make(&p, &cap, 0));
	attr.xrcd = ibv_open_xrcd(context, &domain);
	attr.cq = p.recv_cq;
	CHECK(attr.xrcd);
	waiter.srq = ibv_create_srq_ex(context, &attr);
	CHECK(waiter.srq);
	/* The SRQ already has fewer WQEs than the limit */
	CHECK(!ibv_modify_srq(waiter.srq, &limit, IBV_SRQ_LIMIT));
	next_event(IBV_EVENT_SRQ_LIMIT_REACHED, &waiter.event);
	CHECK(waiter.event.element.srq == waiter.srq);
	destroy_unacknowledged(&waiter);
	others_come_and_go(&p, &waiter);
	CHECK(!ibv_close_xrcd(attr.xrcd) && !pair_free(&p));
}

/*
 * Tests a thread that polls a CQ. Other threads post to it, create and destroy
 * queue pairs with completions in it, resize it, and request its events.
 */
#ifdef __SANITIZE_THREAD__
#define ROUNDS 40
#else
#define ROUNDS 150
#endif
#define TEMPORARY (1ull << 32)

static struct pair busy;
static struct ibv_cq_ex *busy_ex;
static _Atomic(uint64_t) gone, posted, events;
static _Atomic(unsigned int) errors;
static _Atomic(bool) rounds_done, post_done, poll_done;

static void *post_main(void *arg)
{
	struct ibv_sge sge = sge_of(0, 8);
	uint64_t i = 0;
	int err;

	while (!rounds_done) {
		err = write_one(busy.qp[0], &sge, 1, IBV_SEND_SIGNALED, i);
		if (!err)
			posted = ++i;
		else if (err == ENOMEM)
			sched_yield();
		else
			errors++;
	}
	post_done = true;
	return arg;
}

static void *round_main(void *arg)
{
	struct pair of = { .send_cq = busy.send_cq, .recv_cq = busy.send_cq };
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 8);
	struct ibv_qp *qp;
	uint64_t i;
	int n;

	for (i = 1; i <= ROUNDS; i++) {
		qp = make_qp(&of, &cap, 0);
		if (!qp || to_init(qp)) {
			errors++;
			break;
		}
		for (n = 0; n < 4; n++)
			errors += !!recv_one(qp, &sge, 1, TEMPORARY | i);
		errors += !!to_state(qp, IBV_QPS_ERR);
		for (n = 0; n < 4; n++)
			errors += !!write_one(qp, &sge, 1, IBV_SEND_SIGNALED,
					      TEMPORARY | i);
		errors += !!ibv_destroy_qp(qp);
		/* No completion of this QP may be seen from now on */
		gone = i;
	}
	rounds_done = true;
	return arg;
}

static void *resize_main(void *arg)
{
	int size = 2048;

	while (!poll_done) {
		errors += !!ibv_resize_cq(busy.send_cq, size);
		size ^= 1024 ^ 2048;
	}
	return arg;
}

static void *arm_main(void *arg)
{
	struct pollfd pfd = { .fd = busy.channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *user;

	while (!poll_done) {
		errors += !!ibv_req_notify_cq(busy.send_cq, 0);
		if (poll(&pfd, 1, 1) != 1)
			continue;
		if (ibv_get_cq_event(busy.channel, &cq, &user)) {
			errors++;
			break;
		}
		ibv_ack_cq_events(cq, 1);
		events++;
	}
	return arg;
}

/* Returns true if the completion is the next one of the writes. */
static bool seen(uint64_t before, uint64_t next, uint64_t wr_id,
		 enum ibv_wc_status status)
{
	if (wr_id & TEMPORARY) {
		errors += (wr_id & ~TEMPORARY) <= before ||
			  status != IBV_WC_WR_FLUSH_ERR;
		return false;
	}
	errors += wr_id != next || status != IBV_WC_SUCCESS;
	return true;
}

static uint64_t poll_some(uint64_t next)
{
	struct ibv_poll_cq_attr attr = {};
	uint64_t before = gone;
	struct ibv_wc wc[4];
	int i, n;

	if (!busy_ex) {
		n = ibv_poll_cq(busy.send_cq, 4, wc);
		for (i = 0; i < n; i++)
			next += seen(before, next, wc[i].wr_id, wc[i].status);
		return next;
	}
	if (ibv_start_poll(busy_ex, &attr))
		return next;
	do {
		next += seen(before, next, busy_ex->wr_id, busy_ex->status);
		errors += !ibv_wc_read_completion_wallclock_ns(busy_ex);
	} while (!ibv_next_poll(busy_ex));
	ibv_end_poll(busy_ex);
	return next;
}

static void all_at_once(void)
{
	static void *(*const mains[])(void *) = {
		round_main, post_main, arm_main, resize_main,
	};
	/*
	 * Without the capability no CQ can be resized, so resize_main() is not
	 * started
	 */
	size_t threads = capabilities & QRNIC_CAP_CQ_RESIZE ? 4 : 3, i;
	pthread_t thread[4];
	uint64_t next = 0, end = 0;

	gone = posted = events = 0;
	errors = 0;
	rounds_done = post_done = poll_done = false;
	CHECK(!pair_connect(&busy));
	for (i = 0; i < threads; i++)
		CHECK(!pthread_create(&thread[i], NULL, mains[i], NULL));
	while (!post_done || next < posted) {
		next = poll_some(next);
		if (!post_done)
			end = now_ms() + SECONDS * 1000;
		else if (now_ms() > end)
			break;
	}
	poll_done = true;
	for (i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	printf("# %" PRIu64 " writes, %" PRIu64 " events, %u errors\n", posted,
	       events, errors);
	CHECK(!errors && next == posted && gone == ROUNDS && events);
}

static void test_all_at_once(void)
{
	struct ibv_qp_cap cap = { 32, 8, 1, 1, 0 };

	busy_ex = NULL;
	CHECK(!pair_make(&busy, &cap, 0));
	all_at_once();
	CHECK(!pair_free(&busy));
}

static void test_all_at_once_extended(void)
{
	struct ibv_qp_cap cap = { 32, 8, 1, 1, 0 };
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 1024,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};

	NEED(capabilities & QRNIC_CAP_TIMESTAMP);
	memset(&busy, 0, sizeof(busy));
	busy.channel = attr.channel = ibv_create_comp_channel(context);
	CHECK(busy.channel);
	busy_ex = ibv_create_cq_ex(context, &attr);
	CHECK(busy_ex);
	busy.send_cq = ibv_cq_ex_to_cq(busy_ex);
	busy.recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	busy.qp[0] = make_qp(&busy, &cap, 0);
	busy.qp[1] = make_qp(&busy, &cap, 0);
	CHECK(busy.recv_cq && busy.qp[0] && busy.qp[1]);
	all_at_once();
	CHECK(!pair_free(&busy));
}

/*
 * Tests an SRQ of two connections, to which one thread posts, while another one
 * resizes it. Messages are compared and must arrive in order; each buffer is
 * completed once. The traffic ends after SHARED_MESSAGES of each connection and
 * SHARED_RESIZES resizes, because a time limit would depend on the scheduler.
 */
#define SHARED_BUFFERS 100
#define SHARED_BYTES 5000u
#define SHARED_MESSAGES (ROUNDS * 10u)
#define SHARED_RESIZES 10u
#define SHARED_SOURCES 60000u

static struct pair shared;
static _Atomic(bool) in_use[SHARED_BUFFERS];
static _Atomic(unsigned int) resized, refused, starved;
static _Atomic(bool) received_all;

static size_t shared_source(uint32_t i)
{
	return i * 997 % SHARED_SOURCES;
}

/* Returns the length of message i. Some of the lengths fit into a CQE. */
static uint32_t shared_length(uint32_t i)
{
	return 1 + (i % 3 ? i * 37 % SHARED_BYTES : i % 30);
}

static void *feed_main(void *arg)
{
	struct ibv_recv_wr wr = { .num_sge = 1 }, *bad;
	struct ibv_sge sge;
	uint32_t i = 0;
	int err;

	while (!received_all) {
		i = (i + 1) % SHARED_BUFFERS;
		if (in_use[i])
			continue;
		sge = sge_of(HALF + i * SHARED_BYTES, SHARED_BYTES);
		wr.wr_id = i;
		wr.sg_list = &sge;
		in_use[i] = true;
		err = ibv_post_srq_recv(shared.srq, &wr, &bad);
		if (!err)
			continue;
		in_use[i] = false;
		errors += err != ENOMEM;
		starved++;
		sched_yield();
	}
	return arg;
}

static void *shared_send_main(void *arg)
{
	uint32_t sent[2] = {};
	struct ibv_sge sge;
	struct ibv_wc wc;
	int i, err;

	while (!received_all) {
		for (i = 0; i < 2; i++) {
			struct ibv_send_wr wr = {
				.sg_list = &sge,
				.num_sge = 1,
				.opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_SIGNALED,
			}, *bad;

			sge = sge_of(shared_source(sent[i] + i),
				     shared_length(sent[i] + i));
			err = ibv_post_send(shared.qp[!i], &wr, &bad);
			sent[i] += !err;
			errors += err && err != ENOMEM;
		}
		while (ibv_poll_cq(shared.send_cq, 1, &wc) == 1)
			errors += wc.status != IBV_WC_SUCCESS;
	}
	return arg;
}

static void *resize_srq_main(void *arg)
{
	static const uint32_t sizes[] = { 40, 200, 3, 1000, 20, 60, 15, 500, 90 };
	struct ibv_srq_attr attr = {}, now;
	uint32_t i;
	int err;

	for (i = 0; !received_all; i++) {
		attr.max_wr = sizes[i % 9];
		err = ibv_modify_srq(shared.srq, &attr, IBV_SRQ_MAX_WR);
		/*
		 * EINVAL means that more WQEs are posted than the new size
		 * allows
		 */
		errors += err && err != EINVAL;
		refused += err == EINVAL;
		resized += !err;
		errors += ibv_query_srq(shared.srq, &now) ||
			  (!err && now.max_wr < attr.max_wr);
	}
	return arg;
}

static void shared_received(const struct ibv_wc *wc, uint32_t *got)
{
	uint32_t of = wc->qp_num == shared.qp[1]->qp_num, i = got[of]++ + of;

	CHECK(wc->status == IBV_WC_SUCCESS && wc->wr_id < SHARED_BUFFERS);
	CHECK(in_use[wc->wr_id] && wc->byte_len == shared_length(i));
	CHECK(!memcmp(buffer + HALF + wc->wr_id * SHARED_BYTES,
		      buffer + shared_source(i), wc->byte_len));
	in_use[wc->wr_id] = false;
}

static void shared_receive_all(void)
{
	uint64_t end = now_ms() + SECONDS * 1000;
	uint32_t got[2] = {};
	struct ibv_wc wc;

	while (got[0] < SHARED_MESSAGES || got[1] < SHARED_MESSAGES ||
	       resized < SHARED_RESIZES) {
		while (ibv_poll_cq(shared.recv_cq, 1, &wc) == 1) {
			shared_received(&wc, got);
			end = now_ms() + SECONDS * 1000;
		}
		CHECK(now_ms() < end);
	}
}

static void test_resize_srq(void)
{
	static void *(*const mains[])(void *) = {
		feed_main, shared_send_main, resize_srq_main,
	};
	struct ibv_srq_init_attr attr = { .attr = { 20, 1, 0 } };
	struct ibv_qp_cap cap = { 16, 0, 1, 0, 0 };
	pthread_t thread[3];
	jmp_buf outer;
	int i;

	NEED(capabilities & QRNIC_CAP_SRQ_RESIZE);
	errors = resized = refused = starved = 0;
	fill(0, SHARED_SOURCES + SHARED_BYTES, 7);
	shared.srq = ibv_create_srq(pd, &attr);
	CHECK(shared.srq && !pair_make_as(&shared, &cap, 0));
	CHECK(!pair_connect(&shared));
	for (i = 0; i < 3; i++)
		CHECK(!pthread_create(&thread[i], NULL, mains[i], NULL));
	/*
	 * The threads must end in all cases. So a failure is only counted here,
	 * and does not end the test at once
	 */
	memcpy(outer, test_end, sizeof(outer));
	if (setjmp(test_end))
		errors++;
	else
		shared_receive_all();
	memcpy(test_end, outer, sizeof(outer));
	received_all = true;
	for (i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	printf("# %u resized, %u rejected, %u times full, %u errors\n", resized,
	       refused, starved, errors);
	CHECK(!errors && resized >= SHARED_RESIZES);
	CHECK(!pair_free(&shared) && !ibv_destroy_srq(shared.srq));
}

/*
 * Tests that the doorbell page of the process is mapped write-combining. The
 * kernel lists the memory types of mappings by physical address.
 */
static void test_write_combining(void)
{
	char path[300], line[300], type[64];
	unsigned long long start, from, to;
	struct qrnicdv_device_attr dev;
	FILE *file, *resource;
	bool found = false;
	int i;

	file = fopen("/sys/kernel/debug/x86/pat_memtype_list", "r");
	NEED(file);
	CHECK(!qrnicdv_query_device(context, &dev, sizeof(dev)));
	snprintf(path, sizeof(path), "%s/device/resource",
		 context->device->ibdev_path);
	resource = fopen(path, "r");
	CHECK(resource);
	for (i = 0; i <= 2; i++)
		CHECK(fgets(line, sizeof(line), resource));
	start = strtoull(line, NULL, 16);
	CHECK(start);
	fclose(resource);
	start += (unsigned long long)dev.db_number * QRNIC_DB_PAGE_SIZE;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "PAT: [mem %llx-%llx] %63s", &from, &to,
			   type) == 3 && from == start) {
			printf("# %s", line);
			found = !strcmp(type, "write-combining");
		}
	fclose(file);
	CHECK(found);
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	run("QPs are created and destroyed while one waits for its events", test_destroy_qp);
	run("the number of a waiting QP is reused", test_same_number);
	run("QPs are created while an XRC SRQ waits for its events",
	    test_destroy_xrc_srq);
	run("polling a CQ that other threads change", test_all_at_once);
	run("extended polling of a CQ that other threads change",
	    test_all_at_once_extended);
	run("an SRQ is resized while other threads post and receive", test_resize_srq);
	run("doorbell pages are write-combining", test_write_combining);
	return tear_down();
}
