# Lab 2: the command queue by hand. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

from lab import Todo

COMMAND = 0x04                  # configuration space
MEMORY_SPACE_ENABLE, BUS_MASTER_ENABLE = 1 << 1, 1 << 2         # bits of COMMAND
REG_STATUS, REG_CONTROL = 0x008, 0x00c
REG_CMD_BASE_LO, REG_CMD_BASE_HI, REG_CMD_SIZE, REG_CMD_DOORBELL = 0x020, 0x024, 0x028, 0x02c
READY, CMD_ENABLED = 1 << 0, 1 << 1             # bits of STATUS
RESET, CMD_ENABLE = 1 << 0, 1 << 1              # bits of CONTROL
NOP, QUERY_DEVICE, FREE_PD = 0x0001, 0x0002, 0x0013
ENTRY_SIZE, OWNER = 64, 1 << 31


def reset(machine):
    """Enables memory space, resets the device and waits until it is ready; then enables bus mastering."""
    raise Todo("enable memory space, write RESET to CONTROL, wait until STATUS has READY, then enable bus mastering, too")


class CommandQueue:
    """A ring of 8 entries, after reset()."""

    LOG_SIZE = 3

    def __init__(self, machine):
        self.machine = machine
        self.producer = 0
        raise Todo("allocate self.ring, write CMD_BASE_LO, CMD_BASE_HI and CMD_SIZE, then CMD_ENABLE to CONTROL")

    def execute(self, opcode, number=0, out=0, out_len=0):
        """Executes a command without input; returns (status, result, syndrome)."""
        raise Todo("write an entry with OWNER to its place, count self.producer and write the doorbell, wait until the owner bit is 0, return the results")


def max_qp(machine, queue):
    """Returns the largest number of queue pairs, by QUERY_DEVICE."""
    raise Todo("allocate 128 bytes, execute QUERY_DEVICE with this output mailbox, and return the le32 at offset 8")


def free_missing_pd(queue):
    """Frees protection domain 77, which does not exist; returns (status, syndrome)."""
    raise Todo("execute FREE_PD with number 77, and return status and syndrome")
