# Soft-RoCE (rdma_rxe over virtio-net) at the other end of the wire: an independent
# implementation that must understand our frames, and we its.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic/rxe --timeout 600
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
# A transport timeout (-u 18: a second) that Soft-RoCE on a busy machine does not reach.
TRY_TIMEOUT=$((180 * ${TIME_FACTOR:-1}))

pingpong() {
    local name=$1
    shift
    pair "ibv_rc_pingpong with Soft-RoCE, $name" 18515 "ibv_rc_pingpong -d $RDMA0 -c $*" "ibv_rc_pingpong -d $RDMA0 -c $* guest1"
}
perf() {
    local program=$1
    shift
    pair "$program $* with Soft-RoCE" 18515 "$program -d $RDMA0 -x $gid4 -F -u 18 $*" "$program -d $RDMA0 -x $gid4 -F -u 18 $* guest1"
}

for size in 1 1023 65536; do
    pingpong "IPv4, $size bytes" -g "$gid4" -s $size -n 20
    pingpong "IPv6, $size bytes" -g "$gid6" -s $size -n 20
done
pingpong "MTU 256, events" -g "$gid4" -e -m 256 -n 20
perf ib_write_bw -s 65536 -n 500
perf ib_read_bw -o 16 -s 65536 -n 200
perf ib_send_bw -s 4096
perf ib_write_lat -s 8
perf ib_atomic_lat -A FETCH_AND_ADD -o 16
perf ib_atomic_lat -A CMP_AND_SWAP -o 16
pair "hello_verbs with Soft-RoCE" 18600 "hello_verbs -d $RDMA0 -g $gid4" "hello_verbs -d $RDMA0 -g $gid4 guest1"
kernel_clean "the kernel logs are clean"
finish
