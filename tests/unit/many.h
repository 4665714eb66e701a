/*
 * Many queue pairs that share what they do not use alone: a CQ for each node,
 * and rings and records that nobody posts to.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_TEST_MANY_H
#define QRNIC_TEST_MANY_H

#include "sim.h"

#define MANY_SQ_LOG 3
#define MANY_SQ_BYTES (QRNIC_WQEBB_SIZE << MANY_SQ_LOG)

typedef struct ManyEnd {
    SimNode *node;
    SimQp cq;                   /* only its completions */
    uint64_t unused;
    uint64_t sq, records;       /* of those that send */
    uint32_t made, room;
} ManyEnd;

/* room: of queue pairs that send */
void many_end_init(ManyEnd *e, SimNode *n, unsigned cq_log, uint32_t room);
/* RC or XRC; one that does not send, and an XRC target, uses no room. */
SimQp many_qp(ManyEnd *e, uint8_t type, uint32_t xrcd, bool sends);
/* An XRC initiator with its target */
void many_xrc_connect(SimQp *initiator, SimQp *target);

#endif
