# The stages of lab 7. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct
import time

import lab
from grade import expect
from lab import PEER_ADDRESS, PEER_MAC, Setup, hw

PEER_QP = 0x77
# The packet for tests of the chapter Wire format, from the IP header on
EXAMPLE = bytes.fromhex("4500003400004000401126b70a0000010a000002c00012b7002000000470ffff000000028000000171726e6963000000fa6edb2b")
NAMES = {0: "First", 1: "Middle", 2: "Last", 4: "Only"}
MTU = 1024


class Place:
    """The device with one queue pair, whose peer is the student's program."""

    def __init__(self, machine, program, psn=0, timeout=20):
        self.machine, self.program, self.bench = machine, program, machine._bench       # pylint: disable=protected-access
        self.setup = Setup(machine, connected=False)
        self.qp = self.setup.left
        self.qp.connect(PEER_QP, PEER_ADDRESS, PEER_MAC, timeout=timeout, psn=psn)
        self.buffer = machine.mem_alloc(16384)
        self.trace, self.sent = [], []
        while self.bench.receive():             # frames of an earlier stage
            pass

    def send(self, data):
        """Lets the device send a message."""
        self.machine._memory.write(self.buffer, data)                                   # pylint: disable=protected-access
        self.qp.post(hw.pack("data_seg", address=self.buffer, length=len(data), lkey=self.setup.key), opcode="SEND")

    def frame(self):
        """Returns the next frame of the device."""
        return self.machine.wait_until(self.bench.receive, "the device sends a frame")

    def note(self, frame, text=""):
        """Adds a frame to the trace; returns (from the device, opcode, PSN)."""
        bth = frame[42:]
        opcode, psn = bth[0], int.from_bytes(bth[9:12], "big")
        if opcode == 0x11 and len(bth) >= 16:
            name = {0: "ACK", 1: "RNR NAK", 3: "NAK"}.get(bth[12] >> 5, "?")
            self.trace.append(f"peer:   {name}, PSN {psn:#x}{text}")
        else:
            self.trace.append(f"device: SEND {NAMES.get(opcode, hex(opcode))}, PSN {psn:#x}{', AckReq' if bth[8] >> 7 else ''}{text}")
        return opcode, psn

    def deliver(self, answers, lose=False):
        """Sends the answers of the program to the device."""
        expect(isinstance(answers, (list, tuple)) and all(isinstance(one, bytes) for one in answers),
               f"receive() returned {answers!r}, and not a list of frames.")
        for one in answers:
            self.note(one, ", lost" if lose else "")
            self.sent.append(one)
            if not lose:
                self.bench.send(one)

    def story(self):
        lines = self.trace[-14:]
        return "The packets until then:\n" + "\n".join(lines)

    def done(self):
        """Returns true if the device has a new CQE."""
        raw = self.machine._memory.read(self.qp.cq_ring + 64 * (self.qp.consumed % 4) + 63, 1)      # pylint: disable=protected-access
        return raw[0] >> 7 != (self.qp.consumed >> 2) % 2

    def run(self, responder, lost=(), lost_answers=0):
        """Carries frames until the device completes the message. lost are the numbers of the frames that the wire loses."""
        number, end = 0, time.monotonic() + lab.PATIENCE
        while not self.done():
            frame = self.bench.receive()
            if frame is None:
                expect(time.monotonic() < end, f"The device did not complete the message in {lab.PATIENCE} s. {self.story()}")
                time.sleep(0.001)
                continue
            self.note(frame, ", lost" if number in lost else "")
            if number not in lost:
                answers = responder.receive(frame)
                self.deliver(answers, bool(answers) and lost_answers > 0)
                lost_answers -= bool(answers)
            number += 1
        entry = self.qp.completion()
        expect(entry["status"] == 0, f"The message completed with status {entry['status']:#x} and syndrome {entry['syndrome']:#x}. {self.story()}")

    def naks(self):
        return [int.from_bytes(one[51:54], "big") for one in self.sent if one[54] == 0x60]


def stage_1(machine, program):
    """The ICRC."""
    got = program.icrc(EXAMPLE[:-4])
    expect(isinstance(got, (bytes, bytearray)) and len(got) == 4, f"icrc() returned {got!r}, and not 4 bytes.")
    want = EXAMPLE[-4:]
    expect(got != want[::-1], "The bytes of the ICRC are in the wrong order: the lowest byte is first.")
    expect(got == want, f"The ICRC of the example is {want.hex(' ')}, and not {bytes(got).hex(' ')}. "
                        "8 bytes 0xff come first; TOS, TTL and both checksums and byte 4 of the BTH count as 0xff.")
    place = Place(machine, program)
    place.send(b"hello")
    packet = place.frame()[14:]
    got = program.icrc(packet[:-4])
    expect(got == packet[-4:], f"The device computes {packet[-4:].hex(' ')} for its packet, and icrc() {bytes(got).hex(' ')}.")


def stage_2(machine, program):
    """The packets of the device."""
    place = Place(machine, program)
    place.send(b"hello")
    frame = place.frame()
    got = program.parse(frame)
    expect(got is not None, f"parse() returned None for a packet of the device: {frame.hex(' ', 4)}")
    for member, want in (("opcode", 4), ("qp", PEER_QP), ("ack_request", True), ("psn", 0), ("payload", b"hello")):
        expect(getattr(got, member) == want, f"parse(): {member} is {getattr(got, member)!r}, not {want!r}. "
                                             + ("Remove the ICRC and the pad bytes; bits 5:4 of byte 1 of the BTH count the pad." if member == "payload" else
                                                "The members of the BTH are big endian."))
    expect(program.parse(frame + bytes(6)) == got, "parse() does not accept a frame with Ethernet padding behind the packet. The length is in the IP header, at offset 2.")
    for name, other in (("a wrong ICRC", frame[:-1] + bytes([frame[-1] ^ 1])), ("a wrong payload", frame[:54] + b"J" + frame[55:]),
                        ("an ARP frame", frame[:12] + b"\x08\x06" + frame[14:]), ("a TCP packet", frame[:23] + b"\x06" + frame[24:]),
                        ("UDP port 53", frame[:36] + struct.pack(">H", 53) + frame[38:]), ("a frame of 20 bytes", frame[:20])):
        expect(program.parse(other) is None, f"parse() returned a packet for {name}. The responder drops this frame: return None.")


def stage_3(machine, program):
    """An acknowledgement."""
    place = Place(machine, program)
    raw = program.acknowledge(0x123456, 0xabcdef, 0x1f, 7)
    expect(isinstance(raw, bytes) and len(raw) == 16, f"acknowledge() returned {raw!r}, and not 16 bytes: BTH and AETH.")
    want = bytes.fromhex("1140ffff0012345600abcdef1f000007")
    for name, start, end in (("opcode", 0, 1), ("byte 1 (MigReq is 1)", 1, 2), ("P_Key", 2, 4), ("queue pair", 4, 8), ("PSN", 8, 12), ("syndrome", 12, 13), ("MSN", 13, 16)):
        expect(raw[start:end] == want[start:end], f"acknowledge(): {name} is {raw[start:end].hex(' ')}, not {want[start:end].hex(' ')}.")
    place.send(b"hello")
    place.frame()
    place.bench.send(program.frame(program.acknowledge(place.qp.number, 0, 0x1f, 1)))
    entry = place.qp.completion()
    expect(entry["status"] == 0, f"The device completed the message with status {entry['status']:#x}.")


def stage_4(machine, program):
    """Messages of one and more packets."""
    psn = (1 << 24) - 3
    place = Place(machine, program, psn)
    responder = program.Responder(place.qp.number, psn)
    for number, size in enumerate((5, 0, 5000, 1024, 1025)):
        data = bytes(place.qp.number + byte & 0xff for byte in range(size))
        place.send(data)
        place.run(responder)
        expect(len(responder.messages) == number + 1, f"The responder has {len(responder.messages)} messages after message {number + 1}. {place.story()}")
        expect(responder.messages[-1] == data, f"Message {number + 1} has {len(responder.messages[-1])} bytes or other contents; the device sent {size} bytes. {place.story()}")
    asked = sum("AckReq" in line for line in place.trace)
    expect(len(place.sent) == asked, f"The responder sent {len(place.sent)} acknowledgements for {asked} packets with AckReq. {place.story()}")


def lossy(machine, program, lost, size, psn=0):
    """Sends a message over a wire that loses frames; checks the message and returns the NAKs."""
    place = Place(machine, program, psn)
    responder = program.Responder(place.qp.number, psn)
    data = bytes(byte * 7 & 0xff for byte in range(size))
    place.send(data)
    place.run(responder, lost)
    expect(len(responder.messages) == 1, f"The responder has {len(responder.messages)} messages in place of one. {place.story()}")
    expect(responder.messages[0] == data, f"The message has {len(responder.messages[0])} bytes or other contents; the device sent {size} bytes. A packet out of order is "
                                          f"dropped, because the device retransmits it. {place.story()}")
    return place


def stage_5(machine, program):
    """A lost packet."""
    for lost, size, psn in (((1,), 5 * MTU, 0), ((0,), 6 * MTU, (1 << 24) - 2), ((2, 7), 8 * MTU, 100)):
        place = lossy(machine, program, lost, size, psn)
        naks = place.naks()
        expect(naks, f"The responder sent no NAK: the device retransmitted after a timeout. {place.story()}")
        first = psn + lost[0] & 0xffffff
        expect(naks[0] == first, f"The NAK has PSN {naks[0]:#x}, not the expected PSN {first:#x}. {place.story()}")
        expect(len(naks) <= len(lost), f"The responder sent {len(naks)} NAKs for {len(lost)} lost packet{'s' if len(lost) > 1 else ''}. Each NAK makes the device go back. The next "
                                       f"NAK is allowed after the expected packet has arrived. {place.story()}")


def stage_6(machine, program):
    """A lost acknowledgement."""
    place = Place(machine, program, timeout=18)
    responder = program.Responder(place.qp.number, 0)
    for number, size in enumerate((5, 3000)):
        data = bytes(byte * 3 & 0xff for byte in range(size))
        place.send(data)
        place.run(responder, lost_answers=1)
        expect(len(responder.messages) == number + 1, f"The responder has {len(responder.messages)} messages, but the device sent {number + 1}: a duplicate is not consumed "
                                                      f"again. {place.story()}")
        expect(responder.messages[-1] == data, f"Message {number + 1} has other contents. {place.story()}")
        expect(not place.naks(), f"The responder sent a NAK for a duplicate. {place.story()}")
