/*
 * qrnic wire: opcodes of the BTH, and the headers that follow the BTH
 *
 * packet.c parses and builds packets by this table, and the transport layer
 * decides by its flags. InfiniBand specification, 9.2.1 and table 38; annex A14
 * (XRC), A17 (congestion notification), A19 (flush and atomic write). Dynamic
 * and shared connections are defined in the manual.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_WIRE_OPCODE_H
#define QRNIC_WIRE_OPCODE_H

enum qrnic_bth_opcode {
    QRNIC_OP_RC_SEND_FIRST = 0x00,
    QRNIC_OP_RC_SEND_MIDDLE = 0x01,
    QRNIC_OP_RC_SEND_LAST = 0x02,
    QRNIC_OP_RC_SEND_LAST_IMM = 0x03,
    QRNIC_OP_RC_SEND_ONLY = 0x04,
    QRNIC_OP_RC_SEND_ONLY_IMM = 0x05,
    QRNIC_OP_RC_WRITE_FIRST = 0x06,
    QRNIC_OP_RC_WRITE_MIDDLE = 0x07,
    QRNIC_OP_RC_WRITE_LAST = 0x08,
    QRNIC_OP_RC_WRITE_LAST_IMM = 0x09,
    QRNIC_OP_RC_WRITE_ONLY = 0x0a,
    QRNIC_OP_RC_WRITE_ONLY_IMM = 0x0b,
    QRNIC_OP_RC_READ_REQUEST = 0x0c,
    QRNIC_OP_RC_READ_RESPONSE_FIRST = 0x0d,
    QRNIC_OP_RC_READ_RESPONSE_MIDDLE = 0x0e,
    QRNIC_OP_RC_READ_RESPONSE_LAST = 0x0f,
    QRNIC_OP_RC_READ_RESPONSE_ONLY = 0x10,
    QRNIC_OP_RC_ACK = 0x11,
    QRNIC_OP_RC_ATOMIC_ACK = 0x12,
    QRNIC_OP_RC_COMPARE_SWAP = 0x13,
    QRNIC_OP_RC_FETCH_ADD = 0x14,
    QRNIC_OP_RC_SEND_LAST_INV = 0x16,
    QRNIC_OP_RC_SEND_ONLY_INV = 0x17,
    QRNIC_OP_RC_FLUSH = 0x1c,
    QRNIC_OP_RC_ATOMIC_WRITE = 0x1d,
    /* Defined by this device, for peers that have agreed on it */
    QRNIC_OP_RC_SACK = 0x1f,

    QRNIC_OP_UC_SEND_FIRST = 0x20,
    QRNIC_OP_UC_SEND_MIDDLE = 0x21,
    QRNIC_OP_UC_SEND_LAST = 0x22,
    QRNIC_OP_UC_SEND_LAST_IMM = 0x23,
    QRNIC_OP_UC_SEND_ONLY = 0x24,
    QRNIC_OP_UC_SEND_ONLY_IMM = 0x25,
    QRNIC_OP_UC_WRITE_FIRST = 0x26,
    QRNIC_OP_UC_WRITE_MIDDLE = 0x27,
    QRNIC_OP_UC_WRITE_LAST = 0x28,
    QRNIC_OP_UC_WRITE_LAST_IMM = 0x29,
    QRNIC_OP_UC_WRITE_ONLY = 0x2a,
    QRNIC_OP_UC_WRITE_ONLY_IMM = 0x2b,

    QRNIC_OP_UD_SEND_ONLY = 0x64,
    QRNIC_OP_UD_SEND_ONLY_IMM = 0x65,

    QRNIC_OP_CNP = 0x81,        /* no transport service; A17.9.3 */

    /* XRC: operations of RC; annex A14 */
    QRNIC_OP_XRC_SEND_FIRST = 0xa0,
    QRNIC_OP_XRC_SEND_MIDDLE = 0xa1,
    QRNIC_OP_XRC_SEND_LAST = 0xa2,
    QRNIC_OP_XRC_SEND_LAST_IMM = 0xa3,
    QRNIC_OP_XRC_SEND_ONLY = 0xa4,
    QRNIC_OP_XRC_SEND_ONLY_IMM = 0xa5,
    QRNIC_OP_XRC_WRITE_FIRST = 0xa6,
    QRNIC_OP_XRC_WRITE_MIDDLE = 0xa7,
    QRNIC_OP_XRC_WRITE_LAST = 0xa8,
    QRNIC_OP_XRC_WRITE_LAST_IMM = 0xa9,
    QRNIC_OP_XRC_WRITE_ONLY = 0xaa,
    QRNIC_OP_XRC_WRITE_ONLY_IMM = 0xab,
    QRNIC_OP_XRC_READ_REQUEST = 0xac,
    QRNIC_OP_XRC_READ_RESPONSE_FIRST = 0xad,
    QRNIC_OP_XRC_READ_RESPONSE_MIDDLE = 0xae,
    QRNIC_OP_XRC_READ_RESPONSE_LAST = 0xaf,
    QRNIC_OP_XRC_READ_RESPONSE_ONLY = 0xb0,
    QRNIC_OP_XRC_ACK = 0xb1,
    QRNIC_OP_XRC_ATOMIC_ACK = 0xb2,
    QRNIC_OP_XRC_COMPARE_SWAP = 0xb3,
    QRNIC_OP_XRC_FETCH_ADD = 0xb4,
    QRNIC_OP_XRC_SEND_LAST_INV = 0xb6,
    QRNIC_OP_XRC_SEND_ONLY_INV = 0xb7,

    /*
     * Dynamic connections: operations of RC, and packets that establish and end
     * a connection
     */
    QRNIC_OP_DC_SEND_FIRST = 0xc0,
    QRNIC_OP_DC_SEND_MIDDLE = 0xc1,
    QRNIC_OP_DC_SEND_LAST = 0xc2,
    QRNIC_OP_DC_SEND_LAST_IMM = 0xc3,
    QRNIC_OP_DC_SEND_ONLY = 0xc4,
    QRNIC_OP_DC_SEND_ONLY_IMM = 0xc5,
    QRNIC_OP_DC_WRITE_FIRST = 0xc6,
    QRNIC_OP_DC_WRITE_MIDDLE = 0xc7,
    QRNIC_OP_DC_WRITE_LAST = 0xc8,
    QRNIC_OP_DC_WRITE_LAST_IMM = 0xc9,
    QRNIC_OP_DC_WRITE_ONLY = 0xca,
    QRNIC_OP_DC_WRITE_ONLY_IMM = 0xcb,
    QRNIC_OP_DC_READ_REQUEST = 0xcc,
    QRNIC_OP_DC_READ_RESPONSE_FIRST = 0xcd,
    QRNIC_OP_DC_READ_RESPONSE_MIDDLE = 0xce,
    QRNIC_OP_DC_READ_RESPONSE_LAST = 0xcf,
    QRNIC_OP_DC_READ_RESPONSE_ONLY = 0xd0,
    QRNIC_OP_DC_ACK = 0xd1,
    QRNIC_OP_DC_ATOMIC_ACK = 0xd2,
    QRNIC_OP_DC_COMPARE_SWAP = 0xd3,
    QRNIC_OP_DC_FETCH_ADD = 0xd4,
    QRNIC_OP_DC_SEND_LAST_INV = 0xd6,
    QRNIC_OP_DC_SEND_ONLY_INV = 0xd7,
    QRNIC_OP_DC_FLUSH = 0xdc,
    QRNIC_OP_DC_ATOMIC_WRITE = 0xdd,
    QRNIC_OP_DC_CONNECT = 0xe0,
    QRNIC_OP_DC_ACCEPT = 0xe1,
    QRNIC_OP_DC_CNAK = 0xe2,
    QRNIC_OP_DC_DISCONNECT = 0xe3,

    /* Shared connections: messages of one packet, acknowledged as in RC */
    QRNIC_OP_ENCAPSULATED = 0xe4,
    QRNIC_OP_CARRIER_ACK = 0xf1,
    QRNIC_OP_CARRIER_SACK = 0xff,
    QRNIC_OP_COUNT,
};

/* Transport service of an opcode: its three high bits */
#define QRNIC_SERVICE_MASK      0xe0
#define QRNIC_SERVICE_RC        0x00
#define QRNIC_SERVICE_UC        0x20
#define QRNIC_SERVICE_UD        0x60
#define QRNIC_SERVICE_XRC       0xa0
#define QRNIC_SERVICE_DC        0xc0    /* and 0xe0 with QRNIC_OPF_CONTROL */
#define QRNIC_SERVICE_CARRIER   0xe0
/* Operation of an opcode, which is the same in RC, XRC, DC and carriers */
#define QRNIC_OPERATION_MASK    0x1f

/* Extension headers, mostly in the order in which they follow the BTH */
#define QRNIC_HDR_RETH          (1u << 0)
#define QRNIC_HDR_ATOMIC_ETH    (1u << 1)
#define QRNIC_HDR_AETH          (1u << 2)
#define QRNIC_HDR_ATOMIC_ACK    (1u << 3)
#define QRNIC_HDR_IMM           (1u << 4)
#define QRNIC_HDR_IETH          (1u << 5)
#define QRNIC_HDR_DETH          (1u << 6)
#define QRNIC_HDR_FETH          (1u << 7)       /* before the RETH */
#define QRNIC_HDR_XRCETH        (1u << 8)       /* XRC: first header */
#define QRNIC_HDR_DCETH         (1u << 9)       /* DC: first header */
#define QRNIC_HDR_CONNECT       (1u << 10)      /* parameters of DC_CONNECT */
#define QRNIC_HDR_CNAK          (1u << 11)
#define QRNIC_HDR_SACK          (1u << 12)      /* contents of a SACK */
#define QRNIC_HDR_CNP           (1u << 13)      /* reserved bytes of a CNP */
#define QRNIC_HDR_CARRIER       (1u << 14)      /* number of the carrier QP */

/* Properties of the opcodes */
#define QRNIC_OPF_DEFINED       (1u << 16)
#define QRNIC_OPF_RESPONSE      (1u << 17)      /* sent to the requester */
#define QRNIC_OPF_START         (1u << 18)      /* first or only */
#define QRNIC_OPF_END           (1u << 19)      /* last or only */
#define QRNIC_OPF_PAYLOAD       (1u << 20)      /* payload is permitted */
#define QRNIC_OPF_SEND          (1u << 21)
#define QRNIC_OPF_WRITE         (1u << 22)
#define QRNIC_OPF_READ          (1u << 23)      /* request or response */
#define QRNIC_OPF_ATOMIC        (1u << 24)
#define QRNIC_OPF_ATOMIC_WRITE  (1u << 25)
#define QRNIC_OPF_FLUSH         (1u << 26)
/* control packet of a connection */
#define QRNIC_OPF_CONTROL       (1u << 27)
#define QRNIC_OPF_NOTIFICATION  (1u << 28)      /* congestion notification */
#define QRNIC_OPF_ENCAPSULATED  (1u << 29)      /* payload is a packet */
/*
 * Requests whose response is kept, so that it can be repeated (9.7.5.1.2, A19)
 */
#define QRNIC_OPF_KEPT          (QRNIC_OPF_READ | QRNIC_OPF_ATOMIC | \
                                 QRNIC_OPF_ATOMIC_WRITE | QRNIC_OPF_FLUSH)

/* Entry of the table of opcodes */
typedef struct QrnicOpcodeInfo {
    const char *name;
    uint32_t flags;             /* QRNIC_HDR_*, QRNIC_OPF_* */
    uint8_t header_len;         /* BTH and extension headers */
} QrnicOpcodeInfo;

/**
 * qrnic_opcode_info:
 * @opcode: any opcode
 *
 * Returns: the entry of the opcode, never NULL; its flags are 0 if no transport
 * service of this device defines it
 */
const QrnicOpcodeInfo *qrnic_opcode_info(uint8_t opcode);

#endif
