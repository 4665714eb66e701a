/*
 * qrnic process: validation of messages before libvfio-user gets them
 *
 * libvfio-user validates most of a message. The server calls
 * qrnic_message_check() for the rest, which would otherwise end the process or
 * leak a descriptor. No valid VMM sends such a message, so the VMM is
 * disconnected. The bytes are still in the kernel's buffer of the socket, so
 * the VMM cannot change them between this check and their use.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "process/process.h"

/* Bytes of guest memory that all regions of a VMM may have */
#define MAPPED_MAX (4ULL << 40)
/* The device maps pages, so regions consist of whole pages. */
#define PAGE_BYTES 4096

static const char *check_map(const QrnicDma *dma, const void *body)
{
    struct vfio_user_dma_map map;

    memcpy(&map, body, sizeof(map));
    if (!map.size || map.size % PAGE_BYTES || map.addr % PAGE_BYTES ||
        map.offset % PAGE_BYTES) {
        return "a DMA region does not consist of whole pages";
    }
    if (map.addr + map.size - 1 < map.addr ||
        map.offset + map.size - 1 < map.offset) {
        return "a DMA region exceeds the address space";
    }
    if (map.size > MAPPED_MAX || dma->mapped > MAPPED_MAX - map.size) {
        return "the DMA regions exceed 4 TiB";
    }
    /* libvfio-user would keep the second descriptor open. */
    if (qrnic_dma_find(dma, map.addr, map.size)) {
        return "a DMA region is mapped twice";
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

/* libvfio-user adds these numbers without a check for overflow. */
static const char *check_irqs(const void *body)
{
    struct vfio_irq_set set;

    memcpy(&set, body, sizeof(set));
    return (uint64_t)set.start + set.count > UINT32_MAX ?
           "SET_IRQS has an invalid number of vectors" : NULL;
}

static const char *check_region(const void *body)
{
    struct vfio_user_region_access access;

    memcpy(&access, body, sizeof(access));
    return access.count > QRNIC_MESSAGE_MAX / 2 ?
           "an access has more than 32 KiB" : NULL;
}

const char *qrnic_message_check(const QrnicDma *dma, const void *message)
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
        [VFIO_USER_DIRTY_PAGES] = sizeof(struct vfio_user_dirty_pages),
    };
    const void *body = message + sizeof(struct vfio_user_header);
    struct vfio_user_header header;

    memcpy(&header, message, sizeof(header));
    if (header.flags.type != VFIO_USER_F_TYPE_COMMAND) {
        return "a message is not a command";
    }
    if (header.cmd < VFIO_USER_MAX &&
        header.msg_size < sizeof(header) + body_size[header.cmd]) {
        return "a message is too short for its command";
    }
    switch (header.cmd) {
    case VFIO_USER_DMA_MAP:
        return check_map(dma, body);
    case VFIO_USER_DMA_UNMAP:
        return check_unmap(body);
    case VFIO_USER_DEVICE_SET_IRQS:
        return check_irqs(body);
    case VFIO_USER_REGION_READ:
    case VFIO_USER_REGION_WRITE:
        return check_region(body);
    default:
        return NULL;
    }
}
