/*
 * qrnic engine, layer qp: init, reset and cleanup of the layer
 *
 * Allocates e->qps with the table of queue pairs and the lists of the
 * scheduler. The engine calls the operations in this table (see core/core.h). A
 * reset frees all queue pairs without completions. The phase FRAMES delivers
 * frames that waited for contexts; the phase REPORTS sends events and CNPs that
 * were pending.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/qp/qp_private.h"

/*
 * Creates an empty table. The table assigns no number below 2, because 0 and 1
 * are QP 0 and QP 1 of the InfiniBand specification. Only the GSI has number 1.
 */
static void table_init(QrnicEngine *e)
{
    qrnic_table_init(&e->qps->table, 2, e->config.max_qp + 2);
    QTAILQ_INIT(&e->qps->faults_owed);
    qrnic_contexts_init(e);
    qrnic_congestion_init(e);
    e->qps->errors_at = e->qps->errors_left = 0;
}

static void table_cleanup(QrnicEngine *e)
{
    QrnicTable *t = &e->qps->table;

    for (uint32_t n = 0; n < t->limit; n++) {
        QrnicQp *qp = t->slot[n];

        if (qp) {
            t->slot[n] = NULL;
            qrnic_qp_free(e, qp);
        }
    }
    qrnic_table_cleanup(t);
    qrnic_contexts_cleanup(e);
}

static const QrnicContextUsers context_users = {
    .failed = qrnic_qp_error,
    .ready = qrnic_schedule_first,
    .schedule = qrnic_schedule,
};

static void qp_init(QrnicEngine *e)
{
    e->qps = g_new0(QrnicQps, 1);
    e->qps->context_users = &context_users;
    qrnic_page_requests_init(e);
    e->queue->fault_eq_gone = qrnic_page_faults_orphaned;
    for (unsigned i = 0; i < QRNIC_LISTS; i++) {
        for (unsigned level = 0; level < QRNIC_PRIORITY_LEVELS; level++) {
            QTAILQ_INIT(&e->qps->list[i][level]);
        }
    }
    for (unsigned i = 0; i < QRNIC_REORDER_LISTS; i++) {
        QTAILQ_INIT(&e->qps->reorders[i]);
    }
    table_init(e);
}

static void qp_reset(QrnicEngine *e)
{
    table_cleanup(e);
    table_init(e);
}

static void qp_cleanup(QrnicEngine *e)
{
    table_cleanup(e);
    qrnic_page_requests_cleanup(e);
    g_free(e->qps);
}

static bool qp_pending(QrnicEngine *e)
{
    return qrnic_contexts_pending(e) || qrnic_qp_errors_pending(e) ||
           qrnic_page_requests_pending(e) || qrnic_page_faults_pending(e) ||
           qrnic_notifications_pending(e);
}

static void qp_reports(QrnicEngine *e)
{
    qrnic_qp_errors_process(e);
    qrnic_page_answers_process(e);
    qrnic_page_faults_process(e);
    qrnic_notifications_process(e);
}

const QrnicFloor qrnic_qp_floor = {
    .init = qp_init,
    .reset = qp_reset,
    .cleanup = qp_cleanup,
    .pending = qp_pending,
    .process[QRNIC_PHASE_FRAMES] = qrnic_contexts_process,
    .process[QRNIC_PHASE_REPORTS] = qp_reports,
};
