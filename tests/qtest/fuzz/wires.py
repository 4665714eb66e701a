# The wire of the fuzzed device's port: a datagram socket, a cable, or a switch of cables.
# SPDX-License-Identifier: GPL-2.0-or-later
"""The peers on the device's wire.

Each wire has arguments() for QEMU's command line, device() for the properties of the device,
send(frame) and frames(). For a wire with cables, lie() breaks one rule of spec/cable.rst.
dead() returns true if a program beside QEMU ended.
"""

import array
import collections
import fcntl
import mmap
import os
import socket
import struct
import subprocess

MAGIC, HELLO, MEMORY, READY, REFUSE, WAKE = 0x424c4351, 1, 2, 3, 4, 5
MESSAGE = struct.Struct("<IIHHIIIQ96s")
CONTROL, SLOT, SLOTS, FRAME = 4096, 16, 64, 9082
PRODUCED, ROOM_AT, CONSUMED, WAKE_AT = 0, 4, 128, 132
ADD_SEALS, SEAL_SHRINK = 1033, 2
NONCE_MAX = (1 << 64) - 1


def half(slots, stride):
    return -(-(CONTROL + slots * stride) // 4096) * 4096


def stride_of(max_frame):
    lines = (SLOT + max_frame + 63) // 64
    return 64 * (lines + (lines % 2 == 0))


class Socket:
    """A network backend of QEMU: one datagram is one frame."""

    def __init__(self, folder, rand):
        del rand
        self.folder = folder
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"{folder}/peer")
        self.socket.setblocking(False)

    def arguments(self):
        return ["-netdev", f"dgram,id=wire,local.type=unix,local.path={self.folder}/device,remote.type=unix,"
                           f"remote.path={self.folder}/peer"]

    @staticmethod
    def device():
        return "netdev=wire"

    def send(self, frame):
        try:
            self.socket.sendto(frame, f"{self.folder}/device")
        except OSError:
            pass  # full, or the link is down

    def frames(self):
        while True:
            try:
                yield self.socket.recv(65536)
            except OSError:
                return

    def lie(self):
        pass

    def close(self):
        self.socket.close()

    @staticmethod
    def dead():
        return False


class End:
    """An end of a cable that connects to a path. The end follows the rules until lie() makes it break one."""

    TIME = 0.3  # seconds to wait for a message of the peer; then the handshake is aborted

    def __init__(self, path, rand):
        self.path, self.rand = path, rand
        self.socket, self.memory, self.waiting = None, None, collections.deque(maxlen=200)
        self.counts = collections.Counter()

    def message(self, kind, **values):
        m = {"version_min": 1, "version": 1, "slots": SLOTS, "max_frame": FRAME, "stride": 0, "nonce": 0, "text": b"fuzzer"} | values
        return MESSAGE.pack(m.get("magic", MAGIC), kind, m["version_min"], m["version"], m["slots"], m["max_frame"], m["stride"],
                            m["nonce"], m["text"])

    def broken(self, data):
        """Returns a message with some wrong bytes, or with a wrong length."""
        data, r = bytearray(data), self.rand
        for _ in range(r.choice((1, 1, 4))):
            at = r.choice((0, 4, 8, 10, 12, 16, 20, 24, r.randrange(len(data))))
            data[at] = r.choice((0, 1, 0xff, r.randrange(256)))
        return bytes(data[:r.choice((len(data), len(data), 8, 0, r.randrange(len(data)))) or 1])

    def put(self, data, descriptors=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            self.socket.sendmsg([data], rights, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
            return True
        except OSError:
            self.close()
            return False

    def get(self):
        """Returns a message and its descriptor, or None."""
        try:
            self.socket.settimeout(self.TIME)
            data, rights, _, _ = self.socket.recvmsg(256, socket.CMSG_SPACE(16))
        except OSError:
            self.close()
            return None
        descriptors = array.array("i")
        for _, _, raw in rights:
            descriptors.frombytes(raw[:len(raw) // 4 * 4])
        if len(data) != MESSAGE.size:
            self.close()
            return None
        return MESSAGE.unpack(data), list(descriptors)

    def close(self):
        if self.memory:
            self.memory.close()
            self.memory = None
        if self.socket:
            self.socket.close()
            self.socket = None

    def odd_descriptors(self):
        """Returns descriptors that are no memory of a cable; the caller closes them."""
        r = self.rand
        read, write = os.pipe()
        one = os.memfd_create("odd", os.MFD_ALLOW_SEALING)
        os.ftruncate(one, r.choice((0, 4096, 1 << 20)))
        return [read, write, one][:r.choice((1, 2, 3))], (read, write, one)

    def meet(self, lie=None):
        """Performs the handshake. lie: the step at which a rule is broken ("hello", "memory", "ready", "refuse",
        "silent", "descriptor")."""
        self.close()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(self.TIME)
        try:
            self.socket.connect(self.path)
        except OSError:
            self.close()
            return
        maker = self.rand.random() < .5
        hello = self.message(HELLO, nonce=NONCE_MAX if maker else 0)
        if lie == "silent" or not self.put(self.broken(hello) if lie == "hello" else hello):
            return
        if lie == "descriptor":
            sent, opened = self.odd_descriptors()
            open_still = self.put(self.message(WAKE), sent)
            for descriptor in opened:
                os.close(descriptor)
            if not open_still:
                return
        answer = self.get()
        if not answer or answer[0][1] != HELLO:
            self.close()
        elif maker:
            self.make(lie)
        else:
            self.take(lie)

    def make(self, lie):
        r, stride = self.rand, stride_of(FRAME)
        size = 2 * half(SLOTS, stride)
        memory = os.memfd_create("cable", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, size if lie != "memory" else r.choice((0, 4096, size - 4096, size, 2 * size)))
        if lie != "memory" or r.random() < .7:
            fcntl.fcntl(memory, ADD_SEALS, SEAL_SHRINK)
        message = self.message(MEMORY, slots=SLOTS, max_frame=FRAME, stride=stride)
        if lie == "memory" and r.random() < .5:
            message = self.broken(message)
        sent = [memory] * (r.choice((0, 1, 1, 3)) if lie == "memory" else 1)
        if self.put(message, sent):
            answer = self.get()
            if answer and answer[0][1] == READY and lie is None:
                self.start(memory, SLOTS, stride, True)
        os.close(memory)

    def take(self, lie):
        answer = self.get()
        if not answer or answer[0][1] != MEMORY or not answer[1]:
            self.close()
            return
        _, slots, stride = answer[0][1], answer[0][4], answer[0][6]
        ready = self.message(REFUSE if lie == "refuse" else READY)
        if self.put(self.broken(ready) if lie == "ready" else ready) and lie is None:
            self.start(answer[1][0], slots, stride, False)
        for descriptor in answer[1]:
            os.close(descriptor)

    def start(self, descriptor, slots, stride, first):
        self.memory = mmap.mmap(descriptor, 2 * half(slots, stride))
        self.slots, self.stride = slots, stride
        self.out, self.into = (0, half(slots, stride)) if first else (half(slots, stride), 0)
        self.produced = self.consumed = 0
        self.socket.setblocking(False)
        self.counts["cable up"] += 1

    def word(self, at, value=None):
        if value is None:
            return struct.unpack_from("<I", self.memory, at)[0]
        return struct.pack_into("<I", self.memory, at, value & 0xffffffff)

    def alive(self):
        """Returns False if the peer has closed the socket, as it does after a broken rule."""
        if not self.memory:
            return False
        try:
            while True:
                data = self.socket.recv(256)
                if not data or (len(data) >= 8 and struct.unpack_from("<I", data, 4)[0] == REFUSE):
                    self.counts["cable refused"] += 1
                    self.close()
                    return False
        except BlockingIOError:
            return True
        except OSError:
            self.close()
            return False

    def send(self, frame, length=None):
        if not self.alive():
            if self.rand.random() < .3:
                self.meet()
            return
        self.drain()
        if not self.memory:
            return
        if (self.produced - self.word(self.out + CONSUMED)) & 0xffffffff >= self.slots:
            return
        at = self.out + CONTROL + self.produced % self.slots * self.stride
        self.word(at, len(frame) if length is None else length)
        self.memory[at + SLOT:at + SLOT + len(frame)] = frame
        self.produced = (self.produced + 1) & 0xffffffff
        self.word(self.out + PRODUCED, self.produced)
        self.put(self.message(WAKE)[:8])

    def drain(self):
        produced = self.word(self.into + PRODUCED)
        if (produced - self.consumed) & 0xffffffff > self.slots:
            self.close()  # the broken rule was this end's own
            return
        while self.consumed != produced:
            at = self.into + CONTROL + self.consumed % self.slots * self.stride
            self.waiting.append(bytes(self.memory[at + SLOT:at + SLOT + min(self.word(at), FRAME)]))
            self.consumed = (self.consumed + 1) & 0xffffffff
        self.word(self.into + CONSUMED, produced)

    def frames(self):
        if self.alive():
            self.drain()
        while self.waiting:
            yield self.waiting.popleft()

    # Breaks a rule of an end whose cable is up.

    def lie_index(self):
        at = self.rand.choice((PRODUCED, CONSUMED, ROOM_AT, WAKE_AT))
        self.word(self.rand.choice((self.out, self.into)) + at,
                  self.rand.choice((0, self.produced + self.slots + 1, self.consumed - 1, self.rand.getrandbits(32))))

    def lie_length(self):
        self.send(self.rand.randbytes(60), self.rand.choice((0, 13, 14, FRAME, FRAME + 1, self.stride, 0x7fffffff, 0xffffffff)))

    def lie_scribble(self):
        for _ in range(20):
            self.memory[self.rand.randrange(len(self.memory))] = self.rand.randrange(256)

    def lie_message(self):
        self.put(self.broken(self.message(self.rand.choice((HELLO, MEMORY, READY, REFUSE, WAKE)))))

    def lie_descriptor(self):
        sent, opened = self.odd_descriptors()
        self.put(self.message(WAKE)[:8], sent)
        for descriptor in opened:
            os.close(descriptor)

    def lie_flood(self):
        wake = self.message(WAKE)[:8]
        for _ in range(500):
            if not self.socket or not self.put(wake):
                return

    def lie_leave(self):
        self.close()

    def lie(self):
        lies = (self.lie_index, self.lie_length, self.lie_scribble, self.lie_message, self.lie_descriptor, self.lie_flood, self.lie_leave)
        if self.alive() and self.rand.random() < .7:
            self.rand.choice(lies)()
            if self.socket and self.memory:
                self.put(self.message(WAKE)[:8])
            self.counts["cable lies"] += 1
        else:
            self.meet(self.rand.choice((None, None, "hello", "memory", "ready", "refuse", "silent", "descriptor")))
            self.counts["cable meetings"] += 1


class Cable:
    """The device on a cable whose peer breaks rules now and then."""

    def __init__(self, folder, rand):
        self.path = f"{folder}/cable"
        self.end = End(self.path, rand)

    def arguments(self):
        return ["-object", f"qrnic-cable,id=cable,path={self.path}"]

    @staticmethod
    def device():
        return "cable=cable"

    def send(self, frame):
        self.end.send(frame)

    def frames(self):
        return self.end.frames()

    def lie(self):
        self.end.lie()

    def close(self):
        self.end.close()

    @staticmethod
    def dead():
        return False


class Switch(Cable):
    """The device on a switch. One port has an end like that of a cable, another an end that only breaks rules."""

    def __init__(self, folder, rand, program):
        super().__init__(folder, rand)
        self.ends = [End(f"{folder}/port-{i}", rand) for i in range(2)]
        self.end = self.ends[0]
        self.log = open(f"{folder}/switch", "w", encoding="utf-8")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen([program, "--patience", "5", self.path, *(end.path for end in self.ends)],  # pylint: disable=consider-using-with
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def lie(self):
        for end in self.ends:
            end.lie()

    def send(self, frame):
        super().send(frame)
        self.ends[1].frames()

    def close(self):
        for end in self.ends:
            end.close()
        self.process.kill()
        self.process.wait()
        self.log.close()

    def dead(self):
        return self.process.poll() is not None
