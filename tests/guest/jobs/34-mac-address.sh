# Changes the MAC address while the port is up. The GIDs of IP addresses stay, and their entries in the device get the
# new address, on the port and on a VLAN.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

# port_gid v1|v2, vlan_gid v1|v2: prints the index of the GID of the IPv4 address there
mapped=0000:0000:0000:0000:0000:ffff
# shellcheck disable=SC2317  # called through wait_until
port_gid() { gid_find "$RDMA0" "$1" "$mapped:0a4d:000$GUEST"; }
# shellcheck disable=SC2317
vlan_gid() { gid_find "$RDMA0" "$1" "$mapped:0a4e:000$GUEST"; }

# connected NAME: runs RC by the GIDs of IPv4 on the port and on the VLAN, in both directions
connected() {
    local gid kind version
    for kind in port vlan; do
        for version in v2 v1; do
            gid=$("${kind}_gid" $version)
            pair "RC over IPv4, RoCE $version, on the $kind $1" 18515 \
                "ibv_rc_pingpong -d $RDMA0 -c -n 100 -g $gid" "ibv_rc_pingpong -d $RDMA0 -c -n 100 -g $gid guest1"
        done
    done
}

# new_address NETDEV ADDRESS: changes the address on both guests, and clears the neighbours
new_address() {
    local status=0
    ip link set "$1" address "$2" && [ "$(cat "/sys/class/net/$1/address")" = "$2" ] || status=1
    barrier "address-$tests"
    ip neigh flush all
    together $status "$1 has another MAC address"
}

ip link add link "$NIC0" name vlan7 type vlan id 7
ip addr add "10.78.0.$GUEST/24" dev vlan7
ip link set vlan7 up
wait_until 20 vlan_gid v2 && wait_until 10 vlan_gid v1
together $? "the VLAN has a GID"
connected "before"
new_address "$NIC0" "52:54:00:99:00:0$GUEST"
connected "after the port has another MAC address"
new_address vlan7 "52:54:00:99:07:0$GUEST"
connected "after the VLAN has another MAC address"
[ "$(port_gid v2)" = "$(gid_index "$RDMA0" 4)" ]
together $? "the port's GID has stayed"
kernel_clean "the kernel logs are clean"
finish
