# Uses doorbells that are events (ioeventfd=on), as on a host with KVM: without a value, one for each page. Runs
# programs that poll, that sleep, and that have many queues in one page, and several processes at once.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:link=cable,ioeventfd=on,doorbell-pages=16,cap-direct-wqe=off
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)

counter() { cat "/sys/class/infiniband/$RDMA0/$1"; }

perf() {
    local program=$1
    shift
    pair "$program $*" 18515 "$program -d $RDMA0 -x $gid -F $*" "$program -d $RDMA0 -x $gid -F $* guest1"
}

for options in "" "-e" "-s 65536 -n 50" "-e -s 65536 -n 50"; do
    pair "ibv_rc_pingpong $options" 18515 "ibv_rc_pingpong -d $RDMA0 -c -g $gid $options" \
        "ibv_rc_pingpong -d $RDMA0 -c -g $gid $options guest1"
done
pair "ibv_srq_pingpong -e" 18515 "ibv_srq_pingpong -d $RDMA0 -c -e -g $gid" "ibv_srq_pingpong -d $RDMA0 -c -e -g $gid guest1"
perf ib_write_bw -s 8 -n 2000
# Guest 2 sends. 128 queue pairs share its doorbell page, so each event reads at least 128 records. A doorbell with a value
# reads one. Only this run is measured, because the share of the others depends on the speed of the machine.
doorbells=$(counter hw_counters/doorbells) records=$(counter ports/1/hw_counters/record_reads)
perf ib_write_bw -s 8 -q 128 -n 200
doorbells=$(($(counter hw_counters/doorbells) - doorbells))
records=$(($(counter ports/1/hw_counters/record_reads) - records))
echo "# guest$GUEST: $doorbells doorbells, $records records read"
try "an event scans all queues of its doorbell page" "[ $GUEST = 1 ] || [ $records -gt $((32 * doorbells)) ]"
perf ib_write_bw -s 65536 -q 16 -n 50
perf ib_send_bw -s 8 -q 16 --use-srq -n 200
perf ib_send_lat -e -s 8 -n 500
perf ib_read_lat -s 8 -n 500
perf ib_atomic_bw -n 500
try "no doorbell is dropped" "[ $(counter hw_counters/doorbells_dropped) = 0 ]"
kernel_clean "the kernel logs are clean"
finish
