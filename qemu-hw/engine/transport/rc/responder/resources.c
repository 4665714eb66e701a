/*
 * qrnic engine: the responder of a reliable connection: its life, and requests
 * kept for repetition
 *
 * InfiniBand specification, 9.7.5.1.2.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/responder/responder.h"

/* The oldest of those that are to be answered. */
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

/* 9.7.5.1.2: the stored result again, or the read executed again. */
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
        /* It must be what it was, or a rest of it. */
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
    /* It is dropped, because its entry has been used for a newer request. */
    return false;
}

/* The entry that is n older than the newest one */
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

        /* One that is only being repeated has been answered. */
        if (x->pending && !x->repeated) {
            return false;
        }
    }
    return true;
}

/* max_dest_rd_atomic may have changed: the newest are kept. */
void qrnic_responder_attr_changed(QrnicEngine *e, QrnicQp *qp)
{
    QrnicResponder *r = qp->responder;
    uint32_t count = qp->attr.max_dest_rd_atomic;
    uint32_t keep = MIN(count, r->resource_count);
    QrnicResource *resource;

    /* Before the first read or atomic none are there to keep. */
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
