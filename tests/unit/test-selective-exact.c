/*
 * Selective repeat and adaptive routing, packet by packet: retransmissions,
 * times of probes, and the order of responses
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/transport/rc/requester/requester.h"
#include "engine/transport/rc/responder/responder.h"
#include "pair.h"

#define PSN_A 0x123456          /* Values of sim_connect_default() */
#define MTU 1024u
#define GAP_NS (QRNIC_ADAPTIVE_GAP_TIME * SIM_US)
#define ALONE (QRNIC_MARK_PLACES | QRNIC_MARK_ADAPTIVE)

typedef struct Seen {
    QrnicTransport t;
    int64_t time;
} Seen;

/* Packets of both sides, and losses of the wire */
typedef struct Wire {
    Seen seen[2][1000];
    unsigned count[2];
    struct {
        uint8_t from, times;
        uint32_t psn;           /* Relative to PSN_A */
    } loss[4];
    bool silent;                /* All packets of node 1 are lost */
} Wire;

static bool tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                void *opaque)
{
    Wire *w = opaque;
    QrnicPacket p;

    g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
    g_assert_cmpuint(w->count[from], <, ARRAY_SIZE(w->seen[0]));
    w->seen[from][w->count[from]++] = (Seen) { .t = p.t, .time = s->now };
    for (unsigned i = 0; i < ARRAY_SIZE(w->loss); i++) {
        if (w->loss[i].times && w->loss[i].from == from &&
            p.t.psn == PSN_A + w->loss[i].psn) {
            w->loss[i].times--;
            return false;
        }
    }
    return !from || !w->silent;
}

static Pair *pair_with(Wire *w, uint8_t options, uint8_t mtu)
{
    SimConnect c = sim_connect_default();
    Pair *p;

    c.options = options;
    c.path_mtu = mtu;
    p = pair_new(5, NULL, &c);
    pair_fill(p);
    p->sim->tap = tap;
    p->sim->tap_opaque = w;
    return p;
}

static Pair *selective(Wire *w)
{
    return pair_with(w, QRNIC_QPO_SELECTIVE_REPEAT, QRNIC_MTU_1024);
}

static Pair *adaptive(Wire *w)
{
    return pair_with(w, QRNIC_QPO_ADAPTIVE_ROUTING, QRNIC_MTU_1024);
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

static void pass(Pair *p, int64_t ns)
{
    sim_run(p->sim, p->sim->now + ns);
}

static uint64_t count_a(Pair *p, enum qrnic_counter c)
{
    return sim_counter(&p->sim->node[0], c);
}

static uint64_t count_b(Pair *p, enum qrnic_counter c)
{
    return sim_counter(&p->sim->node[1], c);
}

static void post_write(Pair *p, uint32_t packets)
{
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, packets * MTU);
}

static void post_read(Pair *p, uint32_t packets)
{
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0, 0, packets * MTU);
}

static void completed(Pair *p, unsigned count)
{
    while (count--) {
        expect_status(p->a.qp, QRNIC_WC_SUCCESS);
    }
    expect_no_cqe(p->a.qp);
}

static void expect_counts(Pair *p, unsigned again, unsigned probes,
                          unsigned timeouts)
{
    g_assert_cmpuint(count_a(p, QRNIC_COUNTER_RETRANSMISSIONS), ==, again);
    g_assert_cmpuint(count_a(p, QRNIC_COUNTER_PROBES), ==, probes);
    g_assert_cmpuint(count_a(p, QRNIC_COUNTER_TIMEOUTS), ==, timeouts);
}

static QrnicTransport to_b(Pair *p, uint8_t opcode, uint32_t psn, uint8_t mark)
{
    return (QrnicTransport) {
        .opcode = opcode, .pkey = 0xffff, .dest_qpn = p->b.qp->number,
        .psn = PSN_A + psn, .mark = mark, .ack_req = true,
        .va = p->b.addr, .rkey = p->b.key, .dma_len = MTU,
    };
}

static void write_inject(Pair *p, uint32_t psn, uint8_t mark, uint8_t byte)
{
    const QrnicTransport t = to_b(p, QRNIC_OP_RC_WRITE_ONLY, psn, mark);
    uint8_t data[MTU];

    memset(data, byte, sizeof(data));
    pair_inject(p, &p->b, &t, data, MTU);
}

/* Makes node 1 acknowledge a write, and then blocks its wire for a time. */
static void block(Pair *p, Wire *w, uint32_t psn, uint8_t mark, int64_t ns)
{
    p->sim->wire_room = 1;
    p->sim->wire_pause = ns;
    write_inject(p, psn, mark, 0);
    pass(p, 100);
    p->sim->wire_room = 0;
    g_assert_cmpuint(w->count[1], ==, 1);
    w->count[1] = 0;
}

/* Probes */

/*
 * Returns the time from the last packet of a write, which is lost, to the
 * probe.
 */
static int64_t probe_time(Pair *p, Wire *w)
{
    uint64_t probes = count_a(p, QRNIC_COUNTER_PROBES);
    int64_t start;

    w->count[0] = w->count[1] = 0;
    w->loss[0].from = 0;
    w->loss[0].psn = sim_query(p->a.qp).sq_psn - PSN_A;
    w->loss[0].times = 1;
    start = p->sim->now;
    post_write(p, 1);
    settle(p);
    completed(p, 1);
    g_assert_cmpuint(count_a(p, QRNIC_COUNTER_PROBES), ==, probes + 1);
    g_assert_cmpuint(w->count[0], ==, 2);
    return w->seen[0][1].time - start;
}

/*
 * Tests the time of the first probe. The round trip takes 2 us, and the
 * deviation of the first sample is half of that.
 */
static void test_first_probe(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    post_write(p, 1);
    settle(p);
    completed(p, 1);
    g_assert_cmpint(probe_time(p, &w), ==, 2000 + 4 * 1000);
    pair_free(p);
}

/*
 * Measures a constant round trip, so that the probe is due after twice the
 * round trip.
 */
static void steady(Pair *p)
{
    for (unsigned i = 0; i < 40; i++) {
        post_write(p, 1);
        settle(p);
        completed(p, 1);
    }
}

static void test_steady_probe(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    steady(p);
    g_assert_cmpint(probe_time(p, &w), ==, 4000);
    g_assert_cmpint(probe_time(p, &w), ==, 4000);
    pair_free(p);
}

/*
 * Tests that a retransmitted packet is no sample of the round trip, because the
 * ACK can belong to either transmission.
 */
static void test_probe_behind_loss(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    steady(p);
    w.count[0] = w.count[1] = 0;
    w.loss[0].psn = 40 + 3;
    w.loss[0].times = 2;
    post_write(p, 10);
    settle(p);
    completed(p, 1);
    g_assert_cmpint(probe_time(p, &w), ==, 4000);
    pair_free(p);
}

/*
 * Tests that a packet without AckReq is no sample of the round trip, because
 * its ACK comes with others.
 */
static void test_probe_behind_slow_wire(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    steady(p);
    w.count[0] = w.count[1] = 0;
    p->sim->wire_room = 1;
    p->sim->wire_pause = 300;
    post_write(p, 8);
    settle(p);
    completed(p, 1);
    expect_counts(p, 0, 0, 0);
    p->sim->wire_room = 0;
    g_assert_cmpint(probe_time(p, &w), ==, 4000);
    pair_free(p);
}

/* Tests that an ACK of an earlier packet does not end a measurement. */
static void test_probe_behind_many(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    steady(p);
    post_write(p, 1);           /* Measured, and acknowledged at 2 us */
    pass(p, SIM_US);
    post_write(p, 1);           /* Not measured */
    pass(p, 1500);
    post_write(p, 1);           /* Measured */
    settle(p);
    completed(p, 3);
    g_assert_cmpint(probe_time(p, &w), ==, 4000);
    pair_free(p);
}

/*
 * Tests that the next probe is as early as the first after two probes are lost
 * too.
 */
static void test_probes_begin_anew(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    steady(p);
    w.count[0] = w.count[1] = 0;
    w.loss[1].psn = 40;
    w.loss[1].times = 3;
    post_write(p, 1);
    settle(p);
    completed(p, 1);
    expect_counts(p, 3, 3, 0);
    g_assert_cmpint(w.seen[0][3].time - w.seen[0][0].time, ==,
                    4000 + 8000 + 16000);
    g_assert_cmpint(probe_time(p, &w), ==, 4000);
    pair_free(p);
}

/* Tests a timer that has expired, and whose retransmission is lost too. */
static void test_probe_behind_timeout(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);
    int64_t start;

    steady(p);
    w.silent = true;
    post_write(p, 1);
    while (!count_a(p, QRNIC_COUNTER_TIMEOUTS)) {
        pass(p, SIM_US);
    }
    pass(p, 3 * SIM_US);
    w.silent = false;
    start = p->sim->now;
    settle(p);
    g_assert_cmpint(expect_status(p->a.qp, QRNIC_WC_SUCCESS).timestamp, <,
                    start + 10 * SIM_US);
    pair_free(p);
}

/*
 * Tests that the probe is the read if a read is outstanding with a write behind
 * it.
 */
static void test_probe_of_read(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    post_write(p, 1);
    settle(p);
    w.silent = true;
    post_read(p, 1);
    post_write(p, 1);
    pass(p, 3 * SIM_US);
    w.silent = false;
    settle(p);
    completed(p, 3);
    expect_counts(p, 2, 2, 0);
    pair_free(p);
}

/*
 * Tests that a lost packet that was sent without credit is retransmitted like
 * others.
 */
static void test_probe_without_credit(void)
{
    Wire w = { .loss = { { .psn = 2, .times = 1 } } };
    Pair *p = selective(&w);

    post_recv(&p->b, 0, MTU);
    post_write(p, 1);
    settle(p);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 100);
    settle(p);
    completed(p, 2);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 100);
    pass(p, 20 * SIM_US);
    expect_counts(p, 1, 1, 0);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_TX_RNR_NAK), ==, 1);
    post_recv(&p->b, 0, MTU);
    settle(p);
    completed(p, 1);
    pair_free(p);
}

/*
 * Tests that the whole read is requested if a write is outstanding with a read
 * behind it.
 */
static void test_probe_of_last_read(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    post_write(p, 1);
    settle(p);
    w.silent = true;
    post_write(p, 1);
    post_read(p, 4);
    pass(p, 3 * SIM_US);
    w.silent = false;
    settle(p);
    completed(p, 3);
    expect_counts(p, 1, 1, 0);
    pair_free(p);
}

/*
 * Tests that the oldest packet is the probe if the last read begins beyond the
 * window.
 */
static void test_probe_of_distant_read(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    post_write(p, 1);
    settle(p);
    w.silent = true;
    post_write(p, 1);
    post_read(p, QRNIC_SELECTIVE_WINDOW + 1);
    post_read(p, 1);
    w.count[0] = 0;
    pass(p, 20 * SIM_US);
    g_assert_cmpuint(w.seen[0][w.count[0] - 1].t.psn, ==, PSN_A + 1);
    g_assert_cmpuint(count_a(p, QRNIC_COUNTER_PROBES), ==, 2);
    g_assert_cmpuint(count_a(p, QRNIC_COUNTER_RETRANSMISSIONS), ==, 2);
    w.silent = false;
    settle(p);
    completed(p, 4);
    pair_free(p);
}

/* Reads */

/* Tests that two reads, the second beyond the window, are requested again. */
static void test_long_reads(void)
{
    Wire w = { .loss = { { 1, 1, 0 } } };
    Pair *p = pair_with(&w, QRNIC_QPO_SELECTIVE_REPEAT, QRNIC_MTU_256);
    const QrnicSelective *s = qrnic_qp_get(p->a.qp->node->engine,
                                           p->a.qp->number)
                              ->requester->selective;

    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0, 0, 300 * 256);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0x40000, 0x40000, 10 * 256);
    /* PSN 300 shares its entry with PSN 44, which is inside a read. */
    pass(p, 100);
    g_assert_cmpuint(s->first[(PSN_A + 300) % QRNIC_WINDOW], ==, 0);
    pass(p, 2 * SIM_US);
    g_assert_cmpuint(count_a(p, QRNIC_COUNTER_IMPLIED_NAK), ==, 1);
    g_assert_cmpint(s->state[(PSN_A + 300) % QRNIC_WINDOW], ==,
                    QRNIC_PSN_IN_FLIGHT);
    settle(p);
    completed(p, 2);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 2);
    expect_counts(p, 2, 0, 0);
    pair_free(p);
}

/*
 * Tests that a read is not requested again if packets before and behind it are
 * lost.
 */
static void test_around_read(void)
{
    Wire w = { .loss = { { 0, 1, 0 }, { 0, 1, 5 } } };
    Pair *p = selective(&w);

    post_write(p, 1);
    post_read(p, 4);
    post_write(p, 4);
    settle(p);
    completed(p, 3);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 0);
    expect_counts(p, 2, 0, 0);
    pair_free(p);
}

/*
 * Tests that packets behind a read are acknowledged with the read, and by a
 * retransmission.
 */
static void test_behind_read(void)
{
    Wire w = { .loss = { { 1, 1, 0 } } };
    Pair *p = selective(&w);

    post_read(p, 1);
    pass(p, 100);
    post_write(p, 2);
    settle(p);
    completed(p, 2);
    expect_counts(p, 2, 0, 0);
    pair_free(p);
}

/*
 * Tests one lost response, and then another: each request is a new
 * transmission.
 */
static void test_read_transmissions(void)
{
    Wire w = { .loss = { { 1, 1, 1 }, { 1, 2, 2 } } };
    Pair *p = selective(&w);
    unsigned asked = 0;

    post_read(p, 4);
    settle(p);
    completed(p, 1);
    for (unsigned i = 0; i < w.count[0]; i++) {
        g_assert_cmpuint(QRNIC_MARKED_TRANSMISSION(w.seen[0][i].t.mark), ==,
                         asked++);
    }
    g_assert_cmpuint(asked, ==, 3);
    expect_counts(p, 2, 0, 0);
    pair_free(p);
}

static void response_inject(Pair *p, uint32_t psn, unsigned transmission)
{
    const QrnicTransport t = {
        .opcode = QRNIC_OP_RC_READ_RESPONSE_MIDDLE, .pkey = 0xffff,
        .dest_qpn = p->a.qp->number, .psn = PSN_A + psn,
        .mark = QRNIC_MARK_SELECTIVE | QRNIC_MARK_TRANSMISSION(transmission),
    };

    pair_inject(p, &p->a, &t, NULL, MTU);
    pass(p, 100);
}

static void ack_inject(Pair *p, uint32_t psn)
{
    const QrnicTransport t = {
        .opcode = QRNIC_OP_RC_ACK, .pkey = 0xffff, .syndrome = 0x1f,
        .dest_qpn = p->a.qp->number, .psn = PSN_A + psn,
        .mark = QRNIC_MARK_SELECTIVE,
    };

    pair_inject(p, &p->a, &t, NULL, 0);
    pass(p, 100);
}

/*
 * Tests a read whose first response is lost. The read was requested again,
 * together with the write behind it. A late response to the first request shows
 * no loss; a response to the second does.
 */
static void test_late_answers(void)
{
    Wire w = { .silent = true };
    Pair *p = selective(&w);

    post_read(p, 4);
    post_write(p, 1);
    pass(p, 3 * SIM_US);
    response_inject(p, 1, 0);
    expect_counts(p, 2, 0, 0);
    response_inject(p, 2, 0);
    expect_counts(p, 2, 0, 0);
    ack_inject(p, 4);
    expect_counts(p, 2, 0, 0);
    response_inject(p, 2, 1);
    expect_counts(p, 4, 0, 0);
    pair_free(p);
}

/* SACKs */

static void sack_inject(Pair *p, int32_t psn, uint32_t missing, uint16_t bits,
                        uint32_t latest)
{
    uint8_t bytes[QRNIC_SACK_BYTES] = { bits >> 8, bits };
    const QrnicTransport t = {
        .opcode = QRNIC_OP_RC_SACK, .pkey = 0xffff, .syndrome = 0x1f,
        .dest_qpn = p->a.qp->number, .psn = PSN_A + psn,
        .mark = QRNIC_MARK_SELECTIVE, .missing_psn = PSN_A + missing,
        .arrived = bytes, .latest_psn = PSN_A + latest,
        .latest_transmission = latest >= 256,
    };

    pair_inject(p, &p->a, &t, NULL, 0);
    pass(p, 100);
}

/*
 * Tests a packet that was buffered, and dropped when its PSN was expected. The
 * PSN is now reported missing.
 */
static void test_kept_no_more(void)
{
    Wire w = { .silent = true };
    Pair *p = selective(&w);

    post_write(p, 10);
    pass(p, 3 * SIM_US);
    sack_inject(p, -1, 0, 0x2000, 2);
    expect_counts(p, 2, 0, 0);
    sack_inject(p, 1, 2, 0x7f80, 9);
    expect_counts(p, 3, 0, 0);
    g_assert_cmpuint(w.seen[0][w.count[0] - 1].t.psn, ==, PSN_A + 2);
    pair_free(p);
}

/*
 * Tests a SACK that reports that two reads have arrived and a write behind them
 * has not. When the timer expires, the reads are requested again too, because
 * their responses are lost.
 */
static void test_timeout_of_reads(void)
{
    Wire w = { .silent = true };
    Pair *p = selective(&w);

    post_read(p, 1);
    post_read(p, 1);
    post_write(p, 2);
    pass(p, 3 * SIM_US);
    sack_inject(p, -1, 2, 0x4000, 3);
    expect_counts(p, 1, 0, 0);
    while (!count_a(p, QRNIC_COUNTER_TIMEOUTS)) {
        pass(p, SIM_US);
    }
    pass(p, SIM_US);
    expect_counts(p, 1 + 3, 0, 1);
    w.silent = false;
    settle(p);
    completed(p, 3);
    pair_free(p);
}

/*
 * Tests the loss of the oldest packet, again and again, as later packets show.
 * Everything else arrives. The requester gives up when the timer would have
 * ended it.
 */
static void test_lost_for_ever(void)
{
    const int64_t timeout = 4096 << 8;
    Wire w = { .silent = true };
    Pair *p = selective(&w);
    uint8_t bytes[QRNIC_SACK_BYTES] = { 0 };
    int64_t start = p->sim->now;

    post_write(p, 1);
    for (unsigned i = 1; sim_query(p->a.qp).state != QRNIC_QPS_ERR; i++) {
        const QrnicTransport t = {
            .opcode = QRNIC_OP_RC_SACK, .pkey = 0xffff, .syndrome = 0x1f,
            .dest_qpn = p->a.qp->number, .psn = PSN_A - 1,
            .mark = QRNIC_MARK_SELECTIVE, .missing_psn = PSN_A,
            .arrived = bytes, .latest_psn = PSN_A + i,
        };

        g_assert_cmpuint(i, <, QRNIC_SELECTIVE_WINDOW);
        post_write(p, 1);
        pass(p, 100 * SIM_US);
        bytes[i / 8] |= 0x80 >> i % 8;
        pair_inject(p, &p->a, &t, NULL, 0);
        pass(p, 100);
        g_assert_cmpint(p->sim->now, <, start + 9 * timeout);
    }
    g_assert_cmpint(p->sim->now, >=, start + 6 * timeout);
    g_assert_cmpuint(count_a(p, QRNIC_COUNTER_RETRANSMISSIONS), >, 50);
    expect_status(p->a.qp, QRNIC_WC_RETRY_EXC_ERR);
    pair_free(p);
}

/* Progress restores the number of retries and clears all state of the loss. */
static void test_progress(void)
{
    Wire w = { .silent = true };
    Pair *p = selective(&w);
    const QrnicRequester *r = qrnic_qp_get(p->a.qp->node->engine,
                                           p->a.qp->number)->requester;

    post_write(p, 10);
    pass(p, 3 * SIM_US);
    g_assert_cmpuint(r->retries, ==, 7);
    sack_inject(p, -1, 0, 0x1000, 3);
    g_assert_cmpuint(r->retries, ==, 6);
    sack_inject(p, 3, 4, 0, 9);
    g_assert_cmpuint(r->retries, ==, 6);
    ack_inject(p, 9);
    g_assert_cmpuint(r->retries, ==, 7);
    for (unsigned i = 0; i < QRNIC_WINDOW; i++) {
        g_assert_cmpint(r->selective->state[i], ==, QRNIC_PSN_IN_FLIGHT);
    }
    pair_free(p);
}

/*
 * Tests that a PSN that shares its entry in the window with another is a
 * different packet.
 */
static void test_names_of_no_window(void)
{
    Wire w = { .silent = true };
    Pair *p = selective(&w);

    post_write(p, 10);
    pass(p, 3 * SIM_US);
    sack_inject(p, -1, 0, 0x5fc0, 9);
    expect_counts(p, 2, 0, 0);
    sack_inject(p, -1, 0, 0x5fc0, 256 + 2);
    expect_counts(p, 2, 0, 0);
    pair_free(p);
}

/* The responder */

/* Tests that no SACK is sent if the expected packet is available. */
static void test_sacks_of_gaps_only(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    for (unsigned psn = 3; psn; psn--) {
        write_inject(p, psn, QRNIC_MARK_SELECTIVE, psn);
        pass(p, 100);
    }
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_TX_SACK), ==, 3);
    write_inject(p, 0, QRNIC_MARK_SELECTIVE, 0);
    settle(p);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_TX_SACK), ==, 3);
    g_assert_cmpuint(sim_query(p->b.qp).rq_psn, ==, PSN_A + 4);
    g_assert_cmphex(p->b.data[0], ==, 3);
    pair_free(p);
}

static void test_sack_names_latest(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    write_inject(p, 5, QRNIC_MARK_SELECTIVE, 0);
    pass(p, 100);
    write_inject(p, 3, QRNIC_MARK_SELECTIVE | QRNIC_MARK_TRANSMISSION(6), 0);
    pass(p, 100);
    g_assert_cmpuint(w.count[1], ==, 2);
    g_assert_cmpuint(w.seen[1][0].t.latest_psn, ==, PSN_A + 5);
    g_assert_cmpuint(w.seen[1][0].t.latest_transmission, ==, 0);
    g_assert_cmpuint(w.seen[1][1].t.latest_psn, ==, PSN_A + 3);
    g_assert_cmpuint(w.seen[1][1].t.latest_transmission, ==, 6);
    pair_free(p);
}

/*
 * Tests that a second copy of the expected packet is ignored while the first is
 * buffered and not executed yet.
 */
static void test_next_again(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);

    write_inject(p, 1, QRNIC_MARK_SELECTIVE, 0x11);
    write_inject(p, 0, QRNIC_MARK_SELECTIVE, 0x10);
    write_inject(p, 1, QRNIC_MARK_SELECTIVE, 0x99);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 1);
    settle(p);
    g_assert_cmphex(p->b.data[0], ==, 0x11);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_RX_WRITE), ==, 2);
    pair_free(p);
}

/*
 * Tests that a packet that was buffered with a PSN of a read is gone one window
 * later.
 */
static void test_window_behind_read(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);
    QrnicTransport read = to_b(p, QRNIC_OP_RC_READ_REQUEST, 0,
                               QRNIC_MARK_SELECTIVE);
    const uint32_t last = 2 + QRNIC_SELECTIVE_WINDOW;

    write_inject(p, 2, QRNIC_MARK_SELECTIVE, 0x99);
    read.dma_len = 4 * MTU;
    pair_inject(p, &p->b, &read, NULL, 0);
    settle(p);
    for (uint32_t psn = 4; psn <= last; psn++) {
        write_inject(p, psn, QRNIC_MARK_SELECTIVE, psn);
        pass(p, 100);
    }
    g_assert_cmphex(p->b.data[0], ==, last & 0xff);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_RX_WRITE), ==, last - 3);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 0);
    pair_free(p);
}

/*
 * Tests that a pending SACK replaces a pending ACK, with its PSN and credits.
 * With an outstanding read response it does not acknowledge that read.
 */
static void test_sack_for_ack(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);
    QrnicTransport read;

    post_recv(&p->b, 0, 64);
    block(p, &w, 0, QRNIC_MARK_SELECTIVE, 50 * SIM_US);
    write_inject(p, 1, QRNIC_MARK_SELECTIVE, 0);
    write_inject(p, 3, QRNIC_MARK_SELECTIVE, 0);
    settle(p);
    g_assert_cmpuint(w.count[1], ==, 1);
    g_assert_cmphex(w.seen[1][0].t.opcode, ==, QRNIC_OP_RC_SACK);
    g_assert_cmphex(w.seen[1][0].t.psn, ==, PSN_A + 1);
    g_assert_cmphex(w.seen[1][0].t.syndrome, <, 0x1f);
    w.count[1] = 0;
    block(p, &w, 2, QRNIC_MARK_SELECTIVE, 50 * SIM_US);
    read = to_b(p, QRNIC_OP_RC_READ_REQUEST, 4, QRNIC_MARK_SELECTIVE);
    pair_inject(p, &p->b, &read, NULL, 0);
    write_inject(p, 6, QRNIC_MARK_SELECTIVE, 0);
    settle(p);
    g_assert_cmpuint(w.count[1], ==, 2);
    g_assert_cmphex(w.seen[1][0].t.opcode, ==, QRNIC_OP_RC_SACK);
    g_assert_cmphex(w.seen[1][0].t.psn, ==, PSN_A + 3);
    g_assert_cmphex(w.seen[1][0].t.syndrome, ==, 0x1f);
    g_assert_cmphex(w.seen[1][1].t.opcode, ==,
                    QRNIC_OP_RC_READ_RESPONSE_ONLY);
    pair_free(p);
}

/* Tests that a NAK precedes a SACK. */
static void test_nak_before_sack(void)
{
    Wire w = { 0 };
    Pair *p = selective(&w);
    QrnicTransport send = to_b(p, QRNIC_OP_RC_SEND_ONLY, 1,
                               QRNIC_MARK_SELECTIVE);

    block(p, &w, 0, QRNIC_MARK_SELECTIVE, 50 * SIM_US);
    write_inject(p, 3, QRNIC_MARK_SELECTIVE, 0);
    pair_inject(p, &p->b, &send, NULL, 8);
    settle(p);
    g_assert_cmpuint(w.count[1], ==, 2);
    g_assert_cmphex(w.seen[1][0].t.opcode, ==, QRNIC_OP_RC_ACK);
    g_assert_cmphex(w.seen[1][0].t.syndrome >> 5, ==, 1);
    g_assert_cmphex(w.seen[1][1].t.opcode, ==, QRNIC_OP_RC_SACK);
    pair_free(p);
}

/* Adaptive routing */

/*
 * Tests a sequence gap that is filled while another remains, whose timer starts
 * then.
 */
static void test_time_of_next_gap(void)
{
    Wire w = { 0 };
    Pair *p = adaptive(&w);
    int64_t start = p->sim->now;

    write_inject(p, 1, ALONE, 0);
    pass(p, GAP_NS / 2);
    write_inject(p, 3, ALONE, 0);
    write_inject(p, 0, ALONE, 0);
    settle(p);
    g_assert_cmphex(w.seen[1][w.count[1] - 1].t.syndrome, ==,
                    QRNIC_NAK_SEQUENCE);
    g_assert_cmpint(w.seen[1][w.count[1] - 1].time, ==,
                    start + GAP_NS / 2 + GAP_NS);
    pair_free(p);
}

/*
 * Tests that one NAK reports a sequence gap, even if more packets arrive behind
 * it.
 */
static void test_gap_told_once(void)
{
    Wire w = { 0 };
    Pair *p = adaptive(&w);

    write_inject(p, 1, ALONE, 0);
    settle(p);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 1);
    write_inject(p, 2, ALONE, 0);
    settle(p);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 1);
    pair_free(p);
}

/*
 * Tests that the peer receives a NAK, because it is not known to support
 * selective repeat.
 */
static void test_gap_by_nak(void)
{
    Wire w = { 0 };
    Pair *p = pair_with(&w, QRNIC_QPO_SELECTIVE_REPEAT |
                        QRNIC_QPO_ADAPTIVE_ROUTING, QRNIC_MTU_1024);

    write_inject(p, 1, ALONE, 0);
    settle(p);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_TX_SACK), ==, 0);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 1);
    pair_free(p);
}

/*
 * Tests a timer of a sequence gap that expires while a fatal NAK waits for the
 * wire.
 */
static void test_gap_of_dead(void)
{
    Wire w = { 0 };
    Pair *p = adaptive(&w);
    QrnicTransport bad = to_b(p, QRNIC_OP_RC_WRITE_ONLY, 1, ALONE);

    block(p, &w, 0, ALONE, 2 * GAP_NS);
    write_inject(p, 2, ALONE, 0);
    bad.rkey ^= 0x100000;
    pair_inject(p, &p->b, &bad, NULL, MTU);
    settle(p);
    g_assert_cmpuint(w.count[1], ==, 1);
    g_assert_cmphex(w.seen[1][0].t.syndrome, ==, QRNIC_NAK_ACCESS);
    expect_state(p->b.qp, QRNIC_QPS_ERR);
    pair_free(p);
}

/*
 * Tests that a placed packet completes in order, although its key was destroyed
 * since.
 */
static void test_placed_key_gone(void)
{
    Wire w = { 0 };
    Pair *p = adaptive(&w);
    SimNode *b = p->b.qp->node;
    uint32_t key = sim_mkey(b, p->b.addr, PAIR_BYTES, ACCESS_ALL);
    QrnicTransport t = to_b(p, QRNIC_OP_RC_WRITE_ONLY, 1, ALONE);

    t.rkey = key;
    pair_inject(p, &p->b, &t, NULL, MTU);
    g_assert_cmphex(p->b.data[0], ==, 0x5a);
    g_assert_cmpint(qrnic_mkey_destroy(b->engine, key >> 8).status, ==,
                    QRNIC_ST_OK);
    write_inject(p, 0, ALONE, 0x5a);
    settle(p);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_RX_WRITE), ==, 2);
    g_assert_cmpuint(w.seen[1][0].t.msn, ==, 2);
    pair_free(p);
}

/*
 * Tests that only the last packet of a write completes a message, with the
 * length of the whole write.
 */
static void test_message_of_packets(void)
{
    Wire w = { 0 };
    Pair *p = adaptive(&w);
    QrnicQp *qp = qrnic_qp_get(p->b.qp->node->engine, p->b.qp->number);

    write_inject(p, 0, ALONE | QRNIC_MARK_MORE, 0);
    settle(p);
    g_assert_cmpuint(w.seen[1][0].t.msn, ==, 0);
    /* Acts as two million of these packets. */
    qp->responder->adaptive_len = QRNIC_MAX_MSG_SIZE - MTU;
    write_inject(p, 1, ALONE | QRNIC_MARK_MORE, 0);
    settle(p);
    g_assert_cmpuint(w.count[1], ==, 2);
    g_assert_cmphex(w.seen[1][1].t.syndrome >> 5, ==, 0);
    write_inject(p, 2, ALONE, 0);
    settle(p);
    g_assert_cmphex(w.seen[1][2].t.syndrome, ==, QRNIC_NAK_INVALID);
    expect_state(p->b.qp, QRNIC_QPS_ERR);
    pair_free(p);
}

/* Limits */

/* Creates a responder that expects PSN 0. */
static SimQp *receiver_new(Pair *p, uint8_t options)
{
    SimQp *q = sim_qp_new(p->b.qp->node, 4, 4, 0, 4);
    QrnicQpAttr a = sim_attr_init();

    g_assert_cmpint(sim_modify(q, &a).status, ==, QRNIC_ST_OK);
    a = sim_attr_rtr(q, p->a.qp);
    a.mask |= QRNIC_QP_OPTIONS;
    a.options = options;
    a.path_mtu = QRNIC_MTU_4096;
    g_assert_cmpint(sim_modify(q, &a).status, ==, QRNIC_ST_OK);
    return q;
}

/*
 * Sends valid packets that would be placed, invalid ones, and packets beyond
 * the window.
 */
static void flood(Pair *p, SimQp *q, uint8_t mark)
{
    PairEnd to = { .qp = q };

    for (uint32_t psn = 1; psn < QRNIC_SELECTIVE_WINDOW + 20; psn++) {
        QrnicTransport t = to_b(p, QRNIC_OP_RC_WRITE_ONLY, 0, mark);

        t.dest_qpn = q->number;
        t.psn = psn;
        t.rkey ^= psn & 1 ? 0x100000 : 0;
        t.dma_len = 4096;
        pair_inject(p, &to, &t, NULL, 4096);
    }
}

/*
 * Tests that many connections, each with a full window, together buffer at most
 * MAX_REORDER, and free all of it.
 */
static void test_bounded(void)
{
    enum {
        BYTES = 4096 + sizeof(QrnicBuffered),
        QPS = QRNIC_MAX_REORDER / (QRNIC_SELECTIVE_WINDOW - 1) / BYTES * 3 / 2,
    };
    const SimOptions o = { .max_qp = 512, .max_cq = 512 };
    Pair *p = pair_new(5, &o, NULL);
    QrnicEngine *e = p->b.qp->node->engine;
    SimQp *q[QPS];

    for (unsigned n = 0; n < QPS; n++) {
        const QrnicQp *qp;

        q[n] = receiver_new(p, n & 1 ? QRNIC_QPO_ADAPTIVE_ROUTING :
                                       QRNIC_QPO_SELECTIVE_REPEAT);
        flood(p, q[n], n & 1 ? ALONE : QRNIC_MARK_SELECTIVE);
        qp = qrnic_qp_get(e, q[n]->number);
        g_assert_cmpuint(e->qps->buffered_bytes, <=, QRNIC_MAX_REORDER);
        if (qp->responder->reorder) {
            g_assert_cmpuint(qp->responder->reorder->count, <,
                             QRNIC_SELECTIVE_WINDOW);
        }
    }
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_PLACED_PACKETS), >, 0);
    g_assert_cmpuint(count_b(p, QRNIC_COUNTER_RX_DROP_REORDER), >, 0);
    /*
     * Only a connection below its share takes the room of another connection.
     */
    g_assert_cmpuint(e->qps->buffered_bytes, >,
                     QRNIC_MAX_REORDER - QRNIC_SELECTIVE_WINDOW * BYTES);
    /* Packets in order need no room, so a full buffer cannot stop them. */
    pair_fill(p);
    post_write(p, 100);
    settle(p);
    completed(p, 1);
    g_assert_cmpmem(p->a.data, 100 * MTU, p->b.data, 100 * MTU);
    for (unsigned n = 0; n < QPS; n++) {
        sim_qp_free(q[n]);
    }
    g_assert_cmpuint(e->qps->buffered_bytes, ==, 0);
    pair_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/selective/probe/first", test_first_probe);
    g_test_add_func("/selective/probe/steady", test_steady_probe);
    g_test_add_func("/selective/probe/behind-loss", test_probe_behind_loss);
    g_test_add_func("/selective/probe/behind-slow-wire",
                    test_probe_behind_slow_wire);
    g_test_add_func("/selective/probe/behind-many", test_probe_behind_many);
    g_test_add_func("/selective/probe/begin-anew", test_probes_begin_anew);
    g_test_add_func("/selective/probe/behind-timeout",
                    test_probe_behind_timeout);
    g_test_add_func("/selective/probe/of-read", test_probe_of_read);
    g_test_add_func("/selective/probe/of-last-read", test_probe_of_last_read);
    g_test_add_func("/selective/probe/of-distant-read",
                    test_probe_of_distant_read);
    g_test_add_func("/selective/probe/without-credit",
                    test_probe_without_credit);
    g_test_add_func("/selective/read/long", test_long_reads);
    g_test_add_func("/selective/read/around", test_around_read);
    g_test_add_func("/selective/read/behind", test_behind_read);
    g_test_add_func("/selective/read/transmissions", test_read_transmissions);
    g_test_add_func("/selective/read/late-answers", test_late_answers);
    g_test_add_func("/selective/read/timeout", test_timeout_of_reads);
    g_test_add_func("/selective/sack/kept-no-more", test_kept_no_more);
    g_test_add_func("/selective/sack/lost-for-ever", test_lost_for_ever);
    g_test_add_func("/selective/progress", test_progress);
    g_test_add_func("/selective/sack/names-of-no-window",
                    test_names_of_no_window);
    g_test_add_func("/selective/sack/of-gaps-only", test_sacks_of_gaps_only);
    g_test_add_func("/selective/sack/names-latest", test_sack_names_latest);
    g_test_add_func("/selective/sack/for-ack", test_sack_for_ack);
    g_test_add_func("/selective/sack/behind-nak", test_nak_before_sack);
    g_test_add_func("/selective/bounded", test_bounded);
    g_test_add_func("/selective/next-again", test_next_again);
    g_test_add_func("/selective/window-behind-read", test_window_behind_read);
    g_test_add_func("/adaptive/gap/time-of-next", test_time_of_next_gap);
    g_test_add_func("/adaptive/gap/told-once", test_gap_told_once);
    g_test_add_func("/adaptive/gap/by-nak", test_gap_by_nak);
    g_test_add_func("/adaptive/gap/of-dead", test_gap_of_dead);
    g_test_add_func("/adaptive/placed-key-gone", test_placed_key_gone);
    g_test_add_func("/adaptive/message-of-packets", test_message_of_packets);
    return g_test_run();
}
