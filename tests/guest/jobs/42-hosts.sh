# Connects two guests, each behind a libslirp on a host of its own. RoCEv2 passes through address translation, without
# privileges in QEMU, with an ICRC that excludes the translated fields.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:hosts,icrc=transport
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

ip addr add "10.99.$GUEST.1/24" dev "$NIC0"
ip route add default via "10.99.$GUEST.2"
wait_until 10 gid_index "$RDMA0" 4 >/dev/null
gid=$(gid_index "$RDMA0" 4)

for options in "-s 1" "-s 4096" "-s 65536 -n 200" "-e"; do
    pair "ibv_rc_pingpong $options through two libslirps" 18515 \
        "ibv_rc_pingpong -d $RDMA0 -g $gid -c $options" "ibv_rc_pingpong -d $RDMA0 -g $gid -c $options 10.99.1.1"
done
for program in "ib_write_lat" "ib_send_lat" "ib_read_bw -s 4096 -n 500" "ib_write_bw -s 4096 -n 1000 -t 16"; do
    pair "$program through two libslirps" 18515 \
        "$program -d $RDMA0 -x $gid -F" "$program -d $RDMA0 -x $gid -F 10.99.1.1"
done
status=0
if [ "$GUEST" = 1 ]; then
    timeout $((60 * TIME_FACTOR)) rping -s -a 10.99.1.1 -C 10 -V >rping.log 2>&1 &
    server=$!
    wait_until 20 bash -c "rdma resource show cm_id | grep -q 'state LISTEN'" || status=98
    barrier rping
    wait $server || status=$?
else
    barrier rping
    timeout $((60 * TIME_FACTOR)) rping -c -a 10.99.1.1 -C 10 -V >rping.log 2>&1 || status=$?
fi
[ $status = 0 ] || show rping.log
together $status "rping through two libslirps"
try "every frame had a valid ICRC" \
    "[ \$(cat /sys/class/infiniband/$RDMA0/ports/1/hw_counters/rx_drop_icrc) = 0 ]"
kernel_clean "the kernel logs are clean"
finish
