# Common parts of the experiments: Run executes guests and simulations, and the other functions make figures and
# pictures.
# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment NAME is tests/experiments/NAME.py, a module with

  ASKS             one line: the question
  WHERE            "guest", "simulation", or "guest and simulation"
  measure(run)     the figures, a list of rows, each a dict with the same keys; run is a Run
  draw(figure, rows)  draws them into a figure of matplotlib
  conclude(rows)   whether what it teaches holds, and one line that says it with figures
  scenarios(short) optional: pairs of a text and a scenario, which measure(run) passes to run.scenarios(); shards run
                   each of them alone

and what that runs: a job for guests beside it, or a program of tests/unit.
"""

import csv
import importlib.util
import io
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import simulatelib
from guestlib import host
from guestlib.errors import LaunchError
from guestlib.host import cache_dir

TOOLS = Path(__file__).resolve().parent
FOLDER = TOOLS.parent / "tests" / "experiments"
MANUAL = TOOLS.parent / "spec"


class Failed(Exception):
    """The experiment did not run to its end; the text has the reason."""


class Experiment:
    def __init__(self, name, module):
        self.name, self.asks, self.where = name, module.ASKS, module.WHERE
        self.measure, self.draw, self.conclude = module.measure, module.draw, module.conclude
        self.scenarios = getattr(module, "scenarios", None)


def names():
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def load(name):
    spec = importlib.util.spec_from_file_location(f"experiment_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Experiment(name, module)


def directory(wanted):
    out = Path(wanted) if wanted else Path(cache_dir()) / "experiments"
    out.mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK):
        raise OSError(f"cannot write to {out}")
    return out


def command(*words):
    if subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode:
        raise OSError(f"{Path(words[0]).name} failed (see above)")


def need(*parts):
    """Ends the program if packages are missing, with a line for each part of tools/deps. Nothing is installed
    without a request.
    """
    if any([subprocess.run([TOOLS / "deps", "--check", part], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
            for part in parts]):
        sys.exit(1)


def build(experiments):
    """Builds the programs that the experiments run, and shows the progress."""
    if host.installed():
        return
    guests = any("guest" in experiment.where for experiment in experiments)
    need("qemu", *(["guest"] if guests else []))
    if guests:
        command(TOOLS / "build-all")
    if any("simulation" in experiment.where for experiment in experiments):
        command(TOOLS / "build-qemu", "--tests=unit")


def value(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


class Run:
    """Executes the parts of one experiment. If short is true, the experiment takes only seconds."""

    def __init__(self, short):
        self.short = short
        self.recorded = None    # the rows of the scenarios that shards have executed
        self.start = time.monotonic()
        self.process = None

    def say(self, text):
        print(f"experiments: {time.monotonic() - self.start:4.0f} s: {text}", file=sys.stderr, flush=True)

    def guest(self, job, *options, **environment):
        """Returns the rows that the job tests/experiments/JOB prints in guest 1; options are those of tools/guest."""
        words = [word for name, content in environment.items() for word in ("--env", f"{name}={content}")]
        return self._rows([TOOLS / "guest", "--no-refresh", "--accel", os.environ.get("QRNIC_ACCEL", "auto"), "--show", "1",
                           *options, *words, FOLDER / job], None)

    def simulation(self, program, *arguments):
        """Returns the rows that a program of tests/unit prints."""
        try:
            path = Path(host.program("unit", f"qrnic-{program}"))
        except LaunchError as error:
            raise Failed(str(error)) from error
        return self._rows([path, *arguments], path.parent)

    def scenario(self, what, scenario):
        """Returns the result of a scenario on the simulated network (tools/simulatelib.py)."""
        self.say(what)
        try:
            return simulatelib.simulate(scenario)
        except (simulatelib.Wrong, simulatelib.Failed) as error:
            raise Failed(f"{what}: {error}") from error

    def scenarios(self, pairs):
        """Returns the results of scenarios(short) of an experiment, in their order."""
        if self.recorded is not None:
            return [simulatelib.Result(rows, 0, 0) for rows in self.recorded]
        return [self.scenario(what, scenario) for what, scenario in pairs]

    def _rows(self, words, place):
        """Runs a program. Lines that begin with "csv " are rows, and the first of them has the names; other lines
        are progress.
        """
        # There is no "with", because its end waits for the process, and a process in a session of its own receives no
        # signal.
        self.process = subprocess.Popen([str(word) for word in words], cwd=place, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        try:
            rows, last = self._read(self.process.stdout)
            status = self.process.wait()
        finally:
            self.stop()
        if status:
            raise Failed(f"{Path(words[0]).name} ended with status {status}: {last[:200]}")
        if not rows:
            raise Failed("no figures came")
        return rows

    def _read(self, lines):
        """Returns the rows, and the last line that is no row."""
        columns, rows, last = None, [], ""
        for line in lines:
            if not line.startswith("csv "):
                last = line.strip() or last
                self.say(line.strip())
                continue
            cells = line[4:].strip().split(",")
            if columns is None:
                columns = cells
            elif len(cells) == len(columns):
                rows.append(dict(zip(columns, map(value, cells))))
            else:
                raise Failed(f"a row with {len(cells)} figures instead of {len(columns)}: {line.strip()}")
        return rows, last

    def stop(self):
        """Ends the running process. A launcher ends its guests."""
        process, self.process = self.process, None
        if not process:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        process.stdout.close()


def in_manual(experiment):
    """Tests that the manual shows the experiment's picture; returns the result, the name of the test, and the error."""
    name = f"experiments/{experiment.name}.svg"
    shown = f".. figure:: {name}" in (MANUAL / "experiments.rst").read_text(encoding="utf-8")
    return (shown and (MANUAL / name).is_file(), f"{experiment.name}: the manual shows it",
            f"chapter Experiments does not show spec/{name}, or it is not there: make experiments OUT=spec/experiments")


def write_csv(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


SVG = "http://www.w3.org/2000/svg"
# Points that a reader cannot distinguish are left out. The font has one name, so that all machines draw the same file.
STYLE = {"svg.hashsalt": "qrnic", "svg.fonttype": "none", "font.size": 9, "font.sans-serif": ["DejaVu Sans"], "axes.grid": True,
         "grid.alpha": 0.3, "path.simplify_threshold": 0.5}


def write_svg(path, experiment, rows):
    """Draws the picture of an experiment. Equal rows always make an equal file."""
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("svg")  # draws to files without a display
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    matplotlib.rcParams.update(STYLE)
    figure = pyplot.figure(figsize=(9, 4.5), layout="constrained")
    experiment.draw(figure, rows)
    picture = io.StringIO()
    figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    pyplot.close(figure)
    path.write_text(reduced(picture.getvalue()), encoding="utf-8")


def reduced(text):
    """Returns a picture of matplotlib without the names of its groups, with one decimal, and with one part of a
    diagram in each line.
    """
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(text)
    parts = [*root, *(part for group in root.iter(f"{{{SVG}}}g") if group.get("id", "").startswith("axes_") for part in group)]
    for element in root.iter():
        element.text, element.tail = (element.text or "").strip(), "\n" if element in parts else ""
        for name in {"d", "x", "y", "transform"} & set(element.attrib):
            value = " ".join(element.get(name).split())
            element.set(name, re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), value))
    without_names(root, parts)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def without_names(element, parts):
    """Replaces each group below the element that has only a name by its children. parts stay groups, without names."""
    for child in list(element):
        without_names(child, parts)
        if child.tag == f"{{{SVG}}}g":
            child.attrib.pop("id", None)
            if not child.attrib and child not in parts:
                place = list(element).index(child)
                element[place:place + 1] = list(child)


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
