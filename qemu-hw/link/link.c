/*
 * qrnic link: the state machine of link retransmission
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * A link begins in DOWN. When the wire comes up, it is GREETING: it sends plain
 * frames and HELLOs with a random session number. The link becomes AGREED when
 * the peer has echoed this number. In AGREED, frames of the port become DATA
 * frames, which wait in the replay buffer (replay.h) until they are
 * acknowledged. Received frames are put in order by arrival.h. CROWDED is
 * entered if a third end is heard on the same wire. All pending frames are sent
 * by pump(), in the order of send_next(). Received frames only set flags such
 * as ack_owed and call work_begins(), so that nothing is sent inside a
 * reception. Manual, chapter "Link retransmission".
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "link/arrival.h"
#include "link/frame.h"
#include "link/link.h"
#include "link/replay.h"

#define US 1000ll
#define MS 1000000ll

/*
 * Maximum number of times that a timeout doubles, because wait_max_ns limits it
 * anyway
 */
#define BACK_OFF_MAX 16

typedef enum State {
    DOWN,
    GREETING,                   /* plain frames, and HELLOs */
    AGREED,
    CROWDED,                    /* plain frames, because of a third end */
} State;

struct QrnicLink {
    QrnicLinkConfig config;
    QrnicLinkEnv env;
    State state;

    uint32_t session;           /* session of this end */
    uint32_t peer;              /* session of the peer in AGREED */
    uint32_t heard;             /* session of the last HELLO; 0: none */
    uint32_t heard_window;
    uint8_t heard_mac[6];
    int64_t heard_ns;

    bool hello_owed;
    int64_t hello_earliest;
    int64_t hello_at;           /* next unsolicited HELLO, or end of CROWDED */
    int64_t hello_interval;

    QrnicLinkReplay replay;
    uint32_t window;            /* minimum of both windows */
    unsigned retries;
    int64_t round_trip, variation;      /* smoothed; 0 if not measured */
    int64_t wait_until;

    QrnicLinkArrival arrival;
    unsigned unacknowledged;
    bool ack_owed, nak_owed;
    int64_t ack_at;

    bool wire_busy;
    bool above_waits;
    uint8_t *plain;             /* plain frame that waits for a busy wire */
    size_t plain_len;
    int64_t armed;
};

QrnicLinkConfig qrnic_link_config_default(void)
{
    return (QrnicLinkConfig) {
        .window = 256, .room = 1 << 20,
        .ack_frames = 8, .ack_ns = 20 * US,
        .wait_first_ns = 10 * MS,
        .wait_min_ns = 100 * US, .wait_max_ns = 250 * MS, .retries = 20,
        .hello_gap_ns = 1 * MS,
        .hello_first_ns = 10 * MS, .hello_max_ns = 10000 * MS,
        .crowd_ns = 60000 * MS,
    };
}

static int64_t now_ns(QrnicLink *l)
{
    return l->env.clock_ns(l->env.opaque);
}

static void count(QrnicLink *l, enum qrnic_link_count which, uint64_t n)
{
    if (n) {
        l->env.count(l->env.opaque, which, n);
    }
}

/* Connections */

/*
 * Chooses a random session number, which differs from earlier numbers with high
 * probability.
 */
static void session_new(QrnicLink *l)
{
    do {
        l->session = l->env.random(l->env.opaque);
    } while (!l->session);
}

static void traffic_forget(QrnicLink *l)
{
    count(l, QRNIC_LINK_TX_LOST,
          qrnic_link_replay_reset(&l->replay, l->session));
    l->retries = 0;
    l->round_trip = l->variation = 0;
    l->wait_until = l->ack_at = QRNIC_LINK_NEVER;
    l->unacknowledged = 0;
    l->ack_owed = l->nak_owed = false;
}

static void state_set(QrnicLink *l, State state, const char *why)
{
    bool was = l->state == AGREED, is = state == AGREED;

    l->state = state;
    trace_qrnic_link_state(l->config.name, is ? "agreed" : "plain", why);
    if (was != is) {
        l->env.changed(l->env.opaque, is);
    }
}

static void greet(QrnicLink *l, const char *why)
{
    state_set(l, GREETING, why);
    session_new(l);
    traffic_forget(l);
    l->heard = 0;
    l->hello_owed = true;
    l->hello_interval = l->config.hello_first_ns;
    l->hello_at = QRNIC_LINK_NEVER;
}

static void agree(QrnicLink *l)
{
    l->peer = l->heard;
    l->window = MIN(l->heard_window, l->config.window);
    traffic_forget(l);
    qrnic_link_arrival_reset(&l->arrival, l->peer);
    l->hello_at = QRNIC_LINK_NEVER;
    count(l, QRNIC_LINK_ESTABLISHED, 1);
    state_set(l, AGREED, "both ends have received HELLO");
}

/* Stops retransmission, because frames for the third end would be lost. */
static void crowd(QrnicLink *l)
{
    state_set(l, CROWDED, "a third end was heard");
    traffic_forget(l);
    l->heard = 0;
    l->hello_owed = false;
    l->hello_at = now_ns(l) + l->config.crowd_ns;
}

/* Sending */

static void wire_send(QrnicLink *l, const uint8_t *frame, size_t len)
{
    l->wire_busy = !l->env.send(l->env.opaque, frame, len);
}

static QrnicLinkHeader header(QrnicLink *l, uint8_t type)
{
    return (QrnicLinkHeader) {
        .type = type, .session = l->session, .heard = l->peer,
        .ack = l->arrival.ack, .map = qrnic_link_arrival_map(&l->arrival),
    };
}

static void acknowledged(QrnicLink *l)
{
    l->unacknowledged = 0;
    l->ack_owed = l->nak_owed = false;
    l->ack_at = QRNIC_LINK_NEVER;
}

static void hello_send(QrnicLink *l)
{
    const QrnicLinkHeader h = {
        .type = QRNIC_LINK_HELLO, .session = l->session, .heard = l->heard,
        .number = l->config.window,
    };
    uint8_t frame[QRNIC_LINK_FRAME_MIN];
    int64_t now = now_ns(l);

    l->hello_owed = false;
    l->hello_earliest = now + l->config.hello_gap_ns;
    if (l->state == GREETING) {
        l->hello_at = now + l->hello_interval;
        l->hello_interval = MIN(2 * l->hello_interval,
                                l->config.hello_max_ns);
    }
    count(l, QRNIC_LINK_TX_HELLOS, 1);
    trace_qrnic_link_hello(l->config.name, true, h.session, h.heard);
    wire_send(l, frame, qrnic_link_build(frame, l->config.mac, &h));
}

static void control_send(QrnicLink *l, uint8_t type)
{
    const QrnicLinkHeader h = header(l, type);
    uint8_t frame[QRNIC_LINK_FRAME_MIN];

    trace_qrnic_link_control(l->config.name, true, type == QRNIC_LINK_NAK,
                             h.ack, h.map);
    acknowledged(l);
    wire_send(l, frame, qrnic_link_build(frame, l->config.mac, &h));
}

static int64_t wait_ns(const QrnicLink *l)
{
    const QrnicLinkConfig *c = &l->config;
    int64_t wait = l->round_trip ?
                   l->round_trip + 4 * l->variation + c->ack_ns :
                   c->wait_first_ns;

    wait = MAX(wait, c->wait_min_ns) << MIN(l->retries, BACK_OFF_MAX);
    return MIN(wait, c->wait_max_ns);
}

static void data_send(QrnicLink *l)
{
    int64_t now = now_ns(l);
    QrnicLinkHeader h = header(l, QRNIC_LINK_DATA);
    QrnicLinkSlot *s = qrnic_link_replay_take(&l->replay, now, &h.number);

    h.length = s->length;
    count(l, s->again ? QRNIC_LINK_TX_RETRANSMISSIONS : QRNIC_LINK_TX_FRAMES,
          1);
    trace_qrnic_link_data(l->config.name, true, h.number, h.length, s->again);
    acknowledged(l);
    if (l->wait_until == QRNIC_LINK_NEVER) {
        l->wait_until = now + wait_ns(l);
    }
    wire_send(l, s->frame, qrnic_link_build(s->frame, l->config.mac, &h));
}

/*
 * Returns true if a frame of the port can be sent now, so that no frame waits
 * before it.
 */
static bool open_to_above(const QrnicLink *l)
{
    return !l->wire_busy && !l->plain &&
           (l->state != AGREED ||
            !qrnic_link_replay_full(&l->replay, l->window));
}

static void plain_send(QrnicLink *l)
{
    uint8_t *frame = l->plain;

    l->plain = NULL;
    wire_send(l, frame, l->plain_len);
    g_free(frame);
}

/* Sends the pending frame that goes first. Returns false if none is pending. */
static bool send_next(QrnicLink *l)
{
    if (l->plain) {
        plain_send(l);
    } else if (l->hello_owed && now_ns(l) >= l->hello_earliest) {
        hello_send(l);
    } else if (l->state != AGREED) {
        return false;
    } else if (l->nak_owed) {
        control_send(l, QRNIC_LINK_NAK);
    } else if (qrnic_link_replay_waits(&l->replay)) {
        data_send(l);
    } else if (l->ack_owed) {
        control_send(l, QRNIC_LINK_ACK);
    } else {
        return false;
    }
    return true;
}

static void arm(QrnicLink *l)
{
    int64_t next = MIN(l->hello_at, MIN(l->ack_at, l->wait_until));

    if (l->hello_owed && !l->wire_busy) {
        next = MIN(next, l->hello_earliest);
    }
    if (next != l->armed) {
        l->armed = next;
        l->env.timer_arm(l->env.opaque, next);
    }
}

/*
 * Sends pending frames until none is left or the wire is busy. The window
 * limits their number.
 */
static void pump(QrnicLink *l)
{
    while (!l->wire_busy && send_next(l)) {
        /* until nothing is left, or no room */
    }
    arm(l);
    if (l->above_waits && open_to_above(l)) {
        l->above_waits = false;
        l->env.ready(l->env.opaque);
    }
}

bool qrnic_link_send(QrnicLink *l, const uint8_t *frame, size_t len)
{
    bool agreed = l->state == AGREED;

    /*
     * A link frame of the guest is rejected, because it would appear as a frame
     * of this port.
     */
    if (qrnic_link_kind(frame, len) == QRNIC_LINK_OURS ||
        (agreed && (len > QRNIC_LINK_PAYLOAD_MAX ||
                    len < QRNIC_LINK_PAYLOAD_MIN ||
                    qrnic_link_replay_full(&l->replay, l->window)))) {
        count(l, QRNIC_LINK_TX_REFUSED, 1);
    } else if (agreed) {
        qrnic_link_replay_put(&l->replay, frame, len);
        pump(l);
    } else if (!l->wire_busy && !l->plain) {
        wire_send(l, frame, len);
    } else if (!l->plain) {
        l->plain = g_memdup2(frame, len);
        l->plain_len = len;
    } else {
        count(l, QRNIC_LINK_TX_REFUSED, 1);
    }
    l->above_waits = !open_to_above(l);
    return !l->above_waits;
}

/* Receiving */

/*
 * Requests a run, which sends the pending frames. No frame is sent here,
 * because the wire is in the middle of a delivery.
 */
static void work_begins(QrnicLink *l)
{
    bool hello = l->hello_owed && now_ns(l) >= l->hello_earliest;
    bool agreed = l->state == AGREED &&
                  (l->nak_owed || l->ack_owed ||
                   qrnic_link_replay_waits(&l->replay));

    arm(l);
    if ((!l->wire_busy && (hello || agreed)) ||
        (l->above_waits && open_to_above(l))) {
        l->env.kick(l->env.opaque);
    }
}

static bool third_end(const QrnicLink *l, const uint8_t *mac, int64_t now)
{
    bool old = l->state != AGREED &&
               now - l->heard_ns > 2 * l->config.hello_max_ns;

    return l->heard && !old && memcmp(mac, l->heard_mac, 6);
}

static void hello_receive(QrnicLink *l, const QrnicLinkHeader *h,
                          const uint8_t *mac)
{
    bool hears_us = h->heard == l->session;
    int64_t now = now_ns(l);

    trace_qrnic_link_hello(l->config.name, false, h->session, h->heard);
    /*
     * A HELLO with the own MAC address was sent by this port: the wire is a
     * loop.
     */
    if (l->state == CROWDED || !memcmp(mac, l->config.mac, 6)) {
        count(l, QRNIC_LINK_RX_STALE, 1);
        return;
    }
    if (third_end(l, mac, now)) {
        crowd(l);
        return;
    }
    l->heard = h->session;
    l->heard_window = MIN(h->number, QRNIC_LINK_WINDOW_MAX);
    l->heard_ns = now;
    memcpy(l->heard_mac, mac, sizeof(l->heard_mac));
    /*
     * Only a peer that echoes the present session number has just sent this
     * HELLO. Any other HELLO may be old, so it must not end a connection.
     */
    if (hears_us && !(l->state == AGREED && l->heard == l->peer)) {
        agree(l);
    }
    /*
     * An acknowledgement confirms the session without causing a reply.
     * Otherwise a HELLO is sent.
     */
    l->ack_owed |= hears_us;
    l->hello_owed |= !hears_us;
}

static void wait_again(QrnicLink *l)
{
    l->wait_until = qrnic_link_replay_owed(&l->replay) ?
                    now_ns(l) + wait_ns(l) : QRNIC_LINK_NEVER;
}

/* Updates the estimate of the round trip as TCP does (RFC 6298). */
static void measure(QrnicLink *l, int64_t sample)
{
    sample = MAX(sample, 1);
    if (!l->round_trip) {
        l->round_trip = sample;
        l->variation = sample / 2;
        return;
    }
    l->variation += (llabs(l->round_trip - sample) - l->variation) / 4;
    l->round_trip += (sample - l->round_trip) / 8;
}

/* Processes an acknowledgement. Returns false if it is invalid. */
static bool acknowledgement(QrnicLink *l, const QrnicLinkHeader *h)
{
    QrnicLinkNews news;

    if (!qrnic_link_replay_heard(&l->replay, h->ack, h->map, &news)) {
        return false;
    }
    if (news.progress) {
        if (news.sent_ns >= 0) {
            measure(l, now_ns(l) - news.sent_ns);
        }
        l->retries = 0;
        wait_again(l);
    }
    return true;
}

static void deliver(QrnicLink *l, const uint8_t *frame, size_t len)
{
    count(l, QRNIC_LINK_RX_FRAMES, 1);
    l->env.deliver(l->env.opaque, frame, len);
}

bool qrnic_link_holds(const QrnicLink *l)
{
    return qrnic_link_arrival_waits(&l->arrival);
}

bool qrnic_link_takes(QrnicLink *l)
{
    while (l->env.takes(l->env.opaque)) {
        g_autofree uint8_t *frame = NULL;
        size_t len;

        if (!qrnic_link_arrival_waits(&l->arrival)) {
            return true;
        }
        frame = qrnic_link_arrival_take(&l->arrival, &len);
        deliver(l, frame, len);
    }
    return false;
}

static void data_receive(QrnicLink *l, const QrnicLinkHeader *h,
                         const uint8_t *frame)
{
    bool gap;

    trace_qrnic_link_data(l->config.name, false, h->number, h->length, false);
    switch (qrnic_link_arrival_put(&l->arrival, h->number, frame, h->length,
                                   &gap)) {
    case QRNIC_LINK_DUPLICATE:
        /*
         * The frame is acknowledged again, because the previous acknowledgement
         * may have been lost.
         */
        count(l, QRNIC_LINK_RX_DUPLICATES, 1);
        l->ack_owed = true;
        return;
    case QRNIC_LINK_BEYOND:
        count(l, QRNIC_LINK_RX_MALFORMED, 1);
        return;
    case QRNIC_LINK_NEXT:
        deliver(l, frame, h->length);
        break;
    case QRNIC_LINK_HELD:
        qrnic_link_takes(l);
        break;
    }
    if (gap) {
        count(l, QRNIC_LINK_RX_GAPS, 1);
        trace_qrnic_link_gap(l->config.name, l->arrival.ack, h->number);
        l->nak_owed = true;
    }
    if (++l->unacknowledged >= l->config.ack_frames) {
        l->ack_owed = true;
    } else if (l->ack_at == QRNIC_LINK_NEVER) {
        l->ack_at = now_ns(l) + l->config.ack_ns;
    }
}

static void traffic_receive(QrnicLink *l, const QrnicLinkHeader *h,
                            const uint8_t *frame)
{
    bool ours = l->heard && h->session == l->heard && h->heard == l->session;

    /* The peer has agreed, so its HELLO was lost. */
    if (ours && (l->state == GREETING ||
                 (l->state == AGREED && l->heard != l->peer))) {
        agree(l);
    }
    if (l->state != AGREED || h->session != l->peer ||
        h->heard != l->session) {
        count(l, QRNIC_LINK_RX_STALE, 1);
        l->hello_owed |= l->state == GREETING || l->state == AGREED;
        return;
    }
    if (!acknowledgement(l, h)) {
        count(l, QRNIC_LINK_RX_MALFORMED, 1);
        return;
    }
    if (h->type == QRNIC_LINK_DATA) {
        data_receive(l, h, frame + QRNIC_LINK_OVERHEAD);
    } else {
        trace_qrnic_link_control(l->config.name, false,
                                 h->type == QRNIC_LINK_NAK, h->ack, h->map);
    }
}

static void ours_receive(QrnicLink *l, const uint8_t *frame, size_t len)
{
    QrnicLinkHeader h;

    switch (qrnic_link_parse(&h, frame, len)) {
    case QRNIC_LINK_BAD_CRC:
        count(l, QRNIC_LINK_RX_CRC_ERRORS, 1);
        break;
    case QRNIC_LINK_MALFORMED:
        count(l, QRNIC_LINK_RX_MALFORMED, 1);
        break;
    case QRNIC_LINK_GOOD:
        if (h.type == QRNIC_LINK_HELLO) {
            hello_receive(l, &h, frame + 6);
        } else {
            traffic_receive(l, &h, frame);
        }
        break;
    }
}

void qrnic_link_receive(QrnicLink *l, const uint8_t *frame, size_t len)
{
    QrnicLinkKind kind = qrnic_link_kind(frame, len);

    if (l->state == DOWN) {
        return;
    }
    if (kind == QRNIC_LINK_OURS) {
        ours_receive(l, frame, len);
        work_begins(l);
    } else if (kind == QRNIC_LINK_DAMAGED && l->heard) {
        count(l, QRNIC_LINK_RX_CRC_ERRORS, 1);
    } else {
        l->env.deliver(l->env.opaque, frame, len);
    }
}

/* Life */

static void timed_out(QrnicLink *l)
{
    /*
     * A busy wire accepts no frames, so the peer cannot have replied and no
     * retry is consumed.
     */
    if (!l->wire_busy) {
        count(l, QRNIC_LINK_TX_TIMEOUTS, 1);
        trace_qrnic_link_timeout(l->config.name, l->replay.first, l->retries);
        if (++l->retries > l->config.retries) {
            greet(l, "the peer does not respond");
            return;
        }
        qrnic_link_replay_timeout(&l->replay);
    }
    wait_again(l);
}

void qrnic_link_timer(QrnicLink *l)
{
    int64_t now = now_ns(l);

    l->armed = QRNIC_LINK_NEVER;
    if (l->hello_at <= now) {
        l->hello_at = QRNIC_LINK_NEVER;
        if (l->state == CROWDED) {
            greet(l, "the third end may be gone");
        } else {
            l->hello_owed = true;
        }
    }
    if (l->ack_at <= now) {
        l->ack_at = QRNIC_LINK_NEVER;
        l->ack_owed = true;
    }
    if (l->wait_until <= now) {
        timed_out(l);
    }
    pump(l);
}

void qrnic_link_run(QrnicLink *l)
{
    pump(l);
}

void qrnic_link_wire_ready(QrnicLink *l)
{
    l->wire_busy = false;
    pump(l);
}

bool qrnic_link_agreed(const QrnicLink *l)
{
    return l->state == AGREED;
}

static void down(QrnicLink *l)
{
    state_set(l, DOWN, "the wire is down");
    traffic_forget(l);
    qrnic_link_arrival_reset(&l->arrival, 0);
    l->heard = 0;
    l->hello_owed = l->wire_busy = false;
    l->hello_at = QRNIC_LINK_NEVER;
    g_free(l->plain);
    l->plain = NULL;
}

void qrnic_link_set_up(QrnicLink *l, bool up)
{
    if (up == (l->state != DOWN)) {
        return;
    }
    if (up) {
        greet(l, "the wire is up");
    } else {
        down(l);
    }
    work_begins(l);
}

void qrnic_link_reset(QrnicLink *l)
{
    bool was_busy = l->wire_busy;

    if (l->state != DOWN) {
        down(l);
        greet(l, "reset");
        l->wire_busy = was_busy;
    }
    work_begins(l);
}

QrnicLink *qrnic_link_new(const QrnicLinkConfig *config,
                          const QrnicLinkEnv *env)
{
    QrnicLink *l = g_new0(QrnicLink, 1);

    l->config = *config;
    l->env = *env;
    l->armed = l->hello_at = l->ack_at = l->wait_until = QRNIC_LINK_NEVER;
    qrnic_link_replay_init(&l->replay, config->window, config->room);
    qrnic_link_arrival_init(&l->arrival, config->window);
    return l;
}

void qrnic_link_free(QrnicLink *l)
{
    if (l) {
        qrnic_link_replay_cleanup(&l->replay);
        qrnic_link_arrival_cleanup(&l->arrival);
        g_free(l->plain);
        g_free(l);
    }
}
