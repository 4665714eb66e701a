/*
 * qrnic engine: dynamic connections: an initiator is a requester of a reliable
 * connection that connects to where its WQEs lead, a target has responders for
 * those who connect. See the manual's chapter.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_DYNAMIC_H
#define QRNIC_ENGINE_DYNAMIC_H

#include "engine/transport/rc/rc.h"

/* The number a is newer than b. */
static inline bool qrnic_connection_newer(uint32_t a, uint32_t b)
{
    return qrnic_psn_diff(a, b) > 0;
}

/*
 * responder.c: one of a target's; in state RTS it has a connection, else it is
 * in RESET.
 */
extern const QrnicQpOps qrnic_dynamic_responder_ops;

void qrnic_dynamic_responder_start(QrnicEngine *e, QrnicQp *qp,
                                   const QrnicAddressVector *av,
                                   const QrnicTransport *connect);
/* A request of its connection */
void qrnic_dynamic_responder_receive(QrnicEngine *e, QrnicQp *qp,
                                     const QrnicPacket *p);
/* The connection is no more. */
void qrnic_dynamic_responder_stop(QrnicEngine *e, QrnicQp *qp,
                                  const char *why);

#endif
