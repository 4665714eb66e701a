/*
 * Tag matching: which message goes into which buffer, rendezvous that the
 * device reads itself, and the counts by which device and software keep in
 * step. In the random traffic the test is the message passing library: it
 * follows the manual, and finds out whether any message has overtaken another.
 *
 * QRNIC_SEED=n runs only that seed of the random traffic.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "pair.h"

#define MOST_PEERS 3
#define LOG_SLOTS 5
#define LOG_OPS 6
#define TAGS 64
#define BUFFER 4096u            /* of an entry, a WQE and a message */
#define WQES (1u << LOG_SLOTS)
#define MESSAGES 256u           /* places for them at the sender */
#define FIN_WQES 32u
#define HEADER QRNIC_TAG_HEADER_SIZE
#define HEADERS QRNIC_RENDEZVOUS_SIZE
#define ALL (~0ull)

#define ENTRY QRNIC_CQET_ENTRY
#define MATCH QRNIC_CQET_MATCH
#define VALID QRNIC_CQET_DATA_VALID
#define SYNC QRNIC_CQET_SYNC_REQ

enum { NO_TAG, RNDV, FIN, EAGER };

typedef struct World {
    Sim *sim;
    SimNode *a, *b;             /* sender, receiver */
    SimSrq *srq;
    SimQp *cq;                  /* of the list; only that of it is there */
    uint64_t ring, record;
    uint32_t producer;          /* of operations */
    unsigned peers;
    SimQp *from[MOST_PEERS], *to[MOST_PEERS];
    uint64_t source, data, fins, entries, wqes;
    uint32_t source_key, data_key, fin_key, entry_key, wqe_key;
    uint32_t sent;
    unsigned gap, seen;         /* packets: to lose, so far */
    uint8_t mtu;
} World;

static void cq_new(World *w, unsigned log_size)
{
    SimQp *q = w->cq = g_new0(SimQp, 1);
    QrnicCqCtx cq = { .eqn = w->b->cq_eq, .log_size = log_size };
    QrnicResult r;

    q->node = w->b;
    q->cq_log = log_size;
    q->cq_ring = cq.ring.root = sim_alloc(w->b, QRNIC_CQE_SIZE << log_size);
    q->cq_record = cq.record = sim_alloc(w->b, 8);
    r = qrnic_cq_create(w->b->engine, &cq);
    g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
    q->cq = r.value;
}

static QrnicTagListCtx list_ctx(World *w)
{
    return (QrnicTagListCtx) {
        .cq = w->cq->cq, .max_tags = TAGS, .log_size = LOG_OPS,
        .log_stride = 1, .record = w->record, .ring.root = w->ring,
    };
}

static void post_wqe(World *w)
{
    unsigned slot = w->srq->head;
    SimSge sge = { w->wqes + slot * BUFFER, BUFFER, w->wqe_key };

    sim_post_srq(w->srq, &sge, 1);
}

/* Where the WQE with this index of the sender's RQ has its buffer */
static uint64_t fin_at(const World *w, unsigned i, uint32_t index)
{
    return w->fins + (i * FIN_WQES + index % FIN_WQES) * HEADERS;
}

static void post_fin(World *w, unsigned i)
{
    SimSge sge = {
        fin_at(w, i, w->from[i]->rq_producer), HEADERS, w->fin_key
    };

    sim_post_recv(w->from[i], &sge, 1);
}

static void peer_connect(World *w, unsigned i)
{
    SimConnect c = sim_connect_default();

    c.path_mtu = w->mtu;
    c.psn_a = g_rand_int_range(w->sim->rand, 0, 1 << 24);
    c.psn_b = g_rand_int_range(w->sim->rand, 0, 1 << 24);
    sim_connect(w->from[i], w->to[i], &c);
}

static void peer_new(World *w, unsigned i)
{
    w->from[i] = sim_qp_new(w->a, 8, 5, 0, 9);
    w->to[i] = sim_qp_new_srq(w->b, 6, w->srq, 4);
}

static World *world_bare(uint32_t seed, unsigned peers, const SimOptions *o)
{
    World *w = g_new0(World, 1);
    QrnicTagListCtx ctx;

    w->sim = sim_new(seed, o);
    w->a = &w->sim->node[0];
    w->b = &w->sim->node[1];
    w->mtu = QRNIC_MTU_256;
    w->srq = sim_srq_new(w->b, LOG_SLOTS, 0);
    cq_new(w, 9);
    w->ring = sim_alloc(w->b, QRNIC_WQEBB_SIZE << (LOG_OPS + 1));
    w->record = sim_alloc(w->b, 8);
    ctx = list_ctx(w);
    g_assert_cmpint(qrnic_tag_list_create(w->b->engine, w->srq->number,
                                          &ctx).status, ==, QRNIC_ST_OK);
    w->source = sim_alloc(w->a, MESSAGES * BUFFER);
    w->data = sim_alloc(w->a, MESSAGES * BUFFER);
    w->fins = sim_alloc(w->a, MOST_PEERS * FIN_WQES * HEADERS);
    w->entries = sim_alloc(w->b, TAGS * BUFFER);
    w->wqes = sim_alloc(w->b, WQES * BUFFER);
    w->source_key = sim_mkey(w->a, w->source, MESSAGES * BUFFER, ACCESS_ALL);
    w->data_key = sim_mkey(w->a, w->data, MESSAGES * BUFFER, ACCESS_ALL);
    w->fin_key = sim_mkey(w->a, w->fins, MOST_PEERS * FIN_WQES * HEADERS,
                          ACCESS_ALL);
    w->entry_key = sim_mkey(w->b, w->entries, TAGS * BUFFER, ACCESS_ALL);
    w->wqe_key = sim_mkey(w->b, w->wqes, WQES * BUFFER, ACCESS_ALL);
    for (unsigned i = 0; i < MESSAGES * BUFFER; i++) {
        w->a->memory[w->source + i] = g_rand_int(w->sim->rand);
        w->a->memory[w->data + i] = g_rand_int(w->sim->rand);
    }
    w->peers = peers;
    for (unsigned i = 0; i < peers; i++) {
        peer_new(w, i);
    }
    return w;
}

/* Connected, with WQEs for messages and for fins */
static World *world_new(uint32_t seed, unsigned peers)
{
    World *w = world_bare(seed, peers, NULL);

    for (unsigned i = 0; i < peers; i++) {
        peer_connect(w, i);
        for (unsigned n = 0; n < FIN_WQES; n++) {
            post_fin(w, i);
        }
    }
    for (unsigned n = 0; n < WQES - 1; n++) {
        post_wqe(w);
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
    sim_srq_free(w->srq);
    g_assert_cmpint(qrnic_cq_destroy(w->b->engine, w->cq->cq).status, ==,
                    QRNIC_ST_OK);
    g_free(w->cq);
    sim_free(w->sim);
    g_free(w);
}

static void settle(World *w)
{
    g_assert_true(sim_run(w->sim, INT64_MAX));
}

static uint64_t counted(World *w, enum qrnic_counter c)
{
    return sim_counter(w->b, c);
}

/*
 * What software does
 */

static void op_write(World *w, const QrnicTagOp *op, const SimSge *sge,
                     unsigned num_sge)
{
    uint8_t *p = w->b->memory + w->ring + (w->producer % (1 << LOG_OPS)) *
                 (QRNIC_WQEBB_SIZE << 1);

    qrnic_tag_op_pack(p, op);
    for (unsigned i = 0; i < num_sge; i++) {
        QrnicDataSeg seg = { sge[i].addr, sge[i].length, sge[i].key };

        qrnic_data_seg_pack(p + QRNIC_TAG_OP_BYTES + i * QRNIC_SEGMENT_SIZE,
                            &seg);
    }
    stl_le_p(w->b->memory + w->record, ++w->producer);
}

static void list_ring(World *w)
{
    sim_ring(w->b, 0, QRNIC_DB_SRQ, w->srq->number, 0);
}

static uint32_t op_post(World *w, QrnicTagOp op, const SimSge *sge,
                        unsigned num_sge)
{
    op.index = w->producer;
    op_write(w, &op, sge, num_sge);
    list_ring(w);
    return op.index;
}

static QrnicTagOp add_op(uint32_t handle, uint64_t tag, uint64_t mask)
{
    return (QrnicTagOp) {
        .opcode = QRNIC_WQE_TAG_ADD, .data_segments = 2, .handle = handle,
        .tag = tag, .mask = mask,
    };
}

static QrnicTagOp with_count(QrnicTagOp op, uint32_t unexpected)
{
    op.flags |= QRNIC_TAGF_SYNC;
    op.unexpected = unexpected;
    return op;
}

static uint64_t entry_at(const World *w, uint32_t handle)
{
    return w->entries + handle * BUFFER;
}

/* Two segments, of which the first is odd */
static void entry_post(World *w, QrnicTagOp op, uint32_t len)
{
    uint64_t at = entry_at(w, op.handle);
    uint32_t first = len / 3 | 1;
    SimSge sge[] = {
        { at, MIN(first, len), w->entry_key },
        { at + first, len - MIN(first, len), w->entry_key },
    };

    memset(w->b->memory + at, 0, BUFFER);
    op_post(w, op, sge, 2);
}

static void add(World *w, uint32_t handle, uint64_t tag, uint64_t mask)
{
    entry_post(w, add_op(handle, tag, mask), BUFFER);
}

static QrnicTagOp del_op(uint32_t handle)
{
    return (QrnicTagOp) {
        .opcode = QRNIC_WQE_TAG_DEL, .handle = handle,
        .flags = QRNIC_TAGF_SIGNALED,
    };
}

static QrnicTagOp sync_op(uint32_t unexpected)
{
    return (QrnicTagOp) {
        .opcode = QRNIC_WQE_TAG_SYNC, .unexpected = unexpected,
        .flags = QRNIC_TAGF_SIGNALED | QRNIC_TAGF_SYNC,
    };
}

static uint8_t *source_of(const World *w, uint32_t number)
{
    return w->a->memory + w->source + number % MESSAGES * BUFFER;
}

static uint8_t *data_of(const World *w, uint32_t number)
{
    return w->a->memory + w->data + number % MESSAGES * BUFFER;
}

/* What is at the place of the next message is sent. Returns its number. */
static uint32_t send_raw(World *w, unsigned i, uint32_t len, uint8_t flags)
{
    uint32_t number = w->sent++;
    SimSge sge = {
        w->source + number % MESSAGES * BUFFER, len, w->source_key
    };
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED | flags,
        .sge = &sge, .num_sge = 1,
    };

    sim_post_send(w->from[i], &wr);
    return number;
}

static void header_put(World *w, uint8_t opcode, uint64_t tag)
{
    uint8_t *p = source_of(w, w->sent);

    memset(p, 0, HEADER);
    p[0] = opcode;
    stl_be_p(p + 4, w->sent);
    stq_be_p(p + 8, tag);
}

/* len: of what is behind the header */
static uint32_t send_tagged(World *w, unsigned i, uint8_t opcode, uint64_t tag,
                            uint32_t len)
{
    header_put(w, opcode, tag);
    return send_raw(w, i, HEADER + len, 0);
}

static uint32_t send_eager(World *w, unsigned i, uint64_t tag, uint32_t len)
{
    return send_tagged(w, i, EAGER, tag, len);
}

static void rndv_put(World *w, uint64_t tag, uint32_t key, uint32_t len)
{
    uint8_t *p = source_of(w, w->sent) + HEADER;

    header_put(w, RNDV, tag);
    stq_be_p(p, w->data + w->sent % MESSAGES * BUFFER);
    stl_be_p(p + 8, key);
    stl_be_p(p + 12, len);
}

static uint32_t send_rndv(World *w, unsigned i, uint64_t tag, uint32_t len)
{
    rndv_put(w, tag, w->data_key, len);
    return send_raw(w, i, HEADERS + 20, 0);
}

/*
 * What it sees
 */

static QrnicCqe next_cqe(World *w)
{
    QrnicCqe c;

    g_assert_true(sim_poll(w->cq, &c));
    g_assert_cmpint(c.srqn, ==, w->srq->number);
    return c;
}

static void expect_nothing(World *w)
{
    expect_no_cqe(w->cq);
}

static void expect_op(World *w, uint8_t opcode, uint8_t status,
                      uint8_t syndrome, uint8_t sync)
{
    QrnicCqe c = next_cqe(w);

    g_assert_cmphex(c.opcode, ==, opcode);
    g_assert_cmpint(c.status, ==, status);
    g_assert_cmpint(c.syndrome, ==, syndrome);
    g_assert_cmphex(c.tagged, ==, QRNIC_CQET_OPERATION | sync);
    g_assert_cmpint(c.index, ==, w->producer - 1);
    g_assert_cmpint(c.qpn, ==, 0);
}

/* The tag and the number of a message that a CQE with MATCH tells */
static void polled_tag(World *w, uint64_t *tag, uint32_t *number)
{
    uint32_t slot = (w->cq->cq_consumer - 1) & ((1u << w->cq->cq_log) - 1);
    QrnicCqeTag t;

    g_assert_true(qrnic_cqe_tag_unpack(&t, w->b->memory + w->cq->cq_ring +
                                           slot * QRNIC_CQE_SIZE));
    *tag = t.tag;
    *number = t.app_ctx;
}

static QrnicCqe expect_entry(World *w, uint32_t handle, uint8_t tagged,
                             uint8_t status, uint32_t len)
{
    QrnicCqe c = next_cqe(w);

    g_assert_cmpint(c.status, ==, status);
    g_assert_cmphex(c.opcode, ==, QRNIC_CQE_TAG_RECV);
    g_assert_cmphex(c.tagged, ==, ENTRY | tagged);
    g_assert_cmpint(c.index, ==, handle);
    g_assert_cmpint(c.byte_len, ==, len);
    return c;
}

static void expect_match(World *w, uint32_t handle, uint8_t tagged,
                         uint8_t status, uint32_t len, uint32_t number)
{
    uint64_t tag;
    uint32_t told;

    expect_entry(w, handle, MATCH | tagged, status, len);
    polled_tag(w, &tag, &told);
    g_assert_cmphex(tag, ==, ldq_be_p(source_of(w, number) + 8));
    g_assert_cmpint(told, ==, number);
}

static void expect_eager_data(World *w, uint32_t handle, uint32_t number,
                              uint32_t len)
{
    g_assert_cmpmem(w->b->memory + entry_at(w, handle), len,
                    source_of(w, number) + HEADER, len);
}

/* One packet */
static void expect_eager(World *w, uint32_t handle, uint32_t number,
                         uint32_t len)
{
    expect_match(w, handle, VALID, QRNIC_WC_SUCCESS, len, number);
    expect_eager_data(w, handle, number, len);
}

static void expect_rndv(World *w, uint32_t handle, uint32_t number,
                        uint32_t len)
{
    expect_match(w, handle, 0, QRNIC_WC_SUCCESS, len, number);
    expect_entry(w, handle, VALID, QRNIC_WC_SUCCESS, len);
    g_assert_cmpmem(w->b->memory + entry_at(w, handle), len,
                    data_of(w, number), len);
}

/* The sender's completion of the message, and the fin */
static void expect_sent(World *w, unsigned i)
{
    expect_cqe(w->from[i], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
}

static void expect_fin(World *w, unsigned i, uint32_t number)
{
    QrnicCqe c = expect_cqe(w->from[i], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    uint8_t fin[HEADERS];

    memcpy(fin, source_of(w, number), HEADERS);
    fin[0] = FIN;
    g_assert_cmpint(c.byte_len, ==, HEADERS);
    g_assert_cmpmem(w->a->memory + fin_at(w, i, c.index), HEADERS, fin,
                    HEADERS);
}

/* A message that went to a WQE, whole; the slot is posted again. */
static void expect_wqe(World *w, uint8_t opcode, uint8_t tagged,
                       uint32_t number, uint32_t len)
{
    QrnicCqe c = next_cqe(w);

    g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmphex(c.opcode, ==, opcode);
    g_assert_cmphex(c.tagged, ==, tagged);
    g_assert_cmpint(c.byte_len, ==, len);
    g_assert_cmpmem(w->b->memory + w->wqes + c.index * BUFFER, len,
                    source_of(w, number), len);
    sim_srq_slot_free(w->srq, c.index);
    post_wqe(w);
}

static void expect_unexpected(World *w, uint8_t tagged, uint32_t number,
                              uint32_t len)
{
    expect_wqe(w, QRNIC_CQE_TAG_UNEXPECTED, tagged, number, len);
}

/*
 * Which entry
 */

/* The first of the list that matches, whatever the order of handles */
static void test_order(void)
{
    World *w = world_new(1, 1);
    uint32_t n;

    add(w, 9, 5, ALL);
    add(w, 2, 0x100, 0xff00);
    add(w, 7, 5, ALL);
    add(w, 1, 0, 0);
    settle(w);
    expect_nothing(w);
    n = send_eager(w, 0, 0x123, 100);
    settle(w);
    expect_eager(w, 2, n, 100);
    n = send_eager(w, 0, 5, 200);
    settle(w);
    expect_eager(w, 9, n, 200);
    n = send_eager(w, 0, 5, 0);
    settle(w);
    expect_eager(w, 7, n, 0);
    n = send_eager(w, 0, 5, 1);
    settle(w);
    expect_eager(w, 1, n, 1);
    n = send_eager(w, 0, 5, 1);
    settle(w);
    expect_unexpected(w, 0, n, HEADER + 1);
    expect_nothing(w);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_MATCHES), ==, 4);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_COMPARED), ==, 2 + 1 + 1 + 1);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_UNEXPECTED), ==, 1);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_OPS), ==, 4);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    world_free(w);
}

/* A tag that has ones where its mask has none matches nothing. */
static void test_mask(void)
{
    World *w = world_new(1, 1);
    uint32_t n;

    add(w, 0, 0x11, 0x10);
    n = send_eager(w, 0, 0x11, 10);
    settle(w);
    expect_unexpected(w, 0, n, HEADER + 10);
    world_free(w);
}

/* Several packets: matched with the first, complete with the last */
static void test_packets(void)
{
    World *w = world_new(1, 1);
    uint32_t n;

    add(w, 3, 1, ALL);
    add(w, 4, 1, ALL);
    n = send_eager(w, 0, 1, 1000);
    settle(w);
    expect_match(w, 3, 0, QRNIC_WC_SUCCESS, 0, n);
    expect_entry(w, 3, VALID, QRNIC_WC_SUCCESS, 1000);
    expect_eager_data(w, 3, n, 1000);
    /* Exactly the buffer */
    n = send_eager(w, 0, 1, BUFFER - HEADER);
    settle(w);
    expect_match(w, 4, 0, QRNIC_WC_SUCCESS, 0, n);
    expect_entry(w, 4, VALID, QRNIC_WC_SUCCESS, BUFFER - HEADER);
    expect_eager_data(w, 4, n, BUFFER - HEADER);
    world_free(w);
}

static void test_no_tag(void)
{
    World *w = world_new(1, 1);
    const struct {
        uint8_t opcode;
        uint32_t len;
        bool malformed;
    } message[] = {
        { NO_TAG, 100, false }, { FIN, 32, false }, { EAGER, 15, true },
        { EAGER, 1, true }, { EAGER, 0, true }, { RNDV, 31, true },
        { RNDV, 257, true }, { RNDV, 600, true }, { 4, 100, true },
        { 255, 100, true },
    };
    unsigned malformed = 0;

    add(w, 0, 0, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(message); i++) {
        uint32_t n;

        rndv_put(w, 0, w->data_key, 8);
        source_of(w, w->sent)[0] = message[i].opcode;
        n = send_raw(w, 0, message[i].len, 0);
        settle(w);
        expect_wqe(w, QRNIC_CQE_TAG_NO_TAG, 0, n, message[i].len);
        malformed += message[i].malformed;
        g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_MALFORMED), ==,
                        malformed);
    }
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_UNTAGGED), ==,
                    ARRAY_SIZE(message));
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_UNEXPECTED), ==, 0);
    /* Nothing of that was unexpected: the entry is used. */
    send_eager(w, 0, 1, 16);
    settle(w);
    expect_eager(w, 0, w->sent - 1, 16);
    world_free(w);
}

/* No WQE: RNR NAK; an entry that comes meanwhile takes the message. */
static void test_rnr(void)
{
    World *w = world_bare(1, 1, NULL);
    uint32_t n;

    peer_connect(w, 0);
    n = send_eager(w, 0, 4, 100);
    g_assert_false(sim_run(w->sim, w->sim->now + 100 * SIM_US));
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TX_RNR_NAK), ==, 1);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_UNEXPECTED), ==, 0);
    add(w, 0, 4, ALL);
    settle(w);
    expect_eager(w, 0, n, 100);
    world_free(w);
}

/* The example of the manual */
static void test_sync(void)
{
    World *w = world_new(1, 1);
    uint32_t n;

    add(w, 0, 5, ALL);
    n = send_eager(w, 0, 7, 10);
    settle(w);
    expect_unexpected(w, 0, n, HEADER + 10);
    entry_post(w, add_op(1, 7, ALL), BUFFER);
    n = send_eager(w, 0, 7, 11);
    settle(w);
    expect_unexpected(w, SYNC, n, HEADER + 11);
    n = send_rndv(w, 0, 5, 3000);
    settle(w);
    expect_rndv(w, 0, n, 3000);
    op_post(w, with_count(del_op(1), 1), NULL, 0);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_DEL, QRNIC_WC_SUCCESS, 0, SYNC);
    /* What comes next is put by, too, until all is told. */
    add(w, 2, 8, ALL);
    add(w, 3, 8, ALL);
    op_post(w, sync_op(1), NULL, 0);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_SYNC, QRNIC_WC_SUCCESS, 0, SYNC);
    n = send_eager(w, 0, 8, 12);
    settle(w);
    expect_unexpected(w, SYNC, n, HEADER + 12);
    op_post(w, sync_op(3), NULL, 0);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_SYNC, QRNIC_WC_SUCCESS, 0, 0);
    n = send_eager(w, 0, 8, 13);
    settle(w);
    expect_eager(w, 2, n, 13);
    /* An operation with the count that is right is enough. */
    n = send_eager(w, 0, 9, 14);
    settle(w);
    expect_unexpected(w, 0, n, HEADER + 14);
    entry_post(w, with_count(add_op(0, 9, ALL), 4), BUFFER);
    n = send_eager(w, 0, 9, 15);
    settle(w);
    expect_eager(w, 0, n, 15);
    world_free(w);
}

/* What was put by first is used up to the end of the list. */
static void test_put_by_removed(void)
{
    World *w = world_new(1, 1);
    uint32_t n;

    send_eager(w, 0, 1, 10);
    settle(w);
    expect_unexpected(w, 0, 0, HEADER + 10);
    add(w, 0, 2, ALL);
    add(w, 1, 2, ALL);
    op_post(w, del_op(0), NULL, 0);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_DEL, QRNIC_WC_SUCCESS, 0, SYNC);
    n = send_eager(w, 0, 2, 10);
    settle(w);
    expect_unexpected(w, SYNC, n, HEADER + 10);
    op_post(w, del_op(1), NULL, 0);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_DEL, QRNIC_WC_SUCCESS, 0, SYNC);
    n = send_eager(w, 0, 2, 10);
    settle(w);
    expect_unexpected(w, 0, n, HEADER + 10);
    op_post(w, sync_op(3), NULL, 0);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_SYNC, QRNIC_WC_SUCCESS, 0, 0);
    add(w, 0, 2, ALL);
    n = send_eager(w, 0, 2, 10);
    settle(w);
    expect_eager(w, 0, n, 10);
    world_free(w);
}

/*
 * Operations
 */

static void test_operations(void)
{
    World *w = world_new(1, 1);
    QrnicTagOp op = add_op(TAGS - 1, 1, ALL);

    op.flags = QRNIC_TAGF_SIGNALED;
    entry_post(w, op, BUFFER);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_ADD, QRNIC_WC_SUCCESS, 0, 0);
    op_post(w, del_op(TAGS - 1), NULL, 0);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_DEL, QRNIC_WC_SUCCESS, 0, 0);
    op_post(w, del_op(TAGS - 1), NULL, 0);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_DEL, QRNIC_WC_TM_ERR, QRNIC_SYN_TAG_HANDLE, 0);
    /* As many as the ring has, several times */
    for (unsigned turn = 0; turn < 5; turn++) {
        for (unsigned i = 0; i < 1 << LOG_OPS; i++) {
            QrnicTagOp each = i % 2 ? del_op(i / 2) : add_op(i / 2, i, ALL);

            each.flags = 0;
            each.data_segments = 0;
            each.index = w->producer;
            op_write(w, &each, NULL, 0);
        }
        list_ring(w);
        settle(w);
    }
    expect_nothing(w);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_OPS), ==,
                    3 + 5 * (1 << LOG_OPS));
    g_assert_cmpint(counted(w, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    world_free(w);
}

/* Each rule of operations broken once: nothing but a completion comes of it. */
static void test_bad_operations(void)
{
    World *w = world_new(1, 1);
    const SimSge long_sge = { 0, QRNIC_MAX_MSG_SIZE + 1, 1 };
    struct {
        QrnicTagOp op;
        uint8_t status, syndrome;
    } bad[] = {
#define BAD(op, rule) { op, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_##rule }
        BAD(del_op(1), WQE_RESERVED), BAD(del_op(1), WQE_RESERVED),
        BAD(del_op(1), WQE_RESERVED), BAD(sync_op(0), WQE_RESERVED),
        BAD(del_op(1), WQE_RESERVED), BAD(add_op(2, 0, 0), WQE_RESERVED),
        BAD(add_op(2, 0, 0), WQE_OPCODE), BAD(add_op(2, 0, 0), WQE_SIZE),
        BAD(add_op(TAGS, 0, 0), TAG_HANDLE), BAD(del_op(TAGS), TAG_HANDLE),
        BAD(add_op(1, 0, 0), TAG_HANDLE), BAD(sync_op(1), TAG_COUNT),
        BAD(sync_op(-1), TAG_COUNT), BAD(add_op(2, 0, 0), TAG_COUNT),
        BAD(add_op(2, 0, 0), WQE_LENGTH),
#undef BAD
    };
    uint32_t n;

    bad[0].op.data_segments = 1;
    bad[1].op.tag = 1;
    bad[2].op.mask = 1;
    bad[3].op.handle = 1;
    bad[4].op.unexpected = 1;
    bad[5].op.flags = 4;
    bad[6].op.opcode = QRNIC_WQE_SEND;
    bad[7].op.data_segments = 7;
    bad[13].op = with_count(bad[13].op, 7);
    bad[14].op.data_segments = 1;
    bad[14].status = QRNIC_WC_LOC_LEN_ERR;
    add(w, 1, 6, ALL);
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        op_post(w, bad[i].op, i == 14 ? &long_sge : NULL, i == 14);
        settle(w);
        expect_op(w, bad[i].op.opcode, bad[i].status, bad[i].syndrome, 0);
        g_assert_cmpint(counted(w, QRNIC_COUNTER_GUEST_ERRORS), ==, i + 1);
    }
    expect_nothing(w);
    n = send_eager(w, 0, 6, 10);
    settle(w);
    expect_eager(w, 1, n, 10);
    /* 2 has never been added. */
    op_post(w, del_op(2), NULL, 0);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_DEL, QRNIC_WC_TM_ERR, QRNIC_SYN_TAG_HANDLE, 0);
    world_free(w);
}

/* The list is broken, and says so once; entries and WQEs live on. */
static void broken(void (*how)(World *w), uint8_t syndrome)
{
    World *w = world_new(1, 1);
    uint32_t n;
    QrnicEqe e;

    add(w, 1, 6, ALL);
    settle(w);
    how(w);
    list_ring(w);
    settle(w);
    g_assert_true(sim_poll_event(w->b, &e));
    g_assert_cmpint(e.type, ==, QRNIC_EVENT_SRQ_ERROR);
    g_assert_cmpint(e.subtype, ==, syndrome);
    g_assert_cmpint(e.object, ==, w->srq->number);
    w->b->broken_from = w->b->broken_to = 0;
    add(w, 2, 7, ALL);
    settle(w);
    expect_no_event(w->b);
    n = send_eager(w, 0, 6, 10);
    settle(w);
    expect_eager(w, 1, n, 10);
    n = send_eager(w, 0, 7, 10);
    settle(w);
    expect_unexpected(w, 0, n, HEADER + 10);
    world_free(w);
}

static void bad_index(World *w)
{
    QrnicTagOp op = sync_op(0);

    op.index = w->producer + 1;
    op_write(w, &op, NULL, 0);
}

static void bad_producer(World *w)
{
    w->producer += (1 << LOG_OPS) + 1;
    stl_le_p(w->b->memory + w->record, w->producer);
}

static void bad_record(World *w)
{
    stl_le_p(w->b->memory + w->record + 4, 1);
}

static void no_record(World *w)
{
    w->b->broken_from = w->record;
    w->b->broken_to = w->record + 8;
}

static void no_ring(World *w)
{
    QrnicTagOp op = sync_op(0);

    w->b->broken_from = w->ring;
    w->b->broken_to = w->ring + 4096;
    op.index = w->producer;
    op_write(w, &op, NULL, 0);
}

static void test_broken(void)
{
    broken(bad_index, QRNIC_SYN_WQE_INDEX);
    broken(bad_producer, QRNIC_SYN_PRODUCER);
    broken(bad_record, QRNIC_SYN_PRODUCER);
    broken(no_record, QRNIC_SYN_WQE_FETCH);
    broken(no_ring, QRNIC_SYN_WQE_FETCH);
}

/* A CQ that overruns stops the list, and its queue pairs. */
static void test_cq_overrun(void)
{
    World *w = world_new(1, 1);

    for (unsigned i = 0; i < (1 << 9) + 1; i++) {
        op_post(w, sync_op(0), NULL, 0);
        settle(w);
    }
    expect_event(w->b, QRNIC_EVENT_CQ_ERROR, w->cq->cq);
    expect_event(w->b, QRNIC_EVENT_SRQ_ERROR, w->srq->number);
    expect_event(w->b, QRNIC_EVENT_QP_FATAL, w->to[0]->number);
    expect_state(w->to[0], QRNIC_QPS_ERR);
    world_free(w);
}

/* The doorbell is lost in a FIFO that is full; the list is looked at later. */
static void test_doorbell_lost(void)
{
    const SimOptions o = { .doorbell_fifo = 2 };
    World *w = world_bare(1, 1, &o);
    QrnicTagOp op = sync_op(0);

    peer_connect(w, 0);
    op.index = w->producer;
    op_write(w, &op, NULL, 0);
    sim_ring(w->b, 0, QRNIC_DB_SRQ, w->srq->number + 1, 0);
    list_ring(w);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_DOORBELLS_DROPPED), ==, 1);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_SYNC, QRNIC_WC_SUCCESS, 0, 0);
    world_free(w);
}

/*
 * Rendezvous
 */

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

/* Among what software sends itself, in both directions; many at a time */
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

/* Matched in RTR: it is read when the queue pair may send. */
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

/* Left to software: too long, or the queue pair may not read */
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
    /* The connection lives, and the handle is free. */
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

/*
 * What fails
 */

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

/* The sender lies about its key: its own connection pays. */
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

/* The sender has no WQE for the fin: an event tells. */
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

/* From the sender all packets but the first so many are lost. */
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
 * The queue pair goes in the middle of messages. What matched is completed,
 * and what was unexpected was not.
 */
static void cut_short(unsigned how)
{
    World *w = world_new(1, 2);
    uint32_t n;

    /* Eager, the first of several packets */
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

static void cut_short_rndv(unsigned how)
{
    World *w = world_new(1, 1);
    uint32_t n[3];

    for (unsigned i = 0; i < 3; i++) {
        add(w, i, 1, ALL);
    }
    settle(w);
    w->gap = 3;
    w->sim->tap = lose_rest;
    w->sim->tap_opaque = w;
    /* max_rd_atomic lets all of them go; no answer comes. */
    for (unsigned i = 0; i < 3; i++) {
        n[i] = send_rndv(w, 0, 1, 3000);
    }
    g_assert_false(sim_run(w->sim, w->sim->now + 20 * SIM_US));
    for (unsigned i = 0; i < 3; i++) {
        expect_match(w, i, 0, QRNIC_WC_SUCCESS, 3000, n[i]);
    }
    stop(w, how);
    for (unsigned i = 0; i < 3; i++) {
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
    /* One is left, and software has seen it. */
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
        cut_short_rndv(how);
        cut_short_unexpected(how);
    }
}

/* A reset of the device in the middle of all: nothing is left. */
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

/*
 * Commands
 */

static void refused(World *w, uint32_t srqn, const QrnicTagListCtx *ctx,
                    uint8_t status, uint32_t syndrome)
{
    QrnicResult r = qrnic_tag_list_create(w->b->engine, srqn, ctx);

    g_assert_cmpint(r.status, ==, status);
    g_assert_cmphex(r.syndrome, ==, syndrome);
}

static void test_refused(void)
{
    World *w = world_bare(1, 1, NULL);
    SimSrq *srq = sim_srq_new(w->b, 4, 0), *stream;
    const QrnicTagListCtx good = list_ctx(w);
    QrnicTagListCtx bad;
    QrnicQpCtx qp = {
        .type = QRNIC_QPT_RC, .pd = w->b->pd, .send_cq = w->cq->cq,
        .recv_cq = w->cq->cq, .sq_log_size = 6, .srq = w->srq->number,
        .sq.root = sim_alloc(w->b, 4096), .sq_record = sim_alloc(w->b, 8),
    };
    QrnicResult r;

    refused(w, srq->number + 1, &good, QRNIC_ST_BAD_OBJECT, 0xffffffff);
    refused(w, w->srq->number, &good, QRNIC_ST_BUSY, 0);
#define REFUSED(member, value, status, at) \
    bad = good, bad.member = value; \
    refused(w, srq->number, &bad, QRNIC_ST_##status, \
            QRNIC_TAG_LIST_CTX_##at##_OFFSET)
    REFUSED(cq, 0, BAD_OBJECT, CQ);
    REFUSED(max_tags, 0, BAD_PARAM, MAX_TAGS);
    REFUSED(max_tags, QRNIC_MAX_TAGS + 1, BAD_PARAM, MAX_TAGS);
    REFUSED(log_size, 13, BAD_PARAM, LOG_SIZE);
    REFUSED(log_stride, 4, BAD_PARAM, LOG_STRIDE);
    REFUSED(record, 4, BAD_PARAM, RECORD);
    REFUSED(max_tags, -1, BAD_PARAM, MAX_TAGS);
#undef REFUSED
    w->b->stream = (QrnicStreamAttr) { .max_message = 9, .max_messages = 9 };
    stream = sim_srq_new(w->b, 4, 0);
    refused(w, stream->number, &good, QRNIC_ST_BAD_PARAM, 0xffffffff);
    sim_srq_free(stream);
    sim_srq_free(srq);
    /* Who may use such an SRQ */
    qp.type = QRNIC_QPT_UD;
    r = qrnic_qp_create(w->b->engine, &qp);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(r.syndrome, ==, QRNIC_QP_CTX_SRQ_OFFSET);
    qp.type = QRNIC_QPT_RC;
    qp.max_recv_inline = 16;
    qp.address_space = 1;
    r = qrnic_qp_create(w->b->engine, &qp);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(r.syndrome, ==, QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    /* The list holds its CQ. */
    g_assert_cmpint(qrnic_cq_destroy(w->b->engine, w->cq->cq).status, ==,
                    QRNIC_ST_BUSY);
    world_free(w);
}

/* The entries of all lists together are bounded, and come back. */
static void test_all_tags(void)
{
    World *w = world_bare(1, 1, NULL);
    QrnicTagListCtx ctx = list_ctx(w);
    SimSrq *srq[QRNIC_MAX_ALL_TAGS / QRNIC_MAX_TAGS];
    unsigned n = ARRAY_SIZE(srq);

    ctx.max_tags = QRNIC_MAX_TAGS;
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < n; i++) {
            srq[i] = sim_srq_new(w->b, 4, 0);
            refused(w, srq[i]->number, &ctx,
                    i == n - 1 ? QRNIC_ST_NO_RESOURCE : QRNIC_ST_OK, 0);
        }
        for (unsigned i = 0; i < n; i++) {
            sim_srq_free(srq[i]);
        }
    }
    world_free(w);
}

/*
 * Random traffic: the test is a library that receives by tag. A receive takes
 * an unexpected message that is there, or is given to the device; of an
 * unexpected message that software has a receive for, it takes the entry back.
 */
#define RECEIVES 400

typedef struct Receive {
    uint64_t tag, mask;
    uint32_t handle, len, number;       /* number: of the message */
    enum { FREE, POSTED, MATCHED, TAKEN_BACK, DONE } state;
} Receive;

typedef struct Message {
    unsigned peer;
    uint64_t tag;
    uint32_t len;
    bool rndv, fin;
    int receive;                /* or -1 */
    bool here;                  /* unexpected, in software's hands */
} Message;

typedef struct Library {
    World *w;
    Receive receive[RECEIVES];
    Message message[RECEIVES];
    unsigned receives, messages, done, fins;
    int of_handle[TAGS];        /* receive, or -1 */
    GQueue *unexpected;         /* messages + 1, in order */
    uint32_t count;
    unsigned taken_back, sync_wanted;
} Library;

static bool matches(const Receive *r, const Message *m)
{
    return (m->tag & r->mask) == r->tag;
}

static void finish(Library *l, int receive, uint32_t number)
{
    Receive *r = &l->receive[receive];
    Message *m = &l->message[number];

    g_assert_cmpint(m->receive, ==, -1);
    g_assert_true(matches(r, m));
    m->receive = receive;
    r->number = number;
    r->state = DONE;
    l->done++;
}

/* Returns false: no handle is free. */
static bool receive_next(Library *l)
{
    static const uint64_t mask[] = { ALL, ALL, ALL, 6, 0 };
    World *w = l->w;
    int i = l->receives;
    Receive *r = &l->receive[i];
    uint32_t handle = 0;

    while (handle < TAGS && l->of_handle[handle] >= 0) {
        handle++;
    }
    if (handle == TAGS) {
        return false;
    }
    r->mask = mask[g_rand_int_range(w->sim->rand, 0, ARRAY_SIZE(mask))];
    r->tag = g_rand_int_range(w->sim->rand, 0, 8) & r->mask;
    l->receives++;
    for (GList *n = l->unexpected->head; n; n = n->next) {
        uint32_t number = GPOINTER_TO_UINT(n->data) - 1;

        if (matches(r, &l->message[number])) {
            g_queue_delete_link(l->unexpected, n);
            finish(l, i, number);
            return true;
        }
    }
    r->state = POSTED;
    r->handle = handle;
    l->of_handle[handle] = i;
    entry_post(w, g_rand_boolean(w->sim->rand) ?
               with_count(add_op(handle, r->tag, r->mask), l->count) :
               add_op(handle, r->tag, r->mask), BUFFER);
    return true;
}

static void send_next(Library *l)
{
    World *w = l->w;
    GRand *rand = w->sim->rand;
    Message *m = &l->message[l->messages];

    m->peer = g_rand_int_range(rand, 0, w->peers);
    m->tag = g_rand_int_range(rand, 0, 8);
    m->rndv = g_rand_int_range(rand, 0, 3) == 0;
    m->receive = -1;
    m->len = g_rand_boolean(rand) ? g_rand_int_range(rand, 0, 200) :
             g_rand_int_range(rand, 0, BUFFER - HEADER);
    g_assert_cmpint(w->sent, ==, l->messages++);
    if (m->rndv) {
        send_rndv(w, m->peer, m->tag, m->len);
    } else {
        send_eager(w, m->peer, m->tag, m->len);
    }
}

/* A receive that the device has, or had: software's is the earlier one. */
static void unexpected(Library *l, uint32_t number)
{
    World *w = l->w;
    Message *m = &l->message[number];

    l->count++;
    m->here = true;
    for (unsigned i = 0; i < l->receives; i++) {
        Receive *r = &l->receive[i];

        if (r->state == POSTED && matches(r, m)) {
            r->state = TAKEN_BACK;
            r->number = number;
            l->taken_back++;
            op_post(w, with_count(del_op(r->handle), l->count), NULL, 0);
            return;
        }
    }
    g_queue_push_tail(l->unexpected, GUINT_TO_POINTER(number + 1));
    op_post(w, sync_op(l->count), NULL, 0);
}

static void of_wqe(Library *l, const QrnicCqe *c)
{
    World *w = l->w;
    uint8_t *p = w->b->memory + w->wqes + c->index * BUFFER;
    uint32_t number = ldl_be_p(p + 4);
    const Message *m = &l->message[number];

    g_assert_cmphex(c->opcode, ==, QRNIC_CQE_TAG_UNEXPECTED);
    g_assert_cmpint(number, <, l->messages);
    g_assert_cmpint(c->byte_len, ==, m->rndv ? HEADERS + 20 : HEADER + m->len);
    g_assert_cmpmem(p, c->byte_len, source_of(w, number), c->byte_len);
    l->sync_wanted += !!(c->tagged & SYNC);
    sim_srq_slot_free(w->srq, c->index);
    post_wqe(w);
    unexpected(l, number);
}

static void of_entry(Library *l, const QrnicCqe *c)
{
    World *w = l->w;
    int i = l->of_handle[c->index];
    Receive *r = &l->receive[i];
    uint32_t number = r->number;
    const Message *m;

    g_assert_cmpint(i, >=, 0);
    if (c->tagged & MATCH) {
        uint64_t tag;

        g_assert_cmpint(r->state, ==, POSTED);
        r->state = MATCHED;
        polled_tag(w, &tag, &number);
        g_assert_cmpint(number, <, l->messages);
        r->number = number;
        g_assert_cmphex(tag, ==, l->message[number].tag);
    }
    m = &l->message[number];
    g_assert_cmpint(r->state, ==, MATCHED);
    if (c->tagged & VALID) {
        g_assert_cmpint(c->byte_len, ==, m->len);
        g_assert_cmpmem(w->b->memory + entry_at(w, c->index), m->len,
                        m->rndv ? data_of(w, number) :
                        source_of(w, number) + HEADER, m->len);
        l->of_handle[c->index] = -1;
        finish(l, i, number);
    }
}

static void of_operation(Library *l, const QrnicCqe *c)
{
    QrnicTagOp op;

    qrnic_tag_op_unpack(&op, l->w->b->memory + l->w->ring +
                        (c->index % (1 << LOG_OPS)) * (QRNIC_WQEBB_SIZE << 1));
    g_assert_cmpint(op.index, ==, c->index);
    if (op.opcode == QRNIC_WQE_TAG_DEL) {
        int i = l->of_handle[op.handle];

        g_assert_cmpint(l->receive[i].state, ==, TAKEN_BACK);
        l->of_handle[op.handle] = -1;
        finish(l, i, l->receive[i].number);
    }
}

/* Returns how many CQEs of the list there were. */
static unsigned poll_all(Library *l)
{
    World *w = l->w;
    uint32_t before = w->cq->cq_consumer;
    QrnicCqe c;

    while (sim_poll(w->cq, &c)) {
        g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
        if (c.tagged & QRNIC_CQET_OPERATION) {
            of_operation(l, &c);
        } else if (c.tagged & ENTRY) {
            of_entry(l, &c);
        } else {
            of_wqe(l, &c);
        }
    }
    for (unsigned i = 0; i < w->peers; i++) {
        while (sim_poll(w->from[i], &c)) {
            g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
            if (c.opcode == QRNIC_CQE_RECV) {
                const uint8_t *fin = w->a->memory + fin_at(w, i, c.index);
                Message *m = &l->message[ldl_be_p(fin + 4)];

                g_assert_cmpint(fin[0], ==, FIN);
                g_assert_true(m->rndv && !m->fin && !m->here);
                m->fin = true;
                l->fins++;
                post_fin(w, i);
            }
        }
    }
    return w->cq->cq_consumer - before;
}

/*
 * Of two messages of a sender the one sent first goes to the receive posted
 * first, of those that it could go to.
 */
static void nobody_overtook(Library *l)
{
    for (unsigned a = 0; a < l->messages; a++) {
        for (unsigned b = a + 1; b < l->messages; b++) {
            const Message *first = &l->message[a], *second = &l->message[b];

            g_assert_false(first->peer == second->peer &&
                           second->receive >= 0 &&
                           (first->receive < 0 ||
                            first->receive > second->receive) &&
                           matches(&l->receive[second->receive], first));
        }
    }
}

static void random_traffic(uint32_t seed)
{
    Library *l = g_new0(Library, 1);
    World *w = l->w = world_new(seed, MOST_PEERS);
    GRand *rand = w->sim->rand;
    bool quiet;

    memset(l->of_handle, 0xff, sizeof(l->of_handle));
    l->unexpected = g_queue_new();
    if (seed % 4) {
        w->sim->loss = 20;
        w->sim->repeat = 20;
        w->sim->reorder = 30;
    }
    while (l->messages < MESSAGES || l->receives < RECEIVES) {
        unsigned what = g_rand_int_range(rand, 0, 8);

        if (what < 3 && l->messages < MESSAGES) {
            send_next(l);
        } else if (what < 6 && l->receives < RECEIVES &&
                   l->receives < l->messages + 40) {
            receive_next(l);
        } else if (l->messages == MESSAGES && l->receives > MESSAGES) {
            break;
        }
        if (what == 6) {
            sim_run(w->sim, w->sim->now +
                    g_rand_int_range(rand, 0, 30 * SIM_US));
        }
        /* The ring of operations must not overrun. */
        if (what == 7 || w->producer % 16 == 15) {
            sim_run(w->sim, w->sim->now + 2 * SIM_US);
            poll_all(l);
        }
    }
    /* Software looks often: senders do not try again forever. */
    do {
        quiet = sim_run(w->sim, w->sim->now + 100 * SIM_US);
    } while (poll_all(l) || !quiet);
    nobody_overtook(l);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_RENDEZVOUS), ==, l->fins);
    for (unsigned i = 0; i < l->messages; i++) {
        g_assert_true(l->message[i].receive >= 0 || l->message[i].here);
        g_assert_true(!l->message[i].rndv ||
                      l->message[i].fin != l->message[i].here);
    }
    g_assert_cmpint(l->done, >, MESSAGES / 2);
    g_test_message("seed %u: %u done, %u unexpected, %u taken back, %u fins, "
                   "%u asked for", seed, l->done, l->count, l->taken_back,
                   l->fins, l->sync_wanted);
    g_queue_free(l->unexpected);
    world_free(w);
    g_free(l);
}

static void test_random(void)
{
    const char *only = g_getenv("QRNIC_SEED");

    if (only) {
        random_traffic(atoi(only));
        return;
    }
    for (uint32_t seed = 1; seed <= 60; seed++) {
        random_traffic(seed);
    }
}

/* Of what a rendezvous sends, each frame is lost once. */
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
        /* The fin may come before the ACK of what asked for it. */
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

/* No entry is lost to a target, whose responders have no requester. */
static void test_dynamic_target(void)
{
    World *w = world_new(1, 1);
    const QrnicQpCtx ctx = {
        .type = QRNIC_QPT_DC_TGT, .pd = w->b->pd, .recv_cq = w->to[0]->cq,
        .srq = w->srq->number, .dynamic = { .access_key = 1, .responders = 1 },
    };
    QrnicResult r = qrnic_qp_create(w->b->engine, &ctx);

    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmpint(r.syndrome, ==, QRNIC_QP_CTX_SRQ_OFFSET);
    world_free(w);
}

static bool first_of_sender(Sim *s, unsigned from, const uint8_t *frame,
                            size_t len, void *opaque)
{
    unsigned *left = opaque;

    return from || (*left && (*left)--);
}

/*
 * A message that has found its entry waits for a page; what comes in its place
 * is a write. That is refused, and the entry is not lost.
 */
static void test_other_message(void)
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
    };
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
    /* So its handle is software's again. */
    op.flags = QRNIC_TAGF_SIGNALED;
    op_post(w, op, &sge, 1);
    sim_run(w->sim, w->sim->now + SIM_MS);
    g_assert_true(sim_poll(w->cq, &c));
    g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
    world_free(w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tags/order", test_order);
    g_test_add_func("/tags/mask", test_mask);
    g_test_add_func("/tags/packets", test_packets);
    g_test_add_func("/tags/no-tag", test_no_tag);
    g_test_add_func("/tags/rnr", test_rnr);
    g_test_add_func("/tags/sync", test_sync);
    g_test_add_func("/tags/put-by-removed", test_put_by_removed);
    g_test_add_func("/tags/operations", test_operations);
    g_test_add_func("/tags/bad-operations", test_bad_operations);
    g_test_add_func("/tags/broken", test_broken);
    g_test_add_func("/tags/cq-overrun", test_cq_overrun);
    g_test_add_func("/tags/doorbell-lost", test_doorbell_lost);
    g_test_add_func("/tags/rndv", test_rndv);
    g_test_add_func("/tags/rndv-busy", test_rndv_busy);
    g_test_add_func("/tags/rndv-early", test_rndv_early);
    g_test_add_func("/tags/incomplete", test_incomplete);
    g_test_add_func("/tags/too-long", test_too_long);
    g_test_add_func("/tags/bad-key", test_bad_key);
    g_test_add_func("/tags/bad-rkey", test_bad_rkey);
    g_test_add_func("/tags/fin-refused", test_fin_refused);
    g_test_add_func("/tags/cut-short", test_cut_short);
    g_test_add_func("/tags/reset", test_reset);
    g_test_add_func("/tags/refused", test_refused);
    g_test_add_func("/tags/all-tags", test_all_tags);
    g_test_add_func("/tags/random", test_random);
    g_test_add_func("/tags/each-loss", test_each_loss);
    g_test_add_func("/tags/dynamic-target", test_dynamic_target);
    g_test_add_func("/tags/other-message", test_other_message);
    return g_test_run();
}
