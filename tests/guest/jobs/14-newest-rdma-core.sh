# Runs the newest rdma-core, with the provider built for it, in a guest whose own rdma-core is the oldest supported
# one. The tests of the provider were linked with the oldest. Also runs pingpongs of the newest, and its test suite,
# as 80-rdma-core-suite does.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed key-refused piece-refused
# guest: --guests 1 --nic qrnic --cpus 2 --timeout 1000
# files: rdma-core-suite/suite.py rdma-core-suite/agreed
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

newest=
for newest in /opt/rdma-core-*; do :; done
if [ ! -d "$newest" ]; then
    skip "the newest rdma-core" "tools/check-newest rdma-core was not run"
    finish
fi
gid=$(gid_index "$RDMA0" 4)
export LD_LIBRARY_PATH=$newest/lib
PATH=$newest/bin:$PATH
try "the libraries are those of ${newest#/opt/}" "ldd \$(command -v ibv_rc_pingpong) | tee /dev/stderr | grep -q 'libibverbs.*$newest'"
try "ibv_devinfo" "LD_DEBUG=files ibv_devinfo -v 2>&1 | grep -q 'calling init: $newest/lib/libqrnic' && ibv_devinfo -v"
for test in provider transport packet errno inline xrc priority dynamic streaming indirect on-demand; do
    try "the provider's $test test" "qrnic-$test-test $RDMA0"
done
for program in ibv_rc_pingpong ibv_srq_pingpong "ibv_ud_pingpong -s 1024"; do
    for events in "" -e; do
        alone "$program $events" 18515 "$program -d $RDMA0 -g $gid $events" "$program -d $RDMA0 -g $gid $events localhost"
    done
done
if [ -d "$newest/tests" ]; then
    try "ibv_query_port_speed" "set -x; speed=\$(ibv_devinfo -v | awk '\$1 == \"effective_speed:\" { print \$2 * 1000 }')
        [ \"\$speed\" = \$(cat /sys/class/net/$NIC0/speed) ]"
    export PYTHONPATH=$newest/python
    rdma_core_suite "${newest##*-}" "$newest/tests" 234
else
    skip "the suite of ${newest#/opt/}" "tools/guest-build-provider --rdma-core ${newest##*-} was run by an older qrnic"
fi
kernel_clean "the kernel log is clean"
finish
