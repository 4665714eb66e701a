/*
 * Experiment: contexts and message rate of an all-to-all pattern with a context
 * cache. Each process of a node writes to each process of all nodes, by each
 * kind of connection. In virtual time: a frame takes 100 ns on the wire, a
 * fetch 350 ns, everything else nothing. Node 0 has the cache and is measured.
 * Node 1 stands for all other nodes, and sends the same number of messages to
 * node 0.
 *
 * Prints rows for tools/experiments. Arguments: messages, and the factor by
 * which the number of nodes and processes grows.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "many.h"
#include "pair.h"

#define FRAME_NS 100
#define WAY_NS 500
#define FETCH_NS 350
#define CACHE 512
#define STATIONS 16
#define WINDOW 128u             /* Outstanding messages of each side */
#define DEPTH 4u                /* Outstanding messages of one queue pair */
#define CQ_LOG 12
#define KEY 0x616c6c746f616c6cull
#define INITIATORS 4u           /* Initiators of a process */
#define RESPONDERS 16u
#define REST 5                  /* Idle time of initiators: 131 us */
#define PROCESSES 8u            /* While nodes grow */
#define NODES 16u               /* While processes grow */
#define NODES_MAX 128u
#define PROCESSES_MAX 16u

typedef struct World World;

/* The queue pairs of one side */
typedef struct Side {
    ManyEnd end;
    SimQp *q;                   /* Queue pairs of connections */
    uint32_t count, first;
    uint8_t *under_way;         /* Outstanding messages by queue pair */
    SimQp **initiator, **target;        /* Dynamic connections */
    uint32_t initiators, targets;
    uint32_t *leads, *used;     /* Target and last use, by initiator */
    uint32_t wants[PROCESSES_MAX];      /* Target of the message to send */
    bool waits[PROCESSES_MAX];  /* The message is not sent yet */
    SimSrq *srq;                /* SRQ of targets */
    uint32_t xrcd, xrc_srq[PROCESSES_MAX];
    /* Carriers of shared connections, and their number */
    SimQp **carrier;
    uint32_t carriers;
    uint64_t memory;
    uint32_t rkey;
    uint32_t posted, done;
} Side;

typedef struct Way {
    const char *name;
    void (*build)(World *w);
    uint32_t (*contexts)(const World *w);   /* Number of contexts of node 0 */
    /*
     * Sends a message to a random process. Returns false if the queue pair has
     * no room.
     */
    bool (*send)(World *w, Side *s, Side *to);
} Way;

struct World {
    Sim *sim;
    const Way *way;
    uint32_t nodes, processes;
    Side side[2];
};

static uint32_t random_below(World *w, uint32_t n)
{
    return g_rand_int_range(w->sim->rand, 0, n);
}

static void post_one(Side *s, Side *to, SimQp *q, uint32_t i,
                     const QrnicDynamicSeg *dynamic, const QrnicXrcSeg *xrc)
{
    uint64_t value = i;
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE,
        .flags = QRNIC_WQEF_SIGNALED | QRNIC_WQEF_INLINE,
        .remote = to->memory, .rkey = to->rkey, .dynamic = dynamic, .xrc = xrc,
        .inline_data = &value, .inline_length = sizeof(value),
    };

    s->under_way[i]++;
    s->posted++;
    sim_post_send(q, &wr);
}

/*
 * Returns the contexts of a node with RC: a connection between any two
 * processes.
 */

static uint32_t rc_contexts(const World *w)
{
    return w->nodes * w->processes * w->processes;
}

static void side_room(World *w, unsigned id, uint32_t count)
{
    Side *s = &w->side[id];

    s->count = count;
    s->q = g_new0(SimQp, MAX(count, 1));
    s->under_way = g_new0(uint8_t, MAX(count, w->nodes * w->processes *
                                              INITIATORS));
    many_end_init(&s->end, &w->sim->node[id], CQ_LOG, count);
}

static void rc_build(World *w)
{
    SimConnect c = sim_connect_default();

    c.timeout = 16;
    for (unsigned id = 0; id < 2; id++) {
        side_room(w, id, rc_contexts(w));
    }
    for (uint32_t i = 0; i < rc_contexts(w); i++) {
        for (unsigned id = 0; id < 2; id++) {
            w->side[id].q[i] = many_qp(&w->side[id].end, QRNIC_QPT_RC, 0, true);
        }
        sim_connect(&w->side[0].q[i], &w->side[1].q[i], &c);
    }
}

static bool rc_send(World *w, Side *s, Side *to)
{
    uint32_t i = random_below(w, s->count);

    if (s->under_way[i] == DEPTH) {
        return false;
    }
    post_one(s, to, &s->q[i], i, NULL, NULL);
    return true;
}

/*
 * Returns the contexts of a node with XRC. A process has a connection to each
 * node, and a target for the other direction.
 */

static uint32_t xrc_contexts(const World *w)
{
    return 2 * w->nodes * w->processes;
}

static void xrc_srqs(World *w, unsigned id)
{
    Side *s = &w->side[id];
    SimNode *n = &w->sim->node[id];
    uint64_t ring = sim_alloc(n, 4096), record = sim_alloc(n, 8);
    QrnicResult domain = qrnic_xrcd_alloc(n->engine);

    g_assert_cmpint(domain.status, ==, QRNIC_ST_OK);
    s->xrcd = domain.value;
    for (uint32_t p = 0; p < w->processes; p++) {
        /* No message is received here; the SRQ selects the PD of keys. */
        const QrnicSrqCtx ctx = {
            .pd = n->pd, .log_size = 2, .xrcd = s->xrcd, .cq = s->end.cq.cq,
            .ring.root = ring, .record = record,
        };
        QrnicResult r = qrnic_srq_create(n->engine, &ctx);

        g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
        s->xrc_srq[p] = r.value;
    }
}

static void xrc_build(World *w)
{
    uint32_t count = w->nodes * w->processes;

    for (unsigned id = 0; id < 2; id++) {
        side_room(w, id, count);
        xrc_srqs(w, id);
        for (uint32_t i = 0; i < count; i++) {
            w->side[id].q[i] = many_qp(&w->side[id].end, QRNIC_QPT_XRC_INI, 0,
                                       true);
        }
    }
    for (unsigned id = 0; id < 2; id++) {
        Side *to = &w->side[!id];

        for (uint32_t i = 0; i < count; i++) {
            SimQp target = many_qp(&to->end, QRNIC_QPT_XRC_TGT, to->xrcd,
                                   false);

            many_xrc_connect(&w->side[id].q[i], &target);
        }
    }
}

static bool xrc_send(World *w, Side *s, Side *to)
{
    const QrnicXrcSeg xrc = {
        .srqn = to->xrc_srq[random_below(w, w->processes)],
    };
    uint32_t i = random_below(w, s->count);

    if (s->under_way[i] == DEPTH) {
        return false;
    }
    post_one(s, to, &s->q[i], i, NULL, &xrc);
    return true;
}

/*
 * Returns the contexts of a node with DC. Each process has a few initiators,
 * which connect to the target of each message.
 */

static uint32_t dc_contexts(const World *w)
{
    return w->processes * (INITIATORS + 1 + RESPONDERS);
}

static void dc_build(World *w)
{
    QrnicDynamicAttr target = {
        .access_key = KEY, .responders = RESPONDERS,
    };
    QrnicDynamicAttr initiator = { .idle = REST };
    SimConnect c = sim_connect_default();

    c.timeout = 16;
    for (unsigned id = 0; id < 2; id++) {
        Side *s = &w->side[id];
        SimNode *n = &w->sim->node[id];

        side_room(w, id, 0);
        /* As many targets send to a node as receive from it. */
        s->initiators = w->processes * INITIATORS;
        s->targets = (id ? w->nodes : 1) * w->processes;
        s->srq = sim_srq_new(n, 2, 0);
        s->initiator = g_new0(SimQp *, s->initiators);
        s->target = g_new0(SimQp *, s->targets);
        s->leads = g_new(uint32_t, s->initiators);
        s->used = g_new0(uint32_t, s->initiators);
        for (uint32_t i = 0; i < s->initiators; i++) {
            s->leads[i] = UINT32_MAX;
            s->initiator[i] = sim_dynamic_new(n, NULL, &initiator);
            sim_dynamic_start(s->initiator[i], &c);
        }
        for (uint32_t i = 0; i < s->targets; i++) {
            s->target[i] = sim_dynamic_new(n, s->srq, &target);
            sim_dynamic_start(s->target[i], &c);
        }
    }
}

/*
 * Uses the initiator that is connected to the target, or else the least
 * recently used one. A process sends its pending message before all others.
 */
static bool dc_send(World *w, Side *s, Side *to)
{
    uint32_t process = random_below(w, w->processes);
    uint32_t first = process * INITIATORS, best = UINT32_MAX;
    QrnicDynamicSeg seg;

    if (!s->waits[process]) {
        s->wants[process] = random_below(w, to->targets);
        s->waits[process] = true;
    }
    for (uint32_t i = first; i < first + INITIATORS; i++) {
        if (s->under_way[i] == DEPTH) {
            continue;
        }
        if (s->leads[i] == s->wants[process]) {
            best = i;
            break;
        }
        if (best == UINT32_MAX || s->used[i] < s->used[best]) {
            best = i;
        }
    }
    if (best == UINT32_MAX) {
        return false;
    }
    s->waits[process] = false;
    s->leads[best] = s->wants[process];
    s->used[best] = s->posted + 1;
    seg = sim_dynamic_to(to->target[s->leads[best]], KEY);
    post_one(s, to, s->initiator[best], best, &seg, NULL);
    return true;
}

/*
 * Shared connections: like RC, but the connections between a process and a node
 * are members of one carrier, and only the carrier has a context. One node has
 * the carriers of its own processes, and the other node has their peers.
 */

static uint32_t shared_contexts(const World *w)
{
    return w->nodes * w->processes;
}

static void shared_build(World *w)
{
    uint32_t count = rc_contexts(w);
    SimConnect c = sim_connect_default();

    c.timeout = 16;
    for (unsigned id = 0; id < 2; id++) {
        Side *s = &w->side[id];

        side_room(w, id, count);
        s->carriers = shared_contexts(w);
        s->carrier = g_new0(SimQp *, s->carriers);
        /*
         * Created before the members, so that numbers of members are
         * consecutive.
         */
        for (uint32_t i = 0; i < s->carriers; i++) {
            s->carrier[i] = sim_carrier_new(s->end.node);
        }
    }
    for (uint32_t i = 0; i < w->side[0].carriers; i++) {
        sim_carrier_connect(w->side[0].carrier[i], w->side[1].carrier[i], &c);
    }
    for (uint32_t i = 0; i < count; i++) {
        c.carrier_a = w->side[0].carrier[i / w->processes];
        c.carrier_b = w->side[1].carrier[i / w->processes];
        for (unsigned id = 0; id < 2; id++) {
            w->side[id].q[i] = many_qp(&w->side[id].end, QRNIC_QPT_RC, 0, true);
        }
        sim_connect(&w->side[0].q[i], &w->side[1].q[i], &c);
    }
}

/* All kinds */

static const Way ways[] = {
    { "rc", rc_build, rc_contexts, rc_send },
    { "xrc", xrc_build, xrc_contexts, xrc_send },
    { "dc", dc_build, dc_contexts, dc_send },
    { "shared", shared_build, shared_contexts, rc_send },
};

static World *world_new(const Way *way, uint32_t nodes, uint32_t processes,
                        uint32_t stations)
{
    uint32_t most = 2 * nodes * processes * MAX(processes, RESPONDERS + 1);
    SimOptions o = {
        .context_cache = CACHE, .context_stations = stations,
        .context_latency = FETCH_NS, .contexts_of_one = true,
        .max_qp = most + 256, .max_cq = nodes * processes + 256,
        .max_srq = PROCESSES_MAX + 8, .doorbell_fifo = 65536,
        .memory = 64 * MiB + (uint64_t)most * 4 * KiB +
                  (uint64_t)nodes * processes * 256 * KiB,
    };
    World *w = g_new0(World, 1);

    w->sim = sim_new(1, &o);
    w->sim->latency = WAY_NS;
    w->way = way;
    w->nodes = nodes;
    w->processes = processes;
    for (unsigned id = 0; id < 2; id++) {
        SimNode *n = &w->sim->node[id];

        w->side[id].memory = sim_alloc(n, 4096);
        w->side[id].rkey = sim_mkey(n, w->side[id].memory, 4096, ACCESS_ALL);
    }
    way->build(w);
    w->side[0].first = w->side[0].q[0].number;
    w->side[1].first = w->side[1].q[0].number;
    sim_run(w->sim, SIM_MS);
    w->sim->wire_room = 1;
    w->sim->wire_pause = FRAME_NS;
    return w;
}

static void world_free(World *w)
{
    for (unsigned id = 0; id < 2; id++) {
        Side *s = &w->side[id];

        for (uint32_t i = 0; i < s->initiators; i++) {
            sim_qp_free(s->initiator[i]);
        }
        for (uint32_t i = 0; i < s->targets; i++) {
            sim_qp_free(s->target[i]);
        }
        if (s->srq) {
            sim_srq_free(s->srq);
        }
        /*
         * Only the structures, because the engine frees carriers with their
         * members.
         */
        for (uint32_t i = 0; i < s->carriers; i++) {
            g_free(s->carrier[i]);
        }
        g_free(s->carrier);
        g_free(s->q);
        g_free(s->under_way);
        g_free(s->initiator);
        g_free(s->target);
        g_free(s->leads);
        g_free(s->used);
    }
    sim_free(w->sim);
    g_free(w);
}

static void completed(Side *s, const QrnicCqe *c, uint32_t i)
{
    g_assert_cmpint(c->status, ==, QRNIC_WC_SUCCESS);
    s->under_way[i]--;
    s->done++;
}

static void side_poll(Side *s)
{
    QrnicCqe c;

    while (sim_poll(&s->end.cq, &c)) {
        /* Numbers are assigned in order. */
        g_assert_cmpuint(c.qpn - s->first, <, s->count);
        completed(s, &c, c.qpn - s->first);
    }
    for (uint32_t i = 0; i < s->initiators; i++) {
        while (sim_poll(s->initiator[i], &c)) {
            completed(s, &c, i);
        }
    }
}

/* Returns the nanoseconds that these messages of node 0 take. */
static int64_t use(World *w, uint32_t messages)
{
    int64_t begin = w->sim->now;
    uint32_t end = w->side[0].done + messages;

    while (w->side[0].done < end) {
        for (unsigned id = 0; id < 2; id++) {
            Side *s = &w->side[id], *to = &w->side[!id];

            /*
             * A queue pair without room is skipped. No side may get far ahead,
             * because the wire also carries ACKs, and a faster side would delay
             * those of its peer.
             */
            for (unsigned n = 0; n < 2 * WINDOW &&
                                 s->posted - MIN(s->done, to->posted) < WINDOW;
                 n++) {
                w->way->send(w, s, to);
            }
        }
        sim_run(w->sim, w->sim->now + FRAME_NS);
        side_poll(&w->side[0]);
        side_poll(&w->side[1]);
    }
    return w->sim->now - begin;
}

static void measure(const Way *way, uint32_t nodes, uint32_t processes,
                    uint32_t stations, uint32_t messages)
{
    static const enum qrnic_counter counters[] = {
        QRNIC_COUNTER_CONTEXT_HITS, QRNIC_COUNTER_CONTEXT_MISSES,
        QRNIC_COUNTER_DYNAMIC_CONNECTS, QRNIC_COUNTER_RX_DROP_CONTEXT,
        QRNIC_COUNTER_TIMEOUTS,
    };
    World *w = world_new(way, nodes, processes, stations);
    SimNode *n = &w->sim->node[0];
    uint64_t before[ARRAY_SIZE(counters)];
    int64_t took;

    use(w, messages / 2);
    for (unsigned i = 0; i < ARRAY_SIZE(counters); i++) {
        before[i] = sim_counter(n, counters[i]);
    }
    took = use(w, messages);
    printf("csv %s,%s,%u,%u,%u,%.0f", way->name,
           stations ? "stations" : "in order", nodes, processes,
           way->contexts(w), messages * 1e9 / took);
    for (unsigned i = 0; i < ARRAY_SIZE(counters); i++) {
        printf(",%" PRIu64, sim_counter(n, counters[i]) - before[i]);
    }
    printf("\n");
    fflush(stdout);
    world_free(w);
}

int main(int argc, char **argv)
{
    uint32_t messages = argc > 1 ? atoi(argv[1]) : 20000;
    uint32_t growth = argc > 2 ? atoi(argv[2]) : 2;

    printf("csv way,mode,nodes,processes,contexts,messages_per_second,hits,"
           "misses,connects,dropped,timeouts\n");
    for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
        for (uint32_t stations = 0; stations <= STATIONS;
             stations += STATIONS) {
            for (uint32_t n = 1; n <= NODES_MAX; n *= growth) {
                measure(&ways[i], n, PROCESSES, stations, messages);
            }
            for (uint32_t p = 1; p <= PROCESSES_MAX; p *= growth) {
                measure(&ways[i], NODES, p, stations, messages);
            }
        }
    }
    return 0;
}
