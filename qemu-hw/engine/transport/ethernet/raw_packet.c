/*
 * qrnic engine, layer transport: raw packet queue pairs and the receive filter
 *
 * Sends and receives Ethernet frames. The receive filter names the Ethernet
 * function of the adapter, which is a raw packet queue pair or an RSS table.
 * Others receive by flow rules. The layer fabric calls qrnic_ethernet_receive()
 * and qrnic_ethernet_sniff(); qrnic_transmit() calls raw_packet_send() for each
 * WQE. A frame that finds no receive WQE is dropped. Manual, chapter Ethernet.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "trace.h"
#include "engine/qp/qp_rate.h"
#include "engine/transport/transport.h"

#define FILTER_ADDRESSES 64

/* Receiver */

static bool in_list(const uint8_t *mac, const uint8_t *list, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (!memcmp(list + 6 * i, mac, 6)) {
            return true;
        }
    }
    return false;
}

static bool filter_accepts(const QrnicRxFilter *f, const uint8_t *mac)
{
    static const uint8_t broadcast[6] = {
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff
    };

    if (f->flags & QRNIC_RXF_PROMISC) {
        return true;
    }
    if (!memcmp(mac, broadcast, 6)) {
        return f->flags & QRNIC_RXF_BROADCAST;
    }
    if (mac[0] & 1) {
        return (f->flags & QRNIC_RXF_ALLMULTI) ||
               in_list(mac, f->addresses + 6 * f->unicast_count,
                       f->multicast_count);
    }
    return in_list(mac, f->addresses, f->unicast_count);
}

/* Flags that select how a frame is received */
#define RECEIVE_STRIP 1u        /* a VLAN tag goes into the CQE */
#define RECEIVE_COPY 2u         /* a copy for a sniffer */
#define RECEIVE_FCS 4u          /* the frame check sequence is appended */
/* the CQE reports if the frame continues another */
#define RECEIVE_COALESCE 8u

/* Returns the flags that the receive filter selects. */
static unsigned how_of_filter(const QrnicRxFilter *filter)
{
    return (filter->flags & QRNIC_RXF_VLAN_STRIP ? RECEIVE_STRIP : 0) |
           (filter->flags & QRNIC_RXF_COALESCE ? RECEIVE_COALESCE : 0);
}

/* Returns the flags that the queue pair of a flow rule selects. */
static unsigned how_of_flow(const QrnicQp *qp)
{
    return (qp->ctx.flags & QRNIC_QPF_VLAN_STRIP ? RECEIVE_STRIP : 0) |
           (qp->ctx.flags & QRNIC_QPF_SCATTER_FCS ? RECEIVE_FCS : 0);
}

/* Returns the bytes that a frame needs in the buffers. */
static size_t room_for(const QrnicHeaders *h, unsigned how)
{
    return h->len + (how & RECEIVE_FCS ? QRNIC_FCS_LEN : 0) -
           (how & RECEIVE_STRIP && h->tagged ? QRNIC_VLAN_LEN : 0);
}

static void count_received(QrnicEngine *e, bool copy, const QrnicHeaders *h,
                           bool bad)
{
    if (copy) {
        qrnic_add(e, QRNIC_COUNTER_FLOW_COPIES, 1);
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_ETH_RX_PACKETS, 1);
    qrnic_add(e, QRNIC_COUNTER_ETH_RX_BYTES, h->len);
    qrnic_add(e, QRNIC_COUNTER_ETH_RX_MULTICAST, h->frame[0] & 1);
    qrnic_add(e, QRNIC_COUNTER_ETH_RX_CSUM_BAD, bad);
}

/*
 * Returns the length of the headers as written to the buffers if the frame
 * continues the previous one; else 0.
 */
static unsigned continues(QrnicEngine *e, QrnicQp *qp, const QrnicHeaders *h,
                          unsigned how, uint8_t flags)
{
    unsigned header;

    if (!(how & RECEIVE_COALESCE)) {
        qrnic_coalesce_drop(e, qp);
        return 0;
    }
    header = qrnic_coalesce(e, qp, h, flags);
    if (!header) {
        return 0;
    }
    qrnic_add(e, QRNIC_COUNTER_ETH_RX_CONTINUED, 1);
    return header - (how & RECEIVE_STRIP && h->tagged ? QRNIC_VLAN_LEN : 0);
}

static void deliver(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe,
                    const QrnicHeaders *h, unsigned how,
                    const QrnicRssHash *hash)
{
    bool strip = (how & RECEIVE_STRIP) && h->tagged;
    QrnicCqe cqe = {
        .qpn = qp->number,
        .index = wqe->index,
        .opcode = QRNIC_CQE_RECV,
        .byte_len = room_for(h, how),
        .hash = hash->value,
        .hashed = hash->of,
    };
    size_t behind = 12 + (strip ? QRNIC_VLAN_LEN : 0);
    uint8_t fcs[QRNIC_FCS_LEN];
    const struct iovec piece[] = {
        { (void *)h->frame, 12 },
        { (void *)(h->frame + behind), h->len - behind },
        { fcs, how & RECEIVE_FCS ? sizeof(fcs) : 0 },
    };
    bool bad = false;

    if (how & RECEIVE_FCS) {
        stl_le_p(fcs, ~qrnic_crc32(QRNIC_CRC32_INIT, h->frame, h->len));
    }

    if (e->config.capabilities & QRNIC_CAP_ETH_CSUM) {
        bad = qrnic_checksums_bad(h, &cqe.flags);
    }
    if (strip) {
        cqe.flags |= QRNIC_CQEF_VLAN;
        cqe.vlan_tci = h->tci;
    }
    if (!qrnic_scatter(e, qp, wqe, piece, ARRAY_SIZE(piece), &cqe, NULL)) {
        cqe.flags = 0;
        cqe.hash = 0;
        cqe.hashed = 0;
        qrnic_complete_recv(e, qp, &cqe);
        qrnic_qp_error(e, qp, 0, 0);
        return;
    }
    count_received(e, how & RECEIVE_COPY, h, bad);
    cqe.continues = continues(e, qp, h, how, cqe.flags);
    trace_qrnic_ethernet_receive(e->config.name, qp->number, wqe->index,
                                 h->len, cqe.flags, cqe.continues);
    qrnic_complete_recv(e, qp, &cqe);
}

static void drop(QrnicEngine *e, enum qrnic_counter why, size_t len)
{
    qrnic_add(e, why, 1);
    trace_qrnic_ethernet_drop(e->config.name, qrnic_counter_name(why), len);
}

/*
 * Consumes a receive WQE of the queue pair, and writes the frame to its
 * buffers.
 */
static void receive_one(QrnicEngine *e, QrnicQp *qp, const QrnicHeaders *h,
                        unsigned how, const QrnicRssHash *hash)
{
    bool copy = how & RECEIVE_COPY;
    enum qrnic_counter no_wqe = copy ? QRNIC_COUNTER_FLOW_COPIES_LOST :
                                       QRNIC_COUNTER_ETH_RX_NO_QUEUE;
    enum qrnic_counter too_long = copy ? QRNIC_COUNTER_FLOW_COPIES_LOST :
                                         QRNIC_COUNTER_ETH_RX_TOO_LONG;
    uint8_t status = QRNIC_WC_SUCCESS, syndrome = QRNIC_SYN_NONE;
    QrnicRecvWqe wqe;

    if (!copy && h->len > qrnic_ethernet_longest(e, h)) {
        drop(e, too_long, h->len);
        return;
    }
    switch (qrnic_rq_take(e, qp, &wqe, &status, &syndrome)) {
    case QRNIC_TAKE_EMPTY:
        /*
         * The frame is dropped, because buffering it would delay all frames
         * behind it, among them packets of reliable connections.
         */
        drop(e, no_wqe, h->len);
        return;
    case QRNIC_TAKE_ERROR: {
        QrnicCqe cqe = {
            .qpn = qp->number, .index = wqe.index, .opcode = QRNIC_CQE_RECV,
            .status = status, .syndrome = syndrome,
        };

        qrnic_complete_recv(e, qp, &cqe);
        qrnic_qp_error(e, qp, 0, 0);
        drop(e, no_wqe, h->len);
        return;
    }
    case QRNIC_TAKE_BROKEN:
        return;                 /* Unreachable: the type has no SRQ */
    case QRNIC_TAKE_OK:
        break;
    }
    if (wqe.length < room_for(h, how)) {
        /*
         * The WQE is not consumed and the queue pair does not fail. Otherwise
         * any host on the wire could use up the WQEs.
         */
        qrnic_rq_give_back(e, qp, &wqe);
        drop(e, too_long, h->len);
        return;
    }
    deliver(e, qp, &wqe, h, how, hash);
}

static void receive_hashed(QrnicEngine *e, QrnicQp *qp, const QrnicHeaders *h,
                           unsigned how, const QrnicRssHash *hash)
{
    QrnicCounterSet *before = qrnic_charge_to(e, qp->counters);

    receive_one(e, qp, h, how, hash);
    qrnic_charge_to(e, before);
}

static void receive_into(QrnicEngine *e, QrnicQp *qp, const QrnicHeaders *h,
                         unsigned how)
{
    static const QrnicRssHash none;

    receive_hashed(e, qp, h, how, &none);
}

void qrnic_ethernet_sniff(QrnicEngine *e, const QrnicHeaders *h)
{
    uint32_t i = 0;
    QrnicQp *qp;

    while (h->ethernet && !e->fatal && (qp = qrnic_flow_sniffer(e, h, &i))) {
        receive_into(e, qp, h, RECEIVE_COPY);
    }
}

/*
 * Returns the queue pair that the filter names, directly or by an RSS table;
 * NULL if it cannot receive.
 */
static QrnicQp *receiver(QrnicEngine *e, const QrnicHeaders *h,
                         QrnicRssHash *hash)
{
    const QrnicRxFilter *filter = &e->transport->rx_filter;
    uint32_t number = filter->qpn;
    QrnicQp *qp = NULL;

    *hash = (QrnicRssHash) { 0 };
    if (filter->flags & QRNIC_RXF_RSS) {
        number = qrnic_rss_qpn(e, number, h, hash);
    }
    if (number) {
        qp = qrnic_qp_get(e, number);
    }
    if (!qp || !qp->ops->takes_frames ||
        !qrnic_qp_receives(qp, false)) {
        return NULL;
    }
    return qp;
}

void qrnic_ethernet_receive(QrnicEngine *e, const QrnicHeaders *h)
{
    const QrnicRxFilter *filter = &e->transport->rx_filter;
    QrnicQp *function, *qp = NULL;
    QrnicRssHash hash;

    if (h->ethernet) {
        qp = qrnic_flow_normal(e, NULL, h);
    }
    if (!qp) {
        /*
         * The frame is hashed only if no rule has matched, because the hash is
         * costly.
         */
        function = receiver(e, h, &hash);
        if (h->ethernet) {
            if (function && filter_accepts(filter, h->frame)) {
                receive_hashed(e, function, h, how_of_filter(filter), &hash);
                return;
            }
            qp = qrnic_flow_default(e, NULL, h);
        }
        if (!qp) {
            drop(e, function ? QRNIC_COUNTER_ETH_RX_FILTERED :
                               QRNIC_COUNTER_ETH_RX_NO_QUEUE, h->len);
            return;
        }
    }
    qrnic_add(e, QRNIC_COUNTER_FLOW_RX_PACKETS, 1);
    qrnic_add(e, QRNIC_COUNTER_FLOW_RX_BYTES, h->len);
    receive_into(e, qp, h, how_of_flow(qp));
}

/* Sender */

/*
 * Delivers a sent frame to another queue pair. The sender is skipped, because
 * no queue pair receives its own frames.
 */
static void loop_back(QrnicEngine *e, const QrnicQp *sender,
                      const QrnicHeaders *h)
{
    QrnicQp *qp = NULL;

    if (qrnic_engine_port_active(e)) {
        qp = qrnic_flow_normal(e, sender, h);
        if (!qp) {
            qp = qrnic_flow_default(e, sender, h);
        }
    }
    if (qp) {
        qrnic_add(e, QRNIC_COUNTER_FLOW_LOOPBACK, 1);
        receive_into(e, qp, h, how_of_flow(qp));
    }
}

/*
 * Sends a complete frame. The VLAN tag is inserted here, into room before the
 * frame.
 */
static void send_frame(QrnicEngine *e, QrnicQp *qp, const QrnicEthSeg *eth,
                       const QrnicHeaders *h, uint8_t *frame)
{
    QrnicHeaders tagged;

    if (eth->flags & QRNIC_ETHF_VLAN) {
        memmove(frame - QRNIC_VLAN_LEN, frame, 12);
        frame -= QRNIC_VLAN_LEN;
        qrnic_st_be16(frame + 12, QRNIC_ETHERTYPE_VLAN);
        qrnic_st_be16(frame + 14, eth->vlan_tci);
        tagged = qrnic_headers_walk(frame, h->len + QRNIC_VLAN_LEN);
        h = &tagged;
    }
    qrnic_pace_charge(e, qp, h->len);
    qrnic_frame_send(e, h);
    if (qp->db_page && frame[0] & 1) {
        loop_back(e, qp, h);
    }
}

static bool refuse_length(QrnicEngine *e, const QrnicQp *qp,
                          const QrnicSendWqe *wqe)
{
    qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, "SQ", qp->number,
                      "WQE at index %" PRIu32 ": invalid frame length of %"
                      PRIu64 " bytes", wqe->index, wqe->length);
    return false;
}

/*
 * Computes the checksum that the WQE describes, and writes it to the frame.
 * Returns false if the position of the checksum is outside the frame.
 */
static bool fill_described(QrnicEngine *e, const QrnicQp *qp,
                           const QrnicSendWqe *wqe, uint8_t *frame)
{
    const QrnicEthSeg *eth = &wqe->eth;
    size_t store = (size_t)eth->csum_start + eth->csum_offset;

    if (eth->csum_start >= wqe->length || store + 2 > wqe->length) {
        qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, "SQ", qp->number,
                          "WQE at index %" PRIu32
                          ": the checksum is outside the frame", wqe->index);
        return false;
    }
    qrnic_checksum_store(frame + store,
                         qrnic_checksum_add(frame + eth->csum_start,
                                            wqe->length - eth->csum_start));
    return true;
}

/*
 * Sends the frame of a WQE. Returns false with *status and *syndrome if the WQE
 * is invalid.
 */
static bool transmit_frame(QrnicEngine *e, QrnicQp *qp,
                           const QrnicSendWqe *wqe, uint8_t *status,
                           uint8_t *syndrome)
{
    uint8_t *frame = e->fabric->frame + QRNIC_VLAN_LEN;
    const QrnicEthSeg *eth = &wqe->eth;
    QrnicHeaders h;

    *status = QRNIC_WC_LOC_LEN_ERR;
    *syndrome = QRNIC_SYN_WQE_LENGTH;
    if (wqe->length < QRNIC_ETH_LEN ||
        wqe->length > e->fabric->port.mtu + QRNIC_ETH_LEN +
                      2 * QRNIC_VLAN_LEN) {
        return refuse_length(e, qp, wqe);
    }
    if (!qrnic_gather(e, qp, wqe, frame, status, syndrome, NULL)) {
        return false;
    }
    *syndrome = QRNIC_SYN_WQE_LENGTH;
    /*
     * The headers are parsed after the checksum is written, because the
     * checksum may be in a header and would change the parsed values.
     */
    if ((eth->flags & QRNIC_ETHF_CSUM) && !fill_described(e, qp, wqe, frame)) {
        return false;
    }
    h = qrnic_headers_walk(frame, wqe->length);
    if (h.len > qrnic_ethernet_longest(e, &h)) {
        return refuse_length(e, qp, wqe);
    }
    if (eth->flags & QRNIC_ETHF_IP_CSUM) {
        qrnic_checksums_fill(&h, frame);
    }
    send_frame(e, qp, eth, &h, frame);
    return true;
}

/*
 * Sends one frame of a segmented WQE. Returns true if it was the last one or
 * has failed.
 */
static bool transmit_segment(QrnicEngine *e, QrnicQp *qp,
                             const QrnicSendWqe *wqe, uint8_t *status,
                             uint8_t *syndrome)
{
    uint8_t *frame = e->fabric->frame + QRNIC_VLAN_LEN;
    QrnicHeaders h;
    QrnicSegment segment = qrnic_segmentation_next(e, qp, wqe, frame, &h,
                                                   status, syndrome);

    if (segment != QRNIC_SEGMENT_FAILED) {
        send_frame(e, qp, &wqe->eth, &h, frame);
    }
    return segment != QRNIC_SEGMENT_MORE;
}

static bool raw_packet_send(QrnicEngine *e, QrnicQp *qp,
                            const QrnicSendWqe *wqe, uint8_t *status,
                            uint8_t *syndrome)
{
    if (wqe->eth.flags & QRNIC_ETHF_TSO) {
        return transmit_segment(e, qp, wqe, status, syndrome);
    }
    if (transmit_frame(e, qp, wqe, status, syndrome)) {
        *status = QRNIC_WC_SUCCESS;
        *syndrome = QRNIC_SYN_NONE;
    }
    return true;
}

/* Drops a segmentation in progress, because the queue pair has stopped. */
static bool raw_packet_flush(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_segmentation_drop(e, qp);
    return false;
}

static void raw_packet_drop(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_segmentation_drop(e, qp);
    qrnic_coalesce_drop(e, qp);
}

static void filter_changed(QrnicEngine *e)
{
    if (e->env.filter) {
        e->env.filter(e->env.opaque, &e->transport->rx_filter);
    }
}

static void raw_packet_destroyed(QrnicEngine *e, QrnicQp *qp)
{
    if (e->transport->rx_filter.qpn == qp->number &&
        !(e->transport->rx_filter.flags & QRNIC_RXF_RSS)) {
        /*
         * The filter is cleared. Otherwise a new queue pair with the same
         * number would receive the frames.
         */
        memset(&e->transport->rx_filter, 0, sizeof(e->transport->rx_filter));
        filter_changed(e);
    }
    qrnic_flow_qp_destroyed(e, qp);
}

/*
 * Transitions to each state. Receive doorbells are not handled, because the
 * doorbell record is read when a frame needs a WQE.
 */
static const QrnicTransition raw_packet_transitions[] = {
    { QRNIC_QPS_RESET, QRNIC_QPS_INIT, QRNIC_QP_PORT, 0 },
    { QRNIC_QPS_INIT, QRNIC_QPS_INIT, 0, QRNIC_QP_PORT },
    { QRNIC_QPS_INIT, QRNIC_QPS_RTR, 0, 0 },
    { QRNIC_QPS_RTR, QRNIC_QPS_RTS, 0, 0 },
    { QRNIC_QPS_RTS, QRNIC_QPS_RTS, 0, 0 },
    { QRNIC_QPS_RTS, QRNIC_QPS_SQD, 0, QRNIC_QP_EN_SQD_ASYNC_NOTIFY },
    { QRNIC_QPS_SQD, QRNIC_QPS_RTS, 0, 0 },
    { QRNIC_QPS_SQD, QRNIC_QPS_SQD, 0, 0 },
};

static const QrnicStates raw_packet_states = {
    raw_packet_transitions, ARRAY_SIZE(raw_packet_transitions),
};

const QrnicQpOps qrnic_raw_packet_ops = {
    .flags = QRNIC_QPF_VLAN_STRIP | QRNIC_QPF_SCATTER_FCS |
             QRNIC_QPF_RECEIVE_ONLY,
    .service = -1,
    .has_sq = true,
    .has_rq = true,
    .takes_frames = true,
    .states = &raw_packet_states,
    .shape = qrnic_raw_packet_shape,
    .init = raw_packet_drop,
    .cleanup = raw_packet_drop,
    .flush_send = raw_packet_flush,
    .destroyed = raw_packet_destroyed,
    .transmit = qrnic_transmit,
    .send = raw_packet_send,
};

static QrnicResult filter_check_target(QrnicEngine *e, const QrnicRxFilter *in)
{
    const QrnicQp *qp;

    if (in->flags & QRNIC_RXF_RSS) {
        if (!(e->config.capabilities & QRNIC_CAP_ETH_RSS)) {
            return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                                QRNIC_RX_FILTER_FLAGS_OFFSET);
        }
        if (!qrnic_rss_hold(e, in->qpn, 0)) {
            return qrnic_refuse(QRNIC_ST_BAD_OBJECT,
                                QRNIC_RX_FILTER_QPN_OFFSET);
        }
        return qrnic_ok(0);
    }
    if (!in->qpn) {
        return qrnic_ok(0);
    }
    qp = qrnic_qp_get(e, in->qpn);
    if (!qp) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_RX_FILTER_QPN_OFFSET);
    }
    if (!qp->ops->takes_frames) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_RX_FILTER_QPN_OFFSET);
    }
    return qrnic_ok(0);
}

/* Adds n to the users of the RSS table that the filter names, if any. */
static void filter_hold(QrnicEngine *e, const QrnicRxFilter *filter, int n)
{
    if (filter->flags & QRNIC_RXF_RSS) {
        qrnic_rss_hold(e, filter->qpn, n);
    }
}

QrnicResult qrnic_rx_filter_set(QrnicEngine *e, const QrnicRxFilter *in)
{
    unsigned count = in->unicast_count + in->multicast_count;
    QrnicResult result = filter_check_target(e, in);

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if ((in->flags & QRNIC_RXF_VLAN_STRIP) &&
        !(e->config.capabilities & QRNIC_CAP_ETH_VLAN)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_RX_FILTER_FLAGS_OFFSET);
    }
    if ((in->flags & QRNIC_RXF_COALESCE) &&
        !(e->config.capabilities & QRNIC_CAP_ETH_RX_COALESCE)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_RX_FILTER_FLAGS_OFFSET);
    }
    if (count > FILTER_ADDRESSES) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_RX_FILTER_UNICAST_COUNT_OFFSET);
    }
    for (unsigned i = 0; i < sizeof(in->addresses); i++) {
        /*
         * The lowest bit of the first byte distinguishes unicast and multicast
         * addresses. Bytes behind the last address must be 0.
         */
        bool wrong = i >= 6 * count ? in->addresses[i] != 0 :
                     i % 6 == 0 && (in->addresses[i] & 1) !=
                                   (i / 6 >= in->unicast_count);

        if (wrong) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                QRNIC_RX_FILTER_ADDRESSES_OFFSET + i);
        }
    }
    filter_hold(e, in, 1);
    filter_hold(e, &e->transport->rx_filter, -1);
    e->transport->rx_filter = *in;
    trace_qrnic_rx_filter(e->config.name, in->qpn, in->flags,
                          in->unicast_count, in->multicast_count);
    filter_changed(e);
    return qrnic_ok(0);
}
