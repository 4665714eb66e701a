# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures a short message that shares its path through a switch with bulk flows (manual, Congestion control;
Priorities).
"""

ASKS = "how long does a short message take through a switch that bulk flows fill, with priorities, DCQCN, or both?"
WHERE = "simulation"

MODES = {"none": "nothing", "priority": "a priority", "dcqcn": "DCQCN", "both": "both"}
BULK, CLASS, ABOVE = 8, 3 << 5, 5 << 5


def scenario(mode, milliseconds):
    short = ABOVE if mode in ("priority", "both") else CLASS
    marked = mode in ("dcqcn", "both")
    flows = [{"name": "bulk", "from": f"0-{BULK - 1}", "to": BULK + 1, "size": "64 KiB", "depth": 4, "class": CLASS},
             {"name": "short", "from": BULK, "to": BULK + 1, "size": 64, "depth": 1, "pause": "10 us", "class": short}]
    return {"nodes": BULK + 2, "topology": "star", "edge": {"rate": "100 Gb/s", "delay": "500 ns", "queue": "1 MiB"},
            "network": {"ecn": {"kmin": "100 KiB", "kmax": "400 KiB", "pmax": "20 %"}} if marked else {}, "congestion": marked,
            "flows": flows, "until": f"{milliseconds} ms", "sample": "1 ms"}


def until(short):
    """Returns the milliseconds of each scenario."""
    return 5 if short else 40


def scenarios(short):
    return [(name, scenario(mode, until(short))) for mode, name in MODES.items()]


def measure(run):
    rows, milliseconds = [], until(run.short)
    for mode, result in zip(MODES, run.scenarios(scenarios(run.short))):
        short = result.flow("short")
        bulk = sum(row["bytes"] for row in result.rows["rate"] if row["flow"] != "short") * 8 / milliseconds / 1e6
        rows.append({"mode": mode, "messages": short["messages"], "median_us": round(short["p50_ns"] / 1000, 2),
                     "percentile_99_us": round(short["p99_ns"] / 1000, 2), "bulk_gbps": round(bulk, 2)})
    return rows


def draw(figure, rows):
    axes = figure.add_subplot(1, 2, 1)
    for column, name, shift in (("median_us", "median", -0.2), ("percentile_99_us", "99th percentile", 0.2)):
        axes.bar([place + shift for place in range(len(rows))], [row[column] for row in rows], 0.4, label=name)
    axes.set_xticks(range(len(rows)), [MODES[row["mode"]] for row in rows])
    axes.set_yscale("log")
    axes.set_ylabel("microseconds for 64 bytes")
    axes.legend()
    axes = figure.add_subplot(1, 2, 2)
    axes.bar(range(len(rows)), [row["bulk_gbps"] for row in rows], 0.5, color="C7")
    axes.set_xticks(range(len(rows)), [MODES[row["mode"]] for row in rows])
    axes.set_ylabel("goodput of the bulk flows, Gb/s")


def conclude(rows):
    at = {row["mode"]: row for row in rows}
    median = {mode: at[mode]["median_us"] for mode in MODES}
    return (median["none"] > 10 * median["priority"] and median["none"] > 2 * median["dcqcn"] and
            median["both"] < 1.5 * median["priority"] and min(row["messages"] for row in rows) > 20,
            f"behind the queue of {BULK} bulk flows 64 bytes take {median['none']:.0f} us, with DCQCN {median['dcqcn']:.0f} us, with a priority "
            f"of their own {median['priority']:.1f} us, with both {median['both']:.1f} us; the bulk flows get {at['none']['bulk_gbps']:.0f}, "
            f"{at['dcqcn']['bulk_gbps']:.0f}, {at['priority']['bulk_gbps']:.0f} and {at['both']['bulk_gbps']:.0f} Gb/s")
