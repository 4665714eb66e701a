# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares memory on demand (manual, Paging on demand) with pinned memory: registration, and the first access to a
page.
"""

ASKS = "what does registration cost with pages pinned and on demand, and what the first access?"
WHERE = "guest"

REGIONS = {"pinned": "pinned", "touched": "pinned, in memory before", "explicit": "on demand, explicit", "implicit": "on demand, implicit"}
ACCESSES = {"first": "first", "prefetched": "first, prefetched", "later": "later"}
SIDES = {"read": "the device reads", "write": "the device writes"}


def measure(run):
    short = run.short
    return run.guest("odp.sh", "--nic", "qrnic", "--memory", "512" if short else "2048", LARGEST=64 if short else 1024,
                     PAGES=64 if short else 512)


def regions(rows, kind):
    return sorted((row["mib"], row["microseconds"], row["pinned_kib"]) for row in rows
                  if row["what"] == "register" and row["kind"] == kind)


def times(rows, kind):
    return {row["what"]: row["microseconds"] for row in rows if row["what"] in SIDES and row["kind"] == kind}


def draw(figure, rows):
    axes = figure.add_subplot(1, 2, 1)
    for kind, label in REGIONS.items():
        sizes, microseconds, _ = zip(*regions(rows, kind))
        axes.plot(sizes, microseconds, marker="o", label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("MiB")
    axes.set_ylabel("microseconds")
    axes.set_title("registration", fontsize=10)
    axes.legend()
    axes = figure.add_subplot(1, 2, 2)
    for place, (kind, label) in enumerate(ACCESSES.items()):
        found = times(rows, kind)
        axes.bar([side + 0.27 * (place - 1) for side in range(len(SIDES))], [found[side] for side in SIDES], 0.25, label=label)
    axes.set_yscale("log")
    axes.set_xticks(range(len(SIDES)), SIDES.values())
    axes.set_ylabel("microseconds for 64 bytes of a page")
    axes.set_title("access", fontsize=10)
    axes.legend()


def conclude(rows):
    mib, pinned, kib = regions(rows, "pinned")[-1]
    touched = regions(rows, "touched")[-1][1]
    _, explicit, explicit_kib = regions(rows, "explicit")[-1]
    _, implicit, implicit_kib = regions(rows, "implicit")[-1]
    first, later, ready, prefetch = (times(rows, kind) for kind in ("first", "later", "prefetched", "prefetch"))
    holds = (kib == mib * 1024 and explicit_kib == implicit_kib == 0 and pinned > 10 * max(explicit, implicit) and
             touched > 2 * max(explicit, implicit) and
             all(first[side] > 1.5 * later[side] and ready[side] < first[side] / 1.5 and prefetch[side] < first[side] for side in SIDES))
    return (holds,
            f"{mib} MiB are registered in {pinned / 1000:.1f} ms and pinned ({kib >> 10} MiB), in "
            f"{touched / 1000:.1f} ms if their pages were in memory before, on demand in {explicit / 1000:.2f} ms, "
            f"implicitly in {implicit / 1000:.2f} ms, with {max(explicit_kib, implicit_kib)} KiB pinned; the first access to a page "
            f"costs {first['read'] / later['read']:.1f} times a later one where the device reads, "
            f"{first['write'] / later['write']:.1f} times where it writes, which waits for an RNR NAK's timer, too; after a prefetch, which takes "
            f"{max(prefetch.values()):.1f} us a page, {ready['read'] / later['read']:.1f} and {ready['write'] / later['write']:.1f} times")
