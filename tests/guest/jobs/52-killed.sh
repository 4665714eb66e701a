# Kills processes with queue pairs, registered memory and traffic in flight. The kernel cleans up, and the adapter
# continues to work.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 600
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
leaks=/sys/kernel/debug/kmemleak
# Leaks are checked only in a debugging kernel that was started with kmemleak=on.
traced() { echo clear >$leaks; } 2>/dev/null

# shellcheck disable=SC2317  # called through wait_until
queue_pairs() { rdma resource show qp link "$RDMA0" | grep -c 'pid'; }
# shellcheck disable=SC2317
some_there() { ! none_left; }
# shellcheck disable=SC2317
none_left() { [ "$(queue_pairs)" = 0 ]; }

# cut_short NUMBER VICTIM PROGRAM...: runs it between two guests. The end in guest VICTIM is killed under traffic,
# then its peer, which may have noticed.
cut_short() {
    local number=$1 victim=$2 process status=0
    shift 2
    if [ "$GUEST" = 1 ]; then
        "$@" -d "$RDMA0" -x "$gid" -F >/dev/null 2>&1 &
        process=$!
        wait_for_port 18515
        barrier "listening-$number"
    else
        barrier "listening-$number"
        "$@" -d "$RDMA0" -x "$gid" -F guest1 >/dev/null 2>&1 &
        process=$!
    fi
    wait_until 20 some_there || status=2
    sleep 2
    barrier "running-$number"
    [ "$GUEST" != "$victim" ] || kill -KILL $process
    barrier "first-$number"
    [ "$GUEST" = "$victim" ] || kill -KILL $process 2>/dev/null
    wait $process 2>/dev/null
    wait_until 20 none_left || { status=1; rdma resource show qp | sed 's/^/# /'; }
    together $status "no object of $* is left, guest $victim's end killed first"
}

traced && tracing=yes || tracing=no
number=0
# perftest with events does not support a run for a given time.
for program in "ib_write_bw -D 60" "ib_read_bw -q 16 -D 60" "ib_send_bw -e -n 1000000"; do
    for victim in 1 2; do
        number=$((number + 1))
        # shellcheck disable=SC2086
        cut_short $number $victim $program
    done
done
pair "ibv_rc_pingpong afterwards" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200 guest1"

address=$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
rebind() {
    echo "$address" >/sys/bus/pci/drivers/qrnic/unbind && echo "$address" >/sys/bus/pci/drivers/qrnic/bind &&
        nic_setup && nic_export && [ -n "$RDMA0" ]
}
status=0
for _ in 1 2 3 4 5; do rebind || status=$?; done
together $status "the driver is unloaded and loaded five times"
if [ "$tracing" = yes ]; then
    # An object is a leak if two scans have found no pointer to it and it is some seconds old.
    status=0
    sleep 6
    echo scan >$leaks && sleep 6 && echo scan >$leaks
    grep . $leaks >leaks.log && { status=1; show leaks.log 60; }
    together $status "no memory has leaked"
else
    skip "no memory has leaked" "this kernel does not trace memory"
fi
kernel_clean "the kernel logs are clean"
finish
