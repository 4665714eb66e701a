/*
 * qrnic engine, layer core: its operations (QrnicFloor)
 *
 * Core has no work of its own in a run. Reset keeps the buffers and the heap of
 * timers, because qrnic_timers_reset() has emptied the heap before.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/core/core.h"

static void sets_init(QrnicEngine *e)
{
    qrnic_table_init(&e->counter_sets, 1, 1 + QRNIC_MAX_COUNTER_SET);
}

static void core_init(QrnicEngine *e)
{
    e->armed_deadline = QRNIC_DEADLINE_NEVER;
    qrnic_budget_renew(e);
    sets_init(e);
}

static void core_reset(QrnicEngine *e)
{
    memset(e->counter, 0, sizeof(e->counter));
    memset(e->in_sets, 0, sizeof(e->in_sets));
    qrnic_table_free_objects(&e->counter_sets);
    sets_init(e);
    e->fatal = false;
}

static void core_cleanup(QrnicEngine *e)
{
    qrnic_table_free_objects(&e->counter_sets);
    qrnic_buffers_cleanup(e);
    g_free(e->heap);
}

const QrnicFloor qrnic_core_floor = {
    .init = core_init,
    .reset = core_reset,
    .cleanup = core_cleanup,
};
