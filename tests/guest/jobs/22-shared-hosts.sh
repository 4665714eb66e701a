# Runs shared connections between two guests whose wire loses, reorders, repeats and corrupts frames. Each process of
# the first guest has one shared connection to all processes of the second. All bytes are compared, with and without
# selective repeat, by both versions of IP. 22-shared does this within one guest.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:link=dgram --wire loss=1,reorder=0.5,repeat=0.5,corrupt=0.3,seed=7 --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

# The program itself ends after 40 seconds without progress. The whole time depends on lost packets and on the host.
TRY_TIMEOUT=$((600 * TIME_FACTOR))
PROCESSES=4
port=/sys/class/infiniband/$RDMA0/ports/1/hw_counters
device=/sys/class/infiniband/$RDMA0/hw_counters
# All transmissions with this timeout (537 ms) last 4 seconds, so that a stopped guest fails no connection. A longer timeout
# would delay each connection whose last packet is lost.
program() { echo "set -o pipefail; QRNIC_ACK_TIMEOUT=17 $2 qrnic-shared-hosts-test $RDMA0 $1 $PROCESSES $3 | tee test.log && ! grep -E '^not ok|SKIP' test.log"; }
seen() {
    sed 's/^/# /' pair.log
    echo "# guest$GUEST $1: $(grep -H . "$port"/{retransmissions,timeouts,tx_nak_sequence,tx_sack,rx_sack} \
        "$device"/{tx_inner,rx_inner,rx_inner_early,rx_drop_inner} | sed 's|.*/||' | tr '\n' ' ')"
}

for version in 4 6; do
    gid=$(gid_index "$RDMA0" $version)
    pair "all to all, go-back-N, IPv$version" 18612 "$(program "$gid")" "$(program "$gid" "" guest1)"
    seen "go-back-N, IPv$version"
done
both "no packet of selective repeat was sent, and none out of order" \
    "sleep 0.1; [ \$(cat $port/tx_sack) = 0 ] && [ \$(cat $device/rx_inner_early) = 0 ] && [ \$(cat $device/rx_inner) -gt 1000 ]"
for version in 4 6; do
    gid=$(gid_index "$RDMA0" $version)
    pair "all to all, selective repeat, IPv$version" 18612 "$(program "$gid" QRNIC_SELECTIVE_REPEAT=1)" \
        "$(program "$gid" QRNIC_SELECTIVE_REPEAT=1 guest1)"
    seen "selective repeat, IPv$version"
done
both "packets of other members were delivered early, and no member failed" \
    "sleep 0.1; [ \$(cat $device/rx_inner_early) -gt 0 ] && [ \$(cat $port/rx_sack) -gt 0 ] && [ \$(cat $device/members_failed) = 0 ]"
both "no object is left" "! rdma -dd resource show qp | grep qrnic-shared"
kernel_clean "the kernel logs are clean"
finish
