# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures the cost of loss for each method of recovery (manual, Selective repeat; Link retransmission)."""

ASKS = "what does loss cost with each method of recovery?"
WHERE = "simulation"

NAMES = {"limit": ("theoretical limit", "C7", "--"), "link": ("link retransmission", "C2", "-"),
         "sr": ("selective repeat", "C0", "-"), "gbn": ("go-back-N", "C3", "-")}


def measure(run):
    return run.simulation("experiment-loss", *(("20",) if run.short else ()))


def draw(figure, rows):
    axes = figure.add_subplot(1, 1, 1)
    for recovery, (name, color, style) in NAMES.items():
        points = sorted((row["loss_percent"], row["goodput_gbps"]) for row in rows if row["recovery"] == recovery)
        axes.plot(*zip(*points), style, marker="" if recovery == "limit" else "o", color=color, label=name)
    axes.set_xscale("symlog", linthresh=0.01)
    ticks = (0, 0.01, 0.1, 1, 5)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(0)
    axes.set_xlabel("frames lost, percent")
    axes.set_ylabel("goodput, Gb/s")
    axes.legend()


def conclude(rows):
    def at(loss, recovery):
        return next(row["goodput_gbps"] for row in rows if (row["loss_percent"], row["recovery"]) == (loss, recovery))

    limit = at(1, "limit")
    parts = {recovery: at(1, recovery) / limit for recovery in ("gbn", "sr", "link")}
    return (parts["sr"] >= 0.77 and parts["link"] >= 0.95 and 0.15 <= parts["gbn"] <= 0.35 and
            all(at(0, recovery) > 0.99 * at(0, "limit") for recovery in parts),
            f"with 1 % of the frames lost go-back-N keeps {parts['gbn']:.0%} of the theoretical limit, selective repeat {parts['sr']:.0%}, "
            f"link retransmission {parts['link']:.0%}; with 0.01 % go-back-N keeps {at(0.01, 'gbn') / at(0.01, 'limit'):.0%}")
