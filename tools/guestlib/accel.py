"""Decides whether the guests of a run use KVM. Run makes one Accelerator before it starts guests, and calls give_up()
if KVM fails in a guest.

A /dev/kvm that opens and runs a few instructions may still hang or crash with a kernel (nested virtualisation).
Therefore KVM is used only after it has booted this kernel up to its first line on the console. The result is kept as
long as the boot of the host, QEMU and the kernel stay the same.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import tempfile
import time

from .errors import LaunchError
from .process import die_with

# Time limit of the first line. A kernel prints its version in the first tenths of a second; a busy host may take
# longer.
PROBE_SECONDS = 5
# Longest time without output of a guest under KVM before it reaches user space
SILENCE_SECONDS = 10

MACHINE = "q35,hpet=off,smm=off,vmport=off"


class DeadUnderKvm(Exception):
    """KVM failed in a guest before the job began; the text names the reason."""


def device():
    """Returns the path of the device. Tests set QRNIC_KVM, because they need a device that is broken."""
    return os.environ.get("QRNIC_KVM", "/dev/kvm")


def first_line(qemu, kernel, cpu):
    """Boots the kernel under KVM until it has printed one line. Returns None if it did, otherwise the reason of the
    failure.
    """
    with tempfile.TemporaryDirectory(prefix="qrnic-kvm-") as directory:
        console = os.path.join(directory, "console")
        said = os.path.join(directory, "said")
        command = [qemu, "-accel", "kvm", "-cpu", cpu, "-machine", MACHINE, "-m", "512", "-nodefaults",
                   "-no-user-config", "-display", "none", "-no-reboot", "-serial", f"file:{console}",
                   "-kernel", kernel, "-append", "console=ttyS0 earlyprintk=ttyS0 panic=-1"]
        launcher = os.getpid()
        with open(said, "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       preexec_fn=lambda: die_with(launcher))
        try:
            deadline = time.monotonic() + PROBE_SECONDS
            while True:
                ended = process.poll() is not None
                with contextlib.suppress(OSError), open(console, "rb") as file:
                    if b"\n" in file.read():
                        return None
                if ended:
                    with open(said, encoding="utf-8", errors="replace") as log:
                        lines = [line.strip() for line in log if line.strip()]
                    return f"QEMU ended with it{': ' + lines[-1][:120] if lines else ''}"
                if time.monotonic() > deadline:
                    return f"it printed nothing in {PROBE_SECONDS} s"
                time.sleep(0.02)
        finally:
            process.kill()
            process.wait()


class Memory:
    """Results of this boot of the host, one file for each pair of QEMU and kernel"""

    def __init__(self, cache, qemu, kernel, cpu):
        self._directory = os.path.join(cache, "kvm")
        self._path = None
        with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
            parts = [boot, cpu]
            for name in (qemu, kernel):
                stat = os.stat(name)
                parts += [os.path.realpath(name), str(stat.st_size), str(stat.st_mtime_ns)]
            key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
            self._path = os.path.join(self._directory, f"{boot}-{key}.json")

    @contextlib.contextmanager
    def locked(self):
        """Holds the lock of the results, so that launchers that start at the same time try KVM only once."""
        try:
            os.makedirs(self._directory, exist_ok=True)
            lock = open(os.path.join(self._directory, "lock"), "wb")
        except OSError:
            yield
            return
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def get(self):
        """Returns True or False for the stored result, None if there is none."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(self._path, encoding="utf-8") as file:
            return bool(json.load(file)["works"])
        return None

    def put(self, works, why):
        if not self._path:
            return
        with contextlib.suppress(OSError):
            boot = os.path.basename(self._path)[:36]
            for name in os.listdir(self._directory):
                if name.endswith(".json") and not name.startswith(boot):
                    os.unlink(os.path.join(self._directory, name))
            new = f"{self._path}.{os.getpid()}"
            with open(new, "w", encoding="utf-8") as file:
                json.dump({"works": works, "why": why}, file)
            os.rename(new, self._path)


class Accelerator:
    """The accelerator of a run's guests; name is "kvm" or "tcg"."""

    def __init__(self, wanted, qemu, kernel, cpu, cache, say):
        self._wanted = wanted
        self._say = say
        self._memory = Memory(cache, qemu, kernel, cpu)
        self.name = "tcg"
        if wanted != "tcg" and self._works(qemu, kernel, cpu):
            self.name = "kvm"

    def _works(self, qemu, kernel, cpu):
        asked_for = self._wanted == "kvm"
        if not os.access(device(), os.R_OK | os.W_OK):
            if asked_for:
                raise LaunchError(f"this machine has no KVM that you may use ({device()}): use --accel tcg")
            return False
        with self._memory.locked():
            # --accel kvm repeats the try, because the user may have repaired KVM since.
            works = None if asked_for else self._memory.get()
            if works is not None:
                return works
            trouble = first_line(qemu, kernel, cpu)
            self._memory.put(not trouble, trouble or "")
        if trouble and asked_for:
            raise LaunchError(f"KVM does not boot this kernel ({trouble}): use --accel tcg")
        if trouble:
            self._say(f"KVM is here but does not boot this kernel ({trouble}): using TCG, until the host restarts")
        return not trouble

    def give_up(self, what):
        """Changes to TCG after KVM has failed in a guest. Raises LaunchError if the user requires KVM."""
        self._memory.put(False, what)
        if self._wanted == "kvm":
            raise LaunchError(f"{what} under KVM: use --accel tcg") from None
        self.name = "tcg"
        self._say(f"{what} under KVM: starting again under TCG, which is used until the host restarts")


def died_of_kvm(status):
    """Returns true if QEMU was ended by a signal. QEMU reports bad options by an exit status, and KVM's failures by a
    signal.
    """
    return status is not None and status < 0 and -status != signal.SIGKILL
