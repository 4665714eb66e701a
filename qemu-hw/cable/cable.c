/*
 * qrnic cable: the object, and the agreement of its two ends
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * A device attaches with qrnic_cable_attach(); then both ends meet at a socket
 * (socket.h). Each end sends HELLO with a random nonce. The end with the
 * greater nonce creates the memory of the rings and sends MEMORY; its peer maps
 * it and replies READY. From then on the cable is up. Frames pass through the
 * rings (ring.h), and WAKE messages are the events. A reader thread (reader.h)
 * receives all messages, and cable_news() handles them in the main loop. When
 * the peer disconnects, the end returns to the meeting. Manual, chapter
 * "Cable".
 */

#include "qemu/osdep.h"
#include <sys/epoll.h>
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/host-utils.h"
#include "qemu/main-loop.h"
#include "qemu/memfd.h"
#include "qemu/module.h"
#include "qemu/notify.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "crypto/random.h"
#include "qom/object_interfaces.h"
#include "monitor/monitor.h"
#include "system/system.h"
#include "trace.h"
#include "compat.h"
#include "cable/cable.h"
#include "cable/capture.h"
#include "cable/reader.h"
#include "cable/ring.h"
#include "cable/socket.h"
#include "cable/tempo.h"

#define DEFAULT_SLOTS 256
/* Largest frame of the device */
#define MAX_FRAME QRNIC_CABLE_FRAME

/* Real time, because the peer is a process of this host */
/* maximum wait for a message of the agreement */
#define AGREE_MS 2000
#define AGAIN_MS 50             /* another end listens soon */
#define REFUSED_MS 1000
#define COMPLAINT_MS 1000       /* minimum time between two warnings */
/* wait for the last messages of a peer that hung up */
#define REASON_MS 100

/*
 * Limit of ended connections whose threads still run, for all peers together.
 * The limit is needed because a peer can keep the thread of a connection busy
 * after its end.
 */
#define MAX_READERS 16

typedef enum CableState {
    CABLE_OFF,                  /* no device */
    CABLE_ALONE,                /* no peer */
    CABLE_GREETING,             /* HELLO was sent */
    CABLE_WAITING,              /* MEMORY of the peer is expected */
    CABLE_OFFERED,              /* MEMORY was sent */
    CABLE_UP,
} CableState;

struct QrnicCable {
    Object parent_obj;

    /* properties */
    char *path, *fd_name, *capture_path;
    uint32_t slots;

    const QrnicCableClient *client;
    void *opaque;
    char *name;

    CableState state;
    QrnicMeeting meeting;       /* with path */
    QrnicReader *reader;        /* of the connection, or NULL */
    QrnicReader *spare;         /* for the next connection, or NULL */
    /* ended readers whose threads may still run */
    QrnicReader *former[MAX_READERS];
    /* epoll descriptor that reports messages while up, or -1 */
    int edge;
    QEMUTimer *timer;           /* end of a wait, or next attempt */
    QEMUTimer *accept_timer;    /* accept again */
    char *said;                 /* last warning, which is not repeated */
    int64_t said_ms;
    uint64_t nonce;
    Notifier exit;              /* called at the end of the process */

    QrnicCableRing sender, receiver;
    QrnicTempo tempo;
    /* Bottom half for failures that are found inside a call of the device */
    QEMUBH *bh;
    bool failed, gone;          /* a ring is broken; the peer hung up */
    /* a frame was consumed since the last qrnic_cable_await() */
    bool taken;
    bool cut, complete;
    QrnicCapture capture;
};

OBJECT_DEFINE_SIMPLE_TYPE_WITH_INTERFACES(QrnicCable, qrnic_cable, QRNIC_CABLE,
                                          OBJECT, { TYPE_USER_CREATABLE }, { })

static void cable_go(QrnicCable *c);
static void cable_news(void *opaque);
static void await_peers(void *opaque);

/*
 * Warns once for each reason, and not often, because a peer may cause the same
 * failure again and again.
 */
static void G_GNUC_PRINTF(2, 3) complain(QrnicCable *c, const char *format, ...)
{
    g_autofree char *text = NULL;
    int64_t now = qemu_clock_get_ms(QEMU_CLOCK_REALTIME);
    va_list ap;

    va_start(ap, format);
    text = g_strdup_vprintf(format, ap);
    va_end(ap);
    if (g_strcmp0(text, c->said) &&
        (!c->said_ms || now - c->said_ms >= COMPLAINT_MS)) {
        c->said_ms = now;
        warn_report("qrnic-cable '%s': %s",
                    object_get_canonical_path_component(OBJECT(c)), text);
        g_free(c->said);
        c->said = g_steal_pointer(&text);
    }
}

static int64_t now_ns(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
}

/* Disconnecting */

/*
 * Returns the number of ended readers whose threads still run. Frees all
 * others.
 */
static unsigned count_former(QrnicCable *c)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MAX_READERS; i++) {
        if (c->former[i] && qrnic_reader_done(c->former[i])) {
            c->former[i] = NULL;
        }
        count += !!c->former[i];
    }
    return count;
}

/* Ends a reader, and keeps it in "former" until its thread has ended. */
static void end_reader(QrnicCable *c, QrnicReader *r)
{
    qrnic_reader_end(r);
    for (unsigned i = 0; i < MAX_READERS; i++) {
        if (!c->former[i]) {
            c->former[i] = r;
            return;
        }
    }
    /* have_spare() has reserved a place for each reader. */
    g_assert_not_reached();
}

/*
 * Provides the reader of the next connection. Returns false if too many readers
 * exist; then no connection may be made now.
 */
static bool have_spare(QrnicCable *c)
{
    if (!c->spare && count_former(c) + !!c->reader < MAX_READERS) {
        c->spare = qrnic_reader_new(cable_news, c);
    }
    return c->spare;
}

static void stop_edge(QrnicCable *c)
{
    if (c->edge >= 0) {
        qemu_set_fd_handler(c->edge, NULL, NULL, NULL);
        close(c->edge);
        c->edge = -1;
    }
}

/* Ends the connection. The state is then the same as before the peer came. */
static void disconnect(QrnicCable *c)
{
    bool was_up = c->state == CABLE_UP;

    stop_edge(c);
    timer_del(c->timer);
    c->tempo = (QrnicTempo) { 0 };
    c->state = CABLE_ALONE;
    c->failed = c->gone = c->taken = false;
    if (c->reader) {
        end_reader(c, c->reader);
        c->reader = NULL;
    }
    await_peers(c);
    if (was_up) {
        trace_qrnic_cable_link(c->name, false);
        c->client->link(c->opaque);
    }
}

static void timer_after(QrnicCable *c, int ms)
{
    timer_mod(c->timer, qemu_clock_get_ms(QEMU_CLOCK_REALTIME) + ms);
}

/*
 * Returns to the meeting after a delay, unless this end listens, because then
 * the peer connects again.
 */
static void again_after(QrnicCable *c, int ms)
{
    if (c->meeting.listener < 0 && c->path) {
        timer_after(c, ms);
    }
}

static void disconnect_for(QrnicCable *c, int ms)
{
    disconnect(c);
    again_after(c, ms);
}

/* Rejects the peer with a reason, and ends the connection. */
static void G_GNUC_PRINTF(2, 3) refuse(QrnicCable *c, const char *format, ...)
{
    QrnicCableMessage m = {
        .magic = QRNIC_CABLE_MAGIC, .type = QRNIC_CABLE_REFUSE,
    };
    va_list ap;

    va_start(ap, format);
    vsnprintf((char *)m.text, sizeof(m.text), format, ap);
    va_end(ap);
    qrnic_cable_message_send(qrnic_reader_fd(c->reader), &m, -1);
    complain(c, "the peer is rejected: %s", (char *)m.text);
    disconnect_for(c, REFUSED_MS);
}

/*
 * The peer has hung up. The reader reports its last message, if any, and then
 * the end. If the peer blocks the reader, the timer ends the connection.
 */
static void hung_up(QrnicCable *c)
{
    if (!c->gone) {
        c->gone = true;
        timer_after(c, REASON_MS);
    }
}

static void cable_bh(void *opaque)
{
    QrnicCable *c = opaque;

    if (c->state == CABLE_UP && c->failed) {
        refuse(c, "a ring of the cable is broken");
    }
}

/* Agreement */

static bool send_message(QrnicCable *c, QrnicCableMessage *m, int descriptor)
{
    m->magic = QRNIC_CABLE_MAGIC;
    trace_qrnic_cable_message(c->name, "sent",
                              qrnic_cable_message_type_name(m->type));
    return qrnic_cable_message_send(qrnic_reader_fd(c->reader), m, descriptor);
}

static void set_up(QrnicCable *c, uint8_t *memory, const QrnicRingShape *shape,
                   bool first)
{
    size_t half = qrnic_cable_ring_bytes(shape);

    qrnic_cable_ring_init(&c->sender, memory + (first ? 0 : half), shape);
    qrnic_cable_ring_init(&c->receiver, memory + (first ? half : 0), shape);
}

/*
 * Handles a message that arrives while the cable is up, most likely a WAKE. The
 * reader reads the message later, so that the main loop does not wait for
 * another thread. If the reader is faster, this function misses the message,
 * but then the reader reports the WAKE.
 */
static void cable_edge(void *opaque)
{
    QrnicCable *c = opaque;
    struct epoll_event event;

    if (RETRY_ON_EINTR(epoll_wait(c->edge, &event, 1, 0)) != 1) {
        return;
    }
    object_ref(OBJECT(c));
    qrnic_tempo_woken(&c->tempo, now_ns());
    c->client->work(c->opaque);
    /* The device may have been unplugged as a result of this work. */
    if (c->state == CABLE_UP && (event.events & EPOLLHUP)) {
        hung_up(c);
    }
    object_unref(OBJECT(c));
}

/*
 * Starts epoll for the connection. If the process has no free descriptor, the
 * reader reports every WAKE instead.
 */
static void start_edge(QrnicCable *c)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };

    c->edge = epoll_create1(EPOLL_CLOEXEC);
    if (c->edge < 0 ||
        epoll_ctl(c->edge, EPOLL_CTL_ADD, qrnic_reader_fd(c->reader), &event)) {
        stop_edge(c);
        return;
    }
    qemu_set_fd_handler(c->edge, cable_edge, NULL, c);
    qrnic_reader_relax(c->reader);
}

static void now_up(QrnicCable *c)
{
    if (!c->gone) {
        timer_del(c->timer);
    }
    c->state = CABLE_UP;
    g_free(c->said);
    c->said = NULL;
    qrnic_reader_refuse_descriptors(c->reader);
    start_edge(c);
    trace_qrnic_cable_link(c->name, true);
    c->client->link(c->opaque);
}

/* Creates the memory, because this end has the greater nonce. */
static void offer(QrnicCable *c, const QrnicCableMessage *hello)
{
    const QrnicRingShape shape = {
        .slots = MIN(c->slots, pow2floor(hello->slots)),
        .max_frame = MAX(MAX_FRAME, hello->max_frame),
        .stride = qrnic_cable_ring_stride(MAX(MAX_FRAME, hello->max_frame)),
    };
    QrnicCableMessage m = {
        .type = QRNIC_CABLE_MEMORY, .version = QRNIC_CABLE_VERSION,
        .slots = shape.slots, .max_frame = shape.max_frame,
        .stride = shape.stride,
    };
    size_t bytes = 2 * qrnic_cable_ring_bytes(&shape);
    void *memory = NULL;
    Error *err = NULL;
    bool sent;
    int fd;

    /*
     * The reader rejects the peer's descriptors after this call, because this
     * end sends the memory.
     */
    qrnic_reader_refuse_descriptors(c->reader);
    /*
     * The file is sealed, because otherwise the peer could shrink it, and an
     * access would kill the process.
     */
    fd = qemu_memfd_create("qrnic-cable", bytes, false, 0,
                           F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL, &err);
    if (fd >= 0) {
        memory = qrnic_cable_memory_map(fd, bytes);
    }
    if (!memory) {
        refuse(c, "no memory: %s", err ? error_get_pretty(err) :
               strerror(errno));
        error_free(err);
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    qrnic_reader_own_memory(c->reader, memory, bytes);
    set_up(c, memory, &shape, true);
    sent = send_message(c, &m, fd);
    close(fd);
    if (!sent) {
        disconnect_for(c, AGAIN_MS);
        return;
    }
    c->state = CABLE_OFFERED;
}

static void got_hello(QrnicCable *c, const QrnicCableMessage *m)
{
    timer_after(c, AGREE_MS);
    if (m->version_min > QRNIC_CABLE_VERSION ||
        m->version < QRNIC_CABLE_VERSION) {
        refuse(c, "the peer has versions %u to %u of the cable, this end %u",
               m->version_min, m->version, QRNIC_CABLE_VERSION);
    } else if (m->slots < QRNIC_CABLE_MIN_SLOTS ||
               m->max_frame > QRNIC_CABLE_MAX_FRAME) {
        refuse(c, "the peer has %u slots of %u bytes; at least %u slots and "
               "at most %u bytes are possible", m->slots, m->max_frame,
               QRNIC_CABLE_MIN_SLOTS, QRNIC_CABLE_MAX_FRAME);
    } else if (m->nonce == c->nonce) {
        refuse(c, "both ends have the same nonce");
    } else if (c->nonce > m->nonce) {
        offer(c, m);
    } else {
        c->state = CABLE_WAITING;
    }
}

static void got_memory(QrnicCable *c, const QrnicCableMessage *m, void *memory)
{
    const QrnicRingShape shape = {
        .slots = m->slots, .max_frame = m->max_frame, .stride = m->stride,
    };
    QrnicCableMessage ready = { .type = QRNIC_CABLE_READY };
    size_t bytes = 2 * qrnic_cable_ring_bytes(&shape);

    if (m->version != QRNIC_CABLE_VERSION || !bytes ||
        m->slots > c->slots || m->max_frame < MAX_FRAME) {
        refuse(c, "version %u, %u slots of %u bytes, frames of %u bytes are "
               "not as agreed", m->version, m->slots, m->stride, m->max_frame);
    } else if (!memory) {
        refuse(c, "the memory is not a sealed file of %zu bytes", bytes);
    } else {
        set_up(c, memory, &shape, false);
        if (send_message(c, &ready, -1)) {
            now_up(c);
        } else {
            disconnect_for(c, AGAIN_MS);
        }
    }
}

static void got_refusal(QrnicCable *c, QrnicCableMessage *m)
{
    char *text = (char *)m->text;

    text[sizeof(m->text) - 1] = 0;
    for (char *p = text; *p; p++) {
        *p = g_ascii_isprint(*p) ? *p : '?';
    }
    complain(c, "the peer rejects this end: %s", text);
    disconnect_for(c, REFUSED_MS);
}

static void got_message(QrnicCable *c, QrnicCableMessage *m, void *memory)
{
    trace_qrnic_cable_message(c->name, "received",
                              qrnic_cable_message_type_name(m->type));
    if (m->type == QRNIC_CABLE_REFUSE) {
        got_refusal(c, m);
    } else if (m->type == QRNIC_CABLE_HELLO && c->state == CABLE_GREETING) {
        got_hello(c, m);
    } else if (m->type == QRNIC_CABLE_MEMORY && c->state == CABLE_WAITING) {
        got_memory(c, m, memory);
    } else if (m->type == QRNIC_CABLE_READY && c->state == CABLE_OFFERED) {
        now_up(c);
    } else {
        refuse(c, "message %u is unexpected", m->type);
    }
}

static void got_wake(QrnicCable *c)
{
    if (c->state != CABLE_UP) {
        refuse(c, "message %u is unexpected", QRNIC_CABLE_WAKE);
        return;
    }
    if (c->edge < 0) {
        qrnic_tempo_woken(&c->tempo, now_ns());
    }
    c->client->work(c->opaque);
}

/* Handles the result of the reader. */
static void cable_news(void *opaque)
{
    QrnicCable *c = opaque;
    QrnicReader *r = c->reader;
    QrnicNews news;

    object_ref(OBJECT(c));
    qrnic_reader_take(r, &news);
    switch (news.received) {
    case QRNIC_RECEIVED_NOTHING:
        break;
    case QRNIC_RECEIVED_MESSAGE:
        got_message(c, &news.message, news.memory);
        break;
    case QRNIC_RECEIVED_WRONG:
        refuse(c, "this is no message of a cable");
        break;
    case QRNIC_RECEIVED_END:
        /* If the peer listened before, this end may have to listen now. */
        disconnect_for(c, c->state == CABLE_UP ? AGAIN_MS : REFUSED_MS);
        break;
    }
    /*
     * The message, or the reaction of the device, may have ended the
     * connection.
     */
    if (news.woken && c->reader == r) {
        got_wake(c);
    }
    object_unref(OBJECT(c));
}

/* Begins a connection with the spare reader, and sends HELLO. */
static void connected(QrnicCable *c, int fd)
{
    QrnicCableMessage hello = {
        .type = QRNIC_CABLE_HELLO,
        .version_min = QRNIC_CABLE_VERSION, .version = QRNIC_CABLE_VERSION,
        .slots = c->slots, .max_frame = MAX_FRAME,
    };

    /*
     * The random numbers of the guest are not used, because other VMs may have
     * the same sequence.
     */
    qcrypto_random_bytes(&c->nonce, sizeof(c->nonce), &error_abort);
    hello.nonce = c->nonce;
    pstrcpy((char *)hello.text, sizeof(hello.text), c->name);
    c->reader = c->spare;
    c->spare = NULL;
    qrnic_reader_start(c->reader, fd, c->slots);
    c->state = CABLE_GREETING;
    /*
     * With "fd" there is no timeout, because the peer's process may not run
     * yet.
     */
    if (c->path) {
        timer_after(c, AGREE_MS);
    }
    if (!send_message(c, &hello, -1)) {
        disconnect_for(c, AGAIN_MS);
    }
}

static void refuse_third(QrnicCable *c, int fd)
{
    const QrnicCableMessage m = {
        .magic = QRNIC_CABLE_MAGIC, .type = QRNIC_CABLE_REFUSE,
        .text = "this cable already has two ends",
    };

    qrnic_cable_message_send(fd, &m, -1);
    qrnic_reader_start(c->spare, fd, 0);
    end_reader(c, c->spare);
    c->spare = NULL;
    trace_qrnic_cable_third(c->name);
}

/* Stops accepting until the connection ends, or for a second. */
static void pause_accepting(QrnicCable *c)
{
    qemu_set_fd_handler(c->meeting.listener, NULL, NULL, NULL);
    timer_mod(c->accept_timer,
              qemu_clock_get_ms(QEMU_CLOCK_REALTIME) + REFUSED_MS);
}

/*
 * Handles a failed accept(). The connection stays in the queue of the listener,
 * which stays readable, for example if no descriptor is free. So accepting is
 * paused, because otherwise the main loop would spin.
 */
static void accept_failed(QrnicCable *c)
{
    int error = errno;

    if (error == EAGAIN || error == EINTR || error == ECONNABORTED) {
        return;
    }
    trace_qrnic_cable_accept_failed(c->name, error);
    complain(c, "cannot accept a connection: %s", strerror(error));
    pause_accepting(c);
}

static void cable_accept(void *opaque)
{
    QrnicCable *c = opaque;
    int fd;

    /*
     * The previous peer has hung up, but its last messages may still be unread.
     */
    if (c->reader && qrnic_reader_hung_up(c->reader)) {
        hung_up(c);
        pause_accepting(c);
        return;
    }
    if (!have_spare(c)) {
        trace_qrnic_cable_busy(c->name);
        pause_accepting(c);
        return;
    }
    fd = qrnic_meeting_accept(&c->meeting);
    if (fd < 0) {
        accept_failed(c);
    } else if (c->reader) {
        refuse_third(c, fd);
    } else {
        connected(c, fd);
    }
}

static void await_peers(void *opaque)
{
    QrnicCable *c = opaque;

    timer_del(c->accept_timer);
    if (c->meeting.listener >= 0) {
        qemu_set_fd_handler(c->meeting.listener, cable_accept, NULL, c);
    }
}

static void cable_timer(void *opaque)
{
    QrnicCable *c = opaque;

    if (c->reader && c->gone) {
        disconnect_for(c, AGAIN_MS);
    } else if (c->reader) {
        refuse(c, "the peer sends no further message");
    } else {
        cable_go(c);
    }
}

/* Goes to the meeting: listens or connects. */
static void cable_go(QrnicCable *c)
{
    Error *err = NULL;
    int fd = -1;

    if (!have_spare(c)) {
        trace_qrnic_cable_busy(c->name);
        again_after(c, REFUSED_MS);
        return;
    }
    switch (qrnic_meeting_go(&c->meeting, &fd, &err)) {
    case QRNIC_MEET_LISTENING:
        trace_qrnic_cable_listen(c->name, c->path);
        await_peers(c);
        break;
    case QRNIC_MEET_CONNECTED:
        connected(c, fd);
        break;
    case QRNIC_MEET_LATER:
        again_after(c, AGAIN_MS);
        break;
    case QRNIC_MEET_FAILED:
        complain(c, "%s", error_get_pretty(err));
        error_free(err);
        again_after(c, REFUSED_MS);
        break;
    }
}

/* Removes the files at the path at the end of the process. */
static void cable_exit(Notifier *notifier, void *data)
{
    QrnicCable *c = container_of(notifier, QrnicCable, exit);

    if (c->path) {
        qrnic_meeting_leave(&c->meeting);
    }
    qrnic_capture_close(&c->capture);
}

/* Functions for the device */

bool qrnic_cable_attach(QrnicCable *c, const QrnicCableClient *client,
                        void *opaque, const char *name, Error **errp)
{
    int fd = -1;

    if (c->client) {
        error_setg(errp, "cable '%s' is used by another device",
                   object_get_canonical_path_component(OBJECT(c)));
        return false;
    }
    if (c->fd_name && !*c->fd_name) {
        error_setg(errp, "cable '%s': the socket of 'fd' was closed when its "
                   "device was unplugged",
                   object_get_canonical_path_component(OBJECT(c)));
        return false;
    }
    if (c->fd_name) {
        fd = monitor_fd_param(monitor_cur(), c->fd_name, errp);
        if (fd < 0) {
            return false;
        }
        if (qrnic_cable_socket_check(fd, errp) && !have_spare(c)) {
            error_setg(errp, "cable '%s': no thread can be started",
                       object_get_canonical_path_component(OBJECT(c)));
        }
        if (!c->spare) {
            /*
             * A named descriptor belongs to this process now, so it is closed.
             * A number may be any descriptor of the process.
             */
            if (!g_ascii_isdigit(c->fd_name[0])) {
                qrnic_cable_close_elsewhere(fd);
            }
            return false;
        }
        /*
         * "fd" is used only once, because its socket ends with the connection.
         */
        g_free(c->fd_name);
        c->fd_name = g_strdup("");
    }
    c->client = client;
    c->opaque = opaque;
    c->name = g_strdup(name);
    c->state = CABLE_ALONE;
    /*
     * The bottom half belongs to a context that no device polls in the middle
     * of a frame, because it may unmap that frame.
     */
    c->bh = aio_bh_new(iohandler_get_aio_context(), cable_bh, c);
    c->timer = timer_new_ms(QEMU_CLOCK_REALTIME, cable_timer, c);
    c->accept_timer = timer_new_ms(QEMU_CLOCK_REALTIME, await_peers, c);
    c->exit.notify = cable_exit;
    qemu_add_exit_notifier(&c->exit);
    if (c->path) {
        qrnic_meeting_init(&c->meeting, c->path);
        cable_go(c);
    } else if (fd >= 0) {
        connected(c, fd);
    }
    return true;
}

void qrnic_cable_detach(QrnicCable *c)
{
    c->state = MIN(c->state, CABLE_ALONE);
    disconnect(c);
    if (c->meeting.listener >= 0) {
        qemu_set_fd_handler(c->meeting.listener, NULL, NULL, NULL);
    }
    if (c->spare) {
        end_reader(c, c->spare);
        c->spare = NULL;
    }
    for (unsigned i = 0; i < MAX_READERS; i++) {
        if (c->former[i]) {
            qrnic_reader_abandon(c->former[i]);
            c->former[i] = NULL;
        }
    }
    if (c->path) {
        qrnic_meeting_leave(&c->meeting);
        g_free(c->meeting.path);
    }
    qemu_remove_exit_notifier(&c->exit);
    qemu_bh_delete(c->bh);
    timer_free(c->timer);
    timer_free(c->accept_timer);
    g_free(c->name);
    c->name = NULL;
    c->client = NULL;
    c->state = CABLE_OFF;
}

bool qrnic_cable_link(const QrnicCable *c)
{
    return c->state == CABLE_UP && !c->cut;
}

static bool usable(const QrnicCable *c)
{
    return c->state == CABLE_UP && !c->failed && !c->gone;
}

/*
 * Schedules the end of the connection if the peer has broken a ring. Called
 * after each access to a ring.
 */
static void check(QrnicCable *c, const QrnicCableRing *r)
{
    if (r->broken && !c->failed) {
        c->failed = true;
        qemu_bh_schedule(c->bh);
    }
}

bool qrnic_cable_send(QrnicCable *c, const uint8_t *frame, size_t len)
{
    QrnicCableRing *r = &c->sender;

    if (!usable(c) || c->cut || len < QRNIC_CABLE_SHORTEST ||
        len > r->shape.max_frame) {
        return true;
    }
    if (qrnic_cable_ring_room(r)) {
        if (c->capture.fd >= 0) {
            qrnic_capture_frame(&c->capture, frame, len, true);
        }
        memcpy(qrnic_cable_ring_next(r), frame, len);
        qrnic_cable_ring_commit(r, len);
    }
    if (qrnic_cable_ring_room(r) || qrnic_cable_ring_await_room(r)) {
        return true;
    }
    check(c, r);
    return r->broken;
}

const uint8_t *qrnic_cable_peek(QrnicCable *c, size_t *len)
{
    const uint8_t *frame;
    uint32_t bytes;

    if (!usable(c)) {
        return NULL;
    }
    frame = qrnic_cable_ring_peek(&c->receiver, &bytes);
    check(c, &c->receiver);
    *len = frame ? bytes : 0;
    return frame;
}

void qrnic_cable_take(QrnicCable *c, const uint8_t *copy, size_t len)
{
    qrnic_cable_ring_take(&c->receiver);
    c->taken = true;
    if (c->capture.fd >= 0) {
        qrnic_capture_frame(&c->capture, copy, len, false);
    }
}

bool qrnic_cable_room(QrnicCable *c)
{
    bool room;

    if (!usable(c)) {
        return true;
    }
    room = qrnic_cable_ring_room(&c->sender) > 0;
    check(c, &c->sender);
    return room;
}

void qrnic_cable_settle(QrnicCable *c)
{
    bool wake, room;

    if (!usable(c)) {
        return;
    }
    wake = qrnic_cable_ring_wants_wake(&c->sender);
    room = qrnic_cable_ring_wants_room(&c->receiver);
    if (wake || room) {
        trace_qrnic_cable_wake(c->name, wake, room);
        if (!qrnic_cable_wake_send(qrnic_reader_fd(c->reader))) {
            hung_up(c);
        }
    }
}

bool qrnic_cable_await(QrnicCable *c)
{
    int64_t now;

    if (!usable(c)) {
        return false;
    }
    now = now_ns();
    if (c->taken) {
        c->taken = false;
        qrnic_tempo_frame(&c->tempo, now);
    }
    return qrnic_tempo_linger(&c->tempo, now) ||
           qrnic_cable_ring_await_frame(&c->receiver);
}

/* Type */

static void cable_complete(UserCreatable *uc, Error **errp)
{
    QrnicCable *c = QRNIC_CABLE(uc);

    c->complete = true;
    if (!c->path == !c->fd_name) {
        error_setg(errp, "qrnic-cable requires either 'path' or 'fd'");
    } else if (c->slots < QRNIC_CABLE_MIN_SLOTS ||
               c->slots > QRNIC_CABLE_MAX_SLOTS || !is_power_of_2(c->slots)) {
        error_setg(errp, "qrnic-cable: property 'slots' is %" PRIu32
                   ", must be a power of two from %u to %u", c->slots,
                   QRNIC_CABLE_MIN_SLOTS, QRNIC_CABLE_MAX_SLOTS);
    } else if (c->path && !qrnic_meeting_path_check(c->path, errp)) {
        return;
    } else if (c->capture_path) {
        qrnic_capture_open(&c->capture, c->capture_path,
                           object_get_canonical_path_component(OBJECT(c)),
                           errp);
    }
}

static bool cable_prepare_delete(UserCreatable *uc, Error **errp)
{
    if (QRNIC_CABLE(uc)->client) {
        error_setg(errp, "qrnic-cable: an adapter uses this cable");
        return false;
    }
    return true;
}
QRNIC_DEFINE_PREPARE_DELETE(cable_prepare_delete)

/*
 * Returns false with an error after the object is complete, because its
 * properties are fixed then.
 */
static bool may_set(QrnicCable *c, Error **errp)
{
    if (c->complete) {
        error_setg(errp, "qrnic-cable: only 'cut' can be changed later");
    }
    return !c->complete;
}

static void set_text(QrnicCable *c, char **property, const char *value,
                     Error **errp)
{
    if (may_set(c, errp)) {
        g_free(*property);
        *property = g_strdup(value);
    }
}

static char *path_get(Object *obj, Error **errp)
{
    return g_strdup(QRNIC_CABLE(obj)->path);
}

static void path_set(Object *obj, const char *value, Error **errp)
{
    QrnicCable *c = QRNIC_CABLE(obj);

    set_text(c, &c->path, value, errp);
}

static char *descriptor_get(Object *obj, Error **errp)
{
    return g_strdup(QRNIC_CABLE(obj)->fd_name);
}

static void descriptor_set(Object *obj, const char *value, Error **errp)
{
    QrnicCable *c = QRNIC_CABLE(obj);

    set_text(c, &c->fd_name, value, errp);
}

static char *capture_get(Object *obj, Error **errp)
{
    return g_strdup(QRNIC_CABLE(obj)->capture_path);
}

static void capture_set(Object *obj, const char *value, Error **errp)
{
    QrnicCable *c = QRNIC_CABLE(obj);

    set_text(c, &c->capture_path, value, errp);
}

static void slots_get(Object *obj, Visitor *v, const char *name, void *opaque,
                      Error **errp)
{
    visit_type_uint32(v, name, &QRNIC_CABLE(obj)->slots, errp);
}

static void slots_set(Object *obj, Visitor *v, const char *name, void *opaque,
                      Error **errp)
{
    QrnicCable *c = QRNIC_CABLE(obj);

    if (may_set(c, errp)) {
        visit_type_uint32(v, name, &c->slots, errp);
    }
}

static bool link_get(Object *obj, Error **errp)
{
    return qrnic_cable_link(QRNIC_CABLE(obj));
}

static bool cut_get(Object *obj, Error **errp)
{
    return QRNIC_CABLE(obj)->cut;
}

static void cut_set(Object *obj, bool value, Error **errp)
{
    QrnicCable *c = QRNIC_CABLE(obj);
    bool was = qrnic_cable_link(c);

    c->cut = value;
    if (was != qrnic_cable_link(c)) {
        trace_qrnic_cable_link(c->name, !value);
        c->client->link(c->opaque);
    }
}

static void qrnic_cable_init(Object *obj)
{
    QrnicCable *c = QRNIC_CABLE(obj);

    c->slots = DEFAULT_SLOTS;
    c->edge = c->capture.fd = -1;
    c->meeting.lock = c->meeting.listener = -1;
}

static void qrnic_cable_finalize(Object *obj)
{
    QrnicCable *c = QRNIC_CABLE(obj);

    g_free(c->path);
    g_free(c->fd_name);
    g_free(c->capture_path);
    g_free(c->said);
    qrnic_capture_close(&c->capture);
}

static void qrnic_cable_class_init(ObjectClass *klass, QrnicClassData *data)
{
    UserCreatableClass *uc = USER_CREATABLE_CLASS(klass);

    uc->complete = cable_complete;
    qrnic_set_prepare_delete(uc, cable_prepare_delete);
    object_class_property_add_str(klass, "path", path_get, path_set);
    object_class_property_set_description(klass, "path",
        "Path of the socket, the same for both ends");
    object_class_property_add_str(klass, "fd", descriptor_get, descriptor_set);
    object_class_property_set_description(klass, "fd",
        "Instead of path: one end of a socketpair (SOCK_SEQPACKET)");
    object_class_property_add_str(klass, "capture", capture_get, capture_set);
    object_class_property_set_description(klass, "capture",
        "File for all frames that pass this end, as pcapng");
    object_class_property_add(klass, "slots", "uint32", slots_get, slots_set,
                              NULL, NULL);
    object_class_property_set_description(klass, "slots",
        "Maximum of frames in each direction, a power of two");
    object_class_property_add_bool(klass, "cut", cut_get, cut_set);
    object_class_property_set_description(klass, "cut",
        "Without link and frames at this end; changeable at any time");
    object_class_property_add_bool(klass, "link", link_get, NULL);
    object_class_property_set_description(klass, "link",
        "True if the peer is connected and the cable is not cut");
}
