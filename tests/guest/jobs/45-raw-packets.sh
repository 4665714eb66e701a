# Uses raw packet queue pairs and flow rules: perftest between two guests while the network is used. A sniffer rule
# receives RoCEv2, and tcpdump shows it.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed cq-overrun
# guest: --guests 2 --nic qrnic --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
TRY_TIMEOUT=$((60 * TIME_FACTOR))
barrier mac "$(cat "/sys/class/net/$NIC0/address")"
read -r mac1 mac2 <<<"$BARRIER_VALUES"

counter() { ethtool -S "$NIC0" | awk -v name="$1:" '$1 == name { print $2 }'; }
raw_queue_pairs() { rdma resource show qp link "$RDMA0/1" | grep 'type RAW_PACKET'; }
# Prints the number of flow rules that were created since the start of the job.
tracing=/sys/kernel/debug/tracing
try "the creation of flow rules can be traced" "echo 'r:qrnic/flow qrnic_ib:qrnic_ib_create_flow' >$tracing/kprobe_events &&
    echo 1 >$tracing/events/qrnic/flow/enable"
rules() { awk '$1 == "flow" { print $2 }' $tracing/kprobe_profile; }
# until_rule COUNT: waits for one more rule, which a receiver creates directly before it waits for frames
# shellcheck disable=SC2317  # called through wait_until
more_rules() { [ "$(rules)" -gt "$1" ]; }
until_rule() { wait_until 20 more_rules "$1"; }

# raw NAME PROGRAM OPTION...: runs a server in guest 1 and a client in guest 2. The programs have no connection but
# the frames. So all frames must fit into the receive queue, and the server must have its rule before the first frame.
raw() {
    local name=$1 program=$2 status=0 server made
    shift 2
    if [ "$GUEST" = 1 ]; then
        made=$(rules)
        timeout "$TRY_TIMEOUT" "$program" --server -d "$RDMA0" -B "$mac1" -E "$mac2" -F "$@" >raw.log 2>&1 &
        server=$!
        until_rule "$made" || status=98
        barrier "raw-$tests"
        wait $server || status=$?
    else
        barrier "raw-$tests"
        timeout "$TRY_TIMEOUT" "$program" --client -d "$RDMA0" -B "$mac2" -E "$mac1" -F "$@" >raw.log 2>&1 || status=$?
    fi
    [ $status = 0 ] || show raw.log
    together $status "$name"
}

ipv4=(-J 10.99.0.1 -j 10.99.0.2 -K 2000 -k 1000)
ipv6=(--raw_ipv6 -J fd99::1 -j fd99::2 -K 2000 -k 1000)
raw "raw_ethernet_bw" raw_ethernet_bw -n 500 -s 1024
raw "raw_ethernet_bw, UDP over IPv4" raw_ethernet_bw -n 500 -s 1024 "${ipv4[@]}"
raw "raw_ethernet_bw, TCP over IPv6" raw_ethernet_bw -n 500 -s 1024 "${ipv6[@]}" --tcp
raw "raw_ethernet_bw with tags" raw_ethernet_bw -n 500 -s 1024 --vlan_en
raw "raw_ethernet_bw, the longest frames" raw_ethernet_bw -n 500 -s 1514
raw "raw_ethernet_lat" raw_ethernet_lat -n 1000 -s 64
raw "raw_ethernet_lat, UDP over IPv6" raw_ethernet_lat -n 1000 -s 512 "${ipv6[@]}"
rate() {
    raw_ethernet_fs_rate "$1" -d "$RDMA0" -B "$mac1" -E "$mac2" -J 10.99.0.1 -j 10.99.0.2 -K 2000 -k 1000 -n 500 -F
}
if [ "$GUEST" = 1 ]; then
    rate --server >rate.log 2>&1 && grep -Eq '^ *500 ' rate.log
    result $? "raw_ethernet_fs_rate: 500 rules"
    try "the rules received the frames" "[ $(counter flow_rx_packets) -ge 4500 ]"
    try "the provider's test of raw packets" "set -o pipefail; qrnic-packet-test $RDMA0 | tee packet.log && ! grep SKIP packet.log"
    try "the provider's test of flags" "set -o pipefail; qrnic-flags-test $RDMA0 | tee flags.log && ! grep SKIP flags.log"
    raw_queue_pairs >left.log
    result $((! $?)) "no queue pair is left"
else
    tests=$((tests + 5))
fi

# captured NAME GID: captures by a sniffer rule and by tcpdump at the network interface at the same time
captured() {
    local name=$1 gid=$2 sniffer network status=0
    if [ "$GUEST" = 1 ]; then
        roce_capture -d "$RDMA0" >sniffer.pcap 2>sniffer.log &
        sniffer=$!
        tcpdump -U -i "$NIC0" -w network.pcap udp port 4791 2>network.log &
        network=$!
        timeout $((20 * TIME_FACTOR)) bash -c 'until grep -q capturing sniffer.log && grep -q listening network.log; do sleep 0.1; done'
    fi
    pair "$name: ibv_rc_pingpong works as without" 18515 "ibv_rc_pingpong -d $RDMA0 -g $gid -n 20 -s 512 -c" \
        "ibv_rc_pingpong -d $RDMA0 -g $gid -n 20 -s 512 -c guest1"
    if [ "$GUEST" = 1 ]; then
        kill $sniffer $network
        wait $sniffer || status=$?
        wait $network
        # There must be 80 packets: 20 messages in each direction, each with an acknowledgement.
        tcpdump -n -r sniffer.pcap udp port 4791 >packets.log 2>&1
        [ "$(grep -c 'UDP' packets.log)" -ge 80 ] || status=1
        [ $status = 0 ] || show packets.log
        result $status "$name: tcpdump shows the packets, both ways"
        tcpdump -n -r network.pcap >network.log 2>&1
        try "$name: the kernel has received none" "! grep UDP network.log"
        try "$name: with their neighbours' frames" "tcpdump -n -r sniffer.pcap tcp port 18515 | grep -q 'Flags \[S\]'"
    else
        tests=$((tests + 3))
    fi
}
captured "a sniffer" "$gid4"
captured "a sniffer, IPv6" "$gid6"

# A program that receives all frames of one kind leaves the other frames to the network.
if [ "$GUEST" = 1 ]; then
    made=$(rules)
    timeout $((100 * TIME_FACTOR)) raw_ethernet_bw --server -d "$RDMA0" -B "$mac1" -E "$mac2" -F -n 500 -s 64 "${ipv4[@]}" >raw.log 2>&1 &
    taker=$!
    until_rule "$made"
    result $? "a rule for others is in force"
else
    tests=$((tests + 1))
fi
both "ping beside a rule for others" "ping -c 3 -i 0.2 -W 5 guest$PEER"
if [ "$GUEST" = 1 ]; then
    kill "$taker"
    wait "$taker"
fi
both "and after it is killed" "ping -c 3 -i 0.2 -W 5 guest$PEER"
kernel_clean "the kernel logs are clean"
finish
