# The stages of lab 6. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
import collections
import itertools
import struct

from grade import Fail, expect
from lab import Endpoint, Setup, Timeout, hw

Cq = collections.namedtuple("Cq", "number ring record log_size")
Eq = collections.namedtuple("Eq", "number ring log_size")
VECTOR, EQ_LOG = 1, 4


class Place:
    """A queue pair whose messages the grader sends, and the student's Waiter."""

    def __init__(self, machine, program):
        self.machine, self.setup = machine, Setup(machine)
        self.qp, self.buffer = self.setup.left, machine.mem_alloc(128)
        self.cq = Cq(self.qp.cq, self.qp.cq_ring, self.qp.cq_record, self.qp.cq_log_size)
        self.waiter = program.Waiter(machine, self.cq, Eq(self.setup.eq, self.setup.eq_ring, EQ_LOG))
        machine.accesses.clear()

    def message(self):
        """Sends a message, and returns when its CQE is in memory."""
        self.qp.write(self.buffer, 8, self.buffer + 64)
        place = self.cq.ring + 64 * ((self.qp.posted - 1) % (1 << self.cq.log_size)) + 60
        phase = 1 - (self.qp.posted - 1 >> self.cq.log_size) % 2
        read = self.machine._memory.read                                            # pylint: disable=protected-access
        self.machine.wait_until(lambda: struct.unpack("<I", read(place, 4))[0] >> 31 == phase, "the message of the grader completes")
        self.machine.settle()

    def events(self):
        """Returns the number of EQEs that the device has written, at most one pass of the ring."""
        ring = self.machine._memory.read(self.setup.eq_ring, 16 << EQ_LOG)          # pylint: disable=protected-access
        return sum(ring[16 * number + 15] >> 7 for number in range(1 << EQ_LOG))

    def at_sleep(self, action, number=1):
        """Calls action before the sleep of the program with this number."""
        sleep, count = self.machine.sleep, itertools.count(1)

        def counted(vector):
            if next(count) == number:
                self.machine.sleep = sleep
                action()
            return sleep(vector)
        self.machine.sleep = counted

    def at_request(self, action):
        """Calls action before the next doorbell DB_CQ_ARM of the program, which the device sees before the program continues."""
        write = self.machine.bar_write

        def first(bar, offset, value, size=4):
            if (bar, offset) != (2, 0x18):
                write(bar, offset, value, size)
                return
            self.machine.bar_write = write
            action()
            write(bar, offset, value, size)
            self.machine.settle()
        self.machine.bar_write = first


def stage_1(machine, program):
    """A request for an event."""
    place = Place(machine, program)
    # Two messages, so that the number of consumed CQEs differs from the number of requests.
    for _ in range(2):
        place.message()
        expect(not place.events() and not machine.interrupts(VECTOR), "An event came without a request: the CQ was not armed.")
        place.waiter.poll()
    machine.accesses.clear()
    place.waiter.arm()
    writes = [one for one in machine.accesses if one[0] in ("mem-write", "bar-write")]
    records = [number for number, one in enumerate(writes) if one[0] == "mem-write" and one[2] in (place.cq.record, place.cq.record + 4)]
    bells = [number for number, one in enumerate(writes) if one[0] == "bar-write" and one[1:3] == (2, 0x18)]
    over = [one for one in writes if one.kind == "mem-write" and one.offset + one.size > place.cq.record + 8]
    expect(not over, "arm() writes to memory behind the record of the CQ, which has 8 bytes: two le32.")
    expect(records, f"arm() does not write the record of the CQ (cq.record, {place.cq.record:#x}).")
    expect(bells, "arm() does not write the doorbell DB_CQ_ARM, 8 bytes at offset 0x18 of BAR 2.")
    expect(max(records) < bells[0], "arm() writes the record after the doorbell. The device reads the record when the doorbell arrives, so the record is "
                                    "complete before.")
    got = hw.unpack("cq_record", machine.mem_read(place.cq.record, 8))
    expect(got["consumer"] == 2, f"The record has consumer {got['consumer']}, and not 2: poll() has consumed two CQEs. The order is consumer, sequence.")
    expect(got["sequence"] and not got["solicited"], f"The record has sequence {got['sequence']}, which must differ from the last one (0 at first).")
    bell = writes[bells[0]][3]
    expect(bell == place.cq.number | 2 << 32, f"The doorbell is {bell:#x}, not {place.cq.number | 2 << 32:#x}: CQ number in bits 23:0, consumer index in bits 63:32.")
    machine.settle()
    expect(not place.events(), "The device has written an event, although no CQE is new.")
    place.message()
    expect(place.events() == 1, "The next CQE causes no event, so the CQ was not armed.")
    expect(machine.interrupts(VECTOR) == 1, "The EQE caused no interrupt.")
    place.waiter.poll()
    place.waiter.arm()
    expect(hw.unpack("cq_record", machine.mem_read(place.cq.record, 8))["sequence"] not in (got["sequence"], 0),
           "The second request has the sequence of the first one. The device ignores a repeated sequence.")


def limit_reads(machine):
    """Ends read_events() if it reads more EQEs than the ring has. Returns a function that restarts the count."""
    read, count = machine.mem_read, [0]

    def counted(address, size):
        count[0] += 1
        if count[0] > 1000:
            raise Fail("read_events() reads EQEs without end. In pass 0 through the ring the new EQEs have phase 1, in pass 1 phase 0; in each pass the phase changes.")
        return read(address, size)
    machine.mem_read = counted
    return lambda: count.__setitem__(0, 0)


def rang(place, consumed):
    """Fails unless read_events() has written one EQ doorbell with this number of consumed EQEs."""
    bells = [one.value for one in place.machine.accesses if one.kind == "bar-write" and one[1:3] == (2, 0x20)]
    want = place.setup.eq | 1 << 31 | consumed << 32
    expect(len(bells) == 1, f"read_events() writes {len(bells)} EQ doorbells (offset 0x20) in place of one, which each call needs, also if no EQE is new.")
    expect(bells[0] == want, f"The EQ doorbell is {bells[0]:#x}, not {want:#x}: EQ number in bits 7:0, bit 31 arms, number of consumed EQEs in bits 63:32.")


def several(place):
    """Lets the program read three EQEs by one call: of two other CQs, and of its own. The grader changes the type of the second one."""
    machine, setup, ring = place.machine, place.setup, place.setup.eq_ring
    third = Endpoint(machine, setup.pd, setup.key, setup.eq)
    third.connect(third.number)
    for qp in (setup.right, third):
        machine.mem_write(qp.cq_record, hw.pack("cq_record", consumer=0, sequence=1))
        setup.adapter.doorbell(hw.constant("DB_CQ_ARM"), hw.pack("doorbell", number=qp.cq, index=0))
        qp.write(place.buffer, 8, place.buffer + 64)
        qp.completion()
        machine.settle()
    place.waiter.arm()
    expect(hw.unpack("cq_record", machine.mem_read(place.cq.record, 8))["sequence"], "The first request has sequence 0. The device ignores the request, because 0 is also the previous sequence.")
    place.message()
    expect(place.waiter.poll() == (0, 0), "The skeleton has a correct poll().")
    machine.interrupts(VECTOR)
    other, kind = setup.right.cq, next(one["value"] for one in hw.spec.enums["event"]["values"] if one["name"] == "CQ_ERROR")
    machine.mem_write(ring + 16 + 12, struct.pack("<I", kind | 1 << 31))
    machine.accesses.clear()
    got = place.waiter.read_events()
    expect(len(got) != 1 or place.waiter.events_read != 1, "read_events() reads one EQE, but the ring has three new ones. Read while the phase is new, because one interrupt "
                                                           "stands for all of them.")
    expect(got == [other, place.cq.number], f"read_events() returned {got!r}, not {[other, place.cq.number]}. The ring has three new EQEs: of CQ {other}, of another type "
                                            f"({kind:#x}), and of CQ {place.cq.number}. Return the numbers of the completion events (type 1) only.")
    rang(place, 3)


def stage_2(machine, program):
    """Twenty events."""
    place = Place(machine, program)
    restart = limit_reads(machine)
    got = place.waiter.read_events()
    expect(got == [], f"read_events() returned {got!r} before any event. The ring is zeroed, so the phase bit of its first EQE is 0.")
    rang(place, 0)
    several(place)
    for number in range(1, 20):
        place.waiter.arm()
        place.message()
        came = machine.interrupts(VECTOR)
        expect(came == 1, f"Event {number} caused {came} interrupts. " + (
            "The interrupt disarms the EQ: write the EQ doorbell with bit 31, also if no EQE is new." if not came else
            "An EQ doorbell with an old index arms the EQ for EQEs that were read before."))
        machine.accesses.clear()
        restart()
        got = place.waiter.read_events()
        expect(got == [place.cq.number], f"read_events() returned {got!r} for event {number}, not [{place.cq.number}]. The EQ has {1 << EQ_LOG} EQEs; in each pass "
                                         f"the phase changes, as in a CQ. {'Count the consumed EQEs.' if number else ''}")
        rang(place, number + 3)
        done = place.waiter.poll()
        expect(done == (0, number), f"poll() returned {done!r} after event {number}. The skeleton has a correct poll().")
    expect(not machine.guest_errors(), "The device reports a broken rule.")


def waited(place, number):
    """Calls wait(), which must return completion number. Explains a sleep without end."""
    place.machine.accesses.clear()
    try:
        got = place.waiter.wait()
    except Timeout as error:
        place.machine.settle()
        expect(any(one[0] == "bar-write" and one[1:3] == (2, 0x18) for one in place.machine.accesses),
               "wait() sleeps without a request for an event: call arm() before machine.sleep().")
        expect(all(one.place == VECTOR for one in place.machine.accesses if one.kind == "sleep"), f"wait() sleeps until an interrupt of another vector than {VECTOR}, that of the EQ.")
        read = place.waiter.events_read
        eqe = place.machine.mem_read(place.setup.eq_ring + 16 * (read % (1 << EQ_LOG)), 16)
        expect(eqe[15] >> 7 == (read >> EQ_LOG) % 2, "wait() sleeps forever: the EQ has an event, but its interrupt has passed. Call read_events() after each sleep, because "
                                                     "an interrupt disarms the EQ.")
        ring = place.machine.mem_read(place.cq.ring + 64 * (number % (1 << place.cq.log_size)), 64)
        if ring[63] >> 7 != (number >> place.cq.log_size) % 2:
            raise Fail(f"wait() sleeps forever: CQE {number} is in the ring, but its event has passed. An event stands for all CQEs that are in the ring when "
                       "the device decides on it, and each request has one event. Poll after arming, and sleep only if the ring is empty.") from error
        raise
    expect(got is not None, "wait() returned None after a sleep. An event may come although its CQE has been consumed: start again with poll().")
    expect(got == (0, number), f"wait() returned {got!r}, not {(0, number)}.")


def stage_3(machine, program):
    """Sleep until a completion arrives."""
    place = Place(machine, program)
    for number in range(20):
        place.at_sleep(place.message)
        waited(place, number)
        sleeps = sum(one[0] == "sleep" for one in machine.accesses)
        expect(sleeps == 1, f"wait() called machine.sleep() {sleeps} times for a message that came during the first sleep.")
    expect(not machine.guest_errors(), "The device reports a broken rule.")


def stage_4(machine, program):
    """Two completions, one event."""
    place = Place(machine, program)
    for number in range(0, 12, 3):
        place.message()
        place.message()
        waited(place, number)
        waited(place, number + 1)
        place.at_sleep(place.message)
        waited(place, number + 2)
    expect(not machine.guest_errors(), "The device reports a broken rule.")


def stage_5(machine, program):
    """The arming race."""
    place = Place(machine, program)
    for number in range(12):
        before = place.qp.posted

        def sleep(_):
            raise Fail("A CQE arrived between the last poll and the request, and wait() sleeps. The IB specification promises an event only for a CQE "
                       "that is written after the request. Such an adapter sends no event now, so the program sleeps forever. Poll again after arming.")
        place.at_request(place.message)
        machine.sleep = sleep
        waited(place, number)
        expect(place.qp.posted > before, "wait() returned before it armed the CQ, although the ring was empty.")
        machine.settle()
    # This device sends an event for the last CQE, too. The event ends the next sleep at once, although the ring is empty.
    del machine.sleep
    place.at_sleep(place.message, 2)
    waited(place, 12)
    expect(not machine.guest_errors(), "The device reports a broken rule.")
