/*
 * qrnic qtest: invalid and forged frames
 *
 * Owns a connection whose memory lies between two guards, a model of that
 * memory, and a copy of the counters. A test sends frames that a correct peer
 * never sends, then asserts exactly which counters and bytes changed.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_QTEST_CRAFTED_H
#define QRNIC_QTEST_CRAFTED_H

#include "driver.h"

#define CRAFTED_GUARD 4096u     /* Bytes of each guard */
#define CRAFTED_BYTES 8192u
#define CRAFTED_START 0x20000000ull
#define CRAFTED_MTU RIG_PACKET
/* Byte that frames write which the device must reject */
#define CRAFTED_BYTE 0x5a
#define CRAFTED_HONEST 4096u    /* Offset at which the correct peer writes */

/* Marks of the BTH (manual: Selective repeat, Adaptive routing) */
#define MARK_SELECTIVE 0x01
#define MARK_ALONE 0x02
#define MARK_MORE 0x04
#define MARK_PLACES 0x08
#define MARK_AGAIN(n) ((n) << 4)

typedef struct Crafted {
    Rig r;
    Mr mr;                      /* CRAFTED_BYTES, with all rights */
    uint8_t options;            /* Options of the queue pair */
    uint8_t image[CRAFTED_GUARD + CRAFTED_BYTES + CRAFTED_GUARD];
    uint64_t counters[QRNIC_NUM_COUNTERS];
} Crafted;

/* Starts the device and the connection. attr: as for rig_start(). */
void crafted_start(Crafted *c, const char *properties, const QrnicQpAttr *attr);
void crafted_stop(Crafted *c);
/*
 * Asserts which counters of transport and link have changed since the start or
 * the last call. The string names them in the order of the manual, with the
 * difference if it is not 1, as in "tx_ack rx_write=2".
 */
void crafted_counted(Crafted *c, const char *want);
/* Records in the model that part of the memory has this byte from now on. */
void crafted_wrote(Crafted *c, uint64_t offset, uint8_t byte, uint32_t length);
/* Asserts that all memory, guards included, is as in the model. */
void crafted_memory(Crafted *c);
/*
 * Asserts that memory is as in the model and that there is no completion, event
 * or frame.
 */
void crafted_quiet(Crafted *c);
void crafted_state(Crafted *c, uint8_t state);
/* Asserts that the queue pair is in ERR and has reported this event. */
void crafted_dead(Crafted *c, unsigned event);

/* Returns a packet of the peer with the marks of a correct peer. */
PeerPacket crafted_packet(const Crafted *c, uint8_t opcode, uint32_t psn);
/* Returns the next frame of the device, which has the marks of its options. */
PeerPacket crafted_answer(Crafted *c);
/*
 * Sends a write of one packet as a correct peer does, with AckReq, and records
 * it in the model. n: number of the write.
 */
void crafted_honest_write(Crafted *c, uint32_t psn, unsigned n);
/* Acts as crafted_honest_write() with the expected PSN, and asserts the ACK. */
void crafted_honest(Crafted *c, uint32_t psn, unsigned n);

#endif
