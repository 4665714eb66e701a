/*
 * The context cache in virtual time: which work waits, for how long and in
 * which order; reads, writes and comparisons of images; corrupt context memory
 *
 * QRNIC_TEST_CONTEXTS (sim.c) runs all other tests with a cache of two contexts
 * as well. An access to a queue pair without its context then fails a
 * comparison.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/memory/memory.h"
#include "pair.h"

#define LATENCY (10 * SIM_US)
#define MOST 64u

/* Node 0 has the cache. Each of its queue pairs is connected to node 1. */
typedef struct World {
    Sim *sim;
    unsigned count;
    SimQp *a[MOST], *b[MOST];
    PairEnd from, to;           /* Memories */
    int64_t left[MOST];         /* Time of the last request of each; 0: never */
} World;

static bool watch(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                  void *opaque)
{
    World *w = opaque;
    QrnicPacket p;

    if (from == 0 && sim_parse(&p, frame, len) == QRNIC_PARSE_OK) {
        for (unsigned i = 0; i < w->count; i++) {
            if (w->b[i]->number == p.t.dest_qpn) {
                w->left[i] = s->now;
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

static World *world_new(unsigned count, uint32_t entries, uint32_t stations,
                        uint32_t latency)
{
    SimOptions o = {
        .context_cache = entries, .context_stations = stations,
        .context_latency = latency, .contexts_of_one = true,
    };
    World *w = g_new0(World, 1);

    w->sim = sim_new(1, &o);
    w->count = count;
    memory_new(&w->from, &w->sim->node[0]);
    memory_new(&w->to, &w->sim->node[1]);
    for (unsigned i = 0; i < count; i++) {
        w->a[i] = sim_qp_new(&w->sim->node[0], 6, 6, 0, 8);
        w->b[i] = sim_qp_new(&w->sim->node[1], 6, 6, 0, 8);
        sim_connect(w->a[i], w->b[i], NULL);
    }
    /* The setup is over, and the time is not 0, because 0 means never. */
    sim_run(w->sim, SIM_MS);
    w->sim->now = SIM_MS;
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

static SimNode *node(World *w)
{
    return &w->sim->node[0];
}

static uint64_t hits(World *w)
{
    return sim_counter(node(w), QRNIC_COUNTER_CONTEXT_HITS);
}

static uint64_t misses(World *w)
{
    return sim_counter(node(w), QRNIC_COUNTER_CONTEXT_MISSES);
}

static uint64_t write_backs(World *w)
{
    return sim_counter(node(w), QRNIC_COUNTER_CONTEXT_WRITE_BACKS);
}

static void post_write(World *w, unsigned i, uint64_t at, uint32_t len)
{
    SimSge sge = { w->from.addr + at, len, w->from.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = w->to.addr + at,
        .rkey = w->to.key,
    };

    sim_post_send(w->a[i], &wr);
}

static void run(World *w)
{
    g_assert_true(sim_run(w->sim, w->sim->now + 1000 * SIM_MS));
}

static uint8_t *image(World *w, unsigned i)
{
    return node(w)->memory + node(w)->contexts +
           (uint64_t)w->a[i]->number * QRNIC_CONTEXT_IMAGE_SIZE;
}

/* Evicts a context by using all others. */
static void push_out(World *w, unsigned i)
{
    for (unsigned n = 0; n < w->count; n++) {
        if (n != i) {
            sim_query(w->a[n]);
        }
    }
}

/*
 * Tests that a queue pair waits for its context only if the context is not
 * cached. Otherwise every packet would have the latency of a miss.
 */
static void test_latency(void)
{
    World *w = world_new(3, 2, 4, LATENCY);
    uint64_t before, read;

    push_out(w, 0);
    before = misses(w);
    read = w->sim->now;
    post_write(w, 0, 0, 64);
    run(w);
    g_assert_cmpint(w->left[0] - read, ==, LATENCY);
    expect_cqe(w->a[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpuint(misses(w), ==, before + 1);
    /* The ACK was a hit, and so is the next message. */
    before = hits(w);
    g_assert_cmpuint(before, >, 0);
    read = w->sim->now;
    post_write(w, 0, 0, 64);
    run(w);
    g_assert_cmpint(w->left[0] - read, ==, 0);
    g_assert_cmpuint(hits(w), >=, before + 2);
    world_free(w);
}

/*
 * Tests that with stations only this queue pair waits. Without stations the
 * device waits, because it processes packets in order.
 */
static void test_order(void)
{
    for (unsigned stations = 0; stations < 2; stations++) {
        World *w = world_new(3, 2, stations, LATENCY);
        int64_t begin;

        push_out(w, 0);
        begin = w->sim->now;
        post_write(w, 0, 0, 64);
        post_write(w, 2, 64, 64);
        run(w);
        g_assert_cmpint(w->left[0] - begin, ==, LATENCY);
        g_assert_cmpint(w->left[2] - begin, ==, stations ? 0 : LATENCY);
        world_free(w);
    }
}

/* Tests that the number of stations limits the concurrent fetches. */
static void test_stations(void)
{
    for (unsigned stations = 1; stations <= 4; stations *= 2) {
        World *w = world_new(16, 8, stations, LATENCY);
        int64_t begin;

        for (unsigned i = 8; i < 16; i++) {
            sim_query(w->a[i]);
        }
        begin = w->sim->now;
        for (unsigned i = 0; i < 8; i++) {
            post_write(w, i, 64 * i, 64);
        }
        run(w);
        for (unsigned i = 0; i < 8; i++) {
            g_assert_cmpint(w->left[i] - begin, >=,
                            LATENCY * (1 + i / stations));
        }
        g_assert_cmpint(w->left[0] - begin, ==, LATENCY);
        g_assert_cmpint(w->left[stations - 1] - begin, ==, LATENCY);
        world_free(w);
    }
}

/*
 * Tests that a changed context is written once. An unchanged one is not
 * written, to avoid needless DMA.
 */
static void test_write_back(void)
{
    World *w = world_new(3, 2, 4, 0);
    uint64_t before;

    /* Evicts each context once, because new contexts are always written. */
    push_out(w, 0);
    sim_query(w->a[0]);
    push_out(w, 0);
    before = write_backs(w);
    sim_query(w->a[0]);
    push_out(w, 0);
    sim_query(w->a[0]);
    push_out(w, 0);
    g_assert_cmpuint(write_backs(w), ==, before);
    post_write(w, 0, 0, 64);
    run(w);
    push_out(w, 0);
    g_assert_cmpuint(write_backs(w), ==, before + 1);
    g_assert_cmpuint(ldl_le_p(image(w, 0)), ==, w->a[0]->number);
    world_free(w);
}

/* Tests that a cache with room for all contexts has no misses and no writes. */
static void test_room(void)
{
    World *w = world_new(8, 8, 4, LATENCY);

    for (unsigned i = 0; i < 8; i++) {
        post_write(w, i, 64 * i, 64);
    }
    run(w);
    g_assert_cmpuint(misses(w), ==, 0);
    g_assert_cmpuint(write_backs(w), ==, 0);
    g_assert_cmpuint(hits(w), >=, 16);
    world_free(w);
}

/* Requests that arrive during the fetch wait, in order. */
static void test_inbound(void)
{
    for (unsigned stations = 0; stations < 5; stations += 4) {
        World *w = world_new(3, 2, stations, LATENCY);
        SimSge sge = { w->to.addr, 10000, w->to.key };
        SimWr wr = {
            .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
            .sge = &sge, .num_sge = 1, .remote = w->from.addr,
            .rkey = w->from.key,
        };
        int64_t begin;

        memset(w->to.data, 0x5c, 10000);
        push_out(w, 0);
        begin = w->sim->now;
        sim_post_send(w->b[0], &wr);
        sim_run(w->sim, begin + w->sim->latency + LATENCY - 1);
        g_assert_cmphex(w->from.data[0], ==, 0);
        sim_run(w->sim, begin + w->sim->latency + LATENCY);
        g_assert_cmpmem(w->from.data, 10000, w->to.data, 10000);
        run(w);
        expect_cqe(w->b[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        g_assert_cmpuint(sim_counter(node(w), QRNIC_COUNTER_OUT_OF_SEQUENCE),
                         ==, 0);
        g_assert_cmpuint(sim_counter(&w->sim->node[1],
                                     QRNIC_COUNTER_RETRANSMISSIONS), ==, 0);
        world_free(w);
    }
}

/* Tests that frames beyond the waiting room are dropped and retransmitted. */
static void test_full(void)
{
    World *w = world_new(4, 2, 1, LATENCY);
    SimSge sge = { w->to.addr, PAIR_BYTES / 2, w->to.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = w->from.addr,
        .rkey = w->from.key,
    };

    memset(w->to.data, 0x5c, PAIR_BYTES);
    sim_query(w->a[0]);
    sim_query(w->a[1]);
    for (unsigned i = 2; i < 4; i++) {
        sim_post_send(w->b[i], &wr);
    }
    run(w);
    g_assert_cmpuint(sim_counter(node(w), QRNIC_COUNTER_RX_DROP_CONTEXT), >,
                     0);
    for (unsigned i = 2; i < 4; i++) {
        expect_cqe(w->b[i], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    g_assert_cmpmem(w->from.data, PAIR_BYTES / 2, w->to.data, PAIR_BYTES / 2);
    world_free(w);
}

static void expect_context_error(World *w, unsigned i, uint8_t syndrome)
{
    QrnicEqe e;

    g_assert_true(sim_poll_event(node(w), &e));
    g_assert_cmpstr(qrnic_event_name(e.type), ==, "QP_CONTEXT_ERROR");
    g_assert_cmpuint(e.object, ==, w->a[i]->number);
    g_assert_cmpuint(e.subtype, ==, syndrome);
    expect_no_event(node(w));
    expect_state(w->a[i], QRNIC_QPS_ERR);
}

/* Tests that a corrupt image is an error of its queue pair only. */
static void test_overwritten(void)
{
    for (unsigned byte = 0; byte < QRNIC_CONTEXT_IMAGE_SIZE; byte++) {
        World *w = world_new(3, 2, byte % 2, LATENCY);

        push_out(w, 0);
        image(w, 0)[byte] ^= 1 << byte % 8;
        post_write(w, 0, 0, 64);
        post_write(w, 1, 64, 64);
        run(w);
        expect_cqe(w->a[0], QRNIC_WC_WR_FLUSH_ERR, QRNIC_CQE_RDMA_WRITE);
        g_assert_cmpint(w->left[0], ==, 0);
        expect_cqe(w->a[1], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        expect_context_error(w, 0, QRNIC_SYN_CONTEXT);
        g_assert_cmpuint(sim_counter(node(w),
                                     QRNIC_COUNTER_GE_CONTEXT_IMAGE), ==, 1);
        /* The queue pair works again after a move to RESET. */
        g_assert_cmpint(sim_modify(w->a[0], &(QrnicQpAttr) {
            .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
        }).status, ==, QRNIC_ST_OK);
        push_out(w, 0);
        expect_state(w->a[0], QRNIC_QPS_RESET);
        expect_no_event(node(w));
        world_free(w);
    }
}

/* Tests that an older image that the device wrote itself is also corrupt. */
static void test_replayed(void)
{
    uint8_t old[QRNIC_CONTEXT_IMAGE_SIZE];
    World *w = world_new(3, 2, 4, LATENCY);

    push_out(w, 0);
    memcpy(old, image(w, 0), sizeof(old));
    post_write(w, 0, 0, 64);
    run(w);
    push_out(w, 0);
    g_assert_cmpint(memcmp(old, image(w, 0), sizeof(old)), !=, 0);
    memcpy(image(w, 0), old, sizeof(old));
    post_write(w, 0, 0, 64);
    run(w);
    expect_context_error(w, 0, QRNIC_SYN_CONTEXT);
    world_free(w);
}

/* Tests context memory that cannot be read, or cannot be written. */
static void test_broken(void)
{
    for (unsigned writing = 0; writing < 2; writing++) {
        World *w = world_new(3, 2, 4, LATENCY);
        uint64_t at = image(w, 0) - node(w)->memory;

        if (!writing) {
            push_out(w, 0);
        } else {
            sim_query(w->a[0]);
            post_write(w, 0, 0, 64);
            run(w);
        }
        node(w)->broken_from = at;
        node(w)->broken_to = at + QRNIC_CONTEXT_IMAGE_SIZE;
        if (writing) {
            push_out(w, 0);
            node(w)->broken_from = node(w)->broken_to = 0;
        }
        post_write(w, 0, 0, 64);
        post_write(w, 1, 64, 64);
        run(w);
        expect_cqe(w->a[1], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        expect_context_error(w, 0, writing ? QRNIC_SYN_CONTEXT :
                                             QRNIC_SYN_DMA);
        g_assert_cmpuint(sim_counter(node(w),
                                     QRNIC_COUNTER_GE_CONTEXT_IMAGE), >=,
                         writing ? 2 : 1);
        node(w)->broken_from = node(w)->broken_to = 0;
        world_free(w);
    }
}

/*
 * Tests a fetch during which the queue pair is destroyed, moved to ERR or
 * RESET, or the device is reset.
 */
static void test_gone(void)
{
    for (unsigned what = 0; what < 8; what++) {
        World *w = world_new(3, 2, what & 1 ? 1 : 0, LATENCY);
        QrnicQpAttr attr = {
            .mask = QRNIC_QP_STATE,
            .state = what / 2 == 1 ? QRNIC_QPS_ERR : QRNIC_QPS_RESET,
        };
        int64_t begin = w->sim->now;
        SimSge sge = { w->to.addr, 64, w->to.key };
        SimWr wr = {
            .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
            .sge = &sge, .num_sge = 1, .remote = w->from.addr,
            .rkey = w->from.key,
        };

        push_out(w, 0);
        sim_post_send(w->b[0], &wr);
        post_write(w, 0, 0, 64);
        post_write(w, 2, 64, 64);
        sim_run(w->sim, begin + 2 * SIM_US);
        g_assert_cmpint(w->left[0], ==, 0);
        if (what / 2 == 0) {
            sim_qp_free(w->a[0]);
            w->a[0] = sim_qp_new(node(w), 6, 6, 0, 8);
        } else if (what / 2 < 3) {
            g_assert_cmpint(sim_modify(w->a[0], &attr).status, ==,
                            QRNIC_ST_OK);
        } else {
            sim_reset(node(w));
            sim_free(w->sim);
            g_free(w);
            continue;
        }
        sim_run(w->sim, w->sim->now + 10000 * SIM_MS);
        g_assert_cmpint(w->left[2], >, 0);
        expect_cqe(w->a[2], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        if (what / 2 == 1) {
            expect_cqe(w->a[0], QRNIC_WC_WR_FLUSH_ERR, QRNIC_CQE_RDMA_WRITE);
        }
        world_free(w);
    }
}

/*
 * Tests that the cache limits the number of contexts if there is no context
 * memory.
 */
static void test_commands(void)
{
    SimOptions o = { .context_cache = 4, .context_bare = true };
    Sim *s = sim_new(1, &o);
    QrnicEngine *e = s->node[0].engine;
    QrnicContextMemory m = { .length = 1 };
    QrnicContextAttr attr;
    SimQp *q[4], *ud;
    QrnicQpCtx ctx;

    g_assert_cmpint(qrnic_context_memory_query(e, &attr).status, ==,
                    QRNIC_ST_OK);
    g_assert_cmpuint(attr.images, ==, 258);
    g_assert_cmpuint(attr.entries, ==, 4);
    g_assert_cmpuint(attr.length, ==, 0);
    g_assert_cmpuint(attr.image_size, ==, QRNIC_CONTEXT_IMAGE_SIZE);
    for (unsigned i = 0; i < 4; i++) {
        q[i] = sim_qp_new(&s->node[0], 6, 6, 0, 4);
    }
    ctx = (QrnicQpCtx) {
        .type = QRNIC_QPT_RC, .sq_log_size = 3, .pd = s->node[0].pd,
        .send_cq = q[0]->cq, .recv_cq = q[0]->cq,
        .sq.root = q[0]->sq, .rq.root = q[0]->rq,
    };
    g_assert_cmpint(qrnic_qp_create(e, &ctx).status, ==, QRNIC_ST_NO_RESOURCE);
    /* A datagram queue pair has no context. */
    ud = sim_datagram_new(&s->node[0], QRNIC_QPT_UD, NULL, 1);
    g_assert_cmpint(qrnic_context_memory_set(e, &m).status, ==, QRNIC_ST_BUSY);
    for (unsigned i = 0; i < 4; i++) {
        sim_qp_free(q[i]);
    }
    g_assert_cmpint(qrnic_context_memory_set(e, &m).status, ==,
                    QRNIC_ST_BAD_PARAM);
    m = (QrnicContextMemory) { .memory.root = 4096 };
    g_assert_cmpint(qrnic_context_memory_set(e, &m).status, ==,
                    QRNIC_ST_BAD_PARAM);
    m.length = 258 * QRNIC_CONTEXT_IMAGE_SIZE;
    m.memory.root = 8;
    g_assert_cmpint(qrnic_context_memory_set(e, &m).status, ==,
                    QRNIC_ST_BAD_PARAM);
    m.memory.root = sim_alloc(&s->node[0], m.length);
    g_assert_cmpint(qrnic_context_memory_set(e, &m).status, ==, QRNIC_ST_OK);
    qrnic_context_memory_query(e, &attr);
    g_assert_cmpuint(attr.length, ==, m.length);
    m = (QrnicContextMemory) { 0 };
    g_assert_cmpint(qrnic_context_memory_set(e, &m).status, ==, QRNIC_ST_OK);
    sim_qp_free(ud);
    sim_free(s);

    s = sim_new(1, NULL);
    if (!g_getenv("QRNIC_TEST_CONTEXTS")) {
        e = s->node[0].engine;
        g_assert_cmpint(qrnic_context_memory_set(e, &m).status, ==,
                        QRNIC_ST_NOT_SUPPORTED);
        g_assert_cmpint(qrnic_context_memory_query(e, &attr).status, ==,
                        QRNIC_ST_NOT_SUPPORTED);
    }
    sim_free(s);
}

/*
 * Tests that a member has no context. In RESET the queue pair is no member and
 * has a context, if there is room. DESTROY_QP needs none.
 */
static void test_members(void)
{
    const QrnicQpAttr reset = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };
    SimOptions o = {
        .context_cache = 3, .context_bare = true, .contexts_of_one = true,
    };
    Sim *s = sim_new(1, &o);
    SimNode *n = &s->node[0];
    SimQp *carrier[2], *member[2], *peer[2], *last;
    SimConnect c = sim_connect_default();
    QrnicQpCtx ctx;

    for (unsigned i = 0; i < 2; i++) {
        carrier[i] = sim_carrier_new(&s->node[i]);
    }
    sim_carrier_connect(carrier[0], carrier[1], &c);
    c.carrier_a = carrier[0];
    c.carrier_b = carrier[1];
    for (unsigned i = 0; i < 2; i++) {
        member[i] = sim_qp_new(n, 6, 6, 0, 4);
        peer[i] = sim_qp_new(&s->node[1], 6, 6, 0, 4);
        sim_connect(member[i], peer[i], &c);
    }
    ctx = (QrnicQpCtx) {
        .type = QRNIC_QPT_RC, .sq_log_size = 3, .pd = n->pd,
        .send_cq = member[0]->cq, .recv_cq = member[0]->cq,
        .sq.root = member[0]->sq, .rq.root = member[0]->rq,
    };
    g_assert_cmpint(qrnic_qp_create(n->engine, &ctx).status, ==,
                    QRNIC_ST_NO_RESOURCE);
    g_assert_cmpint(sim_modify(member[0], &reset).status, ==, QRNIC_ST_OK);
    sim_qp_free(member[1]);
    last = sim_qp_new(n, 6, 6, 0, 4);
    g_assert_cmpint(qrnic_qp_create(n->engine, &ctx).status, ==,
                    QRNIC_ST_NO_RESOURCE);
    sim_run(s, SIM_MS);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_CONTEXT_WRITE_BACKS), ==, 0);
    sim_qp_free(member[0]);
    sim_qp_free(last);
    sim_carrier_free(carrier[0]);
    g_assert_cmpint(qrnic_context_memory_set(n->engine, &(QrnicContextMemory) {
    }).status, ==, QRNIC_ST_OK);
    sim_qp_free(peer[0]);
    sim_qp_free(peer[1]);
    sim_carrier_free(carrier[1]);
    sim_free(s);
}

/*
 * Tests that every byte arrives for many queue pairs over a lossy wire with
 * reordering.
 */
static void test_random(void)
{
    for (unsigned mode = 0; mode < 4; mode++) {
        World *w = world_new(48, 4, mode % 2 * 3, mode < 2 ? 0 : 300);
        const uint32_t part = PAIR_BYTES / 48;

        w->sim->loss = w->sim->repeat = 10;
        w->sim->reorder = 20;
        for (unsigned i = 0; i < PAIR_BYTES; i++) {
            w->from.data[i] = g_rand_int(w->sim->rand);
        }
        for (unsigned round = 0; round < 8; round++) {
            for (unsigned i = 0; i < w->count; i++) {
                post_write(w, i, i * part + round * (part / 8), part / 8);
            }
            sim_run(w->sim, w->sim->now +
                    g_rand_int_range(w->sim->rand, 0, 50 * SIM_US));
        }
        g_assert_true(sim_run(w->sim, w->sim->now + 100000 * SIM_MS));
        for (unsigned i = 0; i < w->count; i++) {
            for (unsigned round = 0; round < 8; round++) {
                expect_cqe(w->a[i], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
            }
            g_assert_cmpmem(w->from.data + i * part, part / 8 * 8,
                            w->to.data + i * part, part / 8 * 8);
        }
        g_assert_cmpuint(misses(w), >, 300);
        world_free(w);
    }
}

/* Tests a timer that expires while the context is not cached. */
static void test_timer(void)
{
    World *w = world_new(3, 2, 4, LATENCY);

    w->sim->loss = 1000;
    post_write(w, 0, 0, 64);
    sim_run(w->sim, w->sim->now + 100 * SIM_US);
    push_out(w, 0);
    w->sim->loss = 0;
    run(w);
    expect_cqe(w->a[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpuint(sim_counter(node(w), QRNIC_COUNTER_TIMEOUTS), ==, 1);
    world_free(w);
}

static void mtu_set(World *w)
{
    const QrnicPortCtx port = { .mtu = 9000, .flags = QRNIC_PORTF_ADMIN_UP };

    for (unsigned i = 0; i < 2; i++) {
        qrnic_port_modify(w->sim->node[i].engine, &port);
    }
}

static uint64_t pieces(World *w)
{
    return sim_counter(node(w), QRNIC_COUNTER_PIECES);
}

/*
 * Tests waiting frames that cause thousands of accesses each, so that the
 * engine pauses between them. A frame that arrives in a pause does not overtake
 * them. Another queue pair needs the cache entry meanwhile.
 */
static void test_work(const void *opaque)
{
    enum { BYTES = 4096 };
    /* Four packets, or one */
    const unsigned writes = opaque ? 30 : 60;
    World *w = world_new(2, 1, 1, LATENCY);
    SimConnect c = sim_connect_default();
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .num_sge = 1,
    };
    SimSge sge = { w->to.addr, BYTES, w->to.key };
    SimQp *a, *b;
    uint64_t before;

    mtu_set(w);
    c.path_mtu = QRNIC_MTU_4096;
    if (opaque) {
        /* UC, because no ACK must fetch the context: only the frames do. */
        a = sim_uc_new(&w->sim->node[0], NULL);
        b = sim_uc_new(&w->sim->node[1], NULL);
        sim_uc_connect(a, b);
    } else {
        a = sim_qp_new(&w->sim->node[0], 6, 6, 0, 8);
        b = sim_qp_new(&w->sim->node[1], 6, 6, 0, 8);
        sim_connect(a, b, &c);
    }
    wr.rkey = key_of_bytes(a, &w->from, BYTES);
    wr.sge = &sge;
    memset(w->to.data, 0x11, BYTES);
    memset(w->to.data + BYTES, 0x22, BYTES);
    sim_query(w->a[0]);
    for (unsigned i = 0; i < writes; i++) {
        sge.addr = w->to.addr + (i % 2) * BYTES;
        sim_post_send(b, &wr);
    }
    sim_run(w->sim, w->sim->now + LATENCY / 2);
    before = pieces(w);
    w->sim->now += LATENCY;
    qrnic_engine_timer(node(w)->engine);
    g_assert_cmpuint(pieces(w) - before, >=, QRNIC_WORK_PER_RUN);
    for (unsigned i = 0; i < 4; i++) {
        g_assert_cmpuint(pieces(w) - before, <, QRNIC_WORK_PER_RUN + BYTES);
        g_assert_true(node(w)->kicked);
        if (i == 1) {
            sim_post_send(b, &wr);
        }
        if (i == 3) {
            sim_query(w->a[0]);
        }
        before = pieces(w);
        node(w)->kicked = false;
        qrnic_engine_run(node(w)->engine, QRNIC_RUN_ROUNDS);
    }
    run(w);
    for (unsigned i = 0; i < writes + 1; i++) {
        expect_cqe(b, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    g_assert_cmpuint(sim_counter(node(w), QRNIC_COUNTER_RX_DROP_CONTEXT), ==,
                     0);
    g_assert_cmpuint(sim_counter(node(w), QRNIC_COUNTER_OUT_OF_SEQUENCE), ==,
                     0);
    g_assert_cmpuint(sim_counter(node(w), QRNIC_COUNTER_PIECES), ==,
                     (writes + 1) * BYTES);
    g_assert_cmpmem(w->from.data, BYTES, w->to.data + BYTES, BYTES);
    sim_qp_free(a);
    sim_qp_free(b);
    world_free(w);
}

/* Tests that frames of one queue pair leave room for those of others. */
static void test_share(void)
{
    World *w = world_new(4, 2, 1, LATENCY);
    SimSge sge = { w->to.addr, PAIR_BYTES / 2, w->to.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = w->from.addr,
        .rkey = w->from.key,
    };
    uint64_t dropped;

    sim_query(w->a[0]);
    sim_query(w->a[1]);
    sim_post_send(w->b[2], &wr);
    sim_run(w->sim, w->sim->now + LATENCY / 2);
    dropped = sim_counter(node(w), QRNIC_COUNTER_RX_DROP_CONTEXT);
    g_assert_cmpuint(dropped, >, 0);
    sge.length = 1024;
    sim_post_send(w->b[3], &wr);
    sim_run(w->sim, w->sim->now + LATENCY / 4);
    g_assert_cmpuint(sim_counter(node(w), QRNIC_COUNTER_RX_DROP_CONTEXT), ==,
                     dropped);
    run(w);
    expect_cqe(w->b[2], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_cqe(w->b[3], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    world_free(w);
}

/*
 * Tests frames that wait for a queue pair that is destroyed, and for a new one
 * with its number.
 */
static void test_number_again(void)
{
    World *w = world_new(3, 1, 1, LATENCY);
    SimSge sge = { w->to.addr, 4096, w->to.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = w->from.addr,
        .rkey = w->from.key,
    };
    uint32_t number = w->a[2]->number;
    SimQp *q;

    sim_query(w->a[0]);
    sim_post_send(w->b[2], &wr);
    post_write(w, 1, 0, 64);
    sim_run(w->sim, w->sim->now + LATENCY / 2);
    sim_qp_free(w->a[2]);
    while ((q = sim_qp_new(node(w), 6, 6, 0, 8))->number != number) {
        sim_qp_free(q);
    }
    w->a[2] = q;
    run(w);
    expect_cqe(w->b[2], QRNIC_WC_RETRY_EXC_ERR, QRNIC_CQE_RDMA_WRITE);
    expect_cqe(w->a[1], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    world_free(w);
}

/* Runs the device once, and answers for the peer. */
static void step(World *w)
{
    SimFrame *f;

    w->sim->now += 2 * SIM_US;
    qrnic_engine_timer(node(w)->engine);
    node(w)->kicked = false;
    qrnic_engine_run(node(w)->engine, QRNIC_RUN_ROUNDS);
    while ((f = sim_wire_take(w->sim))) {
        SimNode *other = &w->sim->node[1];

        sim_inject(w->sim, f->to, f->data, f->len);
        g_free(f);
        if (other->kicked) {
            other->kicked = false;
            qrnic_engine_run(other->engine, QRNIC_RUN_ROUNDS);
        }
    }
}

/*
 * Tests that a doorbell without a miss does not move its queue pair before
 * another that waits for its slot. The waiting one therefore progresses at much
 * the same rate.
 */
static void test_rung(void)
{
    enum { OTHERS = 60, ROUNDS = 400 };
    uint64_t sent[2];

    for (unsigned rung = 0; rung < 2; rung++) {
        World *w = world_new(OTHERS + 1, 24, 20, SIM_US);
        SimWr nop = { .opcode = QRNIC_WQE_NOP };
        unsigned next = 0;

        for (unsigned i = 0; i < 60; i++) {
            post_write(w, OTHERS, 0, PAIR_BYTES);
        }
        for (unsigned i = 0; i < ROUNDS; i++) {
            for (unsigned k = 0; k < 18; k++, next = (next + 1) % OTHERS) {
                if (rung) {
                    sim_ring(node(w), 0, QRNIC_DB_RQ, w->a[next]->number, 0);
                }
                sim_post_send(w->a[next], &nop);
            }
            step(w);
        }
        sent[rung] = sim_counter(node(w), QRNIC_COUNTER_ROCE_TX_PACKETS);
        world_free(w);
    }
    g_assert_cmpuint(sent[0], >, 0);
    g_assert_cmpuint(sent[1] * 2, >, sent[0]);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/contexts/latency", test_latency);
    g_test_add_func("/contexts/order", test_order);
    g_test_add_func("/contexts/stations", test_stations);
    g_test_add_func("/contexts/write-back", test_write_back);
    g_test_add_func("/contexts/room", test_room);
    g_test_add_func("/contexts/inbound", test_inbound);
    g_test_add_func("/contexts/full", test_full);
    g_test_add_func("/contexts/overwritten", test_overwritten);
    g_test_add_func("/contexts/replayed", test_replayed);
    g_test_add_func("/contexts/broken", test_broken);
    g_test_add_func("/contexts/gone", test_gone);
    g_test_add_func("/contexts/commands", test_commands);
    g_test_add_func("/contexts/members", test_members);
    g_test_add_func("/contexts/random", test_random);
    g_test_add_func("/contexts/timer", test_timer);
    g_test_add_data_func("/contexts/work/rc", NULL, test_work);
    g_test_add_data_func("/contexts/work/uc", "", test_work);
    g_test_add_func("/contexts/share", test_share);
    g_test_add_func("/contexts/number-again", test_number_again);
    g_test_add_func("/contexts/rung", test_rung);
    return g_test_run();
}
