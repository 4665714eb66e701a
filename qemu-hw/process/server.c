/*
 * qrnic process: the socket at which VMMs connect
 *
 * libvfio-user waits for the rest of a message, and for the first message after
 * it has accepted a connection. Both would stop the main loop. So this file
 * accepts the VMM, and calls libvfio-user only if the complete message is in
 * the socket and the reply will fit.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * One VMM is served at a time. A connection goes through these states:
 *
 *   none --accept_vmm()--> greeting --greet()--> served --end()--> none
 *
 * greeting: The VMM is connected, but the first message is incomplete. There is
 *           no libvfio-user context.
 * served:   The context owns the connection, and s->fd is its descriptor.
 *
 * The first message reaches the context through a private connection, which is
 * replaced by the VMM's connection after the negotiation.
 */

#include "qemu/osdep.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/notify.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "system/system.h"
#include "trace.h"
#include "cable/socket.h"
#include "process/process.h"

/*
 * Messages that one run of the main loop processes, so that timers and frames
 * are not delayed
 */
#define MESSAGES_PER_RUN 256

/* A message must be complete after this time, and is checked that often. */
#define MESSAGE_LIMIT_MS 30000
#define MESSAGE_CHECK_MS 2

struct QrnicServer {
    QrnicProcess *p;
    QrnicMeeting meeting;
    /* The VMM's connection, or -1 */
    int fd;
    QEMUTimer *timer;
    /* Time at which the incomplete message is too late, or 0 */
    int64_t limit_ms;
    Notifier exit;
    uint8_t buf[QRNIC_MESSAGE_MAX];
};

static void accept_vmm(void *opaque);
static void receive(void *opaque);

static void handlers(QrnicServer *s, bool read, bool write)
{
    qemu_set_fd_handler(s->fd, read ? receive : NULL, write ? receive : NULL,
                        s);
}

/* Ends the connection. A reason is reported, and NULL is a regular end. */
static void end(QrnicServer *s, const char *reason)
{
    QrnicProcess *p = s->p;

    if (reason) {
        warn_report("qrnic-process: VMM disconnected: %s", reason);
    }
    trace_qrnic_process_end(reason ?: "closed by the VMM");
    timer_del(s->timer);
    s->limit_ms = 0;
    handlers(s, false, false);
    if (p->context) {
        qrnic_vmm_free(p);
    } else {
        close(s->fd);
    }
    s->fd = -1;
}

/* Waits for the rest of a message. Ends the connection if it is too late. */
static void await_rest(QrnicServer *s)
{
    int64_t now = qemu_clock_get_ms(QEMU_CLOCK_REALTIME);
    struct pollfd poll_fd = { .fd = s->fd, .events = POLLRDHUP };

    /* The rest never arrives from a VMM that has ended. */
    if (poll(&poll_fd, 1, 0) == 1) {
        end(s, NULL);
        return;
    }
    if (!s->limit_ms) {
        s->limit_ms = now + MESSAGE_LIMIT_MS;
    }
    if (now > s->limit_ms) {
        end(s, "a message stayed incomplete for 30 s");
        return;
    }
    /* The socket stays readable, so a timer checks it. */
    handlers(s, false, false);
    timer_mod(s->timer, now + MESSAGE_CHECK_MS);
}

/*
 * Copies the bytes that are in the socket into s->buf, and leaves them there.
 * Returns their number, or 0 if there are none or the connection has ended.
 */
static size_t peek(QrnicServer *s)
{
    ssize_t n = RETRY_ON_EINTR(recv(s->fd, s->buf, sizeof(s->buf),
                                    MSG_PEEK | MSG_DONTWAIT));

    if (n > 0) {
        return n;
    }
    if (n == 0 || errno != EAGAIN) {
        end(s, NULL);
    } else {
        handlers(s, true, false);
    }
    return 0;
}

/*
 * Returns the size of the message at the offset, or 0 if it is incomplete. An
 * invalid message ends the connection.
 */
static size_t next_message(QrnicServer *s, size_t offset, size_t len)
{
    struct vfio_user_header header;

    if (len - offset < sizeof(header)) {
        return 0;
    }
    memcpy(&header, s->buf + offset, sizeof(header));
    if (header.msg_size < sizeof(header) ||
        header.msg_size > QRNIC_MESSAGE_MAX) {
        end(s, "a message is shorter than its header or longer than 64 KiB");
        return 0;
    }
    return header.msg_size <= len - offset ? header.msg_size : 0;
}

/* The first message */

/*
 * Creates the context, and connects to it. The socket of the context is in a
 * folder that only this user may enter, and is removed at once.
 */
static int connect_context(QrnicServer *s, Error **errp)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    g_autofree char *folder = g_strconcat(s->p->socket, ".XXXXXX", NULL);
    int folder_fd, fd = -1;

    if (!mkdtemp(folder)) {
        error_setg_errno(errp, errno, "cannot make a folder beside the socket");
        return -1;
    }
    folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    /* The path is short, however long the name of the folder is. */
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/s",
             folder_fd);
    if (folder_fd >= 0 && qrnic_vmm_new(s->p, address.sun_path, errp)) {
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address,
                              sizeof(address)) < 0) {
            error_setg_errno(errp, errno, "cannot connect to the context");
            if (fd >= 0) {
                close(fd);
            }
            fd = -1;
        }
        unlinkat(folder_fd, "s", 0);
    } else if (folder_fd < 0) {
        error_setg_errno(errp, errno, "cannot open a folder beside the socket");
    }
    if (folder_fd >= 0) {
        close(folder_fd);
    }
    rmdir(folder);
    return fd;
}

/* Passes the reply of the context on to the VMM. */
static bool forward_reply(QrnicServer *s, int from)
{
    ssize_t n = recv(from, s->buf, sizeof(s->buf), MSG_DONTWAIT);

    return n > 0 &&
           send(s->fd, s->buf, n, MSG_DONTWAIT | MSG_NOSIGNAL) == n;
}

static bool speaks_other_version(const uint8_t *message, size_t size)
{
    struct vfio_user_header header;
    struct vfio_user_version version;

    memcpy(&header, message, sizeof(header));
    if (header.cmd != VFIO_USER_VERSION ||
        size < sizeof(header) + sizeof(version)) {
        return false;
    }
    memcpy(&version, message + sizeof(header), sizeof(version));
    return version.major != 0;
}

/* Lets the context answer the first message, and gives it the connection. */
static void greet(QrnicServer *s, size_t size)
{
    QrnicProcess *p = s->p;
    Error *err = NULL;
    int vmm = s->fd, private;
    bool agreed, replied;

    if (speaks_other_version(s->buf, size)) {
        end(s, "the VMM speaks another version of vfio-user than 0: use QEMU "
            "10.1 or newer, or another VMM with this version");
        return;
    }
    private = connect_context(s, &err);

    if (private < 0) {
        /* Frees the context, if any, before the connection. */
        qrnic_vmm_free(p);
        end(s, error_get_pretty(err));
        error_free(err);
        return;
    }
    agreed = recv(vmm, s->buf, size, MSG_DONTWAIT) == size &&
             send(private, s->buf, size, MSG_DONTWAIT | MSG_NOSIGNAL) == size &&
             vfu_attach_ctx(p->context) == 0;
    replied = forward_reply(s, private);
    close(private);
    if (agreed && replied) {
        int fd = vfu_get_poll_fd(p->context);

        handlers(s, false, false);
        if (dup3(vmm, fd, O_CLOEXEC) == fd) {
            close(vmm);
            s->fd = fd;
            trace_qrnic_process_served(fd);
            handlers(s, true, false);
            return;
        }
    }
    {
        g_autofree char *reason = g_steal_pointer(&p->reason);

        qrnic_vmm_free(p);
        end(s, reason ?: "the negotiation of the version failed");
    }
}

/* Messages */

static bool room_for_reply(QrnicServer *s)
{
    struct pollfd poll_fd = { .fd = s->fd, .events = POLLOUT };

    return poll(&poll_fd, 1, 0) == 1;
}

/*
 * Lets libvfio-user process the next message, which is complete. Returns true
 * if the connection lasts.
 */
static bool process(QrnicServer *s, const struct vfio_user_header *header)
{
    QrnicProcess *p = s->p;
    int result;

    g_clear_pointer(&p->reason, g_free);
    result = vfu_run_ctx(p->context);
    if (result < 0 || vfu_get_poll_fd(p->context) != s->fd) {
        g_autofree char *reason = g_steal_pointer(&p->reason);

        end(s, reason ?: "a message cannot be processed");
        return false;
    }
    trace_qrnic_process_message(header->msg_id, header->cmd, header->msg_size,
                                p->reason ?: "done");
    if (header->cmd == VFIO_USER_DEVICE_SET_IRQS) {
        qrnic_vmm_resend(p);
    }
    return true;
}

/* Returns the number of bytes that were processed. */
static size_t process_all(QrnicServer *s, size_t len, unsigned *budget)
{
    struct vfio_user_header header;
    size_t offset = 0, size;
    const char *wrong;

    while (*budget && (size = next_message(s, offset, len))) {
        memcpy(&header, s->buf + offset, sizeof(header));
        wrong = qrnic_message_check(&s->p->dma, s->fd, s->buf + offset);
        if (wrong) {
            end(s, wrong);
            break;
        }
        if (!header.flags.no_reply && !room_for_reply(s)) {
            /* Continues when the VMM has read earlier replies. */
            handlers(s, false, true);
            *budget = 0;
            break;
        }
        if (!process(s, &header)) {
            break;
        }
        offset += size;
        --*budget;
    }
    return offset;
}

static void receive(void *opaque)
{
    QrnicServer *s = opaque;
    unsigned budget = MESSAGES_PER_RUN;
    size_t len, size;

    if (!s->p->context) {
        len = peek(s);
        size = len ? next_message(s, 0, len) : 0;
        if (size) {
            s->limit_ms = 0;
            greet(s, size);
        } else if (s->fd >= 0 &&
                   (len ||
                    qemu_clock_get_ms(QEMU_CLOCK_REALTIME) > s->limit_ms)) {
            await_rest(s);
        }
        return;
    }
    /* The handler may have waited for room or for the rest of a message. */
    handlers(s, true, false);
    while (budget && (len = peek(s))) {
        size = process_all(s, len, &budget);
        if (s->fd < 0) {
            return;
        }
        if (size) {
            s->limit_ms = 0;
        } else if (budget) {
            await_rest(s);
            return;
        }
    }
}

/* Listening */

/*
 * A second VMM is rejected at once, because it would otherwise wait without an
 * error. A VMM that has already gone makes room first.
 */
static void accept_vmm(void *opaque)
{
    QrnicServer *s = opaque;
    int fd = qrnic_meeting_accept(&s->meeting);

    if (fd < 0) {
        trace_qrnic_process_accept_failed(errno);
        return;
    }
    if (s->fd >= 0) {
        struct pollfd poll_fd = { .fd = s->fd, .events = POLLRDHUP };

        if (poll(&poll_fd, 1, 0) == 1) {
            end(s, NULL);
        } else {
            warn_report("qrnic-process: a second VMM was rejected, because "
                        "another one uses the device");
            close(fd);
            return;
        }
    }
    trace_qrnic_process_accept(fd);
    s->fd = fd;
    handlers(s, true, false);
    /* A VMM that sends nothing must not keep others out. */
    s->limit_ms = qemu_clock_get_ms(QEMU_CLOCK_REALTIME) + MESSAGE_LIMIT_MS;
    timer_mod(s->timer, s->limit_ms + 1);
}

/*
 * Closes the connection without a reset of the socket, which would happen if
 * messages were unread. A reset ends QEMU up to 11.1 by an assertion, because
 * its client reports two errors then.
 */
static void hang_up(QrnicServer *s)
{
    shutdown(s->fd, SHUT_RDWR);
    while (RETRY_ON_EINTR(recv(s->fd, s->buf, sizeof(s->buf),
                               MSG_DONTWAIT)) > 0) {
        continue;
    }
}

static void leave(Notifier *notifier, void *data)
{
    QrnicServer *s = container_of(notifier, QrnicServer, exit);

    if (s->fd >= 0) {
        hang_up(s);
    }
    qrnic_meeting_leave(&s->meeting);
}

/*
 * Returns true if a server of any kind accepts connections at the path. A
 * server of another program has no lock file, and its socket may have another
 * type (EPROTOTYPE).
 */
static bool is_alive(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool alive;

    pstrcpy(address.sun_path, sizeof(address.sun_path), path);
    alive = fd >= 0 && (!connect(fd, (struct sockaddr *)&address,
                                 sizeof(address)) ||
                        errno == EAGAIN || errno == EPROTOTYPE);
    if (fd >= 0) {
        close(fd);
    }
    return alive;
}

/*
 * Names the cause when the VMM has shrunk the file of its memory. The access
 * that failed is then repeated, and ends the process.
 */
static void memory_lost(int number)
{
    static const char line[] = "qrnic-process: a page of the VMM's memory has "
        "gone: the VMM must not shrink its file\n";

    if (write(STDERR_FILENO, line, sizeof(line) - 1) < 0) {
        _exit(1);
    }
}

bool qrnic_server_start(QrnicProcess *p, Error **errp)
{
    QrnicServer *s = g_new0(QrnicServer, 1);
    Error *err = NULL;
    int fd = -1;
    QrnicMeet meet = QRNIC_MEET_LATER;
    /* SA_RESETHAND: the signal ends the process when it is raised again. */
    const struct sigaction lost = {
        .sa_handler = memory_lost, .sa_flags = SA_RESETHAND,
    };
    sigset_t bus;

    s->p = p;
    s->fd = -1;
    qrnic_meeting_init(&s->meeting, p->socket);
    s->meeting.type = SOCK_STREAM;
    if (!qrnic_meeting_path_check(p->socket, &err)) {
        meet = QRNIC_MEET_FAILED;
    } else if (!is_alive(p->socket)) {
        meet = qrnic_meeting_go(&s->meeting, &fd, &err);
    }
    if (meet != QRNIC_MEET_LISTENING) {
        if (fd >= 0) {
            close(fd);
        }
        if (!err) {
            error_setg(&err, "another process serves the socket '%s': stop "
                       "that process or choose another path", p->socket);
        }
        error_propagate_prepend(errp, err, "qrnic-process: ");
        g_free(s->meeting.path);
        g_free(s);
        return false;
    }
    sigaction(SIGBUS, &lost, NULL);
    /*
     * QEMU's main loop blocks the signal. While it is blocked, the kernel ends
     * the process without the handler.
     */
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
    s->timer = timer_new_ms(QEMU_CLOCK_REALTIME, receive, s);
    s->exit.notify = leave;
    qemu_add_exit_notifier(&s->exit);
    qemu_set_fd_handler(s->meeting.listener, accept_vmm, NULL, s);
    p->server = s;
    trace_qrnic_process_listen(p->socket);
    return true;
}
