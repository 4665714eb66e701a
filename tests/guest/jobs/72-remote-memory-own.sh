# Runs the tests of 71-remote-memory between two qrnic adapters, with the standard ICRC. Both have device memory.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 900
# files: verbs/remote_memory.py
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

TRY_TIMEOUT=$((150 * TIME_FACTOR))
gid=$(gid_index "$RDMA0" 4)
pair "atomic writes, flushes and device memory at both ends" 18610 \
    "python3 /etc/qrnic/remote_memory.py $RDMA0 $gid" "python3 /etc/qrnic/remote_memory.py $RDMA0 $gid guest1"
try "flushes were received" "grep -qv '^0' /sys/class/infiniband/$RDMA0/ports/1/hw_counters/rx_flush"
kernel_clean "the kernel logs are clean"
finish
