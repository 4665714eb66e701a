"""Counts the instructions that the engine executes for each message.

A message travels between two engines on a simulated wire (tests/unit/message-cost.c). Callgrind counts the
instructions of each function. Every run of the same binary has the same count, so that two commits can be compared
on a busy machine.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import measure

# Each kind runs twice with different numbers of messages, because the difference does not include the setup.
FEW = 500
PER_RUN = {"write-64k": 200, "selective-64k": 200}
PER_RUN_DEFAULT = 2000
# The objects of the engine and of the packet formats, in QEMU's build directory
OBJECTS = "hw/rdma/qrnic/libqrnic-engine.a.p"
FUNCTION = re.compile(r"^(c?)fn=\((\d+)\)\s*(.*)$")
COST = re.compile(r"^[+\-*\d]\S*\s+(\d+)$")


class NotCounted(Exception):
    """A run failed, or its output has no counts."""


def build_dir():
    done = subprocess.run([measure.TOOLS / "build-qemu", "--print-build"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


def functions_of(folder):
    """The names of all functions that are defined in the objects of a folder."""
    done = subprocess.run(["nm", "--defined-only", *sorted(folder.glob("*.o"))], stdout=subprocess.PIPE, text=True, check=True)
    return {base_name(words[2]) for words in map(str.split, done.stdout.splitlines()) if len(words) == 3 and words[1] in "tT"}


def base_name(function):
    """The function's name without the suffixes of GCC's clones and of callgrind's recursion levels."""
    return re.split(r"[.'@]", function, maxsplit=1)[0]


def costs(text):
    """Returns the instructions of each function itself, from the text of a callgrind file."""
    names, found, current, skip = {}, {}, None, False
    for line in text.splitlines():
        match = FUNCTION.match(line)
        if match:
            callee, number, name = match.groups()
            if name:
                names[number] = name
            if not callee:
                current = base_name(names[number])
        elif line.startswith("calls="):
            # The next line is the cost of the called function, and is skipped because the lines of that function
            # contain it.
            skip = True
        elif current is not None and COST.match(line):
            if not skip:
                found[current] = found.get(current, 0) + int(COST.match(line)[1])
            skip = False
    return found


def run(program, kind, messages):
    with tempfile.TemporaryDirectory(prefix="qrnic-callgrind-") as scratch:
        out = Path(scratch) / "out"
        done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(program), kind, str(messages)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", check=False)
        if done.returncode or not out.exists():
            raise NotCounted(f"{program.name} {kind}: {(done.stdout.strip().splitlines() or ['no output'])[-1]}")
        return costs(out.read_text(encoding="utf-8", errors="replace"))


def count(program, engine, kind):
    """Returns a dictionary from function to instructions per message, for the functions of the engine."""
    more = PER_RUN.get(kind, PER_RUN_DEFAULT)
    before, after = run(program, kind, FEW), run(program, kind, FEW + more)
    return {name: (after[name] - before.get(name, 0)) / more for name in after if name in engine}


def kinds_of(program):
    done = subprocess.run([program], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    return done.stderr.splitlines()[1:]


def main(top=0):
    """Prints one line for each kind of message; with top, also its most expensive functions."""
    measure.need("engine")
    if subprocess.run([measure.TOOLS / "build-qemu", "--tests=unit"], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode:
        return 1
    build = build_dir()
    program = build / "tests/unit/qrnic/qrnic-message-cost"
    engine = functions_of(build / OBJECTS)
    print("instructions of both engines for each message", flush=True)
    with ThreadPoolExecutor(2) as pool:
        kinds = kinds_of(program)
        try:
            for kind, found in zip(kinds, pool.map(lambda kind: count(program, engine, kind), kinds)):
                print(f"{kind:16} {sum(found.values()):10.0f}", flush=True)
                for name, cost in sorted(found.items(), key=lambda item: -item[1])[:top]:
                    print(f"    {cost:10.0f}  {name}")
        except NotCounted as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    return 0
