# Joins TCP segments that the device marks to one packet in guest 1: by IPv4 and IPv6, with tags, and with each MTU.
# Guest 1 also forwards joined packets to guest 2. No segments are joined if the feature is disabled. All received
# bytes are compared.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:link=cable --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

# stream.py receive PORT MIB | send HOST PORT MIB [SMALL]: SMALL is the maximum length of a piece
cat >stream.py <<'PYTHON'
import random, socket, sys
def block(i): return random.Random(i).randbytes(1 << 20)
def receive(port, count):
    with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        connection = server.accept()[0]
        for i in range(count):
            want, got = block(i), b""
            while len(got) < len(want) and (piece := connection.recv(len(want) - len(got))):
                got += piece
            if got != want:
                sys.exit(f"block {i} is another")
        connection.sendall(b"x")
def send(host, port, count, small=0):
    pieces = random.Random(host)
    with socket.create_connection((host, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(count):
            data = block(i)
            while data:
                length = pieces.randint(1, small) if small else len(data)
                connection.sendall(data[:length])
                data = data[length:]
        if connection.recv(1) != b"x":
            sys.exit("not all arrived")
globals()[sys.argv[1]](*(int(word) if word.isdigit() else word for word in sys.argv[2:]))
PYTHON

count() { ethtool -S "$NIC0" | awk -v name="$1:" '$1 == name { print $2 }'; }
feature() { ethtool -k "$NIC0" | grep "^ *rx-gro-hw: $1"; }
export -f count feature
# joined NAME HOST YES|no|off [SMALL]: guest 1 receives the data, and has (not) joined frames; off: the device marked
# none, either
joined() {
    local packets frames marked status=0
    packets=$(count rx_gro_hw_packets) frames=$(count rx_gro_hw_frames) marked=$(count eth_rx_continued)
    pair "$1" 5202 "python3 stream.py receive 5202 8" "python3 stream.py send $2 5202 8 $4"
    packets=$(($(count rx_gro_hw_packets) - packets)) frames=$(($(count rx_gro_hw_frames) - frames))
    marked=$(($(count eth_rx_continued) - marked))
    if [ "$GUEST" = 1 ]; then
        echo "# $frames frames in $packets packets, $marked marked"
        case $3 in
            yes) [ "$packets" -gt 50 ] && [ "$frames" -gt $((2 * packets)) ] ;;
            no) [ "$packets" = 0 ] && [ "$marked" -gt 50 ] ;;
            off) [ "$packets" = 0 ] && [ "$marked" = 0 ] ;;
        esac || status=1
    fi
    together $status "$1: joined: $3"
}
# one NAME COMMAND: runs the command in guest 1 while guest 2 waits
one() {
    local status=0
    [ "$GUEST" = 2 ] || timeout 30 bash -c "$2" >one.log 2>&1 || status=$?
    [ $status = 0 ] || show one.log
    together $status "$1"
}

both "the device joins" "feature on"
joined "IPv4" guest1 yes
joined "IPv6" guest1v6 yes
joined "pieces of any length" guest1 yes 20000
[ "$GUEST" = 1 ] || ethtool -K "$NIC0" tso off gso off
joined "frames that the kernel makes" guest1 yes
[ "$GUEST" = 1 ] || ethtool -K "$NIC0" tso on gso on

one "it can be turned off" "ethtool -K $NIC0 rx-gro-hw off && feature off"
joined "while it is off" guest1 off
one "and on again" "ethtool -K $NIC0 rx-gro-hw on && feature on"
one "without GRO it is off" "ethtool -K $NIC0 gro off && feature off"
joined "without GRO" guest1 off
one "without checksums, too" "ethtool -K $NIC0 gro on && feature on && ethtool -K $NIC0 rx off && feature off &&
    ethtool -K $NIC0 rx on && feature on"
one "new queues" "ethtool -G $NIC0 rx 128"
joined "with new queues" guest1 yes

# A tag that the device strips, and another type of tag, which stays in the frame
for strip in on off; do
    ip link add link "$NIC0" name tagged type vlan id 7
    ip addr add "10.78.0.$GUEST/24" dev tagged
    ip link set tagged up
    one "'rxvlan $strip'" "ethtool -K $NIC0 rxvlan $strip"
    joined "a tag with 'rxvlan $strip'" 10.78.0.1 "$([ $strip = on ] && echo yes || echo no)"
    ip link del tagged
done
[ "$GUEST" = 2 ] || ethtool -K "$NIC0" rxvlan on
both "MTU 9000" "ip link set $NIC0 mtu 9000"
joined "with MTU 9000" guest1 yes
joined "IPv6 with MTU 9000" guest1v6 yes
both "MTU 1500" "ip link set $NIC0 mtu 1500"

# Guest 1 forwards the frames of guest 2 from one VLAN to the other. There a namespace of guest 2 receives each frame
# as it was on the wire.
# shellcheck disable=SC2317  # called through one
near_and_far() {
    for id in 7 8; do
        ip link add link "$NIC0" name "tag$id" type vlan id $id
        ip link set "tag$id" up
    done
    if [ "$GUEST" = 2 ]; then
        ethtool -K "$NIC0" gro off rx off
        ip netns add far
        ip link set tag8 address 02:00:00:00:08:02
        ip link set tag8 netns far
        ip -n far link set tag8 up
    fi
}
near_and_far
# forwarded NAME HOST SEGMENTED: guest 2 sends to itself through guest 1
forwarded() {
    local frames segmented status=0 capture receiver
    frames=$(count rx_gro_hw_frames) segmented=$(count eth_tx_segmented)
    barrier "forward-$tests"
    if [ "$GUEST" = 2 ]; then
        ip netns exec far tcpdump -U -i tag8 -B 16384 -w far.pcap "tcp dst port 5203" 2>far.log &
        capture=$!
        wait_until 20 grep -q "listening on" far.log
        ip netns exec far timeout 60 python3 stream.py receive 5203 4 >receive.log 2>&1 &
        receiver=$!
        ip netns exec far bash -c ". /etc/qrnic/job-lib.sh; wait_for_port 5203 20"
        timeout 60 python3 stream.py send "$2" 5203 4 >send.log 2>&1 && wait $receiver || status=1
        sleep 1
        kill -INT $capture
        wait $capture
        [ $status = 0 ] || { show send.log; show receive.log; }
    fi
    together $status "$1"
    status=0
    frames=$(($(count rx_gro_hw_frames) - frames)) segmented=$(($(count eth_tx_segmented) - segmented))
    if [ "$GUEST" = 1 ]; then
        echo "# $frames frames joined, $segmented packets segmented by the device"
        [ $frames -gt 500 ] && case $3 in yes) [ $segmented -gt 50 ] ;; no) [ $segmented = 0 ] ;; esac || status=1
    else
        tcpdump -n -vv -e -r far.pcap >far.txt 2>/dev/null
        awk '/cksum 0x[0-9a-f]* \(correct\)/ { good++ } /incorrect|bad cksum|wrong/ { bad++ } /Flags \[P\.\]/ { pushed++ }
            match($0, / length [0-9]+: /) { n = substr($0, RSTART + 8) + 0; if (n > most) most = n }
            END { print "# guest2: " good " frames right, " bad + 0 " wrong, " pushed + 0 " with PSH, longest " most
                exit !(good > 2500 && !bad && pushed > 10 && most <= 1514) }' \
            far.txt || status=1
    fi
    together $status "$1: joined, and each forwarded frame is correct"
}
if [ "$GUEST" = 1 ]; then
    sysctl -q net.ipv4.ip_forward=1
    ip addr add 10.78.0.1/24 dev tag7
    ip addr add 10.79.0.1/24 dev tag8
else
    ip addr add 10.78.0.2/24 dev tag7
    ip route add 10.79.0.0/24 via 10.78.0.1
    ip -n far addr add 10.79.0.2/24 dev tag8
    ip -n far route add default via 10.79.0.1
fi
forwarded "guest 1 routes it" 10.79.0.2 yes
[ "$GUEST" = 2 ] || ethtool -K "$NIC0" tso off
forwarded "guest 1 routes it, and its kernel cuts it" 10.79.0.2 no
if [ "$GUEST" = 1 ]; then
    ethtool -K "$NIC0" tso on
    ip addr flush dev tag7
    ip addr flush dev tag8
    ip link add name bridge type bridge
    ip link set tag7 master bridge
    ip link set tag8 master bridge
    ip link set bridge up
else
    ip route del 10.79.0.0/24
    ip -n far addr flush dev tag8
    ip -n far addr add 10.78.0.3/24 dev tag8
fi
forwarded "guest 1 has a bridge" 10.78.0.3 yes
[ "$GUEST" = 2 ] || ip link del bridge
ip link del tag7
if [ "$GUEST" = 1 ]; then ip link del tag8; else ip netns del far; fi

# Makes the device report for each frame that it continues the frame before. The connection may fail, but the kernel
# must continue to work.
[ "$GUEST" = 1 ] || ethtool -K "$NIC0" gro on rx on
if [ "$GUEST" = 1 ]; then
    modprobe lie 2>lie.log && modprobe -r lie && lies=1
fi
barrier "lies" "${lies:-0}"
if [ "${BARRIER_VALUES%% *}" = 1 ]; then
    for continues in 1 54 66 255; do
        one "invalid: each frame continues another, $continues" "modprobe lie continues=$continues"
        if [ "$GUEST" = 2 ]; then
            timeout 3 iperf3 -c guest1 -t 1 >/dev/null 2>&1
        else
            timeout 4 iperf3 -s -1 >/dev/null 2>&1
        fi
        one "the device reported invalid values, and the kernel works" "[ \$(cat /sys/module/lie/parameters/told) -gt 0 ] && modprobe -r lie"
    done
    joined "with an honest device" guest1 yes
else
    skip "a device with invalid values" "this kernel has no module for it: $(tail -n 1 lie.log)"
fi
try "no errors" "ip -s -s link show $NIC0; for f in rx_errors tx_errors; do
    [ \$(cat /sys/class/net/$NIC0/statistics/\$f) = 0 ] || exit 1; done; [ \$(count queue_resets) = 0 ]"
kernel_clean "the kernel logs are clean"
finish
