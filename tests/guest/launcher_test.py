"""Tests of tools/guest itself: bad input gives one clear line, a non-zero status, and
leaves no process and no file behind.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import fcntl
import glob
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import zlib


def children_of(pid):
    """Returns the process ids of a process's children, each with its arguments."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            with open(os.path.join(os.path.dirname(path), "cmdline"), encoding="utf-8", errors="replace") as file:
                arguments = file.read().split("\0")
        except OSError:
            continue
        if int(fields[1]) == pid:
            found[int(path.split("/")[2])] = arguments
    return found


def qemus_of(pid):
    """Returns the process ids of a launcher's QEMUs, without its short-lived helpers."""
    return [child for child, arguments in children_of(pid).items() if "guest1" in arguments]


def wait_until(condition, seconds):
    """Returns True if the condition became true in time."""
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return met


def runs(pid):
    """Returns True if the process runs. A zombie, which has ended but has no parent to wait for it, does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def heed_interrupts():
    """Restores Ctrl-C, because a background process of a shell ignores it, and so would the launcher."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def host_cache():
    """Returns the cache of tools/, as the modules of the launcher define it."""
    from guestlib import host  # pylint: disable=import-outside-toplevel
    return host.cache_dir()


class Tests:
    def __init__(self, root, report, stopped):
        self.stopped = stopped
        self.root = root
        self.guest = os.path.join(root, "tools", "guest")
        sys.path.insert(0, os.path.dirname(self.guest))
        self.report = report
        # The scratch directories of the launcher are here, so that the test can find files that it leaves behind.
        self.scratch = tempfile.TemporaryDirectory(prefix="qt-")
        self.env = {**os.environ, "TMPDIR": self.scratch.name}

    def left_behind(self):
        return os.listdir(self.scratch.name)

    def refused(self, name, options, status, text, lines=1, env=None):
        """Runs the launcher, which must print `text` in one line, or each of several (one more may name the logs)."""
        if self.stopped():
            return
        done = subprocess.run([self.guest, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=400, check=False, env={**self.env, **(env or {})})
        said = [line for line in done.stderr.splitlines() if not line.startswith("guest: logs are in")]
        problems = []
        if done.returncode != status:
            problems.append(f"exit status {done.returncode} instead of {status}")
        for part in [text] if isinstance(text, str) else text:
            if not any(part in line for line in said or [""]):
                problems.append(f"'{part}' is missing in the output")
        if lines and len(said) > lines:
            problems.append(f"{len(said)} lines instead of {lines}")
        if self.left_behind():
            problems.append(f"left behind: {self.left_behind()}")
        self.report.result(not problems, f"launcher: {name}", details=problems + done.stderr.splitlines()[-8:])

    def bad_options(self):
        run = ["--no-refresh", "--accel", "tcg"]
        self.refused("no job", run, 2, "give one of")
        self.refused("a job that does not exist", [*run, "/nonexistent/job"], 2, "cannot read the job")
        self.refused("too many guests", [*run, "--guests", "99", "-c", "true"], 2, "--guests must be")
        self.refused("an unknown kind of card", [*run, "--nic", "e10000", "-c", "true"], 2, "the kind must be one of")
        self.refused("an unknown network", [*run, "--nic", "qrnic:carrier-pigeon", "-c", "true"], 2,
                     "the network must be one of")
        self.refused("an unknown wire", [*run, "--guests", "2", "--nic", "qrnic:link=string", "-c", "true"], 2,
                     "the wire must be one of")
        self.refused("a stream for three", [*run, "--guests", "3", "--nic", "qrnic:link=stream", "-c", "true"], 2,
                     "a stream joins two guests")
        self.refused("a switch that does not exist",
                     [*run, "--guests", "3", "--nic", "qrnic:link=cable", "-c", "true"], 125, "QRNIC_SWITCH",
                     env={"QRNIC_SWITCH": "/nonexistent/switch"})
        self.refused("an impossible MTU", [*run, "--nic", "qrnic,mtu=7", "-c", "true"], 2, "mtu must be")
        self.refused("an unknown option", [*run, "--frobnicate", "-c", "true"], 2, "--frobnicate", lines=0)
        self.refused("a QEMU that does not exist", [*run, "-c", "true"], 125, "QRNIC_QEMU",
                     env={"QRNIC_QEMU": "/nonexistent/qemu"})
        self.refused("another QEMU that does not exist", [*run, "--qemu", "/nonexistent/qemu", "-c", "true"], 2,
                     "/nonexistent/qemu cannot be run (No such file or directory)")
        self.refused("another QEMU without the device", [*run, "--qemu", "/bin/true", "-c", "true"], 2,
                     "/bin/true has no device qrnic: add --device process")
        self.refused("another QEMU without vfio-user", [*run, "--device", "process", "--qemu", "/bin/true", "-c", "true"], 2,
                     "/bin/true has no device vfio-user-pci: --device process needs QEMU 10.1 or newer")
        # The host's own QEMU must not be used, whose version is unknown.
        with tempfile.TemporaryDirectory() as folder:
            os.symlink("/bin/true", os.path.join(folder, "qemu-system-x86_64"))
            self.refused("no QEMU for a device process", [*run, "--device", "process", "-c", "true"], 125,
                         f"{folder}/qemu-system-x86_64 has no vfio-user-pci: install QEMU 10.1 or newer (Debian: qemu-system-x86 of trixie-backports)",
                         env={"QRNIC_CACHE": "/proc/none", "PATH": f"{folder}:{os.environ['PATH']}"})
        self.refused("an unknown accelerator", ["--no-refresh", "-c", "true"], 2, "QRNIC_ACCEL=foo must be one of",
                     env={"QRNIC_ACCEL": "foo"})
        self.refused("a variable without a value", [*run, "--env", "FOO", "-c", "true"], 2, "--env FOO: give it as NAME=VALUE")
        self.refused("an abbreviated option", [*run, "--guest", "2", "-c", "true"], 2, "unrecognized arguments: --guest", lines=0)
        self.refused("no image", [*run, "-c", "true"], 125, "run tools/guest-image",
                     env={"QRNIC_CACHE": self.scratch.name + "-none", "QRNIC_QEMU": "/bin/true"})

    def synced(self):
        """Changed sources become newer than their objects, even if the edit is older; other files keep their time."""
        script = """
            . "$0/tools/lib.sh"; . "$0/tools/guest-lib.sh"
            mkdir "$1/from"; echo first >"$1/from/edited.c"; echo same >"$1/from/left.c"
            sync_tree "$1/from" "$1/to"; left=$(stat -c %y "$1/to/left.c")
            echo second >"$1/from/edited.c"; touch -d '1 hour ago' "$1"/from/*.c
            touch "$1/to/edited.o"; sleep 0.1
            sync_tree "$1/from" "$1/to"
            [ "$(cat "$1/to/edited.c")" = second ] || echo "the edit is missing"
            [ "$1/to/edited.c" -nt "$1/to/edited.o" ] || echo "make would take the old object for the new source"
            [ "$(stat -c %y "$1/to/left.c")" = "$left" ] || echo "an unchanged file is rebuilt"
            rm "$1/from/left.c"; sync_tree "$1/from" "$1/to"
            [ ! -e "$1/to/left.c" ] || echo "a removed file stays"
        """
        with tempfile.TemporaryDirectory(prefix="qt-sync-") as directory:
            done = subprocess.run(["bash", "-euc", script, self.root, directory], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=60, check=False, env=self.env)
        problems = (done.stdout + done.stderr).splitlines()
        self.report.result(not problems and not done.returncode, "launcher: a build notices every edit",
                           details=problems)

    def bad_devices(self):
        run = ["--no-refresh", "--accel", "tcg", "-c", "true"]
        self.refused("an unknown device property", [*run, "--device-prop", "frobnicate=1"], 125, "frobnicate")
        self.refused("a device property that is not a number", [*run, "--nic", "qrnic,doorbell-fifo=many"], 125,
                     "QEMU does not start guest1: ")
        self.refused("a backend that does not exist", [*run, "--nic", "qrnic:none,netdev=nothere"], 125, "nothere")
        self.refused("a device property out of its range", [*run, "--device-prop", "max-sge=0"], 125, "max-sge")
        self.refused("a bad option of a backend", [*run, "--nic", "qrnic:user=frobnicate=1"], 125, "frobnicate")

    def drivers(self):
        """Without a driver for its qrnic a guest runs no job, unless the job expects this."""
        image = os.path.join(host_cache(), "guest", "image")
        with tempfile.TemporaryDirectory(prefix="qt-cache-") as cache:
            os.makedirs(os.path.join(cache, "guest", "image-7.2"))
            for name in ("vmlinux", "base.cpio", "root.erofs"):
                os.symlink(os.path.join(image, name), os.path.join(cache, "guest", "image-7.2", name))
            with open(os.path.join(cache, "guest", "image-7.2", "overlay.cpio"), "wb"):
                pass
            self.refused("an image without modules", ["--no-refresh", "--accel", "tcg", "-c", "true"], 125,
                         "has no driver for qrnic: run QRNIC_LINUX=7.2 tools/guest-build-modules",
                         env={"QRNIC_CACHE": cache, "QRNIC_LINUX": "7.2", "QRNIC_QEMU": "/bin/true"})
        run = ["--no-refresh", "--accel", "tcg", "--boot-timeout", "240", "--append"]
        for module, missing in (("qrnic", "network interface"), ("qrnic_ib", "RDMA device")):
            self.refused(f"a kernel that does not load {module}", [*run, f"module_blacklist={module}", "-c", "echo here"], 125,
                         f"guest1 has no {missing} for its qrnic, card 0")
        self.launched("--no-driver lets a job run without", [*run[1:], "module_blacklist=qrnic", "--no-driver", "-c", "echo here"],
                      {}, printed=["here"])

    def read_only(self):
        """The launcher and the scripts report a cache that cannot be written in one line."""
        name = "launcher: a read-only cache"
        image = os.path.join(host_cache(), "guest", "image")
        user = [] if os.getuid() == 0 else ["--map-root-user"]
        script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" || exit 98; QRNIC_CACHE=$0; export QRNIC_CACHE; exec "$@"'
        with tempfile.TemporaryDirectory(prefix="qt-cache-") as cache:
            for directory in ("guest/image", "src", "build", "log", "tmp", "lock"):
                os.makedirs(os.path.join(cache, directory))
            for part in ("vmlinux", "base.cpio", "overlay.cpio", "root.erofs"):
                os.symlink(os.path.join(image, part), os.path.join(cache, "guest", "image", part))
            for command, text in (([self.guest, "--no-refresh", "--accel", "tcg", "--no-nic", "-c", "true"], "Read-only file system"),
                                  ([os.path.join(self.root, "tools", "fetch-qemu")], "cannot write to"),
                                  ([os.path.join(self.root, "tools", "check"), "contract"], "Read-only file system")):
                done = subprocess.run(["unshare", *user, "--mount", "sh", "-c", script, cache, *command], stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=100, check=False,
                                      env={**self.env, "QRNIC_QEMU": "/bin/true"})
                if done.returncode == 98:
                    self.report.result(True, name, " # SKIP this machine does not permit it")
                    return
                lines = done.stderr.splitlines()
                good = done.returncode not in (0, 127) and len(lines) == 1 and text in lines[0] and not self.left_behind()
                self.report.result(good, f"{name}: {os.path.basename(command[0])}",
                                   details=[f"exit status {done.returncode}", f"left behind: {self.left_behind()}", *lines[-8:]])

    def endings(self):
        run = ["--no-refresh", "--accel", "tcg", "--no-nic", "--boot-timeout", "240"]
        self.refused("a guest that does not start in time", [*run, "--boot-timeout", "0.5", "-c", "true"], 124,
                     "did not come up within")
        self.refused("a job that does not end in time", [*run, "--timeout", "15", "-c", "sleep 1000"], 124,
                     "did not end within 15")
        self.refused("the launcher returns the status of the job", [*run, "--no-dmesg", "-c", "exit 7"], 7, "", lines=0)
        self.refused("the guest whose job fails is named",
                     [*run, "--no-dmesg", "--guests", "2", "-c", "[ $GUEST = 1 ] || exit 7; sleep 1000"], 7,
                     "the job in guest2 ended with status 7")
        self.refused("a kernel panic is named", [*run, "-c", "echo c >/proc/sysrq-trigger; sleep 100"], 125, "crashed")
        self.refused("a barrier that only one guest reaches",
                     [*run, "--guests", "2", "-c", "[ $GUEST = 2 ] || barrier alone"], 125, "waits at barrier 'alone'")

    def launched(self, name, options, env, said="", unsaid="", printed=None):
        """Runs the launcher, which must succeed, and print `said` in one line and exactly `printed`."""
        if self.stopped():
            return
        done = subprocess.run([self.guest, "--no-refresh", "--boot-timeout", "240", *options], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=600, check=False, env={**self.env, **env})
        problems = [f"exit status {done.returncode}"] if done.returncode else []
        lines = [line for line in done.stderr.splitlines() if "KVM" in line]
        if said and (len(lines) != 1 or said not in lines[0]):
            problems.append(f"'{said}' is not in exactly one line")
        if not said and lines:
            problems.append("the output names KVM")
        if unsaid and unsaid in done.stderr:
            problems.append(f"'{unsaid}' is in the output")
        if printed is not None and sorted(done.stdout.splitlines()) != printed:
            problems.append(f"printed {done.stdout.splitlines()}")
        if self.left_behind():
            problems.append(f"left behind: {self.left_behind()}")
        self.report.result(not problems, f"launcher: {name}", details=problems + done.stderr.splitlines()[-8:])

    def kvm(self):
        """Replaces QEMU by a script that behaves as with broken KVM, in each of its forms, and as with KVM that works."""
        qemu = subprocess.run([os.path.join(os.path.dirname(self.guest), "build-qemu"), "--print"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout.strip()
        directory = tempfile.mkdtemp(prefix="qt-kvm-")

        def stand_in(name, probe, guest):
            """Writes a QEMU that runs this code if KVM is requested. The probe of KVM has no network card."""
            path = os.path.join(directory, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"""#!/bin/bash
qemu={shlex.quote(qemu)}
without_kvm() {{ exec "$qemu" "${{@/#kvm/tcg}}"; }}
case " $* " in
*" -accel kvm "*" -name "* | *" -name "*" -accel kvm "*) echo guest >>"$0.calls"; {guest} ;;
*" -accel kvm "*) echo probe >>"$0.calls"; {probe} ;;
esac
exec "$qemu" "$@"
""")
            os.chmod(path, 0o755)
            # Works with and without KVM on this machine.
            return {"QRNIC_QEMU": path, "QRNIC_KVM": "/dev/null", "QRNIC_ACCEL": "auto"}

        def calls(env, *expected):
            with open(env["QRNIC_QEMU"] + ".calls", encoding="ascii") as file:
                made = file.read().split()
            self.report.result(made == list(expected), "launcher: KVM is probed only as often as expected",
                               details=[f"{made} instead of {list(expected)}"])

        one = ["--no-nic", "-c", "echo here"]
        two = ["--guests", "2", "-c", "echo here; barrier there; ping -c 1 -W 20 guest$PEER >/dev/null"]
        hangs = "exec sleep 1000"
        works = 'without_kvm "$@"'
        # This guest stops after its power-on, like a processor that KVM does not run.
        silent = 'without_kvm -S "$@"'
        second = f'case "$*" in *guest2*) {silent} ;; esac; {works}'
        try:
            env = stand_in("hangs", hangs, hangs)
            self.launched("KVM that hangs with a kernel is not used", one, env, "it printed nothing", printed=["here"])
            self.launched("and is not probed again", one, env, printed=["here"])
            calls(env, "probe")
            self.refused("KVM that hangs is an error if it is requested", [*one, "--no-refresh", "--accel", "kvm"], 125,
                         "KVM does not boot this kernel", env=env)
            calls(env, "probe", "probe")
            env = stand_in("dies", "kill -ABRT $$", hangs)
            self.launched("KVM that ends QEMU is not used", one, env, "QEMU ended", printed=["here"])
            env = stand_in("works", works, works)
            self.launched("KVM that boots the kernel is used", one, env, printed=["here"])
            self.launched("and is not probed again, either", one, env, printed=["here"])
            calls(env, "probe", "guest", "guest")
            env = stand_in("silent", works, second)
            self.launched("a guest that is silent under KVM is started again", two, env, "guest2 printed nothing",
                          printed=["guest1: here", "guest2: here"])
            calls(env, "probe", "guest", "guest")
            env = stand_in("dead", works, "kill -ABRT $$")
            self.launched("a guest that dies of KVM is started again", one, env, "QEMU died", printed=["here"])
            self.refused("a bad option is not reported as a fault of KVM", [*one, "--no-refresh", "--qemu-arg=-frobnicate"], 125,
                         "QEMU does not start guest1", env=stand_in("refused", works, works))
        finally:
            shutil.rmtree(directory)

    def strict(self):
        """Runs a job that succeeds while the kernel and the device report errors."""
        job = """
echo '<4>WARNING: made up' >/dev/kmsg
modprobe -r qrnic_ib qrnic
cd /sys/bus/pci/devices/0000:01:00.0 && echo 1 >enable || exit 1
python3 -c 'import mmap; file = open("resource0", "r+b"); mmap.mmap(file.fileno(), 4096)[1]'"""
        run = ["--no-refresh", "--accel", "tcg", "--boot-timeout", "240", "--strict", "-c", job]
        self.refused("--strict fails on a kernel report and on a guest error", run, 123,
                     ("guest1: kernel report: ", "guest1: guest error: qrnic nic0: register 0x1: register-access: "), lines=2)
        self.launched("--strict accepts allowed reports", [*run[1:], "--allow-report", "made up",
                                                             "--allow-guest-error", "register-access"], {})
        self.refused("--strict does not replace the job's status", [*run[:-1], job + "; exit 7"], 7, "WARNING: made up", lines=0)

    def broken(self):
        """Reports features of the host that are missing: namespaces, a tap device, a time stamp counter."""
        from guestlib import host  # pylint: disable=import-outside-toplevel
        with tempfile.TemporaryDirectory(prefix="qt-bin-") as directory:
            for name in ("unshare", "nsenter"):
                path = os.path.join(directory, name)
                with open(path, "w", encoding="ascii") as file:
                    file.write("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
                os.chmod(path, 0o755)
            self.refused("hosts where no network namespace can be made",
                         ["--no-refresh", "--accel", "tcg", "--guests", "2", "--nic", "qrnic:hosts", "-c", "true"], 125,
                         "network 'hosts': 'unshare ", env={"PATH": f"{directory}:{os.environ['PATH']}"})
            # Checked early, because building a root takes minutes.
            with tempfile.TemporaryDirectory(prefix="qt-cache-") as cache:
                done = subprocess.run([os.path.join(os.path.dirname(self.guest), "guest-root")], stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=60, check=False,
                                      env={**self.env, "QRNIC_CACHE": cache, "PATH": f"{directory}:{os.environ['PATH']}"})
                made = [name for name in os.listdir(os.path.join(cache, "guest")) if not name.startswith(".")]
            good = done.returncode == 1 and "permits no namespace" in done.stderr and not made
            self.report.result(good, "launcher: a root where no namespace can be made",
                               details=[f"exit status {done.returncode}, made {made}", *done.stderr.splitlines()[-8:]])
        user = [] if os.getuid() == 0 else ["--map-root-user"]
        script = 'mount --bind /dev/null /dev/net/tun || exit 98; exec "$@"'
        done = subprocess.run(["unshare", *user, "--mount", "sh", "-c", script, "sh", self.guest, "--no-refresh", "--accel",
                               "tcg", "--nic", "qrnic:tap=qt0", "-c", "true"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=100, check=False, env=self.env)
        skip = " # SKIP this machine does not permit it" if done.returncode == 98 else ""
        good = done.returncode == 125 and "QEMU does not start guest1" in done.stderr and not self.left_behind()
        self.report.result(good or bool(skip), "launcher: a tap device that does not exist", skip,
                           details=[f"exit status {done.returncode}", *done.stderr.splitlines()[-8:]])
        with tempfile.TemporaryDirectory(prefix="qt-") as directory:
            long = os.path.join(directory, "x" * 100)
            os.mkdir(long)
            done = subprocess.run([self.guest, "--no-refresh", "--accel", "tcg", "--no-nic", "--boot-timeout", "240", "-c",
                                   "echo here"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                                  check=False, env={**self.env, "TMPDIR": long})
            good = done.returncode == 0 and done.stdout == "here\n" and not os.listdir(long)
            self.report.result(good, "launcher: a TMPDIR too long for sockets",
                               details=[f"exit status {done.returncode}, left {os.listdir(long)}", *done.stderr.splitlines()[-8:]])
        root = os.path.dirname(os.path.dirname(self.guest))
        done = subprocess.run([os.path.join(root, "tests", "guest", "run"), "--help"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False, env=self.env,
                              preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
        self.report.result("side by side (default: 1)" in " ".join(done.stdout.split()),
                           "launcher: processors that exist but may not be used",
                           details=done.stdout.splitlines() + done.stderr.splitlines())
        clock = host.steady_khz(lambda: (time.monotonic_ns(), time.monotonic_ns() * 3))
        jumps = iter((0, 100_000_000, 900_000_000))
        none = host.steady_khz(lambda: (time.monotonic_ns(), next(jumps)))
        stands = host.steady_khz(lambda: (time.monotonic_ns(), 7))
        self.report.result(abs(clock - 3000000) < 1000 and none == 0 and stands == 0,
                           "launcher: a time stamp counter is used only if it is steady",
                           details=[f"{clock}, {none} and {stands} kHz"])

    def reports(self):
        """Counts reports in a log of the kernel. Each counts once, and an allowed report hides no other report."""
        from guestlib import strict  # pylint: disable=import-outside-toplevel
        warning = ["[ 1.0] ------------[ cut here ]------------", "[ 1.0] WARNING: CPU: 0 PID: 1 at a.c:1 known+0x1/0x2",
                   "[ 1.0] Call Trace:", "[ 1.0]  known+0x1/0x2", "[ 1.0] ---[ end trace 0000000000000000 ]---"]
        oops = ["[ 2.0] BUG: kernel NULL pointer dereference, address: 0"]
        clean = ["[ 0.0] RCU lockdep checking is enabled.", "[ 0.0] DMA-API: preallocated 65536 debug entries"]
        cases = ((clean, [], 0), (warning, [], 1), (warning + oops, [], 2), (warning + oops, ["known"], 1),
                 (warning[:3] + oops + warning[3:], ["known"], 1), (warning[:3], [], 1),
                 (["[ 3.0] qrnic 0000:01:00.0: command timed out"], [], 1),
                 (["[ 3.0] qrnic 0000:01:00.0: probe with driver qrnic failed with error -12"], [], 1),
                 (["[ 3.0] qrnic: probe of 0000:01:00.0 failed with error -12"], [], 1))
        wrong = [f"{len(strict.kernel_reports(log, allowed))} instead of {count} in {log}"
                 for log, allowed, count in cases if len(strict.kernel_reports(log, allowed)) != count]
        self.report.result(not wrong, "launcher: reports in a kernel's log", details=wrong)
        report, error = ["guest1: kernel report: Oops"], ["guest1: guest error: rule"]
        cases = ((0, [], 0), (0, report, 123), (0, error, 123), (7, report, 7), (137, report, 123), (139, report, 123),
                 (137, error, 137), (137, [], 137))
        wrong = [f"a job's status {job} with {lines} is {strict.status(job, lines)}, not {expected}"
                 for job, lines, expected in cases if strict.status(job, lines) != expected]
        self.report.result(not wrong, "launcher: the status of a run with reports", details=wrong)

    def interrupted(self):
        """Ends the launcher by Ctrl-C, SIGTERM and SIGKILL. No QEMU may run afterwards."""
        for number, name in ((signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM"), (signal.SIGKILL, "SIGKILL")):
            with subprocess.Popen([self.guest, "--no-refresh", "--accel", "tcg", "--no-nic", "-c", "sleep 1000"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  env=self.env, text=True, preexec_fn=heed_interrupts) as process:
                qemus = wait_until(lambda: qemus_of(process.pid), 20)  # pylint: disable=cell-var-from-loop
                process.send_signal(number)
                ended = wait_until(lambda: process.poll() is not None, 20)  # pylint: disable=cell-var-from-loop
                process.kill()
                said = process.stderr.read()
            # A killed process releases its memory first, which takes a moment.
            wait_until(lambda: not any(map(runs, qemus)), 20)  # pylint: disable=cell-var-from-loop
            problems = [] if qemus else ["QEMU never started"]
            problems += [] if ended else [f"{name} did not end it"]
            problems += [f"QEMU {pid} still runs" for pid in qemus if runs(pid)]
            problems += [f"output: {line}" for line in said.splitlines()]
            if number != signal.SIGKILL and self.left_behind():
                problems.append(f"left behind: {self.left_behind()}")
            self.report.result(not problems, f"launcher: {name} leaves nothing behind", details=problems)

    def interrupted_checks(self):
        """Sends SIGINT to tools, as Ctrl-C does to all processes of a terminal, or SIGTERM several times, as timeout(1) does. A tool must
        print no traceback.
        """
        for signals, words in ((1, ["check-static", "scripts"]), (1, ["check-scenarios"]), (1, ["check-unit", "--no-build"]), (1, ["lint-layers"]),
                               (1, ["watch"]), (1, ["check", "contract"]), (20, ["check", "static"])):
            number = signal.SIGINT if signals == 1 else signal.SIGTERM
            command = [os.path.join(self.root, "tools", words[0]), *words[1:]]
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=self.env, start_new_session=True, preexec_fn=heed_interrupts) as process:
                # Python itself prints a traceback while it imports modules, so the tool must have begun its work.
                wait_until(lambda tool=process, busy=signals > 1: tool.poll() is not None or
                           any(not busy or children_of(child) for child in children_of(tool.pid)), 60)
                for _ in range(signals):
                    if process.poll() is None:
                        os.killpg(process.pid, number)
                        # Later signals must come while the tool ends its suites. The verdict does not depend on this time.
                        time.sleep(0.001)
                try:
                    _, said = process.communicate(timeout=60)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    said = "it did not end"
            # A tool that ended before the interruption has its own exit status.
            good = process.returncode in (130, 143, -signal.SIGINT, 0, 1) and "Traceback" not in said and "did not end" not in said
            self.report.result(good, f"launcher: {number.name} ends {' '.join(words)} without a traceback",
                               details=[f"exit status {process.returncode}", *said.splitlines()[-12:]])

    def packages(self):
        """Runs tools that lack packages: each names the package only. Ctrl-C must not interrupt an installation."""
        with tempfile.TemporaryDirectory(prefix="qt-") as directory:
            for module in ("yaml", "docutils", "matplotlib"):
                with open(os.path.join(directory, f"{module}.py"), "w", encoding="ascii") as file:
                    file.write("raise ImportError('none here')\n")
            os.mkdir(os.path.join(directory, "bin"))
            calls = os.path.join(directory, "calls")
            with open(os.path.join(directory, "bin", "apt-get"), "w", encoding="ascii") as file:
                file.write(f"""#!/bin/sh
case "$*" in *--no-download*) echo begun >>{calls}; sleep 1; echo installed >>{calls} ;; *) echo "$@" >>{calls} ;; esac
""")
            os.chmod(os.path.join(directory, "bin", "apt-get"), 0o755)
            with open(os.path.join(directory, "none.json"), "w", encoding="ascii") as file:
                file.write("[]")
            env = {**self.env, "PYTHONPATH": directory, "PATH": f"{directory}/bin:{os.environ['PATH']}", "QRNIC_CACHE": directory}
            for words, package in ((["manual"], "python3-docutils"), (["simulate", "none.yaml"], "python3-yaml"),
                                   (["experiments", "--no-build"], "python3-matplotlib"), (["experiments"], "python3-matplotlib"),
                                   (["bench", "--read", f"{directory}/none.json", "--plots", f"{directory}/plots"], "python3-matplotlib")):
                done = subprocess.run([os.path.join(self.root, "tools", words[0]), *words[1:]], stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=60, check=False, env=env)
                lines = done.stderr.splitlines()
                good = (done.returncode not in (0, 2, 127) and any(package in line and "tools/deps" in line for line in lines) and
                        all(line.startswith("deps: missing packages: ") for line in lines) and not os.path.exists(calls))
                self.report.result(good, f"launcher: {words[0]} names {package} and installs nothing",
                                   details=[f"exit status {done.returncode}", *lines[-8:]])
            os.unlink(os.path.join(directory, "yaml.py"))
            os.unlink(os.path.join(directory, "docutils.py"))
            scenario = os.path.join(self.root, "tests", "scenarios", "incast.yaml")
            for words in ([scenario], ["--no-build", scenario]):
                done = subprocess.run([os.path.join(self.root, "tools", "simulate"), *words], stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=60, check=False, env=env)
                lines = done.stderr.splitlines()
                self.report.result(done.returncode == 1 and len(lines) == 1 and "python3-matplotlib" in lines[0],
                                   "launcher: simulate names what its pictures need before it runs",
                                   details=[f"exit status {done.returncode}", *lines[-8:]])
            with subprocess.Popen([os.path.join(self.root, "tools", "deps"), "plots"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env, start_new_session=True,
                                  preexec_fn=heed_interrupts) as process:
                wait_until(lambda: b"begun" in contents(calls), 20)
                for number in (signal.SIGINT, signal.SIGTERM):
                    os.killpg(process.pid, number)
                process.wait(20)
            made = contents(calls).decode().splitlines()
            self.report.result(os.getuid() != 0 or made[-2:] == ["begun", "installed"],
                               "launcher: an installation is not interrupted", "" if os.getuid() == 0 else " # SKIP for root only", details=made)

    def progress(self):
        """Runs check-qtest, which must print each result at once: the second test waits until the first result was read."""
        with tempfile.TemporaryDirectory(prefix="qt-") as directory:
            seen = os.path.join(directory, "seen")
            program = f"echo 1..2; echo ok 1 first; until [ -e {seen} ]; do sleep 0.05; done; echo not ok 2 second; exit 1"
            script = f"""
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.SourceFileLoader("check_device", {os.path.join(self.root, 'tools', 'check-device')!r})
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_device", loader))
loader.exec_module(module)
out = module.Output()
module.Programs(out, 20).run(["sh", "-c", sys.argv[1]], "program")
module.Programs(out, 1).run(["sleep", "1000"], "late")
sys.exit(out.finish())
"""
            with subprocess.Popen([sys.executable, "-c", script, program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, env=self.env) as process:
                lines = []
                for line in process.stdout:
                    lines.append(line.rstrip())
                    if "first" in line:
                        with open(seen, "w", encoding="ascii"):
                            pass
        said = [line for line in lines if not line.startswith("#")]
        expected = ["TAP version 13", "ok 1 - program: first", "not ok 2 - program: second", "not ok 3 - late did not end in 1 s", "1..3"]
        self.report.result(said == expected and process.returncode == 1, "launcher: check-qtest prints each result at once", details=lines)

    def without_progress(self):
        """Serves guests with a clock of its own: a run of any length continues while it makes progress, and ends without."""
        script = f"""
import sys, types
sys.path.insert(0, {os.path.join(self.root, 'tools')!r})
from guestlib import run
from guestlib.errors import LaunchError
clock, events = [0.0], []
one = types.SimpleNamespace(number=1, status=None, devices=[], boots=1, is_ready=True, serial_log="/nonexistent", serial_seen=0,
                            process=types.SimpleNamespace(poll=lambda: None))
class Selector:
    def select(self, timeout):
        clock[0] += 15
        if clock[0] > 1000:
            sys.exit("no limit")
        return [(types.SimpleNamespace(data=(one, events.append)), 1)] if len(events) < 10 else []
run.time = types.SimpleNamespace(monotonic=lambda: clock[0])
served = run.Run.__new__(run.Run)
served.options = types.SimpleNamespace(boot_timeout=90, timeout=0, progress_timeout=20)
served.accelerator, served.guests, served._selector = types.SimpleNamespace(name="tcg"), [one], Selector()
try:
    served._serve()
except LaunchError as error:
    print(len(events), clock[0], error)
"""
        done = subprocess.run([sys.executable, "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        self.report.result(done.stdout == "10 180.0 the job made no progress for 20 s on guest1: allow more with --progress-timeout\n",
                           "launcher: --progress-timeout ends a run without progress only", details=(done.stdout + done.stderr).splitlines()[-8:])

    def stalls(self):
        """Runs the stalls of tests/guest/run --stall. Only QEMU processes of the run are stopped, and none stays stopped."""
        with tempfile.TemporaryDirectory(prefix="st-") as directory:
            names = ("qemu-system-own", "other", "qemu-system-far")
            for name in names:
                shutil.copy("/bin/sleep", os.path.join(directory, name))
            far = subprocess.Popen([os.path.join(directory, names[2]), "1000"])
            script = f"""
import importlib.machinery, importlib.util, subprocess, sys, time
loader = importlib.machinery.SourceFileLoader("run", {os.path.join(self.root, 'tests', 'guest', 'run')!r})
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
loader.exec_module(module)
def state(pid):
    with open(f"/proc/{{pid}}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0]
shell = subprocess.Popen(["sh", "-c", "{directory}/{names[0]} 1000 & echo $!; {directory}/{names[1]} 1000 & echo $!; wait"],
                         stdout=subprocess.PIPE, text=True)
own, other = int(shell.stdout.readline()), int(shell.stdout.readline())
stalls = module.Stalls(0.4, 5)
stalls.start()
changes, last, wrong = 0, "", set()
deadline = time.monotonic() + 60
while changes < 6 and time.monotonic() < deadline:
    now = state(own) == "T"
    changes, last = changes + (now != last), now
    wrong |= {{pid for pid in (other, {far.pid}, shell.pid) if state(pid) == "T"}}
    time.sleep(0.001)
stalls.end()
deadline = time.monotonic() + 20
while state(own) == "T" and time.monotonic() < deadline:
    time.sleep(0.001)
print(changes >= 6, stalls.count >= 2, state(own) != "T", sorted(wrong))
for pid in (own, other):
    __import__("os").kill(pid, 9)
shell.wait()
"""
            try:
                done = subprocess.run([sys.executable, "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                      timeout=120, check=False)
            finally:
                far.kill()
                far.wait()
        self.report.result(done.stdout == "True True True []\n", "launcher: --stall stops and continues QEMU processes of the run only",
                           details=(done.stdout + done.stderr).splitlines())
        for value in ("0.1", "61", "nan", "-1"):
            done = subprocess.run([os.path.join(self.root, "tests", "guest", "run"), f"--stall={value}", "--list"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=60, check=False)
            self.report.result(done.returncode == 2 and "--stall must be" in done.stderr, f"launcher: --stall={value} is rejected",
                               details=[f"status {done.returncode}", *done.stderr.splitlines()])

    def inside_only(self):
        """Runs jobs that need the device inside QEMU over a process. The runner skips these jobs before a guest starts."""
        for options in (["--device=process"], ["--device", "process"]):
            done = subprocess.run([os.path.join(self.root, "tests", "guest", "run"), "54-pci-errors", "56-unplug", "--logs", self.scratch.name,
                                   *(f"--guest-option={option}" for option in options)], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=300, check=False)
            skipped = [line for line in done.stdout.splitlines() if re.match(r"ok \d - (pci-errors|unplug): the whole job +# SKIP QEMU ", line)]
            self.report.result(done.returncode == 0 and len(skipped) == 2 and "\n1..2\n" in done.stdout,
                               f"launcher: with {' '.join(options)} jobs for the device inside QEMU are skipped",
                               details=(done.stdout + done.stderr).splitlines())

    def pinned(self):
        """Runs the launcher with --pin. Each guest has separate processors of the host, if there are enough."""
        from guestlib import host  # pylint: disable=import-outside-toplevel
        every = sorted(os.sched_getaffinity(0))
        command = [self.guest, "--no-refresh", "--accel", "tcg", "--no-nic", "--pin", "-c", "sleep 1000"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=self.env, preexec_fn=heed_interrupts) as process:
            qemus = wait_until(lambda: qemus_of(process.pid), 20)
            seen = [os.sched_getaffinity(pid) for pid in qemus]
            process.send_signal(signal.SIGINT)
            process.wait(20)
        problems = [] if seen == [{every[0]}] else [f"guest 1 may run on {seen}, not on {every[0]} alone"]
        for number, wanted, expected in ((1, 1, {2}), (2, 1, {5}), (3, 1, {7}), (4, 1, {2}), (2, 2, {7, 2}), (1, 9, {2, 5, 7})):
            got = host.processors(number, wanted, {2, 5, 7})
            if got != expected:
                problems.append(f"guest {number} with {wanted} processors is to have {expected}, not {got}")
        self.report.result(not problems, "launcher: --pin", details=problems)

    def terminal(self):
        """Runs a shell on a terminal, and checks that the terminal has its former mode afterwards."""
        ours, theirs = pty.openpty()
        before = termios.tcgetattr(theirs)
        said = bytearray()

        def listen():
            try:
                while data := os.read(ours, 4096):
                    said.extend(data)
            except OSError:
                pass

        threading.Thread(target=listen, daemon=True).start()
        problems = []
        with subprocess.Popen([self.guest, "--no-refresh", "--accel", "tcg", "--interactive"], stdin=theirs,
                              stdout=theirs, stderr=theirs, env=self.env, start_new_session=True) as process:
            # The terminal echoes the input, so the expected replies differ from the input.
            for typed, answer in (("", b"guest1:~# "), ("ls /sys/class/infiniband | tr q Q", b"Qrnic0"),
                                  ("ibv_devinfo | grep -c PORT_ACTIVE", b"\r1\r"), ("exit 3", None)):
                os.write(ours, typed.encode() + b"\r" if typed else b"")
                if answer and not wait_until(lambda: answer in said, 60 if typed else 240):  # pylint: disable=cell-var-from-loop
                    problems.append(f"no answer to '{typed}': {bytes(said[-300:])}")
                    break
                said.clear()
            if not wait_until(lambda: process.poll() is not None, 20):
                problems.append("the guest continues to run after the end of the shell")
                process.terminate()
        if not problems and process.returncode != 3:
            problems.append(f"exit status {process.returncode} instead of 3: {bytes(said[-300:])}")
        if termios.tcgetattr(theirs) != before:
            problems.append("the terminal is left in another mode")
        os.close(theirs)
        os.close(ours)
        self.report.result(not problems, "launcher: a shell on a terminal", details=problems)

    def live(self):
        """Runs qrnic top while two queue pairs of a guest exchange messages: as JSON, as a page, and on a terminal."""
        top = os.path.join(os.path.dirname(self.guest), "top")

        def shown(*options):
            return subprocess.run([top, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
                                  env=self.env)

        def busy():
            done = shown("--once", "--json", "--interval", "0.5", "--filter", "type=RC", "--filter", "state=RTS")
            found.update(json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr})
            return len([pair for pair in found.get("queue-pairs", ()) if pair["sq-rate"] and pair["rq-rate"]]) == 2

        found, problems = {}, []
        none = shown("--once")
        if none.returncode != 1 or len(none.stderr.splitlines()) != 1 or "no guest of tools/guest runs" not in none.stderr:
            problems.append(f"without a guest: exit status {none.returncode}, {none.stderr!r}")
        job = "ibv_rc_pingpong -d $RDMA0 -g $(gid_index $RDMA0 4) -n 100000000 >/dev/null & " \
              "wait_for_port 18515; ibv_rc_pingpong -d $RDMA0 -g $(gid_index $RDMA0 4) -n 100000000 localhost"
        with subprocess.Popen([self.guest, "--no-refresh", "--accel", "tcg", "--boot-timeout", "240", "--nic", "qrnic",
                               "-c", job], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=self.env, preexec_fn=heed_interrupts) as process:
            if not wait_until(lambda: busy() or process.poll() is not None, 240) or process.poll() is not None:
                problems.append(f"no two busy queue pairs: {found}")
            else:
                problems += self.top_problems(shown, top, found)
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
        self.report.result(not problems, "launcher: qrnic top shows the queue pairs of a guest",
                           details=problems + (said.splitlines()[-8:] if problems else []))

    def top_problems(self, shown, top, found):
        """Returns the problems of the other forms of qrnic top, while two queue pairs are busy."""
        problems = []
        for device, values in found["devices"].items():
            problems += [f"{device}: {name} is {values[name]}" for name in ("packets out/s", "CQEs/s") if not values[name]]
        for options, part, status in ((["--once"], "SEND/s", 0), (["--once", "--filter", "type=UD"], "no queue pair passes", 0),
                                      (["--once", "--filter", "colour=red"], "is not NAME=VALUE", 2),
                                      (["--once", "--qmp", "/nonexistent"], "No such file", 1)):
            done = shown(*options)
            if done.returncode != status or part not in done.stdout + done.stderr or "Traceback" in done.stderr:
                problems.append(f"{options}: exit status {done.returncode}, {(done.stdout + done.stderr)[-300:]!r}")
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 132, 0, 0))
        before = termios.tcgetattr(theirs)
        drawn = bytearray()

        def listen():
            try:
                while data := os.read(ours, 4096):
                    drawn.extend(data)
            except OSError:
                pass

        threading.Thread(target=listen, daemon=True).start()
        with subprocess.Popen([top, "--interval", "0.2"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                              env={**self.env, "TERM": "xterm"}) as process:
            for key, expected in ((b"", b"sorted by SEND/s"), (b"s", b"RQ"), (b"r", b""), (b"q", b"")):
                os.write(ours, key)
                if expected and not wait_until(lambda: expected in drawn, 60):  # pylint: disable=cell-var-from-loop
                    problems.append(f"the terminal does not show {expected} after key {key}: {bytes(drawn[-300:])}")
            if not wait_until(lambda: process.poll() is not None, 60):
                problems.append("the key q does not end it")
                process.kill()
        if process.returncode:
            problems.append(f"exit status {process.returncode} on a terminal: {bytes(drawn[-300:])}")
        if termios.tcgetattr(theirs) != before:
            problems.append("the terminal is left in another mode")
        os.close(theirs)
        os.close(ours)
        return problems

    def tap(self):
        """Exchanges frames with an interface of the host, which is in a network namespace of its own. There IPv6
        has addresses and routes, but no other host. A second card is behind libslirp, which has IPv6, too."""
        name = "launcher: a tap interface of the host"
        user = [] if os.getuid() == 0 else ["--map-root-user"]
        host = "ip tuntap add dev qt0 mode tap && ip address add 10.77.0.200/24 dev qt0 && ip link set qt0 up"
        host += " && { ip address add fd99::200/64 dev qt0 nodad; ip -6 route add default via fd99::1 dev qt0; true; }"
        guest = 'ping -c 3 -W 10 10.77.0.200 && ping -c 3 -W 10 -I $NIC1 10.0.2.2 && ibv_devinfo -d $RDMA0 | grep -q PORT_ACTIVE'
        script = f'{host} || exit 98; exec "$@"'
        done = subprocess.run(["unshare", *user, "--net", "sh", "-c", script, "sh", self.guest, "--no-refresh", "--accel",
                               "tcg", "--boot-timeout", "240", "--nic", "qrnic:tap=qt0", "--nic", "qrnic:user", "-c", guest],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
                              env=self.env)
        if done.returncode == 98:
            self.report.result(True, name, " # SKIP this machine does not permit a tap interface")
            return
        problems = [f"exit status {done.returncode}"] if done.returncode else []
        self.report.result(not problems, name, details=problems + (done.stdout + done.stderr).splitlines()[-12:])

    def marks(self):
        """Checks a wire that marks frames: only ECN of RoCE v2 frames with ECT, and the checksum, change."""
        from guestlib import wire  # pylint: disable=import-outside-toplevel

        def ipv4(tos, port=4791, protocol=17, fragment=0, vlan=b"", options=0):
            header = bytearray(struct.pack(">BBHHHBBHII", 0x45 + options, tos, 48 + 4 * options, 1, fragment, 64, protocol, 0,
                                           0x0a4d0001, 0x0a4d0002) + b"\1" * 4 * options)
            header[10:12] = struct.pack(">H", checksum(header) ^ 0xffff)
            return bytes(12) + vlan + b"\x08\0" + header + struct.pack(">HHHH", 50000, port, 28, 0) + bytes(20)

        def checksum(header):
            total = sum(struct.unpack(f">{len(header) // 2}H", header))
            return total % 0xffff or 0xffff

        def ipv6(traffic_class, port=4791):
            return (bytes(12) + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28 | traffic_class << 20 | 0xfffff, 28, 17, 64) +
                    bytes(32) + struct.pack(">HHHH", 50000, port, 28, 7) + bytes(20))

        wrong = []
        for shape in ({}, {"vlan": b"\x81\0\0\7"}, {"options": 2}):
            at = 14 + len(shape.get("vlan", b""))
            for tos in (0x02, 0x01, 0xba, 0x03):
                if wire.marked(ipv4(tos, **shape)) != ipv4(tos | 3, **shape):
                    wrong.append(f"IPv4, ToS {tos:#x}, {shape}")
                if checksum(ipv4(tos, **shape)[at:at + 20 + 4 * shape.get("options", 0)]) != 0xffff:
                    wrong.append("this test's own checksum")
        wrong += [f"IPv6, class {value:#x}" for value in (0x02, 0x01, 0xba, 0x03) if wire.marked(ipv6(value)) != ipv6(value | 3)]
        others = {"no ECT": ipv4(0x60), "no ECT, IPv6": ipv6(0x60), "another port": ipv4(2, port=4790), "IPv6, another port": ipv6(2, 53),
                  "TCP": ipv4(2, protocol=6), "a later fragment": ipv4(2, fragment=5), "ARP": bytes(12) + b"\x08\x06" + bytes(46),
                  **{f"{length} bytes": ipv4(2)[:length] for length in range(36)}}
        wrong += [f"{name} is marked" for name, frame in others.items() if wire.marked(frame) is not None]
        self.report.result(not wrong, "launcher: marks on the wire", details=wrong)

        def to(number, frame):
            return frame[:-20] + bytes(5) + number.to_bytes(3, "big") + bytes(12)

        lossy = wire.FaultyWire(wire.Faults("loss=100,spare=mads"))
        shapes = (ipv4(2), ipv4(0, vlan=b"\x81\0\0\7", options=2), ipv6(0))
        wrong = [frame.hex() for frame in shapes if lossy.frame(0, to(1, frame)) != [to(1, frame)]]
        wrong += [frame.hex() for frame in (*(to(0x10001, shape) for shape in shapes), *(to(0x100, shape) for shape in shapes),
                                            *(to(1, others[name]) for name in others if "ECT" not in name)) if lossy.frame(0, frame)]
        lossy.close()
        self.report.result(not wrong, "launcher: management datagrams that the wire does not drop", details=wrong)

    def wires(self):
        """Runs RDMA over each kind of wire, and checks that --pcap records all frames."""
        job = """
gid=$(gid_index $RDMA0 4)
for program in "ibv_rc_pingpong -c -g $gid -n 100" "ib_write_bw -F -x $gid -n 100"; do
    if [ $GUEST = 1 ]; then
        timeout 60 $program -d $RDMA0 >server.log 2>&1 & server=$!
        wait_for_port 18515; barrier "up $program"; wait $server || exit 1
    else
        barrier "up $program"; timeout 60 $program -d $RDMA0 guest1 || exit 1
    fi
    barrier "end $program"
done"""
        for wire in ("dgram", "stream", "cable"):
            suffix = "pcapng" if wire == "cable" else "pcap"
            with tempfile.TemporaryDirectory(prefix="qt-pcap-") as directory:
                done = subprocess.run([self.guest, "--no-refresh", "--guests", "2", "--boot-timeout", "240", "--nic", f"qrnic:link={wire}",
                                       "--pcap", directory, "-c", job], stdin=subprocess.DEVNULL, capture_output=True,
                                      text=True, timeout=600, check=False, env=self.env)
                problems = [f"exit status {done.returncode}"] if done.returncode else []
                self.report.result(not problems, f"launcher: RDMA over the wire of kind {wire}",
                                   details=problems + done.stderr.splitlines()[-8:])
                problems = []
                for guest in (1, 2):
                    try:
                        with open(os.path.join(directory, f"guest{guest}-net0.{suffix}"), "rb") as file:
                            problems += capture_problems(file.read())
                    except OSError as error:
                        problems.append(str(error))
                self.report.result(not problems, f"launcher: --pcap records the frames of the wire of kind {wire}",
                                   details=problems)

    def tshark(self):
        """Reads a capture of a lossy, marking wire by tshark, which decodes CNPs and marks, and a part of a SACK."""
        name = "launcher: tshark reads marks, CNPs and SACKs"
        if not shutil.which("tshark"):
            self.report.result(True, name, " # SKIP no tshark: tools/deps more")
            return
        job = """
gid=$(gid_index $RDMA0 4)
cd /sys/kernel/debug/qrnic/*/cc_params && echo 1 >ect_enable && echo 1 >np_enable && echo 1 >rp_enable && cd - || exit 2
export QRNIC_SELECTIVE_REPEAT=1
if [ $GUEST = 1 ]; then
    timeout 60 ib_write_bw -d $RDMA0 -F -x $gid -n 50 >server.log 2>&1 & server=$!
    wait_for_port 18515; barrier up; wait $server
else
    barrier up; timeout 60 ib_write_bw -d $RDMA0 -F -x $gid -n 50 guest1
fi"""
        fields = ("infiniband.bth.opcode", "ip.src", "ip.dsfield.ecn", "ip.dsfield.dscp")
        with tempfile.TemporaryDirectory(prefix="qt-pcap-") as directory:
            done = subprocess.run([self.guest, "--no-refresh", "--guests", "2", "--boot-timeout", "240", "--nic", "qrnic:link=dgram",
                                   "--wire", "loss=2,mark=5,seed=3", "--pcap", directory, "-c", job], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=600, check=False, env=self.env)
            read = subprocess.run(["tshark", "-n", "-r", os.path.join(directory, "guest1-net0.pcap"), "-Y", "infiniband",
                                   "-T", "fields", *(word for field in fields for word in ("-e", field))],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
        frames = [(int(opcode, 0), source, int(ecn, 0), int(dscp, 0)) for opcode, source, ecn, dscp
                  in (line.split("\t") for line in read.stdout.splitlines()) if opcode]
        first, second = "10.77.0.1", "10.77.0.2"
        # RDMA WRITE First, Middle and Last from guest 2, all with ECT or marked; from guest 1 what answers them
        writes = [ecn for opcode, source, ecn, _ in frames if source == second and opcode in (6, 7, 8)]
        answers = {opcode: [frame for frame in frames if frame[0] == opcode and frame[1] == first] for opcode in (0x11, 0x1f, 0x81)}
        problems = [f"exit status {done.returncode}"] if done.returncode else []
        problems += [] if len(writes) >= 3000 and set(writes) == {2, 3} else [f"{len(writes)} writes, ECN {sorted(set(writes))}"]
        problems += [f"no frame of opcode {opcode:#x}" for opcode, found in answers.items() if not found]
        problems += ["a CNP with another DSCP, or with ECT"] if any(frame[2:] != (0, 48) for frame in answers[0x81]) else []
        self.report.result(not problems, name, details=problems and [*problems, *(done.stderr + read.stderr).splitlines()[-8:]])

    def captures(self):
        """Captures a ping-pong of two guests with device processes, joins both files, and follows one message. tests/pages
        boots a guest whose QEMU has the device."""
        job = """
gid=$(gid_index $RDMA0 4)
if [ $GUEST = 1 ]; then
    timeout 60 ibv_rc_pingpong -e -g $gid -n 10 -d $RDMA0 >server.log 2>&1 & server=$!
    wait_for_port 18515; barrier up; wait $server
else
    barrier up; timeout 60 ibv_rc_pingpong -e -g $gid -n 10 -d $RDMA0 guest1
fi"""
        run = ["--no-refresh", "--accel", "tcg", "-c", "true"]
        self.refused("a folder of captures with a comma", ["--capture", "/tmp/a,b", *run], 2, "must have no comma")
        self.refused("captures without a qrnic", ["--capture", "caps", "--nic", "virtio", *run], 2, "needs a card of kind qrnic")
        self.refused("captures in a file", ["--capture", "/dev/null/caps", *run], 2, "--capture /dev/null/caps: ")
        with tempfile.TemporaryDirectory(prefix="qt-capture-") as directory:
            done = subprocess.run([self.guest, "--no-refresh", "--guests", "2", "--boot-timeout", "240", "--device", "process",
                                   "--capture", directory, "-c", job], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=600, check=False, env=self.env)
            problems = [f"exit status {done.returncode}"] if done.returncode else []
            problems += [] if f"lua_script:{directory}/qrnic.lua" in done.stderr else ["no hint"]
            self.report.result(not problems, "launcher: captures of bus and wire",
                               details=problems and problems + done.stderr.splitlines()[-8:])
            name = "launcher: a merged capture shows the whole life of a message"
            if not shutil.which("mergecap"):
                self.report.result(True, name, " # SKIP no mergecap: tools/deps more")
                return
            problems = life_problems(directory)
            self.report.result(not problems, name, details=problems)

    def switch(self):
        """Connects three guests by a switch. Each reaches the others, the job reads the counters, and no process is left."""
        job = """
for guest in 1 2 3; do ping -c 1 -W 10 guest$guest || exit 1; done
barrier pinged
[ $GUEST != 2 ] || host_switch || exit 1
host_switch 7 && exit 2
barrier end"""
        with tempfile.TemporaryDirectory(prefix="qt-") as directory:
            command = [self.guest, "--no-refresh", "--guests", "3", "--boot-timeout", "240", "--nic", "qrnic:link=cable",
                       "--pcap", directory, "--logs", directory, "-c", job]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
                                  check=False, env=self.env)
            problems = [f"exit status {done.returncode}"] if done.returncode else []
            for port in (1, 2, 3):
                if f"guest2: port={port} link=up" not in done.stdout:
                    problems.append(f"no counters of port {port}")
                try:
                    with open(os.path.join(directory, f"guest{port}-net0.pcapng"), "rb") as file:
                        problems += [] if list(pcapng_frames(file.read())) else ["an empty capture"]
                except (OSError, ValueError) as error:
                    problems.append(str(error))
            with open(os.path.join(directory, "net0.switch.log"), encoding="utf-8") as file:
                if file.read().count("port=") != 3:
                    problems.append("no counters in its log")
        left = [path for path in glob.glob("/proc/[0-9]*/cmdline")
                if self.scratch.name.encode() in contents(path) and b"qrnic-switch" in contents(path)]
        problems += [f"left behind: {left + self.left_behind()}"] if left or self.left_behind() else []
        self.report.result(not problems, "launcher: three guests by cable and switch",
                           details=problems + done.stderr.splitlines()[-8:])


def contents(path):
    """Returns the content of a file that may not exist."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def pcap_frames(data):
    """Returns the frames of a pcap file."""
    magic, _, _, _, _, _, link = struct.unpack_from("=IHHiIII", data)
    if magic != 0xa1b2c3d4 or link != 1:
        raise ValueError("no pcap file of Ethernet frames")
    at = 24
    while at < len(data):
        _, _, length, original = struct.unpack_from("=IIII", data, at)
        frame = data[at + 16:at + 16 + length]
        at += 16 + length
        if len(frame) != length or length != original:
            raise ValueError("a record is cut off")
        yield frame


def pcapng_frames(data):
    """Returns the frames of a pcapng file with one interface, whose packets all have a time in ns and a direction."""
    at, expected, times = 0, [0x0a0d0d0a, 1], []
    while at < len(data):
        kind, length = struct.unpack_from("=II", data, at)
        block = data[at:at + length]
        at += length
        if kind != (expected.pop(0) if expected else 6) or len(block) != length or struct.unpack("=I", block[-4:])[0] != length:
            raise ValueError(f"a bad block of type {kind}")
        if kind == 1 and struct.unpack_from("=H", block, 8)[0] != 1:
            raise ValueError("not of Ethernet")
        if kind == 1 and struct.unpack_from("=HHB", block, len(block) - 16) != (9, 1, 9):
            raise ValueError("times are not in ns")
        if kind == 6:
            _, high, low, captured, original = struct.unpack_from("=IIIII", block, 8)
            option, size, flags = struct.unpack_from("=HHI", block, 28 + (captured + 3) // 4 * 4)
            times.append(high << 32 | low)
            if captured != original or (option, size) != (2, 4) or flags not in (1, 2):
                raise ValueError("a bad packet")
            yield block[28:28 + captured]
    if times != sorted(times) or not 0 <= time.time() - times[-1] / 1e9 < 3600:
        raise ValueError("the times are wrong")


def capture_problems(data):
    """Returns the problems of a capture of RoCEv2 traffic between two guests."""
    try:
        frames = list((pcapng_frames if data[:4] == b"\n\r\r\n" else pcap_frames)(data))
    except (ValueError, struct.error, IndexError) as error:
        return [str(error)]
    opcodes = set()
    good = bad = 0
    for frame in frames:
        if frame[12:14] != b"\x08\0" or frame[23] != 17 or frame[36:38] != b"\x12\xb7":
            continue
        # The ICRC excludes the fields that routers change (annex A17), so their bytes count as ones.
        end = 14 + struct.unpack_from(">H", frame, 16)[0]
        covered = bytearray(b"\xff" * 8 + frame[14:end - 4])
        for masked in (9, 16, 18, 19, 34, 35, 40):
            covered[masked] = 0xff
        matches = zlib.crc32(covered) == struct.unpack_from("<I", frame, end - 4)[0]
        good, bad = good + matches, bad + (not matches)
        opcodes.add(frame[42])
    problems = [f"{bad} RoCE frames have a wrong ICRC"] if bad else []
    # First, middle and last of SEND and of RDMA WRITE, ACKNOWLEDGE
    if not {0, 1, 2, 6, 7, 8, 0x11} <= opcodes or good < 6000:
        problems.append(f"{good} RoCE frames, opcodes {sorted(opcodes)}")
    return problems


def life_problems(directory):
    """Follows the first SEND of guest 2 through the captures of both guests. Returns the steps that are missing or late."""
    merged = os.path.join(directory, "merged.pcapng")
    joined = subprocess.run(["mergecap", "-I", "none", "-w", merged, *(os.path.join(directory, f"guest{guest}-nic0.pcapng") for guest in (1, 2))],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    fields = ("frame.interface_id", "frame.packet_flags_direction", "qrnic.tlp", "qrnic.use", "qrnic.qp", "qrnic.name", "qrnic.page", "qrnic.doorbell.number",
              "qrnic.vector", "infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.bth.destqp")
    read = subprocess.run(["tshark", "-n", "-r", merged, "-X", f"lua_script:{directory}/qrnic.lua", "-Y", "qrnic || infiniband",
                           "-T", "fields", *(word for field in fields for word in ("-e", field))],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    rows = [dict(zip(fields, line.split("\t"))) for line in read.stdout.splitlines()]

    def number(row, field):
        return int(row[field].split(",")[0], 0) if row.get(field) else None

    # The first SEND (opcode 4, or 0 for the first packet of several) that guest 2 sends
    sends = [row for row in rows if number(row, "infiniband.bth.opcode") in (0, 4) and number(row, "frame.interface_id") == 2]
    if joined.returncode or read.returncode or not sends:
        return ["no SEND of guest 2", *joined.stderr.splitlines()[-3:], *read.stderr.splitlines()[-3:]]
    psn, target = number(sends[0], "infiniband.bth.psn"), number(sends[0], "infiniband.bth.destqp")
    story = []
    for row in rows:
        guest = 1 if number(row, "frame.interface_id") < 2 else 2
        way = "out" if number(row, "frame.packet_flags_direction") == 2 else "in"
        if number(row, "infiniband.bth.psn") == psn and number(row, "infiniband.bth.opcode") in (0, 4) and \
                number(row, "infiniband.bth.destqp") == target:
            story.append((guest, f"SEND {way}"))
        elif number(row, "infiniband.bth.opcode") == 0x11:
            story.append((guest, f"ACK {way}"))
        elif row["qrnic.page"]:
            story.append((guest, "doorbell"))
        elif row["qrnic.vector"]:
            story.append((guest, "MSI-X"))
        else:
            story.append((guest, f"{row['qrnic.tlp']} {row['qrnic.use']}"))
    steps = ((2, "doorbell"), (2, "MRd wqe"), (2, "CplD wqe"), (2, "MRd data"), (2, "SEND out"), (1, "SEND in"), (1, "MRd receive-wqe"),
             (1, "MWr data"), (1, "MWr cqe"), (1, "MSI-X"), (1, "ACK out"), (2, "ACK in"), (2, "MWr cqe"))
    problems = []
    # The message completes at both guests independently, so the steps of a chain are in order, and two chains interleave.
    for chain in (steps[:9] + steps[9:10], steps[4:6] + steps[10:]):
        rest = iter(story)
        lost = next((step for step in chain if step not in rest), None)
        problems += [f"no '{lost[1]}' of guest {lost[0]} in its place of {chain}"] if lost else []
    return problems


def run(root, report, stopped):
    """Runs the tests until stopped() is true."""
    tests = Tests(root, report, stopped)
    try:
        for group in (tests.bad_options, tests.synced, tests.bad_devices, tests.drivers, tests.read_only, tests.endings, tests.kvm, tests.reports,
                      tests.broken, tests.strict, tests.terminal, tests.live, tests.tap, tests.marks, tests.wires, tests.tshark, tests.captures,
                      tests.switch, tests.pinned, tests.interrupted,
                      tests.interrupted_checks, tests.progress, tests.without_progress, tests.stalls, tests.inside_only, tests.packages):
            if not stopped():
                group()
    finally:
        tests.scratch.cleanup()
