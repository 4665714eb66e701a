# Checks priorities of queue pairs: the test of the provider within each guest, bulk flows and a short one between the
# guests, and the counters.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed
# guest: --guests 2 --nic qrnic --timeout 600
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
counters=/sys/class/infiniband/$RDMA0/ports/1/hw_counters

provider() { echo "set -o pipefail; qrnic-priority-test $RDMA0 $1 | tee test.log && ! grep -E '^not ok|the level.*SKIP' test.log"; }
beside "the provider's test, IPv4" "$(provider "$gid4")" "the provider's test, IPv6" "$(provider "$gid6")"
sleep 0.1
try "slots were assigned by priority" "[ \$(cat $counters/priority_slots) -gt 0 ]"
try "rdma statistic shows them" "rdma statistic show link $RDMA0/1 | grep -q priority_slots"

# The example with the short flow at the same priority, and at a higher one
for way in "" "-p 15"; do
    pair "the example priorities $way" 18603 "priorities -d $RDMA0 -g $gid4" \
        "priorities -d $RDMA0 -g $gid4 -n 200 $way guest1 | tee example.log"
    [ "$GUEST" != 2 ] || sed 's/^/# /' example.log
done
kernel_clean "the kernel logs are clean"
finish
