"""Tests of tools/host-wire and of the files of examples/hosts, which connect guests on several hosts.

The tool runs in network namespaces. The files are tested as far as that is possible without libvirt and a cluster. The
scripts of the pods run, each pod in a namespace, with a program that only shows its arguments in place of each engine.
The suite image runs them again in the OCI image, with the real device.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree

NET = ("ip link add name cc type veth peer name dd; ip address add 192.0.2.1/24 dev cc; ip link set dev cc up; "
       "ip link set dev dd up; ")
ADD = "host-wire add --owner daemon --peer 192.0.2.2 --peer 192.0.2.3"
REMOVE = "host-wire remove"
LINKS = "; ip -brief link show type bridge; ip -brief link show type vxlan; ip -brief link show type tun"
# Opens the tap of the argument, as QEMU does
OPEN_TAP = "import fcntl, struct, sys; fcntl.ioctl(open('/dev/net/tun', 'r+b', buffering=0), 0x400454ca, struct.pack('16sH22x', sys.argv[1].encode(), 0x1002))"
# name, script, exit status, texts in the output; a text that begins with "!" must be absent
CASES = (
    ("a wire to two hosts", f"{ADD} && bridge fdb show dev qrnic0-vx && ip link show master qrnic0-br", 0,
     ("the guests need at most MTU 1450", "dst 192.0.2.2 ", "dst 192.0.2.3 ", "qrnic0: ", "qrnic0-vx: ")),
    ("only root opens the tap by default", "host-wire add --peer 192.0.2.2 && host-wire add --name own --owner daemon --peer 192.0.2.2 --id 78; "
     "for tap in qrnic0 own; do for user in root daemon; do setpriv --reuid $user --clear-groups --bounding-set=-all,+dac_override --inh-caps=-all,+dac_override --ambient-caps=-all,+dac_override "
     f"/usr/bin/python3 -c {shlex.quote(OPEN_TAP)} $tap && echo $user opens $tap; done; done", 0,
     ("root opens qrnic0", "!daemon opens qrnic0", "daemon opens own", "!root opens own")),
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
# Root of a container has these capabilities and no others.
WIRE_SECURITY = {"runAsUser": 0, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}
QEMU_XML = "{http://libvirt.org/schemas/domain/qemu/1.0}"
# A device that makes its socket and shows its arguments
DEVICE = """#!/usr/bin/python3
import socket, sys
print("qrnic-device", *sys.argv[1:], flush=True)
socket.socket(socket.AF_UNIX).bind(sys.argv[sys.argv.index("--socket") + 1])
"""
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

    def apparmor(self):
        """The rules of docs/use/hosts.md name the files of the domains, and apparmor_parser compiles them if it is installed."""
        with open(os.path.join(self.root, "docs", "use", "hosts.md"), encoding="utf-8") as file:
            rules = re.findall(r"^(/\S+) (\w+),$", file.read(), re.MULTILINE)
        with open(os.path.join(self.files, "libvirt-process.xml"), encoding="utf-8") as file:
            socket = re.search(r'"path":"([^"]+)"', file.read())[1]
        wanted = ((socket, "rw"), ("/usr/lib/qrnic/prebuilt/qemu/bin/qemu-system-x86_64", "rmix"), ("/usr/lib/qrnic/prebuilt/qemu/share/qemu/x", "r"),
                  ("/usr/local/lib/qrnic/bin/qemu-system-x86_64", "PUx"))
        patterns = [(re.compile(re.sub(r"[{},*]+", lambda match: {"{": "(", "}": ")", ",": "|", "*": "[^/]*", "**": ".*"}[match[0]], path)), right)
                    for path, right in rules]
        missing = [one for one in wanted if not any(right == one[1] and pattern.fullmatch(one[0]) for pattern, right in patterns)]
        self.report.result(not missing, "hosts: the rules for AppArmor name the socket and the QEMU", details=[str(missing), str(rules)])
        parser = shutil.which("apparmor_parser", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if parser:
            text = "".join(f"  {path} {right},\n" for path, right in rules if right != "PUx")
            done = subprocess.run([parser, "-Q", "-K", "-S"], input=f"profile qrnic-test {{\n{text}}}\n".encode(), capture_output=True, check=False)
            self.report.result(done.returncode == 0 and done.stdout, "hosts: apparmor_parser compiles the rules", details=[done.stderr.decode(errors="replace")])

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
        rights = {name: one.get("securityContext") for name, one in containers.items()}
        self.report.result(rights == {"wire": WIRE_SECURITY, "qrnic-device": WIRE_SECURITY, "guest": None},
                           "hosts: the containers of the wire have the right NET_ADMIN, and no other", details=[str(rights)])
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


    def kubevirt(self):
        """Runs the hook and the sidecar of a KubeVirt guest. The hook gets the domain libvirt.xml, which has arguments of its own."""
        try:
            import yaml  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.report.result(True, "hosts: the guest of KubeVirt", " # SKIP needs python3-yaml")
            return
        with open(os.path.join(self.files, "kubevirt.yaml"), encoding="utf-8") as file:
            service, config, guest = yaml.safe_load(file)["items"]
        (sidecar,) = json.loads(guest["metadata"]["annotations"]["hooks.kubevirt.io/hookSidecars"])
        hook = sidecar["configMap"]
        names = (service["metadata"]["name"], service["spec"]["selector"], hook["name"], [volume["name"] for volume in guest["spec"]["volumes"]])
        self.report.result(names == (guest["spec"]["subdomain"], guest["metadata"]["labels"], config["metadata"]["name"],
                                     [disk["name"] for disk in guest["spec"]["domain"]["devices"]["disks"]]) and hook["key"] in config["data"] and
                           guest["metadata"]["name"] == guest["spec"]["hostname"] and hook["hookPath"] == "/usr/bin/onDefineDomain",
                           "hosts: names and labels of the KubeVirt guest agree", details=[str(names)])
        with open(os.path.join(self.files, "libvirt.xml"), encoding="utf-8") as file:
            before = ElementTree.fromstring(file.read())
        with tempfile.TemporaryDirectory(prefix="qrnic-hosts-") as folder:
            hooks = os.path.join(folder, "hooks")
            os.mkdir(hooks)
            for name, text in (("onDefineDomain", config["data"][hook["key"]]), ("qrnic-device", DEVICE), ("sidecar-shim", FAKE),
                               ("getent", DNS.replace("qrnic-1.qrnic", "guest2.qrnic"))):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(path, 0o755)
            changed = os.path.join(folder, "domain.xml")
            done = subprocess.run([os.path.join(folder, "onDefineDomain"), "--vmi", "{}", "--domain", ElementTree.tostring(before, encoding="unicode")],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=100)
            with open(changed, "w", encoding="utf-8") as file:
                file.write(done.stdout)
            after = ElementTree.fromstring(done.stdout) if done.returncode == 0 else before
            words = [[word.get("value") for word in domain.iter(f"{QEMU_XML}arg")] for domain in (before, after)]
            added = words[1][len(words[0]):]
            place = json.loads(added[3])["socket"]["path"] if len(added) == 4 else ""
            self.report.result(words[1][:len(words[0])] == words[0] and added[1].startswith("pcie-root-port,id=qrnic-port,") and
                               after.find("memoryBacking/source").get("type") == "memfd" and after.find("memoryBacking/access").get("mode") == "shared" and
                               [one.tag for one in before] == [one.tag for one in after if one.tag != "memoryBacking"],
                               "hosts: the hook of KubeVirt adds the device and shared memory", details=[done.stderr, *added])
            if shutil.which("virt-xml-validate"):
                done = subprocess.run(["virt-xml-validate", changed, "domain"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
                self.report.result(done.returncode == 0, "hosts: the domain behind the hook is valid", details=[done.stdout + done.stderr])
            # The folder of the sidecar is the folder hook-sidecar-0 of QEMU.
            script = sidecar["args"][0].replace("/var/run/kubevirt-hooks", hooks).replace("/sidecar-shim", os.path.join(folder, "sidecar-shim"))
            self.in_host("the sidecar of KubeVirt", f"set -e\n({script})\ntest -S {place.replace('/var/run/kubevirt-hooks/hook-sidecar-0', hooks) or '/absent'} && echo there",
                         0, ("remote.host=guest2.qrnic,", "sidecar-shim --version v1alpha3", "there"), folder)


def run(root, report, stopped):
    """Runs the tests until stopped() is true."""
    tests = Tests(str(root), report)
    for group in (tests.wire, tests.domains, tests.apparmor, tests.pods, tests.kubevirt):
        if not stopped():
            group()
