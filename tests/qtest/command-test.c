/*
 * qrnic qtest: the command queue and every command, with valid and invalid
 * input
 *
 * Programmer's Reference, chapter Commands.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"

#define OBJECT_ITSELF UINT32_MAX

typedef struct CommandInfo {
    unsigned opcode, in_len, out_len;
    bool object;
} CommandInfo;

/*
 * Lengths and objects of each command. This is an independent copy of the
 * manual's table, because a shared table could hide an error.
 */
static const CommandInfo commands[] = {
    { QRNIC_CMD_NOP },
    { QRNIC_CMD_QUERY_DEVICE, 0, 128 },
    { QRNIC_CMD_QUERY_PORT, 0, 64 },
    { QRNIC_CMD_MODIFY_PORT, 16, 0 },
    { QRNIC_CMD_ALLOC_DB_PAGE },
    { QRNIC_CMD_FREE_DB_PAGE, 0, 0, true },
    { QRNIC_CMD_ALLOC_PD },
    { QRNIC_CMD_FREE_PD, 0, 0, true },
    { QRNIC_CMD_SET_PASID, 8, 0, true },
    { QRNIC_CMD_CREATE_EQ, 64, 0 },
    { QRNIC_CMD_DESTROY_EQ, 0, 0, true },
    { QRNIC_CMD_QUERY_EQ, 0, 64, true },
    { QRNIC_CMD_CREATE_CQ, 64, 0 },
    { QRNIC_CMD_DESTROY_CQ, 0, 0, true },
    { QRNIC_CMD_QUERY_CQ, 0, 64, true },
    { QRNIC_CMD_RESIZE_CQ, 32, 0, true },
    { QRNIC_CMD_MODIFY_CQ, 8, 0, true },
    { QRNIC_CMD_CREATE_MKEY, 64, 0 },
    { QRNIC_CMD_DESTROY_MKEY, 0, 0, true },
    { QRNIC_CMD_QUERY_MKEY, 0, 64, true },
    { QRNIC_CMD_MODIFY_MKEY, 64, 0, true },
    { QRNIC_CMD_CREATE_QP, 128, 0 },
    { QRNIC_CMD_MODIFY_QP, 128, 0, true },
    { QRNIC_CMD_QUERY_QP, 0, 128, true },
    { QRNIC_CMD_DESTROY_QP, 0, 0, true },
    { QRNIC_CMD_CREATE_SRQ, 64, 0 },
    { QRNIC_CMD_MODIFY_SRQ, 8, 0, true },
    { QRNIC_CMD_RESIZE_SRQ, 32, 0, true },
    { QRNIC_CMD_QUERY_SRQ, 0, 64, true },
    { QRNIC_CMD_DESTROY_SRQ, 0, 0, true },
    { QRNIC_CMD_SET_GID, 32, 0, true },
    { QRNIC_CMD_CLEAR_GID, 0, 0, true },
    { QRNIC_CMD_QUERY_GID, 0, 32, true },
    { QRNIC_CMD_SET_RX_FILTER, 512, 0 },
    { QRNIC_CMD_CREATE_FLOW, 160, 0, true },
    { QRNIC_CMD_DESTROY_FLOW, 0, 0, true },
};

/*
 * Tests that the device checks lengths first, then reserved bits, then objects.
 */
static void test_lengths_and_objects(void)
{
    Device *d = device_start("");
    uint8_t mailbox[QRNIC_CMD_MAX_MAILBOX] = { 0 };

    for (unsigned i = 0; i < ARRAY_SIZE(commands); i++) {
        const CommandInfo *c = &commands[i];

        command_fails(d, c->opcode, 0, mailbox, c->in_len + 8, NULL,
                      c->out_len, QRNIC_ST_BAD_INPUT_LENGTH, 0);
        if (c->in_len) {
            command_fails(d, c->opcode, 0, mailbox, c->in_len - 8, NULL,
                          c->out_len, QRNIC_ST_BAD_INPUT_LENGTH, 0);
        }
        if (c->out_len) {
            command_fails(d, c->opcode, 0, mailbox, c->in_len, NULL,
                          c->out_len - 8, QRNIC_ST_BAD_OUTPUT_LENGTH, 0);
        }
        /* The device has no virtual functions (sriov-test.c). */
        if (c->object && !c->in_len && c->opcode != QRNIC_CMD_QUERY_VF) {
            command_fails(d, c->opcode, 0x00ffffff, NULL, 0, NULL, c->out_len,
                          QRNIC_ST_BAD_OBJECT, OBJECT_ITSELF);
        }
        if (c->in_len) {
            memset(mailbox, 0xff, c->in_len);
            g_assert_cmpint(command(d, c->opcode, 0, mailbox, c->in_len, NULL,
                                    c->out_len).status, ==, QRNIC_ST_RESERVED);
            memset(mailbox, 0, c->in_len);
        }
    }
    device_stop(d);
}

static void test_unknown_opcode(void)
{
    Device *d = device_start("");

    command_fails(d, 0, 0, NULL, 0, NULL, 0, QRNIC_ST_BAD_OPCODE, 0);
    command_fails(d, 0x7777, 0, NULL, 0, NULL, 0, QRNIC_ST_BAD_OPCODE, 0);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_COMMANDS_FAILED), ==, 2);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_COMMAND_FAILED), ==, 2);
    device_stop(d);
}

/* Tests reserved bits of the command entry. */
static void test_entry_reserved(void)
{
    Device *d = device_start("");
    uint64_t slot = d->cmd_ring;

    qtest_writel(d->qts, slot, QRNIC_CMD_NOP);
    qtest_writel(d->qts, slot + QRNIC_CMD_ENTRY_RSVD0_OFFSET, 1);
    qtest_writel(d->qts, slot + QRNIC_CMD_ENTRY_CONTROL_OFFSET, 1u << 31);
    reg_write(d, QRNIC_REG_CMD_DOORBELL, ++d->cmd_producer);
    WAIT_UNTIL(!(qtest_readl(d->qts, slot + QRNIC_CMD_ENTRY_CONTROL_OFFSET) >>
                 31), "the command does not complete");
    g_assert_cmphex(qtest_readl(d->qts, slot + QRNIC_CMD_ENTRY_CONTROL_OFFSET),
                    ==, QRNIC_ST_RESERVED);
    device_stop(d);
}

/*
 * Tests more commands than the ring has entries. The ring wraps and keeps the
 * order.
 */
static void test_ring_wrap(void)
{
    Device *d = device_start("");

    for (uint32_t i = 1; i <= 30; i++) {
        command_ok(d, QRNIC_CMD_NOP, 0, NULL, 0, NULL, 0);
        g_assert_cmpuint(reg_read(d, QRNIC_REG_CMD_CONSUMER), ==, i);
    }
    device_stop(d);
}

/* Tests one doorbell for several entries, then a doorbell beyond the ring. */
static void test_ring_batch(void)
{
    Device *d = device_start("");
    QrnicCmdEntry entry = { .opcode = QRNIC_CMD_NOP, .owner = 1 };
    uint8_t raw[QRNIC_CMD_ENTRY_BYTES];

    for (int i = 0; i < 8; i++) {
        entry.token = i;
        qrnic_cmd_entry_pack(raw, &entry);
        qtest_memwrite(d->qts, d->cmd_ring + i * sizeof(raw), raw, sizeof(raw));
    }
    reg_write(d, QRNIC_REG_CMD_DOORBELL, 9);
    settle(d);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_CMD_CONSUMER), ==, 0);
    reg_write(d, QRNIC_REG_CMD_DOORBELL, 8);
    d->cmd_producer = 8;
    settle(d);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_CMD_CONSUMER), ==, 8);
    for (int i = 0; i < 8; i++) {
        g_assert_cmphex(qtest_readl(d->qts, d->cmd_ring + i * sizeof(raw) +
                                    QRNIC_CMD_ENTRY_CONTROL_OFFSET), ==, 0);
    }
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_COMMAND_RING), ==, 1);
    device_stop(d);
}

/*
 * Tests that the device ignores an entry without the owner bit, because
 * software may still be writing it.
 */
static void test_ring_owner(void)
{
    Device *d = device_start("");
    QrnicCmdEntry entry = { .opcode = QRNIC_CMD_NOP };
    uint8_t raw[QRNIC_CMD_ENTRY_BYTES];

    qrnic_cmd_entry_pack(raw, &entry);
    qtest_memwrite(d->qts, d->cmd_ring, raw, sizeof(raw));
    reg_write(d, QRNIC_REG_CMD_DOORBELL, 1);
    settle(d);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_CMD_CONSUMER), ==, 0);
    /* With the owner bit, the next doorbell executes the entry. */
    command_ok(d, QRNIC_CMD_NOP, 0, NULL, 0, NULL, 0);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_COMMAND_RING), ==, 1);
    device_stop(d);
}

static void test_disabled(void)
{
    Device *d = device_start_bare("", true);

    reg_write(d, QRNIC_REG_CMD_DOORBELL, 1);
    device_enable_commands(d, 2);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_COMMAND_RING), ==, 1);
    /* The indices are 0 after a stop and a start. */
    reg_write(d, QRNIC_REG_CONTROL, 0);
    g_assert_cmphex(reg_read(d, QRNIC_REG_STATUS) &
                    QRNIC_REG_STATUS_CMD_ENABLED_MASK, ==, 0);
    device_enable_commands(d, 1);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_CMD_CONSUMER), ==, 0);
    command_ok(d, QRNIC_CMD_NOP, 0, NULL, 0, NULL, 0);
    device_stop(d);
}

/*
 * Tests that the command queue is disabled during RESIZE_CQ. The device then
 * stops writing to the new ring, and the CQ continues in its old ring.
 */
static void test_disabled_resize(void)
{
    const unsigned log_size = 18, last = (1u << log_size) - 1;
    uint8_t raw[QRNIC_CQ_RESIZE_BYTES];
    QrnicCqResize in = { .log_size = log_size };
    QrnicCmdEntry entry = {
        .opcode = QRNIC_CMD_RESIZE_CQ, .in_len = sizeof(raw), .owner = 1,
    };
    Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);
    uint64_t ring, end;
    QrnicCqe cqe;
    Rig r;

    if (skip_in_process("the command may end before the next access")) {
        return;
    }
    rig_start(&r, "", NULL);
    ring = memory_alloc(r.d, (size_t)QRNIC_CQE_SIZE << log_size, 4096);
    end = ring + (uint64_t)last * QRNIC_CQE_SIZE;
    qtest_memset(r.d->qts, ring, 0xa5, (size_t)QRNIC_CQE_SIZE << log_size);
    in.ring = contiguous(ring);
    qrnic_cq_resize_pack(raw, &in);
    entry.object = r.send_cq.number;
    entry.in_addr = memory_alloc(r.d, sizeof(raw), 8);
    qtest_memwrite(r.d->qts, entry.in_addr, raw, sizeof(raw));
    command_begin(r.d, entry);
    reg_write(r.d, QRNIC_REG_CONTROL, 0);
    g_assert_cmphex(reg_read(r.d, QRNIC_REG_STATUS) &
                    QRNIC_REG_STATUS_CMD_ENABLED_MASK, ==, 0);
    /*
     * Asserts that the command was in progress; otherwise this test could not
     * fail.
     */
    g_assert_cmphex(qtest_readb(r.d->qts, ring), !=, 0xa5);
    g_assert_cmphex(qtest_readb(r.d->qts, end), ==, 0xa5);
    qtest_memset(r.d->qts, ring, 0xa5, (size_t)QRNIC_CQE_SIZE << log_size);
    for (unsigned i = 0; i < 64; i++) {
        settle(r.d);
    }
    for (unsigned i = 0; i <= last; i++) {
        if (i % 61 == 0 || i == last) {
            g_assert_cmphex(qtest_readb(r.d->qts, ring + (uint64_t)i *
                                        QRNIC_CQE_SIZE), ==, 0xa5);
        }
    }
    sq_post(r.d, &r.qp, &w);
    cq_wait(r.d, &r.send_cq, &cqe);
    /* The enabled queue executes commands, RESIZE_CQ included. */
    device_enable_commands(r.d, 3);
    in.log_size = 4;
    qrnic_cq_resize_pack(raw, &in);
    command_ok(r.d, QRNIC_CMD_RESIZE_CQ, r.send_cq.number, raw, sizeof(raw),
               NULL, 0);
    r.send_cq.ring = ring;
    r.send_cq.log_size = 4;
    w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);
    sq_post(r.d, &r.qp, &w);
    cq_wait(r.d, &r.send_cq, &cqe);
    rig_stop(&r);
}

static void test_event(void)
{
    Device *d = device_start("");
    QrnicCmdEntry entry = {
        .opcode = QRNIC_CMD_NOP, .token = 0xabcd, .owner = 1, .event = 1,
    };
    QrnicEqe eqe;
    Eq eq;

    eq_create(d, &eq, QRNIC_EQ_ASYNC, 3, 4);
    eq_arm(d, &eq);
    command_ok(d, QRNIC_CMD_NOP, 0, NULL, 0, NULL, 0);
    settle(d);
    g_assert_false(interrupt_taken(d, 3));
    command_raw(d, entry);
    interrupt_wait(d, 3);
    g_assert_true(eq_poll(d, &eq, &eqe));
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_COMMAND);
    g_assert_cmphex(eqe.data, ==, 0xabcd);
    g_assert_cmpuint(eqe.object, ==, (d->cmd_producer - 1) & 7);
    /* The EQ is not armed, so the event is written without a message. */
    command_raw(d, entry);
    settle(d);
    g_assert_false(interrupt_taken(d, 3));
    /*
     * The EQ has an event beyond the consumer index, so arming sends the
     * message at once.
     */
    eq_arm(d, &eq);
    interrupt_wait(d, 3);
    g_assert_true(eq_poll(d, &eq, &eqe));
    g_assert_false(eq_poll(d, &eq, &eqe));
    device_stop(d);
}

static void nop_ring(Device *d, uint16_t token)
{
    QrnicCmdEntry entry = {
        .opcode = QRNIC_CMD_NOP, .token = token, .owner = 1,
    };
    uint32_t slot = d->cmd_producer & ((1u << d->cmd_log_size) - 1);
    uint8_t raw[QRNIC_CMD_ENTRY_BYTES];

    qrnic_cmd_entry_pack(raw, &entry);
    qtest_memwrite(d->qts, d->cmd_ring + slot * sizeof(raw), raw, sizeof(raw));
    reg_write(d, QRNIC_REG_CMD_DOORBELL, ++d->cmd_producer);
}

static void event_ask(Device *d, uint32_t slot, uint16_t token)
{
    reg_write(d, QRNIC_REG_CMD_EVENT, slot | (uint32_t)token << 16);
}

static void event_expect(Device *d, Eq *eq, uint32_t slot, uint16_t token)
{
    QrnicEqe eqe;

    eq_wait(d, eq, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_COMMAND);
    g_assert_cmpuint(eqe.object, ==, slot);
    g_assert_cmphex(eqe.data, ==, token);
    settle(d);
    g_assert_false(eq_poll(d, eq, &eqe));
}

/*
 * Tests event requests that software makes while the command is pending, and
 * after its completion.
 */
static void test_event_asked(void)
{
    Device *d = device_start("");
    QrnicEqe eqe;
    Eq eq;

    eq_create(d, &eq, QRNIC_EQ_ASYNC, 3, 4);
    g_assert_cmpuint(d->cmd_producer & 7, ==, 1);
    vm_stop(d);
    nop_ring(d, 0x1001);
    nop_ring(d, 0x1002);
    /* The event has the token of the entry, not that of the request. */
    event_ask(d, 2, 0x9999);
    event_ask(d, 2, 0x9999);
    settle(d);
    g_assert_false(eq_poll(d, &eq, &eqe));
    vm_continue(d);
    event_expect(d, &eq, 2, 0x1002);

    event_ask(d, 1, 0x1001);
    event_expect(d, &eq, 1, 0x1001);
    /* Each request causes one event only. */
    for (int i = 0; i < 8; i++) {
        command_ok(d, QRNIC_CMD_NOP, 0, NULL, 0, NULL, 0);
    }
    settle(d);
    g_assert_false(eq_poll(d, &eq, &eqe));
    /* Without an EQ the request has no effect. */
    command_ok(d, QRNIC_CMD_DESTROY_EQ, eq.number, NULL, 0, NULL, 0);
    event_ask(d, 1, 0x1001);
    command_ok(d, QRNIC_CMD_NOP, 0, NULL, 0, NULL, 0);
    device_stop(d);
}

/*
 * Tests that the device forgets an event request when software disables the
 * command queue or resets the device.
 */
static void test_event_asked_before(void)
{
    Device *d = device_start("");
    QrnicEqe eqe;
    Eq eq;

    eq_create(d, &eq, QRNIC_EQ_ASYNC, 3, 4);
    vm_stop(d);
    nop_ring(d, 0x1001);
    event_ask(d, 1, 0x1001);
    reg_write(d, QRNIC_REG_CONTROL, 0);
    vm_continue(d);
    device_enable_commands(d, 2);
    nop_ring(d, 0x2001);
    nop_ring(d, 0x2002);
    settle(d);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_CMD_CONSUMER), ==, 2);
    g_assert_false(eq_poll(d, &eq, &eqe));

    vm_stop(d);
    nop_ring(d, 0x2003);
    event_ask(d, 2, 0x2003);
    reg_write(d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    vm_continue(d);
    device_enable_commands(d, 2);
    eq_create(d, &eq, QRNIC_EQ_ASYNC, 3, 4);
    nop_ring(d, 0x3002);
    nop_ring(d, 0x3003);
    settle(d);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_CMD_CONSUMER), ==, 3);
    g_assert_false(eq_poll(d, &eq, &eqe));
    device_stop(d);
}

static void test_event_bad(void)
{
    Device *d = device_start_bare("", true);

    event_ask(d, 0, 0);
    device_enable_commands(d, 2);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_COMMAND_RING), ==, 1);
    event_ask(d, 4, 0);
    event_ask(d, 255, 0xffff);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_COMMAND_RING), ==, 3);
    event_ask(d, 0x100, 0);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_REGISTER_VALUE), ==, 1);
    reg_read(d, QRNIC_REG_CMD_EVENT);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_REGISTER_ACCESS), ==, 1);
    device_stop(d);

    d = device_start("cap-command-event=off");
    event_ask(d, 0, 0);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_REGISTER_ACCESS), ==, 1);
    device_stop(d);
}

/* Returns the commands that were left to the main loop since the last call. */
static unsigned left(const char *log)
{
    static gsize seen;
    g_autofree char *text = NULL;
    gsize length;
    unsigned n = 0;

    g_assert_true(g_file_get_contents(log, &text, &length, NULL));
    for (char *at = text + MIN(seen, length);
         (at = strstr(at, "qrnic_command_later")); at++) {
        n++;
    }
    seen = length;
    return n;
}

/*
 * Tests that an idle device executes a command before the doorbell's write
 * returns. This holds for one command, which must be short, and only while the
 * VM runs.
 */
static void test_at_once(void)
{
    g_autofree char *log = NULL, *options = NULL;
    uint8_t raw[QRNIC_CMD_ENTRY_BYTES];
    uint32_t dm;
    Device *d;

    close(g_file_open_tmp("qrnic-XXXXXX", &log, NULL));
    options = g_strdup_printf("max-pd=9 -trace qrnic_command_later -D %s", log);
    d = device_start(options);
    for (int i = 0; i < 20; i++) {
        uint32_t pdn = command_ok(d, QRNIC_CMD_ALLOC_PD, 0, NULL, 0, NULL, 0);

        command_ok(d, QRNIC_CMD_FREE_PD, pdn, NULL, 0, NULL, 0);
    }
    g_assert_cmpuint(left(log), ==, 0);

    nop_ring(d, 1);
    for (int i = 0; i < 2; i++) {
        uint32_t slot = (d->cmd_producer + i) & 7;
        QrnicCmdEntry entry = { .opcode = QRNIC_CMD_NOP, .owner = 1 };

        qrnic_cmd_entry_pack(raw, &entry);
        qtest_memwrite(d->qts, d->cmd_ring + slot * sizeof(raw), raw,
                       sizeof(raw));
    }
    d->cmd_producer += 2;
    reg_write(d, QRNIC_REG_CMD_DOORBELL, d->cmd_producer);
    settle(d);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_CMD_CONSUMER), ==, d->cmd_producer);
    g_assert_cmpuint(left(log), ==, 1);

    vm_stop(d);
    nop_ring(d, 2);
    g_assert_cmpuint(left(log), ==, 1);
    vm_continue(d);
    settle(d);

    memset(raw, 0, sizeof(raw));
    stq_le_p(raw, QRNIC_DM_PAGE_SIZE);
    dm = command_ok(d, QRNIC_CMD_ALLOC_DM, 0, raw, QRNIC_DM_CTX_BYTES, NULL, 0);
    g_assert_cmpuint(left(log), ==, 1);
    command_ok(d, QRNIC_CMD_FREE_DM, dm, NULL, 0, NULL, 0);
    g_assert_cmpuint(left(log), ==, 1);
    device_stop(d);
    unlink(log);
}

static void test_mailbox_dma(void)
{
    Device *d = device_start("");
    QrnicCmdEntry entry = {
        .opcode = QRNIC_CMD_QUERY_PORT, .owner = 1,
        .out_addr = 0x7000000000ull, .out_len = 64,
    };

    g_assert_cmpint(command_raw(d, entry).status, ==, QRNIC_ST_DMA);
    entry = (QrnicCmdEntry) {
        .opcode = QRNIC_CMD_MODIFY_PORT, .owner = 1,
        .in_addr = 0x7000000000ull, .in_len = 16,
    };
    g_assert_cmpint(command_raw(d, entry).status, ==, QRNIC_ST_DMA);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_DMA_ERRORS), ==, 2);
    device_stop(d);
}

/*
 * Tests that without bus mastering the ring cannot be read, which is fatal
 * until a reset.
 */
static void test_fatal(void)
{
    Device *d = device_start("");
    uint16_t pci_command = qpci_config_readw(d->pci, PCI_COMMAND);

    qpci_config_writew(d->pci, PCI_COMMAND, pci_command & ~PCI_COMMAND_MASTER);
    reg_write(d, QRNIC_REG_CMD_DOORBELL, 1);
    settle(d);
    g_assert_cmphex(reg_read(d, QRNIC_REG_STATUS) & QRNIC_REG_STATUS_FATAL_MASK,
                    !=, 0);
    g_assert_cmphex(reg_read(d, QRNIC_REG_HEALTH), ==, QRNIC_HEALTH_CMD_DMA);
    qpci_config_writew(d->pci, PCI_COMMAND, pci_command);
    reg_write(d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    g_assert_cmphex(reg_read(d, QRNIC_REG_HEALTH), ==, QRNIC_HEALTH_NONE);
    device_enable_commands(d, 2);
    command_ok(d, QRNIC_CMD_NOP, 0, NULL, 0, NULL, 0);
    device_stop(d);
}

static void test_query_device(void)
{
    Device *d = device_start("max-qp=40,max-cq=50,max-mkey=60,max-pd=7,"
                             "max-gid=9,max-rd-atomic=3,doorbell-fifo=11,"
                             "cap-atomic=off,cap-ud=off,cap-uc=off,cap-srq=off,"
                             "cap-mw=off,cap-fast-reg=off,cap-cq-resize=off,"
                             "cap-cq-moderation=off,cap-flow=off,cap-dm=off,"
                             "cap-atomic-write=off,cap-flush=off,"
                             "cap-inline-recv=off,cap-rate-limit=off,"
                             "cap-cq-ignore-overrun=off,cap-scatter-fcs=off,"
                             "cap-source-qpn=off,cap-counter-sets=off,"
                             "cap-eth-tso=off,cap-eth-rss=off,"
                             "cap-eth-rx-coalesce=off,cap-on-demand=off,"
                             "cap-indirect-mkey=off,"
                             "cap-streaming-recv=off,"
                             "cap-tag-matching=off,"
                             "context-cache=64,cap-context-cache=off,"
                             "cap-priority=off,cap-dynamic=off,"
                             "cap-selective-repeat=off,"
                             "cap-adaptive-routing=off,"
                             "cap-shared-connection=off,"
                             "cap-congestion-control=off,"
                             "doorbell-hold=1,cap-event-index=off,"
                             "cap-roce-v1=off,cap-command-event=off,"
                             "mac=52:54:00:12:34:56");
    uint8_t raw[QRNIC_DEVICE_ATTR_BYTES];
    QrnicDeviceAttr a;

    command_ok(d, QRNIC_CMD_QUERY_DEVICE, 0, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_device_attr_unpack(&a, raw));
    g_assert_cmphex(a.capabilities, ==,
                    QRNIC_CAP_RC | QRNIC_CAP_DIRECT_WQE |
                    QRNIC_CAP_INLINE_SEND | QRNIC_CAP_TIMESTAMP |
                    QRNIC_CAP_ETH_CSUM | QRNIC_CAP_ETH_VLAN);
    g_assert_cmpuint(a.max_qp, ==, 40);
    g_assert_cmpuint(a.max_cq, ==, 50);
    g_assert_cmpuint(a.max_mkey, ==, 60);
    g_assert_cmpuint(a.max_pd, ==, 7);
    g_assert_cmpuint(a.max_gid, ==, 9);
    g_assert_cmpuint(a.max_rd_atomic, ==, 3);
    g_assert_cmpuint(a.max_dm_size, ==, 0);
    g_assert_cmpuint(a.doorbell_fifo, ==, 11);
    g_assert_cmpuint(a.max_sge, ==, QRNIC_MAX_SGE);
    g_assert_cmpuint(a.max_msg_size, ==, QRNIC_MAX_MSG_SIZE);
    g_assert_cmpuint(a.counters, ==, QRNIC_NUM_COUNTERS);
    g_assert_cmphex(a.node_guid, ==, 0x505400fffe123456ull);
    device_stop(d);
}

static void test_port(void)
{
    Device *d = device_start("mac=52:54:00:12:34:56");
    uint8_t raw[QRNIC_PORT_ATTR_BYTES], in[QRNIC_PORT_CTX_BYTES];
    QrnicPortCtx ctx = { .mtu = 9000, .flags = QRNIC_PORTF_ADMIN_UP };
    QrnicPortAttr a;
    QrnicEqe eqe;
    Eq eq;

    eq_create(d, &eq, QRNIC_EQ_ASYNC, 0, 4);
    command_ok(d, QRNIC_CMD_QUERY_PORT, 0, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_port_attr_unpack(&a, raw));
    g_assert_cmpuint(a.state, ==, QRNIC_PORT_ACTIVE);
    g_assert_cmpuint(a.mtu, ==, 1500);
    g_assert_cmpuint(a.active_path_mtu, ==, QRNIC_MTU_1024);
    g_assert_cmpuint(a.max_mtu, ==, 9000);
    g_assert_cmpmem(a.mac, 6, OUR_MAC, 6);
    qrnic_port_ctx_pack(in, &ctx);
    command_ok(d, QRNIC_CMD_MODIFY_PORT, 0, in, sizeof(in), NULL, 0);
    command_ok(d, QRNIC_CMD_QUERY_PORT, 0, NULL, 0, raw, sizeof(raw));
    qrnic_port_attr_unpack(&a, raw);
    g_assert_cmpuint(a.mtu, ==, 9000);
    g_assert_cmpuint(a.active_path_mtu, ==, QRNIC_MTU_4096);
    ctx.mtu = QRNIC_MAX_MTU + 1;
    qrnic_port_ctx_pack(in, &ctx);
    command_fails(d, QRNIC_CMD_MODIFY_PORT, 0, in, sizeof(in), NULL, 0,
                  QRNIC_ST_BAD_PARAM, QRNIC_PORT_CTX_MTU_OFFSET);
    g_assert_false(eq_poll(d, &eq, &eqe));
    /*
     * The administrative state goes down and up, and each change sends one
     * event.
     */
    ctx = (QrnicPortCtx) { .mtu = 1500 };
    qrnic_port_ctx_pack(in, &ctx);
    command_ok(d, QRNIC_CMD_MODIFY_PORT, 0, in, sizeof(in), NULL, 0);
    eq_wait(d, &eq, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_PORT_DOWN);
    ctx.flags = QRNIC_PORTF_ADMIN_UP;
    qrnic_port_ctx_pack(in, &ctx);
    command_ok(d, QRNIC_CMD_MODIFY_PORT, 0, in, sizeof(in), NULL, 0);
    eq_wait(d, &eq, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_PORT_UP);
    g_assert_cmpuint(eqe.object, ==, 1);
    device_stop(d);
}

/* Tests that set_link changes STATUS and sends an event. */
static void test_link(void)
{
    Device *d = device_start("");
    QrnicEqe eqe;
    Eq eq;

    eq_create(d, &eq, QRNIC_EQ_ASYNC, 0, 4);
    wire_cut(d, true);
    eq_wait(d, &eq, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_PORT_DOWN);
    g_assert_cmphex(reg_read(d, QRNIC_REG_STATUS) & QRNIC_REG_STATUS_LINK_MASK,
                    ==, 0);
    wire_cut(d, false);
    eq_wait(d, &eq, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_PORT_UP);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_LINK_DOWNS), ==, 1);
    device_stop(d);
}

static void test_limits(void)
{
    Device *d = device_start("max-pd=2,doorbell-pages=4");
    uint32_t pd[2], page[3];

    for (int i = 0; i < 2; i++) {
        pd[i] = command_ok(d, QRNIC_CMD_ALLOC_PD, 0, NULL, 0, NULL, 0);
    }
    g_assert_cmpuint(pd[0], !=, pd[1]);
    command_fails(d, QRNIC_CMD_ALLOC_PD, 0, NULL, 0, NULL, 0,
                  QRNIC_ST_NO_RESOURCE, 0);
    command_ok(d, QRNIC_CMD_FREE_PD, pd[0], NULL, 0, NULL, 0);
    command_fails(d, QRNIC_CMD_FREE_PD, pd[0], NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, OBJECT_ITSELF);
    command_ok(d, QRNIC_CMD_ALLOC_PD, 0, NULL, 0, NULL, 0);
    /*
     * Page 0 belongs to the kernel, so it can be neither allocated nor freed.
     */
    for (int i = 0; i < 3; i++) {
        page[i] = command_ok(d, QRNIC_CMD_ALLOC_DB_PAGE, 0, NULL, 0, NULL, 0);
        g_assert_cmpuint(page[i], >=, 1);
        g_assert_cmpuint(page[i], <, 4);
    }
    command_fails(d, QRNIC_CMD_ALLOC_DB_PAGE, 0, NULL, 0, NULL, 0,
                  QRNIC_ST_NO_RESOURCE, 0);
    g_assert_cmpint(command(d, QRNIC_CMD_FREE_DB_PAGE, 0, NULL, 0, NULL,
                            0).status, !=, QRNIC_ST_OK);
    device_stop(d);
}

/* Tests that DESTROY of an object fails while another object refers to it. */
static void test_busy(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    command_fails(r.d, QRNIC_CMD_FREE_PD, r.pd, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_fails(r.d, QRNIC_CMD_FREE_DB_PAGE, r.page, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_fails(r.d, QRNIC_CMD_DESTROY_EQ, r.eq.number, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_fails(r.d, QRNIC_CMD_DESTROY_CQ, r.send_cq.number, NULL, 0, NULL,
                  0, QRNIC_ST_BUSY, 0);
    command_fails(r.d, QRNIC_CMD_DESTROY_CQ, r.recv_cq.number, NULL, 0, NULL,
                  0, QRNIC_ST_BUSY, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_QP, r.qp.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_CQ, r.send_cq.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_CQ, r.recv_cq.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_MKEY, r.mr.index, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_FREE_PD, r.pd, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_FREE_DB_PAGE, r.page, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_EQ, r.eq.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_EQ, r.async.number, NULL, 0, NULL, 0);
    rig_stop(&r);
}

/* Asserts that a rejected command reports the offset of the member. */
#define REFUSED(name, opcode, Context) \
    static void name##_refused(Device *d, Context ctx, unsigned status, \
                               uint32_t syndrome) \
    { \
        uint8_t raw[QRNIC_CMD_MAX_MAILBOX]; \
        \
        qrnic_##name##_ctx_pack(raw, &ctx); \
        command_fails(d, QRNIC_CMD_CREATE_##opcode, 0, raw, \
                      QRNIC_##opcode##_CTX_BYTES, NULL, 0, status, syndrome); \
    }

REFUSED(eq, EQ, QrnicEqCtx)
REFUSED(cq, CQ, QrnicCqCtx)
REFUSED(mkey, MKEY, QrnicMkeyCtx)
REFUSED(qp, QP, QrnicQpCtx)

static void test_eq_params(void)
{
    Device *d = device_start("vectors=4");
    QrnicEqCtx good = {
        .type = QRNIC_EQ_COMPLETION, .log_size = 4, .vector = 1,
        .ring = contiguous(memory_alloc(d, 4096, 4096)),
    };
    QrnicEqCtx bad;
    uint8_t raw[QRNIC_EQ_CTX_BYTES];
    QrnicEqCtx out;
    Eq eq;

    bad = good, bad.type = 4;
    eq_refused(d, bad, QRNIC_ST_BAD_PARAM, QRNIC_EQ_CTX_TYPE_OFFSET);
    bad = good, bad.log_size = 3;
    eq_refused(d, bad, QRNIC_ST_BAD_PARAM, QRNIC_EQ_CTX_LOG_SIZE_OFFSET);
    bad = good, bad.log_size = 17;
    eq_refused(d, bad, QRNIC_ST_BAD_PARAM, QRNIC_EQ_CTX_LOG_SIZE_OFFSET);
    bad = good, bad.vector = 4;
    eq_refused(d, bad, QRNIC_ST_BAD_PARAM, QRNIC_EQ_CTX_VECTOR_OFFSET);
    bad = good, bad.ring.levels = 4;
    eq_refused(d, bad, QRNIC_ST_BAD_PARAM,
               QRNIC_EQ_CTX_RING_OFFSET + QRNIC_TRANSLATION_SHAPE_OFFSET);
    bad = good, bad.ring.root += 32;
    eq_refused(d, bad, QRNIC_ST_BAD_PARAM,
               QRNIC_EQ_CTX_RING_OFFSET + QRNIC_TRANSLATION_ROOT_OFFSET);
    eq_create(d, &eq, QRNIC_EQ_ASYNC, 2, 5);
    bad = good, bad.type = QRNIC_EQ_ASYNC;
    g_assert_cmpint((qrnic_eq_ctx_pack(raw, &bad),
                     command(d, QRNIC_CMD_CREATE_EQ, 0, raw, sizeof(raw), NULL,
                             0).status), !=, QRNIC_ST_OK);
    command_ok(d, QRNIC_CMD_QUERY_EQ, eq.number, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_eq_ctx_unpack(&out, raw));
    g_assert_cmpuint(out.type, ==, QRNIC_EQ_ASYNC);
    g_assert_cmpuint(out.log_size, ==, 5);
    g_assert_cmpuint(out.vector, ==, 2);
    g_assert_cmphex(out.ring.root, ==, eq.ring);
    device_stop(d);
}

static void test_cq_params(void)
{
    Rig r;
    uint8_t raw[QRNIC_CQ_CTX_BYTES];
    QrnicCqCtx good, bad;

    rig_start(&r, "", NULL);
    command_ok(r.d, QRNIC_CMD_QUERY_CQ, r.send_cq.number, NULL, 0, raw,
               sizeof(raw));
    g_assert_true(qrnic_cq_ctx_unpack(&good, raw));
    g_assert_cmpuint(good.eqn, ==, r.eq.number);
    g_assert_cmpuint(good.db_page, ==, r.page);
    g_assert_cmphex(good.record, ==, r.send_cq.record);
    bad = good, bad.eqn = 0x77;
    cq_refused(r.d, bad, QRNIC_ST_BAD_OBJECT, QRNIC_CQ_CTX_EQN_OFFSET);
    bad = good, bad.eqn = r.async.number;
    cq_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_CQ_CTX_EQN_OFFSET);
    bad = good, bad.db_page = r.page + 1;
    cq_refused(r.d, bad, QRNIC_ST_BAD_OBJECT, QRNIC_CQ_CTX_DB_PAGE_OFFSET);
    bad = good, bad.log_size = 30;
    cq_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_CQ_CTX_LOG_SIZE_OFFSET);
    bad = good, bad.record += 4;
    cq_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_CQ_CTX_RECORD_OFFSET);
    bad = good, bad.producer = 1;
    cq_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_CQ_CTX_PRODUCER_OFFSET);
    rig_stop(&r);
}

static void test_mkey_params(void)
{
    Rig r;
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];
    QrnicMkeyCtx good, bad;

    rig_start(&r, "", NULL);
    command_ok(r.d, QRNIC_CMD_QUERY_MKEY, r.mr.index, NULL, 0, raw,
               sizeof(raw));
    g_assert_true(qrnic_mkey_ctx_unpack(&good, raw));
    g_assert_cmphex(good.start, ==, RIG_MR_START);
    g_assert_cmphex(good.length, ==, RIG_MR_LENGTH);
    g_assert_cmphex(good.variant, ==, r.mr.key & 0xff);
    bad = good, bad.type = 9;
    mkey_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_TYPE_OFFSET);
    bad = good, bad.pd = 0x77;
    mkey_refused(r.d, bad, QRNIC_ST_BAD_OBJECT, QRNIC_MKEY_CTX_PD_OFFSET);
    bad = good, bad.access = QRNIC_ACCESS_REMOTE_WRITE;
    mkey_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_ACCESS_OFFSET);
    bad = good, bad.start = UINT64_MAX - 10;
    g_assert_cmpint((qrnic_mkey_ctx_pack(raw, &bad),
                     command(r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw),
                             NULL, 0).status), ==, QRNIC_ST_BAD_PARAM);
    bad = good, bad.type = QRNIC_MKEY_DMA;
    g_assert_cmpint((qrnic_mkey_ctx_pack(raw, &bad),
                     command(r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw),
                             NULL, 0).status), ==, QRNIC_ST_BAD_PARAM);
    rig_stop(&r);
}

static void test_qp_params(void)
{
    Rig r;
    QrnicQpCtx good, bad;

    rig_start(&r, "", NULL);
    good = (QrnicQpCtx) {
        .type = QRNIC_QPT_RC, .sq_log_size = 4, .rq_log_size = 4, .pd = r.pd,
        .send_cq = r.send_cq.number, .recv_cq = r.recv_cq.number,
        .db_page = r.page,
        .sq_record = r.qp.sq_record, .rq_record = r.qp.rq_record,
        .sq = contiguous(r.qp.sq), .rq = contiguous(r.qp.rq),
    };
    bad = good, bad.type = 77;
    qp_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_TYPE_OFFSET);
    bad = good, bad.sq_log_size = 2;
    qp_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SQ_LOG_SIZE_OFFSET);
    bad = good, bad.sq_log_size = 31;
    qp_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SQ_LOG_SIZE_OFFSET);
    bad = good, bad.rq_log_size = 31;
    qp_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_RQ_LOG_SIZE_OFFSET);
    bad = good, bad.rq_log_stride = 4;
    qp_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_RQ_LOG_STRIDE_OFFSET);
    bad = good, bad.pd = 0x77;
    qp_refused(r.d, bad, QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_PD_OFFSET);
    bad = good, bad.send_cq = 0x77;
    qp_refused(r.d, bad, QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_SEND_CQ_OFFSET);
    bad = good, bad.recv_cq = 0x77;
    qp_refused(r.d, bad, QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_RECV_CQ_OFFSET);
    bad = good, bad.db_page = r.page + 1;
    qp_refused(r.d, bad, QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_DB_PAGE_OFFSET);
    bad = good, bad.sq_record |= 4;
    qp_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SQ_RECORD_OFFSET);
    bad = good, bad.rq_record |= 1;
    qp_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_RQ_RECORD_OFFSET);
    good.max_recv_inline = QRNIC_MAX_RECV_INLINE;
    good.address_space = 1;
    bad = good, bad.max_recv_inline++;
    qp_refused(r.d, bad, QRNIC_ST_BAD_PARAM,
               QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    bad = good, bad.type = QRNIC_QPT_UD;
    qp_refused(r.d, bad, QRNIC_ST_BAD_PARAM,
               QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    bad = good, bad.address_space = 0;
    qp_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_ADDRESS_SPACE_OFFSET);
    bad = good, bad.max_recv_inline = 0;
    qp_refused(r.d, bad, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_ADDRESS_SPACE_OFFSET);
    rig_stop(&r);
}

static void test_no_inline_recv(void)
{
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];
    QrnicMkeyCtx key;
    QrnicQpCtx qp;
    Rig r;

    rig_start(&r, "cap-inline-recv=off", NULL);
    qp = (QrnicQpCtx) {
        .type = QRNIC_QPT_RC, .sq_log_size = 4, .rq_log_size = 4, .pd = r.pd,
        .send_cq = r.send_cq.number, .recv_cq = r.recv_cq.number,
        .db_page = r.page, .max_recv_inline = 1, .address_space = 1,
    };
    qp_refused(r.d, qp, QRNIC_ST_NOT_SUPPORTED,
               QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    command_ok(r.d, QRNIC_CMD_QUERY_MKEY, r.mr.index, NULL, 0, raw,
               sizeof(raw));
    g_assert_true(qrnic_mkey_ctx_unpack(&key, raw));
    key.address_space = 1;
    mkey_refused(r.d, key, QRNIC_ST_NOT_SUPPORTED,
                 QRNIC_MKEY_CTX_ADDRESS_SPACE_OFFSET);
    rig_stop(&r);
}

static void modify_refused(Rig *r, QrnicQpAttr attr, unsigned status,
                           uint32_t syndrome)
{
    uint8_t raw[QRNIC_QP_ATTR_BYTES];

    qrnic_qp_attr_pack(raw, &attr);
    command_fails(r->d, QRNIC_CMD_MODIFY_QP, r->qp.number, raw, sizeof(raw),
                  NULL, 0, status, syndrome);
}

static void test_no_rate_limit(void)
{
    QrnicQpAttr attr = { .mask = QRNIC_QP_RATE_LIMIT, .rate_limit = 1000 };
    Rig r;

    rig_start(&r, "cap-rate-limit=off", NULL);
    modify_refused(&r, attr, QRNIC_ST_NOT_SUPPORTED,
                   QRNIC_QP_ATTR_RATE_LIMIT_OFFSET);
    rig_stop(&r);
}

/* Tests the state machine of the InfiniBand specification, 11.2.5.2. */
static void test_qp_states(void)
{
    Rig r;
    QrnicQpAttr a, init = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                QRNIC_QP_ACCESS_FLAGS,
        .state = QRNIC_QPS_INIT, .port = 1,
    };

    rig_start(&r, "", NULL);
    qp_query(r.d, &r.qp, &a);
    g_assert_cmpuint(a.state, ==, QRNIC_QPS_RTS);
    g_assert_cmphex(a.dest_qpn, ==, PEER_QPN);
    g_assert_cmphex(a.sq_psn, ==, SQ_PSN);
    g_assert_cmphex(a.rq_psn, ==, RQ_PSN);
    g_assert_cmpuint(a.path_mtu, ==, QRNIC_MTU_1024);
    g_assert_cmpuint(a.qp_type, ==, QRNIC_QPT_RC);
    /* RTS to INIT is no transition. */
    modify_refused(&r, init, QRNIC_ST_BAD_STATE, 0);
    /* cur_state differs from the actual state. */
    modify_refused(&r, (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_CUR_STATE,
        .state = QRNIC_QPS_ERR, .cur_state = QRNIC_QPS_SQD,
    }, QRNIC_ST_BAD_STATE, 0);
    qp_modify(r.d, &r.qp, &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    });
    /* INIT requires its attributes. */
    a = init;
    a.mask &= ~QRNIC_QP_PORT;
    a.port = 0;
    modify_refused(&r, a, QRNIC_ST_BAD_ATTR, QRNIC_QP_PORT);
    /* INIT rejects other attributes. */
    a = init;
    a.mask |= QRNIC_QP_TIMEOUT;
    a.timeout = 3;
    modify_refused(&r, a, QRNIC_ST_BAD_ATTR, QRNIC_QP_TIMEOUT);
    a = init;
    a.port = 2;
    modify_refused(&r, a, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_PORT_OFFSET);
    /* Attributes without their bit in the mask must be zero. */
    a = init;
    a.timeout = 3;
    modify_refused(&r, a, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_TIMEOUT_OFFSET);
    /*
     * The status names the first wrong member of the structure, so that a
     * driver developer finds it.
     */
    a.access = QRNIC_ACCESS_LOCAL_WRITE;
    modify_refused(&r, a, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_ACCESS_OFFSET);
    qp_modify(r.d, &r.qp, &init);
    /* RESET to RTS and INIT to RTS are no transitions. */
    modify_refused(&r, (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTS,
    }, QRNIC_ST_BAD_STATE, 0);
    /* The source GID entry is empty. */
    a = qp_default_attr();
    a.mask = QRNIC_QP_STATE | QRNIC_QP_AV | QRNIC_QP_PATH_MTU |
             QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN |
             QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER;
    a.state = QRNIC_QPS_RTR;
    a.access = a.timeout = a.retry_cnt = a.rnr_retry = a.max_rd_atomic = 0;
    a.port = 0;
    a.sq_psn = 0;
    a.av.sgid_index = 5;
    g_assert_cmpint(({
        uint8_t raw[QRNIC_QP_ATTR_BYTES];
        qrnic_qp_attr_pack(raw, &a);
        command(r.d, QRNIC_CMD_MODIFY_QP, r.qp.number, raw, sizeof(raw), NULL,
                0).status;
    }), !=, QRNIC_ST_OK);
    a.av.sgid_index = 0;
    qp_modify(r.d, &r.qp, &a);
    qp_query(r.d, &r.qp, &a);
    g_assert_cmpuint(a.state, ==, QRNIC_QPS_RTR);
    rig_stop(&r);
}

static void test_gid(void)
{
    Device *d = device_start("max-gid=4");
    uint8_t raw[QRNIC_GID_ENTRY_BYTES];
    QrnicGidEntry out, gid = {
        .gid = { 0xfe, 0x80, [15] = 1 }, .mac = { 2, 0, 0, 0, 0, 9 },
        .vlan_id = 77, .flags = QRNIC_GID_VALID | QRNIC_GID_VLAN,
    };

    qrnic_gid_entry_pack(raw, &gid);
    command_ok(d, QRNIC_CMD_SET_GID, 3, raw, sizeof(raw), NULL, 0);
    command_fails(d, QRNIC_CMD_SET_GID, 4, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_BAD_OBJECT, OBJECT_ITSELF);
    command_ok(d, QRNIC_CMD_QUERY_GID, 3, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_gid_entry_unpack(&out, raw));
    g_assert_cmpmem(&out, sizeof(out), &gid, sizeof(gid));
    /*
     * Multicast addresses are invalid as source addresses, because no answer
     * could reach one queue pair.
     */
    for (int ipv4 = 0; ipv4 < 2; ipv4++) {
        QrnicGidEntry multicast = gid;

        memcpy(multicast.gid, ipv4 ? "\0\0\0\0\0\0\0\0\0\0\xff\xff\xef\0\0\1" :
               "\xff\2\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
        qrnic_gid_entry_pack(raw, &multicast);
        command_fails(d, QRNIC_CMD_SET_GID, 3, raw, sizeof(raw), NULL, 0,
                      QRNIC_ST_BAD_PARAM, QRNIC_GID_ENTRY_GID_OFFSET);
    }
    gid.vlan_id = 4095;
    qrnic_gid_entry_pack(raw, &gid);
    command_fails(d, QRNIC_CMD_SET_GID, 3, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_BAD_PARAM, QRNIC_GID_ENTRY_VLAN_ID_OFFSET);
    command_ok(d, QRNIC_CMD_CLEAR_GID, 3, NULL, 0, NULL, 0);
    command_ok(d, QRNIC_CMD_QUERY_GID, 3, NULL, 0, raw, sizeof(raw));
    qrnic_gid_entry_unpack(&out, raw);
    g_assert_cmphex(out.flags, ==, 0);
    device_stop(d);
}

/*
 * Tests that QUERY_COUNTERS writes as many counters as the output has room for.
 */
static void test_counters_short(void)
{
    Device *d = device_start("");
    uint64_t two[2] = { 0 };

    command_ok(d, QRNIC_CMD_QUERY_COUNTERS, 0, NULL, 0, two, sizeof(two));
    g_assert_cmpuint(le64_to_cpu(two[QRNIC_COUNTER_DMA_READS]), >, 0);
    device_stop(d);
}

void add_command_tests(void)
{
    qtest_add_func("qrnic/command/lengths-and-objects",
                   test_lengths_and_objects);
    qtest_add_func("qrnic/command/unknown-opcode", test_unknown_opcode);
    qtest_add_func("qrnic/command/entry-reserved", test_entry_reserved);
    qtest_add_func("qrnic/command/ring-wrap", test_ring_wrap);
    qtest_add_func("qrnic/command/ring-batch", test_ring_batch);
    qtest_add_func("qrnic/command/ring-owner", test_ring_owner);
    qtest_add_func("qrnic/command/disabled", test_disabled);
    qtest_add_func("qrnic/command/disabled-resize", test_disabled_resize);
    qtest_add_func("qrnic/command/event", test_event);
    qtest_add_func("qrnic/command/event-asked", test_event_asked);
    qtest_add_func("qrnic/command/event-asked-before", test_event_asked_before);
    qtest_add_func("qrnic/command/event-bad", test_event_bad);
    qtest_add_func("qrnic/command/at-once", test_at_once);
    qtest_add_func("qrnic/command/mailbox-dma", test_mailbox_dma);
    qtest_add_func("qrnic/command/fatal", test_fatal);
    qtest_add_func("qrnic/command/query-device", test_query_device);
    qtest_add_func("qrnic/command/port", test_port);
    qtest_add_func("qrnic/command/link", test_link);
    qtest_add_func("qrnic/command/limits", test_limits);
    qtest_add_func("qrnic/command/busy", test_busy);
    qtest_add_func("qrnic/command/eq-params", test_eq_params);
    qtest_add_func("qrnic/command/cq-params", test_cq_params);
    qtest_add_func("qrnic/command/mkey-params", test_mkey_params);
    qtest_add_func("qrnic/command/qp-params", test_qp_params);
    qtest_add_func("qrnic/command/no-inline-recv", test_no_inline_recv);
    qtest_add_func("qrnic/command/no-rate-limit", test_no_rate_limit);
    qtest_add_func("qrnic/command/qp-states", test_qp_states);
    qtest_add_func("qrnic/command/gid", test_gid);
    qtest_add_func("qrnic/command/counters-short", test_counters_short);
}
