/*
 * Sends messages of one kind between two engines on a simulated wire. A
 * profiler counts the instructions of each message. tools/bench --engine runs
 * this program under callgrind with two different counts; the difference is
 * free of setup.
 *
 * Arguments: the kind (a name in the table below), the number of messages.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "pair.h"

#define WINDOW 16u              /* Outstanding messages of each queue pair */
#define STEP_NS 1000
#define QPS_MAX 64u

typedef struct Kind {
    const char *name;
    uint8_t opcode;
    uint32_t length;
    unsigned qps;
    uint8_t options;            /* QRNIC_QPO_* of both queue pairs */
} Kind;

static const Kind kinds[] = {
    { "write-64k", QRNIC_WQE_RDMA_WRITE, 65536, 1 },
    { "write-8", QRNIC_WQE_RDMA_WRITE, 8, 1 },
    { "write-8-64qp", QRNIC_WQE_RDMA_WRITE, 8, QPS_MAX },
    { "send-8", QRNIC_WQE_SEND, 8, 1 },
    { "read-4k", QRNIC_WQE_RDMA_READ, 4096, 1 },
    { "atomic", QRNIC_WQE_ATOMIC_FETCH_ADD, 8, 1 },
    { "selective-64k", QRNIC_WQE_RDMA_WRITE, 65536, 1,
      QRNIC_QPO_SELECTIVE_REPEAT },
};

typedef struct Run {
    const Kind *kind;
    Sim *sim;
    PairEnd a[QPS_MAX], b[QPS_MAX];
    unsigned outstanding[QPS_MAX];
} Run;

/* All queue pairs of a node use the same memory and key. */
static void ends_init(PairEnd *ends, unsigned count, SimNode *n)
{
    uint64_t addr = sim_alloc(n, PAIR_BYTES);
    uint32_t key = sim_mkey(n, addr, PAIR_BYTES, ACCESS_ALL);

    for (unsigned i = 0; i < count; i++) {
        ends[i] = (PairEnd) {
            .qp = sim_qp_new(n, 8, 8, 3, 10), .addr = addr,
            .data = n->memory + addr, .key = key,
        };
    }
}

static void run_init(Run *r, const Kind *kind)
{
    SimConnect c = sim_connect_default();

    *r = (Run) { .kind = kind, .sim = sim_new(1, NULL) };
    c.path_mtu = QRNIC_MTU_1024;
    c.options = kind->options;
    ends_init(r->a, kind->qps, &r->sim->node[0]);
    ends_init(r->b, kind->qps, &r->sim->node[1]);
    for (unsigned i = 0; i < kind->qps; i++) {
        sim_connect(r->a[i].qp, r->b[i].qp, &c);
    }
}

static void run_cleanup(Run *r)
{
    for (unsigned i = 0; i < r->kind->qps; i++) {
        sim_qp_free(r->a[i].qp);
        sim_qp_free(r->b[i].qp);
    }
    sim_free(r->sim);
}

/* Posts up to limit messages. Returns the number. */
static uint64_t fill(Run *r, unsigned i, uint64_t limit)
{
    uint64_t posted = 0;

    while (posted < limit && r->outstanding[i] < WINDOW) {
        if (r->kind->opcode == QRNIC_WQE_SEND) {
            post_recv(&r->b[i], 0, r->kind->length);
        }
        post(&r->a[i], &r->b[i], r->kind->opcode, 0, 0, r->kind->length);
        r->outstanding[i]++;
        posted++;
    }
    return posted;
}

static unsigned poll_all(SimQp *q)
{
    unsigned completions = 0;
    QrnicCqe c;

    while (sim_poll(q, &c)) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
        completions++;
    }
    return completions;
}

static void run(Run *r, uint64_t messages)
{
    uint64_t posted = 0, done = 0;

    while (done < messages) {
        for (unsigned i = 0; i < r->kind->qps; i++) {
            posted += fill(r, i, messages - posted);
        }
        sim_run(r->sim, r->sim->now + STEP_NS);
        for (unsigned i = 0; i < r->kind->qps; i++) {
            unsigned sent = poll_all(r->a[i].qp);

            r->outstanding[i] -= sent;
            done += sent;
            poll_all(r->b[i].qp);
        }
    }
}

int main(int argc, char **argv)
{
    const Kind *kind = NULL;
    uint64_t messages = argc == 3 ? g_ascii_strtoull(argv[2], NULL, 10) : 0;
    Run r;

    for (unsigned i = 0; i < ARRAY_SIZE(kinds) && argc > 1; i++) {
        if (!strcmp(argv[1], kinds[i].name)) {
            kind = &kinds[i];
        }
    }
    if (!kind || !messages) {
        fprintf(stderr, "usage: %s KIND MESSAGES; KIND is one of\n", argv[0]);
        for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
            fprintf(stderr, "%s\n", kinds[i].name);
        }
        return 2;
    }
    run_init(&r, kind);
    run(&r, messages);
    run_cleanup(&r);
    return 0;
}
