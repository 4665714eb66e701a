# Uses two adapters in one guest, joined by a hub, and a third one without a backend. The guest has no IPv6, because
# RDMA over IPv4 does not need it.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic --nic qrnic --nic qrnic:none --append ipv6.disable=1
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

try "there is no IPv6" "! [ -e /proc/net/if_inet6 ]"
try "three RDMA devices" "[ \$(ls /sys/class/infiniband | wc -l) = 3 ]"
try "the one without backend has no carrier" "ip link set $NIC2 up; sleep 0.5; [ \$(cat /sys/class/net/$NIC2/carrier) = 0 ]"
try "and its port is down" "ibv_devinfo -d $RDMA2 | tee /dev/stderr | grep -q PORT_DOWN"
try "the others' ports are active" "ibv_devinfo -d $RDMA0 | grep -q PORT_ACTIVE && ibv_devinfo -d $RDMA1 | grep -q PORT_ACTIVE"
# The local routes are deleted, because otherwise the kernel sends packets between its two addresses internally.
# Without these routes the adapters are neighbours on the hub.
mac() { cat "/sys/class/net/$1/address"; }
ip route del local 10.77.0.1 dev "$NIC0" table local
ip route del local 10.77.0.11 dev "$NIC1" table local
ip neigh replace 10.77.0.11 lladdr "$(mac "$NIC1")" dev "$NIC0" nud permanent
ip neigh replace 10.77.0.1 lladdr "$(mac "$NIC0")" dev "$NIC1" nud permanent

for program in "ibv_rc_pingpong -c -n 200" "ibv_rc_pingpong -c -e -n 200 -s 65536"; do
    alone "$program from one adapter to the other" 18515 \
        "$program -d $RDMA0 -g $(gid_index "$RDMA0" 4)" "$program -d $RDMA1 -g $(gid_index "$RDMA1" 4) localhost"
done
for device in "$RDMA0" "$RDMA1"; do
    try "the frames of $device went over the wire" \
        "[ \$(cat /sys/class/infiniband/$device/ports/1/hw_counters/roce_rx_packets) -gt 400 ] &&
         [ \$(cat /sys/class/infiniband/$device/ports/1/hw_counters/roce_loopback_packets) = 0 ]"
done
kernel_clean "the kernel log is clean"
finish
