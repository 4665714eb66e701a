// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * connected.c: tests of kernel verbs over RC between two QPs of one device, and
 * the list of all tests. Loading the module runs the tests, and succeeds if all
 * of them passed; the log contains the result of each.
 *
 * modprobe kernel_verbs device=qrnic0 gid_index=1
 *
 * With db_group=16 the driver maps doorbells as in a kernel with pages of 64
 * KiB.
 */
#include "kernel_verbs.h"

#include <linux/delay.h>
#include <linux/module.h>

static char *device = "qrnic0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "RDMA device");

int gid_index;
module_param(gid_index, int, 0444);
MODULE_PARM_DESC(gid_index, "entry of the GID table");

static int rounds = 2000;
module_param(rounds, int, 0444);
MODULE_PARM_DESC(rounds, "rounds of the tests that fill the rings");

static uint db_group;
module_param(db_group, uint, 0444);
MODULE_PARM_DESC(db_group, "number of doorbell pages in one mapping of a context; no tests run then");

static void cq_completion(struct ib_cq *cq, void *context)
{
	struct test *test = context;

	atomic_inc(&test->completion_events);
}

static void cq_event(struct ib_event *event, void *context)
{
	struct test *test = context;

	if (event->event == IB_EVENT_CQ_ERR)
		complete(&test->cq_event);
}

static void qp_event(struct ib_event *event, void *context)
{
	struct end *end = context;

	end->event_type = event->event;
	complete(&end->event);
}

int end_create(struct test *test, struct end *end)
{
	struct ib_qp_init_attr init = {
		.event_handler = qp_event,
		.qp_context = end,
		.send_cq = test->cq,
		.recv_cq = test->cq,
		.cap = {
			.max_send_wr = end->max_wr ? end->max_wr : MAX_WR,
			.max_recv_wr = end->max_wr ? end->max_wr : MAX_WR,
			.max_send_sge = MAX_SGE,
			.max_recv_sge = MAX_SGE,
			.max_inline_data = MAX_INLINE,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = end->type ? end->type : IB_QPT_RC,
		.srq = end->srq,
	};

	init_completion(&end->event);
	end->buffer = kzalloc(BUFFER_SIZE, GFP_KERNEL);
	if (!end->buffer)
		return -ENOMEM;
	end->dma = ib_dma_map_single(test->dev, end->buffer, BUFFER_SIZE,
				     DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(test->dev, end->dma)) {
		kfree(end->buffer);
		end->buffer = NULL;
		return -ENOMEM;
	}

	end->qp = ib_create_qp(test->pd, &init);
	if (IS_ERR(end->qp)) {
		int err = PTR_ERR(end->qp);

		end->qp = NULL;
		return err;
	}
	return 0;
}

void end_destroy(struct test *test, struct end *end)
{
	if (end->qp)
		ib_destroy_qp(end->qp);
	end->qp = NULL;
	if (!end->buffer)
		return;
	ib_dma_unmap_single(test->dev, end->dma, BUFFER_SIZE, DMA_BIDIRECTIONAL);
	kfree(end->buffer);
	end->buffer = NULL;
}

int end_to_init(struct end *end)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE |
				   IB_ACCESS_REMOTE_ATOMIC,
	};

	if (end->type == IB_QPT_UC)
		attr.qp_access_flags = IB_ACCESS_REMOTE_WRITE;
	return ib_modify_qp(end->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			    IB_QP_PORT | IB_QP_ACCESS_FLAGS);
}

int end_connect(struct test *test, struct end *end, struct end *peer)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTR,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = 1000 + peer->qp->qp_num,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
	};
	const struct ib_gid_attr *gid;
	int err, reliable;

	gid = rdma_get_gid_attr(test->dev, PORT, gid_index);
	if (IS_ERR(gid))
		return PTR_ERR(gid);

	attr.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(&attr.ah_attr, PORT);
	rdma_ah_set_grh(&attr.ah_attr, (union ib_gid *)&gid->gid, 0, gid_index,
			64, 0);
	err = rdma_read_gid_l2_fields(gid, NULL, attr.ah_attr.roce.dmac);
	rdma_put_gid_attr(gid);
	if (err)
		return err;

	reliable = IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
	if (end->type == IB_QPT_UC)
		reliable = 0;
	err = ib_modify_qp(end->qp, &attr, IB_QP_STATE | IB_QP_AV |
			   IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			   reliable);
	if (err)
		return err;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IB_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 3;
	attr.rnr_retry = 7;
	attr.sq_psn = 1000 + end->qp->qp_num;
	attr.max_rd_atomic = 4;
	reliable = IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
		   IB_QP_MAX_QP_RD_ATOMIC;
	if (end->type == IB_QPT_UC)
		reliable = 0;
	return ib_modify_qp(end->qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN | reliable);
}

int end_to(struct end *end, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };

	return ib_modify_qp(end->qp, &attr, IB_QP_STATE);
}

static int connect_both(struct test *test)
{
	int err;

	err = end_to_init(&test->a);
	if (!err)
		err = end_to_init(&test->b);
	if (!err)
		err = end_connect(test, &test->a, &test->b);
	if (!err)
		err = end_connect(test, &test->b, &test->a);
	return err;
}

/* Moves both ends from any state to RESET, and connects them again. */
void reconnect(struct test *test)
{
	EXPECT(test, !end_to(&test->a, IB_QPS_RESET));
	EXPECT(test, !end_to(&test->b, IB_QPS_RESET));
	EXPECT(test, !connect_both(test));
	reinit_completion(&test->a.event);
	reinit_completion(&test->b.event);
}

/* Waits for one completion. Returns false after a second. */
bool poll_one(struct test *test, struct ib_wc *wc)
{
	unsigned long deadline = jiffies + HZ;
	int n;

	do {
		n = ib_poll_cq(test->cq, 1, wc);
		if (n)
			return n == 1;
		usleep_range(20, 50);
	} while (time_before(jiffies, deadline));
	return false;
}

/* Returns true if the next completion has this wr_id and is successful. */
bool poll_of(struct test *test, u64 wr_id, struct ib_wc *wc)
{
	if (!poll_one(test, wc)) {
		pr_err("no completion of %llu\n", wr_id);
		return false;
	}
	if (wc->wr_id != wr_id || wc->status != IB_WC_SUCCESS) {
		pr_err("completion of %llu instead of %llu: %s, 0x%x\n",
		       wc->wr_id, wr_id, ib_wc_status_msg(wc->status),
		       wc->vendor_err);
		return false;
	}
	return true;
}

bool quiet(struct test *test)
{
	struct ib_wc wc;

	msleep(20);
	return ib_poll_cq(test->cq, 1, &wc) == 0;
}

struct ib_sge sge_of(struct test *test, struct end *end, u32 offset,
		     u32 length)
{
	return (struct ib_sge) {
		.addr = end->dma + offset,
		.length = length,
		.lkey = test->pd->local_dma_lkey,
	};
}

int recv(struct test *test, struct end *end, u64 id, u32 offset,
	 u32 length)
{
	struct ib_sge sge = sge_of(test, end, offset, length);
	struct ib_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	return ib_post_recv(end->qp, &wr, NULL);
}

void fill(u8 *at, size_t length, u8 seed)
{
	size_t i;

	for (i = 0; i < length; i++)
		at[i] = seed + i * 7;
}

bool filled(const u8 *at, size_t length, u8 seed)
{
	size_t i;

	for (i = 0; i < length; i++)
		if (at[i] != (u8)(seed + i * 7))
			return false;
	return true;
}

/*
 * Sends with immediate data, gathered from three buffers, and checks the
 * received data.
 */
static void test_send(struct test *test)
{
	struct ib_sge sge[3] = {
		sge_of(test, &test->a, 0, 100),
		sge_of(test, &test->a, 100, 1900),
		sge_of(test, &test->a, 2000, 3000),
	};
	struct ib_send_wr wr = {
		.wr_id = 77, .sg_list = sge, .num_sge = 3,
		.opcode = IB_WR_SEND_WITH_IMM, .send_flags = IB_SEND_SIGNALED,
		.ex.imm_data = cpu_to_be32(0x12345678),
	};
	bool sent = false, received = false;
	struct ib_wc wc;
	int i;

	fill(test->a.buffer, 5000, 3);
	memset(test->b.buffer, 0, BUFFER_SIZE);
	EXPECT(test, !recv(test, &test->b, 88, 500, 6000));
	EXPECT(test, !ib_post_send(test->a.qp, &wr, NULL));
	for (i = 0; i < 2; i++) {
		if (!EXPECT(test, poll_one(test, &wc)))
			return;
		EXPECT(test, wc.status == IB_WC_SUCCESS);
		if (wc.wr_id == 77) {
			sent = wc.opcode == IB_WC_SEND && wc.qp == test->a.qp;
		} else {
			received = wc.wr_id == 88 && wc.opcode == IB_WC_RECV &&
				   wc.qp == test->b.qp && wc.byte_len == 5000 &&
				   wc.wc_flags & IB_WC_WITH_IMM &&
				   wc.ex.imm_data == cpu_to_be32(0x12345678);
		}
	}
	EXPECT(test, sent);
	EXPECT(test, received);
	EXPECT(test, filled(test->b.buffer + 500, 5000, 3));
	EXPECT(test, test->b.buffer[499] == 0 && test->b.buffer[5500] == 0);
}

struct ib_rdma_wr rdma(struct test *test, enum ib_wr_opcode opcode,
		       struct ib_sge *sge, u32 remote, u64 id)
{
	return (struct ib_rdma_wr) {
		.wr = {
			.wr_id = id, .sg_list = sge, .num_sge = 1,
			.opcode = opcode, .send_flags = IB_SEND_SIGNALED,
		},
		.remote_addr = test->b.dma + remote,
		.rkey = test->mr->rkey,
	};
}

static void test_write_read(struct test *test)
{
	struct ib_sge out = sge_of(test, &test->a, 0, 20000);
	struct ib_sge in = sge_of(test, &test->a, 30000, 20000);
	struct ib_rdma_wr write = rdma(test, IB_WR_RDMA_WRITE, &out, 1000, 1);
	struct ib_rdma_wr read = rdma(test, IB_WR_RDMA_READ, &in, 1000, 2);
	struct ib_wc wc;

	fill(test->a.buffer, 20000, 9);
	memset(test->a.buffer + 30000, 0, 20000);
	memset(test->b.buffer, 0, BUFFER_SIZE);
	write.wr.send_flags = 0;
	write.wr.next = &read.wr;
	EXPECT(test, !ib_post_send(test->a.qp, &write.wr, NULL));
	if (!EXPECT(test, poll_one(test, &wc)))
		return;
	EXPECT(test, wc.status == IB_WC_SUCCESS && wc.wr_id == 2 &&
	       wc.opcode == IB_WC_RDMA_READ);
	EXPECT(test, filled(test->b.buffer + 1000, 20000, 9));
	EXPECT(test, filled(test->a.buffer + 30000, 20000, 9));
	EXPECT(test, quiet(test));
}

static void test_write_imm(struct test *test)
{
	struct ib_sge sge = sge_of(test, &test->a, 0, 3000);
	struct ib_rdma_wr write = rdma(test, IB_WR_RDMA_WRITE_WITH_IMM, &sge, 0, 1);
	struct ib_recv_wr receive = { .wr_id = 2 };
	struct ib_wc wc;
	int i;

	write.wr.ex.imm_data = cpu_to_be32(42);
	fill(test->a.buffer, 3000, 17);
	EXPECT(test, !ib_post_recv(test->b.qp, &receive, NULL));
	EXPECT(test, !ib_post_send(test->a.qp, &write.wr, NULL));
	for (i = 0; i < 2; i++) {
		if (!EXPECT(test, poll_one(test, &wc)))
			return;
		EXPECT(test, wc.status == IB_WC_SUCCESS);
		if (wc.qp != test->b.qp) {
			EXPECT(test, wc.opcode == IB_WC_RDMA_WRITE);
			continue;
		}
		EXPECT(test, wc.opcode == IB_WC_RECV_RDMA_WITH_IMM &&
		       wc.wr_id == 2 && wc.byte_len == 3000 &&
		       wc.ex.imm_data == cpu_to_be32(42));
	}
	EXPECT(test, filled(test->b.buffer, 3000, 17));
}

static void test_atomic(struct test *test)
{
	u64 *target = (u64 *)(test->b.buffer + 64);
	u64 *result = (u64 *)test->a.buffer;
	struct ib_sge sge = sge_of(test, &test->a, 0, 8);
	struct ib_atomic_wr wr = {
		.wr = {
			.wr_id = 5, .sg_list = &sge, .num_sge = 1,
			.opcode = IB_WR_ATOMIC_FETCH_AND_ADD,
			.send_flags = IB_SEND_SIGNALED,
		},
		.remote_addr = test->b.dma + 64,
		.compare_add = 5,
		.rkey = test->mr->rkey,
	};
	struct ib_wc wc;

	*target = 100;
	EXPECT(test, !ib_post_send(test->a.qp, &wr.wr, NULL));
	if (!EXPECT(test, poll_one(test, &wc)))
		return;
	EXPECT(test, wc.status == IB_WC_SUCCESS && wc.opcode == IB_WC_FETCH_ADD);
	EXPECT(test, *result == 100 && *target == 105);

	wr.wr.opcode = IB_WR_ATOMIC_CMP_AND_SWP;
	wr.compare_add = 105;
	wr.swap = 7;
	EXPECT(test, !ib_post_send(test->a.qp, &wr.wr, NULL));
	if (!EXPECT(test, poll_one(test, &wc)))
		return;
	EXPECT(test, wc.status == IB_WC_SUCCESS && wc.opcode == IB_WC_COMP_SWAP);
	EXPECT(test, *result == 105 && *target == 7);
}

/*
 * Fills the rings repeatedly with WQEs of one to four basic blocks, inline and
 * not, so that each kind crosses the end of the ring. Every fourth WQE is
 * signaled.
 */
static void test_wrap(struct test *test)
{
	struct ib_sge sge[MAX_SGE];
	struct ib_send_wr wr = { .sg_list = sge, .opcode = IB_WR_SEND };
	int round, i, wanted, done;
	u32 total, at;
	struct ib_wc wc;

	for (round = 0; round < rounds; round++) {
		bool put_inline = round & 1;

		wr.num_sge = 1 + round % MAX_SGE;
		for (i = 0, total = 0, at = 0; i < wr.num_sge; i++) {
			u32 length = put_inline ? 1 + (round * 3 + i) % 31 :
						  1 + (round * 37 + i) % 900;

			sge[i] = sge_of(test, &test->a, at, length);
			if (put_inline)
				sge[i].addr = (uintptr_t)test->a.buffer + at;
			at += length;
		}
		total = at;
		fill(test->a.buffer, total, round);
		memset(test->b.buffer, 0, total + 1);
		wr.wr_id = round;
		wr.send_flags = put_inline ? IB_SEND_INLINE : 0;
		if (round % 4 == 3)
			wr.send_flags |= IB_SEND_SIGNALED;

		if (!EXPECT(test, !recv(test, &test->b, round, 0, 8192)) ||
		    !EXPECT(test, !ib_post_send(test->a.qp, &wr, NULL)))
			return;
		wanted = round % 4 == 3 ? 2 : 1;
		for (done = 0; done < wanted; done++)
			if (!EXPECT(test, poll_one(test, &wc)) ||
			    !EXPECT(test, wc.status == IB_WC_SUCCESS) ||
			    !EXPECT(test, wc.wr_id == round))
				return;
		if (!EXPECT(test, filled(test->b.buffer, total, round)) ||
		    !EXPECT(test, test->b.buffer[total] == 0))
			return;
	}
}

/*
 * Posts a list with a bad request. The requests before it are executed; the bad
 * one and the rest are not.
 */
static void test_bad_wr(struct test *test)
{
	struct ib_sge sge = sge_of(test, &test->a, 0, 8);
	struct ib_rdma_wr list[4];
	const struct ib_send_wr *bad = NULL;
	const struct ib_recv_wr *bad_recv = NULL;
	struct ib_recv_wr recv_list[2] = {};
	struct ib_wc wc;
	int i;

	for (i = 0; i < 4; i++) {
		list[i] = rdma(test, IB_WR_RDMA_WRITE, &sge, 0, i);
		list[i].wr.next = i < 3 ? &list[i + 1].wr : NULL;
	}
	list[2].wr.num_sge = MAX_SGE + 100;
	EXPECT(test, ib_post_send(test->a.qp, &list[0].wr, &bad) == -EINVAL);
	EXPECT(test, bad == &list[2].wr);
	for (i = 0; i < 2; i++)
		EXPECT(test, poll_one(test, &wc) && wc.wr_id == i &&
		       wc.status == IB_WC_SUCCESS);
	EXPECT(test, quiet(test));

	list[0].wr.opcode = IB_WR_MASKED_ATOMIC_CMP_AND_SWP;
	EXPECT(test, ib_post_send(test->a.qp, &list[0].wr, &bad) == -EOPNOTSUPP);
	EXPECT(test, bad == &list[0].wr);

	recv_list[0].next = &recv_list[1];
	recv_list[0].wr_id = 1;
	recv_list[1].num_sge = MAX_SGE + 100;
	EXPECT(test, ib_post_recv(test->b.qp, recv_list, &bad_recv) == -EINVAL);
	EXPECT(test, bad_recv == &recv_list[1]);
	reconnect(test);
}

/* Fills the receive queue up to its size; one more request must fail. */
static void test_full(struct test *test)
{
	struct ib_recv_wr wr = {};
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;
	struct ib_wc wc;
	int posted = 0;

	EXPECT(test, !ib_query_qp(test->b.qp, &attr, IB_QP_CAP, &init));
	while (posted < 10000) {
		wr.wr_id = posted;
		if (ib_post_recv(test->b.qp, &wr, NULL))
			break;
		posted++;
	}
	EXPECT(test, posted == init.cap.max_recv_wr);
	EXPECT(test, posted >= MAX_WR);
	EXPECT(test, ib_post_recv(test->b.qp, &wr, NULL) == -ENOMEM);

	/*
	 * In ERR all requests complete in order, and each completion frees a
	 * place.
	 */
	EXPECT(test, !end_to(&test->b, IB_QPS_ERR));
	while (posted--) {
		if (!EXPECT(test, poll_one(test, &wc)))
			break;
		EXPECT(test, wc.status == IB_WC_WR_FLUSH_ERR);
		EXPECT(test, wc.wr_id == init.cap.max_recv_wr - posted - 1);
	}
	EXPECT(test, !ib_post_recv(test->b.qp, &wr, NULL));
	EXPECT(test, poll_one(test, &wc) && wc.status == IB_WC_WR_FLUSH_ERR);
	reconnect(test);
}

static void test_states(struct test *test)
{
	struct ib_sge sge = sge_of(test, &test->a, 0, 8);
	struct ib_rdma_wr write = rdma(test, IB_WR_RDMA_WRITE, &sge, 0, 1);
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	EXPECT(test, !ib_query_qp(test->a.qp, &attr, 0, &init));
	EXPECT(test, attr.qp_state == IB_QPS_RTS);
	EXPECT(test, attr.dest_qp_num == test->b.qp->qp_num);
	EXPECT(test, attr.path_mtu == IB_MTU_1024);
	EXPECT(test, attr.timeout == 14 && attr.retry_cnt == 3);
	EXPECT(test, attr.max_rd_atomic == 4 && attr.max_dest_rd_atomic == 4);
	EXPECT(test, attr.sq_psn <= 0xffffff);
	EXPECT(test, rdma_ah_read_grh(&attr.ah_attr)->sgid_index == gid_index);

	EXPECT(test, !end_to(&test->a, IB_QPS_RESET));
	EXPECT(test, recv(test, &test->a, 1, 0, 8) == -EINVAL);
	EXPECT(test, ib_post_send(test->a.qp, &write.wr, NULL) == -EINVAL);
	EXPECT(test, end_to(&test->a, IB_QPS_RTS) == -EINVAL);
	EXPECT(test, !end_to_init(&test->a));
	EXPECT(test, !recv(test, &test->a, 1, 0, 8));
	EXPECT(test, ib_post_send(test->a.qp, &write.wr, NULL) == -EINVAL);
	EXPECT(test, !ib_query_qp(test->a.qp, &attr, 0, &init));
	EXPECT(test, attr.qp_state == IB_QPS_INIT);
	reconnect(test);
}

static bool events_become(struct test *test, int wanted)
{
	unsigned long deadline = jiffies + HZ;

	while (atomic_read(&test->completion_events) != wanted) {
		if (time_after(jiffies, deadline))
			return false;
		usleep_range(50, 100);
	}
	/* Waits longer, because an event too many may arrive late. */
	msleep(20);
	return atomic_read(&test->completion_events) == wanted;
}

static void test_notify(struct test *test)
{
	struct ib_sge sge = sge_of(test, &test->a, 0, 8);
	struct ib_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND,
	};
	struct ib_wc wc;

	atomic_set(&test->completion_events, 0);
	EXPECT(test, !recv(test, &test->b, 1, 0, 8));
	EXPECT(test, !recv(test, &test->b, 2, 0, 8));
	EXPECT(test, !recv(test, &test->b, 3, 0, 8));

	/* Armed for any completion: one event for two completions */
	EXPECT(test, !ib_req_notify_cq(test->cq, IB_CQ_NEXT_COMP |
				       IB_CQ_REPORT_MISSED_EVENTS));
	EXPECT(test, !ib_post_send(test->a.qp, &wr, NULL));
	EXPECT(test, events_become(test, 1));
	/*
	 * The request reports a missed event, because a completion is already
	 * in the CQ.
	 */
	EXPECT(test, ib_req_notify_cq(test->cq, IB_CQ_SOLICITED |
				      IB_CQ_REPORT_MISSED_EVENTS) > 0);
	EXPECT(test, poll_one(test, &wc));

	/* Armed for solicited completions only */
	EXPECT(test, !ib_post_send(test->a.qp, &wr, NULL));
	EXPECT(test, poll_one(test, &wc));
	EXPECT(test, events_become(test, 1));
	wr.send_flags = IB_SEND_SOLICITED;
	EXPECT(test, !ib_post_send(test->a.qp, &wr, NULL));
	EXPECT(test, events_become(test, 2));
	EXPECT(test, poll_one(test, &wc));
	EXPECT(test, quiet(test));
}

/*
 * Tests errors of both sides: statuses of completions, flush, and the event of
 * the peer.
 */
static void test_errors(struct test *test)
{
	struct ib_sge sge = sge_of(test, &test->a, 0, 64);
	struct ib_rdma_wr write = rdma(test, IB_WR_RDMA_WRITE, &sge, 0, 1);
	struct ib_rdma_wr after = rdma(test, IB_WR_RDMA_WRITE, &sge, 0, 2);
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;
	struct ib_wc wc;

	/*
	 * An error completes an unsignaled request, too; the next one is
	 * flushed.
	 */
	sge.lkey ^= 0x55;
	write.wr.next = &after.wr;
	write.wr.send_flags = 0;
	after.wr.send_flags = 0;
	EXPECT(test, !ib_post_send(test->a.qp, &write.wr, NULL));
	EXPECT(test, poll_one(test, &wc) && wc.wr_id == 1 &&
	       wc.status == IB_WC_LOC_PROT_ERR && wc.vendor_err);
	EXPECT(test, poll_one(test, &wc) && wc.wr_id == 2 &&
	       wc.status == IB_WC_WR_FLUSH_ERR);
	EXPECT(test, !ib_query_qp(test->a.qp, &attr, 0, &init));
	EXPECT(test, attr.qp_state == IB_QPS_ERR);
	reconnect(test);

	sge.lkey ^= 0x55;
	write.rkey ^= 0x55;
	EXPECT(test, !ib_post_send(test->a.qp, &write.wr, NULL));
	EXPECT(test, poll_one(test, &wc) && wc.wr_id == 1 &&
	       wc.status == IB_WC_REM_ACCESS_ERR);
	EXPECT(test, poll_one(test, &wc) && wc.wr_id == 2 &&
	       wc.status == IB_WC_WR_FLUSH_ERR);
	EXPECT(test, wait_for_completion_timeout(&test->b.event, HZ) &&
	       test->b.event_type == IB_EVENT_QP_ACCESS_ERR);
	reconnect(test);
}

/*
 * Tests that completions of a QP in RESET disappear, and those of others stay
 * in order.
 */
static void test_clean(struct test *test)
{
	struct ib_recv_wr wr = {};
	struct ib_wc wc;
	int i;

	/* Flushed completions of both QPs alternate in the CQ */
	EXPECT(test, !end_to(&test->a, IB_QPS_ERR));
	EXPECT(test, !end_to(&test->b, IB_QPS_ERR));
	for (i = 0; i < 5; i++) {
		wr.wr_id = 100 + i;
		EXPECT(test, !ib_post_recv(test->a.qp, &wr, NULL));
		usleep_range(2000, 3000);
		wr.wr_id = 200 + i;
		EXPECT(test, !ib_post_recv(test->b.qp, &wr, NULL));
		usleep_range(2000, 3000);
	}
	EXPECT(test, !end_to(&test->a, IB_QPS_RESET));
	for (i = 0; i < 5; i++)
		EXPECT(test, poll_one(test, &wc) && wc.wr_id == 200 + i &&
		       wc.qp == test->b.qp);
	EXPECT(test, quiet(test));
	reconnect(test);
	test_send(test);
}

static void drained(struct ib_cq *cq, struct ib_wc *wc)
{
}

/* Tests draining with a CQ that the RDMA core polls in a work item. */
static void test_drain(struct test *test)
{
	struct ib_cqe cqe = { .done = drained };
	struct ib_cq *shared = test->cq;
	struct ib_recv_wr wr = { .wr_cqe = &cqe };
	struct end end = {};
	int i;

	test->cq = ib_alloc_cq(test->dev, NULL, 2 * MAX_WR + 2, 0,
			       IB_POLL_WORKQUEUE);
	if (EXPECT(test, !IS_ERR(test->cq))) {
		if (EXPECT(test, !end_create(test, &end)) &&
		    EXPECT(test, !end_to_init(&end))) {
			for (i = 0; i < MAX_WR / 2; i++)
				EXPECT(test, !ib_post_recv(end.qp, &wr, NULL));
			ib_drain_qp(end.qp);
		}
		end_destroy(test, &end);
		ib_free_cq(test->cq);
	}
	test->cq = shared;
}

/*
 * Posts to a QP in ERR until its queues are full. Returns the number of
 * requests.
 */
static int post_full(struct end *end)
{
	struct ib_recv_wr receive = {};
	struct ib_send_wr send = { .opcode = IB_WR_SEND };
	int n = 0;

	while (n < 10000 && !ib_post_recv(end->qp, &receive, NULL))
		n++;
	while (n < 10000 && !ib_post_send(end->qp, &send, NULL))
		n++;
	return n;
}

/*
 * Causes more completions than the CQ has room for. This causes an event, and
 * must not crash. Runs last, because the CQ is unusable afterwards.
 */
static void test_overrun(struct test *test)
{
	struct end end = { .max_wr = test->cqe };
	int posted;

	EXPECT(test, !end_to(&test->a, IB_QPS_ERR));
	EXPECT(test, !end_to(&test->b, IB_QPS_ERR));
	/*
	 * Each queue is filled completely, so that there are more completions
	 * than CQEs
	 */
	if (EXPECT(test, !end_create(test, &end)) &&
	    EXPECT(test, !end_to_init(&end)) &&
	    EXPECT(test, !end_to(&end, IB_QPS_ERR))) {
		posted = post_full(&end);
		EXPECT(test, posted > test->cqe && posted < 10000);
		EXPECT(test, wait_for_completion_timeout(&test->cq_event, HZ));
	}
	end_destroy(test, &end);
}

static struct ib_mr *all_memory(struct ib_pd *pd)
{
	struct ib_mr *mr;

	mr = pd->device->ops.get_dma_mr(pd, IB_ACCESS_LOCAL_WRITE |
					IB_ACCESS_REMOTE_READ |
					IB_ACCESS_REMOTE_WRITE |
					IB_ACCESS_REMOTE_ATOMIC);
	if (!IS_ERR(mr)) {
		mr->device = pd->device;
		mr->pd = pd;
		mr->type = IB_MR_TYPE_DMA;
	}
	return mr;
}

static int setup(struct test *test)
{
	struct ib_cq_init_attr cq_attr = { .cqe = 64 };
	int err;

	init_completion(&test->cq_event);
	test->pd = ib_alloc_pd(test->dev, 0);
	if (IS_ERR(test->pd)) {
		err = PTR_ERR(test->pd);
		test->pd = NULL;
		return err;
	}
	test->mr = all_memory(test->pd);
	if (IS_ERR(test->mr)) {
		err = PTR_ERR(test->mr);
		test->mr = NULL;
		return err;
	}
	test->cq = ib_create_cq(test->dev, cq_completion, cq_event, test, &cq_attr);
	if (IS_ERR(test->cq)) {
		err = PTR_ERR(test->cq);
		test->cq = NULL;
		return err;
	}
	test->cqe = test->cq->cqe;
	err = end_create(test, &test->a);
	if (!err)
		err = end_create(test, &test->b);
	if (!err)
		err = connect_both(test);
	return err;
}

static void teardown(struct test *test)
{
	end_destroy(test, &test->a);
	end_destroy(test, &test->b);
	if (test->cq)
		ib_destroy_cq(test->cq);
	if (test->mr)
		test->dev->ops.dereg_mr(test->mr, NULL);
	if (test->pd)
		ib_dealloc_pd(test->pd);
}

static const struct {
	const char *name;
	void (*run)(struct test *test);
} tests[] = {
	{ "send", test_send },
	{ "write and read", test_write_read },
	{ "write with immediate", test_write_imm },
	{ "atomics", test_atomic },
	{ "around the rings", test_wrap },
	{ "bad request in a list", test_bad_wr },
	{ "full queue and flush", test_full },
	{ "states", test_states },
	{ "notification", test_notify },
	{ "errors", test_errors },
	{ "cleaning of the CQ", test_clean },
	{ "drain", test_drain },
	{ "fast registration", test_fast_registration },
	{ "limits of fast registration", test_fast_registration_limits },
	{ "shared receive queue", test_srq },
	{ "datagrams", test_datagram },
	{ "unreliable connection", test_unreliable },
	{ "invalid completions", test_untrusted },
	{ "overrun of the CQ", test_overrun },
};

static int run_all(struct test *test)
{
	int i, before, failed = 0;

	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		before = test->failures;
		tests[i].run(test);
		if (test->failures != before)
			failed++;
		pr_info("%s %d - %s\n",
			test->failures == before ? "ok" : "not ok", i + 1,
			tests[i].name);
	}
	return failed;
}

/*
 * Device with the requested name. A client is registered to find it, because
 * Linux 7.2 has no function for this any more; clients are called for each
 * device.
 */
static struct ib_device *found;

static int look_at_device(struct ib_device *dev)
{
	if (!found && !strcmp(dev_name(&dev->dev), device) && ib_device_try_get(dev))
		found = dev;
	return -EOPNOTSUPP;
}

static struct ib_client looker = {
	.name = "kernel_verbs",
	.add = look_at_device,
};

static struct ib_device *device_by_name(void)
{
	if (!ib_register_client(&looker))
		ib_unregister_client(&looker);
	return found;
}

static int __init kernel_verbs_init(void)
{
	struct test *test;
	int err, failed;

	test = kzalloc(sizeof(*test), GFP_KERNEL);
	if (!test)
		return -ENOMEM;

	err = -ENODEV;
	test->dev = device_by_name();
	if (!test->dev) {
		pr_err("no RDMA device %s\n", device);
		goto out;
	}

	if (db_group) {
		doorbell_group(test, db_group);
		err = 0;
		goto put;
	}

	err = setup(test);
	if (err) {
		pr_err("setting up: %d\n", err);
	} else {
		failed = run_all(test);
		pr_info("%d of %zu tests failed\n", failed, ARRAY_SIZE(tests));
		err = failed ? -EIO : 0;
	}
	teardown(test);
put:
	ib_device_put(test->dev);
out:
	kfree(test);
	return err;
}

static void __exit kernel_verbs_exit(void)
{
}

module_init(kernel_verbs_init);
module_exit(kernel_verbs_exit);

MODULE_DESCRIPTION("Tests of kernel verbs");
MODULE_LICENSE("GPL");
