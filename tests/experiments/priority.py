# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures a short message beside bulk flows, with and without a priority (manual, Priorities)."""

ASKS = "how long does a short message take beside bulk flows, and what does a priority help?"
WHERE = "simulation"

TURNS = {"in a circle": "C0", "weighted": "C1", "strict": "C2"}


def measure(run):
    return run.simulation("experiment-priority", *(("64", "100") if run.short else ()))


def draw(figure, rows):
    axes = figure.add_subplot(1, 1, 1)
    for turns, color in TURNS.items():
        for column, style, name in (("median_us", "-", "median"), ("percentile_99_us", "--", "99th percentile")):
            points = sorted((row["flows"], row[column]) for row in rows if row["turns"] == turns)
            axes.plot(*zip(*points), style, marker="o", color=color, label=f"{turns}, {name}")
    ticks = sorted({row["flows"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlabel("bulk flows of 1 MiB")
    axes.set_ylabel("microseconds for 64 bytes")
    axes.legend()


def conclude(rows):
    most = max(row["flows"] for row in rows)
    of = {row["turns"]: row for row in rows if row["flows"] == most}
    circle, strict = of["in a circle"], of["strict"]
    gain = circle["percentile_99_us"] / strict["percentile_99_us"]
    wire = strict["gigabits_per_second"] / circle["gigabits_per_second"]
    alone = min(row["flows"] for row in rows)
    grows = strict["percentile_99_us"] / next(row["percentile_99_us"] for row in rows
                                              if row["turns"] == "strict" and row["flows"] == alone)
    return (gain > 10 and grows < 1.5 and wire > 0.95,
            f"beside {most} bulk flows 64 bytes take {circle['median_us']:.0f} us (99th percentile {circle['percentile_99_us']:.0f} us) if "
            f"queue pairs are scheduled in a circle, {strict['median_us']:.1f} us ({strict['percentile_99_us']:.1f} us) with a strict priority; the wire carries "
            f"{wire:.0%} of its former rate")
