/*
 * An SRQ with a tag list, and its peers; see tags-world.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "tags-world.h"

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

QrnicTagListCtx list_ctx(World *w)
{
    return (QrnicTagListCtx) {
        .cq = w->cq->cq, .max_tags = w->max_tags, .log_size = LOG_OPS,
        .log_stride = 1, .record = w->record, .ring.root = w->ring,
    };
}

void post_wqe(World *w)
{
    unsigned slot = w->srq->head;
    SimSge sge = { w->wqes + slot * BUFFER, BUFFER, w->wqe_key };

    sim_post_srq(w->srq, &sge, 1);
}

uint64_t fin_at(const World *w, unsigned i, uint32_t index)
{
    return w->fins + (i * FIN_WQES + index % FIN_WQES) * HEADERS;
}

void post_fin(World *w, unsigned i)
{
    SimSge sge = {
        fin_at(w, i, w->from[i]->rq_producer), HEADERS, w->fin_key
    };

    sim_post_recv(w->from[i], &sge, 1);
}

void peer_connect(World *w, unsigned i)
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

static World *world_make(uint32_t seed, unsigned peers, const SimOptions *o,
                         uint32_t max_tags)
{
    World *w = g_new0(World, 1);
    QrnicTagListCtx ctx;

    w->sim = sim_new(seed, o);
    w->a = &w->sim->node[0];
    w->b = &w->sim->node[o && o->loopback ? 0 : 1];
    w->max_tags = max_tags;
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

World *world_bare(uint32_t seed, unsigned peers, const SimOptions *o)
{
    return world_make(seed, peers, o, TAGS);
}

static World *world_ready(World *w)
{
    for (unsigned i = 0; i < w->peers; i++) {
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

World *world_of(uint32_t seed, unsigned peers, const SimOptions *o)
{
    return world_ready(world_bare(seed, peers, o));
}

World *world_new(uint32_t seed, unsigned peers)
{
    return world_of(seed, peers, NULL);
}

World *world_local(uint32_t seed, uint32_t max_tags)
{
    SimOptions o = { .loopback = true };

    return world_ready(world_make(seed, 1, &o, max_tags));
}

void world_free(World *w)
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

void settle(World *w)
{
    g_assert_true(sim_run(w->sim, INT64_MAX));
}

uint64_t counted(World *w, enum qrnic_counter c)
{
    return sim_counter(w->b, c);
}

/* Software */

void op_write(World *w, const QrnicTagOp *op, const SimSge *sge,
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

void list_ring(World *w)
{
    sim_ring(w->b, 0, QRNIC_DB_SRQ, w->srq->number, 0);
}

uint32_t op_post(World *w, QrnicTagOp op, const SimSge *sge,
                 unsigned num_sge)
{
    op.index = w->producer;
    op_write(w, &op, sge, num_sge);
    list_ring(w);
    return op.index;
}

QrnicTagOp add_op(uint32_t handle, uint64_t tag, uint64_t mask)
{
    return (QrnicTagOp) {
        .opcode = QRNIC_WQE_TAG_ADD, .data_segments = 2, .handle = handle,
        .tag = tag, .mask = mask,
    };
}

QrnicTagOp with_count(QrnicTagOp op, uint32_t unexpected)
{
    op.flags |= QRNIC_TAGF_SYNC;
    op.unexpected = unexpected;
    return op;
}

uint64_t entry_at(const World *w, uint32_t handle)
{
    return w->entries + handle * BUFFER;
}

void entry_post(World *w, QrnicTagOp op, uint32_t len)
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

void add(World *w, uint32_t handle, uint64_t tag, uint64_t mask)
{
    entry_post(w, add_op(handle, tag, mask), BUFFER);
}

QrnicTagOp del_op(uint32_t handle)
{
    return (QrnicTagOp) {
        .opcode = QRNIC_WQE_TAG_DEL, .handle = handle,
        .flags = QRNIC_TAGF_SIGNALED,
    };
}

QrnicTagOp sync_op(uint32_t unexpected)
{
    return (QrnicTagOp) {
        .opcode = QRNIC_WQE_TAG_SYNC, .unexpected = unexpected,
        .flags = QRNIC_TAGF_SIGNALED | QRNIC_TAGF_SYNC,
    };
}

uint8_t *source_of(const World *w, uint32_t number)
{
    return w->a->memory + w->source + number % MESSAGES * BUFFER;
}

uint8_t *data_of(const World *w, uint32_t number)
{
    return w->a->memory + w->data + number % MESSAGES * BUFFER;
}

uint32_t send_raw(World *w, unsigned i, uint32_t len, uint8_t flags)
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

/* Sends a message. len: bytes behind the header. */
static uint32_t send_tagged(World *w, unsigned i, uint8_t opcode, uint64_t tag,
                            uint32_t len)
{
    header_put(w, opcode, tag);
    return send_raw(w, i, HEADER + len, 0);
}

uint32_t send_eager(World *w, unsigned i, uint64_t tag, uint32_t len)
{
    return send_tagged(w, i, EAGER, tag, len);
}

void rndv_put(World *w, uint64_t tag, uint32_t key, uint32_t len)
{
    uint8_t *p = source_of(w, w->sent) + HEADER;

    header_put(w, RNDV, tag);
    stq_be_p(p, w->data + w->sent % MESSAGES * BUFFER);
    stl_be_p(p + 8, key);
    stl_be_p(p + 12, len);
}

uint32_t send_rndv(World *w, unsigned i, uint64_t tag, uint32_t len)
{
    rndv_put(w, tag, w->data_key, len);
    return send_raw(w, i, HEADERS + 20, 0);
}

/* Expectations */

QrnicCqe next_cqe(World *w)
{
    QrnicCqe c;

    g_assert_true(sim_poll(w->cq, &c));
    g_assert_cmpint(c.srqn, ==, w->srq->number);
    return c;
}

void expect_nothing(World *w)
{
    expect_no_cqe(w->cq);
}

void expect_op(World *w, uint8_t opcode, uint8_t status,
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

void polled_tag(World *w, uint64_t *tag, uint32_t *number)
{
    uint32_t slot = (w->cq->cq_consumer - 1) & ((1u << w->cq->cq_log) - 1);
    QrnicCqeTag t;

    g_assert_true(qrnic_cqe_tag_unpack(&t, w->b->memory + w->cq->cq_ring +
                                           slot * QRNIC_CQE_SIZE));
    *tag = t.tag;
    *number = t.app_ctx;
}

QrnicCqe expect_entry(World *w, uint32_t handle, uint8_t tagged,
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

void expect_match(World *w, uint32_t handle, uint8_t tagged,
                  uint8_t status, uint32_t len, uint32_t number)
{
    uint64_t tag;
    uint32_t told;

    expect_entry(w, handle, MATCH | tagged, status, len);
    polled_tag(w, &tag, &told);
    g_assert_cmphex(tag, ==, ldq_be_p(source_of(w, number) + 8));
    g_assert_cmpint(told, ==, number);
}

void expect_eager_data(World *w, uint32_t handle, uint32_t number,
                       uint32_t len)
{
    g_assert_cmpmem(w->b->memory + entry_at(w, handle), len,
                    source_of(w, number) + HEADER, len);
}

void expect_eager(World *w, uint32_t handle, uint32_t number,
                  uint32_t len)
{
    expect_match(w, handle, VALID, QRNIC_WC_SUCCESS, len, number);
    expect_eager_data(w, handle, number, len);
}

void expect_rndv(World *w, uint32_t handle, uint32_t number,
                 uint32_t len)
{
    expect_match(w, handle, 0, QRNIC_WC_SUCCESS, len, number);
    expect_entry(w, handle, VALID, QRNIC_WC_SUCCESS, len);
    g_assert_cmpmem(w->b->memory + entry_at(w, handle), len,
                    data_of(w, number), len);
}

void expect_sent(World *w, unsigned i)
{
    expect_cqe(w->from[i], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
}

void expect_fin(World *w, unsigned i, uint32_t number)
{
    QrnicCqe c = expect_cqe(w->from[i], QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    uint8_t fin[HEADERS];

    memcpy(fin, source_of(w, number), HEADERS);
    fin[0] = FIN;
    g_assert_cmpint(c.byte_len, ==, HEADERS);
    g_assert_cmpmem(w->a->memory + fin_at(w, i, c.index), HEADERS, fin,
                    HEADERS);
}

void expect_wqe(World *w, uint8_t opcode, uint8_t tagged,
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

void expect_unexpected(World *w, uint8_t tagged, uint32_t number,
                       uint32_t len)
{
    expect_wqe(w, QRNIC_CQE_TAG_UNEXPECTED, tagged, number, len);
}
