/*
 * qrnic engine, layer transport: unreliable datagrams and the general services
 * interface
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Sends and receives UD datagrams; the GSI is a UD queue pair with number 1.
 * For each WQE, whose message is one packet, qrnic_transmit() calls ud_send().
 * The demultiplexer and multicast.c call qrnic_datagram_receive(). Only the PSN
 * of the next datagram is kept between calls.
 *
 * InfiniBand specification, 9.8.3 (transport), 10.2.5 (Q_Keys), 13.5 (QP1).
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/transport.h"
#include "engine/transport/rc/reliability.h"

#define QKEY_PRIVILEGED (1u << 31)

static uint32_t qkey_of(const QrnicQp *qp)
{
    return qp->ops == &qrnic_gsi_ops ? QRNIC_GSI_QKEY : qp->attr.qkey;
}

/* Sender */

static void refuse(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                   uint8_t *status, uint8_t *syndrome, uint8_t why,
                   const char *rule)
{
    *status = why == QRNIC_SYN_WQE_LENGTH ? QRNIC_WC_LOC_LEN_ERR :
                                            QRNIC_WC_LOC_QP_OP_ERR;
    *syndrome = why;
    qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, "SQ", qp->number,
                      "WQE at index %" PRIu32 ": %s", wqe->index, rule);
}

/* Returns NULL if the address is valid, or else the rule that it violates. */
static const char *address_check(QrnicEngine *e, const QrnicDatagramSeg *d)
{
    static const uint8_t zero[16];
    const QrnicGidEntry *g = qrnic_gid_get(e, d->av.sgid_index);
    bool multicast = qrnic_gid_is_multicast(d->av.dgid);

    if (!memcmp(d->av.dgid, zero, 16)) {
        return "the destination GID is zero";
    }
    if (!g || !qrnic_gid_reaches(g, d->av.dgid)) {
        return "the source GID is empty or has another IP version";
    }
    if (!qrnic_udp_sport_is_valid(g, &d->av)) {
        return "the UDP source port is below 49152, or the GID is of RoCE v1";
    }
    if (!memcmp(d->av.dmac, zero, 6) || (d->av.dmac[0] & 1) != multicast) {
        return "the destination MAC address does not match the GID";
    }
    if (d->dest_qpn >> 24 ||
        (d->dest_qpn == QRNIC_MULTICAST_QPN) != multicast) {
        return "the destination QP number does not match the GID";
    }
    return NULL;
}

/*
 * Sends the message of a WQE as one packet. Returns false if it waits for a
 * page.
 */
static bool ud_send(QrnicEngine *e, QrnicQp *qp, const QrnicSendWqe *wqe,
                    uint8_t *status, uint8_t *syndrome)
{
    const QrnicDatagramSeg *d = &wqe->datagram;
    const char *wrong = address_check(e, d);
    QrnicTransport t = {
        .opcode = wqe->opcode == QRNIC_WQE_SEND_IMM ?
                  QRNIC_OP_UD_SEND_ONLY_IMM : QRNIC_OP_UD_SEND_ONLY,
        .solicited = wqe->flags & QRNIC_WQEF_SOLICITED,
        .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = d->dest_qpn,
        .psn = qp->datagram_psn,
        .qkey = d->qkey & QKEY_PRIVILEGED ? qkey_of(qp) : d->qkey,
        .src_qpn = qrnic_qp_source(qp),
        .imm = wqe->imm,
    };
    QrnicFault fault;
    uint8_t *payload;

    if (wrong) {
        refuse(e, qp, wqe, status, syndrome, QRNIC_SYN_ADDRESS, wrong);
        return true;
    }
    if (wqe->length > 128u << qrnic_port_path_mtu(e)) {
        refuse(e, qp, wqe, status, syndrome, QRNIC_SYN_WQE_LENGTH,
               "the message exceeds the path MTU");
        return true;
    }
    qrnic_path_set(e, qp, &d->av, d->dest_qpn);
    payload = qrnic_packet_open(e, qp, &t, wqe->length);
    if (!qrnic_gather(e, qp, wqe, payload, status, syndrome, &fault)) {
        return !qrnic_page_fault(e, qp, QRNIC_SIDE_SEND, *syndrome, &fault);
    }
    qp->datagram_psn = (qp->datagram_psn + 1) & QRNIC_PSN_MASK;
    qrnic_add(e, QRNIC_COUNTER_TX_DATAGRAM, 1);
    qrnic_packet_send(e, qp, &t, payload, wqe->length);
    return true;
}

/* Receiver */

static void drop(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p,
                 enum qrnic_counter why)
{
    qrnic_add(e, why, 1);
    trace_qrnic_roce_drop(e->config.name, qp->number, p->t.psn,
                          qrnic_counter_name(why));
}

/*
 * Returns a WQE to its queue. A WQE of a stream stays consumed, because its
 * buffer is now the open buffer of the stream.
 */
static void give_back(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe)
{
    qrnic_rq_give_back(e, qp, wqe);
    if (wqe->stream) {
        qrnic_rq_taken(e, qp);
    }
}

static void fill_cqe(QrnicCqe *cqe, const QrnicPacket *p)
{
    static const uint8_t network[] = {
        [QRNIC_NET_IPV4] = QRNIC_NETWORK_IPV4,
        [QRNIC_NET_IPV6] = QRNIC_NETWORK_IPV6,
        [QRNIC_NET_GRH] = QRNIC_NETWORK_ROCE_V1,
    };
    const QrnicHeaders *h = p->h;

    cqe->flags = QRNIC_CQEF_GRH;
    if (p->info->flags & QRNIC_HDR_IMM) {
        cqe->flags |= QRNIC_CQEF_IMM;
        cqe->imm = p->t.imm;
    }
    if (p->t.solicited) {
        cqe->flags |= QRNIC_CQEF_SOLICITED;
    }
    if (h->tagged) {
        cqe->sl = h->tci >> 13;
        if (h->vlan > 0) {
            cqe->flags |= QRNIC_CQEF_VLAN;
            cqe->vlan_tci = h->tci;
        }
    }
    cqe->src_qpn = p->t.src_qpn;
    cqe->network = network[h->network];
    memcpy(cqe->smac, h->frame + 6, sizeof(cqe->smac));
}

static void deliver(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe,
                    const QrnicPacket *p)
{
    uint8_t grh[QRNIC_GRH_SIZE] = { 0 };
    const QrnicHeaders *h = p->h;
    const struct iovec piece[2] = {
        { grh, sizeof(grh) }, { (void *)p->payload, p->payload_len },
    };
    QrnicCqe cqe = {
        .qpn = qp->number,
        .index = wqe->index,
        .srqn = wqe->srqn,
        .opcode = QRNIC_CQE_RECV,
    };
    QrnicFault fault;

    memcpy(grh + sizeof(grh) - h->ip_len, h->frame + h->ip, h->ip_len);
    if (qrnic_scatter(e, qp, wqe, piece, ARRAY_SIZE(piece), &cqe, &fault)) {
        cqe.byte_len = sizeof(grh) + p->payload_len;
        fill_cqe(&cqe, p);
        qrnic_stream_end(e, wqe, cqe.byte_len, &cqe);
        qrnic_add(e, QRNIC_COUNTER_RX_DATAGRAM, 1);
    } else if (cqe.syndrome == QRNIC_SYN_PAGE_FAULT) {
        /*
         * The datagram is dropped. The page fault is reported, because later
         * datagrams need the page, too.
         */
        qrnic_page_fault(e, qp, QRNIC_SIDE_RECV, QRNIC_SYN_PAGE_FAULT, &fault);
        give_back(e, qp, wqe);
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_PAGE_FAULT);
        return;
    } else {
        qrnic_stream_fail(e, wqe, &cqe);
    }
    qrnic_rq_taken(e, qp);
    qrnic_complete_recv(e, qp, &cqe);
    if (cqe.status != QRNIC_WC_SUCCESS) {
        qrnic_qp_error(e, qp, 0, 0);
    }
}

void qrnic_datagram_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    uint8_t status = QRNIC_WC_SUCCESS, syndrome = QRNIC_SYN_NONE;
    QrnicRecvWqe wqe;

    if (p->t.qkey != qkey_of(qp)) {
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_QKEY);
        return;
    }
    switch (qrnic_rq_take(e, qp, &wqe, &status, &syndrome)) {
    case QRNIC_TAKE_EMPTY:
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_NO_WQE);
        return;
    case QRNIC_TAKE_BROKEN:
        qrnic_qp_error(e, qp, QRNIC_EVENT_QP_FATAL, QRNIC_WC_LOC_QP_OP_ERR);
        return;
    case QRNIC_TAKE_ERROR: {
        QrnicCqe cqe = {
            .qpn = qp->number, .index = wqe.index, .opcode = QRNIC_CQE_RECV,
            .srqn = wqe.srqn, .status = status, .syndrome = syndrome,
        };

        qrnic_stream_fail(e, &wqe, &cqe);
        qrnic_complete_recv(e, qp, &cqe);
        qrnic_qp_error(e, qp, 0, 0);
        return;
    }
    case QRNIC_TAKE_OK:
        break;
    }
    if (wqe.length < QRNIC_GRH_SIZE + p->payload_len) {
        /*
         * The WQE is not consumed, because otherwise any peer could use up the
         * WQEs with invalid packets.
         */
        give_back(e, qp, &wqe);
        drop(e, qp, p, QRNIC_COUNTER_RX_DROP_LENGTH);
        return;
    }
    deliver(e, qp, &wqe, p);
}

static void ud_entered(QrnicEngine *e, QrnicQp *qp, uint8_t from,
                       const QrnicQpAttr *in)
{
    if (from == QRNIC_QPS_RTR && qp->state == QRNIC_QPS_RTS) {
        qp->datagram_psn = in->sq_psn;
    }
}

static void ud_query(const QrnicQp *qp, QrnicQpAttr *out)
{
    out->sq_psn = qp->datagram_psn;
}

/*
 * Operations of all types with datagrams. Receive doorbells are ignored,
 * because the record is read when a datagram arrives.
 */
#define DATAGRAM \
    .capability = QRNIC_CAP_UD, \
    .service = QRNIC_SERVICE_UD, \
    .has_sq = true, \
    .has_rq = true, \
    .may_share = true, \
    .is_datagram = true, \
    .has_sqe = true, \
    .shape = qrnic_ud_shape, \
    .entered = ud_entered, \
    .query = ud_query, \
    .transmit = qrnic_transmit, \
    .send = ud_send, \
    .receive = qrnic_datagram_receive

/* Transitions of all types with datagrams */
static const QrnicTransition datagram_transitions[] = {
    { QRNIC_QPS_INIT, QRNIC_QPS_INIT,
      0, QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_QKEY },
    { QRNIC_QPS_INIT, QRNIC_QPS_RTR, 0, QRNIC_QP_PKEY_INDEX | QRNIC_QP_QKEY },
    { QRNIC_QPS_RTR, QRNIC_QPS_RTS, QRNIC_QP_SQ_PSN, QRNIC_QP_QKEY },
    { QRNIC_QPS_RTS, QRNIC_QPS_RTS, 0, QRNIC_QP_QKEY },
    { QRNIC_QPS_RTS, QRNIC_QPS_SQD, 0, QRNIC_QP_EN_SQD_ASYNC_NOTIFY },
    { QRNIC_QPS_SQD, QRNIC_QPS_RTS, 0, QRNIC_QP_QKEY },
    { QRNIC_QPS_SQD, QRNIC_QPS_SQD, 0, QRNIC_QP_PKEY_INDEX | QRNIC_QP_QKEY },
    { QRNIC_QPS_SQE, QRNIC_QPS_RTS, 0, QRNIC_QP_QKEY },
};

static const QrnicStates datagram_states = {
    datagram_transitions, ARRAY_SIZE(datagram_transitions),
};

static const QrnicTransition ud_transitions[] = {
    { QRNIC_QPS_RESET, QRNIC_QPS_INIT,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_QKEY, 0 },
};

static const QrnicStates ud_states = {
    ud_transitions, ARRAY_SIZE(ud_transitions), &datagram_states,
};

/*
 * Transition with an optional port, because QP1 belongs to a port from the
 * beginning
 */
static const QrnicTransition gsi_transitions[] = {
    { QRNIC_QPS_RESET, QRNIC_QPS_INIT,
      QRNIC_QP_PKEY_INDEX | QRNIC_QP_QKEY, QRNIC_QP_PORT },
};

static const QrnicStates gsi_states = {
    gsi_transitions, ARRAY_SIZE(gsi_transitions), &datagram_states,
};

const QrnicQpOps qrnic_ud_ops = {
    DATAGRAM,
    .may_stream = true,
    .flags = QRNIC_QPF_NO_MULTICAST_LOOPBACK | QRNIC_QPF_SOURCE_QPN,
    .states = &ud_states,
};

const QrnicQpOps qrnic_gsi_ops = {
    DATAGRAM,
    .fixed_number = QRNIC_GSI_QPN,
    .states = &gsi_states,
};
