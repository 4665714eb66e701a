/*
 * Congestion control: ECN marks, CNPs, and the resulting rates, compared with
 * the equations of the manual in floating point
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/qp/qp_private.h"
#include "pair.h"

#define CNP_FRAME (QRNIC_ETH_LEN + QRNIC_IPV4_LEN + QRNIC_UDP_LEN + \
                   QRNIC_BTH_LEN + 16 + QRNIC_ICRC_LEN)
#define BOTH (QRNIC_CONGESTION_NP | QRNIC_CONGESTION_RP | QRNIC_CONGESTION_ECT)
#define MICRO (1 / 1e6)
#define NANO (1 / 1e9)
#define BURST (10 * MICRO)      /* Value of the manual */

static QrnicCongestionCtx parameters(SimNode *n)
{
    QrnicCongestionCtx c;

    g_assert_cmpint(qrnic_congestion_query(n->engine, &c).status, ==,
                    QRNIC_ST_OK);
    return c;
}

static void set(SimNode *n, const QrnicCongestionCtx *c)
{
    g_assert_cmpint(qrnic_congestion_set(n->engine, c).status, ==,
                    QRNIC_ST_OK);
}

static void flags_set(SimNode *n, uint8_t flags)
{
    QrnicCongestionCtx c = parameters(n);

    c.flags |= flags;
    set(n, &c);
}

static uint64_t counted(const SimQp *q, enum qrnic_counter c)
{
    return sim_counter(q->node, c);
}

static void settle(Sim *s)
{
    g_assert_true(sim_run(s, s->now + 10000 * SIM_MS));
}

static void end_init(PairEnd *e, SimNode *n)
{
    e->qp = sim_uc_new(n, NULL);
    e->addr = sim_alloc(n, PAIR_BYTES);
    e->data = n->memory + e->addr;
    e->key = sim_mkey(n, e->addr, PAIR_BYTES, ACCESS_ALL);
}

/* Makes unreliable connections, because these send no ACKs. */
static Pair *uc_pair_new(void)
{
    Pair *p = g_new0(Pair, 1);

    p->sim = sim_new(31, NULL);
    end_init(&p->a, &p->sim->node[0]);
    end_init(&p->b, &p->sim->node[1]);
    sim_uc_connect(p->a.qp, p->b.qp);
    pair_fill(p);
    return p;
}

/* Makes a CNP of the peer of q. */
static size_t cnp_build(uint8_t *frame, const QrnicPathSpec *spec,
                        uint32_t dest_qpn)
{
    const QrnicTransport t = {
        .opcode = QRNIC_OP_CNP, .becn = true, .pkey = 0xffff,
        .dest_qpn = dest_qpn,
    };
    QrnicPath path;
    uint8_t *end;

    qrnic_path_init(&path, spec);
    end = qrnic_packet_begin(&path, frame, &t, 0);
    return qrnic_packet_finish(&path, frame, end, 0);
}

static void cnp_inject(SimQp *q, SimQp *peer)
{
    const QrnicPathSpec spec = sim_path_to(q, peer);
    uint8_t frame[256];

    sim_inject(q->node->sim, q->node->id, frame,
               cnp_build(frame, &spec, q->number));
}

/* Frames on the wire */

typedef struct Seen {
    unsigned frames, cnps, ect0, ce, dscp;
    int64_t last_cnp, shortest;         /* Times of CNPs of node 1 */
    int64_t last;               /* Time of the last other frame */
    uint8_t cnp[256];
    size_t cnp_len;
} Seen;

static bool watch(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                  void *opaque)
{
    const QrnicHeaders h = qrnic_headers_walk(frame, len);
    Seen *seen = opaque;
    QrnicPacket p;

    g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
    seen->frames++;
    if (p.t.opcode == QRNIC_OP_CNP) {
        if (seen->cnps++) {
            seen->shortest = MIN(seen->shortest, s->now - seen->last_cnp);
        }
        seen->last_cnp = s->now;
        seen->cnp_len = len;
        memcpy(seen->cnp, frame, MIN(len, sizeof(seen->cnp)));
        g_assert_cmphex(h.traffic_class, ==, 48 << 2);
    } else {
        g_assert_false(p.t.fecn || p.t.becn);
        seen->ect0 += (h.traffic_class & 3) == 2;
        seen->dscp = h.traffic_class >> 2;
        seen->last = s->now;
    }
    return true;
}

static bool mark_all(Sim *s, unsigned from, const uint8_t *frame, size_t len)
{
    return from == 0;
}

static void watch_begin(Sim *s, Seen *seen)
{
    *seen = (Seen) { .shortest = INT64_MAX };
    s->tap = watch;
    s->tap_opaque = seen;
    s->marks = mark_all;
}

static void write_all(Pair *p, unsigned count, uint32_t len)
{
    for (unsigned i = 0; i < count; i++) {
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, len);
    }
}

/*
 * Tests that packets have no ECT and marks have no effect with the reset
 * values.
 */
static void test_off(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    Seen seen;

    watch_begin(p->sim, &seen);
    g_assert_cmphex(parameters(p->a.qp->node).flags, ==,
                    QRNIC_CONGESTION_CLAMP_TGT_RATE_ATI);
    write_all(p, 1, 65536);
    settle(p->sim);
    g_assert_cmpuint(seen.frames, >, 64);
    g_assert_cmpuint(seen.ect0, ==, 0);
    g_assert_cmpuint(seen.cnps, ==, 0);
    cnp_inject(p->a.qp, p->b.qp);
    write_all(p, 1, 65536);
    settle(p->sim);
    g_assert_cmpuint(counted(p->a.qp, QRNIC_COUNTER_RP_CNP_IGNORED), ==, 1);
    g_assert_cmpuint(counted(p->a.qp, QRNIC_COUNTER_RP_CNP_HANDLED), ==, 0);
    g_assert_cmpuint(counted(p->a.qp, QRNIC_COUNTER_RATE_WAITS), ==, 0);
    g_assert_cmpuint(counted(p->b.qp,
                             QRNIC_COUNTER_NP_ECN_MARKED_ROCE_PACKETS), ==, 0);
    pair_free(p);
}

/*
 * Tests that a marked packet to a queue pair that is no notification point
 * causes no CNP.
 */
static void test_no_np(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    Seen seen;

    watch_begin(p->sim, &seen);
    flags_set(p->a.qp->node, BOTH);
    write_all(p, 1, 65536);
    settle(p->sim);
    g_assert_cmpuint(seen.ect0, ==, 64);
    g_assert_cmpuint(seen.cnps, ==, 0);
    pair_free(p);
}

/*
 * Moves both queue pairs from RESET to RTS, with this traffic class and
 * priority.
 */
static void connect_with(Pair *p, uint8_t traffic_class, uint8_t sl)
{
    for (unsigned i = 0; i < 2; i++) {
        SimQp *q = i ? p->b.qp : p->a.qp, *to = i ? p->a.qp : p->b.qp;
        QrnicQpAttr a = sim_attr_init();

        g_assert_cmpint(sim_modify(q, &a).status, ==, QRNIC_ST_OK);
        a = sim_attr_rtr(q, to);
        a.av.traffic_class = traffic_class;
        a.av.sl = sl;
        g_assert_cmpint(sim_modify(q, &a).status, ==, QRNIC_ST_OK);
        a = sim_attr_rts();
        g_assert_cmpint(sim_modify(q, &a).status, ==, QRNIC_ST_OK);
    }
}

/* Tests that ECT changes with the flag and keeps the DSCP. */
static void one_ect(const SimOptions *o)
{
    Pair *p = pair_new(1, o, &(SimConnect) { 0 });
    Seen seen;

    p->sim->tap = watch;
    p->sim->tap_opaque = &seen;
    connect_with(p, 26 << 2 | 1, 0);
    for (unsigned round = 0; round < 4; round++) {
        QrnicCongestionCtx c = parameters(p->a.qp->node);

        c.flags = round & 1 ? QRNIC_CONGESTION_ECT : 0;
        set(p->a.qp->node, &c);
        set(p->b.qp->node, &c);
        seen = (Seen) { 0 };
        write_all(p, 1, 10000);
        settle(p->sim);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        g_assert_cmpuint(seen.frames, >, 10);
        g_assert_cmpuint(seen.ect0, ==, round & 1 ? seen.frames : 0);
        g_assert_cmpuint(seen.dscp, ==, 26);
    }
    pair_free(p);
}

static void test_ect(void)
{
    const SimOptions v4 = { 0 }, v6 = { .ipv6 = true };
    const SimOptions vlan = { .ipv6 = true, .vlan = true };

    one_ect(&v4);
    one_ect(&v6);
    one_ect(&vlan);
}

/* Datagrams have the traffic class of their address vector. */
static void test_datagram(void)
{
    Sim *s = sim_new(2, NULL);
    SimQp *a = sim_datagram_new(&s->node[0], QRNIC_QPT_UD, NULL, 5);
    SimQp *b = sim_datagram_new(&s->node[1], QRNIC_QPT_UD, NULL, 5);
    QrnicDatagramSeg to = sim_datagram_to(b, 5);
    SimWr wr = { .opcode = QRNIC_WQE_SEND, .datagram = &to };
    Seen seen;

    flags_set(a->node, BOTH);
    flags_set(b->node, BOTH);
    watch_begin(s, &seen);
    sim_post_send(a, &wr);
    settle(s);
    g_assert_cmpuint(seen.ect0, ==, 0);
    to.av.traffic_class = QRNIC_ECN_ECT0;
    sim_post_send(a, &wr);
    settle(s);
    g_assert_cmpuint(seen.ect0, ==, 1);
    g_assert_cmpuint(counted(b, QRNIC_COUNTER_NP_ECN_MARKED_ROCE_PACKETS), ==,
                     1);
    g_assert_cmpuint(seen.cnps, ==, 0);
    sim_qp_free(a);
    sim_qp_free(b);
    sim_free(s);
}

/* Marks each frame, and sends frames for 100 microseconds. */
static void one_interval(uint16_t interval)
{
    Pair *p = uc_pair_new();
    QrnicCongestionCtx c = parameters(p->b.qp->node);
    QrnicQpAttr limit = {
        .mask = QRNIC_QP_RATE_LIMIT, .rate_limit = 10000000,
        .max_burst_sz = 1,
    };
    unsigned most;
    Seen seen;

    watch_begin(p->sim, &seen);
    flags_set(p->a.qp->node, QRNIC_CONGESTION_ECT);
    c.flags |= QRNIC_CONGESTION_NP;
    c.np_min_time_between_cnps = interval;
    set(p->b.qp->node, &c);
    g_assert_cmpint(sim_modify(p->a.qp, &limit).status, ==, QRNIC_ST_OK);
    write_all(p, 1, 128 * 1024);
    settle(p->sim);
    g_assert_cmpuint(counted(p->b.qp,
                             QRNIC_COUNTER_NP_ECN_MARKED_ROCE_PACKETS), ==,
                     128);
    g_assert_cmpuint(counted(p->b.qp, QRNIC_COUNTER_NP_CNP_SENT), ==,
                     seen.cnps);
    g_assert_cmpint(seen.shortest, >=, interval * SIM_US);
    /* 128 frames of 0.872 us; the first frame causes a CNP at once. */
    most = interval ? 112 / interval + 1 : 128;
    g_assert_cmpuint(seen.cnps, <=, most);
    g_assert_cmpuint(seen.cnps, >=, most * 3 / 4);
    g_assert_cmpuint(counted(p->a.qp, QRNIC_COUNTER_RP_CNP_IGNORED), ==,
                     seen.cnps);
    pair_free(p);
}

static void test_interval(void)
{
    one_interval(0);
    one_interval(4);
    one_interval(10);
    one_interval(50);
    one_interval(4095);
}

/* Tests that each queue pair has its own interval: two cause twice the CNPs. */
static void test_interval_each(void)
{
    Pair *p = uc_pair_new();
    PairEnd a = p->a, b = p->b;
    Seen seen;

    a.qp = sim_uc_new(p->a.qp->node, NULL);
    b.qp = sim_uc_new(p->b.qp->node, NULL);
    sim_uc_connect(a.qp, b.qp);
    watch_begin(p->sim, &seen);
    flags_set(a.qp->node, QRNIC_CONGESTION_ECT);
    flags_set(b.qp->node, QRNIC_CONGESTION_NP);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 1024);
    post(&a, &b, QRNIC_WQE_RDMA_WRITE, 0, 0, 1024);
    settle(p->sim);
    g_assert_cmpuint(seen.cnps, ==, 2);
    sim_qp_free(a.qp);
    sim_qp_free(b.qp);
    pair_free(p);
}

/* Tests that a CNP waits for the wire like other frames, and stays one CNP. */
static void test_wire_busy(void)
{
    Pair *p = pair_new(5, NULL, NULL);
    Seen seen;

    watch_begin(p->sim, &seen);
    flags_set(p->a.qp->node, QRNIC_CONGESTION_ECT);
    flags_set(p->b.qp->node, QRNIC_CONGESTION_NP);
    p->sim->wire_room = 1;
    p->sim->wire_pause = 5 * SIM_US;
    write_all(p, 4, 65536);
    settle(p->sim);
    for (int i = 0; i < 4; i++) {
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    g_assert_cmpuint(seen.cnps, >, 10);
    g_assert_cmpuint(seen.cnps, ==,
                     counted(p->b.qp, QRNIC_COUNTER_NP_CNP_SENT));
    pair_free(p);
}

/* Tests that a connection after a reset has sent no CNP yet. */
static void test_interval_reset(void)
{
    Pair *p = pair_new(5, NULL, &(SimConnect) { 0 });
    QrnicCongestionCtx c = parameters(p->b.qp->node);
    QrnicQpAttr reset = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };
    int64_t before = p->sim->now;
    Seen seen;

    watch_begin(p->sim, &seen);
    flags_set(p->a.qp->node, QRNIC_CONGESTION_ECT);
    c.flags |= QRNIC_CONGESTION_NP;
    c.np_min_time_between_cnps = 4095;
    set(p->b.qp->node, &c);
    for (unsigned i = 1; i <= 2; i++) {
        connect_with(p, 0, 0);
        write_all(p, 2, 1024);
        settle(p->sim);
        g_assert_cmpuint(seen.cnps, ==, i);
        g_assert_cmpint(sim_modify(p->a.qp, &reset).status, ==, QRNIC_ST_OK);
        g_assert_cmpint(sim_modify(p->b.qp, &reset).status, ==, QRNIC_ST_OK);
    }
    g_assert_cmpint(p->sim->now - before, <, 4095 * SIM_US);
    pair_free(p);
}

/*
 * Tests that the VLAN priority of a CNP is that of the parameters or that of
 * the connection.
 */
static void test_priority(void)
{
    const SimOptions vlan = { .vlan = true };
    Pair *p = pair_new(5, &vlan, &(SimConnect) { 0 });
    Seen seen;

    watch_begin(p->sim, &seen);
    connect_with(p, 0, 5);
    flags_set(p->a.qp->node, QRNIC_CONGESTION_ECT);
    for (unsigned i = 0; i < 2; i++) {
        QrnicCongestionCtx c = parameters(p->b.qp->node);

        c.flags |= QRNIC_CONGESTION_NP;
        c.flags |= i ? QRNIC_CONGESTION_CNP_PRIO_FLOW : 0;
        c.np_cnp_prio = 3;
        c.np_min_time_between_cnps = 0;
        set(p->b.qp->node, &c);
        write_all(p, 1, 1024);
        settle(p->sim);
        g_assert_cmpuint(seen.cnps, ==, i + 1);
        g_assert_cmphex(lduw_be_p(seen.cnp + 12), ==, 0x8100);
        g_assert_cmphex(lduw_be_p(seen.cnp + 14), ==, (i ? 5 : 3) << 13 | 42);
    }
    pair_free(p);
}

/* Tests the bytes of a CNP, which are computed by hand. */
static void test_format(void)
{
    static const uint8_t expected[CNP_FRAME] = {
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00,
        0x45, 0xc0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0,
        10, 0, 0, 2, 10, 0, 0, 1,
        0, 0, 0x12, 0xb7, 0, 40, 0, 0,
        0x81, 0x40, 0xff, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0,
    };
    Pair *p = uc_pair_new();
    uint8_t frame[CNP_FRAME];
    Seen seen;

    watch_begin(p->sim, &seen);
    flags_set(p->a.qp->node, QRNIC_CONGESTION_ECT);
    flags_set(p->b.qp->node, QRNIC_CONGESTION_NP);
    write_all(p, 1, 1024);
    settle(p->sim);
    g_assert_cmpuint(seen.cnps, ==, 1);
    g_assert_cmpuint(seen.cnp_len, ==, CNP_FRAME);
    memcpy(frame, expected, sizeof(frame));
    memcpy(frame + 24, seen.cnp + 24, 2);       /* Checksum, parsed above */
    memcpy(frame + 34, seen.cnp + 34, 2);       /* Source port */
    stl_be_p(frame + 46, 0x40000000 | p->a.qp->number);
    memcpy(frame + CNP_FRAME - 4, seen.cnp + CNP_FRAME - 4, 4);
    g_assert_cmpmem(seen.cnp, CNP_FRAME, frame, CNP_FRAME);
    pair_free(p);
}

/* The equations of the manual. Rates are in bit/s, times in seconds. */

typedef struct Model {
    const QrnicCongestionCtx *p;
    bool limited;
    double now, current, target, alpha, level;  /* level: bits not paid yet */
    double alpha_at, increase_at, monitor_end;
    /* Time since a frame may be sent; < 0: none may */
    double may_since;
    bool marked, owed;
    unsigned t, b, bytes;
    unsigned frames, decreases, fast, additive, hyper;
    double lowest, late, early;
} Model;

static double highest(const Model *m)
{
    return m->p->rp_max_rate * 1e6;
}

static void model_alpha(Model *m, double now)
{
    double g = m->p->rp_dce_tcp_g / 1024.0;
    double period = m->p->rp_dce_tcp_rtt * MICRO;

    while (now - m->alpha_at >= period - NANO / 1000) {
        m->alpha = g * m->alpha + (1 - g) * m->marked;
        m->marked = false;
        m->alpha_at += period;
    }
}

static void model_restart(Model *m)
{
    m->t = m->b = m->bytes = 0;
    m->owed = false;
    m->monitor_end = m->now + m->p->rp_rate_reduce_monitor_period * MICRO;
    m->increase_at = m->now + m->p->rp_time_reset * MICRO;
}

/*
 * Changes the rate. The number of bits that may be sent at once is unchanged.
 */
static void model_rate(Model *m, double rate)
{
    m->level = MAX(0, m->level + (rate - m->current) * BURST);
    m->current = rate;
}

static void model_decrease(Model *m)
{
    uint8_t flags = m->p->flags;
    double rate;

    model_alpha(m, m->now);
    if (m->b || flags & QRNIC_CONGESTION_CLAMP_TGT_RATE ||
        (m->t && flags & QRNIC_CONGESTION_CLAMP_TGT_RATE_ATI)) {
        m->target = m->current;
    }
    rate = m->current * (1 - m->alpha * 1024 / (1 << m->p->rp_gd));
    rate = MAX(rate, m->current * m->p->rp_min_dec_fac / 100);
    rate = MAX(rate, m->p->rp_min_rate * 1e6);
    model_rate(m, MIN(rate, m->current));
    m->lowest = MIN(m->lowest, m->current);
    m->decreases++;
    model_restart(m);
}

static void model_increase(Model *m, unsigned *stage)
{
    unsigned f = m->p->rp_threshold;

    if (MAX(m->t, m->b) < f) {
        m->fast++;
    } else if (MIN(m->t, m->b) > f) {
        m->target += m->p->rp_hai_rate * 1e6;
        m->hyper++;
    } else {
        m->target += m->p->rp_ai_rate * 1e6;
        m->additive++;
    }
    m->target = MIN(m->target, highest(m));
    model_rate(m, (m->current + m->target) / 2);
    ++*stage;
    m->limited = m->current <= highest(m) - 1e6;
}

/* Updates the state after a change of level or rate. */
static void model_look(Model *m)
{
    if (m->level > m->current * BURST) {
        m->may_since = -1;
    } else if (m->may_since < 0) {
        m->may_since = m->now;
    }
}

static void model_drain(Model *m, double to)
{
    double over = m->level - m->current * BURST;

    if (m->may_since < 0 && over <= m->current * (to - m->now)) {
        m->may_since = m->now + over / m->current;
    }
    m->level = MAX(0, m->level - m->current * (to - m->now));
    m->now = to;
}

static void model_advance(Model *m, double to)
{
    while (m->limited) {
        double next = m->increase_at;

        if (m->owed) {
            next = MIN(next, m->monitor_end);
        }
        if (next > to + NANO / 10) {        /* The clock counts nanoseconds */
            break;
        }
        model_drain(m, next);
        if (m->owed && m->monitor_end <= next) {
            model_decrease(m);
        } else {
            m->increase_at += m->p->rp_time_reset * MICRO;
            model_increase(m, &m->t);
        }
        model_look(m);
    }
    model_drain(m, to);
}

static void model_cnp(Model *m, double now)
{
    model_advance(m, now);
    if (!m->limited) {
        m->limited = true;
        m->current = m->target = highest(m);
        m->alpha = m->p->rp_initial_alpha_value / 1024.0;
        m->alpha_at = now;
        m->marked = false;
        m->t = m->b = 0;
        if (m->p->rp_rate_to_set_on_first_cnp) {
            m->current = m->target = m->p->rp_rate_to_set_on_first_cnp * 1e6;
            model_restart(m);
        } else {
            model_decrease(m);
        }
        m->level = m->current * BURST;          /* Rounding errors end here */
        return;
    }
    model_alpha(m, now);
    m->marked = true;
    if (now < m->monitor_end) {
        m->owed = true;
    } else {
        model_decrease(m);
        model_look(m);
    }
}

/*
 * Asserts that each frame is sent neither before the rate allows it nor later.
 * The sender always has more frames.
 */
static bool model_frame(Sim *s, unsigned from, const uint8_t *frame,
                        size_t len, void *opaque)
{
    Model *m = opaque;
    double over, frame_bits = len * 8;

    if (from || !m->p) {
        return true;
    }
    model_advance(m, s->now * NANO);
    if (!m->limited) {
        return true;
    }
    over = (m->level - m->current * BURST) / frame_bits;
    m->early = MAX(m->early, over);
    if (m->frames++ && over < 0) {
        g_assert_cmpfloat(m->may_since, >=, 0);
        m->late = MAX(m->late, (m->now - m->may_since) * m->current /
                               frame_bits);
    }
    m->level += frame_bits;
    m->may_since = -1;
    model_look(m);
    m->bytes += len;
    if (m->bytes >= m->p->rp_byte_reset) {
        m->bytes %= m->p->rp_byte_reset;
        model_increase(m, &m->b);
        model_look(m);
    }
    return true;
}

typedef struct Course {
    QrnicCongestionCtx p;
    int64_t until;
    unsigned count;
    int64_t cnp[16];            /* Times in ns; later rounds repeat the last */
    int64_t then_each;
    bool fast, additive, hyper, ends;
    double lowest;
} Course;

static void run_course(const Course *c)
{
    Pair *p = uc_pair_new();
    Sim *s = p->sim;
    int64_t start = s->now, at;
    Model m = { .p = &c->p, .now = start * NANO, .lowest = 1e12 };

    set(p->a.qp->node, &c->p);
    s->tap = model_frame;
    s->tap_opaque = &m;
    for (unsigned i = 0; i < c->count || c->then_each; i++) {
        at = i < c->count ? c->cnp[i] :
             c->cnp[c->count - 1] + c->then_each * (i - c->count + 1);
        if (at > c->until) {
            break;
        }
        if (i) {
            g_assert_false(sim_run(s, start + at));
        }
        model_cnp(&m, s->now * NANO);
        cnp_inject(p->a.qp, p->b.qp);
        if (!i) {
            write_all(p, 40, PAIR_BYTES / 2);
        }
    }
    sim_run(s, start + c->until);
    model_advance(&m, s->now * NANO);
    g_test_message("frames %u decreases %u fast %u additive %u hyper %u "
                   "lowest %.0f current %.0f early %g late %g", m.frames,
                   m.decreases, m.fast, m.additive, m.hyper, m.lowest,
                   m.current, m.early, m.late);
    g_assert_cmpuint(m.frames, >, 15);
    /*
     * The limits are in frames. Each rate is rounded to a nanosecond once, and
     * alpha is rounded too.
     */
    g_assert_cmpfloat(m.early, <, 0.01);
    g_assert_cmpfloat(m.late, <, 0.01);
    g_assert_true(!!m.fast >= c->fast);
    g_assert_true(!!m.additive >= c->additive);
    g_assert_true(!!m.hyper >= c->hyper);
    g_assert_cmpint(m.limited, ==, !c->ends);
    if (c->lowest) {
        g_assert_cmpfloat(m.lowest, ==, c->lowest);
    }
    pair_free(p);
}

/* Returns the reset values on a port of 1 Gbit/s. */
static Course course_default(void)
{
    Sim *s = sim_new(1, NULL);
    Course c = { .p = parameters(&s->node[0]), .count = 1 };

    c.p.flags |= QRNIC_CONGESTION_RP;
    c.p.rp_max_rate = 1000;
    sim_free(s);
    return c;
}

/* The example of the manual: times when the bytes of each increase are sent */
typedef struct Example {
    int64_t start, reached[4];
    uint64_t bytes;
    unsigned count;
} Example;

static bool example_tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                        void *opaque)
{
    Example *x = opaque;

    x->bytes += from ? 0 : len;
    while (x->count < ARRAY_SIZE(x->reached) &&
           x->bytes >= 32767 * (x->count + 1ull)) {
        x->reached[x->count++] = s->now - x->start;
    }
    return true;
}

static void test_worked_example(void)
{
    static const double rate[] = { 50.05e9, 75.02e9, 87.51e9, 93.76e9 };
    const double frame = 1100 * 8 / rate[0];
    Pair *p = uc_pair_new();
    Sim *s = p->sim;
    Example x = { .start = s->now };
    double expected = 0;

    flags_set(p->a.qp->node, QRNIC_CONGESTION_RP);
    s->tap = example_tap;
    s->tap_opaque = &x;
    cnp_inject(p->a.qp, p->b.qp);
    write_all(p, 40, PAIR_BYTES / 2);
    sim_run(s, s->now + 30 * SIM_US);
    g_assert_cmpuint(x.count, ==, ARRAY_SIZE(x.reached));
    for (unsigned i = 0; i < x.count; i++) {
        expected += 32767 * 8 / rate[i];
        g_assert_cmpfloat(x.reached[i] * NANO, >, expected - 2 * frame);
        g_assert_cmpfloat(x.reached[i] * NANO, <, expected + 2 * frame);
    }
    pair_free(p);
}

static void test_recovery(void)
{
    Course c = course_default();

    c.until = 5 * SIM_MS;
    c.fast = c.additive = c.ends = true;
    run_course(&c);
    c.p.rp_threshold = 5;
    c.additive = false;
    run_course(&c);
}

/*
 * Tests that all three kinds of increase occur. The first CNP sets the current
 * and the target rate to 100 Mbit/s, far below the highest rate of 1 Gbit/s.
 */
static void test_increase(void)
{
    Course c = course_default();

    c.p.rp_rate_to_set_on_first_cnp = 100;
    c.until = 20 * SIM_MS;
    c.fast = c.additive = c.hyper = c.ends = true;
    run_course(&c);
    c.p.rp_threshold = 5;
    c.p.rp_ai_rate = 40;
    c.until = 15 * SIM_MS;
    run_course(&c);
    c.hyper = false;
    c.p.rp_byte_reset = 1500;
    run_course(&c);
    c.p.rp_byte_reset = UINT32_MAX;
    c.ends = false;
    c.until = 5 * SIM_MS;
    run_course(&c);
}

/* Returns the constants of the paper: alpha changes slowly. */
static Course course_paper(void)
{
    Course c = course_default();

    c.p.rp_dce_tcp_g = 1020;
    c.p.rp_dce_tcp_rtt = 55;
    c.p.rp_time_reset = 55;
    c.p.rp_byte_reset = 150000;
    c.p.rp_threshold = 5;
    c.p.rp_ai_rate = 40;
    c.p.rp_hai_rate = 100;
    c.p.rp_rate_reduce_monitor_period = 50;
    c.p.rp_min_dec_fac = 0;
    c.p.rp_min_rate = 10;
    return c;
}

static void test_decrease(void)
{
    Course c = course_paper();

    c.until = 3 * SIM_MS;
    c.count = 2;
    c.cnp[1] = 61123;
    c.then_each = 61123;
    c.lowest = 10e6;            /* The minimum */
    run_course(&c);
    c.then_each = 290123;
    c.until = 15 * SIM_MS;
    c.lowest = 0;
    c.fast = true;
    run_course(&c);
    c.p.rp_initial_alpha_value = 300;
    c.p.rp_gd = 10;
    c.until = 3 * SIM_MS;       /* Each decrease rounds alpha */
    run_course(&c);
}

/*
 * Tests that the first CNP sets a rate below the lowest, and that no later CNP
 * raises it.
 */
static void test_below_lowest(void)
{
    Course c = course_paper();

    c.p.rp_rate_to_set_on_first_cnp = 20;
    c.p.rp_min_rate = 50;
    c.p.rp_time_reset = 131071;
    c.p.rp_byte_reset = UINT32_MAX;
    c.until = 20 * SIM_MS;
    c.count = 2;
    c.cnp[1] = 100123;
    c.lowest = 20e6;
    run_course(&c);
}

/*
 * Tests that the pause before the next CNP grows, and that alpha decays in it.
 */
static void test_alpha(void)
{
    Course c = course_paper();

    c.p.rp_time_reset = 20000;
    c.p.rp_byte_reset = UINT32_MAX;
    c.until = 60 * SIM_MS;
    c.count = 7;
    for (unsigned i = 1; i < 7; i++) {
        c.cnp[i] = 2 * c.cnp[i - 1] + 437123;
    }
    for (uint16_t g = 900; g <= 1023; g += 41) {
        c.p.rp_dce_tcp_g = g;
        run_course(&c);
    }
    c.p.rp_dce_tcp_g = 0;
    run_course(&c);
    c.p.rp_dce_tcp_g = 1019;
    c.p.rp_dce_tcp_rtt = 1;
    c.p.rp_initial_alpha_value = 512;
    run_course(&c);
}

/* CNPs in one period cause one decrease, at its end. */
static void test_monitor(void)
{
    Course c = course_paper();

    c.until = 600 * SIM_US;
    c.count = 6;
    c.cnp[1] = 10123;
    c.cnp[2] = 20123;
    c.cnp[3] = 49123;
    c.cnp[4] = 300123;
    c.cnp[5] = 310123;
    run_course(&c);
    c.p.rp_rate_reduce_monitor_period = 200;    /* Increases come first */
    c.until = 900 * SIM_US;
    run_course(&c);
}

/* Tests the changes of the target rate. */
static void test_clamp(void)
{
    static const uint8_t flags[] = {
        0, QRNIC_CONGESTION_CLAMP_TGT_RATE,
        QRNIC_CONGESTION_CLAMP_TGT_RATE_ATI,
    };
    Course c = course_paper();

    c.until = 600 * SIM_US;
    c.count = 5;
    c.cnp[1] = 52123;           /* No increase between them */
    c.cnp[2] = 120123;          /* One increase by time */
    c.cnp[3] = 180123;
    c.cnp[4] = 450123;
    for (unsigned i = 0; i < ARRAY_SIZE(flags); i++) {
        c.p.flags = QRNIC_CONGESTION_RP | flags[i];
        run_course(&c);
        c.p.rp_byte_reset = 3000;
        run_course(&c);
        c.p.rp_byte_reset = 150000;
    }
    c.p.rp_gd = 10;
    c.p.rp_min_dec_fac = 70;
    run_course(&c);
}

/* Runs until all work is done, in spite of running rate timers. */
static void run(Sim *s)
{
    sim_run(s, s->now + 10000 * SIM_MS);
}

/*
 * Tests that a connection still works, but slowly, if a switch marks each
 * frame.
 */
static void test_reliable(void)
{
    Pair *p = pair_new(9, NULL, NULL);
    QrnicCongestionCtx c = parameters(p->a.qp->node);
    int64_t before = p->sim->now;
    Seen seen;

    pair_fill(p);
    c.flags |= BOTH;
    c.rp_max_rate = 1000;
    c.rp_min_rate = 50;
    c.rp_rate_to_set_on_first_cnp = 50;
    set(p->a.qp->node, &c);
    set(p->b.qp->node, &c);
    watch_begin(p->sim, &seen);
    p->sim->loss = 5;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, PAIR_BYTES / 2);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, PAIR_BYTES / 2, PAIR_BYTES / 2,
         65536);
    run(p->sim);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(p->a.data, PAIR_BYTES / 2, p->b.data, PAIR_BYTES / 2);
    g_assert_cmpmem(p->a.data + PAIR_BYTES / 2, 65536,
                    p->b.data + PAIR_BYTES / 2, 65536);
    g_assert_cmpuint(seen.cnps, >, 100);
    /* 4.4 Mbit at 50 Mbit/s; at 1 Gbit/s it would take 4.4 ms. */
    g_assert_cmpint(seen.last - before, >, 70 * SIM_MS);
    pair_free(p);
}

/* Tests that read responses are paced by CNPs to the responder. */
static void test_read(void)
{
    Pair *p = pair_new(10, NULL, NULL);
    QrnicCongestionCtx c = parameters(p->b.qp->node);
    int64_t before = p->sim->now;
    Seen seen = { 0 };

    pair_fill(p);
    c.flags |= QRNIC_CONGESTION_RP;
    c.rp_max_rate = 1000;
    c.rp_rate_to_set_on_first_cnp = 100;
    c.rp_time_reset = 131071;
    c.rp_byte_reset = UINT32_MAX;
    set(p->b.qp->node, &c);
    p->sim->tap = watch;
    p->sim->tap_opaque = &seen;
    cnp_inject(p->b.qp, p->a.qp);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0, 0, PAIR_BYTES / 2);
    run(p->sim);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(p->a.data, PAIR_BYTES / 2, p->b.data, PAIR_BYTES / 2);
    /* 4.4 Mbit need more than 42 ms at 100 Mbit/s. */
    g_assert_cmpint(seen.last - before, >, 42 * SIM_MS);
    g_assert_cmpint(seen.last - before, <, 46 * SIM_MS);
    g_assert_cmpuint(seen.frames, <, 530);
    pair_free(p);
}

static bool last_frame(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                       void *opaque)
{
    *(int64_t *)opaque = from ? *(int64_t *)opaque : s->now;
    return true;
}

/*
 * Returns the time of a message of 256 KiB with this limit and a rate of 100.
 */
static int64_t both(uint32_t limit)
{
    Pair *p = uc_pair_new();
    QrnicCongestionCtx c = parameters(p->a.qp->node);
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_RATE_LIMIT, .rate_limit = limit, .max_burst_sz = 1,
    };
    int64_t before = p->sim->now, last = 0;

    p->sim->tap = last_frame;
    p->sim->tap_opaque = &last;
    c.flags |= QRNIC_CONGESTION_RP;
    c.rp_rate_to_set_on_first_cnp = 100;
    c.rp_time_reset = 131071;
    c.rp_byte_reset = UINT32_MAX;
    set(p->a.qp->node, &c);
    g_assert_cmpint(sim_modify(p->a.qp, &attr).status, ==, QRNIC_ST_OK);
    cnp_inject(p->a.qp, p->b.qp);
    write_all(p, 1, 256 * 1024);
    run(p->sim);
    pair_free(p);
    return last - before;
}

/*
 * Tests that the lower of both rates applies. 256 frames of 1,082 bytes are
 * sent, the first two at once.
 */
static void test_lower(void)
{
    const double bits = 254 * 1082 * 8;

    g_assert_cmpint(both(50000), >, bits / 50e6 * 1e9 * 0.99);
    g_assert_cmpint(both(50000), <, bits / 50e6 * 1e9 * 1.02);
    g_assert_cmpint(both(200000), >, bits / 100e6 * 1e9 * 0.99);
    g_assert_cmpint(both(200000), <, bits / 100e6 * 1e9 * 1.02);
    g_assert_cmpint(both(0), >, bits / 100e6 * 1e9 * 0.99);
    g_assert_cmpint(both(0), <, bits / 100e6 * 1e9 * 1.02);
}

/*
 * Tests a clock that was not read for 12 increases, which are then applied
 * together.
 */
static void test_late(void)
{
    Pair *p = uc_pair_new();
    QrnicCongestionCtx c = parameters(p->a.qp->node);
    int64_t before, last = 0;

    p->sim->tap = last_frame;
    p->sim->tap_opaque = &last;
    c.flags |= QRNIC_CONGESTION_RP;
    c.rp_max_rate = 1000;
    c.rp_rate_to_set_on_first_cnp = 100;
    c.rp_ai_rate = 100;
    c.rp_time_reset = 100000;
    c.rp_byte_reset = UINT32_MAX;
    set(p->a.qp->node, &c);
    cnp_inject(p->a.qp, p->b.qp);
    p->sim->now += 1250 * SIM_MS;
    before = p->sim->now;
    write_all(p, 1, 256 * 1024);
    run(p->sim);
    /*
     * 256 frames of 1,082 bytes at 1 Gbit/s; at 150 Mbit/s it would take
     * longer.
     */
    g_assert_cmpint(last - before, <, 3 * SIM_MS);
    pair_free(p);
}

/*
 * Tests that work that waits for a rate is dropped or sent, and that its timers
 * are cancelled.
 */
static void test_end(void)
{
    for (int what = 0; what < 5; what++) {
        Pair *p = uc_pair_new();
        QrnicCongestionCtx c = parameters(p->a.qp->node);
        QrnicQpAttr attr = { .mask = QRNIC_QP_STATE };
        int64_t before = p->sim->now;

        c.flags |= QRNIC_CONGESTION_RP;
        c.rp_rate_to_set_on_first_cnp = 1;
        c.rp_time_reset = 131071;
        set(p->a.qp->node, &c);
        cnp_inject(p->a.qp, p->b.qp);
        write_all(p, 1, 256 * 1024);
        g_assert_false(sim_run(p->sim, before + SIM_MS));
        expect_no_cqe(p->a.qp);
        switch (what) {
        case 0:
            c.flags &= ~QRNIC_CONGESTION_RP;
            set(p->a.qp->node, &c);
            g_assert_true(sim_run(p->sim, before + 2 * SIM_MS));
            expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
            break;
        case 1:
            attr.state = QRNIC_QPS_ERR;
            g_assert_cmpint(sim_modify(p->a.qp, &attr).status, ==,
                            QRNIC_ST_OK);
            g_assert_true(sim_run(p->sim, before + 2 * SIM_MS));
            expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
            break;
        case 2:
            attr.state = QRNIC_QPS_RESET;
            g_assert_cmpint(sim_modify(p->a.qp, &attr).status, ==,
                            QRNIC_ST_OK);
            g_assert_true(sim_run(p->sim, before + 2 * SIM_MS));
            g_assert_cmpint(p->a.qp->node->deadline, ==,
                            QRNIC_DEADLINE_NEVER);
            break;
        case 3:
            sim_reset(p->a.qp->node);
            g_assert_cmphex(parameters(p->a.qp->node).flags, ==,
                            QRNIC_CONGESTION_CLAMP_TGT_RATE_ATI);
            g_assert_cmpint(p->a.qp->node->deadline, ==,
                            QRNIC_DEADLINE_NEVER);
            g_clear_pointer(&p->a.qp, g_free);
            break;
        case 4:
            break;              /* Destroyed below */
        }
        if (p->a.qp) {
            sim_qp_free(p->a.qp);
        }
        g_assert_true(sim_run(p->sim, before + 2 * SIM_MS));
        sim_qp_free(p->b.qp);
        sim_free(p->sim);
        g_free(p);
    }
}

/* Tests a pending CNP whose queue pair, sender or port goes down. */
static void test_owed(void)
{
    for (int what = 0; what < 5; what++) {
        Pair *p = uc_pair_new();
        QrnicCongestionCtx off = parameters(p->b.qp->node);
        QrnicQpAttr attr = {
            .mask = QRNIC_QP_STATE,
            .state = what ? QRNIC_QPS_ERR : QRNIC_QPS_RESET,
        };

        p->sim->marks = mark_all;
        flags_set(p->a.qp->node, QRNIC_CONGESTION_ECT);
        flags_set(p->b.qp->node, QRNIC_CONGESTION_NP);
        p->sim->wire_room = 1;
        p->sim->wire_pause = SIM_MS;
        post(&p->b, &p->a, QRNIC_WQE_RDMA_WRITE, 0, 0, 1024);
        write_all(p, 1, 1024);
        sim_run(p->sim, p->sim->now + 100 * SIM_US);
        g_assert_true(p->b.qp->node->blocked);
        g_assert_cmpuint(counted(p->b.qp, QRNIC_COUNTER_NP_CNP_SENT), ==, 0);
        if (what < 2) {
            g_assert_cmpint(sim_modify(p->b.qp, &attr).status, ==,
                            QRNIC_ST_OK);
        } else if (what == 2) {
            set(p->b.qp->node, &off);
        } else if (what == 3) {
            qrnic_engine_set_link(p->b.qp->node->engine, false);
        }
        settle(p->sim);
        g_assert_cmpuint(counted(p->b.qp, QRNIC_COUNTER_NP_CNP_SENT), ==,
                         what == 4);
        pair_free(p);
    }
}

/* Tests that the maximum of bytes between increases needs more than 32 bits. */
static void test_most_bytes(void)
{
    Pair *p = uc_pair_new();
    SimNode *n = p->a.qp->node;
    QrnicQp *qp = qrnic_qp_get(n->engine, p->a.qp->number);
    QrnicCongestionCtx c = parameters(n);

    c.flags |= QRNIC_CONGESTION_RP;
    c.rp_max_rate = 1000;
    c.rp_rate_to_set_on_first_cnp = 999;
    c.rp_threshold = 1;
    c.rp_byte_reset = UINT32_MAX;
    c.rp_time_reset = 131071;
    set(n, &c);
    cnp_inject(p->a.qp, p->b.qp);
    /* The rate increases twice, and the second increase is an additive one. */
    for (unsigned i = 0; i < 8; i++) {
        g_assert_nonnull(qp->congestion);
        qrnic_congestion_charge(n->engine, qp, 1u << 30);
    }
    g_assert_null(qp->congestion);
    pair_free(p);
}

/* Tests each parameter with its minimum minus 1 and its maximum plus 1. */
static void test_parameters(void)
{
#define M(NAME, name, least, most) { \
        QRNIC_CONGESTION_CTX_##NAME##_OFFSET, \
        offsetof(QrnicCongestionCtx, name), \
        sizeof(((QrnicCongestionCtx *)0)->name), least, most }
    static const struct {
        uint32_t syndrome, at, size;
        int64_t least, most;
    } member[] = {
        M(NP_CNP_DSCP, np_cnp_dscp, 0, 63),
        M(NP_CNP_PRIO, np_cnp_prio, 0, 7),
        M(RP_THRESHOLD, rp_threshold, 1, 31),
        M(NP_MIN_TIME_BETWEEN_CNPS, np_min_time_between_cnps, 0, 4095),
        M(RP_MIN_DEC_FAC, rp_min_dec_fac, 0, 100),
        M(RP_GD, rp_gd, 10, 11),
        M(RP_DCE_TCP_G, rp_dce_tcp_g, 0, 1023),
        M(RP_INITIAL_ALPHA_VALUE, rp_initial_alpha_value, 1, 1023),
        M(RP_DCE_TCP_RTT, rp_dce_tcp_rtt, 1, 131071),
        M(RP_TIME_RESET, rp_time_reset, 1, 131071),
        M(RP_BYTE_RESET, rp_byte_reset, 1, UINT32_MAX),
        M(RP_RATE_REDUCE_MONITOR_PERIOD, rp_rate_reduce_monitor_period, 1,
          131071),
        M(RP_AI_RATE, rp_ai_rate, 1, 100000),
        M(RP_HAI_RATE, rp_hai_rate, 1, 100000),
        M(RP_MIN_RATE, rp_min_rate, 1, 100000),
        M(RP_MAX_RATE, rp_max_rate, 0, 100000),
        M(RP_RATE_TO_SET_ON_FIRST_CNP, rp_rate_to_set_on_first_cnp, 0,
          100000),
    };
#undef M
    Sim *s = sim_new(1, NULL);
    QrnicEngine *e = s->node[0].engine;
    QrnicCongestionCtx good = parameters(&s->node[0]), now;

    for (unsigned i = 0; i < 4 * ARRAY_SIZE(member); i++) {
        const int64_t value[] = {
            member[i / 4].least, member[i / 4].most,
            member[i / 4].least - 1, member[i / 4].most + 1,
        };
        int64_t v = value[i % 4], all = 1ll << 8 * member[i / 4].size;
        QrnicCongestionCtx c = good;
        QrnicResult r;

        if (v < 0 || v >= all) {
            continue;
        }
        v = cpu_to_le64(v);
        memcpy((uint8_t *)&c + member[i / 4].at, &v, member[i / 4].size);
        r = qrnic_congestion_set(e, &c);
        now = parameters(&s->node[0]);
        if (i % 4 < 2) {
            g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
            g_assert_cmpmem(&now, sizeof(now), &c, sizeof(c));
            set(&s->node[0], &good);
        } else {
            g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
            g_assert_cmphex(r.syndrome, ==, member[i / 4].syndrome);
            g_assert_cmpmem(&now, sizeof(now), &good, sizeof(good));
        }
    }
    now = good;
    now.rp_min_rate = 11;
    now.rp_max_rate = 10;
    g_assert_cmphex(qrnic_congestion_set(e, &now).syndrome, ==,
                    QRNIC_CONGESTION_CTX_RP_MAX_RATE_OFFSET);
    sim_free(s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/congestion/off", test_off);
    g_test_add_func("/congestion/no-np", test_no_np);
    g_test_add_func("/congestion/ect", test_ect);
    g_test_add_func("/congestion/datagram", test_datagram);
    g_test_add_func("/congestion/interval", test_interval);
    g_test_add_func("/congestion/interval-each", test_interval_each);
    g_test_add_func("/congestion/interval-reset", test_interval_reset);
    g_test_add_func("/congestion/priority", test_priority);
    g_test_add_func("/congestion/wire-busy", test_wire_busy);
    g_test_add_func("/congestion/format", test_format);
    g_test_add_func("/congestion/worked-example", test_worked_example);
    g_test_add_func("/congestion/recovery", test_recovery);
    g_test_add_func("/congestion/increase", test_increase);
    g_test_add_func("/congestion/decrease", test_decrease);
    g_test_add_func("/congestion/below-lowest", test_below_lowest);
    g_test_add_func("/congestion/alpha", test_alpha);
    g_test_add_func("/congestion/monitor", test_monitor);
    g_test_add_func("/congestion/clamp", test_clamp);
    g_test_add_func("/congestion/reliable", test_reliable);
    g_test_add_func("/congestion/read", test_read);
    g_test_add_func("/congestion/lower", test_lower);
    g_test_add_func("/congestion/late", test_late);
    g_test_add_func("/congestion/end", test_end);
    g_test_add_func("/congestion/owed", test_owed);
    g_test_add_func("/congestion/most-bytes", test_most_bytes);
    g_test_add_func("/congestion/parameters", test_parameters);
    return g_test_run();
}
