/*
 * qrnic qtest: frames that no honest end sends
 *
 * A connection whose memory lies between bytes that are nobody's, a model of
 * all of that, and the counters that a frame has changed.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_QTEST_CRAFTED_H
#define QRNIC_QTEST_CRAFTED_H

#include "driver.h"

#define CRAFTED_GUARD 4096u     /* bytes of nobody on either side */
#define CRAFTED_BYTES 8192u
#define CRAFTED_START 0x20000000ull
#define CRAFTED_MTU RIG_PACKET
/* What frames write that should not be there, and what honest ones write */
#define CRAFTED_BYTE 0x5a
#define CRAFTED_HONEST 4096u    /* where the honest end writes */

/* Marks of the BTH (manual: Selective repeat, Adaptive routing) */
#define MARK_SELECTIVE 0x01
#define MARK_ALONE 0x02
#define MARK_MORE 0x04
#define MARK_PLACES 0x08
#define MARK_AGAIN(n) ((n) << 4)

typedef struct Crafted {
    Rig r;
    Mr mr;                      /* CRAFTED_BYTES, with all rights */
    uint8_t options;            /* of the queue pair */
    uint8_t image[CRAFTED_GUARD + CRAFTED_BYTES + CRAFTED_GUARD];
    uint64_t counters[QRNIC_NUM_COUNTERS];
} Crafted;

/* attr: as for rig_start() */
void crafted_start(Crafted *c, const char *properties, const QrnicQpAttr *attr);
void crafted_stop(Crafted *c);
/*
 * Since the start or the last call just these counters of transport and link
 * have changed, by 1 where no number is said: "tx_ack rx_write=2", in the order
 * of the manual.
 */
void crafted_counted(Crafted *c, const char *want);
/* Some of the memory is to have this byte from now on. */
void crafted_wrote(Crafted *c, uint64_t offset, uint8_t byte, uint32_t length);
/* All memory is as it is to be. */
void crafted_memory(Crafted *c);
/* And nothing was completed, no event came and no frame */
void crafted_quiet(Crafted *c);
void crafted_state(Crafted *c, uint8_t state);
/* The queue pair has gone to ERR, with this event. */
void crafted_dead(Crafted *c, unsigned event);

/* A packet of the peer with the marks of an honest one */
PeerPacket crafted_packet(const Crafted *c, uint8_t opcode, uint32_t psn);
/* The next frame of the device, which has the marks of its options */
PeerPacket crafted_answer(Crafted *c);
/*
 * The honest end writes one packet, number n of its own, which asks for an
 * answer; the model knows.
 */
void crafted_honest_write(Crafted *c, uint32_t psn, unsigned n);
/* The same with the PSN that is expected; the answer to it is an ACK. */
void crafted_honest(Crafted *c, uint32_t psn, unsigned n);

#endif
