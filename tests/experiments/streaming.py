# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares streaming receive queues (manual, Streaming receive) with queues that have one buffer for each message."""

ASKS = "what do buffers for many messages save, if messages may be long and most are short?"
WHERE = "guest"

WAYS = {"streaming": "many messages in 1 MiB", "ordinary": "one message in 64 KiB"}


def measure(run):
    return run.guest("streaming.sh", "--nic", "qrnic", TOTAL=(3 if run.short else 12) << 20)


def used(row):
    """Returns the part of the memory of used buffers that messages occupy."""
    return 1 - row["unused"] / row["memory"] if row["memory"] else 0


def reads(row):
    return row["wqes"] / row["messages"]


def draw(figure, rows):
    for place, (value, label, log) in enumerate(((used, "part of receive memory used", False),
                                                 (reads, "receive WQEs read for each message", True)), 1):
        axes = figure.add_subplot(1, 2, place)
        for way, name in WAYS.items():
            points = sorted((row["longest"], value(row)) for row in rows if row["way"] == way)
            axes.plot(*zip(*points), marker="o", label=name)
        ticks = sorted({row["longest"] for row in rows})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{tick >> 10} Ki" if tick >= 1024 else str(tick) for tick in ticks])
        if log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.02)
        axes.set_xlabel("longest message of the mix, which begins with 64 bytes")
        axes.set_ylabel(label)
        axes.legend()


def conclude(rows):
    by = {(row["longest"], row["way"]): row for row in rows}
    longest, shortest = max(row["longest"] for row in rows), min(row["longest"] for row in rows)
    mixed, plain = by[longest, "streaming"], by[longest, "ordinary"]
    least = min(used(row) for row in rows if row["way"] == "streaming")
    fewer = [reads(by[size, "ordinary"]) / reads(by[size, "streaming"]) for size in sorted({row["longest"] for row in rows})]
    return (least > 0.6 and used(mixed) > 4 * used(plain) and min(fewer) > 10,
            f"of the memory of used-up buffers {100 * used(mixed):.0f} percent are of messages from 64 bytes to 64 KiB, with one buffer for "
            f"each {100 * used(plain):.0f} percent; for messages up to {shortest} bytes {100 * used(by[shortest, 'streaming']):.0f} "
            f"and {100 * used(by[shortest, 'ordinary']):.1f}; {fewer[-1]:.0f} to {fewer[0]:.0f} times fewer receive WQEs are read")
