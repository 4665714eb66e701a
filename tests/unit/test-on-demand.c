/*
 * Paging on demand: which work waits, for how long, and the results
 *
 * QRNIC_SEED=n runs only that seed of the random traffic.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pager.h"

/*
 * Tests each operation with all pages absent on both sides, and tables of 1 to
 * 4 levels.
 */
static void test_first_touch(void)
{
    const uint32_t len = 3 * PAGE + 100, at = 5 * PAGE + 50;

    for (unsigned levels = 1; levels <= 4; levels++) {
        Pager *w = pager_new(levels, levels, NULL);
        g_autofree uint8_t *a = g_memdup2(w->region[0]->elsewhere, BYTES);
        g_autofree uint8_t *b = g_memdup2(w->region[1]->elsewhere, BYTES);

        pager_receive(w, at, len);
        pager_post(w, QRNIC_WQE_SEND, 0, 0, len);
        pager_run(w, NULL);
        expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        expect_cqe(w->qp[1], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
        memcpy(b + at, a, len);
        g_assert_cmpmem(content_of(w->region[1]), BYTES, b, BYTES);
        content_of(w->region[0]);
        g_assert_cmpuint(w->faults[0], ==, 1);
        g_assert_cmpuint(w->faults[1], ==, 1);

        pager_post(w, QRNIC_WQE_RDMA_WRITE, PAGE, 20 * PAGE - 1, len);
        pager_run(w, NULL);
        expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        memcpy(b + 20 * PAGE - 1, a + PAGE, len);
        g_assert_cmpmem(content_of(w->region[1]), BYTES, b, BYTES);
        content_of(w->region[0]);

        pager_post(w, QRNIC_WQE_RDMA_READ, 30 * PAGE + 7, 40 * PAGE + 9, len);
        pager_run(w, NULL);
        expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
        memcpy(a + 30 * PAGE + 7, b + 40 * PAGE + 9, len);
        g_assert_cmpmem(content_of(w->region[0]), BYTES, a, BYTES);
        g_assert_cmpmem(content_of(w->region[1]), BYTES, b, BYTES);

        pager_post(w, QRNIC_WQE_ATOMIC_FETCH_ADD, 8, 50 * PAGE, 8);
        pager_run(w, NULL);
        expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
        memcpy(a + 8, b + 50 * PAGE, 8);
        stq_le_p(b + 50 * PAGE, ldq_le_p(b + 50 * PAGE) + 1);
        g_assert_cmpmem(content_of(w->region[0]), BYTES, a, BYTES);
        g_assert_cmpmem(content_of(w->region[1]), BYTES, b, BYTES);

        g_assert_cmpuint(w->faults[0] + w->faults[1], ==, 8);
        for (unsigned id = 0; id < SIM_NODES; id++) {
            SimNode *n = &w->sim->node[id];

            g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_PAGE_FAULTS), ==, 4);
            g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_RETRY_EXCEEDED), ==,
                             0);
        }
        pager_free(w);
    }
}

/*
 * Tests that a read of a read-only page causes no page fault, because a read
 * needs no write permission.
 */
static void test_read_only(void)
{
    Pager *w = pager_new(1, 2, NULL);
    uint32_t number;
    QrnicPageFault f;

    page_bring(w->region[0], 0, false);
    page_bring(w->region[1], 0, false);
    pager_post(w, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    g_assert_false(fault_next(w, 0, &number));
    sim_run(w->sim, w->sim->now + 50 * SIM_US);
    g_assert_true(fault_next(w, 1, &number));
    g_assert_cmphex(number, ==, w->qp[1]->number << 1 | 1);
    g_assert_cmpint(qrnic_page_fault_query(engine_of(w->region[1]), number,
                                           &f).status, ==, QRNIC_ST_OK);
    g_assert_cmphex(f.flags, ==, fault_flags(w->region[1], true));
    g_assert_cmphex(f.address, ==, fault_address(w->region[1], 0));
    g_assert_cmpuint(f.length, ==, 100);
    g_assert_true(fault_answer(w, 1, number));
    pager_run(w, NULL);
    expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpuint(w->faults[0], ==, 0);
    g_assert_cmpuint(w->faults[1], ==, 1);
    pager_free(w);
}

/*
 * Tests a response that waits for the context of its queue pair when software
 * answers the page fault of a later message. The command fetches the context,
 * and the response meets another absent page.
 */
static void test_response_waits_for_context(void)
{
    const SimOptions o = {
        .context_cache = 2, .context_stations = 4,
        .context_latency = 100 * SIM_US, .contexts_of_one = true,
    };

    for (unsigned refuse = 0; refuse < 2; refuse++) {
        Pager *w = pager_new_with(1, 1, NULL, &o);
        SimNode *n = &w->sim->node[0];
        SimQp *other[2][2];
        uint64_t misses;
        uint32_t number, again;
        QrnicPageFault f;

        for (unsigned i = 0; i < 2; i++) {
            for (unsigned id = 0; id < SIM_NODES; id++) {
                other[i][id] = sim_qp_new(&w->sim->node[id], 6, 6, 0, 8);
            }
            sim_connect(other[i][0], other[i][1], NULL);
        }
        sim_query(w->qp[0]);
        sim_run(w->sim, w->sim->now + SIM_MS);
        page_bring(w->region[1], 0, true);
        pager_receive(w, 0, 100);
        pager_post(w, QRNIC_WQE_RDMA_READ, PAGE, 0, 100);
        pager_post(w, QRNIC_WQE_SEND, 2 * PAGE, 0, 100);
        while (!fault_next(w, 0, &number)) {
            g_assert_cmpint(w->sim->now, <, 10 * SIM_MS);
            sim_run(w->sim, w->sim->now + SIM_US / 10);
        }
        /* Evicts the context before the response arrives. */
        sim_query(other[0][0]);
        sim_query(other[1][0]);
        misses = sim_counter(n, QRNIC_COUNTER_CONTEXT_MISSES);
        while (sim_counter(n, QRNIC_COUNTER_CONTEXT_MISSES) == misses) {
            g_assert_cmpint(w->sim->now, <, 10 * SIM_MS);
            sim_run(w->sim, w->sim->now + SIM_US);
        }
        g_assert_cmpint(qrnic_page_fault_query(n->engine, number, &f).status,
                        ==, QRNIC_ST_OK);
        g_assert_cmphex(f.address, ==,
                        fault_address(w->region[0], 2 * PAGE));
        if (refuse) {
            qrnic_page_fault_refuse(n->engine, number,
                                    &(QrnicFaultAnswer) { f.sequence });
        } else {
            g_assert_true(fault_answer(w, 0, number));
        }
        /* The page of the response is requested when it arrives again. */
        pager_run(w, NULL);
        g_assert_false(fault_next(w, 0, &again));
        expect_cqe(w->qp[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
        expect_status(w->qp[0], refuse ? QRNIC_WC_LOC_PROT_ERR :
                                         QRNIC_WC_SUCCESS);
        g_assert_cmpuint(w->faults[0], ==, 2);
        for (unsigned i = 0; i < 2; i++) {
            for (unsigned id = 0; id < SIM_NODES; id++) {
                sim_qp_free(other[i][id]);
            }
        }
        pager_free(w);
    }
}

/*
 * Tests that a page that is present before its first use causes no page fault.
 * Software prefetches pages to avoid the latency of page faults.
 */
static void test_prefetch(void)
{
    Pager *w = pager_new(1, 3, NULL);

    pager_post(w, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_SUCCESS);
    g_assert_cmpuint(w->faults[0] + w->faults[1], ==, 2);
    /* The device has read the list with these absent entries already. */
    for (unsigned i = 1; i < 9; i++) {
        page_bring(w->region[0], i, false);
        page_bring(w->region[1], i, true);
    }
    pager_post(w, QRNIC_WQE_RDMA_WRITE, 0, 0, 9 * PAGE);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_SUCCESS);
    g_assert_cmpuint(w->faults[0] + w->faults[1], ==, 2);
    g_assert_cmpmem(content_of(w->region[0]), 9 * PAGE,
                    content_of(w->region[1]), 9 * PAGE);
    pager_free(w);
}

/*
 * Tests that the device reads only the list again whose entry is absent in the
 * cache.
 */
static void test_read_again(void)
{
    for (unsigned levels = 1; levels <= 4; levels++) {
        Pager *w = pager_new(1, levels, NULL);
        SimNode *n = w->region[0]->node;
        uint64_t before = sim_counter(n, QRNIC_COUNTER_MTT_READS);

        for (unsigned i = 0; i < PAGES; i++) {
            page_bring(w->region[1], i, true);
        }
        for (unsigned i = 0; i < 3; i++) {
            page_bring(w->region[0], i, false);
            pager_post(w, QRNIC_WQE_RDMA_WRITE, i * PAGE, 0, 100);
            pager_run(w, NULL);
            expect_status(w->qp[0], QRNIC_WC_SUCCESS);
            g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_MTT_READS), ==,
                             before + levels + i);
        }
        g_assert_cmpuint(w->faults[0], ==, 0);
        pager_free(w);
    }
}

/* Asserts the errors of REFUSE_PAGE_FAULT on both sides. */
static void refused(bool local, uint8_t opcode, uint8_t status,
                    uint8_t syndrome, int event)
{
    Pager *w = pager_new(1, 1, NULL);
    QrnicCqe c;

    w->region[!local]->gone = true;
    pager_receive(w, 0, PAGE);
    pager_post(w, opcode, 0, 0, opcode == QRNIC_WQE_ATOMIC_FETCH_ADD ? 8 : 100);
    pager_run(w, NULL);
    c = expect_status(w->qp[0], status);
    g_assert_cmpuint(c.syndrome, ==, syndrome);
    expect_state(w->qp[0], QRNIC_QPS_ERR);
    if (!local) {
        expect_state(w->qp[1], QRNIC_QPS_ERR);
        g_assert_cmpuint(w->faults[1], ==, 1);
        g_assert_cmpuint(sim_counter(w->region[1]->node,
                                     QRNIC_COUNTER_PAGE_REFUSALS), ==, 1);
        if (event) {
            expect_event(&w->sim->node[1], event, w->qp[1]->number);
        } else {
            c = expect_status(w->qp[1], QRNIC_WC_LOC_PROT_ERR);
            g_assert_cmpuint(c.syndrome, ==, QRNIC_SYN_PAGE_FAULT);
        }
    }
    pager_free(w);
}

static void test_refused(void)
{
    const uint8_t atomic = QRNIC_WQE_ATOMIC_FETCH_ADD;

    refused(true, QRNIC_WQE_SEND, QRNIC_WC_LOC_PROT_ERR, QRNIC_SYN_PAGE_FAULT,
            0);
    refused(true, QRNIC_WQE_RDMA_READ, QRNIC_WC_LOC_PROT_ERR,
            QRNIC_SYN_PAGE_FAULT, 0);
    refused(true, atomic, QRNIC_WC_LOC_PROT_ERR, QRNIC_SYN_PAGE_FAULT, 0);
    refused(false, QRNIC_WQE_SEND, QRNIC_WC_REM_OP_ERR, 0, 0);
    refused(false, QRNIC_WQE_RDMA_WRITE, QRNIC_WC_REM_ACCESS_ERR, 0,
            QRNIC_EVENT_QP_ACCESS_ERROR);
    refused(false, QRNIC_WQE_RDMA_READ, QRNIC_WC_REM_ACCESS_ERR, 0,
            QRNIC_EVENT_QP_ACCESS_ERROR);
    refused(false, atomic, QRNIC_WC_REM_ACCESS_ERR, 0,
            QRNIC_EVENT_QP_ACCESS_ERROR);
}

/*
 * Tests larger pages, an offset in the first page, and an end at the last
 * address.
 */
static void test_shape(void)
{
    const uint32_t big = 4 * PAGE, offset = 100, length = 2 * big - offset;
    Pager *w = pager_new(1, 1, NULL);
    Region *r = w->region[0], *to = w->region[1];
    uint64_t list = sim_alloc(r->node, PAGE), at = -(uint64_t)200;
    uint64_t memory = sim_alloc(r->node, 2 * big);
    QrnicPageRange range = { at, 200 };
    QrnicMkeyCtx ctx = region_ctx(r);
    SimSge sge = { at, 200 };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = to->start, .rkey = to->key,
    };
    QrnicPageFault f;
    uint32_t number;

    memory = ROUND_UP(memory, big);
    page_bring(to, 0, true);
    memset(r->node->memory + list, 0, 16);
    ctx.start = -(uint64_t)length;
    ctx.length = length;
    ctx.table = (QrnicTranslation) {
        .root = list, .levels = 1, .page_shift = 14, .offset = offset,
    };
    sge.key = sim_mkey_ctx(r->node, &ctx);
    for (unsigned i = 0; i < 2; i++) {
        memset(r->node->memory + memory, 0x40 + i, big);
        sim_post_send(w->qp[0], &wr);
        sim_run(w->sim, w->sim->now + 50 * SIM_US);
        g_assert_true(fault_next(w, 0, &number));
        g_assert_cmpint(qrnic_page_fault_query(engine_of(r), number, &f).status,
                        ==, QRNIC_ST_OK);
        g_assert_cmphex(f.key, ==, sge.key >> 8);
        g_assert_cmphex(f.address, ==, at);
        g_assert_cmpuint(f.length, ==, 200);
        stq_le_p(r->node->memory + list + 8, memory | QRNIC_PAGE_PRESENT);
        g_assert_cmpint(fault_resume(engine_of(r), number, f.sequence), ==,
                        QRNIC_ST_OK);
        pager_run(w, NULL);
        expect_status(w->qp[0], QRNIC_WC_SUCCESS);
        for (unsigned b = 0; b < 200; b++) {
            g_assert_cmphex(memory_of(to, 0)[b], ==, 0x40 + i);
        }
        stq_le_p(r->node->memory + list + 8, 0);
        g_assert_cmpint(qrnic_mkey_invalidate_pages(
                            engine_of(r), sge.key >> 8, &range).status, ==,
                        QRNIC_ST_OK);
    }
    range.length++;
    g_assert_cmpint(qrnic_mkey_invalidate_pages(engine_of(r), sge.key >> 8,
                                                &range).status, ==,
                    QRNIC_ST_BAD_PARAM);
    pager_free(w);
}

/* Tests several absent data segments on both sides, and immediate data. */
static void test_pieces(void)
{
    Pager *w = pager_new(1, 2, NULL);
    Region *a = w->region[0], *b = w->region[1];
    SimSge from[3], to[2];
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND_IMM, .flags = QRNIC_WQEF_SIGNALED, .imm = 7,
        .sge = from, .num_sge = 3, .remote = b->start + 30 * PAGE,
        .rkey = b->key,
    };
    uint8_t want[300];

    for (unsigned i = 0; i < 3; i++) {
        from[i] = (SimSge) { a->start + 3 * i * PAGE + 9, 100, a->key };
        memcpy(want + 100 * i, a->elsewhere + 3 * i * PAGE + 9, 100);
    }
    to[0] = (SimSge) { b->start + 20 * PAGE, 150, b->key };
    to[1] = (SimSge) { b->start + 10 * PAGE, 150, b->key };
    sim_post_recv(w->qp[1], to, 2);
    sim_post_send(w->qp[0], &wr);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_SUCCESS);
    g_assert_cmphex(expect_status(w->qp[1], QRNIC_WC_SUCCESS).imm, ==, 7);
    g_assert_cmpmem(content_of(b) + 20 * PAGE, 150, want, 150);
    g_assert_cmpmem(b->elsewhere + 10 * PAGE, 150, want + 150, 150);
    g_assert_cmpuint(w->faults[0], ==, 3);
    g_assert_cmpuint(w->faults[1], ==, 2);

    /* The receive WQE of a write has no memory that could be absent. */
    wr.opcode = QRNIC_WQE_RDMA_WRITE_IMM;
    sim_post_recv(w->qp[1], NULL, 0);
    sim_post_send(w->qp[0], &wr);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_SUCCESS);
    g_assert_cmphex(expect_status(w->qp[1], QRNIC_WC_SUCCESS).imm, ==, 7);
    g_assert_cmpmem(content_of(b) + 30 * PAGE, 300, want, 300);
    g_assert_cmpuint(w->faults[1], ==, 3);
    pager_free(w);
}

/*
 * Tests that a requester that counts RNR NAKs fails before the page is present,
 * because each retransmission counts.
 */
static void test_finite_retries(void)
{
    SimConnect c = sim_connect_default();
    uint32_t number;
    Pager *w;

    c.rnr_retry = 2;
    c.min_rnr_timer = 1;
    w = pager_new(1, 1, &c);
    page_bring(w->region[0], 0, false);
    pager_post(w, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    sim_run(w->sim, w->sim->now + 10 * SIM_MS);
    expect_status(w->qp[0], QRNIC_WC_RNR_RETRY_EXC_ERR);
    g_assert_cmpuint(sim_counter(w->region[1]->node,
                                 QRNIC_COUNTER_TX_RNR_NAK), ==, 3);
    /* The responder's page fault is still outstanding, and can be answered. */
    g_assert_true(fault_next(w, 1, &number));
    g_assert_true(fault_answer(w, 1, number));
    g_assert_false(fault_next(w, 1, &number));
    expect_state(w->qp[1], QRNIC_QPS_RTS);
    pager_free(w);
}

/*
 * Tests that MODIFY_MKEY clears the flag during a page fault, and sets it
 * again.
 */
static void test_modify(void)
{
    Pager *w = pager_new(1, 2, NULL);
    Region *r = w->region[0];
    QrnicMkeyCtx demand = region_ctx(r), plain = demand;
    QrnicPageRange range = { r->start, PAGE };
    QrnicPageFault f;
    uint32_t number;

    plain.flags = 0;
    plain.table = (QrnicTranslation) { .root = r->memory };
    memset(memory_of(r, 0), 0x77, PAGE);
    page_bring(w->region[1], 0, true);
    pager_post(w, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    sim_run(w->sim, w->sim->now + 50 * SIM_US);
    g_assert_true(fault_next(w, 0, &number));
    g_assert_cmpint(qrnic_mkey_modify(engine_of(r), r->key >> 8, &plain).status,
                    ==, QRNIC_ST_OK);
    g_assert_cmpint(qrnic_mkey_invalidate_pages(engine_of(r), r->key >> 8,
                                                &range).status, ==,
                    QRNIC_ST_BAD_STATE);
    g_assert_cmpint(qrnic_page_fault_query(engine_of(r), number, &f).status, ==,
                    QRNIC_ST_OK);
    g_assert_cmpint(fault_resume(engine_of(r), number, f.sequence), ==,
                    QRNIC_ST_OK);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_SUCCESS);
    g_assert_cmphex(memory_of(w->region[1], 0)[99], ==, 0x77);
    g_assert_cmpuint(w->faults[0], ==, 1);

    g_assert_cmpint(qrnic_mkey_modify(engine_of(r), r->key >> 8,
                                      &demand).status, ==, QRNIC_ST_OK);
    pager_post(w, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_SUCCESS);
    g_assert_cmpuint(w->faults[0], ==, 2);
    g_assert_cmpmem(memory_of(w->region[1], 0), 100, r->elsewhere, 100);
    pager_free(w);
}

/*
 * Asserts that an operation succeeds if software needs far longer than all
 * retries of the requester.
 */
static void patience(uint8_t opcode)
{
    SimConnect c = sim_connect_default();
    uint32_t number;
    Pager *w;

    c.timeout = 8;              /* 1 ms */
    c.retry_cnt = 0;
    w = pager_new(1, 1, &c);
    for (unsigned i = 0; i < PAGES; i++) {
        page_bring(w->region[1], i, true);
    }
    pager_receive(w, 0, PAGE);
    page_bring(w->region[0], 0, true);
    pager_post(w, opcode, 0, 0, PAGE + 100);
    sim_run(w->sim, w->sim->now + 100 * SIM_MS);
    g_assert_true(fault_next(w, 0, &number));
    g_assert_true(fault_answer(w, 0, number));
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_SUCCESS);
    g_assert_cmpuint(w->faults[0], ==, 1);
    pager_free(w);
}

static void test_patience(void)
{
    patience(QRNIC_WQE_RDMA_READ);
    patience(QRNIC_WQE_RDMA_WRITE);
}

/* Responses that were in flight before the page was present use up no retry. */
static void test_late_responses(void)
{
    SimConnect c = sim_connect_default();
    Pager *w;

    c.timeout = 14;
    c.retry_cnt = 0;
    w = pager_new(1, 1, &c);
    w->sim->latency = 200 * SIM_US;
    for (unsigned i = 0; i < PAGES; i++) {
        page_bring(w->region[1], i, false);
    }
    pager_post(w, QRNIC_WQE_RDMA_READ, 0, 0, BYTES);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_SUCCESS);
    g_assert_cmpmem(content_of(w->region[0]), BYTES, content_of(w->region[1]),
                    BYTES);
    pager_free(w);
}

/*
 * Tests that waiting work fails when the EQ is destroyed, because no software
 * can page in.
 */
static void test_eq_gone(void)
{
    Pager *w = pager_new(1, 1, NULL);
    uint32_t number;

    pager_post(w, QRNIC_WQE_SEND, 0, 0, 100);
    sim_run(w->sim, w->sim->now + 50 * SIM_US);
    g_assert_true(fault_next(w, 0, &number));
    g_assert_cmpint(qrnic_eq_destroy(engine_of(w->region[0]), w->eq[0]).status,
                    ==, QRNIC_ST_OK);
    w->eq[0] = 0;
    pager_run(w, NULL);
    g_assert_cmpuint(expect_status(w->qp[0], QRNIC_WC_LOC_PROT_ERR).syndrome,
                     ==, QRNIC_SYN_PAGE_FAULT);
    pager_free(w);
}

/* Tests that absent pages are errors without an EQ for page faults. */
static void test_nobody(void)
{
    Pager *w = pager_new(1, 1, NULL);

    g_assert_cmpint(qrnic_eq_destroy(engine_of(w->region[0]), w->eq[0]).status,
                    ==, QRNIC_ST_OK);
    w->eq[0] = 0;
    pager_post(w, QRNIC_WQE_SEND, 0, 0, 100);
    pager_run(w, NULL);
    g_assert_cmpuint(expect_status(w->qp[0], QRNIC_WC_LOC_PROT_ERR).syndrome,
                     ==, QRNIC_SYN_PAGE_FAULT);
    pager_free(w);
}

/* Tests page table entries with values that a driver must not write. */
static void test_bad_entry(void)
{
    static const uint64_t bad[] = {
        PAGE, PAGE | QRNIC_PAGE_WRITABLE, PAGE | QRNIC_PAGE_PRESENT | 4,
    };

    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        Pager *w = pager_new(1, 2, NULL);

        stq_le_p(entry_of(w->region[0], 0), bad[i]);
        pager_post(w, QRNIC_WQE_SEND, 0, 0, 100);
        pager_run(w, NULL);
        g_assert_cmpuint(expect_status(w->qp[0],
                                       QRNIC_WC_LOC_PROT_ERR).syndrome, ==,
                         QRNIC_SYN_DMA);
        g_assert_cmpuint(sim_counter(w->region[0]->node,
                                     QRNIC_COUNTER_GE_DMA_FAILED), ==,
                         1);
        pager_free(w);
    }
}

/* Tests page fault commands with a wrong object, state or range. */
static void test_commands(void)
{
    Pager *w = pager_new(1, 1, NULL);
    Region *r = w->region[0];
    QrnicEngine *e = engine_of(r);
    QrnicMkeyCtx ctx = region_ctx(r);
    uint32_t plain = sim_mkey(r->node, PAGE, PAGE, 0);
    QrnicPageRange range = { r->start, PAGE };
    QrnicPageFault f;
    uint32_t number;

    g_assert_cmpint(qrnic_page_fault_query(e, 0xffff, &f).status, ==,
                    QRNIC_ST_BAD_OBJECT);
    g_assert_cmpint(fault_resume(e, w->qp[0]->number << 1, 0), ==,
                    QRNIC_ST_BAD_STATE);
    g_assert_cmpint(qrnic_mkey_invalidate_pages(e, 0xffff, &range).status, ==,
                    QRNIC_ST_BAD_OBJECT);
    g_assert_cmpint(qrnic_mkey_invalidate_pages(e, plain >> 8, &range).status,
                    ==, QRNIC_ST_BAD_STATE);
    range.length = 0;
    g_assert_cmpint(qrnic_mkey_invalidate_pages(e, r->key >> 8, &range).status,
                    ==, QRNIC_ST_BAD_PARAM);
    range = (QrnicPageRange) { r->start + PAGE, BYTES };
    g_assert_cmpint(qrnic_mkey_invalidate_pages(e, r->key >> 8, &range).status,
                    ==, QRNIC_ST_BAD_PARAM);
    range = (QrnicPageRange) { r->start - PAGE, PAGE };
    g_assert_cmpint(qrnic_mkey_invalidate_pages(e, r->key >> 8, &range).status,
                    ==, QRNIC_ST_BAD_PARAM);

    ctx.table.levels = 5;
    g_assert_cmpint(qrnic_mkey_create(e, &ctx).status, ==, QRNIC_ST_BAD_PARAM);
    ctx.table.levels = 0;
    ctx.table.page_shift = 0;
    g_assert_cmpint(qrnic_mkey_create(e, &ctx).status, ==, QRNIC_ST_BAD_PARAM);
    ctx = region_ctx(r);
    ctx.table.levels = 4;
    ctx.start = 0;
    ctx.length = QRNIC_MAX_ON_DEMAND_SIZE + 1;
    g_assert_cmpint(qrnic_mkey_create(e, &ctx).status, ==, QRNIC_ST_BAD_PARAM);
    ctx.length--;
    g_assert_cmpint(qrnic_mkey_create(e, &ctx).status, ==, QRNIC_ST_OK);
    ctx = (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_NULL_MR, .flags = QRNIC_MKEYF_ON_DEMAND,
        .pd = r->node->pd,
    };
    g_assert_cmpint(qrnic_mkey_create(e, &ctx).status, ==, QRNIC_ST_BAD_PARAM);

    /* A queue pair in ERR has no page fault. */
    pager_post(w, QRNIC_WQE_SEND, 0, 0, 100);
    sim_run(w->sim, w->sim->now + 50 * SIM_US);
    g_assert_true(fault_next(w, 0, &number));
    sim_modify(w->qp[0], &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR });
    g_assert_cmpint(fault_resume(e, number, 1), ==, QRNIC_ST_BAD_STATE);
    pager_run(w, NULL);
    expect_status(w->qp[0], QRNIC_WC_WR_FLUSH_ERR);
    pager_free(w);
}

/* Tests more waiting queue pairs than the EQ has room for. */
static void test_full_eq(void)
{
    Pager *w = pager_new(1, 1, NULL);
    const unsigned count = 5 << FAULT_LOG_SIZE;
    SimNode *a = &w->sim->node[0];
    SimQp *qp[5 << FAULT_LOG_SIZE][2];
    SimSge to = { sim_alloc(&w->sim->node[1], PAGE), PAGE };

    to.key = sim_mkey(&w->sim->node[1], to.addr, PAGE,
                      QRNIC_ACCESS_LOCAL_WRITE);
    for (unsigned i = 0; i < count; i++) {
        SimSge sge = {
            w->region[0]->start + i % PAGES * PAGE, 100, w->region[0]->key,
        };
        SimWr wr = {
            .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
            .num_sge = 1,
        };

        qp[i][0] = sim_qp_new(a, 3, 3, 3, 4);
        qp[i][1] = sim_qp_new(&w->sim->node[1], 3, 3, 3, 4);
        sim_connect(qp[i][0], qp[i][1], NULL);
        sim_post_recv(qp[i][1], &to, 1);
        sim_post_send(qp[i][0], &wr);
    }
    sim_run(w->sim, w->sim->now + 50 * SIM_US);
    g_assert_cmpuint(sim_counter(a, QRNIC_COUNTER_PAGE_FAULTS), ==, count);
    /* Two queue pairs whose page faults were not reported yet are gone. */
    sim_modify(qp[count - 1][0], &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR });
    sim_qp_free(qp[count - 2][0]);
    pager_run(w, NULL);
    g_assert_cmpuint(w->faults[0], ==, count - 2);
    for (unsigned i = 0; i < count; i++) {
        if (i != count - 2) {
            sim_qp_free(qp[i][0]);
        }
        sim_qp_free(qp[i][1]);
    }
    pager_free(w);
}

/*
 * Datagrams and unreliable connections: a message to an absent page is lost,
 * the receive WQE stays, and the next message finds the page. A sender waits.
 */
static void unreliable(bool uc)
{
    Pager *w = pager_new(1, 2, NULL);
    SimNode *a = &w->sim->node[0], *b = &w->sim->node[1];
    SimQp *from = uc ? sim_uc_new(a, NULL) :
                       sim_datagram_new(a, QRNIC_QPT_UD, NULL, 5);
    SimQp *to = uc ? sim_uc_new(b, NULL) :
                     sim_datagram_new(b, QRNIC_QPT_UD, NULL, 5);
    QrnicDatagramSeg seg;
    SimSge sge = { w->region[0]->start + 10, 300, w->region[0]->key };
    SimSge recv = { w->region[1]->start + PAGE - 50, 340, w->region[1]->key };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = 1,
    };
    const uint32_t skip = uc ? 0 : 40;

    if (uc) {
        sim_uc_connect(from, to);
    } else {
        seg = sim_datagram_to(to, 5);
        wr.datagram = &seg;
    }
    sim_post_recv(to, &recv, 1);
    for (unsigned i = 0; i < 2; i++) {
        sim_post_send(from, &wr);
        pager_run(w, NULL);
        expect_cqe(from, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        g_assert_cmpuint(sim_counter(b, QRNIC_COUNTER_RX_DROP_PAGE_FAULT), ==,
                         1);
        if (!i) {
            expect_no_cqe(to);
        }
    }
    g_assert_cmpuint(expect_cqe(to, QRNIC_WC_SUCCESS,
                                QRNIC_CQE_RECV).byte_len, ==, 300 + skip);
    g_assert_cmpuint(w->faults[0], ==, 1);
    g_assert_cmpuint(w->faults[1], ==, 1);
    g_assert_cmpmem(content_of(w->region[1]) + PAGE - 50 + skip, 300,
                    content_of(w->region[0]) + 10, 300);

    /* REFUSE_PAGE_FAULT answers the page fault of the sender. */
    w->region[0]->gone = true;
    sim_post_send(from, &wr);
    pager_run(w, NULL);
    g_assert_cmpuint(expect_status(from, QRNIC_WC_LOC_PROT_ERR).syndrome, ==,
                     QRNIC_SYN_PAGE_FAULT);
    sim_qp_free(from);
    sim_qp_free(to);
    pager_free(w);
}

static void test_unreliable(void)
{
    unreliable(true);
    unreliable(false);
}

/*
 * Random traffic over a wire that loses and reorders, while the pager
 * invalidates pages at random.
 */
#define OPS 120
#define SLOT (BYTES / 16)

static void take_some(Pager *w)
{
    GRand *r = w->sim->rand;

    if (!g_rand_int_range(r, 0, 3)) {
        unsigned first = g_rand_int_range(r, 0, PAGES);

        page_take_away(w->region[g_rand_int_range(r, 0, 2)], first,
                  g_rand_int_range(r, 1, PAGES - first + 1));
    }
}

/*
 * Runs random traffic. Each operation has a slot of its own on both sides while
 * it is outstanding.
 */
static void random_traffic(uint32_t seed)
{
    static const uint8_t opcodes[] = {
        QRNIC_WQE_SEND, QRNIC_WQE_RDMA_WRITE, QRNIC_WQE_RDMA_READ,
        QRNIC_WQE_ATOMIC_FETCH_ADD, QRNIC_WQE_ATOMIC_WRITE,
    };
    SimConnect c = sim_connect_default();
    g_autofree uint8_t *a = NULL, *b = NULL;
    GRand *r;
    Pager *w;

    c.timeout = 10;
    c.rnr_retry = 7;
    c.min_rnr_timer = 1 + seed % 5;
    w = pager_new(seed, 1 + seed % 4, &c);
    r = w->sim->rand;
    w->sim->loss = seed % 2 * 10;
    w->sim->reorder = seed % 2 * 30;
    a = g_memdup2(w->region[0]->elsewhere, BYTES);
    b = g_memdup2(w->region[1]->elsewhere, BYTES);
    for (unsigned done = 0; done < OPS; done += 16) {
        for (unsigned i = 0; i < 16; i++) {
            uint8_t opcode = opcodes[g_rand_int_range(r, 0, 5)];
            uint32_t len = g_rand_int_range(r, 1, SLOT / 2);
            uint64_t from = i * SLOT + g_rand_int_range(r, 0, SLOT / 2);
            uint64_t to = i * SLOT + g_rand_int_range(r, 0, SLOT / 2);

            if (opcode == QRNIC_WQE_SEND) {
                pager_receive(w, to, len);
                memcpy(b + to, a + from, len);
            } else if (opcode == QRNIC_WQE_RDMA_WRITE) {
                memcpy(b + to, a + from, len);
            } else if (opcode == QRNIC_WQE_RDMA_READ) {
                memcpy(a + from, b + to, len);
            } else {
                to &= ~7ull;
                len = 8;
            }
            if (opcode == QRNIC_WQE_ATOMIC_FETCH_ADD) {
                memcpy(a + from, b + to, 8);
                stq_le_p(b + to, ldq_le_p(b + to) + 1);
            } else if (opcode == QRNIC_WQE_ATOMIC_WRITE) {
                SimWr wr = {
                    .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED,
                    .remote = w->region[1]->start + to,
                    .rkey = w->region[1]->key, .swap_add = seed + done + i,
                };

                stq_le_p(b + to, wr.swap_add);
                sim_post_send(w->qp[0], &wr);
                continue;
            }
            pager_post(w, opcode, from, to, len);
        }
        pager_run(w, take_some);
        for (unsigned i = 0; i < 16; i++) {
            expect_status(w->qp[0], QRNIC_WC_SUCCESS);
        }
        for (QrnicCqe cqe; sim_poll(w->qp[1], &cqe); ) {
            g_assert_cmpint(cqe.status, ==, QRNIC_WC_SUCCESS);
        }
        g_assert_cmpmem(content_of(w->region[0]), BYTES, a, BYTES);
        g_assert_cmpmem(content_of(w->region[1]), BYTES, b, BYTES);
    }
    g_assert_cmpuint(w->faults[0], >, 10);
    g_assert_cmpuint(w->faults[1], >, 10);
    pager_free(w);
}

static void test_random(void)
{
    const char *seed = getenv("QRNIC_SEED");

    if (seed) {
        random_traffic(atoi(seed));
        return;
    }
    for (uint32_t i = 1; i <= 40; i++) {
        g_test_message("seed %u", i);
        random_traffic(i);
    }
}

/*
 * Runs a test with regions of processes in place of regions with tables. The
 * results are the same.
 */
#define IN_PROCESS(test) \
    static void test##_in_process(void) \
    { \
        pager_processes = true; \
        test(); \
        pager_processes = false; \
    }

IN_PROCESS(test_first_touch)
IN_PROCESS(test_read_only)
IN_PROCESS(test_prefetch)
IN_PROCESS(test_refused)
IN_PROCESS(test_pieces)
IN_PROCESS(test_finite_retries)
IN_PROCESS(test_patience)
IN_PROCESS(test_late_responses)
IN_PROCESS(test_eq_gone)
IN_PROCESS(test_nobody)
IN_PROCESS(test_response_waits_for_context)
IN_PROCESS(test_full_eq)
IN_PROCESS(test_unreliable)
IN_PROCESS(test_random)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/on-demand/first-touch", test_first_touch);
    g_test_add_func("/on-demand/read-only", test_read_only);
    g_test_add_func("/on-demand/prefetch", test_prefetch);
    g_test_add_func("/on-demand/read-again", test_read_again);
    g_test_add_func("/on-demand/refused", test_refused);
    g_test_add_func("/on-demand/shape", test_shape);
    g_test_add_func("/on-demand/pieces", test_pieces);
    g_test_add_func("/on-demand/finite-retries", test_finite_retries);
    g_test_add_func("/on-demand/modify", test_modify);
    g_test_add_func("/on-demand/patience", test_patience);
    g_test_add_func("/on-demand/late-responses", test_late_responses);
    g_test_add_func("/on-demand/eq-gone", test_eq_gone);
    g_test_add_func("/on-demand/nobody", test_nobody);
    g_test_add_func("/on-demand/bad-entry", test_bad_entry);
    g_test_add_func("/on-demand/commands", test_commands);
    g_test_add_func("/on-demand/response-waits-for-context",
                    test_response_waits_for_context);
    g_test_add_func("/on-demand/full-eq", test_full_eq);
    g_test_add_func("/on-demand/unreliable", test_unreliable);
    g_test_add_func("/on-demand/random", test_random);
    g_test_add_func("/shared-virtual/first-touch", test_first_touch_in_process);
    g_test_add_func("/shared-virtual/read-only", test_read_only_in_process);
    g_test_add_func("/shared-virtual/prefetch", test_prefetch_in_process);
    g_test_add_func("/shared-virtual/refused", test_refused_in_process);
    g_test_add_func("/shared-virtual/pieces", test_pieces_in_process);
    g_test_add_func("/shared-virtual/finite-retries",
                    test_finite_retries_in_process);
    g_test_add_func("/shared-virtual/patience", test_patience_in_process);
    g_test_add_func("/shared-virtual/late-responses",
                    test_late_responses_in_process);
    g_test_add_func("/shared-virtual/eq-gone", test_eq_gone_in_process);
    g_test_add_func("/shared-virtual/nobody", test_nobody_in_process);
    g_test_add_func("/shared-virtual/response-waits-for-context",
                    test_response_waits_for_context_in_process);
    g_test_add_func("/shared-virtual/full-eq", test_full_eq_in_process);
    g_test_add_func("/shared-virtual/unreliable", test_unreliable_in_process);
    g_test_add_func("/shared-virtual/random", test_random_in_process);
    return g_test_run();
}
