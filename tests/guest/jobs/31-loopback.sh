# Runs the programs of 30-perftest with both ends in one guest, on one adapter.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic --cpus 2 --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
# Other options have the defaults of perftest: 1000 or 5000 messages, a transport timeout of 67 ms.
TRY_TIMEOUT=$((180 * TIME_FACTOR))

perf() {
    local program=$1
    shift
    alone "$program $* within one guest" 18515 "$program -d $RDMA0 -x $gid -F $*" "$program -d $RDMA0 -x $gid -F $* localhost"
}

perf ib_write_bw
perf ib_write_lat
for operation in send write read; do
    # Up to 8 MiB: one message of each size is 16 MiB in total, so the number is the smallest that perftest supports.
    # The longest messages need more than 67 ms on a busy machine, so the timeout is a second (-u 18).
    perf ib_${operation}_lat -a -n 5 -u 18
done
# 30-perftest has many messages at a time, for all operations.
perf ib_write_bw -a -n 5 -u 18
for operation in FETCH_AND_ADD CMP_AND_SWAP; do
    perf ib_atomic_bw -A $operation
    perf ib_atomic_lat -A $operation
done
# The kernel may allocate fewer huge pages than requested, because memory is fragmented.
pages=/proc/sys/vm/nr_hugepages
try "huge pages" "echo 32 >$pages && [ \$(cat $pages) = 32 ]"
perf ib_write_bw --use_hugepages -n 500
perf ib_read_lat --use_hugepages -n 100
echo 0 >$pages
perf ib_write_bw -q 64 -n 100 -s 4096
for size in 1 4097 1048576; do
    alone "ibv_rc_pingpong, $size bytes, within one guest" 18515 \
        "ibv_rc_pingpong -d $RDMA0 -c -g $gid -s $size -n 20" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -s $size -n 20 localhost"
done
alone "ibv_rc_pingpong with events and IPv6 within one guest" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -e -g $gid6" "ibv_rc_pingpong -d $RDMA0 -c -e -g $gid6 localhost"
alone "hello_verbs within one guest" 18600 "hello_verbs -d $RDMA0 -g $gid" "hello_verbs -d $RDMA0 -g $gid localhost"
kernel_clean "the kernel log is clean"
finish
