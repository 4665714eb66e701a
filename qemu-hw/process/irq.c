/*
 * qrnic process: interrupts of the device, as eventfds of the VMM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The VMM assigns an eventfd to each vector of MSI-X (SET_IRQS). vmm.c calls
 * qrnic_irq_send() when the device sends a vector. A vector without eventfd is
 * recorded, and sent when the VMM has assigned one.
 *
 * The VMM shares the open file of each eventfd, and so decides if a write waits
 * while the counter is full. Therefore nothing here writes to an eventfd.
 * Instead, the kernel increments the counter when a read by AIO is completed
 * (IOCB_FLAG_RESFD), which never waits: eventfd_signal() stops at the maximum.
 * The read requests 0 bytes of an empty file, so it is completed at once.
 *
 * libvfio-user does not get the requests, because it would write to the
 * eventfds, and unmaps the wrong vectors if the first one is not 0.
 */

#include "qemu/osdep.h"
#include <linux/aio_abi.h>
#include <linux/vfio.h>
#include <sys/syscall.h>
#include "qemu/bitmap.h"
#include "qemu/memfd.h"
#include "qapi/error.h"
#include "hw/pci/msix.h"
#include "trace.h"
#include "process/process.h"

/* Completed reads whose results stay in the kernel until they are fetched */
#define RESULTS 64

bool qrnic_irq_init(QrnicIrqs *irqs, unsigned vectors, Error **errp)
{
    irqs->file = qemu_memfd_create("qrnic-irq", 0, false, 0, 0, errp);
    if (irqs->file < 0) {
        return false;
    }
    if (syscall(SYS_io_setup, RESULTS, &irqs->aio) < 0) {
        error_setg_errno(errp, errno, "qrnic-process: the kernel offers no "
                         "asynchronous I/O for interrupts (CONFIG_AIO; raise "
                         "the limit fs.aio-max-nr by sysctl)");
        close(irqs->file);
        return false;
    }
    irqs->vectors = vectors;
    irqs->unsent = bitmap_new(vectors);
    irqs->eventfds = g_new(int, vectors);
    for (unsigned v = 0; v < vectors; v++) {
        irqs->eventfds[v] = -1;
    }
    return true;
}

/* Returns true if the kernel has incremented the counter. */
static bool signal_eventfd(QrnicIrqs *irqs, int fd)
{
    char nothing;
    struct iocb read = {
        .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = irqs->file,
        .aio_buf = (uintptr_t)&nothing,
        .aio_flags = IOCB_FLAG_RESFD, .aio_resfd = fd,
    };
    struct iocb *reads = &read;
    struct io_event results[RESULTS];
    struct timespec now = { 0 };

    if (syscall(SYS_io_submit, irqs->aio, 1, &reads) == 1) {
        return true;
    }
    if (errno == EAGAIN) {
        /* There is no room for another result. */
        syscall(SYS_io_getevents, irqs->aio, 0, RESULTS, results, &now);
        if (syscall(SYS_io_submit, irqs->aio, 1, &reads) == 1) {
            return true;
        }
    }
    trace_qrnic_process_irq_failed(errno);
    return false;
}

void qrnic_irq_send(QrnicIrqs *irqs, unsigned vector)
{
    if (irqs->eventfds[vector] < 0 ||
        !signal_eventfd(irqs, irqs->eventfds[vector])) {
        set_bit(vector, irqs->unsent);
    }
}

void qrnic_irq_forget(QrnicIrqs *irqs)
{
    bitmap_zero(irqs->unsent, irqs->vectors);
}

static void resend(QrnicIrqs *irqs)
{
    for (unsigned v = find_first_bit(irqs->unsent, irqs->vectors);
         v < irqs->vectors;
         v = find_next_bit(irqs->unsent, irqs->vectors, v + 1)) {
        clear_bit(v, irqs->unsent);
        qrnic_irq_send(irqs, v);
    }
}

static void assign(QrnicIrqs *irqs, unsigned vector, int fd)
{
    /*
     * The close may wait for the VMM, if the eventfd is in an epoll whose
     * events the VMM reads into memory of a FUSE file.
     */
    if (irqs->eventfds[vector] >= 0) {
        qrnic_fd_close(irqs->eventfds[vector]);
    }
    irqs->eventfds[vector] = fd;
}

void qrnic_irq_clear(QrnicIrqs *irqs)
{
    for (unsigned v = 0; v < irqs->vectors; v++) {
        assign(irqs, v, -1);
    }
    qrnic_irq_forget(irqs);
}

/* Returns 0, or the negative errno of a request whose fields are invalid. */
static int check_set(const QrnicIrqs *irqs, const struct vfio_irq_set *set,
                     size_t len, unsigned fds)
{
    uint32_t data = set->flags & VFIO_IRQ_SET_DATA_TYPE_MASK;
    uint32_t action = set->flags & VFIO_IRQ_SET_ACTION_TYPE_MASK;
    bool triggers = action == VFIO_IRQ_SET_ACTION_TRIGGER;

    if (set->argsz < sizeof(*set) || set->flags & ~(data | action) ||
        !is_power_of_2(data) || !is_power_of_2(action) ||
        set->index != VFIO_PCI_MSIX_IRQ_INDEX || set->start >= irqs->vectors ||
        set->count > irqs->vectors - set->start) {
        return -EINVAL;
    }
    /* Without vectors, the request removes all eventfds. */
    if (!set->count && (set->start || !triggers ||
                        data != VFIO_IRQ_SET_DATA_NONE)) {
        return -EINVAL;
    }
    if (data == VFIO_IRQ_SET_DATA_BOOL && len != set->count) {
        return -EINVAL;
    }
    if (data == VFIO_IRQ_SET_DATA_EVENTFD ? !triggers : fds) {
        return -EINVAL;
    }
    return fds && fds != set->count ? -EINVAL : 0;
}

int qrnic_irq_set(QrnicIrqs *irqs, PCIDevice *pci,
                  const struct vfio_irq_set *set, const uint8_t *bools,
                  size_t len, QrnicFds *fds)
{
    uint32_t data = set->flags & VFIO_IRQ_SET_DATA_TYPE_MASK;
    uint32_t action = set->flags & VFIO_IRQ_SET_ACTION_TYPE_MASK;
    int error = check_set(irqs, set, len, fds->count);

    if (error) {
        return error;
    }
    if (!set->count) {
        for (unsigned v = 0; v < irqs->vectors; v++) {
            assign(irqs, v, -1);
        }
    }
    for (unsigned i = 0; i < set->count; i++) {
        unsigned v = set->start + i;

        if (data == VFIO_IRQ_SET_DATA_BOOL && !bools[i]) {
            continue;
        }
        if (data == VFIO_IRQ_SET_DATA_EVENTFD) {
            assign(irqs, v, fds->count ? qrnic_fds_take(fds, i) : -1);
        } else if (action != VFIO_IRQ_SET_ACTION_TRIGGER) {
            msix_set_mask(pci, v, action == VFIO_IRQ_SET_ACTION_MASK);
        } else if (irqs->eventfds[v] >= 0) {
            signal_eventfd(irqs, irqs->eventfds[v]);
        }
    }
    resend(irqs);
    return 0;
}
