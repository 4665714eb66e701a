/*
 * qrnic link: frames that were sent, or are to be, and have not been
 * acknowledged
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_LINK_REPLAY_H
#define QRNIC_LINK_REPLAY_H

typedef struct QrnicLinkSlot {
    uint8_t *frame;             /* with room for the headers in front */
    uint32_t length;            /* of the payload frame */
    bool lost;                  /* it is to be sent again */
    bool arrived;               /* but one before it has not */
    bool again;                 /* it was sent more than once */
    uint64_t order;             /* of its last transmission among all */
    int64_t sent_ns;
} QrnicLinkSlot;

typedef struct QrnicLinkReplay {
    QrnicLinkSlot *slot;        /* by number */
    uint32_t mask;
    uint32_t window;            /* frames that may be here */
    size_t room;                /* and bytes */
    uint32_t first;             /* the oldest that is not acknowledged */
    uint32_t unsent, next;      /* never sent; of the next frame from above */
    uint32_t lost;              /* slots that are */
    size_t bytes;
    uint64_t order;
} QrnicLinkReplay;

/* What an acknowledgement told */
typedef struct QrnicLinkNews {
    bool progress;
    int64_t sent_ns;            /* of the last sent just once; -1: none */
} QrnicLinkNews;

void qrnic_link_replay_init(QrnicLinkReplay *r, uint32_t window, size_t room);
void qrnic_link_replay_cleanup(QrnicLinkReplay *r);
/* Empty; the next frame has this number. Returns how many were dropped. */
uint32_t qrnic_link_replay_reset(QrnicLinkReplay *r, uint32_t number);
/* No frame may be put. */
bool qrnic_link_replay_full(const QrnicLinkReplay *r, uint32_t window);
void qrnic_link_replay_put(QrnicLinkReplay *r, const uint8_t *frame,
                           size_t len);
/* There is a frame to send. */
bool qrnic_link_replay_waits(const QrnicLinkReplay *r);
/* Some were sent and are not acknowledged. */
bool qrnic_link_replay_owed(const QrnicLinkReplay *r);
/* The next to send: what is lost before what is new. There must be one. */
QrnicLinkSlot *qrnic_link_replay_take(QrnicLinkReplay *r, int64_t now,
                                      uint32_t *number);
/* False: it acknowledges what was never sent; nothing was done. */
bool qrnic_link_replay_heard(QrnicLinkReplay *r, uint32_t ack, uint64_t map,
                             QrnicLinkNews *news);
/* Nothing was heard for too long: the oldest is taken for lost. */
void qrnic_link_replay_timeout(QrnicLinkReplay *r);

#endif
