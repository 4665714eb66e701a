/*
 * The world of all tests of shared connections: two connected carriers and
 * their members
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_SHARED_WORLD_H
#define QRNIC_TEST_SHARED_WORLD_H

#include "pair.h"

#define PSN_A 0x123456          /* Values of sim_connect_default() */
#define MTU 1024u
#define MEMBERS 16
#define SLICE (PAIR_BYTES / MEMBERS)

typedef struct Shared Shared;
struct Shared {
    Sim *sim;
    SimQp *carrier[2];
    unsigned members;
    PairEnd end[MEMBERS][2];    /* All members of a node use one memory */
    /* Faults of the wire */
    unsigned frames[2];         /* Frames of each node */
    uint32_t lost_psn;          /* Carrier PSN of node 0 to lose once */
    bool cut;                   /* Loses all frames */
    /* Called for each frame. Returns false to lose the frame. */
    bool (*sees)(Shared *w, unsigned from, const QrnicPacket *p);
    unsigned seen;
};

/* Creates only the carriers, in RESET or connected. */
Shared *carriers_apart(void);
Shared *carriers_new(uint8_t options, const SimConnect *connect);
Shared *shared_new(unsigned members, uint8_t options,
                   const SimConnect *connect);
void shared_free(Shared *w);
/* Creates and connects the queue pairs of a member. */
void member_init(Shared *w, unsigned m, const SimConnect *connect);

void settle(Shared *w);
void run_us(Shared *w, int64_t us);
uint64_t count(Shared *w, unsigned node, enum qrnic_counter c);
/* Sends from node 0 to node 1. */
void send_to(Shared *w, unsigned m, uint8_t opcode, uint32_t len);
void expect_same(Shared *w, unsigned m, uint32_t len);
/* Asserts that a member works in both directions. */
void expect_works(Shared *w, unsigned m);

#endif
