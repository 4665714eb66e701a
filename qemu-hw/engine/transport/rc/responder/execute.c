/*
 * qrnic engine, transport: the responder executes requests
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * sequence.c calls qrnic_responder_execute() for the expected request. Sends
 * and writes move data to memory at once. Reads, atomics and flushes reserve a
 * responder resource, and reply.c sends their responses later. A request that
 * meets no receive WQE or an absent page is not executed: an RNR NAK becomes
 * pending. An invalid request fails the queue pair. Between packets
 * qp->responder->in holds the message.
 *
 * InfiniBand specification, 9.7.4.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/responder/responder.h"
#include "engine/transport/shared/shared.h"

/* Invalidates the key after all data is written and before the completion. */
static bool invalidate(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;
    uint8_t syndrome = qrnic_remote_invalidate(e, &qp->keys,
                                               qrnic_remote_pd(e, qp, r->srqn),
                                               pkt->t.inv_key);

    if (syndrome) {
        /*
         * The completion reports the error, so no NAK is sent (class J,
         * 9.9.6.3).
         */
        qrnic_inbound_fail(e, qp, &r->in, QRNIC_CQE_RECV, QRNIC_WC_MW_BIND_ERR,
                           syndrome);
        qrnic_qp_error(e, qp, 0, 0);
    }
    return !syndrome;
}

static bool receive_send(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicInbound *in = &qp->responder->in;
    uint32_t flags = pkt->info->flags;
    QrnicFault fault;

    if (!qrnic_inbound_length_ok(qp, pkt)) {    /* 9.7.4.1.6 */
        return qrnic_refuse_invalid(e, qp);
    }
    if (flags & QRNIC_OPF_START) {
        if (!qrnic_rnr_take_wqe(e, qp, pkt)) {
            return false;
        }
        qrnic_inbound_send_begin(in);
    }
    switch (in->recv->tag ? qrnic_tagged_place(e, qp, in, pkt, &fault) :
                            qrnic_inbound_send(e, qp, in, pkt, &fault)) {
    case QRNIC_PLACED_TOO_LONG:
        qrnic_inbound_fail(e, qp, in, QRNIC_CQE_RECV, QRNIC_WC_LOC_LEN_ERR,
                           QRNIC_SYN_NONE);
        return qrnic_refuse_request(e, qp, QRNIC_NAK_INVALID, 0, 0);
    case QRNIC_PLACED_ABSENT:
        if (qrnic_rnr_wait_for_page(e, qp, pkt, QRNIC_SYN_PAGE_FAULT, &fault)) {
            return false;
        }
        qrnic_inbound_fail(e, qp, in, QRNIC_CQE_RECV, QRNIC_WC_LOC_PROT_ERR,
                           QRNIC_SYN_PAGE_FAULT);
        return qrnic_refuse_request(e, qp, QRNIC_NAK_OPERATION, 0, 0);
    case QRNIC_PLACED_FAILED:
        return qrnic_refuse_request(e, qp, QRNIC_NAK_OPERATION, 0, 0);
    case QRNIC_PLACED_OK:
        break;
    }
    if (flags & QRNIC_HDR_IETH && !invalidate(e, qp, pkt)) {
        return false;
    }
    if (in->recv->tag) {
        qrnic_tagged_placed(e, qp, in, pkt);
    } else if (flags & QRNIC_OPF_END) {
        qrnic_inbound_send_end(e, qp, in, pkt);
    }
    return true;
}

/*
 * Fails a write whose key is rejected, or whose access to memory has failed. A
 * write with immediate data has consumed its receive WQE, whose completion
 * reports the error (11.6.2). Otherwise an event reports it.
 */
static bool refuse_write(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                         uint8_t syndrome)
{
    QrnicInbound *in = &qp->responder->in;
    bool memory = syndrome == QRNIC_SYN_DMA;
    uint8_t nak = memory ? QRNIC_NAK_OPERATION : QRNIC_NAK_ACCESS;

    if (pkt->info->flags & QRNIC_HDR_IMM && in->recv) {
        qrnic_inbound_fail(e, qp, in, QRNIC_CQE_RECV_RDMA_WITH_IMM,
                           QRNIC_WC_LOC_ACCESS_ERR, syndrome);
        return qrnic_refuse_request(e, qp, nak, 0, 0);
    }
    return memory ? qrnic_refuse_operation(e, qp) : qrnic_refuse_access(e, qp);
}

/*
 * Writes the payload of an adaptive packet, which has its own address and
 * length.
 */
static enum qrnic_syndrome place(QrnicEngine *e, QrnicQp *qp, QrnicInbound *in,
                                 const QrnicPacket *pkt, QrnicFault *fault)
{
    uint32_t pd = qrnic_remote_pd(e, qp, qp->responder->srqn);
    enum qrnic_syndrome syndrome = qrnic_inbound_write_begin(e, qp, in, pkt,
                                                             pd);

    return syndrome ? syndrome : qrnic_inbound_write(e, qp, in, pkt, pd, fault);
}

static bool is_whole(const QrnicQp *qp, const QrnicPacket *pkt)
{
    const uint32_t only = QRNIC_OPF_START | QRNIC_OPF_END;
    uint32_t mtu = qrnic_qp_mtu(qp), len = pkt->payload_len;

    return (pkt->info->flags & only) == only && pkt->t.dma_len == len &&
           (pkt->t.mark & QRNIC_MARK_MORE ? len == mtu : len <= mtu);
}

bool qrnic_responder_place(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicInbound alone = { 0 };

    /*
     * The error is not reported here. The packet is executed again when all
     * packets before it have been executed, and the same error is reported
     * then.
     */
    return is_whole(qp, pkt) && !place(e, qp, &alone, pkt, NULL);
}

/*
 * Executes a packet of an adaptive write. The payload may already be in memory,
 * if the packet arrived out of order. The write is complete with its last
 * packet.
 */
static bool receive_adaptive(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt, bool placed)
{
    QrnicResponder *r = qp->responder;
    bool more = pkt->t.mark & QRNIC_MARK_MORE;
    enum qrnic_syndrome syndrome = QRNIC_SYN_NONE;
    QrnicFault fault;

    if (r->in.recv && (r->in.recv->tag || r->in.recv->tag_opcode)) {
        return qrnic_refuse_invalid(e, qp);
    }
    if ((!placed && !is_whole(qp, pkt)) ||
        r->adaptive_len + pkt->t.dma_len > QRNIC_MAX_MSG_SIZE ||
        (more && pkt->info->flags & QRNIC_HDR_IMM)) {
        return qrnic_refuse_invalid(e, qp);
    }
    if (pkt->info->flags & QRNIC_HDR_IMM && !qrnic_rnr_take_wqe(e, qp, pkt)) {
        return false;
    }
    if (!placed) {
        syndrome = place(e, qp, &r->in, pkt, &fault);
        if (qrnic_rnr_wait_for_page(e, qp, pkt, syndrome, &fault)) {
            return false;
        }
        qrnic_remote_trace(e, qp, pkt->t.rkey, pkt->t.va, pkt->payload_len,
                           syndrome);
    }
    if (syndrome) {
        return refuse_write(e, qp, pkt, syndrome);
    }
    r->adaptive_len += pkt->t.dma_len;
    r->in.message = QRNIC_IDLE;
    r->more = more;
    if (!more) {
        r->in.dma_len = r->adaptive_len;
        r->adaptive_len = 0;
        qrnic_inbound_write_end(e, qp, &r->in, pkt);
    }
    return true;
}

static bool receive_write(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicInbound *in = &qp->responder->in;
    uint32_t pd = qrnic_remote_pd(e, qp, qp->responder->srqn);
    uint32_t flags = pkt->info->flags;
    enum qrnic_syndrome syndrome = QRNIC_SYN_NONE;
    QrnicFault fault;

    /*
     * A send to a tag list keeps its WQE or entry after an RNR NAK. The peer
     * must then retransmit this send, so a write in its place is rejected.
     */
    if (in->recv && (in->recv->tag || in->recv->tag_opcode)) {
        return qrnic_refuse_invalid(e, qp);
    }
    /* The receive WQE is checked before the key (9.7.4.1.4, 9.7.4.1.5). */
    if (flags & QRNIC_HDR_IMM && !qrnic_rnr_take_wqe(e, qp, pkt)) {
        return false;
    }
    if (flags & QRNIC_OPF_START) {
        if (pkt->t.dma_len > QRNIC_MAX_MSG_SIZE) {
            return qrnic_refuse_invalid(e, qp);
        }
        syndrome = qrnic_inbound_write_begin(e, qp, in, pkt, pd);
        qrnic_remote_trace(e, qp, pkt->t.rkey, pkt->t.va, pkt->t.dma_len,
                           syndrome);
    }
    if (!syndrome && (!qrnic_inbound_length_ok(qp, pkt) ||
                      !qrnic_inbound_write_fits(in, pkt))) {
        return qrnic_refuse_invalid(e, qp);
    }
    if (!syndrome) {
        syndrome = qrnic_inbound_write(e, qp, in, pkt, pd, &fault);
        if (qrnic_rnr_wait_for_page(e, qp, pkt, syndrome, &fault)) {
            return false;
        }
        qrnic_remote_trace(e, qp, in->rkey, in->va + in->received,
                           pkt->payload_len, syndrome);
    }
    if (syndrome) {
        return refuse_write(e, qp, pkt, syndrome);
    }
    if (flags & QRNIC_OPF_END) {
        qrnic_inbound_write_end(e, qp, in, pkt);
    }
    return true;
}

/*
 * Returns true if the pages of a read or atomic are present. The check comes
 * before a resource is reserved, because otherwise each retransmission would
 * reserve another one. Returns false if a page is absent or a piece of an
 * indirect key is invalid; a reply is then pending.
 */
static bool pages_there(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                        enum qrnic_syndrome syndrome, uint64_t len,
                        QrnicFault *fault)
{
    if (!syndrome || syndrome == QRNIC_SYN_DMA) {
        return true;            /* the access itself reports the DMA error */
    }
    qrnic_fault_extend(fault, syndrome, len);
    if (!qrnic_rnr_wait_for_page(e, qp, pkt, syndrome, fault)) {
        qrnic_refuse_access(e, qp);
    }
    return false;
}

/* Checks the pages of the first packet of a read response. */
static bool read_pages_there(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt, QrnicMkey *k)
{
    uint32_t len = pkt->t.dma_len;
    uint32_t first = MIN(len, qrnic_qp_mtu(qp));
    QrnicFault fault;

    return pages_there(e, qp, pkt,
                       qrnic_memory_probe(e, k, pkt->t.va, first, false,
                                          &fault), len, &fault);
}

static bool atomic_pages_there(QrnicEngine *e, QrnicQp *qp,
                               const QrnicPacket *pkt, QrnicMkey *k)
{
    QrnicFault fault;

    return pages_there(e, qp, pkt,
                       qrnic_memory_probe_atomic(e, k, pkt->t.va, &fault), 8,
                       &fault);
}

/*
 * Reserves a resource for a new read or atomic. Returns NULL if the requester
 * has exceeded its limit.
 */
static QrnicResource *resource_new(QrnicEngine *e, QrnicQp *qp,
                                   const QrnicPacket *pkt, uint32_t psns)
{
    QrnicResponder *r = qp->responder;
    QrnicResource *x;

    if (!r->resource_count) {
        r->resource_count = qp->attr.max_dest_rd_atomic;
        r->resource = g_new0(QrnicResource, r->resource_count);
    }
    x = &r->resource[r->resource_next];
    if (x->pending) {
        /*
         * The oldest resource can be reused if its response is only repeated.
         * The requester exceeds its limit only if that response was never sent.
         */
        if (!x->repeated) {
            return NULL;
        }
        r->responses_pending--;
    }
    *x = (QrnicResource) {
        .valid = true,
        .opcode = pkt->t.opcode,
        .transmission = QRNIC_MARKED_TRANSMISSION(pkt->t.mark),
        .pending = true,
        .first_psn = pkt->t.psn,
        .next_psn = pkt->t.psn,
        .start_psn = pkt->t.psn,
        .last_psn = qrnic_psn_add(pkt->t.psn, psns - 1),
        .va = pkt->t.va,
        .rkey = pkt->t.rkey,
        .srqn = r->srqn,
        .syndrome = qrnic_credits_now(e, qp),
        .msn = (r->msn + 1) & 0xffffff,
    };
    r->resource_next = (r->resource_next + 1) % r->resource_count;
    r->responses_pending++;
    /* The response acknowledges all PSNs before its own. */
    qrnic_replies_cancel(e, qp, QRNIC_REPLY_ACK);
    qrnic_schedule(e, qp);
    return x;
}

static bool receive_read(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                         uint32_t *psns)
{
    QrnicResponder *r = qp->responder;
    QrnicResource *x;
    QrnicMkey *k;

    if (pkt->t.dma_len > QRNIC_MAX_MSG_SIZE ||
        !qp->attr.max_dest_rd_atomic) {
        return qrnic_refuse_invalid(e, qp);
    }
    if (!(qp->attr.access & QRNIC_ACCESS_REMOTE_READ) ||
        (pkt->t.dma_len &&
         qrnic_remote_check(e, qp, r->srqn, pkt->t.rkey, pkt->t.va,
                            pkt->t.dma_len, QRNIC_ACCESS_REMOTE_READ, &k))) {
        return qrnic_refuse_access(e, qp);
    }
    if (pkt->t.dma_len && !read_pages_there(e, qp, pkt, k)) {
        return false;
    }
    *psns = qrnic_psn_count(pkt->t.dma_len, qrnic_qp_mtu(qp));
    x = resource_new(e, qp, pkt, *psns);
    if (!x) {
        return qrnic_refuse_invalid(e, qp);
    }
    x->length = pkt->t.dma_len;
    qrnic_add(e, QRNIC_COUNTER_RX_READ, 1);
    return true;
}

/*
 * Releases the resource of an atomic or atomic write whose access has failed.
 * Either the DMA has failed, or software has removed a page since the check.
 */
static bool kept_failed(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt,
                        QrnicResource *x, enum qrnic_syndrome syndrome,
                        const QrnicFault *fault)
{
    x->valid = x->pending = false;
    qp->responder->responses_pending--;
    if (qrnic_rnr_wait_for_page(e, qp, pkt, syndrome, fault)) {
        return false;
    }
    return syndrome == QRNIC_SYN_DMA ? qrnic_refuse_operation(e, qp) :
                                       qrnic_refuse_access(e, qp);
}

/*
 * Checks the rkey and the page of an atomic or atomic write, and reserves its
 * responder resource. Returns NULL if the request is not executed now.
 */
static QrnicResource *atomic_begin(QrnicEngine *e, QrnicQp *qp,
                                   const QrnicPacket *pkt, uint8_t access,
                                   QrnicMkey **k)
{
    const QrnicTransport *t = &pkt->t;
    QrnicResource *x;

    if (qrnic_remote_check(e, qp, qp->responder->srqn, t->rkey, t->va, 8,
                           access, k)) {
        qrnic_refuse_access(e, qp);
        return NULL;
    }
    if (!atomic_pages_there(e, qp, pkt, *k)) {
        return NULL;
    }
    x = resource_new(e, qp, pkt, 1);
    if (!x) {
        qrnic_refuse_invalid(e, qp);
    }
    return x;
}

static bool receive_atomic(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    const QrnicTransport *t = &pkt->t;
    QrnicAtomic op = {
        .compare_swap = (t->opcode & QRNIC_OPERATION_MASK) ==
                        QRNIC_OP_RC_COMPARE_SWAP,
        .swap_add = t->swap_add,
        .compare = t->compare,
    };
    enum qrnic_syndrome syndrome;
    QrnicFault fault;
    QrnicResource *x;
    QrnicMkey *k;

    if (!(e->config.capabilities & QRNIC_CAP_ATOMIC) || t->va % 8 ||
        !qp->attr.max_dest_rd_atomic) {
        return qrnic_refuse_invalid(e, qp);
    }
    x = atomic_begin(e, qp, pkt, QRNIC_ACCESS_REMOTE_ATOMIC, &k);
    if (!x) {
        return false;
    }
    syndrome = qrnic_memory_atomic(e, k, t->va, &op, &fault);
    if (syndrome) {
        return kept_failed(e, qp, pkt, x, syndrome, &fault);
    }
    x->atomic = true;
    x->original = op.original;
    qrnic_add(e, QRNIC_COUNTER_RX_ATOMIC, 1);
    return true;
}

/*
 * Executes an atomic write (annex A19): 8 bytes, visible as a whole, after all
 * earlier requests.
 */
static bool receive_atomic_write(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicPacket *pkt)
{
    const QrnicTransport *t = &pkt->t;
    enum qrnic_syndrome syndrome;
    QrnicFault fault;
    QrnicResource *x;
    QrnicMkey *k;

    if (!(e->config.capabilities & QRNIC_CAP_ATOMIC_WRITE) || t->va % 8 ||
        t->dma_len != 8 || pkt->payload_len != 8 ||
        !qp->attr.max_dest_rd_atomic) {
        return qrnic_refuse_invalid(e, qp);
    }
    x = atomic_begin(e, qp, pkt, QRNIC_ACCESS_REMOTE_WRITE, &k);
    if (!x) {
        return false;
    }
    syndrome = qrnic_memory_write(e, k, t->va, pkt->payload, 8, &fault);
    if (syndrome) {
        return kept_failed(e, qp, pkt, x, syndrome, &fault);
    }
    qrnic_add(e, QRNIC_COUNTER_RX_ATOMIC_WRITE, 1);
    return true;
}

/*
 * Executes a flush (annex A19). All earlier data is in memory and visible,
 * because each request is executed before the next one. So only the key is
 * checked. No region grants more than global visibility.
 */
static bool receive_flush(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    const QrnicTransport *t = &pkt->t;
    QrnicMkey *k = qrnic_mkey_get(e, t->rkey >> 8);
    uint64_t va = t->va, len = t->dma_len;

    if (!(e->config.capabilities & QRNIC_CAP_FLUSH) || !t->flush_type ||
        t->flush_level > QRNIC_FLUSH_MR || !qp->attr.max_dest_rd_atomic) {
        return qrnic_refuse_invalid(e, qp);
    }
    if (t->flush_level == QRNIC_FLUSH_MR) {
        va = k ? k->ctx.start : 0;
        len = 0;
    }
    if (t->flush_type != QRNIC_FLUSH_GLOBAL ||
        qrnic_remote_check(e, qp, qp->responder->srqn, t->rkey, va, len,
                           QRNIC_ACCESS_FLUSH_GLOBAL, &k)) {
        return qrnic_refuse_access(e, qp);
    }
    if (!resource_new(e, qp, pkt, 1)) {
        return qrnic_refuse_invalid(e, qp);
    }
    qrnic_add(e, QRNIC_COUNTER_RX_FLUSH, 1);
    return true;
}

bool qrnic_responder_execute(QrnicEngine *e, QrnicQp *qp,
                             const QrnicPacket *pkt, bool placed,
                             uint32_t *psns)
{
    uint32_t flags = pkt->info->flags;

    if (flags & QRNIC_OPF_ENCAPSULATED) {
        if (!placed) {
            qrnic_encapsulated_receive(e, qp, pkt);
        }
        return true;
    }
    if (flags & QRNIC_OPF_SEND) {
        return receive_send(e, qp, pkt);
    }
    if (qrnic_is_adaptive(qp, pkt)) {
        return receive_adaptive(e, qp, pkt, placed);
    }
    if (flags & QRNIC_OPF_WRITE) {
        return receive_write(e, qp, pkt);
    }
    if (flags & QRNIC_OPF_READ) {
        return receive_read(e, qp, pkt, psns);
    }
    if (flags & QRNIC_OPF_ATOMIC_WRITE) {
        return receive_atomic_write(e, qp, pkt);
    }
    if (flags & QRNIC_OPF_FLUSH) {
        return receive_flush(e, qp, pkt);
    }
    return receive_atomic(e, qp, pkt);
}
