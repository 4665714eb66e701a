# Lab 10: bulk against latency. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
from lab import Todo

RATE = 100e9                    # bits per second of each link
DELAY = 1e-6                    # seconds, of each link
FRAME = 4178                    # bytes of a full packet on the wire
PORT_QUEUE = 16384              # bytes at the port of a node at which it stops to send
WEIGHTED_LEVELS, LIMIT_OTHERS = 8, 16   # levels 0 to 7 are weighted; one of 16 slots goes to a level below a strict one


def seconds(size):
    """Returns the time in which a link sends this number of bytes."""
    raise Todo("divide the bits by the rate")


def short_flow(sender, receiver, **more):
    """Returns a flow of short messages with pauses. more are other keys of the flow."""
    return dict({"name": "short", "from": sender, "to": receiver, "size": "64 B", "depth": 1, "pause": "20 us"}, **more)


def bulk_flow(name, sender, receiver, **more):
    """Returns a flow of large messages."""
    return dict({"name": name, "from": sender, "to": receiver, "size": "1 MiB", "depth": 2}, **more)


def scenario(flows, priority):
    """Returns a scenario: node 0 sends this number of bulk flows and a short flow with this priority to node 1."""
    raise Todo("return a map as in lab 8, with bulk_flow() and short_flow() in the list of flows")


def round_robin(flows):
    """Returns the latency of a short message beside this number of bulk flows, 1 or more."""
    raise Todo("add the time of a packet for each bulk flow to the result of strict(), which you write first")


def strict():
    """Returns the latency of a short message with a strict priority beside bulk flows."""
    raise Todo("add both delays, the bytes at the port, and half a packet")


def shares(priorities):
    """Returns the shares of bulk flows with these priorities, different and not 0, in the same order. At most one level is strict."""
    raise Todo("first only weighted levels: level n, the priority minus 1, has 2 ** n slots")


def switch(traffic_class, priority):
    """Returns a scenario: nodes 0 and 1 send bulk flows by a switch to node 3, and node 2 a short flow."""
    raise Todo("return a map with 4 nodes and the topology star")


def largest_limit(senders, part):
    """Returns the rate limit of each of these bulk senders, so that together they use at most this part of the receiver's link."""
    raise Todo("divide the part of the rate by the number of senders")


def limited(limit):
    """Returns the scenario of switch() without class and priority, but with a rate limit of the bulk flows, and a burst of 4 KiB."""
    raise Todo("change the bulk flows of switch(0, 0)")
