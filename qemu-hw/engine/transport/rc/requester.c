/*
 * qrnic engine: the requester of a reliable connection
 *
 * Messages under way, their completion in order, and its life. InfiniBand
 * specification, 9.7.2 to 9.7.8.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/rc.h"

void qrnic_requester_fail(QrnicEngine *e, QrnicQp *qp, uint8_t status,
                          uint8_t syndrome)
{
    QrnicRequester *r = qp->requester;
    QrnicPending *p = qrnic_pending_at(r, r->tail++);

    trace_qrnic_requester_error(e->config.name, qp->number, p->index, r->una,
                                qrnic_wc_status_name(status), syndrome);
    qrnic_complete_sq(e, qp, p->index, p->wqebbs, p->opcode, p->flags, status,
                      syndrome, 0);
    qrnic_qp_error(e, qp, 0, 0);
}

void qrnic_requester_retire(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    while (r->tail != r->head && qrnic_requester_may_run(qp)) {
        QrnicPending *p = qrnic_pending_at(r, r->tail);
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
        /* An answer to what was sent before the cursor went back. */
        if (r->cursor == r->tail) {
            r->cursor++;
            r->cursor_psn = qrnic_pending_end(p);
        }
        r->tail++;
        r->ssn_done = p->ssn;
        r->receives_done = p->receives;
        r->rd_done += rd;
        qrnic_complete_sq(e, qp, p->index, p->wqebbs, p->opcode, p->flags,
                          QRNIC_WC_SUCCESS, QRNIC_SYN_NONE,
                          rd ? p->length : 0);
    }
    if (qrnic_psn_diff(r->una, r->cursor_psn) > 0) {
        r->cursor_psn = r->una;
    }
}

bool qrnic_requester_flush_one(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;
    QrnicPending *p;

    if (r->tail == r->head) {
        return false;
    }
    p = qrnic_pending_at(r, r->tail++);
    qrnic_complete_sq(e, qp, p->index, p->wqebbs, p->opcode, p->flags,
                      QRNIC_WC_WR_FLUSH_ERR, QRNIC_SYN_NONE, 0);
    return true;
}

bool qrnic_requester_idle(const QrnicQp *qp)
{
    return qp->requester->tail == qp->requester->head;
}

uint32_t qrnic_requester_next_psn(const QrnicQp *qp)
{
    return qp->requester->next_psn;
}

/* Only while nothing is under way. */
void qrnic_requester_attr_changed(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    r->initiated_count = qp->attr.max_rd_atomic + 1;
    r->initiated = g_renew(QrnicInitiated, r->initiated, r->initiated_count);
    r->retries = qp->attr.retry_cnt;
    r->rnr_retries = qp->attr.rnr_retry;
}

void qrnic_rc_start_send(QrnicEngine *e, QrnicQp *qp)
{
    QrnicRequester *r = qp->requester;

    r->cursor_psn = r->next_psn = r->sent_psn = r->una = qp->attr.sq_psn;
    r->asked_psn = r->una;
    r->deadline = QRNIC_DEADLINE_NEVER;
    qrnic_requester_attr_changed(e, qp);
}
