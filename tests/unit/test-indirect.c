/*
 * Indirect keys, made of pieces of other keys, in up to MAX_KEY_DEPTH levels.
 * The test keeps a map of each key from each byte to a byte of memory, and
 * compares the device's accesses with the map.
 *
 * QRNIC_SEED=n runs only that seed of the random traffic.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/memory/memory.h"
#include "pair.h"

#define RIGHTS ACCESS_ALL
#define BASE 0x700000000000ull  /* Address of b's memory for users of its key */
#define MOST_BYTES 40000u
#define NOWHERE UINT32_MAX      /* Belongs to a null region */

/* Side b owns the keys. All its memory is one region, at BASE. */
typedef struct Keys {
    Pair *p;
    uint32_t region;
} Keys;

/* An indirect key of side b, and the map of its bytes to b's memory */
typedef struct Made {
    uint32_t key;
    uint64_t start;
    uint32_t length;
    uint32_t *map;
} Made;

static void run(const Keys *k)
{
    g_assert_true(sim_run(k->p->sim, INT64_MAX));
}

static uint32_t region_new(const Keys *k, uint8_t access)
{
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = access, .variant = 1,
        .pd = k->p->b.qp->node->pd, .start = BASE, .length = PAIR_BYTES,
        .table.root = k->p->b.addr,
    };

    return sim_mkey_ctx(k->p->b.qp->node, &ctx);
}

static Keys keys_new(uint32_t seed)
{
    Keys k = { .p = pair_new(seed, NULL, NULL) };

    /*
     * The region has no remote rights, because indirect keys give rights of
     * their own.
     */
    k.region = region_new(&k, QRNIC_ACCESS_LOCAL_WRITE);
    pair_fill(k.p);
    return k;
}

static QrnicMkeyCtx indirect_ctx(const Keys *k, uint32_t max_pieces)
{
    return (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_INDIRECT, .variant = 7, .max_pieces = max_pieces,
        .pd = k->p->b.qp->node->pd,
    };
}

static uint32_t key_new(const Keys *k, uint32_t max_pieces)
{
    QrnicMkeyCtx ctx = indirect_ctx(k, max_pieces);

    return sim_mkey_ctx(k->p->b.qp->node, &ctx);
}

static uint8_t key_destroy(const Keys *k, uint32_t key)
{
    return qrnic_mkey_destroy(k->p->b.qp->node->engine, key >> 8).status;
}

static uint64_t counter(const Keys *k, enum qrnic_counter c)
{
    return sim_counter(k->p->b.qp->node, c);
}

/* Posts a registration, with the list in memory or in the WQE. */
static void post_register(const Keys *k, SimQp *q, const QrnicIndirectSeg *s,
                          const QrnicPiece *piece, unsigned count)
{
    unsigned bytes = count * QRNIC_PIECE_BYTES;
    g_autofree uint8_t *list = g_malloc0(bytes + 1);
    SimSge sge = { .length = bytes };
    SimWr wr = {
        .opcode = QRNIC_WQE_REG_INDIRECT, .flags = QRNIC_WQEF_SIGNALED,
        .indirect = s,
    };

    for (unsigned i = 0; i < count; i++) {
        qrnic_piece_pack(list + i * QRNIC_PIECE_BYTES, &piece[i]);
    }
    if (bytes <= QRNIC_MAX_INLINE && g_rand_boolean(k->p->sim->rand)) {
        wr.inline_data = list;
        wr.inline_length = bytes;
    } else {
        sge.addr = sim_alloc(q->node, bytes);
        sge.key = sim_mkey(q->node, sge.addr, bytes, 0);
        memcpy(q->node->memory + sge.addr, list, bytes);
        wr.sge = &sge;
        wr.num_sge = count != 0;
    }
    sim_post_send(q, &wr);
}

static void registered(const Keys *k, const QrnicIndirectSeg *s,
                       const QrnicPiece *piece, unsigned count)
{
    post_register(k, k->p->b.qp, s, piece, count);
    run(k);
    expect_cqe(k->p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_INDIRECT);
}

static void post_invalidate(SimQp *q, uint32_t key)
{
    SimWr wr = {
        .opcode = QRNIC_WQE_LOCAL_INV, .flags = QRNIC_WQEF_SIGNALED,
        .imm = key,
    };

    sim_post_send(q, &wr);
}

/* Posts a write or read of side a, at an address of the key. */
static void access_key(const Keys *k, uint8_t opcode, uint32_t key,
                       uint64_t remote, uint32_t len)
{
    SimSge sge = { k->p->a.addr, len, k->p->a.key };
    SimWr wr = {
        .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = 1, .remote = remote, .rkey = key,
    };

    sim_post_send(k->p->a.qp, &wr);
    run(k);
}

static void writes(const Keys *k, uint32_t key, uint64_t remote, uint32_t len)
{
    access_key(k, QRNIC_WQE_RDMA_WRITE, key, remote, len);
    expect_cqe(k->p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
}

static void refused(const Keys *k, uint8_t opcode, uint32_t key,
                    uint64_t remote, uint32_t len)
{
    access_key(k, opcode, key, remote, len);
    expect_status(k->p->a.qp, QRNIC_WC_REM_ACCESS_ERR);
    pair_free(k->p);
}

static void expect_syndrome(SimQp *q, uint8_t status, uint8_t syndrome)
{
    QrnicCqe c = expect_status(q, status);

    g_assert_cmpstr(qrnic_syndrome_name(c.syndrome), ==,
                    qrnic_syndrome_name(syndrome));
}

/* Asserts that a send of side b from the key fails. */
static void local_fails(const Keys *k, uint32_t key, uint64_t addr,
                        uint32_t len, uint8_t syndrome)
{
    SimSge sge = { addr, len, key };
    SimWr wr = { .opcode = QRNIC_WQE_SEND, .sge = &sge, .num_sge = 1 };
    uint64_t reports = counter(k, QRNIC_COUNTER_GE_PIECE_REFUSED);

    sim_post_send(k->p->b.qp, &wr);
    run(k);
    expect_syndrome(k->p->b.qp, QRNIC_WC_LOC_PROT_ERR, syndrome);
    g_assert_cmpuint(counter(k, QRNIC_COUNTER_GE_PIECE_REFUSED), >=,
                     reports + (syndrome >= QRNIC_SYN_CHILD_INVALID));
    pair_free(k->p);
}

static QrnicPiece piece(const Keys *k, uint64_t offset, uint64_t length,
                        uint64_t stride)
{
    return (QrnicPiece) {
        .key = k->region, .address = BASE + offset, .length = length,
        .stride = stride,
    };
}

static QrnicIndirectSeg segment(uint32_t key, uint64_t start, uint32_t repeat)
{
    return (QrnicIndirectSeg) {
        .key = key, .access = RIGHTS, .start = start, .repeat = repeat,
    };
}

/* Layouts */

static void test_joined(void)
{
    Keys k = keys_new(1);
    QrnicPiece p[] = {
        piece(&k, 5000, 100, 0), piece(&k, 9000, 1, 0), piece(&k, 20, 4000, 0),
    };
    QrnicIndirectSeg s = segment(key_new(&k, 3) + 1, 0x1234567, 1);
    const uint8_t *a = k.p->a.data, *b = k.p->b.data;

    registered(&k, &s, p, ARRAY_SIZE(p));
    g_assert_cmpuint(counter(&k, QRNIC_COUNTER_INDIRECT_REGISTRATIONS), ==, 1);
    writes(&k, s.key, s.start, 4101);
    g_assert_cmpmem(a, 100, b + 5000, 100);
    g_assert_cmpmem(a + 100, 1, b + 9000, 1);
    g_assert_cmpmem(a + 101, 4000, b + 20, 4000);
    /* Packets of 1024 bytes: the first covers three pieces. */
    g_assert_cmpuint(counter(&k, QRNIC_COUNTER_PIECES), ==, 3 + 4);
    /* The peer reads from the middle of the key. */
    access_key(&k, QRNIC_WQE_RDMA_READ, s.key, s.start + 99, 50);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(a, 1, b + 5099, 1);
    g_assert_cmpmem(a + 1, 1, b + 9000, 1);
    g_assert_cmpmem(a + 2, 48, b + 20, 48);
    refused(&k, QRNIC_WQE_RDMA_WRITE, s.key, s.start + 1, 4101);
}

/*
 * Tests a column of a matrix of 64 x 64 that is sent, and received into a row.
 */
static void test_strided(void)
{
    Keys k = keys_new(2);
    QrnicPiece p = piece(&k, 8 * 5, 8, 8 * 64);
    QrnicIndirectSeg s = segment(key_new(&k, 1), 0, 64);
    SimSge sge = { 0, 8 * 64, s.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = 1,
    };

    registered(&k, &s, &p, 1);
    post_recv(&k.p->a, 4096, 8 * 64);
    sim_post_send(k.p->b.qp, &wr);
    run(&k);
    expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    for (unsigned i = 0; i < 64; i++) {
        g_assert_cmpmem(k.p->a.data + 4096 + 8 * i, 8,
                        k.p->b.data + 8 * (64 * i + 5), 8);
    }
    g_assert_cmpuint(counter(&k, QRNIC_COUNTER_PIECES), ==, 64);
    pair_free(k.p);
}

/* Keys of rows over keys of columns: sequential data arrives transposed. */
static void test_transposed(void)
{
    enum { N = 32 };
    Keys k = keys_new(3);
    QrnicPiece column = piece(&k, 0, 8, 8 * N);
    QrnicIndirectSeg c = segment(key_new(&k, 1), 0, N);
    QrnicPiece rows[N];
    QrnicIndirectSeg t = segment(key_new(&k, N), 0, 1);

    registered(&k, &c, &column, 1);
    /*
     * The column key covers column 0 only, and ends behind it. The other
     * columns therefore have keys of their own.
     */
    for (unsigned i = 0; i < N; i++) {
        QrnicPiece p = piece(&k, 8 * i, 8, 8 * N);
        QrnicIndirectSeg s = segment(key_new(&k, 1), 0, N);

        registered(&k, &s, &p, 1);
        rows[i] = (QrnicPiece) { .key = s.key, .length = 8 * N };
    }
    registered(&k, &t, rows, N);
    writes(&k, t.key, 0, 8 * N * N);
    for (unsigned i = 0; i < N * N; i++) {
        g_assert_cmpmem(k.p->a.data + 8 * i, 8,
                        k.p->b.data + 8 * (i % N * N + i / N), 8);
    }
    pair_free(k.p);
}

/* Records of 12 bytes from three arrays, the last one backwards */
static void test_interleaved(void)
{
    Keys k = keys_new(4);
    QrnicPiece p[] = {
        piece(&k, 0, 4, 4), piece(&k, 10000, 6, 6), piece(&k, 20000, 2, -2),
    };
    QrnicIndirectSeg s = segment(key_new(&k, 8), UINT64_MAX - 12 * 100, 100);

    registered(&k, &s, p, ARRAY_SIZE(p));
    writes(&k, s.key, s.start, 12 * 100);
    for (unsigned i = 0; i < 100; i++) {
        const uint8_t *record = k.p->a.data + 12 * i;

        g_assert_cmpmem(record, 4, k.p->b.data + 4 * i, 4);
        g_assert_cmpmem(record + 4, 6, k.p->b.data + 10000 + 6 * i, 6);
        g_assert_cmpmem(record + 10, 2, k.p->b.data + 20000 - 2 * i, 2);
    }
    pair_free(k.p);
}

/*
 * Tests that a null region skips bytes, and that device memory works like other
 * memory.
 */
static void test_kinds(void)
{
    Keys k = keys_new(5);
    SimNode *n = k.p->b.qp->node;
    QrnicDmCtx dm = { .length = 4096 };
    QrnicMkeyCtx null = {
        .type = QRNIC_MKEY_NULL_MR, .access = QRNIC_ACCESS_LOCAL_WRITE,
        .pd = n->pd,
    };
    QrnicMkeyCtx region = {
        .type = QRNIC_MKEY_DM, .access = QRNIC_ACCESS_LOCAL_WRITE,
        .pd = n->pd, .length = 4096,
    };
    QrnicIndirectSeg s = segment(key_new(&k, 3), 0, 1);
    QrnicPiece p[3] = { { .length = 100 }, { .length = 100 } };

    region.dm = qrnic_dm_alloc(n->engine, &dm).value;
    p[0].key = sim_mkey_ctx(n, &null);
    p[1].key = sim_mkey_ctx(n, &region);
    p[2] = piece(&k, 0, 100, 0);
    registered(&k, &s, p, 3);
    writes(&k, s.key, 0, 300);
    g_assert_cmpmem(k.p->a.data + 100, 100, n->device_memory, 100);
    g_assert_cmpmem(k.p->a.data + 200, 100, k.p->b.data, 100);
    access_key(&k, QRNIC_WQE_RDMA_READ, s.key, 50, 100);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    for (unsigned i = 0; i < 50; i++) {
        g_assert_cmpint(k.p->a.data[i], ==, 0);
    }
    g_assert_cmpmem(k.p->a.data + 50, 50, n->device_memory, 50);
    pair_free(k.p);
}

/* Datagrams from pieces into pieces of a shared receive queue */
static void test_datagram(void)
{
    Keys k = keys_new(6);
    SimNode *n = k.p->b.qp->node;
    SimSrq *srq = sim_srq_new(n, 4, 0);
    SimQp *q = sim_datagram_new(n, QRNIC_QPT_UD, srq, 5);
    QrnicDatagramSeg to = sim_datagram_to(q, 5);
    QrnicPiece from_piece = piece(&k, 0, 10, 100);
    QrnicPiece to_piece = piece(&k, 50, 20, 100);
    QrnicIndirectSeg from = segment(key_new(&k, 1), 0, 60);
    QrnicIndirectSeg into = segment(key_new(&k, 1), 1000, 32);
    SimSge send = { 0, 600, from.key }, recv = { 1000, 640, into.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED,
        .datagram = &to, .sge = &send, .num_sge = 1,
    };
    QrnicCqe c;

    registered(&k, &from, &from_piece, 1);
    registered(&k, &into, &to_piece, 1);
    sim_post_srq(srq, &recv, 1);
    sim_post_send(q, &wr);
    run(&k);
    g_assert_true(sim_poll(q, &c));
    g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
    c = expect_cqe(q, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmpint(c.byte_len, ==, 640);
    /* The payload begins after the 40 bytes of the GRH. */
    for (unsigned i = 0; i < 600; i++) {
        unsigned at = i + QRNIC_GRH_SIZE;

        g_assert_cmpint(k.p->b.data[50 + at / 20 * 100 + at % 20], ==,
                        k.p->b.data[i / 10 * 100 + i % 10]);
    }
    sim_qp_free(q);
    sim_srq_free(srq);
    pair_free(k.p);
}

/* Lifetime */

static void test_invalidate(void)
{
    Keys k = keys_new(10);
    QrnicPiece p = piece(&k, 0, 100, 0);
    QrnicIndirectSeg s = segment(key_new(&k, 1), 0, 1);
    SimWr inv = {
        .opcode = QRNIC_WQE_SEND_INV, .flags = QRNIC_WQEF_SIGNALED,
    };
    QrnicMkeyCtx ctx;

    registered(&k, &s, &p, 1);
    qrnic_mkey_query(k.p->b.qp->node->engine, s.key >> 8, &ctx);
    g_assert_cmpuint(ctx.length, ==, 100);
    g_assert_cmpuint(ctx.max_pieces, ==, 1);
    writes(&k, s.key, 0, 100);
    /*
     * A local invalidation is followed at once by a new registration with
     * another variant.
     */
    post_invalidate(k.p->b.qp, s.key);
    s.key++;
    p.address += 1000;
    post_register(&k, k.p->b.qp, &s, &p, 1);
    run(&k);
    expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_LOCAL_INV);
    expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_INDIRECT);
    k.p->a.data[0]++;
    writes(&k, s.key, 0, 100);
    g_assert_cmpmem(k.p->a.data, 100, k.p->b.data + 1000, 100);
    /* The peer invalidates the key. */
    inv.imm = s.key;
    post_recv(&k.p->b, 0, 100);
    sim_post_send(k.p->a.qp, &inv);
    run(&k);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_cqe(k.p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmpuint(counter(&k, QRNIC_COUNTER_REMOTE_INVALIDATIONS), ==, 1);
    qrnic_mkey_query(k.p->b.qp->node->engine, s.key >> 8, &ctx);
    g_assert_cmpuint(ctx.length | ctx.access | ctx.start, ==, 0);
    refused(&k, QRNIC_WQE_RDMA_READ, s.key, 0, 1);
}

static void test_stale(void)
{
    Keys k = keys_new(11);
    QrnicPiece p = piece(&k, 0, 100, 0);
    QrnicIndirectSeg s = segment(key_new(&k, 1), 0, 1);

    registered(&k, &s, &p, 1);
    post_invalidate(k.p->b.qp, s.key);
    s.key++;
    post_register(&k, k.p->b.qp, &s, &p, 1);
    run(&k);
    refused(&k, QRNIC_WQE_RDMA_WRITE, s.key - 1, 0, 1);
}

/*
 * Tests that the peer may not invalidate a key that it may not access, because
 * that would end accesses of others.
 */
static void test_invalidate_no_right(void)
{
    Keys k = keys_new(12);
    QrnicPiece p = piece(&k, 0, 100, 0);
    QrnicIndirectSeg s = segment(key_new(&k, 1), 0, 1);
    SimWr inv = { .opcode = QRNIC_WQE_SEND_INV, .imm = s.key };

    s.access = QRNIC_ACCESS_LOCAL_WRITE;
    registered(&k, &s, &p, 1);
    post_recv(&k.p->b, 0, 100);
    sim_post_send(k.p->a.qp, &inv);
    run(&k);
    expect_syndrome(k.p->b.qp, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_KEY_ACCESS);
    pair_free(k.p);
}

/*
 * The key is invalidated between packets of a message. Nothing is written after
 * that, and the peer receives a NAK.
 */
static bool invalidate_at_fourth(Sim *s, unsigned from, const uint8_t *frame,
                                 size_t len, void *opaque)
{
    Keys *k = opaque;
    QrnicPacket p;

    if (from == 0 && sim_parse(&p, frame, len) == QRNIC_PARSE_OK &&
        p.info->flags & QRNIC_OPF_WRITE && k->region) {
        if (p.t.psn % 4 == 3) {
            qrnic_mkey_destroy(s->node[1].engine, k->region >> 8);
            k->region = 0;
        }
    }
    return true;
}

static void test_in_the_middle(void)
{
    Keys k = keys_new(13);
    QrnicPiece p = piece(&k, 0, 1024, 1024);
    QrnicIndirectSeg s = segment(key_new(&k, 1), 0, 16);
    g_autofree uint8_t *before = g_memdup2(k.p->b.data, 16384);

    registered(&k, &s, &p, 1);
    k.p->sim->tap = invalidate_at_fourth;
    k.p->sim->tap_opaque = &k;
    access_key(&k, QRNIC_WQE_RDMA_WRITE, s.key, 0, 16384);
    expect_status(k.p->a.qp, QRNIC_WC_REM_ACCESS_ERR);
    g_assert_cmpuint(k.region, ==, 0);
    /* The packets before the fourth were written. */
    g_assert_cmpmem(k.p->b.data + 4096, 12288, before + 4096, 12288);
    pair_free(k.p);
}

/* Tests that the list can be in several pieces, and in an indirect key. */
static void test_list_by_pieces(void)
{
    Keys k = keys_new(14);
    PairEnd *b = &k.p->b;
    QrnicPiece halves = piece(&k, 0, 16, 64);
    QrnicPiece target[] = { piece(&k, 5000, 10, 0), piece(&k, 6000, 10, 0) };
    QrnicIndirectSeg l = segment(key_new(&k, 1), 0, 4);
    QrnicIndirectSeg s = segment(key_new(&k, 2), 0, 1);
    uint8_t list[2 * QRNIC_PIECE_BYTES];
    SimSge sge = { 0, sizeof(list), l.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_REG_INDIRECT, .flags = QRNIC_WQEF_SIGNALED,
        .indirect = &s, .sge = &sge, .num_sge = 1,
    };

    registered(&k, &l, &halves, 1);
    qrnic_piece_pack(list, &target[0]);
    qrnic_piece_pack(list + QRNIC_PIECE_BYTES, &target[1]);
    for (unsigned i = 0; i < 4; i++) {
        memcpy(b->data + 64 * i, list + 16 * i, 16);
    }
    sim_post_send(b->qp, &wr);
    run(&k);
    expect_cqe(b->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_INDIRECT);
    writes(&k, s.key, 0, 20);
    g_assert_cmpmem(k.p->a.data, 10, b->data + 5000, 10);
    g_assert_cmpmem(k.p->a.data + 10, 10, b->data + 6000, 10);
    pair_free(k.p);
}

/*
 * Tests a key over an unreliable connection, where an error stops only the send
 * queue.
 */
static void test_uc(void)
{
    Keys k = keys_new(15);
    SimQp *q = sim_uc_new(k.p->b.qp->node, NULL);
    SimQp *far = sim_uc_new(k.p->a.qp->node, NULL);
    QrnicPiece p = piece(&k, 0, 100, 200);
    QrnicIndirectSeg s = segment(key_new(&k, 1), 0, 30);
    SimSge sge = { 0, 3000, s.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = k.p->a.addr,
        .rkey = k.p->a.key,
    };

    sim_uc_connect(q, far);
    post_register(&k, q, &s, &p, 1);
    sim_post_send(q, &wr);
    run(&k);
    expect_cqe(q, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_INDIRECT);
    expect_cqe(q, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    for (unsigned i = 0; i < 30; i++) {
        g_assert_cmpmem(k.p->a.data + 100 * i, 100, k.p->b.data + 200 * i,
                        100);
    }
    post_register(&k, q, &s, &p, 1);
    run(&k);
    expect_syndrome(q, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_KEY_BOUND);
    expect_state(q, QRNIC_QPS_SQE);
    sim_qp_free(far);
    sim_qp_free(q);
    pair_free(k.p);
}

/*
 * Tests that freed keys return their entries, and that a reset frees the rest.
 * Otherwise a process could exhaust the device.
 */
static void test_room(void)
{
    Keys k = keys_new(16);
    SimNode *n = k.p->b.qp->node;
    const unsigned most = QRNIC_MAX_ALL_PIECES / QRNIC_MAX_PIECES;
    QrnicMkeyCtx full = indirect_ctx(&k, QRNIC_MAX_PIECES);
    QrnicMkeyCtx one = indirect_ctx(&k, 1);
    QrnicPiece p = piece(&k, 0, 1, 0);
    SimOptions o = { .max_mkey = 2 * most };
    Pair *other = pair_new(16, &o, NULL);
    uint32_t index[2] = { 0 };
    QrnicIndirectSeg s;

    pair_free(k.p);
    k.p = other;
    n = other->b.qp->node;
    k.region = region_new(&k, 0);
    full.pd = one.pd = n->pd;
    for (unsigned i = 0; i < most; i++) {
        index[i % 2] = qrnic_mkey_create(n->engine, &full).value;
        g_assert_cmpuint(index[i % 2], !=, 0);
    }
    g_assert_cmpint(qrnic_mkey_create(n->engine, &one).status, ==,
                    QRNIC_ST_NO_RESOURCE);
    g_assert_cmpint(key_destroy(&k, index[0] << 8), ==, QRNIC_ST_OK);
    g_assert_cmpint(qrnic_mkey_create(n->engine, &one).status, ==,
                    QRNIC_ST_OK);
    s = segment(index[1] << 8, 0, 1);
    s.access = 0;
    registered(&k, &s, &p, 1);
    g_assert_cmpint(qrnic_mkey_create(n->engine, &full).status, ==,
                    QRNIC_ST_NO_RESOURCE);
    pair_free(other);
}

/* Rules of the registration */

typedef struct Spoiled {
    QrnicIndirectSeg s;
    QrnicPiece p[4];
    unsigned count;
} Spoiled;

static void registration_fails(void (*spoil)(Keys *k, Spoiled *t),
                               uint8_t syndrome)
{
    Keys k = keys_new(20);
    QrnicIndirectSeg good = segment(key_new(&k, 3), 0, 2);
    Spoiled t = { .s = good, .count = 3 };
    QrnicMkeyCtx before, after;
    QrnicEngine *e = k.p->b.qp->node->engine;

    for (unsigned i = 0; i < ARRAY_SIZE(t.p); i++) {
        t.p[i] = piece(&k, 1000 * i, 100, 0);
    }
    spoil(&k, &t);
    qrnic_mkey_query(e, good.key >> 8, &before);
    post_register(&k, k.p->b.qp, &t.s, t.p, t.count);
    run(&k);
    expect_syndrome(k.p->b.qp, QRNIC_WC_MW_BIND_ERR, syndrome);
    expect_state(k.p->b.qp, QRNIC_QPS_ERR);
    g_assert_cmpuint(counter(&k, QRNIC_COUNTER_GE_KEY_REFUSED), ==, 1);
    qrnic_mkey_query(e, good.key >> 8, &after);
    g_assert_cmpmem(&before, sizeof(before), &after, sizeof(after));
    pair_free(k.p);
}

static void spoil_index(Keys *k, Spoiled *t)
{
    t->s.key = 1000 << 8;
}

static void spoil_pd(Keys *k, Spoiled *t)
{
    QrnicMkeyCtx ctx = indirect_ctx(k, 3);

    ctx.pd = qrnic_pd_alloc(k->p->b.qp->node->engine).value;
    t->s.key = sim_mkey_ctx(k->p->b.qp->node, &ctx);
}

static void spoil_type(Keys *k, Spoiled *t)
{
    t->s.key = k->region;
}

static void spoil_valid(Keys *k, Spoiled *t)
{
    registered(k, &t->s, t->p, 1);
}

static void spoil_bind(Keys *k, Spoiled *t)
{
    t->s.access |= QRNIC_ACCESS_MW_BIND;
}

static void spoil_flush(Keys *k, Spoiled *t)
{
    t->s.access |= QRNIC_ACCESS_FLUSH_GLOBAL;
}

static void spoil_rights(Keys *k, Spoiled *t)
{
    t->s.access = QRNIC_ACCESS_REMOTE_WRITE;
}

static void spoil_atomic(Keys *k, Spoiled *t)
{
    t->s.access = QRNIC_ACCESS_REMOTE_ATOMIC;
}

static void spoil_too_many(Keys *k, Spoiled *t)
{
    t->count = 4;
}

static void spoil_none(Keys *k, Spoiled *t)
{
    t->count = 0;
}

static void spoil_repeat(Keys *k, Spoiled *t)
{
    t->s.repeat = 0;
}

static void spoil_empty(Keys *k, Spoiled *t)
{
    t->p[2].length = 0;
}

static void spoil_long(Keys *k, Spoiled *t)
{
    t->p[1].length = QRNIC_MAX_MR_SIZE - 100;
}

static void spoil_long_repeated(Keys *k, Spoiled *t)
{
    t->s.repeat = UINT32_MAX;
    t->p[0].length = QRNIC_MAX_MR_SIZE >> 32;
}

static void spoil_wrap(Keys *k, Spoiled *t)
{
    t->s.start = UINT64_MAX - 598;
}

static void test_rules(void)
{
    registration_fails(spoil_index, QRNIC_SYN_KEY_INVALID);
    registration_fails(spoil_pd, QRNIC_SYN_KEY_INVALID);
    registration_fails(spoil_type, QRNIC_SYN_KEY_TYPE);
    registration_fails(spoil_valid, QRNIC_SYN_KEY_BOUND);
    registration_fails(spoil_bind, QRNIC_SYN_KEY_ACCESS);
    registration_fails(spoil_flush, QRNIC_SYN_KEY_ACCESS);
    registration_fails(spoil_rights, QRNIC_SYN_KEY_ACCESS);
    registration_fails(spoil_atomic, QRNIC_SYN_KEY_ACCESS);
    registration_fails(spoil_too_many, QRNIC_SYN_PIECES);
    registration_fails(spoil_none, QRNIC_SYN_PIECES);
    registration_fails(spoil_repeat, QRNIC_SYN_PIECES);
    registration_fails(spoil_empty, QRNIC_SYN_PIECES);
    registration_fails(spoil_long, QRNIC_SYN_KEY_RANGE);
    registration_fails(spoil_long_repeated, QRNIC_SYN_KEY_RANGE);
    registration_fails(spoil_wrap, QRNIC_SYN_KEY_RANGE);
}

/* Tests the longest key, whose last byte has the highest address. */
static void test_limits(void)
{
    Keys k = keys_new(21);
    QrnicPiece p = piece(&k, 0, 1, 0);
    QrnicIndirectSeg s = segment(key_new(&k, 1), UINT64_MAX - UINT32_MAX + 1,
                                 UINT32_MAX);

    registered(&k, &s, &p, 1);
    writes(&k, s.key, UINT64_MAX, 1);
    g_assert_cmpint(k.p->b.data[0], ==, k.p->a.data[0]);
    refused(&k, QRNIC_WQE_RDMA_WRITE, s.key, s.start - 1, 1);
}

static void test_create_refused(void)
{
    Keys k = keys_new(22);
    QrnicEngine *e = k.p->b.qp->node->engine;
    QrnicMkeyCtx ctx = indirect_ctx(&k, 0);
    QrnicResult r;

    r = qrnic_mkey_create(e, &ctx);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpuint(r.syndrome, ==, QRNIC_MKEY_CTX_MAX_PIECES_OFFSET);
    ctx.max_pieces = QRNIC_MAX_PIECES + 1;
    g_assert_cmpint(qrnic_mkey_create(e, &ctx).status, ==,
                    QRNIC_ST_BAD_PARAM);
    ctx = indirect_ctx(&k, 1);
    ctx.length = 1;
    g_assert_cmpint(qrnic_mkey_create(e, &ctx).status, ==,
                    QRNIC_ST_BAD_PARAM);
    ctx = indirect_ctx(&k, 1);
    ctx.access = QRNIC_ACCESS_LOCAL_WRITE;
    g_assert_cmpint(qrnic_mkey_create(e, &ctx).status, ==,
                    QRNIC_ST_BAD_PARAM);
    ctx = (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MW_2, .pd = ctx.pd, .max_pieces = 1,
    };
    g_assert_cmpint(qrnic_mkey_create(e, &ctx).status, ==,
                    QRNIC_ST_BAD_PARAM);
    pair_free(k.p);
}

/* The check at each level */

/* Makes count levels of keys, one over another. The last one is over key. */
static uint32_t tower(const Keys *k, uint32_t key, uint64_t address,
                      unsigned count)
{
    while (count--) {
        QrnicPiece p = { .key = key, .address = address, .length = 64 };
        QrnicIndirectSeg s = segment(key_new(k, 1), 0, 1);

        registered(k, &s, &p, 1);
        key = s.key;
        address = 0;
    }
    return key;
}

static void test_depth(void)
{
    Keys k = keys_new(30);
    uint32_t top = tower(&k, k.region, BASE, QRNIC_MAX_KEY_DEPTH);

    writes(&k, top, 0, 64);
    g_assert_cmpmem(k.p->a.data, 64, k.p->b.data, 64);
    local_fails(&k, tower(&k, top, 0, 1), 0, 64, QRNIC_SYN_KEY_DEPTH);
}

/*
 * Tests an indirect key of another PD that would be too deep. The CQE has the
 * same syndrome as for a key that does not exist.
 */
static void test_depth_other_pd(void)
{
    Keys k = keys_new(30);
    QrnicEngine *e = k.p->b.qp->node->engine;
    uint32_t deepest = tower(&k, k.region, BASE, 1);
    uint32_t top = tower(&k, deepest, 0, QRNIC_MAX_KEY_DEPTH);

    qrnic_mkey_get(e, deepest >> 8)->ctx.pd = qrnic_pd_alloc(e).value;
    local_fails(&k, top, 0, 64, QRNIC_SYN_CHILD_INVALID);
}

static void test_cycle(void)
{
    for (unsigned length = 1; length <= 3; length++) {
        Keys k = keys_new(31);
        uint32_t first = key_new(&k, 1);
        QrnicPiece p = { .length = 64 };
        QrnicIndirectSeg s = segment(first, 0, 1);

        p.key = tower(&k, first, 0, length - 1);
        registered(&k, &s, &p, 1);
        local_fails(&k, first, 0, 64, QRNIC_SYN_KEY_CYCLE);
    }
}

/*
 * Tests that an index that was used again since is another key, so it makes no
 * cycle.
 */
static void test_own_past(void)
{
    Keys k = keys_new(31);
    uint32_t first = key_new(&k, 1);
    QrnicPiece p = { .key = first, .length = 64 };
    QrnicIndirectSeg s = segment(first + 1, 0, 1);

    registered(&k, &s, &p, 1);
    local_fails(&k, s.key, 0, 64, QRNIC_SYN_CHILD_INVALID);
}

/* Makes a key for a piece. */
typedef uint32_t (*Child)(Keys *k);

static uint32_t child_gone(Keys *k)
{
    uint32_t key = region_new(k, 0);

    g_assert_cmpint(key_destroy(k, key), ==, QRNIC_ST_OK);
    return key;
}

static uint32_t child_variant(Keys *k)
{
    return k->region + 1;
}

static uint32_t child_unregistered(Keys *k)
{
    return key_new(k, 1);
}

static uint32_t child_pd(Keys *k)
{
    SimNode *n = k->p->b.qp->node;
    uint32_t pd = n->pd, key;

    n->pd = qrnic_pd_alloc(n->engine).value;
    key = region_new(k, ACCESS_ALL);
    n->pd = pd;
    return key;
}

static uint32_t child_window(Keys *k)
{
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MW_1, .variant = 3, .pd = k->p->b.qp->node->pd,
    };
    QrnicBindSeg b = {
        .lkey = region_new(k, ACCESS_ALL | QRNIC_ACCESS_MW_BIND),
        .address = BASE, .length = 4096, .access = QRNIC_ACCESS_REMOTE_WRITE,
    };
    SimWr wr = {
        .opcode = QRNIC_WQE_BIND_MW, .flags = QRNIC_WQEF_SIGNALED, .bind = &b,
    };

    b.key = sim_mkey_ctx(k->p->b.qp->node, &ctx);
    sim_post_send(k->p->b.qp, &wr);
    run(k);
    expect_cqe(k->p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_BIND_MW);
    return b.key;
}

/*
 * Asserts the failure for local and remote accesses, below one level and below
 * two.
 */
static void child_fails(Child child, uint8_t syndrome)
{
    for (unsigned levels = 1; levels <= 2; levels++) {
        Keys k = keys_new(32);
        uint64_t reports;
        uint32_t key;

        key = tower(&k, child(&k), BASE, levels);
        reports = counter(&k, QRNIC_COUNTER_GE_PIECE_REFUSED);
        access_key(&k, QRNIC_WQE_RDMA_READ, key, 0, 64);
        expect_status(k.p->a.qp, QRNIC_WC_REM_ACCESS_ERR);
        g_assert_cmpuint(counter(&k, QRNIC_COUNTER_GE_PIECE_REFUSED), ==,
                         reports + 1);
        pair_free(k.p);

        k = keys_new(33);
        key = tower(&k, child(&k), BASE, levels);
        local_fails(&k, key, 0, 64, syndrome);
    }
}

static void test_child(void)
{
    child_fails(child_gone, QRNIC_SYN_CHILD_INVALID);
    child_fails(child_variant, QRNIC_SYN_CHILD_INVALID);
    child_fails(child_unregistered, QRNIC_SYN_CHILD_INVALID);
    child_fails(child_pd, QRNIC_SYN_CHILD_INVALID);
    child_fails(child_window, QRNIC_SYN_CHILD_TYPE);
}

/*
 * Tests that each piece is checked when it is reached, and only the accessed
 * range.
 */
static void test_child_range(void)
{
    Keys k = keys_new(34);
    QrnicPiece p = piece(&k, PAIR_BYTES - 150, 100, 100);
    QrnicIndirectSeg s = segment(key_new(&k, 1), 0, 2);

    registered(&k, &s, &p, 1);
    writes(&k, s.key, 0, 150);
    g_assert_cmpmem(k.p->a.data, 150, k.p->b.data + PAIR_BYTES - 150, 150);
    local_fails(&k, s.key, 149, 2, QRNIC_SYN_CHILD_RANGE);
}

/* Addresses of pieces wrap modulo 2^64, but a piece does not. */
static void test_child_wrap(void)
{
    Keys k = keys_new(35);
    QrnicPiece p = {
        .key = k.region, .address = UINT64_MAX - 9, .length = 20,
    };
    QrnicIndirectSeg s = segment(key_new(&k, 1), 0, 1);

    registered(&k, &s, &p, 1);
    local_fails(&k, s.key, 0, 20, QRNIC_SYN_CHILD_RANGE);
}

static void test_child_access(void)
{
    Keys k = keys_new(36);
    uint32_t read_only = region_new(&k, 0);
    uint32_t key = tower(&k, read_only, BASE, 2);

    access_key(&k, QRNIC_WQE_RDMA_READ, key, 0, 64);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(k.p->a.data, 64, k.p->b.data, 64);
    refused(&k, QRNIC_WQE_RDMA_WRITE, key, 0, 64);
}

/*
 * Tests that a write through an indirect key below another needs its local
 * write right.
 */
static void test_middle_access(void)
{
    Keys k = keys_new(37);
    QrnicPiece p = piece(&k, 0, 64, 0);
    QrnicIndirectSeg s = segment(key_new(&k, 1), 0, 1);
    uint32_t top;

    s.access = 0;
    registered(&k, &s, &p, 1);
    top = tower(&k, s.key, 0, 1);
    access_key(&k, QRNIC_WQE_RDMA_READ, top, 0, 64);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    refused(&k, QRNIC_WQE_RDMA_WRITE, top, 0, 64);
}

/* Tests that the peer has the rights of the key in the request. */
static void test_top_access(void)
{
    Keys k = keys_new(38);
    QrnicPiece p = piece(&k, 0, 64, 0);
    QrnicIndirectSeg s = segment(key_new(&k, 1), 0, 1);

    s.access = QRNIC_ACCESS_LOCAL_WRITE | QRNIC_ACCESS_REMOTE_READ;
    p.key = region_new(&k, ACCESS_ALL);
    registered(&k, &s, &p, 1);
    access_key(&k, QRNIC_WQE_RDMA_READ, s.key, 0, 64);
    expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    refused(&k, QRNIC_WQE_RDMA_WRITE, s.key, 0, 64);
}

static void post_add(const Keys *k, uint32_t key, uint64_t remote)
{
    SimSge sge = { k->p->a.addr, 8, k->p->a.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_ATOMIC_FETCH_ADD, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = remote, .rkey = key,
        .swap_add = 5,
    };

    sim_post_send(k->p->a.qp, &wr);
    run(k);
}

static void post_atomic_write(const Keys *k, uint32_t key, uint64_t remote)
{
    SimWr wr = {
        .opcode = QRNIC_WQE_ATOMIC_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .remote = remote, .rkey = key, .swap_add = ~0ull,
    };

    sim_post_send(k->p->a.qp, &wr);
    run(k);
}

/*
 * Tests that an atomic works inside a piece. Across two pieces it fails and
 * writes nothing.
 */
static void test_atomic(void)
{
    for (unsigned hca = 0; hca < 2; hca++) {
        const SimOptions o = { .atomic_hca = hca };
        Keys k = { .p = pair_new(39, &o, NULL) };
        QrnicPiece p[] = {
            { .length = 16 }, { .length = 12 }, { .length = 4 },
        };
        QrnicIndirectSeg s = segment(key_new(&k, 3), 0, 1);
        uint64_t before[2];
        uint8_t piece_of_two[4];

        k.region = region_new(&k, QRNIC_ACCESS_LOCAL_WRITE);
        pair_fill(k.p);
        p[0].key = p[1].key = p[2].key = k.region;
        p[0].address = BASE + 800;
        p[1].address = BASE + 4096 - 5;     /* 8 bytes of two pages */
        p[2].address = BASE + 5000;
        registered(&k, &s, p, ARRAY_SIZE(p));
        before[0] = ldq_le_p(k.p->b.data + 808);
        before[1] = ldq_le_p(k.p->b.data + 4096 - 5);
        post_add(&k, s.key, 8);
        expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
        g_assert_cmphex(ldq_le_p(k.p->b.data + 808), ==, before[0] + 5);
        g_assert_cmphex(ldq_le_p(k.p->a.data), ==, before[0]);
        post_add(&k, s.key, 16);
        expect_cqe(k.p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
        g_assert_cmphex(ldq_le_p(k.p->b.data + 4096 - 5), ==, before[1] + 5);
        memcpy(piece_of_two, k.p->b.data + 5000, 4);
        if (hca) {
            post_add(&k, s.key, 24);
        } else {
            post_atomic_write(&k, s.key, 24);
        }
        expect_status(k.p->a.qp, QRNIC_WC_REM_ACCESS_ERR);
        g_assert_cmpmem(k.p->b.data + 5000, 4, piece_of_two, 4);
        g_assert_cmpuint(counter(&k, QRNIC_COUNTER_GE_PIECE_REFUSED), ==, 1);
        pair_free(k.p);
    }
}

/*
 * Tests packets that cause thousands of accesses each. The engine pauses
 * between packets, so that other queue pairs are scheduled.
 */
static void test_work(void)
{
    const SimOptions o = { .loopback = true };
    Keys k = { .p = pair_new(40, &o, NULL) };
    SimNode *n = k.p->b.qp->node;
    QrnicPiece p = { .length = 1, .stride = 1, .address = BASE };
    QrnicIndirectSeg s = segment(key_new(&k, 1), 0, 60000);
    SimSge sge = { 0, 60000, s.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .sge = &sge, .num_sge = 1,
        .remote = k.p->a.addr, .rkey = k.p->a.key,
    };
    uint64_t before;

    p.key = k.region = region_new(&k, 0);
    pair_fill(k.p);
    s.access = 0;
    registered(&k, &s, &p, 1);
    for (unsigned i = 0; i < 10; i++) {
        sim_post_send_quiet(k.p->b.qp, &wr);
    }
    sim_ring_sq(k.p->b.qp);
    before = counter(&k, QRNIC_COUNTER_PIECES);
    qrnic_engine_run(n->engine, 16);
    before = counter(&k, QRNIC_COUNTER_PIECES) - before;
    g_assert_cmpuint(before, >=, QRNIC_WORK_PER_RUN);
    g_assert_cmpuint(before, <, QRNIC_WORK_PER_RUN + 1024);
    run(&k);
    g_assert_cmpuint(counter(&k, QRNIC_COUNTER_PIECES), >=, 600000);
    g_assert_cmpmem(k.p->a.data, 60000, k.p->b.data, 60000);
    pair_free(k.p);
}

/*
 * Tests reads of the peer whose packets each use the work budget of a whole
 * call. A registration behind these reads still makes progress.
 */
static void test_list_not_starved(void)
{
    enum { READS = 8, BYTES = 60000, PIECES = 40 };
    const SimOptions o = { .loopback = true };
    SimConnect c = sim_connect_default();
    QrnicPiece p[PIECES] = { { .length = 1, .stride = 1, .address = BASE } };
    QrnicIndirectSeg s;
    SimNode *n;
    SimSge sge;
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_READ, .sge = &sge, .num_sge = 1,
    };
    uint64_t before, reads;
    QrnicCqe cqe;
    Keys k;

    c.path_mtu = QRNIC_MTU_4096;
    k.p = pair_new(41, &o, &c);
    n = k.p->b.qp->node;
    k.region = p[0].key = region_new(&k, 0);
    for (unsigned i = 0; i < QRNIC_MAX_KEY_DEPTH; i++) {
        s = segment(key_new(&k, 1), 0, BYTES);
        registered(&k, &s, p, 1);
        p[0].key = s.key;
        p[0].address = 0;
    }
    wr.rkey = s.key;
    sge = (SimSge) { k.p->a.addr, BYTES, k.p->a.key };
    for (unsigned i = 0; i < READS; i++) {
        sim_post_send_quiet(k.p->a.qp, &wr);
    }
    sim_ring_sq(k.p->a.qp);
    before = counter(&k, QRNIC_COUNTER_PIECES);
    while (counter(&k, QRNIC_COUNTER_PIECES) - before < 8 * 4096) {
        qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
    }
    for (unsigned i = 0; i < PIECES; i++) {
        p[i] = piece(&k, 10 * i, 10, 0);
    }
    s = segment(key_new(&k, PIECES), 0, 1);
    post_register(&k, k.p->b.qp, &s, p, PIECES);
    for (unsigned i = 0; i < 20; i++) {
        qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
    }
    reads = (counter(&k, QRNIC_COUNTER_PIECES) - before) /
            QRNIC_MAX_KEY_DEPTH / BYTES;
    g_assert_cmpuint(reads, <, READS - 1);
    g_assert_true(sim_poll(k.p->b.qp, &cqe));
    g_assert_cmpuint(cqe.opcode, ==, QRNIC_CQE_REG_INDIRECT);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    run(&k);
    pair_free(k.p);
}

/* Random keys, and random traffic through them */

typedef struct World {
    Keys k;
    GArray *made;               /* Made */
} World;

static uint32_t below(World *w, uint32_t n)
{
    return g_rand_int_range(w->k.p->sim->rand, 0, n);
}

/* Returns the byte of b's memory at offset of a piece's key. */
static uint32_t map_byte(const World *w, const Made *child, uint64_t offset)
{
    return child ? child->map[offset] : offset;
}

/* Makes keys of pieces of the region, or of keys with a level to spare. */
static void make(World *w, unsigned from, unsigned to)
{
    unsigned count = 1 + below(w, 6), repeat = 1 + below(w, 5);
    Made m = { .start = (uint64_t)below(w, 1000) << below(w, 40) };
    g_autofree QrnicPiece *p = g_new0(QrnicPiece, count);
    QrnicIndirectSeg s;

    m.map = g_new(uint32_t, MOST_BYTES);
    s = segment(key_new(&w->k, count), m.start, repeat);
    for (unsigned r = 0; r < repeat; r++) {
        for (unsigned i = 0; i < count; i++) {
            const Made *child = NULL;
            uint64_t room = PAIR_BYTES, start = BASE, first;

            if (!r) {
                uint64_t length, reach;

                if (to > from) {
                    child = &g_array_index(w->made, Made,
                                           from + below(w, to - from));
                    room = child->length;
                    start = child->start;
                }
                length = 1 + below(w, MIN(room, MOST_BYTES / count / repeat));
                reach = room - length;
                p[i] = (QrnicPiece) {
                    .key = child ? child->key : w->k.region,
                    .length = length,
                    .stride = below(w, reach / repeat + 1),
                };
                p[i].address = start + below(w, reach - p[i].stride *
                                                (repeat - 1) + 1);
                if (below(w, 2)) {      /* Backwards */
                    p[i].address += p[i].stride * (repeat - 1);
                    p[i].stride = -p[i].stride;
                }
            }
            for (unsigned j = from; !child && j < to; j++) {
                const Made *c = &g_array_index(w->made, Made, j);

                child = c->key == p[i].key ? c : NULL;
            }
            first = p[i].address + r * p[i].stride -
                    (child ? child->start : BASE);
            for (uint64_t b = 0; b < p[i].length; b++) {
                m.map[m.length++] = map_byte(w, child, first + b);
            }
        }
    }
    m.key = s.key;
    registered(&w->k, &s, p, count);
    g_array_append_val(w->made, m);
}

/* Copies bytes of the key from b's memory. */
static void gather(const World *w, const Made *m, uint32_t offset,
                   uint32_t len, uint8_t *to)
{
    for (uint32_t i = 0; i < len; i++) {
        to[i] = w->k.p->b.data[m->map[offset + i]];
    }
}

/* Asserts that each byte is as expected, or as another write to it. */
static void check_scattered(const World *w, const Made *m, uint32_t offset,
                            uint32_t len, const uint8_t *from)
{
    g_autofree uint32_t *last = g_new(uint32_t, PAIR_BYTES);

    for (uint32_t i = 0; i < len; i++) {
        last[m->map[offset + i]] = i;
    }
    for (uint32_t i = 0; i < len; i++) {
        uint32_t at = m->map[offset + i];

        g_assert_cmpint(w->k.p->b.data[at], ==, from[last[at]]);
    }
}

static void one_message(World *w)
{
    Pair *p = w->k.p;
    const Made *m = &g_array_index(w->made, Made, below(w, w->made->len));
    uint32_t offset = below(w, m->length);
    uint32_t len = 1 + below(w, m->length - offset);
    SimSge far = { p->a.addr + below(w, 1000), len, p->a.key };
    SimSge near = { m->start + offset, len, m->key };
    uint8_t *data = p->a.data + (far.addr - p->a.addr);
    g_autofree uint8_t *expect = g_malloc(len);
    SimWr wr = {
        .flags = QRNIC_WQEF_SIGNALED, .num_sge = 1, .remote = near.addr,
        .rkey = near.key, .sge = &far,
    };

    for (unsigned i = 0; i < 16; i++) {
        data[below(w, len)]++;
    }
    gather(w, m, offset, len, expect);
    switch (below(w, 5)) {
    case 0:
        wr.opcode = QRNIC_WQE_RDMA_WRITE;
        sim_post_send(p->a.qp, &wr);
        run(&w->k);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        check_scattered(w, m, offset, len, data);
        break;
    case 1:
        wr.opcode = QRNIC_WQE_RDMA_READ;
        sim_post_send(p->a.qp, &wr);
        run(&w->k);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
        g_assert_cmpmem(data, len, expect, len);
        break;
    case 2:
        sim_post_recv(p->b.qp, &near, 1);
        wr.opcode = QRNIC_WQE_SEND;
        sim_post_send(p->a.qp, &wr);
        run(&w->k);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
        check_scattered(w, m, offset, len, data);
        break;
    case 3:
        sim_post_recv(p->a.qp, &far, 1);
        wr.opcode = QRNIC_WQE_SEND;
        wr.sge = &near;
        sim_post_send(p->b.qp, &wr);
        run(&w->k);
        expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
        g_assert_cmpmem(data, len, expect, len);
        break;
    default:
        wr.opcode = QRNIC_WQE_RDMA_READ;
        wr.sge = &near;
        wr.remote = far.addr;
        wr.rkey = far.key;
        sim_post_send(p->b.qp, &wr);
        run(&w->k);
        expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
        check_scattered(w, m, offset, len, data);
        break;
    }
}

static void test_random(void)
{
    const char *only = g_getenv("QRNIC_SEED");
    uint32_t first = only ? atoi(only) : 100;

    for (uint32_t seed = first; seed < first + (only ? 1 : 20); seed++) {
        World w = { .k = keys_new(seed) };
        unsigned from = 0, to = 0;

        g_test_message("QRNIC_SEED=%" PRIu32, seed);
        w.made = g_array_new(false, false, sizeof(Made));
        w.k.p->sim->loss = seed % 3 * 20;
        w.k.p->sim->repeat = w.k.p->sim->reorder = seed % 2 * 30;
        for (unsigned depth = 0; depth < QRNIC_MAX_KEY_DEPTH; depth++) {
            for (unsigned i = 0; i < 4; i++) {
                make(&w, from, to);
            }
            from = to;
            to = w.made->len;
        }
        for (unsigned i = 0; i < 60; i++) {
            one_message(&w);
        }
        for (unsigned i = 0; i < w.made->len; i++) {
            g_free(g_array_index(w.made, Made, i).map);
        }
        g_array_free(w.made, true);
        pair_free(w.k.p);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/indirect/joined", test_joined);
    g_test_add_func("/indirect/strided", test_strided);
    g_test_add_func("/indirect/transposed", test_transposed);
    g_test_add_func("/indirect/interleaved", test_interleaved);
    g_test_add_func("/indirect/kinds", test_kinds);
    g_test_add_func("/indirect/datagram", test_datagram);
    g_test_add_func("/indirect/invalidate", test_invalidate);
    g_test_add_func("/indirect/stale", test_stale);
    g_test_add_func("/indirect/invalidate-no-right", test_invalidate_no_right);
    g_test_add_func("/indirect/in-the-middle", test_in_the_middle);
    g_test_add_func("/indirect/list-by-pieces", test_list_by_pieces);
    g_test_add_func("/indirect/uc", test_uc);
    g_test_add_func("/indirect/room", test_room);
    g_test_add_func("/indirect/rules", test_rules);
    g_test_add_func("/indirect/limits", test_limits);
    g_test_add_func("/indirect/create-refused", test_create_refused);
    g_test_add_func("/indirect/depth", test_depth);
    g_test_add_func("/indirect/depth-other-pd", test_depth_other_pd);
    g_test_add_func("/indirect/cycle", test_cycle);
    g_test_add_func("/indirect/own-past", test_own_past);
    g_test_add_func("/indirect/child", test_child);
    g_test_add_func("/indirect/child-range", test_child_range);
    g_test_add_func("/indirect/child-wrap", test_child_wrap);
    g_test_add_func("/indirect/child-access", test_child_access);
    g_test_add_func("/indirect/middle-access", test_middle_access);
    g_test_add_func("/indirect/top-access", test_top_access);
    g_test_add_func("/indirect/atomic", test_atomic);
    g_test_add_func("/indirect/work", test_work);
    g_test_add_func("/indirect/list-not-starved", test_list_not_starved);
    g_test_add_func("/indirect/random", test_random);
    return g_test_run();
}
