/*
 * Keys that queue pairs create and invalidate: memory windows of both types,
 * fast registration, local and remote invalidation. Also keys that commands
 * replace, and null regions.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/cutils.h"
#include "pair.h"

#define RIGHTS (QRNIC_ACCESS_REMOTE_WRITE | QRNIC_ACCESS_REMOTE_READ | \
                QRNIC_ACCESS_REMOTE_ATOMIC)
#define BASE 0x700000001000ull  /* Address of the region */

/* Side b owns the keys; side a uses them remotely. */
typedef struct Keys {
    Pair *p;
    uint32_t region;            /* All of b's memory, for windows */
} Keys;

static void run(Keys *k)
{
    g_assert_true(sim_run(k->p->sim, INT64_MAX));
}

static Keys keys_new(void)
{
    Keys k = { .p = pair_new(23, NULL, NULL) };
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = ACCESS_ALL | QRNIC_ACCESS_MW_BIND,
        .variant = 1, .pd = k.p->b.qp->node->pd, .start = BASE,
        .length = PAIR_BYTES, .table.root = k.p->b.addr,
    };

    k.region = sim_mkey_ctx(k.p->b.qp->node, &ctx);
    pair_fill(k.p);
    return k;
}

static uint32_t key_new(PairEnd *end, uint8_t type, uint64_t length)
{
    QrnicMkeyCtx ctx = {
        .type = type, .variant = 7, .pd = end->qp->node->pd, .length = length,
    };

    return sim_mkey_ctx(end->qp->node, &ctx);
}

static uint8_t key_destroy(PairEnd *end, uint32_t key)
{
    return qrnic_mkey_destroy(end->qp->node->engine, key >> 8).status;
}

static void local(SimQp *q, uint8_t opcode, uint8_t flags, uint32_t imm,
                  const QrnicBindSeg *bind, const QrnicRegSeg *reg)
{
    SimWr wr = {
        .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED | flags, .imm = imm,
        .bind = bind, .reg = reg,
    };

    sim_post_send(q, &wr);
}

static void post_bind(SimQp *q, const QrnicBindSeg *b)
{
    local(q, QRNIC_WQE_BIND_MW, 0, 0, b, NULL);
}

/* Posts a write or read of len bytes, at an address of the key. */
static void access_key(Keys *k, uint8_t opcode, uint32_t key, uint64_t remote,
                       uint32_t len)
{
    SimSge sge = { k->p->a.addr, len, k->p->a.key };
    SimWr wr = {
        .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = 1, .remote = remote, .rkey = key,
    };

    sim_post_send(k->p->a.qp, &wr);
    run(k);
}

/*
 * Asserts that a write succeeds and that the bytes are at this offset of b's
 * memory.
 */
static void writes(Keys *k, uint32_t key, uint64_t remote, uint64_t offset)
{
    access_key(k, QRNIC_WQE_RDMA_WRITE, key, remote, 100);
    expect_cqe(k->p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(k->p->b.data + offset, 100, k->p->a.data, 100);
    /* The next call sends different data. */
    k->p->a.data[0]++;
}

static void refused(Keys *k, uint8_t opcode, uint32_t key, uint64_t remote,
                    uint32_t len)
{
    access_key(k, opcode, key, remote, len);
    expect_status(k->p->a.qp, QRNIC_WC_REM_ACCESS_ERR);
    pair_free(k->p);
}

/* Asserts that the WQE completes with an error and the queue pair is in ERR. */
static void fails(Keys *k, uint8_t syndrome)
{
    QrnicCqe c;

    run(k);
    c = expect_status(k->p->b.qp, QRNIC_WC_MW_BIND_ERR);
    g_assert_cmpstr(qrnic_syndrome_name(c.syndrome), ==,
                    qrnic_syndrome_name(syndrome));
    expect_state(k->p->b.qp, QRNIC_QPS_ERR);
    pair_free(k->p);
}

static void bound(Keys *k, const QrnicBindSeg *b)
{
    post_bind(k->p->b.qp, b);
    run(k);
    expect_cqe(k->p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_BIND_MW);
}

static QrnicBindSeg window(Keys *k, uint32_t key)
{
    return (QrnicBindSeg) {
        .key = key, .lkey = k->region, .address = BASE + 4000, .length = 5000,
        .access = RIGHTS,
    };
}

/* Windows */

static void test_window_1(void)
{
    Keys k = keys_new();
    uint32_t mw = key_new(&k.p->b, QRNIC_MKEY_MW_1, 0);
    QrnicBindSeg b = window(&k, mw + 1);

    bound(&k, &b);
    writes(&k, b.key, BASE + 4000, 4000);
    writes(&k, b.key, BASE + 8900, 8900);
    g_assert_cmpint(key_destroy(&k.p->b, k.region), ==, QRNIC_ST_BUSY);
    /* Bound to another range, with another variant; the data can be read. */
    b.key++;
    b.address = BASE;
    b.length = 100;
    b.flags = QRNIC_MWF_ZERO_BASED;
    bound(&k, &b);
    writes(&k, b.key, 0, 0);
    access_key(&k, QRNIC_WQE_RDMA_READ, b.key, 40, 20);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(k.p->a.data, 20, k.p->b.data + 40, 20);
    /* Unbound, so the region is free again. */
    b = (QrnicBindSeg) { .key = b.key + 1 };
    bound(&k, &b);
    g_assert_cmpint(sim_counter(k.p->b.qp->node, QRNIC_COUNTER_MW_BINDS), ==,
                    2);
    g_assert_cmpint(key_destroy(&k.p->b, k.region), ==, QRNIC_ST_OK);
    refused(&k, QRNIC_WQE_RDMA_WRITE, b.key, 0, 1);
}

static void test_window_stale(void)
{
    Keys k = keys_new();
    uint32_t mw = key_new(&k.p->b, QRNIC_MKEY_MW_1, 0);
    QrnicBindSeg b = window(&k, mw + 1);

    bound(&k, &b);
    refused(&k, QRNIC_WQE_RDMA_WRITE, mw, BASE + 4000, 1);
}

static void test_window_unbound(void)
{
    Keys k = keys_new();

    refused(&k, QRNIC_WQE_RDMA_READ, key_new(&k.p->b, QRNIC_MKEY_MW_2, 0), 0,
            1);
}

static void test_window_range(void)
{
    Keys k = keys_new();
    QrnicBindSeg b = window(&k, key_new(&k.p->b, QRNIC_MKEY_MW_1, 0));

    bound(&k, &b);
    refused(&k, QRNIC_WQE_RDMA_WRITE, b.key, BASE + 8999, 2);
}

/*
 * Tests that an access fails if the region has the right and the window does
 * not.
 */
static void test_window_access(void)
{
    Keys k = keys_new();
    QrnicBindSeg b = window(&k, key_new(&k.p->b, QRNIC_MKEY_MW_1, 0));

    b.access = QRNIC_ACCESS_REMOTE_READ;
    bound(&k, &b);
    access_key(&k, QRNIC_WQE_RDMA_READ, b.key, BASE + 4000, 20);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    refused(&k, QRNIC_WQE_RDMA_WRITE, b.key, BASE + 4000, 1);
}

/*
 * Tests that a window is never a local key, because local accesses use the
 * region's key.
 */
static void test_window_local(void)
{
    Keys k = keys_new();
    QrnicBindSeg b = window(&k, key_new(&k.p->b, QRNIC_MKEY_MW_1, 0));
    SimSge sge = { BASE + 4000, 10, b.key };
    SimWr wr = { .opcode = QRNIC_WQE_SEND, .sge = &sge, .num_sge = 1 };
    QrnicCqe c;

    bound(&k, &b);
    sim_post_send(k.p->b.qp, &wr);
    run(&k);
    c = expect_status(k.p->b.qp, QRNIC_WC_LOC_PROT_ERR);
    g_assert_cmpint(c.syndrome, ==, QRNIC_SYN_KEY_TYPE);
    pair_free(k.p);
}

/* Atomics access the memory behind the window. */
static void test_window_atomic(void)
{
    Keys k = keys_new();
    QrnicBindSeg b = window(&k, key_new(&k.p->b, QRNIC_MKEY_MW_2, 0));
    uint64_t before = ldq_le_p(k.p->b.data + 4000 + 16);
    SimSge sge = { k.p->a.addr, 8, k.p->a.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_ATOMIC_FETCH_ADD, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = 16, .rkey = b.key, .swap_add = 5,
    };

    b.flags = QRNIC_MWF_ZERO_BASED;
    bound(&k, &b);
    sim_post_send(k.p->a.qp, &wr);
    run(&k);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
    g_assert_cmphex(ldq_le_p(k.p->b.data + 4016), ==, before + 5);
    g_assert_cmphex(ldq_le_p(k.p->a.data), ==, before);
    pair_free(k.p);
}

/*
 * Tests a type 2 window that is invalidated, locally or by the peer, before it
 * is bound again.
 */
static void test_window_2(void)
{
    Keys k = keys_new();
    uint32_t mw = key_new(&k.p->b, QRNIC_MKEY_MW_2, 0);
    QrnicBindSeg b = window(&k, mw + 1);

    bound(&k, &b);
    writes(&k, b.key, BASE + 4000, 4000);
    local(k.p->b.qp, QRNIC_WQE_LOCAL_INV, 0, b.key, NULL, NULL);
    b.key++;
    post_bind(k.p->b.qp, &b);
    run(&k);
    expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_LOCAL_INV);
    expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_BIND_MW);
    writes(&k, b.key, BASE + 4000, 4000);
    post_bind(k.p->b.qp, &b);
    fails(&k, QRNIC_SYN_KEY_BOUND);
}

/*
 * Tests that a type 2 window belongs to its queue pair: no other can use it,
 * not even after DESTROY_QP. Otherwise another connection could use it.
 */
static void test_window_2_qp(void)
{
    Keys k = keys_new();
    SimQp *other = sim_qp_new(k.p->b.qp->node, 4, 1, 0, 4);
    SimQp *far = sim_qp_new(k.p->a.qp->node, 4, 1, 0, 4);
    uint32_t mw = key_new(&k.p->b, QRNIC_MKEY_MW_2, 0);
    QrnicBindSeg b = window(&k, mw);
    QrnicMkeyCtx ctx;

    sim_connect(far, other, NULL);
    post_bind(other, &b);
    run(&k);
    expect_cqe(other, QRNIC_WC_SUCCESS, QRNIC_CQE_BIND_MW);
    g_assert_cmpint(key_destroy(&k.p->b, k.region), ==, QRNIC_ST_BUSY);
    access_key(&k, QRNIC_WQE_RDMA_WRITE, b.key, BASE + 4000, 1);
    expect_status(k.p->a.qp, QRNIC_WC_REM_ACCESS_ERR);
    sim_qp_free(other);
    qrnic_mkey_query(k.p->b.qp->node->engine, mw >> 8, &ctx);
    g_assert_cmpint(ctx.length, ==, 0);
    g_assert_cmpint(key_destroy(&k.p->b, k.region), ==, QRNIC_ST_OK);
    sim_qp_free(far);
    pair_free(k.p);
}

static void test_window_2_other_invalidates(void)
{
    Keys k = keys_new();
    SimQp *other = sim_qp_new(k.p->b.qp->node, 4, 1, 0, 4);
    SimQp *far = sim_qp_new(k.p->a.qp->node, 4, 1, 0, 4);
    QrnicBindSeg b = window(&k, key_new(&k.p->b, QRNIC_MKEY_MW_2, 0));

    sim_connect(far, other, NULL);
    post_bind(other, &b);
    run(&k);
    expect_cqe(other, QRNIC_WC_SUCCESS, QRNIC_CQE_BIND_MW);
    local(k.p->b.qp, QRNIC_WQE_LOCAL_INV, 0, b.key, NULL, NULL);
    run(&k);
    sim_qp_free(far);
    sim_qp_free(other);
    fails(&k, QRNIC_SYN_KEY_QP);
}

/* Asserts that a bind with an invalid argument fails. */
static void bind_fails(void (*spoil)(Keys *k, QrnicBindSeg *b),
                       uint8_t syndrome)
{
    Keys k = keys_new();
    QrnicBindSeg b = window(&k, key_new(&k.p->b, QRNIC_MKEY_MW_2, 0));

    spoil(&k, &b);
    post_bind(k.p->b.qp, &b);
    fails(&k, syndrome);
}

static void spoil_key(Keys *k, QrnicBindSeg *b)
{
    b->key = 1000 << 8;
}

static void spoil_key_type(Keys *k, QrnicBindSeg *b)
{
    b->key = k->p->b.key;
}

static void spoil_region(Keys *k, QrnicBindSeg *b)
{
    b->lkey++;
}

static void spoil_region_type(Keys *k, QrnicBindSeg *b)
{
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_DMA, .access = ACCESS_ALL, .length = UINT64_MAX,
        .pd = k->p->b.qp->node->pd,
    };

    b->lkey = sim_mkey_ctx(k->p->b.qp->node, &ctx);
}

static void spoil_pd(Keys *k, QrnicBindSeg *b)
{
    SimNode *n = k->p->b.qp->node;
    uint32_t pd = n->pd;

    n->pd = qrnic_pd_alloc(n->engine).value;
    b->key = key_new(&k->p->b, QRNIC_MKEY_MW_2, 0);
    n->pd = pd;
}

static void spoil_range(Keys *k, QrnicBindSeg *b)
{
    b->length = PAIR_BYTES - 3999;
}

static void spoil_empty(Keys *k, QrnicBindSeg *b)
{
    /* A type 2 window is unbound by invalidation only */
    b->length = 0;
}

/* The region of every pair does not allow windows. */
static void spoil_no_bind(Keys *k, QrnicBindSeg *b)
{
    b->lkey = k->p->b.key;
    b->address = k->p->b.addr;
}

static void spoil_local_right(Keys *k, QrnicBindSeg *b)
{
    b->access |= QRNIC_ACCESS_LOCAL_WRITE;
}

static void spoil_read_only(Keys *k, QrnicBindSeg *b)
{
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = QRNIC_ACCESS_MW_BIND,
        .pd = k->p->b.qp->node->pd, .start = BASE, .length = PAIR_BYTES,
        .table.root = k->p->b.addr,
    };

    b->lkey = sim_mkey_ctx(k->p->b.qp->node, &ctx);
}

static void test_bind_refused(void)
{
    bind_fails(spoil_key, QRNIC_SYN_KEY_INVALID);
    bind_fails(spoil_key_type, QRNIC_SYN_KEY_TYPE);
    bind_fails(spoil_region, QRNIC_SYN_KEY_INVALID);
    bind_fails(spoil_region_type, QRNIC_SYN_KEY_TYPE);
    bind_fails(spoil_pd, QRNIC_SYN_KEY_INVALID);
    bind_fails(spoil_range, QRNIC_SYN_KEY_RANGE);
    bind_fails(spoil_empty, QRNIC_SYN_KEY_RANGE);
    bind_fails(spoil_no_bind, QRNIC_SYN_KEY_ACCESS);
    bind_fails(spoil_local_right, QRNIC_SYN_KEY_ACCESS);
    bind_fails(spoil_read_only, QRNIC_SYN_KEY_ACCESS);
}

/*
 * Tests that an error over an unreliable connection stops only the send queue.
 */
static void test_window_unreliable(void)
{
    Keys k = keys_new();
    SimQp *a = sim_uc_new(k.p->a.qp->node, NULL);
    SimQp *b = sim_uc_new(k.p->b.qp->node, NULL);
    SimQp *far = k.p->a.qp, *near = k.p->b.qp;
    QrnicBindSeg seg = window(&k, key_new(&k.p->b, QRNIC_MKEY_MW_2, 0));

    sim_uc_connect(a, b);
    k.p->a.qp = a;
    k.p->b.qp = b;
    bound(&k, &seg);
    writes(&k, seg.key, BASE + 4000, 4000);
    local(b, QRNIC_WQE_LOCAL_INV, 0, seg.key, NULL, NULL);
    run(&k);
    expect_cqe(b, QRNIC_WC_SUCCESS, QRNIC_CQE_LOCAL_INV);
    local(b, QRNIC_WQE_LOCAL_INV, 0, seg.key, NULL, NULL);
    run(&k);
    g_assert_cmpint(expect_status(b, QRNIC_WC_MW_BIND_ERR).syndrome, ==,
                    QRNIC_SYN_KEY_BOUND);
    expect_state(b, QRNIC_QPS_SQE);
    writes(&k, k.region, BASE, 0);
    sim_qp_free(far);
    sim_qp_free(near);
    pair_free(k.p);
}

/* Fast registration */

/*
 * Returns a registration of four pages of b's memory in reverse order, from the
 * middle of the first.
 */
static QrnicRegSeg registration(Keys *k, uint32_t key)
{
    SimNode *n = k->p->b.qp->node;
    uint64_t list = sim_alloc(n, 64);

    for (int i = 0; i < 4; i++) {
        stq_le_p(n->memory + list + 8 * i, k->p->b.addr + (7 - i) * 4096);
    }
    return (QrnicRegSeg) {
        .key = key, .access = ACCESS_ALL, .start = 0x5000, .length = 10000,
        .table = {
            .root = list, .levels = 1, .page_shift = 12, .offset = 2048,
        },
    };
}

static void registered(Keys *k, const QrnicRegSeg *r)
{
    local(k->p->b.qp, QRNIC_WQE_REG_MR, 0, 0, NULL, r);
    run(k);
    expect_cqe(k->p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_MR);
}

static void test_fast_reg(void)
{
    Keys k = keys_new();
    uint32_t key = key_new(&k.p->b, QRNIC_MKEY_FAST_REG, 16384);
    QrnicRegSeg r = registration(&k, key + 1);
    QrnicMkeyCtx ctx;

    registered(&k, &r);
    writes(&k, r.key, 0x5000, 7 * 4096 + 2048);
    writes(&k, r.key, 0x5000 + 2048 + 4096, 5 * 4096);
    /* The window is used as a local key. */
    sim_post_recv(k.p->b.qp, &(SimSge) { 0x5000, 100, r.key }, 1);
    post(&k.p->a, &k.p->b, QRNIC_WQE_SEND, 0, 0, 100);
    run(&k);
    expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    g_assert_cmpmem(k.p->b.data + 7 * 4096 + 2048, 100, k.p->a.data, 100);
    /*
     * The registration is repeated in one chain, with the same list and other
     * pages in it.
     */
    stq_le_p(k.p->b.qp->node->memory + r.table.root, k.p->b.addr + 4096 * 20);
    local(k.p->b.qp, QRNIC_WQE_LOCAL_INV, 0, r.key, NULL, NULL);
    r.key++;
    local(k.p->b.qp, QRNIC_WQE_REG_MR, 0, 0, NULL, &r);
    run(&k);
    expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_LOCAL_INV);
    expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_MR);
    writes(&k, r.key, 0x5000, 20 * 4096 + 2048);
    qrnic_mkey_query(k.p->b.qp->node->engine, r.key >> 8, &ctx);
    g_assert_cmphex(ctx.start, ==, 0x5000);
    g_assert_cmpint(ctx.variant, ==, r.key & 0xff);
    local(k.p->b.qp, QRNIC_WQE_LOCAL_INV, 0, r.key, NULL, NULL);
    run(&k);
    qrnic_mkey_query(k.p->b.qp->node->engine, r.key >> 8, &ctx);
    g_assert_cmpint(ctx.length, ==, 16384);
    g_assert_cmpint(ctx.access, ==, 0);
    refused(&k, QRNIC_WQE_RDMA_WRITE, r.key, 0x5000, 1);
}

static void reg_fails(void (*spoil)(Keys *k, QrnicRegSeg *r), uint8_t syndrome)
{
    Keys k = keys_new();
    uint32_t key = key_new(&k.p->b, QRNIC_MKEY_FAST_REG, 16384);
    QrnicRegSeg r = registration(&k, key);

    spoil(&k, &r);
    local(k.p->b.qp, QRNIC_WQE_REG_MR, 0, 0, NULL, &r);
    fails(&k, syndrome);
}

static void reg_type(Keys *k, QrnicRegSeg *r)
{
    r->key = k->region;
}

static void reg_long(Keys *k, QrnicRegSeg *r)
{
    r->length = 16385;
}

static void reg_empty(Keys *k, QrnicRegSeg *r)
{
    r->length = 0;
}

static void reg_levels(Keys *k, QrnicRegSeg *r)
{
    r->table.levels = 2;
}

static void reg_list(Keys *k, QrnicRegSeg *r)
{
    r->table.root = k->p->b.qp->node->memory_size;
}

static void reg_bind(Keys *k, QrnicRegSeg *r)
{
    r->access |= QRNIC_ACCESS_MW_BIND;
}

static void reg_write(Keys *k, QrnicRegSeg *r)
{
    r->access = QRNIC_ACCESS_REMOTE_WRITE;
}

static void reg_twice(Keys *k, QrnicRegSeg *r)
{
    registered(k, r);
}

static void test_reg_refused(void)
{
    reg_fails(reg_type, QRNIC_SYN_KEY_TYPE);
    reg_fails(reg_long, QRNIC_SYN_KEY_RANGE);
    reg_fails(reg_empty, QRNIC_SYN_KEY_RANGE);
    reg_fails(reg_levels, QRNIC_SYN_KEY_RANGE);
    reg_fails(reg_list, QRNIC_SYN_DMA);
    reg_fails(reg_bind, QRNIC_SYN_KEY_ACCESS);
    reg_fails(reg_write, QRNIC_SYN_KEY_ACCESS);
    reg_fails(reg_twice, QRNIC_SYN_KEY_BOUND);
}

/* Invalidation */

static void invalidate_fails(uint32_t (*key)(Keys *k), uint8_t syndrome)
{
    Keys k = keys_new();

    local(k.p->b.qp, QRNIC_WQE_LOCAL_INV, 0, key(&k), NULL, NULL);
    fails(&k, syndrome);
}

static uint32_t key_of_region(Keys *k)
{
    return k->region;
}

static uint32_t key_of_nothing(Keys *k)
{
    return 1000 << 8;
}

static uint32_t key_unregistered(Keys *k)
{
    return key_new(&k->p->b, QRNIC_MKEY_FAST_REG, 4096);
}

static uint32_t key_window_1(Keys *k)
{
    QrnicBindSeg b = window(k, key_new(&k->p->b, QRNIC_MKEY_MW_1, 0));

    bound(k, &b);
    return b.key;
}

static uint32_t key_stale(Keys *k)
{
    QrnicRegSeg r = registration(k, key_new(&k->p->b, QRNIC_MKEY_FAST_REG,
                                            16384) + 1);

    registered(k, &r);
    return r.key - 1;
}

static void test_invalidate_refused(void)
{
    invalidate_fails(key_of_region, QRNIC_SYN_KEY_TYPE);
    invalidate_fails(key_of_nothing, QRNIC_SYN_KEY_INVALID);
    invalidate_fails(key_unregistered, QRNIC_SYN_KEY_BOUND);
    invalidate_fails(key_window_1, QRNIC_SYN_KEY_TYPE);
    invalidate_fails(key_stale, QRNIC_SYN_KEY_INVALID);
}

static void send_inv(Keys *k, uint32_t key, uint32_t len)
{
    SimSge sge = { k->p->a.addr, len, k->p->a.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND_INV, .flags = QRNIC_WQEF_SIGNALED,
        .imm = key, .sge = &sge, .num_sge = len != 0,
    };

    post_recv(&k->p->b, 0, 8192);
    sim_post_send(k->p->a.qp, &wr);
    run(k);
}

/*
 * Tests messages of one packet and of several: the key is invalidated, and the
 * receiver is notified.
 */
static void test_send_inv(void)
{
    Keys k = keys_new();
    QrnicRegSeg r = registration(&k, key_new(&k.p->b, QRNIC_MKEY_FAST_REG,
                                             16384));

    for (int i = 0; i < 2; i++) {
        QrnicCqe c;

        registered(&k, &r);
        send_inv(&k, r.key, i ? 5000 : 8);
        c = expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
        g_assert_cmpint(c.flags, ==, QRNIC_CQEF_INV);
        g_assert_cmphex(c.imm, ==, r.key);
        g_assert_cmpint(c.byte_len, ==, i ? 5000 : 8);
        expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        r.key = (r.key & ~0xff) | 0x80;
    }
    g_assert_cmpint(sim_counter(k.p->b.qp->node,
                                QRNIC_COUNTER_REMOTE_INVALIDATIONS), ==, 2);
    refused(&k, QRNIC_WQE_RDMA_WRITE, r.key, 0x5000, 1);
}

/*
 * Asserts that an invalidation fails if the data arrived, but the sender may
 * not invalidate this key.
 */
static void send_inv_refused(uint32_t (*key)(Keys *k), uint8_t syndrome)
{
    Keys k = keys_new();
    QrnicCqe c;

    send_inv(&k, key(&k), 100);
    /* Class J (9.9.6.3): there is no NAK, and nothing is acknowledged. */
    expect_status(k.p->a.qp, QRNIC_WC_RETRY_EXC_ERR);
    g_assert_cmpint(sim_counter(k.p->b.qp->node, QRNIC_COUNTER_TX_NAK_ERROR),
                    ==, 0);
    c = expect_status(k.p->b.qp, QRNIC_WC_MW_BIND_ERR);
    g_assert_cmphex(c.opcode & 0x80, ==, 0x80);
    g_assert_cmpstr(qrnic_syndrome_name(c.syndrome), ==,
                    qrnic_syndrome_name(syndrome));
    expect_state(k.p->b.qp, QRNIC_QPS_ERR);
    pair_free(k.p);
}

static uint32_t key_local_only(Keys *k)
{
    QrnicRegSeg r = registration(k, key_new(&k->p->b, QRNIC_MKEY_FAST_REG,
                                            16384));

    r.access = QRNIC_ACCESS_LOCAL_WRITE;
    registered(k, &r);
    return r.key;
}

static void test_send_inv_refused(void)
{
    send_inv_refused(key_of_region, QRNIC_SYN_KEY_TYPE);
    send_inv_refused(key_of_nothing, QRNIC_SYN_KEY_INVALID);
    send_inv_refused(key_window_1, QRNIC_SYN_KEY_TYPE);
    send_inv_refused(key_unregistered, QRNIC_SYN_KEY_BOUND);
    send_inv_refused(key_local_only, QRNIC_SYN_KEY_ACCESS);
}

/*
 * Order: operations between reads wait for the reads only with a fence. Each is
 * executed once, in spite of retransmissions around it.
 */

static bool lose_some(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                      void *opaque)
{
    unsigned *count = opaque;

    return ++*count % 5 != 0;
}

static void test_once(void)
{
    Keys k = keys_new();
    QrnicRegSeg r = registration(&k, key_new(&k.p->b, QRNIC_MKEY_FAST_REG,
                                             16384));
    unsigned count = 0;

    k.p->sim->tap = lose_some;
    k.p->sim->tap_opaque = &count;
    for (int i = 0; i < 30; i++) {
        post(&k.p->b, &k.p->a, QRNIC_WQE_RDMA_WRITE, 0, 0, 3000);
        local(k.p->b.qp, QRNIC_WQE_REG_MR, 0, 0, NULL, &r);
        post(&k.p->b, &k.p->a, QRNIC_WQE_RDMA_READ, 0, 0, 3000);
        local(k.p->b.qp, QRNIC_WQE_LOCAL_INV, QRNIC_WQEF_FENCE, r.key, NULL,
              NULL);
        r.key = (r.key & ~0xff) | ((r.key + 1) & 0xff);
    }
    run(&k);
    for (int i = 0; i < 30; i++) {
        expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_MR);
        expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
        expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_LOCAL_INV);
    }
    g_assert_cmpint(sim_counter(k.p->b.qp->node,
                                QRNIC_COUNTER_RETRANSMISSIONS), >, 0);
    g_assert_cmpint(sim_counter(k.p->b.qp->node,
                                QRNIC_COUNTER_FAST_REGISTRATIONS), ==, 30);
    g_assert_cmpint(sim_counter(k.p->b.qp->node,
                                QRNIC_COUNTER_LOCAL_INVALIDATIONS), ==, 30);
    pair_free(k.p);
}

/*
 * Executes a read that scatters through the key that is invalidated behind it.
 */
static void fence(bool fenced)
{
    Keys k = keys_new();
    QrnicRegSeg r = registration(&k, key_new(&k.p->b, QRNIC_MKEY_FAST_REG,
                                             16384));
    SimSge sge = { 0x5000, 4000, r.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_READ, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = k.p->a.addr, .rkey = k.p->a.key,
    };

    registered(&k, &r);
    sim_post_send(k.p->b.qp, &wr);
    local(k.p->b.qp, QRNIC_WQE_LOCAL_INV, fenced ? QRNIC_WQEF_FENCE : 0, r.key,
          NULL, NULL);
    run(&k);
    if (fenced) {
        expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
        expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_LOCAL_INV);
        g_assert_cmpmem(k.p->b.data + 7 * 4096 + 2048, 2048, k.p->a.data,
                        2048);
    } else {
        expect_status(k.p->b.qp, QRNIC_WC_LOC_PROT_ERR);
    }
    pair_free(k.p);
}

static void test_fence(void)
{
    fence(true);
    fence(false);
}

/* Commands */

static void test_modify(void)
{
    Keys k = keys_new();
    QrnicEngine *e = k.p->b.qp->node->engine;
    QrnicBindSeg b = window(&k, key_new(&k.p->b, QRNIC_MKEY_MW_1, 0));
    uint32_t pd = qrnic_pd_alloc(e).value, index = k.region >> 8;
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = ACCESS_ALL, .variant = 9, .pd = pd,
        .start = 0x100, .length = 4096, .table.root = k.p->b.addr + 65536,
    }, bad;
    QrnicResult res;

    bound(&k, &b);
    g_assert_cmpint(qrnic_mkey_modify(e, index, &ctx).status, ==,
                    QRNIC_ST_BUSY);
    b = (QrnicBindSeg) { .key = b.key };
    bound(&k, &b);
    bad = ctx;
    bad.type = QRNIC_MKEY_FAST_REG;
    res = qrnic_mkey_modify(e, index, &bad);
    g_assert_cmpint(res.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(res.syndrome, ==, QRNIC_MKEY_CTX_TYPE_OFFSET);
    bad = ctx;
    bad.table.levels = 7;
    g_assert_cmpint(qrnic_mkey_modify(e, index, &bad).status, ==,
                    QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(qrnic_mkey_modify(e, b.key >> 8, &ctx).status, ==,
                    QRNIC_ST_BAD_STATE);
    g_assert_cmpint(qrnic_mkey_modify(e, 1000, &ctx).status, ==,
                    QRNIC_ST_BAD_OBJECT);
    /* The key is unchanged. */
    writes(&k, k.region, BASE + 10, 10);
    g_assert_cmpint(qrnic_mkey_modify(e, index, &ctx).status, ==, QRNIC_ST_OK);
    g_assert_cmpint(qrnic_pd_free(e, pd).status, ==, QRNIC_ST_BUSY);
    ctx.pd = k.p->b.qp->node->pd;
    g_assert_cmpint(qrnic_mkey_modify(e, index, &ctx).status, ==, QRNIC_ST_OK);
    g_assert_cmpint(qrnic_pd_free(e, pd).status, ==, QRNIC_ST_OK);
    writes(&k, index << 8 | 9, 0x100 + 50, 65536 + 50);
    refused(&k, QRNIC_WQE_RDMA_WRITE, k.region, BASE, 1);
}

/* Tests that a null region returns zeros and ignores writes, at any address. */
static void test_null(void)
{
    Keys k = keys_new();
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_NULL_MR, .variant = 3, .pd = k.p->b.qp->node->pd,
        .access = QRNIC_ACCESS_LOCAL_WRITE,
    };
    uint32_t key = sim_mkey_ctx(k.p->b.qp->node, &ctx);
    g_autofree uint8_t *before = g_memdup2(k.p->b.data, PAIR_BYTES);
    SimSge sge[2] = {
        { UINT64_MAX - 99, 100, key }, { k.p->b.addr + 500, 50, k.p->b.key },
    };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .sge = sge,
        .num_sge = 2,
    };

    post_recv(&k.p->a, 0, 1000);
    sim_post_send(k.p->b.qp, &wr);
    run(&k);
    expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_true(buffer_is_zero(k.p->a.data, 100));
    g_assert_cmpmem(k.p->a.data + 100, 50, k.p->b.data + 500, 50);
    memset(k.p->a.data, 0x77, 150);
    sim_post_recv(k.p->b.qp, sge, 2);
    post(&k.p->a, &k.p->b, QRNIC_WQE_SEND, 0, 0, 150);
    run(&k);
    expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    memset(before + 500, 0x77, 50);
    g_assert_cmpmem(k.p->b.data, PAIR_BYTES, before, PAIR_BYTES);
    refused(&k, QRNIC_WQE_RDMA_READ, key, 0, 1);
}

static void create_refused(Keys *k, QrnicMkeyCtx ctx, uint32_t offset)
{
    QrnicResult r;

    ctx.pd = k->p->b.qp->node->pd;
    r = qrnic_mkey_create(k->p->b.qp->node->engine, &ctx);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(r.syndrome, ==, offset);
}

static void test_create_refused(void)
{
    static const uint8_t types[] = {
        QRNIC_MKEY_FAST_REG, QRNIC_MKEY_MW_1, QRNIC_MKEY_MW_2,
        QRNIC_MKEY_NULL_MR,
    };
    Keys k = keys_new();

    for (unsigned i = 0; i < ARRAY_SIZE(types); i++) {
        QrnicMkeyCtx good = {
            .type = types[i], .length = types[i] == QRNIC_MKEY_FAST_REG,
        };
        QrnicMkeyCtx c = good;

        c.access = QRNIC_ACCESS_REMOTE_READ;
        create_refused(&k, c, QRNIC_MKEY_CTX_ACCESS_OFFSET);
        c = good;
        c.start = 1;
        create_refused(&k, c, QRNIC_MKEY_CTX_START_OFFSET);
        c = good;
        c.length ^= 1;
        create_refused(&k, c, QRNIC_MKEY_CTX_LENGTH_OFFSET);
        c = good;
        c.table.root = 4096;
        create_refused(&k, c, QRNIC_MKEY_CTX_TABLE_OFFSET);
    }
    create_refused(&k, (QrnicMkeyCtx) { .type = 0 },
                   QRNIC_MKEY_CTX_TYPE_OFFSET);
    create_refused(&k, (QrnicMkeyCtx) { .type = QRNIC_MKEY_INDIRECT + 1 },
                   QRNIC_MKEY_CTX_TYPE_OFFSET);
    pair_free(k.p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/window/type-1", test_window_1);
    g_test_add_func("/window/stale", test_window_stale);
    g_test_add_func("/window/unbound", test_window_unbound);
    g_test_add_func("/window/range", test_window_range);
    g_test_add_func("/window/access", test_window_access);
    g_test_add_func("/window/local", test_window_local);
    g_test_add_func("/window/atomic", test_window_atomic);
    g_test_add_func("/window/type-2", test_window_2);
    g_test_add_func("/window/type-2-qp", test_window_2_qp);
    g_test_add_func("/window/type-2-other-invalidates",
                    test_window_2_other_invalidates);
    g_test_add_func("/window/unreliable", test_window_unreliable);
    g_test_add_func("/window/bind-refused", test_bind_refused);
    g_test_add_func("/fast-reg/chain", test_fast_reg);
    g_test_add_func("/fast-reg/refused", test_reg_refused);
    g_test_add_func("/invalidate/refused", test_invalidate_refused);
    g_test_add_func("/invalidate/send", test_send_inv);
    g_test_add_func("/invalidate/send-refused", test_send_inv_refused);
    g_test_add_func("/invalidate/once", test_once);
    g_test_add_func("/invalidate/fence", test_fence);
    g_test_add_func("/key/modify", test_modify);
    g_test_add_func("/key/null", test_null);
    g_test_add_func("/key/create-refused", test_create_refused);
    return g_test_run();
}
