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
            ("remote_seg", 16, {"address": target, "rkey": place.key, "rsvd0": 0}),
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


def order(machine, qp):
    """Fails unless poll() of the last access list reads the CQE before the record counts it."""
    ring = range(qp.cq_ring, qp.cq_ring + (64 << qp.cq_log_size))
    reads = [number for number, one in enumerate(machine.accesses) if one.kind == "mem-read" and one.offset in ring]
    records = [number for number, one in enumerate(machine.accesses) if one.kind == "mem-write" and one.offset == qp.cq_record]
    expect(records, "poll() does not write the counter of consumed CQEs to qp.cq_record.")
    expect(records[0] > reads[-1], "poll() reads the CQE after its record counts the CQE. The device may overwrite a CQE as soon as the record counts it: read it before.")


def between(machine, action):
    """Calls action after the next read of memory by the program."""
    read = machine.mem_read

    def first(address, size):
        value = read(address, size)
        machine.mem_read = read
        action()
        return value
    machine.mem_read = first


def stage_3(machine, program):
    """One completion."""
    place, sender, source, target = setup(machine, program)
    got = sender.poll()
    expect(got is None, f"poll() returned {got!r} before anything was posted. The ring is zeroed, so the phase bit of its first CQE is 0.")
    sender.post(sender.wqe(source, len(TEXT), target))
    machine.settle()
    machine.accesses.clear()
    got = machine.wait_until(sender.poll, "poll() returns the completion")
    expect(got == (0, 0), f"poll() returned {got!r}, not (0, 0): status 0, WQE with index 0.")
    order(machine, place.left)
    got = sender.poll()
    expect(got is None, f"poll() returned {got!r} again for the same CQE. Count the consumed CQEs.")

    def message():
        sender.post(sender.wqe(source, len(TEXT), target))
        machine.settle()
    between(machine, message)
    got = sender.poll() or sender.poll()
    expect(not got or not got[0], f"poll() returned {got!r} for the second WQE, which the device rejects. The index of a WQE is the counter before the WQE, here 1.")
    expect(got == (0, 1), f"poll() returned {got!r}, not (0, 1), for a CQE that arrived after the first read of poll(). The device writes the control word last: read this word "
                          "first, and the index only if the phase is new.")
    # A WQE without a CQE, so that the index of the next one is not the number of its CQE
    raw = sender.wqe(source, len(TEXT), target)
    sender.post(raw[:1] + b"\0" + raw[2:])
    raw = sender.wqe(source, len(TEXT), target)
    sender.post(raw[:24] + struct.pack("<I", place.key ^ 0xff) + raw[28:])
    got = machine.wait_until(sender.poll, "poll() returns the completion of a WQE whose rkey is wrong")
    expect(got == (10, 3), f"poll() returned {got!r}, not (10, 3), for the fourth WQE, whose rkey is wrong. The status is in bits 7:0 of the control word, the index at offset 0 of "
                           "the CQE. The third WQE has no CQE.")


def stage_4(machine, program):
    """Thirty messages through small rings."""
    place, sender, source, target = setup(machine, program)
    qp, number = place.left, 0
    while number < 30:
        several = min(1 + number % 3, 30 - number)
        for one in range(number, number + several):
            machine.mem_write(source + 4 * (one % 8), struct.pack("<I", one + 1))
            machine.accesses.clear()
            sender.post(sender.wqe(source + 4 * (one % 8), 4, target + 4 * (one % 8)))
            posted(machine, qp, one)
        for one in range(number, number + several):
            got = machine.wait_until(sender.poll, f"poll() returns completion {one}. The CQ has {1 << qp.cq_log_size} CQEs; in each pass the phase changes, "
                                                  "and the device writes no CQE that qp.cq_record does not make free")
            expect(got == (0, one), f"Completion {one} is {got!r}, not {(0, one)}.")
            record = struct.unpack("<I", machine.mem_read(qp.cq_record, 4))[0]
            expect(record == one + 1, f"The record of the CQ (qp.cq_record) is {record} after completion {one}, not {one + 1}. The record counts the consumed CQEs, and poll() consumes one. "
                                      "If the record stays behind, the CQ is full for the device.")
            value = struct.unpack("<I", machine.mem_read(target + 4 * (one % 8), 4))[0]
            expect(value == one + 1, f"Message {one} did not arrive: the target has {value}. The SQ has {1 << qp.log_size} blocks.")
        number += several
    expect(not machine.guest_errors(), "The device reports a broken rule.")


def posted(machine, qp, number):
    """Fails unless the program has announced the WQE by record and doorbell. A wrong doorbell costs only time, because it is a hint."""
    record = struct.unpack("<I", machine.mem_read(qp.sq_record, 4))[0]
    expect(record == number + 1, f"The record is {record} after {number + 1} WQEs. The record counts all posted blocks; only the place in the ring is taken modulo {1 << qp.log_size}.")
    bells = [one.value for one in machine.accesses if one.kind == "bar-write"]
    expect(bells == [qp.number | number + 1 << 32], f"post() wrote the doorbells {[hex(one) for one in bells]} for WQE {number} in place of {qp.number | number + 1 << 32:#x}: "
                                                   "the high half is the same counter as the record.")
