/*
 * qrnic link: received frames, delivered in order or buffered out of order
 *
 * link.c passes each received DATA frame to qrnic_link_arrival_put(). An
 * in-order frame is delivered at once; any other frame is buffered until the
 * missing frames before it have arrived.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_LINK_ARRIVAL_H
#define QRNIC_LINK_ARRIVAL_H

typedef struct QrnicLinkBuffered {
    uint8_t *frame;             /* NULL if it has not arrived */
    uint32_t length;
} QrnicLinkBuffered;

typedef struct QrnicLinkArrival {
    QrnicLinkBuffered *slot;        /* by number, modulo the size */
    uint32_t mask, window;
    uint32_t expected;          /* next number to deliver */
    uint32_t ack;               /* first number that has not arrived */
    uint32_t top;               /* number after the last that has arrived */
} QrnicLinkArrival;

/* Result of qrnic_link_arrival_put() */
typedef enum QrnicLinkArrived {
    QRNIC_LINK_NEXT,            /* in order: deliver it now */
    /* buffered */
    QRNIC_LINK_HELD,
    QRNIC_LINK_DUPLICATE,
    QRNIC_LINK_BEYOND,          /* outside of the window */
} QrnicLinkArrived;

/**
 * qrnic_link_arrival_init:
 * @a: the buffer to initialize
 * @window: maximum number of buffered frames
 */
void qrnic_link_arrival_init(QrnicLinkArrival *a, uint32_t window);
/**
 * qrnic_link_arrival_cleanup:
 * @a: the buffer
 *
 * Frees all frames and the memory of the buffer.
 */
void qrnic_link_arrival_cleanup(QrnicLinkArrival *a);
/**
 * qrnic_link_arrival_reset:
 * @a: the buffer
 * @number: number of the next expected frame
 *
 * Drops all buffered frames.
 */
void qrnic_link_arrival_reset(QrnicLinkArrival *a, uint32_t number);
/**
 * qrnic_link_arrival_put:
 * @a: the buffer
 * @number: number of the frame
 * @frame: the payload frame; copied if it is buffered
 * @len: its size in bytes
 * @gap: set if frames before it are missing, and no earlier call has detected
 *   that
 *
 * Returns: any value of QrnicLinkArrived
 */
QrnicLinkArrived qrnic_link_arrival_put(QrnicLinkArrival *a, uint32_t number,
                                        const uint8_t *frame, size_t len,
                                        bool *gap);
/**
 * qrnic_link_arrival_map:
 * @a: the buffer
 *
 * Returns: a bit for each arrived frame; bit n stands for number ack + 1 + n
 */
uint64_t qrnic_link_arrival_map(const QrnicLinkArrival *a);
/**
 * qrnic_link_arrival_waits:
 * @a: the buffer
 *
 * Returns: true if a buffered frame is in order and can be delivered
 */
bool qrnic_link_arrival_waits(const QrnicLinkArrival *a);
/**
 * qrnic_link_arrival_take:
 * @a: the buffer; qrnic_link_arrival_waits() returns true
 * @len: receives the size in bytes
 *
 * Returns: the next frame, which the caller frees
 */
uint8_t *qrnic_link_arrival_take(QrnicLinkArrival *a, size_t *len);

#endif
