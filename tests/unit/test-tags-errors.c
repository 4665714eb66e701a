/*
 * Tag matching: messages that fail, queue pairs that are destroyed in the
 * middle of messages, and absent memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/qp/qp.h"
#include "tags-world.h"

static void expect_sender_failed(World *w, uint8_t status)
{
    expect_status(w->from[0], status);
    expect_state(w->from[0], QRNIC_QPS_ERR);
    expect_state(w->to[0], QRNIC_QPS_ERR);
}

static void too_long(uint32_t room, uint32_t len, bool matched)
{
    World *w = world_new(1, 1);
    uint32_t n;

    entry_post(w, add_op(0, 1, ALL), room);
    add(w, 1, 1, ALL);
    settle(w);
    n = send_eager(w, 0, 1, len);
    settle(w);
    if (matched) {
        expect_match(w, 0, 0, QRNIC_WC_SUCCESS, 0, n);
    }
    expect_entry(w, 0, 0, QRNIC_WC_LOC_LEN_ERR, 0);
    expect_nothing(w);
    expect_sender_failed(w, QRNIC_WC_REM_INV_REQ_ERR);
    g_assert_cmpint(w->b->memory[entry_at(w, 0) + room], ==, 0);
    world_free(w);
}

static void test_too_long(void)
{
    too_long(99, 100, false);
    too_long(0, 1, false);
    too_long(999, 1000, true);
}

static void bad_key(bool rndv)
{
    World *w = world_new(1, 1);
    SimSge sge[] = {
        { entry_at(w, 0), 4, w->entry_key },
        { entry_at(w, 0) + 4, 1000, w->entry_key ^ 1 },
    };

    op_post(w, add_op(0, 1, ALL), sge, 2);
    settle(w);
    if (rndv) {
        uint32_t n = send_rndv(w, 0, 1, 500);

        settle(w);
        expect_match(w, 0, 0, QRNIC_WC_SUCCESS, 500, n);
        expect_sent(w, 0);
    } else {
        send_eager(w, 0, 1, 100);
        settle(w);
    }
    expect_entry(w, 0, 0, QRNIC_WC_LOC_PROT_ERR, 0);
    expect_nothing(w);
    expect_state(w->to[0], QRNIC_QPS_ERR);
    world_free(w);
}

static void test_bad_key(void)
{
    bad_key(false);
    bad_key(true);
}

/* Loses all packets of the sender except the first ones. */
static bool lose_rest(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                      void *opaque)
{
    World *w = opaque;

    return from != 0 || w->seen++ < w->gap;
}

enum { TO_ERR, TO_RESET, DESTROY };

static void stop(World *w, unsigned how)
{
    QrnicQpAttr to = {
        .mask = QRNIC_QP_STATE,
        .state = how == TO_ERR ? QRNIC_QPS_ERR : QRNIC_QPS_RESET,
    };

    if (how == DESTROY) {
        sim_qp_free(w->to[0]);
        w->to[0] = NULL;
    } else {
        sim_modify(w->to[0], &to);
    }
    sim_run(w->sim, w->sim->now + 20 * SIM_US);
}

/*
 * Stops the queue pair in the middle of messages. A matched message completes;
 * an unexpected one is not counted.
 */
static void cut_short(unsigned how)
{
    World *w = world_new(1, 2);
    uint32_t n;

    /* The message is eager, and only the first of its packets arrives. */
    add(w, 0, 1, ALL);
    settle(w);
    w->gap = 1;
    w->sim->tap = lose_rest;
    w->sim->tap_opaque = w;
    n = send_eager(w, 0, 1, 1000);
    g_assert_false(sim_run(w->sim, w->sim->now + 20 * SIM_US));
    expect_match(w, 0, 0, QRNIC_WC_SUCCESS, 0, n);
    stop(w, how);
    expect_entry(w, 0, 0, QRNIC_WC_WR_FLUSH_ERR, 0);
    expect_nothing(w);
    w->sim->tap = NULL;
    n = send_eager(w, 1, 5, 10);
    sim_run(w->sim, w->sim->now + 20 * SIM_US);
    expect_unexpected(w, 0, n, HEADER + 10);
    world_free(w);
}

/*
 * Stops the queue pair in the middle of rendezvous. max_rd_atomic allows four
 * of the reads, and no response arrives.
 */
static void cut_short_rndv(unsigned how, unsigned count)
{
    World *w = world_new(1, 1);
    uint32_t n[8];

    g_assert_cmpint(count, <=, G_N_ELEMENTS(n));
    for (unsigned i = 0; i < count; i++) {
        add(w, i, 1, ALL);
    }
    settle(w);
    w->gap = count;
    w->sim->tap = lose_rest;
    w->sim->tap_opaque = w;
    for (unsigned i = 0; i < count; i++) {
        n[i] = send_rndv(w, 0, 1, 3000);
    }
    g_assert_false(sim_run(w->sim, w->sim->now + 20 * SIM_US));
    for (unsigned i = 0; i < count; i++) {
        expect_match(w, i, 0, QRNIC_WC_SUCCESS, 3000, n[i]);
    }
    stop(w, how);
    for (unsigned i = 0; i < count; i++) {
        expect_entry(w, i, 0, QRNIC_WC_WR_FLUSH_ERR, 0);
    }
    expect_nothing(w);
    /* The handles are free. */
    add(w, 1, 1, ALL);
    sim_run(w->sim, w->sim->now + 20 * SIM_US);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    world_free(w);
}

static void cut_short_unexpected(unsigned how)
{
    World *w = world_new(1, 2);
    uint32_t n;
    QrnicCqe c;

    w->gap = 1;
    w->sim->tap = lose_rest;
    w->sim->tap_opaque = w;
    send_eager(w, 0, 1, 1000);
    g_assert_false(sim_run(w->sim, w->sim->now + 20 * SIM_US));
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_UNEXPECTED), ==, 1);
    w->sim->tap = NULL;
    add(w, 0, 2, ALL);
    n = send_eager(w, 1, 2, 10);
    sim_run(w->sim, w->sim->now + 5 * SIM_US);
    expect_unexpected(w, SYNC, n, HEADER + 10);
    stop(w, how);
    if (how == TO_ERR) {
        c = next_cqe(w);
        g_assert_cmpint(c.status, ==, QRNIC_WC_WR_FLUSH_ERR);
        g_assert_cmphex(c.tagged, ==, 0);
    }
    expect_nothing(w);
    /* One message remains, and software has reported it. */
    op_post(w, sync_op(1), NULL, 0);
    sim_run(w->sim, w->sim->now + 5 * SIM_US);
    expect_op(w, QRNIC_CQE_TAG_SYNC, QRNIC_WC_SUCCESS, 0, 0);
    n = send_eager(w, 1, 2, 10);
    sim_run(w->sim, w->sim->now + 5 * SIM_US);
    expect_eager(w, 0, n, 10);
    world_free(w);
}

static void test_cut_short(void)
{
    for (unsigned how = TO_ERR; how <= DESTROY; how++) {
        cut_short(how);
        cut_short_rndv(how, 3);
        cut_short_rndv(how, 7);
        cut_short_unexpected(how);
    }
}

/* Tests a list that is destroyed before it has completed entries in use. */
static void test_gone(void)
{
    World *w = world_new(1, 1);
    uint32_t n;

    add(w, 0, 1, ALL);
    settle(w);
    w->gap = 1;
    w->sim->tap = lose_rest;
    w->sim->tap_opaque = w;
    n = send_rndv(w, 0, 1, 3000);
    g_assert_false(sim_run(w->sim, w->sim->now + 20 * SIM_US));
    expect_match(w, 0, 0, QRNIC_WC_SUCCESS, 3000, n);
    sim_qp_free(w->to[0]);
    w->to[0] = NULL;
    sim_srq_free(w->srq);
    w->srq = sim_srq_new(w->b, LOG_SLOTS, 0);
    sim_run(w->sim, w->sim->now + 20 * SIM_US);
    expect_nothing(w);
    world_free(w);
}

/*
 * Tests that a device reset in the middle of everything leaves nothing, because
 * the driver frees the memory afterwards.
 */
static void test_reset(void)
{
    World *w = world_new(1, 2);

    for (unsigned i = 0; i < 8; i++) {
        add(w, i, i / 4, ALL);
    }
    settle(w);
    w->gap = 5;
    w->sim->tap = lose_rest;
    w->sim->tap_opaque = w;
    for (unsigned i = 0; i < 3; i++) {
        send_rndv(w, 0, 0, 3000);
    }
    send_eager(w, 1, 1, 3000);
    send_eager(w, 0, 9, 3000);
    g_assert_false(sim_run(w->sim, w->sim->now + 20 * SIM_US));
    sim_reset(w->b);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_MATCHES), ==, 0);
    for (unsigned i = 0; i < w->peers; i++) {
        sim_qp_free(w->from[i]);
        g_free(w->to[i]);
    }
    g_free(w->srq->next);
    g_free(w->srq);
    g_free(w->cq);
    sim_free(w->sim);
    g_free(w);
}

static bool first_of_sender(Sim *s, unsigned from, const uint8_t *frame,
                            size_t len, void *opaque)
{
    unsigned *left = opaque;

    return from || (*left && (*left)--);
}

/*
 * Sends a message that has matched an entry and waits for a page. A write
 * arrives in its place, which is rejected, and the entry completes.
 */
static void other_message(bool adaptive)
{
    World *w = world_new(1, 1);
    SimNode *n = w->b;
    QrnicEqCtx eq = {
        .type = QRNIC_EQ_PAGE_FAULT, .log_size = 4, .vector = 2,
        .ring.root = sim_alloc(n, QRNIC_EQE_SIZE << 4),
    };
    const QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_ON_DEMAND,
        .access = ACCESS_ALL, .variant = 3, .pd = n->pd,
        .start = 0x7f0000000000, .length = 4096,
        .table = { .root = sim_alloc(n, 4096), .levels = 1, .page_shift = 12 },
    };
    SimSge sge = { ctx.start, 256, sim_mkey_ctx(n, &ctx) };
    QrnicPathSpec spec = sim_path_to(w->to[0], w->from[0]);
    QrnicTagOp op = add_op(5, 0x77, ~0ull);
    uint8_t frame[200], *payload;
    QrnicTransport t;
    unsigned left = 1;
    bool told = false;
    QrnicPath path;
    QrnicCqe c;

    g_assert_cmpint(qrnic_eq_create(n->engine, &eq).status, ==, QRNIC_ST_OK);
    op.data_segments = 1;
    op_post(w, op, &sge, 1);
    settle(w);
    while (sim_poll(w->cq, &c)) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
    }
    t = (QrnicTransport) {
        .opcode = QRNIC_OP_RC_WRITE_ONLY_IMM, .ack_req = true,
        .psn = sim_query(w->to[0]).rq_psn, .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = w->to[0]->number,
        .mark = adaptive ? QRNIC_MARK_PLACES | QRNIC_MARK_ADAPTIVE : 0,
    };
    if (adaptive) {
        qrnic_qp_get(n->engine, w->to[0]->number)->attr.options =
            QRNIC_QPO_ADAPTIVE_ROUTING;
    }
    w->sim->tap = first_of_sender;
    w->sim->tap_opaque = &left;
    send_eager(w, 0, 0x77, 100);
    sim_run(w->sim, w->sim->now + SIM_MS);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_PAGE_FAULTS), ==, 1);
    qrnic_path_init(&path, &spec);
    payload = qrnic_packet_begin(&path, frame, &t, 0);
    sim_inject(w->sim, 1, frame, qrnic_packet_finish(&path, frame, payload, 0));
    sim_run(w->sim, w->sim->now + SIM_MS);
    expect_state(w->to[0], QRNIC_QPS_ERR);
    while (sim_poll(w->cq, &c)) {
        told |= c.tagged & QRNIC_CQET_ENTRY && c.index == 5;
    }
    while (sim_poll(w->to[0], &c)) {
        g_assert_cmpint(c.status, !=, QRNIC_WC_SUCCESS);
        told |= c.tagged & QRNIC_CQET_ENTRY && c.index == 5;
    }
    g_assert_true(told);
    /* The handle is free for software. */
    op.flags = QRNIC_TAGF_SIGNALED;
    op_post(w, op, &sge, 1);
    sim_run(w->sim, w->sim->now + SIM_MS);
    g_assert_true(sim_poll(w->cq, &c));
    g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
    world_free(w);
}

static void test_other_message(void)
{
    other_message(false);
}

/*
 * Tests a write that has the mark of adaptive routing, over a connection that
 * has the option.
 */
static void test_other_adaptive(void)
{
    other_message(true);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tags/too-long", test_too_long);
    g_test_add_func("/tags/bad-key", test_bad_key);
    g_test_add_func("/tags/cut-short", test_cut_short);
    g_test_add_func("/tags/gone", test_gone);
    g_test_add_func("/tags/reset", test_reset);
    g_test_add_func("/tags/other-message", test_other_message);
    g_test_add_func("/tags/other-adaptive", test_other_adaptive);
    return g_test_run();
}
