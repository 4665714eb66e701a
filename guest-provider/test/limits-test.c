// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * limits-test.c: tests that objects of all sizes within the advertised limits
 * can be created, alone and together. The granted sizes must be within these
 * limits, too. First it tries a grid of sizes for each type of queue pair, then
 * random sizes of all objects. The third argument is the seed. Prints TAP.
 */
#include "test.h"

#define DRAWS 300

static struct ibv_device_attr_ex limits;
static uint32_t max_inline;
static struct ibv_cq *cq;
static uint64_t seed = 25;

static const struct {
	enum ibv_qp_type type;
	uint64_t capability;
	const char *name;
} types[] = {
	{ IBV_QPT_RC, 0, "RC" },
	{ IBV_QPT_UC, QRNIC_CAP_UC, "UC" },
	{ IBV_QPT_UD, QRNIC_CAP_UD, "UD" },
	{ IBV_QPT_RAW_PACKET, QRNIC_CAP_FLOW, "raw packets" },
	{ IBV_QPT_XRC_SEND, QRNIC_CAP_XRC, "XRC initiator" },
	{ IBV_QPT_DRIVER, QRNIC_CAP_DYNAMIC, "dynamic initiator" },
};

#define NUM_TYPES (sizeof(types) / sizeof(*types))

/*
 * Returns a random number up to most. The generator is Knuth's, so that a
 * failure can be repeated with its seed.
 */
static uint32_t draw(uint32_t most)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return most ? (seed >> 33) % ((uint64_t)most + 1) : 0;
}

/* Returns a size from 1 to most; small sizes are as likely as large ones. */
static uint32_t draw_size(uint32_t most)
{
	uint32_t bits = 0;

	while (most >> bits > 1)
		bits++;
	bits = 1u << draw(bits);
	return 1 + draw((bits < most / 2 ? 2 * bits : most) - 1);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static struct ibv_qp *qp_create(enum ibv_qp_type type, struct ibv_qp_cap *cap)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_DC,
		.dc = { .dc_type = QRNICDV_DCTYPE_DCI, .idle = 10 },
	};
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = *cap,
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp;

	if (type == IBV_QPT_DRIVER) {
		attr.recv_cq = NULL;
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
		qp = qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));
	} else {
		qp = ibv_create_qp_ex(context, &attr);
	}
	*cap = attr.cap;
	return qp;
}

static void cap_check(const struct ibv_qp_cap *asked, const struct ibv_qp_cap *cap,
		      bool receives)
{
	const struct ibv_device_attr *dev = &limits.orig_attr;

	CHECK(cap->max_send_wr >= asked->max_send_wr);
	CHECK(cap->max_send_wr <= (uint32_t)dev->max_qp_wr);
	CHECK(cap->max_send_sge >= asked->max_send_sge);
	CHECK(cap->max_send_sge <= (uint32_t)dev->max_sge);
	CHECK(cap->max_inline_data >= asked->max_inline_data);
	CHECK(cap->max_inline_data <= max_inline);
	if (!receives)
		return;
	CHECK(cap->max_recv_wr >= asked->max_recv_wr);
	CHECK(cap->max_recv_wr <= (uint32_t)dev->max_qp_wr);
	CHECK(cap->max_recv_sge >= asked->max_recv_sge);
	CHECK(cap->max_recv_sge <= (uint32_t)dev->max_sge);
}

/*
 * Creates a queue pair with these sizes. The granted sizes are requested again,
 * as programs do to create an equal queue pair.
 */
static void qp_try(enum ibv_qp_type type, struct ibv_qp_cap asked)
{
	bool receives = type != IBV_QPT_XRC_SEND && type != IBV_QPT_DRIVER;
	struct ibv_qp_init_attr init;
	struct ibv_qp_cap cap = asked;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;
	int round;

	for (round = 0; round < 2; round++) {
		qp = qp_create(type, &cap);
		if (!qp)
			printf("# type %d: %u WRs, %u SGEs, %u bytes; %u WRs, %u SGEs\n",
			       type, asked.max_send_wr, asked.max_send_sge,
			       asked.max_inline_data, asked.max_recv_wr,
			       asked.max_recv_sge);
		CHECK(qp);
		cap_check(&asked, &cap, receives);
		CHECK(!ibv_query_qp(qp, &attr, IBV_QP_CAP, &init));
		CHECK(!memcmp(&init.cap, &cap, sizeof(cap)));
		CHECK(!ibv_destroy_qp(qp));
	}
}

static void test_grid(size_t kind)
{
	const uint32_t most = limits.orig_attr.max_qp_wr;
	const uint32_t sges[] = { 1, 2, 4, 8, 16, 29, limits.orig_attr.max_sge };
	const uint32_t wrs[] = {
		1, 2, 3, 10, 100, 1000, 4095, 4096, 4097, 10000, 16384, 20000,
		29524, 32767, most,
	};
	size_t i, k;

	NEED((capabilities & types[kind].capability) == types[kind].capability);
	for (i = 0; i < sizeof(sges) / sizeof(*sges); i++) {
		for (k = 0; k < sizeof(wrs) / sizeof(*wrs); k++)
			qp_try(types[kind].type, (struct ibv_qp_cap){
				.max_send_wr = smaller(wrs[k], most),
				.max_send_sge = smaller(sges[i], limits.orig_attr.max_sge),
				.max_recv_wr = 1,
				.max_recv_sge = 1 });
	}
	qp_try(types[kind].type, (struct ibv_qp_cap){
		.max_send_wr = most, .max_send_sge = 1, .max_recv_wr = most,
		.max_recv_sge = limits.orig_attr.max_sge,
		.max_inline_data = max_inline / 2 });
}

static size_t kind;

static void test_kind(void)
{
	test_grid(kind);
}

static void random_qp(void)
{
	const struct ibv_device_attr *dev = &limits.orig_attr;
	size_t i = draw(NUM_TYPES - 1);

	if ((capabilities & types[i].capability) != types[i].capability)
		return;
	qp_try(types[i].type, (struct ibv_qp_cap){
		.max_send_wr = draw_size(dev->max_qp_wr),
		.max_recv_wr = draw_size(dev->max_qp_wr),
		.max_send_sge = draw(dev->max_sge),
		.max_recv_sge = draw(dev->max_sge),
		.max_inline_data = draw(max_inline) });
}

static void random_cq(void)
{
	uint32_t cqe = draw_size(limits.orig_attr.max_cqe);
	struct ibv_cq *other = ibv_create_cq(context, cqe, NULL, NULL, 0);

	CHECK(other && (uint32_t)other->cqe >= cqe);
	CHECK(other->cqe <= limits.orig_attr.max_cqe);
	if (capabilities & QRNIC_CAP_CQ_RESIZE)
		CHECK(!ibv_resize_cq(other, draw_size(limits.orig_attr.max_cqe)));
	CHECK(!ibv_destroy_cq(other));
}

static void random_srq(void)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = draw_size(limits.orig_attr.max_srq_wr),
			  .max_sge = draw(limits.orig_attr.max_srq_sge) },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd,
	};
	struct ibv_srq_attr asked = attr.attr;
	struct ibv_srq *srq;

	if (!(capabilities & QRNIC_CAP_SRQ))
		return;
	if (capabilities & QRNIC_CAP_TAG_MATCHING && draw(1)) {
		attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
		attr.srq_type = IBV_SRQT_TM;
		attr.cq = cq;
		attr.tm_cap.max_num_tags = draw_size(limits.tm_caps.max_num_tags);
		attr.tm_cap.max_ops = draw_size(limits.tm_caps.max_ops);
	}
	srq = ibv_create_srq_ex(context, &attr);
	if (!srq)
		printf("# SRQ type %d: %u WRs, %u SGEs, %u tags, %u operations\n",
		       attr.srq_type, asked.max_wr, asked.max_sge,
		       attr.tm_cap.max_num_tags, attr.tm_cap.max_ops);
	CHECK(srq);
	CHECK(attr.attr.max_wr >= asked.max_wr &&
	      attr.attr.max_wr <= (uint32_t)limits.orig_attr.max_srq_wr);
	CHECK(attr.attr.max_sge >= asked.max_sge &&
	      attr.attr.max_sge <= (uint32_t)limits.orig_attr.max_srq_sge);
	CHECK(!ibv_destroy_srq(srq));
}

static void random_wq(void)
{
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ,
		.max_wr = draw_size(limits.orig_attr.max_qp_wr),
		.max_sge = draw(limits.orig_attr.max_sge),
		.pd = pd,
		.cq = cq,
	};
	uint32_t asked = attr.max_wr;
	struct ibv_wq *wq;

	if (!(capabilities & QRNIC_CAP_RSS))
		return;
	wq = ibv_create_wq(context, &attr);
	CHECK(wq && attr.max_wr >= asked);
	CHECK(attr.max_wr <= (uint32_t)limits.orig_attr.max_qp_wr);
	CHECK(!ibv_destroy_wq(wq));
}

static void test_random(void)
{
	int i;

	printf("# seed %llu\n", (unsigned long long)seed);
	for (i = 0; i < DRAWS; i++) {
		random_qp();
		random_cq();
		random_srq();
		random_wq();
	}
}

int main(int argc, char **argv)
{
	struct qrnicdv_device_attr dev;
	char name[80];

	if (set_up(argc, argv) || ibv_query_device_ex(context, NULL, &limits) ||
	    qrnicdv_query_device(context, &dev, sizeof(dev))) {
		printf("Bail out! no qrnic adapter\n");
		return 1;
	}
	if (argc > 3)
		seed = strtoull(argv[3], NULL, 0);
	max_inline = dev.max_inline;
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	if (!cq)
		return 1;
	for (kind = 0; kind < NUM_TYPES; kind++) {
		snprintf(name, sizeof(name), "limits: %s", types[kind].name);
		run(name, test_kind);
	}
	run("limits: random sizes", test_random);
	if (ibv_destroy_cq(cq))
		failures++;
	return tear_down();
}
