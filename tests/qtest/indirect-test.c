/*
 * qrnic qtest: indirect keys, at the bus and on the wire
 *
 * Programmer's Reference, chapter Indirect keys.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define START 0x8000000000000000ull
#define VARIANT 0x42u
#define REMOTE_VA 0x5000ull
#define REMOTE_KEY 0xabcdef12u

static QrnicIndirectSeg segment(const Rig *r, uint32_t max_pieces)
{
    return (QrnicIndirectSeg) {
        .key = rig_key_create(r, (QrnicMkeyCtx) {
            .type = QRNIC_MKEY_INDIRECT, .max_pieces = max_pieces,
        }) | VARIANT,
        .access = ALL_RIGHTS, .start = START, .repeat = 1,
    };
}

static QrnicPiece piece(const Rig *r, uint64_t offset, uint64_t length)
{
    return (QrnicPiece) {
        .key = r->mr.key, .address = RIG_MR_START + offset, .length = length,
    };
}

static Wqe wqe_indirect(const QrnicIndirectSeg *s)
{
    Wqe w = wqe_begin(QRNIC_WQE_REG_INDIRECT, QRNIC_WQEF_SIGNALED);

    qrnic_indirect_seg_pack(w.bytes + w.segments * QRNIC_SEGMENT_SIZE, s);
    w.segments += QRNIC_INDIRECT_SEG_BYTES / QRNIC_SEGMENT_SIZE;
    return w;
}

static void post_inline(Rig *r, const QrnicIndirectSeg *s,
                        const QrnicPiece *piece, unsigned count)
{
    uint8_t list[QRNIC_MAX_INLINE];
    Wqe w = wqe_indirect(s);

    for (unsigned i = 0; i < count; i++) {
        qrnic_piece_pack(list + i * QRNIC_PIECE_BYTES, &piece[i]);
    }
    wqe_inline(&w, list, count * QRNIC_PIECE_BYTES);
    sq_post(r->d, &r->qp, &w);
}

static void registered(Rig *r, const QrnicIndirectSeg *s,
                       const QrnicPiece *piece, unsigned count)
{
    post_inline(r, s, piece, count);
    rig_sent(r, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_INDIRECT, QRNIC_SYN_NONE);
}

static void post_write(Rig *r, uint64_t address, uint32_t length, uint32_t key)
{
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);

    wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
    wqe_data(&w, address, length, key);
    sq_post(r->d, &r->qp, &w);
}

static void peer_request(Rig *r, uint8_t opcode, uint32_t psn, uint64_t va,
                         uint32_t key, uint32_t length, const void *payload)
{
    PeerPacket p = peer_packet(&r->qp, opcode, psn);

    p.ack_request = true;
    p.va = va;
    p.rkey = key;
    p.dma_length = length;
    p.payload = payload;
    p.length = payload ? length : 0;
    peer_send(r->d, &p);
}

static void expect_answer(Rig *r, uint32_t psn, uint8_t answer)
{
    PeerPacket p = peer_expect(r->d, RC_ACK, psn);

    if (answer) {
        g_assert_cmphex(p.syndrome, ==, answer);
    } else {
        g_assert_cmphex(p.syndrome & 0x60, ==, AETH_ACK);
    }
}

/*
 * Tests that a column of a matrix is gathered into a packet, and that a packet
 * is scattered to a column.
 */
static void test_column(void)
{
    Rig r;
    QrnicIndirectSeg s;
    QrnicPiece p;
    uint8_t data[0x1000], got[0x1000];
    uint64_t reads;
    PeerPacket out;

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, data, sizeof(data), 1);
    s = segment(&r, 1);
    s.repeat = 16;
    p = piece(&r, 24, 8);
    p.stride = 256;
    registered(&r, &s, &p, 1);
    wire_silent(r.d);
    reads = counter(r.d, QRNIC_COUNTER_DMA_READ_BYTES);
    post_write(&r, START, 8 * 16, s.key);
    out = peer_expect(r.d, RC_WRITE_ONLY, SQ_PSN);
    g_assert_cmpuint(out.length, ==, 8 * 16);
    for (unsigned i = 0; i < 16; i++) {
        g_assert_cmpmem(out.payload + 8 * i, 8, data + 256 * i + 24, 8);
    }
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_PIECES), ==, 16);
    /*
     * The device reads no bytes between the pieces: the other reads are WQE and
     * doorbell record.
     */
    reads = counter(r.d, QRNIC_COUNTER_DMA_READ_BYTES) - reads;
    g_assert_cmpuint(reads, <, 16 * 256);
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK | 31, 1);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE, QRNIC_SYN_NONE);

    peer_request(&r, RC_WRITE_ONLY, RQ_PSN, START + 4, s.key, 16,
                 "0123456789abcdef");
    expect_answer(&r, RQ_PSN, 0);
    memcpy(data + 24 + 4, "0123", 4);
    memcpy(data + 256 + 24, "456789ab", 8);
    memcpy(data + 512 + 24, "cdef", 4);
    rig_read(&r, 0, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    rig_stop(&r);
}

/*
 * Tests a list that is in memory, in two data segments. Software may change the
 * list after the completion, because the device has copied it.
 */
static void test_list_in_memory(void)
{
    Rig r;
    QrnicIndirectSeg s;
    QrnicPiece p[20];
    uint8_t data[0x2000], list[sizeof(p)];
    PeerPacket out;
    Wqe w;

    rig_start(&r, "", NULL);
    s = segment(&r, 20);
    for (unsigned i = 0; i < 20; i++) {
        p[i] = piece(&r, 100 * (19 - i), 10);
        qrnic_piece_pack(list + i * QRNIC_PIECE_BYTES, &p[i]);
    }
    qtest_memwrite(r.d->qts, r.mr.memory + 0x4000, list, 100);
    qtest_memwrite(r.d->qts, r.mr.memory + 0x8000, list + 100,
                   sizeof(list) - 100);
    w = wqe_indirect(&s);
    wqe_data(&w, RIG_MR_START + 0x4000, 100, r.mr.key);
    wqe_data(&w, RIG_MR_START + 0x8000, sizeof(list) - 100, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_INDIRECT, QRNIC_SYN_NONE);
    qtest_memset(r.d->qts, r.mr.memory + 0x4000, 0xff, 100);
    rig_fill(&r, 0, data, sizeof(data), 2);
    post_write(&r, START, 200, s.key);
    out = peer_expect(r.d, RC_WRITE_ONLY, SQ_PSN);
    for (unsigned i = 0; i < 20; i++) {
        g_assert_cmpmem(out.payload + 10 * i, 10, data + 100 * (19 - i), 10);
    }
    rig_stop(&r);
}

/*
 * Tests a peer that reads through two keys, and then invalidates the upper one.
 */
static void test_send_inv(void)
{
    Rig r;
    QrnicIndirectSeg s[2];
    QrnicPiece p[2];
    uint8_t data[256];
    PeerPacket out;
    QrnicCqe cqe;

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, data, sizeof(data), 3);
    rq_post(r.d, &r.qp, &(QrnicDataSeg) { RIG_MR_START, 100, r.mr.key }, 1);
    s[0] = segment(&r, 2);
    p[0] = piece(&r, 100, 3);
    p[1] = piece(&r, 50, 2);
    registered(&r, &s[0], p, 2);
    s[1] = segment(&r, 1);
    s[1].repeat = 3;
    p[0] = (QrnicPiece) { .key = s[0].key, .address = START, .length = 5 };
    registered(&r, &s[1], p, 1);
    peer_request(&r, RC_READ_REQUEST, RQ_PSN, START + 4, s[1].key, 6, NULL);
    out = peer_expect(r.d, RC_READ_ONLY, RQ_PSN);
    g_assert_cmpuint(out.length, ==, 6);
    g_assert_cmpmem(out.payload, 1, data + 51, 1);
    g_assert_cmpmem(out.payload + 1, 3, data + 100, 3);
    g_assert_cmpmem(out.payload + 4, 2, data + 50, 2);

    out = peer_packet(&r.qp, RC_SEND_ONLY_INV, RQ_PSN + 1);
    out.ack_request = true;
    out.imm = s[1].key;
    peer_send(r.d, &out);
    expect_answer(&r, RQ_PSN + 1, 0);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmphex(cqe.flags, ==, QRNIC_CQEF_INV);
    g_assert_cmphex(cqe.imm, ==, s[1].key);
    peer_request(&r, RC_WRITE_ONLY, RQ_PSN + 2, START, s[1].key, 1, "x");
    expect_answer(&r, RQ_PSN + 2, AETH_NAK_REMOTE_ACCESS);
    rig_stop(&r);
}

/* Posts an invalid list or segment. Asserts the completion and the report. */
static void refused(void (*spoil)(Rig *r, QrnicIndirectSeg *s, Wqe *w),
                    unsigned status, unsigned syndrome,
                    enum qrnic_counter report)
{
    Rig r;
    QrnicIndirectSeg s;
    QrnicPiece p;
    uint8_t list[QRNIC_PIECE_BYTES];
    Wqe w;

    rig_start(&r, "", NULL);
    s = segment(&r, 1);
    p = piece(&r, 0, 10);
    qrnic_piece_pack(list, &p);
    w = wqe_indirect(&s);
    wqe_inline(&w, list, sizeof(list));
    spoil(&r, &s, &w);
    sq_post(r.d, &r.qp, &w);
    rig_sent(&r, status, 0, syndrome);
    g_assert_cmpuint(counter(r.d, report), ==, 1);
    rig_stop(&r);
}

static uint8_t *segment_bytes(Wqe *w)
{
    return w->bytes + QRNIC_SEGMENT_SIZE;
}

static uint8_t *piece_bytes(Wqe *w)
{
    return w->bytes + QRNIC_SEGMENT_SIZE + QRNIC_INDIRECT_SEG_BYTES;
}

static void spoil_segment_reserved(Rig *r, QrnicIndirectSeg *s, Wqe *w)
{
    segment_bytes(w)[QRNIC_INDIRECT_SEG_BYTES - 1] = 1;
}

static void spoil_piece_reserved(Rig *r, QrnicIndirectSeg *s, Wqe *w)
{
    piece_bytes(w)[4] = 1;
}

static void spoil_rest(Rig *r, QrnicIndirectSeg *s, Wqe *w)
{
    w->ctrl.inline_length--;
}

static void spoil_imm(Rig *r, QrnicIndirectSeg *s, Wqe *w)
{
    w->ctrl.imm = 1;
}

static void spoil_no_segment(Rig *r, QrnicIndirectSeg *s, Wqe *w)
{
    *w = wqe_begin(QRNIC_WQE_REG_INDIRECT, QRNIC_WQEF_SIGNALED);
}

/* Moves the list outside of the range of its key. */
static void spoil_list_key(Rig *r, QrnicIndirectSeg *s, Wqe *w)
{
    *w = wqe_indirect(s);
    wqe_data(w, RIG_MR_START + RIG_MR_LENGTH - 16, QRNIC_PIECE_BYTES,
             r->mr.key);
}

static void spoil_type(Rig *r, QrnicIndirectSeg *s, Wqe *w)
{
    s->key = r->mr.key;
    qrnic_indirect_seg_pack(segment_bytes(w), s);
}

static void test_refused(void)
{
    refused(spoil_segment_reserved, QRNIC_WC_LOC_QP_OP_ERR,
            QRNIC_SYN_WQE_RESERVED, QRNIC_COUNTER_GE_WQE_MALFORMED);
    refused(spoil_imm, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_RESERVED,
            QRNIC_COUNTER_GE_WQE_MALFORMED);
    refused(spoil_no_segment, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_SIZE,
            QRNIC_COUNTER_GE_WQE_MALFORMED);
    refused(spoil_piece_reserved, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_PIECES,
            QRNIC_COUNTER_GE_KEY_REFUSED);
    refused(spoil_rest, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_PIECES,
            QRNIC_COUNTER_GE_KEY_REFUSED);
    refused(spoil_type, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_KEY_TYPE,
            QRNIC_COUNTER_GE_KEY_REFUSED);
    refused(spoil_list_key, QRNIC_WC_MW_BIND_ERR, QRNIC_SYN_KEY_RANGE,
            QRNIC_COUNTER_GE_KEY_REFUSED);
}

/*
 * Tests an indirect key one of whose regions was destroyed. An access to the
 * key is rejected, and the report names the key. Another queue pair with
 * another key continues.
 */
static void test_dead_child(void)
{
    Rig r;
    Qp other;
    QrnicIndirectSeg s;
    QrnicPiece p[2];
    QrnicMkeyCtx region = {
        .type = QRNIC_MKEY_MR, .variant = 0x11,
        .access = QRNIC_ACCESS_LOCAL_WRITE, .start = RIG_MR_START,
        .length = RIG_MR_LENGTH,
    };
    uint8_t got[8];

    rig_start(&r, "", NULL);
    qp_create(r.d, &other, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq,
              4, 2, 0);
    qp_connect(r.d, &other, NULL);
    region.table = contiguous(r.mr.memory);
    s = segment(&r, 2);
    p[0] = piece(&r, 0, 4);
    p[1] = piece(&r, 100, 4);
    p[1].key = rig_key_create(&r, region);
    registered(&r, &s, p, 2);
    command_ok(r.d, QRNIC_CMD_DESTROY_MKEY, p[1].key >> 8, NULL, 0, NULL, 0);
    peer_request(&r, RC_WRITE_ONLY, RQ_PSN, START, s.key, 4, "fine");
    expect_answer(&r, RQ_PSN, 0);
    peer_request(&r, RC_WRITE_ONLY, RQ_PSN + 1, START + 2, s.key, 4, "dead");
    expect_answer(&r, RQ_PSN + 1, AETH_NAK_REMOTE_ACCESS);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GE_PIECE_REFUSED), ==, 1);
    rig_read(&r, 100, got, 4);
    g_assert_cmpint(memcmp(got, "ad", 2), !=, 0);
    /* The index belongs to another key now, with another variant. */
    region.variant++;
    g_assert_cmpuint(rig_key_create(&r, region) >> 8, !=, 0);
    {
        PeerPacket w = peer_packet(&other, RC_WRITE_ONLY, RQ_PSN);

        w.ack_request = true;
        w.va = START;
        w.rkey = s.key;
        w.dma_length = w.length = 4;
        w.payload = (const uint8_t *)"live";
        peer_send(r.d, &w);
        expect_answer(&r, RQ_PSN, 0);
    }
    rig_read(&r, 0, got, 4);
    g_assert_cmpmem(got, 4, "live", 4);
    rig_stop(&r);
}

static void test_off(void)
{
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];
    QrnicMkeyCtx ctx = { .type = QRNIC_MKEY_INDIRECT, .max_pieces = 1 };
    QrnicIndirectSeg s = { .repeat = 1 };
    Wqe w = wqe_indirect(&s);
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "cap-indirect-mkey=off", NULL);
    ctx.pd = r.pd;
    qrnic_mkey_ctx_pack(raw, &ctx);
    command_fails(r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_NOT_SUPPORTED, QRNIC_MKEY_CTX_TYPE_OFFSET);
    sq_post(r.d, &r.qp, &w);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.syndrome, ==, QRNIC_SYN_WQE_OPCODE);
    rig_stop(&r);
}

/*
 * With paging on demand, the list is absent first, and then the memory of a
 * piece. Each page fault names the key and the address of the absent page.
 */

#define PAGE 4096u
#define DEMAND_START 0x7f0000000000ull
#define FAULT_VECTOR 2

typedef struct Demand {
    Rig r;
    Eq eq;
    uint64_t list, page;        /* page: a page that software has */
    uint32_t key;
} Demand;

static void demand_start(Demand *x)
{
    rig_start(&x->r, "", NULL);
    eq_create(x->r.d, &x->eq, QRNIC_EQ_PAGE_FAULT, FAULT_VECTOR, 4);
    eq_arm(x->r.d, &x->eq);
    x->list = memory_alloc(x->r.d, 16, PAGE);
    x->page = memory_alloc(x->r.d, PAGE, PAGE);
    x->key = rig_key_create(&x->r, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_ON_DEMAND,
        .access = QRNIC_ACCESS_LOCAL_WRITE, .variant = 9,
        .start = DEMAND_START, .length = 2 * PAGE,
        .table = { .root = x->list, .levels = 1, .page_shift = 12 },
    });
}

/* Pages in the second page, and resumes the waiting work. */
static void demand_serve(Demand *x, uint64_t address, uint64_t length,
                         uint32_t flags)
{
    uint8_t raw[QRNIC_PAGE_FAULT_BYTES];
    QrnicPageFault f;
    QrnicEqe e;

    interrupt_wait(x->r.d, FAULT_VECTOR);
    eq_wait(x->r.d, &x->eq, &e);
    eq_arm(x->r.d, &x->eq);
    command_ok(x->r.d, QRNIC_CMD_QUERY_PAGE_FAULT, e.object, NULL, 0, raw,
               sizeof(raw));
    g_assert_true(qrnic_page_fault_unpack(&f, raw));
    g_assert_cmphex(f.key, ==, x->key >> 8);
    g_assert_cmphex(f.address, ==, address);
    g_assert_cmpuint(f.length, ==, length);
    g_assert_cmphex(f.flags, ==, flags);
    qtest_writeq(x->r.d->qts, x->list + 8,
                 x->page | QRNIC_PAGE_PRESENT | QRNIC_PAGE_WRITABLE);
    fault_answer(x->r.d, QRNIC_CMD_RESUME_PAGE_FAULT, e.object, e.data);
}

static void demand_take_away(Demand *x)
{
    uint8_t raw[QRNIC_PAGE_RANGE_BYTES];

    qtest_writeq(x->r.d->qts, x->list + 8, 0);
    qrnic_page_range_pack(raw, &(QrnicPageRange) {
        DEMAND_START + PAGE, PAGE
    });
    command_ok(x->r.d, QRNIC_CMD_INVALIDATE_PAGES, x->key >> 8, raw,
               sizeof(raw), NULL, 0);
}

static void test_on_demand(void)
{
    const uint64_t there = DEMAND_START + PAGE;
    uint8_t list[2 * QRNIC_PIECE_BYTES], got[8];
    QrnicIndirectSeg s;
    QrnicPiece p[2];
    PeerPacket out;
    Demand x;
    Wqe w;

    demand_start(&x);
    s = segment(&x.r, 2);
    p[0] = piece(&x.r, 0, 4);
    p[1] = (QrnicPiece) { .key = x.key, .address = there + 0x800, .length = 4 };
    for (unsigned i = 0; i < 2; i++) {
        qrnic_piece_pack(list + i * QRNIC_PIECE_BYTES, &p[i]);
    }
    qtest_memwrite(x.r.d->qts, x.page, list, sizeof(list));
    qtest_memwrite(x.r.d->qts, x.page + 0x800, "page", 4);
    qtest_memwrite(x.r.d->qts, x.r.mr.memory, "head", 4);
    w = wqe_indirect(&s);
    wqe_data(&w, there, sizeof(list), x.key);
    sq_write(x.r.d, &x.r.qp, &w);
    post_write(&x.r, START, 8, s.key);
    demand_serve(&x, there, sizeof(list), 0);
    rig_sent(&x.r, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_INDIRECT, QRNIC_SYN_NONE);
    out = peer_expect(x.r.d, RC_WRITE_ONLY, SQ_PSN);
    g_assert_cmpmem(out.payload, out.length, "headpage", 8);
    peer_ack(x.r.d, &x.r.qp, SQ_PSN, AETH_ACK | 31, 1);
    rig_sent(&x.r, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE, QRNIC_SYN_NONE);

    demand_take_away(&x);
    post_write(&x.r, START + 2, 6, s.key);
    demand_serve(&x, there + 0x800, 4, 0);
    out = peer_expect(x.r.d, RC_WRITE_ONLY, SQ_PSN + 1);
    g_assert_cmpmem(out.payload, out.length, "adpage", 6);
    peer_ack(x.r.d, &x.r.qp, SQ_PSN + 1, AETH_ACK | 31, 2);
    rig_sent(&x.r, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE, QRNIC_SYN_NONE);

    demand_take_away(&x);
    peer_request(&x.r, RC_WRITE_ONLY, RQ_PSN, START + 3, s.key, 4, "Hall");
    out = peer_expect(x.r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(out.syndrome & 0x60, ==, 0x20);     /* RNR NAK */
    demand_serve(&x, there + 0x800, 4, QRNIC_PAGE_FAULT_WRITE);
    peer_request(&x.r, RC_WRITE_ONLY, RQ_PSN, START + 3, s.key, 4, "Hall");
    expect_answer(&x.r, RQ_PSN, 0);
    qtest_memread(x.r.d->qts, x.page + 0x800, got, 4);
    g_assert_cmpmem(got, 4, "alle", 4);
    rig_stop(&x.r);
}

void add_indirect_tests(void)
{
    qtest_add_func("qrnic/indirect/column", test_column);
    qtest_add_func("qrnic/indirect/list-in-memory", test_list_in_memory);
    qtest_add_func("qrnic/indirect/send-inv", test_send_inv);
    qtest_add_func("qrnic/indirect/refused", test_refused);
    qtest_add_func("qrnic/indirect/dead-child", test_dead_child);
    qtest_add_func("qrnic/indirect/off", test_off);
    qtest_add_func("qrnic/indirect/on-demand", test_on_demand);
}
