# Checks priorities by DSCP. The map of dcb(8) applies to connections and address handles, to frames in a VLAN, and to
# the levels that rdma(8) shows. The map survives reloads, and is cleared in another network namespace.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --nic qrnic,cap-priority=off --timeout 600
# files: cm.sh
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh
# shellcheck source=tests/guest/cm.sh
. /etc/qrnic/cm.sh

# step NAME COMMAND...: runs the command on both guests
step() {
    local name=$1 status=0
    shift
    "$@" >step.log 2>&1 || status=$?
    [ $status = 0 ] || show step.log
    together $status "$name"
}

entries() { dcb app show dev "$NIC0" dscp-prio -N | grep -o '[0-9]*:[0-7]' | sort | tr '\n' ' '; }
# app add|del|replace DSCP:PRIORITY... ENTRIES: changes the map, and compares it with ENTRIES
app() {
    dcb app "$1" dev "$NIC0" dscp-prio "${@:2:$#-2}" && [ "$(entries)" = "${*: -1}" ] && return
    echo "entries: $(entries)"
    return 1
}
unsupported() { ! dcb app "$@" >dcb.log 2>&1 && cat dcb.log && grep -q "not supported" dcb.log; }
refused() { unsupported add dev "$NIC0" "$@" && [ -z "$(entries)" ]; }

# Checks ETS as the device reports it: eight traffic classes, one for each priority.
ets() { dcb ets show dev "$NIC0" >ets.log && cat ets.log && grep -q 'ets-cap 8 ' ets.log &&
    grep -q 'tc-tsa 0:ets 1:ets 2:ets 3:ets 4:ets 5:ets 6:ets 7:ets' ets.log &&
    grep -q 'prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7' ets.log; }
step "eight priorities with weighted quanta" ets
# shellcheck disable=SC2317  # called through step
ets_refused() { ! dcb ets set dev "$NIC0" tc-tsa all:strict >dcb.log 2>&1 && cat dcb.log && grep -q "not supported" dcb.log && ets; }
step "quanta cannot be set" ets_refused
trusted() { dcb apptrust show dev "$NIC0" | grep -x 'order: dscp *' && [ -z "$(entries)" ]; }
step "priorities are set by DSCP, and the map is empty" trusted
step "a default priority is rejected" refused default-prio 3
step "priorities of Ethernet types are rejected" refused ethtype-prio 0x8906:3
step "priorities of PCPs are rejected" refused pcp-prio 1nd:3
without() { unsupported show dev "$NIC1" && unsupported add dev "$NIC1" dscp-prio 26:3; }
step "there is no map without priorities" without

# The priority in a VLAN tag is that of the packet's address vector.
modprobe 8021q
vlan() {
    ip link add link "$NIC0" name tagged type vlan id 7 && ip addr add "10.78.0.$GUEST/24" dev tagged &&
        ip addr add "fd78::$GUEST/64" dev tagged nodad && ip link set tagged up
}
tagged_gid() { gid_find "$RDMA0" v2 "$1"; }
gid4=0000:0000:0000:0000:0000:ffff:0a4e:000$GUEST
gid6=fd78:0000:0000:0000:0000:0000:0000:000$GUEST
has_gids() { [ -n "$(tagged_gid "$gid4")" ] && [ -n "$(tagged_gid "$gid6")" ]; }
step "a VLAN" vlan
wait_until 20 has_gids
together $? "its addresses are GIDs"
gid4=$(tagged_gid "$gid4")
gid6=$(tagged_gid "$gid6")
known_peers "10.78.0.$((3 - GUEST))" "fd78::$((3 - GUEST))"

# Filter by tag, EtherType, destination port and the byte with the DSCP, at their offsets in a frame
# shellcheck disable=SC2034  # by its name, in marked()
filter4="ether[12:2] = 0x8100 and ether[16:2] = 0x0800 and ether[40:2] = 4791"
# shellcheck disable=SC2034  # by its name, in marked()
filter6="ether[12:2] = 0x8100 and ether[16:2] = 0x86dd and ether[60:2] = 4791"
frames() { tcpdump -n -r wire.pcap "$*" 2>/dev/null | wc -l; }

# marked NAME FAMILY DSCP PRIORITY TEST...: all frames of TEST, in both directions, have this DSCP and priority
marked() {
    local name=$1 family=$2 dscp=$3 priority=$4 sniffer status=0 filter class all good
    shift 4
    if [ "$GUEST" = 1 ]; then
        roce_capture -d "$RDMA0" >wire.pcap 2>wire.log &
        sniffer=$!
        wait_until 20 grep -q capturing wire.log
    fi
    "$@"
    if [ "$GUEST" = 1 ]; then
        kill "$sniffer"
        wait "$sniffer" || status=$?
        filter=filter$family class="ether[19] & 0xfc"
        [ "$family" = 4 ] || class="(ether[18:2] & 0x0fc0) >> 4"
        all=$(frames "${!filter}")
        good=$(frames "${!filter} and ether[14] >> 5 = $priority and $class = $((dscp << 2))")
        [ "$all" -ge 20 ] && [ "$good" = "$all" ] || status=1
        [ $status = 0 ] || echo "# $good of $all frames; $(tcpdump -n -e -v -r wire.pcap 2>/dev/null | tail -n 4 | tr '\n' ' ')"
    fi
    together $status "$name: DSCP $dscp, priority $priority in each frame"
}

# perf NAME FAMILY DSCP PRIORITY PROGRAM OPTION...
perf() {
    local name=$1 family=$2 dscp=$3 priority=$4 gid=gid$2 program=$5
    shift 5
    set -- "$program" -d "$RDMA0" -x "${!gid}" -F -n 50 -s 1000 "--tclass=$((dscp << 2))" "$@"
    marked "$name" "$family" "$dscp" "$priority" pair "$name, ${*:9}" 18515 "$*" "$* guest1"
}

perf "no map" 4 26 0 ib_write_bw
step "an entry is added" app add 26:3 "26:3 "
step "and others" app add 10:1 63:7 "10:1 26:3 63:7 "
perf "a connection" 4 26 3 ib_write_bw
perf "the peer reads" 4 63 7 ib_read_bw
perf "a connection, IPv6" 6 26 3 ib_send_bw
perf "an unreliable connection" 4 10 1 ib_send_bw -c UC
perf "datagrams" 4 26 3 ib_send_bw -c UD
perf "datagrams, IPv6" 6 10 1 ib_send_bw -c UD
perf "a service level of the program's own" 4 26 5 ib_write_bw --sl=5
perf "a datagram's own service level" 4 26 6 ib_send_bw -c UD --sl=6
perf "a DSCP without entry" 4 27 0 ib_write_bw
perf "datagrams without entry" 6 27 0 ib_send_bw -c UD
marked "the connection manager" 4 26 3 tool "ucmatose -t" listening "ucmatose -b 10.78.0.1 -c 2 -C 20 -S 1000 -t 104" \
    "ucmatose -s 10.78.0.1 -b 10.78.0.2 -c 2 -C 20 -S 1000 -t 104"

# has_levels LEVELS: compares the levels of the queue pairs of running programs
levels() {
    rdma -j -dd resource show qp link "$RDMA0/1" | python3 -c "import json, sys
print(*sorted(row['drv_level'] for row in json.load(sys.stdin) if row.get('comm') == 'ib_write_bw'))"
}
has_levels() { [ "$(levels)" = "$1" ]; }
gid=$(gid_index "$RDMA0" 4)
timeout $((120 * TIME_FACTOR)) ib_write_bw -d "$RDMA0" -x "$gid" -F -D 100 --tclass=104 >server.log 2>&1 &
wait_for_port 18515
timeout $((120 * TIME_FACTOR)) ib_write_bw -d "$RDMA0" -x "$gid" -F -D 100 --tclass=104 localhost >client.log 2>&1 &
wait_until 20 has_levels "3 3"
together $? "rdma resource shows the level at both ends"
step "the map is emptied" app del 10:1 26:3 63:7 ""
has_levels "3 3"
together $? "a connected queue pair keeps its level"
jobs -p | xargs kill
wait 2>/dev/null
perf "the entry is gone" 4 26 0 ib_write_bw
perf "the entry is gone, datagrams" 4 26 0 ib_send_bw -c UD

# One queue pair at a time
cat >map.py <<'PYTHON'
import json
import subprocess
import sys

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
import pyverbs.enums as e

device, netdev, gid, gid_v1 = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
context = Context(name=device)
pd = PD(context)
cq = CQ(context, 10)


def app(verb, *what):
    subprocess.run(["dcb", "app", verb, "dev", netdev, "dscp-prio", *what], check=True)


def address(dscp, sl=0, index=gid):
    route = GlobalRoute(dgid=context.query_gid(port_num=1, index=index), sgid_index=index, traffic_class=dscp << 2 | 2)
    return AHAttr(sl=sl, is_global=1, port_num=1, gr=route)


def connected(*args):
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu, attr.ah_attr = 99, e.IBV_MTU_1024, address(*args)
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap()))
    qp.to_rts(attr)
    return qp


def moved(qp, *args):
    attr = QPAttr(qp_state=e.IBV_QPS_SQD)
    qp.modify(attr, e.IBV_QP_STATE)
    # The test waits, because the address is in use until the send queue is drained.
    while qp.query(e.IBV_QP_STATE)[0].sq_draining:
        pass
    attr.ah_attr = address(*args)
    qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_AV)
    return qp


def expect(qp, level, sl=0):
    """The level, and the service level that the program gave"""
    rows = json.loads(subprocess.check_output(["rdma", "-j", "-dd", "resource", "show", "qp", "link", device + "/1"]))
    found = [row["drv_level"] for row in rows if row["lqpn"] == qp.qp_num]
    asked = qp.query(e.IBV_QP_AV)[0].ah_attr.sl
    assert found == [level] and asked == sl, (found, asked, level, sl)


if len(sys.argv) > 5:
    expect(connected(26), int(sys.argv[5]))
    sys.exit()

expect(connected(26), 0)
app("add", "26:3", "0:2")
first = connected(26)
expect(first, 3)
expect(connected(0), 2)
expect(connected(27), 0)
expect(connected(26, 9), 9, 9)
expect(connected(26, 0, gid_v1), 0)
# If a DSCP has several entries, the highest priority is used.
app("add", "26:1")
expect(connected(26), 3)
app("add", "26:6")
expect(connected(26), 6)
app("del", "26:6")
expect(connected(26), 3)
app("replace", "26:5")
expect(connected(26), 5)
expect(first, 3)
expect(moved(first, 26), 5)
expect(moved(connected(26), 26, 2), 2, 2)
expect(moved(connected(26), 27), 0)
first.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
expect(first, 0)
app("del", "26:5", "0:2")
expect(connected(26), 0)
PYTHON
level() { python3 map.py "$RDMA0" "$NIC0" "$(gid_index "$RDMA0" 4)" "$(gid_index "$RDMA0" 4 v1)" "$@"; }
step "new and modified objects use a changed map" level

step "an entry is added again" app add 26:3 "26:3 "
device=pci/$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
reloaded() { devlink dev reload "$device" && nic_export && wait_until 20 nic_has_gid "$NIC0"; }
step "a reload of the adapter" reloaded
kept() { [ "$(entries)" = "26:3 " ] && level 3; }
step "keeps the map" kept
# The map is empty then, because the kernel deletes the entries of an interface that leaves the namespace.
ip link del tagged
away() { ip netns add apart && ip link set "$NIC0" netns apart && ip -n apart link set "$NIC0" netns 1; }
back() { ip addr add "10.77.0.$GUEST/24" dev "$NIC0" && ip link set "$NIC0" up && wait_until 20 nic_has_gid "$NIC0"; }
step "the interface moves to another namespace, and back" away
step "and has its address" back
empty() { [ -z "$(entries)" ] && level 0; }
step "the map is empty" empty
again() { app add 26:4 "26:4 " && level 4; }
step "and accepts entries" again
anew() { bounded 60 modprobe -r qrnic_ib qrnic && bounded 60 modprobe -a qrnic qrnic_ib && nic_setup && nic_export && [ -n "$RDMA0" ]; }
step "the driver is unloaded, and loaded again" anew
step "the map is empty" empty

kernel_clean "the kernel logs are clean"
finish
