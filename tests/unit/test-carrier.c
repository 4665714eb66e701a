/*
 * The life of a carrier: creation, learning of the peer's number, and the
 * effect of its failure on its members
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/transport/shared/shared_private.h"
#include "shared-world.h"

/* Tests a carrier that fails. */

static void test_carrier_fails(void)
{
    SimConnect c = sim_connect_default();
    SimNode *n;
    Shared *w;

    c.retry_cnt = 2;
    w = shared_new(3, 0, &c);
    n = &w->sim->node[0];
    /* The members' own timers are much longer, so the carrier fails first. */
    w->cut = true;
    send_to(w, 0, QRNIC_WQE_RDMA_WRITE, MTU);
    send_to(w, 0, QRNIC_WQE_RDMA_WRITE, MTU);
    send_to(w, 1, QRNIC_WQE_RDMA_READ, MTU);
    settle(w);
    expect_event(n, QRNIC_EVENT_QP_FATAL, w->carrier[0]->number);
    expect_event(n, QRNIC_EVENT_QP_FATAL, w->end[2][0].qp->number);
    expect_no_event(n);
    expect_state(w->carrier[0], QRNIC_QPS_ERR);
    for (unsigned m = 0; m < 3; m++) {
        expect_state(w->end[m][0].qp, QRNIC_QPS_ERR);
        if (m < 2) {
            QrnicCqe cqe = expect_status(w->end[m][0].qp,
                                         QRNIC_WC_RETRY_EXC_ERR);

            g_assert_cmpuint(cqe.syndrome, ==, QRNIC_SYN_CARRIER);
        }
    }
    expect_status(w->end[0][0].qp, QRNIC_WC_WR_FLUSH_ERR);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_MEMBERS_FAILED), ==, 3);
    /* The peer has nothing to send and is unchanged. */
    expect_state(w->end[0][1].qp, QRNIC_QPS_RTS);
    shared_free(w);
}

/*
 * Tests that all members are notified once, although other queue pairs are
 * scheduled between them.
 */
static void test_members_told_once(void)
{
    const QrnicQpAttr error = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    };
    Shared *w = shared_new(3, 0, NULL);
    QrnicEngine *e = w->sim->node[0].engine;
    QrnicCarrier *carrier = qrnic_qp_get(e, w->carrier[0]->number)->carrier;
    QrnicQp *qp[3];

    for (unsigned m = 0; m < 3; m++) {
        qp[m] = qrnic_qp_get(e, w->end[m][0].qp->number);
    }
    g_assert_cmpuint(sim_modify(w->carrier[0], &error).status, ==,
                     QRNIC_ST_OK);
    g_assert_true(qrnic_carrier_next_failing(carrier)->qp == qp[0]);
    g_assert_cmpint(qrnic_path_wait(e, qp[2]), ==, QRNIC_LIST_NONE);
    g_assert_true(qrnic_carrier_next_failing(carrier)->qp == qp[1]);
    g_assert_true(qrnic_carrier_next_failing(carrier)->qp == qp[2]);
    g_assert_null(qrnic_carrier_next_failing(carrier));
    /*
     * This member was not notified, because it had nothing to send. The failure
     * reaches it when it sends.
     */
    send_to(w, 1, QRNIC_WQE_RDMA_WRITE, MTU);
    settle(w);
    for (unsigned m = 0; m < 3; m++) {
        expect_state(w->end[m][0].qp, QRNIC_QPS_ERR);
    }
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_MEMBERS_FAILED), ==, 3);
    shared_free(w);
}

/*
 * Tests a member that is destroyed before it is notified. None of its packets
 * remains in the carrier.
 */
static void test_goes_before_it_is_told(void)
{
    const QrnicQpAttr error = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    };

    for (unsigned gone = 0; gone < 3; gone++) {
        Shared *w = shared_new(3, 0, NULL);

        w->cut = true;
        for (unsigned i = 0; i < 30; i++) {
            send_to(w, i % 3, QRNIC_WQE_RDMA_WRITE, SLICE / 2);
        }
        run_us(w, 200);
        g_assert_cmpuint(sim_modify(w->carrier[0], &error).status, ==,
                         QRNIC_ST_OK);
        sim_qp_free(w->end[gone][0].qp);
        w->end[gone][0].qp = NULL;
        settle(w);
        g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_MEMBERS_FAILED), ==, 2);
        g_assert_cmpuint(w->sim->node[0].engine->qps->encapsulated_bytes,
                         ==, 0);
        shared_free(w);
    }
}

/* Tests that a member that joins a failed carrier fails when it sends. */
static void test_carrier_has_failed(void)
{
    const QrnicQpAttr error = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    };
    Shared *w = shared_new(1, 0, NULL);
    QrnicQpAttr a = sim_attr_init();
    SimQp *late = sim_qp_new(&w->sim->node[0], 8, 8, 3, 10);

    /* The member moves to RTR before the failure, and to RTS after it. */
    g_assert_cmpuint(sim_modify(late, &a).status, ==, QRNIC_ST_OK);
    a = sim_attr_rtr(late, w->end[0][1].qp);
    a.mask |= QRNIC_QP_CARRIER;
    a.carrier = w->carrier[0]->number;
    g_assert_cmpuint(sim_modify(late, &a).status, ==, QRNIC_ST_OK);
    g_assert_cmpuint(sim_modify(w->carrier[0], &error).status, ==,
                     QRNIC_ST_OK);
    settle(w);
    expect_state(w->end[0][0].qp, QRNIC_QPS_ERR);
    expect_state(late, QRNIC_QPS_ERR);
    sim_qp_free(late);
    sim_qp_free(w->end[0][0].qp);
    /*
     * A carrier in ERR accepts no member, because the member could never send.
     */
    w->end[0][0].qp = sim_qp_new(&w->sim->node[0], 8, 8, 3, 10);
    a = sim_attr_init();
    g_assert_cmpuint(sim_modify(w->end[0][0].qp, &a).status, ==, QRNIC_ST_OK);
    a = sim_attr_rtr(w->end[0][0].qp, w->end[0][1].qp);
    a.mask |= QRNIC_QP_CARRIER;
    a.carrier = w->carrier[0]->number;
    g_assert_cmpuint(sim_modify(w->end[0][0].qp, &a).status, ==,
                     QRNIC_ST_BAD_STATE);
    a.mask &= ~QRNIC_QP_CARRIER;
    a.carrier = 0;
    g_assert_cmpuint(sim_modify(w->end[0][0].qp, &a).status, ==, QRNIC_ST_OK);
    shared_free(w);
}

/* Tests that ERR releases the buffered packets. */
static void test_kept_in_error(void)
{
    const QrnicQpAttr error = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    };
    Shared *w = shared_new(1, QRNIC_QPO_SELECTIVE_REPEAT, NULL);
    const QrnicQps *qps = w->sim->node[1].engine->qps;

    w->lost_psn = PSN_A;
    send_to(w, 0, QRNIC_WQE_RDMA_WRITE, 4 * MTU);
    while (!count(w, 1, QRNIC_COUNTER_BUFFERED_PACKETS)) {
        sim_run(w->sim, w->sim->now + 10);
    }
    g_assert_cmpuint(qps->buffered_bytes, >, MTU);
    g_assert_cmpuint(sim_modify(w->carrier[1], &error).status, ==,
                     QRNIC_ST_OK);
    settle(w);
    g_assert_cmpuint(qps->buffered_bytes, ==, 0);
    shared_free(w);
}

/*
 * Tests that the carrier keeps its path while it has members. After the last
 * member has left, RESET clears its state.
 */
static void test_carrier_reset(void)
{
    const QrnicQpAttr reset = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };
    SimConnect c = sim_connect_default();
    Shared *w;

    c.timeout = 10;
    w = shared_new(2, QRNIC_QPO_SELECTIVE_REPEAT, &c);
    w->cut = true;
    send_to(w, 0, QRNIC_WQE_RDMA_WRITE, SLICE / 2);
    send_to(w, 1, QRNIC_WQE_RDMA_WRITE, SLICE / 2);
    run_us(w, 100);
    w->cut = false;
    for (unsigned i = 0; i < 2; i++) {
        g_assert_cmpuint(sim_modify(w->carrier[i], &reset).status, ==,
                         QRNIC_ST_BUSY);
        expect_state(w->carrier[i], QRNIC_QPS_RTS);
        sim_qp_free(w->end[0][i].qp);
        g_assert_cmpuint(sim_modify(w->carrier[i], &reset).status, ==,
                         QRNIC_ST_BUSY);
        g_assert_cmpuint(sim_modify(w->end[1][i].qp, &reset).status, ==,
                         QRNIC_ST_OK);
        sim_qp_free(w->end[1][i].qp);
        g_assert_cmpuint(sim_modify(w->carrier[i], &reset).status, ==,
                         QRNIC_ST_OK);
        g_assert_cmpuint(w->sim->node[i].engine->qps->encapsulated_bytes,
                         ==, 0);
    }
    run_us(w, 100);
    sim_carrier_connect(w->carrier[0], w->carrier[1], &c);
    for (unsigned m = 0; m < 2; m++) {
        member_init(w, m, &c);
        expect_works(w, m);
    }
    shared_free(w);
}

/* Tests that a device reset in the middle of traffic clears everything. */
static void test_device_reset(void)
{
    Shared *w = shared_new(4, QRNIC_QPO_SELECTIVE_REPEAT, NULL);

    w->sim->wire_room = 1;
    w->sim->wire_pause = 100 * SIM_US;
    for (unsigned m = 0; m < 4; m++) {
        send_to(w, m, QRNIC_WQE_RDMA_WRITE, SLICE / 2);
        send_to(w, m, QRNIC_WQE_RDMA_READ, SLICE / 2);
    }
    run_us(w, 300);
    sim_reset(&w->sim->node[0]);
    run_us(w, 1000);
    sim_reset(&w->sim->node[1]);
    w->sim->wire_room = 0;
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned m = 0; m < 4; m++) {
            g_free(w->end[m][i].qp);
        }
        g_free(w->carrier[i]);
    }
    sim_run(w->sim, w->sim->now + 1000 * SIM_MS);
    sim_free(w->sim);
    g_free(w);
}

/* Commands */

static void test_create(void)
{
    static const struct { QrnicQpCtx ctx; uint32_t offset; } wrong[] = {
        { { .sq_log_size = 3 }, QRNIC_QP_CTX_SQ_LOG_SIZE_OFFSET },
        { { .rq_log_size = 1 }, QRNIC_QP_CTX_RQ_LOG_SIZE_OFFSET },
        { { .rq_log_stride = 1 }, QRNIC_QP_CTX_RQ_LOG_STRIDE_OFFSET },
        { { .pd = 1 }, QRNIC_QP_CTX_PD_OFFSET },
        { { .send_cq = 1 }, QRNIC_QP_CTX_SEND_CQ_OFFSET },
        { { .recv_cq = 1 }, QRNIC_QP_CTX_RECV_CQ_OFFSET },
        { { .db_page = 1 }, QRNIC_QP_CTX_DB_PAGE_OFFSET },
        { { .srq = 1 }, QRNIC_QP_CTX_SRQ_OFFSET },
        { { .sq_record = 8 }, QRNIC_QP_CTX_SQ_RECORD_OFFSET },
        { { .rq_record = 8 }, QRNIC_QP_CTX_RQ_RECORD_OFFSET },
        { { .sq.root = 4096 }, QRNIC_QP_CTX_SQ_OFFSET },
        { { .rq.root = 4096 }, QRNIC_QP_CTX_RQ_OFFSET },
        { { .xrcd = 1 }, QRNIC_QP_CTX_XRCD_OFFSET },
    };
    Shared *w = shared_new(1, 0, NULL);
    QrnicEngine *e = w->sim->node[0].engine;
    QrnicResult r;

    for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
        QrnicQpCtx ctx = wrong[i].ctx;

        ctx.type = QRNIC_QPT_CARRIER;
        r = qrnic_qp_create(e, &ctx);
        g_assert_cmpuint(r.status, ==, QRNIC_ST_BAD_PARAM);
        g_assert_cmphex(r.syndrome, ==, wrong[i].offset);
    }
    /* Members keep a carrier busy. */
    r = qrnic_qp_destroy(e, w->carrier[0]->number);
    g_assert_cmpuint(r.status, ==, QRNIC_ST_BUSY);
    expect_works(w, 0);
    shared_free(w);
}

static void expect_modify(SimQp *q, const QrnicQpAttr *a, uint8_t status,
                          uint32_t syndrome)
{
    QrnicResult r = sim_modify(q, a);

    g_assert_cmpstr(qrnic_cmd_status_name(r.status), ==,
                    qrnic_cmd_status_name(status));
    g_assert_cmphex(r.syndrome, ==, syndrome);
}

static void test_modify(void)
{
    const QrnicQpAttr reset = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };
    Shared *w = shared_new(1, 0, NULL);
    SimQp *q = w->end[0][0].qp, *peer = w->end[0][1].qp;
    SimQp *young = sim_carrier_new(&w->sim->node[0]);
    QrnicQpAttr a = sim_attr_init(), rtr = sim_attr_rtr(q, peer);

    g_assert_cmpuint(sim_query(q).carrier, ==, w->carrier[0]->number);
    g_assert_cmpuint(sim_modify(q, &reset).status, ==, QRNIC_ST_OK);
    g_assert_cmpuint(sim_query(q).carrier, ==, 0);
    expect_modify(q, &a, QRNIC_ST_OK, 0);
    rtr.mask |= QRNIC_QP_CARRIER;
    expect_modify(q, &rtr, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_CARRIER_OFFSET);
    rtr.carrier = q->number;
    expect_modify(q, &rtr, QRNIC_ST_BAD_OBJECT, QRNIC_QP_ATTR_CARRIER_OFFSET);
    rtr.carrier = 0xfffff0;
    expect_modify(q, &rtr, QRNIC_ST_BAD_OBJECT, QRNIC_QP_ATTR_CARRIER_OFFSET);
    rtr.carrier = young->number;
    expect_modify(q, &rtr, QRNIC_ST_BAD_STATE, 0);
    rtr.carrier = w->carrier[0]->number;
    rtr.path_mtu = QRNIC_MTU_2048;
    expect_modify(q, &rtr, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_PATH_MTU_OFFSET);
    rtr.path_mtu = QRNIC_MTU_512;
    rtr.mask |= QRNIC_QP_OPTIONS;
    rtr.options = QRNIC_QPO_SELECTIVE_REPEAT;
    expect_modify(q, &rtr, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_OPTIONS_OFFSET);
    /* QPO_INTRODUCE is valid for carriers only. */
    rtr.mask &= ~QRNIC_QP_CARRIER;
    rtr.carrier = 0;
    rtr.options = QRNIC_QPO_INTRODUCE;
    expect_modify(q, &rtr, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_OPTIONS_OFFSET);
    rtr.mask |= QRNIC_QP_CARRIER;
    rtr.mask &= ~QRNIC_QP_OPTIONS;
    rtr.carrier = w->carrier[0]->number;
    rtr.options = 0;
    expect_modify(q, &rtr, QRNIC_ST_OK, 0);
    /* The attribute is valid for RC and the move to RTR only. */
    a = sim_attr_rts();
    a.mask |= QRNIC_QP_CARRIER;
    a.carrier = w->carrier[0]->number;
    expect_modify(q, &a, QRNIC_ST_BAD_ATTR, QRNIC_QP_CARRIER);
    /* A carrier has no access rights, and cannot be a member. */
    a = sim_attr_init();
    expect_modify(young, &a, QRNIC_ST_BAD_ATTR, QRNIC_QP_ACCESS_FLAGS);
    sim_carrier_free(young);
    shared_free(w);
}

/*
 * Tests that the port's MTU must have room for the longest headers of inner
 * packets.
 */
static void test_port_mtu(void)
{
    Shared *w = shared_new(0, 0, NULL);
    SimNode *n = &w->sim->node[0];
    QrnicPortCtx port = {
        .mtu = 1024 + QRNIC_ENCAPSULATION_OVERHEAD - 1,
        .flags = QRNIC_PORTF_ADMIN_UP,
    };
    SimQp *q = sim_carrier_new(n);
    QrnicQpAttr a = sim_attr_of_carrier(sim_attr_init());

    expect_modify(q, &a, QRNIC_ST_OK, 0);
    a = sim_attr_of_carrier(sim_attr_rtr(q, w->carrier[1]));
    g_assert_cmpuint(qrnic_port_modify(n->engine, &port).status, ==,
                     QRNIC_ST_OK);
    expect_modify(q, &a, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_PATH_MTU_OFFSET);
    port.mtu++;
    g_assert_cmpuint(qrnic_port_modify(n->engine, &port).status, ==,
                     QRNIC_ST_OK);
    expect_modify(q, &a, QRNIC_ST_OK, 0);
    sim_carrier_free(q);
    shared_free(w);
}

/* The passive carrier learns its peer */

/*
 * Makes a carrier at node 0 with the options, connected to node 1, which learns
 * it.
 */
static Shared *learning_new(uint8_t options)
{
    SimConnect c = sim_connect_default();
    Shared *w = carriers_apart();
    SimQp nobody = *w->carrier[0];

    nobody.number = 0;
    c.options = options;
    c.only_a = true;
    sim_carrier_to_rtr(w->carrier[1], &nobody, &c, false);
    sim_carrier_to_rts(w->carrier[1], &c, false);
    sim_carrier_to_rtr(w->carrier[0], w->carrier[1], &c, true);
    sim_carrier_to_rts(w->carrier[0], &c, true);
    member_init(w, w->members++, NULL);
    return w;
}

/* Delivers an ENCAPSULATED packet to node 1, from a peer with this number. */
static void inject_from(Shared *w, uint32_t qpn)
{
    const QrnicPathSpec spec = sim_path_to(w->carrier[1], w->carrier[0]);
    const QrnicTransport t = {
        .opcode = QRNIC_OP_ENCAPSULATED, .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = w->carrier[1]->number, .psn = PSN_A, .src_qpn = qpn,
    };
    uint8_t frame[256], *payload;
    QrnicPath path;

    qrnic_path_init(&path, &spec);
    payload = qrnic_packet_begin(&path, frame, &t, 0);
    sim_inject(w->sim, 1, frame,
               qrnic_packet_finish(&path, frame, payload, 0));
}

static void test_learns(void)
{
    Shared *w = learning_new(0);

    /*
     * A carrier without a peer sends nothing, because the packet would have no
     * destination.
     */
    post(&w->end[0][1], &w->end[0][0], QRNIC_WQE_RDMA_WRITE, 0, 0, 10);
    run_us(w, 100);
    g_assert_cmpuint(w->frames[1], ==, 0);
    expect_no_cqe(w->end[0][1].qp);
    /* The number 0 is invalid. */
    inject_from(w, 0);
    run_us(w, 100);
    g_assert_cmpuint(w->frames[1], ==, 0);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_DROP_CONNECTION), ==, 1);
    send_to(w, 0, QRNIC_WQE_RDMA_WRITE, MTU);
    settle(w);
    expect_cqe(w->end[0][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_cqe(w->end[0][1].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpuint(sim_query(w->carrier[1]).dest_qpn, ==,
                     w->carrier[0]->number);
    expect_works(w, 0);
    shared_free(w);
}

/*
 * Tests that a carrier without traffic introduces itself, so that the peer can
 * send first.
 */
static void test_introduces(void)
{
    Shared *w = learning_new(QRNIC_QPO_INTRODUCE);

    settle(w);
    g_assert_cmpuint(sim_query(w->carrier[1]).dest_qpn, ==,
                     w->carrier[0]->number);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_TX_INNER), ==, 1);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_INNER), ==, 1);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_DROP_INNER), ==, 0);
    post(&w->end[0][1], &w->end[0][0], QRNIC_WQE_RDMA_WRITE, 0, 0, 10);
    settle(w);
    expect_cqe(w->end[0][1].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_works(w, 0);
    shared_free(w);
}

/*
 * Tests that a lost introduction is retransmitted. A carrier that was reset
 * introduces itself again.
 */
static void test_introduced_late(void)
{
    Shared *w = learning_new(QRNIC_QPO_INTRODUCE);
    SimConnect c = sim_connect_default();

    w->cut = true;
    run_us(w, 10);
    w->cut = false;
    settle(w);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_RETRANSMISSIONS), ==, 1);
    expect_works(w, 0);
    for (unsigned i = 0; i < 2; i++) {
        sim_qp_free(w->end[0][i].qp);
        g_assert_cmpuint(sim_modify(w->carrier[i], &(QrnicQpAttr) {
            .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
        }).status, ==, QRNIC_ST_OK);
    }
    c.options = QRNIC_QPO_INTRODUCE;
    sim_carrier_connect(w->carrier[0], w->carrier[1], &c);
    member_init(w, 0, NULL);
    settle(w);
    /* Both carriers know the peer, and introduce themselves anyway. */
    g_assert_cmpuint(sim_query(w->carrier[0]).sq_psn, ==, c.psn_a + 1);
    g_assert_cmpuint(sim_query(w->carrier[1]).sq_psn, ==, c.psn_b + 1);
    expect_works(w, 0);
    shared_free(w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/shared/carrier-fails", test_carrier_fails);
    g_test_add_func("/shared/members-told-once", test_members_told_once);
    g_test_add_func("/shared/goes-before-it-is-told",
                    test_goes_before_it_is_told);
    g_test_add_func("/shared/carrier-has-failed", test_carrier_has_failed);
    g_test_add_func("/shared/kept-in-error", test_kept_in_error);
    g_test_add_func("/shared/carrier-reset", test_carrier_reset);
    g_test_add_func("/shared/device-reset", test_device_reset);
    g_test_add_func("/shared/create", test_create);
    g_test_add_func("/shared/modify", test_modify);
    g_test_add_func("/shared/port-mtu", test_port_mtu);
    g_test_add_func("/shared/learns", test_learns);
    g_test_add_func("/shared/introduces", test_introduces);
    g_test_add_func("/shared/introduced-late", test_introduced_late);
    return g_test_run();
}
