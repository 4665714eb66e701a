# The same programs with both ends in one guest, on one adapter.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic --cpus 2 --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
# A transport timeout (-u 18: a second) that a busy machine does not reach.
TRY_TIMEOUT=180

perf() {
    local program=$1
    shift
    alone "$program $* within one guest" 18515 "$program -d $RDMA0 -x $gid -F -u 18 $*" "$program -d $RDMA0 -x $gid -F -u 18 $* localhost"
}

for operation in send write read; do
    perf ib_${operation}_bw -a -n 5
    perf ib_${operation}_lat -a -n 5
done
for operation in FETCH_AND_ADD CMP_AND_SWAP; do
    perf ib_atomic_bw -A $operation -n 200
    perf ib_atomic_lat -A $operation -n 200
done
perf ib_write_bw -q 64 -n 20 -s 4096
for size in 1 4097 1048576; do
    alone "ibv_rc_pingpong, $size bytes, within one guest" 18515 \
        "ibv_rc_pingpong -d $RDMA0 -c -g $gid -s $size -n 20" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -s $size -n 20 localhost"
done
alone "ibv_rc_pingpong with events and IPv6 within one guest" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -e -g $gid6" "ibv_rc_pingpong -d $RDMA0 -c -e -g $gid6 localhost"
alone "hello_verbs within one guest" 18600 "hello_verbs -d $RDMA0 -g $gid" "hello_verbs -d $RDMA0 -g $gid localhost"
kernel_clean "the kernel log is clean"
finish
