# Runs datagrams, unreliable connections and shared receive queues between two guests. Uses pingpongs of rdma-core and
# perftest, polled and with events, and the test of the provider.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed
# guest: --guests 2 --nic qrnic --timeout 1200
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
TRY_TIMEOUT=$((180 * TIME_FACTOR))

# No test may be skipped, because this device has all capabilities.
provider() { echo "set -o pipefail; $1 qrnic-transport-test $RDMA0 $2 | tee provider.log && ! grep SKIP provider.log"; }

pingpong() {
    local program=$1 name=$2
    shift 2
    pair "$program, $name" 18515 "$program -d $RDMA0 $*" "$program -d $RDMA0 $* guest1"
}

perf() {
    local program=$1
    shift
    pair "$program $*" 18515 "$program -d $RDMA0 -x $gid4 -F $*" "$program -d $RDMA0 -x $gid4 -F $* guest1"
}

beside "the provider's test of transports, IPv4" "$(provider "" "$gid4")" \
    "the provider's test of transports, IPv6" "$(provider "" "$gid6")"
beside "the provider's test of transports without locks" "$(provider QRNIC_SINGLE_THREADED=1 "$gid4")" \
    "the provider's test of transports with direct WQEs" "$(provider QRNIC_DIRECT_WQE=1 "$gid6")"

try "the provider's test of rate limits" "set -o pipefail; qrnic-pace-test $RDMA0 $gid4 | tee pace.log && ! grep SKIP pace.log"

# All sizes by IPv4 polled and by IPv6 with events, and one size for the two other combinations
for events in "" -e; do
    for gid in "$gid4" "$gid6"; do
        sizes="1 100 1024" longer="1 1024 65537"
        [ "$gid$events" = "$gid4" ] || [ "$gid$events" = "$gid6-e" ] || sizes=1024 longer=65537
        for size in $sizes; do
            pingpong ibv_ud_pingpong "GID $gid, $size bytes $events" -g "$gid" -c -s "$size" -n 200 $events
        done
        for size in $longer; do
            pingpong ibv_uc_pingpong "GID $gid, $size bytes $events" -g "$gid" -c -s "$size" -n 100 $events
            pingpong ibv_srq_pingpong "GID $gid, $size bytes $events" -g "$gid" -c -s "$size" -n 100 $events
        done
    done
    pingpong ibv_srq_pingpong "one queue pair, many WQEs $events" -g "$gid4" -q 1 -r 1000 -n 1000 $events
    pingpong ibv_srq_pingpong "64 queue pairs $events" -g "$gid6" -q 64 -r 500 -n 2000 $events
done
for mtu in 256 512; do
    pingpong ibv_uc_pingpong "MTU $mtu" -g "$gid6" -c -m $mtu -s 4097 -n 100
done

# These transports do not retransmit a packet that finds no receive WQE, so there are WQEs for all packets. With an
# SRQ perftest posts as many as one queue pair needs.
for connection in UD UC; do
    perf ib_send_bw -c $connection -n 500
    perf ib_send_lat -c $connection -n 200
    perf ib_send_bw -c $connection -n 500 -s 64 -e
    perf ib_send_bw -c $connection -n 500 -s 512 -b
    perf ib_send_bw -c $connection -n 500 -s 256 -q 8
    perf ib_send_bw -c $connection -n 500 -s 64 -I 64
    perf ib_send_bw -c $connection -n 500 -s 64 --use_old_post_send
    perf ib_send_bw -c $connection -n 200 -s 512 --use-srq
done
perf ib_write_bw -c UC -n 1000
perf ib_write_lat -c UC -n 200
perf ib_send_bw -c RC --use-srq -q 8 -n 500 -s 4096
perf ib_send_bw -c RC --use-srq -q 8 -n 500 -s 4096 -e
perf ib_send_lat -c RC --use-srq -n 200
kernel_clean "the kernel logs are clean"
finish
