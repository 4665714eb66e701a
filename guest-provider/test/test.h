/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * test.h: shared by the tests of libqrnic: an adapter, two connected queue
 * pairs of it, and TAP output.
 *
 * main() of a test calls set_up() first, run() for each test, and tear_down()
 * last. A failed CHECK() ends the current test with longjmp(), so objects of
 * this test may remain.
 */
#ifndef QRNIC_TEST_H
#define QRNIC_TEST_H

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/qrnicdv.h>
#include <infiniband/verbs.h>

#define BUFFER_SIZE (1u << 20)
#define HALF (BUFFER_SIZE / 2)
#define SECONDS 20

#define CHECK(condition)                                                       \
	((condition) ? (void)0 : check_failed(__func__, __LINE__, #condition))

static struct ibv_context *context;
/* Flags of qrnicdv_open_device(); 0: the context is opened by ibv_open_device() */
static uint32_t context_flags;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint8_t *buffer;
static union ibv_gid gid;
static int gid_index;
static uint32_t gid_type;
static uint64_t capabilities;
static uint8_t rd_atomic = 4;
static int tests, failures;
static jmp_buf test_end;

static inline void __attribute__((noreturn))
check_failed(const char *function, int line, const char *condition)
{
	printf("# %s:%d: %s (errno %d)\n", function, line, condition, errno);
	longjmp(test_end, 1);
}

/* Skips a test if the adapter lacks a feature. */
#define NEED(condition) ((condition) ? (void)0 : longjmp(test_end, 2))

/* Two queue pairs and their objects; a type of 0 means RC */
struct pair {
	enum ibv_qp_type type;
	struct ibv_pd *pd;
	struct ibv_srq *srq;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp[2];
};

static inline uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

/*
 * Returns a counter of an adapter: path is its file below the folder of the
 * RDMA device.
 */
static inline uint64_t read_counter(const char *device, const char *path)
{
	char file_path[300];
	uint64_t value = 0;
	FILE *file;

	snprintf(file_path, sizeof(file_path), "/sys/class/infiniband/%s/%s",
		 device, path);
	file = fopen(file_path, "r");
	CHECK(file && fscanf(file, "%" SCNu64, &value) == 1);
	fclose(file);
	return value;
}

/*
 * Returns the longest time that a test waits, in milliseconds. A slow guest has
 * a factor in its environment (tests/guest/tap.sh), because its CPU is
 * emulated.
 */
static inline int patience_ms(void)
{
	const char *factor = getenv("TIME_FACTOR");

	return SECONDS * 1000 * (factor ? atoi(factor) : 1);
}

static inline int poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	uint64_t end = now_ms() + patience_ms();
	int n;

	do {
		n = ibv_poll_cq(cq, 1, wc);
	} while (!n && now_ms() < end);
	return n;
}

/*
 * Waits until the device has written a number of completions, without polling
 * them.
 */
static inline void completions_wait(struct ibv_cq *cq, uint32_t number)
{
	uint64_t end = now_ms() + patience_ms();
	struct qrnicdv_cq dv;
	uint32_t last, phase;

	CHECK(!qrnicdv_query_cq(cq, &dv, sizeof(dv)));
	last = dv.consumer + number - 1;
	phase = last / dv.size % 2 ? 0 : QRNIC_CQE_PHASE_MASK;
	while ((le32toh(*(volatile __le32 *)&dv.ring[last % dv.size].control) &
		QRNIC_CQE_PHASE_MASK) != phase)
		CHECK(now_ms() < end);
}

static inline int remote_rights(void)
{
	return IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	       (capabilities & QRNIC_CAP_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

#define QKEY 0x11111111u

static inline int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = remote_rights(),
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT |
			     IBV_QP_PKEY_INDEX |
			     (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY :
							  IBV_QP_ACCESS_FLAGS));
}

static inline int to_rtr(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = rd_atomic,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = gid, .sgid_index = gid_index,
				 .hop_limit = 1 },
		},
	};
	int mask = IBV_QP_STATE;

	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

static inline int to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = rd_atomic,
	};

	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, mask);
}

static inline int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static inline int pair_connect(struct pair *p)
{
	int i;

	for (i = 0; i < 2; i++)
		if (to_init(p->qp[i]) ||
		    to_rtr(p->qp[i], p->qp[!i]->qp_num) || to_rts(p->qp[i]))
			return errno ? errno : EIO;
	return 0;
}

static inline struct ibv_qp *make_qp(struct pair *p, struct ibv_qp_cap *cap,
			      uint64_t ops)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = p->send_cq,
		.recv_cq = p->recv_cq,
		.cap = *cap,
		.qp_type = p->type ? p->type : IBV_QPT_RC,
		.srq = p->srq,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = p->pd ? p->pd : pd,
	};
	struct ibv_qp *qp;

	if (ops) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = ops;
	}
	qp = ibv_create_qp_ex(context, &attr);
	if (qp)
		*cap = attr.cap;
	return qp;
}

/* Creates the pair with its type, pd and srq. */
static inline int pair_make_as(struct pair *p, struct ibv_qp_cap *cap,
			       uint64_t ops)
{
	struct ibv_qp_cap cap2 = *cap;

	p->qp[0] = p->qp[1] = NULL;
	p->channel = ibv_create_comp_channel(context);
	if (!p->channel)
		return errno;
	p->send_cq = ibv_create_cq(context, 1024, NULL, p->channel, 0);
	p->recv_cq = ibv_create_cq(context, 1024, NULL, p->channel, 0);
	if (!p->send_cq || !p->recv_cq)
		return errno;
	p->qp[0] = make_qp(p, cap, ops);
	p->qp[1] = make_qp(p, &cap2, ops);
	return p->qp[0] && p->qp[1] ? 0 : errno;
}

static inline int pair_make(struct pair *p, struct ibv_qp_cap *cap, uint64_t ops)
{
	memset(p, 0, sizeof(*p));
	return pair_make_as(p, cap, ops);
}

static inline int pair_free(struct pair *p)
{
	return (p->qp[0] ? ibv_destroy_qp(p->qp[0]) : 0) |
	       (p->qp[1] ? ibv_destroy_qp(p->qp[1]) : 0) |
	       ibv_destroy_cq(p->send_cq) | ibv_destroy_cq(p->recv_cq) |
	       ibv_destroy_comp_channel(p->channel);
}

static inline struct ibv_sge sge_of(size_t offset, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)buffer + offset, length, mr->lkey };
}

static inline void fill(size_t offset, size_t length, uint32_t seed)
{
	size_t i;

	for (i = 0; i < length; i++)
		buffer[offset + i] = (seed = seed * 1103515245 + 12345) >> 16;
}

/* Posts an RDMA write from the first half of the buffer to the second. */
static inline int write_one(struct ibv_qp *qp, struct ibv_sge *sge, int num_sge,
		     unsigned int flags, uint64_t wr_id)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = num_sge,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = flags,
		.wr.rdma = { (uintptr_t)buffer + HALF, mr->rkey },
	}, *bad = NULL;
	int err = ibv_post_send(qp, &wr, &bad);

	return err && bad != &wr ? -1 : err;
}

static inline int recv_one(struct ibv_qp *qp, struct ibv_sge *sge, int num_sge,
		    uint64_t wr_id)
{
	struct ibv_recv_wr wr = { wr_id, NULL, sge, num_sge }, *bad = NULL;
	int err = ibv_post_recv(qp, &wr, &bad);

	return err && bad != &wr ? -1 : err;
}

/* Returns the CQ of the next event, or NULL after a timeout. */
static inline struct ibv_cq *next_cq_event(struct ibv_comp_channel *channel)
{
	struct pollfd pfd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *user;

	if (poll(&pfd, 1, patience_ms()) != 1 ||
	    ibv_get_cq_event(channel, &cq, &user))
		return NULL;
	ibv_ack_cq_events(cq, 1);
	return cq;
}

/*
 * Creates a marker: two more queue pairs whose CQ uses the same event queue and
 * channel. Events arrive in order. So events that were due before an event of
 * the marker must have arrived when it arrives, and no time limit is needed.
 */
static inline void marker_make(struct pair *m, struct ibv_comp_channel *channel)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };

	memset(m, 0, sizeof(*m));
	m->channel = channel;
	m->send_cq = ibv_create_cq(context, 16, NULL, channel, 0);
	m->recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	m->qp[0] = make_qp(m, &cap, 0);
	m->qp[1] = make_qp(m, &cap, 0);
	CHECK(m->send_cq && m->recv_cq && m->qp[0] && m->qp[1]);
	CHECK(!pair_connect(m));
}

static inline int marker_free(struct pair *m)
{
	return ibv_destroy_qp(m->qp[0]) | ibv_destroy_qp(m->qp[1]) |
	       ibv_destroy_cq(m->send_cq) | ibv_destroy_cq(m->recv_cq);
}

/* Checks that no other CQ of the channel has had an event. */
static inline void no_event(struct pair *m)
{
	struct ibv_sge sge = sge_of(0, 8);
	struct ibv_wc wc;

	CHECK(!ibv_req_notify_cq(m->send_cq, 0));
	CHECK(!write_one(m->qp[0], &sge, 1, IBV_SEND_SIGNALED, 1));
	CHECK(poll_one(m->send_cq, &wc) == 1 && !wc.status);
	CHECK(next_cq_event(m->channel) == m->send_cq);
}

static inline void run(const char *name, void (*test)(void))
{
	/*
	 * The value of setjmp() is 1 after a failure and 2 for a skipped test
	 */
	int end = setjmp(test_end);

	if (!end)
		test();
	failures += end == 1;
	printf("%sok %d - provider: %s%s\n", end == 1 ? "not " : "", ++tests,
	       name, end == 2 ? " # SKIP the adapter does not support it" : "");
	fflush(stdout);
}

/*
 * Opens the adapter and registers the buffer. The arguments are the adapter and
 * the index of the GID; the default is the first of each.
 */
static inline int set_up(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	const char *name = argc > 1 ? argv[1] : NULL;
	struct qrnicdv_context_attr attr = {};
	struct qrnicdv_device_attr dev;
	struct ibv_device_attr limits;
	struct ibv_gid_entry entry;
	int i;

	for (i = 0; list && list[i]; i++)
		if (qrnicdv_is_supported(list[i]) &&
		    (!name || !strcmp(name, ibv_get_device_name(list[i]))))
			break;
	if (!list || !list[i])
		return -1;
	attr.flags = context_flags;
	context = attr.flags ? qrnicdv_open_device(list[i], &attr, sizeof(attr)) :
			       ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!context || qrnicdv_query_device(context, &dev, sizeof(dev)))
		return -1;
	capabilities = dev.capabilities;
	if (ibv_query_device(context, &limits))
		return -1;
	if (limits.max_qp_rd_atom < rd_atomic)
		rd_atomic = limits.max_qp_rd_atom;
	/* Uses the given GID, otherwise the first GID of RoCE v2 */
	for (gid_index = 0; argc <= 2; gid_index++)
		if (gid_index == 64)
			return -1;
		else if (!ibv_query_gid_ex(context, 1, gid_index, &entry, 0) &&
			 entry.gid_type == IBV_GID_TYPE_ROCE_V2)
			break;
	if (argc > 2) {
		gid_index = atoi(argv[2]);
		if (ibv_query_gid_ex(context, 1, gid_index, &entry, 0))
			return -1;
	}
	gid = entry.gid;
	gid_type = entry.gid_type;
	pd = ibv_alloc_pd(context);
	if (posix_memalign((void **)&buffer, 4096, BUFFER_SIZE))
		return -1;
	memset(buffer, 0, BUFFER_SIZE);
	mr = ibv_reg_mr(pd, buffer, BUFFER_SIZE,
			IBV_ACCESS_LOCAL_WRITE | remote_rights());
	return mr ? 0 : -1;
}

static inline int tear_down(void)
{
	printf("1..%d\n", tests);
	if (ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) || ibv_close_device(context))
		failures++;
	return failures ? 1 : 0;
}

#endif /* QRNIC_TEST_H */
