# The stages of lab 9. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
import collections
import random
import struct
import time

import driver
from grade import expect
from lab import ADDRESS, MAC, Bench, Endpoint, Machine, Setup, Transaction, hw

ENTRIES, LATENCY = 8, 200000    # contexts in the cache; nanoseconds
OPTIONS = ("--property", f"context-cache={ENTRIES}", "--property", f"context-latency={LATENCY}", "--property", "context-stations=0")
SERVICE = {"dgid": driver.gid_of(ADDRESS), "dmac": MAC, "hop_limit": 64}
ACCESS_KEY = 0x1122334455667788
COUNTERS = ("context_hits", "context_misses", "context_write_backs", "dynamic_connects")
INDEX = {one["name"]: number for number, one in enumerate(hw.spec.counters["list"])}
Message = collections.namedtuple("Message", "connection text")


class Connection:
    """Two queue pairs of this device that are connected to each other. send() sends a message from left to right."""

    def __init__(self, place, name, left, right):
        self.place, self.name, self.left, self.right = place, name, left, right
        self.sent, self.source, self.target = 0, place.machine.mem_alloc(64), place.machine.mem_alloc(64)

    def __repr__(self):
        return f"<connection {self.name}>"

    def send(self):
        """Sends a message by an RDMA write, and waits for its completion."""
        self.sent += 1
        memory = self.place.machine._memory     # pylint: disable=protected-access  # the grader's access is not the student's
        memory.write(self.source, f"{self.name}, message {self.sent}".ljust(64).encode())
        self.left.write(self.source, 64, self.target)
        entry = self.left.completion()
        expect(entry["status"] == 0, f"A message on connection {self.name} completed with status {entry['status']:#x}, syndrome {entry['syndrome']:#x}.")
        got = memory.read(self.target, 64)
        expect(got == memory.read(self.source, 64), f"A message on connection {self.name} has not arrived.")


class Place:
    """A device whose cache holds few contexts, and its connections."""

    def __init__(self, machine, connections=0):
        self.machine, self.setup = machine, Setup(machine, connected=False, contexts=True)
        self.connections = []
        for number in range(connections):
            left, right = self.endpoint(), self.endpoint()
            left.connect(right.number, timeout=0)
            right.connect(left.number, timeout=0)
            self.connections.append(Connection(self, chr(ord("A") + number), left, right))

    def endpoint(self):
        return Endpoint(self.machine, self.setup.pd, self.setup.key, self.setup.eq)

    def warm(self):
        """Sends one message on each connection, so that the cache has the state of a running system."""
        for connection in self.connections:
            connection.send()
        self.machine.settle()

    def counters(self):
        """Returns the counters of the device that this lab uses."""
        adapter = self.setup.adapter
        adapter.command("QUERY_COUNTERS")
        raw = self.machine._memory.read(adapter.mailbox_out, 4096)      # pylint: disable=protected-access  # the grader's access is not the student's
        return collections.Counter({name: struct.unpack_from("<Q", raw, 8 * INDEX[name])[0] for name in COUNTERS})


def reference(trace, entries, cache=()):
    """Returns the misses of a cache that replaces the least recently used context."""
    cache, count = collections.OrderedDict.fromkeys(cache), 0
    for number in trace:
        if number not in cache:
            count += 1
            if len(cache) >= entries:
                cache.popitem(last=False)
        cache[number] = None
        cache.move_to_end(number)
    return count


def needed(connections):
    return [number for one in connections for number in (one.left.number, one.right.number, one.left.number)]


def number_of(got, text):
    expect(isinstance(got, int) and not isinstance(got, bool), f"{text} returned {got!r}, and not a number.")
    return got


def stage_1(machine, program):
    """A model of the cache."""
    for trace, entries, cache, hint in (
            ((1, 1, 1), 2, (), "The first use is a miss, the others are hits"),
            ((1, 2, 3, 1), 2, (), "Context 3 replaces 1, so that 1 is a miss again"),
            ((1, 2, 1, 3, 1), 2, (), "A hit makes a context the most recently used one: 3 replaces 2, and not 1"),
            ((1, 2, 3), 2, (3, 1), "The cache holds 3 and 1 before the first use. Then 2 replaces 3"),
            ((2, 1), 2, (3, 1), "The cache holds 3 and 1 before the first use, 3 is the least recently used one, and 2 replaces 3"),
            ((1, 2, 3, 4, 1, 2, 3, 4), 4, (), "Four contexts have room in this cache"),
            ((1, 2, 3, 4, 5, 1, 2, 3, 4, 5), 4, (), "Each use replaces the context that is needed next")):
        got = number_of(program.misses(list(trace), entries, list(cache)), "misses()")
        want = reference(trace, entries, cache)
        expect(got == want, f"misses({list(trace)}, {entries}, {list(cache)}) returned {got}, not {want}. {hint}.")
    chance = random.Random(9)
    for _ in range(50):
        trace, entries = [chance.randrange(12) for _ in range(60)], chance.randrange(2, 12)
        got = number_of(program.misses(list(trace), entries), "misses()")
        expect(got == reference(trace, entries), f"misses({trace}, {entries}) returned {got}, not {reference(trace, entries)}.")


class Recorded:
    """A machine whose transactions are a list: three fetches, two write-backs, and others."""

    @staticmethod
    def mark():
        pass

    @staticmethod
    def transactions():
        kinds = [("read", "context")] * 3 + [("completion", "context")] * 3 + [("write", "context")] * 2 + [("read", "wqe"), ("write", "cqe"), ("write", None)]
        return [Transaction(kind, 0, b"", {"use": use} if use else {}) for kind, use in kinds]


def stage_2(machine, program):
    """Predict and count fetches."""
    place = Place(machine, 6)
    for chosen in (place.connections[:1], place.connections[1:4], [place.connections[5], place.connections[0], place.connections[5]]):
        got = program.trace_of(chosen)
        names = ", ".join(one.name for one in chosen)
        expect(got == needed(chosen), f"trace_of([{names}]) returned {got!r}, not {needed(chosen)}: the number of left sends, then that of right receives, then that of left "
                                      "receives the ACK.")
    got = program.count_fetches(Recorded, [])
    expect(got == (3, 2), f"count_fetches() returned {got!r}, not (3, 2), for a list of three fetches, two write-backs, and other transactions. Count the transactions since mark() "
                          'whose key use is "context": the kinds are "read" and "write".')
    for count in range(2, 7):
        chosen = place.connections[:count]
        for connection in chosen:
            connection.send()
        before = place.counters()
        got = program.count_fetches(machine, chosen)
        after = place.counters()
        expect(all(one.sent for one in chosen), "count_fetches() must call send() of each connection.")
        want = (after["context_misses"] - before["context_misses"], after["context_write_backs"] - before["context_write_backs"])
        expect(got == want, f"{count} connections: count_fetches() returned {got!r}, but the device counted {want[0]} misses and {want[1]} write-backs. Count the transactions "
                            'since mark() whose key use is "context": the kinds are "read" and "write".')
        past = needed(chosen)
        predicted = program.misses(past + past, ENTRIES) - program.misses(past, ENTRIES)
        expect(predicted == want[0], f"{count} connections: your model predicts {predicted} misses, and the device counted {want[0]}.")


def stage_3(machine, program):
    """A larger cache."""
    for connections in (1, 4, 20):
        got = number_of(program.smallest_cache(connections), f"smallest_cache({connections})")
        past = [number for one in range(connections) for number in (2 * one, 2 * one + 1, 2 * one)]

        def model(entries, past=past):
            return reference(past + past, entries) - reference(past, entries)
        expect(got >= 1 and model(got) == 0, f"smallest_cache({connections}) returned {got}: with this cache the model of step 1 predicts {model(max(got, 1))} misses in each round. "
                                             "Both ends of a connection need a context.")
        expect(got == 2 * connections, f"smallest_cache({connections}) returned {got}. A smaller cache causes no miss, too.")
    for entries in (program.smallest_cache(6), program.smallest_cache(6) - 1):
        bench = Bench("--property", f"context-cache={entries}", "--property", "context-latency=1000")
        try:
            other = Machine(bench)
            place = Place(other, 6)
            place.warm()
            before = place.counters()
            place.warm()
            got, past = (place.counters() - before)["context_misses"], needed(place.connections)
            want = program.misses(past + past, entries) - program.misses(past, entries)
            expect(got == want and bool(got) == (entries < 12), f"The device with a cache of {entries} contexts counted {got} misses for 6 connections, not {want}. The grader is wrong.")
            other.close()
        finally:
            bench.close()


def stage_4(machine, program):
    """The time of misses."""
    for count, latency in ((12, 200000), (1, 700), (0, 1000)):
        got, want = program.least_time(count, latency), count * latency * 1e-9
        expect(isinstance(got, (int, float)) and abs(got - want) < 1e-12, f"least_time({count}, {latency}) returned {got!r}, not {want:g} s: each miss waits for the latency, and the device "
                                                                          "fetches in order. 1 ns is 1e-9 s.")
    place = Place(machine, 6)
    place.warm()
    before, start = place.counters(), time.monotonic()
    place.warm()
    took, count = time.monotonic() - start, place.counters()["context_misses"] - before["context_misses"]
    expect(took >= program.least_time(count, LATENCY), f"{count} misses took {took * 1e6:.0f} us, and your prediction is at least {program.least_time(count, LATENCY) * 1e6:.0f} us.")


def stage_5(machine, program):
    """Cure 1: another order."""
    place = Place(machine, 8)
    place.warm()
    messages = [Message(connection, number) for number in range(3) for connection in place.connections]
    got = program.grouped(list(messages))
    expect(isinstance(got, list), f"grouped() returned {got!r}, and not a list.")
    expect(len(got) == len(messages) and set(got) == set(messages), f"grouped() got {len(messages)} messages and returned {len(got)}: each one exactly once.")
    for connection in place.connections:
        texts = [one.text for one in got if one.connection is connection]
        expect(texts == sorted(texts), f"Connection {connection.name} sends its messages in the order {texts}. The messages of one connection keep their order.")
    counts = []
    for order in (messages, got):
        before = place.counters()
        for message in order:
            message.connection.send()
        counts.append(place.counters()["context_misses"] - before["context_misses"])
    expect(counts[0] == 48, f"In the first order the device counted {counts[0]} misses, not 48. The grader is wrong.")
    expect(counts[1] <= 16, f"In your order the device counts {counts[1]} misses for 24 messages; 16 are enough. All messages of a connection should follow each other, because its "
                            "contexts are then in the cache.")


def carriers(place):
    """Returns the numbers of two carriers that are connected to each other."""
    command = place.setup.adapter.command
    numbers = [command("CREATE_QP", data=hw.pack("qp_ctx", type="CARRIER")) for _ in range(2)]
    for number, peer in (numbers, numbers[::-1]):
        for mask, values in (
                (["PKEY_INDEX", "PORT"], {"state": "INIT", "port": 1}),
                (["AV", "PATH_MTU", "DEST_QPN", "RQ_PSN"], {"state": "RTR", "av": SERVICE, "path_mtu": "1024", "dest_qpn": peer}),
                (["SQ_PSN", "TIMEOUT", "RETRY_CNT"], {"state": "RTS", "retry_cnt": 7})):
            command("MODIFY_QP", number, hw.pack("qp_attr", mask=["STATE", *mask], **values))
    return numbers


def stage_6(machine, program):
    """Cure 2: a shared connection."""
    place = Place(machine)
    mine, other = carriers(place)
    for number in range(8):
        left, right = place.endpoint(), place.endpoint()
        for qp, peer, carrier in ((left, right, mine), (right, left, other)):
            program.join(qp, peer.number, carrier, dict(SERVICE))
            place.setup.adapter.command("QUERY_QP", qp.number)
            state = place.setup.adapter.output("qp_attr")
            expect(state["state"] == 3, f"After join() the queue pair has the state {state['state']}, not 3 (RTS). Three commands are necessary: to INIT, RTR and RTS.")
            expect(state["dest_qpn"] == peer.number, f"After join() the peer of queue pair {qp.number} is {state['dest_qpn']}, not {peer.number}.")
            for name, value in (("timeout", 0), ("retry_cnt", 7), ("rnr_retry", 7), ("max_rd_atomic", 1), ("max_dest_rd_atomic", 1), ("min_rnr_timer", 1)):
                expect(state[name] == value, f"After join() the queue pair has {name} {state[name]}, not {value}: the text has the values of the three commands.")
            expect(state["carrier"] == carrier, f"After join() the queue pair is a member of carrier {state['carrier']}, not {carrier}: the transition to RTR has the attribute CARRIER.")
        place.connections.append(Connection(place, chr(ord("A") + number), left, right))
    place.warm()
    before = place.counters()
    place.warm()
    count = (place.counters() - before)["context_misses"]
    expect(count == 0, f"8 members of a carrier caused {count} misses, not 0. Each message should use only the contexts of the two carriers.")


class Dynamic:
    """An initiator of dynamic connections, or a target."""

    def __init__(self, place, target):
        command, a = place.setup.adapter.command, place.machine
        self.machine, self.place, self.index = place.machine, place, 0
        self.cq, self.ring, self.record = place.setup.adapter.completion_queue(place.setup.eq, 6)
        if target:
            srq = command("CREATE_SRQ", data=hw.pack("srq_ctx", pd=place.setup.pd, log_size=3, record=a.mem_alloc(8), ring={"root": a.mem_alloc(64 << 3, 4096)}))
            self.number = command("CREATE_QP", data=hw.pack("qp_ctx", type="DC_TGT", pd=place.setup.pd, recv_cq=self.cq, srq=srq,
                                                            dynamic={"access_key": ACCESS_KEY, "responders": 8}))
        else:
            self.sq, self.sq_record = a.mem_alloc(64 << 6, 4096), a.mem_alloc(8)
            self.number = command("CREATE_QP", data=hw.pack("qp_ctx", type="DC_INI", pd=place.setup.pd, send_cq=self.cq, sq_log_size=6,
                                                            sq_record=self.sq_record, sq={"root": self.sq}, dynamic={"idle": 18}))
        first = ["ACCESS_FLAGS"] if target else []
        self.modify(["PKEY_INDEX", "PORT", *first], state="INIT", port=1, access=["REMOTE_WRITE"] if target else [])
        if target:
            self.modify(["PATH_MTU", "MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER"], state="RTR", path_mtu="1024", max_dest_rd_atomic=1, min_rnr_timer=1)
        else:
            self.modify(["PATH_MTU"], state="RTR", path_mtu="1024")
            self.modify(["TIMEOUT", "RETRY_CNT", "RNR_RETRY", "SQ_PSN", "MAX_RD_ATOMIC"], state="RTS", retry_cnt=7, rnr_retry=7, max_rd_atomic=1)

    def modify(self, mask, **values):
        self.place.setup.adapter.command("MODIFY_QP", self.number, hw.pack("qp_attr", mask=["STATE", *mask], **values))

    def send(self, program, target, text):
        """Writes a text by a WQE of the student into new memory of the target."""
        memory, key = self.machine._memory, self.place.setup.key        # pylint: disable=protected-access
        source, place = self.machine.mem_alloc(64), self.machine.mem_alloc(64)
        memory.write(source, text.ljust(64).encode())
        raw = program.dynamic_wqe(self.index, hw.pack("address_vector", **SERVICE), target.number, ACCESS_KEY, (place, key), (source, 64, key))
        expect(isinstance(raw, bytes) and len(raw) == 96, f"dynamic_wqe() returned {len(raw) if isinstance(raw, bytes) else raw!r} bytes, not 96: 16 of control, 48 of the address segment, 16 of "
                                                          "the remote address, 16 of data.")
        for name, start, wanted in (
                ("sq_ctrl", 0, {"opcode": 4, "flags": 1, "segments": 6, "index": self.index}), ("dynamic_seg", 16, {"target": target.number, "access_key": ACCESS_KEY}),
                ("remote_seg", 64, {"address": place, "rkey": key}), ("data_seg", 80, {"address": source, "length": 64, "lkey": key})):
            found = hw.unpack(name, raw[start:start + hw.size(name)])
            for member, want in wanted.items():
                expect(found[member] == want, f"Segment {name}, at offset {start} of the WQE: {member} is {found[member]:#x} in place of {want:#x}.")
        expect(raw[16:48] == hw.pack("address_vector", **SERVICE), "Segment dynamic_seg, at offset 16 of the WQE: its first 32 bytes are the address vector.")
        for block in range(2):
            memory.write(self.sq + 64 * (self.index % 64), raw[64 * block:64 * block + 64].ljust(64, b"\0"))
            self.index += 1
        memory.write(self.sq_record, hw.pack("queue_record", producer=self.index))
        before = self.index // 2 - 1
        self.place.setup.adapter.doorbell(hw.constant("DB_SQ"), hw.pack("doorbell", number=self.number, index=self.index))

        def done():
            entry = hw.unpack("cqe", memory.read(self.ring + 64 * (before % 64), 64))
            return entry if entry["phase"] != before // 64 % 2 else None
        entry = self.machine.wait_until(done, "no completion of the initiator arrives")
        expect(entry["status"] == 0, f"The WQE of the initiator completed with status {entry['status']:#x}, syndrome {entry['syndrome']:#x}.")
        expect(memory.read(place, 64) == memory.read(source, 64), "The data has not arrived at the target.")


def stage_7(machine, program):
    """Cure 3: a dynamic connection."""
    place = Place(machine)
    initiator, targets = Dynamic(place, False), [Dynamic(place, True) for _ in range(12)]
    before = place.counters()
    for number in range(3):
        for target in targets:
            initiator.send(program, target, f"message {number}")
    change = place.counters() - before
    expect(change["context_misses"] == 0, f"The device counted {change['context_misses']} misses, not 0. The grader is wrong.")
    expect(change["dynamic_connects"] == 36, f"The device connected {change['dynamic_connects']} times, not 36. The grader is wrong.")


def connects(machine, program, orders):
    """Sends messages in these orders by a pool of 4 initiators. Returns how often the device connected in each order.

    An initiator disconnects after about a second without work. If the host was that slow, the measurement is repeated.
    """
    place = Place(machine)
    for _ in range(10):
        initiators, targets = [Dynamic(place, False) for _ in range(4)], [Dynamic(place, True) for _ in range(6)]
        pool, counts, start = program.Pool(list(initiators)), [], time.monotonic()
        for order in orders:
            before = place.counters()
            for target in order:
                chosen = pool.pick(target)
                expect(chosen in initiators, f"pick() returned {chosen!r}, and not an initiator of the pool.")
                chosen.send(program, targets[target], "pool")
            counts.append((place.counters() - before)["dynamic_connects"])
        if time.monotonic() - start < 0.5:
            break
    return counts


def stage_8(machine, program):
    """A pool of initiators."""
    for count, want in zip(connects(machine, program, ([0, 1, 2, 3] * 3, [4, 5] * 3)), (4, 2)):
        expect(count == want, f"4 initiators send to {want} targets, 3 times each: the device connected {count} times, not {want}. Pick the initiator that was last used for this target, "
                              "if there is one.")
    order = [0, 1, 2, 3, 1, 4, 5, 1, 1, 0]
    pool, trace = program.Pool(list("abcd")), []
    for target in order:
        trace.append(pool.pick(target))
    want = list("abcdbacbbd")
    expect(trace == want, f"For the targets {order} pick() chose {', '.join(map(str, trace))}, not {', '.join(want)}. For a target without an initiator it picks the initiator that was used "
                          "longest ago, because another message may need the others soon.")
