/*
 * qrnic process: the VMM's memory for DMA of the device, and the device's BARs
 * for accesses of the VMM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The VMM shares its memory by file descriptors, which this file maps. Each
 * mapped region becomes a RAM region of the address space that the device's bus
 * uses for DMA. An address outside of all regions fails, as on a real bus.
 *
 * libvfio-user does not get the requests, because it closes a descriptor twice
 * if it cannot map the file, and has room for 16 regions only.
 *
 * A region is an object of its own, because QEMU's flat views keep the owner of
 * a memory region alive, and not the region itself.
 */

#include "qemu/osdep.h"
#include <sys/mman.h>
#include <sys/stat.h>
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
    /* Address of the region in this process, or NULL */
    void *host;
    /* The mapping that contains the region, of whole pages of the file */
    void *mapping;
    size_t mapping_size;
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
static void await_removed(QrnicDma *dma, const QrnicDmaRegion *r)
{
    uintptr_t low = (uintptr_t)r->host;

    if (dma->released > RELEASED_MAX ||
        (dma->released && low < dma->released_high &&
         low + r->size > dma->released_low)) {
        drain_call_rcu();
        dma->released = 0;
    }
}

static void released_add(QrnicDma *dma, QrnicDmaRegion *r)
{
    uintptr_t low = (uintptr_t)r->host;
    bool first = !dma->released;

    /* The objects of many small regions need memory, too. */
    dma->released += MAX(r->size, RELEASED_MAX / 1024);
    dma->released_low = first ? low : MIN(low, dma->released_low);
    dma->released_high = first ? low + r->size :
                         MAX(low + r->size, dma->released_high);
}

static bool overlaps(const QrnicDma *dma, uint64_t base, uint64_t size)
{
    for (unsigned i = 0; i < dma->regions->len; i++) {
        const QrnicDmaRegion *r = g_ptr_array_index(dma->regions, i);

        if (base < r->base + r->size && r->base < base + size) {
            return true;
        }
    }
    return false;
}

/*
 * Maps the file. Returns false with errno set on an error. The mapping may be
 * larger than the region, because pages of hugetlbfs have up to 1 GiB.
 */
static bool map_file(QrnicDmaRegion *r, const struct vfio_user_dma_map *map,
                     int fd)
{
    int prot = PROT_READ;
    uint64_t first;
    struct stat st;
    void *mapping;
    size_t size;

    if (map->flags & VFIO_USER_F_DMA_REGION_WRITE) {
        prot |= PROT_WRITE;
    }
    if (fstat(fd, &st) < 0) {
        return false;
    }
    first = QEMU_ALIGN_DOWN(map->offset, st.st_blksize);
    size = QEMU_ALIGN_UP(map->offset + map->size, st.st_blksize) - first;
    mapping = mmap(NULL, size, prot, MAP_SHARED, fd, first);
    if (mapping == MAP_FAILED) {
        return false;
    }
    /* A core dump of the device does not contain the guest. */
    madvise(mapping, size, MADV_DONTDUMP);
    r->mapping = mapping;
    r->mapping_size = size;
    r->host = mapping + (map->offset - first);
    return true;
}

int qrnic_dma_map(QrnicDma *dma, const struct vfio_user_dma_map *map, int fd)
{
    const uint32_t rights = VFIO_USER_F_DMA_REGION_READ |
                            VFIO_USER_F_DMA_REGION_WRITE;
    bool writable = map->flags & VFIO_USER_F_DMA_REGION_WRITE;
    QrnicDmaRegion *r;

    if (map->argsz < sizeof(*map) || map->flags & ~rights) {
        return -EINVAL;
    }
    if (overlaps(dma, map->addr, map->size)) {
        return -EEXIST;
    }
    if (dma->regions->len == QRNIC_DMA_REGIONS) {
        return -ENOSPC;
    }
    r = QRNIC_DMA_REGION(object_new(TYPE_QRNIC_DMA_REGION));
    r->base = map->addr;
    r->size = map->size;
    /*
     * A region without the right to read is not mapped, because a read by the
     * device would end the process.
     */
    if (fd >= 0 && map->flags & VFIO_USER_F_DMA_REGION_READ &&
        !map_file(r, map, fd)) {
        int error = -errno;

        object_unref(OBJECT(r));
        return error;
    }
    if (r->host) {
        await_removed(dma, r);
        memory_region_init_ram_ptr(&r->ram, OBJECT(r), "ram", r->size, r->host);
        memory_region_set_readonly(&r->ram, !writable);
        memory_region_add_subregion(&dma->root, r->base, &r->ram);
        dma->mapped += r->size;
    }
    g_ptr_array_add(dma->regions, r);
    trace_qrnic_process_dma_map(r->base, r->size, r->host, writable);
    return 0;
}

/*
 * Removes regions in one transaction, because QEMU renders all regions again at
 * the end of each transaction. The memory is unmapped after the transaction,
 * when no flat view for new accesses contains the regions.
 */
static void remove_regions(QrnicDma *dma, unsigned first, unsigned count)
{
    memory_region_transaction_begin();
    for (unsigned i = first; i < first + count; i++) {
        QrnicDmaRegion *r = g_ptr_array_index(dma->regions, i);

        if (r->host) {
            memory_region_del_subregion(&dma->root, &r->ram);
        }
    }
    memory_region_transaction_commit();
    for (unsigned i = first; i < first + count; i++) {
        QrnicDmaRegion *r = g_ptr_array_index(dma->regions, i);

        trace_qrnic_process_dma_unmap(r->base, r->size);
        if (r->host) {
            dma->mapped -= r->size;
            released_add(dma, r);
            qrnic_mapping_close(r->mapping, r->mapping_size);
        }
        /*
         * Flat views may refer to the object until the next grace period of
         * RCU.
         */
        object_unref(OBJECT(r));
    }
    if (count) {
        g_ptr_array_remove_range(dma->regions, first, count);
    }
}

void qrnic_dma_clear(QrnicDma *dma)
{
    remove_regions(dma, 0, dma->regions->len);
}

int qrnic_dma_unmap(QrnicDma *dma, const struct vfio_user_dma_unmap *unmap)
{
    if (unmap->argsz < sizeof(*unmap) ||
        unmap->flags & ~VFIO_DMA_UNMAP_FLAG_ALL) {
        return -EINVAL;
    }
    if (unmap->flags) {
        if (unmap->addr || unmap->size) {
            return -EINVAL;
        }
        qrnic_dma_clear(dma);
        return 0;
    }
    for (unsigned i = 0; i < dma->regions->len; i++) {
        const QrnicDmaRegion *r = g_ptr_array_index(dma->regions, i);

        if (r->base == unmap->addr && r->size == unmap->size) {
            remove_regions(dma, i, 1);
            return 0;
        }
    }
    return -ENOENT;
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
