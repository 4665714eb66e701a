/*
 * qrnic engine: domains of extended reliable connections
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/queue/queue.h"

QrnicResult qrnic_xrcd_alloc(QrnicEngine *e)
{
    QrnicXrcd *xrcd;

    if (!(e->config.capabilities & QRNIC_CAP_XRC)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    xrcd = g_new0(QrnicXrcd, 1);
    if (!qrnic_table_insert(&e->queue->xrcds, xrcd, &xrcd->number)) {
        g_free(xrcd);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    trace_qrnic_xrcd_alloc(e->config.name, xrcd->number);
    return qrnic_ok(xrcd->number);
}

QrnicResult qrnic_xrcd_free(QrnicEngine *e, uint32_t number)
{
    QrnicXrcd *xrcd = qrnic_xrcd_get(e, number);

    if (!xrcd) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (xrcd->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_xrcd_free(e->config.name, number);
    g_free(qrnic_table_remove(&e->queue->xrcds, number));
    return qrnic_ok(0);
}
