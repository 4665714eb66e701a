/*
 * qrnic cable: the socket, by which two ends find each other
 *
 * Whatever waits would be in the other end's hands: so every call says for
 * itself that it does not. O_NONBLOCK belongs to all copies of a descriptor, of
 * which others may have one.
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

/* Each time an end that is just leaving has removed the file under the lock. */
#define LOCK_TRIES 8

/* Bytes. Memory that is locked has all of it. */
#define THREAD_STACK (256 * 1024)

/*
 * Threads for calls that a peer can block
 */

bool qrnic_cable_thread(void *(*run)(void *opaque), void *opaque)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int error;

    /* Signals are the main loop's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, THREAD_STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    /* qemu_thread_create() ends the process where this returns an error. */
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

/*
 * The meeting
 */

void qrnic_meeting_init(QrnicMeeting *m, const char *path)
{
    *m = (QrnicMeeting) { .path = g_strdup(path), .lock = -1, .listener = -1 };
}

static bool address_of(struct sockaddr_un *address, const char *path,
                       Error **errp)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(address->sun_path)) {
        error_setg(errp, "path '%s' is longer than the %zu bytes that a "
                   "socket's may have", path, sizeof(address->sun_path) - 1);
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

/* True: the lock is ours. Else *errp, or another end has it. */
static bool take_lock(QrnicMeeting *m, Error **errp)
{
    g_autofree char *name = g_strconcat(m->path, ".lock", NULL);
    struct stat ours, there;

    for (unsigned i = 0; i < LOCK_TRIES; i++) {
        /* Whoever holds a lease on the file must not make us wait. */
        int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW |
                      O_NONBLOCK, 0600);

        if (fd < 0 && errno == EWOULDBLOCK) {
            return false;
        }
        if (fd < 0) {
            error_setg_errno(errp, errno, "cannot open '%s'", name);
            return false;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            if (errno != EWOULDBLOCK) {
                error_setg_errno(errp, errno, "cannot lock '%s'", name);
            }
            close(fd);
            return false;
        }
        /* It may have been removed by its last owner before we had it. */
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

    /* Nobody holds the lock: a socket here is of an end that is gone. */
    if (!lstat(m->path, &there) && S_ISSOCK(there.st_mode)) {
        unlink(m->path);
    }
    m->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
                         0);
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
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
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

    /* Another file at the path is not ours to remove. */
    if (m->bound) {
        unlink(m->path);
    }
    m->bound = false;
    /*
     * Closing the listener drops the messages of peers that were not accepted
     * yet.
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

/*
 * Messages
 */

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
    /* No room: the other end has not looked at those before, and will. */
    return send_bytes(fd, bytes, WAKE_BYTES, -1) || errno == EAGAIN;
}

/* The one that came with the message; more are closed. */
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
    /* An end that closed without reading all: what it said last comes next. */
    if (len < 0 && errno == ECONNRESET) {
        len = RETRY_ON_EINTR(recvmsg(fd, &msg,
                                     MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
    }
    *descriptor = -1;
    if (len < 0) {
        return errno == EAGAIN ? QRNIC_RECEIVED_NOTHING : QRNIC_RECEIVED_END;
    }
    /*
     * An empty message looks like the end but may bring descriptors, which the
     * caller has to close.
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
        error_setg(errp, "descriptor %d is not one of a socketpair of "
                   "AF_UNIX and SOCK_SEQPACKET", fd);
        return false;
    }
    return true;
}
