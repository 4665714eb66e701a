# Compares raw dumps of RDMA resources (iproute2), which contain the device's own state, with the attributes that the
# kernel reports.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

cat >raw.py <<'PYTHON'
import json
import os
import struct
import sys

from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
import pyverbs.enums as e

device = sys.argv[1]
context = Context(name=device)
pd = PD(context)
cq = CQ(context, 100)
srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=20)))
mr = MR(pd, 12345, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ)
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, srq=srq, cap=QPCap(max_send_wr=8)))
attr = QPAttr(port_num=1)
attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
qp.to_init(attr)


def dump(kind):
    """The raw dumps of this process's objects of one kind"""
    def rows(options):
        with os.popen(f"rdma {options} resource show {kind}") as file:
            return json.load(file)
    numbers = {"cq": "cqn", "mr": "mrn", "qp": "lqpn", "srq": "srqn"}
    own = [row for row in rows("-j") if row.get("pid") == os.getpid() and row["ifname"] == device]
    raw = rows("-j -r")
    print(kind, own, raw)
    assert len(own) == 1, own
    found = [bytes(row["data"]) for row in raw if row["ifname"] == device and row.get(numbers[kind]) in
             (None, own[0][numbers[kind]]) and "data" in row]
    return own[0], found


def one(kind, size, matches):
    own, found = dump(kind)
    assert all(len(data) == size for data in found), [len(data) for data in found]
    # iproute2 requests the queue pairs of the device and of its port, so each occurs twice.
    found = {data for data in found if matches(data)}
    assert len(found) == 1, (own, found)


# Offsets of the contract: cq_ctx.log_size and ring.page_shift, qp_attr.state, access and port, mkey_ctx.type, access,
# start and length, srq_ctx.log_size.
one("qp", 128, lambda d: d[4] == 1 and d[7] & 2 and d[14] == 1)
one("mr", 64, lambda d: d[0] == 1 and struct.unpack_from("<QQ", d, 8) == (mr.buf, 12345))
one("srq", 64, lambda d: d[8] == 5)
one("cq", 64, lambda d: d[8] == 7)
PYTHON
try "the device's own state of a QP, an MR, an SRQ and a CQ" "python3 raw.py $RDMA0"
nobody="setpriv --reuid 65534 --clear-groups"
try "only the administrator sees it" "rdma -j -r resource show qp | grep -q data && $nobody rdma -j resource show qp &&
    ! $nobody rdma -j -r resource show qp | grep -q data"
kernel_clean "the kernel log is clean"
finish
