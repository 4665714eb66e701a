# The stages of lab 1. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
from grade import expect
from lab import hw

MAC = "5254a1b2c3d4"            # of the device in this lab: six different bytes
SERR, INTERRUPT_DISABLE = 1 << 8, 1 << 10       # bits of COMMAND


def capabilities(machine):
    """Returns {number: offset} of the first capability of each kind, in the order of the list."""
    found, at = {}, machine.config_read(0x34, 1)
    while at:
        found.setdefault(machine.config_read(at, 1), at)
        at = machine.config_read(at + 1, 1)
    return found


def stage_1(machine, program):
    """Vendor, device and class."""
    got = program.identify(machine)
    expect(isinstance(got, tuple) and len(got) == 3, f"identify() returned {got!r}, and not a tuple of three numbers.")
    vendor, device, kind = got
    expect(vendor == hw.constant("PCI_VENDOR_ID"), f"The vendor ID is not {vendor!r}. This ID has 2 bytes, at offset 0x00.")
    expect(device == hw.constant("PCI_DEVICE_ID"), f"The device ID is not {device!r}. This ID has 2 bytes, at offset 0x02.")
    expect(kind != hw.constant("PCI_CLASS") >> 8, "The class code has 3 bytes: programming interface, subclass, base class. One is missing.")
    expect(kind == hw.constant("PCI_CLASS"), f"The class code is not {kind!r}. This code has 3 bytes from offset 0x09 on, the lowest byte first.")


def stage_2(machine, program):
    """The list of capabilities."""
    names = {0x11: "MSI-X", 0x10: "PCI Express", 0x01: "power management"}
    for number, want in sorted(capabilities(machine).items(), key=lambda one: one[0] != 0x11):
        got = program.find_capability(machine, number)
        expect(got == want, f"find_capability() returned {got!r} for capability {number:#x} ({names.get(number, 'another one')}). The list begins at the offset that offset "
                            "0x34 contains; byte 0 of a capability is its number, byte 1 the offset of the next one.")
    got = program.find_capability(machine, 0x7f)
    expect(got == 0, f"find_capability() returned {got!r} for capability 0x7f, which the device does not have. An offset of 0 ends the list.")


def stage_3(machine, program):
    """The size of a BAR."""
    # Only the flags of BAR 2 differ from 0.
    machine.config_write(0x18, 0xffffffff)
    doorbells = (1 << 32) - (machine.config_read(0x18) & ~0xf)
    for bar, want in ((0, hw.constant("BAR_CONTROL_SIZE")), (1, hw.constant("BAR_MSIX_SIZE")), (2, doorbells)):
        machine.config_write(0x10 + 4 * bar, 0xfe000000 + (bar << 20))
        before = machine.config_read(0x10 + 4 * bar)
        got = program.bar_size(machine, bar)
        expect(got == want, f"bar_size() returned {got!r} for BAR {bar}. Write all ones, read the BAR, clear the low 4 bits: the bits that "
                            "remain 0 are those of an offset in the BAR.")
        expect(machine.config_read(0x10 + 4 * bar) == before, f"BAR {bar} does not have its old value after bar_size().")


def stage_4(machine, program):
    """Memory space and register ID."""
    machine.config_write(4, SERR | INTERRUPT_DISABLE, 2)
    before = machine.config_read(4, 2)
    machine.accesses.clear()
    got = program.open_device(machine)
    wide = [one for one in machine.accesses if one.kind == "config-write" and one.offset == 4 and one.size > 2]
    expect(not wide, "open_device() writes 4 bytes to COMMAND. The upper two are the register STATUS, whose error bits a write clears: write 2 bytes.")
    command = machine.config_read(4, 2)
    expect(command & 2, "Bit 1 of COMMAND is 0, so the device does not decode addresses of its BARs.")
    expect(not command & 4, "Bus mastering is on. Until the device is reset it may write to memory for its previous owner (chapter PCI, section Reset).")
    expect(command == before | 2, f"COMMAND was {before:#06x} and is {command:#06x}: keep its other bits. Read COMMAND, set the bit, write the result.")
    expect(got != 0xffffffff, "The read returned all ones: memory space was not enabled yet, so no device decoded the address.")
    expect(got == hw.constant("ID_MAGIC"), f"open_device() returned {got!r}. ID is the 32-bit register at offset 0 of BAR 0.")


def stage_5(machine, program):
    """The MAC address."""
    machine.config_write(4, 2, 2)
    got, want = program.mac_address(machine), bytes.fromhex(MAC)
    expect(isinstance(got, (bytes, bytearray)) and len(got) == 6, f"mac_address() returned {got!r}, and not 6 bytes.")
    expect(got != want[3::-1] + want[:3:-1], "The bytes are in the wrong order: byte 0 is bits 7:0 of MAC_LO.")
    expect(got == want, f"The address is not {got.hex(':')}. MAC_LO has bytes 0 to 3, the low half of MAC_HI bytes 4 and 5.")
    expect(not machine.guest_errors(), "The device saw an access that its registers do not allow.")
