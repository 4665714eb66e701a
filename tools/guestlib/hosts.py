"""Network namespaces that replace hosts, one for each guest, connected by a veth pair.

Host N has the address 10.99.N.1. The guest of host N is behind libslirp and has the same address, so that its GIDs
are valid on both sides of the translation.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import os
import shutil
import subprocess

from .errors import LaunchError
from .process import die_with

# TCP ports that are forwarded to the guest: those of perftest and the pingpongs, and of iperf3
TCP_PORTS = (18515, 5201)


def user_options(guest):
    """Returns the options of -netdev user. The forwards name the guest's address and no address of the host, because
    the latter would replace the sender's address.
    """
    address = f"10.99.{guest}.1"
    forwards = [f"hostfwd=udp::4791-{address}:4791"]
    forwards += [f"hostfwd=tcp::{port}-{address}:{port}" for port in TCP_PORTS]
    return ",".join([f"net=10.99.{guest}.0/24,host=10.99.{guest}.2,dns=10.99.{guest}.3,ipv6=off", *forwards])


class Hosts:
    """The two namespaces, which exist as long as a process of _holders runs"""

    def __init__(self):
        self._holders = []
        for program in ("unshare", "nsenter", "ip"):
            if not shutil.which(program):
                raise LaunchError(f"network 'hosts': there is no program '{program}': install util-linux and iproute2")
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self.close()
            raise LaunchError(f"network 'hosts': {shlex_line(error.cmd)} failed: {error.stderr.strip()} "
                              "(it needs the right to make network namespaces: run as root)") from None

    def _make(self):
        for _ in range(2):
            launcher = os.getpid()
            holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, preexec_fn=lambda parent=launcher: die_with(parent))
            self._holders.append(holder)
            if holder.stdout.readline() != "ready\n":
                raise subprocess.CalledProcessError(1, holder.args, stderr=holder.stderr.read())
        self._run(1, "ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns",
                  str(self._holders[1].pid))
        for host in (1, 2):
            self._run(host, "ip", "link", "set", "lo", "up")
            self._run(host, "ip", "addr", "add", f"10.99.{host}.1/32", "dev", "cable")
            self._run(host, "ip", "link", "set", "cable", "up")
            self._run(host, "ip", "route", "add", f"10.99.{3 - host}.0/24", "dev", "cable")

    def _run(self, host, *command):
        subprocess.run([*self.prefix(host), *command], check=True, capture_output=True, text=True)

    def prefix(self, guest):
        """Returns the words that run a command on this guest's host."""
        return ["nsenter", f"--net=/proc/{self._holders[guest - 1].pid}/ns/net"]

    def close(self):
        for holder in self._holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()
            holder.stderr.close()


def shlex_line(command):
    return "'" + " ".join(command) + "'"
