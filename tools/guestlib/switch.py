"""Switches that connect more than two guests: DatagramSwitch in the launcher for sockets, CableSwitch (qrnic-switch)
for cables. Run starts one for each network, and stops it after the guests.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import os
import select
import signal
import socket
import subprocess
import threading
import time

from . import host
from .errors import LaunchError
from .process import die_with

PROGRAM = "qrnic-switch"
# Time limit for the counters of qrnic-switch
SECONDS = 10


class DatagramSwitch(threading.Thread):
    """Sends each datagram of a guest to all other guests."""

    def __init__(self, nic, directory, guests):
        super().__init__(daemon=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(nic.switch_path(directory))
        self._peers = [nic.socket_path(directory, guest) for guest in range(1, guests + 1)]
        self.start()

    def run(self):
        while True:
            frame, sender = self._socket.recvfrom(1 << 17)
            for peer in self._peers:
                if peer != sender:
                    try:
                        self._socket.sendto(frame, peer)
                    except OSError:
                        pass  # the guest has not started or has ended

    def counters(self):
        raise LaunchError("these guests are not joined by cables")

    def stop(self):
        """Does nothing, because the thread ends with the launcher."""


class CableSwitch:
    """A process of qrnic-switch, whose port N is guest N"""

    def __init__(self, nic, directory, guests, log):
        self._guests = guests
        self._log = log
        command = [find_program(host.find_qemu()), *(nic.cable_path(directory, guest, guests) for guest in range(1, guests + 1))]
        launcher = os.getpid()
        with open(log, "wb") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                             preexec_fn=lambda: die_with(launcher))

    def counters(self):
        """Returns the lines of counters, one for each port."""
        self._process.send_signal(signal.SIGUSR1)
        text = b""
        deadline = time.monotonic() + SECONDS
        while text.count(b"\n") < self._guests:
            ready, _, _ = select.select([self._process.stdout], [], [], max(deadline - time.monotonic(), 0))
            data = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not data:
                raise LaunchError(f"{PROGRAM} does not report its counters: see {self._log}")
            text += data
        return text.decode().splitlines()

    def stop(self):
        """Ends the process, and writes its last output to the log."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            said, _ = self._process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            said, _ = self._process.communicate()
        with open(self._log, "ab") as log:
            log.write(said)


def find_program(qemu):
    """Returns QRNIC_SWITCH, or the qrnic-switch that was built with this QEMU: beside it, or in the same build folder."""
    directory = os.path.dirname(qemu)
    chosen = os.environ.get("QRNIC_SWITCH")
    for path in [chosen] if chosen else [os.path.join(directory, PROGRAM),
                                         os.path.join(directory, "hw/rdma/qrnic/switch", PROGRAM)]:
        if os.access(path, os.X_OK):
            return path
    raise LaunchError(f"no {PROGRAM} beside {qemu}: run `make qemu`, or set QRNIC_SWITCH" if not chosen else
                      f"QRNIC_SWITCH={chosen} cannot be run: set it to a {PROGRAM}")


def start(nic, directory, guests, logs):
    if nic.by_cable():
        return CableSwitch(nic, directory, guests, os.path.join(logs, f"net{nic.index}.switch.log"))
    return DatagramSwitch(nic, directory, guests)
