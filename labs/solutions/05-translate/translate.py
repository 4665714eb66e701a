# Lab 5: translate an address by hand. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

LIST_SHIFT, LIST_ENTRIES = 9, 512               # a page list has 512 addresses of 8 bytes
PAGE_SIZE = 4096
LOCAL_READ, LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 0, 1, 2, 4         # rights
SYN_NONE, SYN_KEY_INVALID, SYN_KEY_RANGE, SYN_KEY_ACCESS = 0, 1, 3, 4   # syndromes

# A region has the members pd, access, variant, start, length, root, levels, page_shift and offset; README.md explains them.


def page_of(region, address):
    """Returns (number of the page in the region, byte in the page) of an address."""
    place = region.offset + address - region.start
    return place >> region.page_shift, place & ((1 << region.page_shift) - 1)


def entry(machine, page_list, number):
    """Returns an address in a page list."""
    return struct.unpack("<Q", machine.mem_read(page_list + 8 * number, 8))[0]


def translate(machine, region, address):
    """Returns the bus address of an address. The region has 1 or 2 levels."""
    number, byte = page_of(region, address)
    page_list = region.root
    if region.levels == 2:
        page_list = entry(machine, region.root, number >> LIST_SHIFT)
        number &= LIST_ENTRIES - 1
    return entry(machine, page_list, number) + byte


def pieces(machine, region, address, length):
    """Returns [(bus address, length)] of a range, one piece for each page that the range touches."""
    found = []
    while length:
        _, byte = page_of(region, address)
        size = min(length, (1 << region.page_shift) - byte)
        found.append((translate(machine, region, address), size))
        address, length = address + size, length - size
    return found


def build_table(machine, pages):
    """Writes page lists of two levels for pages of 4096 bytes. Returns the address of the upper list."""
    root = machine.mem_alloc(PAGE_SIZE, PAGE_SIZE)
    for number in range(0, len(pages), LIST_ENTRIES):
        part = pages[number:number + LIST_ENTRIES]
        lower = machine.mem_alloc(PAGE_SIZE, PAGE_SIZE)
        machine.mem_write(lower, struct.pack(f"<{len(part)}Q", *part))
        machine.mem_write(root + 8 * (number // LIST_ENTRIES), struct.pack("<Q", lower))
    return root


def check_key(table, pd, key, address, length, right):
    """Returns the syndrome of an access by a queue pair of protection domain pd. table is {index: region}."""
    region = table.get(key >> 8)
    if region is None or key & 0xff != region.variant or region.pd != pd:
        return SYN_KEY_INVALID
    if address < region.start or address + length > region.start + region.length:
        return SYN_KEY_RANGE
    if right & ~region.access:
        return SYN_KEY_ACCESS
    return SYN_NONE
