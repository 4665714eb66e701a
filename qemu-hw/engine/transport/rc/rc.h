/*
 * qrnic engine: reliable connections: what dynamic connections, shared
 * connections and XRC know of them
 *
 * A connection has a requester and a responder, which share a queue pair and
 * nothing else. Their structures are private: requester/requester.h and
 * responder/responder.h. connection.c has the tables of operations and calls
 * both. InfiniBand specification, chapter 9.7.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_RC_H
#define QRNIC_ENGINE_RC_H

#include "engine/transport/transport.h"
#include "engine/transport/rc/reliability.h"

/* PSNs sent and not acknowledged, reads aside. */
#define QRNIC_WINDOW            256u

/* What all packets of a connection say of it */
static inline QrnicTransport qrnic_connection_transport(const QrnicQp *qp,
                                                        uint8_t opcode,
                                                        uint32_t psn)
{
    return (QrnicTransport) {
        .opcode = opcode | qrnic_qp_service(qp),
        .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = qp->attr.dest_qpn,
        .psn = psn,
        .mark = (qp->attr.options & QRNIC_QPO_SELECTIVE_REPEAT ?
                 QRNIC_MARK_SELECTIVE : 0) |
                (qp->attr.options & QRNIC_QPO_ADAPTIVE_ROUTING ?
                 QRNIC_MARK_PLACES : 0),
        .src_qpn = qrnic_qp_known(qp)->number,
        .connection = qp->connection,
    };
}

/*
 * connection.c: alternates between responses and requests, or other packets
 * that these functions send, at most one each; NULL: there are none.
 */
typedef bool QrnicStep(QrnicEngine *e, QrnicQp *qp);
QrnicReadyList qrnic_reliable_transmit(QrnicEngine *e, QrnicQp *qp,
                                       unsigned budget, QrnicStep *respond,
                                       QrnicStep *request);
void qrnic_reliable_cleanup(QrnicEngine *e, QrnicQp *qp);

/*
 * The requester
 */

static inline bool qrnic_requester_may_run(const QrnicQp *qp)
{
    return qp->state == QRNIC_QPS_RTS || qp->state == QRNIC_QPS_SQD;
}

void qrnic_requester_init(QrnicEngine *e, QrnicQp *qp);
void qrnic_rc_start_send(QrnicEngine *e, QrnicQp *qp);          /* to RTS */
void qrnic_requester_attr_changed(QrnicEngine *e, QrnicQp *qp);
/* Returns true if no message is in flight. */
bool qrnic_requester_idle(const QrnicQp *qp);
/* Returns true if no RDMA READ or atomic operation is in flight. */
bool qrnic_requester_has_no_read(const QrnicQp *qp);
uint32_t qrnic_requester_next_psn(const QrnicQp *qp);
/* Sends at most one packet. Returns false if it has none, or must wait. */
bool qrnic_requester_step(QrnicEngine *e, QrnicQp *qp);
/* A response, parsed and checked */
void qrnic_requester_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
void qrnic_requester_timer(QrnicEngine *e, QrnicQp *qp);
/* The page of a page fault is there, or software has refused it. */
void qrnic_requester_resume(QrnicEngine *e, QrnicQp *qp);
/* Completes the oldest message with an error: to ERR (9.9.2.1). */
void qrnic_requester_fail(QrnicEngine *e, QrnicQp *qp, uint8_t status,
                          uint8_t syndrome);
/* Completes the oldest message as flushed. Returns false if there is none. */
bool qrnic_requester_flush_one(QrnicEngine *e, QrnicQp *qp);

/*
 * The source of messages that are not in the send queue. A WQE that the source
 * writes describes the message, or the message is one packet that the source
 * has built.
 */
typedef struct QrnicMessageSource {
    void (*wqe)(const void *object, QrnicSendWqe *w);
    uint32_t (*pd)(const QrnicQp *qp);  /* of the keys in the WQE */

    uint8_t opcode;             /* of the packet */
    uint16_t counter;           /* enum qrnic_counter: packets sent once */
    void (*copy)(const void *object, uint8_t *to);      /* its payload */
    bool (*follows)(const QrnicQp *qp); /* another message follows at once */

    /* In place of a CQE of the send queue; releases the object. */
    void (*complete)(QrnicEngine *e, QrnicQp *qp, void *object, uint8_t status,
                     uint8_t syndrome);
    bool (*is_silent)(const void *object);      /* no CQE reports a failure */
    void (*free)(QrnicEngine *e, void *object);
} QrnicMessageSource;

/* Returns true if the ring has room; else the requester waits for an ACK. */
bool qrnic_requester_has_room(QrnicEngine *e, QrnicQp *qp);
/* Appends a message of one packet, with a payload of len bytes, to the ring. */
void qrnic_requester_append(QrnicEngine *e, QrnicQp *qp,
                            const QrnicMessageSource *source, void *object,
                            uint32_t len);

/* A carrier sends nothing until it knows the number of its peer. */
void qrnic_requester_suspend(QrnicEngine *e, QrnicQp *qp);
void qrnic_requester_continue(QrnicEngine *e, QrnicQp *qp);

/*
 * Dynamic connections: CONNECT is due. Requests wait until it has been sent,
 * and if wait, until the target has accepted it.
 */
void qrnic_requester_connect(QrnicEngine *e, QrnicQp *qp);
bool qrnic_requester_connect_is_due(const QrnicQp *qp);
void qrnic_requester_connect_sent(QrnicEngine *e, QrnicQp *qp, bool wait);
/*
 * The target has no responder: CONNECT is due again in ns. Returns false if it
 * is due already, or the queue pair has failed with this syndrome.
 */
bool qrnic_requester_connect_again(QrnicEngine *e, QrnicQp *qp, int64_t ns,
                                   uint8_t syndrome);
void qrnic_requester_connected(QrnicEngine *e, QrnicQp *qp);
/* Returns true if CONNECT has not been accepted. */
bool qrnic_requester_is_connecting(const QrnicQp *qp);

/*
 * rendezvous.c: an entry of a tag list whose data is at the sender
 */
uint32_t qrnic_rendezvous_length(const QrnicTag *t);
void qrnic_rendezvous_trace(QrnicEngine *e, const QrnicQp *qp,
                            const QrnicTag *t, const char *what);
/* Reads the data of an entry that has matched. */
void qrnic_rendezvous_ask(QrnicEngine *e, QrnicQp *qp, QrnicTag *t);

/*
 * The responder
 */

void qrnic_responder_init(QrnicEngine *e, QrnicQp *qp);
void qrnic_responder_cleanup(QrnicEngine *e, QrnicQp *qp);
void qrnic_rc_start_receive(QrnicEngine *e, QrnicQp *qp);       /* to RTR */
uint32_t qrnic_responder_expected_psn(const QrnicQp *qp);
/* A request, parsed and checked */
void qrnic_responder_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
/* Sends at most one reply. Returns false if none is pending. */
bool qrnic_responder_step(QrnicEngine *e, QrnicQp *qp);
/* The page of a page fault is there, or software has refused it. */
void qrnic_responder_resume(QrnicEngine *e, QrnicQp *qp);
/*
 * Dynamic connections: in place of going to ERR. All requests are answered with
 * the same NAK from now on.
 */
void qrnic_responder_fail(QrnicEngine *e, QrnicQp *qp);
/* Dynamic connections: CONNECT was accepted; the last packet has arrived. */
typedef struct QrnicConnectionTimes {
    int64_t accepted, used;
} QrnicConnectionTimes;

QrnicConnectionTimes *qrnic_responder_times(const QrnicQp *qp);
/* Returns true if replies are pending and the responder has not failed. */
bool qrnic_responder_is_busy(const QrnicQp *qp);
/* XRC: the SRQ that it receives into now; 0: none */
uint32_t qrnic_responder_srqn(const QrnicQp *qp);
/* XRC: this SRQ is about to be destroyed. */
void qrnic_responder_srq_destroyed(QrnicEngine *e, QrnicQp *qp, uint32_t srqn);

#endif
