/*
 * qrnic qtest: the wire peer
 *
 * An encoder and a decoder of RoCE frames. Both share no code with the device,
 * because an error in common code would be invisible.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_WIRE_PEER_H
#define QRNIC_WIRE_PEER_H

#define PEER_FRAME_MAX 9200

/* BTH opcodes of RC (InfiniBand specification, table 38) */
enum {
    RC_SEND_FIRST = 0x00,
    RC_SEND_MIDDLE = 0x01,
    RC_SEND_LAST = 0x02,
    RC_SEND_LAST_IMM = 0x03,
    RC_SEND_ONLY = 0x04,
    RC_SEND_ONLY_IMM = 0x05,
    RC_WRITE_FIRST = 0x06,
    RC_WRITE_MIDDLE = 0x07,
    RC_WRITE_LAST = 0x08,
    RC_WRITE_LAST_IMM = 0x09,
    RC_WRITE_ONLY = 0x0a,
    RC_WRITE_ONLY_IMM = 0x0b,
    RC_READ_REQUEST = 0x0c,
    RC_READ_FIRST = 0x0d,
    RC_READ_MIDDLE = 0x0e,
    RC_READ_LAST = 0x0f,
    RC_READ_ONLY = 0x10,
    RC_ACK = 0x11,
    RC_ATOMIC_ACK = 0x12,
    RC_CMP_SWAP = 0x13,
    RC_FETCH_ADD = 0x14,
    RC_SEND_LAST_INV = 0x16,
    RC_SEND_ONLY_INV = 0x17,
    RC_FLUSH = 0x1c,
    RC_ATOMIC_WRITE = 0x1d,
    /* SACK of the manual; all behind the AETH is payload */
    RC_SACK = 0x1f,
};

/* BTH opcodes of UC, in the order of those of RC */
enum {
    UC_SEND_FIRST = 0x20,
    UC_SEND_MIDDLE = 0x21,
    UC_SEND_LAST = 0x22,
    UC_SEND_LAST_IMM = 0x23,
    UC_SEND_ONLY = 0x24,
    UC_SEND_ONLY_IMM = 0x25,
    UC_WRITE_FIRST = 0x26,
    UC_WRITE_MIDDLE = 0x27,
    UC_WRITE_LAST = 0x28,
    UC_WRITE_LAST_IMM = 0x29,
    UC_WRITE_ONLY = 0x2a,
    UC_WRITE_ONLY_IMM = 0x2b,
};

/* XRC: the operations of RC with other high bits (annex A14) */
#define XRC(rc) (0xa0 | (rc))

/*
 * Dynamic connections: the operations of RC, and the opcodes that begin and end
 * a connection (manual)
 */
#define DC(rc) (0xc0 | (rc))
enum {
    DC_CONNECT = 0xe0,
    DC_ACCEPT = 0xe1,
    DC_CNAK = 0xe2,
    DC_DISCONNECT = 0xe3,
};

/* Shared connections: all behind the BTH of ENCAPSULATED is payload (manual) */
#define CARRIER(rc) (0xe0 | (rc))
enum {
    ENCAPSULATED = 0xe4,
    CARRIER_ACK = CARRIER(RC_ACK),
    CARRIER_SACK = CARRIER(RC_SACK),
};

/* BTH opcodes of UD */
enum {
    UD_SEND_ONLY = 0x64,
    UD_SEND_ONLY_IMM = 0x65,
};

/* AETH syndromes (InfiniBand specification, table 44) */
enum {
    AETH_ACK = 0x00,            /* Bits 4:0 are the credits */
    AETH_RNR_NAK = 0x20,        /* Bits 4:0 are the timer */
    AETH_NAK_SEQUENCE = 0x60,
    AETH_NAK_INVALID_REQUEST = 0x61,
    AETH_NAK_REMOTE_ACCESS = 0x62,
    AETH_NAK_REMOTE_OP = 0x63,
};

/* One RoCE packet. Members that are 0 are as in a plain packet. */
typedef struct PeerPacket {
    uint8_t dmac[6], smac[6];
    int vlan;                   /* The TCI, or -1: untagged */
    bool v1;                    /* RoCE v1: GIDs in sip and dip */
    bool ipv6;
    uint8_t sip[16], dip[16];   /* IPv4: the first 4 bytes */
    uint8_t tos, ttl;
    uint32_t flow_label;
    uint16_t sport;             /* Unused with v1 */
    uint8_t opcode, pad, tver;
    bool solicited, ack_request;
    uint8_t mark;               /* The seven bits behind AckReq */
    uint16_t pkey;
    uint8_t notify;             /* FECN 0x80, BECN 0x40 */
    uint32_t dest_qpn, psn;
    uint32_t qkey, src_qpn;     /* DETH */
    uint32_t xrceth;            /* All four bytes */
    uint32_t dceth[2];          /* All four bytes of each half */
    uint64_t access_key;        /* DC_CONNECT */
    uint32_t parameters;        /* DC_CONNECT: all four bytes */
    uint32_t reason;            /* DC_CNAK: all four bytes */
    uint64_t va;                /* RETH, AtomicETH */
    uint32_t rkey, dma_length;
    uint32_t feth;              /* selectivity << 4 | placement */
    uint64_t swap_add, compare;
    uint8_t syndrome;           /* AETH */
    uint32_t msn;
    uint64_t original;          /* AtomicAckETH */
    uint32_t imm;               /* Immediate data, or the key of an IETH */
    const uint8_t *payload;     /* Without pad bytes */
    size_t length;
    uint32_t icrc_flip;         /* Encoder: corrupts the ICRC */
    int udp_length_delta;       /* Encoder: corrupts the UDP or GRH length */
    /* Encoder, v1: replaces the next header, if not 0 */
    uint8_t next_header;
} PeerPacket;

/* Encodes a packet. Returns the length of the frame. */
size_t peer_encode(const PeerPacket *p, uint8_t *frame);
/*
 * Decodes a frame. Asserts that it is well formed and that its ICRC is valid.
 */
void peer_decode(const uint8_t *frame, size_t len, PeerPacket *p);
/* Encodes an inner packet, which begins with its BTH and has no ICRC. */
size_t peer_encode_inner(const PeerPacket *p, uint8_t *bytes);
void peer_decode_inner(const uint8_t *bytes, size_t len, PeerPacket *p);
/* Returns true if packets of this opcode have this extended header. */
bool peer_has_deth(uint8_t opcode);
bool peer_has_xrceth(uint8_t opcode);
bool peer_has_dceth(uint8_t opcode);
bool peer_has_reth(uint8_t opcode);
bool peer_has_aeth(uint8_t opcode);
bool peer_has_imm(uint8_t opcode);
bool peer_is_atomic(uint8_t opcode);

#endif
