# Scenarios of the simulated network: converts YAML to the input of qrnic-simulate, and its output to rows.
# SPDX-License-Identifier: GPL-2.0-or-later
"""A scenario is a dict from YAML with the keys of KEYS and of their values. tools/simulate and the experiments call
simulate(), then summary(). See tools/simulate --help.
"""

import functools
import re
import resource
import subprocess
import time
from collections import defaultdict

from guestlib import host
from guestlib.errors import LaunchError

UNITS = {
    "time": {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9},
    "rate": {"Mb/s": 10**6, "Gb/s": 10**9, "b/s": 1},
    "bytes": {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "KB": 10**3, "MB": 10**6},
    "part": {"%": 10**4},
    "number": {},
}
LINK = {"rate": "rate", "delay": "time", "queue": "bytes", "loss": "part", "to_bad": "part", "to_good": "part",
        "loss_bad": "part", "down_from": "time", "down_to": "time", "period": "time"}
ECN = {"kmin": "bytes", "kmax": "bytes", "pmax": "part"}
PFC = {"xoff": "bytes", "xon": "bytes", "headroom": "bytes"}
FLOW = {"size": "bytes", "depth": "number", "start": "time", "stop": "time", "pause": "time", "messages": "number",
        "class": "number", "priority": "number", "limit": "rate", "burst": "bytes", "timeout": "number"}
FAULT = {"psn": "number", "transmission": "number", "late": "time"}
FLAGS = {"np_enable": 1, "rp_enable": 2, "ect_enable": 4, "rp_clamp_tgt_rate": 8, "rp_clamp_tgt_rate_ati": 16,
         "np_cnp_prio_mode": 32}
FLAGS_USUAL = 16
PATHS = ("hash", "spray", "adaptive")
FATES = ("lost", "marked", "corrupted", "late")
OPERATIONS = ("write", "send", "read")
OPTIONS = {"selective_repeat": 1, "adaptive_routing": 2}
MTUS = (256, 512, 1024, 2048, 4096)
TOPOLOGIES = ("pair", "star", "dumbbell")
SIZED = ("leaf-spine", "ring", "ring-one-way", "fat-tree")
KEYS = ("title", "seed", "nodes", "topology", "edge", "middle", "links", "watch", "network", "congestion", "flows", "faults",
        "until", "sample", "poll", "drain", "trace", "plot", "checks")

COLUMNS = {
    "rate": ("ns", "flow", "bytes"),
    "queue": ("ns", "from", "to", "bytes", "paused"),
    "packet": ("ns", "what", "from", "to", "dest_qpn", "opcode", "psn", "ack_request", "marks", "syndrome", "ecn", "bytes"),
    "qp": ("flow", "from_qpn", "to_qpn", "psn"),
    "flow": ("flow", "bytes", "messages", "errors", "intact", "p50_ns", "p99_ns", "most_ns", "gap_ns", "last_ns"),
    "port": ("from", "to", "frames", "bytes", "dropped", "lost", "marked", "paused", "resumed", "paused_ns", "deepest", "left"),
    "node": ("node", "retransmissions", "timeouts", "probes", "naks", "sacks", "held", "out_of_sequence", "ecn_marked",
             "cnp_sent", "cnp_handled"),
    "total": ("frames", "hops", "delivered", "dropped", "lost", "marked", "unrouted", "under_way", "ns", "trace"),
}


class Wrong(Exception):
    """The scenario is invalid; the text names the key."""


class Failed(Exception):
    """The run did not reach its end."""


def quantity(kind, value, where):
    """Returns the number for qrnic-simulate, from a number or from a text with a unit."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return round(value * (10**6 if kind == "part" else 1))
    found = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(\S*)\s*", str(value))
    units = UNITS[kind]
    if not found or (found[2] and found[2] not in units):
        raise Wrong(f"{where}: '{value}' is no {kind}" + (f" with one of the units {', '.join(units)}" if units else ""))
    try:
        number = float(found[1])
    except ValueError as error:
        raise Wrong(f"{where}: '{value}' is no {kind}") from error
    return quantity(kind, number, where) if not found[2] else round(number * units[found[2]])


def words(table, given, where, others=()):
    """Returns NAME=NUMBER for each given name."""
    if not isinstance(given, dict):
        raise Wrong(f"{where}: not a list of names and values")
    for name in given:
        if name not in table and name not in others:
            raise Wrong(f"{where}: no '{name}': {', '.join([*table, *others])}")
    return [f"{name}={quantity(kind, given[name], f'{where}: {name}')}" for name, kind in table.items() if name in given]


def one_of(names, value, where):
    if value not in names:
        raise Wrong(f"{where}: no '{value}': {', '.join(map(str, names))}")
    return names.index(value)


def numbers(value, where):
    """Returns the numbers of 3, "0-7", or a list of these."""
    if isinstance(value, list):
        return [number for part in value for number in numbers(part, where)]
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", str(value))
    if not found:
        raise Wrong(f"{where}: '{value}' is neither a number nor a range A-B")
    return list(range(int(found[1]), int(found[2] or found[1]) + 1))


def targets(source, value, nodes, where):
    """Returns the targets of a flow from this node. "+5" is the node whose number is higher by 5."""
    if re.fullmatch(r"\+\d+", str(value)):
        return [(source + int(value)) % nodes]
    return [target for target in numbers(value, where) if target != source]


def flows(scenario):
    """Yields (name, flow) for each flow. A range of senders or receivers makes one flow for each node, named
    FLOW-NODE.
    """
    nodes = quantity("number", scenario["nodes"], "nodes")
    for index, flow in enumerate(scenario["flows"]):
        where = f"flows[{index}]"
        if not isinstance(flow, dict) or "from" not in flow or "to" not in flow:
            raise Wrong(f"{where}: no 'from' and 'to'")
        sources = numbers(flow["from"], f"{where}: from")
        for source in sources:
            many = targets(source, flow["to"], nodes, f"{where}: to")
            for target in many:
                tail = f"-{source}" * (len(sources) > 1) + f"-{target}" * (len(many) > 1)
                yield str(flow.get("name", index)) + tail, {**flow, "from": source, "to": target}


def flow_line(name, flow, where):
    usual = ("name", "from", "to", "operation", "mtu", *OPTIONS)
    made = words(FLOW, flow, where, usual)
    options = sum(bit for option, bit in OPTIONS.items() if flow.get(option))
    operation = one_of(OPERATIONS, flow.get("operation", "write"), f"{where}: operation")
    mtu = one_of(MTUS, flow.get("mtu", 4096), f"{where}: mtu") + 1
    return " ".join([f"flow {name} from={flow['from']} to={flow['to']} operation={operation} options={options} mtu={mtu}", *made])


def network_line(given):
    ecn, pfc = given.get("ecn", {}), given.get("pfc", {})
    made = words({}, given, "network", ("paths", "ecn", "pfc"))
    made.append(f"paths={one_of(PATHS, given.get('paths', 'hash'), 'network: paths')}")
    made += words(ECN, ecn, "network: ecn") + words(PFC, pfc, "network: pfc", ("priorities",))
    if pfc:
        made.append(f"pfc={sum(1 << priority for priority in numbers(pfc.get('priorities', 3), 'network: pfc: priorities'))}")
    return " ".join(["network", *made])


def congestion_line(given):
    """Returns the line of congestion control. Parameters have the names of debugfs; true enables all three parts."""
    given = {"np_enable": True, "rp_enable": True, "ect_enable": True} if given is True else dict(given)
    flags = FLAGS_USUAL
    for name, bit in FLAGS.items():
        if name in given:
            flags = flags | bit if given.pop(name) else flags & ~bit
    return " ".join([f"congestion flags={flags}", *(f"{name}={quantity('number', value, f'congestion: {name}')}"
                                                    for name, value in given.items())])


def fault_line(fault, index):
    where = f"faults[{index}]"
    made = words(FAULT, fault, where, ("flow", "fate", "answers"))
    fate = one_of(FATES, fault.get("fate", "lost"), f"{where}: fate")
    return " ".join([f"fault {fault.get('flow', 0)} fate={fate} answers={int(bool(fault.get('answers')))}", *made])


def topology_line(given):
    if isinstance(given, dict) and len(given) == 1:
        (name, size), = given.items()
        one_of(SIZED, name, "topology")
        return f"topology {name} {quantity('number', size, 'topology')}"
    one_of(TOPOLOGIES, given, "topology")
    return f"topology {given}"


def between(link, where):
    ends = link.get("between") if isinstance(link, dict) else link
    if not isinstance(ends, list) or len(ends) != 2:
        raise Wrong(f"{where}: not between two devices")
    return f"{ends[0]} {ends[1]}"


def lines(scenario):
    """Returns the text that qrnic-simulate reads."""
    for key in scenario:
        if key not in KEYS:
            raise Wrong(f"no '{key}': {', '.join(KEYS)}")
    for key in ("nodes", "topology", "flows", "until"):
        if key not in scenario:
            raise Wrong(f"no '{key}'")
    made = [f"seed {quantity('number', scenario.get('seed', 1), 'seed')}", f"nodes {quantity('number', scenario['nodes'], 'nodes')}",
            topology_line(scenario["topology"])]
    usual = {"drain": "100 ms"}
    for key in ("until", "sample", "poll", "drain"):
        if key in scenario or key in usual:
            made.append(f"{key} {quantity('time', scenario.get(key, usual.get(key)), key)}")
    if scenario.get("trace") or scenario.get("checks"):
        made.append("trace 1")
    for key in ("edge", "middle"):
        if key in scenario:
            made.append(" ".join([key, *words(LINK, scenario[key], key)]))
    for index, link in enumerate(scenario.get("links", [])):
        made.append(" ".join(["link", between(link, f"links[{index}]"), *words(LINK, link, f"links[{index}]", ("between",))]))
    for index, ends in enumerate(scenario.get("watch", [])):
        made.append(f"watch {between(ends, f'watch[{index}]')}")
    made.append(network_line(scenario.get("network", {})))
    if scenario.get("congestion"):
        made.append(congestion_line(scenario["congestion"]))
    for name, flow in flows(scenario):
        made.append(flow_line(name, flow, f"flow {name}"))
    made += [fault_line(fault, index) for index, fault in enumerate(scenario.get("faults", []))]
    return "\n".join(made) + "\n"


def cell(text):
    return int(text) if re.fullmatch(r"-?\d+", text) else text


class Result:
    """Rows of a run by kind (COLUMNS), each kind a list of dicts; seconds and bytes are the costs on the host."""

    def __init__(self, rows, seconds, memory):
        self.rows, self.seconds, self.bytes = rows, seconds, memory
        self.total = rows["total"][0]

    def flow(self, name):
        return next(row for row in self.rows["flow"] if row["flow"] == name)


def accounts(total):
    """Returns an error message if packets of a run disappeared without a loss, or exist twice; None if all are
    accounted for.
    """
    known = sum(total[name] for name in ("delivered", "dropped", "lost", "unrouted", "under_way"))
    return None if known == total["frames"] else f"of {total['frames']} packets that were sent {known} are accounted for"


STARVED = 10  # a flow starves if its rate, times this, is below the average


def fairness(rates):
    """Returns Jain's index: 1 if all rates are equal, 1/n if one flow has the whole rate."""
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates)) if any(rates) else 0


def summary(scenario, result):
    """Sums up a run in sentences: rates until "until", starving flows, the longest standstill, the time after "until"."""
    until, drain = (quantity("time", scenario.get(key, "100 ms"), key) for key in ("until", "drain"))
    known = dict(flows(scenario))
    rates, silent = {}, {}
    for name, flow in known.items():
        start = quantity("time", flow.get("start", 0), "start")
        stop = min(quantity("time", flow.get("stop", until), "stop"), until)
        done = sum(row["bytes"] for row in result.rows["rate"] if row["flow"] == name and row["ns"] <= until)
        rates[name] = done * 8 / max(stop - start, 1)
        row = result.flow(name)
        # The standstill is not measured for a flow with a fixed number of messages or with pauses, because such a flow
        # stops sending intentionally.
        if not flow.get("messages") and not flow.get("pause"):
            silent[name] = max(row["gap_ns"], stop - max(row["last_ns"], start))
    total = sum(row["bytes"] for row in result.rows["rate"] if row["ns"] <= until) * 8 / until
    said = [f"{total:.1f} Gb/s of {len(known)} flows in {until / 1e6:.1f} ms"]
    if len(known) > 1:
        said[0] += (f", each {min(rates.values()):.1f} to {max(rates.values()):.1f} Gb/s (fairness {fairness(list(rates.values())):.2f})")
    endless = {name: rates[name] for name in silent}
    starved = [name for name, rate in endless.items() if len(endless) > 1 and rate * len(endless) * STARVED < sum(endless.values())]
    if starved:
        said.append("STARVED: " + ", ".join(f"{name} ({endless[name]:.2f} Gb/s)" for name in starved[:5]) +
                    (f" and {len(starved) - 5} more" if len(starved) > 5 else ""))
    if silent:
        name = max(silent, key=silent.get)
        said.append(f"the longest standstill is {silent[name] / 1e6:.2f} ms, of flow {name}")
    late = result.total["ns"] - until
    if late >= drain:
        said.append(f"NOT DRAINED: {late / 1e6:.1f} ms later messages are still in flight")
    elif late > 0:
        said.append(f"the messages in flight then took {late / 1e6:.2f} ms more")
    return said


@functools.cache
def program():
    """Returns the path of qrnic-simulate."""
    try:
        return host.program("unit", "qrnic-simulate")
    except LaunchError as error:
        raise Failed(str(error)) from error


def simulate(scenario, progress=None):
    """Runs the scenario. progress(part) is called with the elapsed part of the virtual time."""
    until = quantity("time", scenario["until"], "until") if "until" in scenario else 1
    text, rows, start, said = lines(scenario), defaultdict(list), time.monotonic(), ""
    with subprocess.Popen([program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            process.stdin.write(text)
            process.stdin.close()
            for line in process.stdout:
                kind, *cells = line.split()
                if kind not in COLUMNS:
                    said += line
                    continue
                rows[kind].append(dict(zip(COLUMNS[kind], map(cell, cells), strict=True)))
                if progress and kind == "rate":
                    progress(min(rows[kind][-1]["ns"] / until, 1))
            said = (said + process.stderr.read()).strip()
        except BaseException:
            process.kill()
            raise
    if process.returncode or not rows["total"]:
        raise (Wrong if process.returncode == 2 else Failed)(said.splitlines()[-1] if said else f"status {process.returncode}")
    wrong = accounts(rows["total"][0])
    if wrong:
        raise Failed(wrong)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    return Result(rows, time.monotonic() - start, memory)
