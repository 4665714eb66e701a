/*
 * qrnic engine: raw packet queue pairs, the Ethernet function of the adapter
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/internal.h"

#define ETH_HEADER 14
#define VLAN_TAG 4
#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define IP_PROTOCOL_TCP 6
#define IP_PROTOCOL_UDP 17
#define FILTER_ADDRESSES 64

static uint16_t sum_fold(uint64_t sum)
{
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

/*
 * Ones-complement sum of big-endian 16-bit words. It may be taken over words
 * of the other byte order, and wider ones, and swapped in the end (RFC 1071).
 */
static uint16_t sum_words(const uint8_t *p, size_t len)
{
    uint64_t sum = 0;
    uint16_t folded;

    for (; len >= 4; p += 4, len -= 4) {
        sum += qrnic_ld_le32(p);
    }
    for (unsigned shift = 0; len; p++, len--, shift += 8) {
        sum += (uint32_t)*p << shift;
    }
    folded = sum_fold(sum);
    return folded << 8 | folded >> 8;
}

/*
 * Transmit
 */

static bool has_tag(const uint8_t *frame, size_t len)
{
    return len >= ETH_HEADER + VLAN_TAG &&
           qrnic_ld_be16(frame + 12) == ETHERTYPE_VLAN;
}

/* Sends the frame of a WQE. False: *status and *syndrome say why not. */
static bool transmit_frame(QrnicEngine *e, QrnicQp *qp,
                           const QrnicSendWqe *wqe, uint8_t *status,
                           uint8_t *syndrome)
{
    uint8_t *frame = e->frame + VLAN_TAG;
    size_t len = wqe->length;
    const QrnicEthSeg *eth = &wqe->eth;

    *status = QRNIC_WC_LOC_LEN_ERR;
    *syndrome = QRNIC_SYN_WQE_LENGTH;
    if (len < ETH_HEADER || len > e->port.mtu + ETH_HEADER + VLAN_TAG) {
        qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, "SQ", qp->number,
                          "WQE at index %" PRIu32 ": a frame of %zu bytes",
                          wqe->index, len);
        return false;
    }
    if (!qrnic_gather(e, qp, wqe, frame, status, syndrome)) {
        return false;
    }
    *syndrome = QRNIC_SYN_WQE_LENGTH;
    if (len > e->port.mtu + ETH_HEADER && !has_tag(frame, len)) {
        qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, "SQ", qp->number,
                          "WQE at index %" PRIu32 ": a frame of %zu bytes",
                          wqe->index, len);
        return false;
    }
    if (eth->flags & QRNIC_ETHF_CSUM) {
        size_t store = (size_t)eth->csum_start + eth->csum_offset;
        uint16_t sum;

        if (eth->csum_start >= len || store + 2 > len) {
            qrnic_guest_error(e, QRNIC_GE_WQE_MALFORMED, "SQ", qp->number,
                              "WQE at index %" PRIu32
                              ": the checksum is outside the frame",
                              wqe->index);
            return false;
        }
        sum = ~sum_words(frame + eth->csum_start, len - eth->csum_start);
        /* Zero means "no checksum" in UDP; the other zero is as good. */
        qrnic_st_be16(frame + store, sum ? sum : 0xffff);
    }
    if (eth->flags & QRNIC_ETHF_VLAN) {
        memmove(frame - VLAN_TAG, frame, 12);
        frame -= VLAN_TAG;
        qrnic_st_be16(frame + 12, ETHERTYPE_VLAN);
        qrnic_st_be16(frame + 14, eth->vlan_tci);
        len += VLAN_TAG;
    }
    qrnic_frame_send(e, frame, len, false);
    return true;
}

static bool raw_packet_transmit(QrnicEngine *e, QrnicQp *qp, unsigned budget)
{
    while (budget--) {
        uint8_t status = QRNIC_WC_SUCCESS, syndrome = QRNIC_SYN_NONE;
        QrnicSendWqe wqe;

        if (qp->state != QRNIC_QPS_RTS) {
            return false;
        }
        if (qrnic_wire_busy(e)) {
            return true;
        }
        switch (qrnic_sq_take(e, qp, &wqe, &status, &syndrome)) {
        case QRNIC_TAKE_EMPTY:
        case QRNIC_TAKE_BROKEN:
            return false;
        case QRNIC_TAKE_ERROR:
            break;
        case QRNIC_TAKE_OK:
            if (wqe.opcode == QRNIC_WQE_NOP ||
                transmit_frame(e, qp, &wqe, &status, &syndrome)) {
                status = QRNIC_WC_SUCCESS;
                syndrome = QRNIC_SYN_NONE;
            }
            break;
        }
        qrnic_complete_send(e, qp, &wqe, status, syndrome, 0);
        if (status != QRNIC_WC_SUCCESS) {
            qrnic_qp_error(e, qp, 0, 0);
            return false;
        }
    }
    return true;
}

static void raw_packet_timer(QrnicEngine *e, QrnicQp *qp)
{
    /* Ethernet waits for nothing. */
}

/* Nothing waits: the record is read when the next frame needs a WQE. */
static void raw_packet_receive_doorbell(QrnicEngine *e, QrnicQp *qp)
{
}

const QrnicQpOps qrnic_raw_packet_ops = {
    .transmit = raw_packet_transmit,
    .timer = raw_packet_timer,
    .receive_doorbell = raw_packet_receive_doorbell,
};

/*
 * Receive
 */

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

/* TCP or UDP checksum with its pseudo header (RFC 9293, 768, 8200) */
static bool l4_checksum_bad(const uint8_t *l4, size_t len, uint8_t protocol,
                            const uint8_t *addresses, size_t addresses_len,
                            bool ipv6, uint8_t *flags)
{
    uint64_t sum;

    if (protocol == IP_PROTOCOL_UDP) {
        size_t udp_len;

        if (len < 8) {
            return false;
        }
        udp_len = qrnic_ld_be16(l4 + 4);
        if (udp_len < 8 || udp_len > len ||
            (!qrnic_ld_be16(l4 + 6) && !ipv6)) {        /* no checksum */
            return false;
        }
        len = udp_len;
    } else if (protocol != IP_PROTOCOL_TCP || len < 20) {
        return false;
    }
    sum = (uint64_t)sum_words(addresses, addresses_len) + protocol + len +
          sum_words(l4, len);
    if (sum_fold(sum) != 0xffff) {
        return true;
    }
    *flags |= QRNIC_CQEF_L4_CSUM_OK;
    return false;
}

/* Sets the flags of what is right; returns true if something is wrong. */
static bool check_checksums(const uint8_t *frame, size_t len, uint8_t *flags)
{
    const uint8_t *ip = frame + ETH_HEADER;
    unsigned ethertype = qrnic_ld_be16(frame + 12);
    size_t header, total;

    len -= ETH_HEADER;
    if (ethertype == ETHERTYPE_VLAN && len >= VLAN_TAG) {
        ethertype = qrnic_ld_be16(ip + 2);
        ip += VLAN_TAG;
        len -= VLAN_TAG;
    }
    if (ethertype == ETHERTYPE_IPV6) {
        if (len < 40 || ip[0] >> 4 != 6) {
            return false;
        }
        total = qrnic_ld_be16(ip + 4);
        if (total > len - 40) {
            return false;
        }
        /* Behind extension headers the packet is left to software. */
        return l4_checksum_bad(ip + 40, total, ip[6], ip + 8, 32, true,
                               flags);
    }
    if (ethertype != ETHERTYPE_IPV4 || len < 20 || ip[0] >> 4 != 4) {
        return false;
    }
    header = (ip[0] & 0xf) * 4;
    total = qrnic_ld_be16(ip + 2);
    if (header < 20 || total < header || total > len) {
        return false;
    }
    if (sum_words(ip, header) != 0xffff) {
        return true;
    }
    *flags |= QRNIC_CQEF_L3_CSUM_OK;
    if (qrnic_ld_be16(ip + 6) & 0x3fff) {       /* a fragment */
        return false;
    }
    return l4_checksum_bad(ip + header, total - header, ip[9], ip + 12, 8,
                           false, flags);
}

static void deliver(QrnicEngine *e, QrnicQp *qp, const QrnicRecvWqe *wqe,
                    const uint8_t *frame, size_t len)
{
    bool strip = (e->rx_filter.flags & QRNIC_RXF_VLAN_STRIP) &&
                 (e->config.capabilities & QRNIC_CAP_ETH_VLAN) &&
                 has_tag(frame, len);
    QrnicCqe cqe = {
        .qpn = qp->number,
        .index = wqe->index,
        .opcode = QRNIC_CQE_RECV,
        .byte_len = strip ? len - VLAN_TAG : len,
    };
    struct iovec piece[2] = {
        { (void *)frame, 12 },
        { (void *)(frame + 12 + (strip ? VLAN_TAG : 0)), cqe.byte_len - 12 },
    };
    bool bad = false;

    if (e->config.capabilities & QRNIC_CAP_ETH_CSUM) {
        bad = check_checksums(frame, len, &cqe.flags);
    }
    if (strip) {
        cqe.flags |= QRNIC_CQEF_VLAN;
        cqe.vlan_tci = qrnic_ld_be16(frame + 14);
    } else {
        piece[0].iov_len = len;
        piece[1].iov_len = 0;
    }
    if (!qrnic_scatter(e, qp, wqe, piece, &cqe)) {
        cqe.flags = 0;
        qrnic_complete_recv(e, qp, &cqe);
        qrnic_qp_error(e, qp, 0, 0);
        return;
    }
    qrnic_add(e, QRNIC_COUNTER_ETH_RX_PACKETS, 1);
    qrnic_add(e, QRNIC_COUNTER_ETH_RX_BYTES, len);
    qrnic_add(e, QRNIC_COUNTER_ETH_RX_MULTICAST, frame[0] & 1);
    qrnic_add(e, QRNIC_COUNTER_ETH_RX_CSUM_BAD, bad);
    trace_qrnic_ethernet_receive(e->config.name, qp->number, wqe->index, len,
                                 cqe.flags);
    qrnic_complete_recv(e, qp, &cqe);
}

static void drop(QrnicEngine *e, enum qrnic_counter why, size_t len)
{
    qrnic_add(e, why, 1);
    trace_qrnic_ethernet_drop(e->config.name, qrnic_counter_name(why), len);
}

/* The queue pair that the filter names, if it takes frames now */
static QrnicQp *receiver(QrnicEngine *e)
{
    QrnicQp *qp = NULL;

    if (e->rx_filter.qpn) {
        qp = qrnic_table_get(&e->qps, e->rx_filter.qpn);
    }
    if (!qp || qp->type != QRNIC_QPT_RAW_PACKET ||
        (qp->state != QRNIC_QPS_RTR && qp->state != QRNIC_QPS_RTS &&
         qp->state != QRNIC_QPS_SQD && qp->state != QRNIC_QPS_SQE)) {
        return NULL;
    }
    return qp;
}

void qrnic_ethernet_receive(QrnicEngine *e, const uint8_t *frame, size_t len)
{
    uint8_t status = QRNIC_WC_SUCCESS, syndrome = QRNIC_SYN_NONE;
    QrnicQp *qp = receiver(e);
    QrnicRecvWqe wqe;

    if (!qp) {
        drop(e, QRNIC_COUNTER_ETH_RX_NO_QUEUE, len);
        return;
    }
    if (len < ETH_HEADER || !filter_accepts(&e->rx_filter, frame)) {
        drop(e, QRNIC_COUNTER_ETH_RX_FILTERED, len);
        return;
    }
    if (len > e->port.mtu + ETH_HEADER + (has_tag(frame, len) ? VLAN_TAG : 0)) {
        drop(e, QRNIC_COUNTER_ETH_RX_TOO_LONG, len);
        return;
    }
    switch (qrnic_rq_take(e, qp, &wqe, &status, &syndrome)) {
    case QRNIC_TAKE_EMPTY:
        /*
         * Holding it would hold what is behind it too, the packets of reliable
         * connections among that.
         */
        drop(e, QRNIC_COUNTER_ETH_RX_NO_QUEUE, len);
        return;
    case QRNIC_TAKE_ERROR: {
        QrnicCqe cqe = {
            .qpn = qp->number, .index = wqe.index, .opcode = QRNIC_CQE_RECV,
            .status = status, .syndrome = syndrome,
        };

        qrnic_complete_recv(e, qp, &cqe);
        qrnic_qp_error(e, qp, 0, 0);
        drop(e, QRNIC_COUNTER_ETH_RX_NO_QUEUE, len);
        return;
    }
    case QRNIC_TAKE_BROKEN:
        return;                 /* an SRQ: this type never has one */
    case QRNIC_TAKE_OK:
        break;
    }
    if (wqe.length < len) {
        /*
         * Anybody on the wire can send such a frame, so it must not cost the
         * WQE, let alone the queue pair: put it back.
         */
        qrnic_rq_give_back(e, qp, &wqe);
        drop(e, QRNIC_COUNTER_ETH_RX_TOO_LONG, len);
        return;
    }
    deliver(e, qp, &wqe, frame, len);
}

void qrnic_ethernet_qp_destroyed(QrnicEngine *e, QrnicQp *qp)
{
    if (e->rx_filter.qpn == qp->number) {
        /* The number will be another queue pair's one day. */
        memset(&e->rx_filter, 0, sizeof(e->rx_filter));
    }
}

QrnicResult qrnic_rx_filter_set(QrnicEngine *e, const QrnicRxFilter *in)
{
    unsigned count = in->unicast_count + in->multicast_count;

    if (in->qpn) {
        QrnicQp *qp = qrnic_table_get(&e->qps, in->qpn);

        if (!qp) {
            return qrnic_refuse(QRNIC_ST_BAD_OBJECT,
                                QRNIC_RX_FILTER_QPN_OFFSET);
        }
        if (qp->type != QRNIC_QPT_RAW_PACKET) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                QRNIC_RX_FILTER_QPN_OFFSET);
        }
    }
    if ((in->flags & QRNIC_RXF_VLAN_STRIP) &&
        !(e->config.capabilities & QRNIC_CAP_ETH_VLAN)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_RX_FILTER_FLAGS_OFFSET);
    }
    if (count > FILTER_ADDRESSES) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_RX_FILTER_UNICAST_COUNT_OFFSET);
    }
    for (unsigned i = 0; i < sizeof(in->addresses); i++) {
        /* The first byte of an address tells its kind; none follow those. */
        bool wrong = i >= 6 * count ? in->addresses[i] != 0 :
                     i % 6 == 0 && (in->addresses[i] & 1) !=
                                   (i / 6 >= in->unicast_count);

        if (wrong) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                                QRNIC_RX_FILTER_ADDRESSES_OFFSET + i);
        }
    }
    e->rx_filter = *in;
    trace_qrnic_rx_filter(e->config.name, in->qpn, in->flags,
                          in->unicast_count, in->multicast_count);
    return qrnic_ok(0);
}
