/*
 * qrnic embedded switch: queues of frames, and their delivery to receivers
 *
 * schedule.c calls qrnic_eswitch_forward() for each receiver of a frame, and
 * qrnic_eswitch_deliver() in each run while a receiver has frames. The
 * operation deliver() may reset or unplug any port. Therefore no frame is in a
 * queue while it is delivered.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "trace.h"
#include "eswitch/eswitch_private.h"

/*
 * Limits of the queue of a function. The queue of the uplink is shorter: the
 * frames wait at their senders, which share the uplink fairly.
 */
#define RX_FRAMES 256
#define RX_BYTES (512u << 10)
#define UPLINK_FRAMES 32
#define UPLINK_BYTES (64u << 10)

/* Slots of a queue with its first frame */
#define SLOTS_MIN 16

uint16_t qrnic_eswitch_vlan(const uint8_t *frame, size_t len)
{
    if (len < QRNIC_ESWITCH_TAGGED_MIN ||
        lduw_be_p(frame + QRNIC_ESWITCH_TYPE) != QRNIC_ESWITCH_TYPE_VLAN) {
        return 0;
    }
    return lduw_be_p(frame + QRNIC_ESWITCH_TCI) & 0xfff;
}

const char *qrnic_eswitch_count_name(QrnicEswitchCount which)
{
    static const char * const name[QRNIC_ESWITCH_NUM_COUNTS] = {
        [QRNIC_ESWITCH_TX_FRAMES] = "tx_frames",
        [QRNIC_ESWITCH_TX_BYTES] = "tx_bytes",
        [QRNIC_ESWITCH_TX_MULTICAST] = "tx_multicast",
        [QRNIC_ESWITCH_TX_BROADCAST] = "tx_broadcast",
        [QRNIC_ESWITCH_RX_FRAMES] = "rx_frames",
        [QRNIC_ESWITCH_RX_BYTES] = "rx_bytes",
        [QRNIC_ESWITCH_RX_MULTICAST] = "rx_multicast",
        [QRNIC_ESWITCH_RX_BROADCAST] = "rx_broadcast",
        [QRNIC_ESWITCH_TX_DROP_LINK] = "tx_drop_link",
        [QRNIC_ESWITCH_TX_DROP_RUNT] = "tx_drop_runt",
        [QRNIC_ESWITCH_TX_DROP_GIANT] = "tx_drop_giant",
        [QRNIC_ESWITCH_TX_DROP_SOURCE] = "tx_drop_source",
        [QRNIC_ESWITCH_TX_DROP_SPOOF] = "tx_drop_spoof",
        [QRNIC_ESWITCH_TX_DROP_TAGGED] = "tx_drop_tagged",
        [QRNIC_ESWITCH_TX_DROP_RESERVED] = "tx_drop_reserved",
        [QRNIC_ESWITCH_TX_DROP_OWN] = "tx_drop_own",
        [QRNIC_ESWITCH_TX_DROP_NOBODY] = "tx_drop_nobody",
        [QRNIC_ESWITCH_TX_DROP_FULL] = "tx_drop_full",
        [QRNIC_ESWITCH_TX_DROP_RESET] = "tx_drop_reset",
        [QRNIC_ESWITCH_RX_DROP_LINK] = "rx_drop_link",
        [QRNIC_ESWITCH_RX_DROP_VLAN] = "rx_drop_vlan",
        [QRNIC_ESWITCH_RX_DROP_OFF] = "rx_drop_off",
        [QRNIC_ESWITCH_RX_DROP_FULL] = "rx_drop_full",
        [QRNIC_ESWITCH_RX_DROP_RESET] = "rx_drop_reset",
    };

    return name[which];
}

void qrnic_eswitch_drop(QrnicEswitch *sw, QrnicEswitchPort *p,
                        QrnicEswitchCount which, size_t len)
{
    p->count[which]++;
    trace_qrnic_eswitch_drop(sw->name, p->number,
                             qrnic_eswitch_count_name(which), len);
}

void qrnic_eswitch_kick(QrnicEswitch *sw)
{
    if (!sw->kicked) {
        sw->kicked = true;
        sw->ops.kick(sw->opaque);
    }
}

/* Frames and queues */

QrnicEswitchFrame *qrnic_eswitch_frame_new(const uint8_t *frame, size_t len)
{
    QrnicEswitchFrame *f = g_malloc(sizeof(*f) + QRNIC_ESWITCH_TAG + len);

    f->users = 1;
    f->len = len;
    f->data = f->room + QRNIC_ESWITCH_TAG;
    memcpy(f->data, frame, len);
    return f;
}

void qrnic_eswitch_frame_put(QrnicEswitchFrame *f)
{
    if (--f->users == 0) {
        g_free(f);
    }
}

QrnicEswitchFrame *qrnic_eswitch_queue_first(const QrnicEswitchQueue *q)
{
    return q->slot[q->head];
}

/* Doubles the slots of a full queue. The first frame moves to slot 0. */
static void queue_grow(QrnicEswitchQueue *q)
{
    unsigned size = MAX(2 * q->size, SLOTS_MIN);
    QrnicEswitchFrame **slot = g_new(QrnicEswitchFrame *, size);

    for (unsigned i = 0; i < q->count; i++) {
        slot[i] = q->slot[(q->head + i) & (q->size - 1)];
    }
    g_free(q->slot);
    q->slot = slot;
    q->size = size;
    q->head = 0;
}

void qrnic_eswitch_queue_push(QrnicEswitchQueue *q, QrnicEswitchFrame *f)
{
    if (q->count == q->size) {
        queue_grow(q);
    }
    q->slot[(q->head + q->count++) & (q->size - 1)] = f;
    q->bytes += f->len;
}

/* Returns a frame to the beginning of the queue from which it came. */
static void queue_unpop(QrnicEswitchQueue *q, QrnicEswitchFrame *f)
{
    if (q->count == q->size) {
        queue_grow(q);
    }
    q->head = (q->head - 1) & (q->size - 1);
    q->slot[q->head] = f;
    q->count++;
    q->bytes += f->len;
}

QrnicEswitchFrame *qrnic_eswitch_queue_pop(QrnicEswitchQueue *q)
{
    QrnicEswitchFrame *f = q->slot[q->head];

    q->head = (q->head + 1) & (q->size - 1);
    q->count--;
    q->bytes -= f->len;
    return f;
}

void qrnic_eswitch_queue_drop(QrnicEswitch *sw, QrnicEswitchPort *p,
                              QrnicEswitchQueue *q, QrnicEswitchCount which)
{
    while (q->count) {
        QrnicEswitchFrame *f = qrnic_eswitch_queue_pop(q);

        qrnic_eswitch_drop(sw, p, which, f->len);
        qrnic_eswitch_frame_put(f);
    }
    g_free(q->slot);
    *q = (QrnicEswitchQueue) { 0 };
}

/* Receivers */

bool qrnic_eswitch_is_full(const QrnicEswitch *sw, QrnicEswitchPort *to,
                           QrnicEswitchClass class)
{
    bool uplink = qrnic_eswitch_is_uplink(to);
    unsigned frames = uplink ? UPLINK_FRAMES : RX_FRAMES;
    size_t bytes = uplink ? UPLINK_BYTES : RX_BYTES;
    QrnicPatience *patience = &to->rx[class].patience;
    const QrnicEswitchQueue *q = &to->rx[class].queue;

    if (!patience->full) {
        patience->full = q->count >= frames || q->bytes >= bytes;
        patience->since = sw->waited_ns;
    } else if (q->count <= frames * 3 / 4 && q->bytes <= bytes * 3 / 4) {
        patience->full = false;
        if (uplink) {
            patience->slow_until = 0;
        }
    }
    return patience->full;
}

/* Counts a delivered frame. */
static void count_received(QrnicEswitchPort *to, const uint8_t *frame,
                           size_t len)
{
    to->count[QRNIC_ESWITCH_RX_FRAMES]++;
    to->count[QRNIC_ESWITCH_RX_BYTES] += len;
    if (frame[0] & 1) {
        to->count[qrnic_eswitch_key(frame) == QRNIC_ESWITCH_BROADCAST ?
                  QRNIC_ESWITCH_RX_BROADCAST : QRNIC_ESWITCH_RX_MULTICAST]++;
    }
}

/*
 * Delivers a frame, without its tag if the VLAN of the port requires that, or
 * drops the frame if the port is off. Returns false if the port is busy.
 */
static bool deliver(QrnicEswitch *sw, QrnicEswitchPort *to,
                    const QrnicEswitchFrame *f)
{
    uint8_t untagged[QRNIC_ESWITCH_FRAME_MAX];
    const uint8_t *frame = f->data;
    size_t len = f->len;
    QrnicEswitchDelivery done;

    if (to->config.vlan) {
        len -= QRNIC_ESWITCH_TAG;
        memcpy(untagged, frame, QRNIC_ESWITCH_TYPE);
        memcpy(untagged + QRNIC_ESWITCH_TYPE,
               frame + QRNIC_ESWITCH_TYPE + QRNIC_ESWITCH_TAG,
               len - QRNIC_ESWITCH_TYPE);
        frame = untagged;
    }
    done = sw->ops.deliver(sw->opaque, to->number, frame, len);
    if (done == QRNIC_ESWITCH_BUSY) {
        return false;
    }
    if (done == QRNIC_ESWITCH_OFF) {
        qrnic_eswitch_drop(sw, to, QRNIC_ESWITCH_RX_DROP_OFF, len);
        return true;
    }
    trace_qrnic_eswitch_deliver(sw->name, to->number, len);
    count_received(to, frame, len);
    return true;
}

/*
 * Delivers a frame that was removed from a queue. A port that calls
 * qrnic_eswitch_ready() inside the operation is not busy. If the operation
 * resets the port, the frame is dropped, as all frames in its queues are.
 */
static void deliver_from(QrnicEswitch *sw, QrnicEswitchPort *to,
                         QrnicEswitchQueue *q, QrnicEswitchFrame *f)
{
    uint32_t readies = to->readies, resets = to->resets;

    if (deliver(sw, to, f)) {
        qrnic_eswitch_frame_put(f);
        return;
    }
    if (to->resets != resets) {
        qrnic_eswitch_drop(sw, to, QRNIC_ESWITCH_RX_DROP_RESET, f->len);
        qrnic_eswitch_frame_put(f);
        return;
    }
    queue_unpop(q, f);
    to->busy = to->readies == readies;
    if (!to->busy) {
        qrnic_eswitch_kick(sw);
    }
}

size_t qrnic_eswitch_deliver(QrnicEswitch *sw, QrnicEswitchPort *to)
{
    bool up = qrnic_eswitch_is_up(sw, to);
    QrnicEswitchQueue *q = &to->rx[to->next].queue;
    QrnicEswitchFrame *f;
    size_t len;

    if (!q->count) {
        to->next = (to->next + 1) % QRNIC_ESWITCH_NUM_CLASSES;
        q = &to->rx[to->next].queue;
    }
    if (!q->count || (to->busy && up)) {
        return 0;
    }
    to->next = (to->next + 1) % QRNIC_ESWITCH_NUM_CLASSES;
    f = qrnic_eswitch_queue_pop(q);
    len = f->len;
    if (!up) {
        qrnic_eswitch_drop(sw, to, QRNIC_ESWITCH_RX_DROP_LINK, len);
        qrnic_eswitch_frame_put(f);
    } else if (to->config.vlan &&
               to->config.vlan != qrnic_eswitch_vlan(f->data, len)) {
        /* The VLAN of the port has changed since the frame was routed. */
        qrnic_eswitch_drop(sw, to, QRNIC_ESWITCH_RX_DROP_VLAN, len);
        qrnic_eswitch_frame_put(f);
    } else {
        deliver_from(sw, to, q, f);
    }
    return len;
}

void qrnic_eswitch_forward(QrnicEswitch *sw, QrnicEswitchPort *to,
                           QrnicEswitchFrame *f, QrnicEswitchClass class)
{
    if (!qrnic_eswitch_is_up(sw, to)) {
        qrnic_eswitch_drop(sw, to, QRNIC_ESWITCH_RX_DROP_LINK, f->len);
        return;
    }
    if (qrnic_eswitch_is_full(sw, to, class)) {
        qrnic_eswitch_drop(sw, to, QRNIC_ESWITCH_RX_DROP_FULL, f->len);
        return;
    }
    f->users++;
    qrnic_eswitch_queue_push(&to->rx[class].queue, f);
    qrnic_eswitch_deliver(sw, to);
}
