# The stages of lab 11. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
import collections
import struct

from grade import expect
from lab import Setup, hw

Matrix = collections.namedtuple("Matrix", "address rows columns row_size")
ROWS, COLUMNS, ROW_SIZE = 64, 32, 512


def value(row, column):
    """Returns a number of the matrix, which needs more than 32 bits."""
    return (row + 1 << 40) + 1000 * row + column


class Place:
    """A sender, a matrix, another matrix, and an indirect key without pieces."""

    def __init__(self, machine, program):
        self.machine, self.setup = machine, Setup(machine, log_size=5, cq_log_size=5)
        self.qp = self.setup.left
        self.sender = program.Sender(machine, self.qp)
        self.matrix = Matrix(machine.mem_alloc(ROWS * ROW_SIZE, 4096), ROWS, COLUMNS, ROW_SIZE)
        self.other = Matrix(machine.mem_alloc(COLUMNS * 1024, 4096), COLUMNS, ROWS, 1024)
        self.target = machine.mem_alloc(ROWS * 8 + 64)
        for row in range(ROWS):
            machine.mem_write(self.matrix.address + ROW_SIZE * row, struct.pack(f"<{COLUMNS}Q", *(value(row, column) for column in range(COLUMNS))))
        self.index = self.setup.adapter.command("CREATE_MKEY", data=hw.pack("mkey_ctx", type="INDIRECT", variant=1, pd=self.setup.pd, max_pieces=4))
        self.key = self.index << 8 | 1
        machine.mark()
        machine.accesses.clear()

    def column(self, column):
        return struct.pack(f"<{ROWS}Q", *(value(row, column) for row in range(ROWS)))

    def complete(self, count, text):
        for number in range(count):
            entry = self.qp.completion()
            expect(entry["status"] == 0, f"WQE {number + 1} of {count} ({text}) completed with status {entry['status']:#x} and syndrome {entry['syndrome']:#x} "
                                         "(chapter Completion and events). Syndromes 0x07 and 0x08: a wrong member or size of the WQE; 0x09: a wrong index; 0x11: the key has "
                                         "pieces already; 0x20: a wrong piece; 0x03, 0x04, 0x24: a range or right.")
        self.machine.settle()

    def compare(self, address, want):
        got = self.machine.mem_read(address, len(want))
        for number in range(len(want) // 8):
            expect(got[8 * number:8 * number + 8] == want[8 * number:8 * number + 8],
                   f"Number {number} of the target is {struct.unpack_from('<Q', got, 8 * number)[0]}, not {struct.unpack_from('<Q', want, 8 * number)[0]}. Number 2^40 (r + 1) + 1000 r + c of the "
                   "matrix is in row r, column c.")

    def reads(self, use):
        return sum(one.kind == "read" and one.keys.get("use") == use and one.keys.get("qp") == str(self.qp.number) for one in self.machine.transactions())


def stage_1(machine, program):
    """Pack a column."""
    place = Place(machine, program)
    program.pack_column(machine, place.matrix, 3, place.target)
    place.compare(place.target, place.column(3))


def stage_2(machine, program):
    """A WQE that gathers."""
    place = Place(machine, program)
    addresses = [place.matrix.address + ROW_SIZE * row + 40 for row in range(30)]
    raw = place.sender.gather_wqe(addresses, place.target)
    expect(isinstance(raw, bytes) and len(raw) == 512, f"gather_wqe() returned {len(raw) if isinstance(raw, bytes) else raw!r} bytes for 30 numbers, not 512: 32 segments of 16 bytes.")
    got = hw.unpack("sq_ctrl", raw[:16])
    expect(got["segments"] == 32, f"The control segment counts {got['segments']} segments, not 32: this segment, the remote address, and 30 data segments.")
    place.sender.post(raw)
    place.complete(1, "gather")
    place.compare(place.target, place.column(5)[:240])
    count = place.reads("data")
    expect(count == 30, f"The device read data {count} times, not 30: a read for each number.")


def stage_3(machine, program):
    """A column by gather WQEs."""
    place = Place(machine, program)
    got = place.sender.send_gathered(place.matrix, 7, place.target)
    expect(got == 3, f"send_gathered() returned {got!r}: 64 rows need 3 WQEs of at most 30 data segments.")
    place.complete(3, "gather")
    place.compare(place.target, place.column(7))


def stage_4(machine, program):
    """Pieces for an indirect key."""
    place = Place(machine, program)
    raw = place.sender.register_wqe(place.key, 2, place.matrix.address + 16, 8, ROW_SIZE, ROWS)
    expect(isinstance(raw, bytes) and len(raw) == 80, f"register_wqe() returned {len(raw) if isinstance(raw, bytes) else raw!r} bytes, not 80: 16 of control, 32 of the indirect segment, "
                                                      "32 of the piece.")
    for name, start, wanted in (
            ("sq_ctrl", 0, {"opcode": 0x13, "flags": 9, "segments": 5, "index": 0, "imm": 0, "inline_length": 32}),
            ("indirect_seg", 16, {"key": place.key, "access": 2, "start": 0, "repeat": ROWS}),
            ("piece", 48, {"key": place.qp.key, "address": place.matrix.address + 16, "length": 8, "stride": ROW_SIZE})):
        got = hw.unpack(name, raw[start:start + hw.size(name)])
        for member, want in wanted.items():
            expect(got[member] == want, f"Segment {name}, at offset {start} of the WQE: {member} is {got[member]:#x} in place of {want:#x}.")
    place.sender.post(place.sender.register_wqe(place.key, 0, place.matrix.address + 16, 8, ROW_SIZE, ROWS))
    place.complete(1, "registration")


def stage_5(machine, program):
    """A column by one message."""
    place = Place(machine, program)
    place.sender.send_strided(place.matrix, 9, place.key, place.target)
    place.complete(2, "registration, write")
    place.compare(place.target, place.column(9))
    count = place.reads("data")
    expect(count == ROWS, f"The device read data {count} times, not {ROWS}: the numbers of the column. The piece lies inline in the WQE.")


def stage_6(machine, program):
    """A row into a column."""
    place = Place(machine, program)
    place.sender.send_strided(place.matrix, 1, place.key, place.target)
    place.complete(2, "registration, write")
    for row in (4, 5):
        place.sender.row_to_column(place.matrix, row, place.other, row, place.key)
        place.complete(3, "invalidation, registration, write")
        for number in range(COLUMNS):
            at = place.other.address + 1024 * number
            place.compare(at + 8 * row, struct.pack("<Q", value(row, number)))
            place.compare(at + 8 * row + 8, bytes(8))
    expect(not machine.guest_errors(), "The device reports a broken rule.")
