// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * shared-test.c: tests shared connections: carriers and their members, through
 * the loopback of one adapter. The arguments are the adapter and the index of
 * the GID. With "loop" behind them the program sends until it is killed.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define MEMBERS 8u
#define SLOT 16384u
#define SHORT 20u
#define ROUNDS 300

/* Layout of a slot: places of a write, a send, a read and an atomic */
#define WRITE_AT 0u
#define WRITE_LENGTH 9000u
#define SEND_AT 9000u
#define SEND_LENGTH 3000u
#define READ_AT 12000u
#define READ_LENGTH 3000u
#define ATOMIC_AT 15360u

static struct ibv_qp_cap cap = { 64, 64, 1, 1, 64 };

/* Two connected carriers, and pairs of members */
static struct ibv_cq *carrier_cq;
static struct ibv_qp *carriers[2];
static uint64_t keys[2];
static struct pair members[MEMBERS];
static unsigned int num_members;

static struct ibv_qp *carrier_new(struct ibv_context *with, struct ibv_pd *of,
				  struct ibv_cq *cq, uint64_t *key)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_CARRIER,
	};
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = of,
	};
	struct ibv_qp *qp = qrnicdv_create_qp(with, &attr, &dv, sizeof(dv));

	*key = dv.carrier.key;
	return qp && *key ? qp : NULL;
}

static int carrier_connect(struct ibv_qp *qp, uint32_t peer, uint8_t timeout,
			   uint8_t retry_cnt)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = 0xfffff0,
		.sq_psn = 0xfffff0,
		.timeout = timeout,
		.retry_cnt = retry_cnt,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = gid, .sgid_index = gid_index,
				 .hop_limit = 1 },
		},
	};
	int err;

	err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			    IBV_QP_PORT);
	if (err)
		return err;
	attr.qp_state = IBV_QPS_RTR;
	err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			    IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	if (err)
		return err;
	attr.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
			     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT);
}

static void carriers_make(void)
{
	unsigned int i;

	carrier_cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	CHECK(carrier_cq);
	for (i = 0; i < 2; i++) {
		carriers[i] = carrier_new(context, pd, carrier_cq, &keys[i]);
		CHECK(carriers[i]);
	}
	CHECK(keys[0] != keys[1]);
	for (i = 0; i < 2; i++)
		CHECK(!carrier_connect(carriers[i], carriers[!i]->qp_num, 14, 7));
}

static void carriers_free(void)
{
	for (unsigned int i = 0; i < 2; i++) {
		if (carriers[i])
			CHECK(!ibv_destroy_qp(carriers[i]));
		carriers[i] = NULL;
	}
	if (carrier_cq)
		CHECK(!ibv_destroy_cq(carrier_cq));
	carrier_cq = NULL;
}

static struct ibv_qp *member_new(struct pair *p, uint32_t number, uint64_t key,
				 struct qrnicdv_qp_init_attr dv, uint64_t ops)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = p->send_cq,
		.recv_cq = p->recv_cq,
		.srq = p->srq,
		.cap = cap,
		.qp_type = p->type ? p->type : IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     (ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = pd,
		.send_ops_flags = ops,
	};

	dv.comp_mask |= QRNICDV_QP_INIT_ATTR_CARRIER;
	dv.carrier.number = number;
	dv.carrier.key = key;
	return qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));
}

/* Creates two members of these carriers, which are not connected yet. */
static void member_make(struct pair *p, const uint32_t *numbers,
			struct qrnicdv_qp_init_attr dv, uint64_t ops)
{
	unsigned int i;

	p->channel = ibv_create_comp_channel(context);
	CHECK(p->channel);
	p->send_cq = ibv_create_cq(context, 64, NULL, p->channel, 0);
	p->recv_cq = ibv_create_cq(context, 64, NULL, p->channel, 0);
	CHECK(p->send_cq && p->recv_cq);
	for (i = 0; i < 2; i++) {
		p->qp[i] = member_new(p, numbers[i], keys[i], dv, ops);
		CHECK(p->qp[i]);
	}
}

static void shared_make(unsigned int count)
{
	uint32_t numbers[2];
	unsigned int i;

	carriers_make();
	numbers[0] = carriers[0]->qp_num;
	numbers[1] = carriers[1]->qp_num;
	memset(members, 0, sizeof(members));
	for (i = 0; i < count; i++) {
		member_make(&members[i], numbers,
			    (struct qrnicdv_qp_init_attr){}, 0);
		num_members = i + 1;
		CHECK(!pair_connect(&members[i]));
	}
}

static void members_free(void)
{
	while (num_members)
		CHECK(!pair_free(&members[--num_members]));
}

static void shared_free(void)
{
	members_free();
	carriers_free();
}

static size_t here(unsigned int m, size_t at)
{
	return m * SLOT + at;
}

static size_t there(unsigned int m, size_t at)
{
	return HALF + here(m, at);
}

static void post(unsigned int m, enum ibv_wr_opcode opcode, size_t at,
		 uint32_t length)
{
	struct ibv_sge sge = sge_of(here(m, at), length);
	struct ibv_send_wr wr = {
		.wr_id = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	uint64_t address = (uintptr_t)buffer + there(m, at);

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = address;
		wr.wr.atomic.compare_add = m;
		wr.wr.atomic.rkey = mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = address;
		wr.wr.rdma.rkey = mr->rkey;
	}
	CHECK(!ibv_post_send(members[m].qp[0], &wr, &bad));
}

static void receive_at(unsigned int m)
{
	struct ibv_sge sge = sge_of(there(m, SEND_AT), SEND_LENGTH);

	CHECK(!recv_one(members[m].qp[1], &sge, 1, m));
}

static const enum ibv_wr_opcode sequence[] = {
	IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
};

static unsigned int sequence_length(void)
{
	return capabilities & QRNIC_CAP_ATOMIC ? 4 : 3;
}

/* Posts all operations of a member and waits for none. */
static void begin(unsigned int m, uint32_t seed)
{
	const uint64_t before = seed;

	fill(here(m, 0), SLOT, seed + m);
	fill(there(m, READ_AT), READ_LENGTH, seed + m + 1000);
	memset(buffer + there(m, 0), 0, READ_AT);
	memcpy(buffer + there(m, ATOMIC_AT), &before, 8);
	post(m, IBV_WR_RDMA_WRITE, WRITE_AT, WRITE_LENGTH);
	post(m, IBV_WR_SEND, SEND_AT, SEND_LENGTH);
	post(m, IBV_WR_RDMA_READ, READ_AT, READ_LENGTH);
	if (sequence_length() > 3)
		post(m, IBV_WR_ATOMIC_FETCH_AND_ADD, ATOMIC_AT, 8);
}

static void end_of(unsigned int m, uint32_t seed)
{
	uint64_t value;
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < sequence_length(); i++) {
		CHECK(poll_one(members[m].send_cq, &wc) == 1 && !wc.status);
		CHECK(wc.wr_id == sequence[i]);
		CHECK(wc.qp_num == members[m].qp[0]->qp_num);
	}
	CHECK(poll_one(members[m].recv_cq, &wc) == 1 && !wc.status);
	CHECK(wc.wr_id == m && wc.byte_len == SEND_LENGTH);
	CHECK(wc.qp_num == members[m].qp[1]->qp_num);
	CHECK(!memcmp(buffer + here(m, 0), buffer + there(m, 0), ATOMIC_AT -
		      (ATOMIC_AT - READ_AT - READ_LENGTH)));
	if (sequence_length() < 4)
		return;
	memcpy(&value, buffer + here(m, ATOMIC_AT), 8);
	CHECK(value == seed);
	memcpy(&value, buffer + there(m, ATOMIC_AT), 8);
	CHECK(value == seed + m);
}

static void work(uint32_t seed)
{
	unsigned int m;

	for (m = 0; m < num_members; m++) {
		receive_at(m);
		begin(m, seed);
	}
	for (m = 0; m < num_members; m++)
		end_of(m, seed);
}

/* Runs all members but member 0. */
static void others_work(uint32_t seed)
{
	unsigned int m;

	for (m = 1; m < num_members; m++) {
		receive_at(m);
		begin(m, seed);
	}
	for (m = 1; m < num_members; m++)
		end_of(m, seed);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static void expect_event(enum ibv_event_type type, const struct ibv_qp *qp)
{
	struct pollfd pfd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	CHECK(poll(&pfd, 1, patience_ms()) == 1);
	CHECK(!ibv_get_async_event(context, &event));
	ibv_ack_async_event(&event);
	CHECK(event.event_type == type && event.element.qp == qp);
}

/*
 * Checks that creation fails with an error. Without the capability the error is
 * EOPNOTSUPP.
 */
static void refuses(int error, struct ibv_qp_init_attr_ex attr,
		    const struct qrnicdv_qp_init_attr *dv, size_t size)
{
	errno = 0;
	CHECK(!qrnicdv_create_qp(context, &attr, (void *)dv, size));
	if (errno != error)
		printf("# expected errno %d\n", error);
	CHECK(errno == error);
}

static void test_refused(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex carrier = {
		.send_cq = cq, .qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	}, member = {
		.send_cq = cq, .recv_cq = cq, .cap = cap, .qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	}, other;
	const struct qrnicdv_qp_init_attr of_carrier = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_CARRIER,
	}, of_member = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_CARRIER,
		.carrier = { .key = 1, .number = 17 },
	};
	struct qrnicdv_qp_init_attr dv;
	const size_t size = sizeof(dv);
	struct ibv_qp *qp;

	CHECK(cq);
	if (!(capabilities & QRNIC_CAP_SHARED_CONNECTION)) {
		refuses(EOPNOTSUPP, carrier, &of_carrier, size);
		refuses(EOPNOTSUPP, member, &of_member, size);
		CHECK(!ibv_destroy_cq(cq));
		return;
	}
#define BAD(error, attr, from, ...) \
	do { \
		dv = from; \
		other = attr; \
		__VA_ARGS__; \
		refuses(error, other, &dv, size); \
	} while (0)
	BAD(EINVAL, carrier, of_carrier, dv.carrier.key = 1);
	BAD(EINVAL, carrier, of_carrier, dv.carrier.number = 17);
	BAD(EOPNOTSUPP, carrier, of_carrier, dv.carrier.reserved = 1);
	BAD(EOPNOTSUPP, carrier, of_carrier, dv.comp_mask = 0);
	BAD(EOPNOTSUPP, carrier, of_carrier, dv.max_inl_recv = 1);
	BAD(EOPNOTSUPP, carrier, of_carrier,
	    dv.comp_mask |= QRNICDV_QP_INIT_ATTR_PRIORITY);
	BAD(EOPNOTSUPP, carrier, of_carrier,
	    dv.comp_mask |= QRNICDV_QP_INIT_ATTR_DC;
	    dv.dc.dc_type = QRNICDV_DCTYPE_DCI; dv.dc.idle = 1);
	BAD(EINVAL, carrier, of_carrier, other.send_cq = NULL);
	BAD(EINVAL, carrier, of_carrier, other.comp_mask = 0);
	BAD(EOPNOTSUPP, carrier, of_carrier,
	    other.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
	BAD(EINVAL, member, of_member, dv.carrier.key = 0);
	BAD(EINVAL, member, of_member, dv.carrier.number = 0);
	BAD(EINVAL, member, of_member, dv.carrier.number = 1u << 24);
	BAD(EOPNOTSUPP, member, of_member, dv.carrier.reserved = 1);
	BAD(EOPNOTSUPP, member, of_member, other.qp_type = IBV_QPT_UC);
	BAD(EOPNOTSUPP, member, of_member, other.qp_type = IBV_QPT_UD);
	BAD(EOPNOTSUPP, member, of_member, other.qp_type = IBV_QPT_XRC_SEND);
#undef BAD
	refuses(EINVAL, carrier, &of_carrier,
		offsetof(struct qrnicdv_qp_init_attr, carrier));
	refuses(EINVAL, carrier, &of_carrier,
		offsetof(struct qrnicdv_qp_init_attr, options) - 1);
	/*
	 * A program that was compiled before options existed has a shorter
	 * structure
	 */
	dv = of_carrier;
	qp = qrnicdv_create_qp(context, &carrier, &dv,
			       offsetof(struct qrnicdv_qp_init_attr, options));
	CHECK(qp && !ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_cq(cq));
}

static void test_operations(void)
{
	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	shared_make(MEMBERS);
	for (uint32_t seed = 1; seed < 20; seed++)
		work(seed * 100);
	shared_free();
}

/*
 * Checks the result of the transition to RTR. Only the right number with the
 * right key makes a member.
 */
static void joins(uint32_t number, uint64_t key, int expected)
{
	struct pair *p = &members[0];
	struct ibv_qp *qp = member_new(p, number, key,
				       (struct qrnicdv_qp_init_attr){}, 0);
	int err;

	CHECK(qp && !to_init(qp));
	err = to_rtr(qp, p->qp[1]->qp_num);
	if (err != expected)
		printf("# expected %d, not %d\n", expected, err);
	CHECK(err == expected);
	CHECK(!ibv_destroy_qp(qp));
}

static void test_right(void)
{
	uint32_t number;

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	shared_make(1);
	number = carriers[0]->qp_num;
	joins(number, keys[0], 0);
	for (unsigned int bit = 0; bit < 64; bit++)
		joins(number, keys[0] ^ 1ull << bit, EACCES);
	joins(carriers[1]->qp_num, keys[0], EACCES);
	/*
	 * The numbers of a member, of the kernel's GSI queue pair, and of no
	 * queue pair
	 */
	joins(members[0].qp[0]->qp_num, keys[0], EACCES);
	joins(1, keys[0], EACCES);
	joins(0xfffffe, keys[0], EACCES);
	work(1);
	shared_free();
}

/*
 * Tests that the carrier of a member must be ready, and that its path MTU is
 * the largest of its members.
 */
static void test_states(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_qp_init_attr init;
	struct ibv_qp *early;
	uint64_t key;

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	shared_make(1);
	early = carrier_new(context, pd, carrier_cq, &key);
	CHECK(early);
	joins(early->qp_num, key, EINVAL);
	CHECK(!carrier_connect(early, carriers[1]->qp_num, 14, 1));
	joins(early->qp_num, key, 0);
	CHECK(!ibv_query_qp(early, &attr, IBV_QP_STATE | IBV_QP_AV, &init));
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.path_mtu == IBV_MTU_1024);
	CHECK(attr.dest_qp_num == carriers[1]->qp_num && attr.retry_cnt == 1);
	CHECK(init.qp_type == IBV_QPT_DRIVER);
	CHECK(!memcmp(&attr.ah_attr.grh.dgid, &gid, sizeof(gid)));
	CHECK(!to_state(early, IBV_QPS_ERR));
	joins(early->qp_num, key, EINVAL);
	CHECK(!to_state(early, IBV_QPS_RESET));
	joins(early->qp_num, key, EINVAL);
	CHECK(!ibv_destroy_qp(early));
	work(1);
	/* A carrier with members keeps its path */
	CHECK(to_state(carriers[0], IBV_QPS_RESET) == EBUSY);
	CHECK(state_of(carriers[0]) == IBV_QPS_RTS);
	work(2);
	/* The member leaves its carrier in RESET, and joins it again */
	for (unsigned int i = 0; i < 2; i++)
		CHECK(!to_state(members[0].qp[i], IBV_QPS_RESET));
	CHECK(!pair_connect(&members[0]));
	work(3);
	shared_free();
}

static void test_not_posted_to(void)
{
	struct ibv_sge sge = sge_of(0, 8);

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	carriers_make();
	CHECK(write_one(carriers[0], &sge, 1, 0, 0));
	CHECK(recv_one(carriers[0], &sge, 1, 0));
	carriers_free();
}

/*
 * Tests that members work with the attributes that other RC queue pairs may
 * have.
 */
static void kind(struct qrnicdv_qp_init_attr dv, uint64_t ops, bool with_srq)
{
	struct ibv_srq_init_attr srq = { .attr = { 8, 1, 0 } };
	struct ibv_recv_wr wr = { .wr_id = 5, .num_sge = 1 }, *bad;
	struct ibv_sge sge = sge_of(HALF, SHORT);
	struct pair *p = &members[0];
	uint32_t numbers[2];
	struct ibv_qp_ex *ex;
	struct ibv_wc wc;

	carriers_make();
	numbers[0] = carriers[0]->qp_num;
	numbers[1] = carriers[1]->qp_num;
	memset(members, 0, sizeof(members));
	if (with_srq)
		p->srq = ibv_create_srq(pd, &srq);
	CHECK(!with_srq || p->srq);
	member_make(p, numbers, dv, ops);
	CHECK(!pair_connect(p));
	fill(0, SHORT, 77);
	memset(buffer + HALF, 0, SHORT);
	wr.sg_list = &sge;
	CHECK(with_srq ? !ibv_post_srq_recv(p->srq, &wr, &bad) :
			 !ibv_post_recv(p->qp[1], &wr, &bad));
	if (ops) {
		ex = ibv_qp_to_qp_ex(p->qp[0]);
		ibv_wr_start(ex);
		ex->wr_id = 3;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send_imm(ex, htobe32(99));
		ibv_wr_set_inline_data(ex, buffer, SHORT);
		CHECK(!ibv_wr_complete(ex));
	} else {
		struct ibv_sge from = sge_of(0, SHORT);
		struct ibv_send_wr send = {
			.wr_id = 3, .sg_list = &from, .num_sge = 1,
			.opcode = IBV_WR_SEND_WITH_IMM,
			.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
			.imm_data = htobe32(99),
		}, *bad_send;

		CHECK(!ibv_post_send(p->qp[0], &send, &bad_send));
	}
	CHECK(poll_one(p->send_cq, &wc) == 1 && !wc.status && wc.wr_id == 3);
	CHECK(poll_one(p->recv_cq, &wc) == 1 && !wc.status && wc.wr_id == 5);
	CHECK(wc.byte_len == SHORT && be32toh(wc.imm_data) == 99);
	CHECK(!memcmp(buffer, buffer + HALF, SHORT));
	CHECK(!pair_free(p));
	if (with_srq)
		CHECK(!ibv_destroy_srq(p->srq));
	carriers_free();
}

static void test_kinds(void)
{
	const struct qrnicdv_qp_init_attr plain = {}, inline_recv = {
		.max_inl_recv = 32,
	}, priority = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_PRIORITY,
		.priority = QRNICDV_PRIORITY(3),
	}, stream = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_STREAM,
		.stream = { .max_message = SHORT, .max_messages = 1 },
	};

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	kind(plain, 0, false);
	kind(plain, IBV_QP_EX_WITH_SEND_WITH_IMM, false);
	if (capabilities & QRNIC_CAP_SRQ)
		kind(plain, 0, true);
	if (capabilities & QRNIC_CAP_INLINE_RECV)
		kind(inline_recv, 0, false);
	if (capabilities & QRNIC_CAP_PRIORITY)
		kind(priority, IBV_QP_EX_WITH_SEND_WITH_IMM, false);
	if (capabilities & QRNIC_CAP_STREAMING_RECV)
		kind(stream, 0, false);
}

/*
 * Tests that carriers agree on selective repeat, and that members have no
 * options.
 */
static void test_options(void)
{
	struct ibv_ece all = { QRNIC_ECE_VENDOR_ID, ~0u, 0 }, ece;
	uint32_t known = capabilities & QRNIC_CAP_SELECTIVE_REPEAT ?
			 QRNIC_QPO_SELECTIVE_REPEAT : 0;
	unsigned int i;

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION && known);
	shared_make(2);
	CHECK(ibv_query_ece(members[0].qp[0], &ece) == EOPNOTSUPP);
	CHECK(ibv_set_ece(members[0].qp[0], &all) == EOPNOTSUPP);
	for (i = 0; i < 2; i++) {
		CHECK(!to_state(members[0].qp[i], IBV_QPS_RESET));
		CHECK(!to_state(members[1].qp[i], IBV_QPS_RESET));
		CHECK(!to_state(carriers[i], IBV_QPS_RESET));
		CHECK(!ibv_set_ece(carriers[i], &all));
		CHECK(!ibv_query_ece(carriers[i], &ece));
		CHECK(ece.options == known);
	}
	for (i = 0; i < 2; i++)
		CHECK(!carrier_connect(carriers[i], carriers[!i]->qp_num, 14, 7));
	for (i = 0; i < 2; i++)
		CHECK(!pair_connect(&members[i]));
	work(5);
	shared_free();
}

/*
 * Tests that a member without the right to write fails, and that all other
 * members continue.
 */
static void test_error(void)
{
	struct ibv_sge sge = sge_of(0, 64);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_wc wc;

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	shared_make(MEMBERS);
	wr.wr.rdma.remote_addr = (uintptr_t)buffer + HALF;
	wr.wr.rdma.rkey = mr->rkey ^ 0x100;
	CHECK(!ibv_post_send(members[0].qp[0], &wr, &bad));
	others_work(7);
	CHECK(poll_one(members[0].send_cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
	expect_event(IBV_EVENT_QP_ACCESS_ERR, members[0].qp[1]);
	CHECK(state_of(members[0].qp[0]) == IBV_QPS_ERR);
	CHECK(state_of(members[0].qp[1]) == IBV_QPS_ERR);
	others_work(8);
	CHECK(state_of(carriers[0]) == IBV_QPS_RTS);
	CHECK(state_of(carriers[1]) == IBV_QPS_RTS);
	shared_free();
}

/*
 * Tests that a member waits if its peer has posted no receive, and that all
 * other members continue.
 */
static void test_not_ready(void)
{
	struct ibv_wc wc;

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	shared_make(MEMBERS);
	begin(0, 3);
	/*
	 * The write completes before the send, because the send waits for a
	 * receive WQE
	 */
	CHECK(poll_one(members[0].send_cq, &wc) == 1 && !wc.status);
	CHECK(wc.wr_id == IBV_WR_RDMA_WRITE);
	for (uint32_t seed = 1; seed < 10; seed++)
		others_work(seed);
	CHECK(!ibv_poll_cq(members[0].send_cq, 1, &wc));
	receive_at(0);
	for (unsigned int i = 1; i < sequence_length(); i++) {
		CHECK(poll_one(members[0].send_cq, &wc) == 1 && !wc.status);
		CHECK(wc.wr_id == sequence[i]);
	}
	CHECK(poll_one(members[0].recv_cq, &wc) == 1 && !wc.status);
	CHECK(!memcmp(buffer + here(0, 0), buffer + there(0, 0),
		      READ_AT + READ_LENGTH));
	shared_free();
}

/*
 * Tests that members fail with their carrier: one with outstanding work, and
 * idle ones.
 */
static void test_carrier_error(void)
{
	struct ibv_wc wc;
	unsigned int m;

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	shared_make(3);
	work(1);
	post(0, IBV_WR_SEND, SEND_AT, SEND_LENGTH);
	CHECK(!to_state(carriers[0], IBV_QPS_ERR));
	CHECK(poll_one(members[0].send_cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_RETRY_EXC_ERR);
	CHECK(wc.vendor_err == QRNIC_SYN_CARRIER);
	for (m = 1; m < 3; m++)
		expect_event(IBV_EVENT_QP_FATAL, members[m].qp[0]);
	for (m = 0; m < 3; m++) {
		CHECK(state_of(members[m].qp[0]) == IBV_QPS_ERR);
		/* The peer is not notified, and has nothing to send */
		CHECK(state_of(members[m].qp[1]) == IBV_QPS_RTS);
	}
	shared_free();
}

/* Tests a carrier that fails because its peer does not exist. */
static void test_carrier_fails(void)
{
	struct ibv_wc wc;

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	shared_make(2);
	for (unsigned int i = 0; i < 2; i++)
		CHECK(!to_state(members[i].qp[0], IBV_QPS_RESET));
	CHECK(!to_state(carriers[0], IBV_QPS_RESET));
	CHECK(!carrier_connect(carriers[0], 0xfffffe, 8, 1));
	for (unsigned int i = 0; i < 2; i++) {
		CHECK(!to_init(members[i].qp[0]));
		CHECK(!to_rtr(members[i].qp[0], members[i].qp[1]->qp_num));
		CHECK(!to_rts(members[i].qp[0]));
	}
	post(0, IBV_WR_RDMA_WRITE, WRITE_AT, WRITE_LENGTH);
	CHECK(poll_one(members[0].send_cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_RETRY_EXC_ERR);
	expect_event(IBV_EVENT_QP_FATAL, carriers[0]);
	expect_event(IBV_EVENT_QP_FATAL, members[1].qp[0]);
	CHECK(state_of(carriers[0]) == IBV_QPS_ERR);
	shared_free();
}

/*
 * Tests carriers that are destroyed first. The members of such a carrier
 * continue, and the last one frees the carrier. The test repeats this until a
 * device with few queue pairs would have none left.
 */
static void test_order(void)
{
	uint32_t number;

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	for (int i = 0; i < ROUNDS; i++) {
		shared_make(2);
		if (!i)
			work(11);
		number = carriers[0]->qp_num;
		carriers_free();
		if (!i) {
			joins(number, keys[0], EACCES);
			work(12);
		}
		members_free();
	}
	/* The members are in RESET, and the order is reversed */
	shared_make(2);
	carriers_free();
	for (int i = 0; i < 2; i++) {
		CHECK(!to_state(members[i].qp[0], IBV_QPS_RESET));
		CHECK(!to_init(members[i].qp[0]));
		CHECK(to_rtr(members[i].qp[0], 1) == EACCES);
	}
	members_free();
	shared_make(2);
	work(13);
	shared_free();
}

/* Objects of another process of the test */
static struct ibv_pd *own_pd;
static struct ibv_cq *own_cq;

static int own_make(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *own = NULL;
	int i;

	for (i = 0; list && list[i]; i++)
		if (!strcmp(name, ibv_get_device_name(list[i])))
			own = ibv_open_device(list[i]);
	own_pd = own ? ibv_alloc_pd(own) : NULL;
	own_cq = own ? ibv_create_cq(own, 1, NULL, NULL, 0) : NULL;
	return own_pd && own_cq ? 0 : -1;
}

static struct ibv_qp *own_carrier(uint64_t *key)
{
	return carrier_new(own_pd->context, own_pd, own_cq, key);
}

struct owned {
	uint32_t numbers[2];
	uint64_t keys[2];
};

/* Creates the carriers, sends their numbers and keys, and is killed. */
static void __attribute__((noreturn)) owner(const char *name, int tell)
{
	struct owned owned = {};
	struct ibv_qp *made[2];
	int i;

	if (own_make(name))
		_exit(1);
	for (i = 0; i < 2; i++) {
		made[i] = own_carrier(&owned.keys[i]);
		if (!made[i])
			_exit(1);
		owned.numbers[i] = made[i]->qp_num;
	}
	if (carrier_connect(made[0], owned.numbers[1], 14, 7) ||
	    carrier_connect(made[1], owned.numbers[0], 14, 7) ||
	    write(tell, &owned, sizeof(owned)) != sizeof(owned))
		_exit(1);
	for (;;)
		pause();
}

static void test_owner_killed(void)
{
	const char *name = ibv_get_device_name(context->device);
	struct owned owned;
	int ends[2], status;
	pid_t process;

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	CHECK(!pipe(ends));
	process = fork();
	CHECK(process >= 0);
	if (!process)
		owner(name, ends[1]);
	close(ends[1]);
	CHECK(read(ends[0], &owned, sizeof(owned)) == sizeof(owned));
	close(ends[0]);
	memcpy(keys, owned.keys, sizeof(keys));
	memset(members, 0, sizeof(members));
	for (unsigned int i = 0; i < 2; i++) {
		member_make(&members[i], owned.numbers,
			    (struct qrnicdv_qp_init_attr){}, 0);
		num_members = i + 1;
		CHECK(!pair_connect(&members[i]));
	}
	work(21);
	for (unsigned int m = 0; m < num_members; m++)
		receive_at(m);
	for (unsigned int m = 0; m < num_members; m++)
		begin(m, 22);
	CHECK(!kill(process, SIGKILL));
	CHECK(waitpid(process, &status, 0) == process && WIFSIGNALED(status));
	for (unsigned int m = 0; m < num_members; m++)
		end_of(m, 22);
	work(23);
	joins(owned.numbers[0], keys[0], EACCES);
	members_free();
}

struct haste {
	atomic_uint number;
	/* Key of the carrier, which is written before the number */
	uint64_t key;
};

/*
 * Creates carriers and destroys them while a member is joining. The destruction
 * comes at once, or so late that the member has joined.
 */
static void __attribute__((noreturn)) owner_in_haste(const char *name,
						     struct haste *haste)
{
	struct ibv_qp *qp;
	uint32_t turn;

	if (own_make(name))
		_exit(1);
	for (turn = 0;; turn++) {
		qp = own_carrier(&haste->key);
		if (!qp || carrier_connect(qp, 0, 14, 7))
			_exit(1);
		haste->number = qp->qp_num;
		while (haste->number)
			;
		for (volatile uint32_t i = turn % 32 * (turn % 32) * 1000; i; i--)
			;
		if (ibv_destroy_qp(qp))
			_exit(1);
	}
}

static void test_haste(void)
{
	const char *name = ibv_get_device_name(context->device);
	unsigned int got = 0, refused = 0;
	struct haste *haste;
	struct ibv_qp *qp;
	pid_t process;
	int status, err;

	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	shared_make(1);
	haste = mmap(NULL, sizeof(*haste), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(haste != MAP_FAILED);
	process = fork();
	CHECK(process >= 0);
	if (!process)
		owner_in_haste(name, haste);
	while (got + refused < ROUNDS) {
		while (!haste->number)
			CHECK(!waitpid(process, &status, WNOHANG));
		qp = member_new(&members[0], haste->number, haste->key,
				(struct qrnicdv_qp_init_attr){}, 0);
		CHECK(qp && !to_init(qp));
		haste->number = 0;
		/*
		 * A new carrier, which is not in RTR yet, may have the same
		 * number
		 */
		err = to_rtr(qp, 1);
		CHECK(!err || err == EACCES || err == EINVAL);
		got += !err;
		refused += !!err;
		CHECK(!ibv_destroy_qp(qp));
	}
	printf("# %u joined, %u did not\n", got, refused);
	CHECK(got);
	CHECK(!kill(process, SIGKILL));
	CHECK(waitpid(process, &status, 0) == process && WIFSIGNALED(status));
	munmap(haste, sizeof(*haste));
	work(31);
	shared_free();
}

static void endless(void)
{
	NEED(capabilities & QRNIC_CAP_SHARED_CONNECTION);
	shared_make(MEMBERS);
	work(1);
	printf("# loop\n");
	fflush(stdout);
	for (uint32_t seed = 2;; seed++)
		work(seed);
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	if (argc > 3 && !strcmp(argv[3], "loop")) {
		run("endless traffic", endless);
		return 1;
	}
	run("invalid attributes", test_refused);
	run("all operations of many members in parallel", test_operations);
	run("key and number of a member", test_right);
	run("states of carriers and members", test_states);
	run("posting to a carrier is rejected", test_not_posted_to);
	run("members with other attributes", test_kinds);
	run("options of carriers", test_options);
	run("an error of a member affects only this member", test_error);
	run("a member that is not ready delays no other", test_not_ready);
	run("members fail with their carrier", test_carrier_error);
	run("a carrier fails", test_carrier_fails);
	run("carriers are destroyed before their members", test_order);
	run("the owner of carriers is killed", test_owner_killed);
	run("carriers are destroyed while members join", test_haste);
	return tear_down();
}
