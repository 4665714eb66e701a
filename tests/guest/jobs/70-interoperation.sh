# Tests against Soft-RoCE (rdma_rxe over virtio-net), an independent implementation: each side must accept the frames
# of the other.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic/rxe --mtu 9000 --timeout 600
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
# The transport timeout (-u 18: a second) is so long that Soft-RoCE on a busy machine does not exceed it.
TRY_TIMEOUT=$((180 * TIME_FACTOR))

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
pingpong "events" -g "$gid4" -e -n 20
perf ib_write_bw -s 65536 -n 500
perf ib_read_bw -o 16 -s 65536 -n 200
perf ib_send_bw -s 4096
perf ib_write_lat -s 8
perf ib_atomic_lat -A FETCH_AND_ADD -o 16
perf ib_atomic_lat -A CMP_AND_SWAP -o 16

for mtu in 256 512 1024 2048 4096; do
    pingpong "MTU $mtu" -g "$gid4" -m $mtu -s 10000 -n 20
    pair "ibv_uc_pingpong with Soft-RoCE, MTU $mtu" 18515 "ibv_uc_pingpong -d $RDMA0 -g $gid4 -c -n 20 -m $mtu -s 10000" \
        "ibv_uc_pingpong -d $RDMA0 -g $gid4 -c -n 20 -m $mtu -s 10000 guest1"
done
for gid in $gid4 $gid6; do
    pair "ibv_ud_pingpong with Soft-RoCE, GID $gid" 18515 "ibv_ud_pingpong -d $RDMA0 -g $gid -c -n 20 -s 900" \
        "ibv_ud_pingpong -d $RDMA0 -g $gid -c -n 20 -s 900 guest1"
done
perf ib_send_lat -c UC -s 2000
perf ib_write_lat -c UC -s 2000
perf ib_send_lat -c UD -s 900

# Connections by rdma_cm; each side is the listener once.
cm() {
    local name=$1 status=0 server
    if [ "$GUEST" = "$2" ]; then
        timeout $((60 * TIME_FACTOR)) bash -c "$3" >cm.log 2>&1 &
        server=$!
        wait_until 20 bash -c "rdma resource show cm_id | grep -q 'state LISTEN'" || status=98
        barrier "up-$tests"
        wait $server || status=$?
    else
        barrier "up-$tests"
        timeout $((60 * TIME_FACTOR)) bash -c "$4" >cm.log 2>&1 || status=$?
    fi
    [ $status = 0 ] || show cm.log
    together $status "$name"
}
for listener in 1 2; do
    cm "rping with Soft-RoCE, guest $listener listens" $listener "rping -s -a 0.0.0.0 -C 10 -V" \
        "rping -c -a 10.77.0.$listener -C 10 -V"
    cm "rping with Soft-RoCE, IPv6, guest $listener listens" $listener "rping -s -a ::0 -C 10 -V" \
        "rping -c -a fd77::$listener -C 10 -V"
    cm "udaddy with Soft-RoCE, guest $listener listens" $listener "udaddy" "udaddy -s 10.77.0.$listener"
    cm "ucmatose with Soft-RoCE, guest $listener listens" $listener "ucmatose" "ucmatose -s 10.77.0.$listener"
done
pair "hello_verbs with Soft-RoCE" 18600 "hello_verbs -d $RDMA0 -g $gid4" "hello_verbs -d $RDMA0 -g $gid4 guest1"
kernel_clean "the kernel logs are clean"
finish
