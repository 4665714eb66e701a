# The machine of the labs: one qrnic on a PCIe bus, guest memory, and interrupts, without a guest kernel.
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A student's program receives a Machine and uses only the methods of the section Accesses. The grader starts the device once
# for each run (Bench), and makes a new Machine for each stage, because a new connection resets the device. The device is the
# process of tools/device. The files vfio_user.py and driver.py of tests/process have the protocol and the names of the
# contract. The other methods of Machine observe the device: guest errors and transactions.
"""One qrnic, as a driver sees it."""

import collections
import importlib.util
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/process"), str(ROOT / "tools")]
import capturelib  # noqa: E402
import driver  # noqa: E402
import simulatelib  # noqa: E402
import vfio_user  # noqa: E402
from guestlib.process import listens  # noqa: E402

hw = driver.HW                  # names of the contract: hw.constant(), hw.register[], hw.pack(), hw.unpack()
CONTROL, MSIX, DOORBELL = (hw.constant(f"BAR_{name}") for name in ("CONTROL", "MSIX", "DOORBELL"))
MAC, ADDRESS = "525400000001", "10.0.0.1"
PEER_MAC, PEER_ADDRESS = "525400000002", "10.0.0.2"
PATIENCE = 20                   # seconds that a wait for the device may last
SETTLE_ROUNDS = 64              # requests after which the device has no work left

Transaction = collections.namedtuple("Transaction", "kind address data keys")
# An access of the program. place: BAR or vector. value: data of a write, or size of a read of a BAR or of memory.
Access = collections.namedtuple("Access", "kind place offset value size")
# The kind of a TLP by its first byte, without the bit of a header of 4 words
KINDS = {0x00: "read", 0x40: "write", 0x0a: "completion", 0x4a: "completion", 0x04: "config-read", 0x44: "config-write"}


class Todo(Exception):
    """Marks an open part of a skeleton."""


class Timeout(Exception):
    """Reports that the device did not do what the program waits for."""


class Misuse(Exception):
    """Reports a call with an argument that no bus has."""


def need(condition, text):
    if not condition:
        raise Misuse(text)


class Bench:
    """The device process and the peer's end of the wire, in a temporary folder."""

    def __init__(self, *options, mac=MAC):
        """Starts the device; the options are more arguments of tools/device."""
        self.folder = tempfile.TemporaryDirectory(prefix="qrnic-lab-")
        place = Path(self.folder.name)
        self.socket, self.log, self.capture = place / "s", place / "log", place / "capture"
        self.reader = capture_reader(self.capture)
        self.position, self.markers = 0, 0      # of the capture: the end of the last marker, number of markers
        self.wire = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.wire.bind(str(place / "peer"))
        self.wire.setblocking(False)
        command = [ROOT / "tools/device", "--socket", self.socket, "--property", f"capture={self.capture}",
                   "--property", "mac=" + ":".join(re.findall("..", mac)), "--qemu-arg", "-d", "--qemu-arg", "guest_errors",
                   "--netdev", f"dgram,local.type=unix,local.path={place}/device,remote.type=unix,remote.path={place}/peer", *options]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            end = time.monotonic() + 120
            while not listens(self.socket, self.process.pid):
                if self.process.poll() is not None or time.monotonic() > end:
                    raise Timeout(f"the device does not start: {self.output()[-1000:].strip()}")
                time.sleep(0.005)
        except BaseException:
            self.close()
            raise

    def output(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def alive(self):
        return self.process.poll() is None

    def send(self, frame):
        """Sends a frame to the device."""
        self.wire.sendto(frame, f"{self.folder.name}/device")

    def receive(self):
        """Returns the next frame from the device, or None."""
        try:
            return self.wire.recv(65536)
        except BlockingIOError:
            return None

    def close(self):
        self.process.kill()
        self.process.wait()
        self.wire.close()
        self.folder.cleanup()


class Machine:
    """A CPU without caches, memory, and the device. Each instance begins after a reset of the device."""

    BASE = 5 << 30              # of memory: an address needs more than 32 bits

    def __init__(self, bench, memory_mapped=True):
        self._bench = bench
        self._client = driver.connect(bench)
        self._adapter = driver.Adapter(self._client, driver.Memory(base=self.BASE))
        self._memory = self._adapter.memory
        self._log_start = len(bench.output())
        self.accesses = collections.deque(maxlen=1 << 16)       # of the program
        self.allocated = []                                     # (address, size) of each mem_alloc()
        if memory_mapped:
            self._client.map(self._memory.base, self._memory.size, self._memory.fd)

    def close(self):
        self._client.close()
        self._adapter.close()

    # Accesses

    def config_read(self, offset, size=4):
        """Reads size bytes of configuration space."""
        need(size in (1, 2, 4) and 0 <= offset <= 4096 - size and offset % size == 0,
             f"config_read({offset:#x}, {size}): size is 1, 2 or 4, and offset a multiple of size below 4096")
        value = self._adapter.config(offset, size)
        self.accesses.append(Access("config-read", 0, offset, value, size))
        return value

    def config_write(self, offset, value, size=4):
        need(size in (1, 2, 4) and 0 <= offset <= 4096 - size and offset % size == 0,
             f"config_write({offset:#x}, ...): size is 1, 2 or 4, and offset a multiple of size below 4096")
        self.accesses.append(Access("config-write", 0, offset, value, size))
        self._adapter.set_config(offset, value & ((1 << 8 * size) - 1), size)

    def bar_read(self, bar, offset, size=4):
        """Reads size bytes of a BAR, as the load instruction of a CPU does. A device that does not decode the address returns
        all ones, because the bus does so."""
        need(size in (1, 2, 4, 8) and bar in (0, 1, 2, 4), f"bar_read({bar}, {offset:#x}, {size}): the BARs are 0, 1, 2 and 4")
        self.accesses.append(Access("bar-read", bar, offset, size, size))
        if not self._adapter.config(4, 2) & driver.MEMORY_ENABLE:
            return (1 << 8 * size) - 1
        try:
            return int.from_bytes(self._client.read(bar, offset, size), "little")
        except vfio_user.Rejected:
            raise Misuse(f"bar_read({bar}, {offset:#x}): the BAR ends before this offset") from None

    def bar_write(self, bar, offset, value, size=4):
        """Writes to a BAR. The write is posted: it has no answer, and the device may see it later."""
        need(size in (1, 2, 4, 8) and bar in (0, 1, 2, 4), f"bar_write({bar}, {offset:#x}, ...): the BARs are 0, 1, 2 and 4")
        need(isinstance(value, int) and 0 <= value < 1 << 8 * size,
             f"bar_write({bar}, {offset:#x}, {value!r}, {size}): the value must be a number of {size} bytes, from 0 to {(1 << 8 * size) - 1:#x}")
        self.accesses.append(Access("bar-write", bar, offset, value, size))
        if self._adapter.config(4, 2) & driver.MEMORY_ENABLE:
            self._client.post_write(bar, offset, value.to_bytes(size, "little"))

    def mem_alloc(self, size, align=64):
        """Returns the bus address of zeroed memory."""
        need(isinstance(size, int) and 0 < size <= self._memory.base + self._memory.size - self._memory.free - align,
             f"mem_alloc({size}): the machine has no memory of this size")
        address = self._memory.allocate(size, align)
        self.allocated.append((address, size))
        return address

    def mem_read(self, address, size):
        self._in_memory(address, size)
        self.accesses.append(Access("mem-read", 0, address, size, size))
        return self._memory.read(address, size)

    def mem_write(self, address, data):
        self._in_memory(address, len(data))
        self.accesses.append(Access("mem-write", 0, address, bytes(data), len(data)))
        self._memory.write(address, bytes(data))

    def _in_memory(self, address, size):
        need(isinstance(address, int) and self._memory.base <= address and address + size <= self._memory.base + self._memory.size,
             f"memory at {address!r}: the machine has memory from {self._memory.base:#x} to {self._memory.base + self._memory.size:#x}")

    def enable_msix(self, vectors=4):
        """Connects the vectors of MSI-X with the machine, as the kernel does for a driver."""
        self._adapter.enable_msix(vectors)

    def interrupts(self, vector):
        """Returns how many interrupts the vector has had since the last call."""
        try:
            return os.eventfd_read(self._adapter.events[vector])
        except BlockingIOError:
            return 0

    def sleep(self, vector):
        """Waits for an interrupt of the vector, as a process does that the kernel wakes. An interrupt since the last call ends the wait at once."""
        self.accesses.append(Access("sleep", vector, 0, 0, 0))
        self.wait_until(lambda: self.interrupts(vector), f"no interrupt of vector {vector} arrived")

    def wait_until(self, condition, text):
        """Calls condition until its result is true, and returns the result."""
        end = time.monotonic() + PATIENCE
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise Timeout(f"waited {PATIENCE} s in vain: {text}")
            time.sleep(0.001)

    # Observation

    def room(self, address):
        """Returns the number of bytes behind an address that the program has allocated, 0 if it has not allocated the address."""
        return sum(start + size - address for start, size in self.allocated if start <= address < start + size)

    def settle(self):
        """Returns when the device has done all work that it knows of. No request of this method is in the capture."""
        for _ in range(SETTLE_ROUNDS):
            self._client.info()

    def guest_errors(self):
        """Returns the lines of the device about rules that the driver broke, including those about its last posted writes."""
        try:
            self.settle()
        except (OSError, vfio_user.Closed):
            pass            # the device has ended, so it reports nothing more
        except AssertionError:
            pass            # the time limit has interrupted a request, whose reply comes now
        return [line for line in self._bench.output()[self._log_start:].splitlines() if "guest error" in line.lower() or "qrnic" in line]

    def forget_errors(self):
        """Forgets the lines so far, because the grader itself caused them."""
        self._log_start = len(self._bench.output())

    def mark(self):
        """Forgets the transactions so far."""
        self._transactions()
        self._bench.position = self._bench.reader.end

    def transactions(self):
        """Returns the transactions of the bus since mark(), in their order.

        A transaction has a kind ("read", "completion", "write", ...), an address and data. The keys are the words of its comment,
        for example {"use": "wqe", "object": "2"} (chapter Captures).
        """
        return self._transactions()

    def _transactions(self):
        """The write of a marker to SCRATCH ends the list, because a thread of the device writes the capture later."""
        bench = self._bench
        bench.markers += 1
        value = (0xabcd0000 | bench.markers).to_bytes(4, "little")
        place = hw.register["SCRATCH"]
        self._client.write(CONTROL, place, value)
        end, problem = time.monotonic() + PATIENCE, "it does not grow"
        while time.monotonic() < end:
            with open(bench.capture, "rb") as file:
                file.seek(bench.position)
                found = []
                try:
                    for one in transactions_of(bench.reader, file):
                        if one.kind == "write" and one.keys.get("bar") == "0" and int(one.keys.get("offset", "-1"), 0) == place and one.data[-4:] == value:
                            return found
                        found.append(one)
                except capturelib.CaptureError as error:
                    problem = error         # The device may not have written the first block yet.
            time.sleep(0.005)
        raise Timeout(f"the capture has no end: {problem}")


def capture_reader(path):
    """Returns a Reader of a capture, whose last block may be incomplete."""
    return capturelib.Reader(path, True, (hw.spec.version["major"], hw.spec.version["minor"]))


def transactions_of(reader, file):
    """Yields the transactions of an open capture, from the position of the file on."""
    for packet in reader.packets_of(file):
        keys, raw = dict(word.partition("=")[::2] for word in packet.comment.split()), packet.data
        if reader.interfaces[packet.interface][1] == capturelib.ETHERNET:
            yield Transaction("frame", 0, raw, keys)
            continue
        header = 16 if raw[0] & 0x20 else 12
        memory = raw[0] & 0x1f == 0
        address = int.from_bytes(raw[8:header], "big") if memory else 0
        yield Transaction(KINDS.get(raw[0] & ~0x20 if memory else raw[0], "other"), address, raw[header:], keys)


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def solution(name):
    """Returns the solution of another lab as a module, for a lab that continues it, for example solution("07-transport")."""
    path, = (Path(__file__).resolve().parent.parent / "solutions" / name).glob("*.py")
    return load(path, path.stem)


Simulated = collections.namedtuple("Simulated", "bytes sent lost retransmissions timeouts flows")
Flow = collections.namedtuple("Flow", "bytes messages median p99 longest")              # times in nanoseconds


def simulate(scenario):
    """Runs a scenario of tools/simulate (chapter The network simulator), a map. Returns the sums over all flows, links and nodes.

    Members: bytes of complete messages, frames that nodes sent, frames that links lost, packets that were retransmitted, timeouts.
    The member flows is a map from the name of a flow to its Flow. Only bytes until the time "until" count.
    """
    need(isinstance(scenario, dict), f"simulate({scenario!r}): a scenario is a map")
    try:
        plain = json.loads(json.dumps(scenario))        # Numbers, strings, lists and maps, as in a file
        rows = simulatelib.simulate(plain).rows
        until = simulatelib.quantity("time", plain["until"], "until")
    except (simulatelib.Wrong, simulatelib.Failed, TypeError, ValueError, KeyError, AttributeError) as error:
        raise Misuse(f"the simulator rejects the scenario: {error}") from None
    rates = collections.Counter()
    for row in rows["rate"]:
        rates[row["flow"]] += row["bytes"] if row["ns"] <= until else 0
    flows = {row["flow"]: Flow(rates[row["flow"]], *(row[name] for name in ("messages", "p50_ns", "p99_ns", "most_ns"))) for row in rows["flow"]}
    total = rows["total"][0]
    return Simulated(rates.total(), total["frames"], total["lost"], sum(row["retransmissions"] for row in rows["node"]),
                     sum(row["timeouts"] for row in rows["node"]), flows)


class Endpoint:
    """A queue pair of type RC with its rings and records: the objects that labs 3 to 7 and 11 begin with.

    Members: number, sq, sq_record, rq, rq_record, log_size; cq, cq_ring, cq_record, cq_log_size; key.
    """

    def __init__(self, machine, pd, key, eq, log_size=3, cq_log_size=2):
        a = machine._adapter                    # pylint: disable=protected-access  # both classes are of this file
        self.machine, self.key, self.log_size, self.cq_log_size = machine, key, log_size, cq_log_size
        self.posted, self.consumed = 0, 0       # of post() and completion()
        self.sq, self.rq = machine.mem_alloc(64 << log_size, 4096), machine.mem_alloc(64 << log_size, 4096)
        self.sq_record, self.rq_record = machine.mem_alloc(8), machine.mem_alloc(8)
        self.cq, self.cq_ring, self.cq_record = a.completion_queue(eq, cq_log_size)
        self.number = a.command("CREATE_QP", data=hw.pack(
            "qp_ctx", type="RC", sq_log_size=log_size, rq_log_size=log_size, pd=pd, send_cq=self.cq, recv_cq=self.cq,
            sq_record=self.sq_record, rq_record=self.rq_record, sq={"root": self.sq}, rq={"root": self.rq}))

    def modify(self, mask, **values):
        self.machine._adapter.command("MODIFY_QP", self.number,     # pylint: disable=protected-access
                                      hw.pack("qp_attr", mask=["STATE", *mask], **values))

    def post(self, *segments, opcode="RDMA_WRITE", flags=("SIGNALED",)):
        """Posts a WQE of one block for the grader."""
        memory = self.machine._memory           # pylint: disable=protected-access
        memory.write(self.sq + 64 * (self.posted % (1 << self.log_size)),
                     hw.pack("sq_ctrl", opcode=opcode, flags=list(flags), segments=1 + len(segments), index=self.posted) + b"".join(segments))
        self.posted += 1
        memory.write(self.sq_record, hw.pack("queue_record", producer=self.posted))
        self.machine._adapter.doorbell(hw.constant("DB_SQ"), hw.pack("doorbell", number=self.number, index=self.posted))    # pylint: disable=protected-access

    def write(self, source, length, target):
        """Posts an RDMA write for the grader."""
        self.post(hw.pack("remote_seg", address=target, rkey=self.key), hw.pack("data_seg", address=source, length=length, lkey=self.key))

    def completion(self):
        """Waits for the next CQE for the grader, and consumes it."""
        memory, index = self.machine._memory, self.consumed     # pylint: disable=protected-access

        def new():
            entry = hw.unpack("cqe", memory.read(self.cq_ring + 64 * (index % (1 << self.cq_log_size)), 64))
            return entry if entry["phase"] != (index >> self.cq_log_size) % 2 else None
        entry = self.machine.wait_until(new, "no completion arrives")
        self.consumed += 1
        memory.write(self.cq_record, struct.pack("<I", self.consumed))
        return entry

    def connect(self, number, address=ADDRESS, mac=MAC, mtu="1024", timeout=18, psn=0):
        """Moves the queue pair to RTS, connected to queue pair number."""
        self.modify(["PKEY_INDEX", "PORT", "ACCESS_FLAGS"], state="INIT", port=1, access=["REMOTE_WRITE", "REMOTE_READ"])
        self.modify(["AV", "PATH_MTU", "RQ_PSN", "MIN_RNR_TIMER", "MAX_DEST_RD_ATOMIC", "DEST_QPN"], state="RTR", path_mtu=mtu,
                    rq_psn=0, dest_qpn=number, min_rnr_timer=1, max_dest_rd_atomic=1,
                    av={"dgid": driver.gid_of(address), "dmac": mac, "hop_limit": 64})
        self.modify(["TIMEOUT", "RETRY_CNT", "RNR_RETRY", "SQ_PSN", "MAX_RD_ATOMIC"], state="RTS", timeout=timeout, retry_cnt=7,
                    rnr_retry=7, sq_psn=psn, max_rd_atomic=1)


class Setup:
    """A started device with a key for all memory and two queue pairs that are connected to each other.

    Members: machine, pd, eq, eq_ring, key, left, right.
    """

    def __init__(self, machine, connected=True, contexts=False, address=ADDRESS, mac=MAC, **sizes):
        """contexts: gives the device memory for the contexts that its cache has no room for."""
        a = machine._adapter                    # pylint: disable=protected-access
        self.machine, self.adapter = machine, a
        machine.config_write(4, driver.MEMORY_ENABLE | driver.BUS_MASTER, 2)
        a.set_register("CONTROL", hw.field("CONTROL", "RESET"))
        machine.wait_until(lambda: a.register("STATUS") & hw.field("STATUS", "READY"), "the device is not ready")
        a.enable_msix()
        a.enable_commands()
        if contexts:
            a.command("QUERY_CONTEXTS")
            size = a.output("context_attr")["images"] * hw.constant("CONTEXT_IMAGE_SIZE")
            a.command("SET_CONTEXTS", data=hw.pack("context_memory", memory={"root": machine.mem_alloc(size, 4096)}, length=size))
        self.eq, self.eq_ring = a.event_queue("COMPLETION", 1)
        self.pd = a.command("ALLOC_PD")
        self.key = a.command("CREATE_MKEY", data=hw.pack("mkey_ctx", type="DMA", access=["LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ"],
                                                         variant=5, pd=self.pd, length=(1 << 64) - 1)) << 8 | 5
        a.command("SET_GID", data=hw.pack("gid_entry", gid=driver.gid_of(address), mac=mac, flags=["VALID"]))
        self.left = Endpoint(machine, self.pd, self.key, self.eq, **sizes)
        self.right = Endpoint(machine, self.pd, self.key, self.eq, **sizes) if connected else None
        if connected:
            self.left.connect(self.right.number)
            self.right.connect(self.left.number)
        machine.mark()
        machine.accesses.clear()
