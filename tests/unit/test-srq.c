/*
 * Shared receive queues: assignment of WQEs, slots in any order, the limit,
 * WQEs of destroyed queue pairs, and invalid rings
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/host-utils.h"
#include "pair.h"

#define BYTES 4096u
#define PEERS 3

/* Node A sends from PEERS queue pairs, node B receives into one SRQ. */
typedef struct Shared {
    Sim *sim;
    SimSrq *srq;
    SimQp *from[PEERS], *to[PEERS];
    uint64_t source, target;
    uint32_t source_key, target_key;
} Shared;

static Shared *shared_new(unsigned log_size, unsigned log_stride)
{
    Shared *x = g_new0(Shared, 1);
    SimConnect c = sim_connect_default();
    SimNode *a, *b;

    c.rnr_retry = 3;
    c.path_mtu = QRNIC_MTU_256;
    x->sim = sim_new(17, NULL);
    a = &x->sim->node[0];
    b = &x->sim->node[1];
    x->srq = sim_srq_new(b, log_size, log_stride);
    x->source = sim_alloc(a, 1 << 16);
    x->target = sim_alloc(b, BYTES << log_size);
    x->source_key = sim_mkey(a, x->source, 1 << 16, ACCESS_ALL);
    x->target_key = sim_mkey(b, x->target, BYTES << log_size, ACCESS_ALL);
    for (unsigned i = 0; i < 1 << 16; i++) {
        a->memory[x->source + i] = g_rand_int(x->sim->rand);
    }
    for (unsigned i = 0; i < PEERS; i++) {
        x->from[i] = sim_qp_new(a, 6, 0, 0, 8);
        x->to[i] = sim_qp_new_srq(b, 6, x->srq, 8);
        sim_connect(x->from[i], x->to[i], &c);
    }
    return x;
}

static void shared_free(Shared *x)
{
    for (unsigned i = 0; i < PEERS; i++) {
        sim_qp_free(x->from[i]);
        if (x->to[i]) {
            sim_qp_free(x->to[i]);
        }
    }
    sim_srq_free(x->srq);
    sim_free(x->sim);
    g_free(x);
}

/* Posts a WQE. Each slot has its own buffer. */
static uint32_t shared_post(Shared *x)
{
    SimSge sge = {
        x->target + x->srq->head * BYTES, BYTES, x->target_key,
    };

    return sim_post_srq(x->srq, &sge, 1);
}

static void shared_send(Shared *x, unsigned i, uint32_t offset, uint32_t len)
{
    SimSge sge = { x->source + offset, len, x->source_key };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = 1,
    };

    sim_post_send(x->from[i], &wr);
}

/* Asserts that the message is in the buffer of the CQE's slot. */
static uint32_t shared_received(Shared *x, unsigned i, uint32_t offset,
                                uint32_t len)
{
    QrnicCqe c = expect_cqe(x->to[i], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);

    g_assert_cmpint(c.srqn, ==, x->srq->number);
    g_assert_cmpint(c.byte_len, ==, len);
    g_assert_cmpmem(x->sim->node[1].memory + x->target + c.index * BYTES, len,
                    x->sim->node[0].memory + x->source + offset, len);
    return c.index;
}

static QrnicSrqCtx shared_query(Shared *x)
{
    QrnicSrqCtx ctx;

    g_assert_cmpint(qrnic_srq_query(x->srq->node->engine, x->srq->number,
                                    &ctx).status, ==, QRNIC_ST_OK);
    return ctx;
}

static uint8_t shared_limit(Shared *x, uint16_t limit)
{
    QrnicSrqLimit in = { .limit = limit };

    return qrnic_srq_modify(x->srq->node->engine, x->srq->number, &in).status;
}

/* Tests that each WQE goes to the next receiver. */
static void test_shared(void)
{
    Shared *x = shared_new(3, 0);

    for (uint32_t i = 0; i < 3; i++) {
        g_assert_cmpint(shared_post(x), ==, i);
    }
    shared_send(x, 2, 100, 10);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    shared_send(x, 0, 200, 1000);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    shared_send(x, 1, 300, 0);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    g_assert_cmpint(shared_received(x, 2, 100, 10), ==, 0);
    g_assert_cmpint(shared_received(x, 0, 200, 1000), ==, 1);
    g_assert_cmpint(shared_received(x, 1, 300, 0), ==, 2);
    g_assert_cmpint(sim_counter(&x->sim->node[1], QRNIC_COUNTER_SRQ_WQES), ==,
                    3);
    /* The RQ doorbell of such a queue pair is ignored, because it has no RQ. */
    sim_ring_rq(x->to[0]);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    g_assert_cmpint(sim_counter(&x->sim->node[1], QRNIC_COUNTER_GUEST_ERRORS),
                    ==, 1);
    shared_free(x);
}

/*
 * Receives in many rounds, with slots freed in random order, and a full ring.
 */
static void any_order(unsigned log_stride)
{
    Shared *x = shared_new(4, log_stride);
    uint32_t held[16], count = 0, posted = 0;

    for (unsigned round = 0; round < 2000; round++) {
        uint32_t offset = g_rand_int_range(x->sim->rand, 0, 60000);
        uint32_t len = g_rand_int_range(x->sim->rand, 0, 700);
        unsigned i = g_rand_int_range(x->sim->rand, 0, PEERS);

        while (count && (count > 10 || g_rand_boolean(x->sim->rand))) {
            uint32_t n = g_rand_int_range(x->sim->rand, 0, count);

            sim_srq_slot_free(x->srq, held[n]);
            held[n] = held[--count];
        }
        while (posted + count < 15 &&
               (!posted || g_rand_int_range(x->sim->rand, 0, 3))) {
            shared_post(x);
            posted++;
        }
        shared_send(x, i, offset, len);
        g_assert_true(sim_run(x->sim, INT64_MAX));
        held[count++] = shared_received(x, i, offset, len);
        posted--;
        expect_cqe(x->from[i], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    }
    g_assert_cmpint(shared_query(x).consumer, ==, 2000);
    shared_free(x);
}

static void test_any_order(void)
{
    any_order(0);
}

static void test_any_order_wide(void)
{
    any_order(2);
}

/*
 * Tests that the device sends RNR NAKs without WQEs, and never reports credits.
 */
static void test_empty(void)
{
    Shared *x = shared_new(2, 0);
    SimNode *b = &x->sim->node[1];

    shared_send(x, 0, 0, 600);
    g_assert_false(sim_run(x->sim, 100 * SIM_US));
    expect_no_cqe(x->from[0]);
    g_assert_cmpint(sim_counter(b, QRNIC_COUNTER_TX_RNR_NAK), ==, 1);
    shared_post(x);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    shared_received(x, 0, 0, 600);
    expect_cqe(x->from[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    shared_free(x);
}

static void test_limit(void)
{
    Shared *x = shared_new(3, 0);
    SimNode *b = &x->sim->node[1];

    for (uint32_t i = 0; i < 5; i++) {
        shared_post(x);
    }
    g_assert_cmpint(shared_limit(x, 8), ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(shared_limit(x, 4), ==, QRNIC_ST_OK);
    g_assert_cmpint(shared_query(x).limit, ==, 4);
    expect_no_event(b);
    shared_send(x, 0, 0, 100);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    expect_no_event(b);         /* Four remain, which is the limit */
    shared_send(x, 1, 0, 100);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    expect_event(b, QRNIC_EVENT_SRQ_LIMIT, x->srq->number);
    g_assert_cmpint(shared_query(x).limit, ==, 0);
    shared_send(x, 1, 0, 100);  /* One event only */
    g_assert_true(sim_run(x->sim, INT64_MAX));
    expect_no_event(b);
    /*
     * The limit is armed when fewer are posted already, and posted WQEs count.
     */
    shared_post(x);
    shared_post(x);
    g_assert_cmpint(shared_limit(x, 4), ==, QRNIC_ST_OK);
    expect_no_event(b);
    g_assert_cmpint(shared_limit(x, 5), ==, QRNIC_ST_OK);
    expect_event(b, QRNIC_EVENT_SRQ_LIMIT, x->srq->number);
    shared_free(x);
}

static bool drop_last(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                      void *opaque)
{
    QrnicPacket p;

    if (from != 0 || sim_parse(&p, frame, len) != QRNIC_PARSE_OK) {
        return true;
    }
    return p.t.opcode != QRNIC_OP_RC_SEND_LAST;
}

/*
 * Asserts that the next message gets the WQE that an incomplete message has
 * consumed, after DESTROY_QP or RESET.
 */
static void give_back(bool destroy)
{
    Shared *x = shared_new(2, 0);
    QrnicQpAttr reset = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };

    shared_post(x);
    shared_post(x);
    x->sim->tap = drop_last;
    shared_send(x, 0, 0, 600);
    g_assert_false(sim_run(x->sim, 20 * SIM_US));
    g_assert_cmpint(shared_query(x).consumer, ==, 1);
    if (destroy) {
        sim_qp_free(x->to[0]);
        x->to[0] = NULL;
    } else {
        sim_modify(x->to[0], &reset);
    }
    x->sim->tap = NULL;
    shared_send(x, 1, 1000, 600);
    sim_run(x->sim, 10 * SIM_MS);
    g_assert_cmpint(shared_received(x, 1, 1000, 600), ==, 0);
    shared_send(x, 2, 2000, 600);
    sim_run(x->sim, 20 * SIM_MS);
    g_assert_cmpint(shared_received(x, 2, 2000, 600), ==, 1);
    g_assert_cmpint(sim_counter(&x->sim->node[1], QRNIC_COUNTER_SRQ_WQES), ==,
                    2);
    shared_free(x);
}

static void test_give_back_reset(void)
{
    give_back(false);
}

static void test_give_back_destroy(void)
{
    give_back(true);
}

/*
 * Tests that the slot of such a WQE is in use, so the ring cannot have more
 * posted WQEs.
 */
static void test_give_back_room(void)
{
    Shared *x = shared_new(2, 0);
    QrnicQpAttr reset = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };

    shared_post(x);
    x->sim->tap = drop_last;
    shared_send(x, 0, 0, 600);
    g_assert_false(sim_run(x->sim, 20 * SIM_US));
    sim_modify(x->to[0], &reset);
    x->sim->tap = NULL;
    stl_le_p(x->sim->node[1].memory + x->srq->record, 4);
    /* The limit makes the device read the record. */
    g_assert_cmpint(shared_limit(x, 3), ==, QRNIC_ST_OK);
    expect_event(&x->sim->node[1], QRNIC_EVENT_SRQ_ERROR, x->srq->number);
    shared_free(x);
}

/* Tests that ERR flushes only the consumed WQE; then one event is sent. */
static void test_last_wqe(void)
{
    Shared *x = shared_new(2, 0);
    SimNode *b = &x->sim->node[1];
    QrnicQpAttr err = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR };
    QrnicCqe c;

    shared_post(x);
    shared_post(x);
    x->sim->tap = drop_last;
    shared_send(x, 0, 0, 600);
    g_assert_false(sim_run(x->sim, 20 * SIM_US));
    sim_modify(x->to[0], &err);
    sim_run(x->sim, 30 * SIM_US);
    c = expect_status(x->to[0], QRNIC_WC_WR_FLUSH_ERR);
    g_assert_cmpint(c.index, ==, 0);
    g_assert_cmpint(c.srqn, ==, x->srq->number);
    expect_no_cqe(x->to[0]);
    expect_event(b, QRNIC_EVENT_LAST_WQE_REACHED, x->to[0]->number);
    sim_modify(x->to[0], &err);
    sim_ring_sq(x->to[0]);
    sim_run(x->sim, 40 * SIM_US);
    expect_no_event(b);
    /* This queue pair has no consumed WQE. */
    sim_modify(x->to[1], &err);
    sim_run(x->sim, 50 * SIM_US);
    expect_no_cqe(x->to[1]);
    expect_event(b, QRNIC_EVENT_LAST_WQE_REACHED, x->to[1]->number);
    x->sim->tap = NULL;
    shared_send(x, 2, 2000, 300);
    sim_run(x->sim, 10 * SIM_MS);
    g_assert_cmpint(shared_received(x, 2, 2000, 300), ==, 1);
    shared_free(x);
}

/* Asserts that after an invalid ring or record, no queue pair gets a WQE. */
static void broken(Shared *x, uint8_t syndrome)
{
    SimNode *b = &x->sim->node[1];
    QrnicEqe e;

    shared_send(x, 0, 0, 100);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    g_assert_true(sim_poll_event(b, &e));
    g_assert_cmpint(e.type, ==, QRNIC_EVENT_SRQ_ERROR);
    g_assert_cmpint(e.object, ==, x->srq->number);
    g_assert_cmpstr(qrnic_syndrome_name(e.subtype), ==,
                    qrnic_syndrome_name(syndrome));
    expect_status(x->from[0], QRNIC_WC_REM_OP_ERR);
    expect_event(b, QRNIC_EVENT_QP_FATAL, x->to[0]->number);
    expect_no_cqe(x->to[0]);    /* A CQE would need a slot */
    expect_state(x->to[0], QRNIC_QPS_ERR);
    expect_event(b, QRNIC_EVENT_LAST_WQE_REACHED, x->to[0]->number);
    /*
     * Another queue pair fails when it receives, not before, because it does
     * not read the ring before.
     */
    expect_state(x->to[1], QRNIC_QPS_RTS);
    shared_send(x, 1, 0, 100);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    expect_status(x->from[1], QRNIC_WC_REM_OP_ERR);
    expect_event(b, QRNIC_EVENT_QP_FATAL, x->to[1]->number);
    shared_free(x);
}

static void test_broken_index(void)
{
    Shared *x = shared_new(2, 0);

    shared_post(x);
    stl_le_p(x->sim->node[1].memory + x->srq->ring +
             QRNIC_RECV_CTRL_INDEX_OFFSET, 1);
    broken(x, QRNIC_SYN_WQE_INDEX);
}

static void test_broken_next(void)
{
    Shared *x = shared_new(2, 0);

    shared_post(x);
    stl_le_p(x->sim->node[1].memory + x->srq->ring +
             QRNIC_RECV_CTRL_NEXT_OFFSET, 4);
    broken(x, QRNIC_SYN_WQE_RESERVED);
}

static void test_broken_segments(void)
{
    Shared *x = shared_new(2, 0);

    shared_post(x);
    stl_le_p(x->sim->node[1].memory + x->srq->ring +
             QRNIC_RECV_CTRL_DATA_SEGMENTS_OFFSET, 4);
    broken(x, QRNIC_SYN_WQE_SIZE);
}

/*
 * Tests that an invalid data segment is an error of its WQE and its receiver
 * only.
 */
static void test_long_segment(void)
{
    Shared *x = shared_new(2, 0);
    SimNode *b = &x->sim->node[1];
    QrnicCqe c;

    shared_post(x);
    shared_post(x);
    stl_le_p(b->memory + x->srq->ring + QRNIC_SEGMENT_SIZE +
             QRNIC_DATA_SEG_LENGTH_OFFSET, 0x80000001);
    shared_send(x, 0, 0, 100);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    expect_status(x->from[0], QRNIC_WC_REM_OP_ERR);
    c = expect_status(x->to[0], QRNIC_WC_LOC_LEN_ERR);
    g_assert_cmpint(c.index, ==, 0);
    g_assert_cmpint(c.srqn, ==, x->srq->number);
    g_assert_cmpint(c.syndrome, ==, QRNIC_SYN_WQE_LENGTH);
    expect_state(x->to[0], QRNIC_QPS_ERR);
    expect_event(b, QRNIC_EVENT_LAST_WQE_REACHED, x->to[0]->number);
    expect_no_event(b);
    shared_send(x, 1, 300, 100);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    g_assert_cmpint(shared_received(x, 1, 300, 100), ==, 1);
    shared_free(x);
}

/* Tests that a full ring cannot be posted, because one slot is always free. */
static void test_broken_record(void)
{
    Shared *x = shared_new(2, 0);

    stl_le_p(x->sim->node[1].memory + x->srq->record, 4);
    broken(x, QRNIC_SYN_PRODUCER);
}

static void test_broken_dma(void)
{
    Shared *x = shared_new(2, 0);

    shared_post(x);
    x->sim->node[1].broken_from = x->srq->ring;
    x->sim->node[1].broken_to = x->srq->ring + 64;
    broken(x, QRNIC_SYN_WQE_FETCH);
}

/* Keys are checked in the SRQ's PD, not in the queue pair's. */
static void test_pd(void)
{
    Shared *x = shared_new(2, 0);
    SimNode *b = &x->sim->node[1];
    uint32_t own = b->pd;
    SimSge sge = { x->target, BYTES, x->target_key };
    QrnicCqe c;

    b->pd = qrnic_pd_alloc(b->engine).value;
    sim_post_srq(x->srq, &sge, 1);
    sge.key = sim_mkey(b, x->target, BYTES, ACCESS_ALL);
    sim_post_srq(x->srq, &sge, 1);
    shared_send(x, 0, 0, 64);
    shared_send(x, 1, 0, 64);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    expect_cqe(x->to[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    c = expect_status(x->to[1], QRNIC_WC_LOC_PROT_ERR);
    g_assert_cmpint(c.syndrome, ==, QRNIC_SYN_KEY_INVALID);
    g_assert_cmpint(c.index, ==, 1);
    g_assert_cmpint(c.srqn, ==, x->srq->number);
    b->pd = own;
    shared_free(x);
}

/* Tests an unreliable connection beside reliable ones. */
static void test_unreliable(void)
{
    Shared *x = shared_new(2, 0);
    SimQp *from = sim_uc_new(&x->sim->node[0], NULL);
    SimQp *to = sim_uc_new(&x->sim->node[1], x->srq);
    SimQp *far = x->from[0], *near = x->to[0];

    sim_uc_connect(from, to);
    x->from[0] = from;
    x->to[0] = to;
    shared_post(x);
    shared_post(x);
    shared_send(x, 1, 500, 200);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    g_assert_cmpint(shared_received(x, 1, 500, 200), ==, 0);
    shared_send(x, 0, 1000, 3000);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    expect_cqe(from, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    g_assert_cmpint(shared_received(x, 0, 1000, 3000), ==, 1);
    /* No WQE remains: the message is dropped without an error. */
    shared_send(x, 0, 0, 10);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    expect_no_cqe(to);
    g_assert_cmpint(sim_counter(to->node, QRNIC_COUNTER_RX_DROP_NO_WQE), ==,
                    1);
    sim_qp_free(far);
    sim_qp_free(near);
    shared_free(x);
}

/*
 * Returns the slots that are posted, or completed and not freed, and the next
 * one.
 */
static uint32_t slots_in_use(const SimSrq *s)
{
    uint64_t in_use = s->log_size < 6 ? (1ull << (1u << s->log_size)) - 1 :
                      UINT64_MAX;

    for (uint32_t slot = s->head; slot != s->tail; slot = s->next[slot]) {
        in_use &= ~(1ull << s->next[slot]);
    }
    return 64 - __builtin_clzll(in_use);
}

/* Keeps the order of the free list for the slots of the new ring. */
static void slots_renew(SimSrq *s, uint32_t slots)
{
    uint16_t *next = g_new(uint16_t, slots);
    uint32_t tail = s->head;

    for (uint32_t slot = s->head; slot != s->tail; ) {
        slot = s->next[slot];
        if (slot < slots) {
            next[tail] = slot;
            tail = slot;
        }
    }
    for (uint32_t slot = 1u << s->log_size; slot < slots; slot++) {
        next[tail] = slot;
        tail = slot;
    }
    g_free(s->next);
    s->next = next;
    s->tail = tail;
}

/*
 * Resizes as the manual describes. The old ring is overwritten, so that a late
 * access is detected.
 */
static QrnicResult srq_resize(SimSrq *s, unsigned log_size, uint8_t flags,
                              uint16_t limit)
{
    size_t old = (size_t)QRNIC_WQEBB_SIZE << (s->log_size + s->log_stride);
    size_t new = (size_t)QRNIC_WQEBB_SIZE << (log_size + s->log_stride);
    QrnicSrqResize in = {
        .log_size = log_size, .flags = flags, .limit = limit,
    };
    uint8_t *memory = s->node->memory;
    QrnicResult r;

    in.ring.root = sim_alloc(s->node, new);
    memset(memory + in.ring.root, 0xff, new);
    memcpy(memory + in.ring.root, memory + s->ring, MIN(old, new));
    r = qrnic_srq_resize(s->node->engine, s->number, &in);
    if (r.status == QRNIC_ST_OK) {
        memset(memory + s->ring, 0xff, old);
        s->ring = in.ring.root;
        slots_renew(s, 1u << log_size);
        s->log_size = log_size;
    }
    return r;
}

/*
 * Resizes from every size to every size with `posted` WQEs, of which the first
 * is consumed and the others are prefetched. All are consumed in order.
 */
static void resize(unsigned from, unsigned to, unsigned done, unsigned posted)
{
    Shared *x = shared_new(5, done % 3);
    uint32_t slot[64], count = 0, taken = MIN(posted, 1);

    g_assert_cmpint(srq_resize(x->srq, from, 0, 0).status, ==, QRNIC_ST_OK);
    for (unsigned i = 0; i < done; i++) {
        shared_post(x);
        shared_send(x, 0, i, 9);
        g_assert_true(sim_run(x->sim, INT64_MAX));
        sim_srq_slot_free(x->srq, shared_received(x, 0, i, 9));
    }
    while (count < posted) {
        slot[count++] = shared_post(x);
    }
    if (taken) {
        shared_send(x, 0, 5, 9);
        g_assert_true(sim_run(x->sim, INT64_MAX));
        g_assert_cmpint(shared_received(x, 0, 5, 9), ==, slot[0]);
        sim_srq_slot_free(x->srq, slot[0]);
    }
    if (slots_in_use(x->srq) <= 1u << to) {
        g_assert_cmpint(srq_resize(x->srq, to, 0, 0).status, ==, QRNIC_ST_OK);
    } else if (posted - taken >= 1u << to) {
        QrnicResult r = srq_resize(x->srq, to, 0, 0);

        g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
        g_assert_cmpint(r.syndrome, ==, QRNIC_SRQ_RESIZE_LOG_SIZE_OFFSET);
    }
    g_assert_cmpint(shared_query(x).log_size, ==, x->srq->log_size);
    g_assert_cmpint(shared_query(x).producer, ==, x->srq->producer);
    while (x->srq->head != x->srq->tail) {
        slot[count++] = shared_post(x);
    }
    for (uint32_t i = taken; i < count; i++) {
        shared_send(x, i % PEERS, 7 * i, 300);
        g_assert_true(sim_run(x->sim, INT64_MAX));
        g_assert_cmpint(shared_received(x, i % PEERS, 7 * i, 300), ==,
                        slot[i]);
    }
    g_assert_cmpint(count - taken, ==, (1u << x->srq->log_size) - 1);
    expect_no_event(&x->sim->node[1]);
    shared_free(x);
}

static void test_resize(void)
{
    for (unsigned from = 1; from <= 4; from++) {
        for (unsigned to = 1; to <= 5; to++) {
            for (unsigned done = 0; done < 20; done += 3) {
                resize(from, to, done, done % (1u << from));
            }
        }
    }
}

/*
 * Tests messages of many packets from three senders, while the ring moves
 * between the packets. At each time some WQEs are posted, some prefetched, some
 * consumed.
 */
static void test_resize_traffic(void)
{
    Shared *x = shared_new(6, 1);
    unsigned sent[PEERS] = { 0 }, got[PEERS] = { 0 }, resized = 0, shrunk = 0;
    const unsigned messages = 300;
    bool open = true;

    x->sim->loss = 20;
    while (open) {
        unsigned want = g_rand_int_range(x->sim->rand, 1, 7);

        while (x->srq->head != x->srq->tail &&
               x->srq->producer - got[0] - got[1] - got[2] < 8 &&
               g_rand_int_range(x->sim->rand, 0, 3)) {
            shared_post(x);
        }
        want = MAX(want, slots_in_use(x->srq) > 1 ?
                         32 - clz32(slots_in_use(x->srq) - 1) : 1);
        if (want != x->srq->log_size) {
            resized++;
            shrunk += want < x->srq->log_size;
            g_assert_cmpint(srq_resize(x->srq, want, 0, 0).status, ==,
                            QRNIC_ST_OK);
        }
        for (unsigned i = 0; i < PEERS; i++) {
            if (sent[i] < messages && sent[i] - got[i] < 3) {
                shared_send(x, i, 100 * i + sent[i], 2000 + sent[i]);
                sent[i]++;
            }
        }
        sim_run(x->sim, x->sim->now +
                g_rand_int_range(x->sim->rand, 1, 30 * SIM_US));
        open = false;
        for (unsigned i = 0; i < PEERS; i++) {
            QrnicCqe c;

            while (sim_poll(x->to[i], &c)) {
                g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
                g_assert_cmpint(c.byte_len, ==, 2000 + got[i]);
                g_assert_cmpmem(x->sim->node[1].memory + x->target +
                                c.index * BYTES, 2000 + got[i],
                                x->sim->node[0].memory + x->source + 100 * i +
                                got[i], 2000 + got[i]);
                sim_srq_slot_free(x->srq, c.index);
                got[i]++;
            }
            while (sim_poll(x->from[i], &c)) {
                g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
            }
            open |= got[i] < messages;
        }
    }
    g_assert_cmpint(resized, >, 100);
    g_assert_cmpint(shrunk, >, 20);
    g_assert_cmpint(shared_query(x).consumer, ==, PEERS * messages);
    shared_free(x);
}

/* Tests that the resize sets a limit, or keeps the armed one. */
static void test_resize_limit(void)
{
    Shared *x = shared_new(3, 0);
    SimNode *b = &x->sim->node[1];

    for (uint32_t i = 0; i < 5; i++) {
        shared_post(x);
    }
    g_assert_cmpint(shared_limit(x, 4), ==, QRNIC_ST_OK);
    g_assert_cmpint(srq_resize(x->srq, 4, 0, 0).status, ==, QRNIC_ST_OK);
    g_assert_cmpint(shared_query(x).limit, ==, 4);
    expect_no_event(b);
    shared_send(x, 0, 0, 100);
    shared_send(x, 1, 0, 100);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    expect_event(b, QRNIC_EVENT_SRQ_LIMIT, x->srq->number);
    /* Three WQEs remain. */
    g_assert_cmpint(srq_resize(x->srq, 5, QRNIC_SRQRF_LIMIT, 3).status, ==,
                    QRNIC_ST_OK);
    g_assert_cmpint(shared_query(x).limit, ==, 3);
    expect_no_event(b);
    g_assert_cmpint(srq_resize(x->srq, 4, QRNIC_SRQRF_LIMIT, 15).status, ==,
                    QRNIC_ST_OK);
    expect_event(b, QRNIC_EVENT_SRQ_LIMIT, x->srq->number);
    g_assert_cmpint(shared_query(x).limit, ==, 0);
    expect_no_event(b);
    shared_free(x);
}

static void test_resize_refused(void)
{
    Shared *x = shared_new(4, 0);
    SimNode *b = &x->sim->node[1];
    QrnicEngine *e = b->engine;
    const QrnicSrqResize good = { .log_size = 4, .ring.root = 8192 };
    QrnicSrqResize in;
    QrnicResult r;

#define REFUSED(member, value, want, at) do { \
        in = good; \
        in.member = value; \
        r = qrnic_srq_resize(e, x->srq->number, &in); \
        g_assert_cmpint(r.status, ==, QRNIC_ST_##want); \
        g_assert_cmpint(r.syndrome, ==, QRNIC_SRQ_RESIZE_##at##_OFFSET); \
    } while (0)
    REFUSED(log_size, 0, BAD_PARAM, LOG_SIZE);
    REFUSED(log_size, 16, BAD_PARAM, LOG_SIZE);
    REFUSED(limit, 1, BAD_PARAM, LIMIT);
    REFUSED(ring.root, 8, BAD_PARAM, RING);
#undef REFUSED
    in = good;
    in.flags = QRNIC_SRQRF_LIMIT;
    in.limit = 16;
    r = qrnic_srq_resize(e, x->srq->number, &in);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(r.syndrome, ==, QRNIC_SRQ_RESIZE_LIMIT_OFFSET);
    in = good;
    in.ring = (QrnicTranslation) { .root = b->memory_size, .levels = 1,
                                   .page_shift = 12 };
    g_assert_cmpint(qrnic_srq_resize(e, x->srq->number, &in).status, ==,
                    QRNIC_ST_DMA);
    g_assert_cmpint(qrnic_srq_resize(e, 12, &good).status, ==,
                    QRNIC_ST_BAD_OBJECT);
    /* The smaller ring cannot reach this armed limit. */
    for (unsigned i = 0; i < 9; i++) {
        shared_post(x);
    }
    g_assert_cmpint(shared_limit(x, 8), ==, QRNIC_ST_OK);
    for (unsigned i = 0; i < 8; i++) {
        shared_send(x, 0, i, 100);
        g_assert_true(sim_run(x->sim, INT64_MAX));
        sim_srq_slot_free(x->srq, shared_received(x, 0, i, 100));
        if (i == 0) {
            g_assert_cmpint(srq_resize(x->srq, 3, 0, 0).status, ==,
                            QRNIC_ST_BAD_PARAM);
        }
    }
    expect_event(b, QRNIC_EVENT_SRQ_LIMIT, x->srq->number);
    /* One WQE is posted, in slot 8, which the new ring lacks. */
    g_assert_cmpint(srq_resize(x->srq, 3, 0, 0).status, ==,
                    QRNIC_ST_BAD_PARAM);
    /* The old ring still works. */
    shared_send(x, 0, 0, 100);
    g_assert_true(sim_run(x->sim, INT64_MAX));
    g_assert_cmpint(shared_received(x, 0, 0, 100), ==, 8);
    /* A broken SRQ stays broken. */
    stl_le_p(b->memory + x->srq->record, 100);
    in = good;
    in.ring.root = x->srq->ring;
    g_assert_cmpint(qrnic_srq_resize(e, x->srq->number, &in).status, ==,
                    QRNIC_ST_BAD_STATE);
    expect_event(b, QRNIC_EVENT_SRQ_ERROR, x->srq->number);
    shared_free(x);
}

/* Tests invalid CREATE_SRQ and CREATE_QP, and busy objects. */
static void test_refused(void)
{
    Shared *x = shared_new(2, 0);
    QrnicEngine *e = x->sim->node[1].engine;
    const QrnicSrqCtx good = {
        .pd = x->sim->node[1].pd, .log_size = 4, .record = 4096,
        .ring.root = 8192,
    };
    const QrnicQpCtx qp = {
        .type = QRNIC_QPT_RC, .pd = good.pd, .sq_log_size = 3,
        .send_cq = x->to[0]->cq, .recv_cq = x->to[0]->cq,
        .sq_record = 4096, .sq.root = 8192, .srq = x->srq->number,
    };
    QrnicSrqCtx in;
    QrnicQpCtx q;
    QrnicResult r;

#define REFUSED(member, value, want, at) do { \
        in = good; \
        in.member = value; \
        r = qrnic_srq_create(e, &in); \
        g_assert_cmpint(r.status, ==, QRNIC_ST_##want); \
        g_assert_cmpint(r.syndrome, ==, QRNIC_SRQ_CTX_##at##_OFFSET); \
    } while (0)
    REFUSED(pd, 60, BAD_OBJECT, PD);
    REFUSED(db_page, 7, BAD_OBJECT, DB_PAGE);
    REFUSED(log_size, 0, BAD_PARAM, LOG_SIZE);
    REFUSED(log_size, 16, BAD_PARAM, LOG_SIZE);
    REFUSED(log_stride, 4, BAD_PARAM, LOG_STRIDE);
    REFUSED(limit, 1, BAD_PARAM, LIMIT);
    REFUSED(record, 4, BAD_PARAM, RECORD);
    REFUSED(producer, 1, BAD_PARAM, PRODUCER);
    REFUSED(consumer, 1, BAD_PARAM, CONSUMER);
#undef REFUSED
#define REFUSED(member, value, want, at) do { \
        q = qp; \
        q.member = value; \
        r = qrnic_qp_create(e, &q); \
        g_assert_cmpint(r.status, ==, QRNIC_ST_##want); \
        g_assert_cmpint(r.syndrome, ==, QRNIC_QP_CTX_##at##_OFFSET); \
    } while (0)
    REFUSED(srq, 9, BAD_OBJECT, SRQ);
    REFUSED(type, QRNIC_QPT_RAW_PACKET, BAD_PARAM, SRQ);
    REFUSED(rq_log_size, 1, BAD_PARAM, RQ_LOG_SIZE);
    REFUSED(rq_log_stride, 1, BAD_PARAM, RQ_LOG_STRIDE);
    REFUSED(rq_record, 8, BAD_PARAM, RQ_RECORD);
    REFUSED(rq.root, 64, BAD_PARAM, RQ);
#undef REFUSED
    g_assert_cmpint(qrnic_srq_destroy(e, x->srq->number).status, ==,
                    QRNIC_ST_BUSY);
    g_assert_cmpint(qrnic_srq_destroy(e, 12).status, ==, QRNIC_ST_BAD_OBJECT);
    g_assert_cmpint(qrnic_srq_query(e, 12, &in).status, ==,
                    QRNIC_ST_BAD_OBJECT);
    r = qrnic_srq_create(e, &good);
    g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
    g_assert_cmpint(r.value, !=, x->srq->number);
    g_assert_cmpint(qrnic_srq_destroy(e, r.value).status, ==, QRNIC_ST_OK);
    shared_free(x);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/srq/shared", test_shared);
    g_test_add_func("/srq/any-order", test_any_order);
    g_test_add_func("/srq/any-order-wide", test_any_order_wide);
    g_test_add_func("/srq/empty", test_empty);
    g_test_add_func("/srq/limit", test_limit);
    g_test_add_func("/srq/give-back-reset", test_give_back_reset);
    g_test_add_func("/srq/give-back-destroy", test_give_back_destroy);
    g_test_add_func("/srq/give-back-room", test_give_back_room);
    g_test_add_func("/srq/last-wqe", test_last_wqe);
    g_test_add_func("/srq/broken-index", test_broken_index);
    g_test_add_func("/srq/broken-next", test_broken_next);
    g_test_add_func("/srq/broken-segments", test_broken_segments);
    g_test_add_func("/srq/long-segment", test_long_segment);
    g_test_add_func("/srq/broken-record", test_broken_record);
    g_test_add_func("/srq/broken-dma", test_broken_dma);
    g_test_add_func("/srq/pd", test_pd);
    g_test_add_func("/srq/unreliable", test_unreliable);
    g_test_add_func("/srq/resize", test_resize);
    g_test_add_func("/srq/resize-traffic", test_resize_traffic);
    g_test_add_func("/srq/resize-limit", test_resize_limit);
    g_test_add_func("/srq/resize-refused", test_resize_refused);
    g_test_add_func("/srq/refused", test_refused);
    return g_test_run();
}
