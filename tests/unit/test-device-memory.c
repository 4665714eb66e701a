/*
 * Device memory: at either side of every operation, through windows, and
 * cleared between allocations
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/cutils.h"
#include "pair.h"

#define DM_LENGTH 10000
#define REGION_OFFSET 1000      /* Offset of the region in its DM */
#define REGION_LENGTH 8000
#define BASE 0x4000             /* Address of the region */

/* A region of device memory at each side */
typedef struct Dm {
    Pair *p;
    struct {
        uint32_t number, key;
        uint8_t *region;
    } a, b;
} Dm;

static QrnicMkeyCtx dm_key(PairEnd *end, uint32_t dm)
{
    return (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_DM, .access = ACCESS_ALL | QRNIC_ACCESS_MW_BIND,
        .variant = 3, .pd = end->qp->node->pd, .start = BASE,
        .length = REGION_LENGTH, .table.root = REGION_OFFSET, .dm = dm,
    };
}

static uint32_t dm_alloc(SimNode *n, uint64_t length, uint8_t log_alignment,
                         uint64_t *offset)
{
    QrnicDmCtx ctx = { .length = length, .log_alignment = log_alignment };
    QrnicResult r = qrnic_dm_alloc(n->engine, &ctx);

    g_assert_cmpuint(r.status, ==, QRNIC_ST_OK);
    g_assert_cmpuint(qrnic_dm_query(n->engine, r.value, &ctx).status, ==,
                     QRNIC_ST_OK);
    g_assert_cmpuint(ctx.length, ==, length);
    *offset = ctx.offset;
    return r.value;
}

static Dm dm_new(void)
{
    Dm d = { .p = pair_new(31, NULL, NULL) };
    uint64_t offset;
    QrnicMkeyCtx ctx;

    /* The region does not start at the beginning of the memory. */
    dm_alloc(d.p->a.qp->node, 1, 0, &offset);
    d.a.number = dm_alloc(d.p->a.qp->node, DM_LENGTH, 0, &offset);
    d.a.region = d.p->a.qp->node->device_memory + offset + REGION_OFFSET;
    ctx = dm_key(&d.p->a, d.a.number);
    d.a.key = sim_mkey_ctx(d.p->a.qp->node, &ctx);
    d.b.number = dm_alloc(d.p->b.qp->node, DM_LENGTH, 0, &offset);
    d.b.region = d.p->b.qp->node->device_memory + offset + REGION_OFFSET;
    ctx = dm_key(&d.p->b, d.b.number);
    d.b.key = sim_mkey_ctx(d.p->b.qp->node, &ctx);
    pair_fill(d.p);
    for (unsigned i = 0; i < REGION_LENGTH; i++) {
        d.a.region[i] = i * 7 + (i >> 8);
    }
    return d;
}

static void run(Dm *d)
{
    g_assert_true(sim_run(d->p->sim, INT64_MAX));
}

static void request(Dm *d, SimWr wr)
{
    wr.flags |= QRNIC_WQEF_SIGNALED;
    sim_post_send(d->p->a.qp, &wr);
    run(d);
}

/*
 * Tests transfers of several packets between device memories, in both
 * directions.
 */
static void test_transfer(void)
{
    Dm d = dm_new();
    SimSge from = { BASE + 3, 5000, d.a.key };
    SimSge to = { BASE + 11, 5000, d.b.key };
    g_autofree uint8_t *copy = g_memdup2(d.a.region, REGION_LENGTH);

    sim_post_recv(d.p->b.qp, &to, 1);
    request(&d, (SimWr) { .opcode = QRNIC_WQE_SEND, .sge = &from,
                          .num_sge = 1 });
    expect_cqe(d.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_cqe(d.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmpmem(d.b.region + 11, 5000, copy + 3, 5000);
    g_assert_true(buffer_is_zero(d.b.region, 11));
    g_assert_true(buffer_is_zero(d.b.region + 5011, REGION_LENGTH - 5011));

    memset(d.b.region, 0, REGION_LENGTH);
    request(&d, (SimWr) { .opcode = QRNIC_WQE_RDMA_WRITE, .sge = &from,
                          .num_sge = 1, .remote = BASE + 77,
                          .rkey = d.b.key });
    expect_cqe(d.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(d.b.region + 77, 5000, copy + 3, 5000);

    memset(d.a.region, 0, REGION_LENGTH);
    request(&d, (SimWr) { .opcode = QRNIC_WQE_RDMA_READ, .sge = &from,
                          .num_sge = 1, .remote = BASE + 77,
                          .rkey = d.b.key });
    expect_cqe(d.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(d.a.region + 3, 5000, copy + 3, 5000);
    pair_free(d.p);
}

static void test_atomic(void)
{
    Dm d = dm_new();
    SimSge old = { BASE + 16, 8, d.a.key };

    stq_le_p(d.b.region + 24, 40);
    request(&d, (SimWr) { .opcode = QRNIC_WQE_ATOMIC_FETCH_ADD, .sge = &old,
                          .num_sge = 1, .remote = BASE + 24,
                          .rkey = d.b.key, .swap_add = 2 });
    expect_cqe(d.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
    g_assert_cmpuint(ldq_le_p(d.b.region + 24), ==, 42);
    g_assert_cmpuint(ldq_le_p(d.a.region + 16), ==, 40);
    request(&d, (SimWr) { .opcode = QRNIC_WQE_ATOMIC_CMP_SWAP, .sge = &old,
                          .num_sge = 1, .remote = BASE + 24,
                          .rkey = d.b.key, .compare = 42, .swap_add = 7 });
    expect_cqe(d.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_CMP_SWAP);
    g_assert_cmpuint(ldq_le_p(d.b.region + 24), ==, 7);
    g_assert_cmpuint(ldq_le_p(d.a.region + 16), ==, 42);
    pair_free(d.p);
}

static void test_window(void)
{
    Dm d = dm_new();
    SimNode *n = d.p->b.qp->node;
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MW_2, .variant = 1, .pd = n->pd,
    };
    QrnicBindSeg bind = {
        .key = sim_mkey_ctx(n, &ctx), .lkey = d.b.key, .address = BASE + 100,
        .length = 50, .access = QRNIC_ACCESS_REMOTE_WRITE,
        .flags = QRNIC_MWF_ZERO_BASED,
    };
    SimWr wr = {
        .opcode = QRNIC_WQE_BIND_MW, .flags = QRNIC_WQEF_SIGNALED,
        .bind = &bind,
    };
    SimSge from = { BASE, 20, d.a.key };

    sim_post_send(d.p->b.qp, &wr);
    run(&d);
    expect_cqe(d.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_BIND_MW);
    request(&d, (SimWr) { .opcode = QRNIC_WQE_RDMA_WRITE, .sge = &from,
                          .num_sge = 1, .remote = 30, .rkey = bind.key });
    expect_cqe(d.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(d.b.region + 130, 20, d.a.region, 20);
    /* A window keeps its region busy, and a region its memory. */
    g_assert_cmpuint(qrnic_mkey_destroy(n->engine, d.b.key >> 8).status, ==,
                     QRNIC_ST_BUSY);
    g_assert_cmpuint(qrnic_dm_free(n->engine, d.b.number).status, ==,
                     QRNIC_ST_BUSY);
    g_assert_cmpuint(qrnic_mkey_destroy(n->engine, bind.key >> 8).status, ==,
                     QRNIC_ST_OK);
    g_assert_cmpuint(qrnic_mkey_destroy(n->engine, d.b.key >> 8).status, ==,
                     QRNIC_ST_OK);
    g_assert_cmpuint(qrnic_dm_free(n->engine, d.b.number).status, ==,
                     QRNIC_ST_OK);
    pair_free(d.p);
}

/*
 * Tests that an access one byte behind the region is rejected, although it is
 * inside the DM.
 */
static void test_range(void)
{
    Dm d = dm_new();
    SimSge from = { BASE, 2, d.a.key };

    request(&d, (SimWr) { .opcode = QRNIC_WQE_RDMA_WRITE, .sge = &from,
                          .num_sge = 1, .remote = BASE + REGION_LENGTH - 1,
                          .rkey = d.b.key });
    expect_status(d.p->a.qp, QRNIC_WC_REM_ACCESS_ERR);
    g_assert_true(buffer_is_zero(d.b.region - REGION_OFFSET, DM_LENGTH));
    pair_free(d.p);
}

/*
 * Tests that FREE_DM and a reset clear the memory, so that no process reads
 * another's data.
 */
static void test_zeroed(void)
{
    Dm d = dm_new();
    SimNode *n = d.p->a.qp->node;
    uint64_t offset, again;
    uint32_t number = dm_alloc(n, 5000, 0, &offset);

    memset(n->device_memory + offset, 0x55, 8192);
    g_assert_cmpuint(qrnic_dm_free(n->engine, number).status, ==, QRNIC_ST_OK);
    g_assert_true(buffer_is_zero(n->device_memory + offset, 8192));
    /* A write between FREE_DM and ALLOC_DM is invisible as well. */
    memset(n->device_memory + offset, 0x66, 8192);
    number = dm_alloc(n, 8192, 0, &again);
    g_assert_cmphex(again, ==, offset);
    g_assert_true(buffer_is_zero(n->device_memory + offset, 8192));
    memset(n->device_memory, 0x77, n->device_memory_size);
    pair_free(d.p);
}

static void test_reset(void)
{
    Sim *s = sim_new(5, NULL);
    SimNode *n = &s->node[0];
    uint64_t offset;
    uint32_t number = dm_alloc(n, 5000, 0, &offset);
    QrnicDmCtx ctx;

    memset(n->device_memory, 0x77, n->device_memory_size);
    qrnic_engine_reset(n->engine);
    g_assert_true(buffer_is_zero(n->device_memory, n->device_memory_size));
    g_assert_cmpuint(qrnic_dm_query(n->engine, number, &ctx).status, ==,
                     QRNIC_ST_BAD_OBJECT);
    dm_alloc(n, n->device_memory_size, 0, &offset);
    sim_free(s);
}

/* Returns the number of runs until all memory is clear. */
static unsigned runs_to_clear(SimNode *n)
{
    unsigned runs = 0;

    for (; qrnic_command_unfinished(n->engine); runs++) {
        g_assert_true(n->kicked);
        n->kicked = false;
        qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
    }
    g_assert_true(buffer_is_zero(n->device_memory, n->device_memory_size));
    return runs;
}

/* Tests that memory is cleared in steps of at most 1 MiB. */
static void test_pieces(void)
{
    const SimOptions o = { .device_memory = 16 << 20 };
    Sim *s = sim_new(5, &o);
    SimNode *n = &s->node[0];
    uint64_t offset;
    uint32_t number;

    g_assert_true(qrnic_engine_ready(n->engine));
    memset(n->device_memory, 0x77, n->device_memory_size);
    number = dm_alloc(n, n->device_memory_size, 0, &offset);
    g_assert_true(qrnic_engine_ready(n->engine));
    g_assert_cmphex(n->device_memory[1 << 20], ==, 0x77);
    g_assert_cmpuint(runs_to_clear(n), >=, 15);
    memset(n->device_memory, 0x66, n->device_memory_size);
    g_assert_cmpuint(qrnic_dm_free(n->engine, number).status, ==, QRNIC_ST_OK);
    g_assert_cmphex(n->device_memory[1 << 20], ==, 0x66);
    g_assert_cmpuint(runs_to_clear(n), >=, 15);
    memset(n->device_memory, 0x55, n->device_memory_size);
    qrnic_engine_reset(n->engine);
    g_assert_false(qrnic_engine_ready(n->engine));
    g_assert_cmphex(n->device_memory[1 << 20], ==, 0x55);
    qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
    /* A second reset starts again. */
    n->device_memory[0] = 1;
    qrnic_engine_reset(n->engine);
    g_assert_cmpuint(runs_to_clear(n), >=, 14);
    g_assert_true(qrnic_engine_ready(n->engine));
    sim_free(s);
}

static void test_alignment(void)
{
    Sim *s = sim_new(5, NULL);
    SimNode *n = &s->node[0];
    uint64_t offset;

    dm_alloc(n, 4, 2, &offset);
    g_assert_cmphex(offset, ==, 0);
    dm_alloc(n, 4, 14, &offset);
    g_assert_cmphex(offset, ==, 0x4000);
    /* This allocation is between the two others. */
    dm_alloc(n, 0x3000, 0, &offset);
    g_assert_cmphex(offset, ==, 0x1000);
    /* Only offset 0 has this alignment, and it is in use. */
    g_assert_cmpuint(qrnic_dm_alloc(n->engine, &(QrnicDmCtx) {
        .length = 1, .log_alignment = 63 }).status, ==, QRNIC_ST_NO_RESOURCE);
    sim_free(s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qrnic/device-memory/transfer", test_transfer);
    g_test_add_func("/qrnic/device-memory/atomic", test_atomic);
    g_test_add_func("/qrnic/device-memory/window", test_window);
    g_test_add_func("/qrnic/device-memory/range", test_range);
    g_test_add_func("/qrnic/device-memory/zeroed", test_zeroed);
    g_test_add_func("/qrnic/device-memory/reset", test_reset);
    g_test_add_func("/qrnic/device-memory/pieces", test_pieces);
    g_test_add_func("/qrnic/device-memory/alignment", test_alignment);
    return g_test_run();
}
