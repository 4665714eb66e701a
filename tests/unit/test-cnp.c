/*
 * Crafted CNPs: each CNP that breaks a rule of the manual is ignored and
 * counted.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pair.h"

#define BTH (QRNIC_ETH_LEN + QRNIC_IPV4_LEN + QRNIC_UDP_LEN)
#define RESERVED (BTH + QRNIC_BTH_LEN)
#define END (RESERVED + 16 + QRNIC_ICRC_LEN)
#define IP QRNIC_ETH_LEN
#define KEY 0x1122334455667788ull

typedef struct Frame {
    QrnicPathSpec spec;         /* Changed before the headers are made */
    uint32_t dest_qpn;
    uint8_t raw[512];
    size_t len;
} Frame;

/* A frame that breaks a rule, and the counter for it */
typedef struct Case {
    const char *rule;
    enum qrnic_counter why;
    bool no_ignored;            /* Not recognized as a CNP */
    bool keeps_icrc;            /* Keeps the old ICRC */
    void (*spec)(Frame *f, Pair *p);
    void (*change)(Frame *f, Pair *p);
} Case;

static void build(Frame *f)
{
    const QrnicTransport t = {
        .opcode = QRNIC_OP_CNP, .becn = true, .pkey = 0xffff,
        .dest_qpn = f->dest_qpn,
    };
    QrnicPath path;
    uint8_t *end;

    qrnic_path_init(&path, &f->spec);
    end = qrnic_packet_begin(&path, f->raw, &t, 0);
    f->len = qrnic_packet_finish(&path, f->raw, end, 0);
}

/* Corrects lengths, checksum and ICRC of a changed frame. */
static void mend(Frame *f)
{
    const QrnicHeaders h = qrnic_headers_walk(f->raw, f->len);
    uint8_t *ip = f->raw + h.ip;
    size_t len = f->len - h.ip;

    if (h.network == QRNIC_NET_IPV4) {
        uint32_t sum = 0;

        stw_be_p(ip + 2, len);
        stw_be_p(ip + 10, 0);
        stw_be_p(ip + 24, len - QRNIC_IPV4_LEN);
        for (unsigned i = 0; i < QRNIC_IPV4_LEN; i += 2) {
            sum += lduw_be_p(ip + i);
        }
        sum = (sum & 0xffff) + (sum >> 16);
        stw_be_p(ip + 10, ~(sum + (sum >> 16)));
    }
    stl_le_p(f->raw + f->len - 4,
             qrnic_icrc(QRNIC_ICRC_STANDARD, ip, len - 4, h.network));
}

static void no_qp(Frame *f, Pair *p)
{
    f->dest_qpn = 200;
}

static void qp0(Frame *f, Pair *p)
{
    f->dest_qpn = 0;
}

static void qp1(Frame *f, Pair *p)
{
    f->dest_qpn = 1;
}

static void multicast_qp(Frame *f, Pair *p)
{
    f->dest_qpn = 0xffffff;
}

static void other_source(Frame *f, Pair *p)
{
    f->spec.sgid[15] = 77;
}

/*
 * Changes the destination to another address of the node, which this connection
 * does not use.
 */
static void other_destination(Frame *f, Pair *p)
{
    QrnicGidEntry g = p->a.qp->node->gid;

    g.gid[15] = 99;
    g_assert_cmpint(qrnic_gid_set(p->a.qp->node->engine, 4, &g).status, ==,
                    QRNIC_ST_OK);
    f->spec.dgid[15] = 99;
}

static void other_vlan(Frame *f, Pair *p)
{
    f->spec.vlan = 0;
    f->spec.sgid[15] = 77;
}

static void version1(Frame *f, Pair *p)
{
    f->spec.v1 = true;
}

static void pkey(Frame *f, Pair *p)
{
    stw_be_p(f->raw + BTH + 2, 0x1234);
}

static void no_becn(Frame *f, Pair *p)
{
    f->raw[BTH + 4] = 0;
}

static void fecn_only(Frame *f, Pair *p)
{
    f->raw[BTH + 4] = 0x80;
}

static void psn(Frame *f, Pair *p)
{
    f->raw[BTH + 11] = 1;
}

static void psn_high(Frame *f, Pair *p)
{
    f->raw[BTH + 9] = 0x80;
}

static void reserved_first(Frame *f, Pair *p)
{
    f->raw[RESERVED] = 1;
}

static void reserved_last(Frame *f, Pair *p)
{
    f->raw[RESERVED + 15] = 0x80;
}

static void cut(Frame *f, Pair *p)
{
    f->len -= 4;
}

static void cut_all(Frame *f, Pair *p)
{
    f->len -= 16;
}

static void cut_byte(Frame *f, Pair *p)
{
    f->len--;
}

static void longer(Frame *f, Pair *p)
{
    memset(f->raw + f->len - 4, 0, 8);
    f->len += 4;
}

static void much_longer(Frame *f, Pair *p)
{
    memset(f->raw + f->len - 4, 0, 260);
    f->len += 256;
}

static void pad(Frame *f, Pair *p)
{
    f->raw[BTH + 1] |= 1 << 4;
}

static void version(Frame *f, Pair *p)
{
    f->raw[BTH + 1] |= 1;
}

static void opcode_below(Frame *f, Pair *p)
{
    f->raw[BTH] = 0x80;
}

static void opcode_above(Frame *f, Pair *p)
{
    f->raw[BTH] = 0x82;
}

static void reserved_operation(Frame *f, Pair *p)
{
    f->raw[BTH] = 0x91;
}

static void bad_icrc(Frame *f, Pair *p)
{
    f->raw[f->len - 1] ^= 1;
}

static void bad_checksum(Frame *f, Pair *p)
{
    f->raw[IP + 10] ^= 1;
}

static void udp_length(Frame *f, Pair *p)
{
    stw_be_p(f->raw + IP + 24, 12);
}

static void fragment(Frame *f, Pair *p)
{
    f->raw[IP + 6] = 0x20;
}

#define DROP(x) QRNIC_COUNTER_RX_DROP_##x

static const Case cases[] = {
    { "no-qp", DROP(NO_QP), .spec = no_qp },
    { "qp-0", DROP(NO_QP), .spec = qp0 },
    { "qp-1", DROP(NO_QP), .spec = qp1 },
    { "multicast-qp", DROP(NO_QP), .spec = multicast_qp },
    { "source-address", DROP(ADDRESS), .spec = other_source },
    { "destination-address", DROP(ADDRESS), .spec = other_destination },
    { "vlan-0-and-address", DROP(ADDRESS), .spec = other_vlan },
    { "pkey", DROP(PKEY), .change = pkey },
    { "no-becn", DROP(MALFORMED), .change = no_becn },
    { "fecn-for-becn", DROP(MALFORMED), .change = fecn_only },
    { "psn", DROP(MALFORMED), .change = psn },
    { "psn-high", DROP(MALFORMED), .change = psn_high },
    { "reserved-first", DROP(MALFORMED), .change = reserved_first },
    { "reserved-last", DROP(MALFORMED), .change = reserved_last },
    { "truncated", DROP(MALFORMED), true, .change = cut },
    { "truncated-to-bth", DROP(MALFORMED), true, .change = cut_all },
    { "truncated-by-byte", DROP(MALFORMED), true, .change = cut_byte },
    { "too-long", DROP(MALFORMED), true, .change = longer },
    { "much-too-long", DROP(MALFORMED), true, .change = much_longer },
    { "pad-count", DROP(MALFORMED), true, .change = pad },
    { "transport-version", DROP(MALFORMED), true, .change = version },
    { "opcode-below", DROP(OPCODE), true, .change = opcode_below },
    { "opcode-above", DROP(OPCODE), true, .change = opcode_above },
    { "operation", DROP(OPCODE), true, .change = reserved_operation },
    { "icrc", DROP(ICRC), true, true, .change = bad_icrc },
    { "payload-without-icrc", DROP(ICRC), true, true,
      .change = reserved_first },
    { "cut-on-the-wire", DROP(MALFORMED), true, true, .change = cut_byte },
    { "ip-checksum", DROP(MALFORMED), true, true, .change = bad_checksum },
    { "udp-length", DROP(MALFORMED), true, true, .change = udp_length },
};

static uint64_t counter(const Pair *p, enum qrnic_counter c)
{
    return sim_counter(p->a.qp->node, c);
}

static void react(SimNode *n)
{
    QrnicCongestionCtx c;

    g_assert_cmpint(qrnic_congestion_query(n->engine, &c).status, ==,
                    QRNIC_ST_OK);
    c.flags |= QRNIC_CONGESTION_RP | QRNIC_CONGESTION_NP;
    c.rp_rate_to_set_on_first_cnp = 1;
    c.rp_time_reset = 131071;
    g_assert_cmpint(qrnic_congestion_set(n->engine, &c).status, ==,
                    QRNIC_ST_OK);
}

static Frame frame_to(SimQp *q, SimQp *peer)
{
    return (Frame) {
        .spec = sim_path_to(q, peer), .dest_qpn = q->number,
    };
}

static void inject(SimQp *q, const Frame *f)
{
    sim_inject(q->node->sim, q->node->id, f->raw, f->len);
}

/* Returns true if the rate is low: at 1 Mbit/s this takes 87 ms. */
static bool is_slow(Pair *p)
{
    int64_t before = p->sim->now;
    uint64_t waits = counter(p, QRNIC_COUNTER_RATE_WAITS);

    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 10000);
    sim_run(p->sim, before + 50 * SIM_MS);
    if (counter(p, QRNIC_COUNTER_RATE_WAITS) == waits) {
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        return false;
    }
    expect_no_cqe(p->a.qp);
    sim_run(p->sim, before + 1000 * SIM_MS);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    return true;
}

static void check(Pair *p, enum qrnic_counter why, bool ignored,
                  void (*act)(Pair *p, const void *with), const void *with)
{
    uint64_t drops = counter(p, why);
    uint64_t before = counter(p, QRNIC_COUNTER_RP_CNP_IGNORED);

    act(p, with);
    g_assert_cmpuint(counter(p, why), ==, drops + 1);
    g_assert_cmpuint(counter(p, QRNIC_COUNTER_RP_CNP_IGNORED), ==,
                     before + ignored);
    g_assert_cmpuint(counter(p, QRNIC_COUNTER_RP_CNP_HANDLED), ==, 0);
}

static void act_inject(Pair *p, const void *with)
{
    inject(p->a.qp, with);
}

static void test_case(const void *opaque)
{
    const Case *c = opaque;
    Pair *p = pair_new(3, NULL, NULL);
    Frame f = frame_to(p->a.qp, p->b.qp), good = f;

    react(p->a.qp->node);
    build(&good);
    if (c->spec) {
        c->spec(&f, p);
    }
    build(&f);
    if (c->change) {
        c->change(&f, p);
        if (!c->keeps_icrc) {
            mend(&f);
        }
    }
    check(p, c->why, !c->no_ignored, act_inject, &f);
    g_assert_false(is_slow(p));
    /* This CNP is valid. */
    inject(p->a.qp, &good);
    g_assert_cmpuint(counter(p, QRNIC_COUNTER_RP_CNP_HANDLED), ==, 1);
    g_assert_true(is_slow(p));
    pair_free(p);
}

/*
 * Tests that the transport ignores fragments, because the headers could be
 * incomplete.
 */
static void test_fragment(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    Frame f = frame_to(p->a.qp, p->b.qp);

    react(p->a.qp->node);
    build(&f);
    fragment(&f, p);
    mend(&f);
    inject(p->a.qp, &f);
    g_assert_cmpuint(counter(p, QRNIC_COUNTER_RP_CNP_HANDLED), ==, 0);
    g_assert_false(is_slow(p));
    pair_free(p);
}

/* RoCE v1 has no ECN, because ECN belongs to IP. */
static void test_version1(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    Frame f = frame_to(p->a.qp, p->b.qp);
    QrnicGidEntry v1 = p->a.qp->node->gid;

    react(p->a.qp->node);
    v1.flags |= QRNIC_GID_ROCE_V1;
    if (qrnic_gid_set(p->a.qp->node->engine, 4, &v1).status == QRNIC_ST_OK) {
        version1(&f, p);
        build(&f);
        check(p, DROP(OPCODE), true, act_inject, &f);
    }
    g_assert_false(is_slow(p));
    pair_free(p);
}

/*
 * Tests that a CNP is dropped in the states in which a queue pair does not
 * send: ERR, RESET and INIT.
 */
static void test_state(void)
{
    for (int what = 0; what < 3; what++) {
        Pair *p = pair_new(3, NULL, NULL);
        Frame f = frame_to(p->a.qp, p->b.qp);
        QrnicQpAttr attr = {
            .mask = QRNIC_QP_STATE,
            .state = what ? QRNIC_QPS_RESET : QRNIC_QPS_ERR,
        };

        react(p->a.qp->node);
        g_assert_cmpint(sim_modify(p->a.qp, &attr).status, ==, QRNIC_ST_OK);
        if (what == 2) {
            attr = sim_attr_init();
            g_assert_cmpint(sim_modify(p->a.qp, &attr).status, ==,
                            QRNIC_ST_OK);
        }
        build(&f);
        check(p, DROP(QP_STATE), true, act_inject, &f);
        pair_free(p);
    }
}

/* Datagrams have no rate. */
static void test_datagram(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    SimQp *q = sim_datagram_new(p->a.qp->node, QRNIC_QPT_UD, NULL, 5);
    Frame f = frame_to(q, p->b.qp);

    react(p->a.qp->node);
    build(&f);
    check(p, DROP(OPCODE), true, act_inject, &f);
    sim_qp_free(q);
    pair_free(p);
}

/* Tests that a marked CNP is followed and causes no CNP. */
static void test_marked(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    Frame f = frame_to(p->a.qp, p->b.qp);

    react(p->a.qp->node);
    f.spec.traffic_class = QRNIC_ECN_CE;
    build(&f);
    inject(p->a.qp, &f);
    g_assert_cmpuint(counter(p, QRNIC_COUNTER_RP_CNP_HANDLED), ==, 1);
    sim_run(p->sim, p->sim->now + SIM_MS);
    g_assert_cmpuint(counter(p, QRNIC_COUNTER_NP_CNP_SENT), ==, 0);
    g_assert_cmpuint(counter(p, QRNIC_COUNTER_NP_ECN_MARKED_ROCE_PACKETS), ==,
                     0);
    pair_free(p);
}

/*
 * Tests that a dropped packet with a mark causes no CNP, because its sender is
 * not verified.
 */
static void test_forged_mark(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    const QrnicTransport t = {
        .opcode = QRNIC_OP_RC_SEND_ONLY, .pkey = 0xffff,
        .dest_qpn = p->a.qp->number, .psn = 0xabcdef,
    };

    react(p->a.qp->node);
    for (int what = 0; what < 3; what++) {
        QrnicPathSpec s = sim_path_to(p->a.qp, p->b.qp);
        QrnicPath path;
        uint8_t frame[256], *end;
        size_t len;

        s.traffic_class = what == 2 ? QRNIC_ECN_ECT0 : QRNIC_ECN_CE;
        s.sgid[15] += what == 0;
        qrnic_path_init(&path, &s);
        end = qrnic_packet_begin(&path, frame, &t, 0);
        len = qrnic_packet_finish(&path, frame, end, 0);
        frame[len - 1] ^= what == 1;
        sim_inject(p->sim, 0, frame, len);
        sim_run(p->sim, p->sim->now + SIM_MS);
        g_assert_cmpuint(counter(p, QRNIC_COUNTER_NP_CNP_SENT), ==, 0);
    }
    pair_free(p);
}

/*
 * Tests that a flood needs one state and one timer, and the rate has a minimum.
 */
static void test_flood(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    Frame f = frame_to(p->a.qp, p->b.qp);

    react(p->a.qp->node);
    build(&f);
    for (int i = 0; i < 10000; i++) {
        inject(p->a.qp, &f);
        sim_run(p->sim, p->sim->now + i % 7 * 100);
    }
    g_assert_cmpuint(counter(p, QRNIC_COUNTER_RP_CNP_HANDLED), ==, 10000);
    g_assert_true(is_slow(p));
    pair_free(p);
}

/*
 * Dynamic connections: a responder of the target knows its peer; the target
 * itself does not.
 */
typedef struct Seen {
    unsigned cnps;
    uint32_t to;
} Seen;

static bool watch(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                  void *opaque)
{
    Seen *seen = opaque;
    QrnicPacket p;

    if (sim_parse(&p, frame, len) == QRNIC_PARSE_OK &&
        p.t.opcode == QRNIC_OP_CNP) {
        g_assert_cmpuint(from, ==, 1);
        seen->cnps++;
        seen->to = p.t.dest_qpn;
    }
    return true;
}

static bool mark_all(Sim *s, unsigned from, const uint8_t *frame, size_t len)
{
    return true;
}

static void test_dynamic(void)
{
    Sim *s = sim_new(4, NULL);
    SimNode *a = &s->node[0], *b = &s->node[1];
    SimSrq *srq = sim_srq_new(b, 4, 0);
    QrnicDynamicAttr target = { .access_key = KEY, .responders = 4 };
    QrnicDynamicAttr initiator = { .idle = 10 };
    SimQp *to = sim_dynamic_new(b, srq, &target);
    SimQp *q = sim_dynamic_new(a, NULL, &initiator);
    QrnicDynamicSeg seg;
    uint64_t local = sim_alloc(a, 65536), remote = sim_alloc(b, 65536);
    SimSge sge = { local, 65536, sim_mkey(a, local, 65536, ACCESS_ALL) };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = remote, .dynamic = &seg,
        .rkey = sim_mkey(b, remote, 65536, ACCESS_ALL),
    };
    Seen seen = { 0 };
    QrnicCongestionCtx c;
    Frame f;

    sim_dynamic_start(to, NULL);
    sim_dynamic_start(q, NULL);
    seg = sim_dynamic_to(to, KEY);
    qrnic_congestion_query(a->engine, &c);
    c.flags |= QRNIC_CONGESTION_NP | QRNIC_CONGESTION_RP |
               QRNIC_CONGESTION_ECT;
    c.rp_max_rate = 1000;
    g_assert_cmpint(qrnic_congestion_set(a->engine, &c).status, ==, 0);
    g_assert_cmpint(qrnic_congestion_set(b->engine, &c).status, ==, 0);
    s->tap = watch;
    s->tap_opaque = &seen;
    s->marks = mark_all;
    for (int i = 0; i < 2; i++) {
        sim_post_send(q, &wr);
        sim_run(s, s->now + 2 * SIM_MS);
        expect_cqe(q, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    /* The second message is sent at the rate after the first CNP. */
    g_assert_cmpuint(seen.cnps, >, 2);
    g_assert_cmpuint(seen.to, ==, q->number);
    g_assert_cmpuint(sim_counter(a, QRNIC_COUNTER_RP_CNP_HANDLED), ==,
                     seen.cnps);
    g_assert_cmpuint(sim_counter(b, QRNIC_COUNTER_RP_CNP_IGNORED), ==, 0);
    f = frame_to(to, q);
    build(&f);
    inject(to, &f);
    g_assert_cmpuint(sim_counter(b, QRNIC_COUNTER_RP_CNP_IGNORED), ==, 1);
    /* The source of this CNP is not the peer of the current connection. */
    f = frame_to(q, to);
    f.spec.sgid[15] = 99;
    build(&f);
    inject(q, &f);
    g_assert_cmpuint(sim_counter(a, QRNIC_COUNTER_RP_CNP_IGNORED), ==, 1);
    g_assert_cmpuint(sim_counter(a, DROP(ADDRESS)), ==, 1);
    sim_qp_free(q);
    sim_qp_free(to);
    sim_srq_free(srq);
    sim_free(s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        g_autofree char *name = g_strdup_printf("/cnp/frame/%s",
                                                cases[i].rule);

        g_test_add_data_func(name, &cases[i], test_case);
    }
    g_test_add_func("/cnp/frame/fragment", test_fragment);
    g_test_add_func("/cnp/frame/roce-v1", test_version1);
    g_test_add_func("/cnp/state", test_state);
    g_test_add_func("/cnp/datagram", test_datagram);
    g_test_add_func("/cnp/marked", test_marked);
    g_test_add_func("/cnp/forged-mark", test_forged_mark);
    g_test_add_func("/cnp/flood", test_flood);
    g_test_add_func("/cnp/dynamic", test_dynamic);
    return g_test_run();
}
