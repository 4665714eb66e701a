# Starts device processes, and drives a device by the manual (spec/initialisation.rst) through a vfio-user client.
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A test starts a Process, connects a Client to its socket, and makes an Adapter of the client. Adapter maps the memory
# of the "guest", one memfd, and then performs the steps of the chapter: registers, commands, queues, doorbells.
"""The device process and a driver as small as a driver can be."""

import contextlib
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "spec/lib"), str(ROOT / "tools")]
import contract  # noqa: E402
import examples  # noqa: E402
import vfio_user  # noqa: E402
from guestlib.process import listens  # noqa: E402

LIMIT = vfio_user.LIMIT
GUEST_BASE = 0x100000           # address of the memory, as the device knows it
MEMORY_SIZE = 4 << 20
RING_LOG = 3                    # size of the command ring
COMMAND, MEMORY_ENABLE, BUS_MASTER = 4, 2, 4


class Hardware:
    """Numbers and structures of spec/qrnic-hw.yaml."""

    def __init__(self):
        self.spec = contract.load(ROOT / "spec/qrnic-hw.yaml")
        self.register = {r["name"]: r["offset"] for r in self.spec.registers["list"]}
        self.opcode = {v["name"]: v["value"] for v in self.spec.enums["cmd_opcode"]["values"]}
        self.status = {v["value"]: v["name"] for v in self.spec.enums["cmd_status"]["values"]}

    def constant(self, name):
        return self.spec.constant(name)

    def field(self, register, name):
        fields = next(r for r in self.spec.registers["list"] if r["name"] == register)["fields"]
        return next(f["mask"] for f in fields if f["name"] == name)

    def flag(self, group, name):
        return 1 << next(v["bit"] for v in self.spec.flags[group]["values"] if v["name"] == name)

    def size(self, struct_name):
        return self.spec.structs[struct_name]["size"]

    def pack(self, struct_name, **values):
        return b"".join(row[1] for row in examples.rows_of(self.spec, struct_name, values, struct_name))

    def unpack(self, struct_name, data):
        """Returns {member or field: number} of the members that are numbers."""
        out = {}
        for member in self.spec.structs[struct_name]["members"]:
            if member["type"] in ("bytes", "struct"):
                continue
            order = "big" if member["type"].startswith("be") else "little"
            number = int.from_bytes(data[member["offset"]:member["offset"] + member["size"]], order)
            out[member["name"]] = number
            for field in member.get("fields", ()):
                out[field["name"]] = (number & field["mask"]) >> field["lo"]
        return out


HW = Hardware()


def wait_until(condition, text, limit=LIMIT):
    """Waits for a condition; returns its value. Raises AssertionError with the text after the limit."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{text} (waited {limit} s)")
        time.sleep(0.002)


def sanitizer_environment():
    """Returns the environment of a QEMU with sanitizers, in which every finding ends the process."""
    return dict(os.environ, ASAN_OPTIONS="detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=1:quarantine_size_mb=16:"
                             "allocator_may_return_null=1",
                UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1")


def qemu_command(qemu, path, properties="", cable=None, map_memory=False):
    """Returns the command of a device process with a QEMU of its own, such as one with sanitizers."""
    wire = ["-object", f"qrnic-cable,id=cable,path={cable}"] if cable else []
    device = ",".join(word for word in ("qrnic", "cable=cable" if cable else "", properties) if word)
    return [qemu, "-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg,tb-size=1", "-M",
            f"qrnic-process,socket={path}" + (",map-memory=on" if map_memory else ""), *wire, "-device", device]


class Process:
    """One device process. The output goes to a file, because a pipe would fill up while a test runs."""

    def __init__(self, folder, name, properties="", cable=None, qemu=None, start=True, trace=None, qmp=None,
                 map_memory=False):
        self.folder, self.name = Path(folder), name
        self.socket = self.folder / f"{name}.sock"
        self.output_path = self.folder / f"{name}.log"
        if qemu:
            command = qemu_command(qemu, self.socket, properties, cable, map_memory)
        else:
            command = [ROOT / "tools/device", "--socket", self.socket, *(["--cable", cable] if cable else []),
                       *(["--map-memory"] if map_memory else [])]
            for setting in properties.split(",") if properties else ():
                command += ["--property", setting]
        if trace:
            command += ["-trace" if qemu else "--trace", trace]
        if qmp:
            command += ["-chardev", f"socket,id=qmp,path={qmp},server=on,wait=off", "-mon", "chardev=qmp,mode=control"] if qemu else ["--qmp", qmp]
        with open(self.output_path, "wb") as output:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=subprocess.STDOUT, env=sanitizer_environment())
        if start:
            self.wait_for_socket()

    def wait_for_socket(self):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"the device process ended with status {self.process.returncode}: {self.output()}")
            return listens(self.socket, self.process.pid)
        try:
            wait_until(ready, "the device process does not listen")
        except BaseException:
            self.end()
            raise

    def output(self):
        return self.output_path.read_text(encoding="utf-8", errors="replace")[-6000:]

    def alive(self):
        return self.process.poll() is None

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident(self):
        """Returns the resident memory in bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE

    def mappings(self, text):
        """Returns the number of mappings whose line contains the text."""
        return Path(f"/proc/{self.process.pid}/maps").read_text(encoding="utf-8", errors="replace").count(text)

    @contextlib.contextmanager
    def stopped(self):
        """Stops the process for the time of a with statement."""
        self.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        try:
            wait_until(lambda: not self.alive() or stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T",
                       "the process does not stop")
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self, limit=LIMIT):
        """Ends the process as an operator does; returns its status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"SIGTERM does not end the device process in {limit} s") from None

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, _):
        self.end()
        if isinstance(value, AssertionError) and self.output().strip():
            raise AssertionError(f"{value}\noutput of {self.name}:\n{self.output()}") from value


def connect(process, limit=LIMIT):
    """Returns a client. The server may reject a client before it notices the end of the previous connection."""
    end = time.monotonic() + limit
    while True:
        try:
            return vfio_user.Client(process.socket)
        except (vfio_user.Closed, ConnectionError, BlockingIOError):
            if not process.alive() or time.monotonic() > end:
                raise
        time.sleep(0.002)


class SlowSocket:
    """A TCP socket whose last close() waits, until the peer is closed: SO_LINGER, and bytes that the peer does not read.

    A stop of the process that closes the socket ends the wait early.
    """

    def __init__(self):
        self.socket = socket.socket()
        # The buffers are small, because a test has many of these sockets.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            self.socket.connect(server.getsockname())
            self.peer, _ = server.accept()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10000))
        self.socket.setblocking(False)
        try:
            while True:
                self.socket.send(bytes(1 << 16))
        except BlockingIOError:
            pass

    def pass_on(self, connection, data, flags=0, more=()):
        """Sends bytes with the socket and more descriptors, and leaves the socket to the receiver. The receiver must be stopped, or wait for
        the rest of a message. Otherwise the receiver may close its descriptor first, and close() waits here."""
        try:
            fds = [self.socket.fileno(), *more]
            connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))],
                               socket.MSG_DONTWAIT | flags)
        except OSError:
            self.release()
            raise
        finally:
            self.socket.close()

    def release(self):
        """Ends the wait. SO_LINGER of 0 seconds resets the connection."""
        if self.peer.fileno() >= 0:
            self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.peer.close()


class Memory:
    """Memory of the guest: a memfd, and its mapping in this process."""

    def __init__(self, size=MEMORY_SIZE, base=GUEST_BASE, name="guest"):
        self.base, self.size = base, size
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        self.map = mmap.mmap(self.fd, size)
        self.free = base

    def allocate(self, size, align=64):
        address = -(-self.free // align) * align
        self.free = address + size
        assert self.free <= self.base + self.size
        self.write(address, bytes(size))
        return address

    def write(self, address, data):
        self.map[address - self.base:address - self.base + len(data)] = data

    def read(self, address, size):
        return self.map[address - self.base:address - self.base + size]

    def close(self):
        self.map.close()
        os.close(self.fd)


class Adapter:
    """The device behind a client, and the driver's objects."""

    def __init__(self, client, memory=None):
        self.client = client
        self.memory = memory or Memory()
        self.producer = 0
        self.events = []

    def close(self):
        for fd in self.events:
            os.close(fd)
        self.memory.close()

    # Accesses

    def config(self, offset, size=4):
        return int.from_bytes(self.client.read(vfio_user.CONFIG_REGION, offset, size), "little")

    def set_config(self, offset, value, size=4):
        self.client.write(vfio_user.CONFIG_REGION, offset, value.to_bytes(size, "little"))

    def capability(self, number):
        """Returns the offset of a PCI capability, or 0."""
        at = self.config(0x34, 1)
        for _ in range(48):
            if not at or self.config(at, 1) == number:
                return at
            at = self.config(at + 1, 1)
        raise AssertionError("the list of capabilities has no end")

    def register(self, name):
        return int.from_bytes(self.client.read(HW.constant("BAR_CONTROL"), HW.register[name], 4), "little")

    def set_register(self, name, value):
        self.client.write(HW.constant("BAR_CONTROL"), HW.register[name], value.to_bytes(4, "little"))

    def doorbell(self, offset, data, page=0):
        self.client.post_write(HW.constant("BAR_DOORBELL"), page * HW.constant("DB_PAGE_SIZE") + offset, data)

    # Initialisation

    def enable(self):
        """Maps the memory and opens the device: BARs, bus mastering."""
        self.client.map(self.memory.base, self.memory.size, self.memory.fd)
        self.set_config(COMMAND, MEMORY_ENABLE | BUS_MASTER, 2)
        assert self.register("ID") == HW.constant("ID_MAGIC"), f"ID reads {self.register('ID'):#x}"
        self.set_register("CONTROL", HW.field("CONTROL", "RESET"))
        wait_until(lambda: self.register("STATUS") & HW.field("STATUS", "READY"), "the device is not ready after the reset")

    def enable_msix(self, vectors=4):
        """Sets up vectors with an eventfd each, as a VMM does when the guest enables MSI-X."""
        capability = self.capability(0x11)
        self.events = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(vectors)]
        self.client.set_irqs(vfio_user.MSIX, 0, vectors, fds=self.events)
        for vector in range(vectors):
            self.client.write(HW.constant("BAR_MSIX"), 16 * vector, struct.pack("<IIII", 0xfee00000, 0, vector, 0))
        self.set_config(capability + 2, 0x8000, 2)

    def enable_commands(self):
        self.ring = self.memory.allocate(HW.constant("CMD_ENTRY_SIZE") << RING_LOG)
        self.mailbox_in, self.mailbox_out = self.memory.allocate(4096), self.memory.allocate(4096)
        for name, value in (("CMD_BASE_LO", self.ring & 0xffffffff), ("CMD_BASE_HI", self.ring >> 32), ("CMD_SIZE", RING_LOG),
                            ("CONTROL", HW.field("CONTROL", "CMD_ENABLE"))):
            self.set_register(name, value)
        self.producer = 0
        assert self.register("STATUS") & HW.field("STATUS", "CMD_ENABLED"), "the command queue does not start"

    def start(self, vectors=4):
        self.enable()
        self.enable_msix(vectors)
        self.enable_commands()
        return self

    # Commands

    def post_command(self, name, number=0, data=b"", event=0, out_len=4096):
        """Writes an entry and the doorbell; returns the address of the entry."""
        self.memory.write(self.mailbox_in, data)
        place = self.ring + HW.constant("CMD_ENTRY_SIZE") * (self.producer % (1 << RING_LOG))
        self.memory.write(place, HW.pack("cmd_entry", opcode=HW.opcode[name], token=self.producer & 0xffff, object=number,
                                         in_addr=self.mailbox_in if data else 0, out_addr=self.mailbox_out, in_len=len(data),
                                         out_len=out_len, event=event, owner=1))
        self.producer += 1
        self.set_register("CMD_DOORBELL", self.producer)
        return place

    def command_done(self, place):
        entry = HW.unpack("cmd_entry", self.memory.read(place, HW.size("cmd_entry")))
        return None if entry["owner"] else entry

    def command(self, name, number=0, data=b"", **options):
        """Executes a command; returns its result. Raises AssertionError if the device rejects it."""
        place = self.post_command(name, number, data, **options)
        entry = wait_until(lambda: self.command_done(place), f"{name} is not completed")
        assert entry["status"] == 0, f"{name} fails with {HW.status.get(entry['status'])}, syndrome {entry['syndrome']}"
        return entry["result"]

    def output(self, struct_name):
        return HW.unpack(struct_name, self.memory.read(self.mailbox_out, HW.size(struct_name)))

    # Queues

    def event_queue(self, kind, vector, log_size=4):
        ring = self.memory.allocate(HW.size("eqe") << log_size, 4096)
        number = self.command("CREATE_EQ", data=HW.pack("eq_ctx", type=kind, log_size=log_size, vector=vector, ring={"root": ring}))
        self.doorbell(HW.constant("DB_EQ"), HW.pack("eq_doorbell", number=number, arm=1, index=0))
        return number, ring

    def interrupt(self, vector, text="no interrupt arrives", limit=LIMIT):
        """Waits for the eventfd of a vector."""
        ready, _, _ = select.select([self.events[vector]], [], [], limit)
        assert ready, f"{text} (waited {limit} s)"
        return os.eventfd_read(self.events[vector])

    def quiet(self, vector):
        """Returns true if the vector has no pending interrupt."""
        return not select.select([self.events[vector]], [], [], 0)[0]

    def all_memory_key(self, pd):
        rights = ["LOCAL_WRITE", "REMOTE_ATOMIC"]
        return self.command("CREATE_MKEY", data=HW.pack("mkey_ctx", type="DMA", access=rights, variant=5, pd=pd,
                                                        length=(1 << 64) - 1)) << 8 | 5

    def device_memory(self, pd, length):
        """Allocates device memory; returns (offset in the BAR, key)."""
        number = self.command("ALLOC_DM", data=HW.pack("dm_ctx", length=length))
        self.command("QUERY_DM", number)
        offset = self.output("dm_ctx")["offset"]
        key = self.command("CREATE_MKEY", data=HW.pack("mkey_ctx", type="DM", access=["LOCAL_WRITE"], variant=5, pd=pd, length=length,
                                                       dm=number)) << 8 | 5
        return offset, key

    def completion_queue(self, eq, log_size=4):
        ring, record = self.memory.allocate(HW.size("cqe") << log_size, 4096), self.memory.allocate(8)
        number = self.command("CREATE_CQ", data=HW.pack("cq_ctx", eqn=eq, log_size=log_size, record=record, ring={"root": ring}))
        return number, ring, record

    def completion(self, ring, slot=0, phase=1):
        """Waits for a CQE. The phase is 1 in the first pass through the ring, then 0, and so on."""
        place = ring + HW.size("cqe") * slot

        def done():
            entry = HW.unpack("cqe", self.memory.read(place, HW.size("cqe")))
            return entry if entry["phase"] == phase else None
        return wait_until(done, "no completion arrives")


def gid_of(address):
    """Returns the GID of an IPv4 address, in hexadecimal."""
    return (bytes(10) + b"\xff\xff" + socket.inet_aton(address)).hex()


class Connection:
    """An RC queue pair with one key for all memory."""

    def __init__(self, adapter, address, mac):
        self.adapter, self.address, self.mac, self.posted = adapter, address, mac, 0
        a = adapter
        self.eq, _ = a.event_queue("COMPLETION", 1)
        self.pd = a.command("ALLOC_PD")
        self.key = a.all_memory_key(self.pd)
        self.cq, self.cq_ring, self.cq_record = a.completion_queue(self.eq)
        self.sq, self.rq = a.memory.allocate(64 << 6, 4096), a.memory.allocate(64 << 6, 4096)
        self.sq_record, self.rq_record = a.memory.allocate(8), a.memory.allocate(8)
        a.command("SET_GID", data=HW.pack("gid_entry", gid=gid_of(address), mac=mac.hex(), flags=["VALID"]))
        self.qp = a.command("CREATE_QP", data=HW.pack("qp_ctx", type="RC", sq_log_size=6, rq_log_size=5, pd=self.pd, send_cq=self.cq,
                                                      recv_cq=self.cq, sq_record=self.sq_record, rq_record=self.rq_record,
                                                      sq={"root": self.sq}, rq={"root": self.rq}))

    def modify(self, mask, **values):
        self.adapter.command("MODIFY_QP", self.qp, HW.pack("qp_attr", mask=["STATE", *mask], **values))

    def connect(self, peer):
        self.modify(["PKEY_INDEX", "PORT", "ACCESS_FLAGS"], state="INIT", port=1, access=["REMOTE_ATOMIC"])
        self.modify(["AV", "PATH_MTU", "RQ_PSN", "MIN_RNR_TIMER", "MAX_DEST_RD_ATOMIC", "DEST_QPN"], state="RTR", path_mtu="1024",
                    rq_psn=peer.qp, dest_qpn=peer.qp, min_rnr_timer=1, max_dest_rd_atomic=1,
                    av={"dgid": gid_of(peer.address), "dmac": peer.mac.hex(), "hop_limit": 64})
        self.modify(["TIMEOUT", "RETRY_CNT", "RNR_RETRY", "SQ_PSN", "MAX_RD_ATOMIC"], state="RTS", timeout=18, retry_cnt=7, rnr_retry=7,
                    sq_psn=self.qp, max_rd_atomic=1)

    def arm(self):
        """Requests an event for the next completion."""
        self.adapter.memory.write(self.cq_record, HW.pack("cq_record", consumer=0, sequence=1))
        self.adapter.doorbell(HW.constant("DB_CQ_ARM"), HW.pack("doorbell", number=self.cq, index=0))

    def post_receive(self, address, length, key=None):
        memory = self.adapter.memory
        memory.write(self.rq, HW.pack("recv_ctrl", data_segments=1, index=0) +
                     HW.pack("data_seg", address=address, length=length, lkey=self.key if key is None else key))
        memory.write(self.rq_record, HW.pack("queue_record", producer=1))
        self.adapter.doorbell(HW.constant("DB_RQ"), HW.pack("doorbell", number=self.qp, index=1))

    def post(self, *segments, opcode, blocks=1):
        """Posts a WQE of these segments of 16 bytes, behind the control segment."""
        memory, index = self.adapter.memory, self.posted
        memory.write(self.sq + 64 * index, HW.pack("sq_ctrl", opcode=opcode, flags=["SIGNALED"], segments=1 + len(segments), index=index) +
                     b"".join(segments))
        self.posted += blocks
        memory.write(self.sq_record, HW.pack("queue_record", producer=self.posted))
        self.adapter.doorbell(HW.constant("DB_SQ"), HW.pack("doorbell", number=self.qp, index=self.posted))

    def post_send(self, address, length, key=None):
        self.post(HW.pack("data_seg", address=address, length=length, lkey=self.key if key is None else key), opcode="SEND")

    def post_fetch_add(self, address, rkey, number, result):
        """Adds the number to 8 bytes of the peer; the previous value goes to the address result."""
        self.post(HW.pack("remote_seg", address=address, rkey=rkey), HW.pack("atomic_seg", swap_add=number),
                  HW.pack("data_seg", address=result, length=8, lkey=self.key), opcode="ATOMIC_FETCH_ADD")
