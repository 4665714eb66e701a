/*
 * qrnic link: frames that arrived, in order or before others
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_LINK_ARRIVAL_H
#define QRNIC_LINK_ARRIVAL_H

typedef struct QrnicLinkBuffered {
    uint8_t *frame;             /* NULL: it has not arrived */
    uint32_t length;
} QrnicLinkBuffered;

typedef struct QrnicLinkArrival {
    QrnicLinkBuffered *slot;        /* by number */
    uint32_t mask, window;
    uint32_t expected;          /* the next to hand up */
    uint32_t ack;               /* the first that has not arrived */
    uint32_t top;               /* behind the last that has */
} QrnicLinkArrival;

typedef enum QrnicLinkArrived {
    QRNIC_LINK_NEXT,            /* to be handed up now */
    QRNIC_LINK_HELD,
    QRNIC_LINK_DUPLICATE,
    QRNIC_LINK_BEYOND,          /* the window */
} QrnicLinkArrived;

void qrnic_link_arrival_init(QrnicLinkArrival *a, uint32_t window);
void qrnic_link_arrival_cleanup(QrnicLinkArrival *a);
/* Empty; the next frame has this number. */
void qrnic_link_arrival_reset(QrnicLinkArrival *a, uint32_t number);
/* gap: some before it have not arrived, as is seen now for the first time. */
QrnicLinkArrived qrnic_link_arrival_put(QrnicLinkArrival *a, uint32_t number,
                                        const uint8_t *frame, size_t len,
                                        bool *gap);
/* What arrived behind the first that has not */
uint64_t qrnic_link_arrival_map(const QrnicLinkArrival *a);
/* Some that are held are in order. */
bool qrnic_link_arrival_waits(const QrnicLinkArrival *a);
/* The next of them, which is the caller's to free. */
uint8_t *qrnic_link_arrival_take(QrnicLinkArrival *a, size_t *len);

#endif
