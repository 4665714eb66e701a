/*
 * qrnic engine: datagram queue pairs attached to multicast GIDs
 *
 * InfiniBand specification, 10.5.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/fabric/fabric.h"
#include "engine/transport/transport.h"

static QrnicAttachment *find(QrnicEngine *e, const uint8_t *gid, uint32_t qpn)
{
    QrnicFabric *f = e->fabric;

    for (uint32_t i = 0; i < f->attachment_count; i++) {
        QrnicAttachment *m = &f->attachment[i];

        if (m->qpn == qpn && !memcmp(m->gid, gid, sizeof(m->gid))) {
            return m;
        }
    }
    return NULL;
}

bool qrnic_multicast_is_ours(QrnicEngine *e, const uint8_t *gid)
{
    const QrnicFabric *f = e->fabric;

    for (uint32_t i = 0; i < f->attachment_count; i++) {
        if (!memcmp(f->attachment[i].gid, gid, sizeof(f->attachment[i].gid))) {
            return true;
        }
    }
    return false;
}

static QrnicResult check(QrnicEngine *e, uint32_t qpn, const QrnicMulticast *in)
{
    QrnicQp *qp = qrnic_qp_get(e, qpn);

    if (!(e->config.capabilities & QRNIC_CAP_UD)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (!qp) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (qp->type != QRNIC_QPT_UD) {
        return qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
    }
    if (!qrnic_gid_is_multicast(in->gid)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, 0);
    }
    return qrnic_ok(0);
}

QrnicResult qrnic_multicast_attach(QrnicEngine *e, uint32_t qpn,
                                   const QrnicMulticast *in)
{
    QrnicFabric *f = e->fabric;
    QrnicResult result = check(e, qpn, in);
    QrnicAttachment *m;

    if (result.status != QRNIC_ST_OK || find(e, in->gid, qpn)) {
        return result;
    }
    if (f->attachment_count == QRNIC_MAX_MULTICAST) {
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    m = &f->attachment[f->attachment_count++];
    m->qpn = qpn;
    memcpy(m->gid, in->gid, sizeof(m->gid));
    return result;
}

QrnicResult qrnic_multicast_detach(QrnicEngine *e, uint32_t qpn,
                                   const QrnicMulticast *in)
{
    QrnicFabric *f = e->fabric;
    QrnicResult result = check(e, qpn, in);
    QrnicAttachment *found;

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    found = find(e, in->gid, qpn);
    if (!found) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, 0);
    }
    *found = f->attachment[--f->attachment_count];
    return result;
}

void qrnic_multicast_qp_destroyed(QrnicEngine *e, const QrnicQp *qp)
{
    QrnicFabric *f = e->fabric;

    for (uint32_t i = 0; i < f->attachment_count; ) {
        if (f->attachment[i].qpn == qp->number) {
            f->attachment[i] = f->attachment[--f->attachment_count];
        } else {
            i++;
        }
    }
}

unsigned qrnic_multicast_receive(QrnicEngine *e, const QrnicPacket *p,
                                 bool loopback)
{
    const QrnicFabric *f = e->fabric;
    unsigned delivered = 0;

    for (uint32_t i = 0; i < f->attachment_count; i++) {
        const QrnicAttachment *m = &f->attachment[i];
        QrnicQp *qp = qrnic_qp_get(e, m->qpn);

        if (memcmp(m->gid, p->dgid, sizeof(m->gid)) ||
            !qrnic_qp_receives(qp, false) ||
            (loopback && p->t.src_qpn == qrnic_qp_source(qp) &&
             (qp->ctx.flags & QRNIC_QPF_NO_MULTICAST_LOOPBACK))) {
            continue;
        }
        qrnic_add(e, QRNIC_COUNTER_RX_MULTICAST, 1);
        qrnic_datagram_receive(e, qp, p);
        delivered++;
    }
    return delivered;
}
