#!/usr/bin/env python3
# Tests atomic writes, flushes and device memory between two hosts, one of which may have another adapter.
# Each end is the requester once.
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs atomic writes, device memory and flushes; without SERVER, waits for the peer."""

import argparse
import json
import os
import socket
import sys
import time

from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import AllocDmAttr, Context, DM
from pyverbs.mr import DMMR, MR
from pyverbs.pd import PD
from pyverbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
from pyverbs.wr import SGE
import pyverbs.enums as e

PORT = 18610
SIZE = 16384
DATA = 9000
FLAG = 12288
RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
FLUSH_RIGHTS = RIGHTS | e.IBV_ACCESS_FLUSH_GLOBAL
QP_RIGHTS = FLUSH_RIGHTS | e.IBV_ACCESS_REMOTE_ATOMIC | e.IBV_ACCESS_FLUSH_PERSISTENT
WRITES = 200


def check(condition, text):
    if not condition:
        sys.exit(f"remote_memory: {text}")


class Peer:
    """Exchanges lines of JSON with the peer."""

    def __init__(self, server):
        if server:
            self.socket = socket.create_connection((server, PORT))
        else:
            with socket.create_server(("", PORT)) as listener:
                self.socket = listener.accept()[0]
        self.file = self.socket.makefile("rw")

    def exchange(self, mine):
        self.file.write(json.dumps(mine) + "\n")
        self.file.flush()
        line = self.file.readline()
        check(line, "the peer has ended")
        return json.loads(line)


class End:
    def __init__(self, device, gid_index, peer, flush):
        self.peer = peer
        self.flush = flush
        self.context = Context(name=device)
        self.gid_index = gid_index
        self.pd = PD(self.context)
        self.mr = MR(self.pd, SIZE, FLUSH_RIGHTS)
        self.dm = self.dm_mr = None
        size = self.context.query_device_ex().max_dm_size
        if size:
            self.dm = DM(self.context, AllocDmAttr(length=4096))
            self.dm_mr = DMMR(self.pd, 4096, RIGHTS | e.IBV_ACCESS_REMOTE_ATOMIC | e.IBV_ACCESS_ZERO_BASED, self.dm, 0)
        self.connect()

    def connect(self):
        self.cq = CQ(self.context, 64)
        ops = (e.IBV_QP_EX_WITH_RDMA_WRITE | e.IBV_QP_EX_WITH_RDMA_READ | e.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
               e.IBV_QP_EX_WITH_ATOMIC_WRITE | e.IBV_QP_EX_WITH_FLUSH)
        init = QPInitAttrEx(cap=QPCap(max_send_wr=64, max_recv_wr=1, max_send_sge=1, max_recv_sge=1),
                            qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, pd=self.pd, send_ops_flags=ops,
                            comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = QP_RIGHTS
        self.qp = QPEx(self.context, init, attr)
        self.other = self.peer.exchange({
            "qpn": self.qp.qp_num, "gid": str(self.context.query_gid(1, self.gid_index)), "address": self.mr.buf,
            "key": self.mr.rkey, "dm_key": self.dm_mr.rkey if self.dm_mr else None})
        attr.dest_qp_num = self.other["qpn"]
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 18, 7, 7
        attr.sq_psn = attr.rq_psn = 0xfffff0
        route = GlobalRoute(dgid=GID(self.other["gid"]), sgid_index=self.gid_index, hop_limit=64)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)
        self.peer.exchange("connected")

    def post(self, operation, *arguments, local=None):
        self.qp.wr_start()
        self.qp.wr_id = 1
        self.qp.wr_flags = e.IBV_SEND_SIGNALED
        getattr(self.qp, operation)(*arguments)
        if local:
            self.qp.wr_set_sge(SGE(*local))
        self.qp.wr_complete()

    def wait(self, opcode, status=e.IBV_WC_SUCCESS):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            count, completions = self.cq.poll()
            if count:
                check(completions[0].status == status, f"status {completions[0].status} instead of {status}")
                check(status or completions[0].opcode == opcode,
                      f"completion of {completions[0].opcode} instead of {opcode}")
                return
        sys.exit("remote_memory: no completion within a minute")

    def local(self, offset, length):
        return (self.mr.buf + offset, length, self.mr.lkey)

    def ask(self):
        """Writes data, then the flag, flushes both, and writes many flags."""
        key, address = self.other["key"], self.other["address"]
        data = os.urandom(DATA)
        self.mr.write(data, DATA)
        self.post("wr_rdma_write", key, address, local=self.local(0, DATA))
        self.post("wr_atomic_write", key, address + FLAG, b"together")
        if self.flush:
            self.post("wr_flush", key, address, DATA, e.IBV_FLUSH_GLOBAL, e.IBV_FLUSH_RANGE)
            self.post("wr_flush", key, 0, 0, e.IBV_FLUSH_GLOBAL, e.IBV_FLUSH_MR)
        self.wait(e.IBV_WC_RDMA_WRITE)
        self.wait(e.IBV_WC_ATOMIC_WRITE)
        if self.flush:
            self.wait(e.IBV_WC_FLUSH)
            self.wait(e.IBV_WC_FLUSH)
        for i in range(WRITES):
            if i >= 16:
                self.wait(e.IBV_WC_ATOMIC_WRITE)
            self.post("wr_atomic_write", key, address + FLAG + 8 + 8 * (i % 3), i.to_bytes(8, "little"))
        for _ in range(16):
            self.wait(e.IBV_WC_ATOMIC_WRITE)
        self.peer.exchange(data.hex())

    def answer(self):
        data = bytes.fromhex(self.peer.exchange("waiting"))
        check(self.mr.read(DATA, 0) == data, "the data is not what was written")
        check(self.mr.read(8, FLAG) == b"together", "the atomic write is not there")
        for i in range(3):
            last = max(n for n in range(WRITES) if n % 3 == i)
            check(self.mr.read(8, FLAG + 8 + 8 * i) == last.to_bytes(8, "little"), "an atomic write is missing")

    def ask_device_memory(self):
        """Writes to the device memory of the peer, addressed from 0."""
        key = self.other["dm_key"]
        if key is None:
            self.peer.exchange(None)
            return
        self.mr.write(b"d" * 4000, 4000)
        self.post("wr_rdma_write", key, 96, local=self.local(0, 4000))
        self.wait(e.IBV_WC_RDMA_WRITE)
        self.post("wr_rdma_read", key, 96, local=self.local(8192, 4000))
        self.wait(e.IBV_WC_RDMA_READ)
        check(self.mr.read(4000, 8192) == b"d" * 4000, "device memory is read differently from how it was written")
        for i in range(20):
            self.post("wr_atomic_fetch_add", key, 8, 3, local=self.local(8192, 8))
            self.wait(e.IBV_WC_FETCH_ADD)
            check(self.mr.read(8, 8192) == (3 * i).to_bytes(8, "little"), "a wrong value before the sum")
        self.post("wr_atomic_write", key, 16, b"onboard!")
        self.wait(e.IBV_WC_ATOMIC_WRITE)
        self.peer.exchange("written")

    def answer_device_memory(self):
        self.peer.exchange("waiting")
        if self.dm:
            check(self.dm.copy_from_dm(96, 4000) == b"d" * 4000, "what was written is not in the device memory")
            check(self.dm.copy_from_dm(8, 16) == (60).to_bytes(8, "little") + b"onboard!", "sum or flag is wrong")

    def ask_too_much(self):
        """Checks that a flush to persistent memory, or a write behind the region, fails."""
        if self.flush:
            self.post("wr_flush", self.other["key"], self.other["address"], 8, e.IBV_FLUSH_PERSISTENT, e.IBV_FLUSH_RANGE)
        else:
            self.post("wr_atomic_write", self.other["key"], self.other["address"] + SIZE, b"outside!")
        self.wait(None, e.IBV_WC_REM_ACCESS_ERR)
        self.peer.exchange("refused")

    def close(self):
        for thing in (self.qp, self.cq, self.dm_mr, self.mr, self.dm, self.pd, self.context):
            if thing:
                thing.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("gid_index", type=int)
    parser.add_argument("server", nargs="?")
    parser.add_argument("--no-flush", action="store_true", help="the peer does not support flushes of the standard")
    args = parser.parse_args()
    peer = Peer(args.server)
    end = End(args.device, args.gid_index, peer, not args.no_flush)
    turns = [(end.ask, end.answer), (end.ask_device_memory, end.answer_device_memory),
             (end.ask_too_much, lambda: peer.exchange("refused?"))]
    for first in (True, False):
        for ask, answer in turns:
            if bool(args.server) == first:
                ask()
            else:
                answer()
        if first:
            # The error has moved both ends to the error state.
            end.qp.close()
            end.cq.close()
            end.connect()
    end.close()


main()
