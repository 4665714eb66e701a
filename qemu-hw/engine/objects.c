/*
 * qrnic engine: tables of objects, protection domains, doorbell pages
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/internal.h"

void qrnic_table_init(QrnicTable *t, uint32_t first, uint32_t limit)
{
    t->slot = g_new0(void *, limit);
    t->limit = limit;
    t->first = first;
    t->used = 0;
    t->hint = first;
}

void qrnic_table_cleanup(QrnicTable *t)
{
    g_free(t->slot);
    memset(t, 0, sizeof(*t));
}

bool qrnic_table_insert(QrnicTable *t, void *object, uint32_t *number)
{
    uint32_t n;

    if (t->used >= t->limit - t->first) {
        return false;
    }
    for (n = t->hint; t->slot[n]; ) {
        n = n + 1 < t->limit ? n + 1 : t->first;
    }
    t->slot[n] = object;
    t->used++;
    t->hint = n + 1 < t->limit ? n + 1 : t->first;
    *number = n;
    return true;
}

void qrnic_table_insert_at(QrnicTable *t, void *object, uint32_t number)
{
    assert(number < t->first && !t->slot[number]);
    t->slot[number] = object;
}

void *qrnic_table_remove(QrnicTable *t, uint32_t number)
{
    void *object = qrnic_table_get(t, number);

    if (object) {
        t->slot[number] = NULL;
        t->used -= number >= t->first;
    }
    return object;
}

/*
 * The lowest numbers stay unused, so that 0 means nothing everywhere, and
 * QP 0 and QP 1 keep their meaning of the InfiniBand specification.
 */
void qrnic_objects_init(QrnicEngine *e)
{
    const QrnicConfig *c = &e->config;

    qrnic_table_init(&e->pds, 1, c->max_pd + 1);
    qrnic_table_init(&e->eqs, 1, c->vectors + 1);
    qrnic_table_init(&e->cqs, 1, c->max_cq + 1);
    qrnic_table_init(&e->mkeys, 1, c->max_mkey + 1);
    qrnic_table_init(&e->qps, 2, c->max_qp + 2);
    qrnic_table_init(&e->srqs, 1, c->max_srq + 1);
    qrnic_table_init(&e->flows, 1, c->max_flow + 1);
    qrnic_table_init(&e->xrcds, 1, QRNIC_MAX_XRCD + 1);
    qrnic_table_init(&e->db_pages, 1, c->db_pages);
    qrnic_dm_init(e);
    e->db_pages.slot[0] = g_new0(QrnicDbPage, 1);
}

static void table_free_objects(QrnicTable *t)
{
    for (uint32_t n = 0; n < t->limit; n++) {
        g_free(t->slot[n]);
    }
    qrnic_table_cleanup(t);
}

void qrnic_objects_reset(QrnicEngine *e)
{
    for (uint32_t n = 0; n < e->qps.limit; n++) {
        QrnicQp *qp = e->qps.slot[n];

        if (qp) {
            e->qps.slot[n] = NULL;
            qrnic_qp_free(e, qp);
        }
    }
    qrnic_table_cleanup(&e->qps);
    for (uint32_t n = 0; n < e->srqs.limit; n++) {
        QrnicSrq *srq = e->srqs.slot[n];

        if (srq) {
            qrnic_srq_free(srq);
        }
    }
    qrnic_table_cleanup(&e->srqs);
    e->async_eq = NULL;
    table_free_objects(&e->pds);
    table_free_objects(&e->eqs);
    table_free_objects(&e->cqs);
    table_free_objects(&e->mkeys);
    table_free_objects(&e->flows);
    qrnic_dm_cleanup(e);
    table_free_objects(&e->xrcds);
    table_free_objects(&e->db_pages);
}

QrnicResult qrnic_pd_alloc(QrnicEngine *e)
{
    QrnicPd *pd = g_new0(QrnicPd, 1);

    if (!qrnic_table_insert(&e->pds, pd, &pd->number)) {
        g_free(pd);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    trace_qrnic_pd_alloc(e->config.name, pd->number);
    return qrnic_ok(pd->number);
}

QrnicResult qrnic_pd_free(QrnicEngine *e, uint32_t pdn)
{
    QrnicPd *pd = qrnic_table_get(&e->pds, pdn);

    if (!pd) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (pd->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_pd_free(e->config.name, pdn);
    g_free(qrnic_table_remove(&e->pds, pdn));
    return qrnic_ok(0);
}

QrnicResult qrnic_db_page_alloc(QrnicEngine *e)
{
    QrnicDbPage *page = g_new0(QrnicDbPage, 1);
    uint32_t number;

    if (!qrnic_table_insert(&e->db_pages, page, &number)) {
        g_free(page);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    trace_qrnic_db_page_alloc(e->config.name, number);
    return qrnic_ok(number);
}

QrnicResult qrnic_db_page_free(QrnicEngine *e, uint32_t number)
{
    QrnicDbPage *page = qrnic_table_get(&e->db_pages, number);

    if (!page) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    /* Page 0 was not allocated, so it cannot be given back. */
    if (number == 0 || page->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_db_page_free(e->config.name, number);
    g_free(qrnic_table_remove(&e->db_pages, number));
    return qrnic_ok(0);
}
