# The stages of lab 12. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Each rank is a device process of its own. Switch is the network: a thread that forwards each frame to the device with its
# destination MAC address. A stage can delay the frames of one queue pair.
import collections
import concurrent.futures
import select
import struct
import threading

from grade import Fail, expect
from lab import Bench, Endpoint, Machine, Setup, hw

RANKS, CHUNK = 4, 2048
SLOT, SLOTS = 32, 8
LOG = 6                         # log2 of the size of each ring
ROOM = 16                       # WQEs that may be outstanding
BENCHES = []                    # of the ranks; the first one is that of the grader


def mac_of(number):
    return f"52540000000{1 + number}"


def address_of(number):
    return f"10.0.0.{1 + number}"


class Switch:
    """Forwards frames between the devices."""

    def __init__(self, benches):
        self.benches = {bytes.fromhex(mac_of(number)): bench for number, bench in enumerate(benches)}
        self.waiting = {mac: collections.deque() for mac in self.benches}
        self.lock, self.delayed, self.delay_of, self.ended = threading.Lock(), [], None, False
        self.forwarded = collections.Counter()          # frames by destination: MAC address and queue pair
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    @staticmethod
    def place(frame):
        """Returns the MAC address and the queue pair that a RoCE frame goes to."""
        return frame[:6], int.from_bytes(frame[47:50], "big")

    def delay(self, number, qp):
        """Delays the frames for a queue pair of a rank from now on; with None, forwards the delayed frames."""
        with self.lock:
            self.delay_of = (bytes.fromhex(mac_of(number)), qp) if qp is not None else None
            if qp is None:
                for frame in self.delayed:
                    self.waiting[frame[:6]].append(frame)
                self.delayed.clear()

    def run(self):
        while not self.ended:
            busy = any(self.waiting.values())
            select.select([bench.wire for bench in self.benches.values()], [], [], 0.001 if busy else 0.02)
            with self.lock:
                for bench in self.benches.values():
                    for frame in iter(bench.receive, None):
                        if frame[:6] not in self.benches:
                            continue
                        if self.place(frame) == self.delay_of:
                            self.delayed.append(frame)
                        else:
                            self.waiting[frame[:6]].append(frame)
                for mac, frames in self.waiting.items():
                    try:
                        while frames:
                            self.benches[mac].send(frames[0])
                            self.forwarded[self.place(frames.popleft())] += 1
                    except BlockingIOError:
                        pass

    def close(self):
        self.ended = True
        self.thread.join()


class Queue:
    """A queue pair, as a student uses it."""

    def __init__(self, rank):
        setup = rank.setup
        self.rank, self.end = rank, Endpoint(rank.machine, setup.pd, setup.key, setup.eq, log_size=LOG, cq_log_size=LOG + 1)
        self.number, self.posted, self.sent, self.receives = self.end.number, 0, 0, 0
        self.arrived, self.calls, self.bytes = collections.deque(), [], 0

    def connect(self, peer):
        self.end.connect(peer.number, address_of(peer.rank.number), mac_of(peer.rank.number), timeout=0)

    def write(self, source, length, target, rkey):
        """Posts an RDMA write."""
        self.calls.append(("write", source, length, target, rkey))
        self._post("RDMA_WRITE", 0, source, length, target, rkey)

    def write_imm(self, source, length, target, rkey, imm):
        """Posts an RDMA write with immediate."""
        self.calls.append(("write_imm", source, length, target, rkey, imm))
        self._post("RDMA_WRITE_IMM", imm, source, length, target, rkey)

    def post_receive(self):
        """Posts a receive WQE without data segments."""
        self.calls.append(("receive",))
        memory = self.rank.machine._memory      # pylint: disable=protected-access  # the grader's access is not the student's
        memory.write(self.end.rq + 64 * (self.receives % (1 << LOG)), hw.pack("recv_ctrl", index=self.receives))
        self.receives += 1
        memory.write(self.end.rq_record, hw.pack("queue_record", producer=self.receives))
        self._ring("DB_RQ", self.receives)

    def received(self):
        """Returns the immediate of the next message, or None."""
        self._poll()
        return self.arrived.popleft() if self.arrived else None

    def flush(self):
        """Returns when all WQEs of the send queue are complete."""
        self.rank.machine.wait_until(lambda: self._poll() or self.sent == self.posted, "the packets arrive")

    def _ring(self, doorbell, index):
        self.rank.setup.adapter.doorbell(hw.constant(doorbell), hw.pack("doorbell", number=self.number, index=index))

    def _post(self, opcode, imm, source, length, target, rkey):
        for name, value in (("source", source), ("length", length), ("target", target), ("rkey", rkey), ("imm", imm)):
            expect(isinstance(value, int) and 0 <= value < 1 << 64, f"{opcode}: {name} is {value!r}, and not a number.")
        expect(length < 1 << 20 and rkey < 1 << 32 and imm < 1 << 32, f"{opcode}: the length {length:#x}, the rkey {rkey:#x} or the immediate {imm:#x} is too large.")
        self.rank.machine.wait_until(lambda: self._poll() or self.posted - self.sent < ROOM, "the send queue is full")
        data = hw.pack("data_seg", address=source, length=length, lkey=self.rank.key) if length else b""
        raw = hw.pack("sq_ctrl", opcode=opcode, flags=["SIGNALED"], segments=3 if data else 2, index=self.posted, imm=imm) + hw.pack("remote_seg", address=target, rkey=rkey) + data
        memory = self.rank.machine._memory      # pylint: disable=protected-access  # the grader's access is not the student's
        memory.write(self.end.sq + 64 * (self.posted % (1 << LOG)), raw)
        self.posted += 1
        self.bytes += length
        memory.write(self.end.sq_record, hw.pack("queue_record", producer=self.posted))
        self._ring("DB_SQ", self.posted)

    def _poll(self):
        memory, end = self.rank.machine._memory, self.end       # pylint: disable=protected-access  # the grader's access is not the student's
        while True:
            entry = hw.unpack("cqe", memory.read(end.cq_ring + 64 * (end.consumed % (2 << LOG)), 64))
            if entry["phase"] == (end.consumed >> LOG + 1) % 2:
                return False
            end.consumed += 1
            memory.write(end.cq_record, struct.pack("<I", end.consumed))
            if entry["status"]:
                raise Fail(f"Rank {self.rank.number}: a {'receive' if entry['opcode'] & 0x80 else 'send'} WQE completed with status {entry['status']:#x}, syndrome {entry['syndrome']:#x} "
                           "(chapter Completion and events). Status 0x09 and 0x0a: a wrong address or rkey.")
            if entry["opcode"] & 0x80:
                self.arrived.append(entry["imm"])
            else:
                self.sent += 1


class Rank:
    """A process of the job, with a device of its own."""

    def __init__(self, number, machine):
        self.number, self.machine = number, machine
        self.setup = Setup(self.machine, connected=False, address=address_of(number), mac=mac_of(number))
        self.key = self.setup.key
        self.buffer, self.scratch = self.alloc(CHUNK * RANKS), self.alloc(CHUNK)
        self.sender = self.receiver = None

    def __repr__(self):
        return f"<rank {self.number}>"

    def alloc(self, size):
        """Returns the address of zeroed memory."""
        return self.machine.mem_alloc(size)

    def read(self, address, size):
        return self.machine.mem_read(address, size)

    def write(self, address, data):
        self.machine.mem_write(address, data)

    def wait_until(self, condition, text):
        """Calls condition until its result is true."""
        return self.machine.wait_until(condition, text)


class Place:
    """Ranks, their switch, and pairs of queue pairs."""

    def __init__(self, machine, count):
        if not BENCHES:
            BENCHES.append(machine._bench)              # pylint: disable=protected-access  # the grader's access is not the student's
        missing = range(len(BENCHES), count)
        with concurrent.futures.ThreadPoolExecutor(RANKS) as pool:
            BENCHES.extend(pool.map(lambda number: Bench(mac=mac_of(number)), missing))
        for bench in BENCHES:
            while bench.receive():
                pass
        self.machines = [machine] + [Machine(bench) for bench in BENCHES[1:count]]
        self.ranks = [Rank(*one) for one in enumerate(self.machines)]
        self.switch = Switch(BENCHES[:count])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.switch.close()
        for machine in self.machines[1:]:
            machine.close()

    def pair(self, source, target):
        """Returns two queue pairs that are connected to each other, one of each rank."""
        one, other = Queue(self.ranks[source]), Queue(self.ranks[target])
        one.connect(other)
        other.connect(one)
        return one, other

    def connection(self, program, source, target):
        """Connects two ranks by the student's classes."""
        from_, to = self.ranks[source], self.ranks[target]
        one, other = self.pair(source, target)
        fifo = from_.alloc(SLOT * SLOTS)
        from_.sender = program.Sender(from_, one, fifo)
        to.receiver = program.Receiver(to, other, fifo, from_.key)
        return one, other, fifo


def slot(rank, fifo, index):
    """Returns a slot of a FIFO: address, rkey, size, index."""
    address, rkey, size, _, found = struct.unpack("<QIIQQ", rank.read(fifo + SLOT * (index % SLOTS), SLOT))
    return address, rkey, size, found


def stage_1(machine, program):
    """A credit."""
    raw = program.entry(0x1122334455667788, 0x99aabbcc, 4096, 3)
    expect(isinstance(raw, bytes) and len(raw) == SLOT, f"entry() returned {raw!r}, and not 32 bytes.")
    for name, start, end, want in (("address", 0, 8, 0x1122334455667788), ("rkey", 8, 12, 0x99aabbcc), ("size", 12, 16, 4096), ("reserved", 16, 24, 0), ("index", 24, 32, 3)):
        got = int.from_bytes(raw[start:end], "little")
        expect(got == want, f"entry(): {name}, at offset {start}, is {got:#x} in place of {want:#x}.")
    with Place(machine, 2) as place:
        one, other, fifo = place.connection(program, 0, 1)
        sender, receiver = place.ranks
        for number in range(11):
            receiver.receiver.post(receiver.buffer + 64 * number, 64 + number)
            calls = [call[0] for call in other.calls]
            expect("receive" in calls, "post() posts no receive WQE. A write with immediate consumes one at the receiver.")
            expect("write" in calls, "post() does not write the entry to the FIFO of the sender.")
            expect(calls == ["receive", "write"], f"post() calls {', '.join(calls)}. The receive WQE comes first, because the sender may answer as soon as the credit arrives.")
            other.calls.clear()
            want = (receiver.buffer + 64 * number, receiver.key, 64 + number, number + 1)

            def arrived(number=number, want=want):
                one.received()
                other.received()
                return slot(sender, fifo, number) == want or other.sent > number
            receiver.wait_until(arrived, "the entry arrives at the sender")
            got = slot(sender, fifo, number)
            expect(got == want, f"Credit {number + 1}: slot {number % SLOTS} of the FIFO has address {got[0]:#x}, rkey {got[1]:#x}, size {got[2]}, index {got[3]}; not address {want[0]:#x}, rkey "
                                f"{want[1]:#x}, size {want[2]}, index {want[3]}. The first index is 1, and slot index - 1 modulo 8 follows slot 7 again.")


def stage_2(machine, program):
    """Find the credit."""
    with Place(machine, 2) as place:
        _, _, fifo = place.connection(program, 0, 1)
        rank = place.ranks[0]
        got = rank.sender.credit()
        expect(got is None, f"credit() returned {got!r} although the FIFO is empty: without an entry of index 1 it returns None.")
        rank.write(fifo, struct.pack("<QIIQQ", 0x5000, 77, 100, 0, 1))
        for _ in range(2):
            got = rank.sender.credit()
            expect(got == (0x5000, 77, 100), f"credit() returned {got!r}, not (0x5000, 77, 100). A second call returns the same credit, because only send() consumes it.")
        rank.write(fifo, struct.pack("<QIIQQ", 0x5000, 77, 100, 0, 0))
        rank.write(fifo + SLOT, struct.pack("<QIIQQ", 0x6000, 77, 100, 0, 2))
        got = rank.sender.credit()
        expect(got is None, f"credit() returned {got!r}. The next credit has index 1, and index 2 is a later one.")
        rank.write(fifo, struct.pack("<QIIQQ", 0x5000, 77, 100, 0, 9))
        got = rank.sender.credit()
        expect(got is None, f"credit() returned {got!r} for a slot with index 9: its index must be exactly the next one, here 1.")


def message(number, size):
    return bytes((number * 37 + 11 * position + 1) % 251 for position in range(size))


def stage_3(machine, program):
    """Write, then write with immediate."""
    with Place(machine, 2) as place:
        one = place.connection(program, 0, 1)[0]
        sender, receiver = place.ranks
        expect(receiver.receiver.done() is None, "done() of the receiver returns a size before a message was sent.")
        got = sender.sender.send(sender.buffer, 64)
        expect(got is False, f"send() returned {got!r} without a credit, and not False.")
        expect(not one.calls, "send() posted a WQE without a credit. The address of the receiver is unknown.")
        for number in range(20):
            size, room = 16 + 300 * (number % 5), 4096 if number % 4 else 100
            data, target = message(number, size), receiver.buffer + 64 * (number % 3)
            expect(sender.sender.send(sender.buffer, size) is False, f"send() sent message {number + 1} without a new credit. The slot has an old entry: its index must be exactly the next one.")
            receiver.write(receiver.buffer, bytes(8192))
            sender.write(sender.buffer, data)
            receiver.receiver.post(target, room)
            one.calls.clear()
            sender.wait_until(lambda size=size: sender.sender.send(sender.buffer, size), "send() finds the credit and returns true")
            calls = [call[0] for call in one.calls]
            expect(calls == ["write", "write_imm"], f"send() calls {', '.join(calls) or 'nothing'}: first write() with the data, then write_imm() with the size as the immediate.")
            sent = min(size, room)
            expect(one.calls[0][2] == sent, f"The message has {size} bytes, and the buffer of the receiver {room}: send() wrote {one.calls[0][2]} bytes, not {sent}.")
            got = receiver.wait_until(receiver.receiver.done, "done() of the receiver returns the size")
            expect(got == sent, f"done() returned {got}, not {sent}: the immediate is the size of the message.")
            expect(receiver.read(target, sent + 8) == data[:sent] + bytes(8), f"Message {number + 1} is not in the buffer of the receiver when done() returns its size.")
            expect(receiver.receiver.done() is None, "done() returns a second message, but only one was sent.")


def ring(place, program):
    """Connects all ranks in a ring, and returns the queue pairs that send data."""
    return [place.connection(program, number, (number + 1) % RANKS)[0] for number in range(RANKS)]


def data_sent(queues):
    return [queue.bytes for queue in queues]


def stage_4(machine, program):
    """All-gather."""
    with Place(machine, RANKS) as place:
        queues = ring(place, program)
        want = b"".join(message(number, CHUNK) for number in range(RANKS))
        for rank in place.ranks:
            rank.write(rank.buffer + CHUNK * rank.number, want[CHUNK * rank.number:CHUNK * (rank.number + 1)])
        program.all_gather(place.ranks, CHUNK)
        for rank in place.ranks:
            for number in range(RANKS):
                got = rank.read(rank.buffer + CHUNK * number, CHUNK)
                text = "is empty" if not any(got) else next((f"has the data of chunk {other}" for other in range(RANKS) if got == message(other, CHUNK)), "is damaged")
                expect(got == message(number, CHUNK), f"Rank {rank.number}: chunk {number} {text}. In step s rank n sends chunk n - s and receives chunk n - s - 1, modulo {RANKS}.")
        got = data_sent(queues)
        expect(got == [(RANKS - 1) * CHUNK] * RANKS, f"The ranks sent {got} bytes of data, not {(RANKS - 1) * CHUNK} each: {RANKS - 1} steps with one chunk.")


def stage_5(machine, program):
    """All-reduce."""
    with Place(machine, RANKS) as place:
        queues = ring(place, program)
        values = [[(rank.number + 1 << 40) + 1000 * rank.number + position for position in range(CHUNK * RANKS // 8)] for rank in place.ranks]
        for rank in place.ranks:
            rank.write(rank.buffer, struct.pack(f"<{len(values[0])}Q", *values[rank.number]))
        program.all_reduce(place.ranks, CHUNK)
        for rank in place.ranks:
            got = struct.unpack(f"<{len(values[0])}Q", rank.read(rank.buffer, CHUNK * RANKS))
            for position, number in enumerate(got):
                want = sum(one[position] for one in values)
                expect(number == want, f"Rank {rank.number}: number {position % (CHUNK // 8)} of chunk {position // (CHUNK // 8)} is {number}, not {want}. In step s of the first half rank n sends chunk n - s, and "
                                       "adds what it receives to chunk n - s - 1. Then rank n has the complete chunk n + 1.")
        got = data_sent(queues)
        want = 2 * (RANKS - 1) * CHUNK
        expect(got == [want] * RANKS, f"The ranks sent {got} bytes of data, not {want} each.")
        for count, chunk in ((RANKS, CHUNK), (2, 100), (64, 4096)):
            got = program.traffic(count, chunk)
            expect(got == ((count - 1) * chunk, 2 * (count - 1) * chunk), f"traffic({count}, {chunk}) returned {got!r}. Your programs send {(RANKS - 1) * CHUNK} and {want} bytes with {RANKS} ranks and chunks of "
                                                                          f"{CHUNK} bytes.")


def split(place):
    """Returns two pairs of queue pairs between ranks 0 and 1, (sender's, receiver's). A receive WQE is posted on each."""
    pairs = [place.pair(0, 1) for _ in range(2)]
    for _, other in pairs:
        other.post_receive()
    sender, receiver = place.ranks
    sender.write(sender.buffer, message(5, CHUNK))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs], (receiver.buffer, receiver.key, CHUNK)


def stage_6(machine, program):
    """A data race."""
    with Place(machine, 2) as place:
        mine, theirs, credit = split(place)
        sender, receiver = place.ranks
        place.switch.delay(1, theirs[0].number)
        program.send_wrong(mine, credit, sender.buffer, CHUNK)
        size = receiver.wait_until(theirs[1].received, "the immediate arrives")
        expect(size == CHUNK and receiver.read(receiver.buffer, CHUNK) == bytes(CHUNK), "send_wrong() was changed: the immediate should arrive before the data. Restore it from the skeleton.")
        place.switch.delay(1, None)
        mine[0].flush()
        expect(receiver.read(receiver.buffer, CHUNK) == message(5, CHUNK), "The data does not arrive. send_wrong() was changed: restore it from the skeleton.")


def stage_7(machine, program):
    """Two queue pairs."""
    with Place(machine, 2) as place:
        sender, receiver = place.ranks
        for late in (0, 1):
            receiver.write(receiver.buffer, bytes(CHUNK))
            mine, theirs, credit = split(place)
            waiting = program.SplitReceiver(theirs)
            place.switch.delay(1, theirs[late].number)
            program.send_split(mine, credit, sender.buffer, CHUNK)
            counts = [queue.bytes for queue in mine]
            expect(counts == [CHUNK // 2] * 2, f"send_split() wrote {counts} bytes on the two queue pairs, not {CHUNK // 2} on each.")
            mine[1 - late].flush()
            receiver.machine.settle()
            for _ in range(3):
                got = waiting.done()
                expect(got is None, f"The switch delays the packets of queue pair {late}, but done() returned {got!r}: {receiver.read(receiver.buffer, CHUNK).count(0)} bytes of the buffer are still old. An "
                                    "immediate follows only the data of its own queue pair, so each queue pair needs one, and done() waits for both.")
            place.switch.delay(1, None)
            got = receiver.wait_until(waiting.done, "done() of the SplitReceiver returns the size")
            expect(got == CHUNK, f"done() returned {got!r}, not {CHUNK}: the sum of both parts.")
            expect(receiver.read(receiver.buffer, CHUNK) == message(5, CHUNK), "The data is not complete. The second half of the message goes to the second half of the buffer.")
