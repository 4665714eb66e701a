/*
 * qrnic engine: RoCEv2 packets from the wire to their queue pair
 *
 * InfiniBand specification, 9.6 (packet validation), and annex A17.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport.h"

static void drop(QrnicEngine *e, enum qrnic_counter why, const char *reason,
                 uint32_t qpn, uint32_t psn)
{
    qrnic_add(e, why, 1);
    trace_qrnic_roce_drop(e->config.name, qpn, psn, reason);
}

bool qrnic_qp_receives(const QrnicQp *qp, bool response)
{
    switch (qp->state) {
    case QRNIC_QPS_RTR:
        return !response;
    case QRNIC_QPS_RTS:
    case QRNIC_QPS_SQD:
    case QRNIC_QPS_SQE:
        return true;
    default:
        return false;
    }
}

/* The transport service whose opcodes it understands; raw packets: none */
static int service_of(const QrnicQp *qp)
{
    switch (qp->type) {
    case QRNIC_QPT_RC:
        return QRNIC_SERVICE_RC;
    case QRNIC_QPT_UC:
        return QRNIC_SERVICE_UC;
    case QRNIC_QPT_UD:
    case QRNIC_QPT_GSI:
        return QRNIC_SERVICE_UD;
    case QRNIC_QPT_XRC_INI:
    case QRNIC_QPT_XRC_TGT:
        return QRNIC_SERVICE_XRC;
    default:
        return -1;
    }
}

/* The top bit tells full from limited membership (10.9.3). */
static bool pkey_matches(const QrnicPacket *p)
{
    return !((p->t.pkey ^ QRNIC_PKEY_DEFAULT) & 0x7fff);
}

static void count_accepted(QrnicEngine *e, const QrnicPacket *p)
{
    qrnic_add(e, QRNIC_COUNTER_ROCE_RX_PACKETS, 1);
    qrnic_add(e, QRNIC_COUNTER_ROCE_RX_BYTES, p->frame_len);
}

void qrnic_roce_receive(QrnicEngine *e, const uint8_t *frame, size_t len,
                        bool loopback, unsigned *deliveries)
{
    QrnicPacket p;
    QrnicQp *qp;
    bool response;

    /* In the fatal state what is under way inside the device stops, too. */
    if (e->fatal) {
        return;
    }
    switch (qrnic_packet_parse(&p, frame, len, e->config.icrc)) {
    case QRNIC_PARSE_MALFORMED:
        drop(e, QRNIC_COUNTER_RX_DROP_MALFORMED, "malformed", 0, 0);
        return;
    case QRNIC_PARSE_ICRC:
        drop(e, QRNIC_COUNTER_RX_DROP_ICRC, "icrc", 0, 0);
        return;
    case QRNIC_PARSE_OPCODE:
        drop(e, QRNIC_COUNTER_RX_DROP_OPCODE, "opcode", p.t.dest_qpn, p.t.psn);
        return;
    case QRNIC_PARSE_OK:
        break;
    }
    trace_qrnic_roce_rx(e->config.name, p.t.dest_qpn, p.t.psn, p.info->name,
                        p.payload_len, p.t.ack_req, loopback);

    if (p.t.dest_qpn == QRNIC_MULTICAST_QPN &&
        (p.t.opcode & QRNIC_SERVICE_MASK) == QRNIC_SERVICE_UD &&
        qrnic_gid_is_multicast(p.dgid)) {
        if (!pkey_matches(&p)) {
            drop(e, QRNIC_COUNTER_RX_DROP_PKEY, "pkey", p.t.dest_qpn, p.t.psn);
            return;
        }
        count_accepted(e, &p);
        *deliveries = qrnic_multicast_receive(e, &p, loopback);
        return;
    }
    qp = qrnic_table_get(&e->qps, p.t.dest_qpn);
    if (!qp) {
        drop(e, QRNIC_COUNTER_RX_DROP_NO_QP, "no QP", p.t.dest_qpn, p.t.psn);
        return;
    }
    if (service_of(qp) != (p.t.opcode & QRNIC_SERVICE_MASK)) {
        drop(e, QRNIC_COUNTER_RX_DROP_OPCODE, "type of QP", p.t.dest_qpn,
             p.t.psn);
        return;
    }
    response = p.info->flags & QRNIC_OPF_RESPONSE;
    /* Each end of an XRC connection has one half. */
    if (qp->type == (response ? QRNIC_QPT_XRC_TGT : QRNIC_QPT_XRC_INI)) {
        drop(e, QRNIC_COUNTER_RX_DROP_OPCODE, "half of QP", p.t.dest_qpn,
             p.t.psn);
        return;
    }
    if (!qrnic_qp_receives(qp, response)) {
        drop(e, QRNIC_COUNTER_RX_DROP_QP_STATE, "state of QP", p.t.dest_qpn,
             p.t.psn);
        return;
    }
    if (!pkey_matches(&p)) {
        drop(e, QRNIC_COUNTER_RX_DROP_PKEY, "pkey", p.t.dest_qpn, p.t.psn);
        return;
    }
    if (qrnic_qp_is_datagram(qp)) {
        /* A group is addressed by MULTICAST_QPN only (10.5.1). */
        if (qrnic_gid_is_multicast(p.dgid)) {
            drop(e, QRNIC_COUNTER_RX_DROP_ADDRESS, "addresses", p.t.dest_qpn,
                 p.t.psn);
            return;
        }
        count_accepted(e, &p);
        qrnic_datagram_receive(e, qp, &p);
        return;
    }
    if (!qrnic_path_matches(&qp->path, &p)) {
        drop(e, QRNIC_COUNTER_RX_DROP_ADDRESS, "addresses", p.t.dest_qpn,
             p.t.psn);
        return;
    }
    count_accepted(e, &p);
    if (qp->type == QRNIC_QPT_UC) {
        qrnic_unreliable_receive(e, qp, &p);
    } else if (response) {
        qrnic_requester_receive(e, qp, &p);
    } else {
        qrnic_responder_receive(e, qp, &p);
    }
}

void qrnic_packet_send(QrnicEngine *e, QrnicQp *qp, const QrnicTransport *t,
                       uint8_t *payload, uint32_t payload_len)
{
    size_t len = qrnic_packet_finish(&qp->path, e->frame, payload, payload_len);

    trace_qrnic_roce_tx(e->config.name, qp->number, t->psn,
                        qrnic_opcode_info(t->opcode)->name, payload_len,
                        t->ack_req);
    /* The limit is that of requests: who asked for an answer has a right. */
    if (!(qrnic_opcode_info(t->opcode)->flags & QRNIC_OPF_RESPONSE)) {
        qrnic_pace_charge(e, qp, len);
    }
    qrnic_frame_send(e, e->frame, len, true);
}
