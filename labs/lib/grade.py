# Grades a student's program stage by stage. labs/grade is the command.
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The program runs in a child process, because it may hang or end by itself. The child prints the results. The parent waits,
# then ends the child and its device. The functions stage_N(machine, program) of a lab's check.py are the stages. A stage
# fails by an exception: Fail with an explanation, or any exception of the student's program, which is explained here.
"""Stages, their limits and their messages."""

import os
import re
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

sys.dont_write_bytecode = True
LABS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(LABS / "lib"))
import lab  # noqa: E402
from guestlib import host  # noqa: E402  # lab.py adds tools/ to the path

GRACE = 10                      # seconds after the limit of a stage until the parent ends the child
START = 120                     # seconds for the start of the device
PASSED = 10                     # exit status of the child; 0 would also be that of a program that ends itself


class Fail(Exception):
    """Reports a wrong result; the text explains it to the student."""


class Late(BaseException):
    """Interrupts the student's program at the limit. BaseException passes "except Exception"."""


def expect(condition, text):
    if not condition:
        raise Fail(text)


def names():
    return sorted(path.name for path in LABS.glob("[0-9][0-9]-*") if path.is_dir())


def find(word):
    """Returns the folder of the lab that a number or name means."""
    found = [name for name in names() if name == word or (word.isdigit() and int(name[:2]) == int(word))]
    if not found:
        sys.exit(f"grade: no lab {word}: choose from {', '.join(names())}")
    return LABS / found[0]


def program_of(folder):
    """Returns the path of the skeleton, the only program of the folder beside check.py, in Python or C."""
    return next(path for path in sorted(folder.iterdir()) if path.suffix in (".py", ".c") and path.name != "check.py")


def in_guest(folder):
    """Returns true if the program of a lab runs in a guest: check.py then has prepare(), which returns the machine of the stages."""
    return "\ndef prepare(" in (folder / "check.py").read_text(encoding="utf-8")


def builds(folder):
    """Returns the commands that build what a lab needs: the device, the guest, and the simulator for the labs that call simulate()."""
    if in_guest(folder):
        return [[str(LABS.parent / "tools" / name)] for name in ("build-qemu", "guest-image")]
    tool = str(LABS.parent / "tools/build-qemu")
    return [[tool], [tool, "--tests=unit"]] if simulates(folder) else [[tool]]


def simulates(folder):
    return "simulate" in (folder / "check.py").read_text(encoding="utf-8")


def absent(folder):
    """Returns a line for each program that a lab needs and an installed tree lacks."""
    if in_guest(folder):
        return [f"lab {int(folder.name[:2])} compiles a kernel module and boots a guest: use a clone of the repository"]
    place = LABS.parent / "prebuilt/qemu/bin"
    needed = [("qemu-system-x86_64", "qrnic-device")] + ([("qrnic-simulate", "qrnic-qemu")] if simulates(folder) else [])
    return [f"{name} is not installed: install the package {package}" for name, package in needed if not os.access(place / name, os.X_OK)]


def build(folder, name):
    """Builds what a lab needs in a clone. In an installed tree, the packages must have it. The messages begin with the name of the tool."""
    if host.installed():
        for text in absent(folder):
            sys.exit(f"{name}: {text}")
        return
    for command in builds(folder):
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, check=False).returncode:
            sys.exit(f"{name}: the device does not build (see above)")


def count(folder):
    """Returns the number of stages of a lab."""
    return len(re.findall(r"^def stage_", (folder / "check.py").read_text(encoding="utf-8"), re.M))


def add_limits(parser):
    """Adds the options about stages to a parser; check_limits() checks their values."""
    parser.add_argument("--stage", type=int, metavar="N", help="only this stage")
    parser.add_argument("--limit", type=int, default=60, metavar="SECONDS", help="limit of a stage (default 60)")


def check_limits(parser, args, folder):
    if args.limit < 1:
        parser.error("--limit is at least 1")
    if args.stage is not None and not 1 <= args.stage <= count(folder):
        parser.error(f"--stage is from 1 to {count(folder)}")


def place_of(error, path):
    """Returns "line N, function f" of the last line of the student's file in the traceback."""
    last = None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path):
            last = frame
    return f"{path.name}, line {last.lineno}, in {last.name}()" if last else path.name


def explain(error, path, limit):
    """Returns lines for the student about an exception."""
    where = place_of(error, path)
    if isinstance(error, Fail):
        return str(error)
    if isinstance(error, lab.Todo):
        return f"{where}: this part is still open.\nTo do: {error}"
    if isinstance(error, Late):
        return f"{where}: the stage did not end in {limit} s.\nDoes a loop wait for a condition that never holds?"
    if isinstance(error, lab.Timeout):
        return f"{where}: {error}"
    if isinstance(error, lab.Misuse):
        return f"{where}: {error}."
    if isinstance(error, AttributeError) and error.obj.__class__.__name__ == "module" and getattr(error.obj, "__file__", "") == str(path):
        again = f"`git checkout {path.name}` in the folder of the lab replaces it by the skeleton" if LABS in path.parents else \
            "`qrnic lab copy` makes a new folder with the skeleton"
        return f"{path.name} has no function {error.name}(). The skeleton has it. Copy your file first: {again}."
    if isinstance(error, AssertionError) and str(error):
        return f"{where}: {error}"
    if isinstance(error, SystemExit):
        return f"{where}: the program ended itself. A function of a lab returns its result."
    return f"{where}: {type(error).__name__}: {error}"


def syntax(error, path):
    if isinstance(error, SyntaxError):
        text = (error.text or "").strip()
        return f"{path.name}, line {error.lineno}: Python cannot read this line: {error.msg}" + (f"\n    {text}" if text else "")
    if isinstance(error, (UnicodeError, ValueError)):
        return f"{path.name} is not a text file in UTF-8: {error}"
    return f"{place_of(error, path)}: {type(error).__name__}: {error}"


def attempt(call, limit):
    """Calls a function; returns its exception, or None. The alarm interrupts it at the limit."""
    def alarm(*_):
        raise Late()
    signal.signal(signal.SIGALRM, alarm)
    signal.alarm(limit)
    try:
        call()
    except (Exception, Late, SystemExit, GeneratorExit) as error:       # pylint: disable=broad-except  # the student's errors
        return error
    finally:
        signal.alarm(0)
    return None


def show(text):
    for line in text.splitlines():
        print(f"     {line}")
    sys.stdout.flush()


def child(folder, path, limit, stage=None):
    """Runs the stages, or only one; returns the exit status."""
    checks = lab.load(folder / "check.py", "check")
    stages = sorted((name for name in vars(checks) if re.fullmatch(r"stage_\d+", name)), key=lambda name: int(name[6:]))
    held = []
    if in_guest(folder):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # removes the folder of the build
        error = attempt(lambda: held.append(checks.prepare(path, limit + START // 2)), limit + START)
        if error:
            print(f"{path.name} cannot be run")
            show(str(error) if isinstance(error, Fail) else f"{type(error).__name__}: {error}")
            return 1
        return judge(folder, path, stages, checks, limit, lambda: held[0], None, stage)
    error = attempt(lambda: held.append(lab.load(path, "program")), limit)
    if error:
        print(f"{path.name} cannot be loaded")
        show(explain(error, path, limit) if isinstance(error, (Late, lab.Todo, SystemExit)) else syntax(error, path))
        return 1
    lab.PATIENCE = min(lab.PATIENCE, max(1, limit - 1))
    bench = lab.Bench(*getattr(checks, "OPTIONS", ()), mac=getattr(checks, "MAC", lab.MAC))
    try:
        return judge(folder, path, stages, checks, limit, lambda: lab.Machine(bench), held[0], stage)
    finally:
        bench.close()


def judge(folder, path, stages, checks, limit, new_machine, program, stage=None):
    """Runs the stages until one fails, each with a new machine; returns the exit status."""
    for number, name in enumerate(stages, 1):
        if stage not in (None, number):
            continue
        check = getattr(checks, name)
        title = check.__doc__.strip().splitlines()[0].rstrip(".")
        print(f"stage {number} of {len(stages)}: {title} ... ", end="", flush=True)
        machine = new_machine()
        error = attempt(lambda: check(machine, program), limit)         # pylint: disable=cell-var-from-loop  # called at once
        if error is None:
            print("passed", flush=True)
            machine.close()
            continue
        print("FAILED", flush=True)
        show(explain(error, path, limit))
        for line in machine.guest_errors()[-3:]:
            show(f"The device reports: {line.strip()}")
        text = path.parent / "README.md" if LABS not in path.parents else folder / "README.md"
        show(f"Read: {text.relative_to(LABS.parent) if LABS in text.parents else text if text.is_file() else folder / 'README.md'}, step {number}")
        machine.close()
        return 1
    print(f"all {len(stages)} stages passed" if stage is None else f"stage {stage} passed; without --stage all {len(stages)} stages run")
    return PASSED


def run(folder, path, limit, out=sys.stdout, stage=None):
    """Runs the child with limits; returns its exit status. stage is the number of the only stage to run, or None."""
    command = [sys.executable, str(LABS / "grade"), "--child", "--file", str(path), "--limit", str(limit), *(["--stage", str(stage)] if stage else []), folder.name]
    stages = count(folder)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
        os.set_blocking(process.stdout.fileno(), False)
        end, size = time.monotonic() + limit * (stages + 1) + GRACE + START, 0
        quiet = time.monotonic() + limit + GRACE + START
        try:
            while True:
                part = process.stdout.read(65536)
                if part:
                    size += len(part)
                    if size <= 1 << 20:
                        out.write(part.decode("utf-8", "replace"))
                        out.flush()
                    quiet = time.monotonic() + limit + GRACE
                if part == b"" or (part is None and process.poll() is not None):
                    break
                if time.monotonic() > min(end, quiet):
                    out.write(f"\n     {path.name} did not end and ignores the limit of {limit} s; it was ended.\n")
                    break
                time.sleep(0.01)
        finally:
            try:
                if process.poll() is None and in_guest(folder):
                    os.killpg(process.pid, signal.SIGTERM)          # tools/guest ends its guest
                    process.wait(20)
                os.killpg(process.pid, signal.SIGKILL)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        status = process.wait()
    if status not in (PASSED, 1, -signal.SIGKILL):
        out.write(f"\n     {path.name} ended the grader (status {status}). Does it call os._exit() or end processes?\n")
    out.flush()
    return 0 if status == PASSED else 1
