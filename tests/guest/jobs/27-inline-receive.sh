# Receives into the CQE between two guests, by the test of the provider and by unmodified programs, with and without
# inline data. The programs compare the received data.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: key-refused
# guest: --guests 2 --nic qrnic --timeout 600
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
TRY_TIMEOUT=$((60 * TIME_FACTOR))
counter=/sys/class/infiniband/$RDMA0/ports/1/hw_counters/inline_cqes

# Returns true if this guest received CQEs with data while both guests ran a pair of programs.
counted() {
    local name=$1 expected=$2 before
    shift 2
    # The test waits, because a counter of the kernel may be 10 ms old.
    sleep 0.1
    before=$(cat "$counter")
    "$@"
    sleep 0.1
    try "$name: $expected with data" "[ $(($(cat "$counter") - before)) $expected ]"
}

pingpong() {
    local program=$1 value=$2
    shift 2
    pair "$program $* QRNIC_INLINE_RECV=$value" 18515 "QRNIC_INLINE_RECV=$value $program -d $RDMA0 -c $*" \
        "QRNIC_INLINE_RECV=$value $program -d $RDMA0 -c $* guest1"
}

provider() { echo "set -o pipefail; $1 qrnic-inline-test $RDMA0 $gid6 | tee inline.log && ! grep SKIP inline.log"; }
name="the provider's test of receiving into the completion"
beside "$name, not by itself" "$(provider QRNIC_INLINE_RECV=0)" "$name, without locks" "$(provider QRNIC_SINGLE_THREADED=1)"
beside "$name, with direct WQEs" "$(provider QRNIC_DIRECT_WQE=1)" "$name, as it is" "$(provider "")"
for program in ibv_rc_pingpong ibv_uc_pingpong ibv_srq_pingpong; do
    for size in 1 32; do
        counted "$program, $size bytes" "-ge 200" pingpong $program 1 -g "$gid4" -s $size -n 200
    done
    counted "$program, 33 bytes" "-eq 0" pingpong $program 1 -g "$gid4" -s 33 -n 200
    counted "$program, not asked for" "-eq 0" pingpong $program 0 -g "$gid6" -s 32 -n 200
    counted "$program, events" "-ge 200" pingpong $program 1 -g "$gid6" -s 17 -n 200 -e
done
for value in 0 1; do
    pair "ib_send_lat, QRNIC_INLINE_RECV=$value" 18515 \
        "QRNIC_INLINE_RECV=$value ib_send_lat -d $RDMA0 -x $gid4 -F -s 8 -n 200" \
        "QRNIC_INLINE_RECV=$value ib_send_lat -d $RDMA0 -x $gid4 -F -s 8 -n 200 guest1"
done
kernel_clean "the kernel logs are clean"
finish
