# Lab 6: completion, event, interrupt, and the arming race. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

from lab import Todo

DB_CQ_ARM, DB_EQ = 0x18, 0x20   # offsets in doorbell page 0, BAR 2
CQE_SIZE, EQE_SIZE = 64, 16
ARM = 1 << 31                   # bit 31 of an EQ doorbell
COMPLETION = 0x01               # type of an event: a CQ has a new CQE
VECTOR = 1                      # interrupt of the event queue


class Waiter:
    """Waits for completions without polling.

    cq has the members number, ring, record and log_size. eq has number, ring and log_size; it is armed.
    """

    def __init__(self, machine, cq, eq):
        self.machine, self.cq, self.eq = machine, cq, eq
        self.consumed = 0               # counter of consumed CQEs
        self.sequence = 0               # counter of requests
        self.events_read = 0            # counter of consumed EQEs

    def poll(self):
        """Returns None, or (status, index) of the next CQE, and consumes it, as in lab 3."""
        place = self.cq.ring + CQE_SIZE * (self.consumed % (1 << self.cq.log_size))
        control = struct.unpack("<I", self.machine.mem_read(place + 60, 4))[0]
        if control >> 31 == (self.consumed >> self.cq.log_size) % 2:
            return None
        index = struct.unpack("<I", self.machine.mem_read(place, 4))[0]
        self.consumed += 1
        self.machine.mem_write(self.cq.record, struct.pack("<I", self.consumed))
        return control & 0xff, index

    def arm(self):
        """Requests an event for the next CQE."""
        raise Todo("count the request in self.sequence; write consumed CQEs and sequence to the record, 8 bytes; then write the doorbell DB_CQ_ARM")

    def read_events(self):
        """Consumes all new EQEs, arms the EQ, and returns the CQ numbers of the completion events."""
        raise Todo("read EQEs while their phase is new, and count them; then write the EQ doorbell with ARM and the number of consumed EQEs")

    def wait(self):
        """Returns (status, index) of the next CQE. Sleeps until there is one."""
        raise Todo("poll; if the ring is empty, arm and poll again; only then sleep, read the events, and start again")
