# Runs dynamic connections within a guest by both versions of IP. Also kills a process while its initiators and
# targets are in use.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic --timeout 900
# guest errors: command-failed
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

provider() { echo "set -o pipefail; qrnic-dynamic-test $RDMA0 $1 | tee test.log && ! grep -E '^not ok|SKIP' test.log"; }
counters=/sys/class/infiniband/$RDMA0/ports/1/hw_counters

try "the provider's test, IPv4" "$(provider "$(gid_index "$RDMA0" 4)")"
try "the provider's test, IPv6" "$(provider "$(gid_index "$RDMA0" 6)")"
# The device reports a page fault again if the driver has no memory to record it.
if modprobe refuse symbol=__xa_insert caller=_event error=-12 times=20 2>refuse.log; then
    try "the provider's test, without memory for page faults" "$(provider "$(gid_index "$RDMA0" 4)")"
    try "the driver had none" "grep -x 0 /sys/module/refuse/parameters/times && modprobe -r refuse"
else
    skip "page faults without memory" "this kernel has no module for it: $(tail -n 1 refuse.log)"
fi
sleep 0.1
try "connections were made, closed and rejected" \
    "[ \$(cat $counters/dynamic_connects) -gt 100 ] && [ \$(cat $counters/dynamic_disconnects) -gt 100 ] && [ \$(cat $counters/rx_cnak) -gt 3 ]"

# shellcheck disable=SC2317  # called through try
killed() {
    local process
    for _ in 1 2 3; do
        qrnic-dynamic-test "$RDMA0" "$(gid_index "$RDMA0" 4)" loop >loop.log &
        process=$!
        wait_until 60 grep -q '# loop' loop.log || return
        kill -9 "$process"
        wait "$process"
        wait_until 20 nothing_left || { rdma resource show; return 1; }
    done
}
# shellcheck disable=SC2317
nothing_left() { ! rdma resource show qp | grep -q qrnic-dynamic && ! rdma resource show srq | grep -q qrnic-dynamic; }
export -f killed nothing_left
try "a process is killed while it runs, and all is freed" killed
try "the provider's test afterwards" "$(provider "$(gid_index "$RDMA0" 4)")"
try "the example, a pool of initiators" "dynamic -d $RDMA0"
kernel_clean "the kernel log is clean"
finish
