# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares strided keys (manual, Indirect keys) with lists of scatter/gather elements and packing by the CPU."""

ASKS = "when does a strided key beat lists of SGEs, and when packing by the CPU?"
WHERE = "guest"

WAYS = {"key": "strided key", "lists": "lists of 30 SGEs", "cpu": "packed by the CPU"}


def measure(run):
    short = run.short
    # A message takes at least 40 us, and the fastest round counts. The number of rounds is high, so that some of them
    # are free of other work of the host.
    return run.guest("keys.sh", "--nic", "qrnic", ROUNDS=200 if short else 400, LARGEST=65536 if short else 1 << 20,
                     MATRIX=64 if short else 256)


def largest(rows):
    """Returns the size of the longest messages of scattered blocks."""
    return max(row["message"] for row in rows if row["direction"] != "transpose")


def lines(axes, rows, column, ways):
    for way in ways:
        points = sorted((row[column], row["message"] / row["microseconds"]) for row in rows if row["way"] == way)
        axes.plot(*zip(*points), marker="o", label=WAYS[way])
    ticks = sorted({row[column] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [f"{tick >> 10} Ki" if tick >= 8192 else str(tick) for tick in ticks])
    axes.set_ylabel("MB/s")
    axes.legend()


def draw(figure, rows):
    for place, direction in enumerate(("send", "receive"), 1):
        axes = figure.add_subplot(1, 3, place)
        lines(axes, [row for row in rows if row["direction"] == direction and row["message"] == largest(rows)], "block", WAYS)
        axes.set_xlabel("bytes of a block")
        axes.set_title(f"{direction}, {largest(rows) >> 10} KiB", fontsize=10)
    axes = figure.add_subplot(1, 3, 3)
    lines(axes, [row for row in rows if row["direction"] == "transpose"], "message", ("key", "cpu"))
    axes.set_xlabel("bytes of the matrix")
    axes.set_title("transposition, 8-byte elements", fontsize=10)


def factors(rows, way, block):
    """Returns the time of this method divided by the time of the key, in each direction, for the largest message."""
    times = {(row["direction"], row["way"]): row["microseconds"] for row in rows
             if row["block"] == block and row["message"] == largest(rows)}
    return [times[direction, way] / times[direction, "key"] for direction in ("send", "receive")]


def transposed(rows):
    """Returns the time of the CPU divided by the time of the key for the largest matrix."""
    size = max(row["message"] for row in rows if row["direction"] == "transpose")
    times = {row["way"]: row["microseconds"] for row in rows if row["direction"] == "transpose" and row["message"] == size}
    return times["cpu"] / times["key"]


def conclude(rows):
    lists = factors(rows, "lists", 8) + factors(rows, "lists", 64)
    small, large, slower = factors(rows, "cpu", 8), factors(rows, "cpu", 512), 1 / transposed(rows)
    # Only the trend is a conclusion: the larger the block, the more the key gains on packing. The faster method for one
    # block depends on the speed of the guest's processor and on the host's load.
    return (min(lists) > 1 and max(small) < min(large) and slower > 1,
            f"for blocks of 8 and 64 bytes one request with a strided key is {min(lists):.1f} to {max(lists):.1f} times as fast "
            f"as lists of SGEs; it is {min(large):.1f} to {max(large):.1f} times as fast as packing for blocks of 512 bytes, "
            f"and {min(small):.2f} to {max(small):.2f} times for blocks of 8, where copying gains on so many accesses; a matrix is "
            f"transposed {slower:.1f} times as fast by the CPU, which is free while the key does it")
