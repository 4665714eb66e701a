# Queue pairs of every type that are connected to each other in the fuzzed device, and their WQEs.
# SPDX-License-Identifier: GPL-2.0-or-later
"""Pairs of queue pairs in one device, each the peer of the other: their packets go by loopback.

A pair's steps and WQEs are valid; break_some() then breaks one member now and then. Kinds: RC
with and without selective repeat and adaptive routing, UC, UD, XRC, a carrier and two members, and
dynamic connections.
"""

import struct

MEMORY, SLICE = 0x1000000, 0x10000      # each queue pair has a slice: rings, records
SQ, RQ, RECORDS, LIST = 0, 0x4000, 0xc000, 0xd000
LOG_SQ, LOG_RQ = 6, 6
PSN = 0x123456
QKEY = 0x11111111
GID_V1 = 5

# Bits of MODIFY_QP (qp_attr flags of the contract)
STATE, CUR, NOTIFY, ACCESS, PKEY, PORT, QKEY_BIT, AV, MTU, TIMEOUT, RETRY, RNR, RQ_PSN, RD, TIMER, SQ_PSN, DEST_RD, DEST, RATE, \
    PRIORITY, OPTIONS, CARRIER = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 20, 25, 28, 29, 30
PATH = (AV, MTU, DEST, RQ_PSN)
RESPONDER, REQUESTER = (DEST_RD, TIMER), (TIMEOUT, RETRY, RNR, SQ_PSN, RD)
STEPS = {
    "RC": ((PKEY, PORT, ACCESS), (*PATH, *RESPONDER), REQUESTER),
    "UC": ((PKEY, PORT, ACCESS), PATH, (SQ_PSN,)),
    "UD": ((PKEY, PORT, QKEY_BIT), (), (SQ_PSN,)),
    "XRC_INI": ((PKEY, PORT, ACCESS), PATH, REQUESTER),
    "XRC_TGT": ((PKEY, PORT, ACCESS), (*PATH, *RESPONDER), (TIMEOUT, SQ_PSN)),
    "CARRIER": ((PKEY, PORT), PATH, (TIMEOUT, RETRY, SQ_PSN)),
}
KINDS = (("RC", "RC"), ("RC", "RC"), ("UC", "UC"), ("UD", "UD"), ("XRC_INI", "XRC_TGT"), ("CARRIER", "CARRIER"), ("RC", "RC"), ("RC", "RC"))
INLINE, CARRIERS, MEMBERS = 1, 5, (6, 7)
GROUP, GROUP_MAC = bytes(10) + b"\xff\xff\xe0\0\0\1", b"\1\0\x5e\0\0\1"
OUT = 0x102000                          # the output mailbox of fuzz-device
SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, READ, SWAP, ADD, ATOMIC_WRITE, FLUSH, BIND, LOCAL_INV, REG_MR, REG_INDIRECT = (
    1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 16, 17, 18, 19)
ALL = (SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, READ, SWAP, ADD, ATOMIC_WRITE, FLUSH, BIND, LOCAL_INV, REG_MR, REG_INDIRECT)
OPCODES = {"RC": ALL, "UC": (SEND, SEND_IMM, WRITE, WRITE_IMM, BIND, LOCAL_INV, REG_MR, REG_INDIRECT), "UD": (SEND, SEND_IMM),
           "XRC_INI": tuple(opcode for opcode in ALL if opcode not in (ATOMIC_WRITE, FLUSH))}
LENGTHS = (0, 1, 8, 64, 100, 256, 1000, 1024, 1025, 4096, 9000, 65536)


class Pair:
    """Two queue pairs, and their places in memory."""

    def __init__(self, kind, index):
        self.kind, self.types = kind, KINDS[kind]
        self.base = [MEMORY + SLICE * (2 * index + end) for end in range(2)]
        self.number, self.sq, self.rq = [0, 0], [0, 0], [0, 0]


class Pairs:
    """All pairs of a device. f: the fuzzer, whose keys and queues they use."""

    def __init__(self, f):
        self.f, self.m, self.r = f, f.m, f.r
        self.pairs = []

    def start(self, address_vector):
        """Creates all pairs after a reset. address_vector: of the device itself."""
        f, c, r = self.f, self.f.c.pack, self.r
        self.av = address_vector
        self.path_mtu, self.timeout, self.retry = r.randrange(1, 5), r.choice((1, 8, 10)), r.randrange(8)
        self.options = r.choice((0, 1, 2, 3, 3))
        f.command("SET_GID", GID_V1, c("gid_entry", gid=self.av["dgid"], mac=self.av["dmac"], flags=5))
        if r.random() < .3:
            self.av = self.av | {"sgid_index": GID_V1}
        self.congestion()
        self.contexts()
        self.dm = f.command("ALLOC_DM", 0, c("dm_ctx", length=4096))
        self.xrcd = f.command("ALLOC_XRCD")
        self.keys = {name: f.command("CREATE_MKEY", 0, c("mkey_ctx", pd=f.pd, variant=0x21, **values)) << 8 | 0x21 for name, values in (
            ("all", {"type": 1, "access": 0x5f, "start": MEMORY, "length": 1 << 20, "table": {"root": MEMORY}, "address_space": 1}),
            ("window 1", {"type": 4}), ("window 2", {"type": 5}), ("fast", {"type": 3, "length": 1 << 16}),
            ("null", {"type": 6, "access": 1}), ("device", {"type": 16, "access": 0x4f, "length": 4096, "dm": self.dm}))}
        self.m.write(MEMORY + LIST, b"".join(struct.pack("<Q", MEMORY + 4096 * (i + 16)) for i in range(16)))
        self.m.write(MEMORY + 0xe000, bytes(16))
        self.srq = f.command("CREATE_SRQ", 0, c("srq_ctx", pd=f.pd, xrcd=self.xrcd, cq=f.cqs[1], log_size=6, record=MEMORY + 0xe000,
                                                ring={"root": MEMORY + SLICE * 30}))
        self.shared = 0
        self.pairs = [Pair(kind, 1 + i) for i, kind in enumerate(range(len(KINDS)))]
        for pair in self.pairs:
            self.create(pair)
        for pair in self.pairs:
            self.connect(pair)

    def congestion(self):
        """Sets values that the device accepts, with a reaction after few packets."""
        r = self.r
        self.f.command("SET_CONGESTION", 0, self.f.c.pack(
            "congestion_ctx", flags=r.choice((7, 7, 15, 39, r.randrange(64))), np_cnp_dscp=r.randrange(64), np_cnp_prio=r.randrange(8),
            rp_threshold=1 + r.randrange(5), rp_min_dec_fac=r.randrange(101), rp_gd=11, rp_dce_tcp_g=r.randrange(1024),
            np_min_time_between_cnps=r.choice((0, 4)), rp_initial_alpha_value=1 + r.randrange(1023), rp_dce_tcp_rtt=1 + r.randrange(50),
            rp_time_reset=1 + r.randrange(50), rp_byte_reset=1 + r.randrange(5000), rp_rate_reduce_monitor_period=1 + r.randrange(10),
            rp_ai_rate=1 + r.randrange(100), rp_hai_rate=1 + r.randrange(500), rp_min_rate=1 + r.randrange(100),
            rp_max_rate=r.choice((0, 1000)), rp_rate_to_set_on_first_cnp=r.choice((0, 100))))

    def contexts(self):
        """Sets memory for a context cache. Without a cache both commands are rejected."""
        self.m.write(OUT, bytes(32))
        self.f.command("QUERY_CONTEXTS", out_len=4096)
        size, images = struct.unpack("<II", self.m.read(OUT, 8))
        if size and self.r.random() < .9:
            self.f.command("SET_CONTEXTS", 0, self.f.c.pack("context_memory", memory={"root": MEMORY + SLICE * 40}, length=size * images))

    def create(self, pair):
        f, c = self.f, self.f.c.pack
        for end, kind in enumerate(pair.types):
            base, values = pair.base[end], {}
            self.m.write(base + RECORDS, bytes(16))
            pair.sq[end] = pair.rq[end] = 0
            if kind == "XRC_TGT":
                values = {"xrcd": self.xrcd}
            elif kind != "CARRIER":
                values = {"pd": f.pd, "db_page": f.page if self.r.random() < .7 else 0, "send_cq": f.cqs[0], "sq_log_size": LOG_SQ,
                          "sq_record": base + RECORDS, "sq": {"root": base + SQ}}
                if kind != "XRC_INI":
                    values |= {"recv_cq": f.cqs[1], "rq_log_size": LOG_RQ, "rq_record": base + RECORDS + 8, "rq": {"root": base + RQ}}
                if pair.kind == INLINE:
                    values |= {"max_recv_inline": 32, "address_space": 1}
            pair.number[end] = f.command("CREATE_QP", 0, c("qp_ctx", type=f.c.type[kind], **values))
            pair.page = values.get("db_page", 0)

    def attributes(self, pair, end):
        """Returns every attribute with a value that its queue pair may have."""
        r = self.r
        return {ACCESS: {"access": 0x4e if pair.types[end] != "UC" else 2}, PORT: {"port": 1}, QKEY_BIT: {"qkey": QKEY}, AV: {"av": self.av},
                MTU: {"path_mtu": self.path_mtu}, TIMEOUT: {"timeout": self.timeout}, RETRY: {"retry_cnt": self.retry},
                RNR: {"rnr_retry": self.retry}, RQ_PSN: {"rq_psn": PSN}, SQ_PSN: {"sq_psn": PSN}, RD: {"max_rd_atomic": 4},
                DEST_RD: {"max_dest_rd_atomic": 4}, TIMER: {"min_rnr_timer": 1}, DEST: {"dest_qpn": pair.number[1 - end]},
                RATE: {"rate_limit": r.choice((1000, 100000))}, PRIORITY: {"priority": r.randrange(17)},
                OPTIONS: {"options": self.options | (r.choice((0, 0x20)) if pair.kind == CARRIERS else 0)},
                CARRIER: {"carrier": self.pairs[CARRIERS].number[end]}, NOTIFY: {"sq_drained_notify": 1}}

    def modify(self, pair, end, state, bits, spoil=0):
        values, all_values = {"state": state}, self.attributes(pair, end)
        for bit in bits:
            values |= all_values.get(bit, {})
        self.f.command("MODIFY_QP", pair.number[end], self.f.c.pack("qp_attr", mask=sum(1 << bit for bit in {STATE, *bits}), **values), spoil)

    def connect(self, pair):
        if pair.types[0] == "UD":
            self.f.command("ATTACH_MULTICAST", pair.number[0], GROUP)
        for end, kind in enumerate(pair.types):
            for step, bits in enumerate(STEPS[kind]):
                more = ()
                if step == 1 and pair.kind in MEMBERS:
                    more = (CARRIER,)
                elif step == 1 and kind in ("RC", "CARRIER") and self.options:
                    more = (OPTIONS,)
                elif step == 2 and kind not in ("XRC_TGT", "CARRIER"):
                    more = [bit for bit in (RATE, PRIORITY) if self.r.random() < .1]
                self.modify(pair, end, step + 1, (*bits, *more))
                if step == 0:
                    self.receive(pair, end, 20)

    def receive(self, pair, end, count):
        c, kind = self.f.c.pack, pair.types[end]
        if kind in ("XRC_INI", "CARRIER"):
            return
        for _ in range(count):
            shared = kind == "XRC_TGT"
            index = self.shared if shared else pair.rq[end]
            data = c("recv_ctrl", data_segments=1, index=index & 63 if shared else index, next=index + 1 & 63 if shared else 0)
            data += self.f.segment(MEMORY + 0x80000, self.r.choice((4096, 4096, 4096, 70000, 100)), self.keys["all"])
            self.m.write((MEMORY + SLICE * 30 if shared else pair.base[end] + RQ) + 64 * (index & 63), data.ljust(64, b"\0"))
            if shared:
                self.shared += 1
            else:
                pair.rq[end] += 1
        if kind == "XRC_TGT":
            self.m.write(MEMORY + 0xe000, struct.pack("<II", self.shared, 0))
            self.m.store(self.f.doorbells + 0x10, self.srq, "q")
        else:
            self.m.write(pair.base[end] + RECORDS + 8, struct.pack("<II", pair.rq[end] & 0xffffffff, 0))
            self.m.store(self.f.doorbells + 0x1000 * pair.page + 8, (pair.rq[end] & 0xffffffff) << 32 | pair.number[end], "q")

    # WQEs: the segments of an opcode behind the control segment, and members of the control segment

    def remote(self):
        key = self.r.choice(("all", "all", "all", "window 2", "fast", "device", "window 1"))
        return self.f.c.pack("remote_seg", address=self.r.choice((64, 0)) if key == "device" else
                             MEMORY + 8 * self.r.randrange(0x1000), rkey=self.keys[key])

    def body(self, opcode):
        r, c, f = self.r, self.f.c.pack, self.f
        if opcode in (SWAP, ADD):
            return self.remote() + c("atomic_seg", swap_add=1, compare=opcode == SWAP) + f.segment(MEMORY + 64, 8, self.keys["all"])
        if opcode == ATOMIC_WRITE:
            return self.remote() + c("atomic_seg", swap_add=r.getrandbits(64))
        if opcode == FLUSH:
            return self.remote() + c("flush_seg", length=r.choice(LENGTHS), type=r.choice((1, 2, 3)), level=r.randrange(2))
        if opcode == BIND:
            return c("bind_seg", key=self.keys[r.choice(("window 1", "window 2"))], lkey=self.keys["all"], address=MEMORY,
                     length=r.choice((4096, 1 << 16)), access=r.choice((2, 6, 14)), flags=r.randrange(2))
        if opcode == REG_MR:
            return c("reg_seg", key=self.keys["fast"], access=r.choice((1, 15)), start=MEMORY, length=4096 * r.randrange(1, 17),
                     table={"root": MEMORY + LIST, "levels": 1, "page_shift": 12})
        data = b"" if opcode in (SEND, SEND_IMM, SEND_INV) else self.remote()
        places = r.choice((1, 1, 1, 2, 5))
        return data + b"".join(f.segment(MEMORY + r.randrange(0x10000), r.choice(LENGTHS),
                                         self.keys[r.choice(("all", "all", "all", "null"))] if r.random() < .9 else f.any_key())
                               for _ in range(places))

    def wqe(self, pair, end, index):
        r, c, kind = self.r, self.f.c.pack, pair.types[end]
        opcode, flags, imm, inline = r.choice(OPCODES[kind]), r.choice((0, 1, 1, 3, 5)), 0, 0
        data = b""
        if kind == "UD":
            group = r.random() < .3
            data = c("datagram_seg", qkey=QKEY, dest_qpn=0xffffff if group else pair.number[1 - end],
                     av=self.av | {"dgid": GROUP, "dmac": GROUP_MAC} if group else self.av)
        elif kind == "XRC_INI" and opcode not in (BIND, LOCAL_INV, REG_MR, REG_INDIRECT):
            data = c("xrc_seg", srqn=self.srq)
        if opcode == LOCAL_INV:
            imm = self.keys[r.choice(("fast", "window 2"))]
        elif opcode == REG_INDIRECT:
            body, flags = self.f.random_pieces(), flags | 8
            inline = 32 * r.randrange(1, 9)
            data += body[:32 + inline]
        else:
            data += self.body(opcode)
        if opcode in (SEND_IMM, WRITE_IMM):
            imm = 7
        elif opcode == SEND_INV:
            imm = self.keys["window 2"]
        return c("sq_ctrl", opcode=opcode, flags=flags, segments=1 + len(data) // 16, index=index, imm=imm, inline_length=inline) + data

    def post(self):
        """Posts some WQEs to one queue pair, with one doorbell. One WQE in eight is corrupt."""
        r = self.r
        pair = r.choice([pair for pair in self.pairs if pair.kind != CARRIERS])
        end = r.randrange(2) if pair.types[1] != "XRC_TGT" else 0
        for _ in range(r.choice((1, 1, 4, 12))):
            data = bytearray(self.wqe(pair, end, pair.sq[end] & 0xffffffff))
            data += bytes(-len(data) % 64)
            if r.random() < .125:
                data[r.randrange(len(data))] = r.choice((0, 1, 0x80, 0xff, r.randrange(256)))
            for at in range(0, len(data), 64):
                self.m.write(pair.base[end] + SQ + 64 * (pair.sq[end] & 63), bytes(data[at:at + 64]))
                pair.sq[end] += 1
        producer = pair.sq[end] & 0xffffffff
        self.m.write(pair.base[end] + RECORDS, struct.pack("<II", producer, 0))
        self.m.store(self.f.doorbells + 0x1000 * pair.page, producer << 32 | pair.number[end], "q")
        if r.random() < .4:
            self.receive(pair, 1 - end, r.choice((1, 8)))

    def state(self):
        """Sets random attributes and states. Often the pair is connected again afterwards."""
        r, pair = self.r, self.r.choice(self.pairs)
        end, kind = r.randrange(2), r.randrange(5)
        if kind == 0:
            bits = [bit for bit in range(32) if r.random() < .2 and 1 << bit & 0x7213bfff]
            self.modify(pair, end, r.randrange(8), bits, r.choice((0, 0, 1)))
        elif kind == 1:
            self.modify(pair, end, 4, (NOTIFY,))
        elif kind == 2:
            self.modify(pair, end, 3, [bit for bit in (ACCESS, TIMER, RATE, PRIORITY) if r.random() < .4])
        else:
            self.modify(pair, end, 6, ())
        if r.random() < .6:
            for each in range(2):
                self.modify(pair, each, 0, ())
                self.m.write(pair.base[each] + RECORDS, bytes(16))
                pair.sq[each] = pair.rq[each] = 0
            self.connect(pair)

    def numbers(self):
        return [number for pair in self.pairs for number in pair.number]
