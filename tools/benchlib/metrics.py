"""What can be measured, where, and what it must reach: the tables that everything else goes by.

SPDX-License-Identifier: GPL-2.0-or-later
"""

from dataclasses import dataclass, field

# Name, title, networks of qrnic and of Soft-RoCE, options of the guests
SCOPES = {
    "cable": ("between two guests: qrnic over a cable, Soft-RoCE over dgram", ":link=cable", ":link=dgram", ("--guests", "2")),
    "dgram": ("between two guests over dgram", ":link=dgram", ":link=dgram", ("--guests", "2")),
    "stream": ("between two guests over stream", ":link=stream", ":link=stream", ("--guests", "2")),
    "within": ("within one guest", "", "", ("--cpus", "2")),
}
ALL = tuple(SCOPES)
GUESTS = ("cable", "dgram", "stream")
OURS = "qrnic"
BOTH = (1500, 9000)
# A boot is some seconds; perftest's programs find each other in one.
BOOT_SECONDS = 8


@dataclass(frozen=True)
class Figure:
    """One number. "against" names what a row of the table has beside it: (device, figure, what to call that), where
    no figure is this one and no name is Soft-RoCE or the device's."""
    name: str
    title: str
    unit: str
    smaller: bool = False  # is better
    against: tuple = (("soft-roce", "", ""),)
    may_be_zero: bool = False


@dataclass(frozen=True)
class Measurement:
    """One or more figures that come from one go; its name is what --metric takes."""
    name: str
    figures: tuple
    seconds: float = 3  # for one device
    scopes: tuple = ALL
    mtus: tuple = BOTH
    devices: tuple = (OURS, "soft-roce")
    default: bool = True
    memory: int = 1024  # MiB of a guest
    where: str = "pair"  # the job that does it: see measure.py
    explain: str = field(default="", compare=False)


def single(name, title, unit, seconds=3.0, smaller=False, against=(("soft-roce", "", ""),), **more):
    return Measurement(name, (Figure(name, title, unit, smaller, against),), seconds, **more)


MEASUREMENTS = (
    single("bandwidth", "RDMA write, 64 KiB", "MiB/s", 5),
    single("rate", "RDMA write, 8 bytes", "thousand/s", 5),
    single("write", "latency of a write, 8 bytes", "us", 1.5, True),
    single("send", "latency of a send, 8 bytes", "us", 1.5, True),
    single("ud-rate", "UD send, 8 bytes", "thousand/s", 5),
    single("ud-send", "latency of a UD send, 8 bytes", "us", 1.5, True),
    single("srq-bandwidth", "send, 4 KiB, 4 QPs with one SRQ", "MiB/s", 5),
    single("connections", "connections made by rdma_cm", "1/s", 1, scopes=GUESTS),
    Measurement("boot", (Figure("boot", "power-on to a usable RDMA device", "s", True),), BOOT_SECONDS, ("within",), (1500,),
                where="boot"),
)


@dataclass(frozen=True)
class Goal:
    """kind "times": so much better than what it stands beside; "most": its own figure is no more than that."""
    figure: str
    scopes: tuple
    value: float
    kind: str = "times"
    against: str = "soft-roce"


CABLE, OTHERS = ("cable",), ("dgram", "stream", "within")
# From the table of the issue that set them: "What it must reach".
GOALS = (
    Goal("bandwidth", CABLE, 50), Goal("bandwidth", OTHERS, 20),
    Goal("rate", CABLE, 50), Goal("rate", OTHERS, 20),
    Goal("write", CABLE, 20), Goal("write", OTHERS, 10),
    Goal("send", CABLE, 20), Goal("send", OTHERS, 10),
    Goal("ud-rate", CABLE, 30), Goal("ud-rate", OTHERS, 20),
    Goal("ud-send", CABLE, 15), Goal("ud-send", OTHERS, 10),
    Goal("srq-bandwidth", CABLE, 30), Goal("srq-bandwidth", OTHERS, 20),
    Goal("connections", CABLE, 4),
)


def figures():
    return {figure.name: figure for measurement in MEASUREMENTS for figure in measurement.figures}


def chosen(names, everything):
    """The measurements that --metric and --all ask for, or the default ones."""
    if names:
        return [measurement for measurement in MEASUREMENTS if measurement.name in names]
    return [measurement for measurement in MEASUREMENTS if everything or measurement.default]


def plan(measurements, scopes):
    """Each (scope, mtu, measurement) that is to be done, in order."""
    return [(scope, mtu, measurement) for scope in scopes for mtu in BOTH for measurement in measurements
            if scope in measurement.scopes and mtu in measurement.mtus]
