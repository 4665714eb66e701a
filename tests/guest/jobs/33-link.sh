# Disconnects and reconnects the cable under load. RDMA and TCP survive a short time; after a long one a queue pair
# fails.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
link() { host_qmp "{\"execute\":\"set_link\",\"arguments\":{\"name\":\"nic0\",\"up\":$1}}" >/dev/null; }
# shellcheck disable=SC2317  # called through wait_until
port_is() { ibv_devinfo -d "$RDMA0" | grep -q "PORT_$1"; }

rx_packets() { cat "/sys/class/infiniband/$RDMA0/ports/1/hw_counters/roce_rx_packets"; }
# Waits until the program has met its peer, because before that it would wait for ever without a link.
# shellcheck disable=SC2317  # called through wait_until
flows() { [ $(($(rx_packets) - before)) -gt 100 ]; }

# load PROGRAM...: runs it between the guests in the background, and sets "process"
load() {
    before=$(rx_packets)
    if [ "$GUEST" = 1 ]; then
        timeout $((60 * TIME_FACTOR)) "$@" -d "$RDMA0" -x "$gid" -F >load.log 2>&1 &
        process=$!
        wait_for_port 18515
        barrier "load-$tests"
    else
        barrier "load-$tests"
        timeout $((60 * TIME_FACTOR)) "$@" -d "$RDMA0" -x "$gid" -F guest1 >load.log 2>&1 &
        process=$!
    fi
}

stdbuf -oL ibv_asyncwatch -d "$RDMA0" >events.log 2>&1 &
watch=$!
if [ "$GUEST" = 1 ]; then
    timeout $((60 * TIME_FACTOR)) iperf3 -s -1 >iperf.log 2>&1 &
    tcp=$!
    wait_for_port 5201
fi
# A transport timeout of a second (18) and seven retries outlast a second without a link.
load ib_write_bw -D 10 -u 18
[ "$GUEST" = 1 ] || { timeout $((60 * TIME_FACTOR)) iperf3 -c guest1 -t 10 >iperf.log 2>&1 & tcp=$!; }
sleep 4
wait_until 20 flows && kill -0 "$process" "$tcp"
together $? "RDMA and TCP traffic is running"
status=0
if [ "$GUEST" = 2 ]; then
    link false && wait_until 20 port_is DOWN && [ "$(cat "/sys/class/net/$NIC0/carrier")" = 0 ] && sleep 1 || status=1
    link true && wait_until 20 port_is ACTIVE || status=2
fi
together $status "the link and the port go down and up under load"
status=0
wait "$process" || { status=$?; show load.log; }
together $status "RDMA traffic outlasts a second without a link"
status=0
wait "$tcp" || { status=$?; show iperf.log; }
together $status "TCP traffic, too"
kill "$watch"
wait "$watch" 2>/dev/null
status=0
[ "$GUEST" = 1 ] || { grep -q PORT_ERR events.log && grep -q PORT_ACTIVE events.log; } || { status=1; show events.log; }
together $status "the monitoring process received both port events"

# With a timeout of 67 ms (14) the queue pair fails after less than a second.
load ib_write_bw -D 20 -u 14
wait_until 20 flows && kill -0 "$process"
together $? "RDMA traffic is running again"
status=0
if [ "$GUEST" = 2 ]; then
    link false
    wait "$process" && status=1
    grep -Eqi 'retry|status 12|Completion with error' load.log || status=2
    link true && wait_until 20 port_is ACTIVE || status=3
    [ $status = 0 ] || show load.log
fi
together $status "a queue pair fails after its retries"
kill "$process" 2>/dev/null
wait
pair "ibv_rc_pingpong with the link back" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -g $gid" "ibv_rc_pingpong -d $RDMA0 -c -g $gid guest1"
kernel_clean "the kernel logs are clean"
finish
