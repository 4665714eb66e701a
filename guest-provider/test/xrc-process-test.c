// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * xrc-process-test.c: tests processes of a host that receive through one XRC
 * queue pair. The first process creates the XRC domain of a file, and the
 * target. Another program, started by exec, opens both, and receives with its
 * own SRQ. Prints TAP.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define FILE_OF_DOMAIN "/tmp/qrnic-xrc-process-test"
#define MESSAGES 20
#define BYTES 3000

/* File descriptors of the receiving program */
#define PIPE_IN 100
#define PIPE_OUT 101

static struct ibv_xrcd *xrcd;
static struct ibv_qp *initiator, *target;
static struct ibv_cq *cq;

/* The receiving processes and their pipes */
static struct {
	pid_t pid;
	int to, from;
	uint32_t srqn;
} receiver[2];

static struct ibv_xrcd *open_domain(int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open(FILE_OF_DOMAIN, O_RDWR | oflags, 0600),
		.oflags = oflags,
	};
	struct ibv_xrcd *domain = ibv_open_xrcd(context, &attr);

	close(attr.fd);
	return domain;
}

/* Runs the receiving program. */
static void receive(uint32_t qpn)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = MESSAGES, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
	};
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = qpn,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_sge sge = sge_of(HALF, BYTES);
	struct ibv_recv_wr wr = { 0, NULL, &sge, 1 }, *bad;
	uint32_t srqn = 0, i;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_wc wc;

	init.xrcd = attr.xrcd = open_domain(0);
	init.cq = ibv_create_cq(context, MESSAGES, NULL, NULL, 0);
	CHECK(init.xrcd && init.cq);
	qp = ibv_open_qp(context, &attr);
	srq = ibv_create_srq_ex(context, &init);
	CHECK(qp && srq && !ibv_get_srq_num(srq, &srqn));
	for (i = 0; i < MESSAGES; i++) {
		wr.wr_id = i;
		sge.addr = (uintptr_t)buffer + HALF + i * BYTES;
		CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
	}
	CHECK(write(PIPE_OUT, &srqn, sizeof(srqn)) == sizeof(srqn));
	for (i = 0; i < MESSAGES; i++) {
		CHECK(poll_one(init.cq, &wc) == 1);
		CHECK(!wc.status && wc.wr_id == i);
		CHECK(wc.qp_num == qpn && wc.byte_len == BYTES);
		fill(0, BYTES, srqn + i);
		CHECK(!memcmp(buffer, buffer + HALF + i * BYTES, BYTES));
	}
	/*
	 * The program is ready, and ends when the first process closes the pipe
	 */
	CHECK(write(PIPE_OUT, &srqn, sizeof(srqn)) == sizeof(srqn));
	CHECK(!read(PIPE_IN, &srqn, sizeof(srqn)));
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_cq(init.cq) && !ibv_close_xrcd(init.xrcd));
}

static void start_receiver(int i, char **argv)
{
	char qpn[16], index[16];
	int to[2], from[2];

	snprintf(qpn, sizeof(qpn), "%u", target->qp_num);
	snprintf(index, sizeof(index), "%d", gid_index);
	CHECK(!pipe2(to, O_CLOEXEC) && !pipe2(from, O_CLOEXEC));
	receiver[i].pid = fork();
	if (!receiver[i].pid) {
		dup2(to[0], PIPE_IN);
		dup2(from[1], PIPE_OUT);
		execl("/proc/self/exe", argv[0],
		      ibv_get_device_name(context->device), index, qpn, NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	receiver[i].to = to[1];
	receiver[i].from = from[0];
	CHECK(read(from[0], &receiver[i].srqn, sizeof(uint32_t)) ==
	      sizeof(uint32_t));
}

static int connect_ends(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1,
			.grh = { gid, 0, gid_index, 64, 0 },
			.port_num = 1,
		},
	};
	const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (to_init(target) || to_init(initiator))
		return -1;
	attr.dest_qp_num = initiator->qp_num;
	if (ibv_modify_qp(target, &attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC |
			  IBV_QP_MIN_RNR_TIMER))
		return -1;
	attr.dest_qp_num = target->qp_num;
	if (ibv_modify_qp(initiator, &attr, mask))
		return -1;
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 10,
				     .retry_cnt = 3, .rnr_retry = 7 };
	return ibv_modify_qp(initiator, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
			     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void test_objects(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
	};

	NEED(capabilities & QRNIC_CAP_XRC);
	xrcd = attr.xrcd = open_domain(O_CREAT);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(xrcd && cq);
	target = ibv_create_qp_ex(context, &attr);
	attr = (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
		.send_cq = cq,
		.cap = { .max_send_wr = 16, .max_send_sge = 1 },
	};
	initiator = ibv_create_qp_ex(context, &attr);
	CHECK(target && initiator && !connect_ends());
}

static enum ibv_wc_status send_one(uint32_t srqn, uint32_t seed)
{
	struct ibv_sge sge = sge_of(0, BYTES);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.qp_type.xrc.remote_srqn = srqn,
	}, *bad;
	struct ibv_wc wc;

	fill(0, BYTES, seed);
	CHECK(!ibv_post_send(initiator, &wr, &bad));
	CHECK(poll_one(cq, &wc) == 1);
	return wc.status;
}

/*
 * Tests that both processes receive through one queue pair, which still exists
 * after its creator has closed it.
 */
static void test_receivers(void)
{
	uint32_t i, n, srqn;

	NEED(target);
	CHECK(receiver[0].srqn != receiver[1].srqn);
	CHECK(!ibv_destroy_qp(target));
	for (i = 0; i < MESSAGES; i++)
		for (n = 0; n < 2; n++)
			CHECK(send_one(receiver[n].srqn, receiver[n].srqn + i) ==
			      IBV_WC_SUCCESS);
	for (n = 0; n < 2; n++)
		CHECK(read(receiver[n].from, &srqn, sizeof(srqn)) ==
		      sizeof(srqn));
}

static void test_last(void)
{
	int status;

	NEED(target);
	/* The domain of the file is in use while a process has it open */
	close(receiver[0].to);
	CHECK(waitpid(receiver[0].pid, &status, 0) == receiver[0].pid);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	/* The other process is killed, and the target is destroyed with it */
	CHECK(!kill(receiver[1].pid, SIGKILL));
	CHECK(waitpid(receiver[1].pid, &status, 0) == receiver[1].pid);
	CHECK(WIFSIGNALED(status));
	CHECK(send_one(receiver[1].srqn, 1) == IBV_WC_RETRY_EXC_ERR);
	CHECK(!ibv_destroy_qp(initiator) && !ibv_destroy_cq(cq));
	CHECK(!ibv_close_xrcd(xrcd));
	/* No process has the domain any more */
	CHECK(!open_domain(0) && errno == EAGAIN);
	unlink(FILE_OF_DOMAIN);
}

static char **arguments;

static void test_start(void)
{
	NEED(target);
	start_receiver(0, arguments);
	start_receiver(1, arguments);
}

int main(int argc, char **argv)
{
	arguments = argv;
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	if (argc > 3) {
		if (setjmp(test_end))
			return 1;
		receive(atoi(argv[3]));
		return 0;
	}
	run("a target of an XRC domain of a file", test_objects);
	run("two other programs open the target", test_start);
	run("both programs receive through the target", test_receivers);
	run("the target is destroyed with its last program", test_last);
	return tear_down();
}
