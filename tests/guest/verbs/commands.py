#!/usr/bin/env python3
# Issues commands of the driver by verbs: short commands, or commands that need a long time in the device.
# SPDX-License-Identifier: GPL-2.0-or-later
"""commands.py DEVICE short COUNT | DEVICE long COUNT: executes commands; long ones clear the device memory"""

import sys

from pyverbs.device import AllocDmAttr, Context, DM
from pyverbs.pd import PD


def main():
    device, what, number = sys.argv[1:]
    with Context(name=device) as context:
        if what == "short":
            for _ in range(int(number)):
                PD(context).close()
        else:
            size = context.query_device_ex().max_dm_size
            for _ in range(int(number)):
                DM(context, AllocDmAttr(size)).close()


main()
