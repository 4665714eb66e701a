# A complete driver of the adapter, in user space: from the reset to the last message. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Driver starts the device. Commands is the command queue. EventQueue, CompletionQueue, Region (a memory region with
# its key), QueuePair and ReceiveBuffer are the objects of the device. A program creates them in this order, and
# destroys them in reverse order. scenario.py is such a program.
#
# "cpu" is the machine of zoo.py: configuration space, BARs and interrupts as in the labs, and memory behind a store buffer.
# mem_write() stores into the buffer. The device sees the stores after barrier(). A write to a BAR overtakes the buffer.
# The paragraphs that a comment names are chapters of the manual (spec/manual.rst).
"""A driver for one qrnic."""

import collections
import struct

# PCI: offsets in configuration space and in the BARs (PCI, Registers, Doorbells)
COMMAND, MEMORY_ENABLE, BUS_MASTER = 0x04, 1 << 1, 1 << 2
CAPABILITIES, CAPABILITY_MSIX = 0x34, 0x11
MSIX_ENABLE, MSIX_ENTRY, MSIX_ADDRESS = 1 << 15, 16, 0xfee00000
BAR_CONTROL, BAR_MSIX, BAR_DOORBELL = 0, 1, 2
ID, STATUS, CONTROL = 0x00, 0x08, 0x0c
CMD_BASE_LO, CMD_BASE_HI, CMD_SIZE, CMD_DOORBELL = 0x20, 0x24, 0x28, 0x2c
MAGIC, READY, RESET, CMD_ENABLE = 0x434e5251, 1 << 0, 1 << 0, 1 << 1
DB_SQ, DB_RQ, DB_CQ_ARM, DB_EQ = 0x00, 0x08, 0x18, 0x20

# Commands
ALLOC_PD, FREE_PD, CREATE_EQ, DESTROY_EQ, CREATE_CQ, DESTROY_CQ = 0x12, 0x13, 0x20, 0x21, 0x30, 0x31
CREATE_MKEY, DESTROY_MKEY, CREATE_QP, MODIFY_QP, DESTROY_QP, SET_GID = 0x40, 0x41, 0x50, 0x51, 0x53, 0x60
EQ_ASYNC, EQ_COMPLETION, MKEY_MR, QPT_RC = 1, 2, 1, 2
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 1 << 0, 1 << 1, 1 << 2
INIT, RTR, RTS = 1, 2, 3
MTU_512, MTU_1024 = 2, 3
# Bits of qp_attr.mask: the attributes that each transition needs (Queue pairs)
TO_INIT = 1 << 0 | 1 << 3 | 1 << 4 | 1 << 5                                     # state, access, pkey_index, port
TO_RTR = 1 << 0 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20       # address, MTU, rq_psn, RNR timer, reads, peer
TO_RTS = 1 << 0 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16                # timeout, retries, reads, sq_psn

# WQEs
SEND, SEND_IMM, RDMA_WRITE, RDMA_READ = 0x01, 0x02, 0x04, 0x06
SIGNALED, INLINE = 1 << 0, 1 << 3
BLOCK, SEGMENT, PAGE = 64, 16, 4096

# Sizes of the rings, as log2 of their entries. The CQ has room for all WQEs of both queues of a QP.
LOG_COMMANDS, LOG_ASYNC, LOG_EVENTS, LOG_CQ, LOG_SQ, LOG_RQ = 2, 4, 4, 4, 3, 3

Completion = collections.namedtuple("Completion", "qpn index status syndrome length imm")


class DriverError(Exception):
    """Reports that the device rejected a command, or did something unexpected."""


class Driver:
    """The device: start, interrupts, teardown."""

    def __init__(self, cpu, vectors=2):
        self.cpu = cpu
        # 1. The device must decode its BARs, but must not access memory yet (PCI).
        cpu.config_write(COMMAND, MEMORY_ENABLE, 2)
        if cpu.bar_read(BAR_CONTROL, ID) != MAGIC:
            raise DriverError("the register ID does not read ID_MAGIC")
        # 2. An earlier owner may have left the device running (Reset and initialisation sequence, step 3).
        cpu.bar_write(BAR_CONTROL, CONTROL, RESET)
        cpu.wait_until(lambda: cpu.bar_read(BAR_CONTROL, STATUS) & READY, "STATUS.READY")
        cpu.config_write(COMMAND, MEMORY_ENABLE | BUS_MASTER, 2)
        # 3. Interrupts, the command queue, the queue for events of commands and errors, the protection domain.
        self.enable_interrupts(vectors)
        self.commands = Commands(cpu)
        self.async_events = EventQueue(self, EQ_ASYNC, 0, LOG_ASYNC)
        self.commands.events = self.async_events
        self.events = EventQueue(self, EQ_COMPLETION, 1, LOG_EVENTS)
        self.pd = self.commands.execute(ALLOC_PD)

    def enable_interrupts(self, vectors):
        """Writes the MSI-X table, and sets MSI-X Enable."""
        at = self.cpu.config_read(CAPABILITIES, 1)
        while self.cpu.config_read(at, 1) != CAPABILITY_MSIX:
            at = self.cpu.config_read(at + 1, 1)
            if not at:
                raise DriverError("the device has no MSI-X capability")
        self.cpu.connect_interrupts(vectors)
        for vector in range(vectors):
            # Address, data, and vector control, whose bit 0 masks the vector.
            for offset, value in ((0, MSIX_ADDRESS), (4, 0), (8, vector), (12, 0)):
                self.cpu.bar_write(BAR_MSIX, MSIX_ENTRY * vector + offset, value)
        self.cpu.config_write(at + 2, MSIX_ENABLE, 2)

    def set_address(self, gid, mac):
        """Adds an address of the interface, which connections use as their source."""
        self.gid, self.mac = gid, mac
        self.commands.execute(SET_GID, 0, struct.pack("<16s6sHB7x", gid, mac, 0, 1))

    def doorbell(self, offset, number, index, flags=0):
        """Writes a doorbell of page 0: one write of 64 bits."""
        self.cpu.bar_write(BAR_DOORBELL, offset, number | flags | (index & 0xffffffff) << 32, 8)

    def close(self):
        """Destroys the objects of the constructor. The program has destroyed all others."""
        self.commands.execute(FREE_PD, self.pd)
        self.commands.execute(DESTROY_EQ, self.events.number)
        self.commands.events = None         # because no event can report the next command
        self.commands.execute(DESTROY_EQ, self.async_events.number)
        self.cpu.bar_write(BAR_CONTROL, CONTROL, 0)


class Commands:
    """The command queue (Commands)."""

    def __init__(self, cpu):
        self.cpu, self.events = cpu, None
        self.producer = 0                   # counter of commands
        self.ring = cpu.mem_alloc(BLOCK << LOG_COMMANDS)
        self.mailbox = cpu.mem_alloc(PAGE, PAGE)
        for register, value in ((CMD_BASE_LO, self.ring & 0xffffffff), (CMD_BASE_HI, self.ring >> 32), (CMD_SIZE, LOG_COMMANDS),
                                (CONTROL, CMD_ENABLE)):
            cpu.bar_write(BAR_CONTROL, register, value)

    def execute(self, opcode, number=0, data=b""):
        """Executes a command for object number with the input data; returns its result, which may be a new number."""
        place = self.ring + BLOCK * (self.producer % (1 << LOG_COMMANDS))
        event = 1 if self.events else 0
        self.cpu.mem_write(self.mailbox, data)
        self.cpu.mem_write(place, struct.pack("<HHIQQIIQQIIII", opcode, self.producer & 0xffff, number, self.mailbox if data else 0, 0,
                                              len(data), 0, 0, 0, 0, 0, 0, event << 30 | 1 << 31))
        self.producer += 1
        self.cpu.barrier()                  # barrier 5: the entry before the doorbell
        self.cpu.bar_write(BAR_CONTROL, CMD_DOORBELL, self.producer)
        self.cpu.wait_until(lambda: not self.control(place) >> 31, f"the completion of command {opcode:#x}")
        if self.events:
            self.events.collect()
        result, syndrome = struct.unpack("<II", self.cpu.mem_read(place + 48, 8))
        status = self.control(place) & 0xff
        if status:
            raise DriverError(f"command {opcode:#x} fails with status {status:#x}, syndrome {syndrome:#x}")
        return result

    def control(self, place):
        return struct.unpack("<I", self.cpu.mem_read(place + 60, 4))[0]


class EventQueue:
    """An event queue with an interrupt vector (Completion and events)."""

    def __init__(self, driver, kind, vector, log_size):
        self.cpu, self.driver, self.vector, self.log_size = driver.cpu, driver, vector, log_size
        self.consumer = 0                   # counter of consumed EQEs
        self.ring = self.cpu.mem_alloc(16 << log_size, PAGE)
        self.number = driver.commands.execute(CREATE_EQ, 0, struct.pack("<BBHI", kind, log_size, vector, 0) + contiguous(self.ring) + bytes(40))
        self.arm()

    def arm(self):
        """Returns the consumed EQEs to the device, and requests an interrupt for the next EQE."""
        self.driver.doorbell(DB_EQ, self.number, self.consumer, 1 << 31)

    def collect(self):
        """Consumes all new EQEs; returns [(type, subtype, object)]."""
        found = []
        while True:
            place = self.ring + 16 * (self.consumer % (1 << self.log_size))
            number, _, _, control = struct.unpack("<IIII", self.cpu.mem_read(place, 16))
            # The device inverts the phase in each pass through the ring.
            if control >> 31 == (self.consumer >> self.log_size & 1):
                break
            found.append((control & 0xff, control >> 8 & 0xff, number))
            self.consumer += 1
        if found:
            self.arm()
        return found

    def wait(self):
        """Waits for an interrupt; returns the events."""
        self.cpu.wait_until(lambda: self.cpu.interrupts(self.vector), f"an interrupt of vector {self.vector}")
        return self.collect()


class CompletionQueue:
    """A completion queue with its record (Completion and events)."""

    def __init__(self, driver):
        self.driver, self.cpu = driver, driver.cpu
        self.consumer, self.sequence = 0, 0         # counter of consumed CQEs; counter of requests for an event
        self.found = collections.deque()            # consumed CQEs that the program has not asked for yet
        self.pairs = {}                             # {number: QueuePair}
        self.ring, self.record = self.cpu.mem_alloc(BLOCK << LOG_CQ, PAGE), self.cpu.mem_alloc(8, 8)
        self.number = driver.commands.execute(CREATE_CQ, 0, struct.pack("<IIBB6xQ", driver.events.number, 0, LOG_CQ, 0, self.record) +
                                              contiguous(self.ring) + bytes(24))

    def reap(self):
        """Consumes all new CQEs; returns true if the program has a completion to read."""
        while True:
            place = self.ring + BLOCK * (self.consumer % (1 << LOG_CQ))
            control = struct.unpack("<I", self.cpu.mem_read(place + 60, 4))[0]
            if control >> 31 == (self.consumer >> LOG_CQ & 1):
                break
            self.cpu.barrier()              # barrier 6: control before the rest
            index, qpn, length = struct.unpack("<III", self.cpu.mem_read(place, 12))
            imm, = struct.unpack(">I", self.cpu.mem_read(place + 12, 4))
            syndrome, = struct.unpack("<I", self.cpu.mem_read(place + 56, 4))
            done = Completion(qpn, index, control & 0xff, syndrome, length, imm)
            self.pairs[qpn].completed(done, receive=bool(control >> 15 & 1))
            self.found.append(done)
            self.consumer += 1
            self.cpu.barrier()              # barrier 7: the CQE is read before the device may overwrite it
            self.cpu.mem_write(self.record, struct.pack("<I", self.consumer))
        return bool(self.found)

    def poll(self):
        """Returns the next completion. Polls memory; needs no interrupt."""
        self.cpu.wait_until(self.reap, f"a completion in CQ {self.number}")
        return self.found.popleft()

    def arm(self):
        """Requests an event for the next CQE that no earlier event covers."""
        self.sequence = (self.sequence + 1) % (1 << 31)
        self.cpu.mem_write(self.record, struct.pack("<II", self.consumer, self.sequence))
        self.cpu.barrier()                  # barrier 8: the record before the doorbell
        self.driver.doorbell(DB_CQ_ARM, self.number, self.consumer)

    def wait(self):
        """Returns the next completion. Sleeps until an interrupt, and then reads the ring until it is empty."""
        while not self.found:
            self.arm()
            self.driver.events.wait()       # an event of another CQ ends the wait, too
            self.reap()
        return self.found.popleft()

    def destroy(self):
        self.driver.commands.execute(DESTROY_CQ, self.number)


class Region:
    """Registered memory: pages anywhere in memory, a page list, and a key (Memory)."""

    count = 0

    def __init__(self, driver, length, access=0, offset=0):
        """Registers length bytes that begin at an offset in their first page."""
        self.driver, self.cpu, self.length, self.offset = driver, driver.cpu, length, offset
        Region.count += 1
        self.address = (Region.count << 32) + offset        # IOVA: the address in WQEs; any number is possible
        self.pages = [self.cpu.mem_alloc(PAGE, PAGE) for _ in range((offset + length + PAGE - 1) // PAGE)]
        self.pages.reverse()                                # so that no page follows the one before it
        table = self.cpu.mem_alloc(8 * len(self.pages), 8)
        for number, page in enumerate(self.pages):
            self.cpu.mem_write(table + 8 * number, struct.pack("<Q", page))
        # The variant protects against keys of an earlier owner of the index.
        variant = 0x5a
        self.index = driver.commands.execute(CREATE_MKEY, 0, struct.pack("<BBBBIQQ", MKEY_MR, access, variant, 0, driver.pd, self.address, length) +
                                             struct.pack("<QII", table, 1 | 12 << 8, offset) + bytes(24))
        self.key = self.index << 8 | variant

    def pieces(self, at, size):
        """Yields (bus address, size) of the bytes of the region."""
        at += self.offset
        while size:
            part = min(size, PAGE - at % PAGE)
            yield self.pages[at // PAGE] + at % PAGE, part
            at, size = at + part, size - part

    def write(self, at, data):
        for place, size in self.pieces(at, len(data)):
            self.cpu.mem_write(place, data[:size])
            data = data[size:]

    def read(self, at, size):
        return b"".join(self.cpu.mem_read(place, part) for place, part in self.pieces(at, size))

    def destroy(self):
        self.driver.commands.execute(DESTROY_MKEY, self.index)


class QueuePair:
    """A reliable connection (Queue pairs, Work queues and WQEs)."""

    def __init__(self, driver, cq, mtu, psn):
        self.driver, self.cpu, self.cq, self.mtu, self.psn = driver, driver.cpu, cq, mtu, psn
        self.sq, self.rq = self.cpu.mem_alloc(BLOCK << LOG_SQ, PAGE), self.cpu.mem_alloc(BLOCK << LOG_RQ, PAGE)
        self.sq_record, self.rq_record = self.cpu.mem_alloc(8, 8), self.cpu.mem_alloc(8, 8)
        self.create()

    def create(self):
        """Creates the queue pair with empty queues. The rings and records may be those of a destroyed queue pair."""
        self.posted, self.done, self.received = 0, 0, 0     # blocks posted, blocks done, receive WQEs posted
        self.sent = collections.deque()                     # (index, blocks) of the posted send WQEs
        self.cpu.mem_write(self.sq_record, bytes(8))
        self.cpu.mem_write(self.rq_record, bytes(8))
        self.number = self.driver.commands.execute(CREATE_QP, 0, struct.pack(
            "<BBBBIIIIIQQ", QPT_RC, LOG_SQ, LOG_RQ, 0, self.driver.pd, self.cq.number, self.cq.number, 0, 0, self.sq_record, self.rq_record) +
            contiguous(self.sq) + contiguous(self.rq) + bytes(56))
        self.cq.pairs[self.number] = self

    def modify(self, mask, state, address=bytes(32), mtu=0, access=0, timeout=0, retries=0, rnr=0, reads=0, port=0, peer=0, sq_psn=0, rq_psn=0):
        # Requester: reads are max_rd_atomic. Responder: reads are max_dest_rd_atomic, and rnr is the RNR timer.
        requester = state == RTS
        self.driver.commands.execute(MODIFY_QP, self.number, struct.pack(
            "<IBBBBBBBBBBBBIIIIHHI", mask, state, 0, mtu, access, timeout, retries, rnr * requester, rnr * (not requester), reads * requester,
            reads * (not requester), port, 0, peer, sq_psn, rq_psn, 0, 0, 0, 0) + address + bytes(56))

    def connect(self, peer):
        """Moves the queue pair to RTS, connected to the peer."""
        mtu = min(self.mtu, peer.mtu)
        address = struct.pack("<16sHH6sBBI", peer.driver.gid, 0, 0, peer.driver.mac, 0, 64, 0)
        self.modify(TO_INIT, INIT, access=REMOTE_WRITE | REMOTE_READ, port=1)
        self.modify(TO_RTR, RTR, address=address, mtu=mtu, peer=peer.number, rq_psn=peer.psn, reads=1, rnr=1)
        self.modify(TO_RTS, RTS, timeout=18, retries=7, rnr=6, sq_psn=self.psn, reads=1)

    def post(self, opcode, segments, imm=0, inline=b"", ring=True):
        """Posts a send WQE. Without ring, the caller calls ring() after the last WQE of a batch."""
        count = 1 + len(segments) // SEGMENT + (len(inline) + SEGMENT - 1) // SEGMENT
        blocks = (count * SEGMENT + BLOCK - 1) // BLOCK
        if self.posted + blocks - self.done > 1 << LOG_SQ:
            self.ring()
            self.cpu.wait_until(lambda: self.cq.reap() and self.posted + blocks - self.done <= 1 << LOG_SQ, f"room in the SQ of QP {self.number}")
        flags = SIGNALED | (INLINE if inline else 0)
        wqe = struct.pack("<II", opcode | flags << 8 | count << 16, self.posted) + struct.pack(">I", imm) + struct.pack("<I", len(inline))
        wqe += segments + inline
        for block in range(blocks):
            # A WQE may wrap around the end of the ring.
            self.cpu.mem_write(self.sq + BLOCK * ((self.posted + block) % (1 << LOG_SQ)), wqe[BLOCK * block:BLOCK * (block + 1)])
        self.sent.append((self.posted, blocks))
        self.posted += blocks
        if ring:
            self.ring()

    def ring(self):
        """Makes the posted WQEs visible: record, then doorbell."""
        self.cpu.barrier()                  # barrier 1: the WQEs before the record
        self.cpu.mem_write(self.sq_record, struct.pack("<I", self.posted))
        self.cpu.barrier()                  # barrier 2: the record before the doorbell
        self.driver.doorbell(DB_SQ, self.number, self.posted)

    def send(self, region, at, length):
        self.post(SEND, data_segment(region, at, length))

    def send_inline(self, data, imm):
        """Sends up to 256 bytes that the WQE itself contains; they need no key."""
        self.post(SEND_IMM, b"", imm, data)

    def write(self, region, at, length, target, to, ring=True):
        """Writes bytes of a region to byte "to" of the peer's region target."""
        self.post(RDMA_WRITE, remote_segment(target, to) + data_segment(region, at, length), ring=ring)

    def read(self, region, at, length, source, start):
        """Reads bytes of the peer's region source into a region."""
        self.post(RDMA_READ, remote_segment(source, start) + data_segment(region, at, length))

    def post_receive(self, region, at, length):
        wqe = struct.pack("<IIII", 1, self.received, 0, 0) + data_segment(region, at, length)
        self.cpu.mem_write(self.rq + BLOCK * (self.received % (1 << LOG_RQ)), wqe)
        self.received += 1
        self.cpu.barrier()
        self.cpu.mem_write(self.rq_record, struct.pack("<I", self.received))
        self.cpu.barrier()
        self.driver.doorbell(DB_RQ, self.number, self.received)

    def completed(self, done, receive):
        """Frees the blocks of a send WQE, and of all WQEs before it."""
        if receive:
            return
        if not any(index == done.index for index, _ in self.sent):
            raise DriverError(f"a CQE of QP {self.number} has index {done.index}, but no such WQE is outstanding")
        while self.done <= done.index:
            index, blocks = self.sent.popleft()
            self.done = index + blocks

    def destroy(self):
        self.driver.commands.execute(DESTROY_QP, self.number)
        del self.cq.pairs[self.number]

    def renew(self):
        """Replaces the queue pair by a new one, as after an error. The new one has another number."""
        self.destroy()
        self.create()


class ReceiveBuffer:
    """Memory for one message, registered while the device may write to it."""

    def __init__(self, pair, length):
        self.pair, self.region = pair, Region(pair.driver, length, LOCAL_WRITE)
        pair.post_receive(self.region, 0, length)

    def finish(self):
        """Waits for the message; returns its completion and its bytes."""
        done = self.pair.cq.poll()
        self.region.destroy()
        return done, self.region.read(0, done.length)


def contiguous(address):
    """Returns a translation of levels 0: the ring is contiguous at a bus address."""
    return struct.pack("<QII", address, 0, 0)


def data_segment(region, at, length):
    return struct.pack("<QII", region.address + at, length, region.key)


def remote_segment(region, at):
    return struct.pack("<QII", region.address + at, region.key, 0)
