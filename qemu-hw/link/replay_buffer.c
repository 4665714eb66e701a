/*
 * qrnic link: the replay buffer: frames that are not yet acknowledged
 *
 * Frames from "first" to "unsent" were sent; frames from there to "next" wait.
 * A wire keeps the order of its frames. So a frame is lost if a frame that was
 * sent later has arrived. Each transmission has an order number, so that a lost
 * retransmission is detected in the same way, without a timeout.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "link/frame.h"
#include "link/replay.h"

static QrnicLinkSlot *slot_at(QrnicLinkReplay *r, uint32_t number)
{
    return &r->slot[number & r->mask];
}

static void slot_free(QrnicLinkReplay *r, QrnicLinkSlot *s)
{
    if (s->frame) {
        r->bytes -= s->length;
        g_free(s->frame);
        s->frame = NULL;
    }
    r->lost -= s->lost;
    s->lost = false;
}

void qrnic_link_replay_init(QrnicLinkReplay *r, uint32_t window, size_t room)
{
    uint32_t slots = pow2ceil(window);

    *r = (QrnicLinkReplay) {
        .slot = g_new0(QrnicLinkSlot, slots),
        .mask = slots - 1, .window = window, .room = room,
    };
}

void qrnic_link_replay_cleanup(QrnicLinkReplay *r)
{
    qrnic_link_replay_reset(r, 0);
    g_free(r->slot);
}

uint32_t qrnic_link_replay_reset(QrnicLinkReplay *r, uint32_t number)
{
    uint32_t dropped = 0;

    for (uint32_t n = r->first; n != r->next; n++) {
        dropped += !slot_at(r, n)->arrived;
        slot_free(r, slot_at(r, n));
    }
    r->first = r->unsent = r->next = number;
    return dropped;
}

bool qrnic_link_replay_full(const QrnicLinkReplay *r, uint32_t window)
{
    return r->next - r->first >= MIN(window, r->window) ||
           r->bytes + QRNIC_LINK_PAYLOAD_MAX > r->room;
}

void qrnic_link_replay_put(QrnicLinkReplay *r, const uint8_t *frame,
                           size_t len)
{
    QrnicLinkSlot *s = slot_at(r, r->next++);

    *s = (QrnicLinkSlot) {
        .frame = g_malloc(QRNIC_LINK_OVERHEAD + len), .length = len,
    };
    memcpy(s->frame + QRNIC_LINK_OVERHEAD, frame, len);
    r->bytes += len;
}

bool qrnic_link_replay_waits(const QrnicLinkReplay *r)
{
    return r->lost || r->unsent != r->next;
}

bool qrnic_link_replay_owed(const QrnicLinkReplay *r)
{
    return r->first != r->unsent;
}

static uint32_t first_lost(QrnicLinkReplay *r)
{
    uint32_t n = r->first;

    while (!slot_at(r, n)->lost) {
        n++;
    }
    return n;
}

QrnicLinkSlot *qrnic_link_replay_take(QrnicLinkReplay *r, int64_t now,
                                      uint32_t *number)
{
    QrnicLinkSlot *s;

    if (r->lost) {
        *number = first_lost(r);
        s = slot_at(r, *number);
        s->lost = false;
        s->again = true;
        r->lost--;
    } else {
        *number = r->unsent++;
        s = slot_at(r, *number);
    }
    s->order = ++r->order;
    s->sent_ns = now;
    return s;
}

/*
 * Marks a frame as arrived. Returns the order number of its last transmission,
 * or 0 if it had already arrived.
 */
static uint64_t arrived(QrnicLinkReplay *r, uint32_t number,
                        QrnicLinkNews *news)
{
    QrnicLinkSlot *s = slot_at(r, number);

    if (s->arrived) {
        return 0;
    }
    s->arrived = true;
    news->progress = true;
    if (!s->again) {
        news->sent_ns = s->sent_ns;
    }
    slot_free(r, s);
    return s->order;
}

static void find_lost(QrnicLinkReplay *r, uint64_t reached)
{
    for (uint32_t n = r->first; n != r->unsent; n++) {
        QrnicLinkSlot *s = slot_at(r, n);

        if (!s->arrived && !s->lost && s->order < reached) {
            s->lost = true;
            r->lost++;
        }
    }
}

bool qrnic_link_replay_heard(QrnicLinkReplay *r, uint32_t ack, uint64_t map,
                             QrnicLinkNews *news)
{
    uint32_t sent = r->unsent - r->first, acked = ack - r->first;
    uint64_t reached = 0;
    bool disordered = map;

    *news = (QrnicLinkNews) { .sent_ns = -1 };
    if ((int32_t)acked < 0) {
        return true;            /* an old acknowledgement */
    }
    if (acked > sent || (map && acked + 64 - clz64(map) >= sent)) {
        return false;
    }
    for (; r->first != ack; r->first++) {
        disordered |= slot_at(r, r->first)->again;
        reached = MAX(reached, arrived(r, r->first, news));
    }
    for (; map; map &= map - 1) {
        reached = MAX(reached, arrived(r, ack + 1 + ctz64(map), news));
    }
    /*
     * Without disorder, all unacknowledged frames were sent after the
     * acknowledged ones, so none of them is lost.
     */
    if (disordered) {
        find_lost(r, reached);
    }
    return true;
}

void qrnic_link_replay_timeout(QrnicLinkReplay *r)
{
    for (uint32_t n = r->first; n != r->unsent; n++) {
        QrnicLinkSlot *s = slot_at(r, n);

        if (s->lost) {
            return;
        }
        if (!s->arrived) {
            s->lost = true;
            r->lost++;
            return;
        }
    }
}
