/*
 * qrnic engine: shared connections, within their folder: the state of a carrier
 * QP and of a member
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_SHARED_PRIVATE_H
#define QRNIC_ENGINE_SHARED_PRIVATE_H

#include "engine/transport/rc/rc.h"
#include "engine/transport/shared/shared.h"

typedef struct QrnicEncapsulated QrnicEncapsulated;

/* The packet of a member from when it is sent to when the peer has it */
struct QrnicEncapsulated {
    QTAILQ_ENTRY(QrnicEncapsulated) next;
    QLIST_ENTRY(QrnicEncapsulated) of_member;
    QrnicCarrier *carrier;
    QrnicMember *member;        /* NULL: the member has left */
    uint32_t len, room;
    uint8_t data[];             /* from the BTH on, without an ICRC */
};

struct QrnicCarrier {
    QrnicQp *qp;
    QTAILQ_HEAD(, QrnicMember) members;
    QTAILQ_HEAD(, QrnicMember) waiting; /* for room; the longest wait first */
    uint64_t waits;             /* how many waits have begun */
    QrnicMember *failing;       /* in ERR: the next member to fail, or NULL */
    QTAILQ_HEAD(, QrnicEncapsulated) queue;
    uint32_t queued;            /* packets in the queue */
    uint32_t kept;              /* packets in the queue and in flight */
    QrnicEncapsulated *open_packet;     /* opened and not sent; or NULL */
};

struct QrnicMember {
    QrnicQp *qp;
    QrnicCarrier *carrier;
    QTAILQ_ENTRY(QrnicMember) next, next_waiting;
    uint64_t waits_since;       /* place among waiting members; 0: none */
    QLIST_HEAD(, QrnicEncapsulated) packets;    /* sent, not acknowledged */
};

/* members.c */
void qrnic_carrier_introduce(QrnicEngine *e, QrnicCarrier *c);
void qrnic_carrier_queue_clear(QrnicEngine *e, QrnicCarrier *c);
/* Returns the oldest packet of the queue, which the caller frees; or NULL. */
QrnicEncapsulated *qrnic_carrier_dequeue(QrnicCarrier *c);
void qrnic_encapsulated_free(QrnicEngine *e, QrnicEncapsulated *p);
/* In ERR: returns the next member to fail, or NULL. */
QrnicMember *qrnic_carrier_next_failing(QrnicCarrier *c);
void qrnic_member_carrier_failed(QrnicEngine *e, QrnicQp *qp,
                                 uint8_t syndrome);

#endif
