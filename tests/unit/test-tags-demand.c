/*
 * Tag matching with memory on demand. A message that meets an absent page uses
 * the same entry, and is counted once, when the page is present.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "tags-world.h"

#define PAGE 4096u
#define START 0x7f0000000000ull
#define SIDE_SEND 0
#define SIDE_RECV 1

/* Two pages of the receiver, of which the second is absent */
typedef struct Lazy {
    World *w;
    uint64_t list, pages;
    uint32_t key;
} Lazy;

static void page_set(Lazy *l, unsigned page)
{
    stq_le_p(l->w->b->memory + l->list + 8 * page, (l->pages + page * PAGE) |
             QRNIC_PAGE_PRESENT | QRNIC_PAGE_WRITABLE);
}

static Lazy lazy_new(World *w)
{
    SimNode *n = w->b;
    QrnicEqCtx eq = {
        .type = QRNIC_EQ_PAGE_FAULT, .log_size = 4, .vector = 2,
        .ring.root = sim_alloc(n, QRNIC_EQE_SIZE << 4),
    };
    Lazy l = {
        .w = w, .list = sim_alloc(n, PAGE), .pages = sim_alloc(n, 2 * PAGE),
    };
    const QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_ON_DEMAND,
        .access = ACCESS_ALL, .variant = 3, .pd = n->pd, .start = START,
        .length = 2 * PAGE,
        .table = { .root = l.list, .levels = 1, .page_shift = 12 },
    };

    g_assert_cmpint(qrnic_eq_create(n->engine, &eq).status, ==, QRNIC_ST_OK);
    l.key = sim_mkey_ctx(n, &ctx);
    page_set(&l, 0);
    return l;
}

static void lazy_add(Lazy *l, uint32_t handle, uint64_t offset, uint32_t len)
{
    SimSge sge = { START + offset, len, l->key };
    QrnicTagOp op = add_op(handle, 1, ALL);

    op.data_segments = 1;
    op_post(l->w, op, &sge, 1);
    settle(l->w);
}

/*
 * Waits for the page fault of the second page. Then pages in, or answers
 * REFUSE_PAGE_FAULT.
 */
static void lazy_answer(Lazy *l, unsigned side, bool bring)
{
    World *w = l->w;
    uint32_t number = w->to[0]->number << 1 | side;
    QrnicPageFault f;
    QrnicFaultAnswer a;

    sim_run(w->sim, w->sim->now + SIM_MS);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_PAGE_FAULTS), ==, 1);
    g_assert_cmpint(qrnic_page_fault_query(w->b->engine, number, &f).status,
                    ==, QRNIC_ST_OK);
    g_assert_cmphex(f.key, ==, l->key >> 8);
    g_assert_cmphex(f.address + f.length, >, START + PAGE);
    a.sequence = f.sequence;
    if (bring) {
        page_set(l, 1);
        qrnic_page_fault_resume(w->b->engine, number, &a);
    } else {
        qrnic_page_fault_refuse(w->b->engine, number, &a);
    }
    settle(w);
}

static void expect_here(Lazy *l, uint64_t offset, const uint8_t *data,
                        uint32_t len)
{
    g_assert_cmpmem(l->w->b->memory + l->pages + offset, len, data, len);
}

/* Asserts that the entry fails and everything else works. */
static void expect_refused(Lazy *l)
{
    QrnicCqe c = expect_entry(l->w, 0, 0, QRNIC_WC_LOC_PROT_ERR, 0);

    g_assert_cmpint(c.syndrome, ==, QRNIC_SYN_PAGE_FAULT);
    expect_nothing(l->w);
    expect_state(l->w->to[0], QRNIC_QPS_ERR);
    lazy_add(l, 0, 0, 10);
    expect_nothing(l->w);
}

static void eager(bool bring)
{
    World *w = world_new(1, 1);
    Lazy l = lazy_new(w);
    uint32_t n;

    lazy_add(&l, 0, PAGE, 200);
    lazy_add(&l, 1, 0, 200);
    n = send_eager(w, 0, 1, 200);
    lazy_answer(&l, SIDE_RECV, bring);
    if (!bring) {
        expect_refused(&l);
        world_free(w);
        return;
    }
    expect_match(w, 0, VALID, QRNIC_WC_SUCCESS, 200, n);
    expect_here(&l, PAGE, source_of(w, n) + HEADER, 200);
    expect_sent(w, 0);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_MATCHES), ==, 1);
    /* The next message uses the next entry. */
    n = send_eager(w, 0, 1, 20);
    settle(w);
    expect_match(w, 1, VALID, QRNIC_WC_SUCCESS, 20, n);
    expect_here(&l, 0, source_of(w, n) + HEADER, 20);
    world_free(w);
}

/* Sends a message of which a middle packet meets the absent page. */
static void eager_middle(bool bring)
{
    World *w = world_new(1, 1);
    Lazy l = lazy_new(w);
    uint32_t n;

    lazy_add(&l, 0, PAGE - 500, 1000);
    n = send_eager(w, 0, 1, 1000);
    lazy_answer(&l, SIDE_RECV, bring);
    expect_match(w, 0, 0, QRNIC_WC_SUCCESS, 0, n);
    if (bring) {
        expect_entry(w, 0, VALID, QRNIC_WC_SUCCESS, 1000);
        expect_here(&l, PAGE - 500, source_of(w, n) + HEADER, 1000);
        expect_nothing(w);
    } else {
        expect_refused(&l);
    }
    world_free(w);
}

/*
 * Sends a rendezvous of which the response of the read meets the absent page.
 */
static void rendezvous(bool bring)
{
    World *w = world_new(1, 1);
    Lazy l = lazy_new(w);
    uint32_t n;

    lazy_add(&l, 0, PAGE - 500, 1000);
    n = send_rndv(w, 0, 1, 1000);
    lazy_answer(&l, SIDE_SEND, bring);
    expect_match(w, 0, 0, QRNIC_WC_SUCCESS, 1000, n);
    if (bring) {
        expect_entry(w, 0, VALID, QRNIC_WC_SUCCESS, 1000);
        expect_here(&l, PAGE - 500, data_of(w, n), 1000);
        expect_sent(w, 0);
        expect_fin(w, 0, n);
        expect_nothing(w);
    } else {
        expect_refused(&l);
    }
    world_free(w);
}

/*
 * Sends a rendezvous that software completes, and whose headers meet the absent
 * page.
 */
static void left(bool bring)
{
    World *w = world_new(1, 1);
    Lazy l = lazy_new(w);
    uint32_t n;

    lazy_add(&l, 0, PAGE, 40);
    n = send_rndv(w, 0, 1, 41);
    lazy_answer(&l, SIDE_RECV, bring);
    if (bring) {
        expect_entry(w, 0, MATCH, QRNIC_WC_TM_RNDV_INCOMPLETE, HEADERS);
        expect_here(&l, PAGE, source_of(w, n), HEADERS);
        expect_nothing(w);
        expect_state(w->to[0], QRNIC_QPS_RTS);
        g_assert_cmpint(counted(w, QRNIC_COUNTER_RENDEZVOUS_REFUSED), ==, 1);
    } else {
        expect_refused(&l);
    }
    world_free(w);
}

/* Asserts that an unexpected message counts once, even if it arrives twice. */
static void unexpected(bool bring)
{
    World *w = world_bare(1, 1, NULL);
    Lazy l = lazy_new(w);
    SimSge sge = { START + PAGE, 300, l.key };
    uint32_t n;
    QrnicCqe c;

    peer_connect(w, 0);
    sim_post_srq(w->srq, &sge, 1);
    n = send_eager(w, 0, 1, 100);
    lazy_answer(&l, SIDE_RECV, bring);
    c = next_cqe(w);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_UNEXPECTED), ==, 1);
    if (bring) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
        g_assert_cmphex(c.opcode, ==, QRNIC_CQE_TAG_UNEXPECTED);
        g_assert_cmpint(c.byte_len, ==, HEADER + 100);
        expect_here(&l, PAGE, source_of(w, n), HEADER + 100);
    } else {
        g_assert_cmpint(c.status, ==, QRNIC_WC_LOC_PROT_ERR);
    }
    /*
     * A failed message is subtracted again, because its status notifies
     * software.
     */
    op_post(w, sync_op(bring), NULL, 0);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_SYNC, QRNIC_WC_SUCCESS, 0, 0);
    world_free(w);
}

static void test_brought(void)
{
    eager(true);
    eager_middle(true);
    rendezvous(true);
    left(true);
    unexpected(true);
}

static void test_page_refused(void)
{
    eager(false);
    eager_middle(false);
    rendezvous(false);
    left(false);
    unexpected(false);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tags/page-brought", test_brought);
    g_test_add_func("/tags/page-refused", test_page_refused);
    return g_test_run();
}
