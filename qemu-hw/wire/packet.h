/*
 * qrnic wire: RoCE packets, parsed and built
 *
 * Pure functions on byte arrays. The transport layer parses each received
 * packet once. To send, it initializes a path once per connection, and calls
 * qrnic_packet_begin() and qrnic_packet_finish() for each packet. All members
 * of the structures are in host order. InfiniBand specification, chapter 9, and
 * annexes A16 (RoCE v1) and A17 (RoCE v2).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_WIRE_PACKET_H
#define QRNIC_WIRE_PACKET_H

#include "wire/headers.h"
#include "wire/icrc.h"
#include "wire/opcode.h"

#define QRNIC_ROCE_UDP_PORT     4791
#define QRNIC_GRH_NEXT_BTH      0x1b    /* next header (8.3.5) */
#define QRNIC_BTH_LEN           12
/* A bit for each PSN of a window */
#define QRNIC_SACK_BYTES        32
/*
 * BTH with its longest extension headers: the AETH and the contents of a SACK
 */
#define QRNIC_TRANSPORT_HEADER_MAX (QRNIC_BTH_LEN + 4 + 8 + QRNIC_SACK_BYTES)
#define QRNIC_ICRC_LEN          4

#define QRNIC_PATH_HEADER_MAX \
    (QRNIC_ETH_LEN + QRNIC_VLAN_LEN + QRNIC_IPV6_LEN + QRNIC_UDP_LEN)
#define QRNIC_PACKET_HEADER_MAX \
    (QRNIC_PATH_HEADER_MAX + QRNIC_TRANSPORT_HEADER_MAX)
/* Maximum of padding and ICRC after the payload */
#define QRNIC_PACKET_TAIL_MAX   (3 + QRNIC_ICRC_LEN)
#define QRNIC_PSN_MASK          0xffffffu

/* Reason for which a target rejects a connection */
typedef enum QrnicCnak {
    QRNIC_CNAK_BUSY = 1,
    QRNIC_CNAK_KEY = 2,
    QRNIC_CNAK_PARAMETERS = 3,
} QrnicCnak;

/*
 * Marks: seven bits of the BTH that the specification reserves (9.2.7). Queue
 * pairs without options send them as 0 and ignore them.
 */
/* the sender supports selective repeat */
#define QRNIC_MARK_SELECTIVE    0x01
/*
 * Number of the transmission of a request, from 0 on, modulo 8. A response has
 * the number of its request.
 */
#define QRNIC_MARK_TRANSMISSION(n)  (((n) & 7) << 4)
#define QRNIC_MARKED_TRANSMISSION(mark) ((mark) >> 4 & 7)
#define QRNIC_MARK_ADAPTIVE     0x02    /* the packet may take any path */
/* adaptive: the write has more packets */
#define QRNIC_MARK_MORE         0x04
#define QRNIC_MARK_PLACES       0x08    /* the sender places in any order */
#define QRNIC_MARKS             0x7f

/* BTH and extension headers; the opcode determines the valid members */
typedef struct QrnicTransport {
    uint8_t opcode;
    bool solicited, ack_req;
    uint8_t mark;               /* QRNIC_MARK_* */
    bool fecn, becn;
    uint16_t pkey;
    uint32_t dest_qpn, psn;
    uint32_t qkey, src_qpn;     /* DETH; src_qpn: also DCETH, ENCAPSULATED */
    uint32_t srqn;              /* XRCETH */
    uint32_t connection;        /* DCETH */
    uint64_t access_key;        /* DC_CONNECT */
    uint8_t path_mtu, rd_atomic;
    uint8_t reason;             /* DC_CNAK, enum QrnicCnak */
    /* RETH; AtomicETH also uses va and rkey */
    uint64_t va;
    uint32_t rkey, dma_len;
    uint64_t swap_add, compare; /* AtomicETH */
    uint8_t syndrome;           /* AETH */
    uint32_t msn;
    uint64_t original;          /* AtomicAckETH */
    uint32_t imm;               /* ImmDt, in host order */
    uint32_t inv_key;           /* IETH */
    uint8_t flush_type, flush_level;    /* FETH: placement, selectivity */
    /* SACK: first missing PSN */
    uint32_t missing_psn;
    /* bit map from missing_psn on, highest bit first; in the frame */
    const uint8_t *arrived;
    uint32_t latest_psn;        /* PSN received last, and its transmission */
    uint8_t latest_transmission;
    bool cnp_reserved;          /* CNP: a reserved byte is not 0 */
} QrnicTransport;

/* Received packet; its pointers lead into the frame */
typedef struct QrnicPacket {
    const QrnicHeaders *h;
    QrnicTransport t;
    const QrnicOpcodeInfo *info;
    const uint8_t *payload;
    uint32_t payload_len;       /* without padding and ICRC */
    uint32_t frame_len;         /* without bytes after the ICRC */
} QrnicPacket;

/* ECN: the low bits of ToS or traffic class (RFC 3168, 5) */
#define QRNIC_ECN_MASK          3
#define QRNIC_ECN_ECT0          2
#define QRNIC_ECN_CE            3

typedef enum QrnicParse {
    QRNIC_PARSE_OK,
    QRNIC_PARSE_MALFORMED,      /* headers and lengths contradict */
    QRNIC_PARSE_ICRC,
    QRNIC_PARSE_OPCODE,         /* undefined opcode; t has the BTH */
} QrnicParse;

/**
 * qrnic_packet_parse:
 * @out: receives the packet
 * @h: headers of a frame to UDP port 4791, or with a GRH
 * @icrc: covered part of the packet
 *
 * Parses and validates a packet.
 *
 * Returns: any value of QrnicParse
 */
QrnicParse qrnic_packet_parse(QrnicPacket *out, const QrnicHeaders *h,
                              QrnicIcrcCover icrc);
/**
 * qrnic_packet_parse_unchecked:
 * @out: receives the packet
 * @h: headers of a frame to UDP port 4791, or with a GRH
 *
 * Parses a packet without checking its ICRC, for looped back packets.
 *
 * Returns: as qrnic_packet_parse(), except QRNIC_PARSE_ICRC
 */
QrnicParse qrnic_packet_parse_unchecked(QrnicPacket *out,
                                        const QrnicHeaders *h);

/**
 * qrnic_packet_parse_inner:
 * @out: receives the inner packet, with the headers of @outer
 * @outer: a packet with the opcode ENCAPSULATED
 *
 * Parses the inner packet. The caller checks that the member belongs to the
 * shared connection.
 *
 * Returns: as qrnic_packet_parse(), except QRNIC_PARSE_ICRC
 */
QrnicParse qrnic_packet_parse_inner(QrnicPacket *out,
                                      const QrnicPacket *outer);

/* Addresses of both ends, and parameters of the path */
typedef struct QrnicPathSpec {
    uint8_t dmac[6], smac[6];
    int vlan;                   /* -1: untagged */
    uint8_t priority;           /* of the VLAN tag */
    bool v1;                    /* RoCE v1: a GRH, and no UDP */
    uint8_t sgid[16], dgid[16]; /* v2: both ::ffff:0:0/96 for IPv4 */
    uint8_t traffic_class, hop_limit;
    uint32_t flow_label;
    uint16_t udp_sport;
    QrnicIcrcCover icrc;
} QrnicPathSpec;

/* Headers before the BTH, which all packets of a connection share */
typedef struct QrnicPath {
    uint8_t header[QRNIC_PATH_HEADER_MAX];
    uint8_t header_len;
    uint8_t ip_offset;          /* of the IP header or GRH */
    QrnicNetwork network;
    uint32_t ip_sum;            /* IPv4: header sum with length 0 */
    QrnicPathSpec spec;
} QrnicPath;

/**
 * qrnic_gid_is_ipv4:
 * @gid: 16 bytes
 *
 * Returns: true if the GID is an IPv4 address (::ffff:a.b.c.d)
 */
bool qrnic_gid_is_ipv4(const uint8_t gid[16]);
/**
 * qrnic_path_init:
 * @path: receives the path
 * @spec: addresses and parameters; copied
 *
 * Prepares the headers that all packets of a connection share.
 */
void qrnic_path_init(QrnicPath *path, const QrnicPathSpec *spec);
/**
 * qrnic_path_matches:
 * @path: the path
 * @p: a received packet
 *
 * Returns: true if the packet was sent by the peer of the path to this end
 */
bool qrnic_path_matches(const QrnicPath *path, const QrnicPacket *p);

/**
 * qrnic_packet_begin:
 * @path: the path
 * @frame: memory for QRNIC_PACKET_HEADER_MAX + @payload_len +
 *   QRNIC_PACKET_TAIL_MAX bytes
 * @t: BTH and extension headers
 * @payload_len: size of the payload in bytes
 *
 * Writes the headers of a packet. The caller then writes the payload and calls
 * qrnic_packet_finish() or qrnic_packet_finish_unchecked().
 *
 * Returns: the address of the payload
 */
uint8_t *qrnic_packet_begin(const QrnicPath *path, uint8_t *frame,
                            const QrnicTransport *t, uint32_t payload_len);
/**
 * qrnic_packet_finish:
 * @path: the path of qrnic_packet_begin()
 * @frame: the frame
 * @payload: the address of the payload
 * @payload_len: size of the payload in bytes
 *
 * Writes padding and ICRC.
 *
 * Returns: the size of the frame in bytes
 */
size_t qrnic_packet_finish(const QrnicPath *path, uint8_t *frame,
                           uint8_t *payload, uint32_t payload_len);
/**
 * qrnic_packet_finish_unchecked:
 * @frame: the frame
 * @payload: the address of the payload
 * @payload_len: size of the payload in bytes
 *
 * Writes padding and an ICRC of 0, for a looped back packet, whose ICRC is not
 * checked.
 *
 * Returns: the size of the frame in bytes
 */
size_t qrnic_packet_finish_unchecked(uint8_t *frame, uint8_t *payload,
                                     uint32_t payload_len);
/**
 * qrnic_packet_begin_inner:
 * @inner: memory for QRNIC_TRANSPORT_HEADER_MAX + @payload_len + 3 bytes
 * @t: BTH and extension headers
 * @payload_len: size of the payload in bytes
 *
 * Writes the headers of an inner packet, which begins at the BTH.
 *
 * Returns: the address of the payload
 */
uint8_t *qrnic_packet_begin_inner(uint8_t *inner, const QrnicTransport *t,
                                    uint32_t payload_len);
/**
 * qrnic_packet_finish_inner:
 * @inner: the inner packet
 * @payload: the address of the payload
 * @payload_len: size of the payload in bytes
 *
 * Writes padding; an inner packet has no ICRC.
 *
 * Returns: the size of the inner packet in bytes
 */
size_t qrnic_packet_finish_inner(const uint8_t *inner, uint8_t *payload,
                                   uint32_t payload_len);

#endif
