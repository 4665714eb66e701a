# Lab 1: find the device. The text is README.md. The machine has the methods config_read(), config_write(), bar_read() and
# bar_write(); the text explains them.
# SPDX-License-Identifier: GPL-2.0-or-later

VENDOR_ID = 0x00        # offsets in configuration space, PCI Express Base Specification, 7.5.1
DEVICE_ID = 0x02
COMMAND = 0x04
CLASS_CODE = 0x09       # 3 bytes
BAR0 = 0x10
CAPABILITIES = 0x34     # offset of the first capability, 1 byte

MEMORY_SPACE_ENABLE = 1 << 1    # bits of COMMAND
BUS_MASTER_ENABLE = 1 << 2

REG_ID = 0x000          # offsets in BAR 0, chapter Registers of the manual
REG_MAC_LO = 0x040
REG_MAC_HI = 0x044


def identify(machine):
    """Returns (vendor ID, device ID, class code)."""
    class_code = sum(machine.config_read(CLASS_CODE + i, 1) << 8 * i for i in range(3))
    return machine.config_read(VENDOR_ID, 2), machine.config_read(DEVICE_ID, 2), class_code


def find_capability(machine, number):
    """Returns the offset of the capability with this number, or 0 if the device does not have it."""
    offset = machine.config_read(CAPABILITIES, 1)
    while offset:
        if machine.config_read(offset, 1) == number:
            return offset
        offset = machine.config_read(offset + 1, 1)
    return 0


def bar_size(machine, bar):
    """Returns the size of a memory BAR in bytes; a register of 32 bits has enough bits of each BAR here. The BAR keeps its value."""
    old = machine.config_read(BAR0 + 4 * bar)
    machine.config_write(BAR0 + 4 * bar, 0xffffffff)
    mask = machine.config_read(BAR0 + 4 * bar) & ~0xf
    machine.config_write(BAR0 + 4 * bar, old)
    return (1 << 32) - mask


def open_device(machine):
    """Enables memory space, not bus mastering. Returns the value of register ID."""
    machine.config_write(COMMAND, machine.config_read(COMMAND, 2) | MEMORY_SPACE_ENABLE, 2)
    return machine.bar_read(0, REG_ID)


def mac_address(machine):
    """Returns the MAC address as 6 bytes. Memory space is enabled."""
    low, high = machine.bar_read(0, REG_MAC_LO), machine.bar_read(0, REG_MAC_HI)
    return low.to_bytes(4, "little") + (high & 0xffff).to_bytes(2, "little")
