# Uses send queues with an event index: the device finds WQEs by itself, and programs ring fewer doorbells. The second
# adapter has no event index. The test of the provider compares all data.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic,doorbell-hold=50000 --nic qrnic,cap-event-index=off --cpus 2
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

port_counter() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/$2"; }

try "the provider's test with an event index" "set -o pipefail; qrnic-event-test $RDMA0 | tee event.log && ! grep SKIP event.log"
show event.log 25
try "the device wrote event indexes" "[ $(port_counter "$RDMA0" event_writes) -gt 0 ]"
try "the provider's test with an event index and direct WQEs" "QRNIC_DIRECT_WQE=1 qrnic-event-test $RDMA0"
try "the provider's test without event index" \
    "set -o pipefail; qrnic-event-test $RDMA1 | tee plain.log && grep -c SKIP plain.log | grep -qx 1"
show plain.log 25
try "no event index was written" "[ $(port_counter "$RDMA1" event_writes) = 0 ]"
kernel_clean "the kernel log is clean"
finish
