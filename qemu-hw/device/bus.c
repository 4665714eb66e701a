/*
 * qrnic: the bus below the device
 *
 * Functions of this file access the guest's memory and read the clock. Other
 * functions read the configuration space (bus mastering, D3hot), and schedule
 * the bottom half. Only this file calls pci_dma_*() and dma_memory_*(). All
 * other files of the device use it, and it uses only the states in device.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "hw/pci/pci.h"
#include "compat.h"
#include "device/capture.h"
#include "device/device.h"
#include "device/stop.h"

/*
 * Accesses only memory, because a register of another device could have any
 * effect. For example, the register could wait for a disk in the middle of this
 * device's work. The cast is not checked at run time, because this function is
 * called most often.
 */
static bool bus_dma(QrnicDevice *d, AddressSpace *as, uint64_t addr, void *buf,
                    size_t len, DMADirection direction)
{
    const MemTxAttrs attrs = { .memory = 1 };
    bool ok;

    if (!qrnic_on_bus(d)) {
        return false;
    }
    ok = dma_memory_rw(as, addr, buf, len, direction, attrs) == MEMTX_OK;
    if (d->capture && qrnic_bus_master(d)) {
        qrnic_capture_dma(d, addr, buf, len,
                          direction == DMA_DIRECTION_FROM_DEVICE, ok);
    }
    if (d->stop_at && qrnic_bus_master(d)) {
        qrnic_stop_dma(d, addr, buf, len,
                       direction == DMA_DIRECTION_FROM_DEVICE, ok);
    }
    return ok;
}

bool qrnic_bus_read(QrnicDevice *d, uint64_t addr, void *buf, size_t len)
{
    return bus_dma(d, pci_get_address_space(&d->parent_obj), addr, buf, len,
                   DMA_DIRECTION_TO_DEVICE);
}

bool qrnic_bus_write(QrnicDevice *d, uint64_t addr, const void *buf,
                     size_t len)
{
    return bus_dma(d, pci_get_address_space(&d->parent_obj), addr, (void *)buf,
                   len, DMA_DIRECTION_FROM_DEVICE);
}

/*
 * The address space of translated addresses knows no bus mastering, so the
 * functions below check it.
 */
bool qrnic_bus_read_translated(QrnicDevice *d, uint64_t addr, void *buf,
                               size_t len)
{
    return qrnic_bus_master(d) &&
           bus_dma(d, d->translated_as, addr, buf, len,
                   DMA_DIRECTION_TO_DEVICE);
}

bool qrnic_bus_write_translated(QrnicDevice *d, uint64_t addr,
                                const void *buf, size_t len)
{
    return qrnic_bus_master(d) &&
           bus_dma(d, d->translated_as, addr, (void *)buf, len,
                   DMA_DIRECTION_FROM_DEVICE);
}

bool qrnic_host_atomic(uint64_t *at, QrnicAtomic *op)
{
#ifdef QRNIC_HOST_ATOMIC64
    uint64_t seen, next;

    if (op->compare_swap) {
        seen = qatomic_cmpxchg__nocheck(at, cpu_to_le64(op->compare),
                                        cpu_to_le64(op->swap_add));
        op->original = le64_to_cpu(seen);
        return true;
    }
    next = qatomic_read__nocheck(at);
    do {
        seen = next;
        next = qatomic_cmpxchg__nocheck(at, seen,
                                        cpu_to_le64(le64_to_cpu(seen) +
                                                    op->swap_add));
    } while (next != seen);
    op->original = le64_to_cpu(seen);
    return true;
#else
    return false;
#endif
}

/*
 * Returns the host RAM of the 8 bytes at addr, or NULL if there is no RAM or
 * the access is forbidden. If the address is not RAM, dma_memory_map() returns
 * a copy, which is rejected because it belongs to no memory region.
 */
static void *map_ram(AddressSpace *as, uint64_t addr, DMADirection direction)
{
    const MemTxAttrs attrs = { .memory = 1 };
    dma_addr_t len = 8;
    ram_addr_t offset;
    void *at = dma_memory_map(as, addr, &len, direction, attrs);

    if (at && (len != 8 || (uintptr_t)at % 8 ||
               !memory_region_from_host(at, &offset))) {
        dma_memory_unmap(as, at, len, direction, 0);
        at = NULL;
    }
    return at;
}

/*
 * Maps the address once for each right. Both mappings must be the same memory,
 * because an IOMMU may change its mapping between the two calls.
 */
static bool bus_atomic(QrnicDevice *d, AddressSpace *as, uint64_t addr,
                       QrnicAtomic *op)
{
    void *read, *write;
    bool done;

    RCU_READ_LOCK_GUARD();
    if (!qrnic_on_bus(d)) {
        return false;
    }
    write = map_ram(as, addr, DMA_DIRECTION_FROM_DEVICE);
    if (!write) {
        return false;
    }
    read = map_ram(as, addr, DMA_DIRECTION_TO_DEVICE);
    done = read == write && qrnic_host_atomic(write, op);
    if (read) {
        dma_memory_unmap(as, read, 8, DMA_DIRECTION_TO_DEVICE, 0);
    }
    dma_memory_unmap(as, write, 8, DMA_DIRECTION_FROM_DEVICE, done ? 8 : 0);
    return done;
}

static bool bus_atomic_watched(QrnicDevice *d, AddressSpace *as, uint64_t addr,
                               QrnicAtomic *op)
{
    /* Nothing is mapped in a stop, because its end may be in another thread. */
    bool done = bus_atomic(d, as, addr, op);
    uint64_t original;

    if (done && d->capture) {
        qrnic_capture_atomic(d, addr, op);
    }
    if (done && d->stop_at) {
        original = cpu_to_le64(op->original);
        qrnic_stop_dma(d, addr, &original, sizeof(original), true, true);
    }
    return done;
}

bool qrnic_bus_atomic(QrnicDevice *d, uint64_t addr, QrnicAtomic *op)
{
    return bus_atomic_watched(d, pci_get_address_space(&d->parent_obj), addr,
                              op);
}

bool qrnic_bus_atomic_translated(QrnicDevice *d, uint64_t addr,
                                 QrnicAtomic *op)
{
    return qrnic_bus_master(d) &&
           bus_atomic_watched(d, d->translated_as, addr, op);
}

bool qrnic_bus_master(QrnicDevice *d)
{
    return pci_get_word(PCI_DEVICE(d)->config + PCI_COMMAND) &
           PCI_COMMAND_MASTER;
}

bool qrnic_asleep(QrnicDevice *d)
{
    const uint8_t *pm = PCI_DEVICE(d)->config + QRNIC_PCI_PM_OFFSET;

    return pci_get_word(pm + PCI_PM_CTRL) & PCI_PM_CTRL_STATE_MASK;
}

int64_t qrnic_clock_ns(QrnicDevice *d)
{
    return d->clock_stopped ? d->clock_stopped_ns :
           qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL) - d->clock_lag_ns;
}

void qrnic_timer_arm(QrnicDevice *d, QEMUTimer *timer, int64_t deadline_ns)
{
    timer_mod(timer, deadline_ns + d->clock_lag_ns);
}

void qrnic_kick(QrnicDevice *d)
{
    if (qrnic_is_plugged(d)) {
        qemu_bh_schedule(d->bh);
    }
}
