/*
 * qrnic process: validation of messages before they are executed
 *
 * libvfio-user, dma.c and irq.c answer an invalid request with an error. The
 * server calls qrnic_message_check() before them, for fields and descriptors
 * that would end the process or make it wait. No valid VMM sends such a
 * message, so the VMM is disconnected. The message is a copy, so the VMM cannot
 * change it between this check and its use.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "process/process.h"

/*
 * Bytes of guest memory that all regions of a VMM may have. QEMU keeps 96 MiB
 * of bitmaps for them, also if the VMM's file is sparse.
 */
#define MAPPED_MAX (1ULL << 40)
/* The device maps pages, so regions consist of whole pages. */
#define PAGE_BYTES 4096

/*
 * Returns true if the file has all pages of the region. An access to a page
 * beyond the end would end the process.
 */
static bool covers(int fd, const struct vfio_user_dma_map *map)
{
    struct stat st;

    return !fstat(fd, &st) && map->offset + map->size <= st.st_size;
}

static const char *check_map(const QrnicDma *dma, const QrnicFds *fds,
                             const void *body)
{
    struct vfio_user_dma_map map;

    memcpy(&map, body, sizeof(map));
    if (!map.size || map.size % PAGE_BYTES || map.addr % PAGE_BYTES ||
        map.offset % PAGE_BYTES) {
        return "a DMA region does not consist of whole pages";
    }
    if (map.size > MAPPED_MAX || dma->mapped > MAPPED_MAX - map.size) {
        return "the DMA regions exceed 1 TiB";
    }
    /* dma.c compares with the end, which therefore must not be 0. */
    if (map.addr + map.size < map.addr || map.addr + map.size == 0 ||
        map.offset > INT64_MAX - map.size) {
        return "a DMA region exceeds the address space";
    }
    if (fds->count > 1) {
        return "a DMA region has several file descriptors";
    }
    /* A file of another type may delay an access to its pages. */
    if (fds->count && !qrnic_fd_is_memory(fds->fd[0])) {
        return "a DMA region is no file of memory (memfd, tmpfs or hugetlbfs)";
    }
    if (fds->count && !covers(fds->fd[0], &map)) {
        return "a DMA region exceeds its file";
    }
    return NULL;
}

/* The bitmap of dirty pages belongs to migration, which is not offered. */
static const char *check_unmap(const void *body)
{
    struct vfio_user_dma_unmap unmap;

    memcpy(&unmap, body, sizeof(unmap));
    return unmap.flags & VFIO_DMA_UNMAP_FLAG_GET_DIRTY_BITMAP ?
           "a bitmap of dirty pages is requested, but the device does not "
           "migrate" : NULL;
}

static const char *check_irqs(const QrnicFds *fds)
{
    for (unsigned i = 0; i < fds->count; i++) {
        if (!qrnic_fd_is_eventfd(fds->fd[i])) {
            return "the descriptor of an interrupt is not an eventfd";
        }
    }
    return NULL;
}

static const char *check_region(const void *body)
{
    struct vfio_user_region_access access;

    memcpy(&access, body, sizeof(access));
    return access.count > QRNIC_ACCESS_MAX ?
           "an access has more than 32 KiB" : NULL;
}

const char *qrnic_message_check(const QrnicDma *dma, const QrnicFds *fds,
                                const void *message)
{
    static const uint16_t body_size[VFIO_USER_MAX] = {
        [VFIO_USER_DMA_MAP] = sizeof(struct vfio_user_dma_map),
        [VFIO_USER_DMA_UNMAP] = sizeof(struct vfio_user_dma_unmap),
        [VFIO_USER_DEVICE_GET_INFO] = sizeof(struct vfio_user_device_info),
        [VFIO_USER_DEVICE_GET_REGION_INFO] = sizeof(struct vfio_region_info),
        [VFIO_USER_DEVICE_GET_REGION_IO_FDS] =
            sizeof(vfio_user_region_io_fds_request_t),
        [VFIO_USER_DEVICE_GET_IRQ_INFO] = sizeof(struct vfio_irq_info),
        [VFIO_USER_DEVICE_SET_IRQS] = sizeof(struct vfio_irq_set),
        [VFIO_USER_REGION_READ] = sizeof(struct vfio_user_region_access),
        [VFIO_USER_REGION_WRITE] = sizeof(struct vfio_user_region_access),
    };
    const void *body = message + sizeof(struct vfio_user_header);
    struct vfio_user_header header;

    memcpy(&header, message, sizeof(header));
    if (qrnic_message_type(&header) != VFIO_USER_F_TYPE_COMMAND) {
        return "a message is not a command";
    }
    if (header.cmd < VFIO_USER_MAX &&
        header.msg_size < sizeof(header) + body_size[header.cmd]) {
        return "a message is too short for its command";
    }
    if (fds->count && header.cmd != VFIO_USER_DMA_MAP &&
        header.cmd != VFIO_USER_DEVICE_SET_IRQS) {
        return "a message has file descriptors that its command does not use";
    }
    switch (header.cmd) {
    case VFIO_USER_DMA_MAP:
        return check_map(dma, fds, body);
    case VFIO_USER_DMA_UNMAP:
        return check_unmap(body);
    case VFIO_USER_DEVICE_SET_IRQS:
        return check_irqs(fds);
    case VFIO_USER_REGION_READ:
    case VFIO_USER_REGION_WRITE:
        return check_region(body);
    default:
        return NULL;
    }
}
