/*
 * Adaptive routing: packets of writes are self-contained, placed in any order
 * and completed in order. A sequence gap is reported only if it persists.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/transport/rc/reliability.h"
#include "pair.h"

#define PSN_A 0x123456          /* Values of sim_connect_default() */
#define MTU 1024u
#define PLACES QRNIC_MARK_PLACES
#define ALONE (QRNIC_MARK_PLACES | QRNIC_MARK_ADAPTIVE)
#define MORE (ALONE | QRNIC_MARK_MORE)
#define GAP_NS (QRNIC_ADAPTIVE_GAP_TIME * SIM_US)

typedef struct Seen {
    uint8_t opcode, mark;
    uint32_t psn, dma_len;
    uint64_t va;
    int64_t time;
} Seen;

/* Packets that each node has sent */
typedef struct Wire {
    Seen seen[2][64];
    unsigned count[2];
    /* PSN of node 0 to lose once, relative to PSN_A; 0: none */
    uint32_t lost_psn;
    unsigned reverse;           /* Number of packets of node 0 to collect */
    unsigned held;              /* and to deliver in reverse order */
    struct {
        size_t len;
        uint8_t data[2048];
    } frame[8];
} Wire;

static bool tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                void *opaque)
{
    Wire *w = opaque;
    QrnicPacket p;

    g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
    if (w->count[from] < ARRAY_SIZE(w->seen[0])) {
        w->seen[from][w->count[from]++] = (Seen) {
            .opcode = p.t.opcode, .mark = p.t.mark, .psn = p.t.psn - PSN_A,
            .dma_len = p.t.dma_len, .va = p.t.va, .time = s->now,
        };
    }
    if (!from && w->lost_psn && p.t.psn == PSN_A + w->lost_psn) {
        w->lost_psn = 0;
        return false;
    }
    if (!from && w->held < w->reverse) {
        memcpy(w->frame[w->held].data, frame, len);
        w->frame[w->held++].len = len;
        return false;
    }
    return true;
}

static Pair *adaptive_pair(Wire *w, uint8_t options, bool only_a)
{
    SimConnect c = sim_connect_default();
    Pair *p;

    c.options = options;
    c.only_a = only_a;
    p = pair_new(5, NULL, &c);
    pair_fill(p);
    p->sim->tap = tap;
    p->sim->tap_opaque = w;
    return p;
}

static void settle(Pair *p)
{
    g_assert_true(sim_run(p->sim, p->sim->now + 10000 * SIM_MS));
}

/*
 * Exchanges one packet, so that both sides know the peer's options; one PSN is
 * used up.
 */
static void acquaint(Pair *p, Wire *w)
{
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, PAIR_BYTES / 2, PAIR_BYTES / 2, 8);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    w->count[0] = w->count[1] = 0;
}

static uint64_t counter_b(Pair *p, enum qrnic_counter c)
{
    return sim_counter(&p->sim->node[1], c);
}

/* Tests the packets of a write, and of a write with immediate data. */
static void test_packets(void)
{
    Wire w = { 0 };
    Pair *p = adaptive_pair(&w, QRNIC_QPO_ADAPTIVE_ROUTING, false);
    QrnicCqe c;

    post_recv(&p->b, 0, 16);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 2 * MTU);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    /* The peer's options are not known yet. */
    g_assert_cmphex(w.seen[0][0].opcode, ==, QRNIC_OP_RC_WRITE_FIRST);
    g_assert_cmphex(w.seen[0][0].mark, ==, PLACES);
    g_assert_cmphex(w.seen[1][0].mark, ==, PLACES);
    w.count[0] = 0;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE_IMM, 0, 0, 3 * MTU + 5);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    c = expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV_RDMA_WITH_IMM);
    g_assert_cmpuint(c.byte_len, ==, 3 * MTU + 5);
    g_assert_cmpuint(w.count[0], ==, 4);
    for (unsigned i = 0; i < 4; i++) {
        const Seen *s = &w.seen[0][i];

        g_assert_cmphex(s->opcode, ==, i < 3 ? QRNIC_OP_RC_WRITE_ONLY :
                                               QRNIC_OP_RC_WRITE_ONLY_IMM);
        g_assert_cmphex(s->mark, ==, i < 3 ? MORE : ALONE);
        g_assert_cmpuint(s->psn, ==, 2 + i);
        g_assert_cmphex(s->va, ==, p->b.addr + i * MTU);
        g_assert_cmpuint(s->dma_len, ==, i < 3 ? MTU : 5);
    }
    g_assert_cmpmem(p->a.data, 3 * MTU + 5, p->b.data, 3 * MTU + 5);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_WRITE), ==, 2);
    pair_free(p);
}

/*
 * Tests that the packets are those of the standard if only one side has the
 * option. The peer could not place them out of order.
 */
static void test_one_end(void)
{
    Wire w = { 0 };
    Pair *p = adaptive_pair(&w, QRNIC_QPO_ADAPTIVE_ROUTING, true);

    acquaint(p, &w);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 2 * MTU);
    settle(p);
    g_assert_cmphex(w.seen[0][0].opcode, ==, QRNIC_OP_RC_WRITE_FIRST);
    g_assert_cmphex(w.seen[0][0].mark, ==, PLACES);
    g_assert_cmphex(w.seen[1][0].mark, ==, 0);
    pair_free(p);
}

/*
 * Tests packets that all arrive in reverse order. Each is placed on arrival,
 * and no missing PSN is reported.
 */
static void test_reversed(void)
{
    Wire w = { 0 };
    Pair *p = adaptive_pair(&w, QRNIC_QPO_ADAPTIVE_ROUTING, false);
    QrnicCqe c;

    /*
     * The receive WQEs are posted here, so that the ACK of acquaint() has the
     * credits.
     */
    post_recv(&p->b, 0, 16);
    acquaint(p, &w);
    w.reverse = 5;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE_IMM, 0, 0, 5 * MTU);
    sim_run(p->sim, p->sim->now + SIM_US);
    g_assert_cmpuint(w.held, ==, 5);
    for (unsigned i = 5; i--;) {
        expect_no_cqe(p->b.qp);
        sim_inject(p->sim, 1, w.frame[i].data, w.frame[i].len);
        g_assert_cmpmem(p->a.data + i * MTU, MTU, p->b.data + i * MTU, MTU);
    }
    settle(p);
    c = expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV_RDMA_WITH_IMM);
    g_assert_cmpuint(c.byte_len, ==, 5 * MTU);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_PLACED_PACKETS), ==, 4);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 0);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 0);
    g_assert_cmpuint(sim_counter(&p->sim->node[0],
                                 QRNIC_COUNTER_RETRANSMISSIONS), ==, 0);
    pair_free(p);
}

/*
 * Tests the worked example of the manual: a write of 2500 bytes, whose last
 * packet arrives first.
 */
static void test_worked_example(void)
{
    static const struct {
        uint32_t at, len;
        uint8_t mark;
    } want[] = {
        { 0, MTU, 0x0e }, { MTU, MTU, 0x0e }, { 2 * MTU, 452, 0x0a },
    };
    Wire w = { 0 };
    Pair *p = adaptive_pair(&w, QRNIC_QPO_ADAPTIVE_ROUTING, false);
    QrnicCqe c;

    post_recv(&p->b, 0, 16);
    acquaint(p, &w);
    w.reverse = 3;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE_IMM, 0, 0, 2500);
    sim_run(p->sim, p->sim->now + SIM_US);
    g_assert_cmpuint(w.held, ==, 3);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_cmphex(w.seen[0][i].opcode, ==,
                        i < 2 ? QRNIC_OP_RC_WRITE_ONLY :
                                QRNIC_OP_RC_WRITE_ONLY_IMM);
        g_assert_cmphex(w.seen[0][i].va, ==, p->b.addr + want[i].at);
        g_assert_cmpuint(w.seen[0][i].dma_len, ==, want[i].len);
        g_assert_cmphex(w.seen[0][i].mark, ==, want[i].mark);
    }
    sim_inject(p->sim, 1, w.frame[2].data, w.frame[2].len);
    g_assert_cmpmem(p->a.data + 2 * MTU, 452, p->b.data + 2 * MTU, 452);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_PLACED_PACKETS), ==, 1);
    sim_inject(p->sim, 1, w.frame[0].data, w.frame[0].len);
    expect_no_cqe(p->b.qp);
    sim_inject(p->sim, 1, w.frame[1].data, w.frame[1].len);
    settle(p);
    c = expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV_RDMA_WITH_IMM);
    g_assert_cmpuint(c.byte_len, ==, 2500);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_PLACED_PACKETS), ==, 1);
    g_assert_cmpuint(w.count[1], ==, 1);        /* One ACK for all */
    pair_free(p);
}

/*
 * Tests that a sequence gap that persists is reported after some time, by a
 * SACK or a NAK.
 */
static void test_gap(void)
{
    for (unsigned both = 0; both < 2; both++) {
        Wire w = { 0 };
        Pair *p = adaptive_pair(&w, QRNIC_QPO_ADAPTIVE_ROUTING |
                                (both ? QRNIC_QPO_SELECTIVE_REPEAT : 0), false);
        int64_t start;

        acquaint(p, &w);
        start = p->sim->now;
        w.lost_psn = 2;
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 20 * MTU);
        sim_run(p->sim, start + SIM_US + GAP_NS - 1);
        g_assert_cmpuint(w.count[1], ==, 0);
        sim_run(p->sim, start + SIM_US + GAP_NS);
        g_assert_cmpuint(w.count[1], ==, 1);
        g_assert_cmphex(w.seen[1][0].opcode, ==,
                        both ? QRNIC_OP_RC_SACK : QRNIC_OP_RC_ACK);
        settle(p);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        g_assert_cmpmem(p->a.data, 20 * MTU, p->b.data, 20 * MTU);
        g_assert_cmpuint(sim_counter(&p->sim->node[0],
                                     QRNIC_COUNTER_TIMEOUTS), ==, 0);
        pair_free(p);
    }
}

/*
 * Crafted packets to a responder that expects PSN_A + 1. ahead: relative to
 * that.
 */
typedef struct Crafted {
    const char *name;
    uint8_t opcode, mark;
    uint32_t ahead, dma_len, len;
    uint32_t key_flip;
    /* Results on arrival */
    bool written;               /* The data is in memory */
    unsigned placed, held, naks;
    bool refused;               /* The queue pair is in ERR */
    unsigned writes;            /* Completed writes */
} Crafted;

static const Crafted cases[] = {
    { "ahead-placed", QRNIC_OP_RC_WRITE_ONLY, ALONE, 3, MTU, MTU, 0,
      true, 1, 0, 0, false, 0 },
    { "ahead-more-placed", QRNIC_OP_RC_WRITE_ONLY, MORE, 3, MTU, MTU, 0,
      true, 1, 0, 0, false, 0 },
    { "ahead-imm-placed", QRNIC_OP_RC_WRITE_ONLY_IMM, ALONE, 3, MTU, MTU, 0,
      true, 1, 0, 0, false, 0 },
    { "ahead-empty", QRNIC_OP_RC_WRITE_ONLY, ALONE, 1, 0, 0, 0,
      false, 1, 0, 0, false, 0 },
    { "ahead-wrong-key", QRNIC_OP_RC_WRITE_ONLY, ALONE, 3, MTU, MTU, 0x100000,
      false, 0, 1, 0, false, 0 },
    { "ahead-wrong-variant", QRNIC_OP_RC_WRITE_ONLY, ALONE, 3, MTU, MTU, 1,
      false, 0, 1, 0, false, 0 },
    { "ahead-length-differs", QRNIC_OP_RC_WRITE_ONLY, ALONE, 3, 2 * MTU, MTU, 0,
      false, 0, 1, 0, false, 0 },
    { "ahead-length-shorter", QRNIC_OP_RC_WRITE_ONLY, ALONE, 3, 8, MTU, 0,
      false, 0, 1, 0, false, 0 },
    { "ahead-longer-than-mtu", QRNIC_OP_RC_WRITE_ONLY, ALONE, 3, 2 * MTU,
      2 * MTU, 0, false, 0, 1, 0, false, 0 },
    { "ahead-first", QRNIC_OP_RC_WRITE_FIRST, ALONE, 3, MTU, MTU, 0,
      false, 0, 1, 0, false, 0 },
    { "ahead-send", QRNIC_OP_RC_SEND_ONLY, ALONE, 3, 0, MTU, 0,
      false, 0, 1, 0, false, 0 },
    { "ahead-not-alone", QRNIC_OP_RC_WRITE_ONLY, PLACES, 3, MTU, MTU, 0,
      false, 0, 1, 0, false, 0 },
    { "ahead-unmarked", QRNIC_OP_RC_WRITE_ONLY, 0, 3, MTU, MTU, 0,
      false, 0, 0, 1, false, 0 },
    { "ahead-more", QRNIC_OP_RC_WRITE_ONLY, MORE, 3, MTU, MTU, 0,
      true, 1, 0, 0, false, 0 },
    { "ahead-more-shorter", QRNIC_OP_RC_WRITE_ONLY, MORE, 3, 8, 8, 0,
      false, 0, 1, 0, false, 0 },
    /* Buffered because of bit 0; placing would need bit 3 */
    { "ahead-without-places", QRNIC_OP_RC_WRITE_ONLY,
      QRNIC_MARK_SELECTIVE | QRNIC_MARK_ADAPTIVE, 3, MTU, MTU, 0,
      false, 0, 1, 0, false, 0 },
    { "ahead-last-of-window", QRNIC_OP_RC_WRITE_ONLY, ALONE, 255, MTU, MTU, 0,
      true, 1, 0, 0, false, 0 },
    { "ahead-beyond-window", QRNIC_OP_RC_WRITE_ONLY, ALONE, 256, MTU, MTU, 0,
      false, 0, 0, 1, false, 0 },
    { "ahead-by-half", QRNIC_OP_RC_WRITE_ONLY, ALONE, 0x7fffff, MTU, MTU, 0,
      false, 0, 0, 1, false, 0 },
    { "long-ago", QRNIC_OP_RC_WRITE_ONLY, ALONE, 0xfffff0, MTU, MTU, 0,
      false, 0, 0, 0, false, 0 },
    { "in-turn", QRNIC_OP_RC_WRITE_ONLY, ALONE, 0, MTU, MTU, 0,
      true, 0, 0, 0, false, 1 },
    { "in-turn-more", QRNIC_OP_RC_WRITE_ONLY, MORE, 0, MTU, MTU, 0,
      true, 0, 0, 0, false, 0 },
    { "in-turn-more-shorter", QRNIC_OP_RC_WRITE_ONLY, MORE, 0, MTU - 1,
      MTU - 1, 0, false, 0, 0, 1, true, 0 },
    { "in-turn-more-without-places", QRNIC_OP_RC_WRITE_ONLY,
      QRNIC_MARK_MORE | QRNIC_MARK_ADAPTIVE, 0, 8, 8, 0,
      true, 0, 0, 0, false, 1 },
    { "in-turn-more-without-alone", QRNIC_OP_RC_WRITE_ONLY,
      QRNIC_MARK_MORE | PLACES, 0, MTU, MTU, 0, true, 0, 0, 0, false, 1 },
    { "in-turn-wrong-key", QRNIC_OP_RC_WRITE_ONLY, ALONE, 0, MTU, MTU, 0x100000,
      false, 0, 0, 1, true, 0 },
    { "in-turn-length-differs", QRNIC_OP_RC_WRITE_ONLY, ALONE, 0, 2 * MTU, MTU,
      0, false, 0, 0, 1, true, 0 },
    { "in-turn-first", QRNIC_OP_RC_WRITE_FIRST, ALONE, 0, MTU, MTU, 0,
      false, 0, 0, 1, true, 0 },
    { "in-turn-middle", QRNIC_OP_RC_WRITE_MIDDLE, ALONE, 0, MTU, MTU, 0,
      false, 0, 0, 1, true, 0 },
    { "in-turn-imm-with-more", QRNIC_OP_RC_WRITE_ONLY_IMM, MORE, 0, MTU, MTU,
      0, false, 0, 0, 1, true, 0 },
};

static QrnicTransport transport(Pair *p, const Crafted *k)
{
    return (QrnicTransport) {
        .opcode = k->opcode, .mark = k->mark, .pkey = 0xffff,
        .dest_qpn = p->b.qp->number,
        .psn = (PSN_A + 1 + k->ahead) & QRNIC_PSN_MASK,
        .va = p->b.addr, .rkey = p->b.key ^ k->key_flip, .dma_len = k->dma_len,
    };
}

static void test_crafted(gconstpointer opaque)
{
    const Crafted *k = opaque;
    Wire w = { 0 };
    Pair *p = adaptive_pair(&w, QRNIC_QPO_ADAPTIVE_ROUTING |
                            (k->mark & QRNIC_MARK_SELECTIVE ?
                             QRNIC_QPO_SELECTIVE_REPEAT : 0), false);
    uint8_t sent[2 * MTU];
    QrnicTransport t;
    uint64_t writes;

    acquaint(p, &w);
    memset(p->b.data, 0, 2 * MTU);
    memset(sent, 0x5a, sizeof(sent));
    writes = counter_b(p, QRNIC_COUNTER_RX_WRITE);
    t = transport(p, k);
    pair_inject(p, &p->b, &t, NULL, k->len);
    sim_run(p->sim, p->sim->now + SIM_US);
    g_assert_cmpint(k->len && !memcmp(p->b.data, sent, k->len), ==, k->written);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_PLACED_PACKETS), ==, k->placed);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_BUFFERED_PACKETS), ==, k->held);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_TX_NAK_SEQUENCE) +
                     counter_b(p, QRNIC_COUNTER_TX_NAK_ERROR), ==, k->naks);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_WRITE) - writes, ==,
                     k->writes);
    g_assert_cmpint(sim_query(p->b.qp).state == QRNIC_QPS_ERR, ==, k->refused);
    pair_free(p);
}

/*
 * Tests that without the option the responder treats each packet as a write of
 * its own.
 */
static void test_marks_without_option(void)
{
    const Crafted more = {
        .opcode = QRNIC_OP_RC_WRITE_ONLY, .mark = MORE, .dma_len = MTU,
    };
    Wire w = { 0 };
    Pair *p = adaptive_pair(&w, 0, false);
    QrnicTransport t;

    acquaint(p, &w);
    t = transport(p, &more);
    pair_inject(p, &p->b, &t, NULL, MTU);
    settle(p);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_WRITE), ==, 2);
    pair_free(p);
}

/*
 * Tests that any other packet between two packets of one write is invalid,
 * because the write would have no end.
 */
static void test_cut_short(void)
{
    static const uint8_t others[] = {
        QRNIC_OP_RC_WRITE_ONLY, QRNIC_OP_RC_SEND_ONLY, QRNIC_OP_RC_READ_REQUEST,
    };

    for (unsigned i = 0; i < ARRAY_SIZE(others); i++) {
        const Crafted more = {
            .opcode = QRNIC_OP_RC_WRITE_ONLY, .mark = MORE, .dma_len = MTU,
        }, other = {
            .opcode = others[i], .mark = PLACES, .ahead = 1, .dma_len = MTU,
        };
        Wire w = { 0 };
        Pair *p = adaptive_pair(&w, QRNIC_QPO_ADAPTIVE_ROUTING, false);
        QrnicTransport t;

        acquaint(p, &w);
        t = transport(p, &more);
        pair_inject(p, &p->b, &t, NULL, MTU);
        t = transport(p, &other);
        pair_inject(p, &p->b, &t, NULL, i < 2 ? MTU : 0);
        settle(p);
        expect_state(p->b.qp, QRNIC_QPS_ERR);
        g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_RX_WRITE), ==, 1);
        pair_free(p);
    }
}

/*
 * Tests that placed data stays, and that another packet with its PSN has no
 * effect. Otherwise a forged packet could replace data that was already
 * acknowledged.
 */
static void test_placed_once(void)
{
    const Crafted k = {
        .opcode = QRNIC_OP_RC_WRITE_ONLY, .mark = ALONE, .ahead = 1,
        .dma_len = MTU,
    };
    Wire w = { 0 };
    Pair *p = adaptive_pair(&w, QRNIC_QPO_ADAPTIVE_ROUTING, false);
    uint8_t other[MTU], sent[MTU];
    QrnicTransport t;

    acquaint(p, &w);
    t = transport(p, &k);
    memset(other, 0x11, sizeof(other));
    memset(sent, 0x5a, sizeof(sent));
    pair_inject(p, &p->b, &t, NULL, MTU);
    pair_inject(p, &p->b, &t, other, MTU);
    g_assert_cmpmem(p->b.data, MTU, sent, MTU);
    g_assert_cmpuint(counter_b(p, QRNIC_COUNTER_PLACED_PACKETS), ==, 1);
    pair_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/adaptive/packets", test_packets);
    g_test_add_func("/adaptive/one-end", test_one_end);
    g_test_add_func("/adaptive/reversed", test_reversed);
    g_test_add_func("/adaptive/worked-example", test_worked_example);
    g_test_add_func("/adaptive/gap", test_gap);
    g_test_add_func("/adaptive/marks-without-option",
                    test_marks_without_option);
    g_test_add_func("/adaptive/cut-short", test_cut_short);
    g_test_add_func("/adaptive/placed-once", test_placed_once);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        g_autofree char *path = g_strdup_printf("/adaptive/crafted/%s",
                                                cases[i].name);

        g_test_add_data_func(path, &cases[i], test_crafted);
    }
    return g_test_run();
}
