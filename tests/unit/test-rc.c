/*
 * Reliable connections between two engines: operations, lengths, order, flow
 * control and retransmission
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pair.h"

#define HALF (PAIR_BYTES / 2)

static void settle(Pair *p)
{
    g_assert_true(sim_run(p->sim, p->sim->now + 10000 * SIM_MS));
}

/* Posts one of each operation with len bytes, from a to b. */
static void each_operation(Pair *p, uint32_t len)
{
    QrnicCqe c;
    uint64_t before;

    pair_fill(p);
    post_recv(&p->b, 0, len);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, len);
    settle(p);
    c = expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmpint(c.byte_len, ==, len);
    g_assert_cmphex(c.flags, ==, 0);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    g_assert_cmpmem(p->a.data, len, p->b.data, len);

    before = ldq_le_p(p->b.data + HALF + len);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 64, HALF, len);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_no_cqe(p->b.qp);
    g_assert_cmpmem(p->a.data + 64, len, p->b.data + HALF, len);
    g_assert_cmphex(ldq_le_p(p->b.data + HALF + len), ==, before);

    before = ldq_le_p(p->a.data + HALF + len);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, HALF, 8, len);
    settle(p);
    c = expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpint(c.byte_len, ==, len);
    g_assert_cmpmem(p->a.data + HALF, len, p->b.data + 8, len);
    g_assert_cmphex(ldq_le_p(p->a.data + HALF + len), ==, before);
}

static void immediates(Pair *p)
{
    SimSge sge = { p->a.addr, 10, p->a.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND_IMM, .imm = 0x12345678, .sge = &sge,
        .num_sge = 1, .flags = QRNIC_WQEF_SOLICITED,
        .remote = p->b.addr + 100, .rkey = p->b.key,
    };
    QrnicCqe c;

    post_recv(&p->b, 0, 10);
    post_recv(&p->b, 0, 0);
    sim_post_send(p->a.qp, &wr);
    wr.opcode = QRNIC_WQE_RDMA_WRITE_IMM;
    wr.imm = 0x9abcdef0;
    wr.flags = QRNIC_WQEF_SIGNALED;
    sim_post_send(p->a.qp, &wr);
    settle(p);
    /* The first WQE was not signaled. */
    c = expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_no_cqe(p->a.qp);
    g_assert_cmpint(c.index, ==, p->a.qp->sq_producer - 1);
    c = expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmphex(c.imm, ==, 0x12345678);
    g_assert_cmphex(c.flags, ==, QRNIC_CQEF_IMM | QRNIC_CQEF_SOLICITED);
    c = expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV_RDMA_WITH_IMM);
    g_assert_cmphex(c.imm, ==, 0x9abcdef0);
    g_assert_cmphex(c.flags, ==, QRNIC_CQEF_IMM);
    g_assert_cmpint(c.byte_len, ==, 10);
    g_assert_cmpmem(p->a.data, 10, p->b.data + 100, 10);
}

static void atomics(Pair *p)
{
    SimSge sge = { p->a.addr + 3, 8, p->a.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_ATOMIC_FETCH_ADD, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = p->b.addr + 16, .rkey = p->b.key,
        .swap_add = 0xffffffffffffffff,
    };
    QrnicCqe c;

    stq_le_p(p->b.data + 16, 5);
    sim_post_send(p->a.qp, &wr);
    settle(p);
    c = expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
    g_assert_cmpint(c.byte_len, ==, 8);
    g_assert_cmphex(ldq_le_p(p->a.data + 3), ==, 5);
    g_assert_cmphex(ldq_le_p(p->b.data + 16), ==, 4);

    wr.opcode = QRNIC_WQE_ATOMIC_CMP_SWAP;
    wr.compare = 5;
    wr.swap_add = 0x1122334455667788;
    sim_post_send(p->a.qp, &wr);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_CMP_SWAP);
    g_assert_cmphex(ldq_le_p(p->a.data + 3), ==, 4);
    g_assert_cmphex(ldq_le_p(p->b.data + 16), ==, 4);
    wr.compare = 4;
    sim_post_send(p->a.qp, &wr);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_CMP_SWAP);
    g_assert_cmphex(ldq_le_p(p->b.data + 16), ==, 0x1122334455667788);
}

static void test_operations(void)
{
    for (int kind = 0; kind < 8; kind++) {
        for (int mtu = QRNIC_MTU_256; mtu <= QRNIC_MTU_4096; mtu++) {
            SimOptions o = {
                .ipv6 = kind & 1, .vlan = kind & 2, .loopback = kind & 4,
            };
            SimConnect c = sim_connect_default();
            uint32_t bytes = 128u << mtu;
            Pair *p;

            c.path_mtu = mtu;
            p = pair_new(1, &o, &c);
            each_operation(p, 0);
            each_operation(p, 1);
            each_operation(p, bytes - 1);
            each_operation(p, bytes);
            each_operation(p, bytes + 1);
            each_operation(p, 3 * bytes);
            each_operation(p, 20 * bytes + 3);
            immediates(p);
            atomics(p);
            g_assert_cmpint(sim_counter(p->a.qp->node,
                                        QRNIC_COUNTER_RETRANSMISSIONS), ==, 0);
            if (o.loopback) {
                g_assert_cmpint(p->sim->frames, ==, 0);
            }
            pair_free(p);
        }
    }
}

/* Tests that a loopback packet whose data cannot be read is not delivered. */
static void test_loopback_left(void)
{
    SimOptions o = { .loopback = true };
    Pair *p = pair_new(1, &o, NULL);
    SimNode *n = p->a.qp->node;

    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 3000);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_ROCE_LOOPBACK_PACKETS), ==,
                     4);
    n->broken_from = p->a.addr + 8192;
    n->broken_to = p->a.addr + 8192 + 2048;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 8192 - 1024, 0, 3072);
    settle(p);
    expect_status(p->a.qp, QRNIC_WC_LOC_PROT_ERR);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_ROCE_LOOPBACK_PACKETS), ==,
                     5);
    pair_free(p);
}

/*
 * Tests that a packet of the wire never counts as loopback. Otherwise a forged
 * packet could skip the ICRC check.
 */
static void test_loopback_forged(void)
{
    SimOptions o = { .loopback = true };
    Pair *p = pair_new(1, &o, NULL);
    QrnicPathSpec spec = sim_path_to(p->a.qp, p->b.qp);
    SimNode *n = p->b.qp->node;
    QrnicTransport t = {
        .opcode = QRNIC_OP_RC_WRITE_ONLY, .psn = 0x123456,
        .pkey = QRNIC_PKEY_DEFAULT, .dest_qpn = p->b.qp->number,
        .va = p->b.addr, .rkey = p->b.key, .dma_len = 64, .ack_req = true,
    };
    uint8_t frame[512], before[64], forged[64], *payload;
    QrnicPath path;

    memcpy(before, p->b.data, sizeof(before));
    memset(forged, 0x5a, sizeof(forged));
    g_assert_true(memcmp(before, forged, sizeof(forged)));
    qrnic_path_init(&path, &spec);
    payload = qrnic_packet_begin(&path, frame, &t, sizeof(forged));
    memcpy(payload, forged, sizeof(forged));
    sim_inject(p->sim, n->id, frame,
               qrnic_packet_finish_unchecked(frame, payload, sizeof(forged)));
    settle(p);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_RX_DROP_ICRC), ==, 1);
    g_assert_cmpmem(p->b.data, sizeof(before), before, sizeof(before));
    /* The packet is valid otherwise. */
    sim_inject(p->sim, n->id, frame,
               qrnic_packet_finish(&path, frame, payload, sizeof(forged)));
    settle(p);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_RX_DROP_ICRC), ==, 1);
    g_assert_cmpmem(p->b.data, sizeof(forged), forged, sizeof(forged));
    pair_free(p);
}

/* 3072 bytes at MTU 1024 are three packets, with AckReq on the last. */
typedef struct Seen {
    uint8_t opcode[64];
    bool ack_req[64];
    uint32_t psn[64];
    uint32_t len[64];
    unsigned n[2];
    unsigned lose_at;           /* Packet to lose; counts from 1 */
    unsigned lose_from;         /* Node */
    unsigned reads, most_reads, responses;
} Seen;

static bool tap_seen(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                     void *opaque)
{
    Seen *seen = opaque;
    QrnicPacket p;

    g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
    if (from == 0 && seen->n[0] < 64) {
        seen->opcode[seen->n[0]] = p.t.opcode;
        seen->ack_req[seen->n[0]] = p.t.ack_req;
        seen->psn[seen->n[0]] = p.t.psn;
        seen->len[seen->n[0]] = p.payload_len;
    }
    if (p.t.opcode == QRNIC_OP_RC_READ_REQUEST) {
        seen->reads++;
        seen->most_reads = MAX(seen->most_reads,
                               seen->reads - seen->responses);
    }
    if (p.t.opcode == QRNIC_OP_RC_READ_RESPONSE_LAST ||
        p.t.opcode == QRNIC_OP_RC_READ_RESPONSE_ONLY) {
        seen->responses++;
    }
    return ++seen->n[from] != seen->lose_at || from != seen->lose_from;
}

static void test_segmentation(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    Seen seen = { 0 };

    p->sim->tap = tap_seen;
    p->sim->tap_opaque = &seen;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 3072);
    settle(p);
    g_assert_cmpint(seen.n[0], ==, 3);
    g_assert_cmpint(seen.n[1], ==, 1);
    g_assert_cmpint(seen.opcode[0], ==, QRNIC_OP_RC_WRITE_FIRST);
    g_assert_cmpint(seen.opcode[1], ==, QRNIC_OP_RC_WRITE_MIDDLE);
    g_assert_cmpint(seen.opcode[2], ==, QRNIC_OP_RC_WRITE_LAST);
    for (int i = 0; i < 3; i++) {
        g_assert_cmpint(seen.len[i], ==, 1024);
        g_assert_cmphex(seen.psn[i], ==, 0x123456 + i);
    }
    g_assert_true(seen.ack_req[2]);
    pair_free(p);
}

static void test_gather_scatter(void)
{
    Pair *p = pair_new(7, NULL, NULL);
    SimSge out[QRNIC_MAX_SGE], in[QRNIC_MAX_SGE];
    uint8_t flat_out[20000], flat_in[20000];
    unsigned len = 0, at = 0;
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .sge = out,
        .num_sge = QRNIC_MAX_SGE, .remote = p->b.addr, .rkey = p->b.key,
    };

    pair_fill(p);
    for (unsigned i = 0; i < QRNIC_MAX_SGE; i++) {
        uint32_t n = g_rand_int_range(p->sim->rand, 0, 600);

        /* The segments are scattered backwards over the memory. */
        out[i] = (SimSge) { p->a.addr + HALF - 7001 * (i + 1), n, p->a.key };
        in[i] = (SimSge) { p->b.addr + HALF - 9001 * (i + 1),
                           (i * 397) % 700, p->b.key };
        memcpy(flat_out + len, p->a.data + HALF - 7001 * (i + 1), n);
        len += n;
    }
    sim_post_recv(p->b.qp, in, QRNIC_MAX_SGE);
    sim_post_send(p->a.qp, &wr);
    settle(p);
    g_assert_cmpint(expect_cqe(p->b.qp, QRNIC_WC_SUCCESS,
                               QRNIC_CQE_RECV).byte_len, ==, len);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    for (unsigned i = 0; i < QRNIC_MAX_SGE; i++) {
        memcpy(flat_in + at, p->b.data + HALF - 9001 * (i + 1), in[i].length);
        at += in[i].length;
    }
    g_assert_cmpint(at, >=, len);
    g_assert_cmpmem(flat_out, len, flat_in, len);

    /* Scatter read: the segments receive one contiguous range of the peer. */
    wr.opcode = QRNIC_WQE_RDMA_READ;
    sim_post_send(p->a.qp, &wr);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    at = 0;
    for (unsigned i = 0; i < QRNIC_MAX_SGE; i++) {
        g_assert_cmpmem(p->a.data + HALF - 7001 * (i + 1), out[i].length,
                        p->b.data + at, out[i].length);
        at += out[i].length;
    }
    pair_free(p);
}

static void test_inline(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    uint8_t data[QRNIC_MAX_INLINE];

    for (unsigned len = 1; len <= sizeof(data); len += 15) {
        SimWr wr = {
            .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
            .inline_data = data, .inline_length = len,
            .remote = p->b.addr + 5, .rkey = p->b.key,
        };

        memset(data, len, sizeof(data));
        sim_post_send(p->a.qp, &wr);
        settle(p);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        g_assert_cmpmem(p->b.data + 5, len, data, len);
    }
    pair_free(p);
}

/* Tests many messages in one batch: one ACK acknowledges many packets. */
static void test_ack_coalescing(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    Seen seen = { 0 };

    p->sim->tap = tap_seen;
    p->sim->tap_opaque = &seen;
    for (int i = 0; i < 200; i++) {
        SimSge sge = { p->a.addr, 8, p->a.key };
        SimWr wr = {
            .opcode = QRNIC_WQE_RDMA_WRITE, .sge = &sge, .num_sge = 1,
            .remote = p->b.addr, .rkey = p->b.key,
            .flags = i == 199 ? QRNIC_WQEF_SIGNALED : 0,
        };

        sim_post_send_quiet(p->a.qp, &wr);
    }
    sim_ring_sq(p->a.qp);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_no_cqe(p->a.qp);
    g_assert_cmpint(seen.n[0], ==, 200);
    g_assert_cmpint(seen.n[1], <, 10);
    /* 200 blocks of 64 bytes are fetched, in reads of up to 8 blocks. */
    g_assert_cmpint(sim_counter(p->a.qp->node, QRNIC_COUNTER_WQE_FETCHES), ==,
                    25);
    pair_free(p);
}

/*
 * Tests a small exchange in which each packet is lost once, on either side. All
 * is repaired, and nothing is executed twice.
 */
static void test_each_loss(void)
{
    for (unsigned from = 0; from < 2; from++) {
        for (unsigned lose = 1; lose < 40; lose++) {
            Pair *p = pair_new(3, NULL, NULL);
            Seen seen = { .lose_at = lose, .lose_from = from };
            SimSge sge = { p->a.addr, 8, p->a.key };
            SimWr add = {
                .opcode = QRNIC_WQE_ATOMIC_FETCH_ADD, .swap_add = 1,
                .flags = QRNIC_WQEF_SIGNALED, .sge = &sge, .num_sge = 1,
                .remote = p->b.addr + HALF, .rkey = p->b.key,
            };

            p->sim->tap = tap_seen;
            p->sim->tap_opaque = &seen;
            pair_fill(p);
            stq_le_p(p->b.data + HALF, 100);
            post_recv(&p->b, 0, 5000);
            post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 8, 8, 4000);
            sim_post_send(p->a.qp, &add);
            post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 20000, 30000, 6000);
            post(&p->a, &p->b, QRNIC_WQE_SEND, 9000, 0, 5000);
            sim_post_send(p->a.qp, &add);
            post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 40000, 30001, 3000);
            settle(p);
            expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
            expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
            expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
            expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
            expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
            expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
            expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
            expect_no_cqe(p->b.qp);
            g_assert_cmpmem(p->a.data + 20000, 6000, p->b.data + 30000, 6000);
            g_assert_cmpmem(p->a.data + 40000, 3000, p->b.data + 30001, 3000);
            g_assert_cmpmem(p->a.data + 9000, 5000, p->b.data, 5000);
            g_assert_cmpint(ldq_le_p(p->a.data), ==, 101);
            g_assert_cmpint(ldq_le_p(p->b.data + HALF), ==, 102);
            pair_free(p);
        }
    }
}

/*
 * Tests that a sequence gap causes one NAK with the expected PSN, and all
 * packets from there are retransmitted.
 */
static void test_go_back_n(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    Seen seen = { .lose_at = 3, .lose_from = 0 };

    p->sim->tap = tap_seen;
    p->sim->tap_opaque = &seen;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 10 * 1024);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpint(sim_counter(p->b.qp->node,
                                QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 1);
    g_assert_cmpint(sim_counter(p->a.qp->node,
                                QRNIC_COUNTER_RETRANSMISSIONS), ==, 8);
    g_assert_cmphex(seen.psn[10], ==, 0x123456 + 2);
    g_assert_cmpint(sim_counter(p->a.qp->node, QRNIC_COUNTER_TIMEOUTS), ==, 0);
    pair_free(p);
}

/*
 * Tests that a lost response is requested again as soon as a later one reveals
 * the loss.
 */
static void test_implied_nak(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    SimNode *n = p->a.qp->node;
    Seen seen = { .lose_at = 2, .lose_from = 1 };

    pair_fill(p);
    p->sim->tap = tap_seen;
    p->sim->tap_opaque = &seen;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0, 0, 3000);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 3000, 3000, 3000);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(p->a.data, 6000, p->b.data, 6000);
    /* Four later responses cause one retransmission of both requests. */
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_IMPLIED_NAK), ==, 1);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_RETRANSMISSIONS), ==, 2);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_TIMEOUTS), ==, 0);
    /* Only the rest of the first read is requested again: 1 and 2, 3 and 3. */
    g_assert_cmpint(seen.n[1], ==, 6 + 2 + 3);
    pair_free(p);
}

/*
 * Tests responses that are far apart, so the rest of them arrives after the
 * retransmission. That rest must not count as a new loss.
 */
static void test_implied_nak_once(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    Seen seen = { .lose_at = 2, .lose_from = 1 };

    pair_fill(p);
    p->sim->wire_room = 1;
    p->sim->wire_pause = SIM_US;
    p->sim->tap = tap_seen;
    p->sim->tap_opaque = &seen;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0, 0, 20000);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(p->a.data, 20000, p->b.data, 20000);
    g_assert_cmpint(sim_counter(p->a.qp->node, QRNIC_COUNTER_RETRANSMISSIONS),
                    ==, 1);
    pair_free(p);
}

/*
 * Responses are in the order of requests, because they would look lost
 * otherwise.
 */
static void test_answers_in_order(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    SimNode *n = p->a.qp->node;

    pair_fill(p);
    for (int i = 0; i < 40; i++) {
        post(&p->a, &p->b, i & 1 ? QRNIC_WQE_RDMA_WRITE : QRNIC_WQE_RDMA_READ,
             i * 8192, i * 8192, 8192);
    }
    settle(p);
    for (int i = 0; i < 40; i++) {
        expect_status(p->a.qp, QRNIC_WC_SUCCESS);
    }
    g_assert_cmpmem(p->a.data, 40 * 8192, p->b.data, 40 * 8192);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_IMPLIED_NAK), ==, 0);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_RETRANSMISSIONS), ==, 0);
    pair_free(p);
}

/* Tests that exactly one window of packets is sent without an ACK. */
static void test_window(void)
{
    SimConnect c = sim_connect_default();
    Seen seen = { 0 };
    Pair *p;

    c.path_mtu = QRNIC_MTU_256;
    c.timeout = 16;
    p = pair_new(1, NULL, &c);
    p->sim->latency = SIM_MS;
    p->sim->tap = tap_seen;
    p->sim->tap_opaque = &seen;
    pair_fill(p);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, PAIR_BYTES);
    sim_run(p->sim, SIM_MS / 2);
    g_assert_cmpint(seen.n[0], ==, 256);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(p->a.data, PAIR_BYTES, p->b.data, PAIR_BYTES);
    g_assert_cmpint(seen.n[0], ==, PAIR_BYTES / 256);
    pair_free(p);
}

static void test_max_rd_atomic(void)
{
    for (unsigned max = 1; max <= 4; max++) {
        SimConnect c = sim_connect_default();
        Seen seen = { 0 };
        Pair *p;

        c.rd_atomic = max;
        p = pair_new(1, NULL, &c);
        pair_fill(p);
        p->sim->tap = tap_seen;
        p->sim->tap_opaque = &seen;
        for (int i = 0; i < 20; i++) {
            post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, i * 8192, i * 8192, 8192);
        }
        settle(p);
        for (int i = 0; i < 20; i++) {
            expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
        }
        g_assert_cmpint(seen.most_reads, ==, max);
        g_assert_cmpmem(p->a.data, 20 * 8192, p->b.data, 20 * 8192);
        pair_free(p);
    }
}

/*
 * Tests that a fenced request is executed after the data of an earlier read has
 * arrived.
 */
static void test_fence(void)
{
    for (int fence = 0; fence < 2; fence++) {
        Pair *p = pair_new(1, NULL, NULL);
        SimSge sge = { p->a.addr, 100, p->a.key };
        SimWr wr = {
            .opcode = QRNIC_WQE_RDMA_WRITE, .sge = &sge, .num_sge = 1,
            .remote = p->b.addr + HALF, .rkey = p->b.key,
            .flags = QRNIC_WQEF_SIGNALED | (fence ? QRNIC_WQEF_FENCE : 0),
        };

        pair_fill(p);
        post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0, 0, 100);
        sim_post_send(p->a.qp, &wr);
        settle(p);
        g_assert_cmpint(!memcmp(p->b.data + HALF, p->b.data, 100), ==, fence);
        pair_free(p);
    }
}

/*
 * Tests that the requester waits for the RNR timer without a receive WQE, and
 * then succeeds.
 */
static void test_rnr(void)
{
    SimConnect c = sim_connect_default();
    Pair *p;

    c.min_rnr_timer = 14;       /* 1.28 ms */
    p = pair_new(1, NULL, &c);
    pair_fill(p);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 3000);
    g_assert_false(sim_run(p->sim, 6 * SIM_MS));
    expect_no_cqe(p->a.qp);
    /* At 2 us, then after 1.28 ms and 2 us each. */
    g_assert_cmpint(sim_counter(p->b.qp->node, QRNIC_COUNTER_TX_RNR_NAK), ==,
                    5);
    post_recv(&p->b, 0, 3000);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmpmem(p->a.data, 3000, p->b.data, 3000);
    g_assert_cmpint(sim_counter(p->a.qp->node, QRNIC_COUNTER_TIMEOUTS), ==, 0);
    pair_free(p);
}

/* Tests that few packets are sent in vain with few receive WQEs (9.7.7.2). */
static void test_credits(void)
{
    SimConnect c = sim_connect_default();
    uint64_t vain;
    Pair *p;

    c.min_rnr_timer = 1;
    p = pair_new(1, NULL, &c);
    pair_fill(p);
    /* The ACK of the first message reports the credits: two more. */
    for (int i = 0; i < 3; i++) {
        post_recv(&p->b, i * 8192, 8192);
    }
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 8192);
    sim_run(p->sim, p->sim->now + 100 * SIM_US);
    for (int i = 1; i < 20; i++) {
        post(&p->a, &p->b, QRNIC_WQE_SEND, i * 8192, 0, 8192);
    }
    sim_run(p->sim, p->sim->now + 500 * SIM_US);
    vain = sim_counter(p->a.qp->node, QRNIC_COUNTER_ROCE_TX_PACKETS) - 3 * 8;
    /*
     * Each attempt sends one packet only, not a window, because more would be
     * dropped.
     */
    g_assert_cmpint(vain, ==, sim_counter(p->b.qp->node,
                                          QRNIC_COUNTER_TX_RNR_NAK));
    for (int i = 3; i < 20; i++) {
        post_recv(&p->b, i * 8192, 8192);
        sim_run(p->sim, p->sim->now + 100 * SIM_US);
    }
    settle(p);
    for (int i = 0; i < 20; i++) {
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    }
    g_assert_cmpmem(p->a.data, 20 * 8192, p->b.data, 20 * 8192);
    pair_free(p);
}

static void test_psn_wrap(void)
{
    static const uint32_t starts[] = { 0xfffffe, 0xffffff, 0x7ffffe, 0 };

    for (unsigned i = 0; i < ARRAY_SIZE(starts); i++) {
        SimConnect c = sim_connect_default();
        Pair *p;

        c.path_mtu = QRNIC_MTU_256;
        c.psn_a = c.psn_b = starts[i];
        p = pair_new(1, NULL, &c);
        p->sim->loss = 20;
        pair_fill(p);
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, HALF);
        post(&p->b, &p->a, QRNIC_WQE_RDMA_READ, HALF, 0, HALF);
        settle(p);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
        g_assert_cmpmem(p->a.data, HALF, p->b.data, HALF);
        g_assert_cmpmem(p->a.data, HALF, p->b.data + HALF, HALF);
        g_assert_cmphex(sim_query(p->a.qp).sq_psn, ==,
                        (starts[i] + HALF / 256) & QRNIC_PSN_MASK);
        pair_free(p);
    }
}

/* Creates a region of 2 GiB whose pages are all the same 2 MiB. */
static uint32_t huge_mkey(SimNode *n, uint64_t page)
{
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = ACCESS_ALL, .pd = n->pd,
        .start = 1ull << 40, .length = QRNIC_MAX_MSG_SIZE,
        .table = { .levels = 2, .page_shift = 21 },
    };
    uint64_t lists = sim_alloc(n, 2 * 4096);

    ctx.table.root = sim_alloc(n, 4096);
    stq_le_p(n->memory + ctx.table.root, lists);
    stq_le_p(n->memory + ctx.table.root + 8, lists + 4096);
    for (int i = 0; i < 1024; i++) {
        stq_le_p(n->memory + lists + 8 * i, page);
    }
    return sim_mkey_ctx(n, &ctx);
}

static void huge(uint8_t mtu)
{
    static const uint8_t opcodes[] = {
        QRNIC_WQE_RDMA_WRITE, QRNIC_WQE_RDMA_READ, QRNIC_WQE_SEND,
    };
    SimConnect c = sim_connect_default();
    Pair *p;
    uint64_t page[2];
    uint32_t key[2];

    c.path_mtu = mtu;
    p = pair_new(1, NULL, &c);
    /* A bounded wire, because it would otherwise store 2 GiB of responses. */
    p->sim->wire_room = 64;
    p->sim->wire_pause = SIM_US;
    for (int i = 0; i < 2; i++) {
        SimNode *n = &p->sim->node[i];

        page[i] = QEMU_ALIGN_UP(sim_alloc(n, 4ull << 20), 2ull << 20);
        key[i] = huge_mkey(n, page[i]);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(opcodes); i++) {
        SimSge local = { 1ull << 40, QRNIC_MAX_MSG_SIZE, key[0] };
        SimSge recv = { 1ull << 40, QRNIC_MAX_MSG_SIZE, key[1] };
        SimWr wr = {
            .opcode = opcodes[i], .flags = QRNIC_WQEF_SIGNALED, .sge = &local,
            .num_sge = 1, .remote = 1ull << 40, .rkey = key[1],
        };

        for (uint32_t k = 0; k < 2u << 20; k += 64) {
            stl_le_p(p->sim->node[0].memory + page[0] + k, k + i);
            stl_le_p(p->sim->node[1].memory + page[1] + k, k - i);
        }
        if (opcodes[i] == QRNIC_WQE_SEND) {
            sim_post_recv(p->b.qp, &recv, 1);
        }
        sim_post_send(p->a.qp, &wr);
        settle(p);
        expect_status(p->a.qp, QRNIC_WC_SUCCESS);
        if (opcodes[i] == QRNIC_WQE_SEND) {
            g_assert_cmphex(expect_status(p->b.qp, QRNIC_WC_SUCCESS).byte_len,
                            ==, QRNIC_MAX_MSG_SIZE);
        }
        g_assert_cmpmem(p->sim->node[0].memory + page[0], 2u << 20,
                        p->sim->node[1].memory + page[1], 2u << 20);
    }
    pair_free(p);
}

static void test_huge(void)
{
    huge(QRNIC_MTU_4096);
}

static void test_huge_small_mtu(void)
{
    if (!g_test_slow()) {
        g_test_skip("slow");
        return;
    }
    huge(QRNIC_MTU_256);
}

/* Tests that a wire that accepts one frame at a time loses nothing. */
static void test_backpressure(void)
{
    Pair *p = pair_new(1, NULL, NULL);

    p->sim->wire_room = 1;
    p->sim->wire_pause = 2 * SIM_US;
    pair_fill(p);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, HALF);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, HALF, 0, HALF);
    post(&p->b, &p->a, QRNIC_WQE_RDMA_READ, HALF, 0, HALF);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpmem(p->a.data, HALF, p->b.data, HALF);
    pair_free(p);
}

/*
 * Tests a wire that needs longer for a message than all retries together, but
 * accepts some frames in each timeout. The requester must not report a dead
 * peer, because the peer answers as soon as frames arrive.
 */
static void test_wire_slow(void)
{
    Pair *p = pair_new(1, NULL, NULL);

    p->sim->wire_room = 5;
    p->sim->wire_pause = SIM_MS;
    pair_fill(p);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 60000);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpint(p->sim->now, >, 8 * (4096 << 8));
    g_assert_cmpmem(p->a.data, 60000, p->b.data, 60000);
    g_assert_cmpint(sim_counter(p->a.qp->node, QRNIC_COUNTER_RETRANSMISSIONS),
                    ==, 0);
    pair_free(p);
}

/*
 * Tests that queue pairs share the device: none waits for another's long
 * message.
 */
static void test_fairness(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    SimQp *a2 = sim_qp_new(p->a.qp->node, 6, 6, 0, 6);
    SimQp *b2 = sim_qp_new(p->b.qp->node, 6, 6, 0, 6);
    SimSge sge = { p->a.addr, 8, p->a.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = p->b.addr, .rkey = p->b.key,
    };
    QrnicCqe small, large;

    sim_connect(a2, b2, NULL);
    p->sim->wire_room = 1;
    p->sim->wire_pause = SIM_US;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, PAIR_BYTES);
    sim_post_send(a2, &wr);
    settle(p);
    small = expect_status(a2, QRNIC_WC_SUCCESS);
    large = expect_status(p->a.qp, QRNIC_WC_SUCCESS);
    g_assert_cmpint(small.timestamp, <, 100 * SIM_US);
    g_assert_cmpint(large.timestamp, >, 1000 * SIM_US);
    sim_qp_free(a2);
    sim_qp_free(b2);
    pair_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rc/operations", test_operations);
    g_test_add_func("/rc/segmentation", test_segmentation);
    g_test_add_func("/rc/gather-scatter", test_gather_scatter);
    g_test_add_func("/rc/inline", test_inline);
    g_test_add_func("/rc/ack-coalescing", test_ack_coalescing);
    g_test_add_func("/rc/each-loss", test_each_loss);
    g_test_add_func("/rc/go-back-n", test_go_back_n);
    g_test_add_func("/rc/implied-nak", test_implied_nak);
    g_test_add_func("/rc/implied-nak-once", test_implied_nak_once);
    g_test_add_func("/rc/answers-in-order", test_answers_in_order);
    g_test_add_func("/rc/window", test_window);
    g_test_add_func("/rc/max-rd-atomic", test_max_rd_atomic);
    g_test_add_func("/rc/fence", test_fence);
    g_test_add_func("/rc/rnr", test_rnr);
    g_test_add_func("/rc/credits", test_credits);
    g_test_add_func("/rc/psn-wrap", test_psn_wrap);
    g_test_add_func("/rc/loopback-left", test_loopback_left);
    g_test_add_func("/rc/loopback-forged", test_loopback_forged);
    g_test_add_func("/rc/backpressure", test_backpressure);
    g_test_add_func("/rc/wire-slow", test_wire_slow);
    g_test_add_func("/rc/fairness", test_fairness);
    g_test_add_func("/rc/2gib", test_huge);
    g_test_add_func("/rc/2gib-mtu-256", test_huge_small_mtu);
    return g_test_run();
}
