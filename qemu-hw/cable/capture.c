/*
 * qrnic: captures packets in a pcapng file
 *
 * The main loop writes the head of the file and queues packets. The writer
 * thread, started by the first packet, writes them. A lock protects the queue.
 * If the thread still runs when the capture is closed, it frees itself. The
 * format is draft-ietf-opsawg-pcapng: blocks with their length at both ends, in
 * the byte order of the host.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/uio.h>
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/lockable.h"
#include "qemu/queue.h"
#include "qemu/thread.h"
#include "cable/capture.h"
#include "cable/socket.h"

#define BLOCK_SECTION 0x0a0d0d0au
#define BLOCK_INTERFACE 1u
#define BLOCK_STATISTICS 5u
#define BLOCK_PACKET 6u
#define ORDER 0x1a2b3c4du
#define OPTION_COMMENT 1        /* option of any block */
#define OPTION_NAME 2           /* options of an interface block */
#define OPTION_DESCRIPTION 3
#define OPTION_RESOLUTION 9
#define NANOSECONDS 9           /* unit of time: 10^-9 s */
#define OPTION_FLAGS 2          /* option of a packet block */
#define FLAG_INBOUND 1u
#define FLAG_OUTBOUND 2u
#define OPTION_DROPPED 5        /* option of a statistics block */
#define NAME_MAX_BYTES 64

/*
 * Readers of the file compare the version. The description of an interface has
 * it, because a merged file keeps the interfaces of its sources.
 */
#define VERSION_TEXT "qrnic hardware interface %u.%u"
#define VERSION_BYTES 32

/* Maximum of bytes in the queue */
#define QUEUE_BYTES (64u << 20)
#define CLOSE_MS 2000

typedef struct Option {
    uint16_t code, length;
} Option;

typedef struct SectionBlock {
    uint32_t type, length;
    uint32_t order;
    uint16_t major, minor;
    uint32_t bytes[2];          /* length of the section: unknown */
    uint32_t length_again;
} SectionBlock;

typedef struct InterfaceBlock {
    uint32_t type, length;
    uint16_t link, rsvd;
    uint32_t snap_length;       /* 0: whole frames */
    Option name;
    char text[NAME_MAX_BYTES];
    Option description;
    char version[VERSION_BYTES];
    Option resolution;
    uint8_t exponent, fill[3];
    Option end;
    uint32_t length_again;
} InterfaceBlock;

typedef struct PacketHead {
    uint32_t type, length;
    uint32_t interface;
    uint32_t time_high, time_low; /* ns since 1970 */
    uint32_t captured, original;
} PacketHead;

typedef struct PacketTail {
    Option flags;
    uint32_t value;
    Option end;
    uint32_t length_again;
} PacketTail;

typedef struct StatisticsBlock {
    uint32_t type, length;
    uint32_t interface;
    uint32_t time_high, time_low;
    Option dropped;
    uint32_t count[2];          /* 64 bits, unaligned */
    Option end;
    uint32_t length_again;
} StatisticsBlock;

QEMU_BUILD_BUG_ON(sizeof(StatisticsBlock) != 40);
QEMU_BUILD_BUG_ON(sizeof(SectionBlock) != 28);
QEMU_BUILD_BUG_ON(sizeof(InterfaceBlock) != 40 + NAME_MAX_BYTES +
                  VERSION_BYTES);
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

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

bool qrnic_capture_interface(QrnicCapture *c, const char *name, uint16_t link,
                             Error **errp)
{
    InterfaceBlock interface = {
        .type = BLOCK_INTERFACE, .length = sizeof(interface),
        .link = link, .name = { OPTION_NAME, NAME_MAX_BYTES },
        .description = { OPTION_DESCRIPTION, VERSION_BYTES },
        .resolution = { OPTION_RESOLUTION, 1 }, .exponent = NANOSECONDS,
        .length_again = sizeof(interface),
    };
    struct iovec iov = { &interface, sizeof(interface) };

    /* Zeros follow the texts, so that all blocks have the same size. */
    g_strlcpy(interface.text, name, sizeof(interface.text));
    snprintf(interface.version, sizeof(interface.version), VERSION_TEXT,
             QRNIC_HW_VERSION_MAJOR, QRNIC_HW_VERSION_MINOR);
    if (write_whole(c, &iov, 1)) {
        return true;
    }
    error_setg_errno(errp, errno, "cannot write the capture");
    qrnic_capture_close(c);
    return false;
}

/*
 * Opens a regular file, or a FIFO that a program reads. An open of another FIFO
 * would wait for its reader, and an open of a device node may have effects. So
 * the type is checked before the open. The type is checked again after it,
 * because another process may have replaced the file.
 */
static int open_without_wait(const char *path, Error **errp)
{
    struct stat st;
    int fd = -1;
    bool exists = !stat(path, &st);

    if (exists && S_ISFIFO(st.st_mode)) {
        fd = qemu_open(path, O_WRONLY | O_NONBLOCK, NULL);
        if (fd < 0) {
            error_setg(errp, "no program reads the FIFO '%s'", path);
            return -1;
        }
    } else if (!exists || S_ISREG(st.st_mode)) {
        fd = qemu_create(path, O_WRONLY | O_TRUNC | O_NONBLOCK, 0644, errp);
        if (fd < 0) {
            return -1;
        }
    }
    if (fd >= 0 && !fstat(fd, &st) &&
        (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode))) {
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    error_setg(errp, "'%s' is neither a regular file nor a FIFO", path);
    return -1;
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
    c->fd = open_without_wait(path, errp);
    if (c->fd < 0) {
        return false;
    }
    if (!write_whole(c, &iov, 1)) {
        error_setg_errno(errp, errno, "cannot write to '%s'", path);
        qrnic_capture_close(c);
        return false;
    }
    return qrnic_capture_interface(c, name, QRNIC_CAPTURE_ETHERNET, errp);
}

/* Writer */

typedef struct Block {
    QSIMPLEQ_ENTRY(Block) next;
    uint32_t length;
    uint8_t bytes[];
} Block;

struct QrnicCaptureWriter {
    QemuMutex lock;
    QemuCond changed;
    int fd;
    QSIMPLEQ_HEAD(, Block) queue;
    size_t queued;              /* bytes in the queue */
    uint64_t lost;              /* packets lost because the queue was full */
    bool failed;                /* the file is not writable */
    bool closing, done;
    bool abandoned;             /* the thread frees the writer */
};

static void writer_free(QrnicCaptureWriter *w)
{
    qemu_cond_destroy(&w->changed);
    qemu_mutex_destroy(&w->lock);
    g_free(w);
}

static bool write_bytes(QrnicCaptureWriter *w, const void *bytes, size_t len)
{
    for (const uint8_t *at = bytes; len; ) {
        ssize_t written = RETRY_ON_EINTR(write(w->fd, at, len));

        if (written <= 0) {
            return false;
        }
        at += written;
        len -= written;
    }
    return true;
}

/*
 * Writes a block. The caller has the lock, which is released during the write.
 */
static void write_block(QrnicCaptureWriter *w)
{
    Block *block = QSIMPLEQ_FIRST(&w->queue);
    bool failed = w->failed;

    QSIMPLEQ_REMOVE_HEAD(&w->queue, next);
    qemu_mutex_unlock(&w->lock);
    if (!failed && !write_bytes(w, block->bytes, block->length)) {
        error_report("qrnic: a packet could not be written; the capture ends "
                     "here");
        failed = true;
    }
    qemu_mutex_lock(&w->lock);
    w->failed = failed;
    w->queued -= block->length;
    g_free(block);
}

static void write_statistics(QrnicCaptureWriter *w)
{
    uint64_t now = now_ns();
    StatisticsBlock statistics = {
        .type = BLOCK_STATISTICS, .length = sizeof(statistics),
        .time_high = now >> 32, .time_low = now,
        .dropped = { OPTION_DROPPED, sizeof(statistics.count) },
        .length_again = sizeof(statistics),
    };

    memcpy(statistics.count, &w->lost, sizeof(statistics.count));
    if (w->lost && !w->failed) {
        write_bytes(w, &statistics, sizeof(statistics));
    }
}

static void *writer_thread(void *opaque)
{
    QrnicCaptureWriter *w = opaque;
    bool abandoned;

    /* This thread may wait for the reader of a FIFO; the main loop may not. */
    g_unix_set_fd_nonblocking(w->fd, false, NULL);
    qemu_mutex_lock(&w->lock);
    while (!w->closing || !QSIMPLEQ_EMPTY(&w->queue)) {
        if (QSIMPLEQ_EMPTY(&w->queue)) {
            qemu_cond_wait(&w->changed, &w->lock);
        } else {
            write_block(w);
        }
    }
    qemu_mutex_unlock(&w->lock);
    write_statistics(w);
    close(w->fd);
    qemu_mutex_lock(&w->lock);
    w->done = true;
    abandoned = w->abandoned;
    qemu_cond_signal(&w->changed);
    qemu_mutex_unlock(&w->lock);
    if (abandoned) {
        writer_free(w);
    }
    return NULL;
}

static bool writer_start(QrnicCapture *c)
{
    QrnicCaptureWriter *w = g_new0(QrnicCaptureWriter, 1);

    qemu_mutex_init(&w->lock);
    qemu_cond_init(&w->changed);
    QSIMPLEQ_INIT(&w->queue);
    w->fd = c->fd;
    if (!qrnic_cable_thread(writer_thread, w)) {
        writer_free(w);
        error_report("qrnic: no thread can be started; the capture ends here");
        return false;
    }
    c->writer = w;
    return true;
}

static void enqueue(QrnicCaptureWriter *w, Block *block)
{
    QEMU_LOCK_GUARD(&w->lock);
    if (w->failed || w->queued + block->length > QUEUE_BYTES) {
        w->lost++;
        g_free(block);
        return;
    }
    w->queued += block->length;
    QSIMPLEQ_INSERT_TAIL(&w->queue, block, next);
    qemu_cond_signal(&w->changed);
}

/* Appends bytes and fills the block with zeros to a multiple of 4 bytes. */
static uint8_t *append(uint8_t *at, const void *bytes, size_t len)
{
    if (len) {
        memcpy(at, bytes, len);
    }
    memset(at + len, 0, ROUND_UP(len, 4) - len);
    return at + ROUND_UP(len, 4);
}

void qrnic_capture_packet(QrnicCapture *c, const QrnicCapturePacket *p)
{
    uint64_t now = now_ns();
    size_t len = p->head_len + p->len;
    size_t text = p->comment ? strlen(p->comment) : 0;
    Option comment = { OPTION_COMMENT, text };
    uint32_t bytes = sizeof(PacketHead) + ROUND_UP(len, 4) +
                     (text ? sizeof(comment) + ROUND_UP(text, 4) : 0) +
                     sizeof(PacketTail);
    PacketHead head = {
        .type = BLOCK_PACKET, .length = bytes, .interface = p->interface,
        .time_high = now >> 32, .time_low = now,
        .captured = len, .original = len,
    };
    PacketTail tail = {
        .flags = { OPTION_FLAGS, sizeof(tail.value) },
        .value = p->sent ? FLAG_OUTBOUND : FLAG_INBOUND,
        .length_again = bytes,
    };
    Block *block;
    uint8_t *at;

    if (c->fd < 0) {
        return;
    }
    if (!c->writer && !writer_start(c)) {
        qrnic_capture_close(c);
        return;
    }
    block = g_malloc(sizeof(*block) + bytes);
    block->length = bytes;
    at = append(block->bytes, &head, sizeof(head));
    at = append(at, p->head, p->head_len);
    at = append(at, p->data, p->len);
    if (text) {
        at = append(at, &comment, sizeof(comment));
        at = append(at, p->comment, text);
    }
    append(at, &tail, sizeof(tail));
    enqueue(c->writer, block);
}

void qrnic_capture_frame(QrnicCapture *c, const uint8_t *frame, size_t len,
                         bool sent)
{
    const QrnicCapturePacket packet = {
        .interface = c->interface, .data = frame, .len = len, .sent = sent,
    };

    qrnic_capture_packet(c, &packet);
}

void qrnic_capture_close(QrnicCapture *c)
{
    QrnicCaptureWriter *w = c->writer;
    int64_t end = g_get_monotonic_time() + CLOSE_MS * 1000;
    bool done;

    if (!w && c->fd >= 0) {
        close(c->fd);
    }
    c->fd = -1;
    c->writer = NULL;
    if (!w) {
        return;
    }
    qemu_mutex_lock(&w->lock);
    w->closing = true;
    qemu_cond_signal(&w->changed);
    while (!w->done && g_get_monotonic_time() < end) {
        qemu_cond_timedwait(&w->changed, &w->lock, CLOSE_MS);
    }
    done = w->done;
    w->abandoned = true;
    qemu_mutex_unlock(&w->lock);
    if (done) {
        writer_free(w);
    }
}
