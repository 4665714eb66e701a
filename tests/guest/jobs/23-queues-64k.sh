# Creates, connects and uses 65,536 queue pairs in one guest, on a device that caches the contexts of 64.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic,max-qp=66000,context-cache=64 --memory 4096 --timeout 900
# full
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

TRY_TIMEOUT=$((300 * TIME_FACTOR))
count=65536
counters=/sys/class/infiniband/$RDMA0/hw_counters

try "$count queue pairs: each is connected and used" "many_connections -d $RDMA0 -n $count"
sed 's/^/# /' try.log
try "each context was fetched and written back" "[ \$(cat $counters/context_misses) -gt $count ] &&
    [ \$(cat $counters/context_write_backs) -gt $count ]"
try "no object is left" "wait_until 60 eval '! rdma resource show qp | grep -q \"type RC\"'"
kernel_clean "the kernel log is clean"
finish
