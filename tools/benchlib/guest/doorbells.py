#!/usr/bin/env python3
# Measures accesses to registers of a qrnic that has no driver: posted writes, as doorbells are, and reads.
# SPDX-License-Identifier: GPL-2.0-or-later
"""doorbells.py RESOURCE0: prints the us of a write and of a read, each without the loop around it."""

import ctypes
import mmap
import os
import sys
import time

SCRATCH, COUNT, ROUNDS = 0x34, 500, 9


def writes(register):
    for i in range(COUNT):
        register.value = i
    return register.value  # The read waits until all writes have arrived


def reads(register):
    for _ in range(COUNT):
        register.value  # pylint: disable=pointless-statement


def fastest(function, register):
    """Returns the us of one access, from the fastest round, because the host interrupts others."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function(register)
        times.append(time.perf_counter() - start)
    return min(times) / COUNT * 1e6


with open(sys.argv[1], "r+b", buffering=0) as resource:
    bar = mmap.mmap(resource.fileno(), os.fstat(resource.fileno()).st_size)
device = ctypes.c_uint32.from_buffer(bar, SCRATCH)
memory = ctypes.c_uint32()
for measured in (writes, reads):
    print(f"{max(fastest(measured, device) - fastest(measured, memory), 0.001):.3f}")
