# Lab 3: ring a doorbell. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

from lab import Todo

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
        raise Todo("return 48 bytes: control segment, remote address segment, data segment")

    def post(self, wqe):
        """Writes the WQE into the ring, then the record, then the doorbell."""
        raise Todo("write the WQE to its place in the ring, then the record, then the doorbell of 8 bytes in BAR 2")

    def poll(self):
        """Returns None, or (status, index) of the next CQE, and consumes it."""
        raise Todo("check the phase bit of the next CQE; if the CQE is new, count it, write the record of the CQ, and return status and index")
