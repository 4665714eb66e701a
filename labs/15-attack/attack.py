# Lab 15: attack: a peer without a valid key. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

from lab import Todo, solution

PEER = solution("07-transport")
frame, parse = PEER.frame, PEER.parse
WRITE_ONLY, READ_REQUEST, READ_RESPONSE_ONLY, ACKNOWLEDGE = 0x0a, 0x0c, 0x10, 0x11      # opcodes
NAK_SEQUENCE = 0x60             # syndrome of a NAK PSN sequence error


def bth(opcode, qp, psn, pad=0):
    """Returns a BTH with AckReq."""
    return struct.pack(">BBHIBBH", opcode, 0x40 | pad << 4, 0xffff, qp, 0x80, psn >> 16, psn & 0xffff)


def write_packet(qp, psn, address, rkey, data):
    """Returns an RDMA WRITE Only to queue pair qp, without ICRC."""
    raise Todo("return BTH, RETH (address, key, length), the data and its pad")


def read_packet(qp, psn, address, rkey, length):
    """Returns an RDMA READ Request to queue pair qp, without ICRC."""
    raise Todo("return BTH and RETH")


def find_psn(ask, qp):
    """Returns the PSN that queue pair qp expects. ask(frame) sends a frame, and returns the answer, a frame or None."""
    raise Todo("send packets with guessed PSNs until a NAK sequence error returns the expected PSN; two guesses are enough")


def steal(ask, qp, address, rkey, length):
    """Returns bytes of the device's memory, or the syndrome of the NAK."""
    raise Todo("find the PSN, send a READ Request, and return the data of the response or the syndrome of the NAK")


def open_variant(connections, address, index):
    """Guesses the variant of the key with this index. connections returns (ask, qp), a new connection for each guess."""
    raise Todo("try one variant on each connection, because a wrong key ends the connection")
