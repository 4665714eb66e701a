/*
 * qrnic wire: RoCE packets, parsed and built
 *
 * Pure functions on byte arrays. InfiniBand specification, chapter 9, and
 * annexes A16 (RoCE v1) and A17 (RoCE v2). All values of the structures are in
 * host order.
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
/* With all that may follow it: an AETH and what a SACK says are the longest */
#define QRNIC_TRANSPORT_HEADER_MAX (QRNIC_BTH_LEN + 4 + 8 + QRNIC_SACK_BYTES)
#define QRNIC_ICRC_LEN          4

#define QRNIC_PATH_HEADER_MAX \
    (QRNIC_ETH_LEN + QRNIC_VLAN_LEN + QRNIC_IPV6_LEN + QRNIC_UDP_LEN)
#define QRNIC_PACKET_HEADER_MAX \
    (QRNIC_PATH_HEADER_MAX + QRNIC_TRANSPORT_HEADER_MAX)
/* What a packet has behind its payload, at most */
#define QRNIC_PACKET_TAIL_MAX   (3 + QRNIC_ICRC_LEN)
#define QRNIC_PSN_MASK          0xffffffu

/* Why a target takes no connection */
typedef enum QrnicCnak {
    QRNIC_CNAK_BUSY = 1,
    QRNIC_CNAK_KEY = 2,
    QRNIC_CNAK_PARAMETERS = 3,
} QrnicCnak;

/*
 * Seven bits of the BTH that the specification reserves (9.2.7): sent as 0 and
 * not looked at, but by queue pairs with options.
 */
#define QRNIC_MARK_SELECTIVE    0x01    /* who sends it repeats selectively */
/*
 * The number of this transmission of a request, from 0 on, modulo 8; of a
 * response: of the request that it answers
 */
#define QRNIC_MARK_TRANSMISSION(n)  (((n) & 7) << 4)
#define QRNIC_MARKED_TRANSMISSION(mark) ((mark) >> 4 & 7)
#define QRNIC_MARK_ADAPTIVE     0x02    /* this packet may take any path */
#define QRNIC_MARK_MORE         0x04    /* the same: more of its write follow */
#define QRNIC_MARK_PLACES       0x08    /* who sends it places in any order */
#define QRNIC_MARKS             0x7f

/* BTH and extension headers. Which are there, the opcode says. */
typedef struct QrnicTransport {
    uint8_t opcode;
    bool solicited, ack_req;
    uint8_t mark;               /* QRNIC_MARK_* */
    bool fecn, becn;
    uint16_t pkey;
    uint32_t dest_qpn, psn;
    uint32_t qkey, src_qpn;     /* DETH; src_qpn: DCETH, ENCAPSULATED */
    uint32_t srqn;              /* XRCETH */
    uint32_t connection;        /* DCETH */
    uint64_t access_key;        /* DC_CONNECT */
    uint8_t path_mtu, rd_atomic;
    uint8_t reason;             /* DC_CNAK, enum QrnicCnak */
    /* RETH; AtomicETH uses va and rkey too */
    uint64_t va;
    uint32_t rkey, dma_len;
    uint64_t swap_add, compare; /* AtomicETH */
    uint8_t syndrome;           /* AETH */
    uint32_t msn;
    uint64_t original;          /* AtomicAckETH */
    uint32_t imm;               /* ImmDt, as the number on the wire */
    uint32_t inv_key;           /* IETH */
    uint8_t flush_type, flush_level;    /* FETH: placement, selectivity */
    /* SACK: first PSN missing; bytes whose bits, the highest first, tell */
    uint32_t missing_psn;
    const uint8_t *arrived;     /* which came, from that one on; in the frame */
    uint32_t latest_psn;        /* of what came last, and which transmission */
    uint8_t latest_transmission;
    bool cnp_reserved;          /* CNP: some of its reserved bytes are not 0 */
} QrnicTransport;

/* A received packet. The pointers lead into the frame. */
typedef struct QrnicPacket {
    const QrnicHeaders *h;
    QrnicTransport t;
    const QrnicOpcodeInfo *info;
    const uint8_t *payload;
    uint32_t payload_len;       /* without pad and ICRC */
    uint32_t frame_len;         /* without padding behind the ICRC */
} QrnicPacket;

/* The low bits of ToS or traffic class (RFC 3168, 5) */
#define QRNIC_ECN_MASK          3
#define QRNIC_ECN_ECT0          2
#define QRNIC_ECN_CE            3

typedef enum QrnicParse {
    QRNIC_PARSE_OK,
    QRNIC_PARSE_MALFORMED,      /* headers and lengths do not fit */
    QRNIC_PARSE_ICRC,
    QRNIC_PARSE_OPCODE,         /* not defined here; t has the BTH */
} QrnicParse;

/* Parses and checks a frame that goes to UDP port 4791 or has a GRH. */
QrnicParse qrnic_packet_parse(QrnicPacket *out, const QrnicHeaders *h,
                              QrnicIcrcCover icrc);
/* The same but for the ICRC */
QrnicParse qrnic_packet_parse_unchecked(QrnicPacket *out,
                                        const QrnicHeaders *h);

/*
 * Parses the inner packet of an ENCAPSULATED packet; *out keeps the headers of
 * the outer one. Of which connections it may be, the caller knows.
 */
QrnicParse qrnic_packet_parse_inner(QrnicPacket *out,
                                      const QrnicPacket *outer);

/* Who talks to whom. */
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

/* The headers before the BTH that all packets of a connection share. */
typedef struct QrnicPath {
    uint8_t header[QRNIC_PATH_HEADER_MAX];
    uint8_t header_len;
    uint8_t ip_offset;          /* of the IP header or GRH */
    QrnicNetwork network;
    uint32_t ip_sum;            /* IPv4: header sum with length 0, unfolded */
    QrnicPathSpec spec;
} QrnicPath;

bool qrnic_gid_is_ipv4(const uint8_t gid[16]);
void qrnic_path_init(QrnicPath *path, const QrnicPathSpec *spec);
/* True if the packet comes from the other end of the path, and to this end. */
bool qrnic_path_matches(const QrnicPath *path, const QrnicPacket *p);

/*
 * Building takes two steps: the headers, then, when the payload has been put
 * at the place returned, pad and ICRC. frame needs room for
 * QRNIC_PACKET_HEADER_MAX + payload + QRNIC_PACKET_TAIL_MAX bytes.
 */
uint8_t *qrnic_packet_begin(const QrnicPath *path, uint8_t *frame,
                            const QrnicTransport *t, uint32_t payload_len);
/* Length of the frame. */
size_t qrnic_packet_finish(const QrnicPath *path, uint8_t *frame,
                           uint8_t *payload, uint32_t payload_len);
/* The same for a frame that nobody will check, with zeros for the ICRC */
size_t qrnic_packet_finish_unchecked(uint8_t *frame, uint8_t *payload,
                                     uint32_t payload_len);
/*
 * The same for an inner packet: from its BTH on, and without an ICRC.
 * inner needs room for QRNIC_TRANSPORT_HEADER_MAX + payload + 3 bytes.
 */
uint8_t *qrnic_packet_begin_inner(uint8_t *inner, const QrnicTransport *t,
                                    uint32_t payload_len);
size_t qrnic_packet_finish_inner(const uint8_t *inner, uint8_t *payload,
                                   uint32_t payload_len);

#endif
