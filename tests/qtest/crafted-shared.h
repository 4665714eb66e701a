/*
 * qrnic qtest: frames that no honest end sends, to carriers and their members
 *
 * Beside the connection that all tests with crafted frames have, which is no
 * member, there are two carriers of one path. The test is the other end of
 * both, and of the members.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_QTEST_CRAFTED_SHARED_H
#define QRNIC_QTEST_CRAFTED_SHARED_H

#include "crafted.h"

#define MEMBERS 3               /* the last one is of the other carrier */
#define ELSEWHERE (MEMBERS - 1)
/* Numbers at the test's end */
#define PEER_CARRIER 0xabcde0u
#define PEER_OTHER (PEER_CARRIER + 1)
#define PEER_MEMBER(m) (0x765400u + (m))
/* What the device sends first, and what it expects */
#define CARRIER_SQ_PSN 0xfffffdu
#define CARRIER_RQ_PSN 0x7ffffeu
#define MEMBER_SQ_PSN(m) (0x100000u * ((m) + 1))
#define MEMBER_RQ_PSN(m) (0x0ffffeu + 0x100000u * (m))

#define WORD 4                  /* between BTH and inner packet */
#define BTH 12
#define INNER_MAX (CRAFTED_MTU + 512)
#define SACK_BYTES 40           /* behind an AETH */
#define SELECTIVE QRNIC_QPO_SELECTIVE_REPEAT
#define TIMEOUT_NS(n) ((4096ll << (n)) + SCALE_MS)
#define DROPPED(why) .counted = "rx_drop_" why
/* A packet is this one of its connection. */
#define AT(base, n) (((base) + (n)) & 0xffffff)

typedef struct Shared {
    Crafted c;
    Qp carrier, other, member[MEMBERS];
    uint8_t options;            /* of the carriers */
    uint32_t psn;               /* the next one of the other end */
    uint32_t sent;              /* the next one of the device */
    uint32_t written[MEMBERS];  /* packets that the other end has sent */
    uint8_t bytes[WORD + INNER_MAX];
    /* Frames of the device that are not asked for yet */
    struct {
        uint8_t bytes[PEER_FRAME_MAX];
        size_t len;
    } early[4];
    unsigned num_early;
} Shared;

/* Everything in RTS; options: of the carriers */
void shared_start(Shared *s, uint8_t options);
/* The carrier is in RESET, and has no members; the other one has. */
void shared_start_alone(Shared *s);
/* Members 0 and 1 join it, in RTR or RTS. */
void shared_join(Shared *s);
void shared_stop(Shared *s);
/* From RESET, on the path that all have; attr: also who is at the other end */
void carrier_to_rtr(Shared *s, Qp *carrier, const QrnicQpAttr *attr);
void carrier_to_rts(Shared *s, Qp *carrier, const QrnicQpAttr *attr);
QrnicQpAttr carrier_attr(uint32_t dest_qpn, uint8_t options);
/* A member in this state, which need not be one yet: INIT to RTS, or ERR */
void member_enter(Shared *s, unsigned m, uint8_t state);
void shared_expect_state(Shared *s, const Qp *qp, uint8_t state);

/* A packet of a member of the other end */
PeerPacket member_packet(const Shared *s, unsigned m, uint8_t opcode,
                         uint32_t psn);
/* A write of HONEST bytes, number n of all; the model does not know yet. */
#define HONEST 64
PeerPacket member_write(Shared *s, unsigned m, uint32_t psn, unsigned n);
/* One that should not be there at all writes CRAFTED_BYTE to the start. */
PeerPacket member_forgery(Shared *s, unsigned m);
/*
 * The frame that carries it; what it carries is s->bytes behind WORD, and may
 * still be spoiled.
 */
PeerPacket shared_carry(Shared *s, const PeerPacket *inner, uint32_t psn);
/* Nothing is in it. */
PeerPacket shared_introduction(Shared *s, uint32_t psn);
void shared_send(Shared *s, const PeerPacket *inner, uint32_t psn);
/* The next one of the other end, to be executed: the model knows. */
void shared_write(Shared *s, unsigned m, uint32_t psn, unsigned n);

/*
 * The next frames of the device: answers and ENCAPSULATED packets have an order
 * each. next: what it carries, and zeroes of an introduction
 */
void shared_expect_answer(Shared *s, uint8_t opcode, uint8_t syndrome,
                          uint32_t psn);
void shared_expect_ack(Shared *s, uint32_t psn);
/* Of what came behind the next one of the other end */
void shared_expect_sack(Shared *s);
PeerPacket shared_next_inner(Shared *s, PeerPacket *outer);
PeerPacket shared_expect_inner(Shared *s, unsigned m, uint8_t opcode,
                                 uint32_t psn);
/* An answer of the other end, as to the carrier; ack: all is acknowledged */
PeerPacket shared_answer(const Shared *s, uint8_t opcode, uint32_t psn,
                         uint8_t syndrome);
void shared_ack(Shared *s);
/* missing, from the device's first PSN on; arrived: from it on, bit by bit */
PeerPacket shared_sack(Shared *s, uint32_t missing, uint8_t arrived);
/* What spoils a packet, whatever it is */
void wrong_source(Shared *s, PeerPacket *p);
void wrong_vlan(Shared *s, PeerPacket *p);
void wrong_icrc(Shared *s, PeerPacket *p);
void wrong_pkey(Shared *s, PeerPacket *p);
/* Nothing but these counters has changed since, and nothing comes. */
void shared_quiet(Shared *s, const char *counted);
/* Each member of the carrier takes a write, and its ACK comes. */
void shared_works(Shared *s, unsigned n);
/* A member of the device posts; its packets are not taken here. */
void member_post(Shared *s, unsigned m, uint8_t opcode, uint32_t length);
/* The other end answers one of its packets. */
void member_answer(Shared *s, unsigned m, uint32_t psn, uint8_t syndrome,
                   uint32_t carrier_psn);
void member_completed(Shared *s, unsigned m, unsigned status, unsigned opcode,
                      unsigned syndrome);
void shared_expect_event(Shared *s, unsigned event, const Qp *qp);

/* Registration: each under the name of its rule */
void shared_add(const char *rule, const char *suffix,
                void (*test)(const void *opaque), const void *opaque);

#endif
