# The machine and the observer of the zoo of buggy drivers (labs/zoo). labs/zoo/run and tools/check-labs call run().
# SPDX-License-Identifier: GPL-2.0-or-later
#
# run() starts a device, applies a patch to a copy of the driver, executes the scenario, and returns a Report. Two rules make
# each run the same:
# - The CPU keeps its stores in a buffer until barrier() or the next load. Writes to BARs overtake the buffer.
# - Before the CPU empties the buffer or loads, the device has done all work that it knows of.
# A wait ends in vain when the device is idle: no queue pair in RTS has work. Therefore no verdict depends on time.
"""Runs a driver with one mistake, and reports the findings of the device."""

import importlib.util
import json
import os
import re
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
LABS = Path(__file__).resolve().parent.parent
ZOO = LABS / "zoo"
sys.path.insert(0, str(LABS / "lib"))
import yaml  # noqa: E402
import grade  # noqa: E402
import lab  # noqa: E402
from guestlib import qmp  # noqa: E402
from lab import hw  # noqa: E402

LIMIT = 120                     # seconds for a driver that never ends
NAME = "zoo"                    # id of the device, which its log lines begin with


class Broken(Exception):
    """Reports a problem of the zoo itself: a patch that does not apply, a driver that Python cannot read."""


def catalogue():
    """Returns the list of the buggy drivers: zoo.yaml, which README.md and the test use, too."""
    entries = yaml.safe_load((ZOO / "zoo.yaml").read_text(encoding="utf-8"))
    for entry in entries:
        entry["report"] = [line.strip("`") for line in entry["report"]]
    return entries


def patch_of(entry):
    return ZOO / f"{entry['number']:02}-{entry['name']}.patch"


def table(entries):
    """Returns the table of README.md."""
    rows = ["| No. | Patch | Mistake | Report | Manual | In a capture |", "| --- | --- | --- | --- | --- | --- |"]
    for entry in entries:
        report = "<br>".join(f"`{line}`" for line in entry["report"])
        rule = entry["chapter"] + (f", {entry['requirement']}" if "requirement" in entry else "")
        rows.append(f"| {entry['number']} | [{entry['name']}]({patch_of(entry).name}) | {entry['mistake']} | {report} | {rule} | {entry['capture']} |")
    return "\n".join(rows)


class Cpu(lab.Machine):
    """A machine whose CPU has a store buffer."""

    BASE = lab.driver.GUEST_BASE        # zoo.yaml has addresses

    def __init__(self, bench, qmp_path):
        super().__init__(bench)
        self._qmp, self._stores, self._posted = str(qmp_path), [], False

    # Accesses

    def mem_write(self, address, data):
        self._in_memory(address, len(data))
        self._stores.append((address, bytes(data)))

    def mem_read(self, address, size):
        self.barrier()
        return super().mem_read(address, size)

    def bar_write(self, bar, offset, value, size=4):
        super().bar_write(bar, offset, value, size)
        self._posted = True

    def barrier(self):
        """Makes all earlier stores visible to the device before anything later."""
        if self._posted:
            self.settle()
            self._posted = False
        for address, data in self._stores:
            super().mem_write(address, data)
        self._stores.clear()

    def interrupts(self, vector):
        self.barrier()
        return super().interrupts(vector)

    def connect_interrupts(self, vectors):
        """Connects the vectors with the machine, as the kernel does. The driver writes the MSI-X table."""
        for fd in self._adapter.events:
            os.close(fd)
        self._adapter.events = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(vectors)]
        self._client.set_irqs(lab.vfio_user.MSIX, 0, vectors, fds=self._adapter.events)

    def wait_until(self, condition, text):
        """Calls condition until its result is true, and returns the result. Raises Timeout if the device is idle."""
        end = time.monotonic() + lab.PATIENCE
        while True:
            value = condition()
            if value:
                return value
            idle = self.idle()
            value = condition()         # once more, because the device may have worked since the first call
            if value:
                return value
            if idle or time.monotonic() > end:
                raise lab.Timeout(f"waits in vain for {text}")
            time.sleep(0.001)

    # Observation

    def show(self):
        """Prepares the device for its observer, which needs the registers, also if the driver has switched the BARs off."""
        self.settle()
        command = self._adapter.config(lab.driver.COMMAND, 2)
        if not command & lab.driver.MEMORY_ENABLE:
            self._adapter.set_config(lab.driver.COMMAND, command | lab.driver.MEMORY_ENABLE, 2)

    def property(self, name):
        status, _, text = qmp.execute(self._qmp, {"execute": "qom-get", "arguments": {"path": f"/machine/peripheral/{NAME}", "property": name}}).partition(" ")
        if status != "ok":
            raise lab.Timeout(f"the device does not report its {name}: {text}")
        return json.loads(text)

    def idle(self):
        """Returns true if the device does nothing more unless the driver acts: no timer of a connection runs."""
        self.barrier()
        self.settle()
        return not any(pair["state"] == "RTS" and pair["sq-producer"] != pair["sq-completed"] for pair in self.property("queue-pairs"))


class Report:
    """The findings of a run. Members: lines, all reports; trace, the transactions of the bus, one line each."""

    def __init__(self, cpu, error):
        cpu.show()
        guest = [line.partition(f"qrnic {NAME}: ")[2].strip() for line in cpu.guest_errors() if f"qrnic {NAME}: " in line]
        entries, self.trace = decode(cpu.transactions())
        health = int.from_bytes(cpu._client.read(lab.CONTROL, hw.register["HEALTH"], 4), "little") & 0xff      # pylint: disable=protected-access
        lines = [f"guest error: {line}" for line in guest] + entries
        if error is not None and not lines and not health:
            lines += counted(cpu.property("counters"))
        if health:
            lines.append(f"register HEALTH: {name_of('health', 'HEALTH_', health)}")
        if error is not None:
            lines.append(f"driver: {explain(error)}")
        self.lines = compress(lines)


def explain(error):
    """Returns one line about the exception that ended the scenario."""
    text = str(error)
    if isinstance(error, grade.Late):
        return f"does not end in {LIMIT} s"
    if isinstance(error, (lab.Timeout, lab.Misuse)) or error.__class__.__name__ in ("DriverError", "Wrong"):
        return text
    return f"{error.__class__.__name__}: {text}"


def counted(counters):
    """Returns lines about counters. Only a run without any other report of the device has these lines."""
    lines = [f"counter {name}: {counters[name]}" for name in ("duplicate_requests", "retransmissions", "doorbells_dropped") if counters[name]]
    if counters["interrupts"] < counters["eqes"]:
        lines.append(f"counter interrupts: {counters['interrupts']}, for {counters['eqes']} EQEs")
    return lines


def compress(lines):
    """Joins neighbours that are equal, or that differ in the index of the WQE only: "LINE (3 times)"."""
    found = []
    for line in lines:
        key = re.sub(r"at index \d+", "at index", line)
        if found and found[-1][0] == key:
            found[-1][2] += 1
        else:
            found.append([key, line, 1])
    return [line if count == 1 else f"{line} ({count} times)" for _, line, count in found]


def name_of(enum, prefix, value):
    names = {one["value"]: one["name"] for one in hw.spec.enums[enum]["values"]}
    return prefix + names.get(value, f"{value:#x}")


def event_text(entry):
    kind = name_of("event", "EVENT_", entry["type"])
    if kind == "EVENT_CQ_ERROR":
        detail = ", " + name_of("cq_error", "CQERR_", entry["subtype"])
    elif entry["subtype"]:
        detail = ", " + name_of("wc_status", "WC_", entry["subtype"])
    else:
        detail = ""
    return f"EQE: {kind} of {entry['object']}{detail}"


def wqe_text(data):
    """Returns the main members of a send WQE."""
    control = hw.unpack("sq_ctrl", data[:16])
    return f": opcode {control['opcode']:#x}, segments {control['segments']}, index {control['index']}" + (f", imm {control['imm']:#x}" if control["imm"] else "")


def decode(transactions):
    """Returns the lines about CQEs with errors and about events, and the transactions as text."""
    lines, trace, memory, reads = [], [], {}, []

    def entry_of(one, name):
        """Returns the fields of the entry if this write contains its last word."""
        size = hw.size(name)
        start = one.address // size * size
        raw = memory.setdefault(start, bytearray(size))
        raw[one.address - start:one.address - start + len(one.data)] = one.data
        return hw.unpack(name, bytes(raw)) if one.address + len(one.data) == start + size else None

    offsets = {hw.constant(f"DB_{name}"): name for name in ("SQ", "RQ", "CQ_ARM", "EQ")}
    registers = {offset: name for name, offset in hw.register.items()}
    for one in transactions:
        use, bar = one.keys.get("use"), one.keys.get("bar")
        offset = int(one.keys.get("offset", "0"), 0)
        if one.kind == "write" and bar == str(lab.DOORBELL):
            value = int.from_bytes(one.data[-8:], "little")
            trace.append(f"doorbell {offsets.get(offset, hex(offset))}: {len(one.data)} bytes, number {value & 0xffffff}, index {value >> 32}")
        elif one.kind == "write" and bar == str(lab.CONTROL):
            trace.append(f"register {registers.get(offset, hex(offset))}: write of {int.from_bytes(one.data, 'little'):#x}")
        elif one.kind == "write" and use == "cqe":
            entry = entry_of(one, "cqe")
            if entry:
                receive = "receive" if entry["opcode"] & 0x80 else "send"
                text = f"CQE of QP {entry['qpn']}, {receive}: {name_of('wc_status', 'WC_', entry['status'])}"
                trace.append(f"{text}, index {entry['index']}, phase {entry['phase']}")
                if entry["status"]:
                    lines.append(f"{text}, {name_of('syndrome', 'SYN_', entry['syndrome'])}")
        elif one.kind == "write" and use == "eqe":
            entry = entry_of(one, "eqe")
            if entry:
                trace.append(event_text(entry))
                if entry["type"] not in (1, 2):         # an event of a completion or of a command is no error
                    lines.append(event_text(entry))
        elif one.kind == "config-write":
            trace.append(f"configuration: write of {int.from_bytes(one.data, 'little') >> offset % 4 * 8:#x} at {offset:#x}")
        elif one.kind == "write" and use == "data":
            trace.append("write of data")
        elif "interrupt" in one.keys or one.keys.get("vector"):
            trace.append(f"MSI-X message of vector {one.keys.get('vector')}")
        elif one.kind == "read" and use:
            reads.append((use, one))
        elif one.kind == "completion" and reads:
            use, read = reads.pop()
            if use in ("record", "cq-record"):
                words = [str(word) for word in struct.unpack_from("<II", one.data.ljust(8, b"\0"))][:2 if use == "cq-record" else 1]
                trace.append(f"read of {use} of {read.keys.get('object')}: {', '.join(words)}")
            elif use in ("wqe", "receive-wqe"):
                trace.append(f"read of {use} of {read.keys.get('object')}, index {read.keys.get('index')}" + (wqe_text(one.data) if use == "wqe" else ""))
            elif use == "page-list":
                trace.append("read of page-list: " + ", ".join(f"{address:#x}" for address, in struct.iter_unpack("<Q", one.data[:len(one.data) // 8 * 8])))
            elif use == "data":
                trace.append("read of data")
    return lines, [line for number, line in enumerate(trace) if not line.endswith(" of data") or line != trace[number - 1]]


def program(source, name):
    """Returns the module of a file."""
    spec = importlib.util.spec_from_file_location(name, source)
    module = importlib.util.module_from_spec(spec)
    error = grade.attempt(lambda: spec.loader.exec_module(module), LIMIT)
    if error:
        raise Broken(grade.syntax(error, Path(source)))
    return module


HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


def hunks(text):
    """Yields the hunks of a unified diff of driver.py: (first line, old lines, new lines)."""
    lines = text.splitlines()
    if lines[:2] != ["--- a/driver.py", "+++ b/driver.py"]:
        raise ValueError("the first lines are not those of a diff of driver.py (--- a/driver.py, +++ b/driver.py)")
    found = []
    for number, line in enumerate(lines[2:], 3):
        if match := HUNK.match(line):
            found.append((int(match[1]), [], []))
        elif not found or line[:1] not in (" ", "-", "+"):
            raise ValueError(f"line {number} is not part of a diff")
        else:
            if line[0] != "+":
                found[-1][1].append(line[1:])
            if line[0] != "-":
                found[-1][2].append(line[1:])
    return found


def patched(folder, patch):
    """Copies the driver to a folder, applies the patch exactly, and returns the path of the copy. No other program is necessary."""
    copy = Path(folder) / "driver.py"
    correct = (ZOO / "driver.py").read_text(encoding="utf-8")
    copy.write_text(correct, encoding="utf-8")
    if not patch:
        return copy
    lines, shift = correct.split("\n"), 0
    try:
        for first, old, new in hunks(Path(patch).read_text(encoding="utf-8")):
            places = [place for place in range(len(lines) - len(old) + 1) if lines[place:place + len(old)] == old]
            if not places:
                raise ValueError(f"the lines of the hunk at line {first} are not in driver.py")
            place = min(places, key=lambda one: abs(one - (first - 1 + shift)))         # pylint: disable=cell-var-from-loop  # called at once
            lines[place:place + len(old)] = new
            shift += len(new) - len(old)
    except ValueError as error:         # also of bytes that are no text
        raise Broken(f"{Path(patch).name} does not apply to driver.py: {error}") from None
    copy.write_text("\n".join(lines), encoding="utf-8")
    if "\n".join(lines) == correct:
        raise Broken(f"{Path(patch).name} does not change driver.py")
    return copy


def run(patch=None, driver=None, capture=None):
    """Runs the scenario with driver.py and a patch, or with another driver; returns the Report. The capture is copied to a path."""
    with tempfile.TemporaryDirectory(prefix="qrnic-zoo-") as folder:
        module = program(driver or patched(folder, patch), "driver")
        scenario = program(ZOO / "scenario.py", "scenario")
        bench = lab.Bench("--qmp", f"{folder}/qmp", "--property", f"id={NAME}")
        try:
            cpu = Cpu(bench, f"{folder}/qmp")
            error = grade.attempt(lambda: scenario.run(cpu, module), LIMIT)
            report = Report(cpu, error)
            if capture:
                Path(capture).write_bytes(bench.capture.read_bytes())
            cpu.close()
            return report
        finally:
            bench.close()
