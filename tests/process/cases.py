# The black-box tests of the device process: each function named test_* is one test.
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tools/check-process calls the functions with a Lab, in the order of this file. A test that raises AssertionError,
# Rejected, Closed or TimeoutError has failed. Most tests share one process, so they also test reconnection. A test that
# ends or breaks the process starts one of its own.
"""Tests of the device process from outside."""

import contextlib
import errno
import mmap
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import vfio_user as vu
from driver import HW, LIMIT, Adapter, Connection, Memory, Process, ROOT, SlowSocket, connect, wait_until
from vfio_user import Client, Closed, Rejected

CONTROL, MSIX_BAR, DOORBELL, MEMORY = (HW.constant(f"BAR_{name}") for name in ("CONTROL", "MSIX", "DOORBELL", "MEMORY"))
MACS = (bytes.fromhex("525400000001"), bytes.fromhex("525400000002"))


class Lab:
    """Folder, and the process that most tests share."""

    def __init__(self, folder, qemu=None):
        self.folder, self.qemu, self.shared, self.count = Path(folder), qemu, None, 0

    def process(self, **options):
        self.count += 1
        return Process(self.folder, f"d{self.count}", qemu=self.qemu, **options)

    def server(self):
        """Returns the shared process, and starts another one if it has ended."""
        if self.shared is None or not self.shared.alive():
            self.shared = self.process()
        return self.shared

    def client(self, **more):
        return Client(self.server().socket, **more) if more else connect(self.server())

    def close(self):
        if self.shared:
            self.shared.end()


def rejected(call, *arguments, **more):
    """Returns the errno with which the server answers; fails if there is no error."""
    try:
        call(*arguments, **more)
    except Rejected as error:
        return error.args[0]
    raise AssertionError(f"{call.__name__}{arguments} is accepted")


def ends(client, limit=LIMIT):
    """Waits until the server closes the connection."""
    client.socket.settimeout(limit)
    try:
        while True:
            client.receive()
    except Closed:
        return


def check_reset_state(adapter):
    """Checks registers and configuration space against the state after a reset."""
    assert adapter.config(4, 2) & 6 == 0, "memory space or bus mastering is enabled after a reset"
    msix = adapter.capability(0x11)
    assert not adapter.config(msix + 2, 2) & 0x8000, "MSI-X is enabled after a reset"
    adapter.set_config(4, 2, 2)
    assert adapter.register("SCRATCH") == 0, "SCRATCH keeps its value across a reset"
    assert not adapter.register("STATUS") & HW.field("STATUS", "CMD_ENABLED"), "the command queue runs after a reset"
    assert adapter.register("CMD_BASE_LO") == 0, "CMD_BASE_LO keeps its value across a reset"


# Protocol


def test_version(lab):
    """Version and capabilities of the server"""
    with lab.client() as client:
        assert client.server_version[0] == 0, f"the server has version {client.server_version}"
        assert client.capabilities["max_msg_fds"] >= 1 and client.capabilities["max_data_xfer_size"] >= 4096
        assert "migration" not in client.capabilities, "the server offers migration"
        limit = client.capabilities["max_data_xfer_size"]
        client.write(MEMORY, 0, bytes(limit))
        assert client.read(MEMORY, 0, limit) == bytes(limit), "an access of the announced size fails"
    invalid(lab, "an access has more than", lambda client: client.read(MEMORY, 0, limit + 1))


def test_device_information(lab):
    """A PCI device that can be reset"""
    with lab.client() as client:
        flags, regions, irqs = client.info()
        assert flags & (vu.DEVICE_PCI_FLAG | vu.DEVICE_RESET_FLAG) == vu.DEVICE_PCI_FLAG | vu.DEVICE_RESET_FLAG
        assert regions >= 9 and irqs >= 3


def test_regions(lab):
    """Sizes of all regions, against registers and the definition of the hardware"""
    with lab.client() as client:
        adapter = Adapter(client)
        adapter.set_config(4, 2, 2)
        regions = [client.region(index) for index in range(client.info()[1])]
        assert [region.index for region in regions] == list(range(len(regions)))
        assert regions[CONTROL].size == HW.constant("BAR_CONTROL_SIZE")
        assert regions[MSIX_BAR].size == HW.constant("BAR_MSIX_SIZE")
        assert regions[DOORBELL].size == adapter.register("DB_PAGES") * HW.constant("DB_PAGE_SIZE")
        assert regions[vu.CONFIG_REGION].size == 4096, f"configuration space has {regions[7].size} bytes"
        assert regions[3].size == regions[5].size == 0, "the upper half of a 64-bit BAR is a region"
        for index in (CONTROL, MSIX_BAR, DOORBELL, vu.CONFIG_REGION):
            assert regions[index].flags & 3 == 3, f"region {index} cannot be read and written"
        for region in regions[vu.MIGRATION_REGION:]:
            assert region.size == 0, f"region {region.index}, of migration, exists"
        for region in regions:
            for fd in region.fds:
                os.close(fd)
        rejected(client.region, len(regions))
        rejected(client.region, 0xffffffff)
        adapter.close()


def test_configuration_space(lab):
    """Identity, size of BARs, capabilities"""
    with lab.client() as client:
        adapter = Adapter(client)
        assert adapter.config(0) == HW.constant("PCI_DEVICE_ID") << 16 | HW.constant("PCI_VENDOR_ID")
        assert adapter.config(8) == HW.constant("PCI_CLASS") << 8 | HW.constant("PCI_REVISION"), f"class {adapter.config(8):#x}"
        for bar, wide in ((CONTROL, False), (MSIX_BAR, False), (DOORBELL, True), (MEMORY, True)):
            at = 0x10 + 4 * bar
            low = adapter.config(at)
            assert low & 0xf == (0xc if wide else 0), f"BAR {bar} reads {low:#x}"
            adapter.set_config(at, 0xffffffff)
            mask = adapter.config(at) & ~0xf
            size = -mask & 0xffffffff
            assert size == client.region(bar).size, f"BAR {bar} decodes {size:#x} bytes, and its region has {client.region(bar).size:#x}"
            adapter.set_config(at, 0xe0000000)
            assert adapter.config(at) & ~0xf == 0xe0000000
        assert adapter.capability(0x01) and adapter.capability(0x10) and adapter.capability(0x11)
        assert not adapter.capability(0x05), "MSI exists"
        assert adapter.config(0x3d, 1) == 0, "the device has an interrupt pin"
        extended, at = [], 0x100
        while at and len(extended) < 64:
            extended.append(adapter.config(at) & 0xffff)
            at = adapter.config(at) >> 20
        assert {1, 3} <= set(extended), f"extended capabilities {extended}"
        # Accesses of any size and alignment agree.
        whole = client.read(vu.CONFIG_REGION, 0, 256)
        for offset, count in ((0, 1), (1, 1), (2, 2), (1, 3), (3, 4), (0, 8), (60, 7)):
            assert client.read(vu.CONFIG_REGION, offset, count) == whole[offset:offset + count]
        adapter.close()


def test_accesses_out_of_range(lab):
    """Accesses beyond a region are rejected, and harmless"""
    with lab.client() as client:
        for region in range(9):
            size = client.region(region).size
            for offset, count in ((size, 1), (size - 1 if size else 0, 2), ((1 << 64) - 1, 1), ((1 << 64) - 4, 8), (1 << 63, 4)):
                rejected(client.read, region, offset, count)
                rejected(client.write, region, offset, bytes(count))
        rejected(client.read, 1000, 0, 4)
        assert client.read(vu.CONFIG_REGION, 0, 2) == struct.pack("<H", HW.constant("PCI_VENDOR_ID"))


def test_accesses_of_odd_size(lab):
    """Accesses of each size to each BAR leave the server alive"""
    with lab.client() as client:
        adapter = Adapter(client)
        adapter.set_config(4, 2, 2)
        for region in (CONTROL, MSIX_BAR, DOORBELL, MEMORY):
            for count in (1, 2, 3, 4, 5, 8, 16, 64, 4096):
                for offset in (0, 1, 4, 0x33):
                    for call in (lambda o=offset, n=count, r=region: client.read(r, o, n),
                                 lambda o=offset, n=count, r=region: client.write(r, o, b"\0" * n)):
                        try:
                            call()
                        except Rejected:
                            pass
        assert adapter.register("ID") == HW.constant("ID_MAGIC")
        adapter.close()


def test_large_accesses_to_registers(lab):
    """Accesses of more than 512 bytes to registers and doorbells are errors, because each would be thousands of accesses"""
    with lab.client() as client:
        for region in (CONTROL, MSIX_BAR, DOORBELL):
            if region != MSIX_BAR:
                client.write(region, 0, client.read(region, 0, 512))
            assert rejected(client.read, region, 0, 513) == errno.EINVAL
            assert rejected(client.write, region, 0, bytes(32768)) == errno.EINVAL
        assert client.read(MEMORY, 0, 32768) == bytes(32768)


def test_halves_of_words(lab):
    """Accesses of 8 bytes, and pairs of 4 bytes as a CPU of 32 bits makes them, have the effects that the manual describes"""
    with lab.client() as client:
        adapter = Adapter(client).start(vectors=1)
        text = bytes(range(1, 17))
        client.write(MEMORY, 0, text[:8])
        client.write(MEMORY, 8, text[8:12])
        client.write(MEMORY, 12, text[12:])
        assert client.read(MEMORY, 0, 4) + client.read(MEMORY, 4, 4) + client.read(MEMORY, 8, 8) == text
        # Two registers can be read at once, but not be written.
        id_, scratch = HW.register["ID"], HW.register["SCRATCH"] & ~7
        assert client.read(CONTROL, id_, 8) == client.read(CONTROL, id_, 4) + client.read(CONTROL, id_ + 4, 4)
        adapter.set_register("SCRATCH", 0x1234)
        client.write(CONTROL, scratch, b"\1" * 8)
        assert adapter.register("SCRATCH") == 0x1234, "a write of 8 bytes changes a register"
        # A doorbell in two halves has no effect.
        adapter.event_queue("ASYNC", 0)
        adapter.command("QUERY_PORT", event=1)
        adapter.interrupt(0)
        adapter.command("QUERY_PORT", event=1)
        doorbell, offset = HW.pack("eq_doorbell", number=1, arm=1, index=1), HW.constant("DB_EQ")
        adapter.doorbell(offset, doorbell[:4])
        adapter.doorbell(offset + 4, doorbell[4:])
        adapter.command("QUERY_PORT")
        assert adapter.quiet(0), "halves of a doorbell arm the event queue"
        adapter.doorbell(offset, doorbell)
        adapter.interrupt(0, "a doorbell of 8 bytes does not arm the event queue")
        adapter.close()


def test_interrupt_information(lab):
    """MSI-X with VECTORS vectors, and neither MSI nor INTx"""
    with lab.client() as client:
        adapter = Adapter(client)
        adapter.set_config(4, 2, 2)
        assert client.irq(vu.MSIX)[1] == adapter.register("VECTORS")
        assert client.irq(vu.MSI)[1] == 0
        assert client.irq(vu.INTX)[1] == 0, "the device has INTx"
        assert client.irq(vu.ERR)[1] == client.irq(vu.REQ)[1] == 0, "the server offers interrupts that it never sends"
        rejected(client.irq, 1000)
        fd = os.eventfd(0)
        rejected(client.set_irqs, vu.MSIX, adapter.register("VECTORS"), 1, fds=[fd])
        rejected(client.set_irqs, vu.MSIX, 0, 2, fds=[fd])
        rejected(client.set_irqs, 1000, 0, 1, fds=[fd])
        os.close(fd)
        adapter.close()


def test_migration(lab):
    """Every request of migration is rejected"""
    with lab.client() as client:
        rejected(client.request, vu.DIRTY_PAGES, struct.pack("<II", 8, 1))
        rejected(client.read, vu.MIGRATION_REGION, 0, 4)
        for command in (vu.DEVICE_FEATURE, vu.MIG_DATA_READ, vu.MIG_DATA_WRITE):
            rejected(client.request, command, struct.pack("<IIII", 16, 1, 0, 0))
        assert client.info()[1]


# Device


def test_commands(lab):
    """Command queue in memory of the client"""
    with lab.client() as client:
        adapter = Adapter(client).start()
        adapter.command("QUERY_DEVICE")
        attributes = adapter.output("device_attr")
        assert attributes["max_qp"] > 0 and attributes["capabilities"] & HW.flag("capability", "RC"), attributes
        for _ in range(40):
            adapter.command("QUERY_PORT")
        adapter.close()


def test_interrupts(lab):
    """Events by eventfd; masked vectors wait until they are unmasked"""
    with lab.client() as client:
        adapter = Adapter(client).start(vectors=3)
        _, ring = adapter.event_queue("ASYNC", 2)
        adapter.command("QUERY_PORT", event=1)
        adapter.interrupt(2)
        event = HW.unpack("eqe", adapter.memory.read(ring, HW.size("eqe")))
        assert event["phase"] == 1, event
        assert adapter.quiet(0) and adapter.quiet(1), "another vector reports the event"

        def arm(index):
            adapter.doorbell(HW.constant("DB_EQ"), HW.pack("eq_doorbell", number=1, arm=1, index=index))
        numbers = HW.unpack("eqe", adapter.memory.read(ring, HW.size("eqe")))
        assert numbers["object"] < 8
        # The vector is masked in the table; the pending bit is set, and the message follows later.
        client.write(MSIX_BAR, 16 * 2 + 12, struct.pack("<I", 1))
        arm(1)
        adapter.command("QUERY_PORT", event=1)
        pending = HW.constant("MSIX_PBA_OFFSET")
        wait_until(lambda: client.read(MSIX_BAR, pending, 8)[0] & 4, "the pending bit of the masked vector is not set")
        assert adapter.quiet(2), "a masked vector reports an event"
        client.write(MSIX_BAR, 16 * 2 + 12, struct.pack("<I", 0))
        adapter.interrupt(2, "no interrupt arrives after the vector is unmasked")
        # MSI-X disabled: the message is lost.
        adapter.set_config(adapter.capability(0x11) + 2, 0, 2)
        arm(2)
        adapter.command("QUERY_PORT", event=1)
        assert adapter.quiet(2), "a message arrives while MSI-X is disabled"
        adapter.close()


def test_blocked_interrupt(lab):
    """Eventfds with a full counter do not stop the process, also if a write would wait for a reader"""
    for before in (True, False):
        with lab.client() as client:
            adapter = Adapter(client).start(vectors=1)
            fd = os.eventfd(0)

            def fill(fd=fd):
                os.set_blocking(fd, True)
                os.write(fd, struct.pack("<Q", (1 << 64) - 2))
            if before:
                fill()
            client.set_irqs(vu.MSIX, 0, 1, fds=[fd])
            if not before:
                # The open file is shared, so a flag that the process may have set is gone.
                fill()
            adapter.event_queue("ASYNC", 0)
            adapter.command("QUERY_PORT", event=1)
            adapter.command("QUERY_PORT")
            for data in (vu.DATA_NONE, vu.DATA_BOOL):
                client.set_irqs(vu.MSIX, 0, 1, data | vu.ACTION_TRIGGER, b"\1" if data == vu.DATA_BOOL else b"")
            assert os.eventfd_read(fd) >= (1 << 64) - 2, "the counter has lost its value"
            client.set_irqs(vu.MSIX, 0, 1, vu.DATA_NONE | vu.ACTION_TRIGGER)
            assert os.eventfd_read(fd) == 1, "the eventfd has no effect after it was full"
            os.close(fd)
            adapter.close()


def test_many_interrupts(lab):
    """Each of a thousand interrupts is counted"""
    with lab.client() as client, os.fdopen(os.eventfd(0, os.EFD_NONBLOCK), "rb", 0) as file:
        client.set_irqs(vu.MSIX, 0, 1, fds=[file.fileno()])
        for _ in range(1000):
            client.set_irqs(vu.MSIX, 0, 1, vu.DATA_NONE | vu.ACTION_TRIGGER)
        assert os.eventfd_read(file.fileno()) == 1000


def test_ranges_of_interrupts(lab):
    """Requests for some vectors leave the others as they are"""
    with lab.client() as client:
        adapter = Adapter(client).start(vectors=4)

        def triggered(start, count, flags, data=b""):
            client.set_irqs(vu.MSIX, start, count, flags | vu.ACTION_TRIGGER, data)
            pending = [vector for vector in range(4) if not adapter.quiet(vector)]
            for vector in pending:
                os.eventfd_read(adapter.events[vector])
            return pending
        assert triggered(0, 4, vu.DATA_NONE) == [0, 1, 2, 3]
        assert triggered(1, 2, vu.DATA_NONE) == [1, 2]
        assert triggered(1, 3, vu.DATA_BOOL, b"\1\0\1") == [1, 3]
        # The third vector loses its eventfd. The event arrives when the vector has an eventfd again.
        client.set_irqs(vu.MSIX, 2, 1)
        assert triggered(0, 4, vu.DATA_NONE) == [0, 1, 3], "a vector without eventfd is triggered"
        adapter.event_queue("ASYNC", 2)
        adapter.command("QUERY_PORT", event=1)
        assert adapter.quiet(2), "an eventfd that was removed reports an event"
        client.set_irqs(vu.MSIX, 2, 1, fds=[adapter.events[2]])
        adapter.interrupt(2, "no event arrives after the vector has got an eventfd")
        client.set_irqs(vu.MSIX, 0, 0, vu.DATA_NONE | vu.ACTION_TRIGGER)
        assert triggered(0, 4, vu.DATA_NONE) == []
        # One request masks vector 1 only, because the byte of vector 0 is 0.
        client.set_irqs(vu.MSIX, 0, 4, fds=adapter.events)
        client.set_irqs(vu.MSIX, 0, 2, vu.DATA_BOOL | vu.ACTION_MASK, b"\0\1")
        controls = [client.read(MSIX_BAR, 16 * vector + 12, 4)[0] & 1 for vector in range(4)]
        assert controls == [0, 1, 0, 0], f"masks {controls}"
        adapter.close()


def test_reset_by_operator(lab):
    """QMP system_reset leaves the vectors unmasked, because the VMM emulates their table"""
    path = lab.folder / "monitor"
    with lab.process(qmp=path) as process, Client(process.socket) as client:
        adapter = Adapter(client).start(vectors=2)
        with socket.socket(socket.AF_UNIX) as monitor, monitor.makefile("rw") as lines:
            monitor.settimeout(LIMIT)
            wait_until(lambda: connects(monitor, path), "the monitor does not listen")
            lines.readline()
            for command in ("qmp_capabilities", "system_reset"):
                lines.write('{"execute": "%s"}\n' % command)
                lines.flush()
                answer = "..."
                while answer and '"return"' not in answer:
                    answer = lines.readline()
        check_reset_state(adapter)
        adapter.set_config(4, 6, 2)
        adapter.set_config(adapter.capability(0x11) + 2, 0x8000, 2)
        adapter.enable_commands()
        adapter.event_queue("ASYNC", 1)
        adapter.command("QUERY_PORT", event=1)
        adapter.interrupt(1, "no interrupt arrives after system_reset")
        adapter.close()


def connects(connection, path):
    """Returns true if the socket is connected."""
    try:
        connection.connect(str(path))
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    return True


def test_unmapped_memory(lab):
    """A DMA region that is unmapped is out of reach, and its mapping is gone"""
    with lab.client() as client:
        adapter = Adapter(client).start()
        assert lab.server().mappings("memfd:guest")
        client.unmap(adapter.memory.base, adapter.memory.size)
        # A thread unmaps the memory.
        wait_until(lambda: not lab.server().mappings("memfd:guest"), "the process still maps memory that was unmapped")
        place = adapter.post_command("QUERY_PORT")
        wait_until(lambda: adapter.register("STATUS") & HW.field("STATUS", "FATAL") or not adapter.producer,
                   "a command ring without memory is no fatal error")
        assert adapter.command_done(place) is None, "the device completes a command in memory that was unmapped"
        adapter.close()


def test_unmapping_in_parts(lab):
    """Memory is unmapped in parts, because the main loop cannot map memory meanwhile"""
    memory = Memory(size=64 << 20)
    with lab.process(trace="qrnic_process_unmapped") as process, Client(process.socket) as client:
        client.map(0x100000000, memory.size, memory.fd)
        client.unmap(0x100000000, memory.size)
        found = wait_until(lambda: re.search(r"unmapped size 0x4000000 in (\d+) parts", process.output()), "no event reports the end")
        assert int(found[1]) >= 4, f"64 MiB are unmapped in {found[1]} parts"
        assert not process.mappings("memfd:guest")
    memory.close()


def invalid(lab, pattern, action):
    """Sends an invalid message on a connection of its own; the process must close it, name the reason and live on."""
    with lab.process() as process:
        with Client(process.socket) as client:
            try:
                action(client)
                ends(client)
            except Closed:
                pass
        wait_until(lambda: re.search(pattern, process.output()), f"no line matches '{pattern}'", 30)
        with connect(process) as client:
            assert client.info()[1]


def test_region_at_the_end_of_addresses(lab):
    """Regions whose end is 2^64 or beyond"""
    memory = Memory()
    for address in ((1 << 64) - memory.size, (1 << 64) - 4096):
        invalid(lab, "exceeds the address space", lambda client, at=address: client.map(at, memory.size, memory.fd))
    memory.close()


def test_region_beyond_its_file(lab):
    """A region longer than its file, which would end the process at the first access"""
    memory = Memory(size=8192)
    invalid(lab, "exceeds its file", lambda client: client.map(0x100000, 12288, memory.fd))
    invalid(lab, "exceeds its file", lambda client: client.map(0x100000, 8192, memory.fd, offset=4096))
    invalid(lab, "several file descriptors", lambda client: client.request(
        vu.DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, 0x100000, 8192), (memory.fd, memory.fd)))
    memory.close()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        invalid(lab, "no file of memory", lambda client: client.map(0x100000, 8192, ours.fileno()))
    with open(__file__, "rb") as file:
        invalid(lab, "no file of memory", lambda client: client.map(0x100000, 4096, file.fileno(), rights=vu.READ))


def test_region_that_cannot_be_mapped(lab):
    """A file without the right to write is an error, and closes no other descriptor"""
    memory = Memory()
    read_only = os.open(f"/proc/self/fd/{memory.fd}", os.O_RDONLY)
    before = fds_when_free(lab)
    with lab.client() as client:
        for _ in range(20):
            assert rejected(client.map, 0x100000, 8192, read_only) == errno.EACCES
        client.map(0x100000, 8192, read_only, rights=vu.READ)
        assert rejected(client.map, 0x101000, 4096, memory.fd) == errno.EEXIST
        assert rejected(client.unmap, 0x101000, 4096) == errno.ENOENT
        assert rejected(client.unmap, 0x100000, 8192, vu.UNMAP_ALL) == errno.EINVAL
        client.unmap(0, 0, vu.UNMAP_ALL)
        client.map(0x101000, 4096, memory.fd)
    assert fds_when_free(lab) == before, "file descriptors remain open"
    os.close(read_only)
    memory.close()


def test_many_regions(lab):
    """512 regions; one more is an error with a line that names the limit"""
    memory = Memory()
    with lab.process() as process, Client(process.socket) as client:
        for i in range(512):
            client.map(0x100000 + 8192 * i, 4096, memory.fd, offset=4096 * (i % 8))
        assert rejected(client.map, 0x10000000, 4096, memory.fd) == errno.ENOSPC
        wait_until(lambda: "more than 512 DMA regions" in process.output(), "no line names the limit", 30)
        client.unmap(0x100000, 4096)
        client.map(0x10000000, 4096, memory.fd)
    memory.close()


def test_many_messages_at_once(lab):
    """More messages in one call than the server executes in one run of its main loop, in order, and the rest of another"""
    with lab.client() as client:
        register = HW.register["SCRATCH"]
        writes = [vu.header(count, vu.REGION_WRITE, 20, vu.NO_REPLY) + struct.pack("<QIII", register, CONTROL, 4, count)
                  for count in range(1, 1500)]
        read = vu.header(1500, vu.REGION_READ, 16) + struct.pack("<QII", register, CONTROL, 4)
        data = b"".join(writes) + read
        # The process is stopped, so that the last messages are received together and exceed a run.
        with lab.server().stopped():
            client.socket.sendall(data + data[:20])
        assert client.receive().data[16:] == struct.pack("<I", 1499), "the read has overtaken writes"
        client.socket.sendall(data[20:])
        assert client.receive().data[16:] == struct.pack("<I", 1499), "the next messages are wrong"


def test_work_of_a_run(lab):
    """Requests that cost much, as resets, let the main loop do its other work after a few of them"""
    def posted(region, offset, data):
        return vu.header(7, vu.REGION_WRITE, 16 + len(data), vu.NO_REPLY) + struct.pack("<QII", offset, region, len(data)) + data
    floods = {
        "resets by a register": posted(CONTROL, HW.register["CONTROL"], struct.pack("<I", HW.field("CONTROL", "RESET"))),
        "writes of the configuration space": posted(vu.CONFIG_REGION, 4, struct.pack("<H", 2)),
        "long writes of doorbells": posted(DOORBELL, 0, bytes(512)),
        "requests": vu.header(7, vu.RESET, 0, vu.NO_REPLY),
    }
    read = vu.header(8, vu.REGION_READ, 16) + struct.pack("<QII", 0, vu.CONFIG_REGION, 4)
    with lab.process(trace="qrnic_process_*") as process, Client(process.socket) as client:
        for name, message in floods.items():
            before = process.output_path.stat().st_size
            with process.stopped():
                client.socket.sendall(message * 64 + read)
            assert client.receive().command == vu.REGION_READ
            with open(process.output_path, encoding="utf-8") as output:
                output.seek(before)
                lines = output.read()
            pauses = lines.count("qrnic_process_yield")
            assert pauses >= 7, f"64 {name}: the main loop has {pauses} turns for other work"
            # Otherwise the handler and the bottom half would do the work of two runs.
            assert re.search(r"qrnic_process_yield.*\n.*qrnic_process_reading 0", lines), f"64 {name}: the handler remains"


def test_unread_replies_of_a_closed_connection(lab):
    """A client that reads no replies and then shuts its connection down is disconnected"""
    with lab.process(trace="qrnic_process_end") as process, Client(process.socket) as client:
        client.socket.setblocking(False)
        read = vu.header(1, vu.REGION_READ, 16) + struct.pack("<QII", 0, vu.CONFIG_REGION, 4096)
        # The server stops to receive when its replies fill the socket; then requests fill the other direction.
        writable = True
        while writable:
            try:
                client.socket.send(read)
            except BlockingIOError:
                writable = select.select([], [client.socket], [], 0.5)[1]
        client.socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: "qrnic_process_end" in process.output(), "the server waits for a client that has gone")


def test_descriptors_of_messages_sent_at_once(lab):
    """Descriptors of several messages in one call belong to the first of them"""
    first, second = Memory(name="first"), Memory(name="second")

    def region(number, address):
        return vu.header(number, vu.DMA_MAP, 32) + struct.pack("<IIQQQ", 32, vu.READ | vu.WRITE, 0, address, 4096)
    with lab.process(trace="qrnic_process_dma_map") as process, Client(process.socket) as client:
        with process.stopped():
            client.send(region(1, 0x100000))
            client.send(region(2, 0x200000) + region(3, 0x300000) + vu.header(4, vu.RESET, 0), [first.fd])
            client.send(region(5, 0x400000), [second.fd])
        for command in (vu.DMA_MAP, vu.DMA_MAP, vu.DMA_MAP, vu.RESET, vu.DMA_MAP):
            reply = client.receive()
            assert (reply.command, reply.error) == (command, 0), reply
        shared = re.findall(r"dma_map 0x(\d)00000 size 0x1000 shared (\d)", process.output())
        assert shared == [("1", "0"), ("2", "1"), ("3", "0"), ("4", "1")], shared
        assert (process.mappings("memfd:first"), process.mappings("memfd:second")) == (1, 1)
    invalid(lab, "descriptors that its command does not use",
            lambda client: client.send(vu.header(1, vu.RESET, 0) + region(2, 0x100000), [first.fd]))
    first.close()
    second.close()


def test_descriptors_of_pipelined_messages(lab):
    """A message without descriptors is not confused by those of the next message"""
    memory = Memory()
    fds = [os.eventfd(0) for _ in range(2)]

    def region(address):
        return struct.pack("<IIQQQ", 32, vu.READ | vu.WRITE, 0, address, 4096)
    with lab.process() as process, Client(process.socket) as client:
        # The process is stopped, so that all messages are in its socket when it continues.
        with process.stopped():
            client.post(vu.DMA_MAP, region(0x100000))
            client.post(vu.SET_IRQS, struct.pack("<IIIII", 20, vu.DATA_EVENTFD | vu.ACTION_TRIGGER, vu.MSIX, 0, 2), fds)
            client.post(vu.GET_INFO, struct.pack("<IIII", 16, 0, 0, 0))
            client.post(vu.DMA_MAP, region(0x200000), [memory.fd])
            client.post(vu.DMA_MAP, region(0x300000))
            client.post(vu.SET_IRQS, struct.pack("<IIIII", 20, vu.DATA_EVENTFD | vu.ACTION_TRIGGER, vu.MSIX, 0, 1), fds[:1])
        for command in (vu.DMA_MAP, vu.SET_IRQS, vu.GET_INFO, vu.DMA_MAP, vu.DMA_MAP, vu.SET_IRQS):
            reply = client.receive()
            assert (reply.command, reply.error) == (command, 0), reply
        assert process.mappings("memfd:guest") == 1
    for fd in fds:
        os.close(fd)
    memory.close()


def test_too_many_descriptors(lab):
    """A message whose parts have more descriptors than one message may have"""
    fds = [os.eventfd(0) for _ in range(2)]
    message = vu.header(1, vu.SET_IRQS, 20) + struct.pack("<IIIII", 20, vu.DATA_EVENTFD | vu.ACTION_TRIGGER, vu.MSIX, 0, 1)

    def action(client):
        client.send(message[:1], fds[:1] * vu.MOST_FDS)
        client.send(message[1:], fds[:1])
    invalid(lab, "too many file descriptors", action)
    invalid(lab, "descriptors that its command does not use",
            lambda client: client.request(vu.GET_INFO, struct.pack("<IIII", 16, 0, 0, 0), fds))
    for fd in fds:
        os.close(fd)


def test_descriptors_that_close_slowly(lab):
    """Descriptors whose close() waits for hours stop neither the process nor the next client"""
    read = vu.header(1, vu.REGION_READ, 16)
    map_ = vu.header(1, vu.DMA_MAP, 32) + struct.pack("<IIQQQ", 32, 3, 0, 0x100000, 4096)
    irqs = vu.header(1, vu.SET_IRQS, 20) + struct.pack("<IIIII", 20, vu.DATA_EVENTFD | vu.ACTION_TRIGGER, vu.MSIX, 0, 1)
    with lab.process() as process:
        before, slow = fds_when_free(lab, process), []
        with connect(process) as client:
            client.info()
            served = process.fds()

        def give(connection, data):
            slow.append(SlowSocket())
            slow[-1].pass_on(connection.socket, data)
        for data in (read, read + bytes(16), map_, irqs, vu.header(1, vu.RESET, 0)):
            with connect(process) as client:
                with process.stopped():
                    give(client, data)
                if data != read:
                    ends(client)
            with connect(process) as client:
                assert client.info()[1]
        # The message of a client that is rejected, and the first message of a client
        with connect(process) as client:
            for _ in range(2):
                with process.stopped(), Client(process.socket, negotiate=False) as second:
                    give(second, read)
            assert client.info()[1]
        with process.stopped(), Client(process.socket, negotiate=False) as client:
            give(client, vu.header(1, vu.VERSION, 5) + b"\0\0\1\0\0")
        with connect(process) as client:
            assert client.info()[1]
            # The signal that stopped the process has ended the wait for all descriptors but the last.
            assert process.fds() > served, "no descriptor waits for being closed, so the test has tested nothing"
        for one in slow:
            one.release()
        wait_until(lambda: fds_when_free(lab, process) == before, "file descriptors remain open")


def keep_closing(process):
    """Ends a client with a descriptor whose close() waits; returns the descriptor. The process then keeps one descriptor, the connection,
    because the kernel frees the number of a descriptor before it waits."""
    slow = SlowSocket()
    with connect(process) as client:
        # The message is not complete, so the process keeps the descriptor until the connection ends.
        slow.pass_on(client.socket, vu.header(1, vu.REGION_READ, 16))
    return slow


def test_former_client_whose_descriptor_never_closes(lab):
    """Descriptors of former clients that are never closed do not count against the next client"""
    set_irqs = struct.pack("<IIIII", 20, vu.DATA_EVENTFD | vu.ACTION_TRIGGER, vu.MSIX, 0, 1)
    with lab.process() as process:
        before = fds_when_free(lab, process)
        slow = [keep_closing(process) for _ in range(5)]
        with connect(process) as client:
            client.info()
            wait_until(lambda: process.fds() > before + len(slow), "the process does not keep the descriptors open")
            # The process closes the previous eventfd of the vector each time, which is more than it may have in its queue.
            for _ in range(600):
                fd = os.eventfd(0)
                client.request(vu.SET_IRQS, set_irqs, [fd])
                os.close(fd)
        for one in slow:
            one.release()
        wait_until(lambda: fds_when_free(lab, process) == before, "file descriptors remain open")


def test_out_of_band_descriptor(lab):
    """A descriptor whose close() waits, in an out-of-band byte, does not stop the main loop"""
    with lab.process() as process:
        before = fds_when_free(lab, process)
        slow = SlowSocket()
        with connect(process) as client:
            slow.pass_on(client.socket, b"!", socket.MSG_OOB)
            with contextlib.suppress(OSError):
                client.socket.send(bytes(16))
        with connect(process) as client:
            assert client.info()[1]
        slow.release()
        wait_until(lambda: fds_when_free(lab, process) == before, "file descriptors remain open")


def test_former_clients_with_many_descriptors(lab):
    """Former clients that leave the highest number of descriptors open do not use up the numbers of the process"""
    with lab.process() as process:
        before, slow, files = fds_when_free(lab, process), [], [os.eventfd(0) for _ in range(252)]
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (1200, 1200))
        while "too many former VMMs" not in process.output():
            assert len(slow) < 8, "no line names the cause"
            slow.append(SlowSocket())
            with Client(process.socket, negotiate=False) as client:
                slow[-1].pass_on(client.socket, vu.header(1, vu.REGION_READ, 16), more=files)
            wait_until(lambda: process.fds() >= before + 200 * len(slow) or "former VMMs" in process.output(),
                       "the process does not keep the descriptors open")
        assert "Too many open files" not in process.output() and process.fds() < 1000, process.output()
        for fd in files:
            os.close(fd)
        for one in slow:
            one.release()
        wait_until(lambda: fds_when_free(lab, process) == before, "file descriptors remain open")


def test_rejected_client_whose_descriptor_never_closes(lab):
    """Many rejected clients, one of them with a descriptor that is never closed, delay neither the client in service nor the next one"""
    with lab.process() as process:
        before = fds_when_free(lab, process)
        with connect(process) as client:
            client.info()
            slow = SlowSocket()
            with process.stopped(), Client(process.socket, negotiate=False) as second:
                slow.pass_on(second.socket, vu.header(1, vu.REGION_READ, 16))
            for _ in range(300):
                with socket.socket(socket.AF_UNIX) as other, contextlib.suppress(BlockingIOError):
                    other.setblocking(False)
                    other.connect(str(process.socket))
                client.info()
        with connect(process) as client:
            assert client.info()[1]
        slow.release()
        wait_until(lambda: fds_when_free(lab, process) == before, "file descriptors remain open")


def test_too_many_former_clients(lab):
    """A process with too many waiting threads reports the cause, and accepts again when they have ended"""
    with lab.process() as process:
        before, slow = fds_when_free(lab, process), []
        while "too many former VMMs" not in process.output():
            assert len(slow) < 100, "no line names the cause"
            slow.append(SlowSocket())
            with Client(process.socket, negotiate=False) as client:
                slow[-1].pass_on(client.socket, vu.header(1, vu.REGION_READ, 16))
            wait_until(lambda: process.fds() >= before + len(slow) or "too many former VMMs" in process.output(),
                       "the process does not keep the descriptors open")
        assert len(slow) > 40, f"only {len(slow)} clients"
        for one in slow:
            one.release()
        wait_until(lambda: fds_when_free(lab, process) == before, "file descriptors remain open")


def test_limit_of_descriptors(lab):
    """A process without free descriptors waits, and does not try to accept all the time"""
    with lab.process(trace="qrnic_process_accept_failed") as process:
        with Client(process.socket) as client:
            client.info()
        wait_until(lambda: socket_closed(process), "the process does not close the connection")
        limits = resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE)
        used = {int(name) for name in os.listdir(f"/proc/{process.process.pid}/fd")}
        lowest = next(fd for fd in range(len(used) + 1) if fd not in used)
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (lowest, limits[1]))
        start = time.monotonic()
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(str(process.socket))
            wait_until(lambda: process.output().count("qrnic_process_accept_failed") >= 10, "the process does not try again")
            # Nine pauses of 100 ms
            assert time.monotonic() - start > 0.5, "the process tries to accept in a loop"
            assert "a VMM cannot be accepted" in process.output(), process.output()
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, limits)
        with connect(process) as client:
            assert client.info()[1]


def test_flood_of_clients(lab):
    """Many clients that are rejected do not fill the log"""
    with lab.process() as process, Client(process.socket) as client:
        for _ in range(500):
            with contextlib.suppress(Closed, ConnectionError, BlockingIOError):
                Client(process.socket, limit=LIMIT).close()
        assert client.info()[1]
        lines = process.output_path.read_text(encoding="utf-8").count("second VMM")
        assert 0 < lines < 200, f"{lines} lines about 500 clients"


def test_interrupt_without_eventfd(lab):
    """A full pipe in the place of an eventfd, which would stop the process"""
    reader, writer = os.pipe()
    invalid(lab, "not an eventfd", lambda client: client.set_irqs(vu.MSIX, 0, 1, fds=[writer]))
    os.close(reader)
    os.close(writer)


def test_invalid_interrupt_requests(lab):
    """Requests for vectors that do not exist, also by a sum that exceeds 32 bits, and contradictory requests"""
    eventfd, bool_, none = vu.DATA_EVENTFD | vu.ACTION_TRIGGER, vu.DATA_BOOL | vu.ACTION_TRIGGER, vu.DATA_NONE | vu.ACTION_TRIGGER
    with lab.client() as client, os.fdopen(os.eventfd(0), "rb", 0) as file:
        fd = file.fileno()
        for flags in (eventfd, none, vu.DATA_NONE | vu.ACTION_MASK):
            for start, count in ((1, 0xffffffff), (0xffffffff, 1), (0xffffffff, 0xffffffff), (1, 0)):
                assert rejected(client.set_irqs, vu.MSIX, start, count, flags) == errno.EINVAL
        for kind in (vu.INTX, vu.MSI, vu.ERR, vu.REQ):
            assert rejected(client.set_irqs, kind, 0, 1, fds=[fd]) == errno.EINVAL
        for flags in (bool_, none, vu.DATA_EVENTFD | vu.ACTION_MASK, eventfd | vu.DATA_NONE, eventfd | vu.ACTION_MASK, 0, 1 << 31 | none):
            assert rejected(client.set_irqs, vu.MSIX, 0, 1, flags, fds=[fd]) == errno.EINVAL
        for data in (b"", b"\1\1"):
            assert rejected(client.set_irqs, vu.MSIX, 0, 1, bool_, data) == errno.EINVAL
        assert client.info()[1]


def test_short_unmap(lab):
    """Requests to unmap without a structure, and with a bitmap"""
    invalid(lab, "too short", lambda client: client.request(vu.DMA_UNMAP, b"abcd"))
    invalid(lab, "bitmap", lambda client: client.unmap(0x100000, 4096, flags=1))


def test_huge_regions(lab):
    """Regions of 1 TiB in a sparse file cost little memory; more is rejected"""
    fd = os.memfd_create("huge")
    os.ftruncate(fd, 1 << 41)
    with lab.process() as process:
        with Client(process.socket) as client:
            client.info()
            before = process.resident()
            for _ in range(3):
                client.map(0, 1 << 40, fd)
                client.unmap(0, 1 << 40)
            growth = process.resident() - before
            assert growth < 192 << 20, f"1 TiB of memory costs {growth >> 20} MiB"
    invalid(lab, "exceed 1 TiB", lambda client: client.map(0, (1 << 40) + 4096, fd))
    os.close(fd)


def test_regions_with_offset_and_rights(lab):
    """Regions with an offset in the file, and regions that the device may only read"""
    with lab.client() as client:
        adapter = Adapter(client)
        memory, output = adapter.memory, Memory(0x2000, 0x40000000, "output")
        adapter.enable()
        client.unmap(memory.base, memory.size)
        # The second half of the file comes first.
        half = memory.size // 2
        client.map(memory.base + half, half, memory.fd, offset=half)
        client.map(memory.base, half, memory.fd, offset=0)
        client.map(output.base, 0x1000, output.fd, offset=0x1000, rights=vu.READ)
        adapter.enable_commands()
        adapter.command("QUERY_PORT")
        before = output.read(output.base, 0x2000)
        adapter.mailbox_out = output.base
        entry = adapter.post_command("QUERY_PORT")
        wait_until(lambda: adapter.command_done(entry) or adapter.register("STATUS") & HW.field("STATUS", "FATAL"),
                   "a command with a mailbox that cannot be written has no end")
        done = adapter.command_done(entry)
        assert done is None or done["status"], "a command succeeds although its mailbox cannot be written"
        assert output.read(output.base, 0x2000) == before, "the device writes to memory that it may only read"
        output.close()
        adapter.close()


def test_no_shared_memory(lab):
    """A DMA region without descriptor gives one line with the remedy"""
    with lab.process() as process:
        with Client(process.socket) as client:
            try:
                client.map(0x100000, 1 << 20)
                Adapter(client).set_config(4, 6, 2)
            except (Rejected, Closed):
                pass
            wait_until(lambda: "share=on" in process.output(), "no line names the remedy share=on", 30)
            assert process.output().count("share=on") == 1, process.output()


def test_device_memory(lab):
    """Device memory by messages. No region can be mapped, because QEMU would then post no writes"""
    with lab.client() as client:
        adapter = Adapter(client)
        adapter.set_config(4, 2, 2)
        adapter.set_register("CONTROL", HW.field("CONTROL", "RESET"))
        wait_until(lambda: adapter.register("STATUS") & HW.field("STATUS", "READY"), "the device is not ready")
        region = client.region(MEMORY)
        assert region.size >= 4096, f"device memory has {region.size} bytes"
        assert client.read(MEMORY, 0, 64) == bytes(64), "device memory is not zero after a reset"
        text = bytes(range(64))
        for offset in (0, 4096, region.size - 64):
            client.write(MEMORY, offset, text)
            assert client.read(MEMORY, offset, 64) == text
        for index in (CONTROL, MSIX_BAR, DOORBELL, MEMORY):
            assert not client.region(index).flags & vu.REGION_MMAP, f"region {index} can be mapped"
        adapter.close()
    with lab.client() as client:
        adapter = Adapter(client)
        adapter.set_config(4, 2, 2)
        wait_until(lambda: adapter.register("STATUS") & HW.field("STATUS", "READY"), "the device is not ready")
        assert client.read(MEMORY, 0, 64) == bytes(64), "device memory has data of the former client"
        adapter.close()


def test_mapped_device_memory(lab):
    """Device memory by a mapping"""
    with lab.process(map_memory=True) as process, Client(process.socket) as client:
        adapter = Adapter(client)
        adapter.set_config(4, 2, 2)
        wait_until(lambda: adapter.register("STATUS") & HW.field("STATUS", "READY"), "the device is not ready")
        region = client.region(MEMORY)
        text = bytes(range(64))
        client.write(MEMORY, 0, text)
        assert region.flags & vu.REGION_MMAP and region.fds, "device memory cannot be mapped"
        assert region.areas == [(0, region.size)], region.areas
        with mmap.mmap(region.fds[0], region.size, offset=region.offset) as window:
            assert window[:64] == text, "the mapping differs from the region"
            window[64:68] = b"qrni"
            assert client.read(MEMORY, 64, 4) == b"qrni"
        for index in (CONTROL, MSIX_BAR, DOORBELL):
            assert not client.region(index).flags & vu.REGION_MMAP, f"region {index} can be mapped"
        for fd in region.fds:
            os.close(fd)
        adapter.close()


def test_device_memory_of_each_client(lab):
    """A client cannot shrink device memory, and does not share it with the next client"""
    with lab.process(map_memory=True) as process:
        check_memory_of_each_client(process)


def check_memory_of_each_client(process):
    with Client(process.socket) as client:
        old = client.region(MEMORY)
        for change in (lambda: os.ftruncate(old.fds[0], 0), lambda: os.ftruncate(old.fds[0], 2 * old.size)):
            try:
                change()
                raise AssertionError("the size of device memory can be changed")
            except PermissionError:
                pass
        window = mmap.mmap(old.fds[0], old.size)
        window[:4] = b"past"
    with connect(process) as client:
        adapter = Adapter(client)
        adapter.set_config(4, 2, 2)
        wait_until(lambda: adapter.register("STATUS") & HW.field("STATUS", "READY"), "the device is not ready")
        assert client.read(MEMORY, 0, 4) == bytes(4), "device memory has data of the former client"
        client.write(MEMORY, 0, b"next")
        assert window[:4] != b"next", "the former client sees data of the next one"
        window[:4] = b"evil"
        assert client.read(MEMORY, 0, 4) == b"next", "the former client changes data of the next one"
        adapter.close()
    window.close()
    for fd in old.fds:
        os.close(fd)


def test_function_level_reset(lab):
    """Bit 15 of Device Control"""
    with lab.client() as client:
        adapter = Adapter(client).start()
        adapter.set_register("SCRATCH", 0x12345678)
        at = adapter.capability(0x10) + 8
        adapter.set_config(at, adapter.config(at, 2) | 0x8000, 2)
        check_reset_state(adapter)
        # The memory of the VMM stays mapped, so the driver can begin again.
        adapter.set_config(4, 6, 2)
        adapter.enable_commands()
        adapter.command("QUERY_PORT")
        adapter.close()


def test_device_reset(lab):
    """VFIO_USER_DEVICE_RESET"""
    with lab.client() as client:
        adapter = Adapter(client).start()
        adapter.set_register("SCRATCH", 0x12345678)
        client.reset()
        check_reset_state(adapter)
        adapter.set_config(4, 6, 2)
        adapter.enable_commands()
        adapter.command("QUERY_PORT")
        adapter.close()


# Connections


def test_reconnection(lab):
    """The next client finds a device in reset state, without memory and interrupts of the last one"""
    server = lab.server()
    with lab.client() as client:
        client.info()
    first_fds = fds_when_free(lab)
    old = Memory()
    with lab.client() as client:
        adapter = Adapter(client, old).start(vectors=2)
        adapter.set_register("SCRATCH", 0x12345678)
        adapter.event_queue("ASYNC", 0)
        adapter.command("QUERY_PORT", event=1)
        adapter.interrupt(0)
        ring = adapter.ring
        adapter.post_command("QUERY_DEVICE")
    with lab.client() as client:
        wait_until(lambda: not server.mappings("memfd:guest"), "the process still maps memory of the former client")
        second = Adapter(client)
        check_reset_state(second)
        before = old.read(old.base, old.size)
        # A ring at the address of the former client is not memory now.
        second.set_config(4, 6, 2)
        for name, value in (("CMD_BASE_LO", ring), ("CMD_BASE_HI", 0), ("CMD_SIZE", 3),
                            ("CONTROL", HW.field("CONTROL", "CMD_ENABLE")), ("CMD_DOORBELL", 8)):
            second.set_register(name, value)
        wait_until(lambda: second.register("STATUS") & HW.field("STATUS", "FATAL"), "a ring in no memory is no fatal error")
        assert old.read(old.base, old.size) == before, "the device writes to memory of the former client"
        assert adapter.quiet(0) and adapter.quiet(1), "the former client gets an interrupt"
        second.close()
    adapter.close()
    assert fds_when_free(lab) == first_fds, "file descriptors of the former client are still open"


def test_many_reconnections(lab):
    """Two thousand connections leave no descriptor, no mapping and no memory behind"""
    server, memory = lab.server(), Memory(name="many")
    before = fds_when_free(lab)
    for count in range(2000):
        with connect(server) as client:
            if count % 10 == 0:
                client.map(memory.base, memory.size, memory.fd)
                fd = os.eventfd(0)
                client.set_irqs(vu.MSIX, 0, 1, fds=[fd])
                os.close(fd)
        if count == 200:
            resident = server.resident()
    assert fds_when_free(lab) == before, "file descriptors remain open"
    wait_until(lambda: not server.mappings("memfd:many"), "mappings remain")
    growth = server.resident() - resident
    assert growth < 16 << 20, f"the process grows by {growth >> 20} MiB in 1800 connections"
    memory.close()


def fds_when_free(lab, server=None):
    """Returns the number of descriptors of the process while no client is connected: as many as when two answers agree."""
    server, last = server or lab.server(), -1

    def stable():
        nonlocal last
        now = server.fds()
        same, last = now == last, now
        return same
    with connect(server) as client:
        client.info()
    wait_until(lambda: socket_closed(server), "the process does not close the connection")
    wait_until(stable, "the number of descriptors changes all the time")
    return last


def socket_closed(server):
    """Returns true if the process has only its listening socket at its path."""
    lines = Path("/proc/net/unix").read_text(encoding="ascii", errors="replace").splitlines()
    return sum(1 for line in lines if line.endswith(str(server.socket)) and line.split()[5] == "03") == 0


def test_second_client(lab):
    """A second client is rejected, and the first one is not disturbed"""
    with lab.client() as client:
        adapter = Adapter(client).start()
        try:
            with lab.client(limit=20) as second:
                second.info()
                raise AssertionError("two clients use one device")
        except (Closed, Rejected, TimeoutError, ConnectionRefusedError, BrokenPipeError, BlockingIOError):
            pass
        adapter.command("QUERY_PORT")
        adapter.close()
    with lab.client() as client:
        assert client.info()[1], "no client is accepted after the first one has left"


def test_other_version(lab):
    """A VMM of another version is rejected with one line that has the remedy"""
    with lab.process() as process:
        try:
            with Client(process.socket, negotiate=False) as client:
                rejected(client.version, major=1)
        except (Closed, BrokenPipeError):
            pass
        wait_until(lambda: "another version of vfio-user than 0: use QEMU" in process.output(), "no line names the remedy", 30)
        with Client(process.socket) as client:
            assert client.info()[1]


def test_half_message(lab):
    """A connection that ends in the middle of a message does not prevent the next one"""
    for data in (b"", b"\1", vu.header(1, vu.VERSION, 100), vu.header(1, vu.VERSION, 100) + bytes(50)):
        with lab.client(negotiate=False) as client:
            client.send(data)
    for data in (b"\1\0\11\0", vu.header(9, vu.REGION_READ, 16), vu.header(9, vu.REGION_WRITE, 24) + bytes(20)):
        with lab.client() as client:
            client.send(data)
        with lab.client() as client:
            assert client.info()[1]


def test_slow_sender(lab):
    """A message that arrives byte by byte is executed, and the process keeps working meanwhile"""
    with lab.client() as client:
        message = vu.header(7, vu.REGION_READ, 16) + struct.pack("<QII", 0, vu.CONFIG_REGION, 4)
        for at in range(len(message)):
            client.send(message[at:at + 1])
            select.select([], [], [], 0.001)
        reply = client.receive()
        assert not reply.error and reply.data[16:18] == struct.pack("<H", HW.constant("PCI_VENDOR_ID")), reply


def test_termination(lab):
    """SIGTERM ends the process in each state of a connection and removes the socket"""
    for name, action in (("no client", None), ("no message", lambda c: None), ("half a header", lambda c: c.send(b"\1\0\11\0")),
                         ("half a message", lambda c: c.send(vu.header(9, vu.REGION_WRITE, 24) + bytes(20)))):
        with lab.process() as process:
            client = Client(process.socket)
            client.info()
            if action:
                action(client)
            else:
                client.close()
            status = process.stop(60)
            assert status == 0, f"{name}: the process ends with status {status}"
            assert not process.socket.exists(), f"{name}: the socket remains"
            # A reset (ECONNRESET) would end QEMU 11.1 by an assertion.
            assert not action or client.socket.recv(1) == b"", f"{name}: the process sends at its end"
            client.close()


def test_termination_during_negotiation(lab):
    """SIGTERM ends the process while a client sends no version"""
    with lab.process() as process:
        with Client(process.socket) as client:
            client.info()               # the process has started completely
        with Client(process.socket, negotiate=False):
            assert process.stop(60) == 0


def test_shrunk_memory(lab):
    """A VMM that shrinks its memory harms its own process only"""
    with lab.process() as process, lab.process() as other:
        with Client(process.socket) as client, Client(other.socket) as bystander:
            adapter = Adapter(client).start()
            os.ftruncate(adapter.memory.fd, 0)
            with contextlib.suppress(Closed):
                adapter.set_register("CMD_DOORBELL", 1)
            # A sanitizer ends the process in its own way.
            assert process.process.wait(LIMIT) in (-signal.SIGBUS, -signal.SIGABRT, 1), process.process.returncode
            assert "has shrunk its file" in process.output(), process.output()
            assert bystander.info()[1]


# Wires


def test_message_over_cable(lab):
    """Two processes exchange an RC message over a cable, and a third one takes the place of the second"""
    cable = lab.folder / "cable"
    with lab.process(cable=cable, properties="mac=52:54:00:00:00:01") as left:
        with Client(left.socket) as first:
            a = Adapter(first).start()
            for text in (b"a message of the device process", b"and one more after a restart of the peer"):
                with lab.process(cable=cable, properties="mac=52:54:00:00:00:02") as right, Client(right.socket) as second:
                    b = Adapter(second).start()
                    send_message(a, b, text)
                    a.client.reset()
                    a.memory.free = a.memory.base
                    for fd in a.events:
                        os.close(fd)
                    a.set_config(4, 6, 2)
                    a.enable_msix()
                    a.enable_commands()
                    b.close()
            a.close()


@contextlib.contextmanager
def two_adapters(lab, name, **options):
    """Two processes with a cable between them."""
    cable = lab.folder / name
    with lab.process(cable=cable, properties=f"mac={MACS[0].hex(':')}", **options) as left, \
            lab.process(cable=cable, properties=f"mac={MACS[1].hex(':')}", **options) as right, \
            Client(left.socket) as first, Client(right.socket) as second:
        adapters = [Adapter(first).start(), Adapter(second).start()]
        yield adapters
        for adapter in adapters:
            adapter.close()


def connected_pair(a, b):
    """Returns two queue pairs that are connected to each other."""
    for adapter in (a, b):
        wait_until(lambda d=adapter: d.register("STATUS") & HW.field("STATUS", "LINK"), "the link does not come up")
    ends_ = [Connection(adapter, f"10.0.0.{i + 1}", MACS[i]) for i, adapter in enumerate((a, b))]
    ends_[0].connect(ends_[1])
    ends_[1].connect(ends_[0])
    return ends_


def test_message_from_device_memory(lab):
    """A message of data that the client has written to device memory by its mapping, and back into device memory"""
    with two_adapters(lab, "cable-memory", map_memory=True) as (a, b):
        ends_ = connected_pair(a, b)
        text = bytes(range(256)) * 8
        windows = []
        for adapter, connection in zip((a, b), ends_):
            offset, key = adapter.device_memory(connection.pd, 8192)
            region = adapter.client.region(MEMORY)
            windows.append((mmap.mmap(region.fds[0], region.size), offset, key))
            os.close(region.fds[0])
        (window, offset, key), (target, place, its_key) = windows
        window[offset + 64:offset + 64 + len(text)] = text
        ends_[1].post_receive(128, 8000, its_key)
        ends_[0].post_send(64, len(text), key)
        received = b.completion(ends_[1].cq_ring)
        assert received["status"] == 0 and received["byte_len"] == len(text), received
        assert target[place + 128:place + 128 + len(text)] == text, "the message differs"
        for one in windows:
            one[0].close()


def test_atomics_in_new_memory(lab):
    """Atomics reach a region that has replaced another one of the same size"""
    with two_adapters(lab, "cable-atomic") as (a, b):
        ends_ = connected_pair(a, b)
        result, base, size = a.memory.allocate(8), 0x40000000, 1 << 20
        current = Memory(size, base, "first")
        b.client.map(base, size, current.fd)
        for count in range(40):
            current.write(base + 8, struct.pack("<Q", 1000 + count))
            ends_[0].post_fetch_add(base + 8, ends_[1].key, 7, result)
            done = a.completion(ends_[0].cq_ring, count % 16, 1 ^ count // 16 & 1)
            assert done["status"] == 0, done
            assert struct.unpack("<Q", a.memory.read(result, 8))[0] == 1000 + count, "the atomic has read other memory"
            assert struct.unpack("<Q", current.read(base + 8, 8))[0] == 1007 + count, "the atomic has changed other memory"
            a.memory.write(ends_[0].cq_record, HW.pack("cq_record", consumer=count + 1, sequence=1))
            following = Memory(size, base, "following")
            b.client.unmap(base, size)
            b.client.map(base, size, following.fd)
            current.close()
            current = following
        current.close()


def send_message(a, b, text):
    ends_ = connected_pair(a, b)
    source, target = a.memory.allocate(4096, 4096), b.memory.allocate(8192, 4096)
    data = (text * 200)[:3000]
    a.memory.write(source, data)
    ends_[1].post_receive(target, 8192)
    ends_[1].arm()
    ends_[0].post_send(source, len(data))
    received = b.completion(ends_[1].cq_ring)
    b.interrupt(1, "the armed completion queue of the receiver reports nothing")
    assert received["status"] == 0 and received["byte_len"] == len(data), received
    assert b.memory.read(target, len(data)) == data, "the message differs"
    sent = a.completion(ends_[0].cq_ring)
    assert sent["status"] == 0, sent


# Error lines


def fails(lab, pattern, *options, qemu_options=None):
    """Starts a process that must end with one line that matches the pattern."""
    if qemu_options is None:
        command = [ROOT / "tools/device", *options]
    else:
        built = subprocess.run([ROOT / "tools/build-qemu", "--print"], stdout=subprocess.PIPE, text=True, check=False)
        command = [lab.qemu or built.stdout.strip(), "-nodefaults", "-no-user-config", "-display", "none", *qemu_options]
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False, timeout=LIMIT)
    lines = [line for line in done.stdout.strip().splitlines() if "has no peer" not in line]
    assert done.returncode not in (0, -signal.SIGABRT, -signal.SIGSEGV), f"status {done.returncode}: {done.stdout}"
    assert len(lines) == 1, f"{len(lines)} lines instead of one: {done.stdout}"
    assert re.search(pattern, lines[0]), f"'{lines[0]}' does not match '{pattern}'"


def test_error_socket_in_use(lab):
    """A second process at a socket that is in use"""
    fails(lab, "another process serves.*: stop that process or choose another path", "--socket", lab.server().socket)
    with lab.client() as client:
        assert client.info()[1], "the first process is disturbed"


def test_error_socket_of_another_program(lab):
    """A socket at which another program listens or receives"""
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        path = lab.folder / f"other-{kind.name}"
        with socket.socket(socket.AF_UNIX, kind) as other:
            other.bind(str(path))
            if kind != socket.SOCK_DGRAM:
                other.listen(1)
            fails(lab, "another process serves", "--socket", path)
            assert path.is_socket(), "the socket of the other program is removed"


def test_stale_socket(lab):
    """The socket of a process that was killed is replaced"""
    process = lab.process()
    process.end()
    assert process.socket.is_socket()
    with Process(lab.folder, process.name, qemu=lab.qemu, start=False) as again:
        client = wait_until(lambda: connected(again), "the process does not replace a stale socket")
        assert client.info()[1]
        client.close()


def connected(process):
    """Returns a client, or None while no process listens."""
    assert process.alive(), process.output()
    try:
        return Client(process.socket)
    except (ConnectionRefusedError, FileNotFoundError):
        return None


def test_error_path_is_a_file(lab):
    """A path with a file that is no socket; the file stays"""
    path = lab.folder / "file"
    path.write_text("important", encoding="ascii")
    fails(lab, "cannot listen at .*file", "--socket", path)
    assert path.read_text(encoding="ascii") == "important"


def test_error_missing_folder(lab):
    """A path in a folder that does not exist"""
    fails(lab, "no-such-folder", "--socket", lab.folder / "no-such-folder/socket")


def test_error_long_path(lab):
    """A path that is too long for a socket"""
    fails(lab, "(too long|longer)", "--socket", lab.folder / ("x" * 120))


def test_error_properties(lab):
    """Unknown properties and values"""
    fails(lab, "no-such-property", "--socket", lab.folder / "p", "--property", "no-such-property=1")
    fails(lab, "max.qp", "--socket", lab.folder / "p", "--property", "max-qp=many")
    fails(lab, "NAME=VALUE", "--socket", lab.folder / "p", "--property", "novalue")


def test_error_options(lab):
    """Options of qrnic-device"""
    fails(lab, "--socket")
    fails(lab, "no-such-option", "--no-such-option")
    fails(lab, "--socket", "--socket")


def test_options_with_commas(lab):
    """Paths and patterns with the characters that QEMU's options use"""
    path, monitor = lab.folder / "s,a=b", lab.folder / "m,a=b"
    with open(lab.folder / "options.log", "wb") as output:
        process = subprocess.Popen([ROOT / "tools/device", "--socket", path, "--qmp", monitor, "--trace", "qrnic_process_listen,x",
                                    "--trace", "qrnic_process_listen"], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
            for connection, name in ((one, path), (two, monitor)):
                wait_until(lambda c=connection, n=name: process.poll() is not None or connects(c, n), f"nothing listens at {name}")
            text = (lab.folder / "options.log").read_text(encoding="utf-8")
            assert process.poll() is None, text
    finally:
        process.terminate()
        process.wait()


def test_error_devices(lab):
    """The machine without a qrnic, with two, and with another device"""
    machine = ["-M", f"qrnic-process,socket={lab.folder}/m"]
    fails(lab, "one -device qrnic", qemu_options=machine)
    fails(lab, "one -device qrnic", qemu_options=[*machine, "-device", "qrnic", "-device", "qrnic"])
    fails(lab, "socket=PATH", qemu_options=["-M", "qrnic-process", "-device", "qrnic"])
