/*
 * Forged packets, a wire with all faults, and software that resets, destroys
 * and modifies at any time: connections, carriers and members, with all
 * options. The results are unknown, but the device must survive, and must keep
 * no resource once everything is in RESET.
 *
 * QRNIC_SEED=n runs only that seed, QRNIC_SEEDS=n that many.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/qp/qp.h"
#include "pair.h"

#define QPS 10
#define CARRIERS 2
#define NO_CARRIER CARRIERS
#define FRAMES 64               /* Frames that can be repeated */
#define SEEDS 50
#define STEPS 3000
#define LONGEST 60000

/* Offsets in frames of the simulated wire, which have no VLAN tag */
#define IP 14
#define BTH (IP + 20 + 8)
#define BTH_BYTES 12
#define ICRC_BYTES 4

typedef struct World {
    Sim *sim;
    GRand *rand;
    SimQp *carrier[CARRIERS][2];
    PairEnd end[QPS][2];
    unsigned carrier_of[QPS];
    GBytes *frame[FRAMES];
    unsigned to[FRAMES], frames, forged;
} World;

static uint32_t below(World *w, uint32_t n)
{
    return g_rand_int_range(w->rand, 0, n);
}

/* The wire */

static bool tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                void *opaque)
{
    World *w = opaque;
    unsigned i = w->frames++ % FRAMES;

    g_clear_pointer(&w->frame[i], g_bytes_unref);
    w->frame[i] = g_bytes_new(frame, len);
    w->to[i] = !from;
    return true;
}

static bool marks(Sim *s, unsigned from, const uint8_t *frame, size_t len)
{
    return below(s->tap_opaque, 10) == 0;
}

/* Changes the low 24 bits by a random distance, and keeps the others. */
static void shift24(World *w, uint8_t *at, int32_t most)
{
    uint32_t old = ldl_be_p(at);
    uint32_t new = old + g_rand_int_range(w->rand, -most, most);

    stl_be_p(at, (old & 0xff000000) | (new & QRNIC_PSN_MASK));
}

static void forge(World *w, uint8_t *frame, size_t len)
{
    size_t behind = len - BTH - BTH_BYTES - ICRC_BYTES;
    uint8_t *bth = frame + BTH, *more = bth + BTH_BYTES;

    switch (below(w, 8)) {
    case 0:                     /* Opcode of the same service */
        bth[0] = (bth[0] & 0xe0) | below(w, 32);
        break;
    case 1:                     /* AckReq and the marks */
        bth[8] = below(w, 256);
        break;
    case 2:
    case 3:                     /* PSN */
        shift24(w, bth + 8, 300);
        break;
    case 4:                     /* Any byte of the other headers */
        if (behind) {
            more[below(w, MIN(behind, 60))] = below(w, 256);
        }
        break;
    case 5:                     /* For example a PSN in a SACK */
        if (behind >= 16) {
            shift24(w, more + 4 * below(w, 4), 150);
        }
        break;
    case 6:                     /* Pad */
        bth[1] ^= 0x10 << below(w, 2);
        break;
    case 7:                     /* Destination */
        bth[7] = below(w, 40);
        break;
    }
}

/* Repeats a frame with up to three changes. */
static void forged_inject(World *w)
{
    unsigned i = below(w, FRAMES);
    g_autofree uint8_t *frame = NULL;
    unsigned ip_bytes;
    gsize len;

    if (!w->frame[i]) {
        return;
    }
    frame = g_memdup2(g_bytes_get_data(w->frame[i], NULL),
                      g_bytes_get_size(w->frame[i]));
    len = g_bytes_get_size(w->frame[i]);
    for (unsigned n = below(w, 4); n; n--) {
        forge(w, frame, len);
    }
    ip_bytes = lduw_be_p(frame + IP + 2);
    stl_le_p(frame + IP + ip_bytes - ICRC_BYTES,
             qrnic_icrc(QRNIC_ICRC_STANDARD, frame + IP, ip_bytes - ICRC_BYTES,
                        QRNIC_NET_IPV4));
    w->forged++;
    sim_inject(w->sim, w->to[i], frame, len);
}

/* Software, which may also issue invalid commands */

static void state_set(SimQp *q, uint8_t state)
{
    const QrnicQpAttr a = { .mask = QRNIC_QP_STATE, .state = state };

    if (sim_modify(q, &a).status == QRNIC_ST_OK && q->sq_record &&
        state == QRNIC_QPS_RESET) {
        q->sq_producer = q->rq_producer = 0;
        stl_le_p(q->node->memory + q->sq_record, 0);
        stl_le_p(q->node->memory + q->rq_record, 0);
    }
}

static uint32_t psn_new(World *w)
{
    return below(w, 2) ? QRNIC_PSN_MASK - below(w, 300) :
                         below(w, QRNIC_PSN_MASK);
}

static void member_start(World *w, SimQp *q, SimQp *peer, SimQp *carrier,
                         uint32_t sq_psn, uint32_t rq_psn)
{
    QrnicQpAttr a = sim_attr_init();

    sim_modify(q, &a);
    a = sim_attr_rtr(q, peer);
    a.rq_psn = rq_psn;
    a.min_rnr_timer = 1 + below(w, 4);
    if (carrier) {
        a.mask |= QRNIC_QP_CARRIER;
        a.carrier = carrier->number;
    } else {
        a.mask |= QRNIC_QP_OPTIONS;
        a.options = below(w, 4);
    }
    sim_modify(q, &a);
    a = sim_attr_rts();
    a.timeout = 4 + below(w, 8);
    a.retry_cnt = below(w, 8);
    a.rnr_retry = 7;
    a.sq_psn = sq_psn;
    sim_modify(q, &a);
}

static void carrier_start(World *w, SimQp *q, SimQp *peer, uint32_t sq_psn,
                          uint32_t rq_psn)
{
    QrnicQpAttr a = sim_attr_init();

    a.mask &= ~QRNIC_QP_ACCESS_FLAGS;
    a.access = 0;
    sim_modify(q, &a);
    a = sim_attr_rtr(q, peer);
    a.mask &= ~(QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER);
    a.mask |= QRNIC_QP_OPTIONS;
    a.max_dest_rd_atomic = a.min_rnr_timer = 0;
    a.rq_psn = rq_psn;
    a.options = below(w, 2) * QRNIC_QPO_SELECTIVE_REPEAT |
                below(w, 2) * QRNIC_QPO_INTRODUCE;
    if (below(w, 5) == 0) {
        a.dest_qpn = 0;
    }
    sim_modify(q, &a);
    a = sim_attr_rts();
    a.mask &= ~(QRNIC_QP_RNR_RETRY | QRNIC_QP_MAX_RD_ATOMIC);
    a.rnr_retry = a.max_rd_atomic = 0;
    a.timeout = 4 + below(w, 8);
    a.retry_cnt = below(w, 8);
    a.sq_psn = sq_psn;
    sim_modify(q, &a);
}

static void pair_reset(World *w, unsigned n)
{
    for (unsigned i = 0; i < 2; i++) {
        state_set(w->end[n][i].qp, QRNIC_QPS_RESET);
    }
}

static void pair_restart(World *w, unsigned n)
{
    uint32_t psn[2] = { psn_new(w), psn_new(w) };
    unsigned c = below(w, CARRIERS + 1);

    pair_reset(w, n);
    w->carrier_of[n] = c;
    for (unsigned i = 0; i < 2; i++) {
        member_start(w, w->end[n][i].qp, w->end[n][!i].qp,
                     c == NO_CARRIER ? NULL : w->carrier[c][i], psn[i],
                     psn[!i]);
    }
}

static void carriers_restart(World *w, unsigned c)
{
    uint32_t psn[2] = { psn_new(w), psn_new(w) };

    for (unsigned n = 0; n < QPS; n++) {
        if (w->carrier_of[n] == c) {
            pair_reset(w, n);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        state_set(w->carrier[c][i], QRNIC_QPS_RESET);
    }
    for (unsigned i = 0; i < 2; i++) {
        carrier_start(w, w->carrier[c][i], w->carrier[c][!i], psn[i],
                      psn[!i]);
    }
}

static void end_replace(World *w, PairEnd *e)
{
    SimQp *old = e->qp;

    /* The CQ and the memory stay. */
    g_assert_cmpint(qrnic_qp_destroy(old->node->engine, old->number).status,
                    ==, QRNIC_ST_OK);
    e->qp = sim_qp_new(old->node, 6, 6, 3, 9);
    g_free(old);
}

static void congestion_set(World *w, QrnicEngine *e)
{
    QrnicCongestionCtx c;

    qrnic_congestion_query(e, &c);
    c.flags = below(w, 64);
    c.rp_min_rate = 1 + below(w, 1000);
    c.rp_byte_reset = 1 + below(w, 40000);
    c.rp_time_reset = 1 + below(w, 300);
    c.rp_rate_to_set_on_first_cnp = below(w, 3) ? 0 : 1 + below(w, 1000);
    qrnic_congestion_set(e, &c);
}

static void send_some(World *w, PairEnd *from, PairEnd *to)
{
    static const uint8_t opcodes[] = {
        QRNIC_WQE_SEND, QRNIC_WQE_RDMA_WRITE, QRNIC_WQE_RDMA_WRITE_IMM,
        QRNIC_WQE_RDMA_READ, QRNIC_WQE_ATOMIC_FETCH_ADD,
    };
    uint8_t opcode = opcodes[below(w, ARRAY_SIZE(opcodes))];
    uint32_t len = opcode == QRNIC_WQE_ATOMIC_FETCH_ADD ? 8 :
                   below(w, below(w, 3) ? 3000 : LONGEST);

    for (unsigned n = 1 + below(w, 3); n; n--) {
        post(from, to, opcode, 8 * below(w, 1000), 8 * below(w, 1000), len);
    }
}

static void time_passes(World *w)
{
    QrnicEqe event;
    QrnicCqe cqe;

    sim_run(w->sim, w->sim->now + below(w, 300) * SIM_US);
    for (unsigned i = 0; i < 2; i++) {
        while (sim_poll_event(&w->sim->node[i], &event)) {
            continue;
        }
        for (unsigned n = 0; n < QPS; n++) {
            while (sim_poll(w->end[n][i].qp, &cqe)) {
                continue;
            }
        }
    }
}

static void step(World *w)
{
    unsigned n = below(w, QPS), i = below(w, 2), what = below(w, 1000);
    PairEnd *e = &w->end[n][i];

    if (what < 500) {
        send_some(w, e, &w->end[n][!i]);
    } else if (what < 700) {
        for (unsigned k = 0; k < 3; k++) {
            post_recv(e, 0, LONGEST);
        }
    } else if (what < 850) {
        for (unsigned k = below(w, 5); k; k--) {
            forged_inject(w);
        }
    } else if (what < 860) {
        state_set(e->qp, QRNIC_QPS_ERR);
    } else if (what < 880) {
        pair_restart(w, n);
    } else if (what < 884) {
        state_set(w->carrier[below(w, CARRIERS)][i],
                  below(w, 2) ? QRNIC_QPS_ERR : QRNIC_QPS_RESET);
    } else if (what < 890) {
        carriers_restart(w, below(w, CARRIERS));
    } else if (what < 895) {
        end_replace(w, e);
    } else if (what < 900) {
        state_set(e->qp, below(w, 2) ? QRNIC_QPS_SQD : QRNIC_QPS_RTS);
    } else if (what < 905) {
        congestion_set(w, w->sim->node[i].engine);
    } else {
        time_passes(w);
    }
}

/* One run */

static World *world_new(uint32_t seed)
{
    World *w = g_new0(World, 1);
    SimOptions o = {
        .memory = 64 << 20, .max_qp = 256, .max_cq = 1024, .max_mkey = 256,
    };

    if (seed & 1) {
        o.context_cache = 6;
        o.context_stations = seed & 2 ? 2 : 0;
        o.context_latency = 2000;
    }
    w->sim = sim_new(seed, &o);
    w->rand = g_rand_new_with_seed(seed);
    w->sim->tap = tap;
    w->sim->tap_opaque = w;
    w->sim->marks = marks;
    w->sim->loss = w->sim->repeat = w->sim->reorder = 30;
    if (seed & 4) {
        w->sim->wire_room = 3;
        w->sim->wire_pause = 20 * SIM_US;
    }
    for (unsigned i = 0; i < 2; i++) {
        SimNode *n = &w->sim->node[i];
        uint64_t addr = sim_alloc(n, PAIR_BYTES);
        uint32_t key = sim_mkey(n, addr, PAIR_BYTES, ACCESS_ALL);

        for (unsigned c = 0; c < CARRIERS; c++) {
            w->carrier[c][i] = sim_carrier_new(n);
        }
        for (unsigned k = 0; k < QPS; k++) {
            w->end[k][i] = (PairEnd) {
                .addr = addr, .data = n->memory + addr, .key = key,
                .qp = sim_qp_new(n, 6, 6, 3, 9),
            };
        }
    }
    for (unsigned c = 0; c < CARRIERS; c++) {
        carriers_restart(w, c);
    }
    for (unsigned n = 0; n < QPS; n++) {
        pair_restart(w, n);
    }
    return w;
}

static void world_free(World *w)
{
    sim_free(w->sim);
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned n = 0; n < QPS; n++) {
            g_free(w->end[n][i].qp);
        }
        for (unsigned c = 0; c < CARRIERS; c++) {
            g_free(w->carrier[c][i]);
        }
    }
    for (unsigned i = 0; i < FRAMES; i++) {
        g_clear_pointer(&w->frame[i], g_bytes_unref);
    }
    g_rand_free(w->rand);
    g_free(w);
}

static void expect_nothing_kept(World *w)
{
    for (unsigned n = 0; n < QPS; n++) {
        pair_reset(w, n);
    }
    for (unsigned i = 0; i < 2; i++) {
        const QrnicQps *qps = w->sim->node[i].engine->qps;

        for (unsigned c = 0; c < CARRIERS; c++) {
            state_set(w->carrier[c][i], QRNIC_QPS_RESET);
            expect_state(w->carrier[c][i], QRNIC_QPS_RESET);
        }
        g_assert_cmpuint(qps->buffered_bytes, ==, 0);
        g_assert_cmpuint(qps->encapsulated_bytes, ==, 0);
        g_assert_true(QTAILQ_EMPTY(&qps->cnps_owed));
    }
}

/*
 * Counters that must not be 0 after all runs, because the test would otherwise
 * prove nothing
 */
static const enum qrnic_counter wanted[] = {
    QRNIC_COUNTER_RX_INNER, QRNIC_COUNTER_RX_INNER_EARLY,
    QRNIC_COUNTER_BUFFERED_PACKETS, QRNIC_COUNTER_PLACED_PACKETS,
    QRNIC_COUNTER_RX_SACK, QRNIC_COUNTER_RX_READ, QRNIC_COUNTER_RX_ATOMIC,
    QRNIC_COUNTER_PROBES, QRNIC_COUNTER_TX_RNR_NAK,
    QRNIC_COUNTER_MEMBERS_FAILED, QRNIC_COUNTER_RP_CNP_HANDLED,
    QRNIC_COUNTER_RX_DROP_INNER,
};
static uint64_t happened[ARRAY_SIZE(wanted)];

/*
 * Runs the world of one seed. In every third run the device ends without a move
 * to RESET.
 */
static void live(uint32_t seed)
{
    World *w = world_new(seed);

    g_test_message("seed %u", seed);
    for (unsigned i = 0; i < STEPS; i++) {
        step(w);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++) {
        happened[i] += sim_counter(&w->sim->node[0], wanted[i]);
    }
    if (seed % 3) {
        expect_nothing_kept(w);
    }
    world_free(w);
}

static void test_keeps_nothing(void)
{
    const char *only = g_getenv("QRNIC_SEED"), *all = g_getenv("QRNIC_SEEDS");
    uint32_t seeds = all ? atoi(all) : SEEDS;

    if (only) {
        live(atoi(only));
        return;
    }
    for (uint32_t seed = 1; seed <= seeds; seed++) {
        live(seed);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++) {
        g_test_message("%s %" PRIu64, qrnic_counter_name(wanted[i]),
                       happened[i]);
        g_assert_cmpuint(happened[i], >, 0);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/forged/keeps-nothing", test_keeps_nothing);
    return g_test_run();
}
