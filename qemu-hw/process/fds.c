/*
 * qrnic process: file descriptors that a VMM passes with its messages
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The VMM chooses the file behind each descriptor, and shares the open file
 * with this process. So a call as simple as fstat() or close() may wait for the
 * VMM: for a file of FUSE, or for a socket with SO_LINGER. The main loop
 * performs only calls that never ask the file, until the kernel has confirmed
 * the type of the file. A thread closes all other descriptors. Unread messages
 * contain descriptors, too, so the thread also closes the connections.
 *
 * A descriptor whose close never returns occupies its thread for ever, so each
 * VMM has a thread of its own (a closer). qrnic_fds_renew() replaces the closer
 * of a former VMM that has not finished. Rejected VMMs share another closer.
 * Memory of the VMM has a closer that never gets a descriptor: munmap() takes
 * time, but never waits, because the files consist of memory.
 */

#include "qemu/osdep.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include "qemu/atomic.h"
#include "qemu/units.h"
#include "qapi/error.h"
#include "trace.h"
#include "cable/socket.h"
#include "process/process.h"

/* Threads that may exist at a time; almost all serve former VMMs */
#define CLOSERS_MAX 64

/* Bytes of a mapping whose pages are removed at a time */
#define UNMAP_PART (4 * MiB)

/*
 * Descriptors that a new VMM may need, with those of its messages, those that
 * wait for their close, and its eventfds
 */
#define FDS_OF_VMM (4 * QRNIC_FDS_MAX)

typedef enum CloseKind {
    CLOSE_FILE, CLOSE_CONNECTION, CLOSE_MEMORY, CLOSE_NOTHING_MORE,
} CloseKind;

/* Object that a thread shall close */
typedef struct Closing {
    CloseKind kind;
    int fd;
    void *mapping;
    size_t size;
} Closing;

/* A thread, which frees its closer when nothing more will come */
typedef struct Closer {
    GAsyncQueue *queue;
    unsigned closing;           /* objects that are not closed yet */
} Closer;

static Closer *closers[QRNIC_CLOSERS];
static unsigned threads;
/* Descriptors of all VMMs that are not closed yet */
static unsigned waiting;

/*
 * Unmaps memory. The kernel holds the lock of the address space while it
 * removes pages. The main loop would wait for the lock to map memory, or to
 * handle a page fault. Therefore few pages are removed at a time. The last call
 * finds no pages, unless the kernel does not remove huge pages in parts.
 */
static void unmap(const Closing *c)
{
    size_t parts = 0;

    for (size_t done = 0; done < c->size; done += UNMAP_PART) {
        madvise(c->mapping + done, MIN(UNMAP_PART, c->size - done),
                MADV_DONTNEED);
        parts++;
    }
    munmap(c->mapping, c->size);
    trace_qrnic_process_unmapped(c->size, parts);
}

static void close_fd(const Closing *c)
{
    char unread[4096];

    /*
     * A close with unread messages would reset the socket. A reset ends QEMU up
     * to 11.1 by an assertion, because its client reports two errors then. No
     * message can arrive any more, because the connection is shut down.
     */
    while (c->kind == CLOSE_CONNECTION &&
           RETRY_ON_EINTR(recv(c->fd, unread, sizeof(unread),
                               MSG_DONTWAIT)) > 0) {
        continue;
    }
    close(c->fd);
}

static void *close_thread(void *opaque)
{
    Closer *closer = opaque;

    for (;;) {
        g_autofree Closing *c = g_async_queue_pop(closer->queue);

        if (c->kind == CLOSE_NOTHING_MORE) {
            break;
        }
        if (c->kind == CLOSE_MEMORY) {
            unmap(c);
        } else {
            close_fd(c);
            qatomic_dec(&waiting);
        }
        qatomic_dec(&closer->closing);
    }
    g_async_queue_unref(closer->queue);
    g_free(closer);
    qatomic_dec(&threads);
    return NULL;
}

/* Returns NULL if CLOSERS_MAX threads exist or a thread cannot be started. */
static Closer *closer_new(void)
{
    Closer *closer;

    if (qatomic_read(&threads) == CLOSERS_MAX) {
        return NULL;
    }
    closer = g_new0(Closer, 1);
    closer->queue = g_async_queue_new();
    qatomic_inc(&threads);
    if (!qrnic_cable_thread(close_thread, closer)) {
        qatomic_dec(&threads);
        g_async_queue_unref(closer->queue);
        g_free(closer);
        return NULL;
    }
    return closer;
}

/*
 * Returns true if a new VMM could use up the numbers of descriptors. Then the
 * kernel would close the descriptors of a message in recvmsg(), and the main
 * loop would wait. QEMU raises its limit to the maximum when it starts.
 */
static bool scarce(void)
{
    unsigned count = qatomic_read(&waiting);
    struct rlimit l;

    return count && !getrlimit(RLIMIT_NOFILE, &l) &&
           count + FDS_OF_VMM > l.rlim_cur;
}

bool qrnic_fds_init(Error **errp)
{
    for (unsigned i = 0; i < QRNIC_CLOSERS; i++) {
        closers[i] = closer_new();
        if (!closers[i]) {
            error_setg(errp, "qrnic-process: cannot start a thread");
            return false;
        }
    }
    return true;
}

unsigned qrnic_fds_closing(QrnicCloser who)
{
    return qatomic_read(&closers[who]->closing);
}

static void close_later(QrnicCloser who, Closing what)
{
    Closing *c = g_new(Closing, 1);

    *c = what;
    if (what.kind != CLOSE_MEMORY) {
        qatomic_inc(&waiting);
    }
    qatomic_inc(&closers[who]->closing);
    g_async_queue_push(closers[who]->queue, c);
}

bool qrnic_fds_renew(void)
{
    Closer *new;
    Closing *last;

    if (scarce()) {
        return false;
    }
    if (!qrnic_fds_closing(QRNIC_CLOSER_VMM)) {
        return true;
    }
    new = closer_new();
    if (!new) {
        return false;
    }
    last = g_new0(Closing, 1);
    last->kind = CLOSE_NOTHING_MORE;
    g_async_queue_push(closers[QRNIC_CLOSER_VMM]->queue, last);
    closers[QRNIC_CLOSER_VMM] = new;
    return true;
}

void qrnic_fd_close(int fd)
{
    close_later(QRNIC_CLOSER_VMM, (Closing) { .kind = CLOSE_FILE, .fd = fd });
}

void qrnic_connection_close(int fd, QrnicCloser who)
{
    shutdown(fd, SHUT_RDWR);
    close_later(who, (Closing) { .kind = CLOSE_CONNECTION, .fd = fd });
}

void qrnic_mapping_close(void *mapping, size_t size)
{
    close_later(QRNIC_CLOSER_MEMORY, (Closing) {
        .kind = CLOSE_MEMORY, .mapping = mapping, .size = size,
    });
}

void qrnic_fds_wait(int64_t limit_ms)
{
    int64_t end = g_get_monotonic_time() + limit_ms * 1000;

    while (qrnic_fds_closing(QRNIC_CLOSER_VMM) &&
           g_get_monotonic_time() < end) {
        g_usleep(1000);
    }
}

void qrnic_fds_close(QrnicFds *fds)
{
    for (unsigned i = 0; i < fds->count; i++) {
        if (fds->fd[i] >= 0) {
            qrnic_fd_close(fds->fd[i]);
        }
    }
    fds->count = 0;
}

int qrnic_fds_take(QrnicFds *fds, unsigned i)
{
    int fd = fds->fd[i];

    fds->fd[i] = -1;
    return fd;
}

ssize_t qrnic_fds_peek(int socket, void *buf, size_t len, bool *descriptors)
{
    struct iovec iov = { .iov_base = buf, .iov_len = len };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    ssize_t n = RETRY_ON_EINTR(recvmsg(socket, &msg, MSG_DONTWAIT | MSG_PEEK));

    /* The kernel reports that there is no buffer for the descriptors. */
    *descriptors = n >= 0 && msg.msg_flags & MSG_CTRUNC;
    return n;
}

ssize_t qrnic_fds_receive(int socket, void *buf, size_t len, QrnicFds *fds)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(QRNIC_FDS_MAX * sizeof(int))];
    } control;
    struct iovec iov = { .iov_base = buf, .iov_len = len };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = &control, .msg_controllen = sizeof(control),
    };
    ssize_t n = RETRY_ON_EINTR(recvmsg(socket, &msg,
                                       MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
    bool lost = n >= 0 && msg.msg_flags & MSG_CTRUNC;

    if (n < 0) {
        return n;
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        unsigned count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        const int *new = (const int *)CMSG_DATA(c);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (unsigned i = 0; i < count; i++) {
            if (fds->count < QRNIC_FDS_MAX) {
                fds->fd[fds->count++] = new[i];
            } else {
                qrnic_fd_close(new[i]);
                lost = true;
            }
        }
    }
    if (lost) {
        errno = EMSGSIZE;
        return -1;
    }
    return n;
}

bool qrnic_fd_is_memory(int fd)
{
    /* The kernel answers for files of tmpfs and hugetlbfs only. */
    return fcntl(fd, F_GET_SEALS) >= 0;
}

bool qrnic_fd_is_eventfd(int fd)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);
    char target[32] = "";

    /* Names of files begin with '/', so no file has this name. */
    return readlink(path, target, sizeof(target) - 1) > 0 &&
           g_str_equal(target, "anon_inode:[eventfd]");
}
