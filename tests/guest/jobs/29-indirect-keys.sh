# Uses indirect keys: the test of the provider within a guest by both versions of IP. Also kills a process while its
# keys are valid and in use.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic --timeout 900
# guest errors: piece-refused
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

provider() { echo "set -o pipefail; qrnic-indirect-test $RDMA0 $1 | tee test.log && ! grep -E '^not ok|SKIP' test.log"; }
try "the provider's test, IPv4" "$(provider "$(gid_index "$RDMA0" 4)")"
try "the provider's test, IPv6" "$(provider "$(gid_index "$RDMA0" 6)")"

# shellcheck disable=SC2317  # called through wait_until
nothing_left() { ! rdma resource show qp | grep -q qrnic-indirect && ! rdma resource show pd | grep -q qrnic-indirect; }
export -f nothing_left
try "a process is killed while it runs, and all is freed" "for i in 1 2 3; do
    kill_after holding 0 qrnic-indirect-test $RDMA0 $(gid_index "$RDMA0" 4) hold || exit
    wait_until 20 nothing_left || { rdma resource show; exit 1; }; done"
try "the provider's test afterwards" "$(provider "$(gid_index "$RDMA0" 4)")"
kernel_clean "the kernel log is clean"
finish
