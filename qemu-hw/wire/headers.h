/*
 * qrnic wire: the headers of a frame, from Ethernet to the ports of UDP and TCP
 *
 * Each frame is parsed once, by qrnic_headers_walk(); all layers use the
 * result. IEEE 802.3 and 802.1Q, RFC 791, 8200, 768, 9293; InfiniBand
 * specification, 8.3 (GRH) and annex A16.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_WIRE_HEADERS_H
#define QRNIC_WIRE_HEADERS_H


#define QRNIC_ETH_LEN           14
#define QRNIC_VLAN_LEN          4
#define QRNIC_FCS_LEN           4
#define QRNIC_IPV4_LEN          20
#define QRNIC_IPV6_LEN          40
#define QRNIC_GRH_LEN           40
#define QRNIC_UDP_LEN           8
#define QRNIC_TCP_LEN           20

#define QRNIC_ETHERTYPE_IPV4    0x0800
#define QRNIC_ETHERTYPE_VLAN    0x8100
#define QRNIC_ETHERTYPE_SERVICE 0x88a8  /* 802.1ad, outer tag of two */
#define QRNIC_ETHERTYPE_IPV6    0x86dd
#define QRNIC_ETHERTYPE_ROCE_V1 0x8915
#define QRNIC_IP_PROTOCOL_TCP   6
#define QRNIC_IP_PROTOCOL_UDP   17

/* Offsets of fields in their headers */
#define QRNIC_IPV4_TOTAL_LENGTH 2
#define QRNIC_IPV4_IDENTIFICATION 4
#define QRNIC_IPV4_CHECKSUM     10
#define QRNIC_IPV6_PAYLOAD_LENGTH 4
#define QRNIC_TCP_SEQUENCE      4
#define QRNIC_TCP_DATA_OFFSET   12
#define QRNIC_TCP_FLAGS         13
#define QRNIC_TCP_CHECKSUM      16
#define QRNIC_UDP_CHECKSUM      6

/* Flags of TCP */
#define QRNIC_TCP_FIN           0x01
#define QRNIC_TCP_PSH           0x08
#define QRNIC_TCP_ACK           0x10
#define QRNIC_TCP_CWR           0x80

typedef enum QrnicNetwork {
    /* any other protocol, or an incomplete header */
    QRNIC_NET_NONE,
    QRNIC_NET_IPV4,
    QRNIC_NET_IPV6,
    QRNIC_NET_GRH,              /* RoCE v1; its fields are the fields of IPv6 */
} QrnicNetwork;

/*
 * Headers of a frame. All offsets are from the beginning of the frame. If a
 * header is absent, the members below that describe it are 0.
 */
typedef struct QrnicHeaders {
    const uint8_t *frame;       /* destination MAC, source MAC, ... */
    size_t len;
    bool ethernet;              /* the Ethernet header is complete */
    bool tagged;                /* the frame has an 802.1Q tag */
    uint16_t tci;               /* value of the tag */
    int16_t vlan;               /* VLAN identifier; -1: none */
    uint16_t ethertype;         /* type after the tag */
    /* Bytes of up to two tags, by which a frame may exceed the MTU */
    uint8_t tags_len;

    uint8_t network;            /* QrnicNetwork */
    uint8_t ip;                 /* offset of the IP header or GRH */
    uint8_t ip_len;             /* its length, with the options of IPv4 */
    /* Length of header and payload by the header; 0 if the frame is shorter */
    uint32_t ip_total;
    uint8_t sgid[16], dgid[16]; /* IPv4 as ::ffff:a.b.c.d */
    uint32_t flow_label;
    uint8_t traffic_class, hop_limit;
    uint8_t protocol;           /* first protocol after the header */
    bool fragment;              /* IPv4; in IPv6 it is a protocol */

    /* Offset of UDP or TCP if its ports are in the frame; 0 in a fragment */
    uint8_t l4;
    /*
     * Length of the segment or datagram; 0 if its header is incomplete, or if
     * two lengths contradict each other
     */
    uint16_t l4_len;
    uint16_t sport, dport;
} QrnicHeaders;

/* Returns true if the frame has an IPv4 or IPv6 header. */
static inline bool qrnic_headers_have_ip(const QrnicHeaders *h)
{
    return h->network == QRNIC_NET_IPV4 || h->network == QRNIC_NET_IPV6;
}

/*
 * Returns the offset of the end of the TCP header, by its data offset. The
 * caller has checked that the frame contains the fixed header of TCP.
 */
static inline size_t qrnic_headers_tcp_end(const QrnicHeaders *h)
{
    return h->l4 + (h->frame[h->l4 + QRNIC_TCP_DATA_OFFSET] >> 4) * 4;
}

/**
 * qrnic_headers_walk:
 * @frame: the frame, without FCS; must live as long as the result
 * @len: its size in bytes
 *
 * Parses the headers of any frame. Checksums are not checked.
 *
 * Returns: the headers
 */
QrnicHeaders qrnic_headers_walk(const uint8_t *frame, size_t len);

#endif
