/*
 * qrnic engine, layer qp: the wire as output of a queue pair
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Builds the headers that all packets of a queue pair share (qp->path) and
 * sends packets on the wire or to the loopback queue. MODIFY_QP calls
 * qrnic_path_set(); after that a transport calls qrnic_path_wait(),
 * qrnic_packet_open() and qrnic_packet_send() for each packet, in this order.
 * The open packet is in e->fabric->build until it is sent. Until the GID table
 * changes, qp->path_ours caches if the path is loopback.
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

/*
 * Returns the UDP source port. Packets of a flow share a source port (A17.9.2).
 */
static uint16_t udp_sport(const QrnicQp *qp, const QrnicAddressVector *av,
                          uint32_t dest_qpn)
{
    uint32_t hash = av->flow_label;

    if (av->udp_sport) {
        return av->udp_sport;
    }
    if (!hash) {
        uint64_t product = (uint64_t)dest_qpn * qp->number;

        hash = product ^ product >> 20 ^ product >> 40;
        hash &= 0xfffff;
    }
    return QRNIC_UDP_SPORT_MIN | ((hash & 0x3fff) ^ (hash >> 14 & 0x3fff));
}

/*
 * Returns the traffic class with the ECN bits. RoCE v1 and datagrams do not use
 * ECN, because v1 has no ECN field and a datagram has no rate that a CNP could
 * reduce.
 */
static uint8_t traffic_class(QrnicEngine *e, const QrnicQp *qp, bool v1)
{
    uint8_t class = qp->traffic_class;

    return v1 || qp->ops->is_datagram ||
           !qrnic_congestion_has(e, QRNIC_CONGESTION_ECT) ? class :
           (class & ~QRNIC_ECN_MASK) | QRNIC_ECN_ECT0;
}

void qrnic_path_set(QrnicEngine *e, QrnicQp *qp, const QrnicAddressVector *av,
                    uint32_t dest_qpn)
{
    const QrnicGidEntry *g = qrnic_gid_get(e, av->sgid_index);
    bool v1 = g->flags & QRNIC_GID_ROCE_V1;
    QrnicPathSpec spec = {
        .v1 = v1,
        .vlan = g->flags & QRNIC_GID_VLAN ? g->vlan_id : -1,
        .priority = av->sl & 7,
        .hop_limit = av->hop_limit,
        .flow_label = av->flow_label,
        .udp_sport = v1 ? 0 : udp_sport(qp, av, dest_qpn),
        .icrc = e->config.icrc,
    };

    qp->traffic_class = av->traffic_class;
    qp->congestion_epoch = e->qps->congestion_epoch;
    spec.traffic_class = traffic_class(e, qp, v1);
    memcpy(spec.dmac, av->dmac, 6);
    memcpy(spec.smac, g->mac, 6);
    memcpy(spec.sgid, g->gid, 16);
    memcpy(spec.dgid, av->dgid, 16);
    qrnic_path_init(&qp->path, &spec);
    qp->path_epoch = 0;
}

/*
 * Returns true if the path is loopback. The result for a multicast address is
 * not cached, because groups change without a new epoch of the GID table.
 */
static bool path_is_ours(QrnicEngine *e, QrnicQp *qp)
{
    const QrnicPathSpec *spec = &qp->path.spec;

    if (qp->path_epoch != e->fabric->gids_epoch) {
        qp->path_ours = qrnic_destination_is_ours(e, spec->dmac, spec->dgid,
                                                  spec->vlan, spec->v1);
        qp->path_epoch = spec->dmac[0] & 1 ? 0 : e->fabric->gids_epoch;
    }
    return qp->path_ours;
}

static QrnicReadyList wait_for(QrnicEngine *e, bool ours, bool multicast)
{
    if ((!ours || multicast) && qrnic_wire_busy(e)) {
        return QRNIC_LIST_WIRE;
    }
    return ours && qrnic_loopback_full(e) ? QRNIC_LIST_LOOPBACK :
                                            QRNIC_LIST_READY;
}

static QrnicReadyList wire_wait(QrnicEngine *e, QrnicQp *qp)
{
    if (!qrnic_wire_busy(e) && !qrnic_loopback_full(e)) {
        return QRNIC_LIST_READY;
    }
    return wait_for(e, path_is_ours(e, qp), qp->path.spec.dmac[0] & 1);
}

QrnicReadyList qrnic_address_wait(QrnicEngine *e, const QrnicAddressVector *av)
{
    const QrnicGidEntry *g = qrnic_gid_get(e, av->sgid_index);

    if ((!qrnic_wire_busy(e) && !qrnic_loopback_full(e)) || !g) {
        return QRNIC_LIST_READY;
    }
    return wait_for(e, qrnic_destination_is_ours(e, av->dmac, av->dgid,
                                                 g->flags & QRNIC_GID_VLAN ?
                                                 g->vlan_id : -1,
                                                 g->flags & QRNIC_GID_ROCE_V1),
                    av->dmac[0] & 1);
}

bool qrnic_path_stands_still(QrnicEngine *e, QrnicQp *qp, uint32_t *epoch)
{
    return qrnic_wire_stands_still(e, epoch) &&
           qrnic_path_wait(e, qp) == QRNIC_LIST_WIRE;
}

/*
 * Updates the ECN bits, because the parameters of congestion control have
 * changed.
 */
static void path_refresh(QrnicEngine *e, QrnicQp *qp)
{
    QrnicPathSpec spec = qp->path.spec;

    qp->congestion_epoch = e->qps->congestion_epoch;
    spec.traffic_class = traffic_class(e, qp, spec.v1);
    qrnic_path_init(&qp->path, &spec);
}

/* Returns the place where a frame along the path is built. */
static uint8_t *place(QrnicEngine *e, QrnicQp *qp, uint32_t payload_len)
{
    const QrnicRoceTo to = {
        .v1 = qp->path.spec.v1,
        .ours = path_is_ours(e, qp),
        .multicast = qp->path.spec.dmac[0] & 1,
    };

    return qrnic_roce_place(e, &to, QRNIC_PACKET_HEADER_MAX + payload_len +
                                    QRNIC_PACKET_TAIL_MAX);
}

static uint8_t *wire_open(QrnicEngine *e, QrnicQp *qp, const QrnicTransport *t,
                          uint32_t payload_len)
{
    if (qp->congestion_epoch != e->qps->congestion_epoch) {
        path_refresh(e, qp);
    }
    return qrnic_packet_begin(&qp->path, place(e, qp, payload_len), t,
                              payload_len);
}

static inline size_t finish(QrnicEngine *e, const QrnicQp *qp,
                            const QrnicPath *path, const QrnicTransport *t,
                            uint8_t *payload, uint32_t payload_len)
{
    uint8_t *frame = e->fabric->build.frame;
    /*
     * The ICRC of a frame that stays in the device is omitted, because the
     * receiver does not check it.
     */
    size_t len = qrnic_roce_is_private(e) ?
                 qrnic_packet_finish_unchecked(frame, payload, payload_len) :
                 qrnic_packet_finish(path, frame, payload, payload_len);

    trace_qrnic_roce_tx(e->config.name, qp->number, t->psn,
                        qrnic_opcode_info(t->opcode)->name, payload_len,
                        t->ack_req);
    return len;
}

static void wire_send(QrnicEngine *e, QrnicQp *qp, const QrnicTransport *t,
                      uint8_t *payload, uint32_t payload_len)
{
    bool response = qrnic_opcode_info(t->opcode)->flags & QRNIC_OPF_RESPONSE;
    size_t len = finish(e, qp, &qp->path, t, payload, payload_len);

    /*
     * The rate limit applies to requests only, because the peer has a right to
     * its responses. Congestion control applies to read responses, too.
     */
    if (qrnic_pace_is_limited(qp)) {
        if (!response) {
            qrnic_pace_charge(e, qp, len);
        } else if (payload_len) {
            qrnic_congestion_charge(e, qp, len);
        }
    }
    qrnic_roce_send(e, len);
}

const QrnicOutput qrnic_wire_output = {
    .is_wire = true,
    .wait = wire_wait,
    .open = wire_open,
    .send = wire_send,
};

void qrnic_notification_send(QrnicEngine *e, QrnicQp *qp)
{
    const QrnicCongestionCtx *c = &e->qps->congestion;
    const QrnicTransport t = {
        .opcode = QRNIC_OP_CNP, .becn = true, .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = qp->attr.dest_qpn,
    };
    QrnicPathSpec spec = qp->path.spec;
    QrnicPath path;
    uint8_t *end;

    spec.traffic_class = c->np_cnp_dscp << 2;
    if (!(c->flags & QRNIC_CONGESTION_CNP_PRIO_FLOW)) {
        spec.priority = c->np_cnp_prio;
    }
    qrnic_path_init(&path, &spec);
    end = qrnic_packet_begin(&path, place(e, qp, 0), &t, 0);
    qrnic_roce_send(e, finish(e, qp, &path, &t, end, 0));
}
