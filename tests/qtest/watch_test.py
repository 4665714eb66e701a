#!/usr/bin/python3
"""Tests of tools/watch: each operation shows all its steps, in order, and on the right side.

Runs what tools/build-qemu --tests=qtest has built; prints TAP.
SPDX-License-Identifier: GPL-2.0-or-later
"""

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import tap  # noqa: E402

STEP = re.compile(r"^ *(\d+)  (sender|receiver) +(\S.*?)  +(\S.*) \[([\w-]+)\.rst\]$")

POST = [("sender", step) for step in ("WQE", "doorbell record", "doorbell", "doorbell record read", "WQE fetch")]
READ = [("sender", "key check"), ("sender", "data read")]
BUFFER = [("receiver", "receive doorbell read"), ("receiver", "receive WQE fetch")]
EVENT = ("CQE", "EQE", "MSI-X", "interrupt", "EQE read", "CQE read")
SENT, RECEIVED = [("sender", step) for step in EVENT], [("receiver", step) for step in EVENT]
OUT, IN = [("sender", "packet out")], [("receiver", "packet in")]
CHECKED = [("receiver", "key check"), ("receiver", "data write")]
ACK = [("receiver", "acknowledgement out"), ("sender", "acknowledgement in")]
# The requester checks the key of the destination when the response arrives, because the key may change until then.
RESPONSE = [("receiver", "response out"), ("sender", "response in"), ("sender", "key check"), ("sender", "data write")]

# The chains of steps of each operation: each chain is in order, and two chains of one may interleave.
OPERATIONS = {
    "send": (POST + READ + OUT + IN + BUFFER + CHECKED + RECEIVED[:3] + ACK + SENT, RECEIVED),
    "write": (POST + READ + OUT + IN + CHECKED + ACK + SENT,),
    "write-imm": (POST + READ + OUT + IN + BUFFER + CHECKED + RECEIVED[:3] + ACK + SENT, RECEIVED),
    "read": (POST + OUT + IN + [("receiver", "key check"), ("receiver", "data read")] + RESPONSE + SENT,),
    "atomic": (POST + OUT + IN + [("receiver", "key check"), ("receiver", "atomic")] + RESPONSE + SENT,),
    "ud-send": (POST + READ + OUT + SENT, OUT + IN + BUFFER + CHECKED + RECEIVED),
}
# Trace events that the raw mode must show
EVENTS = ("qrnic_doorbell ", "qrnic_queue_record ", "qrnic_dma_read ", "qrnic_frame_send ", "qrnic_cq_push ", "qrnic_interrupt ")


def watch(*words):
    return subprocess.run([ROOT / "tools" / "watch", "--no-build", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, check=False)


def missing(chain, steps):
    """Returns the first step of the chain that does not follow its predecessor, or None."""
    rest = iter(steps)
    return next((step for step in chain if step not in rest), None)


def problems_of(operation, length):
    done = watch(operation, "--length", str(length))
    if done.returncode:
        return [f"exit status {done.returncode}", *done.stderr.splitlines()[-3:]]
    # A title and an explanation of the columns come first, the count of trace events last.
    body = done.stdout.splitlines()[3:-2]
    lines = [STEP.match(line) for line in body]
    problems = [f"no step: {line}" for line, match in zip(body, lines) if not match]
    lines = [match for match in lines if match]
    steps = [(match[2], match[3]) for match in lines]
    for chain in OPERATIONS[operation]:
        lost = missing(chain, steps)
        problems += [f"no step '{lost[1]}' of the {lost[0]} in its place"] if lost else []
    times = [int(match[1]) for match in lines]
    problems += ["the times are not in order"] if times != sorted(times) else []
    problems += [f"no chapter {match[5]}" for match in lines if not (ROOT / "spec" / f"{match[5]}.rst").exists()]
    # A packet has the same PSN on both sides, and each side has its own QP.
    for out, into in (("packet out", "packet in"), ("acknowledgement out", "acknowledgement in"), ("response out", "response in")):
        sent, received = ([re.search(r"PSN (\S+?)[,:]? ", match[4] + " ")[1] for match in lines if match[3] == step] for step in (out, into))
        problems += [f"PSNs of '{out}' are {sent}, of '{into}' {received}"] if sent != received else []
    packets = -(-length // 1024) if operation != "read" and operation != "atomic" else 1
    problems += [f"{steps.count(OUT[0])} packets, not {packets}"] if steps.count(OUT[0]) != packets else []
    return problems and problems + done.stdout.splitlines()


def times():
    """The two forms in which versions of QEMU write a trace event"""
    loader = importlib.machinery.SourceFileLoader("watch", str(ROOT / "tools" / "watch"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("watch", loader))
    loader.exec_module(module)
    problems = []
    for text, expected in (("77@1795662099.038685:qrnic_doorbell qrnic: page 1", 1795662099038685),
                           ("2026-11-26T03:01:39.038685Z qrnic_doorbell qrnic: page 1", 1795662099038685),
                           ("2026-11-26T03:01:39.5Z qrnic_doorbell qrnic: page 1", 1795662099500000),
                           ("2026-11-26T03:01:39Z qrnic_doorbell qrnic: page 1", 1795662099000000)):
        line = module.traced(text, "sender")
        if not line or (line.time, line.name, line.text) != (expected, "doorbell", "page 1"):
            problems.append(f"{text}: {vars(line) if line else None}")
    return problems + [text for text in ("qemu-system-x86_64: warning", "2026-11-26T03:01:39Z other_event x") if module.traced(text, "sender")]


def tests():
    yield "trace events of all versions of QEMU are read", times()
    for operation in OPERATIONS:
        yield f"{operation}: every step is shown in order", problems_of(operation, 256)
    yield "send: of a long message every packet is shown", problems_of("send", 2500)
    raw = watch("--raw", "send")
    yield "raw: all trace events of both devices", [f"no {event}" for event in EVENTS for end in (" sender ", " receiver ")
                                                    if not any(event in line and end in line for line in raw.stdout.splitlines())
                                                    and (event, end) != ("qrnic_doorbell ", " receiver ")]
    for words in (["multicast"], ["send", "--length", "0"], ["send", "--length", "65537"], ["ud-send", "--length", "1025"]):
        done = watch(*words)
        good = done.returncode == 2 and "error" in done.stderr and not done.stdout
        yield f"refused: {' '.join(words)}", [] if good else [f"exit status {done.returncode}", done.stderr]


def main():
    writer = tap.Writer()
    for name, problems in tests():
        writer.problems(name, problems)
    writer.finish()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
