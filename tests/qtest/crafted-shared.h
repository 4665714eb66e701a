/*
 * qrnic qtest: invalid and forged frames to carriers and their members
 *
 * Adds two carriers of one path to the connection of crafted.h, which is not a
 * member. The test is the peer of both carriers and of their members.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_QTEST_CRAFTED_SHARED_H
#define QRNIC_QTEST_CRAFTED_SHARED_H

#include "crafted.h"

#define MEMBERS 3               /* The last member uses the other carrier */
#define ELSEWHERE (MEMBERS - 1)
/* Numbers of the peer's queue pairs */
#define PEER_CARRIER 0xabcde0u
#define PEER_OTHER (PEER_CARRIER + 1)
#define PEER_MEMBER(m) (0x765400u + (m))
/* First PSN of the device, and first expected PSN */
#define CARRIER_SQ_PSN 0xfffffdu
#define CARRIER_RQ_PSN 0x7ffffeu
#define MEMBER_SQ_PSN(m) (0x100000u * ((m) + 1))
#define MEMBER_RQ_PSN(m) (0x0ffffeu + 0x100000u * (m))

#define WORD 4                  /* Bytes between the BTH and the inner packet */
#define BTH 12
#define INNER_MAX (CRAFTED_MTU + 512)
#define SACK_BYTES 40           /* Bytes of a SACK behind its AETH */
#define SELECTIVE QRNIC_QPO_SELECTIVE_REPEAT
#define TIMEOUT_NS(n) ((4096ll << (n)) + SCALE_MS)
#define DROPPED(why) .counted = "rx_drop_" why
/* The PSN of packet n of a connection whose first PSN is base */
#define AT(base, n) (((base) + (n)) & 0xffffff)

typedef struct Shared {
    Crafted c;
    Qp carrier, other, member[MEMBERS];
    uint8_t options;            /* Options of the carriers */
    uint32_t psn;               /* Next PSN of the peer */
    uint32_t sent;              /* Next PSN of the device */
    uint32_t written[MEMBERS];  /* Packets that the peer has sent */
    uint8_t bytes[WORD + INNER_MAX];
    /* Frames of the device that a caller did not expect yet */
    struct {
        uint8_t bytes[PEER_FRAME_MAX];
        size_t len;
    } early[4];
    unsigned num_early;
} Shared;

/* Starts the device with all queue pairs in RTS. options: of the carriers. */
void shared_start(Shared *s, uint8_t options);
/*
 * Starts the device. The carrier stays in RESET and has no members; the other
 * carrier is in RTS.
 */
void shared_start_alone(Shared *s);
/* Moves members 0 and 1 to the carrier, which is in RTR or RTS. */
void shared_join(Shared *s);
void shared_stop(Shared *s);
/*
 * Moves a carrier from RESET to RTR on the common path. attr: names the peer.
 */
void carrier_to_rtr(Shared *s, Qp *carrier, const QrnicQpAttr *attr);
void carrier_to_rts(Shared *s, Qp *carrier, const QrnicQpAttr *attr);
QrnicQpAttr carrier_attr(uint32_t dest_qpn, uint8_t options);
/* Moves a member to this state, which is INIT to RTS, or ERR. */
void member_enter(Shared *s, unsigned m, uint8_t state);
void shared_expect_state(Shared *s, const Qp *qp, uint8_t state);

/* Returns a packet of the peer's member. */
PeerPacket member_packet(const Shared *s, unsigned m, uint8_t opcode,
                         uint32_t psn);
/*
 * Returns a write of HONEST bytes, and does not record it in the model. n:
 * number of the write.
 */
#define HONEST 64
PeerPacket member_write(Shared *s, unsigned m, uint32_t psn, unsigned n);
/* Returns a write of CRAFTED_BYTE that the device must reject. */
PeerPacket member_forgery(Shared *s, unsigned m);
/*
 * Returns the ENCAPSULATED packet with this inner packet. The inner packet is
 * in s->bytes behind WORD, so that a test can corrupt it.
 */
PeerPacket shared_carry(Shared *s, const PeerPacket *inner, uint32_t psn);
/* Returns an introduction: an ENCAPSULATED packet without an inner packet. */
PeerPacket shared_introduction(Shared *s, uint32_t psn);
void shared_send(Shared *s, const PeerPacket *inner, uint32_t psn);
/* Sends the peer's next write and records it in the model. */
void shared_write(Shared *s, unsigned m, uint32_t psn, unsigned n);

/*
 * Asserts the next frame of the device. Responses and ENCAPSULATED packets are
 * ordered separately. shared_next_inner() returns the inner packet, or zeros
 * for an introduction.
 */
void shared_expect_answer(Shared *s, uint8_t opcode, uint8_t syndrome,
                          uint32_t psn);
void shared_expect_ack(Shared *s, uint32_t psn);
/* Asserts a SACK for packets behind the peer's next one. */
void shared_expect_sack(Shared *s);
PeerPacket shared_next_inner(Shared *s, PeerPacket *outer);
PeerPacket shared_expect_inner(Shared *s, unsigned m, uint8_t opcode,
                                 uint32_t psn);
/*
 * Returns a response of the peer to the carrier. shared_ack() acknowledges all
 * packets.
 */
PeerPacket shared_answer(const Shared *s, uint8_t opcode, uint32_t psn,
                         uint8_t syndrome);
void shared_ack(Shared *s);
/*
 * Returns a SACK. missing: relative to the device's first PSN; arrived: one bit
 * for each PSN from there.
 */
PeerPacket shared_sack(Shared *s, uint32_t missing, uint8_t arrived);
/* Corrupts a packet of any kind. */
void wrong_source(Shared *s, PeerPacket *p);
void wrong_vlan(Shared *s, PeerPacket *p);
void wrong_icrc(Shared *s, PeerPacket *p);
void wrong_pkey(Shared *s, PeerPacket *p);
/* Asserts that only these counters have changed and that there is no frame. */
void shared_quiet(Shared *s, const char *counted);
/* Sends a write to each member of the carrier, and asserts its ACK. */
void shared_works(Shared *s, unsigned n);
/* Posts a WQE to a member. The caller consumes the packets. */
void member_post(Shared *s, unsigned m, uint8_t opcode, uint32_t length);
/* Sends a response of the peer's member. */
void member_answer(Shared *s, unsigned m, uint32_t psn, uint8_t syndrome,
                   uint32_t carrier_psn);
void member_completed(Shared *s, unsigned m, unsigned status, unsigned opcode,
                      unsigned syndrome);
void shared_expect_event(Shared *s, unsigned event, const Qp *qp);

/* Registers a test under the name of its rule. */
void shared_add(const char *rule, const char *suffix,
                void (*test)(const void *opaque), const void *opaque);

#endif
