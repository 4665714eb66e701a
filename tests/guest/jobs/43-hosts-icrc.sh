# Uses the wire of 42-hosts with the standard ICRC, which covers fields that libslirp rewrites. The receiver drops and
# counts the frames, and the connection fails.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:hosts
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

ip addr add "10.99.$GUEST.1/24" dev "$NIC0"
ip route add default via "10.99.$GUEST.2"
wait_until 20 gid_index "$RDMA0" 4 >/dev/null
gid=$(gid_index "$RDMA0" 4)
dropped=/sys/class/infiniband/$RDMA0/ports/1/hw_counters/rx_drop_icrc

pair "ibv_rc_pingpong does not get through" 18515 \
    "timeout 15 ibv_rc_pingpong -d $RDMA0 -g $gid; [ \$? != 0 ]" \
    "ibv_rc_pingpong -d $RDMA0 -g $gid 10.99.1.1; [ \$? != 0 ]"
status=0
[ "$GUEST" != 1 ] || [ "$(cat "$dropped")" -gt 0 ] || status=1
together $status "the frames were dropped because of their ICRC, and counted"
kernel_clean "the kernel logs are clean"
finish
