/*
 * qrnic engine, transport: rendezvous of tag matching, at the receiver
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A rendezvous request has only the address of its data. When the request has
 * matched an entry of the tag list, the responder calls qrnic_rendezvous_ask().
 * The requester then reads the data, completes the entry, and sends a FIN to
 * the sender. Read and FIN are messages in the ring of the requester, but use
 * no slot of the SQ. Until send.c appends them to the ring, reads and FINs wait
 * in r->reads and r->fins. Manual, chapter Tag matching.
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "trace.h"
#include "engine/transport/rc/requester/requester.h"

#define TMH_FIN 2

static uint64_t address_of(const QrnicTag *t)
{
    return ldq_be_p(t->header + 16);
}

static uint32_t key_of(const QrnicTag *t)
{
    return ldl_be_p(t->header + 24);
}

uint32_t qrnic_rendezvous_length(const QrnicTag *t)
{
    return ldl_be_p(t->header + 28);
}

void qrnic_rendezvous_trace(QrnicEngine *e, const QrnicQp *qp,
                            const QrnicTag *t, const char *what)
{
    trace_qrnic_rendezvous(e->config.name, qp->number, t->handle,
                           address_of(t), key_of(t),
                           qrnic_rendezvous_length(t), what);
}

void qrnic_rendezvous_init(QrnicRequester *r)
{
    QTAILQ_INIT(&r->reads);
    QTAILQ_INIT(&r->fins);
}

void qrnic_rendezvous_ask(QrnicEngine *e, QrnicQp *qp, QrnicTag *t)
{
    QTAILQ_INSERT_TAIL(&qp->requester->reads, t, next);
    qrnic_schedule(e, qp);
}

bool qrnic_rendezvous_waits(const QrnicRequester *r)
{
    return !QTAILQ_EMPTY(&r->reads) || !QTAILQ_EMPTY(&r->fins);
}

/* Returns FINs before reads, because their senders have waited longer. */
QrnicTag *qrnic_rendezvous_next(QrnicRequester *r)
{
    QrnicTag *t = QTAILQ_FIRST(&r->fins);

    if (t) {
        QTAILQ_REMOVE(&r->fins, t, next);
        return t;
    }
    t = QTAILQ_FIRST(&r->reads);
    if (t) {
        QTAILQ_REMOVE(&r->reads, t, next);
    }
    return t;
}

static void message_wqe(const void *object, QrnicSendWqe *w)
{
    const QrnicTag *t = object;

    w->index = w->wqebbs = 0;
    w->flags = 0;
    w->imm = w->srqn = 0;
    w->num_sge = 0;
    if (t->list) {
        w->opcode = QRNIC_WQE_RDMA_READ;
        w->remote_addr = address_of(t);
        w->rkey = key_of(t);
        w->length = qrnic_rendezvous_length(t);
        w->num_sge = t->num_sge;
        memcpy(w->sge, t->sge, t->num_sge * sizeof(t->sge[0]));
    } else {
        w->opcode = QRNIC_WQE_SEND;
        w->flags = QRNIC_WQEF_INLINE;
        w->length = sizeof(t->header);
        memcpy(w->inline_data, t->header, sizeof(t->header));
    }
}

static void complete_entry(QrnicEngine *e, QrnicQp *qp, QrnicTag *t,
                           uint8_t status, uint8_t syndrome)
{
    bool ok = status == QRNIC_WC_SUCCESS;
    QrnicCqe cqe = {
        .index = t->handle, .qpn = qp->number, .srqn = qp->srq->number,
        .opcode = QRNIC_CQE_TAG_RECV, .status = status, .syndrome = syndrome,
        .tagged = QRNIC_CQET_ENTRY | (ok ? QRNIC_CQET_DATA_VALID : 0),
        .flags = t->solicited ? QRNIC_CQEF_SOLICITED : 0,
        .byte_len = ok ? qrnic_rendezvous_length(t) : 0,
    };

    qrnic_tag_done(e, t);
    qrnic_complete_recv(e, qp, &cqe);
}

static void rendezvous_done(QrnicEngine *e, QrnicQp *qp, void *object,
                            uint8_t status, uint8_t syndrome)
{
    QrnicTag *t = object;
    bool ok = status == QRNIC_WC_SUCCESS;

    if (!t->list) {             /* The message was the FIN. */
        qrnic_rendezvous_trace(e, qp, t, ok ? "FIN sent" : "FIN not sent");
        g_free(t);
        return;
    }
    qrnic_rendezvous_trace(e, qp, t, ok ? "read" : "failed");
    if (!ok) {
        complete_entry(e, qp, t, status, syndrome);
        g_free(t);
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_RENDEZVOUS, 1);
    qrnic_add(e, QRNIC_COUNTER_RENDEZVOUS_BYTES, qrnic_rendezvous_length(t));
    complete_entry(e, qp, t, status, syndrome);
    t->header[0] = TMH_FIN;
    QTAILQ_INSERT_TAIL(&qp->requester->fins, t, next);
    qrnic_schedule(e, qp);
}

/* Returns the PD of the SRQ, because the keys of an entry belong to the SRQ. */
static uint32_t message_pd(const QrnicQp *qp)
{
    return qp->srq->ctx.pd;
}

static bool message_is_silent(const void *object)
{
    const QrnicTag *t = object;

    return !t->list;
}

/* Frees a FIN. An entry with a handle belongs to the tag list. */
static void message_free(QrnicEngine *e, void *object)
{
    QrnicTag *t = object;

    if (!t->list) {
        g_free(t);
    }
}

const QrnicMessageSource qrnic_rendezvous_source = {
    .wqe = message_wqe,
    .pd = message_pd,
    .complete = rendezvous_done,
    .is_silent = message_is_silent,
    .free = message_free,
};

bool qrnic_rendezvous_flush_one(QrnicEngine *e, QrnicQp *qp)
{
    QrnicTag *t = qrnic_rendezvous_next(qp->requester);

    if (t) {
        rendezvous_done(e, qp, t, QRNIC_WC_WR_FLUSH_ERR, QRNIC_SYN_NONE);
    }
    return t;
}

/*
 * Frees entries that are not in the ring. Entries with a handle stay in the tag
 * list.
 */
void qrnic_rendezvous_cleanup(QrnicRequester *r)
{
    QrnicTag *t;

    while ((t = qrnic_rendezvous_next(r))) {
        if (!t->list) {
            g_free(t);
        }
    }
}

/* Returns true for the read of a matched entry, false for a FIN. */
static bool is_read(const QrnicMessage *p)
{
    const QrnicTag *t = p->object;

    return p->source == &qrnic_rendezvous_source && t->list;
}

void qrnic_rendezvous_abandon(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    QrnicTag *t;

    for (uint32_t n = r->tail; n != r->head; n++) {
        QrnicMessage *p = qrnic_message_at(r, n);

        if (is_read(p)) {
            qrnic_tag_abandon(e, p->object);
            p->source = NULL;
        }
    }
    while ((t = QTAILQ_FIRST(&r->reads))) {
        QTAILQ_REMOVE(&r->reads, t, next);
        qrnic_tag_abandon(e, t);
    }
}
