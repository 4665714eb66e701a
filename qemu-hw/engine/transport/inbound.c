/*
 * qrnic engine, layer transport: messages that arrive on a connection
 *
 * Writes sends to receive WQEs, and RDMA writes to the memory of their key, for
 * reliable and unreliable connections. The callers are the files of
 * rc/responder/ and uc.c, for each packet of a message. QrnicInbound holds the
 * message between packets. The callers decide on errors: a reliable connection
 * sends a NAK, an unreliable one drops the message.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/transport/transport.h"

QrnicTake qrnic_inbound_take(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in)
{
    uint8_t status, syndrome;
    QrnicTake take = qrnic_rq_take_kept(e, qp, &in->recv, &status, &syndrome);

    if (take == QRNIC_TAKE_ERROR) {
        qrnic_inbound_fail(e, qp, in, QRNIC_CQE_RECV, status, syndrome);
    } else if (take == QRNIC_TAKE_OK) {
        qrnic_rq_taken(e, qp);
    }
    return take;
}

static QrnicCqe cqe_of(const QrnicQp *qp, const QrnicInbound *in,
                       uint8_t opcode)
{
    const QrnicRecvWqe *recv = in->recv;
    QrnicCqe cqe = {
        .index = recv->index,
        .srqn = recv->srqn,
        .qpn = qp->number,
        .opcode = opcode == QRNIC_CQE_RECV && recv->tag_opcode ?
                  recv->tag_opcode : opcode,
        .tagged = recv->tag ? QRNIC_CQET_ENTRY : 0,
    };

    if (qp->ops->recv_cqe) {
        qp->ops->recv_cqe(qp, &cqe);
    }
    return cqe;
}

QrnicCqe qrnic_inbound_cqe(const QrnicQp *qp, const QrnicInbound *in,
                           const QrnicPacket *pkt, uint8_t opcode)
{
    QrnicCqe cqe = cqe_of(qp, in, opcode);

    if (pkt->info->flags & QRNIC_HDR_IMM) {
        cqe.flags |= QRNIC_CQEF_IMM;
        cqe.imm = pkt->t.imm;
    }
    if (pkt->info->flags & QRNIC_HDR_IETH) {
        cqe.flags |= QRNIC_CQEF_INV;
        cqe.imm = pkt->t.inv_key;
    }
    if (pkt->t.solicited) {
        cqe.flags |= QRNIC_CQEF_SOLICITED;
    }
    return cqe;
}

void qrnic_inbound_fail(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                        uint8_t opcode, uint8_t status, uint8_t syndrome)
{
    QrnicCqe cqe = cqe_of(qp, in, opcode);

    cqe.status = status;
    cqe.syndrome = syndrome;
    qrnic_stream_fail(e, in->recv, &cqe);
    if (in->recv->tag) {
        qrnic_tag_done(e, in->recv->tag);
        g_free(in->recv->tag);
    } else if (in->recv->tag_opcode == QRNIC_CQE_TAG_UNEXPECTED) {
        qrnic_tag_expected_after_all(e, qp->srq->tags);
    }
    qrnic_recv_wqe_drop(e, &in->recv);
    in->message = QRNIC_IDLE;
    qrnic_complete_recv(e, qp, &cqe);
}

void qrnic_inbound_give_back(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in)
{
    qrnic_rq_give_back(e, qp, in->recv);
    qrnic_recv_wqe_drop(e, &in->recv);
}

bool qrnic_inbound_flush(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in)
{
    if (!in->recv) {
        return false;
    }
    /*
     * A streaming buffer is not flushed here, because it belongs to other
     * messages, too.
     */
    if (in->recv->stream) {
        in->message = QRNIC_IDLE;
        qrnic_inbound_give_back(e, qp, in);
        return false;
    }
    qrnic_inbound_fail(e, qp, in, QRNIC_CQE_RECV, QRNIC_WC_WR_FLUSH_ERR,
                       QRNIC_SYN_NONE);
    return true;
}

void qrnic_inbound_cleanup(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in)
{
    if (in->recv && in->recv->srqn && !in->recv->tag) {
        qrnic_rq_give_back(e, qp, in->recv);
    }
    qrnic_recv_wqe_drop(e, &in->recv);
}

void qrnic_inbound_arrived(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->state == QRNIC_QPS_RTR && !qp->comm_established) {
        qp->comm_established = true;
        qrnic_event_async(e, QRNIC_EVENT_COMM_EST, 0, qp->number, 0);
    }
}

static void done(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                 const QrnicPacket *pkt, uint8_t opcode, uint32_t byte_len,
                 uint64_t placed)
{
    QrnicCqe cqe = qrnic_inbound_cqe(qp, in, pkt, opcode);

    cqe.byte_len = byte_len;
    if (cqe.opcode == QRNIC_CQE_TAG_UNEXPECTED) {
        cqe.tagged = qrnic_tag_sync_wanted(qp->srq->tags);
    }
    qrnic_stream_end(e, in->recv, placed, &cqe);
    qrnic_recv_wqe_drop(e, &in->recv);
    if (in->inlined) {
        qrnic_complete_recv_inline(e, qp, &cqe, pkt->payload);
    } else {
        qrnic_complete_recv(e, qp, &cqe);
    }
}

bool qrnic_inbound_length_ok(const QrnicQp *qp, const QrnicPacket *pkt)
{
    uint32_t mtu = qrnic_qp_mtu(qp), flags = pkt->info->flags;

    if (flags & QRNIC_OPF_END) {
        return pkt->payload_len <= mtu &&
               (pkt->payload_len || (flags & QRNIC_OPF_START));
    }
    return pkt->payload_len == mtu;
}

void qrnic_inbound_send_begin(QrnicInbound *in)
{
    in->received = 0;
    in->message = QRNIC_IN_SEND;
}

QrnicPlaced qrnic_inbound_send(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                               const QrnicPacket *pkt, QrnicFault *fault)
{
    uint8_t syndrome;

    if (in->received + pkt->payload_len > in->recv->length) {
        return QRNIC_PLACED_TOO_LONG;
    }
    syndrome = qrnic_scatter_packet(e, qp, in->recv, in->received, pkt,
                                    &in->inlined, fault);
    if (syndrome == QRNIC_SYN_PAGE_FAULT) {
        return QRNIC_PLACED_ABSENT;
    }
    if (syndrome) {
        qrnic_inbound_fail(e, qp, in, QRNIC_CQE_RECV, QRNIC_WC_LOC_PROT_ERR,
                           syndrome);
        return QRNIC_PLACED_FAILED;
    }
    in->received += pkt->payload_len;
    return QRNIC_PLACED_OK;
}

void qrnic_inbound_send_end(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                            const QrnicPacket *pkt)
{
    in->message = QRNIC_IDLE;
    qrnic_add(e, QRNIC_COUNTER_RX_SEND, 1);
    done(e, qp, in, pkt, QRNIC_CQE_RECV, in->received, in->received);
}

/*
 * Checks the rights of the queue pair, then key, PD, range and rights of the
 * key.
 */
enum qrnic_syndrome qrnic_inbound_check(QrnicEngine *e, QrnicQp *qp,
                                        uint32_t pd, uint32_t rkey,
                                        uint64_t va, uint64_t len,
                                        uint8_t access, QrnicMkey **k)
{
    if (!(qp->attr.access & access)) {
        return QRNIC_SYN_KEY_ACCESS;
    }
    return qrnic_memory_check_qp(e, rkey, pd, qp->number, va, len, access, k);
}

/*
 * Checks the key of a write. For an empty write only the right of the queue
 * pair is checked, because no key is needed (9.7.4.1.5, C9-88).
 */
static enum qrnic_syndrome write_check(QrnicEngine *e, QrnicQp *qp, uint32_t pd,
                                       uint32_t rkey, uint64_t va, uint64_t len,
                                       QrnicMkey **k)
{
    if (!len && qp->attr.access & QRNIC_ACCESS_REMOTE_WRITE) {
        return QRNIC_SYN_NONE;
    }
    return qrnic_inbound_check(e, qp, pd, rkey, va, len,
                               QRNIC_ACCESS_REMOTE_WRITE, k);
}

enum qrnic_syndrome qrnic_inbound_write_begin(QrnicEngine *e, QrnicQp *qp,
                                              QrnicInbound *in,
                                              const QrnicPacket *pkt,
                                              uint32_t pd)
{
    const QrnicTransport *t = &pkt->t;
    QrnicMkey *k;
    enum qrnic_syndrome syndrome = write_check(e, qp, pd, t->rkey, t->va,
                                               t->dma_len, &k);

    if (syndrome) {
        return syndrome;
    }
    in->va = t->va;
    in->rkey = t->rkey;
    in->dma_len = t->dma_len;
    in->received = 0;
    in->message = QRNIC_IN_WRITE;
    return QRNIC_SYN_NONE;
}

bool qrnic_inbound_write_fits(const QrnicInbound *in, const QrnicPacket *pkt)
{
    uint64_t after = in->received + pkt->payload_len;

    return pkt->info->flags & QRNIC_OPF_END ? after == in->dma_len :
                                              after < in->dma_len;
}

/*
 * Writes the payload of a packet. The rights are checked for each packet,
 * because a key may be invalidated at any time.
 */
enum qrnic_syndrome qrnic_inbound_write(QrnicEngine *e, QrnicQp *qp,
                                        QrnicInbound *in,
                                        const QrnicPacket *pkt, uint32_t pd,
                                        QrnicFault *fault)
{
    uint64_t at = in->va + in->received;
    QrnicMkey *k;
    enum qrnic_syndrome syndrome = write_check(e, qp, pd, in->rkey, at,
                                               pkt->payload_len, &k);

    if (syndrome) {
        return syndrome;
    }
    if (pkt->payload_len) {
        syndrome = qrnic_memory_write(e, k, at, pkt->payload,
                                      pkt->payload_len, fault);
        if (syndrome) {
            return qrnic_fault_extend(fault, syndrome,
                                      in->dma_len - in->received);
        }
    }
    in->received += pkt->payload_len;
    return QRNIC_SYN_NONE;
}

void qrnic_inbound_write_end(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                             const QrnicPacket *pkt)
{
    in->message = QRNIC_IDLE;
    qrnic_add(e, QRNIC_COUNTER_RX_WRITE, 1);
    if (pkt->info->flags & QRNIC_HDR_IMM) {
        in->inlined = false;
        done(e, qp, in, pkt, QRNIC_CQE_RECV_RDMA_WITH_IMM, in->dma_len, 0);
    }
}
