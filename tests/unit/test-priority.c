/*
 * Priorities: the order in which queue pairs are scheduled, by the frames on
 * the wire
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "pair.h"

#define MTU 1024u
#define TURN 16u                /* Packets of one slot */
#define FRAMES 20000u

typedef struct World {
    Sim *sim;
    unsigned count;
    SimQp *a[16], *b[16];
    PairEnd from, to;
    uint8_t order[FRAMES];      /* Sender of each frame of node 0 */
    unsigned frames;
} World;

static bool watch(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                  void *opaque)
{
    World *w = opaque;
    QrnicPacket p;

    if (from == 0 && sim_parse(&p, frame, len) == QRNIC_PARSE_OK) {
        for (unsigned i = 0; i < w->count && w->frames < FRAMES; i++) {
            if (w->b[i]->number == p.t.dest_qpn) {
                w->order[w->frames++] = i;
                break;
            }
        }
    }
    return true;
}

static void memory_new(PairEnd *m, SimNode *n)
{
    m->addr = sim_alloc(n, PAIR_BYTES);
    m->data = n->memory + m->addr;
    m->key = sim_mkey(n, m->addr, PAIR_BYTES, ACCESS_ALL);
}

static QrnicResult priority_set(SimQp *q, uint8_t priority)
{
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_PRIORITY, .priority = priority,
    };

    return sim_modify(q, &attr);
}

/*
 * Makes unreliable connections, because these do not wait for ACKs. level[i] is
 * the level of queue pair i.
 */
static World *world_new(unsigned count, const uint8_t *level)
{
    World *w = g_new0(World, 1);

    w->sim = sim_new(1, NULL);
    w->count = count;
    memory_new(&w->from, &w->sim->node[0]);
    memory_new(&w->to, &w->sim->node[1]);
    for (unsigned i = 0; i < count; i++) {
        w->a[i] = sim_uc_new(&w->sim->node[0], NULL);
        w->b[i] = sim_uc_new(&w->sim->node[1], NULL);
        sim_uc_connect(w->a[i], w->b[i]);
        if (level[i]) {
            g_assert_cmpint(priority_set(w->a[i], level[i] + 1).status, ==,
                            QRNIC_ST_OK);
        }
    }
    sim_run(w->sim, SIM_MS);
    w->sim->tap = watch;
    w->sim->tap_opaque = w;
    return w;
}

static void world_free(World *w)
{
    for (unsigned i = 0; i < w->count; i++) {
        sim_qp_free(w->a[i]);
        sim_qp_free(w->b[i]);
    }
    sim_free(w->sim);
    g_free(w);
}

static void bulk(World *w, unsigned i, unsigned messages)
{
    SimSge sge = { w->from.addr, PAIR_BYTES, w->from.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = w->to.addr, .rkey = w->to.key,
    };

    while (messages--) {
        sim_post_send_quiet(w->a[i], &wr);
    }
    sim_ring_sq(w->a[i]);
}

static void run(World *w)
{
    g_assert_true(sim_run(w->sim, w->sim->now + 1000 * SIM_MS));
}

/* Asserts the slots while queue pairs of another level were ready. */
static void expect_turns(World *w, uint64_t turns, uint64_t reliefs)
{
    SimNode *n = &w->sim->node[0];

    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_PRIORITY_SLOTS), ==, turns);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_PRIORITY_RELIEFS), ==,
                     reliefs);
}

/* Tests the worked example of the manual, slot by slot. */
static void test_strict(void)
{
    const uint8_t level[] = { 8, 0, 0 };
    World *w = world_new(3, level);

    for (unsigned i = 0; i < 3; i++) {
        bulk(w, i, 1);
    }
    run(w);
    g_assert_cmpuint(w->frames, ==, 3 * PAIR_BYTES / MTU);
    for (unsigned t = 0; t < 64; t++) {
        unsigned who = t % 16 < 15 ? 0 : 1 + t / 16 % 2;

        for (unsigned n = 0; n < TURN; n++) {
            g_assert_cmpuint(w->order[t * TURN + n], ==, who);
        }
    }
    /*
     * 64 slots of the first, one in which it has no work, and 4 relief slots.
     * Then all ready queue pairs have one level.
     */
    expect_turns(w, 64 + 1 + 4, 4);
    world_free(w);
}

static void test_weighted(void)
{
    static const unsigned who[] = { 0, 0, 1, 0, 0, 2 };
    const uint8_t level[] = { 1, 0, 0 };
    World *w = world_new(3, level);

    for (unsigned i = 0; i < 3; i++) {
        bulk(w, i, 1);
    }
    run(w);
    for (unsigned t = 0; t < 60; t++) {
        for (unsigned n = 0; n < TURN; n++) {
            g_assert_cmpuint(w->order[t * TURN + n], ==, who[t % 6]);
        }
    }
    /*
     * The first queue pair has its slots as before, and the others have one
     * slot after each two.
     */
    expect_turns(w, 64 + 1 + 32, 0);
    world_free(w);
}

/*
 * Tests that every level has slots, with at most the distance that the manual
 * states. Otherwise low levels could starve.
 */
static void test_starvation(void)
{
    for (unsigned strict = 0; strict < 2; strict++) {
        uint8_t level[16];
        unsigned last[16] = { 0 }, bound = strict ? 240 : 255;
        unsigned count = strict ? 16 : 8;
        World *w;

        for (unsigned i = 0; i < count; i++) {
            level[i] = i;
        }
        w = world_new(count, level);
        for (unsigned i = 0; i < count; i++) {
            bulk(w, i, strict ? 16 : 24);
        }
        run(w);
        g_assert_cmpuint(w->frames, ==, FRAMES);
        /* In this time all of the queue pairs have work. */
        for (unsigned t = 0; t < 2 * bound + 20; t++) {
            unsigned i = w->order[t * TURN];

            g_assert_cmpuint(t - last[i], <=, bound);
            last[i] = t;
        }
        for (unsigned i = 0; i < count; i++) {
            g_assert_cmpuint(last[i], >=, bound + 20);
        }
        world_free(w);
    }
}

/* Tests a level that changes while the queue pair waits for the wire. */
static void test_change(void)
{
    const uint8_t level[] = { 0, 0, 0 };
    World *w = world_new(3, level);
    QrnicQpAttr reset = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET };
    unsigned begin, mine = 0;

    w->sim->wire_room = 1;
    w->sim->wire_pause = 100;
    bulk(w, 0, 1);
    bulk(w, 1, 1);
    bulk(w, 2, 1);
    sim_run(w->sim, w->sim->now + 50 * 100);
    g_assert_cmpint(priority_set(w->a[2], 16).status, ==, QRNIC_ST_OK);
    begin = w->frames;
    run(w);
    for (unsigned n = begin; n < begin + 640; n++) {
        mine += w->order[n] == 2;
    }
    /* 15 of 16 slots; a frame of others may have been queued before. */
    g_assert_cmpuint(mine, >=, 580);
    g_assert_cmpuint(mine, <, 640);
    g_assert_cmpuint(sim_query(w->a[2]).priority, ==, 16);
    g_assert_cmpint(sim_modify(w->a[2], &reset).status, ==, QRNIC_ST_OK);
    g_assert_cmpuint(sim_query(w->a[2]).priority, ==, 0);
    world_free(w);
}

/*
 * Tests that the level is that of the address vector, unless MODIFY_QP sets
 * another.
 */
static void test_attribute(void)
{
    for (unsigned set = 0; set < 2; set++) {
        Sim *s = sim_new(1, NULL);
        World *w = g_new0(World, 1);

        w->sim = s;
        w->count = 2;
        memory_new(&w->from, &s->node[0]);
        memory_new(&w->to, &s->node[1]);
        for (unsigned i = 0; i < 2; i++) {
            SimQp *q = sim_qp_new(&s->node[0], 6, 6, 0, 8);
            SimQp *peer = sim_qp_new(&s->node[1], 6, 6, 0, 8);
            QrnicQpAttr attr = sim_attr_init();

            sim_connect(peer, q, NULL);
            sim_modify(q, &(QrnicQpAttr) {
                .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
            });
            sim_modify(q, &attr);
            attr = sim_attr_rtr(q, peer);
            attr.rq_psn = sim_connect_default().psn_a;
            attr.av.sl = i ? 8 : 0;
            g_assert_cmpint(sim_modify(q, &attr).status, ==, QRNIC_ST_OK);
            attr = sim_attr_rts();
            attr.sq_psn = sim_connect_default().psn_b;
            if (set && i) {
                attr.mask |= QRNIC_QP_PRIORITY;
                attr.priority = 1;
            }
            g_assert_cmpint(sim_modify(q, &attr).status, ==, QRNIC_ST_OK);
            w->a[i] = q;
            w->b[i] = peer;
        }
        sim_run(s, SIM_MS);
        s->tap = watch;
        s->tap_opaque = w;
        bulk(w, 0, 1);
        bulk(w, 1, 1);
        sim_run(s, s->now + 100 * SIM_MS);
        /*
         * The first doorbell gets the first slot if there are no other
         * differences.
         */
        g_assert_cmpuint(w->order[0], ==, set ? 0 : 1);
        g_assert_cmpint(priority_set(w->a[0], 17).status, ==,
                        QRNIC_ST_BAD_PARAM);
        world_free(w);
    }
}

/* Counts the frames of each queue pair as they leave */
typedef struct Leaving {
    World *w;
    unsigned frames[2];
} Leaving;

static bool count_leaving(Sim *s, unsigned from, const uint8_t *frame,
                          size_t len, void *opaque)
{
    Leaving *x = opaque;
    QrnicPacket p;

    if (!from && sim_parse(&p, frame, len) == QRNIC_PARSE_OK) {
        x->frames[p.t.dest_qpn == x->w->b[1]->number]++;
    }
    return true;
}

/*
 * Tests one queue pair that is ready while all others wait for a busy wire. The
 * order of slots must not change. The wires block after few frames and after
 * many.
 */
static void test_busy_wire(void)
{
    static const unsigned rooms[] = { 1, 5, 16, 17, 40 };
    static const uint8_t level[] = { 15, 0 };

    for (unsigned i = 0; i < ARRAY_SIZE(rooms); i++) {
        Leaving x = { world_new(2, level) };

        x.w->sim->tap = count_leaving;
        x.w->sim->tap_opaque = &x;
        x.w->sim->wire_room = rooms[i];
        x.w->sim->wire_pause = 10 * SIM_US;
        bulk(x.w, 0, 16);
        bulk(x.w, 1, 16);
        sim_run(x.w->sim, x.w->sim->now + 5 * SIM_MS);
        g_assert_cmpuint(x.frames[0], >, 100);
        g_assert_cmpuint(x.frames[1] * 200, >, x.frames[0]);
        world_free(x.w);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/priority/strict", test_strict);
    g_test_add_func("/priority/weighted", test_weighted);
    g_test_add_func("/priority/starvation", test_starvation);
    g_test_add_func("/priority/change", test_change);
    g_test_add_func("/priority/attribute", test_attribute);
    g_test_add_func("/priority/busy-wire", test_busy_wire);
    return g_test_run();
}
