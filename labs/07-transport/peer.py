# Lab 7: RC over sockets. The text is README.md.
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
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, ACKNOWLEDGE = 0x00, 0x01, 0x02, 0x04, 0x11        # opcodes
ACK, NAK_SEQUENCE = 0x1f, 0x60  # syndromes: ACK without credits, NAK PSN sequence error
PSN_MASK = (1 << 24) - 1

Packet = collections.namedtuple("Packet", "opcode qp ack_request psn payload")


def icrc(packet):
    """Returns the 4 bytes of the ICRC. packet begins with the IP header, and ends before the ICRC."""
    raise Todo("put 8 bytes 0xff before the packet, replace the fields of the text by 0xff, and return the CRC-32 as a le32")


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
    raise Todo("return None for a frame of another kind or with a wrong ICRC; otherwise read the members of the BTH, and remove pad and ICRC")


def acknowledge(qp, psn, syndrome, msn):
    """Returns BTH and AETH of an acknowledgement to queue pair qp of the device."""
    raise Todo("return 12 bytes of BTH with opcode ACKNOWLEDGE, and 4 bytes of AETH")


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
        raise Todo("advance self.expected, collect the payload, and append complete messages to self.messages; answer if the packet requests it")

    def ahead(self):
        """Answers a packet behind a lost one: with a NAK for the first of them, with nothing for the others."""
        raise Todo("return a NAK with the expected PSN for the first packet behind a missing PSN, and [] for the others")

    def duplicate(self, packet):
        """Answers a packet that was consumed before."""
        raise Todo("do not consume the packet; acknowledge its own PSN if the packet requests it")
