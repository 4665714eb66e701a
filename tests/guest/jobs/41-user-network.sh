# Uses the Ethernet function on QEMU's user network: a DHCP lease and the gateway.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic:user,ip=none
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

try "a DHCP lease" "busybox udhcpc -i $NIC0 -f -n -q -t 5 -s /usr/lib/qrnic/udhcpc && ip -4 addr show dev $NIC0 | grep -q 10.0.2.15"
try "ping of the gateway" "ping -c 3 -i 0.2 -W 5 10.0.2.2"
try "the address became a GID" "wait_until 20 gid_index $RDMA0 4"
kernel_clean "the kernel log is clean"
finish
