# Uses a device with no optional capability, small limits, and a doorbell FIFO that overflows all the time. All
# programs must work, but may be slower.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed
# guest: --guests 1 --nic qrnic,cap-direct-wqe=off,cap-inline-send=off,cap-eth-csum=off,cap-eth-vlan=off,cap-eth-tso=off,cap-eth-rx-coalesce=off,cap-timestamp=off,cap-ud=off,cap-uc=off,cap-srq=off,cap-xrc=off,cap-mw=off,cap-fast-reg=off,cap-cq-resize=off,cap-cq-moderation=off,cap-flow=off,cap-dm=off,cap-atomic-write=off,cap-flush=off,cap-inline-recv=off,cap-rate-limit=off,cap-atomic-glob=off,cap-cq-ignore-overrun=off,cap-scatter-fcs=off,cap-source-qpn=off,cap-rss=off,cap-eth-rss=off,cap-roce-v1=off,cap-command-event=off,cap-on-demand=off,cap-streaming-recv=off,cap-tag-matching=off,cap-indirect-mkey=off,context-cache=64,cap-context-cache=off,cap-priority=off,cap-dynamic=off,cap-selective-repeat=off,cap-adaptive-routing=off,cap-shared-connection=off,cap-congestion-control=off,doorbell-hold=1000,cap-event-index=off,doorbell-fifo=2,max-qp=64,max-sge=4,max-rd-atomic=1,vectors=2
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
# Other options have the defaults of perftest: 1000 or 5000 messages, a transport timeout of 67 ms.
TRY_TIMEOUT=$((180 * TIME_FACTOR))

perf() {
    local program=$1
    shift
    alone "$program $* on a lesser device" 18515 "$program -d $RDMA0 -x $gid -F $*" \
        "$program -d $RDMA0 -x $gid -F $* localhost"
}

try "its limits are what verbs report" "ibv_devinfo -v | grep -Eq 'max_sge:\s*4$'"
try "its atomics are atomic with respect to each other" "ibv_devinfo -v | grep -Eq 'atomic_cap:\s*ATOMIC_HCA'"
try "its GIDs are all of RoCE v2" "gid_find $RDMA0 v2 '*' && ! gid_find $RDMA0 v1 '*'"
for size in 1 4097 65536; do
    alone "ibv_rc_pingpong, $size bytes, on a lesser device" 18515 \
        "ibv_rc_pingpong -d $RDMA0 -c -g $gid -s $size -n 50" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -s $size -n 50 localhost"
done
# Missing capabilities are rejected with EOPNOTSUPP, and all else is unchanged.
try "the provider's test of transports on a lesser device" "QRNIC_DIRECT_WQE=1 qrnic-transport-test"
try "the provider's test of raw packets on a lesser device" qrnic-packet-test
try "the provider's test of flags on a lesser device" qrnic-flags-test
try "the provider's test of limits on a lesser device" qrnic-limits-test
try "the provider's test of XRC on a lesser device" qrnic-xrc-test
try "the provider's test of errnos on a lesser device" qrnic-errno-test
try "the provider's test of receiving into the completion on a lesser device" qrnic-inline-test
try "the provider's test of rate limits on a lesser device" qrnic-pace-test
try "the provider's test of priorities on a lesser device" qrnic-priority-test
try "the provider's test of tag matching on a lesser device" qrnic-tag-test
try "the provider's test of shared connections on a lesser device" qrnic-shared-test
perf ib_write_bw -q 16 -n 100 -s 65536
perf ib_send_lat -s 8 -n 200
perf ib_read_bw -o 1
perf ib_atomic_bw -o 1
# The FIFO overflows if the guest rings twice before the host runs the device once. Some 1,400 of the doorbells above
# are dropped, but none on a host that runs the device at once. Therefore the traffic is repeated until the counter
# changes.
dropped() { cat "/sys/class/infiniband/$RDMA0/hw_counters/doorbells_dropped"; }
overflow() {
    local server client=(ib_write_bw -d "$RDMA0" -x "$gid" -F -q 16 -n 100 -s 65536)
    while [ "$(dropped)" = 0 ]; do
        "${client[@]}" &
        server=$!
        server_up 18515 && "${client[@]}" localhost && wait "$server" || return 1
    done
}
status=0
bounded "$TRY_TIMEOUT" overflow >overflow.log 2>&1 || status=$?
[ $status = 0 ] || show overflow.log
result $status "doorbells were dropped, but no work was lost"
try "no parameters of congestion control" "ls -d /sys/kernel/debug/qrnic/* && ! ls -d /sys/kernel/debug/qrnic/*/cc_params"
try "no direct WQE" "[ \$(cat /sys/class/infiniband/$RDMA0/ports/1/hw_counters/direct_wqe_used) = 0 ]"
kernel_clean "the kernel log is clean"
finish
