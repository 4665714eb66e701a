# The stages of lab 15. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
import itertools

import driver
from grade import expect
from lab import MAC, PEER_ADDRESS, PEER_MAC, Endpoint, Setup, hw, solution

REFERENCE = solution("15-attack")
SECRET = b"the secret of another program..."
VARIANT = 11                    # of the key


class Place:
    """A victim: a region with a key, and queue pairs that are connected to the peer."""

    def __init__(self, machine, program, psn=0x345678, variant=VARIANT):
        self.machine, self.program, self.bench = machine, program, machine._bench      # pylint: disable=protected-access
        self.setup, self.psn = Setup(machine, connected=False), psn
        self.memory = machine.mem_alloc(4096, 4096)
        machine.mem_write(self.memory + 64, SECRET)
        self.key = self.setup.adapter.command("CREATE_MKEY", data=hw.pack(
            "mkey_ctx", type="MR", access=["LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ"], variant=variant, pd=self.setup.pd, start=0x10000, length=96,
            table={"root": self.memory})) << 8 | variant
        self.asked = 0

    def victim(self):
        """Returns a queue pair that expects the PSN."""
        qp = Endpoint(self.machine, self.setup.pd, self.setup.key, self.setup.eq)
        qp.modify(["PKEY_INDEX", "PORT", "ACCESS_FLAGS"], state="INIT", port=1, access=["REMOTE_WRITE", "REMOTE_READ"])
        qp.modify(["AV", "PATH_MTU", "RQ_PSN", "MIN_RNR_TIMER", "MAX_DEST_RD_ATOMIC", "DEST_QPN"], state="RTR", path_mtu="1024", rq_psn=self.psn,
                  dest_qpn=0x77, min_rnr_timer=1, max_dest_rd_atomic=1, av={"dgid": driver.gid_of(PEER_ADDRESS), "dmac": PEER_MAC, "hop_limit": 64})
        return qp

    def ask(self, frame):
        """Sends a frame, and returns the answer of the device, or None."""
        expect(isinstance(frame, bytes), f"ask() got {frame!r}, and not a frame.")
        self.asked += 1
        while self.bench.receive():
            pass
        before = self.frames()
        self.bench.send(frame)
        self.machine.wait_until(lambda: self.frames() > before, "the device receives the frame")
        self.machine.settle()
        return self.bench.receive()

    def frames(self):
        """Returns the number of frames for the device in the capture."""
        return sum(one.kind == "frame" and one.data[:6].hex() == MAC for one in self.machine.transactions())


def stage_1(machine, program):
    """A write with a valid key."""
    place = Place(machine, program)
    qp = place.victim()
    raw = program.write_packet(qp.number, place.psn, 0x10000, place.key, b"hello")
    expect(isinstance(raw, bytes) and len(raw) == 36, f"write_packet() returned {raw!r}, not 36 bytes: BTH, RETH, 5 bytes of data and 3 of pad.")
    want = REFERENCE.bth(0x0a, qp.number, place.psn, 3) + (0x10000).to_bytes(8, "big") + place.key.to_bytes(4, "big") + bytes([0, 0, 0, 5]) + b"hello" + bytes(3)
    for name, start, end in (("BTH", 0, 12), ("address", 12, 20), ("key", 20, 24), ("length", 24, 28), ("data and pad", 28, 36)):
        expect(raw[start:end] == want[start:end], f"write_packet(): {name} is {raw[start:end].hex(' ')}, not {want[start:end].hex(' ')}.")
    answer = place.ask(program.frame(raw))
    expect(answer is not None, "The device did not answer.")
    expect(machine.mem_read(place.memory, 5) == b"hello", "The data is not in the memory of the victim.")
    raw = program.read_packet(qp.number, place.psn + 1, 0x10040, place.key, 32)
    expect(isinstance(raw, bytes) and len(raw) == 28, f"read_packet() returned {raw!r}, not 28 bytes: BTH and RETH.")
    answer = place.ask(program.frame(raw))
    expect(answer is not None and answer[42] == 0x10, "The device did not send an RDMA READ Response.")


def stage_2(machine, program):
    """Another source address."""
    place = Place(machine, program)
    qp = place.victim()
    transport = program.write_packet(qp.number, place.psn, 0x10000, place.key, b"forged!!")
    answer = place.ask(program.frame(transport, bytes([10, 0, 0, 3])))
    expect(answer is None and machine.mem_read(place.memory, 8) == bytes(8), "The device accepted a packet from 10.0.0.3. The grader is wrong.")
    place.ask(program.frame(transport))
    expect(machine.mem_read(place.memory, 8) == b"forged!!", "The forged packet with the address of the peer did not arrive. frame() of the skeleton takes the source address.")


def stage_3(machine, program):
    """The expected PSN."""
    for psn in (0x345678, 0xabcdef, 5, 0xfffffe):
        place = Place(machine, program, psn)
        got = program.find_psn(place.ask, place.victim().number)
        expect(got == psn, f"find_psn() returned {got!r}, not {psn:#x}. A packet whose PSN is ahead causes a NAK sequence error (syndrome 0x60) with the expected PSN; "
                           "a packet whose PSN is behind is a duplicate. One of two PSNs with distance 2^23 is ahead.")
        expect(place.asked <= 3, f"find_psn() sent {place.asked} packets. Two are enough.")


def stage_4(machine, program):
    """Bytes of the victim."""
    place = Place(machine, program)
    got = program.steal(place.ask, place.victim().number, 0x10040, place.key, 32)
    expect(got == SECRET, f"steal() returned {got!r}, not {SECRET!r}. The data of a READ Response follows the AETH of 4 bytes.")
    got = program.steal(place.ask, place.victim().number, 0x10030, place.key, 48)
    expect(got == bytes(16) + SECRET, f"steal() returned {got!r} for 48 bytes, not 16 zeros and the secret.")
    for name, address, key, length in (("one byte beyond the region", 0x10041, place.key, 32), ("another variant", 0x10040, place.key ^ 1, 32), ("another index", 0x10040, place.key + 512, 4)):
        got = program.steal(place.ask, place.victim().number, address, key, length)
        expect(got == 0x62, f"{name}: steal() returned {got!r}, not 0x62: the device sends a NAK remote access error.")


def patient(place):
    """Returns ask() for one connection, which explains that a connection with a wrong key is of no use."""
    asked = itertools.count(1)

    def ask(frame):
        answer = place.ask(frame)
        expect(next(asked) < 5 or answer, "The queue pair does not answer any more: a wrong key ends the connection, so each guess needs the next one, next(connections).")
        return answer
    return ask


def stage_5(machine, program):
    """The variant of a key."""
    for variant in (0, 20):
        place = Place(machine, program, variant=variant)
        qp = place.victim()
        program.steal(place.ask, qp.number, 0x10040, place.key ^ 1, 4)
        answer = place.ask(program.frame(program.read_packet(qp.number, place.psn, 0x10040, place.key, 4)))
        expect(answer is None, "The queue pair answers after a wrong key. The grader is wrong.")
        connections = ((patient(place), place.victim().number) for _ in itertools.count())      # pylint: disable=cell-var-from-loop  # used in this pass only
        got = program.open_variant(connections, 0x10040, place.key >> 8)
        expect(got == variant, f"open_variant() returned {got!r}, not {variant}. A wrong key ends the connection, so each guess needs the next one: next(connections).")
