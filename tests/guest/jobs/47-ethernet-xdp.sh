# Uses XDP on the Ethernet function of guest 1: programs pass, drop, return and redirect the frames of guest 2.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --cpus 2 --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

# Programs are assembled here from a few instructions, because the guest has no compiler: "r0 = ACTION; exit", and a
# redirect.
cat >load.py <<'PYTHON'
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, attribute):
    buffer = ctypes.create_string_buffer(attribute.ljust(144, b"\0"))
    result = libc.syscall(321, command, buffer, 144)
    if result < 0:
        sys.exit(f"bpf command {command}: {os.strerror(ctypes.get_errno())}")
    return result
def move(register, value): return struct.pack("<BBhi", 0xb7, register, 0, value)
end = struct.pack("<BBhi", 0x95, 0, 0, 0)
programs = {name: move(0, action) + end for action, name in enumerate(("aborted", "drop", "pass", "tx"))}
programs["redirect"] = move(1, int(sys.argv[1])) + move(2, 0) + struct.pack("<BBhi", 0x85, 0, 0, 23) + end
licence = ctypes.create_string_buffer(b"GPL")
for name, code in programs.items():
    text = ctypes.create_string_buffer(code)
    program = bpf(5, struct.pack("<IIQQ", 6, len(code) // 8, ctypes.addressof(text), ctypes.addressof(licence)))
    path = ctypes.create_string_buffer(f"/sys/fs/bpf/{name}".encode())
    bpf(6, struct.pack("<QI", ctypes.addressof(path), program))
PYTHON
count() { ethtool -S "$NIC0" | awk -v name="$1:" '$1 == name { print $2 }'; }
# attach NAME: sets the program of guest 1; "off" removes it
attach() {
    if [ "$1" = off ]; then
        ip link set dev "$NIC0" xdpdrv off
    else
        ip link set dev "$NIC0" xdpdrv pinned "/sys/fs/bpf/$1"
    fi
}
feature() { ethtool -k "$NIC0" | grep "^ *rx-gro-hw: $1"; }
export -f count attach feature
first() {
    local status=0 name=$1
    shift
    [ "$GUEST" != 1 ] || timeout $((30 * TIME_FACTOR)) bash -c "$*" >first.log 2>&1 || status=$?
    [ $status = 0 ] || show first.log
    together $status "$name"
}
# shellcheck disable=SC2317  # called through wait_until
returned() { [ "$(tcpdump -n -r back.pcap 2>/dev/null | grep -c "length 608")" -ge "$1" ]; }
# echoes ANSWERS BACK: prints the number of replies to 50 echo requests of guest 2, and the number of its own frames
# that return. The arguments are the expected numbers, for which a slow host gets time.
echoes() {
    if [ "$GUEST" = 2 ]; then
        tcpdump -U -n -Q in -i "$NIC0" -w back.pcap "icmp[icmptype] == icmp-echo and src guest2" 2>tcpdump.log &
        wait_until 20 grep -q "listening on" tcpdump.log
        answers=$(ping -q -c 50 -i 0.02 -W $((1 + $1)) -s 600 guest1 | awk '/received/ { print $4 }')
        wait_until 20 returned "$2"
        sleep 1
        kill -INT $!
        wait $!
        back=$(tcpdump -n -r back.pcap 2>/dev/null | grep -c "length 608")
        echo "# guest2: $answers replies, $back frames returned"
    fi
    barrier "echoes-$tests"
}
expect() {
    local status=0
    echoes "$2" "$3"
    [ "$GUEST" = 1 ] || { [ "$answers" = "$2" ] && [ "$back" = "$3" ]; } || status=1
    together $status "$1"
}

mount -t bpf bpf /sys/fs/bpf 2>/dev/null
# Waits until the neighbour entry exists, because a program that drops all frames also drops ARP requests.
# shellcheck disable=SC2317  # called through wait_until
peer_known() {
    known_peers "10.77.0.$PEER"
    address=$(ip neigh show "10.77.0.$PEER" | awk '{ for (i = 1; i < NF; i++) if ($i == "lladdr") print $(i + 1) }')
    [ "$address" ]
}
wait_until 20 peer_known
together $? "the peer's MAC address is known"
ip neigh replace "10.77.0.$PEER" lladdr "$address" dev "$NIC0" nud permanent
first "programs are loaded" "python3 load.py $(cat "/sys/class/net/$NIC0/ifindex") && ls /sys/fs/bpf"
first "frames may be joined" "feature on"
first "pass is attached to the driver, and frames are not joined any more" "attach pass &&
    ip -d link show $NIC0 | grep -q 'xdp.*id' && feature off"
before=$(count eth_rx_continued)
expect "pass: all is answered" 50 0
pair "pass: TCP" 5201 "iperf3 -s -1" "iperf3 -c guest1 -n 16M"
first "and none of its frames is marked" "[ \$(count eth_rx_continued) = $before ]"
pair "pass: TCP, the other direction" 5201 "iperf3 -s -1" "iperf3 -c guest1 -R -n 16M"
for program in drop tx redirect aborted; do
    counter=rx_xdp_$program
    [ $program != aborted ] || counter=rx_xdp_drop
    before=$(count $counter)
    first "$program replaces the former program" "attach off && attach $program"
    case $program in
        tx | redirect) expect "$program: each frame comes back, and none is answered" 0 50 ;;
        *) expect "$program: none is answered" 0 0 ;;
    esac
    first "$program: and is counted" "[ \$(count $counter) -ge $((before + 50)) ]"
done
# A program receives the frame as it was on the wire, including its tag, and sends it so.
ip link add link "$NIC0" name tagged type vlan id 7
ip addr add "10.78.0.$GUEST/24" dev tagged
ip link set tagged up
ip neigh replace "10.78.0.$PEER" lladdr "$address" dev tagged nud permanent
barrier tagged
both "without a program the device strips tags" "ethtool -k $NIC0 | grep '^rx-vlan-offload: on'"
first "tx is attached again" "attach off && attach tx"
status=0
if [ "$GUEST" = 2 ]; then
    tcpdump -U -n -e -Q in -i "$NIC0" -w tagged.pcap "vlan 7 and icmp" 2>tcpdump.log &
    wait_until 20 grep -q "listening on" tcpdump.log
    capture=$!
    tagged() { tcpdump -n -e -r tagged.pcap 2>/dev/null | grep -c "vlan 7,.*length 608"; }
    # shellcheck disable=SC2317  # called through wait_until
    all_tagged() { [ "$(tagged)" = 50 ]; }
    ping -q -c 50 -i 0.02 -W 1 -s 600 10.78.0.1 >/dev/null
    wait_until 20 all_tagged || status=1
    kill -INT $capture
    wait $capture
    echo "# guest2: $(tagged) returned with their tag"
    all_tagged || status=1
fi
together $status "tx: each frame returns with its tag"
ip link del tagged

status=0
if [ "$GUEST" = 1 ]; then
    for i in 1 2 3 4 5 6 7 8 9 10; do
        { attach off && attach tx && attach off && attach redirect && ethtool -G "$NIC0" rx $((256 << (i & 1))); } || status=1
    done
else
    ping -q -f -c 3000 -W 1 -w $((20 * TIME_FACTOR)) guest1 >/dev/null 2>&1
fi
together $status "programs and rings change under traffic"
first "an MTU of more than a page is rejected" "! ip link set $NIC0 mtu 9000"
first "off, and frames may be joined again" "attach off && feature on && ip link set $NIC0 mtu 9000 && ! attach pass && ip link set $NIC0 mtu 1500"
expect "off: all is answered" 50 0
try "no errors" "ip -s -s link show $NIC0; for f in rx_errors tx_errors; do
    [ \$(cat /sys/class/net/$NIC0/statistics/\$f) = 0 ] || exit 1; done; [ \$(count queue_resets) = 0 ]"
kernel_clean "the kernel logs are clean"
finish
