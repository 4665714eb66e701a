# Lab 7: RC over sockets. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import collections
import socket
import struct
import zlib

DEVICE_MAC, PEER_MAC = bytes.fromhex("525400000001"), bytes.fromhex("525400000002")
DEVICE_IP, PEER_IP = socket.inet_aton("10.0.0.1"), socket.inet_aton("10.0.0.2")
IPV4, UDP, ROCE_PORT = 0x0800, 17, 4791
ETHERNET_SIZE, IP_SIZE, UDP_SIZE, BTH_SIZE = 14, 20, 8, 12
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, ACKNOWLEDGE = 0x00, 0x01, 0x02, 0x04, 0x11        # opcodes
ACK, NAK_SEQUENCE = 0x1f, 0x60  # syndromes: ACK without credits, NAK PSN sequence error
PSN_MASK = (1 << 24) - 1

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


def acknowledge(qp, psn, syndrome, msn):
    """Returns BTH and AETH of an acknowledgement to queue pair qp of the device."""
    bth = struct.pack(">BBHII", ACKNOWLEDGE, 0x40, 0xffff, qp, psn)
    return bth + struct.pack(">I", syndrome << 24 | msn)


class Responder:
    """Receives the messages of queue pair qp of the device, from PSN expected on."""

    def __init__(self, qp, expected):
        self.qp, self.expected = qp, expected
        self.messages = []              # complete messages
        self.data = b""                 # of the message that is not complete yet
        self.nak_sent = False           # since the last packet in order

    def receive(self, data):
        """Returns the frames that answer a frame."""
        packet = parse(data)
        if packet is None:
            return []
        distance = (packet.psn - self.expected) & PSN_MASK
        if distance == 0:
            return self.in_order(packet)
        return self.ahead() if distance < 1 << 23 else self.duplicate(packet)

    def answer(self, psn, syndrome):
        """Returns a list of one frame: an acknowledgement with the number of complete messages."""
        return [frame(acknowledge(self.qp, psn, syndrome, len(self.messages) & PSN_MASK))]

    def in_order(self, packet):
        """Consumes the expected packet."""
        self.expected = (self.expected + 1) & PSN_MASK
        self.nak_sent = False
        self.data += packet.payload
        if packet.opcode in (SEND_LAST, SEND_ONLY):
            self.messages.append(self.data)
            self.data = b""
        return self.answer(packet.psn, ACK) if packet.ack_request else []

    def ahead(self):
        """Answers a packet behind a lost one: with a NAK for the first of them, with nothing for the others."""
        if self.nak_sent:
            return []
        self.nak_sent = True
        return self.answer(self.expected, NAK_SEQUENCE)

    def duplicate(self, packet):
        """Answers a packet that was consumed before."""
        return self.answer(packet.psn, ACK) if packet.ack_request else []
