/*
 * qrnic engine, layer queue: its operations (QrnicFloor)
 *
 * Doorbell page 0 always exists and belongs to the driver; all other objects
 * are created by commands.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/queue/queue.h"

/* Operations of tag lists in a round */
#define TAG_OPERATIONS 64

static void tables_init(QrnicEngine *e)
{
    QrnicQueues *q = e->queue;

    qrnic_table_init(&q->eqs, 1, qrnic_max_eq(e) + 1);
    qrnic_table_init(&q->cqs, 1, e->config.max_cq + 1);
    qrnic_table_init(&q->srqs, 1, e->config.max_srq + 1);
    qrnic_table_init(&q->xrcds, 1, QRNIC_MAX_XRCD + 1);
    qrnic_table_init(&q->db_pages, 1, e->config.db_pages);
    q->db_pages.slot[0] = qrnic_db_page_new();
    QTAILQ_INIT(&q->recovering);
    QTAILQ_INIT(&q->untaken);
    QTAILQ_INIT(&q->late);
    QTAILQ_INIT(&q->tag_lists);
    q->all_tags = 0;
}

static void tables_cleanup(QrnicEngine *e)
{
    QrnicQueues *q = e->queue;

    for (uint32_t n = 0; n < q->srqs.limit; n++) {
        QrnicSrq *srq = q->srqs.slot[n];

        if (srq) {
            qrnic_srq_free(e, srq);
        }
    }
    qrnic_table_cleanup(&q->srqs);
    qrnic_table_free_objects(&q->xrcds);
    qrnic_table_free_objects(&q->cqs);
    q->async_eq = q->fault_eq = NULL;
    qrnic_table_free_objects(&q->eqs);
    qrnic_table_free_objects(&q->db_pages);
}

static void queue_init(QrnicEngine *e)
{
    e->queue = g_new0(QrnicQueues, 1);
    QTAILQ_INIT(&e->queue->fetches);
    qrnic_eq_init(e);
    qrnic_cq_init(e);
    tables_init(e);
}

static void queue_reset(QrnicEngine *e)
{
    tables_cleanup(e);
    tables_init(e);
    e->queue->cq_failed = false;
    e->queue->move = (QrnicCqMove) { 0 };
}

static void queue_cleanup(QrnicEngine *e)
{
    tables_cleanup(e);
    g_free(e->queue);
}

static bool queue_pending(QrnicEngine *e)
{
    return qrnic_tags_pending(e) || qrnic_eqs_pending(e) ||
           e->queue->move.cq;
}

static void queue_requests(QrnicEngine *e)
{
    qrnic_tags_process(e, TAG_OPERATIONS);
    qrnic_eqs_process(e);
    qrnic_cq_move_process(e);
}

const QrnicFloor qrnic_queue_floor = {
    .init = queue_init,
    .reset = queue_reset,
    .cleanup = queue_cleanup,
    .pending = queue_pending,
    .process[QRNIC_PHASE_REQUESTS] = queue_requests,
};
