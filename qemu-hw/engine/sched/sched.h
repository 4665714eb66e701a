/*
 * qrnic engine, floor sched: the doorbell FIFO and its recovery, whose turn it
 * is, the run loop, the life of the engine
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_SCHED_H
#define QRNIC_ENGINE_SCHED_H

#include "engine/transport/transport.h"

/* doorbell.c */
typedef struct QrnicDoorbellMessage {
    uint32_t page;
    uint16_t offset;            /* QRNIC_DB_* */
    uint8_t wqebbs;             /* direct: blocks in wqe */
    uint32_t number;
    uint32_t index;
    uint8_t wqe[QRNIC_DB_WINDOW_SIZE];
} QrnicDoorbellMessage;

/* Takes messages out of the FIFO; after a loss rereads records of the page. */
void qrnic_doorbells_process(QrnicEngine *e, unsigned budget);
void qrnic_doorbells_reset(QrnicEngine *e);

/* scheduler.c */
void qrnic_scheduler_run(QrnicEngine *e, unsigned budget);
bool qrnic_scheduler_pending(QrnicEngine *e);

typedef struct QrnicSched {
    uint8_t list;               /* enum QrnicReadyList: scheduled last */
    /* Priorities */
    uint8_t slots[QRNIC_PRIORITY_STRICT];       /* left, of weighted levels */
    uint8_t passed;             /* slots that others have waited */
    uint8_t relieved;           /* the level that waited and had one last */
    QrnicDoorbellMessage *fifo;
    uint32_t fifo_head, fifo_count;
} QrnicSched;

extern const QrnicFloor qrnic_sched_floor;

#endif
