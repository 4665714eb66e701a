/*
 * qrnic cable: the memory of a cable, as one end of it sees it
 *
 * The other end can write all of it at any time. What decides is read once;
 * an index that cannot be makes the cable broken, and no length or position
 * of its choice reaches beyond the ring.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_RING_H
#define QRNIC_CABLE_RING_H

#include "qrnic_hw.h"

/* Shorter ones are no Ethernet frames. */
#define QRNIC_CABLE_SHORTEST 14

typedef struct QrnicRingShape {
    uint32_t slots;             /* a power of two */
    uint32_t stride;            /* bytes from a slot to the next */
    uint32_t max_frame;
} QrnicRingShape;

/* One direction of the cable, at its sender's or its receiver's end */
typedef struct QrnicCableRing {
    uint8_t *control, *slots;   /* shared memory */
    QrnicRingShape shape;
    uint32_t own;               /* our index, which we alone believe */
    uint32_t seen;              /* the other end's when last looked at */
    uint32_t told;              /* our index when an event was last decided */
    bool broken;                /* the other end wrote what cannot be */
} QrnicCableRing;

/* Bytes of one direction, a multiple of 4 KiB; 0: no such shape. */
size_t qrnic_cable_ring_bytes(const QrnicRingShape *shape);
/* The stride for a largest frame */
uint32_t qrnic_cable_ring_stride(uint32_t max_frame);
/* memory: the bytes of one direction, zero when both ends begin */
void qrnic_cable_ring_init(QrnicCableRing *r, void *memory,
                           const QrnicRingShape *shape);

/*
 * The sender's end
 */

/* Frames that can be sent now, at most */
uint32_t qrnic_cable_ring_room(QrnicCableRing *r);
/* Where the next frame goes, of max_frame bytes. There must be room. */
uint8_t *qrnic_cable_ring_next(QrnicCableRing *r);
/* Sends it: len bytes of it. */
void qrnic_cable_ring_commit(QrnicCableRing *r, uint32_t len);
/* The receiver wants its event for what was sent since the last call. */
bool qrnic_cable_ring_wants_wake(QrnicCableRing *r);
/*
 * Asks for an event when a quarter of the ring is free. True: there is some
 * room already.
 */
bool qrnic_cable_ring_await_room(QrnicCableRing *r);

/*
 * The receiver's end
 */

/*
 * The next frame, or NULL. Its bytes are the other end's to change until
 * qrnic_cable_ring_take(). One that is too long or too short to be a frame
 * breaks the cable.
 */
const uint8_t *qrnic_cable_ring_peek(QrnicCableRing *r, uint32_t *len);
void qrnic_cable_ring_take(QrnicCableRing *r);
/* The sender wants its event for what was taken since the last call. */
bool qrnic_cable_ring_wants_room(QrnicCableRing *r);
/* Asks for an event when there is a frame. True: there is one already. */
bool qrnic_cable_ring_await_frame(QrnicCableRing *r);

#endif
