// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * datagram.c: UD and UC between two QPs of one device: members of a datagram's
 * completion, Q_Keys, multicast, and the operations of UC.
 */
#include "kernel_verbs.h"

#include <linux/etherdevice.h>
#include <linux/ip.h>

#define GRH_NEXT_BTH 0x1b
#define QKEY 0x11111111
#define GRH 40

static int to_rts(struct end *end)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT, .port_num = PORT, .qkey = QKEY,
	};
	int err;

	err = ib_modify_qp(end->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			   IB_QP_PORT | IB_QP_QKEY);
	if (err)
		return err;
	err = end_to(end, IB_QPS_RTR);
	if (err)
		return err;
	attr.qp_state = IB_QPS_RTS;
	attr.sq_psn = 7;
	return ib_modify_qp(end->qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN);
}

/*
 * Creates an address handle for this device itself, or for a multicast group.
 */
static struct ib_ah *ah_create(struct test *test, const union ib_gid *group,
			       u8 *mac)
{
	struct rdma_ah_attr attr = { .type = RDMA_AH_ATTR_TYPE_ROCE };
	const struct ib_gid_attr *gid;
	struct ib_ah *ah;

	gid = rdma_get_gid_attr(test->dev, PORT, gid_index);
	if (IS_ERR(gid))
		return ERR_CAST(gid);
	rdma_ah_set_port_num(&attr, PORT);
	rdma_ah_set_sl(&attr, 3);
	rdma_ah_set_grh(&attr, (union ib_gid *)(group ? group : &gid->gid), 0,
			gid_index, 64, 0x20);
	rdma_read_gid_l2_fields(gid, NULL, mac);
	ether_addr_copy(attr.roce.dmac, mac);
	if (group) {
		static const u8 ipv4_multicast[ETH_ALEN] = { 0x01, 0x00, 0x5e };

		ether_addr_copy(attr.roce.dmac, ipv4_multicast);
		attr.roce.dmac[3] = group->raw[13] & 0x7f;
		attr.roce.dmac[4] = group->raw[14];
		attr.roce.dmac[5] = group->raw[15];
	}
	rdma_put_gid_attr(gid);
	ah = rdma_create_ah(test->pd, &attr, RDMA_CREATE_AH_SLEEPABLE);
	return ah;
}

static struct ib_ud_wr datagram(struct ib_ah *ah, u32 qpn, u32 qkey,
				struct ib_sge *sge)
{
	return (struct ib_ud_wr) {
		.wr = {
			.wr_id = 50, .sg_list = sge, .num_sge = 1,
			.opcode = IB_WR_SEND_WITH_IMM,
			.send_flags = IB_SEND_SIGNALED,
			.ex.imm_data = cpu_to_be32(99),
		},
		.ah = ah,
		.remote_qpn = qpn,
		.remote_qkey = qkey,
	};
}

/*
 * Waits for the completion of the send and, if requested, of the receive, in
 * any order.
 */
static bool both(struct test *test, u64 receive, struct ib_wc *received)
{
	bool sent = false;
	struct ib_wc wc;
	int i;

	memset(received, 0, sizeof(*received));
	for (i = 0; i < 2; i++) {
		if (!poll_one(test, &wc) || wc.status != IB_WC_SUCCESS)
			return false;
		if (wc.wr_id == 50)
			sent = true;
		else
			*received = wc;
	}
	return sent && received->wr_id == receive;
}

static void check_header(struct test *test, struct end *from, struct end *to,
			 const struct ib_wc *wc, const u8 *mac)
{
	const struct iphdr *ip = (struct iphdr *)(to->buffer + 20);

	EXPECT(test, wc->opcode == IB_WC_RECV && wc->qp == to->qp);
	EXPECT(test, wc->src_qp == from->qp->qp_num);
	EXPECT(test, wc->wc_flags & IB_WC_GRH);
	EXPECT(test, wc->wc_flags & IB_WC_WITH_IMM &&
	       wc->ex.imm_data == cpu_to_be32(99));
	EXPECT(test, wc->wc_flags & IB_WC_WITH_SMAC &&
	       ether_addr_equal(wc->smac, mac));
	EXPECT(test, wc->wc_flags & IB_WC_WITH_NETWORK_HDR_TYPE);
	if (wc->network_hdr_type == RDMA_NETWORK_IPV4)
		EXPECT(test, ip->version == 4 && ip->ihl == 5 &&
		       ip->protocol == IPPROTO_UDP && ip->tos == 0x20);
	else
		EXPECT(test, (wc->network_hdr_type == RDMA_NETWORK_IPV6 ||
			      wc->network_hdr_type == RDMA_NETWORK_ROCE_V1) &&
		       to->buffer[0] == 0x62 &&
		       to->buffer[6] ==
		       (wc->network_hdr_type == RDMA_NETWORK_IPV6 ?
			IPPROTO_UDP : GRH_NEXT_BTH));
}

static void unicast(struct test *test, struct end *c, struct end *d,
		    struct ib_ah *ah, const u8 *mac)
{
	struct ib_sge sge = sge_of(test, c, 0, 700);
	struct ib_ud_wr wr = datagram(ah, d->qp->qp_num, QKEY, &sge);
	struct ib_wc wc;

	fill(c->buffer, 1024, 5);
	memset(d->buffer, 0, 2048);
	EXPECT(test, !recv(test, d, 60, 0, 2048));
	EXPECT(test, !ib_post_send(c->qp, &wr.wr, NULL));
	if (EXPECT(test, both(test, 60, &wc))) {
		EXPECT(test, wc.byte_len == GRH + 700);
		EXPECT(test, filled(d->buffer + GRH, 700, 5));
		check_header(test, c, d, &wc, mac);
	}

	/* A datagram with a wrong Q_Key is sent, but no QP receives it. */
	EXPECT(test, !recv(test, d, 61, 0, 2048));
	wr.remote_qkey = QKEY + 1;
	EXPECT(test, !ib_post_send(c->qp, &wr.wr, NULL));
	EXPECT(test, poll_of(test, 50, &wc));
	EXPECT(test, quiet(test));

	/* The sender's own Q_Key is valid again; the data is inline */
	wr.remote_qkey = 0x80000000;
	wr.wr.send_flags |= IB_SEND_INLINE;
	sge.addr = (uintptr_t)c->buffer;
	sge.length = 150;
	EXPECT(test, !ib_post_send(c->qp, &wr.wr, NULL));
	if (EXPECT(test, both(test, 61, &wc)))
		EXPECT(test, filled(d->buffer + GRH, 150, 5));

	/* Operations that datagrams do not support */
	wr.wr.opcode = IB_WR_RDMA_WRITE;
	EXPECT(test, ib_post_send(c->qp, &wr.wr, NULL) == -EOPNOTSUPP);
}

static void multicast(struct test *test, struct end *c, struct end *d)
{
	union ib_gid group = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 } };
	struct ib_sge sge = sge_of(test, c, 0, 64);
	struct ib_ud_wr wr;
	struct ib_wc wc;
	struct ib_ah *ah;
	u8 mac[ETH_ALEN];

	ah = ah_create(test, &group, mac);
	if (!EXPECT(test, !IS_ERR(ah)))
		return;
	wr = datagram(ah, 0xffffff, QKEY, &sge);
	fill(c->buffer, 64, 77);

	EXPECT(test, !ib_attach_mcast(d->qp, &group, 0));
	EXPECT(test, !recv(test, d, 70, 0, 2048));
	EXPECT(test, !ib_post_send(c->qp, &wr.wr, NULL));
	if (EXPECT(test, both(test, 70, &wc)))
		EXPECT(test, filled(d->buffer + GRH, 64, 77));

	EXPECT(test, !ib_detach_mcast(d->qp, &group, 0));
	EXPECT(test, ib_detach_mcast(d->qp, &group, 0));
	EXPECT(test, !recv(test, d, 71, 0, 2048));
	EXPECT(test, !ib_post_send(c->qp, &wr.wr, NULL));
	EXPECT(test, poll_of(test, 50, &wc));
	EXPECT(test, quiet(test));
	rdma_destroy_ah(ah, 0);
}

/*
 * In an error the length is not valid, so it must not be compared with that of
 * a datagram.
 */
static void flushed(struct test *test, struct end *d)
{
	struct ib_wc wc;

	EXPECT(test, !end_to(d, IB_QPS_RESET));
	EXPECT(test, !to_rts(d));
	EXPECT(test, !recv(test, d, 80, 0, 2048));
	EXPECT(test, !end_to(d, IB_QPS_ERR));
	if (EXPECT(test, poll_one(test, &wc)))
		EXPECT(test, wc.wr_id == 80 && wc.status == IB_WC_WR_FLUSH_ERR);
	EXPECT(test, quiet(test));
}

void test_datagram(struct test *test)
{
	struct end c = { .type = IB_QPT_UD }, d = { .type = IB_QPT_UD };
	u8 mac[ETH_ALEN];
	struct ib_ah *ah;

	if (!rdma_cap_ib_mad(test->dev, PORT)) {
		pr_info("no datagrams\n");
		return;
	}
	ah = ah_create(test, NULL, mac);
	if (!EXPECT(test, !IS_ERR(ah)))
		return;
	if (EXPECT(test, !end_create(test, &c)) &&
	    EXPECT(test, !end_create(test, &d)) &&
	    EXPECT(test, !to_rts(&c)) && EXPECT(test, !to_rts(&d))) {
		unicast(test, &c, &d, ah, mac);
		if (test->dev->attrs.max_mcast_grp)
			multicast(test, &c, &d);
		flushed(test, &d);
	}
	end_destroy(test, &c);
	end_destroy(test, &d);
	rdma_destroy_ah(ah, 0);
}

static void uc_use(struct test *test, struct end *c, struct end *d)
{
	struct ib_sge sge = sge_of(test, c, 0, 9000);
	struct ib_rdma_wr wr = rdma(test, IB_WR_RDMA_WRITE, &sge, 0, 50);
	struct ib_wc wc;

	wr.remote_addr = d->dma + 16384;
	fill(c->buffer, 9000, 11);
	memset(d->buffer, 0, BUFFER_SIZE);
	EXPECT(test, !ib_post_send(c->qp, &wr.wr, NULL));
	EXPECT(test, poll_of(test, 50, &wc) && wc.opcode == IB_WC_RDMA_WRITE);

	/* The send arrives after the write. */
	wr.wr.opcode = IB_WR_SEND_WITH_IMM;
	wr.wr.ex.imm_data = cpu_to_be32(5);
	EXPECT(test, !recv(test, d, 80, 0, 16384));
	EXPECT(test, !ib_post_send(c->qp, &wr.wr, NULL));
	if (!EXPECT(test, both(test, 80, &wc)))
		return;
	EXPECT(test, wc.byte_len == 9000 && wc.ex.imm_data == cpu_to_be32(5));
	EXPECT(test, filled(d->buffer, 9000, 11));
	EXPECT(test, filled(d->buffer + 16384, 9000, 11));

	wr.wr.opcode = IB_WR_RDMA_READ;
	EXPECT(test, ib_post_send(c->qp, &wr.wr, NULL) == -EOPNOTSUPP);
}

void test_unreliable(struct test *test)
{
	struct end c = { .type = IB_QPT_UC }, d = { .type = IB_QPT_UC };
	int err;

	err = end_create(test, &c);
	if (err == -EOPNOTSUPP) {
		pr_info("no unreliable connections\n");
		end_destroy(test, &c);
		return;
	}
	if (EXPECT(test, !err) && EXPECT(test, !end_create(test, &d)) &&
	    EXPECT(test, !end_to_init(&c)) && EXPECT(test, !end_to_init(&d)) &&
	    EXPECT(test, !end_connect(test, &c, &d)) &&
	    EXPECT(test, !end_connect(test, &d, &c)))
		uc_use(test, &c, &d);
	end_destroy(test, &c);
	end_destroy(test, &d);
}
