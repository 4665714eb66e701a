# Runs dynamic connections between two guests by both versions of IP, over a wire of datagrams and over a stream.
# Targets are in the first guest, and the second one compares their data with the data that it sent. 22-dynamic does
# this within one guest.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:link=dgram --nic qrnic:link=stream --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

TRY_TIMEOUT=$((60 * TIME_FACTOR))
program() { echo "set -o pipefail; qrnic-dynamic-hosts-test $1 $2 $3 | tee test.log && ! grep -E '^not ok|SKIP' test.log"; }
counter() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/$2"; }
export -f counter

for device in "$RDMA0" "$RDMA1"; do
    for version in 4 6; do
        gid=$(gid_index "$device" $version)
        link=dgram
        [ "$device" = "$RDMA0" ] || link=stream
        pair "$link, IPv$version" 18611 "$(program "$device" "$gid")" "$(program "$device" "$gid" guest1)"
        sed 's/^/# /' pair.log
    done
    sleep 0.1
    # Targets are in the first guest only, initiators in the second.
    if [ "$GUEST" = 1 ]; then
        try "$link: connections were accepted, and some rejected" \
            "[ \$(counter $device dynamic_accepts) -gt 50 ] && [ \$(counter $device tx_cnak) -gt 8 ]"
    else
        try "$link: connections were made, and closed" \
            "[ \$(counter $device dynamic_connects) -gt 50 ] && [ \$(counter $device dynamic_disconnects) -gt 50 ]"
    fi
done
kernel_clean "the kernel logs are clean"
finish
