"""The figures of a run: Values collects them; the other functions summarise them, and write and read JSON and CSV.

A JSON file is an object: FORMAT, the keys of about(), the ratios, and the figures. A list of figures alone, which earlier
versions wrote, is read, too.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import collections
import csv
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from guestlib import host
from guestlib.errors import LaunchError

from . import metrics

ROOT = Path(__file__).resolve().parents[2]
FORMAT = "qrnic-bench-1"
KEYS = ("scope", "mtu", "metric", "device", "unit", "median", "min", "max")


class BadFile(Exception):
    """A file is no result of this tool."""


@dataclass(frozen=True)
class Summary:
    median: float
    min: float
    max: float

    def overlaps(self, other):
        return self.min <= other.max and other.min <= self.max


class Values:
    """The values of all rounds. "nan" and 0 count as missing, because a program that measured nothing prints them."""

    def __init__(self):
        self._values = collections.defaultdict(list)

    def add(self, scope, mtu, metric, device, text):
        """Adds a value; returns true if it is a figure."""
        try:
            value = float(text)
        except ValueError:
            return False
        figure = metrics.figures().get(metric)
        if not math.isfinite(value) or value < 0 or value == 0 and not (figure and figure.may_be_zero):
            return False
        self._values[scope, int(mtu), metric, device].append(value)
        return True

    def summaries(self):
        return {key: Summary(statistics.median(values), min(values), max(values)) for key, values in self._values.items()}


def missing(summaries, plan):
    """Returns the keys of the plan that the run has no figure for."""
    wanted = [(scope, mtu, figure.name, device) for scope, mtu, measurement in plan
              for figure in measurement.figures for device in measurement.devices]
    return [key for key in wanted if key not in summaries]


def rows(summaries):
    known = metrics.figures()
    return [dict(zip(KEYS, (*key, known[key[2]].unit if key[2] in known else "", *(float(f"{value:.6g}") for value in
                                                                                  (summary.median, summary.min, summary.max)))))
            for key, summary in summaries.items()]


def ratio_of(ours, theirs, smaller):
    """Returns how much better our figure is: median, and the least and the most that the rounds of both permit. Returns
    None if a figure is missing or 0.
    """
    if ours is None or theirs is None or min(ours.min, theirs.min) <= 0:
        return None
    if smaller:
        ours, theirs = theirs, ours
    return Summary(ours.median / theirs.median, ours.min / theirs.max, ours.max / theirs.min)


def ratios(summaries):
    """Returns the ratios of a run, with their spreads, as rows of the JSON file."""
    found = []
    for (scope, mtu, metric, device), summary in summaries.items():
        figure = metrics.figures().get(metric)
        for against, other, _ in figure.against if figure and device == metrics.OURS else ():
            ratio = ratio_of(summary, summaries.get((scope, mtu, other or metric, against)), figure.smaller)
            if ratio:
                found.append({"scope": scope, "mtu": mtu, "metric": metric, "against": other or against,
                              **{name: float(f"{getattr(ratio, name):.6g}") for name in ("median", "min", "max")}})
    return found


def output_of(*words):
    """Returns the output of a program, or None if the program fails or is absent."""
    try:
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, errors="replace", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def text_matching(pattern, path):
    """Returns the first group of the first match in a file, or None."""
    try:
        match = re.search(pattern, Path(path).read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return match and match[1].strip()


def versions():
    """Returns the versions of the programs that were measured. A version that cannot be found is None."""
    contract = text_matching(r"^version: *(\{.*\})", ROOT / "spec" / "qrnic-hw.yaml")
    try:
        qemu = re.search(r"version (\S+)", output_of(host.find_qemu(), "--version") or "")
    except LaunchError:
        qemu = None
    root = output_of(ROOT / "tools" / "guest-root", "--print", "run")
    return {"qrnic": contract and ".".join(re.findall(r"\d+", contract)), "qemu": qemu and qemu[1],
            "linux": output_of(ROOT / "tools" / "guest-root", "--print", "kernel"),
            "rdma-core": root and text_matching(r"^Package: libibverbs1\n(?:.+\n)*?Version: (.*)$",
                                                Path(root) / "var/lib/dpkg/status")}


def about(accel, rounds):
    """Returns the circumstances of a run. The commit is None outside of a checkout; changed is true if files differ from
    the commit.
    """
    git = ("git", "-C", ROOT)
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": output_of(*git, "rev-parse", "HEAD"), "changed": bool(output_of(*git, "status", "--porcelain", "-uno")),
            "machine": {"processor": text_matching(r"^model name\s*: (.*)$", "/proc/cpuinfo") or platform.machine(),
                        "processors": len(os.sched_getaffinity(0)), "kernel": platform.release(), "accel": accel},
            "rounds": rounds, "versions": versions()}


def write_json(path, summaries, circumstances):
    def lines(listed):
        return "[\n" + ",\n".join("  " + json.dumps(row) for row in listed) + "\n]"

    head = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in {"format": FORMAT, **circumstances}.items())
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + head + ' "ratios": ' + lines(ratios(summaries)) + ',\n "figures": ' + lines(rows(summaries)) + "\n}\n")


def write_csv(path, summaries):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, KEYS)
        writer.writeheader()
        writer.writerows(rows(summaries))


def read_json(path):
    """Returns the summaries of an earlier run. A value that is 0 or no number counts as missing."""
    return read_run(path)[0]


def read_run(path):
    """Returns the summaries and the circumstances of an earlier run."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadFile(f"{path} is no JSON: {error}") from None
    circumstances = {}
    if isinstance(content, dict) and content.get("format") == FORMAT:
        circumstances = {key: content[key] for key in content if key not in ("format", "ratios", "figures")}
        content = content.get("figures")
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise BadFile(f"{path} is no list of objects: it is not from tools/bench --json")
    known = metrics.figures()
    summaries = {}
    for row in content:
        lacking = [key for key in KEYS if key not in row]
        if lacking:
            raise BadFile(f"{path}: an object has no {lacking[0]}: it is not from tools/bench --json")
        numbers = [row[key] for key in ("median", "min", "max")]
        if not all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers):
            continue
        if numbers[0] <= 0 and not (row["metric"] in known and known[row["metric"]].may_be_zero):
            continue
        try:
            summaries[str(row["scope"]), int(row["mtu"]), str(row["metric"]), str(row["device"])] = Summary(*numbers)
        except (TypeError, ValueError):
            raise BadFile(f"{path}: {row['mtu']!r} is no MTU") from None
    return summaries, circumstances
