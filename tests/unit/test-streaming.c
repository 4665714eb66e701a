/*
 * Streaming receive: placement of messages and datagrams in the buffers of an
 * RQ or SRQ, and the completion that ends a buffer. Every byte is compared when
 * its message completes, and again when its buffer ends; no byte may belong to
 * two messages.
 *
 * QRNIC_SEED=n runs only that seed of the random traffic.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pair.h"

#define MOST_PEERS 5
#define LOG_SLOTS 4
#define SLOTS (1u << LOG_SLOTS)
#define SOURCE (1u << 16)
#define QKEY 7
#define GRH QRNIC_GRH_SIZE

typedef struct Message {
    unsigned peer, slot;
    uint32_t source, len, offset;
    bool complete;
} Message;

typedef struct Buffer {
    bool held;                  /* Posted to the device */
    unsigned messages, cqes;
    unsigned total;             /* Number of CQEs, once known; else 0 */
    uint8_t *taken;             /* For each byte: belongs to a message */
} Buffer;

typedef struct World {
    Sim *sim;
    QrnicStreamAttr attr;
    SimSrq *srq;                /* NULL: the only peer has an RQ */
    unsigned peers, held;
    uint8_t type[MOST_PEERS];
    SimQp *from[MOST_PEERS], *to[MOST_PEERS];
    uint64_t source, target;
    uint32_t source_key, target_key;
    uint32_t size;              /* Bytes of a buffer */
    Buffer buffer[SLOTS];
    GArray *messages;           /* Message; the index is the immediate data */
    uint32_t complete, used;
    uint32_t next[MOST_PEERS];  /* Lowest number that may complete */
    uint32_t gap;               /* PSN of a packet to lose */
} World;

static void peer_new(World *w, unsigned i)
{
    SimNode *a = &w->sim->node[0], *b = &w->sim->node[1];
    SimConnect c = sim_connect_default();
    QrnicStreamAttr none = { 0 };

    c.path_mtu = QRNIC_MTU_256;
    /*
     * A new PSN, because the wire may still have packets of the old connection.
     */
    c.psn_a = g_rand_int_range(w->sim->rand, 0, 1 << 24);
    a->stream = none;
    b->stream = w->srq ? none : w->attr;
    switch (w->type[i]) {
    case QRNIC_QPT_RC:
        w->from[i] = sim_qp_new(a, 8, 0, 0, 8);
        w->to[i] = w->srq ? sim_qp_new_srq(b, 6, w->srq, 9) :
                            sim_qp_new(b, 6, LOG_SLOTS, 0, 9);
        sim_connect(w->from[i], w->to[i], &c);
        break;
    case QRNIC_QPT_UC:
        w->from[i] = sim_uc_new(a, NULL);
        w->to[i] = sim_uc_new(b, w->srq);
        sim_uc_connect(w->from[i], w->to[i]);
        break;
    default:
        w->from[i] = sim_datagram_new(a, QRNIC_QPT_UD, NULL, QKEY);
        w->to[i] = sim_datagram_new(b, QRNIC_QPT_UD, w->srq, QKEY);
    }
}

static World *world_new(uint32_t seed, const QrnicStreamAttr *attr,
                        uint32_t size, bool srq, const uint8_t *types,
                        unsigned peers)
{
    World *w = g_new0(World, 1);
    SimNode *a, *b;

    w->sim = sim_new(seed, NULL);
    a = &w->sim->node[0];
    b = &w->sim->node[1];
    w->attr = *attr;
    w->size = size;
    b->stream = *attr;
    w->srq = srq ? sim_srq_new(b, LOG_SLOTS, 0) : NULL;
    w->source = sim_alloc(a, SOURCE);
    w->target = sim_alloc(b, (uint64_t)size * SLOTS);
    w->source_key = sim_mkey(a, w->source, SOURCE, ACCESS_ALL);
    w->target_key = sim_mkey(b, w->target, (uint64_t)size * SLOTS, ACCESS_ALL);
    for (unsigned i = 0; i < SOURCE; i++) {
        a->memory[w->source + i] = g_rand_int(w->sim->rand);
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        w->buffer[i].taken = g_malloc0(size);
    }
    w->messages = g_array_new(false, true, sizeof(Message));
    w->peers = peers;
    for (unsigned i = 0; i < peers; i++) {
        w->type[i] = types[i];
        peer_new(w, i);
    }
    return w;
}

static void world_free(World *w)
{
    for (unsigned i = 0; i < w->peers; i++) {
        sim_qp_free(w->from[i]);
        if (w->to[i]) {
            sim_qp_free(w->to[i]);
        }
    }
    if (w->srq) {
        sim_srq_free(w->srq);
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        g_free(w->buffer[i].taken);
    }
    g_array_unref(w->messages);
    sim_free(w->sim);
    g_free(w);
}

/* Makes one connected peer, with an RQ or an SRQ. */
static World *world_one(uint8_t type, bool srq, uint32_t max_message,
                        uint16_t max_messages, uint8_t log_align, uint32_t size)
{
    const QrnicStreamAttr attr = {
        .max_message = max_message, .max_messages = max_messages,
        .log_align = log_align,
    };

    return world_new(5, &attr, size, srq, &type, 1);
}

static unsigned slots(const World *w)
{
    return w->srq ? SLOTS : 1u << w->to[0]->rq_log;
}

/* Posts a buffer of two data segments; the first has an odd length. */
static unsigned post_buffer_key(World *w, uint32_t key)
{
    unsigned slot = w->srq ? w->srq->head : w->to[0]->rq_producer % slots(w);
    uint64_t at = w->target + (uint64_t)slot * w->size;
    uint32_t first = w->size / 3 | 1;
    SimSge sge[] = { { at, first, key }, { at + first, w->size - first, key } };

    g_assert_false(w->buffer[slot].held);
    w->buffer[slot].held = true;
    w->held++;
    if (w->srq) {
        sim_post_srq(w->srq, sge, 2);
    } else {
        sim_post_recv(w->to[0], sge, 2);
    }
    return slot;
}

static unsigned post_buffer(World *w)
{
    return post_buffer_key(w, w->target_key);
}

/* Returns the number of the message. */
static uint32_t send_message(World *w, unsigned i, uint8_t opcode, uint32_t len)
{
    uint32_t number = w->messages->len;
    Message m = {
        .peer = i, .len = len,
        .source = g_rand_int_range(w->sim->rand, 0, SOURCE - len),
    };
    SimSge sge = { w->source + m.source, len, w->source_key };
    SimWr wr = {
        .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = len != 0, .imm = number,
        .remote = w->target + (uint64_t)w->size * (SLOTS - 1),
        .rkey = w->target_key,
    };
    QrnicDatagramSeg to;

    if (w->type[i] == QRNIC_QPT_UD) {
        to = sim_datagram_to(w->to[i], QKEY);
        wr.datagram = &to;
    }
    g_array_append_val(w->messages, m);
    sim_post_send(w->from[i], &wr);
    return number;
}

static uint32_t send_to(World *w, unsigned i, uint32_t len)
{
    return send_message(w, i, QRNIC_WQE_SEND_IMM, len);
}

static void settle(World *w)
{
    g_assert_true(sim_run(w->sim, INT64_MAX));
}

static void compare(World *w, const Message *m)
{
    unsigned header = w->type[m->peer] == QRNIC_QPT_UD ? GRH : 0;

    g_assert_cmpmem(w->sim->node[1].memory + w->target +
                    (uint64_t)m->slot * w->size + m->offset + header, m->len,
                    w->sim->node[0].memory + w->source + m->source, m->len);
}

/* Records a CQE of the slot. After its last CQE the slot is free. */
static void slot_seen(World *w, const QrnicCqe *c, unsigned slot)
{
    Buffer *b = &w->buffer[slot];

    b->cqes++;
    g_assert_cmpint(!c->messages, ==, !c->stream);
    if (c->stream & QRNIC_CQES_USED) {
        g_assert_cmpuint(b->total, ==, 0);
        b->total = c->messages;
    }
    if (b->cqes != b->total) {
        return;
    }
    g_assert_cmpuint(b->messages, <=, w->attr.max_messages);
    b->held = false;
    b->messages = b->cqes = b->total = 0;
    memset(b->taken, 0, w->size);
    w->held--;
    w->used++;
    for (unsigned i = 0; i < w->messages->len; i++) {
        Message *m = &g_array_index(w->messages, Message, i);

        if (m->complete && m->slot == slot) {
            compare(w, m);
            m->slot = SLOTS;
        }
    }
    if (w->srq) {
        sim_srq_slot_free(w->srq, slot);
    }
}

static unsigned slot_of(World *w, const QrnicCqe *c)
{
    unsigned slot = w->srq ? c->index : c->index % slots(w);

    g_assert_cmpint(c->srqn, ==, w->srq ? w->srq->number : 0);
    g_assert_cmpuint(slot, <, SLOTS);
    g_assert_true(w->buffer[slot].held);
    return slot;
}

/* Asserts all members of a message's CQE. */
static void check_received(World *w, unsigned i, const QrnicCqe *c)
{
    Message *m = &g_array_index(w->messages, Message, c->imm);
    unsigned header = w->type[i] == QRNIC_QPT_UD ? GRH : 0;
    unsigned slot = slot_of(w, c);
    uint32_t placed = c->opcode == QRNIC_CQE_RECV ? c->byte_len : 0;
    Buffer *b = &w->buffer[slot];

    g_assert_cmpuint(c->imm, <, w->messages->len);
    g_assert_cmpuint(m->peer, ==, i);
    if (w->type[i] == QRNIC_QPT_RC) {
        g_assert_cmpuint(c->imm, >=, w->next[i]);
        w->next[i] = c->imm + 1;
    } else if (m->complete) {
        Message again = *m;     /* The wire has repeated it */

        g_array_append_val(w->messages, again);
        m = &g_array_index(w->messages, Message, w->messages->len - 1);
    }
    g_assert_cmpuint(c->byte_len, ==, m->len + header);
    g_assert_cmpuint(c->offset % (1u << w->attr.log_align), ==, 0);
    g_assert_cmpuint(c->offset + placed, <=, w->size);
    for (uint32_t k = c->offset; k < c->offset + placed; k++) {
        g_assert_false(b->taken[k]);
        b->taken[k] = true;
    }
    b->messages++;
    m->slot = slot;
    m->offset = c->offset;
    if (placed) {
        m->complete = true;
        compare(w, m);
    }
    w->complete++;
    slot_seen(w, c, slot);
}

static QrnicCqe expect_message(World *w, unsigned i, uint32_t offset,
                               uint32_t len, bool used)
{
    QrnicCqe c = expect_cqe(w->to[i], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);

    check_received(w, i, &c);
    g_assert_cmpuint(c.offset, ==, offset);
    g_assert_cmpuint(c.byte_len, ==, len);
    g_assert_cmpint(c.stream, ==, used ? QRNIC_CQES_USED : 0);
    return c;
}

static QrnicCqe expect_failure(World *w, unsigned i, uint8_t status, bool used)
{
    QrnicCqe c = expect_status(w->to[i], status);
    unsigned slot = slot_of(w, &c);

    g_assert_cmpint(c.stream, ==, used ? QRNIC_CQES_USED : 0);
    slot_seen(w, &c, slot);
    return c;
}

static uint64_t counted(World *w, enum qrnic_counter c)
{
    return sim_counter(&w->sim->node[1], c);
}

static void forget_sends(World *w, unsigned i)
{
    bool more;
    QrnicCqe c;

    do {
        more = sim_poll(w->from[i], &c);
    } while (more);
}

/* Places the messages of the example in the manual. */
static void places(bool srq)
{
    static const struct { uint32_t len, offset; bool used; } step[] = {
        { 100, 0 }, { 1000, 128 }, { 4096, 1152 }, { 4096, 5248 },
        { 4000, 9344, true }, { 100, 0 },
    };
    World *w = world_one(QRNIC_QPT_RC, srq, 4096, 100, 6, 16384);

    post_buffer(w);
    post_buffer(w);
    for (unsigned i = 0; i < ARRAY_SIZE(step); i++) {
        QrnicCqe c;

        send_to(w, 0, step[i].len);
        settle(w);
        c = expect_message(w, 0, step[i].offset, step[i].len, step[i].used);
        g_assert_cmpint(c.index, ==, i == 5);
    }
    g_assert_cmpint(counted(w, QRNIC_COUNTER_RECV_WQES), ==, 2);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_STREAM_MESSAGES), ==, 6);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_STREAM_BUFFERS), ==, 1);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_STREAM_BYTES), ==, 13392);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_STREAM_UNUSED_BYTES), ==,
                    16384 - 13292);
    world_free(w);
}

static void test_places(void)
{
    places(false);
}

static void test_places_srq(void)
{
    places(true);
}

/*
 * Tests that messages of 0 bytes and writes use no bytes, but count as
 * messages.
 */
static void test_messages(void)
{
    World *w = world_one(QRNIC_QPT_RC, false, 1000, 4, 3, 1 << 16);
    QrnicCqe c;

    post_buffer(w);
    post_buffer(w);
    send_to(w, 0, 9);
    send_to(w, 0, 0);
    send_message(w, 0, QRNIC_WQE_RDMA_WRITE_IMM, 700);
    send_to(w, 0, 600);
    send_to(w, 0, 1);
    settle(w);
    expect_message(w, 0, 0, 9, false);
    expect_message(w, 0, 16, 0, false);
    c = expect_cqe(w->to[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV_RDMA_WITH_IMM);
    g_assert_cmpuint(c.offset, ==, 16);
    g_assert_cmpuint(c.byte_len, ==, 700);
    g_assert_cmpint(c.stream, ==, 0);
    g_assert_cmpint(c.index, ==, 0);
    c = expect_cqe(w->to[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmpuint(c.offset, ==, 16);
    g_assert_cmpint(c.stream, ==, QRNIC_CQES_USED);
    c = expect_cqe(w->to[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmpint(c.index, ==, 1);
    g_assert_cmpuint(c.offset, ==, 0);
    world_free(w);
}

/*
 * Tests that a buffer shorter than the longest message holds one message, up to
 * its size.
 */
static void test_short_buffer(void)
{
    World *w = world_one(QRNIC_QPT_RC, false, 4096, 9, 0, 1000);

    post_buffer(w);
    post_buffer(w);
    post_buffer(w);
    send_to(w, 0, 1000);
    send_to(w, 0, 1);
    send_to(w, 0, 1001);
    settle(w);
    expect_message(w, 0, 0, 1000, true);
    expect_message(w, 0, 0, 1, true);
    expect_failure(w, 0, QRNIC_WC_LOC_LEN_ERR, true);
    expect_no_cqe(w->to[0]);
    expect_state(w->to[0], QRNIC_QPS_ERR);
    world_free(w);
}

/* Tests a message above the maximum length that still fits into the buffer. */
static void test_too_long(void)
{
    World *w = world_one(QRNIC_QPT_RC, false, 1000, 9, 0, 4000);

    post_buffer(w);
    post_buffer(w);
    send_to(w, 0, 1000);
    send_to(w, 0, 1001);
    settle(w);
    expect_message(w, 0, 0, 1000, false);
    expect_failure(w, 0, QRNIC_WC_LOC_LEN_ERR, false);
    expect_failure(w, 0, QRNIC_WC_WR_FLUSH_ERR, true);
    expect_failure(w, 0, QRNIC_WC_WR_FLUSH_ERR, true);
    expect_no_cqe(w->to[0]);
    expect_cqe(w->from[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_status(w->from[0], QRNIC_WC_REM_INV_REQ_ERR);
    world_free(w);
}

/*
 * Asserts that an unreliable message that is too long is dropped without an
 * effect.
 */
static void too_long_dropped(uint8_t type)
{
    unsigned header = type == QRNIC_QPT_UD ? GRH : 0;
    World *w = world_one(type, true, 600 + header, 9, 4, 8000);

    post_buffer(w);
    send_to(w, 0, 600);
    settle(w);
    send_to(w, 0, 601);
    settle(w);
    send_to(w, 0, 300);
    settle(w);
    expect_message(w, 0, 0, 600 + header, false);
    expect_message(w, 0, ROUND_UP(600 + header, 16), 300 + header, false);
    expect_no_cqe(w->to[0]);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_RX_DROP_LENGTH), ==, 1);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_RECV_WQES), ==, 1);
    world_free(w);
}

static void test_too_long_uc(void)
{
    too_long_dropped(QRNIC_QPT_UC);
}

static void test_too_long_ud(void)
{
    too_long_dropped(QRNIC_QPT_UD);
}

/*
 * Tests that the device sends an RNR NAK without a WQE, and that an open buffer
 * is unchanged.
 */
static void test_empty(void)
{
    World *w = world_one(QRNIC_QPT_RC, true, 1000, 9, 0, 2500);

    post_buffer(w);
    send_to(w, 0, 1000);
    send_to(w, 0, 700);
    send_to(w, 0, 10);
    g_assert_false(sim_run(w->sim, 100 * SIM_US));
    expect_message(w, 0, 0, 1000, false);
    expect_message(w, 0, 1000, 700, true);
    expect_no_cqe(w->to[0]);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TX_RNR_NAK), ==, 1);
    post_buffer(w);
    settle(w);
    expect_message(w, 0, 0, 10, false);
    world_free(w);
}

/* Loses the packets of the first sender in the middle of a message. */
static bool drop_last(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                      void *opaque)
{
    World *w = opaque;
    QrnicPacket p;

    if (from != 0 || sim_parse(&p, frame, len) != QRNIC_PARSE_OK ||
        p.t.dest_qpn != w->to[0]->number) {
        return true;
    }
    return p.t.opcode != QRNIC_OP_RC_SEND_LAST_IMM;
}

/*
 * Asserts that an RQ flushes the open buffer, once, and then the posted ones.
 */
static void flush(bool middle)
{
    World *w = world_one(QRNIC_QPT_RC, false, 1000, 9, 0, 4000);
    QrnicQpAttr err = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR };

    for (unsigned i = 0; i < 3; i++) {
        post_buffer(w);
    }
    send_to(w, 0, 100);
    settle(w);
    expect_message(w, 0, 0, 100, false);
    if (middle) {
        w->sim->tap = drop_last;
        w->sim->tap_opaque = w;
        send_to(w, 0, 900);
        g_assert_false(sim_run(w->sim, w->sim->now + 20 * SIM_US));
    }
    sim_modify(w->to[0], &err);
    sim_run(w->sim, w->sim->now + 30 * SIM_US);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_cmpint(expect_failure(w, 0, QRNIC_WC_WR_FLUSH_ERR,
                                       true).index, ==, i);
    }
    expect_no_cqe(w->to[0]);
    g_assert_cmpint(w->held, ==, 0);
    w->sim->tap = NULL;
    world_free(w);
}

static void test_flush(void)
{
    flush(false);
}

static void test_flush_middle(void)
{
    flush(true);
}

/*
 * Tests that RESET forgets the open buffer, and that the queue starts again,
 * because software reclaims all buffers.
 */
static void test_reset(void)
{
    World *w = world_one(QRNIC_QPT_RC, false, 1000, 9, 0, 4000);
    QrnicQpAttr reset = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };
    SimConnect c = sim_connect_default();

    c.path_mtu = QRNIC_MTU_256;
    post_buffer(w);
    w->sim->tap = drop_last;
    w->sim->tap_opaque = w;
    send_to(w, 0, 900);
    g_assert_false(sim_run(w->sim, 20 * SIM_US));
    w->sim->tap = NULL;
    sim_modify(w->to[0], &reset);
    sim_modify(w->from[0], &reset);
    memset(w->sim->node[1].memory + w->to[0]->rq_record, 0, 8);
    memset(w->sim->node[0].memory + w->from[0]->sq_record, 0, 8);
    w->to[0]->rq_producer = w->from[0]->sq_producer = 0;
    w->buffer[0].held = false;
    sim_connect(w->from[0], w->to[0], &c);
    post_buffer(w);
    send_to(w, 0, 900);
    settle(w);
    expect_message(w, 0, 0, 900, false);
    world_free(w);
}

/*
 * Stops a queue pair of an SRQ in the middle of a message. The next message
 * gets the room of that message in the buffer, and the buffer ends after that,
 * once.
 */
static void cut_short(unsigned how)
{
    static const uint8_t types[] = { QRNIC_QPT_RC, QRNIC_QPT_RC };
    const QrnicStreamAttr attr = { .max_message = 1000, .max_messages = 9 };
    World *w = world_new(3, &attr, 2500, true, types, 2);
    SimNode *b = &w->sim->node[1];
    QrnicQpAttr to = {
        .mask = QRNIC_QP_STATE,
        .state = how == 0 ? QRNIC_QPS_ERR : QRNIC_QPS_RESET,
    };

    post_buffer(w);
    w->sim->tap = drop_last;
    w->sim->tap_opaque = w;
    send_to(w, 0, 900);
    g_assert_false(sim_run(w->sim, 20 * SIM_US));
    /* This message is behind that room, and leaves 500 bytes. */
    send_to(w, 1, 1000);
    sim_run(w->sim, w->sim->now + 20 * SIM_US);
    expect_message(w, 1, 1000, 1000, false);
    if (how == 2) {
        sim_qp_free(w->to[0]);
        w->to[0] = NULL;
    } else {
        sim_modify(w->to[0], &to);
    }
    w->sim->tap = NULL;
    sim_run(w->sim, w->sim->now + 20 * SIM_US);
    if (how == 0) {
        expect_event(b, QRNIC_EVENT_LAST_WQE_REACHED, w->to[0]->number);
        expect_no_cqe(w->to[0]);
    }
    send_to(w, 1, 800);
    sim_run(w->sim, w->sim->now + 20 * SIM_US);
    expect_message(w, 1, 0, 800, true);
    post_buffer(w);
    send_to(w, 1, 5);
    sim_run(w->sim, w->sim->now + 20 * SIM_US);
    expect_message(w, 1, 0, 5, false);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_STREAM_BUFFERS), ==, 1);
    world_free(w);
}

static void test_cut_short_error(void)
{
    cut_short(0);
}

static void test_cut_short_reset(void)
{
    cut_short(1);
}

static void test_cut_short_destroy(void)
{
    cut_short(2);
}

/*
 * Tests that another message ends behind a message in progress, and a third
 * needs another buffer. The completion of the first ends its buffer, although
 * later messages are elsewhere.
 */
static void test_shared(void)
{
    static const uint8_t types[] = { QRNIC_QPT_RC, QRNIC_QPT_RC };
    const QrnicStreamAttr attr = { .max_message = 1000, .max_messages = 9 };
    World *w = world_new(3, &attr, 2500, true, types, 2);
    QrnicCqe c;

    post_buffer(w);
    post_buffer(w);
    w->sim->tap = drop_last;
    w->sim->tap_opaque = w;
    send_to(w, 0, 900);
    g_assert_false(sim_run(w->sim, 20 * SIM_US));
    send_to(w, 1, 1000);
    send_to(w, 1, 10);
    sim_run(w->sim, w->sim->now + 20 * SIM_US);
    expect_message(w, 1, 1000, 1000, false);
    g_assert_cmpint(expect_message(w, 1, 0, 10, false).index, ==, 1);
    w->sim->tap = NULL;
    settle(w);
    c = expect_message(w, 0, 0, 900, true);
    g_assert_cmpint(c.index, ==, 0);
    send_to(w, 1, 11);
    settle(w);
    g_assert_cmpint(expect_message(w, 1, 10, 11, false).index, ==, 1);
    world_free(w);
}

/*
 * Tests three peers that make an error each and lose their queue pairs. The
 * fourth continues in the same buffer.
 */
static void test_mistakes(void)
{
    static const uint8_t types[] = {
        QRNIC_QPT_RC, QRNIC_QPT_RC, QRNIC_QPT_RC, QRNIC_QPT_RC,
    };
    static const uint8_t status[] = {
        QRNIC_WC_LOC_LEN_ERR, QRNIC_WC_LOC_ACCESS_ERR, QRNIC_WC_MW_BIND_ERR,
    };
    const QrnicStreamAttr attr = { .max_message = 1000, .max_messages = 7 };
    World *w = world_new(3, &attr, 4000, true, types, 4);
    SimSge sge = { w->source, 100, w->source_key };
    const SimWr wrong[] = {
        { .opcode = QRNIC_WQE_SEND, .sge = &sge, .num_sge = 1 },
        { .opcode = QRNIC_WQE_RDMA_WRITE_IMM, .sge = &sge, .num_sge = 1,
          .remote = w->target, .rkey = w->target_key ^ 1 },
        { .opcode = QRNIC_WQE_SEND_INV, .sge = &sge, .num_sge = 1,
          .imm = w->target_key ^ 1 },
    };

    post_buffer(w);
    for (unsigned i = 0; i < 3; i++) {
        send_to(w, 3, 300);
        settle(w);
        expect_message(w, 3, 300 * i, 300, false);
        sge.length = i == 0 ? 1001 : 100;
        sim_post_send(w->from[i], &wrong[i]);
        sim_run(w->sim, w->sim->now + SIM_MS);
        g_assert_cmpint(expect_failure(w, i, status[i], false).offset, ==,
                        300 * (i + 1));
        expect_state(w->to[i], QRNIC_QPS_ERR);
    }
    /* This is the seventh and last message. */
    send_to(w, 3, 300);
    settle(w);
    g_assert_cmpint(expect_message(w, 3, 900, 300, true).messages, ==, 7);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_STREAM_BUFFERS), ==, 1);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_STREAM_UNUSED_BYTES), ==,
                    4000 - 4 * 300);
    world_free(w);
}

/*
 * Tests that the completion of a bad record has no buffer, and later WQEs have
 * theirs.
 */
static void test_bad_record(void)
{
    World *w = world_one(QRNIC_QPT_RC, false, 1000, 1, 0, 4000);
    uint8_t *record = w->sim->node[1].memory + w->to[0]->rq_record;
    QrnicCqe c;

    post_buffer(w);
    send_to(w, 0, 100);
    settle(w);
    expect_message(w, 0, 0, 100, true);
    stl_le_p(record, w->to[0]->rq_producer + 2 * slots(w));
    send_to(w, 0, 100);
    sim_run(w->sim, w->sim->now + SIM_MS);
    c = expect_status(w->to[0], QRNIC_WC_LOC_QP_OP_ERR);
    g_assert_cmpint(c.syndrome, ==, QRNIC_SYN_PRODUCER);
    g_assert_cmpint(c.index, ==, 1);
    g_assert_cmpint(c.stream, ==, 0);
    g_assert_cmpint(c.messages, ==, 0);
    expect_no_cqe(w->to[0]);
    post_buffer(w);
    sim_run(w->sim, w->sim->now + SIM_MS);
    c = expect_failure(w, 0, QRNIC_WC_WR_FLUSH_ERR, true);
    g_assert_cmpint(c.index, ==, 1);
    g_assert_cmpint(c.messages, ==, 1);
    world_free(w);
}

/*
 * Moves the ring of the SRQ to one of twice the size, and overwrites the old
 * one.
 */
static void ring_move(World *w)
{
    size_t old = (size_t)QRNIC_WQEBB_SIZE << w->srq->log_size;
    uint8_t *memory = w->sim->node[1].memory;
    QrnicSrqResize in = { .log_size = w->srq->log_size + 1 };
    QrnicResult r;

    in.ring.root = sim_alloc(&w->sim->node[1], 2 * old);
    memset(memory + in.ring.root, 0xff, 2 * old);
    memcpy(memory + in.ring.root, memory + w->srq->ring, old);
    r = qrnic_srq_resize(w->sim->node[1].engine, w->srq->number, &in);
    g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
    memset(memory + w->srq->ring, 0xff, old);
    w->srq->ring = in.ring.root;
    w->srq->log_size++;
}

/*
 * Tests a ring that moves while a message is in progress in one buffer and
 * another buffer is open. Both buffers continue, and so do the posted ones.
 */
static void test_resize(void)
{
    static const uint8_t types[] = { QRNIC_QPT_RC, QRNIC_QPT_RC };
    const QrnicStreamAttr attr = { .max_message = 1000, .max_messages = 9 };
    World *w = world_new(3, &attr, 2500, true, types, 2);

    for (unsigned i = 0; i < 3; i++) {
        post_buffer(w);
    }
    w->sim->tap = drop_last;
    w->sim->tap_opaque = w;
    send_to(w, 0, 900);
    g_assert_false(sim_run(w->sim, 20 * SIM_US));
    ring_move(w);
    send_to(w, 1, 1000);
    send_to(w, 1, 10);
    sim_run(w->sim, w->sim->now + 20 * SIM_US);
    expect_message(w, 1, 1000, 1000, false);
    expect_message(w, 1, 0, 10, false);
    ring_move(w);
    w->sim->tap = NULL;
    settle(w);
    g_assert_cmpint(expect_message(w, 0, 0, 900, true).index, ==, 0);
    send_to(w, 1, 1000);
    send_to(w, 1, 1000);
    settle(w);
    g_assert_cmpint(expect_message(w, 1, 10, 1000, false).index, ==, 1);
    g_assert_cmpint(expect_message(w, 1, 1010, 1000, true).index, ==, 1);
    send_to(w, 1, 1000);
    settle(w);
    g_assert_cmpint(expect_message(w, 1, 0, 1000, false).index, ==, 2);
    /* Slots that were free before can be used. */
    post_buffer(w);
    send_to(w, 1, 1000);
    send_to(w, 1, 1000);
    settle(w);
    expect_message(w, 1, 1000, 1000, true);
    expect_message(w, 1, 0, 1000, false);
    world_free(w);
}

static bool drop_second(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                        void *opaque)
{
    World *w = opaque;
    QrnicPacket p;

    return from != 0 || sim_parse(&p, frame, len) != QRNIC_PARSE_OK ||
           p.t.opcode != QRNIC_OP_UC_SEND_MIDDLE ||
           p.t.psn != w->gap;
}

/*
 * Tests that a UC message that lost a packet leaves its room to the next
 * message, because the message will never complete.
 */
static void test_gap(void)
{
    static const uint8_t types[] = { QRNIC_QPT_UC, QRNIC_QPT_RC };
    const QrnicStreamAttr attr = { .max_message = 4000, .max_messages = 9 };
    World *w = world_new(3, &attr, 16000, true, types, 2);

    post_buffer(w);
    w->gap = (sim_query(w->from[0]).sq_psn + 1) & 0xffffff;
    w->sim->tap = drop_second;
    w->sim->tap_opaque = w;
    send_to(w, 0, 3000);
    settle(w);
    send_to(w, 1, 700);
    settle(w);
    expect_message(w, 1, 0, 700, false);
    send_to(w, 0, 3000);
    settle(w);
    expect_message(w, 0, 700, 3000, false);
    world_free(w);
}

/*
 * Tests that a key that does not cover the buffer closes it, and that the next
 * one is used.
 */
static void test_bad_key(void)
{
    static const uint8_t types[] = { QRNIC_QPT_RC, QRNIC_QPT_UD };
    const QrnicStreamAttr attr = { .max_message = 1000, .max_messages = 9 };
    World *w = world_new(3, &attr, 4000, true, types, 2);

    post_buffer_key(w, w->target_key ^ 1);
    post_buffer_key(w, w->target_key ^ 1);
    post_buffer(w);
    send_to(w, 0, 900);
    settle(w);
    expect_failure(w, 0, QRNIC_WC_LOC_PROT_ERR, true);
    send_to(w, 1, 200);
    settle(w);
    expect_failure(w, 1, QRNIC_WC_LOC_PROT_ERR, true);
    expect_no_cqe(w->to[1]);
    expect_state(w->to[1], QRNIC_QPS_ERR);
    g_assert_cmpint(w->held, ==, 1);
    world_free(w);
}

/*
 * Asserts that a segment that is too long is an error, and that the WQE returns
 * to software.
 */
static void bad_wqe(uint8_t type)
{
    World *w = world_one(type, true, 1000, 9, 0, 4000);
    SimSge sge = { w->target, QRNIC_MAX_MSG_SIZE + 1, w->target_key };

    w->buffer[0].held = true;
    w->held++;
    sim_post_srq(w->srq, &sge, 1);
    send_to(w, 0, 200);
    settle(w);
    expect_failure(w, 0, QRNIC_WC_LOC_LEN_ERR, true);
    expect_state(w->to[0], QRNIC_QPS_ERR);
    world_free(w);
}

static void test_bad_wqe(void)
{
    bad_wqe(QRNIC_QPT_RC);
    bad_wqe(QRNIC_QPT_UD);
}

/*
 * Tests that the limit counts WQEs, so it is reached when a buffer is opened.
 */
static void test_limit(void)
{
    World *w = world_one(QRNIC_QPT_RC, true, 1000, 2, 0, 4000);
    SimNode *b = &w->sim->node[1];
    QrnicSrqLimit limit = { .limit = 2 };

    for (unsigned i = 0; i < 3; i++) {
        post_buffer(w);
    }
    g_assert_cmpint(qrnic_srq_modify(b->engine, w->srq->number, &limit).status,
                    ==, QRNIC_ST_OK);
    send_to(w, 0, 1);
    send_to(w, 0, 1);
    settle(w);
    expect_no_event(b);
    send_to(w, 0, 1);
    settle(w);
    expect_event(b, QRNIC_EVENT_SRQ_LIMIT, w->srq->number);
    expect_no_event(b);
    world_free(w);
}

/* Asserts that no ACK reports credits. */
static bool check_credits(Sim *s, unsigned from, const uint8_t *frame,
                          size_t len, void *opaque)
{
    QrnicPacket p;

    if (from == 1 && sim_parse(&p, frame, len) == QRNIC_PARSE_OK &&
        p.t.opcode == QRNIC_OP_RC_ACK) {
        g_assert_cmphex(p.t.syndrome, ==, 0x1f);
    }
    return true;
}

/*
 * Tests a queue that reports no credits. Messages that fit into the open buffer
 * need no further WQE, so they are received without an RNR NAK.
 */
static void test_no_credits(void)
{
    World *w = world_one(QRNIC_QPT_RC, false, 100, 1000, 0, 1 << 16);

    w->sim->tap = check_credits;
    post_buffer(w);
    for (unsigned i = 0; i < 100; i++) {
        send_to(w, 0, 10);
    }
    settle(w);
    for (unsigned i = 0; i < 100; i++) {
        expect_message(w, 0, 10 * i, 10, false);
    }
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TX_RNR_NAK), ==, 0);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_WQE_FETCHES), ==, 1);
    world_free(w);
}

static void refused_qp(World *w, const QrnicQpCtx *ctx, uint8_t status,
                       uint32_t syndrome)
{
    QrnicResult r = qrnic_qp_create(w->sim->node[1].engine, ctx);

    g_assert_cmpint(r.status, ==, status);
    g_assert_cmpint(r.syndrome, ==, syndrome);
}

static void test_refused(void)
{
    World *w = world_one(QRNIC_QPT_RC, true, 100, 2, 0, 4000);
    SimNode *b = &w->sim->node[1];
    const uint32_t at = QRNIC_QP_CTX_STREAM_OFFSET;
    const QrnicQpCtx good = {
        .type = QRNIC_QPT_RC, .pd = b->pd, .send_cq = w->to[0]->cq,
        .recv_cq = w->to[0]->cq, .db_page = b->db_page, .sq_log_size = 6,
        .rq_log_size = 3, .sq.root = sim_alloc(b, 4096),
        .rq.root = sim_alloc(b, 4096), .sq_record = sim_alloc(b, 8),
        .rq_record = sim_alloc(b, 8),
        .stream = { .max_message = 100, .max_messages = 1 },
    };
    QrnicSrqCtx srq = {
        .pd = b->pd, .db_page = b->db_page, .log_size = 3,
        .ring.root = sim_alloc(b, 4096), .record = sim_alloc(b, 8),
    };
    QrnicQpCtx bad;

    bad = good, bad.stream.max_message = 0;
    refused_qp(w, &bad, QRNIC_ST_BAD_PARAM, at);
    bad = good, bad.stream.max_message = QRNIC_MAX_MSG_SIZE + 1;
    refused_qp(w, &bad, QRNIC_ST_BAD_PARAM,
               at + QRNIC_STREAM_ATTR_MAX_MESSAGE_OFFSET);
    bad = good, bad.stream.max_messages = 0;
    refused_qp(w, &bad, QRNIC_ST_BAD_PARAM,
               at + QRNIC_STREAM_ATTR_MAX_MESSAGES_OFFSET);
    bad = good, bad.stream.log_align = QRNIC_STREAM_MAX_LOG_ALIGN + 1;
    refused_qp(w, &bad, QRNIC_ST_BAD_PARAM,
               at + QRNIC_STREAM_ATTR_LOG_ALIGN_OFFSET);
    bad = good, bad.type = QRNIC_QPT_RAW_PACKET;
    refused_qp(w, &bad, QRNIC_ST_BAD_PARAM, at);
    bad = good, bad.type = QRNIC_QPT_GSI, bad.db_page = 0;
    refused_qp(w, &bad, QRNIC_ST_BAD_PARAM, at);
    bad = good, bad.srq = w->srq->number;
    refused_qp(w, &bad, QRNIC_ST_BAD_PARAM, at);
    bad = good, bad.max_recv_inline = 16, bad.address_space = 1;
    refused_qp(w, &bad, QRNIC_ST_BAD_PARAM,
               QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    memset(&bad.stream, 0, sizeof(bad.stream));
    bad.srq = w->srq->number;
    refused_qp(w, &bad, QRNIC_ST_BAD_PARAM,
               QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    srq.stream.log_align = 3;
    g_assert_cmpint(qrnic_srq_create(b->engine, &srq).status, ==,
                    QRNIC_ST_BAD_PARAM);
    srq.stream = (QrnicStreamAttr) { .max_message = 100 };
    g_assert_cmpint(qrnic_srq_create(b->engine, &srq).syndrome, ==,
                    QRNIC_SRQ_CTX_STREAM_OFFSET +
                    QRNIC_STREAM_ATTR_MAX_MESSAGES_OFFSET);
    world_free(w);
}

/*
 * Random traffic of all kinds into an SRQ, over a wire that loses, repeats and
 * reorders. Queue pairs are destroyed in the middle of messages and created
 * again.
 */
static void poll_all(World *w)
{
    for (unsigned i = 0; i < w->peers; i++) {
        QrnicCqe c;

        while (sim_poll(w->to[i], &c)) {
            g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
            check_received(w, i, &c);
        }
        forget_sends(w, i);
    }
}

static void refill(World *w)
{
    while (w->held < slots(w) - 1) {
        post_buffer(w);
    }
}

static void replace(World *w, unsigned i)
{
    QrnicQpAttr err = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR };

    if (g_rand_boolean(w->sim->rand)) {
        sim_modify(w->to[i], &err);
        sim_run(w->sim, w->sim->now + SIM_US);
        poll_all(w);
    }
    sim_qp_free(w->to[i]);
    sim_qp_free(w->from[i]);
    peer_new(w, i);
}

static void random_traffic(uint32_t seed)
{
    static const uint8_t types[MOST_PEERS] = {
        QRNIC_QPT_RC, QRNIC_QPT_RC, QRNIC_QPT_UC, QRNIC_QPT_UD, QRNIC_QPT_RC,
    };
    GRand *rand = g_rand_new_with_seed(seed);
    const QrnicStreamAttr attr = {
        .max_message = g_rand_int_range(rand, 300, 3000),
        .max_messages = g_rand_int_range(rand, 1, 30),
        .log_align = g_rand_int_range(rand, 0, 9),
    };
    uint32_t size = g_rand_int_range(rand, 3000, 20000);
    World *w = world_new(seed, &attr, size, true, types, MOST_PEERS);
    uint32_t most = MIN(attr.max_message, size);

    w->sim->loss = g_rand_int_range(rand, 0, 40);
    w->sim->repeat = g_rand_int_range(rand, 0, 40);
    w->sim->reorder = g_rand_int_range(rand, 0, 40);
    for (unsigned round = 0; round < 400; round++) {
        unsigned i = g_rand_int_range(rand, 0, MOST_PEERS);
        uint32_t len = g_rand_int_range(rand, 0, most + 1);

        refill(w);
        if (w->type[i] == QRNIC_QPT_UD) {
            len = MIN(len, most - GRH);
        }
        if (g_rand_int_range(rand, 0, 4) == 0) {
            len %= 64;
        }
        send_to(w, i, len);
        if (g_rand_int_range(rand, 0, 60) == 0) {
            sim_run(w->sim, w->sim->now + g_rand_int_range(rand, 1, 20) *
                                          SIM_US);
            poll_all(w);
            replace(w, g_rand_int_range(rand, 0, MOST_PEERS));
        } else if (round % 8 == 0) {
            settle(w);
            poll_all(w);
        }
    }
    settle(w);
    poll_all(w);
    g_assert_cmpuint(w->complete, >, 100);
    g_assert_cmpuint(w->used, >, 0);
    g_assert_cmpuint(w->used, ==, counted(w, QRNIC_COUNTER_STREAM_BUFFERS));
    g_assert_cmpuint(w->complete, ==, counted(w,
                                              QRNIC_COUNTER_STREAM_MESSAGES));
    world_free(w);
    g_rand_free(rand);
}

static void test_random(void)
{
    const char *seed = getenv("QRNIC_SEED");

    if (seed) {
        random_traffic(atoi(seed));
        return;
    }
    for (uint32_t i = 1; i <= 60; i++) {
        g_test_message("seed %u", i);
        random_traffic(i);
    }
}

/*
 * Asserts that each message is in order in an RQ of each kind, with a perfect
 * wire.
 */
static void in_order(uint8_t type)
{
    World *w = world_one(type, false, 1500, 50, 5, 10000);
    unsigned sent = 0;

    for (unsigned round = 0; round < 300; round++) {
        refill(w);
        for (unsigned i = 0; i < 5; i++, sent++) {
            send_to(w, 0, g_rand_int_range(w->sim->rand, 0, 1200));
        }
        settle(w);
        poll_all(w);
    }
    g_assert_cmpuint(w->complete, ==, sent);
    world_free(w);
}

static void test_in_order(void)
{
    in_order(QRNIC_QPT_RC);
    in_order(QRNIC_QPT_UC);
    in_order(QRNIC_QPT_UD);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/streaming/places", test_places);
    g_test_add_func("/streaming/places-srq", test_places_srq);
    g_test_add_func("/streaming/messages", test_messages);
    g_test_add_func("/streaming/short-buffer", test_short_buffer);
    g_test_add_func("/streaming/too-long", test_too_long);
    g_test_add_func("/streaming/too-long-uc", test_too_long_uc);
    g_test_add_func("/streaming/too-long-ud", test_too_long_ud);
    g_test_add_func("/streaming/empty", test_empty);
    g_test_add_func("/streaming/flush", test_flush);
    g_test_add_func("/streaming/flush-middle", test_flush_middle);
    g_test_add_func("/streaming/reset", test_reset);
    g_test_add_func("/streaming/cut-short-error", test_cut_short_error);
    g_test_add_func("/streaming/cut-short-reset", test_cut_short_reset);
    g_test_add_func("/streaming/cut-short-destroy", test_cut_short_destroy);
    g_test_add_func("/streaming/shared", test_shared);
    g_test_add_func("/streaming/mistakes", test_mistakes);
    g_test_add_func("/streaming/bad-record", test_bad_record);
    g_test_add_func("/streaming/resize", test_resize);
    g_test_add_func("/streaming/gap", test_gap);
    g_test_add_func("/streaming/bad-key", test_bad_key);
    g_test_add_func("/streaming/bad-wqe", test_bad_wqe);
    g_test_add_func("/streaming/limit", test_limit);
    g_test_add_func("/streaming/no-credits", test_no_credits);
    g_test_add_func("/streaming/refused", test_refused);
    g_test_add_func("/streaming/in-order", test_in_order);
    g_test_add_func("/streaming/random", test_random);
    return g_test_run();
}
