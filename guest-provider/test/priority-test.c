// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * priority-test.c: tests priorities of queue pairs: the device has the set
 * priority, invalid requests fail, and bulk flows run beside a short flow.
 * Tests in virtual time check the order of sending. The test needs one adapter
 * and prints TAP.
 */
#include "test.h"

#define FLOWS 2
#define LAST (QRNIC_PRIORITY_LEVELS - 1)
#define BULK 16
#define BULK_BYTES (HALF / 4)

static struct ibv_qp_cap cap = { 64, 1, 1, 1, 0 };

/* Checks both members of qrnicdv_query_priority(). */
static void expect(struct ibv_qp *qp, uint32_t priority, uint32_t level)
{
	struct qrnicdv_priority got = { .comp_mask = ~0ull };

	CHECK(!qrnicdv_query_priority(qp, &got, sizeof(got)));
	CHECK(!got.comp_mask);
	CHECK(got.priority == priority && got.level == level);
}

/*
 * Creates a queue pair with the CQs of p and the attributes of
 * qrnicdv_create_qp().
 */
static struct ibv_qp *create(struct pair *p, struct qrnicdv_qp_init_attr *dv,
			     size_t size)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = p->send_cq,
		.recv_cq = p->recv_cq,
		.cap = cap,
		.qp_type = p->type ? p->type : IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};

	return qrnicdv_create_qp(context, &attr, dv, size);
}

/*
 * Moves a queue pair from INIT to RTS with a service level. The peer need not
 * exist.
 */
static void start(struct ibv_qp *qp, uint8_t sl)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 99,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.sl = sl,
			.grh = { .dgid = gid, .sgid_index = gid_index,
				 .hop_limit = 1 },
		},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		   IBV_QP_RQ_PSN;

	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK(!to_init(qp));
	CHECK(!ibv_modify_qp(qp, &attr, mask));
	CHECK(!to_rts(qp));
}

/* Tests the service level of a type that has an address vector. */
static void service_level(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init;
	struct pair p = { .type = type };
	struct ibv_qp_attr attr;

	CHECK(!pair_make_as(&p, &cap, 0));
	start(p.qp[0], 11);
	expect(p.qp[0], QRNICDV_PRIORITY_SL, 11);
	CHECK(!ibv_query_qp(p.qp[0], &attr, IBV_QP_AV, &init));
	CHECK(attr.ah_attr.sl == 11);
	CHECK(!qrnicdv_modify_priority(p.qp[0], QRNICDV_PRIORITY(0)));
	expect(p.qp[0], QRNICDV_PRIORITY(0), 0);
	CHECK(!qrnicdv_modify_priority(p.qp[0], QRNICDV_PRIORITY_SL));
	expect(p.qp[0], QRNICDV_PRIORITY_SL, 11);
	CHECK(!pair_free(&p));
}

static void test_service_level(void)
{
	NEED(capabilities & QRNIC_CAP_PRIORITY);
	service_level(IBV_QPT_RC);
	if (capabilities & QRNIC_CAP_UC)
		service_level(IBV_QPT_UC);
	if (capabilities & QRNIC_CAP_XRC)
		service_level(IBV_QPT_XRC_SEND);
}

/* Tests that the service level of a datagram belongs to its packet only. */
static void test_datagrams(void)
{
	struct pair p = { .type = IBV_QPT_UD };

	NEED(capabilities & QRNIC_CAP_PRIORITY && capabilities & QRNIC_CAP_UD);
	CHECK(!pair_make_as(&p, &cap, 0) && !pair_connect(&p));
	expect(p.qp[0], QRNICDV_PRIORITY_SL, 0);
	CHECK(!qrnicdv_modify_priority(p.qp[0], QRNICDV_PRIORITY(9)));
	expect(p.qp[0], QRNICDV_PRIORITY(9), 9);
	CHECK(!pair_free(&p));
}

/* Tests a priority that is set at creation, changed, and kept through RESET. */
static void test_life(void)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_PRIORITY,
		.priority = QRNICDV_PRIORITY(LAST),
	};
	struct ibv_qp *qp;
	struct pair p;

	NEED(capabilities & QRNIC_CAP_PRIORITY);
	CHECK(!pair_make(&p, &cap, 0));
	qp = create(&p, &dv, sizeof(dv));
	CHECK(qp);
	expect(qp, QRNICDV_PRIORITY_SL, 0);
	start(qp, 3);
	expect(qp, QRNICDV_PRIORITY(LAST), LAST);
	CHECK(!qrnicdv_modify_priority(qp, QRNICDV_PRIORITY(5)));
	expect(qp, QRNICDV_PRIORITY(5), 5);
	CHECK(!to_state(qp, IBV_QPS_RESET));
	expect(qp, QRNICDV_PRIORITY_SL, 0);
	start(qp, 3);
	expect(qp, QRNICDV_PRIORITY(5), 5);
	/*
	 * After a failed call the priority is unchanged, now and after the next
	 * RESET
	 */
	CHECK(qrnicdv_modify_priority(qp, QRNICDV_PRIORITY(LAST + 1)) == EINVAL);
	expect(qp, QRNICDV_PRIORITY(5), 5);
	CHECK(!to_state(qp, IBV_QPS_ERR));
	CHECK(qrnicdv_modify_priority(qp, QRNICDV_PRIORITY(6)) == EINVAL);
	CHECK(!to_state(qp, IBV_QPS_RESET));
	start(qp, 3);
	expect(qp, QRNICDV_PRIORITY(5), 5);
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!pair_free(&p));
}

static int create_error(struct pair *p, struct qrnicdv_qp_init_attr dv, size_t size)
{
	errno = 0;
	CHECK(!create(p, &dv, size));
	return errno;
}

static void test_refused(void)
{
	const size_t size = sizeof(struct qrnicdv_qp_init_attr);
	struct qrnicdv_qp_init_attr good = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_PRIORITY, .priority = 1,
	}, bad = good;
	struct qrnicdv_priority attr;
	struct pair p;

	NEED(capabilities & QRNIC_CAP_PRIORITY);
	CHECK(!pair_make(&p, &cap, 0));
	bad.priority = QRNIC_PRIORITY_LEVELS + 1;
	CHECK(create_error(&p, bad, size) == EINVAL);
	CHECK(create_error(&p, good, offsetof(struct qrnicdv_qp_init_attr,
					       reserved2) - 1) == EINVAL);
	bad = good;
	bad.reserved2 = 1;
	CHECK(create_error(&p, bad, size) == EOPNOTSUPP);
	bad = good;
	bad.comp_mask = 0;
	CHECK(create_error(&p, bad, size) == EOPNOTSUPP);
	bad = good;
	bad.stream.max_message = 1;
	CHECK(create_error(&p, bad, size) == EOPNOTSUPP);
	/* A priority can be set only in RTS */
	CHECK(qrnicdv_modify_priority(p.qp[0], 1) == EINVAL);
	CHECK(!to_init(p.qp[0]));
	CHECK(qrnicdv_modify_priority(p.qp[0], 1) == EINVAL);
	CHECK(!to_rtr(p.qp[0], p.qp[1]->qp_num));
	CHECK(qrnicdv_modify_priority(p.qp[0], 1) == EINVAL);
	CHECK(!to_rts(p.qp[0]));
	CHECK(!qrnicdv_modify_priority(p.qp[0], 1));
	CHECK(qrnicdv_query_priority(p.qp[0], &attr, 7) == EINVAL);
	CHECK(!pair_free(&p));
}

/* Tests an adapter without priorities. */
static void test_capability(void)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_PRIORITY, .priority = 1,
	};
	struct qrnicdv_priority attr;
	struct pair p;

	NEED(!(capabilities & QRNIC_CAP_PRIORITY));
	CHECK(!pair_make(&p, &cap, 0) && !pair_connect(&p));
	CHECK(create_error(&p, dv, sizeof(dv)) == EOPNOTSUPP);
	CHECK(qrnicdv_modify_priority(p.qp[0], 1) == EOPNOTSUPP);
	CHECK(qrnicdv_query_priority(p.qp[0], &attr, sizeof(attr)) == EOPNOTSUPP);
	CHECK(!pair_free(&p));
}

static void bulk_post(struct pair *flow)
{
	struct ibv_sge sge = sge_of(0, BULK_BYTES);
	int i;

	for (i = 0; i < BULK; i++)
		CHECK(!write_one(flow->qp[0], &sge, 1,
				 i == BULK - 1 ? IBV_SEND_SIGNALED : 0, i));
}

static void done(struct pair *p)
{
	struct ibv_wc wc;

	CHECK(poll_one(p->send_cq, &wc) == 1 && !wc.status);
}

/* Tests a short flow at all levels while bulk flows run. */
static void test_flows(void)
{
	const size_t at = 0x7000;
	struct pair flow[FLOWS], brief;
	struct ibv_sge sge = sge_of(at, 64);
	uint32_t level;
	int i;

	NEED(capabilities & QRNIC_CAP_PRIORITY);
	fill(0, HALF, 7);
	for (i = 0; i < FLOWS; i++)
		CHECK(!pair_make(&flow[i], &cap, 0) && !pair_connect(&flow[i]));
	CHECK(!pair_make(&brief, &cap, 0) && !pair_connect(&brief));
	for (level = 0; level < QRNIC_PRIORITY_LEVELS; level++) {
		memset(buffer + HALF, 0, BULK_BYTES);
		CHECK(!qrnicdv_modify_priority(brief.qp[0],
					       QRNICDV_PRIORITY(level)));
		for (i = 0; i < FLOWS; i++)
			bulk_post(&flow[i]);
		for (i = 0; i < BULK; i++) {
			CHECK(!write_one(brief.qp[0], &sge, 1, IBV_SEND_SIGNALED,
					 i));
			done(&brief);
		}
		/* The level changes while the flows run */
		CHECK(!qrnicdv_modify_priority(flow[0].qp[0],
					       QRNICDV_PRIORITY(LAST - level)));
		for (i = 0; i < FLOWS; i++)
			done(&flow[i]);
		CHECK(!memcmp(buffer + HALF + 64, buffer + 64, BULK_BYTES - 64));
	}
	for (i = 0; i < FLOWS; i++)
		CHECK(!pair_free(&flow[i]));
	CHECK(!pair_free(&brief));
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	run("the service level sets the level", test_service_level);
	run("priorities of datagrams", test_datagrams);
	run("a priority at creation, after a change, and after RESET", test_life);
	run("invalid priorities", test_refused);
	run("an adapter without priorities", test_capability);
	run("two bulk flows and a short one, at each level", test_flows);
	return tear_down();
}
