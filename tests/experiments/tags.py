# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares tag matching by the adapter (manual, Tag matching) and by software: the processor time of the receiver."""

ASKS = "what does it save the processor when the adapter matches tags?"
WHERE = "guest"

WAYS = {"adapter": "by the adapter", "software": "by software"}


def measure(run):
    short = run.short
    return run.guest("tags.sh", "--nic", "qrnic", ROUNDS=15 if short else 60,
                     LISTS="0 1024" if short else "0 16 64 256 1024 3968",
                     SIZES="64 32768" if short else "64 512 4096 16384 65536")


def costs(rows, protocol, way, column, fixed):
    """Returns pairs of the column's value and microseconds; the other column is fixed."""
    other = "bytes" if column == "others" else "others"
    return sorted((row[column], row["microseconds"]) for row in rows
                  if row["protocol"] == protocol and row["way"] == way and row[other] == fixed)


def draw(figure, rows):
    axes = figure.add_subplot(1, 2, 1)
    for way, label in WAYS.items():
        lists, microseconds = zip(*costs(rows, "eager", way, "others", 64))
        axes.plot(range(len(lists)), microseconds, marker="o", label=label)
    axes.set_xticks(range(len(lists)), [str(others) for others in lists])
    axes.set_yscale("log")
    axes.set_xlabel("other buffers before the matching ones")
    axes.set_ylabel("microseconds of the processor for a message")
    axes.set_title("64 bytes, eager", fontsize=10)
    axes.legend()
    axes = figure.add_subplot(1, 2, 2)
    for protocol, style in (("eager", "-"), ("rendezvous", "--")):
        for way, label in WAYS.items():
            sizes, microseconds = zip(*costs(rows, protocol, way, "bytes", 0))
            axes.plot(sizes, microseconds, style, marker="o", label=f"{protocol}, {label}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size >> 10} Ki" if size >= 1024 else str(size) for size in sizes])
    axes.set_xlabel("bytes of a message")
    axes.set_title("a short list", fontsize=10)
    axes.legend()


def conclude(rows):
    by = {(row["protocol"], row["way"], row["others"], row["bytes"]): row["microseconds"] for row in rows}
    longest, largest = max(row["others"] for row in rows), max(row["bytes"] for row in rows)
    near = [by["eager", way, 0, 64] for way in WAYS]
    far = [by["eager", way, longest, 64] for way in WAYS]
    large = [by["eager", way, 0, largest] for way in WAYS]
    # Large messages are left out, because the time to post their reads is mostly the emulator's work during the
    # doorbell.
    read = [by["rendezvous", way, 0, 64] for way in WAYS]
    return (far[1] > 3 * far[0] and far[1] - near[1] > 3 * (far[0] - near[0]) and large[1] > 1.5 * large[0] and read[1] > 1.1 * read[0],
            f"for messages of 64 bytes the adapter leaves {near[0]:.1f} us of the processor each behind a short list and {far[0]:.1f} behind "
            f"{longest} other buffers, software takes {near[1]:.1f} and {far[1]:.1f}; for {largest >> 10} KiB {large[0]:.1f} instead of "
            f"{large[1]:.1f} us, since software copies; for a rendezvous of 64 bytes {read[0]:.1f} instead of {read[1]:.1f}, since it posts the reads")
