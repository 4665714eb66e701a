// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * dynamic-test.c: tests dynamic connections of an adapter with itself: all
 * operations, many initiators with many targets, and rejected connections. The
 * arguments are the adapter and the index of the GID. With "loop" behind them
 * the program sends until it is killed.
 */
#include <sys/mman.h>

#include "test.h"

#define KEY 0x0123456789abcdefull
#define SLOT 4096u
#define LENGTHS 6
#define SLOTS 32u
#define INITIATORS 4
#define TARGETS 3
#define MESSAGES 600
#define MOST_SGE 32

struct end {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	/* Offset of the receive buffers of a target */
	size_t offset;
};

static struct ibv_ah *ah;
static enum ibv_mtu target_mtu = IBV_MTU_1024;
/* Idle time of initiators, coded like an ACK timeout. The value 10 is 4 ms */
static uint8_t initiator_idle = 10;

static int modify(struct ibv_qp *qp, enum ibv_qp_state state, int mask,
		  uint8_t rnr_retry, enum ibv_mtu mtu)
{
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = remote_rights(),
		.path_mtu = mtu,
		.max_dest_rd_atomic = rd_atomic,
		.max_rd_atomic = rd_atomic,
		.min_rnr_timer = 1,
		.timeout = 10,
		.retry_cnt = 3,
		.rnr_retry = rnr_retry,
		.sq_psn = 0xfffff0,
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
}

static int initiator_start(struct ibv_qp *qp, uint8_t rnr_retry,
			   enum ibv_mtu mtu)
{
	return modify(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0, 0) ||
	       modify(qp, IBV_QPS_RTR, IBV_QP_PATH_MTU, 0, mtu) ||
	       modify(qp, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		      rnr_retry, 0);
}

static struct ibv_qp *initiator_create(struct ibv_cq *cq, uint32_t flags,
				       uint64_t ops, struct ibv_qp_cap cap)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_DC,
		.dc = { QRNICDV_DCTYPE_DCI, flags, .idle = initiator_idle },
	};
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.cap = cap,
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = ops,
	};

	return qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));
}

static void initiator_make_cap(struct end *e, uint32_t flags,
			       uint8_t rnr_retry, enum ibv_mtu mtu,
			       struct ibv_qp_cap cap)
{
	uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
		       IBV_QP_EX_WITH_RDMA_WRITE |
		       IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		       IBV_QP_EX_WITH_RDMA_READ;

	if (capabilities & QRNIC_CAP_ATOMIC)
		ops |= IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	memset(e, 0, sizeof(*e));
	e->cq = ibv_create_cq(context, 512, NULL, NULL, 0);
	CHECK(e->cq);
	e->qp = initiator_create(e->cq, flags, ops, cap);
	CHECK(e->qp && !initiator_start(e->qp, rnr_retry, mtu));
	e->ex = ibv_qp_to_qp_ex(e->qp);
}

static void initiator_make(struct end *e, uint32_t flags, uint8_t rnr_retry,
			   enum ibv_mtu mtu)
{
	initiator_make_cap(e, flags, rnr_retry, mtu, (struct ibv_qp_cap){
		.max_send_wr = 64, .max_send_sge = 2, .max_inline_data = 64 });
}

static int slot_post(struct end *e, uint64_t slot)
{
	struct ibv_sge sge = sge_of(e->offset + slot * SLOT, SLOT);
	struct ibv_recv_wr wr = { slot, NULL, &sge, 1 }, *bad;

	return ibv_post_srq_recv(e->srq, &wr, &bad);
}

static uint32_t target_flags;

static void target_make(struct end *e, size_t offset, uint32_t responders)
{
	struct ibv_srq_init_attr srq = { .attr = { SLOTS, 1, 0 } };
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_DC,
		.dc = { QRNICDV_DCTYPE_DCT, target_flags, .responders = responders,
			.dct_access_key = KEY },
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	uint64_t i;

	memset(e, 0, sizeof(*e));
	e->offset = offset;
	e->cq = attr.recv_cq = ibv_create_cq(context, 2 * SLOTS, NULL, NULL, 0);
	e->srq = attr.srq = ibv_create_srq(pd, &srq);
	CHECK(e->cq && e->srq);
	for (i = 0; i < SLOTS; i++)
		CHECK(!slot_post(e, i));
	e->qp = qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));
	CHECK(e->qp);
	CHECK(!modify(e->qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		      IBV_QP_ACCESS_FLAGS, 0, 0));
	CHECK(!modify(e->qp, IBV_QPS_RTR, IBV_QP_PATH_MTU |
		      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, 0,
		      target_mtu));
}

static void end_free(struct end *e)
{
	CHECK(!e->qp || !ibv_destroy_qp(e->qp));
	CHECK(!e->srq || !ibv_destroy_srq(e->srq));
	CHECK(!ibv_destroy_cq(e->cq));
}

static void address_make(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 },
	};

	NEED(capabilities & QRNIC_CAP_DYNAMIC);
	ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
}

/* Begins a signaled work request; the caller adds its operation. */
static void wr_begin(struct end *e, uint64_t wr_id)
{
	ibv_wr_start(e->ex);
	e->ex->wr_id = wr_id;
	e->ex->wr_flags = IBV_SEND_SIGNALED;
}

static int wr_end(struct end *e, struct end *to, uint64_t key, size_t offset,
		  uint32_t length)
{
	qrnicdv_wr_set_dc_addr(e->ex, ah, to->qp->qp_num, key);
	ibv_wr_set_sge(e->ex, mr->lkey, (uintptr_t)buffer + offset, length);
	return ibv_wr_complete(e->ex);
}

static int send_one(struct end *e, struct end *to, uint64_t key, size_t offset,
		    uint32_t length, uint64_t wr_id)
{
	wr_begin(e, wr_id);
	ibv_wr_send(e->ex);
	return wr_end(e, to, key, offset, length);
}

static struct ibv_wc completed(struct end *e, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	CHECK(poll_one(e->cq, &wc) == 1);
	if (wc.status != status)
		printf("# %s, vendor %u\n", ibv_wc_status_str(wc.status),
		       wc.vendor_err);
	CHECK(wc.status == status && wc.qp_num == e->qp->qp_num);
	return wc;
}

static void received(struct end *to, struct end *from, size_t offset,
		     uint32_t length)
{
	struct ibv_wc wc = completed(to, IBV_WC_SUCCESS);

	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == length);
	CHECK(wc.src_qp == from->qp->qp_num);
	CHECK(!memcmp(buffer + to->offset + wc.wr_id * SLOT, buffer + offset,
		      length));
	CHECK(!slot_post(to, wc.wr_id));
}

static void atomics(struct end *a, struct end *t, uint64_t remote)
{
	uint64_t *counter = (uint64_t *)(buffer + remote), value;

	if (!(capabilities & QRNIC_CAP_ATOMIC) || !rd_atomic)
		return;
	*counter = 40;
	wr_begin(a, 1);
	ibv_wr_atomic_fetch_add(a->ex, mr->rkey, (uintptr_t)counter, 2);
	CHECK(!wr_end(a, t, KEY, 64, 8));
	wr_begin(a, 2);
	ibv_wr_atomic_cmp_swp(a->ex, mr->rkey, (uintptr_t)counter, 42, 7);
	CHECK(!wr_end(a, t, KEY, 72, 8));
	CHECK(completed(a, IBV_WC_SUCCESS).opcode == IBV_WC_FETCH_ADD);
	CHECK(completed(a, IBV_WC_SUCCESS).opcode == IBV_WC_COMP_SWAP);
	memcpy(&value, buffer + 64, 8);
	CHECK(value == 40);
	memcpy(&value, buffer + 72, 8);
	CHECK(value == 42 && *counter == 7);
}

static void operations(uint32_t flags)
{
	static const uint32_t lengths[LENGTHS] = { 0, 1, 63, 1024, 1025, 4096 };
	size_t remote = HALF + SLOTS * SLOT;
	struct ibv_wc wc;
	struct end a, t;
	unsigned int i;

	initiator_make(&a, flags, 7, IBV_MTU_1024);
	target_make(&t, HALF, 2);
	fill(0, HALF, 1);
	for (i = 0; i < LENGTHS; i++) {
		CHECK(!send_one(&a, &t, KEY, i * SLOT, lengths[i], i));
		CHECK(completed(&a, IBV_WC_SUCCESS).wr_id == i);
		received(&t, &a, i * SLOT, lengths[i]);
	}
	wr_begin(&a, 0);
	ibv_wr_send_imm(a.ex, htobe32(0x4711));
	qrnicdv_wr_set_dc_addr(a.ex, ah, t.qp->qp_num, KEY);
	ibv_wr_set_inline_data(a.ex, buffer, 33);
	CHECK(!ibv_wr_complete(a.ex));
	completed(&a, IBV_WC_SUCCESS);
	wc = completed(&t, IBV_WC_SUCCESS);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM && be32toh(wc.imm_data) == 0x4711);
	CHECK(wc.byte_len == 33 &&
	      !memcmp(buffer + t.offset + wc.wr_id * SLOT, buffer, 33));
	CHECK(!slot_post(&t, wc.wr_id));

	wr_begin(&a, 0);
	ibv_wr_rdma_write(a.ex, mr->rkey, (uintptr_t)buffer + remote);
	CHECK(!wr_end(&a, &t, KEY, 100, 100001));
	completed(&a, IBV_WC_SUCCESS);
	CHECK(!memcmp(buffer + remote, buffer + 100, 100001));
	wr_begin(&a, 0);
	ibv_wr_rdma_write_imm(a.ex, mr->rkey, (uintptr_t)buffer + remote,
			      htobe32(5));
	CHECK(!wr_end(&a, &t, KEY, 5000, 5000));
	completed(&a, IBV_WC_SUCCESS);
	wc = completed(&t, IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 5000);
	CHECK(!memcmp(buffer + remote, buffer + 5000, 5000));
	if (rd_atomic) {
		wr_begin(&a, 0);
		ibv_wr_rdma_read(a.ex, mr->rkey, (uintptr_t)buffer + remote);
		CHECK(!wr_end(&a, &t, KEY, 200000, 100001));
		completed(&a, IBV_WC_SUCCESS);
		CHECK(!memcmp(buffer + remote, buffer + 200000, 100001));
	}
	atomics(&a, &t, remote + 262144 - 8);
	end_free(&a);
	end_free(&t);
}

static void test_half(void)
{
	NEED(ah);
	operations(0);
}

static void test_full(void)
{
	NEED(ah);
	operations(QRNICDV_DC_FULL_HANDSHAKE);
}

static void expect_ece(struct ibv_qp *qp, bool half)
{
	struct ibv_ece ece = {};

	CHECK(!ibv_query_ece(qp, &ece));
	CHECK(ece.vendor_id == QRNIC_ECE_VENDOR_ID);
	CHECK(ece.options == (half ? QRNIC_ECE_HALF_HANDSHAKE : 0));
}

static void take_ece(struct ibv_qp *qp, struct ibv_qp *from)
{
	struct ibv_ece ece = {};

	CHECK(!ibv_query_ece(from, &ece) && !ibv_set_ece(qp, &ece));
}

/*
 * Tests that both ends must request the half handshake when they exchange
 * options.
 */
static void agreed_handshake(bool initiator_full, bool target_full)
{
	bool half = !initiator_full && !target_full;
	struct end a = {}, t;

	a.cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(a.cq);
	a.qp = initiator_create(a.cq, initiator_full ? QRNICDV_DC_FULL_HANDSHAKE : 0,
				IBV_QP_EX_WITH_SEND,
				(struct ibv_qp_cap){ .max_send_wr = 4,
						     .max_send_sge = 1 });
	CHECK(a.qp);
	a.ex = ibv_qp_to_qp_ex(a.qp);
	target_flags = target_full ? QRNICDV_DC_FULL_HANDSHAKE : 0;
	target_make(&t, HALF, 1);
	target_flags = 0;
	expect_ece(a.qp, !initiator_full);
	expect_ece(t.qp, !target_full);
	take_ece(t.qp, a.qp);
	expect_ece(t.qp, half);
	take_ece(a.qp, t.qp);
	expect_ece(a.qp, half);
	CHECK(!initiator_start(a.qp, 7, IBV_MTU_1024));
	CHECK(!send_one(&a, &t, KEY, 0, 100, 1));
	completed(&a, IBV_WC_SUCCESS);
	received(&t, &a, 0, 100);
	end_free(&a);
	end_free(&t);
}

static void test_agreed_handshake(void)
{
	NEED(ah);
	for (unsigned int i = 0; i < 4; i++)
		agreed_handshake(i & 1, i & 2);
}

/*
 * Tests many initiators. Each sends to one target after another, and writes to
 * its own part of the target's memory. Each message contains its sender and
 * number.
 */
static void many(int messages, uint32_t responders)
{
	unsigned int sent[INITIATORS] = {}, done[INITIATORS] = {};
	unsigned int next[INITIATORS][TARGETS] = {}, got = 0, i, t;
	struct end a[INITIATORS], to[TARGETS];
	uint64_t end = now_ms() + 100 * 1000;
	uint32_t *head;
	struct ibv_wc wc;
	bool told = false;

	for (i = 0; i < INITIATORS; i++)
		initiator_make(&a[i], i % 2, 7, IBV_MTU_1024);
	for (t = 0; t < TARGETS; t++)
		target_make(&to[t], HALF + t * SLOTS * SLOT, responders);
	fill(0, HALF, 2);
	while (messages < 0 || got < (unsigned int)messages * INITIATORS) {
		CHECK(now_ms() < end || messages < 0);
		for (i = 0; i < INITIATORS; i++) {
			size_t offset = (i * 16 + sent[i] % 16) * SLOT;

			while (ibv_poll_cq(a[i].cq, 1, &wc) == 1) {
				CHECK(!wc.status && wc.wr_id == done[i]);
				done[i]++;
			}
			if (sent[i] - done[i] >= 16 ||
			    (messages >= 0 && sent[i] == (unsigned int)messages))
				continue;
			head = (uint32_t *)(buffer + offset);
			head[0] = i;
			head[1] = sent[i];
			CHECK(!send_one(&a[i], &to[(sent[i] / 3 + i) % TARGETS],
					KEY, offset, 8 + sent[i] * 37 % 4000,
					sent[i]));
			sent[i]++;
		}
		for (t = 0; t < TARGETS; t++) {
			if (ibv_poll_cq(to[t].cq, 1, &wc) != 1)
				continue;
			CHECK(!wc.status);
			head = (uint32_t *)(buffer + to[t].offset +
					    wc.wr_id * SLOT);
			i = head[0];
			CHECK(i < INITIATORS && wc.src_qp == a[i].qp->qp_num);
			CHECK((head[1] / 3 + i) % TARGETS == t);
			CHECK(head[1] >= next[i][t]);
			next[i][t] = head[1] + 1;
			CHECK(wc.byte_len == 8 + head[1] * 37 % 4000);
			CHECK(!memcmp(head + 2, buffer + 8 +
				      (i * 16 + head[1] % 16) * SLOT,
				      wc.byte_len - 8));
			CHECK(!slot_post(&to[t], wc.wr_id));
			got++;
		}
		if (messages < 0 && got >= 1000 && !told) {
			printf("# loop\n");
			fflush(stdout);
			told = true;
		}
	}
	for (i = 0; i < INITIATORS; i++)
		end_free(&a[i]);
	for (t = 0; t < TARGETS; t++)
		end_free(&to[t]);
}

static void test_many(void)
{
	NEED(ah);
	many(MESSAGES, 4);
}

static void test_few_responders(void)
{
	NEED(ah);
	many(MESSAGES / 4, 1);
}

static void test_empty_pool(void)
{
	struct end a, b, t;

	NEED(ah);
	/*
	 * One initiator keeps its connection for a second, and the other
	 * initiator has two tries
	 */
	initiator_idle = QRNIC_DYNAMIC_MAX_IDLE;
	initiator_make(&a, 0, 7, IBV_MTU_1024);
	initiator_idle = 10;
	initiator_make(&b, 0, 1, IBV_MTU_1024);
	target_make(&t, HALF, 1);
	CHECK(!send_one(&a, &t, KEY, 0, 4096, 0));
	completed(&a, IBV_WC_SUCCESS);
	CHECK(!send_one(&b, &t, KEY, 0, 4096, 1));
	CHECK(completed(&b, IBV_WC_RNR_RETRY_EXC_ERR).vendor_err ==
	      QRNIC_SYN_DYNAMIC_BUSY);
	end_free(&a);
	end_free(&b);
	end_free(&t);
}

static void test_refused(void)
{
	struct end a, b, t, small;

	NEED(ah);
	initiator_make(&a, 0, 7, IBV_MTU_1024);
	initiator_make(&b, 0, 7, IBV_MTU_1024);
	target_make(&t, HALF, 4);
	target_mtu = IBV_MTU_512;
	target_make(&small, HALF + SLOTS * SLOT, 4);
	target_mtu = IBV_MTU_1024;
	CHECK(!send_one(&a, &t, KEY + 1, 0, 10, 1));
	CHECK(completed(&a, IBV_WC_REM_ACCESS_ERR).vendor_err ==
	      QRNIC_SYN_DYNAMIC_KEY);
	CHECK(!send_one(&b, &small, KEY, 0, 10, 1));
	CHECK(completed(&b, IBV_WC_REM_INV_REQ_ERR).vendor_err ==
	      QRNIC_SYN_DYNAMIC_PARAMETERS);
	/* After RESET the queue pair has all its tries again */
	CHECK(!to_state(a.qp, IBV_QPS_RESET));
	CHECK(!initiator_start(a.qp, 7, IBV_MTU_1024));
	CHECK(!send_one(&a, &t, KEY, 0, 10, 1));
	completed(&a, IBV_WC_SUCCESS);
	received(&t, &a, 0, 10);
	/* This access is not allowed */
	wr_begin(&a, 0);
	ibv_wr_rdma_write(a.ex, mr->rkey + 0x100000, (uintptr_t)buffer);
	CHECK(!wr_end(&a, &t, KEY, 0, 100));
	completed(&a, IBV_WC_REM_ACCESS_ERR);
	end_free(&a);
	end_free(&b);
	end_free(&t);
	end_free(&small);
}

static void test_dead_target(void)
{
	struct end a, b, t, gone;

	NEED(ah);
	initiator_make(&a, 0, 7, IBV_MTU_1024);
	initiator_make(&b, 0, 7, IBV_MTU_1024);
	target_make(&t, HALF, 4);
	target_make(&gone, HALF + SLOTS * SLOT, 4);
	CHECK(!send_one(&a, &gone, KEY, 0, 10, 1));
	completed(&a, IBV_WC_SUCCESS);
	CHECK(!to_state(gone.qp, IBV_QPS_ERR));
	CHECK(!send_one(&a, &gone, KEY, 0, 10, 2));
	completed(&a, IBV_WC_RETRY_EXC_ERR);
	CHECK(!send_one(&b, &t, KEY, 0, 10, 1));
	completed(&b, IBV_WC_SUCCESS);
	received(&t, &b, 0, 10);
	end_free(&a);
	end_free(&b);
	end_free(&t);
	end_free(&gone);
}

/*
 * Tests a target with memory on demand. Page faults of responders have numbers
 * that software does not know. There are faults of all responders at once, and
 * more faults than responders.
 */
static void test_on_demand(void)
{
	size_t bytes = 16 * 4096, part = bytes / INITIATORS;
	struct end a[INITIATORS], t;
	struct ibv_mr *odp;
	uint8_t *memory;
	int i, round;

	NEED(ah && capabilities & QRNIC_CAP_ON_DEMAND);
	CHECK(!posix_memalign((void **)&memory, 4096, bytes));
	odp = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE |
			 remote_rights() | IBV_ACCESS_ON_DEMAND);
	CHECK(odp);
	for (i = 0; i < INITIATORS; i++)
		initiator_make(&a[i], 0, 7, IBV_MTU_1024);
	target_make(&t, HALF, INITIATORS);
	for (round = 0; round < 3; round++) {
		CHECK(!madvise(memory, bytes, MADV_DONTNEED));
		fill(0, bytes, 3 + round);
		for (i = 0; i < INITIATORS; i++) {
			wr_begin(&a[i], i);
			ibv_wr_rdma_write(a[i].ex, odp->rkey,
					  (uintptr_t)memory + i * part);
			CHECK(!wr_end(&a[i], &t, KEY, i * part, part));
		}
		for (i = 0; i < INITIATORS; i++)
			completed(&a[i], IBV_WC_SUCCESS);
		CHECK(!memcmp(memory, buffer, bytes));
	}
	for (i = 0; i < INITIATORS; i++)
		end_free(&a[i]);
	end_free(&t);
	CHECK(!ibv_dereg_mr(odp));
	free(memory);
}

/*
 * Posts as many writes as the queue has space for, each with the largest size.
 */
static void all_granted(struct end *a, struct end *t, struct ibv_qp_cap *cap,
			bool inlined)
{
	uint32_t length = inlined ? cap->max_inline_data :
				    8 * cap->max_send_sge;
	struct ibv_sge sge[MOST_SGE];
	size_t to = HALF;
	uint32_t i, j;

	CHECK(cap->max_send_sge <= MOST_SGE && length <= 1024);
	CHECK(cap->max_send_wr <= 256);
	fill(0, 2 * 256 * 1024, 5 + inlined);
	ibv_wr_start(a->ex);
	for (i = 0; i < cap->max_send_wr; i++) {
		a->ex->wr_id = i;
		a->ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(a->ex, mr->rkey,
				  (uintptr_t)buffer + to + i * 1024);
		qrnicdv_wr_set_dc_addr(a->ex, ah, t->qp->qp_num, KEY);
		for (j = 0; j < cap->max_send_sge; j++)
			sge[j] = sge_of(i * 1024 + 16 * j, 8);
		if (inlined)
			ibv_wr_set_inline_data(a->ex, buffer + i * 1024,
					       length);
		else
			ibv_wr_set_sge_list(a->ex, cap->max_send_sge, sge);
	}
	CHECK(!ibv_wr_complete(a->ex));
	for (i = 0; i < cap->max_send_wr; i++) {
		CHECK(completed(a, IBV_WC_SUCCESS).wr_id == i);
		for (j = 0; j < length; j += 8)
			CHECK(!memcmp(buffer + to + i * 1024 + j, buffer +
				      i * 1024 + (inlined ? j : 2 * j), 8));
	}
}

/*
 * Tests that a queue pair has space for the granted sizes, although the address
 * uses a part of it.
 */
static void test_granted(void)
{
	static const uint32_t asked[] = { 1, 2, 3, 4, 5, 6, 7, 8, 13, 30 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct end a, t;
	unsigned int i;

	NEED(ah);
	target_make(&t, HALF - SLOTS * SLOT, 4);
	for (i = 0; i < 10; i++) {
		initiator_make_cap(&a, 0, 7, IBV_MTU_1024, (struct ibv_qp_cap){
			.max_send_wr = 1 + i, .max_send_sge = asked[i],
			.max_inline_data = 8 * asked[i] });
		CHECK(!ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init));
		CHECK(init.cap.max_send_wr >= 1 + i);
		CHECK(init.cap.max_send_sge >= asked[i]);
		all_granted(&a, &t, &init.cap, false);
		all_granted(&a, &t, &init.cap, true);
		end_free(&a);
	}
	a.cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(a.cq);
	CHECK(!initiator_create(a.cq, 0, IBV_QP_EX_WITH_RDMA_WRITE,
				(struct ibv_qp_cap){ .max_send_wr = 1,
						     .max_send_sge = 31 }));
	CHECK(errno == EINVAL && !ibv_destroy_cq(a.cq));
	end_free(&t);
}

/* Tests attributes that are invalid or not supported. */
static void test_objects(void)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_DC,
		.dc = { QRNICDV_DCTYPE_DCI, .idle = QRNIC_DYNAMIC_MAX_IDLE + 1 },
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_sge sge = sge_of(0, 10);
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND }, *bad;
	struct end a;

	NEED(ah);
	initiator_make(&a, 0, 7, IBV_MTU_1024);
	attr.send_cq = a.cq;
	CHECK(!qrnicdv_create_qp(context, &attr, &dv, sizeof(dv)) &&
	      errno == EINVAL);
	dv.dc.idle = 1;
	dv.dc.dct_access_key = 1;
	CHECK(!qrnicdv_create_qp(context, &attr, &dv, sizeof(dv)) &&
	      errno == EINVAL);
	dv.dc.dct_access_key = 0;
	dv.dc.flags = 2;
	CHECK(!qrnicdv_create_qp(context, &attr, &dv, sizeof(dv)) &&
	      errno == EOPNOTSUPP);
	dv.dc.flags = 0;
	attr.qp_type = IBV_QPT_RC;
	attr.recv_cq = a.cq;
	CHECK(!qrnicdv_create_qp(context, &attr, &dv, sizeof(dv)) &&
	      errno == EOPNOTSUPP);
	attr.qp_type = IBV_QPT_DRIVER;
	CHECK(!ibv_create_qp_ex(context, &attr) && errno == EOPNOTSUPP);
	/* A target needs an SRQ */
	dv.dc = (struct qrnicdv_dc_attr){ QRNICDV_DCTYPE_DCT, .responders = 1 };
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	CHECK(!qrnicdv_create_qp(context, &attr, &dv, sizeof(dv)) &&
	      errno == EINVAL);
	/* A target has no queue, so it cannot have these attributes */
	dv.comp_mask |= QRNICDV_QP_INIT_ATTR_PRIORITY;
	dv.priority = 1;
	CHECK(!qrnicdv_create_qp(context, &attr, &dv, sizeof(dv)) &&
	      errno == EOPNOTSUPP);
	/*
	 * Requests without an address, and with an invalid number of a target
	 */
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EOPNOTSUPP && bad == &wr);
	ibv_wr_start(a.ex);
	ibv_wr_send(a.ex);
	ibv_wr_set_sge(a.ex, mr->lkey, (uintptr_t)buffer, 10);
	CHECK(ibv_wr_complete(a.ex) == EINVAL);
	ibv_wr_start(a.ex);
	ibv_wr_send(a.ex);
	qrnicdv_wr_set_dc_addr(a.ex, ah, 1u << 24, KEY);
	ibv_wr_set_sge(a.ex, mr->lkey, (uintptr_t)buffer, 10);
	CHECK(ibv_wr_complete(a.ex) == EINVAL);
	/* The type does not have this transition */
	CHECK(modify(a.qp, IBV_QPS_RTS, IBV_QP_ACCESS_FLAGS, 0, 0));
	end_free(&a);
}

/*
 * Tests the attributes that programs for mlx5 set. A target is created with
 * only its key. The address in the transition to RTR is ignored.
 */
static void test_as_mlx5(void)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_DC,
		.dc = { .dc_type = QRNICDV_DCTYPE_DCT, .dct_access_key = KEY },
	};
	struct ibv_srq_init_attr srq = { .attr = { SLOTS, 1, 0 } };
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .sgid_index = gid_index, .hop_limit = 1 } },
	}, got;
	struct end a = {}, t = { .offset = HALF };
	struct ibv_qp_init_attr got_init;
	struct ibv_device_attr limits;
	uint32_t i;

	NEED(ah);
	t.cq = init.recv_cq = ibv_create_cq(context, 2 * SLOTS, NULL, NULL, 0);
	t.srq = init.srq = ibv_create_srq(pd, &srq);
	CHECK(t.cq && t.srq);
	for (i = 0; i < SLOTS; i++)
		CHECK(!slot_post(&t, i));
	t.qp = qrnicdv_create_qp(context, &init, &dv, sizeof(dv));
	CHECK(t.qp);
	CHECK(!modify(t.qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		      IBV_QP_ACCESS_FLAGS, 0, 0));
	CHECK(!ibv_modify_qp(t.qp, &rtr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER |
			     IBV_QP_AV | IBV_QP_PATH_MTU));
	CHECK(!ibv_query_qp(t.qp, &got, IBV_QP_MAX_DEST_RD_ATOMIC, &got_init));
	CHECK(!ibv_query_device(context, &limits));
	CHECK(got.max_dest_rd_atomic == limits.max_qp_rd_atom);

	a.cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(a.cq);
	initiator_idle = 0;
	a.qp = initiator_create(a.cq, 0, IBV_QP_EX_WITH_SEND,
				(struct ibv_qp_cap){ .max_send_wr = 4,
						     .max_send_sge = 1 });
	initiator_idle = 10;
	CHECK(a.qp);
	a.ex = ibv_qp_to_qp_ex(a.qp);
	CHECK(!modify(a.qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0, 0));
	CHECK(!ibv_modify_qp(a.qp, &rtr, IBV_QP_STATE | IBV_QP_AV |
			     IBV_QP_PATH_MTU));
	CHECK(!modify(a.qp, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		      7, 0));
	CHECK(!send_one(&a, &t, KEY, 0, 100, 1));
	completed(&a, IBV_WC_SUCCESS);
	received(&t, &a, 0, 100);
	end_free(&a);
	end_free(&t);
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no qrnic adapter\n");
		return 1;
	}
	if (argc > 3) {
		address_make();
		many(-1, 2);
	}
	run("dynamic connections: addresses", address_make);
	run("dynamic connections: objects", test_objects);
	run("dynamic connections: attributes of mlx5", test_as_mlx5);
	run("dynamic connections: granted sizes leave space for the address", test_granted);
	run("dynamic connections: operations, half handshake", test_half);
	run("dynamic connections: operations, full handshake", test_full);
	run("dynamic connections: both ends agree on a handshake",
	    test_agreed_handshake);
	run("dynamic connections: many to many", test_many);
	run("dynamic connections: many to few responders", test_few_responders);
	run("dynamic connections: no responder is free", test_empty_pool);
	run("dynamic connections: rejected requests", test_refused);
	run("dynamic connections: the target is destroyed", test_dead_target);
	run("dynamic connections: memory on demand", test_on_demand);
	if (ah && ibv_destroy_ah(ah))
		failures++;
	return tear_down();
}
