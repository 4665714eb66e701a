/*
 * qrnic wire: table of the BTH opcodes
 *
 * InfiniBand specification, table 38; A14 (XRC).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "wire/opcode.h"
#include "wire/packet.h"

#define RETH_LEN        16
#define ATOMIC_ETH_LEN  28
#define AETH_LEN        4
#define ATOMIC_ACK_LEN  8
#define IMM_LEN         4
#define IETH_LEN        4
#define DETH_LEN        8
#define FETH_LEN        4
#define XRCETH_LEN      4

#define HEADER_LEN(f) (QRNIC_BTH_LEN + \
                       ((f) & QRNIC_HDR_XRCETH ? XRCETH_LEN : 0) + \
                       ((f) & QRNIC_HDR_DETH ? DETH_LEN : 0) + \
                       ((f) & QRNIC_HDR_FETH ? FETH_LEN : 0) + \
                       ((f) & QRNIC_HDR_RETH ? RETH_LEN : 0) + \
                       ((f) & QRNIC_HDR_ATOMIC_ETH ? ATOMIC_ETH_LEN : 0) + \
                       ((f) & QRNIC_HDR_AETH ? AETH_LEN : 0) + \
                       ((f) & QRNIC_HDR_ATOMIC_ACK ? ATOMIC_ACK_LEN : 0) + \
                       ((f) & QRNIC_HDR_IMM ? IMM_LEN : 0) + \
                       ((f) & QRNIC_HDR_IETH ? IETH_LEN : 0))
#define OP(op, f) [QRNIC_OP_##op] = { \
    .name = #op, \
    .flags = QRNIC_OPF_DEFINED | (f), \
    .header_len = HEADER_LEN(f), \
}

#define XRC     QRNIC_HDR_XRCETH
#define DETH    QRNIC_HDR_DETH
#define RETH    QRNIC_HDR_RETH
#define AETH    QRNIC_HDR_AETH
#define IMM     QRNIC_HDR_IMM
#define START   QRNIC_OPF_START
#define END     QRNIC_OPF_END
#define ONLY    (QRNIC_OPF_START | QRNIC_OPF_END)
#define SEND    (QRNIC_OPF_SEND | QRNIC_OPF_PAYLOAD)
#define WRITE   (QRNIC_OPF_WRITE | QRNIC_OPF_PAYLOAD)
#define ANSWER  (QRNIC_OPF_READ | QRNIC_OPF_RESPONSE | QRNIC_OPF_PAYLOAD)
#define ATOMIC  (QRNIC_OPF_ATOMIC | QRNIC_HDR_ATOMIC_ETH | ONLY)

static const QrnicOpcodeInfo opcodes[QRNIC_OP_COUNT] = {
    OP(RC_SEND_FIRST, SEND | START),
    OP(RC_SEND_MIDDLE, SEND),
    OP(RC_SEND_LAST, SEND | END),
    OP(RC_SEND_LAST_IMM, SEND | END | IMM),
    OP(RC_SEND_ONLY, SEND | ONLY),
    OP(RC_SEND_ONLY_IMM, SEND | ONLY | IMM),
    OP(RC_WRITE_FIRST, WRITE | START | RETH),
    OP(RC_WRITE_MIDDLE, WRITE),
    OP(RC_WRITE_LAST, WRITE | END),
    OP(RC_WRITE_LAST_IMM, WRITE | END | IMM),
    OP(RC_WRITE_ONLY, WRITE | ONLY | RETH),
    OP(RC_WRITE_ONLY_IMM, WRITE | ONLY | RETH | IMM),
    OP(RC_READ_REQUEST, QRNIC_OPF_READ | ONLY | RETH),
    OP(RC_READ_RESPONSE_FIRST, ANSWER | START | AETH),
    OP(RC_READ_RESPONSE_MIDDLE, ANSWER),
    OP(RC_READ_RESPONSE_LAST, ANSWER | END | AETH),
    OP(RC_READ_RESPONSE_ONLY, ANSWER | ONLY | AETH),
    OP(RC_ACK, QRNIC_OPF_RESPONSE | ONLY | AETH),
    OP(RC_ATOMIC_ACK, QRNIC_OPF_ATOMIC | QRNIC_OPF_RESPONSE | ONLY | AETH |
                      QRNIC_HDR_ATOMIC_ACK),
    OP(RC_COMPARE_SWAP, ATOMIC),
    OP(RC_FETCH_ADD, ATOMIC),
    OP(RC_SEND_LAST_INV, SEND | END | QRNIC_HDR_IETH),
    OP(RC_SEND_ONLY_INV, SEND | ONLY | QRNIC_HDR_IETH),
    OP(RC_FLUSH, QRNIC_OPF_FLUSH | ONLY | QRNIC_HDR_FETH | RETH),
    OP(RC_ATOMIC_WRITE, QRNIC_OPF_ATOMIC_WRITE | QRNIC_OPF_PAYLOAD | ONLY |
                        RETH),

    OP(UC_SEND_FIRST, SEND | START),
    OP(UC_SEND_MIDDLE, SEND),
    OP(UC_SEND_LAST, SEND | END),
    OP(UC_SEND_LAST_IMM, SEND | END | IMM),
    OP(UC_SEND_ONLY, SEND | ONLY),
    OP(UC_SEND_ONLY_IMM, SEND | ONLY | IMM),
    OP(UC_WRITE_FIRST, WRITE | START | RETH),
    OP(UC_WRITE_MIDDLE, WRITE),
    OP(UC_WRITE_LAST, WRITE | END),
    OP(UC_WRITE_LAST_IMM, WRITE | END | IMM),
    OP(UC_WRITE_ONLY, WRITE | ONLY | RETH),
    OP(UC_WRITE_ONLY_IMM, WRITE | ONLY | RETH | IMM),

    OP(UD_SEND_ONLY, SEND | ONLY | DETH),
    OP(UD_SEND_ONLY_IMM, SEND | ONLY | DETH | IMM),

    OP(XRC_SEND_FIRST, XRC | SEND | START),
    OP(XRC_SEND_MIDDLE, XRC | SEND),
    OP(XRC_SEND_LAST, XRC | SEND | END),
    OP(XRC_SEND_LAST_IMM, XRC | SEND | END | IMM),
    OP(XRC_SEND_ONLY, XRC | SEND | ONLY),
    OP(XRC_SEND_ONLY_IMM, XRC | SEND | ONLY | IMM),
    OP(XRC_WRITE_FIRST, XRC | WRITE | START | RETH),
    OP(XRC_WRITE_MIDDLE, XRC | WRITE),
    OP(XRC_WRITE_LAST, XRC | WRITE | END),
    OP(XRC_WRITE_LAST_IMM, XRC | WRITE | END | IMM),
    OP(XRC_WRITE_ONLY, XRC | WRITE | ONLY | RETH),
    OP(XRC_WRITE_ONLY_IMM, XRC | WRITE | ONLY | RETH | IMM),
    OP(XRC_READ_REQUEST, XRC | QRNIC_OPF_READ | ONLY | RETH),
    OP(XRC_READ_RESPONSE_FIRST, ANSWER | START | AETH),
    OP(XRC_READ_RESPONSE_MIDDLE, ANSWER),
    OP(XRC_READ_RESPONSE_LAST, ANSWER | END | AETH),
    OP(XRC_READ_RESPONSE_ONLY, ANSWER | ONLY | AETH),
    OP(XRC_ACK, QRNIC_OPF_RESPONSE | ONLY | AETH),
    OP(XRC_ATOMIC_ACK, QRNIC_OPF_ATOMIC | QRNIC_OPF_RESPONSE | ONLY | AETH |
                       QRNIC_HDR_ATOMIC_ACK),
    OP(XRC_COMPARE_SWAP, XRC | ATOMIC),
    OP(XRC_FETCH_ADD, XRC | ATOMIC),
    OP(XRC_SEND_LAST_INV, XRC | SEND | END | QRNIC_HDR_IETH),
    OP(XRC_SEND_ONLY_INV, XRC | SEND | ONLY | QRNIC_HDR_IETH),
};

static const QrnicOpcodeInfo undefined = {
    .name = "undefined",
    .header_len = QRNIC_BTH_LEN,
};

const QrnicOpcodeInfo *qrnic_opcode_info(uint8_t opcode)
{
    return opcode < QRNIC_OP_COUNT && opcodes[opcode].flags ?
           &opcodes[opcode] : &undefined;
}
