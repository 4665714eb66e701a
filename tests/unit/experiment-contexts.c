/*
 * Experiment: message rate and number of connections, with context caches of
 * three sizes and both ways to wait for a context. In virtual time: a frame
 * takes 100 ns on the wire, a fetch 350 ns, everything else nothing.
 *
 * Each connection is used once, then some at random. Prints rows for
 * tools/experiments. Arguments: most connections, messages.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "many.h"
#include "pair.h"

#define FRAME_NS 100
#define FETCH_NS 350
#define STATIONS 16
#define WINDOW 128u             /* Outstanding messages */
#define DEPTH 4u                /* Outstanding messages of one connection */
#define CQ_LOG 12

typedef struct Many {
    Sim *sim;
    uint32_t count, first;
    SimQp *a;                   /* Connections of node 0 */
    uint8_t *under_way;
    ManyEnd end[SIM_NODES];
    uint64_t payload, target;
    uint32_t rkey;
} Many;

static void connections_make(Many *m)
{
    many_end_init(&m->end[0], &m->sim->node[0], CQ_LOG, m->count);
    many_end_init(&m->end[1], &m->sim->node[1], CQ_LOG, 0);
    m->a = g_new0(SimQp, m->count);
    m->under_way = g_new0(uint8_t, m->count);
    for (uint32_t i = 0; i < m->count; i++) {
        SimConnect c = sim_connect_default();
        SimQp b = many_qp(&m->end[1], QRNIC_QPT_RC, 0, false);

        m->a[i] = many_qp(&m->end[0], QRNIC_QPT_RC, 0, true);
        c.timeout = 16;
        sim_connect(&m->a[i], &b, &c);
    }
    m->first = m->a[0].number;
}

static Many *many_new(uint32_t count, uint32_t cache, uint32_t stations)
{
    SimOptions o = {
        .context_cache = cache, .context_stations = stations,
        .context_latency = FETCH_NS, .contexts_of_one = true,
        .max_qp = count, .doorbell_fifo = 4096,
        .memory = 16 * MiB + (uint64_t)count * 640,
    };
    Many *m = g_new0(Many, 1);

    m->sim = sim_new(1, &o);
    m->sim->latency = 500;
    m->count = count;
    connections_make(m);
    m->target = sim_alloc(&m->sim->node[1], 4096);
    m->rkey = sim_mkey(&m->sim->node[1], m->target, 4096, ACCESS_ALL);
    sim_run(m->sim, SIM_MS);
    m->sim->wire_room = 1;
    m->sim->wire_pause = FRAME_NS;
    return m;
}

static void many_free(Many *m)
{
    sim_free(m->sim);
    g_free(m->a);
    g_free(m->under_way);
    g_free(m);
}

static void send_one(Many *m, uint32_t i)
{
    uint64_t value = i;
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE,
        .flags = QRNIC_WQEF_SIGNALED | QRNIC_WQEF_INLINE,
        .remote = m->target, .rkey = m->rkey, .inline_data = &value,
        .inline_length = sizeof(value),
    };

    m->under_way[i]++;
    sim_post_send(&m->a[i], &wr);
}

static uint32_t completed(Many *m)
{
    uint32_t n = 0;
    QrnicCqe c;

    while (sim_poll(&m->end[0].cq, &c)) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
        m->under_way[c.qpn - m->first]--;
        n++;
    }
    return n;
}

/*
 * Returns the nanoseconds that these messages take. random: choose connections
 * at random instead of in order.
 */
static int64_t use(Many *m, uint32_t messages, bool random)
{
    int64_t begin = m->sim->now;
    uint32_t posted = 0, done = 0;

    while (done < messages) {
        while (posted < messages &&
               posted - done < MIN(WINDOW, m->count * DEPTH)) {
            uint32_t i = random ? g_rand_int_range(m->sim->rand, 0, m->count) :
                                  posted % m->count;

            while (m->under_way[i] == DEPTH) {
                i = (i + 1) % m->count;
            }
            send_one(m, i);
            posted++;
        }
        sim_run(m->sim, m->sim->now + FRAME_NS);
        done += completed(m);
    }
    return m->sim->now - begin;
}

int main(int argc, char **argv)
{
    static const uint32_t cache[] = { 64, 512, 4096 };
    uint32_t most = argc > 1 ? atoi(argv[1]) : 65536;
    uint32_t messages = argc > 2 ? atoi(argv[2]) : 20000;

    printf("csv cache,mode,connections,messages_per_second,hits,misses,"
           "write_backs\n");
    for (unsigned i = 0; i < ARRAY_SIZE(cache); i++) {
        for (uint32_t stations = 0; stations <= STATIONS;
             stations += STATIONS) {
            for (uint32_t count = 16; count <= most; count *= 4) {
                Many *m = many_new(count, cache[i], stations);
                SimNode *n = &m->sim->node[0];
                uint64_t before[3];
                int64_t took;

                use(m, count, false);
                for (unsigned c = 0; c < 3; c++) {
                    before[c] = sim_counter(n, QRNIC_COUNTER_CONTEXT_HITS + c);
                }
                took = use(m, messages, true);
                printf("csv %u,%s,%u,%.0f", cache[i],
                       stations ? "stations" : "in order", count,
                       messages * 1e9 / took);
                for (unsigned c = 0; c < 3; c++) {
                    printf(",%" PRIu64, sim_counter(n,
                           QRNIC_COUNTER_CONTEXT_HITS + c) - before[c]);
                }
                printf("\n");
                fflush(stdout);
                many_free(m);
            }
        }
    }
    return 0;
}
