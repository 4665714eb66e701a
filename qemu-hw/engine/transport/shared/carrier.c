/*
 * qrnic engine, transport: a carrier QP sends and receives encapsulated packets
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A carrier QP is a reliable connection whose messages have one packet each.
 * The requester calls qrnic_carrier_message_take(), which appends a packet that
 * members.c has queued to the ring. After the ACK of the peer
 * message_complete() frees the packet. The responder calls
 * qrnic_encapsulated_receive() for each message, which delivers the packet to
 * its member. Manual, chapter Shared connections.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/shared/shared_private.h"

/*
 * Transitions without access rights and reads, because a carrier QP accesses no
 * memory
 */
static const QrnicTransition carrier_transitions[] = {
    { QRNIC_QPS_RESET, QRNIC_QPS_INIT, QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT, 0 },
    { QRNIC_QPS_INIT, QRNIC_QPS_INIT, 0, QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT },
    { QRNIC_QPS_INIT, QRNIC_QPS_RTR,
      QRNIC_QP_AV | QRNIC_QP_PATH_MTU | QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_OPTIONS },
    { QRNIC_QPS_RTR, QRNIC_QPS_RTS,
      QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT | QRNIC_QP_SQ_PSN, 0 },
};

const QrnicStates qrnic_carrier_states = {
    carrier_transitions, ARRAY_SIZE(carrier_transitions),
};

QrnicResult qrnic_carrier_modify_check(QrnicEngine *e, const QrnicQp *qp,
                                       const QrnicQpAttr *in, uint8_t to)
{
    /*
     * A carrier QP with members cannot be reset, because members depend on its
     * path and its MTU.
     */
    if (to == QRNIC_QPS_RESET && qrnic_carrier_in_use(qp)) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    if (in->mask & QRNIC_QP_PATH_MTU &&
        (128u << in->path_mtu) + QRNIC_ENCAPSULATION_OVERHEAD >
        e->fabric->port.mtu) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_PATH_MTU_OFFSET);
    }
    return qrnic_ok(0);
}

void qrnic_carrier_start_send(QrnicEngine *e, QrnicQp *qp)
{
    if (!qp->attr.dest_qpn) {
        qrnic_requester_suspend(e, qp);
    }
    if (qp->attr.dest_qpn && qp->attr.options & QRNIC_QPO_INTRODUCE) {
        qrnic_carrier_introduce(e, qp->carrier);
    }
    qrnic_carrier_wake(e, qp);
}

bool qrnic_carrier_accepts(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    /* Number 0 is no queue pair, so it is never learned. */
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

static void message_copy(const void *object, uint8_t *to)
{
    const QrnicEncapsulated *p = object;

    memcpy(to, p->data, p->len);
}

static bool message_follows(const QrnicQp *qp)
{
    return qp->carrier->queued;
}

/* Returns true because no completion reports an encapsulated packet. */
static bool message_is_silent(const void *object)
{
    return true;
}

static void message_free(QrnicEngine *e, void *object)
{
    qrnic_encapsulated_free(e, object);
}

static void message_complete(QrnicEngine *e, QrnicQp *qp, void *object,
                             uint8_t status, uint8_t syndrome)
{
    if (status == QRNIC_WC_SUCCESS) {
        qrnic_encapsulated_acknowledged(e, object);
    } else {
        message_free(e, object);
    }
}

static const QrnicMessageSource encapsulated_source = {
    .opcode = QRNIC_OP_ENCAPSULATED,
    .counter = QRNIC_COUNTER_TX_INNER,
    .copy = message_copy,
    .follows = message_follows,
    .complete = message_complete,
    .is_silent = message_is_silent,
    .free = message_free,
};

bool qrnic_carrier_message_take(QrnicEngine *e, QrnicQp *qp)
{
    QrnicEncapsulated *p;

    if (qp->state != QRNIC_QPS_RTS) {
        return false;
    }
    if (!qp->carrier->queued) {
        qrnic_carrier_wake(e, qp);
        return false;
    }
    if (!qrnic_requester_has_room(e, qp)) {
        return false;
    }
    p = qrnic_carrier_dequeue(qp->carrier);
    qrnic_requester_append(e, qp, &encapsulated_source, p, p->len);
    qrnic_carrier_wake(e, qp);
    return true;
}

bool qrnic_carrier_flush_one(QrnicEngine *e, QrnicQp *qp)
{
    QrnicEncapsulated *p;
    QrnicMember *m;

    if (qrnic_requester_flush_one(e, qp)) {
        return true;
    }
    p = qrnic_carrier_dequeue(qp->carrier);
    if (p) {
        qrnic_encapsulated_free(e, p);
        return true;
    }
    m = qrnic_carrier_next_failing(qp->carrier);
    if (m) {
        qrnic_member_carrier_failed(e, m->qp, QRNIC_SYN_CARRIER);
    }
    return m;
}

/*
 * Parses the encapsulated packet. Returns its member, or NULL unless the packet
 * is an RC packet to a member of this carrier QP that can receive it.
 */
static QrnicQp *encapsulated_parse(QrnicEngine *e, const QrnicQp *carrier,
                                   const QrnicPacket *outer, QrnicPacket *p)
{
    QrnicQp *qp;

    if (qrnic_packet_parse_inner(p, outer) != QRNIC_PARSE_OK ||
        (p->t.opcode & QRNIC_SERVICE_MASK) != QRNIC_SERVICE_RC ||
        p->t.opcode == QRNIC_OP_RC_SACK ||
        p->payload_len > qrnic_qp_mtu(carrier) || !qrnic_pkey_matches(p)) {
        return NULL;
    }
    qp = qrnic_qp_find(e, p->t.dest_qpn);
    return qp && qp->member && qp->member->carrier == carrier->carrier &&
           qrnic_qp_receives(qp, p->info->flags & QRNIC_OPF_RESPONSE) ?
           qp : NULL;
}

bool qrnic_encapsulated_is_next(QrnicEngine *e, QrnicQp *carrier,
                                const QrnicPacket *outer)
{
    QrnicPacket p;
    const QrnicQp *qp = encapsulated_parse(e, carrier, outer, &p);

    if (!qp) {
        return false;
    }
    if (p.info->flags & QRNIC_OPF_RESPONSE) {
        return p.t.opcode == QRNIC_OP_RC_ACK &&
               qrnic_requester_has_no_read(qp);
    }
    return p.t.psn == qrnic_responder_expected_psn(qp);
}

void qrnic_encapsulated_receive(QrnicEngine *e, QrnicQp *carrier,
                                const QrnicPacket *outer)
{
    QrnicPacket p;
    QrnicQp *qp = encapsulated_parse(e, carrier, outer, &p);
    QrnicCounterSet *before;

    /*
     * An introduction has no payload; qrnic_carrier_accepts() has handled it.
     */
    if (!outer->payload_len) {
        qrnic_add(e, QRNIC_COUNTER_RX_INNER, 1);
        return;
    }
    if (!qp) {
        qrnic_add(e, QRNIC_COUNTER_RX_DROP_INNER, 1);
        trace_qrnic_roce_drop(e->config.name, carrier->number, outer->t.psn,
                              "encapsulated");
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_RX_INNER, 1);
    trace_qrnic_encapsulated_receive(e->config.name, carrier->number,
                                     outer->t.psn, qp->number, p.t.psn,
                                     p.info->name, p.payload_len);
    before = qrnic_charge_to(e, qp->counters);
    qp->ops->receive(e, qp, &p);
    qrnic_charge_to(e, before);
}
