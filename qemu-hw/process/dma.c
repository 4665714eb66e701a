/*
 * qrnic process: the VMM's memory for DMA of the device, and the device's BARs
 * for accesses of the VMM
 *
 * The VMM shares its memory by file descriptors, which libvfio-user maps. Each
 * mapped region becomes a RAM region of the address space that the device's bus
 * uses for DMA. An address outside of all regions fails, as on a real bus.
 *
 * A region is an object of its own, because QEMU's flat views keep the owner of
 * a memory region alive, and not the region itself.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/mman.h>
#include "qemu/rcu.h"
#include "qemu/units.h"
#include "qapi/error.h"
#include "trace.h"
#include "process/process.h"

/*
 * Address of a BAR in its window. At address 0, QEMU would replace the window
 * by the BAR, which is at the address that the VMM has given to it.
 */
#define WINDOW_BASE 4096

/*
 * QEMU frees the addresses of a removed region after a grace period of RCU. A
 * VMM that maps and unmaps without a pause would otherwise let the bitmaps of
 * all addresses grow without limit.
 */
#define RELEASED_MAX (64 * GiB)

#define TYPE_QRNIC_DMA_REGION "qrnic-dma-region"
OBJECT_DECLARE_SIMPLE_TYPE(QrnicDmaRegion, QRNIC_DMA_REGION)

struct QrnicDmaRegion {
    Object parent_obj;

    uint64_t base, size;
    bool mapped;
    MemoryRegion ram;
};

static const TypeInfo region_info = {
    .name = TYPE_QRNIC_DMA_REGION,
    .parent = TYPE_OBJECT,
    .instance_size = sizeof(QrnicDmaRegion),
};

static void region_register(void)
{
    type_register_static(&region_info);
}

type_init(region_register)

void qrnic_dma_init(QrnicDma *dma, Object *owner)
{
    memory_region_init(&dma->root, owner, "qrnic-dma", UINT64_MAX);
    address_space_init(&dma->as, &dma->root, "qrnic-dma");
    dma->regions = g_ptr_array_new();
}

/*
 * Waits until QEMU has freed the removed regions, if they are many, or if one
 * may have had the host address of the new region. Otherwise an atomic could
 * use the wrong one, because QEMU finds its region by the host address.
 */
static void await_removed(QrnicDma *dma, const vfu_dma_info_t *info)
{
    uintptr_t low = (uintptr_t)info->vaddr;

    if (dma->released > RELEASED_MAX ||
        (dma->released && low < dma->released_high &&
         low + info->iova.iov_len > dma->released_low)) {
        drain_call_rcu();
        dma->released = 0;
    }
}

static void released_add(QrnicDma *dma, QrnicDmaRegion *r)
{
    uintptr_t low = (uintptr_t)memory_region_get_ram_ptr(&r->ram);
    bool first = !dma->released;

    dma->released += r->size;
    dma->released_low = first ? low : MIN(low, dma->released_low);
    dma->released_high = first ? low + r->size :
                         MAX(low + r->size, dma->released_high);
}

void qrnic_dma_add(QrnicDma *dma, const vfu_dma_info_t *info)
{
    QrnicDmaRegion *r = QRNIC_DMA_REGION(object_new(TYPE_QRNIC_DMA_REGION));

    await_removed(dma, info);
    r->base = (uintptr_t)info->iova.iov_base;
    r->size = info->iova.iov_len;
    /*
     * A region that the VMM cannot read is not mapped, because a read by the
     * device would end the process.
     */
    r->mapped = info->vaddr && info->prot & PROT_READ;
    if (r->mapped) {
        memory_region_init_ram_ptr(&r->ram, OBJECT(r), "ram", r->size,
                                   info->vaddr);
        memory_region_set_readonly(&r->ram, !(info->prot & PROT_WRITE));
        memory_region_add_subregion(&dma->root, r->base, &r->ram);
        dma->mapped += r->size;
    }
    g_ptr_array_add(dma->regions, r);
    trace_qrnic_process_dma_map(r->base, r->size, r->mapped,
                                info->prot & PROT_WRITE);
}

static unsigned find(const QrnicDma *dma, uint64_t base, uint64_t size)
{
    for (unsigned i = 0; i < dma->regions->len; i++) {
        const QrnicDmaRegion *r = g_ptr_array_index(dma->regions, i);

        if (r->base == base && r->size == size) {
            return i;
        }
    }
    return dma->regions->len;
}

bool qrnic_dma_find(const QrnicDma *dma, uint64_t base, uint64_t size)
{
    return find(dma, base, size) < dma->regions->len;
}

void qrnic_dma_remove(QrnicDma *dma, const vfu_dma_info_t *info)
{
    unsigned i = find(dma, (uintptr_t)info->iova.iov_base, info->iova.iov_len);
    QrnicDmaRegion *r;

    if (i == dma->regions->len) {
        return;
    }
    r = g_ptr_array_remove_index(dma->regions, i);
    trace_qrnic_process_dma_unmap(r->base, r->size);
    if (r->mapped) {
        memory_region_del_subregion(&dma->root, &r->ram);
        dma->mapped -= r->size;
        released_add(dma, r);
    }
    /* Flat views may refer to the object until the next grace period of RCU. */
    object_unref(OBJECT(r));
}

void qrnic_window_init(QrnicWindow *w, Object *owner, MemoryRegion *bar)
{
    uint64_t size = memory_region_size(bar);

    memory_region_init_alias(&w->alias, owner, "qrnic-bar", bar, 0, size);
    memory_region_init(&w->root, owner, "qrnic-window", WINDOW_BASE + size);
    memory_region_add_subregion(&w->root, WINDOW_BASE, &w->alias);
    address_space_init(&w->as, &w->root, "qrnic-window");
}

bool qrnic_window_access(QrnicWindow *w, uint64_t offset, void *buf, size_t len,
                         bool is_write)
{
    return address_space_rw(&w->as, WINDOW_BASE + offset,
                            MEMTXATTRS_UNSPECIFIED, buf, len, is_write) ==
           MEMTX_OK;
}
