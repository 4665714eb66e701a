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
#include <glib-unix.h>
#include <sys/socket.h>
#include "process/process.h"

/*
 * Bytes of guest memory that all regions of a VMM may have. QEMU keeps 96 MiB
 * of bitmaps for them, also if the VMM's file is sparse.
 */
#define MAPPED_MAX (1ULL << 40)
/* The device maps pages, so regions consist of whole pages. */
#define PAGE_BYTES 4096

/* File descriptors that a message may have (SCM_MAX_FD of Linux) */
#define FDS_MAX 253

typedef GArray Fds;

static void fds_free(Fds *fds)
{
    for (unsigned i = 0; i < fds->len; i++) {
        close(g_array_index(fds, int, i));
    }
    g_array_unref(fds);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Fds, fds_free)

/* Returns duplicates of the descriptors of the next message in the socket. */
static Fds *peek_fds(int socket)
{
    Fds *fds = g_array_new(false, false, sizeof(int));
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    char byte;
    struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = &control, .msg_controllen = sizeof(control),
    };

    if (RETRY_ON_EINTR(recvmsg(socket, &msg, MSG_PEEK | MSG_DONTWAIT |
                                             MSG_CMSG_CLOEXEC)) <= 0) {
        return fds;
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            g_array_append_vals(fds, CMSG_DATA(c),
                                (c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        }
    }
    return fds;
}

/*
 * Returns true if the file has all pages of the region. An access to a page
 * beyond the end would end the process. Only regular files, which include those
 * of memfd_create(), have a size that can be checked.
 */
static bool covers(int fd, const struct vfio_user_dma_map *map)
{
    struct stat st;

    return !fstat(fd, &st) && S_ISREG(st.st_mode) &&
           map->offset + map->size <= st.st_size;
}

static const char *check_map(const QrnicDma *dma, int socket, const void *body)
{
    struct vfio_user_dma_map map;
    g_autoptr(Fds) fds = NULL;

    memcpy(&map, body, sizeof(map));
    if (!map.size || map.size % PAGE_BYTES || map.addr % PAGE_BYTES ||
        map.offset % PAGE_BYTES) {
        return "a DMA region does not consist of whole pages";
    }
    if (map.size > MAPPED_MAX || dma->mapped > MAPPED_MAX - map.size) {
        return "the DMA regions exceed 1 TiB";
    }
    /* libvfio-user compares with the end, which therefore must not be 0. */
    if (map.addr + map.size < map.addr || map.addr + map.size == 0 ||
        map.offset > INT64_MAX - map.size) {
        return "a DMA region exceeds the address space";
    }
    /* libvfio-user would keep the second descriptor open. */
    if (qrnic_dma_find(dma, map.addr, map.size)) {
        return "a DMA region is mapped twice";
    }
    fds = peek_fds(socket);
    if (fds->len > 1) {
        return "a DMA region has several file descriptors";
    }
    if (fds->len && !covers(g_array_index(fds, int, 0), &map)) {
        return "a DMA region exceeds its file, or is no regular file";
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

static bool is_eventfd(int fd)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);
    g_autofree char *target = g_file_read_link(path, NULL);

    return target && g_str_has_prefix(target, "anon_inode:[eventfd");
}

static const char *check_irqs(int socket, const void *body)
{
    struct vfio_irq_set set;
    g_autoptr(Fds) fds = NULL;

    memcpy(&set, body, sizeof(set));
    /* libvfio-user adds these numbers without a check for overflow. */
    if ((uint64_t)set.start + set.count > UINT32_MAX) {
        return "SET_IRQS has an invalid number of vectors";
    }
    fds = peek_fds(socket);
    for (unsigned i = 0; i < fds->len; i++) {
        int fd = g_array_index(fds, int, i);

        /* A write to a full eventfd would stop the main loop. */
        if (!is_eventfd(fd) || !g_unix_set_fd_nonblocking(fd, true, NULL)) {
            return "the descriptor of an interrupt is not an eventfd";
        }
    }
    return NULL;
}

static const char *check_region(const void *body)
{
    struct vfio_user_region_access access;

    memcpy(&access, body, sizeof(access));
    return access.count > QRNIC_MESSAGE_MAX / 2 ?
           "an access has more than 32 KiB" : NULL;
}

const char *qrnic_message_check(const QrnicDma *dma, int socket,
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
        return check_map(dma, socket, body);
    case VFIO_USER_DMA_UNMAP:
        return check_unmap(body);
    case VFIO_USER_DEVICE_SET_IRQS:
        return check_irqs(socket, body);
    case VFIO_USER_REGION_READ:
    case VFIO_USER_REGION_WRITE:
        return check_region(body);
    default:
        return NULL;
    }
}
