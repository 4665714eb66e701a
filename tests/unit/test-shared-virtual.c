/*
 * Shared virtual addressing: the address translation cache, invalidations, and
 * keys of processes
 *
 * test-on-demand.c has the tests of absent pages, and test-registration.c those
 * of keys that a process registers. The page table of a process is that of the
 * pager, unless a test replaces it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/memory/shared_virtual.h"
#include "pager.h"

#define COUNT(r, name) sim_counter((r)->node, QRNIC_COUNTER_##name)

/* Creates a world whose pages are all present and writable. */
static Pager *world_new(uint32_t entries)
{
    SimOptions o = {
        .translation_cache = entries, .no_translation_cache = !entries,
    };
    Pager *w;

    pager_processes = true;
    w = pager_new_with(1, 1, NULL, &o);
    for (unsigned i = 0; i < PAGES; i++) {
        page_bring(w->region[0], i, true);
        page_bring(w->region[1], i, true);
    }
    return w;
}

/* Writes from node 0 to the same offset at node 1, and expects success. */
static void write_range(Pager *w, uint64_t offset, uint32_t len)
{
    pager_post(w, QRNIC_WQE_RDMA_WRITE, offset, offset, len);
    pager_run(w, NULL);
    expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
}

/* Counters of a region's node at the last check */
typedef struct Lookups {
    const Region *r;
    uint64_t hits, misses;
} Lookups;

static Lookups lookups_of(const Region *r)
{
    return (Lookups) { r, COUNT(r, ATC_HITS), COUNT(r, ATC_MISSES) };
}

/* Asserts the number of hits and misses since the last check. */
static void expect_lookups(Lookups *l, uint64_t hits, uint64_t misses)
{
    const Lookups now = lookups_of(l->r);

    g_assert_cmpuint(now.hits - l->hits, ==, hits);
    g_assert_cmpuint(now.misses - l->misses, ==, misses);
    *l = now;
}

/* Tests hits and misses, and that the least recently used entry is replaced. */
static void test_cache(void)
{
    Pager *w = world_new(3);
    Region *r = w->region[0];
    Lookups l = lookups_of(r);

    for (unsigned i = 0; i < 3; i++) {
        write_range(w, i * PAGE, 100);
    }
    expect_lookups(&l, 0, 3);
    write_range(w, 0, 100);
    write_range(w, PAGE, 100);
    expect_lookups(&l, 2, 0);
    g_assert_cmpuint(COUNT(r, ATC_EVICTIONS), ==, 0);
    write_range(w, 3 * PAGE, 100);
    expect_lookups(&l, 0, 1);
    g_assert_cmpuint(COUNT(r, ATC_EVICTIONS), ==, 1);
    write_range(w, 0, 100);
    write_range(w, PAGE, 100);
    write_range(w, 3 * PAGE, 100);
    expect_lookups(&l, 3, 0);
    write_range(w, 2 * PAGE, 100);
    expect_lookups(&l, 0, 1);
    g_assert_cmpuint(COUNT(r, ATC_EVICTIONS), ==, 2);
    g_assert_cmpuint(w->faults[0] + w->faults[1], ==, 0);
    pager_free(w);
}

/* Tests that a device without a cache requests each translation. */
static void test_no_cache(void)
{
    Pager *w = world_new(0);
    Region *r = w->region[0];
    Lookups l = lookups_of(r);

    write_range(w, 0, 100);
    write_range(w, 0, 100);
    expect_lookups(&l, 0, 2);
    write_range(w, PAGE - 50, 100);
    expect_lookups(&l, 0, 2);
    g_assert_cmpuint(COUNT(r, ATC_EVICTIONS), ==, 0);
    qrnic_engine_invalidate(engine_of(r), r->pasid, 0, UINT64_MAX);
    g_assert_cmpuint(COUNT(r, ATC_INVALIDATIONS_PASID), ==, 1);
    g_assert_cmpmem(memory_of(r, 0) + PAGE - 50, 100,
                    memory_of(w->region[1], 0) + PAGE - 50, 100);
    pager_free(w);
}

#define CHAIN_BITS 10

/* Returns the length of the longest chain of pages of several processes. */
static unsigned longest_chain(const uint64_t *key, const uint64_t *pages,
                              unsigned count, unsigned pasids)
{
    g_autofree unsigned *length = g_new0(unsigned, 1 << CHAIN_BITS);
    unsigned longest = 0;

    for (unsigned i = 0; i < count; i++) {
        for (unsigned k = 0; k < pasids; k++) {
            unsigned chain = qrnic_atc_chain(key, 7 + k, 12, pages[i],
                                             CHAIN_BITS);

            g_assert_cmpuint(chain, <, 1 << CHAIN_BITS);
            longest = MAX(longest, ++length[chain]);
        }
    }
    return longest;
}

/*
 * Tests that pages which are all in one chain with a known key are in many
 * chains with other keys. So a guest without the key makes no long chain.
 */
static void test_crafted(void)
{
    const uint64_t known[2] = { 0x9e3779b97f4a7c15ull, 0xc2b2ae3d27d4eb4full };
    const uint64_t secret[][2] = {
        { 0xd6e8feb86659fd93ull, 0xa0761d6478bd642full },
        { 0x8ebc6af09c88c6e3ull, 0x589965cc75374cc3ull },
        { 0xe7037ed1a0b428dbull, 0x1d8e4e27c47d124full },
    };
    uint64_t pages[256];
    unsigned count = 0;

    for (uint64_t page = 0x7f0000000; count < ARRAY_SIZE(pages); page++) {
        if (!qrnic_atc_chain(known, 7, 12, page, CHAIN_BITS)) {
            pages[count++] = page;
        }
    }
    g_assert_cmpuint(longest_chain(known, pages, count, 1), ==, count);
    for (unsigned i = 0; i < ARRAY_SIZE(secret); i++) {
        g_assert_cmpuint(longest_chain(secret[i], pages, count, 1), <=, 8);
        /* Pages of several processes */
        g_assert_cmpuint(longest_chain(secret[i], pages, count, 4), <=, 16);
    }
    /* A cache with one chain */
    g_assert_cmpuint(qrnic_atc_chain(known, 7, 12, pages[1], 0), ==, 0);
}

/* Page table of one large page, of 16 small pages, and of small pages */
static QrnicTranslate large_pages(SimNode *n, uint32_t pasid, uint64_t addr,
                                  bool write, QrnicTranslated *result)
{
    const Region *r = n->translate_opaque;
    uint64_t offset = addr - r->address;
    unsigned shift = offset < 16 * PAGE ? 16 : 12;

    g_assert_cmpuint(offset, <, BYTES);
    *result = (QrnicTranslated) {
        .address = r->memory + (offset & ~((1ull << shift) - 1)),
        .page_shift = shift, .writable = true,
    };
    return QRNIC_TRANSLATE_OK;
}

/*
 * Tests that one entry serves a large page, beside entries of small pages. An
 * invalidation of a part of the large page removes the entry.
 */
static void test_large_page(void)
{
    Pager *w = world_new(64);
    Region *r = w->region[0];
    Lookups l = lookups_of(r);

    r->node->translate = large_pages;
    for (unsigned i = 0; i < 20; i++) {
        write_range(w, i * PAGE + 7, 100);
    }
    expect_lookups(&l, 15, 5);
    write_range(w, 15 * PAGE, 2 * PAGE);
    write_range(w, 0, 100);
    g_assert_cmpuint(COUNT(r, ATC_MISSES), ==, 5);
    l = lookups_of(r);
    qrnic_engine_invalidate(engine_of(r), r->pasid, r->address + 9 * PAGE,
                            r->address + 9 * PAGE);
    write_range(w, 0, 100);
    write_range(w, 16 * PAGE, 100);
    expect_lookups(&l, 1, 1);
    for (unsigned i = 0; i < 20; i++) {
        g_assert_cmpmem(memory_of(r, i) + 7, 100,
                        memory_of(w->region[1], i) + 7, 100);
    }
    pager_free(w);
}

/* Tests each kind of invalidation, and its first and last pages. */
static void test_invalidate(void)
{
    Pager *w = world_new(64);
    Region *r = w->region[0];
    Lookups l = lookups_of(r);
    QrnicEngine *e = engine_of(r);

    for (unsigned i = 0; i < 8; i++) {
        write_range(w, i * PAGE, 100);
    }
    expect_lookups(&l, 0, 8);

    /* A short range: from the last byte of page 2 to the first of page 4 */
    qrnic_engine_invalidate(e, r->pasid, r->address + 3 * PAGE - 1,
                            r->address + 4 * PAGE);
    g_assert_cmpuint(COUNT(r, ATC_INVALIDATIONS_PAGES), ==, 1);
    for (unsigned i = 0; i < 8; i++) {
        write_range(w, i * PAGE, 100);
        expect_lookups(&l, i < 2 || i > 4, i >= 2 && i <= 4);
    }

    /* A long range, with more pages than the cache has entries */
    qrnic_engine_invalidate(e, r->pasid, r->address + 6 * PAGE, UINT64_MAX);
    g_assert_cmpuint(COUNT(r, ATC_INVALIDATIONS_PAGES), ==, 2);
    for (unsigned i = 0; i < 8; i++) {
        write_range(w, i * PAGE, 100);
        expect_lookups(&l, i < 6, i >= 6);
    }

    qrnic_engine_invalidate(e, r->pasid, 0, r->address + PAGE);
    g_assert_cmpuint(COUNT(r, ATC_INVALIDATIONS_PAGES), ==, 3);
    for (unsigned i = 0; i < 8; i++) {
        write_range(w, i * PAGE, 100);
        expect_lookups(&l, i >= 2, i < 2);
    }

    /* Another process */
    qrnic_engine_invalidate(e, r->pasid + 1, r->address, r->address + PAGE);
    qrnic_engine_invalidate(e, r->pasid + 1, 0, UINT64_MAX);
    g_assert_cmpuint(COUNT(r, ATC_INVALIDATIONS_PASID), ==, 1);
    write_range(w, 0, 100);
    expect_lookups(&l, 1, 0);

    /* The whole process, and all processes */
    qrnic_engine_invalidate(e, r->pasid, 0, UINT64_MAX);
    g_assert_cmpuint(COUNT(r, ATC_INVALIDATIONS_PASID), ==, 2);
    write_range(w, 0, 100);
    expect_lookups(&l, 0, 1);
    qrnic_engine_invalidate(e, QRNIC_PASID_ALL, 0, UINT64_MAX);
    g_assert_cmpuint(COUNT(r, ATC_INVALIDATIONS_ALL), ==, 1);
    write_range(w, 0, 100);
    expect_lookups(&l, 0, 1);
    qrnic_engine_invalidate(e, QRNIC_PASID_ALL, r->address, r->address);
    g_assert_cmpuint(COUNT(r, ATC_INVALIDATIONS_PAGES), ==, 5);
    write_range(w, 0, 100);
    expect_lookups(&l, 0, 1);
    pager_free(w);
}

/* Region whose next page is taken away behind each access; or NULL */
static Region *moving;

/*
 * Takes the page behind the accessed one away. The content of the page moves,
 * and the old memory is overwritten. The operating system pages in at once.
 */
static void next_moves(SimNode *n, uint64_t addr, size_t len)
{
    uint64_t page = (addr - moving->memory) / PAGE + 1;

    if (addr < moving->memory || page >= PAGES) {
        return;
    }
    page_take_away(moving, page, 1);
    page_bring(moving, page, true);
}

/* As next_moves(), but the page stays absent. */
static void next_leaves(SimNode *n, uint64_t addr, size_t len)
{
    uint64_t page = (addr - moving->memory) / PAGE + 1;

    if (addr >= moving->memory && page < PAGES) {
        page_take_away(moving, page, 1);
    }
}

/*
 * Tests that no DMA uses a translation after its invalidation, although the
 * invalidation comes in the middle of a message, and of a packet.
 */
static void invalidate_in_message(void (*after)(SimNode *, uint64_t, size_t),
                                  bool write)
{
    const uint32_t at = PAGE / 2, len = BYTES / 2;
    Pager *w = world_new(64);
    Region *r = w->region[write];
    g_autofree uint8_t *want = NULL;

    /* All translations are cached before the message. */
    write_range(w, 0, BYTES);
    want = g_memdup2(content_of(w->region[0]), BYTES);
    for (unsigned i = 0; i < PAGES; i++) {
        page_bring(w->region[0], i, true);
        page_bring(w->region[1], i, true);
    }
    write_range(w, 0, BYTES);
    memset(memory_of(w->region[1], 0), 0, BYTES);
    moving = r;
    if (write) {
        r->node->after_write = after;
    } else {
        r->node->after_read = after;
    }
    write_range(w, at, len);
    r->node->after_read = r->node->after_write = NULL;
    g_assert_cmpuint(COUNT(r, ATC_INVALIDATIONS_PAGES), >, 30);
    g_assert_cmpmem(content_of(w->region[1]) + at, len, want + at, len);
    g_assert_cmpmem(content_of(w->region[0]), BYTES, want, BYTES);
    if (after == next_leaves) {
        g_assert_cmpuint(w->faults[write], >, 0);
    } else {
        g_assert_cmpuint(w->faults[write], ==, 0);
    }
    pager_free(w);
}

static void test_invalidate_in_message(void)
{
    invalidate_in_message(next_moves, false);
    invalidate_in_message(next_moves, true);
    invalidate_in_message(next_leaves, false);
    invalidate_in_message(next_leaves, true);
}

/* Number of further requests that an invalidation overtakes */
static unsigned overtaken;

/* Returns the address of page 9, and makes it outdated at once. */
static QrnicTranslate late_translate(SimNode *n, uint32_t pasid, uint64_t addr,
                                     bool write, QrnicTranslated *result)
{
    const Region *r = n->translate_opaque;
    bool late = overtaken;

    if (late) {
        overtaken--;
        qrnic_engine_invalidate(n->engine, pasid, addr, addr);
    }
    *result = (QrnicTranslated) {
        .address = r->memory + (late ? 9 * PAGE : 0), .page_shift = 12,
    };
    return QRNIC_TRANSLATE_OK;
}

/*
 * Tests that the device discards the result of a request that an invalidation
 * has overtaken, and that it gives up after 8 such requests.
 */
static void test_invalidate_in_request(void)
{
    Pager *w = world_new(64);
    Region *r = w->region[0];
    Lookups l = lookups_of(r);
    uint32_t number;

    r->node->translate = late_translate;
    overtaken = 7;
    write_range(w, 0, 100);
    expect_lookups(&l, 0, 8);
    g_assert_cmpuint(w->faults[0], ==, 0);
    g_assert_cmpmem(memory_of(w->region[1], 0), 100, memory_of(r, 0), 100);

    qrnic_engine_invalidate(engine_of(r), r->pasid, 0, UINT64_MAX);
    overtaken = 8;
    pager_post(w, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    sim_run(w->sim, w->sim->now + 50 * SIM_US);
    g_assert_true(fault_next(w, 0, &number));
    g_assert_true(fault_answer(w, 0, number));
    pager_run(w, NULL);
    expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_lookups(&l, 0, 9);
    g_assert_cmpuint(w->faults[0], ==, 1);
    pager_free(w);
}

/*
 * Tests that a cached translation without the right to write is requested again
 * for a write, because a right is added without an invalidation.
 */
static void test_read_only(void)
{
    Pager *w = world_new(64);
    Region *r = w->region[0];
    Lookups l = lookups_of(r);

    page_take_away(r, 0, 1);
    page_bring(r, 0, false);
    write_range(w, 0, 100);
    expect_lookups(&l, 0, 1);

    /* The pager adds the right when the device reports a page fault. */
    pager_post(w, QRNIC_WQE_RDMA_READ, 0, PAGE, 100);
    pager_run(w, NULL);
    expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpuint(w->faults[0], ==, 1);
    expect_lookups(&l, 0, 2);
    pager_post(w, QRNIC_WQE_RDMA_READ, 0, PAGE, 100);
    pager_run(w, NULL);
    expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    expect_lookups(&l, 1, 0);
    g_assert_cmpuint(COUNT(r, ATC_EVICTIONS), ==, 0);

    /* A page that the process must not write */
    page_take_away(r, 1, 1);
    page_bring(r, 1, false);
    r->read_only = true;
    pager_post(w, QRNIC_WQE_RDMA_READ, PAGE, PAGE, 100);
    pager_run(w, NULL);
    g_assert_cmpuint(expect_status(w->qp[0], QRNIC_WC_LOC_PROT_ERR).syndrome,
                     ==, QRNIC_SYN_PAGE_FAULT);
    pager_free(w);
}

/* Tests a PASID without page table, locally and remotely. */
static void test_failed(void)
{
    for (unsigned local = 0; local < 2; local++) {
        Pager *w = world_new(64);
        Region *r = w->region[!local];
        uint64_t errors;

        qrnic_engine_invalidate(engine_of(r), r->pasid, 0, UINT64_MAX);
        r->node->translate = NULL;
        errors = COUNT(r, GE_DMA_FAILED);
        pager_post(w, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
        pager_run(w, NULL);
        if (local) {
            g_assert_cmpuint(expect_status(w->qp[0],
                                           QRNIC_WC_LOC_PROT_ERR).syndrome, ==,
                             QRNIC_SYN_DMA);
        } else {
            expect_status(w->qp[0], QRNIC_WC_REM_OP_ERR);
        }
        g_assert_cmpuint(COUNT(r, GE_DMA_FAILED), ==, errors + 1);
        g_assert_cmpuint(w->faults[0] + w->faults[1], ==, 0);
        pager_free(w);
    }
}

/* Tests a translated address without memory behind it. */
static void test_broken(void)
{
    Pager *w = world_new(64);
    Region *r = w->region[0];

    write_range(w, 0, 100);
    r->node->broken_from = r->memory;
    r->node->broken_to = r->memory + PAGE;
    pager_post(w, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    pager_run(w, NULL);
    g_assert_cmpuint(expect_status(w->qp[0], QRNIC_WC_LOC_PROT_ERR).syndrome,
                     ==, QRNIC_SYN_DMA);
    r->node->broken_from = r->node->broken_to = 0;
    g_assert_cmpuint(COUNT(r, DMA_ERRORS), ==, 1);
    pager_free(w);
}

/* Tests that a reset drops all translations. */
static void test_reset(void)
{
    Pager *w = world_new(64);
    Region *r = w->region[0];
    QrnicMkeyCtx ctx = region_ctx(r);
    SimSge to = { sim_alloc(r->node, PAGE), 100 };
    SimSge from = { r->start, 100 };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &from, .num_sge = 1,
    };
    SimQp *a, *b;

    write_range(w, 0, 100);
    sim_qp_free(w->qp[0]);
    sim_qp_free(w->qp[1]);
    for (unsigned id = 0; id < SIM_NODES; id++) {
        sim_reset(&w->sim->node[id]);
        w->eq[id] = 0;
    }
    /* The memory of the nodes is zero. The region stays where it was. */
    sim_alloc(r->node, r->memory + BYTES - r->node->allocated);
    sim_alloc(&w->sim->node[1], r->node->allocated);
    a = sim_qp_new(&w->sim->node[0], 4, 4, 3, 5);
    b = sim_qp_new(&w->sim->node[1], 4, 4, 3, 5);
    sim_connect(a, b, NULL);
    ctx.pd = r->node->pd;
    from.key = sim_mkey_ctx(r->node, &ctx);
    to.addr = sim_alloc(&w->sim->node[1], PAGE);
    wr.remote = to.addr;
    wr.rkey = sim_mkey(&w->sim->node[1], to.addr, PAGE, ACCESS_ALL);
    sim_post_send(a, &wr);
    sim_run(w->sim, w->sim->now + SIM_MS);
    expect_status(a, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(COUNT(r, ATC_MISSES), ==, 1);
    g_assert_cmpuint(COUNT(r, ATC_HITS), ==, 0);
    w->qp[0] = a;
    w->qp[1] = b;
    pager_free(w);
}

/* Number of writes of the device to the memory of region 1 */
static unsigned writes;

static void count_writes(SimNode *n, uint64_t addr, size_t len)
{
    const Region *r = n->translate_opaque;

    writes += addr >= r->memory && addr < r->memory + BYTES;
}

/*
 * Tests atomics, with one access of the host and without, at an address whose 8
 * bytes lie in one page, and in two. If the second page became absent between
 * the two writes, an atomic in two pages would be executed in part and then
 * again. So it is rejected, and neither page is requested.
 */
static void test_atomic(void)
{
    for (unsigned i = 0; i < 4; i++) {
        const bool hca = i & 1;
        const SimOptions o = { .atomic_hca = hca };
        uint64_t at = i & 2 ? 3 * PAGE - 4 : 2 * PAGE;
        Region *r;
        Pager *w;
        uint64_t value;

        pager_processes = true;
        w = pager_new_with(1, 1, NULL, &o);
        r = w->region[1];
        /* The key's user names a multiple of 8 for any virtual address. */
        if (i & 2) {
            QrnicMkeyCtx ctx = region_ctx(r);

            ctx.start -= 4;
            r->key = sim_mkey_ctx(r->node, &ctx);
            r->start = ctx.start;
        }
        value = ldq_le_p(r->elsewhere + at);
        writes = 0;
        r->node->after_write = count_writes;
        pager_post(w, QRNIC_WQE_ATOMIC_FETCH_ADD, 0, at, 8);
        pager_run(w, NULL);
        if (i & 2) {
            expect_status(w->qp[0], QRNIC_WC_REM_ACCESS_ERR);
            g_assert_cmpuint(COUNT(r, GE_PIECE_REFUSED), >, 0);
            g_assert_cmpuint(COUNT(r, ATC_MISSES), ==, 0);
            g_assert_cmpuint(writes, ==, 0);
            g_assert_cmphex(ldq_le_p(content_of(r) + at), ==, value);
            pager_free(w);
            continue;
        }
        expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
        /* The host executes an aligned atomic as one access. */
        g_assert_cmpuint(writes, ==, hca);
        g_assert_cmphex(ldq_le_p(content_of(w->region[0])), ==, value);
        g_assert_cmphex(ldq_le_p(content_of(r) + at), ==, value + 1);
        g_assert_cmpuint(w->faults[1], >, 0);
        pager_free(w);
    }
}

/* Tests a window, and an indirect key, over a region of a process. */
static void test_derived_keys(void)
{
    Pager *w = world_new(64);
    Region *r = w->region[1];
    SimNode *n = r->node;
    QrnicMkeyCtx ctx = { .type = QRNIC_MKEY_MW_1, .pd = n->pd };
    QrnicBindSeg bind = {
        .lkey = r->key, .address = r->start + PAGE, .length = PAGE,
        .access = QRNIC_ACCESS_REMOTE_WRITE,
    };
    SimWr wr = { .opcode = QRNIC_WQE_BIND_MW, .bind = &bind,
                 .flags = QRNIC_WQEF_SIGNALED };
    SimSge from = { w->region[0]->start, 100, w->region[0]->key };
    QrnicIndirectSeg seg = {
        .access = ACCESS_ALL, .start = 0, .repeat = 1,
    };
    uint8_t list[2 * QRNIC_PIECE_BYTES];
    QrnicPiece piece[2] = {
        { .key = r->key, .address = r->start + 9 * PAGE - 30, .length = 60 },
        { .key = r->key, .address = r->start, .length = 60 },
    };
    SimSge pieces = { sim_alloc(n, PAGE), sizeof(list) };

    bind.key = sim_mkey_ctx(n, &ctx) | 1;
    sim_post_send(w->qp[1], &wr);
    pager_run(w, NULL);
    expect_status(w->qp[1], QRNIC_WC_SUCCESS);
    wr = (SimWr) {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &from, .num_sge = 1, .remote = r->start + PAGE + 5,
        .rkey = bind.key,
    };
    page_take_away(r, 1, 1);
    sim_post_send(w->qp[0], &wr);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_SUCCESS);
    g_assert_cmpuint(w->faults[1], ==, 1);
    g_assert_cmpmem(memory_of(r, 1) + 5, 100, memory_of(w->region[0], 0), 100);

    ctx = (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_INDIRECT, .pd = n->pd, .max_pieces = 2,
    };
    seg.key = sim_mkey_ctx(n, &ctx) | 2;
    qrnic_piece_pack(list, &piece[0]);
    qrnic_piece_pack(list + QRNIC_PIECE_BYTES, &piece[1]);
    memcpy(n->memory + pieces.addr, list, sizeof(list));
    pieces.key = sim_mkey(n, pieces.addr, PAGE, 0);
    wr = (SimWr) {
        .opcode = QRNIC_WQE_REG_INDIRECT, .flags = QRNIC_WQEF_SIGNALED,
        .indirect = &seg, .sge = &pieces, .num_sge = 1,
    };
    sim_post_send(w->qp[1], &wr);
    pager_run(w, NULL);
    expect_status(w->qp[1], QRNIC_WC_SUCCESS);
    page_take_away(r, 8, 2);
    wr = (SimWr) {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &from, .num_sge = 1, .remote = 0, .rkey = seg.key,
    };
    sim_post_send(w->qp[0], &wr);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_SUCCESS);
    g_assert_cmpmem(memory_of(r, 9) - 30, 60, memory_of(w->region[0], 0), 60);
    g_assert_cmpmem(memory_of(r, 0), 40, memory_of(w->region[0], 0) + 60, 40);
    pager_free(w);
}

/* Asserts the result of CREATE_MKEY with this context. */
static void create(SimNode *n, const QrnicMkeyCtx *ctx, int status,
                   uint32_t syndrome)
{
    QrnicResult result = qrnic_mkey_create(n->engine, ctx);

    g_assert_cmpint(result.status, ==, status);
    g_assert_cmphex(result.syndrome, ==, syndrome);
}

/* Tests the checks of CREATE_MKEY, and that QUERY_MKEY returns the PASID. */
static void test_commands(void)
{
    Pager *w = world_new(64);
    Region *r = w->region[0];
    SimNode *n = r->node;
    QrnicMkeyCtx ctx = region_ctx(r), out;
    const QrnicPageRange range = { r->start, PAGE };

    g_assert_cmpint(qrnic_mkey_query(n->engine, r->key >> 8, &out).status, ==,
                    QRNIC_ST_OK);
    g_assert_cmpmem(&out, sizeof(out), &ctx, sizeof(ctx));
    g_assert_cmpint(qrnic_mkey_invalidate_pages(n->engine, r->key >> 8,
                                                &range).status, ==,
                    QRNIC_ST_BAD_STATE);

    ctx.flags |= QRNIC_MKEYF_ON_DEMAND;
    create(n, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_FLAGS_OFFSET);
    ctx.flags = 0;
    create(n, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_PASID_OFFSET);
    ctx.flags = QRNIC_MKEYF_PASID;
    ctx.pasid = 0;
    create(n, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_PASID_OFFSET);
    ctx.pasid = QRNIC_MAX_PASID + 1;
    create(n, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_PASID_OFFSET);
    ctx.pasid = QRNIC_MAX_PASID;
    create(n, &ctx, QRNIC_ST_OK, 0);
    ctx.type = QRNIC_MKEY_NULL_MR;
    create(n, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_FLAGS_OFFSET);
    ctx.type = QRNIC_MKEY_MR;
    ctx.table.levels = 1;
    ctx.table.page_shift = 12;
    create(n, &ctx, QRNIC_ST_BAD_PARAM,
           QRNIC_MKEY_CTX_TABLE_OFFSET + QRNIC_TRANSLATION_SHAPE_OFFSET);
    ctx.table.levels = 0;
    create(n, &ctx, QRNIC_ST_BAD_PARAM,
           QRNIC_MKEY_CTX_TABLE_OFFSET + QRNIC_TRANSLATION_SHAPE_OFFSET);
    ctx.table.page_shift = 0;
    ctx.table.offset = 1;
    create(n, &ctx, QRNIC_ST_BAD_PARAM,
           QRNIC_MKEY_CTX_TABLE_OFFSET + QRNIC_TRANSLATION_OFFSET_OFFSET);
    ctx.table.offset = 0;
    ctx.table.root = -(uint64_t)BYTES + 1;
    create(n, &ctx, QRNIC_ST_BAD_PARAM,
           QRNIC_MKEY_CTX_TABLE_OFFSET + QRNIC_TRANSLATION_ROOT_OFFSET);
    ctx.table.root--;
    create(n, &ctx, QRNIC_ST_OK, 0);
    ctx.start = ctx.table.root = 0;
    ctx.access = 0;
    ctx.type = QRNIC_MKEY_FAST_REG;
    create(n, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_PASID_OFFSET);
    ctx.pasid = 0;
    ctx.length = QRNIC_MAX_PROCESS_SIZE + 1;
    create(n, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_LENGTH_OFFSET);
    ctx.length--;
    create(n, &ctx, QRNIC_ST_OK, 0);
    ctx.flags = QRNIC_MKEYF_ON_DEMAND;
    create(n, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_FLAGS_OFFSET);
    ctx.flags = QRNIC_MKEYF_PASID;
    ctx.type = QRNIC_MKEY_MR;
    ctx.pasid = 1;
    ctx.length = QRNIC_MAX_PROCESS_SIZE + 1;
    create(n, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_LENGTH_OFFSET);
    ctx.length--;
    create(n, &ctx, QRNIC_ST_OK, 0);
    pager_free(w);
}

/* Tests a device without the capability. */
static void test_not_supported(void)
{
    const SimOptions without[] = {
        { .capabilities = QRNIC_CAP_RC | QRNIC_CAP_ON_DEMAND },
        /* The capability requires paging on demand. */
        { .capabilities = QRNIC_CAP_RC | QRNIC_CAP_SHARED_VIRTUAL },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(without); i++) {
        Sim *s = sim_new(1, &without[i]);
        SimNode *n = &s->node[0];
        QrnicMkeyCtx ctx = {
            .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_PASID, .pd = n->pd,
            .length = PAGE, .pasid = 1,
        };
        QrnicDeviceAttr attr;

        g_assert_cmpint(qrnic_device_query(n->engine, &attr).status, ==,
                        QRNIC_ST_OK);
        g_assert_cmphex(attr.capabilities & QRNIC_CAP_SHARED_VIRTUAL, ==, 0);
        create(n, &ctx, QRNIC_ST_NOT_SUPPORTED, QRNIC_MKEY_CTX_FLAGS_OFFSET);
        g_assert_cmpint(qrnic_db_page_set_pasid(
                            n->engine, 0, &(QrnicPasidCtx) { 1 }).status, ==,
                        QRNIC_ST_NOT_SUPPORTED);
        qrnic_engine_invalidate(n->engine, 1, 0, UINT64_MAX);
        g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_ATC_INVALIDATIONS_PASID),
                         ==, 0);
        sim_free(s);
    }
}

/*
 * Page requests
 */

#define REQUESTS 600

/* Page requests that node 0 has sent */
typedef struct Request {
    uint32_t pasid;
    uint64_t addr;
    uint16_t group;
    bool write, last;
} Request;

static Request request[REQUESTS];
static unsigned requests;
static unsigned accepted;       /* number of further requests to accept */

/* Stores a request, or rejects it. */
static bool request_page(SimNode *n, uint32_t pasid, uint64_t addr, bool write,
                         uint16_t group, bool last)
{
    if (!accepted) {
        return false;
    }
    accepted--;
    g_assert_cmpuint(requests, <, REQUESTS);
    request[requests++] = (Request) { pasid, addr, group, write, last };
    return true;
}

/* Creates a world without pages in node 0, which may send page requests. */
static Pager *world_with_requests(uint32_t limit)
{
    Pager *w = world_new(64);
    Region *r = w->region[0];

    page_take_away(r, 0, PAGES);
    r->node->page_request = request_page;
    requests = 0;
    accepted = REQUESTS;
    qrnic_engine_page_requests_limit(engine_of(r), limit);
    return w;
}

static void run_shortly(Pager *w)
{
    sim_run(w->sim, w->sim->now + 50 * SIM_US);
}

static bool respond(Pager *w, uint16_t group, QrnicPageResponse response)
{
    const Region *r = w->region[0];

    return qrnic_engine_page_response(engine_of(r), r->pasid, group, response);
}

static void expect_outstanding(Pager *w, uint32_t count)
{
    g_assert_cmpuint(qrnic_engine_page_requests_outstanding(
                         engine_of(w->region[0])), ==, count);
}

/* Posts an RDMA write, or an RDMA read, of one byte of a page of node 0. */
static void post_page(Pager *w, unsigned page, bool read)
{
    pager_post(w, read ? QRNIC_WQE_RDMA_READ : QRNIC_WQE_RDMA_WRITE,
               page * PAGE, page * PAGE, 1);
    run_shortly(w);
}

static void expect_done(Pager *w, bool read)
{
    pager_run(w, NULL);
    expect_cqe(w->qp[0], QRNIC_WC_SUCCESS,
               read ? QRNIC_CQE_RDMA_READ : QRNIC_CQE_RDMA_WRITE);
}

/* Asserts that the last access of node 0 failed because of its page. */
static void expect_rejected(Pager *w)
{
    pager_run(w, NULL);
    g_assert_cmpuint(expect_status(w->qp[0], QRNIC_WC_LOC_PROT_ERR).syndrome,
                     ==, QRNIC_SYN_PAGE_FAULT);
}

/* Tests the requests and the response of a group, without an event. */
static void test_request(void)
{
    for (unsigned read = 0; read < 2; read++) {
        Pager *w = world_with_requests(64);
        Region *r = w->region[0];

        pager_post(w, read ? QRNIC_WQE_RDMA_READ : QRNIC_WQE_RDMA_WRITE,
                   PAGE - 1, 0, 100);
        run_shortly(w);
        g_assert_cmpuint(requests, ==, 2);
        for (unsigned i = 0; i < requests; i++) {
            g_assert_cmpuint(request[i].pasid, ==, r->pasid);
            g_assert_cmphex(request[i].addr, ==, r->address + i * PAGE);
            g_assert_cmpuint(request[i].write, ==, read);
            g_assert_cmpuint(request[i].group, ==, request[0].group);
            g_assert_cmpuint(request[i].last, ==, i == requests - 1);
            page_bring(r, i, read);
        }
        expect_outstanding(w, 2);
        g_assert_true(respond(w, request[0].group,
                              QRNIC_PAGE_RESPONSE_SUCCESS));
        expect_outstanding(w, 0);
        g_assert_false(respond(w, request[0].group,
                               QRNIC_PAGE_RESPONSE_SUCCESS));
        expect_done(w, read);
        g_assert_cmpuint(w->faults[0], ==, 0);
        g_assert_cmpuint(COUNT(r, PAGE_FAULTS), ==, 1);
        g_assert_cmpuint(COUNT(r, PAGE_REQUESTS), ==, 2);
        g_assert_cmpuint(COUNT(r, PAGE_REQUESTS_REJECTED), ==, 0);
        g_assert_cmpuint(COUNT(r, PAGE_RESPONSES_SUCCESS), ==, 1);
        g_assert_cmpuint(COUNT(r, PAGE_RESPONSES_UNEXPECTED), ==, 1);
        pager_free(w);
    }
}

/* Tests that a message with many absent pages needs several groups. */
static void test_request_groups(void)
{
    Pager *w = world_with_requests(64);
    Region *r = w->region[0];
    unsigned groups = 0, page = 0;

    pager_post(w, QRNIC_WQE_RDMA_WRITE, 0, 0, 20 * PAGE);
    run_shortly(w);
    while (page < 20) {
        g_assert_cmpuint(requests, ==, MIN(8, 20 - page));
        for (unsigned i = 0; i < requests; i++) {
            g_assert_cmphex(request[i].addr, ==, r->address + page * PAGE);
            g_assert_cmpuint(request[i].last, ==, i == requests - 1);
            page_bring(r, page++, false);
        }
        requests = 0;
        groups++;
        g_assert_true(respond(w, request[0].group,
                              QRNIC_PAGE_RESPONSE_SUCCESS));
        while (!requests && page < 20) {
            run_shortly(w);
        }
    }
    expect_done(w, false);
    g_assert_cmpuint(groups, ==, 3);
    g_assert_cmpuint(COUNT(r, PAGE_FAULTS), ==, 3);
    g_assert_cmpuint(w->faults[0], ==, 0);
    pager_free(w);
}

/* Tests that a group with the response "invalid" fails the access. */
static void test_request_invalid(void)
{
    Pager *w = world_with_requests(64);

    post_page(w, 3, false);
    g_assert_cmpuint(requests, ==, 1);
    g_assert_true(respond(w, request[0].group, QRNIC_PAGE_RESPONSE_INVALID));
    expect_rejected(w);
    g_assert_cmpuint(COUNT(w->region[0], PAGE_RESPONSES_INVALID), ==, 1);
    g_assert_cmpuint(COUNT(w->region[0], PAGE_REFUSALS), ==, 1);
    pager_free(w);
}

/*
 * Tests that the response "invalid" to several pages does not fail the access,
 * because the access may need only some of them. Software receives an event.
 */
static void test_request_invalid_group(void)
{
    Pager *w = world_with_requests(64);

    pager_post(w, QRNIC_WQE_RDMA_WRITE, PAGE - 1, 0, 2);
    run_shortly(w);
    g_assert_cmpuint(requests, ==, 2);
    g_assert_true(respond(w, request[0].group, QRNIC_PAGE_RESPONSE_INVALID));
    expect_outstanding(w, 0);
    expect_done(w, false);
    g_assert_cmpuint(w->faults[0], ==, 1);
    g_assert_cmpuint(COUNT(w->region[0], PAGE_RESPONSES_INVALID), ==, 1);
    g_assert_cmpuint(COUNT(w->region[0], PAGE_REFUSALS), ==, 0);
    pager_free(w);
}

/*
 * Tests that the response "failure" fails the access and stops page requests.
 * The next page fault is reported by an event.
 */
static void test_request_failure(void)
{
    Pager *w = world_with_requests(64);

    post_page(w, 3, false);
    g_assert_true(respond(w, request[0].group, QRNIC_PAGE_RESPONSE_FAILURE));
    expect_outstanding(w, 0);
    expect_rejected(w);
    g_assert_cmpuint(COUNT(w->region[0], PAGE_RESPONSES_FAILURE), ==, 1);
    for (unsigned id = 0; id < SIM_NODES; id++) {
        sim_qp_free(w->qp[id]);
        w->qp[id] = sim_qp_new(&w->sim->node[id], 8, 8, 3, 10);
    }
    sim_connect(w->qp[0], w->qp[1], NULL);
    post_page(w, 3, false);
    expect_done(w, false);
    g_assert_cmpuint(requests, ==, 1);
    g_assert_cmpuint(w->faults[0], ==, 1);
    pager_free(w);
}

/* Tests responses with another PASID, another group, and without request. */
static void test_response_unexpected(void)
{
    Pager *w = world_with_requests(64);
    Region *r = w->region[0];
    QrnicEngine *e = engine_of(r);

    g_assert_false(respond(w, 0, QRNIC_PAGE_RESPONSE_SUCCESS));
    post_page(w, 3, false);
    g_assert_false(qrnic_engine_page_response(e, r->pasid + 1,
                                              request[0].group,
                                              QRNIC_PAGE_RESPONSE_INVALID));
    g_assert_false(respond(w, request[0].group + 1,
                           QRNIC_PAGE_RESPONSE_FAILURE));
    g_assert_false(respond(w, request[0].group + QRNIC_PAGE_GROUPS,
                           QRNIC_PAGE_RESPONSE_FAILURE));
    g_assert_cmpuint(COUNT(r, PAGE_RESPONSES_UNEXPECTED), ==, 4);
    expect_outstanding(w, 1);
    page_bring(r, 3, false);
    g_assert_true(respond(w, request[0].group, QRNIC_PAGE_RESPONSE_SUCCESS));
    expect_done(w, false);
    pager_free(w);
}

/*
 * Tests that the device never exceeds the limit of outstanding requests. A
 * group is smaller and begins with the absent page. A page fault without room
 * for a request is reported by an event.
 */
static void test_request_limit(void)
{
    Pager *w = world_with_requests(1);
    Region *r = w->region[0];
    SimQp *a = sim_qp_new(r->node, 4, 4, 3, 6);
    SimQp *b = sim_qp_new(w->region[1]->node, 4, 4, 3, 6);
    SimSge sge = { r->start + 5 * PAGE, 1, r->key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = w->region[1]->start,
        .rkey = w->region[1]->key,
    };

    sim_connect(a, b, NULL);
    /* The access needs two pages. */
    pager_post(w, QRNIC_WQE_RDMA_WRITE, PAGE - 1, 0, 2);
    run_shortly(w);
    g_assert_cmpuint(requests, ==, 1);
    g_assert_true(request[0].last);
    sim_post_send(a, &wr);
    pager_run(w, NULL);
    expect_cqe(a, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpuint(requests, ==, 1);
    g_assert_cmpuint(w->faults[0], ==, 1);
    g_assert_cmpuint(COUNT(r, PAGE_FAULTS), ==, 2);
    expect_outstanding(w, 1);

    /* The first page is present now, so the second one is requested. */
    page_bring(r, 0, false);
    g_assert_true(respond(w, request[0].group, QRNIC_PAGE_RESPONSE_SUCCESS));
    run_shortly(w);
    g_assert_cmpuint(requests, ==, 2);
    g_assert_cmphex(request[1].addr, ==, request[0].addr + PAGE);
    g_assert_cmpuint(request[1].group, !=, request[0].group);
    expect_outstanding(w, 1);

    /* Software disables page requests, and still responds. */
    qrnic_engine_page_requests_limit(engine_of(r), 0);
    page_bring(r, 1, false);
    g_assert_true(respond(w, request[1].group, QRNIC_PAGE_RESPONSE_SUCCESS));
    expect_done(w, false);
    g_assert_cmpuint(w->faults[0], ==, 1);
    sim_qp_free(a);
    sim_qp_free(b);
    pager_free(w);
}

/*
 * Tests a group whose first or second request the IOMMU does not accept. The
 * page fault is reported by an event.
 */
static void test_request_overflow(void)
{
    for (unsigned count = 0; count < 2; count++) {
        Pager *w = world_with_requests(64);
        Region *r = w->region[0];

        accepted = count;
        pager_post(w, QRNIC_WQE_RDMA_WRITE, PAGE - 1, 0, 2);
        run_shortly(w);
        g_assert_cmpuint(requests, ==, count);
        expect_outstanding(w, 0);
        expect_done(w, false);
        g_assert_cmpuint(COUNT(r, PAGE_REQUESTS), ==, count);
        g_assert_cmpuint(COUNT(r, PAGE_REQUESTS_REJECTED), ==, 1);
        g_assert_cmpuint(w->faults[0], ==, 1);
        /* A late response to the abandoned group changes nothing. */
        g_assert_false(respond(w, request[0].group,
                               QRNIC_PAGE_RESPONSE_FAILURE));
        /* The next page fault has requests again. */
        accepted = 1;
        requests = 0;
        post_page(w, 20, false);
        g_assert_cmpuint(requests, ==, 1);
        page_bring(r, 20, false);
        g_assert_true(respond(w, request[0].group,
                              QRNIC_PAGE_RESPONSE_SUCCESS));
        expect_done(w, false);
        pager_free(w);
    }
}

/*
 * Tests that a reset of page requests repeats the accesses, and that a group
 * outlives its queue pair and a reset of the device.
 */
static void test_request_ends(void)
{
    Pager *w = world_with_requests(64);
    Region *r = w->region[0];
    QrnicEngine *e = engine_of(r);

    post_page(w, 3, false);
    qrnic_engine_page_requests_reset(e);
    expect_outstanding(w, 0);
    run_shortly(w);
    g_assert_cmpuint(requests, ==, 2);
    g_assert_false(respond(w, request[0].group, QRNIC_PAGE_RESPONSE_SUCCESS));
    sim_qp_free(w->qp[0]);
    w->qp[0] = sim_qp_new(r->node, 8, 8, 3, 10);
    expect_outstanding(w, 1);
    g_assert_true(respond(w, request[1].group, QRNIC_PAGE_RESPONSE_SUCCESS));
    run_shortly(w);
    expect_outstanding(w, 0);
    g_assert_cmpuint(COUNT(r, PAGE_RESPONSES_SUCCESS), ==, 1);
    pager_free(w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/shared-virtual/cache", test_cache);
    g_test_add_func("/shared-virtual/no-cache", test_no_cache);
    g_test_add_func("/shared-virtual/crafted", test_crafted);
    g_test_add_func("/shared-virtual/large-page", test_large_page);
    g_test_add_func("/shared-virtual/invalidate", test_invalidate);
    g_test_add_func("/shared-virtual/invalidate-in-message",
                    test_invalidate_in_message);
    g_test_add_func("/shared-virtual/invalidate-in-request",
                    test_invalidate_in_request);
    g_test_add_func("/shared-virtual/cached-read-only", test_read_only);
    g_test_add_func("/shared-virtual/failed", test_failed);
    g_test_add_func("/shared-virtual/broken", test_broken);
    g_test_add_func("/shared-virtual/reset", test_reset);
    g_test_add_func("/shared-virtual/atomic", test_atomic);
    g_test_add_func("/shared-virtual/derived-keys", test_derived_keys);
    g_test_add_func("/shared-virtual/commands", test_commands);
    g_test_add_func("/shared-virtual/not-supported", test_not_supported);
    g_test_add_func("/shared-virtual/request", test_request);
    g_test_add_func("/shared-virtual/request-groups", test_request_groups);
    g_test_add_func("/shared-virtual/request-invalid", test_request_invalid);
    g_test_add_func("/shared-virtual/request-invalid-group",
                    test_request_invalid_group);
    g_test_add_func("/shared-virtual/request-failure", test_request_failure);
    g_test_add_func("/shared-virtual/response-unexpected",
                    test_response_unexpected);
    g_test_add_func("/shared-virtual/request-limit", test_request_limit);
    g_test_add_func("/shared-virtual/request-overflow", test_request_overflow);
    g_test_add_func("/shared-virtual/request-ends", test_request_ends);
    return g_test_run();
}
