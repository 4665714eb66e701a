# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures how long no data arrives after a link fails or flaps, or a switch restarts (manual, Selective repeat)."""

from experimentlib import median

ASKS = "how long does a connection stand still when its way does, and is anything lost?"
WHERE = "simulation"

RECOVERIES = {"gbn": ("go-back-N", "C3", {}), "sr": ("selective repeat", "C0", {"selective_repeat": True})}
FAULTS = {"link": "the link fails for 500 us", "flapping": "it fails for 50 us each 200 us", "switch": "the switch starts again, 2 ms"}
DOWN_US = {"link": 500, "flapping": 50, "switch": 2000}
PERIOD_US = {"flapping": 200}
LINK = {"rate": "100 Gb/s", "delay": "500 ns", "queue": "1 MiB"}
TIMEOUT_US = 4.096 * 2 ** 7  # timeout 7 of the flows
START_US, SAMPLE_US, UNTIL_MS = 1000, 100, 6
# Pairs of nodes at one switch, device 6; the link of one node of each pair fails
FLOWS = {"write": (0, 3), "read": (1, 4), "send": (2, 5)}
NODES = 6
DURATIONS_US = (50, 2100, 75)  # of failures of the link: from, to, step; the timer has another phase at the end of each


def scenario(fault, options, down_us):
    down = {"down_from": f"{START_US} us", "down_to": f"{START_US + down_us} us"}
    if fault in PERIOD_US:
        down["period"] = f"{PERIOD_US[fault]} us"
    ends = range(NODES) if fault == "switch" else [target for _, target in FLOWS.values()]
    flows = [{"name": name, "operation": name, "from": source, "to": target, "size": "16 KiB", "depth": 16, "timeout": 7, **options}
             for name, (source, target) in FLOWS.items()]
    return {"nodes": NODES, "topology": "star", "edge": LINK, "links": [{"between": [node, NODES], **LINK, **down} for node in ends],
            "flows": flows, "until": f"{UNTIL_MS} ms", "sample": f"{SAMPLE_US} us"}


def row(view, fault, recovery, down_us, result, **given):
    whole = int(all(each["intact"] for each in result.rows["flow"]))
    return {"view": view, "fault": fault, "recovery": recovery, "down_us": down_us, "us": "", "gbps": "", "flow": "", "repair_us": "",
            "timeouts": "", "lost": "", "intact": whole, **given}


def repair_rows(fault, recovery, down_us, result):
    return [row("repair", fault, recovery, down_us, result, flow=flow, repair_us=round(result.flow(flow)["gap_ns"] / 1000 - down_us, 1),
                timeouts=result.rows["node"][source]["timeouts"], lost=result.total["lost"]) for flow, (source, _) in FLOWS.items()]


def durations(short):
    first, last, step = DURATIONS_US
    return range(first, last, step * (5 if short else 1))


def scenarios(short):
    made = []
    for name, _, options in RECOVERIES.values():
        made += [(f"{what}, {name}", scenario(fault, options, DOWN_US[fault])) for fault, what in FAULTS.items()]
        made += [(f"{down_us} us, {name}", scenario("link", options, down_us)) for down_us in durations(short)]
    return made


def measure(run):
    """Returns rows. View rate: over time. View repair: from the end of the fault to the next completion."""
    rows, results = [], iter(run.scenarios(scenarios(run.short)))
    for recovery in RECOVERIES:
        for fault in FAULTS:
            result = next(results)
            rows += [row("rate", fault, recovery, DOWN_US[fault], result, flow="write", us=rate["ns"] // 1000,
                         gbps=round(rate["bytes"] * 8 / SAMPLE_US / 1000, 2))
                     for rate in result.rows["rate"] if rate["flow"] == "write" and rate["ns"]]
            rows += repair_rows(fault, recovery, DOWN_US[fault], result)
        for down_us in durations(run.short):
            rows += repair_rows("link", recovery, down_us, next(results))
    return rows


def repairs(rows, fault, recovery):
    """Returns (duration of the failure, time to recover after it) of all flows."""
    return sorted((each["down_us"], each["repair_us"]) for each in rows
                  if (each["view"], each["fault"], each["recovery"]) == ("repair", fault, recovery))


def draw(figure, rows):
    figure.set_size_inches(13, 4.5)
    for place, (fault, what) in enumerate(FAULTS.items(), 1):
        axes = figure.add_subplot(1, 4, place)
        for recovery, (name, color, _) in RECOVERIES.items():
            axes.plot(*zip(*((each["us"] / 1000, each["gbps"]) for each in rows if (each["view"], each["fault"], each["recovery"]) ==
                             ("rate", fault, recovery))), color=color, label=name)
        axes.set_ylim(0)
        axes.set_xlabel("ms")
        axes.set_ylabel("goodput, Gb/s")
        axes.set_title(what, fontsize=10)
        axes.legend()
    axes = figure.add_subplot(1, 4, 4)
    for recovery, (name, color, _) in RECOVERIES.items():
        axes.plot(*zip(*repairs(rows, "link", recovery)), ".", color=color, label=name)
    axes.axhline(TIMEOUT_US, color="C7", linestyle=":", label="the timeout")
    axes.set_ylim(0)
    axes.set_xlabel("us that the link fails")
    axes.set_ylabel("us from then to the next message")
    axes.set_title("time to recover, all flows", fontsize=10)
    axes.legend()


def conclude(rows):
    late = {recovery: [us for _, us in repairs(rows, "link", recovery)] for recovery in RECOVERIES}
    switch = {recovery: max(us for _, us in repairs(rows, "switch", recovery)) for recovery in RECOVERIES}
    flaps = {recovery: [each["gbps"] for each in rows if (each["view"], each["fault"], each["recovery"]) == ("rate", "flapping", recovery)
                        and each["us"] > START_US] for recovery in RECOVERIES}
    mean = {recovery: sum(each) / len(each) for recovery, each in flaps.items()}
    most = max(max(each) for each in late.values())
    return (all(each["intact"] for each in rows) and all(each["lost"] for each in rows if each["view"] == "repair") and
            max(most, *switch.values()) < 1.2 * TIMEOUT_US and mean["sr"] > 2 * mean["gbn"],
            f"nothing is lost; from the end of a failure to the next message it is {median(late['gbn']):.0f} us with go-back-N, "
            f"{median(late['sr']):.0f} us with selective repeat (the median), and at most {most:.0f} us, where the timeout is {TIMEOUT_US:.0f}; "
            f"after a switch has started again, 2 ms, {switch['gbn']:.0f} and {switch['sr']:.0f} us; on a link that flaps they keep "
            f"{mean['gbn']:.0f} and {mean['sr']:.0f} Gb/s")
