# Makes the kernel copy all DMA to bounce buffers, as in confidential guests. Verbs of a process fail at once, with a
# reason in the log. The Ethernet interface and users of RDMA in the kernel work.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --append=swiotlb=65536,force --timeout 900
# files: verbs/bounce.py
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
reason='the kernel copies all DMA to bounce buffers'

try "the driver logs at its start that programs cannot use the adapter" \
    "dmesg | grep 'qrnic.*: $reason: RDMA from user space is not possible'"
try "ibv_devinfo works, and offers no paging on demand" "ibv_devinfo -v -d $RDMA0 >devinfo.log && grep -q hca_id devinfo.log && ! grep ODP_SUPPORT devinfo.log"
dmesg -C
try "each verb that registers memory fails with EOPNOTSUPP" "python3 /etc/qrnic/bounce.py $RDMA0"
try "the kernel log has the reason, and the program" "dmesg | grep -E 'python3\[[0-9]+\].*$reason'"
try "the kernel never lacked bounce buffers" "! dmesg | grep 'swiotlb buffer is full'"
# Without the check in the driver this program would wait for its peer for ever.
# shellcheck disable=SC2317  # called through try
pingpong_ends() {
    local status=0
    timeout $((20 * TIME_FACTOR)) ibv_rc_pingpong -d "$RDMA0" -g "$gid" || status=$?
    [ "$status" = 1 ]
}
export -f pingpong_ends
export gid
try "ibv_rc_pingpong ends with an error" pingpong_ends

# The device verifies the checksums of frames, so only the payload shows the effect of an old copy.
python3 -c 'import random, sys; sys.stdout.buffer.write(random.Random(58).randbytes(3000000))' >data
transfer() {
    pair "$1" 5001 "timeout $((60 * TIME_FACTOR)) python3 -c 'import http.server as h; h.HTTPServer((\"\", 5001), h.SimpleHTTPRequestHandler).handle_request()'" \
        "python3 -c 'import urllib.request as u; open(\"got\", \"wb\").write(u.urlopen(\"http://guest1:5001/data\").read())' && cmp data got"
}
both "ping" "ping -q -c 20 -i 0.02 -s 1400 guest$PEER"
transfer "TCP over the Ethernet interface"
ip link set "$NIC0" mtu 9000
both "frames longer than a page" "wait_until 20 ping -c 1 -W 1 -s 8900 -M do guest$PEER"
transfer "TCP with frames longer than a page"
ip link set "$NIC0" mtu 1500

# RDS connects by rdma_cm and sends and receives datagrams. (The target of NVMe over Fabrics cannot be used here:
# it maps the memory of a response before it reads the disk.)
cat >rds.py <<'PYTHON'
import random
import socket
import sys

guest = int(sys.argv[1])
random.seed(5)
messages = [random.randbytes(random.choice((1, 100, 4000, 4097, 60000))) for _ in range(100)]
with socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET, 0) as rds:
    rds.bind((f"10.77.0.{guest}", 4000))
    # The peer starts after this, because messages to an unbound socket are not retransmitted.
    open("bound", "w").close()
    if guest == 2:
        for message in messages:
            rds.sendto(message, ("10.77.0.1", 4000))
        assert rds.recv(100) == b"good"
    else:
        for number, message in enumerate(messages):
            got, sender = rds.recvfrom(100000)
            assert got == message, f"message {number}: {len(got)} bytes for {len(message)}"
        rds.sendto(b"good", ("10.77.0.2", 4000))
        # A closed socket drops messages that are not acknowledged yet.
        sys.stdin.read()
PYTHON
rds_frames() { cat /sys/class/infiniband/"$RDMA0"/ports/1/hw_counters/roce_{r,t}x_packets | awk '{ all += $1 } END { print all }'; }
status=0
before=$(rds_frames)
modprobe rds_rdma >step.log 2>&1 || status=1
if [ "$GUEST" = 1 ]; then
    mkfifo hold
    timeout $((60 * TIME_FACTOR)) python3 rds.py 1 <hold >step.log 2>&1 &
    receiver=$!
    exec 7>hold
    wait_until 30 test -e bound
    barrier rds
    barrier received
    exec 7>&-
    wait $receiver || status=$?
else
    barrier rds
    timeout $((60 * TIME_FACTOR)) python3 rds.py 2 >step.log 2>&1 || status=$?
    barrier received
fi
[ $(($(rds_frames) - before)) -gt 500 ] || status=97
[ $status = 0 ] || show step.log
together $status "RDS over RDMA: 100 messages of 1 to 60,000 bytes"
kernel_clean "the kernel logs are clean"
finish
