// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * shared-hosts-test.c: tests shared connections between two hosts. All
 * processes of one host communicate with all processes of the other. Each
 * process of the first host has one shared connection to a process of the
 * second host. All processes there have members of it.
 *
 * The arguments are the adapter, the index of the GID and the number of
 * processes, and for the second host the name of the first.
 */
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define PORT "18612"
#define MOST 8
#define ROUNDS 20u
/*
 * Layout of the memory of a connection: writes of two rounds, sends, and the
 * source of reads
 */
#define PLACE 16384u
#define SEND_AT 8192u
#define SOURCE_AT 12288u
#define SUM_AT (PLACE - 8)
#define LONGEST 4096u
#define OPERATIONS 4

struct address {
	union ibv_gid gid;
	uint64_t start;
	uint32_t rkey;
	uint32_t carrier;
	uint32_t members[MOST];
};

/* Memory that the processes of a host share */
struct shared {
	pthread_barrier_t barrier;
	struct address here[MOST];	/* Addresses, one for each process */
	struct address there[MOST];
	/* Keys of the carriers, which must not leave the host */
	uint64_t keys[MOST];
	/* Counts completions and meetings of all processes of this host */
	atomic_uint progress;
	atomic_uint good;
};

struct connection {
	struct ibv_qp *qp;
	unsigned int round, sent, received;
};

static struct shared *shared;
static unsigned int processes, rank;
static bool first;
static const char *device;
/*
 * One stream for each direction, because a stream that has read data ahead must
 * not block writes
 */
static FILE *from_other, *to_other;
static struct ibv_cq *cq;
static struct ibv_qp *carrier;
static struct connection connections[MOST];

/*
 * Waits until all processes of the host, and the process that exchanges data
 * with the other host, are here.
 */
static void together(void)
{
	shared->progress++;
	pthread_barrier_wait(&shared->barrier);
}

/* Ends the process if no process of this host made progress since the last alarm. */
static void alarmed(int number)
{
	static unsigned int last;
	unsigned int now = shared->progress;

	if (now == last) {
		signal(number, SIG_DFL);
		raise(number);
	}
	last = now;
	alarm(patience_ms() / 1000 * 2);
}

/*
 * Limits the time without progress. The limit is necessary, because the other
 * processes wait for a process that has failed. The whole time has no limit: it
 * depends on the lost packets and on the host.
 */
static void limit_start(void)
{
	struct sigaction action = { .sa_handler = alarmed, .sa_flags = SA_RESTART };

	sigaction(SIGALRM, &action, NULL);
	alarm(patience_ms() / 1000 * 2);
}

/*
 * Returns an address in the memory of a process. One half is for received data,
 * and one half for sent data, with a place for each process of the other host.
 */
static uint8_t *in(unsigned int peer, size_t at)
{
	return buffer + peer * PLACE + at;
}

static uint8_t *out(unsigned int peer, size_t at)
{
	return in(peer, at) + HALF;
}

/* Fills in data that differs for each connection, host and round. */
static void pattern(uint8_t *bytes, uint32_t length, bool from_first,
		    unsigned int of_first, unsigned int of_second, uint32_t round)
{
	uint32_t seed = ((round * MOST + of_first) * MOST + of_second) * 2 + from_first;

	while (length--)
		*bytes++ = (seed = seed * 1103515245 + 12345) >> 16;
}

static void pattern_of(uint8_t *bytes, uint32_t length, bool from_here,
		       unsigned int peer, uint32_t round)
{
	pattern(bytes, length, from_here == first, first ? rank : peer,
		first ? peer : rank, round);
}

static bool same(const uint8_t *bytes, uint32_t length, unsigned int peer,
		 uint32_t round)
{
	uint8_t expected[LONGEST];

	pattern_of(expected, length, false, peer, round);
	return !memcmp(bytes, expected, length);
}

static uint32_t length_of(uint32_t round)
{
	return 1 + round * 811 % LONGEST;
}

static struct ibv_qp_attr path_to(const struct address *peer, uint32_t number)
{
	return (struct ibv_qp_attr){
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = number,
		.qp_access_flags = remote_rights(),
		.max_rd_atomic = rd_atomic,
		.max_dest_rd_atomic = rd_atomic,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = peer->gid, .sgid_index = gid_index,
				 .hop_limit = 64 },
		},
	};
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr attr,
		   enum ibv_qp_state state, int mask)
{
	attr.qp_state = state;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask));
}

static void carrier_make(void)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_CARRIER,
	};
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct address *own = &shared->here[rank];

	carrier = qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));
	CHECK(carrier && dv.carrier.key);
	shared->keys[rank] = dv.carrier.key;
	own->carrier = carrier->qp_num;
	own->gid = gid;
	own->start = (uintptr_t)buffer;
	own->rkey = mr->rkey;
}

static void carrier_connect(void)
{
	const struct address *peer = &shared->there[rank];
	/*
	 * One of the two carriers does not get the number of its peer, and
	 * learns it from the first packet
	 */
	struct ibv_qp_attr attr = path_to(peer, first ? peer->carrier : 0);

	modify(carrier, attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	modify(carrier, attr, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU |
	       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	modify(carrier, attr, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
	       IBV_QP_RETRY_CNT);
}

/*
 * Creates a member. On the first host it uses the carrier of its own process,
 * and on the second host the carrier that belongs to the peer.
 */
static void member_make(unsigned int peer)
{
	unsigned int owner = first ? rank : peer;
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_CARRIER,
		.carrier = { .key = shared->keys[owner],
			     .number = shared->here[owner].carrier },
	};
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { 32, 4, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));

	CHECK(qp);
	connections[peer].qp = qp;
	shared->here[rank].members[peer] = qp->qp_num;
}

static void receive(unsigned int peer)
{
	struct ibv_sge sge = { (uintptr_t)in(peer, SEND_AT), LONGEST, mr->lkey };

	CHECK(!recv_one(connections[peer].qp, &sge, 1, peer));
}

static void member_connect(unsigned int peer)
{
	const struct address *to = &shared->there[peer];
	struct ibv_qp_attr attr = path_to(to, to->members[rank]);
	struct ibv_qp *qp = connections[peer].qp;

	modify(qp, attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	       IBV_QP_ACCESS_FLAGS);
	modify(qp, attr, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU |
	       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	       IBV_QP_MIN_RNR_TIMER);
	modify(qp, attr, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
	       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	receive(peer);
	pattern_of(out(peer, SOURCE_AT), LONGEST - 8, true, peer, ROUNDS);
}

static void post(unsigned int peer, enum ibv_wr_opcode opcode, uint8_t *from,
		 uint32_t length, uint64_t to)
{
	const struct address *there = &shared->there[peer];
	struct ibv_sge sge = { (uintptr_t)from, length, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = peer,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = there->start + to;
		wr.wr.atomic.rkey = there->rkey;
		wr.wr.atomic.compare_add = rank + 1;
	} else {
		wr.wr.rdma.remote_addr = there->start + to;
		wr.wr.rdma.rkey = there->rkey;
	}
	CHECK(!ibv_post_send(connections[peer].qp, &wr, &bad));
}

/*
 * Posts a write, a read, an atomic and a send, which announces the write. The
 * place of this round has data of two rounds ago. The peer has checked this
 * data, because otherwise it would not have sent the message that this end has
 * received since.
 */
static void round_begin(unsigned int peer)
{
	uint32_t round = connections[peer].round, length = length_of(round);
	uint64_t there = rank * PLACE;

	pattern_of(out(peer, 0), length, true, peer, round);
	memcpy(out(peer, SEND_AT), out(peer, 0), length);
	post(peer, IBV_WR_RDMA_WRITE, out(peer, 0), length,
	     there + round % 2 * LONGEST);
	post(peer, IBV_WR_RDMA_READ, in(peer, SOURCE_AT), LONGEST - 8,
	     HALF + there + SOURCE_AT);
	if (capabilities & QRNIC_CAP_ATOMIC)
		post(peer, IBV_WR_ATOMIC_FETCH_AND_ADD, in(peer, SUM_AT), 8,
		     HALF + there + SUM_AT);
	post(peer, IBV_WR_SEND, out(peer, SEND_AT), length, 0);
}

static unsigned int operations(void)
{
	return capabilities & QRNIC_CAP_ATOMIC ? OPERATIONS : OPERATIONS - 1;
}

static void received(unsigned int peer, const struct ibv_wc *wc)
{
	uint32_t round = connections[peer].received++, length = length_of(round);

	CHECK(wc->byte_len == length);
	CHECK(same(in(peer, SEND_AT), length, peer, round));
	CHECK(same(in(peer, round % 2 * LONGEST), length, peer, round));
	if (round + 1 < ROUNDS)
		receive(peer);
}

static void round_end(unsigned int peer)
{
	struct connection *c = &connections[peer];
	uint64_t sum;

	CHECK(same(in(peer, SOURCE_AT), LONGEST - 8, peer, ROUNDS));
	memset(in(peer, SOURCE_AT), 0, LONGEST - 8);
	memcpy(&sum, in(peer, SUM_AT), 8);
	CHECK(!(capabilities & QRNIC_CAP_ATOMIC) ||
	      sum == (uint64_t)c->round * (rank + 1));
	c->round++;
	c->sent = 0;
	if (c->round < ROUNDS)
		round_begin(peer);
}

static void traffic(void)
{
	unsigned int peer, left = processes;
	struct connection *c;
	struct ibv_wc wc;

	for (peer = 0; peer < processes; peer++)
		round_begin(peer);
	while (left) {
		CHECK(poll_one(cq, &wc) == 1);
		if (wc.status)
			printf("# %s, vendor %u\n", ibv_wc_status_str(wc.status),
			       wc.vendor_err);
		CHECK(!wc.status && wc.wr_id < processes);
		shared->progress++;
		c = &connections[wc.wr_id];
		CHECK(wc.qp_num == c->qp->qp_num);
		if (wc.opcode & IBV_WC_RECV)
			received(wc.wr_id, &wc);
		else
			c->sent++;
		/*
		 * The next round begins only when the message of the peer has
		 * arrived, because both ends reuse the memory of the round
		 */
		if (c->round < ROUNDS && c->sent == operations() &&
		    c->received > c->round) {
			round_end(wc.wr_id);
			left -= c->round == ROUNDS;
		}
	}
}

static void process(void)
{
	unsigned int peer;

	cq = ibv_create_cq(context, 512, NULL, NULL, 0);
	CHECK(cq);
	carrier_make();
	together();
	together();
	carrier_connect();
	for (peer = 0; peer < processes; peer++)
		member_make(peer);
	together();
	together();
	for (peer = 0; peer < processes; peer++)
		member_connect(peer);
	together();
	together();
	traffic();
	together();
	together();
	/*
	 * Some carriers of the second host are destroyed before members of
	 * other processes
	 */
	CHECK(!ibv_destroy_qp(carrier));
	for (peer = 0; peer < processes; peer++)
		CHECK(!ibv_destroy_qp(connections[peer].qp));
	CHECK(!ibv_destroy_cq(cq));
	shared->good++;
}

static void __attribute__((noreturn)) child(char **argv)
{
	if (set_up(3, argv)) {
		printf("# process %u: no usable adapter (errno %d)\n", rank, errno);
		_exit(1);
	}
	limit_start();
	if (setjmp(test_end)) {
		fflush(stdout);
		_exit(1);
	}
	process();
	fflush(stdout);
	_exit(tear_down() != 0);
}

/* Exchanges data with the other host and counts results. */

static void exchange(void)
{
	size_t length = processes * sizeof(*shared->here);

	CHECK(fwrite(shared->here, 1, length, to_other) == length);
	CHECK(!fflush(to_other));
	CHECK(fread(shared->there, 1, length, from_other) == length);
}

/*
 * Returns how many queue pairs of this host "rdma resource" lists with a
 * detail.
 */
static unsigned int shown(const char *detail)
{
	char line[4096], command[128];
	unsigned int count = 0;
	FILE *output;

	snprintf(command, sizeof(command), "rdma -j -dd resource show qp link %s/1",
		 device);
	output = popen(command, "r");
	CHECK(output);
	while (fgets(line, sizeof(line), output))
		count += !!strstr(line, detail);
	CHECK(!pclose(output));
	return count;
}

static void count(void)
{
	unsigned int carriers = shown("\"drv_members\":");
	unsigned int members = shown("\"drv_carrier\":");
	char detail[32];

	snprintf(detail, sizeof(detail), "\"drv_members\":%u}", processes);
	printf("# %u carriers, %u members\n", carriers, members);
	CHECK(carriers == processes && members == processes * processes);
	CHECK(shown(detail) == processes);
}

static void all_to_all(void)
{
	together();
	exchange();
	together();
	together();
	exchange();
	together();
	together();
	/* All members are connected before the first message is sent */
	exchange();
	count();
	together();
	together();
	/* No process ends before the last message has arrived */
	exchange();
	together();
}

static int tcp_connect(const char *host)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM,
				  .ai_flags = host ? 0 : AI_PASSIVE }, *list;
	int one = 1, fd, listener;

	if (getaddrinfo(host, PORT, &hints, &list))
		return -1;
	fd = socket(list->ai_family, list->ai_socktype, 0);
	if (host)
		return connect(fd, list->ai_addr, list->ai_addrlen) ? -1 : fd;
	listener = fd;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, list->ai_addr, list->ai_addrlen) || listen(listener, 1))
		return -1;
	fd = accept(listener, NULL, NULL);
	close(listener);
	return fd;
}

static void test(char **argv)
{
	pid_t children[MOST];
	unsigned int i;
	int status;

	for (i = 0; i < processes; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		rank = i;
		if (!children[i])
			child(argv);
	}
	all_to_all();
	for (i = 0; i < processes; i++)
		CHECK(waitpid(children[i], &status, 0) == children[i] && !status);
	CHECK(shared->good == processes);
}

int main(int argc, char **argv)
{
	pthread_barrierattr_t attr;
	int fd, end;

	processes = argc > 3 ? atoi(argv[3]) : 0;
	if (!processes || processes > MOST)
		return 2;
	device = argv[1];
	first = argc == 4;
	fd = tcp_connect(first ? NULL : argv[4]);
	from_other = fd < 0 ? NULL : fdopen(fd, "r");
	to_other = fd < 0 ? NULL : fdopen(dup(fd), "w");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!from_other || !to_other || shared == MAP_FAILED) {
		printf("Bail out! no connection (errno %d)\n", errno);
		return 2;
	}
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->barrier, &attr, processes + 1);
	limit_start();
	end = setjmp(test_end);
	if (!end)
		test(argv);
	printf("%sok 1 - provider: all processes of a host communicate with all of another\n1..1\n",
	       end ? "not " : "");
	return !!end;
}
