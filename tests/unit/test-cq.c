/*
 * Completion queues that change while they are in use: size, moderation
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/queue/queue.h"
#include "pair.h"

/* Resizing */

static void nop(SimQp *q, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        SimWr wr = { .opcode = QRNIC_WQE_NOP, .flags = QRNIC_WQEF_SIGNALED };

        sim_post_send(q, &wr);
    }
}

static void settle(Pair *p)
{
    g_assert_true(sim_run(p->sim, INT64_MAX));
}

static void consume(SimQp *q, unsigned count, uint32_t *index)
{
    while (count--) {
        QrnicCqe c = expect_cqe(q, QRNIC_WC_SUCCESS, QRNIC_CQE_NOP);

        g_assert_cmpint(c.index, ==, (*index)++);
    }
}

static QrnicResult resize(SimQp *q, uint8_t log_size)
{
    QrnicCqResize in = { .log_size = log_size };
    QrnicResult r;

    in.ring.root = sim_alloc(q->node, QRNIC_CQE_SIZE << log_size);
    r = qrnic_cq_resize(q->node->engine, q->cq, &in);
    if (r.status == QRNIC_ST_OK) {
        q->cq_ring = in.ring.root;
        q->cq_log = log_size;
    }
    return r;
}

/*
 * Resizes at every fill level, consumer index, old and new size. All CQEs
 * remain, no other appears, and the CQ works for more than one pass.
 */
static void test_resize(void)
{
    SimOptions o = { .memory = 8 << 20 };

    for (unsigned from = 1; from <= 4; from++) {
        for (unsigned to = 0; to <= 5; to++) {
            for (unsigned done = 0; done < 40; done += 7) {
                Pair *p = pair_new(3, &o, NULL);
                SimQp *q = sim_qp_new(p->sim->node, 6, 0, 0, from);
                SimQp *other = sim_qp_new(p->sim->node + 1, 6, 0, 0, 2);
                unsigned fill = done % ((1u << from) + 1);
                uint32_t index = 0;

                sim_connect(q, other, NULL);
                for (unsigned i = 0; i < done; i++) {
                    nop(q, 1);
                    settle(p);
                    consume(q, 1, &index);
                }
                nop(q, fill);
                settle(p);
                if (fill > 1u << to) {
                    g_assert_cmpint(resize(q, to).status, ==,
                                    QRNIC_ST_BAD_PARAM);
                } else {
                    g_assert_cmpint(resize(q, to).status, ==, QRNIC_ST_OK);
                }
                consume(q, fill, &index);
                expect_no_cqe(q);
                for (unsigned i = 0; i < 80; i++) {
                    nop(q, 1);
                    settle(p);
                    consume(q, 1, &index);
                    expect_no_cqe(q);
                }
                /*
                 * The CQ is filled with exactly as many CQEs as it has entries.
                 */
                nop(q, 1u << q->cq_log);
                settle(p);
                consume(q, 1u << q->cq_log, &index);
                expect_no_event(q->node);
                sim_qp_free(q);
                sim_qp_free(other);
                pair_free(p);
            }
        }
    }
}

/* Posts in portions of the send queue's size, without polling. */
static void nops(Pair *p, SimQp *q, unsigned count)
{
    for (unsigned n; count; count -= n) {
        n = MIN(count, 32);
        nop(q, n);
        settle(p);
    }
}

/*
 * Resizes over several runs, with CQEs in each. Returns the result. *count: new
 * CQEs.
 */
static QrnicResult resize_in_turns(Pair *p, SimQp *q, uint8_t log_size,
                                   unsigned each_turn, unsigned *count)
{
    QrnicCqResize in = { .log_size = log_size };
    SimNode *n = q->node;
    QrnicResult r;
    unsigned turns = 0;

    in.ring.root = sim_alloc(n, QRNIC_CQE_SIZE << log_size);
    r = qrnic_cq_resize(n->engine, q->cq, &in);
    g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
    for (*count = 0; qrnic_command_unfinished(n->engine); turns++) {
        uint64_t before = sim_work(n);

        nop(q, each_turn);
        *count += each_turn;
        g_assert_true(n->kicked);
        n->kicked = false;
        qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
        /* 64 KiB are moved in accesses of 4 KiB, and some CQEs are written. */
        g_assert_cmpuint(sim_work(n) - before, <=, 64 + 16 * each_turn);
    }
    settle(p);
    r = qrnic_cq_resize_result(n->engine);
    if (r.status == QRNIC_ST_OK) {
        g_assert_cmpuint(turns, >=, (1u << log_size) / 1024);
        q->cq_ring = in.ring.root;
        q->cq_log = log_size;
    }
    return r;
}

static void check_in_turns(unsigned from, unsigned to, unsigned skip,
                           unsigned fill, unsigned each_turn)
{
    Pair *p = pair_new(3, NULL, NULL);
    SimQp *q = sim_qp_new(p->sim->node, 6, 0, 0, from);
    SimQp *other = sim_qp_new(p->sim->node + 1, 6, 0, 0, 2);
    unsigned more, size = 1u << to;
    uint32_t index = 0;

    sim_connect(q, other, NULL);
    for (unsigned done = 0; done < skip; done += 32) {
        nops(p, q, 32);
        consume(q, 32, &index);
    }
    nops(p, q, fill);
    g_assert_cmpint(resize_in_turns(p, q, to, each_turn, &more).status, ==,
                    QRNIC_ST_OK);
    consume(q, fill + more, &index);
    expect_no_cqe(q);
    for (unsigned done = 0; done < 2 * size + 64; done += 32) {
        nops(p, q, 32);
        consume(q, 32, &index);
        expect_no_cqe(q);
    }
    sim_qp_free(q);
    sim_qp_free(other);
    pair_free(p);
}

static void test_resize_turns(void)
{
    check_in_turns(12, 13, 0, 1000, 7);
    check_in_turns(12, 13, 4096, 3000, 7);
    check_in_turns(13, 12, 0, 3000, 20);
    check_in_turns(13, 12, 8192 + 4000, 100, 32);
    check_in_turns(11, 12, 2000, 0, 32);
}

/*
 * Tests that a failed resize leaves the CQ in its old ring, so that no CQE is
 * lost.
 */
static void test_resize_turns_refused(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    SimQp *q = sim_qp_new(p->sim->node, 6, 0, 0, 12);
    SimQp *other = sim_qp_new(p->sim->node + 1, 6, 0, 0, 2);
    SimNode *n = q->node;
    unsigned more;
    uint32_t index = 0;
    QrnicResult r;

    sim_connect(q, other, NULL);
    nops(p, q, 1020);
    /* More than 1024 CQEs arrive at the end. */
    r = resize_in_turns(p, q, 10, 32, &more);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(r.syndrome, ==, QRNIC_CQ_RESIZE_LOG_SIZE_OFFSET);
    consume(q, 1020 + more, &index);
    expect_no_cqe(q);
    /* The end of the new ring is no memory. */
    n->broken_from = n->allocated + (QRNIC_CQE_SIZE << 11);
    n->broken_to = n->broken_from + 4096;
    r = resize_in_turns(p, q, 12, 7, &more);
    g_assert_cmpint(r.status, ==, QRNIC_ST_DMA);
    n->broken_from = n->broken_to = 0;
    consume(q, more, &index);
    nops(p, q, 100);
    consume(q, 100, &index);
    expect_no_cqe(q);
    sim_qp_free(q);
    sim_qp_free(other);
    pair_free(p);
}

static void test_resize_turns_reset(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    SimQp *q = p->a.qp;
    QrnicEngine *e = q->node->engine;
    QrnicCqResize in = { .log_size = 13 };

    in.ring.root = sim_alloc(q->node, QRNIC_CQE_SIZE << 13);
    g_assert_cmpint(qrnic_cq_resize(e, q->cq, &in).status, ==, QRNIC_ST_OK);
    g_assert_true(qrnic_command_unfinished(e));
    sim_reset(q->node);
    g_assert_false(qrnic_command_unfinished(e));
    qrnic_engine_run(e, QRNIC_RUN_ROUNDS);
    g_free(p->a.qp);
    g_free(p->b.qp);
    sim_free(p->sim);
    g_free(p);
}

static void test_resize_refused(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    SimQp *q = p->a.qp;
    QrnicEngine *e = q->node->engine;
    QrnicCqResize in = { .log_size = 21, .ring.root = 4096 };
    QrnicResult r = qrnic_cq_resize(e, q->cq, &in);
    uint32_t index = 0;

    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(r.syndrome, ==, QRNIC_CQ_RESIZE_LOG_SIZE_OFFSET);
    in.log_size = 2;
    in.ring.levels = 5;
    g_assert_cmpint(qrnic_cq_resize(e, q->cq, &in).status, ==,
                    QRNIC_ST_BAD_PARAM);
    in.ring = (QrnicTranslation) { .root = q->node->memory_size };
    g_assert_cmpint(qrnic_cq_resize(e, q->cq, &in).status, ==, QRNIC_ST_DMA);
    g_assert_cmpint(qrnic_cq_resize(e, 200, &in).status, ==,
                    QRNIC_ST_BAD_OBJECT);
    /* The old ring still works. */
    nop(q, 3);
    settle(p);
    consume(q, 3, &index);
    pair_free(p);
}

/* Moderation */

static void moderate(SimQp *q, uint16_t count, uint16_t period)
{
    QrnicCqModeration in = { .count = count, .period = period };

    g_assert_cmpint(qrnic_cq_modify(q->node->engine, q->cq, &in).status, ==,
                    QRNIC_ST_OK);
}

static void after(Pair *p, int64_t us)
{
    sim_run(p->sim, p->sim->now + us * SIM_US);
}

static void test_moderation_count(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    SimQp *q = p->a.qp;

    moderate(q, 3, 0);
    sim_cq_arm(q);
    nop(q, 2);
    settle(p);
    g_assert_cmpint(sim_cq_events(q->node), ==, 0);
    nop(q, 1);
    settle(p);
    g_assert_cmpint(sim_cq_events(q->node), ==, 1);
    nop(q, 5);
    settle(p);
    g_assert_cmpint(sim_cq_events(q->node), ==, 0);     /* Not armed */
    sim_cq_arm(q);              /* Five CQEs have no event yet */
    settle(p);
    g_assert_cmpint(sim_cq_events(q->node), ==, 1);
    /* The event comes at once without moderation, and when moderation ends. */
    moderate(q, 20, 0);
    nop(q, 1);
    sim_cq_arm(q);
    settle(p);
    g_assert_cmpint(sim_cq_events(q->node), ==, 0);
    moderate(q, 0, 0);
    g_assert_cmpint(sim_cq_events(q->node), ==, 1);
    pair_free(p);
}

static void test_moderation_period(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    SimQp *q = p->a.qp;

    moderate(q, 10, 50);
    sim_cq_arm(q);
    after(p, 100);
    g_assert_cmpint(sim_cq_events(q->node), ==, 0);     /* No CQE exists */
    nop(q, 1);
    after(p, 30);
    nop(q, 1);
    after(p, 19);
    g_assert_cmpint(sim_cq_events(q->node), ==, 0);
    after(p, 2);                /* 50 us after the first, not the second */
    g_assert_cmpint(sim_cq_events(q->node), ==, 1);
    after(p, 200);
    g_assert_cmpint(sim_cq_events(q->node), ==, 0);
    /* The count is reached before the time, and cancels the timer. */
    sim_cq_arm(q);
    nop(q, 10);
    after(p, 5);
    g_assert_cmpint(sim_cq_events(q->node), ==, 1);
    after(p, 200);
    g_assert_cmpint(sim_cq_events(q->node), ==, 0);
    /* A destroyed CQ cancels its timer. */
    sim_cq_arm(q);
    nop(q, 1);
    after(p, 5);
    moderate(q, 20, 50);
    pair_free(p);
}

static void arm_solicited(SimQp *q)
{
    uint8_t *record = q->node->memory + q->cq_record;

    sim_cq_arm(q);
    stl_le_p(record + QRNIC_CQ_RECORD_ARM_OFFSET, q->cq_arm | 1u << 31);
}

/*
 * Tests that a second request with lower values keeps the pending timer of the
 * first.
 */
static void test_moderation_second(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    SimQp *q = p->a.qp;

    moderate(q, 10, 50);
    sim_cq_arm(q);
    nop(q, 1);
    after(p, 30);
    arm_solicited(q);
    after(p, 19);
    g_assert_cmpint(sim_cq_events(q->node), ==, 0);
    after(p, 2);
    g_assert_cmpint(sim_cq_events(q->node), ==, 1);
    pair_free(p);
}

/*
 * Tests a deadline that equals one from before the reset, which the timer of
 * the environment does not know.
 */
static void test_moderation_reset(void)
{
    Pair *p = pair_new(3, NULL, NULL);
    SimNode *n = p->a.qp->node;

    for (int i = 0; i < 2; i++) {
        SimQp *q = sim_qp_new(n, 6, 0, 0, 4);
        SimQp *peer = sim_qp_new(p->b.qp->node, 6, 0, 0, 4);

        sim_connect(q, peer, NULL);
        moderate(q, 10, 50);
        sim_cq_arm(q);
        nop(q, 1);
        after(p, 0);
        g_assert_cmpint(n->deadline, ==, p->sim->now + 50 * SIM_US);
        sim_qp_free(peer);
        g_free(q);
        if (!i) {
            sim_reset(n);
        }
    }
    after(p, 51);
    g_assert_cmpint(sim_cq_events(n), ==, 1);
    g_free(p->a.qp);
    sim_qp_free(p->b.qp);
    sim_free(p->sim);
    g_free(p);
}

/*
 * Tests the index of the last solicited CQE after more than half of all indices
 * have passed. The last solicited CQE must not count as new. The indices are
 * moved, because so many CQEs take too long.
 */
static void test_solicited_long_ago(void)
{
    static const uint32_t at[] = { 0x40000000, 0x80000010, 0xc0000000, 16 };
    Pair *p = pair_new(3, NULL, NULL);
    SimQp *q = p->a.qp;
    QrnicCq *cq = qrnic_cq_get(q->node->engine, q->cq);

    for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
        cq->producer = cq->consumer = q->cq_consumer = at[i];
        stl_le_p(q->node->memory + q->cq_record, at[i]);
        arm_solicited(q);
        settle(p);
        g_assert_cmpint(sim_cq_events(q->node), ==, 0);
    }
    pair_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cq/resize", test_resize);
    g_test_add_func("/cq/resize/turns", test_resize_turns);
    g_test_add_func("/cq/resize/turns-refused", test_resize_turns_refused);
    g_test_add_func("/cq/resize/turns-reset", test_resize_turns_reset);
    g_test_add_func("/cq/resize-refused", test_resize_refused);
    g_test_add_func("/cq/moderation-count", test_moderation_count);
    g_test_add_func("/cq/moderation-period", test_moderation_period);
    g_test_add_func("/cq/moderation-second", test_moderation_second);
    g_test_add_func("/cq/moderation-reset", test_moderation_reset);
    g_test_add_func("/cq/solicited-long-ago", test_solicited_long_ago);
    return g_test_run();
}
