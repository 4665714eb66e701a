/*
 * qrnic cable: a thread that reads the socket of a connection
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * A peer can send any descriptor with any message. If recvmsg() or close()
 * drops a descriptor, the kernel closes it in the calling thread. This can take
 * long, for example for a TCP socket with SO_LINGER and unsent data, or for a
 * file of FUSE. So each connection has a thread for these calls, which has no
 * lock meanwhile. If a peer blocks the thread, the connection receives no
 * further message, and the main loop's timer ends it. No code waits for the
 * thread.
 *
 * The thread reports one message at a time, and waits until the main loop has
 * consumed it. WAKEs are merged.
 */

#include "qemu/osdep.h"
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <linux/magic.h>
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "qemu/thread.h"
#include "cable/reader.h"
#include "cable/ring.h"

/* Added in Linux 6.16; missing in older headers */
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

#define RELAXED_MS 1

/* Messages between two reports, so that a flood of WAKEs is reported, too */
#define MESSAGE_BUDGET 256

struct QrnicReader {
    QemuMutex lock;             /* protects all members below */
    QemuCond changed;
    int fd;                     /* -1: not started; written once */
    uint32_t max_slots;         /* written with fd */
    QEMUBH *bh;                 /* NULL after the end */
    bool relaxed;
    bool ended;                 /* the main loop has ended the reader */
    bool abandoned;             /* the thread frees the reader */
    bool done;                  /* the thread has finished */
    QrnicNews news;             /* not yet consumed */
    /* Both may be set, because a peer may send an unexpected MEMORY. */
    void *own, *received;
    size_t own_bytes, received_bytes;
};

void *qrnic_cable_memory_map(int fd, size_t bytes)
{
    struct stat st;
    struct statfs fs;
    int seals = fcntl(fd, F_GET_SEALS);
    void *memory;

    /*
     * F_GET_SEALS fails for files of other file systems, which could delay the
     * calls below. If a peer punches a hole into the file, the next access
     * fills it again. That could fail with huge pages, if no page is free.
     */
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 ||
        st.st_size != bytes || fstatfs(fd, &fs) < 0 ||
        fs.f_type != TMPFS_MAGIC) {
        return NULL;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Thread */

/* Maps the file of a MEMORY message, once per connection. */
static void map_received(QrnicReader *r, QrnicNews *news, int fd)
{
    const QrnicRingShape shape = {
        .slots = news->message.slots, .max_frame = news->message.max_frame,
        .stride = news->message.stride,
    };
    size_t bytes = 2 * qrnic_cable_ring_bytes(&shape);

    if (!bytes || shape.slots > r->max_slots || r->received) {
        return;
    }
    news->memory = qrnic_cable_memory_map(fd, bytes);
    r->received = news->memory;
    r->received_bytes = bytes;
}

/* Reads a message, without the lock. *woken is set if it was WAKE. */
static void receive(QrnicReader *r, QrnicNews *news, bool *woken)
{
    int descriptor;

    *news = (QrnicNews) { 0 };
    news->received = qrnic_cable_message_receive(r->fd, &news->message,
                                                 &descriptor);
    if (news->received == QRNIC_RECEIVED_MESSAGE &&
        news->message.type == QRNIC_CABLE_WAKE) {
        news->received = QRNIC_RECEIVED_NOTHING;
        *woken = true;
    }
    if (descriptor >= 0) {
        if (news->received == QRNIC_RECEIVED_MESSAGE &&
            news->message.type == QRNIC_CABLE_MEMORY) {
            map_received(r, news, descriptor);
        }
        close(descriptor);
    }
}

/* Waits until a message can be read. The caller has the lock. */
static void await_readable(QrnicReader *r)
{
    struct pollfd p = { .fd = r->fd, .events = POLLIN };
    bool relaxed = r->relaxed;

    qemu_mutex_unlock(&r->lock);
    RETRY_ON_EINTR(poll(&p, 1, -1));
    qemu_mutex_lock(&r->lock);
    /* A hang-up is read at once, so that the link goes down without delay. */
    if (relaxed && !r->ended && !(p.revents & POLLHUP)) {
        qemu_cond_timedwait(&r->changed, &r->lock, RELAXED_MS);
    }
}

/* Reports a message and a WAKE to the main loop. The caller has the lock. */
static void report(QrnicReader *r, const QrnicNews *news, bool woken)
{
    while (news->received != QRNIC_RECEIVED_NOTHING &&
           r->news.received != QRNIC_RECEIVED_NOTHING && !r->ended) {
        qemu_cond_wait(&r->changed, &r->lock);
    }
    if (r->ended) {
        return;
    }
    if (news->received != QRNIC_RECEIVED_NOTHING) {
        r->news.received = news->received;
        r->news.message = news->message;
        r->news.memory = news->memory;
    }
    r->news.woken |= woken;
    if (r->news.woken || r->news.received != QRNIC_RECEIVED_NOTHING) {
        qemu_bh_schedule(r->bh);
    }
}

/*
 * Reads and reports all messages. The caller has the lock. A WAKE is reported
 * even if the main loop has seen it arrive, because a peer that finds the
 * socket full sends no further WAKE.
 */
static void read_all(QrnicReader *r)
{
    QrnicNews news = { 0 };
    bool woken = false, was_woken = true;

    for (unsigned i = 0; i < MESSAGE_BUDGET && was_woken && !r->ended; i++) {
        was_woken = false;
        qemu_mutex_unlock(&r->lock);
        receive(r, &news, &was_woken);
        qemu_mutex_lock(&r->lock);
        woken |= was_woken;
    }
    report(r, &news, woken);
    while ((news.received == QRNIC_RECEIVED_END ||
            news.received == QRNIC_RECEIVED_WRONG) && !r->ended) {
        qemu_cond_wait(&r->changed, &r->lock);
    }
}

static void reader_free(QrnicReader *r)
{
    qemu_cond_destroy(&r->changed);
    qemu_mutex_destroy(&r->lock);
    g_free(r);
}

static void *reader_thread(void *opaque)
{
    QrnicReader *r = opaque;
    bool abandoned;

    qemu_mutex_lock(&r->lock);
    while (r->fd < 0 && !r->ended) {
        qemu_cond_wait(&r->changed, &r->lock);
    }
    while (!r->ended) {
        await_readable(r);
        read_all(r);
    }
    qemu_mutex_unlock(&r->lock);
    if (r->own) {
        munmap(r->own, r->own_bytes);
    }
    if (r->received) {
        munmap(r->received, r->received_bytes);
    }
    if (r->fd >= 0) {
        close(r->fd);
    }
    qemu_mutex_lock(&r->lock);
    r->done = true;
    abandoned = r->abandoned;
    qemu_mutex_unlock(&r->lock);
    if (abandoned) {
        reader_free(r);
    }
    return NULL;
}

/* Main loop */

QrnicReader *qrnic_reader_new(void (*news)(void *opaque), void *opaque)
{
    QrnicReader *r = g_new0(QrnicReader, 1);

    qemu_mutex_init(&r->lock);
    qemu_cond_init(&r->changed);
    r->fd = -1;
    if (!qrnic_cable_thread(reader_thread, r)) {
        reader_free(r);
        return NULL;
    }
    /*
     * The bottom half belongs to a context that no device polls in the middle
     * of a frame, because it may release that frame's memory.
     */
    r->bh = aio_bh_new(iohandler_get_aio_context(), news, opaque);
    return r;
}

void qrnic_reader_start(QrnicReader *r, int fd, uint32_t max_slots)
{
    QEMU_LOCK_GUARD(&r->lock);
    r->max_slots = max_slots;
    r->fd = fd;
    qemu_cond_signal(&r->changed);
}

void qrnic_reader_take(QrnicReader *r, QrnicNews *news)
{
    QEMU_LOCK_GUARD(&r->lock);
    *news = r->news;
    r->news = (QrnicNews) { 0 };
    qemu_cond_signal(&r->changed);
}

int qrnic_reader_fd(const QrnicReader *r)
{
    return r->fd;
}

bool qrnic_reader_hung_up(const QrnicReader *r)
{
    struct pollfd p = { .fd = r->fd };

    return RETRY_ON_EINTR(poll(&p, 1, 0)) == 1 && (p.revents & POLLHUP);
}

void qrnic_reader_refuse_descriptors(QrnicReader *r)
{
    int pass = 0;

    /*
     * Older kernels have no such option, so the thread closes the descriptors
     * there.
     */
    setsockopt(r->fd, SOL_SOCKET, SO_PASSRIGHTS, &pass, sizeof(pass));
}

void qrnic_reader_relax(QrnicReader *r)
{
    QEMU_LOCK_GUARD(&r->lock);
    r->relaxed = true;
}

void qrnic_reader_own_memory(QrnicReader *r, void *memory, size_t bytes)
{
    QEMU_LOCK_GUARD(&r->lock);
    r->own = memory;
    r->own_bytes = bytes;
}

void qrnic_reader_end(QrnicReader *r)
{
    QEMU_LOCK_GUARD(&r->lock);
    r->ended = true;
    qemu_bh_delete(r->bh);
    r->bh = NULL;
    /* Ends poll() in the thread, and informs the peer at once. */
    if (r->fd >= 0) {
        shutdown(r->fd, SHUT_RDWR);
    }
    qemu_cond_signal(&r->changed);
}

bool qrnic_reader_done(QrnicReader *r)
{
    bool done;

    qemu_mutex_lock(&r->lock);
    done = r->done;
    qemu_mutex_unlock(&r->lock);
    if (done) {
        reader_free(r);
    }
    return done;
}

void qrnic_reader_abandon(QrnicReader *r)
{
    bool done;

    qemu_mutex_lock(&r->lock);
    r->abandoned = true;
    done = r->done;
    qemu_mutex_unlock(&r->lock);
    if (done) {
        reader_free(r);
    }
}
