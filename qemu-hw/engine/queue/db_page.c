/*
 * qrnic engine: doorbell pages
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/queue/queue.h"

QrnicResult qrnic_db_page_alloc(QrnicEngine *e)
{
    QrnicDbPage *page = g_new0(QrnicDbPage, 1);
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
    /* Page 0 was not allocated, so it cannot be given back. */
    if (number == 0 || page->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_db_page_free(e->config.name, number);
    g_free(qrnic_table_remove(&e->queue->db_pages, number));
    return qrnic_ok(0);
}
