/*
 * Many queue pairs with little memory. Each node has one CQ, and all idle
 * queues share rings and records, because no test posts to them.
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
    SimQp cq;                   /* Only its completions are used */
    uint64_t unused;
    /* Rings and records of the queue pairs that send */
    uint64_t sq, records;
    uint32_t made, room;
} ManyEnd;

/* Creates the common objects. room: number of queue pairs that send. */
void many_end_init(ManyEnd *e, SimNode *n, unsigned cq_log, uint32_t room);
/*
 * Creates an RC or XRC queue pair. An XRC target, and a queue pair that does
 * not send, uses no room.
 */
SimQp many_qp(ManyEnd *e, uint8_t type, uint32_t xrcd, bool sends);
/* Connects an XRC initiator with its target. */
void many_xrc_connect(SimQp *initiator, SimQp *target);

#endif
