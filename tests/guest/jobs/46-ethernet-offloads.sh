# Checks offloads of the Ethernet function that ethtool controls: segmentation of TCP by the device, verified by
# tcpdump, and moderation of interrupts.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

count() { ethtool -S "$NIC0" | awk -v name="$1:" '$1 == name { print $2 }'; }
export -f count

# Offloads are disabled in guest 1, so that tcpdump sees and verifies each frame as it was on the wire.
[ "$GUEST" != 1 ] || ethtool -K "$NIC0" gro off rx off
# transfer NAME CLIENT...: guest 2 sends, and guest 1 captures the frames to wire.log
transfer() {
    local name=$1 capture
    shift
    if [ "$GUEST" = 1 ]; then
        tcpdump -U -i "$NIC0" -B 16384 -w wire.pcap "tcp dst port 5201 or (vlan and tcp dst port 5201)" 2>tcpdump.log &
        capture=$!
        wait_until 20 grep -q "listening on" tcpdump.log
    fi
    pair "$name" 5201 "iperf3 -s -1" "$*"
    if [ "$GUEST" = 1 ]; then
        sleep 1
        kill -INT $capture
        wait $capture
        tcpdump -n -vv -e -r wire.pcap >wire.log 2>/dev/null
    fi
}
# Each captured frame has valid checksums, and none is longer than the MTU.
looked_at() {
    try "$1: each frame has valid checksums" "[ $GUEST = 2 ] || [ \$(grep -c 'cksum 0x[0-9a-f]* (correct)' wire.log) -gt 500 ] &&
        { [ $GUEST = 2 ] || ! grep -m 3 -i 'incorrect\|bad cksum\|wrong' wire.log; }"
    try "$1: no frame is too long" "[ $GUEST = 2 ] || awk 'match(\$0, / length [0-9]+: /) { n = substr(\$0, RSTART + 8) + 0; if (n > most) most = n }
        END { print most; exit !(most > 1400 && most <= $2) }' wire.log"
}
# sent NAME BEFORE YES|no: guest 2 has (not) passed several frames to the device as one
sent() {
    local status=0
    [ "$GUEST" = 1 ] || { [ "$(count eth_tx_segmented)" -gt "$2" ] && [ "$3" = yes ]; } ||
        { [ "$(count eth_tx_segmented)" = "$2" ] && [ "$3" = no ]; } || status=1
    together $status "$1"
}

before=$(count eth_tx_segmented)
transfer "TCP" "iperf3 -c guest1 -n 4M"
looked_at "TCP" 1514
sent "the device has cut it into frames" "$before" yes
before=$(count eth_tx_segmented)
transfer "TCP over IPv6" "iperf3 -6 -c guest1v6 -n 4M"
looked_at "TCP over IPv6" 1514
sent "the device has cut it into frames, too" "$before" yes
[ "$GUEST" = 1 ] || ethtool -K "$NIC0" tso off
before=$(count eth_tx_segmented)
transfer "TCP with 'tso off'" "iperf3 -c guest1 -n 4M"
looked_at "TCP with 'tso off'" 1514
sent "the kernel has cut it into frames" "$before" no
[ "$GUEST" = 1 ] || ethtool -K "$NIC0" tso on
# Three kinds of tags: inserted by the device, written by the kernel, and of a type after which the device does not
# parse
for how in "802.1Q on yes" "802.1Q off yes" "802.1ad on no"; do
    read -r proto insert segmented <<<"$how"
    ethtool -K "$NIC0" txvlan "$insert"
    ip link add link "$NIC0" name tagged type vlan proto "$proto" id 7
    ip addr add "10.78.0.$GUEST/24" dev tagged
    ip link set tagged up
    before=$(count eth_tx_segmented)
    barrier "tagged-$proto-$insert"
    pair "TCP with a tag of $proto, 'txvlan $insert'" 5201 "iperf3 -s -1" "iperf3 -c 10.78.0.1 -n 4M"
    sent "it was cut by the device: $segmented" "$before" "$segmented"
    ip link del tagged
done

# An event waits for a millisecond or 32 frames, so there are fewer events than frames, and replies to ping are late.
events() { awk '/qrnic-comp/ { sum += $2 } END { print sum }' /proc/interrupts; }
quickest() { ping -c 20 -i 0.02 -W 5 "guest$PEER" | awk -F'[=/]' '/^rtt/ { print int($5 * 1000) }'; }
# quick: a reply came in less than 3 ms. The tests wait for it, because the host may delay all replies of one call.
quick() { local time; time=$(quickest) && [ "${time:-3000}" -lt 3000 ]; }
export -f events quickest quick wait_until
frames() { ethtool -S "$NIC0" | awk '/ eth_[rt]x_packets:/ { sum += $2 } END { print sum }'; }
ratio() {
    local events frames
    events=$(events) frames=$(frames)
    pair "TCP with '$1'" 5201 "iperf3 -s -1" "iperf3 -c guest1 -t 2"
    events=$(($(events) - events)) frames=$(($(frames) - frames))
    echo "# $1: $events interrupts for $frames frames"
}
says() { ethtool -c "$NIC0" | tr -s '\t ' ' ' | grep -q "^$1$"; }
export -f says
both "without moderation" "says 'Adaptive RX: off TX: off' && says 'rx-usecs: 0' && says 'tx-frames: 0'"
both "moderation is set" "ethtool -C $NIC0 rx-usecs 3000 rx-frames 32 tx-usecs 3000 && says 'rx-usecs: 3000' && says 'rx-frames: 32'"
barrier moderated
both "an event is delayed" "t=\$(quickest); echo \$t; [ \$t -ge 3000 ]"
ratio "rx-usecs 3000 rx-frames 32"
both "the queues are replaced with it" "ethtool -G $NIC0 rx 256 && says 'rx-frames: 32' && t=\$(quickest) && echo \$t && [ \$t -ge 3000 ]"
both "a limit of frames without a time, and values above the limits, are rejected" "! ethtool -C $NIC0 rx-usecs 0 rx-frames 8 &&
    ! ethtool -C $NIC0 rx-usecs 65536 && ! ethtool -C $NIC0 tx-frames 100000 && says 'rx-usecs: 3000'"
both "DIM is turned on" "ethtool -C $NIC0 adaptive-rx on adaptive-tx on && says 'Adaptive RX: on TX: on'"
ratio "adaptive-rx on adaptive-tx on"
both "DIM has chosen a shorter delay than was set" "for i in 1 2 3 4 5 6 7 8; do ping -q -f -c 300 guest$PEER >/dev/null; done
    wait_until 20 quick"
both "moderation is turned off" "ethtool -C $NIC0 adaptive-rx off adaptive-tx off rx-usecs 0 rx-frames 0 tx-usecs 0 tx-frames 0 &&
    wait_until 20 quick"
[ -z "$RDMA0" ] || try "CQs of the kernel follow their traffic" "rdma dev show $RDMA0 -d | grep -q 'adaptive-moderation on'"
try "no errors" "ip -s -s link show $NIC0; for f in rx_errors tx_errors; do
    [ \$(cat /sys/class/net/$NIC0/statistics/\$f) = 0 ] || exit 1; done; [ \$(count queue_resets) = 0 ]"
kernel_clean "the kernel logs are clean"
finish
