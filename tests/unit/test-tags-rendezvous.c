/*
 * Tag matching: rendezvous messages, whose data the device reads itself
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "tags-world.h"

static void test_rndv(void)
{
    World *w = world_new(1, 1);
    const uint32_t len[] = { 0, 1, 255, 256, 257, 3000, BUFFER };
    uint64_t bytes = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(len); i++) {
        uint32_t n;

        add(w, i, 0x1234567890abcdef, ALL);
        settle(w);
        n = send_rndv(w, 0, 0x1234567890abcdef, len[i]);
        settle(w);
        expect_rndv(w, i, n, len[i]);
        expect_sent(w, 0);
        expect_fin(w, 0, n);
        bytes += len[i];
    }
    expect_nothing(w);
    expect_no_cqe(w->to[0]);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_RENDEZVOUS), ==, ARRAY_SIZE(len));
    g_assert_cmpint(counted(w, QRNIC_COUNTER_RENDEZVOUS_BYTES), ==, bytes);
    world_free(w);
}

/*
 * Tests many rendezvous at a time, while software sends messages in both
 * directions.
 */
static void test_rndv_busy(void)
{
    World *w = world_new(1, 1);
    SimSge own = { w->entries, 20, w->entry_key };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .sge = &own,
        .num_sge = 1,
    };
    unsigned sends = 0, fins = 0, matches = 0, valid = 0;
    QrnicCqe c;

    for (unsigned i = 0; i < 12; i++) {
        add(w, i, i, ALL);
    }
    settle(w);
    for (unsigned i = 0; i < 12; i++) {
        sim_post_send(w->to[0], &wr);
        send_rndv(w, 0, 11 - i, 4000);
    }
    settle(w);
    while (sim_poll(w->to[0], &c)) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
        g_assert_cmpint(c.opcode, ==, QRNIC_CQE_SEND);
        g_assert_cmpint(c.index, ==, sends++);
    }
    g_assert_cmpint(sends, ==, 12);
    while (sim_poll(w->from[0], &c)) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
        fins += c.opcode == QRNIC_CQE_RECV && c.byte_len == HEADERS;
    }
    g_assert_cmpint(fins, ==, 12);
    while (sim_poll(w->cq, &c)) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
        if (c.tagged == (ENTRY | MATCH)) {
            g_assert_cmpint(c.index, ==, 11 - matches++);
        } else {
            g_assert_cmphex(c.tagged, ==, ENTRY | VALID);
            g_assert_cmpint(c.index, ==, 11 - valid++);
        }
    }
    g_assert_cmpint(matches, ==, 12);
    g_assert_cmpint(valid, ==, 12);
    for (unsigned i = 0; i < 12; i++) {
        g_assert_cmpmem(w->b->memory + entry_at(w, 11 - i), 4000,
                        data_of(w, i), 4000);
    }
    world_free(w);
}

/*
 * Tests a match in RTR. The data is read in RTS, because a queue pair in RTR
 * may not send requests.
 */
static void test_rndv_early(void)
{
    World *w = world_bare(1, 1, NULL);
    QrnicQpAttr init = sim_attr_init(), rts = sim_attr_rts(), attr;
    uint32_t n;

    attr = sim_attr_rtr(w->from[0], w->to[0]);
    sim_modify(w->from[0], &init);
    sim_modify(w->from[0], &attr);
    sim_modify(w->from[0], &rts);
    attr = sim_attr_rtr(w->to[0], w->from[0]);
    sim_modify(w->to[0], &init);
    sim_modify(w->to[0], &attr);
    post_fin(w, 0);
    add(w, 0, 1, ALL);
    settle(w);
    n = send_rndv(w, 0, 1, 1000);
    settle(w);
    expect_match(w, 0, 0, QRNIC_WC_SUCCESS, 1000, n);
    expect_nothing(w);
    sim_modify(w->to[0], &rts);
    settle(w);
    expect_entry(w, 0, VALID, QRNIC_WC_SUCCESS, 1000);
    expect_sent(w, 0);
    expect_fin(w, 0, n);
    world_free(w);
}

/*
 * Asserts that software must complete a rendezvous that is too long, or that
 * the queue pair may not read.
 */
static void incomplete(uint32_t room, uint32_t len, bool may_read,
                       uint8_t syndrome)
{
    World *w = world_bare(1, 1, NULL);
    SimConnect c = sim_connect_default();
    uint32_t n;
    QrnicCqe cqe;

    c.rd_atomic = may_read ? 4 : 0;
    sim_connect(w->from[0], w->to[0], &c);
    post_fin(w, 0);
    post_wqe(w);
    entry_post(w, add_op(0, 1, ALL), room);
    settle(w);
    n = send_rndv(w, 0, 1, len);
    settle(w);
    cqe = expect_entry(w, 0, MATCH, QRNIC_WC_TM_RNDV_INCOMPLETE,
                       MIN(room, HEADERS));
    g_assert_cmpint(cqe.syndrome, ==, syndrome);
    g_assert_cmpmem(w->b->memory + entry_at(w, 0), MIN(room, HEADERS),
                    source_of(w, n), MIN(room, HEADERS));
    g_assert_cmpint(w->b->memory[entry_at(w, 0) + MIN(room, HEADERS)], ==, 0);
    expect_sent(w, 0);
    expect_no_cqe(w->from[0]);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_RENDEZVOUS_REFUSED), ==, 1);
    /* The connection continues, and the handle is free. */
    add(w, 0, 1, ALL);
    n = send_eager(w, 0, 1, 10);
    settle(w);
    expect_eager(w, 0, n, 10);
    world_free(w);
}

static void test_incomplete(void)
{
    incomplete(1000, 1001, true, QRNIC_SYN_TAG_LENGTH);
    incomplete(1000, 0xffffffff, true, QRNIC_SYN_TAG_LENGTH);
    incomplete(20, 21, true, QRNIC_SYN_TAG_LENGTH);
    incomplete(0, 1, true, QRNIC_SYN_TAG_LENGTH);
    incomplete(1000, 1000, false, QRNIC_SYN_RD_ATOMIC);
}

/* Tests that the sender's wrong key is an error of its own connection. */
static void test_bad_rkey(void)
{
    World *w = world_new(1, 2);
    uint32_t n;

    add(w, 0, 1, ALL);
    add(w, 1, 1, ALL);
    settle(w);
    rndv_put(w, 1, w->data_key ^ 1, 100);
    n = send_raw(w, 0, HEADERS, 0);
    settle(w);
    expect_match(w, 0, 0, QRNIC_WC_SUCCESS, 100, n);
    expect_entry(w, 0, 0, QRNIC_WC_REM_ACCESS_ERR, 0);
    expect_state(w->to[0], QRNIC_QPS_ERR);
    n = send_rndv(w, 1, 1, 100);
    settle(w);
    expect_rndv(w, 1, n, 100);
    expect_state(w->to[1], QRNIC_QPS_RTS);
    world_free(w);
}

/* Tests a sender without a WQE for the FIN: an event reports that. */
static void test_fin_refused(void)
{
    World *w = world_bare(1, 1, NULL);
    SimConnect c = sim_connect_default();
    uint32_t n;
    QrnicEqe e;

    c.rnr_retry = 1;
    sim_connect(w->from[0], w->to[0], &c);
    add(w, 0, 1, ALL);
    settle(w);
    n = send_rndv(w, 0, 1, 100);
    settle(w);
    expect_rndv(w, 0, n, 100);
    expect_nothing(w);
    expect_state(w->to[0], QRNIC_QPS_ERR);
    do {
        g_assert_true(sim_poll_event(w->b, &e));
    } while (e.type != QRNIC_EVENT_QP_FATAL);
    g_assert_cmpint(e.subtype, ==, QRNIC_WC_RNR_RETRY_EXC_ERR);
    g_assert_cmpint(e.object, ==, w->to[0]->number);
    world_free(w);
}

/* Loses each frame of a rendezvous once. */
static bool lose_one(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                     void *opaque)
{
    World *w = opaque;

    return w->seen++ != w->gap;
}

static void test_each_loss(void)
{
    for (unsigned gap = 0; ; gap++) {
        World *w = world_new(1, 1);
        unsigned sends = 0, fins = 0;
        uint32_t n, m;
        QrnicCqe c;
        bool lost;

        add(w, 0, 1, ALL);
        add(w, 1, 2, ALL);
        settle(w);
        w->gap = gap;
        w->sim->tap = lose_one;
        w->sim->tap_opaque = w;
        n = send_rndv(w, 0, 1, 1500);
        settle(w);
        m = send_eager(w, 0, 2, 700);
        settle(w);
        expect_rndv(w, 0, n, 1500);
        expect_match(w, 1, 0, QRNIC_WC_SUCCESS, 0, m);
        expect_entry(w, 1, VALID, QRNIC_WC_SUCCESS, 700);
        expect_eager_data(w, 1, m, 700);
        expect_nothing(w);
        /* The FIN may arrive before the ACK of its request. */
        while (sim_poll(w->from[0], &c)) {
            g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
            fins += c.opcode == QRNIC_CQE_RECV;
            sends += c.opcode == QRNIC_CQE_SEND;
        }
        g_assert_cmpint(sends, ==, 2);
        g_assert_cmpint(fins, ==, 1);
        lost = w->seen > gap;
        world_free(w);
        if (!lost) {
            g_assert_cmpint(gap, >, 12);
            return;
        }
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tags/rndv", test_rndv);
    g_test_add_func("/tags/rndv-busy", test_rndv_busy);
    g_test_add_func("/tags/rndv-early", test_rndv_early);
    g_test_add_func("/tags/incomplete", test_incomplete);
    g_test_add_func("/tags/bad-rkey", test_bad_rkey);
    g_test_add_func("/tags/fin-refused", test_fin_refused);
    g_test_add_func("/tags/each-loss", test_each_loss);
    return g_test_run();
}
