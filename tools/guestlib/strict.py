"""Adds the checks of --strict to a job's status: reports of the guests' kernels, and guest errors of their qrnics.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import re

from .errors import EXIT_STRICT

# Lines that a kernel prints on its console for a problem. The exceptions of DMA-API are lines of a debugging kernel's
# start.
HEADLINE = re.compile(
    r"WARNING: |BUG: |Oops|KASAN: |KFENCE: |UBSAN: |refcount_t: |possible [a-z -]*deadlock|"
    r"DMA-API: (?!preallocated|debugging|dma_debug|Mapped at)|general protection fault|unable to handle |"
    r"INFO: task .* blocked|detected stall|self-detected stall|soft lockup|NETDEV WATCHDOG|command timed out|Call Trace:|"
    r"probe (with driver|of) \S+ failed with error")
CUT_HERE = "[ cut here ]"
END_TRACE = "---[ end trace"

# The form is "qrnic DEVICE: QUEUE NUMBER: RULE: TEXT" (spec/errors.rst).
GUEST_ERROR = re.compile(r"^qrnic \S+: .*?: ([a-z][a-z-]+): ")

SHOWN = 10

REPORT, ERROR = "kernel report", "guest error"


def kernel_reports(lines, allowed):
    """Returns the first line of each report. All lines between "cut here" and "end trace" are one report."""
    reports = []
    block = None

    def end(text):
        headlines = [line for line in text if HEADLINE.search(line)]
        # An allowed report permits only one warning, so that a second report inside it is not hidden.
        warnings = sum("Call Trace:" not in line and "DMA-API: " not in line for line in headlines)
        if any(re.search(pattern, "\n".join(text)) for pattern in allowed) and warnings <= 1:
            return
        reports.extend(headlines[:1])

    for line in lines:
        line = line.strip()
        if CUT_HERE in line:
            if block:
                end(block)
            block = [line]
        elif block is not None:
            block.append(line)
            if END_TRACE in line:
                end(block)
                block = None
        elif HEADLINE.search(line):
            end([line])
    if block:
        end(block)
    return reports


def guest_errors(lines, allowed):
    """Returns the lines of the device's log that name a broken rule and are not allowed."""
    found = []
    for line in lines:
        match = GUEST_ERROR.match(line)
        if match and match[1] not in allowed and "any" not in allowed:
            found.append(line.strip())
    return found


def qemu_arguments(arguments):
    """Adds guest errors to the user's -d option, because QEMU uses only its last -d."""
    arguments = list(arguments)
    places = [at for at, word in enumerate(arguments[:-1]) if word == "-d"]
    if not places:
        return [*arguments, "-d", "guest_errors"]
    arguments[places[-1] + 1] += ",guest_errors"
    return arguments


def verdict(number, serial_log, device_logs, allowed_reports, allowed_errors):
    """Returns the complaints about one guest, one line each. The devices' logs are those of QEMU and of processes."""
    out = []
    for path, what, find, allowed in ((serial_log, REPORT, kernel_reports, allowed_reports),
                                      *((log, ERROR, guest_errors, allowed_errors) for log in device_logs)):
        try:
            with open(path, encoding="utf-8", errors="replace") as log:
                found = find(log, allowed)
        except OSError as error:
            found = [f"the log cannot be read: {error}"]
        out += [f"guest{number}: {what}: {line[:300]}" for line in found[:SHOWN]]
        if len(found) > SHOWN:
            out.append(f"guest{number}: {what}s: {len(found) - SHOWN} more in {path}")
    return out


def status(job_status, lines):
    """Returns the exit status of a run whose jobs ended with job_status and have these lines of verdict().

    If a signal ended a job and the kernel has a report, the report is the cause, because an oops kills its
    process.
    """
    killed = job_status > 128 and any(f": {REPORT}" in line for line in lines)
    return EXIT_STRICT if lines and (killed or not job_status) else job_status
