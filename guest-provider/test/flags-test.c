// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * flags-test.c: tests the creation flags of completion queues, queue pairs and
 * work queues, with one adapter. Prints TAP.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <unistd.h>

#include "test.h"

#define SOURCE 0x00abcdu
#define FRAME 100
#define TAG 0x2005
#define CQ_SIZE 32
#define WRITES 100

static const uint8_t group[6] = { 0x01, 0x00, 0x5e, 0x01, 0x02, 0x04 };

static struct ibv_qp *qp_with(struct pair *p, enum ibv_qp_type type,
			      uint32_t flags)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = p->send_cq, .recv_cq = p->recv_cq,
		.cap = { 16, 16, 1, 1, 0 }, .qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.pd = pd, .create_flags = flags, .source_qpn = SOURCE,
	};

	errno = 0;
	return ibv_create_qp_ex(context, &attr);
}

static void cqs_make(struct pair *p, enum ibv_qp_type type)
{
	*p = (struct pair){ .type = type };
	p->channel = ibv_create_comp_channel(context);
	p->send_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	p->recv_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(p->channel && p->send_cq && p->recv_cq);
}

/*
 * Writes three times as many CQEs as the CQ holds, while no thread polls. All
 * data must arrive.
 */
static void test_ignore_overrun(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = CQ_SIZE, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
	};
	struct ibv_qp_cap cap = { 128, 8, 1, 1, 0 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr state;
	struct ibv_sge sge;
	uint64_t end;
	struct pair p;
	int i;

	if (!(capabilities & QRNIC_CAP_CQ_IGNORE_OVERRUN)) {
		CHECK(!ibv_create_cq_ex(context, &attr) && errno == EOPNOTSUPP);
		NEED(false);
	}
	cqs_make(&p, IBV_QPT_RC);
	CHECK(!ibv_destroy_cq(p.send_cq));
	p.send_cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &attr));
	CHECK(p.send_cq && p.send_cq->cqe < WRITES / 3);
	p.qp[0] = make_qp(&p, &cap, 0);
	p.qp[1] = make_qp(&p, &cap, 0);
	CHECK(p.qp[0] && p.qp[1] && !pair_connect(&p));
	memset(buffer + HALF, 0, 8);
	for (i = 1; i <= WRITES; i++) {
		*(volatile uint64_t *)(buffer + 8 * i) = i;
		sge = sge_of(8 * i, 8);
		CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
	}
	end = now_ms() + SECONDS * 1000;
	while (*(volatile uint64_t *)(buffer + HALF) != WRITES)
		CHECK(now_ms() < end);
	CHECK(!ibv_query_qp(p.qp[0], &state, IBV_QP_STATE, &init));
	CHECK(state.qp_state == IBV_QPS_RTS);
	CHECK(!pair_free(&p));
}

static void test_source_qpn(void)
{
	struct ibv_ah_attr ah_attr = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 },
	};
	struct ibv_sge from = sge_of(0, 8), to = sge_of(HALF, 64);
	struct ibv_send_wr wr = {
		.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_wc wc;
	struct pair p;

	NEED(capabilities & QRNIC_CAP_UD);
	cqs_make(&p, IBV_QPT_UD);
	p.qp[0] = qp_with(&p, IBV_QPT_UD, IBV_QP_CREATE_SOURCE_QPN);
	if (!(capabilities & QRNIC_CAP_SOURCE_QPN)) {
		CHECK(!p.qp[0] && errno == EOPNOTSUPP && !pair_free(&p));
		NEED(false);
	}
	p.qp[1] = qp_with(&p, IBV_QPT_UD, 0);
	CHECK(p.qp[0] && p.qp[1] && !pair_connect(&p));
	CHECK(p.qp[0]->qp_num != SOURCE);
	wr.wr.ud.ah = ibv_create_ah(pd, &ah_attr);
	wr.wr.ud.remote_qpn = p.qp[1]->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	CHECK(wr.wr.ud.ah && !recv_one(p.qp[1], &to, 1, 1));
	CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
	CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
	CHECK(wc.src_qp == SOURCE);
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(wc.qp_num == p.qp[0]->qp_num);
	CHECK(!ibv_destroy_ah(wr.wr.ud.ah) && !pair_free(&p));
}

/* Computes the CRC-32 of IEEE Std 802.3, bit by bit. */
static uint32_t frame_check_sequence(const uint8_t *p, size_t length)
{
	uint32_t crc = UINT32_MAX;
	int bit;

	while (length--) {
		crc ^= *p++;
		for (bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
	}
	return ~crc;
}

static void raw_start(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	CHECK(!to_state(qp, IBV_QPS_RTR) && !to_state(qp, IBV_QPS_RTS));
}

static struct ibv_flow *group_rule(struct ibv_qp *qp)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule),
			  .num_of_specs = 1, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth) },
	};

	memcpy(rule.eth.val.dst_mac, group, 6);
	memset(rule.eth.mask.dst_mac, 0xff, 6);
	return ibv_create_flow(qp, &rule.attr);
}

/*
 * Sends a tagged frame to a queue pair with the flags, and checks the received
 * length.
 */
static void frame_through(uint32_t flags, uint32_t length)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = CQ_SIZE,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_CVLAN,
	};
	struct ibv_sge from = sge_of(0, FRAME), to = sge_of(HALF, length);
	struct ibv_send_wr wr = {
		.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_poll_cq_attr poll_attr = {};
	uint64_t end = now_ms() + SECONDS * 1000;
	struct ibv_flow *flow;
	struct ibv_cq_ex *cq;
	struct ibv_wc wc;
	struct pair p;

	cqs_make(&p, IBV_QPT_RAW_PACKET);
	CHECK(!ibv_destroy_cq(p.recv_cq));
	cq = ibv_create_cq_ex(context, &attr);
	CHECK(cq);
	p.recv_cq = ibv_cq_ex_to_cq(cq);
	p.qp[0] = qp_with(&p, IBV_QPT_RAW_PACKET, 0);
	p.qp[1] = qp_with(&p, IBV_QPT_RAW_PACKET, flags);
	CHECK(p.qp[0] && p.qp[1]);
	raw_start(p.qp[0]);
	raw_start(p.qp[1]);
	flow = group_rule(p.qp[1]);
	CHECK(flow);

	fill(0, FRAME, 5);
	memcpy(buffer, group, 6);
	buffer[6] = 2;
	memcpy(buffer + 12, &(uint16_t[]){ htons(0x8100), htons(TAG),
					   htons(0x88b5) }, 6);
	memset(buffer + HALF, 0, 2 * FRAME);
	CHECK(!recv_one(p.qp[1], &to, 1, 1));
	CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	while (ibv_start_poll(cq, &poll_attr))
		CHECK(now_ms() < end);
	CHECK(cq->status == IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_byte_len(cq) == length);
	CHECK(ibv_wc_read_cvlan(cq) ==
	      (flags & IBV_QP_CREATE_CVLAN_STRIPPING ? TAG : 0));
	ibv_end_poll(cq);
	CHECK(!memcmp(buffer, buffer + HALF, 12));
	CHECK(!ibv_destroy_flow(flow) && !pair_free(&p));
}

static void need_flag(uint64_t capability, uint32_t raw_cap, uint32_t flag)
{
	struct ibv_device_attr_ex attr;
	struct pair p;

	NEED(capabilities & QRNIC_CAP_FLOW);
	CHECK(!ibv_query_device_ex(context, NULL, &attr));
	CHECK(!!(attr.raw_packet_caps & raw_cap) ==
	      !!(capabilities & capability));
	if (!(capabilities & capability)) {
		cqs_make(&p, IBV_QPT_RAW_PACKET);
		CHECK(!qp_with(&p, IBV_QPT_RAW_PACKET, flag) &&
		      errno == EOPNOTSUPP && !pair_free(&p));
		NEED(false);
	}
}

static void test_cvlan_stripping(void)
{
	need_flag(QRNIC_CAP_ETH_VLAN, IBV_RAW_PACKET_CAP_CVLAN_STRIPPING,
		  IBV_QP_CREATE_CVLAN_STRIPPING);
	frame_through(0, FRAME);
	CHECK(!memcmp(buffer, buffer + HALF, FRAME));
	frame_through(IBV_QP_CREATE_CVLAN_STRIPPING, FRAME - 4);
	CHECK(!memcmp(buffer + 16, buffer + HALF + 12, FRAME - 16));
}

static void test_scatter_fcs(void)
{
	uint32_t fcs;

	need_flag(QRNIC_CAP_SCATTER_FCS, IBV_RAW_PACKET_CAP_SCATTER_FCS,
		  IBV_QP_CREATE_SCATTER_FCS);
	frame_through(IBV_QP_CREATE_SCATTER_FCS, FRAME + 4);
	CHECK(!memcmp(buffer, buffer + HALF, FRAME));
	memcpy(&fcs, buffer + HALF + FRAME, 4);
	CHECK(le32toh(fcs) == frame_check_sequence(buffer, FRAME));
}

#define QUEUES 4
#define FRAMES 64

/*
 * Fills in a UDP frame to the group, with the given host in its source address.
 */
static void udp_fill(uint8_t host)
{
	static const uint8_t ip[28] = {
		0x45, 0, 0, FRAME - 14, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 1, 0,
		230, 1, 2, 4, 0x03, 0xe8, 0x07, 0xd0, 0, FRAME - 34, 0, 0,
	};

	memset(buffer, host, FRAME);
	memcpy(buffer, group, 6);
	buffer[6] = 2;
	memcpy(buffer + 12, &(uint16_t){ htons(0x0800) }, 2);
	memcpy(buffer + 14, ip, sizeof(ip));
	buffer[14 + 15] = host;
}

static struct ibv_qp *spread_over(struct ibv_rwq_ind_table *table)
{
	uint8_t key[40];
	size_t i;

	for (i = 0; i < sizeof(key); i++)
		key[i] = 0x6d + i * 29;
	return ibv_create_qp_ex(context, &(struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_RAW_PACKET, .pd = pd, .rwq_ind_tbl = table,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE |
			     IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = {
			.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
			.rx_hash_key_len = sizeof(key), .rx_hash_key = key,
			.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4,
		},
	});
}

/*
 * Returns the number of listed queue pairs. An RSS queue pair has no number,
 * and must not hide others.
 */
static int listed_qps(void)
{
	FILE *list = popen("rdma resource show qp", "r");
	char line[512];
	int n = 0;

	CHECK(list);
	while (fgets(line, sizeof(line), list))
		n += !!strstr(line, "type RAW_PACKET");
	return pclose(list) ? -1 : n;
}

/*
 * Tests that frames are distributed by the hash of their addresses, and that
 * each source always uses the same queue.
 */
static void test_spreading(void)
{
	struct ibv_wq_attr step = {
		.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY,
	};
	struct ibv_wq_init_attr init = {
		.wq_type = IBV_WQT_RQ, .max_wr = FRAMES, .max_sge = 1, .pd = pd,
	};
	struct ibv_rwq_ind_table_init_attr attr = { .log_ind_tbl_size = 2 };
	struct ibv_sge from = sge_of(0, FRAME), to = sge_of(HALF, FRAME);
	struct ibv_send_wr wr = {
		.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_INIT };
	uint32_t taker[FRAMES / 2], taken[QUEUES] = {};
	struct ibv_rwq_ind_table *table;
	struct ibv_wq *wq[QUEUES];
	struct ibv_flow *flow;
	struct qrnicdv_qp shown;
	struct ibv_qp *rss;
	struct ibv_wc wc;
	struct pair p;
	int i, k;

	NEED(capabilities & QRNIC_CAP_RSS);
	cqs_make(&p, IBV_QPT_RAW_PACKET);
	p.qp[0] = qp_with(&p, IBV_QPT_RAW_PACKET, 0);
	CHECK(p.qp[0]);
	raw_start(p.qp[0]);
	init.cq = p.recv_cq;
	for (i = 0; i < QUEUES; i++) {
		wq[i] = ibv_create_wq(context, &init);
		CHECK(wq[i]);
		CHECK(ibv_post_wq_recv(wq[i], &recv, &bad_recv) == EINVAL);
		CHECK(!ibv_modify_wq(wq[i], &step));
		for (k = 0; k < FRAMES; k++) {
			recv.wr_id = i;
			CHECK(!ibv_post_wq_recv(wq[i], &recv, &bad_recv));
		}
		CHECK(ibv_post_wq_recv(wq[i], &recv, &bad_recv) == ENOMEM);
	}
	attr.ind_tbl = wq;
	table = ibv_create_rwq_ind_table(context, &attr);
	CHECK(table);
	rss = spread_over(table);
	CHECK(rss && !qrnicdv_query_qp(rss, &shown, sizeof(shown)));
	CHECK(shown.qpn == rss->qp_num && !shown.sq.ring && !shown.rq.ring);
	CHECK(ibv_modify_qp(rss, &state, IBV_QP_STATE) == EOPNOTSUPP);
	CHECK(listed_qps() >= 1);
	flow = group_rule(rss);
	CHECK(flow);
	for (i = 0; i < FRAMES; i++) {
		udp_fill(i % (FRAMES / 2));
		memset(buffer + HALF, 0, FRAME);
		CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
		CHECK(wc.byte_len == FRAME);
		CHECK(!memcmp(buffer, buffer + HALF, FRAME));
		CHECK(wc.wr_id < QUEUES && wc.qp_num == wq[wc.wr_id]->wq_num);
		taken[wc.wr_id]++;
		if (i < FRAMES / 2)
			taker[i] = wc.qp_num;
		else
			CHECK(taker[i - FRAMES / 2] == wc.qp_num);
	}
	for (i = 0; i < QUEUES; i++)
		CHECK(taken[i] && taken[i] < FRAMES);
	/* WQEs that are still posted must be flushed */
	step.wq_state = IBV_WQS_ERR;
	CHECK(!ibv_modify_wq(wq[0], &step));
	CHECK(poll_one(p.recv_cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 0);
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_qp(rss));
	CHECK(!ibv_destroy_rwq_ind_table(table));
	for (i = 0; i < QUEUES; i++)
		CHECK(!ibv_destroy_wq(wq[i]));
	CHECK(!ibv_poll_cq(p.recv_cq, 1, &wc) && !pair_free(&p));
}

/*
 * Tests an overrun of the CQ of two receive work queues: one is flushed, and
 * the other one gets the event.
 */
static void test_fatal(void)
{
	struct ibv_wq_attr step = {
		.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY,
	};
	struct ibv_wq_init_attr init = {
		.wq_type = IBV_WQT_RQ, .max_wr = FRAMES, .max_sge = 1, .pd = pd,
	};
	struct pollfd pfd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_sge to = sge_of(HALF, FRAME);
	struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad_recv;
	bool cq_error = false, wq_fatal = false;
	struct ibv_async_event event;
	struct ibv_wq *wq[2];
	int i;

	NEED(capabilities & QRNIC_CAP_RSS);
	init.cq = ibv_create_cq(context, FRAMES / 4, NULL, NULL, 0);
	CHECK(init.cq && init.cq->cqe < FRAMES);
	for (i = 0; i < 2; i++) {
		wq[i] = ibv_create_wq(context, &init);
		CHECK(wq[i] && !ibv_modify_wq(wq[i], &step));
	}
	for (i = 0; i < FRAMES; i++)
		CHECK(!ibv_post_wq_recv(wq[0], &recv, &bad_recv));
	step.wq_state = IBV_WQS_ERR;
	CHECK(!ibv_modify_wq(wq[0], &step));
	while (!cq_error || !wq_fatal) {
		CHECK(poll(&pfd, 1, patience_ms()) == 1);
		CHECK(!ibv_get_async_event(context, &event));
		ibv_ack_async_event(&event);
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			CHECK(!cq_error && event.element.cq == init.cq);
			cq_error = true;
		} else {
			CHECK(event.event_type == IBV_EVENT_WQ_FATAL);
			CHECK(!wq_fatal && event.element.wq == wq[1]);
			wq_fatal = true;
		}
	}
	for (i = 0; i < 2; i++)
		CHECK(!ibv_destroy_wq(wq[i]));
	CHECK(!ibv_destroy_cq(init.cq));
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	run("a CQ that ignores overruns", test_ignore_overrun);
	run("datagrams with another source QP number", test_source_qpn);
	run("VLAN tag of a frame in the completion", test_cvlan_stripping);
	run("frames with the frame check sequence", test_scatter_fcs);
	run("frames distributed over receive work queues", test_spreading);
	run("the event of a receive work queue", test_fatal);
	return tear_down();
}
