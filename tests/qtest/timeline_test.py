#!/usr/bin/python3
"""Tests of tools/timeline, tools/step and tools/capture-charts, with captures of qtests and of qrnic-watch.

Runs what tools/build-qemu --tests=qtest has built; prints TAP.
SPDX-License-Identifier: GPL-2.0-or-later
"""

import fcntl
import json
import os
import pty
import random
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import capturelib  # noqa: E402
import tap  # noqa: E402
from guestlib import qmp  # noqa: E402

# Charts, with the number of lost frames and of retransmissions
CHARTS = {"rc-send": (0, 0), "rdma-read": (0, 0), "lost-packet": (1, 2), "lost-response": (0, 1), "rnr": (0, 2), "arming-race": (0, 0)}
# Lanes of a chart in which nothing happens: the responder of "rnr" creates no event
EMPTY = {"rnr": {"interrupt"}}
# Texts of a chart in their order, if it does not have those of a send
ORDER = {"rnr": ("SEND Only, PSN 10", "read doorbell record", "RNR NAK, timer 12, PSN 10", "SEND Only, PSN 11", "doorbell: RQ", "SEND Only, PSN 10, retransmitted",
                 "read receive WQE", "write 256 bytes", "ACK, PSN 10", "SEND Only, PSN 11, retransmitted", "ACK, PSN 11"),
         "arming-race": ("doorbell: SQ", "write CQE", "doorbell: CQ arm", "read doorbell record of CQ", "write EQE", "MSI-X")}


def timeline(*words):
    return subprocess.run([ROOT / "tools" / "timeline", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


def packets(raw):
    """Yields (offset, block) of each block of a pcapng file."""
    at = 0
    while at < len(raw):
        length = struct.unpack_from("=I", raw, at + 4)[0]
        yield at, raw[at:at + length]
        at += length


def trace_problems(trace, lost, retransmitted, peer_requests, empty):
    """Checks the form of a trace of one device, its lanes and its flows. A flow belongs to a send WQE of this device."""
    events = trace["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    problems = [] if tuple(lanes.values()) == capturelib.LANES else [f"lanes {lanes}"]
    unused = set(lanes.values()) - {lanes[event["tid"]] for event in slices}
    problems += [f"nothing in lanes {sorted(unused)}, not {sorted(empty)}"] if unused != empty else []
    problems += [f"no time: {event}" for event in slices if event["ts"] < 0 or event["dur"] <= 0]
    ends = {}
    for event in sorted(slices, key=lambda event: event["ts"]):
        if event["ts"] < ends.get(event["tid"], 0) - 1e-3:
            problems.append(f"overlaps the event before: {event}")
        ends[event["tid"]] = event["ts"] + event["dur"]
    flows = {}
    for event in events:
        if event["ph"] in "stf":
            flows.setdefault(event["id"], []).append(event)
    starts = {(event["tid"], event["ts"]): event for event in slices}
    for flow in flows.values():
        order = "".join(event["ph"] for event in flow)
        problems += [f"flow {order}"] if not re.fullmatch("st*f", order) else []
        problems += ["a flow leaves its slices"] if any((event["tid"], event["ts"]) not in starts for event in flow) else []
    lanes_of_flow = set(capturelib.LANES) if peer_requests else {lanes[event["tid"]] for flow in flows.values() for event in flow}
    problems += [f"no arrow at lane {lane}" for lane in set(capturelib.LANES) - lanes_of_flow - {"CPU"}]
    for name, expected in (("lost", lost), ("retransmitted", retransmitted)):
        count = sum(event["args"].get(name, False) for event in slices)
        problems += [f"{count} {name}, not {expected}"] if count != expected else []
    return problems


def texts(path):
    return [node.text for node in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def chart_problems(folder, name):
    lost, retransmitted = CHARTS[name]
    capture = folder / f"{name}.pcapng"
    done = timeline("--perfetto", folder / "t.json", "--svg", folder / "t.svg", capture)
    if done.returncode or done.stdout or done.stderr:
        return [f"exit status {done.returncode}", done.stdout, done.stderr]
    problems = trace_problems(json.loads((folder / "t.json").read_text(encoding="utf-8")), lost, retransmitted, name == "rnr", EMPTY.get(name, set()))
    shown = texts(folder / "t.svg")
    problems += [f"{shown.count(chr(0x2715))} crosses"] if shown.count(chr(0x2715)) != lost else []
    problems += ["no lanes"] if shown[:4] != ["software", "memory", "device", "peer"] else []
    rest = iter(shown)
    for begin in ORDER.get(name, ("doorbell: SQ", "read doorbell record", "read WQE", "write CQE", "write EQE", "MSI-X")):
        problems += [] if any(text.startswith(begin) for text in rest) else [f"no '{begin}' in its place: {shown}"]
    return problems


def watch(*words):
    """Starts qrnic-watch."""
    asked = subprocess.run([ROOT / "tools" / "build-qemu", "--print-build"], stdout=subprocess.PIPE, text=True, check=True)
    build = Path(asked.stdout.strip())
    return subprocess.Popen([build / "tests/qtest/qrnic/qrnic-watch", *words], cwd=build, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, env={"QTEST_QEMU_BINARY": "./qemu-system-x86_64", "PATH": "/usr/bin:/bin"})


def message(folder):
    """Captures a SEND of three packets at both devices."""
    if watch("send", "2500", folder).wait(120):
        raise subprocess.SubprocessError("qrnic-watch failed")
    return folder / "sender.pcapng", folder / "receiver.pcapng"


def both_problems(folder, pair):
    """Follows the SEND through both captures, and through their merged file."""
    steps = ("sender +doorbell +doorbell: SQ", "sender +scheduler +read WQE", "sender +DMA +read 1024", "sender +wire +SEND First",
             "receiver +peer +SEND First", "receiver +DMA +read receive WQE", "receiver +CQE +write CQE", "receiver +interrupt",
             "receiver +wire +ACK", "sender +peer +ACK", "sender +CQE +write CQE.*SUCCESS", "sender +interrupt")
    done = timeline("--wqe", "0", *pair)
    rest = iter(done.stdout.splitlines())
    problems = [f"no '{step}': {done.stdout}" for step in steps if not any(re.search(step, line) for line in rest)][:1]
    problems += [f"a frame is lost: {done.stdout}"] if "lost" in done.stdout else []
    problems += ["an event without the WQE"] if not all(re.search(r"  \d+:0$", line) for line in done.stdout.splitlines()) else []
    done = timeline("--svg", folder / "t.svg", *pair)
    shown = texts(folder / "t.svg")
    problems += [f"lanes {shown[:6]}"] if shown[:6] != ["software 1", "memory 1", "sender", "receiver", "memory 2", "software 2"] else []
    problems += [f"{shown.count('SEND First, PSN 4097')} arrows for one frame"] if shown.count("SEND First, PSN 4097") != 1 else []
    merged = folder / "merged.pcapng"
    if subprocess.run(["which", "mergecap"], stdout=subprocess.DEVNULL, check=False).returncode == 0:
        subprocess.run(["mergecap", "-I", "none", "-w", merged, *pair], timeout=60, check=True)
        once = [re.sub(r" (sender|receiver) +", " ", line) for line in timeline(*pair).stdout.splitlines()]
        again = [re.sub(r" qrnic-[12] +", " ", line) for line in timeline(merged).stdout.splitlines()]
        problems += [f"the merged file differs: {len(once)} and {len(again)} events"] if sorted(once) != sorted(again) else []
    return problems


def lost_problems(folder, pair):
    """Removes the second packet from the receiver's capture: the sender's frame is lost."""
    raw = pair[1].read_bytes()
    middle = [at for at, block in packets(raw) if block[:4] == struct.pack("=I", 6) and b"\x12\xb7" in block[28:80] and b"\0\0\x10\x02" in block[28:90]]
    shorter = folder / "shorter.pcapng"
    shorter.write_bytes(b"".join(block for at, block in packets(raw) if at != middle[0]))
    lines = timeline(pair[0], shorter).stdout.splitlines()
    lost = [line for line in lines if "lost" in line]
    return [] if len(lost) == 1 and "SEND Middle, PSN 4098" in lost[0] else lost or ["no frame is lost"]


def filters(capture):
    every = timeline(capture).stdout.splitlines()
    micros = [float(line.split()[0]) for line in every]
    middle = (micros[0] + micros[-1]) / 2
    problems = [] if micros == sorted(micros) else ["not in the order of time"]
    for words, expected in ((("--limit", "3"), every[:3]), (("--from", str(middle)), [line for line, at in zip(every, micros) if at >= middle]),
                            (("--to", str(middle)), [line for line, at in zip(every, micros) if at <= middle]),
                            (("--qp", "2", "--wqe", "0"), [line for line in every if line.endswith("  2:0")])):
        shown = timeline(*words, capture).stdout.splitlines()
        # The times of a selection count from its first event.
        same = [line.split(None, 1)[1] for line in shown] == [line.split(None, 1)[1] for line in expected]
        problems += [] if same and expected else [f"{words}: {len(shown)} events, not {len(expected)}"]
    return problems


def error_problems(words, text):
    done = timeline(*words)
    good = done.returncode == 1 and not done.stdout and len(done.stderr.splitlines()) == 1 and text in done.stderr
    return [] if good else [f"exit status {done.returncode}", done.stdout[:300], done.stderr[-500:]]


def of_version(raw, major, minor):
    """Returns the capture with another version in the description of each interface."""
    return re.sub(rb"(qrnic hardware interface )[\d.]+\0*", lambda match: (match[1] + f"{major}.{minor}".encode()).ljust(len(match[0]), b"\0"), raw)


def errors(folder, capture):
    raw = capture.read_bytes()
    blocks = [block for _, block in packets(raw)]
    frames = b"".join(block for block in blocks[:2])
    for name, content, text in (("empty", b"", "empty"), ("other-file", b"hello, this is no capture", "not a pcapng"), ("head", raw[:9], "truncated"),
                                ("truncated", raw[:-7], "truncated"), ("other-version", raw.replace(b"use=wqe ", b"use=wqx "), "another version"),
                                ("frames", frames, "no interface of the bus"), ("no-packets", b"".join(blocks[:3]), "no packets"),
                                ("version", of_version(raw, 2, 0), "the capture is of hardware interface 2.0, this tool of"),
                                ("newer", of_version(raw, 1, 999), "use the tool of the version that made"),
                                ("damaged", raw[:32] + bytes(4) + raw[36:], "damaged")):
        path = folder / f"{name}.pcapng"
        path.write_bytes(content)
        yield f"error: {name}", error_problems([path], text) + error_problems(["--svg", folder / "e.svg", path], text)
    yield "error: no file", error_problems([folder / "nothing.pcapng"], "No such file")
    yield "error: no match", error_problems(["--qp", "77", capture], "no packet matches")
    yield "error: three devices in a chart", error_problems(["--svg", folder / "e.svg", capture, capture, capture], "at most 2 devices")
    yield "error: a chart that cannot be written", error_problems(["--svg", "/dev/null/x", capture], "/dev/null/x")
    partial = timeline("--partial", folder / "truncated.pcapng")
    older = folder / "older" / capture.name
    older.parent.mkdir()
    older.write_bytes(of_version(raw, 1, 0))
    yield "a capture of an older minor version is read", [] if timeline(older).stdout == timeline(capture).stdout != "" else [timeline(older).stderr]
    yield "a truncated capture is read in part", [] if partial.returncode == 0 and partial.stdout else [partial.stderr]


def nonsense(folder, capture):
    """Changes random bytes: the reader must accept the file, or report one error."""
    raw, path, choice = capture.read_bytes(), folder / "nonsense.pcapng", random.Random(7)
    for _ in range(150):
        changed = bytearray(raw)
        for _ in range(choice.choice((1, 3, 30))):
            changed[choice.randrange(len(changed))] = choice.randrange(256)
        path.write_bytes(changed)
        try:
            capturelib.read([str(path)], partial=choice.random() < 0.5)
        except capturelib.CaptureError:
            continue
        except Exception as error:  # pylint: disable=broad-except
            return [f"{type(error).__name__}: {error}"]
    return []


class Terminal:
    """tools/step on a terminal of 100 columns"""

    def __init__(self, *words):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.process = subprocess.Popen([ROOT / "tools" / "step", *words], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                                        env={**os.environ, "TERM": "xterm"})
        os.close(theirs)

    def press(self, key):
        os.write(self.ours, key.encode())

    def shows(self, *wanted):
        """Reads the screen until it has all texts; returns the missing ones after a minute."""
        seen, end = "", time.monotonic() + 60
        while not all(text in seen for text in wanted) and time.monotonic() < end:
            if select.select([self.ours], [], [], 1)[0]:
                try:
                    seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\(B", " ", os.read(self.ours, 65536).decode(errors="replace"))
                except OSError:
                    break
        return [f"no '{text}' on the screen: {seen[-1500:]}" for text in wanted if text not in seen]

    def close(self, status):
        try:
            ended = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            ended = "none"
        os.close(self.ours)
        return [] if ended == status else [f"exit status {ended}"]


def step_problems(*words):
    """Steps through a SEND to its end, one step back, and ends."""
    screen = Terminal(*words)
    problems = screen.shows("step 1 of")
    for number, text in ((2, None), (3, None)):
        screen.press(" ")
        problems += screen.shows(f"step {number} of", *([text] if text else []))
    screen.press("G")
    problems += screen.shows("SQ 2", "producer 1, consumer 1", "CQ 1", "[ ]", "write CQE 1[0]: SUCCESS")
    screen.press("g")
    problems += screen.shows("step 1 of")
    # The first doorbell of the SQ fills a slot of its ring.
    for number in range(2, 12):
        screen.press("n")
        missing = screen.shows(f"step {number} of")
        problems += missing
        if missing:
            break
    screen.press("b")
    problems += screen.shows("step 10 of", "[#]")
    screen.press("q")
    return problems[:2] + screen.close(0)


# The events of a SEND at the sender, and a part of the drawing after each of them. The interrupt is left out, because the
# driver ends after it.
LIVE = (("doorbell: SQ 2, index 1", "[#]"), ("read doorbell record of queue 2",), ("read WQE 2[0]: SEND", "producer 1, consumer 0"),
        ("read 256 bytes of data",), ("SEND Only, PSN 4097",), ("ACK, PSN 4097",), ("write CQE 1[0]: SUCCESS", "producer 1, consumer 1"),
        ("write EQE 1[0]", "step 8 of 8, live"))


def live_problems(folder):
    """Steps through a SEND of a running device, and looks back. The driver waits for the device meanwhile."""
    socket = folder / "qmp.sock"
    guest = watch("send", "256", folder, socket)
    end, query = time.monotonic() + 60, {"execute": "qom-get", "arguments": {"path": "/machine/peripheral/qrnic", "property": "stopped"}}
    # The device stops at the doorbell of the SEND, and waits for the tool.
    while '"doorbell"' not in qmp.execute(str(socket), query) and guest.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    screen, problems = Terminal("--live", socket, "--device", "qrnic"), []
    for number, texts_of_step in enumerate(LIVE):
        if number:
            screen.press(" ")
        problems += screen.shows("-> qrnic", *texts_of_step)
        if problems:
            break
    screen.press("b")
    problems += screen.shows("step 7 of 8, live")
    screen.press("q")
    problems += screen.close(0)
    try:
        problems += [] if guest.wait(60) == 0 else ["the driver failed"]
    except subprocess.TimeoutExpired:
        guest.kill()
        problems.append("the device did not continue after the end of step")
    return problems[:3]


def live_errors(folder):
    """Tests a socket that does not exist, and options that exclude each other"""
    for words, text, status in (((folder / "nothing.sock",), "No such file", 1), ((folder / "nothing.sock", "x.pcapng"), "exclude each other", 2)):
        screen = Terminal("--live", *words)
        yield from screen.shows(text)
        yield from screen.close(status)
    screen = Terminal("--device", "qrnic")
    yield from screen.shows("--device requires --live")
    yield from screen.close(2)


def step_errors(folder):
    screen = Terminal(folder / "empty.pcapng")
    problems = screen.shows("step: ", "is empty")
    problems += screen.close(1)
    done = subprocess.run([ROOT / "tools" / "step"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return problems + ([] if done.returncode == 1 and "needs a terminal" in done.stderr else [done.stderr])


def tests(folder):
    done = subprocess.run([ROOT / "tools" / "capture-charts", "--check", "--captures", folder], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=600, check=False)
    yield "charts: those of the manual are fresh", [] if done.returncode == 0 else [done.stderr]
    for name in CHARTS:
        yield f"timeline: trace and chart of {name}", chart_problems(folder, name)
    pair = message(folder)
    yield "timeline: a message through the captures of both devices", both_problems(folder, pair)
    yield "timeline: a frame that the receiver does not have is lost", lost_problems(folder, pair)
    yield "timeline: filters", filters(folder / "rc-send.pcapng")
    yield from ((f"timeline: {name}", problems) for name, problems in errors(folder, folder / "rc-send.pcapng"))
    yield "step: a captured message, forward and back", step_problems("--qp", "2", *pair)
    yield "step: without a capture", step_problems("--qp", "2")
    yield "step: an empty capture, and no terminal", step_errors(folder)
    yield "step: a running device", live_problems(folder)
    yield "step: errors of a running device", list(live_errors(folder))
    yield "timeline: random bytes", nonsense(folder, folder / "rc-send.pcapng")


def main():
    writer = tap.Writer()
    with tempfile.TemporaryDirectory(prefix="qrnic-timeline-") as folder:
        for name, problems in tests(Path(folder)):
            writer.problems(name, problems)
    writer.finish()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
