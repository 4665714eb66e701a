/*
 * qrnic embedded switch: the order in which senders are served, and their rates
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * qrnic_eswitch_send() queues frames at their senders. qrnic_eswitch_run()
 * serves the functions in a circle, and the uplink before each of them. The
 * method is deficit round robin. In each round a sender may cause work for one
 * quantum, and a larger frame is paid in later rounds. The quanta are in
 * proportion to the minimum rates. The work of a frame is its bytes and
 * OVERHEAD for each receiver, because a sender of broadcasts must pay for the
 * copies. A sender waits if its rate is exhausted, or if the receiver of its
 * first frame has no room. Manual, chapter "Virtual functions", section "Shares
 * and limits".
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "trace.h"
#include "eswitch/eswitch_private.h"

/* Work of a run, of one round of a function, and of a frame without bytes */
#define RUN_BUDGET (256 << 10)
#define QUANTUM (16 << 10)
#define QUANTUM_MIN (1 << 10)
#define OVERHEAD 256

/*
 * A sender must stop when its queue has this length, and may continue when the
 * queue has half of it. Frames beyond twice the length are dropped. The queue
 * of the uplink is longer, because it has the frames of all functions.
 */
#define TX_FRAMES 64
#define TX_BYTES (128u << 10)
#define UPLINK_FACTOR 4

/* Bytes that a sender may send at once after a pause */
#define BURST (32u << 10)
/* ns for a bit at 1 Mbit/s */
#define NS_BIT 1000u

static unsigned tx_factor(const QrnicEswitchPort *p)
{
    return qrnic_eswitch_is_uplink(p) ? UPLINK_FACTOR : 1;
}

/* Senders */

bool qrnic_eswitch_send(QrnicEswitch *sw, unsigned port, const uint8_t *frame,
                        size_t len)
{
    QrnicEswitchPort *p = &sw->port[port];
    unsigned factor = tx_factor(p);

    if (!qrnic_eswitch_is_up(sw, p)) {
        qrnic_eswitch_drop(sw, p, QRNIC_ESWITCH_TX_DROP_LINK, len);
    } else if (len < QRNIC_ESWITCH_FRAME_MIN) {
        qrnic_eswitch_drop(sw, p, QRNIC_ESWITCH_TX_DROP_RUNT, len);
    } else if (len > QRNIC_ESWITCH_FRAME_MAX) {
        qrnic_eswitch_drop(sw, p, QRNIC_ESWITCH_TX_DROP_GIANT, len);
    } else if (p->tx.count >= 2 * factor * TX_FRAMES ||
               p->tx.bytes >= 2 * factor * TX_BYTES) {
        qrnic_eswitch_drop(sw, p, QRNIC_ESWITCH_TX_DROP_FULL, len);
    } else {
        qrnic_eswitch_queue_push(&p->tx, qrnic_eswitch_frame_new(frame, len));
        qrnic_eswitch_kick(sw);
    }
    if (p->tx.count >= factor * TX_FRAMES || p->tx.bytes >= factor * TX_BYTES) {
        p->stopped = true;
    }
    return !p->stopped;
}

/* Notifies a stopped sender when its queue has room. */
static void resume_sender(QrnicEswitch *sw, QrnicEswitchPort *p)
{
    unsigned factor = tx_factor(p);

    if (p->stopped && p->tx.count <= factor * TX_FRAMES / 2 &&
        p->tx.bytes <= factor * TX_BYTES / 2) {
        p->stopped = false;
        sw->ops.sender_ready(sw->opaque, p->number);
    }
}

/* Ends the wait of a sender for room. */
static void stop_waiting(QrnicEswitchPort *p)
{
    if (p->waits) {
        QTAILQ_REMOVE(&p->waits->waiting, p, next_waiting);
        p->waits = NULL;
    }
}

void qrnic_eswitch_sender_reset(QrnicEswitchPort *p)
{
    stop_waiting(p);
    p->stopped = p->resumes = false;
    p->deficit = 0;
    p->wait_until = QRNIC_ESWITCH_NEVER;
}

/* Rates */

/*
 * Returns the time at which the rate permits the next frame. The bucket has
 * BURST bytes, and is full at p->full_at.
 */
static int64_t rate_permits_at(const QrnicEswitchPort *p)
{
    uint32_t mbps = p->config.max_mbps;

    return mbps ? p->full_at - (int64_t)BURST * 8 * NS_BIT / mbps : INT64_MIN;
}

static void rate_pay(QrnicEswitchPort *p, int64_t now, unsigned len)
{
    uint32_t mbps = p->config.max_mbps;
    uint64_t cost;

    if (!mbps) {
        p->full_at = now;
        return;
    }
    if (p->full_at < now) {
        p->full_at = now;
        p->rest = 0;
    }
    cost = (uint64_t)len * 8 * NS_BIT + p->rest;
    p->full_at += cost / mbps;
    p->rest = cost % mbps;
}

/* Forwarding of the first frame of a sender */

/* Returns the number of receivers. */
static unsigned receivers(const QrnicEswitchRoute *r)
{
    return ctpop64(r->functions) + r->uplink;
}

/*
 * Returns the receiver for whose room the frame waits, or NULL. A frame with
 * several receivers waits for the uplink only, because one slow function would
 * delay all other receivers.
 */
static QrnicEswitchPort *scarce_receiver(QrnicEswitch *sw,
                                         const QrnicEswitchRoute *r)
{
    QrnicEswitchPort *to = NULL;

    if (r->uplink) {
        to = &sw->port[QRNIC_ESWITCH_UPLINK];
    } else if (receivers(r) == 1) {
        to = qrnic_eswitch_first(sw, r->functions);
    }
    return to && qrnic_eswitch_is_up(sw, to) ? to : NULL;
}

/*
 * Returns true if the frame may wait for a receiver without room, and sets the
 * end of the wait. The wait for the uplink is limited, too, because frames to
 * other functions wait behind the frame.
 */
static bool is_patient(QrnicEswitch *sw, QrnicEswitchPort *from,
                       const QrnicEswitchPort *to, QrnicPatience *patience)
{
    bool uplink = qrnic_eswitch_is_uplink(to);

    if (qrnic_patience_waits(patience, sw->waited_ns,
                             uplink ? QRNIC_ESWITCH_UPLINK_PATIENCE_NS :
                                      QRNIC_ESWITCH_PATIENCE_NS)) {
        from->wait_until = sw->run_ns + QRNIC_ESWITCH_STEP_NS;
        return true;
    }
    if (qrnic_patience_exceeded(patience, sw->waited_ns,
                                uplink ? QRNIC_ESWITCH_UPLINK_SLOW_NS :
                                         QRNIC_ESWITCH_SLOW_NS)) {
        trace_qrnic_eswitch_slow(sw->name, to->number);
    }
    return false;
}

/*
 * Returns true if another function has received unicast frames of the wire
 * during the last second.
 */
static bool wire_is_shared(const QrnicEswitch *sw, const QrnicEswitchInbox *of)
{
    for (unsigned i = QRNIC_ESWITCH_PF; i < sw->count; i++) {
        const QrnicEswitchPort *p = &sw->port[i];

        if (of != &p->rx[QRNIC_ESWITCH_OF_WIRE] && p->wire_at &&
            sw->waited_ns < p->wire_at + QRNIC_ESWITCH_SLOW_NS) {
            return true;
        }
    }
    return false;
}

/*
 * Charges the wait of the wire to the function for which its first frame
 * waits. Otherwise a function that frees a part of its queue within each
 * patience could delay the frames of all others again and again.
 */
static void charge_wait(QrnicEswitch *sw, QrnicEswitchPort *from)
{
    QrnicEswitchInbox *inbox = from->waits;
    int64_t waited = sw->waited_ns - from->charged_at;

    from->charged_at = sw->waited_ns;
    if (!qrnic_eswitch_is_uplink(from) || !inbox ||
        !wire_is_shared(sw, inbox)) {
        return;
    }
    if (sw->waited_ns >= inbox->window_start + QRNIC_ESWITCH_SLOW_NS) {
        inbox->window_start = sw->waited_ns - waited;
        inbox->wire_waited = 0;
    }
    inbox->wire_waited += waited;
    if (inbox->wire_waited >= QRNIC_ESWITCH_PATIENCE_NS) {
        inbox->wire_waited = 0;
        qrnic_patience_exceeded(&inbox->patience, sw->waited_ns,
                                QRNIC_ESWITCH_SLOW_NS);
    }
}

/*
 * Returns true if the frame must wait for room: the receiver has none, or other
 * senders have waited longer for the room that it has.
 */
static bool waits_for_room(QrnicEswitch *sw, QrnicEswitchPort *from,
                           const QrnicEswitchRoute *r, QrnicEswitchClass class)
{
    QrnicEswitchPort *to = scarce_receiver(sw, r);
    QrnicEswitchInbox *inbox = to ? &to->rx[class] : NULL;

    charge_wait(sw, from);
    if (from->waits != inbox) {
        stop_waiting(from);
    }
    if (!to) {
        return false;
    }
    if (qrnic_eswitch_is_full(sw, to, class)) {
        if (!is_patient(sw, from, to, &inbox->patience)) {
            stop_waiting(from);
            return false;
        }
    } else if (QTAILQ_EMPTY(&inbox->waiting) ||
               QTAILQ_FIRST(&inbox->waiting) == from) {
        return false;
    }
    if (!from->waits) {
        from->waits = inbox;
        QTAILQ_INSERT_TAIL(&inbox->waiting, from, next_waiting);
    }
    return true;
}

/* Inserts the tag of the VLAN of the sender. */
static void insert_tag(const QrnicEswitchPort *from, QrnicEswitchFrame *f)
{
    uint16_t tci = from->config.priority << 13 | from->config.vlan;

    f->data -= QRNIC_ESWITCH_TAG;
    f->len += QRNIC_ESWITCH_TAG;
    memmove(f->data, f->data + QRNIC_ESWITCH_TAG, QRNIC_ESWITCH_TYPE);
    stw_be_p(f->data + QRNIC_ESWITCH_TYPE, QRNIC_ESWITCH_TYPE_VLAN);
    stw_be_p(f->data + QRNIC_ESWITCH_TCI, tci);
}

/* Counts a forwarded frame. */
static void count_sent(QrnicEswitchPort *from, const QrnicEswitchFrame *f)
{
    from->count[QRNIC_ESWITCH_TX_FRAMES]++;
    from->count[QRNIC_ESWITCH_TX_BYTES] += f->len;
    if (f->data[0] & 1) {
        from->count[qrnic_eswitch_key(f->data) == QRNIC_ESWITCH_BROADCAST ?
                    QRNIC_ESWITCH_TX_BROADCAST :
                    QRNIC_ESWITCH_TX_MULTICAST]++;
    }
}

/*
 * Drops a frame without receivers, or forwards it to its receivers. The
 * operation deliver() may unplug a receiver; then the frame is dropped there.
 */
static void forward(QrnicEswitch *sw, QrnicEswitchPort *from,
                    QrnicEswitchFrame *f, const QrnicEswitchRoute *r,
                    QrnicEswitchClass class)
{
    uint64_t left = r->functions;

    if (!receivers(r)) {
        qrnic_eswitch_drop(sw, from, r->drop, f->len);
        if (r->owner) {
            qrnic_eswitch_drop(sw, r->owner, QRNIC_ESWITCH_RX_DROP_VLAN,
                               f->len);
        }
        return;
    }
    trace_qrnic_eswitch_forward(sw->name, from->number, r->functions,
                                r->uplink, f->len);
    count_sent(from, f);
    rate_pay(from, sw->run_ns, f->len);
    if (from->config.vlan) {
        insert_tag(from, f);
    }
    if (qrnic_eswitch_is_uplink(from) && !(f->data[0] & 1)) {
        qrnic_eswitch_first(sw, left)->wire_at = sw->waited_ns + 1;
    }
    for (; left; left &= left - 1) {
        qrnic_eswitch_forward(sw, qrnic_eswitch_first(sw, left), f, class);
    }
    if (r->uplink) {
        qrnic_eswitch_forward(sw, &sw->port[QRNIC_ESWITCH_UPLINK], f, class);
    }
}

static QrnicEswitchClass class_of(const QrnicEswitchPort *from)
{
    return qrnic_eswitch_is_uplink(from) ? QRNIC_ESWITCH_OF_WIRE :
                                           QRNIC_ESWITCH_OF_FUNCTIONS;
}

/*
 * Routes the first frame of a sender. Returns true if the frame must wait for
 * the rate of the sender, or for room.
 */
static bool first_waits(QrnicEswitch *sw, QrnicEswitchPort *from,
                        QrnicEswitchRoute *r)
{
    int64_t permitted = rate_permits_at(from);

    *r = qrnic_eswitch_route(sw, from, qrnic_eswitch_queue_first(&from->tx));
    if (receivers(r) && permitted > sw->run_ns) {
        stop_waiting(from);
        from->wait_until = permitted;
        return true;
    }
    return waits_for_room(sw, from, r, class_of(from));
}

/* Forwards or drops the first frame of a sender. Returns the work. */
static int64_t forward_first(QrnicEswitch *sw, QrnicEswitchPort *from,
                             const QrnicEswitchRoute *r)
{
    QrnicEswitchFrame *f = qrnic_eswitch_queue_pop(&from->tx);
    int64_t work = MAX(receivers(r), 1) * (f->len + OVERHEAD);

    forward(sw, from, f, r, class_of(from));
    qrnic_eswitch_frame_put(f);
    return work;
}

/* Runs */

void qrnic_eswitch_shares_changed(QrnicEswitch *sw)
{
    sw->top_mbps = 0;
    for (unsigned i = QRNIC_ESWITCH_PF; i < sw->count; i++) {
        const QrnicEswitchPort *p = &sw->port[i];

        if (p->plugged) {
            sw->top_mbps = MAX(sw->top_mbps, p->config.min_mbps);
        }
    }
}

/*
 * Returns the work of a sender in one round. The functions share in proportion
 * to their minimum rates, because the rate of the wire is not known.
 */
static int64_t quantum(const QrnicEswitch *sw, const QrnicEswitchPort *p)
{
    if (!sw->top_mbps || qrnic_eswitch_is_uplink(p)) {
        return QUANTUM;
    }
    return MAX(QUANTUM_MIN,
               (int64_t)QUANTUM * p->config.min_mbps / sw->top_mbps);
}

/*
 * Delivers queued frames of a receiver, up to a quantum. Returns true if there
 * were any.
 */
static bool serve_receiver(QrnicEswitch *sw, QrnicEswitchPort *p,
                           int64_t *budget)
{
    int64_t left = QUANTUM;
    bool any = false;

    while (left > 0 && *budget > 0) {
        size_t len = qrnic_eswitch_deliver(sw, p);

        if (!len) {
            break;
        }
        any = true;
        left -= len + OVERHEAD;
        *budget -= len + OVERHEAD;
    }
    return any;
}

/*
 * Forwards frames of a sender, up to a quantum. The sender gets the quantum
 * when its first frame need not wait. Otherwise a sender could pay for a large
 * frame while all others wait for the same room. A sender that must wait later
 * keeps the rest of its quantum. Returns false if nothing happened.
 */
static bool serve_sender(QrnicEswitch *sw, QrnicEswitchPort *p, int64_t *budget)
{
    int64_t share = quantum(sw, p), work;
    bool granted = p->resumes, any = false;
    QrnicEswitchRoute r;

    p->wait_until = QRNIC_ESWITCH_NEVER;
    while (p->tx.count && *budget > 0 && !first_waits(sw, p, &r)) {
        any = true;
        if (!granted) {
            granted = true;
            p->deficit = MIN(p->deficit + share, share);
        }
        if (p->deficit <= 0) {
            break;
        }
        work = forward_first(sw, p, &r);
        p->deficit -= work;
        *budget -= work;
    }
    p->resumes = granted && p->tx.count && p->deficit > 0;
    if (!p->tx.count) {
        p->deficit = MIN(p->deficit + share, 0);
    }
    if (!p->tx.count || (granted && p->deficit <= 0)) {
        /* Others that wait for the same room are next. */
        stop_waiting(p);
    }
    resume_sender(sw, p);
    return any;
}

static bool serve(QrnicEswitch *sw, QrnicEswitchPort *p, int64_t *budget)
{
    bool received = serve_receiver(sw, p, budget);

    return serve_sender(sw, p, budget) || received;
}

/* Arms the timer for the first end of a wait. */
static void arm(QrnicEswitch *sw)
{
    int64_t first = QRNIC_ESWITCH_NEVER;

    for (unsigned i = 0; i < sw->count; i++) {
        if (sw->port[i].tx.count) {
            first = MIN(first, sw->port[i].wait_until);
        }
    }
    if (first != sw->armed) {
        sw->armed = first;
        sw->ops.timer_arm(sw->opaque, first);
    }
}

void qrnic_eswitch_run(QrnicEswitch *sw)
{
    int64_t now = sw->ops.clock_ns(sw->opaque), budget = RUN_BUDGET;
    unsigned idle = 0;

    sw->kicked = false;
    sw->waited_ns += MIN(now - sw->run_ns, QRNIC_ESWITCH_STEP_NS);
    sw->run_ns = now;
    /*
     * The uplink is served before each function, because it sends the frames
     * for all of them. A round in which nothing happened ends the run.
     */
    while (idle < sw->count && budget > 0) {
        bool any = serve(sw, &sw->port[QRNIC_ESWITCH_UPLINK], &budget);

        if (budget > 0) {
            QrnicEswitchPort *p = &sw->port[sw->next];

            any = serve(sw, p, &budget) || any;
            if (budget > 0 || !p->resumes) {
                sw->next = sw->next + 1 < sw->count ? sw->next + 1 :
                           QRNIC_ESWITCH_PF;
            }
        }
        idle = any ? 0 : idle + 1;
    }
    if (budget > 0) {
        arm(sw);
    } else {
        qrnic_eswitch_kick(sw);
    }
}

void qrnic_eswitch_timer(QrnicEswitch *sw)
{
    sw->armed = QRNIC_ESWITCH_NEVER;
    qrnic_eswitch_kick(sw);
}
