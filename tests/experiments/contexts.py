# SPDX-License-Identifier: GPL-2.0-or-later
"""Message rate against connections, with few contexts in the device (manual, Context cache)."""

ASKS = "what do many connections cost when the device keeps few contexts, and what cures it?"
WHERE = "simulation"

MODES = {"in order": "--", "stations": "-"}


def measure(run):
    return run.simulation("experiment-contexts", *(("4096", "4000") if run.short else ()))


def draw(figure, rows):
    axes = figure.add_subplot(1, 1, 1)
    for color, cache in enumerate(sorted({row["cache"] for row in rows})):
        for mode, style in MODES.items():
            points = [(row["connections"], row["messages_per_second"] / 1e6) for row in rows
                      if row["cache"] == cache and row["mode"] == mode]
            axes.plot(*zip(*sorted(points)), style, marker="o", color=f"C{color}", label=f"{cache} contexts, {mode}")
    ticks = sorted({row["connections"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick >> 10} Ki" if tick >= 1024 else str(tick) for tick in ticks])
    axes.set_xlabel("connections")
    axes.set_ylabel("million messages a second")
    axes.set_ylim(bottom=0)
    axes.legend()


def least(rows, mode, cache):
    return min(row["messages_per_second"] for row in rows if row["mode"] == mode and row["cache"] == cache)


def conclude(rows):
    peak = max(row["messages_per_second"] for row in rows)
    small = min(row["cache"] for row in rows)
    cliff, cure = (least(rows, mode, small) / peak for mode in ("in order", "stations"))
    return (cliff < 0.2 and cure > 0.9,
            f"with {small} contexts in the device the message rate over {max(row['connections'] for row in rows)} connections falls to "
            f"{cliff:.0%} of its peak where a miss holds up all, and stays at {cure:.0%} with reservation stations")
