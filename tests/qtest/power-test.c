/*
 * qrnic qtest: phases without activity: the VM is stopped, D3hot, no bus
 * mastering
 *
 * Programmer's Reference, chapter PCI.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"

#define D0 0
#define D3HOT 3

static void power(Device *d, unsigned state)
{
    uint8_t pm = qpci_find_capability(d->pci, PCI_CAP_ID_PM, 0);

    qpci_config_writew(d->pci, pm + PCI_PM_CTRL, state);
    g_assert_cmphex(qpci_config_readw(d->pci, pm + PCI_PM_CTRL) &
                    PCI_PM_CTRL_STATE_MASK, ==, state);
}

static void post_nop(Rig *r)
{
    Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);

    sq_post(r->d, &r->qp, &w);
}

static void post_recv(Rig *r)
{
    rq_post(r->d, &r->qp, &(QrnicDataSeg) {
        .address = RIG_MR_START, .length = 64, .lkey = r->mr.key,
    }, 1);
}

/* Sends a message of the peer with AckReq. */
static void peer_asks(Rig *r)
{
    PeerPacket p = peer_packet(&r->qp, RC_SEND_ONLY, RQ_PSN);

    p.ack_request = true;
    peer_send(r->d, &p);
}

static void peer_answered(Rig *r)
{
    QrnicCqe cqe;

    peer_expect(r->d, RC_ACK, RQ_PSN);
    cq_wait(r->d, &r->recv_cq, &cqe);
    g_assert_cmphex(cqe.status, ==, QRNIC_WC_SUCCESS);
}

/* Runs the main loop without access to the device. */
static void idle(Device *d)
{
    for (int i = 0; i < 32; i++) {
        qpci_config_readw(d->pci, PCI_VENDOR_ID);
    }
}

/*
 * Tests that loopback, commands and events do not change the memory of a
 * stopped VM.
 */
static void test_stopped(void)
{
    QrnicCmdEntry nop = { .opcode = QRNIC_CMD_NOP, .owner = 1 };
    uint8_t raw[QRNIC_CMD_ENTRY_BYTES];
    uint32_t consumer;
    QrnicCqe cqe;
    QrnicEqe eqe;
    Rig r;

    rig_start(&r, "", NULL);
    eq_arm(r.d, &r.eq);
    cq_arm(r.d, &r.send_cq, false);
    settle(r.d);
    consumer = reg_read(r.d, QRNIC_REG_CMD_CONSUMER);
    vm_stop(r.d);
    post_nop(&r);
    qrnic_cmd_entry_pack(raw, &nop);
    qtest_memwrite(r.d->qts, r.d->cmd_ring + sizeof(raw) *
                   (r.d->cmd_producer++ & ((1u << r.d->cmd_log_size) - 1)),
                   raw, sizeof(raw));
    reg_write(r.d, QRNIC_REG_CMD_DOORBELL, r.d->cmd_producer);
    wire_cut(r.d, true);
    settle(r.d);
    g_assert_false(cq_poll(r.d, &r.send_cq, &cqe));
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    g_assert_false(eq_poll(r.d, &r.async, &eqe));
    g_assert_false(interrupt_taken(r.d, 1));
    g_assert_cmpuint(reg_read(r.d, QRNIC_REG_CMD_CONSUMER), ==, consumer);
    vm_continue(r.d);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmphex(cqe.status, ==, QRNIC_WC_SUCCESS);
    interrupt_wait(r.d, 1);
    eq_wait(r.d, &r.async, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_PORT_DOWN);
    WAIT_UNTIL(reg_read(r.d, QRNIC_REG_CMD_CONSUMER) == consumer + 1,
               "the command does not complete");
    rig_stop(&r);
}

/* Frames that arrive while the VM is stopped are received later. */
static void test_stopped_receive(void)
{
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    post_recv(&r);
    settle(r.d);
    vm_stop(r.d);
    peer_asks(&r);
    wire_silent(r.d);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    vm_continue(r.d);
    peer_answered(&r);
    rig_stop(&r);
}

/*
 * Tests that the device does no DMA in D3hot and drops frames. In D0 it has all
 * its state again, and continues earlier work, as PCI requires.
 */
static void test_d3hot(void)
{
    QrnicCqe cqe;
    Rig r;
    Wqe w;

    rig_start(&r, "", NULL);
    post_recv(&r);
    eq_arm(r.d, &r.eq);
    cq_arm(r.d, &r.send_cq, false);
    cq_arm(r.d, &r.recv_cq, false);
    settle(r.d);
    /* The work is requested, but not done yet. */
    vm_stop(r.d);
    post_nop(&r);
    power(r.d, D3HOT);
    vm_continue(r.d);
    idle(r.d);
    g_assert_false(cq_poll(r.d, &r.send_cq, &cqe));
    peer_asks(&r);
    idle(r.d);
    g_assert_false(wire_pending(r.d));
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    g_assert_false(interrupt_taken(r.d, 1));

    power(r.d, D0);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmphex(cqe.status, ==, QRNIC_WC_SUCCESS);
    interrupt_wait(r.d, 1);
    /* The frame was dropped, so its sender retransmits it. */
    wire_silent(r.d);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    peer_asks(&r);
    peer_answered(&r);

    /* A timer sends nothing in D3hot; in D0 the device retransmits. */
    w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    wqe_data(&w, RIG_MR_START, 64, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    power(r.d, D3HOT);
    clock_step(r.d, NANOSECONDS_PER_SECOND);
    idle(r.d);
    g_assert_false(wire_pending(r.d));
    power(r.d, D0);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK | 31, 1);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmphex(cqe.status, ==, QRNIC_WC_SUCCESS);
    rig_stop(&r);
}

/*
 * Tests that a frame which arrives while bus mastering is off is dropped, and
 * that the repeated request gets its response.
 */
static void test_no_bus_master_receive(void)
{
    uint16_t command;
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    post_recv(&r);
    settle(r.d);
    command = qpci_config_readw(r.d->pci, PCI_COMMAND);
    qpci_config_writew(r.d->pci, PCI_COMMAND, command & ~PCI_COMMAND_MASTER);
    peer_asks(&r);
    wire_silent(r.d);
    qpci_config_writew(r.d->pci, PCI_COMMAND, command);
    wire_silent(r.d);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    peer_asks(&r);
    peer_answered(&r);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DMA_ERRORS), ==, 0);
    rig_stop(&r);
}

/*
 * Tests that an adapter without driver on a hub does not stop the sender of a
 * frame.
 */
static void test_no_driver_on_hub(void)
{
    QrnicCqe cqe;
    Rig r;
    Wqe w;
    Qp qp;

    if (skip_in_process("the process contains one device")) {
        return;
    }
    rig_start(&r, "netdev=one -netdev hubport,id=one,hubid=0 "
              "-netdev hubport,id=two,hubid=0 "
              "-device qrnic,id=other,netdev=two", NULL);
    qp_create(r.d, &qp, QRNIC_QPT_RC, r.pd, r.page, &r.recv_cq, &r.recv_cq, 5,
              3, 0);
    qp_connect(r.d, &qp, NULL);
    w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    wqe_data(&w, RIG_MR_START, 64, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    settle(r.d);
    w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);
    sq_post(r.d, &qp, &w);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.qpn, ==, qp.number);
    rig_stop(&r);
}

void add_power_tests(void)
{
    qtest_add_func("qrnic/power/stopped", test_stopped);
    qtest_add_func("qrnic/power/stopped-receive", test_stopped_receive);
    qtest_add_func("qrnic/power/d3hot", test_d3hot);
    qtest_add_func("qrnic/power/no-bus-master-receive",
                   test_no_bus_master_receive);
    qtest_add_func("qrnic/power/no-driver-on-hub", test_no_driver_on_hub);
}
