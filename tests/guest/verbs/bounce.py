#!/usr/bin/env python3
# Calls each verb that registers memory of this process, in a guest whose kernel copies all DMA.
# SPDX-License-Identifier: GPL-2.0-or-later
"""bounce.py DEVICE: prints a result line for each verb; the status is 0 if each verb fails with EOPNOTSUPP"""

import errno
import fcntl
import mmap
import os
import struct
import sys

import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR, DmaBufMR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr

LENGTH = 64 * mmap.PAGESIZE
# ioctl UDMABUF_CREATE: struct udmabuf_create of 24 bytes
UDMABUF_CREATE = 0x40187542
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2


def dma_buf():
    """Returns a dma-buf of the pages of a memfd."""
    memfd = os.memfd_create("bounce", os.MFD_ALLOW_SEALING)
    os.ftruncate(memfd, LENGTH)
    fcntl.fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK)
    with open("/dev/udmabuf", "r+b", buffering=0) as device:
        return fcntl.ioctl(device, UDMABUF_CREATE, bytearray(struct.pack("=IIQQ", memfd, 0, 0, LENGTH)))


def main():
    context = Context(name=sys.argv[1])
    pd = PD(context)
    writable = e.IBV_ACCESS_LOCAL_WRITE
    verbs = {
        "reg_mr": lambda: MR(pd, 100, writable),
        # More memory than all bounce buffers, so that a copy of it cannot succeed
        "reg_mr of much memory": lambda: MR(pd, 200 << 20, writable),
        "reg_mr on demand": lambda: MR(pd, LENGTH, writable | e.IBV_ACCESS_ON_DEMAND),
        "reg_mr on demand, implicit": lambda: MR(pd, 0, writable | e.IBV_ACCESS_ON_DEMAND, implicit=True),
        "reg_dmabuf_mr": lambda: DmaBufMR(pd, LENGTH, writable, dmabuf=dma_buf()),
        "create_cq": lambda: CQ(context, 10),
        "create_srq": lambda: SRQ(pd, SrqInitAttr(SrqAttr(max_wr=10))),
    }
    status = 0
    for name, verb in verbs.items():
        try:
            verb()
            error = 0
        except PyverbsRDMAError as failure:
            error = failure.error_code
        print(name, errno.errorcode.get(error, error))
        if error != errno.EOPNOTSUPP:
            status = 1
    return status


sys.exit(main())
