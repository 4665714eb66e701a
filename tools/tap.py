# The Test Anything Protocol in both directions: Writer for the checks; Reader, and the class for output around
# failures, for tools/check.
# SPDX-License-Identifier: GPL-2.0-or-later
"""TAP for the check scripts of qrnic."""

import collections
import re
import subprocess
import sys
import time

RESULT = re.compile(r"^(not )?ok\b\s*(\d+)?\s*(?:-\s*)?(.*?)(?:\s*#\s*(SKIP|TODO)\b\s*(.*))?$", re.IGNORECASE)
PLAN = re.compile(r"^1\.\.(\d+)\s*(?:#\s*SKIP\b\s*(.*))?$", re.IGNORECASE)


class Writer:
    """Prints each result at once, and the plan at the end."""

    def __init__(self):
        self.count = 0
        self.failed = 0
        print("TAP version 13", flush=True)

    def result(self, good, name, details=""):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}")
        if not good:
            for line in details.rstrip().splitlines():
                print(f"# {line}")
        sys.stdout.flush()
        return good

    def problems(self, name, problems):
        """Prints a result that fails if there is a problem; the problems explain it."""
        return self.result(not problems, name, "\n".join(problems))

    def skip(self, name, reason):
        self.count += 1
        print(f"ok {self.count} - {name} # SKIP {reason}", flush=True)

    def command(self, name, argv, limit=40, timeout=900, quiet=False, **options):
        """Prints one result of one command; its output explains a failure. With quiet=True any output is a failure,
        too.
        """
        start = time.monotonic()
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=timeout,
                                  stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **options)
            output, good = done.stdout, done.returncode == 0
            if not good and not output.strip():
                output = f"exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            output, good = f"no end after {timeout} s", False
        except OSError as error:
            output, good = str(error), False
        if quiet and output.strip():
            good = False
        lines = output.strip().splitlines()
        if len(lines) > limit:
            lines = lines[:limit] + [f"... {len(lines) - limit} lines more"]
        print(f"# {name}: {time.monotonic() - start:.1f} s")
        return self.result(good, name, "\n".join(lines))

    def finish(self):
        print(f"1..{self.count}", flush=True)
        sys.exit(1 if self.failed else 0)


class Reader:
    """Counts results. Several TAP streams may follow each other; each plan is checked against the number of results.

    A program of GLib prints a plan behind the results of each -p. That plan counts all results so far, and the numbers of
    the results continue behind it.
    """

    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = 0
        self.planned = None
        self.seen = 0
        self.behind = False         # the plan stands behind results
        self.again = None           # the last line is this plan, which repeats the one before

    def end_stream(self):
        if self.planned is not None and self.planned != self.seen:
            self.failed.append(f"{self.seen} results where {self.planned} were planned")
        self.planned = None
        self.seen = 0

    def feed(self, line):
        """Reads a line; returns the name of a test that failed in this line, otherwise None."""
        line = line.rstrip("\n")
        if line.startswith("TAP version"):
            self.end_stream()
            return None
        plan = PLAN.match(line)
        if plan:
            number = int(plan[1])
            self.again = number if self.planned == number else None
            if self.planned is not None and not (self.behind and number == self.seen):
                self.end_stream()
            self.planned, self.behind = number, self.seen > 0
            if plan[2] is not None:
                self.skipped += 1
            return None
        if line.startswith("Bail out!"):
            self.failed.append(line)
            return line
        match = RESULT.match(line)
        if not match:
            return None
        bad, number, name, directive, _ = match.groups()
        if number == "1" and self.seen and self.planned is not None:
            # A repeated plan may also be the plan of a new stream.
            again = self.again
            self.end_stream()
            self.planned = again
        self.again = None
        self.seen += 1
        directive = (directive or "").upper()
        if directive == "SKIP":
            self.skipped += 1
        elif bad and directive != "TODO":
            self.failed.append(name)
            return name
        else:
            self.passed += 1
        return None


class Said:
    """Keeps the output around failures: the last lines before each, and the comments after it."""

    BEFORE, AFTER = 8, 24

    def __init__(self):
        self.of = {}
        self.before = collections.deque(maxlen=self.BEFORE)
        self.after = None

    def feed(self, line, failed):
        """Reads a line; failed is the result of Reader.feed() for the same line."""
        line = line.rstrip("\n")
        if failed is not None:
            self.after = self.of[failed] = list(self.before)
            self.before.clear()
        elif RESULT.match(line):
            self.after = None
            self.before.clear()
        elif self.after is not None and line.startswith("#"):
            if len(self.after) < self.BEFORE + self.AFTER:
                self.after.append(line)
        else:
            self.before.append(line)
