# Checks the errno with which each verb rejects invalid arguments, and regions of dma-bufs.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed
# guest: --guests 1 --nic qrnic
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

complete() {
    try "$1" "set -o pipefail; $2 | tee complete.log && ! grep SKIP complete.log"
}

complete "the provider's test of errnos" "qrnic-errno-test $RDMA0"
complete "the provider's test of dma-bufs" "qrnic-dmabuf-test $RDMA0"
cat >timeout.py <<'END'
import sys
import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.addr import AHAttr, GlobalRoute

context = Context(name=sys.argv[1])
pd, cq = PD(context), CQ(context, 4)
for words in sys.argv[2:]:
    given, expected = map(int, words.split(":"))
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(1, 1, 1, 1)), QPAttr(port_num=1))
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu, attr.timeout, attr.retry_cnt = qp.qp_num, e.IBV_MTU_1024, given, 7
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0))
    qp.to_rts(attr)
    seen = qp.query(e.IBV_QP_TIMEOUT)[0].timeout
    print(f"timeout {given}: {seen}")
    if seen != expected:
        sys.exit(f"expected {expected}")
END
try "QRNIC_ACK_TIMEOUT raises the ACK timeout of a program" "QRNIC_ACK_TIMEOUT=19 python3 timeout.py $RDMA0 1:19 14:19 19:19 20:20 31:31 0:0"
try "without QRNIC_ACK_TIMEOUT the value of the program is used" "python3 timeout.py $RDMA0 1:1 14:14 && QRNIC_ACK_TIMEOUT=0 python3 timeout.py $RDMA0 14:14"
try "an invalid QRNIC_ACK_TIMEOUT is ignored and reported" \
    "for value in 32 -1 +19 0x13 19s 99999999999999999999; do
        rm -f ignored.log
        VERBS_LOG_LEVEL=1 VERBS_LOG_FILE=ignored.log QRNIC_ACK_TIMEOUT=\$value python3 timeout.py $RDMA0 14:14 &&
            grep -F QRNIC_ACK_TIMEOUT=\$value' is ignored' ignored.log || exit 1
    done"
try "the adapter works as before" "ibv_devinfo -v && ! rdma resource show qp | grep 'type RC'"
kernel_clean "the kernel log is clean"
finish
