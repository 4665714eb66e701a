# The stages of lab 10. labs/lib/grade.py calls them, after labs/grade has built the simulator.
# SPDX-License-Identifier: GPL-2.0-or-later
from grade import expect
from lab import simulate

RATE, DELAY, FRAME, PORT_QUEUE = 100e9, 1e-6, 4178, 16384
STRICT = 2 * DELAY + 8 * (PORT_QUEUE + FRAME / 2) / RATE
IDLE = 2.02e-6                  # latency of a short message on an idle link


def near(got, want, part, text):
    """Fails unless got is a number that differs from the right one by at most this part."""
    expect(isinstance(got, (int, float)) and not isinstance(got, bool), f"{text} returned {got!r}, and not a number.")
    expect(abs(got - want) <= part * want, f"{text} returned {got:.4g}, not {want:.4g}.")


def run(made, text, bulk):
    """Simulates a student's scenario; returns the Flow of the short messages, and the result."""
    expect(isinstance(made, dict), f"{text} returned {made!r}, and not a map (dict).")
    result = simulate(made)
    expect("short" in result.flows, f"{text}: no flow has the name short. The flows are {', '.join(result.flows)}.")
    expect(len(result.flows) == bulk + 1, f"{text} has {len(result.flows)} flows, not {bulk + 1}: the bulk flows and the short one.")
    short = result.flows["short"]
    expect(short.messages > 20, f"{text}: only {short.messages} short messages arrived. The short flow has messages of 64 B, depth 1, and a pause of 20 us; until is 1 ms.")
    return short, result


def micro(value):
    return f"{value * 1e6:.2f} us"


def stage_1(machine, program):
    """A scenario."""
    for size in (4178, 16384):
        near(program.seconds(size), 8 * size / RATE, 0.001, f"seconds({size})")
    short, _ = run(program.scenario(0, 0), "scenario(0, 0)", 0)
    expect(abs(short.median * 1e-9 - IDLE) < 0.01e-6, f"Without bulk flows the median latency is {micro(short.median * 1e-9)}, not {micro(IDLE)}. The link has 100 Gb/s and a delay of 1 us.")
    short, result = run(program.scenario(2, 0), "scenario(2, 0)", 2)
    bulk = sum(flow.bytes for name, flow in result.flows.items() if name != "short")
    expect(bulk > 0.8 * RATE / 8 * 1e-3, f"The two bulk flows have {bulk * 8 / 1e-3 / 1e9:.1f} Gb/s in 1 ms: messages of 1 MiB, depth 2, and until 1 ms fill the link.")


def stage_2(machine, program):
    """Round robin."""
    for flows in (1, 8, 24):
        short, _ = run(program.scenario(flows, 0), f"scenario({flows}, 0)", flows)
        got, want = program.round_robin(flows), short.median * 1e-9
        expect(isinstance(got, (int, float)), f"round_robin({flows}) returned {got!r}, and not a number.")
        expect(abs(got - want) < 0.05 * want, f"round_robin({flows}) predicts {micro(got)}, and the simulator measures {micro(want)} (median). The message waits for a packet of each bulk flow, for "
                                              "16 KiB at the port, for the rest of the packet that is being sent, and for the delay of both directions.")


def stage_3(machine, program):
    """A strict priority."""
    near(program.strict(), STRICT, 0.02, "strict()")
    for flows in (1, 8, 24):
        short, result = run(program.scenario(flows, 16), f"scenario({flows}, 16)", flows)
        got, want = short.median * 1e-9, program.strict()
        expect(abs(got - want) < 0.05 * want, f"With priority 16 beside {flows} bulk flows the simulator measures {micro(got)}, and strict() predicts {micro(want)}. The priority is a key of the short "
                                              "flow, and not of the bulk flows.")
        expect(short.p99 * 1e-9 < 1.2 * want, f"The 99th percentile is {micro(short.p99 * 1e-9)}. The priority should make it nearly equal to the median.")
        expect(result.retransmissions == 0, "Packets were retransmitted. The links of this lab lose none.")


def measured(priorities):
    """Returns the shares that the simulator measures."""
    flows = [{"name": f"level-{priority}", "from": 0, "to": 1, "size": "64 KiB", "depth": 16, "priority": priority} for priority in priorities]
    result = simulate({"title": "Shares", "nodes": 2, "topology": "pair", "edge": {"rate": "100 Gb/s", "delay": "1 us"}, "flows": flows, "until": "4 ms"})
    total = sum(flow.bytes for flow in result.flows.values())
    return [result.flows[f"level-{priority}"].bytes / total for priority in priorities]


def compare_shares(program, cases, hint):
    for priorities in cases:
        got, want = program.shares(list(priorities)), measured(priorities)
        expect(isinstance(got, list) and len(got) == len(priorities), f"shares({list(priorities)}) returned {got!r}, and not a list of {len(priorities)} numbers.")
        expect(abs(sum(got) - 1) < 0.001, f"shares({list(priorities)}) returned {got}: the sum is {sum(got):.3f}, not 1.")
        expect(all(abs(one - other) < 0.02 for one, other in zip(got, want)),
               f"shares({list(priorities)}) predicts {', '.join(f'{one:.3f}' for one in got)}; the simulator measures {', '.join(f'{one:.3f}' for one in want)}. {hint}")


def stage_4(machine, program):
    """Shares by weight."""
    compare_shares(program, ((1, 2), (1, 2, 3), (4, 2), (5, 1, 3)), "Level n, which is the priority minus 1, has 2 ** n slots.")


def stage_5(machine, program):
    """Nobody starves."""
    compare_shares(program, ((8, 9), (5, 8), (9, 2, 1), (1, 4, 12)), "From level 8 on, which is priority 9, a level is strict. One of 16 slots goes to the other levels, which share it equally.")


def stage_6(machine, program):
    """A queue in the switch."""
    short, _ = run(program.switch(0, 0), "switch(0, 0)", 2)
    expect(short.median > 20000, f"Without class and priority the median latency is {micro(short.median * 1e-9)}, not more than 20 us. Both bulk flows go to the node to which the short one goes: messages of "
                                 "64 KiB, depth 4.")
    other, _ = run(program.switch(0, 16), "switch(0, 16)", 2)
    expect(other.median > 20000, f"switch(0, 16) has a median of {micro(other.median * 1e-9)}. The short flow comes from node 2, whose queue pair competes with no other. The priority is that of the short flow.")
    other, _ = run(program.switch(32, 0), "switch(32, 0)", 2)
    expect(other.median < 5000, f"switch(32, 0) has a median of {micro(other.median * 1e-9)}. The traffic class is the key class of the short flow: the upper three bits select a queue of the switch.")


def stage_7(machine, program):
    """A rate limit."""
    for senders, part in ((2, 0.95), (10, 0.9)):
        near(program.largest_limit(senders, part), part * RATE / senders, 0.001, f"largest_limit({senders}, {part})")
    limit = program.largest_limit(2, 0.95)
    short, result = run(program.limited(limit), f"limited({limit:.3g})", 2)
    bulk = sum(flow.bytes for name, flow in result.flows.items() if name != "short") * 8 / 1e-3
    expect(short.median < 5000, f"With a limit of {limit / 1e9:.1f} Gb/s for each sender the median latency is {micro(short.median * 1e-9)}, and not less than 5 us. Both bulk flows have the keys limit and "
                                "burst. Without burst a flow may send for 1 ms before its limit applies.")
    expect(bulk > 0.85 * RATE, f"The bulk flows have {bulk / 1e9:.1f} Gb/s together, but the limit permits {2 * limit / 1e9:.1f} Gb/s.")
    short, _ = run(program.limited(RATE / 2 * 1.1), "limited(5.5e+10)", 2)
    expect(short.median > 10000, f"With 110 % of the link the median latency is {micro(short.median * 1e-9)}. A queue must grow: the argument limit is the limit of each bulk flow.")
