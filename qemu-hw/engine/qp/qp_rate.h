/*
 * qrnic engine, floor qp: how fast a queue pair may send: rate limit, and
 * congestion control (folder rate/)
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QP_RATE_H
#define QRNIC_ENGINE_QP_RATE_H

#include "engine/qp/qp.h"

/*
 * rate/reaction.c: the reaction point
 */

/* Reduces the rate because a CNP has arrived. */
void qrnic_congestion_notified(QrnicEngine *e, QrnicQp *qp);
/* Returns true if one of QRNIC_CONGESTION_* is enabled. */
bool qrnic_congestion_has(const QrnicEngine *e, uint8_t flag);

/*
 * rate/notification.c: the notification point
 */

bool qrnic_mark_counts(const QrnicEngine *e, const QrnicPacket *p);
/* Returns true if the packet met congestion and the port sends CNPs. */
static inline bool qrnic_packet_is_marked(const QrnicEngine *e,
                                          const QrnicPacket *p)
{
    return (p->h->traffic_class & QRNIC_ECN_MASK) == QRNIC_ECN_CE &&
           qrnic_mark_counts(e, p);
}
/* Makes a CNP to the peer pending because it has sent a marked packet. */
void qrnic_notification_owe(QrnicEngine *e, QrnicQp *qp);

/*
 * rate/pace.c: the rate limit of the queue pair, and the rate that congestion
 * leaves it
 */

bool qrnic_pace_ask(QrnicEngine *e, QrnicQp *qp);
static inline bool qrnic_pace_is_limited(const QrnicQp *qp)
{
    return qp->attr.rate_limit || qp->congestion;
}
/* Returns true if it may not send now; it is scheduled when it may. */
static inline bool qrnic_pace_wait(QrnicEngine *e, QrnicQp *qp)
{
    return (qrnic_pace_is_limited(qp) ||
            qp->pace_timer.deadline != QRNIC_DEADLINE_NEVER) &&
           qrnic_pace_ask(e, qp);
}
/* The same for read responses, which only congestion limits */
bool qrnic_pace_response_wait(QrnicEngine *e, QrnicQp *qp);
/* Accounts for a frame that the SQ has sent. */
void qrnic_pace_charge(QrnicEngine *e, QrnicQp *qp, size_t len);

#endif
