"""A wire between two guests that loses, repeats, reorders, marks and corrupts frames, at random from a seed. A Nic
makes one FaultyWire for --wire.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import random
import selectors
import socket
import threading

from .errors import EXIT_USAGE, LaunchError

FAULTS = ("loss", "repeat", "reorder", "corrupt", "mark")
ETHERTYPE_VLAN, ETHERTYPE_IPV4, ETHERTYPE_IPV6 = b"\x81\x00", b"\x08\x00", b"\x86\xdd"
PROTOCOL_UDP, ROCE_PORT = 17, (4791).to_bytes(2, "big")
CE = 3                          # RFC 3168; the value 0 means that the ends do not support marks
GSI = (1).to_bytes(3, "big")    # the QP number of management datagrams
FRAME_MAX = 1 << 16
SEED = 1


class Faults:
    """loss=P[,repeat=P][,reorder=P][,corrupt=P][,mark=P][,spare=mads][,seed=N], P in percent of the frames, each way.

    Marks are set only in RoCE v2 frames whose ECN field reports support. Management datagrams can be spared, because
    some programs destroy their end of a connection at once. Linux then repeats no lost request to disconnect, and
    the peer waits for ever.
    """

    def __init__(self, text):
        self.percent = dict.fromkeys(FAULTS, 0.0)
        self.seed = SEED
        self.spare_mads = False
        for setting in text.split(","):
            key, _, value = setting.partition("=")
            if setting == "spare=mads":
                self.spare_mads = True
                continue
            try:
                if key == "seed":
                    self.seed = int(value)
                    continue
                number = float(value)
            except ValueError:
                number = -1
            if key not in FAULTS or not 0 <= number <= 100:
                raise LaunchError(f"--wire {text}: '{setting}' is neither seed=N, nor spare=mads, nor one of {', '.join(FAULTS)} in percent", EXIT_USAGE)
            self.percent[key] = number


def roce(frame):
    """Returns the offsets of the IP header and of the BTH of a RoCE v2 frame, or None."""
    ip = 18 if frame[12:14] == ETHERTYPE_VLAN else 14
    kind = frame[ip - 2:ip]
    if kind == ETHERTYPE_IPV4 and len(frame) >= ip + 20:
        udp = ip + 4 * (frame[ip] & 15)
        first_fragment = not int.from_bytes(frame[ip + 6:ip + 8], "big") & 0x1fff
        if udp < ip + 20 or not first_fragment or frame[ip + 9] != PROTOCOL_UDP:
            return None
    elif kind == ETHERTYPE_IPV6 and len(frame) >= ip + 40 and frame[ip + 6] == PROTOCOL_UDP:
        udp = ip + 40
    else:
        return None
    return (ip, udp + 8) if frame[udp + 2:udp + 4] == ROCE_PORT else None


def is_mad(frame):
    found = roce(frame)
    return bool(found) and frame[found[1] + 5:found[1] + 8] == GSI


def marked(frame):
    """Returns the frame with CE in its IP header, or None if it is no RoCE v2 frame or not ECN-capable.

    Only the checksum of IPv4 changes with it, because the ICRC does not cover ECN.
    """
    found = roce(frame)
    if not found:
        return None
    ip, bth = found
    out = bytearray(frame)
    if frame[ip] >> 4 == 4:
        ecn = frame[ip + 1] & CE
        out[ip + 1] |= CE
        out[ip + 10:ip + 12] = bytes(2)
        total = sum(int.from_bytes(out[at:at + 2], "big") for at in range(ip, bth - 8, 2))
        while total >> 16:
            total = (total & 0xffff) + (total >> 16)
        out[ip + 10:ip + 12] = (total ^ 0xffff).to_bytes(2, "big")
    else:
        ecn = frame[ip + 1] >> 4 & CE
        out[ip + 1] |= CE << 4
    return bytes(out) if ecn else None


class FaultyWire:
    """Two pairs of datagram sockets, and a thread that forwards frames between them"""

    def __init__(self, faults):
        self.faults = faults
        self.random = random.Random(faults.seed)
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
        self.ends = [pair[0] for pair in pairs]
        self.inner = [pair[1] for pair in pairs]
        for end in self.ends + self.inner:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        self.held = [None, None]
        self.stop, self.stopped = socket.socketpair()
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()

    def happens(self, fault):
        return self.random.random() * 100 < self.faults.percent[fault]

    def spoiled(self, frame):
        copy = bytearray(frame)
        copy[self.random.randrange(len(copy))] ^= 1 << self.random.randrange(8)
        return bytes(copy)

    def frame(self, way, frame):
        """Returns the frames that leave the wire because this frame arrived."""
        if self.faults.spare_mads and is_mad(frame):
            return [frame]
        if self.faults.percent["mark"]:
            ours = marked(frame)
            if ours and self.happens("mark"):
                frame = ours
        held, self.held[way] = self.held[way], None
        if self.happens("loss"):
            out = []
        elif self.happens("reorder") and held is None:
            self.held[way] = frame
            out = []
        else:
            out = [self.spoiled(frame) if self.happens("corrupt") else frame]
            if self.happens("repeat"):
                out.append(frame)
        return out + ([held] if held else [])

    def carry(self):
        selector = selectors.DefaultSelector()
        for way, sock in enumerate(self.inner):
            selector.register(sock, selectors.EVENT_READ, way)
        selector.register(self.stopped, selectors.EVENT_READ, None)
        try:
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        return
                    for frame in self.frame(key.data, key.fileobj.recv(FRAME_MAX)):
                        self.inner[1 - key.data].send(frame)
        except OSError:
            return              # a guest has ended
        finally:
            selector.close()

    def close(self):
        # The shutdown wakes a thread that waits because a socket is full.
        for sock in self.inner:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.stop.close()
        self.thread.join(10)
        for sock in (*self.inner, self.stopped):
            sock.close()
