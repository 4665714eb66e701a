// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * transport-test.c: tests libqrnic beyond reliable connections: datagrams, UC,
 * SRQs, windows, domains, resizing and sharing. The test needs one adapter and
 * prints TAP.
 */
#include <endian.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "test.h"

#define GRH 40

static bool has_inline(void)
{
	return capabilities & QRNIC_CAP_INLINE_SEND;
}

static bool is_ipv4(void)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid.raw, mapped, sizeof(mapped));
}

/*
 * Returns the kind of a packet, which UCX reads in the place of the service
 * level.
 */
static int packet_kind(void)
{
	if (gid_type == IBV_GID_TYPE_ROCE_V1)
		return 0;
	return is_ipv4() ? 10 : 9;
}

static struct ibv_ah *ah_to(const union ibv_gid *to)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = *to, .sgid_index = gid_index, .hop_limit = 1 },
	};

	return ibv_create_ah(pd, &attr);
}

static int send_datagram(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t qpn,
			 uint32_t qkey, struct ibv_sge *sge, int num_sge,
			 unsigned int flags, uint64_t wr_id)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = num_sge,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = flags | IBV_SEND_SIGNALED,
		.imm_data = htobe32(wr_id + 7),
		.wr.ud = { ah, qpn, qkey },
	}, *bad = NULL;
	int err = ibv_post_send(qp, &wr, &bad);

	return err && bad != &wr ? -1 : err;
}

static void ud_pair(struct pair *p, struct ibv_qp_cap *cap, uint64_t ops)
{
	NEED(capabilities & QRNIC_CAP_UD);
	*p = (struct pair){ .type = IBV_QPT_UD };
	CHECK(!pair_make_as(p, cap, ops));
	CHECK(!pair_connect(p));
}

/* Checks the completion and the data of a received datagram. */
static void check_datagram(struct pair *p, uint64_t wr_id, size_t from,
			   size_t at, size_t length, __be32 imm)
{
	struct ibv_wc wc;

	CHECK(poll_one(p->recv_cq, &wc) == 1 && !wc.status);
	CHECK(wc.wr_id == wr_id && wc.opcode == IBV_WC_RECV);
	CHECK(wc.qp_num == p->qp[1]->qp_num && wc.src_qp == p->qp[0]->qp_num);
	CHECK(wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM));
	CHECK(wc.imm_data == imm && wc.byte_len == GRH + length);
	CHECK(wc.sl == packet_kind());
	CHECK(!memcmp(buffer + from, buffer + at + GRH, length));
	CHECK(poll_one(p->send_cq, &wc) == 1 && !wc.status);
	CHECK(wc.opcode == IBV_WC_SEND);
}

/*
 * Tests all lengths of gather lists and inline data, many times around the
 * ring.
 */
static void test_datagrams(void)
{
	struct ibv_qp_cap cap = { 9, 16, 30, 1, has_inline() ? 200 : 0 };
	struct ibv_sge sge[30], to;
	struct ibv_ah *ah;
	size_t length;
	struct pair p;
	int i, n, k;

	ud_pair(&p, &cap, 0);
	ah = ah_to(&gid);
	CHECK(ah);
	for (i = 0; i < 200; i++) {
		n = i % 31;
		length = n * 32;
		for (k = 0; k < n; k++)
			sge[k] = sge_of(k * 32, 32);
		fill(0, 1024, i);
		memset(buffer + HALF, 0, 2048);
		to = sge_of(HALF, 2048);
		CHECK(!recv_one(p.qp[1], &to, 1, i));
		CHECK(!send_datagram(p.qp[0], ah, p.qp[1]->qp_num, QKEY, sge, n,
				     n <= 6 && i % 2 && has_inline() ?
				     IBV_SEND_INLINE : 0, i));
		check_datagram(&p, i, 0, HALF, length, htobe32(i + 7));
	}
	CHECK(!ibv_destroy_ah(ah) && !pair_free(&p));
}

static void test_datagram_refusals(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 }, many = { 8, 8, 31, 1, 0 };
	struct ibv_sge sge = sge_of(0, 64), to = sge_of(HALF, 256);
	struct ibv_wc wc;
	struct ibv_ah *ah;
	struct pair p;

	ud_pair(&p, &cap, 0);
	CHECK(!make_qp(&p, &many, 0) && errno == EINVAL);
	CHECK(!make_qp(&p, &cap, IBV_QP_EX_WITH_RDMA_WRITE));
	CHECK(errno == EOPNOTSUPP);
	ah = ah_to(&gid);
	CHECK(ah);
	CHECK(write_one(p.qp[0], &sge, 1, 0, 0) == EINVAL);
	CHECK(send_datagram(p.qp[0], NULL, 2, QKEY, &sge, 1, 0, 1) == EINVAL);
	/*
	 * A datagram with a wrong Q_Key is dropped. With bit 31 set the Q_Key
	 * of the QP is sent.
	 */
	CHECK(!recv_one(p.qp[1], &to, 1, 5));
	CHECK(!send_datagram(p.qp[0], ah, p.qp[1]->qp_num, QKEY ^ 1, &sge, 1, 0,
			     1));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	usleep(100000);
	CHECK(!ibv_poll_cq(p.recv_cq, 1, &wc));
	fill(0, 64, 3);
	CHECK(!send_datagram(p.qp[0], ah, p.qp[1]->qp_num, 1u << 31, &sge, 1, 0,
			     2));
	check_datagram(&p, 5, 0, HALF, 64, htobe32(9));
	CHECK(!ibv_destroy_ah(ah) && !pair_free(&p));
}

/* Tests the bytes of a datagram segment in the ring. */
static void test_datagram_segment(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(128, 64);
	struct qrnic_datagram_seg segment;
	struct qrnic_data_seg data;
	struct qrnic_sq_ctrl ctrl;
	struct qrnicdv_qp qp;
	struct ibv_ah *ah;
	struct ibv_wc wc;
	struct pair p;

	ud_pair(&p, &cap, 0);
	ah = ah_to(&gid);
	CHECK(ah && !qrnicdv_query_qp(p.qp[0], &qp, sizeof(qp)));
	CHECK(!send_datagram(p.qp[0], ah, 0x123456, 0x89abcdef, &sge, 1, 0, 1));
	memcpy(&ctrl, qp.sq.ring, 16);
	memcpy(&segment, (uint8_t *)qp.sq.ring + 16, 48);
	memcpy(&data, (uint8_t *)qp.sq.ring + 64, 16);
	CHECK(le32toh(ctrl.operation) ==
	      (QRNIC_WQE_SEND_IMM | QRNIC_WQEF_SIGNALED << 8 | 5 << 16));
	CHECK(le32toh(segment.dest_qpn) == 0x123456);
	CHECK(le32toh(segment.qkey) == 0x89abcdef && !segment.rsvd0);
	CHECK(!memcmp(segment.av.dgid, gid.raw, 16));
	CHECK(le16toh(segment.av.sgid_index) == gid_index);
	/* The kernel resolves these two members */
	CHECK(segment.av.hop_limit && segment.av.dmac[0]);
	CHECK(le64toh(data.address) == (uintptr_t)buffer + 128);
	CHECK(le32toh(data.length) == 64 && le32toh(data.lkey) == mr->lkey);
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(!ibv_destroy_ah(ah) && !pair_free(&p));
}

static void test_datagram_extended(void)
{
	struct ibv_qp_cap cap = { 8, 8, 2, 1, has_inline() ? 64 : 0 };
	struct ibv_sge to = sge_of(HALF, 1024);
	struct ibv_qp_ex *ex;
	struct ibv_ah *ah;
	struct pair p;
	int i;

	ud_pair(&p, &cap, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
	ah = ah_to(&gid);
	ex = ibv_qp_to_qp_ex(p.qp[0]);
	CHECK(ah && ex);
	for (i = 0; i < 60; i++) {
		fill(0, 64, i);
		CHECK(!recv_one(p.qp[1], &to, 1, i));
		ibv_wr_start(ex);
		ex->wr_id = i;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send_imm(ex, htobe32(i));
		/* The setters may be called in either order */
		if (i % 2)
			ibv_wr_set_ud_addr(ex, ah, p.qp[1]->qp_num, QKEY);
		if (i % 3 && has_inline())
			ibv_wr_set_inline_data(ex, buffer, 64);
		else
			ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)buffer, 64);
		if (i % 2 == 0)
			ibv_wr_set_ud_addr(ex, ah, p.qp[1]->qp_num, QKEY);
		CHECK(!ibv_wr_complete(ex));
		check_datagram(&p, i, 0, HALF, 64, htobe32(i));
	}
	/* Without an address no packet is sent */
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)buffer, 64);
	CHECK(ibv_wr_complete(ex) == EINVAL);
	CHECK(!ibv_destroy_ah(ah) && !pair_free(&p));
}

/* Tests the fields of an extended CQ, including the wall-clock timestamp. */
static void test_datagram_fields(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_poll_cq_attr poll_attr = {};
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 64), to = sge_of(HALF, 256);
	struct pair p = { .type = IBV_QPT_UD };
	struct timespec before, after;
	uint64_t end, stamp;
	struct ibv_cq_ex *cq;
	struct ibv_ah *ah;
	int i;

	NEED(capabilities & QRNIC_CAP_UD);
	NEED(capabilities & QRNIC_CAP_TIMESTAMP);
	cq = ibv_create_cq_ex(context, &attr);
	p.channel = ibv_create_comp_channel(context);
	p.send_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(cq && p.channel && p.send_cq);
	p.recv_cq = ibv_cq_ex_to_cq(cq);
	p.qp[0] = make_qp(&p, &cap, 0);
	p.qp[1] = make_qp(&p, &cap, 0);
	ah = ah_to(&gid);
	CHECK(p.qp[0] && p.qp[1] && ah && !pair_connect(&p));
	for (i = 0; i < 5; i++) {
		CHECK(!recv_one(p.qp[1], &to, 1, i));
		clock_gettime(CLOCK_REALTIME, &before);
		CHECK(!send_datagram(p.qp[0], ah, p.qp[1]->qp_num, QKEY, &sge, 1,
				     0, i));
		end = now_ms() + SECONDS * 1000;
		while (ibv_start_poll(cq, &poll_attr))
			CHECK(now_ms() < end);
		clock_gettime(CLOCK_REALTIME, &after);
		CHECK(cq->wr_id == (uint64_t)i && !cq->status);
		CHECK(ibv_wc_read_src_qp(cq) == p.qp[0]->qp_num);
		CHECK(ibv_wc_read_qp_num(cq) == p.qp[1]->qp_num);
		CHECK(ibv_wc_read_byte_len(cq) == GRH + 64);
		CHECK(ibv_wc_read_imm_data(cq) == htobe32(i + 7));
		CHECK(ibv_wc_read_wc_flags(cq) ==
		      (IBV_WC_GRH | IBV_WC_WITH_IMM));
		CHECK(ibv_wc_read_sl(cq) == packet_kind());
		CHECK(!ibv_wc_read_slid(cq) && !ibv_wc_read_dlid_path_bits(cq));
		CHECK(!ibv_wc_read_cvlan(cq));
		stamp = ibv_wc_read_completion_wallclock_ns(cq);
		ibv_end_poll(cq);
		/*
		 * The two clocks are read one after the other, so a millisecond
		 * is tolerated
		 */
		CHECK(stamp + 1000000 >
		      before.tv_sec * 1000000000ull + before.tv_nsec);
		CHECK(stamp <
		      after.tv_sec * 1000000000ull + after.tv_nsec + 1000000);
	}
	CHECK(!ibv_destroy_ah(ah) && !pair_free(&p));
}

static void test_multicast(void)
{
	/*
	 * The group differs from those of other guests, which may run the same
	 * test at the same time
	 */
	union ibv_gid group = { .raw = { 0xff, 0x0e, [14] = gid.raw[14],
					 [15] = gid.raw[15] } };
	struct ibv_sge sge = sge_of(0, 64), to = sge_of(HALF, 256);
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_ah *ah;
	struct ibv_wc wc;
	struct pair p;
	int i, seen;

	if (is_ipv4())
		group = (union ibv_gid){ .raw = { [10] = 0xff, 0xff, 239, 1,
						  gid.raw[14], gid.raw[15] } };
	ud_pair(&p, &cap, 0);
	ah = ah_to(&group);
	CHECK(ah);
	CHECK(!ibv_attach_mcast(p.qp[0], &group, 0));
	CHECK(!ibv_attach_mcast(p.qp[1], &group, 0));
	for (i = 0; i < 2; i++)
		CHECK(!recv_one(p.qp[i], &to, 1, i) &&
		      !recv_one(p.qp[i], &to, 1, i));
	CHECK(!send_datagram(p.qp[0], ah, 0xffffff, QKEY, &sge, 1, 0, 1));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	for (i = seen = 0; i < 2; i++) {
		CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
		CHECK(wc.src_qp == p.qp[0]->qp_num);
		CHECK(wc.qp_num == p.qp[wc.wr_id]->qp_num);
		seen |= 1 << wc.wr_id;
	}
	CHECK(seen == 3);
	CHECK(!ibv_detach_mcast(p.qp[0], &group, 0));
	CHECK(ibv_detach_mcast(p.qp[0], &group, 0) == EINVAL);
	CHECK(!send_datagram(p.qp[0], ah, 0xffffff, QKEY, &sge, 1, 0, 1));
	CHECK(poll_one(p.recv_cq, &wc) == 1 && wc.wr_id == 1);
	usleep(100000);
	CHECK(!ibv_poll_cq(p.recv_cq, 1, &wc));
	CHECK(!ibv_detach_mcast(p.qp[1], &group, 0));
	CHECK(!ibv_destroy_ah(ah) && !pair_free(&p));
}

static void test_uc(void)
{
	struct pair p = { .type = IBV_QPT_UC };
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 5000), to = sge_of(HALF, 8192);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)buffer + HALF, mr->rkey },
	}, *bad;
	struct ibv_wc wc;
	int i;

	NEED(capabilities & QRNIC_CAP_UC);
	CHECK(!pair_make_as(&p, &cap, 0));
	CHECK(!pair_connect(&p));
	for (i = 0; i < 20; i++) {
		fill(0, 5000, i);
		memset(buffer + HALF, 0, 5000);
		wr.opcode = i % 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM;
		CHECK(!recv_one(p.qp[1], &to, 1, i));
		CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
		CHECK(wc.wr_id == (uint64_t)i && wc.byte_len == 5000);
		CHECK(!memcmp(buffer, buffer + HALF, 5000));
	}
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(ibv_post_send(p.qp[0], &wr, &bad) == EINVAL);
	CHECK(!make_qp(&p, &cap, IBV_QP_EX_WITH_RDMA_READ));
	CHECK(errno == EOPNOTSUPP && !pair_free(&p));
}

static int post_shared(struct ibv_srq *srq, struct ibv_sge *sge, uint64_t wr_id)
{
	struct ibv_recv_wr wr = { wr_id, NULL, sge, 1 }, *bad = NULL;
	int err = ibv_post_srq_recv(srq, &wr, &bad);

	return err && bad != &wr ? -1 : err;
}

static struct ibv_srq *make_srq(struct ibv_pd *in, uint32_t max_wr,
				struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq;

	*attr = (struct ibv_srq_init_attr){ .attr = { max_wr, 2, 0 } };
	srq = ibv_create_srq(in, attr);
	if (!srq)
		NEED(errno != EOPNOTSUPP);
	return srq;
}

static void test_srq_sizes(void)
{
	struct ibv_srq_init_attr attr = { .attr = { 1, 31, 0 } };
	struct ibv_sge sge = sge_of(HALF, 64);
	struct ibv_qp_cap cap = { 8, 0, 1, 0, 0 };
	struct pair p = {};
	struct ibv_wc wc;
	uint32_t number, i;

	NEED(capabilities & QRNIC_CAP_SRQ);
	CHECK(!ibv_create_srq(pd, &attr) && errno == EINVAL);
	attr.attr.max_wr = 0;
	attr.attr.max_sge = 1;
	CHECK(!ibv_create_srq(pd, &attr) && errno == EINVAL);
	p.srq = make_srq(pd, 100, &attr);
	CHECK(p.srq && attr.attr.max_wr >= 100 && attr.attr.max_sge >= 2);
	CHECK(!ibv_get_srq_num(p.srq, &number));
	for (i = 0; i < attr.attr.max_wr; i++)
		CHECK(!post_shared(p.srq, &sge, i));
	CHECK(post_shared(p.srq, &sge, 0) == ENOMEM);

	/*
	 * The SRQ cannot be destroyed before its queue pairs, which have no RQ
	 * of their own
	 */
	CHECK(!pair_make_as(&p, &cap, 0) && !pair_connect(&p));
	CHECK(!cap.max_recv_wr && !cap.max_recv_sge);
	CHECK(recv_one(p.qp[0], &sge, 1, 0) == EINVAL);
	CHECK(ibv_destroy_srq(p.srq) == EBUSY);
	/* One slot becomes free, so one WQE can be posted */
	CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, 0));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(post_shared(p.srq, &sge, 0) == ENOMEM);
	CHECK(!pair_free(&p) && !ibv_destroy_srq(p.srq));
}

static int send_length(struct ibv_qp *qp, uint32_t length, uint32_t imm)
{
	struct ibv_sge sge = sge_of(0, length);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(imm),
	}, *bad;

	return ibv_post_send(qp, &wr, &bad);
}

#define SRQ_MESSAGES 3000
#define SRQ_SLOT 16384

/*
 * Tests two connections with long and short messages. Slots become free in
 * another order than they were posted, and each becomes free once.
 */
static void test_srq_order(void)
{
	int posted = 0, received = 0, sent[2] = {}, reordered = 0;
	struct ibv_qp_cap cap = { 8, 0, 1, 0, 0 };
	uint8_t outstanding[64] = {};
	struct ibv_srq_init_attr attr;
	uint64_t expected = 0, end;
	struct pair p = {};
	struct ibv_sge sge;
	struct ibv_wc wc;
	int i, slot;

	NEED(capabilities & QRNIC_CAP_SRQ);
	p.srq = make_srq(pd, 16, &attr);
	CHECK(p.srq && !pair_make_as(&p, &cap, 0) && !pair_connect(&p));
	end = now_ms() + SECONDS * 1000;
	while (received < SRQ_MESSAGES) {
		while (posted - received < 14) {
			for (slot = 0; outstanding[slot]; slot++)
				;
			sge = sge_of(HALF + slot * SRQ_SLOT, SRQ_SLOT);
			outstanding[slot] = 1;
			CHECK(!post_shared(p.srq, &sge,
					   (uint64_t)posted++ << 8 | slot));
		}
		for (i = 0; i < 2; i++)
			if (sent[i] < SRQ_MESSAGES / 2 && sent[i] <= received) {
				int err = send_length(p.qp[i], i ? 9000 : 8,
						      sent[i]);

				if (err) {
					CHECK(err == ENOMEM);
					continue;
				}
				sent[i]++;
			}
		while (ibv_poll_cq(p.send_cq, 1, &wc) == 1)
			CHECK(!wc.status);
		while (ibv_poll_cq(p.recv_cq, 1, &wc) == 1) {
			CHECK(!wc.status && outstanding[wc.wr_id & 63] == 1);
			CHECK(wc.byte_len ==
			      (wc.qp_num == p.qp[0]->qp_num ? 9000 : 8));
			reordered += wc.wr_id >> 8 != expected;
			expected = (wc.wr_id >> 8) + 1;
			outstanding[wc.wr_id & 63] = 0;
			received++;
			/*
			 * The time limit restarts with each message, because
			 * only a stop is an error
			 */
			end = now_ms() + SECONDS * 1000;
		}
		CHECK(now_ms() < end);
	}
	printf("# %d of %d out of order\n", reordered, SRQ_MESSAGES);
	CHECK(!pair_free(&p) && !ibv_destroy_srq(p.srq));
}

/*
 * Tests that an SRQ grows, and shrinks as far as its posted WQEs allow. No WQE
 * may be lost.
 */
static void test_srq_resize(void)
{
	struct ibv_srq_attr attr = { .max_wr = 40 }, now = {};
	struct ibv_qp_cap cap = { 8, 0, 1, 0, 0 };
	struct ibv_srq_init_attr init;
	struct pair p = {};
	struct ibv_sge sge;
	struct ibv_wc wc;
	uint32_t i, n;

	NEED(capabilities & QRNIC_CAP_SRQ_RESIZE);
	p.srq = make_srq(pd, 15, &init);
	CHECK(p.srq && init.attr.max_wr == 15);
	CHECK(!pair_make_as(&p, &cap, 0) && !pair_connect(&p));
	for (i = 0; i < 15; i++) {
		sge = sge_of(HALF + i * 64, 64);
		CHECK(!post_shared(p.srq, &sge, i));
	}
	CHECK(!ibv_modify_srq(p.srq, &attr, IBV_SRQ_MAX_WR));
	CHECK(!ibv_query_srq(p.srq, &now) && now.max_wr == 63);
	for (; i < 63; i++) {
		sge = sge_of(HALF + i * 64, 64);
		CHECK(!post_shared(p.srq, &sge, i));
	}
	CHECK(post_shared(p.srq, &sge, 0) == ENOMEM);
	for (n = 0; n < 60; n++) {
		fill(0, 64, n);
		CHECK(!send_length(p.qp[0], 64, n));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
		CHECK(wc.wr_id == n && be32toh(wc.imm_data) == n);
		CHECK(!memcmp(buffer, buffer + HALF + n * 64, 64));
	}
	/* Three WQEs are left, at the end of the ring */
	attr.max_wr = 2;
	CHECK(ibv_modify_srq(p.srq, &attr, IBV_SRQ_MAX_WR) == EINVAL);
	attr.max_wr = 3;
	CHECK(!ibv_modify_srq(p.srq, &attr, IBV_SRQ_MAX_WR));
	CHECK(!ibv_query_srq(p.srq, &now) && now.max_wr == 63);
	/* The next WQEs use the beginning of the ring */
	for (i = 0; i < 3; i++) {
		sge = sge_of(HALF + i * 64, 64);
		CHECK(!post_shared(p.srq, &sge, 100 + i));
	}
	for (n = 60; n < 64; n++) {
		CHECK(!send_length(p.qp[0], 64, n));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
		CHECK(wc.wr_id == (n < 63 ? n : 100));
	}
	attr.srq_limit = 2;
	CHECK(!ibv_modify_srq(p.srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT));
	CHECK(!ibv_query_srq(p.srq, &now) && now.max_wr == 3);
	CHECK(now.srq_limit == 2 && !post_shared(p.srq, &sge, 103));
	CHECK(post_shared(p.srq, &sge, 0) == ENOMEM);
	attr.max_wr = 1;
	CHECK(ibv_modify_srq(p.srq, &attr, IBV_SRQ_MAX_WR) == EINVAL);
	for (n = 101; n < 104; n++) {
		CHECK(!send_length(p.qp[0], 64, n));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
		CHECK(wc.wr_id == n);
	}
	CHECK(!pair_free(&p) && !ibv_destroy_srq(p.srq));
}

/*
 * Tests that slots of a destroyed QP become free, whether their completions
 * were polled or not.
 */
static void test_srq_clean(void)
{
	struct ibv_sge sge = sge_of(HALF, 64);
	struct ibv_qp_cap cap = { 8, 0, 1, 0, 0 };
	struct ibv_srq_init_attr attr;
	struct pair p = {};
	struct ibv_wc wc;
	uint32_t i;
	int round;

	NEED(capabilities & QRNIC_CAP_SRQ);
	p.srq = make_srq(pd, 7, &attr);
	CHECK(p.srq && attr.attr.max_wr == 7);
	for (i = 0; i < 7; i++)
		CHECK(!post_shared(p.srq, &sge, i));
	for (round = 0; round < 10; round++) {
		CHECK(!pair_make_as(&p, &cap, 0) && !pair_connect(&p));
		for (i = 0; i < 5; i++) {
			CHECK(!send_length(p.qp[0], 8, i));
			CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		}
		CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
		if (round % 2)
			CHECK(!to_state(p.qp[1], IBV_QPS_RESET));
		CHECK(!pair_free(&p));
		for (i = 0; i < 5; i++)
			CHECK(!post_shared(p.srq, &sge, i));
		CHECK(post_shared(p.srq, &sge, 0) == ENOMEM);
	}
	CHECK(!ibv_destroy_srq(p.srq));
}

#define SRQ_THREADS 3
#define THREAD_MESSAGES 1500

static struct pair srq_pair[SRQ_THREADS];
static _Atomic(unsigned int) srq_errors;

/* Sends to itself over its own connection, and posts to the shared SRQ. */
static void *srq_thread(void *number)
{
	struct pair *p = &srq_pair[(uintptr_t)number];
	struct ibv_sge sge = sge_of(HALF, 64);
	int sent = 0, received = 0;
	struct ibv_wc wc;

	while (received < THREAD_MESSAGES) {
		if (sent < THREAD_MESSAGES && sent - received < 4) {
			srq_errors += !!send_length(p->qp[0], 8, sent);
			sent++;
		}
		while (ibv_poll_cq(p->send_cq, 1, &wc) == 1)
			srq_errors += wc.status != 0;
		while (ibv_poll_cq(p->recv_cq, 1, &wc) == 1) {
			srq_errors += wc.status || wc.wr_id != 42 ||
				      be32toh(wc.imm_data) != (uint32_t)received;
			srq_errors += !!post_shared(p->srq, &sge, 42);
			received++;
		}
		if (srq_errors)
			break;
	}
	return NULL;
}

static void test_srq_threads(void)
{
	struct ibv_sge sge = sge_of(HALF, 64);
	struct ibv_qp_cap cap = { 16, 0, 1, 0, 0 };
	pthread_t thread[SRQ_THREADS];
	struct ibv_srq_init_attr attr;
	struct ibv_srq *srq;
	uintptr_t i;

	NEED(capabilities & QRNIC_CAP_SRQ);
	srq = make_srq(pd, 31, &attr);
	CHECK(srq);
	for (i = 0; i < SRQ_THREADS; i++) {
		srq_pair[i] = (struct pair){ .srq = srq };
		CHECK(!pair_make_as(&srq_pair[i], &cap, 0));
		CHECK(!pair_connect(&srq_pair[i]));
	}
	for (i = 0; i < attr.attr.max_wr; i++)
		CHECK(!post_shared(srq, &sge, 42));
	srq_errors = 0;
	for (i = 0; i < SRQ_THREADS; i++)
		CHECK(!pthread_create(&thread[i], NULL, srq_thread, (void *)i));
	for (i = 0; i < SRQ_THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK(!srq_errors && post_shared(srq, &sge, 42) == ENOMEM);
	for (i = 0; i < SRQ_THREADS; i++)
		CHECK(!pair_free(&srq_pair[i]));
	CHECK(!ibv_destroy_srq(srq));
}

static void test_srq_limit(void)
{
	struct pollfd pfd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_srq_attr limit = { .srq_limit = 3 };
	struct ibv_qp_cap cap = { 8, 0, 1, 0, 0 };
	struct ibv_sge sge = sge_of(HALF, 64);
	struct ibv_srq_init_attr attr;
	struct ibv_async_event event;
	struct pair p = {};
	struct ibv_wc wc;
	int i;

	NEED(capabilities & QRNIC_CAP_SRQ);
	p.srq = make_srq(pd, 10, &attr);
	CHECK(p.srq && !pair_make_as(&p, &cap, 0) && !pair_connect(&p));
	for (i = 0; i < 5; i++)
		CHECK(!post_shared(p.srq, &sge, i));
	CHECK(!ibv_modify_srq(p.srq, &limit, IBV_SRQ_LIMIT));
	limit.srq_limit = 0;
	CHECK(!ibv_query_srq(p.srq, &limit) && limit.srq_limit == 3);
	CHECK(limit.max_wr == attr.attr.max_wr);
	for (i = 0; i < 2; i++) {
		CHECK(!send_length(p.qp[0], 8, i));
		CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
	}
	CHECK(!send_length(p.qp[0], 8, i));
	for (;;) {
		CHECK(poll(&pfd, 1, SECONDS * 1000) == 1);
		CHECK(!ibv_get_async_event(context, &event));
		ibv_ack_async_event(&event);
		/* Other events only report established connections */
		if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
			break;
	}
	CHECK(event.element.srq == p.srq);
	CHECK(!ibv_query_srq(p.srq, &limit) && !limit.srq_limit);
	CHECK(!pair_free(&p) && !ibv_destroy_srq(p.srq));
}

static int write_to(struct ibv_qp *qp, uint64_t address, uint32_t rkey)
{
	struct ibv_sge sge = sge_of(0, 64);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { address, rkey },
	}, *bad;

	return ibv_post_send(qp, &wr, &bad);
}

static struct ibv_mw *make_mw(enum ibv_mw_type type, struct ibv_mr **region)
{
	struct ibv_mw *mw;

	NEED(capabilities & QRNIC_CAP_MW);
	*region = ibv_reg_mr(pd, buffer, BUFFER_SIZE,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	CHECK(*region);
	mw = ibv_alloc_mw(pd, type);
	CHECK(mw);
	return mw;
}

static void test_window_1(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_mw_bind bind = {
		.wr_id = 4,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_mr *region;
	uint32_t first;
	struct ibv_mw *mw;
	struct ibv_wc wc;
	struct pair p;

	mw = make_mw(IBV_MW_TYPE_1, &region);
	CHECK(!pair_make(&p, &cap, 0) && !pair_connect(&p));
	first = mw->rkey;
	bind.bind_info = (struct ibv_mw_bind_info){
		region, (uintptr_t)buffer + HALF, 4096,
		IBV_ACCESS_REMOTE_WRITE,
	};
	CHECK(!ibv_bind_mw(p.qp[1], mw, &bind));
	CHECK(mw->rkey != first && mw->rkey >> 8 == first >> 8);
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status && wc.wr_id == 4);
	CHECK(wc.opcode == IBV_WC_BIND_MW);
	fill(0, 64, 8);
	CHECK(!write_to(p.qp[0], (uintptr_t)buffer + HALF + 100, mw->rkey));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(!memcmp(buffer, buffer + HALF + 100, 64));
	/* The region cannot be deregistered while a window is bound to it */
	CHECK(ibv_dereg_mr(region));
	/* A bind with length 0 unbinds the window */
	bind.bind_info.length = 0;
	CHECK(!ibv_bind_mw(p.qp[1], mw, &bind));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(!write_to(p.qp[0], (uintptr_t)buffer + HALF, mw->rkey));
	CHECK(poll_one(p.send_cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
	CHECK(!pair_free(&p) && !ibv_dealloc_mw(mw) && !ibv_dereg_mr(region));
}

static void test_window_2(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(HALF, 64);
	struct ibv_send_wr wr = { .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_mr *region;
	struct ibv_mw *mw;
	uint32_t key;
	struct ibv_wc wc;
	struct pair p;
	int i;

	mw = make_mw(IBV_MW_TYPE_2, &region);
	CHECK(!pair_make(&p, &cap, 0) && !pair_connect(&p));
	key = mw->rkey;
	for (i = 0; i < 4; i++) {
		key = ibv_inc_rkey(key);
		wr.opcode = IBV_WR_BIND_MW;
		wr.bind_mw.mw = mw;
		/*
		 * Only the variant of the key counts, because the index belongs
		 * to the window
		 */
		wr.bind_mw.rkey = i % 2 ? key : key ^ 0x100;
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
			region, (uintptr_t)buffer + HALF, 4096,
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED,
		};
		CHECK(!ibv_post_send(p.qp[1], &wr, &bad));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(wc.opcode == IBV_WC_BIND_MW);
		/* The first byte of the window has the address 0 */
		fill(0, 64, i);
		CHECK(!write_to(p.qp[0], 0, key));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(!memcmp(buffer, buffer + HALF, 64));

		wr.invalidate_rkey = key;
		if (i % 2) {
			wr.opcode = IBV_WR_LOCAL_INV;
			CHECK(!ibv_post_send(p.qp[1], &wr, &bad));
			CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
			CHECK(wc.opcode == IBV_WC_LOCAL_INV);
			continue;
		}
		CHECK(!recv_one(p.qp[1], &sge, 1, i));
		wr.opcode = IBV_WR_SEND_WITH_INV;
		CHECK(!ibv_post_send(p.qp[0], &wr, &bad));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
		CHECK(wc.wc_flags == IBV_WC_WITH_INV);
		CHECK(wc.invalidated_rkey == key);
	}
	CHECK(!write_to(p.qp[0], 0, key));
	CHECK(poll_one(p.send_cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
	CHECK(!pair_free(&p) && !ibv_dealloc_mw(mw) && !ibv_dereg_mr(region));
}

/* Tests windows with the extended interface. */
static void test_window_extended(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_mw_bind_info info = { .length = 4096 };
	struct ibv_sge sge = sge_of(HALF, 64);
	struct ibv_mr *region;
	struct ibv_qp_ex *ex;
	struct ibv_mw *mw;
	struct ibv_wc wc;
	struct pair p;
	uint32_t key;

	mw = make_mw(IBV_MW_TYPE_2, &region);
	info.mr = region;
	info.addr = (uintptr_t)buffer + HALF;
	info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	CHECK(!pair_make(&p, &cap, IBV_QP_EX_WITH_BIND_MW |
			 IBV_QP_EX_WITH_LOCAL_INV |
			 IBV_QP_EX_WITH_SEND_WITH_INV |
			 IBV_QP_EX_WITH_RDMA_WRITE) && !pair_connect(&p));
	key = ibv_inc_rkey(mw->rkey);
	ex = ibv_qp_to_qp_ex(p.qp[0]);
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(ex, mw, key, &info);
	ibv_wr_local_inv(ex, key);
	ibv_wr_bind_mw(ex, mw, ibv_inc_rkey(key), &info);
	CHECK(!ibv_wr_complete(ex));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(!recv_one(p.qp[0], &sge, 1, 0));
	ex = ibv_qp_to_qp_ex(p.qp[1]);
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_inv(ex, ibv_inc_rkey(key));
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)buffer, 64);
	CHECK(!ibv_wr_complete(ex));
	CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
	CHECK(wc.wc_flags == IBV_WC_WITH_INV && wc.byte_len == 64);
	CHECK(wc.invalidated_rkey == ibv_inc_rkey(key));
	/* These work requests have no payload */
	ibv_wr_start(ex);
	ibv_wr_local_inv(ex, key);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)buffer, 64);
	CHECK(ibv_wr_complete(ex) == EINVAL);
	CHECK(!pair_free(&p) && !ibv_dealloc_mw(mw) && !ibv_dereg_mr(region));
}

static void test_reregister(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_mr *region;
	struct ibv_wc wc;
	struct pair p;
	int err;

	region = ibv_reg_mr(pd, buffer, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(region && !pair_make(&p, &cap, 0) && !pair_connect(&p));
	err = ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION |
			   IBV_REREG_MR_CHANGE_ACCESS, NULL, buffer + HALF,
			   8192, IBV_ACCESS_LOCAL_WRITE |
			   IBV_ACCESS_REMOTE_WRITE);
	CHECK(!err && region->addr == buffer + HALF && region->length == 8192);
	fill(0, 64, 21);
	CHECK(!write_to(p.qp[0], (uintptr_t)buffer + HALF + 8000, region->rkey));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(!memcmp(buffer, buffer + HALF + 8000, 64));
	CHECK(!write_to(p.qp[0], (uintptr_t)buffer, region->rkey));
	CHECK(poll_one(p.send_cq, &wc) == 1);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
	CHECK(!pair_free(&p) && !ibv_dereg_mr(region));
}

/* Tests a null region: reads return zeros, and written data is lost. */
static void test_null_region(void)
{
	struct ibv_qp_cap cap = { 8, 8, 2, 2, 0 };
	struct ibv_mr *null;
	struct ibv_sge sge[2];
	struct ibv_wc wc;
	struct pair p;
	struct ibv_pd *other = ibv_alloc_pd(context);

	CHECK(other);
	null = ibv_alloc_null_mr(pd);
	if (!null) {
		int err = errno;

		CHECK(!ibv_dealloc_pd(other));
		NEED(err != EOPNOTSUPP);
	}
	CHECK(null && !ibv_dealloc_pd(other));
	CHECK(!pair_make(&p, &cap, 0) && !pair_connect(&p));
	memset(buffer, 0x55, 128);
	memset(buffer + HALF, 0xaa, 256);
	sge[0] = (struct ibv_sge){ 0, 64, null->lkey };
	sge[1] = sge_of(0, 64);
	CHECK(!write_one(p.qp[0], sge, 2, IBV_SEND_SIGNALED, 1));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
	CHECK(!buffer[HALF] && !buffer[HALF + 63]);
	CHECK(buffer[HALF + 64] == 0x55 && buffer[HALF + 127] == 0x55);
	sge[0] = (struct ibv_sge){ 0x1000, 100, null->lkey };
	sge[1] = sge_of(HALF, 28);
	CHECK(!recv_one(p.qp[1], sge, 2, 2));
	CHECK(!send_length(p.qp[0], 128, 0));
	CHECK(poll_one(p.recv_cq, &wc) == 1 && !wc.status);
	CHECK(wc.byte_len == 128 && buffer[HALF + 27] == 0x55);
	CHECK(!pair_free(&p) && !ibv_dereg_mr(null));
}

static void test_resize(void)
{
	struct ibv_qp_cap cap = { 64, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 8);
	struct ibv_wc wc;
	struct pair p;
	int i, round, id = 0, next = 0;

	NEED(capabilities & QRNIC_CAP_CQ_RESIZE);
	CHECK(!pair_make(&p, &cap, 0) && !pair_connect(&p));
	CHECK(ibv_resize_cq(p.send_cq, 0) == EINVAL);
	CHECK(ibv_resize_cq(p.send_cq, INT32_MAX) == EINVAL);
	/*
	 * The ring has wrapped around in some rounds, with 0 to 50 CQEs in it
	 */
	for (round = 0; round < 40; round++) {
		for (i = 0; i < round % 4 * 16 + 2; i++)
			CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED,
					 id++));
		usleep(20000);
		if (round % 4 == 3) {
			CHECK(ibv_resize_cq(p.send_cq, 20) == EINVAL);
			CHECK(!ibv_resize_cq(p.send_cq, 64));
			CHECK(p.send_cq->cqe == 64);
		} else {
			CHECK(!ibv_resize_cq(p.send_cq, 100 << round % 5));
			CHECK(p.send_cq->cqe >= 100 << round % 5);
		}
		while (next < id) {
			CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
			CHECK(wc.wr_id == (uint64_t)next++);
		}
		CHECK(!ibv_poll_cq(p.send_cq, 1, &wc));
	}
	CHECK(!pair_free(&p));
}

/*
 * Tests that an event comes for several completions, or when the first has
 * waited long enough.
 */
static void test_moderation(void)
{
	struct ibv_modify_cq_attr attr = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = 4 },
	};
	struct ibv_qp_cap cap = { 64, 8, 1, 1, 0 };
	struct ibv_sge sge = sge_of(0, 8);
	struct pair marker;
	struct ibv_wc wc;
	uint64_t start;
	struct pair p;
	int i, err;

	CHECK(!pair_make(&p, &cap, 0) && !pair_connect(&p));
	err = ibv_modify_cq(p.send_cq, &attr);
	if (err == EOPNOTSUPP) {
		CHECK(!pair_free(&p));
		NEED(false);
	}
	marker_make(&marker, p.channel);
	CHECK(!err && !ibv_req_notify_cq(p.send_cq, 0));
	for (i = 0; i < 4; i++) {
		completions_wait(p.send_cq, i);
		no_event(&marker);
		CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
	}
	CHECK(next_cq_event(p.channel) == p.send_cq);
	while (i--)
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);

	attr.moderate.cq_count = 1000;
	attr.moderate.cq_period = 50000;
	CHECK(!ibv_modify_cq(p.send_cq, &attr));
	CHECK(!ibv_req_notify_cq(p.send_cq, 0));
	start = now_ms();
	CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
	CHECK(next_cq_event(p.channel) == p.send_cq);
	CHECK(now_ms() - start >= 49);
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);

	attr.moderate.cq_count = attr.moderate.cq_period = 0;
	CHECK(!ibv_modify_cq(p.send_cq, &attr));
	CHECK(!ibv_req_notify_cq(p.send_cq, 0));
	CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, i));
	CHECK(next_cq_event(p.channel) == p.send_cq);
	CHECK(!marker_free(&marker) && !pair_free(&p));
}

static int allocated, freed;
static uint64_t types_seen;

static void *own_alloc(struct ibv_pd *in, void *user, size_t size,
		       size_t alignment, uint64_t type)
{
	void *memory;

	if (!in || user != &allocated || size % alignment ||
	    posix_memalign(&memory, alignment, size))
		return NULL;
	memset(memory, 0xff, size);
	allocated++;
	types_seen |= 1ull << type;
	return memory;
}

static void own_free(struct ibv_pd *in, void *user, void *memory, uint64_t type)
{
	freed += in && user == &allocated && type;
	free(memory);
}

static void test_parent_domain(void)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = own_alloc,
		.free = own_free,
		.pd_context = &allocated,
	};
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 100,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
	};
	struct ibv_qp_cap cap = { 64, 64, 4, 4, has_inline() ? 100 : 0 };
	struct ibv_td_init_attr td_attr = {};
	struct ibv_sge sge = sge_of(0, 100);
	struct qrnicdv_device_attr dev;
	struct qrnicdv_qp qp;
	struct pair p = {};
	struct ibv_td *td;
	struct ibv_wc wc;
	int i;

	td = ibv_alloc_td(context, &td_attr);
	CHECK(td);
	attr.td = td;
	p.pd = ibv_alloc_parent_domain(context, &attr);
	CHECK(p.pd && ibv_dealloc_td(td) == EBUSY);
	cq_attr.parent_domain = p.pd;
	p.channel = ibv_create_comp_channel(context);
	p.send_cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &cq_attr));
	p.recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(p.send_cq && p.recv_cq && p.channel);
	p.qp[0] = make_qp(&p, &cap, 0);
	p.qp[1] = make_qp(&p, &cap, 0);
	CHECK(p.qp[0] && p.qp[1] && !pair_connect(&p));
	CHECK(allocated == 3 && !freed);
	CHECK(types_seen ==
	      (1 << QRNICDV_RES_TYPE_CQ | 1 << QRNICDV_RES_TYPE_QP));
	CHECK(!qrnicdv_query_device(context, &dev, sizeof(dev)));
	CHECK(!qrnicdv_query_qp(p.qp[0], &qp, sizeof(qp)));
	printf("# the thread domain %s\n", qp.db_page == dev.db_page ?
	       "shares the doorbell page" : "has a doorbell page");
	for (i = 0; i < 200; i++) {
		fill(0, 100, i);
		CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED |
				 (i % 2 && has_inline() ? IBV_SEND_INLINE : 0),
				 i));
		CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status);
		CHECK(!memcmp(buffer, buffer + HALF, 100));
	}
	CHECK(ibv_dealloc_pd(p.pd) == EBUSY);
	CHECK(!pair_free(&p) && freed == 3);
	CHECK(!ibv_dealloc_pd(p.pd) && !ibv_dealloc_td(td));
}

static bool lacks(uint64_t capability)
{
	if (capabilities & capability)
		return false;
	errno = 0;
	return true;
}

/*
 * Tests that an adapter with fewer features returns EOPNOTSUPP for all of them.
 */
static void test_lacks(void)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { 8, 1, 0 } };
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_send_wr wr = {}, *bad;
	struct pair p, other;

	CHECK(!pair_make(&p, &cap, 0) && !pair_connect(&p));
	other = p;
	other.type = IBV_QPT_UD;
	if (lacks(QRNIC_CAP_UD))
		CHECK(!make_qp(&other, &cap, 0) && errno == EOPNOTSUPP);
	other.type = IBV_QPT_UC;
	if (lacks(QRNIC_CAP_UC))
		CHECK(!make_qp(&other, &cap, 0) && errno == EOPNOTSUPP);
	other.type = IBV_QPT_RC;
	if (lacks(QRNIC_CAP_ATOMIC))
		CHECK(!make_qp(&other, &cap, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP) &&
		      errno == EOPNOTSUPP);
	if (lacks(QRNIC_CAP_SRQ))
		CHECK(!ibv_create_srq(pd, &srq_attr) && errno == EOPNOTSUPP);
	if (lacks(QRNIC_CAP_CQ_RESIZE))
		CHECK(ibv_resize_cq(p.send_cq, 64) == EOPNOTSUPP);
	if (lacks(QRNIC_CAP_MW)) {
		CHECK(!ibv_alloc_mw(pd, IBV_MW_TYPE_1) && errno == EOPNOTSUPP);
		CHECK(!make_qp(&other, &cap, IBV_QP_EX_WITH_BIND_MW) &&
		      errno == EOPNOTSUPP);
	}
	if (lacks(QRNIC_CAP_MW | QRNIC_CAP_FAST_REG)) {
		wr.opcode = IBV_WR_LOCAL_INV;
		CHECK(ibv_post_send(p.qp[0], &wr, &bad) == EOPNOTSUPP);
		wr.opcode = IBV_WR_SEND_WITH_INV;
		CHECK(ibv_post_send(p.qp[0], &wr, &bad) == EOPNOTSUPP);
	}
	CHECK(!pair_free(&p));
}

/* Tests that doorbell pages run out, and can be allocated again. */
static void test_many_domains(void)
{
	static struct ibv_td *td[4096];
	struct ibv_td_init_attr attr = {};
	int round, n, first = 0;

	for (round = 0; round < 2; round++) {
		for (n = 0; n < 4096; n++) {
			td[n] = ibv_alloc_td(context, &attr);
			if (!td[n])
				break;
		}
		CHECK(n > 10 && (n == 4096 || errno == ENOMEM));
		CHECK(!round || n == first);
		first = n;
		while (n--)
			CHECK(!ibv_dealloc_td(td[n]));
	}
}

/*
 * Waits until a counter of the port exceeds a value, and returns the counter.
 * With the value -1 the function only reads the counter.
 */
static int64_t counter_over(const char *name, int64_t before)
{
	uint64_t end = now_ms() + SECONDS * 1000;
	int64_t value;
	char path[64];

	snprintf(path, sizeof(path), "ports/1/hw_counters/%s", name);
	do {
		value = read_counter(ibv_get_device_name(context->device), path);
	} while (value <= before && now_ms() < end);
	return value;
}

/*
 * Tests that an imported context shares its doorbell page, but its thread
 * domain has its own.
 */
static void import_direct(struct pair *p, struct ibv_context *other,
			  struct ibv_sge *sge)
{
	struct ibv_parent_domain_init_attr domain = { .pd = p->pd };
	struct ibv_td_init_attr attr = {};
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_context *mine = context;
	struct pair own = {};
	struct ibv_wc wc;
	int64_t before;
	int err;

	domain.td = ibv_alloc_td(other, &attr);
	CHECK(domain.td);
	own.pd = ibv_alloc_parent_domain(other, &domain);
	CHECK(own.pd);
	context = other;
	err = pair_make_as(&own, &cap, 0) || pair_connect(&own);
	context = mine;
	CHECK(!err);
	before = counter_over("direct_wqe_used", -1);
	CHECK(!write_one(own.qp[0], sge, 1, IBV_SEND_SIGNALED, 4));
	CHECK(poll_one(own.send_cq, &wc) == 1 && !wc.status);
	/*
	 * The kernel may return a value that it has read shortly before, so the
	 * test waits
	 */
	if (capabilities & QRNIC_CAP_DIRECT_WQE &&
	    getenv("QRNIC_DIRECT_WQE") && atoi(getenv("QRNIC_DIRECT_WQE")))
		CHECK(counter_over("direct_wqe_used", before) > before);
	CHECK(!pair_free(&own) && !ibv_dealloc_pd(own.pd));
	CHECK(!ibv_dealloc_td(domain.td));
}

/* Tests all imported objects with a second context in this process. */
static void test_import(void)
{
	struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
	struct ibv_context *other, *mine = context;
	struct ibv_sge sge = sge_of(0, 64);
	struct ibv_mr *region;
	struct pair p = {};
	struct ibv_wc wc;
	int fd = dup(context->cmd_fd);

	other = ibv_import_device(fd);
	if (!other) {
		int err = errno;

		close(fd);
		NEED(err != EOPNOTSUPP);
	}
	CHECK(other);
	CHECK(!ibv_import_pd(other, 0x7fffffff));
	p.pd = ibv_import_pd(other, pd->handle);
	CHECK(p.pd);
	CHECK(!ibv_import_mr(p.pd, 0x7fffffff));
	region = ibv_import_mr(p.pd, mr->handle);
	CHECK(region && region->lkey == mr->lkey && region->rkey == mr->rkey);
	context = other;
	if (pair_make_as(&p, &cap, 0) || pair_connect(&p)) {
		context = mine;
		CHECK(!"queue pairs of the imported context");
	}
	context = mine;
	sge.lkey = region->lkey;
	fill(0, 64, 77);
	CHECK(!write_one(p.qp[0], &sge, 1, IBV_SEND_SIGNALED, 3));
	CHECK(poll_one(p.send_cq, &wc) == 1 && !wc.status && wc.wr_id == 3);
	CHECK(!memcmp(buffer, buffer + HALF, 64));
	import_direct(&p, other, &sge);
	CHECK(!pair_free(&p));
	ibv_unimport_mr(region);
	ibv_unimport_pd(p.pd);
	CHECK(!ibv_close_device(other));
}

int main(int argc, char **argv)
{
	if (set_up(argc, argv)) {
		printf("Bail out! no usable qrnic adapter (errno %d)\n", errno);
		return 2;
	}
	run("datagrams", test_datagrams);
	run("invalid datagrams", test_datagram_refusals);
	run("the datagram segment", test_datagram_segment);
	run("datagrams by the extended interface", test_datagram_extended);
	run("fields of the completion of a datagram", test_datagram_fields);
	run("multicast", test_multicast);
	run("unreliable connection", test_uc);
	run("sizes of an SRQ", test_srq_sizes);
	run("slots of an SRQ in any order", test_srq_order);
	run("an SRQ grows and shrinks", test_srq_resize);
	run("an SRQ after its queue pairs are destroyed", test_srq_clean);
	if (!getenv("QRNIC_SINGLE_THREADED"))
		run("an SRQ with several threads", test_srq_threads);
	run("limit of an SRQ", test_srq_limit);
	run("window of type 1", test_window_1);
	run("window of type 2", test_window_2);
	run("window by the extended interface", test_window_extended);
	run("a region is registered again", test_reregister);
	run("null region", test_null_region);
	run("resizing a CQ", test_resize);
	run("moderation of events", test_moderation);
	run("thread and parent domain", test_parent_domain);
	run("many thread domains", test_many_domains);
	run("import", test_import);
	run("missing features of the adapter", test_lacks);
	return tear_down();
}
