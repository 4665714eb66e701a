"""Command line of tools/bench.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import argparse
import os
import subprocess
import sys
import time

from guestlib import host

from . import engine, measure, metrics, plots, results, table
from .results import BadFile

DESCRIPTION = """\
Compares qrnic with Soft-RoCE (rdma_rxe over virtio-net) in the same guests: public programs
(perftest, cmtime, ...) run over one device after the other.

Two guests with one processor each have both devices, and a third one, with two processors, too (two programs that
poll need one each). The wire between two is "-netdev dgram" or "-netdev stream", or for qrnic a cable; the MTU is
1500 and 9000. The table shows medians of all rounds with their minimum and maximum, the ratio (above 1: qrnic is
better), and the goal if there is one: a ratio, or the upper limit of the figure. If a name precedes the second figure, the
ratio is to that. Compare absolute figures only on the same idle machine.
Scopes: cable, dgram and stream are wires between two guests, each of which has its own processor of the host;
within is one guest that talks to itself.

With --provider the bench measures only the cost of each post and poll in the library libqrnic, on this machine without
guest, device and kernel. The table has the minimum and the median of the cycles of the processor's time stamp counter,
and the instructions, for each work request or completion. On a busy machine use the instructions.

With --engine the bench counts only the instructions that the device's engine executes for each message, by callgrind on
a simulated wire. The counts do not depend on the load of the machine.

"""

EPILOG = """\
Exit status: 0 if everything was measured, 1 if the guests could not be built or a file could not be written, 2 for a
wrong option, 3 if figures are missing (they are named below the table, and shown as "-"), 130 if interrupted.
A goal that is not reached is no failure.
"""

INCOMPLETE = 3
ACCELERATORS = ("auto", "tcg", "kvm")


def metric_help():
    lines = ["Names for --metric (* by default), and the seconds for one round:\n"]
    for one in metrics.MEASUREMENTS:
        runs = len(metrics.plan([one], metrics.SCOPES)) * len(one.devices)
        lines.append(f"  {'*' if one.default else ' '} {one.name:15} {runs * one.seconds:4.0f} s  {one.explain or one.figures[0].title}"
                     + ("" if one.scopes == metrics.ALL else f" ({', '.join(one.scopes)})"))
    return "\n".join(lines) + "\n\n"


def parser():
    names = [one.name for one in metrics.MEASUREMENTS]
    made = argparse.ArgumentParser(prog="tools/bench", description=DESCRIPTION, epilog=metric_help() + EPILOG, allow_abbrev=False,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    add("--scope", action="append", choices=list(metrics.SCOPES), help="measure only there (repeat)")
    add("--metric", action="append", choices=names, metavar="NAME", help="measure only this (repeat), see below")
    add("--all", action="store_true", help="also the long metrics (two hours with three rounds)")
    add("--no-boot", action="store_true", help="leave out the time to boot")
    add("--accel", default=measure.accel_default(), choices=ACCELERATORS,
        help="default auto: KVM where it boots the guest's kernel")
    add("--no-build", action="store_true", help="measure the builds in the cache")
    add("--json", metavar="FILE", help="write date, commit, machine, versions, the ratios with their spreads, and the figures: "
        + ", ".join(results.KEYS))
    add("--csv", metavar="FILE", help="write the figures with the same columns")
    add("--plots", metavar="DIR", help="draw each curve (an hour with three rounds: size-bandwidth, size-latency, qps-rate, guests-bandwidth) as a PNG; "
        "without --metric and --all these metrics are measured, too (needs python3-matplotlib: tools/deps plots)")
    add("--provider", action="store_true", help="measure posts and polls in the library itself (15 s), nothing else")
    add("--engine", action="store_true", help="count the engine's instructions for each message (20 s), nothing else")
    add("--compare", metavar="FILE", help="compare with the figures of an earlier --json, and flag differences outside of the noise "
        "of both (needs several rounds)")
    add("--read", metavar="FILE", help="measure nothing: the figures are those of an earlier --json")
    return made


def check(args, made):
    if args.accel not in ACCELERATORS:
        made.error(f"QRNIC_ACCEL={args.accel} must be one of {', '.join(ACCELERATORS)}")
    if not 1 <= args.rounds <= 100:
        made.error("--rounds must be from 1 to 100")
    if args.read and (args.metric or args.scope or args.all):
        made.error("--read measures nothing: --metric, --scope and --all have no meaning with it")
    if (args.provider or args.engine) and any((args.metric, args.scope, args.all, args.read, args.json, args.csv, args.plots,
                                               args.compare, args.provider and args.engine)):
        made.error("--provider and --engine permit no option for the measurements in guests or for their files")
    for option in ("json", "csv"):
        path = getattr(args, option)
        if path and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK):
            made.error(f"--{option} {path}: its directory is not there, or cannot be written to")


def plan_of(args, made):
    wanted = [one for one in metrics.chosen(args.metric, args.all, bool(args.plots)) if not (args.no_boot and one.name == "boot")]
    plan = metrics.plan(wanted, [scope for scope in metrics.SCOPES if not args.scope or scope in args.scope])
    if not plan:
        made.error("nothing to measure: no --metric that was named belongs to a --scope that was named (see --help)")
    return plan


def plan_read(summaries):
    """Returns the plan of an earlier run, without measurements that this version does not have."""
    there = {(scope, mtu, metric) for scope, mtu, metric, _ in summaries}
    return [(scope, mtu, one) for scope, mtu, one in metrics.plan(metrics.MEASUREMENTS, metrics.SCOPES)
            if any((scope, mtu, figure.name) in there for figure in one.figures)]


def show(summaries, plan, args, before, rounds, circumstances=None):
    """Prints the table and writes the requested files; returns the keys of missing figures."""
    print("\n" + "\n".join(table.table(summaries, plan, rounds)))
    missing = results.missing(summaries, plan)
    if missing:
        print(f"\nnot measured ({len(missing)}):")
        print("\n".join(f"  {scope} MTU {mtu} {metric} {device}" for scope, mtu, metric, device in missing))
    if before is not None:
        print(f"\nbeside {args.compare} (better, WORSE: outside of the noise of both runs)")
        print("\n".join(table.comparison(before, summaries, None if args.read else plan)))
        if all(summary.min == summary.max for summary in summaries.values()):
            print("One round has no noise to compare: measure with --rounds 3 or more.")
    sys.stdout.flush()
    if args.json:
        results.write_json(args.json, summaries, results.about(args.accel, rounds) if circumstances is None else circumstances)
    if args.csv:
        results.write_csv(args.csv, summaries)
    if args.plots:
        paths = plots.write(args.plots, summaries)
        print("\n".join(["", *paths]) if paths else "\nno curve was measured: nothing to draw", flush=True)
    return missing


def run(args, made):
    before = results.read_json(args.compare) if args.compare else None
    if args.plots:
        measure.need("plots")
    if args.read:
        summaries, circumstances = results.read_run(args.read)
        show(summaries, plan_read(summaries), args, before, 0, circumstances)
        return 0
    plan = plan_of(args, made)
    if not args.no_build:
        measure.build()
    start = time.monotonic()

    def say(text):
        print(f"bench: {time.monotonic() - start:4.0f} s: {text}", file=sys.stderr, flush=True)

    values = results.Values()
    bench = measure.Bench(args.rounds, args.accel, values, say)
    say(f"{measure.count(plan, args.rounds)} figures, about {measure.minutes(measure.expected_seconds(plan, args.rounds))}")
    try:
        bench.run(plan)
    except KeyboardInterrupt:
        say("interrupted; what there is so far:")
        show(values.summaries(), plan, args, before, args.rounds)
        return 130
    return INCOMPLETE if show(values.summaries(), plan, args, before, args.rounds) else 0


def main(arguments):
    made = parser()
    args = made.parse_args(arguments)
    check(args, made)
    if (args.provider or args.engine) and host.installed():
        print("bench: --provider and --engine need the source tree of qrnic, which is not installed: clone it", file=sys.stderr)
        return 2
    if args.provider:
        return subprocess.run([measure.TOOLS / "guest-build-provider", "--cost"], stdin=subprocess.DEVNULL, check=False).returncode
    if args.engine:
        return engine.main()
    measure.heed_signals()
    try:
        return run(args, made)
    except BadFile as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
