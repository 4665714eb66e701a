# Sends requests to the driver without the provider: of other lengths, with wrong or random values. Rings the doorbell
# of a queue pair of another context.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: doorbell-owner
# guest: --guests 1 --nic qrnic,doorbell-hold=50000
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

cat >abi.py <<'END'
import ctypes
import errno
import mmap
import os
import random
import re
import struct
import sys

GET_CONTEXT, ALLOC_PD, REG_MR, DEREG_MR, CREATE_CQ, DESTROY_CQ, CREATE_QP, MODIFY_QP, DESTROY_QP, ALLOC_MW, RESIZE_CQ = \
    0, 3, 9, 13, 18, 20, 24, 26, 27, 14, 19
PAGE = 4096
count = 0
failed = 0


def result(good, name):
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}", flush=True)


class Refused(Exception):
    pass


class Context:
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.memory = mmap.mmap(-1, 64 * PAGE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.out = ctypes.create_string_buffer(8)

    def close(self):
        os.close(self.fd)

    def command(self, number, request, out_length, response=True):
        """Sends a command and returns the response. The first member of most requests is the address of the response."""
        out = ctypes.create_string_buffer(b"\xee" * out_length, out_length)
        if response:
            request = struct.pack("<Q", ctypes.addressof(out)) + request
        total = 8 + len(request)
        header = struct.pack("<IHH", number, total // 4, out_length // 4)
        try:
            os.write(self.fd, header + request)
        except OSError as error:
            raise Refused(errno.errorcode[error.errno].replace("ENOTSUP", "EOPNOTSUPP")) from None
        return out.raw

    def open(self, driver=b"", out=64):
        return self.command(GET_CONTEXT, driver, 8 + out)[8:]

    def pd(self):
        return struct.unpack("<I", self.command(ALLOC_PD, b"", 12)[:4])[0]

    def cq_request(self, **change):
        value = {"comp_mask": 0, "address": self.address, "length": 2 * PAGE, "record": PAGE, "log_size": 6}
        value.update(change)
        return struct.pack("<QQQII", *value.values())

    def cq(self, driver=None, cqe=64, vector=0, out=16):
        core = struct.pack("<QIIiI", 0, cqe, vector, -1, 0)
        return self.command(CREATE_CQ, core + (self.cq_request() if driver is None else driver), 8 + out)

    def destroy_cq(self, handle):
        self.command(DESTROY_CQ, struct.pack("<II", handle, 0), 8)

    def qp_request(self, **change):
        value = {"comp_mask": 0, "type": 0, "reserved": 0, "address": self.address, "length": 8 * PAGE, "rq": 4 * PAGE,
                 "sq_record": 7 * PAGE, "rq_record": 7 * PAGE + 8, "sq_log": 6, "rq_log": 4, "stride": 1, "recv_inline": 0}
        value.update(change)
        return struct.pack("<QIIQQIIIBBBB", *value.values())

    def carrier_request(self, kind=3, comp_mask=0, address=0, stream=0, idle=0, reserved=0):
        return struct.pack("<QIIQQIIIIIIQQHBBI", comp_mask, kind, reserved, address, 0, 0, 0, 0, 0, 0, 0, stream, 0, 0, idle, 0, 0)

    def carrier(self, pd, cq):
        """Creates a carrier and returns its handle, number and key."""
        answer = self.qp(pd, cq, self.carrier_request(), wr=0, sge=0, kind=255, out=24)
        return struct.unpack("<I", answer[:4])[0], *struct.unpack("<IIQ", answer[-16:])[::2]

    def modify_qp(self, handle, mask, state, driver):
        """Sends the extended command, whose core part has 120 bytes."""
        core = bytearray(120)
        struct.pack_into("<II", core, 64, handle, mask)
        core[96] = state
        header = struct.pack("<IHHQHHI", 1 << 31 | MODIFY_QP, len(core) // 8, 1, ctypes.addressof(self.out), len(driver) // 8, 0, 0)
        try:
            os.write(self.fd, header + bytes(core) + driver)
        except OSError as error:
            raise Refused(errno.errorcode[error.errno].replace("ENOTSUP", "EOPNOTSUPP")) from None

    def qp(self, pd, cq, driver=None, wr=16, kind=2, out=16, sge=1):
        core = struct.pack("<QIIIIIIIIIBBBB", 0, pd, cq, cq, 0, wr, wr, sge, sge, 0, 0, kind, 0, 0)
        return self.command(CREATE_QP, core + (self.qp_request() if driver is None else driver), 32 + out)

    def destroy_qp(self, handle):
        self.command(DESTROY_QP, struct.pack("<II", handle, 0), 8)

    def mr(self, pd, access, start=None, length=PAGE, virtual=None):
        start = self.address if start is None else start
        virtual = start if virtual is None else virtual
        return self.command(REG_MR, struct.pack("<QQQII", start, length, virtual, pd, access), 12)

    def dereg(self, handle):
        self.command(DEREG_MR, struct.pack("<I", handle), 0, response=False)


def gives(wanted, name, function, *args, **named):
    try:
        function(*args, **named)
        got = "success"
    except Refused as refused:
        got = str(refused)
    result(got in wanted.split("|"), f"{name}: {wanted}" + ("" if got in wanted.split("|") else f", got {got}"))


def guest_error(device, name):
    with open(f"/sys/class/infiniband/{device}/hw_counters/ge_{name}", encoding="ascii") as file:
        return int(file.read())


def test_context(path):
    gives("EOPNOTSUPP", "context: unknown bit of comp_mask", Context(path).open, struct.pack("<Q", 2))
    # This bit requests an optional feature: the response has it only if the context has the feature.
    gives("success", "context: request of shared virtual addressing", Context(path).open, struct.pack("<Q", 1))
    gives("success", "context: a longer request with zeros", Context(path).open, bytes(24))
    gives("EOPNOTSUPP", "context: a longer request with more", Context(path).open, bytes(16) + b"\1" * 8)
    gives("success", "context: a response that is too short", Context(path).open, b"", 16)
    long = Context(path).open(bytes(8), 80)
    result(long[64:] == bytes(16), "context: zeros after the response")
    context = Context(path)
    answer = context.open(bytes(8))
    offset, length, page = struct.unpack("<QII", answer[16:32])
    result(length == PAGE and page > 0, "context: a doorbell page of its own")
    gives("EINVAL", "context: a second one in a file", context.open)
    for name, at, size, flags, wanted in (
            ("the page", offset, PAGE, mmap.MAP_SHARED, True), ("more than the page", offset, 2 * PAGE, mmap.MAP_SHARED, False),
            ("another offset", offset + 16 * PAGE, PAGE, mmap.MAP_SHARED, False),
            ("a private mapping", offset, PAGE, mmap.MAP_PRIVATE, False)):
        try:
            mmap.mmap(context.fd, size, flags, mmap.PROT_WRITE, offset=at)
            good = True
        except OSError:
            good = False
        result(good == wanted, f"mmap: {name} is {'mapped' if wanted else 'refused'}")
    return context, offset


def test_cq(context):
    def bad(wanted, name, driver=None, **named):
        gives(wanted, f"CQ: {name}", context.cq, driver, **named)
    bad("success", "valid")
    bad("success", "a longer request with zeros", context.cq_request() + bytes(8))
    bad("EOPNOTSUPP", "a longer request with more", context.cq_request() + b"\1" * 8)
    bad("EINVAL", "a short request", context.cq_request()[:24])
    bad("EINVAL", "no request", b"")
    bad("EOPNOTSUPP", "unknown bit of comp_mask", context.cq_request(comp_mask=1))
    bad("EINVAL", "address in a page", context.cq_request(address=context.address + 64))
    quarter = {"address": context.address + PAGE - 1024, "length": 1024, "record": 512, "log_size": 3}
    bad("success", "in the last quarter of a page", context.cq_request(**quarter), cqe=8)
    bad("EINVAL", "address between two entries", context.cq_request(**{**quarter, "address": context.address + 8}), cqe=8)
    bad("EINVAL", "no length", context.cq_request(length=0))
    bad("EINVAL", "a buffer much longer than the ring", context.cq_request(length=32 * PAGE))
    bad("EINVAL", "ring longer than the buffer", context.cq_request(length=PAGE, record=0, log_size=7))
    bad("EINVAL", "record behind the buffer", context.cq_request(record=2 * PAGE))
    bad("EINVAL", "record at the end", context.cq_request(record=2 * PAGE - 4))
    bad("EINVAL", "record not aligned", context.cq_request(record=PAGE + 4))
    bad("EINVAL", "size beyond all", context.cq_request(log_size=31))
    bad("EINVAL", "size of 2^200", context.cq_request(log_size=200))
    bad("EINVAL", "more CQEs than the ring", cqe=65)
    bad("EINVAL", "unknown vector", vector=1000)
    bad("EFAULT|ENOMEM", "memory that is not there", context.cq_request(address=PAGE))
    bad("EINVAL|ENOMEM|EFAULT", "length of all memory", context.cq_request(length=2**64 - PAGE))
    bad("success", "a response that is too short", out=0)


def test_qp(context, pd, cq):
    def bad(wanted, name, driver=None, **named):
        gives(wanted, f"QP: {name}", context.qp, pd, cq, driver, **named)
    request = context.qp_request
    bad("success", "valid")
    bad("success", "a longer request with zeros", request() + bytes(8))
    bad("EOPNOTSUPP", "a longer request with more", request() + b"\1" * 8)
    bad("EINVAL", "a short request", request()[:44])
    bad("EOPNOTSUPP", "unknown bit of comp_mask", request(comp_mask=2**63))
    bad("EOPNOTSUPP", "with the driver type of a carrier", request(type=3))
    bad("success", "with an event index", request(comp_mask=4))
    bad("EOPNOTSUPP", "reserved bits", request(reserved=1))
    bad("success", "receiving into the CQE", request(recv_inline=32))
    bad("EINVAL", "receiving more into the CQE than there is room", request(recv_inline=33))
    bad("success", "RQ of half a page, not at its start", request(rq=4 * PAGE + 64))
    bad("success", "RQ at the end of a page", request(rq=4 * PAGE + 2048))
    bad("EINVAL", "RQ of half a page, in two", request(rq=4 * PAGE + 2048 + 64))
    bad("EINVAL", "RQ between two blocks", request(rq=4 * PAGE + 32))
    small = {"length": 1024, "rq": 512, "sq_record": 768, "rq_record": 776, "sq_log": 3, "rq_log": 1}
    bad("success", "all in a quarter of a page", request(address=context.address + 1024, **small))
    bad("success", "all in two quarters of two pages", request(address=context.address + PAGE - 512, **small))
    bad("EINVAL", "SQ of an eighth of a page, in two", request(address=context.address + PAGE - 448, **small))
    bad("EINVAL", "address between two blocks", request(address=context.address + 32, **small))
    bad("EINVAL", "RQ behind a buffer in a page", request(address=context.address + 1024, **{**small, "rq": 832}))
    bad("EINVAL", "record behind a buffer in a page", request(address=context.address + 1024, **{**small, "rq_record": 1024}))
    bad("EINVAL", "RQ behind the buffer", request(rq=8 * PAGE))
    bad("EINVAL", "RQ offset near 2^32", request(rq=2**32 - PAGE))
    bad("EINVAL", "a buffer much longer than the rings", request(length=64 * PAGE))
    bad("EINVAL", "SQ longer than the buffer", request(sq_log=10))
    bad("EINVAL", "SQ of 2^255", request(sq_log=255))
    bad("EINVAL", "SQ smaller than a WQE may be", request(sq_log=2))
    bad("EINVAL", "RQ of 2^255", request(rq_log=255))
    bad("EINVAL", "receive WQE too large", request(stride=4))
    bad("EINVAL", "SQ record not aligned", request(sq_record=7 * PAGE + 2))
    bad("EINVAL", "RQ record behind the buffer", request(rq_record=8 * PAGE))
    bad("EOPNOTSUPP|EINVAL", "unknown type", kind=5)
    bad("EINVAL", "more requests than the device takes", wr=2**31)
    bad("success", "a response that is too short", out=0)


def test_carrier(context, pd, cq):
    request = context.carrier_request

    def bad(wanted, name, driver, **named):
        gives(wanted, f"carrier: {name}", context.qp, pd, cq, driver,
              **{"wr": 0, "sge": 0, "kind": 255, "out": 24, **named})
    bad("success", "valid", request())
    bad("success", "a longer request with zeros", request() + bytes(8))
    bad("EOPNOTSUPP", "a longer request with more", request() + b"\1" * 8)
    bad("success", "a response without room for the key", request(), out=16)
    bad("EOPNOTSUPP", "no driver type", request(kind=0))
    bad("EOPNOTSUPP", "an unknown driver type", request(kind=4))
    bad("EOPNOTSUPP", "reserved bits", request(reserved=1))
    bad("EINVAL", "a doorbell page", request(comp_mask=1))
    bad("EINVAL", "an event index", request(comp_mask=4))
    bad("EOPNOTSUPP", "with what an end of dynamic connections has", request(idle=1))
    bad("EINVAL", "a dynamic target without an SRQ", request(kind=2))
    bad("EINVAL", "with a buffer", request(address=4096))
    bad("EOPNOTSUPP", "of another type", request(), kind=2)
    bad("EINVAL", "with work requests", request(), wr=1)
    bad("EINVAL", "with a streaming queue", request(stream=1))

    keys = {context.carrier(pd, cq)[2] for _ in range(8)}
    result(len(keys) == 8 and min(keys).bit_length() > 40, "carriers have keys of their own, of many bits")

    handle = struct.unpack("<I", context.qp(pd, cq)[:4])[0]
    driver = {"comp_mask": 4, "burst": 0, "packet": 0, "priority": 0, "key": 17, "carrier": 5, "reserved": 0}

    def modify(wanted, name, **change):
        gives(wanted, f"member: {name}", context.modify_qp, handle, 1, 2,
              struct.pack("<IIIIQII", *{**driver, **change}.values()))
    # The queue pair is in RESET, so well-formed requests fail because of the state.
    modify("EINVAL", "valid, but in the wrong state")
    modify("EOPNOTSUPP", "unknown bit of comp_mask", comp_mask=12)
    modify("EOPNOTSUPP", "a key without its bit in comp_mask", comp_mask=0, carrier=0)
    modify("EOPNOTSUPP", "a carrier without its bit in comp_mask", comp_mask=0, key=0)
    modify("EOPNOTSUPP", "reserved bits", reserved=1)


def test_responses(context, pd, cq):
    """Checks that the rest of a longer response is zero, also if the driver adds no response."""
    core_cq = struct.pack("<QIIiI", 0, 64, 0, -1, 0)
    core_qp = struct.pack("<QIIIIIIIIIBBBB", 0, pd, cq, cq, 0, 16, 16, 1, 1, 0, 0, 2, 0, 0)
    region = struct.pack("<QQQII", context.address, PAGE, context.address, pd, 1)
    for name, number, request, known in (
            ("alloc_pd", ALLOC_PD, b"", 12), ("create_cq", CREATE_CQ, core_cq + context.cq_request(), 24),
            ("create_qp", CREATE_QP, core_qp + context.qp_request(), 56), ("reg_mr", REG_MR, region, 12),
            ("alloc_mw", ALLOC_MW, struct.pack("<IB3x", pd, 2), 8)):
        answer = context.command(number, request, known + 16)
        result(answer[:known] != bytes(known) and answer[known:] == bytes(16), f"{name}: zeros after the response")
    handle = struct.unpack("<I", context.cq()[:4])[0]
    resize = struct.pack("<IIQQQII", handle, 128, 0, context.address + 16 * PAGE, 4 * PAGE, 7, 0)
    answer = context.command(RESIZE_CQ, resize, 8 + 16)
    result(answer[8:] == bytes(16), "resize_cq: zeros after the response")


def test_mr(context, pd):
    gives("success", "MR: valid", context.mr, pd, 15)
    gives("EINVAL", "MR: remote write without local write", context.mr, pd, 2)
    demand = 1 << 6
    gives("success", "MR: on demand, of memory that is not mapped", context.mr, pd, 1 | demand, start=PAGE)
    gives("success", "MR: on demand, all of the address space", context.mr, pd, 1 | demand, start=0, length=2**64 - 1)
    gives("EINVAL", "MR: on demand, no length", context.mr, pd, 1 | demand, length=0)
    gives("EINVAL|EOVERFLOW", "MR: on demand, beyond the end of the address space", context.mr, pd, 1 | demand,
          start=2**64 - PAGE, length=2 * PAGE)
    gives("EINVAL", "MR: on demand, longer than the address space", context.mr, pd, 1 | demand, length=2**48 + 1)
    gives("EINVAL", "MR: on demand, the whole address space at another address", context.mr, pd, 1 | demand, start=0,
          length=2**64 - 1, virtual=PAGE)
    gives("success", "MR: no length, as with mlx5", context.mr, pd, 1, length=0)
    gives("EINVAL|EFAULT|ENOMEM", "MR: beyond the end of the address space", context.mr, pd, 1, start=2**64 - PAGE,
          length=2 * PAGE)
    gives("EFAULT|ENOMEM", "MR: memory that is not mapped", context.mr, pd, 1, start=PAGE)
    gives("EINVAL", "MR: another offset in the page", context.mr, pd, 1, virtual=context.address + 8)


def test_random(context, pd, cq, rounds):
    """Sends valid requests with changed bytes, bits and numbers, and destroys the objects of those that succeed."""
    dice = random.Random(20)
    made = refused = 0
    special = (0, 1, 7, 63, 64, 4095, 4096, 2**31, 2**32 - 1)

    def change(data):
        data = bytearray(data)
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            at = dice.randrange(len(data))
            kind = dice.randrange(3)
            if kind == 0:
                data[at] ^= 1 << dice.randrange(8)
            elif kind == 1:
                data[at] = dice.randrange(256)
            else:
                at &= ~3
                data[at:at + 4] = struct.pack("<I", dice.choice(special))
        return bytes(data)

    for _ in range(rounds):
        try:
            which = dice.random()
            if which < 0.2:
                answer = context.qp(pd, cq, change(context.carrier_request()), wr=0, kind=255, sge=0, out=24)
                context.destroy_qp(struct.unpack("<I", answer[:4])[0])
            elif which < 0.6:
                answer = context.cq(change(context.cq_request()), cqe=1)
                context.destroy_cq(struct.unpack("<I", answer[:4])[0])
            else:
                answer = context.qp(pd, cq, change(context.qp_request()), wr=1)
                context.destroy_qp(struct.unpack("<I", answer[:4])[0])
            made += 1
        except Refused:
            refused += 1
    result(made > rounds / 50 and refused > rounds / 20, f"random requests ({made} accepted, {refused} rejected)")


def test_doorbell(path, device, qpn):
    """Rings the doorbell of a queue pair of another context."""
    other = Context(path)
    offset, _, _ = struct.unpack("<QII", other.open(bytes(8))[16:32])
    page = mmap.mmap(other.fd, PAGE, mmap.MAP_SHARED, mmap.PROT_WRITE | mmap.PROT_READ, offset=offset)
    before = guest_error(device, "doorbell_owner")
    (ctypes.c_uint64 * 512).from_buffer(page)[0] = qpn | 1 << 32
    for _ in range(100):
        if guest_error(device, "doorbell_owner") == before + 1:
            break
        os.system("sleep 0.05")
    result(guest_error(device, "doorbell_owner") == before + 1, "the doorbell of another context's queue pair is rejected")


def objects(device):
    """Returns the number of objects of each kind. The kernel has some for queue pair 1."""
    show = os.popen(f"rdma resource show {device}").read()
    return " ".join(re.findall(r"(?:pd|cq|qp|mr|srq) [0-9]+", show))


def main():
    device = sys.argv[1]
    path = "/dev/infiniband/" + os.listdir(f"/sys/class/infiniband/{device}/device/infiniband_verbs")[0]
    before = objects(device)
    context, _ = test_context(path)
    pd = context.pd()
    test_cq(context)
    cq = struct.unpack("<I", context.cq()[:4])[0]
    test_qp(context, pd, cq)
    test_carrier(context, pd, cq)
    test_responses(context, pd, cq)
    test_mr(context, pd)
    answer = context.qp(pd, cq)
    test_doorbell(path, device, struct.unpack("<II", answer[:8])[1])
    test_random(context, pd, cq, int(sys.argv[2]))
    # The kernel destroys all of these objects, including the context of the random requests.
    context.close()
    left = objects(device)
    result(left == before, f"no object is left: {left}, before {before}")
    with open("count", "w", encoding="ascii") as file:
        file.write(f"tests={count} failed={failed}\n")


main()
END
timeout $((120 * TIME_FACTOR)) python3 abi.py "$RDMA0" 500 || :
if [ -e count ]; then
    # shellcheck source=/dev/null
    . ./count
else
    result 1 "all requests were made"
fi
try "the adapter works as before" "ibv_devinfo -v >/dev/null && rdma resource show $RDMA0"
kernel_clean "the kernel log is clean"
finish
