# shellcheck shell=bash
# Functions for jobs in the guest (bash reads this first, by BASH_ENV). GUEST is this
# guest's number, GUESTS their count, PEER the other one's; NIC0, NIC1, ... are the
# netdevs and RDMA0, RDMA1, ... the RDMA devices in the launcher's order.
# SPDX-License-Identifier: GPL-2.0-or-later

# shellcheck disable=SC1091
. /etc/qrnic/env
export GUEST GUESTS
export PEER=$((GUEST == 1 ? 2 : 1))

# netdev_of MAC: the interface with this address.
netdev_of() {
    local dir address
    for dir in /sys/class/net/*; do
        { read -r address <"$dir/address"; } 2>/dev/null || continue
        [ "$address" = "$1" ] && [ -e "$dir/device" ] && { echo "${dir##*/}"; return; }
    done
    return 1
}

# rdma_of NETDEV: the RDMA device on this interface.
rdma_of() {
    local dir netdev
    for dir in /sys/class/infiniband/*; do
        { read -r netdev <"$dir/ports/1/gid_attrs/ndevs/0"; } 2>/dev/null || continue
        [ "$netdev" = "$1" ] && { echo "${dir##*/}"; return; }
    done
    return 1
}

# wait_until SECONDS COMMAND...: until the command succeeds (TIME_FACTOR is for slow kernels).
wait_until() {
    local tries=$(($1 * 20 * ${TIME_FACTOR:-1}))
    shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}

# nic_up NETDEV IPV4 IPV6 MTU
nic_up() {
    ip link set "$1" mtu "$4" && ip link set "$1" up
    case $2 in
        none) ;;
        dhcp) busybox udhcpc -i "$1" -n -q -s /usr/lib/qrnic/udhcpc >/dev/null 2>&1 ;;
        *) ip addr add "$2" dev "$1"; ip addr add "$3" dev "$1" ;;
    esac
}

# nic_setup: brings up all NICs of the launcher's list.
nic_setup() {
    local index kind mac ip4 ip6 mtu netdev
    while read -r index kind mac ip4 ip6 mtu; do
        [ -n "$index" ] || continue
        # Without the driver there is nothing to wait for.
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

# gid_find DEVICE v1|v2 PATTERN...: the index of its first GID of this version of RoCE that
# matches a pattern of the shell. Indices have no fixed meaning: nothing else names one.
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

# gid_index DEVICE 4|6|link [v1]: the index of its GID, of RoCE v2 unless v1 is said, for the
# address the launcher gave (4), for the global IPv6 address (6), or for the link-local one.
gid_index() {
    case $2 in
        4) gid_find "$1" "${3:-v2}" 0000:0000:0000:0000:0000:ffff:\* ;;
        6) gid_find "$1" "${3:-v2}" 2\* 3\* fc\* fd\* ;;
        link) gid_find "$1" "${3:-v2}" fe80:\* ;;
    esac
}

# barrier NAME [VALUE]: waits until every guest's job is at this barrier, and sets
# BARRIER_VALUES to the values (words) of all guests in the order of their numbers.
# It goes through the launcher and needs no network.
barrier() {
    local answer
    echo "barrier $1 ${2:--}" >&8
    read -r answer <&8
    BARRIER_VALUES=${answer#go "$1" }
    [ "$answer" != "$BARRIER_VALUES" ]
}

# host_qmp JSON: has the launcher run a QMP command on this guest's QEMU; prints the
# result, status 1 when it is an error.
host_qmp() {
    local answer
    echo "qmp $1" >&8
    read -r answer <&8
    echo "${answer#* }"
    [ "${answer%% *}" = ok ]
}

# host_switch [CARD]: what the switch that joins the guests by this card (default 0) has counted, a line for each
# guest's port.
host_switch() {
    local answer
    echo "switch ${1:-0}" >&8
    read -r answer <&8
    echo "${answer#* }" | tr ';' '\n'
    [ "${answer%% *}" = ok ]
}

# guest_reboot: restarts this guest; the job runs again with QRNIC_BOOT one higher.
guest_reboot() {
    echo reboot >&8
    local answer
    # shellcheck disable=SC2034
    read -r answer <&8
    echo b >/proc/sysrq-trigger
    while :; do sleep 100; done
}

# wait_for_port PORT [SECONDS]: until something here listens on the TCP port.
wait_for_port() {
    wait_until "${2:-20}" grep -qh ":$(printf %04X "$1") [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6
}

# host_time: the launcher's clock in milliseconds since this guest's QEMU was started.
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
