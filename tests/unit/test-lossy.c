/*
 * Random traffic in both directions over a wire that loses, repeats, reorders
 * and corrupts. Every message is executed once and in order, or the queue ends
 * in the error that the InfiniBand specification requires.
 *
 * Each kind of wire is combined with all options of connections, congestion
 * control and link retransmission.
 *
 * QRNIC_SEED=n runs only that seed; QRNIC_ROUNDS=n runs that many of each.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pair.h"

#define OPS 150
#define SLOT 16384
#define GUARD 64
#define LONGEST (SLOT - GUARD)

typedef struct Op {
    uint8_t opcode, flags;
    uint32_t len, imm;
    uint32_t index;             /* Index of its WQE */
    uint64_t expect;            /* Atomics: the expected old value */
    bool completed;
} Op;

/* Requests from one side to its peer */
typedef struct Flow {
    SimQp *from, *to;
    uint64_t local, remote, recv;       /* Slots, by number of operation */
    uint64_t counter;
    uint32_t local_key, remote_key, recv_key;
    Op op[OPS];
    unsigned posted, completed;
    /* Operations that consume a receive WQE */
    unsigned takers[OPS], num_takers;
    unsigned received, recv_posted;
    /* Value of the counter after all posted atomics */
    uint64_t model;
    bool failed;                /* An error completion has been polled */
} Flow;

typedef struct World {
    Sim *sim;
    Flow flow[2];
    SimQp *qp[2];
    bool shared;
} World;

static uint8_t *at(SimQp *q, uint64_t addr)
{
    return q->node->memory + addr;
}

static void fill(World *w, uint8_t *p, size_t len)
{
    while (len--) {
        *p++ = g_rand_int(w->sim->rand);
    }
}

static void flow_init(World *w, Flow *f, SimQp *from, SimQp *to)
{
    f->from = from;
    f->to = to;
    f->local = sim_alloc(from->node, OPS * SLOT);
    f->remote = sim_alloc(to->node, OPS * SLOT);
    f->recv = sim_alloc(to->node, OPS * SLOT);
    f->counter = sim_alloc(to->node, 8);
    f->local_key = sim_mkey(from->node, f->local, OPS * SLOT,
                            QRNIC_ACCESS_LOCAL_WRITE);
    f->remote_key = sim_mkey(to->node, f->remote,
                             f->counter + 8 - f->remote, ACCESS_ALL);
    f->recv_key = sim_mkey(to->node, f->recv, OPS * SLOT,
                           QRNIC_ACCESS_LOCAL_WRITE);
}

static uint32_t random_length(World *w)
{
    GRand *r = w->sim->rand;

    switch (g_rand_int_range(r, 0, 4)) {
    case 0:
        return g_rand_int_range(r, 0, 20);
    case 1:
        return 256 * g_rand_int_range(r, 0, 20) + g_rand_int_range(r, 0, 3);
    default:
        return g_rand_int_range(r, 0, LONGEST + 1);
    }
}

/* Divides len bytes into at most 30 segments. */
static unsigned cut(World *w, SimSge *sge, uint64_t addr, uint32_t len,
                    uint32_t key)
{
    unsigned most = g_rand_int_range(w->sim->rand, 1, QRNIC_MAX_SGE + 1);
    unsigned n = 0;

    while (len && n < most) {
        uint32_t part = n + 1 == most ? len :
                        g_rand_int_range(w->sim->rand, 1, len + 1);

        sge[n++] = (SimSge) { addr, part, key };
        addr += part;
        len -= part;
    }
    return n;
}

static void op_post(World *w, Flow *f)
{
    static const uint8_t opcodes[] = {
        QRNIC_WQE_SEND, QRNIC_WQE_SEND_IMM, QRNIC_WQE_RDMA_WRITE,
        QRNIC_WQE_RDMA_WRITE_IMM, QRNIC_WQE_RDMA_READ,
        QRNIC_WQE_ATOMIC_CMP_SWAP, QRNIC_WQE_ATOMIC_FETCH_ADD, QRNIC_WQE_NOP,
    };
    GRand *r = w->sim->rand;
    unsigned n = f->posted++;
    uint64_t local = f->local + n * SLOT, remote = f->remote + n * SLOT;
    Op *o = &f->op[n];
    SimSge sge[QRNIC_MAX_SGE];
    SimWr wr = { .sge = sge, .rkey = f->remote_key, .remote = remote };
    bool imm;

    o->opcode = opcodes[g_rand_int_range(r, 0, ARRAY_SIZE(opcodes))];
    o->flags = QRNIC_WQEF_SIGNALED |
               (g_rand_int_range(r, 0, 8) ? 0 : QRNIC_WQEF_FENCE);
    o->len = random_length(w);
    imm = o->opcode == QRNIC_WQE_SEND_IMM ||
          o->opcode == QRNIC_WQE_RDMA_WRITE_IMM;
    o->imm = imm ? g_rand_int(r) : 0;
    fill(w, at(f->from, local), SLOT);
    fill(w, at(f->to, remote), SLOT);
    switch (o->opcode) {
    case QRNIC_WQE_NOP:
        o->len = 0;
        break;
    case QRNIC_WQE_ATOMIC_CMP_SWAP:
        o->len = 8;
        wr.remote = f->counter;
        wr.swap_add = (uint64_t)g_rand_int(r) << 32 | g_rand_int(r);
        wr.compare = g_rand_boolean(r) ? f->model : g_rand_int(r);
        o->expect = f->model;
        f->model = wr.compare == f->model ? wr.swap_add : f->model;
        break;
    case QRNIC_WQE_ATOMIC_FETCH_ADD:
        o->len = 8;
        wr.remote = f->counter;
        wr.swap_add = (uint64_t)g_rand_int(r) << 32 | g_rand_int(r);
        o->expect = f->model;
        f->model += wr.swap_add;
        break;
    case QRNIC_WQE_SEND:
    case QRNIC_WQE_SEND_IMM:
    case QRNIC_WQE_RDMA_WRITE_IMM:
        f->takers[f->num_takers++] = n;
        break;
    }
    if (o->opcode != QRNIC_WQE_RDMA_READ && o->len > 8 && o->len <= 256 &&
        g_rand_boolean(r)) {
        wr.inline_data = at(f->from, local);
        wr.inline_length = o->len;
    } else {
        bool atomic = o->opcode >= QRNIC_WQE_ATOMIC_CMP_SWAP;

        wr.num_sge = cut(w, sge, local, o->len, f->local_key);
        if (atomic) {
            sge[0].length = 8;
            wr.num_sge = 1;
        }
    }
    wr.opcode = o->opcode;
    wr.flags = o->flags;
    wr.imm = o->imm;
    o->index = f->from->sq_producer;
    sim_post_send(f->from, &wr);
}

static void recv_post(World *w, Flow *f)
{
    SimSge sge[QRNIC_MAX_SGE];
    uint64_t addr = f->recv + f->recv_posted++ * SLOT;
    unsigned n = cut(w, sge, addr, LONGEST, f->recv_key);

    fill(w, at(f->to, addr), SLOT);
    sim_post_recv(f->to, sge, n);
}

static void check_send_cqe(World *w, Flow *f, const QrnicCqe *c)
{
    static const uint8_t none[SLOT];
    Op *o = &f->op[f->completed];
    uint64_t local = f->local + f->completed * SLOT;
    uint64_t remote = f->remote + f->completed * SLOT;

    g_assert_cmpuint(f->completed, <, f->posted);
    g_assert_cmpuint(c->index, ==, o->index);
    f->completed++;
    if (c->status != QRNIC_WC_SUCCESS) {
        /* A failed carrier flushes its members, idle ones included. */
        g_assert_cmpstr(qrnic_wc_status_name(c->status), ==,
                        f->failed || (w->shared &&
                                      c->status == QRNIC_WC_WR_FLUSH_ERR) ?
                        qrnic_wc_status_name(QRNIC_WC_WR_FLUSH_ERR) :
                        qrnic_wc_status_name(QRNIC_WC_RETRY_EXC_ERR));
        f->failed = true;
        return;
    }
    g_assert_false(f->failed);
    o->completed = true;
    switch (o->opcode) {
    case QRNIC_WQE_RDMA_READ:
        g_assert_cmpuint(c->byte_len, ==, o->len);
        /* fall through */
    case QRNIC_WQE_RDMA_WRITE:
    case QRNIC_WQE_RDMA_WRITE_IMM:
        g_assert_cmpmem(at(f->from, local), o->len, at(f->to, remote), o->len);
        break;
    case QRNIC_WQE_ATOMIC_CMP_SWAP:
    case QRNIC_WQE_ATOMIC_FETCH_ADD:
        g_assert_cmpuint(c->byte_len, ==, 8);
        g_assert_cmphex(ldq_le_p(at(f->from, local)), ==, o->expect);
        break;
    }
    /* The slot is overwritten, because no later access to it is allowed. */
    if (o->opcode == QRNIC_WQE_RDMA_READ || o->opcode == QRNIC_WQE_RDMA_WRITE) {
        memcpy(at(f->to, remote), none, SLOT);
        memcpy(at(f->from, local), none, SLOT);
    }
}

static void check_recv_cqe(World *w, Flow *f, const QrnicCqe *c)
{
    unsigned n = f->received++;
    uint64_t recv = f->recv + n * SLOT;
    Op *o;

    g_assert_cmpuint(c->index, ==, n);
    if (c->status == QRNIC_WC_WR_FLUSH_ERR) {
        return;
    }
    g_assert_cmpstr(qrnic_wc_status_name(c->status), ==,
                    qrnic_wc_status_name(QRNIC_WC_SUCCESS));
    g_assert_cmpuint(n, <, f->num_takers);
    o = &f->op[f->takers[n]];
    g_assert_cmpuint(c->byte_len, ==, o->len);
    g_assert_cmphex(c->imm, ==, o->imm);
    if (o->opcode == QRNIC_WQE_RDMA_WRITE_IMM) {
        g_assert_cmphex(c->opcode, ==, QRNIC_CQE_RECV_RDMA_WITH_IMM);
        recv = f->remote + f->takers[n] * SLOT;
    } else {
        g_assert_cmphex(c->opcode, ==, QRNIC_CQE_RECV);
    }
    g_assert_cmpmem(at(f->to, recv), o->len,
                    at(f->from, f->local + f->takers[n] * SLOT), o->len);
}

static void poll_all(World *w)
{
    for (int i = 0; i < 2; i++) {
        QrnicCqe c;

        while (sim_poll(w->qp[i], &c)) {
            if (c.opcode & 0x80) {
                check_recv_cqe(w, &w->flow[!i], &c);
            } else {
                check_send_cqe(w, &w->flow[i], &c);
            }
        }
    }
}

static void flow_feed(World *w, Flow *f)
{
    GRand *r = w->sim->rand;
    uint32_t free_blocks = 256;

    if (f->completed < f->posted) {
        free_blocks -= f->from->sq_producer - f->op[f->completed].index;
    }
    for (unsigned n = g_rand_int_range(r, 0, 12);
         n && f->posted < OPS && free_blocks >= 8; n--) {
        op_post(w, f);
        free_blocks -= 8;
    }
    for (unsigned n = g_rand_int_range(r, 0, 6); n && f->recv_posted < OPS;
         n--) {
        recv_post(w, f);
    }
}

static bool flow_done(const Flow *f)
{
    return f->completed == OPS;
}

typedef struct Weather {
    const char *name;
    unsigned loss, repeat, reorder, corrupt, wire_room;
    bool ipv6, vlan;
    unsigned rounds;            /* Without congestion control and link */
    bool may_fail;              /* Retries may be exhausted by chance */
} Weather;

static const Weather weathers[] = {
    { "calm", 0, 0, 0, 0, 0, false, false, 4, false },
    { "loss-1", 10, 0, 0, 0, 0, true, false, 8, false },
    { "loss-5", 50, 0, 0, 0, 0, false, true, 8, false },
    { "loss-10", 100, 0, 0, 0, 0, true, true, 8, true },
    { "loss-20", 200, 0, 0, 0, 0, false, false, 8, true },
    { "repeat", 0, 100, 0, 0, 0, false, false, 6, false },
    { "repeat-20", 0, 200, 0, 0, 0, true, false, 6, false },
    { "reorder", 0, 0, 30, 0, 0, false, false, 8, true },
    { "reorder-20", 0, 0, 200, 0, 0, true, true, 4, true },
    { "corrupt", 0, 0, 0, 30, 0, true, false, 8, false },
    { "corrupt-20", 0, 0, 0, 200, 0, false, false, 4, true },
    { "backpressure", 10, 0, 0, 0, 3, false, false, 6, false },
    { "all", 30, 30, 20, 20, 5, true, true, 10, true },
    { "all-20", 200, 200, 200, 200, 0, false, true, 2, true },
};

typedef struct Case {
    const Weather *weather;
    uint8_t options;            /* QRNIC_QPO_* */
    bool congestion, link;
    unsigned rounds;
    uint32_t seed;              /* Seed of the first round */
    /* Members of a carrier; packets are ENCAPSULATED */
    bool shared;
} Case;

/* Marks some of the packets with ECT. */
static bool mark_some(Sim *s, unsigned from, const uint8_t *frame, size_t len)
{
    return g_rand_int_range(s->rand, 0, 16) == 0;
}

/* Sets rates that delay the packets of these queue pairs. */
static void congestion_start(Sim *s)
{
    for (unsigned i = 0; i < SIM_NODES; i++) {
        QrnicEngine *e = s->node[i].engine;
        QrnicCongestionCtx c;

        g_assert_cmpint(qrnic_congestion_query(e, &c).status, ==, QRNIC_ST_OK);
        c.flags |= QRNIC_CONGESTION_NP | QRNIC_CONGESTION_RP |
                   QRNIC_CONGESTION_ECT;
        c.rp_rate_to_set_on_first_cnp = 1000;
        c.rp_min_rate = 500;
        g_assert_cmpint(qrnic_congestion_set(e, &c).status, ==, QRNIC_ST_OK);
    }
    s->marks = mark_some;
}

static uint64_t of_both(const World *w, enum qrnic_counter c)
{
    return sim_counter(&w->sim->node[0], c) + sim_counter(&w->sim->node[1], c);
}

/* Asserts that the features of this case were used. */
static void check_features(const World *w, const Case *x)
{
    const Weather *k = x->weather;

    if (x->congestion) {
        g_assert_cmpuint(of_both(w, QRNIC_COUNTER_NP_CNP_SENT), >, 0);
        g_assert_cmpuint(of_both(w, QRNIC_COUNTER_RP_CNP_HANDLED), >, 0);
        g_assert_cmpuint(of_both(w, QRNIC_COUNTER_RATE_WAITS), >, 0);
    }
    if (x->link) {
        uint64_t again = w->sim->node[0].link_count
                         [QRNIC_LINK_TX_RETRANSMISSIONS];

        /*
         * The transport sees a wire in order and without loss. Therefore no NAK
         * is expected.
         */
        g_assert_cmpuint(of_both(w, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 0);
        g_assert_cmpint(again > 0, ==, k->loss || k->reorder || k->corrupt);
    } else if (k->loss + k->corrupt >= 100 && !x->congestion) {
        bool kept = of_both(w, QRNIC_COUNTER_BUFFERED_PACKETS) +
                    of_both(w, QRNIC_COUNTER_PLACED_PACKETS);

        g_assert_cmpint(kept, ==, x->options != 0);
    }
}

static void random_run(const Case *x, uint32_t seed)
{
    const Weather *k = x->weather;
    SimOptions o = {
        .ipv6 = k->ipv6, .vlan = k->vlan, .memory = 32 << 20,
        .link_retransmission = x->link,
    };
    SimConnect c = sim_connect_default();
    SimQp *carrier[2] = { NULL, NULL };
    World *w = g_new0(World, 1);
    GRand *r;

    g_test_message("%s: seed %u", k->name, seed);
    w->shared = x->shared;
    w->sim = sim_new(seed, &o);
    r = w->sim->rand;
    w->sim->loss = k->loss;
    w->sim->repeat = k->repeat;
    w->sim->reorder = k->reorder;
    w->sim->corrupt = k->corrupt;
    w->sim->wire_room = k->wire_room;
    w->sim->wire_pause = 7 * SIM_US;
    for (int i = 0; i < 2; i++) {
        w->qp[i] = sim_qp_new(&w->sim->node[i], 8, 8, 3, 10);
    }
    flow_init(w, &w->flow[0], w->qp[0], w->qp[1]);
    flow_init(w, &w->flow[1], w->qp[1], w->qp[0]);
    c.options = x->options;
    c.path_mtu = g_rand_int_range(r, QRNIC_MTU_256, QRNIC_MTU_4096 + 1);
    c.psn_a = g_rand_boolean(r) ? 0xffffe0 : g_rand_int(r) & QRNIC_PSN_MASK;
    c.psn_b = g_rand_boolean(r) ? 0x7fffe0 : g_rand_int(r) & QRNIC_PSN_MASK;
    /*
     * Longer, because a blocked wire, rates and the link delay the responses.
     */
    c.timeout = x->link ? 14 : k->wire_room || x->congestion ? 10 : 5;
    c.min_rnr_timer = 3;
    c.max_dest_rd_atomic = g_rand_int_range(r, 1, 9);
    c.rd_atomic = g_rand_int_range(r, 1, c.max_dest_rd_atomic + 1);
    if (x->shared) {
        for (int i = 0; i < 2; i++) {
            carrier[i] = sim_carrier_new(&w->sim->node[i]);
        }
        sim_carrier_connect(carrier[0], carrier[1], &c);
        c.options = 0;
        c.carrier_a = carrier[0];
        c.carrier_b = carrier[1];
    }
    sim_connect(w->qp[0], w->qp[1], &c);
    if (x->congestion) {
        congestion_start(w->sim);
    }

    while (!flow_done(&w->flow[0]) || !flow_done(&w->flow[1])) {
        g_assert_cmpint(w->sim->now, <, 20000 * SIM_MS);
        flow_feed(w, &w->flow[0]);
        flow_feed(w, &w->flow[1]);
        sim_run(w->sim, w->sim->now +
                        g_rand_int_range(r, 1, 40) * SIM_US);
        poll_all(w);
    }
    for (int i = 0; i < 2; i++) {
        Flow *f = &w->flow[i];

        if (f->failed) {
            g_assert_true(k->may_fail && !x->link);
            g_test_message("%s: seed %u: flow %d gave up", k->name, seed, i);
        } else if (!w->flow[!i].failed) {
            g_assert_cmpuint(f->received, ==, f->num_takers);
            g_assert_cmphex(ldq_le_p(at(f->to, f->counter)), ==, f->model);
        }
    }
    check_features(w, x);
    for (int i = 0; i < 2; i++) {
        sim_qp_free(w->qp[i]);
        if (carrier[i]) {
            sim_carrier_free(carrier[i]);
        }
    }
    sim_free(w->sim);
    g_free(w);
}

static void test_weather(gconstpointer opaque)
{
    const Case *k = opaque;
    const char *seed = g_getenv("QRNIC_SEED");
    const char *rounds = g_getenv("QRNIC_ROUNDS");
    unsigned n = rounds ? atoi(rounds) : k->rounds;

    if (seed) {
        random_run(k, g_ascii_strtoull(seed, NULL, 0));
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        random_run(k, k->seed + i);
    }
}

static const struct {
    const char *name;
    uint8_t value;
    bool shared;
} options[] = {
    { "rc", 0 },
    { "selective", QRNIC_QPO_SELECTIVE_REPEAT },
    { "adaptive", QRNIC_QPO_ADAPTIVE_ROUTING },
    { "both", QRNIC_QPO_SELECTIVE_REPEAT | QRNIC_QPO_ADAPTIVE_ROUTING },
    { "shared", 0, true },
    { "shared-selective", QRNIC_QPO_SELECTIVE_REPEAT, true },
    { "shared-both",
      QRNIC_QPO_SELECTIVE_REPEAT | QRNIC_QPO_ADAPTIVE_ROUTING, true },
};

/* Features besides the transport */
static const struct {
    const char *name;
    bool congestion, link;
} besides[] = {
    { "", false, false },
    { "-congestion", true, false },
    { "-link", false, true },
    { "-congestion-link", true, true },
};

static Case cases[ARRAY_SIZE(besides)][ARRAY_SIZE(options)]
                 [ARRAY_SIZE(weathers)];

static void add(unsigned beside, unsigned option, unsigned weather)
{
    Case *c = &cases[beside][option][weather];
    g_autofree char *path = g_strdup_printf("/%s%s/random/%s",
                                            options[option].name,
                                            besides[beside].name,
                                            weathers[weather].name);

    *c = (Case) {
        .weather = &weathers[weather], .options = options[option].value,
        .shared = options[option].shared,
        .congestion = besides[beside].congestion, .link = besides[beside].link,
        .rounds = beside ? 1 : weathers[weather].rounds,
        .seed = 1000 + 100 * beside + 10 * option,
    };
    g_test_add_data_func(path, c, test_weather);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned b = 0; b < ARRAY_SIZE(besides); b++) {
        for (unsigned o = 0; o < ARRAY_SIZE(options); o++) {
            for (unsigned k = 0; k < ARRAY_SIZE(weathers); k++) {
                add(b, o, k);
            }
        }
    }
    return g_test_run();
}
