/*
 * qrnic engine, layer qp: the context cache
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Models the cache of an adapter that keeps the contexts of most connections in
 * guest memory. The scheduler, receivers, doorbells and timers request a
 * context before they work on a queue pair. A hit is reported at once, and a
 * miss starts a fetch that takes context-latency. At its end fetch_done()
 * compares the image in memory with the state of the device, because guest
 * software could have overwritten the image. A mismatch takes the queue pair to
 * ERR. The function go_on() then continues the work that waited.
 *
 * With context-stations=0 the device fetches in order, so one fetch delays all
 * work. Otherwise other queue pairs continue, and frames for the waiting queue
 * pair are buffered. A context stays pinned until its quantum ends. Manual,
 * chapter Context cache.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

typedef enum QrnicContextPlace {
    CONTEXT_OUT,                /* in memory only */
    CONTEXT_WANTED,             /* queued for a reservation station */
    CONTEXT_FETCHED,            /* in a reservation station */
    CONTEXT_IN,                 /* in the cache */
} QrnicContextPlace;

struct QrnicContext {
    QrnicQp *qp;
    QrnicContextPlace place;
    /* must stay in the cache until the quantum ends */
    bool pinned;
    bool wants_quantum, wants_timer, wants_doorbell;
    bool was_scheduled;         /* the queue pair lost a quantum by the miss */
    uint32_t frames;            /* buffered frames for this queue pair */
    uint32_t writes;            /* serial number of the image */
    /* copy of the image in memory */
    uint8_t image[QRNIC_CONTEXT_IMAGE_SIZE];
    /*
     * Entry of the list of cached contexts, least recently used first; or of
     * the list of misses, in their order
     */
    QTAILQ_ENTRY(QrnicContext) next;
    QrnicTimer timer;
};

/* Frame that waits for its context, or behind such a frame in order */
typedef struct WaitingFrame {
    QTAILQ_ENTRY(WaitingFrame) next;
    QrnicContext *context;      /* context that counts the frame; or NULL */
    uint32_t qpn;
    bool loopback;
    size_t len;
    uint8_t data[];
} WaitingFrame;

struct QrnicContexts {
    QrnicPages memory;
    uint64_t length;            /* 0: software has set no context memory */
    uint32_t count;             /* queue pairs with contexts, and members */
    uint32_t in, pinned, fetched;
    QTAILQ_HEAD(, QrnicContext) cached, wanted;
    QTAILQ_HEAD(, WaitingFrame) frames;
    uint32_t frame_count;
    bool delivering;
    bool more;                  /* frames remain for the next run */
    WaitingFrame *delivered;    /* frame that is delivered now */
};

static bool in_order(const QrnicEngine *e)
{
    return !e->config.context_stations;
}

/* Returns true if a fetch in order delays all other work. */
static bool stands_still(const QrnicEngine *e)
{
    const QrnicContexts *x = e->qps->contexts;

    return in_order(e) && (x->fetched || !QTAILQ_EMPTY(&x->wanted));
}

bool qrnic_contexts_stand_still(const QrnicEngine *e)
{
    return e->qps->contexts && stands_still(e);
}

/*
 * Suspends or resumes the wire and the loopback queue, so that no frame
 * overtakes a fetch in order.
 */
static void still_changed(QrnicEngine *e)
{
    bool still = in_order(e) &&
                 (stands_still(e) || e->qps->contexts->frame_count);

    if (e->fabric->suspended && !still) {
        qrnic_wake(e);
    }
    e->fabric->suspended = still;
}

/* Images */

static void image_pack(const QrnicContext *c, uint8_t *image)
{
    const QrnicQp *qp = c->qp;
    uint32_t word[QRNIC_CONTEXT_IMAGE_SIZE / 4] = {
        qp->number, c->writes, qp->type << 8 | qp->state,
        qp->sq.producer, qp->sq.consumer, qp->sq.completed,
        qp->rq.producer, qp->rq.consumer,
    };

    qp->ops->context(qp, word + 8);
    for (unsigned i = 0; i < ARRAY_SIZE(word); i++) {
        qrnic_st_le32(image + 4 * i, word[i]);
    }
}

static uint64_t image_at(const QrnicContext *c)
{
    return (uint64_t)c->qp->number * QRNIC_CONTEXT_IMAGE_SIZE;
}

static void image_error(QrnicEngine *e, const QrnicContext *c, const char *what)
{
    qrnic_guest_error(e, QRNIC_GE_CONTEXT_IMAGE, "QP", c->qp->number,
                      "its context image %s", what);
}

/*
 * Compares the image in memory with the state of the device. Returns SYN_NONE
 * if they are equal, SYN_DMA if the image cannot be read, or SYN_CONTEXT.
 */
static enum qrnic_syndrome image_read(QrnicEngine *e, QrnicContext *c)
{
    uint8_t image[QRNIC_CONTEXT_IMAGE_SIZE];
    enum qrnic_syndrome syndrome = QRNIC_SYN_NONE;
    bool failed;

    image_pack(c, c->image);
    qrnic_use(e, QRNIC_USE_CONTEXT, c->qp->number, 0);
    failed = qrnic_pages_read(e, &e->qps->contexts->memory, image_at(c), image,
                              sizeof(image));
    qrnic_use_end(e);
    if (failed) {
        image_error(e, c, "cannot be read");
        syndrome = QRNIC_SYN_DMA;
    } else if (memcmp(image, c->image, sizeof(image))) {
        image_error(e, c, "differs from the image that the device wrote");
        syndrome = QRNIC_SYN_CONTEXT;
    }
    if (syndrome) {
        /*
         * The contents of the memory are unknown. Zeroing the copy makes the
         * next write-back differ from it, so the write-back is not omitted.
         */
        memset(c->image, 0, sizeof(c->image));
    }
    return syndrome;
}

/*
 * Writes the image if it has changed since it was read. A failed write is only
 * reported here, because the next fetch detects the old image.
 */
static void image_write(QrnicEngine *e, QrnicContext *c)
{
    uint8_t image[QRNIC_CONTEXT_IMAGE_SIZE];
    QrnicCounterSet *before;

    image_pack(c, image);
    if (!memcmp(image, c->image, sizeof(image))) {
        return;
    }
    before = qrnic_charge_to(e, c->qp->counters);
    c->writes++;
    image_pack(c, image);
    qrnic_add(e, QRNIC_COUNTER_CONTEXT_WRITE_BACKS, 1);
    trace_qrnic_context_write_back(e->config.name, c->qp->number, c->writes);
    qrnic_use(e, QRNIC_USE_CONTEXT, c->qp->number, 0);
    if (qrnic_pages_write(e, &e->qps->contexts->memory, image_at(c), image,
                          sizeof(image))) {
        image_error(e, c, "cannot be written");
    }
    qrnic_use_end(e);
    qrnic_charge_to(e, before);
}

/* The cache */

/* Pins a context in the cache until the quantum of its queue pair ends. */
static void pin(QrnicContexts *x, QrnicContext *c)
{
    if (c->place == CONTEXT_IN && !c->pinned) {
        c->pinned = true;
        x->pinned++;
    }
    /*
     * A pinned context outside the cache would be counted as an occupied slot,
     * and fetches_begin() would never start a fetch again.
     */
    assert(x->pinned <= x->in);
}

static void unpin(QrnicContexts *x, QrnicContext *c)
{
    if (c->pinned) {
        c->pinned = false;
        x->pinned--;
    }
}

static void take_out(QrnicContexts *x, QrnicContext *c)
{
    unpin(x, c);
    QTAILQ_REMOVE(&x->cached, c, next);
    x->in--;
    c->place = CONTEXT_OUT;
}

static void evict_one(QrnicEngine *e)
{
    QrnicContexts *x = e->qps->contexts;
    QrnicContext *c;

    QTAILQ_FOREACH(c, &x->cached, next) {
        if (!c->pinned) {
            break;
        }
    }
    /*
     * If all contexts are pinned, the least recently used one is evicted,
     * because a command needs a slot. The queue pair of that context fetches it
     * again when next scheduled.
     */
    c = c ? c : QTAILQ_FIRST(&x->cached);
    image_write(e, c);
    take_out(x, c);
}

static void put_in(QrnicEngine *e, QrnicContext *c)
{
    QrnicContexts *x = e->qps->contexts;

    if (x->in == e->config.context_cache) {
        evict_one(e);
    }
    QTAILQ_INSERT_TAIL(&x->cached, c, next);
    x->in++;
    c->place = CONTEXT_IN;
}

/* Ends the wait for a station, or the fetch. */
static void fetch_end(QrnicEngine *e, QrnicContext *c)
{
    QrnicContexts *x = e->qps->contexts;

    if (c->place == CONTEXT_WANTED) {
        QTAILQ_REMOVE(&x->wanted, c, next);
    } else if (c->place == CONTEXT_FETCHED) {
        qrnic_timer_cancel(e, &c->timer);
        x->fetched--;
    }
    c->place = CONTEXT_OUT;
}

/* Continues the work that waited for the context, except for frames. */
static void go_on(QrnicEngine *e, QrnicContext *c)
{
    QrnicQp *qp = c->qp;

    /* The context is pinned first. Otherwise the calls below could evict it. */
    if (c->wants_quantum) {
        pin(e->qps->contexts, c);
    }
    if (c->wants_timer) {
        c->wants_timer = false;
        qp->ops->timer(e, qp);
    }
    if (c->wants_doorbell) {
        c->wants_doorbell = false;
        qp->ops->receive_doorbell(e, qp);
    }
    if (c->wants_quantum) {
        c->wants_quantum = false;
        /*
         * Only a queue pair that lost its quantum by the miss goes to the
         * front. Otherwise a queue pair that was never scheduled would overtake
         * those that wait.
         */
        if (c->was_scheduled) {
            e->qps->context_users->ready(e, qp);
        } else {
            e->qps->context_users->schedule(e, qp);
        }
        c->was_scheduled = false;
    }
}

static void fetch_done(QrnicEngine *e, QrnicContext *c)
{
    QrnicCounterSet *before = qrnic_charge_to(e, c->qp->counters);
    enum qrnic_syndrome syndrome;

    fetch_end(e, c);
    syndrome = image_read(e, c);
    put_in(e, c);
    trace_qrnic_context_in(e->config.name, c->qp->number, syndrome);
    if (syndrome) {
        e->qps->context_users->failed(e, c->qp, QRNIC_EVENT_QP_CONTEXT_ERROR,
                                        syndrome);
    }
    go_on(e, c);
    qrnic_charge_to(e, before);
}

/*
 * Starts fetches while stations are free, out of order only if the cache has
 * room until the quantum of each. In order the limit is unnecessary, because no
 * other queue pair is scheduled before the fetch ends.
 */
static void fetches_begin(QrnicEngine *e)
{
    QrnicContexts *x = e->qps->contexts;
    QrnicContext *c;

    while ((c = QTAILQ_FIRST(&x->wanted)) &&
           x->fetched < MAX(e->config.context_stations, 1) &&
           (in_order(e) || x->fetched + x->pinned < e->config.context_cache)) {
        QTAILQ_REMOVE(&x->wanted, c, next);
        c->place = CONTEXT_FETCHED;
        x->fetched++;
        trace_qrnic_context_fetch(e->config.name, c->qp->number, x->fetched);
        if (e->config.context_latency) {
            qrnic_timer_set(e, &c->timer,
                            qrnic_now(e) + e->config.context_latency);
        } else {
            fetch_done(e, c);
        }
    }
}

/*
 * Requests a context. Returns true if the context is in the cache, possibly
 * after a fetch without latency.
 */
static bool want(QrnicEngine *e, QrnicContext *c)
{
    QrnicContexts *x = e->qps->contexts;

    if (c->place == CONTEXT_IN) {
        qrnic_add(e, QRNIC_COUNTER_CONTEXT_HITS, 1);
        QTAILQ_REMOVE(&x->cached, c, next);
        QTAILQ_INSERT_TAIL(&x->cached, c, next);
        return true;
    }
    if (c->place == CONTEXT_OUT) {
        qrnic_add(e, QRNIC_COUNTER_CONTEXT_MISSES, 1);
        trace_qrnic_context_miss(e->config.name, c->qp->number, x->fetched);
        c->place = CONTEXT_WANTED;
        QTAILQ_INSERT_TAIL(&x->wanted, c, next);
        fetches_begin(e);
        still_changed(e);
    }
    return c->place == CONTEXT_IN;
}

static void frame_free(QrnicContexts *x, WaitingFrame *f)
{
    QTAILQ_REMOVE(&x->frames, f, next);
    x->frame_count--;
    if (f->context) {
        f->context->frames--;
    }
    g_free(f);
}

/*
 * Returns true if the frame can be delivered. A context fetched for frames may
 * have been evicted before their delivery, so this function requests it again.
 */
static bool frame_may_go(QrnicEngine *e, const WaitingFrame *f)
{
    QrnicQp *qp = qrnic_qp_get(e, f->qpn);
    QrnicContext *c = qp ? qp->context : NULL;

    if (in_order(e)) {
        return !stands_still(e);
    }
    return !c || c->place == CONTEXT_IN ||
           (c->place == CONTEXT_OUT && want(e, c));
}

/*
 * Delivers buffered frames. The order of frames is kept for each queue pair,
 * and for all frames if contexts are fetched in order.
 */
static void frames_deliver(QrnicEngine *e)
{
    QrnicContexts *x = e->qps->contexts;
    QrnicCounterSet *before;
    WaitingFrame *f, *next;

    if (x->delivering) {
        x->more = true;
        return;
    }
    /*
     * The frames may belong to other queue pairs, so they must not be charged
     * to the counter set of the current work.
     */
    before = qrnic_charge_to(e, NULL);
    x->delivering = true;
    x->more = false;
    QTAILQ_FOREACH_SAFE(f, &x->frames, next, next) {
        QrnicHeaders h;

        if (e->fatal || !frame_may_go(e, f)) {
            continue;
        }
        if (qrnic_budget_spent(e)) {
            x->more = true;
            break;
        }
        x->delivered = f;
        h = qrnic_headers_walk(f->data, f->len);
        e->fabric->receivers->roce(e, &h, f->loopback);
        /*
         * The function frame_keep() clears x->delivered if the frame must stay
         * buffered, because its queue pair waits again.
         */
        if (x->delivered) {
            frame_free(x, f);
        }
        x->delivered = NULL;
    }
    x->delivering = false;
    qrnic_charge_to(e, before);
    if (x->more) {
        qrnic_wake(e);
    }
}

/*
 * Starts waiting fetches and delivers frames, because a context or a slot has
 * become available.
 */
static void next_ones(QrnicEngine *e)
{
    fetches_begin(e);
    still_changed(e);
    if (e->qps->contexts->frame_count) {
        frames_deliver(e);
        still_changed(e);
    }
}

static void fetch_timer(QrnicEngine *e, QrnicTimer *t)
{
    fetch_done(e, container_of(t, QrnicContext, timer));
    next_ones(e);
}

/* Requests of other files */

bool qrnic_context_waits(QrnicQp *qp)
{
    QrnicContext *c = qp->context;

    if (!c || c->place == CONTEXT_IN || c->place == CONTEXT_OUT) {
        return false;
    }
    c->wants_quantum = true;
    return true;
}

bool qrnic_context_pin(QrnicEngine *e, QrnicQp *qp)
{
    QrnicContext *c = qp->context;

    if (!c || want(e, c)) {
        return true;
    }
    c->wants_quantum = c->was_scheduled = true;
    return false;
}

bool qrnic_context_timer(QrnicEngine *e, QrnicQp *qp)
{
    QrnicContext *c = qp->context;

    if (!c || want(e, c)) {
        return true;
    }
    c->wants_timer = true;
    return false;
}

bool qrnic_context_doorbell(QrnicEngine *e, QrnicQp *qp)
{
    QrnicContext *c = qp->context;

    if (!c || want(e, c)) {
        return true;
    }
    c->wants_doorbell = true;
    return false;
}

bool qrnic_context_is_in(const QrnicQp *qp)
{
    return !qp->context || qp->context->place == CONTEXT_IN;
}

static void frame_keep(QrnicEngine *e, const QrnicQp *qp, const QrnicHeaders *h,
                       bool loopback)
{
    QrnicContexts *x = e->qps->contexts;
    QrnicContext *c = qp->context;
    WaitingFrame *f;

    if (x->delivered) {
        x->delivered = NULL;
        return;
    }
    /*
     * A queue pair may buffer as many frames as are still free, so that it
     * cannot use up the buffer alone.
     */
    if (x->frame_count == QRNIC_CONTEXT_FRAMES ||
        (c && !in_order(e) &&
         c->frames >= QRNIC_CONTEXT_FRAMES - x->frame_count)) {
        qrnic_add(e, QRNIC_COUNTER_RX_DROP_CONTEXT, 1);
        trace_qrnic_roce_drop(e->config.name, qp->number, 0, "context");
        return;
    }
    f = g_malloc(sizeof(*f) + h->len);
    f->qpn = qp->number;
    f->loopback = loopback;
    f->len = h->len;
    memcpy(f->data, h->frame, h->len);
    f->context = c;
    QTAILQ_INSERT_TAIL(&x->frames, f, next);
    x->frame_count++;
    if (c) {
        c->frames++;
    }
    trace_qrnic_context_frame(e->config.name, qp->number, x->frame_count);
}

bool qrnic_context_receive(QrnicEngine *e, QrnicQp *qp, const QrnicHeaders *h,
                           bool loopback)
{
    QrnicContexts *x = e->qps->contexts;
    QrnicContext *c = qp->context;
    bool overtakes;

    if (!x) {
        return true;
    }
    overtakes = !x->delivered &&
                (in_order(e) ? x->frame_count || stands_still(e) :
                 c && c->frames);
    if (!overtakes && (!c || want(e, c))) {
        return true;
    }
    frame_keep(e, qp, h, loopback);
    return false;
}

void qrnic_context_unpin(QrnicEngine *e, QrnicQp *qp)
{
    QrnicContext *c = qp->context;

    if (c && c->pinned) {
        unpin(e->qps->contexts, c);
        next_ones(e);
    }
}

void qrnic_context_now(QrnicEngine *e, QrnicQp *qp)
{
    QrnicContext *c = qp->context;

    if (c && c->place != CONTEXT_IN) {
        qrnic_add(e, QRNIC_COUNTER_CONTEXT_MISSES, c->place == CONTEXT_OUT);
        fetch_done(e, c);
        next_ones(e);
    }
}

/* Creation, destruction and the context memory */

QrnicResult qrnic_context_room(QrnicEngine *e, const QrnicQpOps *ops)
{
    const QrnicContexts *x = e->qps->contexts;

    if (x && ops->context && !x->length &&
        x->count == e->config.context_cache) {
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    return qrnic_ok(0);
}

static bool may_have_one(QrnicEngine *e, const QrnicQp *qp)
{
    return e->qps->contexts && qp->ops->context;
}

static void context_new(QrnicEngine *e, QrnicQp *qp)
{
    QrnicContext *c = g_new0(QrnicContext, 1);

    qp->context = c;
    c->qp = qp;
    qrnic_timer_init(&c->timer, fetch_timer);
    put_in(e, c);
}

void qrnic_context_init(QrnicEngine *e, QrnicQp *qp)
{
    if (may_have_one(e, qp)) {
        e->qps->contexts->count++;
        qp->context_counted = true;
        context_new(e, qp);
    }
}

void qrnic_context_again(QrnicEngine *e, QrnicQp *qp)
{
    if (may_have_one(e, qp)) {
        context_new(e, qp);
    }
}

void qrnic_context_away(QrnicEngine *e, QrnicQp *qp)
{
    QrnicContexts *x = e->qps->contexts;
    QrnicContext *c = qp->context;
    WaitingFrame *f;

    if (!c) {
        return;
    }
    if (c->place == CONTEXT_IN) {
        take_out(x, c);
    } else {
        fetch_end(e, c);
    }
    if (c->frames) {
        QTAILQ_FOREACH(f, &x->frames, next) {
            f->context = f->context == c ? NULL : f->context;
        }
    }
    g_free(c);
    qp->context = NULL;
}

void qrnic_context_free(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->context_counted) {
        e->qps->contexts->count--;
    }
    qrnic_context_away(e, qp);
}

bool qrnic_contexts_pending(const QrnicEngine *e)
{
    return e->qps->contexts && e->qps->contexts->more;
}

void qrnic_contexts_process(QrnicEngine *e)
{
    if (qrnic_contexts_pending(e) && !qrnic_budget_spent(e)) {
        next_ones(e);
    }
}

void qrnic_context_gone(QrnicEngine *e)
{
    if (e->qps->contexts) {
        next_ones(e);
    }
}

static uint64_t memory_needed(const QrnicEngine *e)
{
    return (uint64_t)e->qps->table.limit * QRNIC_CONTEXT_IMAGE_SIZE;
}

QrnicResult qrnic_context_memory_set(QrnicEngine *e,
                                     const QrnicContextMemory *in)
{
    const QrnicTranslation *t = &in->memory;
    QrnicContexts *x = e->qps->contexts;
    QrnicPages memory = { .length = 0 };
    QrnicResult result;

    if (!x) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (x->count) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    if (in->length && in->length < memory_needed(e)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_CONTEXT_MEMORY_LENGTH_OFFSET);
    }
    if (!in->length && (t->root || t->levels || t->page_shift || t->offset)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_CONTEXT_MEMORY_MEMORY_OFFSET);
    }
    if (in->length &&
        !qrnic_ring_init(e, &memory, t, in->length,
                         QRNIC_CONTEXT_MEMORY_MEMORY_OFFSET, &result)) {
        return result;
    }
    if (x->length) {
        qrnic_pages_forget(e, &x->memory);
    }
    x->memory = memory;
    x->length = in->length;
    trace_qrnic_context_memory(e->config.name, in->length);
    return qrnic_ok(0);
}

QrnicResult qrnic_context_memory_query(QrnicEngine *e, QrnicContextAttr *out)
{
    memset(out, 0, sizeof(*out));
    if (!e->qps->contexts) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    out->image_size = QRNIC_CONTEXT_IMAGE_SIZE;
    out->images = e->qps->table.limit;
    out->entries = e->config.context_cache;
    out->stations = e->config.context_stations;
    out->latency = e->config.context_latency;
    out->length = e->qps->contexts->length;
    return qrnic_ok(0);
}

void qrnic_contexts_init(QrnicEngine *e)
{
    QrnicContexts *x;

    if (!(e->config.capabilities & QRNIC_CAP_CONTEXT_CACHE)) {
        return;
    }
    x = e->qps->contexts = g_new0(QrnicContexts, 1);
    QTAILQ_INIT(&x->cached);
    QTAILQ_INIT(&x->wanted);
    QTAILQ_INIT(&x->frames);
}

/* Frees the cache. All queue pairs are destroyed before. */
void qrnic_contexts_cleanup(QrnicEngine *e)
{
    QrnicContexts *x = e->qps->contexts;
    WaitingFrame *f;

    if (!x) {
        return;
    }
    while ((f = QTAILQ_FIRST(&x->frames))) {
        QTAILQ_REMOVE(&x->frames, f, next);
        g_free(f);
    }
    e->fabric->suspended = false;
    g_free(x);
    e->qps->contexts = NULL;
}
