/*
 * qrnic: stops the device at the next event, for a step-by-step view
 *
 * work.c, wire_net.c and sriov/wire.c begin each call of the engine with
 * qrnic_stop_run() if d->stop_at is not 0. bus.c, port.c, interrupts.c and
 * work.c report each event at the same place as to a capture. A stop leaves the
 * coroutine in the middle of the engine; the caller of the engine continues as
 * if the work was complete. properties.c requests the continuation, and the
 * bottom half calls qrnic_stop_resume(). See the manual, chapter "Captures",
 * section "Slow motion".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * The device runs as long as it is not stopped:
 *
 *   left --qrnic_stop_run()--> running --event--> stopped
 *   stopped --qrnic_stop_resume()--> running --qrnic_stop_leave()--> left
 *
 * left      s->work is NULL.
 * running   s->work is the coroutine in which the device is entered. Work that
 *           began before stop-at was set has none, and does not stop.
 * stopped   s->stopped is true, and the device is entered. The clock of the
 *           device stands still, and its timers are disarmed. Doorbells enter
 *           the FIFO of the engine. A reset, an unplug, and a write that
 *           disables the command queue end the stop by qrnic_stop_end().
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/coroutine.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "trace.h"
#include "device/capture.h"
#include "device/stop.h"

/* Bytes of an event that the property reports */
#define DATA_BYTES 128
/* Doorbells that are recorded as events while the device is stopped */
#define DOORBELLS 64
/* Timers of the device: engine, link, busy wire */
#define TIMERS 3

/* Kinds of events: the purposes of DMA (QrnicUse), and these */
enum {
    KIND_DOORBELL = QRNIC_NUM_USES, KIND_SENT, KIND_RECEIVED, KIND_INTERRUPT,
    KINDS
};
#define KIND_BIT(kind) (1u << (kind))
#define ALL_DMA (KIND_BIT(QRNIC_NUM_USES) - 1)
#define ALL_KINDS (KIND_BIT(KINDS) - 1)

QEMU_BUILD_BUG_ON(KINDS > 32);

typedef struct StopEvent {
    unsigned kind;
    QrnicActivity activity;
    /* DMA: address; doorbell: offset in BAR 2; interrupt: vector */
    uint64_t at;
    size_t len;                 /* of the access or the frame */
    bool write, failed;
    uint8_t data[DATA_BYTES];   /* the first bytes */
    size_t data_len;
} StopEvent;

typedef struct Doorbell {
    uint64_t offset, value;
} Doorbell;

struct QrnicStop {
    Coroutine *work;            /* in which the device is entered, or NULL */
    bool stopped;
    bool go;                    /* the next run continues the work */
    bool ending;                /* no further stop until the device is left */
    uint64_t count;             /* stops so far */
    StopEvent event;            /* the current one, if stopped */
    int64_t since;              /* virtual time of the stop */
    int64_t expires[TIMERS];    /* disarmed timers; -1: was not armed */

    /* A DMA access that a later one completes, or whose stop is postponed */
    StopEvent part;
    bool has_part, held;

    Doorbell doorbells[DOORBELLS];
    unsigned first, doorbell_count;

    /* Requests that wait until the device is left */
    GArray *eqs;                /* uint64_t */
    GArray *events;             /* uint32_t */
};

static const char *kind_name(unsigned kind)
{
    switch (kind) {
    case KIND_DOORBELL:
        return "doorbell";
    case KIND_SENT:
        return "frame-sent";
    case KIND_RECEIVED:
        return "frame-received";
    case KIND_INTERRUPT:
        return "interrupt";
    default:
        return qrnic_capture_use_name(kind);
    }
}

/* Returns the kinds of a name, or 0. */
static uint32_t kinds_of(const char *name)
{
    const struct { const char *name; uint32_t kinds; } group[] = {
        { "any", ALL_KINDS },
        { "dma", ALL_DMA },
        { "frame", KIND_BIT(KIND_SENT) | KIND_BIT(KIND_RECEIVED) },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(group); i++) {
        if (!strcmp(name, group[i].name)) {
            return group[i].kinds;
        }
    }
    for (unsigned i = 0; i < KINDS; i++) {
        if (!strcmp(name, kind_name(i))) {
            return KIND_BIT(i);
        }
    }
    return 0;
}

bool qrnic_is_stopped(const QrnicDevice *d)
{
    return d->stop && d->stop->stopped;
}

/* Clock and timers */

static QEMUTimer *timer_of(QrnicDevice *d, unsigned i)
{
    QEMUTimer *timers[TIMERS] = { d->timer, d->link_timer, d->wire_timer };

    return timers[i];
}

/*
 * Stops the clock of the device. Otherwise the ACK timeout of each connection
 * would expire in a stop, and the view would consist of retransmissions.
 */
static void clock_stop(QrnicDevice *d)
{
    QrnicStop *s = d->stop;

    s->since = qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
    d->clock_stopped = true;
    d->clock_stopped_ns = s->since - d->clock_lag_ns;
    for (unsigned i = 0; i < TIMERS; i++) {
        QEMUTimer *timer = timer_of(d, i);

        s->expires[i] = -1;
        if (timer && timer_pending(timer)) {
            s->expires[i] = timer_expire_time_ns(timer);
            timer_del(timer);
        }
    }
}

static void clock_continue(QrnicDevice *d)
{
    QrnicStop *s = d->stop;
    int64_t pause = qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL) - s->since;

    d->clock_lag_ns += pause;
    d->clock_stopped = false;
    for (unsigned i = 0; i < TIMERS; i++) {
        if (s->expires[i] >= 0) {
            timer_mod_ns(timer_of(d, i), s->expires[i] + pause);
        }
    }
}

/* Work */

typedef struct Work {
    QrnicDevice *d;
    QrnicRun *run;
    size_t len;
    uint8_t data[];
} Work;

static void coroutine_fn work_entry(void *opaque)
{
    g_autofree Work *w = opaque;

    w->run(w->d, w->data, w->len);
}

void qrnic_stop_run(QrnicDevice *d, QrnicRun *run, const void *data, size_t len)
{
    Work *w = g_malloc(sizeof(*w) + len);
    Coroutine *work = qemu_coroutine_create(work_entry, w);

    *w = (Work) { .d = d, .run = run, .len = len };
    if (len) {
        memcpy(w->data, data, len);
    }
    d->stop->work = work;
    qemu_coroutine_enter(work);
}

/* Shows an event. */
static void event_show(QrnicDevice *d, const StopEvent *e)
{
    QrnicStop *s = d->stop;

    s->event = *e;
    s->count++;
    trace_qrnic_stop(d->name, s->count, kind_name(e->kind), e->at, e->len);
}

/*
 * Stops at an event, if its kind is selected and this work can stop. An
 * interrupt or a frame may have reset or unplugged the device, which then
 * completes its work.
 */
static void event_stop(QrnicDevice *d, const StopEvent *e)
{
    QrnicStop *s = d->stop;

    if (!(d->stop_at & KIND_BIT(e->kind)) || s->ending || !s->work ||
        !qrnic_on_bus(d) ||
        qemu_coroutine_self() != s->work) {
        return;
    }
    s->stopped = true;
    event_show(d, e);
    clock_stop(d);
    qemu_coroutine_yield();
}

/*
 * Continues a stopped device. The work may unplug the device, so the caller has
 * a reference.
 */
static void work_continue(QrnicDevice *d)
{
    QrnicStop *s = d->stop;

    trace_qrnic_continue(d->name, s->count);
    s->stopped = s->go = false;
    clock_continue(d);
    qemu_coroutine_enter(s->work);
}

/* Shows the next doorbell that arrived in the stop. Returns false if none. */
static bool doorbell_next(QrnicDevice *d)
{
    QrnicStop *s = d->stop;

    while (s->doorbell_count) {
        const Doorbell *doorbell = &s->doorbells[s->first];
        StopEvent e = {
            .kind = KIND_DOORBELL, .at = doorbell->offset, .write = true,
            .len = sizeof(uint64_t), .data_len = sizeof(uint64_t),
        };

        stq_le_p(e.data, doorbell->value);
        s->first = (s->first + 1) % DOORBELLS;
        s->doorbell_count--;
        if (d->stop_at & KIND_BIT(KIND_DOORBELL)) {
            event_show(d, &e);
            return true;
        }
    }
    return false;
}

void qrnic_stop_resume(QrnicDevice *d)
{
    QrnicStop *s = d->stop;

    if (!qrnic_is_stopped(d) || !s->go) {
        return;
    }
    object_ref(OBJECT(d));
    if (doorbell_next(d)) {
        s->go = false;
    } else {
        work_continue(d);
    }
    object_unref(OBJECT(d));
}

void qrnic_stop_end(QrnicDevice *d)
{
    if (qrnic_is_stopped(d)) {
        object_ref(OBJECT(d));
        d->stop->ending = true;
        d->stop->doorbell_count = 0;
        work_continue(d);
        object_unref(OBJECT(d));
    }
}

void qrnic_stop_leave(QrnicDevice *d)
{
    if (d->stop) {
        d->stop->work = NULL;
        d->stop->ending = d->stop->has_part = d->stop->held = false;
    }
}

/* Requests that wait until the device is left */

void qrnic_stop_defer_eq(QrnicDevice *d, uint64_t value)
{
    GArray *eqs = d->stop->eqs;
    QrnicEqDoorbell new, old;
    uint8_t raw[QRNIC_DOORBELL_BYTES];

    stq_le_p(raw, value);
    if (!qrnic_eq_doorbell_unpack(&new, raw)) {
        return;
    }
    for (unsigned i = 0; i < eqs->len; i++) {
        stq_le_p(raw, g_array_index(eqs, uint64_t, i));
        qrnic_eq_doorbell_unpack(&old, raw);
        if (old.number == new.number) {
            /* The EQ stays armed, because the later doorbell may not arm it. */
            new.arm |= old.arm;
            qrnic_eq_doorbell_pack(raw, &new);
            g_array_index(eqs, uint64_t, i) = ldq_le_p(raw);
            return;
        }
    }
    /* At most 256 entries, because the number of an EQ has 8 bits */
    g_array_append_val(eqs, value);
}

bool qrnic_stop_take_eq(QrnicDevice *d, uint64_t *value)
{
    if (!d->stop || !d->stop->eqs->len) {
        return false;
    }
    *value = g_array_index(d->stop->eqs, uint64_t, 0);
    g_array_remove_index(d->stop->eqs, 0);
    return true;
}

void qrnic_stop_defer_event(QrnicDevice *d, uint32_t value)
{
    GArray *events = d->stop->events;

    for (unsigned i = 0; i < events->len; i++) {
        uint32_t *other = &g_array_index(events, uint32_t, i);

        if (!((*other ^ value) & QRNIC_REG_CMD_EVENT_SLOT_MASK)) {
            *other = value;
            return;
        }
    }
    g_array_append_val(events, value);
}

bool qrnic_stop_take_event(QrnicDevice *d, uint32_t *value)
{
    if (!d->stop || !d->stop->events->len) {
        return false;
    }
    *value = g_array_index(d->stop->events, uint32_t, 0);
    g_array_remove_index(d->stop->events, 0);
    return true;
}

void qrnic_stop_forget(QrnicDevice *d)
{
    if (d->stop) {
        d->stop->doorbell_count = 0;
        g_array_set_size(d->stop->eqs, 0);
        g_array_set_size(d->stop->events, 0);
    }
}

/* Events */

static void data_copy(StopEvent *e, const void *data, size_t len)
{
    size_t n = MIN(len, sizeof(e->data) - e->data_len);

    memcpy(e->data + e->data_len, data, n);
    e->data_len += n;
}

void qrnic_stop_doorbell(QrnicDevice *d, uint64_t offset, uint64_t value)
{
    QrnicStop *s = d->stop;
    StopEvent e = {
        .kind = KIND_DOORBELL, .at = offset, .write = true,
        .len = sizeof(value), .data_len = sizeof(value),
    };

    if (!s->stopped) {
        stq_le_p(e.data, value);
        event_stop(d, &e);
    } else if (s->doorbell_count < DOORBELLS) {
        s->doorbells[(s->first + s->doorbell_count++) % DOORBELLS] =
            (Doorbell) { offset, value };
    }
}

/* Returns true if a second write completes this one; ring.c of the engine. */
static bool is_body(const StopEvent *e)
{
    return e->write && !e->failed &&
           ((e->kind == QRNIC_USE_CQE && e->len == QRNIC_CQE_CONTROL_OFFSET) ||
            (e->kind == QRNIC_USE_EQE && e->len == QRNIC_EQE_CONTROL_OFFSET));
}

void qrnic_stop_dma(QrnicDevice *d, uint64_t addr, const void *buf, size_t len,
                    bool write, bool ok)
{
    QrnicStop *s = d->stop;
    const QrnicActivity *a = qrnic_engine_activity(d->engine);
    StopEvent *part = &s->part, e;

    if (s->has_part && part->kind == a->use && part->write && write &&
        part->at + part->len == addr) {
        part->len += len;
        part->failed |= !ok;
    } else {
        *part = (StopEvent) {
            .kind = a->use, .activity = *a, .at = addr, .len = len,
            .write = write, .failed = !ok,
        };
    }
    if (ok) {
        data_copy(part, buf, len);
    }
    s->has_part = s->held || is_body(part);
    if (!s->has_part) {
        e = *part;
        event_stop(d, &e);
    }
}

void qrnic_stop_hold(QrnicDevice *d, bool hold)
{
    QrnicStop *s = d->stop;
    StopEvent e;

    if (!s) {
        return;
    }
    s->held = hold;
    if (!hold && s->has_part) {
        s->has_part = false;
        e = s->part;
        event_stop(d, &e);
    }
}

void qrnic_stop_frame(QrnicDevice *d, const uint8_t *frame, size_t len,
                      bool sent)
{
    StopEvent e = {
        .kind = sent ? KIND_SENT : KIND_RECEIVED, .len = len,
    };

    if (sent) {
        e.activity = *qrnic_engine_activity(d->engine);
    }
    data_copy(&e, frame, len);
    event_stop(d, &e);
}

void qrnic_stop_interrupt(QrnicDevice *d, unsigned vector)
{
    const StopEvent e = {
        .kind = KIND_INTERRUPT, .at = vector, .write = true,
        .activity = *qrnic_engine_activity(d->engine),
    };

    event_stop(d, &e);
}

/* Properties */

bool qrnic_stop_set(QrnicDevice *d, const char *kinds, Error **errp)
{
    g_auto(GStrv) names = g_strsplit(kinds, " ", -1);
    bool none = !strcmp(kinds, "none");
    uint32_t all = 0;

    for (char **name = names; *name && !none; name++) {
        uint32_t bits = kinds_of(*name);

        if (!bits) {
            error_setg(errp, "qrnic: property 'stop-at' has no kind '%s': "
                       "give 'none', 'any', or kinds with spaces between them; "
                       "see the chapter Captures of the manual", *name);
            return false;
        }
        all |= bits;
    }
    if (!all && !none) {
        error_setg(errp, "qrnic: property 'stop-at' is empty: give 'none' to "
                   "stop at no event");
        return false;
    }
    if (!d->stop) {
        d->stop = g_new0(QrnicStop, 1);
        d->stop->eqs = g_array_new(false, false, sizeof(uint64_t));
        d->stop->events = g_array_new(false, false, sizeof(uint32_t));
    }
    d->stop_at = all;
    if (none) {
        d->stop->go = d->stop->stopped;
    }
    return true;
}

char *qrnic_stop_get(const QrnicDevice *d)
{
    GString *text = g_string_new(NULL);

    if (d->stop_at == ALL_KINDS) {
        g_string_append(text, "any");
    }
    for (unsigned i = 0; i < KINDS && d->stop_at != ALL_KINDS; i++) {
        if (d->stop_at & KIND_BIT(i)) {
            g_string_append_printf(text, "%s%s", text->len ? " " : "",
                                   kind_name(i));
        }
    }
    if (!text->len) {
        g_string_append(text, "none");
    }
    return g_string_free(text, false);
}

/* A member of the property stopped, which is absent if it has no meaning */
typedef struct Member {
    const char *name;
    bool present;
    uint64_t value;
} Member;

static bool visit_members(Visitor *v, const Member *member, unsigned count,
                          Error **errp)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = member[i].value;

        if (member[i].present &&
            !visit_type_uint64(v, member[i].name, &value, errp)) {
            return false;
        }
    }
    return true;
}

static bool visit_event(const QrnicDevice *d, Visitor *v, Error **errp)
{
    const QrnicStop *s = d->stop;
    const StopEvent *e = &s->event;
    const QrnicActivity *a = &e->activity;
    bool dma = ALL_DMA & KIND_BIT(e->kind);
    bool has_object = dma && e->kind != QRNIC_USE_DATA;
    const Member member[] = {
        { "number", true, s->count },
        { "time", true, d->clock_stopped_ns },
        { "qp", a->qpn, a->qpn },
        { "type", a->qpn, a->qp_type },
        { "wqe", a->qpn && a->has_wqe, a->wqe },
        { "psn", a->qpn && a->has_psn, a->psn },
        { "object", has_object, a->object },
        { "index", has_object, a->index },
        { "address", dma, e->at },
        { "offset", e->kind == KIND_DOORBELL, e->at },
        { "vector", e->kind == KIND_INTERRUPT, e->at },
        { "length", e->len, e->len },
    };
    char *kind = (char *)kind_name(e->kind);
    g_autoptr(GString) hex = g_string_new(NULL);
    bool write = e->write, failed = e->failed;

    for (size_t i = 0; i < e->data_len; i++) {
        g_string_append_printf(hex, "%02x", e->data[i]);
    }
    return visit_type_str(v, "kind", &kind, errp) &&
           visit_members(v, member, ARRAY_SIZE(member), errp) &&
           (!dma || visit_type_bool(v, "write", &write, errp)) &&
           (!dma || visit_type_bool(v, "failed", &failed, errp)) &&
           (!hex->len || visit_type_str(v, "data", &hex->str, errp));
}

void qrnic_stop_visit(const QrnicDevice *d, Visitor *v, const char *name,
                      Error **errp)
{
    if (!visit_start_struct(v, name, NULL, 0, errp)) {
        return;
    }
    if (qrnic_is_stopped(d)) {
        visit_event(d, v, errp);
    }
    visit_end_struct(v, NULL);
}

bool qrnic_stop_continue(QrnicDevice *d, Error **errp)
{
    if (!qrnic_is_stopped(d)) {
        error_setg(errp, "qrnic: the device is not stopped");
        return false;
    }
    d->stop->go = true;
    return true;
}

void qrnic_stop_cleanup(QrnicDevice *d)
{
    if (d->stop) {
        g_array_free(d->stop->eqs, true);
        g_array_free(d->stop->events, true);
        g_free(d->stop);
        d->stop = NULL;
    }
}
