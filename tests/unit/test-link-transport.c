/*
 * Reliable connections over link retransmission: the transport sees no loss of
 * the wire.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "pair.h"

#define ROUNDS 60
#define BYTES 65536

typedef struct Seen {
    uint64_t again, naks, timeouts, link_again;
} Seen;

static void round_of_each(Pair *p)
{
    const uint32_t part = BYTES / 4;

    pair_fill(p);
    post_recv(&p->b, 0, part);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, part);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, part, part, part);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 2 * part, 2 * part, part);
    post(&p->b, &p->a, QRNIC_WQE_RDMA_WRITE, 3 * part, 3 * part, part);
    sim_run(p->sim, p->sim->now + 10000 * SIM_MS);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_WQE_SEND);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_READ);
    /* Node b has two completions, in either order. */
    expect_status(p->b.qp, QRNIC_WC_SUCCESS);
    expect_status(p->b.qp, QRNIC_WC_SUCCESS);
    expect_no_cqe(p->b.qp);
    g_assert_cmpmem(p->a.data, BYTES, p->b.data, BYTES);
}

static Seen traffic(bool link, unsigned loss, unsigned corrupt, unsigned room)
{
    const SimOptions o = { .link_retransmission = link };
    SimConnect c = sim_connect_default();
    Seen seen = { 0 };
    Pair *p;

    c.path_mtu = QRNIC_MTU_1024;
    c.timeout = 14;
    p = pair_new(11, &o, &c);
    p->sim->loss = loss;
    p->sim->corrupt = corrupt;
    p->sim->wire_room = room;
    p->sim->wire_pause = 3 * SIM_US;
    for (unsigned i = 0; i < ROUNDS; i++) {
        round_of_each(p);
    }
    for (unsigned i = 0; i < SIM_NODES; i++) {
        SimNode *n = &p->sim->node[i];

        seen.again += sim_counter(n, QRNIC_COUNTER_RETRANSMISSIONS);
        seen.naks += sim_counter(n, QRNIC_COUNTER_TX_NAK_SEQUENCE);
        seen.timeouts += sim_counter(n, QRNIC_COUNTER_TIMEOUTS);
        seen.link_again += n->link_count[QRNIC_LINK_TX_RETRANSMISSIONS];
        g_assert_cmpuint(n->link_count[QRNIC_LINK_TX_LOST], ==, 0);
        g_assert_cmpuint(n->link_count[QRNIC_LINK_TX_REFUSED], ==, 0);
        /* Corruption can change the length. */
        g_assert_true(corrupt || !n->link_count[QRNIC_LINK_RX_MALFORMED]);
        g_assert_cmpuint(n->link_count[QRNIC_LINK_RX_STALE], ==, 0);
        g_assert_cmpuint(n->link_count[QRNIC_LINK_ESTABLISHED], ==, link);
    }
    g_test_message("link %d loss %u corrupt %u: transport %" PRIu64
                   " (%" PRIu64 " NAKs, %" PRIu64 " timeouts) link %" PRIu64,
                   link, loss, corrupt, seen.again, seen.naks,
                   seen.timeouts, seen.link_again);
    pair_free(p);
    return seen;
}

static void expect_no_loss(Seen seen)
{
    g_assert_cmpuint(seen.again, ==, 0);
    g_assert_cmpuint(seen.naks, ==, 0);
    g_assert_cmpuint(seen.timeouts, ==, 0);
}

static void test_loss_1(void)
{
    Seen with = traffic(true, 10, 0, 0), without = traffic(false, 10, 0, 0);

    expect_no_loss(with);
    g_assert_cmpuint(with.link_again, >, 30);
    /* Otherwise the test proves nothing. */
    g_assert_cmpuint(without.again, >, 100);
}

static void test_loss_10(void)
{
    expect_no_loss(traffic(true, 100, 0, 0));
}

static void test_corrupt_5(void)
{
    expect_no_loss(traffic(true, 0, 50, 0));
}

static void test_busy_wire(void)
{
    expect_no_loss(traffic(true, 10, 0, 5));
}

static void test_calm(void)
{
    Seen with = traffic(true, 0, 0, 0);

    expect_no_loss(with);
    g_assert_cmpuint(with.link_again, ==, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/link/transport/calm", test_calm);
    g_test_add_func("/link/transport/loss-1", test_loss_1);
    g_test_add_func("/link/transport/loss-10", test_loss_10);
    g_test_add_func("/link/transport/corrupt-5", test_corrupt_5);
    g_test_add_func("/link/transport/busy-wire", test_busy_wire);
    return g_test_run();
}
