/*
 * qrnic qtest: keys that change: memory windows, fast registration,
 * invalidation, MODIFY_MKEY, null regions
 *
 * Programmer's Reference, chapter Memory.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define WINDOW_START (RIG_MR_START + 0x2000)
#define REMOTE (QRNIC_ACCESS_REMOTE_WRITE | QRNIC_ACCESS_REMOTE_READ)

static void key_modify(Rig *r, uint32_t key, QrnicMkeyCtx ctx)
{
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];

    ctx.pd = r->pd;
    qrnic_mkey_ctx_pack(raw, &ctx);
    command_ok(r->d, QRNIC_CMD_MODIFY_MKEY, key >> 8, raw, sizeof(raw), NULL,
               0);
}

/* Returns a second key of the rig's region, which allows windows. */
static QrnicMkeyCtx region(Rig *r)
{
    return (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .variant = 0x11,
        .access = ALL_RIGHTS | QRNIC_ACCESS_MW_BIND,
        .start = RIG_MR_START, .length = RIG_MR_LENGTH,
        .table = contiguous(r->mr.memory),
    };
}

/* Sends a write of 8 bytes. Asserts an ACK, or this NAK. */
static void peer_write(Rig *r, uint32_t psn, uint64_t va, uint32_t key,
                       const char *text, unsigned answer)
{
    PeerPacket p = peer_packet(&r->qp, RC_WRITE_ONLY, psn);

    p.ack_request = true;
    p.va = va;
    p.rkey = key;
    p.dma_length = p.length = 8;
    p.payload = (const uint8_t *)text;
    peer_send(r->d, &p);
    p = peer_expect(r->d, RC_ACK, psn);
    g_assert_cmphex(p.syndrome & 0x60, ==, answer & 0x60);
    if (answer) {
        g_assert_cmphex(p.syndrome, ==, answer);
    }
}

static void memory_is(Rig *r, uint64_t offset, const char *text)
{
    uint8_t got[8];

    rig_read(r, offset, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), text, sizeof(got));
}

/*
 * Tests a window that is bound, used, and invalidated by the peer's send. The
 * device rejects the window afterwards.
 */
static void test_window(void)
{
    Rig r;
    QrnicBindSeg bind = {
        .address = WINDOW_START, .length = 0x100, .access = REMOTE,
        .flags = QRNIC_MWF_ZERO_BASED,
    };
    Wqe w = wqe_begin(QRNIC_WQE_BIND_MW, QRNIC_WQEF_SIGNALED);
    PeerPacket p;
    QrnicCqe cqe;

    rig_start(&r, "", NULL);
    rq_post(r.d, &r.qp, &(QrnicDataSeg) { RIG_MR_START, 100, r.mr.key }, 1);
    bind.lkey = rig_key_create(&r, region(&r));
    bind.key = rig_key_create(&r, (QrnicMkeyCtx) { .type = QRNIC_MKEY_MW_2 }) |
               0x42;
    wqe_bind(&w, &bind);
    sq_post(r.d, &r.qp, &w);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_BIND_MW, QRNIC_SYN_NONE);
    wire_silent(r.d);
    peer_write(&r, RQ_PSN, 0x20, bind.key, "windowed", 0);
    memory_is(&r, 0x2020, "windowed");
    command_fails(r.d, QRNIC_CMD_DESTROY_MKEY, bind.lkey >> 8, NULL, 0, NULL,
                  0, QRNIC_ST_BUSY, 0);

    p = peer_packet(&r.qp, RC_SEND_ONLY_INV, RQ_PSN + 1);
    p.ack_request = true;
    p.imm = bind.key;
    p.payload = (const uint8_t *)"over";
    p.length = 4;
    peer_send(r.d, &p);
    p = peer_expect(r.d, RC_ACK, RQ_PSN + 1);
    g_assert_cmphex(p.syndrome & 0x60, ==, AETH_ACK);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmphex(cqe.flags, ==, QRNIC_CQEF_INV);
    g_assert_cmphex(cqe.imm, ==, bind.key);
    g_assert_cmpuint(cqe.byte_len, ==, 4);
    command_ok(r.d, QRNIC_CMD_DESTROY_MKEY, bind.lkey >> 8, NULL, 0, NULL, 0);
    peer_write(&r, RQ_PSN + 2, 0x20, bind.key, "refused!",
               AETH_NAK_REMOTE_ACCESS);
    rig_stop(&r);
}

/*
 * Tests that a queue pair of the kernel may register pages. A queue pair of a
 * process may not, because pages are physical addresses.
 */
static void test_fast_reg(void)
{
    Rig r;
    Qp kernel;
    QrnicCqe cqe;
    QrnicRegSeg reg = {
        .access = ALL_RIGHTS, .start = 0x7000, .length = 0x1800,
        .table = { .levels = 1, .page_shift = 12, .offset = 0x800 },
    };
    Wqe w = wqe_begin(QRNIC_WQE_REG_MR, QRNIC_WQEF_SIGNALED);
    Wqe send = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    PeerPacket p;

    rig_start(&r, "", NULL);
    qp_create(r.d, &kernel, QRNIC_QPT_RC, r.pd, 0, &r.send_cq, &r.recv_cq, 4,
              2, 0);
    qp_connect(r.d, &kernel, NULL);
    reg.key = rig_key_create(&r, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_FAST_REG, .length = 0x10000,
    }) | 0x77;
    reg.table.root = memory_alloc(r.d, 16, 8);
    qtest_writeq(r.d->qts, reg.table.root, r.mr.memory + 0x5000);
    qtest_writeq(r.d->qts, reg.table.root + 8, r.mr.memory + 0x3000);
    wqe_reg(&w, &reg);
    /*
     * One doorbell starts both WQEs, because the send must use the registration
     * before it.
     */
    qtest_memwrite(r.d->qts, r.mr.memory + 0x5ffc, "left", 4);
    qtest_memwrite(r.d->qts, r.mr.memory + 0x3000, "over", 4);
    wqe_data(&send, 0x7000 + 0x7fc, 8, reg.key);
    sq_write(r.d, &kernel, &w);
    sq_post(r.d, &kernel, &send);
    p = peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    g_assert_cmpmem(p.payload, p.length, "leftover", 8);
    peer_ack(r.d, &kernel, SQ_PSN, AETH_ACK | 31, 1);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_MR, QRNIC_SYN_NONE);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND, QRNIC_SYN_NONE);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_FAST_REGISTRATIONS), ==, 1);

    w = wqe_begin(QRNIC_WQE_REG_MR, QRNIC_WQEF_SIGNALED);
    wqe_reg(&w, &reg);
    sq_post(r.d, &r.qp, &w);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_LOC_QP_OP_ERR);
    g_assert_cmpuint(cqe.syndrome, ==, QRNIC_SYN_WQE_OPCODE);
    rig_stop(&r);
}

/* Sends with invalidate of one and of several packets, byte by byte */
static void test_send_inv(void)
{
    Rig r;
    uint8_t data[1500];
    Wqe w = wqe_begin(QRNIC_WQE_SEND_INV, QRNIC_WQEF_SIGNALED);
    PeerPacket p;

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, data, sizeof(data), 9);
    w.ctrl.imm = 0x12345678;
    wqe_data(&w, r.mr.start, 5, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_SEND_ONLY_INV, SQ_PSN);
    g_assert_cmphex(p.imm, ==, 0x12345678);
    g_assert_cmpmem(p.payload, p.length, data, 5);
    w = wqe_begin(QRNIC_WQE_SEND_INV, QRNIC_WQEF_SIGNALED);
    w.ctrl.imm = 0x9abcdef0;
    wqe_data(&w, r.mr.start, 1500, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_SEND_FIRST, SQ_PSN + 1);
    g_assert_cmpmem(p.payload, p.length, data, 1024);
    p = peer_expect(r.d, RC_SEND_LAST_INV, SQ_PSN + 2);
    g_assert_cmphex(p.imm, ==, 0x9abcdef0);
    g_assert_cmpmem(p.payload, p.length, data + 1024, 476);
    peer_ack(r.d, &r.qp, SQ_PSN + 2, AETH_ACK | 31, 2);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND, QRNIC_SYN_NONE);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND, QRNIC_SYN_NONE);
    rig_stop(&r);
}

/*
 * Tests that the device rejects a send of the peer that invalidates a key whose
 * type a peer must not invalidate.
 */
static void test_send_inv_refused(void)
{
    Rig r;
    PeerPacket p;
    QrnicCqe cqe;

    rig_start(&r, "", NULL);
    rq_post(r.d, &r.qp, &(QrnicDataSeg) { RIG_MR_START, 100, r.mr.key }, 1);
    p = peer_packet(&r.qp, RC_SEND_ONLY_INV, RQ_PSN);
    p.ack_request = true;
    p.imm = r.mr.key;
    peer_send(r.d, &p);
    cq_wait(r.d, &r.recv_cq, &cqe);
    settle(r.d);
    wire_silent(r.d);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_MW_BIND_ERR);
    g_assert_cmpuint(cqe.syndrome, ==, QRNIC_SYN_KEY_TYPE);
    rig_stop(&r);
}

/* Tests that MODIFY_MKEY keeps the index and changes place and variant. */
static void test_modify(void)
{
    Rig r;
    QrnicMkeyCtx ctx;
    uint32_t key;

    rig_start(&r, "", NULL);
    ctx = region(&r);
    key = rig_key_create(&r, ctx);
    peer_write(&r, RQ_PSN, RIG_MR_START, key, "before..", 0);
    memory_is(&r, 0, "before..");
    ctx.start = 0;
    ctx.length = 0x1000;
    ctx.variant = 0x12;
    ctx.table = contiguous(r.mr.memory + 0x4000);
    key_modify(&r, key, ctx);
    peer_write(&r, RQ_PSN + 1, 8, key + 1, "after...", 0);
    memory_is(&r, 0x4008, "after...");
    peer_write(&r, RQ_PSN + 2, RIG_MR_START, key, "stale...",
               AETH_NAK_REMOTE_ACCESS);
    rig_stop(&r);
}

static void test_null(void)
{
    Rig r;
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    uint8_t data[4];
    PeerPacket p;
    uint32_t key;

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, data, sizeof(data), 1);
    key = rig_key_create(&r, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_NULL_MR, .variant = 1,
        .access = QRNIC_ACCESS_LOCAL_WRITE,
    });
    wqe_data(&w, 0xdead, 3, key);
    wqe_data(&w, r.mr.start, 4, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    g_assert_cmpmem(p.payload, 3, "\0\0\0", 3);
    g_assert_cmpmem(p.payload + 3, p.length - 3, data, 4);
    rig_stop(&r);
}

static void test_off(void)
{
    static const struct { unsigned type, opcode; } what[] = {
        { QRNIC_MKEY_MW_1, QRNIC_WQE_BIND_MW },
        { QRNIC_MKEY_FAST_REG, QRNIC_WQE_LOCAL_INV },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(what); i++) {
        uint8_t raw[QRNIC_MKEY_CTX_BYTES];
        QrnicMkeyCtx ctx = { .type = what[i].type };
        Wqe w = wqe_begin(what[i].opcode, 0);
        QrnicCqe cqe;
        Rig r;

        rig_start(&r, "cap-mw=off,cap-fast-reg=off,cap-indirect-mkey=off",
                  NULL);
        ctx.pd = r.pd;
        qrnic_mkey_ctx_pack(raw, &ctx);
        command_fails(r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL, 0,
                      QRNIC_ST_NOT_SUPPORTED, QRNIC_MKEY_CTX_TYPE_OFFSET);
        sq_post(r.d, &r.qp, &w);
        cq_wait(r.d, &r.send_cq, &cqe);
        g_assert_cmpuint(cqe.syndrome, ==, QRNIC_SYN_WQE_OPCODE);
        rig_stop(&r);
    }
}

void add_key_tests(void)
{
    qtest_add_func("qrnic/key/window", test_window);
    qtest_add_func("qrnic/key/fast-reg", test_fast_reg);
    qtest_add_func("qrnic/key/send-inv", test_send_inv);
    qtest_add_func("qrnic/key/send-inv-refused", test_send_inv_refused);
    qtest_add_func("qrnic/key/modify", test_modify);
    qtest_add_func("qrnic/key/null", test_null);
    qtest_add_func("qrnic/key/off", test_off);
}
