/*
 * Errors of reliable connections, as seen by the requester, the responder and
 * the software of both sides (InfiniBand specification, 9.9)
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/transport/rc/reliability.h"
#include "pair.h"

#define HALF (PAIR_BYTES / 2)

static void settle(Pair *p)
{
    g_assert_true(sim_run(p->sim, p->sim->now + 10000 * SIM_MS));
}

static bool tap_lose_all(Sim *s, unsigned from, const uint8_t *frame,
                         size_t len, void *opaque)
{
    return from != GPOINTER_TO_UINT(opaque);
}

/*
 * Tests that the requester retries retry_cnt times after the first attempt, one
 * timeout apart. Then the queue is flushed.
 */
static void test_retry_exceeded(void)
{
    for (unsigned retries = 0; retries <= 7; retries++) {
        SimConnect c = sim_connect_default();
        const int64_t timeout = 4096 << 8;
        QrnicCqe e;
        Pair *p;

        c.timeout = 8;
        c.retry_cnt = retries;
        p = pair_new(1, NULL, &c);
        p->sim->tap = tap_lose_all;
        p->sim->now = 5 * SIM_MS;
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
        post(&p->a, &p->b, QRNIC_WQE_RDMA_READ, 0, 0, 100);
        post_recv(&p->a, 0, 100);
        settle(p);
        e = expect_status(p->a.qp, QRNIC_WC_RETRY_EXC_ERR);
        g_assert_cmpint(e.syndrome, ==, QRNIC_SYN_TIMEOUT);
        g_assert_cmpint(e.index, ==, 0);
        g_assert_cmpint(e.timestamp, ==, 5 * SIM_MS + (retries + 1) * timeout);
        e = expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
        g_assert_cmpint(e.index, ==, 1);
        e = expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
        g_assert_cmphex(e.opcode & 0x80, ==, 0x80);
        expect_no_cqe(p->a.qp);
        expect_state(p->a.qp, QRNIC_QPS_ERR);
        expect_state(p->b.qp, QRNIC_QPS_RTS);
        g_assert_cmpint(sim_counter(p->a.qp->node, QRNIC_COUNTER_TIMEOUTS), ==,
                        retries + 1);
        g_assert_cmpint(sim_counter(p->a.qp->node,
                                    QRNIC_COUNTER_RETRY_EXCEEDED), ==, 1);
        g_assert_cmpint(sim_counter(p->a.qp->node,
                                    QRNIC_COUNTER_ROCE_TX_PACKETS), ==,
                        2 * (retries + 1));
        expect_no_event(p->a.qp->node);
        pair_free(p);
    }
}

/*
 * Tests that the request is executed once if all ACKs are lost. The requester
 * reports an error as well.
 */
static void test_acks_lost(void)
{
    SimConnect c = sim_connect_default();
    Pair *p;

    c.retry_cnt = 3;
    p = pair_new(1, NULL, &c);
    p->sim->tap = tap_lose_all;
    p->sim->tap_opaque = GUINT_TO_POINTER(1);
    post_recv(&p->b, 0, 100);
    post_recv(&p->b, 100, 100);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 100);
    settle(p);
    expect_status(p->a.qp, QRNIC_WC_RETRY_EXC_ERR);
    expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    expect_no_cqe(p->b.qp);
    g_assert_cmpint(sim_counter(p->b.qp->node,
                                QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 3);
    pair_free(p);
}

/* Tests many deadlines on one timer: each queue pair fails at its own time. */
static void test_many_timers(void)
{
    enum { N = 40 };
    Pair *p = pair_new(1, NULL, NULL);
    SimQp *a[N], *b[N];

    p->sim->tap = tap_lose_all;
    for (int i = 0; i < N; i++) {
        SimSge sge = { p->a.addr, 8, p->a.key };
        SimWr wr = {
            .opcode = QRNIC_WQE_RDMA_WRITE, .sge = &sge, .num_sge = 1,
            .remote = p->b.addr, .rkey = p->b.key,
        };
        SimConnect c = sim_connect_default();

        a[i] = sim_qp_new(p->a.qp->node, 3, 0, 0, 1);
        b[i] = sim_qp_new(p->b.qp->node, 3, 0, 0, 1);
        c.timeout = 1 + (i * 7) % 13;
        c.retry_cnt = i % 8;
        sim_connect(a[i], b[i], &c);
        sim_post_send(a[i], &wr);
    }
    settle(p);
    for (int i = 0; i < N; i++) {
        QrnicCqe e = expect_status(a[i], QRNIC_WC_RETRY_EXC_ERR);

        g_assert_cmpint(e.timestamp, ==,
                        (4096ll << (1 + (i * 7) % 13)) * (i % 8 + 1));
        sim_qp_free(a[i]);
        sim_qp_free(b[i]);
    }
    pair_free(p);
}

/*
 * Tests many deadlines that are due at once. Each call handles a bounded
 * number, because the main loop waits for the call.
 */
static void test_timer_budget(void)
{
    enum { N = 100 };
    Pair *p = pair_new(1, NULL, NULL);
    SimNode *n = p->a.qp->node;
    SimQp *a[N], *b[N];

    p->sim->tap = tap_lose_all;
    for (int i = 0; i < N; i++) {
        SimSge sge = { p->a.addr, 8, p->a.key };
        SimWr wr = {
            .opcode = QRNIC_WQE_RDMA_WRITE, .sge = &sge, .num_sge = 1,
            .remote = p->b.addr, .rkey = p->b.key,
        };
        SimConnect c = sim_connect_default();

        a[i] = sim_qp_new(n, 3, 0, 0, 1);
        b[i] = sim_qp_new(p->b.qp->node, 3, 0, 0, 1);
        c.retry_cnt = 0;
        sim_connect(a[i], b[i], &c);
        sim_post_send(a[i], &wr);
    }
    sim_run(p->sim, SIM_US);
    p->sim->now = 100 * SIM_MS;
    qrnic_engine_timer(n->engine);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_TIMEOUTS), ==, 64);
    settle(p);
    for (int i = 0; i < N; i++) {
        expect_status(a[i], QRNIC_WC_RETRY_EXC_ERR);
        sim_qp_free(a[i]);
        sim_qp_free(b[i]);
    }
    pair_free(p);
}

static void test_timeout_zero(void)
{
    SimConnect c = sim_connect_default();
    Pair *p;

    c.timeout = 0;
    p = pair_new(1, NULL, &c);
    p->sim->tap = tap_lose_all;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    settle(p);
    expect_no_cqe(p->a.qp);
    expect_state(p->a.qp, QRNIC_QPS_RTS);
    pair_free(p);
}

/*
 * Tests that a blocked wire counts as loss from the second expiration on,
 * because software must be notified.
 */
static void test_wire_stuck(void)
{
    SimConnect c = sim_connect_default();
    const int64_t timeout = 4096 << 8;
    QrnicCqe e;
    Pair *p;

    c.retry_cnt = 3;
    p = pair_new(1, NULL, &c);
    p->sim->wire_room = 1;
    p->sim->wire_pause = 1000000 * SIM_MS;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 20000);
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    sim_run(p->sim, 100 * timeout);
    e = expect_status(p->a.qp, QRNIC_WC_RETRY_EXC_ERR);
    g_assert_cmpint(e.timestamp, ==, (1 + 3 + 1) * timeout);
    expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
    expect_state(p->a.qp, QRNIC_QPS_ERR);
    g_assert_cmpint(sim_counter(p->a.qp->node, QRNIC_COUNTER_TIMEOUTS), ==, 4);
    g_assert_cmpint(sim_counter(p->a.qp->node, QRNIC_COUNTER_ROCE_TX_PACKETS),
                    ==, 1);
    pair_free(p);
}

/* Tests a responder with a pending fatal NAK on a blocked wire. */
static void test_nak_stuck(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    SimNode *b = p->b.qp->node;
    SimQp *a2 = sim_qp_new(p->a.qp->node, 6, 0, 0, 4);
    PairEnd other = p->b;

    other.qp = sim_qp_new(b, 6, 0, 0, 4);
    sim_connect(a2, other.qp, NULL);
    p->sim->wire_room = 1;
    p->sim->wire_pause = 1000000 * SIM_MS;
    post(&other, &p->a, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    sim_run(p->sim, SIM_US / 2);
    g_assert_true(b->blocked);
    p->sim->wire_room = 0;
    p->b.key ^= 1;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    sim_run(p->sim, 50 * SIM_MS);
    expect_state(p->b.qp, QRNIC_QPS_RTS);
    sim_run(p->sim, 150 * SIM_MS);
    expect_state(p->b.qp, QRNIC_QPS_ERR);
    expect_event(b, QRNIC_EVENT_QP_ACCESS_ERROR, p->b.qp->number);
    g_assert_cmpint(sim_counter(b, QRNIC_COUNTER_TX_NAK_ERROR), ==, 0);
    sim_qp_free(a2);
    sim_qp_free(other.qp);
    pair_free(p);
}

/* Tests that time continues after a fatal error, but the transport stops. */
static void test_fatal(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    SimNode *n = p->a.qp->node;

    p->sim->tap = tap_lose_all;
    post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
    sim_run(p->sim, 20 * SIM_US);
    n->may_fail = true;
    qrnic_fatal(n->engine, QRNIC_HEALTH_CMD_DMA, 0);
    settle(p);
    expect_no_cqe(p->a.qp);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_TIMEOUTS), ==, 0);
    pair_free(p);
}

static void test_rnr_exceeded(void)
{
    for (unsigned retries = 0; retries < 7; retries++) {
        SimConnect c = sim_connect_default();
        QrnicCqe e;
        Pair *p;

        c.rnr_retry = retries;
        c.min_rnr_timer = 14;
        p = pair_new(1, NULL, &c);
        post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 100);
        settle(p);
        e = expect_status(p->a.qp, QRNIC_WC_RNR_RETRY_EXC_ERR);
        /* The round trip is 2 us, the wait 1.28 ms. */
        g_assert_cmpint(e.timestamp, ==, (retries + 1) * 2 * SIM_US +
                                         retries * 1280 * SIM_US);
        expect_state(p->a.qp, QRNIC_QPS_ERR);
        expect_state(p->b.qp, QRNIC_QPS_RTS);
        pair_free(p);
    }
}

/*
 * Errors with one request: a preparation, and the results at the requester
 * (status) and the responder (status of its receive, event).
 */
typedef struct Case {
    const char *name;
    uint8_t opcode;
    void (*prepare)(Pair *p, SimWr *wr, SimSge *sge);
    uint8_t status, syndrome;
    uint8_t recv_status;        /* SUCCESS: no receive completion */
    uint8_t event;              /* 0: none */
    bool local;                 /* Local to the requester */
} Case;

static void bad_variant(Pair *p, SimWr *wr, SimSge *sge)
{
    wr->rkey ^= 1;
}

static void bad_index(Pair *p, SimWr *wr, SimSge *sge)
{
    wr->rkey = 0xffffff00;
}

static void beyond_end(Pair *p, SimWr *wr, SimSge *sge)
{
    wr->remote = p->b.addr + PAIR_BYTES - 99;
}

static void address_wrap(Pair *p, SimWr *wr, SimSge *sge)
{
    wr->remote = UINT64_MAX - 50;
}

static void before_start(Pair *p, SimWr *wr, SimSge *sge)
{
    wr->remote = p->b.addr - 1;
}

static void no_rights(Pair *p, SimWr *wr, SimSge *sge)
{
    wr->rkey = sim_mkey(p->b.qp->node, p->b.addr, PAIR_BYTES,
                        QRNIC_ACCESS_LOCAL_WRITE);
}

static void other_pd(Pair *p, SimWr *wr, SimSge *sge)
{
    uint32_t pd = p->b.qp->node->pd;

    p->b.qp->node->pd = qrnic_pd_alloc(p->b.qp->node->engine).value;
    wr->rkey = sim_mkey(p->b.qp->node, p->b.addr, PAIR_BYTES, ACCESS_ALL);
    p->b.qp->node->pd = pd;
}

static void qp_rights(Pair *p, SimWr *wr, SimSge *sge)
{
    QrnicQpAttr a = { .mask = QRNIC_QP_ACCESS_FLAGS };

    g_assert_cmpint(sim_modify(p->b.qp, &a).status, ==, QRNIC_ST_OK);
}

static void remote_dma(Pair *p, SimWr *wr, SimSge *sge)
{
    p->b.qp->node->broken_from = p->b.addr;
    p->b.qp->node->broken_to = p->b.addr + PAIR_BYTES;
}

static void misaligned(Pair *p, SimWr *wr, SimSge *sge)
{
    wr->remote += 4;
}

static void atomic_short(Pair *p, SimWr *wr, SimSge *sge)
{
    sge->length = 4;
}

static void recv_short(Pair *p, SimWr *wr, SimSge *sge)
{
    post_recv(&p->b, 0, 99);
}

static void recv_bad_key(Pair *p, SimWr *wr, SimSge *sge)
{
    p->b.key ^= 3;
    post_recv(&p->b, 0, 100);
}

static void imm_bad_key(Pair *p, SimWr *wr, SimSge *sge)
{
    post_recv(&p->b, 0, 100);
    wr->rkey ^= 1;
}

/* Destroys the key when only the last packet is missing. */
static bool tap_last_packet(Sim *s, unsigned from, const uint8_t *frame,
                            size_t len, void *opaque)
{
    Pair *p = opaque;
    QrnicPacket packet;

    g_assert_cmpint(sim_parse(&packet, frame, len), ==, QRNIC_PARSE_OK);
    if (packet.t.opcode == QRNIC_OP_RC_WRITE_LAST_IMM) {
        QrnicQpAttr a = { .mask = QRNIC_QP_ACCESS_FLAGS };
        SimFrame *f;

        /* Packets in flight are delivered first. */
        s->tap = NULL;
        while ((f = sim_wire_take(s))) {
            sim_inject(s, f->to, f->data, f->len);
            g_free(f);
        }
        g_assert_cmpint(sim_modify(p->b.qp, &a).status, ==, QRNIC_ST_OK);
        g_assert_cmpint(qrnic_mkey_destroy(p->b.qp->node->engine,
                                           p->b.key >> 8).status, ==,
                        QRNIC_ST_OK);
    }
    return true;
}

static void imm_last_key_gone(Pair *p, SimWr *wr, SimSge *sge)
{
    post_recv(&p->b, 0, 100);
    sge->length = 3000;
    p->sim->tap = tap_last_packet;
    p->sim->tap_opaque = p;
}

static void recv_dma(Pair *p, SimWr *wr, SimSge *sge)
{
    post_recv(&p->b, 0, 100);
    remote_dma(p, wr, sge);
}

static void local_bad_key(Pair *p, SimWr *wr, SimSge *sge)
{
    sge->key ^= 1;
}

static void local_range(Pair *p, SimWr *wr, SimSge *sge)
{
    sge->addr = p->a.addr + PAIR_BYTES - sge->length + 1;
}

static void local_read_only(Pair *p, SimWr *wr, SimSge *sge)
{
    sge->key = sim_mkey(p->a.qp->node, p->a.addr, PAIR_BYTES, 0);
}

static void local_dma(Pair *p, SimWr *wr, SimSge *sge)
{
    p->a.qp->node->broken_from = p->a.addr;
    p->a.qp->node->broken_to = p->a.addr + PAIR_BYTES;
}

/*
 * Tests that the destination of a read or an atomic is checked when the
 * response arrives. A key may change its rights after the WQE was fetched.
 */
static void test_late_destination(gconstpointer opaque)
{
    const bool atomic = opaque != NULL;
    Pair *p = pair_new(1, NULL, NULL);
    SimNode *n = p->a.qp->node;
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .variant = 5, .pd = n->pd, .start = p->a.addr,
        .length = PAIR_BYTES, .table.root = p->a.addr,
    };
    uint32_t key = sim_mkey_ctx(n, &ctx);
    SimSge sge = { p->a.addr, 8, key };
    SimWr wr = {
        .opcode = atomic ? QRNIC_WQE_ATOMIC_FETCH_ADD : QRNIC_WQE_RDMA_READ,
        .flags = QRNIC_WQEF_SIGNALED, .sge = &sge, .num_sge = 1,
        .rkey = p->b.key, .remote = p->b.addr, .swap_add = 1,
    };

    for (unsigned good = 2; good-- > 0; ) {
        g_autofree SimFrame *request = NULL;

        stq_le_p(p->b.data, 77);
        stq_le_p(p->a.data, 0);
        ctx.access = good ? 0 : QRNIC_ACCESS_LOCAL_WRITE;
        g_assert_cmpint(qrnic_mkey_modify(n->engine, key >> 8, &ctx).status,
                        ==, QRNIC_ST_OK);
        sim_post_send(p->a.qp, &wr);
        n->kicked = false;
        qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
        request = sim_wire_take(p->sim);
        g_assert_nonnull(request);
        ctx.access = good ? QRNIC_ACCESS_LOCAL_WRITE : 0;
        g_assert_cmpint(qrnic_mkey_modify(n->engine, key >> 8, &ctx).status,
                        ==, QRNIC_ST_OK);
        sim_inject(p->sim, request->to, request->data, request->len);
        settle(p);
        if (good) {
            expect_status(p->a.qp, QRNIC_WC_SUCCESS);
        } else {
            g_assert_cmpint(expect_status(p->a.qp,
                                          QRNIC_WC_LOC_PROT_ERR).syndrome,
                            ==, QRNIC_SYN_KEY_ACCESS);
        }
        g_assert_cmpuint(ldq_le_p(p->a.data), ==, good ? 77 : 0);
        g_assert_cmpuint(ldq_le_p(p->b.data), ==, 77 + atomic);
    }
    pair_free(p);
}

/*
 * Tests that the device reports a bad record of an RQ once, although every ACK
 * reads it for the credits. The message that needs a receive WQE completes with
 * the error.
 */
static void test_bad_record_once(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    SimQp *q = p->b.qp;

    stl_le_p(q->node->memory + q->rq_record, q->rq_producer + 100000);
    for (unsigned i = 0; i < 5; i++) {
        post(&p->a, &p->b, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
        settle(p);
        expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        g_assert_cmpuint(sim_counter(q->node, QRNIC_COUNTER_GE_RECORD_VALUE),
                         ==, 1);
    }
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 100);
    settle(p);
    g_assert_cmpint(expect_status(q, QRNIC_WC_LOC_QP_OP_ERR).syndrome, ==,
                    QRNIC_SYN_PRODUCER);
    pair_free(p);
}

#define WRITE QRNIC_WQE_RDMA_WRITE
#define WRITE_IMM QRNIC_WQE_RDMA_WRITE_IMM
#define READ QRNIC_WQE_RDMA_READ
#define ADD QRNIC_WQE_ATOMIC_FETCH_ADD
#define SEND QRNIC_WQE_SEND
#define ACCESS .status = QRNIC_WC_REM_ACCESS_ERR, \
               .event = QRNIC_EVENT_QP_ACCESS_ERROR

static const Case cases[] = {
    { "write/variant", WRITE, bad_variant, ACCESS },
    { "write/index", WRITE, bad_index, ACCESS },
    { "write/end", WRITE, beyond_end, ACCESS },
    { "write/start", WRITE, before_start, ACCESS },
    { "write/wrap", WRITE, address_wrap, ACCESS },
    { "write/rights", WRITE, no_rights, ACCESS },
    { "write/pd", WRITE, other_pd, ACCESS },
    { "write/qp-rights", WRITE, qp_rights, ACCESS },
    { "write/dma", WRITE, remote_dma, QRNIC_WC_REM_OP_ERR, 0, 0,
      QRNIC_EVENT_QP_FATAL },
    { "read/variant", READ, bad_variant, ACCESS },
    { "read/end", READ, beyond_end, ACCESS },
    { "read/rights", READ, no_rights, ACCESS },
    { "read/qp-rights", READ, qp_rights, ACCESS },
    { "read/dma", READ, remote_dma, ACCESS },
    { "atomic/variant", ADD, bad_variant, ACCESS },
    { "atomic/rights", ADD, no_rights, ACCESS },
    { "atomic/qp-rights", ADD, qp_rights, ACCESS },
    { "atomic/alignment", ADD, misaligned, QRNIC_WC_REM_INV_REQ_ERR, 0, 0,
      QRNIC_EVENT_QP_REQUEST_ERROR },
    { "atomic/dma", ADD, remote_dma, QRNIC_WC_REM_OP_ERR, 0, 0,
      QRNIC_EVENT_QP_FATAL },
    { "send/too-long", SEND, recv_short, QRNIC_WC_REM_INV_REQ_ERR, 0,
      QRNIC_WC_LOC_LEN_ERR, 0 },
    { "send/receive-key", SEND, recv_bad_key, QRNIC_WC_REM_OP_ERR, 0,
      QRNIC_WC_LOC_PROT_ERR, 0 },
    { "send/receive-dma", SEND, recv_dma, QRNIC_WC_REM_OP_ERR, 0,
      QRNIC_WC_LOC_PROT_ERR, 0 },
    { "write-imm/variant", WRITE_IMM, imm_bad_key, QRNIC_WC_REM_ACCESS_ERR, 0,
      QRNIC_WC_LOC_ACCESS_ERR, 0 },
    { "write-imm/last-key-gone", WRITE_IMM, imm_last_key_gone,
      QRNIC_WC_REM_ACCESS_ERR, 0, QRNIC_WC_LOC_ACCESS_ERR, 0 },
    { "write-imm/dma", WRITE_IMM, recv_dma, QRNIC_WC_REM_OP_ERR, 0,
      QRNIC_WC_LOC_ACCESS_ERR, 0 },
    { "local/atomic-length", ADD, atomic_short, QRNIC_WC_LOC_LEN_ERR,
      QRNIC_SYN_WQE_LENGTH, 0, 0, true },
    { "local/send-key", SEND, local_bad_key, QRNIC_WC_LOC_PROT_ERR,
      QRNIC_SYN_KEY_INVALID, 0, 0, true },
    { "local/write-range", WRITE, local_range, QRNIC_WC_LOC_PROT_ERR,
      QRNIC_SYN_KEY_RANGE, 0, 0, true },
    { "local/read-rights", READ, local_read_only, QRNIC_WC_LOC_PROT_ERR,
      QRNIC_SYN_KEY_ACCESS, 0, 0, true },
    { "local/write-dma", WRITE, local_dma, QRNIC_WC_LOC_PROT_ERR,
      QRNIC_SYN_DMA, 0, 0, true },
    { "local/read-dma", READ, local_dma, QRNIC_WC_LOC_PROT_ERR, QRNIC_SYN_DMA,
      0, 0, true },
};

static void test_case(gconstpointer opaque)
{
    const Case *k = opaque;
    Pair *p = pair_new(1, NULL, NULL);
    SimSge sge = { p->a.addr, k->opcode == ADD ? 8 : 100, p->a.key };
    SimWr wr = {
        .opcode = k->opcode, .sge = &sge, .num_sge = 1, .rkey = p->b.key,
        .remote = p->b.addr, .swap_add = 1,
    };
    QrnicEqe event;
    QrnicCqe e;

    /*
     * One valid WQE precedes the failing WQE, and the two WQEs behind it are
     * flushed.
     */
    post(&p->a, &p->b, WRITE, 0, HALF, 5000);
    k->prepare(p, &wr, &sge);
    if (k->prepare == local_dma) {
        settle(p);
        expect_cqe(p->a.qp, QRNIC_WC_LOC_PROT_ERR, QRNIC_CQE_RDMA_WRITE);
        pair_free(p);
        return;
    }
    if (k->prepare == remote_dma || k->prepare == recv_dma ||
        k->prepare == qp_rights) {
        /* The error would affect the valid WQE too, so there is none. */
        pair_free(p);
        p = pair_new(1, NULL, NULL);
        post(&p->a, &p->b, QRNIC_WQE_NOP, 0, 0, 0);
        k->prepare(p, &wr, &sge);
    }
    sim_post_send(p->a.qp, &wr);
    post(&p->a, &p->b, WRITE, 0, 0, 100);
    post(&p->a, &p->b, READ, 0, 0, 100);
    settle(p);
    expect_status(p->a.qp, QRNIC_WC_SUCCESS);
    e = expect_status(p->a.qp, k->status);
    g_assert_cmpint(e.index, ==, 1);
    g_assert_cmpstr(qrnic_syndrome_name(e.syndrome), ==,
                    qrnic_syndrome_name(k->syndrome));
    for (int i = 0; i < 2; i++) {
        e = expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
        g_assert_cmpint(e.index, ==, 2 + i);
    }
    expect_no_cqe(p->a.qp);
    expect_no_event(p->a.qp->node);
    expect_state(p->a.qp, QRNIC_QPS_ERR);
    if (k->local) {
        expect_state(p->b.qp, QRNIC_QPS_RTS);
    } else {
        expect_state(p->b.qp, QRNIC_QPS_ERR);
    }
    if (k->recv_status) {
        e = expect_status(p->b.qp, k->recv_status);
        g_assert_cmphex(e.opcode & 0x80, ==, 0x80);
    }
    expect_no_cqe(p->b.qp);
    if (k->event) {
        g_assert_true(sim_poll_event(p->b.qp->node, &event));
        g_assert_cmpstr(qrnic_event_name(event.type), ==,
                        qrnic_event_name(k->event));
        g_assert_cmpint(event.object, ==, p->b.qp->number);
    }
    expect_no_event(p->b.qp->node);
    pair_free(p);
}

/* Tests more reads than responder resources. */
static void test_too_many_reads(void)
{
    SimConnect c = sim_connect_default();
    Pair *p;

    c.rd_atomic = 4;
    c.max_dest_rd_atomic = 2;
    p = pair_new(1, NULL, &c);
    for (int i = 0; i < 4; i++) {
        post(&p->a, &p->b, READ, 0, 0, 100);
    }
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    expect_status(p->a.qp, QRNIC_WC_REM_INV_REQ_ERR);
    expect_status(p->a.qp, QRNIC_WC_WR_FLUSH_ERR);
    expect_event(p->b.qp->node, QRNIC_EVENT_QP_REQUEST_ERROR,
                 p->b.qp->number);
    pair_free(p);
}

static void test_no_rd_atomic(void)
{
    SimConnect c = sim_connect_default();
    Pair *p;

    c.rd_atomic = 0;
    p = pair_new(1, NULL, &c);
    post(&p->a, &p->b, WRITE, 0, 0, 3000);
    post(&p->a, &p->b, READ, 0, 0, 100);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpint(expect_status(p->a.qp, QRNIC_WC_LOC_QP_OP_ERR).syndrome,
                    ==, QRNIC_SYN_RD_ATOMIC);
    /*
     * An error of a WQE is counted as one, independent of the check that
     * detects it.
     */
    g_assert_cmpint(sim_counter(p->a.qp->node, QRNIC_COUNTER_GE_WQE_MALFORMED),
                    ==, 1);
    pair_free(p);
}

/* Tests a key that is destroyed in the middle of a long read. */
static void test_key_destroyed(void)
{
    Pair *p = pair_new(1, NULL, NULL);

    p->sim->wire_room = 1;
    p->sim->wire_pause = SIM_US;
    post(&p->a, &p->b, READ, 0, 0, HALF);
    sim_run(p->sim, 100 * SIM_US);
    expect_no_cqe(p->a.qp);
    g_assert_cmpint(qrnic_mkey_destroy(p->b.qp->node->engine,
                                       p->b.key >> 8).status, ==, QRNIC_ST_OK);
    settle(p);
    expect_status(p->a.qp, QRNIC_WC_REM_ACCESS_ERR);
    expect_event(p->b.qp->node, QRNIC_EVENT_QP_ACCESS_ERROR, p->b.qp->number);
    pair_free(p);
}

/* Invalid packets to the responder. The test is the peer. */
typedef struct Answer {
    unsigned n;
    QrnicTransport last;
} Answer;

static bool tap_answer(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                       void *opaque)
{
    Answer *a = opaque;
    QrnicPacket p;

    g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
    if (from == 1) {
        a->n++;
        a->last = p.t;
    }
    return false;
}

static void send_crafted(Pair *p, QrnicTransport t, const QrnicPathSpec *path,
                         uint32_t len)
{
    QrnicPathSpec spec = sim_path_to(p->b.qp, p->a.qp);
    uint8_t frame[9000];
    QrnicPath built;
    uint8_t *payload;

    t.pkey = t.pkey ? t.pkey : QRNIC_PKEY_DEFAULT;
    t.dest_qpn = t.dest_qpn ? t.dest_qpn : p->b.qp->number;
    qrnic_path_init(&built, path ? path : &spec);
    payload = qrnic_packet_begin(&built, frame, &t, len);
    memset(payload, 0x5a, len);
    sim_inject(p->sim, 1, frame, qrnic_packet_finish(&built, frame, payload,
                                                     len));
    settle(p);
}

#define PSN 0x123456

/* Two packets, of which the second is wrong; MTU is 1024 */
typedef struct Sequence {
    const char *name;
    uint8_t first;              /* QRNIC_OP_RC_ACK: only one packet */
    uint32_t first_len;
    uint8_t second;
    uint32_t second_len, dma_len;
} Sequence;

#define OP(x) QRNIC_OP_RC_##x
#define ALONE .first = OP(ACK), .first_len = 0

static const Sequence sequences[] = {
    { "send-middle-alone", ALONE, OP(SEND_MIDDLE), 1024 },
    { "send-last-alone", ALONE, OP(SEND_LAST), 10 },
    { "write-middle-alone", ALONE, OP(WRITE_MIDDLE), 1024 },
    { "write-last-alone", ALONE, OP(WRITE_LAST), 10 },
    { "send-first-twice", OP(SEND_FIRST), 1024, OP(SEND_FIRST), 1024 },
    { "send-only-inside", OP(SEND_FIRST), 1024, OP(SEND_ONLY), 10 },
    { "write-inside-send", OP(SEND_FIRST), 1024, OP(WRITE_MIDDLE), 1024 },
    { "read-inside-send", OP(SEND_FIRST), 1024, OP(READ_REQUEST), 0 },
    { "send-inside-write", OP(WRITE_FIRST), 1024, OP(SEND_LAST), 10, 2048 },
    { "atomic-inside-write", OP(WRITE_FIRST), 1024, OP(FETCH_ADD), 0, 2048 },
    { "send-first-short", ALONE, OP(SEND_FIRST), 1020 },
    { "send-first-long", ALONE, OP(SEND_FIRST), 1028 },
    { "send-only-long", ALONE, OP(SEND_ONLY), 1025 },
    { "send-middle-short", OP(SEND_FIRST), 1024, OP(SEND_MIDDLE), 1020 },
    { "send-last-empty", OP(SEND_FIRST), 1024, OP(SEND_LAST), 0 },
    { "send-last-long", OP(SEND_FIRST), 1024, OP(SEND_LAST), 1025 },
    { "write-only-less", ALONE, OP(WRITE_ONLY), 99, 100 },
    { "write-only-more", ALONE, OP(WRITE_ONLY), 101, 100 },
    { "write-only-long", ALONE, OP(WRITE_ONLY), 1025, 1025 },
    { "write-first-short", ALONE, OP(WRITE_FIRST), 1020, 2000 },
    { "write-first-all", ALONE, OP(WRITE_FIRST), 1024, 1024 },
    { "write-last-less", OP(WRITE_FIRST), 1024, OP(WRITE_LAST), 10, 1035 },
    { "write-last-more", OP(WRITE_FIRST), 1024, OP(WRITE_LAST), 12, 1035 },
    { "write-middle-all", OP(WRITE_FIRST), 1024, OP(WRITE_MIDDLE), 1024, 2048 },
    { "write-huge", ALONE, OP(WRITE_FIRST), 1024, 0x80000001 },
    { "read-huge", ALONE, OP(READ_REQUEST), 0, 0x80000001 },
};

static void test_sequence(gconstpointer opaque)
{
    const Sequence *k = opaque;
    bool alone = k->first == QRNIC_OP_RC_ACK;
    Pair *p = pair_new(1, NULL, NULL);
    Answer answer = { 0 };
    QrnicTransport t = {
        .opcode = k->first, .psn = PSN, .va = p->b.addr, .rkey = p->b.key,
        .dma_len = k->dma_len,
    };

    p->sim->tap = tap_answer;
    p->sim->tap_opaque = &answer;
    post_recv(&p->b, 0, 8192);
    if (!alone) {
        send_crafted(p, t, NULL, k->first_len);
        expect_state(p->b.qp, QRNIC_QPS_RTS);
        t.psn++;
    }
    t.opcode = k->second;
    send_crafted(p, t, NULL, k->second_len);
    g_assert_cmpint(answer.n, ==, 1);
    g_assert_cmpint(answer.last.opcode, ==, QRNIC_OP_RC_ACK);
    g_assert_cmphex(answer.last.syndrome, ==, QRNIC_NAK_INVALID);
    g_assert_cmphex(answer.last.psn, ==, t.psn);
    expect_state(p->b.qp, QRNIC_QPS_ERR);
    expect_status(p->b.qp, QRNIC_WC_WR_FLUSH_ERR);
    expect_no_cqe(p->b.qp);
    expect_event(p->b.qp->node, QRNIC_EVENT_QP_REQUEST_ERROR,
                 p->b.qp->number);
    expect_no_event(p->b.qp->node);
    pair_free(p);
}

/* The packet is dropped without a response, and counted. */
static void test_dropped(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    SimNode *n = p->b.qp->node;
    QrnicPathSpec path = sim_path_to(p->b.qp, p->a.qp);
    QrnicTransport good = {
        .opcode = QRNIC_OP_RC_WRITE_ONLY, .psn = PSN, .va = p->b.addr,
        .rkey = p->b.key, .dma_len = 8, .ack_req = true,
    }, t;
    Answer answer = { 0 };

    p->sim->tap = tap_answer;
    p->sim->tap_opaque = &answer;
    t = good;
    t.dest_qpn = 77;
    send_crafted(p, t, NULL, 8);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_RX_DROP_NO_QP), ==, 1);
    t = good;
    t.pkey = 0x1234;
    send_crafted(p, t, NULL, 8);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_RX_DROP_PKEY), ==, 1);
    path.sgid[15] ^= 1;
    send_crafted(p, good, &path, 8);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_RX_DROP_ADDRESS), ==, 1);
    t = good;
    t.opcode = QRNIC_OP_RC_ACK;
    t.psn = 0x555555;
    send_crafted(p, t, NULL, 0);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_RX_DROP_PSN), ==, 1);
    g_assert_cmpint(answer.n, ==, 0);
    g_assert_cmpint(n->memory[p->b.addr], ==, 0);
    expect_state(p->b.qp, QRNIC_QPS_RTS);

    /* Limited membership of the default partition is valid. */
    t = good;
    t.pkey = 0x7fff;
    send_crafted(p, t, NULL, 8);
    g_assert_cmpint(answer.n, ==, 1);
    g_assert_cmphex(answer.last.psn, ==, PSN);
    g_assert_cmphex(answer.last.syndrome & QRNIC_AETH_TYPE_MASK, ==,
                    QRNIC_AETH_ACK);
    g_assert_cmpint(answer.last.msn, ==, 1);
    g_assert_cmpint(n->memory[p->b.addr], ==, 0x5a);

    /* A duplicate is acknowledged and not executed. */
    n->memory[p->b.addr] = 0;
    send_crafted(p, t, NULL, 8);
    g_assert_cmpint(answer.n, ==, 2);
    g_assert_cmphex(answer.last.psn, ==, PSN);
    g_assert_cmpint(n->memory[p->b.addr], ==, 0);
    g_assert_cmpint(sim_counter(n, QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 1);

    /*
     * A packet ahead of the expected PSN causes one NAK. Repeated NAKs would
     * cause repeated retransmissions.
     */
    t.psn = PSN + 2;
    send_crafted(p, t, NULL, 8);
    g_assert_cmpint(answer.n, ==, 3);
    g_assert_cmphex(answer.last.psn, ==, PSN + 1);
    g_assert_cmphex(answer.last.syndrome, ==, QRNIC_NAK_SEQUENCE);
    t.psn = PSN + 3;
    send_crafted(p, t, NULL, 8);
    g_assert_cmpint(answer.n, ==, 3);
    t.psn = PSN + 1;
    send_crafted(p, t, NULL, 8);
    g_assert_cmpint(answer.n, ==, 4);
    g_assert_cmphex(answer.last.psn, ==, PSN + 1);

    /* A duplicate before a read: its ACK does not acknowledge the read. */
    t.opcode = QRNIC_OP_RC_READ_REQUEST;
    t.psn = PSN + 2;
    send_crafted(p, t, NULL, 0);
    g_assert_cmpint(answer.n, ==, 5);
    g_assert_cmpint(answer.last.opcode, ==, QRNIC_OP_RC_READ_RESPONSE_ONLY);
    t.opcode = QRNIC_OP_RC_WRITE_ONLY;
    t.psn = PSN + 1;
    send_crafted(p, t, NULL, 8);
    g_assert_cmpint(answer.n, ==, 6);
    g_assert_cmphex(answer.last.psn, ==, PSN + 1);
    pair_free(p);
}

/* Responses without a matching request */
static void test_bad_response(void)
{
    static const struct {
        uint8_t opcode;
        uint32_t len;
    } bad[] = {
        { QRNIC_OP_RC_READ_RESPONSE_ONLY, 1024 },
        { QRNIC_OP_RC_READ_RESPONSE_FIRST, 1020 },
        { QRNIC_OP_RC_READ_RESPONSE_LAST, 476 },
        { QRNIC_OP_RC_ATOMIC_ACK, 0 },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        Pair *p = pair_new(1, NULL, NULL);
        Answer answer = { 0 };
        QrnicTransport t = {
            .opcode = bad[i].opcode, .psn = 0xabcdef, .syndrome = 0x1f,
        };

        p->sim->tap = tap_answer;
        p->sim->tap_opaque = &answer;
        /* b is the requester. */
        post(&p->b, &p->a, READ, 0, 0, 1500);
        sim_run(p->sim, p->sim->now + SIM_US);
        send_crafted(p, t, NULL, bad[i].len);
        expect_status(p->b.qp, QRNIC_WC_BAD_RESP_ERR);
        expect_state(p->b.qp, QRNIC_QPS_ERR);
        pair_free(p);
    }
}

/*
 * Tests that an overrun of the CQ causes an event, and moves its queue pairs to
 * ERR.
 */
static void test_cq_overrun(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    SimQp *a = sim_qp_new(p->a.qp->node, 6, 6, 0, 2);
    SimQp *b = sim_qp_new(p->b.qp->node, 6, 6, 0, 2);
    SimSge sge = { p->a.addr, 8, p->a.key };
    SimWr wr = {
        .opcode = WRITE, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = 1, .remote = p->b.addr, .rkey = p->b.key,
    };
    QrnicEqe event;

    sim_connect(a, b, NULL);
    for (int i = 0; i < 5; i++) {
        sim_post_send(a, &wr);
    }
    settle(p);
    g_assert_true(sim_poll_event(a->node, &event));
    g_assert_cmpint(event.type, ==, QRNIC_EVENT_CQ_ERROR);
    g_assert_cmpint(event.object, ==, a->cq);
    expect_state(a, QRNIC_QPS_ERR);
    for (int i = 0; i < 4; i++) {
        expect_status(a, QRNIC_WC_SUCCESS);
    }
    expect_no_cqe(a);
    sim_qp_free(a);
    sim_qp_free(b);
    pair_free(p);
}

/*
 * Tests that a CQ with more queue pairs than the asynchronous EQ has room for
 * fails. Each queue pair gets its event later, and the EQ is not overrun.
 */
static void test_cq_error_many(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    SimNode *n = p->a.qp->node;
    SimQp *a = sim_qp_new(n, 6, 0, 0, 0);
    SimQp *b = sim_qp_new(p->b.qp->node, 3, 0, 0, 1);
    QrnicQpCtx ctx = {
        .type = QRNIC_QPT_RC, .sq_log_size = 3, .pd = n->pd, .send_cq = a->cq,
        .recv_cq = a->cq,
    };
    QrnicQpAttr init = sim_attr_init();
    SimWr wr = {
        .opcode = QRNIC_WQE_NOP, .flags = QRNIC_WQEF_SIGNALED,
    };
    unsigned events = 0, queues;
    QrnicEqe event;

    for (queues = 0; queues < 250; queues++) {
        QrnicResult r;

        ctx.sq.root = sim_alloc(n, QRNIC_WQEBB_SIZE << 3);
        ctx.rq.root = sim_alloc(n, QRNIC_WQEBB_SIZE);
        r = qrnic_qp_create(n->engine, &ctx);
        g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
        r = qrnic_qp_modify(n->engine, r.value, &init);
        g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
    }
    sim_connect(a, b, NULL);
    /* The EQ is nearly full with unconsumed events. */
    for (int i = 0; i < 100; i++) {
        qrnic_event_async(n->engine, QRNIC_EVENT_PORT_UP, 0, 1, 0);
    }
    sim_post_send(a, &wr);
    sim_post_send(a, &wr);
    settle(p);
    while (sim_poll_event(n, &event)) {
        events += event.type == QRNIC_EVENT_QP_FATAL;
        settle(p);
    }
    g_assert_cmpuint(events, ==, queues + 1);
    pair_free(p);
}

typedef struct Caught {
    size_t len[8];
    uint8_t frame[8][2048];
    unsigned count;
} Caught;

static bool tap_catch(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                      void *opaque)
{
    Caught *c = opaque;

    if (from != 0 || c->count == ARRAY_SIZE(c->frame)) {
        return true;
    }
    g_assert_cmpuint(len, <=, sizeof(c->frame[0]));
    memcpy(c->frame[c->count], frame, len);
    c->len[c->count++] = len;
    return false;
}

/*
 * Tests two packets that change places. The second arrives before the NAK for
 * the first is sent. The dropped packet is requested without a timeout.
 */
static void test_reordered(void)
{
    SimConnect conn = sim_connect_default();
    Caught caught = { .count = 0 };
    Pair *p;

    conn.timeout = 0;           /* No timer to help */
    p = pair_new(1, NULL, &conn);
    pair_fill(p);
    p->sim->tap = tap_catch;
    p->sim->tap_opaque = &caught;
    post(&p->a, &p->b, WRITE, 0, 0, 100);
    post(&p->a, &p->b, WRITE, 200, 200, 100);
    settle(p);
    g_assert_cmpuint(caught.count, ==, 2);
    p->sim->tap = NULL;
    sim_inject(p->sim, 1, caught.frame[1], caught.len[1]);
    sim_inject(p->sim, 1, caught.frame[0], caught.len[0]);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpmem(p->a.data + 200, 100, p->b.data + 200, 100);
    g_assert_cmpint(sim_counter(p->b.qp->node,
                                QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 1);
    g_assert_cmpint(sim_counter(p->a.qp->node,
                                QRNIC_COUNTER_RETRANSMISSIONS), ==, 1);
    pair_free(p);
}

/*
 * Tests that no NAK is sent if the dropped packet arrives before the NAK is
 * sent.
 */
static void test_reordered_repeated(void)
{
    SimConnect conn = sim_connect_default();
    Caught caught = { .count = 0 };
    Pair *p;

    conn.timeout = 0;
    p = pair_new(1, NULL, &conn);
    p->sim->tap = tap_catch;
    p->sim->tap_opaque = &caught;
    post(&p->a, &p->b, WRITE, 0, 0, 100);
    post(&p->a, &p->b, WRITE, 200, 200, 100);
    settle(p);
    p->sim->tap = NULL;
    sim_inject(p->sim, 1, caught.frame[1], caught.len[1]);
    sim_inject(p->sim, 1, caught.frame[0], caught.len[0]);
    sim_inject(p->sim, 1, caught.frame[1], caught.len[1]);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    g_assert_cmpint(sim_counter(p->b.qp->node,
                                QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 0);
    pair_free(p);
}

/*
 * Sends a packet as fast as a peer could, with all words of a transport header.
 */
static void send_crafted_quick(Pair *p, QrnicTransport t, uint32_t len)
{
    QrnicPathSpec spec = sim_path_to(p->b.qp, p->a.qp);
    uint8_t frame[9000];
    QrnicPath built;
    uint8_t *payload;

    t.pkey = QRNIC_PKEY_DEFAULT;
    t.dest_qpn = p->b.qp->number;
    qrnic_path_init(&built, &spec);
    payload = qrnic_packet_begin(&built, frame, &t, len);
    memset(payload, 0x5a, len);
    sim_inject(p->sim, 1, frame, qrnic_packet_finish(&built, frame, payload,
                                                     len));
}

typedef struct Answers {
    unsigned n;
    QrnicTransport t[8];
} Answers;

static bool tap_answers(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                        void *opaque)
{
    Answers *a = opaque;
    QrnicPacket p;

    g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
    if (from == 1) {
        g_assert_cmpint(a->n, <, ARRAY_SIZE(a->t));
        a->t[a->n++] = p.t;
    }
    return false;
}

/*
 * Tests that the MSN of a response is that of its request, independent of later
 * requests. The credits belong to this MSN (9.7.7.1).
 */
static void test_msn_of_request(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    Answers answers = { 0 };
    QrnicTransport t = {
        .opcode = QRNIC_OP_RC_READ_REQUEST, .psn = PSN, .va = p->b.addr,
        .rkey = p->b.key, .dma_len = 100, .ack_req = true,
    };

    p->sim->tap = tap_answers;
    p->sim->tap_opaque = &answers;
    for (int i = 0; i < 8; i++) {
        post_recv(&p->b, 0, 100);
    }
    settle(p);
    /* No response is sent before all three requests are executed. */
    send_crafted_quick(p, t, 0);
    t.opcode = QRNIC_OP_RC_FETCH_ADD;
    t.psn = PSN + 1;
    send_crafted_quick(p, t, 0);
    t.opcode = QRNIC_OP_RC_SEND_ONLY;
    t.psn = PSN + 2;
    send_crafted_quick(p, t, 10);
    settle(p);
    g_assert_cmpint(answers.n, ==, 3);
    for (int i = 0; i < 3; i++) {
        g_assert_cmpint(answers.t[i].psn, ==, PSN + i);
        g_assert_cmpint(answers.t[i].msn, ==, 1 + i);
        g_assert_cmpint(answers.t[i].syndrome, ==,
                        qrnic_credits_encode(i < 2 ? 8 : 7));
    }
    /* The duplicates have the same values. */
    t.opcode = QRNIC_OP_RC_READ_REQUEST;
    t.psn = PSN;
    send_crafted_quick(p, t, 0);
    settle(p);
    g_assert_cmpint(answers.n, ==, 4);
    g_assert_cmpint(answers.t[3].msn, ==, 1);
    pair_free(p);
}

/* Tests that a repeated read that cannot be executed any more is dropped. */
static void test_repeated_read_key_gone(void)
{
    Pair *p = pair_new(1, NULL, NULL);
    Answers answers = { 0 };
    QrnicTransport t = {
        .opcode = QRNIC_OP_RC_READ_REQUEST, .psn = PSN, .va = p->b.addr,
        .rkey = p->b.key, .dma_len = 100, .ack_req = true,
    };

    p->sim->tap = tap_answers;
    p->sim->tap_opaque = &answers;
    send_crafted_quick(p, t, 0);
    settle(p);
    g_assert_cmpint(answers.n, ==, 1);
    g_assert_cmpint(qrnic_mkey_destroy(p->b.qp->node->engine,
                                       p->b.key >> 8).status, ==, QRNIC_ST_OK);
    send_crafted_quick(p, t, 0);
    settle(p);
    g_assert_cmpint(answers.n, ==, 1);
    expect_state(p->b.qp, QRNIC_QPS_RTS);
    expect_no_event(p->b.qp->node);
    /* The connection continues: a write of 0 bytes needs no key. */
    t.opcode = QRNIC_OP_RC_WRITE_ONLY;
    t.psn = PSN + 1;
    t.dma_len = 0;
    send_crafted_quick(p, t, 0);
    settle(p);
    g_assert_cmpint(answers.n, ==, 2);
    g_assert_cmpint(answers.t[1].psn, ==, PSN + 1);
    pair_free(p);
}

/*
 * Tests that packets in flight after an RNR NAK are dropped without a NAK.
 * After the requester has resumed, the loss of its first packet causes a NAK.
 */
static void test_rnr_resent_lost(void)
{
    SimConnect c = sim_connect_default();
    Answers answers = { 0 };
    QrnicTransport t = {
        .opcode = QRNIC_OP_RC_SEND_ONLY, .psn = PSN, .ack_req = true,
    };
    Pair *p;

    c.min_rnr_timer = 14;       /* 1.28 ms */
    p = pair_new(1, NULL, &c);
    p->sim->tap = tap_answers;
    p->sim->tap_opaque = &answers;
    send_crafted_quick(p, t, 10);
    sim_run(p->sim, p->sim->now + 100 * SIM_US);
    g_assert_cmpint(answers.n, ==, 1);
    g_assert_cmphex(answers.t[0].syndrome, ==, QRNIC_AETH_RNR | 14);
    p->sim->now += 1000 * SIM_US;
    t.psn = PSN + 1;
    send_crafted_quick(p, t, 10);
    settle(p);
    g_assert_cmpint(answers.n, ==, 1);
    p->sim->now += 300 * SIM_US;
    send_crafted_quick(p, t, 10);
    settle(p);
    g_assert_cmpint(answers.n, ==, 2);
    g_assert_cmphex(answers.t[1].syndrome, ==, QRNIC_NAK_SEQUENCE);
    g_assert_cmphex(answers.t[1].psn, ==, PSN);
    /* One NAK is sent for each sequence gap, so this packet causes none. */
    send_crafted_quick(p, t, 10);
    settle(p);
    g_assert_cmpint(answers.n, ==, 2);
    pair_free(p);
}

/*
 * Tests packets in flight at the RNR NAK, which may arrive after the RNR timer.
 * The responder must not treat these as retransmissions.
 */
static void test_rnr_slow_wire(void)
{
    SimConnect c = sim_connect_default();
    Answers answers = { 0 };
    QrnicTransport t = {
        .opcode = QRNIC_OP_RC_SEND_ONLY, .psn = PSN, .ack_req = true,
    };
    Pair *p;

    c.min_rnr_timer = 1;        /* 10 us */
    p = pair_new(1, NULL, &c);
    p->sim->tap = tap_answers;
    p->sim->tap_opaque = &answers;
    send_crafted_quick(p, t, 10);
    settle(p);
    g_assert_cmpint(answers.n, ==, 1);
    g_assert_cmphex(answers.t[0].syndrome, ==, QRNIC_AETH_RNR | 1);
    for (t.psn = PSN + 1; t.psn < PSN + 5; t.psn++) {
        p->sim->now += SIM_MS;
        send_crafted_quick(p, t, 10);
    }
    settle(p);
    g_assert_cmpint(answers.n, ==, 1);
    t.psn = PSN + 3;
    send_crafted_quick(p, t, 10);
    settle(p);
    g_assert_cmpint(answers.n, ==, 2);
    g_assert_cmphex(answers.t[1].syndrome, ==, QRNIC_NAK_SEQUENCE);
    pair_free(p);
}

/* Loses every second packet of the requester. */
static bool tap_every_second(Sim *s, unsigned from, const uint8_t *frame,
                             size_t len, void *opaque)
{
    unsigned *count = opaque;

    return from || (*count)++ % 2 == 0;
}

/*
 * Tests a receiver without WQE for a long time, and a lossy wire. Each RNR NAK
 * proves that the packet arrived, so the losses do not add up.
 */
static void test_rnr_and_loss(void)
{
    SimConnect c = sim_connect_default();
    unsigned count = 0;
    Pair *p;

    c.min_rnr_timer = 1;        /* 10 us */
    c.timeout = 4;              /* 66 us */
    c.retry_cnt = 1;
    p = pair_new(1, NULL, &c);
    p->sim->tap = tap_every_second;
    p->sim->tap_opaque = &count;
    pair_fill(p);
    post(&p->a, &p->b, QRNIC_WQE_SEND, 0, 0, 100);
    sim_run(p->sim, 10 * SIM_MS);
    expect_no_cqe(p->a.qp);
    g_assert_cmpuint(sim_counter(p->a.qp->node, QRNIC_COUNTER_TIMEOUTS), >, 20);
    post_recv(&p->b, 0, 100);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_cqe(p->b.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    pair_free(p);
}

/* Stores as a CPU right behind the device's read of the word. */
static void cpu_stores(SimNode *n, uint64_t addr, size_t len)
{
    if (len == 8 && ldq_le_p(n->memory + addr) == 0x1111) {
        stq_le_p(n->memory + addr, 0x2222);
    }
}

/* Tests that a compare and swap without a match writes nothing. */
static void test_failed_compare_writes_nothing(gconstpointer glob)
{
    SimOptions o = { .atomic_hca = !glob };
    Pair *p = pair_new(1, &o, NULL);
    SimNode *b = p->b.qp->node;
    SimSge sge = { p->a.addr, 8, p->a.key };
    SimWr wr = {
        .opcode = QRNIC_WQE_ATOMIC_CMP_SWAP, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1, .remote = p->b.addr + 8, .rkey = p->b.key,
        .compare = 0x3333, .swap_add = 0x4444,
    };
    uint64_t written = sim_counter(b, QRNIC_COUNTER_DMA_WRITES);

    stq_le_p(p->b.data + 8, 0x1111);
    b->after_read = cpu_stores;
    sim_post_send(p->a.qp, &wr);
    settle(p);
    expect_cqe(p->a.qp, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_CMP_SWAP);
    g_assert_cmphex(ldq_le_p(p->a.data), ==, 0x1111);
    if (!glob) {
        g_assert_cmphex(ldq_le_p(p->b.data + 8), ==, 0x2222);
        g_assert_cmpuint(sim_counter(b, QRNIC_COUNTER_DMA_WRITES), ==,
                         written);
        pair_free(p);
        return;
    }
    /*
     * The atomic is one access, so there is no read behind which a CPU could
     * store.
     */
    g_assert_cmphex(ldq_le_p(p->b.data + 8), ==, 0x1111);
    wr.compare = 0x1111;
    sim_post_send(p->a.qp, &wr);
    wr.opcode = QRNIC_WQE_ATOMIC_FETCH_ADD;
    wr.compare = 0;
    wr.swap_add = 1;
    sim_post_send(p->a.qp, &wr);
    settle(p);
    g_assert_cmphex(ldq_le_p(p->b.data + 8), ==, 0x4445);
    pair_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rc/error/msn-of-request", test_msn_of_request);
    g_test_add_func("/rc/error/bad-record-once", test_bad_record_once);
    g_test_add_data_func("/rc/late-destination/read", NULL,
                         test_late_destination);
    g_test_add_data_func("/rc/late-destination/atomic", "atomic",
                         test_late_destination);
    g_test_add_func("/rc/error/repeated-read-key-gone",
                    test_repeated_read_key_gone);
    g_test_add_func("/rc/error/rnr-resent-lost", test_rnr_resent_lost);
    g_test_add_func("/rc/error/rnr-slow-wire", test_rnr_slow_wire);
    g_test_add_func("/rc/error/rnr-and-loss", test_rnr_and_loss);
    g_test_add_data_func("/rc/atomic/failed-compare-writes-nothing", NULL,
                         test_failed_compare_writes_nothing);
    g_test_add_data_func("/rc/atomic/one-access", "glob",
                         test_failed_compare_writes_nothing);
    g_test_add_func("/rc/error/retry-exceeded", test_retry_exceeded);
    g_test_add_func("/rc/error/acks-lost", test_acks_lost);
    g_test_add_func("/rc/error/many-timers", test_many_timers);
    g_test_add_func("/rc/error/timer-budget", test_timer_budget);
    g_test_add_func("/rc/error/cq-error-many", test_cq_error_many);
    g_test_add_func("/rc/error/timeout-zero", test_timeout_zero);
    g_test_add_func("/rc/error/wire-stuck", test_wire_stuck);
    g_test_add_func("/rc/error/nak-stuck", test_nak_stuck);
    g_test_add_func("/rc/error/fatal", test_fatal);
    g_test_add_func("/rc/error/rnr-exceeded", test_rnr_exceeded);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        g_autofree char *path = g_strdup_printf("/rc/error/%s", cases[i].name);

        g_test_add_data_func(path, &cases[i], test_case);
    }
    g_test_add_func("/rc/error/too-many-reads", test_too_many_reads);
    g_test_add_func("/rc/error/no-rd-atomic", test_no_rd_atomic);
    g_test_add_func("/rc/error/key-destroyed", test_key_destroyed);
    for (unsigned i = 0; i < ARRAY_SIZE(sequences); i++) {
        g_autofree char *path = g_strdup_printf("/rc/sequence/%s",
                                                sequences[i].name);

        g_test_add_data_func(path, &sequences[i], test_sequence);
    }
    g_test_add_func("/rc/error/dropped", test_dropped);
    g_test_add_func("/rc/error/bad-response", test_bad_response);
    g_test_add_func("/rc/error/cq-overrun", test_cq_overrun);
    g_test_add_func("/rc/error/reordered", test_reordered);
    g_test_add_func("/rc/error/reordered-repeated", test_reordered_repeated);
    return g_test_run();
}
