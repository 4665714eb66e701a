/*
 * qrnic engine, layer qp: the receive queue
 *
 * A transport consumes a receive WQE with qrnic_rq_take(), writes the payload
 * of each packet to the buffers with qrnic_scatter_packet(), and completes the
 * WQE with qrnic_complete_recv(). Between packets of one message the transport
 * keeps the WQE in a buffer of qrnic_rq_take_kept().
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QP_RECEIVE_H
#define QRNIC_ENGINE_QP_RECEIVE_H

#include "engine/qp/qp.h"

/* work_queue.c: the receive queue, or the SRQ in its place */

/**
 * qrnic_rq_take:
 * @e: engine
 * @qp: queue pair that receives a message
 * @out: the WQE, decoded
 * @status: completion status after QRNIC_TAKE_ERROR
 * @syndrome: syndrome after QRNIC_TAKE_ERROR
 *
 * Consumes the next receive WQE of the RQ or of the SRQ. Reads the doorbell
 * record if the RQ is empty.
 *
 * Returns: QRNIC_TAKE_OK; QRNIC_TAKE_EMPTY if no WQE is posted;
 * QRNIC_TAKE_ERROR if the caller must complete an invalid WQE;
 * QRNIC_TAKE_BROKEN if the SRQ is in error
 */
QrnicTake qrnic_rq_take(QrnicEngine *e, QrnicQp *qp, QrnicRecvWqe *out,
                        uint8_t *status, uint8_t *syndrome);
/**
 * qrnic_rq_take_kept:
 * @e: engine
 * @qp: queue pair that receives a message
 * @wqe: buffer with the WQE; NULL after TAKE_EMPTY and TAKE_BROKEN
 * @status: completion status after QRNIC_TAKE_ERROR
 * @syndrome: syndrome after QRNIC_TAKE_ERROR
 *
 * Consumes a receive WQE for a message of several packets. The buffer is valid
 * until qrnic_recv_wqe_drop().
 *
 * Returns: as qrnic_rq_take()
 */
QrnicTake qrnic_rq_take_kept(QrnicEngine *e, QrnicQp *qp, QrnicRecvWqe **wqe,
                             uint8_t *status, uint8_t *syndrome);
void qrnic_recv_wqe_drop(QrnicEngine *e, QrnicRecvWqe **wqe);
/**
 * qrnic_rq_taken:
 * @e: engine
 * @qp: queue pair that has consumed the WQE
 *
 * Confirms the last receive WQE. Sends the limit event of the SRQ if the SRQ
 * has fallen below its limit.
 */
void qrnic_rq_taken(QrnicEngine *e, QrnicQp *qp);
/**
 * qrnic_rq_give_back:
 * @e: engine
 * @qp: queue pair that has consumed the WQE
 * @wqe: the WQE
 *
 * Undoes the last qrnic_rq_take(): the next call returns the same WQE.
 */
void qrnic_rq_give_back(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe);
/**
 * qrnic_rq_posted:
 * @e: engine
 * @qp: queue pair
 * @reread: true to read the doorbell record first
 *
 * Returns: number of posted receive WQEs, for the credits of an ACK; 0 without
 * an RQ
 */
uint32_t qrnic_rq_posted(QrnicEngine *e, QrnicQp *qp, bool reread);

/* Returns true if each receive WQE allows one message to this queue pair. */
static inline bool qrnic_qp_has_credits(const QrnicQp *qp)
{
    return qrnic_qp_has_rq(qp) && !qp->rq.stream;
}

/**
 * qrnic_complete_recv:
 * @e: engine
 * @qp: queue pair that received the message
 * @cqe: the CQE
 *
 * Completes a receive WQE (complete.c). Takes the queue pair to ERR if the CQ
 * is in error.
 */
void qrnic_complete_recv(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe);
/**
 * qrnic_complete_recv_inline:
 * @e: engine
 * @qp: queue pair that received the message
 * @cqe: the CQE
 * @data: payload, of cqe->byte_len bytes
 *
 * Completes a receive WQE with the payload in the CQE. Software copies the
 * payload to the buffers. Errors as in qrnic_complete_recv().
 */
void qrnic_complete_recv_inline(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe,
                                const uint8_t *data);
/**
 * qrnic_complete_tagged:
 * @e: engine
 * @qp: queue pair that received the message
 * @cqe: the CQE
 * @header: header of the message
 *
 * Completes a matched entry of a tag list with the header of the message.
 * Errors as in qrnic_complete_recv().
 */
void qrnic_complete_tagged(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe,
                           const uint8_t *header);

/* payload.c: data of receive WQEs */

/**
 * qrnic_scatter_part:
 * @e: engine
 * @qp: queue pair that received the data
 * @wqe: receive WQE
 * @offset: offset of the data in the message
 * @from: data
 * @len: bytes; the WQE has room for them
 * @fault: access that has met an absent page
 *
 * Writes a part of a message to the buffers of the WQE.
 *
 * Returns: SYN_NONE; SYN_PAGE_FAULT with *fault; another syndrome if a key is
 * invalid or the DMA has failed
 */
enum qrnic_syndrome qrnic_scatter_part(QrnicEngine *e, QrnicQp *qp,
                                       const QrnicRecvWqe *wqe, uint64_t offset,
                                       const uint8_t *from, uint32_t len,
                                       QrnicFault *fault);
/**
 * qrnic_scatter_packet:
 * @e: engine
 * @qp: queue pair that received the packet
 * @wqe: receive WQE
 * @offset: offset of the payload in the message
 * @p: packet of a send; the WQE has room for its payload
 * @inlined: true if nothing was written because the data goes into the CQE
 * @fault: access that has met an absent page
 *
 * Writes the payload of a packet to the buffers of the WQE.
 *
 * Returns: as qrnic_scatter_part()
 */
enum qrnic_syndrome qrnic_scatter_packet(QrnicEngine *e, QrnicQp *qp,
                                         const QrnicRecvWqe *wqe,
                                         uint64_t offset,
                                         const QrnicPacket *p, bool *inlined,
                                         QrnicFault *fault);
/**
 * qrnic_scatter:
 * @e: engine
 * @qp: queue pair that received the data
 * @wqe: receive WQE
 * @piece: pieces of the message
 * @pieces: number of pieces
 * @cqe: status and syndrome are set
 * @fault: access that has met an absent page
 *
 * Writes the pieces of a message to the buffers, one behind the other.
 *
 * Returns: true if all pieces are written
 */
bool qrnic_scatter(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe,
                   const struct iovec *piece, unsigned pieces, QrnicCqe *cqe,
                   QrnicFault *fault);

#endif
