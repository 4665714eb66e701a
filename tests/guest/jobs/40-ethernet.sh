# Uses the Ethernet function between two guests: ping, jumbo frames, VLAN, TCP by iperf3.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --mtu 9000 --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

# Traces every work item that the driver queues from here on.
mkdir tracing && mount -t tracefs none tracing
queued=tracing/events/workqueue/workqueue_queue_work
echo 'workqueue ~ "qrnic*"' >$queued/filter && echo 1 >$queued/enable

both "ping" "ping -c 5 -i 0.2 -W 5 guest$PEER"
both "ping over IPv6" "ping -6 -c 5 -i 0.2 -W 5 guest${PEER}v6"
both "ping by link-local address and neighbour discovery" \
    "ping -6 -c 2 -W 5 ff02::1%$NIC0 && ip -6 neigh show dev $NIC0 | grep -q lladdr"
both "jumbo frames pass unfragmented" "ping -c 3 -i 0.2 -W 5 -M do -s 8972 guest$PEER"
both "a fragmented datagram of 60000 bytes" "ping -c 3 -i 0.2 -W 5 -s 60000 guest$PEER"
ip link add link "$NIC0" name vlan7 type vlan id 7
ip addr add "10.78.0.$GUEST/24" dev vlan7
ip link set vlan7 up
barrier vlan
both "ping over a VLAN" "ping -c 3 -i 0.2 -W 5 10.78.0.$PEER"
ip link del vlan7
# Tests full-size frames with a service tag (802.1ad) and an inner tag, because each tag makes the frame longer.
ip link add link "$NIC0" name service8 type vlan proto 802.1ad id 8
ip link add link service8 name inner9 type vlan id 9
ip addr add "10.79.0.$GUEST/24" dev service8
ip addr add "10.80.0.$GUEST/24" dev inner9
ip link set service8 up
ip link set inner9 up
barrier service
both "full-size frames with a service tag" "ping -c 3 -i 0.2 -W 5 -M do -s 8972 10.79.0.$PEER"
both "full-size frames with two tags" "ping -c 3 -i 0.2 -W 5 -M do -s 8972 10.80.0.$PEER"
ip link del service8
pair "iperf3 over TCP" 5201 "iperf3 -s -1" "iperf3 -c guest1 -t 5 && ! iperf3 -c guest1 -t 1 >/dev/null 2>&1"
pair "iperf3 over TCP, the other direction" 5201 "iperf3 -s -1" "iperf3 -c guest1 -t 5 -R"
pair "iperf3 over TCP, IPv6" 5201 "iperf3 -s -1" "iperf3 -6 -c guest1v6 -t 3"
# Each datagram of guest 2 arrives, or guest 1 counts it as lost. The device counts it if there is no receive WQE, the
# kernel if the socket is full. A slow guest reads the datagrams more slowly. Data that the receiver has not read when
# it closes its socket is not counted.
datagrams() { awk -v which="$1" '/^Udp:/ { if (!n++) split($0, name); else for (i in name) if (name[i] == which) print $i }' /proc/net/snmp; }
dropped() { ethtool -S "$NIC0" | awk '$1 == "eth_rx_no_queue:" { print $2 }'; }
# NoPorts counts datagrams that arrive after the server has ended.
rejected() { echo $(($(datagrams InErrors) + $(datagrams NoPorts))); }
in=$(datagrams InDatagrams) errors=$(rejected) out=$(datagrams OutDatagrams) no_queue=$(dropped)
pair "iperf3 over UDP" 5201 "iperf3 -s -1" "iperf3 -u -b $((20000 / TIME_FACTOR))K -c guest1 -t $((3 * TIME_FACTOR))"
sent=$(($(datagrams OutDatagrams) - out)) arrived=$(($(datagrams InDatagrams) - in))
lost=$(($(rejected) - errors + $(dropped) - no_queue))
barrier datagrams "$sent"
status=0
if [ "$GUEST" = 1 ]; then
    sent=${BARRIER_VALUES#* }
    echo "# UDP: $sent datagrams sent, $arrived arrived, $lost lost and counted"
    [ "$sent" -gt 500 ] && [ $((arrived + lost)) = "$sent" ] && [ $((2 * arrived)) -gt "$sent" ] || status=1
fi
together $status "no datagram is lost without being counted"
for feature in "tx off" "rx off" "tx on rx on"; do
    both "offloads '$feature' can be set" "ethtool -K $NIC0 $feature && ethtool -k $NIC0 >offloads && set -- $feature &&
        while [ \$# -gt 0 ]; do grep -q \"^\$1-checksumming: \$2\" offloads || { cat offloads; exit 1; }; shift 2; done"
    pair "TCP with offloads '$feature'" 5201 "iperf3 -s -1" "iperf3 -c guest1 -n 4M"
done
ip link set "$NIC0" mtu 1500
barrier mtu
pair "TCP after a change of MTU" 5201 "iperf3 -s -1" "iperf3 -c guest1 -n 4M"
both "a changed MAC address works" "ip link set $NIC0 down && ip link set $NIC0 address 52:54:00:99:00:0$GUEST &&
    ip link set $NIC0 up && ip addr replace fd77::$GUEST/64 dev $NIC0; sleep 1; ping -c 3 -i 0.2 -W 5 guest$PEER"
both "no errors counted" "ip -s -s link show $NIC0; for f in rx_errors tx_errors rx_crc_errors; do
    [ \$(cat /sys/class/net/$NIC0/statistics/\$f) = 0 ] || exit 1; done"
# Frames that are longer than guest 1 accepts are counted by its device only.
if [ "$GUEST" = 2 ]; then
    ip link set "$NIC0" mtu 9000
    ping -c 3 -i 0.2 -W 1 -M "do" -s 4000 guest1 >/dev/null 2>&1
fi
barrier long
too_long() { [ "$(cat "/sys/class/net/$NIC0/statistics/rx_length_errors")" -ge 3 ]; }
export -f too_long
status=0
[ "$GUEST" = 2 ] || wait_until 20 too_long || { status=1; ip -s -s link show "$NIC0" | sed 's/^/# /'; }
together $status "frames that the device drops are counted for the netdev"
# Writeback may use RDMA, so the workqueue of events must wait neither for RTNL nor for memory.
ip link set "$NIC0" down
ip link set "$NIC0" up
echo 0 >$queued/enable
sed -n 's/.*function=\([a-z_]*\).* workqueue=\(qrnic[a-z-]*\)-.*/\2 \1/p' tracing/trace | sort | uniq -c >work.log
umount tracing
both "events have a workqueue of their own" "cat work.log; grep -q ' qrnic-events qrnic_event_work$' work.log &&
    ! grep ' qrnic-events ' work.log | grep -vE ' (qrnic_event_work|qrnic_health_work|qrnic_flush_work)$' &&
    grep -q ' qrnic qrnic_filter_work$' work.log && grep -q ' qrnic qrnic_eth_drops_work$' work.log"
kernel_clean "the kernel logs are clean"
finish
