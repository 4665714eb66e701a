/*
 * qrnic qtest: tag matching, with each rule of the chapter broken once
 *
 * No error has an effect on other queues. Programmer's Reference, chapter Tag
 * matching.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "tag-list.h"

#define HEADER QRNIC_TAG_HEADER_SIZE
#define HEADERS QRNIC_RENDEZVOUS_SIZE
#define VA 0x7f1234567000ull
#define RKEY 0xabcdef12u
#define TAG 7u

/*
 * Asserts that CREATE_TAG_LIST fails with this status and syndrome, and that
 * the device counts one failed command.
 */

static void refused(Tags *x, uint32_t srqn, const QrnicTagListCtx *ctx,
                    unsigned status, uint32_t syndrome)
{
    uint64_t before = counter(x->r.d, QRNIC_COUNTER_GE_COMMAND_FAILED);

    tags_list_refused(x, srqn, ctx, status, syndrome);
    g_assert_cmpuint(counter(x->r.d, QRNIC_COUNTER_GE_COMMAND_FAILED), ==,
                     before + 1);
}

/*
 * Tests CREATE_TAG_LIST with all members wrong. The test corrects them one by
 * one, in the order of the checks.
 */
static void test_refused(void)
{
    QrnicTagListCtx ctx = {
        .max_tags = 0, .log_size = 13, .log_stride = 4, .record = 4,
        .ring = { .root = 0x1001, .levels = 4 },
    };
    const QrnicSrqCtx plain = { 0 };
    QrnicSrqCtx other = { 0 };
    uint32_t srqn, full[QRNIC_MAX_ALL_TAGS / QRNIC_MAX_TAGS];
    QrnicTagListCtx most;
    Tags x;

    tags_start(&x, "");
    refused(&x, 99, &ctx, QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    other.xrcd = command_ok(x.r.d, QRNIC_CMD_ALLOC_XRCD, 0, NULL, 0, NULL, 0);
    other.cq = x.cq.number;
    refused(&x, tags_srq_create(&x, other), &ctx, QRNIC_ST_BAD_PARAM,
            UINT32_MAX);
    other = (QrnicSrqCtx) {
        .stream = { .max_message = 100, .max_messages = 2 },
    };
    refused(&x, tags_srq_create(&x, other), &ctx, QRNIC_ST_BAD_PARAM,
            UINT32_MAX);
    refused(&x, x.srqn, &ctx, QRNIC_ST_BUSY, 0);
    /* This SRQ is in use by a queue pair, and has no list. */
    srqn = x.srqn;
    x.srqn = tags_srq_create(&x, plain);
    tags_qp_create(&x, &x.qp);
    refused(&x, x.srqn, &ctx, QRNIC_ST_BUSY, 0);
    x.srqn = srqn;
    srqn = tags_srq_create(&x, plain);
    ctx.cq = 99;
    refused(&x, srqn, &ctx, QRNIC_ST_BAD_OBJECT, QRNIC_TAG_LIST_CTX_CQ_OFFSET);
    ctx.cq = x.cq.number;
    refused(&x, srqn, &ctx, QRNIC_ST_BAD_PARAM,
            QRNIC_TAG_LIST_CTX_MAX_TAGS_OFFSET);
    ctx.max_tags = QRNIC_MAX_TAGS + 1;
    refused(&x, srqn, &ctx, QRNIC_ST_BAD_PARAM,
            QRNIC_TAG_LIST_CTX_MAX_TAGS_OFFSET);
    ctx.max_tags = QRNIC_MAX_TAGS;
    refused(&x, srqn, &ctx, QRNIC_ST_BAD_PARAM,
            QRNIC_TAG_LIST_CTX_LOG_SIZE_OFFSET);
    ctx.log_size = 12;
    refused(&x, srqn, &ctx, QRNIC_ST_BAD_PARAM,
            QRNIC_TAG_LIST_CTX_LOG_STRIDE_OFFSET);
    ctx.log_stride = 3;
    refused(&x, srqn, &ctx, QRNIC_ST_BAD_PARAM,
            QRNIC_TAG_LIST_CTX_RECORD_OFFSET);
    ctx.record = x.record;
    /*
     * The rig's list uses some entries, so the last of these lists has no room.
     */
    most = tags_list_ctx(&x);
    most.max_tags = QRNIC_MAX_TAGS;
    for (unsigned i = 0; i < ARRAY_SIZE(full) - 1; i++) {
        full[i] = tags_srq_create(&x, plain);
        tags_list_create(&x, full[i], &most);
    }
    refused(&x, srqn, &ctx, QRNIC_ST_NO_RESOURCE, 0);
    command_ok(x.r.d, QRNIC_CMD_DESTROY_SRQ, full[3], NULL, 0, NULL, 0);
    refused(&x, srqn, &ctx, QRNIC_ST_BAD_PARAM,
            QRNIC_TAG_LIST_CTX_RING_OFFSET +
            QRNIC_TRANSLATION_SHAPE_OFFSET);
    ctx.ring.levels = 0;
    refused(&x, srqn, &ctx, QRNIC_ST_BAD_PARAM,
            QRNIC_TAG_LIST_CTX_RING_OFFSET + QRNIC_TRANSLATION_ROOT_OFFSET);
    ctx.ring = contiguous(x.ring);
    tags_list_create(&x, srqn, &ctx);
    refused(&x, srqn, &ctx, QRNIC_ST_BUSY, 0);
    tags_others_live(&x);
    tags_stop(&x);
}

/*
 * Tests reserved bits and lengths. The device checks both before it calls the
 * engine.
 */
static void test_reserved(void)
{
    static const unsigned reserved[] = {
        QRNIC_TAG_LIST_CTX_RSVD0_OFFSET, QRNIC_TAG_LIST_CTX_RSVD0_OFFSET + 5,
        QRNIC_TAG_LIST_CTX_RSVD1_OFFSET, QRNIC_TAG_LIST_CTX_BYTES - 1,
    };
    uint8_t raw[QRNIC_TAG_LIST_CTX_BYTES];
    QrnicTagListCtx ctx;
    uint32_t srqn;
    Tags x;

    tags_start(&x, "");
    srqn = tags_srq_create(&x, (QrnicSrqCtx) { 0 });
    ctx = tags_list_ctx(&x);
    for (unsigned i = 0; i < ARRAY_SIZE(reserved); i++) {
        qrnic_tag_list_ctx_pack(raw, &ctx);
        raw[reserved[i]] = 1;
        command_fails(x.r.d, QRNIC_CMD_CREATE_TAG_LIST, srqn, raw,
                      sizeof(raw), NULL, 0, QRNIC_ST_RESERVED, 0);
    }
    qrnic_tag_list_ctx_pack(raw, &ctx);
    g_assert_cmpuint(command(x.r.d, QRNIC_CMD_CREATE_TAG_LIST, srqn, raw,
                             sizeof(raw) - 8, NULL, 0).status, ==,
                     QRNIC_ST_BAD_INPUT_LENGTH);
    tags_list_create(&x, srqn, &ctx);
    tags_stop(&x);
}

/* Tests queue pairs that cannot use an SRQ with a tag list. */
static void test_users(void)
{
    uint8_t raw[QRNIC_QP_CTX_BYTES];
    QrnicQpCtx ctx;
    Tags x;

    tags_start(&x, "");
    ctx = (QrnicQpCtx) {
        .type = QRNIC_QPT_UD, .pd = x.r.pd, .db_page = x.r.page,
        .send_cq = x.r.send_cq.number, .recv_cq = x.r.recv_cq.number,
        .sq_log_size = 4, .srq = x.srqn, .sq = contiguous(x.ring),
        .sq_record = x.record,
    };
    qrnic_qp_ctx_pack(raw, &ctx);
    command_fails(x.r.d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SRQ_OFFSET);
    ctx.type = QRNIC_QPT_UC;
    qrnic_qp_ctx_pack(raw, &ctx);
    command_fails(x.r.d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SRQ_OFFSET);
    ctx.type = QRNIC_QPT_RC;
    ctx.max_recv_inline = 16;
    ctx.address_space = 1;
    qrnic_qp_ctx_pack(raw, &ctx);
    command_fails(x.r.d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    ctx = (QrnicQpCtx) {
        .type = QRNIC_QPT_DC_TGT, .pd = x.r.pd, .srq = x.srqn,
        .recv_cq = x.r.recv_cq.number,
        .dynamic = { .access_key = 1, .responders = 1 },
    };
    qrnic_qp_ctx_pack(raw, &ctx);
    command_fails(x.r.d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SRQ_OFFSET);
    tags_others_live(&x);
    tags_stop(&x);
}

static void test_off(const void *property)
{
    QrnicTagListCtx ctx = { 0 };
    Tags x = { 0 };

    rig_start(&x.r, property, NULL);
    /* The missing capability precedes all other errors. */
    tags_list_refused(&x, 9, &ctx, QRNIC_ST_NOT_SUPPORTED, 0);
    rig_stop(&x.r);
}

/* The next tests check operations. */

#define ADD QRNIC_WQE_TAG_ADD
#define DEL QRNIC_WQE_TAG_DEL
#define SYNC QRNIC_WQE_TAG_SYNC

/*
 * Asserts that an invalid operation only completes, signaled or not, and that
 * the list continues. segment: bytes of each of two data segments; 0: without.
 */
static void bad_operations(const QrnicTagOp *bad, unsigned count,
                           uint32_t segment, unsigned status,
                           unsigned syndrome, enum qrnic_counter rule)
{
    QrnicDataSeg seg[2];
    Tags x;

    tags_start(&x, "");
    tags_post_wqe(&x);
    tags_add(&x, 1, TAG, ALL_BITS, 100);
    seg[0] = seg[1] = (QrnicDataSeg) {
        .address = x.r.mr.start, .length = segment, .lkey = x.r.mr.key,
    };
    for (unsigned i = 0; i < count; i++) {
        QrnicCqe c;

        tags_post(&x, bad[i], seg, segment ? 2 : 0);
        c = tags_cqe(&x, status, bad[i].opcode, QRNIC_CQET_OPERATION);
        g_assert_cmpuint(c.index, ==, x.ops - 1);
        g_assert_cmpuint(c.qpn, ==, 0);
        g_assert_cmpstr(qrnic_syndrome_name(c.syndrome), ==,
                        qrnic_syndrome_name(syndrome));
        g_assert_cmpuint(counter(x.r.d, rule), ==, i + 1);
        g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_GUEST_ERRORS), ==,
                         i + 1);
    }
    tags_no_cqe(&x);
    /* Only the earlier entry is matched. */
    tags_eager(&x, TAG, 100);
    tags_expect_match(&x, 1, VALID, QRNIC_WC_SUCCESS, 100, NULL);
    tags_expect_data(&x, 1, 100);
    tags_eager(&x, 0, 9);
    tags_expect_wqe(&x, QRNIC_CQE_TAG_UNEXPECTED, 0, 0, HEADER + 9);
    tags_others_live(&x);
    tags_stop(&x);
}

static void test_bad_reserved(void)
{
    static const QrnicTagOp bad[] = {
        { .opcode = ADD, .flags = 4 },
        { .opcode = DEL, .flags = 0x80 },
        { .opcode = ADD, .unexpected = 1 },
        { .opcode = DEL, .data_segments = 1 },
        { .opcode = DEL, .tag = 1 },
        { .opcode = DEL, .mask = 1ull << 63 },
        { .opcode = SYNC, .handle = 1 },
        { .opcode = SYNC, .data_segments = 1 },
        { .opcode = SYNC, .tag = 1, .flags = QRNIC_TAGF_SIGNALED },
        { .opcode = SYNC, .mask = 1, .flags = QRNIC_TAGF_SIGNALED },
    };

    bad_operations(bad, ARRAY_SIZE(bad), 0, QRNIC_WC_LOC_QP_OP_ERR,
                   QRNIC_SYN_WQE_RESERVED, QRNIC_COUNTER_GE_WQE_MALFORMED);
}

static void test_bad_opcode(void)
{
    static const QrnicTagOp bad[] = {
        { .opcode = QRNIC_WQE_SEND }, { .opcode = SYNC + 1 },
        { .opcode = ADD - 1 }, { .opcode = 0x7f },
    };

    bad_operations(bad, ARRAY_SIZE(bad), 0, QRNIC_WC_LOC_QP_OP_ERR,
                   QRNIC_SYN_WQE_OPCODE, QRNIC_COUNTER_GE_WQE_MALFORMED);
}

/*
 * Tests operations that are too large. A slot has 128 bytes, and so at most six
 * segments.
 */
static void test_bad_size(void)
{
    static const QrnicTagOp bad[] = {
        { .opcode = ADD, .data_segments = 7 },
        { .opcode = ADD, .data_segments = 0xffff },
    };
    static const QrnicTagOp too_long = { .opcode = ADD };

    bad_operations(bad, ARRAY_SIZE(bad), 0, QRNIC_WC_LOC_QP_OP_ERR,
                   QRNIC_SYN_WQE_SIZE, QRNIC_COUNTER_GE_WQE_MALFORMED);
    bad_operations(&too_long, 1, QRNIC_MAX_MSG_SIZE / 2 + 1,
                   QRNIC_WC_LOC_LEN_ERR, QRNIC_SYN_WQE_LENGTH,
                   QRNIC_COUNTER_GE_WQE_MALFORMED);
}

static void test_bad_handle(void)
{
    static const QrnicTagOp bad[] = {
        { .opcode = ADD, .handle = TAGS },
        { .opcode = DEL, .handle = TAGS },
        { .opcode = ADD, .handle = UINT32_MAX },
        { .opcode = ADD, .handle = 1 },         /* The handle is in use */
    };

    bad_operations(bad, ARRAY_SIZE(bad), 0, QRNIC_WC_LOC_QP_OP_ERR,
                   QRNIC_SYN_TAG_HANDLE, QRNIC_COUNTER_GE_TAG_OPERATION);
}

static void test_bad_count(void)
{
    static const QrnicTagOp bad[] = {
        { .opcode = SYNC, .flags = QRNIC_TAGF_SYNC, .unexpected = 1 },
        { .opcode = SYNC, .flags = QRNIC_TAGF_SYNC,
          .unexpected = UINT32_MAX },
        /* These operations have no effect either. */
        { .opcode = DEL, .flags = QRNIC_TAGF_SYNC, .handle = 1,
          .unexpected = 9 },
        { .opcode = ADD, .flags = QRNIC_TAGF_SYNC, .unexpected = 1 },
    };

    bad_operations(bad, ARRAY_SIZE(bad), 0, QRNIC_WC_LOC_QP_OP_ERR,
                   QRNIC_SYN_TAG_COUNT, QRNIC_COUNTER_GE_TAG_OPERATION);
}

/*
 * Tests that a message count lower than that of an earlier operation is an
 * error.
 */
static void test_count_back(void)
{
    QrnicCqe c;
    Tags x;

    tags_start(&x, "");
    for (unsigned i = 0; i < 2; i++) {
        tags_post_wqe(&x);
        tags_eager(&x, TAG, 1);
        tags_expect_wqe(&x, QRNIC_CQE_TAG_UNEXPECTED, 0, i, HEADER + 1);
    }
    tags_post(&x, tag_sync(2), NULL, 0);
    tags_expect_op(&x, QRNIC_CQE_TAG_SYNC, 0);
    tags_post(&x, tag_sync(1), NULL, 0);
    c = tags_cqe(&x, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_CQE_TAG_SYNC,
                 QRNIC_CQET_OPERATION);
    g_assert_cmphex(c.syndrome, ==, QRNIC_SYN_TAG_COUNT);
    counter_wait(x.r.d, QRNIC_COUNTER_GE_TAG_OPERATION, 1);
    tags_stop(&x);
}

/* Errors that break the list. The entries and WQEs remain usable. */
static void broken(void (*how)(Tags *x), uint8_t syndrome,
                   enum qrnic_counter rule)
{
    QrnicEqe e;
    Tags x;

    tags_start(&x, "");
    tags_post_wqe(&x);
    tags_add(&x, 1, TAG, ALL_BITS, 100);
    how(&x);
    tags_ring(&x);
    tags_expect_event(&x, QRNIC_EVENT_SRQ_ERROR, syndrome, x.srqn);
    g_assert_cmpuint(counter(x.r.d, rule), ==, 1);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 1);
    /* A broken list executes no operation and sends no further event. */
    tags_post(&x, tag_sync(0), NULL, 0);
    tags_no_cqe(&x);
    g_assert_false(eq_poll(x.r.d, &x.r.async, &e));
    tags_eager(&x, TAG, 100);
    tags_expect_match(&x, 1, VALID, QRNIC_WC_SUCCESS, 100, NULL);
    tags_eager(&x, TAG, 9);
    tags_expect_wqe(&x, QRNIC_CQE_TAG_UNEXPECTED, 0, 0, HEADER + 9);
    tags_expect_state(&x, &x.qp, QRNIC_QPS_RTS);
    tags_others_live(&x);
    tags_stop(&x);
}

static void index_wrong(Tags *x)
{
    QrnicTagOp op = tag_sync(0);

    op.index = 1;               /* The index is 1 above the right value */
    tags_write(x, op, NULL, 0);
}

static void producer_beyond(Tags *x)
{
    qtest_writel(x->r.d->qts, x->record, x->ops + (1 << OPS_LOG) + 1);
}

static void producer_back(Tags *x)
{
    qtest_writel(x->r.d->qts, x->record, x->ops - 1);
}

static void record_reserved(Tags *x)
{
    qtest_writel(x->r.d->qts, x->record + QRNIC_QUEUE_RECORD_EVENT_OFFSET, 1);
}

static void test_broken_index(void)
{
    broken(index_wrong, QRNIC_SYN_WQE_INDEX, QRNIC_COUNTER_GE_WQE_MALFORMED);
}

static void test_broken_producer(void)
{
    broken(producer_beyond, QRNIC_SYN_PRODUCER,
           QRNIC_COUNTER_GE_RECORD_VALUE);
    broken(producer_back, QRNIC_SYN_PRODUCER, QRNIC_COUNTER_GE_RECORD_VALUE);
    broken(record_reserved, QRNIC_SYN_PRODUCER,
           QRNIC_COUNTER_GE_RECORD_VALUE);
}

/*
 * Asserts that a list whose record or ring is at an address without memory
 * causes an event, and that other lists continue.
 */
static void unreachable(bool ring)
{
    QrnicTagListCtx ctx;
    QrnicCqe c;
    Tags x;

    tags_start(&x, "");
    x.srqn = tags_srq_create(&x, (QrnicSrqCtx) { 0 });
    ctx = tags_list_ctx(&x);
    if (ring) {
        ctx.ring = contiguous(1ull << 40);
    } else {
        ctx.record = 1ull << 40;
    }
    tags_list_create(&x, x.srqn, &ctx);
    tags_post(&x, tag_sync(0), NULL, 0);
    tags_expect_event(&x, QRNIC_EVENT_SRQ_ERROR, QRNIC_SYN_WQE_FETCH, x.srqn);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_GE_DMA_FAILED), ==, 1);
    settle(x.r.d);
    g_assert_false(cq_poll(x.r.d, &x.cq, &c));
    tags_others_live(&x);
    tags_stop(&x);
}

static void test_unreachable(void)
{
    unreachable(false);
    unreachable(true);
}

/*
 * Tests that an overrun of the CQ stops the list and moves its queue pairs to
 * ERR.
 */
static void test_cq_overrun(void)
{
    Tags x;

    tags_start(&x, "");
    for (unsigned i = 0; i <= 1u << x.cq.log_size; i++) {
        tags_post(&x, tag_sync(0), NULL, 0);
        counter_wait(x.r.d, QRNIC_COUNTER_TAG_OPS, i + 1);
    }
    counter_wait(x.r.d, QRNIC_COUNTER_GE_CQ_OVERRUN, 1);
    tags_expect_event(&x, QRNIC_EVENT_CQ_ERROR, QRNIC_CQERR_OVERRUN,
                      x.cq.number);
    tags_expect_event(&x, QRNIC_EVENT_SRQ_ERROR, QRNIC_SYN_CQ_ERROR, x.srqn);
    tags_expect_event(&x, QRNIC_EVENT_QP_FATAL, QRNIC_WC_GENERAL_ERR,
                      x.qp.number);
    tags_expect_state(&x, &x.qp, QRNIC_QPS_ERR);
    tags_post(&x, tag_sync(0), NULL, 0);
    settle(x.r.d);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_TAG_OPS), ==,
                     (1 << x.cq.log_size) + 1);
    tags_others_live(&x);
    tags_stop(&x);
}

/* The next tests check messages. */

/*
 * Asserts that a message which is longer than the entry's buffer causes a NAK
 * and an error CQE. The message has one packet or several.
 */
static void too_long(uint32_t room, uint32_t len)
{
    Tags x;

    tags_start(&x, "");
    tags_add(&x, 0, TAG, ALL_BITS, room);
    tags_message(&x, EAGER, TAG, len);
    tags_send(&x, HEADER + len);
    tags_expect_nak(&x, AETH_NAK_INVALID_REQUEST);
    if (HEADER + len > PEER_MTU) {
        tags_expect_match(&x, 0, 0, QRNIC_WC_SUCCESS, 0, NULL);
    }
    tags_expect_entry(&x, 0, 0, QRNIC_WC_LOC_LEN_ERR, 0, 0);
    tags_expect_state(&x, &x.qp, QRNIC_QPS_ERR);
    tags_others_live(&x);
    /* The handle is free, and another queue pair of the SRQ continues. */
    tags_qp_create(&x, &x.qp);
    x.psn = RQ_PSN;
    tags_add(&x, 0, TAG, ALL_BITS, room);
    tags_eager(&x, TAG, MIN(room, 100));
    tags_expect_match(&x, 0, VALID, QRNIC_WC_SUCCESS, MIN(room, 100), NULL);
    tags_stop(&x);
}

static void test_too_long(void)
{
    too_long(99, 100);
    too_long(0, 1);
    too_long(1999, 2000);
}

/* Sends the response to the read of a rendezvous, in one packet. */
static void read_answer(Tags *x, const void *data, uint32_t len)
{
    PeerPacket p = peer_packet(&x->qp, RC_READ_ONLY, SQ_PSN);

    p.payload = data;
    p.length = len;
    p.syndrome = AETH_ACK | 31;
    peer_send(x->r.d, &p);
}

/*
 * Asserts that a key is rejected, and that the buffer does not change. The key
 * of a rendezvous is rejected when the response to the read arrives.
 */
static void bad_key(bool rendezvous)
{
    const uint8_t data[100] = { 0 };
    QrnicDataSeg seg;
    Tags x;

    tags_start(&x, "");
    seg = (QrnicDataSeg) {
        .address = x.r.mr.start, .length = 100, .lkey = x.r.mr.key ^ 1,
    };
    tags_post(&x, tag_add(0, TAG, ALL_BITS), &seg, 1);
    tags_expect_op(&x, QRNIC_CQE_TAG_ADD, 0);
    if (rendezvous) {
        tags_rendezvous(&x, TAG, VA, RKEY, 100);
        tags_send(&x, HEADERS);
        tags_expect_ack(&x);
        tags_expect_match(&x, 0, 0, QRNIC_WC_SUCCESS, 100, NULL);
        peer_expect(x.r.d, RC_READ_REQUEST, SQ_PSN);
        read_answer(&x, data, sizeof(data));
    } else {
        tags_message(&x, EAGER, TAG, 100);
        tags_send(&x, HEADER + 100);
        tags_expect_nak(&x, AETH_NAK_REMOTE_OP);
    }
    tags_expect_entry(&x, 0, 0, QRNIC_WC_LOC_PROT_ERR, QRNIC_SYN_KEY_INVALID,
                      0);
    counter_wait(x.r.d, QRNIC_COUNTER_GE_KEY_REFUSED, 1);
    tags_expect_state(&x, &x.qp, QRNIC_QPS_ERR);
    wire_silent(x.r.d);
    tags_others_live(&x);
    tags_stop(&x);
}

static void test_bad_key(void)
{
    bad_key(false);
    bad_key(true);
}

/*
 * Errors of the sender: an invalid key, no response, no receive WQE for the FIN
 */
static void rendezvous_begin(Tags *x)
{
    tags_start(x, "");
    tags_add(x, 0, TAG, ALL_BITS, 100);
    tags_rendezvous(x, TAG, VA, RKEY, 8);
    tags_send(x, HEADERS);
    tags_expect_ack(x);
    tags_expect_match(x, 0, 0, QRNIC_WC_SUCCESS, 8, NULL);
    peer_expect(x->r.d, RC_READ_REQUEST, SQ_PSN);
}

static void test_read_refused(void)
{
    Tags x;

    rendezvous_begin(&x);
    peer_ack(x.r.d, &x.qp, SQ_PSN, AETH_NAK_REMOTE_ACCESS, 0);
    tags_expect_entry(&x, 0, 0, QRNIC_WC_REM_ACCESS_ERR, 0, 0);
    tags_expect_state(&x, &x.qp, QRNIC_QPS_ERR);
    wire_silent(x.r.d);
    tags_others_live(&x);
    tags_stop(&x);
}

static void test_read_unanswered(void)
{
    Tags x;

    rendezvous_begin(&x);
    /* retry_cnt is 2. */
    for (unsigned i = 0; i < 2; i++) {
        clock_step(x.r.d, 300000000);
        peer_expect(x.r.d, RC_READ_REQUEST, SQ_PSN);
    }
    clock_step(x.r.d, 300000000);
    tags_expect_entry(&x, 0, 0, QRNIC_WC_RETRY_EXC_ERR, QRNIC_SYN_TIMEOUT, 0);
    tags_expect_state(&x, &x.qp, QRNIC_QPS_ERR);
    tags_others_live(&x);
    tags_stop(&x);
}

static void test_fin_refused(void)
{
    Tags x;

    rendezvous_begin(&x);
    read_answer(&x, "the data", 8);
    tags_expect_entry(&x, 0, VALID, QRNIC_WC_SUCCESS, 0, 8);
    peer_expect(x.r.d, RC_SEND_ONLY, SQ_PSN + 1);
    peer_ack(x.r.d, &x.qp, SQ_PSN + 1, AETH_NAK_REMOTE_OP, 0);
    tags_expect_event(&x, QRNIC_EVENT_QP_FATAL, QRNIC_WC_REM_OP_ERR,
                      x.qp.number);
    tags_no_cqe(&x);
    tags_expect_state(&x, &x.qp, QRNIC_QPS_ERR);
    tags_others_live(&x);
    tags_stop(&x);
}

/*
 * Tests a queue pair whose max_rd_atomic is 0, so that software has to read the
 * data of a rendezvous.
 */
static void test_may_not_read(void)
{
    QrnicQpAttr attr = qp_default_attr();
    uint8_t raw[QRNIC_CQE_SIZE];
    Tags x;

    tags_start(&x, "");
    attr.max_rd_atomic = 0;
    qp_create_srq(x.r.d, &x.qp, QRNIC_QPT_RC, x.r.pd, x.r.page, &x.r.send_cq,
                  &x.r.recv_cq, 4, x.srqn);
    qp_connect(x.r.d, &x.qp, &attr);
    tags_add(&x, 0, TAG, ALL_BITS, 100);
    tags_rendezvous(&x, TAG, VA, RKEY, 8);
    tags_send(&x, HEADERS);
    tags_expect_ack(&x);
    tags_expect_match(&x, 0, 0, QRNIC_WC_TM_RNDV_INCOMPLETE, HEADERS, raw);
    g_assert_cmphex(ldl_le_p(raw + 56), ==, QRNIC_SYN_RD_ATOMIC);
    wire_silent(x.r.d);
    tags_expect_state(&x, &x.qp, QRNIC_QPS_RTS);
    tags_stop(&x);
}

/*
 * Tests each way of flushing the queue pair while a rendezvous is in progress.
 */
static void test_flush(void)
{
    const QrnicQpAttr to[] = {
        { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR },
        { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET },
    };

    for (unsigned i = 0; i < 3; i++) {
        uint32_t number;
        QrnicCqe c;
        Tags x;

        rendezvous_begin(&x);
        number = x.qp.number;
        if (i < ARRAY_SIZE(to)) {
            qp_modify(x.r.d, &x.qp, &to[i]);
        } else {
            command_ok(x.r.d, QRNIC_CMD_DESTROY_QP, number, NULL, 0, NULL, 0);
        }
        c = tags_cqe(&x, QRNIC_WC_WR_FLUSH_ERR, QRNIC_CQE_TAG_RECV, ENTRY);
        g_assert_cmpuint(c.index, ==, 0);
        g_assert_cmpuint(c.qpn, ==, i ? 0 : number);
        /* The response of the peer is too late. */
        if (i < ARRAY_SIZE(to)) {
            peer_ack(x.r.d, &x.qp, SQ_PSN, AETH_NAK_REMOTE_ACCESS, 0);
        }
        tags_no_cqe(&x);
        tags_add(&x, 0, TAG, ALL_BITS, 100);
        tags_others_live(&x);
        tags_stop(&x);
    }
}

void add_tag_error_tests(void)
{
    qtest_add_func("qrnic/tag/refused", test_refused);
    qtest_add_func("qrnic/tag/reserved", test_reserved);
    qtest_add_func("qrnic/tag/users", test_users);
    qtest_add_data_func("qrnic/tag/off", "cap-tag-matching=off", test_off);
    qtest_add_data_func("qrnic/tag/off-without-srq", "cap-srq=off", test_off);
    qtest_add_func("qrnic/tag/bad-reserved", test_bad_reserved);
    qtest_add_func("qrnic/tag/bad-opcode", test_bad_opcode);
    qtest_add_func("qrnic/tag/bad-size", test_bad_size);
    qtest_add_func("qrnic/tag/bad-handle", test_bad_handle);
    qtest_add_func("qrnic/tag/bad-count", test_bad_count);
    qtest_add_func("qrnic/tag/count-back", test_count_back);
    qtest_add_func("qrnic/tag/broken-index", test_broken_index);
    qtest_add_func("qrnic/tag/broken-producer", test_broken_producer);
    qtest_add_func("qrnic/tag/unreachable", test_unreachable);
    qtest_add_func("qrnic/tag/cq-overrun", test_cq_overrun);
    qtest_add_func("qrnic/tag/too-long", test_too_long);
    qtest_add_func("qrnic/tag/bad-key", test_bad_key);
    qtest_add_func("qrnic/tag/read-refused", test_read_refused);
    qtest_add_func("qrnic/tag/read-unanswered", test_read_unanswered);
    qtest_add_func("qrnic/tag/fin-refused", test_fin_refused);
    qtest_add_func("qrnic/tag/may-not-read", test_may_not_read);
    qtest_add_func("qrnic/tag/flush", test_flush);
}
