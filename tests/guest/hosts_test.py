"""Tests of tools/host-wire and of the files of examples/hosts, which connect guests on several hosts.

The tool runs in network namespaces. The files are tested as far as that is possible without libvirt and a cluster. The
scripts of the pods run, each pod in a namespace, with a program that only shows its arguments in place of each engine.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import os
import shlex
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree

NET = ("ip link add name cc type veth peer name dd; ip address add 192.0.2.1/24 dev cc; ip link set dev cc up; "
       "ip link set dev dd up; ")
ADD = "host-wire add --owner daemon --peer 192.0.2.2 --peer 192.0.2.3"
REMOVE = "host-wire remove"
LINKS = "; ip -brief link show type bridge; ip -brief link show type vxlan; ip -brief link show type tun"
# name, script, exit status, texts in the output; a text that begins with "!" must be absent
CASES = (
    ("a wire to two hosts", f"{ADD} && bridge fdb show dev qrnic0-vx && ip link show master qrnic0-br", 0,
     ("the guests need at most MTU 1450", "dst 192.0.2.2 ", "dst 192.0.2.3 ", "qrnic0: ", "qrnic0-vx: ")),
    ("a wire is removed", f"{ADD} && {REMOVE}{LINKS}", 0, ("removed the wire qrnic0", "!qrnic0-br", "!qrnic0-vx")),
    ("a wire by an interface of the host", "ip address flush dev cc; host-wire add --name w --uplink cc && ip link show master w-br", 0,
     ("cc@dd", "w: ")),
    ("an interface with an address", "host-wire add --uplink cc", 1, ("the interface has an address",)),
    ("no wire to remove", REMOVE, 1, ("there is no wire qrnic0",)),
    *((f"a wire of which only {part} remains is removed", f"ip link add name qrnic0-br type bridge; ip link add name qrnic0-vx type vxlan id 7 "
       f"dstport 4789 dev cc; ip tuntap add dev qrnic0 mode tap; for link in qrnic0 qrnic0-vx qrnic0-br; do "
       f"[ $link = {part} ] || ip link delete dev $link; done; ip link show dev {part} && {REMOVE}{LINKS}", 0,
       (f"{part}: ", "removed the wire qrnic0", "!qrnic0-br  ", "!qrnic0-vx  ", "!qrnic0  ")) for part in ("qrnic0", "qrnic0-vx", "qrnic0-br")),
    ("an interface of another program is not removed", f"{REMOVE} --name dd; ip link show dev dd", 0, ("there is no wire dd", "dd@cc")),
    ("a wire that another user may not remove", f"{ADD} && setpriv --bounding-set=-net_admin --inh-caps=-net_admin {REMOVE}", 1,
     ("cannot remove qrnic0, qrnic0-vx, qrnic0-br: run as root",)),
    ("a wire that exists", f"{ADD}; {ADD}", 1, ("the interface qrnic0 exists",)),
    ("an MTU above that of the path", f"{ADD} --mtu 1451", 1, ("the path permits 1450",)),
    ("a peer without a route", "host-wire add --peer 198.51.100.1", 1, ("there is no route to 198.51.100.1",)),
    ("this host as its peer", "host-wire add --peer 192.0.2.1", 1, ("is an address of this host",)),
    ("a number out of range", f"{ADD} --id 16777216", 1, ("--id 16777216: use a number",)),
    ("no interface remains after a failure", f"ip link add name vx77 type vxlan id 77 dstport 4789 dev cc; {ADD}{LINKS}", 0,
     ("host-wire: ip link add name qrnic0-vx", "!qrnic0-br", "vx77")),
)
FAKE = '#!/bin/sh\necho "${0##*/} $*"\n'
DNS = '#!/bin/sh\n[ "$2" = qrnic-1.qrnic ] && echo "192.0.2.2 STREAM qrnic-1"\n'


class Tests:
    def __init__(self, root, report):
        self.root, self.report = root, report
        self.files = os.path.join(root, "examples", "hosts")
        done = subprocess.run(["unshare", "--net", "sh", "-ec", "ip link add name vx type vxlan id 1 dstport 4789 remote 127.0.0.1 dev lo; "
                               "ip tuntap add dev tp mode tap; ip link add name br type bridge"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False)
        self.reason = (done.stderr.strip().splitlines() or ["unshare fails"])[-1] if done.returncode else ""

    def in_host(self, name, script, status, texts, path=""):
        """Runs a script in a network namespace, with path before PATH."""
        if self.reason:
            self.report.result(True, f"hosts: {name}", f" # SKIP the host does not permit it: {self.reason}")
            return
        environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"], "HOSTNAME": "qrnic-0"}
        done = subprocess.run(["unshare", "--net", "bash", "-c", NET + script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False, timeout=100, env=environment)
        good = done.returncode == status and all((text.removeprefix("!") in done.stdout) != text.startswith("!") for text in texts)
        self.report.result(good, f"hosts: {name}", details=[f"exit status {done.returncode}", *done.stdout.splitlines()[-8:]])

    def wire(self):
        tool = shlex.quote(os.path.join(self.root, "tools", "host-wire"))
        for name, script, status, texts in CASES:
            self.in_host(name, script.replace("host-wire ", f"{tool} "), status, texts)

    def domains(self):
        """The two domains are the same, apart from QEMU, shared memory, and the form of the device."""
        names = {}
        for file in ("libvirt.xml", "libvirt-process.xml"):
            domain = ElementTree.parse(os.path.join(self.files, file)).getroot()
            words = [word.get("value") for word in domain.iter("{http://libvirt.org/schemas/domain/qemu/1.0}arg")]
            names[file] = [word for option, word in zip(words, words[1:]) if option in ("-device", "-netdev")]
            shared = domain.find("memoryBacking/access") is not None
            good = len(words) == 2 * len(names[file]) and shared == ("process" in file)
            self.report.result(good, f"hosts: options and memory of {file}", details=words)
        device = names["libvirt.xml"][-1].split(",")
        self.report.result(device[0] == "qrnic" and '"vfio-user-pci"' in names["libvirt-process.xml"][-1] and
                           names["libvirt.xml"][0] == names["libvirt-process.xml"][0], "hosts: the domains have a qrnic at the same place")

    def pods(self):
        """Runs the scripts of the containers as pod qrnic-0, whose peer is qrnic-1."""
        try:
            import yaml  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.report.result(True, "hosts: the manifest", " # SKIP needs python3-yaml")
            return
        with open(os.path.join(self.files, "kubernetes.yaml"), encoding="utf-8") as file:
            service, workload = yaml.safe_load(file)["items"]
        pod = workload["spec"]["template"]["spec"]
        containers = {one["name"]: one for one in pod["initContainers"] + pod["containers"]}
        mounts = {mount["name"] for one in containers.values() for mount in one["volumeMounts"]}
        labels = workload["spec"]["template"]["metadata"]["labels"]
        good = (mounts == {volume["name"] for volume in pod["volumes"]} and service["metadata"]["name"] == workload["spec"]["serviceName"]
                and service["spec"]["selector"] == labels == workload["spec"]["selector"]["matchLabels"])
        self.report.result(good, "hosts: the manifest's volumes, names and labels agree", details=[str(mounts), str(labels)])
        with tempfile.TemporaryDirectory(prefix="qrnic-hosts-") as folder:
            for name, text in (("getent", DNS), ("qrnic-device", FAKE), ("qemu-system-x86_64", FAKE)):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="ascii") as file:
                    file.write(text)
                os.chmod(path, 0o755)
            for name, texts in (("wire", ("joined with qrnic-1.qrnic", "MTU 1450")),
                                ("qrnic-device", ("qrnic-device --socket /run/qrnic/card.sock ", "ifname=qrnic0,", "mac=52:54:00:00:00:01")),
                                ("guest", ("share=on", '"path":"/run/qrnic/card.sock"', "/disks/qrnic-0.raw"))):
                script = containers[name]["args"][0].replace("/usr/lib/qrnic/tools/", shlex.quote(os.path.join(self.root, "tools")) + "/")
                self.in_host(f"the container {name} of the manifest", f"set -e\n{script.replace('rm -f', ': rm -f')}", 0, texts, folder)


def run(root, report, stopped):
    """Runs the tests until stopped() is true."""
    tests = Tests(str(root), report)
    for group in (tests.wire, tests.domains, tests.pods):
        if not stopped():
            group()
