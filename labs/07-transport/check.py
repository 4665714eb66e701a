# The stages of lab 7. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
import collections
import struct
import time

import lab
from grade import Fail, expect
from lab import PEER_ADDRESS, PEER_MAC, Setup, hw

PEER_QP, FIRST_PSN = 0x654321, 0x123456
# The packet for tests of the chapter Wire format, from the IP header on
EXAMPLE = bytes.fromhex("4500003400004000401126b70a0000010a000002c00012b7002000000470ffff000000028000000171726e6963000000fa6edb2b")
NAMES = {0: "First", 1: "Middle", 2: "Last", 4: "Only"}
MTU = 1024
RETRY_EXCEEDED = next(one["value"] for one in hw.spec.enums["wc_status"]["values"] if one["name"] == "RETRY_EXC_ERR")
reference = lab.solution("07-transport")        # the expected answers of a responder

# Fields of an answer: (name, first byte of the frame, end)
FIELDS = (("Ethernet destination", 0, 6), ("Ethernet type", 12, 14), ("IPv4 version", 14, 15), ("IPv4 length", 16, 18), ("IPv4 protocol", 23, 24), ("IPv4 source", 26, 30),
          ("IPv4 destination", 30, 34), ("UDP destination port", 36, 38), ("UDP length", 38, 40), ("opcode", 42, 43), ("byte 1 of the BTH (MigReq is 1)", 43, 44), ("P_Key", 44, 46),
          ("queue pair", 46, 50), ("PSN", 50, 54), ("syndrome", 54, 55), ("MSN, the number of complete messages,", 55, 58))


def alike(mine, right, name, story=""):
    """Fails unless the fields of a frame are those of the right frame, and its ICRC is correct."""
    for field, start, end in FIELDS:
        expect(mine[start:end] == right[start:end], f"{name}: {field} is {mine[start:end].hex(' ')}, not {right[start:end].hex(' ')}. {story}")
    icrc = len(right) - 4
    expect(mine[icrc:len(right)] == reference.icrc(mine[14:icrc]), f"{name} has a wrong length or ICRC. {story}")


class Place:
    """The device with one queue pair, whose peer is the student's program."""

    def __init__(self, machine, program, psn=0, timeout=20):
        self.machine, self.program, self.bench = machine, program, machine._bench       # pylint: disable=protected-access
        self.setup = Setup(machine, connected=False)
        self.qp = self.setup.left
        self.qp.connect(PEER_QP, PEER_ADDRESS, PEER_MAC, timeout=timeout, psn=psn)
        self.buffer = machine.mem_alloc(16384)
        self.trace, self.data, self.model = [], b"", reference.Responder(self.qp.number, psn)
        while self.bench.receive():             # frames of an earlier stage
            pass

    def send(self, data):
        """Lets the device send a message."""
        self.data = data
        self.machine._memory.write(self.buffer, data)                                   # pylint: disable=protected-access
        self.qp.post(hw.pack("data_seg", address=self.buffer, length=len(data), lkey=self.setup.key), opcode="SEND")

    def frame(self):
        """Returns the next frame of the device."""
        return self.machine.wait_until(self.bench.receive, "the device sends a frame")

    def note(self, frame, text=""):
        """Adds a frame to the trace; returns (from the device, opcode, PSN)."""
        bth = frame[42:].ljust(16, b"\0")
        opcode, psn = bth[0], int.from_bytes(bth[9:12], "big")
        if opcode == 0x11:
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
            if not lose:
                self.bench.send(one)

    def story(self):
        lines = self.trace[-14:]
        return "The packets until then:\n" + "\n".join(lines)

    def done(self):
        """Returns true if the device has a new CQE."""
        raw = self.machine._memory.read(self.qp.cq_ring + 64 * (self.qp.consumed % 4) + 63, 1)      # pylint: disable=protected-access
        return raw[0] >> 7 != (self.qp.consumed >> 2) % 2

    def judge(self, frame, answers, responder):
        """Compares the answers to a frame and the messages with those of the reference."""
        model, psn = self.model, int.from_bytes(frame[51:54], "big")
        ahead, expected = (psn - model.expected) & 0xffffff, model.expected
        kind = "expected packet" if not ahead else "packet out of order" if ahead < 1 << 23 else "duplicate"
        want = model.receive(frame)
        have, text = len(responder.messages), f"The responder has {len(responder.messages)} messages after the packet with PSN {psn:#x}, not {len(model.messages)}"
        expect(kind != "duplicate" or have == len(model.messages), f"{text}: a duplicate is not consumed again. {self.story()}")
        expect(kind == "duplicate" or have == len(model.messages), f"{text}. A message is complete with its packet Last or Only. A packet out of order is dropped. {self.story()}")
        expect(responder.messages[-1:] == model.messages[-1:],
               f"Message {have} has {sum(map(len, responder.messages[-1:]))} bytes or other contents; the device sent {sum(map(len, model.messages[-1:]))} bytes. {self.story()}")
        for answer in answers:
            same = want and len(answer) >= 58 and answer[54] == want[0][54]
            expect(same or kind != "packet out of order", f"The packet with PSN {psn:#x} is out of order, but the responder answers it. A packet out of order is dropped. Send one NAK with the "
                   f"expected PSN, {expected:#x}. Each NAK makes the device go back. The next NAK is allowed after the expected packet has arrived. {self.story()}")
            expect(same or kind != "expected packet", f"The responder answers the packet with PSN {psn:#x} by something else than an ACK, or the packet has no AckReq. A responder sends "
                                                      f"acknowledgements for packets with AckReq only. {self.story()}")
            expect(same, f"The responder answers the duplicate with PSN {psn:#x} by something else than an ACK, or the duplicate has no AckReq. {self.story()}")
        if want and not answers:
            expect(kind != "packet out of order", f"The responder sent no NAK for the packet with PSN {psn:#x}, the first one behind the missing PSN {expected:#x}. A packet out of order "
                                                  f"is dropped. A NAK is allowed again after the expected packet has arrived. {self.story()}")
            expect(kind != "duplicate", f"The packet with PSN {psn:#x} is a duplicate with AckReq. Acknowledge the duplicate, because the device otherwise retries until its limit. {self.story()}")
            raise Fail(f"The packet with PSN {psn:#x} has AckReq, but the responder sent no acknowledgement. {self.story()}")
        expect(len(answers) == len(want), f"The responder sent {len(answers)} answers to one packet. {self.story()}")
        for mine, right in zip(answers, want):
            alike(mine, right, f"The answer to PSN {psn:#x}", self.story())

    def run(self, responder, lost=(), lost_answers=0):
        """Carries frames until the device completes the message. lost are the transmissions that the wire loses: (PSN, how many times the PSN was sent)."""
        end, times = time.monotonic() + lab.PATIENCE, collections.Counter()
        while not self.done():
            frame = self.bench.receive()
            if frame is None:
                expect(time.monotonic() < end, f"The device did not complete the message in {lab.PATIENCE} s. {self.story()}")
                time.sleep(0.001)
                continue
            psn = int.from_bytes(frame[51:54], "big")
            times[psn] += 1
            gone = (psn, times[psn]) in lost
            self.note(frame, ", lost" if gone else "")
            if not gone:
                answers = responder.receive(frame)
                self.deliver(answers, bool(answers) and lost_answers > 0)
                self.judge(frame, answers, responder)
                lost_answers -= bool(answers)
        entry = self.qp.completion()
        expect(entry["status"] != RETRY_EXCEEDED, f"The device retried until its limit: acknowledge the duplicate. {self.story()}")
        expect(entry["status"] == 0, f"The message completed with status {entry['status']:#x} and syndrome {entry['syndrome']:#x}. {self.story()}")
        expect(responder.messages and responder.messages[-1] == self.data, f"The last message is not the data of the device, {len(self.data)} bytes. {self.story()}")


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
    place = Place(machine, program, FIRST_PSN)
    place.send(b"hello")
    frame = place.frame()
    got = program.parse(frame)
    expect(got is not None, f"parse() returned None for a packet of the device: {frame.hex(' ', 4)}")
    hints = {"payload": "Remove the ICRC and the pad bytes; bits 5:4 of byte 1 of the BTH count the pad.",
             "ack_request": "ack_request is only bit 7 of byte 8 of the BTH, as True or False."}
    reserved = [("a packet of the device", frame, True), ("the same packet with 1 in all reserved bits of bytes 4 and 8 of the BTH", changed(frame, (46, 0xff), (50, 0xff)), True),
                ("the same packet with AckReq 0 and 1 in the reserved bits of byte 8", changed(frame, (50, 0x7f)), False)]
    for name, one, asked in reserved:
        got = program.parse(one)
        expect(got is not None, f"parse() returned None for {name}.")
        for member, want in (("opcode", 4), ("qp", PEER_QP), ("ack_request", asked), ("psn", FIRST_PSN), ("payload", b"hello")):
            expect(getattr(got, member) == want, f"parse(), {name}: {member} is {getattr(got, member)!r}, not {want!r}. "
                                                 + hints.get(member, "The members of the BTH are big endian; the queue pair is bytes 5 to 7, and the PSN bytes 9 to 11."))
    got = program.parse(frame)
    expect(program.parse(frame + bytes(6)) == got, "parse() does not accept a frame with Ethernet padding behind the packet. The length is in the IP header, at offset 2.")
    for name, other in (("a wrong ICRC", frame[:-1] + bytes([frame[-1] ^ 1])), ("a wrong payload", frame[:54] + b"J" + frame[55:]),
                        ("an ARP frame", frame[:12] + b"\x08\x06" + frame[14:]), ("a TCP packet", changed(frame, (23, 6))), ("UDP port 53", changed(frame, (36, 0), (37, 53))),
                        *((f"a frame of {size} bytes", frame[:size]) for size in (0, 13, 20, 37, 50, 57))):
        expect(program.parse(other) is None, f"parse() returned a packet for {name}. The responder drops this frame: return None.")


def changed(frame, *changes):
    """Returns a frame with other bytes and the ICRC of these bytes. changes are (place, byte)."""
    frame = bytearray(frame)
    for at, value in changes:
        frame[at] = value
    return bytes(frame[:-4]) + reference.icrc(bytes(frame[14:-4]))


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
    mine, right = program.frame(program.acknowledge(place.qp.number, 0, 0x1f, 1)), reference.frame(reference.acknowledge(place.qp.number, 0, 0x1f, 1))
    alike(mine, right, "The frame of an acknowledgement (frame() of the skeleton)")
    place.bench.send(mine)
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


def stage_5(machine, program):
    """A lost packet."""
    # (4, 2) is the second transmission of PSN 4, counted from the first PSN. The packet is lost after the expected packet has arrived.
    for lost, size, psn in ((((1, 1),), 5 * MTU, 0), (((0, 1), (3, 2)), 6 * MTU, (1 << 24) - 2), (((2, 1), (4, 2)), 8 * MTU, 100)):
        place = Place(machine, program, psn)
        responder = program.Responder(place.qp.number, psn)
        place.send(bytes(byte * 7 & 0xff for byte in range(size)))
        place.run(responder, [(psn + number & 0xffffff, times) for number, times in lost])


def stage_6(machine, program):
    """A lost acknowledgement."""
    place = Place(machine, program, timeout=18)
    responder = program.Responder(place.qp.number, 0)
    # Two messages are in flight, so that the first duplicate is not the last packet.
    for size, count in ((5, 2), (3000, 1)):
        for _ in range(count):
            place.send(bytes(byte * 3 & 0xff for byte in range(size)))
        place.run(responder, lost_answers=count)
        for _ in range(count - 1):
            place.run(responder)
