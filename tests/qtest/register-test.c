/*
 * qrnic qtest: PCI identity and control registers, valid and invalid accesses
 *
 * Programmer's Reference, chapters PCI and Registers.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"

static void test_identity(void)
{
    Device *d = device_start_bare("mac=52:54:00:12:34:56,vectors=5,"
                                  "doorbell-pages=16", true);

    g_assert_cmphex(qpci_config_readl(d->pci, PCI_CLASS_REVISION), ==,
                    QRNIC_PCI_CLASS << 8 | QRNIC_PCI_REVISION);
    g_assert_cmphex(reg_read(d, QRNIC_REG_ID), ==, QRNIC_ID_MAGIC);
    g_assert_cmphex(reg_read(d, QRNIC_REG_VERSION), ==,
                    QRNIC_HW_VERSION_MAJOR << 16 | QRNIC_HW_VERSION_MINOR);
    g_assert_cmphex(reg_read(d, QRNIC_REG_STATUS), ==,
                    QRNIC_REG_STATUS_READY_MASK | QRNIC_REG_STATUS_LINK_MASK);
    g_assert_cmphex(reg_read(d, QRNIC_REG_CONTROL), ==, 0);
    g_assert_cmphex(reg_read(d, QRNIC_REG_HEALTH), ==, QRNIC_HEALTH_NONE);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_VECTORS), ==, 5);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_DB_PAGES), ==, 16);
    g_assert_cmphex(reg_read(d, QRNIC_REG_MAC_LO), ==, 0x12005452);
    g_assert_cmphex(reg_read(d, QRNIC_REG_MAC_HI), ==, 0x5634);
    g_assert_cmphex(d->doorbells_size, ==, 16 * QRNIC_DB_PAGE_SIZE);
    qpci_msix_enable(d->pci);
    g_assert_cmpuint(qpci_msix_table_size(d->pci), ==, 5);
    g_assert_cmphex(d->pci->msix_pba_off, ==, QRNIC_MSIX_PBA_OFFSET);
    device_stop(d);
}

static void test_capabilities(void)
{
    static const uint8_t expected[] = {
        PCI_CAP_ID_PM, PCI_CAP_ID_EXP, PCI_CAP_ID_MSIX,
    };
    Device *d = device_start_bare("", true);

    for (unsigned i = 0; i < ARRAY_SIZE(expected); i++) {
        g_assert_cmphex(qpci_find_capability(d->pci, expected[i], 0), !=, 0);
    }
    g_assert_cmphex(qpci_config_readl(d->pci, qpci_find_capability(
                        d->pci, PCI_CAP_ID_EXP, 0) + PCI_EXP_DEVCAP) &
                    PCI_EXP_DEVCAP_FLR, !=, 0);
    device_stop(d);
}

static void test_no_backend(void)
{
    Device *d = device_start_bare("", false);

    g_assert_cmphex(reg_read(d, QRNIC_REG_STATUS) & QRNIC_REG_STATUS_LINK_MASK,
                    ==, 0);
    device_stop(d);
}

static void test_scratch(void)
{
    Device *d = device_start_bare("", true);

    reg_write(d, QRNIC_REG_SCRATCH, 0xdeadbeef);
    g_assert_cmphex(reg_read(d, QRNIC_REG_SCRATCH), ==, 0xdeadbeef);
    reg_write(d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    g_assert_cmphex(reg_read(d, QRNIC_REG_SCRATCH), ==, 0);
    g_assert_cmphex(reg_read(d, QRNIC_REG_CONTROL), ==, 0);
    device_stop(d);
}

static void test_time(void)
{
    Device *d = device_start_bare("", true);
    uint64_t before, after;

    before = reg_read(d, QRNIC_REG_TIME_LO);
    before |= (uint64_t)reg_read(d, QRNIC_REG_TIME_HI) << 32;
    clock_step(d, 5 * NANOSECONDS_PER_SECOND);
    after = reg_read(d, QRNIC_REG_TIME_LO);
    clock_step(d, 5 * NANOSECONDS_PER_SECOND);
    /*
     * The read of the low half latched the high half, so both belong together.
     */
    after |= (uint64_t)reg_read(d, QRNIC_REG_TIME_HI) << 32;
    g_assert_cmpuint(after - before, ==, 5 * NANOSECONDS_PER_SECOND);
    device_stop(d);
}

/* Tests that an 8-byte read returns the lower and the upper register. */
static void test_read_64(void)
{
    Device *d = device_start("");
    uint64_t base = d->control.addr, now, errors;
    const uint64_t pair = base + QRNIC_REG_CMD_CONSUMER;

    reg_write(d, QRNIC_REG_SCRATCH, 0x11223344);
    errors = counter(d, QRNIC_COUNTER_GE_REGISTER_ACCESS);
    g_assert_cmphex(qtest_readq(d->qts, pair), ==,
                    0x11223344ull << 32 | qtest_readl(d->qts, pair));
    clock_step(d, 5 * NANOSECONDS_PER_SECOND);
    now = qtest_readq(d->qts, base + QRNIC_REG_TIME_LO);
    g_assert_cmpuint(now, >=, 5 * NANOSECONDS_PER_SECOND);
    clock_step(d, 5 * NANOSECONDS_PER_SECOND);
    g_assert_cmpuint(qtest_readq(d->qts, base + QRNIC_REG_TIME_LO) - now, ==,
                     5 * NANOSECONDS_PER_SECOND);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_REGISTER_ACCESS), ==, errors);
    /*
     * The upper register is write-only and reads as 0; the lower register is
     * read.
     */
    g_assert_cmphex(qtest_readq(d->qts, base + QRNIC_REG_CMD_DOORBELL - 4), ==,
                    qtest_readl(d->qts, base + QRNIC_REG_CMD_DOORBELL - 4));
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_REGISTER_ACCESS), ==,
                     errors + 1);
    device_stop(d);
}

/*
 * Tests that an invalid access reads as 0, changes no register, and is counted.
 */
static void test_bad_access(void)
{
    uint64_t base, n = 0;
    Device *d;

    if (skip_in_process("the machine divides an access of 8 bytes")) {
        return;
    }
    d = device_start("");
    base = d->control.addr;
    reg_write(d, QRNIC_REG_SCRATCH, 0x11223344);
    /* Accesses of 1 and 2 bytes are invalid. */
    g_assert_cmphex(qtest_readb(d->qts, base + QRNIC_REG_SCRATCH), ==, 0);
    g_assert_cmphex(qtest_readw(d->qts, base + QRNIC_REG_SCRATCH), ==, 0);
    /*
     * An access of 8 bytes is invalid if it is not an aligned pair of
     * registers.
     */
    g_assert_cmphex(qtest_readq(d->qts, base + QRNIC_REG_SCRATCH), ==, 0);
    qtest_writeb(d->qts, base + QRNIC_REG_SCRATCH, 0xff);
    qtest_writew(d->qts, base + QRNIC_REG_SCRATCH, 0xffff);
    qtest_writeq(d->qts, base + QRNIC_REG_SCRATCH - 4, UINT64_MAX);
    n += 6;
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_REGISTER_ACCESS), ==, n);
    /* These registers cannot be accessed in this direction. */
    reg_write(d, QRNIC_REG_ID, 1);
    reg_write(d, QRNIC_REG_MAC_HI, 1);
    g_assert_cmphex(reg_read(d, QRNIC_REG_CMD_DOORBELL), ==, 0);
    n += 3;
    /* No register has these offsets. */
    g_assert_cmphex(reg_read(d, 0x100), ==, 0);
    reg_write(d, QRNIC_BAR_CONTROL_SIZE - 4, 1);
    n += 2;
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_REGISTER_ACCESS), ==, n);
    g_assert_cmphex(reg_read(d, QRNIC_REG_SCRATCH), ==, 0x11223344);
    g_assert_cmphex(reg_read(d, QRNIC_REG_ID), ==, QRNIC_ID_MAGIC);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GUEST_ERRORS), ==, n);
    device_stop(d);
}

static void test_bad_value(void)
{
    Device *d = device_start("");
    uint32_t base = reg_read(d, QRNIC_REG_CMD_BASE_LO);

    /* These registers are read-only while the command queue runs. */
    reg_write(d, QRNIC_REG_CMD_BASE_LO, 0x1000);
    reg_write(d, QRNIC_REG_CMD_SIZE, 1);
    g_assert_cmphex(reg_read(d, QRNIC_REG_CMD_BASE_LO), ==, base);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_REGISTER_VALUE), ==, 2);
    reg_write(d, QRNIC_REG_CONTROL, 0);
    reg_write(d, QRNIC_REG_CMD_SIZE, QRNIC_CMD_MAX_LOG_SIZE + 1);
    reg_write(d, QRNIC_REG_CMD_BASE_LO, base + 4);
    g_assert_cmpuint(reg_read(d, QRNIC_REG_CMD_SIZE), ==, d->cmd_log_size);
    g_assert_cmphex(reg_read(d, QRNIC_REG_CMD_BASE_LO), ==, base);
    device_enable_commands(d, QRNIC_CMD_MAX_LOG_SIZE);
    g_assert_cmpuint(counter(d, QRNIC_COUNTER_GE_REGISTER_VALUE), ==, 4);
    device_stop(d);
}

/*
 * Asserts that a reset by register or by FLR clears objects, registers and
 * counters.
 */
static void check_reset(void (*reset)(Device *d))
{
    Rig r;

    rig_start(&r, "", NULL);
    reg_read(r.d, 0x200);
    reset(r.d);
    g_assert_cmphex(reg_read(r.d, QRNIC_REG_STATUS), ==,
                    QRNIC_REG_STATUS_READY_MASK | QRNIC_REG_STATUS_LINK_MASK);
    g_assert_cmphex(reg_read(r.d, QRNIC_REG_CMD_BASE_LO), ==, 0);
    device_enable_commands(r.d, 4);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    command_fails(r.d, QRNIC_CMD_QUERY_QP, r.qp.number, NULL, 0, NULL,
                  QRNIC_QP_ATTR_BYTES, QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    command_fails(r.d, QRNIC_CMD_QUERY_CQ, r.send_cq.number, NULL, 0, NULL,
                  QRNIC_CQ_CTX_BYTES, QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    command_fails(r.d, QRNIC_CMD_QUERY_MKEY, r.mr.index, NULL, 0, NULL,
                  QRNIC_MKEY_CTX_BYTES, QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    command_fails(r.d, QRNIC_CMD_FREE_PD, r.pd, NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    command_fails(r.d, QRNIC_CMD_FREE_DB_PAGE, r.page, NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    rig_stop(&r);
}

static void reset_by_register(Device *d)
{
    reg_write(d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
}

static void test_reset_register(void)
{
    check_reset(reset_by_register);
}

/* Restores BARs and PCI Command, because FLR clears configuration space too. */
static void reset_by_flr(Device *d)
{
    uint8_t exp = qpci_find_capability(d->pci, PCI_CAP_ID_EXP, 0);
    uint32_t bar[6];
    uint16_t command = qpci_config_readw(d->pci, PCI_COMMAND);

    for (int i = 0; i < 6; i++) {
        bar[i] = qpci_config_readl(d->pci, PCI_BASE_ADDRESS_0 + 4 * i);
    }
    qpci_config_writew(d->pci, exp + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
    for (int i = 0; i < 6; i++) {
        qpci_config_writel(d->pci, PCI_BASE_ADDRESS_0 + 4 * i, bar[i]);
    }
    qpci_config_writew(d->pci, PCI_COMMAND, command);
}

static void test_reset_flr(void)
{
    check_reset(reset_by_flr);
}

static void vector_mask(Device *d, unsigned vector, bool mask)
{
    qpci_io_writel(d->pci, d->pci->msix_table_bar,
                   d->pci->msix_table_off + vector * PCI_MSIX_ENTRY_SIZE +
                   PCI_MSIX_ENTRY_VECTOR_CTRL,
                   mask ? PCI_MSIX_ENTRY_CTRL_MASKBIT : 0);
}

static bool vector_pending(Device *d, unsigned vector)
{
    return qpci_io_readl(d->pci, d->pci->msix_pba_bar,
                         d->pci->msix_pba_off) >> vector & 1;
}

static uint64_t time_read(Device *d)
{
    uint64_t low = reg_read(d, QRNIC_REG_TIME_LO);

    return low | (uint64_t)reg_read(d, QRNIC_REG_TIME_HI) << 32;
}

/*
 * Asserts that a reset by register keeps configuration space and the MSI-X
 * table with its pending bits. FLR clears both. Both resets keep the clock.
 */
static void check_reset_keeps(void (*reset)(Device *d), bool keeps)
{
    uint64_t before;
    Rig r;

    if (skip_in_process("QEMU 11.1 masks vectors without the process")) {
        return;
    }
    rig_start(&r, "", NULL);
    clock_step(r.d, NANOSECONDS_PER_SECOND);
    before = time_read(r.d);
    eq_arm(r.d, &r.async);
    vector_mask(r.d, 0, true);
    reg_write(r.d, QRNIC_REG_CMD_EVENT, 0x5aa5u << 16);
    settle(r.d);
    g_assert_false(interrupt_taken(r.d, 0));
    g_assert_true(vector_pending(r.d, 0));
    reg_write(r.d, QRNIC_REG_SCRATCH, 1);
    reset(r.d);
    g_assert_cmphex(reg_read(r.d, QRNIC_REG_SCRATCH), ==, 0);
    g_assert_cmpuint(time_read(r.d), >=, before);
    g_assert_true(vector_pending(r.d, 0) == keeps);
    vector_mask(r.d, 0, false);
    g_assert_true(interrupt_taken(r.d, 0) == keeps);
    g_assert_false(vector_pending(r.d, 0));
    rig_stop(&r);
}

static void test_reset_keeps(void)
{
    check_reset_keeps(reset_by_register, true);
}

static void test_flr_keeps(void)
{
    check_reset_keeps(reset_by_flr, false);
}

void add_register_tests(void)
{
    qtest_add_func("qrnic/register/identity", test_identity);
    qtest_add_func("qrnic/register/capabilities", test_capabilities);
    qtest_add_func("qrnic/register/no-backend", test_no_backend);
    qtest_add_func("qrnic/register/scratch", test_scratch);
    qtest_add_func("qrnic/register/time", test_time);
    qtest_add_func("qrnic/register/bad-access", test_bad_access);
    qtest_add_func("qrnic/register/read-64", test_read_64);
    qtest_add_func("qrnic/register/bad-value", test_bad_value);
    qtest_add_func("qrnic/register/reset", test_reset_register);
    qtest_add_func("qrnic/register/flr", test_reset_flr);
    qtest_add_func("qrnic/register/reset-keeps", test_reset_keeps);
    qtest_add_func("qrnic/register/flr-keeps", test_flr_keeps);
}
