/*
 * qrnic engine, layer qp: the send queue and packets
 *
 * A transport consumes a send WQE with qrnic_sq_take() and waits for its output
 * with qrnic_path_wait(). For each packet it calls qrnic_packet_open(), copies
 * the payload with qrnic_gather_part(), and calls qrnic_packet_send(). Last it
 * calls qrnic_complete_send(). transmit.c implements this loop for types
 * without ACKs.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QP_SEND_H
#define QRNIC_ENGINE_QP_SEND_H

#include "engine/qp/qp.h"

/**
 * qrnic_transmit:
 * @e: engine
 * @qp: queue pair
 * @budget: largest number of steps
 *
 * Sends WQEs of types that wait for no response (transmit.c).
 * QrnicQpOps.transmit of UC, UD, GSI and raw packet queue pairs.
 *
 * Returns: list in which the queue pair waits
 */
QrnicReadyList qrnic_transmit(QrnicEngine *e, QrnicQp *qp, unsigned budget);

/* work_queue.c: the send queue */

/**
 * qrnic_sq_take:
 * @e: engine
 * @qp: queue pair
 * @out: the WQE, decoded
 * @status: completion status after QRNIC_TAKE_ERROR
 * @syndrome: syndrome after QRNIC_TAKE_ERROR
 *
 * Consumes the next send WQE below the producer index, so sq.consumer advances
 * by out->wqebbs. WQEs are fetched in batches to reduce the number of DMA
 * reads.
 *
 * Returns: QRNIC_TAKE_OK; QRNIC_TAKE_EMPTY if no WQE is posted;
 * QRNIC_TAKE_ERROR if the WQE or the doorbell record is invalid and must be
 * completed with the status
 */
QrnicTake qrnic_sq_take(QrnicEngine *e, QrnicQp *qp, QrnicSendWqe *out,
                        uint8_t *status, uint8_t *syndrome);
/**
 * qrnic_sq_give_back:
 * @e: engine
 * @qp: queue pair
 * @wqe: the WQE
 *
 * Undoes the last qrnic_sq_take(): the next call returns the same WQE.
 */
void qrnic_sq_give_back(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe);
/**
 * qrnic_sq_refetch:
 * @e: engine
 * @qp: queue pair
 * @index: index of the first block of the WQE
 * @out: the WQE, decoded
 * @status: completion status after QRNIC_TAKE_ERROR
 * @syndrome: syndrome after QRNIC_TAKE_ERROR
 *
 * Reads a WQE again for a retransmission. The WQE is still in guest memory,
 * because software reuses a slot only after its completion.
 *
 * Returns: QRNIC_TAKE_OK or QRNIC_TAKE_ERROR
 */
QrnicTake qrnic_sq_refetch(QrnicEngine *e, QrnicQp *qp, uint32_t index,
                           QrnicSendWqe *out, uint8_t *status,
                           uint8_t *syndrome);
/**
 * qrnic_sq_pending:
 * @e: engine
 * @qp: queue pair
 * @reread: true to read the doorbell record first
 *
 * Returns: true if a send WQE or an error of the doorbell record is pending
 */
bool qrnic_sq_pending(QrnicEngine *e, QrnicQp *qp, bool reread);
/**
 * qrnic_sq_sleep:
 * @e: engine
 * @qp: queue pair that cannot send now
 *
 * Requests a doorbell for the next WQE by the event index, if all known WQEs
 * are consumed. With known WQEs left, the queue pair is scheduled later anyway.
 * The scheduler calls this function before it forgets the queue pair.
 *
 * Returns: true if the queue pair must be scheduled again, because software has
 * posted a WQE in the meantime
 */
bool qrnic_sq_sleep(QrnicEngine *e, QrnicQp *qp);
/* Puts the SQ of a new queue pair to sleep, without a hold. */
void qrnic_sq_hold_init(QrnicQp *qp);
/* Ends a hold, because the queue pair is reset or freed. */
void qrnic_sq_hold_reset(QrnicEngine *e, QrnicQp *qp);
/**
 * qrnic_sq_direct:
 * @e: engine
 * @qp: queue pair
 * @wqe: the WQE of a direct doorbell
 * @wqebbs: blocks of the WQE
 * @producer: producer index behind the WQE
 *
 * Accepts the WQE of a direct doorbell, which saves a DMA read.
 *
 * Returns: true if the WQE is accepted; false if it must be fetched from the SQ
 */
bool qrnic_sq_direct(QrnicEngine *e, QrnicQp *qp, const uint8_t *wqe,
                     uint32_t wqebbs, uint32_t producer);

/**
 * qrnic_complete_send:
 * @e: engine
 * @qp: queue pair
 * @wqe: the WQE
 * @status: completion status
 * @syndrome: reason of an error
 * @byte_len: byte count for the CQE
 *
 * Completes a send WQE (complete.c). Writes a CQE if the WQE is signaled or has
 * failed. Takes the queue pair to ERR if the CQ is in error.
 */
void qrnic_complete_send(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                         uint8_t status, uint8_t syndrome, uint32_t byte_len);
/**
 * qrnic_complete_sq:
 * @e: engine
 * @qp: queue pair
 * @index: index of the WQE
 * @wqebbs: blocks of the WQE
 * @opcode: opcode of the WQE
 * @flags: flags of the WQE
 * @status: completion status
 * @syndrome: reason of an error
 * @byte_len: byte count for the CQE
 *
 * Completes a send WQE of which only these members are known. Errors as in
 * qrnic_complete_send().
 */
void qrnic_complete_sq(QrnicEngine *e, QrnicQp *qp, uint32_t index,
                       uint32_t wqebbs, uint8_t opcode, uint8_t flags,
                       uint8_t status, uint8_t syndrome, uint32_t byte_len);

/**
 * qrnic_local_operation:
 * @e: engine
 * @qp: queue pair
 * @wqe: WQE of a local operation
 * @syndrome: reason of an error; the caller completes the WQE with MW_BIND_ERR
 *
 * Executes a WQE that sends nothing: bind, register, invalidate
 * (local_operation.c). Unless done, the caller calls again with the same WQE.
 *
 * Returns: LOCAL_DONE; LOCAL_WAITS until an absent page is there; LOCAL_MORE if
 * the work budget is spent
 */
typedef enum QrnicLocal {
    QRNIC_LOCAL_DONE, QRNIC_LOCAL_WAITS, QRNIC_LOCAL_MORE,
} QrnicLocal;

QrnicLocal qrnic_local_operation(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicSendWqe *wqe, uint8_t *syndrome);

/* path.c: packets */

/* The least source port of RoCE v2 (A17.9.2) */
#define QRNIC_UDP_SPORT_MIN 0xc000u

/*
 * Returns true if the source port is 0, or valid and the GID is one of RoCE v2.
 */
static inline bool qrnic_udp_sport_is_valid(const QrnicGidEntry *from,
                                            const QrnicAddressVector *av)
{
    return !av->udp_sport || (av->udp_sport >= QRNIC_UDP_SPORT_MIN &&
                              !(from->flags & QRNIC_GID_ROCE_V1));
}

/**
 * qrnic_path_set:
 * @e: engine
 * @qp: queue pair
 * @av: address of the peer; its source GID must be valid
 * @dest_qpn: queue pair number of the peer
 *
 * Builds the headers that all further packets share.
 */
void qrnic_path_set(QrnicEngine *e, QrnicQp *qp, const QrnicAddressVector *av,
                    uint32_t dest_qpn);
/*
 * Returns the list in which the queue pair must wait before the next packet;
 * QRNIC_LIST_READY: it can send now. The second function is for a datagram to
 * this address.
 */
static inline QrnicReadyList qrnic_path_wait(QrnicEngine *e, QrnicQp *qp)
{
    return qp->out->wait(e, qp);
}
QrnicReadyList qrnic_address_wait(QrnicEngine *e, const QrnicAddressVector *av);
/**
 * qrnic_path_stands_still:
 * @e: engine
 * @qp: queue pair
 * @epoch: state of the caller for qrnic_wire_stands_still()
 *
 * Returns: true if the queue pair waits for a wire that has accepted no frame
 * since the previous call
 */
bool qrnic_path_stands_still(QrnicEngine *e, QrnicQp *qp, uint32_t *epoch);
/*
 * Begins a packet and returns the place of its payload. The caller writes the
 * payload and calls qrnic_packet_send(), or leaves the packet unsent.
 */
static inline uint8_t *qrnic_packet_open(QrnicEngine *e, QrnicQp *qp,
                                         const QrnicTransport *t,
                                         uint32_t payload_len)
{
    qrnic_work_psn(e, t->psn);
    return qp->out->open(e, qp, t, payload_len);
}

static inline void qrnic_packet_send(QrnicEngine *e, QrnicQp *qp,
                                     const QrnicTransport *t, uint8_t *payload,
                                     uint32_t payload_len)
{
    qp->out->send(e, qp, t, payload, payload_len);
}

/* payload.c: data of send WQEs */

/**
 * qrnic_gather_part:
 * @e: engine
 * @qp: queue pair
 * @wqe: send WQE
 * @offset: offset in the message
 * @to: destination
 * @len: bytes; offset + len is within the message
 * @fault: access that has met an absent page
 *
 * Copies a part of a message from the buffers of the WQE.
 *
 * Returns: SYN_NONE; SYN_PAGE_FAULT with *fault; another syndrome if a key is
 * invalid or the DMA has failed
 */
enum qrnic_syndrome qrnic_gather_part(QrnicEngine *e, QrnicQp *qp,
                                      const QrnicSendWqe *wqe, uint64_t offset,
                                      uint8_t *to, uint32_t len,
                                      QrnicFault *fault);
/**
 * qrnic_gather:
 * @e: engine
 * @qp: queue pair
 * @wqe: send WQE, whose length was checked
 * @buf: destination of the whole message
 * @status: LOC_PROT_ERR after a failure
 * @syndrome: as qrnic_gather_part() returns it
 * @fault: access that has met an absent page
 *
 * Copies a whole message.
 *
 * Returns: true if the message is copied
 */
bool qrnic_gather(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                  uint8_t *buf, uint8_t *status, uint8_t *syndrome,
                  QrnicFault *fault);

#endif
