"""Tables of the bench: the measurements, their scopes, and their goals. All other parts read these tables.

SPDX-License-Identifier: GPL-2.0-or-later
"""

from dataclasses import dataclass, field

PAIR = ("--guests", "2", "--pin")
# Name, title, networks of qrnic and of Soft-RoCE, options of the guests
SCOPES = {
    "cable": ("between two guests: qrnic over a cable, Soft-RoCE over dgram", ":link=cable", ":link=dgram", PAIR),
    "dgram": ("between two guests over dgram", ":link=dgram", ":link=dgram", PAIR),
    "stream": ("between two guests over stream", ":link=stream", ":link=stream", PAIR),
    "within": ("within one guest", "", "", ("--cpus", "2")),
}
ALL = tuple(SCOPES)
GUESTS = ("cable", "dgram", "stream")
CABLE, OTHERS = ("cable",), ("dgram", "stream", "within")
OURS = "qrnic"
BOTH = (1500, 9000)
BOOT_SECONDS = 5


@dataclass(frozen=True)
class Figure:
    """One number. "against" names the second figure of a row of the table: (device, figure, its name). No figure
    means this figure, and no name means Soft-RoCE or the device's name.
    """
    name: str
    title: str
    unit: str
    smaller: bool = False  # is better
    against: tuple = (("soft-roce", "", ""),)
    may_be_zero: bool = False


@dataclass(frozen=True)
class Measurement:
    """One or more figures of one run; --metric selects it by its name."""
    name: str
    figures: tuple
    seconds: float = 3  # for one device
    scopes: tuple = ALL
    mtus: tuple = BOTH
    devices: tuple = (OURS, "soft-roce")
    default: bool = True
    memory: int = 1024  # MiB of a guest
    curve: bool = False
    needs: tuple = ()  # other measurements that provide the second figures
    where: str = "pair"  # the job that runs it: see measure.py
    explain: str = field(default="", compare=False)


def single(name, title, unit, seconds=3.0, smaller=False, against=(("soft-roce", "", ""),), **more):
    return Measurement(name, (Figure(name, title, unit, smaller, against),), seconds, **more)


SIZES = (8, 64, 512, 4096, 32768, 262144, 1048576)
QUEUE_PAIRS = (1, 64, 1024, 16000)
ROCE = ("soft-roce", "", "")
TCP = ("virtio-net", "", "TCP")
ONE_MTU = (1500,)


def curve(name, title, unit, points, seconds, smaller=False, against=(ROCE,), **more):
    """Returns a measurement with a figure for each point, whose name is NAME/POINT."""
    return Measurement(name, tuple(Figure(f"{name}/{point}", title.format(f"{point:,}"), unit, smaller, against)
                                   for point in points), seconds, default=False, curve=True, **more)


def storage(name, title):
    """Returns a measurement by fio; the goals are those of NVMe over Fabrics and NFS."""
    return Measurement(name, tuple(Figure(f"{name}-{point}", f"{title}, random read, {what}", "1/s") for point, what in (
        ("4k-1", "4 KiB, depth 1"), ("4k-16", "4 KiB, depth 16"), ("128k-8", "128 KiB, depth 8"))),
        16, GUESTS, ONE_MTU, default=False, memory=2048, explain=f"{title}: random reads by fio")


INSIDE, PF = (("inside", "", "inside"),), (("pf", "", "PF"),)
# Measurements that compare two forms of the adapter. Each has the options of tools/guest for both forms, and the metrics of
# the job. Each figure has the name under which the job prints it.
FORMS = {
    "process": (((OURS, ("--device", "process")), ("inside", ("--device", "inside"))), "bandwidth rate write doorbell",
                {"process-bandwidth": "bandwidth", "process-rate": "rate", "process-latency": "write",
                 "process-write": "doorbell-write", "process-read": "doorbell-read"}),
    "vf": (((OURS, ("--device-prop", "vfs=1", "--env", "QRNIC_VF=yes")), ("pf", ("--device-prop", "vfs=1"))),
           "bandwidth rate write", {"vf-bandwidth": "bandwidth", "vf-rate": "rate", "vf-latency": "write"}),
}

MEASUREMENTS = (
    Measurement("memcpy", (Figure("memcpy", "one thread's memcpy on the host, cold memory", "MiB/s", against=()),), 1,
                CABLE, devices=("host",), where="host"),
    single("bandwidth", "RDMA write, 64 KiB", "MiB/s", 3.1),
    single("bandwidth-1m", "RDMA write, 1 MiB", "MiB/s", 3.1, scopes=CABLE,
           against=(ROCE, ("host", "memcpy", "memcpy")), needs=("memcpy",)),
    single("rate", "RDMA write, 8 bytes", "thousand/s", 3.1),
    single("rate-64", "RDMA write, 8 bytes, 64 QPs", "thousand/s", 4.5, mtus=ONE_MTU,
           against=(ROCE, ("qrnic", "rate", "1 QP")), needs=("rate",)),
    single("send-rate", "send, 8 bytes", "thousand/s", 3.1, mtus=ONE_MTU),
    single("write", "latency of a write, 8 bytes", "us", 1.4, True),
    single("read", "latency of a read, 8 bytes", "us", 1.4, True, mtus=ONE_MTU),
    single("send", "latency of a send, 8 bytes", "us", 1.4, True),
    single("send-4k", "latency of a send, 4 KiB", "us", 1.6, True),
    single("ud-rate", "UD send, 8 bytes", "thousand/s", 3.1),
    single("ud-send", "latency of a UD send, 8 bytes", "us", 1.4, True),
    single("srq-bandwidth", "send, 4 KiB, 4 QPs with one SRQ", "MiB/s", 3.1),
    single("srq-rate", "send, 8 bytes, 4 QPs with one SRQ", "thousand/s", 3.1, mtus=ONE_MTU, default=False),
    single("srq-send", "latency of a send by an SRQ, 8 bytes", "us", 1.4, True, mtus=ONE_MTU, default=False),
    single("connections", "connections made by rdma_cm, 100 at once", "1/s", 1, scopes=GUESTS),
    single("connections-1000", "connections made by rdma_cm, 1,000 at once", "1/s", 6, scopes=GUESTS, mtus=ONE_MTU,
           default=False),
    single("tcp", "TCP by iperf3", "Mbit/s", 4, scopes=GUESTS, mtus=ONE_MTU, devices=(OURS, "virtio-net"),
           against=(("virtio-net", "", ""),)),
    Measurement("boot", (Figure("boot", "power-on to a usable RDMA device", "s", True,
                                (ROCE, ("none", "", "no adapter"))),),
                BOOT_SECONDS, ("within",), ONE_MTU, (OURS, "soft-roce", "none"), where="boot"),
    Measurement("process", (Figure("process-bandwidth", "device process: RDMA write, 64 KiB", "MiB/s", against=INSIDE),
                            Figure("process-rate", "device process: RDMA write, 8 bytes", "thousand/s", against=INSIDE),
                            Figure("process-latency", "device process: latency of a write, 8 bytes", "us", True, INSIDE),
                            Figure("process-write", "device process: a doorbell (posted write)", "us", True, INSIDE),
                            Figure("process-read", "device process: a read of a register", "us", True, INSIDE)),
                14, CABLE, ONE_MTU, (OURS, "inside"), where="process",
                explain="a device process with a stock QEMU, beside the device inside QEMU"),
    Measurement("vf", (Figure("vf-bandwidth", "virtual function: RDMA write, 64 KiB", "MiB/s", against=PF),
                       Figure("vf-rate", "virtual function: RDMA write, 8 bytes", "thousand/s", against=PF),
                       Figure("vf-latency", "virtual function: latency of a write, 8 bytes", "us", True, PF)),
                13, ("dgram",), ONE_MTU, (OURS, "pf"), where="vf", explain="a virtual function, beside the physical function"),
    single("register", "1 GiB registered and deregistered", "ms", 5, True, scopes=("within",), mtus=ONE_MTU, memory=3072,
           default=False),
    single("queue-pairs", "16,380 queue pairs created, and destroyed", "s", 60, True, scopes=("within",), mtus=ONE_MTU,
           memory=3072, default=False),
    Measurement("idle", (Figure("idle", "wake-ups of the QEMU of an idle guest", "1/s", True, (ROCE, ("none", "", "no adapter")),
                                may_be_zero=True),), 18, ("within",), ONE_MTU, (OURS, "soft-roce", "none"), default=False, where="idle"),
    storage("nvme", "NVMe over Fabrics"),
    storage("nfs", "NFS over RDMA"),
    single("rds", "RDS, ping-pong of 8 bytes", "us", 5, True, scopes=GUESTS, mtus=ONE_MTU, default=False),
    Measurement("mpi", (Figure("mpi-8", "Open MPI, ping-pong of 8 bytes", "us", True, (TCP,)),
                        Figure("mpi-1m", "Open MPI, ping-pong of 1 MiB", "MiB/s", against=(TCP,))), 12, GUESTS, ONE_MTU,
                (OURS, "virtio-net"), False, 2048, explain="Open MPI's ping-pong by UCX, beside TCP (it cannot use Soft-RoCE)"),
    curve("size-bandwidth", "RDMA write, {} bytes", "MiB/s", SIZES, 18, explain="RDMA write by size"),
    curve("size-latency", "latency of a write, {} bytes", "us", SIZES, 14, True, explain="latency of a write by size"),
    curve("qps-rate", "RDMA write, 8 bytes, {} QPs", "thousand/s", QUEUE_PAIRS, 120, mtus=ONE_MTU, scopes=GUESTS,
          against=(ROCE, ("qrnic", "qps-rate/1", "1 QP")), memory=2048, explain="RDMA write of 8 bytes by queue pairs"),
    curve("guests-bandwidth", "RDMA write, 64 KiB, {} guests in pairs", "MiB/s", (2, 4), 70, mtus=(9000,), scopes=GUESTS,
          where="total", explain="RDMA write of 64 KiB by guests, in pairs"),
)


@dataclass(frozen=True)
class Goal:
    """Kind "times": the ratio to reach. Kind "most": the upper limit of the figure itself."""
    figure: str
    scopes: tuple
    value: float
    kind: str = "times"
    against: str = "soft-roce"


# The goals of the issue "What it must reach"
GOALS = (
    *(Goal(name, CABLE, 50) for name in ("bandwidth", "bandwidth-1m", "rate", "rate-64", "send-rate")),
    *(Goal(name, OTHERS, 20) for name in ("bandwidth", "rate", "rate-64", "send-rate", "ud-rate", "srq-bandwidth", "srq-rate")),
    *(Goal(name, CABLE, 30) for name in ("ud-rate", "srq-bandwidth", "srq-rate")),
    *(Goal(name, CABLE, 20) for name in ("write", "send", "read")),
    *(Goal(name, CABLE, 15) for name in ("send-4k", "ud-send", "srq-send")),
    *(Goal(name, OTHERS, 10) for name in ("write", "send", "read", "send-4k", "ud-send", "srq-send")),
    Goal("bandwidth-1m", CABLE, 0.25, against="memcpy"),
    Goal("rate-64", ALL, 1, against="rate"),
    Goal("send-4k", CABLE, 50, "most"),
    Goal("connections", GUESTS, 4), Goal("connections-1000", GUESTS, 4),
    *(Goal(f"{name}-{point}", GUESTS, 5) for name in ("nvme", "nfs") for point in ("4k-1", "4k-16", "128k-8")),
    Goal("rds", GUESTS, 5), *(Goal(f"mpi-{size}", GUESTS, 5, against="virtio-net") for size in ("8", "1m")),
    Goal("idle", ("within",), 1, "over", "none"),
    Goal("tcp", ("dgram", "stream"), 1, against="virtio-net"),
    Goal("boot", ("within",), 0.5, "over", "none"),
    *(Goal(name, CABLE, 0.5, against="inside") for name in ("process-bandwidth", "process-rate", "process-latency")),
    Goal("register", ("within",), 1),
    Goal("queue-pairs", ("within",), 1), Goal("queue-pairs", ("within",), 20, "most"),
    *(Goal(f"qps-rate/{count}", GUESTS, 0.8, against="qps-rate/1") for count in QUEUE_PAIRS[1:]),
)


def figures():
    return {figure.name: figure for measurement in MEASUREMENTS for figure in measurement.figures}


def chosen(names, everything, drawn=False):
    """Returns the measurements of --metric and --all with the measurements that they need. Without these options,
    returns the default measurements and, for --plots, the curves.
    """
    if names:
        wanted = {needed for measurement in MEASUREMENTS if measurement.name in names
                  for needed in (measurement.name, *measurement.needs)}
        return [measurement for measurement in MEASUREMENTS if measurement.name in wanted]
    return [measurement for measurement in MEASUREMENTS if everything or measurement.default or
            drawn and measurement.curve]


def plan(measurements, scopes):
    """Returns each (scope, mtu, measurement) of a run, in order."""
    return [(scope, mtu, measurement) for scope in scopes for mtu in BOTH for measurement in measurements
            if scope in measurement.scopes and mtu in measurement.mtus]
