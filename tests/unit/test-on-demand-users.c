/*
 * Paging on demand with other features: windows, invalidation, receiving into
 * the CQE, long responses
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pager.h"

/* Binds a type 2 window over some pages of node 1. */
static QrnicBindSeg window_new(Pager *w)
{
    Region *r = w->region[1];
    const QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MW_2, .variant = 7, .pd = r->node->pd,
    };
    const QrnicBindSeg b = {
        .key = sim_mkey_ctx(r->node, &ctx), .lkey = r->key,
        .address = r->start + 3 * PAGE + 5, .length = 8 * PAGE,
        .access = QRNIC_ACCESS_REMOTE_WRITE | QRNIC_ACCESS_REMOTE_READ,
    };
    const SimWr wr = {
        .opcode = QRNIC_WQE_BIND_MW, .flags = QRNIC_WQEF_SIGNALED, .bind = &b,
    };

    sim_post_send(w->qp[1], &wr);
    pager_run(w, NULL);
    expect_cqe(w->qp[1], QRNIC_WC_SUCCESS, QRNIC_CQE_BIND_MW);
    return b;
}

static void post_to_window(Pager *w, const QrnicBindSeg *b, uint8_t opcode,
                           uint32_t len)
{
    SimSge sge = { w->region[0]->start, len, w->region[0]->key };
    SimWr wr = {
        .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = 1, .remote = b->address, .rkey = b->key,
    };

    sim_post_send(w->qp[0], &wr);
}

/*
 * Tests that the page fault names the region, because software knows no pages
 * of a window.
 */
static void test_window(void)
{
    const uint32_t len = PAGE + 100;
    Pager *w = pager_new(1, 2, NULL);
    QrnicBindSeg b = window_new(w);
    g_autofree uint8_t *want = g_memdup2(w->region[0]->elsewhere, len);

    post_to_window(w, &b, QRNIC_WQE_RDMA_WRITE, len);
    pager_run(w, NULL);
    expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(content_of(w->region[1]) + 3 * PAGE + 5, len, want, len);
    g_assert_cmpuint(w->faults[1], ==, 1);

    /*
     * The data also goes in the other direction, into pages that are absent
     * too.
     */
    memset(w->region[0]->elsewhere, 0, BYTES);
    page_take_away(w->region[0], 0, PAGES);
    memset(w->region[0]->elsewhere, 0, BYTES);
    post_to_window(w, &b, QRNIC_WQE_RDMA_READ, len);
    pager_run(w, NULL);
    expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(content_of(w->region[0]), len, want, len);
    g_assert_cmpuint(w->faults[1], ==, 2);
    pager_free(w);
}

/*
 * Tests a window that is invalidated while a write through it waits for a page.
 * The write then fails, because the key is checked again.
 */
static void test_window_goes(void)
{
    Pager *w = pager_new(1, 1, NULL);
    QrnicBindSeg b = window_new(w);
    SimWr gone = {
        .opcode = QRNIC_WQE_LOCAL_INV, .flags = QRNIC_WQEF_SIGNALED,
        .imm = b.key,
    };
    g_autofree uint8_t *want = g_memdup2(w->region[1]->elsewhere, BYTES);
    uint32_t number;

    page_bring(w->region[0], 0, false);
    post_to_window(w, &b, QRNIC_WQE_RDMA_WRITE, 100);
    sim_run(w->sim, w->sim->now + 50 * SIM_US);
    sim_post_send(w->qp[1], &gone);
    sim_run(w->sim, w->sim->now + 10 * SIM_US);
    expect_cqe(w->qp[1], QRNIC_WC_SUCCESS, QRNIC_CQE_LOCAL_INV);
    g_assert_true(fault_next(w, 1, &number));
    g_assert_true(fault_answer(w, 1, number));
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_REM_ACCESS_ERR);
    g_assert_cmpmem(content_of(w->region[1]), BYTES, want, BYTES);
    pager_free(w);
}

/*
 * Tests that a key that a message invalidates is valid until all data of the
 * message is placed.
 */
static void test_send_invalidate(void)
{
    Pager *w = pager_new(1, 2, NULL);
    QrnicBindSeg b = window_new(w);
    SimSge sge = { w->region[0]->start, 100, w->region[0]->key };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND_INV, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .imm = b.key,
    };
    g_autofree uint8_t *want = g_memdup2(w->region[0]->elsewhere, 100);
    SimNode *n = w->region[1]->node;
    uint32_t number;
    QrnicCqe c;

    page_bring(w->region[0], 0, false);
    pager_receive(w, 20 * PAGE, PAGE);
    sim_post_send(w->qp[0], &wr);
    sim_run(w->sim, w->sim->now + 50 * SIM_US);
    g_assert_true(fault_next(w, 1, &number));
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_REMOTE_INVALIDATIONS), ==, 0);
    expect_no_cqe(w->qp[1]);
    g_assert_true(fault_answer(w, 1, number));
    pager_run(w, NULL);
    expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    c = expect_cqe(w->qp[1], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmphex(c.imm, ==, b.key);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_REMOTE_INVALIDATIONS), ==, 1);
    g_assert_cmpmem(content_of(w->region[1]) + 20 * PAGE, 100, want, 100);

    post_to_window(w, &b, QRNIC_WQE_RDMA_WRITE, 100);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_REM_ACCESS_ERR);
    pager_free(w);
}

/* Tests that data in the CQE needs no page, and other data does. */
static void test_inline_receive(void)
{
    Pager *w = pager_new(1, 1, NULL);
    SimQp *a = sim_inline_new(&w->sim->node[0], QRNIC_QPT_RC, NULL, 0);
    SimQp *b = sim_inline_new(&w->sim->node[1], QRNIC_QPT_RC, NULL, 32);
    Region *r = w->region[1];
    QrnicMkeyCtx ctx = region_ctx(r);
    SimSge from = { w->region[0]->start, 0, w->region[0]->key }, to;
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .sge = &from,
        .num_sge = 1,
    };
    QrnicCqeInline c;

    ctx.address_space = 1;
    r->key = sim_mkey_ctx(r->node, &ctx);
    to = (SimSge) { r->start, PAGE, r->key };
    sim_connect(a, b, NULL);
    page_bring(w->region[0], 0, false);
    for (unsigned i = 0; i < 2; i++) {
        sim_post_recv(b, &to, 1);
        from.length = i ? 33 : 32;
        sim_post_send(a, &wr);
        pager_run(w, NULL);
        expect_cqe(a, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        g_assert_cmpuint(expect_cqe(b, QRNIC_WC_SUCCESS,
                                    QRNIC_CQE_RECV).byte_len, ==, 32 + i);
        g_assert_cmpuint(w->faults[1], ==, i);
        if (!i) {
            c = sim_polled_inline(b);
            g_assert_cmpmem(c.data, 16, memory_of(w->region[0], 0), 16);
            g_assert_cmpmem(c.more_data, 16, memory_of(w->region[0], 0) + 16,
                            16);
        }
    }
    g_assert_cmpmem(content_of(r), 33, content_of(w->region[0]), 33);
    sim_qp_free(a);
    sim_qp_free(b);
    pager_free(w);
}

/*
 * Tests a response that waits in its middle. Some packets have been sent, later
 * responses wait, and the requester does not exhaust its retries.
 */
static void test_response_waits(void)
{
    const unsigned there = 10;
    SimConnect c = sim_connect_default();
    uint32_t number;
    QrnicPageFault f;
    SimSge recv;
    Pager *w;

    c.timeout = 16;             /* 268 ms */
    c.retry_cnt = 1;
    w = pager_new(1, 2, &c);
    for (unsigned i = 0; i < PAGES; i++) {
        page_bring(w->region[0], i, true);
        if (i < there || i > 20) {
            page_bring(w->region[1], i, true);
        }
    }
    recv = (SimSge) { w->region[1]->start + 60 * PAGE, 100, w->region[1]->key };
    sim_post_recv(w->qp[1], &recv, 1);
    pager_post(w, QRNIC_WQE_RDMA_READ, 0, 0, 30 * PAGE);
    pager_post(w, QRNIC_WQE_SEND, 50 * PAGE, 0, 100);
    sim_run(w->sim, w->sim->now + 10 * SIM_MS);
    g_assert_cmpuint(sim_counter(w->region[1]->node,
                                 QRNIC_COUNTER_TX_RNR_NAK), ==, 0);
    g_assert_cmpmem(memory_of(w->region[0], 0), there * PAGE,
                    memory_of(w->region[1], 0), there * PAGE);
    expect_no_cqe(w->qp[0]);
    /* The wait is far longer than all retries. */
    sim_run(w->sim, w->sim->now + 3000 * SIM_MS);
    expect_no_cqe(w->qp[0]);
    g_assert_cmpuint(sim_counter(w->region[1]->node,
                                 QRNIC_COUNTER_TX_RNR_NAK), >, 2);
    g_assert_true(fault_next(w, 1, &number));
    g_assert_cmpint(qrnic_page_fault_query(engine_of(w->region[1]), number,
                                           &f).status, ==, QRNIC_ST_OK);
    g_assert_cmphex(f.address, ==, w->region[1]->start + there * PAGE);
    g_assert_cmphex(f.flags, ==, 0);
    g_assert_true(fault_answer(w, 1, number));
    pager_run(w, NULL);
    expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_cqe(w->qp[1], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmpmem(content_of(w->region[0]), 30 * PAGE,
                    content_of(w->region[1]), 30 * PAGE);
    g_assert_cmpuint(w->faults[1], ==, 1);
    pager_free(w);
}

/*
 * Tests that the RNR timer of an absent page is that of the queue pair, but at
 * least 0.96 ms.
 */
static void test_wait(void)
{
    /* Software needs less than one wait, or more. */
    static const struct {
        uint8_t timer;          /* Table 45 */
        int64_t least, most;
    } want[] = {
        { 1, 960 * SIM_US, 3 * SIM_MS }, { 13, 960 * SIM_US, 3 * SIM_MS },
        { 0, 655360 * SIM_US, 660 * SIM_MS },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(want); i++) {
        SimConnect c = sim_connect_default();
        int64_t begin;
        Pager *w;

        c.min_rnr_timer = want[i].timer;
        w = pager_new(1, 2, &c);
        page_bring(w->region[0], 0, true);
        begin = w->sim->now;
        pager_post(w, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
        pager_run(w, NULL);
        expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        g_assert_cmpint(w->sim->now - begin, >=, want[i].least);
        g_assert_cmpint(w->sim->now - begin, <, want[i].most);
        pager_free(w);
    }
}

/*
 * Tests REFUSE_PAGE_FAULT during a response: a NAK follows the packets that
 * were sent.
 */
static void test_response_refused(void)
{
    Pager *w = pager_new(1, 2, NULL);

    for (unsigned i = 0; i < PAGES; i++) {
        page_bring(w->region[0], i, true);
    }
    page_bring(w->region[1], 0, false);
    w->region[1]->gone = true;
    pager_post(w, QRNIC_WQE_RDMA_READ, 0, 0, 2 * PAGE);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_REM_ACCESS_ERR);
    g_assert_cmpmem(memory_of(w->region[0], 0), PAGE,
                    memory_of(w->region[1], 0), PAGE);
    expect_state(w->qp[1], QRNIC_QPS_ERR);
    pager_free(w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/on-demand/window", test_window);
    g_test_add_func("/on-demand/window-goes", test_window_goes);
    g_test_add_func("/on-demand/send-invalidate", test_send_invalidate);
    g_test_add_func("/on-demand/inline-receive", test_inline_receive);
    g_test_add_func("/on-demand/wait", test_wait);
    g_test_add_func("/on-demand/response-waits", test_response_waits);
    g_test_add_func("/on-demand/response-refused", test_response_refused);
    return g_test_run();
}
