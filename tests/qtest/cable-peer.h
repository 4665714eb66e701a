/*
 * qrnic qtest: the other end of a cable
 *
 * Written from the manual alone; it shares nothing with the device's end but
 * the contract's offsets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_PEER_H
#define QRNIC_CABLE_PEER_H

#include "hw/rdma/qrnic/qrnic_hw.h"

typedef struct CablePeer {
    int fd;
    uint8_t *memory;
    size_t bytes;
    uint32_t slots, stride, max_frame;
    uint8_t *out, *in;          /* the two directions */
    uint32_t produced, consumed;
} CablePeer;

/* A hello that agrees with everything; nonce decides who makes the memory. */
QrnicCableMessage cable_hello(uint64_t nonce);

void cable_message_send(int fd, const QrnicCableMessage *m, int descriptor);
/* Waits for one; asserts its type. *descriptor may be NULL. */
QrnicCableMessage cable_message_expect(int fd, unsigned type, int *descriptor);
/* Waits until the other end has hung up. */
void cable_expect_end(int fd);

/* Sealed memory of that many bytes */
int cable_memory_new(size_t bytes, unsigned seals);

/* Everything up to the moment when the cable is up at this end. */
CablePeer *cable_peer_connect(int fd, bool makes_memory);
void cable_peer_free(CablePeer *p);

/* The member of a direction's control */
uint32_t *cable_index(uint8_t *direction, unsigned offset);
void cable_peer_wake(CablePeer *p);
void cable_peer_send(CablePeer *p, const uint8_t *frame, size_t len);
bool cable_peer_pending(CablePeer *p);
/* Waits for a frame and takes it. */
size_t cable_peer_receive(CablePeer *p, uint8_t *frame, size_t room);

#endif
