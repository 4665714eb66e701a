# Runs perftest over RC between two guests: send, write, read and atomics; bandwidth and latency; all message sizes;
# many queue pairs; events; both directions.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
# Other options have the defaults of perftest: 1000 or 5000 messages, a transport timeout of 67 ms.
TRY_TIMEOUT=$((180 * TIME_FACTOR))

perf() {
    local program=$1
    shift
    pair "$program $*" 18515 "$program -d $RDMA0 -x $gid -F $*" "$program -d $RDMA0 -x $gid -F $* guest1"
}

for operation in send write read; do
    perf ib_${operation}_bw
    perf ib_${operation}_lat
    # Up to 8 MiB: one message of each size is 16 MiB in total, so the number is the smallest that perftest supports.
    # The longest messages need more than 67 ms on a busy machine, so the timeout is a second (-u 18).
    perf ib_${operation}_bw -a -n 5 -u 18
done
# 31-loopback has one message at a time, in all sizes, for all operations.
perf ib_send_lat -a -n 5 -u 18
for operation in FETCH_AND_ADD CMP_AND_SWAP; do
    perf ib_atomic_bw -A $operation
    perf ib_atomic_lat -A $operation
done
# 64 queue pairs send 64 times as many messages, so each sends fewer.
perf ib_write_bw -q 64 -n 100 -s 4096
perf ib_send_bw -q 64 -n 100 -s 4096
perf ib_read_bw -q 64 -n 50 -s 4096
perf ib_send_bw -e
perf ib_write_bw -b -n 1000
perf ib_send_bw -b -s 2048
perf ib_write_bw -n 4992 -s 8 -l 16
perf ib_send_lat -s 64 -I 128
perf ib_write_lat -s 64 -I 0
kernel_clean "the kernel logs are clean"
finish
