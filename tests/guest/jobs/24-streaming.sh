# Runs streaming receive: the test of the provider within each guest. Also kills a process with open buffers; no
# object may remain.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 600
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
counters=/sys/class/infiniband/$RDMA0/hw_counters

provider() { echo "set -o pipefail; $1 qrnic-streaming-test $RDMA0 $2 | tee test.log && ! grep -E '^not ok|SKIP' test.log"; }
beside "the provider's test, IPv4" "$(provider "" "$gid4")" "the provider's test, IPv6" "$(provider "" "$gid6")"
# QRNIC_INLINE_RECV requests data in CQEs. The provider must ignore this request, because a streaming queue does not
# support it.
try "the provider's test, and received data in completions" "$(provider QRNIC_INLINE_RECV=1 "$gid6")"
sleep 0.1
try "buffers were used up, and each received many messages" \
    "[ \$((\$(cat $counters/stream_buffers) * 4)) -lt \$(cat $counters/stream_messages) ]"

# shellcheck disable=SC2317  # called through wait_until
queue_pairs() { rdma resource show qp link "$RDMA0" | grep -c 'pid'; }
# shellcheck disable=SC2317
none_left() { [ "$(queue_pairs)" = 0 ] && ! rdma resource show srq link "$RDMA0" | grep -q pid; }
export -f queue_pairs none_left
for round in 1 2 3; do
    try "killed while it runs, no object is left, $round" "kill_after '# loop' 1 qrnic-streaming-test $RDMA0 $gid4 loop && wait_until 20 none_left"
done
try "the provider's test afterwards" "$(provider "" "$gid4")"
# The example with as many buffers as messages, and with far fewer
for way in "" -o; do
    pair "the example stream_receive $way" 18602 "stream_receive -d $RDMA0 -g $gid4 -n 500 $way | tee example.log" \
        "stream_receive -d $RDMA0 -g $gid4 -n 500 guest1"
    [ "$GUEST" != 1 ] || sed 's/^/# /' example.log
done
kernel_clean "the kernel logs are clean"
finish
