/*
 * qrnic engine, layer memory: its operations (QrnicFloor)
 *
 * A reset destroys all objects. Then the device memory is cleared in several
 * runs.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/memory/shared_virtual.h"

static void tables_init(QrnicEngine *e)
{
    qrnic_table_init(&e->memory->pds, 1, e->config.max_pd + 1);
    qrnic_table_init(&e->memory->mkeys, 1, e->config.max_mkey + 1);
    qrnic_dm_init(e);
}

static void tables_cleanup(QrnicEngine *e)
{
    qrnic_pieces_cleanup(e);
    qrnic_table_free_objects(&e->memory->mkeys);
    qrnic_dm_cleanup(e);
    qrnic_table_free_objects(&e->memory->pds);
    qrnic_page_lists_drop(e);
    qrnic_atc_drop(e);
}

static void memory_init(QrnicEngine *e)
{
    e->memory = g_new0(QrnicMemory, 1);
    e->memory->page_lists = g_new0(QrnicPageList, QRNIC_PAGE_LIST_CACHE);
    qrnic_atc_init(e);
    tables_init(e);
}

static void memory_reset(QrnicEngine *e)
{
    tables_cleanup(e);
    tables_init(e);
    qrnic_dm_reset(e);
}

static void memory_cleanup(QrnicEngine *e)
{
    tables_cleanup(e);
    qrnic_atc_cleanup(e);
    g_free(e->memory->page_lists);
    g_free(e->memory);
}

static bool memory_pending(QrnicEngine *e)
{
    return qrnic_dm_clearing(e);
}

const QrnicFloor qrnic_memory_floor = {
    .init = memory_init,
    .reset = memory_reset,
    .cleanup = memory_cleanup,
    .pending = memory_pending,
    .process[QRNIC_PHASE_REQUESTS] = qrnic_dm_process,
};
