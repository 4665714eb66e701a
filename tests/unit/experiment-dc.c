/*
 * Experiment: the latency of dynamic connections. Measures the first message
 * with half and with full handshake beside a message on an existing connection.
 * Measures how often a pool of initiators is connected to the target of a
 * message, and how often a target has a free responder. In virtual time: a
 * frame takes 100 ns on the wire, the path as long as given, everything else
 * nothing.
 *
 * Prints rows for tools/experiments. Arguments: messages for each pool, and the
 * factor by which the number of users grows.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include <math.h>
#include "pair.h"

#define KEY 0x6b657920666f7220ull
#define FRAME_NS 100
#define WAY_NS 1000             /* Path delay of the pools */
#define STEP_NS 10              /* Resolution of the measured latency */
#define DESTINATIONS_MAX 256u
#define POOL_MAX 64u
#define INITIATORS_MAX 256u
#define REST_LONG 18            /* 1.07 s, longer than the run */
#define REST_SHORT 5            /* 131 us */
#define PAUSE_NS 1e6            /* Mean pause of each initiator */

typedef struct World {
    Sim *sim;
    SimSrq *srq;
    SimQp *target[DESTINATIONS_MAX], *initiator[INITIATORS_MAX];
    uint64_t buffer, remote;
    uint32_t targets, initiators, key, rkey;
} World;

static World *world_new(uint32_t targets, uint16_t responders,
                        uint32_t initiators, uint8_t flags, uint8_t idle)
{
    QrnicDynamicAttr target = { .access_key = KEY, .responders = responders };
    QrnicDynamicAttr initiator = { .idle = idle, .flags = flags };
    SimOptions o = {
        .memory = 2 * MiB + (targets + initiators) * 128 * KiB,
        .max_qp = 4096, .max_cq = 1024,
    };
    World *w = g_new0(World, 1);
    SimConnect c = sim_connect_default();

    w->sim = sim_new(1, &o);
    w->sim->latency = WAY_NS;
    w->sim->wire_room = 1;
    w->sim->wire_pause = FRAME_NS;
    w->targets = targets;
    w->initiators = initiators;
    c.timeout = 10;
    w->srq = sim_srq_new(&w->sim->node[1], 6, 0);
    w->buffer = sim_alloc(&w->sim->node[1], 4096);
    w->key = sim_mkey(&w->sim->node[1], w->buffer, 4096, ACCESS_ALL);
    w->remote = sim_alloc(&w->sim->node[1], 4096);
    w->rkey = sim_mkey(&w->sim->node[1], w->remote, 4096, ACCESS_ALL);
    for (uint32_t i = 0; i < targets; i++) {
        w->target[i] = sim_dynamic_new(&w->sim->node[1], w->srq, &target);
        sim_dynamic_start(w->target[i], &c);
    }
    for (uint32_t i = 0; i < initiators; i++) {
        w->initiator[i] = sim_dynamic_new(&w->sim->node[0], NULL, &initiator);
        sim_dynamic_start(w->initiator[i], &c);
    }
    return w;
}

static void world_free(World *w)
{
    for (uint32_t i = 0; i < w->initiators; i++) {
        sim_qp_free(w->initiator[i]);
    }
    for (uint32_t i = 0; i < w->targets; i++) {
        sim_qp_free(w->target[i]);
    }
    sim_srq_free(w->srq);
    sim_free(w->sim);
    g_free(w);
}

/* Runs until that time. Fails if all work is done before. */
static void run_until(World *w, int64_t time)
{
    if (sim_run(w->sim, time)) {
        w->sim->now = time;
    }
}

static uint64_t count(World *w, unsigned node, enum qrnic_counter c)
{
    return sim_counter(&w->sim->node[node], c);
}

static void send_one(World *w, uint32_t initiator, uint32_t target,
                     uint8_t opcode)
{
    QrnicDynamicSeg to = sim_dynamic_to(w->target[target], KEY);
    uint64_t value = target;
    SimWr wr = {
        .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED | QRNIC_WQEF_INLINE,
        .dynamic = &to, .inline_data = &value, .inline_length = sizeof(value),
    };

    if (opcode == QRNIC_WQE_RDMA_WRITE) {
        wr.remote = w->remote;
        wr.rkey = w->rkey;
    }
    sim_post_send(w->initiator[initiator], &wr);
}

static bool completed(SimQp *q)
{
    QrnicCqe c;

    if (!sim_poll(q, &c)) {
        return false;
    }
    g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
    return true;
}

/* The first message */

/* Returns the time from the request to the completion at the target. */
static int64_t latency(World *w)
{
    SimSge sge = { w->buffer, 64, w->key };
    int64_t begin = w->sim->now;
    int64_t took;

    sim_srq_slot_free(w->srq, sim_post_srq(w->srq, &sge, 1));
    send_one(w, 0, 0, QRNIC_WQE_SEND);
    while (!completed(w->target[0])) {
        run_until(w, w->sim->now + STEP_NS);
    }
    took = w->sim->now - begin;
    while (!completed(w->initiator[0])) {
        run_until(w, w->sim->now + STEP_NS);
    }
    return took;
}

static void latencies(void)
{
    static const int64_t ways[] = { 200, 500, 1000, 2000, 5000, 10000 };

    for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
        for (unsigned full = 0; full < 2; full++) {
            World *w = world_new(1, 4, 1, full ? QRNIC_DYNAMICF_FULL : 0,
                                 REST_LONG);

            w->sim->latency = ways[i];
            printf("csv latency,%s handshake,%" PRId64 ",ns,%" PRId64
                   ",measured\n", full ? "full" : "half", ways[i], latency(w));
            run_until(w, w->sim->now + SIM_MS);
            if (!full) {
                printf("csv latency,standing,%" PRId64 ",ns,%" PRId64
                       ",measured\n", ways[i], latency(w));
            }
            g_assert_cmpint(count(w, 0, QRNIC_COUNTER_DYNAMIC_CONNECTS),
                            ==, 1);
            world_free(w);
        }
    }
}

/*
 * A pool of initiators: uses an initiator that is connected to the target, or
 * else the least recently used initiator.
 */

/*
 * Returns a target by a Zipf distribution: the second is chosen half as often
 * as the first, and so on.
 */
static uint32_t popular(World *w)
{
    double sum = 0, at;

    for (uint32_t i = 0; i < w->targets; i++) {
        sum += 1.0 / (i + 1);
    }
    at = g_rand_double_range(w->sim->rand, 0, sum);
    for (uint32_t i = 0; i < w->targets; i++) {
        at -= 1.0 / (i + 1);
        if (at < 0) {
            return i;
        }
    }
    return w->targets - 1;
}

static double initiators_hit(uint32_t destinations, uint32_t pool, bool even,
                             uint32_t messages)
{
    World *w = world_new(destinations, 4, pool, 0, REST_LONG);
    uint32_t leads[POOL_MAX], used[POOL_MAX] = {};
    uint32_t warm = destinations + messages;
    uint64_t before = 0, connects;

    memset(leads, 0xff, sizeof(leads));
    for (uint32_t n = 1; n <= warm + messages; n++) {
        uint32_t best = 0, to;

        if (n <= destinations) {
            to = n - 1;         /* Each was used before */
        } else if (even) {
            to = g_rand_int_range(w->sim->rand, 0, destinations);
        } else {
            to = popular(w);
        }
        if (n == warm + 1) {
            before = count(w, 0, QRNIC_COUNTER_DYNAMIC_CONNECTS);
        }
        for (uint32_t i = 0; i < pool && leads[best] != to; i++) {
            if (leads[i] == to || used[i] < used[best]) {
                best = i;
            }
        }
        leads[best] = to;
        used[best] = n;
        send_one(w, best, to, QRNIC_WQE_RDMA_WRITE);
        while (!completed(w->initiator[best])) {
            run_until(w, w->sim->now + FRAME_NS);
        }
    }
    connects = count(w, 0, QRNIC_COUNTER_DYNAMIC_CONNECTS) - before;
    world_free(w);
    return 1 - (double)connects / messages;
}

static void initiators(uint32_t messages, uint32_t growth)
{
    static const uint32_t pools[] = { 1, 4, 16, 64 };

    for (unsigned i = 0; i < ARRAY_SIZE(pools); i++) {
        for (unsigned even = 0; even < 2; even++) {
            for (uint32_t d = 1; d <= DESTINATIONS_MAX; d *= growth) {
                printf("csv initiators %s,%u,%u,hits,%.4f,measured\n",
                       even ? "even" : "popular", pools[i], d,
                       initiators_hit(d, pools[i], even, messages));
                fflush(stdout);
            }
        }
    }
}

/* A pool of responders: initiators come at random and stay for some time. */

static int64_t pause_random(World *w)
{
    return -PAUSE_NS * log(1 - g_rand_double(w->sim->rand));
}

static double responders_hit(uint32_t comers, uint16_t pool, uint32_t messages)
{
    World *w = world_new(1, pool, comers, 0, REST_SHORT);
    int64_t due[INITIATORS_MAX];
    bool busy[INITIATORS_MAX] = {};
    uint64_t accepts, refusals;
    uint32_t done = 0;

    for (uint32_t i = 0; i < comers; i++) {
        due[i] = w->sim->now + pause_random(w);
    }
    while (done < messages) {
        for (uint32_t i = 0; i < comers; i++) {
            if (busy[i] && completed(w->initiator[i])) {
                busy[i] = false;
                due[i] = w->sim->now + pause_random(w);
                done++;
            }
            if (!busy[i] && due[i] <= w->sim->now) {
                busy[i] = true;
                send_one(w, i, 0, QRNIC_WQE_RDMA_WRITE);
            }
        }
        run_until(w, w->sim->now + SIM_US);
    }
    accepts = count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS);
    refusals = count(w, 1, QRNIC_COUNTER_TX_CNAK);
    world_free(w);
    return (double)accepts / (accepts + refusals);
}

static void responders(uint32_t messages, uint32_t growth)
{
    static const uint16_t pools[] = { 1, 4, 16, 64 };

    for (unsigned i = 0; i < ARRAY_SIZE(pools); i++) {
        for (uint32_t comers = 1; comers <= INITIATORS_MAX;
             comers *= growth) {
            printf("csv responders,%u,%u,hits,%.4f,measured\n", pools[i],
                   comers, responders_hit(comers, pools[i], messages));
            fflush(stdout);
        }
    }
}

int main(int argc, char **argv)
{
    uint32_t messages = argc > 1 ? atoi(argv[1]) : 4000;
    uint32_t growth = argc > 2 ? atoi(argv[2]) : 2;

    printf("csv part,way,at,unit,value,how\n");
    latencies();
    initiators(messages, growth);
    responders(messages, growth);
    return 0;
}
