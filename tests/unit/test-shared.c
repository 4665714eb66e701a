/*
 * Shared connections: a carrier transports the packets of its members in place
 * of the wire. Losses, missing WQEs and errors of one member have no effect on
 * other members.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/transport/rc/responder/responder.h"
#include "engine/transport/shared/shared_private.h"
#include "shared-world.h"

/* Packets on the wire */

static bool only_inner(Shared *w, unsigned from, const QrnicPacket *p)
{
    QrnicPacket inner;

    g_assert_cmphex(p->t.dest_qpn, ==, w->carrier[!from]->number);
    if (p->t.opcode == QRNIC_OP_CARRIER_ACK) {
        return true;
    }
    g_assert_cmphex(p->t.opcode, ==, QRNIC_OP_ENCAPSULATED);
    g_assert_cmphex(p->t.src_qpn, ==, w->carrier[from]->number);
    g_assert_cmpint(qrnic_packet_parse_inner(&inner, p), ==,
                    QRNIC_PARSE_OK);
    g_assert_cmphex(inner.t.dest_qpn, ==, w->end[0][!from].qp->number);
    w->seen |= 1u << (inner.t.opcode & QRNIC_OPERATION_MASK);
    return true;
}

/*
 * Tests each operation by a member. The wire has packets of the carrier only.
 */
static void test_operations(void)
{
    Shared *w = shared_new(1, 0, NULL);
    PairEnd *a = &w->end[0][0], *b = &w->end[0][1];

    w->sees = only_inner;
    post_recv(b, 0, 4 * MTU);
    post_recv(b, 0, 0);
    send_to(w, 0, QRNIC_WQE_SEND, 3 * MTU + 1);
    settle(w);
    expect_cqe(a->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_cqe(b->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    expect_same(w, 0, 3 * MTU + 1);
    post(a, b, QRNIC_WQE_RDMA_WRITE_IMM, 7, 5, 2 * MTU + 3);
    settle(w);
    expect_cqe(a->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_cqe(b->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV_RDMA_WITH_IMM);
    g_assert_cmpmem(a->data + 7, 2 * MTU + 3, b->data + 5, 2 * MTU + 3);
    post(a, b, QRNIC_WQE_RDMA_READ, 0, SLICE / 2, 5 * MTU);
    settle(w);
    expect_cqe(a->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(a->data, 5 * MTU, b->data + SLICE / 2, 5 * MTU);
    post(a, b, QRNIC_WQE_ATOMIC_FETCH_ADD, 0, 8, 8);
    settle(w);
    expect_cqe(a->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
    g_assert_cmphex(w->seen, ==,
                    1u << QRNIC_OP_RC_SEND_FIRST |
                    1u << QRNIC_OP_RC_SEND_MIDDLE |
                    1u << QRNIC_OP_RC_SEND_LAST |
                    1u << QRNIC_OP_RC_WRITE_FIRST |
                    1u << QRNIC_OP_RC_WRITE_MIDDLE |
                    1u << QRNIC_OP_RC_WRITE_LAST_IMM |
                    1u << QRNIC_OP_RC_READ_REQUEST |
                    1u << QRNIC_OP_RC_READ_RESPONSE_FIRST |
                    1u << QRNIC_OP_RC_READ_RESPONSE_MIDDLE |
                    1u << QRNIC_OP_RC_READ_RESPONSE_LAST |
                    1u << QRNIC_OP_RC_FETCH_ADD |
                    1u << QRNIC_OP_RC_ATOMIC_ACK | 1u << QRNIC_OP_RC_ACK);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_TX_INNER), ==,
                     count(w, 1, QRNIC_COUNTER_RX_INNER));
    shared_free(w);
}

/* Tests many members in both directions, over a wire with all faults. */
static void test_many(gconstpointer options)
{
    SimConnect c = sim_connect_default();
    Shared *w;

    c.timeout = 12;
    w = shared_new(MEMBERS, GPOINTER_TO_UINT(options), &c);
    w->sim->loss = w->sim->repeat = w->sim->reorder = w->sim->corrupt = 20;
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned m = 0; m < MEMBERS; m++) {
            PairEnd *a = &w->end[m][0], *b = &w->end[m][1];
            uint32_t len = g_rand_int_range(w->sim->rand, 1, SLICE / 2);

            for (unsigned k = 0; k < SLICE; k++) {
                a->data[k] = g_rand_int(w->sim->rand);
            }
            post_recv(b, 0, SLICE / 2);
            send_to(w, m, QRNIC_WQE_SEND, len);
            /* The upper half has the other direction. */
            post(b, a, QRNIC_WQE_RDMA_READ, SLICE / 2, SLICE / 2, SLICE / 2);
        }
        settle(w);
        for (unsigned m = 0; m < MEMBERS; m++) {
            PairEnd *a = &w->end[m][0], *b = &w->end[m][1];
            uint32_t len = 0;

            expect_cqe(a->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
            for (unsigned i = 0; i < 2; i++) {
                QrnicCqe cqe = expect_status(b->qp, QRNIC_WC_SUCCESS);

                len = cqe.opcode == QRNIC_CQE_RECV ? cqe.byte_len : len;
            }
            expect_same(w, m, len);
            g_assert_cmpmem(a->data + SLICE / 2, SLICE / 2,
                            b->data + SLICE / 2, SLICE / 2);
        }
    }
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_RETRANSMISSIONS), >, 0);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_TX_INNER), ==,
                     count(w, 0, QRNIC_COUNTER_RX_INNER));
    shared_free(w);
}

/* Members do not wait for each other */

/*
 * Tests a lost packet that belongs to member 0. Members 1 to 3 finish before it
 * is retransmitted.
 */
static void test_lost_of_one(void)
{
    SimConnect c = sim_connect_default();
    Shared *w;

    c.timeout = 14;             /* 67 ms */
    w = shared_new(4, QRNIC_QPO_SELECTIVE_REPEAT, &c);
    w->sim->latency = 100 * SIM_US;
    expect_works(w, 0);         /* Both sides know the peer's options */
    w->lost_psn = PSN_A + 2;    /* Behind a write, and the ACK of another */
    for (unsigned m = 0; m < 4; m++) {
        send_to(w, m, QRNIC_WQE_RDMA_WRITE, MTU);
    }
    /* The time is one round trip, because the loss is unknown before. */
    run_us(w, 250);
    for (unsigned m = 1; m < 4; m++) {
        expect_cqe(w->end[m][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        expect_same(w, m, MTU);
    }
    expect_no_cqe(w->end[0][0].qp);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_INNER_EARLY), ==, 3);
    run_us(w, 250);
    expect_cqe(w->end[0][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_same(w, 0, MTU);
    settle(w);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_RETRANSMISSIONS), ==, 1);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_INNER), ==,
                     count(w, 0, QRNIC_COUNTER_TX_INNER));
    shared_free(w);
}

/*
 * Tests that further packets are buffered, and executed in order, if the
 * packets that were executed out of order occupy all of their room.
 */
static void test_no_room_to_execute(void)
{
    SimConnect c = sim_connect_default();
    QrnicQps *qps;
    Shared *w;

    c.timeout = 14;
    w = shared_new(4, QRNIC_QPO_SELECTIVE_REPEAT, &c);
    qps = w->sim->node[1].engine->qps;
    w->sim->latency = 100 * SIM_US;
    expect_works(w, 0);
    g_assert_cmpuint(qps->executed_bytes, ==, 0);
    /* Room for one packet is left. */
    qps->executed_bytes = QRNIC_MAX_REORDER / 2 - sizeof(QrnicBuffered);
    w->lost_psn = PSN_A + 2;
    for (unsigned m = 0; m < 4; m++) {
        send_to(w, m, QRNIC_WQE_RDMA_WRITE, MTU);
    }
    run_us(w, 250);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_INNER_EARLY), ==, 1);
    g_assert_cmpuint(qps->executed_bytes, ==, QRNIC_MAX_REORDER / 2);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 3);
    expect_cqe(w->end[1][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_no_cqe(w->end[2][0].qp);
    settle(w);
    g_assert_cmpuint(qps->executed_bytes, ==,
                     QRNIC_MAX_REORDER / 2 - sizeof(QrnicBuffered));
    qps->executed_bytes = 0;
    g_assert_cmpuint(qps->buffered_bytes, ==, 0);
    for (unsigned m = 0; m < 4; m++) {
        if (m != 1) {
            expect_cqe(w->end[m][0].qp, QRNIC_WC_SUCCESS,
                       QRNIC_CQE_RDMA_WRITE);
        }
        expect_same(w, m, MTU);
    }
    shared_free(w);
}

/*
 * Tests that packets of one member wait for all earlier packets of this member.
 */
static void test_order_of_one(void)
{
    SimConnect c = sim_connect_default();
    Shared *w;

    c.timeout = 14;
    w = shared_new(2, QRNIC_QPO_SELECTIVE_REPEAT, &c);
    expect_works(w, 0);
    w->lost_psn = PSN_A + 2;
    for (unsigned i = 0; i < 4; i++) {
        post(&w->end[0][0], &w->end[0][1], QRNIC_WQE_RDMA_WRITE, 1000 * i, 0,
             1000);
    }
    settle(w);
    for (unsigned i = 0; i < 4; i++) {
        expect_cqe(w->end[0][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    g_assert_cmpmem(w->end[0][0].data + 3000, 1000, w->end[0][1].data, 1000);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_INNER_EARLY), ==, 0);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 3);
    /* No member requested a retransmission itself. */
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 0);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 0);
    shared_free(w);
}

/*
 * Tests that all members wait without the option, but only until the
 * retransmission.
 */
static void test_lost_go_back(void)
{
    SimConnect c = sim_connect_default();
    Shared *w;

    c.timeout = 14;
    w = shared_new(2, 0, &c);
    expect_works(w, 0);
    w->sim->latency = 100 * SIM_US;
    w->lost_psn = PSN_A + 2;
    send_to(w, 0, QRNIC_WQE_RDMA_WRITE, MTU);
    send_to(w, 1, QRNIC_WQE_RDMA_WRITE, MTU);
    run_us(w, 250);
    expect_no_cqe(w->end[1][0].qp);
    run_us(w, 250);
    expect_cqe(w->end[0][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_cqe(w->end[1][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    shared_free(w);
}

/* Tests that only the sender to this member waits without a receive WQE. */
static void test_not_ready(void)
{
    Shared *w = shared_new(3, 0, NULL);

    send_to(w, 0, QRNIC_WQE_SEND, 3 * MTU);
    send_to(w, 0, QRNIC_WQE_SEND, 10);
    run_us(w, 100);
    for (unsigned i = 0; i < 50; i++) {
        send_to(w, 1, QRNIC_WQE_RDMA_WRITE, 2 * MTU);
        run_us(w, 100);
        expect_cqe(w->end[1][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    expect_no_cqe(w->end[0][0].qp);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_TX_RNR_NAK), >, 0);
    post_recv(&w->end[0][1], 0, 3 * MTU);
    post_recv(&w->end[0][1], 3 * MTU, 10);
    settle(w);
    for (unsigned i = 0; i < 2; i++) {
        expect_cqe(w->end[0][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        expect_cqe(w->end[0][1].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    }
    expect_same(w, 0, 3 * MTU);
    shared_free(w);
}

/*
 * Tests that a wrong key moves both sides of this member to ERR, and no other.
 */
static void test_error_of_one(void)
{
    Shared *w = shared_new(3, 0, NULL);
    uint32_t key = w->end[0][1].key;

    send_to(w, 1, QRNIC_WQE_RDMA_WRITE, 5 * MTU);
    w->end[0][1].key ^= 1;
    send_to(w, 0, QRNIC_WQE_RDMA_WRITE, 5 * MTU);
    w->end[0][1].key = key;
    send_to(w, 0, QRNIC_WQE_RDMA_WRITE, MTU);
    send_to(w, 2, QRNIC_WQE_RDMA_WRITE, 5 * MTU);
    settle(w);
    expect_status(w->end[0][0].qp, QRNIC_WC_REM_ACCESS_ERR);
    expect_status(w->end[0][0].qp, QRNIC_WC_WR_FLUSH_ERR);
    expect_state(w->end[0][1].qp, QRNIC_QPS_ERR);
    for (unsigned m = 1; m < 3; m++) {
        expect_cqe(w->end[m][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        expect_same(w, m, 5 * MTU);
        expect_works(w, m);
    }
    shared_free(w);
}

/* Loses all packets of node 1 that carry a packet of a member. */
static bool loses_responses(Shared *w, unsigned from, const QrnicPacket *p)
{
    return !from || p->t.opcode != QRNIC_OP_ENCAPSULATED ||
           w->sim->now > 3000 * SIM_MS;
}

/*
 * Tests that a member with a short timer does not fail while the peer's carrier
 * retransmits the response. The carrier needs six transmissions, which take 3
 * of its 4.3 seconds. All transmissions of the member would take 0.5 seconds.
 */
static void test_slow_carrier(void)
{
    SimConnect c = sim_connect_default();
    PairEnd *a, *b;
    Shared *w;

    c.timeout = 17;             /* 537 ms */
    w = carriers_new(0, &c);
    c.timeout = 14;             /* 67 ms */
    member_init(w, 0, &c);
    w->members = 1;
    w->sees = loses_responses;
    a = &w->end[0][0];
    b = &w->end[0][1];
    post(a, b, QRNIC_WQE_RDMA_READ, 0, SLICE / 2, 5 * MTU);
    settle(w);
    expect_cqe(a->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(a->data, 5 * MTU, b->data + SLICE / 2, 5 * MTU);
    g_assert_cmpint(w->sim->now, >, 3000 * SIM_MS);
    shared_free(w);
}

/* Times at which the wire begins to transport inner packets of each node */
static int64_t lost_until[2];

static bool loses_at_first(Shared *w, unsigned from, const QrnicPacket *p)
{
    return p->t.opcode != QRNIC_OP_ENCAPSULATED ||
           w->sim->now >= lost_until[from];
}

/* Creates carriers with 537 ms, and a member with 67 ms and these retries. */
#define CARRIER_TIME (4096ll << 17)

static Shared *slow_carriers_new(unsigned retries)
{
    SimConnect c = sim_connect_default();
    Shared *w;

    c.timeout = 17;
    c.retry_cnt = 7;
    w = carriers_new(0, &c);
    c.timeout = 14;
    c.retry_cnt = retries;
    member_init(w, 0, &c);
    w->members = 1;
    return w;
}

/*
 * Tests a carrier that delivers the request of a member by its last
 * transmission. The peer's carrier does the same with the response. Neither
 * carrier fails, so the member does not fail either.
 */
static void test_last_transmissions(gconstpointer retries)
{
    Shared *w = slow_carriers_new(GPOINTER_TO_UINT(retries));
    PairEnd *a = &w->end[0][0], *b = &w->end[0][1];
    int64_t start = w->sim->now;

    lost_until[0] = start + 7 * CARRIER_TIME - 2 * SIM_MS;
    lost_until[1] = start + 14 * CARRIER_TIME - 2 * SIM_MS;
    w->sees = loses_at_first;
    post(a, b, QRNIC_WQE_RDMA_READ, 0, SLICE / 2, 5 * MTU);
    settle(w);
    expect_cqe(a->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(a->data, 5 * MTU, b->data + SLICE / 2, 5 * MTU);
    g_assert_cmpint(w->sim->now, >=, lost_until[1]);
    /* The second request has fresh retries. */
    expect_works(w, 0);
    shared_free(w);
}

/* Time at which the test below began */
static int64_t former_start;

/*
 * Loses the second packet of the carrier for a second, and later ones for three
 * seconds.
 */
static bool loses_second(Shared *w, unsigned from, const QrnicPacket *p)
{
    int32_t n = qrnic_psn_diff(p->t.psn, PSN_A);

    return from || p->t.opcode != QRNIC_OP_ENCAPSULATED || n < 1 ||
           w->sim->now >= former_start + (n == 1 ? 1000 : 3000) * SIM_MS;
}

/*
 * Tests an ACK of an earlier transmission. The carrier delivers the first of
 * two requests, and the member retransmits both after 604 ms. Then the carrier
 * delivers the second request of the first transmission. The timer of the
 * member waits until the carrier has delivered the second transmission.
 */
static void test_former_transmission(void)
{
    Shared *w = slow_carriers_new(7);
    PairEnd *a = &w->end[0][0], *b = &w->end[0][1];
    QrnicQp *qp = qrnic_qp_get(w->sim->node[0].engine, a->qp->number);

    former_start = w->sim->now;
    w->sees = loses_second;
    qp->attr.dest_qpn = 0x7777;
    post(a, b, QRNIC_WQE_RDMA_WRITE, 0, 0, 10);
    run_us(w, 10000);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_DROP_INNER), ==, 1);
    post(a, b, QRNIC_WQE_RDMA_WRITE, 0, 0, 10);
    while (count(w, 1, QRNIC_COUNTER_RX_DROP_INNER) < 2) {
        g_assert_cmpint(w->sim->now, <, former_start + 2000 * SIM_MS);
        run_us(w, 1000);
    }
    while (count(w, 1, QRNIC_COUNTER_RX_DROP_INNER) < 4) {
        g_assert_cmpint(w->sim->now, <, former_start + 4000 * SIM_MS);
        g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_TX_INNER), <=, 4);
        run_us(w, 1000);
    }
    shared_free(w);
}

/*
 * Tests requests to a queue pair that does not exist. The member fails in the
 * time of the manual. Meanwhile it also responds to requests of its peer, so
 * that one of its packets always has no ACK yet.
 */
static void test_never_responds(gconstpointer retries)
{
    unsigned n = GPOINTER_TO_UINT(retries);
    Shared *w = slow_carriers_new(n);
    PairEnd *a = &w->end[0][0], *b = &w->end[0][1];
    QrnicQp *qp = qrnic_qp_get(w->sim->node[0].engine, a->qp->number);
    int64_t start = w->sim->now, least = start + 9 * CARRIER_TIME;
    int64_t delivery = 2 * 200 * SIM_MS;

    w->sim->latency = delivery / 2;
    qp->attr.dest_qpn = 0x7777;
    while (sim_query(a->qp).state != QRNIC_QPS_ERR) {
        post(a, b, QRNIC_WQE_RDMA_WRITE, 0, 0, 10);
        post(b, a, QRNIC_WQE_RDMA_WRITE, 0, 0, 10);
        run_us(w, 50000);
        g_assert_cmpint(w->sim->now, <=,
                        least + (n + 1) * delivery + 100 * SIM_MS);
    }
    g_assert_cmpint(w->sim->now, >=, least);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_TIMEOUTS), ==, n + 1);
    expect_status(a->qp, QRNIC_WC_RETRY_EXC_ERR);
    expect_state(w->carrier[0], QRNIC_QPS_RTS);
    settle(w);
    shared_free(w);
}

/*
 * Tests that a member whose peer does not exist fails, although other members
 * keep the queue of the carrier full.
 */
static void test_never_responds_crowded(void)
{
    Shared *w = slow_carriers_new(0);
    PairEnd *a = &w->end[0][0], *b = &w->end[0][1];
    QrnicQp *qp = qrnic_qp_get(w->sim->node[0].engine, a->qp->number);
    int64_t end = w->sim->now + 10 * CARRIER_TIME;
    unsigned outstanding[4] = { 0 };
    QrnicCqe cqe;

    for (unsigned m = 1; m < 4; m++) {
        member_init(w, m, NULL);
        w->members++;
    }
    w->sim->latency = 20 * SIM_MS;
    qp->attr.dest_qpn = 0x7777;
    post(a, b, QRNIC_WQE_RDMA_WRITE, 0, 0, 10);
    while (sim_query(a->qp).state != QRNIC_QPS_ERR) {
        for (unsigned m = 1; m < 4; m++) {
            SimQp *q = w->end[m][0].qp;

            while (sim_poll(q, &cqe)) {
                g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
                outstanding[m]--;
            }
            while (outstanding[m] < 16) {
                send_to(w, m, QRNIC_WQE_RDMA_WRITE, SLICE / 2);
                outstanding[m]++;
            }
        }
        run_us(w, 5000);
        g_assert_cmpint(w->sim->now, <=, end);
    }
    expect_status(a->qp, QRNIC_WC_RETRY_EXC_ERR);
    settle(w);
    shared_free(w);
}

/* Scheduling */

/* Tests that all members are scheduled, even if one has much to send. */
static void test_turns(void)
{
    Shared *w = shared_new(8, 0, NULL);

    w->sim->wire_room = 4;
    w->sim->wire_pause = 4 * SIM_US;
    for (unsigned i = 0; i < 60; i++) {
        send_to(w, 0, QRNIC_WQE_RDMA_WRITE, SLICE / 2);
    }
    run_us(w, 200);
    for (unsigned m = 1; m < 8; m++) {
        send_to(w, m, QRNIC_WQE_RDMA_WRITE, MTU);
    }
    /*
     * The time is enough for one queue of the carrier, its window, and one more
     * round.
     */
    run_us(w, (QRNIC_CARRIER_QUEUE + QRNIC_SELECTIVE_WINDOW + 100) * 2);
    for (unsigned m = 1; m < 8; m++) {
        expect_cqe(w->end[m][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    g_assert_cmpuint(sim_query(w->end[0][0].qp).sq_consumer, <, 60);
    settle(w);
    shared_free(w);
}

/*
 * Tests that a place in the queue goes to the member that has waited longest.
 */
static void test_turn_of_the_first(void)
{
    Shared *w = shared_new(3, 0, NULL);
    QrnicEngine *e = w->sim->node[0].engine;
    QrnicCarrier *carrier = qrnic_qp_get(e, w->carrier[0]->number)->carrier;
    QrnicQp *qp[3];

    for (unsigned m = 0; m < 3; m++) {
        qp[m] = qrnic_qp_get(e, w->end[m][0].qp->number);
    }
    w->sim->wire_room = 1;
    w->sim->wire_pause = 1000 * SIM_MS;
    for (unsigned i = 0; i < 4; i++) {
        send_to(w, 0, QRNIC_WQE_RDMA_WRITE, SLICE / 2);
    }
    run_us(w, 10);
    g_assert_cmpint(qrnic_path_wait(e, qp[1]), ==, QRNIC_LIST_NONE);
    g_assert_cmpint(qrnic_path_wait(e, qp[2]), ==, QRNIC_LIST_NONE);
    /* The member that filled the queue waits as well, before the others. */
    qrnic_encapsulated_free(e, qrnic_carrier_dequeue(carrier));
    g_assert_cmpint(qrnic_path_wait(e, qp[2]), ==, QRNIC_LIST_NONE);
    g_assert_cmpint(qrnic_path_wait(e, qp[1]), ==, QRNIC_LIST_NONE);
    g_assert_cmpint(qrnic_path_wait(e, qp[0]), ==, QRNIC_LIST_READY);
    sim_qp_free(w->end[0][0].qp);
    w->end[0][0].qp = NULL;
    g_assert_cmpint(qrnic_path_wait(e, qp[2]), ==, QRNIC_LIST_NONE);
    g_assert_cmpint(qrnic_path_wait(e, qp[1]), ==, QRNIC_LIST_READY);
    w->sim->wire_room = 0;
    sim_block(&w->sim->node[0], w->sim->now);
    settle(w);
    expect_works(w, 1);
    shared_free(w);
}

/*
 * A crowd: more members than the carrier has room for. All post before one is
 * scheduled, and only the last one survives.
 */
#define CROWD (QRNIC_CARRIER_QUEUE + 20)

static void crowd_post(Shared *w, SimQp *q[CROWD])
{
    SimConnect c = sim_connect_default();
    PairEnd *e = w->end[0];

    c.carrier_a = w->carrier[0];
    c.carrier_b = w->carrier[1];
    for (unsigned i = 0; i < CROWD; i++) {
        SimQp *peer = sim_qp_new(&w->sim->node[1], 3, 3, 0, 4);

        q[i] = sim_qp_new(&w->sim->node[0], 8, 3, 0, 4);
        sim_connect(q[i], peer, &c);
        e[0].qp = q[i];
        post(&e[0], &e[1], QRNIC_WQE_RDMA_WRITE, 0, 0, 40 * MTU);
        g_free(peer);
    }
    run_us(w, 10);
    for (unsigned i = 0; i + 1 < CROWD; i++) {
        const QrnicQpAttr error = {
            .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
        };

        g_assert_cmpuint(sim_modify(q[i], &error).status, ==, QRNIC_ST_OK);
    }
}

static void crowd_settle(Shared *w, SimQp *q[CROWD])
{
    settle(w);
    expect_cqe(q[CROWD - 1], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    for (unsigned i = 0; i < CROWD; i++) {
        g_free(q[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        g_free(w->carrier[i]);
    }
    sim_free(w->sim);
    g_free(w);
}

/*
 * Tests more members than there is room for, which are woken without work.
 * Other members continue.
 */
static void test_woken_in_vain(void)
{
    Shared *w = carriers_new(0, NULL);
    SimQp *q[CROWD];

    w->sim->wire_room = 1;
    w->sim->wire_pause = 1000 * SIM_MS;
    crowd_post(w, q);
    w->sim->wire_room = 0;
    sim_block(&w->sim->node[0], w->sim->now);
    crowd_settle(w, q);
}

/*
 * Tests more members than there is room for, while the carrier has no packet
 * that an ACK could acknowledge.
 */
static void test_woken_by_none(void)
{
    SimConnect c = sim_connect_default();
    Shared *w = carriers_apart();
    SimQp *q[CROWD];

    sim_carrier_to_rtr(w->carrier[0], w->carrier[1], &c, true);
    sim_carrier_to_rtr(w->carrier[1], w->carrier[0], &c, false);
    sim_carrier_to_rts(w->carrier[1], &c, false);
    crowd_post(w, q);
    sim_carrier_to_rts(w->carrier[0], &c, true);
    crowd_settle(w, q);
}

/* Limits */

/* Tests that the carrier queues at most its limit while the wire is blocked. */
static void test_bound(void)
{
    Shared *w = shared_new(MEMBERS, 0, NULL);
    uint64_t before;

    w->cut = true;
    for (unsigned m = 0; m < MEMBERS; m++) {
        for (unsigned i = 0; i < 10; i++) {
            send_to(w, m, QRNIC_WQE_RDMA_WRITE, SLICE / 2);
        }
    }
    run_us(w, 200);
    before = count(w, 0, QRNIC_COUNTER_TX_INNER);
    g_assert_cmpuint(before, ==, QRNIC_SELECTIVE_WINDOW);
    /* 5,120 packets are to be sent. */
    w->cut = false;
    settle(w);
    for (unsigned m = 0; m < MEMBERS; m++) {
        for (unsigned i = 0; i < 10; i++) {
            expect_cqe(w->end[m][0].qp, QRNIC_WC_SUCCESS,
                       QRNIC_CQE_RDMA_WRITE);
        }
        expect_same(w, m, SLICE / 2);
    }
    shared_free(w);
}

/*
 * Tests other carriers that occupy all of the common room. Each carrier has one
 * packet in flight, and its ACK makes room for the next.
 */
static void test_bound_of_all(void)
{
    Shared *w = shared_new(2, 0, NULL);
    QrnicQps *p = w->sim->node[0].engine->qps;

    p->encapsulated_bytes += QRNIC_MAX_INNER_BYTES;
    w->cut = true;
    for (unsigned m = 0; m < 2; m++) {
        send_to(w, m, QRNIC_WQE_RDMA_WRITE, 10 * MTU);
    }
    run_us(w, 200);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_TX_INNER), ==, 1);
    w->cut = false;
    settle(w);
    for (unsigned m = 0; m < 2; m++) {
        expect_cqe(w->end[m][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        expect_same(w, m, 10 * MTU);
    }
    g_assert_cmpuint(p->encapsulated_bytes, ==, QRNIC_MAX_INNER_BYTES);
    shared_free(w);
}

/*
 * Tests that packets of a destroyed member are still sent, because the
 * carrier's PSNs must have no hole.
 */
static void test_member_goes(void)
{
    Shared *w = shared_new(2, 0, NULL);

    w->sim->wire_room = 1;
    w->sim->wire_pause = 100 * SIM_US;
    send_to(w, 0, QRNIC_WQE_RDMA_WRITE, 20 * MTU);
    run_us(w, 20);
    sim_qp_free(w->end[0][0].qp);
    w->end[0][0].qp = NULL;
    send_to(w, 1, QRNIC_WQE_RDMA_WRITE, 20 * MTU);
    settle(w);
    expect_cqe(w->end[1][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_same(w, 0, 20 * MTU);
    /* The ACK has no member, but the carrier acknowledges it. */
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_RX_DROP_INNER), >, 0);
    expect_works(w, 1);
    shared_free(w);
}

/* Tests both sides in one device, without a wire between them. */
static void test_loopback(void)
{
    SimConnect c = sim_connect_default();
    Sim *s = sim_new(1, NULL);
    SimNode *n = &s->node[0];
    SimQp *carrier[2], *q[2];
    uint64_t addr = sim_alloc(n, 8192);
    uint32_t key = sim_mkey(n, addr, 8192, ACCESS_ALL);
    SimSge sge = { addr, 4096, key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = addr + 4096, .rkey = key,
    };

    for (unsigned i = 0; i < 2; i++) {
        carrier[i] = sim_carrier_new(n);
        q[i] = sim_qp_new(n, 8, 8, 3, 10);
    }
    c.path_mtu = QRNIC_MTU_4096;
    sim_carrier_connect(carrier[0], carrier[1], &c);
    c.carrier_a = carrier[0];
    c.carrier_b = carrier[1];
    sim_connect(q[0], q[1], &c);
    memset(n->memory + addr, 0x77, 4096);
    sim_post_send(q[0], &wr);
    g_assert_true(sim_run(s, s->now + 1000 * SIM_MS));
    expect_cqe(q[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(n->memory + addr, 4096, n->memory + addr + 4096, 4096);
    for (unsigned i = 0; i < 2; i++) {
        sim_qp_free(q[i]);
        sim_carrier_free(carrier[i]);
    }
    sim_free(s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/shared/operations", test_operations);
    g_test_add_data_func("/shared/many/go-back-n", GUINT_TO_POINTER(0),
                         test_many);
    g_test_add_data_func("/shared/many/selective",
                         GUINT_TO_POINTER(QRNIC_QPO_SELECTIVE_REPEAT),
                         test_many);
    g_test_add_func("/shared/lost-of-one", test_lost_of_one);
    g_test_add_func("/shared/order-of-one", test_order_of_one);
    g_test_add_func("/shared/no-room-to-execute", test_no_room_to_execute);
    g_test_add_func("/shared/lost-go-back", test_lost_go_back);
    g_test_add_func("/shared/not-ready", test_not_ready);
    g_test_add_func("/shared/error-of-one", test_error_of_one);
    g_test_add_func("/shared/slow-carrier", test_slow_carrier);
    g_test_add_func("/shared/former-transmission", test_former_transmission);
    g_test_add_data_func("/shared/last-transmissions/0", GUINT_TO_POINTER(0),
                         test_last_transmissions);
    g_test_add_data_func("/shared/never-responds/0", GUINT_TO_POINTER(0),
                         test_never_responds);
    g_test_add_data_func("/shared/last-transmissions/1", GUINT_TO_POINTER(1),
                         test_last_transmissions);
    g_test_add_data_func("/shared/never-responds/1", GUINT_TO_POINTER(1),
                         test_never_responds);
    g_test_add_data_func("/shared/last-transmissions/7", GUINT_TO_POINTER(7),
                         test_last_transmissions);
    g_test_add_data_func("/shared/never-responds/7", GUINT_TO_POINTER(7),
                         test_never_responds);
    g_test_add_func("/shared/never-responds/crowded",
                    test_never_responds_crowded);
    g_test_add_func("/shared/turns", test_turns);
    g_test_add_func("/shared/turn-of-the-first", test_turn_of_the_first);
    g_test_add_func("/shared/woken-in-vain", test_woken_in_vain);
    g_test_add_func("/shared/woken-by-none", test_woken_by_none);
    g_test_add_func("/shared/bound", test_bound);
    g_test_add_func("/shared/bound-of-all", test_bound_of_all);
    g_test_add_func("/shared/member-goes", test_member_goes);
    g_test_add_func("/shared/loopback", test_loopback);
    return g_test_run();
}
