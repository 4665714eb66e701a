/*
 * qrnic engine, floor fabric: its life
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/fabric/fabric.h"

static void fabric_init(QrnicEngine *e)
{
    QrnicFabric *f = e->fabric = g_new0(QrnicFabric, 1);

    f->gids_epoch = 1;
    f->gids = g_new0(QrnicGidEntry, e->config.max_gid);
    f->macs = g_malloc0(e->config.max_gid * sizeof(*f->macs));
    QTAILQ_INIT(&f->loopback);
    qrnic_port_reset(e);
}

/* The link and a busy wire are the backend's: they stay as they are. */
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

const QrnicFloor qrnic_fabric_floor = {
    fabric_init, fabric_reset, fabric_cleanup
};
