# Connects two guests, each with a tap on the bridge of a host of its own. A VXLAN of the kernel joins the bridges. The
# ICRC is the standard one, because no host changes a header of the guests.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:vxlan,mtu=4200
# needs: vxlan
# files: cm.sh
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh
# shellcheck source=tests/guest/cm.sh
. /etc/qrnic/cm.sh

wait_until 20 gid_index "$RDMA0" 4 >/dev/null
gid=$(gid_index "$RDMA0" 4)
counters=/sys/class/infiniband/$RDMA0/ports/1/hw_counters

for options in "-s 1" "-s 65536 -n 200" "-e"; do
    pair "ibv_rc_pingpong $options between two hosts" 18515 \
        "ibv_rc_pingpong -d $RDMA0 -g $gid -c $options" "ibv_rc_pingpong -d $RDMA0 -g $gid -c $options guest1"
done
pair "ib_write_bw with a path MTU of 4096 between two hosts" 18515 \
    "ib_write_bw -d $RDMA0 -x $gid -F -m 4096 -n 500" "ib_write_bw -d $RDMA0 -x $gid -F -m 4096 -n 500 guest1"
pair "ibv_ud_pingpong between two hosts" 18515 \
    "ibv_ud_pingpong -d $RDMA0 -g $gid -c -n 100" "ibv_ud_pingpong -d $RDMA0 -g $gid -c -n 100 guest1"
TRY_TIMEOUT=$((60 * TIME_FACTOR))
[ "$GUEST" = 1 ] || known_peers guest1
tool "rping between two hosts" listening "rping -s -a 10.77.0.1 -C 10 -V" "rping -c -a 10.77.0.1 -C 10 -V"
both "frames of the largest MTU arrive, and none is larger" \
    "ping -q -c 1 -M do -s 4172 -W 5 guest$((3 - GUEST)) && ! ping -q -c 1 -M do -s 4173 -W 1 guest$((3 - GUEST))"
both "every frame had a valid ICRC" "[ \$(cat $counters/rx_drop_icrc) = 0 ]"
kernel_clean "the kernel logs are clean"
finish
