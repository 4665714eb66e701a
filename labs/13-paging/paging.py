# Lab 13: paging on demand. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import collections
import struct

from lab import Todo

PAGE_SIZE = 4096
PRESENT, WRITABLE = 1, 2                        # low bits of an entry of the page list
QUERY_PAGE_FAULT, RESUME_PAGE_FAULT, REFUSE_PAGE_FAULT = 0x48, 0x49, 0x4a       # opcodes of commands
OK = 0                                          # status of a command
WRITE = 1                                       # flag of a page fault: the device writes to the page
ACK, RNR_NAK = 0x00, 0x20                       # syndromes; bits 4:0 of an ACK are credits, here 0, and those of an RNR NAK the timer code

Fault = collections.namedtuple("Fault", "key write address length sequence")
Cost = collections.namedtuple("Cost", "lists events commands")


class Pager:
    """Pages in the pages of a region.

    region      key (index of the key), start (address of the first byte), page_list (bus address of the list)
    store       fetch(number) loads a page of the region into memory and returns its bus address, or None if there is no such page;
                writable(number) returns true if the program may write to the page
    command     command(opcode, object, data) executes a command, and returns (status, output)
    """

    def __init__(self, machine, region, store, command):
        self.machine, self.region, self.store, self.command = machine, region, store, command

    def query(self, number):
        """Returns the Fault of a page fault, or None if no access waits."""
        raise Todo("execute QUERY_PAGE_FAULT of this number; return None if the status is not OK, else unpack the output")

    def page_in(self, address, length, write):
        """Makes all pages of a range present. Returns False if a page does not exist, or if the access writes and may not."""
        raise Todo("for each page that the range touches: fetch it, and store its address and flags in its entry by one write of 8 bytes")

    def handle(self, number):
        """Handles the event of a page fault."""
        raise Todo("query the page fault, page in its range, then RESUME_PAGE_FAULT, or REFUSE_PAGE_FAULT if there is no such page, with the sequence")

    def prefetch(self, address, length, write):
        """Makes all pages of a range present before the device needs them."""
        raise Todo("change the page list before the access; which commands does this need?")


def cost(machine):
    """Returns the Cost of the transactions since machine.mark()."""
    raise Todo("count reads of page lists, EQEs, and commands in machine.transactions()")


def predict_cost(pages, together):
    """Returns (page faults, commands) of one message that needs this number of absent pages.

    together is true if the handler pages in the whole range, and false if it pages in one page for each page fault.
    """
    raise Todo("compute the numbers of page faults and of commands")


def predict_answers(psn, pages, present, timer):
    """Returns [(psn, syndrome)], the answers of the device to RDMA writes of 8 bytes, one to each page in the list pages.

    The first write has this PSN, and each has AckReq. The pages of the set present are present and writable. timer is
    min_rnr_timer of the queue pair.
    """
    raise Todo("an ACK for each page that is present; think about the first absent page, and about the packets behind it")
