/*
 * qrnic engine, floor qp: the send queue and packets
 *
 * A transport consumes a send WQE, waits for its output, opens a packet,
 * gathers the payload, sends the packet, and completes the WQE.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QP_SEND_H
#define QRNIC_ENGINE_QP_SEND_H

#include "engine/qp/qp.h"

/*
 * transmit.c: QrnicQpOps.transmit of types that wait for no answer
 */
QrnicReadyList qrnic_transmit(QrnicEngine *e, QrnicQp *qp, unsigned budget);

/*
 * work_queue.c: the send queue
 */

/*
 * Consumes the next send WQE that is below the doorbell record. Advances
 * sq.consumer on OK, and by one block on ERROR. Fetches WQEs in batches.
 */
QrnicTake qrnic_sq_take(QrnicEngine *e, QrnicQp *qp, QrnicSendWqe *out,
                        uint8_t *status, uint8_t *syndrome);
/* Undoes the last qrnic_sq_take(): the next call returns the same WQE. */
void qrnic_sq_give_back(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe);
/*
 * Reads the WQE that begins at index again, for a retransmission. It is still
 * in guest memory because its slot was not completed.
 */
QrnicTake qrnic_sq_refetch(QrnicEngine *e, QrnicQp *qp, uint32_t index,
                           QrnicSendWqe *out, uint8_t *status,
                           uint8_t *syndrome);
/*
 * Returns true if a WQE may be posted, by the cached producer index or, with
 * reread, by the doorbell record.
 */
bool qrnic_sq_pending(QrnicEngine *e, QrnicQp *qp, bool reread);
/*
 * Accepts the WQE of a direct doorbell, of wqebbs blocks, and the producer
 * index behind it. Returns false if it must be fetched as usual.
 */
bool qrnic_sq_direct(QrnicEngine *e, QrnicQp *qp, const uint8_t *wqe,
                     uint32_t wqebbs, uint32_t producer);

/* complete.c: completes a WQE; if the CQ is in error, to ERR. */
void qrnic_complete_send(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                         uint8_t status, uint8_t syndrome, uint32_t byte_len);
/* The same for a WQE of which only these members were kept */
void qrnic_complete_sq(QrnicEngine *e, QrnicQp *qp, uint32_t index,
                       uint32_t wqebbs, uint8_t opcode, uint8_t flags,
                       uint8_t status, uint8_t syndrome, uint32_t byte_len);

/*
 * local_operation.c: executes a WQE that sends nothing. A syndrome other than
 * SYN_NONE goes with MW_BIND_ERR. Unless it is done, the caller calls again
 * with the same WQE: when the page is there, or the next time it is scheduled,
 * because the work budget is spent.
 */
typedef enum QrnicLocal {
    QRNIC_LOCAL_DONE, QRNIC_LOCAL_WAITS, QRNIC_LOCAL_MORE,
} QrnicLocal;

QrnicLocal qrnic_local_operation(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicSendWqe *wqe, uint8_t *syndrome);

/*
 * path.c: packets
 */

/* The least source port of RoCE v2 (A17.9.2) */
#define QRNIC_UDP_SPORT_MIN 0xc000u

/* Returns true for 0, or if the port is one of RoCE v2 and the GID is, too. */
static inline bool qrnic_udp_sport_is_valid(const QrnicGidEntry *from,
                                            const QrnicAddressVector *av)
{
    return !av->udp_sport || (av->udp_sport >= QRNIC_UDP_SPORT_MIN &&
                              !(from->flags & QRNIC_GID_ROCE_V1));
}

/* Sets the headers of the next packets. The source GID must be valid. */
void qrnic_path_set(QrnicEngine *e, QrnicQp *qp, const QrnicAddressVector *av,
                    uint32_t dest_qpn);
/*
 * Returns the list of the scheduler in which the queue pair waits until it can
 * send a packet along its path, or to this address; TURN_MORE: it can now.
 */
static inline QrnicReadyList qrnic_path_wait(QrnicEngine *e, QrnicQp *qp)
{
    return qp->out->wait(e, qp);
}
QrnicReadyList qrnic_address_wait(QrnicEngine *e, const QrnicAddressVector *av);
/* Returns true if it waits for a wire for which qrnic_wire_stands_still(). */
bool qrnic_path_stands_still(QrnicEngine *e, QrnicQp *qp, uint32_t *epoch);
/*
 * Begins a packet. Returns the place of its payload. The caller fills it and
 * calls qrnic_packet_send(), or leaves the packet unsent.
 */
static inline uint8_t *qrnic_packet_open(QrnicEngine *e, QrnicQp *qp,
                                         const QrnicTransport *t,
                                         uint32_t payload_len)
{
    return qp->out->open(e, qp, t, payload_len);
}

static inline void qrnic_packet_send(QrnicEngine *e, QrnicQp *qp,
                                     const QrnicTransport *t, uint8_t *payload,
                                     uint32_t payload_len)
{
    qp->out->send(e, qp, t, payload, payload_len);
}

/*
 * payload.c: data of send WQEs
 */

/* Copies len bytes of the message from offset on, which must be in it. */
enum qrnic_syndrome qrnic_gather_part(QrnicEngine *e, QrnicQp *qp,
                                      const QrnicSendWqe *wqe, uint64_t offset,
                                      uint8_t *to, uint32_t len,
                                      QrnicFault *fault);
/* Copies the whole message, whose length was checked. False: it failed. */
bool qrnic_gather(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                  uint8_t *buf, uint8_t *status, uint8_t *syndrome,
                  QrnicFault *fault);

#endif
