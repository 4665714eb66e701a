# rdma-core's own test suite, of the version of the guest's libibverbs: every generic test
# must pass or be named, with the reason, in tests/guest/rdma-core-suite/agreed.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed key-refused
# guest: --guests 1 --nic qrnic --timeout 900
# files: rdma-core-suite/suite.py rdma-core-suite/agreed
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

# Some tests want huge pages; they are to be had only while memory is in one piece. With fewer
# they skip themselves, which nobody has agreed to.
echo 24 >/proc/sys/vm/nr_hugepages
# Programs of the suite print what they like; TAP comes from suite.py on standard output.
version=$(dpkg-query -W -f '${Version}' libibverbs1)
VERSIONS="rdma-core=${version%-*} linux=$(uname -r)"
export VERSIONS
timeout $((800 * TIME_FACTOR)) python3 -W ignore /etc/qrnic/suite.py /usr/lib/qrnic/rdma-core-tests/tests /etc/qrnic/agreed \
    --dev "$RDMA0" 2>suite.log
# shellcheck disable=SC2034  # for the results that follow, and the plan
if [ -e count ]; then
    # shellcheck source=/dev/null
    . ./count
else
    show suite.log 40
    result 1 "the suite ran to its end"
fi
try "all of its tests ran" "[ $tests -ge 181 ]"
try "the adapter works as before" "ibv_devinfo -v && rdma resource show $RDMA0 && ! rdma resource show qp | grep 'type RC'"
kernel_clean "the kernel log is clean"
finish
