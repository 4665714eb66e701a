/*
 * Experiment: the cost of loss. One of two nodes writes messages of 4 KiB to
 * the other at 100 Gb/s, with as many outstanding as allowed. A short link on
 * the path loses frames of both directions, independently. Compares the ways of
 * recovery, and the theoretical limit: a lost frame costs its own time.
 *
 * Prints rows for tools/experiments. Arguments: milliseconds of each
 * measurement in virtual time, and nanoseconds of the path.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "pair.h"

#define MESSAGE 4096u
#define MESSAGES 200u           /* Posted at a time */
#define GIGABITS 100
#define WAY_NS 22000            /* Default delay of the path */
#define LINK_NS 1000            /* Delay of the link in it, 200 m */
#define TIMEOUT 9               /* 2.1 ms */
/* Ethernet, IP, UDP, BTH, RETH, ICRC; preamble, FCS, inter-frame gap */
#define FRAME_BYTES (14 + 20 + 8 + 12 + 16 + MESSAGE + 4 + 24)
#define STEP_NS 1000

typedef struct Recovery {
    const char *name;
    uint8_t options;
    bool link;                  /* Link retransmission below go-back-N */
} Recovery;

static const Recovery recoveries[] = {
    { "gbn", 0, false },
    { "sr", QRNIC_QPO_SELECTIVE_REPEAT, false },
    { "link", 0, true },
};

static bool tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                void *opaque)
{
    return g_rand_double(s->rand) >= *(double *)opaque;
}

static void write_post(Pair *p)
{
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, MESSAGE);
}

/* Returns the bytes of the messages that were completed in this time. */
static uint64_t run(Pair *p, int64_t ns)
{
    int64_t end = p->sim->now + ns;
    uint64_t bytes = 0;

    while (p->sim->now < end) {
        QrnicCqe c;

        sim_run(p->sim, MIN(p->sim->now + STEP_NS, end));
        while (sim_poll(p->a.qp, &c)) {
            g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
            bytes += MESSAGE;
            write_post(p);
        }
    }
    return bytes;
}

/* Returns gigabits per second. */
static double measure(const Recovery *r, double loss, int64_t ns, int64_t way)
{
    const SimOptions o = { .link_retransmission = r->link };
    SimConnect c = sim_connect_default();
    uint64_t bytes;
    Pair *p;

    c.path_mtu = QRNIC_MTU_4096;
    c.timeout = TIMEOUT;
    c.options = r->options;
    p = pair_new(1, &o, &c);
    p->sim->latency = r->link ? LINK_NS : way;
    p->sim->behind = way - LINK_NS;
    p->sim->wire_room = 1;
    p->sim->wire_pause = FRAME_BYTES * 8 / GIGABITS;
    /* Both ends of the link agree before the first loss. */
    sim_run(p->sim, 100 * SIM_MS);
    p->sim->tap = tap;
    p->sim->tap_opaque = &loss;
    for (unsigned i = 0; i < MESSAGES; i++) {
        write_post(p);
    }
    run(p, ns / 10);
    bytes = run(p, ns);
    pair_free(p);
    return bytes * 8.0 / ns;
}

int main(int argc, char **argv)
{
    static const double percents[] = {
        0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5,
    };
    int64_t ns = (argc > 1 ? MAX(atoi(argv[1]), 1) : 40) * SIM_MS;
    int64_t way = argc > 2 ? MAX(atoi(argv[2]), LINK_NS) : WAY_NS;
    double whole = 0;

    printf("csv loss_percent,recovery,goodput_gbps\n");
    for (unsigned i = 0; i < ARRAY_SIZE(percents); i++) {
        double loss = percents[i] / 100;

        for (unsigned n = 0; n < ARRAY_SIZE(recoveries); n++) {
            double rate = measure(&recoveries[n], loss, ns, way);

            whole = MAX(whole, rate);
            printf("csv %g,%s,%.2f\n", percents[i], recoveries[n].name, rate);
        }
        printf("csv %g,limit,%.2f\n", percents[i], whole * (1 - loss));
        fflush(stdout);
    }
    return 0;
}
