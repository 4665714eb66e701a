# Lab 9: many connections. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct       # pylint: disable=unused-import  # for your code

from lab import Todo

RDMA_WRITE, SIGNALED = 0x04, 1  # opcode and flag of a WQE


def misses(trace, entries, cache=()):
    """Returns the number of misses in a cache for this number of entries.

    trace: the numbers of the queue pairs whose contexts the device needs, in order.
    cache: the numbers in the cache before, least recently used first.
    """
    raise Todo("keep a list of the numbers in the cache; a use moves a number to the end, and a miss may remove the first one")


def trace_of(connections):
    """Returns the contexts that one message on each of these connections needs, in order."""
    raise Todo("return the numbers of left, right and left for each connection")


def count_fetches(machine, connections):
    """Sends one message on each of these connections, and returns the numbers of fetches and of write-backs on the bus."""
    raise Todo('call mark(), send() of each connection, and count the transactions whose key use is "context"')


def smallest_cache(connections):
    """Returns the number of contexts that the cache must hold, so that messages to this number of connections cause no miss."""
    raise Todo("predict it by your model")


def least_time(count, latency):
    """Returns the seconds that this number of misses takes at least. latency is in nanoseconds."""
    raise Todo("each miss waits for the latency; the device fetches one context at a time")


def grouped(messages):
    """Returns the messages in an order with few misses. A message has the members connection and text; the messages of one connection keep their order."""
    raise Todo("find an order in which each connection needs its contexts only once")


def join(qp, peer, carrier, address):
    """Connects queue pair qp to queue pair number peer, as a member of a carrier."""
    raise Todo("call qp.modify() three times: to INIT, RTR and RTS")


def dynamic_wqe(index, address, target, access_key, write, data):
    """Returns an RDMA write of a dynamic initiator. address is an address vector, 32 bytes; write is (address, rkey), data is (address, length, lkey)."""
    raise Todo("return the control segment, the address segment, the segment of the remote address and the data segment")


class Pool:
    """Several initiators. pick() chooses one for each message."""

    def __init__(self, initiators):
        self.idle = list(initiators)    # longest idle first
        self.target = {}                # of each initiator, the last one

    def pick(self, target):
        """Returns the initiator that sends the next message to this target."""
        raise Todo("choose an initiator with this target, otherwise the initiator that has been idle longest; then update both members")
