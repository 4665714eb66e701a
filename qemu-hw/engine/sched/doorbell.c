/*
 * qrnic engine: doorbell pages, the doorbell FIFO, and recovery of lost
 * doorbells
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * The device calls qrnic_doorbell_write() when the guest writes a doorbell
 * page. The function qrnic_doorbell_event() is called instead if KVM reports a
 * write without its value. The run loop calls qrnic_doorbells_process().
 * Doorbells wait in a FIFO of config.doorbell_fifo entries. If the FIFO is
 * full, a doorbell is lost and its page recovers: the run loop checks all
 * queues of the page. A check reads the producer index from the doorbell
 * record, so a lost doorbell loses no work. Pages that recover are in
 * queue->recovering, and page->recover is the next queue to check. Manual,
 * chapter "Doorbells".
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/sched/sched.h"

/* Queues of recovering pages that are checked in one call */
#define RECOVERY_QUEUES 64

static void window_write(QrnicEngine *e, QrnicDbPage *page, uint32_t number,
                         unsigned offset, uint64_t value)
{
    qrnic_st_le64(page->window + offset, value);
    page->window_valid |= 1u << (offset / 8);
    trace_qrnic_direct_window(e->config.name, number, offset, value);
}

/*
 * Copies the blocks of a direct doorbell from the window of the page. Returns
 * false if they are not a usable WQE.
 */
static bool window_take(QrnicEngine *e, QrnicDbPage *page,
                        const QrnicDoorbell *d, QrnicDoorbellMessage *m)
{
    uint32_t need;

    if (!d->wqebbs || d->wqebbs > QRNIC_DB_WINDOW_WQEBB) {
        qrnic_guest_error(e, QRNIC_GE_DIRECT_WINDOW, "SQ", d->number,
                          "invalid block count %u of a direct doorbell",
                          d->wqebbs);
        page->window_valid = 0;
        return false;
    }
    need = (uint32_t)((1ull << (d->wqebbs * QRNIC_WQEBB_SIZE / 8)) - 1);
    if ((page->window_valid & need) != need) {
        qrnic_guest_error(e, QRNIC_GE_DIRECT_WINDOW, "SQ", d->number,
                          "the window of page %" PRIu32
                          " has fewer than %u blocks", m->page, d->wqebbs);
        page->window_valid = 0;
        return false;
    }
    memcpy(m->wqe, page->window, d->wqebbs * QRNIC_WQEBB_SIZE);
    m->wqebbs = d->wqebbs;
    page->window_valid = 0;
    return true;
}

/*
 * Checks all queues of the page soon. A recovery in progress is repeated after
 * its end, because its first queues are already checked.
 */
static void look_at_all(QrnicEngine *e, QrnicDbPage *page)
{
    if (page->recovering) {
        page->recover_again = true;
        return;
    }
    page->recovering = true;
    page->recover = QTAILQ_FIRST(&page->queues);
    QTAILQ_INSERT_TAIL(&e->queue->recovering, page, next);
}

static void recovery_begin(QrnicEngine *e, QrnicDbPage *page, uint32_t number)
{
    page->lost = false;
    qrnic_add(e, QRNIC_COUNTER_DOORBELL_RECOVERIES, 1);
    trace_qrnic_doorbell_recovery(e->config.name, number);
    look_at_all(e, page);
}

/*
 * Records the loss of a doorbell. The recovery begins when the doorbells of the
 * page are processed that are in the FIFO now. Later ones are not awaited,
 * because a guest that rings without pause would delay the recovery for ever.
 */
static void message_lost(QrnicEngine *e, QrnicDbPage *page, uint32_t number)
{
    page->window_valid = 0;
    if (page->lost) {
        return;
    }
    page->lost = true;
    page->before_loss = page->waiting;
    if (!page->before_loss) {
        recovery_begin(e, page, number);
    }
}

/*
 * Returns true if the FIFO has room for a doorbell of the page. A page may fill
 * half of the FIFO, so that a page that is rung without pause leaves room for
 * other pages. The losses of a page cause a recovery of that page only.
 */
static bool fifo_has_room(const QrnicEngine *e, const QrnicDbPage *page)
{
    return e->sched->fifo_count < e->config.doorbell_fifo &&
           page->waiting < MAX(e->config.doorbell_fifo / 2, 1);
}

static void fifo_put(QrnicEngine *e, QrnicDbPage *page, uint32_t number,
                     unsigned offset, const QrnicDoorbell *d)
{
    QrnicSched *s = e->sched;
    QrnicDoorbellMessage *m;

    qrnic_wake(e);
    if (!fifo_has_room(e, page)) {
        qrnic_add(e, QRNIC_COUNTER_DOORBELLS_DROPPED, 1);
        trace_qrnic_doorbell_dropped(e->config.name, number, offset,
                                     d->number, d->index);
        message_lost(e, page, number);
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_DOORBELLS, 1);
    m = &s->fifo[(s->fifo_head + s->fifo_count) % e->config.doorbell_fifo];
    s->fifo_count++;
    page->waiting++;
    m->page = number;
    m->offset = offset;
    m->wqebbs = 0;
    m->number = d->number;
    m->index = d->index;
    if (offset == QRNIC_DB_DIRECT && !window_take(e, page, d, m)) {
        /*
         * The doorbell is handled without its WQE, because the WQE is in the
         * send queue, too.
         */
        m->offset = QRNIC_DB_SQ;
    }
    trace_qrnic_doorbell(e->config.name, number, offset, m->number, m->index,
                         m->wqebbs, s->fifo_count);
}

static bool offset_defined(QrnicEngine *e, uint32_t page, unsigned offset)
{
    bool direct = e->config.capabilities & QRNIC_CAP_DIRECT_WQE;

    switch (offset) {
    case QRNIC_DB_SQ:
    case QRNIC_DB_RQ:
    case QRNIC_DB_CQ_ARM:
        return true;
    case QRNIC_DB_SRQ:
        return e->config.capabilities & QRNIC_CAP_SRQ;
    case QRNIC_DB_EQ:
        return page == 0;
    case QRNIC_DB_DIRECT:
        return direct;
    default:
        return direct && offset >= QRNIC_DB_WINDOW &&
               offset < QRNIC_DB_WINDOW + QRNIC_DB_WINDOW_SIZE;
    }
}

void qrnic_doorbell_write(QrnicEngine *e, uint32_t number, unsigned offset,
                          unsigned size, uint64_t value)
{
    QrnicDbPage *page = qrnic_db_page_get(e, number);
    uint8_t raw[QRNIC_DOORBELL_BYTES];
    QrnicDoorbell d;

    if (e->fatal) {
        return;
    }
    if (size != 8 || offset % 8 || !offset_defined(e, number, offset)) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_ACCESS, "page", number,
                          "write of %u bytes at offset 0x%x", size, offset);
        return;
    }
    if (!page) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_PAGE, "page", number,
                          "the doorbell page is not allocated");
        return;
    }
    if (offset >= QRNIC_DB_WINDOW) {
        window_write(e, page, number, offset - QRNIC_DB_WINDOW, value);
        return;
    }
    qrnic_st_le64(raw, value);
    if (offset == QRNIC_DB_EQ) {
        QrnicEqDoorbell eq;

        if (!qrnic_eq_doorbell_unpack(&eq, raw)) {
            qrnic_guest_error(e, QRNIC_GE_DOORBELL_RESERVED, "EQ", eq.number,
                              "reserved bits in 0x%" PRIx64, value);
            return;
        }
        qrnic_eq_doorbell(e, &eq);
        return;
    }
    if (!qrnic_doorbell_unpack(&d, raw) ||
        (d.wqebbs && offset != QRNIC_DB_DIRECT)) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_RESERVED,
                          offset == QRNIC_DB_CQ_ARM ? "CQ" :
                          offset == QRNIC_DB_SRQ ? "SRQ" : "QP", d.number,
                          "reserved bits in 0x%" PRIx64, value);
        return;
    }
    fifo_put(e, page, number, offset, &d);
}

/* The work in progress may be charged to a counter set; the doorbell is not. */
void qrnic_doorbell_write_nested(QrnicEngine *e, uint32_t number,
                                 unsigned offset, unsigned size, uint64_t value)
{
    QrnicCounterSet *before = qrnic_charge_to(e, NULL);

    qrnic_doorbell_write(e, number, offset, size, value);
    qrnic_charge_to(e, before);
}

void qrnic_doorbell_event(QrnicEngine *e, uint32_t number)
{
    QrnicDbPage *page = qrnic_db_page_get(e, number);

    if (e->fatal) {
        return;
    }
    if (!page) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_PAGE, "page", number,
                          "the doorbell page is not allocated");
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_DOORBELLS, 1);
    trace_qrnic_doorbell_event(e->config.name, number);
    qrnic_wake(e);
    look_at_all(e, page);
}

static void message_cq(QrnicEngine *e, const QrnicDoorbellMessage *m)
{
    QrnicCq *cq = qrnic_cq_get(e, m->number);

    if (!cq) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_QUEUE, "CQ", m->number,
                          "no such completion queue");
    } else if (cq->ctx.db_page != m->page) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_OWNER, "CQ", m->number,
                          "rung through page %" PRIu32 ", belongs to %" PRIu32,
                          m->page, cq->ctx.db_page);
    } else {
        qrnic_cq_arm(e, cq);
    }
}

/*
 * Processes the doorbell of an SRQ. Only the operations of a tag list need it.
 * New receive WQEs need no processing, because no queue pair waits for them.
 * The requester of a connection retries after an RNR NAK, and any other packet
 * was dropped. The doorbell record is read when a queue pair consumes the next
 * WQE.
 */
static void message_srq(QrnicEngine *e, const QrnicDoorbellMessage *m)
{
    QrnicSrq *srq = qrnic_srq_get(e, m->number);

    if (!srq) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_QUEUE, "SRQ", m->number,
                          "no such shared receive queue");
    } else if (srq->ctx.db_page != m->page) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_OWNER, "SRQ", m->number,
                          "rung through page %" PRIu32 ", belongs to %" PRIu32,
                          m->page, srq->ctx.db_page);
    } else if (srq->tags) {
        qrnic_tag_list_doorbell(e, srq->tags);
    }
}

static QrnicCounterSet *message_counter_set(QrnicEngine *e,
                                            const QrnicDoorbellMessage *m)
{
    QrnicQp *qp = qrnic_qp_get(e, m->number);

    return qp && qp->db_page == m->page ? qp->counters : NULL;
}

/*
 * Notifies the queue pair of new receive WQEs. The context is fetched first if
 * it is not cached, because the context decides about the effect.
 */
static void receive_doorbell(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->ops->receive_doorbell && qrnic_context_doorbell(e, qp)) {
        qp->ops->receive_doorbell(e, qp);
    }
}

static void message_qp(QrnicEngine *e, const QrnicDoorbellMessage *m)
{
    const char *queue = m->offset == QRNIC_DB_RQ ? "RQ" : "SQ";
    QrnicQp *qp = qrnic_qp_get(e, m->number);

    if (!qp) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_QUEUE, queue, m->number,
                          "no such queue pair");
        return;
    }
    if (qp->db_page != m->page) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_OWNER, queue, m->number,
                          "rung through page %" PRIu32 ", belongs to %" PRIu32,
                          m->page, qp->db_page);
        return;
    }
    if (qp->state == QRNIC_QPS_RESET) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_STATE, queue, m->number,
                          "the queue pair is in state RESET");
        return;
    }
    if (m->offset == QRNIC_DB_RQ ? !qrnic_qp_has_rq(qp) :
                                   !qrnic_qp_has_sq(qp)) {
        qrnic_guest_error(e, QRNIC_GE_DOORBELL_QUEUE, queue, m->number,
                          "the queue pair has no queue of this kind");
        return;
    }
    qrnic_work_for(e, qp->number, qp->type);
    if (m->offset == QRNIC_DB_RQ) {
        if (qp->state == QRNIC_QPS_ERR) {
            qrnic_schedule(e, qp);
        } else {
            receive_doorbell(e, qp);
        }
        return;
    }
    if (m->wqebbs == 0 || !qrnic_context_is_in(qp) ||
        !qrnic_sq_direct(e, qp, m->wqe, m->wqebbs, m->index)) {
        qp->sq_rung = true;
    }
    qrnic_schedule(e, qp);
}

static void recover_queue(QrnicEngine *e, QrnicDbQueue *q)
{
    QrnicCounterSet *before;
    QrnicQp *qp;

    if (q->kind == QRNIC_DB_QUEUE_CQ) {
        qrnic_cq_arm(e, container_of(q, QrnicCq, db_queue));
        return;
    }
    if (q->kind == QRNIC_DB_QUEUE_TAGS) {
        qrnic_tag_list_doorbell(e, qrnic_tag_list_of(q));
        return;
    }
    qp = container_of(q, QrnicQp, db_queue);
    if (qp->state == QRNIC_QPS_RESET) {
        return;
    }
    before = qrnic_charge_to(e, qp->counters);
    qp->sq_rung = qrnic_qp_has_sq(qp);
    qrnic_schedule(e, qp);
    if (qp->state != QRNIC_QPS_ERR && qrnic_qp_has_rq(qp)) {
        receive_doorbell(e, qp);
    }
    qrnic_charge_to(e, before);
}

/*
 * Checks up to "left" queues of a page and returns the rest of that budget.
 * After a further loss the page is checked again, but only after the end of its
 * list. Otherwise a guest that rings without pause would keep the check at the
 * beginning.
 */
static unsigned recover_page(QrnicEngine *e, QrnicDbPage *page, unsigned left)
{
    while (left && page->recover) {
        QrnicDbQueue *q = page->recover;

        page->recover = QTAILQ_NEXT(q, next);
        recover_queue(e, q);
        left--;
    }
    QTAILQ_REMOVE(&e->queue->recovering, page, next);
    if (!page->recover && page->recover_again) {
        page->recover_again = false;
        page->recover = QTAILQ_FIRST(&page->queues);
    }
    page->recovering = page->recover;
    if (page->recovering) {
        QTAILQ_INSERT_TAIL(&e->queue->recovering, page, next);
    }
    return left;
}

/*
 * Checks queues of the recovering pages, one page after the other. Pages with
 * few queues share one call.
 */
static void recover(QrnicEngine *e)
{
    unsigned left = RECOVERY_QUEUES;
    QrnicDbPage *page;

    while (left && (page = QTAILQ_FIRST(&e->queue->recovering))) {
        left = recover_page(e, page, left);
    }
}

static void message_process(QrnicEngine *e, const QrnicDoorbellMessage *m)
{
    QrnicCounterSet *before;

    trace_qrnic_doorbell_process(e->config.name, m->page, m->offset,
                                 m->number, m->index, m->wqebbs);
    if (m->offset == QRNIC_DB_CQ_ARM) {
        message_cq(e, m);
    } else if (m->offset == QRNIC_DB_SRQ) {
        message_srq(e, m);
    } else {
        before = qrnic_charge_to(e, message_counter_set(e, m));
        message_qp(e, m);
        qrnic_work_for(e, 0, 0);
        qrnic_charge_to(e, before);
    }
}

/*
 * Updates the page of a doorbell that is processed. The page may have been
 * freed and allocated again, so it may have no waiting doorbells.
 */
static void message_taken(QrnicEngine *e, uint32_t number)
{
    QrnicDbPage *page = qrnic_db_page_get(e, number);

    if (page && page->waiting) {
        page->waiting--;
        if (page->before_loss && !--page->before_loss) {
            recovery_begin(e, page, number);
        }
    }
}

void qrnic_doorbells_process(QrnicEngine *e, unsigned budget)
{
    QrnicSched *s = e->sched;

    while (s->fifo_count && budget--) {
        QrnicDoorbellMessage *m = &s->fifo[s->fifo_head];
        uint32_t page = m->page;

        message_process(e, m);
        s->fifo_head = (s->fifo_head + 1) % e->config.doorbell_fifo;
        s->fifo_count--;
        message_taken(e, page);
    }
    recover(e);
}

bool qrnic_doorbells_pending(const QrnicEngine *e)
{
    return e->sched->fifo_count || !QTAILQ_EMPTY(&e->queue->recovering);
}

/*
 * Empties the FIFO. The counts of waiting doorbells disappear with their pages.
 */
void qrnic_doorbells_reset(QrnicEngine *e)
{
    QrnicSched *s = e->sched;

    s->fifo_head = s->fifo_count = 0;
}
