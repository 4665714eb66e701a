# Lab 5: translate an address by hand. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

from lab import Todo

LIST_SHIFT, LIST_ENTRIES = 9, 512               # a page list has 512 addresses of 8 bytes
PAGE_SIZE = 4096
LOCAL_READ, LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 0, 1, 2, 4         # rights
SYN_NONE, SYN_KEY_INVALID, SYN_KEY_RANGE, SYN_KEY_ACCESS = 0, 1, 3, 4   # syndromes

# A region has the members pd, access, variant, start, length, root, levels, page_shift and offset; README.md explains them.


def page_of(region, address):
    """Returns (number of the page in the region, byte in the page) of an address."""
    raise Todo("compute the place from the first byte of the first page on, and divide by the page size")


def entry(machine, page_list, number):
    """Returns an address in a page list."""
    raise Todo("read 8 bytes, a le64, at entry number of the list")


def translate(machine, region, address):
    """Returns the bus address of an address. The region has 1 or 2 levels."""
    raise Todo("find the list of the page, read the address of the page from the list, and add the byte")


def pieces(machine, region, address, length):
    """Returns [(bus address, length)] of a range, one piece for each page that the range touches."""
    raise Todo("divide the range at the ends of its pages, and translate the first address of each piece")


def build_table(machine, pages):
    """Writes page lists of two levels for pages of 4096 bytes. Returns the address of the upper list."""
    raise Todo("allocate an upper list and a lower list for each 512 pages, 4096 bytes each and aligned to 4096, and fill the lists")


def check_key(table, pd, key, address, length, right):
    """Returns the syndrome of an access by a queue pair of protection domain pd. table is {index: region}."""
    raise Todo("check in the order of the text; the first check that fails determines the syndrome")
