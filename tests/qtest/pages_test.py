#!/usr/bin/python3
"""Runs the commands of README.md and docs/use/ that need QEMU and its tests (tests/pages/run, stage qtest); prints TAP.

Uses what tools/build-qemu --tests has built.
SPDX-License-Identifier: GPL-2.0-or-later
"""

import os
import sys
from pathlib import Path

RUN = Path(__file__).resolve().parent.parent / "pages" / "run"

if __name__ == "__main__":
    try:
        os.execv(RUN, [str(RUN), "qtest"])
    except KeyboardInterrupt:
        sys.exit(130)
