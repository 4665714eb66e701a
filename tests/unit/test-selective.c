/*
 * Selective repeat: only lost packets are retransmitted, out-of-order packets
 * are buffered and executed in order, and valid and invalid SACKs
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/transport/rc/responder/responder.h"
#include "pair.h"

#define PSN_A 0x123456          /* Values of sim_connect_default() */
#define PSN_B 0xabcdef
#define MTU 1024u

/* Transmissions of node 0 to lose, and frames on the wire */
typedef struct Loss {
    uint32_t psn;               /* Relative to PSN_A */
    unsigned times;
} Loss;

typedef struct Wire {
    Loss loss[8];
    unsigned sacks, naks, acks, marked, unmarked;
    uint32_t sack_psn, sack_missing;    /* PSNs of the last SACK, relative */
    uint8_t arrived[QRNIC_SACK_BYTES];
    bool responses_lost;
    uint32_t response_psn;      /* PSN of responses to lose */
    unsigned response_times;
} Wire;

static bool tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                void *opaque)
{
    Wire *w = opaque;
    QrnicPacket p;

    g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
    *(p.t.mark ? &w->marked : &w->unmarked) += 1;
    if (p.t.opcode == QRNIC_OP_RC_SACK) {
        w->sacks++;
        w->sack_psn = p.t.psn - PSN_A;
        w->sack_missing = p.t.missing_psn - PSN_A;
        memcpy(w->arrived, p.t.arrived, sizeof(w->arrived));
    } else if (p.t.opcode == QRNIC_OP_RC_ACK) {
        *((p.t.syndrome & 0xe0) == QRNIC_AETH_ACK ? &w->acks : &w->naks) += 1;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(w->loss) && !from; i++) {
        Loss *l = &w->loss[i];

        if (l->times && p.t.psn == PSN_A + l->psn) {
            l->times--;
            return false;
        }
    }
    if (from && w->response_times && p.t.psn == w->response_psn) {
        w->response_times--;
        return false;
    }
    return !from || !w->responses_lost;
}

static SimConnect connect_with(uint8_t options)
{
    SimConnect c = sim_connect_default();

    c.options = options;
    return c;
}

static Pair *pair_with(Wire *w, const SimConnect *c)
{
    Pair *p = pair_new(5, NULL, c);

    pair_fill(p);
    p->sim->tap = tap;
    p->sim->tap_opaque = w;
    return p;
}

static Pair *selective_pair(Wire *w)
{
    const SimConnect c = connect_with(QRNIC_QPO_SELECTIVE_REPEAT);

    return pair_with(w, &c);
}

/*
 * Runs until no event is left. With buffered packets it ends after one second,
 * before they are dropped (REORDER_TIME).
 */
static void settle(Pair *p)
{
    const QrnicQps *a = p->a.qp->node->engine->qps;
    const QrnicQps *b = p->b.qp->node->engine->qps;

    if (!sim_run(p->sim, p->sim->now + 900 * SIM_MS) &&
        !a->num_reorders && !b->num_reorders) {
        g_assert_true(sim_run(p->sim, p->sim->now + 9100 * SIM_MS));
    }
}

static uint64_t counter_a(Pair *p, enum qrnic_counter c)
{
    return sim_counter(&p->sim->node[0], c);
}

static uint64_t counter_b(Pair *p, enum qrnic_counter c)
{
    return sim_counter(&p->sim->node[1], c);
}

static void expect_equal(Pair *p, uint64_t from, uint64_t to, size_t len)
{
    g_assert_cmpmem(p->a.data + from, len, p->b.data + to, len);
}

static void writes_post(Pair *p, unsigned count, uint32_t len)
{
    for (unsigned i = 0; i < count; i++) {
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, i * len, i * len, len);
    }
}

static void writes_expect(Pair *p, unsigned count, uint32_t len)
{
    for (unsigned i = 0; i < count; i++) {
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    expect_no_cqe(p->a.qp);
    expect_equal(p, 0, 0, (size_t)count * len);
}

/* Tests that only the lost ones of forty packets are retransmitted, once. */
static void test_only_lost(void)
{
    static const unsigned lost[] = { 3, 4, 17, 30 };
    Wire w = { 0 };
    Pair *p = selective_pair(&w);

    for (unsigned i = 0; i < ARRAY_SIZE(lost); i++) {
        w.loss[i] = (Loss) { lost[i], 1 };
    }
    writes_post(p, 4, 10 * MTU);
    settle(p);
    writes_expect(p, 4, 10 * MTU);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RETRANSMISSIONS), ==, 4);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_TIMEOUTS), ==, 0);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 0);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_BUFFERED_PACKETS), >=, 36 - 3);
    g_assert_cmpuint(w.naks, ==, 0);
    g_assert_cmpuint(w.sacks, >, 0);
    g_assert_cmpuint(w.unmarked, ==, 0);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_TX_SACK), ==, w.sacks);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RX_SACK), ==, w.sacks);
    pair_free(p);
}

/* Tests that a retransmission is lost too, and is detected without a timer. */
static void test_lost_again(void)
{
    Wire w = { .loss = { { 2, 4 } } };
    Pair *p = selective_pair(&w);
    int64_t start = p->sim->now;

    writes_post(p, 100, MTU);
    while (counter_a(p, QRNIC_COUNTER_RETRANSMISSIONS) < 4) {
        /*
         * A later packet is necessary to reveal the loss of a retransmission.
         */
        g_assert_cmpint(p->sim->now, <, start + SIM_MS);
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 8);
        sim_run(p->sim, p->sim->now + SIM_US);
    }
    settle(p);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_TIMEOUTS), ==, 0);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RETRANSMISSIONS), ==, 4);
    pair_free(p);
}

/*
 * Tests the loss of the very last packet. The round trip is known, so a probe
 * finds the loss; two probes, if the first is lost too. After that the timer
 * finds it.
 */
static void test_tail(void)
{
    for (unsigned times = 1; times <= 3; times++) {
        Wire w = { .loss = { { 1 + 9, times } } };
        Pair *p = selective_pair(&w);
        int64_t start;

        writes_post(p, 1, MTU);
        settle(p);
        writes_expect(p, 1, MTU);
        start = p->sim->now;
        writes_post(p, 1, 10 * MTU);
        settle(p);
        writes_expect(p, 1, 10 * MTU);
        g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_TIMEOUTS), ==, 0);
        g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_PROBES), ==, times);
        g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RETRANSMISSIONS), ==,
                         times);
        /*
         * The round trip is 2 us. The time is twice that and a deviation,
         * doubled each time.
         */
        g_assert_cmpint(p->sim->now - start, <, 100 * SIM_US);
        pair_free(p);
    }
}

/* Tests that the timer finds the loss, because the round trip is unknown. */
static void test_first_tail(void)
{
    Wire w = { .loss = { { 9, 1 } } };
    Pair *p = selective_pair(&w);

    writes_post(p, 1, 10 * MTU);
    settle(p);
    writes_expect(p, 1, 10 * MTU);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_TIMEOUTS), ==, 1);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_PROBES), ==, 0);
    pair_free(p);
}

/* Probes do not delay the error when the peer is dead. */
static void test_no_answer(void)
{
    Wire w = { 0 };
    Pair *p = selective_pair(&w);
    const int64_t timeout = 4096 << 8;
    QrnicCqe c;
    int64_t start;

    writes_post(p, 1, MTU);
    settle(p);
    writes_expect(p, 1, MTU);
    w.responses_lost = true;
    start = p->sim->now;
    writes_post(p, 1, 10 * MTU);
    settle(p);
    c = expect_status(p->a.qp, QRNIC_WC_RETRY_EXC_ERR);
    g_assert_cmpint(c.timestamp, >=, start + 8 * timeout);
    g_assert_cmpint(c.timestamp, <, start + 9 * timeout);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_TIMEOUTS), ==, 8);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_PROBES), <, 100);
    pair_free(p);
}

/* Tests the loss of the last packet of a read response, or of all packets. */
static void test_read_tail(void)
{
    for (unsigned part = 0; part < 2; part++) {
        Wire w = { 0 };
        Pair *p = selective_pair(&w);

        writes_post(p, 1, MTU);
        settle(p);
        writes_expect(p, 1, MTU);
        post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0, 0, 4 * MTU);
        if (!part) {
            w.responses_lost = true;
            sim_run(p->sim, p->sim->now + 3 * SIM_US);
            w.responses_lost = false;
        } else {
            w.response_psn = PSN_A + 1 + 3;
            w.response_times = 1;
        }
        settle(p);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
        expect_equal(p, 0, 0, 4 * MTU);
        g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_TIMEOUTS), ==, 0);
        g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_PROBES), ==, 1);
        pair_free(p);
    }
}

/*
 * Tests a response to the first of two reads that is lost four times. Later
 * responses reveal each loss, and both reads are requested again.
 */
static void test_read_lost_again(void)
{
    Wire w = { .response_psn = PSN_A + 1, .response_times = 4 };
    Pair *p = selective_pair(&w);

    for (unsigned i = 0; i < 2; i++) {
        post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, i * 4 * MTU, i * 4 * MTU,
             4 * MTU);
    }
    settle(p);
    for (unsigned i = 0; i < 2; i++) {
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    }
    expect_equal(p, 0, 0, 8 * MTU);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_TIMEOUTS), ==, 0);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_PROBES), ==, 0);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_IMPLIED_NAK), ==, 4);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RETRANSMISSIONS), ==, 8);
    pair_free(p);
}

/*
 * Tests the loss of the response to a read, and of the packet behind it. The
 * SACK of the next packet reveals both, and both are requested at once.
 */
static void test_read_and_more_lost(void)
{
    Wire w = {
        .loss = { { 1, 1 } }, .response_psn = PSN_A, .response_times = 1,
    };
    Pair *p = selective_pair(&w);

    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0, 0, MTU);
    /* The response is sent before the later packets arrive. */
    sim_run(p->sim, p->sim->now + 100);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, MTU, MTU, 2 * MTU);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_equal(p, 0, 0, 3 * MTU);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_IMPLIED_NAK), ==, 1);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RETRANSMISSIONS), ==, 2);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_TIMEOUTS), ==, 0);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_PROBES), ==, 0);
    pair_free(p);
}

/* Tests the SACK, bit by bit. */
static void test_sack_bits(void)
{
    Wire w = { .loss = { { 1, 1 }, { 4, 1 } } };
    Pair *p = selective_pair(&w);

    writes_post(p, 1, 8 * MTU);
    /*
     * The time is that of one direction only, so that the SACK is on the wire.
     */
    sim_run(p->sim, p->sim->now + SIM_US);
    g_assert_cmpuint(w.sacks, ==, 1);
    g_assert_cmpuint(w.sack_missing, ==, 1);
    /* The bits stand for the PSNs 2, 3, 5, 6 and 7, relative to 1. */
    g_assert_cmphex(w.arrived[0], ==, 0x6e);
    for (unsigned i = 1; i < sizeof(w.arrived); i++) {
        g_assert_cmphex(w.arrived[i], ==, 0);
    }
    settle(p);
    writes_expect(p, 1, 8 * MTU);
    pair_free(p);
}

/*
 * Tests that go-back-N is used, with frames of the standard only, if only one
 * side has the option.
 */
static void test_one_end(void)
{
    for (int end = 0; end < 2; end++) {
        Wire w = { .loss = { { 3, 1 } } };
        SimConnect c = connect_with(QRNIC_QPO_SELECTIVE_REPEAT);
        Pair *p;

        c.only_a = end == 0;
        c.only_b = end == 1;
        p = pair_with(&w, &c);
        writes_post(p, 2, 10 * MTU);
        settle(p);
        writes_expect(p, 2, 10 * MTU);
        g_assert_cmpuint(w.sacks, ==, 0);
        g_assert_cmpuint(w.naks, ==, 1);
        g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RETRANSMISSIONS), ==, 17);
        g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 0);
        g_assert_cmpuint(sim_query(p->a.qp).options_in_force, ==, 0);
        g_assert_cmpuint(sim_query(p->b.qp).options_in_force, ==, 0);
        g_assert_cmpuint(w.marked, >, 0);
        pair_free(p);
    }
}

static void test_in_force(void)
{
    Wire w = { 0 };
    Pair *p = selective_pair(&w);

    g_assert_cmpuint(sim_query(p->a.qp).options, ==,
                     QRNIC_QPO_SELECTIVE_REPEAT);
    g_assert_cmpuint(sim_query(p->a.qp).options_in_force, ==, 0);
    writes_post(p, 1, 8);
    settle(p);
    g_assert_cmpuint(sim_query(p->a.qp).options_in_force, ==,
                     QRNIC_QPO_SELECTIVE_REPEAT);
    g_assert_cmpuint(sim_query(p->b.qp).options_in_force, ==,
                     QRNIC_QPO_SELECTIVE_REPEAT);
    pair_free(p);
}

/*
 * Options are valid on the move to RTR, for devices with the capability and for
 * RC.
 */
static void test_modify(void)
{
    const SimConnect none = { 0 };
    Pair *p = pair_new(1, NULL, &none);
    QrnicQpAttr a = sim_attr_init();
    SimQp *uc = sim_uc_new(p->a.qp->node, NULL);
    QrnicResult r;

    sim_modify(p->a.qp, &a);
    a = sim_attr_rtr(p->a.qp, p->b.qp);
    a.options = QRNIC_QPO_SELECTIVE_REPEAT;
    r = sim_modify(p->a.qp, &a);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(r.syndrome, ==, QRNIC_QP_ATTR_OPTIONS_OFFSET);
    a.mask |= QRNIC_QP_OPTIONS;
    a.options_in_force = 1;
    r = sim_modify(p->a.qp, &a);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(r.syndrome, ==, QRNIC_QP_ATTR_OPTIONS_IN_FORCE_OFFSET);
    a.options_in_force = 0;
    a.options = 0x80;
    r = sim_modify(p->a.qp, &a);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    a.options = QRNIC_QPO_SELECTIVE_REPEAT;
    r = sim_modify(p->a.qp, &a);
    g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
    a = sim_attr_rts();
    a.mask |= QRNIC_QP_OPTIONS;
    r = sim_modify(p->a.qp, &a);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_ATTR);
    g_assert_cmphex(r.syndrome, ==, QRNIC_QP_OPTIONS);
    a = sim_attr_init();
    a.access = QRNIC_ACCESS_REMOTE_WRITE;
    sim_modify(uc, &a);
    a = sim_attr_rtr(uc, p->b.qp);
    a.mask &= ~(QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER);
    a.max_dest_rd_atomic = a.min_rnr_timer = 0;
    a.mask |= QRNIC_QP_OPTIONS;
    r = sim_modify(uc, &a);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_ATTR);
    sim_qp_free(uc);
    pair_free(p);
}

/* Tests a send that finds no receive WQE while later packets are buffered. */
static void test_not_ready(void)
{
    Wire w = { .loss = { { 0, 1 } } };
    Pair *p = selective_pair(&w);

    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, MTU);
    for (unsigned i = 1; i < 5; i++) {
        post(&p->a, &p->b, QRNIC_WQE_SEND, i * MTU, 0, MTU);
    }
    sim_run(p->sim, p->sim->now + 100 * SIM_US);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_TX_RNR_NAK), ==, 1);
    for (unsigned i = 1; i < 5; i++) {
        post_recv(&p->b, i * MTU, MTU);
    }
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    for (unsigned i = 1; i < 5; i++) {
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    }
    expect_equal(p, 0, 0, 5 * MTU);
    pair_free(p);
}

/*
 * Tests that the key of a buffered packet is checked when its PSN is expected,
 * because the key may change while the packet is buffered.
 */
static void test_key_gone(void)
{
    Wire w = { .loss = { { 0, 1 } } };
    Pair *p = selective_pair(&w);
    SimNode *b = p->b.qp->node;
    PairEnd other = p->b;

    other.key = sim_mkey(b, p->b.addr, PAIR_BYTES, ACCESS_ALL);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, MTU);
    post(&p->a, &other, QRNIC_WQE_RDMA_WRITE, MTU, MTU, MTU);
    sim_run(p->sim, p->sim->now + SIM_US);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 1);
    g_assert_cmpint(qrnic_mkey_destroy(b->engine, other.key >> 8).status, ==,
                    QRNIC_ST_OK);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_status(p->a.qp, QRNIC_WC_REM_ACCESS_ERR);
    expect_equal(p, 0, 0, MTU);
    expect_state(p->b.qp, QRNIC_QPS_ERR);
    pair_free(p);
}

/* Writes to one address: the last one remains, although it arrived first. */
static void test_order(void)
{
    Wire w = { .loss = { { 0, 1 } } };
    Pair *p = selective_pair(&w);

    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, MTU);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, MTU, 0, MTU);
    settle(p);
    expect_equal(p, MTU, 0, MTU);
    pair_free(p);
}

/* Crafted requests */

static QrnicTransport crafted(PairEnd *to, uint8_t opcode, uint32_t psn)
{
    return (QrnicTransport) {
        .opcode = opcode, .pkey = 0xffff, .dest_qpn = to->qp->number,
        .psn = psn & QRNIC_PSN_MASK, .mark = QRNIC_MARK_SELECTIVE,
    };
}

static QrnicTransport crafted_write(Pair *p, uint32_t ahead, uint64_t offset)
{
    QrnicTransport t = crafted(&p->b, QRNIC_OP_RC_WRITE_ONLY, PSN_A + ahead);

    t.va = p->b.addr + offset;
    t.rkey = p->b.key;
    t.dma_len = MTU;
    return t;
}

/*
 * Tests that a packet with the port's maximum, longer than any path MTU, is not
 * buffered.
 */
static void test_too_long(void)
{
    SimConnect c = sim_connect_default();
    QrnicTransport t;
    Pair *p;

    c.options = QRNIC_QPO_SELECTIVE_REPEAT;
    p = pair_new(1, NULL, &c);
    t = crafted(&p->b, QRNIC_OP_RC_SEND_ONLY, PSN_A + 1);
    pair_inject(p, &p->b, &t, NULL, 8000);
    sim_run(p->sim, p->sim->now + SIM_MS);
    g_assert_cmpuint(sim_counter(&p->sim->node[1],
                                 QRNIC_COUNTER_BUFFERED_PACKETS), ==, 0);
    expect_state(p->b.qp, QRNIC_QPS_RTS);
    pair_free(p);
}

/*
 * Tests that the window has 256 PSNs: the last of them is buffered, the next is
 * not.
 */
static void test_window(void)
{
    Wire w = { 0 };
    Pair *p = selective_pair(&w);
    QrnicTransport t = crafted_write(p, QRNIC_SELECTIVE_WINDOW - 1, 0);

    pair_inject(p, &p->b, &t, NULL, MTU);
    settle(p);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 1);
    g_assert_cmpuint(w.sacks, ==, 1);
    g_assert_cmphex(w.arrived[QRNIC_SACK_BYTES - 1], ==, 0x01);
    t = crafted_write(p, QRNIC_SELECTIVE_WINDOW, 0);
    pair_inject(p, &p->b, &t, NULL, MTU);
    settle(p);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 1);
    g_assert_cmpuint(w.naks, ==, 1);
    pair_free(p);
}

/*
 * Tests that a repeated out-of-order packet is buffered once; the first copy is
 * executed. A copy that differs, in headers or in data, is counted as a
 * conflict.
 */
static void test_ahead_twice(void)
{
    Wire w = { 0 };
    Pair *p = selective_pair(&w);
    QrnicTransport t = crafted_write(p, 1, 0);
    uint8_t expect[MTU];

    memset(expect, 0x5a, sizeof(expect));
    pair_inject(p, &p->b, &t, NULL, MTU);
    pair_inject(p, &p->b, &t, NULL, MTU);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_BUFFERED_CONFLICTS), ==, 0);
    pair_inject(p, &p->b, &t, p->a.data, MTU);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_BUFFERED_CONFLICTS), ==, 1);
    t.va += MTU;
    pair_inject(p, &p->b, &t, NULL, MTU);
    settle(p);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_BUFFERED_CONFLICTS), ==, 2);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 1);
    t = crafted_write(p, 0, 4 * MTU);
    pair_inject(p, &p->b, &t, NULL, MTU);
    settle(p);
    g_assert_cmpmem(p->b.data, MTU, expect, MTU);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_WRITE), ==, 2);
    g_assert_cmpuint(sim_query(p->b.qp).rq_psn, ==, PSN_A + 2);
    pair_free(p);
}

/*
 * Tests that packets without the mark are not buffered, although this side has
 * the option, because their sender does not understand SACKs.
 */
static void test_unmarked(void)
{
    Wire w = { 0 };
    Pair *p = selective_pair(&w);
    QrnicTransport t = crafted_write(p, 1, 0);

    t.mark = 0;
    pair_inject(p, &p->b, &t, NULL, MTU);
    settle(p);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 0);
    g_assert_cmpuint(w.naks, ==, 1);
    g_assert_cmpuint(w.sacks, ==, 0);
    pair_free(p);
}

/* Tests that unknown marks are ignored. */
static void test_other_marks(void)
{
    Wire w = { 0 };
    Pair *p = selective_pair(&w);
    QrnicTransport t = crafted_write(p, 0, 0);

    t.mark = 0x78;
    pair_inject(p, &p->b, &t, NULL, MTU);
    settle(p);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_WRITE), ==, 1);
    g_assert_cmpuint(sim_query(p->b.qp).options_in_force, ==, 0);
    pair_free(p);
}

/*
 * Tests that a packet with a PSN inside a read is dropped when the read is
 * executed.
 */
static void test_inside_of_read(void)
{
    Wire w = { 0 };
    Pair *p = selective_pair(&w);
    QrnicTransport t = crafted_write(p, 2, 0);
    QrnicTransport read = crafted(&p->b, QRNIC_OP_RC_READ_REQUEST, PSN_A);

    pair_inject(p, &p->b, &t, NULL, MTU);
    t = crafted_write(p, 4, 0);
    pair_inject(p, &p->b, &t, NULL, MTU);
    read.va = p->b.addr;
    read.rkey = p->b.key;
    read.dma_len = 4 * MTU;
    pair_inject(p, &p->b, &read, NULL, 0);
    settle(p);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 2);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_WRITE), ==, 1);
    g_assert_cmpuint(sim_query(p->b.qp).rq_psn, ==, PSN_A + 5);
    pair_free(p);
}

/*
 * Tests that nothing is executed behind a rejected request, because the
 * connection has ended.
 */
static void test_behind_refusal(void)
{
    Wire w = { 0 };
    Pair *p = selective_pair(&w);
    QrnicTransport t = crafted_write(p, 1, 0);

    pair_inject(p, &p->b, &t, NULL, MTU);
    t = crafted_write(p, 0, 0);
    t.rkey ^= 0x100000;
    pair_inject(p, &p->b, &t, NULL, MTU);
    settle(p);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_WRITE), ==, 0);
    expect_state(p->b.qp, QRNIC_QPS_ERR);
    pair_free(p);
}

/* Creates a responder that expects PSN 0. */
static void receiver_start(SimQp *q, SimQp *peer)
{
    QrnicQpAttr a = sim_attr_init();

    g_assert_cmpint(sim_modify(q, &a).status, ==, QRNIC_ST_OK);
    a = sim_attr_rtr(q, peer);
    a.mask |= QRNIC_QP_OPTIONS;
    a.options = QRNIC_QPO_SELECTIVE_REPEAT;
    a.path_mtu = QRNIC_MTU_4096;
    g_assert_cmpint(sim_modify(q, &a).status, ==, QRNIC_ST_OK);
}

/*
 * Tests that all connections together buffer at most MAX_REORDER, and free it.
 */
static void test_room(void)
{
    enum {
        LONG = 4096,
        QPS = QRNIC_MAX_REORDER / (QRNIC_SELECTIVE_WINDOW - 1) / LONG + 1,
    };
    const SimOptions o = { .max_qp = 512, .max_cq = 512 };
    Pair *p = pair_new(5, &o, NULL);
    const QrnicQps *qps = p->b.qp->node->engine->qps;
    size_t held[2];

    for (unsigned round = 0; round < 2; round++) {
        SimQp *q[QPS];

        g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_DROP_REORDER) > 0, ==,
                         round);
        for (unsigned n = 0; n < QPS; n++) {
            PairEnd to = { .qp = sim_qp_new(p->b.qp->node, 4, 4, 0, 4) };

            q[n] = to.qp;
            receiver_start(to.qp, p->a.qp);
            for (uint32_t i = 1; i < QRNIC_SELECTIVE_WINDOW; i++) {
                QrnicTransport t = crafted_write(p, i, 0);

                t.dest_qpn = to.qp->number;
                t.psn = i;
                pair_inject(p, &to, &t, NULL, LONG);
            }
        }
        held[round] = qps->buffered_bytes;
        g_assert_cmpuint(held[round], <=, QRNIC_MAX_REORDER);
        g_assert_cmpuint(held[round], >, QRNIC_MAX_REORDER / 10 * 9);
        for (unsigned n = 0; n < QPS; n++) {
            sim_qp_free(q[n]);
        }
    }
    g_assert_cmpuint(held[0], ==, held[1]);
    g_assert_cmpuint(qps->buffered_bytes, ==, 0);
    g_assert_cmpuint(qps->num_reorders, ==, 0);
    pair_free(p);
}

static void flood(Pair *p, SimQp *q, uint32_t from)
{
    PairEnd to = { .qp = q };

    for (uint32_t i = from; i < QRNIC_SELECTIVE_WINDOW; i++) {
        QrnicTransport t = crafted_write(p, i, 0);

        t.dest_qpn = q->number;
        t.psn = i;
        pair_inject(p, &to, &t, NULL, 4096);
    }
}

/*
 * Tests a peer that fills the buffers with one connection after the other. A
 * connection of another peer still finds its share, and keeps it while the
 * flood continues.
 */
static void test_share(void)
{
    enum { FLOODED = 100, SHARE = QRNIC_MAX_REORDER / 2 / (FLOODED + 1) };
    const SimOptions o = { .max_qp = 512, .max_cq = 512 };
    Pair *p = pair_new(5, &o, NULL);
    QrnicEngine *e = p->b.qp->node->engine;
    SimQp *q[FLOODED], *honest;
    const QrnicReorder *hold;

    for (unsigned n = 0; n < FLOODED; n++) {
        q[n] = sim_qp_new(p->b.qp->node, 4, 4, 0, 4);
        receiver_start(q[n], p->a.qp);
        flood(p, q[n], 1);
    }
    honest = sim_qp_new(p->b.qp->node, 4, 4, 0, 4);
    receiver_start(honest, p->a.qp);
    flood(p, honest, QRNIC_SELECTIVE_WINDOW - SHARE / 2 / 4096);
    hold = qrnic_qp_get(e, honest->number)->responder->reorder;
    g_assert_nonnull(hold);
    g_assert_cmpuint(hold->count, ==, SHARE / 2 / 4096);
    for (unsigned n = 0; n < FLOODED; n++) {
        flood(p, q[n], 1);
    }
    hold = qrnic_qp_get(e, honest->number)->responder->reorder;
    g_assert_nonnull(hold);
    g_assert_cmpuint(hold->count, ==, SHARE / 2 / 4096);
    g_assert_cmpuint(e->qps->buffered_bytes, <=, QRNIC_MAX_REORDER);
    pair_free(p);
}

/*
 * Tests that packets are dropped after REORDER_TIME if the missing PSN never
 * arrives.
 */
static void test_age(void)
{
    const SimOptions o = { .max_qp = 512, .max_cq = 512 };
    Pair *p = pair_new(5, &o, NULL);
    QrnicEngine *e = p->b.qp->node->engine;
    SimQp *q = sim_qp_new(p->b.qp->node, 4, 4, 0, 4);

    receiver_start(q, p->a.qp);
    flood(p, q, 200);
    sim_run(p->sim, p->sim->now + (QRNIC_REORDER_TIME - 1) * SIM_MS);
    g_assert_cmpuint(e->qps->num_reorders, ==, 1);
    /* A further packet out of order is no progress. */
    flood(p, q, 199);
    sim_run(p->sim, p->sim->now + 2 * SIM_MS);
    g_assert_cmpuint(e->qps->num_reorders, ==, 0);
    g_assert_cmpuint(e->qps->buffered_bytes, ==, 0);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_DROP_REORDER), ==,
                     QRNIC_SELECTIVE_WINDOW - 199);
    pair_free(p);
}

/* Tests that ERR frees the buffered packets for other connections. */
static void test_kept_in_error(void)
{
    const QrnicQpAttr error = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    };
    Wire w = { 0 };
    Pair *p = selective_pair(&w);
    const QrnicQps *qps = p->b.qp->node->engine->qps;
    const QrnicTransport t = crafted_write(p, 3, 0);

    pair_inject(p, &p->b, &t, NULL, MTU);
    g_assert_cmpuint(qps->buffered_bytes, >, MTU);
    g_assert_cmpuint(sim_modify(p->b.qp, &error).status, ==, QRNIC_ST_OK);
    settle(p);
    g_assert_cmpuint(qps->buffered_bytes, ==, 0);
    pair_free(p);
}

/* Tests a device that is removed, as by an unplug, with buffered packets. */
static void test_kept_at_end(void)
{
    Wire w = { 0 };
    Pair *p = selective_pair(&w);
    const QrnicTransport t = crafted_write(p, 3, 0);

    pair_inject(p, &p->b, &t, NULL, MTU);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 1);
    sim_free(p->sim);
    g_free(p->a.qp);
    g_free(p->b.qp);
    g_free(p);
}

/* Crafted SACKs */

typedef struct Sack {
    const char *name;
    /* Relative to PSN_A; PSNs 0 to 9 are outstanding */
    int32_t psn, missing;
    uint8_t syndrome;
    uint8_t arrived[2];
    /* Result */
    bool dropped;               /* Counted in rx_drop_psn */
    uint32_t again;             /* Retransmitted packets */
    unsigned completed;         /* Completed writes of two packets */
} Sack;

static const Sack sacks[] = {
    { "acknowledges-what-was-not-sent", 10, 11, 0x1f, { 0 }, true, 0, 0 },
    { "misses-what-was-not-sent", -1, 10, 0x1f, { 0x40 }, true, 0, 0 },
    { "misses-what-is-acknowledged", 5, 3, 0x1f, { 0x7f }, true, 0, 0 },
    { "misses-the-acknowledged", 5, 5, 0x1f, { 0x7f }, true, 0, 0 },
    { "far-ahead", 0x500000, 0x500001, 0x1f, { 0x7f }, true, 0, 0 },
    { "long-ago", -100, -99, 0x1f, { 0x7f }, true, 0, 0 },
    { "is-no-ack", 1, 2, 0x60, { 0x40 }, true, 0, 0 },
    { "is-rnr", 1, 2, 0x21, { 0x40 }, true, 0, 0 },
    { "reserved-syndrome", 1, 2, 0xe0, { 0x40 }, true, 0, 0 },
    { "nothing-arrived", -1, 0, 0x1f, { 0 }, false, 0, 0 },
    { "oldest-missing", -1, 0, 0x1f, { 0x7f, 0xc0 }, false, 1, 0 },
    { "missing-has-arrived", -1, 0, 0x1f, { 0xff, 0xc0 }, false, 1, 0 },
    { "all-and-more-arrived", -1, 0, 0x1f, { 0xff, 0xff }, false, 1, 0 },
    { "more-than-was-sent", -1, 0, 0x1f, { 0x00, 0x3f }, false, 0, 0 },
    { "behind-the-acknowledged", 3, 6, 0x1f, { 0x20 }, false, 2, 2 },
    { "every-other", -1, 0, 0x1f, { 0x55, 0x40 }, false, 5, 0 },
};

/* Sends the SACK while ten packets are outstanding. */
static void test_sack(gconstpointer opaque)
{
    const Sack *k = opaque;
    uint8_t arrived[QRNIC_SACK_BYTES] = { k->arrived[0], k->arrived[1] };
    Wire w = { .responses_lost = true };
    Pair *p = selective_pair(&w);
    QrnicTransport t = crafted(&p->a, QRNIC_OP_RC_SACK, PSN_A + k->psn);
    unsigned completed = 0;
    QrnicCqe c;

    writes_post(p, 5, 2 * MTU);
    sim_run(p->sim, p->sim->now + 10 * SIM_US);
    t.syndrome = k->syndrome;
    t.missing_psn = (PSN_A + k->missing) & QRNIC_PSN_MASK;
    t.arrived = arrived;
    pair_inject(p, &p->a, &t, NULL, 0);
    sim_run(p->sim, p->sim->now + 10 * SIM_US);
    while (sim_poll(p->a.qp, &c)) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
        completed++;
    }
    g_assert_cmpuint(completed, ==, k->completed);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RETRANSMISSIONS), ==, k->again);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RX_DROP_PSN), ==, k->dropped);
    /* The connection recovers. */
    w.responses_lost = false;
    settle(p);
    while (sim_poll(p->a.qp, &c)) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
        completed++;
    }
    g_assert_cmpuint(completed, ==, 5);
    expect_equal(p, 0, 0, 10 * MTU);
    pair_free(p);
}

static void sack(Pair *p, uint16_t arrived, uint32_t latest, uint8_t times)
{
    uint8_t bytes[QRNIC_SACK_BYTES] = { arrived >> 8, arrived };
    QrnicTransport t = crafted(&p->a, QRNIC_OP_RC_SACK, PSN_A - 1);

    t.syndrome = 0x1f;
    t.missing_psn = PSN_A;
    t.arrived = bytes;
    t.latest_psn = PSN_A + latest;
    t.latest_transmission = times;
    pair_inject(p, &p->a, &t, NULL, 0);
    sim_run(p->sim, p->sim->now + 100 * SIM_US);
}

/*
 * Tests ten packets, of which the first and the third are retransmitted. The
 * third arrives twice, late: its first transmission proves nothing about the
 * retransmissions, its second does.
 */
static void test_sack_names(void)
{
    static const struct {
        uint32_t latest;
        uint8_t times;
        unsigned again;
    } step[] = {
        { 2, 0, 0 }, { 9, 0, 0 }, { 0, 0, 0 }, { 0, 1, 0 }, { 2, 2, 0 },
        { 2, 7, 0 }, { 10, 0, 0 }, { -1, 0, 0 }, { 2, 1, 1 }, { 2, 1, 1 },
        { 0, 2, 1 },
    };
    Wire w = { .responses_lost = true };
    Pair *p = selective_pair(&w);

    writes_post(p, 5, 2 * MTU);
    sim_run(p->sim, p->sim->now + 10 * SIM_US);
    sack(p, 0x5fc0, 9, 0);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RETRANSMISSIONS), ==, 2);
    for (unsigned i = 0; i < ARRAY_SIZE(step); i++) {
        sack(p, 0x7fc0, step[i].latest, step[i].times);
        g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RETRANSMISSIONS), ==,
                         2 + step[i].again);
    }
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_TIMEOUTS), ==, 0);
    pair_free(p);
}

/* Tests that a requester without the option drops a SACK. */
static void test_sack_unasked(void)
{
    static const uint8_t arrived[QRNIC_SACK_BYTES] = { 0x40 };
    Wire w = { .responses_lost = true };
    const SimConnect none = connect_with(0);
    Pair *p = pair_with(&w, &none);
    QrnicTransport t = crafted(&p->a, QRNIC_OP_RC_SACK, PSN_A + 1);

    writes_post(p, 5, 2 * MTU);
    sim_run(p->sim, p->sim->now + 10 * SIM_US);
    t.missing_psn = PSN_A + 2;
    t.arrived = arrived;
    pair_inject(p, &p->a, &t, NULL, 0);
    sim_run(p->sim, p->sim->now + 10 * SIM_US);
    expect_no_cqe(p->a.qp);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RX_DROP_PSN), ==, 1);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RX_SACK), ==, 0);
    pair_free(p);
}

/*
 * Tests an atomic that needs another response, behind a SACK. The SACK
 * acknowledges the packets before the atomic, but not the atomic itself.
 */
static void test_sack_before_atomic(void)
{
    Wire w = { 0 };
    Pair *p = selective_pair(&w);
    QrnicTransport atomic = crafted(&p->b, QRNIC_OP_RC_FETCH_ADD, PSN_A);
    QrnicTransport t = crafted_write(p, 2, 4096);

    atomic.va = p->b.addr;
    atomic.rkey = p->b.key;
    stq_le_p(p->b.data, PSN_A + 10);
    pair_inject(p, &p->b, &atomic, NULL, 0);
    settle(p);
    pair_inject(p, &p->b, &t, NULL, MTU);
    pair_inject(p, &p->b, &atomic, NULL, 0);
    settle(p);
    g_assert_cmpuint(w.sacks, ==, 1);
    g_assert_cmpuint(w.sack_psn, ==, UINT32_MAX);
    g_assert_cmpuint(w.sack_missing, ==, 1);
    pair_free(p);
}

/*
 * Tests that a repeated SACK without progress keeps the connection as long as
 * silence would, because its sender may be slow.
 */
static void test_sack_endless(void)
{
    static const uint8_t arrived[QRNIC_SACK_BYTES] = { 0x7f, 0xff };
    const int64_t timeout = 4096 << 8;
    Wire w = { .responses_lost = true };
    Pair *p = selective_pair(&w);
    int64_t start = p->sim->now;

    writes_post(p, 8, 2 * MTU);
    while (sim_query(p->a.qp).state != QRNIC_QPS_ERR) {
        QrnicTransport t = crafted(&p->a, QRNIC_OP_RC_SACK, PSN_A - 1);

        sim_run(p->sim, p->sim->now + 20 * SIM_US);
        t.syndrome = 0x1f;
        t.missing_psn = PSN_A;
        t.arrived = arrived;
        pair_inject(p, &p->a, &t, NULL, 0);
        g_assert_cmpint(p->sim->now, <, start + 9 * timeout);
    }
    g_assert_cmpint(p->sim->now, >=, start + 7 * timeout);
    g_assert_cmpuint(counter_a(p, QRNIC_COUNTER_RX_SACK), >, 100);
    expect_status(p->a.qp, QRNIC_WC_RETRY_EXC_ERR);
    pair_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/selective/only-lost", test_only_lost);
    g_test_add_func("/selective/lost-again", test_lost_again);
    g_test_add_func("/selective/tail", test_tail);
    g_test_add_func("/selective/first-tail", test_first_tail);
    g_test_add_func("/selective/no-answer", test_no_answer);
    g_test_add_func("/selective/read-tail", test_read_tail);
    g_test_add_func("/selective/read-lost-again", test_read_lost_again);
    g_test_add_func("/selective/read-and-more-lost", test_read_and_more_lost);
    g_test_add_func("/selective/sack-bits", test_sack_bits);
    g_test_add_func("/selective/one-end", test_one_end);
    g_test_add_func("/selective/in-force", test_in_force);
    g_test_add_func("/selective/modify", test_modify);
    g_test_add_func("/selective/not-ready", test_not_ready);
    g_test_add_func("/selective/key-gone", test_key_gone);
    g_test_add_func("/selective/order", test_order);
    g_test_add_func("/selective/too-long", test_too_long);
    g_test_add_func("/selective/window", test_window);
    g_test_add_func("/selective/ahead-twice", test_ahead_twice);
    g_test_add_func("/selective/unmarked", test_unmarked);
    g_test_add_func("/selective/other-marks", test_other_marks);
    g_test_add_func("/selective/inside-of-read", test_inside_of_read);
    g_test_add_func("/selective/behind-refusal", test_behind_refusal);
    g_test_add_func("/selective/room", test_room);
    g_test_add_func("/selective/share", test_share);
    g_test_add_func("/selective/age", test_age);
    g_test_add_func("/selective/kept-in-error", test_kept_in_error);
    g_test_add_func("/selective/kept-at-end", test_kept_at_end);
    for (unsigned i = 0; i < ARRAY_SIZE(sacks); i++) {
        g_autofree char *path = g_strdup_printf("/selective/sack/%s",
                                                sacks[i].name);

        g_test_add_data_func(path, &sacks[i], test_sack);
    }
    g_test_add_func("/selective/sack/names", test_sack_names);
    g_test_add_func("/selective/sack/unasked", test_sack_unasked);
    g_test_add_func("/selective/sack/before-atomic", test_sack_before_atomic);
    g_test_add_func("/selective/sack/endless", test_sack_endless);
    return g_test_run();
}
