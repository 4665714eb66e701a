# SPDX-License-Identifier: GPL-2.0-or-later
"""Links that fail, flap, and a switch that starts again: how long nothing comes through (manual, Selective repeat)."""

ASKS = "how long does a connection stand still when its way does, and is anything lost?"
WHERE = "simulation"

RECOVERIES = {"gbn": ("go-back-N", "C3", {}), "sr": ("selective repeat", "C0", {"selective_repeat": True})}
FAULTS = {"one": "the link fails for 500 us", "flapping": "it fails for 50 us each 200 us", "switch": "the switch starts again, 2 ms"}
LINK = {"rate": "100 Gb/s", "delay": "500 ns", "queue": "1 MiB"}
TIMEOUT_US = 4.096 * 2 ** 7  # of the flows: 7
DOWN_US = {"one": 500, "flapping": 50, "switch": 2000}


def links(fault):
    """Node 0 to 3 at a switch, device 4; the receiver is node 3."""
    if fault == "one":
        return [{"between": [3, 4], **LINK, "down_from": "1 ms", "down_to": "1500 us"}]
    if fault == "flapping":
        return [{"between": [3, 4], **LINK, "down_from": "1 ms", "down_to": "1050 us", "period": "200 us"}]
    return [{"between": [node, 4], **LINK, "down_from": "1 ms", "down_to": "3 ms"} for node in range(4)]


def scenario(fault, options):
    flows = [{"name": "flow", "from": 0, "to": 3, "size": "64 KiB", "depth": 4, "timeout": 7, **options},
             {"name": "read", "from": 1, "to": 2, "operation": "read", "size": "64 KiB", "depth": 4, "timeout": 7, **options}]
    return {"nodes": 4, "topology": "star", "edge": LINK, "links": links(fault), "flows": flows, "until": "6 ms", "sample": "50 us"}


def measure(run):
    rows = []
    for fault, what in FAULTS.items():
        for recovery, (name, _, options) in RECOVERIES.items():
            result = run.scenario(f"{what}, {name}", scenario(fault, options))
            flow = result.flow("flow")
            for rate in result.rows["rate"]:
                if rate["flow"] == "flow" and rate["ns"]:
                    rows.append({"fault": fault, "recovery": recovery, "us": rate["ns"] // 1000,
                                 "gbps": round(rate["bytes"] * 8 / 50000, 2), "longest_gap_us": round(flow["gap_ns"] / 1000, 1),
                                 "timeouts": result.rows["node"][0]["timeouts"],
                                 "intact": int(all(each["intact"] for each in result.rows["flow"]))})
    return rows


def draw(figure, rows):
    for place, (fault, what) in enumerate(FAULTS.items(), 1):
        axes = figure.add_subplot(1, 3, place)
        for recovery, (name, color, _) in RECOVERIES.items():
            axes.plot(*zip(*((row["us"] / 1000, row["gbps"]) for row in rows if (row["fault"], row["recovery"]) == (fault, recovery))),
                      color=color, label=name)
        axes.set_xlabel("ms")
        axes.set_ylabel("goodput, Gb/s")
        axes.set_title(what, fontsize=10)
        axes.legend()


def conclude(rows):
    at = {(row["fault"], row["recovery"]): row for row in rows}
    behind = {key: row["longest_gap_us"] - DOWN_US[key[0]] for key, row in at.items()}
    mean = {key: sum(row["gbps"] for row in rows if (row["fault"], row["recovery"]) == key and row["us"] > 1000) /
            sum((row["fault"], row["recovery"]) == key and row["us"] > 1000 for row in rows) for key in at}
    gone = [behind[fault, recovery] for fault in ("one", "switch") for recovery in RECOVERIES]
    return (all(row["intact"] for row in rows) and max(gone) < 4.2 * TIMEOUT_US,
            f"nothing is lost; after a failure of 500 us data flows again {behind['one', 'gbn']:.0f} us later with go-back-N, "
            f"{behind['one', 'sr']:.0f} us with selective repeat, where the timeout is {TIMEOUT_US:.0f} us, and {behind['switch', 'gbn']:.0f} and "
            f"{behind['switch', 'sr']:.0f} us after one of 2 ms; on a link that flaps they keep {mean['flapping', 'gbn']:.0f} and "
            f"{mean['flapping', 'sr']:.0f} Gb/s")
