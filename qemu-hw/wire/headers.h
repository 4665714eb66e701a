/*
 * qrnic wire: the headers of a frame up to the ports, found in one walk
 *
 * IEEE 802.3 and 802.1Q, RFC 791, 8200, 768, 9293; InfiniBand specification,
 * 8.3 (GRH) and annex A16. Who receives a frame and
 * what is done with it all look at what the walk found.
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
#define QRNIC_ETHERTYPE_SERVICE 0x88a8  /* 802.1ad, the outer of two tags */
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

#define QRNIC_TCP_FIN           0x01
#define QRNIC_TCP_PSH           0x08
#define QRNIC_TCP_ACK           0x10
#define QRNIC_TCP_CWR           0x80

typedef enum QrnicNetwork {
    QRNIC_NET_NONE,             /* another, or its header is not complete */
    QRNIC_NET_IPV4,
    QRNIC_NET_IPV6,
    QRNIC_NET_GRH,              /* RoCE v1; its fields are those of IPv6 */
} QrnicNetwork;

/*
 * All offsets are from the beginning of the frame. What follows a member that
 * says that there is none is 0.
 */
typedef struct QrnicHeaders {
    const uint8_t *frame;       /* destination MAC, source MAC, ... */
    size_t len;
    bool ethernet;              /* the Ethernet header is complete */
    bool tagged;                /* it has an 802.1Q tag */
    uint16_t tci;               /* of the tag */
    int16_t vlan;               /* VLAN identifier; -1: belongs to none */
    uint16_t ethertype;         /* behind the tag */
    /* The tags that make a frame longer than the MTU: up to two, in bytes */
    uint8_t tags_len;

    uint8_t network;            /* QrnicNetwork */
    uint8_t ip;                 /* offset of the IP header */
    uint8_t ip_len;             /* header, with the options of IPv4 */
    /* Header and all behind it, by the header; 0: the frame is shorter */
    uint32_t ip_total;
    uint8_t sgid[16], dgid[16]; /* IPv4 as ::ffff:a.b.c.d */
    uint32_t flow_label;
    uint8_t traffic_class, hop_limit;
    uint8_t protocol;           /* first one behind the header */
    bool fragment;              /* IPv4; in IPv6 that is a protocol */

    /* UDP or TCP, with its ports in the frame, not in a fragment; 0: none */
    uint8_t l4;
    /*
     * The whole segment or datagram; 0: its header is not complete, or one of
     * the lengths says more or less than there is.
     */
    uint16_t l4_len;
    uint16_t sport, dport;
} QrnicHeaders;

static inline bool qrnic_headers_have_ip(const QrnicHeaders *h)
{
    return h->network == QRNIC_NET_IPV4 || h->network == QRNIC_NET_IPV6;
}

/* Where the header of TCP ends, by what it says itself; all of it is there. */
static inline size_t qrnic_headers_tcp_end(const QrnicHeaders *h)
{
    return h->l4 + (h->frame[h->l4 + QRNIC_TCP_DATA_OFFSET] >> 4) * 4;
}

/* The frame must live as long as what has been found in it. */
QrnicHeaders qrnic_headers_walk(const uint8_t *frame, size_t len);

#endif
