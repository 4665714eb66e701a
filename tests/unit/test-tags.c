/*
 * Tag matching: selection of the buffer, operations of the list, the counts
 * that synchronize device and software, and errors of CREATE_TAG_LIST
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/memory/memory.h"
#include "tags-world.h"

/* Selection of the entry */

/*
 * Tests that the first matching entry of the list is used, in any order of
 * handles.
 */
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

/* Tests that a tag with ones outside of its mask matches nothing. */
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

/*
 * Tests messages of several packets: the first one matches, the last one
 * completes.
 */
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
    /* This message has exactly the length of the buffer. */
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
    /* None of these was unexpected, so the entry is active. */
    send_eager(w, 0, 1, 16);
    settle(w);
    expect_eager(w, 0, w->sent - 1, 16);
    world_free(w);
}

/*
 * Tests that the device sends an RNR NAK without a WQE. An entry that is added
 * then matches the retransmitted message.
 */
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

/* Tests the example of the manual. */
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
    /* Later entries are suspended too, until the counts are equal. */
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
    /*
     * An operation with the right count suffices, so that no extra operation is
     * needed.
     */
    n = send_eager(w, 0, 9, 14);
    settle(w);
    expect_unexpected(w, 0, n, HEADER + 14);
    entry_post(w, with_count(add_op(0, 9, ALL), 4), BUFFER);
    n = send_eager(w, 0, 9, 15);
    settle(w);
    expect_eager(w, 0, n, 15);
    world_free(w);
}

/*
 * Tests that an entry that was suspended first becomes the last active entry of
 * the list.
 */
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

/* Messages with more than data */

/* Makes a key of the receiver that the peer may invalidate. */
static uint32_t key_registered(World *w, uint32_t key)
{
    uint64_t list = sim_alloc(w->b, 64);
    const QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_FAST_REG, .variant = 7, .pd = w->b->pd,
        .length = 4096,
    };
    QrnicRegSeg reg = {
        .key = key ? key + 1 : sim_mkey_ctx(w->b, &ctx), .access = ACCESS_ALL,
        .start = 0x5000, .length = 4096,
        .table = { .root = list, .levels = 1, .page_shift = 12 },
    };
    SimWr wr = {
        .opcode = QRNIC_WQE_REG_MR, .flags = QRNIC_WQEF_SIGNALED, .reg = &reg,
    };

    stq_le_p(w->b->memory + list, sim_alloc(w->b, 4096));
    sim_post_send(w->to[0], &wr);
    settle(w);
    expect_cqe(w->to[0], QRNIC_WC_SUCCESS, QRNIC_CQE_REG_MR);
    return reg.key;
}

static uint32_t send_with(World *w, uint8_t opcode, uint32_t imm, uint64_t tag,
                          uint32_t len)
{
    uint32_t number = w->sent++;
    SimSge sge = {
        w->source + number % MESSAGES * BUFFER, HEADER + len, w->source_key
    };
    SimWr wr = {
        .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED, .imm = imm,
        .sge = &sge, .num_sge = 1,
    };

    memset(source_of(w, number), 0, HEADER);
    source_of(w, number)[0] = EAGER;
    stl_be_p(source_of(w, number) + 4, number);
    stq_be_p(source_of(w, number) + 8, tag);
    sim_post_send(w->from[0], &wr);
    settle(w);
    return number;
}

/* Asserts that the CQE of the complete data has the additional value. */
static void more(uint8_t opcode, uint8_t flag, uint32_t len, bool matched)
{
    World *w = world_new(1, 1);
    uint32_t key = flag == QRNIC_CQEF_INV ? key_registered(w, 0) : 0x1a2b3c4d;
    QrnicCqe c;
    uint32_t n;

    if (matched) {
        add(w, 3, 1, ALL);
        settle(w);
    }
    n = send_with(w, opcode, key, 1, len);
    c = next_cqe(w);
    if (matched && HEADER + len > 256) {
        g_assert_cmphex(c.tagged, ==, ENTRY | MATCH);
        g_assert_cmphex(c.flags, ==, 0);
        c = next_cqe(w);
        g_assert_cmphex(c.tagged, ==, ENTRY | VALID);
    } else {
        g_assert_cmphex(c.tagged, ==, matched ? ENTRY | MATCH | VALID : 0);
    }
    g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmphex(c.opcode, ==, matched ? QRNIC_CQE_TAG_RECV :
                                            QRNIC_CQE_TAG_UNEXPECTED);
    g_assert_cmphex(c.flags, ==, flag);
    g_assert_cmphex(c.imm, ==, key);
    g_assert_cmpint(c.byte_len, ==, matched ? len : HEADER + len);
    if (matched) {
        expect_eager_data(w, 3, n, len);
    }
    expect_nothing(w);
    expect_sent(w, 0);
    if (flag == QRNIC_CQEF_INV) {
        g_assert_cmpint(counted(w, QRNIC_COUNTER_REMOTE_INVALIDATIONS), ==, 1);
        /* The key is invalid, so it can be registered again. */
        key_registered(w, key);
    }
    world_free(w);
}

static void test_immediate(void)
{
    for (unsigned i = 0; i < 4; i++) {
        more(QRNIC_WQE_SEND_IMM, QRNIC_CQEF_IMM, i % 2 ? 1000 : 10, i / 2);
    }
}

static void test_invalidate(void)
{
    for (unsigned i = 0; i < 4; i++) {
        more(QRNIC_WQE_SEND_INV, QRNIC_CQEF_INV, i % 2 ? 1000 : 10, i / 2);
    }
}

/*
 * Tests a key that must not be invalidated. No NAK is sent, and the completion
 * of the entry has the error.
 */
static void test_invalidate_refused(void)
{
    for (unsigned matched = 0; matched < 2; matched++) {
        World *w = world_new(1, 1);
        QrnicCqe c;

        if (matched) {
            add(w, 3, 1, ALL);
            settle(w);
        }
        send_with(w, QRNIC_WQE_SEND_INV, w->entry_key, 1, 10);
        c = next_cqe(w);
        g_assert_cmpint(c.status, ==, QRNIC_WC_MW_BIND_ERR);
        g_assert_cmpint(c.syndrome, ==, QRNIC_SYN_KEY_TYPE);
        g_assert_cmphex(c.tagged, ==, matched ? ENTRY : 0);
        g_assert_cmphex(c.opcode & QRNIC_CQE_RECV, !=, 0);
        expect_nothing(w);
        expect_state(w->to[0], QRNIC_QPS_ERR);
        /* The handle is free, and no unexpected message remains to report. */
        add(w, 3, 1, ALL);
        op_post(w, sync_op(0), NULL, 0);
        settle(w);
        expect_op(w, QRNIC_CQE_TAG_SYNC, QRNIC_WC_SUCCESS, 0, 0);
        world_free(w);
    }
}

/* Tests that a write with immediate data does not match, with any content. */
static void test_write_immediate(void)
{
    World *w = world_new(1, 1);
    SimSge sge = { w->source, HEADER + 10, w->source_key };
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE_IMM, .flags = QRNIC_WQEF_SIGNALED,
        .imm = 0x55667788, .remote = w->wqes + BUFFER, .rkey = w->wqe_key,
        .sge = &sge, .num_sge = 1,
    };
    QrnicCqe c;
    uint32_t n;

    add(w, 0, 0, 0);
    settle(w);
    w->a->memory[w->source] = EAGER;
    sim_post_send(w->from[0], &wr);
    settle(w);
    c = next_cqe(w);
    g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmphex(c.opcode, ==, QRNIC_CQE_RECV_RDMA_WITH_IMM);
    g_assert_cmphex(c.tagged, ==, 0);
    g_assert_cmphex(c.imm, ==, 0x55667788);
    g_assert_cmpint(counted(w, QRNIC_COUNTER_TAG_UNTAGGED), ==, 0);
    n = send_eager(w, 0, 9, 10);
    settle(w);
    expect_eager(w, 0, n, 10);
    world_free(w);
}

/* Operations */

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
    /* The ring is filled several times. */
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

/* Tests operations that break each rule once. The operation only completes. */
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
    /* 2 was never added. */
    op_post(w, del_op(2), NULL, 0);
    settle(w);
    expect_op(w, QRNIC_CQE_TAG_DEL, QRNIC_WC_TM_ERR, QRNIC_SYN_TAG_HANDLE, 0);
    world_free(w);
}

/*
 * Breaks the list. One event reports that, and entries and WQEs remain usable.
 */
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

/* Tests that an overrun of the CQ stops the list and its queue pairs. */
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

/*
 * Tests that the list is scanned later if its doorbell is lost in a full FIFO.
 */
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

/* Commands */

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
    /* These are valid users of such an SRQ. */
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
    /* The list keeps its CQ busy. */
    g_assert_cmpint(qrnic_cq_destroy(w->b->engine, w->cq->cq).status, ==,
                    QRNIC_ST_BUSY);
    world_free(w);
}

/*
 * Tests that the number of entries of all lists is limited, and that freed
 * entries are available again.
 */
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
 * Tests that a target has no requester for rendezvous, so no entry may be lost.
 */
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

/*
 * Tests that a search without a match is charged to the work budget of a run,
 * which is checked after some frames. Otherwise a peer could block the main
 * loop with a long list.
 */
static void test_work(void)
{
    enum { MANY = QRNIC_MAX_TAGS, SENT = WQES - 1, FRAMES = 16 };
    World *w = world_local(7, MANY);
    uint64_t before, work, all = 0;

    for (uint32_t i = 0; i < MANY; i++) {
        QrnicTagOp op = add_op(i, i, ALL);

        op.data_segments = 0;
        op_post(w, op, NULL, 0);
        if (i % 32 == 31) {
            settle(w);
        }
    }
    for (uint32_t i = 0; i < SENT; i++) {
        send_eager(w, 0, MANY, 8);
    }
    while (counted(w, QRNIC_COUNTER_TAG_UNEXPECTED) < SENT) {
        before = counted(w, QRNIC_COUNTER_TAG_COMPARED);
        g_assert_true(w->a->kicked);
        w->a->kicked = false;
        qrnic_engine_run(w->a->engine, QRNIC_RUN_ROUNDS);
        work = counted(w, QRNIC_COUNTER_TAG_COMPARED) - before;
        g_assert_cmpuint(work, <=,
                         8 * QRNIC_WORK_PER_RUN + FRAMES * MANY);
        all += work;
    }
    g_assert_cmpuint(all, ==, SENT * MANY);
    settle(w);
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
    g_test_add_func("/tags/immediate", test_immediate);
    g_test_add_func("/tags/invalidate", test_invalidate);
    g_test_add_func("/tags/invalidate-refused", test_invalidate_refused);
    g_test_add_func("/tags/write-immediate", test_write_immediate);
    g_test_add_func("/tags/operations", test_operations);
    g_test_add_func("/tags/bad-operations", test_bad_operations);
    g_test_add_func("/tags/broken", test_broken);
    g_test_add_func("/tags/cq-overrun", test_cq_overrun);
    g_test_add_func("/tags/doorbell-lost", test_doorbell_lost);
    g_test_add_func("/tags/refused", test_refused);
    g_test_add_func("/tags/all-tags", test_all_tags);
    g_test_add_func("/tags/dynamic-target", test_dynamic_target);
    g_test_add_func("/tags/work", test_work);
    return g_test_run();
}
