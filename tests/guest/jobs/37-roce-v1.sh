# Uses RoCE v1 and v2 at the same time: connections, datagrams, shared queues and XRC by GIDs of either version. Also
# the connection manager and multicast with RoCE v1 as default, kernel verbs, and a VLAN.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed cq-overrun key-refused
# guest: --guests 2 --nic qrnic --timeout 600
# files: cm.sh
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh
# shellcheck source=tests/guest/cm.sh
. /etc/qrnic/cm.sh

counters=/sys/class/infiniband/$RDMA0/ports/1/hw_counters
gid4=$(gid_index "$RDMA0" 4 v1)
gid6=$(gid_index "$RDMA0" 6 v1)
link=$(gid_index "$RDMA0" link v1)
v2=$(gid_index "$RDMA0" 4)

# frames v1|all: prints the number of RoCE frames in both directions
frames() {
    local kind=roce_
    [ "$1" = all ] || kind=roce_v1_
    cat "$counters/$kind"{r,t}x_packets | awk '{ all += $1 } END { print all }'
}

# only v1|v2: there were frames since the last call, and all had this version
v1_before=$(frames v1)
all_before=$(frames all)
only() {
    local v1 all
    v1=$(frames v1) all=$(frames all)
    set -- "$1" $((v1 - v1_before)) $((all - all_before))
    v1_before=$v1 all_before=$all
    [ "$3" -gt 20 ] && case $1 in v1) [ "$2" = "$3" ] ;; v2) [ "$2" = 0 ] ;; esac
}

# pingpong VERSION PROGRAM GID-INDEX OPTION...: verifies the data, and that all frames have this version
pingpong() {
    local version=$1 program=$2 gid=$3
    shift 3
    pair "$program, RoCE $version, GID $gid $*" 18515 "$program -d $RDMA0 -c -g $gid $*" "$program -d $RDMA0 -c -g $gid $* guest1"
    only "$version"
    together $? "all frames were of RoCE $version"
}

# Sets the link-local address of the peer, which the hosts file of the launcher does not contain.
barrier link-local "$(ip -6 -o addr show dev "$NIC0" scope link | awk '{ sub("/.*", "", $4); print $4 }')"
[ "$GUEST" = 1 ] || known_peers "${BARRIER_VALUES% *}%$NIC0"
for gid in "$gid4" "$gid6" "$link"; do
    pingpong v1 ibv_rc_pingpong "$gid" -n 100
    pingpong v1 ibv_rc_pingpong "$gid" -s 65537 -n 20 -e
    pingpong v1 ibv_ud_pingpong "$gid" -s 1000 -n 100
done
pingpong v1 ibv_uc_pingpong "$gid4" -s 4097 -n 50
pingpong v1 ibv_srq_pingpong "$gid6" -q 8 -n 200
pair "ibv_xsrq_pingpong, RoCE v1" 18515 "ibv_xsrq_pingpong -d $RDMA0 -g $gid4" "ibv_xsrq_pingpong -d $RDMA0 -g $gid4 guest1"
only v1
together $? "all frames were of RoCE v1"
pingpong v2 ibv_rc_pingpong "$v2" -n 100
pair "ib_read_bw, RoCE v1" 18515 "ib_read_bw -d $RDMA0 -x $gid4 -F -n 200" "ib_read_bw -d $RDMA0 -x $gid4 -F -n 200 guest1"
pair "ib_atomic_lat, RoCE v1" 18515 "ib_atomic_lat -d $RDMA0 -x $gid6 -F -n 200" "ib_atomic_lat -d $RDMA0 -x $gid6 -F -n 200 guest1"
only v1
together $? "all frames were of RoCE v1"
try "the provider's test of transports, RoCE v1" "set -o pipefail; qrnic-transport-test $RDMA0 $gid4 | tee provider.log && ! grep SKIP provider.log"
if modinfo kernel_verbs >/dev/null 2>&1; then
    # One test needs a queue pair of a process.
    ibv_rc_pingpong -d "$RDMA0" -g "$gid4" >/dev/null 2>&1 &
    process=$!
    wait_for_port 18515
    try "kernel verbs, RoCE v1" "modprobe kernel_verbs device=$RDMA0 gid_index=$link || { dmesg | grep kernel_verbs; false; }"
    kill $process
else
    skip "kernel verbs, RoCE v1" "the test's module is not built for this kernel"
fi
only v1
together $? "all frames were of RoCE v1"

# The connection manager uses RoCE v2, or RoCE v1 if the administrator has set it.
tool "rping by the default" listening "rping -s -a 10.77.0.1 -C 50 -V" "rping -c -a 10.77.0.1 -C 50 -V"
only v2
together $? "all frames were of RoCE v2"
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
mkdir -p "/sys/kernel/config/rdma_cm/$RDMA0"
mode=/sys/kernel/config/rdma_cm/$RDMA0/ports/1/default_roce_mode
echo "IB/RoCE v1" >"$mode"
grep -q "RoCE v1" "$mode"
together $? "RoCE v1 becomes the default of the connection manager"
tool "rping, RoCE v1" listening "rping -s -a 10.77.0.1 -C 50 -V" "rping -c -a 10.77.0.1 -C 50 -V"
tool "udaddy, RoCE v1" listening "udaddy -b 10.77.0.1 -c 2 -C 10" "udaddy -s 10.77.0.1 -b 10.77.0.2 -c 2 -C 10"
# With RoCE v1 the GID of an IPv4 group is its address after the prefix ff0e::ffff. An IPv6 group is tested, too.
joined() { grep -q joined tool.log; }
tool "mckey, RoCE v1" joined "stdbuf -oL mckey -m 239.1.2.3 -b 10.77.0.1 -C 30" "mckey -m 239.1.2.3 -b 10.77.0.2 -s -C 30"
tool "mckey, RoCE v1, IPv6" joined "stdbuf -oL mckey -m ff0e::ef01:203 -b fd77::1 -C 30" \
    "mckey -m ff0e::ef01:203 -b fd77::2 -s -C 30"
only v1
together $? "all frames were of RoCE v1"

kernel_clean "the kernel logs are clean"
finish
