/*
 * Every request is executed exactly once and in order, over a wire that loses,
 * reorders and repeats packets, old acknowledged ones included. Writes, sends,
 * reads and atomics of connections and of members of a carrier, with all
 * options. The value of the atomics looks like later PSNs, so that an exchange
 * of both would be detected.
 *
 * QRNIC_SEED=n runs only that seed, QRNIC_SEEDS=n that many.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/transport/rc/reliability.h"
#include "pair.h"

#define MEMBERS 4
#define FRAMES 512              /* Frames that can be repeated */
#define SEEDS 30
#define STEPS 3000
#define MOST 64u                /* Outstanding requests */
#define RECEIVES 128u

/* Layout of the memories. Each write has a slot of its own. */
#define SLOTS 220
#define SLOT_BYTES 3072
#define READ_AT (800 * 1024)
#define READ_BYTES 20000
#define COUNTER_AT (900 * 1024)
#define ANSWERS_AT (COUNTER_AT + 8)     /* Results of atomics */
#define SEND_AT (COUNTER_AT + 4096)
#define RECEIVE_AT (COUNTER_AT + 8192)
#define RECEIVE_BYTES 64

typedef struct Request {
    uint8_t opcode;
    uint32_t len, number;       /* Number among requests of its kind */
    uint64_t answer;            /* Result of an atomic */
} Request;

typedef struct Stream {
    PairEnd a, b;
    Request request[MOST];
    unsigned head, tail;
    uint32_t writes, sends, adds, posted, received;
    uint64_t value;             /* Value of the counter after all atomics */
    bool complete[SLOTS];
    bool reading, failed;
} Stream;

typedef struct World {
    Sim *sim;
    GRand *rand;
    SimQp *carrier[2];
    Stream stream[MEMBERS];
    unsigned streams;
    GBytes *frame[FRAMES];
    unsigned to[FRAMES], frames;
} World;

typedef struct Case {
    uint8_t options;
    bool shared;
} Case;

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

/* Repeats a recent frame, or one of any time. */
static void again(World *w)
{
    unsigned i = below(w, 2) ? below(w, FRAMES) :
                 (w->frames + FRAMES - 1 - below(w, 20)) % FRAMES;

    if (w->frame[i]) {
        g_autoptr(GBytes) frame = g_bytes_ref(w->frame[i]);

        sim_inject(w->sim, w->to[i], g_bytes_get_data(frame, NULL),
                   g_bytes_get_size(frame));
    }
}

/* Requests */

static Request *request_new(Stream *x, uint8_t opcode, uint32_t number,
                            uint32_t len)
{
    Request *q = &x->request[x->head++ % MOST];

    *q = (Request) { .opcode = opcode, .number = number, .len = len };
    return q;
}

static void write_post(World *w, Stream *x)
{
    uint64_t at = (uint64_t)x->writes * SLOT_BYTES;
    Request *q;

    if (x->writes == SLOTS) {
        return;
    }
    q = request_new(x, QRNIC_WQE_RDMA_WRITE, x->writes,
                    1 + below(w, SLOT_BYTES));
    x->writes++;
    for (uint32_t i = 0; i < q->len; i++) {
        x->a.data[at + i] = (q->number * 131 + i * 7) ^ (i >> 8) ^ 0x11;
    }
    post(&x->a, &x->b, q->opcode, at, at, q->len);
}

static void send_post(Stream *x)
{
    uint64_t at = SEND_AT + 8 * (x->sends % MOST);

    stq_le_p(x->a.data + at, x->sends);
    request_new(x, QRNIC_WQE_SEND, x->sends++, 8);
    post(&x->a, &x->b, QRNIC_WQE_SEND, at, 0, 8);
}

static uint64_t answer_at(uint32_t number)
{
    return ANSWERS_AT + 8 * (number % MOST);
}

/* Posts an atomic whose result is a PSN that will be in flight then. */
static void add_post(World *w, Stream *x)
{
    uint32_t psn = qrnic_psn_add(sim_query(x->a.qp).sq_psn, below(w, 60));
    SimSge sge = { x->a.addr + answer_at(x->adds), 8, x->a.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_ATOMIC_FETCH_ADD, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = x->b.addr + COUNTER_AT,
        .rkey = x->b.key, .swap_add = 1 + ((psn - x->value) & QRNIC_PSN_MASK),
    };

    request_new(x, wr.opcode, x->adds++, 8)->answer = x->value;
    x->value += wr.swap_add;
    sim_post_send(x->a.qp, &wr);
}

/* Posts a read if none is outstanding, because reads share one buffer. */
static void read_post(World *w, Stream *x)
{
    if (!x->reading) {
        x->reading = true;
        memset(x->a.data + READ_AT, 0, READ_BYTES);
        post(&x->a, &x->b, QRNIC_WQE_RDMA_READ, READ_AT, READ_AT,
             request_new(x, QRNIC_WQE_RDMA_READ, 0,
                         1 + below(w, READ_BYTES))->len);
    }
}

static void request_post(World *w, Stream *x)
{
    if (x->failed || x->head - x->tail == MOST) {
        return;
    }
    switch (below(w, 4)) {
    case 0:
        write_post(w, x);
        break;
    case 1:
        send_post(x);
        break;
    case 2:
        add_post(w, x);
        break;
    case 3:
        read_post(w, x);
        break;
    }
}

static void receive_post(Stream *x)
{
    if (x->posted - x->received < RECEIVES) {
        post_recv(&x->b, RECEIVE_AT + x->posted++ % RECEIVES * RECEIVE_BYTES,
                  RECEIVE_BYTES);
    }
}

/* Completions */

static void expect_done(Stream *x, const Request *q)
{
    uint64_t at = (uint64_t)q->number * SLOT_BYTES;

    switch (q->opcode) {
    case QRNIC_WQE_RDMA_WRITE:
        g_assert_cmpmem(x->a.data + at, q->len, x->b.data + at, q->len);
        /* The slot is overwritten, to detect a later write. */
        memset(x->b.data + at, 0xee, SLOT_BYTES);
        x->complete[q->number] = true;
        break;
    case QRNIC_WQE_SEND:
        g_assert_cmpuint(q->number, <, x->received);
        break;
    case QRNIC_WQE_ATOMIC_FETCH_ADD:
        g_assert_cmphex(ldq_le_p(x->a.data + answer_at(q->number)), ==,
                        q->answer);
        break;
    case QRNIC_WQE_RDMA_READ:
        g_assert_cmpmem(x->a.data + READ_AT, q->len, x->b.data + READ_AT,
                        q->len);
        x->reading = false;
        break;
    }
}

static void stream_poll(Stream *x)
{
    QrnicCqe c;

    while (sim_poll(x->b.qp, &c)) {
        if (c.status == QRNIC_WC_SUCCESS) {
            g_assert_cmpuint(ldq_le_p(x->b.data + RECEIVE_AT +
                                      x->received % RECEIVES * RECEIVE_BYTES),
                             ==, x->received);
            x->received++;
        }
    }
    while (sim_poll(x->a.qp, &c)) {
        /* Retries can be exhausted on this wire; later requests are flushed. */
        if (c.status != QRNIC_WC_SUCCESS) {
            g_assert_true(x->failed || c.status == QRNIC_WC_RETRY_EXC_ERR);
            x->failed = true;
        } else {
            g_assert_cmpuint(x->tail, !=, x->head);
            expect_done(x, &x->request[x->tail++ % MOST]);
        }
    }
}

static void time_passes(World *w, int64_t ns)
{
    sim_run(w->sim, w->sim->now + ns);
    for (unsigned i = 0; i < w->streams; i++) {
        stream_poll(&w->stream[i]);
    }
}

static void step(World *w)
{
    Stream *x = &w->stream[below(w, w->streams)];
    unsigned what = below(w, 100);

    if (what < 35) {
        request_post(w, x);
    } else if (what < 45) {
        receive_post(x);
    } else if (what < 60) {
        again(w);
    } else {
        time_passes(w, below(w, below(w, 20) ? 60 : 2000) * SIM_US);
    }
}

/* One run */

static void end_init(PairEnd *e, SimNode *n)
{
    e->qp = sim_qp_new(n, 8, 8, 3, 10);
    e->addr = sim_alloc(n, PAIR_BYTES);
    e->data = n->memory + e->addr;
    e->key = sim_mkey(n, e->addr, PAIR_BYTES, ACCESS_ALL);
}

static void stream_init(World *w, Stream *x, const SimConnect *c)
{
    end_init(&x->a, &w->sim->node[0]);
    end_init(&x->b, &w->sim->node[1]);
    for (unsigned i = 0; i < READ_BYTES; i++) {
        x->b.data[READ_AT + i] = below(w, 256);
    }
    x->value = (uint64_t)below(w, 1 << 30) << 24 |
               qrnic_psn_add(c->psn_a, below(w, 60));
    stq_le_p(x->b.data + COUNTER_AT, x->value);
    sim_connect(x->a.qp, x->b.qp, c);
}

static World *world_new(const Case *k, uint32_t seed)
{
    const SimOptions o = { .memory = 16 << 20 };
    SimConnect c = sim_connect_default();
    World *w = g_new0(World, 1);

    w->sim = sim_new(seed, &o);
    w->rand = g_rand_new_with_seed(seed);
    c.options = k->options;
    c.timeout = 9 + below(w, 4);
    c.retry_cnt = c.rnr_retry = 7;
    c.min_rnr_timer = 2;
    c.psn_a = below(w, 2) ? QRNIC_PSN_MASK - below(w, 200) :
                            below(w, QRNIC_PSN_MASK);
    c.psn_b = below(w, QRNIC_PSN_MASK);
    if (k->shared) {
        for (unsigned i = 0; i < 2; i++) {
            w->carrier[i] = sim_carrier_new(&w->sim->node[i]);
        }
        sim_carrier_connect(w->carrier[0], w->carrier[1], &c);
        c.options = 0;
        c.timeout += 2;
        c.carrier_a = w->carrier[0];
        c.carrier_b = w->carrier[1];
    }
    w->streams = k->shared ? MEMBERS : 1;
    for (unsigned i = 0; i < w->streams; i++) {
        stream_init(w, &w->stream[i], &c);
    }
    w->sim->tap = tap;
    w->sim->tap_opaque = w;
    w->sim->loss = below(w, 60);
    w->sim->repeat = below(w, 60);
    w->sim->reorder = below(w, 100);
    if (below(w, 2)) {
        w->sim->wire_room = 1 + below(w, 4);
        w->sim->wire_pause = 20 * SIM_US;
    }
    return w;
}

static void world_free(World *w)
{
    for (unsigned i = 0; i < w->streams; i++) {
        sim_qp_free(w->stream[i].a.qp);
        sim_qp_free(w->stream[i].b.qp);
    }
    for (unsigned i = 0; i < 2 && w->carrier[i]; i++) {
        sim_carrier_free(w->carrier[i]);
    }
    sim_free(w->sim);
    for (unsigned i = 0; i < FRAMES; i++) {
        g_clear_pointer(&w->frame[i], g_bytes_unref);
    }
    g_rand_free(w->rand);
    g_free(w);
}

/* Asserts that all posted requests were executed, and nothing else. */
static void expect_end(const Stream *x)
{
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        for (unsigned i = 0; x->complete[slot] && i < SLOT_BYTES; i++) {
            g_assert_cmphex(x->b.data[slot * SLOT_BYTES + i], ==, 0xee);
        }
    }
    if (!x->failed) {
        g_assert_cmpuint(x->tail, ==, x->head);
        g_assert_cmpuint(x->received, ==, x->sends);
        g_assert_cmphex(ldq_le_p(x->b.data + COUNTER_AT), ==, x->value);
    }
}

/* Returns the number of executed requests. */
static unsigned live(const Case *k, uint32_t seed)
{
    World *w = world_new(k, seed);
    unsigned done = 0;

    g_test_message("seed %u", seed);
    for (unsigned i = 0; i < STEPS; i++) {
        step(w);
    }
    w->sim->loss = w->sim->repeat = w->sim->reorder = 0;
    for (unsigned i = 0; i < w->streams; i++) {
        while (w->stream[i].posted - w->stream[i].received < RECEIVES) {
            receive_post(&w->stream[i]);
        }
    }
    time_passes(w, 100000 * SIM_MS);
    for (unsigned i = 0; i < 300; i++) {
        again(w);
        time_passes(w, 50 * SIM_US);
    }
    for (unsigned i = 0; i < w->streams; i++) {
        expect_end(&w->stream[i]);
        done += w->stream[i].tail;
    }
    world_free(w);
    return done;
}

static void test_case(gconstpointer opaque)
{
    const char *only = g_getenv("QRNIC_SEED"), *all = g_getenv("QRNIC_SEEDS");
    uint32_t seeds = all ? atoi(all) : SEEDS;
    unsigned done = 0;

    if (only) {
        live(opaque, atoi(only));
        return;
    }
    for (uint32_t seed = 1; seed <= seeds; seed++) {
        done += live(opaque, seed);
    }
    g_test_message("%u requests done", done);
    g_assert_cmpuint(done, >, 100 * seeds);
}

static void add(const char *path, uint8_t options, bool shared)
{
    Case *k = g_new(Case, 1);

    *k = (Case) { .options = options, .shared = shared };
    g_test_add_data_func_full(path, k, test_case, g_free);
}

int main(int argc, char **argv)
{
    const uint8_t selective = QRNIC_QPO_SELECTIVE_REPEAT;
    const uint8_t adaptive = QRNIC_QPO_ADAPTIVE_ROUTING;

    g_test_init(&argc, &argv, NULL);
    add("/exactly-once/go-back-n", 0, false);
    add("/exactly-once/selective", selective, false);
    add("/exactly-once/adaptive", adaptive, false);
    add("/exactly-once/both", selective | adaptive, false);
    add("/exactly-once/shared", 0, true);
    add("/exactly-once/shared-selective", selective, true);
    return g_test_run();
}
