#!/usr/bin/python3
"""Tests of tools/qtest: a test outside of the repository builds and runs, fails if it must, and gets a message for its
errors.

Uses the build of tools/build-qemu --tests=qtest; prints TAP.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import tap  # noqa: E402

TOOL = ROOT / "tools" / "qtest"

# This test uses each of the tools that --help names.
RIG = """
#include "qemu/osdep.h"
#include "driver.h"
#include "mine.h"

static void test_write(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    rig_write_from_peer(&r, RQ_PSN, 0, BYTE, 0, true);
    peer_expect(r.d, RC_ACK, RQ_PSN);
    rig_expect_byte(&r, 0, EXPECTED);
    rig_stop(&r);
}

void add_mine(void)
{
    g_test_add_func("/mine/write", test_write);
}
"""
MAIN = """
#include "qemu/osdep.h"
#include "driver.h"
#include "mine.h"

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add_mine();
    return g_test_run();
}
"""


def qtest(*words):
    return subprocess.run([TOOL, "--no-build", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                          check=False)


def outcome(done, status, text):
    """Returns nothing if the run ended with this status and printed this text; otherwise returns the end of its
    output.
    """
    good = (done.returncode == status if status is not None else done.returncode) and text in done.stdout + done.stderr
    return [] if good else [f"exit status {done.returncode}, '{text}' expected", *(done.stdout + done.stderr).splitlines()[-12:]]


def tests(folder):
    example = re.search(r"^  #include.*?^  }\n(?=\n\S)", TOOL.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[0]
    (folder / "example.c").write_text("\n".join(line[2:] for line in example.splitlines()) + "\n", encoding="utf-8")
    yield "the example of --help", outcome(qtest(folder / "example.c", "--", "--tap"), 0, "ok 1 /my/vectors")
    (folder / "mine.c").write_text(MAIN, encoding="utf-8")
    (folder / "rig.c").write_text(RIG, encoding="utf-8")
    for expected, status in (("BYTE", 0), ("(BYTE ^ 1)", None)):
        (folder / "mine.h").write_text(f"#define BYTE 0x5a\n#define EXPECTED {expected}\nvoid add_mine(void);\n", encoding="utf-8")
        name = "two files with a header of their own" if status == 0 else "a test that fails"
        yield name, outcome(qtest(folder / "mine.c", folder / "rig.c", "--", "--tap"), status,
                            "ok 1 /mine/write" if status == 0 else "rig_expect_byte")
    printed = qtest("--print", folder / "mine.c", folder / "rig.c").stdout.strip()
    yield "--print names the program", [] if Path(printed).is_file() else [f"printed '{printed}'"]
    (folder / "bad.c").write_text("#error none\n", encoding="utf-8")
    yield "a file that does not compile", outcome(qtest(folder / "bad.c"), 1, "qtest: bad.c does not compile")
    yield "a file that is none", outcome(qtest(folder / "none.c"), 2, "none.c is no C file")


def main():
    writer = tap.Writer()
    with tempfile.TemporaryDirectory(prefix="qrnic-outside-") as folder:
        for name, problems in tests(Path(folder)):
            writer.problems(name, problems)
    writer.finish()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
