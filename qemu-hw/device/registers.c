/*
 * qrnic: control registers, doorbell pages, and the BAR of device memory
 *
 * QEMU calls the functions of this file when the guest accesses a BAR. A
 * control register that only stores a value is in d->regs. Commands and
 * doorbells are passed to command_queue.c and work.c. An access may arrive
 * while the device is entered, for example by DMA of the device itself. Then a
 * doorbell is ignored. An invalid access is reported as a guest error, reads as
 * 0, and otherwise has no effect. Manual, chapters "Registers" and "Doorbells".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "device/capture.h"
#include "device/faces.h"
#include "device/parts.h"

static uint32_t status_read(QrnicDevice *d)
{
    uint32_t status = qrnic_engine_ready(d->engine) ?
                      QRNIC_REG_STATUS_READY_MASK : 0;

    if (qrnic_command_enabled(d)) {
        status |= QRNIC_REG_STATUS_CMD_ENABLED_MASK;
    }
    if (qrnic_is_fatal(d->engine)) {
        status |= QRNIC_REG_STATUS_FATAL_MASK;
    }
    if (d->wire->link(d)) {
        status |= QRNIC_REG_STATUS_LINK_MASK;
    }
    return status;
}

/*
 * Returns true and the value, or false if the register does not exist or is
 * write-only.
 */
static bool reg_read(QrnicDevice *d, hwaddr offset, uint32_t *value)
{
    const uint8_t *mac = d->config.mac;
    bool has_time = d->config.capabilities & QRNIC_CAP_TIMESTAMP;

    switch (offset) {
    case QRNIC_REG_ID:
        *value = QRNIC_ID_MAGIC;
        return true;
    case QRNIC_REG_VERSION:
        *value = QRNIC_HW_VERSION_MAJOR << 16 | QRNIC_HW_VERSION_MINOR;
        return true;
    case QRNIC_REG_STATUS:
        *value = status_read(d);
        return true;
    case QRNIC_REG_CONTROL:
        *value = qrnic_command_enabled(d) ?
                 QRNIC_REG_CONTROL_CMD_ENABLE_MASK : 0;
        return true;
    case QRNIC_REG_HEALTH:
        *value = d->regs.health;
        return true;
    case QRNIC_REG_HEALTH_INFO:
        *value = d->regs.health_info;
        return true;
    case QRNIC_REG_DB_PAGES:
        *value = d->config.db_pages;
        return true;
    case QRNIC_REG_VECTORS:
        *value = d->config.vectors;
        return true;
    case QRNIC_REG_CMD_BASE_LO:
        *value = d->regs.cmd_base_lo;
        return true;
    case QRNIC_REG_CMD_BASE_HI:
        *value = d->regs.cmd_base_hi;
        return true;
    case QRNIC_REG_CMD_SIZE:
        *value = d->regs.cmd_size;
        return true;
    case QRNIC_REG_CMD_CONSUMER:
        *value = d->cmd.consumer;
        return true;
    case QRNIC_REG_SCRATCH:
        *value = d->regs.scratch;
        return true;
    case QRNIC_REG_TIME_LO: {
        uint64_t now = qrnic_clock_ns(d);

        *value = now;
        d->regs.time_hi = now >> 32;
        return has_time;
    }
    case QRNIC_REG_TIME_HI:
        *value = d->regs.time_hi;
        return has_time;
    case QRNIC_REG_MAC_LO:
        *value = qrnic_ld_le32(mac);
        return true;
    case QRNIC_REG_MAC_HI:
        *value = qrnic_ld_le16(mac + 4);
        return true;
    default:
        return false;
    }
}

static void control_write(QrnicDevice *d, uint32_t value)
{
    if (value & QRNIC_REG_CONTROL_RESET_MASK) {
        qrnic_device_reset(d);
    } else if (!(value & QRNIC_REG_CONTROL_CMD_ENABLE_MASK)) {
        /*
         * A stop in the middle of a command ends, because the command must not
         * continue in a disabled queue.
         */
        qrnic_stop_end(d);
        qrnic_command_disable(d);
    } else if (!qrnic_command_enabled(d)) {
        qrnic_command_enable(d, (uint64_t)d->regs.cmd_base_hi << 32 |
                                d->regs.cmd_base_lo, d->regs.cmd_size);
    }
}

static const char *command_event_write(QrnicDevice *d, uint32_t value,
                                       enum qrnic_guest_error *rule)
{
    bool done = false;
    const char *wrong = qrnic_command_event(d, value, rule, &done);

    if (done) {
        qrnic_command_event_late(d, value);
    }
    return wrong;
}

/* Returns NULL, or the text of the error and the guest error in *rule. */
static const char *reg_write(QrnicDevice *d, hwaddr offset, uint32_t value,
                             enum qrnic_guest_error *rule)
{
    const uint32_t control = QRNIC_REG_CONTROL_RESET_MASK |
                             QRNIC_REG_CONTROL_CMD_ENABLE_MASK;

    *rule = QRNIC_GE_REGISTER_VALUE;
    switch (offset) {
    case QRNIC_REG_CONTROL:
        if (value & ~control) {
            return "reserved bits are set";
        }
        control_write(d, value);
        return NULL;
    case QRNIC_REG_CMD_BASE_LO:
    case QRNIC_REG_CMD_BASE_HI:
    case QRNIC_REG_CMD_SIZE:
        if (qrnic_command_enabled(d)) {
            return "read-only while the command queue is enabled";
        }
        if (offset == QRNIC_REG_CMD_BASE_LO) {
            if (value % QRNIC_CMD_ENTRY_SIZE) {
                return "not a multiple of the entry size";
            }
            d->regs.cmd_base_lo = value;
        } else if (offset == QRNIC_REG_CMD_BASE_HI) {
            d->regs.cmd_base_hi = value;
        } else {
            if (value > QRNIC_CMD_MAX_LOG_SIZE) {
                return "larger than the largest command ring";
            }
            d->regs.cmd_size = value;
        }
        return NULL;
    case QRNIC_REG_CMD_DOORBELL:
        if (qrnic_command_doorbell(d, value)) {
            qrnic_command_rung(d);
        }
        return NULL;
    case QRNIC_REG_CMD_EVENT:
        if (!(d->config.capabilities & QRNIC_CAP_COMMAND_EVENT)) {
            *rule = QRNIC_GE_REGISTER_ACCESS;
            return "the register requires CAP_COMMAND_EVENT";
        }
        return command_event_write(d, value, rule);
    case QRNIC_REG_SCRATCH:
        d->regs.scratch = value;
        return NULL;
    default:
        *rule = QRNIC_GE_REGISTER_ACCESS;
        return "no register, or a read-only register";
    }
}

static void bad_read(QrnicDevice *d, hwaddr offset, unsigned size)
{
    qrnic_guest_error_at(d->engine, QRNIC_GE_REGISTER_ACCESS, "register",
                         offset, "read of %u bytes", size);
}

/*
 * Reads a register. A read of 8 bytes reads two registers, the lower one first.
 * These reads are supported because tools that dump a BAR and drivers that read
 * a clock use them.
 */
static uint64_t control_mem_read(void *opaque, hwaddr offset, unsigned size)
{
    QrnicDevice *d = opaque;
    uint64_t value = 0;

    if ((size != 4 && size != 8) || offset % size) {
        bad_read(d, offset, size);
        return 0;
    }
    for (unsigned i = 0; i < size; i += 4) {
        uint32_t reg;

        if (reg_read(d, offset + i, &reg)) {
            trace_qrnic_register_read(d->name, offset + i, reg);
            value |= (uint64_t)reg << 8 * i;
        } else {
            bad_read(d, offset + i, size);
        }
    }
    return value;
}

static uint64_t control_access_read(void *opaque, hwaddr offset, unsigned size)
{
    uint64_t value = control_mem_read(opaque, offset, size);
    QrnicDevice *d = opaque;

    if (d->capture) {
        qrnic_capture_mmio(d, QRNIC_BAR_CONTROL, offset, size, value, false);
    }
    return value;
}

static void control_mem_write(void *opaque, hwaddr offset, uint64_t value,
                              unsigned size)
{
    QrnicDevice *d = opaque;
    enum qrnic_guest_error rule;
    const char *wrong;

    if (d->capture) {
        qrnic_capture_mmio(d, QRNIC_BAR_CONTROL, offset, size, value, true);
    }
    if (size != 4 || offset % 4) {
        qrnic_guest_error_at(d->engine, QRNIC_GE_REGISTER_ACCESS, "register",
                             offset, "write of %u bytes", size);
        return;
    }
    trace_qrnic_register_write(d->name, offset, value);
    wrong = reg_write(d, offset, value, &rule);
    if (wrong) {
        qrnic_guest_error_at(d->engine, rule, "register", offset,
                             "write of 0x%" PRIx64 ": %s", value, wrong);
    }
}

/*
 * All sizes and alignments are accepted from the bus, because the device must
 * report an invalid access itself.
 */
static const MemoryRegionOps control_ops = {
    .read = control_access_read,
    .write = control_mem_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

static uint64_t doorbell_mem_read(void *opaque, hwaddr offset, unsigned size)
{
    QrnicDevice *d = opaque;

    if (d->capture) {
        qrnic_capture_mmio(d, QRNIC_BAR_DOORBELL, offset, size, 0, false);
    }
    qrnic_guest_error(d->engine, QRNIC_GE_DOORBELL_ACCESS, "page",
                      offset / QRNIC_DB_PAGE_SIZE,
                      "read of %u bytes at offset 0x%" HWADDR_PRIx, size,
                      offset % QRNIC_DB_PAGE_SIZE);
    return 0;
}

static void doorbell_mem_write(void *opaque, hwaddr offset, uint64_t value,
                               unsigned size)
{
    QrnicDevice *d = opaque;

    if (d->capture) {
        qrnic_capture_mmio(d, QRNIC_BAR_DOORBELL, offset, size, value, true);
    }
    qrnic_doorbell(d, offset / QRNIC_DB_PAGE_SIZE, offset % QRNIC_DB_PAGE_SIZE,
                   size, value);
}

static const MemoryRegionOps doorbell_ops = {
    .read = doorbell_mem_read,
    .write = doorbell_mem_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

bool qrnic_mmio_init(QrnicDevice *d, Error **errp)
{
    const uint8_t prefetchable = PCI_BASE_ADDRESS_SPACE_MEMORY |
                                 PCI_BASE_ADDRESS_MEM_TYPE_64 |
                                 PCI_BASE_ADDRESS_MEM_PREFETCH;
    PCIDevice *pci = PCI_DEVICE(d);

    if (d->config.capabilities & QRNIC_CAP_DEVICE_MEMORY) {
        /* The memory is not migrated, because the device cannot be migrated. */
        if (!memory_region_init_ram_flags_nomigrate(&d->bar_memory, OBJECT(d),
                                                    "qrnic-memory",
                                                    d->config.device_memory, 0,
                                                    errp)) {
            return false;
        }
        pci_register_bar(pci, QRNIC_BAR_MEMORY, prefetchable, &d->bar_memory);
    }
    memory_region_init_io(&d->bar_control, OBJECT(d), &control_ops, d,
                          "qrnic-control", QRNIC_BAR_CONTROL_SIZE);
    pci_register_bar(pci, QRNIC_BAR_CONTROL, PCI_BASE_ADDRESS_SPACE_MEMORY,
                     &d->bar_control);
    memory_region_init_io(&d->bar_doorbell, OBJECT(d), &doorbell_ops, d,
                          "qrnic-doorbell",
                          (uint64_t)d->config.db_pages * QRNIC_DB_PAGE_SIZE);
    pci_register_bar(pci, QRNIC_BAR_DOORBELL, prefetchable, &d->bar_doorbell);
    return true;
}
