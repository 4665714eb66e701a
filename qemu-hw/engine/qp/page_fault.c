/*
 * qrnic engine, layer qp: queue pairs that wait for pages
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A transport calls qrnic_page_fault() when an access meets an absent page.
 * This file sends an event to the EQ for page faults. Software queries the
 * fault, pages the memory in, and resumes the queue pair, or rejects the fault.
 * For an absent page of a process, this file calls page_request.c instead, if
 * software has enabled page requests. The response of the IOMMU then resumes or
 * rejects the page fault.
 * A queue pair waits for at most one page in each direction, so that the number
 * of pending events is limited. The wait, qp->wait[side], exists from the fault
 * until software answers. After a rejection the wait remains until the access
 * is repeated. Manual, chapter on memory on demand.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

#define EVENT_BUDGET 256
#define ANSWER_BUDGET 64

struct QrnicWait {
    uint32_t number;            /* number of the page fault */
    QrnicPageFault at;
    bool refused;               /* rejected by software; no longer waits */
    bool owed;                  /* its event is not yet sent */
    QTAILQ_ENTRY(QrnicWait) next;       /* list of pending events */
};

static void owed_add(QrnicEngine *e, QrnicWait *w)
{
    w->owed = true;
    QTAILQ_INSERT_TAIL(&e->qps->faults_owed, w, next);
}

static void owed_remove(QrnicEngine *e, QrnicWait *w)
{
    if (w->owed) {
        QTAILQ_REMOVE(&e->qps->faults_owed, w, next);
        w->owed = false;
    }
}

static void drop(QrnicEngine *e, QrnicQp *qp, QrnicSide side)
{
    if (qp->wait[side]) {
        owed_remove(e, qp->wait[side]);
        g_free(qp->wait[side]);
        qp->wait[side] = NULL;
    }
}

void qrnic_page_faults_drop(QrnicEngine *e, QrnicQp *qp)
{
    drop(e, qp, QRNIC_SIDE_SEND);
    drop(e, qp, QRNIC_SIDE_RECV);
}

bool qrnic_page_fault_waits(const QrnicQp *qp, QrnicSide side)
{
    return qp->wait[side] && !qp->wait[side]->refused;
}

static void tell(QrnicEngine *e, QrnicWait *w)
{
    const uint32_t number = w->number, sequence = w->at.sequence;

    owed_remove(e, w);
    qrnic_fault_eq_push(e, number, sequence);
}

/* Returns the next page fault whose event can be sent, or NULL. */
static QrnicWait *next_owed(const QrnicEngine *e)
{
    QrnicWait *w = QTAILQ_FIRST(&e->qps->faults_owed);

    return w && qrnic_fault_eq_has_room(e) ? w : NULL;
}

bool qrnic_page_faults_pending(const QrnicEngine *e)
{
    return next_owed(e);
}

static bool same_access(const QrnicPageFault *a, const QrnicPageFault *b)
{
    return a->key == b->key && a->address == b->address &&
           a->flags == b->flags && a->pasid == b->pasid;
}

bool qrnic_page_fault_wait(QrnicEngine *e, QrnicQp *qp, QrnicSide side,
                           const QrnicFault *fault)
{
    const QrnicPageFault *at = &fault->at;
    QrnicWait *w = qp->wait[side];

    if (w && !w->refused) {
        return true;
    }
    if (!qrnic_fault_eq_exists(e) ||
        (w && same_access(&w->at, at))) {
        drop(e, qp, side);
        return false;
    }
    drop(e, qp, side);
    w = g_new0(QrnicWait, 1);
    w->number = qp->number << 1 | side;
    w->at = *at;
    w->at.sequence = ++e->qps->fault_sequence;
    qp->wait[side] = w;
    qrnic_add(e, QRNIC_COUNTER_PAGE_FAULTS, 1);
    trace_qrnic_page_fault(e->config.name, qp->number, side, at->key,
                           at->address, at->length, at->flags, w->at.sequence);
    if (at->flags & QRNIC_PAGE_FAULT_PASID &&
        qrnic_page_request(e, w->number, &w->at, fault->absent)) {
        return true;
    }
    owed_add(e, w);
    /*
     * The event is sent at once only if no other event is pending. Otherwise
     * the event would overtake older ones.
     */
    if (next_owed(e) == w) {
        tell(e, w);
    }
    return true;
}

/*
 * Reports pending page faults while there is room, at most EVENT_BUDGET in one
 * round.
 */
void qrnic_page_faults_process(QrnicEngine *e)
{
    QrnicWait *w = next_owed(e);

    for (unsigned budget = EVENT_BUDGET; budget && !e->fatal && w; budget--) {
        tell(e, w);
        w = next_owed(e);
    }
}

/* Returns the queue pair that waits with this number; else NULL and *error. */
static QrnicQp *waiting(QrnicEngine *e, uint32_t number, QrnicResult *error)
{
    QrnicQp *qp = qrnic_qp_get(e, number >> 1);

    *error = qrnic_ok(0);
    if (!(e->config.capabilities & QRNIC_CAP_ON_DEMAND)) {
        *error = qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
        qp = NULL;
    } else if (!qp) {
        *error = qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    } else if (!qrnic_page_fault_waits(qp, number & 1)) {
        *error = qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
        qp = NULL;
    }
    return qp;
}

QrnicResult qrnic_page_fault_query(QrnicEngine *e, uint32_t number,
                                   QrnicPageFault *out)
{
    QrnicResult error;
    QrnicQp *qp = waiting(e, number, &error);

    if (qp) {
        *out = qp->wait[number & 1]->at;
    }
    return error;
}

static void go_on(QrnicEngine *e, QrnicQp *qp, QrnicSide side)
{
    if (qp->ops->resume) {
        qp->ops->resume(e, qp, side);
    }
    qrnic_schedule(e, qp);
}

/*
 * Returns the queue pair whose page fault the command answers; else NULL and
 * *error.
 *
 * The context is fetched before the page fault ends, because the fetch delivers
 * buffered frames. A buffered frame may meet another absent page, and this page
 * fault must not begin after the old one has ended. The fetch may also fail the
 * queue pair, so the page fault is searched again.
 */
static QrnicQp *answered(QrnicEngine *e, uint32_t number,
                         const QrnicFaultAnswer *in, QrnicResult *error)
{
    QrnicQp *qp = waiting(e, number, error);

    if (qp) {
        qrnic_context_now(e, qp);
        qp = waiting(e, number, error);
    }
    if (qp && qp->wait[number & 1]->at.sequence != in->sequence) {
        *error = qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
        qp = NULL;
    }
    return qp;
}

QrnicResult qrnic_page_fault_resume(QrnicEngine *e, uint32_t number,
                                    const QrnicFaultAnswer *in)
{
    QrnicResult error;
    QrnicQp *qp = answered(e, number, in, &error);

    if (qp) {
        trace_qrnic_page_fault_resume(e->config.name, qp->number, number & 1);
        drop(e, qp, number & 1);
        go_on(e, qp, number & 1);
    }
    return error;
}

/*
 * Rejects a page fault. The wait remains so that the repeated access fails,
 * once. Without a resume operation the wait is freed, because the packet was
 * dropped and is not repeated.
 */
static void refuse(QrnicEngine *e, QrnicQp *qp, QrnicSide side)
{
    trace_qrnic_page_fault_refuse(e->config.name, qp->number, side);
    if (side == QRNIC_SIDE_RECV && !qp->ops->resume) {
        drop(e, qp, side);
        return;
    }
    owed_remove(e, qp->wait[side]);
    qp->wait[side]->refused = true;
    go_on(e, qp, side);
}

QrnicResult qrnic_page_fault_refuse(QrnicEngine *e, uint32_t number,
                                    const QrnicFaultAnswer *in)
{
    QrnicResult error;
    QrnicQp *qp = answered(e, number, in, &error);

    if (qp) {
        qrnic_add(e, QRNIC_COUNTER_PAGE_REFUSALS, 1);
        refuse(e, qp, number & 1);
    }
    return error;
}

/* Reports a page fault by an event, after its page requests were in vain. */
static void report_by_event(QrnicEngine *e, uint32_t number,
                            const QrnicFaultAnswer *in)
{
    QrnicResult error;
    QrnicQp *qp = answered(e, number, in, &error);

    if (qp && !qp->wait[number & 1]->owed) {
        owed_add(e, qp->wait[number & 1]);
    }
}

void qrnic_page_answers_process(QrnicEngine *e)
{
    QrnicPageAnswer answer;

    for (unsigned budget = ANSWER_BUDGET;
         budget && !e->fatal && qrnic_page_request_answer(e, &answer);
         budget--) {
        const QrnicFaultAnswer in = { answer.sequence };

        /* The functions reject the number of a page fault that has ended. */
        if (answer.kind == QRNIC_PAGE_ANSWER_REJECT) {
            qrnic_page_fault_refuse(e, answer.number, &in);
        } else if (answer.kind == QRNIC_PAGE_ANSWER_EVENT) {
            report_by_event(e, answer.number, &in);
        } else {
            qrnic_page_fault_resume(e, answer.number, &in);
        }
    }
}

/*
 * Rejects all page faults, because no EQ is left through which software could
 * learn of them.
 */
void qrnic_page_faults_orphaned(QrnicEngine *e)
{
    for (uint32_t n = e->qps->table.first; n < e->qps->table.limit; n++) {
        QrnicQp *qp = e->qps->table.slot[n];

        for (unsigned side = 0; qp && side < QRNIC_SIDES; side++) {
            if (!qrnic_page_fault_waits(qp, side)) {
                continue;
            }
            /*
             * The context is fetched first, as in answered(), because the fetch
             * may end the wait.
             */
            qrnic_context_now(e, qp);
            if (qrnic_page_fault_waits(qp, side)) {
                refuse(e, qp, side);
            }
        }
    }
}
