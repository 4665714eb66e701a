# SPDX-License-Identifier: GPL-2.0-or-later
"""All-to-all of n nodes with p processes each, by the kind of connection, with few contexts in the device (manual, Context cache)."""

ASKS = "what do contexts cost where every process writes to every other one, and what cures it?"
WHERE = "simulation"

# Name, color, and contexts of a node
WAYS = {
    "rc": ("RC", "C0", lambda nodes, processes: nodes * processes * processes),
    "xrc": ("XRC", "C1", lambda nodes, processes: 2 * nodes * processes),
    "dc": ("DC", "C2", lambda nodes, processes: processes * (4 + 1 + 16)),
}
MODES = {"in order": "--", "stations": "-"}
CACHE, PROCESSES, NODES = 512, 8, 16    # as in tests/unit/experiment-all-to-all.c


def measure(run):
    return run.simulation("experiment-all-to-all", *(("3000", "8") if run.short else ()))


def over(rows, way, mode, column):
    """(nodes or processes, row) in their order: column varies, the other one is as usual"""
    usual = {"nodes": ("processes", PROCESSES), "processes": ("nodes", NODES)}[column]
    return sorted({row[column]: row for row in rows if (row["way"], row["mode"]) == (way, mode) and row[usual[0]] == usual[1]}.items())


def ticks(axes, rows, column):
    values = sorted({at for way in WAYS for at, _ in over(rows, way, "in order", column)})
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(at) for at in values])


def draw(figure, rows):
    figure.set_size_inches(12, 4.5)
    axes = figure.add_subplot(1, 3, 1)
    for way, (name, color, _) in WAYS.items():
        axes.plot(*zip(*((at, row["contexts"]) for at, row in over(rows, way, "in order", "nodes"))), marker="o", color=color, label=name)
    axes.axhline(CACHE, color="C7", linestyle=":", label="the cache")
    axes.set_yscale("log", base=2)
    axes.set_xlabel(f"nodes of {PROCESSES} processes")
    axes.set_ylabel("contexts of a node")
    ticks(axes, rows, "nodes")
    axes.legend()
    for place, column, label in ((2, "nodes", f"nodes of {PROCESSES} processes"), (3, "processes", f"processes of each of {NODES} nodes")):
        axes = figure.add_subplot(1, 3, place)
        for way, (name, color, _) in WAYS.items():
            for mode, style in MODES.items():
                points = [(at, row["messages_per_second"] / 1e6) for at, row in over(rows, way, mode, column)]
                axes.plot(*zip(*points), style, marker="o", color=color, label=f"{name}, {mode}")
        axes.set_ylim(0)
        axes.set_xlabel(label)
        axes.set_ylabel("million messages a second")
        ticks(axes, rows, column)
        if place == 2:
            axes.legend(fontsize=8)


def conclude(rows):
    """Contexts are what the formulas say; behind the cache's size lies the cliff, and neither DC nor stations know of it."""
    last = {(way, mode): over(rows, way, mode, "nodes")[-1][1] for way in WAYS for mode in MODES}
    first = {(way, mode): over(rows, way, mode, "nodes")[0][1] for way in WAYS for mode in MODES}
    part = {key: last[key]["messages_per_second"] / first[key]["messages_per_second"] for key in last}
    rate = {key: row["messages_per_second"] / 1e6 for key, row in last.items()}
    fit = [row for row in rows if row["way"] != "dc" and row["mode"] == "in order" and row["contexts"] <= CACHE]
    holds = (all(row["contexts"] == WAYS[row["way"]][2](row["nodes"], row["processes"]) for row in rows) and
             not any(row["misses"] for row in fit) and not any(row["dropped"] or row["timeouts"] for row in rows) and
             part["rc", "in order"] < 0.2 and part["xrc", "in order"] < 0.3 and part["rc", "stations"] > 0.8 and
             part["xrc", "stations"] > 0.7 and all(0.85 < part["dc", mode] < 1.1 for mode in MODES) and
             rate["rc", "in order"] < rate["xrc", "in order"] < rate["dc", "in order"])
    most = last["rc", "in order"]
    return (holds,
            f"among {most['nodes']} nodes of {PROCESSES} processes a node has {most['contexts']} contexts with RC, "
            f"{last['xrc', 'in order']['contexts']} with XRC and {last['dc', 'in order']['contexts']} with DC; with {CACHE} of them in the device it "
            f"sends {rate['rc', 'in order']:.1f}, {rate['xrc', 'in order']:.1f} and {rate['dc', 'in order']:.1f} million messages a second where a "
            f"miss holds up all, and {rate['rc', 'stations']:.1f}, {rate['xrc', 'stations']:.1f} and {rate['dc', 'stations']:.1f} with reservation "
            f"stations")
