/*
 * qrnic cable: the rings in the shared memory of a cable
 *
 * The peer can write this memory at any time. So each value that decides is
 * read once and validated. An impossible index marks the ring as broken. No
 * length or position that the peer writes leads outside of the ring. Manual,
 * chapter "Cable".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_RING_H
#define QRNIC_CABLE_RING_H

#include "qrnic_hw.h"

/* Size of the shortest frame, an Ethernet header */
#define QRNIC_CABLE_SHORTEST 14

typedef struct QrnicRingShape {
    uint32_t slots;             /* a power of two */
    uint32_t stride;            /* bytes from a slot to the next */
    uint32_t max_frame;
} QrnicRingShape;

/* State that the sender or the receiver keeps for one direction of a cable */
typedef struct QrnicCableRing {
    uint8_t *control, *slots;   /* shared memory */
    QrnicRingShape shape;
    /* own index; the copy in shared memory is never read */
    uint32_t own;
    uint32_t seen;              /* index of the peer when last read */
    /* own index at the last decision about an event */
    uint32_t told;
    bool broken;                /* the peer wrote an impossible value */
} QrnicCableRing;

/**
 * qrnic_cable_ring_bytes:
 * @shape: shape of the ring, from this end or from the peer
 *
 * Returns: the bytes of one direction, a multiple of 4 KiB, or 0 if the shape
 * is invalid
 */
size_t qrnic_cable_ring_bytes(const QrnicRingShape *shape);
/**
 * qrnic_cable_ring_stride:
 * @max_frame: size of the largest frame
 *
 * Returns: the stride of the slots
 */
uint32_t qrnic_cable_ring_stride(uint32_t max_frame);
/**
 * qrnic_cable_ring_init:
 * @r: the ring to initialize
 * @memory: memory of one direction, zero before both ends begin
 * @shape: a valid shape
 */
void qrnic_cable_ring_init(QrnicCableRing *r, void *memory,
                           const QrnicRingShape *shape);

/* Functions for the sender */

/**
 * qrnic_cable_ring_room:
 * @r: the ring
 *
 * Returns: the number of frames that can certainly be sent now
 */
uint32_t qrnic_cable_ring_room(QrnicCableRing *r);
/**
 * qrnic_cable_ring_next:
 * @r: the ring, which has room
 *
 * Returns: the memory for the next frame, max_frame bytes
 */
uint8_t *qrnic_cable_ring_next(QrnicCableRing *r);
/**
 * qrnic_cable_ring_commit:
 * @r: the ring
 * @len: size of the frame
 *
 * Sends the frame at qrnic_cable_ring_next().
 */
void qrnic_cable_ring_commit(QrnicCableRing *r, uint32_t len);
/**
 * qrnic_cable_ring_wants_wake:
 * @r: the ring
 *
 * Returns: true if the receiver has requested an event for frames that were
 * sent since the last call
 */
bool qrnic_cable_ring_wants_wake(QrnicCableRing *r);
/**
 * qrnic_cable_ring_await_room:
 * @r: the ring
 *
 * Requests an event when a quarter of the ring is free.
 *
 * Returns: true if there is already room
 */
bool qrnic_cable_ring_await_room(QrnicCableRing *r);

/* Functions for the receiver */

/**
 * qrnic_cable_ring_peek:
 * @r: the ring
 * @len: receives the size of the frame
 *
 * Returns the next frame. The peer can change its bytes until
 * qrnic_cable_ring_take(). A frame with an impossible length marks the ring as
 * broken.
 *
 * Returns: the frame in shared memory, or NULL if there is none
 */
const uint8_t *qrnic_cable_ring_peek(QrnicCableRing *r, uint32_t *len);
/**
 * qrnic_cable_ring_take:
 * @r: the ring
 *
 * Releases the slot of the last qrnic_cable_ring_peek().
 */
void qrnic_cable_ring_take(QrnicCableRing *r);
/**
 * qrnic_cable_ring_wants_room:
 * @r: the ring
 *
 * Returns: true if the sender has requested an event for slots that were
 * released since the last call
 */
bool qrnic_cable_ring_wants_room(QrnicCableRing *r);
/**
 * qrnic_cable_ring_await_frame:
 * @r: the ring
 *
 * Requests an event for the next frame.
 *
 * Returns: true if there is already a frame
 */
bool qrnic_cable_ring_await_frame(QrnicCableRing *r);

#endif
