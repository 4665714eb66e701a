/*
 * qrnic qtest: doorbells as events (property ioeventfd)
 *
 * Without KVM QEMU signals the events itself. Programmer's Reference, chapter
 * Doorbells, section Doorbells as events.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"

#define EVENTS "ioeventfd=on,doorbell-pages=16"

static void post_unrung(Device *d, Qp *qp, const Mr *mr)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

    wqe_data(&w, mr->start, 16, mr->key);
    sq_write(d, qp, &w);
    sq_publish(d, qp);
}

/* Rings with an arbitrary value, because an event has no value. */
static void ring(Device *d, uint32_t page, unsigned offset)
{
    qpci_io_writeq(d->pci, d->doorbells, page * QRNIC_DB_PAGE_SIZE + offset,
                   UINT64_MAX);
}

static void test_value(void)
{
    Rig r;

    rig_start(&r, EVENTS, NULL);
    post_unrung(r.d, &r.qp, &r.mr);
    wire_silent(r.d);
    ring(r.d, r.page, QRNIC_DB_SQ);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DOORBELLS), ==, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DOORBELL_RECOVERIES), ==, 0);
    /* Other doorbells have values, such as an SRQ number of 24 bits. */
    ring(r.d, r.page, QRNIC_DB_SRQ);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_RESERVED, 1);
    rig_stop(&r);
}

/*
 * Tests that an event covers each queue of its page, and no queue of another
 * page, because the event has no queue number.
 */
static void test_page(void)
{
    Rig r;
    Qp same, other;
    uint32_t page;

    rig_start(&r, EVENTS, NULL);
    page = command_ok(r.d, QRNIC_CMD_ALLOC_DB_PAGE, 0, NULL, 0, NULL, 0);
    qp_create(r.d, &same, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq,
              4, 4, 0);
    qp_create(r.d, &other, QRNIC_QPT_RC, r.pd, page, &r.send_cq, &r.recv_cq,
              4, 4, 0);
    qp_connect(r.d, &same, NULL);
    qp_connect(r.d, &other, NULL);
    post_unrung(r.d, &r.qp, &r.mr);
    post_unrung(r.d, &same, &r.mr);
    post_unrung(r.d, &other, &r.mr);
    ring(r.d, r.page, QRNIC_DB_SQ);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    settle(r.d);
    wire_silent(r.d);
    ring(r.d, page, QRNIC_DB_SQ);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    rig_stop(&r);
}

static void test_arm(void)
{
    QrnicCqRecord record = { .sequence = 1 };
    Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);
    uint8_t raw[QRNIC_CQ_RECORD_BYTES];
    QrnicEqe eqe;
    Rig r;

    rig_start(&r, EVENTS, NULL);
    qrnic_cq_record_pack(raw, &record);
    qtest_memwrite(r.d->qts, r.send_cq.record, raw, sizeof(raw));
    ring(r.d, r.page, QRNIC_DB_CQ_ARM);
    counter_wait(r.d, QRNIC_COUNTER_DOORBELLS, 1);
    sq_post(r.d, &r.qp, &w);
    eq_wait(r.d, &r.eq, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_COMPLETION);
    g_assert_cmpuint(eqe.object, ==, r.send_cq.number);
    rig_stop(&r);
}

/*
 * Tests that a direct doorbell causes no event, because its WQE is in the
 * window.
 */
static void test_direct(void)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    uint64_t fetched;
    Rig r;

    rig_start(&r, EVENTS, NULL);
    fetched = counter(r.d, QRNIC_COUNTER_WQE_FETCHES);
    wqe_data(&w, r.mr.start, 16, r.mr.key);
    sq_post_direct(r.d, &r.qp, &w);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DIRECT_WQE_USED), ==, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_WQE_FETCHES), ==, fetched);
    rig_stop(&r);
}

static void test_no_page(void)
{
    Rig r;

    rig_start(&r, EVENTS, NULL);
    ring(r.d, 15, QRNIC_DB_SQ);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_PAGE, 1);
    rig_stop(&r);
}

/*
 * Doorbells of more pages than one run handles precede a command. The device
 * must process all of them before the command.
 */
static void test_before_command(void)
{
    QrnicCmdEntry entry = {
        .owner = 1, .opcode = QRNIC_CMD_DESTROY_QP,
    };
    Qp last;
    Rig r;

    rig_start(&r, EVENTS, NULL);
    for (int i = 0; i < 8; i++) {
        uint32_t page = command_ok(r.d, QRNIC_CMD_ALLOC_DB_PAGE, 0, NULL, 0,
                                   NULL, 0);

        qp_create(r.d, &last, QRNIC_QPT_RC, r.pd, page, &r.send_cq, &r.recv_cq,
                  4, 4, 0);
        qp_connect(r.d, &last, NULL);
    }
    entry.object = last.number;
    post_unrung(r.d, &last, &r.mr);
    vm_stop(r.d);
    for (uint32_t page = 0; page <= last.page; page++) {
        ring(r.d, page, QRNIC_DB_SQ);
    }
    command_begin(r.d, entry);
    vm_continue(r.d);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    WAIT_UNTIL(reg_read(r.d, QRNIC_REG_CMD_CONSUMER) == r.d->cmd_producer,
               "the queue pair is not destroyed");
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    rig_stop(&r);
}

/*
 * Tests that a doorbell which is pending at a reset is not counted as an error,
 * because its owner is gone after the reset.
 */
static void test_reset(void)
{
    Rig r;

    rig_start(&r, EVENTS, NULL);
    vm_stop(r.d);
    ring(r.d, r.page, QRNIC_DB_SQ);
    reg_write(r.d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    vm_continue(r.d);
    device_enable_commands(r.d, 3);
    settle(r.d);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GE_DOORBELL_PAGE), ==, 0);
    rig_stop(&r);
}

/*
 * Tests that doorbells work at the new address, and not at the old address,
 * after the BAR has moved.
 */
static void test_moved(void)
{
    uint64_t before;
    Rig r;

    rig_start(&r, EVENTS, NULL);
    before = r.d->doorbells.addr;
    post_unrung(r.d, &r.qp, &r.mr);
    qpci_config_writel(r.d->pci, PCI_BASE_ADDRESS_2,
                       before + r.d->doorbells_size);
    qtest_writeq(r.d->qts, before + r.page * QRNIC_DB_PAGE_SIZE, 0);
    wire_silent(r.d);
    r.d->doorbells.addr += r.d->doorbells_size;
    ring(r.d, r.page, QRNIC_DB_SQ);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    rig_stop(&r);
}

/*
 * Tests that the device can be unplugged while a doorbell event is unprocessed.
 */
static void test_unplug(void)
{
    Rig r;

    if (skip_in_process("QEMU 11.1 aborts if vfio-user-pci is unplugged")) {
        return;
    }
    rig_start_behind_port(&r, EVENTS);
    post_unrung(r.d, &r.qp, &r.mr);
    vm_stop(r.d);
    ring(r.d, r.page, QRNIC_DB_SQ);
    qtest_writew(r.d->qts, slot_control_address(r.d),
                 PCI_EXP_SLTCTL_PWR_OFF | PCI_EXP_SLTCTL_PWR_IND_OFF);
    vm_continue(r.d);
    qtest_qmp_eventwait(r.d->qts, "DEVICE_DELETED");
    clock_step(r.d, NANOSECONDS_PER_SECOND);
    rig_stop(&r);
}

void add_doorbell_event_tests(void)
{
    qtest_add_func("qrnic/doorbell-event/value", test_value);
    qtest_add_func("qrnic/doorbell-event/page", test_page);
    qtest_add_func("qrnic/doorbell-event/arm", test_arm);
    qtest_add_func("qrnic/doorbell-event/direct", test_direct);
    qtest_add_func("qrnic/doorbell-event/no-page", test_no_page);
    qtest_add_func("qrnic/doorbell-event/before-command", test_before_command);
    qtest_add_func("qrnic/doorbell-event/reset", test_reset);
    qtest_add_func("qrnic/doorbell-event/moved", test_moved);
    qtest_add_func("qrnic/doorbell-event/unplug", test_unplug);
}
