/*
 * Two connected queue pairs with memory: the start of most transport tests
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_PAIR_H
#define QRNIC_TEST_PAIR_H

#include "sim.h"

#define PAIR_BYTES (1u << 20)
#define ACCESS_ALL (QRNIC_ACCESS_LOCAL_WRITE | QRNIC_ACCESS_REMOTE_WRITE | \
                    QRNIC_ACCESS_REMOTE_READ | QRNIC_ACCESS_REMOTE_ATOMIC)

/* One side. All its memory has one key and PAIR_BYTES bytes. */
typedef struct PairEnd {
    SimQp *qp;
    uint64_t addr;
    uint8_t *data;              /* The memory at addr */
    uint32_t key;
} PairEnd;

typedef struct Pair {
    Sim *sim;
    PairEnd a, b;
} Pair;

Pair *pair_new(uint32_t seed, const SimOptions *o, const SimConnect *c);
void pair_free(Pair *p);
void pair_fill(Pair *p);        /* Random bytes in both */

/*
 * Posts a signaled request of one data segment. offset: in from's memory;
 * remote_offset: in the memory of to.
 */
void post(PairEnd *from, PairEnd *to, uint8_t opcode, uint64_t offset,
          uint64_t remote_offset, uint32_t len);
void post_recv(PairEnd *e, uint64_t offset, uint32_t len);

/*
 * Creates an indirect key of length pieces, each one byte of end's memory. A
 * packet through this key causes the most work. q: posts the list, and belongs
 * to end's node.
 */
uint32_t key_of_bytes(SimQp *q, const PairEnd *end, uint32_t length);

/*
 * Delivers a packet to this side, as if the peer had sent it. data NULL: bytes
 * 0x5a.
 */
void pair_inject(Pair *p, PairEnd *to, const QrnicTransport *t,
                 const uint8_t *data, uint32_t len);

QrnicCqe expect_cqe(SimQp *q, uint8_t status, uint8_t opcode);
QrnicCqe expect_status(SimQp *q, uint8_t status);
void expect_no_cqe(SimQp *q);
void expect_event(SimNode *n, uint8_t type, uint32_t object);
void expect_no_event(SimNode *n);
void expect_state(SimQp *q, uint8_t state);

#endif
