# The stages of lab 14. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
#
# prepare() builds the module against the guest's kernel, and boots one guest, in which the file job loads and removes the
# module twice. The stages then check the log of the kernel, the resources of the driver, and the bus transactions.
"""The stages of lab 14: a driver in a guest."""

import errno
import io
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from grade import Fail, expect
from lab import ROOT, capture_reader, hw, transactions_of
from guestlib import strict         # lab.py adds tools/ to the path

HERE = Path(__file__).resolve().parent
TOOLS = ROOT / "tools"
PATIENCE = 20                   # seconds that loading may last; the loops of the skeleton end after 5
MARK = 0x1ab00000               # values that the job writes at the begin of a phase
LINES = 12                      # of the compiler's messages
FLOOD = 32 << 20                # size of a capture that only a driver without end makes; a correct one has 100 KiB
CONTROL, STATUS, DOORBELL = (hw.register[name] for name in ("CONTROL", "STATUS", "CMD_DOORBELL"))
RESET, ENABLE = hw.field("CONTROL", "RESET"), hw.field("CONTROL", "CMD_ENABLE")
NAMES = {value: name for name, value in hw.opcode.items()}


class Phase:
    """The results of one insmod or rmmod: status, driver, lines of log, memory and interrupt, and transactions."""

    def __init__(self):
        self.status, self.said, self.driver, self.trace = "none", "", "", []
        self.log, self.memory, self.interrupt = [], [], []

    def writes(self, bar, offset):
        """Returns [(place in the trace, value)] of writes to a register."""
        return [(at, int.from_bytes(one.data, "little")) for at, one in enumerate(self.trace)
                if one.kind == "write" and one.keys.get("bar") == str(bar) and int(one.keys["offset"], 0) == offset]

    def reads(self, bar, offset):
        return [at for at, one in enumerate(self.trace) if one.kind == "read" and one.keys.get("bar") == str(bar) and int(one.keys["offset"], 0) == offset]

    def config(self, offset):
        """Returns [(place in the trace, value)] of writes to configuration space."""
        return [(at, int.from_bytes(one.data, "little")) for at, one in enumerate(self.trace) if one.kind == "config-write" and int(one.keys.get("offset", "-1"), 0) == offset]

    def commands(self):
        """Returns (place, entry as the device read it, status) of each command; the status is None if the device did not complete it."""
        found = []
        for at, one in enumerate(self.trace):
            if one.kind != "completion" or one.keys.get("use") != "command":
                continue
            ends = [later for later in self.trace[at:] if later.kind == "write" and later.keys.get("use") == "command"
                    and later.keys.get("index") == one.keys.get("index") and len(later.data) == 4]
            found.append((at, hw.unpack("cmd_entry", one.data), ends[0].data[0] if ends else None))
        return found


def told(one):
    """Returns a few words about a transaction."""
    where = f"BAR {one.keys['bar']} offset {one.keys['offset']}" if "bar" in one.keys else "interrupt" if "interrupt" in one.keys else one.keys.get("use", "configuration space")
    return f"{one.kind} ({where})"


class Run:
    """The results of a module: its phases, reports of the kernel, and guest errors of the device."""

    def __init__(self, name, source, reports, errors):
        self.name, self.source, self.reports, self.errors, self.phases = name, source, reports, errors, {}

    def __getitem__(self, name):
        return self.phases.setdefault(name, Phase())

    def close(self):
        """Does nothing: the guest has ended."""

    def guest_errors(self):
        return self.errors

    def step(self, name, phase="load1"):
        """Returns the result of a step that the driver printed, or None."""
        for line in self[phase].log:
            match = re.search(rf"{self.name} \S+: {name}: (-?\d+)$", line)
            if match:
                return int(match[1])
        return None

    def open_part(self, function):
        """Fails with the comment "To do" of a function or table of the source, if there is one."""
        start = re.search(rf"^static [\w ]+{function}[\[(].*?^}}", self.source, re.M | re.S)
        comment = start and re.search(r"/\*\s*To do: (.*?)\*/", start[0], re.S)
        if comment:
            line = self.source.count("\n", 0, start.start() + comment.start()) + 1
            text = re.sub(r"\s*\n\s*\*?\s*", " ", comment[1]).strip()
            raise Fail(f"{self.name}.c, line {line}, in {function}: this part is still open.\nTo do: {text}")

    def crashed(self, phase):
        """Fails if a phase did not end, or the kernel stopped it."""
        place = self[phase]
        where = "insmod" if phase.startswith("load") else "rmmod"
        last = [line for line in place.log if re.search(rf"{self.name} \S+: ", line)]
        after = f"The last line of the driver is: {last[-1]}" if last else "The driver printed no line."
        expect(place.status != "flood", f"The driver floods the bus during {where}, so the grader stopped the guest. The last transactions: "
               + ", ".join(told(one) for one in place.trace[-6:]) + ". An EQ doorbell with an old number of consumed events causes an interrupt at once.")
        expect(place.status != "hang", f"{where} did not end in {PATIENCE} s. Does a loop wait for a condition that never holds? {after}")
        if place.status.isdigit() and int(place.status) >= 128:
            found = [line for line in place.log if strict.HEADLINE.search(line) or "RIP: " in line]
            raise Fail(f"The kernel stopped {where}, because the driver used a wrong address or lock:\n" + "\n".join(found[:3]) + f"\n{after}")


def build(place, sources):
    """Builds the modules {name: path}; returns the folder."""
    root = Path(subprocess.run([TOOLS / "guest-root", "--print", "build"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
    kernel = subprocess.run([TOOLS / "guest-root", "--print", "kernel"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    (root / "work").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="lab14-", dir=root / "work"))
    place.append(folder)
    shutil.copy(ROOT / "guest-kmod/include/qrnic_hw.h", folder)
    for name, path in sources.items():
        shutil.copy(path, folder / f"{name}.c")
    (folder / "Kbuild").write_text("".join(f"obj-m += {name}.o\n" for name in sources), encoding="ascii")
    done = subprocess.run([TOOLS / "guest-root", "--enter", "make", "-j2", "-C", f"/lib/modules/{kernel}/build", f"M=/work/{folder.name}", "W=1",
                           f"KCFLAGS=-Werror -I/work/{folder.name}", "modules"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    missing = [name for name in sources if not (folder / f"{name}.ko").is_file()]
    if done.returncode or missing:
        lines = [line.replace(f"/work/{folder.name}/", "") for line in done.stdout.splitlines()]
        wrong = [line for line in lines if re.search(r"error|warning|undefined|^ERROR", line) and not line.startswith("make")]
        raise Fail("The compiler rejects the driver; warnings are errors, as in the kernel:\n" + "\n".join((wrong or lines)[:LINES]))
    return folder


def parse(text, raw):
    """Returns {module: {phase: Phase}} of the job's output and the capture."""
    found, phase, number, numbers = {}, None, 0, {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "phase":
            module, name, number = rest.split()
            phase = found.setdefault(module, {}).setdefault(name, Phase())
            numbers[int(number)] = phase
        elif phase and word == "status":
            phase.status, _, phase.said = rest.partition(" ")
        elif phase and word == "driver":
            phase.driver = rest
        elif phase and word in ("log", "memory", "interrupt"):
            getattr(phase, word).append(rest)
    current = None
    for one in transactions_of(capture_reader("the capture"), io.BytesIO(raw)) if raw else ():
        value = int.from_bytes(one.data[:4], "little")
        if one.kind == "config-write" and int(one.keys.get("offset", "-1"), 0) == 0 and value & 0xffff0000 == MARK:
            current = numbers.get(value & 0xffff)
        elif current:
            current.trace.append(one)
    return found


def boot(sources, patience=PATIENCE, limit=300):
    """Builds the modules {name: path}, and runs them in one guest. Returns {name: Run}."""
    place = []
    with tempfile.TemporaryDirectory(prefix="qrnic-lab-") as folder:
        try:
            built = build(place, sources)
            ids = f"{hw.constant('PCI_VENDOR_ID'):04x}:{hw.constant('PCI_DEVICE_ID'):04x}"
            words = [TOOLS / "guest", "--strict", "--no-driver", "--no-rdma", "--no-dmesg", "--no-refresh", "--append", "modprobe.blacklist=qrnic,qrnic_ib", "--cpus", "2", "--capture", folder,
                     "--logs", f"{folder}/logs", "--timeout", str(limit), "--boot-timeout", str(limit), "--env", f"MODULES={' '.join(sources)}", "--env", f"DEVICE={ids}",
                     "--env", f"PATIENCE={patience}"]
            for name in sources:
                words += ["--file", f"{built / name}.ko:/root/{name}.ko"]
            capture, said, flood = Path(folder) / "guest1-nic0.pcapng", Path(folder) / "said", False
            with open(said, "wb") as out, subprocess.Popen([str(word) for word in [*words, HERE / "job"]], stdin=subprocess.DEVNULL, stdout=out, stderr=out) as guest:
                while guest.poll() is None:
                    time.sleep(0.1)
                    if not flood and capture.is_file() and capture.stat().st_size > FLOOD:
                        flood = True
                        guest.terminate()
        finally:
            for one in place:
                shutil.rmtree(one, ignore_errors=True)
        raw = b""
        if capture.is_file():
            with open(capture, "rb") as file:
                raw = file.read(FLOOD // 16 if flood else FLOOD)
        text = said.read_text(encoding="utf-8", errors="replace")
        found = parse(text, raw)
        expect(found, f"The guest did not run (status {guest.returncode}):\n" + "\n".join(text.strip().splitlines()[-LINES:]))
        if flood:
            list(list(found.values())[-1].values())[-1].status = "flood"
        serial, errors = Path(folder) / "logs/guest1.serial.log", Path(folder) / "logs/guest1.qemu.log"
        # The kernel reports a probe that returned an error; the stage of the step explains it.
        reports = strict.kernel_reports(serial.read_text(encoding="utf-8", errors="replace").splitlines(), ["probe with driver .* failed"])
        broken = strict.guest_errors(errors.read_text(encoding="utf-8", errors="replace").splitlines(), [])
        runs = {}
        for name, path in sources.items():
            runs[name] = Run(name, Path(path).read_text(encoding="utf-8", errors="replace"), reports, broken)
            runs[name].phases = found.get(name, {})
        return runs


def prepare(path, limit):
    """Builds and runs the student's driver; returns its Run."""
    return boot({path.stem: path}, limit=limit)[path.stem]


def need(run, name, function=None):
    """Fails unless the step returned 0."""
    value = run.step(name)
    if value is None:
        run.crashed("load1")
    expect(value is not None, f"The driver printed no result of {name}(). probe() of the skeleton prints a line for each step.")
    for one in (name, function) if value == -errno.EOPNOTSUPP else ():
        if one:
            run.open_part(one)
    return value


def succeed(value, name, text=""):
    word = errno.errorcode.get(-value, str(value))
    expect(value == 0, f"{name}() returned {value} (-{word}) in place of 0. {text}".rstrip())


def stage_1(run, _):
    """The driver binds to the adapter."""
    load = run["load1"]
    if run.step("map_bars") is None:
        run.crashed("load1")
        expect(load.status == "0", f"insmod fails (status {load.status}): {load.said} " + " ".join(load.log[-3:]))
        run.open_part("ids")
        raise Fail("The module is loaded, but the kernel did not call probe(). The table ids must have vendor and device of the adapter: "
                   "PCI_DEVICE(QRNIC_PCI_VENDOR_ID, QRNIC_PCI_DEVICE_ID).")


def stage_2(run, _):
    """The BARs are mapped."""
    value, load = need(run, "map_bars"), run["load1"]
    succeed(value, "map_bars", "ID did not read as ID_MAGIC. Which BAR has the registers?" if value == -errno.ENODEV else "")
    expect(load.reads(0, hw.register["ID"]), "map_bars() does not read the register ID at offset 0 of BAR 0. Compare it with QRNIC_ID_MAGIC, because a device that does not decode "
                                             "addresses reads as all ones.")
    expect(load.driver != run.name or load.memory, f"/proc/iomem has no region of {run.name}. Reserve the BARs for the driver, so that no other driver maps them: "
                                                             "pci_request_mem_regions().")


def stage_3(run, _):
    """The device is reset."""
    value, load = need(run, "reset"), run["load1"]
    controls, reads = load.writes(0, CONTROL), load.reads(0, STATUS)
    expect(controls and controls[0][1] == RESET, "The first write to CONTROL (offset 0xc of BAR 0) is not RESET: until the reset the device may work in memory of an earlier driver.")
    expect(any(at > controls[0][0] for at in reads), "reset() does not read STATUS behind the write of RESET. A write is posted; poll STATUS until READY is 1.")
    succeed(value, "reset", "Does the loop poll READY in STATUS (offset 0x8)?")
    masters = [at for at, word in load.config(4) if word & 4]
    expect(masters, "Bus mastering stays off, so the device cannot read a command. Call pci_set_master() at the end of reset().")
    expect(masters[0] > min(at for at in reads if at > controls[0][0]), "Bus mastering is on before READY was read. A device that is not reset yet could access memory of an earlier driver.")


def stage_4(run, _):
    """The command ring is ready."""
    value, load = need(run, "start_commands"), run["load1"]
    enables = [at for at, word in load.writes(0, CONTROL) if word & ENABLE]
    for name in ("CMD_BASE_LO", "CMD_BASE_HI", "CMD_SIZE"):
        found = load.writes(0, hw.register[name])
        expect(found, f"start_commands() does not write {name} (offset {hw.register[name]:#x} of BAR 0).")
        expect(enables and found[0][0] < enables[0], f"start_commands() writes CMD_ENABLE to CONTROL before {name}, or not at all. The device reads the place of the ring when it is enabled.")
    low, size = load.writes(0, hw.register["CMD_BASE_LO"])[0][1], load.writes(0, hw.register["CMD_SIZE"])[0][1]
    expect(low % 64 == 0, f"CMD_BASE_LO is {low:#x}, and not a multiple of 64. Write the address of dma_alloc_coherent() for the device, not the pointer.")
    expect(size == 3, f"CMD_SIZE is {size}, not 3: it is the log2 of the number of entries (RING_LOG).")
    succeed(value, "start_commands")


def stage_5(run, _):
    """A command returns the limits of the device."""
    value, load = need(run, "query_device", "command"), run["load1"]
    bells, commands = load.writes(0, DOORBELL), load.commands()
    expect(bells, "command() does not write CMD_DOORBELL (offset 0x2c of BAR 0).")
    expect(commands, f"The driver wrote CMD_DOORBELL = {bells[0][1]}, and the device read no entry. The doorbell is the number of commands issued so far: 1 for the first one.")
    entry, status = commands[0][1:]
    expect(entry["owner"] == 1, f"The device read an entry whose owner bit is 0 (opcode {entry['opcode']:#x}). Write the complete entry, with QRNIC_CMD_ENTRY_OWNER_MASK, before the doorbell.")
    expect(entry["opcode"] == hw.opcode["QUERY_DEVICE"], f"The first command has opcode {entry['opcode']:#x} ({NAMES.get(entry['opcode'], 'unknown')}), not QUERY_DEVICE. "
                                                         "Members of the entry are little endian: cpu_to_le16().")
    expect(status == 0, f"QUERY_DEVICE fails with {hw.status.get(status, 'no status')}. Compare out_addr ({entry['out_addr']:#x}) and out_len ({entry['out_len']}) with the chapter Commands.")
    succeed(value, "query_device", "The command itself succeeded, so command() read its result in a wrong way: poll the owner bit until it is 0; then bits 7:0 of control are the status.")
    output = b"".join(one.data for one in load.trace if one.kind == "write" and one.keys.get("use") == "mailbox" and one.keys.get("index") == "0")
    want = hw.unpack("device_attr", output)
    printed = [re.search(r"limits: (\d+) queue pairs, (\d+) CQs", line) for line in load.log]
    printed = [(int(match[1]), int(match[2])) for match in printed if match]
    expect(printed, "query_device() printed no line with the limits.")
    expect(printed[0] == (want["max_qp"], want["max_cq"]), f"query_device() printed {printed[0][0]} queue pairs and {printed[0][1]} CQs, but the device returned {want['max_qp']} and {want['max_cq']}. "
                                                           "The output is in the mailbox behind the input, and its members are little endian.")


def stage_6(run, _):
    """The event queue is armed."""
    value, load = need(run, "create_eq"), run["load1"]
    created = [(entry, status) for _, entry, status in load.commands() if entry["opcode"] == hw.opcode["CREATE_EQ"]]
    expect(created, "create_eq() did not execute the command CREATE_EQ.")
    expect(created[0][1] == 0, f"CREATE_EQ fails with {hw.status.get(created[0][1], 'no status')}. Fill a struct qrnic_eq_ctx in the mailbox: type QRNIC_EQ_ASYNC, log_size, vector 0, "
                               "and the address of the ring in ring.root. in_len is its size.")
    bells = load.writes(hw.constant("BAR_DOORBELL"), hw.constant("DB_EQ"))
    expect(bells, "create_eq() does not write the doorbell of the EQ (offset 0x20 of BAR 2). An EQ sends an interrupt only if it is armed.")
    expect(bells[0][1] >> 31 & 1 and bells[0][1] >> 32 == 0, f"The first doorbell of the EQ is {bells[0][1]:#x}: bits 7:0 are the number of the EQ, bit 31 arms, and bits 63:32 are the number of "
                                                             "consumed events, 0. Write it by one writeq().")
    succeed(value, "create_eq")
    later = run.step("run_nop") == 0
    expect(load.interrupt or not later, "/proc/interrupts has no line of the driver. Call pci_alloc_irq_vectors() with PCI_IRQ_MSIX, and request_irq().")


def stage_7(run, _):
    """A command ends with an interrupt."""
    value, load = need(run, "run_nop", "interrupt"), run["load1"]
    issued = [entry for _, entry, _ in load.commands() if entry["opcode"] == hw.opcode["NOP"]]
    events = [one for one in load.trace if one.kind == "write" and one.keys.get("use") == "eqe" and len(one.data) == 4]
    expect(issued, "run_nop() did not execute the command NOP.")
    expect(issued[0]["event"] == 1, "The entry of NOP does not request an event: set QRNIC_CMD_ENTRY_EVENT_MASK in control.")
    expect(events, "The device wrote no event.")
    bells = load.writes(hw.constant("BAR_DOORBELL"), hw.constant("DB_EQ"))
    sent = [one for one in load.trace if "interrupt" in one.keys]
    expect(sent, "The device wrote an event, but sent no interrupt. Is MSI-X enabled, and was the EQ armed?")
    if value == -errno.ETIMEDOUT:
        run.open_part("interrupt")
        raise Fail("The device wrote the event and sent the interrupt, but the handler did not complete the wait. An event is new if its phase is 1 in pass 0 through the ring, 0 in pass 1, and so on. "
                   "A command has the type QRNIC_EVENT_COMMAND in bits 7:0 of control.")
    succeed(value, "run_nop")
    counts = [int(match[1]) for match in (re.search(r"(\d+) events$", line) for line in load.log) if match]
    expect(counts == [1], f"The driver counted {counts[0] if counts else 'no'} events in place of 1.")
    expect(len(bells) >= 2 and bells[-1][1] >> 31 & 1 and bells[-1][1] >> 32 == 1, f"The handler must arm the EQ again: the last doorbell is {bells[-1][1]:#x}, and not the number of the EQ with "
           "bit 31 and 1 in bits 63:32. Without it the next event sends no interrupt.")
    expect(not run.errors, "The device reports a broken rule.")


def stage_8(run, _):
    """The driver is removed, and loaded again."""
    for function in ("destroy_eq", "stop_commands", "stop", "unmap_bars"):
        run.open_part(function)
    for phase in ("unload1", "load2", "unload2"):
        run.crashed(phase)
        place = run[phase]
        expect(place.status == "0", f"{'rmmod' if phase[0] == 'u' else 'The second insmod'} fails (status {place.status}): {place.said} " + " ".join(place.log[-3:]))
        if phase == "load2":
            failed = [line for line in place.log if re.search(rf"{run.name} \S+: \w+: -\d+$", line)]
            expect(not failed, f"The driver works once only: {failed[0] if failed else ''}. Each function undoes its step completely. -16 (-EBUSY) of map_bars() means that the BARs are "
                               "still reserved: pci_release_mem_regions().")
            continue
        stops = [word for _, word in place.writes(0, CONTROL)]
        expect(stops and not stops[-1] & ENABLE, "The device still runs behind rmmod: write CONTROL = 0 or RESET, because the memory of its rings is released.")
        masters = place.config(4)
        expect(masters and not masters[-1][1] & 4, "Bus mastering is still on behind rmmod: pci_clear_master() or pci_disable_device().")
    expect(not run.reports, "The kernel reports: " + "; ".join(run.reports[:3]))
    expect(not run.errors, "The device reports a broken rule.")


