/*
 * qrnic engine, transport: private header of dynamic connections
 *
 * An initiator is a requester that connects to the target of each WQE. A target
 * owns a fixed number of responders, and gives one to each connected initiator.
 * The files initiator.c and target.c have the tables of operations of both
 * types. The file target.c calls the functions below. The idle timer of
 * responder.c also calls qrnic_dynamic_responder_stop(). Manual, chapter
 * Dynamic connections.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_DYNAMIC_H
#define QRNIC_ENGINE_DYNAMIC_H

#include "engine/transport/rc/rc.h"

/* Returns true if the number a is newer than b. */
static inline bool qrnic_connection_newer(uint32_t a, uint32_t b)
{
    return qrnic_psn_diff(a, b) > 0;
}

/*
 * responder.c: responder of a target. In RTS it has a connection; otherwise it
 * is in RESET.
 */
extern const QrnicQpOps qrnic_dynamic_responder_ops;

void qrnic_dynamic_responder_start(QrnicEngine *e, QrnicQp *qp,
                                   const QrnicAddressVector *av,
                                   const QrnicTransport *connect);
/* Receives a request of the connection. */
void qrnic_dynamic_responder_receive(QrnicEngine *e, QrnicQp *qp,
                                     const QrnicPacket *p);
/* Ends the connection and returns the responder to RESET. */
void qrnic_dynamic_responder_stop(QrnicEngine *e, QrnicQp *qp,
                                  const char *why);

#endif
