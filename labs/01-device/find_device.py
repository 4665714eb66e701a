# Lab 1: find the device. The text is README.md. The machine has the methods config_read(), config_write(), bar_read() and
# bar_write(); the text explains them.
# SPDX-License-Identifier: GPL-2.0-or-later
from lab import Todo

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
    raise Todo("read the vendor ID, the device ID and the 3 bytes of the class code; return the three numbers")


def find_capability(machine, number):
    """Returns the offset of the capability with this number, or 0 if the device does not have it."""
    raise Todo("start at the offset that the byte CAPABILITIES contains, and follow the list until the number is found or the offset is 0")


def bar_size(machine, bar):
    """Returns the size of a memory BAR in bytes; a register of 32 bits has enough bits of each BAR here. The BAR keeps its value."""
    raise Todo("write 0xffffffff to the BAR, read it, restore it; derive the size from the bits that stayed 0")


def open_device(machine):
    """Enables memory space, not bus mastering. Returns the value of register ID."""
    raise Todo("set MEMORY_SPACE_ENABLE in COMMAND, then read register REG_ID of BAR 0")


def mac_address(machine):
    """Returns the MAC address as 6 bytes. Memory space is enabled."""
    raise Todo("read REG_MAC_LO and REG_MAC_HI of BAR 0, and return 6 bytes")
