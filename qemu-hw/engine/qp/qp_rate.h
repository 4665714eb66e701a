/*
 * qrnic engine, layer qp: rate of a queue pair
 *
 * Two limits apply: the rate limit of MODIFY_QP (rate/pace.c), and the rate of
 * congestion control (rate/reaction.c). A requester calls qrnic_pace_wait()
 * before each packet. path.c charges each sent frame. The demultiplexer passes
 * CNPs to the reaction point and CE marks to the notification point.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QP_RATE_H
#define QRNIC_ENGINE_QP_RATE_H

#include "engine/qp/qp.h"

/* rate/reaction.c: the reaction point */

/* Reduces the rate because a CNP has arrived. */
void qrnic_congestion_notified(QrnicEngine *e, QrnicQp *qp);
/* Returns true if this flag of QRNIC_CONGESTION_* is enabled. */
bool qrnic_congestion_has(const QrnicEngine *e, uint8_t flag);

/* rate/notification.c: the notification point */

bool qrnic_mark_counts(const QrnicEngine *e, const QrnicPacket *p);
/**
 * qrnic_packet_is_marked:
 * @e: engine
 * @p: received packet
 *
 * Returns: true if the packet has a CE mark and the notification point is
 * enabled
 */
static inline bool qrnic_packet_is_marked(const QrnicEngine *e,
                                          const QrnicPacket *p)
{
    return (p->h->traffic_class & QRNIC_ECN_MASK) == QRNIC_ECN_CE &&
           qrnic_mark_counts(e, p);
}
/*
 * Makes a CNP to the peer pending, because the peer has sent a marked packet. A
 * minimum time must pass between two CNPs of a queue pair.
 */
void qrnic_notification_owe(QrnicEngine *e, QrnicQp *qp);

/*
 * rate/pace.c: rate limit of the queue pair, combined with congestion control
 */

bool qrnic_pace_ask(QrnicEngine *e, QrnicQp *qp);
static inline bool qrnic_pace_is_limited(const QrnicQp *qp)
{
    return qp->attr.rate_limit || qp->congestion;
}
/**
 * qrnic_pace_wait:
 * @e: engine
 * @qp: queue pair that has a request to send
 *
 * Returns: true if the rate forbids to send now; the queue pair is scheduled
 * when it may send
 */
static inline bool qrnic_pace_wait(QrnicEngine *e, QrnicQp *qp)
{
    return (qrnic_pace_is_limited(qp) ||
            qp->pace_timer.deadline != QRNIC_DEADLINE_NEVER) &&
           qrnic_pace_ask(e, qp);
}
/**
 * qrnic_pace_response_wait:
 * @e: engine
 * @qp: queue pair with a read response to send
 *
 * Applies congestion control only, because the rate limit of MODIFY_QP is for
 * requests.
 *
 * Returns: true if the rate forbids to send now; the queue pair is scheduled
 * when it may send
 */
bool qrnic_pace_response_wait(QrnicEngine *e, QrnicQp *qp);
/* Charges a sent request of len bytes to both limits. */
void qrnic_pace_charge(QrnicEngine *e, QrnicQp *qp, size_t len);

#endif
