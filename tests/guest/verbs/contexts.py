#!/usr/bin/env python3
# Opens contexts until the adapter has no doorbell page left, and checks the mappings of each.
# SPDX-License-Identifier: GPL-2.0-or-later
"""contexts.py DEVICE BYTES COUNT: opens up to COUNT + 1 contexts, with BYTES of doorbell pages each.
The status is 0 if COUNT contexts were opened. With BYTES above 4096 one more context must fail."""

import sys

from pyverbs.device import Context
from pyverbs.pyverbs_error import PyverbsRDMAError


def mappings():
    """Returns the sizes of all mappings of the device."""
    sizes = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "/dev/infiniband/uverbs" in line:
                begin, end = (int(word, 16) for word in line.split()[0].split("-"))
                sizes.append(end - begin)
    return sizes


def main():
    name, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    contexts = []
    try:
        while len(contexts) <= count:
            contexts.append(Context(name=name))
    except PyverbsRDMAError as error:
        print(f"after {len(contexts)} contexts: {error}")
    # Only the sum is compared, because the kernel may join adjacent mappings.
    mapped = sum(mappings())
    print(f"{len(contexts)} contexts with {mapped} bytes, {count} with {size} each expected")
    if mapped != len(contexts) * size:
        return 1
    return 0 if len(contexts) == (count if size > 4096 else count + 1) else 1


sys.exit(main())
