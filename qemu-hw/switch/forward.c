/*
 * qrnic switch: forwards frames between the cables of its ports
 *
 * The cables call port_work() and port_link(). Each run (forward_run()) fetches
 * and forwards up to BUDGET frames of each port. The queue of a port is the
 * ring of its cable. A frame for a full port waits, and with it all later
 * frames of its sender, but only for the time "patience". After that the frames
 * for the full port are dropped. Flooded frames never wait.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "crypto/random.h"
#include "qom/object_interfaces.h"
#include "trace.h"
#include "cable/cable.h"
#include "cable/capture.h"
#include "switch/forward.h"
#include "switch/rules.h"
#include "switch/stations.h"

/* Frames of a port in a run */
#define BUDGET 64
/* Time during which no port waits for a port that exceeded the patience */
#define SLOW_MS 1000

/* Limits of known addresses: of all ports, and of one port at least */
#define STATIONS 4096
#define STATIONS_PORT 64

#define ADDRESS_BYTES 6

/* Counters of a port, in frames unless the name has another unit */
typedef struct Counters {
    /* received from and sent to this port */
    uint64_t in, in_bytes, out, out_bytes;
    /* received from this port */
    uint64_t flooded;           /* and sent to all other ports */
    uint64_t own;               /* for this hop or this port, so dropped */
    uint64_t too_long;          /* longer than supported, so dropped */
    uint64_t contested;         /* source address belongs to another port */
    uint64_t waits;             /* had to wait for room at another port */
    /* for this port, dropped because its queue was full */
    uint64_t full;
    uint64_t links;             /* number of connections */
} Counters;

typedef struct Port {
    QrnicSwitch *owner;
    unsigned number;
    QrnicCable *cable;
    Counters counters;
    bool up;
    bool pending;               /* may have frames */
    bool touched;               /* its peer may have requested an event */
    QrnicPatience patience;     /* in ms; full: no room at the last check */
    struct Port *awaits;        /* full port that the frame waits for */
    size_t len;                 /* size of the frame; 0: no frame */
    uint8_t frame[QRNIC_CABLE_FRAME];
} Port;

struct QrnicSwitch {
    Port *ports;
    unsigned count, first;      /* port that is served first */
    QrnicStations *stations;
    QrnicCapture capture;
    int64_t patience_ms;
    int64_t now_ms;             /* time of this run */
    QEMUBH *bh;
    QEMUTimer *timer;           /* end of a wait */
};

/* Forwarding of a frame */

/*
 * Returns true if a port has no room. The ring is read again, because the event
 * with which its cable reports room may still be behind that of the sender.
 */
static bool is_full(Port *p)
{
    p->patience.full = p->patience.full && !qrnic_cable_room(p->cable);
    return p->patience.full;
}

static void deliver(QrnicSwitch *s, Port *to, const uint8_t *frame, size_t len)
{
    if (!to->up) {
        return;
    }
    if (is_full(to)) {
        to->counters.full++;
        return;
    }
    to->counters.out++;
    to->counters.out_bytes += len;
    to->touched = true;
    to->patience.full = !qrnic_cable_send(to->cable, frame, len);
    to->patience.since = s->now_ms;
}

static bool worth_waiting(const QrnicSwitch *s, const Port *to)
{
    return qrnic_patience_waits(&to->patience, s->now_ms, s->patience_ms);
}

static void flood(QrnicSwitch *s, Port *from)
{
    from->counters.flooded++;
    for (unsigned i = 0; i < s->count; i++) {
        if (&s->ports[i] != from) {
            deliver(s, &s->ports[i], from->frame, from->len);
        }
    }
}

/* Forwards the frame of a port. Returns false if the frame must wait. */
static bool forward(QrnicSwitch *s, Port *from)
{
    int number = from->frame[0] & 1 ? -1 :
                 qrnic_stations_find(s->stations, from->frame, s->now_ms);
    Port *to = number < 0 ? NULL : &s->ports[number];

    if (qrnic_address_is_one_hop(from->frame)) {
        from->counters.own++;
    } else if (!to) {
        flood(s, from);
    } else if (to == from) {
        from->counters.own++;
    } else if (is_full(to) && worth_waiting(s, to)) {
        from->counters.waits += from->awaits != to;
        from->awaits = to;
        return false;
    } else {
        if (to->patience.full &&
            qrnic_patience_exceeded(&to->patience, s->now_ms, SLOW_MS)) {
            trace_qrnic_switch_slow(to->number + 1);
        }
        deliver(s, to, from->frame, from->len);
    }
    from->awaits = NULL;
    from->len = 0;
    return true;
}

static void learn(QrnicSwitch *s, Port *from)
{
    const uint8_t *address = from->frame + ADDRESS_BYTES;

    switch (qrnic_stations_learn(s->stations, address, from->number,
                                 s->now_ms)) {
    case QRNIC_LEARNED_NEW:
    case QRNIC_LEARNED_MOVED:
        trace_qrnic_switch_station(from->number + 1, address[0], address[1],
                                   address[2], address[3], address[4],
                                   address[5]);
        break;
    case QRNIC_LEARNED_CONTESTED:
        from->counters.contested++;
        break;
    case QRNIC_LEARNED_KNOWN:
    case QRNIC_LEARNED_NOTHING:
        break;
    }
}

/*
 * Copies the next frame of a port, before any byte of it is checked, because
 * the peer can change it. Returns false if there is none.
 */
static bool fetch(QrnicSwitch *s, Port *from)
{
    size_t len;
    const uint8_t *shared = qrnic_cable_peek(from->cable, &len);

    if (!shared) {
        return false;
    }
    from->touched = true;
    from->counters.in++;
    from->counters.in_bytes += len;
    if (len > sizeof(from->frame)) {
        qrnic_cable_take(from->cable, from->frame, 0);
        from->counters.too_long++;
        return true;
    }
    memcpy(from->frame, shared, len);
    from->len = len;
    qrnic_cable_take(from->cable, from->frame, len);
    if (s->capture.fd >= 0) {
        s->capture.interface = from->number;
        qrnic_capture_frame(&s->capture, from->frame, len, false);
    }
    learn(s, from);
    return true;
}

/* Runs */

/* Forwards frames of a port. Returns true if at least one was forwarded. */
static bool run_port(QrnicSwitch *s, Port *from)
{
    for (unsigned i = 0; i < BUDGET; i++) {
        if (!from->len && !fetch(s, from)) {
            from->pending = qrnic_cable_await(from->cable);
            return i > 0;
        }
        if (from->len && !forward(s, from)) {
            return i > 0;
        }
    }
    return true;
}

static bool can_run(const QrnicSwitch *s, const Port *p)
{
    return p->pending && !(p->awaits && worth_waiting(s, p->awaits));
}

/*
 * Plans the next run: at once if a budget was exhausted, else when the first
 * wait ends.
 */
static void plan(QrnicSwitch *s)
{
    int64_t end = INT64_MAX;
    bool more = false;

    for (unsigned i = 0; i < s->count; i++) {
        Port *p = &s->ports[i];

        if (can_run(s, p)) {
            more = true;
        } else if (p->pending) {
            end = MIN(end, p->awaits->patience.since + s->patience_ms);
        }
    }
    if (more) {
        qemu_bh_schedule(s->bh);
    }
    if (end == INT64_MAX) {
        timer_del(s->timer);
    } else {
        timer_mod(s->timer, end);
    }
}

static void forward_run(void *opaque)
{
    QrnicSwitch *s = opaque;
    unsigned first = s->first;
    bool any = false;

    s->now_ms = qemu_clock_get_ms(QEMU_CLOCK_REALTIME);
    for (unsigned i = 0; i < s->count; i++) {
        Port *p = &s->ports[(first + i) % s->count];

        /*
         * The port that was served first is served last in the next run, so
         * that no port has an advantage.
         */
        if (can_run(s, p) && run_port(s, p) && !any) {
            s->first = (p->number + 1) % s->count;
            any = true;
        }
    }
    for (unsigned i = 0; i < s->count; i++) {
        if (s->ports[i].touched) {
            s->ports[i].touched = false;
            qrnic_cable_settle(s->ports[i].cable);
        }
    }
    plan(s);
}

/* Callbacks of the cables */

static void port_work(void *opaque)
{
    Port *p = opaque;

    is_full(p);
    p->pending = true;
    forward_run(p->owner);
}

static void port_link(void *opaque)
{
    Port *p = opaque;

    p->up = qrnic_cable_link(p->cable);
    p->counters.links += p->up;
    p->patience.full = false;
    p->pending = true;
    if (!p->up) {
        qrnic_stations_forget(p->owner->stations, p->number);
    }
    qemu_bh_schedule(p->owner->bh);
}

/* Life of the switch */

static bool port_new(QrnicSwitch *s, const QrnicSwitchOptions *options,
                     unsigned number, Error **errp)
{
    static const QrnicCableClient client = {
        .link = port_link,
        .work = port_work,
    };
    g_autofree char *name = g_strdup_printf("port%u", number + 1);
    Port *p = &s->ports[number];
    Object *cable = object_new(TYPE_QRNIC_CABLE);

    p->owner = s;
    p->number = number;
    object_property_add_child(object_get_objects_root(), name, cable);
    object_unref(cable);
    if (!object_property_set_str(cable, "path", options->paths[number],
                                 errp) ||
        (options->slots && !object_property_parse(cable, "slots",
                                                  options->slots, errp)) ||
        !user_creatable_complete(USER_CREATABLE(cable), errp) ||
        !qrnic_cable_attach(QRNIC_CABLE(cable), &client, p, name, errp)) {
        object_unparent(cable);
        return false;
    }
    p->cable = QRNIC_CABLE(cable);
    return true;
}

static bool capture_new(QrnicSwitch *s, const QrnicSwitchOptions *options,
                        Error **errp)
{
    for (unsigned i = 0; i < s->count; i++) {
        const char *path = options->paths[i];

        if (!(i ? qrnic_capture_interface(&s->capture, path,
                                          QRNIC_CAPTURE_ETHERNET, errp) :
              qrnic_capture_open(&s->capture, options->capture, path, errp))) {
            return false;
        }
    }
    return true;
}

QrnicSwitch *qrnic_switch_new(const QrnicSwitchOptions *options, Error **errp)
{
    QrnicSwitch *s = g_new0(QrnicSwitch, 1);
    uint64_t seed;

    qcrypto_random_bytes(&seed, sizeof(seed), &error_abort);
    s->count = options->ports;
    s->ports = g_new0(Port, s->count);
    s->capture.fd = -1;
    s->patience_ms = options->patience_ms;
    s->stations = qrnic_stations_new(s->count,
                                     MAX(STATIONS / s->count, STATIONS_PORT),
                                     options->age_ms, seed);
    s->bh = qemu_bh_new(forward_run, s);
    s->timer = timer_new_ms(QEMU_CLOCK_REALTIME, forward_run, s);
    if (options->capture && !capture_new(s, options, errp)) {
        qrnic_switch_free(s);
        return NULL;
    }
    for (unsigned i = 0; i < s->count; i++) {
        if (!port_new(s, options, i, errp)) {
            qrnic_switch_free(s);
            return NULL;
        }
    }
    return s;
}

void qrnic_switch_print(const QrnicSwitch *s, FILE *to)
{
    for (unsigned i = 0; i < s->count; i++) {
        const Port *p = &s->ports[i];
        const Counters *c = &p->counters;
        g_autofree char *path = object_property_get_str(OBJECT(p->cable),
                                                        "path", &error_abort);

        fprintf(to, "port=%u link=%s in=%" PRIu64 " in-bytes=%" PRIu64
                " out=%" PRIu64 " out-bytes=%" PRIu64 " full=%" PRIu64
                " flooded=%" PRIu64 " own=%" PRIu64 " long=%" PRIu64
                " contested=%" PRIu64 " waits=%" PRIu64 " links=%" PRIu64
                " addresses=%u path=%s\n", i + 1, p->up ? "up" : "down", c->in,
                c->in_bytes, c->out, c->out_bytes, c->full, c->flooded, c->own,
                c->too_long, c->contested, c->waits, c->links,
                qrnic_stations_count(s->stations, i), path);
    }
}

void qrnic_switch_free(QrnicSwitch *s)
{
    for (unsigned i = 0; i < s->count; i++) {
        if (s->ports[i].cable) {
            qrnic_cable_detach(s->ports[i].cable);
            object_unparent(OBJECT(s->ports[i].cable));
        }
    }
    qrnic_capture_close(&s->capture);
    qemu_bh_delete(s->bh);
    timer_free(s->timer);
    qrnic_stations_free(s->stations);
    g_free(s->ports);
    g_free(s);
}
