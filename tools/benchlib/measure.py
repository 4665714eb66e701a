"""Runs guests and collects their figures. cli.main() makes one Bench and calls its run() with a plan of metrics.plan().

SPDX-License-Identifier: GPL-2.0-or-later
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import metrics

TOOLS = Path(__file__).resolve().parent.parent
JOBS = Path(__file__).resolve().parent / "guest"
LINE = re.compile(r"BENCH (\d+) (\S+) (\S+) (\S+)$")
NOTE = re.compile(r"NOTE (.*)$")
# A measurement is ended after this multiple of its expected time.
PATIENCE = 10


def count(plan, rounds):
    """Returns the number of figures that a run of the plan produces."""
    return rounds * sum(len(measurement.figures) * len(measurement.devices) for _, _, measurement in plan)


def expected_seconds(plan, rounds):
    seconds = rounds * sum(measurement.seconds * len(measurement.devices) for _, _, measurement in plan)
    return seconds + metrics.BOOT_SECONDS * len({scope for scope, _, measurement in plan if measurement.where == "pair"})


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"


class Bench:
    """One run: its options, the values so far, and the guests that run."""

    def __init__(self, rounds, accel, values, say):
        self.rounds, self.accel, self.values, self.say = rounds, accel, values, say
        self.processes = []
        self.done = self.total = 0
        self.start = time.monotonic()
        self.expected = 0.0

    def run(self, plan):
        self.total, self.expected = count(plan, self.rounds), expected_seconds(plan, self.rounds)
        try:
            for scope, mtu, measurement in plan:
                if measurement.where == "host":
                    self._memcpy(scope, mtu)
            self._pairs(plan)
            ways = {"boot": self._boots, "process": self._process, "vf": self._forms, "idle": self._idle, "total": self._total}
            for scope, mtu, measurement in plan:
                if measurement.where in ways:
                    ways[measurement.where](scope, mtu, measurement)
        except BaseException:
            self.stop()
            raise

    def stop(self):
        """Ends the guests. The launcher ends its QEMUs."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
        self.processes = []

    def note(self, scope, mtu, metric, device, text):
        """Stores one value; "nan" and 0 count as missing."""
        self.done += 1
        good = self.values.add(scope, mtu, metric, device, text)
        left = self.expected - (time.monotonic() - self.start)
        self.say(f"{self.done}/{self.total}: {scope} MTU {mtu} {device} {metric} {text if good else 'NOT MEASURED'}" +
                 (f" (about {minutes(left)} left)" if self.done % 10 == 0 and left > 30 else ""))

    def launch(self, *options):
        command = [TOOLS / "guest", "--no-refresh", "--accel", self.accel, *options]
        self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                               errors="replace"))
        return self.processes[-1]

    def lines(self, process):
        """Reads the guests' output. If the guests fail, only the figures that did not come are missing."""
        with process.stdout:
            for line in process.stdout:
                if match := NOTE.search(line.rstrip("\n")):
                    self.say(match[1])
                else:
                    yield line.rstrip("\n")
        if process.wait():
            self.say(f"the guests ended with status {process.returncode} (see above); the next measurements follow")
        self.processes.remove(process)

    def guest(self, *options):
        yield from self.lines(self.launch(*options))

    def _pairs(self, plan):
        """Runs the measurements that are jobs in guests, with one boot for each scope."""
        for scope in metrics.SCOPES:
            steps = [(mtu, measurement) for at, mtu, measurement in plan if at == scope and measurement.where == "pair"]
            if not steps:
                continue
            _, ours, theirs, guests = metrics.SCOPES[scope]
            seconds = sum(measurement.seconds * len(measurement.devices) for _, measurement in steps)
            options = ["--nic", f"qrnic{ours}", "--nic", f"rxe{theirs}", "--mtu", "9000", *guests,
                       "--memory", str(max(measurement.memory for _, measurement in steps)),
                       "--timeout", str(120 + PATIENCE * self.rounds * seconds), "--env", f"ROUNDS={self.rounds}"]
            for mtu in metrics.BOTH:
                names = [measurement.name for at, measurement in steps if at == mtu]
                options += ["--env", f"METRICS_{mtu}={' '.join(names)}"]
            for line in self.guest(*options, *job_files(), JOBS / "job.sh"):
                if match := LINE.search(line):
                    mtu, device, metric, value = match.groups()
                    self.note(scope, mtu, metric, device, value)

    def _process(self, scope, mtu, measurement):
        """Measures a device process with a stock QEMU, and the device inside QEMU."""
        if subprocess.run([TOOLS / "fetch-stock-qemu"], stdin=subprocess.DEVNULL, stdout=2, check=False).returncode:
            self.say("there is no stock QEMU (see above), so a device process is not measured")
            return
        self._forms(scope, mtu, measurement)

    def _forms(self, scope, mtu, measurement):
        """Measures forms of the adapter in guests of their own, one after the other in each round."""
        _, ours, _, guests = metrics.SCOPES[scope]
        forms, names, provided = metrics.FORMS[measurement.name]
        for _ in range(self.rounds):
            for device, options in forms:
                values = {}
                for line in self.guest(*options, "--nic", f"qrnic{ours}", "--mtu", "9000", *guests, "--timeout",
                                       str(120 + PATIENCE * measurement.seconds), "--env", "ROUNDS=1", "--env", "DEVICES=qrnic",
                                       "--env", f"METRICS_{mtu}={names}", *job_files(), JOBS / "job.sh"):
                    if match := LINE.search(line):
                        values[match[3]] = match[4]
                for figure in measurement.figures:
                    self.note(scope, mtu, figure.name, device, values.get(provided[figure.name], "nan"))

    def _memcpy(self, scope, mtu):
        """Measures libc's memcpy in one thread, between two areas that are in no cache."""
        size = 256 << 20
        areas = [ctypes.create_string_buffer(size) for _ in range(2)]
        for area in areas:
            ctypes.memset(area, 1, size)
        for _ in range(self.rounds):
            start = time.perf_counter()
            ctypes.memmove(*areas, size)
            self.note(scope, mtu, "memcpy", "host", str(round((size >> 20) / (time.perf_counter() - start))))

    def _idle(self, scope, mtu, measurement):
        """Counts how often the threads of QEMU sleep and wake while its guest is idle."""
        job = "sleep 3; echo IDLE; sleep 12"
        for _ in range(self.rounds):
            for device, options in (("qrnic", ("--nic", "qrnic")), ("soft-roce", ("--nic", "rxe")), ("none", ("--no-nic",))):
                text = "nan"
                for line in self.guest(*options, "-c", job):
                    if line == "IDLE":
                        text = wake_ups(self.processes[-1].pid, 10)
                self.note(scope, mtu, measurement.name, device, text)

    def _total(self, scope, mtu, measurement):
        """Measures pairs of guests that write at the same time; the figure is the sum of their rates."""
        _, ours, theirs, _ = metrics.SCOPES[scope]
        for _ in range(self.rounds):
            for device, nic in (("qrnic", f"qrnic{ours}"), ("soft-roce", f"rxe{theirs}")):
                for figure in measurement.figures:
                    pairs = int(figure.name.rpartition("/")[2]) // 2
                    start = int(time.time()) + 8 + 6 * pairs
                    running = [self.launch("--guests", "2", "--nic", nic, "--mtu", str(mtu), "--env", f"START={start}",
                                           JOBS / "total.sh") for _ in range(pairs)]
                    speeds = [float(line.split()[-1]) for process in running for line in self.lines(process) if "TOTAL " in line]
                    self.note(scope, mtu, figure.name, device, str(sum(speeds)) if len(speeds) == pairs else "nan")

    def _boots(self, scope, mtu, measurement):
        usable = '[ -n "$RDMA0" ] && ibv_devinfo -d $RDMA0 | grep -q PORT_ACTIVE && echo BOOT $(host_time)'
        # All three run the same programs and modules, so that the difference is the cost of the adapter.
        nothing = "modprobe -a ib_uverbs rdma_ucm; ibv_devinfo >/dev/null 2>&1; echo BOOT $(host_time)"
        for _ in range(self.rounds):
            for device, options in (("qrnic", ("--nic", "qrnic", "-c", usable)), ("soft-roce", ("--nic", "rxe", "-c", usable)),
                                    ("none", ("--no-nic", "-c", nothing))):
                text = "nan"
                for line in self.guest(*options):
                    if line.startswith("BOOT "):
                        text = str(int(line.split()[1]) / 1000)
                self.note(scope, mtu, measurement.name, device, text)


def job_files():
    """Returns the options that copy the files of the job into the guests."""
    return [word for file in sorted(JOBS.glob("*")) for word in ("--file", f"{file}:/etc/qrnic/bench/{file.name}")]


def switches(pid):
    """Returns how often the threads of a launcher's QEMUs have slept voluntarily."""
    total = 0
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        try:
            if int((task / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1]) == pid:
                total += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.MULTILINE)[1])
        except OSError:
            continue  # the thread has ended
    return total


def wake_ups(pid, seconds):
    """Returns the wake-ups per second, measured over some seconds."""
    before, start = switches(pid), time.monotonic()
    time.sleep(seconds)
    return f"{(switches(pid) - before) / (time.monotonic() - start):.2f}"


def build():
    if subprocess.run([TOOLS / "build-all"], check=False).returncode:
        sys.exit("bench: the build failed (see above)")


def need(part):
    """Ends the program if packages of this part of tools/deps are missing. tools/deps names the packages."""
    if subprocess.run([TOOLS / "deps", "--check", part], check=False).returncode:
        sys.exit(1)


def heed_signals():
    """Turns signals into KeyboardInterrupt, so that the guests are ended, too."""
    def interrupted(number, _frame):
        raise KeyboardInterrupt(number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)


def accel_default():
    """Returns the default of --accel. The caller validates it, because a parser does not check a default."""
    return os.environ.get("QRNIC_ACCEL", "auto")
