"""One guest: its QEMU process, its control channel and its job's output. Run calls start(), then reads lines() of the
control channel until the job has ended, and kill() at the end.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import json
import os
import shlex
import shutil
import socket
import subprocess
import time

from . import accel, cpio, device, host, qmp, strict, topology
from .errors import LaunchError
from .process import die_with

PROCESSOR_NICE = 10

# A panic restarts the guest, which the run loop reports as a crash. The timeout of RCU stalls is 60 s, because hosts
# that are guests themselves pause for 20 s at times. The kernel's own limit of 21 s is too close to that. The other
# options save more than a second under TCG: they omit the self-tests of ciphers and the parsing of module certificates.
# Our modules are unsigned, so the certificates have no use.
BOOT_OPTIONS = ("console=ttyS0 panic=-1 no_timer_check tsc=reliable mitigations=off nokaslr random.trust_cpu=on "
                "rcupdate.rcu_cpu_stall_timeout=60 cryptomgr.notests=1 "
                "initcall_blacklist=load_system_certificate_list,jent_mod_init")


def iommus_first(arguments):
    """Splits arguments for QEMU into those of an IOMMU, which must be before the cards that use its translations, and
    the others.
    """
    first, last = [], []
    for word in arguments:
        last.append(word)
        if last[-2:-1] == ["-device"] and word.split(",")[0] == "intel-iommu":
            first += last[-2:]
            del last[-2:]
    return first, last


class Guest:
    """Builds the command line and the initramfs, starts QEMU, and holds the sockets."""

    def __init__(self, number, run):
        self.number = number
        self.run = run
        self.options = run.options
        self.boots = 0
        self.reboot_expected = False
        self.is_ready = False
        self.status = None
        self.waiting_at = None
        self.barrier_value = ""
        self.output_ended = False
        self.control = self.output = self.process = None
        self._control_rest = b""
        self.serial_seen = 0
        self.heard_at = 0.0
        self.serial_log = os.path.join(run.logs, f"guest{number}.serial.log")
        self.qemu_log = os.path.join(run.logs, f"guest{number}.qemu.log")
        self.output_log = os.path.join(run.logs, f"guest{number}.job.log")
        self._listeners = {name: self._listen(name) for name in ("control", "output")}
        self.qmp_path = self._path("qmp")
        self.started_at = 0.0
        self.devices = [device.DeviceProcess(nic, self) for nic in topology.of_guest(run.nics, number)
                        if nic.by_process(number)]

    def _path(self, name):
        return os.path.join(self.run.scratch, f"{name}.{self.number}")

    def _listen(self, name):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self._path(name))
        listener.listen(1)
        return listener

    def _write_initrd(self):
        options = self.options
        nics = topology.of_guest(self.run.nics, self.number)
        env = {
            "GUEST": str(self.number),
            "GUESTS": str(options.guests),
            "INTERACTIVE": "yes" if options.interactive else "no",
            "DMESG": "no" if options.no_dmesg else "yes",
            "RDMA": "no" if options.no_rdma else "yes",
            "DRIVER": "yes" if self.run.needs_driver else "no",
            "TERMINAL": "{1} {0}".format(*shutil.get_terminal_size()),
        }
        for setting in options.env:
            key, _, value = setting.partition("=")
            env[key] = value
        text = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in env.items())
        files = {
            "run-files/etc/qrnic/env": (0o644, text.encode()),
            "run-files/etc/qrnic/nics": (0o644, "".join(nic.line(self.number) + "\n" for nic in nics).encode()),
            "run-files/etc/qrnic/job": (0o755, self.run.job),
            "run-files/etc/hosts": (0o644, topology.hosts_file(self.run.nics, options.guests).encode()),
        }
        for name, data in self.run.files.items():
            files["run-files/" + name.lstrip("/")] = data
        path = self._path("initrd")
        with open(path, "wb") as out:
            for part in (self.run.image.base, self.run.image.overlay):
                with open(part, "rb") as file:
                    data = file.read()
                out.write(data + b"\0" * (-len(data) % 512))
            out.write(cpio.archive(files))
        return path

    def _command(self):
        options = self.options
        name = self.run.accelerator.name
        # The start script adds the other processors after the kernel has found its devices. Otherwise, in QEMU 10.0, a
        # processor's access to its interrupt controller may reach a device and be lost while another processor maps
        # devices.
        append = f"{BOOT_OPTIONS} maxcpus=1 loglevel={options.loglevel} {' '.join(options.append)}"
        # The frequency is given, because on a busy host the kernel's own measurement may be wrong by a factor of ten.
        if name == "tcg" and host.time_stamp_khz():
            append += f" tsc_early_khz={host.time_stamp_khz()}"
        command = [self.run.qemu, "-name", f"guest{self.number}", "-nodefaults", "-no-user-config",
                   "-machine", accel.MACHINE + (",memory-backend=memory" if self.devices else ""), "-accel", "tcg,thread=multi" if name == "tcg" else name, "-cpu", options.cpu,
                   "-m", str(options.memory), "-smp", str(options.cpus), "-display", "none"]
        # ioeventfd is off for virtio, because QEMU's main loop would poll one more descriptor for each queue and each
        # frame.
        command += ["-kernel", self.run.image.kernel, "-initrd", self._write_initrd(), "-append", append.strip(),
                    "-drive", f"if=none,id=root,format=raw,readonly=on,file={self.run.image.root}",
                    "-device", "virtio-blk-pci,drive=root,romfile=,ioeventfd=off",
                    "-serial", f"file:{self.serial_log}",
                    "-qmp", f"unix:{self.qmp_path},server=on,wait=off",
                    "-object", "rng-random,id=rng,filename=/dev/urandom",
                    "-device", "virtio-rng-pci,rng=rng,ioeventfd=off",
                    "-device", "virtio-serial-pci,max_ports=4,ioeventfd=off"]
        for name in ("control", "output"):
            command += ["-chardev", f"socket,id={name},path={self._path(name)}",
                        "-device", f"virtserialport,chardev={name},name=qrnic.{name}"]
        if options.interactive:
            command += ["-chardev", "stdio,id=terminal,mux=on,signal=off", "-device", "virtconsole,chardev=terminal"]
        if self.devices:
            command += device.memory_options(options.memory)
        arguments = strict.qemu_arguments(options.qemu_arg) if options.strict else options.qemu_arg
        first, last = iommus_first(arguments)
        command += first
        for nic in topology.of_guest(self.run.nics, self.number):
            if nic.by_process(self.number):
                command += nic.hub_options(self.number)
                continue
            if nic.lone_hub:
                command += topology.listener_options()
            command += nic.netdev_options(self.run.scratch, self.number, options.guests, options.pcap)
            command += nic.device_options(self.number)
        for one in self.devices:
            command += one.client_options()
        return command + last

    def _become(self, launcher):
        """Runs in the child process before it becomes QEMU."""
        die_with(launcher)
        self.pin()

    def pin(self):
        """Keeps the calling process on the guest's processors of the host, with --pin."""
        if self.options.pin:
            os.sched_setaffinity(0, host.processors(self.number, self.options.cpus, os.sched_getaffinity(0)))

    def start(self):
        for one in self.devices:
            one.start()
        command = self._command()
        if self.run.hosts:
            command = self.run.hosts.prefix(self.number) + command
        if self.options.verbose:
            self.run.say(f"guest{self.number}: {shlex.join(command)}")
        with open(self.qemu_log, "wb") as log:
            stdin = None if self.options.interactive else subprocess.DEVNULL
            stdout = None if self.options.interactive else log
            fds = [fd for nic in topology.of_guest(self.run.nics, self.number)
                   for fd in nic.qemu_fds(self.number, self.options.guests)]
            self.started_at = self.heard_at = time.monotonic()
            launcher = os.getpid()
            self.process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=log, pass_fds=fds,
                                            preexec_fn=lambda: self._become(launcher))
        self.control = self._accept("control")
        self.output = self._accept("output")
        self._let_devices_go_first()

    def _accept(self, name):
        """Waits until QEMU connects, which it does before it starts the guest. Raises LaunchError with QEMU's message
        if QEMU ends.
        """
        listener = self._listeners.pop(name)
        listener.settimeout(0.1)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                connection, _ = listener.accept()
                listener.close()
                return connection
            except socket.timeout:
                if self.process.poll() is not None:
                    self._refused()
        raise LaunchError(f"QEMU of guest{self.number} did not start in 20 s: {self.last_words()}")

    def _refused(self):
        if self.run.accelerator.name == "kvm" and accel.died_of_kvm(self.process.poll()):
            raise accel.DeadUnderKvm(f"QEMU died with guest{self.number}")
        raise LaunchError(f"QEMU does not start guest{self.number}: {self.last_words()}") from None

    def _let_devices_go_first(self):
        """Lowers the priority of the processors of the guest, so that a polling processor does not delay its own
        device.

        If the host has more busy threads than processors, a woken thread waits for the end of another thread's
        time slice. For the thread of a device this takes milliseconds.
        """
        done, _, processors = self.qmp('{"execute": "query-cpus-fast"}').partition(" ")
        if done != "ok":
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                raise LaunchError(f"QEMU of guest{self.number} does not name its processors: {processors}") from None
            self._refused()
        # The value is relative, because a user without privileges cannot raise a priority that nice(1) has lowered.
        nice = min(os.getpriority(os.PRIO_PROCESS, 0) + PROCESSOR_NICE, 19)
        for processor in json.loads(processors):
            os.setpriority(os.PRIO_PROCESS, processor["thread-id"], nice)

    def last_words(self):
        """Returns the line of QEMU's messages that names the reason."""
        with open(self.qemu_log, encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log if line.strip()]
        named = [line for line in lines if "qemu-system" in line.split(":")[0]]
        return (named or lines)[-1] if lines else f"it printed nothing (exit status {self.process.poll()})"

    def lines(self):
        """Returns the complete lines that the control channel has now, or None if it has closed."""
        try:
            data = self.control.recv(65536)
        except OSError:
            data = b""
        if not data:
            return None
        self._control_rest += data
        *lines, self._control_rest = self._control_rest.split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def answer(self, text):
        try:
            self.control.sendall(text.encode() + b"\n")
        except OSError:
            pass  # the guest has ended; the run loop detects this

    def qmp(self, text):
        """Runs one QMP command on this guest's QEMU, or on the process of the card that the command names. Returns "ok
        RESULT" or "error RESULT" on one line.
        """
        try:
            command = json.loads(text)
        except ValueError as error:
            return f"error {error}"
        for device in self.devices:
            if device.owns(command):
                return device.qmp(command)
        return qmp.execute(self.qmp_path, command)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for one in self.devices:
            one.stop()
        for connection in (self.control, self.output, *self._listeners.values()):
            if connection:
                connection.close()
