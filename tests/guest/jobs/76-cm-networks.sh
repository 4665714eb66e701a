# Uses the connection manager of the kernel over VLANs, link-local addresses and macvlan, and in network namespaces.
# The adapter or one of its interfaces moves into a namespace.
# SPDX-License-Identifier: GPL-2.0-or-later
# The device rejects a key, because one move happens under a program that receives. The kernel may destroy the memory
# regions of this program before its queue pairs.
#
# guest errors: key-refused
# guest: --guests 2 --nic qrnic --timeout 600
# files: cm.sh
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh
# shellcheck source=tests/guest/cm.sh
. /etc/qrnic/cm.sh

seen() { $inside rdma dev show | grep -q " $RDMA0:"; }

# gids NETDEV: prints the number of GIDs of RoCE v2 that the interface adds to the adapter, as seen from the namespace
# in `inside`
# shellcheck disable=SC2016,SC2086
gids() {
    $inside env NETDEV="$1" DEVICE="$RDMA0" bash -c '
        cd /sys/class/infiniband/$DEVICE/ports/1/gid_attrs/ndevs || exit
        count=0
        for file in *; do
            { read -r netdev <"$file" && read -r type <"../types/$file"; } 2>/dev/null &&
                [ "$netdev" = "$NETDEV" ] && [ "$type" = "RoCE v2" ] && count=$((count + 1))
        done
        echo $count'
}
has_gids() { [ "$(gids "$1")" = "$2" ]; }

# shellcheck disable=SC2086
asked_about() { [ -n "$($inside ip -6 -o addr show dev "$1" tentative)" ]; }

# addresses NETDEV NET: sets 10.NET.0.GUEST and fdNET::GUEST, which need no duplicate address detection. The third GID
# is link-local, and exists before the kernel has done this detection. Until the detection ends, the address does not
# resolve neighbours, and the tools wait only 2 s.
addresses() {
    # shellcheck disable=SC2086
    $inside bash -c "ip link set lo up && ip addr add 10.$2.0.$GUEST/24 dev $1 &&
        ip addr add fd$2::$GUEST/64 dev $1 nodad && ip link set $1 up" && wait_until 20 has_gids "$1" 3 &&
        wait_until 20 eval "! asked_about $1"
}

# step NAME COMMAND...: runs the command on both guests
step() {
    local name=$1 status=0
    shift
    "$@" >step.log 2>&1 || status=$?
    [ $status = 0 ] || show step.log
    together $status "$name"
}

# used COUNT: checks the number of programs that have a connection, or wait for one as a server
# shellcheck disable=SC2086
used() { [ "$($inside rdma resource show qp | grep -c 'type RC state RTS')" = "$1" ]; }

# shellcheck disable=SC2086
unopened() { ! $inside ibv_devinfo -d "$RDMA0"; }

# traffic NAME ADDRESS-OF-1 ADDRESS-OF-2: runs connections and datagrams with verified data
traffic() {
    connections "$@"
    local name=$1 one=$2 two=$3
    tool "udaddy, $name" listening \
        "udaddy -f $format -b $one -c 2 -C 10" "udaddy -f $format -s $one -b $two -c 2 -C 10"
}
connections() {
    local name=$1 one=$2 two=$3
    case $one in *:*) format=ipv6 ;; *) format=ip ;; esac
    tool "rping, $name" listening "rping -s -a $one -C 10 -V -S 5000" "rping -c -a $one -I $two -C 10 -V -S 5000"
    tool "ucmatose, $name" listening \
        "ucmatose -f $format -b $one -c 5 -C 10 -S 1000" "ucmatose -f $format -s $one -b $two -c 5 -C 10 -S 1000"
}

# both_families NAME NET: runs traffic by IPv4 and by IPv6
both_families() {
    traffic "$1, IPv4" "10.$2.0.1" "10.$2.0.2"
    traffic "$1, IPv6" "fd$2::1" "fd$2::2"
}

# link_local WHAT NAME NETDEV: runs WHAT (traffic or connections) by link-local addresses. NETDEV is the scope of both
# addresses, because the launcher gives a netdev the same name in both guests.
link_local() {
    local mine
    mine=$(ip -6 -o addr show dev "$3" scope link | sed -n 's/.* inet6 \([^/]*\).*/\1/p')
    barrier "local-$tests" "$mine"
    # shellcheck disable=SC2086  # one word for each guest
    set -- "$1" "$2" "$3" $BARRIER_VALUES
    "$1" "$2" "$4%$3" "$5%$3"
}

# Captures frames on the wire by a sniffer rule. All RoCE frames have the tag.
capture_start() {
    [ "$GUEST" = 1 ] || return
    roce_capture -d "$RDMA0" >wire.pcap 2>wire.log &
    sniffer=$!
    wait_until 20 grep -q capturing wire.log
}
capture_tagged() {
    local status=0
    if [ "$GUEST" = 1 ]; then
        kill "$sniffer"
        wait "$sniffer" || status=$?
        tcpdump -n -e -r wire.pcap udp port 4791 or "(vlan and udp port 4791)" >packets.log 2>&1
        [ "$(grep -c "802.1Q.*vlan $2,.*4791" packets.log)" -ge 100 ] || status=1
        if grep 4791: packets.log | grep -v "802.1Q.*vlan $2,"; then status=2; fi
        [ $status = 0 ] || show packets.log
    fi
    together $status "$1"
}

modprobe -a 8021q macvlan
step "a VLAN" ip link add link "$NIC0" name tagged type vlan id 7
step "its addresses are GIDs" addresses tagged 78
capture_start
both_families "VLAN" 78
capture_tagged "every RoCE frame had the tag" 7
link_local traffic "link-local addresses" "$NIC0"
capture_start
link_local connections "link-local addresses of a VLAN" tagged
capture_tagged "every RoCE frame of link-local addresses had the tag" 7
fault_of rdma-core 56.1 "udaddy, link-local addresses of a VLAN" "ibv_init_ah_from_wc() answers by the first GID like the packet's, tagged or not"

# Interfaces of the adapter move into namespaces; the adapter itself is shared by all namespaces.
for kind in VLAN macvlan; do
    step "a namespace for a $kind" ip netns add apart
    if [ $kind = VLAN ]; then
        interface=tagged net=78
    else
        interface=apart net=79
        step "a macvlan" ip link add link "$NIC0" name apart type macvlan mode bridge
    fi
    step "the $kind moves into it" ip link set "$interface" netns apart
    inside="ip netns exec apart"
    step "its addresses there are GIDs" addresses $interface $net
    both_families "$kind in a namespace" $net
    inside=
    # The test waits, because the kernel destroys the namespace and its interfaces some time later.
    step "the namespace is deleted" ip netns del apart
    step "and its GIDs with it" wait_until 20 has_gids "$interface" 0
done
step "a namespace for the interface itself" ip netns add apart
step "the interface moves into it" ip link set "$NIC0" netns apart
inside="ip netns exec apart"
step "its addresses there are GIDs" addresses "$NIC0" 80
both_families "the interface in a namespace" 80
inside=
step "the namespace is deleted" ip netns del apart
step "the interface is back" wait_until 20 test -e "/sys/class/net/$NIC0"
step "the addresses are GIDs again" addresses "$NIC0" 77

# The adapter itself moves.
step "namespaces are exclusive" rdma system set netns exclusive
step "a namespace for the adapter" ip netns add apart
step "another one" ip netns add third
step "the interface moves into it" ip link set "$NIC0" netns apart
step "the adapter moves into it" rdma dev set "$RDMA0" netns apart
inside="ip netns exec apart"
step "it is there" seen
step "its addresses there are GIDs" addresses "$NIC0" 81
both_families "the adapter in a namespace" 81
# Moves the adapter to another namespace while a program uses it, and back.
move_used() {
    local user status=0
    # shellcheck disable=SC2086
    if [ "$GUEST" = 1 ]; then
        timeout $((60 * TIME_FACTOR)) $inside rping -s -a 10.81.0.1 -V -S 30000 >user.log 2>&1 &
        user=$!
        wait_until 20 listening
        barrier used
    else
        barrier used
        timeout $((60 * TIME_FACTOR)) $inside rping -c -a 10.81.0.1 -V -S 30000 >user.log 2>&1 &
        user=$!
    fi
    wait_until 20 used 1 || status=1
    barrier moved
    [ "$status" = 0 ] || return "$status"
    $inside rdma dev set "$RDMA0" netns third || return 2
    inside="ip netns exec third" wait_until 20 seen || return 3
    # The objects of the programs are destroyed, even if the programs have not noticed.
    inside="ip netns exec third" used 0 || return 4
    ip netns exec third rdma dev set "$RDMA0" netns apart || return 5
    wait_until 20 seen || return 6
    kill "$user" 2>/dev/null
    wait "$user"
    wait_until 20 has_gids "$NIC0" 3
}
step "the adapter moves to another namespace while it is used, and back" move_used
both_families "then" 81
for inside in "" "ip netns exec third"; do
    where=${inside:-"the first namespace"}
    step "it is not seen elsewhere ($where)" eval '! seen'
    step "nor opened ($where)" unopened
done
# The adapter has its GIDs, but programs in the namespace cannot open it.
unreached() {
    ip -n apart link add link "$NIC0" name far netns third type macvlan mode bridge || return
    ip -n third addr add "10.82.0.$GUEST/24" dev far && ip -n third link set far up || return
    inside="ip netns exec apart" wait_until 20 has_gids far 2 || return
    ! timeout 20 ip netns exec third rping -s -a "10.82.0.$GUEST" -C 1 && grep -q 'No RDMA devices' step.log
}
step "nor by the address of a macvlan" unreached
inside=
step "the namespace of the adapter is deleted" ip netns del apart
step "the interface is back" wait_until 20 test -e "/sys/class/net/$NIC0"
step "the adapter is back" wait_until 20 seen
step "the addresses are GIDs again" addresses "$NIC0" 77
both_families "after its return" 77
step "the other namespace is deleted" ip netns del third
step "namespaces share" wait_until 20 rdma system set netns shared
kernel_clean "the kernel logs are clean"
finish
