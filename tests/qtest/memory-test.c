/*
 * qrnic qtest: memory keys and translation tables
 *
 * Tests key checks of remote and local accesses, tables of one to three levels,
 * and zero-based and IOVA regions. Programmer's Reference, chapter Memory.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

/* A region of scattered pages; where[i] is the address of page i. */
typedef struct Scattered {
    unsigned levels, page_shift, pages;
    uint64_t *where;
} Scattered;

static uint64_t scatter(Device *d, Scattered *s)
{
    uint64_t page = 1ull << s->page_shift, root = 0, leaves, middle;
    unsigned lists = DIV_ROUND_UP(s->pages, QRNIC_PAGE_LIST_ENTRIES);

    s->where = g_new(uint64_t, s->pages);
    leaves = memory_alloc(d, lists * 4096, 4096);
    for (unsigned i = 0; i < s->pages; i++) {
        /*
         * Even and odd pages come from opposite ends, so that no two are
         * contiguous.
         */
        s->where[i] = memory_alloc(d, page, page);
        if (i & 1) {
            uint64_t swap = s->where[i];

            s->where[i] = s->where[i - 1];
            s->where[i - 1] = swap;
        }
    }
    for (unsigned i = 0; i < s->pages; i++) {
        qtest_writeq(d->qts, leaves + i * 8, s->where[i]);
    }
    root = leaves;
    if (s->levels >= 2) {
        middle = memory_alloc(d, 4096, 4096);
        for (unsigned i = 0; i < lists; i++) {
            qtest_writeq(d->qts, middle + i * 8, leaves + i * 4096);
        }
        root = middle;
    }
    if (s->levels == 3) {
        uint64_t top = memory_alloc(d, 4096, 4096);

        qtest_writeq(d->qts, top, root);
        root = top;
    }
    return root;
}

/* Registers the scattered memory from first_offset on. */
static uint32_t scattered_key(Rig *r, Scattered *s, uint64_t start,
                              uint32_t first_offset, uint64_t length)
{
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = ALL_RIGHTS, .variant = 0x42,
        .pd = r->pd, .start = start, .length = length,
        .table = {
            .levels = s->levels, .page_shift = s->page_shift,
            .offset = first_offset,
        },
    };

    ctx.table.root = scatter(r->d, s);
    qrnic_mkey_ctx_pack(raw, &ctx);
    return command_ok(r->d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL,
                      0) << 8 | 0x42;
}

static void scattered_read(Rig *r, const Scattered *s, uint64_t at,
                           uint8_t *out, size_t length)
{
    for (size_t i = 0; i < length; i++, at++) {
        out[i] = qtest_readb(r->d->qts, s->where[at >> s->page_shift] +
                             (at & ((1ull << s->page_shift) - 1)));
    }
}

/*
 * Tests a write of the peer across page borders, then a send that gathers the
 * data.
 */
static void check_table(unsigned levels, unsigned page_shift, unsigned pages,
                        uint64_t start, uint32_t first_offset)
{
    Scattered s = { levels, page_shift, pages };
    uint64_t length = ((uint64_t)pages << page_shift) - first_offset;
    uint64_t at[] = { 0, (1ull << page_shift) - first_offset - 100,
                      length - 300 };
    uint8_t data[200], got[200];
    uint32_t key;
    Rig r;

    rig_start(&r, "", NULL);
    key = scattered_key(&r, &s, start, first_offset, length);
    for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
        PeerPacket p = peer_packet(&r.qp, RC_WRITE_ONLY, RQ_PSN + i);
        Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);

        memset(data, 0x11 * (i + 1), sizeof(data));
        data[0] = i;
        p.va = start + at[i];
        p.rkey = key;
        p.dma_length = p.length = sizeof(data);
        p.payload = data;
        p.ack_request = true;
        peer_send(r.d, &p);
        p = peer_expect(r.d, RC_ACK, RQ_PSN + i);
        g_assert_cmphex(p.syndrome >> 5, ==, 0);
        scattered_read(&r, &s, at[i] + first_offset, got, sizeof(got));
        g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
        wqe_data(&w, start + at[i], sizeof(data), key);
        sq_post(r.d, &r.qp, &w);
        p = peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + i);
        g_assert_cmpmem(p.payload, p.length, data, sizeof(data));
    }
    g_free(s.where);
    rig_stop(&r);
}

static void test_one_level(void)
{
    check_table(1, 12, 4, 0x7f0000001000ull, 0);
}

static void test_one_level_offset(void)
{
    check_table(1, 12, 4, 0x7f0000001234ull, 0x234);
}

static void test_two_levels(void)
{
    check_table(2, 12, 600, 0x10000, 0);
}

static void test_three_levels(void)
{
    check_table(3, 12, 513, 0x10000, 8);
}

static void test_large_pages(void)
{
    check_table(1, 16, 3, 0xffff000000000000ull, 0);
}

static void test_zero_based(void)
{
    check_table(1, 12, 3, 0, 0x123);
}

typedef struct KeyCase {
    const char *name;
    unsigned syndrome, nak;
} KeyCase;

static const KeyCase key_cases[] = {
    { "index", QRNIC_SYN_KEY_INVALID, AETH_NAK_REMOTE_ACCESS },
    { "variant", QRNIC_SYN_KEY_INVALID, AETH_NAK_REMOTE_ACCESS },
    { "pd", QRNIC_SYN_KEY_INVALID, AETH_NAK_REMOTE_ACCESS },
    { "before", QRNIC_SYN_KEY_RANGE, AETH_NAK_REMOTE_ACCESS },
    { "beyond", QRNIC_SYN_KEY_RANGE, AETH_NAK_REMOTE_ACCESS },
    { "wraps", QRNIC_SYN_KEY_RANGE, AETH_NAK_REMOTE_ACCESS },
    { "access", QRNIC_SYN_KEY_ACCESS, AETH_NAK_REMOTE_ACCESS },
};

/* Makes a key that fails in this way, and an address for its use. */
static void spoil_key(Rig *r, const KeyCase *c, uint64_t *addr, uint32_t *key)
{
    uint32_t pd;
    Mr mr;

    *addr = r->mr.start;
    *key = r->mr.key;
    if (!strcmp(c->name, "index")) {
        *key ^= 0x00800000;
    } else if (!strcmp(c->name, "variant")) {
        *key ^= 1;
    } else if (!strcmp(c->name, "pd")) {
        pd = command_ok(r->d, QRNIC_CMD_ALLOC_PD, 0, NULL, 0, NULL, 0);
        mr_create(r->d, &mr, pd, r->mr.start, 4096, ALL_RIGHTS);
        *key = mr.key;
    } else if (!strcmp(c->name, "before")) {
        *addr -= 1;
    } else if (!strcmp(c->name, "beyond")) {
        *addr += r->mr.length - 63;
    } else if (!strcmp(c->name, "wraps")) {
        *addr = UINT64_MAX - 10;
    } else {
        mr_create(r->d, &mr, r->pd, r->mr.start, 4096, 0);
        *key = mr.key;
    }
}

/*
 * As a remote key: the peer receives a NAK, memory is unchanged, the queue pair
 * is in ERR, and an event is sent.
 */
static void test_remote_key(const void *data)
{
    const KeyCase *c = data;
    uint8_t before[256], after[256], payload[64];
    QrnicQpAttr a;
    QrnicEqe eqe;
    PeerPacket p;
    Rig r;

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, before, sizeof(before), 7);
    memset(payload, 0xee, sizeof(payload));
    p = peer_packet(&r.qp, RC_WRITE_ONLY, RQ_PSN);
    spoil_key(&r, c, &p.va, &p.rkey);
    p.dma_length = p.length = sizeof(payload);
    p.payload = payload;
    peer_send(r.d, &p);
    p = peer_expect(r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(p.syndrome, ==, c->nak);
    rig_read(&r, 0, after, sizeof(after));
    g_assert_cmpmem(after, sizeof(after), before, sizeof(before));
    qp_query(r.d, &r.qp, &a);
    g_assert_cmpuint(a.state, ==, QRNIC_QPS_ERR);
    eq_wait(r.d, &r.async, &eqe);
    while (eqe.type == QRNIC_EVENT_COMM_EST) {
        eq_wait(r.d, &r.async, &eqe);
    }
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_QP_ACCESS_ERROR);
    g_assert_cmpuint(eqe.object, ==, r.qp.number);
    rig_stop(&r);
}

/* As a local key of an RDMA read: the completion has the reason. */
static void test_local_key(const void *data)
{
    const KeyCase *c = data;
    uint8_t payload[64];
    uint64_t addr;
    uint32_t key;
    QrnicCqe cqe;
    PeerPacket p;
    Rig r;
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_READ, QRNIC_WQEF_SIGNALED);

    rig_start(&r, "", NULL);
    spoil_key(&r, c, &addr, &key);
    wqe_remote(&w, 0x1000, 0x1234);
    wqe_data(&w, addr, sizeof(payload), key);
    sq_post(r.d, &r.qp, &w);
    /* The device checks the key when the response arrives. */
    peer_expect(r.d, RC_READ_REQUEST, SQ_PSN);
    p = peer_packet(&r.qp, RC_READ_ONLY, SQ_PSN);
    memset(payload, 1, sizeof(payload));
    p.payload = payload;
    p.length = sizeof(payload);
    p.syndrome = AETH_ACK | 31;
    p.msn = 1;
    peer_send(r.d, &p);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==,
                    qrnic_wc_status_name(QRNIC_WC_LOC_PROT_ERR));
    g_assert_cmpstr(qrnic_syndrome_name(cqe.syndrome), ==,
                    qrnic_syndrome_name(c->syndrome));
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GE_KEY_REFUSED), ==, 1);
    rig_stop(&r);
}

/* Tests that a destroyed key is rejected. */
static void test_destroyed_key(void)
{
    PeerPacket p;
    Rig r;

    rig_start(&r, "", NULL);
    command_ok(r.d, QRNIC_CMD_DESTROY_MKEY, r.mr.index, NULL, 0, NULL, 0);
    p = peer_packet(&r.qp, RC_READ_REQUEST, RQ_PSN);
    p.va = r.mr.start;
    p.rkey = r.mr.key;
    p.dma_length = 8;
    peer_send(r.d, &p);
    p = peer_expect(r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(p.syndrome, ==, AETH_NAK_REMOTE_ACCESS);
    rig_stop(&r);
}

/* Tests that a DMA region has bus addresses without translation. */
static void test_dma_region(void)
{
    uint8_t raw[QRNIC_MKEY_CTX_BYTES], data[32];
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_DMA, .access = QRNIC_ACCESS_LOCAL_WRITE,
        .variant = 3, .length = UINT64_MAX,
    };
    Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);
    uint32_t key;
    PeerPacket p;
    Rig r;

    rig_start(&r, "", NULL);
    rig_fill(&r, 0x40, data, sizeof(data), 9);
    ctx.pd = r.pd;
    qrnic_mkey_ctx_pack(raw, &ctx);
    key = command_ok(r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL,
                     0) << 8 | 3;
    wqe_data(&w, r.mr.memory + 0x40, sizeof(data), key);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    g_assert_cmpmem(p.payload, p.length, data, sizeof(data));
    rig_stop(&r);
}

/*
 * Tests a table whose page list is at an address without memory. The access
 * fails, because a table can be invalid.
 */
static void test_table_nowhere(void)
{
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = ALL_RIGHTS, .variant = 3,
        .length = 8192,
        .table = { .root = 0x7000000000ull, .levels = 1, .page_shift = 12 },
    };
    Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);
    QrnicCmdEntry entry;
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    ctx.pd = r.pd;
    qrnic_mkey_ctx_pack(raw, &ctx);
    entry = command(r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL, 0);
    if (entry.status == QRNIC_ST_OK) {
        wqe_data(&w, 0, 16, entry.result << 8 | 3);
        sq_post(r.d, &r.qp, &w);
        cq_wait(r.d, &r.send_cq, &cqe);
        g_assert_cmpuint(cqe.status, ==, QRNIC_WC_LOC_PROT_ERR);
        g_assert_cmpuint(cqe.syndrome, ==, QRNIC_SYN_DMA);
    } else {
        g_assert_cmpuint(entry.status, ==, QRNIC_ST_DMA);
    }
    rig_stop(&r);
}

void add_memory_tests(void)
{
    qtest_add_func("qrnic/memory/one-level", test_one_level);
    qtest_add_func("qrnic/memory/one-level-offset", test_one_level_offset);
    qtest_add_func("qrnic/memory/two-levels", test_two_levels);
    qtest_add_func("qrnic/memory/three-levels", test_three_levels);
    qtest_add_func("qrnic/memory/large-pages", test_large_pages);
    qtest_add_func("qrnic/memory/zero-based", test_zero_based);
    qtest_add_func("qrnic/memory/destroyed-key", test_destroyed_key);
    qtest_add_func("qrnic/memory/dma-region", test_dma_region);
    qtest_add_func("qrnic/memory/table-nowhere", test_table_nowhere);
    for (unsigned i = 0; i < ARRAY_SIZE(key_cases); i++) {
        g_autofree char *remote = g_strdup_printf(
            "qrnic/memory/remote-key-%s", key_cases[i].name);
        g_autofree char *local = g_strdup_printf(
            "qrnic/memory/local-key-%s", key_cases[i].name);

        qtest_add_data_func(remote, &key_cases[i], test_remote_key);
        qtest_add_data_func(local, &key_cases[i], test_local_key);
    }
}
