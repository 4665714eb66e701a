/*
 * qrnic qtest: streaming receive, at the bus and on the wire
 *
 * Programmer's Reference, chapter Streaming receive.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define SLOTS_LOG 2
#define BUFFER 4096u
#define FAULT_VECTOR 2
#define QKEY 5

static const QrnicStreamAttr attr = {
    .max_message = 2000, .max_messages = 20, .log_align = 6,
};

/* A streaming SRQ or RQ, and the number of its WQEs */
typedef struct Stream {
    Rig r;
    bool srq;
    uint32_t number, producer;
    uint64_t ring, record;
    Qp qp;
    Cq *cq;
} Stream;

static QrnicSrqCtx srq_ctx(Rig *r)
{
    return (QrnicSrqCtx) {
        .pd = r->pd, .db_page = r->page, .log_size = SLOTS_LOG, .stream = attr,
        .ring = contiguous(memory_alloc(r->d, QRNIC_WQEBB_SIZE << SLOTS_LOG,
                                        4096)),
        .record = memory_alloc(r->d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE),
    };
}

static QrnicQpCtx qp_ctx(Rig *r, unsigned type)
{
    return (QrnicQpCtx) {
        .type = type, .pd = r->pd, .db_page = r->page,
        .send_cq = r->send_cq.number, .recv_cq = r->recv_cq.number,
        .sq_log_size = 4, .rq_log_size = SLOTS_LOG, .stream = attr,
        .sq = contiguous(memory_alloc(r->d, QRNIC_WQEBB_SIZE << 4, 4096)),
        .rq = contiguous(memory_alloc(r->d, QRNIC_WQEBB_SIZE << SLOTS_LOG,
                                      4096)),
        .sq_record = memory_alloc(r->d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE),
        .rq_record = memory_alloc(r->d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE),
    };
}

static void srq_create(Stream *x, const QrnicSrqCtx *ctx)
{
    uint8_t raw[QRNIC_SRQ_CTX_BYTES];

    qrnic_srq_ctx_pack(raw, ctx);
    x->number = command_ok(x->r.d, QRNIC_CMD_CREATE_SRQ, 0, raw, sizeof(raw),
                           NULL, 0);
    x->srq = true;
    x->ring = ctx->ring.root;
    x->record = ctx->record;
}

static void rq_create(Stream *x, unsigned type)
{
    QrnicQpCtx ctx = qp_ctx(&x->r, type);
    uint8_t raw[QRNIC_QP_CTX_BYTES];

    qrnic_qp_ctx_pack(raw, &ctx);
    x->number = command_ok(x->r.d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw),
                           NULL, 0);
    x->qp = (Qp) { .number = x->number, .page = x->r.page };
    x->ring = ctx.rq.root;
    x->record = ctx.rq_record;
}

/* Makes an RC queue pair with a streaming RQ or SRQ. */
static void start(Stream *x, bool srq)
{
    QrnicSrqCtx ctx;

    *x = (Stream) { 0 };
    rig_start(&x->r, "", NULL);
    x->cq = &x->r.recv_cq;
    if (srq) {
        ctx = srq_ctx(&x->r);
        srq_create(x, &ctx);
        qp_create_srq(x->r.d, &x->qp, QRNIC_QPT_RC, x->r.pd, x->r.page,
                      &x->r.send_cq, &x->r.recv_cq, 4, x->number);
    } else {
        rq_create(x, QRNIC_QPT_RC);
    }
    qp_connect(x->r.d, &x->qp, NULL);
}

/* Posts BUFFER bytes of memory as the next slot. */
static void post_to(Stream *x, uint64_t address, uint32_t key)
{
    uint8_t raw[QRNIC_WQEBB_SIZE] = { 0 };
    uint32_t slot = x->producer;
    QrnicRecvCtrl ctrl = {
        .data_segments = 1, .index = slot, .next = x->srq ? slot + 1 : 0,
    };
    QrnicDataSeg seg = { .address = address, .length = BUFFER, .lkey = key };

    qrnic_recv_ctrl_pack(raw, &ctrl);
    qrnic_data_seg_pack(raw + QRNIC_SEGMENT_SIZE, &seg);
    qtest_memwrite(x->r.d->qts, x->ring + slot * sizeof(raw), raw, sizeof(raw));
    qtest_writel(x->r.d->qts, x->record, ++x->producer);
}

static void post_buffer(Stream *x)
{
    post_to(x, x->r.mr.start + x->producer * BUFFER, x->r.mr.key);
}

static PeerPacket request(const Stream *x, unsigned opcode, uint32_t n,
                          const uint8_t *data, size_t length)
{
    PeerPacket p = peer_packet(&x->qp, opcode, RQ_PSN + n);

    p.payload = data;
    p.length = length;
    p.ack_request = true;
    return p;
}

static void expect_ack(Stream *x, uint32_t n)
{
    g_assert_cmphex(peer_expect(x->r.d, RC_ACK, RQ_PSN + n).syndrome, ==,
                    AETH_ACK | 31);
}

static void fill(uint8_t *data, size_t length, uint8_t seed)
{
    for (size_t i = 0; i < length; i++) {
        data[i] = seed + i * 7;
    }
}

static QrnicCqe completion(Stream *x, unsigned status)
{
    QrnicCqe c;

    cq_wait(x->r.d, x->cq, &c);
    g_assert_cmpstr(qrnic_wc_status_name(c.status), ==,
                    qrnic_wc_status_name(status));
    g_assert_cmpuint(c.srqn, ==, x->srq ? x->number : 0);
    return c;
}

/* Asserts a message. messages: of the buffer if it is used up, else 0. */
static void received(Stream *x, uint32_t index, uint32_t offset,
                     const uint8_t *data, uint32_t length, unsigned messages)
{
    uint8_t got[BUFFER];
    QrnicCqe c = completion(x, QRNIC_WC_SUCCESS);

    g_assert_cmpuint(c.index, ==, index);
    g_assert_cmpuint(c.offset, ==, offset);
    g_assert_cmpuint(c.byte_len, ==, length);
    g_assert_cmphex(c.stream, ==, messages ? QRNIC_CQES_USED : 0);
    g_assert_cmpuint(c.messages, ==, messages);
    rig_read(&x->r, index * BUFFER + offset, got, length);
    g_assert_cmpmem(got, length, data, length);
}

/*
 * Asserts that two messages use up a buffer, and that a third message begins in
 * the next buffer.
 */
static void receive(bool srq)
{
    uint8_t data[3][1500];
    PeerPacket p;
    Stream x;

    start(&x, srq);
    post_buffer(&x);
    post_buffer(&x);
    for (unsigned i = 0; i < 3; i++) {
        fill(data[i], sizeof(data[i]), i);
    }
    p = request(&x, RC_SEND_ONLY, 0, data[0], 1000);
    peer_send(x.r.d, &p);
    expect_ack(&x, 0);
    received(&x, 0, 0, data[0], 1000, 0);
    p = request(&x, RC_SEND_FIRST, 1, data[1], 1024);
    p.ack_request = false;
    peer_send(x.r.d, &p);
    p = request(&x, RC_SEND_LAST, 2, data[1] + 1024, 1500 - 1024);
    peer_send(x.r.d, &p);
    expect_ack(&x, 2);
    received(&x, 0, 1024, data[1], 1500, 2);
    /* A duplicate is not placed, because the buffer has its data already. */
    peer_send(x.r.d, &p);
    expect_ack(&x, 2);
    p = request(&x, RC_SEND_ONLY, 3, data[2], 10);
    peer_send(x.r.d, &p);
    expect_ack(&x, 3);
    received(&x, 1, 0, data[2], 10, 0);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_STREAM_MESSAGES), ==, 3);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_STREAM_BUFFERS), ==, 1);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_STREAM_BYTES), ==, 2510);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_STREAM_UNUSED_BYTES), ==,
                     BUFFER - 2500);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_RECV_WQES), ==, 2);
    rig_stop(&x.r);
}

static void test_receive(void)
{
    receive(false);
}

static void test_receive_srq(void)
{
    receive(true);
}

/* Tests that each datagram has its GRH in the buffer. */
static void test_datagram(void)
{
    uint8_t data[100], got[40 + sizeof(data)];
    Stream x = { 0 };
    PeerPacket p;

    rig_start(&x.r, "", NULL);
    x.cq = &x.r.recv_cq;
    rq_create(&x, QRNIC_QPT_UD);
    qp_start_datagram(x.r.d, &x.qp, QKEY);
    post_buffer(&x);
    fill(data, sizeof(data), 3);
    for (unsigned i = 0; i < 3; i++) {
        QrnicCqe c;

        p = peer_packet(&x.qp, UD_SEND_ONLY, i);
        p.qkey = QKEY;
        p.src_qpn = 9;
        p.payload = data;
        p.length = sizeof(data);
        peer_send(x.r.d, &p);
        c = completion(&x, QRNIC_WC_SUCCESS);
        g_assert_cmpuint(c.offset, ==, i * 192);
        g_assert_cmpuint(c.byte_len, ==, sizeof(got));
        g_assert_cmphex(c.stream, ==, 0);
        rig_read(&x.r, c.offset, got, sizeof(got));
        g_assert_cmpmem(got + 40, sizeof(data), data, sizeof(data));
        /* The IPv4 header begins behind 20 bytes of the GRH */
        g_assert_cmphex(got[20], ==, 0x45);
    }
    rig_stop(&x.r);
}

/*
 * Tests a streaming SRQ of an XRC domain, which completes to a CQ of its own.
 */
static void test_xrc(void)
{
    QrnicQpCtx target = { .type = QRNIC_QPT_XRC_TGT };
    uint8_t raw[QRNIC_QP_CTX_BYTES], data[300];
    Stream x = { 0 };
    QrnicSrqCtx ctx;
    PeerPacket p;

    rig_start(&x.r, "", NULL);
    x.cq = &x.r.send_cq;
    target.xrcd = command_ok(x.r.d, QRNIC_CMD_ALLOC_XRCD, 0, NULL, 0, NULL, 0);
    ctx = srq_ctx(&x.r);
    ctx.xrcd = target.xrcd;
    ctx.cq = x.cq->number;
    srq_create(&x, &ctx);
    qrnic_qp_ctx_pack(raw, &target);
    x.qp.number = command_ok(x.r.d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw),
                             NULL, 0);
    qp_to_rtr(x.r.d, &x.qp, NULL);
    post_buffer(&x);
    fill(data, sizeof(data), 1);
    for (unsigned i = 0; i < 2; i++) {
        p = request(&x, XRC(RC_SEND_ONLY), i, data + i, 290);
        p.xrceth = x.number;
        peer_send(x.r.d, &p);
        peer_expect(x.r.d, XRC(RC_ACK), RQ_PSN + i);
        received(&x, 0, i * 320, data + i, 290, 0);
    }
    rig_stop(&x.r);
}

/*
 * Tests a queue pair that moves to ERR in the middle of a message. The buffer
 * of the message is flushed once, then the next buffer.
 */
static void test_flush(void)
{
    QrnicQpAttr err = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR };
    uint8_t data[1024] = { 0 };
    QrnicCqe c;
    PeerPacket p;
    Stream x;

    start(&x, false);
    post_buffer(&x);
    post_buffer(&x);
    p = request(&x, RC_SEND_ONLY, 0, data, 20);
    peer_send(x.r.d, &p);
    expect_ack(&x, 0);
    received(&x, 0, 0, data, 20, 0);
    p = request(&x, RC_SEND_FIRST, 1, data, 1024);
    peer_send(x.r.d, &p);
    settle(x.r.d);
    qp_modify(x.r.d, &x.qp, &err);
    for (unsigned i = 0; i < 2; i++) {
        c = completion(&x, QRNIC_WC_WR_FLUSH_ERR);
        g_assert_cmpuint(c.index, ==, i);
        g_assert_cmphex(c.stream, ==, QRNIC_CQES_USED);
        g_assert_cmpuint(c.messages, ==, i ? 1 : 2);
    }
    settle(x.r.d);
    g_assert_false(cq_poll(x.r.d, x.cq, &c));
    rig_stop(&x.r);
}

#define LAZY 0x700000ull

/* Memory on demand with two pages, of which only the first is present */
typedef struct Lazy {
    uint64_t list, pages;
    uint32_t key;
    Eq eq;
} Lazy;

static void lazy_create(Stream *x, Lazy *l)
{
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_ON_DEMAND,
        .access = ALL_RIGHTS, .start = LAZY, .length = 2 * BUFFER,
        .pd = x->r.pd, .table = { .levels = 1, .page_shift = 12 },
    };

    eq_create(x->r.d, &l->eq, QRNIC_EQ_PAGE_FAULT, FAULT_VECTOR, 4);
    l->list = ctx.table.root = memory_alloc(x->r.d, 16, 4096);
    l->pages = memory_alloc(x->r.d, 2 * BUFFER, 4096);
    qrnic_mkey_ctx_pack(raw, &ctx);
    l->key = command_ok(x->r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw),
                        NULL, 0) << 8;
    qtest_writeq(x->r.d->qts, l->list,
                 l->pages | QRNIC_PAGE_PRESENT | QRNIC_PAGE_WRITABLE);
}

/* Pages in the second page after its page fault. */
static void lazy_bring(Stream *x, Lazy *l)
{
    QrnicEqe e;

    eq_wait(x->r.d, &l->eq, &e);
    qtest_writeq(x->r.d->qts, l->list + 8, (l->pages + BUFFER) |
                 QRNIC_PAGE_PRESENT | QRNIC_PAGE_WRITABLE);
    fault_answer(x->r.d, QRNIC_CMD_RESUME_PAGE_FAULT, e.object, e.data);
}

/*
 * Tests an absent page in the middle of a message. The retransmitted packet is
 * placed at the same offset.
 */
static void test_absent(void)
{
    uint8_t data[1500], got[1500];
    PeerPacket p;
    QrnicCqe c;
    Stream x;
    Lazy l;

    start(&x, true);
    lazy_create(&x, &l);
    /* The message continues in the second page. */
    post_to(&x, LAZY + BUFFER - 1100, l.key);
    fill(data, sizeof(data), 5);
    p = request(&x, RC_SEND_FIRST, 0, data, 1024);
    peer_send(x.r.d, &p);
    expect_ack(&x, 0);
    p = request(&x, RC_SEND_LAST, 1, data + 1024, 1500 - 1024);
    peer_send(x.r.d, &p);
    g_assert_cmphex(peer_expect(x.r.d, RC_ACK, RQ_PSN + 1).syndrome & 0xe0, ==,
                    AETH_RNR_NAK);
    lazy_bring(&x, &l);
    peer_send(x.r.d, &p);
    expect_ack(&x, 1);
    c = completion(&x, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(c.offset, ==, 0);
    g_assert_cmpuint(c.byte_len, ==, sizeof(got));
    qtest_memread(x.r.d->qts, l.pages + BUFFER - 1100, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    rig_stop(&x.r);
}

/*
 * Tests that a datagram to an absent page is dropped, and the next one is
 * placed there.
 */
static void test_absent_datagram(void)
{
    uint8_t data[100] = { 0 };
    Stream x = { 0 };
    PeerPacket p;
    QrnicCqe c;
    Lazy l;

    rig_start(&x.r, "", NULL);
    x.cq = &x.r.recv_cq;
    rq_create(&x, QRNIC_QPT_UD);
    qp_start_datagram(x.r.d, &x.qp, QKEY);
    lazy_create(&x, &l);
    post_to(&x, LAZY + BUFFER, l.key);
    p = peer_packet(&x.qp, UD_SEND_ONLY, 0);
    p.qkey = QKEY;
    p.payload = data;
    p.length = sizeof(data);
    peer_send(x.r.d, &p);
    lazy_bring(&x, &l);
    for (unsigned i = 0; i < 2; i++) {
        peer_send(x.r.d, &p);
        c = completion(&x, QRNIC_WC_SUCCESS);
        g_assert_cmpuint(c.offset, ==, i * 192);
        g_assert_cmphex(c.stream, ==, 0);
    }
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_RX_DROP_PAGE_FAULT), ==, 1);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_RECV_WQES), ==, 1);
    rig_stop(&x.r);
}

static void srq_refused(Rig *r, QrnicStreamAttr bad, unsigned status,
                        uint32_t syndrome)
{
    uint8_t raw[QRNIC_SRQ_CTX_BYTES];
    QrnicSrqCtx ctx = srq_ctx(r);

    ctx.stream = bad;
    qrnic_srq_ctx_pack(raw, &ctx);
    command_fails(r->d, QRNIC_CMD_CREATE_SRQ, 0, raw, sizeof(raw), NULL, 0,
                  status, QRNIC_SRQ_CTX_STREAM_OFFSET + syndrome);
}

static void qp_refused(Rig *r, const QrnicQpCtx *ctx, unsigned status,
                       uint32_t syndrome)
{
    uint8_t raw[QRNIC_QP_CTX_BYTES];

    qrnic_qp_ctx_pack(raw, ctx);
    command_fails(r->d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw), NULL, 0,
                  status, syndrome);
}

static void test_refused(void)
{
    uint8_t raw[QRNIC_SRQ_CTX_BYTES];
    QrnicStreamAttr bad;
    QrnicSrqCtx good;
    QrnicQpCtx ctx;
    Stream x;

    start(&x, true);
    bad = attr, bad.max_message = 0;
    srq_refused(&x.r, bad, QRNIC_ST_BAD_PARAM, 0);
    bad = attr, bad.max_message = QRNIC_MAX_MSG_SIZE + 1;
    srq_refused(&x.r, bad, QRNIC_ST_BAD_PARAM,
                QRNIC_STREAM_ATTR_MAX_MESSAGE_OFFSET);
    bad = attr, bad.max_messages = 0;
    srq_refused(&x.r, bad, QRNIC_ST_BAD_PARAM,
                QRNIC_STREAM_ATTR_MAX_MESSAGES_OFFSET);
    bad = attr, bad.log_align = QRNIC_STREAM_MAX_LOG_ALIGN + 1;
    srq_refused(&x.r, bad, QRNIC_ST_BAD_PARAM,
                QRNIC_STREAM_ATTR_LOG_ALIGN_OFFSET);
    good = srq_ctx(&x.r);
    qrnic_srq_ctx_pack(raw, &good);
    raw[QRNIC_SRQ_CTX_STREAM_OFFSET + QRNIC_STREAM_ATTR_RSVD0_OFFSET] = 1;
    g_assert_cmpuint(command(x.r.d, QRNIC_CMD_CREATE_SRQ, 0, raw, sizeof(raw),
                             NULL, 0).status, ==, QRNIC_ST_RESERVED);
    ctx = qp_ctx(&x.r, QRNIC_QPT_RAW_PACKET);
    qp_refused(&x.r, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_STREAM_OFFSET);
    ctx = qp_ctx(&x.r, QRNIC_QPT_XRC_INI);
    qp_refused(&x.r, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_STREAM_OFFSET);
    ctx = qp_ctx(&x.r, QRNIC_QPT_RC);
    ctx.srq = x.number;
    qp_refused(&x.r, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_STREAM_OFFSET);
    ctx.stream = (QrnicStreamAttr) { 0 };
    ctx.max_recv_inline = ctx.address_space = 1;
    qp_refused(&x.r, &ctx, QRNIC_ST_BAD_PARAM,
               QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    rig_stop(&x.r);
}

static void test_capability(void)
{
    QrnicQpCtx ctx;
    Rig r;

    rig_start(&r, "cap-streaming-recv=off", NULL);
    srq_refused(&r, attr, QRNIC_ST_NOT_SUPPORTED, 0);
    ctx = qp_ctx(&r, QRNIC_QPT_UD);
    qp_refused(&r, &ctx, QRNIC_ST_NOT_SUPPORTED, QRNIC_QP_CTX_STREAM_OFFSET);
    rig_stop(&r);
}

/*
 * Tests invalid WQEs. A wrong index breaks the ring, and a wrong key is an
 * error of the queue pair.
 */
static void test_bad_wqe(void)
{
    uint8_t data[10] = { 0 };
    QrnicCqe c;
    PeerPacket p;
    Stream x;

    start(&x, true);
    post_to(&x, x.r.mr.start, x.r.mr.key ^ 1);
    p = request(&x, RC_SEND_ONLY, 0, data, sizeof(data));
    peer_send(x.r.d, &p);
    g_assert_cmphex(peer_expect(x.r.d, RC_ACK, RQ_PSN).syndrome, ==,
                    AETH_NAK_REMOTE_OP);
    c = completion(&x, QRNIC_WC_LOC_PROT_ERR);
    g_assert_cmphex(c.stream, ==, QRNIC_CQES_USED);
    g_assert_cmpuint(c.messages, ==, 1);
    rig_stop(&x.r);

    start(&x, true);
    post_buffer(&x);
    qtest_writel(x.r.d->qts, x.ring + QRNIC_RECV_CTRL_INDEX_OFFSET, 3);
    peer_send(x.r.d, &p);
    g_assert_cmphex(peer_expect(x.r.d, RC_ACK, RQ_PSN).syndrome, ==,
                    AETH_NAK_REMOTE_OP);
    counter_wait(x.r.d, QRNIC_COUNTER_GE_WQE_MALFORMED, 1);
    rig_stop(&x.r);
}

void add_streaming_tests(void)
{
    qtest_add_func("qrnic/streaming/receive", test_receive);
    qtest_add_func("qrnic/streaming/receive-srq", test_receive_srq);
    qtest_add_func("qrnic/streaming/datagram", test_datagram);
    qtest_add_func("qrnic/streaming/xrc", test_xrc);
    qtest_add_func("qrnic/streaming/flush", test_flush);
    qtest_add_func("qrnic/streaming/absent", test_absent);
    qtest_add_func("qrnic/streaming/absent-datagram", test_absent_datagram);
    qtest_add_func("qrnic/streaming/refused", test_refused);
    qtest_add_func("qrnic/streaming/capability", test_capability);
    qtest_add_func("qrnic/streaming/bad-wqe", test_bad_wqe);
}
