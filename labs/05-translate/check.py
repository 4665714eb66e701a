# The stages of lab 5. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
import collections
import random
import struct

from grade import expect
from lab import Endpoint, Setup, hw

# Byte OFFSET of a page is not byte START % 4096, so that the address itself does not show the end of a page.
START, OFFSET, PAGES = 0x7f0000001800, 0xa40, 600
Region = collections.namedtuple("Region", "pd access variant start length root levels page_shift offset")
NAMES = {0: "SYN_NONE", 1: "SYN_KEY_INVALID", 3: "SYN_KEY_RANGE", 4: "SYN_KEY_ACCESS"}


def lists(machine, pages):
    """Writes two levels of lists for the grader."""
    root = machine.mem_alloc(4096, 4096)
    for number in range(0, len(pages), 512):
        lower = machine.mem_alloc(4096, 4096)
        machine.mem_write(lower, struct.pack(f"<{len(pages[number:number + 512])}Q", *pages[number:number + 512]))
        machine.mem_write(root + number // 512 * 8, struct.pack("<Q", lower))
    return root


def shuffled(machine, count, seed):
    """Returns the addresses of new pages in random order."""
    first = machine.mem_alloc(4096 * count, 4096)
    pages = [first + 4096 * number for number in range(count)]
    random.Random(seed).shuffle(pages)
    return pages


def large(machine, pd):
    """Returns a region of one level whose pages have 8192 bytes, and its pages."""
    first, root = machine.mem_alloc(8 * 8192, 8192), machine.mem_alloc(64)
    pages = [first + 8192 * number for number in (5, 0, 3, 7, 2, 6, 1, 4)]
    machine.mem_write(root, struct.pack("<8Q", *pages))
    return Region(pd, 1, 0x3d, START, 8 * 8192 - 0x1300, root, 1, 13, 0x1300), pages


def two_levels(machine, pd, pages):
    return Region(pd, 1, 0x3c, START, 4096 * len(pages) - OFFSET, lists(machine, pages), 2, 12, OFFSET)


def create(place, region):
    """Returns the key that the device gives to a region."""
    return place.adapter.command("CREATE_MKEY", data=hw.pack(
        "mkey_ctx", type="MR", access=[name for bit, name in enumerate(("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ")) if region.access >> bit & 1],
        variant=region.variant, pd=region.pd, start=region.start, length=region.length,
        table={"root": region.root, "levels": region.levels, "page_shift": region.page_shift, "offset": region.offset})) << 8 | region.variant


def small(machine, pd, access=1, variant=0x3c, start=START):
    """Returns a region of three pages and one level."""
    pages, root = shuffled(machine, 3, variant), machine.mem_alloc(64)
    machine.mem_write(root, struct.pack("<3Q", *pages))
    return Region(pd, access, variant, start, 0x2000, root, 1, 12, OFFSET)


def stage_1(machine, program):
    """Page and byte."""
    for shift, offset in ((12, 0x800), (12, 0), (21, 0x1800)):
        region = Region(1, 1, 0, START, 1 << 24, 0, 2, shift, offset)
        for place in (0, 0x10, 0x7ff, 0x800, 0x2200, 0x123456):
            got, want = program.page_of(region, START + place), divmod(offset + place, 1 << shift)
            expect(got == want, f"page_of() returned {got!r} for address {START + place:#x}, not ({want[0]}, {want[1]:#x}). The region starts at {START:#x}, at byte "
                                f"{offset:#x} of its first page; the page size is 2^{shift} bytes.")


def stage_2(machine, program):
    """A walk through one and two levels."""
    pages = shuffled(machine, PAGES, 1)
    one_list = machine.mem_alloc(4096, 4096)
    machine.mem_write(one_list, struct.pack("<512Q", *pages[:512]))
    for region in (two_levels(machine, 1, pages)._replace(root=one_list, levels=1), two_levels(machine, 1, pages)):
        for number, byte in ((0, OFFSET), (0, 4095), (1, 0), (3, 0x123), (511, 4095), *(((512, 0), (513, 8), (599, 4095)) if region.levels == 2 else ())):
            address = START + 4096 * number + byte - OFFSET
            got, want = program.translate(machine, region, address), pages[number] + byte
            expect(got == want, f"translate() returned {got if not isinstance(got, int) else hex(got)} for page {number}, byte {byte:#x} of a region with "
                                f"{region.levels} level{'s' if region.levels == 2 else ''}, not {want:#x}. "
                                + ("Entry number >> 9 of the upper list names the lower list, whose entry number & 511 names the page."
                                   if region.levels == 2 else "Entry number of the list at root names the page."))
    region, pages = large(machine, 1)
    for place in (0, 0x2000 - 0x1300 - 1, 0x2000 - 0x1300, 0x7123):
        got, want = program.translate(machine, region, START + place), pages[(place + 0x1300) >> 13] + (place + 0x1300) % 8192
        expect(got == want, f"translate() returned {got if not isinstance(got, int) else hex(got)} for byte {place:#x} of a region with page_shift 13, not {want:#x}.")


def stage_3(machine, program):
    """The pieces of a message."""
    place = Setup(machine)
    pages = shuffled(machine, PAGES, 2)
    region = two_levels(machine, place.pd, pages)
    key, target = create(place, region), machine.mem_alloc(8192)
    wide, wide_pages = large(machine, place.pd)
    wide_key, edge = create(place, wide), 4096 - OFFSET
    cases = [(region, pages, key, START + at, length) for at, length in (
        (0, 64), (edge - 64, 64), (edge - 16, 64), (0x7f0, 0x40), (512 * 4096 - OFFSET - 1024, 3072), (0, 6000), (edge, 4096))]
    cases += [(wide, wide_pages, wide_key, START + at, length) for at, length in ((0x2000 - 0x1300 - 16, 64), (0xc00, 8000))]
    for region, pages, key, first, length in cases:
        page = 1 << region.page_shift
        want, at = [], first - START + region.offset
        while at < first - START + region.offset + length:
            size = min(page - at % page, first - START + region.offset + length - at)
            want.append((pages[at // page] + at % page, size))
            at += size
        got = [tuple(one) for one in program.pieces(machine, region, first, length)]
        expect(sum(size for _, size in got) == length, f"pieces() returned {sum(size for _, size in got)} bytes in all for a range of {length} bytes.")
        expect(all(at % page + size <= page for at, size in got), "A piece crosses the end of its page. The next page of the region is anywhere in memory.")
        expect(got == want, f"pieces() returned {shown(got)} for {length} bytes at {first:#x}, not {shown(want)}. The region starts at byte {region.offset:#x} of its first page, "
                            f"and the page size is {page}: divide the range at the ends of pages, and not where the address is a multiple of {page}.")
        machine.mark()
        place.left.post(hw.pack("remote_seg", address=target, rkey=place.key), hw.pack("data_seg", address=first, length=length, lkey=key))
        expect(place.left.completion()["status"] == 0, "The device rejects the access, so its table is not that of the grader.")
        reads = {one.address for one in machine.transactions() if one.kind == "read" and one.keys.get("use") == "data"}
        expect({at for at, _ in got} <= reads, f"The device reads from {[hex(one) for one in sorted(reads)]}, and not at the start of each piece.")


def shown(found):
    return "[" + ", ".join(f"({at:#x}, {size})" for at, size in found) + "]"


def stage_4(machine, program):
    """Lists that the device walks."""
    place = Setup(machine)
    pages = shuffled(machine, PAGES, 3)
    allocate = machine.mem_alloc

    def skewed(size, align=64):
        allocate(64)                # so that only the argument align aligns
        return allocate(size, align)
    machine.mem_alloc = skewed
    root = program.build_table(machine, pages)
    machine.mem_alloc = allocate
    expect(isinstance(root, int), f"build_table() returned {root!r}, and not the address of the upper list.")
    expect(root % 4096 == 0, f"The upper list is at {root:#x}. Lists of two levels are aligned to 4096 bytes: mem_alloc(4096, 4096).")
    for number in (0, 1):
        lower = struct.unpack("<Q", machine.mem_read(root + 8 * number, 8))[0]
        expect(lower and lower % 4096 == 0, f"Entry {number} of the upper list is {lower:#x}. {PAGES} pages need two lower lists, aligned to 4096 bytes.")
        expect(min(machine.room(root), machine.room(lower)) >= 4096, "A list has 512 entries of 8 bytes: allocate 4096 bytes for each of the three lists.")
        for at in range(min(512, PAGES - 512 * number)):
            got = struct.unpack("<Q", machine.mem_read(lower + 8 * at, 8))[0]
            expect(got == pages[512 * number + at], f"Entry {at} of lower list {number} is {got:#x}, not {pages[512 * number + at]:#x}: page {512 * number + at}.")
    region = Region(place.pd, 1, 7, START, 4096 * PAGES, root, 2, 12, 0)
    key, target = create(place, region), machine.mem_alloc(64)
    for number in (0, 511, 512, 599):
        text = f"page {number:4}".encode()
        machine.mem_write(pages[number] + 16, text)
        place.left.post(hw.pack("remote_seg", address=target, rkey=place.key),
                        hw.pack("data_seg", address=START + 4096 * number + 16, length=len(text), lkey=key))
        expect(place.left.completion()["status"] == 0, f"The device cannot read page {number}.")
        machine.settle()
        got = machine.mem_read(target, len(text))
        expect(got == text, f"The device sent {got!r} in place of {text!r}.")


def stage_5(machine, program):
    """Accesses with right and wrong keys."""
    place = Setup(machine)
    other = place.adapter.command("ALLOC_PD")
    regions = [small(machine, place.pd), small(machine, place.pd, 0, 0x11), small(machine, other, 1, 0x22), small(machine, place.pd, 4, 0x33)]
    keys = [create(place, region) for region in regions]
    table = {key >> 8: region for key, region in zip(keys, regions)}
    free = max(table) + 1
    end = START + 0x2000
    cases = (
        ("a right access", keys[0], START + 16, 32, 0, 0),
        ("the last bytes of the region", keys[0], end - 32, 32, 1, 0),
        ("another variant", keys[0] ^ 1, START, 32, 0, 1),
        ("an index without an entry", free << 8 | 0x3c, START, 32, 0, 1),
        ("another protection domain", keys[2], START, 32, 0, 1),
        ("one byte beyond the end", keys[0], end - 31, 32, 0, 3),
        ("one byte before the start", keys[0], START - 1, 32, 0, 3),
        ("a write without the right", keys[1], START, 32, 1, 4),
        ("a local read without any right of the region", keys[1], START, 32, 0, 0),
        ("a local write to a region with the right remote read only", keys[3], START, 32, 1, 4),
        ("another protection domain and a wrong range", keys[2], end, 32, 0, 1),
        ("a wrong range without the right", keys[1], end, 32, 1, 3),
        ("another variant and a wrong range", keys[1] ^ 4, end, 32, 1, 1),
        ("a remote read with the right", keys[3], START, 32, 4, 0),
        ("a remote write without the right", keys[3], START, 32, 2, 4),
        ("a remote read without the right", keys[0], START, 32, 4, 4),
    )
    for name, key, address, length, right, want in cases:
        got = program.check_key(table, place.pd, key, address, length, right)
        status, syndrome = ask(machine, place, key, address, length, right)
        answer = f"the device completes with status {status:#x} and syndrome {syndrome:#x} ({NAMES.get(syndrome, 'another')})" if right < 2 else \
            f"the requester gets status {status:#x}"
        expect(got == want, f"{name}: check_key() returned {got!r} ({NAMES.get(got, 'no syndrome of the text')}), not {want} ({NAMES[want]}); {answer}.")
        expect(syndrome == want if right < 2 else status == (10 if want else 0), f"{name}: {answer}, so the grader is wrong.")


def ask(machine, place, key, address, length, right):
    """Performs the access by the device; returns status and syndrome of the CQE. A failed queue pair is useless, so each access has a new one."""
    qp, buffer = Endpoint(machine, place.pd, place.key, place.eq), machine.mem_alloc(64)
    peer = Endpoint(machine, place.pd, place.key, place.eq) if right >= 2 else qp
    qp.connect(peer.number)
    if peer is not qp:
        peer.connect(qp.number)
    local = hw.pack("data_seg", address=address if right < 2 else buffer, length=length, lkey=key if right < 2 else place.key)
    remote = hw.pack("remote_seg", address=buffer if right < 2 else address, rkey=place.key if right < 2 else key)
    qp.post(remote, local, opcode="RDMA_READ" if right in (1, 4) else "RDMA_WRITE")
    done = qp.completion()
    machine.settle()
    machine.forget_errors()
    return done["status"], done["syndrome"]
