/*
 * Shared connections: a carrier takes the packets of its members, in place of
 * the wire; what one of them loses, lacks or does wrong is its own matter.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/transport/rc/rc.h"
#include "pair.h"

#define PSN_A 0x123456          /* as sim_connect_default() has them */
#define MTU 1024u
#define MEMBERS 16
#define SLICE (PAIR_BYTES / MEMBERS)

typedef struct Shared Shared;
struct Shared {
    Sim *sim;
    SimQp *carrier[2];
    unsigned members;
    PairEnd end[MEMBERS][2];    /* all of one node have one memory */
    /* What the wire does: see tap() */
    unsigned frames[2];
    uint32_t lost_psn;          /* of the carrier of node 0, once */
    bool cut;
    bool (*sees)(Shared *w, unsigned from, const QrnicPacket *p);
    unsigned seen;
};

static bool tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                void *opaque)
{
    Shared *w = opaque;
    QrnicPacket p;

    g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
    w->frames[from]++;
    if (w->sees && !w->sees(w, from, &p)) {
        return false;
    }
    if (!from && w->lost_psn && p.t.psn == w->lost_psn) {
        w->lost_psn = 0;
        return false;
    }
    return !w->cut;
}

static void member_init(Shared *w, unsigned m, const SimConnect *connect)
{
    SimConnect c = connect ? *connect : sim_connect_default();

    for (unsigned i = 0; i < 2; i++) {
        PairEnd *e = &w->end[m][i];

        *e = w->end[0][i];
        e->addr += m * SLICE;
        e->data += m * SLICE;
        e->qp = sim_qp_new(&w->sim->node[i], 8, 8, 3, 10);
    }
    c.options = 0;
    c.carrier_a = w->carrier[0];
    c.carrier_b = w->carrier[1];
    c.psn_a += 1000 * m;
    c.psn_b += 2000 * m;
    sim_connect(w->end[m][0].qp, w->end[m][1].qp, &c);
}

/* The carriers only */
static Shared *carriers_new(uint8_t options, const SimConnect *connect)
{
    SimConnect c = connect ? *connect : sim_connect_default();
    Shared *w = g_new0(Shared, 1);

    w->sim = sim_new(3, NULL);
    w->sim->tap = tap;
    w->sim->tap_opaque = w;
    c.options = options;
    for (unsigned i = 0; i < 2; i++) {
        SimNode *n = &w->sim->node[i];
        PairEnd *e = &w->end[0][i];

        w->carrier[i] = sim_carrier_new(n);
        e->addr = sim_alloc(n, PAIR_BYTES);
        e->data = n->memory + e->addr;
        e->key = sim_mkey(n, e->addr, PAIR_BYTES, ACCESS_ALL);
        for (unsigned k = 0; k < PAIR_BYTES; k++) {
            e->data[k] = g_rand_int(w->sim->rand);
        }
    }
    sim_carrier_connect(w->carrier[0], w->carrier[1], &c);
    return w;
}

static Shared *shared_new(unsigned members, uint8_t options,
                          const SimConnect *connect)
{
    Shared *w = carriers_new(options, connect);

    for (w->members = 0; w->members < members; w->members++) {
        member_init(w, w->members, connect);
    }
    return w;
}

static void shared_free(Shared *w)
{
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned m = 0; m < w->members; m++) {
            if (w->end[m][i].qp) {
                sim_qp_free(w->end[m][i].qp);
            }
        }
        if (w->carrier[i]) {
            sim_carrier_free(w->carrier[i]);
        }
    }
    sim_free(w->sim);
    g_free(w);
}

static void settle(Shared *w)
{
    g_assert_true(sim_run(w->sim, w->sim->now + 100000 * SIM_MS));
}

static void run_us(Shared *w, int64_t us)
{
    sim_run(w->sim, w->sim->now + us * SIM_US);
}

static uint64_t count(Shared *w, unsigned node, enum qrnic_counter c)
{
    return sim_counter(&w->sim->node[node], c);
}

static void send_to(Shared *w, unsigned m, uint8_t opcode, uint32_t len)
{
    post(&w->end[m][0], &w->end[m][1], opcode, 0, 0, len);
}

static void expect_same(Shared *w, unsigned m, uint32_t len)
{
    g_assert_cmpmem(w->end[m][0].data, len, w->end[m][1].data, len);
}

/* A member works, both ways. */
static void expect_works(Shared *w, unsigned m)
{
    for (unsigned i = 0; i < 2; i++) {
        PairEnd *from = &w->end[m][i], *to = &w->end[m][!i];

        from->data[5]++;
        post(from, to, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
        settle(w);
        expect_cqe(from->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        g_assert_cmpmem(from->data, 100, to->data, 100);
    }
}

/*
 * What goes over the wire
 */

static bool only_carried(Shared *w, unsigned from, const QrnicPacket *p)
{
    QrnicPacket inner;

    g_assert_cmphex(p->t.dest_qpn, ==, w->carrier[!from]->number);
    if (p->t.opcode == QRNIC_OP_CARRIER_ACK) {
        return true;
    }
    g_assert_cmphex(p->t.opcode, ==, QRNIC_OP_CARRIED);
    g_assert_cmphex(p->t.src_qpn, ==, w->carrier[from]->number);
    g_assert_cmpint(qrnic_packet_parse_carried(&inner, p), ==,
                    QRNIC_PARSE_OK);
    g_assert_cmphex(inner.t.dest_qpn, ==, w->end[0][!from].qp->number);
    w->seen |= 1u << (inner.t.opcode & QRNIC_OPERATION_MASK);
    return true;
}

/* Each operation, by a member; nothing else is seen on the wire. */
static void test_operations(void)
{
    Shared *w = shared_new(1, 0, NULL);
    PairEnd *a = &w->end[0][0], *b = &w->end[0][1];

    w->sees = only_carried;
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
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_TX_CARRIED), ==,
                     count(w, 1, QRNIC_COUNTER_RX_CARRIED));
    shared_free(w);
}

/* Many members, both ways at a time, over a wire that does all it can */
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
            /* The upper half goes the other way. */
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
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_TX_CARRIED), ==,
                     count(w, 0, QRNIC_COUNTER_RX_CARRIED));
    shared_free(w);
}

/*
 * One member does not wait for another
 */

/* What is lost is of member 0; 1 to 3 have all they want before it is sent. */
static void test_lost_of_one(void)
{
    SimConnect c = sim_connect_default();
    Shared *w;

    c.timeout = 14;             /* 67 ms */
    w = shared_new(4, QRNIC_QPO_SELECTIVE_REPEAT, &c);
    w->sim->latency = 100 * SIM_US;
    expect_works(w, 0);         /* both ends know what the other one does */
    w->lost_psn = PSN_A + 2;    /* behind a write, and the ACK of another */
    for (unsigned m = 0; m < 4; m++) {
        send_to(w, m, QRNIC_WQE_RDMA_WRITE, MTU);
    }
    /* There and back once: nobody knows of the loss before that. */
    run_us(w, 250);
    for (unsigned m = 1; m < 4; m++) {
        expect_cqe(w->end[m][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        expect_same(w, m, MTU);
    }
    expect_no_cqe(w->end[0][0].qp);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_CARRIED_EARLY), ==, 3);
    run_us(w, 250);
    expect_cqe(w->end[0][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_same(w, 0, MTU);
    settle(w);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_RETRANSMISSIONS), ==, 1);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_CARRIED), ==,
                     count(w, 0, QRNIC_COUNTER_TX_CARRIED));
    shared_free(w);
}

/* What is of the same member waits for what came before it, all of it. */
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
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_CARRIED_EARLY), ==, 0);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_HELD_PACKETS), ==, 3);
    /* None of them was told to come again by the member itself. */
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 0);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 0);
    shared_free(w);
}

/* Without the option all wait, and not longer than the repetition takes. */
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

/* No receive WQE: who sends to it waits, and nobody else does. */
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

/* A wrong key: both ends of this member are in ERR, and of no other. */
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

/* All have turns, also beside one that has much to send. */
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
    /* A queue of the carrier, its window, and one round more */
    run_us(w, (QRNIC_CARRIER_QUEUE + QRNIC_SELECTIVE_WINDOW + 100) * 2);
    for (unsigned m = 1; m < 8; m++) {
        expect_cqe(w->end[m][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    g_assert_cmpuint(sim_query(w->end[0][0].qp).sq_consumer, <, 60);
    settle(w);
    shared_free(w);
}

/* More than there is room for have waited in vain: others go on. */
static void test_woken_in_vain(void)
{
    const QrnicQpAttr error = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    };
    SimQp *q[QRNIC_CARRIER_QUEUE + 20], *peer;
    SimConnect c = sim_connect_default();
    Shared *w = carriers_new(0, NULL);
    PairEnd *e = w->end[0];

    c.carrier_a = w->carrier[0];
    c.carrier_b = w->carrier[1];
    /* All posted before a single one had its turn */
    w->sim->wire_room = 1;
    w->sim->wire_pause = 1000 * SIM_MS;
    for (unsigned i = 0; i < ARRAY_SIZE(q); i++) {
        q[i] = sim_qp_new(&w->sim->node[0], 8, 3, 0, 4);
        peer = sim_qp_new(&w->sim->node[1], 3, 3, 0, 4);
        sim_connect(q[i], peer, &c);
        e[0].qp = q[i];
        post(&e[0], &e[1], QRNIC_WQE_RDMA_WRITE, 0, 0, 40 * MTU);
        g_free(peer);
    }
    run_us(w, 10);
    for (unsigned i = 0; i + 1 < ARRAY_SIZE(q); i++) {
        g_assert_cmpuint(sim_modify(q[i], &error).status, ==, QRNIC_ST_OK);
    }
    w->sim->wire_room = 0;
    sim_block(&w->sim->node[0], w->sim->now);
    settle(w);
    expect_cqe(q[ARRAY_SIZE(q) - 1], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    for (unsigned i = 0; i < ARRAY_SIZE(q); i++) {
        g_free(q[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        g_free(w->carrier[i]);
    }
    sim_free(w->sim);
    g_free(w);
}

/*
 * The carrier is no more
 */

static void test_carrier_fails(void)
{
    SimConnect c = sim_connect_default();
    SimNode *n;
    Shared *w;

    c.retry_cnt = 2;
    w = shared_new(3, 0, &c);
    n = &w->sim->node[0];
    /* The members alone would wait much longer. */
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
    /* The other end has nothing to say, and is as it was. */
    expect_state(w->end[0][1].qp, QRNIC_QPS_RTS);
    shared_free(w);
}

/* All are told once, though others have turns meanwhile. */
static void test_members_told_once(void)
{
    const QrnicQpAttr error = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    };
    Shared *w = shared_new(3, 0, NULL);
    QrnicEngine *e = w->sim->node[0].engine;
    QrnicQp *carrier = qrnic_qp_get(e, w->carrier[0]->number), *qp[3];

    for (unsigned m = 0; m < 3; m++) {
        qp[m] = qrnic_qp_get(e, w->end[m][0].qp->number);
    }
    g_assert_cmpuint(sim_modify(w->carrier[0], &error).status, ==,
                     QRNIC_ST_OK);
    g_assert_true(qrnic_carriage_failing(carrier) == qp[0]);
    g_assert_cmpint(qrnic_member_wait(e, qp[2]), ==, QRNIC_TURN_DONE);
    g_assert_true(qrnic_carriage_failing(carrier) == qp[1]);
    g_assert_true(qrnic_carriage_failing(carrier) == qp[2]);
    g_assert_null(qrnic_carriage_failing(carrier));
    /* It was not told here, and is when it has something to send. */
    send_to(w, 1, QRNIC_WQE_RDMA_WRITE, MTU);
    settle(w);
    for (unsigned m = 0; m < 3; m++) {
        expect_state(w->end[m][0].qp, QRNIC_QPS_ERR);
    }
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_MEMBERS_FAILED), ==, 3);
    shared_free(w);
}

/*
 * A member is destroyed before it was its turn to be told. Of what waits in the
 * carrier nothing is left.
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
        g_assert_cmpuint(w->sim->node[0].engine->pairs->carried_bytes, ==, 0);
        shared_free(w);
    }
}

/* Who comes to it afterwards, and has something to send, fails, too. */
static void test_carrier_has_failed(void)
{
    const QrnicQpAttr error = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    };
    Shared *w = shared_new(1, 0, NULL);
    QrnicQpAttr a = sim_attr_init();
    SimQp *late = sim_qp_new(&w->sim->node[0], 8, 8, 3, 10);

    /* To RTR before, to RTS after */
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
    /* None joins a carrier in ERR. */
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

/* What came ahead of its turn has none any more, and gives back its room. */
static void test_kept_in_error(void)
{
    const QrnicQpAttr error = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    };
    Shared *w = shared_new(1, QRNIC_QPO_SELECTIVE_REPEAT, NULL);
    const QrnicPairs *pairs = w->sim->node[1].engine->pairs;

    w->lost_psn = PSN_A;
    send_to(w, 0, QRNIC_WQE_RDMA_WRITE, 4 * MTU);
    while (!count(w, 1, QRNIC_COUNTER_HELD_PACKETS)) {
        sim_run(w->sim, w->sim->now + 10);
    }
    g_assert_cmpuint(pairs->held_bytes, >, MTU);
    g_assert_cmpuint(sim_modify(w->carrier[1], &error).status, ==,
                     QRNIC_ST_OK);
    settle(w);
    g_assert_cmpuint(pairs->held_bytes, ==, 0);
    shared_free(w);
}

/*
 * It keeps its path as long as it has members; when they have left, it forgets
 * what it has of them.
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
        g_assert_cmpuint(w->sim->node[i].engine->pairs->carried_bytes, ==, 0);
    }
    run_us(w, 100);
    sim_carrier_connect(w->carrier[0], w->carrier[1], &c);
    for (unsigned m = 0; m < 2; m++) {
        member_init(w, m, &c);
        expect_works(w, m);
    }
    shared_free(w);
}

/* What a member has sent goes on its way without it. */
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
    /* Its ACK finds nobody, and is acknowledged. */
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_RX_DROP_CARRIED), >, 0);
    expect_works(w, 1);
    shared_free(w);
}

/* The device forgets all of it, in the middle. */
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

/*
 * Bounds
 */

/* The wire takes nothing: no more waits in the carrier than it may keep. */
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
    before = count(w, 0, QRNIC_COUNTER_TX_CARRIED);
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
 * Others have all the room that there is: each carrier has one packet under
 * way, and what has come makes room for the next one.
 */
static void test_bound_of_all(void)
{
    Shared *w = shared_new(2, 0, NULL);
    QrnicPairs *p = w->sim->node[0].engine->pairs;

    p->carried_bytes += QRNIC_MAX_CARRIED;
    w->cut = true;
    for (unsigned m = 0; m < 2; m++) {
        send_to(w, m, QRNIC_WQE_RDMA_WRITE, 10 * MTU);
    }
    run_us(w, 200);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_TX_CARRIED), ==, 1);
    w->cut = false;
    settle(w);
    for (unsigned m = 0; m < 2; m++) {
        expect_cqe(w->end[m][0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        expect_same(w, m, 10 * MTU);
    }
    g_assert_cmpuint(p->carried_bytes, ==, QRNIC_MAX_CARRIED);
    shared_free(w);
}

/*
 * Commands
 */

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
    /* It is held by its members. */
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
    /* Only carriers introduce themselves. */
    rtr.mask &= ~QRNIC_QP_CARRIER;
    rtr.carrier = 0;
    rtr.options = QRNIC_QPO_INTRODUCE;
    expect_modify(q, &rtr, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_OPTIONS_OFFSET);
    rtr.mask |= QRNIC_QP_CARRIER;
    rtr.mask &= ~QRNIC_QP_OPTIONS;
    rtr.carrier = w->carrier[0]->number;
    rtr.options = 0;
    expect_modify(q, &rtr, QRNIC_ST_OK, 0);
    /* Only on the way to RTR, and only of RC */
    a = sim_attr_rts();
    a.mask |= QRNIC_QP_CARRIER;
    a.carrier = w->carrier[0]->number;
    expect_modify(q, &a, QRNIC_ST_BAD_ATTR, QRNIC_QP_CARRIER);
    /* A carrier has no rights, and none is a member. */
    a = sim_attr_init();
    expect_modify(young, &a, QRNIC_ST_BAD_ATTR, QRNIC_QP_ACCESS_FLAGS);
    sim_carrier_free(young);
    shared_free(w);
}

/* The longest headers of what is carried have to fit the port, too. */
static void test_port_mtu(void)
{
    Shared *w = shared_new(0, 0, NULL);
    SimNode *n = &w->sim->node[0];
    QrnicPortCtx port = {
        .mtu = 1024 + QRNIC_CARRIED_OVERHEAD - 1,
        .flags = QRNIC_PORTF_ADMIN_UP,
    };
    SimQp *q = sim_carrier_new(n);
    QrnicQpAttr a = sim_attr_init();

    a.mask &= ~QRNIC_QP_ACCESS_FLAGS;
    a.access = 0;
    expect_modify(q, &a, QRNIC_ST_OK, 0);
    a = sim_attr_rtr(q, w->carrier[1]);
    a.mask &= ~(QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER);
    a.max_dest_rd_atomic = a.min_rnr_timer = 0;
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

/*
 * The passive carrier learns who is at the other end
 */

/* Node 0 has the options, and is connected to node 1, which is to learn it. */
static Shared *learning_new(uint8_t options)
{
    SimConnect c = sim_connect_default();
    SimQp nobody = { 0 };
    Shared *w = carriers_new(0, NULL);
    const QrnicQpAttr reset = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };

    for (unsigned i = 0; i < 2; i++) {
        g_assert_cmpuint(sim_modify(w->carrier[i], &reset).status, ==,
                         QRNIC_ST_OK);
    }
    nobody = *w->carrier[0];
    nobody.number = 0;
    w->cut = true;
    c.options = options;
    c.only_a = true;
    sim_carrier_connect(w->carrier[0], w->carrier[1], &c);
    g_assert_cmpuint(sim_modify(w->carrier[1], &reset).status, ==,
                     QRNIC_ST_OK);
    {
        QrnicQpAttr a = sim_attr_init();

        a.mask &= ~QRNIC_QP_ACCESS_FLAGS;
        a.access = 0;
        expect_modify(w->carrier[1], &a, QRNIC_ST_OK, 0);
        a = sim_attr_rtr(w->carrier[1], &nobody);
        a.mask &= ~(QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER);
        a.max_dest_rd_atomic = a.min_rnr_timer = 0;
        a.rq_psn = c.psn_a;
        expect_modify(w->carrier[1], &a, QRNIC_ST_OK, 0);
        a = sim_attr_rts();
        a.mask &= ~(QRNIC_QP_RNR_RETRY | QRNIC_QP_MAX_RD_ATOMIC);
        a.rnr_retry = a.max_rd_atomic = 0;
        a.sq_psn = c.psn_b;
        expect_modify(w->carrier[1], &a, QRNIC_ST_OK, 0);
    }
    w->cut = false;
    member_init(w, w->members++, NULL);
    return w;
}

/* A CARRIED packet to node 1, as if its other end had this number */
static void inject_from(Shared *w, uint32_t qpn)
{
    const QrnicPathSpec spec = sim_path_to(w->carrier[1], w->carrier[0]);
    const QrnicTransport t = {
        .opcode = QRNIC_OP_CARRIED, .pkey = QRNIC_PKEY_DEFAULT,
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

    /* Who is to learn sends nothing before. */
    post(&w->end[0][1], &w->end[0][0], QRNIC_WQE_RDMA_WRITE, 0, 0, 10);
    run_us(w, 100);
    g_assert_cmpuint(w->frames[1], ==, 0);
    expect_no_cqe(w->end[0][1].qp);
    /* Nobody has the number 0. */
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

/* Who has nothing to send is known to the other end, which sends first. */
static void test_introduces(void)
{
    Shared *w = learning_new(QRNIC_QPO_INTRODUCE);

    settle(w);
    g_assert_cmpuint(sim_query(w->carrier[1]).dest_qpn, ==,
                     w->carrier[0]->number);
    g_assert_cmpuint(count(w, 0, QRNIC_COUNTER_TX_CARRIED), ==, 1);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_CARRIED), ==, 1);
    g_assert_cmpuint(count(w, 1, QRNIC_COUNTER_RX_DROP_CARRIED), ==, 0);
    post(&w->end[0][1], &w->end[0][0], QRNIC_WQE_RDMA_WRITE, 0, 0, 10);
    settle(w);
    expect_cqe(w->end[0][1].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_works(w, 0);
    shared_free(w);
}

/* It is lost, and comes again; who was reset begins with it anew. */
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
    /* Each of them knows the other, and introduces itself all the same. */
    g_assert_cmpuint(sim_query(w->carrier[0]).sq_psn, ==, c.psn_a + 1);
    g_assert_cmpuint(sim_query(w->carrier[1]).sq_psn, ==, c.psn_b + 1);
    expect_works(w, 0);
    shared_free(w);
}

/* Both ends in one device, which has no wire between them */
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
    g_test_add_func("/shared/lost-go-back", test_lost_go_back);
    g_test_add_func("/shared/not-ready", test_not_ready);
    g_test_add_func("/shared/error-of-one", test_error_of_one);
    g_test_add_func("/shared/turns", test_turns);
    g_test_add_func("/shared/woken-in-vain", test_woken_in_vain);
    g_test_add_func("/shared/carrier-fails", test_carrier_fails);
    g_test_add_func("/shared/members-told-once", test_members_told_once);
    g_test_add_func("/shared/goes-before-it-is-told",
                    test_goes_before_it_is_told);
    g_test_add_func("/shared/carrier-has-failed", test_carrier_has_failed);
    g_test_add_func("/shared/kept-in-error", test_kept_in_error);
    g_test_add_func("/shared/carrier-reset", test_carrier_reset);
    g_test_add_func("/shared/member-goes", test_member_goes);
    g_test_add_func("/shared/device-reset", test_device_reset);
    g_test_add_func("/shared/bound", test_bound);
    g_test_add_func("/shared/bound-of-all", test_bound_of_all);
    g_test_add_func("/shared/create", test_create);
    g_test_add_func("/shared/modify", test_modify);
    g_test_add_func("/shared/port-mtu", test_port_mtu);
    g_test_add_func("/shared/learns", test_learns);
    g_test_add_func("/shared/introduces", test_introduces);
    g_test_add_func("/shared/introduced-late", test_introduced_late);
    g_test_add_func("/shared/loopback", test_loopback);
    return g_test_run();
}
