// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * pace-test.c: tests rate limits of queue pairs: the reported limits, invalid
 * requests, and that sending takes at least as long as a limit requires. The
 * test needs one adapter and prints TAP.
 */
#include "test.h"

#define MESSAGE 50000u
#define MESSAGES 10
#define RATE 20000u

static struct ibv_packet_pacing_caps caps;

static int limit(struct ibv_qp *qp, uint32_t rate, uint32_t burst)
{
	struct ibv_qp_rate_limit_attr attr = {
		.rate_limit = rate,
		.max_burst_sz = burst,
		.typical_pkt_sz = 1000,
	};

	return ibv_modify_qp_rate_limit(qp, &attr);
}

/* Writes all messages and returns the time in milliseconds. */
static uint64_t write_all(struct pair *p)
{
	struct ibv_sge sge = sge_of(0, MESSAGE);
	uint64_t start = now_ms();
	struct ibv_wc wc;
	int i;

	for (i = 0; i < MESSAGES; i++)
		CHECK(!write_one(p->qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
	for (i = 0; i < MESSAGES; i++) {
		CHECK(poll_one(p->send_cq, &wc) == 1);
		if (wc.status)
			printf("# type %d, write %d: status %d, vendor_err %u\n",
			       p->qp[0]->qp_type, i, wc.status, wc.vendor_err);
		CHECK(!wc.status);
	}
	return now_ms() - start;
}

/*
 * Returns a rate at which the writes take ten times as long as without a limit,
 * and at least 200 ms. Therefore the speed of the machine has no influence.
 * Tests in virtual time check that the writes do not take longer.
 */
static uint32_t rate_for(uint64_t unlimited, uint64_t *least)
{
	uint64_t time = unlimited * 10 > 200 ? unlimited * 10 : 200;
	uint32_t rate = MESSAGE * MESSAGES * 8ull / time;

	/*
	 * Only the payload counts, without one burst, so the real time is
	 * always longer
	 */
	*least = (MESSAGE * MESSAGES - 5000) * 8ull / rate;
	return rate;
}

static void one_type(enum ibv_qp_type type)
{
	struct ibv_qp_cap cap = { 16, 1, 1, 1, 0 };
	struct pair p = { .type = type };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	uint64_t least;
	uint32_t rate;
	int tries;

	CHECK(!pair_make_as(&p, &cap, 0));
	/* A limit before RTS is rejected */
	CHECK(limit(p.qp[0], RATE, 1) == EINVAL);
	CHECK(!pair_connect(&p));
	rate = rate_for(write_all(&p), &least);
	CHECK(!limit(p.qp[0], rate, 1));
	CHECK(write_all(&p) >= least);
	CHECK(limit(p.qp[0], caps.qp_rate_limit_max + 1, 0) == EINVAL);
	CHECK(write_all(&p) >= least);
	CHECK(!limit(p.qp[0], 0, 0));
	/* A stalled host delays some runs, and a limit would delay all. */
	for (tries = 0; tries < 100 && write_all(&p) >= least; tries++)
		;
	CHECK(tries < 100);
	/* The limit is also an attribute of the transition to RTS */
	attr.rate_limit = rate;
	CHECK(!ibv_modify_qp(p.qp[0], &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT));
	CHECK(write_all(&p) >= least - 5);
	CHECK(!pair_free(&p));
}

static void test_connections(void)
{
	NEED(capabilities & QRNIC_CAP_RATE_LIMIT);
	one_type(IBV_QPT_RC);
	if (capabilities & QRNIC_CAP_UC)
		one_type(IBV_QPT_UC);
}

static void test_caps(void)
{
	struct ibv_query_device_ex_input input = {};
	struct ibv_device_attr_ex attr;
	struct ibv_qp_cap cap = { 16, 1, 1, 1, 0 };
	struct pair p;

	CHECK(!ibv_query_device_ex(context, &input, &attr));
	caps = attr.packet_pacing_caps;
	if (capabilities & QRNIC_CAP_RATE_LIMIT) {
		CHECK(caps.qp_rate_limit_min == 1);
		CHECK(caps.qp_rate_limit_max == 100000000);
		CHECK(caps.supported_qpts & 1u << IBV_QPT_RC);
		CHECK(!(caps.supported_qpts & 1u << IBV_QPT_XRC_RECV));
		return;
	}
	CHECK(!caps.supported_qpts && !caps.qp_rate_limit_max);
	CHECK(!pair_make(&p, &cap, 0) && !pair_connect(&p));
	CHECK(limit(p.qp[0], RATE, 0) == EOPNOTSUPP);
	CHECK(!pair_free(&p));
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	run("reported rate limits", test_caps);
	run("rate limits", test_connections);
	return tear_down();
}
