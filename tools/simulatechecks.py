# Checks of a trace of the simulated network: whether the transport followed its specification.
# SPDX-License-Identifier: GPL-2.0-or-later
"""Each check gets the scenario and its Result (tools/simulatelib.py) with a trace, and returns a list of sentences,
one for each violation. The checks use packets and counters, and know nothing of the engine.
"""

from collections import Counter, defaultdict

from simulatelib import flows, quantity

PSN_MASK, HALF = 0xffffff, 0x800000
ACK, CNP, SACK = 0x11, 0x81, 0x1f
REQUESTS = {*range(0x0d), 0x13, 0x14, 0x16, 0x17, 0x1c, 0x1d}
READ_REQUEST, READ_RESPONSES = 0x0c, range(0x0d, 0x11)
NAK_SEQUENCE = 0x60
ECN_CE = 3
CNP_GAP_US = 4  # np_min_time_between_cnps, if the scenario does not set it


def is_request(packet):
    return packet["opcode"] in REQUESTS


def is_ahead(psn, other):
    return 0 < (psn - other & PSN_MASK) < HALF


class Flow:
    """The packets of a flow in the order of the trace: requests and answers"""

    def __init__(self, name, settings, qp):
        self.name, self.settings, self.qp = name, settings, qp
        self.packets = []

    def selects(self, what, test):
        return [packet for packet in self.packets if packet["what"] == what and test(packet)]


def split(scenario, result):
    """Returns the flows, each with its packets."""
    qps = {row["flow"]: row for row in result.rows["qp"]}
    made, places = [], {}
    for name, settings in flows(scenario):
        flow = Flow(name, settings, qps[name])
        made.append(flow)
        places[settings["from"], settings["to"], flow.qp["to_qpn"]] = flow
        places[settings["to"], settings["from"], flow.qp["from_qpn"]] = flow
    for packet in result.rows["packet"]:
        flow = places.get((packet["from"], packet["to"], packet["dest_qpn"]))
        if flow:
            flow.packets.append(packet)
    return made


def intact(scenario, result):
    """Checks that all messages of each flow arrived with all their bytes."""
    del scenario
    return [f"flow {row['flow']}: {row['errors']} errors, or bytes that differ" for row in result.rows["flow"] if not row["intact"]]


def go_back_n(scenario, result):
    """Checks that after a NAK of the PSN sequence the requester continues with the PSN of the NAK (9.7.5.1.1)."""
    wrong = []
    for flow in split(scenario, result):
        named = None
        if flow.settings.get("selective_repeat"):
            continue
        for packet in flow.packets:
            if packet["what"] == "arrived" and packet["opcode"] == ACK and packet["syndrome"] == NAK_SEQUENCE:
                named = packet["psn"]
            elif packet["what"] == "sent" and is_request(packet) and named is not None:
                if packet["psn"] != named:
                    wrong.append(f"flow {flow.name}: at {packet['ns']} ns PSN {packet['psn']} follows a NAK of {named}")
                named = None
    return wrong


def read_go_back_n(scenario, result):
    """Checks that a requester that misses a response to a read requests the rest from the missing PSN on
    (9.7.5.2.8).
    """
    wrong = []
    for flow in split(scenario, result):
        expected, missing, asked = None, None, False
        for packet in flow.packets:
            if packet["what"] == "sent" and packet["opcode"] == READ_REQUEST:
                expected = packet["psn"] if expected is None else expected
                if missing is not None and packet["psn"] != missing and not is_ahead(packet["psn"], missing):
                    wrong.append(f"flow {flow.name}: at {packet['ns']} ns a read from PSN {packet['psn']} on, {missing} is missing")
                asked = asked or packet["psn"] == missing
            elif packet["what"] == "arrived" and packet["opcode"] in READ_RESPONSES:
                if packet["psn"] == expected:
                    if missing is not None and not asked:
                        wrong.append(f"flow {flow.name}: PSN {missing} was not requested again, and arrived at {packet['ns']} ns")
                    expected, missing, asked = expected + 1 & PSN_MASK, None, False
                elif expected is not None and is_ahead(packet["psn"], expected) and missing is None:
                    missing, asked = expected, False
        if missing is not None and not asked:
            wrong.append(f"flow {flow.name}: PSN {missing} was not requested again")
    return wrong


def selective_repeat(scenario, result):
    """Checks the number of retransmitted requests with selective repeat. Each lost or late packet, each probe and each
    timeout may cause one.
    """
    wrong = []
    probes = {row["node"]: row["probes"] + row["timeouts"] for row in result.rows["node"]}
    for flow in split(scenario, result):
        if not flow.settings.get("selective_repeat"):
            continue
        again = sum(count - 1 for count in Counter(packet["psn"] for packet in flow.selects("sent", is_request)).values())
        lost = len(flow.selects("sent", lambda _: True)) - len(flow.selects("arrived", lambda _: True))
        late = sum(fault.get("flow") == flow.name and fault.get("fate") == "late" for fault in scenario.get("faults", []))
        allowed = lost + late + probes[flow.settings["from"]]
        if again > allowed:
            wrong.append(f"flow {flow.name}: {again} packets were retransmitted, but {allowed} were lost, corrupted, late or requested by probes")
    return wrong


def cnp_interval(scenario, result):
    """Checks that at least np_min_time_between_cnps passes between two CNPs for a queue pair. A node may send a CNP
    only after a packet with a congestion mark has arrived there.
    """
    given = scenario.get("congestion")
    gap = quantity("number", given.get("np_min_time_between_cnps", CNP_GAP_US), "congestion") if isinstance(given, dict) else CNP_GAP_US
    last, marked, wrong = {}, defaultdict(int), []
    for packet in result.rows["packet"]:
        if packet["what"] == "arrived" and packet["ecn"] == ECN_CE:
            marked[packet["to"]] += 1
        elif packet["what"] == "sent" and packet["opcode"] == CNP:
            key = packet["from"], packet["to"], packet["dest_qpn"]
            if not marked[packet["from"]]:
                wrong.append(f"at {packet['ns']} ns a CNP of node {packet['from']}, to which nothing marked came")
            if key in last and packet["ns"] - last[key] < gap * 1000:
                wrong.append(f"two CNPs of node {packet['from']} for QP {packet['dest_qpn']} at {last[key]} and {packet['ns']} ns")
            last[key] = packet["ns"]
    return wrong


def counters(scenario, result):
    """Checks that the counters of the nodes equal the trace."""
    del scenario
    seen = defaultdict(Counter)
    for packet in result.rows["packet"]:
        if packet["what"] == "arrived":
            seen[packet["to"]]["ecn_marked"] += packet["ecn"] == ECN_CE
            seen[packet["to"]]["cnp_handled"] += packet["opcode"] == CNP
        else:
            seen[packet["from"]]["cnp_sent"] += packet["opcode"] == CNP
            seen[packet["from"]]["sacks"] += packet["opcode"] == SACK
            seen[packet["from"]]["naks"] += packet["opcode"] == ACK and packet["syndrome"] == NAK_SEQUENCE
    return [f"node {row['node']}: {name} is {row[name]}, the trace has {seen[row['node']][name]}"
            for row in result.rows["node"] for name in ("cnp_sent", "cnp_handled", "naks", "sacks")
            if row[name] != seen[row["node"]][name]]


CHECKS = {"intact": intact, "go-back-n": go_back_n, "read-go-back-n": read_go_back_n, "selective-repeat": selective_repeat,
          "cnp-interval": cnp_interval, "counters": counters}
