/*
 * qrnic engine, floor sched: its life
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/sched/sched.h"

static void sched_init(QrnicEngine *e)
{
    e->sched = g_new0(QrnicSched, 1);
    e->sched->fifo = g_new0(QrnicDoorbellMessage, e->config.doorbell_fifo);
}

static void sched_reset(QrnicEngine *e)
{
    qrnic_doorbells_reset(e);
    memset(e->sched->turns, 0, sizeof(e->sched->turns));
    e->sched->passed = e->sched->relieved = 0;
}

static void sched_cleanup(QrnicEngine *e)
{
    g_free(e->sched->fifo);
    g_free(e->sched);
}

const QrnicFloor qrnic_sched_floor = {
    sched_init, sched_reset, sched_cleanup
};
