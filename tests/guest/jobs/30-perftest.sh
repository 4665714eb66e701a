# perftest over RC between two guests: send, write, read, atomic; bandwidth and latency,
# all message sizes; many queue pairs; events; both directions.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
# A transport timeout (-u 18: a second) that a busy machine does not reach.
TRY_TIMEOUT=180

perf() {
    local program=$1
    shift
    pair "$program $*" 18515 "$program -d $RDMA0 -x $gid -F -u 18 $*" "$program -d $RDMA0 -x $gid -F -u 18 $* guest1"
}

for operation in send write read; do
    perf ib_${operation}_bw -a -n 5
    perf ib_${operation}_lat -a -n 5
done
for operation in FETCH_AND_ADD CMP_AND_SWAP; do
    perf ib_atomic_bw -A $operation -n 200
    perf ib_atomic_lat -A $operation -n 200
done
perf ib_write_bw -q 64 -n 50 -s 4096
perf ib_send_bw -q 64 -n 50 -s 4096
perf ib_read_bw -q 64 -n 20 -s 4096
perf ib_send_bw -e -n 100 -s 65536
perf ib_write_bw -b -n 100 -s 65536
perf ib_send_bw -b -n 100 -s 2048
perf ib_write_bw -n 512 -s 8 -l 16
perf ib_send_lat -n 200 -s 64 -I 128
perf ib_write_lat -n 200 -s 64 -I 0
kernel_clean "the kernel logs are clean"
finish
