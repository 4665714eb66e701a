/*
 * qrnic engine, transport: sends to an SRQ with a tag list
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * execute.c calls qrnic_tagged_take() through rnr.c for the first packet of a
 * send. A message that matches an entry of the list goes into the buffer of the
 * entry. For each packet of such a message execute.c calls qrnic_tagged_place()
 * and qrnic_tagged_placed(). Other messages consume a receive WQE, as without a
 * list. Between packets in->recv holds the entry or WQE. The headers are struct
 * ibv_tmh and struct ibv_rvh of libibverbs. Manual, chapter Tag matching.
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "trace.h"
#include "engine/transport/rc/responder/responder.h"

enum {
    TMH_NO_TAG, TMH_RENDEZVOUS, TMH_FIN, TMH_EAGER
};

/*
 * Returns the kind of a message. Messages with malformed headers are counted
 * and count as TMH_NO_TAG.
 */
static uint8_t message_kind(QrnicEngine *e, const QrnicPacket *pkt)
{
    const uint8_t *p = pkt->payload;
    bool one = pkt->info->flags & QRNIC_OPF_END;
    bool known = pkt->payload_len >= QRNIC_TAG_HEADER_SIZE &&
                 p[0] <= TMH_EAGER;

    if (known && p[0] == TMH_EAGER) {
        return TMH_EAGER;
    }
    if (known && p[0] == TMH_RENDEZVOUS && one &&
        pkt->payload_len >= QRNIC_RENDEZVOUS_SIZE &&
        pkt->payload_len <= QRNIC_MAX_RENDEZVOUS) {
        return TMH_RENDEZVOUS;
    }
    if (!known || p[0] == TMH_RENDEZVOUS) {
        qrnic_add(e, QRNIC_COUNTER_TAG_MALFORMED, 1);
    }
    return TMH_NO_TAG;
}

/*
 * Describes the buffer of the entry as a receive WQE, so that the message is
 * written to it.
 */
static void entry_take(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                       QrnicTag *t, const QrnicPacket *pkt)
{
    t->rendezvous = pkt->payload[0] == TMH_RENDEZVOUS;
    memset(t->header, 0, sizeof(t->header));
    memcpy(t->header, pkt->payload, t->rendezvous ? QRNIC_RENDEZVOUS_SIZE :
                                                    QRNIC_TAG_HEADER_SIZE);
    in->recv = qrnic_buffer_get(e, sizeof(*in->recv));
    *in->recv = (QrnicRecvWqe) {
        .index = t->handle, .pd = qp->srq->ctx.pd, .srqn = qp->srq->number,
        .tag = t, .tag_opcode = QRNIC_CQE_TAG_RECV,
        .length = t->length, .num_sge = t->num_sge,
    };
    memcpy(in->recv->sge, t->sge, t->num_sge * sizeof(t->sge[0]));
}

QrnicTake qrnic_tagged_take(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                            const QrnicPacket *pkt)
{
    QrnicTagList *list = qp->srq->tags;
    uint8_t kind = message_kind(e, pkt);
    uint64_t tag = kind == TMH_NO_TAG ? 0 : ldq_be_p(pkt->payload + 8);
    QrnicTag *t = kind == TMH_NO_TAG ? NULL : qrnic_tag_match(e, list, tag);
    QrnicTake take;

    if (t) {
        entry_take(e, qp, in, t, pkt);
        return QRNIC_TAKE_OK;
    }
    take = qrnic_inbound_take(e, qp, in);
    if (take != QRNIC_TAKE_OK) {
        return take;
    }
    if (kind == TMH_NO_TAG) {
        in->recv->tag_opcode = QRNIC_CQE_TAG_NO_TAG;
        qrnic_add(e, QRNIC_COUNTER_TAG_UNTAGGED, 1);
    } else {
        in->recv->tag_opcode = QRNIC_CQE_TAG_UNEXPECTED;
        qrnic_tag_unexpected(e, list, tag);
    }
    return take;
}

/*
 * Returns the reason why software must read the data of a rendezvous; SYN_NONE:
 * the device reads the data.
 */
static uint8_t left_to_software(const QrnicQp *qp, const QrnicTag *t)
{
    if (qrnic_rendezvous_length(t) > t->length) {
        return QRNIC_SYN_TAG_LENGTH;
    }
    return qp->state != QRNIC_QPS_RTR && !qp->attr.max_rd_atomic ?
           QRNIC_SYN_RD_ATOMIC : QRNIC_SYN_NONE;
}

QrnicPlaced qrnic_tagged_place(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                               const QrnicPacket *pkt, QrnicFault *fault)
{
    const QrnicTag *t = in->recv->tag;
    uint32_t skip = pkt->info->flags & QRNIC_OPF_START ? QRNIC_TAG_HEADER_SIZE :
                                                         0;
    const uint8_t *data = pkt->payload + skip;
    uint32_t len = pkt->payload_len - MIN(skip, pkt->payload_len);
    enum qrnic_syndrome syndrome;

    if (t->rendezvous) {
        if (!left_to_software(qp, t)) {
            return QRNIC_PLACED_OK;
        }
        data = t->header;
        len = MIN(sizeof(t->header), t->length);
    }
    if (in->received + len > in->recv->length) {
        return QRNIC_PLACED_TOO_LONG;
    }
    syndrome = qrnic_scatter_part(e, qp, in->recv, in->received, data, len,
                                  fault);
    if (syndrome == QRNIC_SYN_PAGE_FAULT) {
        return QRNIC_PLACED_ABSENT;
    }
    if (syndrome) {
        qrnic_inbound_fail(e, qp, in, QRNIC_CQE_TAG_RECV, QRNIC_WC_LOC_PROT_ERR,
                           syndrome);
        return QRNIC_PLACED_FAILED;
    }
    in->received += len;
    return QRNIC_PLACED_OK;
}

static void rendezvous_matched(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                               const QrnicPacket *pkt)
{
    QrnicTag *t = in->recv->tag;
    uint8_t syndrome = left_to_software(qp, t);
    QrnicCqe cqe = qrnic_inbound_cqe(qp, in, pkt, QRNIC_CQE_TAG_RECV);

    cqe.tagged |= QRNIC_CQET_MATCH;
    qrnic_recv_wqe_drop(e, &in->recv);
    qrnic_rendezvous_trace(e, qp, t, syndrome ? "left to software" : "matched");
    if (syndrome) {
        cqe.status = QRNIC_WC_TM_RNDV_INCOMPLETE;
        cqe.syndrome = syndrome;
        cqe.byte_len = in->received;
        qrnic_add(e, QRNIC_COUNTER_RENDEZVOUS_REFUSED, 1);
        qrnic_tag_done(e, t);
        qrnic_complete_tagged(e, qp, &cqe, t->header);
        g_free(t);
        return;
    }
    cqe.byte_len = qrnic_rendezvous_length(t);
    t->solicited = pkt->t.solicited;
    /*
     * The read is queued before the CQE, because the CQE may take the queue
     * pair to ERR, and the flush then completes the entry.
     */
    qrnic_rendezvous_ask(e, qp, t);
    qrnic_complete_tagged(e, qp, &cqe, t->header);
}

void qrnic_tagged_placed(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                         const QrnicPacket *pkt)
{
    QrnicTag *t = in->recv->tag;
    bool start = pkt->info->flags & QRNIC_OPF_START;
    bool end = pkt->info->flags & QRNIC_OPF_END;
    QrnicCqe cqe;

    if (end) {
        in->message = QRNIC_IDLE;
        qrnic_add(e, QRNIC_COUNTER_RX_SEND, 1);
    }
    if (end && t->rendezvous) {
        rendezvous_matched(e, qp, in, pkt);
        return;
    }
    if (!start && !end) {
        return;
    }
    cqe = qrnic_inbound_cqe(qp, in, pkt, QRNIC_CQE_TAG_RECV);
    cqe.tagged |= (start ? QRNIC_CQET_MATCH : 0) |
                  (end ? QRNIC_CQET_DATA_VALID : 0);
    cqe.byte_len = end ? in->received : 0;
    if (end) {
        qrnic_recv_wqe_drop(e, &in->recv);
        qrnic_tag_done(e, t);
    }
    qrnic_complete_tagged(e, qp, &cqe, start ? t->header : NULL);
    if (end) {
        g_free(t);
    }
}

void qrnic_tagged_abandon(QrnicEngine *e, QrnicInbound *in)
{
    if (in->recv && in->recv->tag) {
        qrnic_tag_abandon(e, in->recv->tag);
        qrnic_recv_wqe_drop(e, &in->recv);
        in->message = QRNIC_IDLE;
    }
}
