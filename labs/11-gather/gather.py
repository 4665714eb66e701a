# Lab 11: non-contiguous data. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

from lab import Todo

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
    raise Todo("copy 8 bytes of each row to the next place in the buffer, by mem_read() and mem_write()")


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
        raise Todo("return control segment, remote address segment, and a data segment of 8 bytes for each address")

    def send_gathered(self, matrix, column, target):
        """Sends a column by as few gather WQEs as possible. Returns their number."""
        raise Todo("post a gather WQE for each 30 rows; each continues at the target behind the previous one; return the number of WQEs")

    def register_wqe(self, key, access, address, length, stride, repeat):
        """Returns a WQE that gives an indirect key, from address 0 on, one piece of the key qp.key, repeat times."""
        raise Todo("return control segment (flags SIGNALED and INLINE, 5 segments), indirect segment of 32 bytes, and one piece of 32 bytes")

    def send_strided(self, matrix, column, key, target):
        """Sends a column by one message, through the indirect key."""
        raise Todo("give the key a piece of 8 bytes, repeated for each row with the stride of a row; then write all bytes of the key")

    def row_to_column(self, matrix, row, other, column, key):
        """Sends a row of a matrix into a column of the other matrix, by one message. The key was used before with the same number."""
        raise Todo("take the old pieces from the key; give it the column of the other matrix with the rights LOCAL_WRITE and REMOTE_WRITE; then use it as rkey")
