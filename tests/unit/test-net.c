/*
 * The network between simulated nodes: rates, delays, paths, queues, marks,
 * pauses, loss and faults, with frames of the test and with engines
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include <math.h>
#include "net.h"
#include "pair.h"

#define GBIT 1000000000ull
#define FRAME 1000              /* Bytes; on the wire 24 more */
#define NUMBER_AT 60            /* Offset behind the headers */
#define FLOWS 64

static const NetLink link_fast = {
    .rate = 100 * GBIT, .delay = 500, .queue = 100000,
};

typedef struct Rig {
    Sim *sim;
    Net *net;
    uint64_t sent, arrived, disordered, marked, bad_checksum;
    int64_t first, last;
    uint32_t next[FLOWS];
    uint8_t traffic_class;
    bool adaptive;
} Rig;

static uint16_t checksum(const uint8_t *p, unsigned len)
{
    uint32_t sum = 0;

    for (unsigned i = 0; i < len; i += 2) {
        sum += lduw_be_p(p + i);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    return sum + (sum >> 16);
}

static bool sink(Net *net, const SimFrame *f, void *opaque)
{
    Rig *r = opaque;
    uint32_t flow = lduw_be_p(f->data + 34) % FLOWS;
    uint32_t number = ldl_be_p(f->data + NUMBER_AT);

    if (!r->arrived++) {
        r->first = net->sim->now;
    }
    r->last = net->sim->now;
    r->disordered += number < r->next[flow];
    r->next[flow] = MAX(r->next[flow], number + 1);
    r->marked += (f->data[15] & 3) == 3;
    r->bad_checksum += checksum(f->data + 14, 20) != 0xffff;
    return false;
}

static Rig *rig_new(uint32_t seed, unsigned nodes, const NetOptions *no)
{
    static const NetOptions none;
    SimOptions o = { .nodes = nodes, .max_qp = 8, .max_cq = 8, .max_mkey = 8 };
    Rig *r = g_new0(Rig, 1);

    r->sim = sim_new(seed, &o);
    r->net = net_new(r->sim, no ? no : &none);
    r->net->sink = sink;
    r->net->sink_opaque = r;
    return r;
}

static void rig_free(Rig *r)
{
    net_free(r->net);
    sim_free(r->sim);
    g_free(r);
}

/* Makes a UDP packet to RoCE's port. No engine receives it. */
static void frame_make(Rig *r, uint8_t *f, unsigned from, unsigned to,
                       unsigned flow, uint32_t number)
{
    memset(f, 0, FRAME);
    memcpy(f, r->sim->node[to].gid.mac, 6);
    memcpy(f + 6, r->sim->node[from].gid.mac, 6);
    stw_be_p(f + 12, QRNIC_ETHERTYPE_IPV4);
    f[14] = 0x45;
    f[15] = r->traffic_class;
    stw_be_p(f + 16, FRAME - 14);
    f[23] = QRNIC_IP_PROTOCOL_UDP;
    memcpy(f + 26, r->sim->node[from].gid.gid + 12, 4);
    memcpy(f + 30, r->sim->node[to].gid.gid + 12, 4);
    stw_be_p(f + 24, ~checksum(f + 14, 20));
    stw_be_p(f + 34, 0xc000 + flow);
    stw_be_p(f + 36, QRNIC_ROCE_UDP_PORT);
    stl_be_p(f + 46, 7);                        /* Destination QP */
    stl_be_p(f + 50, (r->adaptive ? NET_BTH_ADAPTIVE << 24 : 0) |
                     (number & QRNIC_PSN_MASK));
    stl_be_p(f + NUMBER_AT, number);
}

static void frame_send(Rig *r, unsigned from, unsigned to, unsigned flow,
                       uint32_t number)
{
    uint8_t f[FRAME];

    frame_make(r, f, from, to, flow, number);
    net_send(r->sim, &r->sim->node[from], f, FRAME);
    r->sent++;
}

/* Sends frames of several nodes to one, as fast as their links allow. */
static void pump(Rig *r, unsigned senders, unsigned to, uint32_t count)
{
    g_autofree uint32_t *done = g_new0(uint32_t, senders);
    bool more = true;

    while (more) {
        more = false;
        for (unsigned i = 0; i < senders; i++) {
            while (done[i] < count && !r->sim->node[i].blocked) {
                frame_send(r, i, to, i, done[i]++);
            }
            more |= done[i] < count;
        }
        sim_run(r->sim, r->sim->now + 50);
    }
    g_assert_true(sim_run(r->sim, r->sim->now + 100 * SIM_MS));
}

static void test_rate(void)
{
    static const uint64_t rates[] = { 1, 25, 100, 400 };

    for (unsigned i = 0; i < ARRAY_SIZE(rates); i++) {
        Rig *r = rig_new(1, 2, NULL);
        NetLink link = link_fast;
        double frame_ns = (FRAME + NET_OVERHEAD) * 8.0 / rates[i];

        link.rate = rates[i] * GBIT;
        net_pair(r->net, &link);
        pump(r, 1, 1, 2000);
        g_assert_cmpuint(r->arrived, ==, 2000);
        g_assert_cmpint(r->first, ==, (int64_t)ceil(frame_ns) + link.delay);
        g_assert_cmpfloat(fabs((r->last - r->first) / (1999 * frame_ns) - 1),
                          <, 0.01);
        g_assert_cmpuint(r->net->gone.dropped + r->net->gone.lost, ==, 0);
        rig_free(r);
    }
}

/*
 * Tests a network of three levels, with six links, each of which forwards whole
 * frames.
 */
static void test_latency(void)
{
    Rig *r = rig_new(1, 16, NULL);
    int64_t start;

    net_fat_tree(r->net, 4, &link_fast, &link_fast);
    frame_send(r, 0, 15, 0, 0);
    sim_run(r->sim, SIM_MS);
    g_assert_cmpuint(r->net->hops, ==, 6);
    g_assert_cmpint(r->last, ==, 6 * (82 + 500));
    /* Both nodes are under one switch. */
    start = r->sim->now;
    frame_send(r, 0, 1, 0, 1);
    sim_run(r->sim, start + SIM_MS);
    g_assert_cmpuint(r->net->hops, ==, 8);
    g_assert_cmpint(r->last, ==, start + 2 * (82 + 500));
    rig_free(r);
}

static uint64_t disorder(NetPaths paths, bool adaptive)
{
    const NetOptions o = { .paths = paths };
    Rig *r = rig_new(1, 16, &o);
    unsigned ways = 0;
    uint64_t result;

    r->adaptive = adaptive;
    net_fat_tree(r->net, 4, &link_fast, &link_fast);
    for (uint32_t n = 0; n < 200; n++) {
        for (unsigned from = 0; from < 8; from++) {
            for (unsigned i = 0; i < 2; i++) {
                frame_send(r, from, 15 - from, 8 * i + from, n);
            }
        }
        sim_run(r->sim, r->sim->now + 170);
    }
    sim_run(r->sim, r->sim->now + SIM_MS);
    g_assert_cmpuint(r->arrived + r->net->gone.dropped, ==, r->sent);
    for (unsigned i = 0; i < r->net->port->len; i++) {
        NetPort *p = r->net->port->pdata[i];

        /* These ports lead from the middle level to the highest. */
        ways += p->to >= 32 && p->count.frames;
    }
    g_assert_cmpuint(ways, >=, 3);
    result = r->disordered;
    rig_free(r);
    return result;
}

static void test_paths(void)
{
    g_assert_cmpuint(disorder(NET_PATHS_HASH, false), ==, 0);
    g_assert_cmpuint(disorder(NET_PATHS_HASH, true), ==, 0);
    g_assert_cmpuint(disorder(NET_PATHS_ADAPTIVE, false), ==, 0);
    g_assert_cmpuint(disorder(NET_PATHS_ADAPTIVE, true), >, 0);
    g_assert_cmpuint(disorder(NET_PATHS_SPRAY, false), >, 0);
}

static void test_tail_drop(void)
{
    Rig *r = rig_new(1, 5, NULL);
    NetDevice *d;

    net_star(r->net, &link_fast);
    pump(r, 4, 4, 1000);
    d = &g_array_index(r->net->device, NetDevice, 5);
    g_assert_cmpuint(r->sent, ==, 4000);
    g_assert_cmpuint(r->net->gone.dropped, >, 2000);
    g_assert_cmpuint(r->arrived + r->net->gone.dropped, ==, r->sent);
    g_assert_cmpuint(d->port[4]->count.dropped, ==, r->net->gone.dropped);
    g_assert_cmpuint(d->port[4]->count.deepest, <=, link_fast.queue);
    g_assert_cmpuint(d->port[4]->count.deepest, >,
                     link_fast.queue - FRAME - NET_OVERHEAD);
    rig_free(r);
}

static void test_pfc(void)
{
    /*
     * The headroom is for the frames in flight until the pause works: the round
     * trip, and a frame at each side.
     */
    NetOptions o = {
        .pfc = 1, .xoff = 20000, .xon = 10000, .headroom = 20000,
    };

    for (unsigned small = 0; small < 2; small++) {
        Rig *r;
        NetPort *p;

        o.headroom = small ? 5000 : 20000;
        r = rig_new(1, 5, &o);
        net_star(r->net, &link_fast);
        pump(r, 4, 4, 1000);
        p = r->net->port->pdata[0];
        g_assert_cmpuint(p->from, ==, 0);
        g_assert_cmpuint(p->count.paused, >, 10);
        g_assert_cmpuint(p->count.paused, ==, p->count.resumed);
        g_assert_cmpint(p->count.paused_ns, >, 0);
        g_assert_cmpint(p->count.paused_ns, <, r->sim->now);
        if (small) {
            g_assert_cmpuint(r->net->gone.dropped, >, 0);
        } else {
            g_assert_cmpuint(r->net->gone.dropped, ==, 0);
            g_assert_cmpuint(r->arrived, ==, 4000);
            g_assert_cmpuint(r->disordered, ==, 0);
            /* The link was never idle. */
            g_assert_cmpint(r->last - r->first, <, 4000 * 81.92 * 1.01);
        }
        rig_free(r);
    }
}

/* Tests that the other priority is not paused. */
static void test_pfc_priority(void)
{
    const NetOptions o = {
        .pfc = 1 << 3, .xoff = 20000, .xon = 10000, .headroom = 20000,
    };
    Rig *r = rig_new(1, 5, &o);

    net_star(r->net, &link_fast);
    pump(r, 4, 4, 1000);
    g_assert_cmpuint(((NetPort *)r->net->port->pdata[0])->count.paused, ==, 0);
    g_assert_cmpuint(r->net->gone.dropped, >, 0);
    rig_free(r);
    r = rig_new(1, 5, &o);
    r->traffic_class = 3 << 5;
    net_star(r->net, &link_fast);
    pump(r, 4, 4, 1000);
    g_assert_cmpuint(((NetPort *)r->net->port->pdata[0])->count.paused, >, 0);
    g_assert_cmpuint(r->net->gone.dropped, ==, 0);
    rig_free(r);
}

/* Tests a deadlock: each link of a ring waits for the next one. */
static void test_deadlock(void)
{
    enum { SWITCHES = 4 };
    const NetOptions o = {
        .pfc = 1, .xoff = 20000, .xon = 10000, .headroom = 20000,
    };
    Rig *r = rig_new(1, SWITCHES, &o);
    NetLink edge = link_fast;
    uint64_t arrived;
    int64_t paused;

    edge.queue = 1 << 20;
    net_ring(r->net, SWITCHES, true, &edge, &link_fast);
    for (uint32_t n = 0; n < 1000; n++) {
        for (unsigned i = 0; i < SWITCHES; i++) {
            frame_send(r, i, (i + 2) % SWITCHES, i, n);
        }
    }
    g_assert_true(sim_run(r->sim, 10 * SIM_MS));
    arrived = r->arrived;
    g_assert_cmpuint(arrived, <, r->sent);
    g_assert_cmpuint(r->net->gone.dropped, ==, 0);
    g_assert_cmpuint(net_under_way(r->net), ==, r->sent - arrived);
    for (unsigned i = 0; i < SWITCHES; i++) {
        const NetPort *p = r->net->port->pdata[2 * i];

        g_assert_cmpuint(p->to, ==, SWITCHES + (i + 1) % SWITCHES);
        g_assert_true(p->queue[0].paused);
        g_assert_cmpuint(p->count.paused, ==, p->count.resumed + 1);
    }
    /* The deadlock persists, and the pause time grows. */
    paused = net_paused_ns(r->net->port->pdata[0]);
    r->sim->now += SIM_MS;
    g_assert_cmpint(net_paused_ns(r->net->port->pdata[0]), ==,
                    paused + SIM_MS);
    rig_free(r);
}

static uint64_t marks(uint8_t traffic_class, uint64_t kmin, uint64_t kmax,
                      uint32_t max_mark)
{
    const NetOptions o = { .kmin = kmin, .kmax = kmax, .max_mark = max_mark };
    Rig *r = rig_new(1, 3, &o);
    uint64_t marked;

    r->traffic_class = traffic_class;
    net_star(r->net, &link_fast);
    /*
     * Half of the bytes of both senders are queued, because the link of the
     * receiver is as fast as the link of one sender.
     */
    pump(r, 2, 2, 80);
    marked = r->marked;
    g_assert_cmpuint(r->arrived, ==, 160);
    g_assert_cmpuint(marked, ==, r->net->gone.marked);
    g_assert_cmpuint(r->bad_checksum, ==, 0);
    rig_free(r);
    return marked;
}

/*
 * Asserts that a packet that two switches would mark is marked and counted
 * once, because a mark cannot be set twice.
 */
static void marks_twice(void)
{
    const NetOptions o = { .kmin = 0, .kmax = 1 };
    const NetLink slow = { .rate = 50 * GBIT, .queue = 1000000 };
    const NetLink slower = { .rate = 25 * GBIT, .queue = 1000000 };
    Rig *r = rig_new(1, 4, &o);

    r->traffic_class = 2;
    net_dumbbell(r->net, &link_fast, &slow);
    ((NetPort *)r->net->port->pdata[7])->link = slower;
    g_assert_cmpuint(((NetPort *)r->net->port->pdata[7])->to, ==, 2);
    pump(r, 1, 2, 100);
    g_assert_cmpuint(r->marked, >, 90);
    g_assert_cmpuint(r->net->gone.marked, ==, r->marked);
    g_assert_cmpuint(r->bad_checksum, ==, 0);
    rig_free(r);
}

static void test_marks(void)
{
    uint64_t all = marks(2, 10240, 10240, 0);

    g_assert_cmpuint(all, >, 110);
    g_assert_cmpuint(all, <, 150);
    g_assert_cmpuint(marks(1, 10240, 10240, 0), ==, all);
    g_assert_cmpuint(marks(0, 10240, 10240, 0), ==, 0);
    g_assert_cmpuint(marks(2, 90000, 95000, NET_MILLION), ==, 0);
    /*
     * The probability rises from 0 to a half while the queue grows from empty
     * to 80 frames.
     */
    g_assert_cmpuint(marks(2, 0, 82000, NET_MILLION / 2), >, 20);
    g_assert_cmpuint(marks(2, 0, 82000, NET_MILLION / 2), <, 60);
    marks_twice();
}

static uint64_t lost(const NetLoss *loss, uint32_t count)
{
    Rig *r = rig_new(7, 2, NULL);
    NetLink link = link_fast;
    uint64_t gone;

    link.loss = *loss;
    net_pair(r->net, &link);
    pump(r, 1, 1, count);
    gone = r->net->gone.lost;
    g_assert_cmpuint(r->arrived + gone, ==, count);
    rig_free(r);
    return gone;
}

static void test_loss(void)
{
    const NetLoss uniform = { .loss = NET_MILLION / 100 };
    /*
     * A tenth of the time is in the bad state, in which half of the frames are
     * lost.
     */
    const NetLoss bursts = {
        .to_bad = NET_MILLION / 90, .to_good = NET_MILLION / 10,
        .loss_bad = NET_MILLION / 2,
    };
    const NetLoss once = { .down_from = 100000, .down_to = 200000 };
    const NetLoss flaps = {
        .down_from = 0, .down_to = 100000, .period = 400000,
    };
    uint64_t n;

    n = lost(&uniform, 50000);
    g_assert_cmpuint(n, >, 430);
    g_assert_cmpuint(n, <, 570);
    n = lost(&bursts, 50000);
    g_assert_cmpuint(n, >, 2100);
    g_assert_cmpuint(n, <, 2900);
    n = lost(&once, 10000);
    g_assert_cmpuint(n, >=, 100000 / 82 - 1);
    g_assert_cmpuint(n, <=, 100000 / 81 + 1);
    n = lost(&flaps, 50000);
    /* 4.096 ms are ten periods, and most of the next pause. */
    g_assert_cmpuint(n, >, 13360);
    g_assert_cmpuint(n, <, 13400);
}

static bool fault_sink(Net *net, const SimFrame *f, void *opaque)
{
    /* State on arrival: arrived 1, marked 2, corrupted 4, late 8 */
    Rig *r = opaque;

    r->arrived |= 1 | ((f->data[15] & 3) == 3 ? 2 : 0) |
                  (f->data[FRAME - 1] ? 4 : 0) |
                  (net->sim->now - r->first > 5 * SIM_US ? 8 : 0);
    return false;
}

static void test_faults(void)
{
    static const uint8_t expect[] = { 0, 3, 5, 9 };

    for (unsigned fate = 0; fate < ARRAY_SIZE(expect); fate++) {
        /* One packet has two faults, and another node's packet has one. */
        const NetFault faults[] = {
            { .to = 1, .dest_qpn = 7, .psn = 5, .transmission = 1,
              .fate = NET_FATE_LOST },
            { .to = 1, .dest_qpn = 7, .psn = 5, .transmission = 2, .fate = fate,
              .late = 10 * SIM_US },
            { .to = 0, .dest_qpn = 7, .psn = 5, .transmission = 3 },
        };
        Rig *r = rig_new(1, 2, NULL);

        r->traffic_class = 2;
        net_pair(r->net, &link_fast);
        for (unsigned i = 0; i < ARRAY_SIZE(faults); i++) {
            net_fault_add(r->net, &faults[i]);
        }
        r->net->sink = fault_sink;
        for (unsigned n = 0; n < 3; n++) {
            for (uint32_t psn = 4; psn < 7; psn++) {
                const uint8_t fifth[] = { 0, expect[fate], 1 };

                r->arrived = 0;
                r->first = r->sim->now;
                frame_send(r, 0, 1, 0, psn);
                sim_run(r->sim, r->sim->now + SIM_MS);
                g_assert_cmphex(r->arrived, ==, psn == 5 ? fifth[n] : 1);
            }
        }
        rig_free(r);
    }
}

static uint64_t run_hash(uint32_t seed)
{
    const NetOptions o = { .paths = NET_PATHS_SPRAY };
    Rig *r = rig_new(seed, 16, &o);
    NetLink link = link_fast;
    uint64_t hash;

    link.loss.loss = NET_MILLION / 50;
    net_fat_tree(r->net, 4, &link, &link);
    pump(r, 8, 15, 100);
    hash = r->net->trace;
    rig_free(r);
    return hash;
}

static void test_same(void)
{
    g_assert_cmphex(run_hash(1), ==, run_hash(1));
    g_assert_cmphex(run_hash(1), !=, run_hash(2));
}

/* Tests writes from each node to another one, through engines, with loss. */
static void test_engines(void)
{
    enum { NODES = 16, BYTES = 65536 };
    const NetOptions no = { .paths = NET_PATHS_HASH };
    SimOptions o = { .nodes = NODES, .memory = 1 << 20 };
    NetLink link = link_fast;
    Sim *s = sim_new(3, &o);
    Net *net = net_new(s, &no);
    PairEnd a[NODES], b[NODES];

    link.loss.loss = NET_MILLION / 500;
    net_fat_tree(net, 4, &link, &link);
    for (unsigned i = 0; i < NODES; i++) {
        SimNode *n = &s->node[i];

        a[i].qp = sim_qp_new(n, 4, 4, 0, 4);
        b[i].qp = sim_qp_new(n, 4, 4, 0, 4);
        a[i].addr = sim_alloc(n, BYTES);
        b[i].addr = sim_alloc(n, BYTES);
        a[i].key = sim_mkey(n, a[i].addr, BYTES, ACCESS_ALL);
        b[i].key = sim_mkey(n, b[i].addr, BYTES, ACCESS_ALL);
        memset(n->memory + a[i].addr, i + 1, BYTES);
    }
    for (unsigned i = 0; i < NODES; i++) {
        PairEnd *to = &b[(i + 5) % NODES];

        sim_connect(a[i].qp, to->qp, NULL);
        post(&a[i], to, QRNIC_WQE_RDMA_WRITE, 0, 0, BYTES);
    }
    g_assert_true(sim_run(s, 1000 * SIM_MS));
    g_assert_cmpuint(net->gone.lost, >, 0);
    g_assert_cmpuint(net->unrouted, ==, 0);
    for (unsigned i = 0; i < NODES; i++) {
        unsigned to = (i + 5) % NODES;

        expect_cqe(a[i].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        g_assert_cmpmem(s->node[i].memory + a[i].addr, BYTES,
                        s->node[to].memory + b[to].addr, BYTES);
    }
    for (unsigned i = 0; i < NODES; i++) {
        sim_qp_free(a[i].qp);
        sim_qp_free(b[i].qp);
    }
    net_free(net);
    sim_free(s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/net/rate", test_rate);
    g_test_add_func("/net/latency", test_latency);
    g_test_add_func("/net/paths", test_paths);
    g_test_add_func("/net/tail-drop", test_tail_drop);
    g_test_add_func("/net/pfc", test_pfc);
    g_test_add_func("/net/pfc-priority", test_pfc_priority);
    g_test_add_func("/net/deadlock", test_deadlock);
    g_test_add_func("/net/marks", test_marks);
    g_test_add_func("/net/loss", test_loss);
    g_test_add_func("/net/faults", test_faults);
    g_test_add_func("/net/same", test_same);
    g_test_add_func("/net/engines", test_engines);
    return g_test_run();
}
