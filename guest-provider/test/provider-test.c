// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * provider-test.c: tests libqrnic with one adapter: two connected queue pairs,
 * and each part of the library with them. Prints TAP.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test.h"

static void test_caps(void)
{
	static const struct ibv_qp_cap asked[] = {
		{ 1, 1, 1, 1, 0 }, { 1, 0, 0, 0, 0 }, { 100, 100, 3, 4, 0 },
		{ 16, 16, 30, 30, 256 }, { 7, 9, 2, 8, 33 }, { 2, 2, 1, 1, 256 },
	};
	struct ibv_device_attr dev;
	struct ibv_qp_cap cap;
	struct pair p;
	size_t i;

	CHECK(!ibv_query_device(context, &dev));
	for (i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
		cap = asked[i];
		CHECK(!pair_make(&p, &cap, 0));
		CHECK(cap.max_send_wr >= asked[i].max_send_wr);
		CHECK(cap.max_recv_wr >= asked[i].max_recv_wr);
		CHECK(cap.max_send_sge >= asked[i].max_send_sge);
		CHECK(cap.max_recv_sge >= asked[i].max_recv_sge);
		CHECK(cap.max_inline_data >= asked[i].max_inline_data);
		CHECK(cap.max_send_sge <= 30 && cap.max_inline_data <= 256);
		CHECK(!pair_free(&p));
	}
	cap = (struct ibv_qp_cap){ 1, 1, 31, 1, 0 };
	CHECK(pair_make(&p, &cap, 0) == EINVAL);
	CHECK(!pair_free(&p));
	cap = (struct ibv_qp_cap){ 1, 1, 1, 1, 257 };
	CHECK(pair_make(&p, &cap, 0) == EINVAL);
	CHECK(!pair_free(&p));
	cap = (struct ibv_qp_cap){ 1, dev.max_qp_wr + 1, 1, 1, 0 };
	CHECK(pair_make(&p, &cap, 0) == EINVAL);
	CHECK(!pair_free(&p));
}

static void test_states(void)
{
	struct ibv_qp_cap cap = { 4, 4, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 8);
	struct ibv_wc wc;
	struct pair p;

	CHECK(!pair_make(&p, &cap, 0));
	CHECK(write_one(p.qp[0], &sge, 1, 0, 1) == EINVAL);
	CHECK(recv_one(p.qp[0], &sge, 1, 1) == EINVAL);
	CHECK(!to_init(p.qp[0]));
	CHECK(write_one(p.qp[0], &sge, 1, 0, 1) == EINVAL);
	CHECK(recv_one(p.qp[0], &sge, 1, 77) == 0);
	CHECK(!to_state(p.qp[0], IBV_QPS_ERR));
	CHECK(poll_one(p.recv_cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 77);
	CHECK(wc.qp_num == p.qp[0]->qp_num && (wc.opcode & IBV_WC_RECV));
	/* In ERR all work requests are accepted and flushed, signaled or not */
	CHECK(write_one(p.qp[0], &sge, 1, 0, 5) == 0);
	CHECK(write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, 6) == 0);
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.wr_id == 5);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.wr_id == 6);
	CHECK(!pair_free(&p));
}

static void test_overflow(void)
{
	struct ibv_qp_cap cap = { 20, 20, 1, 1, 0 };
	struct ibv_send_wr wr[128], *bad = NULL;
	struct ibv_recv_wr rr[128], *bad_rr = NULL;
	struct ibv_wc wc;
	struct pair p;
	uint32_t i;

	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	CHECK(cap.max_send_wr < 100 && cap.max_recv_wr < 100);
	memset(wr, 0, sizeof(wr));
	memset(rr, 0, sizeof(rr));
	for (i = 0; i < 128; i++) {
		wr[i].wr_id = rr[i].wr_id = i;
		wr[i].next = i < 127 ? &wr[i + 1] : NULL;
		rr[i].next = i < 127 ? &rr[i + 1] : NULL;
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].send_flags = IBV_SEND_SIGNALED;
	}
	CHECK(ibv_post_send(p.qp[0], wr, &bad) == ENOMEM);
	CHECK(bad == &wr[cap.max_send_wr]);
	for (i = 0; i < cap.max_send_wr; i++) {
		CHECK(poll_one(p.send_cq, &wc) == 1);
		CHECK(wc.wr_id == i && wc.status == IBV_WC_SUCCESS);
	}
	CHECK(!ibv_poll_cq(p.send_cq, 1, &wc));
	wr[3].opcode = IBV_WR_TSO;
	CHECK(ibv_post_send(p.qp[0], wr, &bad) == EOPNOTSUPP && bad == &wr[3]);
	for (i = 0; i < 3; i++)
		CHECK(poll_one(p.send_cq, &wc) == 1 && wc.wr_id == i);
	CHECK(ibv_post_recv(p.qp[0], rr, &bad_rr) == ENOMEM);
	CHECK(bad_rr == &rr[cap.max_recv_wr]);
	CHECK(recv_one(p.qp[0], NULL, cap.max_recv_sge + 1, 0) == EINVAL);
	CHECK(write_one(p.qp[0], NULL, cap.max_send_sge + 1, 0, 0) == EINVAL);
	CHECK(!pair_free(&p));
}

/*
 * Tests that the queue accepts as many small WQEs as large ones. More would be
 * an error, because a program may choose the size of a CQ by max_send_wr.
 */
static void test_max_send_wr(void)
{
	struct ibv_qp_cap cap = { 10, 1, 30, 1, 0 };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_device_attr dev;
	struct ibv_wc wc;
	struct pair p;
	uint32_t i, round;

	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	for (round = 0; round < 3; round++) {
		for (i = 0; i < cap.max_send_wr; i++)
			CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
		CHECK(ibv_post_send(p.qp[0], &wr, &bad) == ENOMEM);
		for (i = 0; i < cap.max_send_wr; i++)
			CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	}
	CHECK(!pair_free(&p));
	/* All limits can be used at the same time */
	CHECK(!ibv_query_device(context, &dev));
	cap = (struct ibv_qp_cap){ dev.max_qp_wr, 1, dev.max_sge, 1, 256 };
	CHECK(!pair_make(&p, &cap, 0));
	CHECK(cap.max_send_wr >= (uint32_t)dev.max_qp_wr);
	CHECK(!pair_free(&p));
}

/* Tests WQEs of all sizes over the end of the ring, mostly unsignaled. */
static void test_gather_wrap(void)
{
	struct ibv_qp_cap cap = { 5, 1, 30, 1, 0 };
	struct ibv_sge sge[30];
	uint8_t expected[30 * 64];
	struct ibv_wc wc;
	struct pair p;
	int round, i;

	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	for (round = 0; round < 200; round++) {
		int n = round * 7 % 31, last = round % 4 == 3;
		size_t length = 0;

		fill(0, 4096, round);
		for (i = 0; i < n; i++) {
			uint32_t part = (round + i * 5) % 64;

			sge[i] = sge_of(i * 128 + round % 64, part);
			memcpy(expected + length,
			       (void *)(uintptr_t)sge[i].addr, part);
			length += part;
		}
		CHECK(!write_one(p.qp[0], sge, n, last ? IBV_SEND_SIGNALED : 0,
				 round));
		if (!last) {
			/*
			 * The test waits for a byte behind the data, because
			 * the buffer is reused
			 */
			struct ibv_sge none;

			none = sge_of(0, 0);
			CHECK(!write_one(p.qp[0], &none, 1, IBV_SEND_SIGNALED,
					 1000));
		}
		CHECK(poll_one(p.send_cq, &wc) == 1);
		CHECK(wc.status == IBV_WC_SUCCESS);
		CHECK(wc.wr_id == (last ? (uint64_t)round : 1000));
		CHECK(!memcmp(buffer + HALF, expected, length));
	}
	CHECK(!pair_free(&p));
}

static void test_inline(void)
{
	struct ibv_qp_cap cap = { 4, 4, 1, 1, 256 };
	uint8_t data[257];
	struct ibv_sge sge[2];
	struct ibv_wc wc;
	struct pair p;
	uint32_t length;

	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	CHECK(cap.max_inline_data == 256);
	for (length = 0; length <= 256; length++) {
		uint32_t first = length / 3;
		uint32_t i;

		for (i = 0; i < length; i++)
			data[i] = length + i * 3;
		memset(buffer + HALF, 0xee, 300);
		/* The lkey of inline data is ignored, so it is 0 */
		sge[0] = (struct ibv_sge){ (uintptr_t)data, first, 0 };
		sge[1] = (struct ibv_sge){ (uintptr_t)data + first,
					   length - first, 0 };
		CHECK(!write_one(p.qp[0], sge, 2,
				 IBV_SEND_INLINE | IBV_SEND_SIGNALED, length));
		CHECK(poll_one(p.send_cq, &wc) == 1);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == length);
		CHECK(!memcmp(buffer + HALF, data, length));
		CHECK(buffer[HALF + length] == 0xee);
	}
	sge[0] = (struct ibv_sge){ (uintptr_t)data, 257, 0 };
	CHECK(write_one(p.qp[0], sge, 1, IBV_SEND_INLINE, 0) == EINVAL);
	CHECK(!pair_free(&p));
}

static void test_operations(void)
{
	struct ibv_qp_cap cap = { 8, 8, 2, 2, 0 };
	uint64_t *local = (void *)buffer, *remote = (void *)(buffer + HALF);
	struct ibv_sge sge = sge_of(0, 8), into = sge_of(HALF, 64);
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_wc wc;
	struct pair p;

	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));

	CHECK(!recv_one(p.qp[1], &into, 1, 11));
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = htonl(0x12345678);
	*local = 42;
	CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
	CHECK(poll_one(p.recv_cq, &wc) == 1 && wc.wr_id == 11);
	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 8 && *remote == 42);
	CHECK((wc.wc_flags & IBV_WC_WITH_IMM) &&
	      wc.imm_data == htonl(0x12345678));
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.opcode == IBV_WC_SEND);

	CHECK(!recv_one(p.qp[1], NULL, 0, 12));
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.wr.rdma.remote_addr = (uintptr_t)remote;
	wr.wr.rdma.rkey = mr->rkey;
	*local = 43;
	CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
	CHECK(poll_one(p.recv_cq, &wc) == 1 && wc.wr_id == 12);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && *remote == 43);
	CHECK(wc.byte_len == 8);
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.opcode == IBV_WC_RDMA_WRITE);

	wr.opcode = IBV_WR_RDMA_READ;
	*remote = 44;
	CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.opcode == IBV_WC_RDMA_READ);
	CHECK(wc.byte_len == 8 && *local == 44);

	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = (uintptr_t)remote;
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.compare_add = 6;
	CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.opcode == IBV_WC_FETCH_ADD);
	CHECK(*local == 44 && *remote == 50);

	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 50;
	wr.wr.atomic.swap = 60;
	CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.opcode == IBV_WC_COMP_SWAP);
	CHECK(*local == 50 && *remote == 60);
	wr.num_sge = 0;
	CHECK(ibv_post_send(p.qp[0], &wr, &bad) == EINVAL && bad == &wr);
	wr.num_sge = 1;
	wr.send_flags |= IBV_SEND_INLINE;
	CHECK(ibv_post_send(p.qp[0], &wr, &bad) == EINVAL);
	CHECK(!pair_free(&p));
}

#define EX_OPS                                                                 \
	(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |                  \
	 IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |      \
	 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |        \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

/* Posts a batch with every operation and setter. */
static void post_every_operation(struct ibv_qp_ex *ex, uint64_t *local,
				 uint64_t *remote)
{
	struct ibv_sge sge[2] = { sge_of(0, 8), sge_of(8, 8) };
	struct ibv_data_buf buf[2] = { { "abc", 3 }, { "defg", 5 } };

	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ex->wr_id = 1;
	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 2, sge);
	ex->wr_id = 2;
	ibv_wr_send_imm(ex, htonl(5));
	ibv_wr_set_inline_data_list(ex, 2, buf);
	ex->wr_id = 3;
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)&remote[200]);
	ibv_wr_set_inline_data(ex, "inline", 7);
	ex->wr_id = 4;
	ibv_wr_rdma_write_imm(ex, mr->rkey, (uintptr_t)&remote[210], htonl(6));
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)&local[1], 8);
	ex->wr_id = 5;
	ibv_wr_rdma_read(ex, mr->rkey, (uintptr_t)&remote[100]);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)&local[20], 16);
	/*
	 * The fence is needed, because the atomic might otherwise execute
	 * before the read
	 */
	ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
	ex->wr_id = 6;
	ibv_wr_atomic_fetch_add(ex, mr->rkey, (uintptr_t)&remote[100], 3);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)&local[30], 8);
	ex->wr_id = 7;
	ibv_wr_atomic_cmp_swp(ex, mr->rkey, (uintptr_t)&remote[101], 8, 80);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)&local[31], 8);
	ex->wr_id = 8;
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)&remote[0]);
	CHECK(!ibv_wr_complete(ex));
}

static void test_extended_post(void)
{
	struct ibv_qp_cap cap = { 16, 8, 4, 4, 64 };
	uint64_t *local = (void *)buffer, *remote = (void *)(buffer + HALF);
	struct ibv_sge into = sge_of(HALF, 64);
	struct ibv_qp_ex *ex;
	struct ibv_wc wc;
	struct pair p;
	uint64_t id;

	CHECK(!pair_make(&p, &cap, EX_OPS));
	CHECK(!pair_connect(&p));
	ex = ibv_qp_to_qp_ex(p.qp[0]);
	CHECK(ex);
	for (id = 21; id <= 23; id++)
		CHECK(!recv_one(p.qp[1], &into, 1, id));
	local[0] = 1, local[1] = 2, remote[100] = 7, remote[101] = 8;
	post_every_operation(ex, local, remote);

	for (id = 1; id <= 8; id++)
		CHECK(poll_one(p.send_cq, &wc) == 1 && wc.wr_id == id &&
		      wc.status == IBV_WC_SUCCESS);
	CHECK(poll_one(p.recv_cq, &wc) == 1 && wc.byte_len == 16);
	CHECK(poll_one(p.recv_cq, &wc) == 1 && wc.byte_len == 8 &&
	      wc.imm_data == htonl(5));
	CHECK(!memcmp(remote, "abcdefg", 8));
	CHECK(!memcmp(&remote[200], "inline", 7));
	CHECK(poll_one(p.recv_cq, &wc) == 1 && wc.imm_data == htonl(6));
	CHECK(remote[210] == 2 && local[20] == 7 && local[21] == 8);
	CHECK(local[30] == 7 && remote[100] == 10);
	CHECK(local[31] == 8 && remote[101] == 80);
	CHECK(!pair_free(&p));
}

static void test_extended_undo(void)
{
	struct ibv_qp_cap cap = { 16, 8, 4, 4, 64 };
	uint64_t *local = (void *)buffer, *remote = (void *)(buffer + HALF);
	struct ibv_qp_ex *ex;
	struct ibv_wc wc;
	struct pair p;
	uint64_t id;

	CHECK(!pair_make(&p, &cap, EX_OPS));
	CHECK(!pair_connect(&p));
	ex = ibv_qp_to_qp_ex(p.qp[0]);
	ex->wr_flags = IBV_SEND_SIGNALED;
	local[0] = 1;
	remote[0] = remote[1] = 77;

	ibv_wr_start(ex);
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)remote);
	ibv_wr_set_inline_data(ex, "XXXX", 5);
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)remote);
	ibv_wr_set_inline_data(ex, "XXXX", 5);
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)remote);
	ibv_wr_set_inline_data(ex, buffer, cap.max_inline_data + 1);
	CHECK(ibv_wr_complete(ex) == EINVAL);
	ibv_wr_start(ex);
	for (id = 0; id <= 4 * cap.max_send_wr; id++) {
		ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)remote);
		ibv_wr_set_inline_data(ex, "XXXX", 5);
	}
	CHECK(ibv_wr_complete(ex) == ENOMEM);
	ex->wr_id = 9;
	ibv_wr_start(ex);
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)&remote[1]);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)local, 8);
	CHECK(!ibv_wr_complete(ex));
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.wr_id == 9);
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(remote[0] == 77 && remote[1] == 1);
	CHECK(!pair_free(&p));
}

static void test_timestamps(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16,
		.wc_flags = IBV_WC_STANDARD_FLAGS |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};
	struct ibv_poll_cq_attr poll_attr = {};
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 64);
	struct ibv_device_attr_ex dev;
	uint64_t last = 0, start, seen, again, ns;
	struct ibv_cq_ex *cq;
	struct ibv_cq *old;
	struct pair p;
	int i, got;

	CHECK(!ibv_query_device_ex(context, NULL, &dev));
	CHECK(dev.completion_timestamp_mask && dev.hca_core_clock);
	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_free(&p));
	memset(&p, 0, sizeof(p));
	p.channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq_ex(context, &attr);
	CHECK(cq);
	p.send_cq = ibv_cq_ex_to_cq(cq);
	p.recv_cq = old = ibv_create_cq(context, 16, NULL, NULL, 0);
	p.qp[0] = make_qp(&p, &cap, 0);
	p.qp[1] = make_qp(&p, &cap, 0);
	CHECK(old && p.qp[0] && p.qp[1] && !pair_connect(&p));

	CHECK(ibv_start_poll(cq, &poll_attr) == ENOENT);
	for (i = 0; i < 8; i++)
		CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
	start = now_ms();
	for (got = 0; got < 8 && now_ms() < start + SECONDS * 1000;) {
		if (ibv_start_poll(cq, &poll_attr))
			continue;
		do {
			CHECK(cq->status == IBV_WC_SUCCESS);
			CHECK(cq->wr_id == (uint64_t)got++);
			CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE);
			CHECK(ibv_wc_read_qp_num(cq) == p.qp[0]->qp_num);
			CHECK(ibv_wc_read_completion_ts(cq) >= last);
			last = ibv_wc_read_completion_ts(cq);
		} while (!ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	CHECK(got == 8);
	/* The clock must have the reported frequency, within a tenth */
	seen = now_ms();
	nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
	again = now_ms();
	CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, 9));
	while (ibv_start_poll(cq, &poll_attr))
		CHECK(now_ms() < start + SECONDS * 1000);
	ns = (ibv_wc_read_completion_ts(cq) - last) * 1000000 /
	     dev.hca_core_clock;
	ibv_end_poll(cq);
	CHECK(ns > (again - seen - 2) * 900000);
	CHECK(ns < (now_ms() - start + 2) * 1100000);
	CHECK(!pair_free(&p));
}

/*
 * Returns the clock of ibv_query_rt_values_ex(), or 0 if it is not available.
 */
static uint64_t read_clock(void)
{
	struct ibv_values_ex values = {
		.comp_mask = IBV_VALUES_MASK_RAW_CLOCK,
	};

	if (ibv_query_rt_values_ex(context, &values) || values.raw_clock.tv_sec ||
	    values.comp_mask != IBV_VALUES_MASK_RAW_CLOCK)
		return 0;
	return values.raw_clock.tv_nsec;
}

/* Tests that this clock is the clock of the timestamps. */
static void test_clock(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct ibv_poll_cq_attr poll_attr = {};
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_values_ex values = { .comp_mask = 1u << 31 };
	struct ibv_sge sge = sge_of(0, 64);
	struct pair p = {};
	uint64_t before, after, stamp, end;
	struct ibv_cq_ex *cq;
	int i;

	CHECK(ibv_query_rt_values_ex(context, &values) == EINVAL);
	CHECK(!values.comp_mask && !ibv_query_rt_values_ex(context, &values));
	p.channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq_ex(context, &attr);
	CHECK(p.channel && cq);
	p.send_cq = ibv_cq_ex_to_cq(cq);
	p.recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	p.qp[0] = make_qp(&p, &cap, 0);
	p.qp[1] = make_qp(&p, &cap, 0);
	CHECK(p.recv_cq && p.qp[0] && p.qp[1] && !pair_connect(&p));
	for (i = 0; i < 20; i++) {
		before = read_clock();
		CHECK(before);
		CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
		end = now_ms() + SECONDS * 1000;
		while (ibv_start_poll(cq, &poll_attr))
			CHECK(now_ms() < end);
		stamp = ibv_wc_read_completion_ts(cq);
		ibv_end_poll(cq);
		after = read_clock();
		CHECK(before <= stamp && stamp <= after);
	}
	CHECK(!pair_free(&p));
}

static void test_events(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 8);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
	}, *bad;
	struct pair marker;
	struct ibv_wc wc;
	struct pair p;
	int i;

	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	marker_make(&marker, p.channel);
	for (i = 0; i < 8; i++)
		CHECK(!recv_one(p.qp[1], &sge, 1, i));

	/* The CQ is not armed, so there must be no event */
	CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, 1));
	CHECK(poll_one(p.send_cq, &wc) == 1);
	no_event(&marker);
	/* The CQ is armed, so there must be exactly one event */
	for (i = 0; i < 3; i++) {
		CHECK(!ibv_req_notify_cq(p.send_cq, 0));
		no_event(&marker);
		CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, 1));
		CHECK(next_cq_event(p.channel) == p.send_cq);
		CHECK(poll_one(p.send_cq, &wc) == 1);
		CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, 1));
		CHECK(poll_one(p.send_cq, &wc) == 1);
		no_event(&marker);
	}
	/* The request is for solicited completions only */
	CHECK(!ibv_req_notify_cq(p.recv_cq, 1));
	CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
	CHECK(poll_one(p.recv_cq, &wc) == 1);
	no_event(&marker);
	wr.send_flags = IBV_SEND_SOLICITED;
	CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
	CHECK(next_cq_event(p.channel) == p.recv_cq);
	CHECK(poll_one(p.recv_cq, &wc) == 1);
	CHECK(!marker_free(&marker) && !pair_free(&p));
}

/*
 * Tests that a request for any CQE counts, even if the device reads the record
 * only after a request for solicited CQEs has replaced it.
 */
static void test_arm_any_then_solicited(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 8);
	struct pair marker;
	struct ibv_wc wc;
	struct pair p;
	int i;

	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	for (i = 0; i < 200; i++) {
		CHECK(!ibv_req_notify_cq(p.send_cq, 0));
		CHECK(!ibv_req_notify_cq(p.send_cq, 1));
		CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
		CHECK(next_cq_event(p.channel) == p.send_cq);
		CHECK(poll_one(p.send_cq, &wc) == 1);
	}
	CHECK(!pair_free(&p));

	/* After its event, a request for any CQE no longer counts */
	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	marker_make(&marker, p.channel);
	for (i = 0; i < 3; i++) {
		CHECK(!ibv_req_notify_cq(p.send_cq, 0));
		CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
		CHECK(next_cq_event(p.channel) == p.send_cq);
		CHECK(poll_one(p.send_cq, &wc) == 1);
	}
	CHECK(!ibv_req_notify_cq(p.send_cq, 1));
	CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
	CHECK(poll_one(p.send_cq, &wc) == 1);
	no_event(&marker);

	/* One event also answers many requests */
	for (i = 0; i < 100; i++)
		CHECK(!ibv_req_notify_cq(p.send_cq, i % 2));
	CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
	CHECK(next_cq_event(p.channel) == p.send_cq);
	CHECK(poll_one(p.send_cq, &wc) == 1);
	for (i = 0; i < 3; i++) {
		CHECK(!ibv_req_notify_cq(p.send_cq, 1));
		CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
		CHECK(poll_one(p.send_cq, &wc) == 1);
		no_event(&marker);
	}
	CHECK(!marker_free(&marker) && !pair_free(&p));
}

/*
 * Size of a region with a translation table of three levels, which has more
 * than 2^18 pages of 4 KiB. A set of 251 pages is mapped repeatedly. This
 * number and the number of entries in a page list have no common factor, so a
 * wrong entry leads to another page.
 */
#define LARGE_PAGES 251ul
#define LARGE_SIZE ((1ul << 30) + (3ul << 20))
static uint8_t *large, *large_reserved;
static size_t large_mapped;

static int large_map(void)
{
	size_t step = LARGE_PAGES * 4096;
	int fd = memfd_create("large", 0);
	size_t page, at;

	large_mapped = (LARGE_SIZE + step - 1) / step * step;
	large_reserved = mmap(NULL, large_mapped + 4096, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (fd < 0 || large_reserved == MAP_FAILED || ftruncate(fd, step))
		return -1;
	/*
	 * The region begins at an odd page. Otherwise an IOMMU could join it
	 * into one piece that begins at a large page, and the driver would use
	 * large pages.
	 */
	large = large_reserved + (~(uintptr_t)large_reserved & 4096);
	for (at = 0; at < large_mapped; at += step)
		if (mmap(large + at, step, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			return -1;
	close(fd);
	/*
	 * The pages are touched in an order that leaves few neighbours in
	 * physical memory
	 */
	for (page = 0; page < LARGE_PAGES; page++)
		memset(large + page * 7 % LARGE_PAGES * 4096, 0, 4096);
	return 0;
}

static void test_three_levels(void)
{
	const size_t offsets[] = {
		0, 4092, 511 * 4096 + 4092, (1ul << 21) + 40,
		(1ul << 29) - 4, (1ul << 29) + 4096, (1ul << 30) - 4,
		1ul << 30, (1ul << 30) + (1ul << 21) - 4, LARGE_SIZE - 8,
	};
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 8);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_mr *large_mr;
	struct ibv_wc wc;
	struct pair p;
	size_t i;

	CHECK(!large_map());
	large_mr = ibv_reg_mr(pd, large, LARGE_SIZE, IBV_ACCESS_LOCAL_WRITE |
			      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(large_mr);
	CHECK(!system("rdma -dd res show mr | grep -Eq 'pages 26[0-9]{4}'"));
	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	wr.wr.rdma.rkey = large_mr->rkey;
	for (i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
		fill(0, 8, i + 1);
		memset(large + offsets[i], 0, 8);
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = (uintptr_t)large + offsets[i];
		CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(!memcmp(large + offsets[i], buffer, 8));
		memset(buffer, 0, 8);
		wr.opcode = IBV_WR_RDMA_READ;
		CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(!memcmp(large + offsets[i], buffer, 8));
	}
	/* The access ends one byte behind the region */
	wr.wr.rdma.remote_addr = (uintptr_t)large + LARGE_SIZE - 7;
	CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.status == IBV_WC_REM_ACCESS_ERR);
	CHECK(!pair_free(&p) && !ibv_dereg_mr(large_mr));
	CHECK(!munmap(large_reserved, large_mapped + 4096));
}

/* Tests that a destroyed QP loses its completions, and other QPs do not. */
static void test_clean(void)
{
	struct ibv_qp_cap cap = { 16, 16, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 8);
	struct ibv_wc wc;
	struct pair p;
	int i;

	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	for (i = 0; i < 8; i++) {
		CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
		CHECK(!write_one(p.qp[1], &sge, 1, IBV_SEND_SIGNALED, 100 + i));
	}
	completions_wait(p.send_cq, 16);
	CHECK(!to_state(p.qp[0], IBV_QPS_RESET));
	for (i = 0; i < 8; i++)
		CHECK(poll_one(p.send_cq, &wc) == 1 &&
		      wc.wr_id == (uint64_t)100 + i);
	CHECK(!ibv_poll_cq(p.send_cq, 1, &wc));

	/*
	 * The QP works again after the other one was destroyed and created
	 * again
	 */
	CHECK(!write_one(p.qp[1], &sge, 1, 0, 1));
	CHECK(!ibv_destroy_qp(p.qp[1]));
	p.qp[1] = make_qp(&p, &cap, 0);
	CHECK(p.qp[1] && !pair_connect(&p));
	for (i = 0; i < 100; i++) {
		CHECK(!write_one(p.qp[i % 2], &sge, 1, IBV_SEND_SIGNALED, i));
		CHECK(poll_one(p.send_cq, &wc) == 1);
		CHECK(wc.wr_id == (uint64_t)i && wc.status == IBV_WC_SUCCESS);
	}
	CHECK(!pair_free(&p));
}

static void test_error(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 8);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	struct pair p;

	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	sge.lkey ^= 0x80;
	CHECK(!write_one(p.qp[0], &sge, 1, 0, 31));
	sge.lkey ^= 0x80;
	CHECK(write_one(p.qp[0], &sge, 1, 0, 32) == 0);
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.wr_id == 31);
	CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
	CHECK(wc.vendor_err == QRNIC_SYN_KEY_INVALID);
	CHECK(poll_one(p.send_cq, &wc) == 1 && wc.wr_id == 32);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_query_qp(p.qp[0], &attr, IBV_QP_STATE, &init));
	CHECK(attr.qp_state == IBV_QPS_ERR);
	CHECK(!pair_free(&p));
}

/* Tests a WQE that the program writes itself through direct verbs. */
static void test_direct_verbs(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	volatile struct qrnic_cqe *cqe;
	struct qrnicdv_device_attr dev;
	uint32_t index, phase;
	struct qrnicdv_cq cq;
	struct qrnicdv_qp qp;
	uint64_t end;
	struct pair p;
	uint8_t *wqe;

	CHECK(qrnicdv_is_supported(context->device));
	CHECK(!qrnicdv_query_device(context, &dev, sizeof(dev)));
	CHECK(!dev.comp_mask && dev.max_send_sge == 30 && dev.db_page);
	CHECK(qrnicdv_query_device(context, &dev, 4) == EINVAL);
	CHECK(!pair_make(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	CHECK(!qrnicdv_query_qp(p.qp[0], &qp, sizeof(qp)));
	CHECK(!qrnicdv_query_cq(p.send_cq, &cq, sizeof(cq)));
	CHECK(qp.qpn == p.qp[0]->qp_num && qp.db_page == dev.db_page);

	index = qp.sq.producer;
	wqe = (uint8_t *)qp.sq.ring + (index & (qp.sq.size - 1)) * 64;
	*(struct qrnic_sq_ctrl *)wqe = (struct qrnic_sq_ctrl){
		.operation = htole32(QRNIC_WQE_RDMA_WRITE |
				     QRNIC_WQEF_SIGNALED << 8 | 3 << 16),
		.index = htole32(index),
	};
	*(struct qrnic_remote_seg *)(wqe + 16) = (struct qrnic_remote_seg){
		.address = htole64((uintptr_t)buffer + HALF),
		.rkey = htole32(mr->rkey),
	};
	*(struct qrnic_data_seg *)(wqe + 32) = (struct qrnic_data_seg){
		.address = htole64((uintptr_t)buffer),
		.length = htole32(1000),
		.lkey = htole32(mr->lkey),
	};
	fill(0, 1000, 99);
	memset(buffer + HALF, 0, 1000);
	__sync_synchronize();
	((volatile struct qrnic_queue_record *)qp.sq.record)->producer =
		htole32(index + 1);
	__sync_synchronize();
	*(volatile uint64_t *)((uint8_t *)qp.db_page + QRNIC_DB_SQ) =
		htole64(qp.qpn | (uint64_t)(index + 1) << 32);
	/* The page is write-combining, so the doorbell is flushed */
	__sync_synchronize();

	cqe = &cq.ring[cq.consumer & (cq.size - 1)];
	phase = cq.consumer / cq.size % 2 ? 0 : QRNIC_CQE_PHASE_MASK;
	end = now_ms() + SECONDS * 1000;
	while ((le32toh(cqe->control) & QRNIC_CQE_PHASE_MASK) != phase)
		CHECK(now_ms() < end);
	__sync_synchronize();
	CHECK((le32toh(cqe->control) & QRNIC_CQE_STATUS_MASK) == 0);
	CHECK(le32toh(cqe->index) == index);
	CHECK(!memcmp(buffer, buffer + HALF, 1000));
	cq.record->consumer = htole32(cq.consumer + 1);
	CHECK(!pair_free(&p));
}

/*
 * Tests that device memory is zero for its next user, even if the pages are
 * reused.
 */
static void test_device_memory(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 8192 };
	struct ibv_device_attr_ex limits;
	struct ibv_dm *dm, *same;
	struct ibv_mr *region;
	unsigned int i;

	NEED(capabilities & QRNIC_CAP_DEVICE_MEMORY);
	CHECK(!ibv_query_device_ex(context, NULL, &limits));
	CHECK(limits.max_dm_size >= attr.length);
	dm = ibv_alloc_dm(context, &attr);
	CHECK(dm);
	memset(buffer, 0x5a, attr.length);
	CHECK(!ibv_memcpy_to_dm(dm, 0, buffer, attr.length));
	same = ibv_import_dm(context, dm->handle);
	CHECK(same);
	CHECK(!ibv_memcpy_from_dm(buffer + HALF, same, 0, attr.length));
	CHECK(!memcmp(buffer, buffer + HALF, attr.length));
	ibv_unimport_dm(same);
	/* Neither the data nor the place in device memory is a multiple of 8. */
	memcpy(buffer + 1, "twenty bytes of data", 20);
	CHECK(!ibv_memcpy_to_dm(dm, 4, buffer + 1, 20));
	CHECK(!ibv_memcpy_from_dm(buffer + HALF + 1, dm, 4, 20));
	CHECK(!memcmp(buffer + 1, buffer + HALF + 1, 20));
	memset(buffer, 0x5a, attr.length);
	CHECK(!ibv_memcpy_to_dm(dm, 0, buffer, attr.length));
	CHECK(ibv_memcpy_to_dm(dm, 2, buffer, 4) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, attr.length, buffer, 4) == EFAULT);
	CHECK(ibv_memcpy_from_dm(buffer, dm, UINT64_MAX - 3, 8) == EFAULT);

	region = ibv_reg_dm_mr(pd, dm, 4, 4096, IBV_ACCESS_ZERO_BASED);
	CHECK(region);
	CHECK(ibv_free_dm(dm) == EBUSY);
	CHECK(!ibv_dereg_mr(region));
	CHECK(!ibv_reg_dm_mr(pd, dm, 4, attr.length, IBV_ACCESS_ZERO_BASED));
	CHECK(!ibv_free_dm(dm));

	attr.length = limits.max_dm_size;
	dm = ibv_alloc_dm(context, &attr);
	CHECK(dm);
	CHECK(!ibv_alloc_dm(context, &attr) && errno == ENOMEM);
	for (i = 0; i < limits.max_dm_size; i += 4096) {
		CHECK(!ibv_memcpy_from_dm(buffer, dm, i, 4096));
		CHECK(!buffer[0] && !memcmp(buffer, buffer + 1, 4095));
	}
	CHECK(!ibv_free_dm(dm));
}

#define THREADS 4
#define THREAD_WRITES 2000
static struct pair shared;
static _Atomic(unsigned int) thread_done, thread_errors;

static void *thread_main(void *number)
{
	struct ibv_sge sge = sge_of(0, 8);
	struct ibv_wc wc[4];
	unsigned int i;
	int n, err;

	for (i = 0; i < THREAD_WRITES;) {
		err = write_one(shared.qp[(uintptr_t)number % 2], &sge, 1,
				IBV_SEND_SIGNALED, i);
		if (!err)
			i++;
		else if (err != ENOMEM)
			thread_errors++;
		n = ibv_poll_cq(shared.send_cq, 4, wc);
		while (n-- > 0) {
			thread_done++;
			if (wc[n].status)
				thread_errors++;
		}
	}
	return NULL;
}

static void test_threads(void)
{
	struct ibv_qp_cap cap = { 32, 8, 1, 1, 0 };
	pthread_t thread[THREADS];
	struct ibv_wc wc;
	uintptr_t i;

	CHECK(!pair_make(&shared, &cap, 0));
	CHECK(!pair_connect(&shared));
	thread_done = thread_errors = 0;
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&thread[i], NULL, thread_main, (void *)i));
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	while (thread_done < THREADS * THREAD_WRITES) {
		CHECK(poll_one(shared.send_cq, &wc) == 1);
		thread_done++;
	}
	CHECK(!thread_errors && !ibv_poll_cq(shared.send_cq, 1, &wc));
	CHECK(!pair_free(&shared));
}

#define SMALL_PAIRS 40

static int small_write(struct pair *p, uint64_t number)
{
	struct ibv_sge sge = sge_of(0, 64);
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 2; i++) {
		fill(0, 64, number + i);
		memset(buffer + HALF, 0, 64);
		if (write_one(p->qp[i], &sge, 1, IBV_SEND_SIGNALED, number) ||
		    poll_one(p->send_cq, &wc) != 1 || wc.status ||
		    wc.wr_id != number || memcmp(buffer, buffer + HALF, 64))
			return -1;
	}
	return 0;
}

/*
 * Returns the address of an SQ, and if it is all zero, as the device requires.
 */
static uintptr_t small_ring(struct ibv_qp *qp, bool *zero)
{
	struct qrnicdv_qp dv;
	uint32_t i;

	if (qrnicdv_query_qp(qp, &dv, sizeof(dv)))
		return 0;
	*zero = !dv.sq.record->producer;
	for (i = 0; i < dv.sq.size * dv.sq.stride; i++)
		if (((uint8_t *)dv.sq.ring)[i])
			*zero = false;
	return (uintptr_t)dv.sq.ring;
}

/*
 * Tests that queues of less than a page share pages, and that reused parts are
 * zero.
 */
static void test_small_queues(void)
{
	struct ibv_qp_cap least = { 1, 1, 1, 1, 0 }, cap;
	uintptr_t ring, neighbour, again;
	struct pair p[SMALL_PAIRS];
	bool zero;
	int i;

	CHECK(!pair_make(&p[0], &least, 0));
	ring = small_ring(p[0].qp[0], &zero);
	CHECK(zero);
	neighbour = small_ring(p[0].qp[1], &zero);
	CHECK(zero && ring != neighbour && ring / 4096 == neighbour / 4096);
	CHECK(!pair_connect(&p[0]));
	CHECK(!small_write(&p[0], 7));
	small_ring(p[0].qp[0], &zero);
	CHECK(!zero);
	CHECK(!pair_free(&p[0]));

	least = (struct ibv_qp_cap){ 1, 1, 1, 1, 0 };
	CHECK(!pair_make(&p[0], &least, 0));
	again = small_ring(p[0].qp[0], &zero);
	CHECK(again == ring && zero);
	CHECK(!pair_free(&p[0]));

	/*
	 * All sizes are used, with more than one slab of each, and with free
	 * parts between
	 */
	for (i = 0; i < SMALL_PAIRS; i++) {
		cap = (struct ibv_qp_cap){ 1 << i % 7, 1 << i / 7, 1, 1, 0 };
		CHECK(!pair_make(&p[i], &cap, 0));
		CHECK(!pair_connect(&p[i]));
	}
	for (i = 0; i < SMALL_PAIRS; i += 2) {
		CHECK(!pair_free(&p[i]));
		cap = (struct ibv_qp_cap){ 1 << i / 7, 1 << i % 7, 1, 1, 0 };
		CHECK(!pair_make(&p[i], &cap, 0));
		CHECK(small_ring(p[i].qp[1], &zero) && zero);
		CHECK(!pair_connect(&p[i]));
	}
	for (i = 0; i < SMALL_PAIRS; i++)
		CHECK(!small_write(&p[i], i));
	for (i = SMALL_PAIRS - 1; i >= 0; i--)
		CHECK(!pair_free(&p[i]));
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	run("reported sizes can be used", test_caps);
	run("no more WQEs than max_send_wr", test_max_send_wr);
	run("posting in each state", test_states);
	run("overflow and bad_wr", test_overflow);
	run("operations", test_operations);
	run("gather lists over the end of the ring", test_gather_wrap);
	run("inline data of all lengths", test_inline);
	run("extended posting", test_extended_post);
	run("a dropped batch leaves no WQE", test_extended_undo);
	run("extended CQ and timestamps", test_timestamps);
	run("the clock of the timestamps", test_clock);
	run("events", test_events);
	run("a request for any completion, then for solicited ones",
	    test_arm_any_then_solicited);
	run("a region with a table of three levels", test_three_levels);
	run("completions of a destroyed QP", test_clean);
	run("error and flush", test_error);
	run("direct verbs", test_direct_verbs);
	run("device memory", test_device_memory);
	run("small queues", test_small_queues);
	if (!getenv("QRNIC_SINGLE_THREADED"))
		run("threads", test_threads);
	return tear_down();
}
