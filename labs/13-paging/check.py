# The stages of lab 13. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
import collections
import struct

import driver
from grade import Fail, expect
from lab import PEER_ADDRESS, PEER_MAC, Endpoint, Setup, hw, solution

ATTACK = solution("15-attack")          # packets of a peer
Region = collections.namedtuple("Region", "key start page_list")
START, PAGE, PAGES, EQ_LOG = 0x7f0000000000, 4096, 24, 4
RESUME, REFUSE = hw.opcode["RESUME_PAGE_FAULT"], hw.opcode["REFUSE_PAGE_FAULT"]
NO_PAGE, PROTECTION = 21, 4             # SYN_PAGE_FAULT, WC_LOC_PROT_ERR


class Store:
    """The pages of the region, as an operating system has them. Pages from 20 on do not exist; page 18 and 19 are read-only."""

    def __init__(self, machine):
        self.machine, self.places, self.fetched = machine, {}, []

    def fetch(self, number):
        expect(isinstance(number, int), f"store.fetch({number!r}): the number of a page in the region is an integer.")
        self.fetched.append(number)
        if not 0 <= number < 20:
            return None
        if number not in self.places:
            memory = self.machine._memory                                           # pylint: disable=protected-access
            self.places[number] = memory.allocate(PAGE, PAGE)
            memory.write(self.places[number], struct.pack("<I", number) * (PAGE // 4))
        return self.places[number]

    def writable(self, number):
        return number < 18


class Place:
    """A region whose pages are absent, queue pairs, and the EQ of page faults."""

    def __init__(self, machine, program, connected=True):
        self.machine, self.program, self.bench = machine, program, machine._bench   # pylint: disable=protected-access
        self.setup, self.memory = Setup(machine, connected=connected), machine._memory      # pylint: disable=protected-access
        self.adapter, self.consumed, self.commands = self.setup.adapter, 0, []
        self.eq, self.ring = self.adapter.event_queue("PAGE_FAULT", 2, EQ_LOG)
        self.page_list, self.buffer = machine.mem_alloc(PAGE, PAGE), machine.mem_alloc(4 * PAGE, PAGE)
        self.key = self.adapter.command("CREATE_MKEY", data=hw.pack(
            "mkey_ctx", type="MR", access=["LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ"], flags=["ON_DEMAND"], variant=5, pd=self.setup.pd, start=START,
            length=PAGES * PAGE, table={"root": self.page_list, "levels": 1, "page_shift": 12})) << 8 | 5
        self.store = Store(machine)
        self.pager = program.Pager(machine, Region(self.key >> 8, START, self.page_list), self.store, self.command)
        machine.mark()
        machine.accesses.clear()

    def command(self, opcode, number, data=b""):
        """Executes a command for the program; returns (status, output)."""
        expect(all(isinstance(one, int) for one in (opcode, number)) and isinstance(data, bytes) and len(data) <= 64,
               f"command({opcode!r}, {number!r}, {data!r}): opcode and object are integers, and the input is bytes.")
        names = {value: name for name, value in hw.opcode.items()}
        expect(opcode in names, f"command({opcode:#x}, ...): the device has no command with this opcode.")
        if opcode == RESUME:
            self.check_resume(number)
        place = self.adapter.post_command(names[opcode], number & 0xffffffff, data)
        entry = self.machine.wait_until(lambda: self.adapter.command_done(place), "the command completes")
        self.commands.append((opcode, number, data, entry["status"]))
        output = bytearray(self.memory.read(self.adapter.mailbox_out, 64))
        if opcode == hw.opcode["QUERY_PAGE_FAULT"]:
            output[4] |= 0xfe           # flags of later versions
        return entry["status"], bytes(output)

    def check_resume(self, number):
        """Explains a RESUME_PAGE_FAULT before the page is present."""
        fault = self.fault(number)
        if fault and not self.entry((fault["address"] - START) // PAGE) & 1:
            raise Fail(f"RESUME_PAGE_FAULT comes before the page is present: entry {(fault['address'] - START) // PAGE} of the page list is "
                       f"{self.entry((fault['address'] - START) // PAGE):#x}. The device would repeat the access and find the page absent again. An entry is the bus "
                       "address of the page with PRESENT in bit 0.")

    def fault(self, number):
        """Returns the page fault for the grader, or None."""
        place = self.adapter.post_command("QUERY_PAGE_FAULT", number)
        entry = self.machine.wait_until(lambda: self.adapter.command_done(place), "the command completes")
        return self.adapter.output("page_fault") if entry["status"] == 0 else None

    def entry(self, number):
        return struct.unpack("<Q", self.memory.read(self.page_list + 8 * number, 8))[0]

    def pending(self):
        """Returns the number of the page fault of the next event, and consumes the event; or None."""
        eqe = hw.unpack("eqe", self.memory.read(self.ring + 16 * (self.consumed % (1 << EQ_LOG)), 16))
        if eqe["phase"] == (self.consumed >> EQ_LOG) % 2:
            return None
        self.consumed += 1
        self.adapter.doorbell(hw.constant("DB_EQ"), hw.pack("eq_doorbell", number=self.eq, arm=1, index=self.consumed))
        return eqe["object"]

    def next_fault(self):
        return self.machine.wait_until(self.pending, "the device reports a page fault")

    def send(self, address, length):
        """Lets the left queue pair write the range to the buffer of the right one."""
        self.setup.left.post(hw.pack("remote_seg", address=self.buffer, rkey=self.setup.key), hw.pack("data_seg", address=address, length=length, lkey=self.key))

    def receive(self, address, length):
        """Lets the left queue pair read the buffer of the right one into the range."""
        self.setup.left.post(hw.pack("remote_seg", address=self.buffer, rkey=self.setup.key), hw.pack("data_seg", address=address, length=length, lkey=self.key),
                             opcode="RDMA_READ")

    def write(self, address, length):
        """Lets the left queue pair write the buffer to the range, which is memory of the right one."""
        self.setup.left.post(hw.pack("remote_seg", address=address, rkey=self.key), hw.pack("data_seg", address=self.buffer, length=length, lkey=self.setup.key))

    def outcome(self, handle):
        """Handles page faults until the message completes. Returns its CQE and the number of page faults."""
        faults, left = 0, self.setup.left
        while True:
            done = []

            def ready():
                raw = self.memory.read(left.cq_ring + 64 * (left.consumed % (1 << left.cq_log_size)) + 63, 1)[0] >> 7
                done[:] = [raw != (left.consumed >> left.cq_log_size) % 2, self.pending()]          # pylint: disable=cell-var-from-loop
                return done[0] or done[1] is not None                                               # pylint: disable=cell-var-from-loop
            self.machine.wait_until(ready, "the message completes or causes a page fault. Does handle() execute RESUME_PAGE_FAULT or REFUSE_PAGE_FAULT?")
            if done[1] is None:
                return left.completion(), faults
            faults += 1
            expect(faults <= 32, "The device reported 32 page faults for one message, so each access finds an absent page again. Page in all pages of the range, "
                                 "up to the page of its last byte.")
            handle(done[1])

    def stored(self):
        """Fails unless each access to the page list is one write of 8 bytes, and each entry is right."""
        for kind, _, at, data, _ in self.machine.accesses:
            if kind == "mem-write" and self.page_list <= at < self.page_list + PAGE:
                expect(len(data) == 8 and at % 8 == 0, f"page_in() writes {len(data)} bytes at byte {at - self.page_list} of the page list. The device may read the list at any "
                                                       "time, so an entry is stored by one write of 8 bytes.")
        for number in range(PAGES):
            entry = self.entry(number)
            expect(entry & ~3 in (0, self.store.places.get(number, 0)) and (entry == 0 or entry & 1), f"Entry {number} of the page list is {entry:#x}, and the page is at "
                   f"{self.store.places.get(number, 0):#x}. An entry is the address of the page with PRESENT in bit 0 and WRITABLE in bit 1.")
            expect(not entry & 2 or self.store.writable(number), f"Entry {number} of the page list has WRITABLE, but the program may not write to this page.")


def compare(fault, want, number):
    expect(fault is not None, "query() returned None, but an access waits.")
    for member, value in want._asdict().items():
        got = getattr(fault, member, None)
        expect(got == value, f"query({number:#x}): {member} is {got if not isinstance(got, int) else hex(got)}, not {value if not isinstance(value, int) else hex(value)}. "
                             "The output has le32 key, le32 flags, le64 address, le64 length, le32 sequence, le32 reserved.")


def stage_1(machine, program):
    """A page fault."""
    place = Place(machine, program)
    for action, address, length, write in ((place.send, START + 0x1100, 0x3000, False), (place.write, START + 0x9000, 16, True)):
        action(address, length)
        place.setup.left, place.setup.right = place.setup.right, place.setup.left       # the send queue of the first one waits
        number = place.next_fault()
        expect(number & 1 == write, "The number of the page fault is not that of the text. The grader is wrong.")
        real = place.fault(number)
        got = place.pager.query(number)
        compare(got, program.Fault(place.key >> 8, write, real["address"], real["length"], real["sequence"]), number)
        expect(real["address"] == address, "The device reports another address. The grader is wrong.")
    free = place.pager.query(0x100)
    expect(free is None, f"query() returned {free!r} for a queue pair that does not wait. In this case the status of the command is not OK.")


def stage_2(machine, program):
    """A message of four absent pages."""
    place = Place(machine, program)
    for address, length in ((START + 0x1f00, 0x2200), (START + 0x8000, PAGE), (START + 0x9ffe, 4)):
        place.commands.clear()
        place.send(address, length)
        entry, faults = place.outcome(place.pager.handle)
        place.stored()
        pages = range((address - START) // PAGE, (address + length - 1 - START) // PAGE + 1)
        expect(entry["status"] == 0, f"The message completes with status {entry['status']:#x} and syndrome {entry['syndrome']:#x}. All pages exist, so handle() resumes the page fault.")
        answers = [one[0] for one in place.commands if one[0] != hw.opcode["QUERY_PAGE_FAULT"]]
        expect(answers == [RESUME] * faults, f"handle() executed the commands {[hex(one) for one in answers]}. All pages exist, so it resumes the page fault: RESUME_PAGE_FAULT, {RESUME:#x}.")
        expect(faults == 1, f"{length} bytes at {address:#x} caused {faults} page faults. Page in all pages of the range, {pages[0]} to {pages[-1]}, "
                            "up to the page of its last byte.")
        extra = [number for number in place.store.fetched if number not in pages]
        expect(not extra, f"page_in() fetched page {extra[0] if extra else 0}, which the access does not need: the range is {length} bytes at {address:#x}.")
        place.store.fetched.clear()
        want = b"".join(struct.pack("<I", number) * (PAGE // 4) for number in pages)[address % PAGE:][:length]
        machine.settle()
        expect(place.memory.read(place.buffer, length) == want, "The device sent other bytes than those of the pages.")
    expect(not machine.guest_errors(), "The device reports a broken rule.")


def stage_3(machine, program):
    """A page that does not exist, and a page without the right."""
    place = Place(machine, program)
    place.send(START + 18 * PAGE, 64)
    entry, _ = place.outcome(place.pager.handle)
    expect(entry["status"] == 0, "A read of a read-only page failed. Only a write needs the right.")
    for name, action, address, length in (("a page that does not exist", "send", START + 20 * PAGE, 64), ("a range whose last page does not exist", "send", START + 19 * PAGE, 2 * PAGE),
                                          ("a write to a read-only page", "receive", START + 18 * PAGE, 64), ("a write to an absent read-only page", "receive", START + 19 * PAGE, 64)):
        place.setup.left, place.setup.right = (Endpoint(machine, place.setup.pd, place.setup.key, place.setup.eq) for _ in range(2))
        place.setup.left.connect(place.setup.right.number)
        place.setup.right.connect(place.setup.left.number)
        place.commands.clear()
        getattr(place, action)(address, length)
        entry, _ = place.outcome(place.pager.handle)
        place.stored()
        expect(entry["status"] == PROTECTION and entry["syndrome"] == NO_PAGE, f"{name}: the message completes with status {entry['status']:#x} and syndrome "
               f"{entry['syndrome']:#x}. Answer with REFUSE_PAGE_FAULT; the status is then {PROTECTION:#x} and the syndrome {NO_PAGE:#x}.")
    expect(not machine.guest_errors(), "The device reports a broken rule.")


def counted(machine):
    """Returns (reads of page lists, EQEs, commands) since the last mark."""
    found = machine.transactions()

    def count(kind, use):
        return [one for one in found if one.kind == kind and one.keys.get("use") == use]
    return len(count("read", "page-list")), sum(len(one.data) == 4 for one in count("write", "eqe")), len(count("read", "command"))


def stage_4(machine, program):
    """The cost of a page fault."""
    place = Place(machine, program)

    def single(number):
        """Pages in one page for each page fault."""
        _, output = place.command(hw.opcode["QUERY_PAGE_FAULT"], number)
        fault = hw.unpack("page_fault", output)
        page = (fault["address"] - START) // PAGE
        place.memory.write(place.page_list + 8 * page, struct.pack("<Q", place.store.fetch(page) | 3))
        place.command(RESUME, number, struct.pack("<II", fault["sequence"], 0))
    place.check_resume = lambda number: None
    for together, pages, address in ((False, 4, START), (True, 4, START + 4 * PAGE), (False, 2, START + 8 * PAGE), (True, 3, START + 10 * PAGE)):
        machine.mark()
        place.send(address, pages * PAGE)
        entry, _ = place.outcome(place.pager.handle if together else single)
        expect(entry["status"] == 0, f"The message completes with status {entry['status']:#x}.")
        machine.settle()
        got, (lists, events, commands) = program.cost(machine), counted(machine)
        for name, mine, real, text in (
                ("lists", getattr(got, "lists", None), lists, "Count the kind \"read\" with use \"page-list\"; a completion has the same keys."),
                ("events", getattr(got, "events", None), events, "The device writes an EQE by two transactions: first 12 bytes, then the 4 bytes with the phase."),
                ("commands", getattr(got, "commands", None), commands, "The device reads each command entry once, use \"command\", and writes parts of it.")):
            expect(mine == real, f"cost(): {name} is {mine!r}, not {real}, for a message of {pages} pages. {text}")
        want = program.predict_cost(pages, together)
        expect(tuple(want) == (events, commands), f"predict_cost({pages}, {together}) returned {want!r}, but the capture has {events} page faults and {commands} commands. "
                                                  "Each page fault is queried once and resumed once.")


def ask(place, frame):
    """Sends a frame; returns the answer of the device, a frame or None."""
    def frames():
        return sum(one.kind == "frame" and one.data[:6] == frame[:6] for one in place.machine.transactions())
    place.machine.mark()
    place.bench.send(frame)
    place.machine.wait_until(lambda: frames, "the device receives the frame")
    place.machine.settle()
    return place.bench.receive()


def stage_5(machine, program):
    """An RNR NAK on the wire."""
    place = Place(machine, program, connected=False)
    while place.bench.receive():
        pass
    absent = 0
    for timer, present, touched, psn in ((1, {0, 1}, [0, 1, 2, 0], 100), (20, set(), [3, 3], 7), (0, {4}, [4, 5, 4], 0xffffff), (13, {6}, [6, 6], 9), (1, set(), [7], 0)):
        for number in present:
            place.memory.write(place.page_list + 8 * number, struct.pack("<Q", place.store.fetch(number) | 3))
        qp = Endpoint(machine, place.setup.pd, place.setup.key, place.setup.eq)
        qp.modify(["PKEY_INDEX", "PORT", "ACCESS_FLAGS"], state="INIT", port=1, access=["REMOTE_WRITE", "REMOTE_READ"])
        qp.modify(["AV", "PATH_MTU", "RQ_PSN", "MIN_RNR_TIMER", "MAX_DEST_RD_ATOMIC", "DEST_QPN"], state="RTR", path_mtu="1024", rq_psn=psn, dest_qpn=0x77,
                  min_rnr_timer=timer, max_dest_rd_atomic=1, av={"dgid": driver.gid_of(PEER_ADDRESS), "dmac": PEER_MAC, "hop_limit": 64})
        want = program.predict_answers(psn, list(touched), set(present), timer)
        expect(isinstance(want, list) and all(isinstance(one, tuple) and len(one) == 2 for one in want), f"predict_answers() returned {want!r}, and not a list of (psn, syndrome).")

        def run(pages, first):
            found = []
            for number, page in enumerate(pages):
                packet = ATTACK.write_packet(qp.number, first + number & 0xffffff, START + PAGE * page + 64, place.key, b"8 bytes!")    # pylint: disable=cell-var-from-loop
                answer = ask(place, ATTACK.frame(packet))
                if answer:
                    parsed = ATTACK.parse(answer)
                    found.append((parsed.psn, parsed.payload[0]))
            return found
        got = run(touched, psn)
        expect(want == got, f"predict_answers({psn:#x}, {touched}, {present}, {timer}) returned {shown(want)}, but the wire has {shown(got)}. {hint(want, got)}")
        if len(got) and got[-1][1] >> 5 == 1:
            absent += 1
            place.pager.handle(place.next_fault())
            machine.settle()
            back = (got[-1][0] - psn) % (1 << 24)
            place.stored()
            again = run(touched[back:], got[-1][0])
            expect(all(syndrome >> 5 == 0 for _, syndrome in again), f"After handle() the peer retransmits from PSN {got[-1][0]:#x}, and the device answers {shown(again)}.")
    expect(absent, "No packet found an absent page. The grader is wrong.")


def hint(want, got):
    if len(want) > len(got):
        return "After an RNR NAK the responder waits for the expected PSN: it drops the packets behind it, and sends no second NAK."
    if [psn for psn, _ in want] != [psn for psn, _ in got]:
        return "PSNs have 24 bits, and an RNR NAK has the PSN of the packet that needs the page. There is one answer for each packet until the RNR NAK."
    return "Timer code 13 is 0.96 ms. A larger code is a longer time, except code 0, which is the longest: 655.36 ms."


def shown(answers):
    return "[" + ", ".join(f"(PSN {psn:#x}, syndrome {syndrome:#x})" for psn, syndrome in answers) + "]"


def stage_6(machine, program):
    """Prefetch."""
    place = Place(machine, program)
    for action, address, length, write in ((place.send, START + 0x400, 3 * PAGE, False), (place.write, START + 5 * PAGE + 8, PAGE, True), (place.send, START + 17 * PAGE, 2 * PAGE, False)):
        place.commands.clear()
        place.pager.prefetch(address, length, write)
        expect(not place.commands, f"prefetch() executes {len(place.commands)} commands. The device does not trust an absent entry that it has cached, so it reads the list again "
                                   "by itself; only a queue pair that waits needs RESUME_PAGE_FAULT.")
        place.stored()
        machine.mark()
        action(address, length)
        entry, faults = place.outcome(place.pager.handle)
        expect(faults == 0, f"A message of {length} bytes at {address:#x} caused {faults} page faults after prefetch(). "
                            + ("A write needs WRITABLE in each entry." if write else "Only a write needs the right. All pages of the range are present, then there is none."))
        expect(entry["status"] == 0, f"The message completes with status {entry['status']:#x}.")
        machine.settle()
        lists, events, commands = counted(machine)
        expect(events == 0 and commands == 0, f"The message caused {events} events and {commands} commands. The grader is wrong.")
        expect(lists >= 1, "The device did not read the page list. The grader is wrong.")
    expect(not machine.guest_errors(), "The device reports a broken rule.")
