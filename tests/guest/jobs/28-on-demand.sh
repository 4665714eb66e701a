# Uses memory regions on demand: the test of the provider within each guest, also with less memory than buffers. Runs
# pingpongs and perftest between two guests, and checks the counters of each region. 80-rdma-core-suite runs test_odp
# of rdma-core.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 600
# guest errors: key-refused
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)

# A disk in memory is the swap space, so that the kernel can swap out pages of processes and cgroups. Huge pages are
# used wherever possible.
try "a swap device" "modprobe brd rd_nr=1 rd_size=262144 && mkswap /dev/ram0 && swapon /dev/ram0"
echo always >/sys/kernel/mm/transparent_hugepage/enabled
try "verbs report on-demand paging" "ibv_devinfo -v -d $RDMA0 | grep -q ODP_SUPPORT_IMPLICIT"
# All users may open the device, because the test of the limit of locked memory opens a context as another user.
chmod 0666 /dev/infiniband/uverbs*
provider() { echo "set -o pipefail; qrnic-on-demand-test $RDMA0 $1 | tee test.log && ! grep -E '^not ok|SKIP' test.log"; }
beside "the provider's test, IPv4" "$(provider "$gid4")" "the provider's test, IPv6" "$(provider "$gid6")"
try "shared virtual addressing is not available without an IOMMU" "qrnic-process-test $RDMA0 $gid4 refused"

mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/small
echo 60M >/sys/fs/cgroup/small/memory.max
# shellcheck disable=SC2016  # the shell in the cgroup is to expand it
try "144 MiB in a cgroup of 60" 'echo $$ >/sys/fs/cgroup/small/cgroup.procs;' "$(provider "$gid4 stress")"
try "the cgroup was full, and swapped" \
    "cd /sys/fs/cgroup/small && [ \$(cat memory.peak) -ge 60000000 ] && grep -E '^pswpout [1-9]' /proc/vmstat"

mkdir /sys/fs/cgroup/lists
# shellcheck disable=SC2016  # the shell in the cgroup is to expand it
try "page lists are charged to the cgroup of the process" 'echo $$ >/sys/fs/cgroup/lists/cgroup.procs;' "$(provider "$gid4 lists")"

# Creates an upper list that has no lower list, by a failed allocation. The device may have read the address of the
# upper list. So INVALIDATE_PAGES (0x44) of the whole region must come before the first list is freed.
# shellcheck disable=SC2317  # called through try
unfinished() {
    local tracing=/sys/kernel/tracing status=0
    mountpoint -q "$tracing" || mount -t tracefs none "$tracing" || return 1
    printf '%s\n' 'p:forget qrnic_cmd_exec opcode=+0(%si):u32 length=+8(+8(%si)):u64' \
        'p:free qrnic_sparse_lists_free' >"$tracing/kprobe_events" || return 2
    echo 'opcode == 0x44' >"$tracing/events/kprobes/forget/filter"
    echo 1 >"$tracing/events/kprobes/enable"
    eval "$(provider "$gid4 unfinished")" || status=3
    echo 0 >"$tracing/events/kprobes/enable"
    grep -Eo ' forget: .*| free: ' "$tracing/trace"
    grep -Eo ' (forget|free): ' "$tracing/trace" | head -n 2 | tr -d ' \n' | grep -x forget:free: &&
        grep -m 1 ' forget: ' "$tracing/trace" | grep "length=$((1 << 48))" || status=4
    echo >"$tracing/kprobe_events"
    return "$status"
}
export -f unfinished provider
export gid4 RDMA0
if modprobe refuse symbol=dma_alloc_attrs caller=qrnic_sparse error=0 2>refuse.log; then
    try "the device releases an upper page list before the list is freed" unfinished
    modprobe -r refuse
else
    skip "an upper page list without a lower one" "this kernel has no module for it: $(tail -n 1 refuse.log)"
fi

pingpong() {
    local program=$1
    shift
    pair "$program $*" 18515 "$program -d $RDMA0 -c -g $gid4 $*" "$program -d $RDMA0 -c -g $gid4 $* guest1"
}
for options in "-o" "-o -P" "-o -O" "-o -e"; do
    pingpong ibv_rc_pingpong "$options" -s 65536 -n 200
done
for options in "-o" "-o -e"; do
    pingpong ibv_srq_pingpong "$options" -s 16384 -n 200 -q 4
    pair "ibv_xsrq_pingpong $options" 18515 "ibv_xsrq_pingpong -d $RDMA0 -g $gid4 -s 16384 -n 100 $options" \
        "ibv_xsrq_pingpong -d $RDMA0 -g $gid4 -s 16384 -n 100 $options guest1"
done
perf() {
    local program=$1
    shift
    pair "$program --odp $*" 18515 "$program --odp -d $RDMA0 -x $gid4 -F $*" "$program --odp -d $RDMA0 -x $gid4 -F $* guest1"
}
perf ib_send_bw -n 300 -s 65536
perf ib_write_bw -n 300 -s 65536
perf ib_read_bw -n 300 -s 65536
perf ib_atomic_bw -n 300

# The program waits for its peer, so that its region exists during the test.
statistics() {
    ibv_rc_pingpong -d "$RDMA0" -g "$gid4" -o -P -s 65536 >/dev/null &
    local process=$!
    wait_until 20 bash -c "rdma statistic show mr | grep -q 'page_prefetch [1-9]'"
    rdma statistic show mr | tr -s '\n ' ' ' | grep "page_faults 0 page_invalidations 0 page_prefetch 16"
    local status=$?
    kill "$process"
    return "$status"
}
export -f statistics
try "the kernel counts for each region" statistics
kernel_clean "the kernel logs are clean"
finish
