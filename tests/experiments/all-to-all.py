# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares the kinds of connections for all-to-all traffic of n nodes with p processes each, with few contexts in
the device (manual, Context cache).
"""

ASKS = "what do contexts cost where every process writes to every other one, and what cures it?"
WHERE = "simulation"

# Name, color, and contexts of a node
WAYS = {
    "rc": ("RC", "C0", lambda nodes, processes: nodes * processes * processes),
    "xrc": ("XRC", "C1", lambda nodes, processes: 2 * nodes * processes),
    "dc": ("DC", "C2", lambda nodes, processes: processes * (4 + 1 + 16)),
    "shared": ("shared", "C3", lambda nodes, processes: nodes * processes),
}
MODES = {"in order": "--", "stations": "-"}
CACHE, PROCESSES, NODES = 512, 8, 16    # as in tests/unit/experiment-all-to-all.c
MANY = 64                       # nodes: the most at which shared connections fit into the cache


def measure(run):
    return run.simulation("experiment-all-to-all", *(("3000", "8") if run.short else ()))


def over(rows, way, mode, column):
    """Returns (nodes or processes, row) in ascending order: column varies, the other number is the default."""
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
            axes.legend(fontsize=7, loc="lower left")


def shared_holds(rows, rate):
    """Checks shared connections. If carriers fit into the cache, their only cost is the frames: nearly four for a
    message in place of two. With more carriers they have their own fall. (Among few nodes an ACK is for several
    messages.)
    """
    fit = [row for row in rows if row["way"] == "shared" and row["contexts"] <= CACHE and row["nodes"] >= 8]
    beyond = [row for row in rows if row["way"] == "shared" and row["contexts"] > CACHE]
    plain = dict(over(rows, "rc", "in order", "nodes"))[1]["messages_per_second"] / 1e6
    return (all(not row["misses"] and 0.45 < row["messages_per_second"] / 1e6 / plain < 0.6 for row in fit) and
            all(row["misses"] and (row["messages_per_second"] / 1e6 / rate["shared", row["mode"]] > 0.9) == (row["mode"] == "stations")
                for row in beyond) and
            rate["shared", "in order"] > 2 * rate["xrc", "in order"] and rate["shared", "stations"] < 0.6 * rate["rc", "stations"])


def conclude(rows):
    """Checks that contexts equal the formulas, and that the rate falls when the cache is full. Shared connections
    fall last; DC and stations do not fall.
    """
    first, many = ({(way, mode): dict(over(rows, way, mode, "nodes"))[nodes] for way in WAYS for mode in MODES} for nodes in (1, MANY))
    part = {key: many[key]["messages_per_second"] / first[key]["messages_per_second"] for key in many}
    rate = {key: row["messages_per_second"] / 1e6 for key, row in many.items()}
    fit = [row for row in rows if row["way"] != "dc" and row["mode"] == "in order" and row["contexts"] <= CACHE]
    holds = (all(row["contexts"] == WAYS[row["way"]][2](row["nodes"], row["processes"]) for row in rows) and
             not any(row["misses"] for row in fit) and not any(row["dropped"] or row["timeouts"] for row in rows) and
             part["rc", "in order"] < 0.2 and part["xrc", "in order"] < 0.3 and part["rc", "stations"] > 0.8 and
             part["xrc", "stations"] > 0.7 and all(0.85 < part["dc", mode] < 1.1 for mode in MODES) and
             rate["rc", "in order"] < rate["xrc", "in order"] < rate["dc", "in order"] < rate["shared", "in order"] and
             shared_holds(rows, rate))
    contexts, rates = {way: many[way, "in order"]["contexts"] for way in WAYS}, {key: f"{value:.1f}" for key, value in rate.items()}
    return (holds,
            f"among {MANY} nodes of {PROCESSES} processes a node has {contexts['rc']} contexts with RC, {contexts['xrc']} with XRC, "
            f"{contexts['shared']} with shared connections and {contexts['dc']} with DC; with {CACHE} of them in the device it sends "
            f"{rates['rc', 'in order']}, {rates['xrc', 'in order']}, {rates['shared', 'in order']} and {rates['dc', 'in order']} million messages a "
            f"second where a miss holds up all, and {rates['rc', 'stations']}, {rates['xrc', 'stations']}, {rates['shared', 'stations']} and "
            f"{rates['dc', 'stations']} with reservation stations")
