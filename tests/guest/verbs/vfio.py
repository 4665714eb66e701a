#!/usr/bin/env python3
# Drives an adapter that is bound to vfio-pci from user space, without the kernel's driver and without verbs.
# SPDX-License-Identifier: GPL-2.0-or-later
#
# driver.py and scenario.py of labs/zoo drive a device through an object "cpu". Machine is such an object for a device
# behind VFIO (include/uapi/linux/vfio.h of Linux). Machine maps BARs, connects MSI-X with eventfds, and maps its memory
# for DMA. An IOMMU protects all other memory from the device.
"""vfio.py FUNCTION scenario | FUNCTION pingpong ADDRESS MAC GID PEER-MAC | FUNCTION stray | FUNCTION hold:
performs one test with the PCI function, for example 0000:01:00.1

scenario   two queue pairs of the function exchange messages (labs/zoo/scenario.py)
pingpong   exchanges random messages with ibv_rc_pingpong -n 2 at ADDRESS
stray      makes the device read memory that is not mapped: the read must fail
hold       starts the device, executes a command after SIGUSR1, reports both, and does not end
"""

import ctypes
import fcntl
import mmap
import os
import random
import select
import signal
import socket
import struct
import sys
import time

import driver
import scenario

# Requests of linux/vfio.h: _IO(';', 100 + n)
(GET_API_VERSION, CHECK_EXTENSION, SET_IOMMU, GROUP_GET_STATUS, GROUP_SET_CONTAINER, _, GROUP_GET_DEVICE_FD, DEVICE_GET_INFO,
 DEVICE_GET_REGION_INFO, _, DEVICE_SET_IRQS, DEVICE_RESET) = (ord(";") << 8 | 100 + n for n in range(12))
IOMMU_MAP_DMA = ord(";") << 8 | 113
TYPE1V2, VIABLE, CAN_RESET = 3, 1, 1
READ, WRITE, MMAP = 1, 2, 4                     # rights of DMA mappings, and flags of regions
MSIX, DATA_EVENTFD, ACTION_TRIGGER = 2, 1 << 2, 1 << 5
CONFIG_REGION = 7
BASE, SIZE = 5 << 30, 4 << 20                   # of the memory: bus address and bytes
FATAL = 1 << 2                                  # of STATUS
LIMIT = 60                                      # seconds


class Failed(Exception):
    """Reports that the kernel or the device did something unexpected."""


class Machine:
    """The function, and memory that it can access."""

    def __init__(self, function):
        group = os.path.basename(os.readlink(f"/sys/bus/pci/devices/{function}/iommu_group"))
        container, self.group = os.open("/dev/vfio/vfio", os.O_RDWR), os.open(f"/dev/vfio/{group}", os.O_RDWR)
        status = bytearray(struct.pack("<II", 8, 0))
        fcntl.ioctl(self.group, GROUP_GET_STATUS, status)
        if not struct.unpack("<II", status)[1] & VIABLE:
            raise Failed(f"group {group} has devices of other drivers")
        fcntl.ioctl(self.group, GROUP_SET_CONTAINER, struct.pack("<i", container))
        fcntl.ioctl(container, SET_IOMMU, TYPE1V2)
        self.memory, self.free = mmap.mmap(-1, SIZE, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS), 0
        pages = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        fcntl.ioctl(container, IOMMU_MAP_DMA, struct.pack("<IIQQQ", 32, READ | WRITE, pages, BASE, SIZE))
        self.device = fcntl.ioctl(self.group, GROUP_GET_DEVICE_FD, bytearray(function.encode() + b"\0"))
        information = bytearray(struct.pack("<IIIIII", 24, 0, 0, 0, 0, 0))
        fcntl.ioctl(self.device, DEVICE_GET_INFO, information)
        if not struct.unpack("<IIIIII", information)[1] & CAN_RESET:
            raise Failed("the function cannot be reset")
        self.offsets, self.bars, self.events = {}, {}, []
        for region in (driver.BAR_CONTROL, driver.BAR_MSIX, driver.BAR_DOORBELL, CONFIG_REGION):
            self.open_region(region)
        self.reset()

    def open_region(self, region):
        """Maps a region, except that of the MSI-X table, which the kernel sets up (connect_interrupts)."""
        information = bytearray(struct.pack("<IIIIQQ", 32, 0, region, 0, 0, 0))
        fcntl.ioctl(self.device, DEVICE_GET_REGION_INFO, information)
        _, flags, _, _, size, self.offsets[region] = struct.unpack("<IIIIQQ", information)
        if flags & MMAP and region != driver.BAR_MSIX:
            self.bars[region] = mmap.mmap(self.device, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=self.offsets[region])

    def reset(self):
        """Performs a Function Level Reset."""
        fcntl.ioctl(self.device, DEVICE_RESET)

    # The machine of driver.py

    def config_read(self, offset, size=4):
        return int.from_bytes(os.pread(self.device, size, self.offsets[CONFIG_REGION] + offset), "little")

    def config_write(self, offset, value, size=4):
        os.pwrite(self.device, value.to_bytes(size, "little"), self.offsets[CONFIG_REGION] + offset)

    def word(self, bar, offset, size):
        """Returns a word of a BAR. Each access to its value is one instruction of this size."""
        return {4: ctypes.c_uint32, 8: ctypes.c_uint64}[size].from_buffer(self.bars[bar], offset)

    def bar_read(self, bar, offset, size=4):
        return self.word(bar, offset, size).value

    def bar_write(self, bar, offset, value, size=4):
        if bar in self.bars:
            self.word(bar, offset, size).value = value
        else:
            os.pwrite(self.device, value.to_bytes(size, "little"), self.offsets[bar] + offset)

    def mem_alloc(self, size, align=64):
        at = -(-self.free // align) * align
        self.free = at + size
        if self.free > SIZE:
            raise Failed("the memory is full")
        self.memory[at:self.free] = bytes(size)
        return BASE + at

    def mem_read(self, address, size):
        return self.memory[address - BASE:address - BASE + size]

    def mem_write(self, address, data):
        self.memory[address - BASE:address - BASE + len(data)] = data

    def barrier(self):
        """Does nothing, because x86 keeps the order of stores, and that of loads."""

    def connect_interrupts(self, vectors):
        """Enables MSI-X with an eventfd for each vector."""
        if self.events:
            fcntl.ioctl(self.device, DEVICE_SET_IRQS, struct.pack("<IIIII", 20, 1 | ACTION_TRIGGER, MSIX, 0, 0))
        self.events = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(vectors)]
        fcntl.ioctl(self.device, DEVICE_SET_IRQS, struct.pack(f"<IIIII{vectors}i", 20 + 4 * vectors, DATA_EVENTFD | ACTION_TRIGGER, MSIX, 0,
                                                              vectors, *self.events))

    def interrupts(self, vector):
        """Returns how many interrupts the vector has had since the last call. Waits a moment for one."""
        if not select.select([self.events[vector]], [], [], 0.01)[0]:
            return 0
        return os.eventfd_read(self.events[vector])

    def wait_until(self, condition, text):
        end = time.monotonic() + LIMIT * int(os.environ.get("TIME_FACTOR", "1"))
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise Failed(f"waits in vain for {text}")
            time.sleep(0.0005)


class Peer:
    """The queue pair of ibv_rc_pingpong, as QueuePair.connect() needs it."""

    def __init__(self, words, mac):
        _, number, psn, gid = words.split(":")
        self.number, self.psn, self.mtu = int(number, 16), int(psn, 16), driver.MTU_1024
        self.driver = self
        self.gid, self.mac = bytes.fromhex(gid), bytes.fromhex(mac.replace(":", ""))


def pingpong(machine, address, mac, gid, peer_mac):
    """Takes the part of the client of ibv_rc_pingpong. The server uses one buffer, so each message comes back."""
    device = driver.Driver(machine)
    device.set_address(bytes(10) + b"\xff\xff" + socket.inet_aton(gid), bytes.fromhex(mac.replace(":", "")))
    cq = driver.CompletionQueue(device)
    pair = driver.QueuePair(device, cq, driver.MTU_1024, 0x123456)
    sent, got = driver.Region(device, 4096), driver.Region(device, 4096, driver.LOCAL_WRITE, offset=0x800)
    with socket.create_connection((address, 18515), LIMIT) as control:
        control.sendall(f"0000:{pair.number:06x}:{pair.psn:06x}:{device.gid.hex()}".encode() + b"\0")
        words = b""
        while len(words) < 52:                          # "0000:000000:000000:" and a GID, with a NUL
            data = control.recv(52 - len(words))
            if not data:
                raise Failed("the server closed the connection")
            words += data
        pair.connect(Peer(words.rstrip(b"\0").decode(), peer_mac))
        control.sendall(b"done\0")
        for _ in range(2):
            text = random.randbytes(4096)
            sent.write(0, text)
            pair.post_receive(got, 0, 4096)
            pair.send(sent, 0, 4096)
            for _ in range(2):                          # by interrupt: the message is sent, its echo is received
                scenario.success(cq.wait())
            scenario.same(got.read(0, 4096), text, "the message that came back")
    for thing in (pair, sent, got, cq):
        thing.destroy()
    device.close()


def stray(machine):
    """Makes the device read a command ring in memory that is not mapped."""
    machine.bar_write(driver.BAR_CONTROL, driver.CONTROL, driver.RESET)
    machine.wait_until(lambda: machine.bar_read(driver.BAR_CONTROL, driver.STATUS) & driver.READY, "STATUS.READY")
    machine.config_write(driver.COMMAND, driver.MEMORY_ENABLE | driver.BUS_MASTER, 2)
    for register, value in ((driver.CMD_BASE_LO, BASE + SIZE & 0xffffffff), (driver.CMD_BASE_HI, BASE + SIZE >> 32), (driver.CMD_SIZE, 2),
                            (driver.CONTROL, driver.CMD_ENABLE), (driver.CMD_DOORBELL, 1)):
        machine.bar_write(driver.BAR_CONTROL, register, value)
    machine.wait_until(lambda: machine.bar_read(driver.BAR_CONTROL, driver.STATUS) & FATAL, "STATUS.FATAL")


def main():
    function, test, *words = sys.argv[1:]
    machine = Machine(function)
    if test == "scenario":
        scenario.run(machine, driver)
    elif test == "pingpong":
        pingpong(machine, *words)
    elif test == "stray":
        stray(machine)
        machine.reset()
        scenario.run(machine, driver)
    else:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        device = driver.Driver(machine)
        print("started", flush=True)
        signal.sigwait({signal.SIGUSR1})
        device.commands.execute(driver.ALLOC_PD)
        print("works", flush=True)
        signal.pause()


main()
