# Runs XRC between two guests: pingpongs of rdma-core and perftest, polled and with events. The test suite of
# rdma-core (80-rdma-core-suite) covers more.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 600
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
TRY_TIMEOUT=$((60 * TIME_FACTOR))

# The client of ibv_xsrq_pingpong does not need the number of clients.
pingpong() {
    local name=$1 server=$2
    shift 2
    pair "ibv_xsrq_pingpong, $name" 18515 "ibv_xsrq_pingpong -d $RDMA0 $* $server" "ibv_xsrq_pingpong -d $RDMA0 $* guest1"
}

perf() {
    local program=$1
    shift
    pair "$program -c XRC $*" 18515 "$program -d $RDMA0 -x $gid4 -F -c XRC $*" "$program -d $RDMA0 -x $gid4 -F -c XRC $* guest1"
}

try "verbs report XRC" "ibv_devinfo -v | grep -q 'XRC'"
one() { echo "set -o pipefail; qrnic-xrc-test $RDMA0 $1 | tee xrc.log && [ \$(grep -c SKIP xrc.log) = 1 ]"; }
processes() { echo "set -o pipefail; qrnic-xrc-process-test $RDMA0 $1 | tee xrc.log && ! grep SKIP xrc.log"; }
beside "the provider's test of XRC, IPv4" "$(one "$gid4")" "the provider's test of XRC, IPv6" "$(one "$gid6")"
beside "receiving programs that a third one starts, IPv4" "$(processes "$gid4")" \
    "receiving programs that a third one starts, IPv6" "$(processes "$gid6")"
for events in "" -e; do
    for gid in "$gid4" "$gid6"; do
        for size in 1 4096 65537; do
            pingpong "GID $gid, $size bytes $events" "" -g "$gid" -s $size -n 100 $events
        done
    done
done
for events in "" -e; do
    perf ib_send_bw -n 500 -s 4096 $events
    perf ib_send_bw -n 500 -s 64 -q 4 $events
    perf ib_read_bw -n 500 -s 65536 $events
done
perf ib_send_bw -n 500 -s 4096 --use_old_post_send
# perftest does not support events for writes.
perf ib_write_bw -n 500 -s 65536
perf ib_send_lat -n 500
perf ib_write_lat -n 500
perf ib_read_lat -n 500
perf ib_send_bw -n 500 -s 4096 -b
kernel_clean "the kernel logs are clean"
finish
