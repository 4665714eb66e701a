#!/usr/bin/python3
"""Tests of the Wireshark dissector.

Tests that tshark decodes every structure of the contract, follows one message through two captures, and reports packets
that are not of a qrnic.

Packets are synthetic, made from the contract by code of this file; those of the last test come from qrnic-watch, which
tools/build-qemu --tests=qtest has built. Prints TAP.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import yaml

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "contract")]
import layout  # noqa: E402
import tap  # noqa: E402

DEVICE, ROOT_COMPLEX = 0x28, 0
MRD, MWR, CPL, CPLD, CFGRD, CFGWR, FETCH_ADD = 0x00, 0x40, 0x0a, 0x4a, 0x04, 0x44, 0x4c

# Address segment of send WQEs by type of QP, and further segments by operation (chapter "Work queues and WQEs")
ADDRESS = {"RC": [], "UC": [], "UD": ["datagram_seg"], "GSI": ["datagram_seg"], "XRC_INI": ["xrc_seg"], "DC_INI": ["dynamic_seg"],
           "RAW_PACKET": ["eth_seg"]}
OPERATION = {
    "NOP": [], "SEND": [], "SEND_IMM": [], "SEND_INV": [], "RDMA_WRITE": ["remote_seg"], "RDMA_WRITE_IMM": ["remote_seg"],
    "RDMA_READ": ["remote_seg"], "ATOMIC_CMP_SWAP": ["remote_seg", "atomic_seg"], "ATOMIC_FETCH_ADD": ["remote_seg", "atomic_seg"],
    "ATOMIC_WRITE": ["remote_seg", "atomic_seg"], "FLUSH": ["remote_seg", "flush_seg"], "BIND_MW": ["bind_seg"], "LOCAL_INV": [],
    "REG_MR": ["reg_seg"], "REG_INDIRECT": ["indirect_seg"],
}
LOCAL = ("NOP", "BIND_MW", "LOCAL_INV", "REG_MR", "REG_INDIRECT")
# Structures that no access of the bus has by itself
ELSEWHERE = {"bth_marks", "cable_message", "cable_control", "cable_slot", "piece"}
USES = {"queue_record": "record", "cq_record": "cq-record", "eqe": "eqe", "tag_op": "tag-op"}


def block(kind, body):
    length = 12 + len(body)
    return struct.pack("=II", kind, length) + body + struct.pack("=I", length)


def option(code, value):
    return struct.pack("=HH", code, len(value)) + value + bytes(-len(value) % 4)


class Capture:
    """A capture with one bus interface, and the fields that tshark must show for each packet"""

    def __init__(self, seed):
        self.random = random.Random(seed)
        name = option(2, b"nic0-bus") + option(9, b"\x09") + bytes(4)
        interface = block(1, struct.pack("=HHI", 147, 0, 0) + name)
        # The second interface is that of another device, as in a merged file.
        self.blocks = [block(0x0a0d0d0a, struct.pack("=IHHq", 0x1a2b3c4d, 1, 0, -1)), interface, interface]
        self.expected, self.tag = [], 0

    def version(self, text):
        """Gives the interfaces a description with this version."""
        options = option(2, b"nic0-bus") + option(3, f"qrnic hardware interface {text}".encode().ljust(32, b"\0")) + option(9, b"\x09") + bytes(4)
        self.blocks[1:3] = [block(1, struct.pack("=HHI", 147, 0, 0) + options)] * 2

    def packet(self, data, comment, fields=(), captured=None, interface=0):
        data_captured = data[:captured]
        time = len(self.blocks)
        body = struct.pack("=IIIII", interface, time >> 32, time & 0xffffffff, len(data_captured), len(data)) + data_captured + bytes(-len(data_captured) % 4)
        body += (option(1, comment.encode()) if comment else b"") + option(2, struct.pack("=I", 2)) + bytes(4)
        self.blocks.append(block(6, body))
        self.expected.append((comment, list(fields)))

    def header(self, kind, addr, size, requester):
        shift = addr & 3
        words = (shift + size + 3) // 4
        enabled = [4 * (shift <= byte < shift + size) for byte in range(words * 4)]
        first = sum(1 << i for i in range(4) if enabled[i])
        last = sum(1 << i for i in range(4) if enabled[-4:][i]) if words > 1 else 0
        self.tag = (self.tag + 1) & 0xff
        wide = addr >> 32 != 0
        return struct.pack(">BBHHBB", kind | wide * 0x20, 0, words & 0x3ff, requester, self.tag, last << 4 | first) + \
            struct.pack(">Q" if wide else ">I", addr & ~3)

    def write(self, addr, data, comment, fields=(), requester=DEVICE):
        padded = bytes(addr & 3) + data
        self.packet(self.header(MWR, addr, len(data), requester) + padded + bytes(-len(padded) % 4), comment, fields)

    def read(self, addr, data, comment, fields=(), requester=DEVICE, payload=128):
        """A read; the fields belong to its last completion."""
        self.packet(self.header(MRD, addr, len(data), requester), comment)
        tag = self.tag
        while data:
            size = min(len(data), payload - addr % payload)
            padded = bytes(addr & 3) + data[:size]
            head = struct.pack(">BBHHHHBB", CPLD, 0, (len(padded) + 3) // 4, ROOT_COMPLEX if requester == DEVICE else DEVICE,
                               len(data) & 0xfff, requester, tag, addr & 0x7f)
            rest = data[size:]
            self.packet(head + padded + bytes(-len(padded) % 4), comment, () if rest else fields)
            addr, data = addr + size, rest

    def parts(self, addr, data, comment, fields, writes, size=128):
        """A DMA access of several requests; its fields belong to the last one."""
        for at in range(0, len(data), size):
            part = data[at:at + size]
            text = comment + (f" from={at} of={len(data)}" if len(part) < len(data) else "")
            (self.write if writes else self.read)(addr + at, part, text, fields if at + len(part) == len(data) else ())

    def bytes(self):
        return b"".join(self.blocks)


class Contract:
    def __init__(self):
        with open(ROOT / "spec" / "qrnic-hw.yaml", encoding="utf-8") as file:
            self.spec = yaml.safe_load(file)
        self.structs = [one["name"] for one in self.spec["structs"]]
        self.shown = set()

    def enum(self, name):
        return {value["name"]: value["value"] for value in next(one for one in self.spec["enums"] if one["name"] == name)["values"]}

    def flag(self, kind, name):
        return 1 << next(flag["bit"] for flag in next(one for one in self.spec["flags"] if one["name"] == kind)["values"] if flag["name"] == name)

    def commands(self):
        return next(one for one in self.spec["enums"] if one["name"] == "cmd_opcode")["values"]

    def constant(self, name):
        return next(value["value"] for group in self.spec["constants"].values() for value in group["values"] if value["name"] == name)

    def size(self, name):
        return layout.struct_size(self.spec, name)

    def fields(self, name, raw, prefix="", offset=0):
        """Yields the field and the value of each member of a structure."""
        prefix = prefix or f"qrnic.{name}"
        self.shown.add(name)
        for member in layout.members_of(self.spec, name):
            size = layout.member_size(self.spec, member)
            part = raw[offset:offset + size]
            offset += size
            if member["type"] == "struct":
                yield from self.fields(member["struct"], part, f"{prefix}.{member['name']}")
                continue
            if member["name"].startswith("rsvd"):
                continue
            if member["type"] == "bytes":
                yield f"{prefix}.{member['name']}", part.hex()
                continue
            value = int.from_bytes(part, "big" if member["type"].startswith("be") else "little")
            if "fields" not in member:
                yield f"{prefix}.{member['name']}", value
            for field in member.get("fields", ()):
                high, _, low = str(field["bits"]).partition(":")
                low = int(low or high)
                if not field["name"].startswith("rsvd"):
                    yield f"{prefix}.{field['name']}", value >> low & (2 << int(high) - low) - 1


def all_structures(c, contract):
    """Adds packets with every structure that an access of the bus has, with random values in all bits."""
    def raw(name):
        return c.random.randbytes(contract.size(name))

    for name, use in USES.items():
        for addr in (0x10000, 0x7f0000010000):
            data = raw(name)
            (c.write if use == "eqe" else c.read)(addr, data, f"use={use} object=3 index=0 qp=2 type=2", contract.fields(name, data))
    # The control word of a CQE is written by itself. Flags in it, and flags in "tagged", select the layout.
    inline, match = contract.flag("cqe_flag", "INLINE"), contract.flag("cqe_tagged", "MATCH")
    for number, (name, flags, tagged) in enumerate((("cqe", 0, 0), ("cqe_tag", 0, match), ("cqe_inline", inline, match))):
        data = bytearray(raw(name))
        data[51], data[62] = data[51] & ~match | tagged, data[62] & ~inline | flags
        comment = f"use=cqe object=3 index={number} qp=2 type=2"
        c.write(0x18000, bytes(data[:60]), comment)
        c.write(0x1803c, bytes(data[60:]), comment, contract.fields(name, data))
        c.write(0x18000, bytes(data), comment, contract.fields(name, data))
    for name, offset in (("doorbell", contract.constant("DB_SQ")), ("eq_doorbell", contract.constant("DB_EQ"))):
        data = raw(name)
        c.write(0xe0101000 + offset, data, f"bar=2 offset={0x1000 + offset:#x}", [*contract.fields(name, data), ("qrnic.page", 1)], ROOT_COMPLEX)
    for index, command in enumerate(contract.commands()):
        entry = struct.pack("<H", command["value"]) + raw("cmd_entry")[2:]
        c.read(0x20000 + 64 * index, entry, f"use=command object=0 index={index}", contract.fields("cmd_entry", entry))
        for side in ("input", "output"):
            if command.get(side) in contract.structs:
                data = raw(command[side])
                c.parts(0x30000 + 4 * index, data, f"use=mailbox object=0 index={index}", contract.fields(command[side], data),
                        side == "output", size=64 + 4 * (index % 3))


def registers(c, contract):
    for register in contract.spec["registers"]["list"]:
        value, name = c.random.getrandbits(32), register["name"]
        fields = [("qrnic.name", name), (f"qrnic.register.{name.lower()}.value", value)]
        for field in register.get("fields", ()):
            high, _, low = str(field["bits"]).partition(":")
            low = int(low or high)
            if not field["name"].startswith("rsvd"):
                fields.append((f"qrnic.register.{name.lower()}.{field['name']}", value >> low & (2 << int(high) - low) - 1))
        comment = f"bar=0 offset={register['offset']:#x}"
        c.read(0xe0000000 + register["offset"], value.to_bytes(4, "little"), comment, fields, ROOT_COMPLEX)
        c.write(0xe0000000 + register["offset"], value.to_bytes(4, "little"), comment, fields, ROOT_COMPLEX)


def send_wqe(c, contract, opcode, qp_type, inline):
    """Returns the bytes and the fields of a send WQE."""
    segments = ([] if opcode in LOCAL else ADDRESS[qp_type]) + OPERATION[opcode]
    data = [c.random.randbytes(24)] if inline else [c.random.randbytes(16) for _ in range(2)]
    body = [(name, c.random.randbytes(contract.size(name))) for name in segments]
    size = 16 + sum(len(raw) for _, raw in body) + (32 if inline else 32)
    word = contract.enum("wqe_opcode")[opcode] | (size // 16) << 16
    if inline:
        word |= contract.flag("wqe_flag", "INLINE") << 8
    control = struct.pack("<III", word, 7, 0) + struct.pack("<I", 24 if inline else 0)
    fields = list(contract.fields("sq_ctrl", control))
    for name, raw in body:
        fields += contract.fields(name, raw)
    if not inline:
        for raw in data:
            fields += contract.fields("data_seg", raw)
    whole = control + b"".join(raw for _, raw in body) + b"".join(data)
    return whole + bytes(-len(whole) % 64), fields


def wqes(c, contract):
    types = contract.enum("qp_type")
    for qp_type in ADDRESS:
        for opcode in OPERATION:
            inline = opcode in ("SEND", "SEND_IMM", "RDMA_WRITE") and qp_type in ("RC", "UD")
            for form in (False, True) if inline else (False,):
                data, fields = send_wqe(c, contract, opcode, qp_type, form)
                c.read(0x40000, data, f"use=wqe object=5 index=7 qp=5 type={types[qp_type]} wqe=7", [*fields, ("qrnic.operation", "nic0:5:7")])
    two = [send_wqe(c, contract, "RDMA_WRITE", "RC", False) for _ in range(2)]
    c.read(0x40000, two[0][0] + two[1][0], f"use=wqe object=5 index=7 qp=5 type={types['RC']}", two[0][1] + two[1][1])
    # A direct WQE: its blocks come through the window, eight bytes at a time.
    window, page = contract.constant("DB_WINDOW"), 0x3000
    c.read(0x50000, bytes(64), f"use=wqe object=9 index=0 qp=9 type={types['UD']}")
    data, fields = send_wqe(c, contract, "SEND", "UD", False)
    for at in range(0, len(data), 8):
        c.write(0xe0100000 + page + window + at, data[at:at + 8], f"bar=2 offset={page + window + at:#x}", (), ROOT_COMPLEX)
    bell = struct.pack("<II", 9 | len(data) // 64 << 24, 2)
    offset = page + contract.constant("DB_DIRECT")
    c.write(0xe0100000 + offset, bell, f"bar=2 offset={offset:#x}", [*fields, *contract.fields("doorbell", bell)], ROOT_COMPLEX)
    receive = struct.pack("<II", 2, 4) + bytes(8)
    segments = [c.random.randbytes(16) for _ in range(2)]
    fields = list(contract.fields("recv_ctrl", receive)) + [field for raw in segments for field in contract.fields("data_seg", raw)]
    c.read(0x60000, receive + b"".join(segments) + bytes(16), "use=receive-wqe object=5 index=4 qp=5 type=2 psn=9", [*fields, ("qrnic.psn", 9)])


def page_lists(c, _):
    entries = [c.random.getrandbits(64) for _ in range(100)]
    data = b"".join(entry.to_bytes(8, "little") for entry in entries)
    c.parts(0x7f00_0000_0f00, data, "use=page-list object=5 index=0 qp=5 type=2", [("qrnic.page_list.entry", entry) for entry in entries],
            False, size=256)


def others(c, _):
    """Configuration space, interrupts, atomics and failed reads"""
    c.packet(struct.pack(">BBHHBBHH", CFGRD, 0, 1, 0, 1, 0xf, DEVICE, 0), "config offset=0x0", [("qrnic.name", "Vendor ID, Device ID")])
    c.packet(struct.pack(">BBHHBBHH", CFGWR, 0, 1, 0, 1, 0x3, DEVICE, 4) + bytes(4), "config offset=0x4", [("qrnic.name", "Command, Status")])
    c.write(0xfee00000, bytes(4), "interrupt vector=3", [("qrnic.vector", 3)])
    c.packet(c.header(FETCH_ADD, 0x70000, 8, DEVICE) + bytes(8), "use=data qp=5 type=2 psn=1", [("qrnic.tlp", "FetchAdd"), ("qrnic.address", 0x70000)])
    c.packet(c.header(MRD, 0x123456789000, 64, DEVICE), "use=data qp=5 type=2", [("qrnic.address", 0x123456789000), ("qrnic.bytes", 64)])
    c.packet(struct.pack(">BBHHHHBB", CPL, 0, 0, 0, 1 << 13 | 64, DEVICE, c.tag, 0), "use=data qp=5 type=2",
             [("qrnic.completion_status", 1), ("_ws.expert", "The access failed: Unsupported Request")])


def merged(c, contract):
    """Two devices of a merged file read at the same time, with the same requester ID and tag."""
    reads = [(interface, c.random.randbytes(contract.size(name)), name, f"use={USES[name]} object=1 index=0")
             for interface, name in enumerate(("queue_record", "cq_record"))]
    tag = c.tag
    for interface, data, _, comment in reads:
        c.tag = tag
        c.packet(c.header(MRD, 0x5000, len(data), DEVICE), comment, interface=interface)
    for interface, data, name, comment in reads:
        c.packet(struct.pack(">BBHHHHBB", CPLD, 0, len(data) // 4, ROOT_COMPLEX, len(data), DEVICE, c.tag, 0) + data, comment,
                 contract.fields(name, data), interface=interface)


FOREIGN = ("", "hello", "use=new-use object=1", "bar=2", "bar=9 offset=0x0", "bar=0 offset=0xffffffffffffffffffff", "config", "config offset=x",
           "use", "bar=0x offset=1", "interrupt", "bar=1.5 offset=0")
HOSTILE = ("use=wqe type=999", "use=wqe object=-1 index=9999999999 qp=5 type=2", "use=command", "use=mailbox", "use=cqe object=nan",
           "use=page-list from=5", "use=page-list of=1", "use=data from=900 of=3", "bar=0 offset=0x1", "bar=2 offset=0x800", "bar=2 offset=0x40",
           "bar=4 offset=0xffffffffffff", "interrupt vector=x", "config offset=0xffff", "use=receive-wqe", "use=tag-op", "use=eqe", "use=context")


def nonsense(c, _):
    """Packets that are truncated, of another version, or random. A packet with a foreign comment must get an expert item."""
    for comment in FOREIGN:
        padded = c.header(MWR, 0x1000, 64, DEVICE) + bytes(64)
        c.packet(padded, comment, [("_ws.expert", "no comment of a qrnic capture of this version")])
    c.packet(b"\x7f" + bytes(15), "use=data", [("_ws.expert", "shorter than its header states")])
    for length in (0, 1, 11, 12, 15, 16, 40):
        whole = c.header(MWR, 0x123400001000, 64, DEVICE) + bytes(64)
        c.packet(whole, "use=cqe object=1 index=2", [("_ws.expert", "shorter than its header states")], captured=length)
    for _round in range(40):
        for comment in HOSTILE:
            kind = c.random.choice((MRD, MWR, CPL, CPLD, CFGRD, CFGWR, FETCH_ADD, 0x20, 0x60, 0x6c, 0x4e))
            data = bytes([kind]) + c.random.randbytes(c.random.choice((3, 11, 15, 19, 79, 300)))
            c.packet(data, comment, captured=c.random.choice((None, None, len(data) // 2)))


def versions(dissector, folder):
    """A capture of another major version, or of a newer minor version, gets an expert item in each packet."""
    contract, problems = Contract().spec["version"], []
    major, minor = contract["major"], contract["minor"]
    for version, other in ((f"{major}.{minor}", False), (f"{major}.0", False), (f"{major}.{minor + 1}", True), (f"{major + 1}.0", True), ("x", False)):
        capture = Capture(1)
        capture.version(version)
        capture.write(0x1000, bytes(64), "use=data")
        path = folder / "version.pcapng"
        path.write_bytes(capture.bytes())
        shown = tshark(dissector, path, "-T", "fields", "-e", "_ws.expert.message").stdout.strip()
        wanted = f"The capture is of hardware interface {version}, this dissector of {major}.{minor}" if other else ""
        if wanted not in shown or ("hardware interface" in shown) != other:
            problems.append(f"version {version}: '{shown}'")
    return problems


def tshark(dissector, path, *words):
    return subprocess.run(["tshark", "-n", "-X", f"lua_script:{dissector}", "-r", path, *words], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace", timeout=300, check=False)


def same(shown, value):
    """Returns true if this value of PDML is the expected one."""
    if isinstance(value, int):
        return re.fullmatch(r"-?\d+|0x[0-9a-f]+", shown) is not None and int(shown, 0) == value
    return value in (shown, shown.replace(":", ""))


def lua_errors(done):
    return [line.strip()[:200] for line in (done.stdout + done.stderr).splitlines() if "Lua Error" in line or "lua_error" in line][:3]


def problems_of(dissector, folder, capture, *words):
    path = folder / "synthetic.pcapng"
    path.write_bytes(capture.bytes())
    done = tshark(dissector, path, "-T", "pdml", *words)
    if done.returncode:
        return [f"tshark ended with status {done.returncode}", *done.stderr.splitlines()[-4:]]
    problems = lua_errors(done)
    packets = ElementTree.fromstring(done.stdout).findall("packet")
    if len(packets) != len(capture.expected):
        return problems + [f"{len(packets)} packets, not {len(capture.expected)}"]
    for number, (packet, (comment, fields)) in enumerate(zip(packets, capture.expected), 1):
        shown = {}
        for field in packet.iter("field"):
            shown.setdefault(field.get("name"), []).append(field.get("show", "") if field.get("name") != "_ws.expert" else field.get("showname", ""))
        for name, value in fields:
            there = shown.get(name, [])
            good = any(value in text for text in there) if name == "_ws.expert" else any(same(text, value) for text in there)
            if not good:
                problems.append(f"packet {number} ({comment}): {name} is {there[:4]}, not {value}")
    return problems[:12]


def life(dissector, folder):
    """Follows one SEND through the captures of both devices, by one display filter."""
    asked = subprocess.run([ROOT / "tools" / "build-qemu", "--print-build"], stdout=subprocess.PIPE, text=True, check=True)
    build = Path(asked.stdout.strip())
    done = subprocess.run([build / "tests/qtest/qrnic/qrnic-watch", "send", "256", folder], cwd=build, stdin=subprocess.DEVNULL,
                          env={"QTEST_QEMU_BINARY": "./qemu-system-x86_64", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
                          timeout=120, check=False)
    begin = {match[1]: int(match[2]) for match in re.finditer(r" (sender|receiver) begin qp=(\d+) ", done.stdout)}
    if done.returncode or len(begin) != 2:
        return [f"qrnic-watch ended with status {done.returncode}", *done.stderr.splitlines()[-4:]]
    merged = folder / "merged.pcapng"
    joined = subprocess.run(["mergecap", "-I", "none", "-w", merged, folder / "sender.pcapng", folder / "receiver.pcapng"], capture_output=True, text=True,
                            timeout=60, check=False)
    if joined.returncode:
        return [f"mergecap ended with status {joined.returncode}", *joined.stderr.splitlines()[-4:]]
    qpn, psn = begin["sender"], 0x1001
    accept = f"qrnic.doorbell.number == {qpn} || (qrnic.qp == {qpn} && qrnic.wqe == 0) || qrnic.psn == {psn} || infiniband.bth.psn == {psn}"
    fields = ("frame.interface_id", "qrnic.tlp", "qrnic.use", "qrnic.qp", "infiniband.bth.opcode", "frame.packet_flags_direction", "qrnic.page")
    read = tshark(dissector, merged, "-Y", accept, "-T", "fields", *(word for field in fields for word in ("-e", field)))
    lines = [dict(zip(fields, line.split("\t"))) for line in read.stdout.splitlines()]
    story = []
    for line in lines:
        end = "sender" if int(line["frame.interface_id"]) < 2 else "receiver"
        if line["infiniband.bth.opcode"]:
            kind = "ACK" if int(line["infiniband.bth.opcode"], 0) == 0x11 else "SEND"
            story.append((end, f"{kind} {'out' if int(line['frame.packet_flags_direction'] or 0, 0) == 2 else 'in'}"))
        elif line["qrnic.page"]:
            story.append((end, "doorbell"))
        else:
            story.append((end, f"{line['qrnic.tlp']} {line['qrnic.use']}"))
    chains = ([("sender", "doorbell"), ("sender", "MRd wqe"), ("sender", "CplD wqe"), ("sender", "MRd data"), ("sender", "CplD data"),
               ("sender", "SEND out"), ("receiver", "SEND in"), ("receiver", "MWr data"), ("receiver", "MWr cqe")],
              [("receiver", "ACK out"), ("sender", "ACK in"), ("sender", "MWr cqe")])
    problems = lua_errors(read)
    for chain in chains:
        rest = iter(story)
        lost = next((step for step in chain if step not in rest), None)
        problems += [f"no '{lost[1]}' of the {lost[0]} in its place: {story}", read.stderr[-500:]] if lost else []
    return problems


def profile(folder):
    """Reads the merged capture with the profile: each rule is valid, packets have the rule of their kind, and the columns exist."""
    sys.path.insert(0, str(ROOT / "spec" / "lib"))
    import dissector as rules  # pylint: disable=import-outside-toplevel
    made = subprocess.run([ROOT / "spec" / "generate", "--wireshark", folder], capture_output=True, text=True, check=False)
    problems = [made.stderr] if made.returncode else []
    words = ["tshark", "-n", "-C", "qrnic", "-X", f"lua_script:{folder}/qrnic.lua", "-r", folder / "merged.pcapng"]

    def read(*more):
        return subprocess.run([*words, *more], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=120, check=False,
                              env={"PATH": "/usr/bin:/bin", "WIRESHARK_CONFIG_DIR": str(folder)})

    fields = ("frame.coloring_rule.name", "qrnic.use", "qrnic.page", "qrnic.vector", "infiniband.bth.opcode")
    done = read("--color", "-T", "fields", *(word for field in fields for word in ("-e", field)))
    shown = {tuple(line.split("\t")) for line in done.stdout.splitlines()}
    expected = {"wqe": "WQE", "cqe": "CQE or EQE", "data": "data", "command": "command", "record": "doorbell record"}
    for rule, use, page, vector, opcode in shown:
        name = expected.get(use) or (page and "doorbell") or (vector and "interrupt") or (opcode and "RoCE frame")
        problems += [f"{use or name}: rule '{rule}'"] if name and rule != f"qrnic: {name}" else []
    problems += [f"no packet has the rule '{name}'" for name in (*expected.values(), "doorbell", "interrupt", "RoCE frame")
                 if not any(row[0] == f"qrnic: {name}" for row in shown)]
    for name, rule, _, _ in rules.RULES:
        done = read("-Y", rule)
        problems += [f"{name}: {done.stderr.strip()[-200:]}"] if done.returncode else []
    done = read("-Y", 'qrnic.use == "wqe" && qrnic.wqe == 0')
    problems += [] if re.search(r"-bus +qrnic +\d+ +0 .*wqe", done.stdout) else [f"columns: {done.stdout[:300]}"]
    return problems[:12]


TESTS = (("every structure", all_structures), ("every register", registers), ("WQEs of every operation and type of queue pair", wqes),
         ("page lists of several requests", page_lists), ("configuration space, interrupts, atomics and failures", others),
         ("devices of a merged file with the same tags", merged), ("truncated packets, other versions and nonsense", nonsense))


def tests(folder):
    dissector = folder / "qrnic.lua"
    made = subprocess.run([ROOT / "spec" / "generate", "--header", "wireshark"], capture_output=True, text=True, check=True)
    dissector.write_text(made.stdout, encoding="utf-8")
    contract, whole = Contract(), Capture(1)
    for number, (name, make) in enumerate(TESTS):
        capture = Capture(number)
        make(capture, contract)
        make(whole, contract)
        yield f"dissector: {name}", problems_of(dissector, folder, capture)
    unseen = set(contract.structs) - contract.shown - ELSEWHERE
    yield "dissector: the tests cover all structures", [f"no test shows {sorted(unseen)}"] if unseen else []
    yield "dissector: Wireshark's second pass shows the same fields", problems_of(dissector, folder, whole, "-2")
    yield "dissector: captures of other versions", versions(dissector, folder)
    yield "dissector: one filter follows a message through both captures", life(dissector, folder)
    yield "profile: colouring rules and columns", profile(folder)


def main():
    writer = tap.Writer()
    if not shutil.which("tshark") or not shutil.which("mergecap"):
        writer.skip("dissector", "no tshark: tools/deps more")
        writer.finish()
        return
    with tempfile.TemporaryDirectory(prefix="qrnic-capture-") as folder:
        for name, problems in tests(Path(folder)):
            writer.problems(name, problems)
    writer.finish()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
