# Lab 3: ring a doorbell. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

BLOCK = 64                      # a basic block: the unit of a send queue
RDMA_WRITE, SIGNALED = 0x04, 1 << 0
DB_SQ = 0x0                     # offset in doorbell page 0, BAR 2
CQE_SIZE = 64


class Sender:
    """Posts RDMA writes to a queue pair, and polls its completion queue.

    qp has the members number, key, sq (address of the ring), sq_record, log_size (log2 of the blocks of the ring),
    cq_ring, cq_record and cq_log_size.
    """

    def __init__(self, machine, qp):
        self.machine, self.qp = machine, qp
        self.producer = 0               # counter of posted blocks
        self.consumer = 0               # counter of consumed CQEs

    def wqe(self, source, length, target):
        """Returns the bytes of a WQE that writes length bytes from address source to address target."""
        control = struct.pack("<III", RDMA_WRITE | SIGNALED << 8 | 3 << 16, self.producer, 0) + struct.pack("<I", 0)
        remote = struct.pack("<QII", target, self.qp.key, 0)
        data = struct.pack("<QII", source, length, self.qp.key)
        return control + remote + data

    def post(self, wqe):
        """Writes the WQE into the ring, then the record, then the doorbell."""
        place = self.qp.sq + BLOCK * (self.producer % (1 << self.qp.log_size))
        self.machine.mem_write(place, wqe)
        self.producer += 1
        self.machine.mem_write(self.qp.sq_record, struct.pack("<I", self.producer))
        self.machine.bar_write(2, DB_SQ, self.qp.number | self.producer << 32, 8)

    def poll(self):
        """Returns None, or (status, index) of the next CQE, and consumes it."""
        place = self.qp.cq_ring + CQE_SIZE * (self.consumer % (1 << self.qp.cq_log_size))
        control = struct.unpack("<I", self.machine.mem_read(place + 60, 4))[0]
        expected = 1 - (self.consumer >> self.qp.cq_log_size) % 2
        if control >> 31 != expected:
            return None
        index = struct.unpack("<I", self.machine.mem_read(place, 4))[0]
        self.consumer += 1
        self.machine.mem_write(self.qp.cq_record, struct.pack("<I", self.consumer))
        return control & 0xff, index
