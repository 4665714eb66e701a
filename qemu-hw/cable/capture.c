/*
 * qrnic cable: a file of the frames that pass an end, as pcapng
 *
 * The format is that of draft-ietf-opsawg-pcapng: blocks with their length at
 * both ends, in the byte order of the host.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/uio.h>
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "cable/capture.h"

#define BLOCK_SECTION 0x0a0d0d0au
#define BLOCK_INTERFACE 1u
#define BLOCK_PACKET 6u
#define ORDER 0x1a2b3c4du
#define LINK_ETHERNET 1
#define OPTION_NAME 2           /* of an interface */
#define OPTION_FLAGS 2          /* of a packet */
#define FLAG_INBOUND 1u
#define FLAG_OUTBOUND 2u
#define NAME_MAX_BYTES 64

typedef struct Option {
    uint16_t code, length;
} Option;

typedef struct SectionBlock {
    uint32_t type, length;
    uint32_t order;
    uint16_t major, minor;
    uint32_t bytes[2];          /* of the section: unknown */
    uint32_t length_again;
} SectionBlock;

typedef struct InterfaceBlock {
    uint32_t type, length;
    uint16_t link, rsvd;
    uint32_t snap_length;       /* 0: whole frames */
    Option name;
    char text[NAME_MAX_BYTES];
    Option end;
    uint32_t length_again;
} InterfaceBlock;

typedef struct PacketHead {
    uint32_t type, length;
    uint32_t interface;
    uint32_t time_high, time_low; /* us since 1970 */
    uint32_t captured, original;
} PacketHead;

typedef struct PacketTail {
    Option flags;
    uint32_t value;
    Option end;
    uint32_t length_again;
} PacketTail;

QEMU_BUILD_BUG_ON(sizeof(SectionBlock) != 28);
QEMU_BUILD_BUG_ON(sizeof(InterfaceBlock) != 28 + NAME_MAX_BYTES);
QEMU_BUILD_BUG_ON(sizeof(PacketHead) != 28);
QEMU_BUILD_BUG_ON(sizeof(PacketTail) != 16);

static bool write_whole(QrnicCapture *c, struct iovec *iov, int count)
{
    ssize_t bytes = 0;

    for (int i = 0; i < count; i++) {
        bytes += iov[i].iov_len;
    }
    return RETRY_ON_EINTR(writev(c->fd, iov, count)) == bytes;
}

bool qrnic_capture_interface(QrnicCapture *c, const char *name, Error **errp)
{
    InterfaceBlock interface = {
        .type = BLOCK_INTERFACE, .length = sizeof(interface),
        .link = LINK_ETHERNET, .name = { OPTION_NAME, NAME_MAX_BYTES },
        .length_again = sizeof(interface),
    };
    struct iovec iov = { &interface, sizeof(interface) };

    /* Zeros behind the name are allowed, and make the block of one size. */
    g_strlcpy(interface.text, name, sizeof(interface.text));
    if (write_whole(c, &iov, 1)) {
        return true;
    }
    error_setg_errno(errp, errno, "cannot write the capture");
    qrnic_capture_close(c);
    return false;
}

bool qrnic_capture_open(QrnicCapture *c, const char *path, const char *name,
                        Error **errp)
{
    SectionBlock section = {
        .type = BLOCK_SECTION, .length = sizeof(section), .order = ORDER,
        .major = 1, .bytes = { UINT32_MAX, UINT32_MAX },
        .length_again = sizeof(section),
    };
    struct iovec iov = { &section, sizeof(section) };

    c->interface = 0;
    c->fd = qemu_create(path, O_WRONLY | O_TRUNC, 0644, errp);
    if (c->fd < 0) {
        return false;
    }
    if (!write_whole(c, &iov, 1)) {
        error_setg_errno(errp, errno, "cannot write to '%s'", path);
        qrnic_capture_close(c);
        return false;
    }
    return qrnic_capture_interface(c, name, errp);
}

void qrnic_capture_frame(QrnicCapture *c, const uint8_t *frame, size_t len,
                         bool sent)
{
    static const uint8_t zeros[3];
    uint64_t now = g_get_real_time();
    size_t fill = ROUND_UP(len, 4) - len;
    uint32_t bytes = sizeof(PacketHead) + len + fill + sizeof(PacketTail);
    PacketHead head = {
        .type = BLOCK_PACKET, .length = bytes, .interface = c->interface,
        .time_high = now >> 32, .time_low = now,
        .captured = len, .original = len,
    };
    PacketTail tail = {
        .flags = { OPTION_FLAGS, sizeof(tail.value) },
        .value = sent ? FLAG_OUTBOUND : FLAG_INBOUND,
        .length_again = bytes,
    };
    struct iovec iov[] = {
        { &head, sizeof(head) }, { (void *)frame, len },
        { (void *)zeros, fill }, { &tail, sizeof(tail) },
    };

    if (c->fd >= 0 && !write_whole(c, iov, ARRAY_SIZE(iov))) {
        error_report("qrnic-cable: a frame could not be written; the capture "
                     "ends here");
        qrnic_capture_close(c);
    }
}

void qrnic_capture_close(QrnicCapture *c)
{
    if (c->fd >= 0) {
        close(c->fd);
    }
    c->fd = -1;
}
