# Lab 4: direct WQE against fetched WQE. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

from lab import Todo

BLOCK = 64                      # a basic block: the unit of a send queue
RDMA_WRITE = 0x04               # opcode
SIGNALED, INLINE = 1 << 0, 1 << 3               # flags
DB_SQ, DB_DIRECT, DB_WINDOW = 0x0, 0x40, 0x800  # offsets in doorbell page 0, BAR 2


def count_reads(machine, qp, use):
    """Returns the number of bus reads for this queue pair and use since the last machine.mark()."""
    raise Todo("count the transactions whose kind is read, whose key use is the argument, and whose key qp is the number of the queue pair")


class Sender:
    """Posts RDMA writes. qp has the members number, key, sq, sq_record and log_size, as in lab 3."""

    def __init__(self, machine, qp):
        self.machine, self.qp = machine, qp
        self.producer = 0               # counter of posted blocks

    def store(self, wqe):
        """Writes a WQE of any size into the ring, and counts its blocks. Returns the number of blocks."""
        blocks = (len(wqe) + BLOCK - 1) // BLOCK
        for number in range(blocks):
            place = self.qp.sq + BLOCK * ((self.producer + number) % (1 << self.qp.log_size))
            self.machine.mem_write(place, wqe[BLOCK * number:BLOCK * (number + 1)])
        self.producer += blocks
        return blocks

    def write_record(self):
        self.machine.mem_write(self.qp.sq_record, struct.pack("<I", self.producer))

    def wqe(self, source, length, target):
        """Returns a WQE that names its data by a data segment, as in lab 3."""
        return struct.pack("<IIII", RDMA_WRITE | SIGNALED << 8 | 3 << 16, self.producer, 0, 0) \
            + struct.pack("<QII", target, self.qp.key, 0) + struct.pack("<QII", source, length, self.qp.key)

    def post_fetched(self, wqe):
        """Posts a WQE that the device fetches, as in lab 3."""
        self.store(wqe)
        self.write_record()
        self.machine.bar_write(2, DB_SQ, self.qp.number | self.producer << 32, 8)

    def inline_wqe(self, data, target):
        """Returns a WQE that contains its data."""
        raise Todo("return control segment (flag INLINE, length of the data), remote address segment and the data, padded to a multiple of 16 bytes")

    def post_direct(self, wqe):
        """Posts a WQE of 1 to 4 blocks, and writes it to the window, too."""
        raise Todo("store the WQE and write the record; write the whole blocks to the window, 8 bytes each; then write the direct doorbell")

    def send_without_reads(self, data, target):
        """Sends up to 224 bytes, and the device reads nothing from memory."""
        raise Todo("combine the two ways above")

    def post_batch(self, messages):
        """Posts a WQE for each (source, length, target), with one doorbell for all."""
        raise Todo("store all WQEs, then write the record once and the doorbell once")
