# The stages of lab 4. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
import struct

from grade import expect
from lab import DOORBELL, Setup, hw

TEXT = b"a message of 40 bytes, the usual length."
LONG = bytes(range(100, 200))


def setup(machine, program):
    place = Setup(machine, log_size=4, cq_log_size=6)
    source, target = machine.mem_alloc(2048), machine.mem_alloc(2048)
    machine.mem_write(source, TEXT)
    machine.accesses.clear()
    return place, program.Sender(machine, place.left), source, target


def reads(machine, use, number):
    """Returns the number of reads for a use and a queue pair."""
    return sum(one.kind == "read" and one.keys.get("use") == use and one.keys.get("qp") == str(number) for one in machine.transactions())


def arrived(machine, place, target, data, count=1):
    """Fails unless count messages completed and the data arrived."""
    for _ in range(count):
        entry = place.left.completion()
        expect(entry["status"] == 0, f"The CQE has status {entry['status']:#x} and syndrome {entry['syndrome']:#x} (chapter Completion and events). "
                                     "A syndrome of 0x07 or 0x08 means a wrong member of the WQE, 0x09 a wrong index.")
    machine.settle()
    got = machine.mem_read(target, len(data))
    expect(got == data, f"The target has {got[:24]!r}... in place of {data[:24]!r}...")


def no_reads(machine, qp, *uses):
    for use in uses:
        count = reads(machine, use, qp.number)
        expect(not count, f"The device read a {use} from memory ({count} times). {WHY[use]}")


def kind_of(access, qp):
    """Returns the word for an access of the program."""
    kind, bar, offset = access[:3]
    if kind == "bar-write" and bar == DOORBELL:
        return "doorbell" if offset == hw.constant("DB_DIRECT") else "window" if offset >= hw.constant("DB_WINDOW") else "other"
    if kind == "mem-write" and qp.sq <= offset < qp.sq + (64 << qp.log_size):
        return "ring"
    return "record" if kind == "mem-write" and offset == qp.sq_record else "other"


def stored(machine, qp, first, raw):
    """Fails unless the ring has the WQE from block first on."""
    blocks = [machine.mem_read(qp.sq + 64 * ((first + number) % (1 << qp.log_size)), 64) for number in range((len(raw) + 63) // 64)]
    expect(b"".join(blocks)[:len(raw)] == raw, f"The WQE of {len(raw)} bytes is not in the ring, from block {first} modulo {1 << qp.log_size} on. A retransmission reads it from there.")


def windowed(accesses, raw):
    """Fails if the window has not got the bytes of the WQE."""
    copy = bytearray(256)
    for one in accesses:
        if one.kind == "bar-write" and one.offset >= hw.constant("DB_WINDOW"):
            at = one.offset - hw.constant("DB_WINDOW")
            copy[at:at + one.size] = one.value.to_bytes(one.size, "little")
    swapped = b"".join(bytes(copy[at:at + 8])[::-1] for at in range(0, 256, 8))
    expect(swapped[:len(raw)] != raw, "The bytes in the window are in the wrong order. The window is little endian, as all of the device: the first byte of the WQE is bits 7:0 "
                                      "of the first number.")
    expect(copy[:len(raw)] == raw, "The window does not have the bytes of the WQE. The first 8 bytes of the WQE belong to offset 0x800, the next ones to 0x808.")


WHY = {
    "record": "The device reads the record only if it drops the copy in the window. Compare number, blocks (bits 27:24) and producer index of "
              "your doorbell with the text. Each of the blocks must be written completely, 8 writes for each.",
    "wqe": "The device fetches the WQE only if it drops the copy in the window.",
    "data": "A WQE with the flag INLINE contains its data.",
}


def stage_1(machine, program):
    """Count the reads of three messages."""
    place, _, source, target = setup(machine, program)
    machine.mark()
    for _ in range(3):
        place.left.write(source, 1500, target)
        arrived(machine, place, target, TEXT)
    for use in ("wqe", "record", "data", "cqe"):
        got, want = program.count_reads(machine, place.left, use), reads(machine, use, place.left.number)
        expect(isinstance(got, int), f"count_reads() returned {got!r}, and not a number.")
        same = [one for one in machine.transactions() if one.keys.get("use") == use]
        expect(got == want or got != len(same), f"count_reads() returned {got} for use {use}: all transactions of the use. Completions carry the data "
                                               "of a read and have the same keys. Count only the kind \"read\", and only queue pair "
                                               f"{place.left.number} (the keys are strings).")
        both = sum(one.kind == "read" for one in same)
        expect(got == want or got != both, f"count_reads() returned {got} for use {use}: the reads of both queue pairs. The receiver reads its record, too. "
                                          f"Count only those of queue pair {place.left.number}.")
        expect(got == want, f"count_reads() returned {got} for use {use}, not {want}. The values of keys are strings: compare with str(qp.number).")


def stage_2(machine, program):
    """A WQE that contains its data."""
    place, sender, _, target = setup(machine, program)
    raw = sender.inline_wqe(TEXT, target)
    expect(isinstance(raw, bytes), f"inline_wqe() returned {type(raw).__name__}, and not bytes.")
    expect(len(raw) == 32 + 48, f"inline_wqe() returned {len(raw)} bytes for 40 bytes of data: 32 bytes of segments, and the data, padded to 48 bytes.")
    got = hw.unpack("sq_ctrl", raw[:16])
    for member, want in (("opcode", 4), ("flags", 9), ("segments", 5), ("index", 0), ("imm", 0), ("inline_length", 40)):
        expect(got[member] == want, f"Control segment: {member} is {got[member]:#x} in place of {want:#x}. "
                                    "Segments counts units of 16 bytes, and the length is that of the data without padding.")
    expect(raw[32:] == TEXT + bytes(8), f"The data is {raw[32:]!r}: the 40 bytes of the message, and 8 zeros.")
    machine.mark()
    sender.post_fetched(raw)
    arrived(machine, place, target, TEXT)
    no_reads(machine, place.left, "data")
    for size in (32, 1, 15):
        raw, padded = sender.inline_wqe(LONG[:size], target), (size + 15) // 16 * 16
        expect(len(raw) == 32 + padded, f"inline_wqe() returned {len(raw)} bytes for {size} bytes of data: 32 bytes of segments, and the data, padded to {padded} bytes.")


def stage_3(machine, program):
    """A direct WQE."""
    place, sender, source, target = setup(machine, program)
    for number in range(2):
        machine.mark()
        machine.accesses.clear()
        raw = sender.wqe(source, len(TEXT), target)
        sender.post_direct(raw)
        windowed(machine.accesses, raw)
        arrived(machine, place, target, TEXT)
        kinds = [kind_of(one, place.left) for one in machine.accesses]
        expect("record" in kinds, "post_direct() does not write the record. The device needs record and ring if it drops the copy.")
        expect("doorbell" in kinds, "post_direct() does not write the direct doorbell at offset 0x40.")
        expect(kinds.index("record") < kinds.index("doorbell"), "post_direct() writes the record after the doorbell. The order is ring, record, window, doorbell.")
        expect("ring" in kinds[:kinds.index("record")], "post_direct() writes the record before the WQE is in the ring. The device may read the WQE as soon as the record counts it.")
        expect(kinds.count("window") >= 8, f"post_direct() writes {kinds.count('window')} times to the window. A block of 64 bytes needs 8 writes of 8 bytes, "
                                           "although the WQE has only 48 bytes.")
        stored(machine, place.left, number, raw)
        no_reads(machine, place.left, "record", "wqe")


def stage_4(machine, program):
    """A message without reads."""
    place, sender, _, target = setup(machine, program)
    producer = 0
    # The last message begins in block 15, so that it crosses the end of the ring.
    for data in (TEXT, LONG, bytes(range(224)), TEXT, bytes(range(224))[::-1], LONG[::-1]):
        machine.mark()
        blocks = (32 + len(data) + 63) // 64
        raw = sender.inline_wqe(data, target)
        first, producer = producer, producer + blocks
        sender.send_without_reads(data, target)
        arrived(machine, place, target, data)
        no_reads(machine, place.left, "record", "wqe", "data")
        stored(machine, place.left, first, raw)
        expect(sender.producer == producer, f"The producer index is {sender.producer}, not {producer}: a message of {len(data)} bytes has {blocks} blocks.")


def stage_5(machine, program):
    """Eight messages, one doorbell."""
    place, sender, source, target = setup(machine, program)
    data = bytes(range(8))
    machine.mem_write(source, data)
    machine.mark()
    machine.accesses.clear()
    sender.post_batch([(source + number, 1, target + number) for number in range(8)])
    bells = sum(one[0] == "bar-write" for one in machine.accesses)
    expect(bells == 1, f"post_batch() wrote {bells} times to the device. One doorbell announces all WQEs.")
    kinds, want = [kind_of(one, place.left) for one in machine.accesses], place.left.number | 8 << 32
    bell = next(one.value for one in machine.accesses if one.kind == "bar-write")
    expect(bell == want, f"The doorbell is {bell:#x}, not {want:#x}: queue pair in bits 23:0, the producer index behind all WQEs in bits 63:32.")
    expect(kinds.count("record") == 1, f"post_batch() writes the record {kinds.count('record')} times. One record counts all WQEs: write it once, behind the last WQE.")
    expect("ring" not in kinds[kinds.index("record"):], "post_batch() writes a WQE after the record. The device may read a WQE as soon as the record counts it.")
    arrived(machine, place, target, data, 8)
    for use, limit in (("record", 1), ("wqe", 1), ("data", 8)):
        count = reads(machine, use, place.left.number)
        expect(count == limit, f"The device read {use} {count} times in place of {limit}. Write all WQEs and the record before the doorbell.")
    expect(not machine.guest_errors(), "The device reports a broken rule.")
