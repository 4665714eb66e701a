/*
 * qrnic engine: streaming receive queues, whose buffers receive many messages
 *
 * qp/work_queue.c calls qrnic_stream_begin() for the first packet of a message.
 * If that fails, it dequeues the next WQE and calls qrnic_stream_open(). A
 * message has a place in a buffer, which is as long as the longest permitted
 * message. At the end of the message qrnic_stream_end() frees the unused rest
 * of the place, if no later place follows. A buffer without room for another
 * message is used up when its last message ends. The CQE of that message
 * reports it. Manual, chapter "Streaming receive".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/queue/queue.h"

struct QrnicStreamBuffer {
    QTAILQ_ENTRY(QrnicStreamBuffer) next;
    QrnicRecvWqe wqe;           /* length: size of the buffer */
    uint64_t tail;              /* end of the last place */
    uint64_t bytes;             /* in complete messages */
    uint32_t messages;          /* messages that began */
    uint32_t under_way;         /* places in use, including returned places */
    uint32_t completed;         /* CQEs of the buffer */
    bool closed;                /* no message begins any more */
};

typedef struct QrnicStreamPlace {
    QrnicStreamBuffer *buffer;
    uint32_t offset;
    uint64_t length;
} QrnicStreamPlace;

struct QrnicStream {
    const char *queue;
    uint32_t number;
    QrnicStreamAttr attr;
    /* buffers that are not used up */
    QTAILQ_HEAD(, QrnicStreamBuffer) buffers;
    QrnicStreamBuffer *open;    /* open buffer, or NULL */
    GArray *returned;           /* returned places, QrnicStreamPlace */
};

QrnicResult qrnic_stream_check(QrnicEngine *e, const QrnicStreamAttr *in,
                               uint32_t offset)
{
    if (!qrnic_is_stream(in)) {
        return in->max_messages || in->log_align ?
               qrnic_refuse(QRNIC_ST_BAD_PARAM, offset) : qrnic_ok(0);
    }
    if (!(e->config.capabilities & QRNIC_CAP_STREAMING_RECV)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, offset);
    }
    if (in->max_message > QRNIC_MAX_MSG_SIZE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, offset +
                            QRNIC_STREAM_ATTR_MAX_MESSAGE_OFFSET);
    }
    if (!in->max_messages) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, offset +
                            QRNIC_STREAM_ATTR_MAX_MESSAGES_OFFSET);
    }
    if (in->log_align > QRNIC_STREAM_MAX_LOG_ALIGN) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, offset +
                            QRNIC_STREAM_ATTR_LOG_ALIGN_OFFSET);
    }
    return qrnic_ok(0);
}

QrnicStream *qrnic_stream_new(const QrnicStreamAttr *attr, const char *queue,
                              uint32_t number)
{
    QrnicStream *s;

    if (!qrnic_is_stream(attr)) {
        return NULL;
    }
    s = g_new0(QrnicStream, 1);
    s->queue = queue;
    s->number = number;
    s->attr = *attr;
    QTAILQ_INIT(&s->buffers);
    s->returned = g_array_new(false, false, sizeof(QrnicStreamPlace));
    return s;
}

static void buffer_free(QrnicStream *s, QrnicStreamBuffer *b)
{
    if (s->open == b) {
        s->open = NULL;
    }
    QTAILQ_REMOVE(&s->buffers, b, next);
    g_free(b);
}

void qrnic_stream_clear(QrnicStream *s)
{
    if (s) {
        while (!QTAILQ_EMPTY(&s->buffers)) {
            buffer_free(s, QTAILQ_FIRST(&s->buffers));
        }
        g_array_set_size(s->returned, 0);
    }
}

void qrnic_stream_free(QrnicStream *s)
{
    if (s) {
        qrnic_stream_clear(s);
        g_array_unref(s->returned);
        g_free(s);
    }
}

/* Returns the offset at which the next message begins. */
static uint64_t next_offset(const QrnicStream *s, const QrnicStreamBuffer *b)
{
    return ROUND_UP(b->tail, 1u << s->attr.log_align);
}

/* Returns true if another message may begin in the buffer. */
static bool takes_more(const QrnicStream *s, const QrnicStreamBuffer *b)
{
    return !b->closed && b->messages < s->attr.max_messages &&
           next_offset(s, b) + s->attr.max_message <= b->wqe.length;
}

static void place(QrnicEngine *e, QrnicStream *s, const QrnicStreamPlace *at,
                  QrnicRecvWqe *out)
{
    *out = at->buffer->wqe;
    out->offset = at->offset;
    out->length = at->length;
    trace_qrnic_stream_begin(e->config.name, s->number, s->queue, out->index,
                             at->offset, at->length, at->buffer->messages);
}

static void begin(QrnicEngine *e, QrnicStream *s, QrnicStreamBuffer *b,
                  QrnicRecvWqe *out)
{
    uint64_t offset = next_offset(s, b);
    QrnicStreamPlace at = {
        .buffer = b,
        .offset = offset,
        .length = MIN(s->attr.max_message, b->wqe.length - offset),
    };

    b->tail = at.offset + at.length;
    b->messages++;
    b->under_way++;
    place(e, s, &at, out);
}

bool qrnic_stream_begin(QrnicEngine *e, QrnicStream *s, QrnicRecvWqe *out)
{
    uint32_t returned = s->returned->len;

    if (returned) {
        QrnicStreamPlace at = g_array_index(s->returned, QrnicStreamPlace,
                                            returned - 1);

        g_array_set_size(s->returned, returned - 1);
        place(e, s, &at, out);
        return true;
    }
    if (!s->open || !takes_more(s, s->open)) {
        return false;
    }
    begin(e, s, s->open, out);
    return true;
}

void qrnic_stream_open(QrnicEngine *e, QrnicStream *s, QrnicRecvWqe *wqe)
{
    QrnicStreamBuffer *b = g_new0(QrnicStreamBuffer, 1);

    /*
     * The previous buffer still has messages in flight, because otherwise it
     * would be used up.
     */
    if (s->open) {
        s->open->closed = true;
    }
    wqe->stream = s;
    wqe->buffer = b;
    b->wqe = *wqe;
    QTAILQ_INSERT_TAIL(&s->buffers, b, next);
    s->open = b;
    begin(e, s, b, wqe);
}

void qrnic_stream_give_back(QrnicEngine *e, const QrnicRecvWqe *wqe)
{
    QrnicStream *s = wqe->stream;
    QrnicStreamPlace at = { wqe->buffer, wqe->offset, wqe->length };

    trace_qrnic_stream_give_back(e->config.name, s->number, s->queue,
                                 wqe->index, wqe->offset);
    g_array_append_val(s->returned, at);
}

/*
 * Completes the CQE of a message that ended, and frees the buffer if it is used
 * up.
 */
static void ended(QrnicEngine *e, const QrnicRecvWqe *wqe, QrnicCqe *cqe)
{
    QrnicStream *s = wqe->stream;
    QrnicStreamBuffer *b = wqe->buffer;
    bool used = !b->under_way && !takes_more(s, b);

    cqe->offset = wqe->offset;
    b->completed++;
    trace_qrnic_stream_end(e->config.name, s->number, s->queue, wqe->index,
                           wqe->offset, b->tail, used);
    if (used) {
        cqe->stream = QRNIC_CQES_USED;
        cqe->messages = b->completed;
        qrnic_add(e, QRNIC_COUNTER_STREAM_BUFFERS, 1);
        qrnic_add(e, QRNIC_COUNTER_STREAM_UNUSED_BYTES,
                  b->wqe.length - b->bytes);
        buffer_free(s, b);
    }
}

void qrnic_stream_end(QrnicEngine *e, const QrnicRecvWqe *wqe, uint64_t bytes,
                      QrnicCqe *cqe)
{
    QrnicStreamBuffer *b = wqe->buffer;

    if (!b) {
        return;
    }
    b->under_way--;
    b->bytes += bytes;
    if (b->tail == wqe->offset + wqe->length) {
        b->tail = wqe->offset + bytes;
    }
    qrnic_add(e, QRNIC_COUNTER_STREAM_MESSAGES, 1);
    qrnic_add(e, QRNIC_COUNTER_STREAM_BYTES, bytes);
    ended(e, wqe, cqe);
}

/* Frees the whole place of a message that failed. */
static void place_free(QrnicStreamBuffer *b, const QrnicRecvWqe *wqe)
{
    if (b->tail == wqe->offset + wqe->length) {
        b->tail = wqe->offset;
    }
}

void qrnic_stream_fail(QrnicEngine *e, const QrnicRecvWqe *wqe, QrnicCqe *cqe)
{
    QrnicStreamBuffer *b = wqe->buffer;

    if (b) {
        b->under_way--;
        /*
         * Any other error was caused by the peer, so the buffer stays open for
         * other queue pairs of the SRQ.
         */
        if (cqe->status == QRNIC_WC_LOC_PROT_ERR) {
            b->closed = true;
        }
        place_free(b, wqe);
        ended(e, wqe, cqe);
    } else if (wqe->stream) {
        cqe->stream = QRNIC_CQES_USED;
        cqe->messages = 1;
    }
}

void qrnic_stream_flush(QrnicEngine *e, const QrnicRecvWqe *wqe, QrnicCqe *cqe)
{
    QrnicStream *s = wqe->stream;

    if (!s) {
        return;
    }
    cqe->stream = QRNIC_CQES_USED;
    cqe->messages = 1;
    if (wqe->buffer) {
        cqe->messages += wqe->buffer->completed;
        trace_qrnic_stream_flush(e->config.name, s->number, s->queue,
                                 wqe->index);
        /*
         * An RQ has only one buffer, so all returned places are in it and
         * disappear with it.
         */
        qrnic_stream_clear(s);
    }
}
