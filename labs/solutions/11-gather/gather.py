# Lab 11: non-contiguous data. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

BLOCK = 64                      # a basic block: the unit of a send queue
RDMA_WRITE, REG_INDIRECT, LOCAL_INV = 0x04, 0x13, 0x11          # opcodes
SIGNALED, INLINE = 1 << 0, 1 << 3                               # flags
DB_SQ = 0x0                     # offset in doorbell page 0, BAR 2
LOCAL_WRITE, REMOTE_WRITE = 1, 2                                # rights
ELEMENT, MAX_SEGMENTS = 8, 30   # bytes of a number in a matrix; data segments of a WQE

# A matrix has the members address, rows, columns and row_size, in bytes.


def place_of(matrix, row, column):
    """Returns the address of a number."""
    return matrix.address + row * matrix.row_size + column * ELEMENT


def pack_column(machine, matrix, column, buffer):
    """Copies a column into the buffer by the CPU."""
    for row in range(matrix.rows):
        machine.mem_write(buffer + ELEMENT * row, machine.mem_read(place_of(matrix, row, column), ELEMENT))


class Sender:
    """Posts WQEs. qp has the members number, key (of all memory), sq, sq_record and log_size, as in lab 3."""

    def __init__(self, machine, qp):
        self.machine, self.qp = machine, qp
        self.producer = 0               # counter of posted blocks

    def control(self, opcode, segments, flags=SIGNALED, inline_length=0, imm=0):
        """Returns the control segment of the next WQE."""
        return struct.pack("<II", opcode | flags << 8 | segments << 16, self.producer) + struct.pack(">I", imm) + struct.pack("<I", inline_length)

    def post(self, wqe):
        """Posts a WQE of any size."""
        blocks = (len(wqe) + BLOCK - 1) // BLOCK
        for number in range(blocks):
            place = self.qp.sq + BLOCK * ((self.producer + number) % (1 << self.qp.log_size))
            self.machine.mem_write(place, wqe[BLOCK * number:BLOCK * (number + 1)])
        self.producer += blocks
        self.machine.mem_write(self.qp.sq_record, struct.pack("<I", self.producer))
        self.machine.bar_write(2, DB_SQ, self.qp.number | self.producer << 32, 8)

    def write(self, source, length, lkey, target, rkey):
        """Posts an RDMA write with one data segment."""
        self.post(self.control(RDMA_WRITE, 3) + struct.pack("<QII", target, rkey, 0) + struct.pack("<QII", source, length, lkey))

    def invalidate(self, key):
        """Posts a WQE that takes the pieces from an indirect key."""
        self.post(self.control(LOCAL_INV, 1, imm=key))

    def gather_wqe(self, addresses, target):
        """Returns an RDMA write of up to 30 numbers, with a data segment for each."""
        data = b"".join(struct.pack("<QII", address, ELEMENT, self.qp.key) for address in addresses)
        return self.control(RDMA_WRITE, 2 + len(addresses)) + struct.pack("<QII", target, self.qp.key, 0) + data

    def send_gathered(self, matrix, column, target):
        """Sends a column by as few gather WQEs as possible. Returns their number."""
        addresses = [place_of(matrix, row, column) for row in range(matrix.rows)]
        parts = range(0, len(addresses), MAX_SEGMENTS)
        for first in parts:
            self.post(self.gather_wqe(addresses[first:first + MAX_SEGMENTS], target + ELEMENT * first))
        return len(parts)

    def register_wqe(self, key, access, address, length, stride, repeat):
        """Returns a WQE that gives an indirect key, from address 0 on, one piece of the key qp.key, repeat times."""
        segment = struct.pack("<IB3xQI12x", key, access, 0, repeat)
        piece = struct.pack("<IIQQQ", self.qp.key, 0, address, length, stride)
        return self.control(REG_INDIRECT, 5, SIGNALED | INLINE, len(piece)) + segment + piece

    def send_strided(self, matrix, column, key, target):
        """Sends a column by one message, through the indirect key."""
        self.post(self.register_wqe(key, 0, place_of(matrix, 0, column), ELEMENT, matrix.row_size, matrix.rows))
        self.write(0, ELEMENT * matrix.rows, key, target, self.qp.key)

    def row_to_column(self, matrix, row, other, column, key):
        """Sends a row of a matrix into a column of the other matrix, by one message. The key was used before with the same number."""
        self.invalidate(key)
        self.post(self.register_wqe(key, LOCAL_WRITE | REMOTE_WRITE, place_of(other, 0, column), ELEMENT, other.row_size, other.rows))
        self.write(place_of(matrix, row, 0), ELEMENT * matrix.columns, self.qp.key, 0, key)
