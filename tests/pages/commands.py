"""The table of all commands of README.md and docs/use/: which test runs each of them, and in which form.

tests/pages/run looks up each command of the pages here by its exact text, and fails if the text is missing. Therefore a
new command cannot remain untested, and the line of a changed command must be changed, too. There are two kinds of lines.
Run(STAGE): tests/pages/run executes the command in this stage, and checks the output that the page shows. Covered(FILE,
TEXT): another test executes the same command; FILE contains TEXT, which proves it.

The stages follow the suites, because each suite needs more of the build. Stage "quick" (tools/check-contract) needs no
build. Stage "qtest" (tools/check-qtest) needs QEMU and the qtests. Stage "boot" (tests/guest/run, topic 83-pages) needs
guests.

SPDX-License-Identifier: GPL-2.0-or-later
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """A command that tests/pages/run executes.

    - edit: pairs of texts that make the short form. Each first text is replaced by the second; all options must remain.
    - reason: the reason of the short form
    - before: a shell command that prepares the folder
    - needs: a program, "root", or "a stock QEMU"; the command is skipped without it
    - status: the exit status
    - pty: text to type into a terminal when a prompt appears
    - hidden: output lines of the page that this run does not print
    """

    stage: str
    edit: tuple = ()
    reason: str = ""
    before: str = ""
    needs: str = ""
    status: int = 0
    pty: str = ""
    hidden: tuple = ()


@dataclass(frozen=True)
class Covered:
    """A command that another test executes: file contains text. shown: the output lines that the page may show."""

    file: str
    text: str
    reason: str
    shown: tuple = ()


QUIT = (" ... ", " -machine q35 -S -nodefaults -display none -monitor stdio ")
ROOT_PORT = (" -device qrnic", " -device pcie-root-port,id=port1,chassis=1 -device qrnic")
PARSED = "QEMU reads the options and stops at the monitor's prompt; guest job 42-hosts uses this network"
IN_BOX = "the suite image runs the image's entry point in bubblewrap or by chroot; podman is not installed"

TABLE = {
    # README.md and install.md
    "make demo": Run("boot"),
    "make check": Covered("tools/check", '"{} passed, {} failed, {} skipped"', "make check runs the suite of this test",
                          shown=("# passed, # failed, # skipped",)),
    "tools/deps --check": Run("quick", edit=(("--check", "--check check"),), hidden=("deps: missing packages: mmdebstrap uidmap: run 'tools/deps all', or install them by hand",),
                              reason="the packages of this part are installed, those of other suites perhaps not yet"),
    "make deps": Covered("tools/check-contract", 'tools/deps" check', "each suite installs its packages by tools/deps"),
    "tools/deps plots": Covered("tools/check-experiments", 'tools/deps" plots', "the suite experiments runs it"),
    "tools/deps more": Covered(".ci/run", "tools/deps more", "CI runs it before the tests"),
    "tools/deps engine": Covered(".ci/run", "tools/deps engine", "CI runs it before the tests"),
    "QEMU_VERSION=newest tools/build-qemu": Covered(
        "tools/check-newest", "export QEMU_VERSION=newest", "make check-newest builds the newest version; tools/check-versions tests the choice"),
    "tools/fetch-qemu --print newest": Covered(
        "tools/check-versions", '"fetch-qemu --print newest"', "this test uses an archive of its own", shown=("CACHE/src/qemu-#",)),
    "tools/check-newest linux": Covered("tools/check", '{"newest": ("--if-built",)}',
                                        "make check runs the tool with --if-built; without this option it fetches and builds a kernel"),
    "make manual": Run("quick"),
    "tools/guest --guests 2 --capture tour examples/two-guests.sh hello_verbs": Run("boot"),
    "tools/guest --guests 2 --wire loss=1,seed=7 tour.sh": Run("boot"),
    "tools/guest --guests 2 --wire loss=1,seed=7 --env QRNIC_SELECTIVE_REPEAT=1 tour.sh": Run("boot"),
    "make site OUT=/tmp/site": Covered("tests/site/run", '"tools" / "site", "--out"', "the suite site runs the tool behind it"),
    "QRNIC_ACCEL=tcg tools/guest -c 'uname -r'": Run("boot"),
    "make install DESTDIR=/tmp/stage": Run("boot", edit=(("/tmp/stage", '"$PWD/stage"'),), reason="the folder of the test"),
    "sysctl kernel.apparmor_restrict_unprivileged_userns=0": Covered(
        "docs/use/install.md", "# sysctl kernel.apparmor_restrict_unprivileged_userns=0", "for Ubuntu: Debian's kernel has no such setting"),
    "tools/qrnic run -c 'ibv_devinfo | grep PORT_ACTIVE'": Run("boot"),
    "tools/qrnic doctor": Run("boot"),
    "tools/install tree /tmp/tree": Covered("tools/check-image", '"install", "tree"', "the suite image installs a tree and runs it"),
    "make image": Covered("tools/check-image", 'clone("image"', "the suite image runs the tool behind it"),
    "podman run --rm oci-archive:qrnic-image.tar demo": Covered("tools/check-image", 'box.run("demo"', IN_BOX),
    "podman run --rm -it oci-archive:qrnic-image.tar shell": Covered("tools/check-image", "box.shell()", IN_BOX),
    'podman run --rm --read-only -v "$PWD:/work:ro" oci-archive:qrnic-image.tar run job.sh': Covered("tools/check-image", 'box.run("run"', IN_BOX),
    'podman run --rm -v "$PWD:/work:ro" oci-archive:qrnic-image.tar run --file ./program:/usr/bin/program job.sh':
        Covered("tools/check-image", '"--file", "./program:/usr/bin/program"', IN_BOX),
    "make packages": Covered("tools/check-packages", 'TOOLS / "packages", "--lintian"', "the suite packages runs the tool behind it"),
    "tools/packages --out /tmp/qrnic-packages": Covered("tools/check-packages", '"--out"', "the suite packages copies the packages"),
    'echo "deb [trusted=yes] file:/tmp/qrnic-packages ./" >/etc/apt/sources.list.d/qrnic.list': Covered(
        "tools/check-packages", "deb [trusted=yes] file:/srv/packages ./", "the clean root of the suite packages has the folder there"),
    "apt-get update": Covered("tools/check-packages", "apt-get -q update", "the suite packages runs it in a clean root"),
    "apt-get install -t trixie-backports qrnic-guest qemu-system-x86": Covered(
        "tools/check-packages", '"-t", f"{SUITE}-backports", "qrnic-guest", "qemu-system-x86"', "the suite packages runs it in a clean root"),
    "tools/qrnic lab": Covered("tools/check-labs", 'TOOLS / "qrnic", "lab"', "the suite labs runs it"),
    "qrnic lab": Covered("tools/check-packages", '"sh", "-c", LAB', "the suite packages runs it in a clean root"),
    "qrnic lab copy 1": Covered("tools/check-labs", '("copy", "1")', "the suite labs runs it in a folder of a student"),
    "qrnic lab grade 01-device": Covered("tools/check-labs", '("grade", "01-device")', "the suite labs runs it in a folder of a student"),
    "qrnic lab zoo 7": Covered("tools/check-labs", "report = zoo.run(patch)", "the suite labs runs each patch"),
    "qrnic demo": Covered("tools/check-packages", '"qrnic", "demo"', "the suite packages runs it in a clean root"),
    "apt-get install qrnic-dkms ibverbs-provider-qrnic linux-headers-amd64": Covered(
        "tools/check-packages", '*packages, "qrnic-dkms"', "the suite packages runs it in a clean root"),
    "tools/packages --rpm": Covered("tools/check-packages", '"--rpm"', "the suite packages runs it"),
    # labs
    "labs/grade 1": Covered("tools/check-labs", "*graded(folder, grade.program_of(folder))", "the suite labs grades each skeleton"),
    "labs/grade --solution 1": Covered("tools/check-labs", 'graded(folder, grade.program_of(LABS / "solutions"', "the suite labs grades each solution"),
    "labs/guide/slides --out slides": Covered("labs/guide/check.py", 'slides.make(', "the suite labs makes the slides of each lecture"),
    "tools/deps check": Covered("tools/check-contract", 'tools/deps" check', "each suite installs its packages by tools/deps"),
    "labs/zoo/run correct": Covered("tools/check-labs", '(["correct"], 0,', "the suite labs runs it"),
    "labs/zoo/run 7": Covered("tools/check-labs", "report = zoo.run(patch)", "the suite labs runs each patch"),
    "labs/zoo/run --list": Covered("tools/check-labs", '(["--list"], 0,', "the suite labs runs it"),
    "labs/zoo/run --all": Covered("tools/check-labs", '(["--all"], 0,', "the suite labs runs it"),
    "labs/zoo/run --driver FILE": Covered("tools/check-labs", '(["--driver", str(driver)], 1,', "the suite labs runs it with a wrong file"),
    "labs/zoo/run 11 --trace 30": Covered("tools/check-labs", '["11", "--trace", "30", "--capture"', "the suite labs runs it"),
    "labs/zoo/run 11 --capture FILE": Covered("tools/check-labs", '["11", "--trace", "30", "--capture"', "the suite labs runs it"),
    "make -C labs/01-device grade": Run("boot", status=2),
    "make -C labs/02-commands grade": Run("boot", status=2),
    "make -C labs/03-doorbell grade": Run("boot", status=2),
    "make -C labs/04-direct grade": Run("boot", status=2),
    "make -C labs/05-translate grade": Run("boot", status=2),
    "make -C labs/06-events grade": Run("boot", status=2),
    "make -C labs/07-transport grade": Run("boot", status=2),
    "make -C labs/08-loss grade": Run("boot", status=2),
    "make -C labs/09-contexts grade": Run("boot", status=2),
    "make -C labs/10-priorities grade": Run("boot", status=2),
    "make -C labs/11-gather grade": Run("boot", status=2),
    "make -C labs/13-paging grade": Run("boot", status=2),
    "make -C labs/12-collective grade": Run("boot", status=2),
    "make -C labs/14-driver grade": Covered("tools/check-labs", "runs = check.boot(sources, limit=3 * LIMIT)", "topic 85-labs of the guest jobs grades skeleton and solution"),
    "make -C labs/15-attack grade": Run("boot", status=2),
    # guests.md
    "make shell": Run("boot", pty="exit"),
    "tools/guest -c 'ibv_devinfo -v | grep GID'": Run("boot"),
    "tools/guest --guests 2 examples/two-guests.sh hello_verbs": Run("boot"),
    "tools/guest-root --print kernel": Run("boot"),
    "make install-guest DESTDIR=/tmp/root": Run("boot", edit=(("/tmp/root", '"$PWD/root"'),), reason="the folder of the test",
                                                before="mkdir -p root/usr/lib root/etc"),
    "qemu-system-x86_64-qrnic -machine q35 ... -device pcie-root-port,id=port1,chassis=1 "
    "-netdev dgram,id=wire,local.type=unix,local.path=a.sock,remote.type=unix,remote.path=b.sock "
    "-device qrnic,bus=port1,netdev=wire,mac=52:54:00:00:00:01":
        Run("boot", edit=((" ... ", " -S -nodefaults -display none -monitor stdio "), ("00:01", "00:01 <<<quit")),
            reason="QEMU reads the options and stops at the monitor's prompt; tools/guest boots guests with the same options"),
    "qemu-system-x86_64-qrnic -device qrnic,help": Run("boot"),
    # virtual-functions.md
    "tools/guest --interactive --nic qrnic,vfs=4": Covered(
        "tests/guest/jobs/63-virtual-functions.sh", "# guest: --guests 1 --nic qrnic,vfs=",
        "the suite guest boots such a guest; the other commands of the page run in a guest with the same card"),
    "qemu-system-x86_64-qrnic -machine q35 ... -device pcie-root-port,id=port1,chassis=1 -netdev user,id=net "
    "-device qrnic,bus=port1,netdev=net,vfs=4":
        Run("boot", edit=((" ... ", " -S -nodefaults -display none -monitor stdio "), ("vfs=4", "vfs=4 <<<quit")),
            reason="QEMU creates the card and stops at the monitor's prompt"),
    "tools/fetch-stock-qemu": Covered("tools/check-guest", '"$QRNIC_ROOT/tools/fetch-stock-qemu"',
                                      "the guest tests fetch this QEMU", shown=("fetch-stock-qemu: fetching Debian's QEMU #+ds-#~bpo#+# ... # s",)),
    "QRNIC_LINUX=newest tools/guest-build-modules": Covered(
        "tools/check-newest", 'build "$here/guest-build-modules"', "make check-newest builds this kernel's modules: 2 GB are too much here",
        shown=("guest-build-modules: modules ready for Linux #+deb#-amd# (# s)",)),
    "QRNIC_LINUX=newest tools/guest -c 'uname -r'": Covered(
        "tools/check-newest", 'guest_jobs "Linux $linux" 10-device', "make check-newest boots this kernel, in make check if it is built",
        shown=("#+deb#-amd#",)),
    "make -C guest-kmod KDIR=/your/kernel/tree": Run(
        "boot", before='rm guest-kmod && mkdir -p "$(tools/guest-root --print build)/work" && work=$(mktemp -d "$(tools/guest-root --print build)/work/pages.XXXXXX")'
        ' && cp -r "$ROOT/guest-kmod/." "$work" && ln -s "$work" guest-kmod',
        edit=(("make -C guest-kmod", 'tools/guest-root --enter make -j2 -C "/work/$(basename "$(readlink guest-kmod)")"'),
              ("/your/kernel/tree", '"/lib/modules/$(tools/guest-root --print kernel)/build"')),
        reason="the tree is that of the guest's kernel, which the build root has"),
    "tools/guest --kernel bzImage --file guest-kmod/qrnic.ko:/root/qrnic.ko --file guest-kmod/ib/qrnic_ib.ko:/root/qrnic_ib.ko "
    "-c 'insmod /root/qrnic.ko; insmod /root/qrnic_ib.ko; ibv_devinfo'":
        Run("boot", before='ln -s "$(dirname "$(tools/guest-root --print build)")/image/vmlinux" bzImage',
            edit=(("insmod /root/qrnic.ko", "modprobe ib_uverbs; modprobe -r qrnic_ib qrnic; insmod /root/qrnic.ko"),),
            reason="the kernel is that of the guests, whose image has our modules and the RDMA core"),
    # driver.md
    "spec/generate --header device > qrnic_hw.h": Run("quick"),
    "examples/ci/boot-driver examples/first-driver examples/first-driver/job": Run("boot"),
    "cp -r examples/first-driver my": Run("boot"),
    "cp guest-kmod/include/qrnic_hw.h my": Run("boot"),
    "mv my/first_driver.c my/my.c": Run("boot"),
    "sed -i s/first_driver.o/my.o/ my/Kbuild": Run("boot"),
    "sed -i 's/<qrnic_hw.h>/\"qrnic_hw.h\"/' my/my.c": Run("boot"),
    "tools/build-all": Run("boot"),
    'work=$(tools/guest-root --print build)/work/my; mkdir -p "$work"; cp -r my/. "$work"': Run("boot"),
    'tools/guest-root --enter make -C "/lib/modules/$(tools/guest-root --print kernel)/build" M=/work/my modules': Run("boot"),
    'cp "$(tools/guest-root --print build)/work/my/my.ko" .': Run("boot"),
    "tools/guest --file my.ko:/root/my.ko -c 'modprobe -r qrnic_ib qrnic; insmod /root/my.ko; dmesg'": Run("boot"),
    "tools/qtest my-test.c": Run("qtest", edit=(("my-test.c", "my-test.c -- --tap"),), reason="GLib's tests print TAP only if asked"),
    # debug.md
    "make watch": Run("qtest"),
    "make watch OP=read": Run("qtest"),
    "tools/watch --length 3000 --raw write": Run("qtest"),
    "tools/step --live --qp 18": Covered("tests/qtest/timeline_test.py", '"--live"', "the test presses the keys on a terminal of its own"),
    "tools/guest --qemu-arg=-d --qemu-arg=guest_errors --qemu-arg=-trace --qemu-arg='qrnic_*' --logs logs -c 'ibv_devinfo'": Run("boot"),
    "head -n 3 logs/guest1.qemu.log": Run("boot"),
    "tools/guest --strict -c 'echo WARNING: a test >/dev/kmsg'": Run("boot", status=123),
    "tools/guest --nic qrnic,doorbell-fifo=2 -c 'ibv_devinfo'": Run("boot"),
    "tools/guest host.sh": Run("boot"),
    "tools/fuzz-engine --seconds 3600": Covered("tools/check-fuzz", '"--seconds"', "the suite fuzz runs it for some seconds"),
    'tests/qtest/fuzz/fuzz-device --seconds 3600 "$(tools/build-qemu --print)"': Covered(
        "tools/check-fuzz", '"--seconds"', "the suite fuzz runs it for some seconds"),
    "tools/build-qemu --sanitize": Covered("tools/check-fuzz", '"--sanitize"', "a full check builds it"),
    'tests/qtest/fuzz/fuzz-device --seconds 3600 "$(tools/build-qemu --print --sanitize)"': Covered(
        "tools/check-fuzz", '"--sanitize"', "a full check runs it for some seconds"),
    'make check SUITES="unit qtest"': Covered(".ci/run", 'make check SUITES="$*"', "CI runs suites by this variable"),
    "make check SUITES=contract": Covered(".ci/run", 'make check SUITES="$*"', "CI runs suites by this variable"),
    "tests/guest/run 20-pingpong": Covered("tools/check-guest", 'tests/guest/run" "$@"', "the suite guest runs the job"),
    # ci.md
    "examples/ci/boot-driver --help": Run("quick"),
    "KERNEL=bzImage examples/ci/boot-driver my.ko": Covered("tests/guest/examples_test.py", '{"KERNEL": image}', "the same with the guest's kernel"),
    "tools/guest --strict -c 'ibv_devinfo | grep PORT_ACTIVE'": Run("boot"),
    "tools/guest --capture caps -c 'ibv_devinfo'": Run("boot"),
    "tshark -r caps/guest1-nic0.pcapng -X lua_script:caps/qrnic.lua -Y qrnic.cmd_entry.opcode": Run("boot", needs="tshark"),
    "tools/timeline --perfetto trace.json --svg chart.svg --control caps/guest1-nic0.pcapng": Run("boot"),
    # wires.md
    "tools/guest --guests 2 --pcap caps job.sh": Run("boot"),
    "tshark -r caps/guest1-net0.pcap": Run("boot", needs="tshark"),
    "tools/guest --guests 4 --nic qrnic:link=cable job.sh": Run("boot"),
    "qrnic-switch /tmp/port1 /tmp/port2": Run("boot", edit=(("qrnic-switch", "timeout 2 qrnic-switch"), ("/tmp/port1", "port1"), ("/tmp/port2", "port2")),
                                              status=124, reason="the switch runs until it is ended"),
    "tools/guest --guests 2 --wire loss=1,reorder=0.5,seed=7 job.sh": Run("boot"),
    "qemu-system-x86_64-qrnic ... -device qrnic,bus=port1,netdev=net,icrc=transport -netdev user,id=net,net=192.0.2.0/25,host=192.0.2.2,"
    "dns=192.0.2.3,dhcpstart=192.0.2.1,hostfwd=udp::4791-:4791,hostfwd=tcp::18515-:18515":
        Run("boot", edit=(QUIT, ROOT_PORT, ("-:18515", "-:18515 <<<quit")), reason=PARSED),
    "qemu-system-x86_64-qrnic ... -device qrnic,bus=port1,netdev=net,icrc=transport -netdev user,id=net,net=192.0.2.128/25,host=192.0.2.130,"
    "dns=192.0.2.131,dhcpstart=192.0.2.129,hostfwd=udp::4791-:4791,hostfwd=tcp::18515-:18515":
        Run("boot", edit=(QUIT, ROOT_PORT, ("-:18515", "-:18515 <<<quit")), reason=PARSED),
    "tools/guest --guests 2 --nic qrnic:hosts,icrc=transport hosts.sh": Run("boot", needs="root"),
    # process.md
    "tools/device --socket /tmp/q.sock --cable /tmp/c0": Run(
        "boot", edit=(("tools/device", "timeout 2 tools/device"), ("/tmp/q.sock", "q.sock"), ("/tmp/c0", "c0")), status=124,
        reason="the device runs until it is ended"),
    "qemu-system-x86_64 -nodefaults -accel kvm -accel tcg -machine q35,memory-backend=m -m 1G "
    "-object memory-backend-memfd,id=m,size=1G,share=on -drive file=guest.qcow2,if=virtio -device pcie-root-port,id=port1,chassis=1 "
    '-device \'{"driver":"vfio-user-pci","bus":"port1","socket":{"type":"unix","path":"/tmp/q.sock"}}\' -display none -serial mon:stdio': Run(
        "boot", before="truncate -s 1M guest.qcow2", needs="a stock QEMU",
        edit=(("qemu-system-x86_64 ", "tools/device --socket own.sock --cable own >own.log 2>&1 & until [ -S own.sock ] || ! kill -0 $!; do sleep 0.1; done; "
                                      '"$(tools/fetch-stock-qemu --print)" '),
              ("/tmp/q.sock", "own.sock"), ("-serial mon:stdio", "-serial null -S -monitor stdio <<<quit; status=$?; kill $!; wait; exit $status")),
        reason="QEMU connects to a device and stops at the monitor's prompt; guest job 10-device uses these options"),
    "tools/device --socket q.sock --cable c0 --trace 'qrnic_process_*'": Run(
        "boot", edit=(("tools/device", "timeout 20 tools/device"),), status=124, reason="the device runs until it is ended"),
    "tools/device --socket q.sock --cable c0 --qmp qmp.sock": Run(
        "boot", edit=(("tools/device", "timeout 2 tools/device"),), status=124, reason="the device runs until it is ended"),
    "tools/step --live qmp.sock": Covered("tests/qtest/timeline_test.py", '"--live"', "the test presses the keys on a terminal of its own"),
    "tools/bench --scope cable --metric process":
        Covered("tests/guest/bench_test.py", '"--metric", "process"', "topic 81-bench runs the metric with a replacement of the guests"),
    # networks.md
    'make experiments OUT=results ONLY="loss reordering"': Covered("tools/check-experiments", "tools/experiments", "the suite experiments runs all"),
    "tests/guest/run --logs kept 66-lossy-wire": Covered("tools/check-newest", "tests/guest/run\" --logs", "the suite guest runs the job, newest the option"),
    "tools/guest --guests 2 --wire loss=1,reorder=0.5,seed=7 pair.sh": Run("boot"),
    "tools/guest --guests 2 --wire loss=1,reorder=0.5,seed=7 --env QRNIC_SELECTIVE_REPEAT=1 pair.sh": Run("boot"),
    "tools/guest --guests 2 --wire mark=5 pair.sh": Run("boot"),
    "tools/guest --guests 2 --wire loss=1,seed=7 --nic qrnic:link=dgram,link-retransmission=on pair.sh": Run("boot"),
    "tools/guest -c dynamic": Run("boot"),
    "tools/simulate tests/scenarios/incast.yaml": Run("qtest", needs="matplotlib"),
    # hosts.md
    "tools/host-wire add --owner libvirt-qemu --peer 192.0.2.2 --peer 192.0.2.3":
        Covered("tests/guest/hosts_test.py", "host-wire add --owner daemon --peer 192.0.2.2 --peer 192.0.2.3", "topic 84-hosts runs it in a namespace",
                shown=("host-wire: tap qrnic# is joined with # #; the guests need at most MTU #",)),
    "tools/host-wire remove": Covered("tests/guest/hosts_test.py", '"host-wire remove"', "topic 84-hosts runs it in a namespace",
                                      shown=("host-wire: removed the wire qrnic#",)),
    "tools/guest --guests 2 --nic qrnic:vxlan examples/two-guests.sh hello_verbs":
        Covered("tests/guest/jobs/44-vxlan.sh", "--guests 2 --nic qrnic:vxlan", "the job uses this network", shown=('guest#: in my memory: "Hello, verbs! This came by RDMA write."',)),
    "virt-xml-validate examples/hosts/libvirt.xml domain": Run("quick", needs="virt-xml-validate"),
    "virt-xml-validate examples/hosts/libvirt-process.xml domain": Run("quick", needs="virt-xml-validate"),
    "virsh -c qemu:///system create examples/hosts/libvirt.xml":
        Covered("tests/guest/hosts_test.py", '"libvirt.xml"', "topic 84-hosts checks the domain; a run needs libvirtd, and was made by hand"),
    "virsh -c qemu+ssh://root@host2/system create guest2.xml":
        Covered("tests/guest/hosts_test.py", '"libvirt.xml"', "topic 84-hosts checks the domain; a run needs two hosts, and was made by hand"),
    "kubectl apply -f examples/hosts/kubernetes.yaml":
        Covered("tests/guest/hosts_test.py", '"kubernetes.yaml"', "topic 84-hosts runs the scripts of the manifest; a run needs a cluster"),
    'tools/device --socket /tmp/card.sock --netdev user &':
        Covered("tests/guest/hosts_test.py", "vfio-user-pci", "topic 84-hosts checks the options of this device; a run needs virtme-ng, and was made by hand"),
    'vng -v -r KERNEL --force-9p --disable-microvm --memory 1G --qemu /usr/bin/qemu-system-x86_64 --qemu-opts="-object memory-backend-memfd,id=m,size=1G,share=on -machine memory-backend=m -device pcie-root-port,id=port1,chassis=1 -device \'{\\"driver\\":\\"vfio-user-pci\\",\\"bus\\":\\"port1\\",\\"socket\\":{\\"type\\":\\"unix\\",\\"path\\":\\"/tmp/card.sock\\"}}\'" -- \'modprobe ib_uverbs; insmod MODULES/qrnic.ko; insmod MODULES/qrnic_ib.ko; ls /sys/class/infiniband\'':
        Covered("tests/guest/hosts_test.py", "vfio-user-pci", "topic 84-hosts checks the options of this device; a run needs virtme-ng, and was made by hand"),
    "install -d -o libvirt-qemu -g kvm -m 0750 /run/qrnic":
        Covered("tools/check-image", "install -d -o 64055", "the suite image makes the folder for another user"),
    "runuser -u libvirt-qemu -- qrnic-device --socket /run/qrnic/guest1.sock --netdev tap,ifname=qrnic0,script=no,downscript=no --property mac=52:54:00:00:00:01":
        Covered("tools/check-image", "qrnic-device --socket /run/qrnic/guest1.sock", "the suite image runs the device with these options as another user"),
    "tools/deps sweeps": Covered("tools/check-sweeps", '"plots", "sweeps"', "the suite sweeps runs it"),
    "parallel tools/simulate --out sweep --seeds 1-4 --shard {}/2 tests/scenarios/named-packets.yaml ::: 1 2": Run("qtest", needs="parallel"),
    "tools/simulate --out sweep --merge": Run("qtest", needs="parallel"),
    "sbatch --wait --array=1-2 sweep.sbatch --out array --seeds 1-4 tests/scenarios/named-packets.yaml":
        Covered("tools/check-sweeps", '["bash", "sweep.sbatch"', "the suite sweeps runs the script with the variables of Slurm"),
    "tools/simulate --out array --merge": Covered("tools/check-sweeps", 'self.simulate(out, "--merge"', "the suite sweeps runs it",
                                                  shown=("figures and pictures: array",)),
    "parallel tools/experiments --out figures --shard {}/4 ::: 1 2 3 4": Covered("tools/check-sweeps", 'self.in_parallel("experiments"', "the suite sweeps runs it"),
    "tools/experiments --out figures --merge": Covered("tools/check-sweeps", '"experiments", "--out", parts, "--merge"', "the suite sweeps runs it"),
    # measure.md
    "make bench": Covered("tests/guest/bench_test.py", 'OPTIONS = ["--no-build"', "25 minutes; topic 81-bench runs tools/bench without guests"),
    "tools/bench --rounds 1 --scope within --metric write --no-boot": Run("boot"),
    "tools/bench --json before.json": Covered("tests/guest/bench_test.py", '"--json"', "topic 81-bench runs it without guests"),
    "tools/bench --json results/1.json": Covered("tests/guest/bench_test.py", '"--json"', "topic 81-bench runs it without guests"),
    "tools/trend results --out trend.html": Covered("tests/trend/run", '"trend", "--out", target, directory', "the suite experiments runs it",
                                                    shown=("trend: # runs, # files left out, # ratios, # marks: trend.html",)),
    **{f"tools/publish {name}": Covered("tests/workflows/run", "commands_of_publish()", "the suites contract and experiments test the workflows")
       for name in ("bench", "check", "build", "image", "release", "latest")},
    "tools/bench --compare before.json": Covered("tests/guest/bench_test.py", '"--compare"', "topic 81-bench runs it without guests"),
    "tools/bench --provider": Run("boot"),
    "tools/bench --engine": Run("qtest", needs="valgrind"),
    "tools/guest --guests 2 --cpus 2 --accel kvm --nic qrnic:link=cable --device-prop ioeventfd=on --device-prop doorbell-pages=16 "
    "--device-prop cap-direct-wqe=off job.sh":
        Run("boot", before="printf 'true\\n' >job.sh", edit=(("--accel kvm", "--accel auto"),), reason="KVM only where it works; the device accepts ioeventfd without KVM"),
}

# The commands of guests run in one boot: all of a page in one shell, one after the other. virtual-functions.md needs
# the property vfs.
GUEST_OPTIONS = ("--cpus", "2", "--nic", "qrnic,vfs=4")
