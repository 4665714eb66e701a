"""Runs guests and collects what they measure.

SPDX-License-Identifier: GPL-2.0-or-later
"""

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
# A measurement that takes so much longer than it should is given up.
PATIENCE = 10


def count(plan, rounds):
    """The figures that a run of the plan brings."""
    return rounds * sum(len(measurement.figures) * len(measurement.devices) for _, _, measurement in plan)


def expected_seconds(plan, rounds):
    seconds = rounds * sum(measurement.seconds * len(measurement.devices) for _, _, measurement in plan)
    return seconds + metrics.BOOT_SECONDS * len({scope for scope, _, measurement in plan if measurement.where == "pair"})


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
            self._pairs(plan)
            for scope, mtu, measurement in plan:
                if measurement.where == "boot":
                    self._boots(scope, mtu, measurement)
        except BaseException:
            self.stop()
            raise

    def stop(self):
        """Ends the guests: the launcher takes its QEMUs along."""
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
        """One value; "nan" and 0 are none."""
        self.done += 1
        good = self.values.add(scope, mtu, metric, device, text)
        self.say(f"{self.done}/{self.total}: {scope} MTU {mtu} {device} {metric} {text if good else 'NOT MEASURED'}")

    def guest(self, *options):
        """Runs guests; yields the lines of their output. That they end badly costs the figures that did not come."""
        command = [TOOLS / "guest", "--no-refresh", "--accel", self.accel, *options]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
        self.processes.append(process)
        with process.stdout:
            yield from (line.rstrip("\n") for line in process.stdout)
        if process.wait():
            self.say(f"the guests ended with status {process.returncode} (see above); going on with what is next")
        self.processes.remove(process)

    def _pairs(self, plan):
        """What a job in the guests measures: one boot for each scope."""
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
            for file in JOBS.glob("*"):
                options += ["--file", f"{file}:/etc/qrnic/bench/{file.name}"]
            for line in self.guest(*options, JOBS / "job.sh"):
                if match := LINE.search(line):
                    mtu, device, metric, value = match.groups()
                    self.note(scope, mtu, metric, device, value)
                elif match := NOTE.search(line):
                    self.say(match[1])

    def _boots(self, scope, mtu, measurement):
        job = '[ -n "$RDMA0" ] && ibv_devinfo -d $RDMA0 | grep -q PORT_ACTIVE && echo BOOT $(host_time)'
        for _ in range(self.rounds):
            for kind, device in (("qrnic", "qrnic"), ("rxe", "soft-roce")):
                text = "nan"
                for line in self.guest("--nic", kind, "-c", job):
                    if line.startswith("BOOT "):
                        text = str(int(line.split()[1]) / 1000)
                self.note(scope, mtu, measurement.name, device, text)


def build():
    if subprocess.run([TOOLS / "build-all"], check=False).returncode:
        sys.exit("bench: the build failed (see above)")


def heed_signals():
    """Whatever ends us ends the guests, too."""
    def interrupted(number, _frame):
        raise KeyboardInterrupt(number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)


def accel_default():
    return os.environ.get("QRNIC_ACCEL", "auto")
