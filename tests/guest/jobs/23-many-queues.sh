# Creates, connects and uses many connections in one guest, on a device that caches only 64 contexts, in both modes of
# the context cache. 23-queues-64k uses the maximum number of queue pairs.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic,max-qp=66000,context-cache=64 --nic qrnic,max-qp=66000,context-cache=64,context-stations=0 --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

TRY_TIMEOUT=$((100 * TIME_FACTOR))
count=2048
counter() { cat "/sys/class/infiniband/$1/hw_counters/$2"; }
export -f counter

for device in "$RDMA0" "$RDMA1"; do
    try "$count queue pairs of $device: each is connected and used" "many_connections -d $device -n $count"
    sed 's/^/# /' try.log
    try "contexts were fetched and written back" "[ \$(counter $device context_misses) -gt $count ] &&
        [ \$(counter $device context_write_backs) -gt $count ] && [ \$(counter $device context_hits) -gt 1000 ]"
    echo "# $device: $(for c in hits misses write_backs; do echo -n "$c $(counter "$device" context_$c) "; done)"
done
# Kills a process while it runs. The kernel must destroy its objects.
try "killed while it runs, no object is left" "many_connections -d $RDMA0 -n 4000 & sleep 3; kill -9 \$! && wait; \
    wait_until 60 eval '! rdma resource show qp | grep -q \"type RC\"'"
try "and works again" "many_connections -d $RDMA0 -n 64"
kernel_clean "the kernel log is clean"
finish
