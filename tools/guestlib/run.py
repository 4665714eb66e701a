"""One run: starts the guests, serves their control channels, and decides how the run ended. cli.main() calls execute()
once and then cleanup().

SPDX-License-Identifier: GPL-2.0-or-later
"""

import glob
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import termios
import time

from . import accel, device, host, strict, switch, topology
from .errors import EXIT_LAUNCH, EXIT_TIMEOUT, EXIT_USAGE, LaunchError
from .guest import Guest
from .hosts import Hosts
from .wire import Faults


# Longest path of a socket (sockaddr_un), and the length that is reserved for the names of sockets
SOCKET_PATH, SOCKET_NAME = 107, 16


# Space for the logs of a run without much output
LOGS_MIB = 4


def scratch_parent():
    """Returns TMPDIR, or /tmp if a socket's path would be too long there. TMPDIR of a CI runner may be long."""
    parent = tempfile.gettempdir()
    return parent if len(os.fsencode(parent)) + len("/qrnic-12345678") + SOCKET_NAME <= SOCKET_PATH else "/tmp"


def monitors():
    """Returns the QMP sockets of the guests and device processes of all launchers that run: {socket: name}."""
    found = {path: "guest" + path.rsplit(".", 1)[1]
             for path in sorted(glob.glob(os.path.join(glob.escape(scratch_parent()), "qrnic-*", "qmp*.*")))}
    if len({os.path.dirname(path) for path in found}) > 1:
        return {path: f"{os.path.dirname(path).rsplit('-', 1)[1]}.{name}" for path, name in found.items()}
    return found


class Run:
    def __init__(self, options, job, files):
        self.options = options
        self.job = job
        self.files = files
        self.nics = topology.parse(options.nic, options.guests, options.mtu, options.device_prop,
                                   Faults(options.wire) if options.wire else None, options.device)
        self.qemu = host.find_guest_qemu(options.qemu, options.device)
        self.image = host.Image(options.kernel)
        self.image.check()
        self.needs_driver = not options.no_driver and not options.kernel
        if self.needs_driver and any("qrnic" in nic.kinds for nic in self.nics):
            self.image.check_driver()
        self.accelerator = accel.Accelerator(options.accel, self.qemu, self.image.kernel, options.cpu, host.cache_dir(),
                                             self.say)
        if options.logs:
            self.logs = os.path.abspath(options.logs)
            os.makedirs(self.logs, exist_ok=True)
        else:
            parent = os.path.join(host.cache_dir(), "log", "guest")
            os.makedirs(parent, exist_ok=True)
            self.logs = tempfile.mkdtemp(prefix=time.strftime("%m%d-%H%M%S-"), dir=parent)
        host.need_space(self.logs, LOGS_MIB, "logs", "XDG_CACHE_HOME")
        initramfs = os.path.getsize(self.image.base) + os.path.getsize(self.image.overlay)
        host.need_space(tempfile.gettempdir(), 1 + (options.guests * initramfs >> 20), "the initramfs of the guests", "TMPDIR")
        if options.pcap:
            options.pcap = os.path.abspath(options.pcap)
            os.makedirs(options.pcap, exist_ok=True)
        if options.capture:
            self._prepare_captures(os.path.abspath(options.capture))
        # These come last, because only a complete run is cleaned up.
        self.hosts = Hosts(self.nics) if any(nic.net in ("hosts", "vxlan") for nic in self.nics) else None
        self.scratch = tempfile.mkdtemp(prefix="qrnic-", dir=scratch_parent())
        self.guests = []
        self.switches = {}
        self._selector = selectors.DefaultSelector()
        self._output_files = {}
        self._line_rests = {}

    def _prepare_captures(self, folder):
        """Writes dissector and profile of Wireshark to the folder, and makes the cards write their captures there."""
        if "," in folder:
            raise LaunchError(f"--capture {folder}: the path must have no comma, because QEMU's options use it", EXIT_USAGE)
        if not any("qrnic" in nic.kinds for nic in self.nics):
            raise LaunchError("--capture needs a card of kind qrnic", EXIT_USAGE)
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise LaunchError(f"--capture {folder}: {error.strerror}", EXIT_USAGE) from None
        made = subprocess.run(["/usr/bin/python3", os.path.join(os.path.dirname(host.TOOLS), "spec", "generate"), "--wireshark", folder],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if made.returncode:
            raise LaunchError(f"the dissector cannot be written: {(made.stderr.strip().splitlines() or ['no message'])[-1]}")
        for nic in self.nics:
            nic.capture = folder
        self.say(f"captures of bus and wire: WIRESHARK_CONFIG_DIR={folder} wireshark -C qrnic -X lua_script:{folder}/qrnic.lua "
                 f"{folder}/guest1-nic0.pcapng")

    def say(self, text):
        print(f"guest: {text}", file=sys.stderr, flush=True)

    def execute(self):
        """Returns the exit status: that of the first job that failed, or 0."""
        terminal = termios.tcgetattr(0) if self.options.interactive and os.isatty(0) else None
        try:
            try:
                self._attempt()
            except accel.DeadUnderKvm as dead:
                self.accelerator.give_up(str(dead))
                self._begin_again()
                self._attempt()
            return self._verdict()
        except LaunchError:
            # The complaints are printed here, too, because an oops may have ended a process for which the job waits
            # until the timeout.
            if self.options.strict:
                self._complaints()
            raise
        finally:
            self._stop()
            if terminal:
                termios.tcsetattr(0, termios.TCSADRAIN, terminal)

    def _verdict(self):
        """Returns the status of the first job that failed. With --strict, reports of kernels and devices count as well."""
        status = next((guest.status for guest in self.guests if guest.status), 0)
        return strict.status(status, self._complaints()) if self.options.strict else status

    def _complaints(self):
        """Prints and returns the complaints of kernels and devices. A guest that did not boot has a message of its
        own.
        """
        self._stop()
        wrong = [line for guest in self.guests if guest.boots
                 for line in strict.verdict(guest.number, guest.serial_log,
                                            [guest.qemu_log, *(one.log for one in guest.devices)],
                                            self.options.allow_report, self.options.allow_guest_error)]
        for line in wrong:
            self.say(line)
        return wrong

    def _attempt(self):
        for number in range(1, self.options.guests + 1):
            self.guests.append(Guest(number, self))
        for nic in self.nics:
            if nic.net == "link" and self.options.guests > 2:
                self.switches[nic.index] = switch.start(nic, self.scratch, self.options.guests, self.logs)
        for guest in self.guests:
            guest.start()
            self._selector.register(guest.control, selectors.EVENT_READ, (guest, self._on_control))
            self._selector.register(guest.output, selectors.EVENT_READ, (guest, self._on_output))
            self._output_files[guest] = open(guest.output_log, "wb")
            self._line_rests[guest] = b""
        # A device process that a job starts again needs the wires of the first one.
        if self.options.device == device.INSIDE:
            for nic in self.nics:
                nic.close_wire()
        self._serve()

    def _begin_again(self):
        """Starts all guests again under TCG. No job has begun yet; see "started"."""
        for guest in self.guests:
            guest.kill()
        for one in self.switches.values():
            one.stop()
        self.switches = {}
        for file in self._output_files.values():
            file.close()
        for nic in self.nics:
            nic.end_wire()
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        self.guests, self._output_files, self._line_rests = [], {}, {}
        shutil.rmtree(self.scratch, ignore_errors=True)
        os.mkdir(self.scratch, 0o700)

    def cleanup(self, failed):
        for nic in self.nics:
            nic.end_wire()
        shutil.rmtree(self.scratch, ignore_errors=True)
        if failed:
            self.say(f"logs are in {self.logs}")
        elif not self.options.logs:
            shutil.rmtree(self.logs, ignore_errors=True)

    def _stop(self):
        for guest in self.guests:
            guest.kill()
        for one in self.switches.values():
            one.stop()
        if self.hosts:
            self.hosts.close()
        for file in self._output_files.values():
            file.close()

    def _done(self):
        return all(guest.status is not None and guest.output_ended for guest in self.guests)

    def _running(self):
        """Returns the names of the guests whose job has not ended, for messages."""
        return ", ".join(f"guest{guest.number}" for guest in self.guests if guest.status is None)

    def _serve(self):
        start = time.monotonic()
        boot_deadline = start + self.options.boot_timeout
        deadline = start + self.options.timeout if self.options.timeout else float("inf")
        patience = self.options.progress_timeout or float("inf")
        progress = start
        while not self._done():
            for key, _ in self._selector.select(timeout=0.2):
                guest, handler = key.data
                handler(guest)
                progress = time.monotonic()
            now = time.monotonic()
            for guest in self.guests:
                if guest.status is None:
                    for one in guest.devices:
                        one.check()
                if self.accelerator.name == "kvm" and guest.boots == 0:
                    self._check_silence(guest, now)
                if guest.status is None and guest.process.poll() is not None:
                    what = "ended with the job still running on" if guest.boots else "does not start"
                    raise LaunchError(f"QEMU {what} guest{guest.number}: {guest.last_words()}")
                if guest.status is None:
                    self._check_panic(guest)
                if not guest.is_ready and now > boot_deadline:
                    raise LaunchError(f"guest{guest.number} did not come up within {self.options.boot_timeout} s: "
                                      f"its last line was \"{self._last_serial_line(guest)}\"; "
                                      f"see {guest.serial_log}, or allow more with --boot-timeout", EXIT_TIMEOUT)
            if now - progress > patience:
                raise LaunchError(f"the job made no progress for {self.options.progress_timeout:g} s on {self._running()}: "
                                  "allow more with --progress-timeout", EXIT_TIMEOUT)
            if now > deadline:
                raise LaunchError(f"the job did not end within {self.options.timeout} s on {self._running()}: "
                                  "allow more with --timeout", EXIT_TIMEOUT)

    def _check_silence(self, guest, now):
        if accel.died_of_kvm(guest.process.poll()):
            raise accel.DeadUnderKvm(f"QEMU died with guest{guest.number}")
        if now - guest.heard_at > accel.SILENCE_SECONDS:
            raise accel.DeadUnderKvm(f"guest{guest.number} printed nothing for {accel.SILENCE_SECONDS} s")

    @staticmethod
    def _check_panic(guest):
        """Checks the part of the serial log that is new since the last call."""
        try:
            with open(guest.serial_log, "rb") as log:
                log.seek(max(guest.serial_seen - 100, 0))
                data = log.read()
                if log.tell() > guest.serial_seen:
                    guest.heard_at = time.monotonic()
                guest.serial_seen = log.tell()
        except OSError:
            return
        for line in data.split(b"\n"):
            if b"Kernel panic" in line or b"qrnic guest: no " in line:
                raise LaunchError(f"guest{guest.number} crashed ({line.decode(errors='replace').strip()}): "
                                  f"see {guest.serial_log}")

    @staticmethod
    def _last_serial_line(guest):
        try:
            with open(guest.serial_log, encoding="utf-8", errors="replace") as log:
                lines = [line.strip() for line in log if line.strip()]
        except OSError:
            lines = []
        return lines[-1][:160] if lines else "(nothing)"

    def _on_control(self, guest):
        lines = guest.lines()
        if lines is None:
            self._selector.unregister(guest.control)
            return
        for line in lines:
            self._on_line(guest, line)

    def _on_line(self, guest, line):
        word, _, rest = line.partition(" ")
        if word == "started":
            guest.boots += 1
            if self.options.verbose:
                self.say(f"guest{guest.number} in user space after {time.monotonic() - guest.started_at:.2f} s")
            if guest.boots > 1 and not guest.reboot_expected:
                raise LaunchError(f"guest{guest.number} crashed and restarted: see {guest.serial_log}")
            guest.reboot_expected = False
            if guest.boots > 1:
                guest.answer(str(guest.boots))
            elif all(other.boots for other in self.guests):
                # The answer comes after all guests have started. Until then no job has begun, so that all guests can be
                # started again.
                for other in self.guests:
                    other.answer(str(other.boots))
        elif word == "ready":
            guest.is_ready = True
            if self.options.verbose:
                self.say(f"guest{guest.number} ready after {time.monotonic() - guest.started_at:.2f} s")
        elif word == "missing":
            raise LaunchError(f"guest{guest.number} has no {rest}: its driver is missing or failed, see {guest.serial_log}; "
                              "for a job without it, give --no-driver")
        elif word == "barrier":
            name, _, value = rest.partition(" ")
            self._on_barrier(guest, name, value)
        elif word == "qmp":
            guest.answer(guest.qmp(rest))
        elif word == "device":
            guest.answer(self._act(guest, rest))
        elif word == "switch":
            guest.answer(self._counters(rest))
        elif word == "time":
            guest.answer(str(int((time.monotonic() - guest.started_at) * 1000)))
        elif word == "reboot":
            guest.reboot_expected = True
            guest.answer("ok")
        elif word == "exit":
            guest.status = int(rest) if rest.isdigit() else EXIT_LAUNCH
            self._drain(guest)
            if guest.status and self.options.guests > 1:
                self.say(f"the job in guest{guest.number} ended with status {guest.status}")
            if guest.status == 0:
                self._check_stuck()
            else:
                self._give_up_on_others(guest)

    @staticmethod
    def _act(guest, rest):
        """Executes the action of host_device: ACTION CARD VALUE"""
        action, card, value = (rest.split(" ") + ["", ""])[:3]
        for one in guest.devices:
            if str(one.nic.index) == card:
                try:
                    return one.act(action, value)
                except LaunchError as error:
                    return f"error {error}"
        return f"error no device process serves card {card}"

    def _counters(self, index):
        """Returns the counters of a switch in one line: "ok", and its lines separated by ";"."""
        try:
            return "ok " + ";".join(self.switches[int(index)].counters())
        except (KeyError, ValueError):
            return f"error no switch joins the guests by card {index}"
        except LaunchError as error:
            return f"error {error}"

    def _on_barrier(self, guest, name, value):
        """Sends the values of all guests to each guest, in the order of their numbers, when the last guest is at the
        barrier.
        """
        guest.waiting_at = name
        guest.barrier_value = value
        if all(other.waiting_at == name for other in self.guests):
            values = " ".join(other.barrier_value or "-" for other in self.guests)
            for other in self.guests:
                other.waiting_at = None
                other.answer(f"go {name} {values}")
        else:
            self._check_stuck()

    def _check_stuck(self):
        """Raises LaunchError if a guest waits at a barrier and another guest has ended, because the other one never
        comes there.
        """
        ended = [guest for guest in self.guests if guest.status is not None]
        waiting = [guest for guest in self.guests if guest.status is None and guest.waiting_at]
        if ended and waiting:
            raise LaunchError(f"guest{waiting[0].number} waits at barrier '{waiting[0].waiting_at}', "
                              f"but the job on guest{ended[0].number} has ended")

    def _give_up_on_others(self, failed):
        """Shortens the timeout of the other jobs after a job has failed, because they may wait for the failed one."""
        self.options.timeout = max(self.options.timeout, 1)
        for guest in self.guests:
            if guest is not failed and guest.status is None:
                guest.status = failed.status
                self._drain(guest)

    def _drain(self, guest):
        """Reads the rest of the job's output. The output precedes the exit status but uses another port, so it may
        still be on its way.
        """
        end = time.monotonic() + 0.3
        guest.output.settimeout(0.05)
        while time.monotonic() < end and not guest.output_ended:
            try:
                data = guest.output.recv(65536)
            except socket.timeout:
                break
            except OSError:
                break
            if not data:
                break
            self._show(guest, data)
        self._show(guest, b"")
        if self._line_rests[guest]:
            self._show(guest, b"\n")
        guest.output_ended = True

    def _on_output(self, guest):
        try:
            data = guest.output.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(guest.output)
            return
        self._show(guest, data)

    def _show(self, guest, data):
        self._output_files[guest].write(data)
        self._output_files[guest].flush()
        if self.options.show and guest.number != self.options.show:
            return
        if self.options.guests == 1 or self.options.show:
            sys.stdout.buffer.write(data)
        else:
            *lines, self._line_rests[guest] = (self._line_rests[guest] + data).split(b"\n")
            for line in lines:
                sys.stdout.buffer.write(b"guest%d: %s\n" % (guest.number, line))
        sys.stdout.flush()
