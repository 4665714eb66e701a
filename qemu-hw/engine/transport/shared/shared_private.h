/*
 * qrnic engine, transport: private header of shared connections
 *
 * Defines the state of a carrier QP and of a member. A packet of a member is
 * first in the queue of the carrier QP. Then it is in the ring of the requester
 * until the peer has acknowledged it. Only members.c and carrier.c include this
 * header.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_SHARED_PRIVATE_H
#define QRNIC_ENGINE_SHARED_PRIVATE_H

#include "engine/transport/rc/rc.h"
#include "engine/transport/shared/shared.h"

typedef struct QrnicEncapsulated QrnicEncapsulated;

/*
 * Packet of a member, from the time it is sent until the peer has acknowledged
 * it
 */
struct QrnicEncapsulated {
    QTAILQ_ENTRY(QrnicEncapsulated) next;
    QLIST_ENTRY(QrnicEncapsulated) of_member;
    QrnicCarrier *carrier;
    QrnicMember *member;        /* NULL: the member has left */
    bool request;
    bool asks;                  /* request that needs a response */
    uint32_t last_psn;          /* last PSN that this request uses */
    uint32_t transmission;      /* transmission of the member's requests */
    uint32_t len, room;
    uint8_t data[];             /* from the BTH on, without an ICRC */
};

struct QrnicCarrier {
    QrnicQp *qp;
    QTAILQ_HEAD(, QrnicMember) members;
    /* members that wait for room, longest wait first */
    QTAILQ_HEAD(, QrnicMember) waiting;
    uint64_t waits;             /* number of waits that have begun */
    QrnicMember *failing;       /* next member to fail, in ERR; or NULL */
    QTAILQ_HEAD(, QrnicEncapsulated) queue;
    uint32_t queued;            /* packets in the queue */
    uint32_t kept;              /* packets in the queue and in flight */
    QrnicEncapsulated *open_packet;     /* opened, but not sent; or NULL */
};

struct QrnicMember {
    QrnicQp *qp;
    QrnicCarrier *carrier;
    QTAILQ_ENTRY(QrnicMember) next, next_waiting;
    uint64_t waits_since;       /* place among waiting members; 0: none */
    /* packets without acknowledgement */
    QLIST_HEAD(, QrnicEncapsulated) packets;
    uint32_t requests;          /* requests among these packets */
    /*
     * Counts the transmissions that begin at the oldest request. Each packet
     * stores the value at its time.
     */
    uint32_t transmission;
    /*
     * Delivery of a request that needs a response, in the latest transmission,
     * and the last PSN of this request
     */
    bool delivered;
    uint32_t delivered_psn;
};

/* members.c: the queue of packets, and members */
void qrnic_carrier_introduce(QrnicEngine *e, QrnicCarrier *c);
void qrnic_carrier_queue_clear(QrnicEngine *e, QrnicCarrier *c);
/* Returns the oldest packet of the queue, which the caller frees; or NULL. */
QrnicEncapsulated *qrnic_carrier_dequeue(QrnicCarrier *c);
void qrnic_encapsulated_free(QrnicEngine *e, QrnicEncapsulated *p);
/* Frees a packet that the peer's carrier QP has acknowledged. */
void qrnic_encapsulated_acknowledged(QrnicEngine *e, QrnicEncapsulated *p);
/* Returns the next member to fail, in ERR; or NULL. */
QrnicMember *qrnic_carrier_next_failing(QrnicCarrier *c);
void qrnic_member_carrier_failed(QrnicEngine *e, QrnicQp *qp,
                                 uint8_t syndrome);

#endif
