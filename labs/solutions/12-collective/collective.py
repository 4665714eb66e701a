# Lab 12: a collective exchange. The text is README.md.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

SLOTS, SLOT = 8, 32             # slots of a FIFO, and bytes of a slot


def entry(address, rkey, size, index):
    """Returns an entry of the FIFO, 32 bytes. The index is the last member."""
    return struct.pack("<QIIQQ", address, rkey, size, 0, index)


class Receiver:
    """The receiving end of a connection. fifo is the address of the FIFO in the memory of the sender, fifo_key its rkey."""

    def __init__(self, rank, qp, fifo, fifo_key):
        self.rank, self.qp, self.fifo, self.fifo_key = rank, qp, fifo, fifo_key
        self.index = 0                                  # of the last credit
        self.staging = rank.alloc(SLOTS * SLOT)         # entries that the device reads

    def post(self, address, size):
        """Posts a buffer: a receive WQE for the immediate, and then a credit, which is an entry in the FIFO of the sender."""
        self.qp.post_receive()
        place = SLOT * (self.index % SLOTS)
        self.index += 1
        self.rank.write(self.staging + place, entry(address, self.rank.key, size, self.index))
        self.qp.write(self.staging + place, SLOT, self.fifo + place, self.fifo_key)

    def done(self):
        """Returns the size of the next message that has arrived, or None."""
        return self.qp.received()


class Sender:
    """The sending end of a connection. fifo is the address of its FIFO in its own memory."""

    def __init__(self, rank, qp, fifo):
        self.rank, self.qp, self.fifo = rank, qp, fifo
        self.index = 0                                  # of the last credit that was used

    def credit(self):
        """Returns address, rkey and size of the next buffer of the receiver, or None if there is no credit yet."""
        raw = self.rank.read(self.fifo + SLOT * (self.index % SLOTS), SLOT)
        address, rkey, size, _, index = struct.unpack("<QIIQQ", raw)
        return (address, rkey, size) if index == self.index + 1 else None

    def send(self, address, size):
        """Sends a message, if there is a credit: writes the data, then writes with an immediate, which is the size. Returns true if it was sent."""
        found = self.credit()
        if not found:
            return False
        self.index += 1
        target, rkey, room = found
        size = min(size, room)
        self.qp.write(address, size, target, rkey)
        self.qp.write_imm(0, 0, target, rkey, size)
        return True


def exchange(ranks, sends, receives):
    """One step of a ring: rank n sends the range sends[n], (address, size), to the next rank, and receives into the range receives[n]."""
    for rank, (address, size) in zip(ranks, receives):
        rank.receiver.post(address, size)
    for rank, (address, size) in zip(ranks, sends):
        rank.wait_until(lambda rank=rank, address=address, size=size: rank.sender.send(address, size), "no credit arrives")
    for rank in ranks:
        rank.wait_until(rank.receiver.done, "no message arrives")


def circulate(ranks, chunk, first):
    """Sends complete chunks around the ring. Rank n has the complete chunk n + first at the beginning, and all chunks at the end."""
    count = len(ranks)
    for step in range(count - 1):
        exchange(ranks, [(rank.buffer + chunk * ((rank.number + first - step) % count), chunk) for rank in ranks],
                 [(rank.buffer + chunk * ((rank.number + first - step - 1) % count), chunk) for rank in ranks])


def all_gather(ranks, chunk):
    """Rank n has chunk n of its buffer, chunk bytes, at the beginning. At the end each rank has all chunks."""
    circulate(ranks, chunk, 0)


def add(rank, target, source, size):
    """Adds the numbers of 8 bytes at source to those at target."""
    one, two = (struct.unpack(f"<{size // 8}Q", rank.read(address, size)) for address in (target, source))
    rank.write(target, struct.pack(f"<{size // 8}Q", *(first + second for first, second in zip(one, two))))


def all_reduce(ranks, chunk):
    """Each rank has numbers in all chunks at the beginning. At the end each rank has the sums over all ranks. rank.scratch is memory for one chunk."""
    count = len(ranks)
    for step in range(count - 1):
        exchange(ranks, [(rank.buffer + chunk * ((rank.number - step) % count), chunk) for rank in ranks], [(rank.scratch, chunk) for rank in ranks])
        for rank in ranks:
            add(rank, rank.buffer + chunk * ((rank.number - step - 1) % count), rank.scratch, chunk)
    circulate(ranks, chunk, 1)


def traffic(count, chunk):
    """Returns the bytes of data that each of count ranks sends in all_gather() and in all_reduce()."""
    return (count - 1) * chunk, 2 * (count - 1) * chunk


def send_wrong(qps, credit, address, size):
    """Sends data on the first queue pair, and the immediate on the second one. This is wrong."""
    target, rkey, _ = credit
    qps[0].write(address, size, target, rkey)
    qps[1].write_imm(0, 0, target, rkey, size)


def send_split(qps, credit, address, size):
    """Sends one half of the data on each of two queue pairs. The size is even."""
    target, rkey, _ = credit
    half = size // 2
    for number, qp in enumerate(qps):
        qp.write(address + half * number, half, target + half * number, rkey)
        qp.write_imm(0, 0, target, rkey, half)


class SplitReceiver:
    """Receives one message that send_split() sent. A receive WQE is posted on each queue pair."""

    def __init__(self, qps):
        self.qps = qps
        self.sizes = {}                                 # of each queue pair whose immediate has arrived

    def done(self):
        """Returns the size of the message if all of its data has arrived, otherwise None."""
        for number, qp in enumerate(self.qps):
            size = qp.received()
            if size is not None:
                self.sizes[number] = size
        return sum(self.sizes.values()) if len(self.sizes) == len(self.qps) else None
