/*
 * Two carriers that are connected, and their members: what the tests of shared
 * connections have in common
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_SHARED_WORLD_H
#define QRNIC_TEST_SHARED_WORLD_H

#include "pair.h"

#define PSN_A 0x123456          /* as sim_connect_default() has them */
#define MTU 1024u
#define MEMBERS 16
#define SLICE (PAIR_BYTES / MEMBERS)

typedef struct Shared Shared;
struct Shared {
    Sim *sim;
    SimQp *carrier[2];
    unsigned members;
    PairEnd end[MEMBERS][2];    /* all of one node have one memory */
    /* What the wire does */
    unsigned frames[2];         /* how many came from each node */
    uint32_t lost_psn;          /* of the carrier of node 0, once */
    bool cut;                   /* all is lost */
    /* Sees each frame; false: it is lost. */
    bool (*sees)(Shared *w, unsigned from, const QrnicPacket *p);
    unsigned seen;
};

/* The carriers only: in RESET, or connected */
Shared *carriers_apart(void);
Shared *carriers_new(uint8_t options, const SimConnect *connect);
Shared *shared_new(unsigned members, uint8_t options,
                   const SimConnect *connect);
void shared_free(Shared *w);
/* The queue pairs of a member, connected */
void member_init(Shared *w, unsigned m, const SimConnect *connect);

void settle(Shared *w);
void run_us(Shared *w, int64_t us);
uint64_t count(Shared *w, unsigned node, enum qrnic_counter c);
/* From node 0 to node 1 */
void send_to(Shared *w, unsigned m, uint8_t opcode, uint32_t len);
void expect_same(Shared *w, unsigned m, uint32_t len);
/* A member works, both ways. */
void expect_works(Shared *w, unsigned m);

#endif
