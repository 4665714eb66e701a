/*
 * qrnic qtest: shared receive queues
 *
 * Programmer's Reference, chapter Shared receive queues.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

typedef struct Srq {
    uint32_t number, producer;
    uint64_t ring, record;
} Srq;

#define SLOTS_LOG 2

static void srq_create(Rig *r, Srq *s)
{
    uint8_t raw[QRNIC_SRQ_CTX_BYTES];
    QrnicSrqCtx ctx = {
        .pd = r->pd, .db_page = r->page, .log_size = SLOTS_LOG,
    };

    *s = (Srq) { 0 };
    s->ring = memory_alloc(r->d, QRNIC_WQEBB_SIZE << SLOTS_LOG, 4096);
    s->record = memory_alloc(r->d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE);
    ctx.ring = contiguous(s->ring);
    ctx.record = s->record;
    qrnic_srq_ctx_pack(raw, &ctx);
    s->number = command_ok(r->d, QRNIC_CMD_CREATE_SRQ, 0, raw, sizeof(raw),
                           NULL, 0);
}

/* Posts a WQE. Each slot has 1 KiB of the rig's memory. */
static void srq_post(Rig *r, Srq *s, uint32_t slot, uint32_t next)
{
    uint8_t raw[QRNIC_WQEBB_SIZE] = { 0 };
    QrnicRecvCtrl ctrl = { .data_segments = 1, .index = slot, .next = next };
    QrnicDataSeg seg = {
        .address = r->mr.start + slot * 1024, .length = 1024,
        .lkey = r->mr.key,
    };

    qrnic_recv_ctrl_pack(raw, &ctrl);
    qrnic_data_seg_pack(raw + QRNIC_SEGMENT_SIZE, &seg);
    qtest_memwrite(r->d->qts, s->ring + slot * sizeof(raw), raw, sizeof(raw));
    qtest_writel(r->d->qts, s->record, ++s->producer);
    doorbell(r->d, r->page, QRNIC_DB_SRQ, s->number, s->producer, 0);
}

/* Sends a message to a queue pair. The ACK must have no credits. */
static void peer_message(Rig *r, Qp *qp, uint32_t n, const char *text)
{
    PeerPacket p = peer_packet(qp, RC_SEND_ONLY, RQ_PSN + n);

    p.ack_request = true;
    p.payload = (const uint8_t *)text;
    p.length = strlen(text);
    peer_send(r->d, &p);
    p = peer_expect(r->d, RC_ACK, RQ_PSN + n);
    g_assert_cmphex(p.syndrome, ==, AETH_ACK | 31);
}

static void received(Rig *r, Srq *s, Qp *qp, uint32_t slot, const char *text)
{
    char got[1024];
    QrnicCqe cqe;

    cq_wait(r->d, &r->recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.qpn, ==, qp->number);
    g_assert_cmpuint(cqe.srqn, ==, s->number);
    g_assert_cmpuint(cqe.index, ==, slot);
    g_assert_cmpuint(cqe.byte_len, ==, strlen(text));
    rig_read(r, slot * 1024, (uint8_t *)got, strlen(text));
    g_assert_cmpmem(got, strlen(text), text, strlen(text));
}

static void rig_srq(Rig *r, Srq *s, Qp *one, Qp *two)
{
    rig_start(r, "", NULL);
    srq_create(r, s);
    qp_create_srq(r->d, one, QRNIC_QPT_RC, r->pd, r->page, &r->send_cq,
                  &r->recv_cq, 4, s->number);
    qp_create_srq(r->d, two, QRNIC_QPT_RC, r->pd, r->page, &r->send_cq,
                  &r->recv_cq, 4, s->number);
    qp_connect(r->d, one, NULL);
    qp_connect(r->d, two, NULL);
}

/*
 * Tests the example of the manual. Software releases the slots in another order
 * than it posted them.
 */
static void test_receive(void)
{
    uint8_t raw[QRNIC_SRQ_CTX_BYTES];
    QrnicSrqCtx ctx;
    Qp one, two;
    Rig r;
    Srq s;

    rig_srq(&r, &s, &one, &two);
    srq_post(&r, &s, 0, 1);
    srq_post(&r, &s, 1, 2);
    srq_post(&r, &s, 2, 3);
    peer_message(&r, &one, 0, "first");
    peer_message(&r, &two, 0, "second");
    received(&r, &s, &one, 0, "first");
    received(&r, &s, &two, 1, "second");
    srq_post(&r, &s, 3, 1);
    srq_post(&r, &s, 1, 0);
    peer_message(&r, &two, 1, "third");
    peer_message(&r, &two, 2, "fourth");
    peer_message(&r, &one, 1, "fifth");
    received(&r, &s, &two, 2, "third");
    received(&r, &s, &two, 3, "fourth");
    received(&r, &s, &one, 1, "fifth");
    command_ok(r.d, QRNIC_CMD_QUERY_SRQ, s.number, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_srq_ctx_unpack(&ctx, raw));
    g_assert_cmpuint(ctx.producer, ==, 5);
    g_assert_cmpuint(ctx.consumer, ==, 5);
    command_fails(r.d, QRNIC_CMD_DESTROY_SRQ, s.number, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_QP, one.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_QP, two.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_SRQ, s.number, NULL, 0, NULL, 0);
    rig_stop(&r);
}

static void test_limit(void)
{
    uint8_t raw[QRNIC_SRQ_LIMIT_BYTES];
    QrnicSrqLimit limit = { .limit = 2 };
    QrnicEqe eqe;
    Qp one, two;
    Rig r;
    Srq s;

    rig_srq(&r, &s, &one, &two);
    srq_post(&r, &s, 0, 1);
    srq_post(&r, &s, 1, 2);
    qrnic_srq_limit_pack(raw, &limit);
    command_ok(r.d, QRNIC_CMD_MODIFY_SRQ, s.number, raw, sizeof(raw), NULL, 0);
    g_assert_false(eq_poll(r.d, &r.async, &eqe));
    peer_message(&r, &one, 0, "one");
    eq_wait(r.d, &r.async, &eqe);
    g_assert_cmpuint(eqe.type, ==, QRNIC_EVENT_SRQ_LIMIT);
    g_assert_cmpuint(eqe.object, ==, s.number);
    rig_stop(&r);
}

static uint64_t ring_alloc(Rig *r, Srq *s, unsigned log_size)
{
    uint8_t raw[QRNIC_WQEBB_SIZE << SLOTS_LOG];
    uint64_t ring = memory_alloc(r->d, QRNIC_WQEBB_SIZE << log_size, 4096);

    qtest_memread(r->d->qts, s->ring, raw, sizeof(raw));
    qtest_memwrite(r->d->qts, ring, raw,
                   MIN(sizeof(raw), QRNIC_WQEBB_SIZE << log_size));
    return ring;
}

/*
 * Tests an SRQ that grows between the first and the last packet of a message.
 * One WQE is prefetched, the limit is armed, and the old ring is overwritten.
 */
static void test_resize(void)
{
    uint8_t raw[QRNIC_SRQ_RESIZE_BYTES], data[1024];
    QrnicSrqLimit limit = { .limit = 2 };
    QrnicSrqResize in = { .log_size = 4 };
    PeerPacket p;
    QrnicEqe eqe;
    Qp one, two;
    Rig r;
    Srq s;

    rig_srq(&r, &s, &one, &two);
    srq_post(&r, &s, 0, 1);
    srq_post(&r, &s, 1, 2);
    srq_post(&r, &s, 2, 3);
    qrnic_srq_limit_pack(raw, &limit);
    command_ok(r.d, QRNIC_CMD_MODIFY_SRQ, s.number, raw, QRNIC_SRQ_LIMIT_BYTES,
               NULL, 0);
    memset(data, 'a', sizeof(data));
    p = peer_packet(&one, RC_SEND_FIRST, RQ_PSN);
    p.payload = data;
    p.length = sizeof(data);
    peer_send(r.d, &p);
    settle(r.d);
    in.ring = contiguous(ring_alloc(&r, &s, 4));
    qrnic_srq_resize_pack(raw, &in);
    command_ok(r.d, QRNIC_CMD_RESIZE_SRQ, s.number, raw, sizeof(raw), NULL, 0);
    qtest_memset(r.d->qts, s.ring, 0xff, QRNIC_WQEBB_SIZE << SLOTS_LOG);
    s.ring = in.ring.root;
    /* Slot 3 is next, then the first new slot. */
    srq_post(&r, &s, 3, 4);
    srq_post(&r, &s, 4, 5);
    peer_message(&r, &two, 0, "second");
    received(&r, &s, &two, 1, "second");
    peer_message(&r, &two, 1, "third");
    received(&r, &s, &two, 2, "third");
    g_assert_false(eq_poll(r.d, &r.async, &eqe));
    peer_message(&r, &two, 2, "fourth");
    received(&r, &s, &two, 3, "fourth");
    eq_wait(r.d, &r.async, &eqe);
    g_assert_cmpuint(eqe.type, ==, QRNIC_EVENT_SRQ_LIMIT);
    peer_message(&r, &two, 3, "fifth");
    received(&r, &s, &two, 4, "fifth");
    rig_stop(&r);
}

static void test_resize_bad(void)
{
    uint8_t raw[QRNIC_SRQ_RESIZE_BYTES], srq_raw[QRNIC_SRQ_CTX_BYTES];
    QrnicSrqResize in = { .log_size = 1 };
    QrnicSrqCtx ctx;
    QrnicEqe eqe;
    Qp one, two;
    Rig r;
    Srq s;

    rig_srq(&r, &s, &one, &two);
    srq_post(&r, &s, 0, 1);
    srq_post(&r, &s, 1, 2);
    /* Two WQEs do not fit into two slots. */
    in.ring = contiguous(ring_alloc(&r, &s, 1));
    qrnic_srq_resize_pack(raw, &in);
    command_fails(r.d, QRNIC_CMD_RESIZE_SRQ, s.number, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BAD_PARAM,
                  QRNIC_SRQ_RESIZE_LOG_SIZE_OFFSET);
    /* The table has absent pages, and then invalid levels. */
    in.log_size = 7;
    in.ring = (QrnicTranslation) {
        .root = 1ull << 40, .levels = 1, .page_shift = 12,
    };
    qrnic_srq_resize_pack(raw, &in);
    command_fails(r.d, QRNIC_CMD_RESIZE_SRQ, s.number, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_DMA, 0);
    in.ring.levels = 4;
    qrnic_srq_resize_pack(raw, &in);
    g_assert_cmpuint(command(r.d, QRNIC_CMD_RESIZE_SRQ, s.number, raw,
                             sizeof(raw), NULL, 0).status, ==,
                     QRNIC_ST_BAD_PARAM);
    command_ok(r.d, QRNIC_CMD_QUERY_SRQ, s.number, NULL, 0, srq_raw,
               sizeof(srq_raw));
    g_assert_true(qrnic_srq_ctx_unpack(&ctx, srq_raw));
    g_assert_cmpuint(ctx.log_size, ==, SLOTS_LOG);
    peer_message(&r, &one, 0, "as before");
    received(&r, &s, &one, 0, "as before");
    /* The producer index goes backwards, which is an SRQ error. */
    qtest_writel(r.d->qts, s.record, 0);
    in.log_size = 4;
    in.ring = contiguous(ring_alloc(&r, &s, 4));
    qrnic_srq_resize_pack(raw, &in);
    command_fails(r.d, QRNIC_CMD_RESIZE_SRQ, s.number, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BAD_STATE, 0);
    eq_wait(r.d, &r.async, &eqe);
    g_assert_cmpuint(eqe.type, ==, QRNIC_EVENT_SRQ_ERROR);
    rig_stop(&r);
}

static void test_resize_off(void)
{
    uint8_t raw[QRNIC_SRQ_RESIZE_BYTES] = { 0 };
    Rig r;
    Srq s;

    rig_start(&r, "cap-srq-resize=off", NULL);
    srq_create(&r, &s);
    command_fails(r.d, QRNIC_CMD_RESIZE_SRQ, s.number, raw, sizeof(raw), NULL,
                  0, QRNIC_ST_NOT_SUPPORTED, 0);
    rig_stop(&r);
}

static void test_doorbell(void)
{
    Qp one, two;
    Rig r;
    Srq s;

    rig_srq(&r, &s, &one, &two);
    doorbell(r.d, 0, QRNIC_DB_SRQ, s.number, 0, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_OWNER, 1);
    doorbell(r.d, r.page, QRNIC_DB_SRQ, s.number + 1, 0, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_QUEUE, 1);
    doorbell(r.d, r.page, QRNIC_DB_RQ, one.number, 0, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_QUEUE, 2);
    rig_stop(&r);
}

static void test_off(void)
{
    uint8_t raw[QRNIC_SRQ_CTX_BYTES] = { 0 };
    Rig r;

    rig_start(&r, "cap-srq=off", NULL);
    command_fails(r.d, QRNIC_CMD_CREATE_SRQ, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_NOT_SUPPORTED, 0);
    doorbell(r.d, r.page, QRNIC_DB_SRQ, 1, 0, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_ACCESS, 1);
    rig_stop(&r);
}

void add_srq_tests(void)
{
    qtest_add_func("qrnic/srq/receive", test_receive);
    qtest_add_func("qrnic/srq/limit", test_limit);
    qtest_add_func("qrnic/srq/resize", test_resize);
    qtest_add_func("qrnic/srq/resize-bad", test_resize_bad);
    qtest_add_func("qrnic/srq/resize-off", test_resize_off);
    qtest_add_func("qrnic/srq/doorbell", test_doorbell);
    qtest_add_func("qrnic/srq/off", test_off);
}
