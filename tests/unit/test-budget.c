/*
 * Work that the guest or the wire causes is done in bounded steps, and the work
 * of one user does not delay others.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/sched/sched.h"
#include "engine/memory/memory.h"
#include "pair.h"

#define MANY 60
#define QKEY 0x1234

/* Makes a pair with both queue pairs on the first node. */
static Pair *local_pair(uint32_t doorbell_fifo)
{
    SimOptions o = { .loopback = true, .doorbell_fifo = doorbell_fifo };

    return pair_new(1, &o, NULL);
}

static void for_a_while(Pair *p)
{
    sim_run(p->sim, p->sim->now + SIM_MS);
}

static void settle(Pair *p)
{
    g_assert_true(sim_run(p->sim, INT64_MAX));
}

static bool lose_answers(Sim *s, unsigned from, const uint8_t *frame,
                         size_t len, void *opaque)
{
    return from == 0;
}

static void wire_stop(Pair *p)
{
    p->sim->wire_room = 1;
    p->sim->wire_pause = 1000000 * SIM_MS;
}

static void wire_go(Pair *p)
{
    p->sim->wire_room = 0;
    if (p->sim->node[0].blocked) {
        sim_block(&p->sim->node[0], p->sim->now);
    }
}

/* The wire */

static unsigned looks;
static QrnicQpOps counting_ops;

static bool counting_is_idle(const QrnicQp *qp)
{
    looks++;
    return qrnic_rc_ops.is_idle(qp);
}

/* Connects a queue pair to the second node, without a transport timer. */
static SimQp *remote_qp(Pair *p, SimQp **other)
{
    SimConnect c = sim_connect_default();
    SimQp *q = sim_qp_new(&p->sim->node[0], 6, 3, 0, 6);

    *other = sim_qp_new(&p->sim->node[1], 6, 3, 0, 6);
    c.timeout = 0;
    sim_connect(q, *other, &c);
    return q;
}

/*
 * Tests that queue pairs that wait for a blocked wire are not processed while
 * others work. The waiting queue pairs drain, with a request without response.
 */
static void test_waiting(void)
{
    Pair *p = local_pair(0);
    SimNode *n = &p->sim->node[0];
    QrnicQpAttr sqd = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_SQD };
    SimQp *q[MANY], *other[MANY];
    unsigned runs;

    p->sim->tap = lose_answers;
    counting_ops = qrnic_rc_ops;
    counting_ops.is_idle = counting_is_idle;
    for (unsigned i = 0; i < MANY; i++) {
        SimSge sge = { p->a.addr, 8, p->a.key };
        SimWr wr = { .opcode = QRNIC_WQE_SEND, .sge = &sge, .num_sge = 1 };

        q[i] = remote_qp(p, &other[i]);
        sim_post_send(q[i], &wr);
    }
    settle(p);
    wire_stop(p);
    sim_post_send(q[0], &(SimWr) { .opcode = QRNIC_WQE_SEND });
    for_a_while(p);
    g_assert_true(n->blocked);
    for (unsigned i = 0; i < MANY; i++) {
        qrnic_qp_get(n->engine, q[i]->number)->ops = &counting_ops;
        g_assert_cmpint(sim_modify(q[i], &sqd).status, ==, QRNIC_ST_OK);
    }
    for_a_while(p);

    looks = 0;
    runs = n->runs;
    for (unsigned i = 0; i < 100; i++) {
        sim_ring_sq(q[0]);
        sim_run(p->sim, p->sim->now + SIM_US);
    }
    g_assert_cmpuint(n->runs - runs, >=, 100);
    g_assert_cmpuint(looks, <=, 4 * 100);
    for (unsigned i = 0; i < MANY; i++) {
        g_assert_cmpuint(sim_query(q[i]).sq_draining, ==, 1);
    }
    /* All continue when the wire is ready. */
    p->sim->tap = NULL;
    wire_go(p);
    settle(p);
    for (unsigned i = 0; i < MANY; i++) {
        qrnic_qp_get(n->engine, q[i]->number)->ops = &qrnic_rc_ops;
        sim_qp_free(q[i]);
        sim_qp_free(other[i]);
    }
    pair_free(p);
}

static void datagram_post(SimQp *q, SimQp *to, PairEnd *end)
{
    QrnicDatagramSeg seg = sim_datagram_to(to, QKEY);
    SimSge sge = { end->addr, 100, end->key };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = 1, .datagram = &seg,
    };

    sim_post_send(q, &wr);
}

/*
 * Tests that loopback packets need no wire, and that other packets of the queue
 * pair wait in order.
 */
static void test_loopback(void)
{
    Pair *p = local_pair(0);
    SimNode *n = &p->sim->node[0];
    SimQp *other, *remote = remote_qp(p, &other);
    SimQp *ud = sim_datagram_new(n, QRNIC_QPT_UD, NULL, QKEY);
    SimQp *far = sim_datagram_new(&p->sim->node[1], QRNIC_QPT_UD, NULL, QKEY);
    SimQp *uc[2] = { sim_uc_new(n, NULL), sim_uc_new(n, NULL) };
    SimWr nop = { .opcode = QRNIC_WQE_NOP, .flags = QRNIC_WQEF_SIGNALED };
    SimSge sge = { p->a.addr, 3000, p->a.key };
    SimWr write = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = p->b.addr + 8192,
        .rkey = p->b.key,
    };

    sim_uc_connect(uc[0], uc[1]);
    pair_fill(p);
    wire_stop(p);
    sim_post_send(remote, &(SimWr) { .opcode = QRNIC_WQE_SEND });
    for_a_while(p);
    g_assert_true(n->blocked);

    for (unsigned i = 0; i < 50; i++) {
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 5000);
        for_a_while(p);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    g_assert_cmpmem(p->a.data, 5000, p->b.data, 5000);
    sim_post_send(uc[0], &write);
    for_a_while(p);
    expect_cqe(uc[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(p->a.data, 3000, p->b.data + 8192, 3000);

    datagram_post(ud, ud, &p->a);
    sim_post_send(ud, &nop);
    datagram_post(ud, far, &p->a);
    datagram_post(ud, ud, &p->a);
    for_a_while(p);
    expect_cqe(ud, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_cqe(ud, QRNIC_WC_SUCCESS, QRNIC_CQE_NOP);
    expect_no_cqe(ud);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_TX_DATAGRAM), ==, 1);
    /* The WQE that was fetched and put back is counted once. */
    sim_ring_sq(ud);
    for_a_while(p);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_TX_DATAGRAM), ==, 1);
    wire_go(p);
    for_a_while(p);
    expect_cqe(ud, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_cqe(ud, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_TX_DATAGRAM), ==, 3);
    g_assert_cmpuint(sim_query(ud).sq_consumer, ==, ud->sq_producer);

    sim_qp_free(remote);
    sim_qp_free(other);
    sim_qp_free(ud);
    sim_qp_free(far);
    sim_qp_free(uc[0]);
    sim_qp_free(uc[1]);
    pair_free(p);
}

/* Tests that a change of the GID table changes whether a path is loopback. */
static void test_path_changes(void)
{
    Pair *p = local_pair(0);
    SimNode *n = &p->sim->node[0];
    QrnicGidEntry gid = n->gid;
    uint64_t back;

    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    for_a_while(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    back = sim_counter(n, QRNIC_COUNTER_ROCE_LOOPBACK_PACKETS);
    g_assert_cmpuint(back, ==, 2);
    for (unsigned i = 0; i < 2; i++) {
        /*
         * The first round has no GID entry, and the second has another MAC
         * address.
         */
        uint64_t frames = p->sim->frames;

        if (i) {
            gid.mac[5] ^= 0x80;
            qrnic_gid_set(n->engine, 3, &gid);
        } else {
            qrnic_gid_clear(n->engine, 3);
        }
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
        sim_run(p->sim, p->sim->now + SIM_US);
        g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_ROCE_LOOPBACK_PACKETS),
                         ==, back);
        g_assert_cmpuint(p->sim->frames, ==, frames + 1);
        /*
         * With the old GID entry, the retransmitted packet uses loopback again.
         */
        qrnic_gid_set(n->engine, 3, &n->gid);
        for_a_while(p);
        for_a_while(p);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        back = sim_counter(n, QRNIC_COUNTER_ROCE_LOOPBACK_PACKETS);
    }
    settle(p);
    pair_free(p);
}

/*
 * Tests that a packet that waits for a blocked wire is delivered when its path
 * becomes loopback.
 */
static void test_path_turns_back(void)
{
    Pair *p = local_pair(0);
    SimNode *n = &p->sim->node[0];
    SimQp *other, *remote = remote_qp(p, &other);
    SimQp *ud = sim_datagram_new(n, QRNIC_QPT_UD, NULL, QKEY);
    SimQp *far = sim_datagram_new(&p->sim->node[1], QRNIC_QPT_UD, NULL, QKEY);

    wire_stop(p);
    sim_post_send(remote, &(SimWr) { .opcode = QRNIC_WQE_SEND });
    for_a_while(p);
    g_assert_true(n->blocked);
    datagram_post(ud, far, &p->a);
    for_a_while(p);
    expect_no_cqe(ud);
    qrnic_gid_set(n->engine, 4, &p->sim->node[1].gid);
    for_a_while(p);
    g_assert_true(n->blocked);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_TX_DATAGRAM), ==, 1);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_ROCE_LOOPBACK_PACKETS), >=,
                     1);
    expect_cqe(ud, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    wire_go(p);
    sim_qp_free(remote);
    sim_qp_free(other);
    sim_qp_free(ud);
    sim_qp_free(far);
    pair_free(p);
}

/* Tests that the engine requests one run, however many events follow. */
static void test_kicks(void)
{
    Pair *p = local_pair(0);
    SimNode *n = &p->sim->node[0];
    unsigned kicks, runs;

    settle(p);
    kicks = n->kicks;
    runs = n->runs;
    for (unsigned i = 0; i < 50; i++) {
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 5000);
    }
    g_assert_cmpuint(n->kicks - kicks, ==, 1);
    settle(p);
    g_assert_cmpuint(n->kicks - kicks, <=, n->runs - runs + 1);
    for (unsigned i = 0; i < 50; i++) {
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    pair_free(p);
}

static SimQp *local_qp(Pair *p, uint32_t page, SimQp **other)
{
    SimNode *n = &p->sim->node[0];
    SimQp *q;

    n->db_page = page;
    q = sim_qp_new(n, 6, 0, 0, 6);
    *other = sim_qp_new(n, 6, 0, 0, 6);
    n->db_page = 0;
    sim_connect(q, *other, NULL);
    return q;
}

static void nop_quiet(SimQp *q)
{
    SimWr nop = { .opcode = QRNIC_WQE_NOP, .flags = QRNIC_WQEF_SIGNALED };

    sim_post_send_quiet(q, &nop);
}

/* Multicast groups */

#define MEMBERS 150

static const uint8_t group[16] = {
    [10] = 0xff, 0xff, 224, 1, 2, 3
};

static void member_recv(SimQp *q, PairEnd *end)
{
    SimSge sge = { end->addr, 200, end->key };

    sim_post_recv_quiet(q, &sge, 1);
}

static void group_post(SimQp *q, PairEnd *end, uint32_t imm, uint32_t len)
{
    QrnicDatagramSeg seg = sim_datagram_to(q, QKEY);
    SimSge sge = { end->addr, len, end->key };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND_IMM, .imm = imm, .sge = &sge, .num_sge = 1,
        .datagram = &seg,
    };

    memcpy(seg.av.dgid, group, 16);
    memcpy(seg.av.dmac, "\x01\x00\x5e\x01\x02\x03", 6);
    seg.dest_qpn = QRNIC_MULTICAST_QPN;
    sim_post_send(q, &wr);
}

static unsigned members_done(SimQp **q)
{
    unsigned done = 0;

    for (unsigned i = 0; i < MEMBERS; i++) {
        done += q[i] && sim_query(q[i]).rq_consumer > 0;
    }
    return done;
}

/*
 * Tests a frame to many members, which is delivered in steps. The group may
 * change between the steps. Each remaining member gets each frame once and in
 * order, from the wire and from the device.
 */
static void test_group(const void *opaque)
{
    bool loopback = opaque;
    Pair *p = local_pair(0);
    SimNode *from = &p->sim->node[0], *n = &p->sim->node[!loopback];
    SimQp *q[MEMBERS], *sender;
    PairEnd end = p->a;
    QrnicMulticast in;

    memcpy(in.gid, group, 16);
    sender = sim_datagram_new(from, QRNIC_QPT_UD, NULL, QKEY);
    end.addr = sim_alloc(n, 4096);
    end.key = sim_mkey(n, end.addr, 4096, ACCESS_ALL);
    for (unsigned i = 0; i < MEMBERS; i++) {
        q[i] = sim_datagram_new(n, QRNIC_QPT_UD, NULL, QKEY);
        g_assert_cmpint(qrnic_multicast_attach(n->engine, q[i]->number,
                                               &in).status, ==, QRNIC_ST_OK);
        for (unsigned k = 0; k < 3; k++) {
            member_recv(q[i], &end);
        }
    }
    for (unsigned k = 0; k < 3; k++) {
        group_post(sender, &p->a, k, 100);
    }
    while (!members_done(q)) {
        if (from->kicked) {
            from->kicked = false;
            qrnic_engine_run(from->engine, QRNIC_RUN_ROUNDS);
        } else {
            g_autofree SimFrame *f = sim_wire_take(p->sim);

            sim_inject(p->sim, f->to, f->data, f->len);
        }
    }
    if (!loopback) {
        /*
         * The call that delivered the frame performs one step. Otherwise a
         * frame to a large group could block the main loop.
         */
        g_assert_cmpuint(members_done(q), ==, 64);
        g_assert_false(qrnic_engine_can_receive(n->engine));
        /*
         * A member that has received the frame is destroyed, and a member that
         * has not.
         */
        sim_qp_free(q[10]);
        sim_qp_free(q[100]);
        q[10] = q[100] = NULL;
    }
    settle(p);
    g_assert_true(qrnic_engine_can_receive(n->engine));
    for (unsigned i = 0; i < MEMBERS; i++) {
        for (unsigned k = 0; q[i] && k < 3; k++) {
            QrnicCqe c = expect_cqe(q[i], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);

            g_assert_cmpuint(c.imm, ==, k);
        }
        if (q[i]) {
            expect_no_cqe(q[i]);
            sim_qp_free(q[i]);
        }
    }
    sim_qp_free(sender);
    pair_free(p);
}

/*
 * Tests deliveries that each may cause the most work of a packet, so that the
 * budget is reached.
 */
static void test_group_work(void)
{
    enum { BYTES = 40 + 4096, ALL = 20 };
    const QrnicPortCtx port = { .mtu = 9000, .flags = QRNIC_PORTF_ADMIN_UP };
    Pair *p = pair_new(3, NULL, NULL);
    SimNode *n = p->sim->node + 1;
    SimSge sge = { 0, BYTES, key_of_bytes(p->b.qp, &p->b, BYTES) };
    QrnicMulticast in;
    SimQp *q[ALL], *sender;
    uint64_t before, work;

    memcpy(in.gid, group, 16);
    for (unsigned i = 0; i < 2; i++) {
        qrnic_port_modify(p->sim->node[i].engine, &port);
    }
    for (unsigned i = 0; i < ALL; i++) {
        q[i] = sim_datagram_new(n, QRNIC_QPT_UD, NULL, QKEY);
        g_assert_cmpint(qrnic_multicast_attach(n->engine, q[i]->number,
                                               &in).status, ==, QRNIC_ST_OK);
        sim_post_recv_quiet(q[i], &sge, 1);
    }
    sender = sim_datagram_new(&p->sim->node[0], QRNIC_QPT_UD, NULL, QKEY);
    group_post(sender, &p->a, 7, 4096);
    before = sim_counter(n, QRNIC_COUNTER_PIECES);
    while (sim_counter(n, QRNIC_COUNTER_PIECES) == before) {
        if (p->sim->node[0].kicked) {
            p->sim->node[0].kicked = false;
            qrnic_engine_run(p->sim->node[0].engine, QRNIC_RUN_ROUNDS);
        } else {
            g_autofree SimFrame *f = sim_wire_take(p->sim);

            sim_inject(p->sim, f->to, f->data, f->len);
        }
    }
    while (!qrnic_engine_can_receive(n->engine)) {
        work = sim_counter(n, QRNIC_COUNTER_PIECES) - before;
        g_assert_cmpuint(work, <, QRNIC_WORK_PER_RUN + BYTES);
        before += work;
        g_assert_true(n->kicked);
        n->kicked = false;
        qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
    }
    for (unsigned i = 0; i < ALL; i++) {
        expect_cqe(q[i], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
        sim_qp_free(q[i]);
    }
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_PIECES), >=, ALL * BYTES);
    sim_qp_free(sender);
    pair_free(p);
}

/*
 * Tests that a device that sends to its own group all the time also receives
 * frames of the wire.
 */
static void test_group_wire_turn(void)
{
    Pair *p = local_pair(0);
    SimNode *n = &p->sim->node[0];
    SimQp *q[MEMBERS], *sender = sim_datagram_new(n, QRNIC_QPT_UD, NULL, QKEY);
    QrnicMulticast in;
    unsigned runs = 0;

    memcpy(in.gid, group, 16);
    for (unsigned i = 0; i < MEMBERS; i++) {
        q[i] = sim_datagram_new(n, QRNIC_QPT_UD, NULL, QKEY);
        g_assert_cmpint(qrnic_multicast_attach(n->engine, q[i]->number,
                                               &in).status, ==, QRNIC_ST_OK);
    }
    for (unsigned k = 0; k < 8; k++) {
        group_post(sender, &p->a, k, 100);
    }
    while (n->kicked) {
        n->kicked = false;
        qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
        g_assert_true(qrnic_engine_can_receive(n->engine));
        runs++;
    }
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_RX_MULTICAST), ==,
                     8 * MEMBERS);
    g_assert_cmpuint(runs, >=, 8);
    for (unsigned i = 0; i < MEMBERS; i++) {
        sim_qp_free(q[i]);
    }
    sim_qp_free(sender);
    pair_free(p);
}

/*
 * Tests that a reset, and the end of the engine, drop deliveries that are not
 * done yet, because their queue pairs are gone.
 */
static void test_group_reset(void)
{
    for (unsigned i = 0; i < 2; i++) {
        Pair *p = pair_new(1, NULL, NULL);
        SimNode *n = &p->sim->node[1];
        SimQp *sender = sim_datagram_new(&p->sim->node[0], QRNIC_QPT_UD, NULL,
                                         QKEY);
        g_autofree SimFrame *f = NULL;
        QrnicMulticast in;

        memcpy(in.gid, group, 16);
        for (unsigned k = 0; k < MEMBERS; k++) {
            SimQp *q = sim_datagram_new(n, QRNIC_QPT_UD, NULL, QKEY);

            qrnic_multicast_attach(n->engine, q->number, &in);
            member_recv(q, &p->b);
            g_free(q);
        }
        group_post(sender, &p->a, 0, 100);
        qrnic_engine_run(p->sim->node[0].engine, QRNIC_RUN_ROUNDS);
        f = sim_wire_take(p->sim);
        sim_inject(p->sim, f->to, f->data, f->len);
        g_assert_false(qrnic_engine_can_receive(n->engine));
        if (i) {
            sim_reset(n);
            g_assert_true(qrnic_engine_can_receive(n->engine));
            qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
            g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_RX_DATAGRAM), ==,
                             0);
        }
        g_free(sender);
        g_free(p->a.qp);
        g_free(p->b.qp);
        sim_free(p->sim);
        g_free(p);
    }
}

/* Event queues */

/* Arms all CQs and causes an event of each. */
static void eq_arm_all(Pair *p, SimQp **q, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        sim_cq_arm(q[i]);
        nop_quiet(q[i]);
        sim_ring_sq(q[i]);
        for_a_while(p);
    }
}

/* Makes CQs with one EQE in the EQ and another one pending. */
static void eq_owe(Pair *p, SimQp **q, SimQp **other, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        q[i] = local_qp(p, 0, &other[i]);
    }
    eq_arm_all(p, q, count);
    eq_arm_all(p, q, count);
}

/*
 * Tests a doorbell that consumes many EQEs of CQs with another pending EQE
 * each. The device writes some of them at once and the others later, and each
 * exactly once.
 */
static void test_eq_doorbell(void)
{
    Pair *p = local_pair(0);
    SimNode *n = &p->sim->node[0];
    SimQp *q[120], *other[120];
    uint64_t eqes;

    eq_owe(p, q, other, ARRAY_SIZE(q));
    eqes = sim_counter(n, QRNIC_COUNTER_EQES);
    g_assert_cmpuint(sim_cq_events(n), ==, 120);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_EQES) - eqes, >, 0);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_EQES) - eqes, <=, 64);
    for_a_while(p);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_EQES) - eqes, ==, 120);
    g_assert_cmpuint(sim_cq_events(n), ==, 120);
    for_a_while(p);
    g_assert_cmpuint(sim_cq_events(n), ==, 0);
    /* Each CQ can be armed and reports as before. */
    eq_arm_all(p, q, ARRAY_SIZE(q));
    g_assert_cmpuint(sim_cq_events(n), ==, 120);
    for (unsigned i = 0; i < ARRAY_SIZE(q); i++) {
        sim_qp_free(q[i]);
        sim_qp_free(other[i]);
    }
    pair_free(p);
}

/* Writes EQEs without a CQ. */
static void eq_fill(SimNode *n, unsigned count)
{
    QrnicEq *eq = qrnic_eq_get(n->engine, n->cq_eq);

    for (unsigned i = 0; i < count; i++) {
        QrnicEqe eqe = { .type = QRNIC_EVENT_COMPLETION };

        qrnic_eq_push(n->engine, eq, &eqe);
    }
}

/*
 * Tests an EQ that is full again before the device has processed all slots of
 * one doorbell. The CQs of these slots still write their pending EQEs.
 */
static void test_eq_wrap(void)
{
    Pair *p = local_pair(0);
    SimNode *n = &p->sim->node[0];
    SimQp *q[120], *other[120];

    eq_owe(p, q, other, ARRAY_SIZE(q));
    eq_fill(n, 136);
    g_assert_cmpuint(sim_cq_events(n), ==, 256);
    eq_fill(n, 30);
    for_a_while(p);
    g_assert_cmpuint(sim_cq_events(n), ==, 120 + 30);
    for_a_while(p);
    g_assert_cmpuint(sim_cq_events(n), ==, 0);
    /* A destroyed CQ has no pending EQE. */
    eq_arm_all(p, q, ARRAY_SIZE(q));
    eq_arm_all(p, q, ARRAY_SIZE(q));
    eq_fill(n, 136);
    g_assert_cmpuint(sim_cq_events(n), ==, 256);
    eq_fill(n, 30);
    for (unsigned i = 0; i < ARRAY_SIZE(q); i++) {
        sim_qp_free(q[i]);
        sim_qp_free(other[i]);
    }
    for_a_while(p);
    g_assert_cmpuint(sim_cq_events(n), ==, 64 + 30);
    pair_free(p);
}

/* Doorbells */

static void flood(SimQp *q, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        sim_ring_sq(q);
    }
}

/*
 * Tests that a page that rings all the time loses its own doorbells and is
 * recovered. Doorbells of another page are not lost, and its queues are not
 * scanned.
 */
static void test_flood(void)
{
    Pair *p = local_pair(16);
    SimNode *n = &p->sim->node[0];
    uint32_t bad = qrnic_db_page_alloc(n->engine).value;
    uint32_t good = qrnic_db_page_alloc(n->engine).value;
    SimQp *other[3], *loud = local_qp(p, bad, &other[0]);
    SimQp *missed = local_qp(p, bad, &other[1]);
    SimQp *calm = local_qp(p, good, &other[2]);
    QrnicEngine *e = n->engine;
    uint64_t dropped = sim_counter(n, QRNIC_COUNTER_DOORBELLS_DROPPED);
    QrnicCounterBind bind;
    uint64_t counts[QRNIC_NUM_COUNTERS], reads;
    SimSge sge = { p->a.addr, 100, p->a.key };
    SimWr write = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .sge = &sge, .num_sge = 1,
        .remote = p->b.addr, .rkey = p->b.key,
    };

    bind.counter_set = qrnic_counter_set_alloc(e).value;
    g_assert_cmpint(qrnic_counter_set_bind(e, missed->number, &bind).status,
                    ==, QRNIC_ST_OK);
    /* The ACK had no credits; a doorbell makes the requester send. */
    sim_post_send(other[1], &write);
    settle(p);
    qrnic_counter_set_query(e, bind.counter_set, counts);
    reads = counts[QRNIC_COUNTER_RECORD_READS];
    flood(loud, 20);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_DOORBELLS_DROPPED), ==,
                     dropped + 12);
    /* This doorbell is lost, and the device finds the work in the record. */
    nop_quiet(missed);
    sim_ring_sq(missed);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_DOORBELLS_DROPPED), ==,
                     dropped + 13);
    /* This queue has no doorbell, so its work is not found. */
    nop_quiet(calm);
    settle(p);
    expect_cqe(missed, QRNIC_WC_SUCCESS, QRNIC_CQE_NOP);
    expect_no_cqe(calm);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_DOORBELL_RECOVERIES), ==, 1);
    /* The work of the recovery is counted in the set of its queue pair. */
    g_assert_cmpint(qrnic_counter_set_query(e, bind.counter_set,
                                            counts).status, ==, QRNIC_ST_OK);
    g_assert_cmpuint(counts[QRNIC_COUNTER_SEND_WQES], ==, 1);
    g_assert_cmpuint(counts[QRNIC_COUNTER_RECORD_READS] - reads, ==, 2);

    /*
     * Tests the bound of the manual: a doorbell of the other page has a place
     * during the flood. The doorbell is processed in that run, because the FIFO
     * is shorter than a run.
     */
    flood(loud, 100);
    dropped = sim_counter(n, QRNIC_COUNTER_DOORBELLS_DROPPED);
    sim_ring_sq(calm);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_DOORBELLS_DROPPED), ==,
                     dropped);
    qrnic_engine_run(e, QRNIC_RUN_ROUNDS);
    expect_cqe(calm, QRNIC_WC_SUCCESS, QRNIC_CQE_NOP);
    settle(p);

    bind.counter_set = 0;
    qrnic_counter_set_bind(e, missed->number, &bind);
    sim_qp_free(loud);
    sim_qp_free(missed);
    sim_qp_free(calm);
    for (unsigned i = 0; i < ARRAY_SIZE(other); i++) {
        sim_qp_free(other[i]);
    }
    pair_free(p);
}

/*
 * Tests several pages that fill the FIFO. A page that finds it full is
 * recovered at once, alternating with the others, however long they ring.
 */
static void test_flood_full(void)
{
    Pair *p = local_pair(8);
    SimNode *n = &p->sim->node[0];
    uint32_t page[3];
    SimQp *q[3], *other[3];

    for (unsigned i = 0; i < 3; i++) {
        page[i] = qrnic_db_page_alloc(n->engine).value;
        q[i] = local_qp(p, page[i], &other[i]);
    }
    settle(p);
    for (unsigned i = 0; i < 20; i++) {
        uint64_t dropped;

        flood(q[0], 10);
        flood(q[1], 10);
        dropped = sim_counter(n, QRNIC_COUNTER_DOORBELLS_DROPPED);
        nop_quiet(q[2]);
        sim_ring_sq(q[2]);
        g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_DOORBELLS_DROPPED), ==,
                         dropped + 1);
        qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
        expect_cqe(q[2], QRNIC_WC_SUCCESS, QRNIC_CQE_NOP);
    }
    settle(p);
    for (unsigned i = 0; i < 3; i++) {
        sim_qp_free(q[i]);
        sim_qp_free(other[i]);
        g_assert_cmpint(qrnic_db_page_free(n->engine, page[i]).status, ==,
                        QRNIC_ST_OK);
    }
    pair_free(p);
}

/*
 * Tests queues, and then the page, that are destroyed during the recovery. The
 * recovery must not use freed objects.
 */
static void test_recovery_destroy(void)
{
    Pair *p = local_pair(2);
    SimNode *n = &p->sim->node[0];
    uint32_t page = qrnic_db_page_alloc(n->engine).value;
    SimQp *q[40], *other[40];

    for (unsigned i = 0; i < ARRAY_SIZE(q); i++) {
        q[i] = local_qp(p, page, &other[i]);
        nop_quiet(q[i]);
    }
    settle(p);
    flood(q[0], 5);
    /* One step scans some of the queues; then the next queue is destroyed. */
    qrnic_doorbells_process(n->engine, 64);
    flood(q[0], 5);
    for (unsigned i = ARRAY_SIZE(q) - 1; i-- > 0; ) {
        sim_qp_free(q[i]);
        sim_qp_free(other[i]);
    }
    settle(p);
    expect_cqe(q[39], QRNIC_WC_SUCCESS, QRNIC_CQE_NOP);
    flood(q[39], 5);
    sim_qp_free(q[39]);
    sim_qp_free(other[39]);
    g_assert_cmpint(qrnic_db_page_free(n->engine, page).status, ==,
                    QRNIC_ST_OK);
    settle(p);
    pair_free(p);
}

/*
 * Tests that a loopback request completes in the run that fetched it, without
 * waiting for the main loop in either direction.
 */
static void test_back_at_once(void)
{
    Pair *p = local_pair(0);
    SimNode *n = &p->sim->node[0];

    settle(p);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    qrnic_engine_run(n->engine, 1);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    /* Long work is left to another run. */
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, PAIR_BYTES);
    n->kicked = false;
    qrnic_engine_run(n->engine, 1);
    expect_no_cqe(p->a.qp);
    g_assert_true(n->kicked);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    pair_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/budget/wire/waiting", test_waiting);
    g_test_add_func("/budget/wire/loopback", test_loopback);
    g_test_add_func("/budget/wire/path-changes", test_path_changes);
    g_test_add_func("/budget/wire/path-turns-back", test_path_turns_back);
    g_test_add_func("/budget/kicks", test_kicks);
    g_test_add_func("/budget/back-at-once", test_back_at_once);
    g_test_add_data_func("/budget/group/wire", NULL, test_group);
    g_test_add_data_func("/budget/group/loopback", "", test_group);
    g_test_add_func("/budget/group/work", test_group_work);
    g_test_add_func("/budget/group/wire-turn", test_group_wire_turn);
    g_test_add_func("/budget/group/reset", test_group_reset);
    g_test_add_func("/budget/doorbell/flood", test_flood);
    g_test_add_func("/budget/doorbell/flood-full", test_flood_full);
    g_test_add_func("/budget/doorbell/recovery-destroy",
                    test_recovery_destroy);
    g_test_add_func("/budget/eq/doorbell", test_eq_doorbell);
    g_test_add_func("/budget/eq/wrap", test_eq_wrap);
    return g_test_run();
}
