"""Tests of examples/: boot-driver and the workflow that runs it, as a project that copied them uses them.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import glob
import os
import subprocess
import tempfile

import yaml

DRIVER = """
#include <linux/module.h>
#include <linux/pci.h>

static int mine_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	pr_info("here I am\\n");
	%s
}

static void mine_remove(struct pci_dev *pdev)
{
}

static const struct pci_device_id mine_ids[] = { { PCI_DEVICE(0x1234, %s) }, { } };
MODULE_DEVICE_TABLE(pci, mine_ids);

static struct pci_driver mine = {
	.name = "mine", .id_table = mine_ids, .probe = mine_probe, .remove = mine_remove,
};
module_pci_driver(mine);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a test of examples/ci");
"""
QRNIC, OTHER = "0x5152", "0x5153"

# Faulty drivers: the probe, the PCI ID, and the exit status and output of boot-driver
BROKEN = (
    ("works", "return 0;", QRNIC, 0, ()),
    ("fails on a report of the kernel", "WARN_ON(1);\n\treturn 0;", QRNIC, 123, ("kernel report: ", "mine_probe")),
    ("fails on a probe that fails", "return -EINVAL;", QRNIC, 122,
     ("mine is not bound to ", "kernel report: ", "probe with driver mine failed with error -22")),
    ("fails on a module that binds to nothing", "return 0;", OTHER, 122, ("mine is not bound to ",)),
    ("fails on an oops in a probe", "*(volatile int *)8 = 1;\n\treturn 0;", QRNIC, 123,
     ("kernel report: ", "NULL pointer dereference")),
)


def write(directory, files):
    os.makedirs(directory, exist_ok=True)
    for name, text in files.items():
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)


class Tests:
    def __init__(self, root, report, stopped):
        self.root, self.report, self.stopped = root, report, stopped
        self.boot_driver = os.path.join(root, "examples", "ci", "boot-driver")
        self.env = {**os.environ, "QRNIC_ACCEL": "tcg"}

    def run(self, name, words, directory, status, said, env=None, unsaid=()):
        """Runs the command, which must end with this status, and print each text of `said` and none of `unsaid`."""
        if self.stopped():
            return
        done = subprocess.run(words, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900,
                              check=False, env={**self.env, **(env or {})})
        output = done.stdout + done.stderr
        problems = [f"exit status {done.returncode} instead of {status}"] if done.returncode != status else []
        problems += [f"'{text}' is missing in the output" for text in said if text not in output]
        problems += [f"'{text}' is in the output" for text in unsaid if text in output]
        self.report.result(not problems, f"examples: {name}", details=problems and [*problems, *output.splitlines()[-12:]])

    def workflow(self):
        """Runs the command of the workflow, in a directory like that of a runner, on drivers with one fault each."""
        with open(os.path.join(self.root, "examples", "ci", "workflow.yml"), encoding="utf-8") as file:
            steps = yaml.safe_load(file)["jobs"]["boot"]["steps"]
        command = next(step["run"] for step in steps if step.get("name") == "boot")
        for name, probe, device, status, said in BROKEN:
            with tempfile.TemporaryDirectory(prefix="qt-ci-") as directory:
                os.symlink(self.root, os.path.join(directory, "qrnic"))
                write(os.path.join(directory, "driver"),
                      {"Kbuild": "obj-m := mine.o\n", "mine.c": DRIVER % (probe, device),
                       # boot-driver must not boot the module of an earlier build.
                       "old.ko": "", "job": "dmesg | grep -q 'here I am' && rmmod mine\n"})
                self.run(f"boot-driver {name}", ["bash", "-ec", f"{command} driver/job"], directory, status, said)

    def several(self):
        """Runs boot-driver on a directory that builds two modules, which it must reject."""
        with tempfile.TemporaryDirectory(prefix="qt-ci-") as directory:
            source = DRIVER % ("return 0;", QRNIC)
            write(directory, {"Kbuild": "obj-m := one.o two.o\n", "one.c": source, "two.c": source})
            self.run("boot-driver rejects a directory of two modules", [self.boot_driver, directory], directory, 121,
                     ("builds 2 modules (one.ko two.ko)",))
            write(directory, {"Kbuild": "obj-m := one.o\n", "one.c": "#error no driver\n"})
            self.run("boot-driver reports a module that does not build", [self.boot_driver, directory], directory, 121,
                     ("does not build",))

    def built(self):
        """Runs boot-driver with a built module and a given kernel, here those of the guests."""
        modules, kernel = (subprocess.run([os.path.join(self.root, "tools", tool), "--print", *words], check=True, text=True,
                                          stdout=subprocess.PIPE).stdout.strip()
                           for tool, words in (("guest-build-modules", ()), ("guest-root", ("build",))))
        image = os.path.join(os.path.dirname(kernel), "image", "vmlinux")
        found = glob.glob(os.path.join(modules, "usr", "lib", "modules", "*", "updates", "qrnic.ko"))
        with tempfile.TemporaryDirectory(prefix="qt-ci-") as directory:
            self.run("boot-driver accepts a built module and a built kernel", [self.boot_driver, *found], directory, 0, (),
                     {"KERNEL": image})

    def first_driver(self):
        """Builds the first driver, binds it, and runs its steps, alone and together."""
        with tempfile.TemporaryDirectory(prefix="qt-ci-") as directory:
            folder = os.path.join(self.root, "examples", "first-driver")
            self.run("first-driver executes its three steps", [self.boot_driver, folder, os.path.join(folder, "job")], directory, 0,
                     ("step 1: version ", "step 2: at most ", "step 3: EQ 1 reported the end of command 2 by an interrupt"))

    def two_guests(self):
        """Runs the job for two guests with examples, whose server reports that it waits."""
        job = os.path.join(self.root, "examples", "two-guests.sh")
        guest = [os.path.join(self.root, "tools", "guest"), "--no-refresh", "--boot-timeout", "240", "--guests", "2", "--"]
        self.run("two-guests.sh runs hello_verbs", [*guest, job, "hello_verbs"], self.root, 0,
                 ("guest1: waits for the peer at TCP port 18600", 'guest1: in my memory: "Hello, verbs!'))
        self.run("two-guests.sh passes arguments on", [*guest, job, "fifo_exchange", "-n", "7"], self.root, 0,
                 ("guest1: waits for the peer at TCP port",))
        self.run("two-guests.sh ends with the status of its program", [*guest, job, "hello_verbs", "-x"], self.root, 2,
                 ("usage: hello_verbs", "guest1 ended with status 2"))

    def usages(self):
        """Runs all examples with a wrong option. Each must print its usage and end with status 2."""
        names = sorted(name[:-2] for name in os.listdir(os.path.join(self.root, "examples")) if name.endswith(".c"))
        job = f"""
for name in {' '.join(names)}; do
    timeout 20 $name -Z >output 2>&1; status=$?
    grep -q "^usage: $name " output && [ $status = 2 ] || {{ echo "$name: status $status"; cat output; failed=1; }}
    echo "tried $name"
done
[ -z "$failed" ]"""
        self.run("each example prints its usage for a wrong option",
                 [os.path.join(self.root, "tools", "guest"), "--no-refresh", "--boot-timeout", "240", "-c", job],
                 self.root, 0, [f"tried {name}" for name in names])

    def arguments(self):
        """Runs boot-driver with wrong arguments, which are rejected before a build, because this checkout cannot build."""
        with tempfile.TemporaryDirectory(prefix="qt-ci-") as directory:
            checkout = os.path.join(directory, "qrnic", "tools")
            write(checkout, {name: "#!/bin/sh\necho building\n" for name in ("build-all", "guest", "guest-root")})
            for name in os.listdir(checkout):
                os.chmod(os.path.join(checkout, name), 0o755)
            write(os.path.join(directory, "driver"), {"Kbuild": "obj-m := mine.o\n"})
            write(directory, {"mine.ko": "", "mine.c": ""})
            os.mkdir(os.path.join(directory, "empty"))
            for words, text, env in (((), "give MODULE", {}), (("driver", "driver/none"), "driver/none cannot be read", {}),
                                     (("driver", "mine.ko", "more"), "give MODULE", {}), (("none",), "none is neither", {}),
                                     (("empty",), "neither a Kbuild nor a Makefile", {}), (("mine.c",), "mine.c is neither", {}),
                                     (("driver", "driver"), "the job driver cannot be read", {}),
                                     (("driver",), "with KERNEL give a .ko", {"KERNEL": "mine.ko"}),
                                     (("mine.ko",), "KERNEL=none cannot be read", {"KERNEL": "none"}),
                                     (("mine.ko",), "is no checkout of qrnic", {"QRNIC": directory})):
                given = " ".join([*(f"{key}={os.path.basename(value)}" for key, value in env.items()), "boot-driver", *words])
                self.run(f"rejected with one line: {given}", [self.boot_driver, *words], directory, 2, (text,),
                         {"QRNIC": os.path.dirname(checkout), **env}, unsaid=("building",))


def run(root, report, stopped):
    """Runs the tests until stopped() is true."""
    tests = Tests(str(root), report, stopped)
    for group in (tests.arguments, tests.workflow, tests.several, tests.built, tests.first_driver, tests.two_guests, tests.usages):
        if not stopped():
            group()
