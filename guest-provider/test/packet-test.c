// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * packet-test.c: tests raw packet queue pairs and flow rules with one adapter,
 * because multicast frames of one queue pair also reach the rules of another.
 * Prints TAP.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <unistd.h>

#include "test.h"

#define ETH_HEADER 14
#define FRAME_MAX 1514

static const uint8_t group[6] = { 0x01, 0x00, 0x5e, 0x01, 0x02, 0x03 };
static const uint8_t station[6] = { 0x02, 0x00, 0x00, 0x00, 0x00, 0x42 };

/* A rule of up to four layers, one behind the other, as verbs requires */
struct rule {
	struct ibv_flow_attr attr;
	uint8_t specs[4 * sizeof(struct ibv_flow_spec)];
	size_t used;
};

static struct rule rule_of(enum ibv_flow_attr_type type)
{
	return (struct rule){
		.attr = { .type = type, .size = sizeof(struct ibv_flow_attr),
			  .port = 1 },
	};
}

static void rule_add(struct rule *rule, const void *spec, size_t size)
{
	memcpy(rule->specs + rule->used, spec, size);
	rule->used += size;
	rule->attr.size += size;
	rule->attr.num_of_specs++;
}

static void add_group(struct rule *rule, uint16_t ethertype)
{
	struct ibv_flow_spec_eth eth = {
		.type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth),
		.val.ether_type = htons(ethertype),
		.mask.ether_type = htons(ethertype ? 0xffff : 0),
	};

	memcpy(eth.val.dst_mac, group, 6);
	memset(eth.mask.dst_mac, 0xff, 6);
	rule_add(rule, &eth, sizeof(eth));
}

static void add_ipv4(struct rule *rule, const char *destination)
{
	struct ibv_flow_spec_ipv4_ext ipv4 = {
		.type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(ipv4),
		.val.dst_ip = inet_addr(destination),
		.mask.dst_ip = 0xffffffff,
	};

	rule_add(rule, &ipv4, sizeof(ipv4));
}

static void add_port(struct rule *rule, enum ibv_flow_spec_type type,
		     uint16_t port)
{
	struct ibv_flow_spec_tcp_udp l4 = {
		.type = type, .size = sizeof(l4),
		.val.dst_port = htons(port), .mask.dst_port = 0xffff,
	};

	rule_add(rule, &l4, sizeof(l4));
}

static struct ibv_flow *rule_make(struct ibv_qp *qp, struct rule *rule)
{
	struct {
		struct ibv_flow_attr attr;
		uint8_t specs[sizeof(rule->specs)];
	} packed = { .attr = rule->attr };

	memcpy(packed.specs, rule->specs, rule->used);
	errno = 0;
	return ibv_create_flow(qp, &packed.attr);
}

static int refusal(struct ibv_qp *qp, struct rule *rule)
{
	struct ibv_flow *flow = rule_make(qp, rule);

	if (!flow)
		return errno;
	ibv_destroy_flow(flow);
	return 0;
}

static void start(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	CHECK(!to_state(qp, IBV_QPS_RTR) && !to_state(qp, IBV_QPS_RTS));
}

static void raw_pair(struct pair *p, struct ibv_qp_cap *cap, uint64_t ops)
{
	NEED(capabilities & QRNIC_CAP_FLOW);
	*p = (struct pair){ .type = IBV_QPT_RAW_PACKET };
	CHECK(!pair_make_as(p, cap, ops));
	start(p->qp[0]);
	start(p->qp[1]);
}

static void frame_fill(size_t at, size_t length, uint32_t seed)
{
	fill(at, length, seed);
	memcpy(buffer + at, group, 6);
	memcpy(buffer + at + 6, station, 6);
	buffer[at + 12] = 0x88;
	buffer[at + 13] = 0xb5;
}

static int send_frame(struct ibv_qp *qp, struct ibv_sge *sge, int num_sge,
		      unsigned int flags, uint64_t wr_id)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = sge, .num_sge = num_sge,
		.opcode = IBV_WR_SEND,
		.send_flags = flags | IBV_SEND_SIGNALED,
	}, *bad = NULL;
	int err = ibv_post_send(qp, &wr, &bad);

	return err && bad != &wr ? -1 : err;
}

static void check_arrival(struct pair *p, size_t length, uint64_t wr_id,
			  unsigned int flags)
{
	struct ibv_wc wc;

	CHECK(poll_one(p->send_cq, &wc) == 1 && !wc.status);
	CHECK(wc.opcode == IBV_WC_SEND && wc.wr_id == wr_id);
	CHECK(poll_one(p->recv_cq, &wc) == 1 && !wc.status);
	CHECK(wc.opcode == IBV_WC_RECV && wc.wr_id == wr_id);
	CHECK(wc.qp_num == p->qp[1]->qp_num && wc.byte_len == length);
	CHECK(wc.wc_flags == flags);
}

/* Tests all lengths, with up to 30 segments, or inline if they are short. */
static void test_frames(void)
{
	bool can_inline = capabilities & QRNIC_CAP_INLINE_SEND;
	struct ibv_qp_cap cap = { 9, 9, 30, 1, can_inline ? 200 : 0 };
	struct ibv_sge sge[30], to = sge_of(HALF, 2048);
	struct rule rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_flow *flow;
	unsigned int flags;
	size_t length, at;
	struct pair p;
	int i, n, k;

	raw_pair(&p, &cap, 0);
	add_group(&rule, 0);
	flow = rule_make(p.qp[1], &rule);
	CHECK(flow);
	for (i = 0; i < 300; i++) {
		length = ETH_HEADER + i * (FRAME_MAX - ETH_HEADER) / 299;
		n = 1 + i % (int)cap.max_send_sge % 30;
		frame_fill(0, length, i);
		for (k = 0, at = 0; k < n; k++) {
			size_t piece = k == n - 1 ? length - at : length / n;

			sge[k] = sge_of(at, piece);
			at += piece;
		}
		memset(buffer + HALF, 0, 2048);
		flags = can_inline && length <= 200 && i % 2 ?
			IBV_SEND_INLINE : 0;
		CHECK(!recv_one(p.qp[1], &to, 1, i));
		CHECK(!send_frame(p.qp[0], sge, n, flags, i));
		check_arrival(&p, length, i, 0);
		CHECK(!memcmp(buffer, buffer + HALF, length));
	}
	CHECK(!ibv_destroy_flow(flow) && !pair_free(&p));
}

/* Tests frames of the extended interface, with segments or inline. */
static void test_extended(void)
{
	bool can_inline = capabilities & QRNIC_CAP_INLINE_SEND;
	struct ibv_qp_cap cap = { 8, 8, 2, 1, can_inline ? 128 : 0 };
	struct rule rule = rule_of(IBV_FLOW_ATTR_MC_DEFAULT);
	struct ibv_sge to = sge_of(HALF, 2048);
	struct ibv_qp_ex *qpx;
	struct ibv_flow *flow;
	struct pair p;
	int i;

	raw_pair(&p, &cap, IBV_QP_EX_WITH_SEND);
	flow = rule_make(p.qp[1], &rule);
	CHECK(flow);
	qpx = ibv_qp_to_qp_ex(p.qp[0]);
	for (i = 0; i < 100; i++) {
		frame_fill(0, 100, i);
		CHECK(!recv_one(p.qp[1], &to, 1, i));
		ibv_wr_start(qpx);
		qpx->wr_id = i;
		qpx->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(qpx);
		if (can_inline && i % 2)
			ibv_wr_set_inline_data(qpx, buffer, 100);
		else
			ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)buffer, 100);
		CHECK(!ibv_wr_complete(qpx));
		check_arrival(&p, 100, i, 0);
		CHECK(!memcmp(buffer, buffer + HALF, 100));
	}
	CHECK(!ibv_destroy_flow(flow) && !pair_free(&p));
}

/*
 * Fills in a UDP packet over IPv4 with 32 bytes, whose checksums are not yet
 * computed.
 */
static size_t packet_fill(void)
{
	static const uint8_t headers[28] = {
		0x45, 0, 0, 60, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 1, 1,
		230, 1, 2, 3, 0x03, 0xe8, 0x07, 0xd0, 0, 40, 0xab, 0xcd,
	};

	frame_fill(0, ETH_HEADER + 60, 7);
	buffer[12] = 0x08;
	buffer[13] = 0x00;
	memcpy(buffer + ETH_HEADER, headers, sizeof(headers));
	return ETH_HEADER + 60;
}

static void test_checksums(void)
{
	bool offload = capabilities & QRNIC_CAP_ETH_CSUM;
	struct rule rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_sge sge, to = sge_of(HALF, 2048);
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_device_attr_ex attr;
	struct ibv_qp_ex *qpx;
	struct ibv_flow *flow;
	struct pair p;
	size_t length;

	raw_pair(&p, &cap, IBV_QP_EX_WITH_SEND);
	CHECK(!ibv_query_device_ex(context, NULL, &attr));
	CHECK(!!(attr.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM) == offload);
	CHECK(!!(attr.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) ==
	      offload);
	/*
	 * The rule needs no Ethernet layer, because the IPv4 layer implies the
	 * EtherType
	 */
	add_ipv4(&rule, "230.1.2.3");
	add_port(&rule, IBV_FLOW_SPEC_UDP, 2000);
	flow = rule_make(p.qp[1], &rule);
	CHECK(flow);
	length = packet_fill();
	sge = sge_of(0, length);
	CHECK(!recv_one(p.qp[1], &to, 1, 1));
	CHECK(!send_frame(p.qp[0], &sge, 1, 0, 1));
	check_arrival(&p, length, 1, 0);
	qpx = ibv_qp_to_qp_ex(p.qp[0]);
	if (!offload) {
		CHECK(send_frame(p.qp[0], &sge, 1, IBV_SEND_IP_CSUM, 2) ==
		      EINVAL);
		ibv_wr_start(qpx);
		qpx->wr_flags = IBV_SEND_IP_CSUM;
		ibv_wr_send(qpx);
		CHECK(ibv_wr_complete(qpx) == EINVAL);
	} else {
		CHECK(!recv_one(p.qp[1], &to, 1, 2));
		CHECK(!send_frame(p.qp[0], &sge, 1, IBV_SEND_IP_CSUM, 2));
		check_arrival(&p, length, 2, IBV_WC_IP_CSUM_OK);
		CHECK(!recv_one(p.qp[1], &to, 1, 3));
		ibv_wr_start(qpx);
		qpx->wr_id = 3;
		qpx->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM;
		ibv_wr_send(qpx);
		ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)buffer, length);
		CHECK(!ibv_wr_complete(qpx));
		check_arrival(&p, length, 3, IBV_WC_IP_CSUM_OK);
	}
	CHECK(!ibv_destroy_flow(flow) && !pair_free(&p));
}

/*
 * Tests rejected rules: a layer contradicts the layer above it, is out of
 * order, or is not supported.
 */
static void test_layers(void)
{
	struct ibv_flow_spec_esp esp = {
		.type = IBV_FLOW_SPEC_ESP, .size = sizeof(esp),
		.val.spi = 1, .mask.spi = 0xffffffff,
	};
	struct ibv_flow_spec_ipv4_ext ipv4 = {
		.type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(ipv4),
	};
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_qp *qp;
	struct rule rule;
	struct pair p;

	raw_pair(&p, &cap, 0);
	qp = p.qp[0];
	rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	add_group(&rule, 0x86dd);
	add_ipv4(&rule, "10.0.0.1");
	CHECK(refusal(qp, &rule) == EINVAL);
	rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	add_group(&rule, 0);
	add_group(&rule, 0);
	CHECK(refusal(qp, &rule) == EINVAL);
	rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	add_port(&rule, IBV_FLOW_SPEC_UDP, 1);
	add_ipv4(&rule, "10.0.0.1");
	CHECK(refusal(qp, &rule) == EINVAL);
	rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	ipv4.val.proto = 17;
	ipv4.mask.proto = 0xff;
	rule_add(&rule, &ipv4, sizeof(ipv4));
	add_port(&rule, IBV_FLOW_SPEC_TCP, 1);
	CHECK(refusal(qp, &rule) == EINVAL);
	rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	ipv4.mask.flags = 2;
	rule_add(&rule, &ipv4, sizeof(ipv4));
	CHECK(refusal(qp, &rule) == EOPNOTSUPP);
	rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	rule_add(&rule, &esp, sizeof(esp));
	CHECK(refusal(qp, &rule) == EOPNOTSUPP);
	/* This rule is valid */
	rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	add_group(&rule, 0x0800);
	ipv4.mask.flags = 0;
	rule_add(&rule, &ipv4, sizeof(ipv4));
	add_port(&rule, IBV_FLOW_SPEC_UDP, 1);
	CHECK(!refusal(qp, &rule));
	CHECK(!pair_free(&p));
}

static void test_refusals(void)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { 8, 1, 0 } };
	struct ibv_sge sge = sge_of(0, 64), to = sge_of(HALF, 64);
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM }, *bad;
	struct rule rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct pair p, connected;
	struct ibv_flow *flow;

	raw_pair(&p, &cap, 0);
	CHECK(!make_qp(&p, &cap, IBV_QP_EX_WITH_SEND_WITH_IMM));
	CHECK(errno == EOPNOTSUPP);
	if (capabilities & QRNIC_CAP_SRQ) {
		p.srq = ibv_create_srq(pd, &srq_attr);
		CHECK(p.srq);
		CHECK(!make_qp(&p, &cap, 0) && errno == EOPNOTSUPP);
		CHECK(!ibv_destroy_srq(p.srq));
		p.srq = NULL;
	}
	CHECK(ibv_post_send(p.qp[0], &wr, &bad) == EINVAL && bad == &wr);
	CHECK(write_one(p.qp[0], &sge, 1, 0, 0) == EINVAL);
	CHECK(!recv_one(p.qp[0], &to, 1, 0));

	add_group(&rule, 0);
	CHECK(!pair_make(&connected, &cap, 0));
	CHECK(refusal(connected.qp[0], &rule) == EINVAL);
	CHECK(!pair_free(&connected));
	rule.attr.port = 2;
	CHECK(refusal(p.qp[0], &rule) == EINVAL);
	rule.attr.port = 1;
	rule.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	CHECK(refusal(p.qp[0], &rule) == EOPNOTSUPP);
	rule.attr.flags = 0;
	rule.attr.type = IBV_FLOW_ATTR_SNIFFER;
	CHECK(refusal(p.qp[0], &rule) == EINVAL);
	rule.attr.type = IBV_FLOW_ATTR_SNIFFER + 1;
	CHECK(refusal(p.qp[0], &rule) == EOPNOTSUPP);
	/* A queue pair cannot be destroyed before its rules */
	rule.attr.type = IBV_FLOW_ATTR_NORMAL;
	flow = rule_make(p.qp[0], &rule);
	CHECK(flow);
	CHECK(ibv_destroy_qp(p.qp[0]) == EBUSY);
	CHECK(!ibv_destroy_flow(flow) && !pair_free(&p));
}

/*
 * Tests that rules run out, and can be created again after others are
 * destroyed.
 */
static void test_many(void)
{
	static struct ibv_flow *flow[65536];
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct rule rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	int round, n, first = 0;
	struct pair p;

	raw_pair(&p, &cap, 0);
	add_group(&rule, 0x88b5);
	for (round = 0; round < 2; round++) {
		for (n = 0; n < 65536; n++) {
			rule.attr.priority = n;
			flow[n] = rule_make(p.qp[0], &rule);
			if (!flow[n])
				break;
		}
		CHECK(n == 65536 || errno == ENOMEM);
		CHECK(n && (!round || n == first));
		first = n;
		while (n--)
			CHECK(!ibv_destroy_flow(flow[n]));
	}
	CHECK(!pair_free(&p));
}

/*
 * Tests that a sniffer receives a packet that never leaves the adapter, and its
 * response.
 */
static void test_sniffer(void)
{
	struct ibv_sge sge = sge_of(0, 256), to = sge_of(BUFFER_SIZE / 4, 4096);
	struct rule rule = rule_of(IBV_FLOW_ATTR_SNIFFER);
	struct ibv_qp_cap cap = { 8, 64, 1, 1, 0 };
	struct pair p, connected;
	struct ibv_flow *flow;
	bool seen = false;
	struct ibv_wc wc;
	int i;

	raw_pair(&p, &cap, 0);
	for (i = 0; i < 64; i++) {
		to.addr = (uintptr_t)buffer + BUFFER_SIZE / 4 + i * 2048;
		to.length = 2048;
		CHECK(!recv_one(p.qp[1], &to, 1, i));
	}
	flow = rule_make(p.qp[1], &rule);
	CHECK(flow);
	cap = (struct ibv_qp_cap){ 8, 8, 1, 1, 0 };
	CHECK(!pair_make(&connected, &cap, 0) && !pair_connect(&connected));
	fill(0, 256, 99);
	CHECK(!write_one(connected.qp[0], &sge, 1, IBV_SEND_SIGNALED, 1));
	CHECK(poll_one(connected.send_cq, &wc) == 1 && !wc.status);
	CHECK(!memcmp(buffer, buffer + HALF, 256));
	/*
	 * Other traffic may arrive between, so the test searches for the frames
	 */
	while (!seen && poll_one(p.recv_cq, &wc) == 1) {
		CHECK(!wc.status);
		seen = memmem(buffer + BUFFER_SIZE / 4 + wc.wr_id * 2048,
			      wc.byte_len, buffer, 256);
	}
	CHECK(seen);
	CHECK(!ibv_destroy_flow(flow));
	CHECK(!pair_free(&connected) && !pair_free(&p));
}

/*
 * Tests that frames need a privilege, because a rule can receive frames of all
 * users.
 */
static void test_rights(void)
{
	struct rule rule = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	int rule_err, qp_err = 0;
	struct ibv_qp *qp;
	struct pair p;

	raw_pair(&p, &cap, 0);
	add_group(&rule, 0);
	CHECK(!seteuid(65534));
	rule_err = refusal(p.qp[0], &rule);
	qp = make_qp(&p, &cap, 0);
	if (!qp)
		qp_err = errno;
	CHECK(!seteuid(0));
	CHECK(rule_err == EPERM && qp_err == EPERM);
	CHECK(!pair_free(&p));
}

static void test_lacks(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_device_attr attr;
	struct pair p, raw;

	CHECK(!ibv_query_device(context, &attr));
	CHECK(!!(attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING) ==
	      !!(capabilities & QRNIC_CAP_FLOW));
	if (capabilities & QRNIC_CAP_FLOW)
		return;
	CHECK(!attr.max_raw_ethy_qp);
	CHECK(!pair_make(&p, &cap, 0));
	raw = p;
	raw.type = IBV_QPT_RAW_PACKET;
	CHECK(!make_qp(&raw, &cap, 0) && errno == EOPNOTSUPP);
	CHECK(!pair_free(&p));
}

static void add_count(struct rule *rule, struct ibv_counters *counters)
{
	struct ibv_flow_spec_counter_action count = {
		.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(count),
		.counters = counters,
	};

	rule_add(rule, &count, sizeof(count));
}

static int attach(struct ibv_counters *counters, uint32_t index,
		  enum ibv_counter_description what)
{
	struct ibv_counter_attach_attr attr = {
		.counter_desc = what, .index = index,
	};

	return ibv_attach_counters_point_flow(counters, &attr, NULL);
}

/* Sends frames with an EtherType, and waits for each completion. */
static uint64_t send_frames(struct pair *p, uint16_t ethertype, int count,
			    size_t length)
{
	struct ibv_sge sge = sge_of(0, length);
	struct ibv_wc wc;
	int i;

	frame_fill(0, length, ethertype);
	buffer[12] = ethertype >> 8;
	buffer[13] = ethertype;
	for (i = 0; i < count; i++) {
		CHECK(!send_frame(p->qp[0], &sge, 1, 0, i));
		CHECK(poll_one(p->send_cq, &wc) == 1 && !wc.status);
	}
	return count * length;
}

static void check_values(struct ibv_counters *counters, const uint64_t *wanted,
			 uint32_t number)
{
	uint64_t values[8];
	uint32_t i;

	memset(values, 0xff, sizeof(values));
	CHECK(!ibv_read_counters(counters, values, number, 0));
	for (i = 0; i < number; i++) {
		if (values[i] != wanted[i])
			printf("# value %u is %llu, not %llu\n", i,
			       (unsigned long long)values[i],
			       (unsigned long long)wanted[i]);
		CHECK(values[i] == wanted[i]);
	}
}

/*
 * Tests counters: two rules share one set, a third rule has its own, and some
 * frames match no rule. Frames without a receive WQE are counted, too.
 */
static void test_counters(void)
{
	struct ibv_counters_init_attr init = {};
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge to = sge_of(HALF, 2048);
	struct ibv_counters *two, *one;
	struct ibv_flow *flow[3];
	uint64_t values[4] = {}, b5, b6, b7;
	struct rule rule;
	struct ibv_wc wc;
	struct pair p;
	int i;

	NEED(capabilities & QRNIC_CAP_COUNTER_SETS);
	raw_pair(&p, &cap, 0);
	two = ibv_create_counters(context, &init);
	one = ibv_create_counters(context, &init);
	CHECK(two && one);
	/*
	 * The points have bytes before packets, one value twice, and two values
	 * at one index
	 */
	CHECK(!attach(two, 0, IBV_COUNTER_BYTES));
	CHECK(!attach(two, 2, IBV_COUNTER_PACKETS));
	CHECK(!attach(two, 3, IBV_COUNTER_PACKETS));
	CHECK(!attach(one, 0, IBV_COUNTER_PACKETS));
	CHECK(!attach(one, 0, IBV_COUNTER_BYTES));
	CHECK(attach(one, 1, IBV_COUNTER_BYTES + 1) == EOPNOTSUPP);
	/* No rule uses the counters yet */
	CHECK(ibv_read_counters(two, values, 4, 0) == EINVAL);

	for (i = 0; i < 3; i++) {
		rule = rule_of(IBV_FLOW_ATTR_NORMAL);
		add_group(&rule, 0x88b5 + i);
		add_count(&rule, i == 2 ? one : two);
		flow[i] = rule_make(p.qp[1], &rule);
		CHECK(flow[i]);
	}
	check_values(two, values, 4);
	CHECK(attach(two, 1, IBV_COUNTER_PACKETS) == EBUSY);
	CHECK(ibv_read_counters(two, values, 3, 0) == EINVAL);
	CHECK(ibv_destroy_counters(two) == EBUSY);
	add_count(&rule, one);
	CHECK(refusal(p.qp[1], &rule) == EINVAL);

	for (i = 0; i < 5; i++)
		CHECK(!recv_one(p.qp[1], &to, 1, i));
	b5 = send_frames(&p, 0x88b5, 3, 60);
	b6 = send_frames(&p, 0x88b6, 7, 1514);
	b7 = send_frames(&p, 0x88b7, 4, 200);
	send_frames(&p, 0x88b8, 2, 100);
	for (i = 0; i < 5; i++)
		CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
	CHECK(!ibv_poll_cq(p.recv_cq, 1, &wc));
	values[0] = b5 + b6;
	values[2] = values[3] = 10;
	check_values(two, values, 4);
	values[0] = b7 + 4;
	values[1] = 0;
	check_values(one, values, 2);

	/*
	 * A destroyed rule keeps its counts while another rule uses the
	 * counters
	 */
	CHECK(!ibv_destroy_flow(flow[0]));
	send_frames(&p, 0x88b5, 3, 60);
	values[0] = b5 + b6 + send_frames(&p, 0x88b6, 1, 99);
	values[2] = values[3] = 11;
	check_values(two, values, 4);
	CHECK(!ibv_destroy_flow(flow[1]) && !ibv_destroy_flow(flow[2]));
	CHECK(!attach(one, 1, IBV_COUNTER_PACKETS));
	CHECK(!ibv_destroy_counters(one) && !ibv_destroy_counters(two));
	CHECK(!pair_free(&p));
}

/* Tests that rules without layers also count. */
static void test_counters_of_sniffers(void)
{
	struct rule rule = rule_of(IBV_FLOW_ATTR_SNIFFER);
	struct ibv_counters_init_attr init = {};
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_counters *counters;
	struct ibv_flow *flow;
	uint64_t values[2];
	struct pair p;

	NEED(capabilities & QRNIC_CAP_COUNTER_SETS);
	raw_pair(&p, &cap, 0);
	counters = ibv_create_counters(context, &init);
	CHECK(counters && !attach(counters, 0, IBV_COUNTER_PACKETS));
	CHECK(!attach(counters, 1, IBV_COUNTER_BYTES));
	add_count(&rule, counters);
	flow = rule_make(p.qp[1], &rule);
	CHECK(flow);
	send_frames(&p, 0x88b5, 5, 500);
	/* Other processes may send, too, so the counts are only lower limits */
	CHECK(!ibv_read_counters(counters, values, 2, 0));
	CHECK(values[0] >= 5 && values[1] >= 2500);
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_counters(counters));
	CHECK(!pair_free(&p));
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	run("frames", test_frames);
	run("frames by the extended interface", test_extended);
	run("checksums of frames", test_checksums);
	run("layers of a rule", test_layers);
	run("invalid calls of raw packet queue pairs", test_refusals);
	run("many rules", test_many);
	run("a sniffer", test_sniffer);
	run("counters of rules", test_counters);
	run("counters of sniffers", test_counters_of_sniffers);
	run("privilege for raw packets", test_rights);
	run("an adapter without flow rules", test_lacks);
	return tear_down();
}
