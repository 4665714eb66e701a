/*
 * qrnic engine, layer transport: multicast groups of UD queue pairs
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Executes the commands that attach a queue pair to a group and detach it, and
 * delivers datagrams to a group. The demultiplexer calls
 * qrnic_multicast_receive(). If a group is large, the frame is copied to
 * multicast_rest, and the phase FRAMES of later rounds delivers it to the other
 * queue pairs. No other frame is received in between.
 *
 * InfiniBand specification, 10.5.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/transport.h"

/* Largest number of queue pairs that receive a frame in one round */
#define MULTICAST_BUDGET 64

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

/*
 * Delivers a frame to one or more queue pairs of the group. Returns true if
 * other queue pairs of the group have not received the frame yet. The argument
 * *after is the serial number of the last attachment served. The argument
 * *delivered is the number of queue pairs served.
 */
static bool deliver_some(QrnicEngine *e, const QrnicPacket *p, bool loopback,
                         uint64_t *after, unsigned *delivered)
{
    uint32_t at = qrnic_group_behind(e, *after);

    *delivered = 0;
    while (!e->fatal) {
        QrnicCounterSet *before;
        uint32_t qpn;
        QrnicQp *qp;

        if (*delivered == MULTICAST_BUDGET ||
            (*delivered && qrnic_budget_spent(e))) {
            return true;
        }
        qpn = qrnic_group_next(e, p->h->dgid, &at);
        if (!qpn) {
            break;
        }
        qp = qrnic_qp_get(e, qpn);
        *after = e->fabric->attachment[at - 1].serial;
        if (!qrnic_qp_receives(qp, false) ||
            (loopback && p->t.src_qpn == qrnic_qp_source(qp) &&
             (qp->ctx.flags & QRNIC_QPF_NO_MULTICAST_LOOPBACK))) {
            continue;
        }
        before = qrnic_charge_to(e, qp->counters);
        qrnic_add(e, QRNIC_COUNTER_RX_MULTICAST, 1);
        qrnic_work_for(e, qp->number, qp->type);
        qrnic_work_psn(e, p->t.psn);
        qrnic_datagram_receive(e, qp, p);
        qrnic_work_for(e, 0, 0);
        qrnic_charge_to(e, before);
        (*delivered)++;
    }
    return false;
}

/*
 * Delivers a frame to the group. If the budget does not suffice for all queue
 * pairs, delivering is set, so that no other frame overtakes this one.
 */
unsigned qrnic_multicast_receive(QrnicEngine *e, const QrnicPacket *p,
                                 bool loopback)
{
    const QrnicHeaders *h = p->h;
    uint64_t after = 0;
    unsigned delivered;

    if (deliver_some(e, p, loopback, &after, &delivered)) {
        QrnicMulticastRest *r = g_malloc(sizeof(*r) + h->len);

        r->loopback = loopback;
        r->after = after;
        r->headers = *h;
        r->headers.frame = r->data;
        memcpy(r->data, h->frame, h->len);
        e->transport->multicast_rest = r;
        e->fabric->delivering = true;
        trace_qrnic_multicast_rest(e->config.name, p->t.psn, delivered);
        qrnic_wake(e);
    }
    return delivered;
}

void qrnic_multicast_drop_rest(QrnicEngine *e)
{
    g_free(e->transport->multicast_rest);
    e->transport->multicast_rest = NULL;
}

bool qrnic_multicast_pending(const QrnicEngine *e)
{
    return e->transport->multicast_rest;
}

void qrnic_multicast_process(QrnicEngine *e)
{
    QrnicMulticastRest *r = e->transport->multicast_rest;
    unsigned delivered;
    QrnicPacket p;

    /*
     * The copy is parsed without a check of the ICRC, because the original was
     * checked. The parser results are checked again, because the original may
     * have changed while it was copied.
     */
    if (r && !qrnic_budget_spent(e) &&
        (qrnic_packet_parse_unchecked(&p, &r->headers) !=
              QRNIC_PARSE_OK ||
              (p.t.opcode & QRNIC_SERVICE_MASK) != QRNIC_SERVICE_UD ||
              !deliver_some(e, &p, r->loopback, &r->after, &delivered))) {
        e->fabric->wire_first = r->loopback;
        qrnic_multicast_drop_rest(e);
        e->fabric->delivering = false;
    }
}
