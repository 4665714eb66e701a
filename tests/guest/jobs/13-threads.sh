# Threads of a program use and destroy objects of each other, and destroy queue pairs with completions that were not
# polled. The adapter has few queue pairs, so that their numbers are soon reused.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic,max-qp=64 --cpus 2
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

try "the provider's test of threads" "set -o pipefail; qrnic-thread-test $RDMA0 | tee thread.log && ! grep SKIP thread.log"
try "the provider's test of threads under ThreadSanitizer" \
    "set -o pipefail; qrnic-thread-tsan-test $RDMA0 2>&1 | tee thread.log && ! grep SKIP thread.log"
try "the provider's test of threads, receiving into the completion" \
    "set -o pipefail; QRNIC_INLINE_RECV=1 qrnic-thread-test $RDMA0 | tee thread.log && ! grep SKIP thread.log"
try "the provider's test of unpolled completions" \
    "set -o pipefail; qrnic-unpolled-test $RDMA0 | tee unpolled.log && ! grep SKIP unpolled.log"
try "the provider's test of unpolled completions under AddressSanitizer" \
    "set -o pipefail; ASAN_OPTIONS=detect_leaks=0 qrnic-unpolled-asan-test $RDMA0 2>&1 | tee unpolled.log && ! grep SKIP unpolled.log"
try "the order of the provider's stores, and its locks" qrnic-order-test
kernel_clean "the kernel log is clean"
finish
