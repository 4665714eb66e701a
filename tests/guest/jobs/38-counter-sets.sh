# Counts traffic of queue pairs by iproute2. Counters are bound manually, by type and by process, and the port counts
# the sum.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

link=$RDMA0/1
gid=$(gid_index "$RDMA0" 4)
hw_counters=/sys/class/infiniband/$RDMA0/ports/1/hw_counters

# of_qp FIELD: prints the sum over all counters of queue pairs
of_qp() { rdma -j statistic qp show link "$link" | python3 -c "import json, sys
print(sum(row.get('$1', 0) for row in json.load(sys.stdin)))"; }
port() {
    # The test waits, because values may be 10 ms old.
    sleep 0.05
    cat "$hw_counters/$1"
}

# begin: starts a server and a client, which exchange 200 messages
begin() {
    timeout $((60 * TIME_FACTOR)) ib_send_lat -d "$RDMA0" -x "$gid" -F -n 200 -s 64 >server.log 2>&1 &
    wait_for_port 18515
    timeout $((60 * TIME_FACTOR)) ib_send_lat -d "$RDMA0" -x "$gid" -F -n 200 -s 64 localhost >client.log 2>&1
    wait
}

stop_load() {
    jobs -p | xargs -r kill
    wait
} 2>/dev/null

before=$(port tx_send)
begin
[ $(($(port tx_send) - before)) -ge 200 ]
status=$?
[ $status = 0 ] || { show server.log; show client.log; }
result $status "the port counts the traffic of queue pairs without counters"
[ "$(of_qp tx_send)" = 0 ]
result $? "and no counter of queue pairs has it"

# The kernel creates a counter with the first queue pair of a type, and destroys it with the last one.
try "the automatic mode by type" "rdma statistic qp set link $link auto type on &&
    rdma statistic qp mode link $link | tee /dev/stderr | grep -q 'auto type on'"
timeout $((120 * TIME_FACTOR)) ib_write_bw -d "$RDMA0" -x "$gid" -F -D 100 >server.log 2>&1 &
wait_for_port 18515
timeout $((120 * TIME_FACTOR)) ib_write_bw -d "$RDMA0" -x "$gid" -F -D 100 localhost >client.log 2>&1 &
writes() { [ "$(of_qp tx_write)" -gt 100 ]; }
wait_until 20 writes
result $? "a running program has a separate counter"
rdma statistic qp show link "$link" >step.log 2>&1
grep -qi 'type RC' step.log
status=$?
[ $status = 0 ] || { show step.log; show client.log; }
result $status "which is the counter of its type"
before=$(port tx_write)
sleep 1
[ "$(port tx_write)" -gt "$before" ]
result $? "the port counts it, too"
stop_load
[ "$(of_qp tx_write)" = 0 ]
result $? "the counter is destroyed with its queue pairs"
after=$(port tx_write)
[ "$after" -ge "$before" ] && [ "$after" = "$(ethtool -S "$NIC0" | awk '$1 == "tx_write:" { print $2 }')" ]
result $? "and the port includes its counts, once"
try "the automatic mode ends" "rdma statistic qp set link $link auto off"

# Binds one of the two ends manually.
timeout $((120 * TIME_FACTOR)) ib_write_bw -d "$RDMA0" -x "$gid" -F -D 100 >server.log 2>&1 &
wait_for_port 18515
timeout $((120 * TIME_FACTOR)) ib_write_bw -d "$RDMA0" -x "$gid" -F -D 100 localhost >client.log 2>&1 &
sender() { rdma -j resource show qp link "$link" | python3 -c "import json, sys
print(max(row['lqpn'] for row in json.load(sys.stdin) if row.get('comm') == 'ib_write_bw'))"; }
sends() { [ -n "$(sender 2>/dev/null)" ]; }
wait_until 20 sends
lqpn=$(sender)
try "a queue pair is bound by its number" "rdma statistic qp bind link $link lqpn $lqpn"
counts() { [ "$(of_qp roce_tx_packets)" -gt 50 ]; }
wait_until 20 counts
result $? "and counts in the new counter"
counter=$(rdma -j statistic qp show link "$link" | python3 -c "import json, sys; print(json.load(sys.stdin)[0]['cntn'])")
try "it is unbound" "rdma statistic qp unbind link $link cntn $counter lqpn $lqpn"
[ "$(of_qp roce_tx_packets)" = 0 ]
result $? "and its counter is gone"
stop_load
[ "$(port roce_tx_packets)" = "$(ethtool -S "$NIC0" | awk '$1 == "roce_tx_packets:" { print $2 }')" ]
result $? "in the end the port has counted all packets, each once"
kernel_clean "the kernel log is clean"
finish
