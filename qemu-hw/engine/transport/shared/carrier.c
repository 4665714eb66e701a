/*
 * qrnic engine: shared connections: a carrier sends and receives packets of its
 * members as a reliable connection does messages of one packet
 *
 * Manual, chapter Shared connections.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/rc.h"

QrnicResult qrnic_carrier_modify_check(QrnicEngine *e, const QrnicQp *qp,
                                       const QrnicQpAttr *in, uint8_t to)
{
    /* They rely on its path: its MTU, and where it leads. */
    if (to == QRNIC_QPS_RESET && qrnic_carriage_has_members(qp)) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    if (in->mask & QRNIC_QP_PATH_MTU &&
        (128u << in->path_mtu) + QRNIC_CARRIED_OVERHEAD >
        e->fabric->port.mtu) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_PATH_MTU_OFFSET);
    }
    return qrnic_ok(0);
}

QrnicResult qrnic_member_modify_check(QrnicEngine *e, const QrnicQp *qp,
                                      const QrnicQpAttr *in, uint8_t to)
{
    const QrnicQp *carrier;

    if (!(in->mask & QRNIC_QP_CARRIER)) {
        return qrnic_ok(0);
    }
    carrier = qrnic_qp_find(e, in->carrier);
    if (!carrier || !carrier->carriage) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT,
                            QRNIC_QP_ATTR_CARRIER_OFFSET);
    }
    if (carrier->state != QRNIC_QPS_RTR && carrier->state != QRNIC_QPS_RTS) {
        return qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
    }
    if (in->path_mtu > carrier->attr.path_mtu) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_PATH_MTU_OFFSET);
    }
    return in->options ? qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                      QRNIC_QP_ATTR_OPTIONS_OFFSET) :
                         qrnic_ok(0);
}

void qrnic_member_entered(QrnicEngine *e, QrnicQp *qp)
{
    if (!qp->attr.carrier || qp->carrier) {
        return;
    }
    qrnic_member_join(qp, qrnic_qp_find(e, qp->attr.carrier));
    /* What is left of its context is not cached. */
    qrnic_context_away(e, qp);
    qrnic_context_gone(e);
    trace_qrnic_member_join(e->config.name, qp->attr.carrier, qp->number);
}

void qrnic_member_carrier_failed(QrnicEngine *e, QrnicQp *qp, uint8_t syndrome)
{
    if (qp->state != QRNIC_QPS_RTR && !qrnic_requester_may_run(qp)) {
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_MEMBERS_FAILED, 1);
    if (!qrnic_requester_idle(qp)) {
        qrnic_requester_fail(e, qp, QRNIC_WC_RETRY_EXC_ERR, syndrome);
    } else {
        qrnic_qp_error(e, qp, QRNIC_EVENT_QP_FATAL, QRNIC_WC_RETRY_EXC_ERR);
    }
}

void qrnic_carrier_init(QrnicEngine *e, QrnicQp *qp)
{
    if (qp->carriage) {
        qrnic_carriage_drop(e, qp);
    } else {
        qrnic_carriage_init(e, qp, qrnic_schedule);
    }
}

void qrnic_carrier_start_send(QrnicEngine *e, QrnicQp *qp)
{
    if (!qp->attr.dest_qpn) {
        qrnic_requester_suspend(e, qp);
    }
    if (qp->attr.dest_qpn && qp->attr.options & QRNIC_QPO_INTRODUCE) {
        qrnic_carriage_introduce(e, qp);
    }
    qrnic_carriage_wake(e, qp);
}

bool qrnic_carrier_accepts(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    /* 0 is nobody's number. */
    if (!qp->attr.dest_qpn && p->t.src_qpn &&
        p->t.psn == qrnic_responder_expected_psn(qp)) {
        qp->attr.dest_qpn = p->t.src_qpn;
        qrnic_requester_continue(e, qp);
    }
    if (!qp->attr.dest_qpn || p->t.src_qpn != qp->attr.dest_qpn) {
        qrnic_add(e, QRNIC_COUNTER_RX_DROP_CONNECTION, 1);
        trace_qrnic_roce_drop(e->config.name, qp->number, p->t.psn, "carrier");
        return false;
    }
    return true;
}

bool qrnic_carrier_flush_one(QrnicEngine *e, QrnicQp *qp)
{
    QrnicQp *member;
    QrnicCarried *p;

    if (qrnic_requester_flush_one(e, qp)) {
        return true;
    }
    p = qrnic_carriage_next(qp);
    if (p) {
        qrnic_carried_free(e, p);
        return true;
    }
    member = qrnic_carriage_failing(qp);
    if (member) {
        member->ops->carrier_failed(e, member, QRNIC_SYN_CARRIER);
    }
    return member;
}

/*
 * What was carried is a packet of RC, to a member of this carrier that takes
 * it. NULL: it is not
 */
static QrnicQp *carried_parse(QrnicEngine *e, QrnicQp *carrier,
                              const QrnicPacket *outer, QrnicPacket *p)
{
    QrnicQp *member;

    if (qrnic_packet_parse_carried(p, outer) != QRNIC_PARSE_OK ||
        (p->t.opcode & QRNIC_SERVICE_MASK) != QRNIC_SERVICE_RC ||
        p->t.opcode == QRNIC_OP_RC_SACK ||
        p->payload_len > qrnic_qp_mtu(carrier) || !qrnic_pkey_matches(p)) {
        return NULL;
    }
    member = qrnic_qp_find(e, p->t.dest_qpn);
    return member && member->carrier == carrier &&
           qrnic_qp_receives(member, p->info->flags & QRNIC_OPF_RESPONSE) ?
           member : NULL;
}

bool qrnic_carried_is_next(QrnicEngine *e, QrnicQp *carrier,
                           const QrnicPacket *outer)
{
    QrnicPacket p;
    const QrnicQp *member = carried_parse(e, carrier, outer, &p);

    if (!member) {
        return false;
    }
    if (p.info->flags & QRNIC_OPF_RESPONSE) {
        return p.t.opcode == QRNIC_OP_RC_ACK &&
               qrnic_requester_has_no_read(member);
    }
    return p.t.psn == qrnic_responder_expected_psn(member);
}

void qrnic_carried_receive(QrnicEngine *e, QrnicQp *carrier,
                           const QrnicPacket *outer)
{
    QrnicPacket p;
    QrnicQp *member = carried_parse(e, carrier, outer, &p);
    QrnicCounterSet *before;

    /* An introduction, which qrnic_carrier_accepts() has seen */
    if (!outer->payload_len) {
        qrnic_add(e, QRNIC_COUNTER_RX_CARRIED, 1);
        return;
    }
    if (!member) {
        qrnic_add(e, QRNIC_COUNTER_RX_DROP_CARRIED, 1);
        trace_qrnic_roce_drop(e->config.name, carrier->number, outer->t.psn,
                              "carried");
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_RX_CARRIED, 1);
    trace_qrnic_carried_rx(e->config.name, carrier->number, outer->t.psn,
                           member->number, p.t.psn, p.info->name,
                           p.payload_len);
    before = qrnic_account(e, member->counters);
    member->ops->receive(e, member, &p);
    qrnic_account(e, before);
}
