# The stages of lab 3. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

from grade import expect
from lab import DOORBELL, Setup, hw

TEXT = b"a message that no system call carries"


def setup(machine, program):
    place = Setup(machine)
    source, target = machine.mem_alloc(64), machine.mem_alloc(64)
    machine.mem_write(source, TEXT)
    machine.accesses.clear()
    return place, program.Sender(machine, place.left), source, target


def stage_1(machine, program):
    """The bytes of a WQE."""
    place, sender, source, target = setup(machine, program)
    raw = sender.wqe(source, len(TEXT), target)
    expect(isinstance(raw, bytes) and len(raw) == 48, f"wqe() returned {raw!r}, and not 48 bytes: three segments of 16 bytes.")
    for name, at, want in (
            ("sq_ctrl", 0, {"opcode": 4, "flags": 1, "segments": 3, "index": 0, "imm": 0, "inline_length": 0}),
            ("remote_seg", 16, {"address": target, "rkey": place.key}),
            ("data_seg", 32, {"address": source, "length": len(TEXT), "lkey": place.key})):
        got = hw.unpack(name, raw[at:at + 16])
        for member, value in want.items():
            expect(got[member] == value, f"Segment {name}, at offset {at} of the WQE: {member} is {got[member]:#x} in place of {value:#x}.")


def stage_2(machine, program):
    """Ring, record, doorbell."""
    place, sender, source, target = setup(machine, program)
    sender.post(sender.wqe(source, len(TEXT), target))
    qp = place.left
    writes = [access for access in machine.accesses if access[0] in ("mem-write", "bar-write")]
    for text, test in (("the WQE into the ring (qp.sq)", lambda one: one[0] == "mem-write" and one[2] == qp.sq),
                       ("the record (qp.sq_record)", lambda one: one[0] == "mem-write" and one[2] == qp.sq_record),
                       ("the doorbell (BAR 2)", lambda one: one[0] == "bar-write" and one[1] == DOORBELL)):
        expect(any(map(test, writes)), f"post() does not write {text}.")
        place_of = [number for number, one in enumerate(writes) if test(one)]
        expect(place_of[0] == 0, f"post() writes {text} too late. The device may read the WQE as soon as the record counts it, so the order is "
                                 "WQE, record, doorbell.")
        writes = writes[1:]
    record = struct.unpack("<I", machine.mem_read(qp.sq_record, 4))[0]
    expect(record == 1, f"The record is {record}: it counts the posted blocks, 1 after the first WQE.")
    bell = next(one[3] for one in machine.accesses if one[0] == "bar-write")
    expect(bell == qp.number | 1 << 32, f"The doorbell is {bell:#x}: the low half is the number of the QP, the high half the producer index.")
    machine.settle()
    expect(machine.mem_read(target, len(TEXT)) == TEXT, "The message did not arrive.")


def stage_3(machine, program):
    """One completion."""
    _, sender, source, target = setup(machine, program)
    got = sender.poll()
    expect(got is None, f"poll() returned {got!r} before anything was posted. The ring is zeroed, so the phase bit of its first CQE is 0.")
    sender.post(sender.wqe(source, len(TEXT), target))
    got = machine.wait_until(sender.poll, "poll() returns the completion")
    expect(got == (0, 0), f"poll() returned {got!r}, not (0, 0): status 0, WQE with index 0.")
    got = sender.poll()
    expect(got is None, f"poll() returned {got!r} again for the same CQE. Count the consumed CQEs.")


def stage_4(machine, program):
    """Thirty messages through small rings."""
    place, sender, source, target = setup(machine, program)
    for number in range(30):
        machine.mem_write(source, struct.pack("<I", number + 1))
        sender.post(sender.wqe(source, 4, target))
        got = machine.wait_until(sender.poll, f"poll() returns completion {number}. The CQ has {1 << place.left.cq_log_size} CQEs; in each pass the phase changes")
        expect(got == (0, number), f"Completion {number} is {got!r}, not {(0, number)}.")
        value = struct.unpack("<I", machine.mem_read(target, 4))[0]
        expect(value == number + 1, f"Message {number} did not arrive: the target has {value}. The SQ has {1 << place.left.log_size} blocks.")
    record = struct.unpack("<I", machine.mem_read(place.left.cq_record, 4))[0]
    expect(record == 30, f"The record of the CQ is {record}, not 30. If the record stays behind, the CQ is full for the device.")
    expect(not machine.guest_errors(), "The device reports a broken rule.")
