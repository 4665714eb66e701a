/*
 * qrnic engine, layer transport: the demultiplexer of RoCE packets
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The layer fabric calls qrnic_roce_receive() for each RoCE frame from the wire
 * or from the loopback queue. A packet is parsed and its ICRC checked. Then
 * type, state, pkey and addresses of its queue pair are compared, and
 * QrnicQpOps.receive is called. If the context of the queue pair is not cached,
 * context.c buffers the frame. No state remains between calls. Each dropped
 * packet is counted.
 *
 * InfiniBand specification, 9.6 (packet validation), and annexes A16 and A17.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_rate.h"
#include "engine/transport/transport.h"

static void drop(QrnicEngine *e, enum qrnic_counter why, const char *reason,
                 uint32_t qpn, uint32_t psn)
{
    qrnic_add(e, why, 1);
    trace_qrnic_roce_drop(e->config.name, qpn, psn, reason);
}

static void count_accepted(QrnicEngine *e, const QrnicPacket *p)
{
    qrnic_add(e, QRNIC_COUNTER_ROCE_RX_PACKETS, 1);
    qrnic_add(e, QRNIC_COUNTER_ROCE_RX_BYTES, p->frame_len);
    qrnic_add(e, QRNIC_COUNTER_ROCE_V1_RX_PACKETS,
              p->h->network == QRNIC_NET_GRH);
}

/*
 * Returns the service of a packet. Packets that make connections belong to the
 * service of dynamic connections.
 */
static uint8_t service_of(const QrnicPacket *p)
{
    return p->info->flags & QRNIC_OPF_CONTROL ? QRNIC_SERVICE_DC :
           p->t.opcode & QRNIC_SERVICE_MASK;
}

/*
 * Returns true if the rate of the queue pair can follow CNPs: a connection with
 * one peer, on the wire.
 */
static bool has_rate(const QrnicQp *qp)
{
    return qp->ops->service >= 0 && !qp->ops->is_datagram &&
           !qp->ops->answers_any && qp->out->is_wire;
}

/*
 * Receives a CNP (A17.9). A CNP that is forged or malformed is ignored, because
 * it must not slow down the queue pair.
 */
static void receive_notification(QrnicEngine *e, QrnicQp *qp,
                                 const QrnicPacket *p)
{
    bool reacts = qrnic_congestion_has(e, QRNIC_CONGESTION_RP);
    enum qrnic_counter why = QRNIC_COUNTER_RP_CNP_HANDLED;

    if (!has_rate(qp) || p->h->network == QRNIC_NET_GRH) {
        why = QRNIC_COUNTER_RX_DROP_OPCODE;
    } else if (!qrnic_qp_receives(qp, false)) {
        why = QRNIC_COUNTER_RX_DROP_QP_STATE;
    } else if (!qrnic_pkey_matches(p)) {
        why = QRNIC_COUNTER_RX_DROP_PKEY;
    } else if (!qrnic_path_matches(&qp->path, p)) {
        why = QRNIC_COUNTER_RX_DROP_ADDRESS;
    } else if (!p->t.becn || p->t.psn || p->t.cnp_reserved) {
        why = QRNIC_COUNTER_RX_DROP_MALFORMED;
    }
    if (why != QRNIC_COUNTER_RP_CNP_HANDLED) {
        qrnic_add(e, QRNIC_COUNTER_RP_CNP_IGNORED, 1);
        drop(e, why, "CNP", p->t.dest_qpn, p->t.psn);
        return;
    }
    count_accepted(e, p);
    trace_qrnic_cnp_rx(e->config.name, qp->number, reacts);
    qrnic_add(e, reacts ? QRNIC_COUNTER_RP_CNP_HANDLED :
                          QRNIC_COUNTER_RP_CNP_IGNORED, 1);
    if (reacts) {
        qrnic_congestion_notified(e, qp);
    }
}

/*
 * Makes a CNP pending if the packet has a CE mark. A dynamic target does this
 * itself, because only it knows its peers.
 */
static void check_mark(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    if (qrnic_packet_is_marked(e, p)) {
        qrnic_add(e, QRNIC_COUNTER_NP_ECN_MARKED_ROCE_PACKETS, 1);
        if (has_rate(qp) && !qp->ops->sends_no_cnp) {
            qrnic_notification_owe(e, qp);
        }
    }
}

/* Validates a packet against its queue pair, and receives it. */
static void receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    bool response = p->info->flags & QRNIC_OPF_RESPONSE;

    if (qp->ops->service != service_of(p)) {
        drop(e, QRNIC_COUNTER_RX_DROP_OPCODE, "type of QP", p->t.dest_qpn,
             p->t.psn);
        return;
    }
    /*
     * An XRC or dynamic queue pair has only one half: a requester or a
     * responder.
     */
    if (response ? qp->ops->no_responses : qp->ops->no_requests) {
        drop(e, QRNIC_COUNTER_RX_DROP_OPCODE, "half of QP", p->t.dest_qpn,
             p->t.psn);
        return;
    }
    if (!qrnic_qp_receives(qp, response)) {
        drop(e, QRNIC_COUNTER_RX_DROP_QP_STATE, "state of QP", p->t.dest_qpn,
             p->t.psn);
        return;
    }
    if (!qrnic_pkey_matches(p)) {
        drop(e, QRNIC_COUNTER_RX_DROP_PKEY, "pkey", p->t.dest_qpn, p->t.psn);
        return;
    }
    if (!qp->out->is_wire) {
        drop(e, QRNIC_COUNTER_RX_DROP_CONNECTION, "not from its carrier",
             p->t.dest_qpn, p->t.psn);
        return;
    }
    /* A multicast group is addressed by MULTICAST_QPN only (10.5.1). */
    if (qp->ops->is_datagram || qp->ops->answers_any ?
        qrnic_gid_is_multicast(p->h->dgid) :
        !qrnic_path_matches(&qp->path, p)) {
        drop(e, QRNIC_COUNTER_RX_DROP_ADDRESS, "addresses", p->t.dest_qpn,
             p->t.psn);
        return;
    }
    count_accepted(e, p);
    check_mark(e, qp, p);
    qp->ops->receive(e, qp, p);
}

unsigned qrnic_roce_receive(QrnicEngine *e, const QrnicHeaders *h,
                            bool loopback)
{
    QrnicPacket p;
    QrnicQp *qp;
    QrnicCounterSet *before;
    bool notification;

    /*
     * Packets inside the device are dropped, because the device stops in the
     * fatal state.
     */
    if (e->fatal) {
        return 1;
    }
    /*
     * The ICRC of a loopback packet is not checked, because the packet never
     * left the device.
     */
    switch (loopback ? qrnic_packet_parse_unchecked(&p, h) :
                       qrnic_packet_parse(&p, h, e->config.icrc)) {
    case QRNIC_PARSE_MALFORMED:
        drop(e, QRNIC_COUNTER_RX_DROP_MALFORMED, "malformed", 0, 0);
        return 1;
    case QRNIC_PARSE_ICRC:
        drop(e, QRNIC_COUNTER_RX_DROP_ICRC, "icrc", 0, 0);
        return 1;
    case QRNIC_PARSE_OPCODE:
        drop(e, QRNIC_COUNTER_RX_DROP_OPCODE, "opcode", p.t.dest_qpn, p.t.psn);
        return 1;
    case QRNIC_PARSE_OK:
        break;
    }
    trace_qrnic_roce_rx(e->config.name, p.t.dest_qpn, p.t.psn, p.info->name,
                        p.payload_len, p.t.ack_req, loopback);

    if (p.t.dest_qpn == QRNIC_MULTICAST_QPN &&
        (p.t.opcode & QRNIC_SERVICE_MASK) == QRNIC_SERVICE_UD &&
        qrnic_gid_is_multicast(h->dgid)) {
        if (!qrnic_pkey_matches(&p)) {
            drop(e, QRNIC_COUNTER_RX_DROP_PKEY, "pkey", p.t.dest_qpn, p.t.psn);
            return 1;
        }
        count_accepted(e, &p);
        qrnic_add(e, QRNIC_COUNTER_ROCE_RX_MULTICAST, 1);
        return qrnic_multicast_receive(e, &p, loopback);
    }
    notification = p.info->flags & QRNIC_OPF_NOTIFICATION;
    if (notification &&
        !(e->config.capabilities & QRNIC_CAP_CONGESTION_CONTROL)) {
        drop(e, QRNIC_COUNTER_RX_DROP_OPCODE, "opcode", p.t.dest_qpn, p.t.psn);
        return 1;
    }
    qp = qrnic_qp_find(e, p.t.dest_qpn);
    if (!qp) {
        qrnic_add(e, QRNIC_COUNTER_RP_CNP_IGNORED, notification);
        drop(e, QRNIC_COUNTER_RX_DROP_NO_QP, "no QP", p.t.dest_qpn, p.t.psn);
        return 1;
    }
    before = qrnic_charge_to(e, qp->counters);
    qrnic_work_for(e, qp->number, qp->type);
    qrnic_work_psn(e, p.t.psn);
    if (qrnic_context_receive(e, qp, h, loopback)) {
        if (notification) {
            receive_notification(e, qp, &p);
        } else {
            receive(e, qp, &p);
        }
    }
    qrnic_work_for(e, 0, 0);
    qrnic_charge_to(e, before);
    return 1;
}
