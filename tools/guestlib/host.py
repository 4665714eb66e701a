"""Properties of the host: the QEMU binary, the rate of its time stamp counter, the guest image, and its processors.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import ctypes
import functools
import mmap
import os
import platform
import shutil
import subprocess
import time

from .errors import EXIT_USAGE, LaunchError

TOOLS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
# Built parts of an installed tree
PREBUILT = os.path.join(os.path.dirname(TOOLS), "prebuilt")


def _writable(path):
    """Returns true if the folder can be made and written."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        return False
    return os.access(path, os.W_OK)


def cache_dir():
    """Returns the folder of the cache. tools/lib.sh (qrnic_find_cache) has the same rules."""
    if os.environ.get("QRNIC_CACHE"):
        return os.environ["QRNIC_CACHE"]
    if os.environ.get("XDG_CACHE_HOME"):
        return os.path.join(os.environ["XDG_CACHE_HOME"], "qrnic")
    home = os.environ.get("HOME") or "/nonexistent"
    usual = os.path.join(home, ".cache", "qrnic")
    if os.path.isdir(home) and _writable(usual):
        return usual
    for base in (os.environ.get("TMPDIR") or "/tmp", "/tmp", "/dev/shm"):
        path = os.path.join(base, f"qrnic-{os.getuid()}")
        try:
            os.mkdir(path, 0o700)
        except OSError:
            pass
        # A folder in a shared place must belong to this user, because another user's could change under the tools.
        if os.path.isdir(path) and not os.path.islink(path) and os.stat(path).st_uid == os.geteuid() and os.access(path, os.W_OK):
            os.environ["QRNIC_CACHE"] = path
            return path
    return usual


def need_space(folder, mib, text, remedy):
    """Raises LaunchError if the folder's file system has less free space. text names the files, remedy the variable."""
    free = shutil.disk_usage(folder).free >> 20
    if free < mib:
        raise LaunchError(f"no space left for {text}: {folder} has {free} MiB of {mib}: free some, or set {remedy} to a folder with more")


def archive_error():
    """Returns the reason if Debian's archive does not answer, otherwise "". Tests that need it are skipped with the reason."""
    done = subprocess.run(["bash", "-c", '. "$1/lib.sh"; archive_reachable', "check", TOOLS], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout.strip() or "Debian's archive does not answer"


def installed():
    """Returns true in an installed tree (tools/install tree), whose tools build nothing."""
    return os.path.isdir(PREBUILT)


def prebuilt(name):
    """Returns the folder of a built part (qemu or image) of an installed tree, or None if it is absent."""
    path = os.path.join(PREBUILT, name)
    return path if os.path.isdir(path) else None


def program(suite, name):
    """Returns the path of a program of tests/unit or tests/qtest: the installed one, or that of the build of QEMU."""
    if installed():
        path = os.path.join(PREBUILT, "qemu", "bin", name)
        if not os.access(path, os.X_OK):
            raise LaunchError(f"{name} is not installed: install the package qrnic-qemu")
        return path
    done = subprocess.run([os.path.join(TOOLS, "build-qemu"), "--print-build"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, check=False)
    if done.returncode:
        raise LaunchError("QEMU's build folder is unknown (see above)")
    return os.path.join(done.stdout.strip(), "tests", suite, "qrnic", name)


def find_qemu():
    """Returns the path of QEMU: QRNIC_QEMU, the installed one, or the build of this checkout by tools/build-qemu (of
    QEMU_VERSION). If the device's sources have changed since, the last build is returned.
    """
    chosen = os.environ.get("QRNIC_QEMU")
    if chosen:
        if not os.access(chosen, os.X_OK):
            raise LaunchError(f"QRNIC_QEMU={chosen} cannot be run: set it to a qemu-system-x86_64")
        return chosen
    if installed():
        path = os.path.join(PREBUILT, "qemu", "bin", "qemu-system-x86_64")
        if not os.access(path, os.X_OK):
            raise LaunchError("QEMU with qrnic is not installed: install the package qrnic-qemu, or set QRNIC_QEMU")
        return path
    build = os.path.join(TOOLS, "build-qemu")
    for option, name in (("--print", ""), ("--print-build", "/qemu-system-x86_64")):
        done = subprocess.run([build, option], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        path = done.stdout.strip() + name
        if done.returncode == 0 and os.access(path, os.X_OK):
            return path
    raise LaunchError("no QEMU with qrnic in the cache: run `make qemu` first, or set QRNIC_QEMU")


def has_device(qemu, device):
    """Returns True if this QEMU has the device. Raises LaunchError if QEMU cannot be run."""
    try:
        done = subprocess.run([qemu, "-device", f"{device},help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    except OSError as error:
        raise LaunchError(f"{qemu} cannot be run ({error.strerror}): give --qemu the path of a qemu-system-x86_64",
                          EXIT_USAGE) from None
    # QEMU's exit status is 0 in both cases.
    return f"{device} options:" in done.stdout


def find_stock_qemu():
    """Returns the path of a QEMU with vfio-user-pci: that of tools/fetch-stock-qemu, or the system's."""
    done = subprocess.run([os.path.join(TOOLS, "fetch-stock-qemu"), "--print"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    if done.returncode == 0:
        return done.stdout.strip()
    system = shutil.which("qemu-system-x86_64")
    if system and has_device(system, "vfio-user-pci"):
        return system
    why = f"{system} has no vfio-user-pci" if system else "no QEMU with vfio-user-pci is installed or in the cache"
    raise LaunchError(f"{why}: install QEMU 10.1 or newer (Debian: qemu-system-x86 of trixie-backports), run tools/fetch-stock-qemu, "
                      "or give --qemu PATH")


def find_guest_qemu(chosen, form):
    """Returns the path of the QEMU of guests: `chosen`, or the private one, or, for device processes, one with
    vfio-user-pci. Raises LaunchError if it lacks the device that this form of the adapter needs.
    """
    by_process = form == "process"
    if not chosen:
        return find_stock_qemu() if by_process else find_qemu()
    if by_process and not has_device(chosen, "vfio-user-pci"):
        raise LaunchError(f"{chosen} has no device vfio-user-pci: --device process needs QEMU 10.1 or newer", EXIT_USAGE)
    if not by_process and not has_device(chosen, "qrnic"):
        raise LaunchError(f"{chosen} has no device qrnic: add --device process", EXIT_USAGE)
    return chosen


def steady_khz(sample):
    """Returns the rate of a counter in kHz, measured twice. Returns 0 if the two results differ by more than 1 %,
    because the counter is then no clock.
    """
    points = [sample()]
    for _ in range(2):
        time.sleep(0.025)
        points.append(sample())
    rates = [round((last - first) * 1000000 / (ended - began))
             for (began, first), (ended, last) in zip(points, points[1:])]
    return sum(rates) // 2 if abs(rates[0] - rates[1]) * 100 <= min(rates) else 0


@functools.cache
def time_stamp_khz():
    """Returns the rate in kHz of this processor's time stamp counter, which a guest under TCG has, too; 0 if it is
    unknown.
    """
    if platform.machine() != "x86_64":
        return 0
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return 0
    # The machine code is: rdtsc; shl rdx, 32; or rax, rdx; ret
    code.write(b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3")
    counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def sample():
        """Returns the time and the counter at that time. Of 20 tries the shortest is used, because nothing interrupted
        it.
        """
        tries = ((time.monotonic_ns(), counter(), time.monotonic_ns()) for _ in range(20))
        before, count, _ = min(tries, key=lambda one: one[2] - one[0])
        return before, count

    return steady_khz(sample)


class Image:
    """The files that a guest boots from."""

    def __init__(self, kernel=None):
        other = self.series()
        self.directory = os.path.join(cache_dir(), "guest", f"image-{other}" if other else "image")
        if installed():
            if other:
                raise LaunchError(f"QRNIC_LINUX={other}: the installed qrnic has one kernel: unset it, or clone the repository")
            self.directory = os.path.join(PREBUILT, "image")
        self.kernel = kernel or os.path.join(self.directory, "vmlinux")
        self.base = os.path.join(self.directory, "base.cpio")
        self.overlay = os.path.join(self.directory, "overlay.cpio")
        self.root = os.path.join(self.directory, "root.erofs")

    @staticmethod
    def series():
        """Returns the series of QRNIC_LINUX, or "". "newest" is replaced by its series, also for the tools that are
        executed later.
        """
        series = os.environ.get("QRNIC_LINUX", "")
        if series == "newest" and not installed():
            done = subprocess.run([os.path.join(TOOLS, "guest-root"), "--print", "newest"], stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                raise LaunchError("no newest kernel could be found (see above)")
            series = os.environ["QRNIC_LINUX"] = done.stdout.strip()
        return series

    def refresh(self):
        if installed():
            return
        done = subprocess.run([os.path.join(TOOLS, "guest-image")], stdout=2, check=False)
        if done.returncode:
            raise LaunchError("the guest image could not be made (see above)")

    def check_driver(self):
        """Raises LaunchError if the image has no driver, because the modules for the kernel of QRNIC_LINUX are built
        separately.
        """
        with open(self.overlay, "rb") as file:
            found = b"/updates/qrnic.ko\0" in file.read()
        if not found:
            linux = os.environ.get("QRNIC_LINUX")
            raise LaunchError(f"the guest's image has no driver for qrnic: run {f'QRNIC_LINUX={linux} ' if linux else ''}"
                              "tools/guest-build-modules, or give --no-driver")

    def check(self):
        for path in (self.kernel, self.base, self.overlay, self.root):
            if not os.path.exists(path):
                remedy = "install the package qrnic-guest" if installed() else "run tools/guest-image"
                raise LaunchError(f"{path} is missing: {remedy}")


def processors(number, wanted, allowed):
    """Returns the host's processors for guest `number`: `wanted` of them, after those of the previous guest,
    cyclically.
    """
    allowed = sorted(allowed)
    return {allowed[((number - 1) * wanted + i) % len(allowed)] for i in range(wanted)}
