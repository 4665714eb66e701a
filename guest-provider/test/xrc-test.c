// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * xrc-test.c: tests extended reliable connections, as far as the tests of
 * rdma-core do not. Two contexts represent two processes, because the kernel
 * does not distinguish them. Prints TAP.
 */
#include <fcntl.h>
#include <unistd.h>

#include "test.h"

#define FILE_OF_DOMAIN "/tmp/qrnic-xrc-test"

/* The sender, which also creates the target, and the receiving process */
static struct ibv_context *other;
static struct ibv_xrcd *xrcd, *other_xrcd;
static struct ibv_qp *initiator, *target, *opened;
static struct ibv_cq *send_cq, *other_cq;
static struct ibv_pd *other_pd;
static struct ibv_mr *other_mr;
static struct ibv_srq *srq;
static uint32_t srqn;

/* Moves a queue pair to its last state; a target receives from RTR on. */
static int start(struct ibv_qp *qp, uint32_t peer)
{
	if (to_init(qp) || to_rtr(qp, peer))
		return -1;
	return qp->qp_type == IBV_QPT_XRC_SEND ? to_rts(qp) : 0;
}

static struct ibv_qp *make_end(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};

	if (type == IBV_QPT_XRC_SEND) {
		attr.send_cq = send_cq;
		attr.cap.max_send_wr = 16;
		attr.cap.max_send_sge = 1;
		attr.comp_mask = IBV_QP_INIT_ATTR_PD |
				 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.pd = pd;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND |
				      IBV_QP_EX_WITH_RDMA_WRITE;
	}
	return ibv_create_qp_ex(context, &attr);
}

static int make_srq(void)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 7, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = other_pd,
		.xrcd = other_xrcd,
		.cq = other_cq,
	};

	srq = ibv_create_srq_ex(other, &attr);
	return srq ? ibv_get_srq_num(srq, &srqn) : -1;
}

static int srq_recv(uint64_t wr_id)
{
	struct ibv_sge sge = {
		(uintptr_t)buffer + HALF, 4096, other_mr->lkey
	};
	struct ibv_recv_wr wr = { wr_id, NULL, &sge, 1 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static int send_to(uint32_t number, uint64_t wr_id)
{
	struct ibv_sge sge = sge_of(0, 100);
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.qp_type.xrc.remote_srqn = number,
	}, *bad;

	return ibv_post_send(initiator, &wr, &bad);
}

static void sent(uint64_t wr_id)
{
	struct ibv_wc wc;

	CHECK(poll_one(send_cq, &wc) == 1);
	CHECK(!wc.status && wc.wr_id == wr_id);
	CHECK(wc.qp_num == initiator->qp_num);
}

static void received(uint64_t wr_id, uint32_t number)
{
	struct ibv_wc wc;

	CHECK(poll_one(other_cq, &wc) == 1);
	CHECK(!wc.status && wc.wr_id == wr_id && wc.opcode == IBV_WC_RECV);
	CHECK(wc.byte_len == 100 && wc.qp_num == number);
	CHECK(!memcmp(buffer, buffer + HALF, 100));
}

static void test_domain(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
	};

	NEED(capabilities & QRNIC_CAP_XRC);
	attr.fd = open(FILE_OF_DOMAIN, O_CREAT | O_RDWR, 0600);
	CHECK(attr.fd >= 0);
	other = ibv_open_device(context->device);
	CHECK(other);
	/* No process has opened the domain yet */
	CHECK(!ibv_open_xrcd(other, &attr));
	attr.oflags = O_CREAT;
	xrcd = ibv_open_xrcd(context, &attr);
	attr.oflags = 0;
	other_xrcd = ibv_open_xrcd(other, &attr);
	CHECK(xrcd && other_xrcd);
	close(attr.fd);
	unlink(FILE_OF_DOMAIN);
}

static void test_objects(void)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	NEED(other_xrcd);
	send_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	other_cq = ibv_create_cq(other, 64, NULL, NULL, 0);
	other_pd = ibv_alloc_pd(other);
	CHECK(send_cq && other_cq && other_pd);
	other_mr = ibv_reg_mr(other_pd, buffer + HALF, HALF,
			      IBV_ACCESS_LOCAL_WRITE | remote_rights());
	CHECK(other_mr && !make_srq());
	initiator = make_end(IBV_QPT_XRC_SEND);
	target = make_end(IBV_QPT_XRC_RECV);
	CHECK(initiator && target);
	CHECK(!start(target, initiator->qp_num));
	CHECK(!start(initiator, target->qp_num));
	attr.xrcd = other_xrcd;
	attr.qp_num = target->qp_num ^ 0x800000;
	CHECK(!ibv_open_qp(other, &attr));
	attr.qp_num = target->qp_num;
	opened = ibv_open_qp(other, &attr);
	CHECK(opened && opened->qp_num == target->qp_num);
}

/*
 * Tests that the completion names the target, a queue pair that the receiver
 * has not created.
 */
static void test_receive(void)
{
	struct ibv_recv_wr recv = {}, *bad;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	NEED(opened);
	fill(0, 100, 1);
	CHECK(!srq_recv(10) && !srq_recv(11));
	CHECK(!send_to(srqn, 1));
	sent(1);
	received(10, target->qp_num);
	CHECK(!ibv_query_qp(opened, &attr, IBV_QP_STATE, &init));
	CHECK(attr.qp_state == IBV_QPS_RTR);
	CHECK(ibv_post_recv(initiator, &recv, &bad) == EINVAL);
	CHECK(ibv_post_recv(target, &recv, &bad) == EINVAL);
	/* The target exists while a process has it open */
	CHECK(!ibv_destroy_qp(target));
	fill(0, 100, 2);
	CHECK(!send_to(srqn, 2));
	sent(2);
	received(11, opened->qp_num);
}

/* Tests all slots several times. */
static void test_slots(void)
{
	uint64_t i, n;

	NEED(opened);
	for (n = 0; n < 10; n++) {
		for (i = 0; i < 7; i++)
			CHECK(!srq_recv(100 + i));
		CHECK(srq_recv(0) == ENOMEM);
		for (i = 0; i < 7; i++) {
			CHECK(!send_to(srqn, i));
			sent(i);
			received(100 + i, opened->qp_num);
		}
	}
}

static void test_extended(void)
{
	struct ibv_qp_ex *qp;

	NEED(opened);
	qp = ibv_qp_to_qp_ex(initiator);
	qp->wr_flags = IBV_SEND_SIGNALED;
	CHECK(!srq_recv(20));
	fill(0, 100, 3);
	ibv_wr_start(qp);
	qp->wr_id = 30;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)buffer, 100);
	ibv_wr_set_xrc_srqn(qp, srqn);
	/*
	 * The key belongs to the domain of the SRQ, so it is valid although the
	 * sender has another
	 */
	qp->wr_id = 31;
	ibv_wr_rdma_write(qp, other_mr->rkey, (uintptr_t)buffer + HALF + 4096);
	ibv_wr_set_xrc_srqn(qp, srqn);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)buffer, 100);
	CHECK(!ibv_wr_complete(qp));
	sent(30);
	sent(31);
	received(20, opened->qp_num);
	CHECK(!memcmp(buffer, buffer + HALF + 4096, 100));
	/* Without an SRQ the work request is rejected */
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)buffer, 100);
	CHECK(ibv_wr_complete(qp) == EINVAL);
}

/*
 * Tests that an SRQ is destroyed with its completions, and that a message to it
 * is rejected.
 */
static void test_srq_gone(void)
{
	struct ibv_wc wc;

	NEED(opened);
	CHECK(!srq_recv(40));
	CHECK(!send_to(srqn, 41));
	sent(41);
	CHECK(ibv_destroy_cq(other_cq) == EBUSY);
	CHECK(!ibv_destroy_srq(srq));
	CHECK(!ibv_poll_cq(other_cq, 1, &wc));
	CHECK(!send_to(srqn, 42));
	CHECK(poll_one(send_cq, &wc) == 1);
	CHECK(wc.wr_id == 42 && wc.status == IBV_WC_REM_INV_REQ_ERR);
}

static void test_close(void)
{
	NEED(opened);
	CHECK(ibv_close_xrcd(other_xrcd) == EBUSY);
	CHECK(!ibv_destroy_qp(opened) && !ibv_destroy_qp(initiator));
	CHECK(!ibv_destroy_cq(send_cq) && !ibv_destroy_cq(other_cq));
	CHECK(!ibv_dereg_mr(other_mr) && !ibv_dealloc_pd(other_pd));
	CHECK(!ibv_close_xrcd(other_xrcd) && !ibv_close_xrcd(xrcd));
	CHECK(!ibv_close_device(other));
}

/*
 * Tests a forged completion, which the test writes instead of the device: a
 * receive of an initiator, which has no receive queue.
 */
static void test_forged(void)
{
	const uint32_t opcode = QRNIC_CQE_OPCODE_MASK & -QRNIC_CQE_OPCODE_MASK;
	struct ibv_cq *former = send_cq;
	struct qrnicdv_cq cq;
	struct ibv_qp *qp;
	struct ibv_wc wc;

	NEED(former);
	send_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(send_cq);
	qp = make_end(IBV_QPT_XRC_SEND);
	CHECK(qp && !qrnicdv_query_cq(send_cq, &cq, sizeof(cq)));
	cq.ring[0].qpn = htole32(qp->qp_num);
	cq.ring[0].index = htole32(0x12345678);
	__sync_synchronize();
	cq.ring[0].control = htole32(QRNIC_CQE_PHASE_MASK | QRNIC_CQE_RECV * opcode);
	CHECK(ibv_poll_cq(send_cq, 1, &wc) == 0);
	CHECK(!qrnicdv_query_cq(send_cq, &cq, sizeof(cq)) && cq.consumer == 1);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(send_cq));
	send_cq = former;
}

static void test_lacks(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	NEED(!(capabilities & QRNIC_CAP_XRC));
	CHECK(!ibv_open_xrcd(context, &attr) && errno == EOPNOTSUPP);
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	run("XRC domain of a file", test_domain);
	run("XRC objects of two contexts", test_objects);
	run("receiving through the target of another context", test_receive);
	run("slots of an XRC SRQ", test_slots);
	run("XRC by the extended interface", test_extended);
	run("an XRC SRQ is destroyed", test_srq_gone);
	run("a completion of a queue that does not exist", test_forged);
	run("XRC objects are destroyed", test_close);
	run("no XRC domain without XRC", test_lacks);
	return tear_down();
}
