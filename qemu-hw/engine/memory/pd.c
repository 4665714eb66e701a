/*
 * qrnic engine: protection domains
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/memory/memory.h"

QrnicResult qrnic_pd_alloc(QrnicEngine *e)
{
    QrnicPd *pd = g_new0(QrnicPd, 1);

    if (!qrnic_table_insert(&e->memory->pds, pd, &pd->number)) {
        g_free(pd);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    trace_qrnic_pd_alloc(e->config.name, pd->number);
    return qrnic_ok(pd->number);
}

QrnicResult qrnic_pd_free(QrnicEngine *e, uint32_t pdn)
{
    QrnicPd *pd = qrnic_pd_get(e, pdn);

    if (!pd) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (pd->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_pd_free(e->config.name, pdn);
    g_free(qrnic_table_remove(&e->memory->pds, pdn));
    return qrnic_ok(0);
}
