/*
 * qrnic engine, floor qp: the receive queue
 *
 * A transport consumes a receive WQE, scatters the payload of each packet, and
 * completes the WQE.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_QP_RECEIVE_H
#define QRNIC_ENGINE_QP_RECEIVE_H

#include "engine/qp/qp.h"

/*
 * work_queue.c: the receive queue, or the SRQ in its place
 */

/* Consumes the next receive WQE. */
QrnicTake qrnic_rq_take(QrnicEngine *e, QrnicQp *qp, QrnicRecvWqe *out,
                        uint8_t *status, uint8_t *syndrome);
/*
 * The same for a message of several packets: *wqe is in a buffer until
 * qrnic_recv_wqe_drop(). It is NULL after TAKE_EMPTY and TAKE_BROKEN.
 */
QrnicTake qrnic_rq_take_kept(QrnicEngine *e, QrnicQp *qp, QrnicRecvWqe **wqe,
                             uint8_t *status, uint8_t *syndrome);
void qrnic_recv_wqe_drop(QrnicEngine *e, QrnicRecvWqe **wqe);
/* Confirms the last WQE: the limit event of the SRQ may be due. */
void qrnic_rq_taken(QrnicEngine *e, QrnicQp *qp);
/* Undoes the last qrnic_rq_take(): the next call returns the same WQE. */
void qrnic_rq_give_back(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe);
/* Returns how many receive WQEs are posted, as last read, for credits. */
uint32_t qrnic_rq_posted(QrnicEngine *e, QrnicQp *qp, bool reread);

/* Returns true if each receive WQE is one message to this queue pair. */
static inline bool qrnic_qp_has_credits(const QrnicQp *qp)
{
    return qrnic_qp_has_rq(qp) && !qp->rq.stream;
}

/*
 * complete.c: completes a receive WQE; if the CQ is in error, to ERR.
 */
void qrnic_complete_recv(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe);
/* The same with the data, which software copies to the buffers */
void qrnic_complete_recv_inline(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe,
                                const uint8_t *data);
/* The same for a matched entry of a tag list, with the header of the message */
void qrnic_complete_tagged(QrnicEngine *e, QrnicQp *qp, QrnicCqe *cqe,
                           const uint8_t *header);

/*
 * payload.c: data of receive WQEs
 */

/* Writes len bytes of the message from offset on, which must be in the WQE. */
enum qrnic_syndrome qrnic_scatter_part(QrnicEngine *e, QrnicQp *qp,
                                       const QrnicRecvWqe *wqe, uint64_t offset,
                                       const uint8_t *from, uint32_t len,
                                       QrnicFault *fault);
/*
 * Writes the payload of a packet of a send, which fits into the WQE, or sets
 * *inlined because the data goes into the CQE.
 */
enum qrnic_syndrome qrnic_scatter_packet(QrnicEngine *e, QrnicQp *qp,
                                         const QrnicRecvWqe *wqe,
                                         uint64_t offset,
                                         const QrnicPacket *p, bool *inlined,
                                         QrnicFault *fault);
/* Writes the pieces one behind the other. Sets the status of the CQE. */
bool qrnic_scatter(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe,
                   const struct iovec *piece, unsigned pieces, QrnicCqe *cqe,
                   QrnicFault *fault);

#endif
