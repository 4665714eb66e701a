# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares dynamic connections (manual, Dynamic connections) with RC and XRC: contexts and memory, the first
message, pools.
"""

ASKS = "what do dynamic connections save in a large job, and what do they cost?"
WHERE = "guest and simulation"

PROCESSES, INITIATORS, RESPONDERS = 8, 4, 16    # of a node; of a process; of its target
LARGE = 1024                                    # nodes of a job whose figures are computed
IMAGE = 64                                      # bytes of a context in the memory of the node (CONTEXT_IMAGE_SIZE)
FRAME = 100                                     # ns of the wire that a frame takes in the simulation

WAYS = {"rc": "C0", "xrc": "C1", "dc": "C2"}
CONTEXTS = {
    "rc": lambda nodes: nodes * PROCESSES * PROCESSES,
    "xrc": lambda nodes: 2 * nodes * PROCESSES,
    "dc": lambda nodes: PROCESSES * (INITIATORS + 1 + RESPONDERS),
}
MESSAGES = {"standing": "on a connection", "half handshake": "first, half handshake", "full handshake": "first, full handshake"}


def measure(run):
    rows = run.guest("dc.sh", "--nic", "qrnic,max-qp=2048", NODES="2 4 8" if run.short else "2 4 8 16", PROCESSES=PROCESSES,
                     INITIATORS=INITIATORS, RESPONDERS=RESPONDERS)
    rows += computed(rows)
    return rows + run.simulation("experiment-dc", *(("500", "4") if run.short else ()))


def values(rows, part, way, unit, how="measured"):
    return {row["at"]: row["value"] for row in rows
            if (row["part"], str(row["way"]), row["unit"], row["how"]) == (part, str(way), unit, how)}


def memory_line(rows, way):
    """Returns a function: number of nodes to bytes of memory. The memory of processes grows along a line through the
    smallest and the largest measured job. The memory of contexts is computed.
    """
    measured = values(rows, "contexts", way, "bytes")
    first, last = min(measured), max(measured)
    step = (measured[last] - measured[first]) / (last - first)
    return lambda nodes: measured[first] + (nodes - first) * step + IMAGE * CONTEXTS[way](nodes)


def computed(rows):
    made = []
    for way, contexts in CONTEXTS.items():
        memory = memory_line(rows, way)
        for nodes in [2 << step for step in range(14)]:
            for unit, value in (("contexts", contexts(nodes)), ("memory", round(memory(nodes)))):
                made.append({"part": "contexts", "way": way, "at": nodes, "unit": unit, "value": value, "how": "computed"})
    return made


def lines(axes, rows, part, ways, unit, *, label):
    """Draws curves. ways: each has name, color and style; part may depend on it."""
    for way, name, color, style in ways:
        points = sorted(values(rows, part, way, unit).items())
        axes.plot(*zip(*points), style, marker="o", color=color, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xlabel(label)


def draw_contexts(axes, rows, unit, label):
    for way, color in WAYS.items():
        axes.plot(*zip(*sorted(values(rows, "contexts", way, unit, "computed").items())), color=color, label=way.upper())
        measured = values(rows, "contexts", way, "contexts" if unit == "contexts" else "bytes")
        contexts = values(rows, "contexts", way, "contexts")
        points = [(at, value + (IMAGE * contexts[at] if unit == "memory" else 0)) for at, value in sorted(measured.items())]
        axes.plot(*zip(*points), "o", color=color)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(f"nodes of {PROCESSES} processes (points: measured)")
    axes.set_ylabel(label)
    axes.legend()


def pools(rows, part):
    return sorted({row["way"] for row in rows if row["part"] == part})


def draw(figure, rows):
    figure.set_size_inches(10, 11)
    draw_contexts(figure.add_subplot(3, 2, 1), rows, "contexts", "contexts of a node")
    draw_contexts(figure.add_subplot(3, 2, 2), rows, "memory", "bytes of queues and contexts of a node")
    axes = figure.add_subplot(3, 2, 3)
    lines(axes, rows, "latency", [(way, name, f"C{3 + number}", "-") for number, (way, name) in enumerate(MESSAGES.items())],
          "ns", label="ns of the way from node to node")
    axes.set_yscale("log")
    axes.set_ylabel("ns until a message is there")
    axes.legend()
    for place, popularity in ((4, "popular"), (5, "even")):
        axes, part = figure.add_subplot(3, 2, place), f"initiators {popularity}"
        lines(axes, rows, part, [(pool, f"{pool} initiators", f"C{number}", "-") for number, pool in enumerate(pools(rows, part))],
              "hits", label=f"destinations, {'some more popular than others' if popularity == 'popular' else 'all alike'}")
        axes.set_ylabel("part of messages on a connection")
        axes.legend()
    axes = figure.add_subplot(3, 2, 6)
    lines(axes, rows, "responders", [(pool, f"{pool} responders", f"C{number}", "-")
                                     for number, pool in enumerate(pools(rows, "responders"))], "hits", label="initiators that come")
    axes.set_ylabel("part of CONNECTs accepted")
    axes.legend()


def contexts_hold(rows):
    """Checks the measured values against the formulas: contexts are equal, memory nearly."""
    for way in WAYS:
        memory = memory_line(rows, way)
        contexts = values(rows, "contexts", way, "contexts")
        for nodes, used in values(rows, "contexts", way, "bytes").items():
            if contexts[nodes] != CONTEXTS[way](nodes) or abs(used + IMAGE * contexts[nodes] - memory(nodes)) > 0.1 * memory(nodes):
                return False
    return True


def handshakes_hold(rows):
    standing, half, full = (values(rows, "latency", way, "ns") for way in MESSAGES)
    return all(half[way] - standing[way] <= 2 * FRAME and abs(full[way] - 3 * standing[way]) <= 4 * FRAME for way in standing)


def pools_hold(rows):
    """Checks the hit rates. A pool with room for all its users always hits. In a smaller pool evenly used initiators
    have the hit rate of their number.
    """
    for pool in pools(rows, "responders"):
        accepted = values(rows, "responders", pool, "hits")
        if min(part for comers, part in accepted.items() if comers <= pool) < 1:
            return False
    for pool in pools(rows, "initiators even"):
        for popularity in ("even", "popular"):
            hits = values(rows, f"initiators {popularity}", pool, "hits")
            if min(part for places, part in hits.items() if places <= pool) < 1:
                return False
        if any(abs(part - min(1, pool / places)) > 0.07 for places, part in values(rows, "initiators even", pool, "hits").items()):
            return False
    return True


def conclude(rows):
    rc, xrc, dc = (values(rows, "contexts", way, "contexts", "computed")[LARGE] for way in WAYS)
    memory = [values(rows, "contexts", way, "memory", "computed")[LARGE] >> 10 for way in WAYS]
    standing, half, full = (values(rows, "latency", way, "ns")[1000] for way in MESSAGES)
    most = max(values(rows, "responders", 16, "hits"))
    popular, accepted = values(rows, "initiators popular", 16, "hits")[most], values(rows, "responders", 16, "hits")[most]
    holds = (contexts_hold(rows) and rc > 300 * dc and xrc > 90 * dc and memory[0] > 100 * memory[2] and handshakes_hold(rows)
             and pools_hold(rows) and popular > 3 * 16 / most and accepted < 0.5)
    return (holds,
            f"in a job of {LARGE} nodes with {PROCESSES} processes each node holds {rc} contexts with RC, {xrc} with XRC and {dc} with DC, and "
            f"{memory[0]}, {memory[1]} and {memory[2]} KiB; a first message takes {half} ns by the half handshake and {full} ns by the full one, "
            f"and a message on a connection {standing} ns; 16 initiators for {most} destinations have a connection for {popular:.0%} of the messages, and "
            f"16 responders for {most} initiators reject {1 - accepted:.0%}")
