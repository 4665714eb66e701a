// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * sharing-test.c: tests connections that share another connection by ECE,
 * without support of the program: offered and answered numbers, and errors. Two
 * contexts represent two processes.
 *
 * The arguments are the adapter and the index of the GID. A third argument is
 * the index of a GID with another address, or "loop". With "loop" the program
 * sends until it is killed, also when the device is removed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define NUMBER(ece) ((ece) >> 8)
#define OFFER QRNIC_ECE_SHARE_OFFER
#define ANSWER QRNIC_ECE_SHARE_ANSWER

/* Context that acts as the other process */
static struct ibv_context *other;
static int other_gid_index = -1;

/* A queue pair of a process and its objects */
struct end {
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	/* Offset of this end's half of the buffer */
	size_t at;
};

static struct end end_in(struct ibv_context *process, size_t at)
{
	struct end e = { .at = at };
	struct ibv_qp_init_attr attr = {
		.cap = { 16, 16, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	e.pd = ibv_alloc_pd(process);
	e.cq = ibv_create_cq(process, 64, NULL, NULL, 0);
	CHECK(e.pd && e.cq);
	e.mr = ibv_reg_mr(e.pd, buffer, BUFFER_SIZE,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ);
	attr.send_cq = attr.recv_cq = e.cq;
	e.qp = ibv_create_qp(e.pd, &attr);
	CHECK(e.mr && e.qp);
	return e;
}

static void end_free(struct end *e)
{
	CHECK(!ibv_destroy_qp(e->qp) && !ibv_destroy_cq(e->cq) &&
	      !ibv_dereg_mr(e->mr) && !ibv_dealloc_pd(e->pd));
}

static uint32_t query(struct end *e)
{
	struct ibv_ece ece = { .comp_mask = ~0u };

	CHECK(!ibv_query_ece(e->qp, &ece));
	CHECK(ece.vendor_id == QRNIC_ECE_VENDOR_ID && !ece.comp_mask);
	return ece.options;
}

static void set(struct end *e, uint32_t options)
{
	struct ibv_ece ece = { .vendor_id = QRNIC_ECE_VENDOR_ID,
			       .options = options };

	CHECK(!ibv_set_ece(e->qp, &ece));
}

static uint32_t offered_by(struct end *e)
{
	uint32_t options = query(e);

	CHECK(options & OFFER && !(options & ANSWER) && NUMBER(options));
	CHECK(query(e) == options);
	return options;
}

static uint32_t answered_by(struct end *e, uint32_t offer)
{
	uint32_t options;

	set(e, offer);
	options = query(e);
	CHECK(options & ANSWER && !(options & OFFER) && NUMBER(options));
	CHECK(query(e) == options);
	return options;
}

/*
 * Returns the number of packets in packets of carriers, after a wait, because
 * the kernel may return a value that is 10 ms old.
 */
static uint64_t inner_packets(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
	return read_counter(ibv_get_device_name(context->device),
			    "hw_counters/tx_inner");
}

/*
 * Exchanges options as the connection manager does: the end that connects
 * offers, and its peer answers.
 */
static uint32_t agree(struct end *asks, struct end *answers)
{
	uint32_t answer = answered_by(answers, offered_by(asks));

	CHECK(!to_init(asks->qp) && !to_init(answers->qp));
	CHECK(!to_rtr(answers->qp, asks->qp->qp_num) && !to_rts(answers->qp));
	set(asks, answer);
	CHECK(query(asks) == answer);
	return answer;
}

static uint32_t connect_ends(struct end *asks, struct end *answers)
{
	uint32_t answer = agree(asks, answers);

	CHECK(!to_rtr(asks->qp, answers->qp->qp_num) && !to_rts(asks->qp));
	return answer;
}

static enum ibv_wc_status write_to(struct end *from, struct end *to, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)buffer + from->at, length, from->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { (uintptr_t)buffer + to->at, to->mr->rkey },
	}, *bad;
	static uint32_t seed;
	struct ibv_wc wc;

	fill(from->at, length, ++seed);
	CHECK(!ibv_post_send(from->qp, &wr, &bad));
	CHECK(poll_one(from->cq, &wc) == 1);
	CHECK(wc.status ||
	      !memcmp(buffer + from->at, buffer + to->at, length));
	return wc.status;
}

/*
 * Checks writes in both directions. The answering end writes first, because it
 * does not know its peer's number.
 */
static void works(struct end *asks, struct end *answers)
{
	CHECK(!write_to(answers, asks, 9000));
	CHECK(!write_to(asks, answers, 9000));
}

static void test_offers(void)
{
	struct end one = end_in(context, 0), two = end_in(context, 0);
	struct end alien = end_in(other, 0);

	CHECK(offered_by(&one) == offered_by(&two));
	CHECK(NUMBER(offered_by(&one)) != NUMBER(offered_by(&alien)));
	end_free(&one);
	end_free(&two);
	end_free(&alien);
}

static void test_options(void)
{
	struct end one = end_in(context, 0), two = end_in(context, 0);
	struct end answers = end_in(other, HALF);
	uint32_t selective;

	NEED(capabilities & QRNIC_CAP_SELECTIVE_REPEAT);
	selective = answered_by(&answers, 0x12345600 | OFFER |
				QRNIC_QPO_SELECTIVE_REPEAT |
				QRNIC_QPO_ADAPTIVE_ROUTING);
	CHECK((selective & 0xff) == (ANSWER | QRNIC_QPO_SELECTIVE_REPEAT));
	CHECK(!(answered_by(&two, 0x65432100 | OFFER) & QRNIC_QPO_SELECTIVE_REPEAT));
	/*
	 * A queue pair with this option offers another number, because its
	 * carriers are different
	 */
	set(&one, QRNIC_QPO_SELECTIVE_REPEAT);
	CHECK(query(&one) == QRNIC_QPO_SELECTIVE_REPEAT);
	end_free(&one);
	end_free(&two);
	end_free(&answers);
}

static void test_answers(void)
{
	struct end one = end_in(context, 0), two = end_in(other, 0), three;
	uint32_t answer = answered_by(&one, 0xabcdef00 | OFFER);

	CHECK(answered_by(&two, 0xabcdef00 | OFFER) == answer);
	end_free(&one);
	three = end_in(context, 0);
	CHECK(answered_by(&three, 0xabcdef00 | OFFER) == answer);
	CHECK(NUMBER(answered_by(&three, 0xabcdee00 | OFFER)) != NUMBER(answer));
	end_free(&three);
	end_free(&two);
	/*
	 * The number is unused. The new number must differ from the old one,
	 * because the peer's carrier would otherwise mistake the new carrier
	 * for the old one
	 */
	one = end_in(context, 0);
	CHECK(NUMBER(answered_by(&one, 0xabcdef00 | OFFER)) != NUMBER(answer));
	end_free(&one);
}

/*
 * Tests many connections of one process to two others, which need one carrier
 * at each end.
 */
static void test_connections(void)
{
	struct end asks[8], answers[8];
	uint64_t before, after;
	uint32_t answer = 0;

	before = inner_packets();
	for (unsigned int i = 0; i < 8; i++) {
		asks[i] = end_in(context, 0);
		answers[i] = end_in(i % 2 ? context : other, HALF);
		if (!i)
			answer = connect_ends(&asks[i], &answers[i]);
		else
			CHECK(connect_ends(&asks[i], &answers[i]) == answer);
		works(&asks[i], &answers[i]);
	}
	after = inner_packets();
	/*
	 * Each write has 9 packets and at least one ACK; there is one
	 * introduction
	 */
	CHECK(after - before >= 8 * 2 * 10 + 1);
	for (unsigned int i = 0; i < 4; i++)
		end_free(&asks[i]);
	for (unsigned int i = 4; i < 8; i++)
		works(&asks[i], &answers[i]);
	for (unsigned int i = 0; i < 8; i++)
		end_free(&answers[i]);
	for (unsigned int i = 4; i < 8; i++)
		end_free(&asks[i]);
}

/* Tests that a connection is not shared if only one end requests sharing. */
static void test_declined(void)
{
	struct end one = end_in(context, 0), two = end_in(other, HALF);
	uint64_t before, after;

	before = inner_packets();
	offered_by(&one);
	set(&two, 0);
	set(&one, 0);
	CHECK(!query(&one) && !query(&two));
	CHECK(!to_init(one.qp) && !to_init(two.qp));
	CHECK(!to_rtr(one.qp, two.qp->qp_num) && !to_rts(one.qp));
	CHECK(!to_rtr(two.qp, one.qp->qp_num) && !to_rts(two.qp));
	works(&one, &two);
	after = inner_packets();
	CHECK(before == after);
	end_free(&one);
	end_free(&two);
}

/* Tests unrequested answers and invalid numbers, which are ignored. */
static void test_unasked(void)
{
	struct end one = end_in(context, 0);
	struct ibv_ece alien = { .vendor_id = 0x15b3, .options = 0x12345600 | OFFER };

	set(&one, 0x12345600 | ANSWER);
	CHECK(!query(&one));
	set(&one, OFFER);
	CHECK(!query(&one));
	set(&one, 0x12345600 | OFFER | ANSWER);
	CHECK(!query(&one));
	CHECK(!ibv_set_ece(one.qp, &alien));
	CHECK(!query(&one));
	end_free(&one);
	/*
	 * The accepting end ignores an unrequested answer too, in RESET after a
	 * query of its own options
	 */
	one = end_in(context, 0);
	offered_by(&one);
	set(&one, 0x12345600 | ANSWER);
	CHECK(!query(&one));
	end_free(&one);
}

/* Tests that a connected queue pair gets no second carrier. */
static void test_twice(void)
{
	struct end one = end_in(context, 0), two = end_in(other, HALF);

	connect_ends(&one, &two);
	CHECK(to_rtr(one.qp, two.qp->qp_num) == EINVAL);
	works(&one, &two);
	end_free(&one);
	end_free(&two);
}

/* Tests that a process offers another number after a failed connection. */
static void test_refused(void)
{
	struct end one = end_in(context, 0), two = end_in(context, 0), three;
	uint32_t offer = offered_by(&one);

	CHECK(offered_by(&two) == offer);
	CHECK(!to_init(one.qp) && !to_state(one.qp, IBV_QPS_ERR));
	three = end_in(context, 0);
	CHECK(NUMBER(offered_by(&three)) != NUMBER(offer));
	end_free(&one);
	end_free(&two);
	end_free(&three);
}

/*
 * Tests an answer with a number that is no carrier, or a carrier of another
 * process. The connection fails, and the next offer has another number.
 */
static void test_forged(void)
{
	struct end one = end_in(context, 0), two = end_in(other, HALF), three;
	uint32_t offer = offered_by(&one);

	CHECK(!to_init(one.qp) && !to_init(two.qp));
	set(&two, 0);
	CHECK(!to_rtr(two.qp, one.qp->qp_num) && !to_rts(two.qp));
	set(&one, two.qp->qp_num << 8 | ANSWER);
	CHECK(!to_rtr(one.qp, two.qp->qp_num) && !to_rts(one.qp));
	CHECK(write_to(&one, &two, 10) == IBV_WC_RETRY_EXC_ERR);
	three = end_in(context, 0);
	CHECK(NUMBER(offered_by(&three)) != NUMBER(offer));
	end_free(&three);
	end_free(&one);
	end_free(&two);
}

/*
 * Tests that the answering process has ended, and its carrier with it. The
 * process that connects notices this only when it sends. A next connection must
 * work both before and after this process has noticed the end.
 */
static void test_gone(void)
{
	struct end one = end_in(context, 0), two = end_in(other, HALF), three, four;
	struct end five, six;
	uint32_t offer = offered_by(&one), answer = connect_ends(&one, &two);

	works(&one, &two);
	end_free(&two);
	/*
	 * The device has not yet noticed the end of the process, so the same
	 * offer gets another answer
	 */
	three = end_in(context, 0);
	four = end_in(other, HALF);
	CHECK(offered_by(&three) == offer);
	CHECK(NUMBER(connect_ends(&three, &four)) != NUMBER(answer));
	works(&three, &four);
	CHECK(write_to(&one, &four, 10) == IBV_WC_RETRY_EXC_ERR);
	works(&three, &four);
	five = end_in(context, 0);
	six = end_in(other, HALF);
	CHECK(NUMBER(offered_by(&five)) != NUMBER(offer));
	connect_ends(&five, &six);
	works(&five, &six);
	works(&three, &four);
	end_free(&one);
	end_free(&three);
	end_free(&four);
	end_free(&five);
	end_free(&six);
}

/*
 * Tests that a queue pair has its own connection after RESET, unless both ends
 * agree on sharing again.
 */
static void test_reset(void)
{
	struct end one = end_in(context, 0), two = end_in(other, HALF);

	connect_ends(&one, &two);
	works(&one, &two);
	for (unsigned int i = 0; i < 2; i++)
		CHECK(!to_state(i ? two.qp : one.qp, IBV_QPS_RESET));
	connect_ends(&one, &two);
	works(&one, &two);
	for (unsigned int i = 0; i < 2; i++)
		CHECK(!to_state(i ? two.qp : one.qp, IBV_QPS_RESET));
	CHECK(!to_init(one.qp) && !to_init(two.qp));
	CHECK(!to_rtr(one.qp, two.qp->qp_num) && !to_rts(one.qp));
	CHECK(!to_rtr(two.qp, one.qp->qp_num) && !to_rts(two.qp));
	works(&one, &two);
	end_free(&one);
	end_free(&two);
}

/* Tests that the carrier of the answering end leads to only one address. */
static void test_other_path(void)
{
	struct end one = end_in(context, 0), two = end_in(other, HALF);
	struct end three = end_in(context, 0), four = end_in(other, HALF);
	int own = gid_index;
	union ibv_gid own_gid = gid;

	NEED(other_gid_index >= 0);
	connect_ends(&one, &two);
	answered_by(&four, offered_by(&three));
	CHECK(!to_init(four.qp));
	gid_index = other_gid_index;
	CHECK(!ibv_query_gid(context, 1, gid_index, &gid));
	errno = 0;
	CHECK(to_rtr(four.qp, three.qp->qp_num) == EADDRNOTAVAIL);
	works(&one, &two);
	CHECK(!to_init(three.qp) && !to_state(three.qp, IBV_QPS_ERR));
	end_free(&three);
	end_free(&four);
	three = end_in(context, 0);
	four = end_in(other, HALF);
	connect_ends(&three, &four);
	works(&three, &four);
	gid_index = own;
	gid = own_gid;
	works(&one, &two);
	end_free(&three);
	end_free(&four);
	end_free(&one);
	end_free(&two);
}

/*
 * Answers the offer of another process, which then connects over the path of
 * gid_index.
 */
static uint32_t answer_other_path(struct end *e, uint32_t offer, int path)
{
	int own = gid_index;
	union ibv_gid own_gid = gid;
	uint32_t answer = answered_by(e, offer);
	int err;

	gid_index = path;
	CHECK(!ibv_query_gid(context, 1, gid_index, &gid));
	CHECK(!to_init(e->qp));
	err = to_rtr(e->qp, 1);
	gid_index = own;
	gid = own_gid;
	CHECK(!err);
	return answer;
}

static void become_other_user(void)
{
	CHECK(!setresuid(65534, 65534, 65534));
}

static void become_other_network(void)
{
	CHECK(!unshare(CLONE_NEWNET));
}

/*
 * Tests a process that knows the number of an offer, answers it first, and
 * connects its carrier to another address. Processes of another user, or in
 * another network namespace, must not be affected. The connections of those
 * processes work, because they have another carrier.
 */
static void test_stranger(void (*become_stranger)(void))
{
	struct end one = end_in(context, 0), two = end_in(other, HALF);
	uint32_t offer = offered_by(&one), answer, foreign = 0;
	int there[2], here[2], status;
	struct end stranger;
	pid_t process;

	/* The other process already has its answer */
	answer = answered_by(&two, offer);
	CHECK(!pipe(there) && !pipe(here));
	fflush(stdout);
	process = fork();
	CHECK(process >= 0);
	if (!process) {
		if (!setjmp(test_end)) {
			close(here[1]);
			close(there[0]);
			become_stranger();
			CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
			context = ibv_open_device(context->device);
			CHECK(context);
			stranger = end_in(context, 0);
			foreign = answer_other_path(&stranger, offer, other_gid_index);
			CHECK(write(there[1], &foreign, sizeof(foreign)) ==
			      sizeof(foreign));
			CHECK(read(here[0], &foreign, 1) == 0);
			end_free(&stranger);
			exit(0);
		}
		exit(1);
	}
	close(there[1]);
	close(here[0]);
	CHECK(read(there[0], &foreign, sizeof(foreign)) == sizeof(foreign));
	CHECK(NUMBER(foreign) != NUMBER(answer));
	CHECK(!to_init(one.qp) && !to_init(two.qp));
	CHECK(!to_rtr(two.qp, one.qp->qp_num) && !to_rts(two.qp));
	set(&one, answer);
	CHECK(!to_rtr(one.qp, two.qp->qp_num) && !to_rts(one.qp));
	works(&one, &two);
	close(here[1]);
	close(there[0]);
	CHECK(waitpid(process, &status, 0) == process && !status);
	end_free(&one);
	end_free(&two);
}

static void test_other_user(void)
{
	test_stranger(become_other_user);
}

static void test_other_network(void)
{
	test_stranger(become_other_network);
}

/*
 * Moves a queue pair to RTR over the path of gid_index, with a wrong attribute.
 */
static int to_rtr_wrong(struct ibv_qp *qp, enum ibv_mtu mtu, int without)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu,
		.dest_qp_num = 1,
		.max_dest_rd_atomic = rd_atomic,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .sgid_index = other_gid_index, .hop_limit = 1 },
		},
	};

	CHECK(!ibv_query_gid(context, 1, other_gid_index, &attr.ah_attr.grh.dgid));
	return ibv_modify_qp(qp, &attr, (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC |
					 IBV_QP_MIN_RNR_TIMER) & ~without);
}

/*
 * Tests that a failed modify call leaves the carrier of the answer without a
 * path.
 */
static void test_failed_modify(void)
{
	struct end one = end_in(context, 0), two = end_in(other, HALF);
	uint32_t answer = answered_by(&two, offered_by(&one));

	CHECK(!to_init(one.qp) && !to_init(two.qp));
	/* The driver rejects the call because an attribute is missing */
	CHECK(to_rtr_wrong(two.qp, IBV_MTU_1024, IBV_QP_RQ_PSN) == EINVAL);
	/*
	 * The device rejects the call because the carrier has a smaller path
	 * MTU
	 */
	CHECK(to_rtr_wrong(two.qp, IBV_MTU_4096, 0) == EINVAL);
	CHECK(!to_rtr(two.qp, one.qp->qp_num) && !to_rts(two.qp));
	set(&one, answer);
	/*
	 * The end that offered must not keep a carrier without members either
	 */
	CHECK(to_rtr_wrong(one.qp, IBV_MTU_4096, 0) == EINVAL);
	CHECK(!to_rtr(one.qp, two.qp->qp_num) && !to_rts(one.qp));
	works(&one, &two);
	end_free(&one);
	end_free(&two);
}

static void *query_always(void *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	for (;;) {
		ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
		pthread_testcancel();
	}
	return NULL;
}

/*
 * Tests that no answer is given while another thread uses the queue pair,
 * because an answer changes the queue pair. The connection then has its own
 * path.
 */
static void test_exclusive(void)
{
	struct end one = end_in(context, 0);
	uint64_t end = now_ms() + patience_ms();
	struct ibv_ece ece;
	pthread_t thread;

	/*
	 * The test ends here with a real-time scheduler, because there the two
	 * threads do not preempt each other
	 */
	if (sched_getscheduler(0) != SCHED_OTHER) {
		end_free(&one);
		return;
	}
	CHECK(!pthread_create(&thread, NULL, query_always, one.qp));
	do {
		set(&one, 0x12345600 | OFFER);
		ece = (struct ibv_ece){};
		CHECK(!ibv_query_ece(one.qp, &ece));
	} while (ece.options & ANSWER && now_ms() < end);
	CHECK(!pthread_cancel(thread) && !pthread_join(thread, NULL));
	CHECK(!(ece.options & ANSWER));
	answered_by(&one, 0x12345600 | OFFER);
	end_free(&one);
}

/*
 * Tests that two processes with the same number and different addresses both
 * get an answer.
 */
static void test_same_number(void)
{
	struct end one = end_in(other, HALF), two = end_in(context, 0), three;
	const uint32_t offer = 0x77777700 | OFFER;
	uint32_t answer = answer_other_path(&one, offer, other_gid_index);

	CHECK(answered_by(&two, offer) == answer);
	CHECK(!to_init(two.qp));
	CHECK(to_rtr(two.qp, 1) == EADDRNOTAVAIL);
	three = end_in(context, 0);
	CHECK(NUMBER(answered_by(&three, offer)) != NUMBER(answer));
	CHECK(!to_init(three.qp) && !to_rtr(three.qp, 1));
	end_free(&one);
	end_free(&two);
	end_free(&three);
}

/* Tests that only reliable connections offer and answer. */
static void test_types(void)
{
	struct ibv_ece ece = { .vendor_id = QRNIC_ECE_VENDOR_ID };
	struct ibv_qp_cap cap = { 4, 4, 1, 1, 0 };
	struct pair p = { .type = IBV_QPT_UC };

	NEED(capabilities & QRNIC_CAP_UC);
	CHECK(!pair_make_as(&p, &cap, 0));
	CHECK(ibv_query_ece(p.qp[0], &ece) == EOPNOTSUPP);
	CHECK(!pair_free(&p));
}

/* Sends until the device is removed, and then waits to be killed. */
static void endless(void)
{
	struct end asks[4], answers[4];

	for (unsigned int i = 0; i < 4; i++) {
		asks[i] = end_in(context, 0);
		answers[i] = end_in(i % 2 ? context : other, HALF);
		connect_ends(&asks[i], &answers[i]);
	}
	printf("# loop\n");
	fflush(stdout);
	for (unsigned int i = 0; !write_to(&asks[i], &answers[i], 9000) &&
				 !write_to(&answers[i], &asks[i], 9000);)
		i = (i + 1) % 4;
}

int main(int argc, char **argv)
{
	setenv("QRNIC_SHARED_CONNECTION", "1", 1);
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	if (argc > 3 && strcmp(argv[3], "loop"))
		other_gid_index = atoi(argv[3]);
	other = ibv_open_device(context->device);
	if (!other) {
		printf("Bail out! the adapter cannot be opened twice\n");
		return 2;
	}
	if (argc > 3 && other_gid_index < 0) {
		if (!setjmp(test_end))
			endless();
		fflush(stdout);
		for (;;)
			pause();
	}
	if (capabilities & QRNIC_CAP_SHARED_CONNECTION) {
		run("a process offers the number of its carrier", test_offers);
		run("options of the carriers", test_options);
		run("a node answers an offered number with one carrier", test_answers);
		run("connections of three processes share a connection", test_connections);
		run("a declined offer", test_declined);
		run("unrequested answers", test_unasked);
		run("no second carrier for a connected queue pair", test_twice);
		run("a failed connection", test_refused);
		run("no answer for a queue pair in use", test_exclusive);
		run("a forged answer", test_forged);
		run("the answering process has ended", test_gone);
		run("a new connection after RESET", test_reset);
		run("another path", test_other_path);
		if (other_gid_index >= 0) {
			run("another user answers first", test_other_user);
			run("another network namespace answers first",
			    test_other_network);
			run("a modify call that fails", test_failed_modify);
			run("the same number from two addresses", test_same_number);
		}
		run("other types of queue pairs", test_types);
	}
	if (ibv_close_device(other))
		return 1;
	return tear_down();
}
