"""Tests of the labs whose program is a kernel module: topic 85-labs. tools/check-labs --guest makes the tests and prints TAP.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import re
import subprocess

RESULT = re.compile(r"^(not )?ok \d+ - (.*?)(\s+# SKIP.*)?$")


def run(root, report, stopped):
    """Passes the results on until stopped() is true."""
    if stopped():
        return
    done = subprocess.run([str(root / "tools" / "check-labs"), "--guest"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    if stopped():
        return
    result, details, count, planned, failed = None, [], 0, None, 0

    def finish():
        if result:
            report.result(not result[1], result[2], result[3] or "", details if result[1] else ())
    for line in done.stdout.splitlines():
        match = RESULT.match(line)
        if match or line.startswith("1.."):
            finish()
            result, details = match, []
            count, failed = count + bool(match), failed + bool(match and match[1])
            planned = planned if match else int(line[3:])
        else:
            details.append(line.removeprefix("# "))
    report.result(planned == count > 0 and (done.returncode == 0) == (failed == 0), "labs: the tests ran to their end", details=done.stdout.splitlines()[-15:])
