/*
 * Atomic writes and flushes: their effect, invalid requests, and exactly-once
 * execution with loss
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pair.h"

#define VALUE 0x1122334455667788ull

static void run(Pair *p)
{
    g_assert_true(sim_run(p->sim, INT64_MAX));
}

static uint32_t flush_key(PairEnd *end, uint8_t access)
{
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = access, .variant = 1,
        .pd = end->qp->node->pd, .start = end->addr, .length = PAIR_BYTES,
        .table.root = end->addr,
    };

    return sim_mkey_ctx(end->qp->node, &ctx);
}

static void post_write(Pair *p, uint64_t offset, uint64_t value)
{
    SimWr wr = {
        .opcode = QRNIC_WQE_ATOMIC_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .remote = p->b.addr + offset, .rkey = p->b.key, .swap_add = value,
    };

    sim_post_send(p->a.qp, &wr);
}

static void post_flush(Pair *p, uint32_t key, uint64_t remote,
                       uint32_t length, uint8_t type, uint8_t level)
{
    QrnicFlushSeg flush = { .length = length, .type = type, .level = level };
    SimWr wr = {
        .opcode = QRNIC_WQE_FLUSH, .flags = QRNIC_WQEF_SIGNALED,
        .remote = remote, .rkey = key, .flush = &flush,
    };

    sim_post_send(p->a.qp, &wr);
}

static void test_write(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    QrnicCqe c;

    pair_fill(p);
    post_write(p, 800, VALUE);
    run(p);
    c = expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_WRITE);
    g_assert_cmpuint(c.byte_len, ==, 8);
    g_assert_cmphex(ldq_le_p(p->b.data + 800), ==, VALUE);
    g_assert_cmpuint(sim_counter(p->a.qp->node,
                                 QRNIC_COUNTER_TX_ATOMIC_WRITE), ==, 1);
    g_assert_cmpuint(sim_counter(p->b.qp->node,
                                 QRNIC_COUNTER_RX_ATOMIC_WRITE), ==, 1);
    pair_free(p);
}

/*
 * Tests a flag that is written behind data. Whenever the flag is set, the data
 * is there.
 */
static void test_order(void)
{
    Pair *p = pair_new(4, NULL, NULL);

    pair_fill(p);
    p->sim->loss = 100;
    p->sim->reorder = 100;
    p->sim->repeat = 100;
    for (unsigned i = 1; i <= 200; i++) {
        stl_le_p(p->a.data + 4096, i);
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 4096, 0, 3000);
        post_write(p, 8192, i);
        while (ldq_le_p(p->b.data + 8192) != i) {
            if (sim_run(p->sim, p->sim->now + SIM_US)) {
                break;
            }
        }
        if (ldq_le_p(p->b.data + 8192) == i) {
            g_assert_cmpuint(ldl_le_p(p->b.data), ==, i);
        }
        run(p);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_WRITE);
        g_assert_cmpuint(ldq_le_p(p->b.data + 8192), ==, i);
    }
    /* Each request is executed once, in spite of repeated packets. */
    g_assert_cmpuint(sim_counter(p->b.qp->node,
                                 QRNIC_COUNTER_RX_ATOMIC_WRITE), ==, 200);
    g_assert_cmpuint(sim_counter(p->b.qp->node,
                                 QRNIC_COUNTER_DUPLICATE_REQUESTS), >, 0);
    pair_free(p);
}

static bool lose_response(Sim *s, unsigned from, const uint8_t *frame,
                          size_t len, void *opaque)
{
    unsigned *left = opaque;

    return from != 1 || !*left || !(*left)--;
}

/*
 * Tests a lost response, while the memory changes. The duplicate does not
 * change the memory again. Otherwise a lost response would undo later writes.
 */
static void test_once(void)
{
    Pair *p = pair_new(5, NULL, NULL);
    unsigned left = 1;

    p->sim->tap = lose_response;
    p->sim->tap_opaque = &left;
    post_write(p, 0, VALUE);
    while (!ldq_le_p(p->b.data)) {
        g_assert_false(sim_run(p->sim, p->sim->now + SIM_US));
    }
    stq_le_p(p->b.data, 7);
    run(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_WRITE);
    g_assert_cmpuint(left, ==, 0);
    g_assert_cmpuint(ldq_le_p(p->b.data), ==, 7);
    g_assert_cmpuint(sim_counter(p->b.qp->node,
                                 QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 1);
    pair_free(p);
}

static void test_flush(void)
{
    Pair *p = pair_new(6, NULL, NULL);
    uint32_t key = flush_key(&p->b, ACCESS_ALL | QRNIC_ACCESS_FLUSH_GLOBAL);
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_ACCESS_FLAGS,
        .access = QRNIC_ACCESS_REMOTE_WRITE | QRNIC_ACCESS_FLUSH_GLOBAL,
    };

    g_assert_cmpuint(sim_modify(p->b.qp, &attr).status, ==, QRNIC_ST_OK);
    pair_fill(p);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 10000);
    post_flush(p, key, p->b.addr, 10000, QRNIC_FLUSH_GLOBAL,
               QRNIC_FLUSH_RANGE);
    run(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_FLUSH);
    g_assert_cmpmem(p->a.data, 10000, p->b.data, 10000);
    /* A flush of the whole region ignores address and length. */
    post_flush(p, key, 1, UINT32_MAX, QRNIC_FLUSH_GLOBAL, QRNIC_FLUSH_MR);
    /* This flush has 0 bytes. */
    post_flush(p, key, p->b.addr, 0, QRNIC_FLUSH_GLOBAL, QRNIC_FLUSH_RANGE);
    run(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_FLUSH);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_FLUSH);
    g_assert_cmpuint(sim_counter(p->b.qp->node, QRNIC_COUNTER_RX_FLUSH), ==,
                     3);
    pair_free(p);
}

typedef struct Refused {
    const char *name;
    uint8_t qp_access, key_access, type, level;
    uint64_t offset;
    uint32_t length;
} Refused;

#define FLUSH_ACCESS (ACCESS_ALL | QRNIC_ACCESS_FLUSH_GLOBAL)
#define QP_ACCESS (QRNIC_ACCESS_REMOTE_WRITE | QRNIC_ACCESS_FLUSH_GLOBAL)
#define GLOBAL QRNIC_FLUSH_GLOBAL

static const Refused refused[] = {
    { "range", QP_ACCESS, FLUSH_ACCESS, GLOBAL, QRNIC_FLUSH_RANGE, 1,
      PAIR_BYTES },
    { "key-right", QP_ACCESS, ACCESS_ALL, GLOBAL, QRNIC_FLUSH_RANGE, 0, 1 },
    { "key-right-region", QP_ACCESS, ACCESS_ALL, GLOBAL, QRNIC_FLUSH_MR, 0,
      1 },
    { "qp-right", QRNIC_ACCESS_REMOTE_WRITE, FLUSH_ACCESS, GLOBAL,
      QRNIC_FLUSH_RANGE, 0, 1 },
    { "persistent", QP_ACCESS, FLUSH_ACCESS, QRNIC_FLUSH_PERSISTENT,
      QRNIC_FLUSH_RANGE, 0, 1 },
    { "both", QP_ACCESS, FLUSH_ACCESS, GLOBAL | QRNIC_FLUSH_PERSISTENT,
      QRNIC_FLUSH_RANGE, 0, 1 },
};

static void test_flush_refused(const void *opaque)
{
    const Refused *f = opaque;
    Pair *p = pair_new(7, NULL, NULL);
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_ACCESS_FLAGS, .access = f->qp_access,
    };

    g_assert_cmpuint(sim_modify(p->b.qp, &attr).status, ==, QRNIC_ST_OK);
    post_flush(p, flush_key(&p->b, f->key_access), p->b.addr + f->offset,
               f->length, f->type, f->level);
    run(p);
    expect_status(p->a.qp, QRNIC_WC_REM_ACCESS_ERR);
    expect_event(p->b.qp->node, QRNIC_EVENT_QP_ACCESS_ERROR,
                 p->b.qp->number);
    pair_free(p);
}

static void test_misaligned(void)
{
    Pair *p = pair_new(8, NULL, NULL);

    post_write(p, 4, VALUE);
    run(p);
    expect_status(p->a.qp, QRNIC_WC_REM_INV_REQ_ERR);
    g_assert_cmphex(ldq_le_p(p->b.data + 4), ==, 0);
    pair_free(p);
}

/*
 * Responses of flushes and atomic writes count like those of reads, against the
 * agreed depth.
 */
static void test_depth(void)
{
    SimConnect c = sim_connect_default();
    Pair *p;

    c.rd_atomic = c.max_dest_rd_atomic = 1;
    p = pair_new(9, NULL, &c);
    for (unsigned i = 0; i < 20; i++) {
        post_write(p, 8 * i, i + 1);
    }
    run(p);
    for (unsigned i = 0; i < 20; i++) {
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_WRITE);
        g_assert_cmpuint(ldq_le_p(p->b.data + 8 * i), ==, i + 1);
    }
    pair_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qrnic/atomic-write/value", test_write);
    g_test_add_func("/qrnic/atomic-write/order", test_order);
    g_test_add_func("/qrnic/atomic-write/once", test_once);
    g_test_add_func("/qrnic/atomic-write/misaligned", test_misaligned);
    g_test_add_func("/qrnic/atomic-write/depth", test_depth);
    g_test_add_func("/qrnic/flush/levels", test_flush);
    for (unsigned i = 0; i < ARRAY_SIZE(refused); i++) {
        g_autofree char *name = g_strdup_printf("/qrnic/flush/refused/%s",
                                                refused[i].name);

        g_test_add_data_func(name, &refused[i], test_flush_refused);
    }
    return g_test_run();
}
