"""Pictures of the curves, by matplotlib.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import os

from . import metrics, table

AXES = {"size-bandwidth": ("message in bytes", True), "size-latency": ("message in bytes", True),
        "qps-rate": ("queue pairs", True), "guests-bandwidth": ("guests", False)}


def curves(summaries):
    """The points of each picture: (metric, scope, MTU) to device to a list of (x, summary)."""
    found = {}
    for (scope, mtu, metric, device), summary in summaries.items():
        name, _, point = metric.partition("/")
        if name in AXES and point.isdigit():
            found.setdefault((name, scope, mtu), {}).setdefault(device, []).append((int(point), summary))
    for devices in found.values():
        for points in devices.values():
            points.sort(key=lambda point: point[0])
    return found


def draw(path, name, scope, mtu, devices):
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")  # draws to files without a display
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    measurement = next(one for one in metrics.MEASUREMENTS if one.name == name)
    label, logarithmic = AXES[name]
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for device, points in devices.items():
        x = [point for point, _ in points]
        line, = axes.plot(x, [summary.median for _, summary in points], marker="o", label=table.NAMES.get(device, device))
        # The area shows the noise.
        axes.fill_between(x, [summary.min for _, summary in points], [summary.max for _, summary in points], alpha=0.2,
                          color=line.get_color())
    if logarithmic:
        axes.set_xscale("log", base=2)
    ticks = sorted({point for points in devices.values() for point, _ in points})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel(f"{measurement.explain}, {measurement.figures[0].unit}")
    axes.set_title(f"{metrics.SCOPES[scope][0] if scope in metrics.SCOPES else scope}, MTU {mtu}", fontsize=10)
    axes.grid(True, alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def write(directory, summaries):
    """Draws the curves that the run has; returns the paths."""
    os.makedirs(directory, exist_ok=True)
    paths = []
    for (name, scope, mtu), devices in curves(summaries).items():
        paths.append(os.path.join(directory, f"{name}-{scope}-{mtu}.png"))
        draw(paths[-1], name, scope, mtu, devices)
    return paths
