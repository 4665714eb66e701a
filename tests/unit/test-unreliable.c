/*
 * Unreliable connections and datagrams: errors of the sender, incomplete
 * messages, messages that do not fit, and isolation from other queue pairs
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pair.h"

#define MTU 1024
#define QKEY 0x1234
#define HALF (PAIR_BYTES / 2)

static void settle(Pair *p)
{
    g_assert_true(sim_run(p->sim, p->sim->now + 10000 * SIM_MS));
}

static void end_init(PairEnd *e, SimNode *n)
{
    e->qp = sim_uc_new(n, NULL);
    e->addr = sim_alloc(n, PAIR_BYTES);
    e->data = n->memory + e->addr;
    e->key = sim_mkey(n, e->addr, PAIR_BYTES, ACCESS_ALL);
}

/* Makes a pair like that of pair.h, of UC queue pairs. */
static Pair *uc_pair_new(void)
{
    Pair *p = g_new0(Pair, 1);

    p->sim = sim_new(23, NULL);
    end_init(&p->a, &p->sim->node[0]);
    end_init(&p->b, &p->sim->node[1]);
    sim_uc_connect(p->a.qp, p->b.qp);
    pair_fill(p);
    return p;
}

static uint64_t counted(PairEnd *e, enum qrnic_counter c)
{
    return sim_counter(e->qp->node, c);
}

static void to_rts(SimQp *q)
{
    QrnicQpAttr rts = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTS };

    g_assert_cmpint(sim_modify(q, &rts).status, ==, QRNIC_ST_OK);
}

/* Enters SQE by a WQE with a bad key. */
static void into_sqe(Pair *p)
{
    SimSge sge = { p->a.addr, 100, p->a.key ^ 1 };
    SimWr wr = { .opcode = QRNIC_WQE_SEND, .sge = &sge, .num_sge = 1 };

    sim_post_send(p->a.qp, &wr);
    settle(p);
    expect_status(p->a.qp, QRNIC_WC_LOC_PROT_ERR);
    expect_state(p->a.qp, QRNIC_QPS_SQE);
}

/*
 * WQEs posted in SQE are flushed, even if the queue pair leaves SQE before the
 * device has processed them. Later WQEs are sent.
 */
static void test_leave_sqe(void)
{
    Pair *p = uc_pair_new();

    into_sqe(p);
    for (int i = 0; i < 40; i++) {
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    }
    to_rts(p->a.qp);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 200, HALF, 100);
    settle(p);
    for (int i = 0; i < 40; i++) {
        expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
    }
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_no_cqe(p->a.qp);
    g_assert_cmpint(counted(&p->b, QRNIC_COUNTER_RX_WRITE), ==, 1);
    g_assert_cmpmem(p->b.data + HALF, 100, p->a.data + 200, 100);
    pair_free(p);
}

/*
 * Tests the move from SQE to RTS with a blocked wire, because a flush does not
 * need the wire.
 */
static void test_leave_sqe_wire_busy(void)
{
    Pair *p = uc_pair_new();
    PairEnd other = p->a;
    SimQp *far = sim_uc_new(p->b.qp->node, NULL);

    other.qp = sim_uc_new(p->a.qp->node, NULL);
    sim_uc_connect(other.qp, far);
    into_sqe(p);
    p->sim->wire_room = 1;
    p->sim->wire_pause = 1000000 * SIM_MS;
    post(&other, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    sim_run(p->sim, p->sim->now + 5 * SIM_US);
    g_assert_true(p->a.qp->node->blocked);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    to_rts(p->a.qp);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    sim_run(p->sim, p->sim->now + 5 * SIM_US);
    expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
    expect_no_cqe(p->a.qp);     /* Waits for the wire */
    sim_qp_free(other.qp);
    sim_qp_free(far);
    pair_free(p);
}

/*
 * Tests that an impossible record in SQE has no effect, because no WQE was
 * posted.
 */
static void test_record_in_sqe(void)
{
    Pair *p = uc_pair_new();
    uint8_t *record;
    QrnicCqe c;

    into_sqe(p);
    record = p->a.qp->node->memory + p->a.qp->sq_record;
    stl_le_p(record, p->a.qp->sq_producer + 1000);
    sim_ring_sq(p->a.qp);
    settle(p);
    expect_no_cqe(p->a.qp);
    stl_le_p(record, p->a.qp->sq_producer);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 100);
    settle(p);
    c = expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
    g_assert_cmpint(c.index, ==, 1);
    expect_no_cqe(p->a.qp);
    pair_free(p);
}

/*
 * Tests that a message that is too long is dropped, and that the queue pair and
 * the WQE stay.
 */
static void test_too_long(void)
{
    Pair *p = uc_pair_new();
    QrnicCqe c;

    post_recv(&p->b, HALF, 2000);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 2001);
    settle(p);
    g_assert_cmpint(counted(&p->b, QRNIC_COUNTER_RX_DROP_LENGTH), ==, 1);
    /* The rest of a longer message belongs to no message. */
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 3 * MTU);
    settle(p);
    g_assert_cmpint(counted(&p->b, QRNIC_COUNTER_RX_DROP_LENGTH), ==, 2);
    g_assert_cmpint(counted(&p->b, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE), ==, 1);
    expect_no_cqe(p->b.qp);
    expect_state(p->b.qp, QRNIC_QPS_RTS);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 5000, 0, 2000);
    settle(p);
    c = expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmpint(c.index, ==, 0);
    g_assert_cmpint(c.byte_len, ==, 2000);
    g_assert_cmpmem(p->b.data + HALF, 2000, p->a.data + 5000, 2000);
    pair_free(p);
}

/*
 * Tests that nothing is written of a message whose whole range is not allowed.
 */
static void test_write_range(void)
{
    Pair *p = uc_pair_new();
    g_autofree uint8_t *before = g_memdup2(p->b.data, PAIR_BYTES);

    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, PAIR_BYTES - 2 * MTU,
         2 * MTU + 1);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpint(counted(&p->b, QRNIC_COUNTER_RX_DROP_ACCESS), ==, 1);
    g_assert_cmpint(counted(&p->b, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE), ==, 2);
    g_assert_cmpmem(p->b.data, PAIR_BYTES, before, PAIR_BYTES);
    pair_free(p);
}

/* Tests a write whose length is above the maximum of a message. */
static void test_write_huge(void)
{
    Pair *p = uc_pair_new();
    QrnicPathSpec spec = sim_path_to(p->b.qp, p->a.qp);
    QrnicTransport t = {
        .opcode = QRNIC_OP_UC_WRITE_FIRST, .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = p->b.qp->number, .va = p->b.addr, .rkey = p->b.key,
        .dma_len = QRNIC_MAX_MSG_SIZE + 1,
    };
    uint8_t frame[2048], *payload;
    QrnicPath path;

    qrnic_path_init(&path, &spec);
    payload = qrnic_packet_begin(&path, frame, &t, MTU);
    memset(payload, 0x5a, MTU);
    sim_inject(p->sim, 1, frame,
               qrnic_packet_finish(&path, frame, payload, MTU));
    g_assert_cmpint(counted(&p->b, QRNIC_COUNTER_RX_DROP_MALFORMED), ==, 1);
    g_assert_cmpint(counted(&p->b, QRNIC_COUNTER_RX_DROP_ACCESS), ==, 0);
    pair_free(p);
}

typedef struct Lose {
    unsigned count, which;
} Lose;

/* Loses one frame of node A. */
static bool tap_lose(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                     void *opaque)
{
    Lose *l = opaque;

    return from != 0 || l->count++ != l->which;
}

/*
 * Tests messages of three packets, three packets and one. If one packet is
 * lost, its message is not received, the others are, and a counter reports it.
 */
static void test_lost(void)
{
    static const uint32_t len[] = { 3 * MTU, 2 * MTU + 1, 10 };

    for (unsigned lost = 0; lost < 7; lost++) {
        static const unsigned dropped[] = { 2, 1, 1, 2, 1, 1, 0 };
        Pair *p = uc_pair_new();
        Lose lose = { .which = lost };
        uint32_t index = 0;

        p->sim->tap = tap_lose;
        p->sim->tap_opaque = &lose;
        for (unsigned i = 0; i < 4; i++) {
            post_recv(&p->b, HALF + i * 4096, 4096);
        }
        for (unsigned i = 0; i < 4; i++) {
            post(&p->a, &p->b, QRNIC_WQE_SEND, i * 4096, 0, len[i % 3]);
        }
        settle(p);
        for (unsigned i = 0; i < 4; i++) {
            QrnicCqe c;

            expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
            if (i == lost / 3) {
                continue;
            }
            c = expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
            g_assert_cmpint(c.index, ==, index);
            g_assert_cmpint(c.byte_len, ==, len[i % 3]);
            g_assert_cmpmem(p->b.data + HALF + index * 4096, len[i % 3],
                            p->a.data + i * 4096, len[i % 3]);
            index++;
        }
        expect_no_cqe(p->b.qp);
        g_assert_cmpint(counted(&p->b, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE), ==,
                        dropped[lost]);
        /* The next message does not follow the last one. */
        g_assert_cmpint(counted(&p->b, QRNIC_COUNTER_OUT_OF_SEQUENCE), ==, 1);
        pair_free(p);
    }
}

/* Datagrams */

static void send_datagram(PairEnd *from, SimQp *q, const QrnicDatagramSeg *to,
                          uint32_t len)
{
    SimSge sge = { from->addr, len, from->key };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = 1, .datagram = to,
    };

    sim_post_send(q, &wr);
}

/*
 * Tests that a datagram that does not fit consumes no WQE, so it cannot reach
 * the limit.
 */
static void test_srq_limit(void)
{
    Pair *p = uc_pair_new();
    SimNode *b = p->b.qp->node;
    SimSrq *srq = sim_srq_new(b, 2, 0);
    SimQp *from = sim_datagram_new(p->a.qp->node, QRNIC_QPT_UD, NULL, QKEY);
    SimQp *to = sim_datagram_new(b, QRNIC_QPT_UD, srq, QKEY);
    QrnicDatagramSeg where = sim_datagram_to(to, QKEY);
    SimSge sge = { p->b.addr, QRNIC_GRH_SIZE + 100, p->b.key };
    QrnicSrqLimit limit = { .limit = 1 };

    sim_post_srq(srq, &sge, 1);
    g_assert_cmpint(qrnic_srq_modify(b->engine, srq->number, &limit).status,
                    ==, QRNIC_ST_OK);
    send_datagram(&p->a, from, &where, 101);
    settle(p);
    g_assert_cmpint(sim_counter(b, QRNIC_COUNTER_RX_DROP_LENGTH), ==, 1);
    expect_no_event(b);
    send_datagram(&p->a, from, &where, 100);
    settle(p);
    expect_cqe(to, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    expect_event(b, QRNIC_EVENT_SRQ_LIMIT, srq->number);
    sim_qp_free(from);
    sim_qp_free(to);
    sim_srq_free(srq);
    pair_free(p);
}

/*
 * Tests that a CQ error moves all queue pairs of the CQ to ERR, QP 1 included.
 */
static void test_gsi_cq_error(void)
{
    Pair *p = uc_pair_new();
    SimNode *n = p->a.qp->node;
    SimQp *gsi = sim_datagram_new(n, QRNIC_QPT_GSI, NULL, 0);

    g_assert_cmpint(gsi->number, ==, QRNIC_GSI_QPN);
    n->broken_from = gsi->cq_record;
    n->broken_to = gsi->cq_record + 8;
    sim_cq_arm(gsi);
    settle(p);
    expect_event(n, QRNIC_EVENT_CQ_ERROR, gsi->cq);
    expect_event(n, QRNIC_EVENT_QP_FATAL, gsi->number);
    expect_state(gsi, QRNIC_QPS_ERR);
    sim_qp_free(gsi);
    pair_free(p);
}

/*
 * Tests many receivers of many datagrams. The work of one run is limited
 * (engine.c: 4 rounds of 64 packets; the last group may exceed it).
 */
static void test_multicast_budget(void)
{
    enum { MEMBERS = 100, SENDS = 30, RUN = 4 * (64 + MEMBERS) };
    Pair *p = uc_pair_new();
    SimNode *n = p->a.qp->node;
    SimQp *from = sim_datagram_new(n, QRNIC_QPT_UD, NULL, QKEY);
    SimQp *member[MEMBERS];
    QrnicMulticast group = {
        .gid = { [10] = 0xff, [11] = 0xff, [12] = 239, [15] = 1 },
    };
    QrnicDatagramSeg to = sim_datagram_to(from, QKEY);
    uint64_t before = 0, now;

    memcpy(to.av.dgid, group.gid, sizeof(group.gid));
    memcpy(to.av.dmac, "\x01\x00\x5e\x00\x00\x01", 6);
    to.dest_qpn = QRNIC_MULTICAST_QPN;
    for (unsigned i = 0; i < MEMBERS; i++) {
        member[i] = sim_datagram_new(n, QRNIC_QPT_UD, NULL, QKEY);
        g_assert_cmpint(qrnic_multicast_attach(n->engine, member[i]->number,
                                               &group).status, ==,
                        QRNIC_ST_OK);
    }
    settle(p);
    for (unsigned i = 0; i < SENDS; i++) {
        send_datagram(&p->a, from, &to, 100);
    }
    for (now = 0; now < MEMBERS * SENDS; before = now) {
        qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
        now = sim_counter(n, QRNIC_COUNTER_RX_MULTICAST);
        g_assert_cmpint(now, >, before);
        g_assert_cmpint(now - before, <=, RUN);
    }
    settle(p);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_RX_MULTICAST), ==,
                    MEMBERS * SENDS);
    for (unsigned i = 0; i < MEMBERS; i++) {
        sim_qp_free(member[i]);
    }
    sim_qp_free(from);
    pair_free(p);
}

/*
 * Tests a datagram WQE with the maximum number of data segments. The device
 * fetches this WQE in two parts.
 */
static void test_datagram_sges(void)
{
    Sim *s = sim_new(1, NULL);
    SimNode *n = &s->node[0];
    SimQp *a = sim_datagram_new(n, QRNIC_QPT_UD, NULL, 7);
    SimQp *b = sim_datagram_new(&s->node[1], QRNIC_QPT_UD, NULL, 7);
    QrnicDatagramSeg to = sim_datagram_to(b, 7);
    uint64_t from = sim_alloc(n, 4096), at = sim_alloc(b->node, 4096);
    uint32_t key = sim_mkey(n, from, 4096, 0);
    SimSge recv = {
        at, 4096, sim_mkey(b->node, at, 4096, QRNIC_ACCESS_LOCAL_WRITE),
    };
    SimSge sge[QRNIC_MAX_SGE];
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .sge = sge,
        .num_sge = QRNIC_MAX_SGE, .datagram = &to,
    };

    for (unsigned i = 0; i < QRNIC_MAX_SGE; i++) {
        n->memory[from + i] = 0x40 + i;
        sge[i] = (SimSge) { from + i, 1, key };
    }
    /*
     * The large WQE is at each position of the ring, with a small WQE before
     * it.
     */
    for (unsigned i = 0; i < 8; i++) {
        QrnicCqe c;

        sim_post_recv(b, &recv, 1);
        sim_post_recv(b, &recv, 1);
        wr.num_sge = 1;
        sim_post_send_quiet(a, &wr);
        wr.num_sge = QRNIC_MAX_SGE;
        sim_post_send(a, &wr);
        g_assert_true(sim_run(s, s->now + SIM_MS));
        expect_status(a, QRNIC_WC_SUCCESS);
        expect_status(a, QRNIC_WC_SUCCESS);
        expect_status(b, QRNIC_WC_SUCCESS);
        c = expect_status(b, QRNIC_WC_SUCCESS);
        g_assert_cmpint(c.byte_len, ==, QRNIC_GRH_SIZE + QRNIC_MAX_SGE);
        g_assert_cmpmem(b->node->memory + at + QRNIC_GRH_SIZE, QRNIC_MAX_SGE,
                        n->memory + from, QRNIC_MAX_SGE);
    }
    sim_qp_free(a);
    sim_qp_free(b);
    sim_free(s);
}

/*
 * Tests a datagram WQE that is longer than one fetch and has a wrong index. The
 * device rejects it with SYN_WQE_INDEX, and does not know where the next WQE
 * begins.
 */
static void test_datagram_sges_refused(void)
{
    Sim *s = sim_new(1, NULL);
    SimQp *a = sim_datagram_new(&s->node[0], QRNIC_QPT_UD, NULL, 7);
    QrnicDatagramSeg to = sim_datagram_to(a, 7);
    SimSge sge[QRNIC_MAX_SGE] = { 0 };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .sge = sge, .num_sge = QRNIC_MAX_SGE,
        .datagram = &to,
    };
    QrnicCqe c;

    for (unsigned i = 0; i < QRNIC_MAX_SGE; i++) {
        /*
         * These bytes look like the control segment of a WQE with as many
         * segments.
         */
        sge[i] = (SimSge) { 0x24, 0x24, 0x24 };
    }
    sim_post_send_quiet(a, &wr);
    sim_post_send_quiet(a, &wr);
    a->node->memory[a->sq + QRNIC_SQ_CTRL_INDEX_OFFSET] ^= 1;
    sim_ring_sq(a);
    g_assert_true(sim_run(s, s->now + SIM_MS));
    c = expect_status(a, QRNIC_WC_LOC_QP_OP_ERR);
    g_assert_cmpint(c.syndrome, ==, QRNIC_SYN_WQE_INDEX);
    while (sim_poll(a, &c)) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_WR_FLUSH_ERR);
    }
    expect_state(a, QRNIC_QPS_SQE);
    sim_qp_free(a);
    sim_free(s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ud/sges", test_datagram_sges);
    g_test_add_func("/ud/sges-refused", test_datagram_sges_refused);
    g_test_add_func("/uc/leave-sqe", test_leave_sqe);
    g_test_add_func("/uc/leave-sqe-wire-busy", test_leave_sqe_wire_busy);
    g_test_add_func("/uc/record-in-sqe", test_record_in_sqe);
    g_test_add_func("/uc/too-long", test_too_long);
    g_test_add_func("/uc/write-range", test_write_range);
    g_test_add_func("/uc/write-huge", test_write_huge);
    g_test_add_func("/uc/lost", test_lost);
    g_test_add_func("/ud/srq-limit", test_srq_limit);
    g_test_add_func("/ud/gsi-cq-error", test_gsi_cq_error);
    g_test_add_func("/ud/multicast-budget", test_multicast_budget);
    return g_test_run();
}
