# Lab 9: many connections. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

RDMA_WRITE, SIGNALED = 0x04, 1  # opcode and flag of a WQE


def misses(trace, entries, cache=()):
    """Returns the number of misses in a cache for this number of entries.

    trace: the numbers of the queue pairs whose contexts the device needs, in order.
    cache: the numbers in the cache before, least recently used first.
    """
    cache, count = list(cache), 0
    for number in trace:
        if number in cache:
            cache.remove(number)
        else:
            count += 1
            if len(cache) == entries:
                del cache[0]
        cache.append(number)
    return count


def trace_of(connections):
    """Returns the contexts that one message on each of these connections needs, in order."""
    return [number for connection in connections for number in (connection.left.number, connection.right.number, connection.left.number)]


def count_fetches(machine, connections):
    """Sends one message on each of these connections, and returns the numbers of fetches and of write-backs on the bus."""
    machine.mark()
    for connection in connections:
        connection.send()
    found = [one.kind for one in machine.transactions() if one.keys.get("use") == "context"]
    return found.count("read"), found.count("write")


def smallest_cache(connections):
    """Returns the number of contexts that the cache must hold, so that messages to this number of connections cause no miss."""
    return 2 * connections


def least_time(count, latency):
    """Returns the seconds that this number of misses takes at least. latency is in nanoseconds."""
    return count * latency * 1e-9


def grouped(messages):
    """Returns the messages in an order with few misses. A message has the members connection and text; the messages of one connection keep their order."""
    order = {}
    for message in messages:
        order.setdefault(message.connection, []).append(message)
    return [message for group in order.values() for message in group]


def join(qp, peer, carrier, address):
    """Connects queue pair qp to queue pair number peer, as a member of a carrier."""
    qp.modify(["PKEY_INDEX", "PORT", "ACCESS_FLAGS"], state="INIT", port=1, access=["REMOTE_WRITE"])
    qp.modify(["AV", "PATH_MTU", "DEST_QPN", "RQ_PSN", "MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER", "CARRIER"], state="RTR", av=address, path_mtu="1024",
              dest_qpn=peer, rq_psn=0, max_dest_rd_atomic=1, min_rnr_timer=1, carrier=carrier)
    qp.modify(["SQ_PSN", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "MAX_RD_ATOMIC"], state="RTS", sq_psn=0, timeout=0, retry_cnt=7, rnr_retry=7, max_rd_atomic=1)


def dynamic_wqe(index, address, target, access_key, write, data):
    """Returns an RDMA write of a dynamic initiator. address is an address vector, 32 bytes; write is (address, rkey), data is (address, length, lkey)."""
    return struct.pack("<IIII", RDMA_WRITE | SIGNALED << 8 | 6 << 16, index, 0, 0) + address + struct.pack("<IIQ", target, 0, access_key) + \
        struct.pack("<QII", *write, 0) + struct.pack("<QII", *data)


class Pool:
    """Several initiators. pick() chooses one for each message."""

    def __init__(self, initiators):
        self.idle = list(initiators)    # longest idle first
        self.target = {}                # of each initiator, the last one

    def pick(self, target):
        """Returns the initiator that sends the next message to this target."""
        chosen = next((one for one in self.idle if self.target.get(one) == target), self.idle[0])
        self.idle.remove(chosen)
        self.idle.append(chosen)
        self.target[chosen] = target
        return chosen
