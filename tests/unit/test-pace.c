/*
 * Rate limits in virtual time: bytes over time, bursts, and the separation of
 * waiting from loss
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "pair.h"

typedef struct Seen {
    int64_t first, last;
    uint64_t bytes, frames, most;       /* most: bytes above the rate */
    uint64_t rate;                      /* kbit/s */
} Seen;

/*
 * Records the most that node 0 has sent above the rate since its first frame.
 */
static bool watch(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                  void *opaque)
{
    Seen *seen = opaque;

    if (from == 0) {
        uint64_t allowed;

        if (!seen->frames++) {
            seen->first = s->now;
        }
        seen->last = s->now;
        seen->bytes += len;
        allowed = (s->now - seen->first) * seen->rate / 8000000;
        if (seen->bytes > allowed) {
            seen->most = MAX(seen->most, seen->bytes - allowed);
        }
    }
    return true;
}

static void limit(SimQp *q, uint32_t rate, uint32_t burst)
{
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_RATE_LIMIT, .rate_limit = rate,
        .max_burst_sz = burst, .typical_pkt_sz = 100,
    };
    QrnicQpAttr now;

    g_assert_cmpint(sim_modify(q, &attr).status, ==, QRNIC_ST_OK);
    now = sim_query(q);
    g_assert_cmpuint(now.rate_limit, ==, rate);
    g_assert_cmpuint(now.max_burst_sz, ==, burst);
    g_assert_cmpuint(now.typical_pkt_sz, ==, 100);
}

static void run(Sim *s)
{
    g_assert_true(sim_run(s, s->now + 100000 * SIM_MS));
}

/* Asserts that time and excess are within the bounds of the manual. */
static void check(const Seen *seen, uint64_t burst)
{
    const uint64_t frame = 1200;
    uint64_t due = seen->bytes * 8000000 / seen->rate;
    uint64_t slack = (burst + 2 * frame) * 8000000 / seen->rate;
    uint64_t took = seen->last - seen->first;

    g_assert_cmpuint(seen->most, <=, burst + frame);
    g_assert_cmpuint(took, <=, due);
    g_assert_cmpuint(took + slack, >=, due);
}

static void one_rate(uint32_t rate, uint32_t burst)
{
    Pair *p = pair_new(1, NULL, NULL);
    Seen seen = { .rate = rate };

    pair_fill(p);
    p->sim->tap = watch;
    p->sim->tap_opaque = &seen;
    limit(p->a.qp, rate, burst);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, PAIR_BYTES / 2);
    run(p->sim);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(p->a.data, PAIR_BYTES / 2, p->b.data, PAIR_BYTES / 2);
    check(&seen, burst ? burst : rate / 8);
    g_assert_cmpuint(sim_counter(p->a.qp->node,
                                 QRNIC_COUNTER_RETRANSMISSIONS), ==, 0);
    g_assert_cmpuint(sim_counter(p->a.qp->node, QRNIC_COUNTER_TIMEOUTS), ==,
                     0);
    g_assert_cmpuint(sim_counter(p->a.qp->node, QRNIC_COUNTER_RATE_WAITS), >,
                     0);
    pair_free(p);
}

/* Tests rates at which one packet takes 8 ms to 8 us. */
static void test_rate(void)
{
    static const uint32_t rate[] = { 1000, 10000, 123456, 1000000 };

    for (unsigned i = 0; i < ARRAY_SIZE(rate); i++) {
        one_rate(rate[i], 0);
        one_rate(rate[i], 1);
        one_rate(rate[i], 65536);
    }
}

/*
 * Tests that retransmitted packets count for the limit, and are sent in spite
 * of a delay by it.
 */
static void test_loss(void)
{
    Pair *p = pair_new(2, NULL, NULL);
    Seen seen = { .rate = 50000 };

    pair_fill(p);
    p->sim->tap = watch;
    p->sim->tap_opaque = &seen;
    p->sim->loss = 20;
    limit(p->a.qp, seen.rate, 4096);
    for (int i = 0; i < 8; i++) {
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 65536 * i, 65536 * i, 65536);
    }
    run(p->sim);
    for (int i = 0; i < 8; i++) {
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    }
    g_assert_cmpmem(p->a.data, 8 * 65536, p->b.data, 8 * 65536);
    g_assert_cmpuint(seen.most, <=, 4096 + 1200);
    g_assert_cmpuint(sim_counter(p->a.qp->node,
                                 QRNIC_COUNTER_RETRANSMISSIONS), >, 0);
    pair_free(p);
}

/*
 * Tests a limit that ends or changes, or a queue pair that is destroyed, while
 * the queue pair waits.
 */
static void test_change(void)
{
    for (int what = 0; what < 4; what++) {
        Pair *p = pair_new(3, NULL, NULL);
        int64_t before = p->sim->now;

        limit(p->a.qp, 1, 1);
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 10000);
        g_assert_false(sim_run(p->sim, before + SIM_MS));
        expect_no_cqe(p->a.qp);
        if (what < 2) {
            limit(p->a.qp, what ? 1000000 : 0, 0);
            g_assert_true(sim_run(p->sim, before + 10 * SIM_MS));
            expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        } else if (what == 2) {
            QrnicQpAttr attr = {
                .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
            };

            g_assert_cmpint(sim_modify(p->a.qp, &attr).status, ==,
                            QRNIC_ST_OK);
            g_assert_true(sim_run(p->sim, before + 10 * SIM_MS));
            expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
        }
        pair_free(p);
    }
}

/* Tests that a packet that may be sent at once is not counted as delayed. */
static void test_no_wait(void)
{
    Pair *p = pair_new(7, NULL, NULL);

    limit(p->a.qp, 1000, 4096);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 2048);
    run(p->sim);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpuint(sim_counter(p->a.qp->node, QRNIC_COUNTER_RATE_WAITS), ==,
                     0);
    pair_free(p);
}

/* Tests timers of the limit and of retransmission that are both late. */
static void test_late(void)
{
    Pair *p = pair_new(8, NULL, NULL);

    pair_fill(p);
    limit(p->a.qp, 1000, 1);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 65536);
    for (int i = 0; i < 10; i++) {
        sim_run(p->sim, p->sim->now + 20 * SIM_MS);
        p->sim->now += 1000 * SIM_MS;
    }
    run(p->sim);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(p->a.data, 65536, p->b.data, 65536);
    g_assert_cmpuint(sim_counter(p->a.qp->node, QRNIC_COUNTER_TIMEOUTS), ==,
                     0);
    pair_free(p);
}

/*
 * Tests that a dead peer is detected after eight times 64 packets (0.6 s) and a
 * timeout.
 */
static void test_dead_peer(void)
{
    Pair *p = pair_new(9, NULL, NULL);
    int64_t before = p->sim->now;

    limit(p->a.qp, 1000, 1);
    p->sim->loss = 1000;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, PAIR_BYTES / 2);
    sim_run(p->sim, before + 8000 * SIM_MS);
    expect_cqe(p->a.qp, QRNIC_WC_RETRY_EXC_ERR, QRNIC_CQE_RDMA_WRITE);
    pair_free(p);
}

/* Tests the limit of unreliable connections. */
static void test_unreliable(void)
{
    Sim *s = sim_new(4, NULL);
    SimQp *a = sim_uc_new(&s->node[0], NULL);
    SimQp *b = sim_uc_new(&s->node[1], NULL);
    uint64_t from = sim_alloc(a->node, 65536), to = sim_alloc(b->node, 65536);
    SimSge sge = {
        from, 65536, sim_mkey(a->node, from, 65536, ACCESS_ALL),
    };
    Seen seen = { .rate = 100000 };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = to,
        .rkey = sim_mkey(b->node, to, 65536, ACCESS_ALL),
    };

    s->tap = watch;
    s->tap_opaque = &seen;
    sim_uc_connect(a, b);
    limit(a, seen.rate, 0);
    sim_post_send(a, &wr);
    run(s);
    expect_cqe(a, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(a->node->memory + from, 65536, b->node->memory + to,
                    65536);
    check(&seen, seen.rate / 8);
    sim_qp_free(a);
    sim_qp_free(b);
    sim_free(s);
}

/*
 * Responses to reads of the peer are not limited, because the limit belongs to
 * requests.
 */
static void test_responses(void)
{
    Pair *p = pair_new(5, NULL, NULL);

    pair_fill(p);
    limit(p->b.qp, 1, 1);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0, 0, 65536);
    g_assert_true(sim_run(p->sim, p->sim->now + 100 * SIM_MS));
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(p->a.data, 65536, p->b.data, 65536);
    pair_free(p);
}

static void test_refused(void)
{
    Pair *p = pair_new(6, NULL, NULL);
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_RATE_LIMIT, .rate_limit = QRNIC_MAX_RATE_LIMIT + 1,
    };
    QrnicResult r = sim_modify(p->a.qp, &attr);

    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmphex(r.syndrome, ==, QRNIC_QP_ATTR_RATE_LIMIT_OFFSET);
    attr = (QrnicQpAttr) { .max_burst_sz = 1 };
    r = sim_modify(p->a.qp, &attr);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmphex(r.syndrome, ==, QRNIC_QP_ATTR_MAX_BURST_SZ_OFFSET);
    attr = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_RATE_LIMIT, .rate_limit = 1000,
        .state = QRNIC_QPS_SQD,
    };
    r = sim_modify(p->a.qp, &attr);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_ATTR);
    g_assert_cmphex(r.syndrome, ==, QRNIC_QP_RATE_LIMIT);
    pair_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qrnic/pace/rate", test_rate);
    g_test_add_func("/qrnic/pace/loss", test_loss);
    g_test_add_func("/qrnic/pace/change", test_change);
    g_test_add_func("/qrnic/pace/no-wait", test_no_wait);
    g_test_add_func("/qrnic/pace/late", test_late);
    g_test_add_func("/qrnic/pace/dead-peer", test_dead_peer);
    g_test_add_func("/qrnic/pace/unreliable", test_unreliable);
    g_test_add_func("/qrnic/pace/responses", test_responses);
    g_test_add_func("/qrnic/pace/refused", test_refused);
    return g_test_run();
}
