# Lab 8: loss and reordering. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
from lab import Todo

RATE = 100e9                    # bits per second
DELAY = 20e-6                   # seconds, in each direction
FRAME = 4178                    # bytes of a packet on the wire: 4096 of data, 58 of headers and checksums, 24 of the link
TIMEOUT = 4.096e-6 * 2 ** 8     # seconds: timeout 8 of the queue pair


def packets_in(seconds, rate=RATE, frame=FRAME):
    """Returns how many packets the link sends in this time."""
    raise Todo("compute how many frames the link sends in this time; the rate counts bits")


def window(delay):
    """Returns how many packets are in flight: those that the link sends in a round trip."""
    raise Todo("use packets_in(); a round trip is twice the delay")


def selective_repeat(loss):
    """Returns the part of the rate that remains if only lost packets are retransmitted."""
    raise Todo("each packet is sent 1 + loss times on average")


def go_back_n(loss, in_flight):
    """Returns the part of the rate that remains if each loss makes the sender retransmit all packets in flight."""
    raise Todo("each loss costs in_flight packets, and a packet is lost with the probability loss")


def go_back_n_with_timer(loss, in_flight, timer):
    """Returns the same; timer is the timeout in packets."""
    raise Todo("add to the cost of a packet: two timeouts for each loss, times the probability that the retransmission is lost, too")


def scenario(loss, selective):
    """Returns a scenario of the simulator: two nodes, one link that loses packets, one flow."""
    raise Todo("return a map with the keys title, nodes, topology, edge, flows and until")


def largest_loss(part, in_flight, timer):
    """Returns the loss at which go-back-N still has this part of the rate."""
    raise Todo("find the loss by bisection, or solve the equation")


def paths(mode, adaptive):
    """Returns a scenario without loss: two switches with four paths between them. mode is hash or spray."""
    raise Todo("return a map with the topology {leaf-spine: 4}, the key network, and a flow with adaptive_routing")
