# Uses several channels of the Ethernet function. RSS distributes flows over them, and ethtool changes their number
# and the distribution under traffic.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: dma-failed
# guest: --guests 2 --nic qrnic --cpus 2 --timeout 900
# files: verbs/queue_stats.py
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

count() { ethtool -S "$NIC0" | awk -v name="$1:" '$1 == name { print $2 }'; }
channels() { ethtool -l "$NIC0" | awk '/^Combined:/ { print $2 }' | tail -n 1; }
# Prints the rings in the entries of the table.
named() { ethtool -x "$NIC0" | awk '/^ *[0-9]+:/ { for (i = 2; i <= NF; i++) if (!seen[$i]++) print $i }' | sort | xargs; }
export -f count channels named
# spread NAME CLIENT RINGS: the flows of guest 2 arrive in these rings of guest 1 ("0 1"), and in no other
spread() {
    local rx0 rx1 status=0
    rx0=$(count rx0_packets) rx1=$(count rx1_packets)
    pair "$1" 5201 "iperf3 -s -1" "$2"
    rx0=$(($(count rx0_packets) - rx0)) rx1=$(($(count rx1_packets) - rx1))
    if [ "$GUEST" = 1 ]; then
        echo "# $1: $rx0 frames in ring 0, $rx1 in ring 1"
        case $3 in
            "0 1") [ $rx0 -ge 50 ] && [ $rx1 -ge 50 ] || status=1 ;;
            0) [ $rx0 -ge 100 ] && [ $rx1 = 0 ] || status=1 ;;
            1) [ $rx0 = 0 ] && [ $rx1 -ge 100 ] || status=1 ;;
            one) [ $((rx0 + rx1)) -ge 100 ] && { [ $rx0 -lt 50 ] || [ $rx1 -lt 50 ]; } || status=1 ;;
        esac
    fi
    together $status "$1: into $3"
}
flows="iperf3 -c guest1 -P 16 -n 16M"

both "a ring pair for each processor" "ethtool -l $NIC0; [ \$(channels) = 2 ] && [ \$(ls -d /sys/class/net/$NIC0/queues/?x-* | wc -l) = 4 ]"
both "each processor sends through its own channel" "cd /sys/class/net/$NIC0/queues && [ \$((16#\$(cat tx-0/xps_cpus))) = 1 ] && [ \$((16#\$(cat tx-1/xps_cpus))) = 2 ]"
both "each channel has its vector on another processor" "grep qrnic-comp /proc/interrupts; for irq in \$(awk '/qrnic-comp/ { print \$1 + 0 }' /proc/interrupts); do
    cat /proc/irq/\$irq/smp_affinity_list; done | sort -u | xargs | grep -x '0 1'"
both "the table contains both rings" "ethtool -x $NIC0 && [ \"\$(named)\" = '0 1' ] && ethtool -x $NIC0 | grep -q 'toeplitz: on'"
both "the stack receives the hash" "ethtool -k $NIC0 | grep -q '^receive-hashing: on'"
# Each boot has another random key, and some keys direct flows whose ports differ in few bits to one ring. With these
# two keys the first differing bits of the ports decide.
key=0b:30:55:7a:9f:c4:e9:0e:33:58:7d:a2:c7:ec:11:36:5b:80:a5:ca:ef:14:39:5e:83:a8:cd:f2:17:3c:61:86:ab:d0:f5:1a:3f:64:89:ae
both "a hash key is set" "ethtool -X $NIC0 hkey $key && ethtool -x $NIC0 | grep -q ^$key"
tx0=$(count tx0_packets) tx1=$(count tx1_packets)
spread "flows of TCP" "$flows" "0 1"
status=0
[ "$GUEST" = 1 ] || { [ "$(count tx0_packets)" -gt $((tx0 + 50)) ] && [ "$(count tx1_packets)" -gt $((tx1 + 50)) ]; } || status=1
together $status "they have been sent from both rings"
spread "flows of TCP over IPv6" "iperf3 -6 -c guest1v6 -P 16 -n 16M" "0 1"
spread "a flow by itself" "iperf3 -c guest1 -n 4M" one

both "weights" "ethtool -X $NIC0 weight 1 0 && [ \"\$(named)\" = 0 ]"
spread "flows of TCP with 'weight 1 0'" "$flows" 0
both "weights, the other ring" "ethtool -X $NIC0 weight 0 1 && [ \"\$(named)\" = 1 ]"
spread "flows of TCP with 'weight 0 1'" "$flows" 1
both "a ring in the table cannot be removed" "! ethtool -L $NIC0 combined 1 && [ \$(channels) = 2 ]"
both "the table is unchanged" "ethtool -X $NIC0 default && [ \"\$(named)\" = '0 1' ]"
key=4d:52:57:5c:61:66:6b:70:75:7a:7f:84:89:8e:93:98:9d:a2:a7:ac:b1:b6:bb:c0:c5:ca:cf:d4:d9:de:e3:e8:ed:f2:f7:fc:01:06:0b:10
both "another hash key is set" "ethtool -X $NIC0 hkey $key && ethtool -x $NIC0 | grep -q ^$key"
spread "flows of TCP with the other key" "$flows" "0 1"
both "another hash function is rejected" "! ethtool -X $NIC0 hfunc xor && ! ethtool -X $NIC0 equal 3"
both "ports of UDP are not hashed" "! ethtool -n $NIC0 rx-flow-hash udp4 | grep -q 'L4 bytes' && ethtool -n $NIC0 rx-flow-hash tcp6 | grep -q 'L4 bytes'"
datagrams="iperf3 -u -b 100K -l 1000 -P 16 -c guest1 -t 3"
spread "flows of UDP" "$datagrams" one
both "ports of UDP are hashed" "ethtool -N $NIC0 rx-flow-hash udp4 sdfn && ethtool -n $NIC0 rx-flow-hash udp4 | grep -q 'L4 bytes'"
spread "flows of UDP, by their ports" "$datagrams" "0 1"
both "fields that the device cannot hash are rejected" "! ethtool -N $NIC0 rx-flow-hash udp4 sf && ! ethtool -N $NIC0 rx-flow-hash udp4 v && ! ethtool -N $NIC0 rx-flow-hash ip4 sdfn"

both "one ring pair" "ethtool -L $NIC0 combined 1 && [ \$(channels) = 1 ] && ping -c 3 -i 0.2 -W 5 guest$PEER && [ \"\$(named)\" = 0 ]"
spread "flows of TCP with one ring pair" "$flows" 0
both "two ring pairs again, while the netdev is down" "ip link set $NIC0 down && ethtool -L $NIC0 combined 2 && ethtool -X $NIC0 equal 2 && ip link set $NIC0 up &&
    ip addr replace fd77::$GUEST/64 dev $NIC0 && wait_until 20 grep -q 1 /sys/class/net/$NIC0/carrier"
both "ping" "ping -c 3 -i 0.2 -W 5 guest$PEER && ethtool -X $NIC0 default"
spread "flows of TCP with two again" "$flows" "0 1"

# pktgen bypasses the stack, and continues to send through a queue that was removed.
pktgen() { echo "$2" >"/proc/net/pktgen/$1"; }
has_sent() { [ "$(count tx1_packets)" -gt "$1" ]; }
# shellcheck disable=SC2317  # called through wait_until
has_dropped() { [ "$(cat "/sys/class/net/$NIC0/statistics/tx_dropped")" -gt "$1" ]; }
gone_queue() {
    local setting dropped generator status=0
    modprobe pktgen && pktgen kpktgend_0 "add_device $NIC0" || return
    for setting in "count 0" "clone_skb 1000000" "delay 100000" "queue_map_min 1" "queue_map_max 1" \
        "dst_mac 52:54:00:00:00:01" "dst 10.77.0.99"; do
        pktgen "$NIC0" "$setting" || return
    done
    setting=$(count tx1_packets)
    pktgen pgctrl start &
    generator=$!
    wait_until 20 has_sent $((setting + 20)) || status=1
    dropped=$(cat "/sys/class/net/$NIC0/statistics/tx_dropped")
    ethtool -L "$NIC0" combined 1 || status=2
    wait_until 20 has_dropped $((dropped + 200)) || status=3
    ethtool -L "$NIC0" combined 2 || status=4
    pktgen pgctrl stop
    wait $generator
    modprobe -r pktgen && ping -c 3 -i 0.2 -W 5 "guest$PEER" || status=5
    return $status
}
status=0
gone_queue >gone.log 2>&1 || { status=$?; show gone.log; }
together $status "frames for a removed queue are dropped"

# The process that opens an interface may wait for memory for the receive buffers.
# shellcheck disable=SC2317  # called through both
fill_waits() {
    local tracing=/sys/kernel/tracing status=0
    mountpoint -q "$tracing" || mount -t tracefs none "$tracing" || return 1
    echo 'p:fill page_pool_alloc_pages gfp=%si' >"$tracing"/kprobe_events || return 2
    echo 1 >"/proc/sys/net/ipv6/conf/$NIC0/keep_addr_on_down"
    ip link set "$NIC0" down
    echo 1 >"$tracing"/events/kprobes/fill/enable
    ip link set "$NIC0" up
    echo 0 >"$tracing"/events/kprobes/fill/enable
    grep -E '^ +ip-[0-9]+ .*gfp=' "$tracing"/trace >fill.log
    [ "$(grep -c . fill.log)" -ge 64 ] || status=3
    # Bit 10 is __GFP_DIRECT_RECLAIM.
    grep -vE 'gfp=0x[0-9a-f]*[4-7c-f][0-9a-f]{2}$' fill.log && status=4
    [ "$status" = 0 ] || head -n 5 fill.log
    echo >"$tracing"/kprobe_events
    echo >"$tracing"/trace
    wait_until 20 nic_has_gid "$NIC0"
    return "$status"
}
export -f fill_waits nic_has_gid
both "the first receive buffers may wait for memory" fill_waits
both "netlink has the statistics and the interrupts of queues" "wait_until 20 ping -c 1 -W 1 guest$PEER && python3 /etc/qrnic/queue_stats.py $NIC0"

# A change that fails leaves the former queues. The kernel makes the change fail at the beginning, in the middle and
# at the end.
if modprobe refuse symbol=page_pool_create error=-12 times=0 2>refuse.log; then
    for symbol in netif_set_real_num_queues page_pool_create xdp_rxq_info_reg_mem_model; do
        both "a change that fails in $symbol" "modprobe -r refuse && modprobe refuse symbol=$symbol error=-12 times=1 &&
            ! ethtool -L $NIC0 combined 1 && [ \$(channels) = 2 ] && [ \$(cat /sys/module/refuse/parameters/times) = 0 ] && ping -c 3 -i 0.2 -W 5 guest$PEER"
    done
    modprobe -r refuse
    spread "flows of TCP afterwards" "$flows" "0 1"
else
    skip "changes that fail" "this kernel has no module for it: $(tail -n 1 refuse.log)"
fi

# All changes are made under traffic, and RDMA continues.
gid=$(gid_index "$RDMA0" 4)
if [ "$GUEST" = 1 ]; then
    iperf3 -s -1 >iperf.log 2>&1 &
    load=$!
    ibv_rc_pingpong -d "$RDMA0" -g "$gid" -n 5000 >pingpong.log 2>&1 &
    rdma=$!
    wait_for_port 5201 && wait_for_port 18515
    barrier traffic
    sleep 1
    status=0
    for i in 1 2 3 4 5; do
        { ethtool -L "$NIC0" combined 1 && ethtool -L "$NIC0" combined 2 && ethtool -X "$NIC0" weight 1 3 &&
            ethtool -G "$NIC0" rx $((256 << (i & 1))) && ethtool -X "$NIC0" default && ethtool -N "$NIC0" rx-flow-hash udp4 sd &&
            ip link set "$NIC0" promisc on && ip link set "$NIC0" promisc off && sleep 0.5; } >>change.log 2>&1 || status=1
    done
    [ $status = 0 ] || show change.log
else
    barrier traffic
    status=0
    iperf3 -c guest1 -P 4 -t 8 >iperf.log 2>&1 &
    load=$!
    ibv_rc_pingpong -d "$RDMA0" -g "$gid" -n 5000 guest1 >pingpong.log 2>&1 &
    rdma=$!
fi
together $status "rings, table and filter change under traffic"
bounded $((60 * TIME_FACTOR)) wait_until $((60 * TIME_FACTOR)) process_ended $load
wait $load || { status=$?; show iperf.log; }
together $status "TCP continues"
wait_until $((60 * TIME_FACTOR)) process_ended $rdma
wait $rdma || { status=$?; show pingpong.log; }
together $status "RDMA continues"
both "ping afterwards" "ping -c 3 -i 0.2 -W 5 guest$PEER && ping -6 -c 3 -i 0.2 -W 5 guest${PEER}v6"
spread "flows of TCP afterwards, too" "$flows" "0 1"
try "no errors" "ip -s -s link show $NIC0; for f in rx_errors tx_errors; do
    [ \$(cat /sys/class/net/$NIC0/statistics/\$f) = 0 ] || exit 1; done; [ \$(count queue_resets) = 0 ]"

# Resets the device, and unloads the module, while both rings receive flows.
if [ "$GUEST" = 1 ]; then
    iperf3 -s >iperf.log 2>&1 &
    load=$!
    wait_for_port 5201
    barrier unload
    sleep 2
else
    barrier unload
    iperf3 -c guest1 -P 8 -t 60 >iperf.log 2>&1 &
    load=$!
    sleep 2
fi
status=0
# shellcheck disable=SC2317  # called through wait_until
works() { ping -c 1 -W 2 "guest$PEER" >/dev/null; }
# shellcheck disable=SC2317
recovered() { dmesg | grep -q 'qrnic.*: recovered'; }
if [ "$GUEST" = 1 ]; then
    nic_fail "$NIC0"
    wait_until 30 recovered && wait_until 30 works && [ "$(channels)" = 2 ] || status=1
fi
together $status "a reset of the device under load"
status=0
[ "$GUEST" = 2 ] || { bounded 30 modprobe -r qrnic_ib && bounded 30 modprobe -r qrnic; } || status=$?
together $status "the modules are unloaded under load"
kill -KILL $load
wait $load 2>/dev/null
status=0
[ "$GUEST" = 2 ] || { bounded 60 modprobe qrnic && bounded 60 modprobe qrnic_ib && nic_setup && nic_export && wait_until 30 works; } || status=$?
together $status "they are back"
spread "flows of TCP with the module loaded again" "$flows" "0 1"
kernel_clean "the kernel logs are clean"
finish
