/*
 * qrnic cable: the rings in the shared memory of a cable
 *
 * cable.c calls these functions in the main loop only, so they need no lock.
 * Only qrnic_cable_ring_bytes() is also called by the thread of reader.c. The
 * order of memory accesses synchronizes both ends. In the shared memory, the
 * sender writes PRODUCED and ROOM_AT, and the receiver writes CONSUMED and
 * WAKE_AT. An event is requested for the index at WAKE_AT or ROOM_AT.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/bswap.h"
#include "qemu/host-utils.h"
#include "cable/ring.h"

#define PAGE 4096u

static uint32_t *index_at(const QrnicCableRing *r, unsigned offset)
{
    return (uint32_t *)(r->control + offset);
}

#define INDEX(r, name) index_at(r, QRNIC_CABLE_CONTROL_##name##_OFFSET)

size_t qrnic_cable_ring_bytes(const QrnicRingShape *s)
{
    if (s->slots < QRNIC_CABLE_MIN_SLOTS || s->slots > QRNIC_CABLE_MAX_SLOTS ||
        !is_power_of_2(s->slots) ||
        s->max_frame < QRNIC_CABLE_MIN_FRAME ||
        s->max_frame > QRNIC_CABLE_MAX_FRAME ||
        s->stride != qrnic_cable_ring_stride(s->max_frame)) {
        return 0;
    }
    return ROUND_UP(QRNIC_CABLE_CONTROL_SIZE +
                    (size_t)s->slots * s->stride, PAGE);
}

/*
 * Returns the stride: an odd number of cache lines, so that the first lines of
 * the slots are in different sets of the cache.
 */
uint32_t qrnic_cable_ring_stride(uint32_t max_frame)
{
    uint32_t lines = DIV_ROUND_UP(QRNIC_CABLE_SLOT_BYTES + max_frame,
                                  QRNIC_CABLE_LINE);

    return (lines | 1) * QRNIC_CABLE_LINE;
}

void qrnic_cable_ring_init(QrnicCableRing *r, void *memory,
                           const QrnicRingShape *shape)
{
    *r = (QrnicCableRing) {
        .control = memory,
        .slots = (uint8_t *)memory + QRNIC_CABLE_CONTROL_SIZE,
        .shape = *shape,
    };
}

static uint8_t *slot(const QrnicCableRing *r, uint32_t index)
{
    return r->slots + (size_t)(index & (r->shape.slots - 1)) * r->shape.stride;
}

/* Returns true if the counter has passed "at" between "from" and "to". */
static bool passed(uint32_t at, uint32_t from, uint32_t to)
{
    return to - at - 1 < to - from;
}

static bool wants_event(QrnicCableRing *r, const uint32_t *at)
{
    uint32_t told = r->told;

    /*
     * The request of the peer must be read after the own index is written.
     * Otherwise both ends could miss each other's write, and the event would be
     * lost.
     */
    smp_mb();
    r->told = r->own;
    return passed(le32_to_cpu(qatomic_read(at)), told, r->own);
}

uint32_t qrnic_cable_ring_room(QrnicCableRing *r)
{
    uint32_t slots = r->shape.slots;

    if (r->own - r->seen == slots && !r->broken) {
        uint32_t consumed =
            le32_to_cpu(qatomic_load_acquire(INDEX(r, CONSUMED)));

        if (r->own - consumed > slots) {
            r->broken = true;
        } else {
            r->seen = consumed;
        }
    }
    return r->broken ? 0 : slots - (r->own - r->seen);
}

uint8_t *qrnic_cable_ring_next(QrnicCableRing *r)
{
    return slot(r, r->own) + QRNIC_CABLE_SLOT_BYTES;
}

void qrnic_cable_ring_commit(QrnicCableRing *r, uint32_t len)
{
    uint32_t *length = (uint32_t *)(slot(r, r->own) +
                                    QRNIC_CABLE_SLOT_LENGTH_OFFSET);

    qatomic_set(length, cpu_to_le32(len));
    r->own++;
    /*
     * The release orders the frame and its length before the index, because the
     * receiver reads them as soon as it sees the index.
     */
    qatomic_store_release(INDEX(r, PRODUCED), cpu_to_le32(r->own));
}

bool qrnic_cable_ring_wants_wake(QrnicCableRing *r)
{
    return wants_event(r, INDEX(r, WAKE_AT));
}

bool qrnic_cable_ring_await_room(QrnicCableRing *r)
{
    uint32_t slots = r->shape.slots, quarter = slots / 4;

    qatomic_set(INDEX(r, ROOM_AT), cpu_to_le32(r->own - slots + quarter - 1));
    /*
     * The request is written before the last check, because otherwise an event
     * could be lost.
     */
    smp_mb();
    return qrnic_cable_ring_room(r) > 0;
}

const uint8_t *qrnic_cable_ring_peek(QrnicCableRing *r, uint32_t *len)
{
    uint8_t *at = slot(r, r->own);

    if (r->broken) {
        return NULL;
    }
    if (r->seen == r->own) {
        uint32_t produced =
            le32_to_cpu(qatomic_load_acquire(INDEX(r, PRODUCED)));

        if (produced - r->own > r->shape.slots) {
            r->broken = true;
            return NULL;
        }
        r->seen = produced;
        if (produced == r->own) {
            return NULL;
        }
    }
    *len = le32_to_cpu(qatomic_read((uint32_t *)
                                    (at + QRNIC_CABLE_SLOT_LENGTH_OFFSET)));
    if (*len < QRNIC_CABLE_SHORTEST || *len > r->shape.max_frame) {
        r->broken = true;
        return NULL;
    }
    return at + QRNIC_CABLE_SLOT_BYTES;
}

void qrnic_cable_ring_take(QrnicCableRing *r)
{
    r->own++;
    /*
     * The release orders all reads of the slot before the index, because the
     * sender may then overwrite the slot.
     */
    qatomic_store_release(INDEX(r, CONSUMED), cpu_to_le32(r->own));
}

bool qrnic_cable_ring_wants_room(QrnicCableRing *r)
{
    return wants_event(r, INDEX(r, ROOM_AT));
}

bool qrnic_cable_ring_await_frame(QrnicCableRing *r)
{
    qatomic_set(INDEX(r, WAKE_AT), cpu_to_le32(r->own));
    /*
     * The request is written before the last check, because otherwise an event
     * could be lost.
     */
    smp_mb();
    return r->seen != r->own ||
           le32_to_cpu(qatomic_read(INDEX(r, PRODUCED))) != r->own;
}
