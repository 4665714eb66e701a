/*
 * Memory of the host: the cost of an idle object that has worked, measured by
 * the allocator, and leaks. The bounds are those of the section "Memory of the
 * host" in the manual.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <malloc.h>
#include "pair.h"

/* Enough objects that common memory of the device is negligible */
#define OBJECTS 1000
#define MEMORY (128ull << 20)

#define RC_BYTES 2400
#define UC_BYTES 1312
#define UD_BYTES 1312
#define SRQ_BYTES 384
#define CQ_BYTES 256
#define MKEY_BYTES 256
#define EQ_BYTES 256            /* Without its entries */
#define EQ_ENTRY_BYTES 4
#define COUNTER_SET_BYTES 1792
#define DB_PAGE_BYTES 512
#define FLOW_BYTES 256
#define RSS_BYTES 640

#define RECEIVES 12
#define WRITES 40
#define READS 20
#define READS_KEPT 16           /* max_rd_atomic and max_dest_rd_atomic */
#define LONG_BYTES 9000
/* Bytes of a queue pair's data in each memory */
#define SLOT_BYTES 16384

typedef struct World {
    Sim *sim;
    SimQp *a[OBJECTS], *b[OBJECTS];
    uint64_t addr[SIM_NODES];
    uint32_t key[SIM_NODES];
} World;

static void settle(World *w)
{
    g_assert_true(sim_run(w->sim, w->sim->now + 100000 * SIM_MS));
}

static void world_init(World *w)
{
    SimOptions o = {
        .memory = MEMORY, .max_qp = 2 * OBJECTS, .max_cq = 2 * OBJECTS,
        .max_srq = 2 * OBJECTS, .max_mkey = 2 * OBJECTS,
        .max_flow = 2 * OBJECTS,
        .vectors = 2 * OBJECTS, .db_pages = 2 * OBJECTS,
        .doorbell_fifo = 16 * OBJECTS,
    };

    w->sim = sim_new(31, &o);
    for (unsigned i = 0; i < SIM_NODES; i++) {
        SimNode *n = &w->sim->node[i];

        w->addr[i] = sim_alloc(n, OBJECTS * SLOT_BYTES);
        w->key[i] = sim_mkey(n, w->addr[i], OBJECTS * SLOT_BYTES, ACCESS_ALL);
    }
}

static void world_cleanup(World *w)
{
    for (unsigned i = 0; i < OBJECTS; i++) {
        g_free(w->a[i]);
        g_free(w->b[i]);
    }
    sim_free(w->sim);
}

static size_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* Destroys all objects. Asserts that each frees at most bound bytes. */
static void cost_check(const char *what, SimNode *n, const uint32_t *number,
                       QrnicResult (*destroy)(QrnicEngine *e, uint32_t number),
                       size_t bound)
{
    size_t before = allocated(), bytes;

    for (unsigned i = 0; i < OBJECTS; i++) {
        g_assert_cmpint(destroy(n->engine, number[i]).status, ==, QRNIC_ST_OK);
    }
    bytes = (before - allocated()) / OBJECTS;
    g_test_message("%s: %zu bytes", what, bytes);
#ifndef QEMU_SANITIZE_ADDRESS   /* The sanitizer replaces the allocator */
    g_assert_cmpuint(bytes, <=, bound);
    /* The allocator counts at least this, so the measurement works. */
    g_assert_cmpuint(bytes, >=, 64);
#endif
}

static void queues_check(const char *what, World *w, size_t bound)
{
    g_autofree uint32_t *qpn = g_new(uint32_t, OBJECTS);
    g_autofree uint32_t *cqn = g_new(uint32_t, OBJECTS);

    for (unsigned i = 0; i < OBJECTS; i++) {
        qpn[i] = w->a[i]->number;
        cqn[i] = w->a[i]->cq;
    }
    cost_check(what, &w->sim->node[0], qpn, qrnic_qp_destroy, bound);
    cost_check("CQ", &w->sim->node[0], cqn, qrnic_cq_destroy, CQ_BYTES);
}

static void send_one(World *w, SimQp *q, unsigned i, uint8_t opcode,
                     uint32_t len)
{
    unsigned node = q->node->id;
    SimSge sge = { w->addr[node] + i * SLOT_BYTES, len, w->key[node] };
    SimWr wr = {
        .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = 1, .remote = w->addr[!node] + i * SLOT_BYTES,
        .rkey = w->key[!node],
    };

    sim_post_send(q, &wr);
}

static void receive_one(World *w, SimQp *q, unsigned i)
{
    unsigned node = q->node->id;
    SimSge sge = { w->addr[node] + i * SLOT_BYTES, SLOT_BYTES, w->key[node] };

    sim_post_recv(q, &sge, 1);
}

static void expect_successes(SimQp *q, unsigned count)
{
    QrnicCqe cqe;

    for (unsigned i = 0; i < count; i++) {
        g_assert_true(sim_poll(q, &cqe));
        g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==, "SUCCESS");
    }
    g_assert_false(sim_poll(q, &cqe));
}

/* Asserts that each message arrived at its queue pair as a whole. */
static void message_check(World *w, unsigned i, uint32_t len)
{
    uint8_t *from = w->sim->node[0].memory + w->addr[0] + i * SLOT_BYTES;
    uint8_t *to = w->sim->node[1].memory + w->addr[1] + i * SLOT_BYTES;
    uint8_t *back = g_memdup2(from, len);

    memset(from, i + 1, len);
    memset(to, 0, len);
    send_one(w, w->a[i], i, QRNIC_WQE_SEND, len);
    settle(w);
    g_assert_cmpmem(from, len, to, len);
    memcpy(from, back, len);
    g_free(back);
    expect_successes(w->a[i], 1);
    expect_successes(w->b[i], 1);
}

/*
 * Causes the most memory use of a connection: many outstanding requests, long
 * messages in both directions, the maximum of stored reads, and prefetched
 * receive WQEs.
 */
static void connections_work(World *w)
{
    SimConnect c = sim_connect_default();

    c.rd_atomic = c.max_dest_rd_atomic = READS_KEPT;
    for (unsigned i = 0; i < OBJECTS; i++) {
        w->a[i] = sim_qp_new(&w->sim->node[0], 6, 4, 1, 7);
        w->b[i] = sim_qp_new(&w->sim->node[1], 6, 4, 1, 7);
        sim_connect(w->a[i], w->b[i], &c);
        for (unsigned k = 0; k < RECEIVES; k++) {
            receive_one(w, w->a[i], i);
            receive_one(w, w->b[i], i);
        }
        settle(w);
    }
    for (unsigned i = 0; i < OBJECTS; i++) {
        for (unsigned k = 0; k < WRITES; k++) {
            send_one(w, w->a[i], i, QRNIC_WQE_RDMA_WRITE, 64);
        }
        send_one(w, w->a[i], i, QRNIC_WQE_SEND, LONG_BYTES);
        for (unsigned k = 0; k < READS; k++) {
            send_one(w, w->b[i], i, QRNIC_WQE_RDMA_READ, 64);
        }
        send_one(w, w->b[i], i, QRNIC_WQE_SEND, LONG_BYTES);
        if (i % 16 == 15) {
            settle(w);
        }
    }
    settle(w);
    for (unsigned i = 0; i < OBJECTS; i++) {
        expect_successes(w->a[i], WRITES + 2);
        expect_successes(w->b[i], READS + 2);
    }
}

static void test_rc(void)
{
    g_autofree World *w = g_new0(World, 1);

    world_init(w);
    connections_work(w);
    queues_check("RC", w, RC_BYTES);
    world_cleanup(w);
}

/*
 * Tests more queues with prefetched receive WQEs than buffers exist. A dropped
 * WQE is fetched again.
 */
static void test_fetch(void)
{
    g_autofree World *w = g_new0(World, 1);

    world_init(w);
    connections_work(w);
    for (unsigned k = 0; k < 2; k++) {
        for (unsigned i = 0; i < OBJECTS; i++) {
            message_check(w, i, 64 + i % 512);
        }
    }
    world_cleanup(w);
}

static bool lose(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                 void *opaque)
{
    return false;
}

/* Tests an error or a reset in the middle of work. */
static void test_rc_cut(const void *opaque)
{
    const QrnicQpAttr to = {
        .mask = QRNIC_QP_STATE, .state = GPOINTER_TO_UINT(opaque),
    };
    g_autofree World *w = g_new0(World, 1);
    QrnicCqe cqe;

    world_init(w);
    connections_work(w);
    w->sim->tap = lose;
    for (unsigned i = 0; i < OBJECTS; i++) {
        for (unsigned k = 0; k < WRITES / 2; k++) {
            send_one(w, w->a[i], i, QRNIC_WQE_RDMA_WRITE, LONG_BYTES);
            send_one(w, w->a[i], i, QRNIC_WQE_RDMA_READ, 64);
        }
        sim_run(w->sim, w->sim->now + SIM_US);
    }
    for (unsigned i = 0; i < OBJECTS; i++) {
        g_assert_cmpint(sim_modify(w->a[i], &to).status, ==, QRNIC_ST_OK);
    }
    settle(w);
    if (to.state == QRNIC_QPS_ERR) {
        g_assert_true(sim_poll(w->a[0], &cqe));
        g_assert_cmpint(cqe.status, ==, QRNIC_WC_WR_FLUSH_ERR);
    }
    queues_check(qrnic_qp_state_name(to.state), w, RC_BYTES);
    world_cleanup(w);
}

/*
 * Tests a device reset in the middle of work; the leak detector finds lost
 * memory.
 */
static void test_reset(void)
{
    g_autofree World *w = g_new0(World, 1);

    world_init(w);
    for (unsigned i = 0; i < 8; i++) {
        w->a[i] = sim_qp_new(&w->sim->node[0], 6, 4, 1, 7);
        w->b[i] = sim_qp_new(&w->sim->node[1], 6, 4, 1, 7);
        sim_connect(w->a[i], w->b[i], NULL);
        receive_one(w, w->b[i], i);
        send_one(w, w->a[i], i, QRNIC_WQE_RDMA_READ, LONG_BYTES);
        send_one(w, w->a[i], i, QRNIC_WQE_SEND, LONG_BYTES);
        send_one(w, w->a[i], i, QRNIC_WQE_SEND, LONG_BYTES);
    }
    sim_run(w->sim, w->sim->now + SIM_US);
    sim_reset(&w->sim->node[0]);
    sim_run(w->sim, w->sim->now + SIM_US);
    world_cleanup(w);
}

static void test_uc(void)
{
    g_autofree World *w = g_new0(World, 1);

    world_init(w);
    for (unsigned i = 0; i < OBJECTS; i++) {
        w->a[i] = sim_uc_new(&w->sim->node[0], NULL);
        w->b[i] = sim_uc_new(&w->sim->node[1], NULL);
        sim_uc_connect(w->a[i], w->b[i]);
        for (unsigned k = 0; k < 3; k++) {
            receive_one(w, w->a[i], i);
            receive_one(w, w->b[i], i);
        }
        send_one(w, w->a[i], i, QRNIC_WQE_SEND, LONG_BYTES);
        send_one(w, w->b[i], i, QRNIC_WQE_SEND, LONG_BYTES);
        settle(w);
        expect_successes(w->a[i], 2);
        expect_successes(w->b[i], 2);
    }
    queues_check("UC", w, UC_BYTES);
    world_cleanup(w);
}

static void test_ud(void)
{
    g_autofree World *w = g_new0(World, 1);

    world_init(w);
    for (unsigned i = 0; i < OBJECTS; i++) {
        QrnicDatagramSeg to;
        SimSge sge = { w->addr[0], 64, w->key[0] };
        SimWr wr = {
            .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED,
            .sge = &sge, .num_sge = 1, .datagram = &to,
        };

        w->a[i] = sim_datagram_new(&w->sim->node[0], QRNIC_QPT_UD, NULL, 7);
        w->b[i] = sim_datagram_new(&w->sim->node[1], QRNIC_QPT_UD, NULL, 7);
        to = sim_datagram_to(w->b[i], 7);
        for (unsigned k = 0; k < 3; k++) {
            receive_one(w, w->b[i], i);
        }
        sim_post_send(w->a[i], &wr);
        settle(w);
        expect_successes(w->a[i], 1);
        expect_successes(w->b[i], 1);
    }
    queues_check("UD", w, UD_BYTES);
    world_cleanup(w);
}

static void test_srq(void)
{
    g_autofree World *w = g_new0(World, 1);
    g_autofree uint32_t *number = g_new(uint32_t, OBJECTS);
    g_autofree SimSrq **srq = g_new(SimSrq *, OBJECTS);

    world_init(w);
    for (unsigned i = 0; i < OBJECTS; i++) {
        SimSge sge = { w->addr[0] + i * SLOT_BYTES, SLOT_BYTES, w->key[0] };

        srq[i] = sim_srq_new(&w->sim->node[0], 4, 1);
        number[i] = srq[i]->number;
        w->a[i] = sim_uc_new(&w->sim->node[0], srq[i]);
        w->b[i] = sim_uc_new(&w->sim->node[1], NULL);
        sim_uc_connect(w->a[i], w->b[i]);
        for (unsigned k = 0; k < 6; k++) {
            sim_post_srq(srq[i], &sge, 1);
        }
        for (unsigned k = 0; k < 2; k++) {
            send_one(w, w->b[i], i, QRNIC_WQE_SEND, 64);
            settle(w);
        }
        expect_successes(w->a[i], 2);
    }
    queues_check("UC", w, UC_BYTES);
    cost_check("SRQ", &w->sim->node[0], number, qrnic_srq_destroy, SRQ_BYTES);
    for (unsigned i = 0; i < OBJECTS; i++) {
        g_free(srq[i]->next);
        g_free(srq[i]);
    }
    world_cleanup(w);
}

static void test_mkey(void)
{
    g_autofree World *w = g_new0(World, 1);
    g_autofree uint32_t *number = g_new(uint32_t, OBJECTS);

    world_init(w);
    for (unsigned i = 0; i < OBJECTS; i++) {
        number[i] = sim_mkey(&w->sim->node[0], w->addr[0], SLOT_BYTES,
                             ACCESS_ALL) >> 8;
    }
    cost_check("MR", &w->sim->node[0], number, qrnic_mkey_destroy, MKEY_BYTES);
    world_cleanup(w);
}

static void test_eq(void)
{
    static const unsigned log_sizes[] = { 4, 8 };
    g_autofree World *w = g_new0(World, 1);
    g_autofree uint32_t *number = g_new(uint32_t, OBJECTS);

    world_init(w);
    for (unsigned k = 0; k < ARRAY_SIZE(log_sizes); k++) {
        QrnicEqCtx ctx = {
            .type = QRNIC_EQ_COMPLETION, .log_size = log_sizes[k],
            .ring.root = sim_alloc(&w->sim->node[0],
                                   QRNIC_EQE_SIZE << log_sizes[k]),
        };

        for (unsigned i = 0; i < OBJECTS; i++) {
            QrnicResult r = qrnic_eq_create(w->sim->node[0].engine, &ctx);

            g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
            number[i] = r.value;
        }
        cost_check("EQ", &w->sim->node[0], number, qrnic_eq_destroy,
                   EQ_BYTES + (EQ_ENTRY_BYTES << log_sizes[k]));
    }
    world_cleanup(w);
}

/* Tests objects without memory in the guest. */
static void plain_check(const char *what, QrnicResult (*alloc)(QrnicEngine *e),
                        QrnicResult (*release)(QrnicEngine *e,
                                               uint32_t number),
                        size_t bound)
{
    g_autofree World *w = g_new0(World, 1);
    g_autofree uint32_t *number = g_new(uint32_t, OBJECTS);

    world_init(w);
    for (unsigned i = 0; i < OBJECTS; i++) {
        QrnicResult r = alloc(w->sim->node[0].engine);

        g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
        number[i] = r.value;
    }
    cost_check(what, &w->sim->node[0], number, release, bound);
    world_cleanup(w);
}

static void test_counter_set(void)
{
    plain_check("counter set", qrnic_counter_set_alloc, qrnic_counter_set_free,
                COUNTER_SET_BYTES);
}

static void test_db_page(void)
{
    plain_check("doorbell page", qrnic_db_page_alloc, qrnic_db_page_free,
                DB_PAGE_BYTES);
}

/* Tests the largest tables, with a rule for each. */
static void test_steering(void)
{
    g_autofree World *w = g_new0(World, 1);
    g_autofree uint32_t *rss = g_new(uint32_t, OBJECTS);
    g_autofree uint32_t *flow = g_new(uint32_t, OBJECTS);
    QrnicFlowCtx rule = {
        .type = QRNIC_FLOW_NORMAL, .flags = QRNIC_FLOWF_RSS,
    };
    QrnicRssCtx table = { .log_size = QRNIC_RSS_MAX_LOG_SIZE };
    QrnicEngine *e;

    world_init(w);
    e = w->sim->node[0].engine;
    w->a[0] = sim_inline_new(&w->sim->node[0], QRNIC_QPT_RAW_PACKET, NULL, 0);
    for (unsigned i = 0; i < 1u << table.log_size; i++) {
        qrnic_st_le32(table.entries + 4 * i, w->a[0]->number);
    }
    for (unsigned i = 0; i < OBJECTS; i++) {
        QrnicResult r = qrnic_rss_create(e, &table);

        g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
        rss[i] = r.value;
        r = qrnic_flow_create(e, rss[i], &rule);
        g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
        flow[i] = r.value;
    }
    cost_check("flow rule", &w->sim->node[0], flow, qrnic_flow_destroy,
               FLOW_BYTES);
    cost_check("RSS table", &w->sim->node[0], rss, qrnic_rss_destroy,
               RSS_BYTES);
    world_cleanup(w);
}

int main(int argc, char **argv)
{
    /*
     * Disables the thread cache of the allocator, which counts as used memory.
     * The setting works only at the start of a process, so the program restarts
     * itself.
     */
    if (!g_getenv("GLIBC_TUNABLES")) {
        g_setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", true);
        execv("/proc/self/exe", argv);
    }
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/host-memory/rc", test_rc);
    g_test_add_func("/host-memory/fetch", test_fetch);
    g_test_add_data_func("/host-memory/rc-error",
                         GUINT_TO_POINTER(QRNIC_QPS_ERR), test_rc_cut);
    g_test_add_data_func("/host-memory/rc-reset",
                         GUINT_TO_POINTER(QRNIC_QPS_RESET), test_rc_cut);
    g_test_add_func("/host-memory/reset", test_reset);
    g_test_add_func("/host-memory/uc", test_uc);
    g_test_add_func("/host-memory/ud", test_ud);
    g_test_add_func("/host-memory/srq", test_srq);
    g_test_add_func("/host-memory/mkey", test_mkey);
    g_test_add_func("/host-memory/eq", test_eq);
    g_test_add_func("/host-memory/counter-set", test_counter_set);
    g_test_add_func("/host-memory/db-page", test_db_page);
    g_test_add_func("/host-memory/steering", test_steering);
    return g_test_run();
}
