/*
 * qrnic engine: datagram queue pairs that are in multicast groups
 *
 * InfiniBand specification, 10.5.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/transport/transport.h"

static QrnicResult check(QrnicEngine *e, uint32_t qpn, const QrnicMulticast *in)
{
    QrnicQp *qp = qrnic_qp_get(e, qpn);

    if (!(e->config.capabilities & QRNIC_CAP_UD)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (!qp) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (qp->ops != &qrnic_ud_ops) {
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
    QrnicResult result = check(e, qpn, in);

    if (result.status != QRNIC_ST_OK || qrnic_group_has(e, in->gid, qpn)) {
        return result;
    }
    if (!qrnic_group_join(e, in->gid, qpn)) {
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    return result;
}

QrnicResult qrnic_multicast_detach(QrnicEngine *e, uint32_t qpn,
                                   const QrnicMulticast *in)
{
    QrnicResult result = check(e, qpn, in);

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (!qrnic_group_has(e, in->gid, qpn)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, 0);
    }
    qrnic_group_leave(e, in->gid, qpn);
    return result;
}

unsigned qrnic_multicast_receive(QrnicEngine *e, const QrnicPacket *p,
                                 bool loopback)
{
    uint32_t qpn, at = 0;
    unsigned delivered = 0;

    while ((qpn = qrnic_group_next(e, p->h->dgid, &at))) {
        QrnicQp *qp = qrnic_qp_get(e, qpn);
        QrnicCounterSet *before;

        if (!qrnic_qp_receives(qp, false) ||
            (loopback && p->t.src_qpn == qrnic_qp_source(qp) &&
             (qp->ctx.flags & QRNIC_QPF_NO_MULTICAST_LOOPBACK))) {
            continue;
        }
        before = qrnic_account(e, qp->counters);
        qrnic_add(e, QRNIC_COUNTER_RX_MULTICAST, 1);
        qrnic_datagram_receive(e, qp, p);
        qrnic_account(e, before);
        delivered++;
    }
    return delivered;
}
