/*
 * qrnic engine, layer fabric: its operations (QrnicFloor)
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/fabric/fabric.h"

/* Looped back frames in a round */
#define FRAMES 64

static void fabric_init(QrnicEngine *e)
{
    QrnicFabric *f = e->fabric = g_new0(QrnicFabric, 1);

    f->gids_epoch = 1;
    f->gids = g_new0(QrnicGidEntry, e->config.max_gid);
    f->macs = g_malloc0(e->config.max_gid * sizeof(*f->macs));
    QTAILQ_INIT(&f->loopback);
    qrnic_port_reset(e);
}

/*
 * Resets all but the link and the busy wire, because both are states of the
 * backend.
 */
static void fabric_reset(QrnicEngine *e)
{
    qrnic_loopback_drop(e);
    e->fabric->attachment_count = 0;
    e->fabric->delivering = false;
    qrnic_gids_reset(e);
    qrnic_port_reset(e);
}

static void fabric_cleanup(QrnicEngine *e)
{
    qrnic_loopback_drop(e);
    g_free(e->fabric->macs);
    g_free(e->fabric->gids);
    g_free(e->fabric);
}

static bool fabric_pending(QrnicEngine *e)
{
    return e->fabric->loopback_count && !e->fabric->suspended;
}

/*
 * Delivers looped back frames in small portions, because each frame may use
 * much of the work budget.
 */
static void fabric_frames(QrnicEngine *e)
{
    for (unsigned done = 0; done < FRAMES && qrnic_loopback_moves(e) &&
                            !qrnic_budget_spent(e);
         done += QRNIC_LOOPBACK_PORTION) {
        qrnic_loopback_deliver(e, QRNIC_LOOPBACK_PORTION);
    }
}

static void fabric_finish(QrnicEngine *e)
{
    e->fabric->wire_first = false;
}

const QrnicFloor qrnic_fabric_floor = {
    .init = fabric_init,
    .reset = fabric_reset,
    .cleanup = fabric_cleanup,
    .pending = fabric_pending,
    .process[QRNIC_PHASE_FRAMES] = fabric_frames,
    .finish = fabric_finish,
};
