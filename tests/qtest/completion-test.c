/*
 * qrnic qtest: completion queues that change: size, moderation
 *
 * Programmer's Reference, chapter Completion and events.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

static void nop(Rig *r)
{
    Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);

    sq_post(r->d, &r->qp, &w);
}

static void expect(Rig *r, uint32_t index)
{
    QrnicCqe cqe;

    cq_wait(r->d, &r->send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.index, ==, index);
}

/*
 * Tests a resize from 64 entries to 4, with two CQEs in the queue. The producer
 * index has wrapped in both rings.
 */
static void test_resize(void)
{
    uint8_t raw[QRNIC_CQ_RESIZE_BYTES];
    QrnicCqResize in = { .log_size = 2 };
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    for (uint32_t i = 0; i < 70; i++) {
        nop(&r);
        expect(&r, i);
    }
    nop(&r);
    nop(&r);
    settle(r.d);
    in.ring = contiguous(memory_alloc(r.d, QRNIC_CQE_SIZE << 2, 4096));
    qrnic_cq_resize_pack(raw, &in);
    command_ok(r.d, QRNIC_CMD_RESIZE_CQ, r.send_cq.number, raw, sizeof(raw),
               NULL, 0);
    r.send_cq.ring = in.ring.root;
    r.send_cq.log_size = 2;
    expect(&r, 70);
    expect(&r, 71);
    g_assert_false(cq_poll(r.d, &r.send_cq, &cqe));
    for (uint32_t i = 72; i < 90; i++) {
        nop(&r);
        expect(&r, i);
        g_assert_false(cq_poll(r.d, &r.send_cq, &cqe));
    }
    /* Five CQEs do not fit into four entries. */
    for (int i = 0; i < 4; i++) {
        nop(&r);
    }
    settle(r.d);
    in.log_size = 1;
    qrnic_cq_resize_pack(raw, &in);
    command_fails(r.d, QRNIC_CMD_RESIZE_CQ, r.send_cq.number, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BAD_PARAM,
                  QRNIC_CQ_RESIZE_LOG_SIZE_OFFSET);
    expect(&r, 90);
    rig_stop(&r);
}

/*
 * Tests that a moderated CQ sends its event after three CQEs or after 100 us of
 * the virtual clock.
 */
static void test_moderation(void)
{
    uint8_t raw[QRNIC_CQ_MODERATION_BYTES];
    QrnicCqModeration in = { .count = 3, .period = 100 };
    QrnicEqe eqe;
    Rig r;

    rig_start(&r, "", NULL);
    qrnic_cq_moderation_pack(raw, &in);
    command_ok(r.d, QRNIC_CMD_MODIFY_CQ, r.send_cq.number, raw, sizeof(raw),
               NULL, 0);
    cq_arm(r.d, &r.send_cq, false);
    nop(&r);
    nop(&r);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    nop(&r);
    eq_wait(r.d, &r.eq, &eqe);
    g_assert_cmpuint(eqe.object, ==, r.send_cq.number);
    for (uint32_t i = 0; i < 3; i++) {
        expect(&r, i);
    }
    cq_arm(r.d, &r.send_cq, false);
    nop(&r);
    expect(&r, 3);
    clock_step(r.d, 99 * SCALE_US);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    clock_step(r.d, 2 * SCALE_US);
    eq_wait(r.d, &r.eq, &eqe);
    rig_stop(&r);
}

static void test_off(void)
{
    uint8_t raw[QRNIC_CQ_RESIZE_BYTES] = { 0 };
    Rig r;

    rig_start(&r, "cap-cq-resize=off,cap-cq-moderation=off", NULL);
    command_fails(r.d, QRNIC_CMD_RESIZE_CQ, r.send_cq.number, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_NOT_SUPPORTED, 0);
    command_fails(r.d, QRNIC_CMD_MODIFY_CQ, r.send_cq.number, raw,
                  QRNIC_CQ_MODERATION_BYTES, NULL, 0, QRNIC_ST_NOT_SUPPORTED,
                  0);
    rig_stop(&r);
}

void add_completion_tests(void)
{
    qtest_add_func("qrnic/completion/resize", test_resize);
    qtest_add_func("qrnic/completion/moderation", test_moderation);
    qtest_add_func("qrnic/completion/off", test_off);
}
