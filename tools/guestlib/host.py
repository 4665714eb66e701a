"""What the host offers: the QEMU binary, its firmware, KVM, and the guest image.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import ctypes
import functools
import mmap
import os
import platform
import subprocess
import tempfile
import time

from .errors import LaunchError

TOOLS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def cache_dir():
    if os.environ.get("QRNIC_CACHE"):
        return os.environ["QRNIC_CACHE"]
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "qrnic")


def find_qemu():
    """QRNIC_QEMU, or what tools/build-qemu made of this checkout (of QEMU_VERSION); while the
    device's sources are being worked on, what it compiled last."""
    chosen = os.environ.get("QRNIC_QEMU")
    if chosen:
        if not os.access(chosen, os.X_OK):
            raise LaunchError(f"QRNIC_QEMU={chosen} cannot be run: set it to a qemu-system-x86_64")
        return chosen
    build = os.path.join(TOOLS, "build-qemu")
    for option, name in (("--print", ""), ("--print-build", "/qemu-system-x86_64")):
        done = subprocess.run([build, option], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        path = done.stdout.strip() + name
        if done.returncode == 0 and os.access(path, os.X_OK):
            return path
    raise LaunchError("no QEMU with qrnic in the cache: run `make qemu` first, or set QRNIC_QEMU")


def kvm_works(qemu):
    """Boots a firmware of three instructions under KVM: it must leave through the exit port.

    A /dev/kvm that can be opened says little: in a nested guest it may exist and hang.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    # Reset vector: mov al, 0x10; out 0xf4, al; hlt. isa-debug-exit makes that status 0x21.
    rom = bytearray(b"\xf4" * 65536)
    rom[0xfff0:0xfff5] = b"\xb0\x10\xe6\xf4\xf4"
    with tempfile.NamedTemporaryFile(prefix="qrnic-kvm-") as file:
        file.write(rom)
        file.flush()
        command = [qemu, "-accel", "kvm", "-cpu", "max", "-machine", "q35", "-m", "64", "-nodefaults",
                   "-display", "none", "-bios", file.name,
                   "-device", "isa-debug-exit,iobase=0xf4,iosize=1"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, timeout=3, check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0x21


def choose_accel(wanted, qemu):
    if wanted == "auto":
        return "kvm" if kvm_works(qemu) else "tcg"
    if wanted == "kvm" and not kvm_works(qemu):
        raise LaunchError("KVM does not work on this machine: use --accel tcg")
    return wanted


@functools.cache
def time_stamp_khz():
    """The rate of this processor's time stamp counter, which is that of a guest under TCG; 0: unknown."""
    if platform.machine() != "x86_64":
        return 0
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return 0
    # rdtsc; shl rdx, 32; or rax, rdx; ret
    code.write(b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3")
    counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def sample():
        """The counter and the time at it, by the one of some tries that nothing interrupted"""
        tries = ((time.monotonic_ns(), counter(), time.monotonic_ns()) for _ in range(20))
        before, count, _ = min(tries, key=lambda one: one[2] - one[0])
        return before, count

    began, first = sample()
    time.sleep(0.05)
    ended, last = sample()
    return round((last - first) * 1000000 / (ended - began))


class Image:
    """The files a guest boots from."""

    def __init__(self, kernel=None):
        self.directory = os.path.join(cache_dir(), "guest", "image")
        self.kernel = kernel or os.path.join(self.directory, "vmlinux")
        self.base = os.path.join(self.directory, "base.cpio")
        self.overlay = os.path.join(self.directory, "overlay.cpio")
        self.root = os.path.join(self.directory, "root.erofs")

    def refresh(self):
        done = subprocess.run([os.path.join(TOOLS, "guest-image")], stdout=2, check=False)
        if done.returncode:
            raise LaunchError("the guest image could not be made (see above)")

    def check(self):
        for path in (self.kernel, self.base, self.overlay, self.root):
            if not os.path.exists(path):
                raise LaunchError(f"{path} is missing: run tools/guest-image")
