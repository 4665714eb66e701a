/*
 * qrnic link: the replay buffer: frames that are not yet acknowledged
 *
 * link.c puts each frame of the port here, gets the next frame to send, and
 * reports acknowledgements and timeouts.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_LINK_REPLAY_H
#define QRNIC_LINK_REPLAY_H

typedef struct QrnicLinkSlot {
    uint8_t *frame;             /* with room for the headers before it */
    uint32_t length;            /* of the payload frame */
    bool lost;                  /* to be retransmitted */
    bool arrived;               /* arrived, but an earlier frame has not */
    bool again;                 /* was retransmitted */
    uint64_t order;             /* order of its last transmission */
    int64_t sent_ns;
} QrnicLinkSlot;

typedef struct QrnicLinkReplay {
    QrnicLinkSlot *slot;        /* by number, modulo the size */
    uint32_t mask;
    uint32_t window;            /* maximum number of frames */
    size_t room;                /* maximum number of bytes */
    uint32_t first;             /* oldest number that is not acknowledged */
    /* first number not yet sent; number of the next new frame */
    uint32_t unsent, next;
    uint32_t lost;              /* number of lost frames */
    size_t bytes;
    uint64_t order;
} QrnicLinkReplay;

/* Result of an acknowledgement */
typedef struct QrnicLinkNews {
    bool progress;
    /* time of the last acknowledged frame that was sent only once, or -1 */
    int64_t sent_ns;
} QrnicLinkNews;

/**
 * qrnic_link_replay_init:
 * @r: the replay buffer to initialize
 * @window: maximum number of frames
 * @room: maximum number of bytes
 */
void qrnic_link_replay_init(QrnicLinkReplay *r, uint32_t window, size_t room);
/**
 * qrnic_link_replay_cleanup:
 * @r: the replay buffer
 *
 * Frees all frames and the memory of the buffer.
 */
void qrnic_link_replay_cleanup(QrnicLinkReplay *r);
/**
 * qrnic_link_replay_reset:
 * @r: the replay buffer
 * @number: number of the next frame
 *
 * Drops all frames.
 *
 * Returns: the number of dropped frames that had not arrived
 */
uint32_t qrnic_link_replay_reset(QrnicLinkReplay *r, uint32_t number);
/**
 * qrnic_link_replay_full:
 * @r: the replay buffer
 * @window: window that both ends have agreed on
 *
 * Returns: true if no frame may be put
 */
bool qrnic_link_replay_full(const QrnicLinkReplay *r, uint32_t window);
/**
 * qrnic_link_replay_put:
 * @r: the replay buffer, which is not full
 * @frame: the payload frame; copied
 * @len: its size in bytes
 *
 * Appends a frame to send.
 */
void qrnic_link_replay_put(QrnicLinkReplay *r, const uint8_t *frame,
                           size_t len);
/**
 * qrnic_link_replay_waits:
 * @r: the replay buffer
 *
 * Returns: true if a frame is to be sent
 */
bool qrnic_link_replay_waits(const QrnicLinkReplay *r);
/**
 * qrnic_link_replay_owed:
 * @r: the replay buffer
 *
 * Returns: true if a sent frame is not acknowledged
 */
bool qrnic_link_replay_owed(const QrnicLinkReplay *r);
/**
 * qrnic_link_replay_take:
 * @r: the replay buffer; qrnic_link_replay_waits() returns true
 * @now: time in ns
 * @number: receives the number of the frame
 *
 * Returns: the next frame to send; lost frames come before new ones. The buffer
 * keeps the frame.
 */
QrnicLinkSlot *qrnic_link_replay_take(QrnicLinkReplay *r, int64_t now,
                                      uint32_t *number);
/**
 * qrnic_link_replay_heard:
 * @r: the replay buffer
 * @ack: first number that the peer has not received
 * @map: bit n is set if frame @ack + 1 + n has arrived
 * @news: receives the result
 *
 * Processes an acknowledgement, and detects lost frames.
 *
 * Returns: true, or false if the acknowledgement covers a frame that was never
 * sent; then nothing was done
 */
bool qrnic_link_replay_heard(QrnicLinkReplay *r, uint32_t ack, uint64_t map,
                             QrnicLinkNews *news);
/**
 * qrnic_link_replay_timeout:
 * @r: the replay buffer
 *
 * Marks the oldest frame that has not arrived as lost.
 */
void qrnic_link_replay_timeout(QrnicLinkReplay *r);

#endif
