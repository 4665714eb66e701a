/*
 * qrnic engine, transport: reliable connections, for dynamic/, shared/ and XRC
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A connection has a requester and a responder. Both share a queue pair. The
 * requester never calls the responder; the responder calls only
 * qrnic_rendezvous_*() of the requester. Private headers define the structures:
 * requester/requester.h and responder/responder.h. The file connection.c has
 * the tables of operations and calls both.
 *
 * In the order of a connection: init, start_receive (RTR), start_send (RTS),
 * then step, receive and timer in any order, flush_one in ERR, and cleanup.
 * InfiniBand specification, 9.7.
 */

#ifndef QRNIC_ENGINE_RC_H
#define QRNIC_ENGINE_RC_H

#include "engine/transport/transport.h"
#include "engine/transport/rc/reliability.h"

/* Largest number of PSNs in flight, except those of reads */
#define QRNIC_WINDOW            256u

/* Returns the header members that all packets of a connection share. */
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

/**
 * qrnic_reliable_transmit:
 * @e: engine
 * @qp: queue pair of a reliable type
 * @budget: largest number of packets
 * @respond: sends at most one response, returns true if it did; or NULL
 * @request: sends at most one request, returns true if it did; or NULL
 *
 * Alternates between responses and requests until the budget is spent or
 * neither can send (connection.c).
 *
 * Returns: list of the scheduler in which the queue pair waits
 */
typedef bool QrnicStep(QrnicEngine *e, QrnicQp *qp);
QrnicReadyList qrnic_reliable_transmit(QrnicEngine *e, QrnicQp *qp,
                                       unsigned budget, QrnicStep *respond,
                                       QrnicStep *request);
void qrnic_reliable_cleanup(QrnicEngine *e, QrnicQp *qp);

/* requester/ */

static inline bool qrnic_requester_may_run(const QrnicQp *qp)
{
    return qp->state == QRNIC_QPS_RTS || qp->state == QRNIC_QPS_SQD;
}

void qrnic_requester_init(QrnicEngine *e, QrnicQp *qp);
void qrnic_rc_start_send(QrnicEngine *e, QrnicQp *qp);          /* in RTS */
void qrnic_requester_attr_changed(QrnicEngine *e, QrnicQp *qp);
/* Returns true if no message is in flight. */
bool qrnic_requester_idle(const QrnicQp *qp);
/* Returns true if no read, atomic or flush is in flight. */
bool qrnic_requester_has_no_read(const QrnicQp *qp);
uint32_t qrnic_requester_next_psn(const QrnicQp *qp);
/* Returns the oldest PSN without a response; the next PSN if there is none. */
uint32_t qrnic_requester_oldest_psn(const QrnicQp *qp);
/*
 * Restarts the transport timer, because an output that buffers packets has
 * delivered a request that needs a response.
 */
void qrnic_requester_delivered(QrnicEngine *e, QrnicQp *qp);
/* Sends at most one packet. Returns false if no request can be sent now. */
bool qrnic_requester_step(QrnicEngine *e, QrnicQp *qp);
/**
 * qrnic_requester_receive:
 * @e: engine
 * @qp: queue pair in a state that receives responses
 * @p: ACK, NAK, SACK or response, validated by the demultiplexer
 *
 * Processes a response, which may complete messages or fail the queue pair.
 */
void qrnic_requester_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
void qrnic_requester_timer(QrnicEngine *e, QrnicQp *qp);
/*
 * Continues after a page fault of its own memory: the page is there, or
 * software has rejected it.
 */
void qrnic_requester_resume(QrnicEngine *e, QrnicQp *qp);
/**
 * qrnic_requester_fail:
 * @e: engine
 * @qp: queue pair whose ring is not empty
 * @status: completion status of the oldest message
 * @syndrome: reason for the CQE
 *
 * Completes the oldest message with an error and takes the queue pair to ERR
 * (9.9.2.1). An event reports the error if the message has no CQE.
 */
void qrnic_requester_fail(QrnicEngine *e, QrnicQp *qp, uint8_t status,
                          uint8_t syndrome);
/* Completes the oldest message as flushed. Returns false if there is none. */
bool qrnic_requester_flush_one(QrnicEngine *e, QrnicQp *qp);

/*
 * Source of messages that are not in the send queue. The source either writes a
 * WQE that describes the message, or has built the payload of its only packet.
 */
typedef struct QrnicMessageSource {
    void (*wqe)(const void *object, QrnicSendWqe *w);
    uint32_t (*pd)(const QrnicQp *qp);  /* PD of the keys in the WQE */

    uint8_t opcode;             /* opcode of the packet */
    uint16_t counter;           /* enum qrnic_counter of packets sent first */
    void (*copy)(const void *object, uint8_t *to);      /* the payload */
    /* returns true if another message follows at once */
    bool (*follows)(const QrnicQp *qp);

    /*
     * Completes the message, in place of a CQE of the send queue, and frees the
     * object.
     */
    void (*complete)(QrnicEngine *e, QrnicQp *qp, void *object, uint8_t status,
                     uint8_t syndrome);
    /* returns true if no CQE reports a failure */
    bool (*is_silent)(const void *object);
    void (*free)(QrnicEngine *e, void *object);
} QrnicMessageSource;

/*
 * Returns true if the ring has room. Otherwise the requester is blocked until
 * an ACK arrives.
 */
bool qrnic_requester_has_room(QrnicEngine *e, QrnicQp *qp);
/*
 * Appends a message of one packet, with a payload of len bytes, to the ring.
 * The ring must have room.
 */
void qrnic_requester_append(QrnicEngine *e, QrnicQp *qp,
                            const QrnicMessageSource *source, void *object,
                            uint32_t len);

/* Suspends the requester of a carrier until the number of its peer is known. */
void qrnic_requester_suspend(QrnicEngine *e, QrnicQp *qp);
void qrnic_requester_continue(QrnicEngine *e, QrnicQp *qp);

/*
 * Dynamic connections. qrnic_requester_connect() suspends requests until
 * CONNECT is sent; with wait of qrnic_requester_connect_sent(), until the
 * target accepts.
 */
void qrnic_requester_connect(QrnicEngine *e, QrnicQp *qp);
bool qrnic_requester_connect_is_due(const QrnicQp *qp);
void qrnic_requester_connect_sent(QrnicEngine *e, QrnicQp *qp, bool wait);
/**
 * qrnic_requester_connect_again:
 * @e: engine
 * @qp: dynamic initiator
 * @ns: time to wait
 * @syndrome: syndrome of a failure
 *
 * Sends CONNECT again after ns, because the target has no free responder.
 *
 * Returns: true if the requester waits; false if it waits already, or if no RNR
 * retry was left and the queue pair has failed
 */
bool qrnic_requester_connect_again(QrnicEngine *e, QrnicQp *qp, int64_t ns,
                                   uint8_t syndrome);
void qrnic_requester_connected(QrnicEngine *e, QrnicQp *qp);
/* Returns true if CONNECT has not been accepted yet. */
bool qrnic_requester_is_connecting(const QrnicQp *qp);

/*
 * rendezvous.c: entry of a tag list whose data is in the memory of the sender
 */
uint32_t qrnic_rendezvous_length(const QrnicTag *t);
void qrnic_rendezvous_trace(QrnicEngine *e, const QrnicQp *qp,
                            const QrnicTag *t, const char *what);
/* Reads the data of an entry that has matched. */
void qrnic_rendezvous_ask(QrnicEngine *e, QrnicQp *qp, QrnicTag *t);

/* responder/ */

void qrnic_responder_init(QrnicEngine *e, QrnicQp *qp);
void qrnic_responder_cleanup(QrnicEngine *e, QrnicQp *qp);
void qrnic_rc_start_receive(QrnicEngine *e, QrnicQp *qp);       /* in RTR */
uint32_t qrnic_responder_expected_psn(const QrnicQp *qp);
/**
 * qrnic_responder_receive:
 * @e: engine
 * @qp: queue pair in a state that receives requests
 * @p: request, validated by the demultiplexer
 *
 * Compares the PSN, and executes, buffers or drops the request. Replies become
 * pending; qrnic_responder_step() sends them later.
 */
void qrnic_responder_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
/* Sends at most one reply. Returns false if none can be sent now. */
bool qrnic_responder_step(QrnicEngine *e, QrnicQp *qp);
/*
 * Continues after a page fault of a response: the page is there, or software
 * has rejected it.
 */
void qrnic_responder_resume(QrnicEngine *e, QrnicQp *qp);
/*
 * Fails a responder of a dynamic target, in place of a transition to ERR. From
 * then on the same NAK answers all requests.
 */
void qrnic_responder_fail(QrnicEngine *e, QrnicQp *qp);
/* Times of a dynamic connection: CONNECT accepted, last packet arrived */
typedef struct QrnicConnectionTimes {
    int64_t accepted, used;
} QrnicConnectionTimes;

QrnicConnectionTimes *qrnic_responder_times(const QrnicQp *qp);
/* Returns true if replies are pending and the responder has not failed. */
bool qrnic_responder_is_busy(const QrnicQp *qp);
/*
 * Returns the number of the SRQ of the current message of an XRC target; 0:
 * none.
 */
uint32_t qrnic_responder_srqn(const QrnicQp *qp);
/*
 * Ends the use of an SRQ by an XRC target, because the SRQ is about to be
 * destroyed.
 */
void qrnic_responder_srq_destroyed(QrnicEngine *e, QrnicQp *qp, uint32_t srqn);

#endif
