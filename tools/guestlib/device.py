"""Device processes: with --device process, one qrnic-device serves each qrnic card of a guest by vfio-user. The guest's
QEMU has no qrnic, and connects to the processes.

Guest makes one DeviceProcess for each such card, calls start() before its own QEMU, and stop() after it. Jobs act on the
process by host_device, which calls act().

SPDX-License-Identifier: GPL-2.0-or-later
"""

import json
import os
import re
import shlex
import signal
import subprocess
import time

from . import host, qmp, strict, topology
from .errors import LaunchError
from .process import die_with, listens

PROGRAM = os.path.join(host.TOOLS, "device")
INSIDE, PROCESS = FORMS = ("inside", "process")


def default_form():
    """Returns the form without --device. An installed tree without the firmware of qrnic-qemu has only processes."""
    alone = host.installed() and not os.path.isdir(os.path.join(host.PREBUILT, "qemu", "share"))
    return PROCESS if alone else INSIDE


# Time limit until the process listens; a busy host may need long to load QEMU.
SECONDS = 60
# The actions of host_device
ACTIONS = ("pause", "kill", "end", "start", "plug", "status")
# QMP commands after which the process has read all messages. A run of its main loop reads 256 of them, and a socket
# holds fewer than 300.
ROUNDS = 8


def memory_options(memory):
    """Returns the options of guest memory in a shared file, which the process maps."""
    size = f"{memory}M" if memory.isdigit() else memory
    return ["-object", f"memory-backend-memfd,id=memory,size={size},share=on"]


class DeviceProcess:
    """The process of one card: its command line, its sockets and its log."""

    def __init__(self, nic, guest):
        self.nic, self._guest, self._run = nic, guest, guest.run
        self._socket = self._path("device")
        self._qmp = self._path("qmp")
        self.log = os.path.join(guest.run.logs, f"guest{guest.number}.device{nic.index}.log")
        self.process = None
        # A job may end the process on purpose; then its end is no error.
        self.end_expected = False
        open(self.log, "wb").close()

    def _path(self, name):
        return os.path.join(self._run.scratch, f"{name}{self.nic.index}.{self._guest.number}")

    def name(self):
        return f"qrnic-device of guest{self._guest.number}, card {self.nic.index},"

    def client(self, port=None):
        """Returns the device of the guest's QEMU that connects to the process, as -device and device_add have it. QEMU
        reports a lost device if a reply takes longer than x-msg-timeout, 5 s by default. A busy host may need longer.
        """
        return {"driver": "vfio-user-pci", "id": f"nic{self.nic.index}" + (f"-{port}" if port else ""),
                "bus": port or f"port{self.nic.index}", "x-msg-timeout": 1000 * SECONDS,
                "socket": {"type": "unix", "path": self._socket}}

    def client_options(self):
        port, _ = self.nic.port_and_device(self._guest.number)
        return ["-device", port, "-device", json.dumps(self.client())]

    def _command(self):
        options, number = self._run.options, self._guest.number
        _, device = self.nic.port_and_device(number)
        command = [PROGRAM, "--socket", self._socket]
        # The port is a device of the guest's QEMU. "id" stays, because QMP finds the card by it.
        for prop in device.split(",")[1:]:
            if not prop.startswith("bus="):
                command += ["--property", prop]
        more = ["-name", f"guest{number}-device{self.nic.index}", "-qmp", f"unix:{self._qmp},server=on,wait=off"]
        more += self.nic.netdev_options(self._run.scratch, number, options.guests, options.pcap, by_process=True)
        if self.nic.lone_hub:
            more += topology.listener_options()
        if options.strict:
            more = strict.qemu_arguments(more)
        return command + [word for argument in more for word in ("--qemu-arg", argument)]

    def _become(self, launcher):
        """Runs in the child process before it becomes the device."""
        die_with(launcher)
        self._guest.pin()

    def start(self):
        """Starts the process and waits until it listens on its socket."""
        command = self._command()
        if self._run.hosts:
            command = self._run.hosts.prefix(self._guest.number) + command
        if self._run.options.verbose:
            self._run.say(f"guest{self._guest.number}: {shlex.join(command)}")
        launcher = os.getpid()
        self.end_expected = False
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            pass_fds=self.nic.process_fds(self._guest.number, self._run.options.guests),
                                            preexec_fn=lambda: self._become(launcher))
        deadline = time.monotonic() + SECONDS
        while not listens(self._socket, self.process.pid):
            if self.process.poll() is not None:
                raise LaunchError(f"{self.name()} does not start: {self.last_words()}")
            if time.monotonic() > deadline:
                raise LaunchError(f"{self.name()} does not listen after {SECONDS} s: see {self.log}")
            time.sleep(0.01)

    def last_words(self):
        """Returns the line of the process's messages that names the reason."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log if line.strip()]
        status = self.process.poll()
        end = f"signal {signal.Signals(-status).name}" if status is not None and status < 0 else f"exit status {status}"
        named = [line for line in lines if not line.startswith("qrnic ")]
        return f"{named[-1]} ({end})" if named else f"it printed nothing ({end}; see {self.log})"

    def check(self):
        """Raises LaunchError if the process has ended by itself."""
        if self.process and not self.end_expected and self.process.poll() is not None:
            raise LaunchError(f"{self.name()} ended with the job still running: {self.last_words()}")

    def qmp(self, command):
        return qmp.execute(self._qmp, command)

    def owns(self, command):
        """Returns True if this QMP command is for the card: for its link, or for a property of the card or its wire."""
        ours = (f"nic{self.nic.index}", f"net{self.nic.index}")
        arguments = command.get("arguments", {}) if isinstance(command, dict) else {}
        if not isinstance(arguments, dict):
            return False
        if command.get("execute") == "set_link":
            return arguments.get("name") in ours
        return command.get("execute") in ("qom-get", "qom-set", "qom-list") and \
            str(arguments.get("path", "")).split("/")[-1] in ours

    def act(self, action, value):
        """Executes an action of a job's host_device, and returns its answer."""
        running = self.process.poll() is None
        if action not in ACTIONS:
            return f"error {action} is none of {', '.join(ACTIONS)}"
        if action == "status":
            return f"ok {'running' if running else 'ended'}"
        if action == "plug":
            return self._guest.qmp(json.dumps({"execute": "device_add", "arguments": self.client(value)}))
        if running == (action == "start"):
            return f"error the process {'runs' if running else 'has ended'}"
        if action == "start":
            self.start()
        elif action == "end":
            self.end_expected = True
            self.process.terminate()
            self.process.wait()
        elif action == "pause":
            if not re.fullmatch(r"[0-9]{1,2}", value):
                return "error pause needs the seconds, 0 to 99"
            self._pause(int(value))
        else:
            self._kill_between_messages()
        return "ok"

    def _pause(self, seconds):
        """Stops the process, and continues it after these seconds. This is one action, because a guest whose process is
        stopped waits for the reply of a register, and so requests no second action.
        """
        self.process.send_signal(signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            time.sleep(seconds)
        finally:
            self.process.send_signal(signal.SIGCONT)

    def _kill_between_messages(self):
        """Kills the process while it has no unread message of the guest's QEMU. QEMU up to 11.1 would otherwise end by
        an assertion, because its client reports two errors if the socket is reset.
        """
        self._guest.qmp('{"execute": "stop"}')
        # The process reads its messages in the main loop that also answers these commands.
        for _ in range(ROUNDS):
            self.qmp({"execute": "query-status"})
        self.stop()
        self._guest.qmp('{"execute": "cont"}')

    def stop(self):
        self.end_expected = True
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
