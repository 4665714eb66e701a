"""Network namespaces that replace hosts, one for each guest, connected by a veth pair.

Host N has the address 10.99.N.1. With network "hosts" each guest is behind libslirp. The guest has the address of its
host, so that its GIDs are valid on both sides of the translation.

With network "vxlan" each host has a bridge that joins the guest's tap interface and a VXLAN (RFC 7348). The guests are in
one Ethernet and have addresses of their own.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import os
import shutil
import subprocess
from pathlib import Path

from .errors import LaunchError
from .process import die_with

# TCP ports that are forwarded to the guest: those of perftest and the pingpongs, and of iperf3
TCP_PORTS = (18515, 5201)
VXLAN_ID = 77
# Bytes that a VXLAN adds to the MTU of the guests: Ethernet, VXLAN, UDP and IPv4 headers
VXLAN_HEADERS = 14 + 8 + 8 + 20
MTU_MAX = 65535 - VXLAN_HEADERS
TOOLS = Path(__file__).resolve().parent.parent


def user_options(guest):
    """Returns the options of -netdev user. The forwards name the guest's address and no address of the host, because
    the latter would replace the sender's address.
    """
    address = f"10.99.{guest}.1"
    forwards = [f"hostfwd=udp::4791-{address}:4791"]
    forwards += [f"hostfwd=tcp::{port}-{address}:{port}" for port in TCP_PORTS]
    return ",".join([f"net=10.99.{guest}.0/24,host=10.99.{guest}.2,dns=10.99.{guest}.3,ipv6=off", *forwards])


class Hosts:
    """The two namespaces, which exist as long as a process of _holders runs. nics: all cards of the guests"""

    def __init__(self, nics):
        self._holders = []
        overlays = [nic for nic in nics if nic.net == "vxlan"]
        network = "vxlan" if overlays else "hosts"
        for program in ("unshare", "nsenter", "ip"):
            if not shutil.which(program):
                raise LaunchError(f"network '{network}': there is no program '{program}': install util-linux and iproute2")
        try:
            self._make(max((nic.mtu + VXLAN_HEADERS for nic in overlays), default=1500))
            for nic in overlays:
                self._overlay(nic.index, nic.mtu)
        except subprocess.CalledProcessError as error:
            self.close()
            raise LaunchError(f"network '{network}': {shlex_line(error.cmd)} failed: {error.stderr.strip()} "
                              "(it needs the right to make network namespaces: run as root)") from None

    def _make(self, mtu):
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
            self._run(host, "ip", "link", "set", "cable", "mtu", str(mtu), "up")
            self._run(host, "ip", "route", "add", f"10.99.{3 - host}.0/24", "dev", "cable")

    def _overlay(self, index, mtu):
        """Joins the taps of both hosts by a VXLAN, with the tool for real hosts."""
        for host in (1, 2):
            self._run(host, TOOLS / "host-wire", "add", "--name", tap_name(index), "--mtu", mtu, "--id", VXLAN_ID + index,
                      "--peer", f"10.99.{3 - host}.1")

    def _run(self, host, *command):
        subprocess.run([*self.prefix(host), *map(str, command)], check=True, capture_output=True, text=True)

    def prefix(self, guest):
        """Returns the words that run a command on this guest's host."""
        return ["nsenter", f"--net=/proc/{self._holders[guest - 1].pid}/ns/net"]

    def close(self):
        for holder in self._holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()
            holder.stderr.close()


def tap_name(index):
    """Returns the name of the tap interface of card index, on its host."""
    return f"tap{index}"


def shlex_line(command):
    return "'" + " ".join(map(str, command)) + "'"
