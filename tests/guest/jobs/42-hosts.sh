# Connects two guests, each behind a libslirp on a host of its own. RoCEv2 passes through address translation, without
# privileges in QEMU, with an ICRC that excludes the translated fields.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:hosts,icrc=transport
# files: cm.sh
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh
# shellcheck source=tests/guest/cm.sh
. /etc/qrnic/cm.sh

ip addr add "10.99.$GUEST.1/24" dev "$NIC0"
ip route add default via "10.99.$GUEST.2"
wait_until 20 gid_index "$RDMA0" 4 >/dev/null
gid=$(gid_index "$RDMA0" 4)

for options in "-s 1" "-s 4096" "-s 65536 -n 200" "-e"; do
    pair "ibv_rc_pingpong $options through two libslirps" 18515 \
        "ibv_rc_pingpong -d $RDMA0 -g $gid -c $options" "ibv_rc_pingpong -d $RDMA0 -g $gid -c $options 10.99.1.1"
done
for program in "ib_write_lat" "ib_send_lat" "ib_read_bw -s 4096 -n 500" "ib_write_bw -s 4096 -n 1000 -t 16"; do
    pair "$program through two libslirps" 18515 \
        "$program -d $RDMA0 -x $gid -F" "$program -d $RDMA0 -x $gid -F 10.99.1.1"
done
TRY_TIMEOUT=$((60 * TIME_FACTOR))
tool "rping through two libslirps" listening "rping -s -a 10.99.1.1 -C 10 -V" "rping -c -a 10.99.1.1 -C 10 -V"
try "every frame had a valid ICRC" \
    "[ \$(cat /sys/class/infiniband/$RDMA0/ports/1/hw_counters/rx_drop_icrc) = 0 ]"
kernel_clean "the kernel logs are clean"
finish
