"""Tests of tools/bench without guests: it converts the output of programs to figures, a table, JSON, CSV, pictures
and a comparison. Missing results and interruptions must not break it.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Replacement of tools/guest: prints the text that the test has prepared, and ignores its options.
STAND_IN = """#!/bin/sh
echo "$@" >>"$0.arguments"
cat "$0.says"
[ ! -e "$0.endless" ] || { echo $$ >"$0.pid"; exec sleep 100; }
exit "$(cat "$0.status")"
"""
BENCH = """
import sys
from pathlib import Path
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from benchlib import cli, measure
measure.TOOLS = Path(sys.argv[2])
sys.exit(cli.main(sys.argv[3:]))
"""
# The output of two rounds. The rate of Soft-RoCE is missing in both, its latency in one.
SAID = """guest1: something else
guest2: BENCH 1500 qrnic rate 200
guest2: BENCH 1500 qrnic rate 300
guest2: BENCH 1500 soft-roce rate nan
guest2: BENCH 1500 soft-roce rate 0
guest2: BENCH 1500 qrnic write 20
guest2: BENCH 1500 qrnic write 30
guest2: BENCH 1500 soft-roce write 600
guest2: BENCH 1500 soft-roce write 0.0
guest2: BENCH 9000 qrnic rate 250
guest2: BENCH 9000 soft-roce rate 5
guest2: BENCH 9000 qrnic write 25
guest2: BENCH 9000 soft-roce write 400
"""
KEYS = ["scope", "mtu", "metric", "device", "unit", "median", "min", "max"]
PYTHON = "/usr/bin/python3"  # the interpreter of tools/bench, because only it has the modules of Debian
OPTIONS = ["--no-build", "--rounds", "2", "--scope", "cable", "--metric", "rate", "--metric", "write"]


class Tests:
    def __init__(self, root, report):
        self.tools = Path(root) / "tools"
        sys.path.insert(0, str(self.tools))
        self.report = report
        self.scratch = tempfile.TemporaryDirectory(prefix="qb-")
        self.guest = Path(self.scratch.name) / "guest"
        self.guest.write_text(STAND_IN, encoding="ascii")
        self.guest.chmod(0o755)
        self.says(SAID)

    def says(self, text, status=0):
        Path(f"{self.guest}.says").write_text(text, encoding="ascii")
        Path(f"{self.guest}.status").write_text(f"{status}\n", encoding="ascii")

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def command(self, *options):
        return [PYTHON, "-c", BENCH, str(self.tools), self.scratch.name, *options]

    def bench(self, *options):
        return subprocess.run(self.command(*options), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False)

    def result(self, name, conditions, output=""):
        """Reports a test. conditions maps the message of each problem to the condition that must be true."""
        wrong = [text for text, good in conditions.items() if not good]
        self.report.result(not wrong, f"bench: {name}", details=[*wrong, *output.splitlines()[-20:]] if wrong else ())

    def table(self):
        done = self.bench(*OPTIONS)
        lines = done.stdout.splitlines()

        def row(title, at):
            found = [line.split()[len(title.split()):] for line in lines if title in line]
            return found[at] if len(found) > at else []

        latency = "latency of a write, 8 bytes"
        self.result("a table of medians with their noise, ratio and goal", {
            "the rate": row("RDMA write, 8 bytes", 1) == ["thousand/s", "250", "5.00", "50.0x", "50x", "reached"],
            "the latency": row(latency, 0) == ["us", "25.0", "(20.0..30.0)", "600", "24.0x", "20x", "reached"],
            "the goal that is missed": row(latency, 1)[-3:] == ["16.0x", "20x", "missed"],
        }, done.stdout + done.stderr)
        self.result("a missing figure or 0 is shown as such, and the exit status is 3", {
            f"status {done.returncode}": done.returncode == 3,
            "the row": row("RDMA write, 8 bytes", 0) == ["thousand/s", "250", "(200..300)", "-", "-", "50x", "-"],
            "it is not named": "not measured (1):" in lines and "  cable MTU 1500 rate soft-roce" in lines,
            "an exception": "Traceback" not in done.stderr,
        }, done.stdout + done.stderr)
        said = Path(f"{self.guest}.arguments").read_text(encoding="utf-8")
        self.result("the guests receive the requested options", {
            "the networks": "--nic qrnic:link=cable --nic rxe:link=dgram" in said,
            "the metrics": "--env METRICS_1500=rate write --env METRICS_9000=rate write" in said,
            "the rounds": "--env ROUNDS=2" in said}, said)

    def files(self):
        done = self.bench(*OPTIONS, "--json", self.path("a.json"), "--csv", self.path("a.csv"))
        with open(self.path("a.json"), encoding="utf-8") as file:
            run = json.load(file)
        rows = run["figures"]
        with open(self.path("a.csv"), encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        first = {"scope": "cable", "mtu": 1500, "metric": "rate", "device": "qrnic", "unit": "thousand/s",
                 "median": 250.0, "min": 200.0, "max": 300.0}
        self.result("JSON and CSV", {
            f"{len(rows)} objects": len(rows) == 7,
            "the keys": all(list(row) == KEYS for row in rows),
            "the first": rows[:1] == [first],
            "CSV has other figures": lines == [{key: str(value) for key, value in row.items()} for row in rows],
        }, done.stdout + done.stderr)
        ratio = {"scope": "cable", "mtu": 9000, "metric": "rate", "against": "soft-roce", "median": 50.0, "min": 50.0, "max": 50.0}
        noisy = {"scope": "cable", "mtu": 1500, "metric": "write", "against": "soft-roce", "median": 24.0, "min": 20.0, "max": 30.0}
        self.result("JSON has the circumstances, and ratios with their spreads", {
            f"the keys: {list(run)}": list(run) == ["format", "date", "commit", "changed", "machine", "rounds", "versions", "ratios", "figures"],
            "the format": run["format"] == "qrnic-bench-1", "the date": bool(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\+00:00", run["date"])),
            "the commit": run["commit"] is None or bool(re.fullmatch("[0-9a-f]{40}", run["commit"])),
            f"the machine: {run['machine']}": run["machine"]["processors"] >= 1 and bool(run["machine"]["processor"]),
            f"the versions: {run['versions']}": list(run["versions"]) == ["qrnic", "qemu", "linux", "rdma-core"] and
                bool(re.fullmatch(r"\d+\.\d+", run["versions"]["qrnic"])),
            f"the ratios: {run['ratios']}": len(run["ratios"]) == 3 and ratio in run["ratios"] and noisy in run["ratios"]})
        again = self.bench("--read", self.path("a.json"), "--json", self.path("b.json"))
        self.result("--read accepts the output of --json", {
            f"status {again.returncode}": again.returncode == 0,
            "other figures": again.returncode or Path(self.path("a.json")).read_bytes() == Path(self.path("b.json")).read_bytes(),
            "the table": "24.0x" in again.stdout}, again.stdout + again.stderr)

    def by_process(self):
        """Compares a device process with the device inside QEMU, without and with a stock QEMU."""
        stock = Path(self.scratch.name) / "fetch-stock-qemu"
        options = ["--no-build", "--rounds", "1", "--scope", "cable", "--metric", "process"]
        self.says("".join(f"guest2: BENCH 1500 qrnic {name} {value}\n" for name, value in (
            ("bandwidth", 900), ("rate", 80), ("write", 70), ("doorbell-write", 3), ("doorbell-read", 20))))
        stock.write_text("#!/bin/sh\nexit 1\n", encoding="ascii")
        stock.chmod(0o755)
        before = self.bench(*options)
        stock.write_text("#!/bin/sh\n", encoding="ascii")
        done = self.bench(*options)
        said = Path(f"{self.guest}.arguments").read_text(encoding="utf-8")
        self.result("a device process beside the device inside QEMU", {
            f"status {before.returncode} without a stock QEMU": before.returncode == 3 and "no stock QEMU" in before.stderr,
            f"status {done.returncode}": done.returncode == 0,
            "the rows": [line.split()[-2:] for line in done.stdout.splitlines() if "device process:" in line] ==
                        [["0.5x", "reached"]] * 3 + [["3.00", "1.00x"], ["20.0", "1.00x"]],
            "the forms": "--device process --nic qrnic:link=cable" in said and "--device inside --nic qrnic:link=cable" in said,
            "the metrics": "--env METRICS_1500=bandwidth rate write doorbell --file" in said,
        }, before.stderr + done.stdout + done.stderr)
        done = self.bench("--no-build", "--rounds", "1", "--scope", "dgram", "--metric", "vf")
        said = Path(f"{self.guest}.arguments").read_text(encoding="utf-8")
        self.result("a virtual function beside the physical function", {
            f"status {done.returncode}": done.returncode == 0,
            "the rows": [line.split()[-4:] for line in done.stdout.splitlines() if "virtual function:" in line] ==
                        [["900", "PF:", "900", "1.00x"], ["80.0", "PF:", "80.0", "1.00x"], ["70.0", "PF:", "70.0", "1.00x"]],
            "the functions": "--device-prop vfs=1 --env QRNIC_VF=yes --nic qrnic:link=dgram" in said and
                             "--device-prop vfs=1 --nic qrnic:link=dgram" in said,
            "the metrics": "--env METRICS_1500=bandwidth rate write --file" in said,
        }, done.stdout + done.stderr)
        self.says(SAID)

    def write_rows(self, name, *rows):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump([dict(zip(KEYS, row)) for row in rows], file)
        return self.path(name)

    def compared(self):
        old = self.write_rows(
            "old.json", ("cable", 1500, "rate", "qrnic", "thousand/s", 100, 90, 110),
            ("cable", 1500, "write", "qrnic", "us", 30, 29, 31), ("cable", 1500, "send", "qrnic", "us", 30, 29, 31),
            ("cable", 1500, "read", "qrnic", "us", 0, 0, 0), ("cable", 9000, "write", "qrnic", "us", 10, 9, 11),
            ("dgram", 1500, "of-old", "qrnic", "us", 1, 1, 1))
        new = self.write_rows(
            "new.json", ("cable", 1500, "rate", "qrnic", "thousand/s", 120, 109, 130),
            ("cable", 1500, "write", "qrnic", "us", 20, 18, 22), ("cable", 1500, "send", "qrnic", "us", 60, 50, 70),
            ("cable", 1500, "bandwidth", "qrnic", "MiB/s", 1000, 900, 1100))
        done = self.bench("--read", new, "--compare", old)
        rows = {tuple(line.split()[:3]): line.split()[4:] for line in done.stdout.split("beside", 1)[-1].splitlines()}
        self.result("a comparison flags differences beyond the noise of both", {
            "a figure within the noise": rows.get(("cable", "1500", "rate")) ==
                              ["thousand/s", "100", "(90.0..110)", "120", "(109..130)", "1.20x"],
            "a better figure": rows.get(("cable", "1500", "write"), [])[-2:] == ["1.50x", "better"],
            "a worse figure": rows.get(("cable", "1500", "send"), [])[-2:] == ["0.50x", "WORSE"],
            "a new figure": rows.get(("cable", "1500", "bandwidth"), [])[1:3] == ["-", "1000"],
            "a figure that is missing now": rows.get(("cable", "9000", "write"), [])[-2:] == ["-", "-"],
            "a figure that is unknown now": rows.get(("dgram", "1500", "of-old"), [])[-2:] == ["-", "-"],
            "an exception": done.returncode == 0 and "Traceback" not in done.stderr}, done.stdout + done.stderr)
        done = self.bench(*OPTIONS, "--compare", old)
        rows = [line.split()[:4] for line in done.stdout.split("beside", 1)[-1].splitlines()]
        self.result("of an earlier run only the requested metrics are shown", {
            "other metrics": ["cable", "1500", "send", "qrnic"] not in rows and not any(row[:1] == ["dgram"] for row in rows),
            "the requested metrics": ["cable", "9000", "write", "qrnic"] in rows,
            "unnecessary advice": "One round" not in done.stdout}, done.stdout + done.stderr)
        once = self.write_rows("once.json", ("cable", 1500, "rate", "qrnic", "thousand/s", 100, 100, 100))
        done = self.bench("--read", once, "--compare", old)
        self.result("a warning that one round does not show the noise", {"no warning": "One round" in done.stdout}, done.stdout)

    def plotted(self):
        """Plots with matplotlib if it is installed. The program that would install it is replaced by a dummy."""
        deps = Path(self.scratch.name) / "deps"
        points = [("cable", 9000, f"size-bandwidth/{size}", device, "MiB/s", value, value - 1, value + 1)
                  for device, value in (("qrnic", 90), ("soft-roce", 5)) for size in (4096, 8, 512)]
        path = self.write_rows("curve.json", *points, ("cable", 9000, "rate", "qrnic", "thousand/s", 1, 1, 1))
        from benchlib import plots, results  # pylint: disable=import-outside-toplevel
        found = plots.curves(results.read_json(path))
        self.result("the points of a curve", {
            f"{found}": list(found) == [("size-bandwidth", "cable", 9000)] and all(
                [size for size, _ in line] == [8, 512, 4096] for line in found["size-bandwidth", "cable", 9000].values())})
        deps.write_text("#!/bin/sh\necho 'deps: missing: install python3-plots' >&2; exit 1\n", encoding="ascii")
        deps.chmod(0o755)
        done = self.bench("--read", path, "--plots", self.path("plots"))
        self.result("without matplotlib a message names the package", {
            f"status {done.returncode}": done.returncode == 1, "the message": "install python3-plots" in done.stderr,
            "a directory": not os.path.exists(self.path("plots"))}, done.stderr)
        name = "a picture of each curve"
        if subprocess.run([PYTHON, "-c", "import matplotlib"], capture_output=True, check=False).returncode:
            self.report.result(True, f"bench: {name}", " # SKIP no matplotlib here")
            return
        deps.write_text("#!/bin/sh\n", encoding="ascii")
        done = self.bench("--read", path, "--plots", self.path("plots"))
        picture = Path(self.path("plots")) / "size-bandwidth-cable-9000.png"
        self.result(name, {f"status {done.returncode}": done.returncode == 0, "not named": str(picture) in done.stdout,
                           "no PNG": picture.exists() and picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"}, done.stderr)

    def refused(self):
        for name, content in (("empty", ""), ("list", "[1]"), ("object", '[{"scope": "cable"}]'),
                              ("mtu", '[{"scope":"x","mtu":[],"metric":"m","device":"d","unit":"","median":1,"min":1,"max":1}]')):
            Path(self.path(name)).write_text(content, encoding="ascii")
        for name, options, word in (
                ("no file", ["--read", "/nonexistent"], "cannot read"), ("no JSON", ["--read", self.path("empty")], "is no JSON"),
                ("another list", ["--compare", self.path("list"), *OPTIONS], "--json"),
                ("other objects", ["--compare", self.path("object"), *OPTIONS], "has no mtu"),
                ("no MTU", ["--read", self.path("mtu")], "is no MTU"),
                ("no directory", ["--json", "/nonexistent/a", *OPTIONS], "--json /nonexistent/a"),
                ("no round", [*OPTIONS, "--rounds", "0"], "--rounds must be"),
                ("an unknown metric", ["--metric", "beauty"], "beauty"),
                ("a metric of another scope", ["--metric", "boot", "--scope", "cable"], "nothing to measure")):
            done = self.bench(*options)
            said = [line for line in done.stderr.splitlines() if not line.startswith(("usage:", " "))]
            self.result(f"bad input: {name}", {f"status {done.returncode}": done.returncode == 2,
                                               f"'{word}' is not in one line": len(said) == 1 and word in said[0]}, done.stderr)

    def provider(self):
        """Runs a dummy in place of the build, because the real programs verify each call themselves."""
        build = Path(self.scratch.name) / "guest-build-provider"
        build.write_text("#!/bin/sh\necho built with \"$@\"\nexit 5\n", encoding="ascii")
        build.chmod(0o755)
        done = self.bench("--provider")
        refused = self.bench("--provider", *OPTIONS)
        self.result("the cost of the library only", {
            f"status {done.returncode}": done.returncode == 5, "it is not measured": done.stdout == "built with --cost\n",
            "guests are measured, too": refused.returncode == 2 and "--provider" in refused.stderr}, done.stdout + done.stderr)

    def engine(self):
        """Counts of two functions from callgrind's text: calls are left out, names may be compressed."""
        from benchlib import engine
        text = ("fn=(1) send_one\n10 40\ncfn=(2) qrnic_crc.part.0\ncalls=3 20\n11 900\n12 5\n"
                "fn=(2)\n20 300\n+1 600\nfn=(1)\n* 7\n")
        counted = engine.costs(text)
        refused = self.bench("--engine", "--provider")
        self.result("instructions of the engine only", {
            f"counts: {counted}": counted == {"send_one": 52, "qrnic_crc": 900},
            "two kinds of measurement at once": refused.returncode == 2 and "--engine" in refused.stderr}, refused.stderr)

    def bad_guests(self):
        self.says("guest2: BENCH 1500 qrnic rate 200\n", 125)
        done = self.bench(*OPTIONS, "--rounds", "1", "--json", self.path("c.json"))
        self.says(SAID)
        self.result("figures of guests that fail are missing", {
            f"status {done.returncode}": done.returncode == 3,
            "the message": "ended with status 125" in done.stderr,
            "the table": "not measured (7):" in done.stdout,
            "the file": len(json.loads(Path(self.path("c.json")).read_text(encoding="utf-8"))["figures"]) == 1,
            "an exception": "Traceback" not in done.stderr}, done.stdout + done.stderr)

    def interrupted(self):
        """Interrupts the program, also by a signal to this process only, without its guests."""
        endless, pid = Path(f"{self.guest}.endless"), Path(f"{self.guest}.pid")
        endless.touch()
        for number in (signal.SIGINT, signal.SIGTERM):
            pid.unlink(missing_ok=True)
            with subprocess.Popen(self.command(*OPTIONS, "--json", self.path("d.json")), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
                deadline = time.monotonic() + 20
                while not (pid.exists() and pid.read_text(encoding="ascii")) and time.monotonic() < deadline:
                    time.sleep(0.05)
                process.send_signal(number)
                try:
                    out, error = process.communicate(timeout=30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    out, error = process.communicate()
            gone = not os.path.exists(f"/proc/{pid.read_text(encoding='ascii').strip()}")
            self.result(f"{signal.Signals(number).name} ends the guests and shows the figures so far", {
                f"status {process.returncode}": process.returncode == 130,
                "the guests still run": gone, "the table": "250 (200..300)" in out,
                "the file": os.path.exists(self.path("d.json")), "an exception": "Traceback" not in error}, out + error)
        endless.unlink()

    def idle(self):
        """Compares figures of 0, which are valid, but must not be divisors."""
        path = self.write_rows("idle.json", ("within", 1500, "idle", "qrnic", "1/s", 0, 0, 0),
                               ("within", 1500, "idle", "none", "1/s", 0, 0, 0))
        done = self.bench("--read", path, "--compare", path)
        self.result("a figure that may be 0", {
            f"status {done.returncode}": done.returncode == 0,
            "the row": bool(re.search(r"idle guest +1/s +0 +no adapter: 0 +- +\+1 1/s reached", done.stdout)),
            "it is not compared": "within  1500  idle" in done.stdout}, done.stdout + done.stderr)

    def consistent(self):
        """Checks the tables of goals, because a goal for an unknown figure would never be shown."""
        from benchlib import measure, metrics  # pylint: disable=import-outside-toplevel
        figures = metrics.figures()
        lost = [goal for goal in metrics.GOALS if goal.figure not in figures or
                goal.against not in [other or device for device, other, _ in figures[goal.figure].against]]
        nowhere = [goal for goal in metrics.GOALS for scope in goal.scopes if not any(
            scope in one.scopes for one in metrics.MEASUREMENTS if goal.figure in [figure.name for figure in one.figures])]
        job = (self.tools / "benchlib" / "guest" / "job.sh").read_text(encoding="utf-8")
        cases = set(re.findall(r"[a-z0-9-]+", " ".join(re.findall(r"^ {8}([a-z0-9| -]+)\)", job, re.MULTILINE))))
        unknown = [one.name for one in metrics.MEASUREMENTS if one.where == "pair" and one.name not in cases]
        seconds = measure.expected_seconds(metrics.plan(metrics.chosen([], False), metrics.SCOPES), 1)
        self.result("each goal belongs to a figure, each metric to the job, and the default ones take nine minutes", {
            f"goals without a figure: {lost}": not lost, f"goals of no scope: {nowhere}": not nowhere,
            f"unknown to the job: {unknown}": not unknown, f"{seconds:.0f} s": seconds <= 540,
            "a figure twice": len(figures) == sum(len(one.figures) for one in metrics.MEASUREMENTS)})


def run(root, report, stopped):
    """Runs the tests until stopped() is true."""
    tests = Tests(root, report)
    try:
        for group in (tests.table, tests.files, tests.by_process, tests.compared, tests.plotted, tests.refused, tests.provider, tests.engine, tests.bad_guests,
                      tests.interrupted, tests.idle, tests.consistent):
            if not stopped():
                group()
    finally:
        tests.scratch.cleanup()
