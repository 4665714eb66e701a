# Runs tag matching: the test of the provider within each guest. Also kills a process whose tag list is in use; no
# object may remain.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 600
# guest errors: command-failed tag-operation key-refused
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
counters=/sys/class/infiniband/$RDMA0/hw_counters

# One test is always skipped, because it is for an adapter without tag matching.
provider() { echo "set -o pipefail; $1 qrnic-tag-test $RDMA0 $2 | tee test.log && ! grep -E '^not ok|SKIP' test.log | grep -v 'an adapter without'"; }
beside "the provider's test, IPv4" "$(provider "" "$gid4")" "the provider's test, IPv6" "$(provider "" "$gid6")"
# QRNIC_INLINE_RECV requests data in CQEs. The provider must ignore this request, because a queue pair of such an SRQ
# does not support it.
try "the provider's test, and received data in completions" "$(provider QRNIC_INLINE_RECV=1 "$gid6")"
sleep 0.1
try "messages were matched, unexpected, without a tag, and malformed" \
    "[ \$(cat $counters/tag_matches) -gt 10000 ] && [ \$(cat $counters/tag_unexpected) -gt 200 ] && [ \$(cat $counters/tag_untagged) -ge 7 ] && [ \$(cat $counters/tag_malformed) -ge 5 ]"

# shellcheck disable=SC2317  # called through wait_until
queue_pairs() { rdma resource show qp link "$RDMA0" | grep -c 'pid'; }
# shellcheck disable=SC2317
none_left() { [ "$(queue_pairs)" = 0 ] && ! rdma resource show srq link "$RDMA0" | grep -q pid; }
export -f queue_pairs none_left
for round in 1 2 3; do
    try "killed while it runs, no object is left, $round" "kill_after '# loop' 1 qrnic-tag-test $RDMA0 $gid4 loop && wait_until 20 none_left"
done
try "the provider's test afterwards" "$(provider "" "$gid4")"
# The example, with all of its options
for way in "" -r -o "-o -r"; do
    # shellcheck disable=SC2086
    try "the example tag_matching $way" "tag_matching -d $RDMA0 -g $gid4 -n 5 -l 500 -s 3000 $way"
done
kernel_clean "the kernel logs are clean"
finish
