# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures a connection whose packets take several paths (manual, Selective repeat; Adaptive routing)."""

ASKS = "what does it cost when packets overtake each other, and with which method does it cost nothing?"
WHERE = "simulation"

MODES = {"gbn": ("go-back-N", "C3", {}), "sr": ("selective repeat", "C0", {"selective_repeat": True}),
         "ar": ("adaptive routing", "C2", {"selective_repeat": True, "adaptive_routing": True})}
PATHS = (1, 2, 4, 8, 16)
STEP_NS = 200


def scenario(paths, options, milliseconds):
    """Returns a scenario whose paths are each 200 ns longer than the previous one. Devices 2 and 3 are the leaves,
    then come the spines.
    """
    links = [{"between": [2, 4 + way], "rate": "100 Gb/s", "delay": 500 + STEP_NS * way, "queue": "1 MiB"} for way in range(paths)]
    return {"nodes": 2, "topology": {"leaf-spine": paths}, "links": links, "network": {"paths": "spray"},
            "edge": {"rate": "100 Gb/s", "delay": "500 ns", "queue": "1 MiB"},
            "flows": [{"name": "flow", "from": 0, "to": 1, "size": "64 KiB", "depth": 8, "timeout": 9, **options}],
            "until": f"{milliseconds} ms", "sample": "1 ms"}


def until(short):
    """Returns the milliseconds of each scenario."""
    return 2 if short else 20


def scenarios(short):
    return [(f"{name}, {paths} paths", scenario(paths, options, until(short))) for paths in PATHS for name, _, options in MODES.values()]


def measure(run):
    rows, milliseconds, results = [], until(run.short), iter(run.scenarios(scenarios(run.short)))
    for paths in PATHS:
        for mode in MODES:
            result = next(results)
            done = sum(row["bytes"] for row in result.rows["rate"])
            rows.append({"paths": paths, "recovery": mode, "goodput_gbps": round(done * 8 / milliseconds / 1e6, 2),
                         "sent_again": result.rows["node"][0]["retransmissions"], "intact": result.flow("flow")["intact"]})
    return rows


def draw(figure, rows):
    for place, (column, label) in enumerate((("goodput_gbps", "goodput, Gb/s"), ("sent_again", "retransmitted packets")), 1):
        axes = figure.add_subplot(1, 2, place)
        for mode, (name, color, _) in MODES.items():
            axes.plot(*zip(*((row["paths"], row[column]) for row in rows if row["recovery"] == mode)), marker="o", color=color, label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(PATHS, [str(paths) for paths in PATHS])
        axes.set_ylim(0)
        axes.set_xlabel("paths, each 200 ns longer than the one before")
        axes.set_ylabel(label)
        axes.legend()


def conclude(rows):
    at = {(row["paths"], row["recovery"]): row for row in rows}
    most = PATHS[-1]
    part = {mode: at[most, mode]["goodput_gbps"] / at[1, mode]["goodput_gbps"] for mode in MODES}
    return (all(row["intact"] for row in rows) and part["ar"] > 0.9 and part["gbn"] < 0.5 and at[most, "ar"]["sent_again"] == 0 and
            part["gbn"] < part["sr"],
            f"over {most} paths go-back-N keeps {part['gbn']:.0%} of its goodput, selective repeat {part['sr']:.0%}, adaptive routing "
            f"{part['ar']:.0%}; late packets are retransmitted {at[most, 'gbn']['sent_again']}, {at[most, 'sr']['sent_again']} and "
            f"{at[most, 'ar']['sent_again']} times")
