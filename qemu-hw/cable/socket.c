/*
 * qrnic cable: the sockets by which two ends find each other and exchange
 * messages
 *
 * A call that waits would give control over this process to the peer. So each
 * call has a flag that forbids to wait. O_NONBLOCK is not enough, because
 * another process with a copy of the descriptor could clear it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "cable/socket.h"

/* magic and type */
#define WAKE_BYTES 8

/*
 * Maximum of attempts to lock, because an end that is just leaving may remove
 * the file each time
 */
#define LOCK_TRIES 8

/*
 * Bytes. The stack is small, because a process that locks its memory needs all
 * of it.
 */
#define THREAD_STACK (256 * 1024)

/* Threads for calls that a peer can block */

bool qrnic_cable_thread(void *(*run)(void *opaque), void *opaque)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int error;

    /* Signals are blocked, because the main loop handles them. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, THREAD_STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    /*
     * qemu_thread_create() is not used, because it ends the process on an
     * error.
     */
    error = pthread_create(&thread, &attr, run, opaque);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !error;
}

static void *close_thread(void *opaque)
{
    close(GPOINTER_TO_INT(opaque));
    return NULL;
}

void qrnic_cable_close_elsewhere(int fd)
{
    if (!qrnic_cable_thread(close_thread, GINT_TO_POINTER(fd))) {
        warn_report_once("qrnic-cable: a socket stays open, as no thread can "
                         "be started to close it");
    }
}

/* Meeting */

void qrnic_meeting_init(QrnicMeeting *m, const char *path)
{
    *m = (QrnicMeeting) {
        .path = g_strdup(path), .type = SOCK_SEQPACKET, .lock = -1,
        .listener = -1,
    };
}

static bool address_of(struct sockaddr_un *address, const char *path,
                       Error **errp)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(address->sun_path)) {
        error_setg(errp, "path '%s' is longer than the %zu bytes that a "
                   "socket may have", path, sizeof(address->sun_path) - 1);
        return false;
    }
    strcpy(address->sun_path, path);
    return true;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

bool qrnic_meeting_path_check(const char *path, Error **errp)
{
    struct sockaddr_un address;

    return address_of(&address, path, errp);
}

/*
 * Returns true if this end has locked the file. Otherwise *errp is set, or
 * another end has the lock.
 */
static bool take_lock(QrnicMeeting *m, Error **errp)
{
    g_autofree char *name = g_strconcat(m->path, ".lock", NULL);
    struct stat ours, there;

    for (unsigned i = 0; i < LOCK_TRIES; i++) {
        /*
         * O_NONBLOCK prevents a wait for a process that has a lease on the
         * file.
         */
        int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW |
                      O_NONBLOCK, 0600);

        if (fd < 0 && errno == EWOULDBLOCK) {
            return false;
        }
        if (fd < 0) {
            error_setg_errno(errp, errno, "cannot open '%s'", name);
            return false;
        }
        if (fstat(fd, &ours) < 0 || !S_ISREG(ours.st_mode)) {
            error_setg(errp, "'%s' is not a regular file", name);
            close(fd);
            return false;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            if (errno != EWOULDBLOCK) {
                error_setg_errno(errp, errno, "cannot lock '%s'", name);
            }
            close(fd);
            return false;
        }
        /*
         * The file may have been removed by its last owner before this end
         * locked it.
         */
        if (!fstat(fd, &ours) && !stat(name, &there) &&
            ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) {
            m->lock = fd;
            return true;
        }
        close(fd);
    }
    return false;
}

static bool listen_at(QrnicMeeting *m, const struct sockaddr_un *address,
                      Error **errp)
{
    struct stat there;

    /*
     * This end has the lock, so a socket at the path was left behind by an
     * ended process.
     */
    if (!lstat(m->path, &there) && S_ISSOCK(there.st_mode)) {
        unlink(m->path);
    }
    m->listener = socket(AF_UNIX, m->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    m->bound = m->listener >= 0 &&
               !bind(m->listener, (const struct sockaddr *)address,
                     sizeof(*address));
    if (m->bound && !listen(m->listener, 4)) {
        return true;
    }
    error_setg_errno(errp, errno, "cannot listen at '%s'", m->path);
    qrnic_meeting_leave(m);
    return false;
}

QrnicMeet qrnic_meeting_go(QrnicMeeting *m, int *fd, Error **errp)
{
    struct sockaddr_un address;
    Error *err = NULL;

    if (!address_of(&address, m->path, errp)) {
        return QRNIC_MEET_FAILED;
    }
    if (take_lock(m, &err)) {
        return listen_at(m, &address, errp) ? QRNIC_MEET_LISTENING :
               QRNIC_MEET_FAILED;
    }
    if (err) {
        error_propagate(errp, err);
        return QRNIC_MEET_FAILED;
    }
    *fd = socket(AF_UNIX, m->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd >= 0 &&
        !connect(*fd, (struct sockaddr *)&address, sizeof(address))) {
        return QRNIC_MEET_CONNECTED;
    }
    close_fd(fd);
    return QRNIC_MEET_LATER;
}

int qrnic_meeting_accept(QrnicMeeting *m)
{
    return accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

void qrnic_meeting_leave(QrnicMeeting *m)
{
    g_autofree char *name = g_strconcat(m->path, ".lock", NULL);

    /* A file at the path that this end has not created is not removed. */
    if (m->bound) {
        unlink(m->path);
    }
    m->bound = false;
    /*
     * The close drops messages of peers that were not accepted yet, so a thread
     * does it.
     */
    if (m->listener >= 0) {
        qrnic_cable_close_elsewhere(m->listener);
    }
    m->listener = -1;
    if (m->lock >= 0) {
        unlink(name);
    }
    close_fd(&m->lock);
}

/* Messages */

static bool send_bytes(int fd, const uint8_t *bytes, size_t len,
                       int descriptor)
{
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = { };
    struct iovec iov = { .iov_base = (void *)bytes, .iov_len = len };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    struct cmsghdr *head;

    if (descriptor >= 0) {
        msg.msg_control = control.buf;
        msg.msg_controllen = sizeof(control.buf);
        head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
    }
    return RETRY_ON_EINTR(sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL)) ==
           len;
}

bool qrnic_cable_message_send(int fd, const QrnicCableMessage *message,
                              int descriptor)
{
    uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES];

    qrnic_cable_message_pack(bytes, message);
    return send_bytes(fd, bytes, sizeof(bytes), descriptor);
}

bool qrnic_cable_wake_send(int fd)
{
    const QrnicCableMessage wake = {
        .magic = QRNIC_CABLE_MAGIC, .type = QRNIC_CABLE_WAKE,
    };
    uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES];

    qrnic_cable_message_pack(bytes, &wake);
    /*
     * If the socket is full, the peer has unread messages and will check the
     * ring after them.
     */
    return send_bytes(fd, bytes, WAKE_BYTES, -1) || errno == EAGAIN;
}

/*
 * Returns the descriptor of the message, or -1. Further descriptors are closed.
 */
static int descriptor_of(struct msghdr *msg)
{
    int result = -1;

    for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head;
         head = CMSG_NXTHDR(msg, head)) {
        int *fds = (int *)CMSG_DATA(head);
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, fds + i, sizeof(fd));
            close_fd(&result);
            result = fd;
        }
    }
    return result;
}

QrnicReceived qrnic_cable_message_receive(int fd, QrnicCableMessage *message,
                                          int *descriptor)
{
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    uint8_t bytes[QRNIC_CABLE_MESSAGE_BYTES + 1] = { 0 };
    struct iovec iov = { .iov_base = bytes, .iov_len = sizeof(bytes) };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = control.buf, .msg_controllen = sizeof(control.buf),
    };
    ssize_t len;

    len = RETRY_ON_EINTR(recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
    /*
     * The peer has closed its end without reading all messages. The next call
     * receives the last messages of the peer.
     */
    if (len < 0 && errno == ECONNRESET) {
        len = RETRY_ON_EINTR(recvmsg(fd, &msg,
                                     MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
    }
    *descriptor = -1;
    if (len < 0) {
        return errno == EAGAIN ? QRNIC_RECEIVED_NOTHING : QRNIC_RECEIVED_END;
    }
    /*
     * An empty message looks like the end of the connection, but it may have
     * descriptors, which the caller must close.
     */
    *descriptor = descriptor_of(&msg);
    if (len == 0) {
        return QRNIC_RECEIVED_END;
    }
    qrnic_cable_message_unpack(message, bytes);
    if (message->magic == QRNIC_CABLE_MAGIC &&
        len == (message->type == QRNIC_CABLE_WAKE ?
                WAKE_BYTES : QRNIC_CABLE_MESSAGE_BYTES)) {
        return QRNIC_RECEIVED_MESSAGE;
    }
    close_fd(descriptor);
    return QRNIC_RECEIVED_WRONG;
}

bool qrnic_cable_socket_check(int fd, Error **errp)
{
    int type = 0, domain = 0;
    socklen_t len = sizeof(int);

    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) ||
        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) ||
        type != SOCK_SEQPACKET || domain != AF_UNIX) {
        error_setg(errp, "descriptor %d is not a socket of AF_UNIX and "
                   "SOCK_SEQPACKET", fd);
        return false;
    }
    return true;
}
