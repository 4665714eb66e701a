// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * ece-test.c: tests the options of connections, which both ends agree on by
 * enhanced connection establishment (ECE): offers, answers, and queue pairs
 * without options. The test needs one adapter and prints TAP.
 */
#include "test.h"

static struct ibv_qp_cap cap = { 64, 64, 1, 1, 0 };

/* Returns the options of the adapter. */
static uint32_t known(void)
{
	return (capabilities & QRNIC_CAP_SELECTIVE_REPEAT ?
			QRNIC_QPO_SELECTIVE_REPEAT : 0) |
	       (capabilities & QRNIC_CAP_ADAPTIVE_ROUTING ?
			QRNIC_QPO_ADAPTIVE_ROUTING : 0);
}

/*
 * Returns the options that this end must request itself. All other options are
 * accepted if the peer requests them.
 */
static uint32_t agreed_only(void)
{
	return known() & QRNIC_QPO_ADAPTIVE_ROUTING;
}

/* Replaces the queue pair of the pair by one with these options. */
static struct ibv_qp *make_with(struct pair *p, uint32_t options)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_OPTIONS,
		.options = options,
	};
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = p->send_cq,
		.recv_cq = p->recv_cq,
		.cap = cap,
		.qp_type = p->type ? p->type : IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};

	return qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));
}

static void replace(struct pair *p, unsigned int i, uint32_t options)
{
	CHECK(!ibv_destroy_qp(p->qp[i]));
	p->qp[i] = make_with(p, options);
	CHECK(p->qp[i]);
}

static void expect(struct ibv_qp *qp, uint32_t options)
{
	struct ibv_ece ece = { .comp_mask = ~0u };

	CHECK(!ibv_query_ece(qp, &ece));
	CHECK(ece.vendor_id == QRNIC_ECE_VENDOR_ID);
	CHECK(ece.options == options);
	CHECK(!ece.comp_mask);
}

static void set(struct ibv_qp *qp, uint32_t vendor, uint32_t options)
{
	struct ibv_ece ece = { .vendor_id = vendor, .options = options };

	CHECK(!ibv_set_ece(qp, &ece));
}

/*
 * Tests an offer: a queue pair accepts the options that this end allows. From
 * an offer of another vendor it accepts none.
 */
static void test_offer(void)
{
	struct ibv_ece odd = {
		.vendor_id = QRNIC_ECE_VENDOR_ID,
		.comp_mask = 1,
	};
	struct pair p = {};

	NEED(known());
	CHECK(!pair_make(&p, &cap, 0));
	expect(p.qp[0], 0);
	set(p.qp[0], QRNIC_ECE_VENDOR_ID, ~0u);
	expect(p.qp[0], known() & ~agreed_only());
	replace(&p, 0, known());
	expect(p.qp[0], known());
	set(p.qp[0], QRNIC_ECE_VENDOR_ID, 0);
	expect(p.qp[0], 0);
	set(p.qp[0], QRNIC_ECE_VENDOR_ID, ~0u);
	expect(p.qp[0], known());
	CHECK(ibv_set_ece(p.qp[0], &odd) == EINVAL);
	expect(p.qp[0], known());
	set(p.qp[0], 0x15b3, ~0u);
	expect(p.qp[0], 0);
	set(p.qp[0], QRNIC_ECE_VENDOR_ID, ~0u);
	set(p.qp[0], 1, 0);
	expect(p.qp[0], 0);
	CHECK(!pair_free(&p));
}

/* Tests that options end with the connection. */
static void test_reset(void)
{
	struct ibv_ece late = { .vendor_id = QRNIC_ECE_VENDOR_ID };
	struct pair p = {};

	NEED(known());
	CHECK(!pair_make(&p, &cap, 0));
	replace(&p, 0, known());
	set(p.qp[0], QRNIC_ECE_VENDOR_ID, 0);
	CHECK(!to_init(p.qp[1]));
	set(p.qp[1], QRNIC_ECE_VENDOR_ID, known());
	CHECK(!to_init(p.qp[0]) && !to_rtr(p.qp[0], p.qp[1]->qp_num));
	/* The options are fixed from RTR on, so these calls fail */
	CHECK(ibv_set_ece(p.qp[0], &late) == EINVAL);
	CHECK(!to_rtr(p.qp[1], p.qp[0]->qp_num));
	CHECK(!to_rts(p.qp[0]) && !to_rts(p.qp[1]));
	CHECK(ibv_set_ece(p.qp[1], &late) == EINVAL);
	CHECK(!to_state(p.qp[0], IBV_QPS_ERR));
	CHECK(ibv_set_ece(p.qp[0], &late) == EINVAL);
	expect(p.qp[0], 0);
	expect(p.qp[1], known() & ~agreed_only());
	for (unsigned int i = 0; i < 2; i++)
		CHECK(!to_state(p.qp[i], IBV_QPS_RESET));
	expect(p.qp[0], known());
	expect(p.qp[1], 0);
	CHECK(!pair_free(&p));
}

/* Tests options at creation: both programs set them, and exchange none. */
static void test_attributes(void)
{
	struct ibv_sge sge = sge_of(0, 8192);
	struct pair p = {};
	struct ibv_wc wc;

	NEED(known());
	CHECK(!pair_make(&p, &cap, 0));
	replace(&p, 0, known());
	replace(&p, 1, known());
	fill(0, HALF, 99);
	CHECK(!pair_connect(&p));
	CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, 0));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(!memcmp(buffer, buffer + HALF, 8192));
	CHECK(!make_with(&p, ~known()) && errno == EOPNOTSUPP);
	CHECK(!make_with(&p, QRNIC_QPO_INTRODUCE) && errno == EOPNOTSUPP);
	p.type = IBV_QPT_UC;
	CHECK(!make_with(&p, known()) && errno == EOPNOTSUPP);
	CHECK(!pair_free(&p));
}

/*
 * Tests queue pairs without options: other types, and adapters without options.
 */
static void test_none(void)
{
	struct ibv_ece ece = { .vendor_id = QRNIC_ECE_VENDOR_ID };
	struct pair p = {};

	if (known())
		p.type = IBV_QPT_UC;
	NEED(!p.type || capabilities & QRNIC_CAP_UC);
	CHECK(!pair_make_as(&p, &cap, 0));
	CHECK(ibv_query_ece(p.qp[0], &ece) == EOPNOTSUPP);
	CHECK(ibv_set_ece(p.qp[0], &ece) == EOPNOTSUPP);
	CHECK(!pair_free(&p));
}

/*
 * Tests connections whose ends have these options, which may differ. Data must
 * arrive, and each end must report its options.
 */
static void connection(uint32_t first, uint32_t second)
{
	const uint32_t options[] = { first, second };
	struct ibv_sge sge = sge_of(0, 8192);
	struct pair p = {};
	struct ibv_wc wc;

	fill(0, HALF, first << 4 | second);
	memset(buffer + HALF, 0, 8192);
	CHECK(!pair_make(&p, &cap, 0));
	for (unsigned int i = 0; i < 2; i++) {
		replace(&p, i, agreed_only());
		set(p.qp[i], QRNIC_ECE_VENDOR_ID, options[i]);
	}
	CHECK(!pair_connect(&p));
	CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, 0));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(!memcmp(buffer, buffer + HALF, 8192));
	for (unsigned int i = 0; i < 2; i++)
		expect(p.qp[i], options[i]);
	CHECK(!pair_free(&p));
}

static void test_connections(void)
{
	NEED(known());
	for (uint32_t first = 0; first <= known(); first++)
		for (uint32_t second = 0; second <= known(); second++)
			if (!((first | second) & ~known()))
				connection(first, second);
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	run("offered and accepted options", test_offer);
	run("options after RESET", test_reset);
	run("options at creation", test_attributes);
	run("queue pairs without options", test_none);
	run("connections with all options at each end",
	    test_connections);
	return tear_down();
}
