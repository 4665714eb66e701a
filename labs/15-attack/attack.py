# Lab 15: attack: a peer without a valid key. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import collections
import socket
import struct
import zlib

from lab import Todo

DEVICE_MAC, PEER_MAC = bytes.fromhex("525400000001"), bytes.fromhex("525400000002")
DEVICE_IP, PEER_IP = socket.inet_aton("10.0.0.1"), socket.inet_aton("10.0.0.2")
IPV4, UDP, ROCE_PORT = 0x0800, 17, 4791
ETHERNET_SIZE, IP_SIZE, UDP_SIZE, BTH_SIZE = 14, 20, 8, 12
WRITE_ONLY, READ_REQUEST, READ_RESPONSE_ONLY, ACKNOWLEDGE = 0x0a, 0x0c, 0x10, 0x11      # opcodes
NAK_SEQUENCE = 0x60             # syndrome of a NAK PSN sequence error
PSN_MASK = (1 << 24) - 1

# payload is all behind the BTH: an AETH, too, if the packet has one
Packet = collections.namedtuple("Packet", "opcode qp ack_request psn payload")


def icrc(packet):
    """Returns the 4 bytes of the ICRC. packet begins with the IP header, and ends before the ICRC."""
    masked = bytearray(b"\xff" * 8 + packet)
    for at in (1, 8, 10, 11, 26, 27, 32):       # TOS, TTL, IP checksum, UDP checksum, reserved byte of the BTH
        masked[8 + at] = 0xff
    return struct.pack("<I", zlib.crc32(masked))


def frame(transport, source=PEER_IP):
    """Returns a frame to the device. transport is all from the BTH on, without ICRC."""
    length = len(transport) + 4
    udp = struct.pack(">HHHH", 0xc000, ROCE_PORT, UDP_SIZE + length, 0)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, IP_SIZE + UDP_SIZE + length, 0, 0x4000, 64, UDP, 0) + source + DEVICE_IP
    total = sum(struct.unpack(">10H", ip))
    total = (total & 0xffff) + (total >> 16)
    ip = ip[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xffff) + ip[12:]
    packet = ip + udp + transport
    return DEVICE_MAC + PEER_MAC + struct.pack(">H", IPV4) + packet + icrc(packet)


def parse(data):
    """Returns the Packet in a frame, or None if the frame is no RoCE packet or its ICRC is wrong."""
    packet = data[ETHERNET_SIZE:]
    if len(packet) < IP_SIZE + UDP_SIZE + BTH_SIZE + 4 or data[12:14] != struct.pack(">H", IPV4) or packet[9] != UDP:
        return None
    if struct.unpack_from(">H", packet, IP_SIZE + 2)[0] != ROCE_PORT:
        return None
    packet = packet[:struct.unpack_from(">H", packet, 2)[0]]    # an Ethernet frame may have padding
    if icrc(packet[:-4]) != packet[-4:]:
        return None
    bth = packet[IP_SIZE + UDP_SIZE:]
    pad = bth[1] >> 4 & 3
    return Packet(bth[0], int.from_bytes(bth[5:8], "big"), bool(bth[8] >> 7), int.from_bytes(bth[9:12], "big"), bth[BTH_SIZE:len(bth) - 4 - pad])


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
