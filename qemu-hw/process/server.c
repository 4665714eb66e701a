/*
 * qrnic process: the socket at which VMMs connect
 *
 * This file receives and validates each message of the VMM completely. This
 * file also executes accesses to BARs, because each doorbell is one. dma.c and
 * irq.c execute the requests with file descriptors, and libvfio-user all
 * others. That library waits for the rest of a message, and does not check
 * descriptors. So it never gets the VMM's connection. A private connection
 * passes the messages to libvfio-user, without descriptors.
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
 * served:   The context owns one socket of the private connection. s->library
 *           is the opposite socket, and is empty between two messages.
 *
 * One call receives several messages, if none of them has descriptors. Before
 * it, a call that leaves the bytes in the socket finds out if descriptors
 * follow. Then each message is received alone, because the kernel does not
 * report with which of the received bytes the descriptors were sent. So
 * descriptors belong to the message with the first byte that was sent with
 * them. The VMM may send several messages at once.
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
 * Work that one run of the main loop does for the VMM, so that timers and
 * frames are not delayed. The unit is a byte of a message or of its reply.
 */
#define WORK_PER_RUN (256 * 1024)
/* Work of each access to a register or a doorbell, beyond its bytes */
#define WORK_ACCESS 1024
/* Work of any other message, and of a register access that may be a reset */
#define WORK_REQUEST (32 * 1024)
/*
 * Time in us after which a run ends, however little work was counted, because a
 * doorbell may start work of any size in the engine
 */
#define RUN_LIMIT_US 2000
/*
 * Bytes that one message may access in a BAR of registers or doorbells. The
 * device gets them as accesses of 8 bytes.
 */
#define REGISTERS_MAX 512
#define REGISTER_BYTES 8
/* Time in ms that the end of the process may take for the last connection */
#define EXIT_LIMIT_MS 1000

/*
 * Bytes that one call receives at most, unless a message is longer. More would
 * not help, because a doorbell has 40 bytes. A larger batch delays the moment
 * at which the server sees that a flooding VMM has ended.
 */
#define BATCH 4096

/* Descriptors of a message that the server announces */
#define FDS_ANNOUNCED 8

/* A message must be complete after this time. */
#define MESSAGE_LIMIT_MS 30000

/*
 * Descriptors of the VMM that are not closed yet. Above this number, no message
 * of the VMM is received, because descriptors are a limited resource.
 * Connections of rejected VMMs have a limit of their own with this value.
 */
#define CLOSING_MAX 256
/* Mappings of all VMMs that are not unmapped yet; the limit has the same use */
#define UNMAPPING_MAX (2 * QRNIC_DMA_REGIONS)
/* The descriptors of a VMM must be closed after this time. */
#define CLOSING_LIMIT_MS 30000
/* Time after which the server tries again if it can accept nothing */
#define RESUME_MS 100

/* Warnings that are reported at once, and time until a further one may be */
#define WARNINGS 20
#define WARNING_MS 5000

struct QrnicServer {
    QrnicProcess *p;
    QrnicMeeting meeting;
    /* The VMM's connection, or -1 */
    int fd;
    /* The private connection to libvfio-user, or -1 */
    int library;
    /* Descriptor of the removed folder of the context's socket, or -1 */
    int folder;
    /* Expires when the message, or the close of descriptors, is too late */
    QEMUTimer *late;
    /* Nothing is received until descriptors are closed */
    bool paused;
    bool complained_threads;
    QEMUTimer *resume;
    Notifier exit;
    /* Warnings that may be reported now, and the time of the last change */
    unsigned warnings, suppressed;
    int64_t warned_ms;
    /* The handler of the connection is set */
    bool reading;
    /* Source of the main loop that waits for room for a reply, or 0 */
    guint room;
    /* All bytes that were in the socket have been received. */
    bool drained;
    /* Continues with the next messages in the next run of the main loop */
    QEMUBH *more;
    /* The message in progress begins at in[first]. in[end] is unused. */
    size_t first, end;
    uint8_t in[QRNIC_MESSAGE_MAX];
    /* Descriptors of the message in progress */
    QrnicFds fds;
    uint8_t out[QRNIC_MESSAGE_MAX];
};

typedef struct vfio_user_header Header;

static void accept_vmm(void *opaque);
static void receive(void *opaque);

void qrnic_server_warn(QrnicServer *s, const char *format, ...)
{
    int64_t now = qemu_clock_get_ms(QEMU_CLOCK_REALTIME);
    int64_t earned = (now - s->warned_ms) / WARNING_MS;
    g_autofree char *text = NULL;
    va_list args;

    if (earned > 0) {
        s->warnings = MIN(s->warnings + earned, WARNINGS);
        s->warned_ms = now;
    }
    if (!s->warnings) {
        s->suppressed++;
        return;
    }
    s->warnings--;
    va_start(args, format);
    text = g_strdup_vprintf(format, args);
    va_end(args);
    if (s->suppressed) {
        warn_report("qrnic-process: %s (%u earlier warnings were suppressed)",
                    text, s->suppressed);
    } else {
        warn_report("qrnic-process: %s", text);
    }
    s->suppressed = 0;
}

/* Changes the handler only if necessary, because a change wakes the loop. */
static void set_reading(QrnicServer *s, bool read)
{
    if (read == s->reading) {
        return;
    }
    s->reading = read;
    trace_qrnic_process_reading(read);
    qemu_set_fd_handler(s->fd, read ? receive : NULL, NULL, s);
}

/* Stops to wait for room for a reply. */
static void forget_room(QrnicServer *s)
{
    if (s->room) {
        g_source_remove(s->room);
        s->room = 0;
    }
}

/* Returns true if the VMM has closed its end of the connection. */
static bool has_gone(const QrnicServer *s)
{
    struct pollfd poll_fd = { .fd = s->fd, .events = POLLRDHUP };

    return poll(&poll_fd, 1, 0) == 1;
}

/* Ends the connection. A reason is reported, and NULL is a regular end. */
static void end(QrnicServer *s, const char *reason)
{
    if (reason) {
        qrnic_server_warn(s, "VMM disconnected: %s", reason);
    }
    trace_qrnic_process_end(reason ?: "closed by the VMM");
    timer_del(s->late);
    qemu_bh_cancel(s->more);
    set_reading(s, false);
    forget_room(s);
    qrnic_vmm_free(s->p);
    if (s->library >= 0) {
        close(s->library);
        s->library = -1;
    }
    if (s->folder >= 0) {
        close(s->folder);
        s->folder = -1;
    }
    qrnic_fds_close(&s->fds);
    s->first = 0;
    s->end = 0;
    s->drained = false;
    s->paused = false;
    qrnic_connection_close(s->fd, QRNIC_CLOSER_VMM);
    s->fd = -1;
}

/*
 * Ends the connection because a message or a reply could not be passed on. The
 * usual cause is a VMM that has ended, which is not reported.
 */
static void end_unsent(QrnicServer *s, const char *reason)
{
    end(s, has_gone(s) ? NULL : reason);
}

static void message_late(void *opaque)
{
    QrnicServer *s = opaque;

    end(s, s->paused ? "its file descriptors could not be closed for 30 s" :
        "a message stayed incomplete for 30 s");
}

static void arm(QEMUTimer *timer, int64_t ms)
{
    timer_mod(timer, qemu_clock_get_ms(QEMU_CLOCK_REALTIME) + ms);
}

/* Stops the listener, and after a pause accepts again. */
static void pause_listener(QrnicServer *s)
{
    qemu_set_fd_handler(s->meeting.listener, NULL, NULL, s);
    arm(s->resume, RESUME_MS);
}

/*
 * Returns true if too many objects of VMMs are not closed yet. Then nothing is
 * received from the VMM until the timer expires. The limit of the time prevents
 * a VMM whose descriptors are never closed from keeping others out.
 */
static bool must_pause(QrnicServer *s)
{
    bool many = qrnic_fds_closing(QRNIC_CLOSER_VMM) > CLOSING_MAX ||
                qrnic_fds_closing(QRNIC_CLOSER_MEMORY) > UNMAPPING_MAX;

    if (many) {
        set_reading(s, false);
        if (!s->paused) {
            arm(s->late, CLOSING_LIMIT_MS);
        }
        if (!timer_pending(s->resume)) {
            arm(s->resume, RESUME_MS);
        }
    } else if (s->paused) {
        timer_del(s->late);
    }
    s->paused = many;
    return many;
}

static void resume(void *opaque)
{
    QrnicServer *s = opaque;

    qemu_set_fd_handler(s->meeting.listener, accept_vmm, NULL, s);
    if (s->fd >= 0 && s->paused) {
        if (has_gone(s)) {
            end(s, NULL);
        } else {
            receive(s);
        }
    }
}

/*
 * Returns true if a VMM can be accepted, also if it is then rejected because
 * another one uses the device.
 */
static bool can_accept(QrnicServer *s)
{
    if (s->fd >= 0) {
        return qrnic_fds_closing(QRNIC_CLOSER_REJECTED) <= CLOSING_MAX;
    }
    if (qrnic_fds_renew()) {
        s->complained_threads = false;
        return true;
    }
    if (!s->complained_threads) {
        s->complained_threads = true;
        qrnic_server_warn(s, "no VMM is accepted, because the file descriptors "
                          "of too many former VMMs cannot be closed: restart "
                          "the process");
    }
    return false;
}

/* Receiving */

static const uint8_t *message(const QrnicServer *s)
{
    return s->in + s->first;
}

/* Returns the number of received bytes from the message in progress on. */
static size_t available(const QrnicServer *s)
{
    return s->end - s->first;
}

/* Returns the size of the message in progress, or at first of its header. */
static size_t message_size(const QrnicServer *s)
{
    Header header;

    if (available(s) < sizeof(header)) {
        return sizeof(header);
    }
    memcpy(&header, message(s), sizeof(header));
    return header.msg_size;
}

/*
 * Receives at least a part of the message in progress, and messages behind it
 * if no descriptors follow. Returns the number of bytes, 0 at the end, or -1
 * with errno set.
 */
static ssize_t receive_some(QrnicServer *s, size_t size)
{
    size_t limit = MAX(size, BATCH);
    bool descriptors = false;
    ssize_t n;

    if (s->first) {
        memmove(s->in, message(s), available(s));
        s->end = available(s);
        s->first = 0;
    }
    n = qrnic_fds_peek(s->fd, s->in + s->end, limit - s->end, &descriptors);
    if (n <= 0) {
        return n;
    }
    s->drained = !descriptors && n < limit - s->end;
    n = qrnic_fds_receive(s->fd, s->in + s->end,
                          descriptors ? MIN(n, size - s->end) : n, &s->fds);
    if (n > 0) {
        s->end += n;
    }
    return n;
}

/*
 * Receives the rest of the message in progress, or the next message. Returns
 * true if the message is complete. Otherwise the handler continues when more
 * bytes arrive, or the connection has ended.
 */
static bool receive_message(QrnicServer *s)
{
    size_t size;
    ssize_t n;

    for (;;) {
        size = message_size(s);
        if (size < sizeof(Header) || size > QRNIC_MESSAGE_MAX) {
            end(s, "a message is shorter than its header or longer than 64 "
                "KiB");
            return false;
        }
        if (available(s) >= size) {
            break;
        }
        if (s->drained && !available(s)) {
            /* Another call would most probably find nothing. */
            s->drained = false;
            set_reading(s, true);
            return false;
        }
        n = receive_some(s, size);
        if (n < 0 && errno == EAGAIN) {
            if (available(s) && !timer_pending(s->late)) {
                arm(s->late, MESSAGE_LIMIT_MS);
            }
            set_reading(s, true);
            return false;
        }
        if (n <= 0) {
            end(s, n < 0 && errno == EMSGSIZE ?
                "a message has too many file descriptors" : NULL);
            return false;
        }
    }
    if (timer_pending(s->late)) {
        timer_del(s->late);
    }
    return true;
}

/* Removes the message in progress. The next one may be received already. */
static void message_done(QrnicServer *s)
{
    qrnic_fds_close(&s->fds);
    s->first += message_size(s);
    if (s->first == s->end) {
        s->first = 0;
        s->end = 0;
    }
}

/* Replies */

static bool room_for_reply(QrnicServer *s)
{
    struct pollfd poll_fd = { .fd = s->fd, .events = POLLOUT };

    return poll(&poll_fd, 1, 0) == 1;
}

static gboolean room_came(gint fd, GIOCondition condition, gpointer opaque)
{
    QrnicServer *s = opaque;

    s->room = 0;
    if (condition & (G_IO_HUP | G_IO_ERR)) {
        end(s, NULL);
    } else {
        receive(s);
    }
    return G_SOURCE_REMOVE;
}

/*
 * Continues when the VMM has read earlier replies. QEMU's handler of a writable
 * descriptor is not called when the VMM shuts the connection down without
 * reading, and poll() would return again and again.
 */
static void await_room(QrnicServer *s)
{
    set_reading(s, false);
    s->room = g_unix_fd_add(s->fd, G_IO_OUT, room_came, s);
}

static bool send_all(int fd, const void *buf, size_t len, const QrnicFds *fds)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(QRNIC_FDS_MAX * sizeof(int))];
    } control;
    struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (fds && fds->count) {
        memset(&control, 0, CMSG_SPACE(fds->count * sizeof(int)));
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(fds->count * sizeof(int));
        control.header = (struct cmsghdr) {
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
            .cmsg_len = CMSG_LEN(fds->count * sizeof(int)),
        };
        memcpy(CMSG_DATA(&control.header), fds->fd, fds->count * sizeof(int));
    }
    return RETRY_ON_EINTR(sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL)) ==
           len;
}

/*
 * Answers a request that this program executes itself. error: 0, or a negative
 * errno. The body may be in s->out, behind the header.
 */
static bool reply(QrnicServer *s, const Header *request, int error,
                  const void *body, size_t len)
{
    Header header = {
        .msg_id = request->msg_id, .cmd = request->cmd,
        .msg_size = sizeof(header) + (error ? 0 : len),
        .flags = QRNIC_REPLY_FLAGS(error),
        .error_no = -error,
    };

    if (qrnic_message_no_reply(request)) {
        return true;
    }
    memcpy(s->out, &header, sizeof(header));
    if (len) {
        memmove(s->out + sizeof(header), body, len);
    }
    return send_all(s->fd, s->out, header.msg_size, NULL);
}

/*
 * Replaces the capabilities in a reply to VERSION, because the limits of
 * libvfio-user are not those of this server. Returns the size of the reply.
 * The number of descriptors is small, because QEMU rejects one above 16.
 */
static size_t announce_limits(QrnicServer *s)
{
    size_t at = sizeof(Header) + sizeof(struct vfio_user_version);
    Header header;
    size_t size;

    size = at + 1 + snprintf((char *)s->out + at, sizeof(s->out) - at,
                             "{\"capabilities\":{\"max_msg_fds\":%u,"
                             "\"max_data_xfer_size\":%u}}", FDS_ANNOUNCED,
                             QRNIC_ACCESS_MAX);
    memcpy(&header, s->out, sizeof(header));
    header.msg_size = size;
    memcpy(s->out, &header, sizeof(header));
    return size;
}

/*
 * Passes the reply of libvfio-user on to the VMM. is_version: the reply is that
 * to VERSION. Returns the size of the reply, or 0 on an error. *error receives
 * the error that the reply reports.
 */
static size_t pass_reply(QrnicServer *s, bool is_version, int *error)
{
    QrnicFds fds;
    Header header;
    size_t have = 0;
    ssize_t n;
    bool done = false;

    fds.count = 0;
    for (;;) {
        n = qrnic_fds_receive(s->library, s->out + have,
                              sizeof(s->out) - have, &fds);
        if (n <= 0) {
            break;
        }
        have += n;
        if (have >= sizeof(header)) {
            memcpy(&header, s->out, sizeof(header));
            if (header.msg_size <= have) {
                *error = qrnic_message_error(&header) ?
                         -(int)header.error_no : 0;
                if (is_version && !*error) {
                    have = announce_limits(s);
                }
                done = send_all(s->fd, s->out, have, &fds);
                break;
            }
        }
    }
    /* These are duplicates of the process's own files. */
    for (unsigned i = 0; i < fds.count; i++) {
        close(fds.fd[i]);
    }
    return done ? have : 0;
}

/* The first message */

/*
 * Creates the context, and connects to it. The socket of the context is in a
 * folder that only this user may enter, and is removed at once. The folder
 * stays open until the context is freed, because libvfio-user 0.2 then removes
 * the socket by the same path. Otherwise the number of the descriptor could
 * belong to a folder of the VMM.
 */
static int connect_context(QrnicServer *s, Error **errp)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    g_autofree char *folder = g_strconcat(s->p->socket, ".XXXXXX", NULL);
    int fd = -1;

    if (!mkdtemp(folder)) {
        error_setg_errno(errp, errno, "cannot make a folder beside the socket");
        return -1;
    }
    s->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    /* The path is short, however long the name of the folder is. */
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/s",
             s->folder);
    if (s->folder >= 0 && qrnic_vmm_new(s->p, address.sun_path, errp)) {
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address,
                              sizeof(address)) < 0) {
            error_setg_errno(errp, errno, "cannot connect to the context");
            if (fd >= 0) {
                close(fd);
            }
            fd = -1;
        }
        unlinkat(s->folder, "s", 0);
    } else if (s->folder < 0) {
        error_setg_errno(errp, errno, "cannot open a folder beside the socket");
    }
    rmdir(folder);
    return fd;
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

/* Lets a new context answer the first message. */
static void greet(QrnicServer *s)
{
    QrnicProcess *p = s->p;
    Error *err = NULL;
    int error = 0;
    bool agreed;

    if (s->fds.count) {
        end(s, "the first message has file descriptors");
        return;
    }
    if (speaks_other_version(message(s), message_size(s))) {
        end(s, "the VMM speaks another version of vfio-user than 0: use QEMU "
            "10.1 or newer, or another VMM with this version");
        return;
    }
    s->library = connect_context(s, &err);
    if (s->library < 0) {
        end(s, error_get_pretty(err));
        error_free(err);
        return;
    }
    agreed = send_all(s->library, message(s), message_size(s), NULL) &&
             vfu_attach_ctx(p->context) == 0;
    if (!pass_reply(s, true, &error) || !agreed || error) {
        end(s, "the negotiation of the version failed");
        return;
    }
    message_done(s);
    trace_qrnic_process_served(s->fd);
}

/* Messages */

/*
 * Lets libvfio-user execute the message. Returns the size of the reply, and
 * ends the connection on an error.
 */
static size_t forward(QrnicServer *s, const Header *header, int *error)
{
    bool done = send_all(s->library, message(s), message_size(s), NULL) &&
                vfu_run_ctx(s->p->context) >= 0;
    size_t size = 0;

    if (done && !qrnic_message_no_reply(header)) {
        size = pass_reply(s, false, error);
        done = size;
    }
    if (!done) {
        end_unsent(s, "a message cannot be processed");
    }
    return size;
}

/* Returns true if the message accesses a BAR. */
static bool is_bar_access(const Header *header, const uint8_t *body)
{
    struct vfio_user_region_access access;

    if (header->cmd != VFIO_USER_REGION_READ &&
        header->cmd != VFIO_USER_REGION_WRITE) {
        return false;
    }
    memcpy(&access, body, sizeof(access));
    return access.region < PCI_ROM_SLOT;
}

/* Returns true if the BAR consists of memory, without registers. */
static bool is_memory(const QrnicServer *s, unsigned bar)
{
    const PCIIORegion *r = &s->p->pci->io_regions[bar];

    return r->size && memory_region_is_ram(r->memory);
}

/*
 * Accesses a BAR, and replies. Returns 0, or the error of the reply as a
 * negative errno. *sent is false if the reply was not sent.
 */
static int access_bar(QrnicServer *s, const Header *header, const uint8_t *body,
                      size_t len, bool *sent)
{
    uint8_t *answer = s->out + sizeof(*header);
    bool is_write = header->cmd == VFIO_USER_REGION_WRITE;
    struct vfio_user_region_access access;
    size_t answer_len = sizeof(access);
    uint64_t size;
    int error = 0;
    void *data;

    memcpy(&access, body, sizeof(access));
    size = s->p->pci->io_regions[access.region].size;
    data = is_write ? (uint8_t *)body + sizeof(access) :
                      answer + sizeof(access);
    if ((is_write && len - sizeof(access) != access.count) ||
        access.count > size || access.offset > size - access.count ||
        (access.count > REGISTERS_MAX && !is_memory(s, access.region)) ||
        (access.count &&
         !qrnic_window_access(&s->p->windows[access.region], access.offset,
                              data, access.count, is_write))) {
        error = -EINVAL;
    }
    memcpy(answer, &access, sizeof(access));
    if (!is_write) {
        answer_len += access.count;
    }
    *sent = reply(s, header, error, answer, answer_len);
    return error;
}

static int set_irqs(QrnicServer *s, const uint8_t *body, size_t len)
{
    struct vfio_irq_set set;

    memcpy(&set, body, sizeof(set));
    return qrnic_irq_set(&s->p->irqs, s->p->pci, &set, body + sizeof(set),
                         len - sizeof(set), &s->fds);
}

static int dma_map(QrnicServer *s, const uint8_t *body)
{
    struct vfio_user_dma_map map;
    int fd = s->fds.count ? qrnic_fds_take(&s->fds, 0) : -1;
    int error;

    memcpy(&map, body, sizeof(map));
    error = qrnic_dma_map(&s->p->dma, &map, fd);
    if (fd >= 0) {
        /* The last close of a large file takes long. */
        qrnic_fd_close(fd);
    }
    if (error == -ENOSPC) {
        qrnic_server_warn(s, "the VMM maps more than %u DMA regions: give the "
                          "guest fewer memory devices", QRNIC_DMA_REGIONS);
    }
    return error;
}

static int dma_unmap(QrnicServer *s, const uint8_t *body)
{
    struct vfio_user_dma_unmap unmap;

    memcpy(&unmap, body, sizeof(unmap));
    return qrnic_dma_unmap(&s->p->dma, &unmap);
}

/*
 * Returns true if the access may reset the device: by CONTROL, or by the
 * configuration space (FLR, power state).
 */
static bool may_reset(const struct vfio_user_region_access *access)
{
    return access->region == VFU_PCI_DEV_CFG_REGION_IDX ||
           (access->region == QRNIC_BAR_CONTROL &&
            access->offset <= QRNIC_REG_CONTROL &&
            access->count > QRNIC_REG_CONTROL - access->offset);
}

/* Returns the work of an access to a region, beyond the bytes of messages. */
static size_t access_work(const QrnicServer *s, const Header *header,
                          const uint8_t *body)
{
    bool is_bar = is_bar_access(header, body);
    struct vfio_user_region_access access;
    size_t work = WORK_ACCESS;

    memcpy(&access, body, sizeof(access));
    if (header->cmd == VFIO_USER_REGION_WRITE && may_reset(&access)) {
        work = WORK_REQUEST;
    } else if (is_bar && !is_memory(s, access.region)) {
        work *= MAX(1, DIV_ROUND_UP(MIN(access.count, REGISTERS_MAX),
                                    REGISTER_BYTES));
    }
    if (header->cmd == VFIO_USER_REGION_READ &&
        (is_bar || qrnic_message_no_reply(header))) {
        /* access_bar() and libvfio-user do not report the size. */
        work += access.count;
    }
    return work;
}

/*
 * Returns the work that does not show in the sizes of the message and of the
 * reply of libvfio-user. A new region adds the work for its bitmap.
 */
static size_t hidden_work(const QrnicServer *s, const Header *header,
                          const uint8_t *body)
{
    struct vfio_user_dma_map map;

    switch (header->cmd) {
    case VFIO_USER_REGION_READ:
    case VFIO_USER_REGION_WRITE:
        return access_work(s, header, body);
    case VFIO_USER_DMA_MAP:
        memcpy(&map, body, sizeof(map));
        return WORK_REQUEST + (map.size >> 20);
    default:
        return WORK_REQUEST;
    }
}

/*
 * Executes the message in progress, and answers it. Returns the work, or 0 if
 * the connection has ended.
 */
static size_t execute(QrnicServer *s)
{
    const uint8_t *body = message(s) + sizeof(Header);
    size_t work = message_size(s), len = work - sizeof(Header);
    int error = 0;
    Header header;
    bool sent = true;

    memcpy(&header, message(s), sizeof(header));
    switch (header.cmd) {
    case VFIO_USER_DMA_MAP:
        error = dma_map(s, body);
        sent = reply(s, &header, error, NULL, 0);
        break;
    case VFIO_USER_DMA_UNMAP:
        error = dma_unmap(s, body);
        sent = reply(s, &header, error, body,
                     sizeof(struct vfio_user_dma_unmap));
        break;
    case VFIO_USER_DEVICE_SET_IRQS:
        error = set_irqs(s, body, len);
        sent = reply(s, &header, error, NULL, 0);
        break;
    case VFIO_USER_DIRTY_PAGES:
        /* libvfio-user does not know the regions. */
        error = -ENOTSUP;
        sent = reply(s, &header, error, NULL, 0);
        break;
    default:
        if (is_bar_access(&header, body)) {
            error = access_bar(s, &header, body, len, &sent);
        } else {
            work += forward(s, &header, &error);
        }
        break;
    }
    work += hidden_work(s, &header, body);
    if (s->fd >= 0 && !sent) {
        end_unsent(s, "a reply cannot be sent");
    }
    if (s->fd < 0) {
        return 0;
    }
    trace_qrnic_process_message(header.msg_id, header.cmd, header.msg_size,
                                error);
    message_done(s);
    return work;
}

/*
 * Executes the message if it is valid and the reply will fit. Returns the work,
 * or 0 if the VMM must act first or the connection has ended.
 */
static size_t process(QrnicServer *s)
{
    const char *wrong = qrnic_message_check(&s->p->dma, &s->fds, message(s));
    Header header;

    if (wrong) {
        end(s, wrong);
        return 0;
    }
    memcpy(&header, message(s), sizeof(header));
    if (!qrnic_message_no_reply(&header) && !room_for_reply(s)) {
        await_room(s);
        return 0;
    }
    return execute(s);
}

static void receive(void *opaque)
{
    QrnicServer *s = opaque;
    int64_t limit = g_get_monotonic_time() + RUN_LIMIT_US;
    size_t work, done = 0;

    while (done < WORK_PER_RUN && g_get_monotonic_time() < limit) {
        if (must_pause(s) || !receive_message(s)) {
            return;
        }
        if (!s->p->context) {
            greet(s);
            work = s->fd >= 0 ? WORK_REQUEST : 0;
        } else {
            work = process(s);
        }
        if (!work) {
            return;
        }
        done += work;
    }
    /*
     * The bottom half continues, because messages may be received already. The
     * handler is off, because it would double the work of the next run.
     */
    trace_qrnic_process_yield(done);
    set_reading(s, false);
    qemu_bh_schedule(s->more);
}

/* Listening */

/*
 * A second VMM is rejected at once, because it would otherwise wait without an
 * error. A VMM that has already gone makes room first.
 */
static void accept_vmm(void *opaque)
{
    QrnicServer *s = opaque;
    int fd;

    if (s->fd >= 0 && has_gone(s)) {
        end(s, NULL);
    }
    if (!can_accept(s)) {
        pause_listener(s);
        return;
    }
    fd = qrnic_meeting_accept(&s->meeting);
    if (fd < 0) {
        trace_qrnic_process_accept_failed(errno);
        if (errno != EAGAIN && errno != ECONNABORTED) {
            /* The VMM stays in the queue, and would be tried in a loop. */
            qrnic_server_warn(s, "a VMM cannot be accepted: %s",
                              strerror(errno));
            pause_listener(s);
        }
        return;
    }
    if (s->fd >= 0) {
        qrnic_server_warn(s, "a second VMM was rejected, because another one "
                          "uses the device");
        qrnic_connection_close(fd, QRNIC_CLOSER_REJECTED);
        return;
    }
    trace_qrnic_process_accept(fd);
    s->fd = fd;
    /*
     * Otherwise recvmsg() would discard an out-of-band byte and close its
     * descriptors itself, which can take for ever.
     */
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &(int) { 1 }, sizeof(int));
    set_reading(s, true);
    /* A VMM that sends nothing must not keep others out. */
    arm(s->late, MESSAGE_LIMIT_MS);
}

static void leave(Notifier *notifier, void *data)
{
    QrnicServer *s = container_of(notifier, QrnicServer, exit);

    if (s->fd >= 0) {
        qrnic_connection_close(s->fd, QRNIC_CLOSER_VMM);
        s->fd = -1;
        qrnic_fds_wait(EXIT_LIMIT_MS);
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
 * Names the cause when the VMM has shrunk the file of its memory, or when its
 * file system has no room for a page. The access that failed is then repeated,
 * and ends the process.
 */
static void memory_lost(int number)
{
    static const char line[] = "qrnic-process: a page of the VMM's memory is "
        "missing: the VMM has shrunk its file, or the file system is full\n";

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
    s->library = -1;
    s->folder = -1;
    s->warnings = WARNINGS;
    qrnic_meeting_init(&s->meeting, p->socket);
    s->meeting.type = SOCK_STREAM;
    if (!qrnic_meeting_path_check(p->socket, &err) || !qrnic_fds_init(&err)) {
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
    s->late = timer_new_ms(QEMU_CLOCK_REALTIME, message_late, s);
    s->resume = timer_new_ms(QEMU_CLOCK_REALTIME, resume, s);
    /*
     * The bottom half is in the context of the connection's handler. The other
     * context of the main loop also runs while a block job or a monitor command
     * waits.
     */
    s->more = aio_bh_new(iohandler_get_aio_context(), receive, s);
    s->exit.notify = leave;
    qemu_add_exit_notifier(&s->exit);
    qemu_set_fd_handler(s->meeting.listener, accept_vmm, NULL, s);
    p->server = s;
    trace_qrnic_process_listen(p->socket);
    return true;
}
