/*
 * qrnic process: file descriptors that a VMM passes with its messages
 *
 * The VMM chooses the file behind each descriptor, and shares the open file
 * with this process. So a call as simple as fstat() or close() may wait for the
 * VMM: for a file of FUSE, or for a socket with SO_LINGER. The main loop
 * performs only calls that never ask the file, until the kernel has confirmed
 * the type of the file. A thread closes all other descriptors. Unread messages
 * contain descriptors, too, so the thread also closes the connections.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/socket.h>
#include "qemu/atomic.h"
#include "qapi/error.h"
#include "cable/socket.h"
#include "process/process.h"

/* Descriptor that the thread shall close */
typedef struct Closing {
    int fd;
    bool connection;
} Closing;

static GAsyncQueue *queue;
static unsigned closing;

static void *close_thread(void *opaque)
{
    for (;;) {
        g_autofree Closing *c = g_async_queue_pop(queue);
        char unread[4096];

        /*
         * A close with unread messages would reset the socket. A reset ends
         * QEMU up to 11.1 by an assertion, because its client reports two
         * errors then. The connection is shut down, so its messages are few.
         */
        while (c->connection &&
               RETRY_ON_EINTR(recv(c->fd, unread, sizeof(unread),
                                   MSG_DONTWAIT)) > 0) {
            continue;
        }
        close(c->fd);
        qatomic_dec(&closing);
    }
    return NULL;
}

bool qrnic_fds_init(Error **errp)
{
    queue = g_async_queue_new();
    if (!qrnic_cable_thread(close_thread, NULL)) {
        error_setg(errp, "qrnic-process: cannot start a thread");
        return false;
    }
    return true;
}

unsigned qrnic_fds_closing(void)
{
    return qatomic_read(&closing);
}

static void close_later(int fd, bool connection)
{
    Closing *c = g_new(Closing, 1);

    *c = (Closing) { .fd = fd, .connection = connection };
    qatomic_inc(&closing);
    g_async_queue_push(queue, c);
}

void qrnic_fd_close(int fd)
{
    close_later(fd, false);
}

void qrnic_connection_close(int fd)
{
    shutdown(fd, SHUT_RDWR);
    close_later(fd, true);
}

void qrnic_fds_wait(int64_t limit_ms)
{
    int64_t end = g_get_monotonic_time() + limit_ms * 1000;

    while (qrnic_fds_closing() && g_get_monotonic_time() < end) {
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
