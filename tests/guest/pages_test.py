"""Runs the commands of README.md and docs/use/ that boot guests (tests/pages/run, stage boot).

SPDX-License-Identifier: GPL-2.0-or-later
"""

import os
import signal
import subprocess

SKIP = " # SKIP "


def run(root, report, stopped):
    """Runs the stage in a process of its own, because it needs the Python of the system; passes its results on."""
    with subprocess.Popen([os.path.join(root, "tests", "pages", "run"), "boot"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        good, name, details, seen, planned = None, None, [], 0, None

        def pass_on():
            if name is not None:
                text, skip, reason = name.partition(SKIP)
                report.result(good, text, f"{skip}{reason}", details=details)

        for line in process.stdout:
            if stopped():
                process.send_signal(signal.SIGTERM)
                break
            line = line.rstrip("\n")
            if line.startswith(("ok ", "not ok ")):
                pass_on()
                seen += 1
                good, name, details = line.startswith("ok "), line.split(" - ", 1)[1], []
            elif line.startswith("1.."):
                planned = int(line[3:])
            elif not line.startswith("TAP version"):
                details.append(line.lstrip("# "))
        pass_on()
        status = process.wait()
    if not stopped():
        report.result(planned == seen and seen > 0 and status in (0, 1), "pages: the commands ran to their end",
                      details=[f"exit status {status}, {seen} results, {planned} planned"])
