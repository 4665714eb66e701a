"""Command line of tools/guest: main() checks the options, reads the job and its files, and executes a Run. Errors
become one line and an exit status.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import argparse
import os
import re
import signal
import subprocess
import sys

from . import device, host
from .errors import EXIT_USAGE, LaunchError
from .run import Run

DESCRIPTION = """\
Boots guests, runs a job in each, and returns the job's exit status (0 only when
the job exited 0 in every guest; 124 for a timeout, 125 when a guest could not be run;
with --strict 123 when only a kernel or a device reported a problem, or an oops killed
the job).

  tools/guest -c 'ibv_devinfo -v'                    one guest with one qrnic
  tools/guest --guests 2 JOB.sh                      two guests joined by a wire
  tools/guest --nic qrnic --nic qrnic JOB.sh         two qrnic of one guest, joined
  tools/guest --nic qrnic:user -c 'ping -c1 10.0.2.2'
  tools/guest --interactive                          a shell in a guest
"""

EPILOG = """\
--nic KIND[/KIND][:NET][,KEY=VALUE...] gives every guest a network card (default: one qrnic).
  KIND  qrnic, virtio (virtio-net), rxe (virtio-net with Soft-RoCE on it);
        qrnic/rxe gives guest 1 the first and the other guests the second
  NET   link[=dgram] (a wire between the guests; default with more than one guest),
        link=stream (for two guests; faster, as QEMU reads many frames at once),
        link=cable (qrnic only; shared memory, fastest by far; more than two guests
        are joined by qrnic-switch),
        hub (all cards of one guest joined; default with one guest),
        user[=OPTIONS] (libslirp), hosts (two guests, each behind libslirp on its own
        host, which is a network namespace; root only; needs icrc=transport),
        vxlan (two guests, each with a tap on a bridge of its own host, and a VXLAN of the
        kernel between these hosts; root only), tap=IFNAME, none (no backend, link down)
  KEY   mtu=N, ip=auto|dhcp|none, guest=N (only that guest has it);
        port.PROPERTY=VALUE is for the root port above the device, any other is a
        property of the device
Card I of guest N has 10.77.I.N/24 and fd77:0:0:I::N/64 (card 0: fd77::N); on a hub
card I has 10.77.0.(N+10*I). Names: guestN, guestN-I, and guestNv6 for IPv6. With
"hosts" the job sets 10.99.N.1/24 and a default route by 10.99.N.2.

The job is a bash script with the variables GUEST, GUESTS, NIC0, RDMA0, ... and the functions
of tools/guest-files/job-lib.sh: barrier NAME, gid_index DEVICE 4|6|link [v1], host_qmp JSON,
host_switch [CARD] (the counters of qrnic-switch), host_device pause|kill|end|start|plug|status [CARD [VALUE]]
(with --device process), guest_reboot, wait_until SECONDS COMMAND..., wait_for_port PORT.

Environment: QRNIC_QEMU   the private QEMU to use, also by device processes
             QRNIC_SWITCH the qrnic-switch to use (default: the one beside QEMU)
             QRNIC_LINUX  boot another kernel of Debian's (7.2, newest): see tools/guest-root --help
"""


ACCELERATORS = ("auto", "tcg", "kvm")


def build_parser():
    # allow_abbrev is off because an abbreviation would accept --guest for --guests.
    parser = argparse.ArgumentParser(prog="tools/guest", description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("job", nargs="?", help="the job: a bash script")
    add("args", nargs="*", help="its arguments")
    add("-c", "--command", help="run this bash command line as the job")
    add("--interactive", action="store_true", help="a shell on this terminal instead of a job (one guest)")
    add("--guests", type=int, default=1, metavar="N", help="number of guests, 1 to 8 (default 1)")
    add("--nic", action="append", default=[], metavar="SPEC", help="a network card in each guest, see below")
    add("--wire", metavar="FAULTS",
        help="the wires (of two guests, link=dgram only) lose, repeat, reorder, corrupt and mark frames: "
             "loss=P[,repeat=P][,reorder=P][,corrupt=P][,mark=P][,spare=mads][,seed=N], P in percent of the frames, each way; "
             "a mark is CE in a RoCE v2 frame with ECT; spare=mads: management datagrams have no faults")
    add("--no-nic", action="store_true", help="no network card at all")
    add("--qemu", metavar="PATH", help="the QEMU of the guests (default: the private one; with --device process: that of "
                                       "tools/fetch-stock-qemu, or the system's)")
    add("--device", choices=device.FORMS, default=device.default_form(),
        help="inside (default): each qrnic is a device of the guest's QEMU; process: a qrnic-device process serves each "
             "qrnic by vfio-user, for a QEMU without qrnic (10.1 or newer; default without the package qrnic-qemu)")
    add("--device-prop", action="append", default=[], metavar="K=V", help="property of every qrnic device")
    add("--mtu", type=int, default=1500, help="MTU of all cards (default 1500)")
    add("--memory", default="1024", metavar="MIB", help="memory of each guest (default 1024)")
    add("--cpus", type=int, default=1, help="processors of each guest (default 1)")
    add("--pin", action="store_true",
        help="keep each guest's QEMU on as many processors of the host as the guest has: guest 1 on the first ones, "
             "guest 2 on the next ones, and so on; if there are too few, guests share. For measurements, because "
             "the placement by the host's scheduler changes from run to run")
    add("--cpu", default="max", help="processor model (default max)")
    add("--accel", default=os.environ.get("QRNIC_ACCEL", "auto"), choices=ACCELERATORS,
        help="default auto: KVM if it boots this kernel (tried once after each boot of the host), otherwise TCG; "
             "kvm: try KVM again")
    add("--file", action="append", default=[], metavar="SRC:DEST", help="put a file into the guests")
    add("--env", action="append", default=[], metavar="K=V", help="set a variable for the job")
    add("--timeout", type=float, default=300, metavar="S", help="for the whole run (default 300, 0 for none)")
    add("--progress-timeout", type=float, default=0, metavar="S",
        help="end if all guests together have neither output nor a barrier for S seconds (default 0: never)")
    add("--boot-timeout", type=float, default=90, metavar="S", help="until all guests are up (default 90)")
    add("--show", type=int, default=0, metavar="N", help="print the job's output of guest N only, without prefix")
    add("--pcap", metavar="DIR", help="record every card's frames as DIR/guestN-netI.pcap (of a cable: .pcapng)")
    add("--capture", metavar="DIR",
        help="capture bus and wire of every qrnic as DIR/guestN-nicI.pcapng, and write Wireshark's dissector DIR/qrnic.lua")
    add("--logs", metavar="DIR", help="keep the logs in DIR (otherwise: in the cache, only after a failure)")
    add("--strict", action="store_true",
        help="fail also on a report of a guest's kernel (a warning, an oops, ...) and on a guest error of a qrnic (a "
             "rule of the manual that the driver broke), and show those lines")
    add("--allow-report", action="append", default=[], metavar="REGEX",
        help="--strict permits kernel reports that match (repeat)")
    add("--allow-guest-error", action="append", default=[], metavar="RULE",
        help="--strict permits guest errors with this name, or any (repeat)")
    add("--kernel", metavar="FILE", help="another kernel image")
    add("--no-driver", action="store_true",
        help="run the job also if a qrnic has no driver, for a job that loads one (implied by --kernel); otherwise this "
             "is an error")
    add("--append", action="append", default=[], metavar="WORDS", help="more words for the kernel command line (repeat)")
    add("--loglevel", type=int, default=5, help="kernel messages on the serial console (default 5)")
    add("--qemu-arg", action="append", default=[], metavar="ARG", help="one more argument for QEMU (repeat)")
    add("--build", action="store_true", help="build modules and provider first")
    add("--no-refresh", action="store_true", help="do not check whether the image is up to date")
    add("--no-rdma", action="store_true", help="do not load the RDMA user-space modules")
    add("--no-dmesg", action="store_true", help="no kernel messages after a failed job")
    add("-v", "--verbose", action="store_true", help="show QEMU's command line and when guests are up")
    return parser


def read_job(options):
    if options.interactive:
        return b""
    if options.command is not None:
        return options.command.encode() + b"\n"
    try:
        with open(options.job, "rb") as file:
            return file.read()
    except OSError as error:
        raise LaunchError(f"cannot read the job {options.job}: {error.strerror}", EXIT_USAGE) from None


def read_files(specs):
    files = {}
    for spec in specs:
        source, colon, target = spec.rpartition(":")
        if not colon or not target.startswith("/"):
            raise LaunchError(f"--file {spec}: give it as SRC:/DEST", EXIT_USAGE)
        try:
            with open(source, "rb") as file:
                files[target] = (os.stat(source).st_mode & 0o777, file.read())
        except OSError as error:
            raise LaunchError(f"--file {spec}: {error.strerror}", EXIT_USAGE) from None
    return files


def check(options):
    if (options.job is None) + (options.command is None) + (not options.interactive) != 2:
        raise LaunchError("give one of: a job file, -c COMMAND, --interactive (see --help)", EXIT_USAGE)
    # This check is needed because argparse does not check defaults.
    if options.accel not in ACCELERATORS:
        raise LaunchError(f"QRNIC_ACCEL={options.accel} must be one of {', '.join(ACCELERATORS)}", EXIT_USAGE)
    for setting in options.env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", setting, re.DOTALL):
            raise LaunchError(f"--env {setting}: give it as NAME=VALUE", EXIT_USAGE)
    if not 1 <= options.guests <= 8:
        raise LaunchError("--guests must be from 1 to 8", EXIT_USAGE)
    if options.interactive and options.guests != 1:
        raise LaunchError("--interactive works with one guest", EXIT_USAGE)
    if not options.nic and not options.no_nic:
        options.nic = ["qrnic"]
    if options.interactive:
        options.timeout = options.progress_timeout = 0
    if options.strict:
        # The level is at least 5, because otherwise warnings of the kernel do not reach the console.
        options.loglevel = max(options.loglevel, 5)
        for pattern in options.allow_report:
            try:
                re.compile(pattern)
            except re.error as error:
                raise LaunchError(f"--allow-report {pattern}: {error}", EXIT_USAGE) from None
    if options.args:
        options.env.append("JOB_ARGS=" + " ".join(options.args))


def prepare(options):
    if options.build:
        if host.installed():
            raise LaunchError("--build needs the source tree of qrnic, which is not installed", EXIT_USAGE)
        for tool in ("guest-build-modules", "guest-build-provider"):
            done = subprocess.run([os.path.join(host.TOOLS, tool)], stdout=2, check=False)
            if done.returncode:
                raise LaunchError(f"tools/{tool} failed (see above)")
    if not options.no_refresh:
        host.Image().refresh()


def _interrupted(signum, _frame):
    raise KeyboardInterrupt(signum)


def main(arguments):
    options = build_parser().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    run = None
    status = 125
    try:
        check(options)
        job = read_job(options)
        files = read_files(options.file)
        prepare(options)
        run = Run(options, job, files)
        status = run.execute()
    except LaunchError as error:
        print(f"guest: {error}", file=sys.stderr)
        status = error.status
    except OSError as error:
        # The user's cache or folder cannot be read or written.
        print(f"guest: {error.filename or 'the host'}: {error.strerror}", file=sys.stderr)
    except KeyboardInterrupt:
        status = 130
    finally:
        if run:
            run.cleanup(failed=status not in (0, 130) and not options.interactive)
    return status
