/*
 * qrnic engine: doorbell pages
 *
 * ALLOC_DB_PAGE and FREE_DB_PAGE create and free a page, and SET_PASID sets the
 * process that owns it. Queues join their page when they are created. Each page
 * lists its queues for the recovery of lost doorbells (sched/doorbell.c).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/queue/queue.h"

QrnicDbPage *qrnic_db_page_new(void)
{
    QrnicDbPage *page = g_new0(QrnicDbPage, 1);

    QTAILQ_INIT(&page->queues);
    return page;
}

void qrnic_db_page_join(QrnicEngine *e, uint32_t number, QrnicDbQueue *q)
{
    QrnicDbPage *page = qrnic_db_page_get(e, number);

    page->users++;
    QTAILQ_INSERT_TAIL(&page->queues, q, next);
}

void qrnic_db_page_leave(QrnicEngine *e, uint32_t number, QrnicDbQueue *q)
{
    QrnicDbPage *page = qrnic_db_page_get(e, number);

    page->users--;
    if (page->recover == q) {
        page->recover = QTAILQ_NEXT(q, next);
    }
    QTAILQ_REMOVE(&page->queues, q, next);
}

QrnicResult qrnic_db_page_alloc(QrnicEngine *e)
{
    QrnicDbPage *page = qrnic_db_page_new();
    uint32_t number;

    if (!qrnic_table_insert(&e->queue->db_pages, page, &number)) {
        g_free(page);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    trace_qrnic_db_page_alloc(e->config.name, number);
    return qrnic_ok(number);
}

QrnicResult qrnic_db_page_free(QrnicEngine *e, uint32_t number)
{
    QrnicDbPage *page = qrnic_db_page_get(e, number);

    if (!page) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    /* Page 0 always exists, because no command allocated it. */
    if (number == 0 || page->users || page->process.keys) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_db_page_free(e->config.name, number);
    if (page->recovering) {
        QTAILQ_REMOVE(&e->queue->recovering, page, next);
    }
    g_free(qrnic_table_remove(&e->queue->db_pages, number));
    return qrnic_ok(0);
}

QrnicProcess *qrnic_db_page_process(QrnicEngine *e, uint32_t number)
{
    return number ? &qrnic_db_page_get(e, number)->process : NULL;
}

QrnicResult qrnic_db_page_set_pasid(QrnicEngine *e, uint32_t number,
                                    const QrnicPasidCtx *in)
{
    QrnicDbPage *page = qrnic_db_page_get(e, number);

    if (!(e->config.capabilities & QRNIC_CAP_SHARED_VIRTUAL)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    /* The page of the kernel belongs to no process. */
    if (!page || number == 0) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (in->pasid > QRNIC_MAX_PASID) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_PASID_CTX_PASID_OFFSET);
    }
    if (page->process.keys) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_db_page_set_pasid(e->config.name, number, in->pasid);
    page->process.pasid = in->pasid;
    return qrnic_ok(0);
}
