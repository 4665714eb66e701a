// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * cost.c: measures the cost of post and poll calls in the library without an
 * adapter, in cycles of the time stamp counter and in instructions.
 *
 * The functions of the kernel are replaced by functions here, and the doorbell
 * page is ordinary memory. The program writes completions itself, outside the
 * measured part. The program tools/guest-build-provider --cost builds and runs
 * this file, which prints one line for each call.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#include "../cq.h"
#include "../qp.h"
#include "../srq.h"
#include "../commands.h"

#define QPS 16
/* Calls in a row between two reads of the counter */
#define CALLS 16
#define MOST (16 * CALLS)
#define QUEUE 1024
#define ROUNDS 2001
/*
 * Rounds and messages are few, so that in some rounds both threads have a
 * processor all the time
 */
#define THREAD_ROUNDS 1001
#define THREAD_MESSAGES 2000u

static struct qrnic_context ctx;
static struct ibv_pd *pd;
static struct ibv_srq *srq;
static struct ibv_cq *cq;
static struct ibv_cq_ex *cq_ex;
/*
 * The queue pairs complete to cq, srq_qp receives from the SRQ, and ex_qp
 * completes to cq_ex
 */
static struct ibv_qp *qps[QPS], *srq_qp, *ex_qp;
static struct ibv_wc wcs[16];
static uint8_t payload[32];
static struct ibv_sge sge = { (uintptr_t)payload, sizeof(payload), 1 };
static struct ibv_send_wr sends[MOST];
static struct ibv_recv_wr recvs[MOST];
/* Work requests or completions per call */
static int batch;
/* Slots of the SRQ in posting order, and the number of posted slots */
static uint32_t slots[MOST];
static int slots_out;

static void need(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "qrnic-cost: %s\n", what);
	exit(1);
}

/* Functions of libibverbs that would call the kernel */
int ibv_cmd_create_cq_ex(struct ibv_context *context,
			 const struct ibv_cq_init_attr_ex *attr,
			 struct verbs_cq *vcq, struct ibv_create_cq_ex *cmd,
			 size_t cmd_size,
			 struct ib_uverbs_ex_create_cq_resp *resp,
			 size_t resp_size, uint32_t flags)
{
	vcq->cq.context = context;
	return 0;
}

int ibv_cmd_create_qp_ex2(struct ibv_context *context, struct verbs_qp *vqp,
			  struct ibv_qp_init_attr_ex *attr,
			  struct ibv_create_qp_ex *cmd, size_t cmd_size,
			  struct ib_uverbs_ex_create_qp_resp *resp,
			  size_t resp_size)
{
	static uint32_t number = 16;

	vqp->qp.context = context;
	vqp->qp.qp_type = attr->qp_type;
	vqp->qp.send_cq = attr->send_cq;
	vqp->qp.recv_cq = attr->recv_cq;
	vqp->qp.state = IBV_QPS_RTS;
	vqp->qp.qp_num = ++number;
	return 0;
}

int ibv_cmd_create_srq(struct ibv_pd *ibpd, struct ibv_srq *ibsrq,
		       struct ibv_srq_init_attr *attr,
		       struct ibv_create_srq *cmd, size_t cmd_size,
		       struct ib_uverbs_create_srq_resp *resp, size_t resp_size)
{
	ibsrq->context = ibpd->context;
	container_of(resp, struct qrnic_create_srq_cmd_resp, ibv_resp)->srqn = 1;
	return 0;
}

static struct ibv_qp *make_qp(struct ibv_cq *to, struct ibv_srq *from)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = to, .recv_cq = to, .srq = from,
		.cap = { QUEUE / 2, QUEUE, 2, 2, 64 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp = qrnic_create_qp_ex(&ctx.vctx.context, &attr);

	need(qp, "no queue pair");
	return qp;
}

static void set_up(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = QUEUE, .wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct ibv_srq_init_attr srq_attr = { .attr = { QUEUE - 1, 2, 0 } };
	static struct qrnic_pd domain;
	int i;

	ctx.capabilities = QRNIC_CAP_ALL;
	ctx.page_size = sysconf(_SC_PAGESIZE);
	ctx.max_wqebb = ctx.max_recv = ctx.max_cqe = ctx.max_srq_wr = 1 << 15;
	ctx.max_send_sge = ctx.max_recv_sge = 8;
	ctx.max_inline = 256;
	ctx.db.page = aligned_alloc(ctx.page_size, QRNIC_DB_PAGE_SIZE);
	need(ctx.db.page, "no memory");
	qrnic_lock_init(&ctx.db.window_lock, true);
	pthread_mutex_init(&ctx.qp_mutex, NULL);
	ctx.vctx.context.ops.post_send = qrnic_post_send;
	ctx.vctx.context.ops.post_recv = qrnic_post_recv;
	ctx.vctx.context.ops.post_srq_recv = qrnic_post_srq_recv;
	ctx.vctx.context.ops.poll_cq = qrnic_poll_cq;
	domain.pd.context = &ctx.vctx.context;
	pd = &domain.pd;
	cq = qrnic_create_cq(&ctx.vctx.context, QUEUE, NULL, 0);
	cq_ex = qrnic_create_cq_ex(&ctx.vctx.context, &attr);
	srq = qrnic_create_srq(pd, &srq_attr);
	need(cq && cq_ex && srq, "no queue");
	for (i = 0; i < QPS; i++)
		qps[i] = make_qp(cq, NULL);
	srq_qp = make_qp(cq, srq);
	ex_qp = make_qp(ibv_cq_ex_to_cq(cq_ex), NULL);
	for (i = 0; i < MOST; i++) {
		sends[i] = (struct ibv_send_wr){
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		};
		recvs[i] = (struct ibv_recv_wr){ .sg_list = &sge, .num_sge = 1 };
	}
}

/*
 * Writes a completion as the device does. The argument at is the number of CQEs
 * between the consumer index and this completion.
 */
static void complete(struct qrnic_cq *to, uint32_t at, struct ibv_qp *qp,
		     uint8_t opcode, uint32_t index)
{
	uint32_t place = to->consumer + at;
	struct qrnic_cqe *cqe = &to->ring[place & ((1u << to->log_size) - 1)];
	uint32_t phase = !(place >> to->log_size & 1);

	*cqe = (struct qrnic_cqe){
		.qpn = htole32(qp->qp_num),
		.index = htole32(index),
		.srqn = qp->srq ? htole32(to_qrnic_srq(qp->srq)->srqn) : 0,
	};
	__atomic_store_n(&cqe->control,
			 htole32(FIELD_PREP(QRNIC_CQE_PHASE_MASK, phase) |
				 FIELD_PREP(QRNIC_CQE_OPCODE_MASK, opcode)),
			 __ATOMIC_RELEASE);
}


/* Empties the queues and prepares lists of work requests. */
static void ready_post(void)
{
	struct ibv_qp *const posters[] = { qps[0], ex_qp };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		struct qrnic_qp *qp = to_qrnic_qp(posters[i]);

		atomic_store(&qp->sq.consumer, qp->sq.producer);
		atomic_store(&qp->rq.consumer, qp->rq.producer);
		atomic_store(&qp->sq_retired, qp->sq_posted);
	}
	for (i = 0; i < MOST; i++) {
		bool last = i % batch == (unsigned int)batch - 1;

		sends[i].next = last ? NULL : &sends[i + 1];
		recvs[i].next = last ? NULL : &recvs[i + 1];
		sends[i].send_flags = IBV_SEND_SIGNALED;
	}
}

static void ready_inline(void)
{
	int i;

	ready_post();
	for (i = 0; i < MOST; i++)
		sends[i].send_flags |= IBV_SEND_INLINE;
}

static void run_post_send(void)
{
	struct ibv_send_wr *bad;
	int i;

	for (i = 0; i < CALLS; i++)
		need(!ibv_post_send(qps[0], &sends[i * batch], &bad), "post_send");
}

static void run_wr(void)
{
	struct ibv_qp_ex *qp = &to_qrnic_qp(ex_qp)->vqp.qp_ex;
	int i, j;

	qp->wr_flags = IBV_SEND_SIGNALED;
	for (i = 0; i < CALLS; i++) {
		ibv_wr_start(qp);
		for (j = 0; j < batch; j++) {
			qp->wr_id = j;
			ibv_wr_send(qp);
			ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
		}
		need(!ibv_wr_complete(qp), "wr_complete");
	}
}

static void run_wr_inline(void)
{
	struct ibv_qp_ex *qp = &to_qrnic_qp(ex_qp)->vqp.qp_ex;
	int i;

	qp->wr_flags = IBV_SEND_SIGNALED;
	for (i = 0; i < CALLS; i++) {
		ibv_wr_start(qp);
		qp->wr_id = i;
		ibv_wr_send(qp);
		ibv_wr_set_inline_data(qp, payload, sizeof(payload));
		need(!ibv_wr_complete(qp), "wr_complete");
	}
}

static void run_post_recv(void)
{
	struct ibv_recv_wr *bad;
	int i;

	for (i = 0; i < CALLS; i++)
		need(!ibv_post_recv(qps[0], &recvs[i * batch], &bad), "post_recv");
}

static void run_post_srq_recv(void)
{
	struct ibv_recv_wr *bad;
	int i;

	for (i = 0; i < CALLS; i++)
		need(!ibv_post_srq_recv(srq, &recvs[i * batch], &bad),
		     "post_srq_recv");
}


/* Empties the SRQ. */
static void ready_srq(void)
{
	struct qrnic_srq *qsrq = to_qrnic_srq(srq);
	uint32_t slot;
	int i;

	ready_post();
	for (i = 0; i < slots_out; i++)
		qrnic_srq_take_back(qsrq, slots[i]);
	for (i = 0, slot = qsrq->head; i < MOST; i++, slot = qsrq->next[slot])
		slots[i] = slot;
	slots_out = CALLS * batch;
}

static void ready_poll_empty(void)
{
	/*
	 * Restores the state at the end of a round, in which all work requests
	 * are complete.
	 */
}

static void ready_sends(struct ibv_cq *to, struct ibv_qp *const *from,
			unsigned int number)
{
	struct ibv_send_wr wr = sends[0], *bad;
	unsigned int i;

	wr.next = NULL;
	for (i = 0; i < (unsigned int)(CALLS * batch); i++) {
		struct ibv_qp *qp = from[i % number];
		uint32_t index = to_qrnic_qp(qp)->sq.producer;

		need(!ibv_post_send(qp, &wr, &bad), "post_send before a poll");
		complete(to_qrnic_cq(to), i, qp, QRNIC_CQE_SEND, index);
	}
}

static void ready_poll(void)
{
	ready_sends(cq, qps, 1);
}

static void ready_poll_in_turn(void)
{
	ready_sends(cq, qps, QPS);
}

static void ready_poll_ex(void)
{
	ready_sends(ibv_cq_ex_to_cq(cq_ex), &ex_qp, 1);
}

static void ready_poll_recv(void)
{
	struct ibv_recv_wr wr = recvs[0], *bad;
	int i;

	wr.next = NULL;
	for (i = 0; i < CALLS * batch; i++) {
		need(!ibv_post_recv(qps[0], &wr, &bad), "post_recv before a poll");
		complete(to_qrnic_cq(cq), i, qps[0], QRNIC_CQE_RECV,
			 to_qrnic_qp(qps[0])->rq.producer - 1);
	}
}

static void ready_poll_srq(void)
{
	int i;

	ready_srq();
	run_post_srq_recv();
	for (i = 0; i < CALLS * batch; i++)
		complete(to_qrnic_cq(cq), i, srq_qp, QRNIC_CQE_RECV, slots[i]);
	/* Polling has returned all slots */
	slots_out = 0;
}

static void run_poll(void)
{
	int i;

	for (i = 0; i < CALLS; i++)
		need(ibv_poll_cq(cq, batch, wcs) == batch, "poll_cq");
}

static void run_poll_empty(void)
{
	int i;

	for (i = 0; i < CALLS; i++)
		need(!ibv_poll_cq(cq, batch, wcs), "poll_cq of nothing");
}

static void run_poll_ex(void)
{
	struct ibv_poll_cq_attr attr = {};
	int i, j;

	for (i = 0; i < CALLS; i++) {
		need(!ibv_start_poll(cq_ex, &attr), "start_poll");
		for (j = 0; j < batch; j++) {
			need((!j || !ibv_next_poll(cq_ex)) && !cq_ex->status,
			     "next_poll");
			need(ibv_wc_read_opcode(cq_ex) == IBV_WC_SEND &&
			     !ibv_wc_read_byte_len(cq_ex), "wc_read");
		}
		ibv_end_poll(cq_ex);
	}
}

static void run_nothing(void)
{
}

struct operation {
	const char *name;
	int batch;
	void (*ready)(void);
	void (*run)(void);
};

static const struct operation operations[] = {
	{ "post_send, 1 SGE", 1, ready_post, run_post_send },
	{ "post_send, 32 bytes inline", 1, ready_inline, run_post_send },
	{ "post_send, 1 SGE", 16, ready_post, run_post_send },
	{ "wr_send, 1 SGE", 1, ready_post, run_wr },
	{ "wr_send, 32 bytes inline", 1, ready_post, run_wr_inline },
	{ "wr_send, 1 SGE", 16, ready_post, run_wr },
	{ "post_recv, 1 SGE", 1, ready_post, run_post_recv },
	{ "post_recv, 1 SGE", 16, ready_post, run_post_recv },
	{ "post_srq_recv, 1 SGE", 1, ready_srq, run_post_srq_recv },
	{ "post_srq_recv, 1 SGE", 16, ready_srq, run_post_srq_recv },
	{ "poll_cq, nothing there", 1, ready_poll_empty, run_poll_empty },
	{ "poll_cq, sends", 1, ready_poll, run_poll },
	{ "poll_cq, sends", 16, ready_poll, run_poll },
	{ "poll_cq, sends of 16 QPs alternating", 16, ready_poll_in_turn, run_poll },
	{ "poll_cq, receives", 16, ready_poll_recv, run_poll },
	{ "poll_cq, receives of an SRQ", 1, ready_poll_srq, run_poll },
	{ "poll_cq, receives of an SRQ", 16, ready_poll_srq, run_poll },
	{ "start_poll to end_poll, sends", 1, ready_poll_ex, run_poll_ex },
	{ "start_poll to end_poll, sends", 16, ready_poll_ex, run_poll_ex },
};

static int ascending(const void *a, const void *b)
{
	uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;

	return first < second ? -1 : first > second;
}

static uint64_t cycles(void)
{
	uint64_t now;

	/* The fences keep earlier and later loads out of the measurement */
	_mm_lfence();
	now = __rdtsc();
	_mm_lfence();
	return now;
}

/*
 * Measures a number of rounds and sorts them, so that the first is the shortest
 * and the middle is the median.
 */
static void take_cycles(void (*ready)(void), void (*run)(void),
			uint64_t taken[ROUNDS])
{
	uint64_t start;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		ready();
		start = cycles();
		run();
		taken[i] = cycles() - start;
	}
	qsort(taken, ROUNDS, sizeof(*taken), ascending);
}

/*
 * Counts instructions in another process, which this process single-steps.
 * Returns 0 if the kernel does not allow this.
 */
static uint64_t count_instructions(void (*ready)(void), void (*run)(void))
{
	uint64_t count = 0;
	int status, marks = 0;
	pid_t child = fork();

	if (!child) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0))
			_exit(1);
		/*
		 * The first run resolves the symbols, so the second one is
		 * measured
		 */
		ready();
		run();
		ready();
		raise(SIGUSR1);
		run();
		raise(SIGUSR1);
		_exit(0);
	}
	need(child > 0, "no process");
	while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
		if (WSTOPSIG(status) == SIGUSR1)
			marks++;
		else if (WSTOPSIG(status) != SIGTRAP)
			/*
			 * A fault would repeat forever, so the child is killed
			 */
			kill(child, SIGKILL);
		else if (marks == 1)
			count++;
		ptrace(marks == 1 ? PTRACE_SINGLESTEP : PTRACE_CONT, child, 0, 0);
	}
	return WIFEXITED(status) && !WEXITSTATUS(status) ? count : 0;
}

static void measure(const struct operation *op)
{
	static uint64_t base[ROUNDS], taken[ROUNDS];
	uint64_t instructions, base_instructions;
	double number;

	batch = op->batch;
	number = CALLS * batch;
	take_cycles(run_nothing, run_nothing, base);
	take_cycles(op->ready, op->run, taken);
	instructions = count_instructions(op->ready, op->run);
	base_instructions = count_instructions(run_nothing, run_nothing);
	printf("%-34s %5d %10.1f %10.1f", op->name, batch,
	       (taken[0] - base[0]) / number,
	       (taken[ROUNDS / 2] - base[ROUNDS / 2]) / number);
	if (instructions)
		printf(" %12.1f\n", (instructions - base_instructions) / number);
	else
		printf(" %12s\n", "-");
	fflush(stdout);
}

/* Number of threads that are ready, so that both begin together */
static atomic_int there;

static void meet(void)
{
	atomic_fetch_add(&there, 1);
	while (atomic_load(&there) < 2)
		_mm_pause();
}

/* Posts as fast as the queue has space. */
static void *post_all(void *arg)
{
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	uint32_t i;

	meet();
	for (i = 0; i < THREAD_MESSAGES;)
		if (!ibv_post_send(qps[0], &wr, &bad))
			i++;
		else
			_mm_pause();
	return NULL;
}

/*
 * Measures two threads: one posts, and the other acts as the device and polls.
 */
static uint64_t two_threads(void)
{
	struct qrnic_qp *qp = to_qrnic_qp(qps[0]);
	uint32_t done = qp->sq.producer, end = done + THREAD_MESSAGES;
	pthread_t poster;
	uint64_t start;

	atomic_store(&there, 0);
	need(!pthread_create(&poster, NULL, post_all, NULL), "no thread");
	meet();
	start = cycles();
	while (done != end) {
		uint32_t to = le32toh(__atomic_load_n(&qp->sq.record->producer,
						      __ATOMIC_ACQUIRE));
		int i, number = to - done < 16 ? to - done : 16;

		for (i = 0; i < number; i++)
			complete(to_qrnic_cq(cq), i, qps[0], QRNIC_CQE_SEND,
				 done + i);
		need(ibv_poll_cq(cq, 16, wcs) == number, "poll_cq of a thread");
		done += number;
	}
	start = cycles() - start;
	pthread_join(poster, NULL);
	return start;
}

static void measure_threads(void)
{
	uint64_t taken[THREAD_ROUNDS];
	int i;

	batch = 1;
	ready_post();
	for (i = 0; i < THREAD_ROUNDS; i++)
		taken[i] = two_threads();
	qsort(taken, THREAD_ROUNDS, sizeof(*taken), ascending);
	printf("%-34s %5d %10.1f %10.1f %12s\n",
	       "post_send and poll_cq, two threads", 1,
	       taken[0] / (double)THREAD_MESSAGES,
	       taken[THREAD_ROUNDS / 2] / (double)THREAD_MESSAGES, "-");
}

int main(void)
{
	unsigned int i;

	set_up();
	batch = 1;
	ready_post();
	printf("%-34s %5s %10s %10s %12s\n", "for each work request, completion",
	       "batch", "cycles min", "median", "instructions");
	for (i = 0; i < sizeof(operations) / sizeof(*operations); i++)
		measure(&operations[i]);
	measure_threads();
	return 0;
}
