/*
 * Experiment: the latency of a short write beside bulk flows, with round robin
 * and with a priority for the short flow. The write has 64 bytes, a bulk
 * message 1 MiB. In virtual time the wire accepts a burst of frames at once and
 * needs 100 ns for each. The path is 500 ns long; everything else takes no
 * time.
 *
 * Prints rows for tools/experiments. Arguments: most flows, short writes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "pair.h"

#define FRAME_NS 100
#define WAY_NS 500
#define BURST 16
#define DEPTH 2u                /* Outstanding writes of each bulk flow */
#define SHORT_BYTES 64
#define PAUSE_NS 20000          /* At most, between two short writes */
#define FLOWS_MAX 64u

typedef struct Mode {
    const char *name;
    uint8_t priority;           /* Priority of the short flow; 0: none */
} Mode;

static const Mode modes[] = {
    { "in a circle", 0 },
    { "weighted", QRNIC_PRIORITY_STRICT },
    { "strict", QRNIC_PRIORITY_LEVELS },
};

typedef struct Beside {
    Sim *sim;
    uint32_t flows;
    SimQp *bulk[FLOWS_MAX], *brief;
    PairEnd from, to;
} Beside;

static void memory_make(PairEnd *m, SimNode *n)
{
    m->addr = sim_alloc(n, PAIR_BYTES);
    m->key = sim_mkey(n, m->addr, PAIR_BYTES, ACCESS_ALL);
}

static SimQp *connection_make(Beside *b)
{
    SimQp *q = sim_qp_new(&b->sim->node[0], 4, 4, 0, 4);
    SimQp *peer = sim_qp_new(&b->sim->node[1], 4, 4, 0, 4);
    SimConnect c = sim_connect_default();

    c.timeout = 18;
    sim_connect(q, peer, &c);
    return q;
}

static void write_post(Beside *b, SimQp *q, uint32_t length)
{
    SimSge sge = { b->from.addr, length, b->from.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = b->to.addr, .rkey = b->to.key,
    };

    sim_post_send(q, &wr);
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

static Beside *beside_new(uint32_t flows, const Mode *mode)
{
    SimOptions o = {
        .max_qp = FLOWS_MAX + 8, .max_cq = FLOWS_MAX + 8, .memory = 8 * MiB,
        .doorbell_fifo = 4096,
    };
    Beside *b = g_new0(Beside, 1);
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_PRIORITY, .priority = mode->priority,
    };
    QrnicResult r;

    b->sim = sim_new(1, &o);
    b->sim->latency = WAY_NS;
    b->flows = flows;
    memory_make(&b->from, &b->sim->node[0]);
    memory_make(&b->to, &b->sim->node[1]);
    for (uint32_t i = 0; i < flows; i++) {
        b->bulk[i] = connection_make(b);
    }
    b->brief = connection_make(b);
    r = sim_modify(b->brief, &attr);
    g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
    sim_run(b->sim, SIM_MS);
    b->sim->wire_room = BURST;
    b->sim->wire_pause = BURST * FRAME_NS;
    for (uint32_t i = 0; i < flows; i++) {
        for (unsigned n = 0; n < DEPTH; n++) {
            write_post(b, b->bulk[i], PAIR_BYTES);
        }
    }
    return b;
}

/* Runs for the time of one frame; bulk flows continue. */
static void step(Beside *b)
{
    sim_run(b->sim, b->sim->now + FRAME_NS);
    for (uint32_t i = 0; i < b->flows; i++) {
        if (completed(b->bulk[i])) {
            write_post(b, b->bulk[i], PAIR_BYTES);
        }
    }
}

static int compare(const void *a, const void *b)
{
    int64_t d = *(const int64_t *)a - *(const int64_t *)b;

    return (d > 0) - (d < 0);
}

static void measure(uint32_t flows, const Mode *mode, uint32_t writes)
{
    Beside *b = beside_new(flows, mode);
    g_autofree int64_t *took = g_new0(int64_t, writes);
    int64_t start, begin, next = b->sim->now + 10 * PAUSE_NS;
    uint64_t sent;

    /* The loop runs until all flows have begun. */
    while (b->sim->now < next) {
        step(b);
    }
    start = b->sim->now;
    sent = sim_counter(&b->sim->node[0], QRNIC_COUNTER_ROCE_TX_BYTES);
    for (uint32_t n = 0; n < writes; n++) {
        next = b->sim->now + g_rand_int_range(b->sim->rand, 0, PAUSE_NS);
        while (b->sim->now < next) {
            step(b);
        }
        begin = b->sim->now;
        write_post(b, b->brief, SHORT_BYTES);
        while (!completed(b->brief)) {
            step(b);
        }
        took[n] = b->sim->now - begin;
    }
    sent = sim_counter(&b->sim->node[0], QRNIC_COUNTER_ROCE_TX_BYTES) - sent;
    qsort(took, writes, sizeof(*took), compare);
    printf("csv %s,%u,%.2f,%.2f,%.2f\n", mode->name, flows,
           took[writes / 2] / 1e3, took[writes * 99 / 100] / 1e3,
           sent * 8.0 / (b->sim->now - start));
    fflush(stdout);
    sim_free(b->sim);
    g_free(b);
}

int main(int argc, char **argv)
{
    uint32_t most = argc > 1 ? MIN(atoi(argv[1]), FLOWS_MAX) : FLOWS_MAX;
    uint32_t writes = argc > 2 ? MAX(atoi(argv[2]), 1) : 1000;

    printf("csv turns,flows,median_us,percentile_99_us,"
           "gigabits_per_second\n");
    for (unsigned m = 0; m < ARRAY_SIZE(modes); m++) {
        for (uint32_t flows = 1; flows <= most; flows *= 2) {
            measure(flows, &modes[m], writes);
        }
    }
    return 0;
}
