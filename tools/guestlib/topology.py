"""The network cards of the guests and the networks between them, as options of QEMU. Run parses each --nic into a Nic;
Guest asks the Nic for its options.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import os
import re
import socket

from . import hosts
from .errors import EXIT_USAGE, LaunchError
from .wire import FaultyWire

KINDS = ("qrnic", "virtio", "rxe")
NETS = ("link", "hub", "user", "hosts", "vxlan", "none", "tap")
OWN_KEYS = ("mtu", "ip", "guest")
SOCKETS = {"dgram": socket.SOCK_DGRAM, "stream": socket.SOCK_STREAM}
WIRES = (*SOCKETS, "cable")


def connected_pair(kind):
    """Returns two connected unix sockets with large buffers."""
    pair = socket.socketpair(socket.AF_UNIX, kind)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    return pair


class Nic:
    """One --nic option: KIND[/KIND...][:NET[=ARG]][,KEY=VALUE...]."""

    def __init__(self, index, spec, guests, mtu, device_props, faults=None, form="inside"):
        self.index = index
        # "inside" for a device of the guest's QEMU, "process" for a device process
        self._form = form
        # True for the only card of a hub
        self.lone_hub = False
        self._hub_ends = {}
        # Folder for captures of bus and wire, or None
        self.capture = None
        self.faults, self._faulty = faults, None
        head, *settings = spec.split(",")
        kinds, _, net = head.partition(":")
        self.kinds = kinds.split("/")
        self.net, _, self.net_arg = net.partition("=")
        self.net = self.net or ("link" if guests > 1 else "hub")
        if any(kind not in KINDS for kind in self.kinds):
            raise LaunchError(f"--nic {spec}: the kind must be one of {', '.join(KINDS)}", EXIT_USAGE)
        if self.net not in NETS:
            raise LaunchError(f"--nic {spec}: the network must be one of {', '.join(NETS)}", EXIT_USAGE)
        if self.net == "tap" and not self.net_arg:
            raise LaunchError(f"--nic {spec}: name the tap interface, as in tap=tap0", EXIT_USAGE)
        if self.net == "link":
            self.net_arg = self.net_arg or "dgram"
            if self.net_arg not in WIRES:
                raise LaunchError(f"--nic {spec}: the wire must be one of {', '.join(WIRES)}", EXIT_USAGE)
            if self.net_arg == "stream" and guests > 2:
                raise LaunchError(f"--nic {spec}: a stream joins two guests, not {guests}", EXIT_USAGE)
            if self.net_arg == "cable" and set(self.kinds) != {"qrnic"}:
                raise LaunchError(f"--nic {spec}: a cable joins cards of kind qrnic only", EXIT_USAGE)
            if guests == 1:
                self.net = "hub"
        if faults and (self.net, self.net_arg, guests) != ("link", "dgram", 2):
            raise LaunchError(f"--nic {spec}: --wire is for link=dgram between two guests", EXIT_USAGE)
        if self.net in ("hosts", "vxlan") and guests != 2:
            raise LaunchError(f"--nic {spec}: there are two hosts, for two guests", EXIT_USAGE)
        own = {"mtu": str(mtu), "ip": "", "guest": ""}
        self._wire = ()
        self.props, self.port_props = [], []
        self.device_props = device_props
        for setting in settings:
            key, equals, value = setting.partition("=")
            if not equals:
                raise LaunchError(f"--nic {spec}: '{setting}' is not KEY=VALUE", EXIT_USAGE)
            if key in OWN_KEYS:
                own[key] = value
            elif key.startswith("port."):
                self.port_props.append(setting.removeprefix("port."))
            else:
                self.props.append(setting)
        if not re.fullmatch(r"[0-9]+", own["mtu"]) or not 68 <= int(own["mtu"]) <= 65535:
            raise LaunchError(f"--nic {spec}: mtu must be a number from 68 to 65535", EXIT_USAGE)
        self.mtu = int(own["mtu"])
        if self.net == "vxlan" and self.mtu > hosts.MTU_MAX:
            raise LaunchError(f"--nic {spec}: mtu must be at most {hosts.MTU_MAX}, because a VXLAN adds {hosts.VXLAN_HEADERS} bytes", EXIT_USAGE)
        self.ip = own["ip"] or {"user": "dhcp", "hosts": "none", "none": "none"}.get(self.net, "auto")
        self.only_guest = int(own["guest"]) if own["guest"] else 0

    def kind(self, guest):
        """Returns the kind of this guest's card. The last kind is that of all further guests."""
        return self.kinds[min(guest, len(self.kinds)) - 1]

    def mac(self, guest):
        return f"52:54:00:77:{guest:02x}:{self.index:02x}"

    def addresses(self, guest):
        """Returns the IPv4 and IPv6 addresses with prefix lengths. On a hub the second card of a guest is a neighbour
        of the first.
        """
        if self.ip in ("dhcp", "none"):
            return self.ip, self.ip
        subnet = 0 if self.net == "hub" else self.index
        host = guest + 10 * self.index if self.net == "hub" else guest
        ipv6 = f"fd77::{host}/64" if subnet == 0 else f"fd77:0:0:{subnet}::{host}/64"
        return f"10.77.{subnet}.{host}/24", ipv6

    def line(self, guest):
        """Returns the line of /etc/qrnic/nics that the guest's start script reads."""
        ipv4, ipv6 = self.addresses(guest)
        return f"{self.index} {self.kind(guest)} {self.mac(guest)} {ipv4} {ipv6} {self.mtu}"

    def wire(self, guest):
        """Returns this guest's end of the wire between two guests: one of two connected unix sockets.

        Sockets with paths would be slow: the kernel holds only ten datagrams for a socket (net.unix.max_dgram_qlen)
        unless it is connected. An unconnected socket is also reported as writable when its peer is full.
        """
        if not self._wire and self.faults:
            self._faulty = FaultyWire(self.faults)
            self._wire = tuple(self._faulty.ends)
        if not self._wire:
            self._wire = connected_pair(SOCKETS[self.net_arg])
        return self._wire[guest - 1]

    def by_process(self, guest):
        """Returns True if a device process serves this guest's card."""
        return self._form == "process" and self.kind(guest) == "qrnic"

    def _wire_fds(self, guest, guests):
        return [self.wire(guest).fileno()] if self.net == "link" and self.net_arg in SOCKETS and guests == 2 else []

    def _hub_end(self, guest, end):
        """Returns one end of the wire between the process (0) and the hub, which is in the guest's QEMU (1)."""
        if guest not in self._hub_ends:
            self._hub_ends[guest] = connected_pair(socket.SOCK_DGRAM)
        return self._hub_ends[guest][end]

    def _joins_hub(self):
        return self.net == "hub" and not self.lone_hub

    def process_fds(self, guest, guests):
        """Returns the descriptors that the card's process inherits."""
        return [self._hub_end(guest, 0).fileno()] if self._joins_hub() else self._wire_fds(guest, guests)

    def qemu_fds(self, guest, guests):
        """Returns the descriptors that the guest's QEMU inherits."""
        if not self.by_process(guest):
            return self._wire_fds(guest, guests)
        return [self._hub_end(guest, 1).fileno()] if self._joins_hub() else []

    def hub_options(self, guest):
        """Returns the options that connect the card's process to the hub in the guest's QEMU."""
        if not self._joins_hub():
            return []
        name = f"net{self.index}"
        return ["-netdev", f"dgram,id={name},local.type=fd,local.str={self._hub_end(guest, 1).fileno()}",
                "-netdev", f"hubport,id={name}-port,hubid=0,netdev={name}"]

    def end_wire(self):
        """Closes the wire when the guests end."""
        self.close_wire()
        if self._faulty:
            self._faulty.close()
            self._faulty = None

    def close_wire(self):
        """Closes the launcher's copies of the ends, because QEMU has its own."""
        for end in self._wire:
            end.close()
        for ends in self._hub_ends.values():
            for end in ends:
                end.close()
        self._wire, self._hub_ends = (), {}

    def socket_path(self, directory, guest):
        return os.path.join(directory, f"net{self.index}.{guest}")

    def switch_path(self, directory):
        return os.path.join(directory, f"net{self.index}.switch")

    def by_cable(self):
        return self.net == "link" and self.net_arg == "cable"

    def cable_path(self, directory, guest, guests):
        """Returns the path of a cable: one for two guests, or one from each guest to the switch."""
        return os.path.join(directory, f"net{self.index}.cable{guest if guests > 2 else ''}")

    def netdev_options(self, directory, guest, guests, pcap, by_process=False):
        name = f"net{self.index}"
        if self.net == "none":
            return []
        if self.by_cable():
            text = f"qrnic-cable,id={name},path={self.cable_path(directory, guest, guests)}"
            if pcap:
                text += f",capture={os.path.join(pcap, f'guest{guest}-{name}.pcapng')}"
            return ["-object", text]
        if self.net == "link" and guests == 2:
            fd = self.wire(guest).fileno()
            if self.net_arg == "stream":
                text = f"stream,id={name},server=off,addr.type=fd,addr.str={fd}"
            else:
                text = f"dgram,id={name},local.type=fd,local.str={fd}"
        elif self.net == "link":
            text = (f"dgram,id={name},local.type=unix,local.path={self.socket_path(directory, guest)},"
                    f"remote.type=unix,remote.path={self.switch_path(directory)}")
        elif by_process and self._joins_hub():
            text = f"dgram,id={name},local.type=fd,local.str={self._hub_end(guest, 0).fileno()}"
        elif self.net == "hub":
            text = f"hubport,id={name},hubid=0"
        elif self.net == "tap":
            text = f"tap,id={name},ifname={self.net_arg},script=no,downscript=no"
        elif self.net == "vxlan":
            text = f"tap,id={name},ifname={hosts.tap_name(self.index)},script=no,downscript=no"
        elif self.net == "hosts":
            text = f"user,id={name},{hosts.user_options(guest)}"
        else:
            text = f"user,id={name}" + (f",{self.net_arg}" if self.net_arg else "")
        options = ["-netdev", text]
        if pcap:
            file = os.path.join(pcap, f"guest{guest}-{name}.pcap")
            options += ["-object", f"filter-dump,id=dump{self.index},netdev={name},file={file}"]
        return options

    def device_options(self, guest):
        port, device = self.port_and_device(guest)
        return ["-device", port, "-device", device]

    def port_and_device(self, guest):
        """Returns the device and the root port above it. The port makes the device a PCIe endpoint that can be
        unplugged.
        """
        port = f"pcie-root-port,id=port{self.index},chassis={self.index + 1},slot={self.index + 1}"
        for prop in self.port_props:
            port += f",{prop}"
        props = list(self.props)
        if self.kind(guest) == "qrnic":
            props = self.device_props + props
            device = f"qrnic,id=nic{self.index},bus=port{self.index}"
            if self.capture:
                props.append(f"capture={os.path.join(self.capture, f'guest{guest}-nic{self.index}.pcapng')}")
        else:
            device = f"virtio-net-pci,id=nic{self.index},bus=port{self.index},romfile="
            if self.mtu > 1500:
                device += f",host_mtu={self.mtu}"
        device += f",mac={self.mac(guest)}"
        if self.net != "none":
            device += f",{'cable' if self.by_cable() else 'netdev'}=net{self.index}"
        for prop in props:
            device += f",{prop}"
        return port, device


def parse(specs, guests, mtu, device_props, faults=None, form="inside"):
    nics = [Nic(index, spec, guests, mtu, device_props, faults, form) for index, spec in enumerate(specs)]
    hub = [nic for nic in nics if nic.net == "hub"]
    if len(hub) == 1:
        hub[0].lone_hub = True
    return nics


def listener_options():
    """Returns a listener for a hub with one card, because a hub with one port never accepts a frame."""
    return ["-netdev", "user,id=listener,restrict=on,ipv6=off",
            "-netdev", "hubport,id=listenerport,hubid=0,netdev=listener"]


def of_guest(nics, guest):
    return [nic for nic in nics if nic.only_guest in (0, guest)]


def hosts_file(nics, guests):
    """Returns /etc/hosts: guest1, guest2, ... name the first card with an address; guest1-1 names the card with index
    1.
    """
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    for guest in range(1, guests + 1):
        first = True
        for nic in of_guest(nics, guest):
            ipv4, ipv6 = nic.addresses(guest)
            if ipv4 in ("dhcp", "none"):
                continue
            names = f"guest{guest}-{nic.index}"
            if first:
                names = f"guest{guest} {names}"
            first = False
            lines.append(f"{ipv4.split('/')[0]} {names}")
            lines.append(f"{ipv6.split('/')[0]} {names.replace(f'guest{guest}', f'guest{guest}v6')}")
    return "\n".join(lines) + "\n"
