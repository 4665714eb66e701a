/*
 * qrnic qtest: effects of another device behind a DMA or message address
 *
 * Software chooses the addresses. An address may be a register whose access
 * waits for a disk. The wait runs an event loop, which can run this device
 * again, reset it, or unplug it. A QEMU with sanitizers finds most.
 * Programmer's Reference, chapter PCI.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"
#include "libqos/libqos-malloc.h"
#include "libqos/virtio-pci.h"
#include "standard-headers/linux/virtio_blk.h"
#include "standard-headers/linux/virtio_pci.h"

/* Memory of the disk, behind the range of memory_alloc() */
#define DISK_MEMORY 0x07000000
#define DISK_MEMORY_END 0x08000000
#define DISK_DEVFN QPCI_DEVFN(7, 0)
/*
 * Latency of the disk, which is so long that the access is in flight when the
 * device works, on any machine
 */
#define DISK_LATENCY_MS 1000
#define DISK_LATENCY "1000000000"
#define WITH_DISK \
    "max-gid=128 -blockdev driver=null-aio,node-name=slow,read-zeroes=on," \
    "latency-ns=" DISK_LATENCY " -device virtio-blk-pci,drive=slow," \
    "bus=pcie.0,addr=07.0,disable-legacy=on,ioeventfd=off"

/*
 * Value of Slot Control that powers the slot off, as before a card is removed
 */
#define SLOT_OFF (PCI_EXP_SLTCTL_PWR_OFF | PCI_EXP_SLTCTL_PWR_IND_OFF)

typedef struct Disk {
    QGuestAllocator alloc;
    QVirtioPCIDevice *pci;
    QVirtQueue *queue;
} Disk;

static uint64_t disk_status_address(Disk *disk)
{
    return disk->pci->bar.addr + disk->pci->common_cfg_offset +
           offsetof(struct virtio_pci_common_cfg, device_status);
}

static void disk_start(Device *d, Disk *disk)
{
    QPCIAddress address = { .devfn = DISK_DEVFN };
    QVirtioDevice *v;

    alloc_init(&disk->alloc, ALLOC_NO_FLAGS, DISK_MEMORY, DISK_MEMORY_END,
               4096);
    disk->pci = virtio_pci_new(d->bus, &address);
    g_assert_nonnull(disk->pci);
    v = &disk->pci->vdev;
    qvirtio_pci_device_enable(disk->pci);
    qvirtio_start_device(v);
    qvirtio_set_features(v, 1ull << VIRTIO_F_VERSION_1);
    disk->queue = qvirtqueue_setup(v, &disk->alloc, 0);
    qvirtio_set_driver_ok(v);
}

/*
 * Starts a read that takes DISK_LATENCY. A reset of the disk waits for the
 * read.
 */
static void disk_read(Device *d, Disk *disk)
{
    uint64_t request = guest_alloc(&disk->alloc, 1024);
    uint32_t head;

    qtest_memset(d->qts, request, 0, 1024);
    head = qvirtqueue_add(d->qts, disk->queue, request, 16, false, true);
    qvirtqueue_add(d->qts, disk->queue, request + 16, 512, true, true);
    qvirtqueue_add(d->qts, disk->queue, request + 528, 1, true, false);
    qvirtqueue_kick(d->qts, &disk->pci->vdev, disk->queue, head);
    /* The index of the used ring is 0, because the read is not complete. */
    g_assert_cmpuint(qtest_readw(d->qts, disk->queue->used + 2), ==, 0);
}

static void disk_stop(Device *d, Disk *disk)
{
    qvirtqueue_cleanup(disk->pci->vdev.bus, disk->queue, &disk->alloc);
    g_free(disk->pci->pdev);
    g_free(disk->pci);
    alloc_destroy(&disk->alloc);
}

static bool disk_was_reset(Device *d, Disk *disk)
{
    return !disk->pci->vdev.bus->get_status(&disk->pci->vdev);
}

static void post_nop(Rig *r)
{
    Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);

    sq_post(r->d, &r->qp, &w);
}

/* Writes commands without input into the ring, and rings once. */
static void commands_post(Device *d, const QrnicCmdEntry *entry, unsigned count)
{
    uint8_t raw[QRNIC_CMD_ENTRY_BYTES];

    for (unsigned i = 0; i < count; i++) {
        uint32_t slot = (d->cmd_producer + i) & ((1u << d->cmd_log_size) - 1);

        qrnic_cmd_entry_pack(raw, &entry[i]);
        qtest_memwrite(d->qts, d->cmd_ring + slot * sizeof(raw), raw,
                       sizeof(raw));
    }
    d->cmd_producer += count;
    reg_write(d, QRNIC_REG_CMD_DOORBELL, d->cmd_producer);
}

static void commands_wait(Device *d)
{
    WAIT_UNTIL(reg_read(d, QRNIC_REG_CMD_CONSUMER) == d->cmd_producer,
               "commands do not complete");
}

static uint8_t command_status(Device *d, unsigned back)
{
    uint32_t slot = (d->cmd_producer - back) & ((1u << d->cmd_log_size) - 1);
    uint8_t raw[QRNIC_CMD_ENTRY_BYTES];
    QrnicCmdEntry entry;

    qtest_memread(d->qts, d->cmd_ring + slot * sizeof(raw), raw, sizeof(raw));
    g_assert_true(qrnic_cmd_entry_unpack(&entry, raw));
    g_assert_cmpuint(entry.owner, ==, 0);
    return entry.status;
}

/*
 * Tests a CQ whose ring is in registers of a disk. The device writes no byte
 * there. The failed access is counted and reported like any other, for reads
 * and writes.
 */
static void test_dma_reaches_memory_only(void)
{
    uint8_t raw[QRNIC_CQ_CTX_BYTES];
    uint64_t errors;
    QrnicCqCtx ctx;
    QrnicCqe cqe;
    QrnicEqe eqe;
    Disk disk;
    Cq cq;
    Qp qp;
    Rig r;
    Wqe w;

    if (skip_in_process("DMA of a process reaches memory, and no device")) {
        return;
    }
    rig_start(&r, WITH_DISK, NULL);
    disk_start(r.d, &disk);
    cq = (Cq) { .log_size = 4, .page = r.page };
    cq.record = memory_alloc(r.d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE);
    ctx = (QrnicCqCtx) {
        .eqn = r.eq.number, .db_page = r.page, .log_size = 4,
        .record = cq.record,
        .ring = contiguous(disk.pci->bar.addr + disk.pci->common_cfg_offset),
    };
    qrnic_cq_ctx_pack(raw, &ctx);
    cq.number = command_ok(r.d, QRNIC_CMD_CREATE_CQ, 0, raw, sizeof(raw), NULL,
                           0);
    qp_create(r.d, &qp, QRNIC_QPT_RC, r.pd, r.page, &cq, &r.recv_cq, 5, 3, 0);
    qp_connect(r.d, &qp, NULL);
    errors = counter(r.d, QRNIC_COUNTER_DMA_ERRORS);
    w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);
    sq_post(r.d, &qp, &w);
    eq_wait(r.d, &r.async, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_CQ_ERROR);
    g_assert_cmphex(eqe.subtype, ==, QRNIC_CQERR_DMA);
    g_assert_cmpuint(eqe.object, ==, cq.number);
    g_assert_false(disk_was_reset(r.d, &disk));
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DMA_ERRORS), ==, errors + 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GE_DMA_FAILED), ==, errors + 1);

    /* The mailbox of a command is in the device's own registers. */
    g_assert_cmpint(command_raw(r.d, (QrnicCmdEntry) {
        .opcode = QRNIC_CMD_MODIFY_PORT, .owner = 1, .in_len = 16,
        .in_addr = r.d->control.addr,
    }).status, ==, QRNIC_ST_DMA);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DMA_ERRORS), ==, errors + 2);

    /* Other queues continue. */
    post_nop(&r);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmphex(cqe.status, ==, QRNIC_WC_SUCCESS);
    disk_stop(r.d, &disk);
    rig_stop(&r);
}

/*
 * Tests that memory of another device is memory like any other. Here it is the
 * frame buffer of a display.
 */
static void test_peer_to_peer(void)
{
    uint8_t raw[QRNIC_PORT_ATTR_BYTES] = { 0 };
    QPCIDevice *display;
    QrnicPortAttr attr;
    QPCIBar bar;
    Device *d;

    if (skip_in_process("DMA of a process reaches memory, and no device")) {
        return;
    }
    d = device_start("max-gid=128 -device secondary-vga,romfile=,"
                     "bus=pcie.0,addr=07.0");
    display = qpci_device_find(d->bus, QPCI_DEVFN(7, 0));
    g_assert_nonnull(display);
    qpci_device_enable(display);
    bar = qpci_iomap(display, 0, NULL);
    g_assert_cmpint(command_raw(d, (QrnicCmdEntry) {
        .opcode = QRNIC_CMD_QUERY_PORT, .owner = 1,
        .out_addr = bar.addr + 4096, .out_len = sizeof(raw),
    }).status, ==, QRNIC_ST_OK);
    qtest_memread(d->qts, bar.addr + 4096, raw, sizeof(raw));
    g_assert_true(qrnic_port_attr_unpack(&attr, raw));
    g_assert_cmpuint(attr.state, ==, QRNIC_PORT_ACTIVE);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_DMA_ERRORS), ==, 0);
    g_free(display);
    device_stop(d);
}

/*
 * Tests a completion whose interrupt message resets a disk that is reading. The
 * reset waits for the disk and runs bottom halves. The queue pair, the CQ and
 * the EQ that sent the message are still in use, although commands to destroy
 * them are pending.
 */
static void test_work_does_not_enter_itself(void)
{
    QrnicCqe cqe;
    Disk disk;
    Rig r;

    if (skip_in_process("DMA of a process reaches memory, and no device")) {
        return;
    }
    rig_start(&r, WITH_DISK, NULL);
    disk_start(r.d, &disk);
    message_set(r.d, 1, disk_status_address(&disk), 0);
    eq_arm(r.d, &r.eq);
    cq_arm(r.d, &r.send_cq, false);
    settle(r.d);
    /* The VM is stopped, so that all work is pending when the device runs. */
    vm_stop(r.d);
    post_nop(&r);
    post_nop(&r);
    commands_post(r.d, (QrnicCmdEntry[]) {
        { .opcode = QRNIC_CMD_DESTROY_QP, .object = r.qp.number, .owner = 1 },
        { .opcode = QRNIC_CMD_DESTROY_CQ, .object = r.send_cq.number,
          .owner = 1 },
        { .opcode = QRNIC_CMD_DESTROY_CQ, .object = r.recv_cq.number,
          .owner = 1 },
        { .opcode = QRNIC_CMD_DESTROY_EQ, .object = r.eq.number, .owner = 1 },
    }, 4);
    disk_read(r.d, &disk);
    vm_continue(r.d);
    commands_wait(r.d);
    g_assert_true(disk_was_reset(r.d, &disk));
    for (unsigned i = 1; i <= 4; i++) {
        g_assert_cmpint(command_status(r.d, i), ==, QRNIC_ST_OK);
    }
    /* The queue pair existed until its work was done. */
    for (unsigned i = 0; i < 2; i++) {
        g_assert_true(cq_poll(r.d, &r.send_cq, &cqe));
        g_assert_cmphex(cqe.status, ==, QRNIC_WC_SUCCESS);
        g_assert_cmpuint(cqe.qpn, ==, r.qp.number);
    }
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_CQES), ==, 2);
    disk_stop(r.d, &disk);
    rig_stop(&r);
}

/*
 * Tests an interrupt message that starts a Function Level Reset of the device
 * that sends it.
 */
static void test_reset_waits(void)
{
    uint8_t exp;
    Rig r;

    rig_start(&r, "", NULL);
    exp = qpci_find_capability(r.d->pci, PCI_CAP_ID_EXP, 0);
    message_set(r.d, 1, config_address(r.d, r.d->devfn, exp + PCI_EXP_DEVCTL),
                PCI_EXP_DEVCTL_BCR_FLR);
    eq_arm(r.d, &r.eq);
    cq_arm(r.d, &r.send_cq, false);
    post_nop(&r);
    WAIT_UNTIL(!(qpci_config_readw(r.d->pci, PCI_COMMAND) &
                 PCI_COMMAND_MASTER), "the message resets nothing");
    qpci_config_writel(r.d->pci, PCI_BASE_ADDRESS_0, r.d->control.addr);
    qpci_config_writel(r.d->pci, PCI_BASE_ADDRESS_0 + 4 * QRNIC_BAR_DOORBELL,
                       r.d->doorbells.addr);
    qpci_device_enable(r.d->pci);
    g_assert_cmphex(reg_read(r.d, QRNIC_REG_STATUS), ==,
                    QRNIC_REG_STATUS_READY_MASK | QRNIC_REG_STATUS_LINK_MASK);
    device_enable_commands(r.d, 3);
    command_fails(r.d, QRNIC_CMD_QUERY_QP, r.qp.number, NULL, 0, NULL,
                  QRNIC_QP_ATTR_BYTES, QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 1);
    rig_stop(&r);
}

/* Prepares an interrupt message that unplugs the device that sends it. */
static void unplug_prepare(Rig *r)
{
    rig_start_behind_port(r, "");
    message_set(r->d, 1, slot_control_address(r->d), SLOT_OFF);
    cq_arm(r->d, &r->send_cq, false);
    cq_arm(r->d, &r->recv_cq, false);
}

static void unplug_check(Rig *r)
{
    uint8_t frame[64] = OUR_MAC PEER_MAC "\x08\x00";

    qtest_qmp_eventwait(r->d->qts, "DEVICE_DELETED");
    g_assert_cmphex(qpci_config_readl(r->d->pci, PCI_VENDOR_ID), ==,
                    UINT32_MAX);
    wire_send(r->d, frame, sizeof(frame));
    wire_send(r->d, frame, sizeof(frame));
    clock_step(r->d, NANOSECONDS_PER_SECOND);
    /* The backend is free for another device; the socket of a cable is not. */
    if (!r->d->cable) {
        qtest_qmp_assert_success(r->d->qts, "{'execute': 'device_add', "
                                 "'arguments': {'driver': 'qrnic', "
                                 "'id': 'second', 'bus': 'above', "
                                 "'netdev': 'wire'}}");
    }
    rig_stop(r);
}

static void test_unplug_in_work(void)
{
    Rig r;

    if (skip_in_process("QEMU 11.1 aborts if vfio-user-pci is unplugged")) {
        return;
    }
    unplug_prepare(&r);
    eq_arm(r.d, &r.eq);
    post_nop(&r);
    unplug_check(&r);
}

/* Tests that a device that an interrupt has unplugged does not stop at it. */
static void test_unplug_before_stop(void)
{
    Rig r;

    if (skip_in_process("QEMU 11.1 aborts if vfio-user-pci is unplugged")) {
        return;
    }
    unplug_prepare(&r);
    eq_arm(r.d, &r.eq);
    stop_at(r.d, "interrupt");
    post_nop(&r);
    unplug_check(&r);
}

static void test_unplug_in_receive(void)
{
    PeerPacket p;
    Rig r;

    if (skip_in_process("QEMU 11.1 aborts if vfio-user-pci is unplugged")) {
        return;
    }
    unplug_prepare(&r);
    eq_arm(r.d, &r.eq);
    rq_post(r.d, &r.qp, &(QrnicDataSeg) {
        .address = RIG_MR_START, .length = 64, .lkey = r.mr.key,
    }, 1);
    settle(r.d);
    p = peer_packet(&r.qp, RC_SEND_ONLY, RQ_PSN);
    /* The second frame waits in the queue that delivers the first. */
    vm_stop(r.d);
    peer_send(r.d, &p);
    p.psn = (RQ_PSN + 1) & 0xffffff;
    peer_send(r.d, &p);
    vm_continue(r.d);
    unplug_check(&r);
}

static void test_unplug_in_doorbell(void)
{
    QrnicEqe eqe;
    Rig r;

    if (skip_in_process("QEMU 11.1 aborts if vfio-user-pci is unplugged")) {
        return;
    }
    unplug_prepare(&r);
    post_nop(&r);
    WAIT_UNTIL(eq_poll(r.d, &r.eq, &eqe), "no EQE");
    cq_arm(r.d, &r.send_cq, false);
    post_nop(&r);
    settle(r.d);
    /* An event is pending, so arming sends the message. */
    eq_arm(r.d, &r.eq);
    unplug_check(&r);
}

void add_reentry_tests(void)
{
    qtest_add_func("qrnic/reentry/dma-reaches-memory-only",
                   test_dma_reaches_memory_only);
    qtest_add_func("qrnic/reentry/peer-to-peer", test_peer_to_peer);
    qtest_add_func("qrnic/reentry/work-does-not-enter-itself",
                   test_work_does_not_enter_itself);
    qtest_add_func("qrnic/reentry/reset-waits", test_reset_waits);
    qtest_add_func("qrnic/reentry/unplug-in-work", test_unplug_in_work);
    qtest_add_func("qrnic/reentry/unplug-before-stop", test_unplug_before_stop);
    qtest_add_func("qrnic/reentry/unplug-in-receive", test_unplug_in_receive);
    qtest_add_func("qrnic/reentry/unplug-in-doorbell",
                   test_unplug_in_doorbell);
}
