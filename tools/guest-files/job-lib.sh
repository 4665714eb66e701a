# shellcheck shell=bash
# Functions for jobs in the guest; bash reads this file first because of BASH_ENV. GUEST is the number of this guest,
# GUESTS the number of guests, and PEER the number of the other guest of two. NIC0, NIC1, ... are the network interfaces
# and RDMA0, RDMA1, ... the RDMA devices in the launcher's order.
# SPDX-License-Identifier: GPL-2.0-or-later

# shellcheck disable=SC1091
. /etc/qrnic/env
export GUEST GUESTS
export PEER=$((GUEST == 1 ? 2 : 1))

# netdev_of MAC: prints the interface with this address.
netdev_of() {
    local dir address
    for dir in /sys/class/net/*; do
        { read -r address <"$dir/address"; } 2>/dev/null || continue
        [ "$address" = "$1" ] && [ -e "$dir/device" ] && { echo "${dir##*/}"; return; }
    done
    return 1
}

# rdma_of NETDEV: prints the RDMA device of this interface.
rdma_of() {
    local dir netdev
    for dir in /sys/class/infiniband/*; do
        { read -r netdev <"$dir/ports/1/gid_attrs/ndevs/0"; } 2>/dev/null || continue
        [ "$netdev" = "$1" ] && { echo "${dir##*/}"; return; }
    done
    return 1
}

# wait_until SECONDS COMMAND...: waits until the command succeeds. TIME_FACTOR multiplies the time for slow kernels.
wait_until() {
    local tries=$(($1 * 20 * ${TIME_FACTOR:-1}))
    shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}

# nic_up NETDEV IPV4 IPV6 MTU: sets MTU and addresses, and brings the interface up.
nic_up() {
    ip link set "$1" mtu "$4" && ip link set "$1" up
    case $2 in
        none) ;;
        dhcp) busybox udhcpc -i "$1" -n -q -s /usr/lib/qrnic/udhcpc >/dev/null 2>&1 ;;
        *) ip addr add "$2" dev "$1"; ip addr add "$3" dev "$1" ;;
    esac
}

# vf_setup: enables virtual function 0 of each qrnic, and replaces the adapter by this function in the launcher's list. The
# functions below then set up and find the virtual function. The adapter itself loses its RDMA device, because programs
# use the first one. /run/nics keeps the list of adapters, because jobs repeat nic_setup.
vf_setup() {
    local index kind mac rest device part
    [ -e /run/nics ] || cp /etc/qrnic/nics /run/nics
    while read -r index kind mac rest; do
        if [ "$kind" = qrnic ] && wait_until 20 netdev_of "$mac"; then
            device=/sys/class/net/$(netdev_of "$mac")/device
            for part in "$device"/qrnic.*; do
                [ ! -e "$part/driver" ] || echo "${part##*/}" >"$part/driver/unbind"
            done
            echo 1 >"$device/sriov_numvfs" && wait_until 20 [ -d "$device/virtfn0/net" ] &&
                read -r mac <"$(echo "$device"/virtfn0/net/*/address)"
        fi
        echo "$index $kind $mac $rest"
    done </run/nics >/etc/qrnic/nics
}

# nic_setup: brings up all interfaces of the launcher's list.
nic_setup() {
    local index kind mac ip4 ip6 mtu netdev
    [ "${QRNIC_VF:-no}" = no ] || vf_setup
    while read -r index kind mac ip4 ip6 mtu; do
        [ -n "$index" ] || continue
        # A qrnic without driver has no interface, so that waiting for it would be useless.
        if [ "$kind" != qrnic ] || [ -d /sys/bus/pci/drivers/qrnic ]; then wait_until 20 netdev_of "$mac"; fi
        netdev=$(netdev_of "$mac")
        if [ -z "$netdev" ]; then
            echo "qrnic guest$GUEST: no network interface for the $kind device ($mac)" >/dev/console
            continue
        fi
        nic_up "$netdev" "$ip4" "$ip6" "$mtu"
        if [ "$kind" = rxe ]; then
            modprobe -q rdma_rxe
            rdma link add "rxe_$index" type rxe netdev "$netdev"
        fi
        if [ "$kind" != virtio ] && [ "$RDMA" = yes ] && [ "$ip4" != none ]; then
            wait_until 20 nic_has_gid "$netdev"
        fi
    done </etc/qrnic/nics
}

# nic_missing: names a qrnic that lacks its network interface or its RDMA device, if there is one.
nic_missing() {
    local index kind mac rest netdev
    # shellcheck disable=SC2034
    while read -r index kind mac rest; do
        [ "$kind" = qrnic ] || continue
        netdev=$(netdev_of "$mac") || { echo "network interface for its qrnic, card $index"; return; }
        [ "$RDMA" != yes ] || rdma_of "$netdev" >/dev/null || { echo "RDMA device for its qrnic, card $index"; return; }
    done </etc/qrnic/nics
}

nic_has_gid() { gid_index "$(rdma_of "$1")" 4; }

# nic_export: sets NIC<i> and RDMA<i>.
nic_export() {
    local index kind mac rest netdev
    # shellcheck disable=SC2034
    while read -r index kind mac rest; do
        [ -n "$index" ] || continue
        netdev=$(netdev_of "$mac") || continue
        export "NIC$index=$netdev" "RDMA$index=$(rdma_of "$netdev")"
    done </etc/qrnic/nics
}

# gid_find DEVICE v1|v2 PATTERN...: prints the index of the device's first GID of this version of RoCE that matches a
# pattern of the shell. Jobs find their index by this function, because indices have no fixed meaning.
gid_find() {
    local dir=/sys/class/infiniband/$1/ports/1 want="RoCE $2" index=0 gid type pattern
    [ "$2" != v1 ] || want="IB/RoCE v1"
    shift 2
    while { read -r gid <"$dir/gids/$index"; } 2>/dev/null; do
        if { read -r type <"$dir/gid_attrs/types/$index"; } 2>/dev/null && [ "$type" = "$want" ]; then
            for pattern; do
                # shellcheck disable=SC2254  # a pattern it is
                case $gid in $pattern) echo $index; return ;; esac
            done
        fi
        index=$((index + 1))
    done
    return 1
}

# gid_index DEVICE 4|6|link [v1]: prints the index of a GID, of RoCE v2 unless v1 is given. The GID is that of the
# launcher's address (4), of the global IPv6 address (6), or of the link-local address (link).
gid_index() {
    case $2 in
        4) gid_find "$1" "${3:-v2}" 0000:0000:0000:0000:0000:ffff:\* ;;
        6) gid_find "$1" "${3:-v2}" 2\* 3\* fc\* fd\* ;;
        link) gid_find "$1" "${3:-v2}" fe80:\* ;;
    esac
}

# barrier NAME [VALUE]: waits until the job of every guest is at this barrier. Sets BARRIER_VALUES to the values (words)
# of all guests in the order of their numbers. The launcher implements the barrier, so that no network is needed.
barrier() {
    local answer
    echo "barrier $1 ${2:--}" >&8
    read -r answer <&8
    BARRIER_VALUES=${answer#go "$1" }
    [ "$answer" != "$BARRIER_VALUES" ]
}

# host_qmp JSON: makes the launcher run a QMP command on this guest's QEMU, and prints the result. The status is 1 if
# the result is an error.
host_qmp() {
    local answer
    echo "qmp $1" >&8
    read -r answer <&8
    echo "${answer#* }"
    [ "${answer%% *}" = ok ]
}

# host_device ACTION [CARD [VALUE]]: acts on the device process of this guest's card (default 0), and prints the answer.
# - pause: stops the process for VALUE seconds
# - kill: SIGKILL; end: SIGTERM; start: starts the process after kill or end
# - plug: adds the card to the empty port VALUE of this guest's QEMU
# - status: prints running or ended
host_device() {
    local answer
    echo "device $1 ${2:-0} ${3:-}" >&8
    read -r answer <&8
    echo "${answer#* }"
    [ "${answer%% *}" = ok ]
}

# host_switch [CARD]: prints the counters of the switch that connects the guests by this card (default 0), one line for
# each port.
host_switch() {
    local answer
    echo "switch ${1:-0}" >&8
    read -r answer <&8
    echo "${answer#* }" | tr ';' '\n'
    [ "${answer%% *}" = ok ]
}

# guest_reboot: restarts this guest. The job runs again with QRNIC_BOOT increased by one.
guest_reboot() {
    echo reboot >&8
    local answer
    # shellcheck disable=SC2034
    read -r answer <&8
    echo b >/proc/sysrq-trigger
    while :; do sleep 100; done
}

# wait_for_port PORT [SECONDS]: waits until a program of this guest listens on the TCP port.
wait_for_port() {
    wait_until "${2:-20}" grep -qh ":$(printf %04X "$1") [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6
}

# host_time: prints the launcher's clock in milliseconds since this guest's QEMU was started.
host_time() {
    local answer
    echo time >&8
    read -r answer <&8
    echo "$answer"
}

case $- in
    *i*)
        nic_export
        PS1='guest'$GUEST':\w# '
        ;;
esac
