/*
 * States and attributes of queue pairs (InfiniBand specification, 10.3.1 and
 * 11.2.5.2), draining, flushing, and use of freed numbers
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pair.h"

static const SimConnect unconnected;

static void settle(Pair *p)
{
    g_assert_true(sim_run(p->sim, p->sim->now + 10000 * SIM_MS));
}

static void refused(SimQp *q, const QrnicQpAttr *a, uint8_t status,
                    uint32_t syndrome)
{
    QrnicQpAttr before = sim_query(q), after;
    QrnicResult r = sim_modify(q, a);

    g_assert_cmpstr(qrnic_cmd_status_name(r.status), ==,
                    qrnic_cmd_status_name(status));
    g_assert_cmphex(r.syndrome, ==, syndrome);
    after = sim_query(q);
    g_assert_cmpmem(&before, sizeof(before), &after, sizeof(after));
}

static void accepted(SimQp *q, const QrnicQpAttr *a)
{
    g_assert_cmpint(sim_modify(q, a).status, ==, QRNIC_ST_OK);
}

/* Returns the attributes without one, whose members are zero. */
static QrnicQpAttr without(const QrnicQpAttr *a, uint32_t bit)
{
    static const QrnicAddressVector no_av;
    QrnicQpAttr r = *a;

    r.mask &= ~bit;
#define ZERO(b, member) r.member = bit == (b) ? 0 : r.member
    ZERO(QRNIC_QP_ACCESS_FLAGS, access);
    ZERO(QRNIC_QP_PORT, port);
    ZERO(QRNIC_QP_PATH_MTU, path_mtu);
    ZERO(QRNIC_QP_TIMEOUT, timeout);
    ZERO(QRNIC_QP_RETRY_CNT, retry_cnt);
    ZERO(QRNIC_QP_RNR_RETRY, rnr_retry);
    ZERO(QRNIC_QP_RQ_PSN, rq_psn);
    ZERO(QRNIC_QP_SQ_PSN, sq_psn);
    ZERO(QRNIC_QP_MAX_RD_ATOMIC, max_rd_atomic);
    ZERO(QRNIC_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    ZERO(QRNIC_QP_MIN_RNR_TIMER, min_rnr_timer);
    ZERO(QRNIC_QP_DEST_QPN, dest_qpn);
#undef ZERO
    if (bit == QRNIC_QP_AV) {
        r.av = no_av;
    }
    return r;
}

/*
 * Asserts that the transition requires each of its attributes and accepts no
 * other.
 */
static void step(SimQp *q, const QrnicQpAttr *good, uint32_t optional)
{
    uint32_t needed = good->mask & ~QRNIC_QP_STATE;
    const uint32_t all = 0x1fffff;

    for (uint32_t bit = 1; bit < all; bit <<= 1) {
        QrnicQpAttr a = *good;

        if (needed & bit) {
            a = without(good, bit);
            refused(q, &a, QRNIC_ST_BAD_ATTR, bit);
        } else if (!(optional & bit) && bit != QRNIC_QP_STATE &&
                   bit != QRNIC_QP_CUR_STATE) {
            a.mask |= bit;
            refused(q, &a, QRNIC_ST_BAD_ATTR, bit);
        }
    }
    accepted(q, good);
}

static void test_attributes(void)
{
    Pair *p = pair_new(1, NULL, &unconnected);
    SimQp *q = p->a.qp;
    QrnicQpAttr init = sim_attr_init();
    QrnicQpAttr rtr = sim_attr_rtr(q, p->b.qp);
    QrnicQpAttr rts = sim_attr_rts();
    QrnicQpAttr a;

    refused(q, &rtr, QRNIC_ST_BAD_STATE, 0);
    refused(q, &rts, QRNIC_ST_BAD_STATE, 0);
    step(q, &init, 0);
    refused(q, &rts, QRNIC_ST_BAD_STATE, 0);
    a = (QrnicQpAttr) { .mask = QRNIC_QP_ACCESS_FLAGS, .access = 2 };
    accepted(q, &a);
    g_assert_cmpint(sim_query(q).access, ==, 2);
    step(q, &rtr, QRNIC_QP_PKEY_INDEX | QRNIC_QP_ACCESS_FLAGS);
    refused(q, &init, QRNIC_ST_BAD_STATE, 0);
    refused(q, &rtr, QRNIC_ST_BAD_STATE, 0);
    step(q, &rts, QRNIC_QP_ACCESS_FLAGS | QRNIC_QP_MIN_RNR_TIMER);
    expect_state(q, QRNIC_QPS_RTS);
    a = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_CUR_STATE, .state = QRNIC_QPS_RTS,
        .cur_state = QRNIC_QPS_SQD,
    };
    refused(q, &a, QRNIC_ST_BAD_STATE, 0);
    a.cur_state = QRNIC_QPS_RTS;
    accepted(q, &a);
    a = (QrnicQpAttr) { .mask = QRNIC_QP_MIN_RNR_TIMER, .min_rnr_timer = 9 };
    accepted(q, &a);
    g_assert_cmpint(sim_query(q).min_rnr_timer, ==, 9);
    a = (QrnicQpAttr) { .mask = QRNIC_QP_TIMEOUT, .timeout = 9 };
    refused(q, &a, QRNIC_ST_BAD_ATTR, QRNIC_QP_TIMEOUT);
    a = (QrnicQpAttr) { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_SQE };
    refused(q, &a, QRNIC_ST_BAD_STATE, 0);
    a.state = QRNIC_QPS_ERR;
    accepted(q, &a);
    accepted(q, &a);
    refused(q, &init, QRNIC_ST_BAD_STATE, 0);
    a.state = QRNIC_QPS_RESET;
    accepted(q, &a);
    accepted(q, &a);
    accepted(q, &init);
    pair_free(p);
}

static void test_values(void)
{
    const QrnicPortCtx small = {
        .mtu = 1500, .flags = QRNIC_PORTF_ADMIN_UP,
    };
    Pair *p = pair_new(1, NULL, &unconnected);
    SimQp *q = p->a.qp;
    QrnicQpAttr init = sim_attr_init(), rts = sim_attr_rts(), rtr, a;

#define BAD(good, member, value, offset) \
    do { \
        a = good; \
        a.member = value; \
        refused(q, &a, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_##offset##_OFFSET); \
    } while (0)
#define BAD_AV(member, value, offset) \
    do { \
        a = rtr; \
        a.av.member = value; \
        refused(q, &a, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_AV_OFFSET + \
                QRNIC_ADDRESS_VECTOR_##offset##_OFFSET); \
    } while (0)
    BAD(init, port, 0, PORT);
    BAD(init, port, 2, PORT);
    BAD(init, pkey_index, 1, PKEY_INDEX);
    BAD(init, access, 1, ACCESS);
    BAD(init, access, 0x10, ACCESS);
    /* The attribute is not in the mask, so it must be zero. */
    BAD(init, timeout, 3, TIMEOUT);
    BAD(init, sq_producer, 3, SQ_PRODUCER);
    BAD(init, av.sl, 3, AV);
    accepted(q, &init);
    rtr = sim_attr_rtr(q, p->b.qp);
    BAD(rtr, path_mtu, 0, PATH_MTU);
    BAD(rtr, path_mtu, 6, PATH_MTU);
    /*
     * The first path MTU is above the port's, and the second is the largest
     * valid one.
     */
    g_assert_cmpint(qrnic_port_modify(q->node->engine, &small).status, ==,
                    QRNIC_ST_OK);
    BAD(rtr, path_mtu, QRNIC_MTU_2048, PATH_MTU);
    rtr.path_mtu = QRNIC_MTU_1024;
    BAD(rtr, dest_qpn, 0x1000000, DEST_QPN);
    BAD(rtr, rq_psn, 0x1000000, RQ_PSN);
    BAD(rtr, max_dest_rd_atomic, 17, MAX_DEST_RD_ATOMIC);
    BAD(rtr, min_rnr_timer, 32, MIN_RNR_TIMER);
    BAD_AV(sgid_index, 2, SGID_INDEX);
    BAD_AV(sgid_index, 60000, SGID_INDEX);
    BAD_AV(udp_sport, 0xbfff, UDP_SPORT);
    BAD_AV(dmac[0], 1, DMAC);
    BAD_AV(dgid[0], 0xff, DGID);
    BAD_AV(dgid[0], 0xfd, SGID_INDEX);  /* IPv6 from an IPv4 entry */
    accepted(q, &rtr);
    BAD(rts, timeout, 32, TIMEOUT);
    BAD(rts, retry_cnt, 8, RETRY_CNT);
    BAD(rts, rnr_retry, 8, RNR_RETRY);
    BAD(rts, sq_psn, 0x1000000, SQ_PSN);
    BAD(rts, max_rd_atomic, 17, MAX_RD_ATOMIC);
    accepted(q, &rts);
#undef BAD
#undef BAD_AV
    pair_free(p);
}

static void test_query(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    QrnicQpAttr a;

    post_recv(&p->b, 0, 100);
    post_recv(&p->b, 0, 100);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 100);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 3000);
    settle(p);
    a = sim_query(p->a.qp);
    g_assert_cmpint(a.mask, ==, 0);
    g_assert_cmpint(a.qp_type, ==, QRNIC_QPT_RC);
    g_assert_cmphex(a.sq_psn, ==, 0x123456 + 4);
    g_assert_cmpint(a.sq_producer, ==, 2);
    g_assert_cmpint(a.sq_consumer, ==, 2);
    g_assert_cmpint(a.dest_qpn, ==, p->b.qp->number);
    g_assert_cmpint(a.path_mtu, ==, QRNIC_MTU_1024);
    g_assert_cmpint(a.timeout, ==, 8);
    a = sim_query(p->b.qp);
    g_assert_cmphex(a.rq_psn, ==, 0x123456 + 4);
    g_assert_cmpint(a.rq_producer, ==, 2);
    g_assert_cmpint(a.rq_consumer, ==, 1);
    pair_free(p);
}

/*
 * Tests SQD: outstanding WQEs complete, later ones wait for RTS, because
 * software uses SQD to change attributes safely.
 */
static void test_drain(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    QrnicQpAttr sqd = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_EN_SQD_ASYNC_NOTIFY,
        .state = QRNIC_QPS_SQD, .sq_drained_notify = 1,
    };
    QrnicQpAttr rts = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTS };
    QrnicQpAttr timeout = { .mask = QRNIC_QP_TIMEOUT, .timeout = 12 };

    pair_fill(p);
    p->sim->wire_room = 1;
    p->sim->wire_pause = SIM_US;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100000);
    sim_run(p->sim, 20 * SIM_US);
    accepted(p->a.qp, &sqd);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 100000, 100000, 100);
    sim_run(p->sim, 40 * SIM_US);
    g_assert_cmpint(sim_query(p->a.qp).sq_draining, ==, 1);
    refused(p->a.qp, &timeout, QRNIC_ST_BAD_STATE, 0);
    refused(p->a.qp, &rts, QRNIC_ST_BAD_STATE, 0);
    expect_no_event(p->a.qp->node);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_no_cqe(p->a.qp);
    expect_event(p->a.qp->node, QRNIC_EVENT_SQ_DRAINED, p->a.qp->number);
    g_assert_cmpint(sim_query(p->a.qp).sq_draining, ==, 0);
    expect_state(p->a.qp, QRNIC_QPS_SQD);
    g_assert_cmpint(memcmp(p->a.data + 100000, p->b.data + 100000, 100), !=, 0);
    accepted(p->a.qp, &timeout);
    g_assert_cmpint(sim_query(p->a.qp).timeout, ==, 12);
    accepted(p->a.qp, &rts);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(p->a.data, 100100, p->b.data, 100100);
    pair_free(p);
}

/*
 * Tests SQD while the wire is blocked. The event is sent, because nothing
 * remains to be sent.
 */
static void test_drain_wire_busy(void)
{
    QrnicQpAttr sqd = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_EN_SQD_ASYNC_NOTIFY,
        .state = QRNIC_QPS_SQD, .sq_drained_notify = 1,
    };

    for (int under_way = 0; under_way < 2; under_way++) {
        Pair *p = pair_new(1, NULL, NULL);

        p->sim->wire_room = 1;
        p->sim->wire_pause = 1000000 * SIM_MS;
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
        sim_run(p->sim, p->sim->now + (under_way ? SIM_US / 2 : 20 * SIM_US));
        accepted(p->a.qp, &sqd);
        sim_run(p->sim, p->sim->now + 20 * SIM_US);
        g_assert_true(p->a.qp->node->blocked);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        expect_event(p->a.qp->node, QRNIC_EVENT_SQ_DRAINED, p->a.qp->number);
        g_assert_cmpint(sim_query(p->a.qp).sq_draining, ==, 0);
        pair_free(p);
    }
}

static bool tap_from_a(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                       void *opaque)
{
    return from == 0;
}

/*
 * Tests that a change of max_dest_rd_atomic keeps the newest results for
 * duplicates.
 */
static void test_replay_resize(void)
{
    static const uint8_t counts[] = { 1, 2, 16 };

    for (unsigned i = 0; i < ARRAY_SIZE(counts); i++) {
        Pair *p = pair_new(1, NULL, NULL);
        QrnicQpAttr sqd = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_SQD };
        QrnicQpAttr change = {
            .mask = QRNIC_QP_MAX_DEST_RD_ATOMIC,
            .max_dest_rd_atomic = counts[i],
        };
        SimSge sge = { p->a.addr, 8, p->a.key };
        SimWr wr = {
            .opcode = QRNIC_WQE_ATOMIC_FETCH_ADD, .sge = &sge, .num_sge = 1,
            .flags = QRNIC_WQEF_SIGNALED, .swap_add = 1, .rkey = p->b.key,
            .remote = p->b.addr,
        };

        for (int n = 0; n < 6; n++) {
            sim_post_send(p->a.qp, &wr);
            settle(p);
            expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
        }
        p->sim->tap = tap_from_a;
        sim_post_send(p->a.qp, &wr);
        sim_run(p->sim, p->sim->now + 20 * SIM_US);
        accepted(p->b.qp, &sqd);
        sim_run(p->sim, p->sim->now + 20 * SIM_US);
        accepted(p->b.qp, &change);
        p->sim->tap = NULL;
        settle(p);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
        g_assert_cmpint(ldq_le_p(p->a.data), ==, 6);
        g_assert_cmpint(ldq_le_p(p->b.data), ==, 7);
        pair_free(p);
    }
}

/*
 * Tests that max_dest_rd_atomic cannot be less than the number of pending
 * responses.
 */
static void test_replay_busy(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    SimNode *b = p->b.qp->node;
    SimQp *a2 = sim_qp_new(p->a.qp->node, 6, 0, 0, 4);
    PairEnd other = p->b;
    QrnicQpAttr sqd = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_SQD };
    QrnicQpAttr change = {
        .mask = QRNIC_QP_MAX_DEST_RD_ATOMIC, .max_dest_rd_atomic = 1,
    };

    pair_fill(p);
    other.qp = sim_qp_new(b, 6, 0, 0, 4);
    sim_connect(a2, other.qp, NULL);
    p->sim->wire_room = 1;
    p->sim->wire_pause = SIM_MS / 2;
    post(&other, &p->a, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    sim_run(p->sim, SIM_US / 2);
    g_assert_true(b->blocked);
    p->sim->wire_room = 0;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 1000, 0, 100);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 2000, 100, 100);
    sim_run(p->sim, 20 * SIM_US);
    accepted(p->b.qp, &sqd);
    sim_run(p->sim, 40 * SIM_US);
    refused(p->b.qp, &change, QRNIC_ST_BUSY, 0);
    change.max_dest_rd_atomic = 2;
    accepted(p->b.qp, &change);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(p->a.data + 1000, 100, p->b.data, 100);
    g_assert_cmpmem(p->a.data + 2000, 100, p->b.data + 100, 100);
    sim_qp_free(a2);
    sim_qp_free(other.qp);
    pair_free(p);
}

static void ring_rq(SimQp *q, unsigned times)
{
    while (times--) {
        qrnic_doorbell_write(q->node->engine, 0, QRNIC_DB_RQ, 8, q->number);
    }
}

/*
 * Tests that a queue pair that rings all the time does not delay the recovery
 * of others.
 */
static void test_doorbells_lost(void)
{
    const SimOptions options = { .doorbell_fifo = 1024 };
    Pair *p = pair_new(1, &options, NULL);
    SimNode *n = p->a.qp->node;

    /* The doorbells occupy the whole share of the page in the FIFO. */
    ring_rq(p->a.qp, 512);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_DOORBELLS_DROPPED), ==, 1);
    for (int i = 0; i < 10; i++) {
        qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
        ring_rq(p->a.qp, 256);
    }
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_TX_WRITE), ==, 1);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    pair_free(p);
}

/* Tests that ERR flushes all posted WQEs in order, later ones included. */
static void test_flush(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    QrnicQpAttr err = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR };
    QrnicCqe c;

    p->sim->loss = 1000;
    for (int i = 0; i < 50; i++) {
        post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0, 0, 100);
        post_recv(&p->a, 0, 100);
    }
    sim_run(p->sim, 10 * SIM_US);
    accepted(p->a.qp, &err);
    settle(p);
    for (int i = 0; i < 50; i++) {
        c = expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
        g_assert_cmpint(c.index, ==, i);
        g_assert_cmphex(c.opcode & 0x80, ==, 0);
    }
    for (int i = 0; i < 50; i++) {
        c = expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
        g_assert_cmpint(c.index, ==, i);
        g_assert_cmphex(c.opcode & 0x80, ==, 0x80);
    }
    expect_no_cqe(p->a.qp);
    post_recv(&p->a, 0, 100);
    settle(p);
    g_assert_cmpint(expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR).index, ==,
                    50);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    settle(p);
    g_assert_cmpint(expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR).index, ==,
                    50);
    expect_no_event(p->a.qp->node);
    pair_free(p);
}

/*
 * Tests that RESET drops all work without completions, and the queue pair works
 * again.
 */
static void test_reset(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    QrnicQpAttr reset = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET };

    pair_fill(p);
    for (int i = 0; i < 20; i++) {
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 8192);
        post_recv(&p->a, 0, 100);
    }
    sim_run(p->sim, SIM_US / 2);
    accepted(p->a.qp, &reset);
    accepted(p->b.qp, &reset);
    settle(p);
    expect_no_cqe(p->a.qp);
    p->a.qp->sq_producer = p->a.qp->rq_producer = 0;
    memset(p->a.qp->node->memory + p->a.qp->sq_record, 0, 8);
    memset(p->a.qp->node->memory + p->a.qp->rq_record, 0, 8);
    sim_connect(p->a.qp, p->b.qp, NULL);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 4096, 8192);
    settle(p);
    g_assert_cmpint(expect_cqe(p->a.qp, QRNIC_WC_SUCCESS,
                               QRNIC_CQE_RDMA_WRITE).index, ==, 0);
    g_assert_cmpmem(p->a.data, 8192, p->b.data + 4096, 8192);
    pair_free(p);
}

/*
 * Tests that DESTROY_QP at any time causes no completion. Otherwise software
 * would see a CQE of a queue pair that is gone.
 */
static void test_destroy(void)
{
    for (int64_t when = 0; when < 40; when++) {
        Pair *p = pair_new(1, NULL, NULL);
        SimQp *a = sim_qp_new(p->a.qp->node, 6, 6, 0, 6);
        SimQp *b = sim_qp_new(p->b.qp->node, 6, 6, 0, 6);
        SimSge sge = { p->a.addr, 100000, p->a.key };
        SimWr wr = {
            .opcode = when & 1 ? QRNIC_WQE_RDMA_WRITE : QRNIC_WQE_RDMA_READ,
            .sge = &sge, .num_sge = 1, .remote = p->b.addr, .rkey = p->b.key,
        };

        sim_connect(a, b, NULL);
        p->sim->wire_room = 2;
        p->sim->wire_pause = SIM_US;
        sim_post_send(a, &wr);
        sim_post_send(a, &wr);
        sim_run(p->sim, when * SIM_US);
        if (when & 2) {
            sim_qp_free(b);
            settle(p);
            expect_status(a, QRNIC_WC_RETRY_EXC_ERR);
            sim_qp_free(a);
        } else {
            sim_qp_free(a);
            settle(p);
            sim_qp_free(b);
        }
        pair_free(p);
    }
}

/*
 * Tests that the move to RTS schedules nothing without work, to avoid needless
 * runs.
 */
static void test_rts(void)
{
    Pair *p = pair_new(1, NULL, &unconnected);
    QrnicQpAttr init = sim_attr_init(), rts = sim_attr_rts(), rtr;
    SimNode *n = p->a.qp->node;
    unsigned kicks;

    rtr = sim_attr_rtr(p->b.qp, p->a.qp);
    accepted(p->b.qp, &init);
    accepted(p->b.qp, &rtr);
    accepted(p->b.qp, &rts);
    rtr = sim_attr_rtr(p->a.qp, p->b.qp);
    accepted(p->a.qp, &init);
    accepted(p->a.qp, &rtr);
    settle(p);
    kicks = n->kicks;
    accepted(p->a.qp, &rts);
    g_assert_cmpuint(n->kicks, ==, kicks);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    pair_free(p);
}

/* Tests that a WQE that was posted and rung for before RTS is sent in RTS. */
static void posted_early(bool looked)
{
    Pair *p = pair_new(1, NULL, &unconnected);
    QrnicQpAttr init = sim_attr_init(), rts = sim_attr_rts(), rtr;

    rtr = sim_attr_rtr(p->b.qp, p->a.qp);
    accepted(p->b.qp, &init);
    accepted(p->b.qp, &rtr);
    accepted(p->b.qp, &rts);
    rtr = sim_attr_rtr(p->a.qp, p->b.qp);
    accepted(p->a.qp, &init);
    accepted(p->a.qp, &rtr);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    if (looked) {
        settle(p);
        expect_no_cqe(p->a.qp);
    }
    accepted(p->a.qp, &rts);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    pair_free(p);
}

static void test_posted_early(void)
{
    posted_early(false);
    posted_early(true);
}

/* Tests that the first packet in RTR causes an event. */
static void test_comm_est(void)
{
    Pair *p = pair_new(1, NULL, &unconnected);
    QrnicQpAttr init = sim_attr_init();
    QrnicQpAttr rtr = sim_attr_rtr(p->a.qp, p->b.qp);
    QrnicQpAttr rts = sim_attr_rts();

    accepted(p->a.qp, &init);
    accepted(p->b.qp, &init);
    accepted(p->a.qp, &rtr);
    rtr = sim_attr_rtr(p->b.qp, p->a.qp);
    accepted(p->b.qp, &rtr);
    accepted(p->a.qp, &rts);
    post_recv(&p->b, 0, 100);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 100);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    expect_event(p->b.qp->node, QRNIC_EVENT_COMM_EST, p->b.qp->number);
    expect_no_event(p->b.qp->node);
    pair_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qp/attributes", test_attributes);
    g_test_add_func("/qp/values", test_values);
    g_test_add_func("/qp/query", test_query);
    g_test_add_func("/qp/drain", test_drain);
    g_test_add_func("/qp/drain-wire-busy", test_drain_wire_busy);
    g_test_add_func("/qp/replay-resize", test_replay_resize);
    g_test_add_func("/qp/replay-busy", test_replay_busy);
    g_test_add_func("/qp/doorbells-lost", test_doorbells_lost);
    g_test_add_func("/qp/flush", test_flush);
    g_test_add_func("/qp/reset", test_reset);
    g_test_add_func("/qp/destroy", test_destroy);
    g_test_add_func("/qp/rts", test_rts);
    g_test_add_func("/qp/posted-early", test_posted_early);
    g_test_add_func("/qp/comm-est", test_comm_est);
    return g_test_run();
}
