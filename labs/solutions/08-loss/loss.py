# Lab 8: loss and reordering. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later

RATE = 100e9                    # bits per second
DELAY = 20e-6                   # seconds, in each direction
FRAME = 4178                    # bytes of a packet on the wire: 4096 of data, 58 of headers and checksums, 24 of the link
TIMEOUT = 4.096e-6 * 2 ** 8     # seconds: timeout 8 of the queue pair


def packets_in(seconds, rate=RATE, frame=FRAME):
    """Returns how many packets the link sends in this time."""
    return seconds * rate / (8 * frame)


def window(delay):
    """Returns how many packets are in flight: those that the link sends in a round trip."""
    return packets_in(2 * delay)


def selective_repeat(loss):
    """Returns the part of the rate that remains if only lost packets are retransmitted."""
    return 1 / (1 + loss)


def go_back_n(loss, in_flight):
    """Returns the part of the rate that remains if each loss makes the sender retransmit all packets in flight."""
    return 1 / (1 + loss * in_flight)


def go_back_n_with_timer(loss, in_flight, timer):
    """Returns the same; timer is the timeout in packets."""
    return 1 / (1 + loss * in_flight + 2 * loss * loss * timer)


def scenario(loss, selective):
    """Returns a scenario of the simulator: two nodes, one link that loses packets, one flow."""
    return {
        "title": "Loss",
        "nodes": 2,
        "topology": "pair",
        "edge": {"rate": "100 Gb/s", "delay": "20 us", "loss": f"{100 * loss} %"},
        "flows": [{"name": "flow", "from": 0, "to": 1, "size": "64 KiB", "depth": 64, "timeout": 8, "selective_repeat": selective}],
        "until": "20 ms",
    }


def largest_loss(part, in_flight, timer):
    """Returns the loss at which go-back-N still has this part of the rate."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if go_back_n_with_timer(middle, in_flight, timer) >= part:
            low = middle
        else:
            high = middle
    return low


def paths(mode, adaptive):
    """Returns a scenario without loss: two switches with four paths between them. mode is hash or spray."""
    return {
        "title": "Paths",
        "nodes": 4,
        "topology": {"leaf-spine": 4},
        "network": {"paths": mode},
        "flows": [{"name": "flow", "from": [0, 1], "to": "+2", "size": "64 KiB", "depth": 16, "adaptive_routing": adaptive}],
        "until": "2 ms",
    }
