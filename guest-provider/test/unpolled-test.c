// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * unpolled-test.c: destroys or resets queue pairs of each type while their
 * completions are in the CQ, with one CQ for both queues and with two.
 * Afterwards the CQs must be empty, and each receive WQE of those completions
 * must be free. All queue pairs must work again. The job runs the program
 * twice: alone, and with the library under AddressSanitizer. Prints TAP.
 */
#include <fcntl.h>

#include "test.h"

#define MESSAGES 24u
#define LENGTH 64u
#define SLOT 512u
/*
 * Number of receive WQEs. The library rounds it up to a power of two, minus one
 * for an SRQ.
 */
#define RECEIVES 31u
#define KEY 0x0123456789abcdefull

struct kind {
	const char *name;
	enum ibv_qp_type type;
	bool srq;
	uint64_t capability;
};

static const struct kind kinds[] = {
	{ "RC", IBV_QPT_RC, false, 0 },
	{ "RC with SRQ", IBV_QPT_RC, true, QRNIC_CAP_SRQ },
	{ "UC", IBV_QPT_UC, false, QRNIC_CAP_UC },
	{ "UC with SRQ", IBV_QPT_UC, true, QRNIC_CAP_UC | QRNIC_CAP_SRQ },
	{ "UD", IBV_QPT_UD, false, QRNIC_CAP_UD },
	{ "UD with SRQ", IBV_QPT_UD, true, QRNIC_CAP_UD | QRNIC_CAP_SRQ },
	{ "raw packets", IBV_QPT_RAW_PACKET, false, QRNIC_CAP_FLOW },
	{ "XRC", IBV_QPT_XRC_SEND, true, QRNIC_CAP_XRC },
	{ "dynamic connections", IBV_QPT_DRIVER, true, QRNIC_CAP_DYNAMIC },
};

#define NUM_KINDS (sizeof(kinds) / sizeof(*kinds))

/* A sender, a receiver, and the objects that outlive them */
static const struct kind *kind;
static struct pair ends;
static struct ibv_ah *ah;
static struct ibv_xrcd *xrcd;
static struct ibv_flow *flow;
static uint32_t receives, next_id;

#define SENDER (ends.qp[0])
#define RECEIVER (ends.qp[1])

static int dynamic_modify(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = remote_rights(),
		.path_mtu = IBV_MTU_1024,
		.max_dest_rd_atomic = rd_atomic,
		.max_rd_atomic = rd_atomic,
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
}

static void dynamic_start(void)
{
	const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	CHECK(!dynamic_modify(RECEIVER, IBV_QPS_INIT, init | IBV_QP_ACCESS_FLAGS));
	CHECK(!dynamic_modify(RECEIVER, IBV_QPS_RTR, IBV_QP_PATH_MTU |
			      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	CHECK(!dynamic_modify(SENDER, IBV_QPS_INIT, init));
	CHECK(!dynamic_modify(SENDER, IBV_QPS_RTR, IBV_QP_PATH_MTU));
	CHECK(!dynamic_modify(SENDER, IBV_QPS_RTS, IBV_QP_TIMEOUT |
			      IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			      IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct ibv_qp *dynamic_create(bool target)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_DC,
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};

	if (target) {
		dv.dc.dc_type = QRNICDV_DCTYPE_DCT;
		dv.dc.responders = 4;
		dv.dc.dct_access_key = KEY;
		attr.recv_cq = ends.recv_cq;
		attr.srq = ends.srq;
	} else {
		dv.dc.dc_type = QRNICDV_DCTYPE_DCI;
		dv.dc.idle = 10;
		attr.send_cq = ends.send_cq;
		attr.cap = (struct ibv_qp_cap){ .max_send_wr = RECEIVES,
						.max_send_sge = 1 };
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
	}
	return qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));
}

static struct ibv_qp *create(bool receiver)
{
	struct ibv_qp_cap cap = { RECEIVES, RECEIVES, 1, 1, 0 };
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};

	if (kind->type == IBV_QPT_DRIVER)
		return dynamic_create(receiver);
	if (kind->type == IBV_QPT_XRC_SEND && receiver)
		return ibv_create_qp_ex(context, &target);
	return make_qp(&ends, &cap, 0);
}

static void raw_start(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	CHECK(!to_state(qp, IBV_QPS_RTR) && !to_state(qp, IBV_QPS_RTS));
}

/*
 * Fills in a frame to a multicast address, because the receiver of the same
 * adapter also gets it.
 */
static void frame_fill(uint8_t *frame)
{
	static const uint8_t head[14] = {
		0x01, 0x00, 0x5e, 0x01, 0x02, 0x03, 0x02, 0, 0, 0, 0, 0x42,
		0x88, 0xb5,
	};

	memcpy(frame, head, sizeof(head));
}

static void flow_make(void)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule),
			  .num_of_specs = 1, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth) },
	};

	memcpy(rule.eth.val.dst_mac, buffer, 6);
	memset(rule.eth.mask.dst_mac, 0xff, 6);
	flow = ibv_create_flow(RECEIVER, &rule.attr);
	CHECK(flow);
}

/* Creates the missing queue pairs and moves both to RTS. */
static void ends_start(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (!ends.qp[i])
			ends.qp[i] = create(i);
		CHECK(ends.qp[i]);
	}
	switch (kind->type) {
	case IBV_QPT_DRIVER:
		dynamic_start();
		break;
	case IBV_QPT_RAW_PACKET:
		raw_start(SENDER);
		raw_start(RECEIVER);
		frame_fill(buffer);
		flow_make();
		break;
	case IBV_QPT_XRC_SEND:
		CHECK(!to_init(RECEIVER) && !to_init(SENDER));
		CHECK(!to_rtr(RECEIVER, SENDER->qp_num));
		CHECK(!to_rtr(SENDER, RECEIVER->qp_num) && !to_rts(SENDER));
		break;
	default:
		CHECK(!pair_connect(&ends));
	}
}

static int receive_post(void)
{
	struct ibv_sge sge = sge_of(HALF + next_id % RECEIVES * SLOT, SLOT);
	struct ibv_recv_wr wr = { next_id, NULL, &sge, 1 }, *bad;
	int err;

	err = ends.srq ? ibv_post_srq_recv(ends.srq, &wr, &bad) :
			 ibv_post_recv(RECEIVER, &wr, &bad);
	if (!err)
		next_id++;
	return err;
}

/*
 * Posts as many receive WQEs as the queue has space for, and returns their
 * number.
 */
static uint32_t receives_post(void)
{
	uint32_t posted = 0;
	int err;

	while (!(err = receive_post()))
		posted++;
	CHECK(err == ENOMEM);
	return posted;
}

static int dynamic_send(struct ibv_sge *sge)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(SENDER);

	ibv_wr_start(ex);
	ex->wr_id = 0;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	qrnicdv_wr_set_dc_addr(ex, ah, RECEIVER->qp_num, KEY);
	ibv_wr_set_sge(ex, sge->lkey, sge->addr, sge->length);
	return ibv_wr_complete(ex);
}

static int send_one(void)
{
	struct ibv_sge sge = sge_of(0, LENGTH);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	uint32_t srqn;

	switch (kind->type) {
	case IBV_QPT_DRIVER:
		return dynamic_send(&sge);
	case IBV_QPT_UD:
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = RECEIVER->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
		break;
	case IBV_QPT_XRC_SEND:
		CHECK(!ibv_get_srq_num(ends.srq, &srqn));
		wr.qp_type.xrc.remote_srqn = srqn;
		break;
	default:
		break;
	}
	return ibv_post_send(SENDER, &wr, &bad);
}

static void messages_send(uint32_t messages)
{
	uint32_t i;

	for (i = 0; i < messages; i++)
		CHECK(!send_one());
}

/*
 * Waits for the completions of a number of messages, and leaves them in the
 * CQs.
 */
static void messages_wait(uint32_t messages)
{
	if (ends.send_cq == ends.recv_cq) {
		completions_wait(ends.recv_cq, 2 * messages);
		return;
	}
	completions_wait(ends.send_cq, messages);
	completions_wait(ends.recv_cq, messages);
}

/* Polls one completion; returns 1 if it is a receive. */
static uint32_t poll_receive(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	CHECK(poll_one(cq, &wc) == 1 && !wc.status);
	return !!(wc.opcode & IBV_WC_RECV);
}

/* Polls all completions of the receive CQ. No receive may be seen twice. */
static uint32_t receives_poll(uint32_t *sent)
{
	bool seen[8 * RECEIVES] = {};
	uint32_t received = 0;
	struct ibv_wc wc;

	*sent = 0;
	while (ibv_poll_cq(ends.recv_cq, 1, &wc) == 1) {
		CHECK(!wc.status);
		if (!(wc.opcode & IBV_WC_RECV)) {
			(*sent)++;
			continue;
		}
		CHECK(wc.wr_id < next_id && !seen[wc.wr_id]);
		seen[wc.wr_id] = true;
		received++;
	}
	return received;
}

static void srq_make(void)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = RECEIVES, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd,
	};

	if (kind->type == IBV_QPT_XRC_SEND) {
		attr.srq_type = IBV_SRQT_XRC;
		attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD |
				  IBV_SRQ_INIT_ATTR_CQ;
		attr.xrcd = xrcd;
		attr.cq = ends.recv_cq;
	}
	ends.srq = ibv_create_srq_ex(context, &attr);
	CHECK(ends.srq);
}

static void ends_make(bool one_cq)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_ah_attr address = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 },
	};

	memset(&ends, 0, sizeof(ends));
	next_id = 0;
	ends.type = kind->type;
	ends.recv_cq = ibv_create_cq(context, 256, NULL, NULL, 0);
	ends.send_cq = one_cq ? ends.recv_cq :
				ibv_create_cq(context, 256, NULL, NULL, 0);
	CHECK(ends.recv_cq && ends.send_cq);
	if (kind->type == IBV_QPT_XRC_SEND) {
		xrcd = ibv_open_xrcd(context, &domain);
		CHECK(xrcd);
	}
	if (kind->srq)
		srq_make();
	ah = ibv_create_ah(pd, &address);
	CHECK(ah);
}

static void ends_stop(bool destroy)
{
	int i;

	if (flow)
		CHECK(!ibv_destroy_flow(flow));
	flow = NULL;
	for (i = 0; i < 2; i++) {
		if (!destroy) {
			CHECK(!to_state(ends.qp[i], IBV_QPS_RESET));
			continue;
		}
		CHECK(!ibv_destroy_qp(ends.qp[i]));
		ends.qp[i] = NULL;
	}
}

static void ends_free(void)
{
	ends_stop(true);
	CHECK(!ibv_destroy_ah(ah));
	if (ends.srq)
		CHECK(!ibv_destroy_srq(ends.srq));
	if (xrcd)
		CHECK(!ibv_close_xrcd(xrcd));
	xrcd = NULL;
	if (ends.send_cq != ends.recv_cq)
		CHECK(!ibv_destroy_cq(ends.send_cq));
	CHECK(!ibv_destroy_cq(ends.recv_cq));
}

static void unpolled(bool one_cq, bool destroy)
{
	uint32_t polled, sent;
	struct ibv_wc wc;

	ends_make(one_cq);
	ends_start();
	receives = receives_post();
	CHECK(receives >= RECEIVES);
	messages_send(MESSAGES);
	messages_wait(MESSAGES);
	/* One completion is polled, so that the CQ remembers the queue pair */
	polled = poll_receive(ends.recv_cq);
	if (!one_cq)
		CHECK(!poll_receive(ends.send_cq));

	ends_stop(destroy);
	/*
	 * The XRC target is destroyed, but its SRQ and the completions of the
	 * SRQ stay
	 */
	CHECK(receives_poll(&sent) == (xrcd ? MESSAGES - polled : 0));
	CHECK(!sent && !ibv_poll_cq(ends.send_cq, 1, &wc));

	/* The receive WQE of the polled completion is free, too */
	if (ends.srq)
		CHECK(receives_post() == MESSAGES);
	ends_start();
	if (!ends.srq)
		CHECK(receives_post() == receives);
	messages_send(RECEIVES);
	messages_wait(RECEIVES);
	CHECK(receives_poll(&sent) == RECEIVES);
	CHECK(sent == (one_cq ? RECEIVES : 0));
	ends_free();
}

static void test_kind(void)
{
	NEED((capabilities & kind->capability) == kind->capability);
	unpolled(false, true);
	unpolled(false, false);
	unpolled(true, true);
	unpolled(true, false);
}

int main(int argc, char **argv)
{
	char name[80];
	size_t i;

	if (set_up(argc, argv)) {
		printf("Bail out! no qrnic adapter\n");
		return 1;
	}
	for (i = 0; i < NUM_KINDS; i++) {
		kind = &kinds[i];
		snprintf(name, sizeof(name), "unpolled completions: %s",
			 kind->name);
		run(name, test_kind);
	}
	return tear_down();
}
