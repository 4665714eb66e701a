/*
 * qrnic engine: shared connections, for the reliable transport
 *
 * A carrier QP is a reliable connection whose messages are encapsulated
 * packets of its members, one packet each. A member is an RC queue pair whose
 * output is the carrier QP. The tables of operations in rc/ name the functions
 * below. Manual, chapter Shared connections.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_SHARED_H
#define QRNIC_ENGINE_SHARED_H

#include "engine/qp/qp.h"

/*
 * members.c: operations of RC queue pairs
 */
QrnicResult qrnic_member_modify_check(QrnicEngine *e, const QrnicQp *qp,
                                      const QrnicQpAttr *in, uint8_t to);
/*
 * Called on the transition to RESET. A member leaves its carrier QP, and is
 * entered into the context cache again.
 */
void qrnic_member_reset(QrnicEngine *e, QrnicQp *qp);
/* Called on the transition to RTR. Joins the carrier QP, if it names one. */
void qrnic_member_entered(QrnicEngine *e, QrnicQp *qp);
/* Called when a queue pair is freed. A member leaves its carrier QP. */
void qrnic_member_leave(QrnicQp *qp);

/*
 * members.c: operations of carrier QPs
 */
void qrnic_carrier_init(QrnicEngine *e, QrnicQp *qp);
/* Called after the requester is freed */
void qrnic_carrier_free(QrnicEngine *e, QrnicQp *qp);
bool qrnic_carrier_in_use(const QrnicQp *qp);
/* Fails all members, each when the carrier QP is scheduled. */
void qrnic_carrier_error_entered(QrnicEngine *e, QrnicQp *qp);
/* Schedules members that wait for room, if there is room. */
void qrnic_carrier_wake(QrnicEngine *e, QrnicQp *qp);

/*
 * carrier.c: operations of carrier QPs
 */
extern const QrnicStates qrnic_carrier_states;
QrnicResult qrnic_carrier_modify_check(QrnicEngine *e, const QrnicQp *qp,
                                       const QrnicQpAttr *in, uint8_t to);
/* Called on the transition to RTS, after qrnic_rc_start_send() */
void qrnic_carrier_start_send(QrnicEngine *e, QrnicQp *qp);
/* Appends the next encapsulated packet to the ring of the requester. */
bool qrnic_carrier_message_take(QrnicEngine *e, QrnicQp *qp);
/*
 * Called in ERR. Frees a packet, or else fails a member. Returns false if
 * neither is left.
 */
bool qrnic_carrier_flush_one(QrnicEngine *e, QrnicQp *qp);
/* Returns true if the request comes from the connected carrier QP. */
bool qrnic_carrier_accepts(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p);
/*
 * Returns true if the member can receive the encapsulated packet now, although
 * the carrier QP misses an earlier one.
 */
bool qrnic_encapsulated_is_next(QrnicEngine *e, QrnicQp *carrier,
                                const QrnicPacket *outer);
/*
 * Delivers the encapsulated packet to its member. A bad packet is dropped and
 * counted; the carrier QP is not affected.
 */
void qrnic_encapsulated_receive(QrnicEngine *e, QrnicQp *carrier,
                                const QrnicPacket *outer);

#endif
