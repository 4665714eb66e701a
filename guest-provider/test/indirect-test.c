// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * indirect-test.c: tests indirect keys with queue pairs of all types that can
 * register them, at both ends. Every byte is compared. The arguments are the
 * adapter and the index of the GID. With "hold" behind them the program
 * registers keys and sends until it is killed.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "test.h"

#define KEYS 8
#define MATRIX 64u		/* Number of rows and columns of the matrix */
#define ELEMENT sizeof(uint64_t)
#define ROW (MATRIX * ELEMENT)
#define LIST 1000u
#define DEPTH 64u

static struct pair pair;
static struct ibv_qp_ex *qpx[2];
static struct qrnicdv_mkey *mkey[KEYS];
/* Flags of the next registrations */
static uint32_t flags;

static struct qrnicdv_mkey *key_make(uint32_t max_pieces)
{
	struct qrnicdv_mkey_init_attr attr = {
		.pd = pd, .max_pieces = max_pieces,
	};

	return qrnicdv_create_mkey(&attr, sizeof(attr));
}

/* Creates queue pairs of a type, with or without inline data, and keys. */
static void begin(enum ibv_qp_type type, uint32_t max_inline)
{
	struct ibv_qp_cap cap = { DEPTH, DEPTH, 4, 4, max_inline };
	uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
		       IBV_QP_EX_WITH_LOCAL_INV;
	int i;

	NEED(capabilities & QRNIC_CAP_INDIRECT_MKEY);
	NEED(type != IBV_QPT_UC || capabilities & QRNIC_CAP_UC);
	if (type == IBV_QPT_RC)
		ops |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_INV;
	memset(&pair, 0, sizeof(pair));
	pair.type = type;
	CHECK(!pair_make_as(&pair, &cap, ops));
	for (i = 0; i < 2; i++)
		qpx[i] = ibv_qp_to_qp_ex(pair.qp[i]);
	if (type == IBV_QPT_RC)
		CHECK(!pair_connect(&pair));
	for (i = 0; i < KEYS; i++) {
		mkey[i] = key_make(i ? MATRIX : LIST);
		CHECK(mkey[i]);
	}
	fill(0, BUFFER_SIZE, 7);
}

static void end(void)
{
	int i;

	CHECK(!pair_free(&pair));
	for (i = 0; i < KEYS; i++)
		CHECK(!qrnicdv_destroy_mkey(mkey[i]));
}

static struct qrnicdv_piece piece(size_t offset, uint64_t length,
				  uint64_t stride)
{
	return (struct qrnicdv_piece){
		.lkey = mr->lkey,
		.addr = (uintptr_t)buffer + offset,
		.length = length,
		.stride = stride,
	};
}

static void wr(int end, unsigned int send_flags)
{
	qpx[end]->wr_id = 77;
	qpx[end]->wr_flags = send_flags;
}

/* Posts a registration in the current batch. */
static void post_register(int end, struct qrnicdv_mkey *key, uint64_t start,
			  uint32_t repeat, const struct qrnicdv_piece *pieces,
			  uint32_t count)
{
	const struct qrnicdv_mkey_layout layout = {
		.start = start,
		.access = IBV_ACCESS_LOCAL_WRITE | remote_rights(),
		.repeat = repeat,
		.num_pieces = count,
		.flags = flags,
		.pieces = pieces,
	};

	qrnicdv_wr_reg_mkey(qpx[end], key, &layout, sizeof(layout));
}

static void completes(enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	CHECK(poll_one(pair.send_cq, &wc) == 1);
	CHECK(!wc.status && wc.opcode == opcode && wc.wr_id == 77);
}

static void registered(int end, struct qrnicdv_mkey *key, uint64_t start,
		       uint32_t repeat, const struct qrnicdv_piece *pieces,
		       uint32_t count)
{
	uint32_t before = key->rkey;

	ibv_wr_start(qpx[end]);
	wr(end, IBV_SEND_SIGNALED);
	post_register(end, key, start, repeat, pieces, count);
	CHECK(!ibv_wr_complete(qpx[end]));
	CHECK(key->lkey == key->rkey && key->rkey >> 8 == before >> 8);
	CHECK((key->rkey != before) == (flags == QRNICDV_MKEY_NEW_VARIANT));
	completes(QRNICDV_WC_REG_MKEY);
}

/*
 * Sends from the key of one end to the key of its peer, which receives in
 * order.
 */
static void send_between(uint32_t from, uint64_t from_addr, uint32_t into,
			 uint64_t into_addr, uint32_t length)
{
	struct ibv_sge sge = { into_addr, length, into };
	struct ibv_wc wc;

	CHECK(!recv_one(pair.qp[1], &sge, 1, 5));
	ibv_wr_start(qpx[0]);
	wr(0, IBV_SEND_SIGNALED);
	ibv_wr_send(qpx[0]);
	ibv_wr_set_sge(qpx[0], from, from_addr, length);
	CHECK(!ibv_wr_complete(qpx[0]));
	completes(IBV_WC_SEND);
	CHECK(poll_one(pair.recv_cq, &wc) == 1);
	CHECK(!wc.status && wc.byte_len == length);
}

/* Tests that a column is sent and received as a column of another matrix. */
static void columns(void)
{
	struct qrnicdv_piece from = piece(3 * ELEMENT, ELEMENT, ROW);
	struct qrnicdv_piece into = piece(HALF + 9 * ELEMENT, ELEMENT, ROW);
	uint32_t i;

	registered(0, mkey[1], 0, MATRIX, &from, 1);
	registered(1, mkey[2], 0x123456789000, MATRIX, &into, 1);
	send_between(mkey[1]->lkey, 0, mkey[2]->lkey, 0x123456789000, ROW);
	for (i = 0; i < MATRIX; i++)
		CHECK(!memcmp(buffer + i * ROW + 3 * ELEMENT,
			      buffer + HALF + i * ROW + 9 * ELEMENT, ELEMENT));
}

static void test_columns(void)
{
	begin(IBV_QPT_RC, 0);
	columns();
	end();
	flags = QRNICDV_MKEY_NEW_VARIANT;
	begin(IBV_QPT_RC, 0);
	columns();
	end();
	flags = 0;
	begin(IBV_QPT_RC, 64);
	columns();
	end();
}

/* Tests that one write stores all rows of a matrix as columns of another. */
static void test_transposition(void)
{
	struct qrnicdv_piece column[MATRIX];
	struct qrnicdv_mkey *columns[MATRIX];
	uint32_t i, j;

	begin(IBV_QPT_RC, 64);
	for (i = 0; i < MATRIX; i++) {
		struct qrnicdv_piece p =
			piece(HALF + i * ELEMENT, ELEMENT, ROW);

		columns[i] = key_make(1);
		CHECK(columns[i]);
		registered(1, columns[i], 0, MATRIX, &p, 1);
		column[i] = (struct qrnicdv_piece){
			.lkey = columns[i]->lkey, .length = ROW,
		};
	}
	registered(1, mkey[1], 0, 1, column, MATRIX);
	ibv_wr_start(qpx[0]);
	wr(0, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qpx[0], mkey[1]->rkey, 0);
	ibv_wr_set_sge(qpx[0], mr->lkey, (uintptr_t)buffer, MATRIX * ROW);
	CHECK(!ibv_wr_complete(qpx[0]));
	completes(IBV_WC_RDMA_WRITE);
	for (i = 0; i < MATRIX; i++)
		for (j = 0; j < MATRIX; j++)
			CHECK(!memcmp(buffer + i * ROW + j * ELEMENT,
				      buffer + HALF + j * ROW + i * ELEMENT,
				      ELEMENT));
	for (i = 0; i < MATRIX; i++)
		CHECK(!qrnicdv_destroy_mkey(columns[i]));
	end();
}

/*
 * Tests a read of records whose three fields come from three arrays, one of
 * them backwards.
 */
static void test_interleaved(void)
{
	const struct qrnicdv_piece fields[] = {
		piece(0, 4, 4),
		piece(50000, 2, 2),
		piece(90000, 6, -6ull),
	};
	uint32_t i;

	begin(IBV_QPT_RC, 128);
	registered(1, mkey[1], 0, 500, fields, 3);
	ibv_wr_start(qpx[0]);
	wr(0, IBV_SEND_SIGNALED);
	ibv_wr_rdma_read(qpx[0], mkey[1]->rkey, 0);
	ibv_wr_set_sge(qpx[0], mr->lkey, (uintptr_t)buffer + HALF, 500 * 12);
	CHECK(!ibv_wr_complete(qpx[0]));
	completes(IBV_WC_RDMA_READ);
	for (i = 0; i < 500; i++) {
		const uint8_t *record = buffer + HALF + 12 * i;

		CHECK(!memcmp(record, buffer + 4 * i, 4));
		CHECK(!memcmp(record + 4, buffer + 50000 + 2 * i, 2));
		CHECK(!memcmp(record + 6, buffer + 90000 - 6 * i, 6));
	}
	end();
}

/*
 * Tests a list that does not fit into a WQE, so the library keeps it until the
 * device has read it.
 */
static void test_long_list(void)
{
	static struct qrnicdv_piece list[LIST];
	uint32_t i, at = 0;

	begin(IBV_QPT_RC, 64);
	for (i = 0; i < LIST; i++)
		list[i] = piece(400 * (LIST - 1 - i), 1 + i % 50, 0);
	ibv_wr_start(qpx[0]);
	wr(0, 0);
	post_register(0, mkey[0], 0, 1, list, LIST);
	memset(list, 0, sizeof(list));
	for (i = 0; i < LIST; i++)
		at += 1 + i % 50;
	wr(0, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qpx[0], mr->rkey, (uintptr_t)buffer + HALF);
	ibv_wr_set_sge(qpx[0], mkey[0]->lkey, 0, at);
	CHECK(!ibv_wr_complete(qpx[0]));
	completes(IBV_WC_RDMA_WRITE);
	for (i = at = 0; i < LIST; at += 1 + i % 50, i++)
		CHECK(!memcmp(buffer + HALF + at,
			      buffer + 400 * (LIST - 1 - i), 1 + i % 50));
	end();
}

/*
 * Checks that the device has used this list, so no other list has overwritten
 * it.
 */
static void list_written(struct qrnicdv_piece *list, uint32_t length)
{
	uint32_t i;

	ibv_wr_start(qpx[0]);
	wr(0, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qpx[0], mr->rkey, (uintptr_t)buffer + HALF);
	ibv_wr_set_sge(qpx[0], mkey[0]->lkey, 0, LIST * length);
	CHECK(!ibv_wr_complete(qpx[0]));
	completes(IBV_WC_RDMA_WRITE);
	for (i = 0; i < LIST; i++)
		CHECK(!memcmp(buffer + HALF + i * length,
			      (void *)(uintptr_t)list[i].addr, length));
}

/*
 * Tests the buffer for long lists. While the device may read it, a second long
 * list is rejected, in the same batch and in a later one. A short list is
 * accepted.
 */
static void test_long_lists(void)
{
	static struct qrnicdv_piece first[LIST], second[LIST];
	uint32_t i;

	begin(IBV_QPT_RC, 64);
	for (i = 0; i < LIST; i++) {
		first[i] = piece(16 * i, 8, 0);
		second[i] = piece(200000 + 16 * i, 8, 0);
	}
	ibv_wr_start(qpx[0]);
	wr(0, 0);
	post_register(0, mkey[0], 0, 1, first, LIST);
	ibv_wr_local_inv(qpx[0], mkey[0]->rkey);
	post_register(0, mkey[0], 0, 1, second, LIST);
	CHECK(ibv_wr_complete(qpx[0]) == EBUSY);

	/* The failed batch is dropped and releases the buffer */
	ibv_wr_start(qpx[0]);
	wr(0, IBV_SEND_SIGNALED);
	post_register(0, mkey[0], 0, 1, first, LIST);
	ibv_wr_local_inv(qpx[0], mkey[0]->rkey);
	post_register(0, mkey[0], 0, 1, second, 1);
	ibv_wr_local_inv(qpx[0], mkey[0]->rkey);
	CHECK(!ibv_wr_complete(qpx[0]));
	ibv_wr_start(qpx[0]);
	wr(0, IBV_SEND_SIGNALED);
	post_register(0, mkey[0], 0, 1, second, LIST);
	CHECK(ibv_wr_complete(qpx[0]) == EBUSY);
	completes(QRNICDV_WC_REG_MKEY);
	completes(IBV_WC_LOCAL_INV);
	completes(QRNICDV_WC_REG_MKEY);
	completes(IBV_WC_LOCAL_INV);
	registered(0, mkey[0], 0, 1, second, LIST);
	list_written(second, 8);

	/*
	 * After a reset of the queue pair, no earlier registration uses the
	 * buffer
	 */
	ibv_wr_start(qpx[0]);
	wr(0, IBV_SEND_SIGNALED);
	ibv_wr_local_inv(qpx[0], mkey[0]->rkey);
	post_register(0, mkey[0], 0, 1, first, LIST);
	ibv_wr_local_inv(qpx[0], mkey[0]->rkey);
	CHECK(!ibv_wr_complete(qpx[0]));
	completions_wait(pair.send_cq, 3);
	CHECK(!to_state(pair.qp[0], IBV_QPS_RESET));
	CHECK(!to_state(pair.qp[1], IBV_QPS_RESET) && !pair_connect(&pair));
	registered(0, mkey[0], 0, 1, first, LIST);
	list_written(first, 8);
	end();
}

/* Tests the variant of a key: only registrations with the flag change it. */
static void test_variants(void)
{
	struct qrnicdv_piece p = piece(0, 64, 0);
	uint32_t key, i;

	begin(IBV_QPT_RC, 64);
	key = mkey[1]->rkey;
	for (i = 0; i < 20; i++) {
		flags = i < 10 ? 0 : QRNICDV_MKEY_NEW_VARIANT;
		registered(0, mkey[1], 0, 1, &p, 1);
		CHECK(mkey[1]->rkey == (i < 10 ? key : key + i - 9));
		ibv_wr_start(qpx[0]);
		wr(0, IBV_SEND_SIGNALED);
		ibv_wr_local_inv(qpx[0], mkey[1]->rkey);
		CHECK(!ibv_wr_complete(qpx[0]));
		completes(IBV_WC_LOCAL_INV);
	}
	flags = 0;
	end();
}

/*
 * Tests batches that register, use, invalidate and register keys again, many
 * times.
 */
static void test_pipelined(void)
{
	uint32_t i;

	begin(IBV_QPT_RC, 64);
	flags = QRNICDV_MKEY_NEW_VARIANT;
	for (i = 0; i < 300; i++) {
		struct qrnicdv_piece p = piece(8 * i, 8, 4096);

		ibv_wr_start(qpx[0]);
		wr(0, 0);
		post_register(0, mkey[1], 64 * i, 16, &p, 1);
		ibv_wr_rdma_write(qpx[0], mr->rkey,
				  (uintptr_t)buffer + HALF + 128 * i);
		ibv_wr_set_sge(qpx[0], mkey[1]->lkey, 64 * i, 128);
		wr(0, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		ibv_wr_local_inv(qpx[0], mkey[1]->rkey);
		CHECK(!ibv_wr_complete(qpx[0]));
		completes(IBV_WC_LOCAL_INV);
		flags ^= QRNICDV_MKEY_NEW_VARIANT;
	}
	flags = 0;
	for (i = 0; i < 300 * 16; i++)
		CHECK(!memcmp(buffer + HALF + 8 * i,
			      buffer + i / 16 * 8 + i % 16 * 4096, 8));
	end();
}

/* Tests that the peer can invalidate the key, and is then rejected. */
static void test_remote_invalidate(void)
{
	struct qrnicdv_piece p = piece(0, 100, 0);
	struct ibv_sge sge = sge_of(HALF, 100);
	struct ibv_wc wc;

	begin(IBV_QPT_RC, 64);
	registered(1, mkey[1], 0, 1, &p, 1);
	CHECK(!recv_one(pair.qp[1], &sge, 1, 5));
	ibv_wr_start(qpx[0]);
	wr(0, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qpx[0], mkey[1]->rkey, 0);
	ibv_wr_set_sge(qpx[0], mr->lkey, (uintptr_t)buffer + 1000, 100);
	ibv_wr_send_inv(qpx[0], mkey[1]->rkey);
	ibv_wr_rdma_write(qpx[0], mkey[1]->rkey, 0);
	ibv_wr_set_sge(qpx[0], mr->lkey, (uintptr_t)buffer + 2000, 100);
	CHECK(!ibv_wr_complete(qpx[0]));
	completes(IBV_WC_RDMA_WRITE);
	completes(IBV_WC_SEND);
	CHECK(poll_one(pair.send_cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
	CHECK(poll_one(pair.recv_cq, &wc) == 1 && !wc.status);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV);
	CHECK(wc.invalidated_rkey == mkey[1]->rkey);
	CHECK(!memcmp(buffer, buffer + 1000, 100));
	end();
}

/* Checks that the send completes with an error and this syndrome. */
static void send_fails(uint32_t lkey, uint32_t syndrome)
{
	struct ibv_wc wc;

	ibv_wr_start(qpx[0]);
	wr(0, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qpx[0], mr->rkey, (uintptr_t)buffer + HALF);
	ibv_wr_set_sge(qpx[0], lkey, 0, 64);
	CHECK(!ibv_wr_complete(qpx[0]));
	CHECK(poll_one(pair.send_cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_LOC_PROT_ERR && wc.vendor_err == syndrome);
}

/* Tests pieces of a deregistered region, and a key that contains itself. */
static void test_bad_pieces(void)
{
	struct qrnicdv_piece p = piece(0, 64, 0);
	struct ibv_mr *gone;

	begin(IBV_QPT_RC, 64);
	gone = ibv_reg_mr(pd, buffer, 4096, 0);
	CHECK(gone);
	p.lkey = gone->lkey;
	registered(0, mkey[1], 0, 1, &p, 1);
	CHECK(!ibv_dereg_mr(gone));
	send_fails(mkey[1]->lkey, QRNIC_SYN_CHILD_INVALID);
	end();

	begin(IBV_QPT_RC, 64);
	p = (struct qrnicdv_piece){ .length = 64 };
	p.lkey = mkey[1]->lkey;
	registered(0, mkey[1], 0, 1, &p, 1);
	send_fails(mkey[1]->lkey, QRNIC_SYN_KEY_CYCLE);
	end();
}

/* Tests errors that the library or the kernel detects. */
static void test_bad_calls(void)
{
	struct qrnicdv_mkey_init_attr attr = { .pd = pd, .max_pieces = 1 };
	struct qrnicdv_piece p = piece(0, 64, 0);
	struct qrnicdv_mkey_layout good = {
		.repeat = 1, .num_pieces = 1, .pieces = &p,
		.flags = QRNICDV_MKEY_NEW_VARIANT,
	}, bad[9];
	struct qrnicdv_piece later = p, empty = p;
	uint32_t key;
	unsigned int i;

	begin(IBV_QPT_RC, 64);
	attr.max_pieces = 0;
	CHECK(!qrnicdv_create_mkey(&attr, sizeof(attr)) && errno == EINVAL);
	attr.max_pieces = QRNIC_MAX_PIECES + 1;
	CHECK(!qrnicdv_create_mkey(&attr, sizeof(attr)) && errno == EINVAL);
	attr.max_pieces = 1;
	attr.comp_mask = 1;
	CHECK(!qrnicdv_create_mkey(&attr, sizeof(attr)) && errno == EOPNOTSUPP);
	later.reserved = 1;
	empty.length = 0;
	for (i = 0; i < 9; i++)
		bad[i] = good;
	bad[0].repeat = 0;
	bad[1].num_pieces = 0;
	bad[2].num_pieces = MATRIX + 1;
	bad[3].access = IBV_ACCESS_MW_BIND;
	bad[4].comp_mask = 1;
	bad[5].flags = 2;
	bad[6].pieces = &later;
	bad[7].pieces = &empty;
	bad[8].access = IBV_ACCESS_REMOTE_WRITE;
	key = mkey[2]->rkey;
	for (i = 0; i < 9; i++) {
		ibv_wr_start(qpx[0]);
		wr(0, 0);
		qrnicdv_wr_reg_mkey(qpx[0], mkey[2], &good, sizeof(good));
		CHECK(mkey[2]->rkey != key);
		qrnicdv_wr_reg_mkey(qpx[0], mkey[1], &bad[i], sizeof(bad[i]));
		CHECK(ibv_wr_complete(qpx[0]) ==
		      (i < 4 || i > 6 ? EINVAL : EOPNOTSUPP));
		CHECK(mkey[2]->rkey == key && mkey[2]->lkey == key);
	}
	/* A protection domain with a key is in use */
	registered(0, mkey[1], 0, 1, &p, 1);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	end();
}

/* Tests that a dropped batch changes nothing, and succeeds later. */
static void test_dropped(void)
{
	struct qrnicdv_piece p = piece(0, 64, 0);
	struct ibv_wc wc;
	unsigned int i;
	uint32_t before;

	begin(IBV_QPT_RC, 0);
	flags = QRNICDV_MKEY_NEW_VARIANT;
	registered(0, mkey[1], 0, 1, &p, 1);
	before = mkey[1]->rkey;
	ibv_wr_start(qpx[0]);
	wr(0, 0);
	ibv_wr_local_inv(qpx[0], before);
	post_register(0, mkey[1], 0, 1, &p, 1);
	post_register(0, mkey[1], 0, 1, &p, 1);
	CHECK(mkey[1]->rkey != before);
	ibv_wr_abort(qpx[0]);
	CHECK(mkey[1]->rkey == before && mkey[1]->lkey == before);

	/*
	 * The queue takes as many WQEs as were requested, but not more than it
	 * has space for
	 */
	ibv_wr_start(qpx[0]);
	for (i = 0; i < DEPTH; i++) {
		wr(0, i == DEPTH - 1 ? IBV_SEND_SIGNALED : 0);
		if (i % 2)
			post_register(0, mkey[1], 0, 1, &p, 1);
		else
			ibv_wr_local_inv(qpx[0], mkey[1]->rkey);
	}
	CHECK(!ibv_wr_complete(qpx[0]));
	completes(QRNICDV_WC_REG_MKEY);
	before = mkey[1]->rkey;
	ibv_wr_start(qpx[0]);
	for (i = 0; i < 20 * DEPTH; i++) {
		wr(0, IBV_SEND_SIGNALED);
		ibv_wr_local_inv(qpx[0], mkey[1]->rkey);
		post_register(0, mkey[1], 0, 1, &p, 1);
	}
	CHECK(ibv_wr_complete(qpx[0]) == ENOMEM);
	CHECK(mkey[1]->rkey == before);
	ibv_wr_start(qpx[0]);
	wr(0, IBV_SEND_SIGNALED);
	ibv_wr_local_inv(qpx[0], mkey[1]->rkey);
	post_register(0, mkey[1], 0, 1, &p, 1);
	CHECK(!ibv_wr_complete(qpx[0]));
	CHECK(poll_one(pair.send_cq, &wc) == 1 && !wc.status);
	CHECK(poll_one(pair.send_cq, &wc) == 1 && !wc.status);
	flags = 0;
	end();
}

/* Tests an unreliable connection, which also registers and uses keys. */
static void test_uc(void)
{
	int i;

	begin(IBV_QPT_UC, 64);
	for (i = 0; i < 2; i++)
		CHECK(!to_init(pair.qp[i]) &&
		      !to_rtr(pair.qp[i], pair.qp[!i]->qp_num) &&
		      !to_rts(pair.qp[i]));
	columns();
	end();
}

/*
 * Tests pieces and lists in memory on demand, whose pages are paged in when the
 * device accesses them.
 */
static void test_on_demand(void)
{
	const size_t length = 64 * 4096;
	struct qrnicdv_piece p;
	struct ibv_mr *region;
	uint8_t *memory;
	uint32_t i;

	NEED(capabilities & QRNIC_CAP_ON_DEMAND);
	begin(IBV_QPT_RC, 64);
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	region = ibv_reg_mr(pd, memory, length,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	CHECK(region);
	p = (struct qrnicdv_piece){
		.lkey = region->lkey, .addr = (uintptr_t)memory + 4090,
		.length = 16, .stride = 4096,
	};
	registered(1, mkey[1], 0, 63, &p, 1);
	ibv_wr_start(qpx[0]);
	wr(0, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qpx[0], mkey[1]->rkey, 0);
	ibv_wr_set_sge(qpx[0], mr->lkey, (uintptr_t)buffer, 16 * 63);
	CHECK(!ibv_wr_complete(qpx[0]));
	completes(IBV_WC_RDMA_WRITE);
	for (i = 0; i < 63; i++)
		CHECK(!memcmp(memory + 4090 + 4096 * i, buffer + 16 * i, 16));
	CHECK(!ibv_dereg_mr(region));
	munmap(memory, length);
	end();
}

/* Keeps valid keys and outstanding messages until the program is killed. */
static void hold(void)
{
	struct qrnicdv_piece p = piece(0, 1024, 2048);

	begin(IBV_QPT_RC, 64);
	registered(1, mkey[1], 0, 100, &p, 1);
	for (;;) {
		ibv_wr_start(qpx[0]);
		wr(0, IBV_SEND_SIGNALED);
		ibv_wr_rdma_write(qpx[0], mkey[1]->rkey, 0);
		ibv_wr_set_sge(qpx[0], mr->lkey, (uintptr_t)buffer + HALF,
			       100 * 1024);
		CHECK(!ibv_wr_complete(qpx[0]));
		completes(IBV_WC_RDMA_WRITE);
		if (tests++ == 10) {
			puts("holding");
			fflush(stdout);
		}
	}
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("not ok 1 - provider: an adapter\n1..1\n");
		return 1;
	}
	if (argc > 3) {
		if (!setjmp(test_end))
			hold();
		return 1;
	}
	run("columns of matrices are sent and received", test_columns);
	run("a write transposes a matrix", test_transposition);
	run("a read of interleaved fields", test_interleaved);
	run("a list of 1000 pieces", test_long_list);
	run("two lists of 1000 pieces", test_long_lists);
	run("variants of a key", test_variants);
	run("keys are registered, used and invalidated in one batch", test_pipelined);
	run("the peer invalidates a key", test_remote_invalidate);
	run("invalid pieces", test_bad_pieces);
	run("invalid calls", test_bad_calls);
	run("a dropped batch", test_dropped);
	run("an unreliable connection", test_uc);
	run("pieces of memory on demand", test_on_demand);
	return tear_down();
}
