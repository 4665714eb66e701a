// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * dynamic-hosts-test.c: tests dynamic connections between two hosts. The first
 * host has the targets and executes commands that the second host sends over
 * TCP. The second host has the initiators and checks the results. The arguments
 * are the adapter and the index of the GID, and for the second host the name of
 * the first.
 */
#include <netdb.h>
#include <unistd.h>

#include "test.h"

#define PORT "18611"
#define KEY 0x0123456789abcdefull
#define SLOT 4096u
#define SLOTS 32u
#define TARGETS 3
#define INITIATORS 4
#define LENGTHS 6
#define MESSAGES 120u
#define RETURNED 100001u
#define RNR_ENDLESS 7
#define BUSY_REFUSALS 4

enum what {
	/*
	 * Commands for targets, whose argument is the number of receive WQEs.
	 * The argument of RECEIVE is 1 or 0
	 */
	MAKE, DESTROY, POST, RECEIVE,
	/*
	 * Commands for the memory of targets, whose argument is the length at
	 * offset
	 */
	READ, WRITE,
	REGISTER, END
};

struct command {
	enum what what;
	uint32_t target, responders, mtu, argument;
	uint64_t offset;
};

struct answer {
	struct ibv_wc wc;
	uint32_t qpn, rkey, indirect;
	uint64_t address, dropped;
	union ibv_gid gid;
};

struct end {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
};

static FILE *tcp;
static const char *device;
static uint8_t data[SLOTS * SLOT];

/* Objects of the first host */
static struct end targets[TARGETS];
static struct pair maker;
static struct qrnicdv_mkey *indirect;

/* Objects of the second host */
static struct ibv_ah *ah;
static struct answer told;
static uint32_t qpn[TARGETS];

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
		.timeout = 14,
		.retry_cnt = 2,
		.rnr_retry = rnr_retry,
		.sq_psn = 0xfffff0,
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
}

static void send_bytes(const void *bytes, size_t length)
{
	CHECK(fwrite(bytes, 1, length, tcp) == length && !fflush(tcp));
}

static void recv_bytes(void *bytes, size_t length)
{
	CHECK(fread(bytes, 1, length, tcp) == length);
}

static unsigned long long counter(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "ports/1/hw_counters/%s", name);
	return read_counter(device, path);
}

/* The next functions run on the first host */

static uint64_t slots_at(uint32_t target)
{
	return HALF + target * SLOTS * SLOT;
}

static void slots_post(uint32_t target, uint64_t first, uint32_t count)
{
	uint64_t slot;

	for (slot = first; slot < first + count; slot++) {
		struct ibv_sge sge = sge_of(slots_at(target) + slot * SLOT,
					    SLOT);
		struct ibv_recv_wr wr = { slot, NULL, &sge, 1 }, *bad;

		CHECK(!ibv_post_srq_recv(targets[target].srq, &wr, &bad));
	}
}

static void target_free(struct end *e)
{
	CHECK(!ibv_destroy_qp(e->qp) && !ibv_destroy_srq(e->srq));
	CHECK(!ibv_destroy_cq(e->cq));
	memset(e, 0, sizeof(*e));
}

static void target_make(const struct command *c)
{
	struct ibv_srq_init_attr srq = { .attr = { SLOTS, 1, 0 } };
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_DC,
		.dc = { QRNICDV_DCTYPE_DCT, .responders = c->responders,
			.dct_access_key = KEY },
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct end *e = &targets[c->target];

	e->cq = attr.recv_cq = ibv_create_cq(context, 2 * SLOTS, NULL, NULL, 0);
	e->srq = attr.srq = ibv_create_srq(pd, &srq);
	CHECK(e->cq && e->srq);
	e->qp = qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));
	CHECK(e->qp);
	CHECK(!modify(e->qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		      IBV_QP_ACCESS_FLAGS, 0, 0));
	CHECK(!modify(e->qp, IBV_QPS_RTR, IBV_QP_PATH_MTU |
		      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, 0,
		      c->mtu));
	slots_post(c->target, 0, c->argument);
}

/*
 * Registers an indirect key at the beginning of the memory, because it can be
 * invalidated.
 */
static void key_register(void)
{
	const struct qrnicdv_piece piece = { .lkey = mr->lkey,
		.addr = (uintptr_t)buffer, .length = SLOT };
	const struct qrnicdv_mkey_layout layout = {
		.access = IBV_ACCESS_LOCAL_WRITE | remote_rights(),
		.repeat = 1,
		.num_pieces = 1,
		.pieces = &piece,
	};
	struct qrnicdv_mkey_init_attr attr = { .pd = pd, .max_pieces = 1 };
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 256 };
	struct ibv_qp_ex *ex;
	struct ibv_wc wc;

	if (!indirect) {
		indirect = qrnicdv_create_mkey(&attr, sizeof(attr));
		CHECK(indirect);
		CHECK(!pair_make(&maker, &cap, IBV_QP_EX_WITH_SEND));
		CHECK(!pair_connect(&maker));
	}
	ex = ibv_qp_to_qp_ex(maker.qp[0]);
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED;
	qrnicdv_wr_reg_mkey(ex, indirect, &layout, sizeof(layout));
	CHECK(!ibv_wr_complete(ex));
	CHECK(poll_one(maker.send_cq, &wc) == 1 && !wc.status);
}

/* Waits for a completion and sends it with the received data. */
static void receive(const struct command *c, struct answer *a)
{
	CHECK(poll_one(targets[c->target].cq, &a->wc) == 1);
	send_bytes(a, sizeof(*a));
	send_bytes(buffer + slots_at(c->target) + a->wc.wr_id * SLOT, SLOT);
	if (!a->wc.status)
		slots_post(c->target, a->wc.wr_id, c->argument);
}

static void obey(const struct command *c)
{
	struct answer a = { .rkey = mr->rkey, .address = (uintptr_t)buffer,
			    .gid = gid,
			    .dropped = counter("rx_drop_connection") };

	CHECK(c->target < TARGETS && c->argument <= HALF && c->offset <= HALF);
	switch (c->what) {
	case MAKE:
		target_make(c);
		a.qpn = targets[c->target].qp->qp_num;
		break;
	case DESTROY:
		target_free(&targets[c->target]);
		break;
	case POST:
		slots_post(c->target, c->offset, c->argument);
		break;
	case RECEIVE:
		receive(c, &a);
		return;
	case READ:
		send_bytes(&a, sizeof(a));
		send_bytes(buffer + c->offset, c->argument);
		return;
	case WRITE:
		recv_bytes(buffer + c->offset, c->argument);
		break;
	case REGISTER:
		key_register();
		a.indirect = indirect->rkey;
		break;
	case END:
		break;
	}
	send_bytes(&a, sizeof(a));
}

static void serve(void)
{
	struct command c;

	do {
		recv_bytes(&c, sizeof(c));
		obey(&c);
	} while (c.what != END);
	if (indirect)
		CHECK(!qrnicdv_destroy_mkey(indirect) && !pair_free(&maker));
}

/* The next functions run on the second host */

static struct answer ask(struct command c, const void *bytes)
{
	struct answer a;

	send_bytes(&c, sizeof(c));
	if (bytes)
		send_bytes(bytes, c.argument);
	recv_bytes(&a, sizeof(a));
	return a;
}

static void make_target(uint32_t t, uint32_t responders, uint32_t posted,
			enum ibv_mtu mtu)
{
	told = ask((struct command){ MAKE, t, responders, mtu, posted, 0 }, NULL);
	qpn[t] = told.qpn;
}

static void destroy_target(uint32_t t)
{
	ask((struct command){ .what = DESTROY, .target = t }, NULL);
}

/* Checks that the other host has the same bytes at an offset. */
static void same_there(uint64_t there, const void *here, uint32_t length)
{
	static uint8_t bytes[RETURNED];

	CHECK(length <= sizeof(bytes));
	ask((struct command){ .what = READ, .argument = length,
			      .offset = there }, NULL);
	recv_bytes(bytes, length);
	CHECK(!memcmp(bytes, here, length));
}

static int initiator_start(struct ibv_qp *qp, uint8_t rnr_retry)
{
	return modify(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0, 0) ||
	       modify(qp, IBV_QPS_RTR, IBV_QP_PATH_MTU, 0, IBV_MTU_1024) ||
	       modify(qp, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		      rnr_retry, 0);
}

static void initiator_make(struct end *e, uint32_t flags, uint8_t rnr_retry,
			   uint32_t idle)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_DC,
		.dc = { QRNICDV_DCTYPE_DCI, flags, .idle = idle },
	};
	struct ibv_qp_init_attr_ex attr = {
		.cap = { .max_send_wr = 2 * SLOTS, .max_send_sge = 2,
			 .max_inline_data = 64 },
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND |
			IBV_QP_EX_WITH_SEND_WITH_IMM |
			IBV_QP_EX_WITH_SEND_WITH_INV |
			IBV_QP_EX_WITH_RDMA_WRITE |
			IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			IBV_QP_EX_WITH_RDMA_READ |
			IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
			IBV_QP_EX_WITH_ATOMIC_WRITE,
	};

	memset(e, 0, sizeof(*e));
	e->cq = attr.send_cq = ibv_create_cq(context, 128, NULL, NULL, 0);
	CHECK(e->cq);
	e->qp = qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));
	CHECK(e->qp && !initiator_start(e->qp, rnr_retry));
	e->ex = ibv_qp_to_qp_ex(e->qp);
}

static void initiator_free(struct end *e)
{
	CHECK(!ibv_destroy_qp(e->qp) && !ibv_destroy_cq(e->cq));
}

static void initiator_again(struct end *e)
{
	CHECK(!to_state(e->qp, IBV_QPS_RESET));
	CHECK(!initiator_start(e->qp, RNR_ENDLESS));
}

/* Begins a signaled work request; the caller adds its operation. */
static void wr_begin(struct end *e, uint64_t wr_id)
{
	ibv_wr_start(e->ex);
	e->ex->wr_id = wr_id;
	e->ex->wr_flags = IBV_SEND_SIGNALED;
}

static void wr_end(struct end *e, uint32_t t, size_t offset, uint32_t length)
{
	qrnicdv_wr_set_dc_addr(e->ex, ah, qpn[t], KEY);
	ibv_wr_set_sge(e->ex, mr->lkey, (uintptr_t)buffer + offset, length);
	CHECK(!ibv_wr_complete(e->ex));
}

static void send_one(struct end *e, uint32_t t, size_t offset, uint32_t length,
		     uint64_t wr_id)
{
	wr_begin(e, wr_id);
	ibv_wr_send(e->ex);
	wr_end(e, t, offset, length);
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

/* Returns the next completion of a target and stores its message in data. */
static struct ibv_wc receive_next(uint32_t t, uint32_t posted_again)
{
	struct ibv_wc wc = ask((struct command){ .what = RECEIVE, .target = t,
		.argument = posted_again }, NULL).wc;

	recv_bytes(data, SLOT);
	return wc;
}

static struct ibv_wc received(uint32_t t, struct end *from, uint32_t length)
{
	struct ibv_wc wc = receive_next(t, 1);

	CHECK(!wc.status && wc.byte_len == length && wc.qp_num == qpn[t]);
	CHECK(!from || wc.src_qp == from->qp->qp_num);
	return wc;
}

static void received_from(uint32_t t, struct end *from, size_t offset,
			  uint32_t length)
{
	CHECK(received(t, from, length).opcode == IBV_WC_RECV);
	CHECK(!memcmp(data, buffer + offset, length));
}

/*
 * Waits until a counter reaches a value, because the kernel reads counters from
 * the device only from time to time.
 */
static void counter_wait(const char *name, unsigned long long least)
{
	uint64_t end = now_ms() + SECONDS * 1000;

	while (counter(name) < least)
		CHECK(now_ms() < end);
}

static void messages(struct end *a)
{
	static const uint32_t lengths[LENGTHS] = { 0, 1, 63, 1024, 1025, 4096 };
	struct ibv_wc wc;
	uint32_t i;

	for (i = 0; i < LENGTHS; i++)
		send_one(a, 0, i * SLOT, lengths[i], i);
	for (i = 0; i < LENGTHS; i++) {
		CHECK(completed(a, IBV_WC_SUCCESS).wr_id == i);
		received_from(0, a, i * SLOT, lengths[i]);
	}
	wr_begin(a, 0);
	ibv_wr_send_imm(a->ex, htobe32(0x4711));
	qrnicdv_wr_set_dc_addr(a->ex, ah, qpn[0], KEY);
	ibv_wr_set_inline_data(a->ex, buffer, 33);
	CHECK(!ibv_wr_complete(a->ex));
	completed(a, IBV_WC_SUCCESS);
	wc = received(0, a, 33);
	CHECK(wc.opcode == IBV_WC_RECV && wc.wc_flags & IBV_WC_WITH_IMM);
	CHECK(be32toh(wc.imm_data) == 0x4711 && !memcmp(data, buffer, 33));
}

/*
 * Posts as many requests as the queue was granted, each with the granted number
 * of segments or bytes.
 */
static void whole_queue(struct end *a)
{
	struct ibv_sge sge[2];
	uint32_t i;

	for (i = 0; i < 2 * SLOTS; i++) {
		size_t offset = i % SLOTS * SLOT;

		wr_begin(a, i);
		ibv_wr_send(a->ex);
		qrnicdv_wr_set_dc_addr(a->ex, ah, qpn[0], KEY);
		if (i % 2) {
			sge[0] = sge_of(offset, 700);
			sge[1] = sge_of(offset + 700, 800 + i);
			ibv_wr_set_sge_list(a->ex, 2, sge);
		} else {
			ibv_wr_set_inline_data(a->ex, buffer + offset, 64);
		}
		CHECK(!ibv_wr_complete(a->ex));
	}
	for (i = 0; i < 2 * SLOTS; i++) {
		CHECK(completed(a, IBV_WC_SUCCESS).wr_id == i);
		received_from(0, a, i % SLOTS * SLOT, i % 2 ? 1500 + i : 64);
	}
}

static void remote_memory(struct end *a)
{
	uint64_t there = told.address;
	struct ibv_wc wc;

	wr_begin(a, 0);
	ibv_wr_rdma_write(a->ex, told.rkey, there + 300);
	wr_end(a, 0, 100, RETURNED);
	CHECK(completed(a, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_WRITE);
	same_there(300, buffer + 100, RETURNED);
	wr_begin(a, 0);
	ibv_wr_rdma_write_imm(a->ex, told.rkey, there + 7, htobe32(5));
	wr_end(a, 0, 5000, 5000);
	completed(a, IBV_WC_SUCCESS);
	wc = received(0, a, 5000);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM && be32toh(wc.imm_data) == 5);
	same_there(7, buffer + 5000, 5000);

	/* The data that the other host has written is read */
	ask((struct command){ .what = WRITE, .argument = RETURNED,
			      .offset = 1 }, buffer + 11);
	wr_begin(a, 0);
	ibv_wr_rdma_read(a->ex, told.rkey, there + 1);
	wr_end(a, 0, HALF, RETURNED);
	CHECK(completed(a, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_READ);
	CHECK(!memcmp(buffer + HALF, buffer + 11, RETURNED));
}

static void atomics(struct end *a)
{
	static const uint64_t start = 40, swapped = 7, written = 0x4711;
	uint64_t there = told.address, value;

	ask((struct command){ .what = WRITE, .argument = 8 }, &start);
	wr_begin(a, 1);
	ibv_wr_atomic_fetch_add(a->ex, told.rkey, there, 2);
	wr_end(a, 0, HALF, 8);
	wr_begin(a, 2);
	ibv_wr_atomic_cmp_swp(a->ex, told.rkey, there, 42, swapped);
	wr_end(a, 0, HALF + 8, 8);
	CHECK(completed(a, IBV_WC_SUCCESS).opcode == IBV_WC_FETCH_ADD);
	CHECK(completed(a, IBV_WC_SUCCESS).opcode == IBV_WC_COMP_SWAP);
	memcpy(&value, buffer + HALF, 8);
	CHECK(value == 40);
	memcpy(&value, buffer + HALF + 8, 8);
	CHECK(value == 42);
	same_there(0, &swapped, 8);
	wr_begin(a, 3);
	ibv_wr_atomic_write(a->ex, told.rkey, there + 8, &written);
	qrnicdv_wr_set_dc_addr(a->ex, ah, qpn[0], KEY);
	CHECK(!ibv_wr_complete(a->ex));
	CHECK(completed(a, IBV_WC_SUCCESS).opcode == IBV_WC_ATOMIC_WRITE);
	same_there(8, &written, 8);
}

/* Tests a key of the other host: it is used, invalidated, and then rejected. */
static void invalidated(struct end *a)
{
	uint32_t key = ask((struct command){ .what = REGISTER }, NULL).indirect;
	struct ibv_wc wc;

	wr_begin(a, 1);
	ibv_wr_rdma_write(a->ex, key, 0);
	wr_end(a, 0, 20000, 1500);
	wr_begin(a, 2);
	ibv_wr_send_inv(a->ex, key);
	wr_end(a, 0, 30000, 100);
	wr_begin(a, 3);
	ibv_wr_rdma_write(a->ex, key, 0);
	wr_end(a, 0, 40000, 1500);
	completed(a, IBV_WC_SUCCESS);
	CHECK(completed(a, IBV_WC_SUCCESS).wr_id == 2);
	CHECK(completed(a, IBV_WC_REM_ACCESS_ERR).wr_id == 3);
	wc = received(0, a, 100);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == key);
	CHECK(!memcmp(data, buffer + 30000, 100));
	same_there(0, buffer + 20000, 1500);
}

static void operations(uint32_t flags)
{
	struct end a;

	initiator_make(&a, flags, RNR_ENDLESS, 10);
	make_target(0, 2, SLOTS, IBV_MTU_1024);
	fill(0, HALF, 1 + flags);
	messages(&a);
	whole_queue(&a);
	remote_memory(&a);
	atomics(&a);
	invalidated(&a);
	initiator_free(&a);
	destroy_target(0);
}

static void test_half(void)
{
	operations(0);
}

static void test_full(void)
{
	operations(QRNICDV_DC_FULL_HANDSHAKE);
}

/*
 * Tests each initiator with all targets one after another, with 8 outstanding
 * messages.
 */
static void test_many(void)
{
	struct end a[INITIATORS];
	uint32_t n, i;

	for (i = 0; i < TARGETS; i++)
		make_target(i, 2, SLOTS, IBV_MTU_1024);
	for (i = 0; i < INITIATORS; i++)
		initiator_make(&a[i], i % 2 ? QRNICDV_DC_FULL_HANDSHAKE : 0,
			       RNR_ENDLESS, 4 + i);
	fill(0, HALF, 9);
	for (n = 0; n < MESSAGES; n += 8) {
		for (i = 0; i < 8; i++) {
			struct end *from = &a[(n + i) % INITIATORS];
			uint32_t *head = (uint32_t *)(buffer + i * SLOT);

			head[0] = n + i;
			send_one(from, n / 8 % TARGETS, i * SLOT,
				 4 + (n + i) * 37 % 4000, n + i);
		}
		for (i = 0; i < 8; i++)
			completed(&a[(n + i) % INITIATORS], IBV_WC_SUCCESS);
		/* Messages of one initiator must arrive in order */
		for (uint32_t seen = 0; seen != 0xff; ) {
			uint32_t number, t = n / 8 % TARGETS;
			struct ibv_wc wc = receive_next(t, 1);

			memcpy(&number, data, 4);
			CHECK(!wc.status && number - n < 8);
			i = number - n;
			CHECK(!(seen >> i & 1) &&
			      (i < INITIATORS || seen >> (i - INITIATORS) & 1));
			seen |= 1u << i;
			CHECK(wc.src_qp == a[number % INITIATORS].qp->qp_num);
			CHECK(wc.byte_len == 4 + number * 37 % 4000);
			CHECK(!memcmp(data, buffer + i * SLOT, wc.byte_len));
		}
	}
	for (i = 0; i < INITIATORS; i++)
		initiator_free(&a[i]);
	for (i = 0; i < TARGETS; i++)
		destroy_target(i);
}

/*
 * Tests a target whose only responder is in use because its message has no
 * receive WQE.
 */
static void test_empty_pool(void)
{
	unsigned long long refused = counter("rx_cnak");
	unsigned long long waited = counter("rx_rnr_nak");
	struct end a, b, c;

	initiator_make(&a, 0, RNR_ENDLESS, 10);
	initiator_make(&b, 0, 1, 10);
	initiator_make(&c, 0, RNR_ENDLESS, 10);
	make_target(0, 1, 0, IBV_MTU_1024);
	send_one(&a, 0, 0, 100, 2);
	counter_wait("rx_rnr_nak", waited + 1);
	send_one(&b, 0, 0, 100, 3);
	CHECK(completed(&b, IBV_WC_RNR_RETRY_EXC_ERR).vendor_err ==
	      QRNIC_SYN_DYNAMIC_BUSY);
	send_one(&c, 0, SLOT, 200, 4);
	counter_wait("rx_cnak", refused + 2 + BUSY_REFUSALS);
	CHECK(!ibv_poll_cq(c.cq, 1, &(struct ibv_wc){}));
	ask((struct command){ .what = POST, .argument = SLOTS }, NULL);
	CHECK(completed(&a, IBV_WC_SUCCESS).wr_id == 2);
	CHECK(completed(&c, IBV_WC_SUCCESS).wr_id == 4);
	received_from(0, &a, 0, 100);
	received_from(0, &c, SLOT, 200);
	initiator_free(&a);
	initiator_free(&b);
	initiator_free(&c);
	destroy_target(0);
}

static void test_refused(void)
{
	struct end a, b;

	initiator_make(&a, 0, RNR_ENDLESS, 10);
	initiator_make(&b, 0, RNR_ENDLESS, 10);
	make_target(0, 4, SLOTS, IBV_MTU_1024);
	make_target(1, 4, SLOTS, IBV_MTU_512);
	wr_begin(&a, 1);
	ibv_wr_send(a.ex);
	qrnicdv_wr_set_dc_addr(a.ex, ah, qpn[0], KEY + 1);
	ibv_wr_set_sge(a.ex, mr->lkey, (uintptr_t)buffer, 10);
	CHECK(!ibv_wr_complete(a.ex));
	CHECK(completed(&a, IBV_WC_REM_ACCESS_ERR).vendor_err ==
	      QRNIC_SYN_DYNAMIC_KEY);
	send_one(&b, 1, 0, 10, 1);
	CHECK(completed(&b, IBV_WC_REM_INV_REQ_ERR).vendor_err ==
	      QRNIC_SYN_DYNAMIC_PARAMETERS);
	initiator_again(&a);
	send_one(&a, 0, 50, 10, 1);
	completed(&a, IBV_WC_SUCCESS);
	/*
	 * The rejected message must not have arrived, so the accepted message
	 * is the first one
	 */
	received_from(0, &a, 50, 10);
	initiator_free(&a);
	initiator_free(&b);
	destroy_target(0);
	destroy_target(1);
}

static uint64_t dropped_there(void)
{
	return ask((struct command){ .what = POST }, NULL).dropped;
}

/*
 * Returns the number of dropped packets after all earlier packets have arrived.
 * The value is read until it is stable, because hw_counters may be 10 ms old.
 */
static uint64_t dropped_so_far(void)
{
	uint64_t before, now = dropped_there();

	do {
		before = now;
		usleep(30000);
		now = dropped_there();
	} while (now != before);
	return now;
}

/*
 * Tests rejected CONNECTs. Packets behind a CONNECT are dropped with it, and in
 * a full handshake none are sent. The full handshake comes first, because its
 * drops would otherwise be mistaken for those of the half handshake.
 */
static void test_handshakes(void)
{
	uint64_t before = dropped_so_far(), end = now_ms() + SECONDS * 1000;
	uint64_t again = counter("timeouts");
	struct end a[2];
	uint32_t i;

	make_target(0, 4, SLOTS, IBV_MTU_512);
	for (i = 0; i < 2; i++) {
		initiator_make(&a[i], i ? 0 : QRNICDV_DC_FULL_HANDSHAKE,
			       RNR_ENDLESS, 10);
		send_one(&a[i], 0, 0, 10, 1);
		completed(&a[i], IBV_WC_REM_INV_REQ_ERR);
		initiator_free(&a[i]);
	}
	while (dropped_there() == before)
		CHECK(now_ms() < end);
	/* A slow target makes the initiator retransmit both packets */
	CHECK(dropped_so_far() <= before + 1 + counter("timeouts") - again);
	destroy_target(0);
}

/*
 * Tests a target that is destroyed in the middle of a row of messages, of which
 * a quarter had receive WQEs. Then it is created again for the rest.
 */
static void test_target_anew(void)
{
	const uint32_t row = SLOTS, before = SLOTS / 4;
	struct end a;
	uint32_t i;

	initiator_make(&a, 0, RNR_ENDLESS, 10);
	make_target(0, 4, before, IBV_MTU_1024);
	fill(0, HALF, 3);
	for (i = 0; i < row; i++)
		send_one(&a, 0, i * SLOT, 1000 + i, i);
	for (i = 0; i < before; i++) {
		CHECK(completed(&a, IBV_WC_SUCCESS).wr_id == i);
		CHECK(receive_next(0, 0).byte_len == 1000 + i);
		CHECK(!memcmp(data, buffer + i * SLOT, 1000 + i));
	}
	destroy_target(0);
	CHECK(completed(&a, IBV_WC_RETRY_EXC_ERR).wr_id == before);
	for (i = before + 1; i < row; i++)
		CHECK(completed(&a, IBV_WC_WR_FLUSH_ERR).wr_id == i);
	make_target(0, 4, SLOTS, IBV_MTU_1024);
	initiator_again(&a);
	for (i = before; i < row; i++)
		send_one(&a, 0, i * SLOT, 1000 + i, i);
	for (i = before; i < row; i++) {
		CHECK(completed(&a, IBV_WC_SUCCESS).wr_id == i);
		received_from(0, &a, i * SLOT, 1000 + i);
	}
	initiator_free(&a);
	destroy_target(0);
}

/*
 * Tests that an idle initiator frees the only responder: the next initiator
 * connects at its first try.
 */
static void test_idle(void)
{
	struct end a, b;
	uint32_t i;

	initiator_make(&a, 0, 0, 8);
	initiator_make(&b, 0, 0, 8);
	make_target(0, 1, SLOTS, IBV_MTU_1024);
	for (i = 0; i < 6; i++) {
		unsigned long long before = counter("dynamic_disconnects");
		struct end *e = i % 2 ? &b : &a;

		send_one(e, 0, i * SLOT, 500, i);
		completed(e, IBV_WC_SUCCESS);
		received_from(0, e, i * SLOT, 500);
		counter_wait("dynamic_disconnects", before + 1);
	}
	initiator_free(&a);
	initiator_free(&b);
	destroy_target(0);
}

/*
 * Tests that a target has the requested number of responders. An initiator with
 * an idle time of one second keeps its responder.
 */
static void test_pool_size(void)
{
	uint64_t begin = now_ms();
	struct end a[4];
	struct ibv_wc wc;
	uint32_t i;

	make_target(0, 3, SLOTS, IBV_MTU_1024);
	for (i = 0; i < 4; i++) {
		initiator_make(&a[i], 0, 0, 18);
		send_one(&a[i], 0, i * SLOT, 100, i);
		if (i < 3) {
			completed(&a[i], IBV_WC_SUCCESS);
			received_from(0, &a[i], i * SLOT, 100);
			continue;
		}
		CHECK(poll_one(a[i].cq, &wc) == 1);
		CHECK(wc.status == IBV_WC_RNR_RETRY_EXC_ERR ||
		      now_ms() > begin + 1000);
	}
	for (i = 0; i < 4; i++)
		initiator_free(&a[i]);
	destroy_target(0);
}

/*
 * Tests that each initiator has its own idle time: one keeps its responder for
 * a second, and another frees it after 1 ms.
 */
static void test_idle_each(void)
{
	unsigned long long before = counter("dynamic_disconnects");
	struct end slow, quick, other[2];
	uint64_t begin = now_ms();
	struct ibv_wc wc;
	uint32_t i;

	initiator_make(&slow, 0, 0, 18);
	initiator_make(&quick, 0, 0, 8);
	for (i = 0; i < 2; i++) {
		initiator_make(&other[i], 0, 0, 18);
		make_target(i, 1, SLOTS, IBV_MTU_1024);
	}
	send_one(&slow, 0, 0, 100, 1);
	completed(&slow, IBV_WC_SUCCESS);
	send_one(&quick, 1, 0, 100, 1);
	completed(&quick, IBV_WC_SUCCESS);
	counter_wait("dynamic_disconnects", before + 1);
	send_one(&other[0], 0, 0, 100, 1);
	CHECK(poll_one(other[0].cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_RNR_RETRY_EXC_ERR || now_ms() > begin + 1000);
	send_one(&other[1], 1, 0, 100, 1);
	completed(&other[1], IBV_WC_SUCCESS);
	initiator_free(&slow);
	initiator_free(&quick);
	for (i = 0; i < 2; i++) {
		initiator_free(&other[i]);
		destroy_target(i);
	}
}

static void addressed(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .sgid_index = gid_index, .hop_limit = 1 },
	};

	/*
	 * Any answer contains the GID of the other host, so a command without
	 * effect is enough
	 */
	attr.grh.dgid = ask((struct command){ .what = POST }, NULL).gid;
	CHECK(memcmp(&attr.grh.dgid, &gid, sizeof(gid)));
	ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
}

/*
 * Runs the tests of the second host. A failure ends the run, because the hosts
 * may no longer agree on the state.
 */
static void judge(void)
{
	static const struct {
		const char *name;
		void (*test)(void);
	} all[] = {
		{ "between hosts: addresses", addressed },
		{ "between hosts: operations, half handshake", test_half },
		{ "between hosts: operations, full handshake", test_full },
		{ "between hosts: many to many", test_many },
		{ "between hosts: no responder is free", test_empty_pool },
		{ "between hosts: number of responders", test_pool_size },
		{ "between hosts: rejected requests", test_refused },
		{ "between hosts: packets behind a rejected CONNECT", test_handshakes },
		{ "between hosts: a target is created again", test_target_anew },
		{ "between hosts: idle initiators disconnect", test_idle },
		{ "between hosts: idle time of each initiator", test_idle_each },
		{}
	};
	unsigned int i;

	for (i = 0; all[i].test && !failures; i++)
		run(all[i].name, all[i].test);
	if (!failures)
		ask((struct command){ .what = END }, NULL);
	if (ah && ibv_destroy_ah(ah))
		failures++;
}

static int meet(const char *host)
{
	struct addrinfo hints = {
		.ai_flags = host ? 0 : AI_PASSIVE,
		.ai_family = host ? AF_UNSPEC : AF_INET6,
		.ai_socktype = SOCK_STREAM,
	}, *info;
	int one = 1, fd, listener;

	if (getaddrinfo(host, PORT, &hints, &info))
		return -1;
	fd = socket(info->ai_family, info->ai_socktype, 0);
	if (host)
		return connect(fd, info->ai_addr, info->ai_addrlen) ? -1 : fd;
	listener = fd;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, info->ai_addr, info->ai_addrlen) ||
	    listen(listener, 1))
		return -1;
	fd = accept(listener, NULL, NULL);
	close(listener);
	return fd;
}

int main(int argc, char **argv)
{
	int fd;

	if (argc < 3 || set_up(argc, argv) ||
	    !(capabilities & QRNIC_CAP_DYNAMIC)) {
		printf("Bail out! no qrnic adapter with dynamic connections\n");
		return 1;
	}
	device = argv[1];
	fd = meet(argv[3]);
	tcp = fd < 0 ? NULL : fdopen(fd, "r+");
	if (!tcp) {
		printf("Bail out! no other host (errno %d)\n", errno);
		return 1;
	}
	setvbuf(tcp, NULL, _IONBF, 0);
	if (argc > 3)
		judge();
	else
		run("between hosts: targets", serve);
	fclose(tcp);
	return tear_down();
}
