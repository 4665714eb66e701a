/*
 * qrnic engine, transport: shared connections, for the reliable transport
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A carrier QP is a reliable connection whose messages are encapsulated packets
 * of its members, one packet in each message. A member is an RC queue pair
 * whose output is the carrier QP. The tables of operations in rc/connection.c
 * name the functions below.
 *
 * A member joins in the transition to RTR and leaves in RESET or when it is
 * freed. Manual, chapter Shared connections.
 */

#ifndef QRNIC_ENGINE_SHARED_H
#define QRNIC_ENGINE_SHARED_H

#include "engine/qp/qp.h"

/**
 * qrnic_member_modify_check:
 * @e: engine
 * @qp: RC queue pair
 * @in: attributes of MODIFY_QP
 * @to: new state
 *
 * Checks the carrier QP that MODIFY_QP names (members.c). Without one there is
 * nothing to check.
 *
 * Returns: ST_OK; ST_BAD_OBJECT if the carrier QP does not exist; ST_BAD_STATE
 * unless in RTR or RTS; ST_BAD_PARAM for a larger path MTU or options
 */
QrnicResult qrnic_member_modify_check(QrnicEngine *e, const QrnicQp *qp,
                                      const QrnicQpAttr *in, uint8_t to);
/*
 * Runs in the transition to RESET. A member leaves its carrier QP, and gets a
 * context in the cache again.
 */
void qrnic_member_reset(QrnicEngine *e, QrnicQp *qp);
/*
 * Runs after the transition to RTR. The queue pair joins the carrier QP that
 * its attributes name, if any.
 */
void qrnic_member_entered(QrnicEngine *e, QrnicQp *qp);
/* Removes a member from its carrier QP, because the queue pair is freed. */
void qrnic_member_leave(QrnicQp *qp);

/*
 * members.c: operations of carrier QPs. The first function creates the carrier
 * state, or clears its queue in RESET.
 */
void qrnic_carrier_init(QrnicEngine *e, QrnicQp *qp);
/* Frees the carrier state. Called after the requester is freed. */
void qrnic_carrier_free(QrnicEngine *e, QrnicQp *qp);
bool qrnic_carrier_in_use(const QrnicQp *qp);
/* Begins to fail all members, one in each step of the flush. */
void qrnic_carrier_error_entered(QrnicEngine *e, QrnicQp *qp);
/* Schedules members that wait for room, if there is room. */
void qrnic_carrier_wake(QrnicEngine *e, QrnicQp *qp);

/*
 * carrier.c: operations of carrier QPs. The check rejects RESET while members
 * exist, and a path MTU that leaves no room for the encapsulation.
 */
extern const QrnicStates qrnic_carrier_states;
QrnicResult qrnic_carrier_modify_check(QrnicEngine *e, const QrnicQp *qp,
                                       const QrnicQpAttr *in, uint8_t to);
/* Runs after the transition to RTS and after qrnic_rc_start_send(). */
void qrnic_carrier_start_send(QrnicEngine *e, QrnicQp *qp);
/*
 * Appends the next encapsulated packet to the ring of the requester. Returns
 * false if there is none or the ring is full.
 */
bool qrnic_carrier_message_take(QrnicEngine *e, QrnicQp *qp);
/*
 * Frees a packet, or else fails a member, in ERR. Returns false if neither is
 * left.
 */
bool qrnic_carrier_flush_one(QrnicEngine *e, QrnicQp *qp);
/**
 * qrnic_carrier_accepts:
 * @e: engine
 * @qp: carrier QP
 * @p: request
 *
 * Checks the sender of a request. A carrier QP that does not know its peer
 * learns the number from the first request with the expected PSN.
 *
 * Returns: true if the request comes from the connected carrier QP; otherwise
 * the request is counted as dropped
 */
bool qrnic_carrier_accepts(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
/**
 * qrnic_encapsulated_is_next:
 * @e: engine
 * @carrier: carrier QP
 * @outer: packet with the encapsulated packet, received out of order
 *
 * Decides if an encapsulated packet may be delivered before an earlier one.
 *
 * Returns: true if the member can receive the packet now
 */
bool qrnic_encapsulated_is_next(QrnicEngine *e, QrnicQp *carrier,
                                const QrnicPacket *outer);
/**
 * qrnic_encapsulated_receive:
 * @e: engine
 * @carrier: carrier QP
 * @outer: packet with the encapsulated packet
 *
 * Delivers the encapsulated packet to its member. A bad packet is dropped and
 * counted; the carrier QP is not affected.
 */
void qrnic_encapsulated_receive(QrnicEngine *e, QrnicQp *carrier,
                                const QrnicPacket *outer);

#endif
