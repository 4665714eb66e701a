/*
 * qrnic engine: multicast groups, and the queue pairs attached to them
 *
 * Commands attach and detach queue pairs; the transport layer walks the members
 * of a group when a multicast packet arrives. The array is dense and sorted by
 * serial number. So a delivery that is interrupted continues at the right
 * member although others were detached. InfiniBand specification, 10.5.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/fabric/fabric.h"

static bool is_of(const QrnicAttachment *m, const uint8_t *gid)
{
    return !memcmp(m->gid, gid, sizeof(m->gid));
}

bool qrnic_group_is_ours(const QrnicEngine *e, const uint8_t *gid)
{
    const QrnicFabric *f = e->fabric;

    for (uint32_t i = 0; i < f->attachment_count; i++) {
        if (is_of(&f->attachment[i], gid)) {
            return true;
        }
    }
    return false;
}

bool qrnic_group_has(const QrnicEngine *e, const uint8_t *gid, uint32_t qpn)
{
    const QrnicFabric *f = e->fabric;

    for (uint32_t i = 0; i < f->attachment_count; i++) {
        if (f->attachment[i].qpn == qpn && is_of(&f->attachment[i], gid)) {
            return true;
        }
    }
    return false;
}

bool qrnic_group_join(QrnicEngine *e, const uint8_t *gid, uint32_t qpn)
{
    QrnicFabric *f = e->fabric;
    QrnicAttachment *m;

    if (f->attachment_count == QRNIC_MAX_MULTICAST) {
        return false;
    }
    m = &f->attachment[f->attachment_count++];
    m->qpn = qpn;
    m->serial = ++f->attachment_serial;
    memcpy(m->gid, gid, sizeof(m->gid));
    return true;
}

void qrnic_group_leave(QrnicEngine *e, const uint8_t *gid, uint32_t qpn)
{
    QrnicFabric *f = e->fabric;

    uint32_t kept = 0;

    for (uint32_t i = 0; i < f->attachment_count; i++) {
        const QrnicAttachment *m = &f->attachment[i];

        if (m->qpn != qpn || (gid && !is_of(m, gid))) {
            f->attachment[kept++] = *m;
        }
    }
    f->attachment_count = kept;
}

uint32_t qrnic_group_behind(const QrnicEngine *e, uint64_t serial)
{
    const QrnicFabric *f = e->fabric;
    uint32_t at = 0;

    while (at < f->attachment_count && f->attachment[at].serial <= serial) {
        at++;
    }
    return at;
}

uint32_t qrnic_group_next(const QrnicEngine *e, const uint8_t *gid,
                          uint32_t *at)
{
    const QrnicFabric *f = e->fabric;

    while (*at < f->attachment_count) {
        const QrnicAttachment *m = &f->attachment[(*at)++];

        if (is_of(m, gid)) {
            return m->qpn;
        }
    }
    return 0;
}
