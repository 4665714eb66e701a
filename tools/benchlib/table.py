"""The table of a run, with ratios and goals, and the comparison of two runs.

SPDX-License-Identifier: GPL-2.0-or-later
"""

from . import metrics

NAMES = {"qrnic": "qrnic", "soft-roce": "Soft-RoCE", "virtio-net": "virtio-net", "host": "host", "none": "no adapter", "inside": "inside QEMU",
         "pf": "PF"}
ABSENT = "-"


def number(value):
    """Formats a value with three significant digits."""
    if value >= 100 or value == 0:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def shown(summary):
    """Formats the median, and the noise if there are several rounds."""
    if summary is None:
        return ABSENT
    if summary.min == summary.max:
        return number(summary.median)
    return f"{number(summary.median)} ({number(summary.min)}..{number(summary.max)})"


def ratio(ours, theirs, smaller):
    """Returns how much better our figure is, or None if a figure is missing."""
    if ours is None or theirs is None or ours.median <= 0 or theirs.median <= 0:
        return None
    return theirs.median / ours.median if smaller else ours.median / theirs.median


def times(value):
    return ABSENT if value is None else f"{value:.2f}x" if value < 10 else f"{value:.1f}x" if value < 100 else f"{value:.0f}x"


def goals_of(figure, scope, against):
    return [goal for goal in metrics.GOALS if goal.figure == figure.name and scope in goal.scopes and goal.against == against]


def reached(goal, ours, theirs, smaller):
    """Returns true if the goal is reached, None if a figure is missing."""
    if ours is None:
        return None
    if goal.kind == "most":
        return ours.median <= goal.value
    if theirs is None:
        return None
    if goal.kind == "over":
        return ours.median - theirs.median <= goal.value
    value = ratio(ours, theirs, smaller)
    return None if value is None else value >= goal.value


def goal_text(goal, unit):
    if goal.kind == "most":
        return f"{goal.value:g} {unit}"
    return f"+{goal.value:g} {unit}" if goal.kind == "over" else f"{goal.value:g}x"


def line(title, unit, ours, theirs, factor, goal, verdict):
    return f"{title:51} {unit:>10} {ours:>24} {theirs:>24} {factor:>8} {goal:>12} {verdict}".rstrip()


def figure_lines(summaries, scope, mtu, figure):
    ours = summaries.get((scope, mtu, figure.name, metrics.OURS))
    for device, other, name in figure.against:
        theirs = summaries.get((scope, mtu, other or figure.name, device))
        goals = goals_of(figure, scope, other or device)
        verdicts = [reached(goal, ours, theirs, figure.smaller) for goal in goals]
        verdict = "" if not goals else ABSENT if None in verdicts else "reached" if all(verdicts) else "missed"
        beside = shown(theirs)
        if name or device != "soft-roce":
            beside = f"{name or NAMES.get(device, device)}: {beside}"
        yield line("  " + figure.title, figure.unit, shown(ours), beside, times(ratio(ours, theirs, figure.smaller)),
                   ", ".join(goal_text(goal, figure.unit) for goal in goals), verdict)


def table(summaries, plan, rounds):
    """Returns the lines of the table: a block for each scope and MTU of the plan."""
    head = f"median of {rounds} (minimum..maximum)" if rounds > 1 else "one round"
    lines = [line(head, "", "qrnic", "Soft-RoCE", "ratio", "goal", "")]
    block = None
    for scope, mtu, measurement in plan:
        if (scope, mtu) != block:
            block = scope, mtu
            lines.append(f"{metrics.SCOPES[scope][0]}, MTU {mtu}")
        for figure in measurement.figures:
            if metrics.OURS in measurement.devices:
                lines += figure_lines(summaries, scope, mtu, figure)
    return lines


def comparison(before, now, plan=None):
    """Returns lines that compare this run with an earlier one, marked if the ranges of the two do not overlap. A
    figure of the earlier run that is missing now is listed if the plan has it.
    """
    wanted = plan and {(scope, mtu, figure.name) for scope, mtu, measurement in plan for figure in measurement.figures}
    gone = [key for key in before if key not in now and (wanted is None or key[:3] in wanted)]
    lines = [f"{'scope   MTU   metric                   device':50} {'unit':>10} {'before':>24} {'now':>24} {'ratio':>8}"]
    known = metrics.figures()
    for key in gone + list(now):
        scope, mtu, metric, device = key
        figure = known.get(metric)
        smaller = bool(figure and figure.smaller)
        old, new = before.get(key), now.get(key)
        mark = ""
        if old and new and not old.overlaps(new):
            better = (new.median < old.median) == smaller
            mark = "  better" if better else "  WORSE"
        lines.append(f"{scope:7} {mtu:<5} {metric:24} {device:11} {figure.unit if figure else '':>10} {shown(old):>24} "
                     f"{shown(new):>24} {times(ratio(new, old, smaller)):>8}{mark}")
    return lines
