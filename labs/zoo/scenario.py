# A program that uses each part of the driver once. zoo.py calls run().
# SPDX-License-Identifier: GPL-2.0-or-later
"""A scenario: two queue pairs of one device send messages to each other."""

GID, MAC = bytes(10) + b"\xff\xff\x0a\x00\x00\x01", bytes.fromhex("525400000001")
TEXT = b"A buggy driver is a good teacher. "
IMM = 0x11223344


class Wrong(Exception):
    """Reports a result that differs from the expected one."""


def same(got, expected, text):
    if got != expected:
        shown = (repr(value[:32]) if isinstance(value, bytes) else f"{value:#x}" for value in (got, expected))
        raise Wrong("{}: {} in place of {}".format(text, *shown))


def success(done):
    """Checks the status of a completion, and returns the completion."""
    if done.status:
        raise Wrong(f"a completion of QP {done.qpn} has status {done.status:#x}, syndrome {done.syndrome:#x}")
    return done


def run(cpu, driver):
    """Runs the module driver on a machine. Raises an exception if something fails."""
    # An earlier owner ended without teardown, as in a crash: its command queue is enabled.
    driver.Driver(cpu)
    device = driver.Driver(cpu)
    device.set_address(GID, MAC)
    left_cq, right_cq = driver.CompletionQueue(device), driver.CompletionQueue(device)
    left = driver.QueuePair(device, left_cq, driver.MTU_1024, 0x100)
    right = driver.QueuePair(device, right_cq, driver.MTU_512, 0x200)
    source = driver.Region(device, 10000, driver.LOCAL_WRITE, offset=0x800)
    target = driver.Region(device, 10000, driver.LOCAL_WRITE | driver.REMOTE_WRITE | driver.REMOTE_READ)
    text = TEXT * 300
    source.write(0, text[:10000])

    def connect():
        left.connect(right)
        right.connect(left)

    def sends():
        """Sends a message into a buffer that is registered for one message."""
        buffer = driver.ReceiveBuffer(right, 2000)
        left.send(source, 0, 1500)
        done, data = buffer.finish()
        success(done)
        success(left_cq.poll())
        same(data, text[:1500], "the received message")

    connect()
    sends()
    # Inline data and immediate data. The length is no multiple of a segment, and the WQE has two blocks.
    right.post_receive(target, 0, 200)
    left.send_inline(text[:100], IMM)
    done = success(right_cq.poll())
    success(left_cq.poll())
    same(done.length, 100, "the length of the inline message")
    same(done.imm, IMM, "the immediate data")
    same(target.read(0, 100), text[:100], "the inline message")
    # RDMA: a write of several packets and pages, and a read of them.
    left.write(source, 0, 10000, target, 0)
    success(left_cq.poll())
    same(target.read(0, 10000), text[:10000], "the target of the RDMA write")
    source.write(0, bytes(10000))
    left.read(source, 0, 10000, target, 0)
    success(left_cq.poll())
    same(source.read(0, 10000), text[:10000], "the result of the RDMA read")
    # More WQEs than the SQ has blocks, in one batch; and more CQEs than the CQ has.
    for number in range(20):
        left.write(source, 34 * number, 34, target, 34 * (19 - number), ring=number == 19)
    for number in range(20):
        success(left_cq.poll())
    same(target.read(0, 680), TEXT * 20, "the targets of the batch")
    # Completions by interrupt: two of them before the driver asks, then more than the EQ has entries.
    for count in (2, 1, 2, 1) * 5:
        for number in range(count):
            left.write(source, 0, 34, target, 0, ring=number == count - 1)
        for _ in range(count):
            success(left_cq.wait())
    # New queue pairs in the memory of the old ones.
    left.renew()
    right.renew()
    connect()
    sends()
    for thing in (left, right, source, target, left_cq, right_cq, device):
        getattr(thing, "destroy", getattr(thing, "close", None))()
