/*
 * qrnic engine, layer sched: doorbells, the scheduler, the run loop, and the
 * life of the engine
 *
 * The device enters this highest layer through engine.h only. The functions
 * below connect the files of the layer.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_SCHED_H
#define QRNIC_ENGINE_SCHED_H

#include "engine/transport/transport.h"

/* Doorbell in the FIFO */
typedef struct QrnicDoorbellMessage {
    uint32_t page;
    uint16_t offset;            /* QRNIC_DB_* */
    uint8_t wqebbs;             /* direct doorbell: blocks in wqe; else 0 */
    uint32_t number;
    uint32_t index;
    uint8_t wqe[QRNIC_DB_WINDOW_SIZE];
} QrnicDoorbellMessage;

/**
 * qrnic_doorbells_process:
 * @e: the engine
 * @budget: maximum number of doorbells
 *
 * Processes doorbells of the FIFO. Then checks some queues of the pages that
 * lost a doorbell.
 */
void qrnic_doorbells_process(QrnicEngine *e, unsigned budget);
/**
 * qrnic_doorbells_reset:
 * @e: the engine
 *
 * Empties the doorbell FIFO.
 */
void qrnic_doorbells_reset(QrnicEngine *e);

/**
 * qrnic_scheduler_run:
 * @e: the engine
 * @budget: maximum number of slots
 *
 * Gives slots to ready queue pairs until none is ready, or a budget is
 * exhausted.
 */
void qrnic_scheduler_run(QrnicEngine *e, unsigned budget);
/**
 * qrnic_scheduler_pending:
 * @e: the engine
 *
 * Returns: true if a queue pair is ready and may be scheduled
 */
bool qrnic_scheduler_pending(QrnicEngine *e);

typedef struct QrnicSched {
    uint8_t list;               /* enum QrnicReadyList of the last slot */
    /* slots left for each weighted level */
    uint8_t slots[QRNIC_PRIORITY_STRICT];
    /* slots of a strict level while others waited */
    uint8_t passed;
    uint8_t relieved;           /* level that got the last relief slot */
    QrnicDoorbellMessage *fifo;
    uint32_t fifo_head, fifo_count;
} QrnicSched;

extern const QrnicFloor qrnic_sched_floor;

#endif
