// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * streaming-test.c: tests receive queues whose buffers receive many messages.
 * Each byte is at the offset of its completion, messages do not overlap, and
 * each buffer is used up once. The arguments are the adapter and the index of
 * the GID. With "loop" behind them the program sends until it is killed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

#include "test.h"

#define QPS 4
#define BUFFERS 8
#define SIZE (HALF / BUFFERS)
#define LONGEST 5000u
#define MESSAGES 100u		/* Messages in a buffer */
#define ALIGN 64
#define GRH 40
#define WINDOW 24

struct message {
	uint32_t source, length;
	int qp;
};

static struct ibv_cq *send_cq;
static struct ibv_cq_ex *cq[QPS];
static int cqs;
static struct ibv_qp *from[QPS], *to[QPS];
static struct ibv_ah *ah;
static struct ibv_srq *srq;
static int qps;
static uint32_t srqn;
static struct ibv_xrcd *xrcd;

static struct message *sent;
static uint32_t sent_count, received_count, used_count;
static uint8_t taken[HALF];
static bool posted[BUFFERS];
static uint32_t seed = 1;

static uint32_t random_below(uint32_t bound)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 8) % bound;
}

static struct qrnicdv_stream_attr stream_attr(void)
{
	return (struct qrnicdv_stream_attr){
		.max_message = LONGEST + GRH,
		.max_messages = MESSAGES,
		.align = ALIGN,
	};
}

static struct ibv_qp *make_qp_of(enum ibv_qp_type type, int i, bool receiver)
{
	struct qrnicdv_qp_init_attr dv = {};
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = send_cq,
		.recv_cq = ibv_cq_ex_to_cq(cq[i % cqs]),
		.srq = receiver ? srq : NULL,
		.cap = { 2 * WINDOW, BUFFERS, 1, 2, 0 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};

	if (type == IBV_QPT_XRC_SEND && receiver) {
		attr = (struct ibv_qp_init_attr_ex){
			.qp_type = IBV_QPT_XRC_RECV,
			.comp_mask = IBV_QP_INIT_ATTR_XRCD,
			.xrcd = xrcd,
		};
		return ibv_create_qp_ex(context, &attr);
	}
	if (!receiver || srq)
		return ibv_create_qp_ex(context, &attr);
	dv.comp_mask = QRNICDV_QP_INIT_ATTR_STREAM;
	dv.stream = stream_attr();
	return qrnicdv_create_qp(context, &attr, &dv, sizeof(dv));
}

static struct ibv_srq *make_srq(bool xrc)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = BUFFERS, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = xrc ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
		.pd = pd,
	};
	struct qrnicdv_srq_init_attr dv = {
		.comp_mask = QRNICDV_SRQ_INIT_ATTR_STREAM,
		.stream = stream_attr(),
	};

	if (xrc) {
		attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		attr.xrcd = xrcd;
		attr.cq = ibv_cq_ex_to_cq(cq[0]);
	}
	return qrnicdv_create_srq(context, &attr, &dv, sizeof(dv));
}

/* Posts a buffer of two segments, whose number is its wr_id. */
static void post_buffer(uint32_t number)
{
	uint32_t first = SIZE / 3;
	struct ibv_sge sge[] = {
		sge_of(HALF + number * SIZE, first),
		sge_of(HALF + number * SIZE + first, SIZE - first),
	};
	struct ibv_recv_wr wr = { number, NULL, sge, 2 }, *bad;

	CHECK(!posted[number]);
	memset(taken + number * SIZE, 0, SIZE);
	posted[number] = true;
	CHECK(!(srq ? ibv_post_srq_recv(srq, &wr, &bad) :
		      ibv_post_recv(to[0], &wr, &bad)));
}

static void connect_all(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 },
	};
	int i;

	for (i = 0; i < qps; i++) {
		CHECK(!to_init(to[i]) && !to_rtr(to[i], from[i]->qp_num));
		CHECK(!to_init(from[i]) && !to_rtr(from[i], to[i]->qp_num) &&
		      !to_rts(from[i]));
	}
	ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
}

/*
 * Creates queue pairs of these types, with an SRQ, or with an RQ for one, and a
 * number of CQs.
 */
static void make(const enum ibv_qp_type *types, int number, bool shared,
		 int number_of_cqs)
{
	bool xrc = types[0] == IBV_QPT_XRC_SEND;
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 4 * BUFFERS * MESSAGES,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM |
			    IBV_WC_EX_WITH_QP_NUM,
	};
	struct ibv_xrcd_init_attr xrcd_attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1, .oflags = O_CREAT,
	};
	int i;

	NEED(capabilities & QRNIC_CAP_STREAMING_RECV);
	NEED(!xrc || capabilities & QRNIC_CAP_XRC);
	qps = number;
	cqs = number_of_cqs;
	sent_count = received_count = used_count = 0;
	memset(posted, 0, sizeof(posted));
	fill(0, HALF, 7);
	free(sent);
	sent = calloc(1 << 16, sizeof(*sent));
	send_cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
	CHECK(sent && send_cq);
	for (i = 0; i < cqs; i++) {
		cq[i] = ibv_create_cq_ex(context, &cq_attr);
		CHECK(cq[i]);
	}
	xrcd = xrc ? ibv_open_xrcd(context, &xrcd_attr) : NULL;
	CHECK(!xrc || xrcd);
	srq = shared ? make_srq(xrc) : NULL;
	CHECK(!shared || (srq && !ibv_get_srq_num(srq, &srqn)));
	for (i = 0; i < qps; i++) {
		from[i] = make_qp_of(types[i], i, false);
		to[i] = make_qp_of(types[i], i, true);
		CHECK(from[i] && to[i]);
	}
	connect_all();
	for (i = 0; i < BUFFERS; i++)
		post_buffer(i);
}

static void unmake(void)
{
	int i;

	for (i = 0; i < qps; i++)
		CHECK(!ibv_destroy_qp(from[i]) && !ibv_destroy_qp(to[i]));
	CHECK(!srq || !ibv_destroy_srq(srq));
	for (i = 0; i < cqs; i++)
		CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq[i])));
	CHECK(!ibv_destroy_cq(send_cq) && !ibv_destroy_ah(ah));
	CHECK(!xrcd || !ibv_close_xrcd(xrcd));
}

static void send_one(int i)
{
	bool datagram = from[i]->qp_type == IBV_QPT_UD;
	struct message *m = &sent[sent_count & 0xffff];
	struct ibv_send_wr wr = {
		.wr_id = i,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.imm_data = htobe32(sent_count),
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_sge sge;

	m->qp = i;
	m->length = random_below(3) ? random_below(300) :
		    random_below((datagram ? 1024 : LONGEST) + 1);
	m->source = random_below(HALF - LONGEST);
	sge = sge_of(m->source, m->length);
	wr.sg_list = &sge;
	if (datagram) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = to[i]->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	if (from[i]->qp_type == IBV_QPT_XRC_SEND)
		wr.qp_type.xrc.remote_srqn = srqn;
	sent_count++;
	CHECK(!ibv_post_send(from[i], &wr, &bad));
}

/* Checks the current completion of a CQ. */
static void look(struct ibv_cq_ex *of)
{
	uint32_t length = ibv_wc_read_byte_len(of), offset, flags, i, header;
	struct message *m = &sent[be32toh(ibv_wc_read_imm_data(of)) & 0xffff];
	uint64_t number = of->wr_id;
	uint8_t *at;

	CHECK(of->status == IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_opcode(of) == IBV_WC_RECV);
	flags = qrnicdv_wc_read_stream(of, &offset);
	header = ibv_wc_read_wc_flags(of) & IBV_WC_GRH ? GRH : 0;
	CHECK(ibv_wc_read_qp_num(of) == to[m->qp]->qp_num);
	CHECK(number < BUFFERS && posted[number]);
	CHECK(length == m->length + header && !(offset % ALIGN));
	CHECK(offset + length <= SIZE);
	at = taken + number * SIZE + offset;
	for (i = 0; i < length; i++)
		CHECK(!at[i]);
	memset(at, 1, length);
	CHECK(!memcmp(buffer + HALF + number * SIZE + offset + header,
		      buffer + m->source, m->length));
	received_count++;
	if (flags & QRNICDV_WC_STREAM_USED) {
		used_count++;
		posted[number] = false;
		/*
		 * The device must not write to the buffer any more. The
		 * contents are overwritten, so that a later write would be
		 * noticed.
		 */
		memset(buffer + HALF + number * SIZE, 0xee, SIZE);
	}
}

static bool take(struct ibv_cq_ex *of)
{
	struct ibv_poll_cq_attr attr = {};

	if (ibv_start_poll(of, &attr))
		return false;
	do {
		look(of);
	} while (!ibv_next_poll(of));
	ibv_end_poll(of);
	return true;
}

/*
 * Sends messages of all types. Unreliable messages are lost only if there is no
 * buffer, because the loopback loses nothing.
 */
static void traffic(uint32_t count)
{
	uint64_t end = now_ms() + SECONDS * 1000;
	uint32_t under_way[QPS] = {}, done = 0, total = 0;
	struct ibv_wc wc;
	int i;

	while (done < count || received_count < sent_count) {
		CHECK(now_ms() < end);
		for (i = 0; i < qps && total < count; i++) {
			if (under_way[i] == WINDOW / (uint32_t)qps ||
			    sent_count - received_count >= WINDOW)
				continue;
			under_way[i]++;
			total++;
			send_one(i);
		}
		for (i = 0; i < cqs; i++)
			take(cq[i]);
		for (i = 0; i < BUFFERS; i++)
			if (!posted[i])
				post_buffer(i);
		while (ibv_poll_cq(send_cq, 1, &wc)) {
			CHECK(!wc.status);
			under_way[wc.wr_id]--;
			done++;
		}
	}
	CHECK(used_count >= count / MESSAGES / 2);
	/* Each buffer must have received several messages */
	CHECK(used_count * 4 < received_count);
}

static void one(enum ibv_qp_type type)
{
	make(&type, 1, false, 1);
	traffic(3000);
	unmake();
}

static void test_rc(void)
{
	one(IBV_QPT_RC);
}

static void test_uc(void)
{
	NEED(capabilities & QRNIC_CAP_UC);
	one(IBV_QPT_UC);
}

static void test_ud(void)
{
	NEED(capabilities & QRNIC_CAP_UD);
	one(IBV_QPT_UD);
}

static const enum ibv_qp_type all_kinds[QPS] = {
	IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RC,
};

static void test_shared(void)
{
	make(all_kinds, QPS, true, 1);
	traffic(5000);
	unmake();
}

/* Tests completions of a buffer in several CQs. */
static void test_several_cqs(void)
{
	make(all_kinds, QPS, true, QPS);
	traffic(5000);
	unmake();
}

static void test_xrc(void)
{
	const enum ibv_qp_type types[] = { IBV_QPT_XRC_SEND, IBV_QPT_XRC_SEND };

	make(types, 2, true, 1);
	traffic(3000);
	unmake();
}

/* Tests an SRQ whose ring is replaced while buffers are open. */
static void test_resize(void)
{
	static const uint32_t sizes[] = { 60, 15, 300, 10 };
	struct ibv_srq_attr attr = {};
	unsigned int i;

	NEED(capabilities & QRNIC_CAP_SRQ_RESIZE);
	make(all_kinds, QPS, true, 2);
	for (i = 0; i < 4; i++) {
		traffic(700);
		attr.max_wr = sizes[i];
		CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	}
	traffic(700);
	unmake();
}

/*
 * Tests that a flush completes the open buffer and those behind it once each.
 */
static void test_flush(void)
{
	const enum ibv_qp_type type = IBV_QPT_RC;
	struct ibv_poll_cq_attr poll = {};
	uint64_t end = now_ms() + SECONDS * 1000;
	uint32_t i, offset, first;

	make(&type, 1, false, 1);
	traffic(70);
	CHECK(!to_state(to[0], IBV_QPS_ERR));
	first = used_count % BUFFERS;
	for (i = 0; i < BUFFERS; i++) {
		while (ibv_start_poll(cq[0], &poll))
			CHECK(now_ms() < end);
		CHECK(cq[0]->status == IBV_WC_WR_FLUSH_ERR);
		CHECK(cq[0]->wr_id == (first + i) % BUFFERS);
		CHECK(qrnicdv_wc_read_stream(cq[0], &offset) ==
		      QRNICDV_WC_STREAM_USED);
		ibv_end_poll(cq[0]);
	}
	usleep(20000);
	CHECK(ibv_start_poll(cq[0], &poll) == ENOENT);
	unmake();
}

/*
 * Tests that a queue pair of an SRQ is destroyed: the others continue, and no
 * buffer is lost.
 */
static void test_one_goes(void)
{
	struct ibv_sge sge = sge_of(0, LONGEST);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
	}, *bad;
	uint32_t before, i;

	make(all_kinds, QPS, true, 1);
	for (i = 0; i < 20; i++) {
		traffic(100);
		/*
		 * The queue pair is destroyed in the middle of a message,
		 * unless it is already complete
		 */
		CHECK(!ibv_post_send(from[0], &wr, &bad));
		CHECK(!to_state(from[0], IBV_QPS_ERR));
		CHECK(!ibv_destroy_qp(to[0]) && !ibv_destroy_qp(from[0]));
		from[0] = make_qp_of(IBV_QPT_RC, 0, false);
		to[0] = make_qp_of(IBV_QPT_RC, 0, true);
		CHECK(from[0] && to[0]);
		CHECK(!to_init(to[0]) && !to_rtr(to[0], from[0]->qp_num));
		CHECK(!to_init(from[0]) && !to_rtr(from[0], to[0]->qp_num) &&
		      !to_rts(from[0]));
	}
	before = used_count;
	traffic(2000);
	CHECK(used_count > before + BUFFERS);
	unmake();
}

/*
 * Tests a message that is too long. The message does not use up the buffer, but
 * the queue pair is then flushed, which does.
 */
static void test_too_long(void)
{
	const enum ibv_qp_type type = IBV_QPT_RC;
	struct ibv_poll_cq_attr poll = {};
	uint64_t end = now_ms() + SECONDS * 1000;
	struct ibv_sge sge = sge_of(0, LONGEST + GRH + 1);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_wc wc;
	uint32_t offset;

	make(&type, 1, false, 1);
	CHECK(!ibv_post_send(from[0], &wr, &bad));
	while (ibv_start_poll(cq[0], &poll))
		CHECK(now_ms() < end);
	CHECK(cq[0]->status == IBV_WC_LOC_LEN_ERR && cq[0]->wr_id == 0);
	CHECK(!qrnicdv_wc_read_stream(cq[0], &offset));
	ibv_end_poll(cq[0]);
	while (ibv_start_poll(cq[0], &poll))
		CHECK(now_ms() < end);
	CHECK(cq[0]->status == IBV_WC_WR_FLUSH_ERR && cq[0]->wr_id == 0);
	CHECK(qrnicdv_wc_read_stream(cq[0], &offset) == QRNICDV_WC_STREAM_USED);
	ibv_end_poll(cq[0]);
	CHECK(poll_one(send_cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR);
	unmake();
}

static void srq_refused(struct qrnicdv_srq_init_attr dv, size_t size, int err)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_PD,
		.pd = pd,
	};

	errno = 0;
	CHECK(!qrnicdv_create_srq(context, &attr, &dv, size) && errno == err);
}

static void qp_refused(struct qrnicdv_qp_init_attr dv, enum ibv_qp_type type,
		       int err)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = send_cq,
		.recv_cq = send_cq,
		.srq = srq,
		.cap = { 1, srq ? 0 : 1, 1, 1, 0 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};

	errno = 0;
	CHECK(!qrnicdv_create_qp(context, &attr, &dv, sizeof(dv)) &&
	      errno == err);
}

static void test_refused(void)
{
	const struct qrnicdv_srq_init_attr good = {
		.comp_mask = QRNICDV_SRQ_INIT_ATTR_STREAM,
		.stream = stream_attr(),
	};
	const struct qrnicdv_qp_init_attr good_qp = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_STREAM,
		.stream = stream_attr(),
	};
	struct qrnicdv_srq_init_attr bad = good;
	struct qrnicdv_qp_init_attr bad_qp = good_qp;

	if (!(capabilities & QRNIC_CAP_STREAMING_RECV)) {
		srq_refused(good, sizeof(good), EOPNOTSUPP);
		qp_refused(good_qp, IBV_QPT_RC, EOPNOTSUPP);
		return;
	}
	srq_refused(good, sizeof(good) - 1, EINVAL);
	bad.comp_mask = 3;
	srq_refused(bad, sizeof(bad), EOPNOTSUPP);
	bad = good;
	bad.stream.reserved = 1;
	srq_refused(bad, sizeof(bad), EOPNOTSUPP);
	bad = good;
	bad.stream.max_message = 0;
	srq_refused(bad, sizeof(bad), EINVAL);
	bad = good;
	bad.stream.max_message = 0x80000001;
	srq_refused(bad, sizeof(bad), EINVAL);
	bad = good;
	bad.stream.max_messages = 0;
	srq_refused(bad, sizeof(bad), EINVAL);
	bad = good;
	bad.stream.max_messages = 65536;
	srq_refused(bad, sizeof(bad), EINVAL);
	bad = good;
	bad.stream.align = 3;
	srq_refused(bad, sizeof(bad), EINVAL);
	bad = good;
	bad.stream.align = 8192;
	srq_refused(bad, sizeof(bad), EINVAL);

	srq = NULL;
	send_cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	CHECK(send_cq);
	qp_refused(good_qp, IBV_QPT_RAW_PACKET, EOPNOTSUPP);
	bad_qp.max_inl_recv = 8;
	qp_refused(bad_qp, IBV_QPT_RC, EINVAL);
	bad_qp = good_qp;
	bad_qp.comp_mask = 2;
	qp_refused(bad_qp, IBV_QPT_RC, EOPNOTSUPP);
	bad_qp.comp_mask = 0;
	qp_refused(bad_qp, IBV_QPT_RC, EOPNOTSUPP);
	srq = make_srq(false);
	CHECK(srq);
	qp_refused(good_qp, IBV_QPT_RC, EINVAL);
	bad_qp = (struct qrnicdv_qp_init_attr){ .max_inl_recv = 8 };
	qp_refused(bad_qp, IBV_QPT_RC, EOPNOTSUPP);
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(send_cq));
}

static void hold(void)
{
	make(all_kinds, QPS, true, 2);
	printf("# loop\n");
	fflush(stdout);
	for (;;)
		traffic(4000);
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv))
		return 1;
	if (argc > 3 && !strcmp(argv[3], "loop")) {
		run("endless traffic", hold);
		return 1;
	}
	run("streaming: invalid attributes", test_refused);
	run("streaming: a reliable connection", test_rc);
	run("streaming: an unreliable connection", test_uc);
	run("streaming: datagrams", test_ud);
	run("streaming: an SRQ with all types of queue pairs", test_shared);
	run("streaming: an SRQ and several CQs", test_several_cqs);
	run("streaming: extended reliable connections", test_xrc);
	run("streaming: an SRQ that is resized", test_resize);
	run("streaming: an RQ is flushed", test_flush);
	run("streaming: a queue pair of an SRQ is destroyed", test_one_goes);
	run("streaming: a message that is too long", test_too_long);
	return tear_down();
}
