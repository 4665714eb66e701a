# Lab 13: paging on demand. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import collections
import struct

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
        status, output = self.command(QUERY_PAGE_FAULT, number)
        if status != OK:
            return None
        key, flags, address, length, sequence, _ = struct.unpack("<IIQQII", output[:32])
        return Fault(key, bool(flags & WRITE), address, length, sequence)

    def page_in(self, address, length, write):
        """Makes all pages of a range present. Returns False if a page does not exist, or if the access writes and may not."""
        first = (address - self.region.start) // PAGE_SIZE
        last = (address + length - 1 - self.region.start) // PAGE_SIZE
        for number in range(first, last + 1):
            place = self.store.fetch(number)
            if place is None or (write and not self.store.writable(number)):
                return False
            entry = place | PRESENT | (WRITABLE if self.store.writable(number) else 0)
            self.machine.mem_write(self.region.page_list + 8 * number, struct.pack("<Q", entry))
        return True

    def handle(self, number):
        """Handles the event of a page fault."""
        fault = self.query(number)
        if fault is None:
            return
        answer = RESUME_PAGE_FAULT if self.page_in(fault.address, fault.length, fault.write) else REFUSE_PAGE_FAULT
        self.command(answer, number, struct.pack("<II", fault.sequence, 0))

    def prefetch(self, address, length, write):
        """Makes all pages of a range present before the device needs them."""
        self.page_in(address, length, write)


def cost(machine):
    """Returns the Cost of the transactions since machine.mark()."""
    found = machine.transactions()

    def count(kind, use, size):
        return sum(one.kind == kind and one.keys.get("use") == use and len(one.data) == size for one in found)
    return Cost(lists=count("read", "page-list", 0), events=count("write", "eqe", 4), commands=count("read", "command", 0))


def predict_cost(pages, together):
    """Returns (page faults, commands) of one message that needs this number of absent pages.

    together is true if the handler pages in the whole range, and false if it pages in one page for each page fault.
    """
    faults = 1 if together else pages
    return faults, 2 * faults


def predict_answers(psn, pages, present, timer):
    """Returns [(psn, syndrome)], the answers of the device to RDMA writes of 8 bytes, one to each page in the list pages.

    The first write has this PSN, and each has AckReq. The pages of the set present are present and writable. timer is
    min_rnr_timer of the queue pair.
    """
    answers = []
    for page in pages:
        if page not in present:
            answers.append((psn, RNR_NAK | (timer if timer == 0 or timer > 13 else 13)))
            break
        answers.append((psn, ACK))
        psn = (psn + 1) & 0xffffff
    return answers
