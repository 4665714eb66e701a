# Lab 10: bulk against latency. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later

RATE = 100e9                    # bits per second of each link
DELAY = 1e-6                    # seconds, of each link
FRAME = 4178                    # bytes of a full packet on the wire
PORT_QUEUE = 16384              # bytes at the port of a node at which it stops to send
WEIGHTED_LEVELS, LIMIT_OTHERS = 8, 16   # levels 0 to 7 are weighted; one of 16 slots goes to a level below a strict one


def seconds(size):
    """Returns the time in which a link sends this number of bytes."""
    return 8 * size / RATE


def short_flow(sender, receiver, **more):
    """Returns a flow of short messages with pauses. more are other keys of the flow."""
    return dict({"name": "short", "from": sender, "to": receiver, "size": "64 B", "depth": 1, "pause": "20 us"}, **more)


def bulk_flow(name, sender, receiver, **more):
    """Returns a flow of large messages."""
    return dict({"name": name, "from": sender, "to": receiver, "size": "1 MiB", "depth": 2}, **more)


def scenario(flows, priority):
    """Returns a scenario: node 0 sends this number of bulk flows and a short flow with this priority to node 1."""
    return {
        "title": "Bulk against latency",
        "nodes": 2,
        "topology": "pair",
        "edge": {"rate": "100 Gb/s", "delay": "1 us"},
        "flows": [*(bulk_flow(f"bulk-{number}", 0, 1) for number in range(flows)), short_flow(0, 1, priority=priority)],
        "until": "1 ms",
    }


def round_robin(flows):
    """Returns the latency of a short message beside this number of bulk flows, 1 or more."""
    return strict() + flows * seconds(FRAME)


def strict():
    """Returns the latency of a short message with a strict priority beside bulk flows."""
    return 2 * DELAY + seconds(PORT_QUEUE) + seconds(FRAME) / 2


def shares(priorities):
    """Returns the shares of bulk flows with these priorities, different and not 0, in the same order. At most one level is strict."""
    levels = [priority - 1 for priority in priorities]
    top = max(levels)
    if top < WEIGHTED_LEVELS or len(levels) == 1:
        return [2 ** level / sum(2 ** one for one in levels) for level in levels]
    return [1 - 1 / LIMIT_OTHERS if level == top else 1 / LIMIT_OTHERS / (len(levels) - 1) for level in levels]


def switch(traffic_class, priority):
    """Returns a scenario: nodes 0 and 1 send bulk flows by a switch to node 3, and node 2 a short flow."""
    return {
        "title": "A queue in the switch",
        "nodes": 4,
        "topology": "star",
        "edge": {"rate": "100 Gb/s", "delay": "1 us"},
        "flows": [bulk_flow("bulk-0", 0, 3, size="64 KiB", depth=4), bulk_flow("bulk-1", 1, 3, size="64 KiB", depth=4),
                  short_flow(2, 3, **{"class": traffic_class, "priority": priority})],
        "until": "1 ms",
    }


def largest_limit(senders, part):
    """Returns the rate limit of each of these bulk senders, so that together they use at most this part of the receiver's link."""
    return part * RATE / senders


def limited(limit):
    """Returns the scenario of switch() without class and priority, but with a rate limit of the bulk flows, and a burst of 4 KiB."""
    made = switch(0, 0)
    for flow in made["flows"][:2]:
        flow.update(limit=limit, burst="4 KiB")
    return made
