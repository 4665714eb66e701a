# Lab 2: the command queue by hand. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

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
    machine.config_write(COMMAND, MEMORY_SPACE_ENABLE, 2)
    machine.bar_write(0, REG_CONTROL, RESET)
    machine.wait_until(lambda: machine.bar_read(0, REG_STATUS) & READY, "READY is 1")
    machine.config_write(COMMAND, MEMORY_SPACE_ENABLE | BUS_MASTER_ENABLE, 2)


class CommandQueue:
    """A ring of 8 entries, after reset()."""

    LOG_SIZE = 3

    def __init__(self, machine):
        self.machine = machine
        self.producer = 0
        self.ring = machine.mem_alloc(ENTRY_SIZE << self.LOG_SIZE, 64)
        machine.bar_write(0, REG_CMD_BASE_LO, self.ring & 0xffffffff)
        machine.bar_write(0, REG_CMD_BASE_HI, self.ring >> 32)
        machine.bar_write(0, REG_CMD_SIZE, self.LOG_SIZE)
        machine.bar_write(0, REG_CONTROL, CMD_ENABLE)

    def execute(self, opcode, number=0, out=0, out_len=0):
        """Executes a command without input; returns (status, result, syndrome)."""
        place = self.ring + ENTRY_SIZE * (self.producer % (1 << self.LOG_SIZE))
        entry = struct.pack("<HHIQQIIQQIIII", opcode, 0, number, 0, out, 0, out_len, 0, 0, 0, 0, 0, OWNER)
        self.machine.mem_write(place, entry)
        self.producer += 1
        self.machine.bar_write(0, REG_CMD_DOORBELL, self.producer)

        def done():
            control = struct.unpack("<I", self.machine.mem_read(place + 60, 4))[0]
            return not control & OWNER
        self.machine.wait_until(done, "the owner bit of the entry is 0")
        result, syndrome, _, control = struct.unpack("<IIII", self.machine.mem_read(place + 48, 16))
        return control & 0xff, result, syndrome


def max_qp(machine, queue):
    """Returns the largest number of queue pairs, by QUERY_DEVICE."""
    out = machine.mem_alloc(128)
    queue.execute(QUERY_DEVICE, out=out, out_len=128)
    return struct.unpack("<I", machine.mem_read(out + 8, 4))[0]


def free_missing_pd(queue):
    """Frees protection domain 77, which does not exist; returns (status, syndrome)."""
    status, _, syndrome = queue.execute(FREE_PD, 77)
    return status, syndrome
