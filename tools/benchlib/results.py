"""The figures of a run: Values collects them; the other functions summarise them, and write and read JSON and CSV.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import collections
import csv
import json
import math
import statistics
from dataclasses import dataclass

from . import metrics

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


def write_json(path, summaries):
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join("  " + json.dumps(row) for row in rows(summaries)) + "\n]\n")


def write_csv(path, summaries):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, KEYS)
        writer.writeheader()
        writer.writerows(rows(summaries))


def read_json(path):
    """Returns the summaries of an earlier run. A value that is 0 or no number counts as missing."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadFile(f"{path} is no JSON: {error}") from None
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
    return summaries
