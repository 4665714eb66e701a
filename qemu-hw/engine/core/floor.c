/*
 * qrnic engine, floor core: its life
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/core/core.h"

static void core_init(QrnicEngine *e)
{
    e->armed_deadline = QRNIC_DEADLINE_NEVER;
}

static void core_reset(QrnicEngine *e)
{
    memset(e->counter, 0, sizeof(e->counter));
    e->fatal = false;
}

static void core_cleanup(QrnicEngine *e)
{
    g_free(e->heap);
}

const QrnicFloor qrnic_core_floor = { core_init, core_reset, core_cleanup };
