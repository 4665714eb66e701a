/*
 * qrnic engine, transport: ring of messages of the requester
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Creates and frees the requester, and completes messages in the order of the
 * queue. The sender (send.c) and the carrier append messages at the head. A
 * response moves una, and qrnic_requester_retire() completes messages at the
 * tail. In ERR, qrnic_requester_flush_one() completes the rest. Each message is
 * in the ring from its WQE until its completion.
 *
 * InfiniBand specification, 9.7.2 to 9.7.8.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/requester/requester.h"

QrnicMessage *qrnic_message_new(QrnicEngine *e, QrnicRequester *r)
{
    QrnicMessage **chunk = &r->chunk[r->head % QRNIC_MESSAGES /
                                     QRNIC_MESSAGE_CHUNK];
    QrnicMessage *p;

    if (!*chunk) {
        *chunk = qrnic_buffer_get(e, QRNIC_MESSAGE_CHUNK * sizeof(**chunk));
    }
    p = qrnic_message_at(r, r->head);
    memset(p, 0, sizeof(*p));
    return p;
}

bool qrnic_requester_has_room(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    if (r->head - r->tail == QRNIC_MESSAGES) {
        qrnic_requester_block(e, qp, QRNIC_BLOCKED_WINDOW);
        return false;
    }
    return true;
}

void qrnic_requester_append(QrnicEngine *e, QrnicQp *qp,
                            const QrnicMessageSource *source, void *object,
                            uint32_t len)
{
    QrnicRequester *r = qp->requester;
    QrnicMessage *p = qrnic_message_new(e, r);

    p->source = source;
    p->object = object;
    p->opcode = QRNIC_WQE_NOP;
    p->length = len;
    p->packets = 1;
    p->ssn = ++r->ssn;
    qrnic_cursor_append(r, p);
}

void qrnic_requester_wqe_drop(QrnicEngine *e, QrnicRequester *r)
{
    qrnic_buffer_put(e, r->wqe, sizeof(*r->wqe));
    r->wqe = NULL;
}

/* Frees the message at the tail, which is complete. */
static void message_drop(QrnicEngine *e, QrnicRequester *r)
{
    uint32_t n = r->tail++;
    QrnicMessage *p = qrnic_message_at(r, n);
    QrnicMessage **chunk = &r->chunk[n % QRNIC_MESSAGES / QRNIC_MESSAGE_CHUNK];

    qrnic_buffer_put(e, p->initiated, sizeof(*p->initiated));
    if (p->source) {
        p->source->free(e, p->object);
    }
    if (r->wqe_message == n) {
        qrnic_requester_wqe_drop(e, r);
    }
    /* The chunk is kept if the head has wrapped around into it. */
    if (r->tail == r->head ||
        (r->tail % QRNIC_MESSAGE_CHUNK == 0 &&
         r->head - r->tail <= QRNIC_MESSAGES - QRNIC_MESSAGE_CHUNK)) {
        qrnic_buffer_put(e, *chunk, QRNIC_MESSAGE_CHUNK * sizeof(**chunk));
        *chunk = NULL;
    }
}

/* Completes the message at the tail. The caller then drops the message. */
static void message_complete(QrnicEngine *e, QrnicQp *qp, QrnicMessage *p,
                             uint8_t status, uint8_t syndrome)
{
    bool ok = status == QRNIC_WC_SUCCESS;

    if (p->source) {
        p->source->complete(e, qp, p->object, status, syndrome);
        p->source = NULL;
    } else {
        qrnic_complete_sq(e, qp, p->index, p->wqebbs, p->opcode, p->flags,
                          status, syndrome,
                          ok && qrnic_wqe_is_rd(p->opcode) ? p->length : 0);
    }
}

void qrnic_requester_fail(QrnicEngine *e, QrnicQp *qp, uint8_t status,
                          uint8_t syndrome)
{
    QrnicRequester *r = qp->requester;
    QrnicMessage *p = qrnic_message_at(r, r->tail);
    bool silent = p->source && p->source->is_silent(p->object);

    trace_qrnic_requester_error(e->config.name, qp->number, p->index, r->una,
                                qrnic_wc_status_name(status), syndrome);
    message_complete(e, qp, p, status, syndrome);
    message_drop(e, r);
    /* An event reports the failure if no completion does. */
    qrnic_qp_error(e, qp, silent ? QRNIC_EVENT_QP_FATAL : 0,
                   silent ? status : 0);
}

void qrnic_requester_retire(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    while (r->tail != r->head && qrnic_requester_may_run(qp)) {
        QrnicMessage *p = qrnic_message_at(r, r->tail);
        bool rd = qrnic_wqe_is_rd(p->opcode);

        if (p->status) {
            qrnic_requester_fail(e, qp, p->status, p->syndrome);
            return;
        }
        if (p->packets ?
            qrnic_psn_distance(p->first_psn, r->una) < p->packets :
            !p->executed) {
            break;
        }
        /*
         * The cursor may have moved back to this message before the answer to
         * an earlier transmission arrived.
         */
        qrnic_cursor_complete(r, p);
        r->ssn_done = p->ssn;
        r->receives_done = p->receives;
        r->rd_done += rd;
        message_complete(e, qp, p, QRNIC_WC_SUCCESS, QRNIC_SYN_NONE);
        message_drop(e, r);
    }
    qrnic_cursor_catch_up(r);
    if (qp->ops->messages_done) {
        qp->ops->messages_done(e, qp);
    }
}

bool qrnic_requester_flush_one(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    QrnicMessage *p;

    if (r->tail == r->head) {
        return qrnic_rendezvous_flush_one(e, qp);
    }
    p = qrnic_message_at(r, r->tail);
    message_complete(e, qp, p, QRNIC_WC_WR_FLUSH_ERR, QRNIC_SYN_NONE);
    message_drop(e, r);
    return true;
}

bool qrnic_requester_idle(const QrnicQp *qp)
{
    return qp->requester->tail == qp->requester->head;
}

bool qrnic_requester_has_no_read(const QrnicQp *qp)
{
    return qp->requester->rd_taken == qp->requester->rd_done;
}

uint32_t qrnic_requester_next_psn(const QrnicQp *qp)
{
    return qp->requester->next_psn;
}

uint32_t qrnic_requester_oldest_psn(const QrnicQp *qp)
{
    return qp->requester->una;
}

void qrnic_requester_init(QrnicEngine *e, QrnicQp *qp)
{
    qp->requester = g_new0(QrnicRequester, 1);
    qp->requester->deadline = QRNIC_DEADLINE_NEVER;
    qrnic_rendezvous_init(qp->requester);
    /*
     * The stored epoch differs from the current one. Otherwise the first check
     * would treat the wire as blocked since an earlier check.
     */
    qp->requester->wire_epoch = e->fabric->wire_epoch - 1;
}

void qrnic_requester_cleanup(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    while (r->tail != r->head) {
        message_drop(e, r);
    }
    qrnic_requester_wqe_drop(e, r);
    qrnic_rendezvous_cleanup(r);
    g_free(r->selective);
    g_free(r);
    qp->requester = NULL;
}

/* Resets the retry counts. Called only while no message is in flight. */
void qrnic_requester_attr_changed(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    r->retries = qp->attr.retry_cnt;
    r->rnr_retries = qp->attr.rnr_retry;
}

void qrnic_rc_start_send(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    qrnic_cursor_start(r, qp->attr.sq_psn);
    r->deadline = QRNIC_DEADLINE_NEVER;
    qrnic_selective_start(qp);
    qrnic_requester_attr_changed(e, qp);
}
