"""Captures of bus and wire (property capture of -device qrnic): reads the pcapng files, and makes events of the packets.

read() returns the events of several files in the order of time. An event is an access of the guest, a DMA access, a frame,
or an MSI-X message. A DMA access has all its requests and completions, because a list shows one line for it.
tools/timeline and tools/capture-charts call read().

SPDX-License-Identifier: GPL-2.0-or-later
"""

import os
import re
import struct
import sys

SPEC = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "spec")
sys.path.insert(0, os.path.join(SPEC, "lib"))
try:
    import contract
except ImportError:
    contract = None     # no python3-yaml; --help works without it

LANES = ("CPU", "doorbell", "scheduler", "DMA", "wire", "peer", "CQE", "interrupt")
# The lane of each purpose of a DMA access
USES = {"record": "scheduler", "wqe": "scheduler", "context": "scheduler", "data": "DMA", "receive-wqe": "DMA", "page-list": "DMA",
        "tag-op": "DMA", "cq-record": "DMA", "command": "DMA", "mailbox": "DMA", "cqe": "CQE", "eqe": "CQE"}
ETHERNET, USER0 = 1, 147
SECTION, INTERFACE, PACKET = 0x0a0d0d0a, 1, 6
BLOCK_MAX = 16 << 20
# BTH opcodes of RC; the other transports have the same low 5 bits (InfiniBand specification, table 38)
OPERATIONS = {
    **{base + at: f"{name} {part}" for base, name in ((0, "SEND"), (6, "WRITE"))
       for at, part in enumerate(("First", "Middle", "Last", "Last with immediate", "Only", "Only with immediate"))},
    0x0c: "READ Request", 0x0d: "READ Response First", 0x0e: "READ Response Middle", 0x0f: "READ Response Last",
    0x10: "READ Response Only", 0x11: "ACK", 0x12: "Atomic ACK", 0x13: "CmpSwap", 0x14: "FetchAdd", 0x16: "SEND Last with invalidate",
    0x17: "SEND Only with invalidate", 0x1c: "FLUSH", 0x1d: "ATOMIC WRITE", 0x1f: "SACK",
}
RESPONSES = (0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x1f)
NAKS = {0: "NAK sequence error", 1: "NAK invalid request", 2: "NAK remote access", 3: "NAK remote operation"}


class CaptureError(Exception):
    """A capture is not usable; the text is one line for the user."""


class Event:
    """One event: device, lane, time in ns since 1970, end of its last part, and the numbers of its comment"""

    def __init__(self, packet, device, lane, kind, values):
        self.start = self.end = packet.ns
        self.device, self.lane, self.kind, self.values = device, lane, kind, values
        self.sent, self.number, self.data, self.bytes = packet.sent, packet.number, b"", 0
        self.address, self.failed, self.writes = 0, False, False
        # Frames: offset of the BTH or None, the frame at the other device, and the fate on the wire
        self.bth, self.match, self.lost, self.retransmitted = None, None, False, False
        self.operation = None   # (device, QP, WQE) of the requester
        self.text = ""

    def get(self, key):
        return self.values.get(key)


class Packet:
    """One packet of a file"""

    def __init__(self, number, interface, ns, data, comment, sent):
        self.number, self.interface, self.ns, self.data, self.comment, self.sent = number, interface, ns, data, comment, sent


class Reader:
    """Reads one pcapng file: packets() reads the whole file, packets_of() an open file from its position on.

    end is the offset behind the packet that packets_of() yielded last. A later call for the same file can begin there.
    """

    def __init__(self, path, partial, version):
        self.path, self.partial, self.version, self.interfaces, self.order, self.end = path, partial, version, [], "<", 0

    def fail(self, text):
        raise CaptureError(f"{self.path}: {text}")

    def blocks(self, file):
        """Yields (type, body) of each block. A truncated last block ends the file if the caller accepts a part."""
        at = file.tell()
        while head := file.read(8):
            if at == 0 and head[:4] != struct.pack("<I", SECTION):
                self.fail("not a pcapng file")
            if head[:4] == struct.pack("<I", SECTION):
                order = file.read(4)
                self.order = "<" if order == b"\x4d\x3c\x2b\x1a" else ">"
                if order not in (b"\x4d\x3c\x2b\x1a", b"\x1a\x2b\x3c\x4d"):
                    self.fail("the file is truncated in its first block, or is not pcapng")
                self.interfaces = []
                head += order
            if len(head) < 8:
                return self.truncated(at)
            kind, length = struct.unpack_from(f"{self.order}II", head)
            if length < 12 or length % 4 or length > BLOCK_MAX:
                self.fail(f"damaged at byte {at}: a block of {length} bytes")
            rest = file.read(length - len(head))
            if len(head) + len(rest) < length:
                return self.truncated(at)
            if struct.unpack(f"{self.order}I", rest[-4:])[0] != length:
                self.fail(f"damaged at byte {at}: the lengths of a block differ")
            at += length
            self.end = at
            yield kind, (head + rest)[8:-4]
        if at == 0:
            self.fail("the file is empty: the device has not started, or the capture is still in memory")

    def truncated(self, at):
        if not self.partial:
            self.fail(f"truncated at byte {at}: QEMU still writes the file, or was killed; --partial reads the packets before")

    def options(self, body, at):
        while at + 4 <= len(body):
            code, size = struct.unpack_from(f"{self.order}HH", body, at)
            if not code or at + 4 + size > len(body):
                return
            yield code, body[at + 4:at + 4 + size]
            at += 4 + (size + 3) // 4 * 4

    def check_version(self, description):
        """Fails if the interface is of a version whose packets may have another meaning. Minor versions only add."""
        match = re.fullmatch(r"qrnic hardware interface (\d+)\.(\d+)", description.rstrip(b"\0").decode(errors="replace"))
        theirs = match and (int(match[1]), int(match[2]))
        if theirs and (theirs[0] != self.version[0] or theirs[1] > self.version[1]):
            self.fail(f"the capture is of hardware interface {theirs[0]}.{theirs[1]}, this tool of {self.version[0]}.{self.version[1]}: "
                      "use the tool of the version that made the capture")

    def packets(self):
        try:
            with open(self.path, "rb") as file:
                yield from self.packets_of(file)
        except OSError as error:
            self.fail(error.strerror)

    def packets_of(self, file):
        number = 0
        for kind, body in self.blocks(file):
            if kind == INTERFACE and len(body) >= 8:
                options = dict(self.options(body, 8))
                self.check_version(options.get(3, b""))
                name = options.get(2, b"").rstrip(b"\0").decode(errors="replace")
                unit = options.get(9, b"\6")[:1] or b"\6"
                self.interfaces.append((name, struct.unpack_from(f"{self.order}H", body)[0], 10 ** max(0, 9 - (unit[0] & 0x7f))))
            elif kind == PACKET:
                number += 1
                yield self.packet(number, body)

    def packet(self, number, body):
        if len(body) < 20:
            self.fail(f"damaged: packet {number} has no header")
        interface, high, low, captured, original = struct.unpack_from(f"{self.order}IIIII", body)
        if interface >= len(self.interfaces) or 20 + captured > len(body):
            self.fail(f"damaged: packet {number} is longer than its block, or has no interface")
        if captured < original:
            self.fail(f"packet {number} is cut to {captured} of {original} bytes: capture whole packets")
        options = dict(self.options(body, 20 + (captured + 3) // 4 * 4))
        flags = struct.unpack(f"{self.order}I", options[2])[0] if len(options.get(2, b"")) == 4 else 0
        return Packet(number, interface, (high << 32 | low) * self.interfaces[interface][2], body[20:20 + captured],
                      options.get(1, b"").decode(errors="replace"), flags & 3 == 2)


class Names:
    """Names of the contract"""

    def __init__(self):
        if not contract:
            raise CaptureError("the names of the contract need PyYAML: install python3-yaml")
        spec = contract.load(os.path.join(SPEC, "qrnic-hw.yaml"))
        self.version = spec.version["major"], spec.version["minor"]
        self.enums = {name: {value["value"]: value["name"] for value in enum["values"]} for name, enum in spec.enums.items()}
        self.constants = {value["name"]: value["value"] for group in spec.constants.values() for value in group["values"]}
        self.registers = {register["offset"]: register["name"] for register in spec.registers["list"]}
        constants = self.constants
        self.doorbells = {constants["DB_SQ"]: "SQ", constants["DB_RQ"]: "RQ", constants["DB_SRQ"]: "SRQ", constants["DB_CQ_ARM"]: "CQ arm",
                          constants["DB_EQ"]: "EQ", constants["DB_DIRECT"]: "direct"}

    def of(self, enum, value):
        return self.enums[enum].get(value, f"{value:#x}")


def comment_values(text):
    """Returns {key: number} of a comment. "use" has a text, and words without a value are True."""
    values = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if key == "use" or not equals:
            values[key] = value or True
        else:
            # A value that is no number is of another version; the caller reports a missing key.
            try:
                values[key] = int(value, 0)
            except ValueError:
                continue
    return values


class Device:
    """Makes the events of the packets of one device."""

    def __init__(self, name, path):
        self.name, self.path, self.events = name, path, []
        self._open, self._last = {}, {}
        self.mac = None

    def add(self, packet, lane, kind, values):
        event = Event(packet, self, lane, kind, values)
        self.events.append(event)
        return event

    def frame(self, packet):
        event = self.add(packet, "wire" if packet.sent else "peer", "frame", comment_values(packet.comment))
        event.data, event.bytes, event.bth = packet.data, len(packet.data), bth_offset(packet.data)
        if packet.sent:
            self.mac = packet.data[6:12]

    def foreign(self, packet):
        raise CaptureError(f"{self.path}: packet {packet.number} is of another version or program: "
                           f"its comment is '{packet.comment[:40]}'; use the tool and the device of one version")

    def bus(self, packet):
        data, values = packet.data, comment_values(packet.comment)
        if len(data) < 12:
            raise CaptureError(f"{self.path}: packet {packet.number} is shorter than a TLP")
        kind = data[0] & ~0x20
        if kind in (0x0a, 0x4a):
            self.completion(packet, data)
            return
        if kind not in (0x00, 0x40, 0x04, 0x44, 0x4c, 0x4e):
            self.foreign(packet)
        use = values.get("use")
        if use in USES:
            lane, name = USES[use], use
        elif "interrupt" in values and "vector" in values:
            lane, name = "interrupt", "interrupt"
        elif ("config" in values or "bar" in values) and isinstance(values.get("offset"), int):
            lane, name = ("doorbell", "doorbell") if values.get("bar") == 2 and kind == 0x40 else ("CPU", "config" if "config" in values else "register")
        else:
            self.foreign(packet)
        self.request(packet, data, (lane, name, values), kind)

    def request(self, packet, data, what, kind):
        lane, name, values = what
        head = 16 if data[0] & 0x20 else 12
        first, last, words = data[7] & 15, data[7] >> 4, struct.unpack_from(">H", data, 2)[0] & 0x3ff or 1024
        skip = next((at for at in range(4) if first >> at & 1), 0)
        mask = (last if words > 1 else first) or 8
        size = words * 4 - skip - (3 - mask.bit_length() + 1)
        address = (struct.unpack_from(">Q", data, 8)[0] if head == 16 and len(data) >= 16 else struct.unpack_from(">I", data, 8)[0]) + skip
        key = (name, *(values.get(word) for word in ("object", "index", "qp")), kind)
        event = self._last.get(key)
        # Requests of one access continue its address; a CQE and an EQE are written in two parts.
        if not event or event.address + event.bytes != address or not (values.get("from") or name in ("cqe", "eqe")):
            event = self.add(packet, lane, name, values)
            event.address = address
        event.bytes += size
        event.end = packet.ns
        event.writes = kind in (0x40, 0x44, 0x4c, 0x4e)
        # Data of messages may be large, and no text shows them.
        if event.writes and name != "data":
            event.data += data[head + skip:head + skip + size]
        self._last[key] = event
        self._open[struct.unpack_from(">HB", data, 4)] = event

    def completion(self, packet, data):
        event = self._open.get(struct.unpack_from(">HB", data, 8))
        if not event:
            return
        event.end = packet.ns
        if data[6] >> 5:
            event.failed = True
        elif data[0] == 0x4a and not event.writes and event.kind != "data":
            remaining = struct.unpack_from(">H", data, 6)[0] & 0xfff
            skip = data[11] & 3
            event.data += data[12 + skip:12 + skip + remaining]


def bth_offset(frame):
    """Returns the offset of the BTH of a RoCE frame, or None."""
    at, kind = 12, struct.unpack_from(">H", frame, 12)[0] if len(frame) >= 14 else 0
    while kind == 0x8100 and len(frame) >= at + 6:
        at += 4
        kind = struct.unpack_from(">H", frame, at)[0]
    at += 2
    if kind == 0x8915:
        at += 40
    elif kind in (0x0800, 0x86dd) and len(frame) >= at + 40:
        protocol, size = (frame[at + 9], (frame[at] & 15) * 4) if kind == 0x0800 else (frame[at + 6], 40)
        at += size
        if protocol != 17 or len(frame) < at + 8 or struct.unpack_from(">H", frame, at + 2)[0] != 4791:
            return None
        at += 8
    else:
        return None
    return at if len(frame) >= at + 12 else None


def bth(event):
    """Returns (opcode, destination QP, PSN) of a RoCE frame."""
    at = event.bth
    return event.data[at], int.from_bytes(event.data[at + 5:at + 8], "big"), int.from_bytes(event.data[at + 9:at + 12], "big")


def frame_text(event):
    if event.bth is None:
        return f"Ethernet frame, {event.bytes} bytes"
    opcode, _, psn = bth(event)
    name = "CNP" if opcode == 0x81 else OPERATIONS.get(opcode & 0x1f, f"opcode {opcode:#x}")
    if opcode & 0x1f == 0x11 and len(event.data) > event.bth + 12:
        syndrome = event.data[event.bth + 12]
        name = {1: f"RNR NAK, timer {syndrome & 31}", 3: NAKS.get(syndrome & 31, "NAK")}.get(syndrome >> 5, "ACK")
    return f"{name}, PSN {psn}" + (", retransmitted" if event.retransmitted else "")


def text_of(event, names):
    """Returns the text of an event, at most about 40 characters."""
    values, data = event.values, event.data
    index = f"{values.get('object', '?')}[{values.get('index', '?')}]"
    verb = "write" if event.writes else "read"
    if event.kind == "frame":
        return frame_text(event)
    if event.kind == "interrupt":
        return f"MSI-X, vector {values['vector']}"
    if event.kind == "doorbell":
        offset = values["offset"] % names.constants["DB_PAGE_SIZE"]
        if offset in names.doorbells and len(data) >= 8:
            number, producer = struct.unpack_from("<II", data)
            return f"doorbell: {names.doorbells[offset]} {number & 0xffffff}, index {producer}"
        return f"direct WQE, {event.bytes} bytes"
    if event.kind in ("config", "register"):
        where = names.registers.get(values["offset"], f"{values['offset']:#x}") if event.kind == "register" and values.get("bar") == 0 else \
            f"{'config' if event.kind == 'config' else 'BAR'} {values['offset']:#x}"
        value = f" = {int.from_bytes(data, 'little'):#x}" if 0 < len(data) <= 8 else ""
        return f"{verb} {where}{value}"
    what = {"record": f"doorbell record of queue {values.get('object')}", "cq-record": f"doorbell record of CQ {values.get('object')}",
            "data": f"{event.bytes} bytes of data", "receive-wqe": f"receive WQE {index}", "tag-op": f"tag operation {index}",
            "page-list": f"page list, {event.bytes} bytes", "context": f"context of QP {values.get('object')}",
            "mailbox": f"mailbox, {event.bytes} bytes"}.get(event.kind, f"{event.kind} {index}")
    if event.kind == "wqe":
        what = f"WQE {index}" + (f": {names.of('wqe_opcode', data[0])}" if data else "")
    elif event.kind == "cqe":
        what = f"CQE {index}" + (f": {names.of('wc_status', data[-4])}" if len(data) >= 4 else "")
    elif event.kind == "eqe":
        what = f"EQE {index}"
    elif event.kind == "command":
        what = f"command {names.of('cmd_opcode', int.from_bytes(data[:2], 'little'))}" if not event.writes and len(data) >= 2 else "command status"
    return f"{verb} {what}" + (": Unsupported Request" if event.failed else "")


def match_frames(events, devices):
    """Finds the received frame of each sent frame, and marks lost frames of devices whose peer has a capture, too."""
    waiting, macs = {}, {device.mac for device in devices}
    for event in events:
        if event.kind != "frame" or event.bth is None:
            continue
        key = event.data[:6], event.data[event.bth:]
        if event.sent:
            waiting.setdefault(key, []).append(event)
            event.lost = event.data[:6] in macs and len(devices) > 1
        else:
            other = next((sent for sent in waiting.get(key, ()) if sent.device is not event.device), None)
            if other:
                waiting[key].remove(other)
                other.match, event.match, other.lost = event, other, False


def mark_retransmissions(events):
    """Marks each request whose PSN is not beyond all PSNs of its queue pair and direction so far."""
    highest = {}
    for event in events:
        if event.kind != "frame" or event.bth is None:
            continue
        opcode, target, psn = bth(event)
        response = opcode & 0x1f in RESPONSES
        ours = event.sent != response       # the device is the requester
        queue = event.device, ours, event.get("qp") if event.sent else target
        # A READ request covers the PSNs of its responses, so these count, too. Datagrams are never retransmitted.
        if (response and opcode & 0x1f in (0x11, 0x1f)) or opcode >> 5 == 3 or opcode == 0x81:
            continue
        before = highest.get(queue)
        ahead = before is None or 0 < (psn - before) & 0xffffff < 0x800000
        event.retransmitted = not response and not ahead
        if ahead:
            highest[queue] = psn


def mark_losses(events):
    """Marks the frames that the peer reports as missing: a NAK for a sequence error has the first missing PSN."""
    sent = {}
    for event in events:
        if event.kind != "frame" or event.bth is None:
            continue
        opcode, target, psn = bth(event)
        if event.sent:
            sent[event.device, event.get("qp"), psn] = event
        elif opcode & 0x1f == 0x11 and event.data[event.bth + 12:event.bth + 13] == b"\x60":
            missing = sent.get((event.device, target, psn))
            if missing and not missing.match:
                missing.lost = True


def assign_operations(events):
    """Assigns each event to the send WQE that causes it."""
    by_psn, rung, last = {}, {}, {}
    for event in events:
        device, qp, psn = event.device, event.get("qp"), event.get("psn")
        if event.kind == "doorbell" and len(event.data) >= 4:
            rung.setdefault((device, int.from_bytes(event.data[:3], "little")), []).append(event)
        elif event.kind == "frame" and event.bth is not None:
            opcode, target, psn = bth(event)
            queue = qp if event.sent else target
            # The responses to a READ have the PSNs that follow that of the request.
            earlier = psn - 1 if opcode & 0x1f in (0x0e, 0x0f) else psn
            known = by_psn.get((device, queue, psn)) or by_psn.get((device, queue, earlier))
            if event.sent and qp and event.get("wqe") is not None:
                known = device.name, qp, event.get("wqe")
            elif event.match:
                known = event.match.operation or known
            event.operation = known
            if known:
                by_psn[device, queue, psn] = known
        elif event.kind in ("eqe", "interrupt"):
            event.operation = last.get(device)
        elif qp is not None:
            event.operation = by_psn.get((device, qp, psn)) or by_psn.get((device, qp, None if psn is None else psn - 1))
            if event.get("wqe") is not None:
                event.operation = device.name, qp, event.get("wqe")
            if event.kind in ("record", "wqe") and event.operation:
                for doorbell in rung.pop((device, qp), ()):
                    doorbell.operation = event.operation
        if event.kind == "record" and not event.operation:
            rung.setdefault((device, event.get("object")), []).append(event)
        elif event.kind == "wqe":
            event.operation = event.operation or (device.name, event.get("object"), event.get("index"))
            for early in rung.pop((device, event.get("object")), ()):
                early.operation = event.operation
        elif event.kind == "cqe":
            last[device] = event.operation


def stopped_event(device, stop, number, names):
    """Returns the event of the property "stopped" of a device (chapter Captures, section Slow motion)."""
    kind = stop["kind"]
    values = {key: stop[key] for key in ("object", "index", "qp", "type", "wqe", "psn", "vector", "offset") if key in stop}
    sent = kind != "frame-received" and kind != "doorbell"
    packet = Packet(number, 0, stop["time"], b"", "", sent)
    if kind.startswith("frame-"):
        event = Event(packet, device, "wire" if sent else "peer", "frame", values)
    elif kind in ("doorbell", "interrupt"):
        event = Event(packet, device, kind, kind, values)
    elif kind in USES:
        event = Event(packet, device, USES[kind], kind, values)
    else:
        raise CaptureError(f"the device is of another version: it stops at '{kind}'")
    event.data, event.bytes = bytes.fromhex(stop.get("data", "")), stop.get("length", 0)
    event.address, event.writes, event.failed = stop.get("address", 0), stop.get("write", kind == "doorbell"), stop.get("failed", False)
    event.bth = bth_offset(event.data) if event.kind == "frame" else None
    event.text = text_of(event, names)
    return event


def read(paths, partial=False):
    """Returns the devices of the captures, and all their events in the order of time."""
    devices, names = [], Names()
    for path in paths:
        reader, mine = Reader(path, partial, names.version), []
        for packet in reader.packets():
            pair = packet.interface // 2
            while len(mine) <= pair:
                mine.append(Device("", path))
            link = reader.interfaces[packet.interface][1]
            if link == USER0:
                mine[pair].bus(packet)
            elif link == ETHERNET:
                mine[pair].frame(packet)
        if not any(link == USER0 for _, link, _ in reader.interfaces):
            raise CaptureError(f"{path}: no interface of the bus: make the capture by tools/guest --capture, or the property capture")
        stem = os.path.basename(path).removesuffix(".pcapng")
        for pair, device in enumerate(mine):
            device.name = stem if len(mine) == 1 else f"{reader.interfaces[2 * pair][0].removesuffix('-wire') or stem}-{pair + 1}"
        devices += mine
    events = sorted((event for device in devices for event in device.events), key=lambda event: event.start)
    match_frames(events, devices)
    mark_retransmissions(events)
    mark_losses(events)
    assign_operations(events)
    for event in events:
        event.text = text_of(event, names)
    return devices, events
