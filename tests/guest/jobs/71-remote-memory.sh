# Tests atomic writes, flushes and device memory with Soft-RoCE as the peer. The flushes of Soft-RoCE have a different
# ICRC (manual, Wire format).
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic/rxe --device-prop icrc=soft-roce --timeout 900
# files: verbs/remote_memory.py
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

TRY_TIMEOUT=$((150 * TIME_FACTOR))
for version in 4 6; do
    gid=$(gid_index "$RDMA0" $version)
    pair "atomic writes, flushes and device memory with Soft-RoCE, IPv$version" 18610 \
        "python3 /etc/qrnic/remote_memory.py $RDMA0 $gid" "python3 /etc/qrnic/remote_memory.py $RDMA0 $gid guest1"
done
kernel_clean "the kernel logs are clean"
finish
