# Lab 12: a collective exchange. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

from lab import Todo

SLOTS, SLOT = 8, 32             # slots of a FIFO, and bytes of a slot


def entry(address, rkey, size, index):
    """Returns an entry of the FIFO, 32 bytes. The index is the last member."""
    raise Todo("pack the members of the table with struct.pack()")


class Receiver:
    """The receiving end of a connection. fifo is the address of the FIFO in the memory of the sender, fifo_key its rkey."""

    def __init__(self, rank, qp, fifo, fifo_key):
        self.rank, self.qp, self.fifo, self.fifo_key = rank, qp, fifo, fifo_key
        self.index = 0                                  # of the last credit
        self.staging = rank.alloc(SLOTS * SLOT)         # entries that the device reads

    def post(self, address, size):
        """Posts a buffer: a receive WQE for the immediate, and then a credit, which is an entry in the FIFO of the sender."""
        raise Todo("call qp.post_receive(), increase the index, write the entry into the staging memory, and write its slot to the FIFO by qp.write()")

    def done(self):
        """Returns the size of the next message that has arrived, or None."""
        raise Todo("return the next immediate: qp.received()")


class Sender:
    """The sending end of a connection. fifo is the address of its FIFO in its own memory."""

    def __init__(self, rank, qp, fifo):
        self.rank, self.qp, self.fifo = rank, qp, fifo
        self.index = 0                                  # of the last credit that was used

    def credit(self):
        """Returns address, rkey and size of the next buffer of the receiver, or None if there is no credit yet."""
        raise Todo("read the slot of the next index from the FIFO; the entry is valid if its index is the next one")

    def send(self, address, size):
        """Sends a message, if there is a credit: writes the data, then writes with an immediate, which is the size. Returns true if it was sent."""
        raise Todo("find the credit, then call qp.write() and qp.write_imm(); without a credit return False")


def all_gather(ranks, chunk):
    """Rank n has chunk n of its buffer, chunk bytes, at the beginning. At the end each rank has all chunks."""
    raise Todo("in each of the steps: all ranks post a buffer, then all send, then all wait for a message")


def add(rank, target, source, size):
    """Adds the numbers of 8 bytes at source to those at target."""
    one, two = (struct.unpack(f"<{size // 8}Q", rank.read(address, size)) for address in (target, source))
    rank.write(target, struct.pack(f"<{size // 8}Q", *(first + second for first, second in zip(one, two))))


def all_reduce(ranks, chunk):
    """Each rank has numbers in all chunks at the beginning. At the end each rank has the sums over all ranks. rank.scratch is memory for one chunk."""
    raise Todo("first a ring in which each rank receives into scratch and adds, then a ring as in all_gather() that begins with chunk n + 1")


def traffic(count, chunk):
    """Returns the bytes of data that each of count ranks sends in all_gather() and in all_reduce()."""
    raise Todo("count the steps")


def send_wrong(qps, credit, address, size):
    """Sends data on the first queue pair, and the immediate on the second one. This is wrong."""
    target, rkey, _ = credit
    qps[0].write(address, size, target, rkey)
    qps[1].write_imm(0, 0, target, rkey, size)


def send_split(qps, credit, address, size):
    """Sends one half of the data on each of two queue pairs. The size is even."""
    raise Todo("write one half on each queue pair, and let the receiver know of each half")


class SplitReceiver:
    """Receives one message that send_split() sent. A receive WQE is posted on each queue pair."""

    def __init__(self, qps):
        self.qps = qps
        self.sizes = {}                                 # of each queue pair whose immediate has arrived

    def done(self):
        """Returns the size of the message if all of its data has arrived, otherwise None."""
        raise Todo("poll both queue pairs by received(), and remember the results")
