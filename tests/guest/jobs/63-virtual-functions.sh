# Enables virtual functions, each in a network namespace with its own RDMA device. Programs communicate between virtual
# functions and with the physical function, through the embedded switch.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic,vfs=63 --timeout 600 --allow-report "qrnic.*: probe with driver qrnic.* failed with error"
# After the reset of an unplugged function, a process continues to ring doorbells for some time.
#
# guest errors: doorbell-page doorbell-queue
# inside only: vfio-user has no virtual functions
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

export QRNIC_ACK_TIMEOUT=$ACK_TIMEOUT
pci=$(readlink -f "/sys/class/net/$NIC0/device")
pf=${pci##*/}

vf_netdev() { basename "$pci/virtfn$1"/net/*; }
# vf_netdev_of I: the netdev of virtual function I in its namespace
vf_netdev_of() { ip -n "vf$1" -o link show | sed -n '/link\/ether/s/^[0-9]*: \([^:@]*\).*/\1/p'; }
vf_rdma() { basename "$pci/virtfn$1"/infiniband/*; }
# shellcheck disable=SC2317  # called through wait_until
vfs_ready() {
    local i
    for ((i = 0; i < $1; i++)); do
        [ -d "$pci/virtfn$i/net/$(vf_netdev "$i")" ] && [ -d "$pci/virtfn$i/infiniband/$(vf_rdma "$i")" ] || return 1
    done
}
# enable N: enables N virtual functions, and waits until each has its interfaces
enable() { echo "$1" >"$pci/sriov_numvfs" && wait_until 20 vfs_ready "$1"; }

# settle I: moves virtual function I into the namespace vfI, with address 10.77.0.20+I
settle() {
    local netdev rdma
    netdev=$(vf_netdev "$1") rdma=$(vf_rdma "$1")
    ip netns add "vf$1" && ip link set "$netdev" netns "vf$1" && rdma dev set "$rdma" netns "vf$1" &&
        ip -n "vf$1" link set lo up && ip -n "vf$1" link set "$netdev" up &&
        ip -n "vf$1" addr add "10.77.0.2$1/24" dev "$netdev" &&
        ip netns exec "vf$1" bash -c "$(declare -f wait_until gid_find gid_index); wait_until 20 gid_index $rdma 4" &&
        echo "$rdma" >"rdma$1"
}

# gid_of I: the index of the IPv4 GID of virtual function I
gid_of() { ip netns exec "vf$1" bash -c "$(declare -f gid_find gid_index); gid_index $(cat "rdma$1") 4"; }

# inside N|pf: the prefix of a command in the namespace of a function
inside() { [ "$1" = pf ] || echo "ip netns exec vf$1"; }
# shellcheck disable=SC2046,SC2317  # words of a command; called through wait_until
listening() { $(inside "$1") ss -Hltn 'sport = :18515' | grep -q .; }

# pingpong NAME SERVER CLIENT ADDRESS OPTIONS...: SERVER and CLIENT are numbers of virtual functions, or pf
pingpong() {
    local name=$1 server=$2 client=$3 address=$4 status=0 process
    shift 4
    # shellcheck disable=SC2046  # words of a command
    timeout "$TRY_TIMEOUT" $(command_of "$server") "$@" >server.log 2>&1 &
    process=$!
    wait_until 20 listening "$server"
    # shellcheck disable=SC2046  # words of a command
    timeout "$TRY_TIMEOUT" $(command_of "$client") "$@" "$address" >client.log 2>&1 || status=$?
    [ $status = 0 ] || kill $process
    wait $process || [ $status != 0 ] || status=$?
    [ $status = 0 ] || { show server.log; show client.log; }
    result $status "$name"
}
command_of() {
    if [ "$1" = pf ]; then
        echo "ibv_rc_pingpong -c -d $RDMA0 -g $(gid_index "$RDMA0" 4)"
    else
        echo "$(inside "$1") ibv_rc_pingpong -c -d $(cat "rdma$1") -g $(gid_of "$1")"
    fi
}

try "63 virtual functions are possible" "[ \$(cat $pci/sriov_totalvfs) = 63 ]"
try "none is enabled" "[ \$(cat $pci/sriov_numvfs) = 0 ] && [ ! -e $pci/virtfn0 ]"
rdma system set netns exclusive
result $? "RDMA devices have a namespace of their own"
enable 3
result $? "3 virtual functions have an Ethernet and an RDMA interface"
for i in 0 1 2; do
    settle $i >settle.log 2>&1
    result $? "virtual function $i moves into its namespace"
    show settle.log
done
ip netns exec vf0 ping -q -c 3 -W 5 10.77.0.21 >ping.log 2>&1
result $? "ping between virtual functions"
show ping.log
ip netns exec vf0 ping -q -c 3 -W 5 10.77.0.1 >ping.log 2>&1
result $? "ping from a virtual function to the physical one"
ping -q -c 3 -W 5 10.77.0.22 >ping.log 2>&1
result $? "ping from the physical function to a virtual one"
pingpong "RC between virtual functions" 0 1 10.77.0.20 -n 100
pingpong "RC with large messages and events" 1 2 10.77.0.21 -n 10 -s 65536 -e
pingpong "RC from a virtual to the physical function" pf 0 10.77.0.1 -n 100
pingpong "RC from the physical to a virtual function" 2 pf 10.77.0.22 -n 20 -s 20000 -e

# A reset of the physical function disables all virtual functions for a moment. Linux enables them again, and the driver
# of each finds its device reset.
echo 1 >"$pci/reset"
since=$SECONDS
# shellcheck disable=SC2317  # called through wait_until
vf_pings() { ip netns exec vf0 ping -q -c 1 -W 1 10.77.0.21; }
wait_until 15 vf_pings && [ $((SECONDS - since)) -le $((15 * TIME_FACTOR)) ]
result $? "virtual functions recover from a reset of the physical function within 15 seconds"
# The first recovery must succeed. A failed one, or a reset without effect, means that the configuration space of the
# virtual function was not restored.
try "the first recovery restores them" "! dmesg | grep -E 'not ready after a reset|recovery failed|the reset failed'"
# rejoin I: moves the RDMA device of virtual function I into the namespace vfI, because the recovery has registered the
# device again. Succeeds if the device has its GID there.
# shellcheck disable=SC2317  # called through wait_until
rejoin() {
    local rdma
    rdma=$(vf_rdma "$1")
    [ ! -e "/sys/class/infiniband/$rdma" ] || { rdma dev set "$rdma" netns "vf$1" && echo "$rdma" >"rdma$1"; }
    [ -n "$(gid_of "$1")" ]
}
wait_until 10 rejoin 0 && wait_until 10 rejoin 1
result $? "the recovered RDMA devices move into their namespaces"
pingpong "RC between virtual functions after the reset" 0 1 10.77.0.20 -n 100

# The physical function assigns another address. The virtual function has it after its next reset, and so do its GIDs.
vf1=$(basename "$(readlink -f "$pci/virtfn1")")
ip link set "$NIC0" vf 1 mac 02:00:00:00:00:41 && timeout "$TRY_TIMEOUT" devlink dev reload "pci/$vf1" && wait_until 10 rejoin 1
result $? "a virtual function has another address after a reload"
vf_has() { ip netns exec vf1 grep -q "$1" "$2"; }
vf_has 02:00:00:00:00:41 "/sys/class/net/$(vf_netdev_of 1)/address" &&
    vf_has fe80:0000:0000:0000:0000:00ff:fe00:0041 "/sys/class/infiniband/$(cat rdma1)/ports/1/gids/0"
result $? "its netdev and its GID have this address"
ip -n vf0 neigh flush all
pingpong "RC with the new address" 1 0 10.77.0.21 -n 100

ip link set "$NIC0" vf 2 mac 02:00:00:00:00:33 vlan 7 qos 3 spoofchk on trust on state enable max_tx_rate 500 2>vf.log
result $? "ip link configures a virtual function"
show vf.log
try "a virtual function without configuration has the defaults" "ip link show $NIC0 | tee /dev/stderr | grep 'vf 0 ' | grep -q 'spoof checking off, link-state auto, trust off'"
enable 0
enable 4
result $? "4 virtual functions are enabled after 3"
try "ip link shows the configuration" "ip link show $NIC0 | tee /dev/stderr | grep 'vf 2 ' | grep '02:00:00:00:00:33' | grep 'vlan 7, qos 3' |
    grep -E 'tx rate 500|max_tx_rate 500' | grep -q 'spoof checking on, link-state enable, trust on'"
try "the virtual function has this address" "[ \$(cat $pci/virtfn2/net/*/address) = 02:00:00:00:00:33 ]"
try "statistics of virtual functions count" "ip -s link show $NIC0 | tee /dev/stderr |
    awk '/vf 0 / { vf = 1 } vf && /RX:/ { getline; exit !(\$1 > 0) }'"
try "a minimum rate is rejected" "! ip link set $NIC0 vf 0 min_tx_rate 10"
try "an impossible VLAN is rejected" "! ip link set $NIC0 vf 0 vlan 4095"
try "a function that does not exist is rejected" "! ip link set $NIC0 vf 63 trust on"

echo 0 >"$pci/sriov_numvfs"
# The physical function is reset while Linux enables virtual functions. The recovery must fail until Linux has enabled
# all, because otherwise the recovery restores VF Enable with NumVFs 0. The recovery has no delay, because it is the
# first. To enable 63 functions takes longer than a recovery. Linux has not found the capabilities of the functions that
# it added after the reset, so the driver disables all.
# shellcheck disable=SC2317  # called through wait_until
second_present() { [ -e "$pci/virtfn1" ]; }
# shellcheck disable=SC2317  # called through wait_until
recovered() { dmesg | grep -q "qrnic $pf: recovered"; }
echo 63 >"$pci/sriov_numvfs" 2>enable.log &
process=$!
wait_until 10 second_present
flr "$pf"
if [ -e "$pci/virtfn62" ]; then
    # Nothing has failed if the reset came after the end of the change. Then the recovery restores all 63.
    wait $process
    wait_until 20 recovered
    [ "$(<"$pci/sriov_numvfs")" = 0 ] || echo 0 >"$pci/sriov_numvfs"
    skip "a reset while virtual functions are enabled disables all" "this host enables all before the reset"
else
    ethtool -S "$NIC0" >/dev/null 2>&1
    ! wait $process && grep 'temporarily unavailable' enable.log && [ "$(<"$pci/sriov_numvfs")" = 0 ] && [ ! -e "$pci/virtfn0" ]
    result $? "a reset while virtual functions are enabled disables all"
    show enable.log
fi
wait_until 20 recovered && wait_until 20 nic_has_gid "$NIC0"
result $? "the physical function recovers"
enable 3
result $? "3 virtual functions are enabled after the recovery"

# The driver is bound to a virtual function while that is absent, after a reset of the physical function. The probe is
# repeated after the recovery of the physical function, which waits for the administrator here.
# shellcheck disable=SC2317  # called through wait_until
bound() { [ -d "$pci/virtfn$1/net" ]; }
vf2=$(basename "$(readlink -f "$pci/virtfn2")")
devlink health set "pci/$pf" reporter fw_fatal auto_recover false && echo "$vf2" >/sys/bus/pci/drivers/qrnic/unbind
flr "$pf"
try "a virtual function is absent until its physical function recovers from a reset" \
    "echo $vf2 >/sys/bus/pci/drivers_probe; [ \$(setpci -s $vf2 0.w) = ffff ] && [ ! -e $pci/virtfn2/driver ]"
ethtool -S "$NIC0" >/dev/null 2>&1
# shellcheck disable=SC2317  # called through wait_until
recoveries_requested() { [ "$(dmesg | grep -c 'recovery is left to')" = "$1" ]; }
recover="devlink health recover pci/$pf reporter fw_fatal && devlink health set pci/$pf reporter fw_fatal auto_recover true"
wait_until 10 recoveries_requested 1
try "the administrator requests the recovery" "$recover"
wait_until 10 bound 2
result $? "the driver is bound to the virtual function then"
enable 0
[ "$(<"$pci/sriov_numvfs")" = 0 ]
result $? "all are disabled"
# A reset has cleared the BARs of virtual functions, and the recovery would not restore them if functions were enabled.
# The recovery waits for the administrator, because it could end before the attempt to enable functions.
devlink health set "pci/$pf" reporter fw_fatal auto_recover false
flr "$pf"
try "no virtual function can be enabled after a reset" "! LC_ALL=C bash -c 'echo 3 >$pci/sriov_numvfs' 2>enable.log && grep 'temporarily unavailable' enable.log"
ethtool -S "$NIC0" >/dev/null 2>&1
wait_until 10 recoveries_requested 2
try "the administrator requests this recovery" "$recover"
enable 3
result $? "3 virtual functions are enabled after the recovery, and work"
echo 0 >"$pci/sriov_numvfs"
try "none is left" "[ ! -e $pci/virtfn0 ] && [ \$(ls /sys/class/infiniband | wc -l) = 1 ]"

# Virtual functions are created and removed while the physical function has traffic. VF_ROUNDS=100 in the environment of
# the job repeats this 100 times, with all functions.
nic_export
rounds=${VF_ROUNDS:-2} count=8
[ -z "${VF_ROUNDS:-}" ] || count=63
# traffic DEVICE GID PORT: starts traffic without end on a device, and adds the processes to "load"
load=()
traffic() {
    ib_write_bw -d "$1" -x "$2" -p "$3" -F --run_infinitely >"server$3.log" 2>&1 &
    load+=($!)
    wait_for_port "$3" 20
    ib_write_bw -d "$1" -x "$2" -p "$3" -F --run_infinitely localhost >"client$3.log" 2>&1 &
    load+=($!)
}
# shellcheck disable=SC2317  # called through wait_until
load_ended() { ! kill -0 "${load[@]}"; }
all_live() {
    local process
    for process in "${load[@]}"; do
        kill -0 "$process" || return 1
    done
}
end_load() {
    kill -KILL "${load[@]}" 2>/dev/null
    wait_until 20 load_ended || return 1
    wait "${load[@]}"
    load=()
}
packets() { cat "/sys/class/infiniband/$1/ports/1/counters/port_xmit_packets"; }
# shellcheck disable=SC2317  # called through wait_until
advances() { [ "$(packets "$1")" -gt "$2" ]; }
flows() { wait_until 20 advances "$1" "$(packets "$1")"; }
memory() { sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo; }
traffic "$RDMA0" "$(gid_index "$RDMA0" 4)" 18515
flows "$RDMA0"
result $? "the physical function has traffic"
status=0
for ((round = 1; round <= rounds && status == 0; round++)); do
    enable $count && flows "$RDMA0" || status=1
    enable 0 && [ ! -e "$pci/virtfn0" ] && flows "$RDMA0" || status=2
    [ $round != 1 ] || available=$(memory)
    echo "# round $round: $SECONDS s, $(memory) KiB available"
done
all_live || status=3
result $status "virtual functions are created and removed, and the traffic continues"
# Few rounds do not show a leak, because the kernel itself keeps some memory of the first rounds.
if [ -n "${VF_ROUNDS:-}" ]; then
    [ $(($(memory) + 65536)) -gt "$available" ]
    result $? "no memory is lost"
fi
end_load
result $? "the programs end"

# The adapter is unplugged while virtual functions have traffic.
enable 2
for i in 0 1; do
    ip link set "$(vf_netdev $i)" up && wait_until 20 gid_index "$(vf_rdma $i)" link &&
        traffic "$(vf_rdma $i)" "$(gid_index "$(vf_rdma $i)" link)" 1851$i && flows "$(vf_rdma $i)"
    result $? "virtual function $i has traffic"
done
host_qmp '{"execute":"device_del","arguments":{"id":"nic0"}}' >/dev/null
# shellcheck disable=SC2317  # called through wait_until
unplugged() { [ ! -e "$pci" ] && [ -z "$(ls /sys/class/infiniband)" ]; }
wait_until 30 unplugged
result $? "the adapter and its virtual functions are unplugged"
end_load
result $? "the programs end after that"
kernel_clean "the kernel log is clean"
finish
