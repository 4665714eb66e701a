# A client of the vfio-user protocol, for tests of a server. The client takes the place of the VMM.
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Written after the specification in libvfio-user (docs/vfio-user.rst) and in QEMU (docs/interop/vfio-user.rst).
# The methods from version() to reset() are well-formed requests. send() sends any bytes with any descriptors, for
# tests of malformed requests. Every wait for the server ends after LIMIT seconds with TimeoutError.
"""Client of the vfio-user protocol."""

import array
import collections
import json
import os
import socket
import struct

VERSION, DMA_MAP, DMA_UNMAP, GET_INFO, GET_REGION_INFO, GET_REGION_IO_FDS, GET_IRQ_INFO, SET_IRQS = range(1, 9)
REGION_READ, REGION_WRITE, DMA_READ, DMA_WRITE, RESET, DIRTY_PAGES = range(9, 15)
# Commands of later versions of the protocol, for migration
DEVICE_FEATURE, MIG_DATA_READ, MIG_DATA_WRITE, REGION_WRITE_MULTI = range(16, 20)
REPLY, NO_REPLY, ERROR = 1, 0x10, 0x20
HEADER = struct.Struct("<HHIII")
READ, WRITE = 1, 2                              # rights of a DMA region
CONFIG_REGION, MIGRATION_REGION = 7, 9          # after six BARs and the ROM; behind VGA
INTX, MSI, MSIX, ERR, REQ = range(5)
DATA_NONE, DATA_BOOL, DATA_EVENTFD, ACTION_MASK, ACTION_UNMASK, ACTION_TRIGGER = (1 << bit for bit in range(6))
UNMAP_ALL = 2
REGION_MMAP, REGION_CAPS, CAP_SPARSE_MMAP = 4, 8, 1
DEVICE_RESET_FLAG, DEVICE_PCI_FLAG = 1, 2
LIMIT = 120                                     # seconds, for slow hosts
MOST_FDS = 253                                  # of one message (SCM_MAX_FD of Linux)

Reply = collections.namedtuple("Reply", "command error data fds")
Region = collections.namedtuple("Region", "index size flags offset areas fds")


class Rejected(Exception):
    """Reports that the server answered with an error; args[0] is its errno."""


class Closed(Exception):
    """Reports that the server closed the connection."""


def header(number, command, length, flags=0, error=0):
    return HEADER.pack(number & 0xffff, command, HEADER.size + length, flags, error)


class Client:
    """One connection. Methods raise Rejected, Closed or TimeoutError."""

    def __init__(self, path, negotiate=True, limit=LIMIT):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(limit)
        self.number = 0
        self.requests = []                      # commands of the server: (command, data)
        try:
            self.socket.connect(str(path))
            self.capabilities = self.version() if negotiate else {}
        except BaseException:
            self.socket.close()
            raise

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Messages

    def send(self, data, fds=()):
        """Sends all bytes; the descriptors accompany the first one."""
        if fds:
            sent = self.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            data = data[sent:]
        self.socket.sendall(data)

    def _receive(self, length, fds):
        out = b""
        while len(out) < length:
            try:
                data, controls, _, _ = self.socket.recvmsg(length - len(out), socket.CMSG_SPACE(4 * MOST_FDS))
            except (ConnectionResetError, BrokenPipeError):
                data, controls = b"", []
            for level, kind, body in controls:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds += array.array("i", body[:len(body) - len(body) % 4])
            if not data:
                raise Closed("the server closed the connection")
            out += data
        return out

    def receive(self):
        """Returns the next reply. Commands of the server are kept in requests, and answered with EPERM."""
        while True:
            fds = []
            number, command, size, flags, error = HEADER.unpack(self._receive(HEADER.size, fds))
            if not HEADER.size <= size <= 2 << 20:
                raise AssertionError(f"the server sends a message of {size} bytes")
            data = self._receive(size - HEADER.size, fds)
            if flags & 0xf == REPLY:
                return Reply(command, (error or -1) if flags & ERROR else 0, data, fds)
            self.requests.append((command, data))
            self.send(header(number, command, 0, REPLY | ERROR, 1))

    def post(self, command, data=b"", fds=(), flags=0):
        """Sends one request without waiting for its reply."""
        self.number += 1
        try:
            self.send(header(self.number, command, len(data), flags) + data, fds)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed("the server closed the connection") from None

    def ask(self, command, data=b"", fds=()):
        """Returns the reply, which may be an error."""
        self.post(command, data, fds)
        reply = self.receive()
        if reply.command != command:
            raise AssertionError(f"the reply to command {command} is one to command {reply.command}")
        return reply

    def request(self, command, data=b"", fds=()):
        """Returns the data of a reply without error."""
        reply = self.ask(command, data, fds)
        for fd in reply.fds:
            os.close(fd)
        if reply.error:
            raise Rejected(reply.error)
        return reply.data

    # Requests

    def version(self, major=0, minor=1, capabilities=None):
        """Negotiates the version; returns the capabilities of the server."""
        text = json.dumps({"capabilities": {"max_msg_fds": 8, "max_data_xfer_size": 1 << 20} if capabilities is None else capabilities})
        data = self.request(VERSION, struct.pack("<HH", major, minor) + text.encode() + b"\0")
        self.server_version = struct.unpack_from("<HH", data)
        return json.loads(data[4:].rstrip(b"\0") or b"{}").get("capabilities", {})

    def info(self):
        """Returns (flags, number of regions, number of kinds of interrupts)."""
        return struct.unpack("<IIII", self.request(GET_INFO, struct.pack("<IIII", 16, 0, 0, 0)))[1:]

    def region(self, index, argsz=4096):
        """Returns the Region. The caller closes its descriptors."""
        reply = self.ask(GET_REGION_INFO, struct.pack("<IIIIQQ", argsz, 0, index, 0, 0, 0))
        if reply.error:
            raise Rejected(reply.error)
        _, flags, number, capability, size, offset = struct.unpack_from("<IIIIQQ", reply.data)
        areas = []
        while flags & REGION_CAPS and capability:
            kind, _, following, count = struct.unpack_from("<HHII", reply.data, capability)
            if kind == CAP_SPARSE_MMAP:
                areas += [struct.unpack_from("<QQ", reply.data, capability + 16 + 16 * i) for i in range(count)]
            capability = following
        return Region(number, size, flags, offset, areas, reply.fds)

    def irq(self, index):
        """Returns (flags, number of vectors)."""
        _, flags, _, count = struct.unpack("<IIII", self.request(GET_IRQ_INFO, struct.pack("<IIII", 16, 0, index, 0)))
        return flags, count

    def set_irqs(self, index, start, count, flags=DATA_EVENTFD | ACTION_TRIGGER, data=b"", fds=()):
        self.request(SET_IRQS, struct.pack("<IIIII", 20 + len(data), flags, index, start, count) + data, fds)

    def read(self, region, offset, count):
        data = self.request(REGION_READ, struct.pack("<QII", offset, region, count))
        if struct.unpack_from("<QII", data) != (offset, region, count) or len(data) != 16 + count:
            raise AssertionError(f"the reply to a read of {count} bytes has {len(data) - 16}")
        return data[16:]

    def write(self, region, offset, data):
        self.request(REGION_WRITE, struct.pack("<QII", offset, region, len(data)) + data)

    def post_write(self, region, offset, data):
        """Writes without a reply, as a VMM does for a posted write."""
        self.post(REGION_WRITE, struct.pack("<QII", offset, region, len(data)) + data, flags=NO_REPLY)

    def map(self, address, size, fd=None, offset=0, rights=READ | WRITE):
        self.request(DMA_MAP, struct.pack("<IIQQQ", 32, rights, offset, address, size), () if fd is None else (fd,))

    def unmap(self, address, size, flags=0):
        self.request(DMA_UNMAP, struct.pack("<IIQQ", 24, flags, address, size))

    def reset(self):
        self.request(RESET)
