/*
 * qrnic engine, transport: responder resources, and creation of the responder
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A resource is a read, atomic or flush whose response can be repeated. The
 * file execute.c reserves a resource, and reply.c sends its response. For a
 * duplicate sequence.c calls qrnic_resource_repeat(). The newest
 * max_dest_rd_atomic resources are kept in a ring, even after their response is
 * sent.
 *
 * InfiniBand specification, 9.7.5.1.2.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/responder/responder.h"

/* Returns the oldest resource with a pending response. */
QrnicResource *qrnic_resource_first(QrnicResponder *r)
{
    for (uint32_t i = 0; i < r->resource_count; i++) {
        QrnicResource *x = &r->resource[(r->resource_next + i) %
                                        r->resource_count];

        if (x->pending) {
            return x;
        }
    }
    g_assert_not_reached();
}

void qrnic_resource_finish(QrnicResponder *r, QrnicResource *x)
{
    x->pending = false;
    x->repeated = false;
    r->responses_pending--;
}

/*
 * Repeats a response (9.7.5.1.2): a read is executed again, an atomic returns
 * the stored value.
 */
bool qrnic_resource_repeat(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *pkt)
{
    QrnicResponder *r = qp->responder;
    bool read = pkt->info->flags & QRNIC_OPF_READ, waits;

    for (uint32_t i = 0; i < r->resource_count; i++) {
        QrnicResource *x = &r->resource[i];
        uint32_t skipped = qrnic_psn_distance(x->first_psn, pkt->t.psn);
        uint64_t offset = (uint64_t)skipped * qrnic_qp_mtu(qp);

        if (!x->valid || x->opcode != pkt->t.opcode ||
            skipped > qrnic_psn_distance(x->first_psn, x->last_psn)) {
            continue;
        }
        /*
         * A duplicate must be the same request, or request the rest of a read.
         */
        if (pkt->t.rkey != x->rkey || pkt->t.va != x->va + offset ||
            pkt->t.srqn != x->srqn ||
            (read && pkt->t.dma_len != x->length - offset)) {
            return false;
        }
        waits = r->replies & QRNIC_REPLY_PAGE && x->pending &&
                x == qrnic_resource_first(r);
        x->transmission = QRNIC_MARKED_TRANSMISSION(pkt->t.mark);
        x->next_psn = pkt->t.psn;
        if (!x->atomic) {
            x->start_psn = pkt->t.psn;
        }
        if (!x->pending) {
            x->pending = true;
            x->repeated = true;
            r->responses_pending++;
        }
        qrnic_schedule(e, qp);
        return waits;
    }
    /*
     * The duplicate is dropped, because its entry has been used for a newer
     * request.
     */
    return false;
}

/* Returns the nth resource before the newest one. */
static QrnicResource *resource_back(const QrnicResponder *r, uint32_t n)
{
    return &r->resource[(r->resource_next + r->resource_count - 1 - n) %
                      r->resource_count];
}

bool qrnic_responder_can_keep(const QrnicQp *qp, uint32_t count)
{
    const QrnicResponder *r = qp->responder;

    for (uint32_t n = count; n < r->resource_count; n++) {
        const QrnicResource *x = resource_back(r, n);

        /*
         * A resource that only repeats its response has been answered, so it
         * may be lost.
         */
        if (x->pending && !x->repeated) {
            return false;
        }
    }
    return true;
}

/*
 * Resizes the ring after a change of max_dest_rd_atomic. The newest resources
 * are kept.
 */
void qrnic_responder_attr_changed(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;
    uint32_t count = qp->attr.max_dest_rd_atomic;
    uint32_t keep = MIN(count, r->resource_count);
    QrnicResource *resource;

    /* The ring is allocated at the first read or atomic. */
    if (!r->resource_count || r->resource_count == count) {
        return;
    }
    resource = g_new0(QrnicResource, count);
    r->responses_pending = 0;
    for (uint32_t n = 0; n < keep; n++) {
        resource[keep - 1 - n] = *resource_back(r, n);
        r->responses_pending += resource[keep - 1 - n].pending;
    }
    g_free(r->resource);
    r->resource = resource;
    r->resource_count = count;
    r->resource_next = count ? keep % count : 0;
}

uint32_t qrnic_responder_srqn(const QrnicQp *qp)
{
    return qp->responder->srqn;
}

void qrnic_responder_srq_destroyed(QrnicEngine *e, QrnicQp *qp, uint32_t srqn)
{
    QrnicResponder *r = qp->responder;
    QrnicInbound *in = &r->in;

    if (in->recv && in->recv->srqn == srqn) {
        trace_qrnic_xrc_cut_short(e->config.name, qp->number, srqn,
                                  in->recv->index);
        qrnic_recv_wqe_drop(e, &in->recv);
    }
    if (r->srqn == srqn) {
        r->srqn = 0;
    }
}

QrnicConnectionTimes *qrnic_responder_times(const QrnicQp *qp)
{
    return &qp->responder->times;
}

uint32_t qrnic_responder_expected_psn(const QrnicQp *qp)
{
    return qp->responder->epsn;
}

void qrnic_responder_init(QrnicEngine *e, QrnicQp *qp)
{
    qp->responder = g_new0(QrnicResponder, 1);
}

void qrnic_responder_cleanup(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_inbound_cleanup(e, qp, &qp->responder->in);
    qrnic_reorder_cleanup(e, qp);
    g_free(qp->responder->resource);
    g_free(qp->responder);
    qp->responder = NULL;
}

void qrnic_rc_start_receive(QrnicEngine *e, QrnicQp *qp)
{
    qp->responder->epsn = qp->attr.rq_psn;
    qrnic_responder_attr_changed(e, qp);
}
