/*
 * qrnic process: the libvfio-user context of one VMM
 *
 * libvfio-user calls this file while server.c lets it process a message. The
 * callbacks execute configuration accesses and resets as a host bridge does.
 * The device's interrupts reach irq.c through the hooks of MSI-X.
 * Migration is not offered, because the device cannot be migrated.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/mman.h>
#include "qemu/memfd.h"
#include "qapi/error.h"
#include "hw/pci/msi.h"
#include "hw/pci/msix.h"
#include "hw/pci/pci_host.h"
#include "hw/pci/pcie.h"
#include "trace.h"
#include "process/process.h"

QEMU_BUILD_BUG_ON(VFU_PCI_DEV_ROM_REGION_IDX != PCI_ROM_SLOT);

static unsigned vectors(QrnicProcess *p)
{
    return msix_nr_vectors_allocated(p->pci);
}

/*
 * Unmasks the device's own table after a reset, because the VMM emulates the
 * table for the guest, and masks a vector by SET_IRQS.
 */
static void unmask_all(QrnicProcess *p)
{
    qrnic_irq_forget(&p->irqs);
    for (unsigned v = 0; v < vectors(p); v++) {
        msix_set_mask(p->pci, v, false);
    }
}

static void reset_device(QrnicProcess *p)
{
    pci_device_reset(p->pci);
    unmask_all(p);
}

/* Interrupts */

static MSIMessage prepare_message(PCIDevice *pci, unsigned vector)
{
    return (MSIMessage) { .data = vector };
}

static void trigger(PCIDevice *pci, MSIMessage message)
{
    QrnicProcess *p = QRNIC_PROCESS(current_machine);

    if (p->context) {
        qrnic_irq_send(&p->irqs, message.data);
    }
}

/* Accesses */

/*
 * Complains once if the VMM has shared no memory at all when the guest's driver
 * starts to use the device.
 */
static void check_share(QrnicProcess *p)
{
    if (p->complained_share || p->dma.mapped || !p->dma.regions->len ||
        !(pci_get_word(p->pci->config + PCI_COMMAND) & PCI_COMMAND_MASTER)) {
        return;
    }
    p->complained_share = true;
    qrnic_server_warn(p->server, "the VMM does not share its guest's memory, "
                      "so the device cannot reach it: add share=on to the "
                      "VMM's memory backend");
}

static bool starts_flr(PCIDevice *pci, hwaddr offset, uint32_t value,
                       unsigned len)
{
    hwaddr control = pci->exp.exp_cap + PCI_EXP_DEVCTL;
    hwaddr high = control + 1;

    return offset <= high && offset + len > high &&
           value >> 8 * (high - offset) & PCI_EXP_DEVCTL_BCR_FLR >> 8;
}

static ssize_t config_access(vfu_ctx_t *ctx, char *buf, size_t count,
                             loff_t offset, bool is_write)
{
    QrnicProcess *p = vfu_get_private(ctx);
    uint32_t limit = pci_config_size(p->pci), value;
    size_t done = 0;

    while (done < count) {
        unsigned at = offset + done;
        unsigned len = MIN(count - done, 4);

        /* Accesses are aligned, because the device expects it. */
        len = at % 2 ? 1 : at % 4 || len == 3 ? MIN(len, 2) : len;
        if (is_write) {
            value = ldn_le_p(buf + done, len);
            trace_qrnic_process_config_write(at, value, len);
            pci_host_config_write_common(p->pci, at, limit, value, len);
            if (starts_flr(p->pci, at, value, len)) {
                unmask_all(p);
            }
        } else {
            value = pci_host_config_read_common(p->pci, at, limit, len);
            trace_qrnic_process_config_read(at, value, len);
            stn_le_p(buf + done, len, value);
        }
        done += len;
    }
    if (is_write) {
        check_share(p);
    }
    return count;
}

/* Reset */

void qrnic_vmm_machine_reset(QrnicProcess *p)
{
    /* The first reset of the machine precedes the server. */
    if (p->server) {
        unmask_all(p);
    }
}

static int reset(vfu_ctx_t *ctx, vfu_reset_type_t type)
{
    QrnicProcess *p = vfu_get_private(ctx);

    /* qrnic_vmm_free() has already reset the device. */
    if (type != VFU_RESET_LOST_CONN) {
        trace_qrnic_process_reset("the VMM requests it");
        reset_device(p);
    }
    return 0;
}

static void library_log(vfu_ctx_t *ctx, int level, const char *message)
{
    trace_qrnic_process_library(level, message);
}

/* Context */

/* Returns the BAR of device memory, which is the only RAM, or NULL. */
static const PCIIORegion *memory_bar(QrnicProcess *p)
{
    for (unsigned i = 0; i < PCI_ROM_SLOT; i++) {
        const PCIIORegion *r = &p->pci->io_regions[i];

        if (r->size && memory_region_is_ram(r->memory)) {
            return r;
        }
    }
    return NULL;
}

/*
 * With map-memory, replaces the pages of device memory by those of a new file,
 * which the VMM can map. This is off by default, because QEMU posts no writes
 * to a device with a region that it can map. Each VMM gets a file of its own,
 * because an earlier VMM may still map the last one. Seals prevent the VMM from
 * shrinking the file, which would end this process.
 */
static bool share_memory(QrnicProcess *p, Error **errp)
{
    const PCIIORegion *r = memory_bar(p);
    const unsigned seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

    if (!r || !p->map_memory) {
        return true;
    }
    p->memory_fd = qemu_memfd_create("qrnic-memory", r->size, false, 0, seals,
                                     errp);
    if (p->memory_fd < 0) {
        return false;
    }
    if (mmap(memory_region_get_ram_ptr(r->memory), r->size,
             PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, p->memory_fd,
             0) == MAP_FAILED) {
        error_setg_errno(errp, errno, "cannot map device memory");
        return false;
    }
    return true;
}

/*
 * Replaces the pages again when the VMM has gone. The reset then reads empty
 * pages, for which the kernel allocates no memory.
 */
static void unshare_memory(QrnicProcess *p)
{
    const PCIIORegion *r = memory_bar(p);

    if (p->memory_fd < 0) {
        return;
    }
    close(p->memory_fd);
    p->memory_fd = -1;
    if (mmap(memory_region_get_ram_ptr(r->memory), r->size,
             PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
             -1, 0) == MAP_FAILED) {
        /* The former pages stay, until the next VMM replaces them. */
        trace_qrnic_process_memory_failed(errno);
    }
}

static bool setup_bars(QrnicProcess *p)
{
    const int flags = VFU_REGION_FLAG_RW | VFU_REGION_FLAG_MEM;

    for (unsigned i = 0; i < PCI_ROM_SLOT; i++) {
        const PCIIORegion *r = &p->pci->io_regions[i];
        int fd = r == memory_bar(p) ? p->memory_fd : -1;

        if (r->size &&
            vfu_setup_region(p->context, i, r->size, NULL, flags, NULL, 0, fd,
                             0) < 0) {
            return false;
        }
    }
    return true;
}

bool qrnic_vmm_new(QrnicProcess *p, const char *path, Error **errp)
{
    int level = trace_event_get_state_backends(TRACE_QRNIC_PROCESS_LIBRARY) ?
                LOG_DEBUG : LOG_ERR;

    if (!share_memory(p, errp)) {
        qrnic_vmm_free(p);
        return false;
    }
    p->context = vfu_create_ctx(VFU_TRANS_SOCK, path,
                                LIBVFIO_USER_FLAG_ATTACH_NB, p,
                                VFU_DEV_TYPE_PCI);
    if (!p->context) {
        error_setg_errno(errp, errno, "cannot create a context");
        qrnic_vmm_free(p);
        return false;
    }
    if (vfu_setup_log(p->context, library_log, level) < 0 ||
        vfu_pci_init(p->context, VFU_PCI_TYPE_EXPRESS, PCI_HEADER_TYPE_NORMAL,
                     0) < 0 ||
        vfu_setup_region(p->context, VFU_PCI_DEV_CFG_REGION_IDX,
                         pci_config_size(p->pci), config_access,
                         VFU_REGION_FLAG_RW | VFU_REGION_FLAG_ALWAYS_CB, NULL,
                         0, -1, 0) < 0 ||
        !setup_bars(p) ||
        vfu_setup_device_nr_irqs(p->context, VFU_DEV_MSIX_IRQ,
                                 vectors(p)) < 0 ||
        /* The device never sends these interrupts. */
        vfu_setup_device_nr_irqs(p->context, VFU_DEV_ERR_IRQ, 0) < 0 ||
        vfu_setup_device_nr_irqs(p->context, VFU_DEV_REQ_IRQ, 0) < 0 ||
        vfu_setup_device_reset_cb(p->context, reset) < 0 ||
        vfu_realize_ctx(p->context) < 0) {
        error_setg_errno(errp, errno, "cannot set up the context");
        qrnic_vmm_free(p);
        return false;
    }
    unmask_all(p);
    return true;
}

void qrnic_vmm_free(QrnicProcess *p)
{
    vfu_ctx_t *ctx = p->context;

    unshare_memory(p);
    if (ctx) {
        /* The device must not use the memory any more when it is removed. */
        trace_qrnic_process_reset("the VMM has gone");
        reset_device(p);
        p->context = NULL;
        vfu_destroy_ctx(ctx);
    }
    qrnic_dma_clear(&p->dma);
    qrnic_irq_clear(&p->irqs);
    p->complained_share = false;
}

bool qrnic_vmm_init(QrnicProcess *p, Error **errp)
{
    for (unsigned i = 0; i < PCI_ROM_SLOT; i++) {
        const PCIIORegion *r = &p->pci->io_regions[i];

        if (r->size > UINT32_MAX) {
            error_setg(errp, "BAR %u is too large for vfio-user", i);
            return false;
        }
        if (r->size) {
            qrnic_window_init(&p->windows[i], OBJECT(p), r->memory);
        }
    }
    if (!qrnic_irq_init(&p->irqs, vectors(p), errp)) {
        return false;
    }
    p->memory_fd = -1;
    p->pci->msi_trigger = trigger;
    p->pci->msix_prepare_message = prepare_message;
    return true;
}
